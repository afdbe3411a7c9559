/* target.c - the model that a head drafts for: reads its sizes, and compares its embedding and output with the head's. */
#include <math.h>

#include "convert/checkpoint/checkpoint.h"
#include "quant/types.h"

aerie_status ae_convert_head_target(ae_convert *c)
{
    const ae_model_options how = {.no_mmap = true};
    if (!c->options.target) return AERIE_OK;
    AE_TRY(ae_model_load(&c->target, c->options.target, &how, c->error));
    if (!c->target->hparams.encoder) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_ARGUMENT, "%s: architecture %s is an encoder, for which nothing can draft",
                   c->options.target, c->target->hparams.arch);
}

/* Returns the tolerance for a format: twice the relative rounding error at its bits per weight (measured: 0.08 at 4.5 bits,
 * 0.005 at
 * 8.5), and at least the loss of other 16-bit formats. */
static double tolerance(const ae_gguf_tensor *t)
{
    const double bits = 8.0 * (double)t->bytes / ((double)t->ne[0] * (double)t->ne[1]);
    return fmax(0.01, 3.5 * exp2(-bits));
}

aerie_status ae_convert_head_same(const ae_convert *c, const ae_st_tensor *t, const ae_gguf_tensor *of_target, bool *same)
{
    const ae_type_info *info = ae_type_get(of_target->type);
    const size_t n = (size_t)of_target->ne[0], row_bytes = ae_type_row_bytes(of_target->type, n);
    uint64_t rows = (uint64_t)of_target->ne[1];
    double of_all = 0, apart = 0;
    *same = false;
    if (t->n_dims != 2 || t->shape[1] != n || !info || !info->decode) return AERIE_OK;
    if (t->shape[0] < rows) rows = t->shape[0];
    float *x = ae_alloc(n, sizeof *x), *y = ae_alloc(n, sizeof *y);
    void *blocks = ae_alloc(1, row_bytes ? row_bytes : 1);
    aerie_status status = x && y && blocks ? AERIE_OK : ae_convert_no_memory(c, "a row of the target");
    ae_gguf_reader reader = ae_gguf_reader_open(c->target->gguf);
    for (uint64_t r = 0; r < rows && status == AERIE_OK; r++) {
        status = ae_gguf_read(&reader, of_target, (size_t)r * row_bytes, blocks, row_bytes, c->error);
        if (status != AERIE_OK || !ae_convert_floats(t, r * n, x, n)) break;
        info->decode(blocks, y, n);
        for (size_t i = 0; i < n; i++) {
            const double d = (double)x[i] - (double)y[i];
            of_all += (double)y[i] * (double)y[i];
            apart += d * d;
        }
    }
    ae_gguf_reader_close(&reader);
    ae_free(x);
    ae_free(y);
    ae_free(blocks);
    *same = status == AERIE_OK && of_all > 0 && sqrt(apart / of_all) <= tolerance(of_target);
    return status;
}

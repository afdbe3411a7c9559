/* convert_target.c - the model that a head drafts for: its sizes, and whether the head's tables are copies of its own. */
#include <math.h>
#include <stdlib.h>

#include "convert/convert.h"
#include "quant/types.h"

int convert_open_target(convert *c)
{
    const ae_model_options how = {.no_mmap = true, .no_vocab = true};
    aerie_error error = {0};
    if (!c->options->convert_target) return APP_DONE;
    return app_report(APP_LOADING, ae_model_load(&c->target, c->options->convert_target, &how, &error), &error);
}

/* Rounding by a format of so many bits, relative: measured 0.08 at 4.5 bits, 0.005 at 8.5; twice that, and a floor for what
 * passed through other 16-bit formats. */
static double tolerance(const ae_gguf_tensor *t)
{
    const double bits = 8.0 * (double)t->bytes / ((double)t->ne[0] * (double)t->ne[1]);
    return fmax(0.01, 3.5 * exp2(-bits));
}

int convert_same_as_target(const convert *c, const ae_st_tensor *t, const ae_gguf_tensor *of_target, bool *same)
{
    const ae_type_info *info = ae_type_get(of_target->type);
    const size_t n = (size_t)of_target->ne[0], row_bytes = ae_type_row_bytes(of_target->type, n);
    uint64_t rows = (uint64_t)of_target->ne[1];
    double of_all = 0, apart = 0;
    *same = false;
    if (t->n_dims != 2 || t->shape[1] != n || !info || !info->decode) return APP_DONE;
    if (t->shape[0] < rows) rows = t->shape[0];
    float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
    void *blocks = malloc(row_bytes ? row_bytes : 1);
    int bad = x && y && blocks ? APP_DONE : app_error_memory("a row of the target");
    aerie_error error = {0};
    ae_gguf_reader reader = ae_gguf_reader_open(c->target->gguf);
    for (uint64_t r = 0; r < rows && !bad; r++) {
        const aerie_status status = ae_gguf_read(&reader, of_target, (size_t)r * row_bytes, blocks, row_bytes, &error);
        bad = app_report(APP_LOADING, status, &error);
        if (bad || !convert_floats(t, r * n, x, n)) break;
        info->decode(blocks, y, n);
        for (size_t i = 0; i < n; i++) {
            const double d = (double)x[i] - (double)y[i];
            of_all += (double)y[i] * (double)y[i];
            apart += d * d;
        }
    }
    ae_gguf_reader_close(&reader);
    free(x);
    free(y);
    free(blocks);
    *same = !bad && of_all > 0 && sqrt(apart / of_all) <= tolerance(of_target);
    return bad;
}

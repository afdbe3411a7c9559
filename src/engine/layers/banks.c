/* banks.c - attention residuals (Kimi K3): see ae_hparams.n_banks and block.h.
 *
 * A block reads a sum of the stream and of the rows that were banked before some layers, weighed by the softmax of their
 * scores, and adds to the stream as usual; before layers that bank, the stream begins anew with what the mixer adds.
 * Owns nothing. Source: llama.cpp's graph. */
#include "engine/layers/block.h"

static size_t stride_of(const ae_block *b)
{
    return (size_t)b->h->n_banks * b->h->n_embd;
}

/* Returns how many banks are filled before the mixer of layer i reads them; the layer's feed-forward block also sees the
 * layer's own bank. */
static uint32_t n_before(const ae_block *b, uint32_t i)
{
    return (i + b->h->bank_every - 1) / b->h->bank_every;
}

/* Computes the scores of the first n banks and, after them, of the stream. */
static void score(const ae_block *b, const ae_weight *weight, uint32_t n)
{
    for (uint32_t k = 0; k <= n; k++) {
        ae_matmul m = ae_block_input(b, b->ones, NULL);
        if (k < n) m.x = b->banks + (size_t)k * b->h->n_embd, m.x_stride = stride_of(b);
        ae_block_output(&m, weight, NULL, b->bank_coef + k, b->h->n_banks + 1, false);
        ae_block_matmul(b, &m);
    }
}

/* Writes to y the sum of the first n banks and of the stream. */
static void sum(const ae_block *b, const ae_weight *weight, uint32_t n, float *y)
{
    const uint32_t dim = b->h->n_embd;
    const size_t stride = b->h->n_banks + 1;
    score(b, weight, n);
    b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_SOFTMAX, .n_rows = b->n_rows, .dim = n + 1, .x = b->bank_coef,
                                     .x_stride = stride});
    b->ops->mix(b->stream, &(ae_row_mix){.n_rows = b->n_rows, .dim = dim, .n_in = n, .n_out = 1, .x = b->banks,
                                         .x_stride = stride_of(b), .x_step = dim, .coef = b->bank_coef, .coef_stride = stride,
                                         .in_step = 1, .y = y, .y_stride = dim});
    b->ops->mix(b->stream, &(ae_row_mix){.n_rows = b->n_rows, .dim = dim, .n_in = 1, .n_out = 1, .x = b->x, .x_stride = dim,
                                         .start = y, .start_stride = dim, .coef = b->bank_coef + n, .coef_stride = stride,
                                         .y = y, .y_stride = dim});
}

float *ae_block_banked(const ae_block *b, const ae_net_layer *l, bool ffn)
{
    const uint32_t n = n_before(b, l->index) + (ffn && l->index % b->h->bank_every == 0);
    if (!n) return b->x;
    sum(b, ffn ? l->ffn_score : l->mixer_score, n, b->mixed);
    return b->mixed;
}

bool ae_block_bank(const ae_block *b, const ae_net_layer *l)
{
    if (l->index % b->h->bank_every) return false;
    const uint32_t dim = b->h->n_embd;
    b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = dim, .x = b->x, .x_stride = dim,
                                       .y = b->banks + (size_t)(l->index / b->h->bank_every) * dim, .y_stride = stride_of(b)});
    return true;
}

void ae_block_banks_end(const ae_block *b, const ae_weight *weight)
{
    const uint32_t dim = b->h->n_embd;
    sum(b, weight, b->h->n_banks, b->mixed);
    b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = dim, .x = b->mixed, .x_stride = dim, .y = b->x, .y_stride = dim});
}

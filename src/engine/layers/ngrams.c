/* ngrams.c - what a layer adds to the streams from a memory of n-grams (Qwen 4, ae_memory_hparams): see block.h.
 *
 * Hashes of the row's last tokens name rows of a table. A key for each stream and one value are computed from them; how well
 * the key agrees with the stream gates the value, and a convolution over the gated values of earlier rows is added, too. What
 * it needs of earlier rows, their tokens and normed values, is in the pages of the KV cache, so drafts, rollback and shared
 * prefixes have it as they have keys and values.
 * Owns nothing. */
#include <math.h>

#include "engine/layers/block.h"

/* Norms each stream's part of rows by weights of its own. */
static void norm_parts(const ae_block *b, float *x, const float *weight)
{
    const uint32_t n = b->h->n_embd, c = b->h->n_streams;
    b->ops->norm(b->stream, &(ae_norm){.n_rows = b->n_rows, .n_groups = c, .dim = n, .x = x, .x_stride = (size_t)c * n,
                                       .weight = weight, .eps = b->h->norm_eps, .each_group = true});
}

static void copy_streams(const ae_block *b, const float *x, float *y)
{
    const uint32_t wide = b->h->n_streams * b->h->n_embd;
    b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = wide, .x = x, .x_stride = wide, .y = y, .y_stride = wide});
}

static void look_up(const ae_block *b, const ae_net_memory *l, float *keys)
{
    const ae_memory_hparams *m = &b->h->memory;
    const uint32_t n_in = m->n_heads * m->width;
    ae_ngrams args = {.places = b->part_places, .kv = b->kv_parts, .layer = l->kept_tokens, .tokens = b->tokens, .end = m->end,
                      .n_tokens = m->n_tokens, .n_each = m->n_each, .y = b->memory_ids};
    for (uint32_t i = 0; i < AE_MAX_NGRAM; i++) args.factors[i] = m->factors[i];
    for (uint32_t i = 0; i < AE_MAX_NGRAM_HEADS; i++) args.sizes[i] = m->sizes[i], args.offsets[i] = m->offsets[i];
    b->ops->ngrams(b->stream, &args);
    b->ops->lookup(b->stream, l->table, b->memory_ids, b->n_rows * m->n_heads, b->memory_rows, m->width);
    ae_matmul p = {.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = b->memory_rows, .x_stride = n_in};
    ae_block_output(&p, l->key, NULL, keys, (size_t)b->h->n_streams * b->h->n_embd, false);
    ae_block_output(&p, l->value, NULL, b->y, b->h->n_embd, false);
    ae_block_matmul(b, &p);
}

void ae_block_remember(const ae_block *b, const ae_net_memory *l)
{
    const ae_memory_hparams *m = &b->h->memory;
    const uint32_t n = b->h->n_embd, c = b->h->n_streams, wide = c * n, stride = c * (c + 2);
    float *gated = b->hyper_gate, *kept = b->hyper_in;
    look_up(b, l, gated);
    norm_parts(b, gated, l->norm_key);
    copy_streams(b, b->streams, kept);
    norm_parts(b, kept, l->norm_query);
    b->ops->accord(b->stream, &(ae_accord){.n_rows = b->n_rows, .n_parts = c, .dim = n, .x = gated, .x2 = kept,
                                           .scale = 1.0f / sqrtf((float)n), .y = b->coef, .y_stride = stride});
    b->ops->mix(b->stream, &(ae_row_mix){.n_rows = b->n_rows, .dim = n, .n_in = 1, .n_out = c, .x = b->y, .x_stride = n,
                                         .coef = b->coef, .coef_stride = stride, .out_step = 1, .y = gated, .y_stride = wide,
                                         .y_step = n});
    copy_streams(b, gated, kept);
    norm_parts(b, kept, l->norm_conv);
    b->ops->trail(b->stream, &(ae_trail){.places = b->part_places, .kv = b->kv_parts, .layer = l->kept_rows,
                                         .n_heads = wide / m->part, .dim = m->part, .n_taps = m->n_taps, .step = m->n_tokens,
                                         .x = kept, .weight = l->taps, .y = kept});
    b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, wide, 1.0f, kept, wide, gated, wide});
    b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, wide, 1.0f, gated, wide, b->streams, wide});
}

/* streams.c - layers of models whose rows have several streams (AltUp, Gemma 3n; arXiv 2301.13310): see block.h.
 *
 * Owns nothing. A layer works on the first stream: before it, all streams are predicted from all streams; after it, all are
 * corrected by what the layer changed. Between layers the block's x is a copy of the first stream. Source: the published
 * model's code. */
#include "engine/layers/block.h"

#include <math.h>

static float *stream_of(const ae_block *b, uint32_t k)
{
    return b->streams + (size_t)k * b->h->n_embd;
}

static size_t stride_of(const ae_block *b)
{
    return (size_t)b->h->n_streams * b->h->n_embd;
}

static void copy(const ae_block *b, const float *x, size_t x_stride, float *y, size_t y_stride)
{
    b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = b->h->n_embd, .x = x, .x_stride = x_stride, .y = y,
                                       .y_stride = y_stride});
}

static void map(const ae_block *b, ae_map_kind kind, float *x, uint32_t dim, float a)
{
    b->ops->map(b->stream, &(ae_map){.kind = kind, .n_rows = b->n_rows, .dim = dim, .x = x, .x_stride = dim, .a = a});
}

/* Scales the rows of a stream to the root mean square of the rows `like`. */
static void match(const ae_block *b, float *x, size_t stride, const float *like, size_t like_stride)
{
    b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_MATCH, .n_rows = b->n_rows, .dim = b->h->n_embd, .x = x, .x_stride = stride,
                                     .x2 = like, .x2_stride = like_stride, .a = 1e-5f});
}

/* Writes n coefficients of b->x to b->coef: tanh of the router's output, times the matrix with n rows, plus the bias. */
static void coefficients(const ae_block *b, const ae_weight *router, const float *norm, const ae_weight *matrix,
                         const float *bias, uint32_t n)
{
    const uint32_t c = b->h->n_streams;
    float *modal = b->coef + (size_t)b->n_rows * c * c;
    ae_matmul m = ae_block_input(b, norm, NULL);
    ae_block_output(&m, router, NULL, modal, c, false);
    ae_block_matmul(b, &m);
    map(b, AE_MAP_SCALE, modal, c, 1.0f / (float)b->h->n_embd);
    map(b, AE_MAP_SOFTCAP, modal, c, 1.0f);
    m = (ae_matmul){.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = modal, .x_stride = c};
    ae_block_output(&m, matrix, bias, b->coef, n, false);
    ae_block_matmul(b, &m);
}

void ae_block_streams_begin(const ae_block *b, ae_weight *const *proj)
{
    const uint32_t n = b->h->n_embd;
    copy(b, b->x, n, b->streams, stride_of(b));
    for (uint32_t k = 1; k < b->h->n_streams; k++) {
        ae_matmul m = ae_block_input(b, NULL, NULL);
        ae_block_output(&m, proj[k], NULL, stream_of(b, k), stride_of(b), false);
        ae_block_matmul(b, &m);
        match(b, stream_of(b, k), stride_of(b), b->x, n);
    }
}

void ae_block_streams_end(const ae_block *b, ae_weight *const *unembd)
{
    const uint32_t n = b->h->n_embd;
    for (uint32_t k = 1; k < b->h->n_streams; k++) {
        ae_matmul m = {.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = stream_of(b, k), .x_stride = stride_of(b)};
        ae_block_output(&m, unembd[k], NULL, b->y, n, false);
        ae_block_matmul(b, &m);
        match(b, b->y, n, b->streams, stride_of(b));
        b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, n, 1.0f, b->y, n, b->x, n});
    }
    map(b, AE_MAP_SCALE, b->x, n, 1.0f / (float)b->h->n_streams);
}

void ae_block_predict(const ae_block *b, const ae_net_layer *l)
{
    const uint32_t n = b->h->n_embd, c = b->h->n_streams;
    coefficients(b, l->altup.router, l->altup.router_norm, l->altup.predict, NULL, c * c);
    b->ops->mix(b->stream, &(ae_row_mix){.n_rows = b->n_rows, .dim = n, .n_in = c, .n_out = c, .x = b->streams,
                                     .x_stride = stride_of(b), .x_step = n, .start = b->streams, .start_stride = stride_of(b),
                                     .start_step = n, .coef = b->coef, .coef_stride = (size_t)c * c, .out_step = c,
                                     .in_step = 1, .y = b->streams, .y_stride = stride_of(b), .y_step = n});
    copy(b, b->streams, stride_of(b), b->x, n);
}

void ae_block_laurel(const ae_block *b, const ae_net_layer *l)
{
    const uint32_t n = b->h->n_embd, rank = b->h->laurel_rank;
    copy(b, b->x, n, b->normed, n);
    b->ops->norm(b->stream, &(ae_norm){.n_rows = b->n_rows, .n_groups = 1, .dim = n, .x = b->normed, .x_stride = n,
                                       .weight = l->attn_norm, .eps = b->h->norm_eps});
    ae_matmul m = {.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = b->normed, .x_stride = n};
    ae_block_output(&m, l->altup.laurel_a, NULL, b->laurel, rank, false);
    ae_block_matmul(b, &m);
    m = (ae_matmul){.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = b->laurel, .x_stride = rank};
    ae_block_output(&m, l->altup.laurel_b, NULL, b->y2, n, false);
    ae_block_matmul(b, &m);
    b->ops->norm(b->stream, &(ae_norm){.n_rows = b->n_rows, .n_groups = 1, .dim = n, .x = b->y2, .x_stride = n,
                                       .weight = l->altup.laurel_norm, .eps = b->h->norm_eps});
    b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, n, 1.0f, b->normed, n, b->y2, n});
}

void ae_block_join_laurel(const ae_block *b)
{
    const uint32_t n = b->h->n_embd;
    b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, n, 1.0f, b->y2, n, b->x, n});
    map(b, AE_MAP_SCALE, b->x, n, 1.0f / sqrtf(2.0f));
}

void ae_block_correct(const ae_block *b, const ae_net_layer *l)
{
    const uint32_t n = b->h->n_embd, c = b->h->n_streams;
    coefficients(b, l->altup.late_router, l->altup.late_router_norm, l->altup.correct, b->ones, c);
    b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, n, -1.0f, b->streams, stride_of(b), b->x, n}); /* what has changed */
    b->ops->mix(b->stream, &(ae_row_mix){.n_rows = b->n_rows, .dim = n, .n_in = 1, .n_out = c, .x = b->x, .x_stride = n,
                                     .start = b->streams, .start_stride = stride_of(b), .start_step = n, .coef = b->coef,
                                     .coef_stride = c, .out_step = 1, .y = b->streams, .y_stride = stride_of(b),
                                     .y_step = n});
    copy(b, b->streams, stride_of(b), b->x, n);
}

void ae_block_spread(const ae_block *b)
{
    const uint32_t n = b->h->n_embd;
    for (uint32_t k = 1; k < b->h->n_streams; k++)
        b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, n, 1.0f, b->y, n, stream_of(b, k), stride_of(b)});
}

/* ---- A low and a high stream: the first and the second of `streams` --------------------------------------------- */

void ae_block_cycles_begin(const ae_block *b, const float *low_start)
{
    const uint32_t n = b->h->n_embd;
    b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = n, .x = low_start, .x_stride = 0, .y = b->streams,
                                       .y_stride = 2 * (size_t)n});
    copy(b, b->x, n, b->streams + n, 2 * (size_t)n);
    b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, n, 1.0f, b->streams, 2 * (size_t)n, b->x, n});
}

void ae_block_cycle(const ae_block *b, const ae_net_layer *l)
{
    const uint32_t n = b->h->n_embd, own = ae_model_is_high(b->h, l->index) ? n : 0;
    copy(b, b->x, n, b->streams + own, 2 * (size_t)n);
    b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, n, 1.0f, b->streams + (n - own), 2 * (size_t)n, b->x, n});
}

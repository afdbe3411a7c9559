/* hyper.c - layers of models with hyper-connections (arXiv 2512.24880): see block.h.
 *
 * A row has several streams. A block reads one sum of them, with coefficients that a product of all streams gives, and what it
 * adds goes to every stream, which are mixed as well. b->x is what a block reads, and b->y what it writes; neither outlives it.
 * Owns nothing. */
#include "engine/layers/block.h"

static size_t stride_of(const ae_block *b)
{
    return (size_t)b->h->n_streams * b->h->n_embd;
}

static uint32_t coef_stride(const ae_block *b)
{
    return b->h->n_streams * (2 + b->h->n_streams);
}

/* Computes the coefficients. n_iterations 0: those at the end of the model. */
static void coefficients(const ae_block *b, const ae_net_hyper *l, uint32_t n_iterations)
{
    ae_matmul m = {.n_rows = b->n_rows, .input = AE_INPUT_RMSNORM, .x = b->streams, .x_stride = stride_of(b), .norm = b->ones,
                   .norm_eps = b->h->norm_eps};
    ae_block_output(&m, l->fn, NULL, b->coef, coef_stride(b), false);
    ae_block_matmul(b, &m);
    b->ops->hyper(b->stream, &(ae_hyper){.n_rows = b->n_rows, .n = b->h->n_streams, .x = b->coef, .x_stride = coef_stride(b),
                                         .scale = l->scale, .base = l->base, .eps = b->h->hyper_eps,
                                         .n_iterations = n_iterations, .magnitude = b->h->hyper_magnitude});
}

/* Sums the streams to b->x. */
static void sum(const ae_block *b)
{
    const uint32_t n = b->h->n_embd;
    b->ops->mix(b->stream, &(ae_row_mix){.n_rows = b->n_rows, .dim = n, .n_in = b->h->n_streams, .n_out = 1, .x = b->streams,
                                         .x_stride = stride_of(b), .x_step = n, .coef = b->coef,
                                         .coef_stride = coef_stride(b), .in_step = 1, .y = b->x, .y_stride = n, .y_step = n});
}

static void map(const ae_block *b, float *x, uint32_t dim, size_t stride, float scale, const float *x2)
{
    b->ops->map(b->stream, &(ae_map){.kind = x2 || scale == 0.0f ? AE_MAP_GLU : AE_MAP_SCALE, .n_rows = b->n_rows, .dim = dim,
                                     .x = x, .x_stride = stride, .a = scale, .x2 = x2, .x2_stride = stride,
                                     .glu = AE_GLU_SIGMOID});
}

/* Writes the mean of all streams' parts of rows to b->x. */
static void mean(const ae_block *b, const float *rows)
{
    const uint32_t n = b->h->n_embd, c = b->h->n_streams;
    b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = n, .x = rows, .x_stride = stride_of(b), .y = b->x,
                                       .y_stride = n});
    for (uint32_t k = 1; k < c; k++)
        b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, n, 1.0f, rows + (size_t)k * n, stride_of(b), b->x, n});
    map(b, b->x, n, n, 1.0f / (float)c, NULL);
}

/* The low-rank form: b->x becomes the mean of the normed streams, each value multiplied by a gate. The coefficients for a block
 * that will add to the streams are in b->coef after the places that the other form uses for its sum. */
static void enter_low(const ae_block *b, const ae_net_hyper *l)
{
    const uint32_t n = b->h->n_embd, c = b->h->n_streams, wide = c * n, rank = b->h->hyper_rank;
    float *inject = b->coef + c;
    b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = wide, .x = b->streams, .x_stride = wide, .y = b->hyper_in,
                                       .y_stride = wide});
    b->ops->norm(b->stream, &(ae_norm){.n_rows = b->n_rows, .n_groups = c, .dim = n, .x = b->hyper_in, .x_stride = wide,
                                       .weight = l->norm, .eps = b->h->norm_eps, .each_group = true});
    ae_matmul m = {.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = b->hyper_in, .x_stride = wide};
    ae_block_output(&m, l->down, NULL, b->hyper_low, rank, false);
    ae_block_output(&m, l->inject, NULL, inject, coef_stride(b), false);
    ae_block_matmul(b, &m);
    map(b, b->hyper_low, rank, rank, 1.0f / (float)c, NULL);
    m = (ae_matmul){.n_rows = b->n_rows, .input = AE_INPUT_GLU, .x = b->hyper_low, .x_stride = rank, .glu = AE_GLU_SILU};
    ae_block_output(&m, l->up, NULL, b->hyper_gate, wide, false);
    ae_block_matmul(b, &m);
    map(b, b->hyper_gate, wide, wide, 0.0f, b->hyper_in);
    mean(b, b->hyper_gate);
    if (!l->inject) return;
    map(b, inject, c, coef_stride(b), 1.0f / (float)c, NULL);
    map(b, inject, c, coef_stride(b), 0.0f, NULL);
    map(b, inject, c, coef_stride(b), 2.0f, NULL);
}

void ae_block_hyper_begin(const ae_block *b)
{
    const uint32_t n = b->h->n_embd;
    for (uint32_t k = 0; k < b->h->n_streams; k++)
        b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = n, .x = b->x, .x_stride = n,
                                           .y = b->streams + (size_t)k * n, .y_stride = stride_of(b)});
}

void ae_block_hyper_enter(const ae_block *b, const ae_net_hyper *l)
{
    if (b->h->hyper_rank) {
        enter_low(b, l);
        return;
    }
    coefficients(b, l, b->h->hyper_iterations);
    sum(b);
}

void ae_block_hyper_leave(const ae_block *b)
{
    const uint32_t n = b->h->n_embd, c = b->h->n_streams;
    const size_t stride = stride_of(b);
    if (!(b->h->hyper_magnitude > 0.0f) && !b->h->hyper_rank)
        b->ops->mix(b->stream, &(ae_row_mix){.n_rows = b->n_rows, .dim = n, .n_in = c, .n_out = c, .x = b->streams,
                                         .x_stride = stride, .x_step = n, .coef = b->coef + 2 * c,
                                         .coef_stride = coef_stride(b), .out_step = 1, .in_step = c, .y = b->streams,
                                         .y_stride = stride, .y_step = n});
    b->ops->mix(b->stream, &(ae_row_mix){.n_rows = b->n_rows, .dim = n, .n_in = 1, .n_out = c, .x = b->y, .x_stride = n,
                                         .start = b->streams, .start_stride = stride, .start_step = n, .coef = b->coef + c,
                                         .coef_stride = coef_stride(b), .out_step = 1, .y = b->streams, .y_stride = stride,
                                         .y_step = n});
}

void ae_block_hyper_mean(const ae_block *b)
{
    mean(b, b->streams);
}

void ae_block_hyper_end(const ae_block *b, const ae_net_hyper *l)
{
    if (b->h->hyper_rank) {
        enter_low(b, l);
        return;
    }
    coefficients(b, l, 0);
    sum(b);
}

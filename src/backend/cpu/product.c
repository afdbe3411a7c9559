/* product.c - matrix products: each row's activations are prepared once, then the panels of outputs are split over the threads.
 *
 * Owns nothing: works in the stream's activations. k is never split. The arithmetic: ref/kernels.h.
 */
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/cpu_int.h"
#include "base/mem.h"
#include "base/os.h"

typedef struct matmul_job {
    const ae_stream *stream;
    const ae_kernels *kernels;
    const ae_matmul *args;
    ae_act *act;      /* rows being prepared */
    const ae_act_need *need;
    ae_items items;   /* ranges of the panels of all weights, numbered consecutively */
} matmul_job;

/* Takes columns [begin, begin + n) of row r from blocks; sums follow from the codes. */
static void take_blocks(const float *x, const ae_act_need *need, const ae_act *act, uint32_t r, uint32_t begin, uint32_t n)
{
    const size_t codes = r * ae_act_stride(act->n_in) + begin, at = (size_t)r * act->n_in + begin;
    for (uint32_t b = 0; need->rows[AE_DOT_32] && b < n / 32; b++) {
        const float *from = x + ae_block_floats(begin + 32 * b, 32);
        const int8_t *q = memcpy(act->q32 + codes + 32 * b, from, 32);
        int32_t sum = 0;
        for (uint32_t i = 0; i < 32; i++) sum += q[i];
        act->d32[at / 32 + b] = from[8];
        act->sum32[at / 32 + b] = sum;
        act->s32[at / 32 + b] = from[8] * (float)sum;
    }
    for (uint32_t b = 0; need->rows[AE_DOT_256] && b < n / 256; b++) {
        const float *from = x + ae_block_floats(begin + 256 * b, 256);
        const int8_t *q = memcpy(act->q256 + codes + 256 * b, from, 256);
        act->d256[at / 256 + b] = from[64];
        for (uint32_t k = 0; k < 16; k++) {
            int sum = 0;
            for (uint32_t i = 0; i < 16; i++) sum += q[16 * k + i];
            act->bsum[at / 16 + 16 * b + k] = (int16_t)sum;
        }
    }
}

/* Prepares columns [begin, end) of row r from the input or, if the input is normed, from the normed row in act->x. begin is a
 * multiple of 256; end is a multiple of 256 or n_in. */
static void prepare_columns(const ae_kernels *k, const ae_matmul *a, const ae_act_need *need, const ae_act *act, uint32_t r,
                            uint32_t begin, uint32_t end)
{
    const size_t row = (size_t)r * act->n_in, codes = r * ae_act_stride(act->n_in) + begin, at = row + begin;
    const float *x = a->x + r * a->x_stride + begin;
    const uint32_t n = end - begin;
    float *y = act->x + at;
    switch (a->input) {
    case AE_INPUT_PLAIN:
        if (need->rows[AE_DOT_FLOAT]) memcpy(y, x, n * sizeof *y);
        break;
    case AE_INPUT_RMSNORM:
    case AE_INPUT_LAYERNORM: x = y; break;
    case AE_INPUT_GLU:
        k->glu[a->glu](x, a->x2 ? a->x2 + r * a->x_stride + begin : NULL, a->glu_limit, a->up_limit, n, y);
        x = y;
        break;
    case AE_INPUT_BLOCKS: take_blocks(a->x + r * a->x_stride, need, act, r, begin, n); return;
    }
    if (need->rows[AE_DOT_32]) k->quant32(x, n, act->q32 + codes, act->d32 + at / 32, act->sum32 + at / 32, act->s32 + at / 32);
    if (need->rows[AE_DOT_256]) k->quant256(x, n, act->q256 + codes, act->d256 + at / 256, act->bsum + at / 16);
}

void ae_cpu_prepare_row(const ae_kernels *k, const ae_matmul *a, const ae_act_need *need, const ae_act *act, uint32_t r)
{
    const float *x = a->x + r * a->x_stride;
    float *y = act->x + (size_t)r * act->n_in;
    if (a->input == AE_INPUT_RMSNORM) k->rmsnorm(x, a->norm, a->norm_eps, act->n_in, y);
    if (a->input == AE_INPUT_LAYERNORM) k->layernorm(x, a->norm, a->norm_bias, a->norm_eps, act->n_in, y);
    prepare_columns(k, a, need, act, r, 0, act->n_in);
}

static void prepare_item(void *context, uint32_t item, uint32_t i_worker)
{
    const matmul_job *job = context;
    (void)i_worker;
    ae_cpu_prepare_row(job->kernels, job->args, job->need, job->act, item);
}

#define PIECE 1024 /* columns; preparing them takes 1 to 2 us with AVX2 */

static void prepare_piece(void *context, uint32_t item, uint32_t i_worker)
{
    const matmul_job *job = context;
    const uint32_t n = job->act->n_in, n_pieces = (n + PIECE - 1) / PIECE, row = item / n_pieces;
    const uint32_t begin = item % n_pieces * PIECE, end = n - begin < PIECE ? n : begin + PIECE;
    (void)i_worker;
    prepare_columns(job->kernels, job->args, job->need, job->act, row, begin, end);
}

static void tile_item(void *context, uint32_t item, uint32_t i_worker)
{
    const matmul_job *job = context;
    (void)i_worker;
    ae_act_tile_piece(job->act, job->need, item);
}

void ae_cpu_prepare(ae_stream *stream, const ae_matmul *input, const ae_act_need *need, ae_act *act)
{
    matmul_job job = {.kernels = &stream->backend->kernels, .args = input, .act = act, .need = need};
    const bool norm = input->input == AE_INPUT_RMSNORM || input->input == AE_INPUT_LAYERNORM;
    /* starting the threads takes 1 us, which is more than preparing a few short rows */
    if (!norm && act->n_in >= 2 * PIECE)
        ae_pool_run(stream->pool, prepare_piece, &job, act->n_rows * ((act->n_in + PIECE - 1) / PIECE));
    else if (act->n_rows > 2) ae_pool_run(stream->pool, prepare_item, &job, act->n_rows);
    else for (uint32_t r = 0; r < act->n_rows; r++) prepare_item(&job, r, 0);
    if (!ae_act_wants_tiles(need, AE_DOT_32, act->n_rows) && !ae_act_wants_tiles(need, AE_DOT_256, act->n_rows)) return;
    const uint32_t n_items = ae_act_tile_pieces(act->n_in);
    if (act->n_rows > AE_TILE_ROWS) ae_pool_run(stream->pool, tile_item, &job, n_items);
    else for (uint32_t i = 0; i < n_items; i++) tile_item(&job, i, 0);
}

void ae_cpu_panels(const ae_stream *stream, uint32_t i_worker, const ae_weight *w, const ae_act *act, const ae_mm_out *out,
                   uint32_t begin, uint32_t end)
{
    ae_mm_out to = *out;
    to.scratch = stream->mm_scratch + i_worker * AE_MM_SCRATCH;
    ae_weight_multiply(w, act, &to, begin * AE_PANEL, end == ae_weight_n_panels(w->n_out) ? w->n_out : end * AE_PANEL,
                       stream->panel + i_worker * stream->panel_bytes);
}

static void matmul_item(void *context, uint32_t item, uint32_t i_worker)
{
    const matmul_job *job = context;
    const ae_matmul *a = job->args;
    const uint32_t begin = ae_items_begin(&job->items, item), end = ae_items_end(&job->items, item);
    uint32_t at = 0;
    for (uint32_t i = 0; i < a->n_weights && at < end; i++) {
        const ae_weight *w = a->out[i].weight;
        const uint32_t n = ae_weight_n_panels(w->n_out), b = begin > at ? begin - at : 0, e = end - at < n ? end - at : n;
        if (b < e) {
            const ae_mm_out out = {a->out[i].y, a->out[i].y_stride, a->out[i].bias, a->out[i].add, NULL};
            ae_cpu_panels(job->stream, i_worker, w, job->act, &out, b, e);
        }
        at += n;
    }
}

void ae_cpu_multiply(ae_stream *stream, const ae_matmul *args, const ae_act *act)
{
    matmul_job job = {.stream = stream, .args = args, .act = (ae_act *)act};
    uint32_t n_panels = 0;
    const bool plain = args->input == AE_INPUT_PLAIN; /* otherwise act->x holds the input as f32 */
    for (uint32_t i = 0; i < args->n_weights; i++) {
        n_panels += ae_weight_n_panels(args->out[i].weight->n_out);
        ae_cpu_tell(stream, args->out[i].weight, plain ? args->x : act->x, plain ? args->x_stride : act->n_in, act->n_rows);
    }
    job.items = ae_items_cut(n_panels, ae_pool_n_workers(stream->pool), 1);
    ae_pool_run(stream->pool, matmul_item, &job, ae_items_count(&job.items));
}

void ae_cpu_matmul(ae_stream *stream, const ae_matmul *args)
{
    ae_act_need need = {0};
    for (uint32_t i = 0; i < args->n_weights; i++) ae_act_need_add(&need, args->out[i].weight);
    stream->act.n_rows = args->n_rows;
    stream->act.n_in = args->out[0].weight->n_in;
    ae_cpu_prepare(stream, args, &need, &stream->act);
    ae_cpu_multiply(stream, args, &stream->act);
}

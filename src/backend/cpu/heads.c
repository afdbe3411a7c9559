/* heads.c - a product for each attention head: queries into the space of latent rows, and results out of it.
 *
 * Owns nothing: works in the stream's activations. A head's rows stand there one after the other, as the rows of an expert
 * do in moe.c. As many heads as fit are prepared together; then the panels of all their weights form one list, cut over
 * the threads. A row's arithmetic is that of a product with one row. */
#include "backend/cpu/cpu_int.h"

typedef struct heads_job {
    ae_stream *stream;
    const ae_head_matmul *args;
    ae_act_need need;
    uint32_t first, n; /* the first head and the number of heads of this round */
    uint32_t n_panels; /* of a head */
    ae_items items;    /* ranges of the panels of all heads of the round */
} heads_job;

static ae_act rows_of(const heads_job *job, uint32_t i)
{
    const uint32_t n = job->args->n_rows, n_tiles = (n + AE_TILE_ROWS - 1) / AE_TILE_ROWS;
    return ae_act_slice(&job->stream->act, i * n, i * n_tiles, n);
}

static void prepare_item(void *context, uint32_t i, uint32_t i_worker)
{
    const heads_job *job = context;
    const ae_head_matmul *a = job->args;
    const ae_matmul in = {.input = AE_INPUT_PLAIN, .x = a->x + (job->first + i) * a->x_step, .x_stride = a->x_stride};
    ae_act act = rows_of(job, i);
    (void)i_worker;
    for (uint32_t r = 0; r < a->n_rows; r++) ae_cpu_prepare_row(&job->stream->backend->kernels, &in, &job->need, &act, r);
    ae_act_tile_needed(&act, &job->need, 0, act.n_in / 32);
}

static void multiply_item(void *context, uint32_t item, uint32_t i_worker)
{
    const heads_job *job = context;
    const ae_head_matmul *a = job->args;
    const uint32_t end = ae_items_end(&job->items, item);
    for (uint32_t at = ae_items_begin(&job->items, item); at < end;) {
        const uint32_t i = at / job->n_panels, b = at % job->n_panels, left = job->n_panels - b;
        const uint32_t n = left < end - at ? left : end - at;
        const ae_act act = rows_of(job, i);
        const ae_mm_out out = {a->y + (job->first + i) * a->y_step, a->y_stride, NULL, false, NULL};
        ae_cpu_panels(job->stream, i_worker, a->weights[job->first + i], &act, &out, b, b + n);
        at += n;
    }
}

/* Returns how many heads have rows that fit the stream's activations together: at least one, since these hold max_rows for the
 * n_in of any weight. */
static uint32_t heads_at_once(const ae_stream *s, const ae_head_matmul *a, uint32_t n_in)
{
    const size_t room = (size_t)ae_stream_product_rows(&s->options) * ((s->options.max_in + 255) / 256 * 256);
    const size_t n = room / a->n_rows / n_in;
    return n < 1 ? 1 : n < a->n_heads ? (uint32_t)n : a->n_heads;
}

/* The same for the tiled form, where each head starts a new tile. */
static uint32_t tiled_at_once(const ae_stream *s, const ae_head_matmul *a, uint32_t n_in)
{
    const size_t tile = AE_TILE_ROWS, rows = (ae_stream_product_rows(&s->options) + tile - 1) / tile;
    const size_t mine = (a->n_rows + tile - 1) / tile;
    const size_t n = rows * ((s->options.max_in + 255) / 256 * 256) / mine / n_in;
    return n < 1 ? 1 : n < a->n_heads ? (uint32_t)n : a->n_heads;
}

void ae_cpu_head_matmul(ae_stream *stream, const ae_head_matmul *args)
{
    const ae_weight *w = args->weights[0];
    heads_job job = {.stream = stream, .args = args, .n_panels = ae_weight_n_panels(w->n_out)};
    for (uint32_t i = 0; i < args->n_heads; i++) {
        ae_act_need_add(&job.need, args->weights[i]);
        ae_cpu_tell(stream, args->weights[i], args->x + i * args->x_step, args->x_stride, args->n_rows);
    }
    const uint32_t rows = heads_at_once(stream, args, w->n_in), tiles = tiled_at_once(stream, args, w->n_in);
    const uint32_t most = rows < tiles ? rows : tiles;
    stream->act.n_in = w->n_in;
    for (job.first = 0; job.first < args->n_heads; job.first += job.n) {
        const uint32_t left = args->n_heads - job.first;
        job.n = left < most ? left : most;
        stream->act.n_rows = job.n * args->n_rows;
        ae_pool_run(stream->pool, prepare_item, &job, job.n);
        job.items = ae_items_cut(job.n * job.n_panels, ae_pool_n_workers(stream->pool), 1);
        ae_pool_run(stream->pool, multiply_item, &job, ae_items_count(&job.items));
    }
}

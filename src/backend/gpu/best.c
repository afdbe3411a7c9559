/* best.c - finds the best logits of rows on the device (kernels/draw.cu), so that draws and proposals need not fetch the rows.
 *
 * Owns a stream's scratch for it, which is allocated when it is first needed and grows. A search handles AE_GPU_BEST_ROWS rows
 * at once; each batch uses the same scratch, in the order of the queue. */
#include "backend/gpu/best.h"

#include <math.h>

#define PART_ALIGN 64

static uint32_t blocks_of(uint32_t n, uint32_t chunk)
{
    return (n + chunk - 1) / chunk;
}

static size_t aligned(size_t bytes)
{
    return (bytes + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

static size_t result_words(const ae_gpu_search *s)
{
    return 2 * (size_t)s->k + 1;
}

/* Returns how many keys a block writes. */
static uint32_t keys_of_block(const ae_gpu_search *s)
{
    return s->k == 1 ? 1 : AE_GPU_BEST;
}

static size_t totals_at(const ae_gpu_search *s)
{
    return s->at + aligned(s->n_rows * result_words(s) * sizeof(uint32_t));
}

size_t ae_gpu_search_bytes(const ae_gpu_search *s)
{
    const size_t totals = s->totals ? (size_t)s->n_rows * blocks_of(s->n_logits, AE_GPU_TOTAL_CHUNK) * sizeof(uint64_t) : 0;
    return totals_at(s) - s->at + aligned(totals);
}

/* The scratch of a batch. */
typedef struct scratch {
    uint64_t *keys[2]; /* [rows][keys that the blocks of a launch write]; each launch reads one array and writes the other */
    uint32_t *results; /* [rows][result_words] */
    uint64_t *totals;  /* [rows][blocks of best_total] */
} scratch;

static void scratch_layout(ae_layout *layout, const ae_gpu_search *s, scratch *out)
{
    const uint32_t n_rows = s->n_rows < AE_GPU_BEST_ROWS ? s->n_rows : AE_GPU_BEST_ROWS, width = keys_of_block(s);
    const uint32_t n_first = blocks_of(s->n_logits, AE_GPU_BEST_CHUNK) * width;
    const uint32_t n_second = blocks_of(n_first, AE_GPU_BEST_CHUNK) * width;
    out->keys[0] = ae_layout_add(layout, (size_t)n_rows * n_first, sizeof(uint64_t));
    out->keys[1] = ae_layout_add(layout, (size_t)n_rows * n_second, sizeof(uint64_t));
    out->results = ae_layout_add(layout, n_rows * result_words(s), sizeof(uint32_t));
    out->totals = ae_layout_add(layout, (size_t)n_rows * blocks_of(s->n_logits, AE_GPU_TOTAL_CHUNK), sizeof(uint64_t));
}

static bool scratch_take(ae_stream *stream, const ae_gpu_search *s, scratch *out)
{
    ae_gpu_backend *b = stream->backend;
    ae_layout layout = {0};
    scratch_layout(&layout, s, out);
    if (layout.overflow) return false;
    if (layout.bytes > stream->best_bytes) {
        if (!ae_gpu_wait(stream, "a draw")) return false; /* the queue may still use the old scratch */
        if (stream->best) b->ops.free(&b->base, stream->best, stream->best_bytes);
        stream->best = b->ops.alloc(&b->base, layout.bytes);
        stream->best_bytes = stream->best ? layout.bytes : 0;
        if (!stream->best) return false;
    }
    layout = (ae_layout){.base = (char *)stream->best};
    scratch_layout(&layout, s, out);
    return true;
}

/* Launches the search over rows [first, first + n), until one block per row is left. */
static void find(ae_stream *stream, const ae_gpu_search *s, const scratch *room, uint32_t first, uint32_t n)
{
    const ae_gpu_kernel kernel = s->k == 1 ? AE_GPU_best_one : AE_GPU_best_some;
    ae_gpu_best_args args = {.logits = s->logits, .n_logits = s->n_logits, .n_in = s->n_logits, .k = s->k};
    uint32_t i_out = 0;
    for (uint32_t i = 0; i < n; i++) args.rows[i] = s->rows[first + i];
    while (!args.results) {
        const uint32_t n_blocks = blocks_of(args.n_in, AE_GPU_BEST_CHUNK);
        args.out = room->keys[i_out];
        if (n_blocks == 1) args.results = room->results;
        ae_gpu_launch(stream, kernel, n_blocks, n, 1, AE_GPU_BEST_SHARED, &args);
        args.in = args.out;
        args.n_in = n_blocks * keys_of_block(s);
        i_out = !i_out;
    }
    if (!s->totals) return;
    args.out = room->totals;
    ae_gpu_launch(stream, AE_GPU_best_total, blocks_of(s->n_logits, AE_GPU_TOTAL_CHUNK), n, 1, 256 * sizeof(uint64_t), &args);
}

bool ae_gpu_search_run(ae_stream *stream, const ae_gpu_search *s)
{
    const size_t result_bytes = result_words(s) * sizeof(uint32_t);
    const size_t total_bytes = blocks_of(s->n_logits, AE_GPU_TOTAL_CHUNK) * sizeof(uint64_t);
    scratch room;
    if (!s->n_logits || !scratch_take(stream, s, &room)) return false;
    for (uint32_t first = 0; first < s->n_rows; first += AE_GPU_BEST_ROWS) {
        const uint32_t left = s->n_rows - first, n = left < AE_GPU_BEST_ROWS ? left : AE_GPU_BEST_ROWS;
        find(stream, s, &room, first, n);
        if (stream->fault.status != AERIE_OK ||
            !ae_gpu_fetch(stream, s->at + first * result_bytes, room.results, n * result_bytes))
            return false;
        if (s->totals && !ae_gpu_fetch(stream, totals_at(s) + first * total_bytes, room.totals, n * total_bytes)) return false;
    }
    return true;
}

uint32_t ae_gpu_search_get(const ae_stream *stream, const ae_gpu_search *s, uint32_t i, ae_candidate best[AE_GPU_BEST],
                           uint64_t *total, bool *whole)
{
    const uint32_t *result = (const uint32_t *)(const void *)(stream->landing + s->at) + i * result_words(s);
    const uint32_t n = result[0] < s->k ? result[0] : s->k, n_parts = blocks_of(s->n_logits, AE_GPU_TOTAL_CHUNK);
    for (uint32_t j = 0; j < n; j++) {
        best[j].id = (int32_t)result[1 + j];
        memcpy(&best[j].logit, &result[1 + s->k + j], sizeof(float));
    }
    *whole = n && isinf(best[0].logit); /* an infinite best logit is +infinity, since -infinity is not a candidate */
    *total = 0;
    if (!s->totals) return n;
    const uint64_t *parts = (const uint64_t *)(const void *)(stream->landing + totals_at(s)) + (size_t)i * n_parts;
    for (uint32_t j = 0; j < n_parts; j++) *total += parts[j];
    return n;
}

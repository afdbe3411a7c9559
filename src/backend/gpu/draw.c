/* draw.c - the GPU backends' walk and propose: the host's samplers on rows of logits that are fetched from the device.
 *
 * Owns nothing. Walks go down their trees in step: each round fetches the rows from which the trees draw next, then draws from
 * them on the host's threads. So rows that no walk visits stay on the device, and a round waits for the device once. What is
 * fetched lies in the stream's `landing`: first the small arrays of the call, then as many rows as there is room for. */
#include "backend/draw_host.h"
#include "backend/gpu/gpu.h"
#include "base/mem.h"

#define ROWS_BYTES ((size_t)16 << 20) /* of logits that are fetched at once, or one row */
#define PART_ALIGN 64

static size_t part_bytes(size_t n)
{
    return (n * sizeof(int32_t) + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

/* Queues the copy of n bytes into `landing` at offset `at`. */
static bool fetch(ae_stream *s, size_t at, const void *device, size_t n)
{
    ae_gpu_backend *b = s->backend;
    aerie_error error = {0};
    if (!n) return true;
    ae_gpu_lock(s);
    const aerie_status status = b->driver->copy_out(b->device, s->landing + at, device, n, &error);
    ae_gpu_unlock(s);
    if (status != AERIE_OK) ae_gpu_note(s, status, "fetching what is drawn from", &error);
    return status == AERIE_OK;
}

/* How many rows of logits fit behind the small arrays; at most n. `landing` is made large enough for them. 0: a failure. */
static uint32_t make_room(ae_stream *s, size_t small_bytes, size_t row_bytes, uint32_t n)
{
    const size_t most = ROWS_BYTES / row_bytes, fit = most < 1 ? 1 : most < n ? most : n;
    return ae_gpu_land(s, small_bytes + fit * row_bytes) ? (uint32_t)fit : 0;
}

/* ---- Walks ------------------------------------------------------------------------------------------------ */

/* How far the walk down a tree has come. */
typedef struct walker {
    ae_walk_nodes nodes;
    int32_t node;  /* it draws from this one next; -1: the root */
    int32_t token; /* what was drawn */
    ae_walk_verdict verdict;
    bool on;
} walker;

/* A call's arrays on the host, and the batch of trees that is drawn for. */
typedef struct walk_call {
    const ae_walk *args;
    walker *walkers;   /* [n_trees] */
    uint32_t *batch;   /* [n_batch] trees */
    uint32_t n_batch;
    ae_walked *out;     /* [n_trees] */
    const int32_t *eog; /* [n_eog] */
    const float *rows; /* [n_batch][n_vocab] */
} walk_call;

static void draw_item(void *context, uint32_t item, uint32_t i_worker)
{
    const walk_call *c = context;
    const ae_walk *a = c->args;
    const uint32_t t = c->batch[item];
    walker *w = &c->walkers[t];
    (void)i_worker;
    w->verdict = ae_draw_host_token(&a->trees[t], c->rows + (size_t)item * a->n_vocab, a->n_vocab, c->eog, a->n_eog,
                                    c->out[t].n_drawn, &w->token);
    w->on = ae_walk_step(&w->nodes, a->trees[t].n_most, w->verdict, w->token, &w->node, &c->out[t]);
}

/* Draws once for each tree of the batch. */
static bool draw_batch(ae_stream *s, walk_call *c, size_t rows_at)
{
    const ae_walk *a = c->args;
    const size_t row_bytes = (size_t)a->n_vocab * sizeof(float);
    if (!c->n_batch) return true;
    for (uint32_t i = 0; i < c->n_batch; i++) {
        const size_t row = a->trees[c->batch[i]].output + (size_t)(c->walkers[c->batch[i]].node + 1);
        if (!fetch(s, rows_at + i * row_bytes, a->logits + row * a->n_vocab, row_bytes)) return false;
    }
    if (!ae_gpu_wait(s, "a draw")) return false;
    c->rows = (const float *)(const void *)(s->landing + rows_at);
    ae_pool_run(s->options.pool, draw_item, c, c->n_batch);
    c->n_batch = 0;
    return true;
}

/* One more token for each walk that goes on. Returns whether any does; *ok is false after a failure. */
static bool walk_round(ae_stream *s, walk_call *c, size_t rows_at, uint32_t n_room, bool *ok)
{
    bool any = false;
    for (uint32_t t = 0; t < c->args->n_trees && *ok; t++) {
        if (!c->walkers[t].on) continue;
        any = true;
        c->batch[c->n_batch++] = t;
        if (c->n_batch == n_room) *ok = draw_batch(s, c, rows_at);
    }
    if (*ok) *ok = draw_batch(s, c, rows_at);
    return any && *ok;
}

static bool walk_all(ae_stream *s, walk_call *c)
{
    const ae_walk *a = c->args;
    uint32_t n_rows = 0; /* of the pass, up to the last node */
    for (uint32_t t = 0; t < a->n_trees; t++)
        if (a->trees[t].n && a->trees[t].row + a->trees[t].n + 1 > n_rows) n_rows = a->trees[t].row + a->trees[t].n + 1;
    const size_t parent_at = part_bytes(n_rows), eog_at = 2 * part_bytes(n_rows), rows_at = eog_at + part_bytes(a->n_eog);
    const uint32_t n_room = make_room(s, rows_at, (size_t)a->n_vocab * sizeof(float), a->n_trees);
    bool ok = n_room && fetch(s, 0, a->token, n_rows * sizeof(int32_t)) &&
              fetch(s, parent_at, a->parent, n_rows * sizeof(int32_t)) && fetch(s, eog_at, a->eog, a->n_eog * sizeof(int32_t));
    if (!ok) return false;
    const int32_t *token = (const int32_t *)(const void *)s->landing;
    const int32_t *parent = (const int32_t *)(const void *)(s->landing + parent_at);
    c->eog = (const int32_t *)(const void *)(s->landing + eog_at);
    for (uint32_t t = 0; t < a->n_trees; t++)
        c->walkers[t] = (walker){.nodes = ae_draw_host_nodes(&a->trees[t], token, parent), .node = -1, .on = true};
    while (walk_round(s, c, rows_at, n_room, &ok)) {}
    return ok;
}

void ae_gpu_walk(ae_stream *stream, const ae_walk *args)
{
    const size_t n = args->n_trees;
    if (!n || !ae_gpu_may_copy(stream, "a walk")) return;
    walker *walkers = ae_alloc(n, sizeof(walker) + sizeof(ae_walked) + sizeof(uint32_t));
    if (!walkers) {
        ae_backend_note(&stream->fault, AERIE_ERROR_MEMORY, "not enough memory for the walks of %zu trees", n);
        return;
    }
    walk_call call = {.args = args, .walkers = walkers, .out = (ae_walked *)(walkers + n)};
    call.batch = (uint32_t *)(call.out + n);
    if (walk_all(stream, &call)) ae_gpu_publish(stream, args->out, call.out, n * sizeof *call.out);
    ae_free(walkers);
}

/* ---- Proposals -------------------------------------------------------------------------------------------- */

typedef struct propose_call {
    const ae_propose *args;
    uint32_t first;     /* row of the batch's first */
    const int32_t *map; /* [n_logits], or NULL */
    const float *rows;  /* [n][n_logits] */
    ae_proposal *out;   /* [n_rows] */
} propose_call;

static void propose_item(void *context, uint32_t item, uint32_t i_worker)
{
    const propose_call *c = context;
    const ae_propose *a = c->args;
    const uint32_t r = c->first + item;
    (void)i_worker;
    ae_draw_host_propose(&a->rows[r], c->rows + (size_t)item * a->n_logits, a->n_logits, c->map, &c->out[r]);
}

static bool propose_all(ae_stream *s, propose_call *c)
{
    const ae_propose *a = c->args;
    const size_t row_bytes = (size_t)a->n_logits * sizeof(float), map_bytes = a->map ? a->n_logits * sizeof(int32_t) : 0;
    const size_t rows_at = part_bytes(map_bytes / sizeof(int32_t));
    const uint32_t n_room = make_room(s, rows_at, row_bytes, a->n_rows);
    if (!n_room || !fetch(s, 0, a->map, map_bytes)) return false;
    c->map = a->map ? (const int32_t *)(const void *)s->landing : NULL;
    c->rows = (const float *)(const void *)(s->landing + rows_at);
    for (c->first = 0; c->first < a->n_rows; c->first += n_room) {
        const uint32_t left = a->n_rows - c->first, n = left < n_room ? left : n_room;
        for (uint32_t i = 0; i < n; i++)
            if (!fetch(s, rows_at + i * row_bytes, a->logits + (size_t)a->rows[c->first + i].output * a->n_logits, row_bytes))
                return false;
        if (!ae_gpu_wait(s, "a proposal")) return false;
        ae_pool_run(s->options.pool, propose_item, c, n);
    }
    return true;
}

void ae_gpu_propose(ae_stream *stream, const ae_propose *args)
{
    if (!args->n_rows || !ae_gpu_may_copy(stream, "a proposal")) return;
    propose_call call = {.args = args, .out = ae_alloc(args->n_rows, sizeof(ae_proposal))};
    if (!call.out)
        ae_backend_note(&stream->fault, AERIE_ERROR_MEMORY, "not enough memory for %u proposals", args->n_rows);
    else if (propose_all(stream, &call))
        ae_gpu_publish(stream, args->out, call.out, args->n_rows * sizeof *call.out);
    ae_free(call.out);
}

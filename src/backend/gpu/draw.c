/* draw.c - the GPU backends' walk and propose: the host draws tokens from the logits that it fetches.
 * Owns nothing. Most chains look only at a row's best candidates (ae_draw_reach): the device finds those of all rows
 * (best.c), one wait fetches them, and the host walks down the trees. Other chains, and rows with infinite logits, need whole
 * rows; there the walks advance together: each round fetches the rows from which the trees draw next and waits for them, so
 * rows that no walk visits stay on the device. The stream's `landing` receives what is fetched: first the small arrays of the
 * call, then rows or candidates. The arrays of the host are in the stream's `call`. */
#include <string.h>

#include "backend/draw_host.h"
#include "backend/gpu/best.h"
#include "backend/gpu/gpu.h"
#include "base/mem.h"

#define ROWS_BYTES ((size_t)16 << 20) /* bytes of logits that are fetched at once, unless a single row has more */
#define PART_ALIGN 64
#define USUAL_DRAWS 256 /* trees or rows of a call for which a stream reserves memory */

static size_t part_bytes(size_t n)
{
    return (n * sizeof(int32_t) + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

/* Returns memory for the arrays of a call; NULL after a failure, which the stream notes. */
static void *room_of(ae_stream *s, size_t bytes, const char *what)
{
    if (bytes > s->call_bytes) {
        ae_free(s->call);
        s->call = ae_alloc(bytes, 1);
        s->call_bytes = s->call ? bytes : 0;
    }
    if (s->call) return s->call;
    ae_backend_note(&s->fault, AERIE_ERROR_MEMORY, "not enough memory for %s (%zu bytes)", what, bytes);
    return NULL;
}

/* Returns how many of n rows of logits are fetched at once. */
static uint32_t rows_at_once(size_t row_bytes, uint32_t n)
{
    const size_t most = ROWS_BYTES / row_bytes;
    return most < 1 ? 1 : most < n ? (uint32_t)most : n;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- Walks ------------------------------------------------------------------------------------------------ */

/* The state of the walk down a tree. */
typedef struct walker {
    ae_walk_nodes nodes;
    int32_t node;   /* the node whose row it draws from next; -1: the root */
    int32_t token;  /* what was drawn */
    ae_walk_verdict verdict;
    bool found;     /* the device has searched the tree's rows, of which the root's is number first_found of the search */
    uint32_t first_found;
    bool on;        /* the walk continues with whole rows, which are fetched */
} walker;

/* The arrays of a call on the host, and the batch of trees for which tokens are drawn. */
typedef struct walk_call {
    ae_stream *stream;
    const ae_walk *args;
    walker *walkers;    /* [n_trees] */
    ae_walked *out;     /* [n_trees] */
    ae_gpu_search search;
    uint32_t *found;    /* [search.n_rows] rows of logits */
    uint32_t *batch;    /* [n_batch] trees */
    uint32_t n_batch;
    const int32_t *eog; /* [n_eog] */
    const float *rows;  /* [n_batch][n_vocab] */
} walk_call;

typedef struct tree_walk {
    const walk_call *call;
    uint32_t tree;
} tree_walk;

static ae_walk_verdict draw_found(void *context, uint32_t row, uint32_t depth, int32_t *token)
{
    const walk_call *c = ((const tree_walk *)context)->call;
    const uint32_t t = ((const tree_walk *)context)->tree;
    ae_candidate best[AE_GPU_BEST];
    uint64_t total;
    bool whole;
    const uint32_t n = ae_gpu_search_get(c->stream, &c->search, c->walkers[t].first_found + row, best, &total, &whole);
    const uint32_t reach = ae_draw_reach(c->args->trees[t].draw);
    c->walkers[t].on |= whole;
    if (whole) return AE_WALK_OVERFLOW;
    return ae_draw_host_best(&c->args->trees[t], best, n < reach ? n : reach, c->eog, c->args->n_eog, depth, token);
}

/* Walks down a tree whose rows were searched. Sets `on` if the walk has to be done again with whole rows. */
static void found_item(void *context, uint32_t item, uint32_t i_worker)
{
    walk_call *c = context;
    (void)i_worker;
    if (c->walkers[item].found)
        ae_walk_down(&c->walkers[item].nodes, c->args->trees[item].n_most, draw_found, &(tree_walk){c, item},
                     &c->out[item]);
    if (c->walkers[item].on) c->out[item] = (ae_walked){0};
}

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

/* Draws one token for each tree of the batch. */
static bool draw_batch(walk_call *c)
{
    const ae_walk *a = c->args;
    const size_t row_bytes = (size_t)a->n_vocab * sizeof(float);
    if (!c->n_batch) return true;
    for (uint32_t i = 0; i < c->n_batch; i++) {
        const size_t row = a->trees[c->batch[i]].output + (size_t)(c->walkers[c->batch[i]].node + 1);
        if (!ae_gpu_fetch(c->stream, c->search.at + i * row_bytes, a->logits + row * a->n_vocab, row_bytes)) return false;
    }
    if (!ae_gpu_wait(c->stream, "a draw")) return false;
    c->rows = (const float *)(const void *)(c->stream->landing + c->search.at);
    ae_pool_run(c->stream->options.pool, draw_item, c, c->n_batch);
    c->n_batch = 0;
    return true;
}

/* Draws one more token for each walk that continues. Returns whether any does; *ok is false after a failure. */
static bool walk_round(walk_call *c, uint32_t n_room, bool *ok)
{
    bool any = false;
    for (uint32_t t = 0; t < c->args->n_trees && *ok; t++) {
        if (!c->walkers[t].on) continue;
        any = true;
        c->batch[c->n_batch++] = t;
        if (c->n_batch == n_room) *ok = draw_batch(c);
    }
    if (*ok) *ok = draw_batch(c);
    return any && *ok;
}

/* Lists the rows that the device searches, and how many candidates of each are wanted. */
static void list_rows(walk_call *c)
{
    const ae_walk *a = c->args;
    ae_gpu_search *s = &c->search;
    *s = (ae_gpu_search){.logits = a->logits, .n_logits = a->n_vocab, .rows = c->found, .k = 1};
    for (uint32_t t = 0; t < a->n_trees; t++) {
        const uint32_t reach = ae_draw_reach(a->trees[t].draw);
        c->walkers[t] = (walker){.node = -1, .found = reach && reach <= AE_GPU_BEST && !c->stream->rows_to_host,
                                 .first_found = s->n_rows};
        if (!c->walkers[t].found) continue;
        if (reach > s->k) s->k = reach;
        for (uint32_t i = 0; i <= a->trees[t].n; i++) c->found[s->n_rows++] = a->trees[t].output + i;
    }
}

/* Returns the number of rows of the pass up to that of the last node. */
static uint32_t pass_rows(const ae_walk *a)
{
    uint32_t n = 0;
    for (uint32_t t = 0; t < a->n_trees; t++)
        if (a->trees[t].n && a->trees[t].row + a->trees[t].n + 1 > n) n = a->trees[t].row + a->trees[t].n + 1;
    return n;
}

static bool walk_all(walk_call *c)
{
    const ae_walk *a = c->args;
    ae_stream *s = c->stream;
    const uint32_t n_rows = pass_rows(a), n_room = rows_at_once((size_t)a->n_vocab * sizeof(float), a->n_trees);
    const size_t parent_at = part_bytes(n_rows), eog_at = 2 * parent_at, rows_at = eog_at + part_bytes(a->n_eog);
    bool ok = true;
    list_rows(c);
    c->search.at = rows_at;
    if (!ae_gpu_land(s, rows_at + larger(n_room * (size_t)a->n_vocab * sizeof(float), ae_gpu_search_bytes(&c->search))) ||
        !ae_gpu_fetch(s, 0, a->token, n_rows * sizeof(int32_t)) ||
        !ae_gpu_fetch(s, parent_at, a->parent, n_rows * sizeof(int32_t)) ||
        !ae_gpu_fetch(s, eog_at, a->eog, a->n_eog * sizeof(int32_t)))
        return false;
    const bool searched = c->search.n_rows && ae_gpu_search_run(s, &c->search);
    if (searched && !ae_gpu_wait(s, "a draw")) return false;
    const int32_t *token = (const int32_t *)(const void *)s->landing;
    const int32_t *parent = (const int32_t *)(const void *)(s->landing + parent_at);
    c->eog = (const int32_t *)(const void *)(s->landing + eog_at);
    for (uint32_t t = 0; t < a->n_trees; t++) {
        c->walkers[t].nodes = ae_draw_host_nodes(&a->trees[t], token, parent);
        c->walkers[t].found &= searched;
        c->walkers[t].on = !c->walkers[t].found;
    }
    if (searched) ae_pool_run(s->options.pool, found_item, c, a->n_trees);
    while (walk_round(c, n_room, &ok)) {}
    return ok;
}

static size_t walk_bytes(size_t n_trees, size_t n_rows)
{
    return n_trees * (sizeof(walker) + sizeof(ae_walked) + sizeof(uint32_t)) + n_rows * sizeof(uint32_t);
}

void ae_gpu_walk(ae_stream *stream, const ae_walk *args)
{
    size_t n_rows = 0;
    const size_t n = args->n_trees;
    if (!n || !ae_gpu_may_copy(stream, "a walk")) return;
    for (uint32_t t = 0; t < n; t++) n_rows += args->trees[t].n + 1;
    walker *walkers = room_of(stream, walk_bytes(n, n_rows), "walks");
    if (!walkers) return;
    memset(walkers, 0, walk_bytes(n, n_rows));
    walk_call call = {.stream = stream, .args = args, .walkers = walkers, .out = (ae_walked *)(walkers + n)};
    call.batch = (uint32_t *)(call.out + n);
    call.found = call.batch + n;
    if (walk_all(&call)) ae_gpu_publish(stream, args->out, call.out, n * sizeof *call.out);
}

/* ---- Proposals -------------------------------------------------------------------------------------------- */

typedef struct propose_call {
    ae_stream *stream;
    const ae_propose *args;
    ae_proposal *out;    /* [n_rows] */
    ae_gpu_search search;
    uint32_t *found;     /* [n_rows] rows of logits */
    uint32_t *left;      /* [n_left] rows of the call whose whole logits are needed */
    uint32_t n_left;
    uint8_t *whole;      /* [n_rows] bool: the search found that the whole row of logits is needed */
    uint32_t first;      /* index in `left` of the batch's first row */
    const int32_t *map;  /* [n_logits], or NULL */
    const float *rows;   /* [n of the batch][n_logits] */
} propose_call;

static uint32_t wanted(const ae_propose_row *row)
{
    return row->k < AE_PROPOSE_MAX ? row->k : AE_PROPOSE_MAX;
}

static void propose_found(void *context, uint32_t item, uint32_t i_worker)
{
    const propose_call *c = context;
    const ae_propose_row *r = &c->args->rows[item];
    ae_candidate best[AE_GPU_BEST];
    uint64_t total;
    bool whole, needs_total;
    const uint32_t n = ae_gpu_search_get(c->stream, &c->search, item, best, &total, &whole);
    const uint32_t k = wanted(r);
    const uint32_t reach = ae_draw_propose_reach(r->draw, k, &needs_total);
    (void)i_worker;
    c->whole[item] = whole;
    c->out[item].n = whole ? 0 : ae_draw_propose_best(r->draw, best, n < reach ? n : reach, total, c->map,
                                                         (size_t)r->position, k, c->out[item].id, c->out[item].p);
}

static void propose_item(void *context, uint32_t item, uint32_t i_worker)
{
    const propose_call *c = context;
    const ae_propose *a = c->args;
    const uint32_t r = c->left[c->first + item];
    (void)i_worker;
    ae_draw_host_propose(&a->rows[r], c->rows + (size_t)item * a->n_logits, a->n_logits, c->map, &c->out[r]);
}

/* Sets the number of candidates that the device finds for each row: the most that any row needs. */
static void plan_search(propose_call *c, size_t at)
{
    const ae_propose *a = c->args;
    c->search = (ae_gpu_search){.logits = a->logits, .n_logits = a->n_logits, .rows = c->found, .n_rows = a->n_rows, .k = 1,
                                .at = at};
    for (uint32_t r = 0; r < a->n_rows; r++) {
        bool needs_total;
        const uint32_t reach = ae_draw_propose_reach(a->rows[r].draw, wanted(&a->rows[r]), &needs_total);
        if (reach > c->search.k) c->search.k = reach;
        c->search.totals |= needs_total;
        c->found[r] = a->rows[r].output;
    }
}

/* Makes the proposals for rows that need whole logits; fetches as many rows at a time as there is room for. */
static bool propose_left(propose_call *c, uint32_t n_room)
{
    const ae_propose *a = c->args;
    const size_t row_bytes = (size_t)a->n_logits * sizeof(float), at = c->search.at;
    c->rows = (const float *)(const void *)(c->stream->landing + at);
    for (c->first = 0; c->first < c->n_left; c->first += n_room) {
        const uint32_t rest = c->n_left - c->first, n = rest < n_room ? rest : n_room;
        for (uint32_t i = 0; i < n; i++) {
            const size_t row = a->rows[c->left[c->first + i]].output;
            if (!ae_gpu_fetch(c->stream, at + i * row_bytes, a->logits + row * a->n_logits, row_bytes)) return false;
        }
        if (!ae_gpu_wait(c->stream, "a proposal")) return false;
        ae_pool_run(c->stream->options.pool, propose_item, c, n);
    }
    return true;
}

static bool propose_all(propose_call *c)
{
    const ae_propose *a = c->args;
    ae_stream *s = c->stream;
    const size_t map_bytes = a->map ? a->n_logits * sizeof(int32_t) : 0, row_bytes = (size_t)a->n_logits * sizeof(float);
    const uint32_t n_room = rows_at_once(row_bytes, a->n_rows);
    plan_search(c, part_bytes(map_bytes / sizeof(int32_t)));
    if (!ae_gpu_land(s, c->search.at + larger(n_room * row_bytes, ae_gpu_search_bytes(&c->search))) ||
        !ae_gpu_fetch(s, 0, a->map, map_bytes))
        return false;
    c->map = a->map ? (const int32_t *)(const void *)s->landing : NULL;
    const bool searched = !s->rows_to_host && ae_gpu_search_run(s, &c->search);
    if (searched) {
        if (!ae_gpu_wait(s, "a proposal")) return false;
        ae_pool_run(s->options.pool, propose_found, c, a->n_rows);
    }
    for (uint32_t r = 0; r < a->n_rows; r++)
        if (!searched || c->whole[r]) c->left[c->n_left++] = r;
    return propose_left(c, n_room);
}

static size_t propose_bytes(size_t n)
{
    return n * (sizeof(ae_proposal) + 2 * sizeof(uint32_t) + 1);
}

void ae_gpu_propose(ae_stream *stream, const ae_propose *args)
{
    const size_t n = args->n_rows;
    if (!n || !ae_gpu_may_copy(stream, "a proposal")) return;
    propose_call call = {.stream = stream, .args = args, .out = room_of(stream, propose_bytes(n), "proposals")};
    if (!call.out) return;
    memset(call.out, 0, propose_bytes(n));
    call.found = (uint32_t *)(call.out + n);
    call.left = call.found + n;
    call.whole = (uint8_t *)(call.left + n);
    if (propose_all(&call)) ae_gpu_publish(stream, args->out, call.out, n * sizeof *call.out);
}

size_t ae_gpu_draw_bytes(const ae_stream_options *options)
{
    const size_t n = options->max_rows < USUAL_DRAWS ? options->max_rows : USUAL_DRAWS;
    return larger(walk_bytes(n, options->max_rows), propose_bytes(n));
}

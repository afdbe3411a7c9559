/* model.c - drafts by a smaller model.
 *
 * Owns an engine of its own, whose KV cache mirrors the target's sequences slot by slot. Each call first drops what was drafted
 * and not accepted, and runs the tokens emitted since. Then it drafts a chain, with one pass per token, or a tree, with one
 * pass per level over all nodes so far. (A pass over n rows costs about as much as one over a single row, so evaluating the
 * upper levels again is cheaper than keeping them.) Tokens are ranked under the target's own noise (sampler.h), which keeps
 * acceptance high at temperature 1.
 *
 * The model's vocabulary may differ from the target's (text/token/vocab_map.h). Then it reads the sequence in its own tokens.
 * It proposes only tokens that both have, ranked under the noise of the target's ids; trees hold the target's ids.
 * Nothing here allocates after creation (but see ae_encode_memory). */
#include <math.h>
#include <string.h>

#include "base/math/fmath.h"
#include "base/mem.h"
#include "base/os.h"
#include "engine/engine.h"
#include "draft/drafter.h"
#include "text/token/vocab_map.h"

typedef struct model_slot {
    int32_t *tokens;  /* [n_ctx] the KV cache's tokens in the model's vocabulary; only the first live ones are valid */
    ae_retext retext; /* with a map: the sequence in the model's tokens */
} model_slot;

typedef struct draft_model {
    ae_drafter base;
    ae_engine *engine;
    uint32_t n_slots, n_ctx, n_chunk;
    model_slot *slots;
    ae_vocab_map *map; /* NULL: the target's vocabulary */
    int32_t *plain;    /* [positions of the target] a text without rows that are no tokens */
    float *shared;     /* [pairs of the map] logits of the common tokens, in order of the target's ids */
    ae_encode_memory *memory; /* with a map: shared by the slots' retexts, one at a time */
} draft_model;

/* The sequence that a draft continues, in the model's own tokens. */
typedef struct draft_text {
    const int32_t *tokens;
    size_t n;
} draft_text;

static void model_destroy(ae_drafter *drafter)
{
    draft_model *d = (draft_model *)drafter;
    for (uint32_t i = 0; d->slots && i < d->n_slots; i++) {
        ae_free(d->slots[i].tokens);
        ae_retext_free(&d->slots[i].retext);
    }
    ae_free(d->slots);
    ae_free(d->plain);
    ae_free(d->shared);
    ae_encode_memory_free(d->memory);
    ae_vocab_map_free(d->map);
    ae_engine_free(d->engine);
    ae_free(d);
}

static uint32_t model_begin(ae_drafter *drafter, const ae_draft_begin *begin)
{
    draft_model *d = (draft_model *)drafter;
    /* the next propose compares tokens and keeps what is still valid */
    if (!begin->stranger || begin->slot >= d->n_slots) return begin->n_shared;
    (void)ae_engine_truncate(d->engine, begin->slot, 0);
    if (d->map) (void)ae_retext_update(&d->slots[begin->slot].retext, NULL, 0, NULL); /* to nothing: cannot fail */
    return begin->n_shared;
}

/* Adds a message to a failure of the KV cache. */
static aerie_status kept(aerie_status status, aerie_error *error)
{
    if (status == AERIE_OK) return status;
    return ae_fail(error, status, "the KV cache of the draft model is out of step; please report");
}

/* Runs tokens after the live ones and commits them. *row: the row whose logits predict the next token. */
static aerie_status extend(draft_model *d, uint32_t slot, const int32_t *tokens, uint32_t n, uint32_t *row, aerie_error *error)
{
    while (n) {
        const uint32_t step = n < d->n_chunk ? n : d->n_chunk, live = ae_kv_n_live(ae_engine_kv(d->engine), slot);
        uint32_t first;
        ae_engine_rows_clear(d->engine);
        AE_TRY(ae_engine_add_chain(d->engine, slot, tokens, step, step == n ? AE_EXPORT_LAST : AE_EXPORT_NONE, &first, error));
        AE_TRY(ae_engine_pass(d->engine, error));
        AE_TRY(kept(ae_engine_commit(d->engine, slot, step, NULL, 0), error));
        memmove(d->slots[slot].tokens + live, tokens, step * sizeof *tokens);
        *row = first + step - 1;
        tokens += step;
        n -= step;
    }
    return AERIE_OK;
}

/* The share of the model's probability mass on tokens that the target has too; the rest cannot be proposed. */
static float shared_belief(const float *logits, uint32_t n_logits, const float *shared, uint32_t n_shared)
{
    double inside = 0, all = 0;
    float top = -INFINITY;
    for (uint32_t i = 0; i < n_logits; i++) top = logits[i] > top ? logits[i] : top;
    for (uint32_t i = 0; i < n_logits; i++)
        if (logits[i] > top - 16.0f) all += (double)ae_expf(logits[i] - top);
    for (uint32_t i = 0; i < n_shared; i++)
        if (shared[i] > top - 16.0f) inside += (double)ae_expf(shared[i] - top);
    return inside < all ? (float)(inside / all) : 1.0f;
}

/* The same on the host, for another vocabulary: ranks the tokens that both have. */
static void rank_shared(draft_model *d, const ae_engine_rank *row, ae_proposal *out)
{
    const uint32_t n_vocab = ae_engine_net(d->engine)->model->hparams.n_vocab;
    const float *logits = ae_engine_logits(d->engine, row->row);
    const int32_t *targets, *drafts;
    const uint32_t n_pairs = ae_vocab_map_pairs(d->map, &targets, &drafts);
    for (uint32_t i = 0; i < n_pairs; i++) d->shared[i] = logits[drafts[i]];
    out->n = ae_sampler_propose(row->sampler, d->shared, n_pairs, targets, (size_t)row->position, row->k, out->id, out->p);
    if (n_pairs == n_vocab) return;
    const float belief = shared_belief(logits, n_vocab, d->shared, n_pairs);
    for (uint32_t i = 0; i < out->n; i++) out->p[i] *= belief;
}

/* Ranks the likeliest next tokens after each of n rows, as the target's ids. */
static aerie_status rank(draft_model *d, const ae_engine_rank *rows, uint32_t n, ae_proposal *out, aerie_error *error)
{
    if (!d->map) return ae_engine_propose(d->engine, rows, n, out, error);
    for (uint32_t i = 0; i < n; i++) rank_shared(d, &rows[i], &out[i]);
    return AERIE_OK;
}

/* A proposed token in the model's vocabulary. */
static int32_t own_token(const draft_model *d, int32_t id)
{
    return d->map ? ae_vocab_map_to_draft(d->map, id) : id;
}

static aerie_status draft_chain(draft_model *d, const ae_draft_request *r, const draft_text *text, uint32_t row, ae_tree *tree,
                                aerie_error *error)
{
    float reach = 1;
    for (uint32_t depth = 0; depth < r->max_depth && depth < r->max_nodes; depth++) {
        ae_proposal best;
        AE_TRY(rank(d, &(ae_engine_rank){r->sampler, row, 1, r->n_tokens + depth}, 1, &best, error));
        if (!best.n) return AERIE_OK;
        int32_t id = best.id[0];
        const float p = best.p[0];
        reach *= p;
        if (reach < r->min_p) return AERIE_OK;
        ae_tree_add(tree, (int32_t)depth - 1, id, p > 0 ? p : 1e-6f);
        if (depth + 1 == r->max_depth || text->n + depth + 1 >= d->n_ctx) break;
        id = own_token(d, id);
        AE_TRY(extend(d, r->slot, &id, 1, &row, error));
    }
    return AERIE_OK;
}

/* Runs the tree's rows, with its tokens in the model's own vocabulary. */
static aerie_status run_tree(draft_model *d, uint32_t slot, const ae_tree *tree, uint32_t *first, aerie_error *error)
{
    ae_tree own = *tree;
    for (uint32_t i = 0; i < own.n; i++) own.token[i] = own_token(d, own.token[i]);
    ae_engine_rows_clear(d->engine);
    AE_TRY(ae_engine_add_tree(d->engine, slot, &own, first, error));
    AE_TRY(ae_engine_pass(d->engine, error));
    return kept(ae_engine_commit(d->engine, slot, 0, NULL, 0), error);
}

static aerie_status draft_tree(draft_model *d, const ae_draft_request *r, const draft_text *text, uint32_t row, ae_tree *tree,
                               aerie_error *error)
{
    float reach[AERIE_MAX_DRAFT];
    ae_engine_rank rows[AERIE_MAX_DRAFT] = {{r->sampler, row, AE_DRAFT_BRANCHES, r->n_tokens}};
    ae_proposal best[AERIE_MAX_DRAFT];
    AE_TRY(rank(d, rows, 1, best, error));
    ae_draft_expand(r, tree, reach, -1, best);
    uint32_t begin = 0;
    for (uint32_t depth = 1; depth < r->max_depth && begin < tree->n && tree->n < r->max_nodes; depth++) {
        const uint32_t end = tree->n;
        uint32_t first;
        if (text->n + depth >= d->n_ctx) break;
        AE_TRY(run_tree(d, r->slot, tree, &first, error));
        for (uint32_t i = begin; i < end; i++)
            rows[i - begin] = (ae_engine_rank){r->sampler, first + i, AE_DRAFT_BRANCHES,
                                               r->n_tokens + (uint32_t)tree->depth[i]};
        AE_TRY(rank(d, rows, end - begin, best, error));
        for (uint32_t i = begin; i < end; i++) ae_draft_expand(r, tree, reach, (int32_t)i, &best[i - begin]);
        begin = end;
    }
    return AERIE_OK;
}

/* Runs the new tokens, then drafts. Adds to the cost of this propose. */
static aerie_status draft(draft_model *d, const ae_draft_request *r, ae_tree *tree, aerie_error *error)
{
    ae_kv *kv = ae_engine_kv(d->engine);
    model_slot *slot = &d->slots[r->slot];
    ae_draft_cost *cost = &d->base.cost;
    double start = ae_time_now();
    draft_text text = {NULL, r->n_tokens};
    text.tokens = ae_draft_plain(r->tokens, &text.n, d->plain);
    if (d->map) {
        AE_TRY(ae_retext_update(&slot->retext, text.tokens, text.n, error));
        text = (draft_text){slot->retext.drafts.data, slot->retext.drafts.n};
    }
    if (!text.n || text.n >= d->n_ctx) return AERIE_OK; /* no token of the text is in its vocabulary, or its context is full */
    const uint32_t live = ae_kv_n_live(kv, r->slot);
    uint32_t same = 0, row = 0;
    while (same < live && same < text.n - 1 && slot->tokens[same] == text.tokens[same]) same++;
    same = ae_engine_truncate(d->engine, r->slot, same);
    if (text.n - same > AE_DRAFT_LATE) {
        AE_TRY(extend(d, r->slot, text.tokens + same, (uint32_t)text.n - 1 - same, &row, error));
        same = (uint32_t)text.n - 1;
        const double now = ae_time_now();
        cost->start_seconds += now - start;
        start = now;
    }
    AE_TRY(extend(d, r->slot, text.tokens + same, (uint32_t)text.n - same, &row, error));
    ae_engine_snapshot(d->engine, r->slot); /* the rows of a chain may have to be dropped */
    const double caught_up = ae_time_now();
    cost->first_seconds += caught_up - start;
    AE_TRY(r->shape ? draft_tree(d, r, &text, row, tree, error) : draft_chain(d, r, &text, row, tree, error));
    cost->other_seconds += ae_time_now() - caught_up;
    for (uint32_t i = 0; i < tree->n; i++)
        if ((uint32_t)tree->depth[i] > cost->n_levels) cost->n_levels = (uint32_t)tree->depth[i];
    if (!cost->n_levels) cost->n_levels = 1;
    return AERIE_OK;
}

static aerie_status model_propose(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    draft_model *d = (draft_model *)drafter;
    aerie_status status = AERIE_OK;
    drafter->cost = (ae_draft_cost){0};
    for (uint32_t i = 0; status == AERIE_OK && i < n; i++) status = draft(d, &requests[i], requests[i].tree, error);
    for (uint32_t i = 0; status != AERIE_OK && i < d->n_slots; i++)
        (void)ae_kv_truncate(ae_engine_kv(d->engine), i, 0); /* a pass may have failed; truncating to nothing cannot fail */
    return status;
}

static const ae_drafter_ops model_ops = {
    .name = "draft",
    .begin = model_begin,
    .propose = model_propose,
    .destroy = model_destroy,
};

/* n_target: tokens of the target's longest sequence. */
static aerie_status allocate(draft_model *d, const ae_vocab *vocab, size_t n_target, aerie_error *error)
{
    const int32_t *unused;
    bool ok = (d->slots = ae_alloc(d->n_slots, sizeof *d->slots)) != NULL;
    for (uint32_t i = 0; ok && i < d->n_slots; i++) ok = (d->slots[i].tokens = ae_alloc(d->n_ctx, sizeof(int32_t))) != NULL;
    if (ok && d->map) ok = (d->shared = ae_alloc(ae_vocab_map_pairs(d->map, &unused, &unused), sizeof *d->shared)) != NULL;
    ok = ok && (d->plain = ae_alloc(n_target, sizeof *d->plain)) != NULL;
    if (!ok) return ae_fail_memory(error, "the draft model's tokens", (size_t)d->n_slots * d->n_ctx * sizeof(int32_t));
    if (!d->map) return AERIE_OK;
    AE_TRY(ae_encode_memory_create(&d->memory, vocab, ae_vocab_map_word_bytes(d->map), error));
    for (uint32_t i = 0; i < d->n_slots; i++) {
        d->slots[i].retext = (ae_retext){.map = d->map, .memory = d->memory};
        AE_TRY(ae_retext_reserve(&d->slots[i].retext, n_target, d->n_ctx, error)); /* no drafts beyond its context */
    }
    return AERIE_OK;
}

aerie_status ae_draft_model_create(ae_drafter **out, struct ae_engine *engine, const struct ae_vocab *vocab,
                                   struct ae_vocab_map *map, uint32_t n_slots, uint32_t n_target_ctx, aerie_error *error)
{
    *out = NULL;
    draft_model *d = ae_alloc(1, sizeof *d);
    if (!d) {
        ae_engine_free(engine);
        ae_vocab_map_free(map);
        return ae_fail_memory(error, "the draft model's state", sizeof *d);
    }
    const ae_engine_options *o = ae_engine_options_get(engine);
    *d = (draft_model){.base.ops = &model_ops, .engine = engine, .n_slots = n_slots, .n_ctx = o->n_ctx, .n_chunk = o->n_batch,
                       .map = map};
    const size_t n_target = (size_t)n_target_ctx + 1; /* the last token may have no place in the cache */
    const aerie_status status = allocate(d, vocab, n_target, error);
    if (status == AERIE_OK) *out = &d->base;
    else model_destroy(&d->base);
    return status;
}

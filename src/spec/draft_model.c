/* draft_model.c - a smaller model with the same vocabulary proposes.
 *
 * Owns an engine of its own (its KV cache mirrors the target's sequences, slot for sequence). Each call first
 * drops what was drafted and not accepted, catches up on the tokens emitted since, then drafts: a chain, one
 * pass per token; or a tree, one pass per level over all nodes so far (a pass over n rows costs about what one
 * over a single row costs, so evaluating the upper levels again is cheaper than keeping them).
 * Tokens are ranked under the target's own noise (sampler.h): at temperature 1 that is what keeps
 * acceptance high. */
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "spec/drafter.h"

#define BRANCHES 3          /* children considered per node of a tree */
#define TREE_P_FLOOR 0.02f  /* paths less likely than this are not worth a row */

typedef struct model_slot {
    int32_t *tokens; /* [n_ctx] what the KV cache holds; the first live ones count */
} model_slot;

typedef struct draft_model {
    ae_drafter base;
    ae_engine *engine;
    uint32_t n_slots, n_ctx, n_chunk;
    model_slot *slots;
} draft_model;

static void model_destroy(ae_drafter *drafter)
{
    draft_model *d = (draft_model *)drafter;
    for (uint32_t i = 0; d->slots && i < d->n_slots; i++) ae_free(d->slots[i].tokens);
    ae_free(d->slots);
    ae_engine_free(d->engine);
    ae_free(d);
}

static uint32_t model_begin(ae_drafter *drafter, const ae_draft_begin *begin)
{
    (void)drafter; /* the next propose compares tokens and keeps what still holds */
    return begin->n_shared;
}

/* Runs tokens behind the live ones and keeps them; *row: the one whose logits come next. */
static aerie_status extend(draft_model *d, uint32_t slot, const int32_t *tokens, uint32_t n, uint32_t *row, aerie_error *error)
{
    while (n) {
        const uint32_t step = n < d->n_chunk ? n : d->n_chunk, live = ae_kv_n_live(ae_engine_kv(d->engine), slot);
        uint32_t first;
        ae_engine_rows_clear(d->engine);
        AE_TRY(ae_engine_add_chain(d->engine, slot, tokens, step, step == n ? AE_EXPORT_LAST : AE_EXPORT_NONE, &first, error));
        ae_engine_pass(d->engine);
        ae_engine_commit(d->engine, slot, step, NULL, 0);
        memmove(d->slots[slot].tokens + live, tokens, step * sizeof *tokens);
        *row = first + step - 1;
        tokens += step;
        n -= step;
    }
    return AERIE_OK;
}

static uint32_t rank(draft_model *d, const ae_draft_request *r, uint32_t row, size_t position, uint32_t k, int32_t *ids, float *p)
{
    const uint32_t n_vocab = ae_engine_net(d->engine)->model->hparams.n_vocab;
    return ae_sampler_propose(r->sampler, ae_engine_logits(d->engine, row), n_vocab, NULL, position, k, ids, p);
}

static aerie_status draft_chain(draft_model *d, const ae_draft_request *r, uint32_t row, ae_tree *tree, aerie_error *error)
{
    float reach = 1;
    for (uint32_t depth = 0; depth < r->max_depth && depth < r->max_nodes; depth++) {
        int32_t id;
        float p;
        if (!rank(d, r, row, r->n_tokens + depth, 1, &id, &p)) return AERIE_OK;
        reach *= p;
        if (reach < r->min_p) return AERIE_OK;
        ae_tree_add(tree, (int32_t)depth - 1, id, p > 0 ? p : 1e-6f);
        if (depth + 1 < r->max_depth && r->n_tokens + depth + 1 < d->n_ctx) AE_TRY(extend(d, r->slot, &id, 1, &row, error));
        else break;
    }
    return AERIE_OK;
}

/* Adds the children of one node, best first, while they are likely enough. */
static void expand(draft_model *d, const ae_draft_request *r, ae_tree *tree, float *reach, int32_t node, uint32_t row)
{
    int32_t ids[BRANCHES];
    float p[BRANCHES];
    const uint32_t depth = node < 0 ? 0 : (uint32_t)tree->depth[node];
    const uint32_t n = rank(d, r, row, r->n_tokens + depth, BRANCHES, ids, p);
    const float up = node < 0 ? 1.0f : reach[node], floor = r->min_p > TREE_P_FLOOR ? r->min_p : TREE_P_FLOOR;
    for (uint32_t i = 0; i < n && tree->n < r->max_nodes; i++) {
        if (up * p[i] < floor) continue;
        const int32_t child = ae_tree_add(tree, node, ids[i], p[i]);
        if (child >= 0) reach[child] = up * p[i];
    }
}

static aerie_status draft_tree(draft_model *d, const ae_draft_request *r, uint32_t row, ae_tree *tree, aerie_error *error)
{
    float reach[AE_TREE_MAX];
    expand(d, r, tree, reach, -1, row);
    uint32_t begin = 0;
    for (uint32_t depth = 1; depth < r->max_depth && begin < tree->n && tree->n < r->max_nodes; depth++) {
        const uint32_t end = tree->n;
        uint32_t first;
        if (r->n_tokens + depth >= d->n_ctx) break;
        ae_engine_rows_clear(d->engine);
        AE_TRY(ae_engine_add_tree(d->engine, r->slot, tree, &first, error));
        ae_engine_pass(d->engine);
        ae_engine_commit(d->engine, r->slot, 0, NULL, 0);
        for (uint32_t i = begin; i < end; i++) expand(d, r, tree, reach, (int32_t)i, first + i);
        begin = end;
    }
    return AERIE_OK;
}

static aerie_status draft(draft_model *d, const ae_draft_request *r, ae_tree *tree, aerie_error *error)
{
    ae_kv *kv = ae_engine_kv(d->engine);
    if (r->n_tokens >= d->n_ctx) return AERIE_OK; /* its context is full: nothing to propose */
    const uint32_t live = ae_kv_n_live(kv, r->slot);
    uint32_t same = 0, row = 0;
    while (same < live && same < r->n_tokens - 1 && d->slots[r->slot].tokens[same] == r->tokens[same]) same++;
    ae_kv_truncate(kv, r->slot, same);
    AE_TRY(extend(d, r->slot, r->tokens + same, (uint32_t)r->n_tokens - same, &row, error));
    return r->shape ? draft_tree(d, r, row, tree, error) : draft_chain(d, r, row, tree, error);
}

static aerie_status model_propose(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    for (uint32_t i = 0; i < n; i++) AE_TRY(draft((draft_model *)drafter, &requests[i], requests[i].tree, error));
    return AERIE_OK;
}

static const ae_drafter_ops model_ops = {
    .name = "draft",
    .begin = model_begin,
    .propose = model_propose,
    .destroy = model_destroy,
};

aerie_status ae_draft_model_create(ae_drafter **out, struct ae_engine *engine, uint32_t n_slots, aerie_error *error)
{
    *out = NULL;
    draft_model *d = ae_alloc(1, sizeof *d);
    if (!d) {
        ae_engine_free(engine);
        return ae_fail_memory(error, "the draft model's state", sizeof *d);
    }
    const ae_engine_options *o = ae_engine_options_get(engine);
    *d = (draft_model){.base.ops = &model_ops, .engine = engine, .n_slots = n_slots, .n_ctx = o->n_ctx, .n_chunk = o->n_batch};
    d->slots = ae_alloc(n_slots, sizeof *d->slots);
    bool ok = d->slots;
    for (uint32_t i = 0; ok && i < n_slots; i++) ok = (d->slots[i].tokens = ae_alloc(d->n_ctx, sizeof(int32_t)));
    if (!ok) {
        const size_t bytes = (size_t)n_slots * d->n_ctx * sizeof(int32_t);
        model_destroy(&d->base);
        return ae_fail_memory(error, "the draft model's tokens", bytes);
    }
    *out = &d->base;
    return AERIE_OK;
}

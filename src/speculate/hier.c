/* hier.c - an intermediate model between the target and a drafter: it drafts for the target, and another drafter drafts for it.
 *
 * HierSpec (arXiv 2505.22179): where many rows are expensive for the target, a chain that a smaller model has verified is worth
 * more than an unverified tree. A whole speculation loop (speculate.h) runs the smaller model with its own drafter, which may
 * itself be a hier drafter. For each draft the loop continues after the target's tokens and reuses what its KV cache has of
 * them. It draws with the target's own noise; the tokens that it emits are the draft.
 *
 * Borrows the loop, and the requests' samplers while it drafts. Owns the state of each request during a draft.
 */
#include "base/mem.h"
#include "base/os.h"
#include "draft/drafter.h"
#include "speculate/speculate.h"

typedef struct hier_work {
    const ae_draft_request *request; /* NULL: the slot gets no draft, or no further tokens of its draft */
    float reach;                     /* probability of the chain so far */
    uint32_t n_ranked;               /* tokens of the chain whose probability is known */
} hier_work;

typedef struct draft_hier {
    ae_drafter base;
    ae_spec *inner; /* lent */
    const ae_vocab *vocab;
    uint32_t n_slots, n_enough;
    bool late;        /* the model is still reading text that it had not seen */
    double started;   /* time at which the model had read that text */
    uint32_t n_first; /* tokens of the longest draft at that time */
    int32_t *plain;  /* [positions of the loop + 1] a text without rows that are not tokens */
    hier_work *work; /* [n_slots] by slot */
    /* [n_slots][AERIE_MAX_DRAFT] rows of the loop's pass from which the tokens not yet ranked were drawn */
    uint32_t *row;
    ae_engine_rank *ranks; /* [outputs of the loop's engine] scratch of rank_drawn */
    ae_proposal *best;     /* [outputs of the loop's engine] scratch of rank_drawn */
} draft_hier;

static void hier_destroy(ae_drafter *drafter)
{
    draft_hier *d = (draft_hier *)drafter;
    ae_free(d->work);
    ae_free(d->plain);
    ae_free(d->row);
    ae_free(d->ranks);
    ae_free(d->best);
    ae_free(d);
}

static uint32_t hier_begin(ae_drafter *drafter, const ae_draft_begin *begin)
{
    draft_hier *d = (draft_hier *)drafter;
    /* the next propose compares tokens and keeps the positions that are still valid */
    if (begin->new_scope && begin->slot < d->n_slots) ae_spec_forget(d->inner, begin->slot);
    return begin->n_shared;
}

/* Implements the emit callback: appends a token of the model to the chain. Its probability is computed after the pass
 * (rank_drawn). */
static aerie_stop take(void *user, uint32_t slot, int32_t token, uint32_t depth, uint32_t row)
{
    draft_hier *d = user;
    const ae_draft_request *r = d->work[slot].request;
    ae_tree *tree = r->tree;
    (void)depth; /* depth in the inner draft */
    if (ae_tree_add(tree, (int32_t)tree->n - 1, token, 1.0f) < 0) return AERIE_STOP_LENGTH;
    d->row[(size_t)slot * AERIE_MAX_DRAFT + tree->n - 1] = row;
    return ae_vocab_is_eog(d->vocab, token) ? AERIE_STOP_EOG : AERIE_STOP_NONE;
}

/* Multiplies the chain's probability by that of its next token. Returns false if the chain ends before that token. */
static bool add_probability(hier_work *w, const ae_proposal *best)
{
    ae_tree *tree = w->request->tree;
    const uint32_t i = w->n_ranked++;
    float p = 0;
    /* only the best token of each row was computed */
    if (best->n) p = best->id[0] == tree->token[i] ? best->p[0] : 1.0f - best->p[0];
    tree->p[i] = p > 1e-6f ? p : 1e-6f;
    w->reach *= tree->p[i];
    if (w->reach >= w->request->min_p) return true;
    tree->n = w->n_ranked = i;
    return false;
}

/* Computes the model's probabilities of all tokens that it drew in this pass, for all sequences in one operation. Ends chains
 * that have become too improbable. */
static aerie_status rank_drawn(draft_hier *d, aerie_error *error)
{
    uint32_t n = 0, at = 0;
    for (uint32_t i = 0; i < d->n_slots; i++) {
        const hier_work *w = &d->work[i];
        for (uint32_t k = w->n_ranked; w->request && k < w->request->tree->n; k++)
            d->ranks[n++] = (ae_engine_rank){w->request->sampler, d->row[(size_t)i * AERIE_MAX_DRAFT + k], 1,
                                             w->request->n_tokens + k};
    }
    AE_TRY(ae_engine_propose(ae_spec_engine(d->inner), d->ranks, n, d->best, error));
    for (uint32_t i = 0; i < d->n_slots; i++) {
        hier_work *w = &d->work[i];
        bool more = true;
        const uint32_t n_new = w->request ? w->request->tree->n - w->n_ranked : 0;
        for (uint32_t k = 0; more && k < n_new; k++) more = add_probability(w, &d->best[at + k]);
        at += n_new;
        if (!more) ae_spec_stop(d->inner, i, AERIE_STOP_LENGTH);
    }
    return AERIE_OK;
}

/* Starts a sequence in the loop for each request that has room for a draft. */
static aerie_status follow(draft_hier *d, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    const uint32_t n_ctx = ae_engine_options_get(ae_spec_engine(d->inner))->n_ctx;
    const ae_kv *kv = ae_engine_kv(ae_spec_engine(d->inner));
    for (uint32_t i = 0; i < d->n_slots; i++) d->work[i].request = NULL;
    d->late = false;
    for (uint32_t i = 0; i < n; i++) {
        const ae_draft_request *r = &requests[i];
        uint32_t depth = r->max_depth < r->max_nodes ? r->max_depth : r->max_nodes;
        size_t n_tokens = r->n_tokens;
        if (r->tree->n || n_tokens >= n_ctx) continue;
        const int32_t *tokens = ae_draft_plain(r->tokens, &n_tokens, d->plain);
        if (depth > n_ctx - n_tokens) depth = (uint32_t)(n_ctx - n_tokens);
        if (!depth || !n_tokens) continue;
        d->work[r->slot] = (hier_work){r, 1.0f, 0};
        AE_TRY(ae_spec_follow(d->inner, r->slot, tokens, n_tokens, depth, r->sampler, error));
        d->late |= n_tokens - ae_kv_n_live(kv, r->slot) > AE_DRAFT_LATE;
    }
    return AERIE_OK;
}

static uint32_t longest(const draft_hier *d)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_slots; i++)
        if (d->work[i].request && d->work[i].request->tree->n > n) n = d->work[i].request->tree->n;
    return n;
}

/* Runs the loop until every draft is long enough. */
static aerie_status run(draft_hier *d, aerie_error *error)
{
    while (ae_spec_n_active(d->inner)) {
        AE_TRY(ae_spec_step(d->inner, take, d, error));
        AE_TRY(rank_drawn(d, error));
        if (d->late && (d->n_first = longest(d))) {
            d->late = false;
            d->started = ae_time_now();
        }
        for (uint32_t i = 0; i < d->n_slots; i++)
            if (d->work[i].request && d->work[i].request->tree->n >= d->n_enough) ae_spec_stop(d->inner, i, AERIE_STOP_LENGTH);
    }
    return AERIE_OK;
}

static aerie_status hier_propose(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    draft_hier *d = (draft_hier *)drafter;
    const double start = ae_time_now();
    drafter->cost = (ae_draft_cost){0};
    d->started = start;
    d->n_first = 0;
    if (n > d->n_slots)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%u drafts are asked of a drafter for %u slots", n, d->n_slots);
    aerie_status status = follow(d, requests, n, error);
    if (status == AERIE_OK) status = run(d, error);
    if (status != AERIE_OK) ae_spec_reset(d->inner);
    /* a pass may emit several tokens of a chain, so each token gets an equal share of the time */
    const double end = ae_time_now();
    const uint32_t n_levels = d->late ? 0 : d->n_first ? longest(d) - d->n_first : longest(d) ? longest(d) : 1;
    if (d->late) d->started = end;
    const double seconds = end - d->started, share = n_levels ? seconds / n_levels : 0;
    drafter->cost = (ae_draft_cost){n_levels, d->started - start, share, seconds - share};
    return status;
}

aerie_status ae_draft_hier_create(ae_drafter **out, struct ae_spec *inner, uint32_t n_slots, uint32_t n_enough,
                                  aerie_error *error)
{
    static const ae_drafter_ops ops = {.name = "hier", .begin = hier_begin, .propose = hier_propose, .destroy = hier_destroy};
    *out = NULL;
    draft_hier *d = ae_alloc(1, sizeof *d);
    if (!d) return ae_fail_memory(error, "the intermediate model's drafts", sizeof *d);
    const ae_engine_options *o = ae_engine_options_get(ae_spec_engine(inner));
    *d = (draft_hier){.base.ops = &ops, .inner = inner, .n_slots = n_slots, .n_enough = n_enough,
                      .vocab = ae_spec_vocab(inner),
                      .plain = ae_alloc(o->n_ctx + 1, sizeof *d->plain),
                      .row = ae_alloc((size_t)n_slots * AERIE_MAX_DRAFT, sizeof *d->row),
                      .ranks = ae_alloc(o->n_outputs, sizeof *d->ranks),
                      .best = ae_alloc(o->n_outputs, sizeof *d->best),
                      .work = ae_alloc(n_slots, sizeof *d->work)};
    if (!d->work || !d->plain || !d->row || !d->ranks || !d->best) {
        hier_destroy(&d->base);
        return ae_fail_memory(error, "the intermediate model's drafts", n_slots * sizeof *d->work);
    }
    *out = &d->base;
    return AERIE_OK;
}

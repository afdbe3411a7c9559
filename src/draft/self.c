/* self.c - the target drafts for itself, with fewer experts or without some of its blocks.
 *
 * Borrows the target's engine between its passes. A draft runs level by level, all sequences together. The sequence's newest
 * token, which the target has not run yet, and the draft so far follow its live rows as a tree. The pass runs in a mode
 * (engine/pass_mode.h), and none of its rows are kept. So drafts see the keys and values of verified rows, and no row of a
 * draft can get into the KV cache or the recurrent state: the engine refuses it. The upper levels run again with each further
 * level, which costs little as rows share the weights.
 *
 * A draft ends at the level that does not fit the rows of a pass, the records of recurrent layers or the pages of the KV cache.
 */
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "engine/engine.h"
#include "draft/drafter.h"

/* A request while its draft is made. */
typedef struct self_work {
    ae_tree rows;      /* the newest token, then the draft's nodes */
    uint32_t first;    /* the pass's row of the first of them */
    uint32_t n_done;   /* rows whose children have been found */
    bool runs;         /* another level follows */
    float reach[AERIE_MAX_DRAFT];
} self_work;

typedef struct draft_self {
    ae_drafter base;
    ae_engine *engine; /* lent */
    uint32_t n_slots;
    uint8_t *lacks;    /* [n_layers] the skip mask */
    ae_pass_mode mode;
    self_work *work;   /* [n_slots] */
} draft_self;

static void self_destroy(ae_drafter *drafter)
{
    draft_self *d = (draft_self *)drafter;
    ae_free(d->lacks);
    ae_free(d->work);
    ae_free(d);
}

static uint32_t self_begin(ae_drafter *drafter, const ae_draft_begin *begin)
{
    (void)drafter; /* it has no state per sequence */
    return begin->n_shared;
}

/* Adds the rows of all requests that continue; ends those for which there is no room. *n_run: how many continue. */
static aerie_status add_rows(draft_self *d, const ae_draft_request *requests, uint32_t n, uint32_t *n_run, aerie_error *error)
{
    const ae_kv *kv = ae_engine_kv(d->engine);
    const ae_engine_options *o = ae_engine_options_get(d->engine);
    const uint32_t share = o->n_outputs / n, most = ae_engine_max_tree(d->engine);
    uint32_t n_pages = 0;
    *n_run = 0;
    ae_engine_rows_clear(d->engine);
    for (uint32_t i = 0; i < n; i++) {
        self_work *w = &d->work[i];
        if (!w->runs) continue;
        const uint32_t missing = ae_kv_n_missing(kv, requests[i].slot, w->rows.n);
        w->runs = w->rows.n <= share && w->rows.n <= most && n_pages + missing <= ae_kv_n_available(kv);
        n_pages += w->runs ? missing : 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        self_work *w = &d->work[i];
        if (!w->runs) continue;
        AE_TRY(ae_engine_add_tree(d->engine, requests[i].slot, &w->rows, &w->first, error));
        ++*n_run;
    }
    return AERIE_OK;
}

/* Adds the children of the nodes that this pass ran for the first time. */
static aerie_status expand(const draft_self *d, const ae_draft_request *r, self_work *w, aerie_error *error)
{
    const uint32_t begin = w->n_done, end = w->rows.n;
    ae_tree *tree = r->tree;
    ae_engine_rank ranks[AERIE_MAX_DRAFT] = {0};
    ae_proposal best[AERIE_MAX_DRAFT];
    for (uint32_t row = begin; row < end; row++)
        ranks[row - begin] = (ae_engine_rank){r->sampler, w->first + row, ae_draft_width(r),
                                              r->n_tokens + (row ? (uint32_t)tree->depth[row - 1] : 0)};
    AE_TRY(ae_engine_propose(d->engine, ranks, end - begin, best, error));
    for (uint32_t row = begin; row < end; row++) ae_draft_expand(r, tree, w->reach, (int32_t)row - 1, &best[row - begin]);
    w->n_done = end;
    const bool more = tree->n + 1 > end && tree->n < r->max_nodes && tree->n + 1 < AERIE_MAX_DRAFT;
    w->runs = more && (uint32_t)tree->depth[tree->n - 1] < r->max_depth;
    for (uint32_t i = end - 1; w->runs && i < tree->n; i++)
        ae_tree_add(&w->rows, tree->parent[i] + 1, tree->token[i], tree->p[i]);
    return AERIE_OK;
}

/* Runs one level of all requests. *n_run: how many of them drafted. */
static aerie_status run_level(draft_self *d, const ae_draft_request *requests, uint32_t n, uint32_t *n_run, aerie_error *error)
{
    AE_TRY(add_rows(d, requests, n, n_run, error));
    if (!*n_run) return AERIE_OK;
    ae_engine_set_mode(d->engine, &d->mode);
    AE_TRY(ae_engine_pass(d->engine, error));
    for (uint32_t i = 0; i < n; i++) {
        if (!d->work[i].runs) continue;
        if (ae_engine_commit(d->engine, requests[i].slot, 0, NULL, 0) != AERIE_OK)
            return ae_fail(error, AERIE_ERROR_INTERNAL, "the draft of sequence %u could not be dropped; please report",
                           requests[i].slot);
        AE_TRY(expand(d, &requests[i], &d->work[i], error));
    }
    return AERIE_OK;
}

static aerie_status self_propose(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    draft_self *d = (draft_self *)drafter;
    double start = ae_time_now();
    aerie_status status = AERIE_OK;
    drafter->cost = (ae_draft_cost){0};
    if (n > d->n_slots)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%u drafts are asked of a drafter for %u slots", n, d->n_slots);
    for (uint32_t i = 0; i < n; i++) {
        self_work *w = &d->work[i];
        w->rows.n = w->n_done = 0;
        w->runs = requests[i].max_depth && requests[i].max_nodes && !requests[i].tree->n;
        ae_tree_add(&w->rows, -1, requests[i].tokens[requests[i].n_tokens - 1], 1.0f);
    }
    for (uint32_t n_run = n; n_run && status == AERIE_OK;) {
        status = run_level(d, requests, n, &n_run, error);
        const double now = ae_time_now();
        *(drafter->cost.n_levels ? &drafter->cost.other_seconds : &drafter->cost.first_seconds) += now - start;
        drafter->cost.n_levels += n_run > 0;
        start = now;
    }
    ae_engine_rows_clear(d->engine); /* leave no rows for the target's pass */
    return status;
}

void ae_draft_self_set_experts(ae_drafter *drafter, uint32_t n_experts)
{
    ((draft_self *)drafter)->mode.n_experts = n_experts;
}

aerie_status ae_draft_self_create(ae_drafter **out, struct ae_engine *target, const uint8_t *lacks, uint32_t n_experts,
                                  uint32_t n_slots, aerie_error *error)
{
    static const ae_drafter_ops ops = {.name = "moe", .begin = self_begin, .propose = self_propose, .destroy = self_destroy};
    const uint32_t n_layers = ae_engine_net(target)->model->hparams.n_layers;
    *out = NULL;
    draft_self *d = ae_alloc(1, sizeof *d);
    if (!d) return ae_fail_memory(error, "the drafting model's state", sizeof *d);
    *d = (draft_self){.base.ops = &ops, .engine = target, .n_slots = n_slots, .lacks = ae_alloc(n_layers, 1),
                      .work = ae_alloc(n_slots, sizeof *d->work)};
    if (!d->lacks || !d->work) {
        self_destroy(&d->base);
        return ae_fail_memory(error, "the drafting model's state", n_slots * sizeof *d->work);
    }
    memcpy(d->lacks, lacks, n_layers);
    d->mode = (ae_pass_mode){.n_experts = n_experts, .lacks = d->lacks};
    *out = &d->base;
    return AERIE_OK;
}

/* medusa.c - Medusa's heads: each predicts one of the next tokens from the newest hidden row alone.
 *
 * Owns the heads' engine and, for each slot, the feature of the newest position. There is no cache to catch up with. Head j
 * does not know what head j - 1 chose, so all nodes of a level have the same children: a tree is the product of the heads'
 * lists (arXiv 2401.10774), likeliest paths first. */
#include "base/mem.h"
#include "base/os.h"
#include "engine/engine.h"
#include "draft/head/engine.h"
#include "draft/drafter.h"

#define TREE_CHILDREN 4
#define RANK_MAX AE_PROPOSE_MAX
#define TREE_P_FLOOR 0.01f

typedef struct medusa {
    ae_drafter base;
    ae_dhead_engine *head;
    ae_engine *target;
    const ae_backend_ops *ops;
    ae_backend *backend;
    uint32_t n_slots, width;
    uint32_t *n_seen;   /* [n_slots] positions of the slot's sequence that have run */
    bool *fresh;        /* [n_slots] whether `newest` belongs to the slot's present sequence */
    float *newest;      /* (device) [n_slots][width] feature of each slot's newest position */
    float *wanted;      /* (device) [n_slots][width] features of the slots that draft */
    ae_propose_row *rows;   /* [n_slots][n_medusa] rows of the slots that draft */
    ae_proposal *proposals; /* as many */
} medusa;

static size_t feature_bytes(const medusa *d)
{
    return 2 * (size_t)d->n_slots * d->width * sizeof(float);
}

static void medusa_destroy(ae_drafter *drafter)
{
    medusa *d = (medusa *)drafter;
    (void)d->ops->sync(ae_engine_stream(d->target), NULL);
    (void)d->ops->sync(ae_dhead_engine_stream(d->head), NULL);
    if (d->newest) d->ops->free(d->backend, d->newest, feature_bytes(d));
    ae_free(d->n_seen);
    ae_free(d->fresh);
    ae_free(d->rows);
    ae_free(d->proposals);
    ae_dhead_engine_free(d->head);
    ae_free(d);
}

static uint32_t medusa_begin(ae_drafter *drafter, const ae_draft_begin *begin)
{
    medusa *d = (medusa *)drafter;
    if (begin->slot >= d->n_slots) return begin->n_shared;
    /* only the newest row counts, so the target runs one shared position again to provide it before the first draft */
    const uint32_t n = begin->n_shared && !begin->idle ? begin->n_shared - 1 : begin->n_shared;
    d->n_seen[begin->slot] = n;
    d->fresh[begin->slot] = false;
    return n;
}

static void medusa_observe(ae_drafter *drafter, const ae_draft_seen *seen)
{
    medusa *d = (medusa *)drafter;
    if (!seen->n) return;
    d->n_seen[seen->slot] += seen->n;
    d->fresh[seen->slot] = true;
    d->ops->copy(ae_engine_stream(d->target),
                 &(ae_copy){.n = 1, .dim = d->width, .x = ae_engine_features(d->target, 0),
                            .x_stride = d->width,
                            .host_rows = seen->rows + seen->n - 1,
                            .y = d->newest + (size_t)seen->slot * d->width, .y_stride = d->width});
}

static uint32_t n_heads(const medusa *d)
{
    return ae_dhead_engine_net(d->head)->head->hparams.n_medusa;
}

static uint32_t n_levels(const medusa *d, const ae_draft_request *r)
{
    return n_heads(d) < r->max_depth ? n_heads(d) : r->max_depth;
}

/* Requests the lists of the heads of the wanted levels; `first`: the output of head 0 for this slot. */
static void ask(const medusa *d, const ae_draft_request *r, uint32_t first, ae_propose_row *rows)
{
    const ae_draw *draw = ae_sampler_plain(r->sampler);
    const uint32_t k = r->shape == AE_DRAFT_CHAIN ? 1 : !r->top_k ? TREE_CHILDREN : r->top_k < RANK_MAX ? r->top_k : RANK_MAX;
    for (uint32_t j = 0; j < n_levels(d, r); j++) rows[j] = (ae_propose_row){draw, first + j, k, r->n_tokens + j};
}

/* lists: of each level. */
static void grow(const medusa *d, const ae_draft_request *r, const ae_proposal *lists)
{
    uint32_t begin = 0;
    float reach[AERIE_MAX_DRAFT];
    const float floor = r->shape == AE_DRAFT_CHAIN || r->min_p > TREE_P_FLOOR ? r->min_p : TREE_P_FLOOR;
    for (uint32_t j = 0; j < n_levels(d, r); j++) {
        const ae_proposal *list = &lists[j];
        const uint32_t end = r->tree->n;
        for (uint32_t parent = begin; parent < (j ? end : 1); parent++)
            for (uint32_t i = 0; i < list->n && r->tree->n < r->max_nodes; i++) {
                const float up = j ? reach[parent] : 1.0f, q = list->p[i] > 1e-6f ? list->p[i] : 1e-6f;
                if (up * q < floor) break; /* best first */
                const int32_t node = ae_tree_add(r->tree, j ? (int32_t)parent : -1, list->id[i], q);
                if (node >= 0) reach[node] = up * q;
            }
        if (r->tree->n == end) return;
        begin = end;
    }
}

/* Returns whether the newest feature belongs to the position before the newest token. */
static bool can_draft(const medusa *d, const ae_draft_request *r)
{
    return d->fresh[r->slot] && d->n_seen[r->slot] + 1 == r->n_tokens;
}

static aerie_status medusa_propose(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    medusa *d = (medusa *)drafter;
    uint32_t n_wanted = 0, n_asked = 0, at = 0;
    const double start = ae_time_now();
    for (uint32_t i = 0; i < n; i++) {
        const ae_draft_request *r = &requests[i];
        if (r->slot >= d->n_slots) return ae_fail(error, AERIE_ERROR_ARGUMENT, "slot %u: Medusa has %u", r->slot, d->n_slots);
        if (!can_draft(d, r)) continue;
        ask(d, r, n_wanted * n_heads(d), d->rows + n_asked);
        n_asked += n_levels(d, r);
        d->ops->copy(ae_engine_stream(d->target),
                     &(ae_copy){.n = 1, .dim = d->width, .x = d->newest + (size_t)r->slot * d->width, .x_stride = d->width,
                                .y = d->wanted + (size_t)n_wanted++ * d->width, .y_stride = d->width});
    }
    AE_TRY(ae_dhead_run_medusa(d->head, d->wanted, n_wanted, error));
    AE_TRY(ae_dhead_propose(d->head, d->rows, n_asked, d->proposals, error));
    for (uint32_t i = 0; i < n; i++) {
        if (!can_draft(d, &requests[i])) continue;
        grow(d, &requests[i], d->proposals + at);
        at += n_levels(d, &requests[i]);
    }
    /* all heads run at once, so further levels cost nothing */
    drafter->cost = (ae_draft_cost){.n_levels = n_heads(d), .first_seconds = ae_time_now() - start};
    return AERIE_OK;
}

aerie_status ae_draft_medusa_create(ae_drafter **out, ae_dhead_engine *head, ae_engine *target, uint32_t n_slots,
                                    aerie_error *error)
{
    static const ae_drafter_ops ops = {.name = "draft-medusa", .begin = medusa_begin, .observe = medusa_observe,
                                       .propose = medusa_propose, .destroy = medusa_destroy};
    const ae_dhead_net *net = ae_dhead_engine_net(head);
    *out = NULL;
    medusa *d = ae_alloc(1, sizeof *d);
    if (!d) {
        ae_dhead_engine_free(head);
        return ae_fail_memory(error, "Medusa's state", sizeof *d);
    }
    *d = (medusa){.base.ops = &ops, .head = head, .target = target, .ops = net->backend->ops, .backend = net->backend,
                  .n_slots = n_slots, .width = net->head->hparams.n_target_embd};
    d->n_seen = ae_alloc(n_slots, sizeof *d->n_seen);
    d->fresh = ae_alloc(n_slots, sizeof *d->fresh);
    const size_t n_lists = (size_t)n_slots * n_heads(d);
    d->rows = ae_alloc(n_lists, sizeof *d->rows);
    d->proposals = ae_alloc(n_lists, sizeof *d->proposals);
    d->newest = d->ops->alloc(d->backend, feature_bytes(d));
    if (!d->n_seen || !d->fresh || !d->rows || !d->proposals || !d->newest) {
        const size_t bytes = feature_bytes(d);
        medusa_destroy(&d->base);
        return ae_fail_memory(error, "Medusa's features", bytes);
    }
    d->wanted = d->newest + (size_t)n_slots * d->width;
    *out = &d->base;
    return AERIE_OK;
}

/* masked.c - drafts of a model by itself: it fills a block of masks after the text (Nemotron-Labs-Diffusion's linear
 * self-speculation).
 *
 * One pass of the target over the newest token and masks, which see each other and the text in the KV cache; an adapter may
 * join for it. The row of a mask predicts the token at its own position, each by itself: nodes of a depth have the same
 * children. Proposals are ranked under the target's noise, as chains or trees, and the target verifies them causally, without
 * the adapter; so nothing but time depends on this file.
 *
 * Owns the lists of rows and pools of nodes. Invariant: the rows of its passes are tentative, and none is kept.
 * Source: arXiv 2607.05722, section on linear self-speculation.
 */
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "draft/head/grow.h"
#include "engine/engine.h"

#define MASKS_MAX 31 /* together with the newest token a block of 32, the length that such models are trained with */

typedef struct masked_slot {
    ae_tree rows;   /* the newest token, then masks */
    uint32_t first; /* the pass's row of the first of them */
    ae_growth grow; /* request NULL: no draft */
} masked_slot;

typedef struct masked_drafter {
    ae_drafter base;
    ae_engine *engine; /* lent */
    uint32_t n_slots;
    int32_t mask;
    uint8_t *lacks;    /* [n_layers] zeros */
    ae_pass_mode mode;
    masked_slot *slots; /* [n_slots] */
    ae_grown *pool;     /* [n_slots][AE_GROW_POOL] */
} masked_drafter;

static void masked_destroy(ae_drafter *drafter)
{
    masked_drafter *d = (masked_drafter *)drafter;
    ae_free(d->lacks);
    ae_free(d->slots);
    ae_free(d->pool);
    ae_free(d);
}

static uint32_t masked_begin(ae_drafter *drafter, const ae_draft_begin *begin)
{
    (void)drafter; /* it has no state per sequence */
    return begin->n_shared;
}

/* Lists the rows of a request's draft. *n_pages: pages that earlier requests of the pass take; this request's are added.
 * Returns false if there is no room. */
static bool list_rows(masked_drafter *d, const ae_draft_request *r, uint32_t n_masks, uint32_t *n_pages)
{
    masked_slot *s = &d->slots[r->slot];
    const ae_kv *kv = ae_engine_kv(d->engine);
    s->rows.n = 0;
    ae_growth_begin(&s->grow, NULL);
    if (!r->max_depth || !r->max_nodes || r->tree->n || !n_masks) return false;
    ae_tree_add(&s->rows, -1, r->tokens[r->n_tokens - 1], 1.0f);
    for (uint32_t i = 0; i < n_masks && i < r->max_depth; i++) ae_tree_add(&s->rows, (int32_t)i, d->mask, 1.0f);
    const uint32_t missing = ae_kv_n_missing(kv, r->slot, s->rows.n);
    if (*n_pages + missing > ae_kv_n_available(kv)) return false;
    *n_pages += missing;
    ae_growth_begin(&s->grow, r);
    return true;
}

/* Runs the blocks of all requests that draft. *n_run: how many do. */
static aerie_status run_blocks(masked_drafter *d, const ae_draft_request *requests, uint32_t n, uint32_t *n_run,
                               aerie_error *error)
{
    const ae_engine_options *o = ae_engine_options_get(d->engine);
    const uint32_t most = ae_engine_max_tree(d->engine), share = o->n_outputs / n, room = o->n_batch / n;
    uint32_t n_masks = most ? most - 1 : 0, n_pages = 0;
    n_masks = n_masks < MASKS_MAX ? n_masks : MASKS_MAX;
    n_masks = n_masks < share ? n_masks : share;
    if (n_masks + 1 > room) n_masks = room ? room - 1 : 0;
    *n_run = 0;
    ae_engine_rows_clear(d->engine);
    for (uint32_t i = 0; i < n; i++) {
        masked_slot *s = &d->slots[requests[i].slot];
        if (!list_rows(d, &requests[i], n_masks, &n_pages)) continue;
        AE_TRY(ae_engine_add_tree_from(d->engine, requests[i].slot, &s->rows, 1, &s->first, error));
        ae_engine_join_rows(d->engine, s->first, s->rows.n);
        ++*n_run;
    }
    if (!*n_run) return AERIE_OK;
    ae_engine_set_mode(d->engine, &d->mode);
    AE_TRY(ae_engine_pass(d->engine, error));
    for (uint32_t i = 0; i < n; i++)
        if (d->slots[requests[i].slot].grow.request &&
            ae_engine_commit(d->engine, requests[i].slot, 0, NULL, 0) != AERIE_OK)
            return ae_fail(error, AERIE_ERROR_INTERNAL, "the draft of sequence %u could not be dropped; please report",
                           requests[i].slot);
    return AERIE_OK;
}

/* Grows the draft of a request from the outputs of its masks. */
static aerie_status grow(masked_drafter *d, const ae_draft_request *r, aerie_error *error)
{
    masked_slot *s = &d->slots[r->slot];
    const uint32_t n = s->rows.n - 1;
    ae_engine_rank ranks[MASKS_MAX] = {0};
    ae_proposal best[MASKS_MAX];
    for (uint32_t i = 0; i < n; i++)
        ranks[i] = (ae_engine_rank){r->sampler, s->first + 1 + i, ae_growth_ask(&s->grow, -1, 0).k, r->n_tokens + i};
    AE_TRY(ae_engine_propose(d->engine, ranks, n, best, error));
    ae_growth_add(&s->grow, -1, &best[0]);
    for (uint32_t depth = 1; depth < n; depth++) {
        ae_growth_choose(&s->grow, AE_DHEAD_LEVEL_MAX);
        for (uint32_t i = 0; i < s->grow.n_frontier; i++) ae_growth_add(&s->grow, (int32_t)s->grow.frontier[i], &best[depth]);
        if (!s->grow.n_frontier) break;
    }
    ae_growth_give(&s->grow);
    return AERIE_OK;
}

static aerie_status propose(masked_drafter *d, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    const double start = ae_time_now();
    uint32_t n_run, n_levels = 0;
    AE_TRY(run_blocks(d, requests, n, &n_run, error));
    if (!n_run) return AERIE_OK;
    const double ran = ae_time_now();
    for (uint32_t i = 0; i < n; i++) {
        const masked_slot *s = &d->slots[requests[i].slot];
        if (!s->grow.request) continue;
        AE_TRY(grow(d, &requests[i], error));
        if (s->rows.n - 1 > n_levels) n_levels = s->rows.n - 1;
    }
    /* as in block.c: the pass is the cost of the first level, and every level adds the same small part */
    const double whole = ae_time_now() - start, rest = ae_time_now() - ran;
    ae_draft_cost *cost = &d->base.cost;
    *cost = (ae_draft_cost){.n_levels = n_levels < 2 ? 2 : n_levels};
    cost->other_seconds = rest * (cost->n_levels - 1) / cost->n_levels;
    cost->first_seconds = whole - cost->other_seconds;
    return AERIE_OK;
}

static aerie_status masked_propose(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    masked_drafter *d = (masked_drafter *)drafter;
    drafter->cost = (ae_draft_cost){0};
    if (n > d->n_slots)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%u drafts are asked of a drafter for %u slots", n, d->n_slots);
    const aerie_status status = n ? propose(d, requests, n, error) : AERIE_OK;
    ae_engine_rows_clear(d->engine); /* leave no rows for the target's pass */
    return status;
}

aerie_status ae_draft_masked_create(ae_drafter **out, ae_engine *target, const ae_adapter *adapter, uint32_t n_slots,
                                    aerie_error *error)
{
    static const ae_drafter_ops ops = {.name = "nld", .begin = masked_begin, .propose = masked_propose,
                                       .destroy = masked_destroy};
    const ae_hparams *h = &ae_engine_net(target)->model->hparams;
    const size_t pool = (size_t)n_slots * AE_GROW_POOL;
    *out = NULL;
    masked_drafter *d = ae_alloc(1, sizeof *d);
    if (!d) return ae_fail_memory(error, "the drafting model's state", sizeof *d);
    *d = (masked_drafter){.base.ops = &ops, .engine = target, .n_slots = n_slots, .mask = h->mask_token,
                          .lacks = ae_alloc(h->n_layers, 1), .slots = ae_alloc(n_slots, sizeof *d->slots),
                          .pool = ae_alloc(pool, sizeof *d->pool)};
    if (!d->lacks || !d->slots || !d->pool) {
        masked_destroy(&d->base);
        return ae_fail_memory(error, "the drafting model's state", pool * sizeof *d->pool);
    }
    for (uint32_t i = 0; i < n_slots; i++) d->slots[i].grow.pool = d->pool + (size_t)i * AE_GROW_POOL;
    d->mode = (ae_pass_mode){h->experts.n ? h->experts.n_used : 0, d->lacks, adapter};
    *out = &d->base;
    return AERIE_OK;
}

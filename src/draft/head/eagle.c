/* eagle.c - a head that drafts from the target's hidden rows: EAGLE-1/2, EAGLE-3, 3.1, P-EAGLE, MTP.
 *
 * Owns the head's engine and, for each slot, the features of the newest positions that the head has not run yet. Every pass of
 * the target brings features (observe). They are run as true rows in one batch when a draft is wanted, or when there is no room
 * for more. The newest always waits: row P needs the token at P + 1, and its output begins the draft.
 *
 * Invariant: true rows of the head + waiting features = positions of the target's cache. If a slot began without the features
 * of its cached prefix, those positions count as run. While no drafts are wanted a slot is cold: it keeps only its position,
 * and starts there when drafts are wanted again. Drafted rows are dropped before propose returns.
 *
 * A node's row is run when its children are wanted (grow.h). The rows of a level of all slots run in one batch. P-EAGLE has all
 * levels of a draft from the pass of the true rows, by mask rows after them.
 */
#include "base/mem.h"
#include "base/os.h"
#include "engine/engine.h"
#include "draft/head/grow.h"

#define FEW_WAITING 2        /* with at most this many waiting rows, a first draft costs no more than others */

typedef struct head_slot {
    float *waiting;       /* (device) [n_room][width] */
    uint32_t n_waiting;
    bool cold;
    uint32_t position;    /* position of the next row, while the slot is cold */
    bool has_drafted;     /* the slot has drafted since it began or was last cold, so the waiting rows come from the last
                           * passes */
    /* the current draft */
    ae_growth grow;
    uint32_t out[AE_DHEAD_LEVEL_MAX]; /* outputs of the rows on the frontier */
    uint32_t n_rows;      /* drafted rows so far */
    uint32_t n_masks;     /* P-EAGLE: rows after the newest one, in the same pass */
} head_slot;

typedef struct head_drafter {
    ae_drafter base;
    ae_dhead_engine *head;
    ae_engine *target;
    const ae_backend_ops *ops;
    ae_backend *backend;
    uint32_t n_slots, n_room, width; /* width: floats in one position's features */
    head_slot *slots;  /* [n_slots] */
    float *waiting;    /* device memory of all slots */
    ae_grown *pools;   /* [n_slots][AE_GROW_POOL] */
    ae_propose_row *rows; /* [n_slots * AE_DHEAD_LEVEL_MAX] rows of a level whose children are wanted, ordered by slot */
    ae_proposal *proposals; /* as many */
    uint32_t n_asked;
    aerie_error fault; /* an error of a pass outside propose; the next draft returns it */
} head_drafter;

static aerie_status out_of_step(aerie_error *error)
{
    return ae_fail(error, AERIE_ERROR_INTERNAL, "the KV cache of the drafter head is out of step; please report");
}

static size_t waiting_bytes(const head_drafter *d)
{
    return (size_t)d->n_slots * d->n_room * d->width * sizeof(float);
}

static void head_destroy(ae_drafter *drafter)
{
    head_drafter *d = (head_drafter *)drafter;
    (void)d->ops->sync(ae_engine_stream(d->target), NULL);
    (void)d->ops->sync(ae_dhead_engine_stream(d->head), NULL);
    if (d->waiting) d->ops->free(d->backend, d->waiting, waiting_bytes(d));
    ae_free(d->slots);
    ae_free(d->pools);
    ae_free(d->rows);
    ae_free(d->proposals);
    ae_dhead_engine_free(d->head);
    ae_free(d);
}

/* ---- Catching up ------------------------------------------------------------------------------------- */

static float *waiting_at(const head_drafter *d, const head_slot *s, uint32_t i)
{
    return s->waiting + (size_t)i * d->width;
}

/* Drops the first n features, which have been run. */
static void drop_waiting(head_drafter *d, head_slot *s, uint32_t n)
{
    const uint32_t left = s->n_waiting - n;
    ae_stream *stream = ae_engine_stream(d->target);
    for (uint32_t done = 0; done < left;) { /* copy in pieces that do not overlap */
        const uint32_t step = left - done < n ? left - done : n;
        d->ops->copy(stream, &(ae_copy){.n = step, .dim = d->width, .x = waiting_at(d, s, n + done), .x_stride = d->width,
                                        .y = waiting_at(d, s, done), .y_stride = d->width});
        done += step;
    }
    s->n_waiting = left;
}

/* A sequence, as the loop passes it to begin, observe and propose. */
typedef struct head_text {
    const int32_t *tokens; /* [n] */
    size_t n;
    const ae_media *media; /* [n_media] */
    uint32_t n_media;
} head_text;

/* Runs all waiting rows but the newest `keep`, as far as the tokens after them are known. A failure is returned by the next
 * propose. */
static void flush(head_drafter *d, uint32_t slot, const head_text *text, uint32_t keep)
{
    head_slot *s = &d->slots[slot];
    const int32_t *tokens = text->tokens;
    const size_t n_tokens = text->n;
    while (s->n_waiting > keep && d->fault.status == AERIE_OK) {
        const uint32_t first = ae_dhead_n_true(d->head, slot);
        uint32_t n = s->n_waiting - keep;
        if (first + 1 >= n_tokens) return;
        if (n > n_tokens - first - 1) n = (uint32_t)(n_tokens - first - 1);
        ae_dhead_clear(d->head);
        if (n > ae_dhead_rows_left(d->head)) n = ae_dhead_rows_left(d->head);
        ae_dhead_set_media(d->head, slot, text->media, text->n_media);
        if (ae_dhead_add_true(d->head, slot, s->waiting, tokens + first + 1, n, false, NULL) != AERIE_OK)
            (void)out_of_step(&d->fault);
        else (void)ae_dhead_run_true(d->head, &d->fault);
        d->ops->wait(ae_engine_stream(d->target), ae_dhead_engine_stream(d->head)); /* the next pass replaces the features
                                                                                     * that it reads */
        drop_waiting(d, s, n);
    }
}

/* most positions that the target runs again so that the head knows the text before its first draft */
#define CATCH_UP_MAX 32

static uint32_t head_begin(ae_drafter *drafter, const ae_draft_begin *b)
{
    head_drafter *d = (head_drafter *)drafter;
    if (b->slot >= d->n_slots) return 0;
    if (b->idle) {
        head_slot *s = &d->slots[b->slot];
        s->cold = true;
        s->position = b->n_shared;
        s->n_waiting = 0;
        return b->n_shared;
    }
    /* the waiting rows of a donor that has ended cannot be run if it had rows that were not tokens: their contents are gone */
    const size_t n_known = (size_t)ae_dhead_n_true(d->head, b->donor) + d->slots[b->donor].n_waiting + 1;
    const bool lost = !b->n_media && ae_media_among(b->tokens, n_known < b->n_tokens ? n_known : b->n_tokens);
    const head_text donor = {b->tokens, b->n_tokens, b->media, b->n_media};
    if (b->n_same && !lost) flush(d, b->donor, &donor, 1);
    /* row n - 1 needs the token at n, which belongs to the new sequence, so the target runs position n - 1 again */
    const uint32_t n_most = b->n_shared ? b->n_shared - 1 : 0;
    uint32_t n = b->n_same < b->n_shared ? b->n_same : b->n_shared;
    if (n) n--;
    ae_dhead_share(d->head, b->slot, b->donor, &n);
    d->slots[b->slot].n_waiting = 0;
    d->slots[b->slot].cold = d->slots[b->slot].has_drafted = false;
    if (n_most - n <= CATCH_UP_MAX) return n;
    /* earlier rows were computed elsewhere, or the window has dropped them, so the head starts here */
    const uint32_t first = n_most - CATCH_UP_MAX;
    ae_dhead_restart(d->head, b->slot, first);
    return first;
}

/* Makes the slot cold: neither these rows nor earlier ones are kept. */
static void grow_cold(const head_drafter *d, const ae_draft_seen *seen)
{
    head_slot *s = &d->slots[seen->slot];
    if (!s->cold) s->position = ae_dhead_n_true(d->head, seen->slot) + s->n_waiting;
    s->cold = true;
    s->n_waiting = 0;
    s->position += seen->n;
}

static void head_observe(ae_drafter *drafter, const ae_draft_seen *seen)
{
    head_drafter *d = (head_drafter *)drafter;
    head_slot *s = &d->slots[seen->slot];
    if (seen->idle) {
        grow_cold(d, seen);
        return;
    }
    const head_text text = {seen->tokens, seen->n_tokens, seen->media, seen->n_media};
    if (s->cold) {
        ae_dhead_restart(d->head, seen->slot, s->position);
        s->cold = s->has_drafted = false;
    }
    for (uint32_t done = 0; done < seen->n && d->fault.status == AERIE_OK;) {
        if (s->n_waiting == d->n_room) flush(d, seen->slot, &text, 1);
        uint32_t n = seen->n - done;
        if (n > d->n_room - s->n_waiting) n = d->n_room - s->n_waiting;
        d->ops->copy(ae_engine_stream(d->target),
                     &(ae_copy){.n = n, .dim = d->width, .x = ae_engine_features(d->target, 0), .x_stride = d->width,
                                .host_rows = seen->rows + done, .y = waiting_at(d, s, s->n_waiting), .y_stride = d->width});
        s->n_waiting += n;
        done += n;
    }
    /* A long chunk of a prompt runs now, while its features are in the CPU's caches. So do rows that are not tokens, while
     * their contents exist. Single tokens wait for the next draft. */
    const size_t first = ae_dhead_n_true(d->head, seen->slot) + (size_t)1, end = first + s->n_waiting;
    const size_t n_next = first < seen->n_tokens ? (end < seen->n_tokens ? end : seen->n_tokens) - first : 0;
    const bool now = ae_media_among(seen->tokens + first, n_next);
    if (now || s->n_waiting > AERIE_MAX_DRAFT + 1) flush(d, seen->slot, &text, 1);
}

/* ---- Growing -------------------------------------------------------------------------------------------- */

/* P-EAGLE: returns how many mask rows follow the newest row of a draft. */
static uint32_t n_masks_of(const head_drafter *d, const ae_draft_request *r)
{
    const uint32_t n = ae_dhead_engine_net(d->head)->head->hparams.n_parallel;
    return r->max_depth < n ? (n ? r->max_depth - 1 : 0) : n ? n - 1 : 0;
}

/* Adds the proposals of mask rows. They do not depend on drafted tokens, so every node of a level gets the same children. */
static void add_levels(head_slot *s, const ae_proposal *proposals)
{
    for (uint32_t j = 0; j < s->n_masks; j++) {
        ae_growth_choose(&s->grow, AE_DHEAD_LEVEL_MAX);
        for (uint32_t f = 0; f < s->grow.n_frontier; f++)
            ae_growth_add(&s->grow, (int32_t)s->grow.frontier[f], &proposals[j]);
    }
}

/* Runs the true rows of all slots in one batch, as far as they fit; the newest row of each slot begins its draft. */
static aerie_status catch_up(head_drafter *d, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    for (uint32_t begin = 0; begin < n;) {
        uint32_t end = begin;
        ae_dhead_clear(d->head);
        for (; end < n; end++) {
            const ae_draft_request *r = &requests[end];
            head_slot *s = &d->slots[r->slot];
            const uint32_t first = ae_dhead_n_true(d->head, r->slot);
            ae_growth_begin(&s->grow, NULL);
            if (!s->n_waiting || first + s->n_waiting + 1 != r->n_tokens) continue; /* there is no row to begin with */
            s->n_masks = n_masks_of(d, r);
            if (s->n_waiting + s->n_masks > ae_dhead_rows_left(d->head)) break;
            const int32_t *next = r->tokens + first + 1;
            ae_dhead_set_media(d->head, r->slot, r->media, r->n_media);
            if (ae_dhead_add_true(d->head, r->slot, s->waiting, next, s->n_waiting, true, &s->out[0]) != AERIE_OK ||
                ae_dhead_add_masks(d->head, r->slot, s->n_masks) != AERIE_OK)
                return out_of_step(error);
            ae_growth_begin(&s->grow, r);
        }
        if (end == begin) return out_of_step(error);
        AE_TRY(ae_dhead_run_true(d->head, error));
        d->n_asked = 0;
        for (uint32_t i = begin; i < end; i++) {
            head_slot *s = &d->slots[requests[i].slot];
            if (!s->grow.request) continue;
            s->n_waiting = 0;
            s->n_rows = 0;
            for (uint32_t j = 0; j <= s->n_masks; j++) {
                d->rows[d->n_asked] = ae_growth_ask(&s->grow, -1, s->out[0] + j);
                d->rows[d->n_asked++].position += j;
            }
        }
        AE_TRY(ae_dhead_propose(d->head, d->rows, d->n_asked, d->proposals, error));
        for (uint32_t at = 0; begin < end; begin++) {
            head_slot *s = &d->slots[requests[begin].slot];
            if (!s->grow.request) continue;
            ae_growth_add(&s->grow, -1, &d->proposals[at++]);
            add_levels(s, &d->proposals[at]);
            at += s->n_masks;
        }
    }
    return AERIE_OK;
}

/* Runs the next level of all slots in one batch. *any: whether a draft continued. */
static aerie_status run_level(head_drafter *d, const ae_draft_request *requests, uint32_t n, bool *any, aerie_error *error)
{
    *any = false;
    ae_dhead_clear(d->head);
    for (uint32_t i = 0; i < n; i++) {
        head_slot *s = &d->slots[requests[i].slot];
        if (!s->grow.request) continue;
        ae_growth_choose(&s->grow, AERIE_MAX_DRAFT - s->n_rows);
        for (uint32_t f = 0; f < s->grow.n_frontier; f++) {
            ae_grown *g = &s->grow.pool[s->grow.frontier[f]];
            const int32_t parent = g->parent < 0 ? -1 : s->grow.pool[g->parent].row;
            const uint32_t row = ae_dhead_add_drafted(d->head, requests[i].slot, parent, g->token, &s->out[f]);
            if (row == AE_DHEAD_NO_ROW) return out_of_step(error);
            g->row = (int32_t)row;
            s->n_rows++;
            *any = true;
        }
    }
    if (!*any) return AERIE_OK;
    ae_dhead_run_drafted(d->head);
    d->n_asked = 0;
    for (uint32_t i = 0; i < n; i++) {
        const head_slot *s = &d->slots[requests[i].slot];
        for (uint32_t f = 0; s->grow.request && f < s->grow.n_frontier; f++)
            d->rows[d->n_asked++] = ae_growth_ask(&s->grow, (int32_t)s->grow.frontier[f], s->out[f]);
    }
    AE_TRY(ae_dhead_propose(d->head, d->rows, d->n_asked, d->proposals, error));
    for (uint32_t i = 0, at = 0; i < n; i++) {
        head_slot *s = &d->slots[requests[i].slot];
        for (uint32_t f = 0; s->grow.request && f < s->grow.n_frontier; f++)
            ae_growth_add(&s->grow, (int32_t)s->grow.frontier[f], &d->proposals[at++]);
    }
    return AERIE_OK;
}

static aerie_status draft(head_drafter *d, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    const double began = ae_time_now();
    bool late = false;
    for (uint32_t i = 0; i < n; i++) {
        const ae_draft_request *r = &requests[i];
        if (r->slot >= d->n_slots)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "slot %u: the drafter head has %u", r->slot, d->n_slots);
        head_slot *s = &d->slots[r->slot];
        if (!s->has_drafted && s->n_waiting > FEW_WAITING) {
            const head_text text = {r->tokens, r->n_tokens, r->media, r->n_media};
            flush(d, r->slot, &text, 1);
            late = true;
        }
        s->has_drafted = true;
    }
    const aerie_error fault = d->fault;
    if (fault.status != AERIE_OK) return ae_fail(error, fault.status, "%s", fault.text);
    if (late) AE_TRY(ae_dhead_sync(d->head, error)); /* its time is counted separately */
    const double start = ae_time_now();
    AE_TRY(catch_up(d, requests, n, error));
    const double caught_up = ae_time_now();
    ae_draft_cost *cost = &d->base.cost;
    *cost = (ae_draft_cost){.start_seconds = late ? start - began : 0, .first_seconds = caught_up - start};
    const uint32_t n_parallel = ae_dhead_engine_net(d->head)->head->hparams.n_parallel;
    for (bool any = !n_parallel; any; cost->n_levels++) AE_TRY(run_level(d, requests, n, &any, error));
    cost->other_seconds = ae_time_now() - caught_up;
    if (n_parallel) cost->n_levels = n_parallel; /* all in the first pass */
    for (uint32_t i = 0; i < n; i++) {
        head_slot *s = &d->slots[requests[i].slot];
        if (s->grow.request) ae_growth_give(&s->grow);
        ae_dhead_drop_drafted(d->head, requests[i].slot);
    }
    return AERIE_OK;
}

static aerie_status head_propose(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    head_drafter *d = (head_drafter *)drafter;
    const aerie_status status = draft(d, requests, n, error);
    d->fault.status = AERIE_OK;
    /* the sequences end here; the next ones start from nothing */
    for (uint32_t i = 0; status != AERIE_OK && i < d->n_slots; i++) {
        ae_dhead_restart(d->head, i, 0);
        d->slots[i].n_waiting = 0;
    }
    return status;
}

/* ---- Life ------------------------------------------------------------------------------------------------- */

#define OPS(title) \
    {.name = title, .begin = head_begin, .observe = head_observe, .propose = head_propose, .destroy = head_destroy}
static const ae_drafter_ops kinds[] = {
    [AE_DHEAD_EAGLE] = OPS("draft-eagle"), [AE_DHEAD_EAGLE3] = OPS("draft-eagle3"),
    [AE_DHEAD_MTP] = OPS("draft-mtp"), [AE_DHEAD_ASSISTANT] = OPS("draft-mtp"),
};

static aerie_status create(ae_drafter **out, ae_dhead_engine *head, ae_engine *target, uint32_t n_slots, aerie_error *error)
{
    const ae_dhead_net *net = ae_dhead_engine_net(head);
    const ae_dhead_kind kind = net->head->hparams.kind;
    head_drafter *d = ae_alloc(1, sizeof *d);
    if (!d) {
        ae_dhead_engine_free(head);
        return ae_fail_memory(error, "a drafter head's state", sizeof *d);
    }
    *d = (head_drafter){.base.ops = &kinds[kind], .head = head, .target = target,
                        .ops = net->backend->ops, .backend = net->backend, .n_slots = n_slots,
                        .width = net->head->hparams.n_taps * net->head->hparams.n_target_embd};
    d->base.skips_media =
        !ae_dhead_kinds[kind].reads_target && net->head->hparams.layer.n_embd != net->head->hparams.n_target_embd;
    ae_dhead_clear(head); /* all waiting rows must fit into one pass of the head */
    d->n_room = ae_dhead_rows_left(head) - net->head->hparams.n_parallel;
    if (d->n_room > AE_DHEAD_BATCH) d->n_room = AE_DHEAD_BATCH;
    d->slots = ae_alloc(n_slots, sizeof *d->slots);
    d->pools = ae_alloc((size_t)n_slots * AE_GROW_POOL, sizeof *d->pools);
    d->rows = ae_alloc((size_t)n_slots * AE_DHEAD_LEVEL_MAX, sizeof *d->rows);
    d->proposals = ae_alloc((size_t)n_slots * AE_DHEAD_LEVEL_MAX, sizeof *d->proposals);
    d->waiting = d->ops->alloc(d->backend, waiting_bytes(d));
    if (!d->slots || !d->pools || !d->rows || !d->proposals || !d->waiting) {
        const size_t bytes = waiting_bytes(d);
        head_destroy(&d->base);
        return ae_fail_memory(error, "a drafter head's features", bytes);
    }
    for (uint32_t i = 0; i < n_slots; i++) {
        d->slots[i].waiting = d->waiting + (size_t)i * d->n_room * d->width;
        d->slots[i].grow.pool = d->pools + (size_t)i * AE_GROW_POOL;
    }
    *out = &d->base;
    return AERIE_OK;
}

aerie_status ae_draft_eagle_create(ae_drafter **out, ae_dhead_engine *head, ae_engine *target, uint32_t n_slots,
                                  aerie_error *error)
{
    static aerie_status (*const creates[])(ae_drafter **, ae_dhead_engine *, ae_engine *, uint32_t, aerie_error *) = {
        [AE_DHEAD_EAGLE] = create, [AE_DHEAD_EAGLE3] = create, [AE_DHEAD_MTP] = create, [AE_DHEAD_ASSISTANT] = create,
        [AE_DHEAD_MEDUSA] = ae_draft_medusa_create, [AE_DHEAD_DFLASH] = ae_draft_block_create,
        [AE_DHEAD_DSPARK] = ae_draft_block_create, [AE_DHEAD_DFLASH2] = ae_draft_block_create,
        [AE_DHEAD_DFLY] = ae_draft_block_create, [AE_DHEAD_LILICORR] = ae_draft_block_create,
    };
    *out = NULL;
    return creates[ae_dhead_engine_net(head)->head->hparams.kind](out, head, target, n_slots, error);
}

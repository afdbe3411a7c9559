/* block.c - the drafter of block heads: DFlash, DSpark, DFlash2, DFly, LiLiCorr (head.h).
 *
 * Owns the head's engine and, per slot, the features of the newest positions that are not yet context rows. Every pass of the
 * target brings features (observe); they become context rows in one batch when a draft is wanted, or when the room for them is
 * full. A draft is one pass of a block for all slots, always of the trained length, since the masks see each other; only the
 * wanted rows go through the output. Each kind turns the rows' predictions into a tree:
 *
 *   DFlash   a row says how likely tokens are at its position, whatever stands before: all nodes of a level have equal children
 *   DSpark   each node adds a bias to its row, and may know how likely its child is accepted: a level is one more small product
 *   DFlash2  of the row's best tokens each gets a score that also depends on the token before: children of a node are these
 *            candidates of its row, ranked anew
 *
 *   DFly     each node's token corrects the row before the output: a level is one more product with the output matrix
 *   LiLiCorr of all rows the best tokens, whatever the noise, get scores given the token before, all in one pass (lattice.c)
 *
 * Trees grow as other heads' do (grow.h). The target's noise ranks all proposals.
 *
 * Invariant: context rows + waiting features = positions of the target's cache, but for gaps. While nobody wants drafts a slot
 * is cold: it keeps the rows that it has and takes no more; when drafts are wanted again, it goes on after a gap. Blocks never
 * outlive propose.
 */
#include <float.h>

#include "base/math/fmath.h"
#include "base/mem.h"
#include "base/os.h"
#include "engine/engine.h"
#include "draft/head/grow.h"

#define CATCH_UP_MAX 32   /* most positions that the target runs again so that the head gets their context rows */
#define FEW_WAITING 2     /* with at most this many waiting rows, a first draft costs no more than others */
#define LINKED_MAX 8      /* most nodes of a level that get links of their own */

typedef struct block_slot {
    float *waiting;       /* (device) [n_room][width] */
    uint32_t n_waiting;
    bool cold;
    uint32_t position;    /* position of the next row, while the slot is cold */
    bool has_drafted;
    ae_growth grow;
    uint32_t out, n_out;  /* outputs of its block */
    uint32_t asked, told; /* DFlash2: the first of its rows' proposals; its newest token among those of the pairs */
} block_slot;

typedef struct block_drafter {
    ae_drafter base;
    const struct block_kind *kind;
    ae_dhead_engine *head;
    ae_engine *target;
    const ae_backend_ops *ops;
    ae_backend *backend;
    uint32_t n_slots, n_room, width; /* width: floats of one position's features */
    block_slot *slots;  /* [n_slots] */
    float *waiting;     /* device memory, shared by all slots */
    ae_grown *pools;    /* [n_slots][AE_GROW_POOL] */
    uint32_t n_ask;     /* rows of a slot for which proposals are requested at once */
    ae_propose_row *rows;   /* [n_slots * n_ask] */
    ae_proposal *proposals; /* as many */
    ae_dhead_link *links;   /* [n_slots * AE_DHEAD_LEVEL_MAX] */
    float *conf;            /* as many */
    int32_t *tokens;        /* [n_slots * (1 + n_block * AE_PROPOSE_MAX)] DFlash2: newest tokens and candidates */
    ae_draw greedy;         /* LiLiCorr: its candidates are chosen by logits alone */
    uint32_t *list;         /* [n_slots] */
    aerie_error fault; /* an error of a pass outside propose; the next draft returns it */
} block_drafter;

/* What a kind of head does to turn a block's outputs into drafts. */
typedef struct block_kind {
    ae_drafter_ops ops;
    /* Grows the drafts of all requests that have outputs. *n_levels: levels of the deepest draft. */
    aerie_status (*grow)(block_drafter *d, const ae_draft_request *requests, uint32_t n, uint32_t *n_levels,
                         aerie_error *error);
} block_kind;

static aerie_status out_of_step(aerie_error *error)
{
    return ae_fail(error, AERIE_ERROR_INTERNAL, "the KV cache of the block drafter is out of step; please report");
}

static size_t waiting_bytes(const block_drafter *d)
{
    return (size_t)d->n_slots * d->n_room * d->width * sizeof(float);
}

static void block_destroy(ae_drafter *drafter)
{
    block_drafter *d = (block_drafter *)drafter;
    (void)d->ops->sync(ae_engine_stream(d->target), NULL);
    (void)d->ops->sync(ae_dhead_engine_stream(d->head), NULL);
    if (d->waiting) d->ops->free(d->backend, d->waiting, waiting_bytes(d));
    ae_free(d->slots);
    ae_free(d->pools);
    ae_free(d->rows);
    ae_free(d->proposals);
    ae_free(d->links);
    ae_free(d->conf);
    ae_free(d->tokens);
    ae_free(d->list);
    ae_dhead_engine_free(d->head);
    ae_free(d);
}

/* ---- Context ------------------------------------------------------------------------------------------- */

/* Makes context rows of all waiting features of these slots, in as few passes as possible. */
static aerie_status flush(block_drafter *d, const uint32_t *slots, uint32_t n, aerie_error *error)
{
    for (uint32_t begin = 0; begin < n;) {
        uint32_t end = begin;
        ae_dhead_clear(d->head);
        for (; end < n; end++) {
            block_slot *s = &d->slots[slots[end]];
            if (!s->n_waiting) continue;
            if (s->n_waiting > ae_dhead_rows_left(d->head)) break;
            if (ae_dhead_add_true(d->head, slots[end], s->waiting, NULL, s->n_waiting, false, NULL) != AERIE_OK)
                return out_of_step(error);
            s->n_waiting = 0;
        }
        if (end == begin) return out_of_step(error);
        AE_TRY(ae_dhead_run_true(d->head, error));
        begin = end;
    }
    d->ops->wait(ae_engine_stream(d->target), ae_dhead_engine_stream(d->head)); /* the next pass replaces the features that
                                                                                 * it reads */
    return AERIE_OK;
}

static void flush_one(block_drafter *d, uint32_t slot)
{
    if (d->fault.status == AERIE_OK) (void)flush(d, &slot, 1, &d->fault);
}

static uint32_t block_begin(ae_drafter *drafter, const ae_draft_begin *b)
{
    block_drafter *d = (block_drafter *)drafter;
    if (b->slot >= d->n_slots) return 0;
    block_slot *s = &d->slots[b->slot];
    if (b->n_same && !b->idle) flush_one(d, b->donor);
    uint32_t n = b->n_same < b->n_shared ? b->n_same : b->n_shared;
    ae_dhead_share(d->head, b->slot, b->donor, &n);
    s->n_waiting = 0;
    s->has_drafted = false;
    s->cold = b->idle;
    s->position = b->n_shared;
    if (b->idle) return b->n_shared;
    if (b->n_shared - n <= CATCH_UP_MAX) return n;
    /* the features of the rows in between are not available: the context has a gap there */
    ae_dhead_skip(d->head, b->slot, b->n_shared - CATCH_UP_MAX);
    return b->n_shared - CATCH_UP_MAX;
}

static void grow_cold(const block_drafter *d, const ae_draft_seen *seen)
{
    block_slot *s = &d->slots[seen->slot];
    if (!s->cold) s->position = ae_dhead_n_true(d->head, seen->slot) + s->n_waiting;
    s->cold = true;
    s->n_waiting = 0;
    s->position += seen->n;
}

static void block_observe(ae_drafter *drafter, const ae_draft_seen *seen)
{
    block_drafter *d = (block_drafter *)drafter;
    block_slot *s = &d->slots[seen->slot];
    if (seen->idle) {
        grow_cold(d, seen);
        return;
    }
    if (s->cold) {
        if (s->position > ae_dhead_n_true(d->head, seen->slot)) ae_dhead_skip(d->head, seen->slot, s->position);
        s->cold = s->has_drafted = false;
    }
    for (uint32_t done = 0; done < seen->n && d->fault.status == AERIE_OK;) {
        if (s->n_waiting == d->n_room) flush_one(d, seen->slot);
        uint32_t n = seen->n - done;
        if (n > d->n_room - s->n_waiting) n = d->n_room - s->n_waiting;
        d->ops->copy(ae_engine_stream(d->target),
                     &(ae_copy){.n = n, .dim = d->width, .x = ae_engine_features(d->target, 0), .x_stride = d->width,
                                .host_rows = seen->rows + done, .y = s->waiting + (size_t)s->n_waiting * d->width,
                                .y_stride = d->width});
        s->n_waiting += n;
        done += n;
    }
    /* a long chunk of prompt runs now, while its features are warm; single tokens wait for the next draft */
    if (s->n_waiting > AERIE_MAX_DRAFT + 1) flush_one(d, seen->slot);
}

/* ---- Growing ------------------------------------------------------------------------------------------- */

static bool drafts(const block_drafter *d, const ae_draft_request *r)
{
    return d->slots[r->slot].grow.request != NULL;
}

/* DFlash: uses the rows' own proposals, the same for every node of a level. */
static aerie_status grow_marginal(block_drafter *d, const ae_draft_request *requests, uint32_t n, uint32_t *n_levels,
                                  aerie_error *error)
{
    uint32_t n_asked = 0, at = 0;
    for (uint32_t i = 0; i < n; i++) {
        const block_slot *s = &d->slots[requests[i].slot];
        for (uint32_t j = 0; drafts(d, &requests[i]) && j < s->n_out; j++) {
            d->rows[n_asked] = ae_growth_ask(&s->grow, -1, s->out + j);
            d->rows[n_asked++].position += j;
        }
    }
    AE_TRY(ae_dhead_propose(d->head, d->rows, n_asked, d->proposals, error));
    for (uint32_t i = 0; i < n; i++) {
        block_slot *s = &d->slots[requests[i].slot];
        if (!drafts(d, &requests[i])) continue;
        if (s->n_out > *n_levels) *n_levels = s->n_out;
        ae_growth_add(&s->grow, -1, &d->proposals[at]);
        for (uint32_t j = 1; j < s->n_out; j++) {
            ae_growth_choose(&s->grow, AE_DHEAD_LEVEL_MAX);
            for (uint32_t f = 0; f < s->grow.n_frontier; f++)
                ae_growth_add(&s->grow, (int32_t)s->grow.frontier[f], &d->proposals[at + j]);
        }
        at += s->n_out;
    }
    return AERIE_OK;
}

/* Sets the best child's probability to the head's own estimate, if that is between 0 and 1. The other children share the rest
 * in the same proportions as before, but none gets more than the best. */
static void set_confidence(ae_proposal *p, float conf)
{
    const float left = 1.0f - p->p[0], factor = left > 1e-6f ? (1.0f - conf) / left : 0.0f;
    if (!(conf > 0.0f && conf < 1.0f)) return; /* NaN too */
    for (uint32_t i = 1; i < p->n; i++) p->p[i] = p->p[i] * factor < conf ? p->p[i] * factor : conf;
    p->p[0] = conf;
}

/* Adds the children of the nodes that continue, in all slots. depth: of these nodes; 0: the root. *any: whether there were such
 * nodes. */
static aerie_status link_level(block_drafter *d, const ae_draft_request *requests, uint32_t n, uint32_t depth, bool *any,
                               aerie_error *error)
{
    uint32_t n_links = 0, at = 0;
    for (uint32_t i = 0; i < n; i++) {
        block_slot *s = &d->slots[requests[i].slot];
        if (!drafts(d, &requests[i])) continue;
        if (depth) ae_growth_choose(&s->grow, LINKED_MAX);
        const uint32_t n_nodes = depth >= s->n_out ? 0 : depth ? s->grow.n_frontier : 1;
        for (uint32_t f = 0; f < n_nodes; f++) {
            const int32_t node = depth ? (int32_t)s->grow.frontier[f] : -1;
            const int32_t token = depth ? s->grow.pool[node].token : requests[i].tokens[requests[i].n_tokens - 1];
            d->rows[n_links] = ae_growth_ask(&s->grow, node, n_links);
            d->links[n_links++] = (ae_dhead_link){s->out + depth, token};
        }
        if (!n_nodes) s->grow.n_frontier = 0;
    }
    *any = n_links > 0;
    if (!n_links) return AERIE_OK;
    AE_TRY(ae_dhead_run_links(d->head, d->links, n_links, d->conf, error));
    AE_TRY(ae_dhead_propose(d->head, d->rows, n_links, d->proposals, error));
    const bool knows = ae_dhead_engine_net(d->head)->conf != NULL;
    for (uint32_t i = 0; i < n; i++) {
        block_slot *s = &d->slots[requests[i].slot];
        if (!drafts(d, &requests[i])) continue;
        for (uint32_t f = 0; f < (depth ? s->grow.n_frontier : 1); f++, at++) {
            if (knows && d->proposals[at].n) set_confidence(&d->proposals[at], d->conf[at]);
            ae_growth_add(&s->grow, depth ? (int32_t)s->grow.frontier[f] : -1, &d->proposals[at]);
        }
    }
    return AERIE_OK;
}

/* DSpark, DFly: grows level by level, since each level depends on the one before. */
static aerie_status grow_linked(block_drafter *d, const ae_draft_request *requests, uint32_t n, uint32_t *n_levels,
                                aerie_error *error)
{
    bool any = true;
    for (uint32_t depth = 0; any; depth++) {
        AE_TRY(link_level(d, requests, n, depth, &any, error));
        *n_levels = depth;
    }
    return AERIE_OK;
}

/* Requests the candidates of all rows, each row by itself: the tokens that `draw` ranks best. NULL: the target's sampler ranks
 * them. */
static aerie_status ask_candidates(block_drafter *d, const ae_draft_request *requests, uint32_t n, const ae_draw *draw,
                                   aerie_error *error)
{
    const uint32_t k = ae_dhead_engine_net(d->head)->head->hparams.n_candidates;
    uint32_t n_asked = 0;
    for (uint32_t i = 0; i < n; i++) {
        block_slot *s = &d->slots[requests[i].slot];
        s->asked = n_asked;
        for (uint32_t j = 0; drafts(d, &requests[i]) && j < s->n_out; j++) {
            d->rows[n_asked] = ae_growth_ask(&s->grow, -1, s->out + j);
            d->rows[n_asked].k = k;
            if (draw) d->rows[n_asked].draw = draw;
            d->rows[n_asked++].position += j;
        }
    }
    return ae_dhead_propose(d->head, d->rows, n_asked, d->proposals, error);
}

/* Lists the tokens of the pairs in d->tokens, *n_tokens in all: for each slot its newest token, then the candidates of its
 * first row, its second row and so on. */
static aerie_status find_candidates(block_drafter *d, const ae_draft_request *requests, uint32_t n, uint32_t *n_tokens,
                                    aerie_error *error)
{
    const uint32_t k = ae_dhead_engine_net(d->head)->head->hparams.n_candidates;
    AE_TRY(ask_candidates(d, requests, n, NULL, error));
    *n_tokens = 0;
    for (uint32_t i = 0; i < n; i++) {
        block_slot *s = &d->slots[requests[i].slot];
        if (!drafts(d, &requests[i])) continue;
        s->told = *n_tokens;
        d->tokens[(*n_tokens)++] = requests[i].tokens[requests[i].n_tokens - 1];
        for (uint32_t j = 0; j < s->n_out * k; j++) { /* a row with fewer candidates is filled with any token */
            const ae_proposal *p = &d->proposals[s->asked + j / k];
            d->tokens[(*n_tokens)++] = j % k < p->n ? p->id[j % k] : 0;
        }
    }
    return AERIE_OK;
}

/* Adds the children of a node: the candidates of its row, scored given the node's token (`before`: its index among the tokens
 * of the pairs). */
static void add_pairs(block_drafter *d, block_slot *s, int32_t node, uint32_t depth, const ae_dhead_pairs *pairs,
                      uint32_t before)
{
    const uint32_t k = ae_dhead_engine_net(d->head)->head->hparams.n_candidates;
    const ae_proposal *of = &d->proposals[s->asked + depth];
    const ae_propose_row ask = ae_growth_ask(&s->grow, node, 0);
    const double t = ask.draw->draft_temperature;
    const float scale = t > 1.0 ? (float)(1.0 / t) : 1.0f; /* the same scale as in the proposals, whose logarithms include the
                                                            * noise */
    float score[AE_PROPOSE_MAX], top = -FLT_MAX, total = 0;
    ae_proposal p = {0};
    for (uint32_t c = 0; c < of->n; c++) {
        const float pair = ae_dhead_pair_score(pairs, s->out + depth, before, s->told + 1 + depth * k + c);
        score[c] = (float)ae_log((double)(of->p[c] > FLT_MIN ? of->p[c] : FLT_MIN)) + scale * pair;
        if (!(score[c] >= -FLT_MAX && score[c] <= FLT_MAX)) score[c] = -FLT_MAX; /* broken weights give such scores */
        if (score[c] > top) top = score[c];
    }
    for (uint32_t c = 0; c < of->n; c++) total += ae_expf(score[c] - top);
    for (; p.n < ask.k && p.n < of->n; p.n++) {
        uint32_t best = 0;
        for (uint32_t c = 1; c < of->n; c++)
            if (score[c] > score[best]) best = c;
        if (score[best] == -INFINITY) break;
        p.id[p.n] = of->id[best];
        p.p[p.n] = ae_expf(score[best] - top) / total;
        score[best] = -INFINITY;
    }
    ae_growth_add(&s->grow, node, &p);
}

/* Returns the index of a node's token among the candidates of its row. */
static uint32_t candidate_of(const block_drafter *d, const block_slot *s, const ae_grown *node)
{
    const uint32_t k = ae_dhead_engine_net(d->head)->head->hparams.n_candidates, row = (uint32_t)node->depth - 1;
    const ae_proposal *of = &d->proposals[s->asked + row];
    uint32_t c = 0;
    while (c + 1 < of->n && of->id[c] != node->token) c++;
    return row * k + c;
}

/* DFlash2: grows level by level through the lattice of candidates. */
static aerie_status grow_pairs(block_drafter *d, const ae_draft_request *requests, uint32_t n, uint32_t *n_levels,
                               aerie_error *error)
{
    uint32_t n_tokens;
    ae_dhead_pairs pairs;
    AE_TRY(find_candidates(d, requests, n, &n_tokens, error));
    AE_TRY(ae_dhead_run_pairs(d->head, d->tokens, n_tokens, &pairs, error));
    for (uint32_t i = 0; i < n; i++) {
        block_slot *s = &d->slots[requests[i].slot];
        if (!drafts(d, &requests[i])) continue;
        if (s->n_out > *n_levels) *n_levels = s->n_out;
        add_pairs(d, s, -1, 0, &pairs, s->told);
        for (uint32_t j = 1; j < s->n_out; j++) {
            ae_growth_choose(&s->grow, AE_DHEAD_LEVEL_MAX);
            for (uint32_t f = 0; f < s->grow.n_frontier; f++) {
                const uint32_t node = s->grow.frontier[f];
                add_pairs(d, s, (int32_t)node, j, &pairs, s->told + 1 + candidate_of(d, s, &s->grow.pool[node]));
            }
        }
    }
    return AERIE_OK;
}

/* Adds the children of a node: the candidates of its row, ranked by their scores alone, as the target would draw from these.
 * Indices among the vectors of the pairs: before, the node's token; first, the first candidate of the sequence. */
static void add_scored(block_drafter *d, block_slot *s, int32_t node, uint32_t depth, const ae_dhead_pairs *pairs,
                       uint32_t before, uint32_t first)
{
    const uint32_t k = ae_dhead_engine_net(d->head)->head->hparams.n_candidates;
    const ae_proposal *of = &d->proposals[s->asked + depth];
    const ae_propose_row ask = ae_growth_ask(&s->grow, node, 0);
    float score[AE_PROPOSE_MAX];
    ae_proposal p = {0};
    for (uint32_t c = 0; c < of->n; c++) score[c] = ae_dhead_pair_score(pairs, 0, before, first + depth * k + c);
    p.n = ae_draw_propose(ask.draw, score, of->n, of->id, (size_t)ask.position, ask.k, p.id, p.p);
    ae_growth_add(&s->grow, node, &p);
}

/* LiLiCorr: grows the drafts of slots list [n_slots], whose outputs are consecutive. */
static aerie_status grow_scored(block_drafter *d, const uint32_t *list, uint32_t n_slots, uint32_t *n_levels,
                                aerie_error *error)
{
    const ae_dhead_hparams *h = &ae_dhead_engine_net(d->head)->head->hparams;
    const uint32_t n_nodes = ae_dhead_n_foreseen(h) * h->n_candidates;
    const block_slot *begin = &d->slots[list[0]];
    ae_dhead_pairs pairs;
    AE_TRY(ae_dhead_run_lattice(d->head, list, n_slots, begin->out, d->proposals + begin->asked, &pairs, error));
    for (uint32_t i = 0; i < n_slots; i++) {
        block_slot *s = &d->slots[list[i]];
        const uint32_t first = i * n_nodes;
        add_scored(d, s, -1, 0, &pairs, i, first);
        uint32_t j = 1;
        for (; j < s->n_out; j++) {
            ae_growth_choose(&s->grow, AE_DHEAD_LEVEL_MAX);
            if (!s->grow.n_frontier) break;
            for (uint32_t f = 0; f < s->grow.n_frontier; f++) {
                const uint32_t node = s->grow.frontier[f];
                const uint32_t before = n_slots + first + candidate_of(d, s, &s->grow.pool[node]);
                add_scored(d, s, (int32_t)node, j, &pairs, before, first);
            }
        }
        if (j > *n_levels) *n_levels = j;
    }
    return AERIE_OK;
}

static aerie_status grow_lattice(block_drafter *d, const ae_draft_request *requests, uint32_t n, uint32_t *n_levels,
                                 aerie_error *error)
{
    const uint32_t most = ae_dhead_lattice_most(d->head);
    uint32_t n_listed = 0;
    AE_TRY(ask_candidates(d, requests, n, &d->greedy, error));
    for (uint32_t i = 0; i < n; i++)
        if (drafts(d, &requests[i])) d->list[n_listed++] = requests[i].slot;
    for (uint32_t at = 0; at < n_listed; at += most)
        AE_TRY(grow_scored(d, d->list + at, n_listed - at < most ? n_listed - at : most, n_levels, error));
    return AERIE_OK;
}

/* ---- Drafts ------------------------------------------------------------------------------------------- */

/* Returns whether all positions but that of the newest token have context rows, or are in a gap. */
static bool can_draft(const block_drafter *d, const ae_draft_request *r)
{
    const block_slot *s = &d->slots[r->slot];
    return !s->cold && ae_dhead_n_true(d->head, r->slot) + 1 == r->n_tokens && r->max_depth && r->max_nodes;
}

/* Makes the missing context rows of all slots. *late: some slots had missed text. */
static aerie_status catch_up(block_drafter *d, const ae_draft_request *requests, uint32_t n, bool *late, aerie_error *error)
{
    for (uint32_t i = 0; i < n; i++) {
        const ae_draft_request *r = &requests[i];
        if (r->slot >= d->n_slots)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "slot %u: the block drafter has %u", r->slot, d->n_slots);
        block_slot *s = &d->slots[r->slot];
        if (!s->has_drafted && s->n_waiting > FEW_WAITING) {
            AE_TRY(flush(d, &r->slot, 1, error));
            *late = true;
        }
        s->has_drafted = true;
    }
    return *late ? ae_dhead_sync(d->head, error) : AERIE_OK; /* its time is counted separately */
}

static aerie_status run_blocks(block_drafter *d, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    const ae_dhead_hparams *h = &ae_dhead_engine_net(d->head)->head->hparams;
    const uint32_t n_foreseen = ae_dhead_n_foreseen(h);
    ae_dhead_clear(d->head);
    for (uint32_t i = 0; i < n; i++) {
        const ae_draft_request *r = &requests[i];
        block_slot *s = &d->slots[r->slot];
        ae_growth_begin(&s->grow, NULL);
        if (!can_draft(d, r)) continue;
        s->n_out = r->max_depth < n_foreseen && !h->lattice.width ? r->max_depth : n_foreseen; /* a lattice is whole */
        if (ae_dhead_add_block(d->head, r->slot, r->tokens[r->n_tokens - 1], s->n_out, &s->out) != AERIE_OK)
            return out_of_step(error);
        ae_growth_begin(&s->grow, r);
    }
    ae_dhead_run_blocks(d->head);
    return AERIE_OK;
}

static aerie_status draft(block_drafter *d, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    const double began = ae_time_now();
    bool late = false;
    const aerie_error fault = d->fault;
    if (fault.status != AERIE_OK) return ae_fail(error, fault.status, "%s", fault.text);
    AE_TRY(catch_up(d, requests, n, &late, error));
    const double start = ae_time_now();
    for (uint32_t i = 0; i < n; i++) d->list[i] = requests[i].slot;
    ae_stream *stream = ae_dhead_engine_stream(d->head);
    const uint32_t begin = d->ops->mark(stream);
    AE_TRY(flush(d, d->list, n, error));
    AE_TRY(run_blocks(d, requests, n, error));
    const uint32_t ran = d->ops->mark(stream); /* nobody waits here */
    uint32_t n_levels = 0;
    AE_TRY(d->kind->grow(d, requests, n, &n_levels, error));
    /* The whole pass is the cost of the first level, whatever the depth; every further level adds the same small part. A draft
     * of one level counts as two, so that the cost of a further level becomes known. */
    const double whole = ae_time_now() - start, rest = whole - d->ops->elapsed(stream, begin, ran);
    ae_draft_cost *cost = &d->base.cost;
    *cost = (ae_draft_cost){.n_levels = n_levels < 2 ? 2 : n_levels, .start_seconds = late ? start - began : 0};
    cost->other_seconds = (rest > 0 ? rest : 0) * (cost->n_levels - 1) / cost->n_levels;
    cost->first_seconds = whole - cost->other_seconds;
    for (uint32_t i = 0; i < n; i++) {
        if (drafts(d, &requests[i])) ae_growth_give(&d->slots[requests[i].slot].grow);
        ae_dhead_drop_drafted(d->head, requests[i].slot);
    }
    return AERIE_OK;
}

static aerie_status block_propose(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    block_drafter *d = (block_drafter *)drafter;
    const aerie_status status = draft(d, requests, n, error);
    d->fault.status = AERIE_OK;
    for (uint32_t i = 0; status != AERIE_OK && i < d->n_slots; i++) { /* all sequences are lost; the next ones start from
                                                                       * nothing */
        ae_dhead_restart(d->head, i, 0);
        d->slots[i].n_waiting = 0;
    }
    return status;
}

/* ---- Life ------------------------------------------------------------------------------------------------- */

#define OPS(title) \
    {.name = title, .begin = block_begin, .observe = block_observe, .propose = block_propose, .destroy = block_destroy}
static const block_kind kinds[] = {
    [AE_DHEAD_DFLASH] = {OPS("draft-dflash"), grow_marginal},
    [AE_DHEAD_DSPARK] = {OPS("draft-dspark"), grow_linked},
    [AE_DHEAD_DFLASH2] = {OPS("draft-dflash"), grow_pairs},
    [AE_DHEAD_DFLY] = {OPS("draft-dflash"), grow_linked},
    [AE_DHEAD_LILICORR] = {OPS("draft-dflash"), grow_lattice},
};

static aerie_status allocate(block_drafter *d, aerie_error *error)
{
    const size_t n = d->n_slots;
    d->slots = ae_alloc(n, sizeof *d->slots);
    d->pools = ae_alloc(n * AE_GROW_POOL, sizeof *d->pools);
    d->rows = ae_alloc(n * d->n_ask, sizeof *d->rows);
    d->proposals = ae_alloc(n * d->n_ask, sizeof *d->proposals);
    d->links = ae_alloc(n * AE_DHEAD_LEVEL_MAX, sizeof *d->links);
    d->conf = ae_alloc(n * AE_DHEAD_LEVEL_MAX, sizeof *d->conf);
    d->list = ae_alloc(n, sizeof *d->list);
    d->tokens = ae_alloc(n * (1 + (size_t)d->n_ask * AE_PROPOSE_MAX), sizeof *d->tokens);
    d->waiting = d->ops->alloc(d->backend, waiting_bytes(d));
    if (!d->slots || !d->pools || !d->rows || !d->proposals || !d->links || !d->conf || !d->list || !d->tokens || !d->waiting)
        return ae_fail_memory(error, "a block drafter's features", waiting_bytes(d));
    for (size_t i = 0; i < n; i++) {
        d->slots[i].waiting = d->waiting + i * d->n_room * d->width;
        d->slots[i].grow.pool = d->pools + i * AE_GROW_POOL;
    }
    return AERIE_OK;
}

aerie_status ae_draft_block_create(ae_drafter **out, ae_dhead_engine *head, ae_engine *target, uint32_t n_slots,
                                   aerie_error *error)
{
    const ae_dhead_net *net = ae_dhead_engine_net(head);
    const ae_dhead_hparams *h = &net->head->hparams;
    *out = NULL;
    block_drafter *d = ae_alloc(1, sizeof *d);
    if (!d) {
        ae_dhead_engine_free(head);
        return ae_fail_memory(error, "a block drafter's state", sizeof *d);
    }
    *d = (block_drafter){.base.ops = &kinds[h->kind].ops, .kind = &kinds[h->kind], .head = head, .target = target,
                         .ops = net->backend->ops, .backend = net->backend, .n_slots = n_slots,
                         .width = h->n_taps * h->n_target_embd,
                         .n_ask = h->n_block > AE_DHEAD_LEVEL_MAX ? h->n_block : AE_DHEAD_LEVEL_MAX};
    ae_draw_plan(&d->greedy, &(ae_sampling){.samplers = {AERIE_SAMPLER_TEMPERATURE}},
                 net->target->model->hparams.n_vocab);
    if (h->kind == AE_DHEAD_DFLY && !h->n_correct) d->kind = &kinds[AE_DHEAD_DFLASH];
    ae_dhead_clear(head); /* all waiting features must fit into one pass of the head */
    d->n_room = ae_dhead_rows_left(head) < AE_DHEAD_BATCH ? ae_dhead_rows_left(head) : AE_DHEAD_BATCH;
    const aerie_status status = allocate(d, error);
    if (status != AERIE_OK) block_destroy(&d->base);
    else *out = &d->base;
    return status;
}

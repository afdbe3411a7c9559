/* model.c - drafts by a smaller model.
 *
 * Owns an engine of its own, whose KV cache mirrors the target's sequences slot by slot. Each call first drops what was drafted
 * and not accepted, and runs the tokens emitted since. Then it drafts a chain, with one pass per token, or a tree, with one
 * pass per level over all nodes so far. (A pass over n rows costs about as much as one over a single row, so evaluating the
 * upper levels again is cheaper than keeping them.) Tokens are ranked under the target's own noise (sampler.h), which keeps
 * acceptance high at temperature 1.
 *
 * All sequences that want a draft run together: a pass holds the rows of as many as fit, so that the model's weights are read
 * once for a level of all drafts. What was missed is read in shared passes, too. The proposals of a pass are ranked in one
 * operation.
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

/* The model's state for a slot, and the slot's draft while it is made. */
typedef struct model_slot {
    int32_t *tokens;  /* [n_ctx] the KV cache's tokens in the model's vocabulary; only the first live ones are valid */
    int32_t *plain;   /* [positions of the target] the text without rows that are not tokens */
    ae_retext retext; /* with a map: the sequence in the model's tokens */

    const int32_t *text; /* [n_text] the sequence that the draft continues, in the model's own tokens */
    size_t n_text;
    uint32_t n_read;     /* positions of the text that have been run */
    uint32_t n_rows;     /* rows in the pass */
    uint32_t n_kept;     /* the first positions of the text, which stay in the KV cache */
    int32_t begin, end;  /* nodes whose children the pass finds: [begin, end), -1: the root */
    uint32_t row;        /* row of the first of these nodes; the others follow */
    float reach[AERIE_MAX_DRAFT];
} model_slot;

typedef struct draft_model {
    ae_drafter base;
    ae_engine *engine;
    uint32_t n_slots, n_ctx;
    model_slot *slots;
    ae_vocab_map *map; /* NULL: the model has the target's vocabulary */
    float *shared;     /* [pairs of the map] logits of the common tokens, in order of the target's ids */
    ae_encode_memory *memory; /* with a map: memory that the slots' retexts use in turn */
    ae_engine_rank *ranks;    /* [n_outputs] */
    ae_proposal *best;        /* [n_outputs] */
} draft_model;

static void model_destroy(ae_drafter *drafter)
{
    draft_model *d = (draft_model *)drafter;
    for (uint32_t i = 0; d->slots && i < d->n_slots; i++) {
        ae_free(d->slots[i].tokens);
        ae_free(d->slots[i].plain);
        ae_retext_free(&d->slots[i].retext);
    }
    ae_free(d->slots);
    ae_free(d->shared);
    ae_free(d->ranks);
    ae_free(d->best);
    ae_encode_memory_free(d->memory);
    ae_vocab_map_free(d->map);
    ae_engine_free(d->engine);
    ae_free(d);
}

static uint32_t model_begin(ae_drafter *drafter, const ae_draft_begin *begin)
{
    draft_model *d = (draft_model *)drafter;
    /* the next propose compares tokens and keeps what is still valid */
    if (!begin->new_scope || begin->slot >= d->n_slots) return begin->n_shared;
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

/* ---- Ranking -------------------------------------------------------------------------------------------- */

/* Returns the share of the model's probability mass on tokens that the target has too; the rest cannot be proposed. */
static float shared_mass(const float *logits, uint32_t n_logits, const float *shared, uint32_t n_shared)
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

/* Does the same on the host, with another vocabulary: ranks the tokens that both vocabularies have. */
static void rank_shared(draft_model *d, const ae_engine_rank *row, ae_proposal *out)
{
    const uint32_t n_vocab = ae_engine_net(d->engine)->model->hparams.n_vocab;
    const float *logits = ae_engine_logits(d->engine, row->row);
    const int32_t *targets, *drafts;
    const uint32_t n_pairs = ae_vocab_map_pairs(d->map, &targets, &drafts);
    for (uint32_t i = 0; i < n_pairs; i++) d->shared[i] = logits[drafts[i]];
    out->n = ae_sampler_propose(row->sampler, d->shared, n_pairs, targets, (size_t)row->position, row->k, out->id, out->p);
    if (n_pairs == n_vocab) return;
    const float mass = shared_mass(logits, n_vocab, d->shared, n_pairs);
    for (uint32_t i = 0; i < out->n; i++) out->p[i] *= mass;
}

/* Ranks the likeliest next tokens after n rows, in the target's ids. */
static aerie_status rank(draft_model *d, uint32_t n, aerie_error *error)
{
    if (!d->map) return ae_engine_propose(d->engine, d->ranks, n, d->best, error);
    ae_engine_fetch_logits(d->engine); /* fetches all rows at once: every row that exports logits is ranked */
    for (uint32_t i = 0; i < n; i++) rank_shared(d, &d->ranks[i], &d->best[i]);
    return AERIE_OK;
}

/* Returns a proposed token's id in the model's vocabulary. */
static int32_t own_token(const draft_model *d, int32_t id)
{
    return d->map ? ae_vocab_map_to_draft(d->map, id) : id;
}

/* ---- Passes --------------------------------------------------------------------------------------------- */

/* Adds a slot's next n tokens, which stay in the cache. asks: the children of the slot's root are to be found after the last of
 * them. */
static aerie_status add_kept(draft_model *d, uint32_t slot, const int32_t *tokens, uint32_t n, bool asks, aerie_error *error)
{
    model_slot *s = &d->slots[slot];
    uint32_t first;
    AE_TRY(ae_engine_add_chain(d->engine, slot, tokens, n, asks ? AE_EXPORT_LAST : AE_EXPORT_NONE, &first, error));
    memmove(s->tokens + s->n_read, tokens, n * sizeof *tokens);
    s->n_rows = s->n_kept = n;
    s->row = first + n - 1;
    return AERIE_OK;
}

/* Runs the rows that were added for these requests, and adds the likely children to the nodes that wait for them. */
static aerie_status run(draft_model *d, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    uint32_t n_asked = 0, at = 0;
    AE_TRY(ae_engine_pass(d->engine, error));
    for (uint32_t i = 0; i < n; i++) {
        const ae_draft_request *r = &requests[i];
        model_slot *s = &d->slots[r->slot];
        if (!s->n_rows) continue;
        AE_TRY(kept(ae_engine_commit(d->engine, r->slot, s->n_kept, NULL, 0), error));
        s->n_read += s->n_kept;
        for (int32_t k = s->begin; k < s->end; k++)
            d->ranks[n_asked++] = (ae_engine_rank){r->sampler, s->row + (uint32_t)(k - s->begin), ae_draft_width(r),
                                                   r->n_tokens + (k < 0 ? 0 : (uint32_t)r->tree->depth[k])};
    }
    if (n_asked) AE_TRY(rank(d, n_asked, error));
    for (uint32_t i = 0; i < n; i++) {
        const ae_draft_request *r = &requests[i];
        model_slot *s = &d->slots[r->slot];
        if (!s->n_rows) continue;
        for (int32_t k = s->begin; k < s->end; k++) ae_draft_expand(r, r->tree, s->reach, k, &d->best[at++]);
        s->begin = s->end;
        s->end = (int32_t)r->tree->n;
        s->n_rows = 0;
    }
    return AERIE_OK;
}

/* Reads the unread part of the texts. late: only of sequences that lag far behind, and without the last token; else all of it,
 * and finds the children of the roots. */
static aerie_status read_texts(draft_model *d, const ae_draft_request *requests, uint32_t n, bool late, aerie_error *error)
{
    for (;;) {
        bool any = false;
        ae_engine_rows_clear(d->engine);
        for (uint32_t i = 0; i < n; i++) {
            model_slot *s = &d->slots[requests[i].slot];
            const size_t left = s->n_text - s->n_read;
            if (!left || (late && left <= AE_DRAFT_LATE)) continue;
            const uint32_t room = ae_engine_rows_left(d->engine), wanted = (uint32_t)left - late;
            const uint32_t step = wanted < room ? wanted : room;
            const bool asks = step == left;
            if (!step || (asks && !ae_engine_outputs_left(d->engine))) continue;
            s->begin = asks ? -1 : 0;
            AE_TRY(add_kept(d, requests[i].slot, s->text + s->n_read, step, asks, error));
            any = true;
        }
        if (!any) return AERIE_OK;
        AE_TRY(run(d, requests, n, error));
    }
}

/* Returns whether the newest nodes may have children. */
static bool goes_on(const draft_model *d, const ae_draft_request *r)
{
    const model_slot *s = &d->slots[r->slot];
    if (s->begin >= s->end || r->tree->n >= r->max_nodes || r->tree->n >= AERIE_MAX_DRAFT) return false;
    const uint32_t depth = (uint32_t)r->tree->depth[s->begin];
    return depth < r->max_depth && s->n_text + depth < d->n_ctx;
}

/* Adds the rows of a request's next level: the newest node of a chain, or the whole tree. *fits: false if the pass has no room
 * for them. */
static aerie_status add_level(draft_model *d, const ae_draft_request *r, bool *fits, aerie_error *error)
{
    model_slot *s = &d->slots[r->slot];
    ae_tree own = *r->tree;
    for (uint32_t i = 0; i < own.n; i++) own.token[i] = own_token(d, own.token[i]);
    const uint32_t n_rows = r->shape ? own.n : 1, n_new = (uint32_t)(s->end - s->begin);
    *fits = n_rows <= ae_engine_rows_left(d->engine) && n_new <= ae_engine_outputs_left(d->engine);
    if (!*fits) return AERIE_OK;
    if (!r->shape) return add_kept(d, r->slot, &own.token[s->begin], 1, true, error);
    uint32_t first;
    AE_TRY(ae_engine_add_tree_from(d->engine, r->slot, &own, (uint32_t)s->begin, &first, error));
    s->row = first + (uint32_t)s->begin;
    s->n_rows = n_rows;
    s->n_kept = 0;
    return AERIE_OK;
}

/* Runs the next level of all drafts that continue, in as few passes as can hold it. *any: whether any draft continued. */
static aerie_status run_level(draft_model *d, const ae_draft_request *requests, uint32_t n, bool *any, aerie_error *error)
{
    *any = false;
    for (uint32_t i = 0, begin; i < n;) {
        bool fits = true;
        ae_engine_rows_clear(d->engine);
        for (begin = i; i < n; i++) {
            if (!goes_on(d, &requests[i])) continue;
            AE_TRY(add_level(d, &requests[i], &fits, error));
            if (!fits) break;
        }
        if (ae_engine_n_rows(d->engine)) {
            *any = true;
            AE_TRY(run(d, requests + begin, i - begin, error));
        } else if (!fits) {
            i++; /* the rows do not fit even an empty pass: the draft ends */
        }
    }
    return AERIE_OK;
}

/* ---- Drafts --------------------------------------------------------------------------------------------- */

/* Finds the text that a draft continues, and drops rows of the cache that do not belong to it. */
static aerie_status begin_draft(draft_model *d, const ae_draft_request *r, aerie_error *error)
{
    model_slot *s = &d->slots[r->slot];
    s->begin = s->end = 0;
    s->n_rows = s->n_read = 0;
    s->n_text = r->n_tokens;
    s->text = ae_draft_plain(r->tokens, &s->n_text, s->plain);
    if (d->map) {
        AE_TRY(ae_retext_update(&s->retext, s->text, s->n_text, error));
        s->text = s->retext.drafts.data;
        s->n_text = s->retext.drafts.n;
    }
    /* no draft: the vocabulary has no token of the text, or the context is full */
    if (s->n_text >= d->n_ctx || !r->max_depth || !r->max_nodes) s->n_text = 0;
    if (!s->n_text) return AERIE_OK;
    const uint32_t live = ae_kv_n_live(ae_engine_kv(d->engine), r->slot);
    while (s->n_read < live && s->n_read < s->n_text - 1 && s->tokens[s->n_read] == s->text[s->n_read]) s->n_read++;
    s->n_read = ae_engine_truncate(d->engine, r->slot, s->n_read);
    return AERIE_OK;
}

static aerie_status draft(draft_model *d, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    ae_draft_cost *cost = &d->base.cost;
    const double start = ae_time_now();
    bool late = false, any = false;
    for (uint32_t i = 0; i < n; i++) {
        if (requests[i].slot >= d->n_slots)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "slot %u: the draft model has %u", requests[i].slot, d->n_slots);
        AE_TRY(begin_draft(d, &requests[i], error));
        const model_slot *s = &d->slots[requests[i].slot];
        late |= s->n_text - s->n_read > AE_DRAFT_LATE;
        any |= s->n_text > 0;
    }
    if (!any) return AERIE_OK;
    if (late) AE_TRY(read_texts(d, requests, n, true, error));
    const double caught_up = ae_time_now();
    if (late) cost->start_seconds = caught_up - start;
    AE_TRY(read_texts(d, requests, n, false, error));
    for (uint32_t i = 0; i < n; i++)
        if (d->slots[requests[i].slot].n_text) ae_engine_snapshot(d->engine, requests[i].slot); /* rows of a chain may go */
    const double first = ae_time_now();
    cost->first_seconds = first - (late ? caught_up : start);
    cost->n_levels = 1;
    while (any) AE_TRY(run_level(d, requests, n, &any, error));
    cost->other_seconds = ae_time_now() - first;
    for (uint32_t i = 0; i < n; i++) {
        const ae_tree *tree = requests[i].tree;
        for (uint32_t k = 0; k < tree->n; k++)
            if ((uint32_t)tree->depth[k] > cost->n_levels) cost->n_levels = (uint32_t)tree->depth[k];
    }
    return AERIE_OK;
}

static aerie_status model_propose(ae_drafter *drafter, const ae_draft_request *requests, uint32_t n, aerie_error *error)
{
    draft_model *d = (draft_model *)drafter;
    drafter->cost = (ae_draft_cost){0};
    const aerie_status status = draft(d, requests, n, error);
    ae_engine_rows_clear(d->engine);
    for (uint32_t i = 0; status != AERIE_OK && i < d->n_slots; i++)
        (void)ae_engine_truncate(d->engine, i, 0); /* a pass may have failed; nothing of it is kept */
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
    const uint32_t n_outputs = ae_engine_options_get(d->engine)->n_outputs;
    const int32_t *unused;
    bool ok = (d->slots = ae_alloc(d->n_slots, sizeof *d->slots)) != NULL;
    for (uint32_t i = 0; ok && i < d->n_slots; i++)
        ok = (d->slots[i].tokens = ae_alloc(d->n_ctx, sizeof(int32_t))) != NULL &&
             (d->slots[i].plain = ae_alloc(n_target, sizeof(int32_t))) != NULL;
    if (ok && d->map) ok = (d->shared = ae_alloc(ae_vocab_map_pairs(d->map, &unused, &unused), sizeof *d->shared)) != NULL;
    ok = ok && (d->ranks = ae_alloc(n_outputs, sizeof *d->ranks)) != NULL;
    ok = ok && (d->best = ae_alloc(n_outputs, sizeof *d->best)) != NULL;
    if (!ok) return ae_fail_memory(error, "the draft model's tokens", (size_t)d->n_slots * d->n_ctx * sizeof(int32_t));
    if (!d->map) return AERIE_OK;
    AE_TRY(ae_encode_memory_create(&d->memory, vocab, ae_vocab_map_word_bytes(d->map), error));
    for (uint32_t i = 0; i < d->n_slots; i++) {
        d->slots[i].retext = (ae_retext){.map = d->map, .memory = d->memory};
        /* the drafter makes no drafts beyond its own context */
        AE_TRY(ae_retext_reserve(&d->slots[i].retext, n_target, d->n_ctx, error));
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
    *d = (draft_model){.base.ops = &model_ops, .engine = engine, .n_slots = n_slots, .n_ctx = o->n_ctx, .map = map};
    const size_t n_target = (size_t)n_target_ctx + 1; /* + 1, since the last token may have no place in the cache */
    const aerie_status status = allocate(d, vocab, n_target, error);
    if (status == AERIE_OK) *out = &d->base;
    else model_destroy(&d->base);
    return status;
}

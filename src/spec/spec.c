#include "spec/spec.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "spec/guide.h"
#include "text/grammar/grammar_match.h"

typedef struct spec_slot {
    bool active, ignore_eog;
    ae_spec_row *row; /* NULL: nobody is told of the rows */
    void *row_user;
    int32_t *tokens; /* [n_ctx + 1] prompt and output; what the KV cache holds is a prefix of it */
    size_t n_tokens;
    uint32_t n_predict;
    ae_sampler *sampler;
    ae_constraint *constraint; /* NULL: any text; kept for the next request with the same grammar */
    aerie_stats stats;
    double start_time;
    /* this pass */
    uint32_t n_chain, first_chain, first_tree;
    bool decoding;        /* all pending tokens are in the pass: a token will be drawn */
    double draft_seconds;
    uint32_t i_chance;    /* in this pass; UINT32_MAX: it had none */
    ae_acceptance acceptance;
    ae_tree tree;
    /* what its walk drew, and the path that it took */
    bool overflowed; /* there was no finite logit for the next one */
    size_t n_before; /* tokens */
    uint32_t n_drawn, n_path, drawn_row[AE_TREE_MAX + 1];
    int32_t drawn[AE_TREE_MAX + 1], path[AE_TREE_MAX];
} spec_slot;

struct ae_spec {
    ae_engine *engine;
    ae_drafter *drafter;
    ae_spec_options options;
    ae_controller controller;
    const ae_vocab *vocab;
    uint32_t n_ctx, n_slots, n_active;
    spec_slot *slots; /* [n_slots] */
    ae_token_trie *trie; /* made for the first grammar */
    float *masked;       /* [n_vocab] with it */
    /* this pass */
    ae_round round;
    ae_result result;
    double draft_seconds;       /* of offers and network */
    ae_draft_request *requests; /* [n_slots] */
    ae_draft_request *asked;    /* [n_slots] those of them for which the network drafts */
    ae_chance *chances;         /* [n_slots] of the requests */
    uint32_t *walking;          /* [n_slots] */
    int32_t *seen_rows;         /* [largest pass] */
};

/* ---- Life ----------------------------------------------------------------------------------------- */

void ae_spec_free(ae_spec *spec)
{
    if (!spec) return;
    for (uint32_t i = 0; spec->slots && i < spec->n_slots; i++) {
        ae_free(spec->slots[i].tokens);
        ae_sampler_free(spec->slots[i].sampler);
        ae_constraint_free(spec->slots[i].constraint);
    }
    ae_free(spec->slots);
    ae_token_trie_free(spec->trie);
    ae_free(spec->masked);
    ae_controller_free(&spec->controller);
    ae_free(spec->requests);
    ae_free(spec->asked);
    ae_free(spec->chances);
    ae_free(spec->walking);
    ae_free(spec->seen_rows);
    if (spec->drafter) spec->drafter->ops->destroy(spec->drafter);
    ae_free(spec);
}

aerie_status ae_spec_create(ae_spec **out, ae_engine *engine, ae_drafter *drafter, const ae_spec_options *options,
                            aerie_error *error)
{
    *out = NULL;
    const ae_engine_options *eo = ae_engine_options_get(engine);
    ae_spec *spec = ae_alloc(1, sizeof *spec);
    if (!spec) {
        if (drafter) drafter->ops->destroy(drafter);
        return ae_fail_memory(error, "the speculation loop", sizeof *spec);
    }
    spec->engine = engine;
    spec->drafter = drafter;
    spec->options = *options;
    spec->vocab = ae_engine_net(engine)->model->vocab;
    spec->n_ctx = eo->n_ctx;
    spec->n_slots = eo->n_seqs;
    spec->slots = ae_alloc(spec->n_slots, sizeof *spec->slots);
    spec->requests = ae_alloc(spec->n_slots, sizeof *spec->requests);
    spec->asked = ae_alloc(spec->n_slots, sizeof *spec->asked);
    spec->chances = ae_alloc(spec->n_slots, sizeof *spec->chances);
    spec->walking = ae_alloc(spec->n_slots, sizeof *spec->walking);
    spec->seen_rows = ae_alloc(eo->n_batch, sizeof *spec->seen_rows);
    bool ok = spec->slots && spec->requests && spec->asked && spec->chances && spec->walking && spec->seen_rows;
    for (uint32_t i = 0; ok && i < spec->n_slots; i++)
        ok = (spec->slots[i].tokens = ae_alloc((size_t)spec->n_ctx + 1, sizeof(int32_t)));
    if (!ok) {
        ae_spec_free(spec);
        return ae_fail_memory(error, "the sequences' tokens", (size_t)eo->n_seqs * eo->n_ctx * sizeof(int32_t));
    }
    /* what a grammar leaves no choice of is an offer too */
    const ae_controller_options co = {options->n_max, options->n_min, eo->n_seqs, options->fixed, true,
                                      drafter && !drafter->ops->free};
    const aerie_status status = ae_controller_init(&spec->controller, &co, error);
    if (status == AERIE_OK) *out = spec;
    else ae_spec_free(spec);
    return status;
}

uint32_t ae_spec_n_active(const ae_spec *spec)
{
    return spec->n_active;
}

uint32_t ae_spec_n_free(const ae_spec *spec)
{
    return spec->n_slots - spec->n_active;
}

bool ae_spec_is_active(const ae_spec *spec, uint32_t slot)
{
    return spec->slots[slot].active;
}

const aerie_stats *ae_spec_stats(const ae_spec *spec, uint32_t slot)
{
    return &spec->slots[slot].stats;
}

ae_drafter *ae_spec_drafter(const ae_spec *spec)
{
    return spec->drafter;
}

void ae_spec_reset(ae_spec *spec)
{
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        spec->slots[i].active = false;
        spec->slots[i].n_tokens = 0;
        ae_kv_truncate(ae_engine_kv(spec->engine), i, 0);
    }
    spec->n_active = 0;
}

static aerie_status out_of_step(uint32_t slot, aerie_error *error)
{
    return ae_fail(error, AERIE_ERROR_INTERNAL, "the KV cache of sequence %u is out of step; please report", slot);
}

/* ---- Start: choose a slot, reuse its KV ----------------------------------------------------------------- */

/* Live positions of `slot` that hold just the first tokens of the prompt; the last prompt token always runs again,
 * because its logits are needed. */
static uint32_t shared_prefix(const ae_spec *spec, uint32_t slot, const ae_spec_request *request)
{
    const spec_slot *s = &spec->slots[slot];
    uint32_t n = ae_kv_n_live(ae_engine_kv(spec->engine), slot), i = 0;
    if (n > request->n_tokens - 1) n = (uint32_t)request->n_tokens - 1;
    if (n > s->n_tokens) n = (uint32_t)s->n_tokens;
    while (i < n && s->tokens[i] == request->tokens[i]) i++;
    return i;
}

/* The free slot that holds most of the prompt; *donor: the slot, free or not, that holds most. */
static uint32_t choose_slot(const ae_spec *spec, const ae_spec_request *request, uint32_t *donor, uint32_t *n_shared)
{
    uint32_t best = spec->n_slots, best_n = 0;
    *donor = 0;
    *n_shared = 0;
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        const uint32_t n = shared_prefix(spec, i, request);
        if (n > *n_shared) {
            *n_shared = n;
            *donor = i;
        }
        if (spec->slots[i].active) continue;
        /* among equals the one with least to lose */
        const bool better = best == spec->n_slots || n > best_n ||
                            (n == best_n && spec->slots[i].n_tokens < spec->slots[best].n_tokens);
        if (better) {
            best = i;
            best_n = n;
        }
    }
    if (best_n == *n_shared) *donor = best;
    return best;
}

static aerie_status check_request(const ae_spec *spec, const ae_spec_request *request, aerie_error *error)
{
    if (!request->n_tokens || !request->tokens)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the prompt is empty; at least one token is needed");
    if (request->n_tokens >= spec->n_ctx)
        return ae_fail(error, AERIE_ERROR_LIMIT,
                       "the prompt has %zu tokens, but the context holds %u and one must be left for the answer; "
                       "a larger context (-c) or a shorter prompt is needed", request->n_tokens, spec->n_ctx);
    const int32_t n_vocab = ae_vocab_n_tokens(spec->vocab);
    for (size_t i = 0; i < request->n_tokens; i++)
        if (request->tokens[i] < 0 || request->tokens[i] >= n_vocab)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "token %zu of the prompt is %d; 0 to %d are possible", i,
                           request->tokens[i], n_vocab - 1);
    return ae_sampling_check(&request->sampling, (uint32_t)n_vocab, error);
}

aerie_status ae_spec_check(const ae_spec *spec, const ae_spec_request *request, aerie_error *error)
{
    AE_TRY(check_request(spec, request, error));
    if (!request->grammar) return AERIE_OK;
    ae_matcher matcher; /* whether the grammar's beginning fits is known only by making it */
    AE_TRY(ae_matcher_init(&matcher, request->grammar, error));
    ae_matcher_free(&matcher);
    return AERIE_OK;
}

/* The slot's constraint becomes that of the grammar (NULL: none), at its beginning. One left from an earlier request, here or
 * in another free slot, knows masks already. */
static aerie_status constrain(ae_spec *spec, uint32_t i_slot, const ae_grammar *grammar, aerie_error *error)
{
    ae_constraint **own = &spec->slots[i_slot].constraint;
    for (uint32_t i = 0; grammar && i < spec->n_slots; i++) {
        ae_constraint **other = &spec->slots[i].constraint, *found = *other;
        if (!found || spec->slots[i].active || ae_constraint_grammar(found) != grammar) continue;
        *other = *own;
        *own = found;
        ae_constraint_restart(found);
        return AERIE_OK;
    }
    ae_constraint_free(*own);
    *own = NULL;
    if (!grammar) return AERIE_OK;
    if (!spec->trie) AE_TRY(ae_token_trie_create(&spec->trie, spec->vocab, error));
    const size_t n_vocab = (size_t)ae_vocab_n_tokens(spec->vocab);
    if (!spec->masked && !(spec->masked = ae_alloc(n_vocab, sizeof *spec->masked)))
        return ae_fail_memory(error, "a grammar's logits", n_vocab * sizeof *spec->masked);
    return ae_constraint_create(own, grammar, spec->trie, error);
}

aerie_status ae_spec_start(ae_spec *spec, const ae_spec_request *request, uint32_t *slot, aerie_error *error)
{
    AE_TRY(check_request(spec, request, error));
    if (spec->n_active == spec->n_slots)
        return ae_fail(error, AERIE_ERROR_LIMIT, "all %u sequences are busy", spec->n_slots);
    ae_sampler *sampler;
    AE_TRY(ae_sampler_create(&sampler, &request->sampling, spec->vocab, (uint32_t)ae_vocab_n_tokens(spec->vocab), spec->n_ctx,
                             error));
    uint32_t donor, n_shared;
    const uint32_t i = choose_slot(spec, request, &donor, &n_shared);
    spec_slot *s = &spec->slots[i];
    const aerie_status status = constrain(spec, i, request->grammar, error);
    if (status != AERIE_OK) {
        ae_sampler_free(sampler);
        return status;
    }
    if (request->row) {
        donor = i;
        n_shared = 0;
    }
    if (spec->drafter)
        n_shared = spec->drafter->ops->begin(spec->drafter, &(ae_draft_begin){i, donor, spec->slots[donor].tokens,
                                                                              spec->slots[donor].n_tokens, n_shared});
    if (ae_kv_share(ae_engine_kv(spec->engine), ae_engine_stream(spec->engine), i, donor, n_shared) != AERIE_OK) {
        ae_sampler_free(sampler);
        return out_of_step(i, error);
    }
    ae_sampler_free(s->sampler);
    int32_t *tokens = s->tokens;
    *s = (spec_slot){.active = true, .ignore_eog = request->ignore_eog, .row = request->row, .row_user = request->row_user,
                     .tokens = tokens, .n_tokens = request->n_tokens, .n_predict = request->n_predict, .sampler = sampler,
                     .constraint = s->constraint, .start_time = ae_time_now()};
    memcpy(tokens, request->tokens, request->n_tokens * sizeof *tokens);
    s->stats.n_prompt = (uint32_t)request->n_tokens;
    s->stats.n_cached = n_shared;
    spec->n_active++;
    *slot = i;
    return AERIE_OK;
}

/* ---- One pass ---------------------------------------------------------------------------------------------- */

static void finish(ae_spec *spec, spec_slot *s, aerie_stop stop)
{
    s->active = false;
    s->stats.stop = stop;
    s->stats.decode_seconds = ae_time_now() - s->start_time - s->stats.prompt_seconds;
    if (s->constraint) {
        const ae_constraint_stats *c = ae_constraint_stats_get(s->constraint);
        s->stats.n_masks = c->n_masks, s->stats.n_mask_hits = c->n_hits, s->stats.n_mask_checks = c->n_checks;
        s->stats.mask_seconds = c->seconds;
    }
    spec->n_active--;
}

void ae_spec_stop(ae_spec *spec, uint32_t slot, aerie_stop stop)
{
    if (spec->slots[slot].active) finish(spec, &spec->slots[slot], stop);
}

uint32_t ae_spec_n_done(const ae_spec *spec, uint32_t slot)
{
    return ae_kv_n_live(ae_engine_kv(spec->engine), slot);
}

/* How deep a draft can be and still be of use: it emits up to depth + 1 tokens. */
static uint32_t depth_left(const ae_spec *spec, const spec_slot *s)
{
    size_t left = spec->n_ctx - s->n_tokens;
    if (s->n_predict && s->n_predict - s->stats.n_generated < left) left = s->n_predict - s->stats.n_generated;
    return left ? (uint32_t)left - 1 : 0;
}

/* What each slot brings to the pass: a chunk of what is pending. Room is kept for a tree on every slot that decodes. */
static void plan_chunks(ae_spec *spec)
{
    uint32_t n_decoding = 0;
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        const spec_slot *s = &spec->slots[i];
        n_decoding += s->active && s->n_tokens == ae_kv_n_live(ae_engine_kv(spec->engine), i) + 1;
    }
    const uint32_t n_reserved = n_decoding * AE_TREE_MAX + spec->n_active;
    uint32_t left = ae_engine_rows_left(spec->engine) - n_reserved;
    uint32_t exports = ae_engine_options_get(spec->engine)->n_outputs - n_reserved; /* for slots whose rows all have logits */
    uint64_t context = 0;
    spec->round = (ae_round){0};
    spec->result = (ae_result){0};
    spec->draft_seconds = 0;
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        spec_slot *s = &spec->slots[i];
        if (!s->active) continue;
        const uint32_t pending = (uint32_t)s->n_tokens - ae_kv_n_live(ae_engine_kv(spec->engine), i);
        uint32_t n = pending < spec->options.n_chunk ? pending : spec->options.n_chunk;
        if (n > left + 1) n = left + 1; /* one row is each slot's own */
        if (s->row && n > exports + 1) n = exports + 1;
        left -= n - 1;
        if (s->row) exports -= n - 1;
        s->n_chain = n;
        s->decoding = n == pending;
        s->tree.n = 0;
        s->i_chance = UINT32_MAX;
        s->draft_seconds = 0;
        spec->round.n_rows += n;
        spec->round.n_drawing += s->decoding;
        spec->round.prompts = spec->round.prompts || n > 1 || !s->decoding;
        context += s->n_tokens;
    }
    if (spec->n_active) spec->round.n_context = (uint32_t)(context / spec->n_active);
}

/* The slots that decode one pending token and have a use for a draft. */
static uint32_t list_requests(ae_spec *spec)
{
    const ae_spec_options *o = &spec->options;
    const float floor = ae_controller_floor(&spec->controller, &spec->round);
    uint32_t n = 0;
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        spec_slot *s = &spec->slots[i];
        uint32_t depth = depth_left(spec, s);
        if (!s->active || s->n_chain != 1 || !s->decoding || !depth) continue;
        if (depth > o->n_max) depth = o->n_max;
        spec->requests[n] = (ae_draft_request){
            .slot = i, .tokens = s->tokens, .n_tokens = s->n_tokens, .max_depth = depth,
            .max_nodes = o->shape == AE_DRAFT_CHAIN ? depth : o->n_nodes ? o->n_nodes : AE_TREE_MAX, .shape = o->shape,
            .top_k = o->top_k, .min_p = o->p_min > floor ? o->p_min : floor, .sampler = s->sampler, .tree = &s->tree};
        spec->chances[n].acceptance = &s->acceptance;
        spec->chances[n].tree = &s->tree;
        spec->chances[n].max_depth = depth;
        spec->chances[n].n_levels = 0;
        s->i_chance = n++;
    }
    return n;
}

/* Nodes that nobody has marked yet came from there. */
static void mark(ae_tree *tree, uint8_t from)
{
    for (uint32_t i = 0; i < tree->n; i++)
        if (!tree->from[i]) tree->from[i] = from;
}

static aerie_status make_offers(ae_spec *spec, uint32_t n, aerie_error *error)
{
    const ae_drafter_ops *ops = spec->drafter->ops;
    if (ops->free) AE_TRY(ops->propose(spec->drafter, spec->requests, n, error));
    else if (ops->offer) AE_TRY(ops->offer(spec->drafter, spec->requests, n, error));
    spec->result.used[AE_KIND_OFFER] = ops->free || ops->offer;
    for (uint32_t i = 0; i < n; i++) mark(spec->requests[i].tree, AE_FROM_OFFER);
    return AERIE_OK;
}

/* The network drafts for the sequences that were chosen; *seconds: what that took. */
static aerie_status make_drafts(ae_spec *spec, uint32_t n, double *seconds, aerie_error *error)
{
    uint32_t n_asked = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t n_levels = spec->chances[i].n_levels;
        if (!n_levels) continue;
        ae_draft_request *r = &spec->asked[n_asked++];
        *r = spec->requests[i];
        r->max_depth = n_levels;
        if (r->shape == AE_DRAFT_CHAIN) r->max_nodes = n_levels;
    }
    const double start = ae_time_now();
    AE_TRY(spec->drafter->ops->propose(spec->drafter, spec->asked, n_asked, error));
    *seconds = ae_time_now() - start;
    spec->result.used[AE_KIND_DRAFT] = true;
    for (uint32_t i = 0; i < n_asked; i++) {
        spec_slot *s = &spec->slots[spec->asked[i].slot];
        uint32_t *n_levels = &spec->chances[s->i_chance].n_levels;
        mark(&s->tree, AE_FROM_DRAFT);
        *n_levels = 1;
        for (uint32_t j = 0; j < s->tree.n; j++)
            if (s->tree.from[j] & AE_FROM_DRAFT && (uint32_t)s->tree.depth[j] > *n_levels)
                *n_levels = (uint32_t)s->tree.depth[j];
    }
    const ae_draft_cost *cost = &spec->drafter->cost;
    if (cost->n_levels)
        ae_controller_saw_draft(&spec->controller, n_asked, cost->n_levels, *seconds - cost->other_seconds,
                                cost->other_seconds);
    return AERIE_OK;
}

/* What grammars forbid goes, what they leave no choice of is added. */
static void guide(ae_spec *spec, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const ae_draft_request *r = &spec->requests[i];
        const spec_slot *s = &spec->slots[r->slot];
        if (!s->constraint) continue;
        ae_guide_filter(s->constraint, spec->vocab, !s->ignore_eog, r->max_depth, r->max_nodes, r->tree);
        mark(r->tree, AE_FROM_OFFER);
        spec->result.used[AE_KIND_OFFER] = true;
    }
}

/* Drafts for all of them together, cut to what is worth verifying. */
static aerie_status propose(ae_spec *spec, aerie_error *error)
{
    ae_controller *c = &spec->controller;
    const bool offers = ae_controller_begin(c, &spec->round);
    const uint32_t n = list_requests(spec);
    double start = ae_time_now(), offer_seconds = 0, network_seconds = 0;
    if (!n) return AERIE_OK;
    if (offers) {
        AE_TRY(make_offers(spec, n, error));
        offer_seconds = ae_time_now() - start;
        if (spec->result.used[AE_KIND_OFFER]) ae_controller_saw_offers(c, n, offer_seconds);
    }
    if (ae_controller_plan(c, &spec->round, spec->chances, n)) AE_TRY(make_drafts(spec, n, &network_seconds, error));
    if (offers || network_seconds > 0) guide(spec, n);
    ae_controller_choose(c, &spec->round, network_seconds, spec->chances, n);
    spec->draft_seconds = ae_time_now() - start;
    for (uint32_t i = 0; i < n; i++) spec->slots[spec->requests[i].slot].draft_seconds = spec->draft_seconds / n;
    return AERIE_OK;
}

static aerie_status add_rows(ae_spec *spec, uint32_t i_slot, aerie_error *error)
{
    spec_slot *s = &spec->slots[i_slot];
    const uint32_t live = ae_kv_n_live(ae_engine_kv(spec->engine), i_slot);
    const ae_export exported = s->row ? AE_EXPORT_ALL : s->decoding ? AE_EXPORT_LAST : AE_EXPORT_NONE;
    AE_TRY(ae_engine_add_chain(spec->engine, i_slot, s->tokens + live, s->n_chain, exported, &s->first_chain, error));
    if (s->tree.n) AE_TRY(ae_engine_add_tree(spec->engine, i_slot, &s->tree, &s->first_tree, error));
    return AERIE_OK;
}

/* The chunk's rows and those of the accepted path are true now: the cache keeps them, the drafter may learn from them. */
static aerie_status commit(ae_spec *spec, uint32_t i_slot, const int32_t *path, uint32_t n_path, aerie_error *error)
{
    const spec_slot *s = &spec->slots[i_slot];
    const uint32_t position = ae_kv_n_live(ae_engine_kv(spec->engine), i_slot);
    if (ae_engine_commit(spec->engine, i_slot, s->n_chain, path, n_path) != AERIE_OK) return out_of_step(i_slot, error);
    for (uint32_t i = 0; s->row && i < s->n_chain + n_path; i++)
        s->row(s->row_user, i_slot, position + i,
               i < s->n_chain ? s->first_chain + i : s->first_tree + (uint32_t)path[i - s->n_chain]);
    if (!spec->drafter || !spec->drafter->ops->observe) return AERIE_OK;
    for (uint32_t i = 0; i < s->n_chain; i++) spec->seen_rows[i] = (int32_t)(s->first_chain + i);
    for (uint32_t i = 0; i < n_path; i++) spec->seen_rows[s->n_chain + i] = (int32_t)s->first_tree + path[i];
    spec->drafter->ops->observe(spec->drafter,
                                &(ae_draft_seen){i_slot, spec->seen_rows, s->n_chain + n_path, s->tokens, s->n_tokens});
    return AERIE_OK;
}

/* ---- Drawing and telling ---------------------------------------------------------------------------------- */

static int32_t draw(ae_spec *spec, spec_slot *s, const float *logits)
{
    if (!s->constraint) return ae_sampler_draw(s->sampler, logits, s->tokens, s->n_tokens);
    return ae_guide_draw(s->constraint, s->sampler, logits, s->tokens, s->n_tokens, !s->ignore_eog, spec->masked);
}

/* Weights are finite, but what comes of them may overflow: no token is invented from that. */
static bool has_logits(const ae_spec *spec, const float *logits)
{
    const int32_t n = ae_vocab_n_tokens(spec->vocab);
    for (int32_t i = 0; i < n; i++)
        if (isfinite(logits[i])) return true;
    return false;
}

/* The walk of the header comment. It touches nothing but the slot, and `masked` where there is a grammar, so that slots without
 * one take their walks at once. Nobody hears of the tokens yet. */
static void walk(ae_spec *spec, spec_slot *s)
{
    int32_t node = -1;
    uint32_t row = s->first_chain + s->n_chain - 1, left = s->n_predict ? s->n_predict - s->stats.n_generated : UINT32_MAX;
    const double start = ae_time_now();
    s->n_drawn = s->n_path = 0;
    s->n_before = s->n_tokens;
    s->overflowed = false;
    for (;;) {
        const float *logits = ae_engine_logits(spec->engine, row);
        if (!has_logits(spec, logits)) {
            s->overflowed = true;
            break;
        }
        const int32_t token = draw(spec, s, logits);
        s->drawn[s->n_drawn] = token;
        s->drawn_row[s->n_drawn++] = row;
        node = ae_tree_child(&s->tree, node, token);
        if (node >= 0) s->path[s->n_path++] = node;
        if (token == AE_GUIDE_NONE || (!s->ignore_eog && ae_vocab_is_eog(spec->vocab, token))) break;
        ae_sampler_accept(s->sampler, token, s->n_tokens);
        if (s->constraint) ae_constraint_advance(s->constraint, token);
        s->tokens[s->n_tokens++] = token;
        if (node < 0 || !--left || s->n_tokens >= spec->n_ctx) break;
        if (s->constraint && ae_constraint_is_complete(s->constraint)) break;
        row = s->first_tree + (uint32_t)node;
    }
    s->stats.sample_seconds += ae_time_now() - start;
}

static void walk_item(void *context, uint32_t item, uint32_t i_worker)
{
    ae_spec *spec = context;
    (void)i_worker;
    walk(spec, &spec->slots[spec->walking[item]]);
}

/* Draws for all slots that decode: on all threads, but for those with a grammar. */
static void walk_all(ae_spec *spec)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        spec_slot *s = &spec->slots[i];
        if (!s->active || !s->decoding) continue;
        if (s->constraint) walk(spec, s);
        else spec->walking[n++] = i;
    }
    if (n) ae_engine_net(spec->engine)->backend->ops->host_run(ae_engine_stream(spec->engine), walk_item, spec, n);
}

/* Tells of the i-th drawn token; false when the sequence is finished by it. */
static bool emit_token(ae_spec *spec, uint32_t i_slot, uint32_t i, uint32_t depth, ae_spec_emit *emit, void *user)
{
    spec_slot *s = &spec->slots[i_slot];
    const int32_t token = s->drawn[i];
    const bool last = i + 1 == s->n_drawn;
    if (token == AE_GUIDE_NONE || (!s->ignore_eog && ae_vocab_is_eog(spec->vocab, token))) {
        finish(spec, s, token == AE_GUIDE_NONE ? AERIE_STOP_DEAD_END : AERIE_STOP_EOG);
        return false;
    }
    s->n_tokens++;
    s->stats.n_generated++;
    const aerie_stop stop = emit(user, i_slot, token, depth, ae_engine_logits(spec->engine, s->drawn_row[i]));
    if (stop != AERIE_STOP_NONE) finish(spec, s, stop);
    else if (last && s->constraint && ae_constraint_is_complete(s->constraint)) finish(spec, s, AERIE_STOP_GRAMMAR);
    else if (s->n_predict && s->stats.n_generated >= s->n_predict) finish(spec, s, AERIE_STOP_LENGTH);
    else if (s->n_tokens >= spec->n_ctx) finish(spec, s, AERIE_STOP_CONTEXT);
    return s->active;
}

static void count_drafts(spec_slot *s, uint32_t n_path, bool missed)
{
    for (uint32_t i = 0; i < s->tree.n; i++) s->stats.drafted_at[s->tree.depth[i] - 1]++;
    for (uint32_t d = 0; d < n_path; d++) {
        s->stats.tried_at[d]++;
        s->stats.accepted_at[d]++;
    }
    if (missed && ae_tree_goes_on(&s->tree, n_path ? s->path[n_path - 1] : -1)) s->stats.tried_at[n_path]++;
    s->stats.n_drafted += s->tree.n;
    s->stats.n_accepted += n_path;
}

static void tell_controller(ae_spec *spec, const spec_slot *s, uint32_t n_path)
{
    ae_result *r = &spec->result;
    for (uint32_t i = 0; i < s->tree.n; i++) r->n_nodes[s->tree.from[i] & AE_FROM_OFFER ? AE_KIND_OFFER : AE_KIND_DRAFT]++;
    for (uint32_t i = 0; i < n_path; i++)
        r->n_accepted[s->tree.from[s->path[i]] & AE_FROM_OFFER ? AE_KIND_OFFER : AE_KIND_DRAFT]++;
    if (s->i_chance != UINT32_MAX)
        ae_controller_saw_verdict(&spec->controller, &spec->chances[s->i_chance], s->path, n_path);
}

/* Tells of what the walk drew, until somebody wants no more; then the KV cache keeps what was accepted. */
static aerie_status deliver(ae_spec *spec, uint32_t i_slot, ae_spec_emit *emit, void *user, aerie_error *error)
{
    spec_slot *s = &spec->slots[i_slot];
    uint32_t n_path = 0, i = 0;
    bool more = true;
    s->n_tokens = s->n_before;
    for (; more && i < s->n_drawn; i++) {
        if (i < s->n_path) n_path = i + 1;
        more = emit_token(spec, i_slot, i, i < s->n_path ? n_path : 0, emit, user);
    }
    if (more && s->overflowed)
        return ae_fail(error, AERIE_ERROR_FORMAT, "the model gave no finite logit for the token at position %zu: its weights "
                       "overflow; another file of this model, or another tensor type, is needed", s->n_tokens);
    count_drafts(s, n_path, i > s->n_path);
    /* a token that ended the sequence unemitted (EOG) is not part of it, nor is its row */
    const uint32_t n_live = ae_kv_n_live(ae_engine_kv(spec->engine), i_slot);
    AE_TRY(commit(spec, i_slot, s->path, s->n_tokens < n_live + s->n_chain + n_path ? n_path - 1 : n_path, error));
    tell_controller(spec, s, n_path);
    return AERIE_OK;
}

aerie_status ae_spec_step(ae_spec *spec, ae_spec_emit *emit, void *user, aerie_error *error)
{
    ae_engine_rows_clear(spec->engine);
    plan_chunks(spec);
    if (spec->drafter) AE_TRY(propose(spec, error));
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        if (spec->slots[i].active) AE_TRY(add_rows(spec, i, error));
    }
    const double start = ae_time_now();
    ae_engine_pass(spec->engine);
    const double seconds = ae_time_now() - start, share = seconds / (spec->n_active ? spec->n_active : 1);
    if (spec->drafter)
        ae_controller_saw_pass(&spec->controller, &spec->round, ae_engine_n_rows(spec->engine), seconds);
    walk_all(spec);
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        spec_slot *s = &spec->slots[i];
        if (!s->active) continue;
        if (!s->decoding) {
            AE_TRY(commit(spec, i, NULL, 0, error));
            continue;
        }
        if (!s->stats.n_generated) {
            s->stats.prompt_seconds = ae_time_now() - s->start_time;
        } else {
            s->stats.n_passes++;
            s->stats.target_seconds += share;
            s->stats.draft_seconds += s->draft_seconds;
        }
        AE_TRY(deliver(spec, i, emit, user, error));
    }
    if (spec->drafter) ae_controller_saw_round(&spec->controller, &spec->round, &spec->result);
    return AERIE_OK;
}

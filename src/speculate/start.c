/* start.c - starts a sequence: which slot it takes, and which part of its prompt need not be computed.
 *
 * Owns nothing: speculate_int.h describes the slots, and the KV cache owns the pages.
 */
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "speculate/denoise.h"
#include "speculate/speculate_int.h"
#include "text/grammar/match.h"

/* Returns the length of the common prefix of the tokens and the slot's newest sequence, running or not; 0 if the keys
 * differ. */
static uint32_t common_tokens(const ae_spec *spec, uint32_t slot, ae_kv_key key, const int32_t *tokens, size_t n_tokens)
{
    const spec_slot *s = &spec->slots[slot];
    if (!ae_kv_key_equal(ae_engine_seq_key(spec->engine, slot), key)) return 0;
    const uint32_t n = (uint32_t)(n_tokens < s->n_tokens ? n_tokens : s->n_tokens);
    uint32_t i = 0;
    while (i < n && s->tokens[i] == tokens[i]) i++;
    return i;
}

origin ae_spec_origin(const ae_spec *spec, const ae_adapter_set *adapters, const int32_t *tokens, size_t n_tokens)
{
    const ae_kv *kv = ae_engine_kv(spec->engine);
    const uint32_t n_most = (uint32_t)n_tokens - 1; /* the last token always runs: its logits are needed */
    const ae_kv_key key = ae_engine_key(spec->engine, adapters);
    origin best = {.slot = NO_SLOT, .leader = NO_SLOT};
    uint32_t n_slot = 0;
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        const spec_slot *s = &spec->slots[i];
        const uint32_t same = common_tokens(spec, i, key, tokens, n_tokens);
        const uint32_t n = same < n_most ? same : n_most, live = ae_kv_n_live(kv, i);
        if (!i || same > best.n_same) best.donor = i, best.n_same = same;
        if (s->active) {
            const uint32_t shared = ae_engine_landing(spec->engine, i, n);
            if (n > best.n_leader && n > live) best.leader = i, best.n_leader = n;
            if (shared > best.n_source) best.source = i, best.n_source = shared;
            continue;
        }
        /* among equal slots, one of this scope, whose drafter has learned; among those, the one whose cache holds the least */
        const bool new_scope = s->scope != key.scope;
        const bool better = best.slot == NO_SLOT || same > n_slot || (same == n_slot && new_scope < best.new_scope) ||
                            (same == n_slot && new_scope == best.new_scope && s->n_tokens < spec->slots[best.slot].n_tokens);
        if (better) best.slot = i, best.new_scope = new_scope, n_slot = same;
    }
    if (n_slot == best.n_same) best.donor = best.slot;
    return best;
}

void ae_spec_reuse(ae_spec *spec, uint32_t i_slot, const int32_t *tokens, uint32_t n_most, const origin *from)
{
    ae_engine *e = spec->engine;
    const ae_kv_key key = ae_engine_seq_key(e, i_slot);
    const uint32_t kept = ae_engine_match(e, key, tokens, n_most), n_source = from->n_source < n_most ? from->n_source : n_most;
    const uint32_t n = kept >= n_source ? ae_engine_adopt(e, i_slot, tokens, n_most)
                                        : ae_engine_share(e, i_slot, from->source, n_source);
    if (!spec->drafter) return;
    const spec_slot *donor = &spec->slots[from->donor];
    const bool idle = ae_spec_is_paused(spec) || (spec->drafter->skips_media && ae_media_among(tokens, n_most));
    ae_draft_begin begin = {i_slot, from->donor, donor->tokens, donor->n_tokens, donor->media, donor->n_media,
                            from->n_same, n, idle, key.scope, from->new_scope};
    for (;;) {
        const uint32_t n_known = spec->drafter->ops->begin(spec->drafter, &begin);
        if (n_known >= begin.n_shared) return;
        /* recurrent layers and windows may have to go back further than the drafter requests */
        if (!begin.idle && n - ae_engine_landing(e, i_slot, n_known) > from->n_again) {
            begin.idle = true;
            continue;
        }
        begin.n_shared = ae_engine_truncate(e, i_slot, n_known);
        if (begin.n_shared == n_known) return;
    }
}

static aerie_status check_media(const ae_spec *spec, const ae_spec_request *request, aerie_error *error)
{
    const ae_engine_options *o = ae_engine_options_get(spec->engine);
    if (request->n_media && request->row)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "rows are asked for (row) of a prompt with rows that are not tokens");
    for (uint32_t i = 0; i < request->n_media; i++) {
        const ae_media *m = &request->media[i];
        const uint32_t before = i ? m[-1].first + m[-1].n : 0, most = o->n_batch > o->n_seqs ? o->n_batch - o->n_seqs : 1;
        if (!m->n || m->first < before || m->n >= request->n_tokens || m->first >= request->n_tokens - m->n)
            return ae_fail(error, AERIE_ERROR_ARGUMENT,
                           "rows %u to %u of the prompt are not tokens; the last one of its %zu must "
                           "be a token", m->first, m->first + m->n, request->n_tokens);
        if (m->group && !ae_engine_may_join(ae_engine_net(spec->engine)))
            return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                           "rows that see each other are given to a model with recurrent layers or with an index");
        if (m->group && m->n > most)
            return ae_fail(error, AERIE_ERROR_LIMIT,
                           "%u rows that see each other must run in one pass, which has room for %u; a "
                           "larger batch (-b) is needed", m->n, most);
    }
    return AERIE_OK;
}

static aerie_status check_request(const ae_spec *spec, const ae_spec_request *request, aerie_error *error)
{
    if (!request->n_tokens || !request->tokens)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the prompt is empty; at least one token is needed");
    if (request->n_tokens >= spec->n_ctx)
        return ae_fail(error, AERIE_ERROR_LIMIT,
                       "the prompt%s has %zu tokens, but the context holds %u and one must be left for the answer; use a "
                       "larger context (-c) or a shorter prompt",
                       request->n_answered ? " with the answer to continue" : "", request->n_tokens, spec->n_ctx);
    if (request->n_answered >= request->n_tokens)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%zu of %zu tokens are answer; at least one of a prompt is needed",
                       request->n_answered, request->n_tokens);
    if (request->n_predict && request->n_answered >= request->n_predict)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%u tokens are asked for, but the answer to continue has %zu already",
                       request->n_predict, request->n_answered);
    const int32_t n_vocab = ae_vocab_n_tokens(spec->vocab);
    if (spec->denoiser) AE_TRY(ae_denoise_check(spec, request, error));
    AE_TRY(check_media(spec, request, error));
    for (size_t i = 0, m = 0; i < request->n_tokens; i++) {
        while (m < request->n_media && request->media[m].first + request->media[m].n <= i) m++;
        const bool is_row = m < request->n_media && i >= request->media[m].first;
        if (!is_row && (request->tokens[i] < 0 || request->tokens[i] >= n_vocab))
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "token %zu of the prompt is %d; 0 to %d are possible", i,
                           request->tokens[i], n_vocab - 1);
    }
    return ae_sampling_check(&request->sampling, (uint32_t)n_vocab, error);
}

static aerie_status not_in_grammar(const ae_spec_request *request, size_t i, aerie_error *error)
{
    return ae_fail(error, AERIE_ERROR_ARGUMENT, "token %zu of the answer to continue, %d, is not one that the "
                       "grammar allows",
                   i - (request->n_tokens - request->n_answered), request->tokens[i]);
}

/* Makes the request's limit of reasoning, after the answer so far; *out is NULL if it has none. */
static aerie_status limit_reasoning(ae_reasoning **out, const ae_spec *spec, const ae_spec_request *request, aerie_error *error)
{
    *out = NULL;
    if (!request->reasoning) return AERIE_OK;
    AE_TRY(ae_reasoning_create(out, spec->vocab, request->reasoning, error));
    for (size_t i = request->n_tokens - request->n_answered; i < request->n_tokens; i++)
        ae_reasoning_advance(*out, request->tokens[i]);
    return AERIE_OK;
}

static aerie_status check_reasoning(const ae_spec *spec, const ae_spec_request *request, aerie_error *error)
{
    ae_reasoning *reasoning;
    AE_TRY(limit_reasoning(&reasoning, spec, request, error));
    ae_reasoning_free(reasoning);
    return AERIE_OK;
}

aerie_status ae_spec_check(const ae_spec *spec, const ae_spec_request *request, aerie_error *error)
{
    AE_TRY(check_request(spec, request, error));
    AE_TRY(check_reasoning(spec, request, error));
    if (!request->grammar) return AERIE_OK;
    ae_matcher matcher; /* only building the matcher shows whether the grammar's beginning fits */
    AE_TRY(ae_matcher_init(&matcher, request->grammar, error));
    aerie_status status = AERIE_OK;
    for (size_t i = request->n_tokens - request->n_answered; status == AERIE_OK && i < request->n_tokens; i++) {
        uint32_t n;
        const char *piece = ae_vocab_piece_view(spec->vocab, request->tokens[i], false, &n);
        if (!n || !ae_matcher_advance(&matcher, piece, n)) status = not_in_grammar(request, i, error);
    }
    if (status == AERIE_OK && request->n_answered && ae_matcher_is_complete(&matcher, matcher.current))
        status = ae_fail(error, AERIE_ERROR_ARGUMENT, "the answer to continue is complete: its grammar allows nothing "
                         "more");
    ae_matcher_free(&matcher);
    return status;
}

/* Gives the slot a constraint at the beginning of the grammar (NULL: none). One left from an earlier request, here or in
 * another free slot, already has masks and is reused. */
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

/* Advances the slot's constraint from the beginning of the grammar over the answer so far. */
static aerie_status follow_answer(ae_constraint *constraint, const ae_spec_request *request, aerie_error *error)
{
    for (size_t i = request->n_tokens - request->n_answered; constraint && i < request->n_tokens; i++)
        if (!ae_constraint_advance(constraint, request->tokens[i])) return not_in_grammar(request, i, error);
    return AERIE_OK;
}

/* Returns where the last turn of a prompt ends, before the position that always runs: a template may write the text after it
 * differently next time. For a prompt without turns, the end of its last whole page. */
static uint32_t last_turn(const ae_spec *spec, const int32_t *tokens, size_t n)
{
    for (size_t i = n - 1; i; i--)
        if (ae_vocab_is_eog(spec->vocab, tokens[i - 1])) return (uint32_t)i;
    return (uint32_t)(n - 1) / AE_KV_PAGE * AE_KV_PAGE;
}

aerie_status ae_spec_start(ae_spec *spec, const ae_spec_request *request, uint32_t *slot, aerie_error *error)
{
    AE_TRY(check_request(spec, request, error));
    if (spec->n_active == spec->n_slots)
        return ae_fail(error, AERIE_ERROR_LIMIT, "all %u sequences are busy", spec->n_slots);
    ae_sampler *sampler;
    AE_TRY(ae_sampler_create(&sampler, &request->sampling, spec->vocab, (uint32_t)ae_vocab_n_tokens(spec->vocab), spec->n_ctx,
                             error));
    origin from = ae_spec_origin(spec, request->adapters, request->tokens, request->n_tokens);
    const uint32_t i = from.slot, n_most = request->row || spec->denoiser ? 0 : (uint32_t)request->n_tokens - 1;
    spec_slot *s = &spec->slots[i];
    from.n_again = ae_spec_again(request->n_predict, (uint32_t)request->n_answered);
    ae_reasoning *reasoning = NULL;
    aerie_status status = constrain(spec, i, request->grammar, error);
    if (status == AERIE_OK) status = follow_answer(s->constraint, request, error);
    if (status == AERIE_OK) status = limit_reasoning(&reasoning, spec, request, error);
    if (status != AERIE_OK) {
        ae_sampler_free(sampler);
        return status;
    }
    if (request->mu) ae_sampler_set_mu(sampler, *request->mu);
    ae_engine_adapt(spec->engine, i, request->adapters);
    if (request->cached.n > from.n_source && n_most)
        (void)ae_spec_write_cached(spec, request->adapters, request->tokens, request->cached, 0, request->cached.n,
                                   request->kv);
    ae_spec_reuse(spec, i, request->tokens, n_most, &from);
    ae_sampler_free(s->sampler);
    ae_reasoning_free(s->reasoning);
    int32_t *tokens = s->tokens;
    const uint64_t number = spec->n_started++;
    *s = (spec_slot){.active = true, .ignore_eog = request->ignore_eog, .row = request->row, .row_user = request->row_user,
                     .reads_logits = request->reads_logits,
                     .number = number, .leader = NO_SLOT,
                     .client = request->client, .group = request->group ? request->group : ~number,
                     .scope = ae_engine_seq_key(spec->engine, i).scope,
                     .tokens = tokens, .n_tokens = request->n_tokens, .n_predict = request->n_predict, .canvas = s->canvas,
                     .media = request->media, .n_media = request->n_media,
                     .n_answered = (uint32_t)request->n_answered, .sampler = sampler,
                     .limits = request->limits, .constraint = s->constraint, .reasoning = reasoning,
                     .start_time = ae_time_now()};
    memcpy(tokens, request->tokens, request->n_tokens * sizeof *tokens);
    s->stats.n_prompt = (uint32_t)(request->n_tokens - request->n_answered);
    s->stats.n_generated = (uint32_t)request->n_answered;
    s->stats.n_cached = ae_kv_n_live(ae_engine_kv(spec->engine), i);
    s->turn = ae_engine_has_state(spec->engine) ? last_turn(spec, request->tokens, request->n_tokens) : 0;
    if (!request->row && !spec->denoiser && from.n_leader >= s->stats.n_cached + AE_KV_PAGE) {
        s->leader = from.leader;
        s->leader_number = spec->slots[from.leader].number;
        s->n_awaited = from.n_leader;
    }
    if (spec->denoiser && (status = ae_denoise_start(spec, i, request, error)) != AERIE_OK) {
        s->active = false;
        return status;
    }
    ae_controller_new_text(&spec->controller);
    spec->order[spec->n_active++] = i;
    *slot = i;
    return AERIE_OK;
}

void ae_spec_forget(ae_spec *spec, uint32_t slot)
{
    (void)ae_engine_truncate(spec->engine, slot, 0);
    spec->slots[slot].n_tokens = 0;
    spec->slots[slot].forgotten = true;
}

aerie_status ae_spec_follow(ae_spec *spec, uint32_t slot, const int32_t *tokens, size_t n_tokens, uint32_t n_predict,
                            ae_sampler *sampler, aerie_error *error)
{
    spec_slot *s = &spec->slots[slot];
    if (n_tokens >= spec->n_ctx || s->active)
        return ae_fail(error, AERIE_ERROR_LIMIT, "sequence %u has no room for a draft after %zu tokens", slot, n_tokens);
    const ae_kv_key key = ae_engine_seq_key(spec->engine, slot); /* a slot that follows has no adapters */
    const uint32_t same = common_tokens(spec, slot, key, tokens, n_tokens), n_most = (uint32_t)n_tokens - 1;
    const uint32_t live = ae_kv_n_live(ae_engine_kv(spec->engine), slot), n = same < n_most ? same : n_most;
    const origin from = {.slot = slot, .donor = slot, .n_same = same, .source = slot, .n_source = n < live ? n : live,
                         .new_scope = s->forgotten, .n_again = AE_SPEC_AGAIN};
    ae_spec_reuse(spec, slot, tokens, n_most, &from);
    ae_engine_snapshot(spec->engine, slot); /* recurrent layers may have to return to this position */
    const ae_acceptance known = s->acceptance;
    int32_t *own = s->tokens;
    *s = (spec_slot){.active = true, .ignore_eog = true, .follows = true, .number = spec->n_started++, .leader = NO_SLOT,
                     .tokens = own, .n_tokens = n_tokens, .n_predict = n_predict, .sampler = sampler,
                     .start_time = ae_time_now()};
    if (same) s->acceptance = known; /* the same text continues */
    memcpy(own + same, tokens + same, (n_tokens - same) * sizeof *own);
    s->stats.n_prompt = (uint32_t)n_tokens;
    s->stats.n_cached = ae_kv_n_live(ae_engine_kv(spec->engine), slot);
    spec->order[spec->n_active++] = slot;
    return AERIE_OK;
}

/* ---- Bytes of the cache, for saved sequences ---------------------------------------------------------------- */

ae_spec_sequence ae_spec_sequence_get(const ae_spec *spec, uint32_t slot)
{
    const spec_slot *s = &spec->slots[slot];
    return (ae_spec_sequence){s->tokens, s->n_tokens, s->stats.n_generated, ae_sampler_mu(s->sampler),
                              ae_engine_adapters(spec->engine, slot)};
}

/* The place where tokens were found: a slot, or the prefix tree (NO_SLOT). */
typedef struct cached_at {
    ae_spec_cached cached;
    uint32_t slot;
} cached_at;

/* Finds the place that holds most of the tokens, with the recurrent state after them or without. */
static cached_at find_in(const ae_spec *spec, ae_kv_key key, const int32_t *tokens, size_t n, bool has_state)
{
    const ae_engine *e = spec->engine;
    const ae_kv *kv = ae_engine_kv(spec->engine);
    const uint32_t most = (uint32_t)(n < spec->n_ctx ? n : spec->n_ctx);
    uint32_t best = has_state ? ae_engine_prefix_saved(e, key, tokens, most) : ae_kv_match(kv, key, tokens, most);
    cached_at at = {{.has_state = has_state}, NO_SLOT};
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        if (ae_kv_n_live(kv, i) <= best) continue;
        const uint32_t common = common_tokens(spec, i, key, tokens, n);
        const uint32_t same = has_state ? ae_engine_seq_saved(e, i, common) : ae_kv_landing(kv, i, common);
        if (same <= best) continue;
        best = same;
        at.slot = i;
    }
    at.cached.n = best;
    at.cached.first = at.slot == NO_SLOT ? ae_kv_prefix_first(kv, key, tokens, best) : ae_kv_saved_first(kv, at.slot, best);
    return at;
}

static cached_at find_cached(const ae_spec *spec, ae_kv_key key, const int32_t *tokens, size_t n)
{
    const cached_at at = find_in(spec, key, tokens, n, true);
    return at.cached.n ? at : find_in(spec, key, tokens, n, false);
}

ae_spec_cached ae_spec_find_cached(const ae_spec *spec, const ae_adapter_set *adapters, const int32_t *tokens, size_t n)
{
    return find_cached(spec, ae_engine_key(spec->engine, adapters), tokens, n).cached;
}

bool ae_spec_read_cached(const ae_spec *spec, const ae_adapter_set *adapters, const int32_t *tokens, ae_spec_cached c,
                         uint32_t begin, uint32_t end, void *out)
{
    const ae_kv_key key = ae_engine_key(spec->engine, adapters);
    const cached_at at = find_in(spec, key, tokens, c.n, c.has_state);
    const ae_engine_saved saved = {c.n, c.first, c.has_state, begin, end};
    if (at.cached.n < c.n || at.cached.first > c.first) return false;
    if (at.slot == NO_SLOT) ae_engine_save_prefix(spec->engine, key, tokens, &saved, out);
    else ae_engine_save_seq(spec->engine, at.slot, &saved, out);
    return true;
}

bool ae_spec_write_cached(ae_spec *spec, const ae_adapter_set *adapters, const int32_t *tokens, ae_spec_cached c,
                          uint32_t begin, uint32_t end, const void *bytes)
{
    const ae_engine_saved saved = {c.n, c.first, c.has_state, begin, end};
    return ae_engine_load_prefix(spec->engine, ae_engine_key(spec->engine, adapters), tokens, &saved, bytes);
}

size_t ae_spec_saved_bytes(const ae_spec *spec, ae_spec_cached c)
{
    return ae_engine_saved_bytes(spec->engine, c.n, c.first, c.has_state);
}

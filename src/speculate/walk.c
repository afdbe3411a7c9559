/* walk.c - after the pass: tokens are drawn down the trees, reported to the caller, and their rows are kept in
 * the KV cache.
 *
 * The backend draws where the draw needs a row alone, since the logits are there. For sequences with a grammar or a limit of
 * reasoning, or with a sampler that looks at earlier tokens (penalties, DRY, mirostat), this file draws from downloaded rows.
 *
 * Owns no state of its own. Invariant: a token is emitted only if it was drawn from the logits of its own prefix (law 1), and
 * the cache keeps the rows of emitted tokens only.
 */
#include "base/os.h"
#include "speculate/speculate_int.h"

/* ---- Drawing ------------------------------------------------------------------------------------------------ */

static uint32_t root_of(const spec_slot *s)
{
    return s->first_chain + s->n_chain - 1;
}

/* Returns the row of the pass from which the i-th token of the walk was drawn. */
static uint32_t drawn_row(const spec_slot *s, uint32_t i)
{
    return i ? s->first_tree + (uint32_t)s->walked.path[i - 1] : root_of(s);
}

/* Returns how many tokens the sequence has room for, counted from the walk's begin; at least one is drawn. */
static uint32_t n_most(const ae_spec *spec, const spec_slot *s)
{
    const size_t room = s->n_before < spec->n_ctx ? spec->n_ctx - s->n_before : 1;
    const uint32_t left = s->n_predict ? s->n_predict - s->stats.n_generated : UINT32_MAX;
    return room < left ? (uint32_t)room : left;
}

/* Returns the row of the pass from which the host's walk draws next. */
static uint32_t next_row(const spec_slot *s)
{
    return s->at < 0 ? root_of(s) : s->first_tree + (uint32_t)s->at;
}

/* Returns whether the limit of reasoning says what the next token is. A grammar that refuses it goes first. */
static bool write_end(const spec_slot *s, int32_t *token)
{
    if (!s->reasoning || (*token = ae_reasoning_forced(s->reasoning, 0)) < 0) return false;
    return !s->constraint || ae_constraint_allows(s->constraint, *token);
}

/* Draws a token, and continues as if it were emitted. A token that is not emitted in the end leaves no trace in the sampler or
 * the constraint, since its sequence has ended. */
static ae_walk_verdict draw_on_host(ae_spec *spec, spec_slot *s, int32_t *token)
{
    const float *logits = ae_engine_logits(spec->engine, next_row(s));
    if (!ae_walk_has_finite(logits, (uint32_t)ae_vocab_n_tokens(spec->vocab))) return AE_WALK_OVERFLOW;
    const bool written = write_end(s, token);
    if (!written)
        *token = s->constraint
                     ? ae_guide_draw(s->constraint, s->sampler, logits, s->tokens, s->n_tokens, !s->ignore_eog, spec->masked)
                     : ae_sampler_draw(s->sampler, logits, s->tokens, s->n_tokens);
    if (*token == AE_GUIDE_NONE || (!s->ignore_eog && ae_vocab_is_eog(spec->vocab, *token))) return AE_WALK_LAST;
    /* the sampler is lent, and the drawn tokens are only a draft */
    if (!s->follows && !written) ae_sampler_accept(s->sampler, *token, s->n_tokens);
    if (s->constraint) ae_constraint_advance(s->constraint, *token);
    if (s->reasoning) ae_reasoning_advance(s->reasoning, *token);
    s->tokens[s->n_tokens++] = *token;
    return s->constraint && ae_constraint_is_complete(s->constraint) ? AE_WALK_LAST : AE_WALK_ON;
}

static bool must_fetch(const ae_spec *spec)
{
    return ae_engine_net(spec->engine)->backend->ops->view_needs_room;
}

/* Continues the walk to its end, or by one token if further rows must be fetched. Writes only the slot, and `masked` if there
 * is a grammar. So slots without a grammar can walk in parallel. */
static void walk_on_host(ae_spec *spec, spec_slot *s)
{
    const double start = ae_time_now();
    const ae_walk_nodes nodes = {s->tree.n, s->tree.token, s->tree.parent, 0};
    const bool one = must_fetch(spec);
    int32_t token = 0;
    do {
        const ae_walk_verdict verdict = draw_on_host(spec, s, &token);
        s->walks = ae_walk_step(&nodes, n_most(spec, s), verdict, token, &s->at, &s->walked);
    } while (s->walks && !one);
    s->stats.sample_seconds += ae_time_now() - start;
}

static void walk_item(void *context, uint32_t item, uint32_t i_worker)
{
    ae_spec *spec = context;
    (void)i_worker;
    walk_on_host(spec, &spec->slots[spec->walking[item]]);
}

/* Lists the slots whose walk on the host continues, with or without a grammar. */
static uint32_t list_walks(const ae_spec *spec, bool with_grammar, uint32_t *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < spec->n_slots; i++)
        if (spec->slots[i].walks && !spec->slots[i].constraint != with_grammar) out[n++] = i;
    return n;
}

/* Runs all walks on the host together. Only the rows that walks visit are downloaded: one depth of all trees at a time. Then
 * the threads draw from them. */
static aerie_status walk_all_on_host(ae_spec *spec, aerie_error *error)
{
    for (;;) {
        const uint32_t n = list_walks(spec, false, spec->walking), n_all = n + list_walks(spec, true, spec->walking + n);
        if (!n_all) return AERIE_OK;
        for (uint32_t i = 0; i < n_all && must_fetch(spec); i++)
            (void)ae_engine_logits(spec->engine, next_row(&spec->slots[spec->walking[i]]));
        AE_TRY(ae_engine_sync(spec->engine, error)); /* draw no token from rows that did not arrive */
        for (uint32_t i = n; i < n_all; i++) walk_on_host(spec, &spec->slots[spec->walking[i]]);
        if (n) ae_engine_net(spec->engine)->backend->ops->host_run(ae_engine_stream(spec->engine), walk_item, spec, n);
    }
}

static aerie_status walk_on_device(ae_spec *spec, uint32_t n, aerie_error *error)
{
    const double start = ae_time_now();
    if (!n) return AERIE_OK;
    for (uint32_t i = 0; i < n; i++) {
        const spec_slot *s = &spec->slots[spec->walking[i]];
        spec->walks[i] = (ae_engine_walk){.sampler = s->sampler, .row = root_of(s), .n = s->tree.n, .n_most = n_most(spec, s),
                                          .position = s->n_tokens, .ends = !s->ignore_eog};
    }
    AE_TRY(ae_engine_draw(spec->engine, spec->walks, n, spec->walked, error));
    const double share = (ae_time_now() - start) / n;
    for (uint32_t i = 0; i < n; i++) {
        spec_slot *s = &spec->slots[spec->walking[i]];
        s->walked = spec->walked[i];
        s->stats.sample_seconds += share;
        for (uint32_t k = 0; k < s->walked.n_drawn; k++) s->tokens[s->n_tokens++] = s->walked.drawn[k];
    }
    return AERIE_OK;
}

/* Fetches the logits that callers read with tokens that the device drew. */
static aerie_status fetch_read(ae_spec *spec, uint32_t n, aerie_error *error)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        const spec_slot *s = &spec->slots[spec->walking[i]];
        for (uint32_t k = 0; s->reads_logits && k < s->walked.n_drawn; k++, any = true)
            (void)ae_engine_logits(spec->engine, drawn_row(s, k));
    }
    return any ? ae_engine_sync(spec->engine, error) : AERIE_OK; /* rows that did not arrive are zeros */
}

aerie_status ae_spec_walk(ae_spec *spec, aerie_error *error)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        spec_slot *s = &spec->slots[i];
        s->walks = false;
        if (!s->active || !s->decoding) continue;
        s->n_before = s->n_tokens;
        if (!s->constraint && !s->reasoning && ae_sampler_draws_from_row(s->sampler)) {
            spec->walking[n++] = i;
            continue;
        }
        s->walks = true;
        s->at = -1;
        s->walked.n_drawn = s->walked.n_path = s->walked.overflowed = 0;
    }
    AE_TRY(walk_on_device(spec, n, error));
    AE_TRY(fetch_read(spec, n, error));
    return walk_all_on_host(spec, error);
}

/* ---- Telling and keeping ------------------------------------------------------------------------------------- */

/* Saves recurrent state where cut_chunk in plan.c ended the chunk. */
static void keep_state(ae_spec *spec, uint32_t i_slot, uint32_t before)
{
    const uint32_t live = ae_kv_n_live(ae_engine_kv(spec->engine), i_slot);
    if (live == spec->slots[i_slot].turn || live / AE_SPEC_SNAPSHOT_EVERY != before / AE_SPEC_SNAPSHOT_EVERY)
        ae_engine_snapshot(spec->engine, i_slot);
}

aerie_status ae_spec_commit(ae_spec *spec, uint32_t i_slot, const int32_t *path, uint32_t n_path, aerie_error *error)
{
    spec_slot *s = &spec->slots[i_slot];
    const uint32_t position = ae_kv_n_live(ae_engine_kv(spec->engine), i_slot);
    if (ae_engine_commit(spec->engine, i_slot, s->n_chain, path, n_path) != AERIE_OK) return ae_spec_out_of_step(i_slot, error);
    keep_state(spec, i_slot, position);
    for (uint32_t i = 0; s->row && i < s->n_chain + n_path; i++) {
        if (position + i < s->n_told) continue;
        const uint32_t row = i < s->n_chain ? s->first_chain + i : s->first_tree + (uint32_t)path[i - s->n_chain];
        AE_TRY(s->row(s->row_user, i_slot, position + i, row, error));
    }
    if (position + s->n_chain + n_path > s->n_told) s->n_told = position + s->n_chain + n_path;
    if (!spec->drafter || !spec->drafter->ops->observe) return AERIE_OK;
    for (uint32_t i = 0; i < s->n_chain; i++) spec->seen_rows[i] = (int32_t)(s->first_chain + i);
    for (uint32_t i = 0; i < n_path; i++) spec->seen_rows[s->n_chain + i] = (int32_t)s->first_tree + path[i];
    const bool skips = spec->drafter->skips_media && position < ae_spec_media_end(s);
    const double start = ae_time_now();
    spec->drafter->ops->observe(spec->drafter,
                                &(ae_draft_seen){i_slot, spec->seen_rows, s->n_chain + n_path, s->tokens, s->n_tokens,
                                                 s->media, s->n_media, ae_spec_is_paused(spec) || skips});
    spec->result.upkeep += ae_time_now() - start;
    return AERIE_OK;
}

/* Emits the i-th drawn token. Returns false if the sequence has ended. */
static bool emit_token(ae_spec *spec, uint32_t i_slot, uint32_t i, uint32_t depth, ae_spec_emit *emit, void *user)
{
    spec_slot *s = &spec->slots[i_slot];
    const int32_t token = s->walked.drawn[i];
    const bool last = i + 1 == s->walked.n_drawn;
    if (token == AE_GUIDE_NONE || (!s->ignore_eog && ae_vocab_is_eog(spec->vocab, token))) {
        ae_spec_finish(spec, s, token == AE_GUIDE_NONE ? AERIE_STOP_DEAD_END : AERIE_STOP_EOG);
        return false;
    }
    s->n_tokens++;
    s->stats.n_generated++;
    const aerie_stop stop = emit(user, i_slot, token, depth, drawn_row(s, i));
    if (stop != AERIE_STOP_NONE) ae_spec_finish(spec, s, stop);
    else if (last && s->constraint && ae_constraint_is_complete(s->constraint)) ae_spec_finish(spec, s, AERIE_STOP_GRAMMAR);
    else if (s->n_predict && s->stats.n_generated >= s->n_predict) ae_spec_finish(spec, s, AERIE_STOP_LENGTH);
    else if (s->n_tokens >= spec->n_ctx) ae_spec_finish(spec, s, AERIE_STOP_CONTEXT);
    return s->active;
}

static void count_drafts(spec_slot *s, uint32_t i_choice, uint32_t n_path, bool missed)
{
    bool drafted = false;
    for (uint32_t i = 0; i < s->tree.n && !drafted; i++) drafted = s->tree.from[i] & AE_FROM_NETWORK;
    s->stats.drafted_by[i_choice] += drafted;
    for (uint32_t d = 0; d < n_path; d++)
        s->stats.accepted_by[i_choice] += (s->tree.from[s->walked.path[d]] & AE_FROM_NETWORK) != 0;
    for (uint32_t i = 0; i < s->tree.n; i++) s->stats.drafted_at[s->tree.depth[i] - 1]++;
    for (uint32_t d = 0; d < n_path; d++) {
        s->stats.tried_at[d]++;
        s->stats.accepted_at[d]++;
    }
    if (missed && ae_tree_goes_on(&s->tree, n_path ? s->walked.path[n_path - 1] : -1)) s->stats.tried_at[n_path]++;
    s->stats.n_drafted += s->tree.n;
    s->stats.n_accepted += n_path;
}

static void tell_controller(ae_spec *spec, const spec_slot *s, uint32_t n_path)
{
    ae_result *r = &spec->result;
    for (uint32_t i = 0; i < s->tree.n; i++) r->n_nodes[s->tree.from[i] & AE_FROM_NGRAM ? AE_KIND_NGRAM : AE_KIND_NETWORK]++;
    for (uint32_t i = 0; i < n_path; i++)
        r->n_accepted[s->tree.from[s->walked.path[i]] & AE_FROM_NGRAM ? AE_KIND_NGRAM : AE_KIND_NETWORK]++;
    if (s->i_chance != UINT32_MAX)
        ae_controller_saw_verdict(&spec->controller, &spec->chances[s->i_chance], s->walked.path, n_path);
}

aerie_status ae_spec_deliver(ae_spec *spec, uint32_t i_slot, ae_spec_emit *emit, void *user, aerie_error *error)
{
    spec_slot *s = &spec->slots[i_slot];
    uint32_t n_path = 0, i = 0;
    bool more = true;
    s->n_tokens = s->n_before;
    for (; more && i < s->walked.n_drawn; i++) {
        if (i < s->walked.n_path) n_path = i + 1;
        more = emit_token(spec, i_slot, i, i < s->walked.n_path ? n_path : 0, emit, user);
    }
    if (more && s->walked.overflowed) { /* this sequence ends; the others continue */
        (void)ae_fail(&s->stats.error, AERIE_ERROR_FORMAT, "the model produced no finite logit for the token at position %zu: "
                      "its weights overflow; use another file of this model, or another tensor type", s->n_tokens);
        ae_spec_finish(spec, s, AERIE_STOP_NONE);
    }
    ae_spec_note_verdict(spec, i_slot, n_path);
    count_drafts(s, spec->drafter ? spec->drafter->i_choice : 0, n_path, i > s->walked.n_path);
    /* a token that ended the sequence without being emitted (EOG) does not belong to the sequence, and neither does its row */
    const uint32_t n_live = ae_kv_n_live(ae_engine_kv(spec->engine), i_slot);
    AE_TRY(
        ae_spec_commit(spec, i_slot, s->walked.path, s->n_tokens < n_live + s->n_chain + n_path ? n_path - 1 : n_path, error));
    tell_controller(spec, s, n_path);
    return AERIE_OK;
}

/* spec_walk.c - after the pass: tokens are drawn down the trees, reported to the caller, and their rows are kept in
 * the KV cache.
 *
 * Owns no state of its own. Invariant: a token is emitted only if it was drawn from the logits of its own prefix (law 1), and
 * the cache keeps the rows of emitted tokens only.
 */
#include <math.h>

#include "base/os.h"
#include "spec/spec_int.h"

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
 * one walk in parallel. The tokens are not reported yet. */
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

void ae_spec_walk(ae_spec *spec)
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

/* See cut_chunk in spec_plan.c. */
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
        s->row(s->row_user, i_slot, position + i,
               i < s->n_chain ? s->first_chain + i : s->first_tree + (uint32_t)path[i - s->n_chain]);
    }
    if (position + s->n_chain + n_path > s->n_told) s->n_told = position + s->n_chain + n_path;
    if (!spec->drafter || !spec->drafter->ops->observe) return AERIE_OK;
    for (uint32_t i = 0; i < s->n_chain; i++) spec->seen_rows[i] = (int32_t)(s->first_chain + i);
    for (uint32_t i = 0; i < n_path; i++) spec->seen_rows[s->n_chain + i] = (int32_t)s->first_tree + path[i];
    const double start = ae_time_now();
    spec->drafter->ops->observe(spec->drafter,
                                &(ae_draft_seen){i_slot, spec->seen_rows, s->n_chain + n_path, s->tokens, s->n_tokens,
                                                 ae_spec_rests(spec)});
    spec->result.upkeep += ae_time_now() - start;
    return AERIE_OK;
}

/* Tells of the i-th drawn token; false when the sequence is finished by it. */
static bool emit_token(ae_spec *spec, uint32_t i_slot, uint32_t i, uint32_t depth, ae_spec_emit *emit, void *user)
{
    spec_slot *s = &spec->slots[i_slot];
    const int32_t token = s->drawn[i];
    const bool last = i + 1 == s->n_drawn;
    if (token == AE_GUIDE_NONE || (!s->ignore_eog && ae_vocab_is_eog(spec->vocab, token))) {
        ae_spec_finish(spec, s, token == AE_GUIDE_NONE ? AERIE_STOP_DEAD_END : AERIE_STOP_EOG);
        return false;
    }
    s->n_tokens++;
    s->stats.n_generated++;
    const aerie_stop stop = emit(user, i_slot, token, depth, ae_engine_logits(spec->engine, s->drawn_row[i]));
    if (stop != AERIE_STOP_NONE) ae_spec_finish(spec, s, stop);
    else if (last && s->constraint && ae_constraint_is_complete(s->constraint)) ae_spec_finish(spec, s, AERIE_STOP_GRAMMAR);
    else if (s->n_predict && s->stats.n_generated >= s->n_predict) ae_spec_finish(spec, s, AERIE_STOP_LENGTH);
    else if (s->n_tokens >= spec->n_ctx) ae_spec_finish(spec, s, AERIE_STOP_CONTEXT);
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

aerie_status ae_spec_deliver(ae_spec *spec, uint32_t i_slot, ae_spec_emit *emit, void *user, aerie_error *error)
{
    spec_slot *s = &spec->slots[i_slot];
    uint32_t n_path = 0, i = 0;
    bool more = true;
    s->n_tokens = s->n_before;
    for (; more && i < s->n_drawn; i++) {
        if (i < s->n_path) n_path = i + 1;
        more = emit_token(spec, i_slot, i, i < s->n_path ? n_path : 0, emit, user);
    }
    if (more && s->overflowed) { /* this sequence ends; the others go on */
        (void)ae_fail(&s->stats.error, AERIE_ERROR_FORMAT, "the model gave no finite logit for the token at position %zu: its "
                      "weights overflow; another file of this model, or another tensor type, is needed", s->n_tokens);
        ae_spec_finish(spec, s, AERIE_STOP_NONE);
    }
    count_drafts(s, n_path, i > s->n_path);
    /* a token that ended the sequence unemitted (EOG) is not part of it, nor is its row */
    const uint32_t n_live = ae_kv_n_live(ae_engine_kv(spec->engine), i_slot);
    AE_TRY(ae_spec_commit(spec, i_slot, s->path, s->n_tokens < n_live + s->n_chain + n_path ? n_path - 1 : n_path, error));
    tell_controller(spec, s, n_path);
    return AERIE_OK;
}

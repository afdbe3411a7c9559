/* plan.c - which rows each sequence brings to a pass, and which pages of the KV cache it may take for them: chunks of pending
 * tokens, waiting for a common prefix, preemption.
 *
 * Owns no state of its own. Invariant: after ae_spec_plan there is a page for every position of the planned chunks.
 */
#include "speculate/speculate_int.h"

/* Returns whether the slot keeps waiting for its leader. When it stops waiting it takes what the cache holds. */
static bool waits(ae_spec *spec, uint32_t i_slot)
{
    spec_slot *s = &spec->slots[i_slot];
    if (s->leader == NO_SLOT) return false;
    const ae_kv *kv = ae_engine_kv(spec->engine);
    const spec_slot *leader = &spec->slots[s->leader];
    const bool runs = leader->active && leader->number == s->leader_number;
    const uint32_t live = runs ? ae_kv_n_live(kv, s->leader) : 0;
    if (runs && live < s->n_awaited && !leader->preempted) return true;
    const origin from = {.donor = runs ? s->leader : i_slot, .n_same = runs ? s->n_awaited : 0, .source = s->leader,
                        .n_source = live < s->n_awaited ? live : s->n_awaited,
                        .n_again = ae_spec_again(s->n_predict, s->stats.n_generated)};
    s->leader = NO_SLOT;
    if (live <= ae_kv_n_live(kv, i_slot) && runs) return false;
    ae_spec_reuse(spec, i_slot, s->tokens, (uint32_t)s->n_tokens - 1, &from);
    s->stats.n_cached = ae_kv_n_live(kv, i_slot);
    return false;
}

/* Preempts the slot: it loses its pages and computes its tokens again later. The prefix tree keeps the pages while it can. */
static void preempt(ae_spec *spec, uint32_t i_slot)
{
    spec_slot *s = &spec->slots[i_slot];
    ae_spec_release(spec, i_slot);
    s->preempted = true;
    s->stats.n_preempted++;
}

/* Returns whether the slot can get the pages for n more positions, in addition to those already planned. Preempts sequences
 * that come after number k in the order, youngest first, until it can. If false, the slot gets no rows in this pass. */
static bool find_pages(ae_spec *spec, uint32_t k, uint32_t n, uint32_t n_planned)
{
    const ae_kv *kv = ae_engine_kv(spec->engine);
    const uint32_t i_slot = spec->order[k];
    for (uint32_t j = spec->n_active; ae_kv_n_missing(kv, i_slot, n) + n_planned > ae_kv_n_available(kv);) {
        while (j > k + 1 && !ae_kv_n_live(kv, spec->order[j - 1])) j--;
        if (j == k + 1) return false;
        preempt(spec, spec->order[--j]);
    }
    return true;
}

/* A preempted sequence resumes when all its tokens fit in addition to the older sequences, each of which may grow by a page. */
static bool may_resume(ae_spec *spec, uint32_t k, uint32_t n_planned)
{
    const ae_kv *kv = ae_engine_kv(spec->engine);
    spec_slot *s = &spec->slots[spec->order[k]];
    const uint32_t need = ae_kv_n_missing(kv, spec->order[k], (uint32_t)s->n_tokens + 1);
    if (need + n_planned + k > ae_kv_n_available(kv) && k) return false;
    const origin from = {.donor = spec->order[k], .n_same = (uint32_t)s->n_tokens,
                         .n_again = ae_spec_again(s->n_predict, s->stats.n_generated)};
    s->preempted = false;
    const uint32_t n_most = s->row && s->n_told < s->n_tokens ? s->n_told : (uint32_t)s->n_tokens - 1;
    ae_spec_reuse(spec, spec->order[k], s->tokens, n_most, &from);
    return true;
}

/* Shortens a chunk of n positions so that it ends where recurrent state is saved: at the end of the prompt's last turn, and
 * every AE_SPEC_SNAPSHOT_EVERY positions. */
static uint32_t cut_chunk(const ae_spec *spec, const spec_slot *s, uint32_t live, uint32_t n)
{
    /* a pass that only reads rows of a source computes nothing else */
    const bool crosses = ae_engine_net(spec->engine)->model->hparams.crosses && s->n_media && live < s->media[0].n;
    if (crosses && n > s->media[0].n - live) n = s->media[0].n - live;
    const uint32_t far = AE_SPEC_SNAPSHOT_EVERY - live % AE_SPEC_SNAPSHOT_EVERY;
    if (!ae_engine_has_state(spec->engine)) return n;
    if (s->turn > live && s->turn - live < n) n = s->turn - live;
    return far < n ? far : n;
}

/* Shortens a chunk of n positions so that it cuts no group of rows that see each other. The chunk ends before the group. If it
 * starts with the group, it takes the whole group if `room` allows that many rows; otherwise the result is 0. */
static uint32_t keep_groups(const spec_slot *s, uint32_t live, uint32_t n, uint32_t room)
{
    for (uint32_t i = 0; i < s->n_media; i++) {
        const uint32_t first = s->media[i].first, end = first + s->media[i].n;
        if (!s->media[i].group || live + n <= first || live + n >= end) continue;
        if (first > live) return first - live;
        return end - live <= room ? end - live : 0;
    }
    return n;
}

/* Returns how many rows prompts may take in a pass in which other sequences decode. */
static uint32_t prompt_rows(const ae_spec *spec, uint32_t n_decoding)
{
    enum { LEAST = 16, UNKNOWN = 64 };
    if (!n_decoding || spec->options.max_pause <= 0) return UINT32_MAX;
    if (spec->row_seconds <= 0) return UNKNOWN;
    const double n = spec->options.max_pause / spec->row_seconds - n_decoding;
    return n < LEAST ? LEAST : n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* Updates the time per row of passes with prompts; it includes a share of the time to read the weights. */
void ae_spec_saw_prompts(ae_spec *spec, uint32_t n_rows, double seconds)
{
    const double row = seconds / n_rows;
    spec->row_seconds = spec->row_seconds > 0 ? 0.6 * spec->row_seconds + 0.4 * row : row;
}

/* Returns how many rows the slot would have in a pass without others; 0: it waits. */
static uint32_t rows_wanted(const ae_spec *spec, uint32_t i_slot)
{
    const ae_kv *kv = ae_engine_kv(spec->engine);
    const spec_slot *s = &spec->slots[i_slot];
    const uint32_t pending = (uint32_t)s->n_tokens - ae_kv_n_live(kv, i_slot);
    return pending < spec->options.n_chunk ? pending : spec->options.n_chunk;
}

/* Shares the pass out among the parties of the active sequences. */
static void share_out(ae_spec *spec)
{
    const ae_kv *kv = ae_engine_kv(spec->engine);
    ae_share *share = &spec->share;
    if (!spec->options.shared) return;
    ae_share_begin(share);
    for (uint32_t k = 0; k < spec->n_active; k++) {
        spec_slot *s = &spec->slots[spec->order[k]];
        s->i_part = NO_SLOT;
        if (s->leader != NO_SLOT || s->preempted) continue;
        s->i_part = ae_share_add(share, s->client, s->group, s->last_pass, ae_kv_n_live(kv, spec->order[k]),
                                 rows_wanted(spec, spec->order[k]));
    }
    ae_share_divide(share);
}

/* Returns how many of n rows the share of the slot's party allows, and sets how many nodes the slot may draft. A slot that was
 * started in this pass has no share yet and gets the rows that are left. */
static uint32_t cut_to_share(ae_spec *spec, spec_slot *s, uint32_t n)
{
    s->n_most_drafts = UINT32_MAX;
    if (!spec->options.shared || s->i_part == NO_SLOT) return n;
    const ae_share_part *part = &spec->share.parts[s->i_part];
    s->n_most_drafts = part->n_drafts;
    return n < part->n_rows ? n : part->n_rows;
}

static void plan(ae_spec *spec)
{
    const ae_kv *kv = ae_engine_kv(spec->engine);
    const uint32_t n_outputs = ae_engine_options_get(spec->engine)->n_outputs;
    uint32_t n_decoding = 0, n_pages = 0;
    for (uint32_t k = 0; k < spec->n_active; k++)
        n_decoding += spec->slots[spec->order[k]].n_tokens == ae_kv_n_live(kv, spec->order[k]) + 1;
    uint32_t n_reserved = n_decoding * AERIE_MAX_DRAFT + spec->n_active;
    if (n_reserved > n_outputs) n_reserved = n_outputs;
    const uint32_t n_all = ae_engine_rows_left(spec->engine);
    uint32_t left = n_all - n_reserved;
    const uint32_t most = prompt_rows(spec, n_decoding);
    if (left > most) left = most;
    uint32_t exports = n_outputs - n_reserved; /* for slots whose rows all have logits */
    uint64_t context = 0;
    spec->round = (ae_round){0};
    spec->result = (ae_result){0};
    spec->draft_seconds = 0;
    spec->n_in_pass = spec->n_proposed = spec->n_trees = spec->n_emitted = 0;
    for (uint32_t k = 0; k < spec->n_active; k++) {
        const uint32_t i = spec->order[k];
        spec_slot *s = &spec->slots[i];
        s->n_chain = 0;
        s->decoding = false;
        s->tree.n = 0;
        s->i_chance = UINT32_MAX;
        s->draft_seconds = 0;
        if (waits(spec, i) || (s->preempted && !may_resume(spec, k, n_pages))) continue;
        const uint32_t pending = (uint32_t)s->n_tokens - ae_kv_n_live(kv, i);
        uint32_t n = cut_to_share(spec, s, pending < spec->options.n_chunk ? pending : spec->options.n_chunk);
        if (!n) continue;
        if (n > left + 1) n = left + 1; /* each slot has one row of its own */
        if (s->row && n > exports + 1) n = exports + 1;
        n = cut_chunk(spec, s, ae_kv_n_live(kv, i), n);
        /* a group may take the room of other prompts and of trees, but not the row that each sequence has */
        n = keep_groups(s, ae_kv_n_live(kv, i), n, n_all - spec->round.n_rows - (spec->n_active - k - 1));
        if (!n || !find_pages(spec, k, n, n_pages)) continue;
        n_pages += ae_kv_n_missing(kv, i, n);
        left = n - 1 < left ? left - (n - 1) : 0;
        if (s->row) exports -= n - 1;
        s->n_chain = n;
        s->decoding = n == pending;
        spec->round.n_rows += n;
        spec->n_in_pass += n > 0;
        spec->round.n_drawing += s->decoding;
        spec->round.prompts = spec->round.prompts || n > 1 || !s->decoding;
        context += s->n_tokens;
    }
    if (spec->n_active) spec->round.n_context = (uint32_t)(context / spec->n_active);
    spec->n_pages_left = ae_kv_n_available(kv) - n_pages;
    const uint32_t n_free = n_all - spec->round.n_rows, n_trees = n_reserved - spec->n_active;
    spec->n_tree_rows = n_trees < n_free ? n_trees : n_free;
}

void ae_spec_plan(ae_spec *spec)
{
    share_out(spec);
    plan(spec);
    if (spec->round.n_rows || !spec->options.shared) return;
    /* no sequence that had a share got pages: this pass is planned without shares, so that the oldest sequence runs */
    for (uint32_t i = 0; i < spec->share.n_parts; i++) spec->share.parts[i].n_rows = spec->share.parts[i].n_wanted;
    plan(spec);
}

#include "spec/spec_int.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "spec/guide.h"

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
    ae_free(spec->order);
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
    spec->order = ae_alloc(spec->n_slots, sizeof *spec->order);
    bool ok = spec->slots && spec->requests && spec->asked && spec->chances && spec->walking && spec->seen_rows && spec->order;
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
        (void)ae_kv_truncate(ae_engine_kv(spec->engine), i, 0); /* to nothing: cannot fail */
    }
    ae_kv_forget_prefixes(ae_engine_kv(spec->engine));
    spec->n_active = 0;
}

static aerie_status out_of_step(uint32_t slot, aerie_error *error)
{
    return ae_fail(error, AERIE_ERROR_INTERNAL, "the KV cache of sequence %u is out of step; please report", slot);
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
    uint32_t n = 0;
    for (uint32_t k = 0; k < spec->n_active; k++)
        if (&spec->slots[spec->order[k]] != s) spec->order[n++] = spec->order[k];
    spec->n_active = n;
}

/* What the cache holds of a sequence goes to the prefix tree. */
static void release(ae_spec *spec, uint32_t i_slot)
{
    ae_kv *kv = ae_engine_kv(spec->engine);
    ae_kv_keep(kv, i_slot, spec->slots[i_slot].tokens);
    (void)ae_kv_truncate(kv, i_slot, 0);
}

void ae_spec_stop(ae_spec *spec, uint32_t slot, aerie_stop stop)
{
    if (!spec->slots[slot].active) return;
    finish(spec, &spec->slots[slot], stop);
    release(spec, slot);
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

/* Whether the slot goes on waiting for its leader. When it need not, it takes what there is. */
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
                        .n_source = live < s->n_awaited ? live : s->n_awaited};
    s->leader = NO_SLOT;
    if (live <= ae_kv_n_live(kv, i_slot) && runs) return false;
    ae_spec_reuse(spec, i_slot, s->tokens, (uint32_t)s->n_tokens - 1, &from);
    s->stats.n_cached = ae_kv_n_live(kv, i_slot);
    return false;
}

/* Takes the slot's pages away; its tokens stay, and will be computed again. The prefix tree keeps the pages while it can. */
static void preempt(ae_spec *spec, uint32_t i_slot)
{
    spec_slot *s = &spec->slots[i_slot];
    release(spec, i_slot);
    s->preempted = true;
    s->stats.n_preempted++;
}

/* Pages of the cache that the slot may take for n more positions, those that planned ones will take left out; sequences that
 * are younger than number k in the order give way. False: it must wait. */
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

/* A sequence that lost its pages comes back when all its tokens fit beside the older ones, each of which may grow by a page. */
static bool may_resume(ae_spec *spec, uint32_t k, uint32_t n_planned)
{
    const ae_kv *kv = ae_engine_kv(spec->engine);
    spec_slot *s = &spec->slots[spec->order[k]];
    const uint32_t need = ae_kv_n_missing(kv, spec->order[k], (uint32_t)s->n_tokens + 1);
    if (need + n_planned + k > ae_kv_n_available(kv) && k) return false;
    const origin from = {.donor = spec->order[k], .n_same = (uint32_t)s->n_tokens};
    s->preempted = false;
    ae_spec_reuse(spec, spec->order[k], s->tokens, s->row && s->n_told < s->n_tokens ? s->n_told : (uint32_t)s->n_tokens - 1, &from);
    return true;
}

/* What each slot brings to the pass: a chunk of what is pending. Room is kept for a tree on every slot that decodes. */
static void plan_chunks(ae_spec *spec)
{
    const ae_kv *kv = ae_engine_kv(spec->engine);
    const uint32_t n_outputs = ae_engine_options_get(spec->engine)->n_outputs;
    uint32_t n_decoding = 0, n_pages = 0;
    for (uint32_t k = 0; k < spec->n_active; k++)
        n_decoding += spec->slots[spec->order[k]].n_tokens == ae_kv_n_live(kv, spec->order[k]) + 1;
    uint32_t n_reserved = n_decoding * AE_TREE_MAX + spec->n_active;
    if (n_reserved > n_outputs) n_reserved = n_outputs;
    uint32_t left = ae_engine_rows_left(spec->engine) - n_reserved;
    uint32_t exports = n_outputs - n_reserved; /* for slots whose rows all have logits */
    uint64_t context = 0;
    spec->round = (ae_round){0};
    spec->result = (ae_result){0};
    spec->draft_seconds = 0;
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
        uint32_t n = pending < spec->options.n_chunk ? pending : spec->options.n_chunk;
        if (n > left + 1) n = left + 1; /* one row is each slot's own */
        if (s->row && n > exports + 1) n = exports + 1;
        if (!find_pages(spec, k, n, n_pages)) continue;
        n_pages += ae_kv_n_missing(kv, i, n);
        left -= n - 1;
        if (s->row) exports -= n - 1;
        s->n_chain = n;
        s->decoding = n == pending;
        spec->round.n_rows += n;
        spec->round.n_drawing += s->decoding;
        spec->round.prompts = spec->round.prompts || n > 1 || !s->decoding;
        context += s->n_tokens;
    }
    if (spec->n_active) spec->round.n_context = (uint32_t)(context / spec->n_active);
    spec->n_pages_left = ae_kv_n_available(kv) - n_pages;
    spec->n_tree_rows = n_reserved - spec->n_active;
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

/* Cuts the trees of n slots to what fits the pass and the KV cache: an equal share each, parents before children. */
static void fit_trees(ae_spec *spec, uint32_t n)
{
    ae_kv *kv = ae_engine_kv(spec->engine);
    uint32_t n_nodes = 0;
    for (uint32_t i = 0; i < n; i++) n_nodes += spec->requests[i].tree->n;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t slot = spec->requests[i].slot, share = n_nodes > spec->n_tree_rows ? spec->n_tree_rows / n : AE_TREE_MAX;
        ae_tree *tree = spec->requests[i].tree;
        if (tree->n > share) tree->n = share;
        const uint32_t chain = ae_kv_n_missing(kv, slot, 1), pages = ae_kv_n_missing(kv, slot, 1 + tree->n) - chain;
        if (pages > spec->n_pages_left) tree->n = 0;
        else spec->n_pages_left -= pages;
    }
}

/* Drafts for all of them together, cut to what is worth verifying. */
static aerie_status propose(ae_spec *spec, bool network, aerie_error *error)
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
    if (network && ae_controller_plan(c, &spec->round, spec->chances, n)) AE_TRY(make_drafts(spec, n, &network_seconds, error));
    if (offers || network_seconds > 0) guide(spec, n);
    ae_controller_choose(c, &spec->round, network_seconds, spec->chances, n);
    spec->draft_seconds = ae_time_now() - start;
    for (uint32_t i = 0; i < n; i++) spec->slots[spec->requests[i].slot].draft_seconds = spec->draft_seconds / n;
    fit_trees(spec, n);
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
    spec_slot *s = &spec->slots[i_slot];
    const uint32_t position = ae_kv_n_live(ae_engine_kv(spec->engine), i_slot);
    if (ae_engine_commit(spec->engine, i_slot, s->n_chain, path, n_path) != AERIE_OK) return out_of_step(i_slot, error);
    for (uint32_t i = 0; s->row && i < s->n_chain + n_path; i++) {
        if (position + i < s->n_told) continue;
        s->row(s->row_user, i_slot, position + i,
               i < s->n_chain ? s->first_chain + i : s->first_tree + (uint32_t)path[i - s->n_chain]);
    }
    if (position + s->n_chain + n_path > s->n_told) s->n_told = position + s->n_chain + n_path;
    if (!spec->drafter || !spec->drafter->ops->observe) return AERIE_OK;
    for (uint32_t i = 0; i < s->n_chain; i++) spec->seen_rows[i] = (int32_t)(s->first_chain + i);
    for (uint32_t i = 0; i < n_path; i++) spec->seen_rows[s->n_chain + i] = (int32_t)s->first_tree + path[i];
    spec->drafter->ops->observe(spec->drafter,
                                &(ae_draft_seen){i_slot, spec->seen_rows, s->n_chain + n_path, s->tokens, s->n_tokens,
                                                 ae_trial_rests(&spec->trial)});
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
    if (more && s->overflowed) { /* this sequence ends; the others go on */
        (void)ae_fail(&s->stats.error, AERIE_ERROR_FORMAT, "the model gave no finite logit for the token at position %zu: its "
                      "weights overflow; another file of this model, or another tensor type, is needed", s->n_tokens);
        finish(spec, s, AERIE_STOP_NONE);
    }
    count_drafts(s, n_path, i > s->n_path);
    /* a token that ended the sequence unemitted (EOG) is not part of it, nor is its row */
    const uint32_t n_live = ae_kv_n_live(ae_engine_kv(spec->engine), i_slot);
    AE_TRY(commit(spec, i_slot, s->path, s->n_tokens < n_live + s->n_chain + n_path ? n_path - 1 : n_path, error));
    tell_controller(spec, s, n_path);
    return AERIE_OK;
}

aerie_status ae_spec_step(ae_spec *spec, ae_spec_emit *emit, void *user, aerie_error *error)
{
    const double begun = ae_time_now();
    uint32_t n_emitted = 0;
    ae_engine_rows_clear(spec->engine);
    plan_chunks(spec);
    /* a drafter without a network, and rounds with prompts, are no part of the trial */
    const bool tried = spec->drafter && !spec->drafter->ops->free && !spec->options.fixed && !spec->round.prompts;
    const bool network = !tried || ae_trial_allows(&spec->trial, spec->round.n_drawing);
    if (spec->drafter) AE_TRY(propose(spec, network, error));
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        if (spec->slots[i].active && spec->slots[i].n_chain) AE_TRY(add_rows(spec, i, error));
    }
    const double start = ae_time_now();
    ae_engine_pass(spec->engine);
    const double seconds = ae_time_now() - start, share = seconds / (spec->n_active ? spec->n_active : 1);
    if (spec->drafter)
        ae_controller_saw_pass(&spec->controller, &spec->round, ae_engine_n_rows(spec->engine), seconds);
    walk_all(spec);
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        spec_slot *s = &spec->slots[i];
        if (!s->active || !s->n_chain) continue;
        if (!s->decoding) {
            AE_TRY(commit(spec, i, NULL, 0, error));
            continue;
        }
        if (s->stats.n_generated == s->n_answered) {
            s->stats.prompt_seconds = ae_time_now() - s->start_time;
        } else {
            s->stats.n_passes++;
            s->stats.target_seconds += share;
            s->stats.draft_seconds += s->draft_seconds;
        }
        const uint32_t n_before = s->stats.n_generated;
        AE_TRY(deliver(spec, i, emit, user, error));
        n_emitted += s->stats.n_generated - n_before;
        if (!s->active) release(spec, i);
    }
    if (spec->drafter) ae_controller_saw_round(&spec->controller, &spec->round, &spec->result);
    if (tried) ae_trial_saw(&spec->trial, network, n_emitted, ae_time_now() - begun);
    return AERIE_OK;
}

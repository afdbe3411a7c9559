/* draft.c - the trees of a pass: which sequences draft, n-gram drafts, the network's drafts, and how many nodes fit.
 *
 * Owns no state of its own. The controller decides what pays to draft and to verify; this file decides what the pass and the KV
 * cache have room for.
 */
#include "base/os.h"
#include "speculate/speculate_int.h"

/* Returns the greatest useful depth of a draft. A draft of that depth emits up to depth + 1 tokens. */
static uint32_t depth_left(const ae_spec *spec, const spec_slot *s)
{
    size_t left = spec->n_ctx - s->n_tokens;
    if (s->n_predict && s->n_predict - s->stats.n_generated < left) left = s->n_predict - s->stats.n_generated;
    return left ? (uint32_t)left - 1 : 0;
}

static float greatest(float a, float b, float c)
{
    const float most = a > b ? a : b;
    return most > c ? most : c;
}

/* Lists the slots that decode one pending token and can use a draft. */
static uint32_t list_requests(ae_spec *spec)
{
    const ae_spec_options *o = &spec->options;
    const uint32_t n_most = ae_engine_max_tree(spec->engine), n_nodes = o->n_nodes && o->n_nodes < n_most ? o->n_nodes : n_most;
    const float floor = ae_controller_floor(&spec->controller, &spec->round);
    uint32_t n = 0;
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        spec_slot *s = &spec->slots[i];
        uint32_t depth = depth_left(spec, s);
        const ae_spec_limits *l = &s->limits;
        if (!s->active || s->n_chain != 1 || !s->decoding || !depth || l->none) continue;
        if (depth > o->n_max) depth = o->n_max;
        if (l->n_max && depth > l->n_max) depth = l->n_max;
        if (depth > n_most) depth = n_most;
        if (depth > s->n_most_drafts) depth = s->n_most_drafts;
        if (!depth) continue;
        const uint32_t n_wide = n_nodes < s->n_most_drafts ? n_nodes : s->n_most_drafts;
        spec->requests[n] = (ae_draft_request){
            .slot = i, .tokens = s->tokens, .n_tokens = s->n_tokens, .media = s->media,
            .n_media = s->n_media, .max_depth = depth,
            .max_nodes = o->shape == AE_DRAFT_CHAIN ? depth : n_wide, .shape = o->shape,
            .top_k = o->top_k, .min_p = greatest(o->p_min, floor, l->p_min), .sampler = s->sampler, .tree = &s->tree};
        spec->chances[n].acceptance = &s->acceptance;
        spec->chances[n].tree = &s->tree;
        spec->chances[n].max_depth = depth;
        spec->chances[n].n_levels = 0;
        s->i_chance = n++;
    }
    return n;
}

/* Sets the origin of the nodes that have none yet. */
static void mark(ae_tree *tree, uint8_t from)
{
    for (uint32_t i = 0; i < tree->n; i++)
        if (!tree->from[i]) tree->from[i] = from;
}

static aerie_status make_ngrams(ae_spec *spec, uint32_t n, aerie_error *error)
{
    const ae_drafter_ops *ops = spec->drafter->ops;
    if (ops->free) AE_TRY(ops->propose(spec->drafter, spec->requests, n, error));
    else if (ops->propose_ngrams) AE_TRY(ops->propose_ngrams(spec->drafter, spec->requests, n, error));
    spec->result.used[AE_KIND_NGRAM] = ops->free || ops->propose_ngrams;
    for (uint32_t i = 0; i < n; i++) mark(spec->requests[i].tree, AE_FROM_NGRAM);
    return AERIE_OK;
}

/* Runs the network for the chosen sequences. *seconds: its time, without running text that it had missed. */
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
    spec->result.used[AE_KIND_NETWORK] = true;
    for (uint32_t i = 0; i < n_asked; i++) {
        spec_slot *s = &spec->slots[spec->asked[i].slot];
        uint32_t *n_levels = &spec->chances[s->i_chance].n_levels;
        mark(&s->tree, AE_FROM_NETWORK);
        *n_levels = 1;
        for (uint32_t j = 0; j < s->tree.n; j++)
            if (s->tree.from[j] & AE_FROM_NETWORK && (uint32_t)s->tree.depth[j] > *n_levels)
                *n_levels = (uint32_t)s->tree.depth[j];
    }
    const ae_draft_cost *cost = &spec->drafter->cost;
    *seconds -= cost->start_seconds;
    spec->result.start += cost->start_seconds;
    if (cost->n_levels)
        ae_controller_saw_draft(&spec->controller, n_asked, cost->n_levels, *seconds - cost->other_seconds,
                                cost->other_seconds);
    return AERIE_OK;
}

/* Replaces a draft by what the limit of reasoning writes next. false: it writes nothing. */
static bool draft_end(const ae_reasoning *reasoning, const ae_draft_request *r)
{
    int32_t node = -1, token = ae_reasoning_forced(reasoning, 0);
    if (token < 0) return false;
    r->tree->n = 0;
    for (uint32_t i = 0; token >= 0 && i < r->max_depth && i < r->max_nodes; token = ae_reasoning_forced(reasoning, ++i))
        if ((node = ae_tree_add(r->tree, node, token, 1)) < 0) break;
    return true;
}

/* Removes tokens that grammars forbid and adds tokens that they, or limits of reasoning, force. */
static void guide(ae_spec *spec, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const ae_draft_request *r = &spec->requests[i];
        const spec_slot *s = &spec->slots[r->slot];
        const bool ends = s->reasoning && draft_end(s->reasoning, r);
        if (!s->constraint && !ends) continue;
        if (s->constraint)
            ae_guide_filter(s->constraint, spec->vocab, !s->ignore_eog, r->max_depth, r->max_nodes, r->tree);
        mark(r->tree, AE_FROM_NGRAM);
        spec->result.used[AE_KIND_NGRAM] = true;
    }
}

/* Cuts the trees of n slots to the rows that the pass has for them; if not all fit, each gets at most an equal share. A tree is
 * dropped if the KV cache has no pages for it; earlier slots get pages first. */
static void fit_trees(ae_spec *spec, uint32_t n)
{
    const uint32_t n_most = ae_engine_max_tree(spec->engine);
    ae_kv *kv = ae_engine_kv(spec->engine);
    uint32_t n_nodes = 0;
    for (uint32_t i = 0; i < n; i++) n_nodes += spec->requests[i].tree->n;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t slot = spec->requests[i].slot, share = n_nodes > spec->n_tree_rows ? spec->n_tree_rows / n : n_most;
        ae_tree *tree = spec->requests[i].tree;
        if (tree->n > share) tree->n = share;
        if (tree->n < spec->slots[slot].limits.n_min) tree->n = 0;
        if (tree->n > n_most) tree->n = n_most;
        const uint32_t chain = ae_kv_n_missing(kv, slot, 1), pages = ae_kv_n_missing(kv, slot, 1 + tree->n) - chain;
        if (pages > spec->n_pages_left) tree->n = 0;
        else spec->n_pages_left -= pages;
    }
}

/* Chooses the network of this round. If it is another one than before, the sequences' acceptance rates start anew. */
static void choose_network(ae_spec *spec)
{
    ae_drafter *d = spec->drafter;
    const uint32_t i = ae_controller_network(&spec->controller, &d->active);
    for (uint32_t k = 0; i != d->i_choice && k < spec->n_slots; k++) spec->slots[k].acceptance = (ae_acceptance){0};
    d->i_choice = i;
}

aerie_status ae_spec_propose(ae_spec *spec, aerie_error *error)
{
    ae_controller *c = &spec->controller;
    const bool ngrams = ae_controller_begin(c, &spec->round);
    choose_network(spec);
    const uint32_t n = list_requests(spec);
    double start = ae_time_now(), ngram_seconds = 0, network_seconds = 0;
    if (!n) return AERIE_OK;
    if (ngrams) {
        AE_TRY(make_ngrams(spec, n, error));
        ngram_seconds = ae_time_now() - start;
        if (spec->result.used[AE_KIND_NGRAM]) ae_controller_saw_ngrams(c, n, ngram_seconds);
    }
    if (ae_controller_plan(c, &spec->round, spec->chances, n)) AE_TRY(make_drafts(spec, n, &network_seconds, error));
    if (ngrams || network_seconds > 0) guide(spec, n);
    for (uint32_t i = 0; i < n; i++) spec->n_proposed += spec->requests[i].tree->n;
    ae_controller_choose(c, &spec->round, network_seconds, spec->chances, n);
    spec->draft_seconds = ae_time_now() - start;
    for (uint32_t i = 0; i < n; i++) spec->slots[spec->requests[i].slot].draft_seconds = spec->draft_seconds / n;
    fit_trees(spec, n);
    return AERIE_OK;
}

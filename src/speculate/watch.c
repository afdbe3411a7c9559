/* watch.c - reports each pass: its input, what the controller expected of it, and the outcome (aerie_measure.h).
 *
 * Owns the list of trees of the pass. What it reports is lent from the slots and the controller. Nothing here changes what they
 * do, so the output's bytes do not depend on whether anybody watches.
 */
#include "base/mem.h"
#include "speculate/speculate_int.h"

_Static_assert(AERIE_PROPOSED_BY_NGRAM == AE_FROM_NGRAM && AERIE_PROPOSED_BY_NETWORK == AE_FROM_NETWORK, "the same bits");

aerie_status ae_spec_watch(ae_spec *spec, aerie_pass_callback *callback, void *user, aerie_error *error)
{
    if (callback && !spec->trees && !(spec->trees = ae_alloc(spec->n_slots, sizeof *spec->trees)))
        return ae_fail_memory(error, "the trees of a pass", spec->n_slots * sizeof *spec->trees);
    spec->watch = callback;
    spec->watch_user = user;
    return AERIE_OK;
}

void ae_spec_note_verdict(ae_spec *spec, uint32_t i_slot, uint32_t n_path)
{
    const spec_slot *s = &spec->slots[i_slot];
    if (!spec->watch) return;
    spec->n_emitted += (uint32_t)(s->n_tokens - s->n_before);
    if (!s->tree.n) return;
    spec->trees[spec->n_trees++] = (aerie_pass_tree){
        .slot = i_slot, .n_nodes = s->tree.n, .tokens = s->tree.token, .parents = s->tree.parent, .probabilities = s->tree.p,
        .proposed_by = s->tree.from, .n_accepted = n_path, .accepted = s->walked.path};
}

/* The controller makes no predictions for passes with prompts, and none when everything is verified. */
static void add_predictions(const ae_spec *spec, aerie_pass *pass)
{
    const ae_controller *c = &spec->controller;
    if (!spec->drafter || spec->options.fixed || pass->prompts || !c->cost.known) return;
    const bool drafted = c->expected > 0; /* the controller had drafts to choose from */
    pass->plain_seconds = c->cost.plain * c->cost.drift;
    pass->expected_seconds = drafted ? c->expected * c->cost.drift : pass->plain_seconds;
    pass->expected_tokens = drafted ? c->tokens : pass->n_drawing;
    pass->budget = c->budget;
    pass->measures_plain = c->plain;
    pass->explores = c->exploring;
}

void ae_spec_tell_pass(ae_spec *spec, double target_seconds)
{
    const ae_round *r = &spec->round;
    const ae_result *result = &spec->result;
    aerie_pass pass = {.number = spec->n_passes++, .n_drawing = r->n_drawing, .n_rows = ae_engine_n_rows(spec->engine),
                       .n_context = r->n_context, .prompts = r->prompts, .n_proposed = spec->n_proposed,
                       .n_tokens = spec->n_emitted, .target_seconds = target_seconds, .draft_seconds = spec->draft_seconds,
                       .seconds = result->seconds, .n_trees = spec->n_trees, .trees = spec->trees};
    if (!spec->watch) return;
    pass.n_sequences = spec->n_in_pass;
    if (spec->drafter) {
        pass.network = spec->drafter->i_choice;
        if (result->used[AE_KIND_NETWORK]) pass.n_asked = spec->controller.n_asked, pass.n_levels = spec->controller.n_levels;
    }
    for (int k = 0; k < 2; k++) pass.n_verified[k] = result->n_nodes[k], pass.n_accepted[k] = result->n_accepted[k];
    add_predictions(spec, &pass);
    spec->watch(spec->watch_user, &pass);
}

/* speculate.c - creates and frees the loop, and runs a pass: plan, propose, run, walk, deliver. See speculate.h.
 *
 * Owns the slots and everything else of speculate_int.h.
 */
#include "base/mem.h"
#include "base/os.h"
#include "draw/best.h"
#include "speculate/denoise.h"
#include "speculate/speculate_int.h"

/* ---- Life ----------------------------------------------------------------------------------------- */

void ae_spec_free(ae_spec *spec)
{
    if (!spec) return;
    ae_denoise_free(spec);
    for (uint32_t i = 0; spec->slots && i < spec->n_slots; i++) {
        ae_free(spec->slots[i].tokens);
        if (!spec->slots[i].follows) ae_sampler_free(spec->slots[i].sampler);
        ae_constraint_free(spec->slots[i].constraint);
        ae_reasoning_free(spec->slots[i].reasoning);
    }
    ae_free(spec->slots);
    ae_token_trie_free(spec->trie);
    ae_free(spec->masked);
    ae_controller_free(&spec->controller);
    ae_free(spec->waves);
    ae_free(spec->requests);
    ae_free(spec->asked);
    ae_free(spec->chances);
    ae_free(spec->walking);
    ae_free(spec->walks);
    ae_free(spec->walked);
    ae_free(spec->seen_rows);
    ae_free(spec->order);
    ae_free(spec->trees);
    ae_free(spec->share_rows);
    ae_share_free(&spec->share);
    if (spec->drafter) spec->drafter->ops->destroy(spec->drafter);
    ae_free(spec);
}

/* Lets a pipeline learn in how many waves its passes run. */
static aerie_status create_waves(ae_spec *spec, aerie_error *error)
{
    const ae_ranks *ranks = ae_engine_net(spec->engine)->ranks;
    if (!ranks || ranks->n_stages < 2) return AERIE_OK;
    spec->waves = ae_alloc(1, sizeof *spec->waves);
    if (!spec->waves) return ae_fail_memory(error, "the times of passes", sizeof *spec->waves);
    spec->waves->n_stages = ranks->n_stages;
    return AERIE_OK;
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
    spec->vocab = options->vocab;
    spec->n_ctx = eo->n_ctx;
    spec->n_slots = eo->n_seqs;
    spec->slots = ae_alloc(spec->n_slots, sizeof *spec->slots);
    spec->requests = ae_alloc(spec->n_slots, sizeof *spec->requests);
    spec->asked = ae_alloc(spec->n_slots, sizeof *spec->asked);
    spec->chances = ae_alloc(spec->n_slots, sizeof *spec->chances);
    spec->walking = ae_alloc(spec->n_slots, sizeof *spec->walking);
    spec->walks = ae_alloc(spec->n_slots, sizeof *spec->walks);
    spec->walked = ae_alloc(spec->n_slots, sizeof *spec->walked);
    spec->seen_rows = ae_alloc(eo->n_batch, sizeof *spec->seen_rows);
    spec->order = ae_alloc(spec->n_slots, sizeof *spec->order);
    spec->share_rows = ae_alloc(spec->n_slots, sizeof *spec->share_rows);
    bool ok = spec->slots && spec->requests && spec->asked && spec->chances && spec->walking && spec->walks && spec->walked &&
              spec->seen_rows && spec->order && spec->share_rows &&
              ae_share_init(&spec->share, spec->n_slots, &options->share, error) == AERIE_OK;
    for (uint32_t i = 0; ok && i < spec->n_slots; i++)
        ok = (spec->slots[i].tokens = ae_alloc((size_t)spec->n_ctx + 1, sizeof(int32_t)));
    if (!ok) {
        ae_spec_free(spec);
        return ae_fail_memory(error, "the sequences' tokens", (size_t)eo->n_seqs * eo->n_ctx * sizeof(int32_t));
    }
    /* tokens that a grammar forces count as n-gram drafts */
    const ae_controller_options co = {.n_max = options->n_max, .n_min = options->n_min, .n_seqs = eo->n_seqs,
                                      .fixed = options->fixed, .ngrams = true, .drafts = drafter && !drafter->ops->free,
                                      .n_networks = drafter ? drafter->n_choices : 0,
                                      .n_warm = drafter && drafter->ops->observe ? AE_SPEC_WARM : 0};
    aerie_status status = ae_controller_init(&spec->controller, &co, error);
    if (status == AERIE_OK) status = create_waves(spec, error);
    if (status == AERIE_OK && ae_engine_net(engine)->model->hparams.denoises) status = ae_denoise_create(spec, error);
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

void ae_spec_stats_now(const ae_spec *spec, uint32_t slot, aerie_stats *stats)
{
    const spec_slot *s = &spec->slots[slot];
    *stats = s->stats;
    if (!s->active) return;
    const double seconds = ae_time_now() - s->start_time;
    if (s->stats.n_generated > s->n_answered) stats->decode_seconds = seconds - stats->prompt_seconds;
    else stats->prompt_seconds = seconds;
}

const aerie_stats *ae_spec_stats(const ae_spec *spec, uint32_t slot)
{
    return &spec->slots[slot].stats;
}

ae_drafter *ae_spec_drafter(const ae_spec *spec)
{
    return spec->drafter;
}

ae_engine *ae_spec_engine(const ae_spec *spec)
{
    return spec->engine;
}

const ae_vocab *ae_spec_vocab(const ae_spec *spec)
{
    return spec->vocab;
}

void ae_spec_reset(ae_spec *spec)
{
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        spec->slots[i].active = false;
        spec->slots[i].n_tokens = 0;
        ae_engine_adapt(spec->engine, i, NULL);
    }
    ae_engine_forget_prefixes(spec->engine);
    spec->n_active = 0;
}

aerie_status ae_spec_out_of_step(uint32_t slot, aerie_error *error)
{
    return ae_fail(error, AERIE_ERROR_INTERNAL, "the KV cache of sequence %u is out of step; please report", slot);
}

/* ---- One pass ---------------------------------------------------------------------------------------------- */

void ae_spec_leave(ae_spec *spec, spec_slot *s)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < spec->n_active; k++)
        if (&spec->slots[spec->order[k]] != s) spec->order[n++] = spec->order[k];
    spec->n_active = n;
    s->active = false;
}

void ae_spec_finish(ae_spec *spec, spec_slot *s, aerie_stop stop)
{
    s->media = NULL;
    s->n_media = 0;
    s->stats.stop = stop;
    s->stats.decode_seconds = ae_time_now() - s->start_time - s->stats.prompt_seconds;
    if (s->constraint) {
        const ae_constraint_stats *c = ae_constraint_stats_get(s->constraint);
        s->stats.n_masks = c->n_masks, s->stats.n_mask_hits = c->n_hits, s->stats.n_mask_checks = c->n_checks;
        s->stats.mask_seconds = c->seconds;
    }
    const uint32_t slot = (uint32_t)(s - spec->slots);
    if (spec->drafter && spec->drafter->ops->end && !s->follows)
        spec->drafter->ops->end(spec->drafter, &(ae_draft_end){slot, s->scope, s->tokens, s->n_tokens});
    ae_spec_leave(spec, s);
}

void ae_spec_release(ae_spec *spec, uint32_t i_slot)
{
    if (spec->denoiser) return; /* the cache holds nothing of the sequence */
    if (spec->slots[i_slot].follows) return; /* the next ae_spec_follow reuses its positions */
    ae_engine_keep(spec->engine, i_slot, spec->slots[i_slot].tokens);
}

void ae_spec_stop(ae_spec *spec, uint32_t slot, aerie_stop stop)
{
    if (!spec->slots[slot].active) return;
    ae_spec_finish(spec, &spec->slots[slot], stop);
    ae_spec_release(spec, slot);
}

uint32_t ae_spec_n_done(const ae_spec *spec, uint32_t slot)
{
    if (spec->denoiser) return (uint32_t)spec->slots[slot].n_tokens; /* every step computes the whole text */
    return ae_kv_n_live(ae_engine_kv(spec->engine), slot);
}

static aerie_status add_rows(ae_spec *spec, uint32_t i_slot, aerie_error *error)
{
    spec_slot *s = &spec->slots[i_slot];
    const uint32_t live = ae_kv_n_live(ae_engine_kv(spec->engine), i_slot);
    const ae_export exported = s->row ? AE_EXPORT_ALL : s->decoding ? AE_EXPORT_LAST : AE_EXPORT_NONE;
    AE_TRY(ae_engine_add_chain(spec->engine, i_slot, s->tokens + live, s->n_chain, exported, &s->first_chain, error));
    if (s->n_chain)
        AE_TRY(ae_engine_add_media(spec->engine, s->first_chain, s->n_chain, live, s->media, s->n_media, error));
    if (s->tree.n) {
        AE_TRY(ae_engine_add_tree(spec->engine, i_slot, &s->tree, &s->first_tree, error));
        ae_engine_turn_media(spec->engine, s->first_tree, s->tree.n, live + s->n_chain, s->media, s->n_media);
    }
    return AERIE_OK;
}

/* Waits until a pass that took `seconds` has lasted as long as the options demand. Returns its time including the wait. */
static double wait_least(const ae_spec *spec, double seconds)
{
    const ae_spec_options *o = &spec->options;
    const uint32_t n_rows = ae_engine_n_rows(spec->engine);
    const double least = o->least_seconds + (n_rows ? n_rows - 1 : 0) * o->least_row_seconds, begun = ae_time_now();
    if (least <= seconds) return seconds;
    while (ae_time_now() - begun < least - seconds) continue;
    return least;
}

/* Records how many rows of this pass belonged to each sequence. */
static void saw_shares(ae_spec *spec, double seconds)
{
    if (!spec->options.shared) return;
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        spec_slot *s = &spec->slots[i];
        if (!s->active || s->i_part == NO_SLOT) continue;
        spec->share_rows[s->i_part] = s->n_chain + s->tree.n;
        if (s->n_chain) s->last_pass = spec->share.n_divided;
    }
    ae_share_saw(&spec->share, spec->share_rows, seconds);
}

/* Returns how many best candidates of a row the draws of this pass need; 0: some draw reads whole rows. */
static uint32_t candidates_wanted(const ae_spec *spec)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        const spec_slot *s = &spec->slots[i];
        if (!s->active || !s->n_chain || (!s->decoding && !s->row)) continue;
        if (s->row || s->reads_logits || s->constraint || s->reasoning || !ae_sampler_draws_from_row(s->sampler))
            return 0;
        ae_noise noise;
        const bool is_noise = ae_draw_is_noise(ae_sampler_plain(s->sampler), &noise);
        const uint32_t n = is_noise ? 1 : ae_draw_wants(ae_sampler_plain(s->sampler));
        if (!n) return 0;
        if (is_noise) ae_engine_expect_noise(spec->engine, i, &noise);
        most = n > most ? n : most;
    }
    return most;
}

/* Runs the pass, in a pipeline in as many waves as have been fastest. */
static aerie_status run_pass(ae_spec *spec, aerie_error *error)
{
    const uint32_t n_rows = ae_engine_n_rows(spec->engine), most = ae_engine_most_waves(spec->engine);
    if (!spec->waves || most < 2) return ae_engine_pass(spec->engine, error);
    const uint32_t n = ae_waves_choose(spec->waves, n_rows, most);
    ae_engine_cut(spec->engine, n);
    AE_TRY(ae_engine_pass(spec->engine, error));
    ae_waves_saw(spec->waves, n_rows, n, ae_engine_pass_seconds(spec->engine));
    return AERIE_OK;
}

aerie_status ae_spec_step(ae_spec *spec, ae_spec_emit *emit, void *user, aerie_error *error)
{
    const double begun = ae_time_now();
    uint32_t n_released = 0;
    if (spec->denoiser) return ae_denoise_step(spec, emit, user, error);
    ae_engine_rows_clear(spec->engine);
    ae_spec_plan(spec);
    if (spec->drafter) AE_TRY(ae_spec_propose(spec, error));
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        if (spec->slots[i].active && spec->slots[i].n_chain) AE_TRY(add_rows(spec, i, error));
    }
    ae_engine_expect(spec->engine, candidates_wanted(spec));
    AE_TRY(run_pass(spec, error));
    const double seconds = wait_least(spec, ae_engine_pass_seconds(spec->engine));
    const double share = seconds / (spec->n_active ? spec->n_active : 1);
    if (spec->round.prompts) ae_spec_saw_prompts(spec, ae_engine_n_rows(spec->engine), seconds);
    saw_shares(spec, seconds);
    if (spec->drafter)
        ae_controller_saw_pass(&spec->controller, &spec->round, ae_engine_n_rows(spec->engine), seconds);
    AE_TRY(ae_spec_walk(spec, error));
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        spec_slot *s = &spec->slots[i];
        if (!s->active || !s->n_chain) continue;
        if (!s->decoding) {
            AE_TRY(ae_spec_commit(spec, i, NULL, 0, error));
            continue;
        }
        if (s->stats.n_generated == s->n_answered) {
            s->stats.prompt_seconds = ae_time_now() - s->start_time;
        } else {
            s->stats.n_passes++;
            s->stats.target_seconds += share;
            s->stats.draft_seconds += s->draft_seconds;
        }
        AE_TRY(ae_spec_deliver(spec, i, emit, user, error));
        if (!s->active) ae_spec_release(spec, i);
        n_released += !s->active;
    }
    /* the prefix tree now holds pages of these sequences, so a failed commit must be reported here */
    if (n_released) AE_TRY(ae_engine_sync(spec->engine, error));
    spec->result.seconds = ae_time_now() - begun;
    if (spec->drafter) ae_controller_saw_round(&spec->controller, &spec->round, &spec->result);
    ae_spec_tell_pass(spec, seconds);
    return AERIE_OK;
}

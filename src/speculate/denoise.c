/* denoise.c - see denoise.h: what a canvas is made of, its schedule, a step of all slots, and the tokens that it makes known.
 * */
#include "speculate/denoise.h"

#include <string.h>

#include "base/math/fmath.h"
#include "base/math/rng.h"
#include "base/mem.h"
#include "base/os.h"
#include "draw/walk.h"

#define MASKED (-1)
#define STEPS 128        /* steps of an answer, unless the request says otherwise */
#define BLOCK_LENGTH 32
#define EPS 0.001f

/* ---- Life --------------------------------------------------------------------------------------------------------- */

void ae_denoise_free(ae_spec *spec)
{
    struct ae_denoiser *d = spec->denoiser;
    for (uint32_t i = 0; spec->slots && i < spec->n_slots; i++) {
        if (spec->slots[i].canvas) ae_free(spec->slots[i].canvas->wanted);
        ae_free(spec->slots[i].canvas);
    }
    if (!d) return;
    ae_free(d->text);
    ae_free(d->exported);
    ae_free(d->at);
    ae_free(d->drawn);
    ae_free(d->score);
    ae_free(d->row);
    ae_free(d->seeing);
    ae_free(d);
    spec->denoiser = NULL;
}

aerie_status ae_denoise_create(ae_spec *spec, aerie_error *error)
{
    const ae_model *m = ae_engine_net(spec->engine)->model;
    const uint32_t n_ctx = spec->n_ctx, n_vocab = (uint32_t)ae_vocab_n_tokens(spec->vocab);
    struct ae_denoiser *d = spec->denoiser = ae_alloc(1, sizeof *d);
    if (!d) return ae_fail_memory(error, "the answers that are denoised", sizeof *d);
    d->mask = m->hparams.mask_token;
    d->shifts = m->hparams.shifts_logits;
    d->n_vocab = n_vocab;
    d->n_outputs = ae_engine_options_get(spec->engine)->n_outputs;
    d->text = ae_alloc(n_ctx, sizeof *d->text);
    d->exported = ae_alloc(n_ctx, 1);
    d->at = ae_alloc(n_ctx, sizeof *d->at);
    d->drawn = ae_alloc(n_ctx, sizeof *d->drawn);
    d->score = ae_alloc(n_ctx, sizeof *d->score);
    d->row = ae_alloc(n_vocab, sizeof *d->row);
    bool ok = d->text && d->exported && d->at && d->drawn && d->score && d->row;
    for (uint32_t i = 0; ok && i < spec->n_slots; i++) {
        struct ae_canvas *c = spec->slots[i].canvas = ae_alloc(1, sizeof *c);
        ok = c && (c->wanted = ae_alloc(n_ctx, 1));
    }
    return ok ? AERIE_OK : ae_fail_memory(error, "the answers that are denoised", (size_t)spec->n_slots * n_ctx);
}

/* ---- Requests ----------------------------------------------------------------------------------------------------- */

static aerie_status check_settings(const aerie_diffusion *d, aerie_error *error)
{
    enum { MOST = 1 << 20 };
    if (d->n_steps > MOST)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%u denoising steps are asked for; 1 to %d are possible", d->n_steps, MOST);
    if (d->algorithm > AERIE_DIFFUSION_CONFIDENCE)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "diffusion algorithm %u is unknown; 0 to 4 are possible", d->algorithm);
    if (!(d->eps >= 0 && d->eps < 1)) /* also NaN */
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the epsilon of the timesteps is %g; a number from 0 to below 1 is needed",
                       (double)d->eps);
    if (d->eps > 0 && d->block_length)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "an epsilon (timesteps for the whole answer) and a block length (%u: one "
                       "block after the other) are both given; one of them is needed", d->block_length);
    if (!(d->cfg_scale >= 0 && d->cfg_scale <= 1000))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the scale of guidance is %g; 0 to 1000 are possible",
                       (double)d->cfg_scale);
    if (!(d->alg_temp >= 0 && d->alg_temp <= 1000))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the temperature of the diffusion algorithm is %g; 0 to 1000 are possible",
                       (double)d->alg_temp);
    return AERIE_OK;
}

aerie_status ae_denoise_check(const ae_spec *spec, const ae_spec_request *request, aerie_error *error)
{
    const char *arch = ae_engine_net(spec->engine)->model->hparams.arch;
    ae_draw draw;
    if (spec->denoiser->mask < 0)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                       "a model of architecture %s needs a mask token to generate text, but its file does not name one "
                       "(tokenizer.ggml.mask_token_id); set it with --override-kv tokenizer.ggml.mask_token_id=int:ID", arch);
    if (request->grammar)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                       "a grammar (or a schema, or forced tool calls) needs a model that generates from left to right; one of "
                       "architecture %s fills its answer in any order", arch);
    if (request->reasoning)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                       "a reasoning budget needs a model that generates from left to right; one of architecture %s fills its "
                       "answer in any order", arch);
    if (request->n_media)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "a model of architecture %s reads tokens alone, no pictures", arch);
    if (request->row)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                       "rows are asked for (row), but a model of architecture %s computes all of "
                       "them anew in every step", arch);
    ae_draw_plan(&draw, &request->sampling, (uint32_t)ae_vocab_n_tokens(spec->vocab));
    if (!ae_draw_is_from_row(&draw))
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                       "penalties, DRY and mirostat need the preceding tokens, which a model of architecture %s does not know "
                       "when it draws; use temperature, top-k, top-p, min-p or the other steps instead",
                       arch);
    return check_settings(request->diffusion, error);
}

static uint32_t steps_of_block(const struct ae_canvas *c)
{
    const uint32_t n = c->how.n_steps / c->n_blocks + (c->i_block < c->how.n_steps % c->n_blocks);
    return n ? n : 1;
}

/* Begins block i_block, which must exist. */
static void begin_block(struct ae_canvas *c)
{
    const uint32_t length = c->how.block_length ? c->how.block_length : c->end - c->begin;
    c->block = c->begin + c->i_block * length;
    c->block_end = c->end - c->block < length ? c->end : c->block + length;
    c->n_masked = c->block_end - c->block;
    c->step = 0;
    c->n_steps = steps_of_block(c);
}

aerie_status ae_denoise_start(ae_spec *spec, uint32_t i_slot, const ae_spec_request *request, aerie_error *error)
{
    spec_slot *s = &spec->slots[i_slot];
    struct ae_denoiser *d = spec->denoiser;
    struct ae_canvas *c = s->canvas;
    const uint32_t n_prompt = (uint32_t)s->n_tokens, room = spec->n_ctx - n_prompt;
    const uint32_t n = request->n_predict && request->n_predict < room ? request->n_predict : room;
    uint8_t *wanted = c->wanted;
    const size_t bytes = (size_t)d->n_outputs * d->n_vocab * sizeof *d->seeing;
    if (request->diffusion->cfg_scale > 0 && !d->seeing &&
        !(d->seeing = ae_alloc((size_t)d->n_outputs * d->n_vocab, sizeof *d->seeing)))
        return ae_fail_memory(error, "the logits of classifier-free guidance", bytes);
    *c = (struct ae_canvas){.how = *request->diffusion, .user = request->canvas_user, .id = request->canvas_id,
                            .begin = n_prompt, .end = n_prompt + n, .wanted = wanted};
    if (!c->how.n_steps) c->how.n_steps = STEPS;
    if (!c->how.block_length && c->how.eps <= 0) {
        if (d->shifts) c->how.eps = EPS;
        else c->how.block_length = BLOCK_LENGTH;
    }
    if (c->how.block_length > n) c->how.block_length = n;
    c->n_blocks = c->how.block_length ? (n + c->how.block_length - 1) / c->how.block_length : 1;
    for (uint32_t i = c->begin; i < c->end; i++) s->tokens[i] = MASKED;
    begin_block(c);
    return AERIE_OK;
}

/* ---- The schedule --------------------------------------------------------------------------------------------------- */

/* Returns the noise of a choice among positions. It never coincides with a draw's, whose counter has a token as its second
 * half. */
static double uniform(const spec_slot *s, uint64_t key)
{
    uint32_t bits[4];
    ae_philox(ae_sampler_params(s->sampler)->seed, key, UINT64_MAX, bits);
    return ae_uniform_open(bits[0]);
}

static double gumbel(const spec_slot *s, uint64_t key)
{
    return -ae_log(-ae_log(uniform(s, key)));
}

/* Returns the counter of the noise: the position, and the number of the step from 1 on. */
static uint64_t key_of(const struct ae_canvas *c, uint32_t position)
{
    return position | (uint64_t)(c->n_before + c->step + 1) << 32;
}

/* Returns the share of the masked positions that this step keeps. */
static float part_of(const struct ae_canvas *c)
{
    const float t = 1.0f - (float)c->step / (float)c->n_steps * (1.0f - c->how.eps);
    const float s = 1.0f - (float)(c->step + 1) / (float)c->n_steps * (1.0f - c->how.eps);
    return c->step + 1 < c->n_steps ? 1.0f - s / t : 1.0f;
}

static uint32_t list_masked(const spec_slot *s, uint32_t *at)
{
    uint32_t n = 0;
    for (uint32_t i = s->canvas->block; i < s->canvas->block_end; i++)
        if (s->tokens[i] == MASKED) at[n++] = i;
    return n;
}

/* Sorts the k highest scores of n to the front of d->at and d->drawn; equal scores are ordered by position. */
static void put_best_first(struct ae_denoiser *d, uint32_t k, uint32_t n)
{
    for (uint32_t i = 0; i < k; i++) {
        uint32_t best = i;
        for (uint32_t j = i + 1; j < n; j++)
            if (d->score[j] > d->score[best] || (d->score[j] == d->score[best] && d->at[j] < d->at[best])) best = j;
        const double score = d->score[i];
        const uint32_t at = d->at[i];
        const int32_t drawn = d->drawn[i];
        d->score[i] = d->score[best], d->at[i] = d->at[best], d->drawn[i] = d->drawn[best];
        d->score[best] = score, d->at[best] = at, d->drawn[best] = drawn;
    }
}

/* Marks the positions for which this step draws. Positions that are chosen without logits are chosen now. Returns false if the
 * step keeps nothing. */
static bool plan_step(struct ae_denoiser *d, spec_slot *s)
{
    struct ae_canvas *c = s->canvas;
    const uint32_t n = list_masked(s, d->at);
    const bool blocks = c->how.block_length > 0;
    const uint32_t even = c->n_masked / c->n_steps + (c->step < c->n_masked % c->n_steps);
    const uint32_t count = blocks ? even < n ? even : n : (uint32_t)((float)n * part_of(c));
    const double chance = blocks ? n ? (double)count / n : 0 : (double)part_of(c);
    const bool last = c->step + 1 == c->n_steps;
    memset(c->wanted, 0, c->end);
    c->n_keep = 0;
    if (c->how.algorithm == AERIE_DIFFUSION_ORIGIN) {
        for (uint32_t i = 0; i < n; i++)
            if (last || uniform(s, key_of(c, d->at[i])) < chance) c->wanted[d->at[i]] = 1, c->n_keep++;
        return c->n_keep > 0;
    }
    c->n_keep = last ? n : count;
    if (c->how.algorithm == AERIE_DIFFUSION_RANDOM) {
        for (uint32_t i = 0; i < n; i++) d->score[i] = uniform(s, key_of(c, d->at[i])), d->drawn[i] = 0;
        put_best_first(d, c->n_keep, n);
        for (uint32_t i = 0; i < c->n_keep; i++) c->wanted[d->at[i]] = 1;
    } else {
        for (uint32_t i = 0; i < n; i++) c->wanted[d->at[i]] = 1;
    }
    return c->n_keep > 0;
}

static void next_step(struct ae_canvas *c)
{
    if (++c->step < c->n_steps) return;
    c->n_before += c->n_steps;
    c->i_block++;
    if (c->i_block < c->n_blocks) begin_block(c);
}

/* ---- A step --------------------------------------------------------------------------------------------------------- */

static void tell_canvas(const spec_slot *s)
{
    const struct ae_canvas *c = s->canvas;
    uint32_t n_all = 0;
    if (!c->how.canvas) return;
    for (struct ae_canvas k = {.how = c->how, .n_blocks = c->n_blocks}; k.i_block < k.n_blocks; k.i_block++)
        n_all += steps_of_block(&k);
    c->how.canvas(c->user, c->id, c->n_before + c->step, n_all, s->tokens, c->begin, c->end);
}

/* Adds the slot's text to the pass. blind: without its prompt. */
static aerie_status add_text(ae_spec *spec, uint32_t i_slot, bool blind, aerie_error *error)
{
    spec_slot *s = &spec->slots[i_slot];
    struct ae_denoiser *d = spec->denoiser;
    struct ae_canvas *c = s->canvas;
    memset(d->exported, 0, c->end);
    for (uint32_t i = 0; i < c->end; i++) {
        d->text[i] = s->tokens[i] == MASKED || (blind && i < c->begin) ? d->mask : s->tokens[i];
        if (c->wanted[i]) d->exported[d->shifts && i ? i - 1 : i] = 1;
    }
    return ae_engine_add_whole(spec->engine, i_slot, d->text, c->end, d->exported, &c->first, error);
}

/* Returns the logits of a position, whose row must have exported them. */
static const float *logits_of(ae_spec *spec, const struct ae_canvas *c, uint32_t position)
{
    return ae_engine_logits(spec->engine, c->first + (spec->denoiser->shifts && position ? position - 1 : position));
}

/* Adds the texts of the slots that run; those that waited longest come first, as many as fit. */
static aerie_status add_texts(ae_spec *spec, uint32_t *n_run, aerie_error *error)
{
    const ae_kv *kv = ae_engine_kv(spec->engine);
    uint32_t n_pages = 0;
    *n_run = 0;
    for (uint32_t i = 0; i < spec->n_slots; i++) spec->slots[i].canvas->runs = false;
    for (;;) {
        uint32_t best = NO_SLOT;
        for (uint32_t k = 0; k < spec->n_active; k++) {
            const uint32_t i = spec->order[k];
            if (!spec->slots[i].canvas->runs && (best == NO_SLOT || spec->slots[i].last_pass < spec->slots[best].last_pass))
                best = i;
        }
        if (best == NO_SLOT) return AERIE_OK;
        spec_slot *s = &spec->slots[best];
        struct ae_canvas *c = s->canvas;
        const uint32_t missing = ae_kv_n_missing(kv, best, c->end);
        if (*n_run && (c->end > ae_engine_rows_left(spec->engine) || n_pages + missing > ae_kv_n_available(kv)))
            return AERIE_OK;
        while (!plan_step(spec->denoiser, s)) next_step(c); /* the last step of a block keeps all positions that are left */
        tell_canvas(s);
        AE_TRY(add_text(spec, best, false, error));
        n_pages += missing;
        s->last_pass = spec->n_passes + 1;
        c->runs = true;
        ++*n_run;
    }
}

static void drop_rows(ae_spec *spec)
{
    for (uint32_t i = 0; i < spec->n_slots; i++)
        if (spec->slots[i].canvas->runs) (void)ae_engine_truncate(spec->engine, i, 0);
}

/* Returns the row of logits from which a token is drawn. seen: with guidance, the logits that saw the prompt, while `logits`
 * did not; otherwise NULL. */
static const float *guided_row(struct ae_denoiser *d, const struct ae_canvas *c, const float *logits, const float *seen)
{
    const float by = c->how.cfg_scale + 1.0f;
    if (!seen) memcpy(d->row, logits, d->n_vocab * sizeof *d->row);
    for (uint32_t i = 0; seen && i < d->n_vocab; i++) d->row[i] = logits[i] + by * (seen[i] - logits[i]);
    d->row[d->mask] = -INFINITY; /* a known token is never a mask */
    return d->row;
}

static double score_of(const spec_slot *s, const float *row, int32_t token, uint64_t key)
{
    const struct ae_canvas *c = s->canvas;
    const ae_sureness kind = c->how.algorithm == AERIE_DIFFUSION_ENTROPY  ? AE_SURENESS_ENTROPY
                             : c->how.algorithm == AERIE_DIFFUSION_MARGIN ? AE_SURENESS_MARGIN
                                                                          : AE_SURENESS_PROBABILITY;
    if (c->how.algorithm == AERIE_DIFFUSION_ORIGIN || c->how.algorithm == AERIE_DIFFUSION_RANDOM) return 0; /* chosen already */
    const double sure = ae_draw_sureness(ae_sampler_plain(s->sampler), ae_sampler_room(s->sampler), row, token, kind);
    return c->how.alg_temp > 0 ? sure / (double)c->how.alg_temp + gumbel(s, key) : sure;
}

/* Draws for the slot's positions and keeps the best. Returns false if the model gave no finite logit. */
static bool draw_slot(ae_spec *spec, spec_slot *s, const float *seen)
{
    struct ae_denoiser *d = spec->denoiser;
    struct ae_canvas *c = s->canvas;
    uint32_t n = 0;
    for (uint32_t i = c->block; i < c->block_end; i++) {
        if (!c->wanted[i]) continue;
        const float *row = guided_row(d, c, logits_of(spec, c, i), seen ? seen + (size_t)n * d->n_vocab : NULL);
        if (!ae_walk_has_finite(row, d->n_vocab)) return false;
        d->at[n] = i;
        d->drawn[n] = ae_sampler_draw(s->sampler, row, NULL, key_of(c, i));
        d->score[n] = score_of(s, row, d->drawn[n], key_of(c, i));
        n++;
    }
    put_best_first(d, c->n_keep < n ? c->n_keep : n, n);
    for (uint32_t i = 0; i < c->n_keep && i < n; i++) s->tokens[d->at[i]] = d->drawn[i];
    next_step(c);
    return true;
}

/* Reports the tokens that have no masked position before them. */
static void emit_known(ae_spec *spec, uint32_t i_slot, ae_spec_emit *emit, void *user)
{
    spec_slot *s = &spec->slots[i_slot];
    while (s->active && s->n_tokens < s->canvas->end && s->tokens[s->n_tokens] != MASKED) {
        const int32_t token = s->tokens[s->n_tokens];
        if (!s->ignore_eog && ae_vocab_is_eog(spec->vocab, token)) {
            ae_spec_finish(spec, s, AERIE_STOP_EOG);
            return;
        }
        s->n_tokens++;
        s->stats.n_generated++;
        const aerie_stop stop = emit(user, i_slot, token, 0, 0);
        if (stop != AERIE_STOP_NONE) ae_spec_finish(spec, s, stop);
        else if (s->n_predict && s->stats.n_generated >= s->n_predict) ae_spec_finish(spec, s, AERIE_STOP_LENGTH);
        else if (s->n_tokens >= spec->n_ctx) ae_spec_finish(spec, s, AERIE_STOP_CONTEXT);
    }
}

static void settle_slot(ae_spec *spec, uint32_t i_slot, const float *seen, ae_spec_emit *emit, void *user)
{
    spec_slot *s = &spec->slots[i_slot];
    const double start = ae_time_now();
    const bool drawn = draw_slot(spec, s, seen);
    s->stats.sample_seconds += ae_time_now() - start;
    s->stats.n_passes++;
    if (drawn) {
        emit_known(spec, i_slot, emit, user);
        return;
    }
    (void)ae_fail(&s->stats.error, AERIE_ERROR_FORMAT, "the model produced no finite logit for a position of the answer: its "
                  "weights overflow; use another file of this model, or another tensor type");
    ae_spec_finish(spec, s, AERIE_STOP_NONE);
}

static aerie_status run_pass(ae_spec *spec, uint32_t n_run, aerie_error *error)
{
    AE_TRY(ae_engine_pass(spec->engine, error));
    ae_engine_fetch_logits(spec->engine);
    const double share = ae_engine_pass_seconds(spec->engine) / (n_run ? n_run : 1);
    for (uint32_t i = 0; i < spec->n_slots; i++)
        if (spec->slots[i].canvas->runs) spec->slots[i].stats.target_seconds += share;
    return ae_engine_sync(spec->engine, error);
}

static bool is_guided(const spec_slot *s)
{
    return s->canvas->runs && s->canvas->how.cfg_scale > 0;
}

/* Keeps the logits of the guided slots' positions. Returns how many such slots there are. */
static uint32_t keep_seeing(ae_spec *spec)
{
    struct ae_denoiser *d = spec->denoiser;
    uint32_t n = 0, n_slots = 0;
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        const struct ae_canvas *c = spec->slots[i].canvas;
        if (!is_guided(&spec->slots[i])) continue;
        n_slots++;
        for (uint32_t k = c->block; k < c->block_end; k++)
            if (c->wanted[k])
                memcpy(d->seeing + (size_t)n++ * d->n_vocab, logits_of(spec, c, k), d->n_vocab * sizeof *d->seeing);
    }
    return n_slots;
}

/* Runs a second pass for the guided slots, for which the first pass drew nothing. */
static aerie_status step_guided(ae_spec *spec, uint32_t n_run, ae_spec_emit *emit, void *user, aerie_error *error)
{
    struct ae_denoiser *d = spec->denoiser;
    uint32_t n = 0;
    ae_engine_rows_clear(spec->engine);
    for (uint32_t i = 0; i < spec->n_slots; i++)
        if (is_guided(&spec->slots[i])) AE_TRY(add_text(spec, i, true, error));
    AE_TRY(run_pass(spec, n_run, error));
    drop_rows(spec);
    for (uint32_t i = 0; i < spec->n_slots; i++) {
        const struct ae_canvas *c = spec->slots[i].canvas;
        if (!is_guided(&spec->slots[i])) continue;
        const float *seen = d->seeing + (size_t)n * d->n_vocab;
        for (uint32_t k = c->block; k < c->block_end; k++) n += c->wanted[k];
        settle_slot(spec, i, seen, emit, user);
    }
    return AERIE_OK;
}

aerie_status ae_denoise_step(ae_spec *spec, ae_spec_emit *emit, void *user, aerie_error *error)
{
    uint32_t n_run;
    ae_engine_rows_clear(spec->engine);
    AE_TRY(add_texts(spec, &n_run, error));
    AE_TRY(run_pass(spec, n_run, error));
    drop_rows(spec);
    spec->n_passes++;
    const uint32_t n_guided = keep_seeing(spec);
    for (uint32_t i = 0; i < spec->n_slots; i++)
        if (spec->slots[i].canvas->runs && !is_guided(&spec->slots[i])) settle_slot(spec, i, NULL, emit, user);
    return n_guided ? step_guided(spec, n_guided, emit, user, error) : AERIE_OK;
}

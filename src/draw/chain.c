/* chain.c - the chain of a draw from first to last step, the draw itself, and proposals for drafters (draw.h). The steps are in
 * filters.c, ordering candidates in candidates.c. Owns nothing. */
#include "base/math/rng.h"
#include "draw/draw_int.h"

/* Large noise comes from u near 1. There u and 1 - u are exact, and so is the numerator of the quotient in ae_log; different
 * words give different noise. */
static double gumbel_of(uint32_t bits)
{
    return -ae_log(-ae_log(ae_uniform_open(bits)));
}

double ae_gumbel(uint64_t seed, uint64_t position, uint32_t token)
{
    uint32_t bits[4];
    ae_philox(seed, position, token / 4, bits);
    return gumbel_of(bits[token % 4]);
}

/* ---- Plans --------------------------------------------------------------------------------------------- */

static bool has_effect(const ae_sampling *p, aerie_sampler step)
{
    switch (step) {
    case AERIE_SAMPLER_PENALTIES:
        return p->penalty_last_n != 0 &&
               (p->repeat_penalty != 1.0f || p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f);
    case AERIE_SAMPLER_DRY: return p->dry_multiplier != 0.0f && p->dry_penalty_last_n != 0;
    case AERIE_SAMPLER_TOP_N_SIGMA: return p->top_n_sigma > 0.0f;
    case AERIE_SAMPLER_TOP_K: return p->top_k > 0;
    case AERIE_SAMPLER_TYPICAL_P: return p->typical_p < 1.0f;
    case AERIE_SAMPLER_TOP_P: return p->top_p < 1.0f;
    case AERIE_SAMPLER_MIN_P: return p->min_p > 0.0f;
    case AERIE_SAMPLER_XTC: return p->xtc_probability > 0.0f && p->xtc_threshold <= 0.5f;
    case AERIE_SAMPLER_TEMPERATURE: return p->temperature != 1.0f || p->dynatemp_range > 0.0f;
    case AERIE_SAMPLER_END: break;
    }
    return false;
}

static bool keeps_the_best(aerie_sampler step)
{
    return step == AERIE_SAMPLER_TOP_N_SIGMA || step == AERIE_SAMPLER_TOP_K || step == AERIE_SAMPLER_TOP_P ||
           step == AERIE_SAMPLER_MIN_P;
}

/* Finds the steps that have an effect. In a greedy chain, steps after the temperature have none, nor do filters before it that
 * keep the best token. */
void ae_draw_plan(ae_draw *s, const ae_sampling *params, uint32_t n_vocab)
{
    *s = (ae_draw){.params = *params, .n_vocab = n_vocab};
    static const aerie_sampler with_mirostat[AERIE_MAX_SAMPLERS] = {AERIE_SAMPLER_TEMPERATURE};
    const ae_sampling *p = &s->params;
    const aerie_sampler *order = p->mirostat ? with_mirostat : p->samplers;
    s->draft_temperature = 1.0;
    for (size_t i = 0; i < AERIE_MAX_SAMPLERS && order[i] != AERIE_SAMPLER_END; i++) {
        if (!has_effect(p, order[i])) continue;
        s->steps[s->n_steps++] = order[i];
        if (order[i] != AERIE_SAMPLER_TEMPERATURE) continue;
        s->draft_temperature *= p->temperature > 0.0f ? (double)p->temperature : 0.0;
        if (p->temperature > 0.0f || p->dynatemp_range > 0.0f) continue;
        s->n_steps--;
        while (s->n_steps && keeps_the_best(s->steps[s->n_steps - 1])) s->n_steps--;
        s->steps[s->n_steps++] = AERIE_SAMPLER_TEMPERATURE;
        return;
    }
}

bool ae_draw_has(const ae_draw *draw, aerie_sampler step)
{
    for (uint32_t i = 0; i < draw->n_steps; i++)
        if (draw->steps[i] == step) return true;
    return false;
}

bool ae_draw_sorts_many(const ae_draw *draw)
{
    for (uint32_t i = 0; i < draw->n_steps; i++) {
        if (draw->steps[i] == AERIE_SAMPLER_TOP_K) return false;
        if (draw->steps[i] == AERIE_SAMPLER_TOP_P) return true;
    }
    return false;
}

/* ae_draw_plan has left out filters that change nothing before a greedy step, and all steps after it. */
bool ae_draw_is_best_of_any(const ae_draw *s)
{
    const ae_sampling *p = &s->params;
    if (p->mirostat || p->temperature > 0.0f || p->dynatemp_range > 0.0f) return false;
    if (!s->n_steps || s->steps[s->n_steps - 1] != AERIE_SAMPLER_TEMPERATURE) return false;
    for (uint32_t i = 0; i + 1 < s->n_steps; i++)
        if (s->steps[i] != AERIE_SAMPLER_PENALTIES && s->steps[i] != AERIE_SAMPLER_DRY) return false;
    return true;
}

bool ae_draw_is_from_row(const ae_draw *s)
{
    return !s->params.mirostat && !ae_draw_has(s, AERIE_SAMPLER_PENALTIES) && !ae_draw_has(s, AERIE_SAMPLER_DRY);
}

uint32_t ae_draw_reach(const ae_draw *s)
{
    if (s->params.n_logit_bias || !ae_draw_is_from_row(s)) return 0;
    if (ae_draw_is_best_of_any(s)) return 1;
    return s->n_steps && s->steps[0] == AERIE_SAMPLER_TOP_K ? (uint32_t)s->params.top_k : 0;
}

uint32_t ae_draw_wants(const ae_draw *s)
{
    const uint32_t reach = ae_draw_reach(s);
    if (reach) return reach <= AE_BEST_MOST ? reach : 0;
    const bool by_row = !s->params.n_logit_bias && ae_draw_is_from_row(s) && s->n_steps && s->steps[0] == AERIE_SAMPLER_MIN_P;
    return by_row && s->params.min_keep <= AE_BEST_MOST ? AE_BEST_MOST : 0;
}

uint32_t ae_draw_takes(const ae_draw *s, const ae_candidate *best, uint32_t n, bool all)
{
    const uint32_t reach = ae_draw_reach(s);
    if (!n || best[0].logit >= FLT_MAX) return 0;
    if (reach) return n >= reach ? reach : all ? n : 0;
    const float floor = best[0].logit + (float)ae_log((double)s->params.min_p); /* as ae_step_min_p has it */
    return all || (best[n - 1].logit < floor && n >= s->params.min_keep) ? n : 0;
}

/* ---- The chain and the draw -------------------------------------------------------------------------- */

/* Noise grows with its bits, so the last word of a bin bounds it. A margin covers the rounding of the logarithms. */
void ae_draw_room_init(ae_draw_room *room)
{
    for (uint32_t i = 0; i < AE_NOISE_BINS; i++) room->noise_bound[i] = gumbel_of(i << 22 | 0x3FFFFF) + 1e-9;
}

void ae_chain_begin(ae_draw_room *s, const ae_draw *draw, const float *logits)
{
    s->draw = draw;
    s->logits = logits;
    s->t = 1.0;
    if (draw->params.n_logit_bias) ae_step_bias(s);
}

void ae_chain_step(ae_draw_room *s, aerie_sampler step, size_t position)
{
    switch (step) {
    case AERIE_SAMPLER_PENALTIES: break;
    case AERIE_SAMPLER_DRY: break;
    case AERIE_SAMPLER_TOP_N_SIGMA: ae_step_top_n_sigma(s); break;
    case AERIE_SAMPLER_TOP_K: ae_keep_top(s, (uint32_t)s->draw->params.top_k); break;
    case AERIE_SAMPLER_TYPICAL_P: ae_step_typical(s); break;
    case AERIE_SAMPLER_TOP_P: ae_step_top_p(s); break;
    case AERIE_SAMPLER_MIN_P: ae_step_min_p(s); break;
    case AERIE_SAMPLER_XTC: ae_step_xtc(s, position); break;
    case AERIE_SAMPLER_TEMPERATURE: ae_step_temperature(s); break;
    case AERIE_SAMPLER_END: break;
    }
}

/* Draws: argmax of logit / t + noise over the list. For most candidates the upper bits of the noise already show that they
 * cannot win; skipping those saves the logarithms and changes nothing. */
static int32_t draw(const ae_draw_room *s, float top, uint64_t position)
{
    const ae_candidate *c = s->list;
    double best = -INFINITY;
    int32_t best_id = c[0].id;
    uint32_t bits[4], block = UINT32_MAX;
    for (uint32_t i = 0; i < s->n; i++) {
        const double weight = ((double)c[i].logit - (double)top) / s->t;
        const uint32_t id = (uint32_t)c[i].id;
        if (weight + AE_GUMBEL_MAX < best) continue;
        if (id / 4 != block) ae_philox(s->draw->params.seed, position, block = id / 4, bits);
        if (weight + s->noise_bound[bits[id % 4] >> 22] < best) continue;
        const double score = weight + gumbel_of(bits[id % 4]);
        if (score > best || (score == best && c[i].id < best_id)) {
            best = score;
            best_id = c[i].id;
        }
    }
    return best_id;
}

int32_t ae_chain_end(ae_draw_room *s, const float *logits, size_t position)
{
    ae_to_list(s);
    if (!s->n) return ae_argmax(logits, s->draw->n_vocab);
    return s->n == 1 ? s->list[0].id : draw(s, ae_list_top(s), position);
}

int32_t ae_draw_token(const ae_draw *d, ae_draw_room *s, const float *logits, size_t position)
{
    ae_chain_begin(s, d, logits);
    for (uint32_t i = 0; i < d->n_steps; i++) ae_chain_step(s, d->steps[i], position);
    return ae_chain_end(s, logits, position);
}

int32_t ae_draw_best(const ae_draw *d, ae_draw_room *s, const ae_candidate *best, uint32_t n, size_t position)
{
    memcpy(s->list, best, n * sizeof *best);
    s->draw = d;
    s->logits = NULL;
    s->n = n;
    s->sorted = d->n_steps && d->steps[0] != AERIE_SAMPLER_MIN_P;
    for (uint32_t i = 1; !s->sorted && i < n; i++) { /* as in a row: by id */
        const ae_candidate c = s->list[i];
        uint32_t k = i;
        for (; k && s->list[k - 1].id > c.id; k--) s->list[k] = s->list[k - 1];
        s->list[k] = c;
    }
    s->t = 1.0;
    for (uint32_t i = 0; i < d->n_steps; i++) ae_chain_step(s, d->steps[i], position);
    ae_to_list(s);
    if (!s->n) return best[0].id;
    return s->n == 1 ? s->list[0].id : draw(s, ae_list_top(s), position);
}

/* ---- Draws of noise alone ---------------------------------------------------------------------------------- */

#define LEAST_NOISY 1e-3f /* temperature */
/* A score is rounded three times: the difference of two logits, the quotient, the sum. Only scores above -60 matter: noise lies
 * between -3.2 and 22.9, so a token whose weight is lower by more than that than the row's best has lost. So no rounding is
 * larger than 60 * 2^-53, and the order of two scores can only change if they are nearer than 1e-13. */
#define MARGIN 1e-9

bool ae_draw_is_noise(const ae_draw *s, ae_noise *noise)
{
    const ae_sampling *p = &s->params;
    const bool plain = !s->n_steps || (s->n_steps == 1 && s->steps[0] == AERIE_SAMPLER_TEMPERATURE);
    *noise = (ae_noise){p->seed, s->n_steps ? p->temperature : 1.0f};
    return plain && !p->n_logit_bias && ae_draw_is_from_row(s) && p->dynatemp_range <= 0.0f &&
           noise->temperature >= LEAST_NOISY;
}

void ae_draw_noisy(const ae_noise *noise, uint64_t position, const float *logits, uint32_t n, uint32_t first,
                   ae_candidate *out)
{
    enum { KEPT = AE_NOISY_MOST + 1 };
    double score[KEPT]; /* the best ones, in order */
    ae_candidate kept[KEPT];
    float top = -INFINITY;
    uint32_t bits[4], block = UINT32_MAX;
    for (uint32_t k = 0; k < KEPT; k++) score[k] = -INFINITY, kept[k] = (ae_candidate){-1, 0.0f};
    for (uint32_t i = 0; i < n; i++) top = ae_clean(logits[i]) > top ? ae_clean(logits[i]) : top;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t id = first + i;
        const float logit = ae_clean(logits[i]);
        const double weight = ((double)logit - (double)top) / (double)noise->temperature;
        uint32_t k = KEPT;
        if (logit == -INFINITY || weight + AE_GUMBEL_MAX < score[0] - MARGIN) continue;
        if (id / 4 != block) ae_philox(noise->seed, position, block = id / 4, bits);
        const double own = weight + gumbel_of(bits[id % 4]);
        for (; k && own > score[k - 1]; k--)
            if (k < KEPT) score[k] = score[k - 1], kept[k] = kept[k - 1];
        if (k < KEPT) score[k] = own, kept[k] = (ae_candidate){(int32_t)id, logit};
    }
    for (uint32_t k = 0; k < AE_NOISY_MOST; k++)
        out[k] = kept[k].id >= 0 && score[k] >= score[0] - MARGIN ? kept[k] : (ae_candidate){-1, 0.0f};
    if (kept[AE_NOISY_MOST].id >= 0 && score[AE_NOISY_MOST] >= score[0] - MARGIN) out[0].id = AE_NOISY_MORE;
}

/* ---- Proposals ------------------------------------------------------------------------------------------- */

/* Returns how many of a drafter's n best tokens the chain's filters would keep if these were the target's: tokens that are
 * filtered out are never drawn, so noise must not move them to the front. */
static uint32_t left_by_filters(const ae_draw *s, const ae_candidate *best, uint32_t n)
{
    double temperature = 1.0;
    for (uint32_t i = 0; i < s->n_steps; i++) {
        if (s->steps[i] == AERIE_SAMPLER_TEMPERATURE) {
            temperature = s->draft_temperature;
        } else if (s->steps[i] == AERIE_SAMPLER_TOP_K) {
            if (n > (uint32_t)s->params.top_k) n = (uint32_t)s->params.top_k;
        } else if (s->steps[i] == AERIE_SAMPLER_MIN_P) {
            const float least = best[0].logit + (float)temperature * (float)ae_log((double)s->params.min_p);
            while (n > 1 && best[n - 1].logit < least) n--;
        } else if (s->steps[i] == AERIE_SAMPLER_TOP_P) {
            uint64_t weight[64], total = 0, sum = 0;
            for (uint32_t j = 0; j < n; j++)
                total += weight[j] = ae_weight_units(ae_weight(best[j].logit, best[0].logit, temperature));
            uint32_t m = 0;
            while (m < n && sum < ae_share((double)s->params.top_p, total)) sum += weight[m++];
            n = m ? m : 1;
        }
    }
    return n;
}

uint32_t ae_draw_propose_reach(const ae_draw *s, uint32_t k, bool *needs_total)
{
    /* noise moves few tokens to the front, so a short list suffices */
    const bool noisy = s->draft_temperature > 0;
    const uint32_t want = noisy && k < 40 ? 40 : k;
    *needs_total = !noisy;
    return want < AE_PROPOSE_REACH ? want : AE_PROPOSE_REACH;
}

uint32_t ae_draw_propose(const ae_draw *s, const float *logits, uint32_t n_logits, const int32_t *map, size_t position,
                            uint32_t k, int32_t *ids, float *probs)
{
    ae_candidate best[AE_PROPOSE_REACH];
    bool needs_total;
    const uint32_t n = ae_select_top(logits, n_logits, ae_draw_propose_reach(s, k, &needs_total), best);
    const uint64_t total = n && needs_total ? ae_total_weight(logits, n_logits, best[0].logit, 1.0) : 0;
    return ae_draw_propose_best(s, best, n, total, map, position, k, ids, probs);
}

uint32_t ae_draw_propose_best(const ae_draw *s, const ae_candidate *best, uint32_t n, uint64_t total, const int32_t *map,
                                 size_t position, uint32_t k, int32_t *ids, float *probs)
{
    const double temperature = s->draft_temperature;
    const bool noisy = temperature > 0;
    double score[AE_PROPOSE_REACH];
    if (!n) return 0;
    if (noisy) n = left_by_filters(s, best, n);
    /* noise scales with the temperature; the errors of the drafter's logits do not */
    const double unit = temperature < 1.0 ? temperature : 1.0, noise = noisy ? unit : 0.0;
    const double scale = temperature > 1.0 ? 1.0 / temperature : 1.0;
    double top = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t id = (uint32_t)(map ? map[best[i].id] : best[i].id);
        score[i] = ((double)best[i].logit - (double)best[0].logit) * scale;
        if (noisy) score[i] += noise * ae_gumbel(s->params.seed, position, id);
        if (score[i] > top) top = score[i];
    }
    if (noisy) total = 0;
    for (uint32_t i = 0; noisy && i < n; i++) total += ae_weight_units(ae_expf((float)(score[i] - top)));
    if (k > n) k = n;
    for (uint32_t j = 0; j < k; j++) {
        uint32_t at = 0;
        for (uint32_t i = 1; i < n; i++)
            if (score[i] > score[at]) at = i;
        ids[j] = map ? map[best[at].id] : best[at].id;
        probs[j] = (float)((double)ae_expf((float)(score[at] - top)) * 0x1p40 / (double)total);
        score[at] = -INFINITY;
    }
    return k;
}

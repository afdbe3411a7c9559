/* sampler.c - the life of a sampler, its chain from first to last step, the draw, and proposals for drafters (sampler.h). The
 * steps:
 * filters.c, penalties.c, dry.c; candidates in order: candidates.c. */
#include "sample/sampler.h"

#include "base/math/rng.h"
#include "sample/sampler_int.h"

/* Large noise comes from u near 1: u and 1 - u are exact there, so is the quotient's numerator in ae_log, and words that differ
 * give noise that differs. */
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

/* ---- Life -------------------------------------------------------------------------------------- */

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

/* The steps that have an effect. In a greedy chain, steps after the temperature have none, nor do filters before it that keep
 * the best. */
static void plan(ae_sampler *s)
{
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

static bool plans(const ae_sampler *s, aerie_sampler step)
{
    for (uint32_t i = 0; i < s->n_steps; i++)
        if (s->steps[i] == step) return true;
    return false;
}

/* Whether top-p may meet more candidates than top-k leaves. */
static bool sorts_many(const ae_sampler *s)
{
    for (uint32_t i = 0; i < s->n_steps; i++) {
        if (s->steps[i] == AERIE_SAMPLER_TOP_K) return false;
        if (s->steps[i] == AERIE_SAMPLER_TOP_P) return true;
    }
    return false;
}

/* The parameters' lists outlive the request that lent them: breakers and biases in one block each. */
static bool copy_lists(ae_sampler *s)
{
    ae_sampling *p = &s->params;
    size_t n_bytes = p->n_dry_breakers * sizeof(char *);
    for (size_t i = 0; i < p->n_dry_breakers; i++) n_bytes += strlen(p->dry_breakers[i]) + 1;
    aerie_logit_bias *bias = ae_alloc(p->n_logit_bias, sizeof *bias);
    s->texts = ae_alloc(n_bytes, 1);
    if ((!bias && p->n_logit_bias) || (!s->texts && n_bytes)) {
        ae_free(bias);
        p->logit_bias = NULL;
        return false;
    }
    if (p->n_logit_bias) memcpy(bias, p->logit_bias, p->n_logit_bias * sizeof *bias);
    p->logit_bias = bias;
    const char **list = (const char **)s->texts;
    char *text = s->texts + p->n_dry_breakers * sizeof(char *);
    for (size_t i = 0; i < p->n_dry_breakers; i++) {
        const size_t n = strlen(p->dry_breakers[i]) + 1;
        memcpy(text, p->dry_breakers[i], n);
        list[i] = text;
        text += n;
    }
    p->dry_breakers = list;
    return true;
}

static bool allocate(ae_sampler *s)
{
    const bool dry = plans(s, AERIE_SAMPLER_DRY), typical = plans(s, AERIE_SAMPLER_TYPICAL_P);
    if (!copy_lists(s)) return false;
    s->row = ae_alloc(s->n_vocab, sizeof *s->row);
    s->list = ae_alloc(s->n_vocab, sizeof *s->list);
    if (!s->row || !s->list) return false;
    if ((dry || plans(s, AERIE_SAMPLER_PENALTIES)) && !(s->seen = ae_alloc(s->n_vocab, sizeof *s->seen))) return false;
    if (dry && !(s->repeats = ae_alloc(s->n_ctx, sizeof *s->repeats))) return false;
    if (sorts_many(s) && !(s->spare = ae_alloc(s->n_vocab, sizeof *s->spare))) return false;
    return !typical || (s->typical = ae_alloc(s->n_vocab, sizeof *s->typical));
}

size_t ae_sampler_plan_bytes(uint32_t n_vocab)
{
    return sizeof(ae_sampler) + n_vocab * sizeof(ae_candidate);
}

aerie_status ae_sampler_create(ae_sampler **out, const ae_sampling *sampling, const ae_vocab *vocab, uint32_t n_vocab,
                               size_t n_ctx, aerie_error *error)
{
    *out = NULL;
    AE_TRY(ae_sampling_check(sampling, n_vocab, error));
    ae_sampler *s = ae_alloc(1, sizeof *s);
    if (!s) return ae_fail_memory(error, "a sampler", sizeof *s);
    *s = (ae_sampler){.params = *sampling, .vocab = vocab, .n_vocab = n_vocab, .n_ctx = n_ctx, .drawn.token = -1};
    s->mu = 2.0 * (double)sampling->mirostat_tau;
    plan(s);
    if (!allocate(s)) {
        ae_sampler_free(s);
        return ae_fail_memory(error, "a sampler", n_vocab * (sizeof *s->row + sizeof *s->list));
    }
    /* the noise grows with its bits, so a bin's last word bounds it; plus a margin for the rounding of the logarithms */
    for (uint32_t i = 0; i < AE_NOISE_BINS; i++) s->noise_bound[i] = gumbel_of(i << 22 | 0x3FFFFF) + 1e-9;
    *out = s;
    return AERIE_OK;
}

void ae_sampler_free(ae_sampler *sampler)
{
    if (!sampler) return;
    ae_free((void *)sampler->params.logit_bias);
    ae_free(sampler->texts);
    ae_free(sampler->row);
    ae_free(sampler->list);
    ae_free(sampler->spare);
    ae_free(sampler->seen);
    ae_free(sampler->repeats);
    ae_free(sampler->typical);
    ae_free(sampler);
}

const ae_sampling *ae_sampler_params(const ae_sampler *sampler)
{
    return &sampler->params;
}

/* plan() has left out the filters that change nothing before a greedy step, and whatever would follow it. */
bool ae_sampler_is_best_of_any(const ae_sampler *s)
{
    const ae_sampling *p = &s->params;
    if (p->mirostat || p->temperature > 0.0f || p->dynatemp_range > 0.0f) return false;
    if (!s->n_steps || s->steps[s->n_steps - 1] != AERIE_SAMPLER_TEMPERATURE) return false;
    for (uint32_t i = 0; i + 1 < s->n_steps; i++)
        if (s->steps[i] != AERIE_SAMPLER_PENALTIES && s->steps[i] != AERIE_SAMPLER_DRY) return false;
    return true;
}

bool ae_sampler_draws_from_row(const ae_sampler *s)
{
    return !s->params.mirostat && !plans(s, AERIE_SAMPLER_PENALTIES) && !plans(s, AERIE_SAMPLER_DRY);
}

uint32_t ae_sampler_reach(const ae_sampler *s)
{
    if (s->params.n_logit_bias || !ae_sampler_draws_from_row(s)) return 0;
    if (ae_sampler_is_best_of_any(s)) return 1;
    return s->n_steps && s->steps[0] == AERIE_SAMPLER_TOP_K ? (uint32_t)s->params.top_k : 0;
}

/* ---- The chain and the draw -------------------------------------------------------------------------- */

static void run_step(ae_sampler *s, aerie_sampler step, const int32_t *tokens, size_t n_tokens)
{
    switch (step) {
    case AERIE_SAMPLER_PENALTIES: ae_step_penalties(s, tokens, n_tokens); break;
    case AERIE_SAMPLER_DRY: ae_step_dry(s, tokens, n_tokens); break;
    case AERIE_SAMPLER_TOP_N_SIGMA: ae_step_top_n_sigma(s); break;
    case AERIE_SAMPLER_TOP_K: ae_keep_top(s, (uint32_t)s->params.top_k); break;
    case AERIE_SAMPLER_TYPICAL_P: ae_step_typical(s); break;
    case AERIE_SAMPLER_TOP_P: ae_step_top_p(s); break;
    case AERIE_SAMPLER_MIN_P: ae_step_min_p(s); break;
    case AERIE_SAMPLER_XTC: ae_step_xtc(s, n_tokens); break;
    case AERIE_SAMPLER_TEMPERATURE: ae_step_temperature(s); break;
    case AERIE_SAMPLER_END: break;
    }
}

static void run_chain(ae_sampler *s, const float *logits, const int32_t *tokens, size_t n_tokens)
{
    s->logits = logits;
    s->t = 1.0;
    if (s->params.n_logit_bias) ae_step_bias(s);
    for (uint32_t i = 0; i < s->n_steps; i++) run_step(s, s->steps[i], tokens, n_tokens);
    if (s->params.mirostat) ae_step_mirostat(s);
    ae_to_list(s);
}

const ae_candidate *ae_sampler_candidates(ae_sampler *s, const float *logits, const int32_t *tokens, size_t n_tokens,
                                          uint32_t *n, double *temperature)
{
    run_chain(s, logits, tokens, n_tokens);
    *n = s->n;
    *temperature = s->t;
    return s->list;
}

/* argmax of logit / t + noise over the list. For most candidates the upper bits of the noise already show that they cannot win;
 * skipping those saves the logarithms and changes nothing. */
static int32_t draw(const ae_sampler *s, float top, uint64_t position)
{
    const ae_candidate *c = s->list;
    double best = -INFINITY;
    int32_t best_id = c[0].id;
    uint32_t bits[4], block = UINT32_MAX;
    for (uint32_t i = 0; i < s->n; i++) {
        const double weight = ((double)c[i].logit - (double)top) / s->t;
        const uint32_t id = (uint32_t)c[i].id;
        if (weight + AE_GUMBEL_MAX < best) continue;
        if (id / 4 != block) ae_philox(s->params.seed, position, block = id / 4, bits);
        if (weight + s->noise_bound[bits[id % 4] >> 22] < best) continue;
        const double score = weight + gumbel_of(bits[id % 4]);
        if (score > best || (score == best && c[i].id < best_id)) {
            best = score;
            best_id = c[i].id;
        }
    }
    return best_id;
}

int32_t ae_sampler_draw_best(ae_sampler *s, const ae_candidate *best, uint32_t n, size_t n_tokens)
{
    memcpy(s->list, best, n * sizeof *best);
    s->logits = NULL;
    s->n = n;
    s->sorted = true;
    s->t = 1.0;
    s->drawn.token = -1;
    for (uint32_t i = 0; i < s->n_steps; i++) run_step(s, s->steps[i], NULL, n_tokens);
    ae_to_list(s);
    if (!s->n) return best[0].id;
    return s->n == 1 ? s->list[0].id : draw(s, ae_list_top(s), n_tokens);
}

int32_t ae_sampler_draw(ae_sampler *s, const float *logits, const int32_t *tokens, size_t n_tokens)
{
    run_chain(s, logits, tokens, n_tokens);
    s->drawn.token = -1;
    if (!s->n) return ae_argmax(logits, s->n_vocab);
    const int32_t id = s->n == 1 ? s->list[0].id : draw(s, ae_list_top(s), n_tokens);
    if (s->params.mirostat) {
        s->drawn.token = id;
        s->drawn.position = n_tokens;
        s->drawn.mu = ae_mirostat_next(s, id);
    }
    return id;
}

void ae_sampler_accept(ae_sampler *s, int32_t token, size_t position)
{
    if (s->drawn.token != token || s->drawn.position != position) return;
    s->mu = s->drawn.mu;
    s->drawn.token = -1;
}

double ae_sampler_mu(const ae_sampler *s)
{
    return s->mu;
}

void ae_sampler_set_mu(ae_sampler *s, double mu)
{
    s->mu = mu;
}

/* How many of a drafter's n best the chain's filters would keep if they were the target's: tokens that are filtered out are
 * never drawn, so noise must not move them to the front. */
static uint32_t left_by_filters(const ae_sampler *s, const ae_candidate *best, uint32_t n)
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

uint32_t ae_sampler_propose_reach(const ae_sampler *s, uint32_t k, bool *needs_total)
{
    /* noise moves few tokens past the front: rank a short list, not the vocabulary */
    const bool noisy = s->draft_temperature > 0;
    const uint32_t want = noisy && k < 40 ? 40 : k;
    *needs_total = !noisy;
    return want < AE_PROPOSE_REACH ? want : AE_PROPOSE_REACH;
}

uint32_t ae_sampler_propose(const ae_sampler *s, const float *logits, uint32_t n_logits, const int32_t *map, size_t position,
                            uint32_t k, int32_t *ids, float *probs)
{
    ae_candidate best[AE_PROPOSE_REACH];
    bool needs_total;
    const uint32_t n = ae_select_top(logits, n_logits, ae_sampler_propose_reach(s, k, &needs_total), best);
    const uint64_t total = n && needs_total ? ae_total_weight(logits, n_logits, best[0].logit, 1.0) : 0;
    return ae_sampler_propose_best(s, best, n, total, map, position, k, ids, probs);
}

uint32_t ae_sampler_propose_best(const ae_sampler *s, const ae_candidate *best, uint32_t n, uint64_t total, const int32_t *map,
                                 size_t position, uint32_t k, int32_t *ids, float *probs)
{
    const double temperature = s->draft_temperature;
    const bool noisy = temperature > 0;
    double score[AE_PROPOSE_REACH];
    if (!n) return 0;
    if (noisy) n = left_by_filters(s, best, n);
    /* noise counts in units of the temperature; what the drafter's logits are wrong by does not shrink with it */
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

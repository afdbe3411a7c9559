/* params.c - the parameters: names, defaults (llama.cpp's), checks. */
#include "sample/sampler_int.h"

static const struct sampler_name {
    char letter;
    const char *names[4]; /* the first is the preferred name */
} names[] = {
    [AERIE_SAMPLER_PENALTIES] = {'e', {"penalties"}},
    [AERIE_SAMPLER_DRY] = {'d', {"dry"}},
    [AERIE_SAMPLER_TOP_N_SIGMA] = {'s', {"top_n_sigma", "top-n-sigma"}},
    [AERIE_SAMPLER_TOP_K] = {'k', {"top_k", "top-k"}},
    [AERIE_SAMPLER_TYPICAL_P] = {'y', {"typ_p", "typ-p", "typical-p", "typical"}},
    [AERIE_SAMPLER_TOP_P] = {'p', {"top_p", "top-p", "nucleus"}},
    [AERIE_SAMPLER_MIN_P] = {'m', {"min_p", "min-p"}},
    [AERIE_SAMPLER_XTC] = {'x', {"xtc"}},
    [AERIE_SAMPLER_TEMPERATURE] = {'t', {"temperature", "temp"}},
};
#define N_NAMES (sizeof names / sizeof names[0])

static bool is_sampler(aerie_sampler sampler)
{
    return (int)sampler > AERIE_SAMPLER_END && (size_t)sampler < N_NAMES;
}

const char *aerie_sampler_name(aerie_sampler sampler)
{
    return is_sampler(sampler) ? names[sampler].names[0] : NULL;
}

char aerie_sampler_letter(aerie_sampler sampler)
{
    return is_sampler(sampler) ? names[sampler].letter : 0;
}

bool aerie_sampler_parse(const char *name, aerie_sampler *sampler)
{
    if (!name || !sampler) return false;
    for (size_t i = AERIE_SAMPLER_END + 1; i < N_NAMES; i++) {
        bool found = names[i].letter == name[0] && !name[1];
        for (size_t k = 0; !found && k < 4 && names[i].names[k]; k++) found = !strcmp(names[i].names[k], name);
        if (!found) continue;
        *sampler = (aerie_sampler)i;
        return true;
    }
    return false;
}

static const char *const breakers[] = {"\n", ":", "\"", "*"};

ae_sampling ae_sampling_default(void)
{
    return (ae_sampling){
        .temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1.0f, .penalty_last_n = 64,
        .typical_p = 1.0f, .top_n_sigma = -1.0f, .xtc_threshold = 0.1f, .dynatemp_exponent = 1.0f,
        .dry_base = 1.75f, .dry_allowed_length = 2, .dry_penalty_last_n = -1, .dry_breakers = breakers,
        .n_dry_breakers = sizeof breakers / sizeof breakers[0], .mirostat_tau = 5.0f, .mirostat_eta = 0.1f,
        .samplers = {AERIE_SAMPLER_PENALTIES, AERIE_SAMPLER_DRY, AERIE_SAMPLER_TOP_N_SIGMA, AERIE_SAMPLER_TOP_K,
                     AERIE_SAMPLER_TYPICAL_P, AERIE_SAMPLER_TOP_P, AERIE_SAMPLER_MIN_P, AERIE_SAMPLER_XTC,
                     AERIE_SAMPLER_TEMPERATURE},
    };
}

static aerie_status check_floats(const ae_sampling *s, aerie_error *error)
{
    const struct {
        const char *name;
        float value, lo, hi;
    } fields[] = {
        {"temperature", s->temperature, -1e6f, 1e6f},
        {"top-p", s->top_p, 0.0f, 1e6f},
        {"min-p", s->min_p, -1e6f, 1.0f},
        {"repeat-penalty", s->repeat_penalty, 1e-3f, 1e3f},
        {"presence-penalty", s->presence_penalty, -1e3f, 1e3f},
        {"frequency-penalty", s->frequency_penalty, -1e3f, 1e3f},
        {"typical-p", s->typical_p, 0.0f, 1e6f},
        {"top-n-sigma", s->top_n_sigma, -1e6f, 1e6f},
        {"xtc-probability", s->xtc_probability, -1e6f, 1e6f},
        {"xtc-threshold", s->xtc_threshold, 0.0f, 1e6f},
        {"dynatemp-range", s->dynatemp_range, -1e6f, 1e6f},
        {"dynatemp-exp", s->dynatemp_exponent, 0.0f, 1e3f},
        {"dry-multiplier", s->dry_multiplier, 0.0f, 1e3f},
        {"dry-base", s->dry_base, 1.0f, 1e3f},
        {"mirostat-ent", s->mirostat_tau, 0.0f, 1e3f},
        {"mirostat-lr", s->mirostat_eta, 0.0f, 1e3f},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (!(fields[i].value >= fields[i].lo && fields[i].value <= fields[i].hi))
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "%s is %g; %g to %g are possible", fields[i].name,
                           (double)fields[i].value, (double)fields[i].lo, (double)fields[i].hi);
    return AERIE_OK;
}

static aerie_status check_lists(const ae_sampling *s, uint32_t n_vocab, aerie_error *error)
{
    for (size_t i = 0; i < AERIE_MAX_SAMPLERS && s->samplers[i] != AERIE_SAMPLER_END; i++)
        if (!is_sampler(s->samplers[i]))
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "sampler %d is unknown", (int)s->samplers[i]);
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        const aerie_logit_bias *b = &s->logit_bias[i];
        if (b->token < 0 || (uint32_t)b->token >= n_vocab)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "logit-bias names token %d; 0 to %u are possible", b->token,
                           n_vocab - 1);
        if (b->bias != b->bias) return ae_fail(error, AERIE_ERROR_ARGUMENT, "logit-bias of token %d is not a number", b->token);
    }
    for (size_t i = 0; i < s->n_dry_breakers; i++)
        if (!s->dry_breakers[i] || !*s->dry_breakers[i])
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "dry-sequence-breaker %zu is empty; a text is needed", i + 1);
    return AERIE_OK;
}

aerie_status ae_sampling_check(const ae_sampling *s, uint32_t n_vocab, aerie_error *error)
{
    AE_TRY(check_floats(s, error));
    const struct {
        const char *name;
        int32_t value, lo;
    } counts[] = {
        {"repeat-last-n", s->penalty_last_n, -1},
        {"dry-penalty-last-n", s->dry_penalty_last_n, -1},
        {"dry-allowed-length", s->dry_allowed_length, 0},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i].value < counts[i].lo)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "%s is %d; %s a count are possible", counts[i].name, counts[i].value,
                           counts[i].lo < 0 ? "-1 (all), 0 (off) or" : "0 or");
    if (s->mirostat != 0 && s->mirostat != 2)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "mirostat is %d; 0 (off) and 2 (mirostat 2.0) are possible", s->mirostat);
    return check_lists(s, n_vocab, error);
}

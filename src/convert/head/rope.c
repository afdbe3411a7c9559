/* rope.c - the rotation of heads and models: base, scaling, and divisors of the frequencies for scalings without a name in
 * GGUF.
 * Sources: rope_scaling of transformers (modeling_rope_utils.py), YaRN (arXiv 2309.00071), Llama 3.1. ae_model_rope_freqs reads
 * a file's keys: it divides by rope_freqs first, and then applies linear scaling, or YaRN with ramps from 32 turns to 1, with
 * ends at whole pairs. Other ramps are therefore written as divisors. */
#include <math.h>
#include <string.h>

#include "base/math/fmath.h"
#include "convert/checkpoint/checkpoint.h"

static const double pi = 3.14159265358979323846;

/* Returns rope_scaling, or rope_parameters in newer configs, which may have an empty rope_scaling beside it; if they differ by
 * kind of layer, those of layers without a window. NULL: there is none. */
static const json_t *scaling_of(const ae_convert *c)
{
    const json_t *json = ae_convert_value(c, "rope_scaling");
    if (!json_object_size(json)) json = ae_convert_value(c, "rope_parameters");
    const json_t *full = json_object_get(json, "full_attention");
    if (full) json = full;
    return json_is_object(json) ? json : NULL;
}

static aerie_status number(const ae_convert *c, const json_t *scaling, const char *key, double lo, double hi, double *out)
{
    return ae_convert_real(c, json_object_get(scaling, key), key, lo, hi, out);
}

static aerie_status need(const ae_convert *c, const json_t *scaling, const char *key, double lo, double hi, double *out)
{
    const json_t *value = json_object_get(scaling, key);
    if (!value || json_is_null(value))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'rope_scaling': '%s' is missing", c->config_path, key);
    return ae_convert_real(c, value, key, lo, hi, out);
}

static double frequency(const ae_convert_head *h, uint32_t pair)
{
    return ae_pow(h->rope_base, -2.0 * pair / h->n_rot);
}

static aerie_status make_divisors(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    h->divisors = ae_arena_alloc(&c->arena, h->n_rot / 2, sizeof *h->divisors);
    return h->divisors ? AERIE_OK : ae_convert_no_memory(c, "the frequencies of the rotation");
}

/* Reads Llama 3's scaling: stretches long wavelengths, keeps short ones, and blends those in between. */
static aerie_status read_llama3(ae_convert *c, const json_t *scaling)
{
    ae_convert_head *h = &c->head;
    double factor = 1, low = 1, high = 4, n_ctx = 8192;
    AE_TRY(need(c, scaling, "factor", 1, 1e6, &factor));
    AE_TRY(need(c, scaling, "low_freq_factor", 1e-6, 1e6, &low));
    AE_TRY(need(c, scaling, "high_freq_factor", 1e-6, 1e6, &high));
    AE_TRY(need(c, scaling, "original_max_position_embeddings", 1, INT32_MAX, &n_ctx));
    if (!(high > low)) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT,
                       "%s: 'rope_scaling': 'high_freq_factor' %g is not greater than 'low_freq_factor' %g", c->config_path,
                       high, low);
    }
    AE_TRY(make_divisors(c));
    for (uint32_t i = 0; i < h->n_rot / 2; i++) {
        const double wave = 2 * pi / frequency(h, i);
        const double kept = (n_ctx / wave - low) / (high - low);
        h->divisors[i] = (float)(kept >= 1 ? 1 : kept <= 0 ? factor : 1 / ((1 - kept) / factor + kept));
    }
    return AERIE_OK;
}

/* Returns the pair that makes `turns` turns within the original context. */
static double yarn_pair(const ae_convert_head *h, double turns)
{
    return h->n_rot * ae_log((double)h->rope_n_ctx_orig / (turns * 2 * pi)) / (2 * ae_log(h->rope_base));
}

/* Returns how much of pair i's frequency is stretched. */
static double yarn_share(const ae_convert_head *h, uint32_t i, double fast, double slow, bool whole)
{
    double lo = yarn_pair(h, fast), hi = yarn_pair(h, slow);
    if (whole) lo = floor(lo), hi = ceil(hi);
    lo = lo < 0 ? 0 : lo;
    hi = hi > h->n_rot - 1 ? h->n_rot - 1 : hi;
    const double y = (i - lo) / (hi - lo > 0.001 ? hi - lo : 0.001);
    return y < 0 ? 0 : y > 1 ? 1 : y;
}

/* Reads the factor of cosine and sine, which files of heads do not store. */
static aerie_status read_magnitude(ae_convert *c, const json_t *scaling)
{
    const double usual = 1 + 0.1 * ae_log(c->head.rope_factor);
    double magnitude = usual, m = 0, m_all = 0;
    AE_TRY(number(c, scaling, "mscale", 0, 1e3, &m));
    AE_TRY(number(c, scaling, "mscale_all_dim", 0, 1e3, &m_all));
    if (m > 0 && m_all > 0)
        magnitude = (1 + 0.1 * m * ae_log(c->head.rope_factor)) / (1 + 0.1 * m_all * ae_log(c->head.rope_factor));
    AE_TRY(number(c, scaling, "attention_factor", 0, 1e3, &magnitude));
    c->head.rope_log_mul = m_all;
    c->head.rope_attn = magnitude / usual;
    if (c->arch || fabs(magnitude - usual) < 1e-3) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_FORMAT,
                   "%s: 'rope_scaling' asks for YaRN with magnitude %g; only %g, which follows from its factor, is supported",
                   c->config_path, magnitude, usual);
}

static aerie_status read_yarn(ae_convert *c, const json_t *scaling)
{
    ae_convert_head *h = &c->head;
    double fast = 32, slow = 1, n_ctx = h->n_ctx;
    const bool whole = !json_is_false(json_object_get(scaling, "truncate"));
    AE_TRY(need(c, scaling, "factor", 1, 1e6, &h->rope_factor));
    AE_TRY(number(c, scaling, "original_max_position_embeddings", 1, INT32_MAX, &n_ctx));
    AE_TRY(number(c, scaling, "beta_fast", 1e-3, 1e6, &fast));
    AE_TRY(number(c, scaling, "beta_slow", 1e-3, 1e6, &slow));
    AE_TRY(read_magnitude(c, scaling));
    h->rope_type = "yarn";
    h->rope_n_ctx_orig = (uint32_t)n_ctx;
    h->rope_beta_fast = fast, h->rope_beta_slow = slow, h->rope_whole = whole;
    if ((fast == 32 && slow == 1 && whole) || c->arch) return AERIE_OK; /* for models ae_convert_plan_rope does it */
    return ae_convert_yarn_divisors(c);
}

aerie_status ae_convert_yarn_divisors(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    const double fast = h->rope_beta_fast, slow = h->rope_beta_slow;
    const bool whole = h->rope_whole;
    AE_TRY(make_divisors(c));
    for (uint32_t i = 0; i < h->n_rot / 2; i++) {
        const double usual = yarn_share(h, i, 32, 1, true), wanted = yarn_share(h, i, fast, slow, whole);
        h->divisors[i] = (float)((1 - usual + usual / h->rope_factor) / (1 - wanted + wanted / h->rope_factor));
    }
    return AERIE_OK;
}

static aerie_status read_scaling(ae_convert *c, const json_t *scaling)
{
    ae_convert_head *h = &c->head;
    const char *type = json_string_value(json_object_get(scaling, "rope_type"));
    if (!type) type = json_string_value(json_object_get(scaling, "type"));
    if (!type && json_object_get(scaling, "factor"))
        ae_log_say(&c->options.log, AERIE_LOG_WARNING, "%s: 'rope_scaling' has a factor, but no 'rope_type': it is not applied",
                   c->config_path);
    if (!type || strcmp(type, "default") == 0 || strcmp(type, "mrope") == 0) return AERIE_OK; /* mrope is plain RoPE for text */
    if (strcmp(type, "llama3") == 0) return read_llama3(c, scaling);
    if (strcmp(type, "yarn") == 0) return read_yarn(c, scaling);
    if (strcmp(type, "linear") == 0) {
        h->rope_type = "linear";
        return need(c, scaling, "factor", 1, 1e6, &h->rope_factor);
    }
    /* Hunyuan's "dynamic" changes only the base */
    if (c->arch && strcmp(type, "dynamic") == 0 && json_object_get(scaling, "alpha")) {
        double alpha = 1;
        AE_TRY(need(c, scaling, "alpha", 1e-3, 1e9, &alpha));
        h->rope_base *= ae_pow(alpha, (double)h->head_dim / (h->head_dim - 2.0));
        return AERIE_OK;
    }
    if (c->arch && (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0)) {
        h->rope_type = "longrope"; /* ae_convert_plan_rope writes the tables */
        return AERIE_OK;
    }
    if (c->arch && strcmp(type, "proportional") == 0) return AERIE_OK; /* ae_convert_plan_rope writes the divisors */
    if (strcmp(type, "dynamic") == 0) {
        ae_log_say(&c->options.log, AERIE_LOG_WARNING, "%s: dynamic RoPE scaling is not supported: the file is exact up to %u "
               "positions only", c->config_path, (unsigned)h->n_ctx);
        return AERIE_OK;
    }
    return ae_fail(c->error, AERIE_ERROR_FORMAT,
                   "%s: rope scaling '%.40s' is unknown; default, linear, llama3, yarn and dynamic are known", c->config_path,
                   type);
}

aerie_status ae_convert_head_rope(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    const json_t *scaling = scaling_of(c), *base = ae_convert_value(c, "rope_theta");
    double part = 1;
    h->rope_type = "none";
    h->rope_factor = h->rope_attn = 1;
    h->rope_base = 10000;
    if (!base) base = json_object_get(ae_convert_value(c, "rope_parameters"), "rope_theta"); /* beside rope_scaling */
    if (ae_convert_value(c, "rope_scaling") && !json_is_object(ae_convert_value(c, "rope_scaling")))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'rope_scaling' must be an object, such as "
                       "{\"rope_type\": \"linear\", \"factor\": 2.0}", c->config_path);
    if (json_object_get(scaling, "rope_theta")) base = json_object_get(scaling, "rope_theta");
    AE_TRY(ae_convert_real(c, base, "rope_theta", 1.001, 1e12, &h->rope_base));
    const json_t *share = json_object_get(scaling, "partial_rotary_factor");
    if (!share) share = ae_convert_value(c, "partial_rotary_factor");
    AE_TRY(ae_convert_real(c, share, "partial_rotary_factor", 0, 1, &part));
    h->n_rot = (uint32_t)(part * h->head_dim);
    if (h->n_rot < 2 || h->n_rot % 2) {
        return ae_fail(c->error, AERIE_ERROR_FORMAT,
                       "%s: %u of %u elements of a head are rotated, but it must be an even number from 2", c->config_path,
                       (unsigned)h->n_rot, (unsigned)h->head_dim);
    }
    return scaling ? read_scaling(c, scaling) : AERIE_OK;
}

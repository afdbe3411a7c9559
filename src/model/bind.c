/* bind.c - see bind.h. Also computes the frequencies of the rotation, which depend only on the keys. */
#include "model/bind.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/math/fmath.h"
#include "quant/types.h"

/* ---- Keys -------------------------------------------------------------------------------------- */

const char *ae_bind_key(ae_binder *b, const char *suffix)
{
    if (b->arch->drafter) {
        snprintf(b->key, sizeof b->key, "%s.%s.%s", b->arch->name, b->arch->name, suffix);
        const size_t prefix = strlen(b->arch->name) + 1;
        if (ae_gguf_kv_find(b->gguf, b->key) && !ae_gguf_kv_find(b->gguf, b->key + prefix)) return b->key;
    }
    snprintf(b->key, sizeof b->key, "%s.%s", b->arch->name, suffix);
    return b->key;
}

aerie_status ae_bind_range(ae_binder *b, const char *suffix, uint32_t value, uint32_t lo, uint32_t hi)
{
    if (value >= lo && value <= hi) return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %u; %u to %u are possible", ae_gguf_path(b->gguf),
                   ae_bind_key(b, suffix), value, lo, hi);
}

aerie_status ae_bind_get(ae_binder *b, const char *suffix, bool required, uint32_t lo, uint32_t hi, uint32_t *value)
{
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, suffix), required, value, b->error));
    return *value || required ? ae_bind_range(b, suffix, *value, lo, hi) : AERIE_OK;
}

aerie_status ae_bind_count(ae_binder *b, const char *suffix, uint32_t *value)
{
    uint32_t found = 0;
    AE_TRY(ae_gguf_get_u32(b->gguf, ae_bind_key(b, suffix), false, &found, b->error));
    if (found) *value = found;
    return AERIE_OK;
}

bool ae_bind_is_saved(ae_binder *b)
{
    float ext_factor = 0.0f; /* -1: not given; no converter writes that */
    return ae_gguf_get_f32(b->gguf, ae_bind_key(b, "rope.scaling.yarn_ext_factor"), false, &ext_factor, NULL) == AERIE_OK &&
           ext_factor < 0.0f;
}

static bool is_array(ae_binder *b, const char *suffix)
{
    const ae_gguf_kv *kv = ae_gguf_kv_find(b->gguf, ae_bind_key(b, suffix));
    return kv && kv->type == AE_GGUF_ARRAY;
}

/* Reads a count, or the largest value of an array with one for each layer. */
static aerie_status get_largest(ae_binder *b, const char *suffix, bool required, uint32_t *value)
{
    const ae_gguf *gguf = b->gguf;
    const char *key = ae_bind_key(b, suffix);
    const ae_gguf_kv *kv = ae_gguf_kv_find(gguf, key);
    if (!kv || kv->type != AE_GGUF_ARRAY) return ae_gguf_get_u32(gguf, key, required, value, b->error);
    *value = 0;
    for (uint64_t i = 0; i < kv->n; i++) {
        int64_t v;
        if (!ae_gguf_kv_int(kv, i, &v) || v < 0 || v > INT32_MAX)
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: element %llu of %s is not a count", ae_gguf_path(b->gguf),
                           (unsigned long long)i, key);
        if ((uint32_t)v > *value) *value = (uint32_t)v;
    }
    return AERIE_OK;
}

static const char *const rope_scaling_names[] = {
    [AERIE_ROPE_SCALING_NONE] = "none",
    [AERIE_ROPE_SCALING_LINEAR] = "linear",
    [AERIE_ROPE_SCALING_YARN] = "yarn",
};
#define N_ROPE_SCALINGS (sizeof rope_scaling_names / sizeof *rope_scaling_names)

const char *ae_model_rope_scaling_name(aerie_rope_scaling scaling)
{
    return (size_t)scaling < N_ROPE_SCALINGS ? rope_scaling_names[scaling] : NULL;
}

bool ae_model_rope_scaling_parse(const char *text, size_t n, aerie_rope_scaling *scaling)
{
    for (size_t i = AERIE_ROPE_SCALING_NONE; i < N_ROPE_SCALINGS; i++) {
        if (strlen(rope_scaling_names[i]) != n || memcmp(rope_scaling_names[i], text, n)) continue;
        *scaling = (aerie_rope_scaling)i;
        return true;
    }
    return false;
}

aerie_rope ae_model_rope_default(void)
{
    return (aerie_rope){.freq_base = -1, .factor = -1, .yarn_ext_factor = -1, .yarn_attn_factor = -1, .yarn_beta_fast = -1,
                        .yarn_beta_slow = -1};
}

static ae_rope_scaling rope_kind(aerie_rope_scaling scaling)
{
    return scaling == AERIE_ROPE_SCALING_YARN     ? AE_ROPE_SCALING_YARN
           : scaling == AERIE_ROPE_SCALING_LINEAR ? AE_ROPE_SCALING_LINEAR
                                                  : AE_ROPE_SCALING_NONE;
}

static bool is_rope_base(float x) { return x > 1.0f && x < 1e12f; }
static bool is_rope_factor(float x) { return x > 0.0f && x < 1e6f; }

/* Reads a number of at least 0. A negative number counts as absent. */
static aerie_status get_given(ae_binder *b, const char *suffix, float *value)
{
    float found = -1.0f;
    AE_TRY(ae_gguf_get_f32(b->gguf, ae_bind_key(b, suffix), false, &found, b->error));
    if (!(found < 0.0f)) *value = found;
    return AERIE_OK;
}

static aerie_status read_yarn(ae_binder *b, ae_rope *h)
{
    float factor = 1.0f; /* multiplied with attn_factor, which is another key */
    h->yarn_ext_factor = h->yarn_attn_factor = h->yarn_beta_slow = 1.0f;
    h->yarn_beta_fast = b->arch->yarn_beta_fast > 0.0f ? b->arch->yarn_beta_fast : 32.0f;
    AE_TRY(get_given(b, "rope.scaling.attn_factor", &h->yarn_attn_factor));
    AE_TRY(get_given(b, "rope.scaling.yarn_log_multiplier", &h->yarn_log_mul));
    AE_TRY(get_given(b, "rope.scaling.yarn_ext_factor", &h->yarn_ext_factor));
    AE_TRY(get_given(b, "rope.scaling.yarn_attn_factor", &factor));
    AE_TRY(get_given(b, "rope.scaling.yarn_beta_fast", &h->yarn_beta_fast));
    AE_TRY(get_given(b, "rope.scaling.yarn_beta_slow", &h->yarn_beta_slow));
    h->yarn_attn_factor *= factor;
    if (h->yarn_ext_factor >= 0.0f && h->yarn_ext_factor <= 1.0f && is_rope_factor(h->yarn_attn_factor) &&
        h->yarn_log_mul >= 0.0f && h->yarn_log_mul < 1e3f &&
        is_rope_factor(h->yarn_beta_fast) && is_rope_factor(h->yarn_beta_slow))
        return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: YaRN's ext factor %g, attention factor %g, beta fast %g or beta slow %g "
                   "is out of range", ae_gguf_path(b->gguf), (double)h->yarn_ext_factor, (double)h->yarn_attn_factor,
                   (double)h->yarn_beta_fast, (double)h->yarn_beta_slow);
}

/* The magnitude of longrope: a model's own, if the file has the usual formula's. */
static float longrope_magnitude(const ae_binder *b, const ae_rope *r, uint32_t n_ctx)
{
    const double longer = (double)n_ctx / r->n_ctx_orig;
    if (!(b->arch->longrope_attn > 0.0f) || !(longer > 1.0) || r->n_ctx_orig < 2) return r->yarn_attn_factor;
    const double usual = sqrt(1.0 + ae_log(longer) / ae_log((double)r->n_ctx_orig));
    return fabs((double)r->yarn_attn_factor - usual) < 1e-5 ? b->arch->longrope_attn : r->yarn_attn_factor;
}

aerie_status ae_bind_check_rope(ae_binder *b, const ae_rope *r, uint32_t head_dim)
{
    AE_TRY(ae_bind_range(b, "rope.dimension_count", r->n_rot, 2, head_dim));
    if (r->n_rot % 2)
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s is %u, an odd number", ae_gguf_path(b->gguf),
                       ae_bind_key(b, "rope.dimension_count"), r->n_rot);
    if (is_rope_base(r->base) && is_rope_factor(r->factor)) return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: rope base %g or factor %g is out of range", ae_gguf_path(b->gguf),
                   (double)r->base, (double)r->factor);
}

/* Reads divisors of the frequencies [n_rot / 2] into the arena; NULL if there are none. */
static aerie_status read_divisors(ae_binder *b, ae_arena *arena, const char *name, bool required, uint32_t n,
                                  const float **divisors)
{
    ae_tensor_ref t;
    AE_TRY(ae_bind(b, name, required, 0, n, &t));
    if (!t) return AERIE_OK;
    float *x = ae_arena_alloc(arena, n, sizeof *x);
    if (!x) return ae_fail_memory(b->error, "the frequencies of the rotation", n * sizeof *x);
    AE_TRY(ae_bind_read_f32(b, t, x, n));
    *divisors = x;
    for (uint32_t i = 0; i < n; i++)
        if (x[i] == 0.0f || x[i] != x[i]) /* infinity: the pair does not rotate; negative: it rotates backwards */
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s[%u] is %g; a number other than 0 is expected",
                           ae_gguf_path(b->gguf), name, i, (double)x[i]);
    return AERIE_OK;
}

/* Some files have three numbers, some have four. */
static aerie_status read_sections(ae_binder *b, ae_rope *r)
{
    const ae_gguf_kv *kv = ae_gguf_kv_find(b->gguf, ae_bind_key(b, "rope.dimension_sections"));
    if (!kv) return AERIE_OK;
    r->interleaved = b->arch->interleaved;
    for (uint32_t i = 0; i < 4; i++) {
        int64_t n = 0;
        if (kv->type != AE_GGUF_ARRAY || kv->n < 3 || kv->n > 4 ||
            (i < kv->n && (!ae_gguf_kv_int(kv, i, &n) || n < 0 || n > r->n_rot / 2)))
            return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %s must be 3 or 4 numbers from 0 to %u", ae_gguf_path(b->gguf),
                           b->key, r->n_rot / 2);
        r->sections[i] = (uint32_t)n;
        if (n) r->neox = true; /* files with sections pair elements (i, i + half), whatever other files of the architecture
                                * do */
    }
    return AERIE_OK;
}

static aerie_status read_rope(ae_binder *b, ae_hparams *h, ae_arena *arena)
{
    const ae_gguf *gguf = b->gguf;
    ae_rope *r = &h->ropes[0];
    h->n_ropes = 1;
    *r = (ae_rope){.neox = b->arch->rope_neox, .n_rot = h->head_dim, .base = 10000.0f, .factor = 1.0f,
                   .n_ctx_orig = h->n_ctx_train};
    if (b->arch->mla_still) r->n_rot = 2; /* any number: no layer uses it */
    else if (!b->arch->no_attention) AE_TRY(ae_bind_count(b, "rope.dimension_count", &r->n_rot));
    AE_TRY(ae_gguf_get_f32(gguf, ae_bind_key(b, "rope.freq_base"), false, &r->base, b->error));
    AE_TRY(ae_gguf_get_f32(gguf, ae_bind_key(b, "rope.scale_linear"), false, &r->factor, b->error));
    AE_TRY(ae_gguf_get_f32(gguf, ae_bind_key(b, "rope.scaling.factor"), false, &r->factor, b->error));
    if (b->arch->rope_alpha) {
        float alpha = 0.0f;
        AE_TRY(get_given(b, "rope.scaling.alpha", &alpha));
        if (alpha > 0.0f && alpha < 1e6f && r->n_rot > 2)
            r->base = (float)((double)r->base * ae_pow((double)alpha, r->n_rot / (r->n_rot - 2.0)));
    }
    if (r->factor == 0.0f) r->factor = 1.0f; /* other programs write 0 for "none" */
    if (r->factor != 1.0f) r->scaling = AE_ROPE_SCALING_LINEAR; /* unless a type is given */
    ae_gguf_string kind = {0};
    AE_TRY(ae_gguf_get_string(gguf, ae_bind_key(b, "rope.scaling.type"), false, &kind, b->error));
    const bool longrope = kind.n == 8 && !memcmp(kind.data, "longrope", 8);
    if (longrope) {
        r->scaling = AE_ROPE_SCALING_LONGROPE;
    } else if (kind.data) {
        aerie_rope_scaling scaling;
        if (ae_model_rope_scaling_parse(kind.data, kind.n, &scaling)) r->scaling = rope_kind(scaling);
        else
            return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: rope scaling \"%.*s\" is unknown; none, linear, yarn and "
                           "longrope are known", ae_gguf_path(gguf), (int)(kind.n < 32 ? kind.n : 32), kind.data);
    }
    AE_TRY(ae_bind_count(b, "rope.scaling.original_context_length", &r->n_ctx_orig));
    AE_TRY(read_yarn(b, r));
    if (longrope) r->yarn_attn_factor = longrope_magnitude(b, r, h->n_ctx_train);
    AE_TRY(ae_bind_check_rope(b, r, h->head_dim));
    if (b->arch->sections) AE_TRY(read_sections(b, r));
    if (r->factor == 1.0f && !longrope) r->scaling = AE_ROPE_SCALING_NONE;
    AE_TRY(read_divisors(b, arena, "rope_freqs.weight", false, r->n_rot / 2, &r->divisors));
    if (r->divisors) return AERIE_OK;
    AE_TRY(read_divisors(b, arena, "rope_factors_short.weight", longrope, r->n_rot / 2, &r->divisors));
    return read_divisors(b, arena, "rope_factors_long.weight", longrope, r->n_rot / 2, &r->divisors_long);
}

aerie_status ae_bind_rope(ae_binder *b, ae_hparams *hparams, const aerie_rope *rope)
{
    ae_rope *h = &hparams->ropes[0];
    const struct {
        const char *name;
        float value;
        float *place;
        float least, most;
    } given[] = {
        {"base", rope->freq_base, &h->base, 1.0f, 1e12f},
        {"factor", rope->factor, &h->factor, 0.0f, 1e6f},
        {"YaRN attention factor", rope->yarn_attn_factor, &h->yarn_attn_factor, 0.0f, 1e6f},
        {"YaRN beta fast", rope->yarn_beta_fast, &h->yarn_beta_fast, 0.0f, 1e6f},
        {"YaRN beta slow", rope->yarn_beta_slow, &h->yarn_beta_slow, 0.0f, 1e6f},
    };
    if (rope->scaling != AERIE_ROPE_SCALING_FILE && !ae_model_rope_scaling_name(rope->scaling))
        return ae_fail(b->error, AERIE_ERROR_ARGUMENT, "rope scaling %d is unknown", (int)rope->scaling);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        if (given[i].value < 0.0f) continue;
        if (!(given[i].value > given[i].least && given[i].value < given[i].most))
            return ae_fail(b->error, AERIE_ERROR_ARGUMENT, "the rotation's %s is %g; it must lie between %g and %g",
                           given[i].name, (double)given[i].value, (double)given[i].least, (double)given[i].most);
        *given[i].place = given[i].value;
    }
    if (rope->yarn_ext_factor > 1.0f)
        return ae_fail(b->error, AERIE_ERROR_ARGUMENT, "YaRN's ext factor is %g; it must lie between 0 and 1",
                       (double)rope->yarn_ext_factor);
    if (rope->yarn_ext_factor >= 0.0f) h->yarn_ext_factor = rope->yarn_ext_factor;
    if (rope->n_ctx_orig) h->n_ctx_orig = rope->n_ctx_orig;
    if (rope->scaling != AERIE_ROPE_SCALING_FILE) h->scaling = rope_kind(rope->scaling);
    else if (rope->factor >= 0.0f && h->scaling == AE_ROPE_SCALING_NONE) h->scaling = AE_ROPE_SCALING_LINEAR;
    if (h->factor == 1.0f && h->scaling != AE_ROPE_SCALING_LONGROPE) h->scaling = AE_ROPE_SCALING_NONE;
    return AERIE_OK;
}

static aerie_status read_head(ae_binder *b, ae_hparams *h)
{
    uint32_t value_dim;
    h->head_dim = b->arch->no_attention ? 2 : h->n_embd / h->n_heads;
    if (b->arch->head_of_rope) AE_TRY(ae_bind_count(b, "rope.dimension_count", &h->head_dim));
    if (!b->arch->no_attention) AE_TRY(ae_bind_count(b, "attention.key_length", &h->head_dim));
    value_dim = h->head_dim;
    AE_TRY(ae_bind_count(b, "attention.value_length", &value_dim));
    AE_TRY(ae_bind_range(b, "attention.key_length", h->head_dim, 2, AE_MAX_HEAD_DIM));
    h->value_dim = value_dim;
    if (b->arch->no_attention) h->head_dim = h->value_dim = 2;
    if (b->arch->narrow_values) return ae_bind_range(b, "attention.value_length", value_dim, 1, h->head_dim);
    if (value_dim == h->head_dim || b->arch->no_attention) return AERIE_OK;
    return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: keys of %u and values of %u elements a head; aerie needs them equal",
                   ae_gguf_path(b->gguf), h->head_dim, value_dim);
}

aerie_status ae_bind_hparams(ae_binder *b, ae_hparams *h, ae_arena *arena)
{
    const ae_gguf *gguf = b->gguf;
    const bool layer_norm = h->layer_norm, wkv = b->arch->recur >= AE_RECUR_WKV6;
    const bool needs_ff = b->arch->experts != AE_EXPERTS_ALWAYS && (!b->arch->no_attention || wkv);
    const bool attends = !b->arch->no_attention;
    AE_TRY(ae_gguf_get_u32(gguf, ae_bind_key(b, "embedding_length"), true, &h->n_embd, b->error));
    AE_TRY(ae_gguf_get_u32(gguf, ae_bind_key(b, "context_length"), false, &h->n_ctx_train, b->error));
    AE_TRY(get_largest(b, "feed_forward_length", needs_ff, &h->n_ff));
    h->n_heads = 1;
    if (attends) AE_TRY(get_largest(b, "attention.head_count", true, &h->n_heads));
    h->n_kv_heads = h->n_heads;
    if (attends) AE_TRY(get_largest(b, "attention.head_count_kv", false, &h->n_kv_heads));
    AE_TRY(ae_gguf_get_f32(gguf,
                           ae_bind_key(b, layer_norm && !b->arch->rms_key ? "attention.layer_norm_epsilon"
                                                                         : "attention.layer_norm_rms_epsilon"),
                           true, &h->norm_eps, b->error));
    AE_TRY(ae_bind_range(b, "embedding_length", h->n_embd, 1, AE_MAX_EMBD));
    AE_TRY(ae_bind_range(b, "feed_forward_length", h->n_ff, needs_ff, AE_MAX_FF));
    AE_TRY(ae_bind_range(b, "attention.head_count", h->n_heads, 1, AE_MAX_HEADS));
    AE_TRY(ae_bind_range(b, "attention.head_count_kv", h->n_kv_heads, 1, h->n_heads));
    if (h->n_heads % h->n_kv_heads && !is_array(b, "attention.head_count") &&
        !is_array(b, "attention.head_count_kv"))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: %u attention heads cannot share %u KV heads evenly",
                       ae_gguf_path(gguf), h->n_heads, h->n_kv_heads);
    AE_TRY(b->arch->mla ? ae_bind_mla_head(b, h) : read_head(b, h));
    h->attn_scale = 1.0f / sqrtf((float)h->head_dim);
    /* llama.cpp's saver writes 0 for qwen2vl, since its reader ignores the key, and norms without an epsilon */
    const bool zero = h->norm_eps == 0.0f && ae_bind_is_saved(b);
    if (!zero && !(h->norm_eps > 0.0f && h->norm_eps < 1.0f))
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: the norm's epsilon is %g; it must lie between 0 and 1",
                       ae_gguf_path(gguf), (double)h->norm_eps);
    return read_rope(b, h, arena);
}

/* ---- Tensors ------------------------------------------------------------------------------------- */

aerie_status ae_bind_stack(ae_binder *b, const char *name, bool required, uint32_t n_stack, uint32_t n_out, uint32_t n_in,
                           ae_tensor_ref *out)
{
    const char *path = ae_gguf_path(b->gguf);
    const ae_gguf_tensor *t = ae_gguf_tensor_find(b->gguf, name);
    if (t && !required && ae_bind_is_unused(b, t)) t = NULL;
    *out = t;
    if (!t) {
        if (!required) return AERIE_OK;
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing; architecture %s needs it", path, name,
                       b->arch->name);
    }
    const int64_t rows = n_out ? n_out : 1;
    if (t->ne[0] != n_in || t->ne[1] != rows || t->ne[2] != n_stack || t->ne[3] != 1) {
        char depth[24] = "";
        if (n_stack > 1) snprintf(depth, sizeof depth, ", %u", n_stack);
        return ae_fail(b->error, AERIE_ERROR_FORMAT, "%s: tensor %s has shape [%lld, %lld, %lld, %lld], expected [%u, %lld%s]",
                       path, name, (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2], (long long)t->ne[3], n_in,
                       (long long)rows, depth);
    }
    const ae_type_info *info = ae_type_get(t->type);
    if (!info || !info->decode || (n_out && info->dot == AE_DOT_NONE))
        return ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s has type %s, which cannot hold weights", path, name,
                       ae_type_name(t->type));
    ae_bind_mark(b, t);
    return n_out ? ae_bind_scale(b, t, n_stack) : AERIE_OK;
}

aerie_status ae_bind(ae_binder *b, const char *name, bool required, uint32_t n_out, uint32_t n_in, ae_tensor_ref *out)
{
    return ae_bind_stack(b, name, required, 1, n_out, n_in, out);
}

aerie_status ae_bind_layer(ae_binder *b, uint32_t i, const char *part, bool required, uint32_t n_out, uint32_t n_in,
                           ae_tensor_ref *out)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%u.%s", ae_bind_prefix(b), i, part);
    return ae_bind(b, name, required, n_out, n_in, out);
}

aerie_status ae_bind_attention(ae_binder *b, uint32_t i, const ae_hparams *h, const ae_layer_spec *spec, uint32_t n_in,
                               ae_layer *l)
{
    const uint32_t e = h->n_embd, q = spec->n_heads * spec->head_dim, kv = spec->n_kv_heads * spec->head_dim;
    const uint32_t value_dim = spec->value_dim ? spec->value_dim : spec->head_dim, v = spec->n_kv_heads * value_dim;
    const uint32_t q_rows = spec->out_gate == AE_OUT_GATE_ELEMENT ? 2 * q : q;
    if (!b->arch->drafter)
        AE_TRY(ae_bind_layer(b, i, "attn_qkv.weight", false, q_rows + kv + v, n_in, &l->wqkv));
    if (l->wqkv) {
        AE_TRY(ae_bind_layer(b, i, "attn_qkv.bias", false, 0, q_rows + kv + v, &l->bqkv));
    } else {
        AE_TRY(ae_bind_layer(b, i, "attn_q.weight", true, q_rows, n_in, &l->wq));
        AE_TRY(ae_bind_layer(b, i, "attn_q.bias", false, 0, q_rows, &l->bq));
    }
    if (!l->wqkv && spec->kv_from == (int)i) {
        AE_TRY(ae_bind_layer(b, i, "attn_k.weight", true, kv, n_in, &l->wk));
        AE_TRY(ae_bind_layer(b, i, "attn_v.weight", !spec->v_norm, v, n_in, &l->wv));
        AE_TRY(ae_bind_layer(b, i, "attn_k.bias", false, 0, kv, &l->bk));
        AE_TRY(ae_bind_layer(b, i, "attn_v.bias", false, 0, v, &l->bv));
    }
    /* T5's files call it so */
    AE_TRY(ae_bind_layer(b, i, b->blocks ? "attn_o.weight" : "attn_output.weight", true, e, spec->n_heads * value_dim,
                         &l->wo));
    if (b->arch->sub_norms)
        AE_TRY(ae_bind_layer(b, i, "attn_sub_norm.weight", true, 0, spec->n_heads * value_dim, &l->attn_sub_norm));
    return ae_bind_layer(b, i, "attn_output.bias", false, 0, e, &l->bo);
}

aerie_status ae_bind_dense(ae_binder *b, uint32_t i, const ae_hparams *h, uint32_t n_ff, ae_layer *l)
{
    const uint32_t e = h->n_embd, f = n_ff;
    const ae_gguf_tensor *up;
    char name[48];
    snprintf(name, sizeof name, "%.10s.%u.ffn_up.weight", ae_bind_prefix(b), i);
    up = ae_gguf_tensor_find(b->gguf, name);
    snprintf(name, sizeof name, "%.10s.%u.ffn_gate.weight", ae_bind_prefix(b), i);
    if (!b->arch->ungated && !b->arch->drafter && up && up->ne[1] == 2 * (int64_t)f && !ae_gguf_tensor_find(b->gguf, name)) {
        AE_TRY(ae_bind_layer(b, i, "ffn_up.weight", true, 2 * f, e, &l->w_gate_up));
    } else {
        if (!b->arch->ungated)
            AE_TRY(ae_bind_layer(b, i, "ffn_gate.weight", !b->arch->gate_optional, f, e, &l->w_gate));
        if (b->arch->relu_ungated && !l->w_gate) l->spec.activation = AE_ACTIVATION_RELU;
        AE_TRY(ae_bind_layer(b, i, "ffn_up.weight", true, f, e, &l->w_up));
        AE_TRY(ae_bind_layer(b, i, "ffn_gate.bias", false, 0, f, &l->b_gate));
        AE_TRY(ae_bind_layer(b, i, "ffn_up.bias", false, 0, f, &l->b_up));
    }
    AE_TRY(ae_bind_layer(b, i, "ffn_down.weight", true, e, f, &l->w_down));
    if (b->arch->ff_divisors) AE_TRY(ae_bind_layer(b, i, "ffn.act.scales", false, 0, f, &l->ff_divisors));
    if (b->arch->sub_norms) AE_TRY(ae_bind_layer(b, i, "ffn_sub_norm.weight", true, 0, f, &l->ffn_sub_norm));
    return ae_bind_layer(b, i, "ffn_down.bias", false, 0, e, &l->b_down);
}

aerie_status ae_bind_read_f32(ae_binder *b, ae_tensor_ref t, float *x, uint32_t n)
{
    uint8_t bytes[4096];
    const ae_type_info *info = ae_type_get(t->type);
    ae_gguf_reader reader = ae_gguf_reader_open(b->gguf);
    aerie_status status = AERIE_OK;
    for (uint32_t i = 0, part = 0; i < n && status == AERIE_OK; i += part) {
        part = n - i < 1024 ? n - i : 1024; /* fits floats of any width; 1024 is a multiple of all block sizes */
        const size_t size = ae_type_row_bytes(t->type, part);
        if (!size || size > sizeof bytes) status = ae_fail(b->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %.*s has type %s",
                                                           ae_gguf_path(b->gguf), (int)t->name.n, t->name.data,
                                                           ae_type_name(t->type));
        else status = ae_gguf_read(&reader, t, ae_type_row_bytes(t->type, i), bytes, size, b->error);
        if (status == AERIE_OK) info->decode(bytes, x + i, part);
    }
    ae_gguf_reader_close(&reader);
    return status;
}

uint64_t ae_bind_n_params(const ae_gguf *gguf)
{
    uint64_t n = 0;
    for (size_t i = 0; i < ae_gguf_n_tensors(gguf); i++) {
        const ae_gguf_tensor *t = ae_gguf_tensor_at(gguf, i);
        n += (uint64_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
    }
    return n;
}

/* ---- Rotation ------------------------------------------------------------------------------------------ */

/* YaRN (arXiv 2309.00071): pairs that rotate often keep their frequency (as far as ext_factor says), slow ones are
 * interpolated. In between is a linear ramp, from the pair that turns beta_fast times over the original context to the one that
 * turns beta_slow times. */
static double yarn_pair(const ae_rope *r, double turns)
{
    const double pi = 3.14159265358979323846;
    return r->n_rot * ae_log(r->n_ctx_orig / (turns * 2 * pi)) / (2 * ae_log((double)r->base));
}

/* Returns the factor by which YaRN multiplies cos and sin. */
static double yarn_magnitude(const ae_rope *r)
{
    const double log = r->factor > 1.0f ? ae_log((double)r->factor) : 0;
    const double over = r->yarn_log_mul > 0.0f ? 1.0 + 0.1 * (double)r->yarn_log_mul * log : 1.0;
    return (1.0 + 0.1 * log) / over;
}

void ae_model_rope_freqs(const ae_rope *r, uint32_t n_ctx, double *freq, double *magnitude)
{
    const uint32_t half = r->n_rot / 2;
    const double ext = (double)r->yarn_ext_factor;
    const float *divisors = r->divisors_long && n_ctx > r->n_ctx_orig ? r->divisors_long : r->divisors;
    double lo = 0, hi = 0;
    *magnitude = (double)r->yarn_attn_factor;
    if (r->scaling == AE_ROPE_SCALING_YARN && r->n_ctx_orig) {
        lo = floor(yarn_pair(r, (double)r->yarn_beta_fast));
        hi = ceil(yarn_pair(r, (double)r->yarn_beta_slow));
        lo = lo < 0 ? 0 : lo;
        hi = hi > r->n_rot - 1 ? r->n_rot - 1 : hi;
        if (r->yarn_ext_factor > 0.0f) *magnitude *= yarn_magnitude(r);
    }
    for (uint32_t i = 0; i < half; i++) {
        double f = ae_pow((double)r->base, -2.0 * i / r->n_rot);
        if (divisors) f /= (double)divisors[i];
        const double slow = f / (double)r->factor;
        if (r->scaling == AE_ROPE_SCALING_LINEAR) {
            f = slow;
        } else if (r->scaling == AE_ROPE_SCALING_YARN) {
            double y = (i - lo) / (hi - lo > 0.001 ? hi - lo : 0.001);
            y = y < 0 ? 0 : y > 1 ? 1 : y;
            y = (1 - ext) + ext * y; /* if ext is 1, y stays the same to the bit */
            f = f * (1 - y) + slow * y;
        }
        freq[i] = f;
    }
}

uint32_t ae_model_rope_component(const ae_rope *r, uint32_t i)
{
    const uint32_t *s = r->sections, sum = s[0] + s[1] + s[2] + s[3];
    if (!sum) return 0;
    const uint32_t j = i % sum;
    if (r->interleaved) return j % 3 == 1 && j < 3 * s[1] ? 1 : j % 3 == 2 && j < 3 * s[2] ? 2 : 0;
    return j < s[0] ? 0 : j < s[0] + s[1] ? 1 : j < s[0] + s[1] + s[2] ? 2 : 3;
}

/* metadata.c - writes the metadata of a model's file, and plans the tensors of its rotation (arch.h). metadata_arch.c writes
 * the keys of single architectures. */
#include <math.h>
#include <string.h>

#include "base/math/fmath.h"
#include "convert/archs/arch.h"
#include "model/arch.h"

/* ---- From the tables ---------------------------------------------------------------------------------- */

static aerie_status put_key(ae_convert_keys *k, const ae_convert *c, const ae_convert_key *key)
{
    const char *from = NULL;
    uint32_t count = 0;
    double real = 0;
    bool flag = false;
    for (size_t i = 0; i < sizeof key->from / sizeof *key->from && key->from[i] && !from; i++)
        if (ae_convert_value(c, key->from[i])) from = key->from[i];
    if (!from) return AERIE_OK;
    if (key->kind == AE_KEY_U32) {
        AE_TRY(ae_convert_u32(c, from, 0, INT32_MAX, &count));
        if (count || !key->nonzero) ae_convert_put_u32(k, key->to, count);
    } else if (key->kind == AE_KEY_F32) {
        AE_TRY(ae_convert_real(c, ae_convert_value(c, from), from, -1e12, 1e12, &real));
        if (real != 0 || !key->nonzero) ae_convert_put_f32(k, key->to, real);
    } else {
        AE_TRY(ae_convert_bool(c, from, &flag, NULL));
        ae_convert_put_bool(k, key->to, flag);
    }
    return k->status;
}

/* Writes the keys of a table, except those in `own`. */
static aerie_status put_keys(ae_convert_keys *k, const ae_convert *c, const ae_convert_key *keys, const ae_convert_key *own)
{
    for (; keys && keys->to; keys++) {
        bool done = false;
        for (const ae_convert_key *o = own; o && o->to; o++) done |= strcmp(o->to, keys->to) == 0;
        if (!done) AE_TRY(put_key(k, c, keys));
    }
    return AERIE_OK;
}

static aerie_status put_epsilon(ae_convert_keys *k, const ae_convert *c)
{
    static const char *const names[] = {"rms_norm_eps", "norm_eps", "layer_norm_eps", "norm_epsilon", "layer_norm_epsilon"};
    double eps = 1e-6;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *value = ae_convert_value(c, names[i]);
        if (!value) continue;
        AE_TRY(ae_convert_real(c, value, names[i], 1e-30, 0.1, &eps));
        break;
    }
    const bool of_layers = c->arch->flags & AE_ARCH_LAYER_NORM ||
                           (c->arch->flags & AE_ARCH_EITHER_NORM && !ae_convert_value(c, "rms_norm_eps"));
    ae_convert_put_f32(k, of_layers ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", eps);
    return k->status;
}

/* ---- Windows ------------------------------------------------------------------------------------------ */

void ae_convert_find_windows(const ae_convert *c, uint32_t period, bool *windowed)
{
    const json_t *types = ae_convert_value(c, "layer_types");
    for (uint32_t i = 0; i < c->model.n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        windowed[i] = type ? strncmp(type, "sliding", 7) == 0 : period && (i + 1) % period != 0;
    }
}

static aerie_status put_windows(ae_convert_keys *k, const ae_convert *c)
{
    const uint32_t n = c->model.n_layers, usual = c->arch->window_period;
    uint32_t window = 0, period = usual;
    bool windowed[AE_MAX_LAYERS], used = true, any = false, regular = true;
    AE_TRY(ae_convert_u32(c, "sliding_window", 0, INT32_MAX, &window));
    AE_TRY(ae_convert_bool(c, "use_sliding_window", &used, NULL));
    if (json_is_integer(ae_convert_value(c, "sliding_window_pattern")))
        AE_TRY(ae_convert_u32(c, "sliding_window_pattern", 0, AE_MAX_LAYERS, &period));
    ae_convert_find_windows(c, period, windowed);
    for (uint32_t i = 0; i < n; i++) any |= windowed[i];
    if (!window || !used || !any) return AERIE_OK;
    const ae_arch *arch = ae_arch_find(c->arch->arch, strlen(c->arch->arch));
    if (arch && arch->only_layers && arch->only_layers != n)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'sliding_window' is %u with %u layers, but programs apply "
                       "windows of GGUF files of architecture %s only with %u layers, so the file would be a different model",
                       c->config_path, window, n, c->arch->arch, arch->only_layers);
    for (uint32_t i = 0; i < n; i++) regular &= windowed[i] == ((i + 1) % usual != 0);
    ae_convert_put_u32(k, "attention.sliding_window", window);
    if (!regular) ae_convert_put_array(k, "attention.sliding_window_pattern", AE_GGUF_BOOL, windowed, n);
    return k->status;
}

/* Warns about windows that GGUF files of the architecture cannot express, so that no program will apply them. */
static aerie_status warn_of_window(const ae_convert *c)
{
    uint32_t window = 0;
    bool used = true, windowed[AE_MAX_LAYERS], any = false;
    AE_TRY(ae_convert_u32(c, "sliding_window", 0, INT32_MAX, &window));
    AE_TRY(ae_convert_bool(c, "use_sliding_window", &used, NULL));
    for (uint32_t i = 0; i < c->model.n_layers; i++) windowed[i] = true;
    if (ae_convert_value(c, "layer_types")) ae_convert_find_windows(c, 0, windowed);
    for (uint32_t i = 0; i < c->model.n_layers; i++) any |= windowed[i];
    if (used && any && window && window < c->model.n_ctx)
        ae_log_say(&c->options.log, AERIE_LOG_WARNING,
                   "%s: 'sliding_window' is %u, but GGUF files of architecture %s have none: beyond "
                   "%u tokens the answers differ from the original's",
                   c->config_path, window, c->arch->arch, window);
    return AERIE_OK;
}

/* ---- The rotation ------------------------------------------------------------------------------------- */

static const json_t *rope_value(const ae_convert *c, const char *key)
{
    const json_t *scaling = ae_convert_value(c, "rope_scaling");
    if (!json_object_size(scaling)) scaling = ae_convert_value(c, "rope_parameters");
    const json_t *value = json_object_get(scaling, key);
    return value && !json_is_null(value) ? value : ae_convert_value(c, key);
}

static aerie_status add_table(ae_convert *c, const char *name, const char *key, uint32_t n)
{
    const json_t *list = rope_value(c, key);
    float *values = ae_arena_alloc(&c->arena, n, sizeof *values);
    if (!values) return ae_convert_no_memory(c, "the frequencies of the rotation");
    if (json_array_size(list) != n)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'rope_scaling': '%s' has %zu numbers, but %u are needed",
                       c->config_path, key, json_array_size(list), n);
    for (uint32_t i = 0; i < n; i++) {
        double value = 0;
        AE_TRY(ae_convert_real(c, json_array_get(list, i), key, 1e-6, 1e30, &value));
        values[i] = (float)value;
    }
    return ae_convert_add(c, &(ae_convert_item){.name = name, .how = AE_CONVERT_VALUES, .values = values, .columns = n});
}

/* Reads the magnitudes that Phi-3.5-MoE gives instead of the factor that follows from its contexts. A file has one for all
 * texts. */
static aerie_status read_mscales(ae_convert *c)
{
    double near = 0, far = 0;
    AE_TRY(ae_convert_real(c, rope_value(c, "short_mscale"), "short_mscale", 1e-3, 1e3, &near));
    AE_TRY(ae_convert_real(c, rope_value(c, "long_mscale"), "long_mscale", 1e-3, 1e3, &far));
    if (near <= 0 && far <= 0) return AERIE_OK;
    if (fabs(near - far) > 1e-9)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'short_mscale' %g and 'long_mscale' %g differ; GGUF files have "
                       "one magnitude for all texts", c->config_path, near, far);
    c->head.rope_attn = far;
    return AERIE_OK;
}

/* Plans two tables of divisors, for texts within the original context and for longer ones, with one magnitude for both. */
static aerie_status plan_longrope(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    double n_ctx_orig = h->n_ctx, factor = 0;
    AE_TRY(ae_convert_real(c, rope_value(c, "original_max_position_embeddings"), "original_max_position_embeddings", 2,
                           INT32_MAX, &n_ctx_orig));
    AE_TRY(ae_convert_real(c, rope_value(c, "factor"), "factor", 1e-3, 1e6, &factor));
    if (factor <= 0) factor = h->n_ctx / n_ctx_orig;
    h->rope_n_ctx_orig = (uint32_t)n_ctx_orig;
    h->rope_attn = factor > 1 ? sqrt(1 + ae_log(factor) / ae_log(n_ctx_orig)) : 1;
    AE_TRY(ae_convert_real(c, rope_value(c, "attention_factor"), "attention_factor", 1e-3, 1e3, &h->rope_attn));
    AE_TRY(read_mscales(c));
    AE_TRY(add_table(c, "rope_factors_long.weight", "long_factor", h->n_rot / 2));
    return add_table(c, "rope_factors_short.weight", "short_factor", h->n_rot / 2);
}

aerie_status ae_convert_plan_rope(ae_convert *c)
{
    ae_convert_head *h = &c->head;
    if (c->arch->flags & AE_ARCH_NO_ROPE) return AERIE_OK;
    if (strcmp(h->rope_type, "longrope") == 0) return plan_longrope(c);
    if (strcmp(h->rope_type, "yarn") == 0 && !(h->rope_beta_fast == 32 && h->rope_beta_slow == 1 && h->rope_whole)) {
        if (!(c->arch->flags & AE_ARCH_NO_DIVISORS)) AE_TRY(ae_convert_yarn_divisors(c));
        else if (!h->rope_whole)
            ae_log_say(&c->options.log, AERIE_LOG_INFO,
                       "%s: YaRN's ramp is rounded to whole pairs, as GGUF files of %s have it", c->config_path, c->arch->arch);
    }
    if (!h->divisors) return AERIE_OK;
    return ae_convert_add(c, &(ae_convert_item){.name = "rope_freqs.weight", .how = AE_CONVERT_VALUES, .values = h->divisors,
                                                .columns = h->n_rot / 2});
}

static aerie_status put_rope(ae_convert_keys *k, const ae_convert *c)
{
    const ae_convert_head *h = &c->head;
    const json_t *of_window = json_object_get(json_object_get(ae_convert_value(c, "rope_parameters"), "sliding_attention"),
                                              "rope_theta");
    double base = 0;
    ae_convert_put_rope(k, h);
    if (fabs(h->rope_attn - 1) > 1e-6 && h->rope_log_mul <= 0) ae_convert_put_f32(k, "rope.scaling.attn_factor", h->rope_attn);
    if (!of_window) of_window = ae_convert_value(c, "rope_local_base_freq");
    AE_TRY(ae_convert_real(c, of_window, "rope_local_base_freq", 1.001, 1e12, &base));
    if (base > 0 && (c->arch->flags & AE_ARCH_WINDOW)) ae_convert_put_f32(k, "rope.freq_base_swa", base);
    return k->status;
}

/* ---- Recommended settings of samplers ----------------------------------------------------------------- */

static aerie_status put_sampling(const ae_convert *c, ae_gguf_writer *w)
{
    static const struct {
        const char *from, *to;
        bool whole;
    } keys[] = {{"temperature", "general.sampling.temp", false}, {"top_k", "general.sampling.top_k", true},
                {"top_p", "general.sampling.top_p", false}, {"min_p", "general.sampling.min_p", false},
                {"repetition_penalty", "general.sampling.penalty_repeat", false}};
    json_t *json;
    AE_TRY(ae_convert_read_json(c, "generation_config.json", &json));
    aerie_status status = AERIE_OK;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && status == AERIE_OK; i++) {
        const json_t *value = json_object_get(json, keys[i].from);
        if (!json_is_number(value)) continue;
        const double real = json_number_value(value);
        if (!(real >= 0 && real < 1e6)) continue;
        if (!keys[i].whole) status = ae_gguf_writer_f32(w, keys[i].to, (float)real, c->error);
        else status = ae_gguf_writer_i32(w, keys[i].to, (int32_t)real, c->error);
    }
    json_decref(json);
    return status;
}

/* Writes how rows become a vector, if the folder says it, and whether they see later ones. */
static aerie_status put_pooling(ae_convert_keys *k, const ae_convert *c)
{
    ae_pooling pooling = AE_POOLING_NONE;
    if (c->arch->flags & AE_ARCH_ENCODES) ae_convert_put_bool(k, "attention.causal", false);
    if (c->arch->flags & AE_ARCH_DECIDES || c->decision_config) return k->status;
    if (c->model.ranks) pooling = AE_POOLING_RANK;
    else AE_TRY(ae_convert_read_pooling(c, &pooling));
    if (pooling != AE_POOLING_NONE) ae_convert_put_u32(k, "pooling_type", pooling);
    return k->status;
}

aerie_status ae_convert_model_keys(const ae_convert *c, ae_gguf_writer *w)
{
    const ae_convert_model *m = &c->model;
    const uint32_t flags = c->arch->flags;
    ae_convert_keys k = {.w = w, .arch = c->arch->arch, .status = AERIE_OK, .error = c->error};
    ae_convert_put_general(&k, c);
    AE_TRY(put_sampling(c, w));
    ae_convert_put_u32(&k, "vocab_size", m->n_vocab);
    ae_convert_put_u32(&k, "block_count", m->n_layers + m->n_ahead);
    if (m->n_ahead) ae_convert_put_u32(&k, "nextn_predict_layers", m->n_ahead);
    AE_TRY(put_keys(&k, c, c->arch->keys, NULL));
    AE_TRY(put_keys(&k, c, ae_convert_shared_keys, c->arch->keys));
    if (!(flags & AE_ARCH_OWN_HEADS)) {
        ae_convert_put_u32(&k, "attention.head_count_kv", m->n_kv_heads);
        ae_convert_put_u32(&k, "attention.key_length", m->head_dim);
        ae_convert_put_u32(&k, "attention.value_length", m->head_dim);
    }
    AE_TRY(put_epsilon(&k, c));
    if (m->n_experts) AE_TRY(put_keys(&k, c, ae_convert_expert_keys, c->arch->keys));
    if (m->n_experts && (flags & AE_ARCH_SIGMOID)) ae_convert_put_u32(&k, "expert_gating_func", AE_EXPERT_GATE_SIGMOID);
    if (flags & AE_ARCH_WINDOW) AE_TRY(put_windows(&k, c));
    else if (!c->arch->window_period) AE_TRY(warn_of_window(c));
    if (!(flags & AE_ARCH_NO_ROPE)) AE_TRY(put_rope(&k, c));
    AE_TRY(put_pooling(&k, c));
    if (c->arch->more_keys) AE_TRY(c->arch->more_keys(&k, c));
    AE_TRY(k.status);
    return ae_convert_put_vocab(c, w);
}

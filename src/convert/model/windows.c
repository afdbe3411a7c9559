/* windows.c - functions for rows of archs_more.c whose layers differ: with and without a window, in heads and in rotations
 * (Step-3.5, MiMo-V2, Cohere2Moe, Muse-Glimmer). Owns nothing.
 * Sources: the models' own code and transformers'; names and keys of GGUF files as llama.cpp reads them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/archs/arch.h"

static json_t *values_of(const ae_convert *c)
{
    return json_is_object(c->layer) ? c->layer : c->config;
}

static aerie_status set_value(const ae_convert *c, const char *key, json_t *value)
{
    if (value && json_object_set_new(values_of(c), key, value) == 0) return AERIE_OK;
    return ae_convert_no_memory(c, "the configuration");
}

static aerie_status fail_files(const ae_convert *c, const char *key, const char *have)
{
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: '%s' does not fit: in GGUF files of architecture %s %s",
                   c->config_path, key, c->arch->arch, have);
}

/* Reads the kinds of the layers and of MTP blocks from a list of names, which may be shorter: `usual` for those beyond it. */
static aerie_status read_types(const ae_convert *c, const char *key, uint32_t first, uint32_t n, bool usual, uint8_t *windowed)
{
    const json_t *types = ae_convert_value(c, key);
    if (types && !json_is_array(types))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' is not a list", c->config_path, key);
    for (uint32_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(types, i);
        const char *type = json_string_value(one);
        windowed[first + i] = type ? strcmp(type, "sliding_attention") == 0 : usual;
        if (!one || windowed[first + i] || (type && strcmp(type, "full_attention") == 0)) continue;
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' does not say what layer %u is: \"full_attention\" or "
                       "\"sliding_attention\"", c->config_path, key, first + i);
    }
    return AERIE_OK;
}

/* Writes which layers have a window, and how long it is. */
static aerie_status put_layer_windows(ae_convert_keys *k, const ae_convert *c, const uint8_t *windowed, uint32_t n)
{
    bool any = false;
    uint32_t window = 0;
    for (uint32_t i = 0; i < n; i++) any |= windowed[i];
    AE_TRY(ae_convert_u32(c, "sliding_window", 0, INT32_MAX, &window));
    if (any && !window)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: layers have a window, but 'sliding_window' is 0 or missing",
                       c->config_path);
    ae_convert_put_u32(k, "attention.sliding_window", window);
    ae_convert_put_array(k, "attention.sliding_window_pattern", AE_GGUF_BOOL, windowed, n);
    return k->status;
}

/* Returns the object about one kind of layers in rope_parameters; NULL: there is none. */
static json_t *rope_of(const ae_convert *c, const char *kind)
{
    return json_object_get(ae_convert_value(c, "rope_parameters"), kind);
}

/* ---- Step-3.5 ---------------------------------------------------------------------------------------------------- */

/* Replaces a list with a number for each layer by one number for layers without a window and one for the others; both stay
 * unchanged if config.json has none. */
static aerie_status part_list(const ae_convert *c, const char *key, const uint8_t *windowed, uint32_t n, double lo, double hi,
                              double of_kind[2])
{
    const json_t *list = ae_convert_value(c, key);
    bool seen[2] = {false};
    if (list && !json_is_array(list)) {
        AE_TRY(ae_convert_real(c, list, key, lo, hi, &of_kind[0]));
        of_kind[1] = of_kind[0];
    }
    for (uint32_t i = 0; i < n && json_is_array(list); i++) {
        double value = 0;
        const json_t *one = json_array_get(list, i);
        if (!one && i) break;
        if (!json_is_number(one))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' has no number for layer %u", c->config_path, key, i);
        AE_TRY(ae_convert_real(c, one, key, lo, hi, &value));
        const bool kind = windowed[i];
        if (seen[kind] && fabs(value - of_kind[kind]) > 1e-9 * value)
            return fail_files(c, key, "all layers with a window have the same number, and so have the others");
        seen[kind] = true;
        of_kind[kind] = value;
    }
    return AERIE_OK;
}

/* Finds the two rotations: layers without a window rotate half of a head, the others the whole one. */
static aerie_status part_step_ropes(ae_convert *c, uint32_t n)
{
    static const char *const kinds[] = {"full_attention", "sliding_attention"};
    uint8_t windowed[AE_MAX_LAYERS];
    double bases[2] = {10000, 10000}, shares[2] = {0.5, 1};
    json_t *only = (json_t *)ae_convert_value(c, "yarn_only_types");
    AE_TRY(read_types(c, "layer_types", 0, n, false, windowed));
    AE_TRY(part_list(c, "rope_theta", windowed, n, 1.001, 1e12, bases));
    AE_TRY(part_list(c, "partial_rotary_factors", windowed, n, 0, 1, shares));
    for (size_t i = 0; i < 2; i++) {
        const json_t *own = rope_of(c, kinds[i]);
        AE_TRY(ae_convert_real(c, json_object_get(own, "rope_theta"), "rope_theta", 1.001, 1e12, &bases[i]));
        AE_TRY(ae_convert_real(c, json_object_get(own, "partial_rotary_factor"), "partial_rotary_factor", 0, 1, &shares[i]));
    }
    if (fabs(shares[0] - 0.5) > 1e-9 || fabs(shares[1] - 1) > 1e-9)
        return fail_files(c, "partial_rotary_factors",
                          "half of a head rotates in layers without a window, and the whole one in the others");
    if (only && ae_convert_value(c, "rope_scaling") &&
        (json_array_size(only) != 1 || !json_string_value(json_array_get(only, 0)) ||
         strcmp(json_string_value(json_array_get(only, 0)), kinds[0])))
        return fail_files(c, "yarn_only_types", "the scaling is of layers without a window (\"full_attention\")");
    AE_TRY(set_value(c, "rope_theta", json_real(bases[0])));
    AE_TRY(set_value(c, "partial_rotary_factor", json_real(0.5)));
    return set_value(c, "swa_rope_theta", json_real(bases[1]));
}

aerie_status ae_convert_begin_step35(ae_convert *c)
{
    const json_t *other = ae_convert_value(c, "attention_other_setting"), *rotates = ae_convert_value(c, "use_rope_layers");
    const char *kind = json_string_value(json_object_get(other, "attention_type"));
    json_t *heads = json_object_get(other, "num_attention_heads"), *groups = json_object_get(other, "num_attention_groups"),
           *size = json_object_get(other, "head_dim");
    uint32_t n = 0;
    AE_TRY(ae_convert_need_u32(c, "num_hidden_layers", 1, AE_MAX_LAYERS, &n));
    if (kind && strcmp(kind, "sliding_attention"))
        return fail_files(c, "attention_other_setting", "layers with a window have other heads");
    if (size && !json_equal(size, ae_convert_value(c, "head_dim")))
        return fail_files(c, "attention_other_setting", "all layers have the same 'head_dim'");
    for (size_t i = 0; i < json_array_size(rotates); i++) {
        const json_t *one = json_array_get(rotates, i);
        if (!json_is_true(one) && json_integer_value(one) != 1) return fail_files(c, "use_rope_layers", "all layers rotate");
    }
    if (heads && !ae_convert_value(c, "num_sliding_attention_heads"))
        AE_TRY(set_value(c, "num_sliding_attention_heads", json_incref(heads)));
    if (groups) AE_TRY(set_value(c, "num_sliding_attention_groups", json_incref(groups)));
    return part_step_ropes(c, n);
}

/* Files count the rotated part of a windowed layer's head, and have a divisor for each pair of it: 1 for those that do not
 * rotate without a window. */
aerie_status ae_convert_finish_step35(ae_convert *c)
{
    const uint32_t n = c->model.head_dim / 2;
    for (size_t i = 0; i < c->n_items; i++) {
        ae_convert_item *item = &c->items[i];
        if (strcmp(item->name, "rope_freqs.weight")) continue;
        float *values = ae_arena_alloc(&c->arena, n, sizeof *values);
        if (!values) return ae_convert_no_memory(c, "the frequencies of the rotation");
        for (uint32_t p = 0; p < n; p++) values[p] = p < item->columns ? item->values[p] : 1.0f;
        item->values = values;
        item->columns = n;
    }
    c->head.n_rot = c->model.head_dim;
    return AERIE_OK;
}

/* Writes the limits of gates and values by layer; null and 0 mean none. */
static aerie_status put_limits(ae_convert_keys *k, const ae_convert *c, const char *from, const char *to, uint32_t n)
{
    const json_t *list = ae_convert_value(c, from);
    float limits[AE_MAX_LAYERS] = {0};
    if (!list) return AERIE_OK;
    if (!json_is_array(list))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' is not a list", c->config_path, from);
    for (uint32_t i = 0; i < n; i++) {
        double limit = 0;
        AE_TRY(ae_convert_real(c, json_array_get(list, i), from, 0, 1e9, &limit));
        limits[i] = (float)limit;
    }
    ae_convert_put_array(k, to, AE_GGUF_F32, limits, n);
    return k->status;
}

aerie_status ae_convert_keys_step35(ae_convert_keys *k, const ae_convert *c)
{
    const uint32_t n = c->model.n_layers, n_all = n + c->model.n_ahead;
    uint32_t heads[AE_MAX_LAYERS], n_kv[AE_MAX_LAYERS], late = c->model.n_heads, late_kv = c->model.n_kv_heads, n_dense = 0;
    uint8_t windowed[AE_MAX_LAYERS];
    double base = 10000;
    AE_TRY(ae_convert_u32(c, "num_sliding_attention_heads", 1, AE_MAX_HEADS, &late));
    AE_TRY(ae_convert_u32(c, "num_sliding_attention_groups", 1, AE_MAX_HEADS, &late_kv));
    AE_TRY(read_types(c, "layer_types", 0, n_all, false, windowed));
    if (ae_convert_value(c, "mtp_layer_types")) AE_TRY(read_types(c, "mtp_layer_types", n, n_all - n, false, windowed));
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "swa_rope_theta"), "rope_theta", 1.001, 1e12, &base));
    for (uint32_t i = 0; i < n_all; i++) {
        char name[64];
        snprintf(name, sizeof name, "layers.%u.mlp.gate.weight", i);
        n_dense += n_dense == i && !ae_convert_look(c, name);
        heads[i] = windowed[i] ? late : c->model.n_heads;
        n_kv[i] = windowed[i] ? late_kv : c->model.n_kv_heads;
    }
    ae_convert_put_array(k, "attention.head_count", AE_GGUF_U32, heads, n_all);
    ae_convert_put_array(k, "attention.head_count_kv", AE_GGUF_U32, n_kv, n_all);
    ae_convert_put_u32(k, "attention.key_length", c->model.head_dim);
    ae_convert_put_u32(k, "attention.value_length", c->model.head_dim);
    ae_convert_put_u32(k, "leading_dense_block_count", n_dense);
    ae_convert_put_f32(k, "rope.freq_base_swa", base);
    AE_TRY(put_limits(k, c, "swiglu_limits", "swiglu_clamp_exp", n_all));
    AE_TRY(put_limits(k, c, "swiglu_limits_shared", "swiglu_clamp_shexp", n_all));
    return put_layer_windows(k, c, windowed, n_all);
}

/* ---- MiMo-V2 ----------------------------------------------------------------------------------------------------- */

/* Reads which layers have a window: 1 in hybrid_layer_pattern, or by name as transformers saves it. MTP blocks have one. */
static aerie_status read_mimo(const ae_convert *c, uint8_t *windowed)
{
    const uint32_t n = c->model.n_layers;
    const json_t *list = ae_convert_value(c, "hybrid_layer_pattern");
    for (uint32_t i = n; i < AE_MAX_LAYERS; i++) windowed[i] = true;
    if (!list && !ae_convert_value(c, "layer_types"))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'hybrid_layer_pattern' is missing", c->config_path);
    if (!list) return read_types(c, "layer_types", 0, n, false, windowed);
    for (uint32_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(list, i);
        const json_int_t value = json_integer_value(one);
        if (!json_is_integer(one) || (value != 0 && value != 1))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'hybrid_layer_pattern' has no 0 or 1 for layer %u",
                           c->config_path, i);
        windowed[i] = value == 1;
    }
    return AERIE_OK;
}

aerie_status ae_convert_begin_mimo2(ae_convert *c)
{
    static const char *const alike[][2] = {{"swa_head_dim", "head_dim"}, {"swa_v_head_dim", "v_head_dim"},
                                           {"swa_num_attention_heads", "num_attention_heads"}};
    const json_t *near = rope_of(c, "sliding_attention"), *far = rope_of(c, "full_attention");
    json_t *base = json_object_get(near, "rope_theta");
    const json_t *shares[] = {json_object_get(near, "partial_rotary_factor"), json_object_get(far, "partial_rotary_factor")};
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
        const json_t *own = ae_convert_value(c, alike[i][0]), *other = ae_convert_value(c, alike[i][1]);
        if (own && other && !json_equal(own, other)) return fail_files(c, alike[i][0], "layers with a window have the same");
    }
    if (near && fabs(json_number_value(shares[0]) - json_number_value(shares[1])) > 1e-9)
        return fail_files(c, "partial_rotary_factor", "layers with a window have the same");
    if (base) AE_TRY(set_value(c, "swa_rope_theta", json_incref(base)));
    AE_TRY(ae_convert_rename_ahead(c, "mtp.layers."));
    return ae_convert_rename_parts(c, c->arch->parts); /* those of MTP blocks are layers only now */
}

/* Sinks are optional in files, so binding would not notice that one is missing. Queries, keys and values together in FP8 are
 * in the order of the machines that saved them, which their scales alone show. */
aerie_status ae_convert_tensors_mimo2(ae_convert *c, uint32_t layer)
{
    uint8_t windowed[AE_MAX_LAYERS];
    bool sinks;
    char name[64];
    AE_TRY(read_mimo(c, windowed));
    sinks = windowed[layer];
    AE_TRY(ae_convert_bool(c, windowed[layer] ? "add_swa_attention_sink_bias" : "add_full_attention_sink_bias", &sinks, NULL));
    snprintf(name, sizeof name, "layers.%u.self_attn.sinks", layer);
    if (sinks && !ae_convert_look(c, name))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor model.layers.%u.self_attn.attention_sink_bias is missing",
                       c->path, layer);
    snprintf(name, sizeof name, "layers.%u.self_attn.qkv_proj.weight", layer);
    const ae_st_tensor *t = ae_convert_look(c, name);
    if (t && t->dtype >= AE_ST_DTYPE_COUNT)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s is quantized, and has its rows in the order of the "
                       "machines that saved it: convert a checkpoint in BF16, or one with q_proj, k_proj and v_proj", c->path,
                       t->name);
    return AERIE_OK;
}

aerie_status ae_convert_keys_mimo2(ae_convert_keys *k, const ae_convert *c)
{
    const uint32_t n_all = c->model.n_layers + c->model.n_ahead;
    uint32_t n_kv[AE_MAX_LAYERS], late = 2 * c->model.n_kv_heads, value = c->model.head_dim; /* twice in transformers' class */
    uint8_t windowed[AE_MAX_LAYERS];
    double base = c->head.rope_base;
    AE_TRY(read_mimo(c, windowed));
    AE_TRY(ae_convert_u32(c, "swa_num_key_value_heads", 1, AE_MAX_HEADS, &late));
    AE_TRY(ae_convert_u32(c, "v_head_dim", 2, AE_MAX_HEAD_DIM, &value));
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "swa_rope_theta"), "swa_rope_theta", 1.001, 1e12, &base));
    for (uint32_t i = 0; i < n_all; i++) n_kv[i] = windowed[i] ? late : c->model.n_kv_heads;
    ae_convert_put_array(k, "attention.head_count_kv", AE_GGUF_U32, n_kv, n_all);
    ae_convert_put_u32(k, "attention.key_length", c->model.head_dim);
    ae_convert_put_u32(k, "attention.value_length", value);
    ae_convert_put_f32(k, "rope.freq_base_swa", base);
    return put_layer_windows(k, c, windowed, n_all);
}

/* ---- Cohere2Moe -------------------------------------------------------------------------------------------------- */

aerie_status ae_convert_keys_cohere2moe(ae_convert_keys *k, const ae_convert *c)
{
    const uint32_t n = c->model.n_layers;
    uint32_t n_shared = 0, n_ff = 0, n_dense = 0, period = 4;
    uint8_t windowed[AE_MAX_LAYERS];
    AE_TRY(ae_convert_u32(c, "first_k_dense_replace", 0, n, &n_dense));
    AE_TRY(ae_convert_u32(c, "sliding_window_pattern", 1, AE_MAX_LAYERS, &period));
    AE_TRY(ae_convert_u32(c, "num_shared_experts", 0, AE_MAX_EXPERTS, &n_shared));
    AE_TRY(ae_convert_need_u32(c, "intermediate_size", 1, AE_MAX_FF / (n_shared + 1), &n_ff));
    if (ae_convert_value(c, "layer_types")) AE_TRY(read_types(c, "layer_types", 0, n, false, windowed));
    else /* dense layers have no window, and the period begins after them */
        for (uint32_t i = 0; i < n; i++) windowed[i] = i >= n_dense && (i - n_dense + 1) % period != 0;
    if (n_shared) ae_convert_put_u32(k, "expert_shared_count", n_shared);
    if (n_shared) ae_convert_put_u32(k, "expert_shared_feed_forward_length", n_shared * n_ff);
    if (ae_convert_value(c, "mlp_layer_types")) AE_TRY(ae_convert_put_dense(k, c));
    else ae_convert_put_u32(k, "leading_dense_block_count", n_dense);
    return put_layer_windows(k, c, windowed, n);
}

/* ---- Muse-Glimmer ------------------------------------------------------------------------------------------------ */

/* Reads which layers have a window: as layer_types says, or else all but each fourth, counted from the last. The others do not
 * rotate. */
static aerie_status read_muse(const ae_convert *c, uint8_t *windowed)
{
    const uint32_t n = c->model.n_layers;
    const json_t *bases = ae_convert_value(c, "layer_rope_theta");
    for (uint32_t i = 0; i < n; i++) windowed[i] = (n - 1 - i) % 4 != 0;
    if (ae_convert_value(c, "layer_types")) AE_TRY(read_types(c, "layer_types", 0, n, false, windowed));
    for (uint32_t i = 0; i < n && bases; i++) {
        const json_t *one = json_array_get(bases, i);
        const double base = json_number_value(one);
        if (!json_is_number(one) || (windowed[i] ? fabs(base - c->head.rope_base) > 1e-6 * base : base > 0 || base < 0))
            return fail_files(c, "layer_rope_theta",
                              "layers with a window rotate with 'rope_theta', and the others, with 0, do not");
    }
    return AERIE_OK;
}

aerie_status ae_convert_keys_muse(ae_convert_keys *k, const ae_convert *c)
{
    uint8_t windowed[AE_MAX_LAYERS];
    AE_TRY(read_muse(c, windowed));
    return put_layer_windows(k, c, windowed, c->model.n_layers);
}

/* Adds 1 to the norms of a layer, which the checkpoint stores without it, and makes norms of queries and keys, of which the
 * model has a factor alone. */
aerie_status ae_convert_tensors_muse(ae_convert *c, uint32_t layer)
{
    static const char *const norms[] = {"attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"};
    const uint32_t d = c->model.head_dim;
    double factor = 3.87; /* the default of the model's code */
    char name[64];
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "qk_scale_factor"), "qk_scale_factor", 1e-6, 1e6, &factor));
    for (size_t i = 0; i < c->n_items; i++)
        for (size_t k = 0; k < sizeof norms / sizeof *norms; k++) {
            snprintf(name, sizeof name, "blk.%u.%s.weight", layer, norms[k]);
            if (strcmp(c->items[i].name, name) == 0) c->items[i].change = AE_CONVERT_PLUS_ONE;
        }
    for (size_t k = 0; k < 2; k++) {
        float *values = ae_arena_alloc(&c->arena, d, sizeof *values);
        if (!values) return ae_convert_no_memory(c, "a norm");
        for (uint32_t i = 0; i < d; i++) values[i] = k ? 1.0f : (float)factor;
        snprintf(name, sizeof name, "blk.%u.attn_%c_norm.weight", layer, "qk"[k]);
        AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = name, .how = AE_CONVERT_VALUES, .values = values, .columns = d}));
    }
    return AERIE_OK;
}

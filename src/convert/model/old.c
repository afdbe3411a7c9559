/* old.c - functions for the rows of archs_old.c: values and keys that follow from several values. Owns nothing.
 * Sources: the models' own code, or transformers' if it has the class; names and keys of GGUF files as llama.cpp
 * reads them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/archs/arch.h"

/* ---- Falcon, MPT ------------------------------------------------------------------------------------------------- */

/* Falcon's first models count the heads of keys only if they are of the new kind: else there is one, or there are as many as
 * heads of queries, whatever num_kv_heads says. */
aerie_status ae_convert_begin_falcon(ae_convert *c)
{
    bool is_new = false, one = true;
    uint32_t n = 0, n_heads = 0;
    AE_TRY(ae_convert_need_u32(c, "num_attention_heads", 1, AE_MAX_HEADS, &n_heads));
    AE_TRY(ae_convert_bool(c, "new_decoder_architecture", &is_new, NULL));
    AE_TRY(ae_convert_bool(c, "multi_query", &one, NULL));
    AE_TRY(ae_convert_u32(c, "num_kv_heads", 1, AE_MAX_HEADS, &n));
    /* the first files of the new kind do not say that they are */
    if (ae_convert_look(c, "layers.0.ln_attn.weight")) is_new = true;
    if (is_new && !n) n = n_heads;
    if (!is_new) n = one ? 1 : n_heads;
    return ae_convert_set_missing(c, "num_key_value_heads", json_integer(n));
}

aerie_status ae_convert_begin_mpt(ae_convert *c)
{
    const char *type = ae_convert_text(c, "attn_type");
    if (type && strcmp(type, "multiquery_attention") == 0)
        return ae_convert_set_missing(c, "num_key_value_heads", json_integer(1));
    return AERIE_OK;
}

aerie_status ae_convert_keys_mpt(ae_convert_keys *k, const ae_convert *c)
{
    bool alibi = ae_convert_look(c, "wpe.weight") == NULL;
    double most = 8;
    AE_TRY(ae_convert_bool(c, "alibi", &alibi, NULL));
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "alibi_bias_max"), "alibi_bias_max", 1e-3, 1e3, &most));
    ae_convert_put_f32(k, "attention.max_alibi_bias", alibi ? most : 0);
    return k->status;
}

/* ---- Windows by layer -------------------------------------------------------------------------------------------- */

/* Sets the kinds of layers that the model's code assumes: the first of four has no window. */
aerie_status ae_convert_begin_granite_swa(ae_convert *c)
{
    json_t *list = json_array();
    uint32_t n = 0;
    bool ok = list != NULL;
    const aerie_status status = ae_convert_need_u32(c, "num_hidden_layers", 1, AE_MAX_LAYERS, &n);
    for (uint32_t i = 0; i < n && ok; i++)
        ok = json_array_append_new(list, json_string(i % 4 ? "sliding_attention" : "full_attention")) == 0;
    if (status == AERIE_OK && ok) return ae_convert_set_missing(c, "layer_types", list);
    json_decref(list);
    return status != AERIE_OK ? status : ae_convert_no_memory(c, "the configuration");
}

/* Writes which layers rotate: those whose base is not 0, or of which no_rope_layers says 1. */
aerie_status ae_convert_keys_granite_swa(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *bases = ae_convert_value(c, "layer_rope_theta"), *flags = ae_convert_value(c, "no_rope_layers");
    const json_t *list = bases ? bases : flags;
    uint8_t turns[AE_MAX_LAYERS];
    for (uint32_t i = 0; i < c->model.n_layers; i++) { /* files may lack it, so binding the file would not notice */
        char name[64];
        snprintf(name, sizeof name, "layers.%u.self_attn.sinks", i);
        if (!ae_convert_look(c, name))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor model.%s is missing", c->path, name);
    }
    if (!list) return k->status;
    for (uint32_t i = 0; i < c->model.n_layers; i++) {
        const json_t *one = json_array_get(list, i);
        const double value = json_number_value(one);
        if (!json_is_number(one) || (bases && value > 0 && fabs(value - c->head.rope_base) > 1e-6 * value))
            return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: '%s' must have for each of %u layers %s", c->config_path,
                           bases ? "layer_rope_theta" : "no_rope_layers", c->model.n_layers,
                           bases ? "'rope_theta', or 0 for no rotation" : "1, or 0 for no rotation");
        turns[i] = value > 0;
    }
    ae_convert_put_array(k, "attention.rope_pattern", AE_GGUF_BOOL, turns, c->model.n_layers);
    return k->status;
}

/* Refuses windows and rotations in other layers than files have them: in all but the first of four, or the rotation in all. */
aerie_status ae_convert_begin_smallthinker(ae_convert *c)
{
    static const char *const names[] = {"sliding_window_layout", "rope_layout"};
    const json_t *windows = ae_convert_value(c, names[0]);
    bool any = false;
    for (size_t i = 0; i < json_array_size(windows); i++) any |= json_integer_value(json_array_get(windows, i)) != 0;
    for (size_t k = 0; k < 2; k++) {
        const json_t *list = ae_convert_value(c, names[k]);
        for (size_t i = 0; i < json_array_size(list); i++) {
            const bool on = json_integer_value(json_array_get(list, i)) != 0;
            if (on == (any ? i % 4 != 0 : k == 1)) continue;
            return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: '%s' is not the one of GGUF files of architecture %s: the "
                           "first of four layers has no window and no rotation, or all rotate and none has a window",
                           c->config_path, names[k], c->arch->arch);
        }
    }
    return AERIE_OK;
}

aerie_status ae_convert_keys_smallthinker(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *windows = ae_convert_value(c, "sliding_window_layout");
    bool softmax = false, any = false;
    uint32_t window = 0, n_ff = 0;
    AE_TRY(ae_convert_bool(c, "moe_primary_router_apply_softmax", &softmax, NULL));
    AE_TRY(ae_convert_u32(c, "sliding_window_size", 0, INT32_MAX, &window));
    AE_TRY(ae_convert_need_u32(c, "moe_intermediate_size", 1, AE_MAX_FF, &n_ff));
    for (size_t i = 0; i < json_array_size(windows); i++) any |= json_integer_value(json_array_get(windows, i)) != 0;
    ae_convert_put_u32(k, "expert_gating_func", softmax ? AE_EXPERT_GATE_SOFTMAX : AE_EXPERT_GATE_SIGMOID);
    if (!ae_convert_value(c, "intermediate_size")) ae_convert_put_u32(k, "feed_forward_length", n_ff);
    if (any && window) ae_convert_put_u32(k, "attention.sliding_window", window);
    return k->status;
}

/* Writes the heads of each layer, and how much of a head rotates in layers with a window. */
aerie_status ae_convert_keys_laguna(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *list = ae_convert_value(c, "num_attention_heads_per_layer");
    const json_t *near = json_object_get(ae_convert_value(c, "rope_parameters"), "sliding_attention");
    uint32_t n_heads[AE_MAX_LAYERS];
    double part = 1;
    for (uint32_t i = 0; i < c->model.n_layers; i++) {
        const json_int_t n = list ? json_integer_value(json_array_get(list, i)) : (json_int_t)c->model.n_heads;
        if (n < 1 || n > (json_int_t)AE_MAX_HEADS)
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'num_attention_heads_per_layer' has no number from 1 to %u for "
                           "layer %u", c->config_path, (unsigned)AE_MAX_HEADS, i);
        n_heads[i] = (uint32_t)n;
    }
    AE_TRY(ae_convert_real(c, json_object_get(near, "partial_rotary_factor"), "partial_rotary_factor", 0, 1, &part));
    ae_convert_put_array(k, "attention.head_count", AE_GGUF_U32, n_heads, c->model.n_layers);
    ae_convert_put_bool(k, "expert_weights_norm", true);
    if (near) ae_convert_put_u32(k, "rope.dimension_count_swa", (uint32_t)(part * c->model.head_dim));
    if (ae_convert_value(c, "mlp_layer_types")) return ae_convert_put_dense(k, c);
    ae_convert_put_u32(k, "leading_dense_block_count", 1); /* as the model's code assumes */
    return k->status;
}

/* Maple's code limits gates and values of its experts to 7. */
aerie_status ae_convert_keys_maple(ae_convert_keys *k, const ae_convert *c)
{
    float limits[AE_MAX_LAYERS];
    for (uint32_t i = 0; i < c->model.n_layers; i++) limits[i] = 7;
    ae_convert_put_array(k, "swiglu_clamp_exp", AE_GGUF_F32, limits, c->model.n_layers);
    return k->status;
}

/* ---- MiniCPM ----------------------------------------------------------------------------------------------------- */

aerie_status ae_convert_keys_minicpm(ae_convert_keys *k, const ae_convert *c)
{
    double embedding = 1, depth = 1, base = 1;
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "scale_emb"), "scale_emb", 1e-6, 1e6, &embedding));
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "scale_depth"), "scale_depth", 1e-6, 1e6, &depth));
    base = c->model.n_embd;
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "dim_model_base"), "dim_model_base", 1e-6, 1e6, &base));
    ae_convert_put_f32(k, "embedding_scale", embedding);
    ae_convert_put_f32(k, "residual_scale", depth / sqrt(c->model.n_layers));
    ae_convert_put_f32(k, "logit_scale", c->model.n_embd / base);
    return k->status;
}

/* ---- Mamba-2 ----------------------------------------------------------------------------------------------------- */

aerie_status ae_convert_check_time_steps(const ae_convert *c)
{
    const json_t *limit = ae_convert_value(c, "time_step_limit");
    if (json_number_value(json_array_get(limit, 0)) > 0 ||
        (json_is_number(json_array_get(limit, 1)) && json_number_value(json_array_get(limit, 1)) < 1e30))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'time_step_limit' limits time steps, but GGUF files of "
                       "architecture %s have no limit", c->config_path, c->arch->arch);
    return AERIE_OK;
}

aerie_status ae_convert_begin_mamba2(ae_convert *c)
{
    uint32_t n_embd = 0, dim = 0, factor = 2;
    AE_TRY(ae_convert_need_u32(c, "hidden_size", 1, AE_MAX_EMBD, &n_embd));
    AE_TRY(ae_convert_need_u32(c, "head_dim", 1, AE_MAX_EMBD, &dim));
    AE_TRY(ae_convert_u32(c, "expand", 1, 64, &factor));
    AE_TRY(ae_convert_check_time_steps(c));
    return ae_convert_set_missing(c, "num_heads", json_integer((json_int_t)factor * n_embd / dim));
}

aerie_status ae_convert_keys_mamba2(ae_convert_keys *k, const ae_convert *c)
{
    ae_convert_put_u32(k, "feed_forward_length", 0);
    ae_convert_put_u32(k, "attention.head_count", 0);
    return ae_convert_put_mamba(k, c, "conv_kernel", "state_size", "num_heads", "head_dim");
}

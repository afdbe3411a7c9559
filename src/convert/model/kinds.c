/* kinds.c - models with special kinds of layers (arch.h): Gemma 3n, sparse attention by an index, GLM-5.3-Flash, Mamba-1,
 * Falcon-H1, MiniMax-01, Kimi-Linear, Kimi K3, Ling 3; Mistral 4; and the text models of vision models. Writes keys that depend
 * on several values, and tensors that are combined from several. Owns nothing.
 * Sources: the models' own code in transformers; names and keys of GGUF files as llama.cpp reads them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/archs/arch.h"

/* ---- Gemma 3n --------------------------------------------------------------------------------------------------- */

/* Returns the quantile of the normal distribution at probability p. */
static double normal_quantile(double p)
{
    double lo = -40, hi = 40;
    for (int i = 0; i < 200; i++) {
        const double middle = (lo + hi) / 2;
        if (0.5 * erfc(-middle / sqrt(2.0)) < p) lo = middle;
        else hi = middle;
    }
    return (lo + hi) / 2;
}

/* Writes the share of gates that a layer drops, which is one number for all layers or a number for each. */
static aerie_status put_sparsity(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *given = ae_convert_value(c, "activation_sparsity_pattern");
    const uint32_t n = c->model.n_layers;
    float scales[AE_MAX_LAYERS];
    for (uint32_t i = 0; i < n; i++) {
        double share = !given && n > 10 && i < 10 ? 0.95 : 0;
        const json_t *own = json_is_array(given) ? json_array_get(given, i) : given;
        if (json_is_array(given) && !own)
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'activation_sparsity_pattern' has %zu numbers for %u layers",
                           c->config_path, json_array_size(given), n);
        AE_TRY(ae_convert_real(c, own, "activation_sparsity_pattern", 0, 0.9999, &share));
        scales[i] = share > 0 ? (float)normal_quantile(share) : -INFINITY;
    }
    ae_convert_put_array(k, "activation_sparsity_scale", AE_GGUF_F32, scales, n);
    return k->status;
}

aerie_status ae_convert_keys_gemma3n(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *given = ae_convert_value(c, "intermediate_size");
    uint32_t n_ff[AE_MAX_LAYERS], n_streams = 4, active = 0;
    for (uint32_t i = 0; i < c->model.n_layers; i++) {
        const json_t *own = json_is_array(given) ? json_array_get(given, i) : given;
        const json_int_t n = json_integer_value(own);
        if (n < 1 || n > (json_int_t)AE_MAX_FF)
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'intermediate_size' has no number from 1 to %u for layer %u",
                           c->config_path, AE_MAX_FF, i);
        n_ff[i] = (uint32_t)n;
    }
    ae_convert_put_array(k, "feed_forward_length", AE_GGUF_U32, n_ff, c->model.n_layers);
    AE_TRY(ae_convert_u32(c, "altup_num_inputs", 2, AE_MAX_STREAMS, &n_streams));
    AE_TRY(ae_convert_u32(c, "altup_active_idx", 0, 0, &active));
    ae_convert_put_u32(k, "altup.num_inputs", n_streams);
    ae_convert_put_u32(k, "altup.active_idx", active);
    return put_sparsity(k, c);
}

/* Stacks the matrices of the streams, once. */
aerie_status ae_convert_tensors_gemma3n(ae_convert *c, uint32_t layer)
{
    static const char *const names[][2] = {{"altup_projections", "altup_proj.weight"},
                                           {"altup_unembed_projections", "altup_unembd_proj.weight"}};
    uint32_t n = 4;
    char name[64];
    if (layer) return AERIE_OK;
    AE_TRY(ae_convert_u32(c, "altup_num_inputs", 2, AE_MAX_STREAMS, &n));
    for (size_t k = 0; k < 2; k++) {
        const ae_st_tensor **parts = ae_arena_alloc(&c->arena, n, sizeof *parts);
        if (!parts) return ae_convert_no_memory(c, "the list of streams");
        for (uint32_t i = 0; i + 1 < n; i++) {
            snprintf(name, sizeof name, "%s.%u.weight", names[k][0], i);
            parts[i] = ae_convert_take(c, name);
            if (!parts[i])
                return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing; config.json says that rows have %u "
                               "streams", c->path, name, n);
            AE_TRY(ae_convert_check_shape(c, parts[i], c->model.n_embd, c->model.n_embd, "by config.json"));
        }
        AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = names[k][1], .parts = parts, .n_stack = n - 1,
                                                    .rows = c->model.n_embd, .columns = c->model.n_embd}));
    }
    return AERIE_OK;
}

/* ---- Sparse attention by an index (DeepSeek V3.2, GLM-5) -------------------------------------------------------- */

/* Writes which layers choose positions by their own index: from a list, from a text of F and S, or all but those that a period
 * skips. */
static aerie_status put_types(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *types = ae_convert_value(c, "indexer_types");
    const char *pattern = ae_convert_text(c, "index_topk_pattern");
    uint32_t period = 1, skipped = 2;
    uint8_t own[AE_MAX_LAYERS];
    AE_TRY(ae_convert_u32(c, "index_topk_freq", 1, AE_MAX_LAYERS, &period));
    AE_TRY(ae_convert_u32(c, "index_skip_topk_offset", 0, AE_MAX_LAYERS, &skipped));
    for (uint32_t i = 0; i < c->model.n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        const bool has_sign = pattern && i < strlen(pattern);
        if ((types && (!type || (strcmp(type, "full") && strcmp(type, "shared")))) ||
            (!types && pattern && (!has_sign || !strchr("FS", pattern[i]))))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' does not say \"full\" or \"shared\" for layer %u",
                           c->config_path, types ? "indexer_types" : "index_topk_pattern", i);
        own[i] = types ? strcmp(type, "full") == 0
                 : pattern ? pattern[i] == 'F'
                           : i + 1 < skipped || (i + 1 - skipped) % period == 0;
    }
    ae_convert_put_array(k, "attention.indexer.types", AE_GGUF_BOOL, own, c->model.n_layers);
    return k->status;
}

aerie_status ae_convert_keys_indexed(ae_convert_keys *k, const ae_convert *c)
{
    AE_TRY(ae_convert_keys_mla(k, c));
    return strcmp(c->arch->arch, "glm-dsa") ? k->status : put_types(k, c);
}

/* ---- GLM-5.3-Flash ---------------------------------------------------------------------------------------------- */

/* Gives the values of the published linear_attn_config the names that transformers uses. */
aerie_status ae_convert_begin_glm5_next(ae_convert *c)
{
    static const char *const names[][2] = {{"head_dim", "linear_head_dim"}, {"num_heads", "linear_num_heads"},
                                           {"short_conv_kernel_size", "linear_conv_kernel_dim"},
                                           {"gate_lower_bound", "linear_lower_bound"}};
    json_t *to = json_is_object(c->layer) ? c->layer : c->config;
    const json_t *own = ae_convert_value(c, "linear_attn_config");
    uint32_t n_heads = 0, n_own = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *value = json_object_get(own, names[i][0]);
        if (value && json_object_set(to, names[i][1], value)) return ae_convert_no_memory(c, "the configuration");
    }
    json_object_del(to, "head_dim"); /* size of the rotated part, of which there is none */
    json_object_del(c->config, "head_dim");
    AE_TRY(ae_convert_need_u32(c, "num_attention_heads", 1, AE_MAX_HEADS, &n_heads));
    n_own = n_heads;
    AE_TRY(ae_convert_u32(c, "linear_num_heads", 1, AE_MAX_HEADS, &n_own));
    if (n_own != n_heads)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: linear attention has %u heads and the other one %u; GGUF files "
                       "of architecture %s have as many of both", c->config_path, n_own, n_heads, c->arch->arch);
    if (json_is_false(ae_convert_value(c, "mhc")) || json_is_false(ae_convert_value(c, "mla_use_nope")) ||
        json_integer_value(ae_convert_value(c, "qk_rope_head_dim")))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: GGUF files of architecture %s have rows of several streams "
                       "('mhc') and rotate nothing ('mla_use_nope' true, 'qk_rope_head_dim' 0)", c->config_path,
                       c->arch->arch);
    return AERIE_OK;
}

/* Writes which layers attend, and the limit of the decay of the others. */
static aerie_status put_glm5_mixers(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *types = ae_convert_value(c, "layer_types"), *values = json_is_object(c->layer) ? c->layer : c->config;
    const bool safe = !json_is_false(json_object_get(ae_convert_value(c, "linear_attn_config"), "safe_gate"));
    uint32_t n_kv[AE_MAX_LAYERS], taps = 4, dim = 128;
    double lower = -5;
    for (uint32_t i = 0; i < c->model.n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        const bool linear = type ? strcmp(type, "linear_attention") == 0 : i % 4 != 3;
        if (types && !linear && (!type || (strcmp(type, "full_attention") && strcmp(type, "indexed_attention"))))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'layer_types' does not say what layer %u is: "
                           "\"linear_attention\" or \"indexed_attention\" (\"full_attention\")", c->config_path, i);
        n_kv[i] = !linear;
    }
    AE_TRY(ae_convert_u32(c, "linear_conv_kernel_dim", 1, 64, &taps));
    AE_TRY(ae_convert_u32(c, "linear_head_dim", 1, AE_MAX_HEAD_DIM, &dim));
    if (!safe && json_is_null(json_object_get(values, "linear_lower_bound"))) lower = 0;
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "linear_lower_bound"), "linear_lower_bound", -1e3, 0, &lower));
    ae_convert_put_array(k, "attention.head_count_kv", AE_GGUF_U32, n_kv, c->model.n_layers);
    ae_convert_put_u32(k, "ssm.conv_kernel", taps);
    ae_convert_put_u32(k, "kda.head_dim", dim);
    if (lower < 0) ae_convert_put_f32(k, "kda.gate_lower_bound", lower);
    ae_convert_put_u32(k, "rope.dimension_count", 0);
    return k->status;
}

aerie_status ae_convert_keys_glm5_next(ae_convert_keys *k, const ae_convert *c)
{
    const uint32_t n = c->model.n_layers + c->model.n_ahead;
    float limits[AE_MAX_LAYERS];
    double limit = 10;
    bool tail = true;
    uint32_t n_dense = 3;
    AE_TRY(put_glm5_mixers(k, c));
    AE_TRY(put_types(k, c));
    AE_TRY(ae_convert_bool(c, "index_kpool_always_select_tail", &tail, NULL));
    ae_convert_put_bool(k, "attention.indexer.kpool_select_tail", tail);
    ae_convert_put_f32(k, "attention.layer_norm_epsilon", 1e-6); /* epsilon of the index keys' norm */
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "swiglu_limit"), "swiglu_limit", 0, 1e9, &limit));
    for (uint32_t i = 0; i < n && i < AE_MAX_LAYERS; i++) limits[i] = (float)limit;
    if (limit > 0) {
        ae_convert_put_array(k, "swiglu_clamp_exp", AE_GGUF_F32, limits, n);
        ae_convert_put_array(k, "swiglu_clamp_shexp", AE_GGUF_F32, limits, n);
    }
    AE_TRY(ae_convert_put_mla(k, c));
    if (ae_convert_value(c, "mlp_layer_types")) return ae_convert_put_dense(k, c);
    AE_TRY(ae_convert_u32(c, "first_k_dense_replace", 0, AE_MAX_LAYERS, &n_dense));
    ae_convert_put_u32(k, "leading_dense_block_count", n_dense);
    return k->status;
}

aerie_status ae_convert_tensors_glm5_next(ae_convert *c, uint32_t layer)
{
    char from[64], to[32];
    snprintf(from, sizeof from, "layers.%u.self_attn.A_log", layer);
    snprintf(to, sizeof to, "blk.%u.ssm_a", layer);
    const ae_st_tensor *t = ae_convert_take(c, from);
    if (t)
        AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .columns = c->model.n_heads,
                                                    .change = AE_CONVERT_MINUS_EXP, .f32 = true}));
    return ae_convert_tensors_kimi_linear(c, layer);
}

/* ---- Mamba-1 ---------------------------------------------------------------------------------------------------- */

/* inner: width of the mixer. expand and dt_rank: names of the values for its factor and for the rank of the time steps. */
static aerie_status put_mamba1(ae_convert_keys *k, const ae_convert *c, const char *expand, const char *rank)
{
    const json_t *given = ae_convert_value(c, rank);
    uint32_t factor = 2, n_dt = (c->model.n_embd + 15) / 16, inner;
    AE_TRY(ae_convert_u32(c, expand, 1, 64, &factor));
    inner = factor * c->model.n_embd;
    if (strcmp(c->arch->arch, "mamba") == 0) AE_TRY(ae_convert_u32(c, "intermediate_size", 1, AE_MAX_FF, &inner));
    if (!json_is_string(given)) AE_TRY(ae_convert_u32(c, rank, 1, AE_MAX_EMBD, &n_dt)); /* a text: the usual rank */
    ae_convert_put_u32(k, "ssm.inner_size", inner);
    ae_convert_put_u32(k, "ssm.time_step_rank", n_dt);
    return k->status;
}

aerie_status ae_convert_keys_mamba(ae_convert_keys *k, const ae_convert *c)
{
    ae_convert_put_u32(k, "feed_forward_length", 0);
    ae_convert_put_u32(k, "attention.head_count", 0);
    if (strncmp(c->model.class, "FalconMamba", 11) == 0) ae_convert_put_bool(k, "ssm.dt_b_c_rms", true);
    return put_mamba1(k, c, "expand", "time_step_rank");
}

aerie_status ae_convert_keys_jamba(ae_convert_keys *k, const ae_convert *c)
{
    uint32_t period = 8, offset = 4, n_kv[AE_MAX_LAYERS];
    AE_TRY(ae_convert_u32(c, "attn_layer_period", 1, AE_MAX_LAYERS, &period));
    AE_TRY(ae_convert_u32(c, "attn_layer_offset", 0, period - 1, &offset));
    for (uint32_t i = 0; i < c->model.n_layers; i++) n_kv[i] = i % period == offset ? c->model.n_kv_heads : 0;
    ae_convert_put_array(k, "attention.head_count_kv", AE_GGUF_U32, n_kv, c->model.n_layers);
    return put_mamba1(k, c, "mamba_expand", "mamba_dt_rank");
}

/* ---- Mistral 4 -------------------------------------------------------------------------------------------------- */

/* DeepSeek's attention with Mistral 3's temperature. */
aerie_status ae_convert_keys_mistral4(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *rope = ae_convert_value(c, "rope_parameters");
    double beta = 0;
    AE_TRY(ae_convert_real(c, json_object_get(rope, "llama_4_scaling_beta"), "llama_4_scaling_beta", 0, 1e3, &beta));
    if (beta > 0) ae_convert_put_f32(k, "attention.temperature_scale", beta);
    return ae_convert_keys_mla(k, c);
}

/* ---- Falcon-H1 -------------------------------------------------------------------------------------------------- */

aerie_status ae_convert_keys_falcon_h1(ae_convert_keys *k, const ae_convert *c)
{
    bool norm = false, before = true, bias = false;
    static const char *const biases[] = {"mamba_proj_bias", "projectors_bias", "attention_bias", "mlp_bias"};
    AE_TRY(ae_convert_bool(c, "mamba_rms_norm", &norm, NULL));
    AE_TRY(ae_convert_bool(c, "mamba_norm_before_gate", &before, NULL));
    if (norm && before)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'mamba_norm_before_gate' is true, but GGUF files of "
                       "architecture %s have the norm after the gate", c->config_path, c->arch->arch);
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++) {
        AE_TRY(ae_convert_bool(c, biases[i], &bias, NULL));
        if (bias)
            return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: '%s' is true; biases of models with multipliers are not "
                           "converted", c->config_path, biases[i]);
    }
    return ae_convert_put_mamba(k, c, "mamba_d_conv", "mamba_d_state", "mamba_n_heads", "mamba_d_head");
}

/* Multiplies n rows (0: all), from `first` on, of the planned tensor `name` by a factor. */
static aerie_status multiply(ae_convert *c, const char *name, uint64_t first, uint64_t n, double factor)
{
    ae_convert_item *item = NULL;
    for (size_t i = 0; i < c->n_items && !item; i++)
        if (strcmp(c->items[i].name, name) == 0) item = &c->items[i];
    if (!item || (factor == 1 && !item->factors)) return AERIE_OK;
    if (!n) n = item->rows;
    if (first > item->rows || n > item->rows - first)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s has %llu rows; by config.json it has at least %llu",
                       c->path, item->from->name, (unsigned long long)item->rows, (unsigned long long)(first + n));
    float *factors = (float *)item->factors;
    if (!factors) {
        factors = ae_arena_alloc(&c->arena, item->rows, sizeof *factors);
        if (!factors) return ae_convert_no_memory(c, "the factors of rows");
        for (uint64_t r = 0; r < item->rows; r++) factors[r] = 1;
        item->factors = factors;
    }
    for (uint64_t r = first; r < first + n; r++) factors[r] = (float)((double)factors[r] * factor);
    return AERIE_OK;
}

/* Reads a number of config.json, or number i of a list; 1 if it is absent. */
static aerie_status multiplier(const ae_convert *c, const char *key, size_t i, double *out)
{
    const json_t *value = ae_convert_value(c, key);
    *out = 1;
    if (json_is_array(value)) {
        const json_t *one = json_array_get(value, i);
        if (!one)
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' has %zu numbers; more are needed", c->config_path, key,
                           json_array_size(value));
        value = one;
    }
    return ae_convert_real(c, value, key, -1e6, 1e6, out);
}

/* Multiplies a layer's weights by their multipliers. A part with several multipliers is multiplied by each in turn. */
static aerie_status fold_layer(ae_convert *c, uint32_t layer)
{
    static const struct {
        const char *key;
        size_t i;
        const char *part;
    } all[] = {{"attention_in_multiplier", 0, "attn_q"}, {"attention_in_multiplier", 0, "attn_k"},
               {"attention_in_multiplier", 0, "attn_v"}, {"key_multiplier", 0, "attn_k"},
               {"attention_out_multiplier", 0, "attn_output"}, {"mlp_multipliers", 0, "ffn_gate"},
               {"mlp_multipliers", 1, "ffn_down"}, {"ssm_in_multiplier", 0, "ssm_in"},
               {"ssm_out_multiplier", 0, "ssm_out"}};
    uint32_t n_heads, head_dim, n_state;
    double x;
    char name[64];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        AE_TRY(multiplier(c, all[i].key, all[i].i, &x));
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, all[i].part);
        AE_TRY(multiply(c, name, 0, 0, x));
    }
    AE_TRY(ae_convert_need_u32(c, "mamba_n_heads", 1, AE_MAX_HEADS, &n_heads));
    AE_TRY(ae_convert_need_u32(c, "mamba_d_head", 1, AE_MAX_FF / n_heads, &head_dim));
    AE_TRY(ae_convert_need_u32(c, "mamba_d_state", 1, AE_MAX_EMBD, &n_state));
    /* rows of z, x, B, C and of the time steps */
    const uint64_t inner = (uint64_t)n_heads * head_dim, n_groups = c->model.n_groups ? c->model.n_groups : 1;
    const uint64_t group = n_state * n_groups;
    const uint64_t rows[] = {inner, inner, group, group, n_heads};
    snprintf(name, sizeof name, "blk.%u.ssm_in.weight", layer);
    uint64_t first = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; first += rows[i++]) {
        AE_TRY(multiplier(c, "ssm_multipliers", i, &x));
        AE_TRY(multiply(c, name, first, rows[i], x));
    }
    return AERIE_OK;
}

/* Multiplies weights by the multipliers. An output head that shares the embedding is written separately if its multiplier
 * differs. */
aerie_status ae_convert_tensors_falcon_h1(ae_convert *c, uint32_t layer)
{
    double embedding, head;
    bool tied = false;
    AE_TRY(fold_layer(c, layer));
    if (layer) return AERIE_OK;
    AE_TRY(multiplier(c, "embedding_multiplier", 0, &embedding));
    AE_TRY(multiplier(c, "lm_head_multiplier", 0, &head));
    AE_TRY(ae_convert_bool(c, "tie_word_embeddings", &tied, NULL));
    const ae_st_tensor *t = ae_convert_look(c, "embed_tokens.weight");
    if (tied && embedding != head && t && t->n_dims == 2)
        AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = "output.weight", .from = t, .rows = t->shape[0],
                                                    .columns = t->shape[1]}));
    AE_TRY(multiply(c, "token_embd.weight", 0, 0, embedding));
    return multiply(c, "output.weight", 0, 0, head);
}

/* ---- MiniMax-01 ------------------------------------------------------------------------------------------------- */

/* Writes which layers are linear: those with "linear_attention" in layer_types, or 0 in the published list. GGUF files have one
 * factor for the stream. */
aerie_status ae_convert_keys_minimax_01(ae_convert_keys *k, const ae_convert *c)
{
    static const char *const alphas[] = {"full_attn_alpha_factor", "linear_attn_alpha_factor", "mlp_alpha_factor",
                                         "layernorm_full_attention_alpha", "layernorm_linear_attention_alpha",
                                         "layernorm_mlp_alpha"};
    static const char *const betas[] = {"full_attn_beta_factor", "linear_attn_beta_factor", "mlp_beta_factor",
                                        "layernorm_full_attention_beta", "layernorm_linear_attention_beta",
                                        "layernorm_mlp_beta"};
    const json_t *types = ae_convert_value(c, "layer_types"), *list = ae_convert_value(c, "attn_type_list");
    uint8_t linear[AE_MAX_LAYERS];
    double scale = 0;
    for (uint32_t i = 0; i < c->model.n_layers; i++) {
        const json_t *type = json_array_get(types ? types : list, i);
        const char *name = json_string_value(type);
        if (!type || (types && !name) || (!types && !json_is_integer(type)))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: neither 'layer_types' nor 'attn_type_list' says what layer %u is",
                           c->config_path, i);
        linear[i] = types ? strcmp(name, "linear_attention") == 0 : json_integer_value(type) == 0;
    }
    for (size_t i = 0; i < 6; i++) {
        double alpha = 0, beta = 1;
        AE_TRY(ae_convert_real(c, ae_convert_value(c, alphas[i]), alphas[i], 1e-3, 1e3, &alpha));
        AE_TRY(ae_convert_real(c, ae_convert_value(c, betas[i]), betas[i], 1e-3, 1e3, &beta));
        if (alpha > 0 && scale <= 0) scale = alpha;
        if ((alpha > 0 && alpha != scale) || beta != 1)
            return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: '%s' is %g and '%s' %g, but GGUF files of architecture %s "
                           "have one factor (%g) of the stream and none of what blocks add", c->config_path, alphas[i], alpha,
                           betas[i], beta, c->arch->arch, scale);
    }
    ae_convert_put_array(k, "attention.recurrent_layers", AE_GGUF_BOOL, linear, c->model.n_layers);
    ae_convert_put_f32(k, "residual_scale", scale > 0 ? scale : 1);
    return k->status;
}

/* ---- Kimi-Linear ------------------------------------------------------------------------------------------------ */

/* Sets *latent to whether a layer has latent attention: by layer_types, or by the published list, which counts layers from
 * 1. */
static aerie_status find_latent(const ae_convert *c, uint32_t layer, bool *latent)
{
    const json_t *types = ae_convert_value(c, "layer_types"), *own = ae_convert_value(c, "linear_attn_config"), *at;
    const json_t *full = json_object_get(own, "full_attn_layers"), *linear = json_object_get(own, "kda_layers");
    const char *type = json_string_value(json_array_get(types, layer));
    bool listed = false;
    size_t i;
    *latent = false;
    if (type) {
        *latent = strcmp(type, "full_attention") == 0;
        if (*latent || strcmp(type, "linear_attention") == 0) return AERIE_OK;
    }
    json_array_foreach((json_t *)full, i, at) *latent |= json_integer_value(at) == (json_int_t)layer + 1;
    json_array_foreach((json_t *)linear, i, at) listed |= json_integer_value(at) == (json_int_t)layer + 1;
    if (!type && *latent != listed) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: neither 'layer_types' nor 'linear_attn_config' says what layer %u is",
                   c->config_path, layer);
}

/* Reads a number of linear_attn_config, or of the top level, where transformers saves it. */
static aerie_status linear_u32(const ae_convert *c, const char *key, const char *flat, uint32_t most, uint32_t *out)
{
    const json_t *value = json_object_get(ae_convert_value(c, "linear_attn_config"), key);
    if (!value) return ae_convert_need_u32(c, flat, 1, most, out);
    const json_int_t n = json_integer_value(value);
    if (n < 1 || n > (json_int_t)most)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' in 'linear_attn_config' is %lld; 1 to %u are possible",
                       c->config_path, key, (long long)n, most);
    *out = (uint32_t)n;
    return AERIE_OK;
}

aerie_status ae_convert_keys_kimi_linear(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *blocks = ae_convert_value(c, "mlp_layer_types");
    uint32_t n_kv[AE_MAX_LAYERS], taps, dim, n_rot, n_dense = 0;
    bool latent;
    for (uint32_t i = 0; i < c->model.n_layers; i++) {
        AE_TRY(find_latent(c, i, &latent));
        n_kv[i] = latent;
    }
    AE_TRY(linear_u32(c, "short_conv_kernel_size", "linear_conv_kernel_dim", 64, &taps));
    AE_TRY(linear_u32(c, "head_dim", "linear_head_dim", AE_MAX_HEAD_DIM, &dim));
    AE_TRY(ae_convert_need_u32(c, "qk_rope_head_dim", 2, AE_MAX_HEAD_DIM, &n_rot));
    const char *block;
    while ((block = json_string_value(json_array_get(blocks, n_dense))) && strcmp(block, "dense") == 0) n_dense++;
    if (blocks && !ae_convert_value(c, "first_k_dense_replace")) ae_convert_put_u32(k, "leading_dense_block_count", n_dense);
    ae_convert_put_u32(k, "rope.dimension_count", n_rot); /* these values are stored separately, but not rotated */
    ae_convert_put_u32(k, "ssm.conv_kernel", taps);
    ae_convert_put_u32(k, "kda.head_dim", dim);
    ae_convert_put_array(k, "attention.head_count_kv", AE_GGUF_U32, n_kv, c->model.n_layers);
    return ae_convert_put_mla(k, c);
}

/* Adds the convolution taps of queries, keys and values. */
static aerie_status add_taps(ae_convert *c, uint32_t layer)
{
    static const char names[] = "qkv";
    for (size_t i = 0; i < 3; i++) {
        char from[96], to[64];
        snprintf(from, sizeof from, "layers.%u.self_attn.%c_conv1d.weight", layer, names[i]);
        snprintf(to, sizeof to, "blk.%u.ssm_conv1d_%c.weight", layer, names[i]);
        const ae_st_tensor *t = ae_convert_take(c, from);
        if (!t) continue;
        if (t->n_dims < 2 || t->n_dims > 3 || (t->n_dims == 3 && t->shape[1] != 1)) {
            char shape[128];
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; [channels, 1, taps] is needed", c->path, t->name,
                           ae_convert_shape(t, shape));
        }
        AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .n_stack = t->shape[0], .rows = 1,
                                                    .columns = t->shape[t->n_dims - 1], .f32 = true}));
    }
    return AERIE_OK;
}

aerie_status ae_convert_tensors_kimi_linear(ae_convert *c, uint32_t layer)
{
    AE_TRY(add_taps(c, layer));
    return ae_convert_tensors_mla(c, layer);
}

/* ---- Kimi K3 ---------------------------------------------------------------------------------------------------- */

aerie_status ae_convert_keys_kimi_k3(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *bound = json_object_get(ae_convert_value(c, "linear_attn_config"), "gate_lower_bound");
    double lower = 0;
    AE_TRY(ae_convert_real(c, bound, "gate_lower_bound", -1e3, 0, &lower));
    if (lower < 0) ae_convert_put_f32(k, "kda.gate_lower_bound", lower);
    if (json_is_false(ae_convert_value(c, "mla_use_nope")))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: 'mla_use_nope' is false, but GGUF files of architecture %s do not "
                       "rotate", c->config_path, c->arch->arch);
    return ae_convert_keys_kimi_linear(k, c);
}

/* Adds the product of a norm's weights and of the vector that scores the normed rows. */
static aerie_status add_score(ae_convert *c, const char *in, const char *what, const char *to)
{
    const uint32_t n = c->model.n_embd;
    const ae_st_tensor *parts[2];
    static const char *const ends[] = {"norm", "proj"};
    char name[96];
    for (size_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s%s_%s.weight", in, what, ends[i]);
        parts[i] = ae_convert_take(c, name);
        if (parts[i] && parts[i]->n != n) return ae_convert_check_shape(c, parts[i], 0, n, "by config.json");
    }
    if (!parts[0] != !parts[1])
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: of %s%s_norm and _proj one is missing", c->path, in, what);
    if (!parts[0]) return AERIE_OK;
    float *values = ae_arena_alloc(&c->arena, 2 * (size_t)n, sizeof *values);
    if (!values) return ae_convert_no_memory(c, "the scores of banks");
    for (size_t i = 0; i < 2; i++)
        if (!ae_convert_floats(parts[i], 0, values + i * n, n))
            return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s has type %s, but must be F32, F16, BF16 or F64",
                           c->path, parts[i]->name, ae_st_dtype_name(parts[i]->dtype));
    for (uint32_t i = 0; i < n; i++) values[i] *= values[n + i];
    return ae_convert_add(c, &(ae_convert_item){.name = to, .how = AE_CONVERT_VALUES, .values = values, .columns = n});
}

aerie_status ae_convert_tensors_kimi_k3(ae_convert *c, uint32_t layer)
{
    char in[48], to[64];
    bool latent;
    if (!layer) AE_TRY(add_score(c, "", "output_attn_res", "output_res_score.weight"));
    snprintf(in, sizeof in, "layers.%u.", layer);
    snprintf(to, sizeof to, "blk.%u.attn_res_score.weight", layer);
    AE_TRY(add_score(c, in, "self_attention_res", to));
    snprintf(to, sizeof to, "blk.%u.ffn_res_score.weight", layer);
    AE_TRY(add_score(c, in, "mlp_res", to));
    /* two tensors of one name */
    AE_TRY(find_latent(c, layer, &latent));
    snprintf(to, sizeof to, "blk.%u.", layer);
    AE_TRY(ae_convert_apply(c, &(ae_convert_rule){"self_attn.g_proj", latent ? "attn_gate" : "ssm_g", AE_RULE_PLAIN, false}, in,
                            to));
    snprintf(in, sizeof in, "layers.%u.self_attn.A_log", layer);
    snprintf(to, sizeof to, "blk.%u.ssm_a", layer);
    const ae_st_tensor *t = ae_convert_take(c, in);
    if (t)
        AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .columns = c->model.n_heads,
                                                    .change = AE_CONVERT_MINUS_EXP, .f32 = true}));
    return ae_convert_tensors_kimi_linear(c, layer);
}

/* ---- Ling 3 ----------------------------------------------------------------------------------------------------- */

/* Returns whether a layer has latent attention. Judges by its tensors, because published files and those of transformers count
 * groups of layers differently if the last group is incomplete. */
static bool is_latent(const ae_convert *c, uint32_t layer)
{
    char name[64];
    snprintf(name, sizeof name, "layers.%u.self_attn.kv_b_proj.weight", layer);
    return ae_convert_look(c, name) != NULL;
}

static aerie_status put_limits(ae_convert_keys *k, const ae_convert *c, const char *from, const char *to)
{
    const json_t *list = ae_convert_value(c, from);
    const uint32_t n = c->model.n_layers + c->model.n_ahead;
    float limits[AE_MAX_LAYERS] = {0};
    if (!list) return k->status;
    for (uint32_t i = 0; i < n && i < AE_MAX_LAYERS; i++) {
        const json_t *one = json_array_get(list, i);
        double limit = 0;
        if (one && !json_is_null(one)) AE_TRY(ae_convert_real(c, one, from, 0, 1e9, &limit));
        limits[i] = (float)limit;
    }
    ae_convert_put_array(k, to, AE_GGUF_F32, limits, n);
    return k->status;
}

/* Returns whether this is Ling 3 VL: its file has sections. */
static bool sees(const ae_convert *c)
{
    return strcmp(c->model.class, "BailingMoeV3VLForConditionalGeneration") == 0;
}

/* The models rotate neighbours, but programs halves if a file has sections. */
static aerie_status halve_rotated(ae_convert *c, const char *layer)
{
    static const char *const names[] = {"attn_q.weight", "attn_q_b.weight", "attn_kv_a_mqa.weight"};
    uint32_t n_still = 0;
    char name[64];
    AE_TRY(ae_convert_need_u32(c, "qk_nope_head_dim", 1, AE_MAX_HEAD_DIM, &n_still));
    for (size_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", layer, names[i]);
        AE_TRY(ae_convert_halve_last(c, name, i < 2 ? n_still + c->head.n_rot : 0, c->head.n_rot));
    }
    return AERIE_OK;
}

aerie_status ae_convert_keys_bailing3(ae_convert_keys *k, const ae_convert *c)
{
    const uint32_t n = c->model.n_layers + c->model.n_ahead;
    uint32_t n_kv[AE_MAX_LAYERS], taps = 4, dim = 0, n_dense = 0;
    double lower = -5;
    for (uint32_t i = 0; i < n && i < AE_MAX_LAYERS; i++) n_kv[i] = is_latent(c, i);
    /* transformers saves the size of the rotated part as head_dim */
    AE_TRY(ae_convert_need_u32(c, ae_convert_value(c, "linear_head_dim") ? "linear_head_dim" : "head_dim", 1, AE_MAX_HEAD_DIM,
                               &dim));
    AE_TRY(ae_convert_u32(c, "short_conv_kernel_size", 1, 64, &taps));
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "kda_lower_bound"), "kda_lower_bound", -1e3, -1e-3, &lower));
    ae_convert_put_array(k, "attention.head_count_kv", AE_GGUF_U32, n_kv, n);
    ae_convert_put_u32(k, "ssm.conv_kernel", taps);
    ae_convert_put_u32(k, "kda.head_dim", dim);
    ae_convert_put_bool(k, "kda.safe_gate", true);
    ae_convert_put_f32(k, "kda.gate_lower_bound", lower);
    AE_TRY(put_limits(k, c, "expert_swiglu_limit_list", "swiglu_clamp_exp"));
    AE_TRY(put_limits(k, c, "share_expert_swiglu_limit_list", "swiglu_clamp_shexp"));
    AE_TRY(ae_convert_put_mla(k, c));
    if (sees(c)) AE_TRY(ae_convert_put_whole_sections(k, c));
    if (ae_convert_value(c, "mlp_layer_types")) return ae_convert_put_dense(k, c);
    AE_TRY(ae_convert_u32(c, "first_k_dense_replace", 0, AE_MAX_LAYERS, &n_dense));
    ae_convert_put_u32(k, "leading_dense_block_count", n_dense);
    return k->status;
}

aerie_status ae_convert_begin_bailing3(ae_convert *c)
{
    static const char *const flags[] = {"no_kda_lora", "kda_safe_gate"};
    const char *gates = ae_convert_text(c, "gated_attention_proj_granularity_type");
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (json_is_false(ae_convert_value(c, flags[i])))
            return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                           "%s: '%s' is false, but GGUF files of architecture %s are of models "
                           "where it is true", c->config_path, flags[i], c->arch->arch);
    if (!gates || strcmp(gates, "head_wise") == 0) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                   "%s: 'gated_attention_proj_granularity_type' is \"%.40s\", but GGUF files "
                   "of architecture %s have a gate for each head (\"head_wise\")", c->config_path, gates, c->arch->arch);
}

aerie_status ae_convert_tensors_bailing3(ae_convert *c, uint32_t layer)
{
    const ae_convert_rule gate = {"self_attn.g_proj", is_latent(c, layer) ? "attn_gate" : "ssm_g_a", AE_RULE_PLAIN, false};
    char in[64], to[48];
    snprintf(in, sizeof in, "layers.%u.", layer);
    snprintf(to, sizeof to, "blk.%u.", layer);
    AE_TRY(ae_convert_apply(c, &gate, in, to));
    if (sees(c) && is_latent(c, layer)) AE_TRY(halve_rotated(c, to));
    snprintf(in, sizeof in, "layers.%u.self_attn.A_log", layer);
    snprintf(to, sizeof to, "blk.%u.ssm_a", layer);
    const ae_st_tensor *t = ae_convert_take(c, in);
    if (t)
        AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .rows = t->n, .columns = 1,
                                                    .change = AE_CONVERT_EXP, .f32 = true}));
    return ae_convert_tensors_kimi_linear(c, layer);
}

/* ---- Granite Switch --------------------------------------------------------------------------------------------- */

/* Corrects the number of layers: config.json counts the switch as a layer, but it has no weights. */
aerie_status ae_convert_begin_switch(ae_convert *c)
{
    json_t *to = json_is_object(c->layer) ? c->layer : c->config;
    json_t *width = (json_t *)ae_convert_value(c, "shared_intermediate_size");
    uint32_t n = 0, dim = 0;
    AE_TRY(ae_convert_need_u32(c, "num_hidden_layers", 2, AE_MAX_LAYERS, &n));
    AE_TRY(ae_convert_u32(c, "projection_head_dim", 0, AE_MAX_HEAD_DIM, &dim));
    if (json_object_set_new(to, "num_hidden_layers", json_integer(n - 1)) ||
        (width && json_object_set(to, "intermediate_size", width)) ||
        (dim && json_object_set_new(to, "head_dim", json_integer(dim))))
        return ae_convert_no_memory(c, "the configuration");
    return AERIE_OK;
}

static aerie_status put_ids(ae_convert_keys *k, const ae_convert *c, const char *from, const char *to)
{
    const json_t *list = ae_convert_value(c, from);
    const size_t n = json_array_size(list);
    int32_t ids[AE_MAX_EXPERTS];
    if (n > AE_MAX_EXPERTS)
        return ae_fail(c->error, AERIE_ERROR_LIMIT, "%s: '%s' has %zu entries; at most %u are possible", c->config_path, from,
                       n,
                       AE_MAX_EXPERTS);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(list, i);
        const json_int_t id = json_integer_value(one);
        if (!json_is_integer(one) || id < 0 || id >= (json_int_t)c->model.n_vocab)
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: entry %zu of '%s' is no token; there are %u", c->config_path, i,
                           from, c->model.n_vocab);
        ids[i] = (int32_t)id;
    }
    ae_convert_put_array(k, to, AE_GGUF_I32, ids, n);
    return k->status;
}

aerie_status ae_convert_keys_switch(ae_convert_keys *k, const ae_convert *c)
{
    uint32_t n = 0, rank = 0;
    double gain = 15;
    AE_TRY(ae_convert_need_u32(c, "num_adapters", 1, AE_MAX_EXPERTS - 1, &n));
    AE_TRY(ae_convert_need_u32(c, "max_lora_rank", 1, AE_MAX_EMBD, &rank));
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "control_token_gain"), "control_token_gain", 0, 1e6, &gain));
    ae_convert_put_u32(k, "adapters.count", n);
    ae_convert_put_u32(k, "adapters.lora_rank", rank);
    ae_convert_put_f32(k, "adapters.router_gain", gain);
    AE_TRY(put_ids(k, c, "adapter_token_ids", "adapters.token_ids_activate"));
    return put_ids(k, c, "adapter_substitute_token_ids", "adapters.token_ids_substitute");
}

/* Returns the order that moves n rows of heads from halves to neighbours, after `first` rows that are left out; NULL: out of
 * memory. */
static uint32_t *to_neighbours(ae_convert *c, uint64_t n, uint64_t first)
{
    const uint32_t d = c->model.head_dim;
    uint32_t *order = ae_arena_alloc(&c->arena, n, sizeof *order);
    for (uint64_t r = 0; order && r < n; r++) {
        const uint64_t in = r % d;
        order[r] = (uint32_t)(first + r - in + in / 2 + (in % 2 ? d / 2 : 0));
    }
    return order;
}

/* Adds the adapters of one matrix: [adapters, 1, rows, columns]. Adapter 0 in the file changes nothing. */
static aerie_status add_adapters(ae_convert *c, const char *from, const char *to, bool turned)
{
    const ae_st_tensor *t = ae_convert_take(c, from);
    uint32_t n = 0, *order = NULL;
    char shape[128];
    if (!t) return AERIE_OK;
    AE_TRY(ae_convert_need_u32(c, "num_adapters", 1, AE_MAX_EXPERTS - 1, &n));
    if (t->n_dims != 4 || t->shape[0] != n || t->shape[1] != 1 || (turned && t->shape[2] % c->model.head_dim))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; [%u, 1, rows, columns] is needed", c->path, t->name,
                       ae_convert_shape(t, shape), n);
    if (turned && !(order = to_neighbours(c, t->shape[2], 0))) return ae_convert_no_memory(c, "the order of rows");
    return ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .n_stack = n + 1, .n_zero = 1, .rows = t->shape[2],
                                                .columns = t->shape[3], .row_from = order});
}

/* Adds the matrix of queries, keys and values, with the rows of queries and keys reordered. */
static aerie_status add_qkv(ae_convert *c, uint32_t layer)
{
    const uint64_t d = c->model.head_dim, n_q = c->model.n_heads * d, n_kv = c->model.n_kv_heads * d, n = n_q + 2 * n_kv;
    char from[80], to[48];
    snprintf(from, sizeof from, "layers.%u.self_attn.qkv_proj.base_layer.weight", layer);
    snprintf(to, sizeof to, "blk.%u.attn_qkv.weight", layer);
    const ae_st_tensor *t = ae_convert_take(c, from);
    if (!t) return AERIE_OK;
    AE_TRY(ae_convert_check_shape(c, t, n, c->model.n_embd, "by config.json"));
    uint32_t *order = ae_arena_alloc(&c->arena, n, sizeof *order);
    const uint32_t *q = to_neighbours(c, n_q, 0), *k = to_neighbours(c, n_kv, n_q);
    if (!order || !q || !k) return ae_convert_no_memory(c, "the order of rows");
    memcpy(order, q, n_q * sizeof *order);
    memcpy(order + n_q, k, n_kv * sizeof *order);
    for (uint64_t r = n_q + n_kv; r < n; r++) order[r] = (uint32_t)r;
    return ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .rows = n, .columns = c->model.n_embd,
                                                .row_from = order});
}

aerie_status ae_convert_tensors_switch(ae_convert *c, uint32_t layer)
{
    static const struct {
        const char *from, *to;
        bool turned; /* rows that rotate */
    } all[] = {{"self_attn.qkv_proj.lora_A_slices.0", "attn_q.lora_a", false}, {"self_attn.qkv_proj.lora_B_slices.0",
                                                                                "attn_q.lora_b", true},
               {"self_attn.qkv_proj.lora_A_slices.1", "attn_k.lora_a", false}, {"self_attn.qkv_proj.lora_B_slices.1",
                                                                                "attn_k.lora_b", true},
               {"self_attn.qkv_proj.lora_A_slices.2", "attn_v.lora_a", false}, {"self_attn.qkv_proj.lora_B_slices.2",
                                                                                "attn_v.lora_b", false},
               {"self_attn.o_proj.lora_A", "attn_output.lora_a", false}, {"self_attn.o_proj.lora_B", "attn_output.lora_b",
                                                                          false},
               {"shared_mlp.input_linear.lora_A_slices.0", "ffn_gate.lora_a", false},
               {"shared_mlp.input_linear.lora_B_slices.0", "ffn_gate.lora_b", false},
               {"shared_mlp.input_linear.lora_A_slices.1", "ffn_up.lora_a", false},
               {"shared_mlp.input_linear.lora_B_slices.1", "ffn_up.lora_b", false},
               {"shared_mlp.output_linear.lora_A", "ffn_down.lora_a", false}, {"shared_mlp.output_linear.lora_B",
                                                                               "ffn_down.lora_b", false}};
    AE_TRY(add_qkv(c, layer));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char from[80], to[48];
        snprintf(from, sizeof from, "layers.%u.%s", layer, all[i].from);
        snprintf(to, sizeof to, "blk.%u.%s", layer, all[i].to);
        AE_TRY(add_adapters(c, from, to, all[i].turned));
    }
    return AERIE_OK;
}

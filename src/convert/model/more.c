/* more.c - functions for rows of archs_more.c: sizes that differ by layer, and tensors that are cut, stacked or scaled (Bamba,
 * BitNet, Chameleon, DBRX, Deci, Grok, Jais, the text models of two for OCR, MiniCPM3, OpenELM, PLaMo 1 and 3, Sarvam, Spark,
 * StableLM 12B). Owns nothing.
 * Sources: the models' own code, or transformers' if it has the class; names and keys of GGUF files as llama.cpp reads them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/archs/arch.h"
#include "quant/types.h"

static json_t *values_of(const ae_convert *c)
{
    return json_is_object(c->layer) ? c->layer : c->config;
}

static aerie_status set_value(const ae_convert *c, const char *key, json_t *value)
{
    if (value && json_object_set_new(values_of(c), key, value) == 0) return AERIE_OK;
    return ae_convert_no_memory(c, "the configuration");
}

/* Returns the tensor to write of this name; NULL: there is none. */
static ae_convert_item *item_of(ae_convert *c, const char *name)
{
    for (size_t i = 0; i < c->n_items; i++)
        if (strcmp(c->items[i].name, name) == 0) return &c->items[i];
    return NULL;
}

/* Reads element i of a list, which must be a whole number. */
static aerie_status whole_at(const ae_convert *c, const json_t *list, const char *key, uint32_t i, uint32_t lo, uint32_t hi,
                             uint32_t *out)
{
    const json_t *one = json_array_get(list, i);
    const json_int_t n = json_integer_value(one);
    if (!json_is_integer(one) || n < (json_int_t)lo || n > (json_int_t)hi)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' has no whole number from %u to %u for layer %u", c->config_path,
                       key, lo, hi, i);
    *out = (uint32_t)n;
    return AERIE_OK;
}

/* ---- Bamba ------------------------------------------------------------------------------------------------------- */

/* Bamba is a granitehybrid without factors, which rotates a part of each head. */
aerie_status ae_convert_begin_bamba(ae_convert *c)
{
    const json_t *attends = ae_convert_value(c, "attn_layer_indices");
    json_t *kinds = json_array();
    uint32_t n = 0, n_embd = 0, n_heads = 1, dim, n_rot;
    bool ok = kinds != NULL;
    aerie_status status = ae_convert_need_u32(c, "num_hidden_layers", 1, AE_MAX_LAYERS, &n);
    for (uint32_t i = 0; i < n && ok; i++) {
        bool here = false;
        for (size_t k = 0; k < json_array_size(attends); k++) {
            const json_t *one = json_array_get(attends, k);
            here |= json_is_integer(one) && json_integer_value(one) == (json_int_t)i;
        }
        ok = json_array_append_new(kinds, json_string(here ? "attention" : "mamba")) == 0;
    }
    if (status == AERIE_OK) status = ok ? set_value(c, "layers_block_type", json_incref(kinds)) : AERIE_OK;
    json_decref(kinds);
    AE_TRY(status);
    if (!ok) return ae_convert_no_memory(c, "the configuration");
    AE_TRY(ae_convert_need_u32(c, "hidden_size", 1, AE_MAX_EMBD, &n_embd));
    AE_TRY(ae_convert_need_u32(c, "num_attention_heads", 1, AE_MAX_HEADS, &n_heads));
    dim = n_embd / n_heads;
    AE_TRY(ae_convert_u32(c, "head_dim", 2, AE_MAX_HEAD_DIM, &dim));
    n_rot = dim / 2;
    AE_TRY(ae_convert_u32(c, "attn_rotary_emb", 2, dim, &n_rot));
    AE_TRY(ae_convert_check_time_steps(c));
    AE_TRY(set_value(c, "partial_rotary_factor", json_real(dim ? (n_rot + 0.25) / dim : 0.5))); /* rounded down later */
    return set_value(c, "position_embedding_type", json_string("rope"));
}

/* ---- BitNet ------------------------------------------------------------------------------------------------------ */

/* Finds the scale of a matrix whose numbers count as -1, 0 or 1 times it: the mean of their magnitudes. */
static aerie_status mean_size(const ae_convert *c, const ae_st_tensor *t, float *scale)
{
    float x[1024];
    double sum = 0;
    for (uint64_t i = 0; i < t->n;) {
        const size_t n = t->n - i < 1024 ? (size_t)(t->n - i) : 1024;
        if (!ae_convert_floats(t, i, x, n))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s has no floats", c->path, t->name);
        for (size_t k = 0; k < n; k++) sum += fabs((double)x[k]);
        i += n;
    }
    *scale = (float)(sum / (double)(t->n ? t->n : 1));
    if (!(*scale > 1e-5f)) *scale = 1e-5f;
    return AERIE_OK;
}

/* Matrices that are not packed hold the numbers of training, which the model's code rounds whenever it uses them. */
aerie_status ae_convert_tensors_bitnet(ae_convert *c, uint32_t layer)
{
    static const char *const parts[] = {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[48];
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, parts[i]);
        ae_convert_item *item = item_of(c, name);
        if (item && item->from->dtype < AE_ST_DTYPE_COUNT) AE_TRY(mean_size(c, item->from, &item->ternary));
    }
    return AERIE_OK;
}

aerie_status ae_convert_keys_bitnet(ae_convert_keys *k, const ae_convert *c)
{
    const char *name = ae_convert_text(c, "hidden_act");
    /* the default of transformers' class, and of the older one */
    if (!ae_convert_value(c, "hidden_act")) name = strcmp(c->model.class, "BitNetForCausalLM") == 0 ? "relu2" : "silu";
    const bool squares = name && (strcmp(name, "relu2") == 0 || strcmp(name, "relu_squared") == 0);
    if (!squares && (!name || strcmp(name, "silu")))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'hidden_act' is \"%.40s\"; GGUF files of architecture %s run "
                       "with silu or relu2", c->config_path, name ? name : "no text", c->arch->arch);
    if (!squares) return k->status;
    ae_convert_put_text(k, "hidden_activation", "relu2");
    ae_log_say(&c->options.log, AERIE_LOG_INFO, "%s: 'hidden_act' is relu2, which the file names as hidden_activation; "
               "programs that do not read this key run the file with silu, as another model", c->config_path);
    return k->status;
}

/* ---- Chameleon --------------------------------------------------------------------------------------------------- */

/* Norms of queries and keys, which rotate, have a weight and a bias for each element of each head. */
aerie_status ae_convert_tensors_chameleon(ae_convert *c, uint32_t layer)
{
    static const char *const ends[] = {"weight", "bias"};
    const uint32_t d = c->model.head_dim;
    uint32_t *order = ae_arena_alloc(&c->arena, d, sizeof *order);
    if (!order) return ae_convert_no_memory(c, "the order of columns");
    for (uint32_t i = 0; i < d; i++) order[i] = i / 2 + (i % 2 ? d / 2 : 0);
    for (size_t i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.attn_%c_norm.%s", layer, "qk"[i / 2], ends[i % 2]);
        ae_convert_item *item = item_of(c, name);
        if (!item) continue; /* binding the file reports it */
        AE_TRY(ae_convert_check_shape(c, item->from, i < 2 ? c->model.n_heads : c->model.n_kv_heads, d, "by config.json"));
        item->column_from = order;
        item->type = AE_TYPE_F32;
    }
    return AERIE_OK;
}

/* ---- CogVLM ------------------------------------------------------------------------------------------------------ */

/* The code of CogVLM2, whose configuration has num_multi_query_heads, rotates by another base than that of CogVLM. */
aerie_status ae_convert_begin_cogvlm(ae_convert *c)
{
    if (!ae_convert_value(c, "num_multi_query_heads") || ae_convert_value(c, "rope_theta")) return AERIE_OK;
    return set_value(c, "rope_theta", json_real(500000));
}

/* ---- Grok -------------------------------------------------------------------------------------------------------- */

/* Checks that the parts of the experts are all there: what is missing for each of them shows only in its size. */
static aerie_status check_ranks(const ae_convert *c)
{
    static const char *const names[] = {"w1", "w3", "w2"};
    char name[80], shape[128];
    const char *key = ae_convert_value(c, "moe_intermediate_size") ? "moe_intermediate_size" : "intermediate_size";
    uint32_t width = 0;
    AE_TRY(ae_convert_u32(c, key, 1, INT32_MAX, &width));
    for (size_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "layers.0.block_sparse_moe.experts.0.%s.weight", names[i]);
        const ae_st_tensor *t = ae_convert_look(c, name);
        if (!t || t->dtype != AE_CONVERT_RANKED || t->shape[i == 2] == width) continue;
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: the parts of tensor %s make %s, but '%s' is %u: files of some ranks "
                       "are missing, or it is wrong", c->path, t->name, ae_convert_shape(t, shape), key, width);
    }
    return AERIE_OK;
}

/* YaRN lies outside of 'rope_scaling'; published files call it "original". */
aerie_status ae_convert_begin_grok(ae_convert *c)
{
    static const char *const names[] = {"scaling_factor", "original_max_position_embeddings", "beta_fast", "beta_slow"},
                             *const to[] = {"factor", "original_max_position_embeddings", "beta_fast", "beta_slow"};
    const char *type = ae_convert_text(c, "rope_type");
    double magnitude = 1, share = 1;
    AE_TRY(check_ranks(c));
    if (!type || (strcmp(type, "original") && strcmp(type, "yarn"))) return AERIE_OK;
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "attn_factor"), "attn_factor", 1e-3, 1e3, &magnitude));
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "extrapolation_factor"), "extrapolation_factor", -1, 1e3, &share));
    if (fabs(magnitude - 1) > 1e-6 || fabs(share - 1) > 1e-6)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'attn_factor' %g and 'extrapolation_factor' %g; 1 and 1 are "
                       "supported", c->config_path, magnitude, share);
    json_t *scaling = json_pack("{s:s}", "rope_type", "yarn");
    bool ok = scaling != NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && ok; i++) {
        const json_t *value = ae_convert_value(c, names[i]);
        ok = !value || json_object_set_new(scaling, to[i], json_deep_copy(value)) == 0;
    }
    if (ok) return set_value(c, "rope_scaling", scaling);
    json_decref(scaling);
    return ae_convert_no_memory(c, "the configuration");
}

aerie_status ae_convert_keys_grok(ae_convert_keys *k, const ae_convert *c)
{
    const ae_convert_head *h = &c->head;
    double scale = 1 / sqrt(c->model.head_dim);
    uint32_t n = 0;
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "attn_output_multiplier"), "attn_output_multiplier", 1e-6, 1e3, &scale));
    ae_convert_put_f32(k, "attention.output_scale", scale);
    if (strcmp(h->rope_type, "yarn") == 0) {
        ae_convert_put_f32(k, "rope.scaling.yarn_beta_fast", h->rope_beta_fast);
        ae_convert_put_f32(k, "rope.scaling.yarn_beta_slow", h->rope_beta_slow);
    }
    AE_TRY(ae_convert_u32(c, "attn_temperature_len", 0, INT32_MAX, &n));
    if (!n) return k->status;
    ae_convert_put_u32(k, "attention.temperature_length", n);
    if (n < c->model.n_ctx)
        ae_log_say(&c->options.log, AERIE_LOG_WARNING, "%s: 'attn_temperature_len' is %u, which programs that run GGUF files "
                   "of architecture %s do not apply: beyond %u tokens the answers differ from the original's",
                   c->config_path, n, c->arch->arch, n);
    return k->status;
}

/* ---- Spark ------------------------------------------------------------------------------------------------------- */

aerie_status ae_convert_keys_spark(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *near = json_object_get(ae_convert_value(c, "rope_parameters"), "sliding_attention");
    double part = 1;
    AE_TRY(ae_convert_real(c, json_object_get(near, "partial_rotary_factor"), "partial_rotary_factor", 0, 1, &part));
    if (near) ae_convert_put_u32(k, "rope.dimension_count_swa", (uint32_t)(part * c->model.head_dim));
    return k->status;
}

/* ---- ChatGLM, Qwen 1, OLMo 1 ---------------------------------------------------------------------------------------- */

/* The old form has a factor of the rotation's base. */
aerie_status ae_convert_begin_chatglm(ae_convert *c)
{
    double ratio = 1;
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "rope_ratio"), "rope_ratio", 1e-3, 1e8, &ratio));
    return set_value(c, "rope_theta", json_real(10000 * ratio));
}

/* Two options change texts beyond the length of training; files and programs have neither. */
aerie_status ae_convert_begin_qwen1(ae_convert *c)
{
    uint32_t n_train = 0, n_ctx = 0;
    bool logn = false, dynamic = false;
    AE_TRY(ae_convert_u32(c, "seq_length", 1, INT32_MAX, &n_train));
    AE_TRY(ae_convert_need_u32(c, "max_position_embeddings", 1, INT32_MAX, &n_ctx));
    AE_TRY(ae_convert_bool(c, "use_logn_attn", &logn, NULL));
    AE_TRY(ae_convert_bool(c, "use_dynamic_ntk", &dynamic, NULL));
    if ((logn || dynamic) && n_train && n_train < n_ctx)
        ae_log_say(&c->options.log, AERIE_LOG_WARNING, "%s: '%s' is true, which GGUF files of architecture %s cannot express: "
                   "beyond %u tokens the answers differ from the original's", c->config_path,
                   logn ? "use_logn_attn" : "use_dynamic_ntk", c->arch->arch, n_train);
    return AERIE_OK;
}

/* mlp_hidden_size counts gate and values. */
aerie_status ae_convert_begin_olmo1(ae_convert *c)
{
    uint32_t both = 0, n_embd = 0, ratio = 4;
    AE_TRY(ae_convert_need_u32(c, "hidden_size", 1, AE_MAX_EMBD, &n_embd));
    AE_TRY(ae_convert_u32(c, "mlp_ratio", 1, 64, &ratio));
    both = ratio * n_embd;
    AE_TRY(ae_convert_u32(c, "mlp_hidden_size", 2, AE_MAX_FF, &both));
    return set_value(c, "intermediate_size", json_integer(both / 2));
}

/* The second half of ff_proj is the gate. */
aerie_status ae_convert_tensors_olmo1(ae_convert *c, uint32_t layer)
{
    uint32_t ff = 0;
    char name[64];
    AE_TRY(ae_convert_need_u32(c, "intermediate_size", 1, AE_MAX_FF, &ff));
    snprintf(name, sizeof name, "layers.%u.ff_proj.weight", layer);
    const ae_st_tensor *t = ae_convert_take(c, name);
    if (!t) return AERIE_OK; /* binding the file reports it */
    AE_TRY(ae_convert_check_shape(c, t, 2 * (uint64_t)ff, c->model.n_embd, "by config.json"));
    for (uint64_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "blk.%u.ffn_%s.weight", layer, i ? "gate" : "up");
        AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = name, .from = t, .first = i * ff * c->model.n_embd, .rows = ff,
                                                    .columns = c->model.n_embd}));
    }
    return AERIE_OK;
}

/* ---- DBRX -------------------------------------------------------------------------------------------------------- */

/* Cuts the matrices of all experts, which are one below the other. That of w2 is transposed. */
aerie_status ae_convert_tensors_dbrx(ae_convert *c, uint32_t layer)
{
    static const struct {
        const char *from, *to;
        bool turned;
    } parts[] = {{"w1", "ffn_gate_exps", false}, {"v1", "ffn_up_exps", false}, {"w2", "ffn_down_exps", true}};
    const uint64_t n = c->model.n_experts, e = c->model.n_embd;
    uint32_t ff = 0;
    AE_TRY(ae_convert_need_u32(c, "intermediate_size", 1, AE_MAX_FF, &ff));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[64];
        snprintf(name, sizeof name, "layers.%u.ffn.experts.mlp.%s", layer, parts[i].from);
        const ae_st_tensor *t = ae_convert_take(c, name);
        if (!t) continue; /* binding the file reports it */
        AE_TRY(ae_convert_check_shape(c, t, n * ff, e, "by config.json"));
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, parts[i].to);
        ae_convert_item item = {.name = name, .from = t, .n_stack = n, .rows = ff, .columns = e, .stack_step = ff * e};
        if (parts[i].turned) item.rows = e, item.columns = ff, item.row_step = 1, item.step = e;
        AE_TRY(ae_convert_add(c, &item));
    }
    return AERIE_OK;
}

/* ---- Deci -------------------------------------------------------------------------------------------------------- */

/* Returns the width of a feed-forward block, as the model's code computes it. */
static uint32_t deci_width(double factor, uint32_t n_embd)
{
    const double width = floor(2 * factor * n_embd / 3);
    return width < 1 ? 0 : (uint32_t)(ceil(width / 256) * 256);
}

static aerie_status fail_block(const ae_convert *c, uint32_t layer, const char *what)
{
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'block_configs' of layer %u: %s", c->config_path, layer, what);
}

/* Reads the heads and the width of a layer from block_configs: 0 heads of keys mean a matrix instead of attention, 0 heads no
 * attention at all, 0 a width no feed-forward block. */
static aerie_status read_block(const ae_convert *c, const json_t *block, uint32_t layer, uint32_t *heads, uint32_t *n_kv,
                               uint32_t *width)
{
    const json_t *attention = json_object_get(block, "attention"), *ffn = json_object_get(block, "ffn");
    const json_t *each = json_object_get(attention, "n_heads_in_group"), *factor = json_object_get(ffn, "ffn_mult");
    const json_int_t n = json_integer_value(each);
    if (!json_is_object(attention) || !json_is_object(ffn)) return fail_block(c, layer, "'attention' or 'ffn' is missing");
    if (json_is_true(json_object_get(ffn, "replace_with_linear")))
        return fail_block(c, layer, "a matrix instead of a feed-forward block, which files of architecture deci cannot have");
    if (each && !json_is_null(each) && (!json_is_integer(each) || n < 1 || c->model.n_heads % n))
        return fail_block(c, layer, "'n_heads_in_group' does not divide the number of heads");
    *n_kv = n ? c->model.n_heads / (uint32_t)n : 0;
    *heads = n || json_is_true(json_object_get(attention, "replace_with_linear")) ? c->model.n_heads : 0;
    if (factor && !json_is_null(factor) && !(json_is_number(factor) && json_number_value(factor) >= 0 &&
                                             json_number_value(factor) < 1e3))
        return fail_block(c, layer, "'ffn_mult' must be a number from 0 to 1000, or null");
    *width = deci_width(json_number_value(factor), c->model.n_embd);
    return AERIE_OK;
}

/* Writes numbers of heads and widths of feed-forward blocks that differ by layer; heads, n_kv, width: [number of layers]. */
static aerie_status put_by_layer(ae_convert_keys *k, const ae_convert *c, const uint32_t *heads, const uint32_t *n_kv,
                                 const uint32_t *width)
{
    const uint32_t n = c->model.n_layers;
    ae_convert_put_array(k, "attention.head_count", AE_GGUF_U32, heads, n);
    ae_convert_put_array(k, "attention.head_count_kv", AE_GGUF_U32, n_kv, n);
    ae_convert_put_array(k, "feed_forward_length", AE_GGUF_U32, width, n);
    ae_convert_put_u32(k, "attention.key_length", c->model.head_dim);
    ae_convert_put_u32(k, "attention.value_length", c->model.head_dim);
    return k->status;
}

aerie_status ae_convert_keys_deci(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *blocks = ae_convert_value(c, "block_configs"), *list = ae_convert_value(c, "num_key_value_heads_per_layer");
    const uint32_t n = c->model.n_layers;
    uint32_t heads[AE_MAX_LAYERS], n_kv[AE_MAX_LAYERS], width[AE_MAX_LAYERS], usual = 0;
    if (!blocks) AE_TRY(ae_convert_need_u32(c, "intermediate_size", 1, AE_MAX_FF, &usual));
    for (uint32_t i = 0; i < n; i++) {
        heads[i] = c->model.n_heads, n_kv[i] = c->model.n_kv_heads, width[i] = usual;
        if (list) AE_TRY(whole_at(c, list, "num_key_value_heads_per_layer", i, 1, AE_MAX_HEADS, &n_kv[i]));
        if (blocks) AE_TRY(read_block(c, json_array_get(blocks, i), i, &heads[i], &n_kv[i], &width[i]));
    }
    return put_by_layer(k, c, heads, n_kv, width);
}

/* ---- Jais -------------------------------------------------------------------------------------------------------- */

/* Multiplies each number of a matrix. */
static aerie_status scale_item(ae_convert *c, ae_convert_item *item, double factor)
{
    float *factors = ae_arena_alloc(&c->arena, item->rows ? item->rows : 1, sizeof *factors);
    if (!factors) return ae_convert_no_memory(c, "a factor");
    for (uint64_t i = 0; i < item->rows; i++) factors[i] = (float)factor;
    item->factors = factors;
    return AERIE_OK;
}

/* Files have no factors of the embedding and the output: they become part of the matrices, which thereby differ, also if they
 * are the same in the checkpoint. */
aerie_status ae_convert_finish_jais(ae_convert *c)
{
    const bool new_names = ae_convert_value(c, "mup_embeddings_scale") != NULL;
    double of_input = 1, of_output = 1, alpha = 1;
    AE_TRY(ae_convert_real(c, ae_convert_value(c, new_names ? "mup_embeddings_scale" : "embeddings_scale"), "embeddings_scale",
                           1e-6, 1e6, &of_input));
    AE_TRY(ae_convert_real(c, ae_convert_value(c, new_names ? "mup_width_scale" : "width_scale"), "width_scale", 1e-6, 1e6,
                           &of_output));
    if (new_names) AE_TRY(ae_convert_real(c, ae_convert_value(c, "mup_output_alpha"), "mup_output_alpha", 1e-6, 1e6, &alpha));
    const ae_convert_item *input = item_of(c, "token_embd.weight");
    if (!input) return AERIE_OK; /* binding the file reports it */
    if (!item_of(c, "output.weight")) {
        ae_convert_item output = *input;
        output.name = "output.weight";
        AE_TRY(ae_convert_add(c, &output));
    }
    AE_TRY(scale_item(c, item_of(c, "token_embd.weight"), of_input));
    return scale_item(c, item_of(c, "output.weight"), of_output * alpha);
}

/* Finds the greatest bias from the slopes that the checkpoint stores. */
aerie_status ae_convert_keys_jais(ae_convert_keys *k, const ae_convert *c)
{
    const ae_st_tensor *t = ae_convert_look(c, "relative_pe.slopes");
    const uint32_t n = c->model.n_heads;
    uint32_t power = 1;
    float slopes[AE_MAX_HEADS];
    double most = 8;
    while (power * 2 <= n) power *= 2;
    if (t && (t->n != n || !ae_convert_floats(t, 0, slopes, n)))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s must have a number for each of %u heads", c->path, t->name,
                       n);
    if (t) most = slopes[0] > 0 && slopes[0] < 1 ? -round(log2(slopes[0]) * power) : 0;
    for (uint32_t i = 0; i < n && t; i++) {
        const double wanted = i < power ? exp2(-most * (i + 1) / power) : exp2(-most / 2 * (2 * (i - power) + 1) / power);
        if (!(fabs(slopes[i] - wanted) <= 1e-3 * wanted) || most < 1)
            return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s has other slopes than those of ALiBi", c->path,
                           t->name);
    }
    ae_convert_put_f32(k, "attention.max_alibi_bias", most);
    return k->status;
}

aerie_status ae_convert_tensors_jais(ae_convert *c, uint32_t layer)
{
    if (!layer) ae_convert_take(c, "relative_pe.slopes"); /* which become a key */
    return AERIE_OK;
}

/* ---- HunyuanOCR, DeepSeek-OCR: text models ------------------------------------------------------------------------- */

/* Sets aside the rotation of four axes, which for text is one with a raised base: files have the factor alone. */
aerie_status ae_convert_begin_hunyuan_vl(ae_convert *c)
{
    static const char *const names[] = {"rope_scaling", "rope_parameters"};
    const json_t *turns = ae_convert_value(c, names[0]);
    if (!json_object_size(turns)) turns = ae_convert_value(c, names[1]);
    const json_t *sections = json_object_get(turns, "xdrope_section");
    json_t *alpha = json_object_get(turns, "alpha"), *base = json_object_get(turns, "rope_theta"),
           *factor = json_object_get(turns, "factor");
    if (!sections) sections = json_object_get(turns, "mrope_section");
    if (!json_is_number(alpha) || json_array_size(sections) != 4)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'rope_scaling' needs 'alpha' and four numbers in 'xdrope_section'",
                       c->config_path);
    if (factor && !json_is_null(factor) && !(json_number_value(factor) >= 1 && json_number_value(factor) <= 1))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'rope_scaling': 'factor' must be 1 for GGUF files of "
                       "architecture %s", c->config_path, c->arch->arch);
    AE_TRY(set_value(c, "rope_alpha", json_incref(alpha)));
    AE_TRY(set_value(c, "rope_sections", json_deep_copy(sections)));
    if (base) AE_TRY(set_value(c, "rope_theta", json_incref(base)));
    for (size_t i = 0; i < 2; i++) {
        json_object_del(values_of(c), names[i]);
        json_object_del(c->config, names[i]);
    }
    return AERIE_OK;
}

aerie_status ae_convert_keys_hunyuan_vl(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *list = ae_convert_value(c, "rope_sections");
    int32_t sections[4];
    double alpha = 1;
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "rope_alpha"), "alpha", 1e-3, 1e9, &alpha));
    for (uint32_t i = 0; i < 4; i++) {
        const json_int_t given = json_integer_value(json_array_get(list, i));
        if (given < 0 || given > (json_int_t)c->model.head_dim)
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'xdrope_section' has no number from 0 to %u at place %u",
                           c->config_path, c->model.head_dim, i);
        sections[i] = (int32_t)given;
    }
    ae_convert_put_f32(k, "rope.scaling.alpha", alpha);
    ae_convert_put_array(k, "rope.dimension_sections", AE_GGUF_I32, sections, 4);
    return k->status;
}

/* DeepSeek-OCR has the sizes of latent attention, as 0, and no latent attention. */
aerie_status ae_convert_begin_ocr(ae_convert *c)
{
    static const char *const names[] = {"qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "kv_lora_rank", "q_lora_rank"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *value = ae_convert_value(c, names[i]);
        if (value && json_number_value(value) > 0)
            return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: '%s' is not 0, but GGUF files of architecture %s have no "
                           "latent attention", c->config_path, names[i], c->arch->arch);
        json_object_del(values_of(c), names[i]);
        json_object_del(c->config, names[i]);
    }
    return AERIE_OK;
}

/* transformers' class names the kind of each layer; other configurations have the number of dense ones. */
aerie_status ae_convert_keys_ocr(ae_convert_keys *k, const ae_convert *c)
{
    return ae_convert_value(c, "mlp_layer_types") ? ae_convert_put_dense(k, c) : k->status;
}

/* ---- MiniCPM3 and PLM: latent attention whose keys and values files hold together ------------------------------------- */

aerie_status ae_convert_keys_latent(ae_convert_keys *k, const ae_convert *c)
{
    uint32_t nope = 0, rope = 0, value = c->model.n_embd / c->model.n_heads;
    AE_TRY(ae_convert_need_u32(c, "qk_nope_head_dim", 1, AE_MAX_HEAD_DIM, &nope));
    AE_TRY(ae_convert_need_u32(c, "qk_rope_head_dim", 2, AE_MAX_HEAD_DIM, &rope));
    AE_TRY(ae_convert_u32(c, "v_head_dim", 1, AE_MAX_HEAD_DIM, &value));
    ae_convert_put_u32(k, "attention.head_count_kv", c->model.n_heads);
    ae_convert_put_u32(k, "attention.key_length", nope + rope);
    ae_convert_put_u32(k, "attention.value_length", value);
    return k->status;
}

/* llama.cpp has the factors of MiniCPM3-4B in its code and reads no key. */
aerie_status ae_convert_keys_minicpm3(ae_convert_keys *k, const ae_convert *c)
{
    double embedding = 12, depth = 1.4, base = 256;
    AE_TRY(ae_convert_keys_latent(k, c));
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "scale_emb"), "scale_emb", 1e-6, 1e6, &embedding));
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "scale_depth"), "scale_depth", 1e-6, 1e6, &depth));
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "dim_model_base"), "dim_model_base", 1e-6, 1e6, &base));
    if (fabs(embedding - 12) < 1e-9 && fabs(depth - 1.4) < 1e-9 && fabs(base - 256) < 1e-9) return k->status;
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'scale_emb' %g, 'scale_depth' %g and 'dim_model_base' %g; programs "
                   "run GGUF files of architecture %s with 12, 1.4 and 256", c->config_path, embedding, depth, base,
                   c->arch->arch);
}

/* ---- OpenELM ----------------------------------------------------------------------------------------------------- */

aerie_status ae_convert_begin_openelm(ae_convert *c)
{
    const json_t *list = ae_convert_value(c, "num_query_heads");
    uint32_t n = 1;
    AE_TRY(whole_at(c, list, "num_query_heads", 0, 1, AE_MAX_HEADS, &n));
    return set_value(c, "num_attention_heads", json_integer(n));
}

aerie_status ae_convert_keys_openelm(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *heads = ae_convert_value(c, "num_query_heads"), *kv = ae_convert_value(c, "num_kv_heads"),
                 *factors = ae_convert_value(c, "ffn_multipliers");
    const uint32_t n = c->model.n_layers;
    uint32_t n_heads[AE_MAX_LAYERS], n_kv[AE_MAX_LAYERS], n_ff[AE_MAX_LAYERS], step = 256;
    AE_TRY(ae_convert_u32(c, "ffn_dim_divisor", 1, AE_MAX_FF, &step));
    for (uint32_t i = 0; i < n; i++) {
        double factor = 0;
        AE_TRY(whole_at(c, heads, "num_query_heads", i, 1, AE_MAX_HEADS, &n_heads[i]));
        AE_TRY(whole_at(c, kv, "num_kv_heads", i, 1, AE_MAX_HEADS, &n_kv[i]));
        const json_t *one = json_is_array(factors) ? json_array_get(factors, i) : factors;
        if (!json_is_number(one))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'ffn_multipliers' has no number for layer %u", c->config_path, i);
        AE_TRY(ae_convert_real(c, one, "ffn_multipliers", 0, 1e3, &factor));
        const double width = factor * c->model.n_embd;
        double whole = floor((width + step / 2.0) / step) * step; /* as the model's code rounds */
        if (whole < step) whole = step;
        if (whole < 0.9 * width) whole += step;
        n_ff[i] = (uint32_t)whole;
    }
    return put_by_layer(k, c, n_heads, n_kv, n_ff);
}

/* ---- PLaMo 1 ----------------------------------------------------------------------------------------------------- */

/* n_shared_head heads of queries share one of keys; num_key_value_heads of the published file is wrong. */
aerie_status ae_convert_begin_plamo(ae_convert *c)
{
    uint32_t n_heads = 1, each = 8;
    AE_TRY(ae_convert_need_u32(c, "num_attention_heads", 1, AE_MAX_HEADS, &n_heads));
    AE_TRY(ae_convert_u32(c, "n_shared_head", 1, n_heads, &each));
    if (n_heads % each)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'n_shared_head' %u does not divide 'num_attention_heads' %u",
                       c->config_path, each, n_heads);
    return set_value(c, "num_key_value_heads", json_integer(n_heads / each));
}

/* Brings the heads that share keys together: in the checkpoint, head h has those of head h modulo the number of them. */
aerie_status ae_convert_tensors_plamo(ae_convert *c, uint32_t layer)
{
    const uint32_t n = c->model.n_heads, n_kv = c->model.n_kv_heads, d = c->model.head_dim;
    uint32_t *order = ae_arena_alloc(&c->arena, (size_t)n * d, sizeof *order);
    char name[64];
    if (!order) return ae_convert_no_memory(c, "the order of rows");
    for (uint32_t h = 0; h < n; h++)
        for (uint32_t i = 0; i < d; i++) order[h * d + i] = (h % (n / n_kv) * n_kv + h / (n / n_kv)) * d + i;
    snprintf(name, sizeof name, "blk.%u.attn_q.weight", layer);
    ae_convert_item *q = item_of(c, name);
    snprintf(name, sizeof name, "blk.%u.attn_output.weight", layer);
    ae_convert_item *o = item_of(c, name);
    if (q) AE_TRY(ae_convert_check_shape(c, q->from, (uint64_t)n * d, c->model.n_embd, "by config.json"));
    if (o) AE_TRY(ae_convert_check_shape(c, o->from, c->model.n_embd, (uint64_t)n * d, "by config.json"));
    if (q) q->row_from = order;
    if (o) o->column_from = order;
    return AERIE_OK;
}

/* ---- PLaMo 3 ----------------------------------------------------------------------------------------------------- */

/* A scaling of the rotation is YaRN without whole pairs, under other names. */
aerie_status ae_convert_begin_plamo3(ae_convert *c)
{
    double factor = 1;
    uint32_t n_ctx = 0;
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "rope_scaling_factor"), "rope_scaling_factor", 1, 1e6, &factor));
    if (factor <= 1) return AERIE_OK;
    AE_TRY(ae_convert_need_u32(c, "initial_context_length", 1, INT32_MAX, &n_ctx));
    return set_value(c, "rope_scaling",
                     json_pack("{s:s, s:f, s:i, s:f, s:f, s:b}", "rope_type", "yarn", "factor", factor,
                               "original_max_position_embeddings", (int)n_ctx, "beta_fast", 32.0, "beta_slow", 1.0, "truncate",
                               0));
}

/* As PLaMo 2, and norms of queries and keys lack 1, too. */
aerie_status ae_convert_tensors_plamo3(ae_convert *c, uint32_t layer)
{
    AE_TRY(ae_convert_tensors_plamo2(c, layer));
    for (size_t i = 0; i < 2; i++) {
        char from[64], to[48];
        snprintf(from, sizeof from, "layers.%u.mixer.%c_norm.weight", layer, "qk"[i]);
        snprintf(to, sizeof to, "blk.%u.attn_%c_norm.weight", layer, "qk"[i]);
        const ae_st_tensor *t = ae_convert_take(c, from);
        if (t) AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .columns = t->n, .plus = 1}));
    }
    return AERIE_OK;
}

/* ---- Sarvam ------------------------------------------------------------------------------------------------------ */

/* The model's code subtracts the mean from the bias of the choice of experts. */
aerie_status ae_convert_tensors_sarvam(ae_convert *c, uint32_t layer)
{
    float bias[AE_MAX_EXPERTS];
    double sum = 0;
    char name[48];
    snprintf(name, sizeof name, "blk.%u.exp_probs_b.bias", layer);
    ae_convert_item *item = item_of(c, name);
    if (!item || !item->from || item->from->n > AE_MAX_EXPERTS || !ae_convert_floats(item->from, 0, bias, item->from->n))
        return AERIE_OK;
    for (uint64_t i = 0; i < item->from->n; i++) sum += bias[i];
    item->plus = (float)(-sum / (double)item->from->n);
    return AERIE_OK;
}

/* ---- StableLM 12B ------------------------------------------------------------------------------------------------ */

/* Stacks the norms of each head of queries or keys; a model without them is of the usual kind. */
static aerie_status stack_norms(ae_convert *c, uint32_t layer, char which, uint32_t n)
{
    const uint32_t d = c->model.head_dim;
    char name[96];
    snprintf(name, sizeof name, "layers.%u.self_attn.%c_layernorm.norms.0.weight", layer, which);
    if (!ae_convert_look(c, name)) return AERIE_OK;
    float *values = ae_arena_alloc(&c->arena, (size_t)n * d, sizeof *values);
    if (!values) return ae_convert_no_memory(c, "the norms of heads");
    for (uint32_t h = 0; h < n; h++) {
        snprintf(name, sizeof name, "layers.%u.self_attn.%c_layernorm.norms.%u.weight", layer, which, h);
        const ae_st_tensor *t = ae_convert_take(c, name);
        if (!t) return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor model.%s is missing", c->path, name);
        AE_TRY(ae_convert_check_shape(c, t, 0, d, "by config.json"));
        if (!ae_convert_floats(t, 0, values + (size_t)h * d, d))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s has no floats", c->path, t->name);
    }
    snprintf(name, sizeof name, "blk.%u.attn_%c_norm.weight", layer, which);
    return ae_convert_add(c, &(ae_convert_item){.name = name, .how = AE_CONVERT_VALUES, .values = values, .rows = n,
                                                .columns = d, .f32 = true});
}

aerie_status ae_convert_tensors_stablelm(ae_convert *c, uint32_t layer)
{
    AE_TRY(stack_norms(c, layer, 'q', c->model.n_heads));
    return stack_norms(c, layer, 'k', c->model.n_kv_heads);
}

/* late.c - what the rows of archs_late.c need besides data: values of config.json that they have under other names or in other
 * forms, keys that depend on several values, and tensors that are put together or cut. Owns nothing.
 *
 * What files of an architecture cannot say is refused. Sources: the models' own code, transformers' where it has the class;
 * names and keys of GGUF files as llama.cpp reads them. */
#include <stdio.h>
#include <string.h>

#include "convert/model/arch.h"

static json_t *values_of(const ae_convert *c)
{
    return json_is_object(c->layer) ? c->layer : c->config;
}

/* Gives a value that config.json lacks. Takes `value`. */
static aerie_status set_missing(const ae_convert *c, const char *key, json_t *value)
{
    if (ae_convert_value(c, key)) json_decref(value);
    else if (!value || json_object_set_new(values_of(c), key, value)) return ae_convert_no_memory(c, "the configuration");
    return AERIE_OK;
}

static aerie_status fail_other(const ae_convert *c, const char *key, const char *runs)
{
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: '%s' is another one than GGUF files of architecture %s run with "
                   "(%s)", c->config_path, key, c->arch->arch, runs);
}

/* ---- Models that denoise ---------------------------------------------------------------------------------------- */

aerie_status ae_convert_keys_denoises(ae_convert_keys *k, const ae_convert *c)
{
    ae_convert_put_bool(k, "attention.causal", false);
    if (strncmp(c->arch->arch, "llada", 5) == 0 && k->status == AERIE_OK)
        k->status = ae_gguf_writer_bool(k->w, "diffusion.shift_logits", false, k->error);
    return k->status;
}

/* OLMo's configuration, of which LLaDA uses one kind of block. */
aerie_status ae_convert_begin_llada(ae_convert *c)
{
    static const struct {
        const char *key, *text;
        bool flag;
    } only[] = {{"block_type", "llama", false}, {"layer_norm_type", "rms", false}, {"rope", NULL, true}, {"alibi", NULL, false},
                {"scale_logits", NULL, false}, {"input_emb_norm", NULL, false}, {"attention_layer_norm", NULL, false}};
    for (size_t i = 0; i < sizeof only / sizeof *only; i++) {
        const json_t *value = ae_convert_value(c, only[i].key);
        const char *text = json_string_value(value);
        if (!value) continue;
        if (only[i].text ? !text || strcmp(text, only[i].text) : json_is_true(value) != only[i].flag)
            return fail_other(c, only[i].key, only[i].text ? only[i].text : only[i].flag ? "true" : "false");
    }
    return AERIE_OK;
}

/* ---- GroveMoE --------------------------------------------------------------------------------------------------- */

/* How many of the experts share a smaller one: as many as the tensors say. The factor is in the model's code. */
aerie_status ae_convert_keys_grove(ae_convert_keys *k, const ae_convert *c)
{
    const uint32_t n = c->model.n_experts, n_chunks = c->model.n_chunks;
    const ae_st_tensor *t = ae_convert_look(c, "layers.0.mlp.chunk_experts.0.gate_proj.weight");
    if (!t || !n_chunks || n % n_chunks)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: there are %u smaller experts (mlp.chunk_experts) for %u experts, "
                       "which must divide into as many groups", c->path, n_chunks, n);
    ae_convert_put_u32(k, "experts_per_group", n / n_chunks);
    ae_convert_put_u32(k, "expert_chunk_feed_forward_length", (uint32_t)t->shape[0]);
    ae_convert_put_f32(k, "expert_group_scale", 0.05);
    return k->status;
}

/* The model's code has a bias of experts and does not use it. */
aerie_status ae_convert_tensors_grove(ae_convert *c, uint32_t layer)
{
    static const char *const names[] = {"mlp.expert_bias", "mlp.gate.expert_bias"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        snprintf(name, sizeof name, "layers.%u.%s", layer, names[i]);
        ae_convert_take(c, name);
    }
    return AERIE_OK;
}

/* ---- Stacks that run in cycles (HRM-Text) ----------------------------------------------------------------------- */

/* Published files count a stack's layers; those that transformers has saved count all runs. */
aerie_status ae_convert_begin_hrm(ae_convert *c)
{
    uint32_t n = 0, n_high = 2, n_low = 3;
    const bool both = json_is_integer(ae_convert_value(c, "num_layers_per_stack"));
    AE_TRY(ae_convert_need_u32(c, both ? "num_layers_per_stack" : "num_hidden_layers", 1, AE_MAX_LAYERS / 2, &n));
    AE_TRY(ae_convert_u32(c, "H_cycles", 1, AE_MAX_LAYERS, &n_high));
    AE_TRY(ae_convert_u32(c, "L_cycles", 1, AE_MAX_LAYERS, &n_low));
    if ((uint64_t)n * n_high * (n_low + 1) > AE_MAX_LAYERS)
        return ae_fail(c->error, AERIE_ERROR_LIMIT, "%s: %u cycles of %u + 1 stacks of %u layers are more than %u layers",
                       c->config_path, n_high, n_low, n, AE_MAX_LAYERS);
    AE_TRY(set_missing(c, "H_cycles", json_integer(n_high)));
    AE_TRY(set_missing(c, "L_cycles", json_integer(n_low)));
    AE_TRY(set_missing(c, "num_layers_per_stack", json_integer(n)));
    if (json_object_set_new(values_of(c), "num_hidden_layers", json_integer((json_int_t)n * n_high * (n_low + 1))))
        return ae_convert_no_memory(c, "the configuration");
    return AERIE_OK;
}

aerie_status ae_convert_keys_hrm(ae_convert_keys *k, const ae_convert *c)
{
    double deviation = 0.02;
    if (json_is_number(ae_convert_value(c, "embedding_scale"))) return k->status;
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "initializer_range"), "initializer_range", 1e-6, 1, &deviation));
    ae_convert_put_f32(k, "embedding_scale", 1.0 / deviation);
    return k->status;
}

/* Gate, queries, keys and values, which may be saved as one. */
static aerie_status part_attention(ae_convert *c, const char *in, const char *out)
{
    static const char *const parts[] = {"attn_gate", "attn_q", "attn_k", "attn_v"};
    char name[96];
    snprintf(name, sizeof name, "%sattn.gqkv_proj.weight", in);
    const ae_st_tensor *t = ae_convert_take(c, name);
    if (!t) return AERIE_OK;
    AE_TRY(ae_convert_check_shape(c, t, t->n_dims == 2 ? t->shape[0] / 4 * 4 : 0, c->model.n_embd, "by config.json"));
    for (uint64_t i = 0, rows = t->shape[0] / 4; i < 4; i++) {
        snprintf(name, sizeof name, "%s%s.weight", out, parts[i]);
        AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = name, .from = t, .first = i * rows * c->model.n_embd, .rows = rows,
                                                    .columns = c->model.n_embd}));
    }
    return AERIE_OK;
}

/* The blocks of both stacks, the low one's first. */
aerie_status ae_convert_tensors_hrm(ae_convert *c, uint32_t layer)
{
    static const ae_convert_rule start = {"z_L_init", "hrm.z_l_init", AE_RULE_F32, true}, own[] = {
        {"self_attn.gate_proj", "attn_gate", AE_RULE_PLAIN, false}, {"attn.o_proj", "attn_output", AE_RULE_PLAIN, false},
        {"mlp.gate_up_proj.weight", "ffn_%s.weight", AE_RULE_SPLIT, true}};
    uint32_t n = 0;
    if (layer) return AERIE_OK;
    AE_TRY(ae_convert_need_u32(c, "num_layers_per_stack", 1, AE_MAX_LAYERS / 2, &n));
    AE_TRY(ae_convert_apply(c, &start, "", ""));
    for (uint32_t i = 0; i < 2 * n; i++) {
        char in[48], out[24];
        snprintf(in, sizeof in, "%c_module.layers.%u.", i < n ? 'L' : 'H', i % n);
        snprintf(out, sizeof out, "blk.%u.", i);
        AE_TRY(part_attention(c, in, out));
        for (size_t k = 0; k < sizeof own / sizeof *own; k++) AE_TRY(ae_convert_apply(c, &own[k], in, out));
        for (const ae_convert_rule *r = ae_convert_shared_rules; r->from; r++) AE_TRY(ae_convert_apply(c, r, in, out));
    }
    return AERIE_OK;
}

/* ---- MiniMax-M3 ------------------------------------------------------------------------------------------------- */

/* The makers' file has the index's sizes in an object of their own. */
aerie_status ae_convert_begin_minimax_m3(ae_convert *c)
{
    static const char *const names[][2] = {
        {"sparse_num_index_heads", "index_n_heads"}, {"sparse_index_dim", "index_head_dim"},
        {"sparse_block_size", "index_block_size"}, {"sparse_topk_blocks", "index_topk_blocks"},
        {"sparse_local_block", "index_local_blocks"}};
    const json_t *sparse = ae_convert_value(c, "sparse_attention_config");
    double limit = 7, gain = 1.702;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *value = json_object_get(sparse, names[i][0]);
        if (value && json_object_set(values_of(c), names[i][1], value)) return ae_convert_no_memory(c, "the configuration");
    }
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "swiglu_limit"), "swiglu_limit", 0, 1e9, &limit));
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "swiglu_alpha"), "swiglu_alpha", 0, 1e9, &gain));
    if (limit != 7) return fail_other(c, "swiglu_limit", "7");
    if ((float)gain != 1.702f) return fail_other(c, "swiglu_alpha", "1.702");
    if (json_is_false(ae_convert_value(c, "use_gemma_norm"))) return fail_other(c, "use_gemma_norm", "true");
    return AERIE_OK;
}

/* The first layers are dense; which they are is said by a list of names or of numbers. */
static aerie_status put_dense(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *names = ae_convert_value(c, "mlp_layer_types"), *numbers = ae_convert_value(c, "moe_layer_freq");
    uint32_t n_dense = 0;
    for (uint32_t i = 0; i < c->model.n_layers; i++) {
        const json_t *one = json_array_get(names ? names : numbers, i);
        const char *name = json_string_value(one);
        if (!one) break;
        const bool dense = names ? name && strcmp(name, "dense") == 0 : json_integer_value(one) == 0;
        if (dense && n_dense != i)
            return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: layer %u is dense, but layers before it have experts; GGUF "
                           "files of architecture %s have dense layers first", c->config_path, i, c->arch->arch);
        n_dense += dense;
    }
    ae_convert_put_u32(k, "leading_dense_block_count", n_dense);
    return k->status;
}

aerie_status ae_convert_keys_minimax_m3(ae_convert_keys *k, const ae_convert *c)
{
    uint32_t n_ff = 0, n_shared = 1, size = 0;
    AE_TRY(ae_convert_need_u32(c, "intermediate_size", 1, AE_MAX_FF, &n_ff));
    AE_TRY(ae_convert_u32(c, "n_shared_experts", 0, AE_MAX_EXPERTS, &n_shared));
    AE_TRY(ae_convert_u32(c, "shared_intermediate_size", 1, AE_MAX_FF, &size));
    if (size && size % n_ff)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'shared_intermediate_size' is %u, which is no multiple of "
                       "'intermediate_size', %u; GGUF files of architecture %s cannot say that", c->config_path, size, n_ff,
                       c->arch->arch);
    ae_convert_put_u32(k, "expert_shared_count", size && n_shared ? size / n_ff : n_shared);
    ae_convert_put_bool(k, "expert_weights_norm", true);
    return put_dense(k, c);
}

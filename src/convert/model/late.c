/* late.c - functions for the rows of archs_late.c: values of config.json with other names or in other forms, keys that depend
 * on several values, and tensors that are joined or cut. Owns nothing. Settings that the architecture's GGUF files cannot
 * express are refused. Sources: the models' own code, or transformers' if it has the class; names and keys of GGUF files as
 * llama.cpp reads them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/archs/arch.h"

static json_t *values_of(const ae_convert *c)
{
    return json_is_object(c->layer) ? c->layer : c->config;
}

aerie_status ae_convert_set_missing(const ae_convert *c, const char *key, json_t *value)
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

/* Reads a configuration in OLMo's form, of whose kinds of blocks LLaDA uses one. */
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

/* Writes how many experts share a smaller one, as counted from the tensors. The factor is fixed in the model's code. */
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

/* Skips the bias of experts, which the model's code has but does not use. */
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

/* Corrects the number of layers: published files count those of one stack, files that transformers has saved count all runs. */
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
    AE_TRY(ae_convert_set_missing(c, "H_cycles", json_integer(n_high)));
    AE_TRY(ae_convert_set_missing(c, "L_cycles", json_integer(n_low)));
    AE_TRY(ae_convert_set_missing(c, "num_layers_per_stack", json_integer(n)));
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

/* Adds gate, queries, keys and values, which may be stored in one tensor. */
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

/* Adds the blocks of both stacks, first those of the low one. */
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

/* Copies the index's sizes from the object that contains them in the published file. */
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

/* Writes the number of dense layers, which come first. config.json lists them by name or by number. */
aerie_status ae_convert_put_dense(ae_convert_keys *k, const ae_convert *c)
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
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'shared_intermediate_size' is %u, which is not a multiple of "
                       "'intermediate_size', %u; GGUF files of architecture %s cannot express that", c->config_path, size, n_ff,
                       c->arch->arch);
    ae_convert_put_u32(k, "expert_shared_count", size && n_shared ? size / n_ff : n_shared);
    ae_convert_put_bool(k, "expert_weights_norm", true);
    return ae_convert_put_dense(k, c);
}

/* ---- DeepSeek V4 ------------------------------------------------------------------------------------------------ */

/* Separates the two rotations: layers that compress have another base, and only theirs is stretched. transformers saves both in
 * rope_parameters; the published files have rope_theta, compress_rope_theta and rope_scaling. */
static aerie_status part_rotations(ae_convert *c)
{
    json_t *both = (json_t *)ae_convert_value(c, "rope_parameters");
    const json_t *plain = json_object_get(both, "main"), *late = json_object_get(both, "compress");
    if (plain && late) {
        json_t *scaling = json_deep_copy(late), *base = json_object_get(plain, "rope_theta"),
               *late_base = json_object_get(late, "rope_theta"), *share = json_object_get(plain, "partial_rotary_factor");
        const json_t *factor = json_object_get(late, "attention_factor");
        if (factor && json_number_value(factor) != 1) {
            json_decref(scaling);
            return fail_other(c, "attention_factor", "1");
        }
        json_object_del(scaling, "rope_theta");
        json_object_del(scaling, "partial_rotary_factor");
        json_object_del(scaling, "attention_factor");
        bool ok = scaling && json_object_set_new(values_of(c), "rope_scaling", scaling) == 0;
        if (base) ok &= json_object_set(values_of(c), "rope_theta", base) == 0;
        if (late_base) ok &= json_object_set(values_of(c), "compress_rope_theta", late_base) == 0;
        if (share && !ae_convert_value(c, "partial_rotary_factor"))
            ok &= json_object_set(values_of(c), "partial_rotary_factor", share) == 0;
        if (!ok) return ae_convert_no_memory(c, "the configuration");
    }
    if (ae_convert_value(c, "qk_rope_head_dim") && /* of which all rotates */
        json_object_set_new(values_of(c), "partial_rotary_factor", json_real(1)))
        return ae_convert_no_memory(c, "the configuration");
    return ae_convert_set_missing(c, "compress_rope_theta", json_real(160000));
}

aerie_status ae_convert_rename_ahead(ae_convert *c, const char *place)
{
    const size_t n_place = strlen(place);
    uint32_t n = 0;
    bool any = false;
    AE_TRY(ae_convert_need_u32(c, "num_hidden_layers", 1, AE_MAX_LAYERS, &n));
    for (size_t i = 0; i < c->n_entries; i++) {
        unsigned block;
        int n_read = 0;
        char start[32];
        const char *name = c->entries[i].name;
        if (strncmp(name, place, n_place)) continue;
        name += n_place;
        if (sscanf(name, "%3u.%n", &block, &n_read) != 1 || !n_read) continue;
        snprintf(start, sizeof start, "layers.%u.", n + block);
        const size_t n_start = strlen(start), n_rest = strlen(name + n_read);
        char *copy = ae_arena_alloc(&c->arena, n_start + n_rest + 1, 1);
        if (!copy) return ae_convert_no_memory(c, "the names of tensors");
        memcpy(copy, start, n_start);
        memcpy(copy + n_start, name + n_read, n_rest + 1);
        c->entries[i].name = copy;
        any = true;
    }
    return any ? ae_convert_sort_names(c) : AERIE_OK;
}

/* Adds the parts that only MTP blocks have. A block's own weights for the streams' head are dropped, since files have only the
 * model's. */
static aerie_status add_ahead(ae_convert *c, uint32_t layer)
{
    static const char *const ends[] = {"hc_head_fn", "hc_head_base", "hc_head_scale"};
    const uint64_t e = c->model.n_embd;
    const ae_st_tensor *halves[2];
    char name[64], in[32], out[32];
    snprintf(in, sizeof in, "layers.%u.", layer);
    snprintf(out, sizeof out, "blk.%u.", layer);
    AE_TRY(ae_convert_apply(c, &(ae_convert_rule){"norm", "nextn.shared_head_norm", AE_RULE_PLAIN, false}, in, out));
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s%s", in, i ? "h_proj.weight" : "e_proj.weight");
        halves[i] = ae_convert_take(c, name);
        if (!halves[i]) return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing", c->path, name);
        AE_TRY(ae_convert_check_shape(c, halves[i], e, e, "by config.json"));
    }
    snprintf(name, sizeof name, "%snextn.eh_proj.weight", out);
    AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = name, .from = halves[0], .beside = halves[1], .rows = e,
                                                .columns = 2 * e}));
    bool other = false;
    for (size_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", in, ends[i]);
        const ae_st_tensor *own = ae_convert_take(c, name), *of_model = ae_convert_look(c, ends[i]);
        other |= own && of_model && (own->bytes != of_model->bytes || memcmp(own->data, of_model->data, own->bytes));
    }
    if (other)
        ae_log_say(&c->options.log, AERIE_LOG_WARNING, "%s: the MTP block's own hc_head tensors are left out, because a file "
                   "has one set for the block and the model; drafts "
                   "may be accepted less often, but answers do not change", c->path);
    return AERIE_OK;
}

aerie_status ae_convert_begin_deepseek4(ae_convert *c)
{
    const char *scores = ae_convert_text(c, "scoring_func");
    uint32_t n_hash = 0;
    AE_TRY(ae_convert_u32(c, "num_hash_layers", 0, AE_MAX_LAYERS, &n_hash));
    for (uint32_t i = 0; i < n_hash; i++) { /* a bias that these layers have but do not use */
        char name[48];
        snprintf(name, sizeof name, "layers.%u.ffn.gate.bias", i);
        ae_convert_take(c, name);
    }
    if (scores && strcmp(scores, "sqrtsoftplus")) return fail_other(c, "scoring_func", "sqrtsoftplus");
    AE_TRY(ae_convert_rename_ahead(c, "mtp."));
    return part_rotations(c);
}

/* Writes how many positions become one compressed row in each layer, which config.json gives as numbers or as names. */
static aerie_status put_ratios(ae_convert_keys *k, const ae_convert *c)
{
    static const struct {
        const char *name;
        uint32_t n;
    } kinds[] = {{"sliding_attention", 0}, {"compressed_sparse_attention", 4}, {"heavily_compressed_attention", 128}};
    const json_t *numbers = ae_convert_value(c, "compress_ratios"), *names = ae_convert_value(c, "layer_types");
    const json_t *rates = ae_convert_value(c, "compress_rates");
    uint32_t ratios[AE_MAX_LAYERS] = {0};
    for (uint32_t i = 0; i < c->model.n_layers; i++) {
        const json_t *one = json_array_get(numbers ? numbers : names, i);
        const char *name = json_string_value(one);
        bool known = numbers && json_is_integer(one) && json_integer_value(one) >= 0 && json_integer_value(one) <= 128;
        if (known) ratios[i] = (uint32_t)json_integer_value(one);
        for (size_t j = 0; j < sizeof kinds / sizeof *kinds && name && !numbers; j++) {
            const json_t *rate = json_object_get(rates, kinds[j].name);
            if (strcmp(name, kinds[j].name)) continue;
            known = !rate || json_integer_value(rate) == (json_int_t)kinds[j].n;
            ratios[i] = kinds[j].n;
        }
        if (!known)
            return ae_fail(c->error, AERIE_ERROR_FORMAT,
                           "%s: neither 'compress_ratios' nor 'layer_types' says of layer %u what "
                           "files of architecture %s can have: 0, 4 or 128", c->config_path, i, c->arch->arch);
    }
    ae_convert_put_array(k, "attention.compress_ratios", AE_GGUF_U32, ratios, c->model.n_layers + c->model.n_ahead);
    return k->status;
}

/* Counts the layers at the beginning that choose experts by the token. */
static aerie_status count_hash(const ae_convert *c, uint32_t *n)
{
    const json_t *names = ae_convert_value(c, "mlp_layer_types");
    const char *name;
    *n = 0;
    if (!names) return ae_convert_need_u32(c, "num_hash_layers", 0, c->model.n_layers, n);
    while ((name = json_string_value(json_array_get(names, *n))) && strcmp(name, "hash_moe") == 0) ++*n;
    return AERIE_OK;
}

aerie_status ae_convert_keys_deepseek4(ae_convert_keys *k, const ae_convert *c)
{
    double limit = 0;
    float limits[AE_MAX_LAYERS];
    uint32_t n_hash, n_streams = 4;
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "swiglu_limit"), "swiglu_limit", 0, 1e9, &limit));
    const uint32_t n_all = c->model.n_layers + c->model.n_ahead;
    for (uint32_t i = 0; i < n_all && i < AE_MAX_LAYERS; i++) limits[i] = (float)limit;
    AE_TRY(count_hash(c, &n_hash));
    AE_TRY(ae_convert_u32(c, "hc_mult", 1, AE_MAX_STREAMS, &n_streams));
    ae_convert_put_u32(k, "attention.head_count_kv", 1);
    ae_convert_put_u32(k, "attention.key_length", c->model.head_dim);
    ae_convert_put_u32(k, "attention.value_length", c->model.head_dim);
    ae_convert_put_u32(k, "hash_layer_count", n_hash);
    ae_convert_put_u32(k, "expert_gating_func", AE_EXPERT_GATE_SQRT_SOFTPLUS);
    ae_convert_put_array(k, "swiglu_clamp_exp", AE_GGUF_F32, limits, n_all);
    ae_convert_put_array(k, "swiglu_clamp_shexp", AE_GGUF_F32, limits, n_all);
    ae_convert_put_u32(k, "embedding_length_out", c->model.n_embd * n_streams);
    return put_ratios(k, c);
}

/* Adds the weights of the streams' head, and skips biases that text does not use. */
aerie_status ae_convert_tensors_deepseek4(ae_convert *c, uint32_t layer)
{
    static const ae_convert_rule head[] = {{"hc_head_fn", "output_hc_fn.weight", AE_RULE_F32, true},
                                           {"hc_head_base", "output_hc_base.weight", AE_RULE_F32, true},
                                           {"hc_head_scale", "output_hc_scale.weight", AE_RULE_F32, true},
                                           /* names that transformers saves */
                                           {"hc_head.hc_fn", "output_hc_fn.weight", AE_RULE_F32, true},
                                           {"hc_head.hc_base", "output_hc_base.weight", AE_RULE_F32, true},
                                           {"hc_head.hc_scale", "output_hc_scale.weight", AE_RULE_F32, true}};
    char name[64];
    for (size_t i = 0; i < sizeof head / sizeof *head && !layer; i++) AE_TRY(ae_convert_apply(c, &head[i], "", ""));
    snprintf(name, sizeof name, "layers.%u.ffn.gate.bias_vl", layer);
    ae_convert_take(c, name);
    return layer < c->model.n_layers ? AERIE_OK : add_ahead(c, layer);
}

/* ---- RWKV 6 and 7 ----------------------------------------------------------------------------------------------- */

/* Sets values for an architecture without attention heads and without a limit of length. */
aerie_status ae_convert_begin_rwkv(ae_convert *c)
{
    json_t *to = values_of(c);
    if (json_object_set_new(to, "num_attention_heads", json_integer(1)) ||
        json_object_set_new(to, "num_key_value_heads", json_integer(1)) ||
        json_object_set_new(to, "max_position_embeddings", json_integer(1048576)))
        return ae_convert_no_memory(c, "the configuration");
    return AERIE_OK;
}

/* RWKV in the place of a transformer's attention (QRWKV, ARWKV); its heads have a size of their own. */
aerie_status ae_convert_begin_rwkv_hybrid(ae_convert *c)
{
    uint32_t version = 7;
    AE_TRY(ae_convert_u32(c, "wkv_version", 0, INT32_MAX, &version));
    if (strcmp(c->arch->arch, "arwkv7") == 0 && version != 7) return fail_other(c, "wkv_version", "7");
    if (json_object_set_new(values_of(c), "max_position_embeddings", json_integer(1048576)))
        return ae_convert_no_memory(c, "the configuration");
    return AERIE_OK;
}

static uint32_t rows_of(const ae_convert *c, const char *name, bool columns)
{
    const ae_st_tensor *t = ae_convert_look(c, name);
    if (!t || t->n_dims != 2 || t->shape[columns] > AE_MAX_FF) return 0;
    return (uint32_t)t->shape[columns];
}

/* Reads the widths from the tensors, since config.json may leave them to the model's code. */
aerie_status ae_convert_keys_rwkv(ae_convert_keys *k, const ae_convert *c)
{
    static const struct {
        const char *key, *part, *raw; /* of layer 1, because layer 0 has no values to mix with */
    } ranks[] = {{"attention.decay_lora_rank", "w_lora.lora.0.weight", "w1"}, {"attention.iclr_lora_rank",
                                                                               "a_lora.lora.0.weight", "a1"},
                 {"attention.value_residual_mix_lora_rank", "v_lora.lora.0.weight", "v1"},
                 {"attention.gate_lora_rank", "g_lora.lora.0.weight", "g1"}};
    const bool early = strncmp(c->arch->arch, "rwkv6", 5) == 0;
    uint32_t n_ff = rows_of(c, "layers.0.feed_forward.key.weight", false);
    if (!n_ff) n_ff = rows_of(c, "layers.0.mlp.gate_proj.weight", false);
    ae_convert_put_u32(k, "attention.head_count", 0);
    ae_convert_put_u32(k, "feed_forward_length", n_ff);
    if (c->arch->begin == ae_convert_begin_rwkv_hybrid) {
        ae_convert_put_u32(k, "token_shift_count", 1);
        if (early) ae_convert_put_u32(k, "wkv.head_size", c->model.n_embd / c->model.n_heads);
        if (early) ae_convert_put_u32(k, "attention.head_count_kv", c->model.n_kv_heads);
    }
    if (early) {
        ae_convert_put_u32(k, "time_mix_extra_dim", rows_of(c, "layers.0.attention.time_maa_w1", true) / 5);
        ae_convert_put_u32(k, "time_decay_extra_dim", rows_of(c, "layers.0.attention.time_decay_w1", true));
        return k->status;
    }
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        char name[64];
        const uint32_t layer = c->model.n_layers > 1;
        snprintf(name, sizeof name, "layers.%u.attention.%s", layer, ranks[i].part);
        uint32_t n = rows_of(c, name, false);
        snprintf(name, sizeof name, "layers.%u.attention.%s", layer, ranks[i].raw);
        if (!n) n = rows_of(c, name, true);
        ae_convert_put_u32(k, ranks[i].key, n);
    }
    return k->status;
}

static aerie_status take_vector(ae_convert *c, uint32_t layer, const char *part, const ae_st_tensor **t)
{
    char name[64];
    snprintf(name, sizeof name, "layers.%u.attention.%s", layer, part);
    *t = ae_convert_take(c, name);
    return !*t || (*t)->n == c->model.n_embd ? AERIE_OK : ae_convert_check_shape(c, *t, 0, c->model.n_embd, "by config.json");
}

/* Stacks the named vectors (how much of the previous row enters each input) into one tensor. names: [n] */
static aerie_status add_lerp(ae_convert *c, uint32_t layer, const char *const *names, uint32_t n)
{
    const ae_st_tensor **parts = ae_arena_alloc(&c->arena, n, sizeof *parts);
    uint32_t n_there = 0;
    char to[64];
    if (!parts) return ae_convert_no_memory(c, "the list of tensors");
    for (uint32_t i = 0; i < n; i++) {
        AE_TRY(take_vector(c, layer, names[i], &parts[n_there]));
        n_there += parts[n_there] != NULL;
    }
    if (!n_there) return AERIE_OK;
    if (n_there != n)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: layer %u has %u of the %u tensors %s to %s", c->path, layer, n_there,
                       n,
                       names[0], names[n - 1]);
    snprintf(to, sizeof to, "blk.%u.time_mix_lerp_fused.weight", layer);
    return ae_convert_add(c, &(ae_convert_item){.name = to, .parts = parts, .n_stack = n, .rows = 1, .columns = c->model.n_embd,
                                                .f32 = true, .fourth = true});
}

/* Adds the embedding's norm, which is in the first layer, and the output norm, which has another name in some folders. */
static aerie_status add_ends(ae_convert *c)
{
    static const ae_convert_rule ends[] = {{"layers.0.pre_norm", "token_embd_norm", AE_RULE_PLAIN, false},
                                           {"pre_ln", "token_embd_norm", AE_RULE_PLAIN, false},
                                           {"ln_out", "output_norm", AE_RULE_PLAIN, false}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) AE_TRY(ae_convert_apply(c, &ends[i], "", ""));
    return AERIE_OK;
}

/* Divides output matrices by powers of two: each group of layers halves its outputs once more than the group before. */
aerie_status ae_convert_tensors_rwkv6(ae_convert *c, uint32_t layer)
{
    static const char *const lerp[] = {"time_maa_w", "time_maa_k", "time_maa_v", "time_maa_r", "time_maa_g"};
    static const char *const halved[][2] = {{"attention.output", "time_mix_output"}, {"feed_forward.value",
                                                                                      "channel_mix_value"}};
    uint32_t every = 0;
    if (!layer) AE_TRY(add_ends(c));
    AE_TRY(ae_convert_u32(c, "rescale_every", 0, AE_MAX_LAYERS, &every));
    for (size_t i = 0; i < 2; i++) {
        char from[64], to[64];
        snprintf(from, sizeof from, "layers.%u.%s.weight", layer, halved[i][0]);
        snprintf(to, sizeof to, "blk.%u.%s.weight", layer, halved[i][1]);
        const ae_st_tensor *t = ae_convert_take(c, from);
        if (!t) continue;
        AE_TRY(ae_convert_check_shape(c, t, c->model.n_embd, t->n_dims == 2 ? t->shape[1] : 0, "by config.json"));
        float *factors = ae_arena_alloc(&c->arena, t->shape[0], sizeof *factors);
        if (!factors) return ae_convert_no_memory(c, "the factors of rows");
        for (uint64_t r = 0; r < t->shape[0]; r++) factors[r] = ldexpf(1, every ? -(int)(layer / every) : 0);
        AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .rows = t->shape[0], .columns = t->shape[1],
                                                    .factors = factors}));
    }
    return add_lerp(c, layer, lerp, 5);
}

/* The inputs of QRWKV's low-rank projections come in the order r, k, v, w, g; files have w, k, v, r, g. */
aerie_status ae_convert_tensors_rwkv6qwen2(ae_convert *c, uint32_t layer)
{
    static const char *const lerp[] = {"time_maa_w", "time_maa_k", "time_maa_v", "time_maa_r", "time_maa_g"};
    static const uint32_t from[] = {3, 1, 2, 0, 4};
    const uint64_t e = c->model.n_embd;
    char name[64], to[48];
    snprintf(name, sizeof name, "layers.%u.attention.time_maa_w1", layer);
    const ae_st_tensor *first = ae_convert_take(c, name);
    snprintf(name, sizeof name, "layers.%u.attention.time_maa_w2", layer);
    const ae_st_tensor *second = ae_convert_take(c, name);
    if (!first || !second) return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s or _w1 is missing", c->path, name);
    const uint64_t n = first->n_dims == 2 ? first->shape[1] / 5 : 0;
    AE_TRY(ae_convert_check_shape(c, first, e, 5 * n, "by config.json"));
    if (second->n_dims != 3 || second->shape[0] != 5 || second->shape[1] != n || second->shape[2] != e ||
        second->dtype >= AE_ST_DTYPE_COUNT)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s must be 5 matrices of %llu rows of %llu numbers", c->path,
                       second->name, (unsigned long long)n, (unsigned long long)e);
    uint32_t *order = ae_arena_alloc(&c->arena, 5 * n, sizeof *order);
    ae_st_tensor *views = ae_arena_alloc(&c->arena, 5, sizeof *views);
    const ae_st_tensor **parts = ae_arena_alloc(&c->arena, 5, sizeof *parts);
    if (!order || !views || !parts) return ae_convert_no_memory(c, "the order of rows");
    for (uint64_t r = 0; r < 5 * n; r++) order[r] = (uint32_t)(from[r / n] * n + r % n);
    for (uint32_t i = 0; i < 5; i++) {
        views[i] = *second;
        views[i].n = n * e;
        views[i].bytes = second->bytes / 5;
        views[i].data = second->data + from[i] * views[i].bytes;
        parts[i] = &views[i];
    }
    snprintf(to, sizeof to, "blk.%u.time_mix_w1.weight", layer);
    AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = to, .from = first, .rows = 5 * n, .columns = e, .row_step = 1,
                                                .step = 5 * n, .row_from = order, .f32 = true}));
    snprintf(to, sizeof to, "blk.%u.time_mix_w2.weight", layer);
    AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = to, .parts = parts, .n_stack = 5, .rows = e, .columns = n,
                                                .row_step = 1, .step = e, .f32 = true}));
    return add_lerp(c, layer, lerp, 5);
}

/* Adds tensors for mixing values to the first layer, where nothing uses them, because programs expect them: copies of those of
 * the learning rate. */
static aerie_status add_values(ae_convert *c, uint32_t layer)
{
    static const ae_convert_rule own[] = {
        {"v_lora.lora.0.weight", "time_mix_v1.weight", AE_RULE_F32, true},
        {"v_lora.lora.2.weight", "time_mix_v2.weight", AE_RULE_F32, true},
        {"v_lora.lora.2.bias", "time_mix_v0.weight", AE_RULE_VECTOR, true},
        {"v1", "time_mix_v1.weight", AE_RULE_TURNED, true}, {"v2", "time_mix_v2.weight", AE_RULE_TURNED, true},
        {"v0", "time_mix_v0.weight", AE_RULE_VECTOR, true}};
    char in[64], out[32];
    snprintf(in, sizeof in, "layers.%u.attention.", layer);
    snprintf(out, sizeof out, "blk.%u.", layer);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s%s", in, own[i].from);
        if (layer) AE_TRY(ae_convert_apply(c, &own[i], in, out));
        else ae_convert_take(c, name);
    }
    for (uint32_t i = 0; i < 3 && !layer; i++) {
        char from[48], to[48];
        snprintf(from, sizeof from, "blk.0.time_mix_a%u.weight", i);
        snprintf(to, sizeof to, "blk.0.time_mix_v%u.weight", i);
        for (size_t k = 0; k < c->n_items; k++) {
            if (strcmp(c->items[k].name, from)) continue;
            ae_convert_item copy = c->items[k];
            copy.name = to;
            AE_TRY(ae_convert_add(c, &copy));
            break;
        }
    }
    return AERIE_OK;
}

aerie_status ae_convert_tensors_rwkv7(ae_convert *c, uint32_t layer)
{
    static const char *const lerp[] = {"x_r", "x_w", "x_k", "x_v", "x_a", "x_g"};
    const ae_st_tensor *all;
    bool gated = true;
    char name[64];
    if (!layer) AE_TRY(add_ends(c));
    AE_TRY(add_values(c, layer));
    snprintf(name, sizeof name, "layers.%u.attention.x_x", layer);
    all = ae_convert_take(c, name);
    AE_TRY(ae_convert_bool(c, "wkv_has_gate", &gated, NULL));
    if (!all) return add_lerp(c, layer, lerp, gated ? 6 : 5);
    if (all->n != 6 * (uint64_t)c->model.n_embd) return ae_convert_check_shape(c, all, 6, c->model.n_embd, "by config.json");
    snprintf(name, sizeof name, "blk.%u.time_mix_lerp_fused.weight", layer);
    return ae_convert_add(c, &(ae_convert_item){.name = name, .from = all, .n_stack = 6, .rows = 1, .columns = c->model.n_embd,
                                                .f32 = true, .fourth = true});
}

/* ---- Hunyuan 4 -------------------------------------------------------------------------------------------------- */

static bool has_index(const ae_convert *c, uint32_t layer)
{
    char name[64];
    snprintf(name, sizeof name, "layers.%u.self_attn.indexer.wq_b.weight", layer);
    return ae_convert_look(c, name) != NULL;
}

/* Sets the default of first_k_dense_replace in the model's code. */
aerie_status ae_convert_begin_hy4(ae_convert *c)
{
    return ae_convert_set_missing(c, "first_k_dense_replace", json_integer(1));
}

aerie_status ae_convert_keys_hy4(ae_convert_keys *k, const ae_convert *c)
{
    static const char *const names[][2] = {{"index_n_heads", "attention.indexer.head_count"},
                                           {"index_head_dim", "attention.indexer.key_length"},
                                           {"index_topk", "attention.indexer.top_k"}};
    const uint32_t n = c->model.n_layers;
    uint8_t own[AE_MAX_LAYERS];
    float limits[AE_MAX_LAYERS];
    double limit = 0;
    uint32_t n_dense = 0, count = 0;
    bool any = false;
    for (uint32_t i = 0; i < n; i++) any |= own[i] = has_index(c, i); /* other layers use the choice of the last layer with an
                                                                       * index */
    for (size_t i = 0; i < 3 && any; i++) {
        AE_TRY(ae_convert_need_u32(c, names[i][0], 1, INT32_MAX, &count));
        ae_convert_put_u32(k, names[i][1], count);
    }
    if (any) ae_convert_put_array(k, "attention.indexer.types", AE_GGUF_BOOL, own, n);
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "swiglu_limit"), "swiglu_limit", 0, 1e9, &limit));
    for (uint32_t i = 0; i < n; i++) limits[i] = (float)limit;
    if (limit > 0) ae_convert_put_array(k, "swiglu_clamp_exp", AE_GGUF_F32, limits, n);
    AE_TRY(ae_convert_keys_mla(k, c));
    if (ae_convert_value(c, "mlp_layer_types")) return ae_convert_put_dense(k, c);
    AE_TRY(ae_convert_u32(c, "first_k_dense_replace", 0, AE_MAX_LAYERS, &n_dense));
    ae_convert_put_u32(k, "leading_dense_block_count", n_dense);
    return k->status;
}

aerie_status ae_convert_tensors_hy4(ae_convert *c, uint32_t layer)
{
    static const char *const parts[] = {"fn", "base", "scale"};
    for (size_t i = 0; i < 6 && !layer; i++) {
        char from[48], to[48];
        snprintf(from, sizeof from, "hc_head.%s%s", i < 3 ? "hc_head_" : "hc_", parts[i % 3]);
        snprintf(to, sizeof to, "output_hc_%s.weight", parts[i % 3]);
        AE_TRY(ae_convert_apply(c, &(ae_convert_rule){from, to, AE_RULE_F32, true}, "", ""));
    }
    return ae_convert_tensors_mla(c, layer);
}

/* ---- PLaMo 2 ---------------------------------------------------------------------------------------------------- */

aerie_status ae_convert_keys_plamo2(ae_convert_keys *k, const ae_convert *c)
{
    uint32_t n_kv[AE_MAX_LAYERS], n_heads, n_state, n_taps = 4, inner = 0;
    for (uint32_t i = 0; i < c->model.n_layers; i++) {
        char name[64];
        snprintf(name, sizeof name, "layers.%u.mixer.in_proj.weight", i);
        n_kv[i] = ae_convert_look(c, name) ? 0 : c->model.n_kv_heads;
        snprintf(name, sizeof name, "layers.%u.mixer.out_proj.weight", i);
        if (!inner) inner = rows_of(c, name, true);
    }
    AE_TRY(ae_convert_need_u32(c, "mamba_num_heads", 1, AE_MAX_HEADS, &n_heads));
    AE_TRY(ae_convert_need_u32(c, "mamba_d_state", 1, AE_MAX_EMBD, &n_state));
    AE_TRY(ae_convert_u32(c, "mamba_d_conv", 1, 64, &n_taps));
    ae_convert_put_array(k, "attention.head_count_kv", AE_GGUF_U32, n_kv, c->model.n_layers);
    ae_convert_put_u32(k, "attention.key_length", c->model.head_dim);
    ae_convert_put_u32(k, "attention.value_length", c->model.head_dim);
    ae_convert_put_u32(k, "ssm.conv_kernel", n_taps);
    ae_convert_put_u32(k, "ssm.state_size", n_state);
    ae_convert_put_u32(k, "ssm.time_step_rank", n_heads);
    ae_convert_put_u32(k, "ssm.inner_size", inner);
    ae_convert_put_u32(k, "ssm.group_count", 0);
    return k->status;
}

/* Adds to norm weights the number that the model's code adds, which differs between norms. */
aerie_status ae_convert_tensors_plamo2(ae_convert *c, uint32_t layer)
{
    static const struct {
        const char *from, *to;
        float plus;
    } norms[] = {{"pre_mixer_norm", "attn_norm.weight", 1}, {"post_mixer_norm", "post_attention_norm", 1.0f / 5},
                 {"pre_mlp_norm", "ffn_norm.weight", 1}, {"post_mlp_norm", "post_ffw_norm", 0.08944271909999159f}};
    char from[64], to[48];
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        snprintf(from, sizeof from, "layers.%u.%s.weight", layer, norms[i].from);
        snprintf(to, sizeof to, "blk.%u.%s", layer, norms[i].to);
        const ae_st_tensor *t = ae_convert_take(c, from);
        if (t) AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .columns = t->n, .plus = norms[i].plus}));
    }
    for (size_t i = 0; i < c->n_items && !layer; i++)
        if (strcmp(c->items[i].name, "output_norm.weight") == 0) c->items[i].plus = 1;
    snprintf(from, sizeof from, "layers.%u.mixer.A_log", layer);
    snprintf(to, sizeof to, "blk.%u.ssm_a", layer);
    const ae_st_tensor *t = ae_convert_take(c, from);
    if (!t) return AERIE_OK;
    return ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .columns = t->n, .change = AE_CONVERT_MINUS_EXP,
                                                .f32 = true});
}

/* ---- Talkie ----------------------------------------------------------------------------------------------------- */

/* Sets the epsilon of norms to the smallest difference of floats, because the model sets none. */
aerie_status ae_convert_begin_talkie(ae_convert *c)
{
    if (json_object_set_new(values_of(c), "rms_norm_eps", json_real(1.1920929e-07)))
        return ae_convert_no_memory(c, "the configuration");
    const uint32_t n_ff = rows_of(c, "layers.0.mlp.mlp_gate.weight", false);
    return ae_convert_set_missing(c, "intermediate_size", json_integer(n_ff));
}

/* Writes the factor of the logits, which is a tensor in the folder. */
aerie_status ae_convert_keys_talkie(ae_convert_keys *k, const ae_convert *c)
{
    const ae_st_tensor *t = ae_convert_look(c, "lm_head_gain.w_g");
    float factor;
    if (!t) return k->status;
    if (t->n != 1 || !ae_convert_floats(t, 0, &factor, 1))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s must be one number", c->path, t->name);
    ae_convert_put_f32(k, "logit_scale", (double)factor);
    return k->status;
}

/* Negates the second half of each head, because the model rotates in the opposite direction. */
aerie_status ae_convert_tensors_talkie(ae_convert *c, uint32_t layer)
{
    static const char *const parts[][2] = {{"attn_query", "attn_q"}, {"attn_key", "attn_k"}};
    static const ae_convert_rule head = {"lm_head", "output.weight", AE_RULE_PLAIN, true};
    const uint32_t d = c->model.head_dim;
    if (!layer) AE_TRY(ae_convert_apply(c, &head, "", ""));
    if (!layer) ae_convert_take(c, "lm_head_gain.w_g");
    for (size_t i = 0; i < 2; i++) {
        char from[64], to[48];
        snprintf(from, sizeof from, "layers.%u.attn.%s.weight", layer, parts[i][0]);
        snprintf(to, sizeof to, "blk.%u.%s.weight", layer, parts[i][1]);
        const ae_st_tensor *t = ae_convert_take(c, from);
        if (!t) continue;
        AE_TRY(ae_convert_check_shape(c, t, t->n_dims == 2 ? t->shape[0] / d * d : 0, c->model.n_embd, "by config.json"));
        float *signs = ae_arena_alloc(&c->arena, t->shape[0], sizeof *signs);
        if (!signs) return ae_convert_no_memory(c, "the signs of rows");
        for (uint64_t r = 0; r < t->shape[0]; r++) signs[r] = r % d < d / 2 ? 1.0f : -1.0f;
        AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .rows = t->shape[0], .columns = t->shape[1],
                                                    .factors = signs}));
    }
    return AERIE_OK;
}

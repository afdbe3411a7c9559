/* kinds.c - models whose layers are of a kind of their own: Gemma 3n, sparse attention by an index, Mamba-1; and the text
 * halves of models that see (arch.h). Keys that depend on several values, and tensors that are put together. Owns nothing.
 * Sources: the models' own code in transformers; names and keys of GGUF files as llama.cpp reads them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/model/arch.h"

/* ---- Gemma 3n --------------------------------------------------------------------------------------------------- */

/* The number that a share p of normally distributed ones does not exceed. */
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

/* The share of gates that a layer drops: a number for all layers, or one for each. */
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

/* Which layers choose by their own index: a list, a text of F and S, or all but those that a period leaves out. */
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

/* ---- Mamba-1 ---------------------------------------------------------------------------------------------------- */

/* inner: width of the mixer, of which the name of a factor and of the rank of time steps are given. */
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

/* ---- Models that see -------------------------------------------------------------------------------------------- */

/* The parts of the rotation, and after how many layers something of a picture joins the stream. */
aerie_status ae_convert_keys_seeing(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *given = json_object_get(ae_convert_value(c, "rope_parameters"), "mrope_section");
    const json_t *vision = json_object_get(c->config, "vision_config");
    const size_t n_deep = json_array_size(json_object_get(vision, "deepstack_visual_indexes"));
    int32_t sections[4] = {0};
    if (!given) given = json_object_get(ae_convert_value(c, "rope_scaling"), "mrope_section");
    for (size_t i = 0; i < 3; i++) sections[i] = (int32_t)json_integer_value(json_array_get(given, i));
    if (json_array_size(given) != 3)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'mrope_section' has %zu numbers; 3 are needed", c->config_path,
                       json_array_size(given));
    ae_convert_put_array(k, "rope.dimension_sections", AE_GGUF_I32, sections, 4);
    if (strncmp(c->arch->arch, "qwen3vl", 7) == 0) ae_convert_put_u32(k, "n_deepstack_layers", (uint32_t)n_deep);
    return k->status;
}

/* metadata_arch.c - keys of single architectures that depend on several values of config.json, or that have a value for each
 * layer. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/math/fmath.h"
#include "convert/archs/arch.h"

aerie_status ae_convert_keys_mistral3(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *scaling = ae_convert_value(c, "rope_parameters");
    double beta = 0;
    AE_TRY(ae_convert_real(c, json_object_get(scaling, "llama_4_scaling_beta"), "llama_4_scaling_beta", 0, 1e3, &beta));
    if (beta > 0) ae_convert_put_f32(k, "attention.temperature_scale", beta);
    if (strcmp(c->head.rope_type, "yarn")) return k->status;
    if (c->head.rope_log_mul > 0) ae_convert_put_f32(k, "rope.scaling.yarn_log_multiplier", c->head.rope_log_mul);
    ae_convert_put_f32(k, "rope.scaling.yarn_beta_fast", c->head.rope_beta_fast);
    ae_convert_put_f32(k, "rope.scaling.yarn_beta_slow", c->head.rope_beta_slow);
    return k->status;
}

/* Uses the experts' size as that of dense blocks, because the config has no other key. */
aerie_status ae_convert_keys_minimax(ae_convert_keys *k, const ae_convert *c)
{
    uint32_t n_ff = 0;
    AE_TRY(ae_convert_need_u32(c, "intermediate_size", 1, AE_MAX_FF, &n_ff));
    if (!ae_convert_value(c, "moe_intermediate_size")) ae_convert_put_u32(k, "expert_feed_forward_length", n_ff);
    return k->status;
}

aerie_status ae_convert_keys_renormed(ae_convert_keys *k, const ae_convert *c)
{
    (void)c;
    ae_convert_put_bool(k, "expert_weights_norm", true);
    return k->status;
}

aerie_status ae_convert_keys_shared(ae_convert_keys *k, const ae_convert *c)
{
    uint32_t n_shared = 0, n_ff = 0;
    AE_TRY(ae_convert_u32(c, "num_shared_experts", 0, AE_MAX_EXPERTS, &n_shared));
    AE_TRY(ae_convert_u32(c, "moe_intermediate_size", 1, AE_MAX_FF / (n_shared + 1), &n_ff));
    if (n_shared) ae_convert_put_u32(k, "expert_shared_feed_forward_length", n_shared * n_ff);
    return k->status;
}

/* Writes the shared experts as one expert with their total size. */
aerie_status ae_convert_keys_ernie(ae_convert_keys *k, const ae_convert *c)
{
    uint32_t n_shared = 0, n_ff = 0;
    AE_TRY(ae_convert_u32(c, "moe_num_shared_experts", 0, AE_MAX_EXPERTS, &n_shared));
    AE_TRY(ae_convert_u32(c, "moe_intermediate_size", 1, AE_MAX_FF / (n_shared + 1), &n_ff));
    if (n_shared) ae_convert_put_u32(k, "expert_shared_feed_forward_length", n_shared * n_ff);
    return k->status;
}

/* Returns a number; of a list with a value for each layer, the first one. */
static uint32_t first_of(const json_t *value)
{
    const json_int_t n = json_integer_value(json_is_array(value) ? json_array_get(value, 0) : value);
    return n > 0 && n <= AE_MAX_FF ? (uint32_t)n : 0;
}

aerie_status ae_convert_keys_hunyuan(ae_convert_keys *k, const ae_convert *c)
{
    uint32_t n_ff = 0;
    AE_TRY(ae_convert_need_u32(c, "intermediate_size", 1, AE_MAX_FF, &n_ff));
    uint32_t n_expert = first_of(ae_convert_value(c, "moe_intermediate_size")),
             n_shared = first_of(ae_convert_value(c, "num_shared_expert"));
    if (!n_expert) n_expert = n_ff;
    ae_convert_put_u32(k, "expert_used_count", first_of(ae_convert_value(c, "moe_topk")));
    ae_convert_put_u32(k, "expert_feed_forward_length", n_expert);
    ae_convert_put_u32(k, "expert_shared_feed_forward_length", (n_shared ? n_shared : 1) * n_ff);
    return k->status;
}

/* Writes the number of KV heads of each layer, 0 for layers without attention. */
aerie_status ae_convert_keys_lfm2(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *types = ae_convert_value(c, "layer_types"), *attends = ae_convert_value(c, "full_attn_idxs"), *at;
    uint32_t n_kv[AE_MAX_LAYERS] = {0};
    size_t i;
    for (uint32_t l = 0; l < c->model.n_layers; l++) {
        const char *type = json_string_value(json_array_get(types, l));
        if (type && strcmp(type, "full_attention") == 0) n_kv[l] = c->model.n_kv_heads;
    }
    if (!types)
        json_array_foreach((json_t *)attends, i, at) {
            const json_int_t l = json_integer_value(at);
            if (l >= 0 && l < (json_int_t)c->model.n_layers) n_kv[l] = c->model.n_kv_heads;
        }
    ae_convert_put_array(k, "attention.head_count_kv", AE_GGUF_U32, n_kv, c->model.n_layers);
    ae_convert_put_u32(k, "attention.key_length", c->model.head_dim);
    ae_convert_put_u32(k, "attention.value_length", c->model.head_dim);
    return k->status;
}

/* Writes the key of the window, which other programs require although none applies it. */
aerie_status ae_convert_keys_phi3(ae_convert_keys *k, const ae_convert *c)
{
    uint32_t window = 0;
    AE_TRY(ae_convert_u32(c, "sliding_window", 0, INT32_MAX, &window));
    ae_convert_put_u32(k, "attention.sliding_window", window);
    return k->status;
}

/* Writes the scale of attention scores, with a warning, if it differs from the one that other programs assume: by the size of a
 * head, in the largest models by the width of all heads. */
aerie_status ae_convert_keys_gemma(ae_convert_keys *k, const ae_convert *c)
{
    const ae_convert_model *m = &c->model;
    const bool widest = m->n_layers == (strcmp(m->arch, "gemma2") ? 62 : 46);
    double scalar = m->head_dim;
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "query_pre_attn_scalar"), "query_pre_attn_scalar", 1e-3, 1e6, &scalar));
    if (fabs(scalar - (widest ? m->n_embd / m->n_heads : m->head_dim)) < 1e-6) return k->status;
    ae_log_say(&c->options.log, AERIE_LOG_WARNING,
               "%s: 'query_pre_attn_scalar' is %g; other programs assume %u for such a model", c->config_path, scalar,
               widest ? m->n_embd / m->n_heads : m->head_dim);
    ae_convert_put_f32(k, "attention.scale", 1 / sqrt(scalar));
    return k->status;
}

/* ---- Apertus ----------------------------------------------------------------------------------------------- */

static const struct {
    const char *part, *key;
    float usual; /* in checkpoints without the tensor */
    bool needed;
} xielu[] = {{"alpha_p", "xielu.alpha_p", 0, true}, {"alpha_n", "xielu.alpha_n", 0, true},
             {"beta", "xielu.beta", 0.5f, false}, {"eps", "xielu.eps", -1e-6f, false}};

static void name_xielu(size_t i, uint32_t layer, char out[64])
{
    snprintf(out, 64, "layers.%u.mlp.act_fn.%s", layer, xielu[i].part);
}

aerie_status ae_convert_tensors_apertus(ae_convert *c, uint32_t layer)
{
    char name[64];
    for (size_t i = 0; i < sizeof xielu / sizeof *xielu; i++) {
        float x;
        name_xielu(i, layer, name);
        const ae_st_tensor *t = ae_convert_take(c, name);
        if (!t && !xielu[i].needed) continue;
        if (!t) return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor model.%s is missing", c->path, name);
        if (t->n != 1 || !ae_convert_floats(t, 0, &x, 1) || !isfinite(x))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s must be one finite number", c->path, t->name);
    }
    return AERIE_OK;
}

aerie_status ae_convert_keys_apertus(ae_convert_keys *k, const ae_convert *c)
{
    const char *act = ae_convert_text(c, "hidden_act");
    char name[64];
    if (act && strcmp(act, "xielu"))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'hidden_act' is \"%.40s\"; Apertus has xielu", c->config_path,
                       act);
    for (size_t i = 0; i < sizeof xielu / sizeof *xielu; i++) {
        float values[AE_MAX_LAYERS];
        for (uint32_t layer = 0; layer < c->model.n_layers; layer++) {
            name_xielu(i, layer, name);
            const ae_st_tensor *t = ae_convert_look(c, name);
            values[layer] = xielu[i].usual;
            if (t && !ae_convert_floats(t, 0, &values[layer], 1)) return AERIE_ERROR_INTERNAL;
        }
        AE_TRY(ae_gguf_writer_array(k->w, xielu[i].key, AE_GGUF_F32, values, c->model.n_layers, c->error));
    }
    return k->status;
}

/* ---- Models that see -------------------------------------------------------------------------------------------- */

/* Reads how many pairs rotate by each of three components of a position. */
static aerie_status read_sections(const ae_convert *c, int32_t sections[4])
{
    const json_t *given = json_object_get(ae_convert_value(c, "rope_parameters"), "mrope_section");
    if (!given) given = json_object_get(ae_convert_value(c, "rope_scaling"), "mrope_section");
    if (!given) given = ae_convert_value(c, "mrope_section");
    for (size_t i = 0; i < 3; i++) sections[i] = (int32_t)json_integer_value(json_array_get(given, i));
    if (json_array_size(given) == 3) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'mrope_section' has %zu numbers; 3 are needed", c->config_path,
                   json_array_size(given));
}

/* Writes the sections of the rotation, and how many layers add features of an image to the stream. */
aerie_status ae_convert_keys_seeing(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *vision = json_object_get(c->config, "vision_config");
    const size_t n_deep = json_array_size(json_object_get(vision, "deepstack_visual_indexes"));
    int32_t sections[4] = {0};
    AE_TRY(read_sections(c, sections));
    ae_convert_put_array(k, "rope.dimension_sections", AE_GGUF_I32, sections, 4);
    if (strncmp(c->arch->arch, "qwen3vl", 7) == 0) ae_convert_put_u32(k, "n_deepstack_layers", (uint32_t)n_deep);
    return k->status;
}

aerie_status ae_convert_put_whole_sections(ae_convert_keys *k, const ae_convert *c)
{
    int32_t sections[4] = {0};
    int64_t sum = 0;
    AE_TRY(read_sections(c, sections));
    for (size_t i = 0; i < 3; i++) sum += sections[i];
    if (2 * sum != c->head.n_rot)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'mrope_section' is [%d, %d, %d]; its sum must be half of "
                       "'qk_rope_head_dim', which is %u", c->config_path, sections[0], sections[1], sections[2],
                       c->head.n_rot);
    ae_convert_put_array(k, "rope.dimension_sections", AE_GGUF_I32, sections, 4);
    return k->status;
}

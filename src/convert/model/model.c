/* model.c - converts models of Hugging Face folders by the table of archs.c (arch.h). Writes the tensors; metadata.c writes the
 * keys, vocab.c the vocabulary. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/archs/arch.h"
#include "quant/types.h"

/* ---- Detecting ---------------------------------------------------------------------------------------- */

static const ae_convert_arch *find_arch(const char *class)
{
    const size_t n = strlen(class);
    const ae_convert_arch *arch;
    for (size_t i = 0; (arch = ae_convert_arch_at(i)); i++) {
        for (const char *at = arch->classes; *at;) {
            const size_t n_word = strcspn(at, " ");
            if (n_word == n && memcmp(at, class, n) == 0) return arch;
            at += n_word;
            at += *at == ' ';
        }
    }
    return NULL;
}

/* Returns the class of the text model if the folder's class combines it with a vision encoder; the folder's class if that is
 * known itself. */
static const char *text_class(const ae_convert *c, const char *class, const json_t *text)
{
    static const char *const joined[] = {"Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration",
                                         "InternVLChatModel", "InternVLForConditionalGeneration",
                                         "InternS1ForConditionalGeneration", "Lfm2VlForConditionalGeneration",
                                         "LlavaForConditionalGeneration", "LightOnOCRForConditionalGeneration",
                                         "KimiVLForConditionalGeneration", "KimiK25ForConditionalGeneration"};
    static const struct {
        const char *kind, *class;
    } kinds[] = {{"llama", "LlamaForCausalLM"}, {"mistral", "MistralForCausalLM"}, {"ministral3", "Ministral3ForCausalLM"},
                 {"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"}, {"qwen3_moe", "Qwen3MoeForCausalLM"},
                 {"gpt_oss", "GptOssForCausalLM"}, {"lfm2", "Lfm2ForCausalLM"}, {"lfm2_moe", "Lfm2MoeForCausalLM"},
                 {"deepseek_v3", "DeepseekV3ForCausalLM"}, {"kimi_k2", "DeepseekV3ForCausalLM"}};
    const char *kind = json_string_value(json_object_get(text, "model_type"));
    bool is_joined = false;
    for (size_t i = 0; i < sizeof joined / sizeof *joined; i++) is_joined |= strcmp(class, joined[i]) == 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && is_joined && kind && c->config; i++)
        if (strcmp(kind, kinds[i].kind) == 0) return kinds[i].class;
    return class;
}

static aerie_status fail_unknown(ae_convert *c, const char *class)
{
    ae_buf known = {0};
    const ae_convert_arch *arch;
    for (size_t i = 0; (arch = ae_convert_arch_at(i)); i++) ae_buf_addf(&known, "%s%s", i ? " " : "", arch->classes);
    ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: models of class \"%.60s\" cannot be converted; known are %s",
            c->config_path, class, known.data ? known.data : "");
    ae_buf_free(&known);
    return AERIE_ERROR_UNSUPPORTED;
}

/* Returns whether this is a whole model, with an embedding and layers. A head, whose config also names the target's class, has
 * a layer that reads features. */
static bool is_model(const ae_convert *c)
{
    const bool embeds = ae_convert_look(c, "embed_tokens.weight") || ae_convert_look(c, "embeddings.weight");
    const bool drafts = ae_convert_look(c, "fc.weight") || ae_convert_look(c, "midlayer.hidden_norm.weight") ||
                        ae_convert_look(c, "layers.0.hidden_norm.weight") ||
                        ae_convert_look(c, "midlayer.input_layernorm.weight");
    size_t n_layers = 0;
    for (size_t i = 0; i < c->n_entries; i++) {
        const char *name = c->entries[i].name;
        n_layers += strncmp(name, "layers.0.", 9) == 0 || strncmp(name, "encoder.block.0.", 16) == 0 ||
                    strncmp(name, "L_module.layers.0.", 18) == 0;
    }
    return embeds && !drafts && n_layers;
}

/* Returns the row of the class for models with experts, which are another architecture. */
static const ae_convert_arch *with_experts(const ae_convert *c)
{
    bool any = false;
    for (uint32_t i = 0; i < c->model.n_layers; i++) any |= ae_convert_layer_kind(c, i) == 'E';
    return any ? c->arch + 1 : c->arch; /* its row is the next one */
}

static aerie_status read_sizes(ae_convert *c)
{
    ae_convert_model *m = &c->model;
    ae_convert_head *h = &c->head;
    const ae_st_tensor *embedding = ae_convert_look(c, "embed_tokens.weight");
    if (!embedding) embedding = ae_convert_look(c, "embeddings.weight");
    const size_t n_kinds = json_array_size(ae_convert_value(c, "layers_block_type"));
    if (n_kinds && n_kinds <= AE_MAX_LAYERS) m->n_layers = (uint32_t)n_kinds;
    else AE_TRY(ae_convert_need_u32(c, "num_hidden_layers", 1, AE_MAX_LAYERS, &m->n_layers));
    if (strcmp(c->arch->arch, "nemotron_h") == 0) c->arch = with_experts(c);
    m->arch = c->arch->arch;
    AE_TRY(ae_convert_need_u32(c, "hidden_size", 1, AE_MAX_EMBD, &m->n_embd));
    AE_TRY(ae_convert_need_u32(c, "num_attention_heads", 1, AE_MAX_HEADS, &m->n_heads));
    m->n_kv_heads = m->n_heads;
    AE_TRY(ae_convert_u32(c, "num_key_value_heads", 1, AE_MAX_HEADS, &m->n_kv_heads));
    AE_TRY(ae_convert_need_u32(c, "max_position_embeddings", 1, INT32_MAX, &m->n_ctx));
    m->head_dim = m->n_embd / m->n_heads;
    AE_TRY(ae_convert_u32(c, "head_dim", 2, AE_MAX_HEAD_DIM, &m->head_dim));
    for (size_t i = 0; i < 4 && (c->arch->flags & AE_ARCH_EXPERTS) && !m->n_experts; i++)
        AE_TRY(ae_convert_u32(c, ae_convert_expert_keys[0].from[i], 0, AE_MAX_EXPERTS, &m->n_experts));
    if (embedding->n_dims != 2 || embedding->shape[0] < 1 || embedding->shape[0] > INT32_MAX / 4)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s must have two dimensions", c->path, embedding->name);
    m->n_vocab = (uint32_t)embedding->shape[0];
    static const char *const groups[] = {"mamba_n_groups", "n_groups"};
    for (size_t i = 0; i < 2; i++) AE_TRY(ae_convert_u32(c, groups[i], 1, AE_MAX_HEADS, &m->n_groups));
    h->head_dim = m->head_dim;
    /* in latent attention only this part is rotated */
    AE_TRY(ae_convert_u32(c, "qk_rope_head_dim", c->arch->flags & AE_ARCH_NO_ROPE ? 0 : 2, AE_MAX_HEAD_DIM, &h->head_dim));
    h->n_ctx = m->n_ctx;
    ae_convert_count_ahead(c);
    if (c->arch->flags & AE_ARCH_NO_ROPE) return AERIE_OK;
    AE_TRY(ae_convert_head_rope(c));
    /* the given share is that of another part of a head */
    if (strcmp(m->arch, "mistral4") == 0 || strcmp(m->arch, "bailingmoe3") == 0 || strcmp(m->arch, "hy_v4") == 0)
        h->n_rot = h->head_dim;
    if (strncmp(m->arch, "minimax-", 8)) return AERIE_OK;
    AE_TRY(ae_convert_u32(c, "rotary_dim", 2, m->head_dim, &h->n_rot));
    if (h->n_rot % 2 == 0) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'rotary_dim' is %u, but must be even", c->config_path, h->n_rot);
}

/* Names of transformers' functions. The erf form of GELU is close to the tanh form, but not equal; encoders do the same. */
static const struct {
    const char *names;
    ae_convert_activation activation;
} activations[] = {
    {" silu swish swiglu ", AE_CONVERT_SILU},
    {" gelu_pytorch_tanh gelu_new gelu_fast gelu_accurate gelu ", AE_CONVERT_GELU},
    {" relu2 relu_squared sqrelu ", AE_CONVERT_RELU2},
    {" silu swigluoai swiglu_oai ", AE_CONVERT_OAI},
    {" situ ", AE_CONVERT_SITU},
};

static aerie_status check_activation(const ae_convert *c, const char *key, ae_convert_activation wanted)
{
    static const char *const runs[] = {"silu", "gelu_pytorch_tanh", "relu2", "swigluoai", "situ"};
    const json_t *value = ae_convert_value(c, key);
    const char *name = json_string_value(value);
    char word[48];
    if (!value) return AERIE_OK;
    snprintf(word, sizeof word, " %.40s ", name && !strchr(name, ' ') ? name : "?");
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (activations[i].activation == wanted && strstr(activations[i].names, word)) {
            if (strcmp(word, " gelu ") == 0)
                ae_log_say(&c->options.log, AERIE_LOG_WARNING, "%s: '%s' is gelu by erf; files of architecture %s run with the "
                           "one by tanh, which is nearly the same", c->config_path, key, c->arch->arch);
            return AERIE_OK;
        }
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                   "%s: '%s' is \"%.40s\", but GGUF files of architecture %s run with %s, so the file would be a different "
                   "model",
                   c->config_path, key, name ? name : "no text", c->arch->arch, runs[wanted]);
}

static aerie_status check_activations(const ae_convert *c)
{
    static const char *const keys[] = {"hidden_act", "hidden_activation", "mlp_hidden_act", "ffn_hidden_act", "moe_hidden_act",
                                       "activation_function", "activation"};
    if (c->arch->activation == AE_CONVERT_NAMED) return AERIE_OK;
    if (c->arch->activation_key) return check_activation(c, c->arch->activation_key, c->arch->activation);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) AE_TRY(check_activation(c, keys[i], c->arch->activation));
    return check_activation(c, "mamba_hidden_act", AE_CONVERT_SILU);
}

/* Reads the width of feed-forward blocks from a matrix: LFM2's code may change that of the configuration
 * (block_auto_adjust_ff_dim), and other models have none there. */
static aerie_status settle_width(const ae_convert *c)
{
    json_t *to = json_is_object(c->layer) ? c->layer : c->config;
    const bool adjusts = strcmp(c->arch->arch, "lfm2") == 0;
    uint32_t n_embd = 0;
    char name[64];
    if (!c->arch->width_from || (!adjusts && ae_convert_value(c, "intermediate_size"))) return AERIE_OK;
    snprintf(name, sizeof name, "layers.0.%s", c->arch->width_from);
    const ae_st_tensor *t = ae_convert_look(c, name);
    if (!t || t->n_dims != 2) return AERIE_OK;
    AE_TRY(ae_convert_u32(c, "hidden_size", 1, AE_MAX_EMBD, &n_embd));
    const uint64_t width = t->shape[t->shape[0] == n_embd ? 1 : 0];
    if (width > INT32_MAX) return AERIE_OK;
    if (json_object_set_new(to, "intermediate_size", json_integer((json_int_t)width)) == 0) return AERIE_OK;
    return ae_convert_no_memory(c, "the configuration");
}

/* Returns a value by its name, which may be "outer.inner". */
static json_t *value_at(const json_t *json, const char *name)
{
    char outer[64];
    const char *dot = strchr(name, '.');
    if (!dot) return json_object_get(json, name);
    snprintf(outer, sizeof outer, "%.*s", (int)(dot - name), name);
    return json_object_get(json_object_get(json, outer), dot + 1);
}

/* Copies values of config.json to the names that other models use. */
static aerie_status apply_aliases(const ae_convert *c)
{
    json_t *to = json_is_object(c->layer) ? c->layer : c->config;
    for (const char *at = c->arch->aliases; at && *at;) {
        char old[64], name[64];
        size_t n = strcspn(at, "=");
        snprintf(old, sizeof old, "%.*s", (int)n, at);
        at += n + 1;
        n = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        at += n + (at[n] == ' ');
        json_t *value = value_at(to, old);
        if (!value) value = value_at(c->config, old);
        if (value && !json_is_null(value) && json_object_set(to, name, value))
            return ae_convert_no_memory(c, "the configuration");
    }
    return AERIE_OK;
}

/* Refuses options of the model that GGUF files of the architecture cannot express. */
static aerie_status check_fixed(const ae_convert *c)
{
    json_t *fixed = c->arch->fixed ? json_loads(c->arch->fixed, 0, NULL) : NULL, *meant;
    const char *key;
    aerie_status status = AERIE_OK;
    if (!c->arch->fixed) return AERIE_OK;
    if (!fixed) return ae_convert_no_memory(c, "the configuration");
    json_object_foreach(fixed, key, meant)
        if (status == AERIE_OK) status = ae_convert_check_fixed(c, key, meant, c->arch->arch);
    json_decref(fixed);
    return status;
}

static aerie_status model_detect(ae_convert *c, bool *mine)
{
    static const ae_convert_rename renames[] = {
        {"language_model.", ""}, {"model.language_model.", ""}, {"model.text_model.", ""}, {"model.", ""}, {"backbone.", ""},
        {"gpt_neox.", ""}, {"transformer.", ""}, {"h.", "layers."}, {"shared.", "embed_tokens."}, {"wte.", "embed_tokens."},
        {"ln_f.", "norm."}, {"ff_out.", "lm_head."}, {"word_embeddings.", "embed_tokens."}, {"embed_in.", "embed_tokens."},
        {"embed_out.", "lm_head."}, {"tok_embeddings.", "embed_tokens."}, {"embedding.word_embeddings.", "embed_tokens."},
        {"embedding.", "embed_tokens."}, {"output_layer.", "lm_head."}, {"output.weight", "lm_head.weight"},
        {"encoder.final_layernorm.", "norm."}, {"embed.", "embed_tokens."}, {"head.weight", "lm_head.weight"},
        {"encoder.embeddings.", "embeddings."}, {"encoder.layers.", "layers."}, {"encoder.final_norm.", "final_norm."},
        {"embeddings.tok_embeddings.", "embed_tokens."}, {"rwkv.", ""}, {"blocks.", "layers."}, {"layers.layers.", "layers."},
        {"token_embeddings.", "embed_tokens."}, {"in_out_embed.", "embed_tokens."}, {"decoder_layer.", "layers."},
        {"rms_norm.", "norm."}};
    AE_TRY(ae_convert_read_names(c, renames, sizeof renames / sizeof *renames));
    const json_t *classes = json_object_get(c->config, "architectures");
    const char *class = json_string_value(json_is_array(classes) ? json_array_get(classes, 0) : classes);
    bool decides = false, answers = false; /* by a joint head; by letters */
    *mine = (class || c->config) && is_model(c);
    if (*mine) AE_TRY(ae_convert_has_decision(c, &decides));
    if (*mine && class && strcmp(class, "Qwen3_5ForConditionalGeneration") == 0) AE_TRY(ae_convert_is_openjev(c, &answers));
    if (answers) class = "OpenJevModel";
    if (decides) class = "ClefModel";
    if (c->decision_config) class = "ModernBertDecisionModel";
    /* mamba_ssm names none */
    const json_t *ssm = json_object_get(c->config, "ssm_cfg");
    const char *mixer = json_string_value(json_object_get(ssm, "layer"));
    if (!class && ssm) class = mixer && strcmp(mixer, "Mamba2") == 0 ? "Mamba2ForCausalLM" : "MambaLMHeadModel";
    if (*mine && !class)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'architectures' names no class, such as [\"LlamaForCausalLM\"]: the "
                       "model's README or the one that it was made from says which", c->config_path);
    if (!*mine) return AERIE_OK;
    if (c->options.target)
        return ae_fail(c->error, AERIE_ERROR_ARGUMENT, "%s: this is a whole model, which has no --target", c->path);
    c->layer = json_object_get(c->config, "text_config");
    if (!c->layer) c->layer = json_object_get(c->config, "llm_config");
    if (!c->layer) c->layer = json_object_get(c->config, "language_config");
    if (!json_is_object(c->layer)) c->layer = NULL;
    class = text_class(c, class, c->layer);
    if (strcmp(class, "Gemma3TextModel") == 0 && json_is_true(ae_convert_value(c, "use_bidirectional_attention")))
        class = "EmbeddingGemmaModel";
    c->arch = find_arch(class);
    if (!c->arch) return fail_unknown(c, class);
    const char *text = json_string_value(json_object_get(json_object_get(c->config, "text_config"), "model_type"));
    if (text && strcmp(text, "mistral4") == 0 && strcmp(c->arch->arch, "mistral3") == 0)
        c->arch = find_arch("Mistral4ForCausalLM");
    AE_TRY(ae_convert_read_scales(c));
    c->model.class = class;
    if (c->arch->defaults) {
        json_t *defaults = json_loads(c->arch->defaults, 0, NULL);
        const bool ok = defaults && json_object_update_missing(c->config, defaults) == 0;
        json_decref(defaults);
        if (!ok) return ae_convert_no_memory(c, "the configuration");
    }
    AE_TRY(apply_aliases(c));
    AE_TRY(settle_width(c));
    AE_TRY(check_fixed(c));
    if (c->arch->parts) AE_TRY(ae_convert_rename_parts(c, c->arch->parts));
    if (c->arch->begin) AE_TRY(c->arch->begin(c));
    AE_TRY(read_sizes(c));
    return check_activations(c);
}

/* ---- Tensors ------------------------------------------------------------------------------------------ */

static bool is_norm(const char *name)
{
    const char *at = strstr(name, "norm");
    return at && !strstr(name, "ssm_norm") && strstr(at, ".weight");
}

static aerie_status fail_shape(const ae_convert *c, const ae_st_tensor *t, const char *what)
{
    char shape[128];
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; %s is needed", c->path, t->name,
                   ae_convert_shape(t, shape), what);
}

static aerie_status check_type(const ae_convert *c, const ae_st_tensor *t)
{
    if (t->dtype == AE_ST_F32 || t->dtype == AE_ST_F16 || t->dtype == AE_ST_BF16 || t->dtype == AE_ST_F64) return AERIE_OK;
    if (t->dtype >= AE_ST_DTYPE_COUNT) return AERIE_OK; /* codes and scales, or parts (scaled_weights.c, ranks.c) */
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s has type %s, but must be F32, F16, BF16 or F64, or FP8, "
                   "MXFP4 or NVFP4 with scales; other quantized checkpoints are not supported", c->path, t->name,
                   ae_st_dtype_name(t->dtype));
}

/* Splits a tensor into gate and up with `rows` rows each: gate first, or alternating. */
static aerie_status add_pair(ae_convert *c, const ae_convert_item *both, const char *to, uint64_t up_from)
{
    static const char *const parts[] = {"gate", "up"};
    for (size_t i = 0; i < 2; i++) {
        char name[96];
        ae_convert_item item = *both;
        const char *at = strstr(to, "%s");
        snprintf(name, sizeof name, "%.*s%s%s", (int)(at - to), to, parts[i], at + 2);
        item.name = name;
        item.first = i * up_from;
        AE_TRY(ae_convert_add(c, &item));
    }
    return AERIE_OK;
}

/* Returns whether a matrix that is published transposed has been saved in the usual order. If its shape does not show that, the
 * block's last matrix does. */
static bool is_upright(const ae_convert *c, const ae_convert_rule *r, const ae_st_tensor *t, const char *to)
{
    const uint64_t *s = t->shape, e = c->model.n_embd;
    uint32_t layer;
    char name[64];
    if (s[1] != s[2] || r->kind != AE_RULE_SPLIT_STACK_T || sscanf(to, "blk.%u.", &layer) != 1)
        return s[1] != s[2] && s[r->kind == AE_RULE_STACK_T ? 1 : 2] == e;
    snprintf(name, sizeof name, "layers.%u.mlp.experts.down_proj", layer);
    const ae_st_tensor *down = ae_convert_look(c, name);
    return down && down->n_dims == 3 && down->shape[1] == e && down->shape[2] != e;
}

static aerie_status add_stack(ae_convert *c, const ae_convert_rule *r, const ae_st_tensor *t, const char *to)
{
    const uint64_t *s = t->shape;
    ae_convert_item item = {.name = to, .from = t, .n_stack = s[0], .rows = s[1], .columns = s[2]};
    if (t->n_dims != 3) return fail_shape(c, t, "a stack of matrices");
    const bool upright = is_upright(c, r, t, to);
    const ae_convert_rule_kind kind = r->kind == AE_RULE_STACK_T && upright         ? AE_RULE_STACK
                                      : r->kind == AE_RULE_SPLIT_STACK_T && upright ? AE_RULE_SPLIT_STACK
                                                                                    : r->kind;
    if (kind == AE_RULE_STACK) return ae_convert_add(c, &item);
    if (kind == AE_RULE_TURNS_STACK) {
        if (s[1] % 2) return fail_shape(c, t, "an even number of rows, for gate and up,");
        item.rows = s[1] / 2, item.row_step = 2 * s[2], item.stack_step = s[1] * s[2];
        return add_pair(c, &item, to, s[2]);
    }
    if (kind == AE_RULE_STACK_T) {
        item.rows = s[2], item.columns = s[1], item.row_step = 1, item.step = s[2], item.stack_step = s[1] * s[2];
        return ae_convert_add(c, &item);
    }
    if (s[kind == AE_RULE_SPLIT_STACK ? 1 : 2] % 2) return fail_shape(c, t, "an even number of rows, for gate and up,");
    if (kind == AE_RULE_SPLIT_STACK) {
        item.rows = s[1] / 2, item.stack_step = s[1] * s[2];
        return add_pair(c, &item, to, s[1] / 2 * s[2]);
    }
    const bool turns = kind == AE_RULE_TURNS_T;
    item.rows = s[2] / 2, item.columns = s[1], item.row_step = turns ? 2 : 1, item.step = s[2], item.stack_step = s[1] * s[2];
    return add_pair(c, &item, to, turns ? 1 : s[2] / 2);
}

/* Adds a vector in another shape. */
static aerie_status add_vector(ae_convert *c, const ae_convert_rule *r, const ae_st_tensor *t, const char *to)
{
    ae_convert_item item = {.name = to, .from = t, .columns = t->n, .f32 = true};
    if (r->kind == AE_RULE_COLUMN || r->kind == AE_RULE_DECAY) {
        item.rows = t->n, item.columns = 1;
        if (t->n_dims == 2) item.rows = t->shape[0], item.columns = t->shape[1];
        item.change = r->kind == AE_RULE_DECAY ? AE_CONVERT_MINUS_EXP : AE_CONVERT_SAME;
    } else if (r->kind == AE_RULE_GROUPS) {
        item.rows = c->model.n_groups ? c->model.n_groups : 1;
        item.columns = t->n / item.rows;
    } else if (r->kind == AE_RULE_CONV) {
        if (t->n_dims != 3 || t->shape[1] != 1) return fail_shape(c, t, "[channels, 1, taps]");
        item.rows = t->shape[0], item.columns = t->shape[2];
    }
    return ae_convert_add(c, &item);
}

/* Adds a table with a row for each token of the vocabulary, including fillers. */
static aerie_status add_padded(ae_convert *c, const ae_st_tensor *t, const char *to)
{
    const uint64_t n = c->model.n_vocab, *s = t->shape;
    uint32_t *from = NULL;
    if (t->n_dims != 2 || !s[0] || s[0] > n) return fail_shape(c, t, "a row for each token, or for the first ones,");
    if (s[0] < n) {
        from = ae_arena_alloc(&c->arena, n, sizeof *from);
        if (!from) return ae_convert_no_memory(c, "the order of rows");
        for (uint64_t i = 0; i < n; i++) from[i] = i < s[0] ? (uint32_t)i : 0;
    }
    return ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .rows = n, .columns = s[1], .row_from = from});
}

static aerie_status add_tensor(ae_convert *c, const ae_convert_rule *r, const ae_st_tensor *t, const char *to)
{
    const char *positions = ae_convert_text(c, "position_embedding_type");
    const bool turns = strcmp(c->arch->arch, "granitehybrid") || (positions && strcmp(positions, "rope") == 0);
    const bool rotated = (r->kind == AE_RULE_Q || r->kind == AE_RULE_K) && (c->arch->flags & AE_ARCH_PAIRS) && turns;
    const uint64_t *s = t->shape;
    if (r->kind == AE_RULE_WHOLE && t->n_dims == 2)
        return ae_convert_add(c, &(ae_convert_item){.name = to, .how = AE_CONVERT_WHOLE, .from = t, .rows = s[0],
                                                    .columns = s[1]});
    AE_TRY(check_type(c, t));
    if (r->kind == AE_RULE_TURNED || r->kind == AE_RULE_TURNED_STACK) {
        const uint32_t n = r->kind == AE_RULE_TURNED ? 2 : 3;
        if (t->n_dims != n) return fail_shape(c, t, n == 2 ? "a matrix" : "a stack of matrices");
        return ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .n_stack = n == 3 ? s[0] : 0, .rows = s[n - 1],
                                                    .columns = s[n - 2], .row_step = 1, .step = s[n - 1],
                                                    .stack_step = s[n - 1] * s[n - 2], .f32 = true});
    }
    switch (r->kind) {
    case AE_RULE_STACK: case AE_RULE_STACK_T: case AE_RULE_SPLIT_STACK: case AE_RULE_SPLIT_STACK_T: case AE_RULE_TURNS_T:
    case AE_RULE_TURNS_STACK:
        return add_stack(c, r, t, to);
    case AE_RULE_VECTOR: case AE_RULE_COLUMN: case AE_RULE_DECAY: case AE_RULE_GROUPS: case AE_RULE_CONV:
        return add_vector(c, r, t, to);
    case AE_RULE_SPLIT:
        if (t->n_dims != 2 || s[0] % 2) return fail_shape(c, t, "[2 rows, columns]");
        return add_pair(c, &(ae_convert_item){.from = t, .rows = s[0] / 2, .columns = s[1]}, to, s[0] / 2 * s[1]);
    case AE_RULE_TURNS:
        if (t->n_dims != 2 || s[1] % 2) return fail_shape(c, t, "[experts, 2 rows]");
        return add_pair(
            c, &(ae_convert_item){.from = t, .rows = s[0], .columns = s[1] / 2, .row_step = s[1], .step = 2, .f32 = true}, to,
            1);
    default: break;
    }
    if (t->n_dims != 1 && t->n_dims != 2) return fail_shape(c, t, "a matrix or a row of numbers");
    if (r->kind == AE_RULE_PADDED) return add_padded(c, t, to);
    if (r->kind == AE_RULE_QKV_JOINED || r->kind == AE_RULE_QKV_GROUPED || r->kind == AE_RULE_KV_JOINED)
        return ae_convert_add_fused(c, r, t, to);
    if (r->kind == AE_RULE_TRANSPOSED && t->n_dims == 2)
        return ae_convert_add(c, &(ae_convert_item){.name = to, .from = t, .rows = s[1], .columns = s[0], .row_step = 1,
                                                    .step = s[1]});
    ae_convert_item item = {.name = to, .from = t, .rows = t->n_dims == 2 ? s[0] : 0, .columns = s[t->n_dims - 1],
                            .f32 = r->kind == AE_RULE_F32};
    if (rotated) item.how = AE_CONVERT_ROTATED, item.head_dim = c->model.head_dim, item.n_rot = c->head.n_rot;
    if (rotated && s[0] % c->model.head_dim) return fail_shape(c, t, "a whole number of heads");
    if ((c->arch->flags & AE_ARCH_PLUS_ONE) && is_norm(to)) item.change = AE_CONVERT_PLUS_ONE;
    return ae_convert_add(c, &item);
}

/* Adds a stack of experts; `from` has "%u" for the expert. n 0: as many as exist. */
static aerie_status add_experts(ae_convert *c, const char *from, const char *to, uint32_t n)
{
    const char *at = strstr(from, "%u");
    const ae_st_tensor **parts = NULL;
    const uint32_t most = n ? n : c->model.n_experts;
    for (uint32_t e = 0; e < most; e++) {
        char name[160];
        snprintf(name, sizeof name, "%.*s%u%s", (int)(at - from), from, e, at + 2);
        const ae_st_tensor *t = ae_convert_take(c, name);
        if (!t && (e == 0 || !n)) break;
        if (!t)
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing; config.json says that there are %u experts",
                           c->path, name, n);
        if (!parts) parts = ae_arena_alloc(&c->arena, most, sizeof *parts);
        if (!parts) return ae_convert_no_memory(c, "the list of experts");
        AE_TRY(check_type(c, t));
        parts[e] = t;
        if (t->n_dims != 2 || t->shape[0] != parts[0]->shape[0] || t->shape[1] != parts[0]->shape[1])
            return fail_shape(c, t, "a matrix like those of the other experts");
        if (!n) c->model.n_chunks = e + 1;
    }
    if (!parts) return AERIE_OK;
    return ae_convert_add(c, &(ae_convert_item){.name = to, .parts = parts, .n_stack = n ? n : c->model.n_chunks,
                                                .rows = parts[0]->shape[0], .columns = parts[0]->shape[1]});
}

aerie_status ae_convert_apply(ae_convert *c, const ae_convert_rule *r, const char *in, const char *out)
{
    static const char *const parts[] = {".weight", ".bias"};
    for (size_t i = 0; i < (r->exact ? 1 : 2); i++) {
        char from[128], to[96];
        snprintf(from, sizeof from, "%s%s%s", in, r->from, r->exact ? "" : parts[i]);
        snprintf(to, sizeof to, "%s%s%s", out, r->to, r->exact ? "" : parts[i]);
        /* in a model without experts, the shared expert is the dense block */
        char *shared = c->model.n_experts ? NULL : strstr(to, "_shexp");
        if (shared) memmove(shared, shared + strlen("_shexp"), strlen(shared + strlen("_shexp")) + 1);
        if (r->kind == AE_RULE_EXPERTS || r->kind == AE_RULE_CHUNKS) {
            AE_TRY(add_experts(c, from, to, r->kind == AE_RULE_EXPERTS ? c->model.n_experts : 0));
            continue;
        }
        const ae_convert_entry *e = ae_convert_find(c, from);
        if (!e || e->used) continue;
        ae_convert_take(c, from);
        AE_TRY(add_tensor(c, r, e->tensor, to));
    }
    return AERIE_OK;
}

/* Marks keys and values as used in layers that read those of earlier layers instead. */
static void pass_over_shared(ae_convert *c, uint32_t i)
{
    static const char *const parts[] = {"k_proj.weight", "v_proj.weight", "k_norm.weight"};
    char name[96];
    uint32_t n_shared = 0;
    const json_t *value = ae_convert_value(c, "num_kv_shared_layers");
    if (json_is_integer(value) && json_integer_value(value) > 0) n_shared = (uint32_t)json_integer_value(value);
    for (size_t k = 0; k < 3 && i + n_shared >= c->model.n_layers && n_shared; k++) {
        snprintf(name, sizeof name, "layers.%u.self_attn.%s", i, parts[k]);
        ae_convert_take(c, name);
    }
}

static aerie_status plan_layer(ae_convert *c, uint32_t i)
{
    char in[32], out[32];
    if (strcmp(c->arch->arch, "gemma4") == 0 || strcmp(c->arch->arch, "gemma3n") == 0) pass_over_shared(c, i);
    snprintf(in, sizeof in, "layers.%u.", i);
    snprintf(out, sizeof out, "blk.%u.", i);
    for (const ae_convert_rule *r = c->arch->rules; r && r->from; r++) AE_TRY(ae_convert_apply(c, r, in, out));
    for (const ae_convert_rule *r = ae_convert_shared_rules; r->from; r++) AE_TRY(ae_convert_apply(c, r, in, out));
    return c->arch->more_tensors ? c->arch->more_tensors(c, i) : AERIE_OK;
}

/* Returns whether a layer after the last one is an MTP block that is not written. */
static bool is_ahead(const ae_convert *c, unsigned long layer)
{
    const json_int_t n = json_integer_value(ae_convert_value(c, "num_nextn_predict_layers"));
    char name[64];
    snprintf(name, sizeof name, "layers.%lu.eh_proj.weight", layer);
    if (layer < c->model.n_layers || c->model.n_ahead) return false;
    bool there = ae_convert_look(c, name) != NULL;
    snprintf(name, sizeof name, "layers.%lu.e_proj.weight", layer);
    there |= ae_convert_look(c, name) != NULL;
    return there || (n > 0 && layer < c->model.n_layers + (unsigned long)n);
}

/* Returns whether the file has no use for a tensor: it belongs to another modality than text, or to an unwritten MTP block. */
static bool is_unneeded(const ae_convert *c, const char *name, const ae_st_tensor *t)
{
    static const char *const starts[] = {"vision_tower.", "visual.", "vision_model.", "vision_embedder.", "vision_projection.",
                                         "vision_adapter.", "vit.", "sam_model.", "qwen2_model.", "projector.", "view_sep",
                                         "multi_modal_projector.", "audio_tower.", "embed_vision.", "embed_audio.",
                                         "connector.", "mlp1.", "patch_merge_mlp.", "mm_projector.", "aligner.", "image_",
                                         "linear_proj.", "vision_encoder.", "audio_encoder.", "mtp_layers.", "mlp_AR.",
                                         "switch.", "vision.", "vqmodel."};
    if (strncmp(name, "mtp.", 4) == 0 && !c->model.n_ahead) return true;
    /* the mask of causal attention, which old models save under the name of a bias */
    if (t->n_dims == 4 && strncmp(name, "layers.", 7) == 0 && strstr(name, ".bias")) return true;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (strncmp(name, starts[i], strlen(starts[i])) == 0) return true;
    /* scales of activations, numbers that follow from the number of heads in lightning attention, and copies of a switch's
     * configuration */
    static const char *const ends[] = {".input_scale", ".input_global_scale", ".activation_scale", ".q_scale", ".k_scale",
                                       ".v_scale", ".slope_rate", ".adapter_token_ids", ".control_to_substitute_lut",
                                       ".query_decay", ".key_decay", ".diagonal_decay"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strlen(name) > strlen(ends[i]) && strcmp(name + strlen(name) - strlen(ends[i]), ends[i]) == 0) return true;
    static const char *const parts[] = {"rotary_emb.", "rotary_pos_emb.", "attention.masked_bias", "attn.masked_bias"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i])) return true;
    return strncmp(name, "layers.", 7) == 0 && is_ahead(c, strtoul(name + 7, NULL, 10));
}

static aerie_status check_unused(ae_convert *c)
{
    const char *quantized = json_string_value(
        json_object_get(json_object_get(c->config, "quantization_config"), "quant_method"));
    size_t n = 0;
    for (size_t i = 0; i < c->n_entries; i++) {
        ae_convert_entry *e = &c->entries[i];
        if (e->used) continue;
        if (!is_unneeded(c, e->name, e->tensor) && quantized)
            return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                           "%s: the checkpoint is quantized by %.40s, which is not supported (tensor %s); convert the original "
                           "checkpoint instead", c->path, quantized, e->tensor->name);
        if (!is_unneeded(c, e->name, e->tensor))
            return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                           "%s: tensor %s is unknown in architecture %s; --skip leaves it out", c->path, e->tensor->name,
                           c->arch->arch);
        if (n++ == 0)
            ae_log_say(&c->options.log, AERIE_LOG_INFO,
                       "%s: only the text model is converted; %s and similar tensors are left out (--mmproj FILE writes a "
                       "vision encoder)", c->path, e->tensor->name);
    }
    return AERIE_OK;
}

/* Drops an output head that is the embedding, if the configuration ties both. A checkpoint that holds another one was trained
 * without the tie: transformers, too, runs it with its own head. */
static aerie_status settle_head(ae_convert *c, const ae_st_tensor *embedding)
{
    const ae_st_tensor *head = ae_convert_look(c, "lm_head.weight");
    bool tied = false;
    AE_TRY(ae_convert_bool(c, "tie_word_embeddings", &tied, NULL));
    if (!tied || !head) return AERIE_OK;
    const bool alike = head->dtype < AE_ST_DTYPE_COUNT && head->dtype == embedding->dtype &&
                       head->bytes == embedding->bytes && memcmp(head->data, embedding->data, head->bytes) == 0;
    if (alike) ae_convert_take(c, "lm_head.weight");
    else
        ae_log_say(&c->options.log, AERIE_LOG_WARNING, "%s: 'tie_word_embeddings' is true, but %s is not the embedding: it is "
                   "kept; --skip leaves it out", c->config_path, head->name);
    return AERIE_OK;
}

/* Warns about a head that is missing, though the configuration says that it is not the embedding. */
static void warn_of_head(const ae_convert *c)
{
    if (!json_is_false(ae_convert_value(c, "tie_word_embeddings")) || c->arch->flags & AE_ARCH_ENCODES) return;
    for (size_t i = 0; i < c->n_items; i++)
        if (strcmp(c->items[i].name, "output.weight") == 0) return;
    ae_log_say(&c->options.log, AERIE_LOG_WARNING, "%s: 'tie_word_embeddings' is false, but there is no lm_head.weight: the "
               "file's output is its embedding, so it can embed texts, but what it generates is not the model's",
               c->config_path);
}

/* Returns the checkpoint's tensor that became this one; NULL: none did. */
static const char *source_of(const ae_convert *c, const char *name)
{
    for (size_t i = 0; i < c->n_items; i++) {
        const ae_convert_item *item = &c->items[i];
        const ae_st_tensor *t = item->parts ? item->parts[0] : item->from;
        if (t && strcmp(item->name, name) == 0) return t->name;
    }
    return NULL;
}

static bool has_item(const ae_convert *c, const char *name)
{
    for (size_t i = 0; i < c->n_items; i++)
        if (strcmp(c->items[i].name, name) == 0) return true;
    return false;
}

/* name: the missing tensor of the file; other: one like it that is there. */
static aerie_status fail_bias(const ae_convert *c, const char *name, const char *other)
{
    const char *from = source_of(c, other);
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: the checkpoint is incomplete: it has %s, but nothing for %s", c->path,
                   from ? from : other, name);
}

/* Refuses a checkpoint with a bias in some layers and none in others that have the same matrix or norm: biases are optional in
 * files, so binding the file would not notice. */
static aerie_status check_biases(const ae_convert *c)
{
    char name[128];
    if (c->decision_config) return AERIE_OK; /* whose last blocks are of another kind */
    for (size_t i = 0; i < c->n_items; i++) {
        const char *bias = c->items[i].name, *part = strncmp(bias, "blk.", 4) ? NULL : strchr(bias + 4, '.');
        const size_t n = part ? strlen(part) : 0;
        if (n < 6 || strcmp(part + n - 5, ".bias")) continue;
        const unsigned long layer = strtoul(bias + 4, NULL, 10);
        const bool routes = strcmp(part, ".exp_probs_b.bias") == 0; /* of the choice of experts */
        snprintf(name, sizeof name, "blk.%lu%s", layer - 1, part);
        if (layer && has_item(c, name)) continue; /* that one is for all layers */
        for (uint32_t l = 0; l < c->model.n_layers; l++) {
            snprintf(name, sizeof name, "blk.%u.ffn_gate_tid2eid.weight", l); /* whose experts follow from the token */
            if (routes && has_item(c, name)) continue;
            snprintf(name, sizeof name, "blk.%u%.*s.weight", l, routes ? 64 : (int)(n - 5), routes ? ".ffn_gate_inp" : part);
            if (!has_item(c, name)) continue;
            snprintf(name, sizeof name, "blk.%u%s", l, part);
            if (!has_item(c, name)) return fail_bias(c, name, bias);
        }
        /* the last norm is of the same kind as those of layers */
        if (strcmp(part, ".attn_norm.bias") == 0 && !has_item(c, "output_norm.bias"))
            return fail_bias(c, "output_norm.bias", bias);
    }
    return AERIE_OK;
}

static aerie_status model_plan(ae_convert *c)
{
    const ae_st_tensor *embedding = ae_convert_look(c, "embed_tokens.weight");
    if (!embedding) embedding = ae_convert_look(c, "embeddings.weight");
    AE_TRY(settle_head(c, embedding));
    c->out_type = c->options.type != AE_CONVERT_TYPE_AUTO ? c->options.type
                                                          : embedding->dtype == AE_ST_BF16 ? AE_TYPE_BF16 : AE_TYPE_F16;
    for (const ae_convert_rule *r = ae_convert_global_rules; r->from; r++) AE_TRY(ae_convert_apply(c, r, "", ""));
    AE_TRY(ae_convert_plan_rope(c));
    for (uint32_t i = 0; i < c->model.n_layers; i++) AE_TRY(plan_layer(c, i));
    if (c->arch->finish) AE_TRY(c->arch->finish(c));
    if (c->arch->finish != ae_convert_finish_dense) AE_TRY(ae_convert_check_modules(c, c->arch->arch));
    AE_TRY(check_biases(c));
    AE_TRY(ae_convert_plan_ahead(c));
    warn_of_head(c);
    return check_unused(c);
}

/* Binds the file like any model, which detects missing tensors and wrong shapes, and reads the vocabulary. */
static aerie_status model_check(ae_convert *c)
{
    ae_model *model;
    aerie_error error = {0};
    char unread[AE_MODEL_UNREAD];
    const char *part = ae_gguf_writer_part(c->writer);
    aerie_status status = ae_model_load(&model, part, &(ae_model_options){.unread = unread}, &error);
    ae_model_free(status == AERIE_OK ? model : NULL);
    if (status == AERIE_OK) status = ae_convert_check_ahead(c, part, unread, &error);
    if (status == AERIE_OK) return AERIE_OK;
    /* the message without the path, since the file will not exist */
    const char *why = strncmp(error.text, part, strlen(part)) ? error.text : error.text + strlen(part);
    why += strspn(why, ": ");
    const char *from = source_of(c, unread);
    if (from)
        return ae_fail(c->error, status, "%s: tensor %s has no use: %s; --skip leaves it out", c->path, from, why);
    return ae_fail(c->error, status, "%s: what it makes cannot be loaded: %s", c->path, why);
}

const ae_convert_kind ae_convert_decoder = {model_detect, model_plan, ae_convert_model_keys, model_check};

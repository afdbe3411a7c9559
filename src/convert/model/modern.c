/* modern.c - ModernBERT: its windows, its classifier, and the decision heads of Laya and Julia (arch.h).
 * Laya's and Julia's folders have the encoder's config.json in encoder/, the tokenizer in tokenizer/, and the head's
 * settings in rl_agent_config.json or julia_config.json. The head's blocks become the file's last layers.
 * Sources: transformers' modeling_modernbert.py; names, keys and the template of the prompts are those of llama.cpp. */
#include <stdio.h>
#include <string.h>

#include "convert/archs/arch.h"
#include "convert/archs/rules.h"

#define IN_HEAD "head.layers."

/* ---- The decision head's settings ----------------------------------------------------------------------- */

static aerie_status fail_setting(const ae_convert *c, const char *key, const char *wanted)
{
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s/%s: '%s' must be %s", c->path, c->decision_config, key, wanted);
}

static bool is_count(const json_t *value, json_int_t lo, json_int_t hi)
{
    return json_is_integer(value) && json_integer_value(value) >= lo && json_integer_value(value) <= hi;
}

/* Gives the head's blocks the numbers of the layers after the encoder's. */
static aerie_status number_blocks(ae_convert *c, uint32_t n_encoder)
{
    for (size_t i = 0; i < c->n_entries; i++) {
        const char *name = c->entries[i].name, *part = name + strlen(IN_HEAD);
        if (strncmp(name, IN_HEAD, strlen(IN_HEAD))) continue;
        const size_t n = strspn(part, "0123456789");
        if (!n || n > 4 || part[n] != '.') continue;
        uint32_t block = 0;
        for (size_t k = 0; k < n; k++) block = 10 * block + (uint32_t)(part[k] - '0');
        ae_buf text = {0};
        ae_buf_addf(&text, "layers.%u%s", n_encoder + block, part + n);
        c->entries[i].name = text.failed ? NULL : ae_arena_strndup(&c->arena, text.data, text.n);
        ae_buf_free(&text);
        if (!c->entries[i].name) return ae_convert_no_memory(c, "the names of tensors");
    }
    return ae_convert_sort_names(c);
}

aerie_status ae_convert_begin_modern(ae_convert *c)
{
    json_t *settings;
    uint32_t n_encoder = 0;
    if (!c->decision_config) return AERIE_OK;
    AE_TRY(ae_convert_need_u32(c, "num_hidden_layers", 1, AE_MAX_LAYERS - 1, &n_encoder));
    AE_TRY(ae_convert_read_json(c, c->decision_config, &settings));
    const json_t *n_blocks = json_object_get(settings, "head_layers");
    const bool fits = is_count(n_blocks, 1, AE_MAX_LAYERS - n_encoder);
    if (fits) c->model.decision.n_blocks = (uint32_t)json_integer_value(n_blocks);
    json_decref(settings);
    if (!fits) return fail_setting(c, "head_layers", "the number of the decision head's blocks, at least 1");
    const uint32_t n_layers = n_encoder + c->model.decision.n_blocks;
    if (json_object_set_new(c->config, "num_hidden_layers", json_integer(n_layers)))
        return ae_convert_no_memory(c, "the configuration");
    return number_blocks(c, n_encoder);
}

/* ---- Tensors -------------------------------------------------------------------------------------------- */

static const ae_convert_rule whole[] = {
    PLAIN("embeddings.norm", "token_embd_norm"), PLAIN("final_norm", "output_norm"), END,
};
static const ae_convert_rule judges[] = {
    PLAIN("head.dense", "cls"), PLAIN("head.norm", "cls.norm"), PLAIN("classifier", "cls.output"), END,
};
static const ae_convert_rule decides[] = {
    RULE("type_emb", "token_types", F32), PLAIN("scorer.0", "cls.norm"), PLAIN("scorer.1", "cls"),
    PLAIN("scorer.3", "cls.output"), END,
};

/* Marks tensors that predict masked tokens, or that other parts of a training used. */
static void pass_over(ae_convert *c, const char *const *starts, size_t n)
{
    for (size_t i = 0; i < c->n_entries; i++)
        for (size_t k = 0; k < n; k++)
            if (strncmp(c->entries[i].name, starts[k], strlen(starts[k])) == 0) c->entries[i].used = true;
}

static aerie_status check_classifier(const ae_convert *c, const ae_st_tensor *t)
{
    static const char *const needed[] = {"head.dense.weight", "head.norm.weight", "classifier.bias"};
    const char *act = ae_convert_text(c, "classifier_activation");
    if (t->n_dims != 2 || t->shape[0] != 1)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: the classifier has several labels; rerankers have one, and --skip "
                       "classifier makes a file without it", c->path);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) /* a file without them would be another kind of reranker */
        if (!ae_convert_look(c, needed[i]))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing; the classifier needs it, and --skip "
                           "classifier makes a file without both", c->path, needed[i]);
    if (!act || strncmp(act, "gelu", 4) == 0) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'classifier_activation' is \"%.40s\"; gelu is supported",
                   c->config_path, act);
}

/* Checks the size of feed-forward blocks, whose first matrix has gate and up together: a file with another one would seem to
 * have no gate. */
static aerie_status check_ff(ae_convert *c)
{
    char name[64], shape[128];
    uint32_t n_ff = 0;
    AE_TRY(ae_convert_need_u32(c, "intermediate_size", 1, AE_MAX_FF, &n_ff));
    const ae_st_tensor *t = ae_convert_look(c, "layers.0.mlp.Wi.weight");
    if (t)
        AE_TRY(ae_convert_check_shape(c, t, 2 * (uint64_t)n_ff, c->model.n_embd,
                                      "twice 'intermediate_size' rows of 'hidden_size' values"));
    if (!c->decision_config) return AERIE_OK;
    snprintf(name, sizeof name, "layers.%u.linear1.weight", c->model.n_layers - c->model.decision.n_blocks);
    t = ae_convert_look(c, name);
    if (!t)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor " IN_HEAD "0.linear1.weight is missing, in the first block "
                       "of the decision head", c->path);
    if (t->n_dims != 2 || !t->shape[0] || t->shape[0] > AE_MAX_FF)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is %s; a matrix of at most %u rows is needed", c->path,
                       t->name, ae_convert_shape(t, shape), AE_MAX_FF);
    c->model.decision.n_ff = (uint32_t)t->shape[0];
    return AERIE_OK;
}

aerie_status ae_convert_finish_modern(ae_convert *c)
{
    static const char *const training[] = {"head.", "decoder."}, *const other[] = {"act_head.", "temperature"};
    const ae_st_tensor *classifier = ae_convert_look(c, "classifier.weight");
    const ae_convert_rule *r = NULL;
    AE_TRY(check_ff(c));
    for (const ae_convert_rule *w = whole; w->from; w++) AE_TRY(ae_convert_apply(c, w, "", ""));
    if (c->decision_config) {
        pass_over(c, other, 2);
        r = decides;
    } else if (classifier) {
        AE_TRY(check_classifier(c, classifier));
        c->model.ranks = true;
        r = judges;
    }
    for (; r && r->from; r++) AE_TRY(ae_convert_apply(c, r, "", ""));
    if (!c->decision_config) pass_over(c, training, classifier ? 0 : 2);
    return AERIE_OK;
}

/* ---- Keys ----------------------------------------------------------------------------------------------- */

/* Finds the layers with a window: those that layer_types names, or all but each `every`-th, beginning with the first. */
static aerie_status find_windows(const ae_convert *c, uint32_t n, bool *windowed)
{
    const json_t *types = ae_convert_value(c, "layer_types");
    uint32_t every = 3;
    AE_TRY(ae_convert_u32(c, "global_attn_every_n_layers", 1, AE_MAX_LAYERS, &every));
    for (uint32_t i = 0; i < n; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        const bool slides = type && strcmp(type, "sliding_attention") == 0;
        if (types && !slides && (!type || strcmp(type, "full_attention")))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'layer_types' must name \"full_attention\" or "
                           "\"sliding_attention\" for each of %u layers", c->config_path, n);
        windowed[i] = types ? slides : i % every != 0;
    }
    return AERIE_OK;
}

static aerie_status put_windows(ae_convert_keys *k, const ae_convert *c)
{
    const uint32_t n = c->model.n_layers - c->model.decision.n_blocks;
    bool windowed[AE_MAX_LAYERS] = {false}, fits = false;
    uint32_t window = 128, period = 0;
    AE_TRY(ae_convert_u32(c, "local_attention", 1, INT32_MAX, &window));
    AE_TRY(find_windows(c, n, windowed));
    ae_convert_put_u32(k, "attention.sliding_window", window);
    while (!fits && period++ < n) {
        fits = true;
        for (uint32_t i = 0; i < n; i++) fits &= windowed[i] == (i % period != 0);
    }
    if (fits) ae_convert_put_u32(k, "attention.sliding_window_pattern", period);
    else ae_convert_put_array(k, "attention.sliding_window_pattern", AE_GGUF_BOOL, windowed, c->model.n_layers);
    return k->status;
}

/* Writes the base of layers with a window, whose rotation is never scaled. */
static aerie_status put_base(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *own = json_object_get(ae_convert_value(c, "rope_parameters"), "sliding_attention");
    const json_t *value = json_object_get(own, "rope_theta");
    const char *type = json_string_value(json_object_get(own, "rope_type"));
    double base = 10000;
    if (type && strcmp(type, "default"))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'rope_parameters': the 'rope_type' of \"sliding_attention\" is "
                       "\"%.40s\"; default is supported", c->config_path, type);
    if (!value || json_is_null(value)) value = ae_convert_value(c, "local_rope_theta");
    AE_TRY(ae_convert_real(c, value, "local_rope_theta", 1.001, 1e12, &base));
    ae_convert_put_f32(k, "rope.freq_base_swa", base);
    return k->status;
}

static aerie_status put_activation(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *value = ae_convert_value(c, "hidden_activation");
    const char *name = value ? json_string_value(value) : "gelu";
    const bool silu = name && (strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0);
    if (!silu && (!name || strncmp(name, "gelu", 4)))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'hidden_activation' is \"%.40s\"; gelu and silu are supported",
                       c->config_path, name ? name : "no text");
    ae_convert_put_text(k, "hidden_activation", silu ? "silu" : "gelu");
    return k->status;
}

/* Writes which row of a pair of texts is judged. */
static aerie_status put_judged(ae_convert_keys *k, const ae_convert *c)
{
    const json_t *value = ae_convert_value(c, "classifier_pooling");
    const char *name = value ? json_string_value(value) : "cls";
    if (!c->model.ranks) return AERIE_OK;
    if (!name || (strcmp(name, "cls") && strcmp(name, "mean")))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'classifier_pooling' is \"%.40s\"; cls and mean are supported",
                       c->config_path, name ? name : "no text");
    ae_convert_put_u32(k, "classifier.pooling_type", strcmp(name, "cls") ? AE_POOLING_MEAN : AE_POOLING_CLS);
    return k->status;
}

static aerie_status put_temperature(ae_convert_keys *k, const ae_convert *c, const char *name, const json_t *value)
{
    char key[96];
    const double t = json_number_value(value);
    if (!json_is_number(value) || !(t > 1e-6 && t < 1e6))
        return fail_setting(c, name, "a positive number");
    snprintf(key, sizeof key, "decision.temperature.%s", name);
    ae_convert_put_f32(k, key, t);
    return k->status;
}

/* Writes the temperatures of a kind of question with some number of options, "choice:3-5" as choice.3_5, "choice:11+" as
 * choice.11. */
static aerie_status put_temperatures(ae_convert_keys *k, const ae_convert *c, const json_t *settings)
{
    static const char *const kinds[] = {"choice", "score", "noul"};
    const json_t *list = json_object_get(settings, "temperature");
    json_t *by_options = json_object_get(settings, "temperature_by_options"), *value;
    const char *from;
    if (list && !json_is_null(list) && json_array_size(list) != 3)
        return fail_setting(c, "temperature", "a list of three numbers, for choice, score and noul");
    for (size_t i = 0; i < json_array_size(list); i++) AE_TRY(put_temperature(k, c, kinds[i], json_array_get(list, i)));
    if (by_options && !json_is_null(by_options) && !json_is_object(by_options))
        return fail_setting(c, "temperature_by_options", "an object that has numbers");
    json_object_foreach(by_options, from, value) {
        char name[48];
        size_t n = strlen(from);
        if (n >= sizeof name || strspn(from, "abcdefghijklmnopqrstuvwxyz0123456789:-+_") != n)
            return fail_setting(c, "temperature_by_options", "an object with names such as \"choice:3-5\"");
        while (n && from[n - 1] == '+') n--;
        for (size_t i = 0; i < n; i++) name[i] = from[i] == ':' ? '.' : from[i] == '-' ? '_' : from[i];
        name[n] = 0;
        AE_TRY(put_temperature(k, c, name, value));
    }
    return AERIE_OK;
}

static aerie_status put_settings(ae_convert_keys *k, const ae_convert *c, const json_t *settings)
{
    const json_t *most = json_object_get(settings, "head_max_len");
    uint32_t sizes[AE_MAX_LAYERS], n_ff = 0;
    AE_TRY(ae_convert_need_u32(c, "intermediate_size", 1, AE_MAX_FF, &n_ff));
    const uint32_t n = c->model.n_layers, n_blocks = c->model.decision.n_blocks;
    for (uint32_t i = 0; i < n; i++) sizes[i] = i < n - n_blocks ? n_ff : c->model.decision.n_ff;
    ae_convert_put_array(k, "feed_forward_length", AE_GGUF_U32, sizes, n);
    ae_convert_put_text(k, "decision.type", "laya");
    ae_convert_put_u32(k, "decision.block_count", n_blocks);
    if (most && !json_is_null(most) && !is_count(most, 1, INT32_MAX))
        return fail_setting(c, "head_max_len", "a number of tokens, at least 1");
    ae_convert_put_u32(k, "decision.max_head_tokens", is_count(most, 1, INT32_MAX) ? (uint32_t)json_integer_value(most) : 256);
    AE_TRY(k->status);
    AE_TRY(put_temperatures(k, c, settings));
    return ae_gguf_writer_u32(k->w, "tokenizer.ggml.token_type_count", 3, k->error); /* the kinds of questions */
}

aerie_status ae_convert_keys_modern(ae_convert_keys *k, const ae_convert *c)
{
    uint32_t n_ff = 0;
    json_t *settings;
    AE_TRY(put_windows(k, c));
    AE_TRY(put_base(k, c));
    AE_TRY(put_activation(k, c));
    AE_TRY(put_judged(k, c));
    if (!c->decision_config) {
        AE_TRY(ae_convert_need_u32(c, "intermediate_size", 1, AE_MAX_FF, &n_ff));
        ae_convert_put_u32(k, "feed_forward_length", n_ff);
        return k->status;
    }
    AE_TRY(ae_convert_read_json(c, c->decision_config, &settings));
    const aerie_status status = put_settings(k, c, settings);
    json_decref(settings);
    return status;
}

/* ---- The template of a question's prompt ---------------------------------------------------------------- */

/* An expression that writes a text as it is, and anything else as JSON. */
#define TEXT(name) "{{ " name " if " name " is string else " name " | tojson }}"

static const char of_laya[] =
    "{% if type == 'choice' %}{{ o.key }}{% if o.description %}: " TEXT("o.description") "{% endif %}"
    "{% elif type == 'score' %}level {{ o.key }}: " TEXT("o.description")
    "{% else %}{{ o.key }}: {% if o.description %}" TEXT("o.description")
    "{% elif o.key == 'true' %}yes, the statement holds{% else %}no, the statement does not hold{% endif %}{% endif %}";
static const char of_julia[] = "{% if o.description %}" TEXT("o.description") "{% else %}{{ o.key }}{% endif %}";

aerie_status ae_convert_systemone_modern(const ae_convert *c, const json_t *tokenizer_config, ae_buf *out)
{
    static const char *const names[] = {"cls_token", "sep_token", "mask_token"};
    const char *marks[3];
    json_t *settings;
    for (size_t i = 0; i < 3; i++) {
        const json_t *token = json_object_get(tokenizer_config, names[i]);
        if (json_is_object(token)) token = json_object_get(token, "content");
        marks[i] = json_string_value(token);
        if (!marks[i] || !*marks[i] || strpbrk(marks[i], "{}"))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s/tokenizer/tokenizer_config.json: '%s' must be the text of a "
                           "token, without braces: a question's prompt has it", c->path, names[i]);
    }
    AE_TRY(ae_convert_read_json(c, c->decision_config, &settings));
    const char *architecture = json_string_value(json_object_get(settings, "architecture"));
    const bool julia = architecture && strcmp(architecture, "JuliaDecisionModel") == 0;
    json_decref(settings);
    ae_buf_addf(out, "%s{{ type }} question: " TEXT("instructions") "%s{%% for o in options %%}%s ", marks[0], marks[1],
                marks[2]);
    ae_buf_adds(out, julia ? of_julia : of_laya);
    ae_buf_addf(out, "{%% endfor %%}%s" TEXT("state") "%s", marks[1], marks[1]);
    return out->failed ? ae_convert_no_memory(c, "the template of prompts") : AERIE_OK;
}

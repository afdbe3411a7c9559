/* encoder.c - converts encoders of BERT's family, as transformers and sentence-transformers save them.
 * Reads config.json, the tensors, the vocabulary (wordpiece.c), and 1_Pooling/config.json if there is one. A family is a row of
 * a table: the names and shapes of its tensors, and the values of settings that a GGUF file implies. A BERT classifier with one
 * label becomes a reranker: the pooler is its first layer, the classifier its second. Sources: transformers' BertModel,
 * BertForSequenceClassification and NomicBertModel; names and keys are those that llama.cpp reads. */
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "convert/model/vocab.h"
#include "convert/quantize/mix.h"
#include "quant/types.h"

enum { MAX_VOCAB = 1 << 22 };

/* ---- Families --------------------------------------------------------------------------------------- */

typedef enum width {
    ONE,
    EMBD,
    EMBD_3, /* queries, keys and values */
    FF,
    VOCAB,
    POSITIONS,
    TYPES,
} width;

typedef enum kind {
    MATRIX,
    BIASED, /* a matrix with a bias */
    TABLE,  /* a table of numbers that are added, always F32, as other programs need it */
    NORM,   /* weight and bias with n_embd numbers each; old checkpoints call them gamma and beta */
} kind;

typedef struct part {
    const char *from, *to;
    kind kind;
    width rows, columns;
} part;

struct ae_convert_family {
    const char *model_type, *arch, *title, *marker; /* marker: a tensor that only this family has */
    const char *layer; /* prefix of the names of a layer's tensors */
    const part *outside, *inside;
    size_t n_outside, n_inside;
    bool positions, rope, classifier;
    bool padded; /* the position table has additional rows at the beginning, up to that of the padding token */
    /* settings of config.json that a GGUF file cannot express, with the value that it implies, as JSON */
    const struct fixed {
        const char *key, *value;
    } *fixed;
    size_t n_fixed;
};

static const part bert_outside[] = {
    {"embeddings.word_embeddings", "token_embd", MATRIX, VOCAB, EMBD},
    {"embeddings.position_embeddings", "position_embd", TABLE, POSITIONS, EMBD},
    {"embeddings.token_type_embeddings", "token_types", TABLE, TYPES, EMBD},
    {"embeddings.LayerNorm", "token_embd_norm", NORM, ONE, EMBD},
};
static const part bert_inside[] = {
    {"attention.self.query", "attn_q", BIASED, EMBD, EMBD},
    {"attention.self.key", "attn_k", BIASED, EMBD, EMBD},
    {"attention.self.value", "attn_v", BIASED, EMBD, EMBD},
    {"attention.output.dense", "attn_output", BIASED, EMBD, EMBD},
    {"attention.output.LayerNorm", "attn_output_norm", NORM, ONE, EMBD},
    {"intermediate.dense", "ffn_up", BIASED, FF, EMBD},
    {"output.dense", "ffn_down", BIASED, EMBD, FF},
    {"output.LayerNorm", "layer_output_norm", NORM, ONE, EMBD},
};
static const struct fixed bert_fixed[] = {{"position_embedding_type", "\"absolute\""}};

/* names of nomic-ai, and of transformers' own class */
static const part nomic_outside[] = {
    {"embeddings.word_embeddings", "token_embd", MATRIX, VOCAB, EMBD},
    {"embeddings.token_type_embeddings", "token_types", TABLE, TYPES, EMBD},
    {"emb_ln", "token_embd_norm", NORM, ONE, EMBD},
};
static const part nomic_inside[] = {
    {"attn.Wqkv", "attn_qkv", MATRIX, EMBD_3, EMBD}, {"attn.out_proj", "attn_output", MATRIX, EMBD, EMBD},
    {"norm1", "attn_output_norm", NORM, ONE, EMBD},  {"mlp.fc11", "ffn_up", MATRIX, FF, EMBD},
    {"mlp.fc12", "ffn_gate", MATRIX, FF, EMBD},      {"mlp.fc2", "ffn_down", MATRIX, EMBD, FF},
    {"norm2", "layer_output_norm", NORM, ONE, EMBD},
};
static const part nomic_new_outside[] = {
    {"embeddings.word_embeddings", "token_embd", MATRIX, VOCAB, EMBD},
    {"embeddings.token_type_embeddings", "token_types", TABLE, TYPES, EMBD},
    {"embeddings.LayerNorm", "token_embd_norm", NORM, ONE, EMBD},
};
static const part nomic_new_inside[] = {
    {"self_attn.q_proj", "attn_q", MATRIX, EMBD, EMBD},
    {"self_attn.k_proj", "attn_k", MATRIX, EMBD, EMBD},
    {"self_attn.v_proj", "attn_v", MATRIX, EMBD, EMBD},
    {"self_attn.o_proj", "attn_output", MATRIX, EMBD, EMBD},
    {"post_attention_layernorm", "attn_output_norm", NORM, ONE, EMBD},
    {"mlp.up_proj", "ffn_up", MATRIX, FF, EMBD},
    {"mlp.gate_proj", "ffn_gate", MATRIX, FF, EMBD},
    {"mlp.down_proj", "ffn_down", MATRIX, EMBD, FF},
    {"post_mlp_layernorm", "layer_output_norm", NORM, ONE, EMBD},
};
static const struct fixed nomic_fixed[] = {
    {"activation_function", "\"swiglu\""}, {"hidden_act", "\"silu\""}, {"prenorm", "false"},
    {"parallel_block", "false"},           {"use_rms_norm", "false"},  {"causal", "false"},
    {"qkv_proj_bias", "false"},            {"mlp_fc1_bias", "false"},  {"mlp_fc2_bias", "false"},
    {"rotary_emb_fraction", "1.0"},        {"rotary_emb_interleaved", "false"},
    {"moe_every_n_layers", "0"},
};

#define LIST(name, list) .name = list, .n_##name = sizeof list / sizeof *list
static const ae_convert_family families[] = {
    {"bert", "bert", "BERT", "encoder.layer.0.attention.self.query.weight", "encoder.layer", LIST(outside, bert_outside),
     LIST(inside, bert_inside), .positions = true, .classifier = true, LIST(fixed, bert_fixed)},
    {"xlm-roberta", "bert", "XLM-RoBERTa", "encoder.layer.0.attention.self.query.weight", "encoder.layer",
     LIST(outside, bert_outside), LIST(inside, bert_inside), .positions = true, .padded = true, LIST(fixed, bert_fixed)},
    {"nomic_bert", "nomic-bert", "Nomic BERT", "encoder.layers.0.attn.Wqkv.weight", "encoder.layers",
     LIST(outside, nomic_outside), LIST(inside, nomic_inside), .rope = true, LIST(fixed, nomic_fixed)},
    {"nomic_bert", "nomic-bert", "Nomic BERT", "layers.0.post_mlp_layernorm.weight", "layers", LIST(outside, nomic_new_outside),
     LIST(inside, nomic_new_inside), .rope = true, LIST(fixed, nomic_fixed)},
};
#define N_FAMILIES (sizeof families / sizeof *families)

/* ---- Detecting -------------------------------------------------------------------------------------- */

aerie_status ae_convert_find_module(const ae_convert *c, const char *end, uint32_t nth, char name[256], bool *found)
{
    char *text = NULL, *path = ae_convert_path_in(c, "modules.json");
    const size_t n_end = strlen(end);
    size_t n = 0, i;
    json_t *modules = NULL, *module;
    aerie_status status = path ? AERIE_OK : ae_convert_no_memory(c, "a path");
    *found = false;
    if (path && ae_file_exists(path)) status = ae_convert_read_text(c, path, &text, &n);
    if (text) modules = json_loadb(text, n, 0, NULL);
    if (text && !json_is_array(modules))
        status = ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: this is not a JSON array", path);
    json_array_foreach(modules, i, module) {
        const char *type = json_string_value(json_object_get(module, "type")), *in;
        const size_t n_type = type ? strlen(type) : 0;
        if (n_type < n_end || strcmp(type + n_type - n_end, end) || nth--) continue;
        in = json_string_value(json_object_get(module, "path"));
        *found = in && strlen(in) < 200;
        if (*found) snprintf(name, 256, "%s%s", in, *in ? "/" : "");
        else
            status = ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: the 'path' of \"%.40s\" must be the name of a folder", path,
                             type);
        break;
    }
    json_decref(modules);
    ae_free(text);
    ae_free(path);
    return status;
}

aerie_status ae_convert_read_pooling(const ae_convert *c, ae_pooling *pooling)
{
    static const struct {
        const char *key, *name;
        ae_pooling pooling;
    } modes[] = {{"pooling_mode_cls_token", "cls", AE_POOLING_CLS}, {"pooling_mode_mean_tokens", "mean", AE_POOLING_MEAN},
                 {"pooling_mode_lasttoken", "lasttoken", AE_POOLING_LAST}};
    static const char *const others[] = {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                                         "pooling_mode_weightedmean_tokens"};
    char in[256] = "1_Pooling/", file[272];
    bool found;
    json_t *json;
    AE_TRY(ae_convert_find_module(c, "Pooling", 0, in, &found));
    snprintf(file, sizeof file, "%sconfig.json", in);
    AE_TRY(ae_convert_read_json(c, file, &json));
    const char *mode = json_string_value(json_object_get(json, "pooling_mode")); /* a name, since sentence-transformers 5 */
    uint32_t n = 0, n_known = 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        const bool named = mode && strcmp(mode, modes[i].name) == 0;
        n_known += named;
        if (!named && !json_is_true(json_object_get(json, modes[i].key))) continue;
        *pooling = modes[i].pooling;
        n++;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) n += json_is_true(json_object_get(json, others[i])) ? 2 : 0;
    json_decref(json);
    if (n > 1 || (mode && !n_known))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: %s specifies a pooling, or several at once, that a GGUF file cannot express; "
                       "mean, cls and last are supported",
                       c->path, file);
    return AERIE_OK;
}

/* Refuses settings that a GGUF file cannot express. */
static aerie_status check_settings(const ae_convert *c, const ae_convert_family *f)
{
    const char *act = ae_convert_text(c, "hidden_act"), *type = ae_convert_text(c, "model_type");
    if (type && strcmp(type, f->model_type))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: 'model_type' is \"%.40s\"; of encoders, \"bert\", \"nomic_bert\" and \"xlm-roberta\" "
                       "are supported", c->config_path, type);
    if (f->positions && act && strncmp(act, "gelu", 4))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'hidden_act' is \"%.40s\"; \"gelu\" is supported",
                       c->config_path, act);
    for (size_t i = 0; i < f->n_fixed; i++) {
        json_t *meant = json_loads(f->fixed[i].value, JSON_DECODE_ANY, NULL);
        const aerie_status status = meant ? ae_convert_check_fixed(c, f->fixed[i].key, meant, f->title)
                                          : ae_convert_no_memory(c, "the settings");
        json_decref(meant);
        AE_TRY(status);
    }
    return AERIE_OK;
}

/* Reads a size that may have two names. */
static aerie_status read_size(const ae_convert *c, const char *key, const char *other, uint32_t most, uint32_t *value)
{
    return ae_convert_need_u32(c, ae_convert_value(c, key) || !ae_convert_value(c, other) ? key : other, 1, most, value);
}

static aerie_status read_sizes(const ae_convert *c, ae_convert_encoder *b)
{
    const json_t *eps = ae_convert_value(c, "layer_norm_eps");
    AE_TRY(read_size(c, "hidden_size", "n_embd", AE_MAX_EMBD, &b->n_embd));
    AE_TRY(read_size(c, "num_hidden_layers", "n_layer", AE_MAX_LAYERS, &b->n_layers));
    AE_TRY(read_size(c, "num_attention_heads", "n_head", AE_MAX_HEADS, &b->n_heads));
    AE_TRY(read_size(c, "intermediate_size", "n_inner", AE_MAX_FF, &b->n_ff));
    AE_TRY(read_size(c, "max_position_embeddings", "n_positions", 1u << 20, &b->n_ctx));
    AE_TRY(ae_convert_need_u32(c, "vocab_size", 1, MAX_VOCAB, &b->n_vocab));
    if (b->family->padded) {
        uint32_t padding = 1;
        AE_TRY(ae_convert_u32(c, "pad_token_id", 0, 1u << 20, &padding));
        if (padding + 1 >= b->n_ctx)
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'max_position_embeddings' %u leaves no position after "
                           "'pad_token_id' %u", c->config_path, b->n_ctx, padding);
        b->n_skipped = padding + 1;
        b->n_ctx -= b->n_skipped;
    }
    b->n_types = 2;
    AE_TRY(ae_convert_u32(c, "type_vocab_size", 1, 1u << 10, &b->n_types));
    b->norm_eps = 1e-12;
    if (!eps) eps = ae_convert_value(c, "layer_norm_epsilon");
    AE_TRY(ae_convert_real(c, eps, "layer_norm_eps", 1e-30, 0.1, &b->norm_eps));
    if (b->n_embd % b->n_heads)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: '%s' %u is not a multiple of '%s' %u", c->config_path, "hidden_size",
                       b->n_embd, "num_attention_heads", b->n_heads);
    return AERIE_OK;
}

/* Reads the rotation: one base, without scaling. Texts longer than the training context would need a scaling, so they are
 * refused. */
static aerie_status read_rotation(const ae_convert *c, ae_convert_encoder *b)
{
    const json_t *rope = ae_convert_value(c, "rope_parameters"), *base = json_object_get(rope, "rope_theta");
    const json_t *head_dim = ae_convert_value(c, "head_dim");
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    uint32_t trained = ae_convert_value(c, "n_positions") ? 2048 : b->n_ctx;
    if (rope && !json_is_object(rope))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'rope_parameters' must be an object", c->config_path);
    if (type && strcmp(type, "default"))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'rope_type' is \"%.40s\"; for encoders, \"default\" is "
                       "supported",
                       c->config_path, type);
    if (head_dim && json_integer_value(head_dim) != b->n_embd / b->n_heads)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: 'head_dim' is not 'hidden_size' %u over 'num_attention_heads' %u", c->config_path, b->n_embd,
                       b->n_heads);
    if (ae_convert_value(c, "rotary_emb_scale_base"))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'rotary_emb_scale_base' (xPos) is not supported",
                       c->config_path);
    b->rope_base = 10000.0;
    if (!base) base = ae_convert_value(c, "rotary_emb_base");
    AE_TRY(ae_convert_real(c, base, "rotary_emb_base", 1.0, 1e12, &b->rope_base));
    AE_TRY(ae_convert_u32(c, "max_trained_positions", 1, 1u << 20, &trained));
    if (trained < b->n_ctx) b->n_ctx = trained;
    return AERIE_OK;
}

static aerie_status read_classifier(ae_convert *c, ae_convert_encoder *b)
{
    const ae_st_tensor *classifier = ae_convert_look(c, "classifier.weight");
    if (classifier && !b->family->classifier)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: classifiers of %s are not supported; --skip classifier makes a file without it", c->path,
                       b->family->title);
    if (classifier && (classifier->n_dims != 2 || classifier->shape[0] != 1))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: the classifier has several labels; rerankers have one, and --skip "
                       "classifier makes a file without it",
                       c->path);
    b->ranks = classifier != NULL;
    if (!b->ranks) return ae_convert_read_pooling(c, &b->pooling);
    b->pooling = AE_POOLING_RANK;
    return AERIE_OK;
}

static aerie_status encoder_detect(ae_convert *c, bool *mine)
{
    static const ae_convert_rename renames[] = {{"bert.", ""}, {"nomic_bert.", ""}, {"roberta.", ""}};
    ae_convert_encoder *b = &c->encoder;
    AE_TRY(ae_convert_read_names(c, renames, sizeof renames / sizeof *renames));
    const char *type = ae_convert_text(c, "model_type");
    for (size_t i = 0; i < N_FAMILIES; i++) { /* among families with the same tensors, choose by name */
        if (!ae_convert_look(c, families[i].marker)) continue;
        if (!b->family || (type && strcmp(type, families[i].model_type) == 0)) b->family = &families[i];
    }
    *mine = b->family && ae_convert_look(c, "embeddings.word_embeddings.weight");
    if (!*mine) return AERIE_OK;
    if (c->options.target)
        return ae_fail(c->error, AERIE_ERROR_ARGUMENT, "%s: this is an encoder, which has no --target", c->path);
    AE_TRY(check_settings(c, b->family));
    AE_TRY(read_sizes(c, b));
    if (b->family->rope) AE_TRY(read_rotation(c, b));
    return read_classifier(c, b);
}

/* ---- Tensors ------------------------------------------------------------------------------------------ */

/* Takes a tensor; in old checkpoints norms are called gamma and beta. */
static const ae_st_tensor *take(ae_convert *c, const char *from, const char *what, const char *old, char name[128])
{
    snprintf(name, 128, "%s.%s", from, what);
    if (ae_convert_look(c, name)) return ae_convert_take(c, name);
    snprintf(name, 128, "%s.%s", from, old);
    const ae_st_tensor *t = ae_convert_take(c, name);
    if (!t) snprintf(name, 128, "%s.%s", from, what);
    return t;
}

/* Adds a tensor [rows, columns], or with rows 0 [columns]. Tables of numbers that are added are always F32, as other programs
 * need it. */
static aerie_status add(ae_convert *c, const char *from, const char *to, const char *what, const char *old, uint64_t rows,
                        uint64_t columns, bool f32)
{
    char name[128];
    const ae_st_tensor *t = take(c, from, what, old, name);
    if (!t) return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing", c->path, name);
    const uint64_t skipped = strcmp(to, "position_embd") ? 0 : c->encoder.n_skipped;
    AE_TRY(ae_convert_check_shape(c, t, rows + skipped, columns, "by config.json"));
    snprintf(name, sizeof name, "%s.%s", to, what);
    return ae_convert_add(c, &(ae_convert_item){.name = name, .from = t, .first = skipped * columns, .rows = rows,
                                                .columns = columns, .f32 = f32,
                                                .f16 = ae_mix_needs_floats((ae_gguf_string){name, strlen(name)})});
}

static uint64_t size_of(const ae_convert_encoder *b, width w)
{
    switch (w) {
    case EMBD: return b->n_embd;
    case EMBD_3: return 3 * (uint64_t)b->n_embd;
    case FF: return b->n_ff;
    case VOCAB: return b->n_vocab;
    case POSITIONS: return b->n_ctx;
    case TYPES: return b->n_types;
    default: return 1;
    }
}

static aerie_status add_part(ae_convert *c, const part *p, const char *from, const char *to)
{
    const uint64_t rows = size_of(&c->encoder, p->rows), columns = size_of(&c->encoder, p->columns);
    if (p->kind == NORM) {
        AE_TRY(add(c, from, to, "weight", "gamma", 0, columns, true));
        return add(c, from, to, "bias", "beta", 0, columns, true);
    }
    AE_TRY(add(c, from, to, "weight", "weight", rows, columns, p->kind == TABLE));
    return p->kind == BIASED ? add(c, from, to, "bias", "bias", 0, rows, true) : AERIE_OK;
}

static aerie_status plan_layer(ae_convert *c, uint32_t i)
{
    const ae_convert_family *f = c->encoder.family;
    for (size_t k = 0; k < f->n_inside; k++) {
        char from[96], to[64];
        snprintf(from, sizeof from, "%s.%u.%s", f->layer, i, f->inside[k].from);
        snprintf(to, sizeof to, "blk.%u.%s", i, f->inside[k].to);
        AE_TRY(add_part(c, &f->inside[k], from, to));
    }
    return AERIE_OK;
}

static aerie_status encoder_plan(ae_convert *c)
{
    static const char *const unneeded[] = {"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"};
    static const part pooler = {"pooler.dense", "cls", BIASED, EMBD, EMBD},
                      classifier = {"classifier", "cls.output", BIASED, ONE, EMBD};
    const ae_convert_encoder *b = &c->encoder;
    const ae_convert_family *f = b->family;
    const bool bf16 = ae_convert_look(c, "embeddings.word_embeddings.weight")->dtype == AE_ST_BF16;
    c->out_type = c->options.type != AE_CONVERT_TYPE_AUTO ? c->options.type : bf16 ? AE_TYPE_BF16 : AE_TYPE_F16;
    for (size_t i = 0; i < f->n_outside; i++) AE_TRY(add_part(c, &f->outside[i], f->outside[i].from, f->outside[i].to));
    for (uint32_t i = 0; i < b->n_layers; i++) AE_TRY(plan_layer(c, i));
    if (b->ranks) {
        AE_TRY(add_part(c, &pooler, pooler.from, pooler.to));
        AE_TRY(add_part(c, &classifier, classifier.from, classifier.to));
    }
    for (size_t i = 0; i < c->n_entries; i++) { /* tensors of heads that were used only in training */
        static const char training[] = "cls.";
        if (strncmp(c->entries[i].name, training, sizeof training - 1) == 0) c->entries[i].used = true;
    }
    const ae_convert_entry *left = ae_convert_unused(c, unneeded, sizeof unneeded / sizeof *unneeded);
    if (!left) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s belongs to no part of a %s encoder; --skip leaves it out",
                   c->path, left->tensor->name, f->title);
}

/* ---- Keys and checks ---------------------------------------------------------------------------------- */

static aerie_status encoder_keys(const ae_convert *c, ae_gguf_writer *w)
{
    const ae_convert_encoder *b = &c->encoder;
    ae_convert_keys k = {.w = w, .arch = b->family->arch, .status = AERIE_OK, .error = c->error};
    const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {
        {"block_count", b->n_layers},          {"context_length", b->n_ctx},
        {"embedding_length", b->n_embd},       {"feed_forward_length", b->n_ff},
        {"attention.head_count", b->n_heads},  {"vocab_size", b->n_vocab},
    };
    ae_convert_put_general(&k, c);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) ae_convert_put_u32(&k, numbers[i].key, numbers[i].value);
    ae_convert_put_f32(&k, "attention.layer_norm_epsilon", b->norm_eps);
    if (b->family->rope) ae_convert_put_f32(&k, "rope.freq_base", b->rope_base);
    ae_convert_put_bool(&k, "attention.causal", false);
    if (b->pooling != AE_POOLING_NONE) ae_convert_put_u32(&k, "pooling_type", b->pooling);
    AE_TRY(k.status);
    return ae_convert_put_pieces(c, b->n_vocab, b->n_types, w);
}

static aerie_status encoder_check(ae_convert *c)
{
    ae_model *model;
    AE_TRY(ae_model_load(&model, ae_gguf_writer_part(c->writer), NULL, c->error));
    c->head_kind = c->encoder.ranks ? "BERT reranker" : c->encoder.family->rope ? "Nomic BERT encoder" : "BERT encoder";
    ae_model_free(model);
    return AERIE_OK;
}

const ae_convert_kind ae_convert_encoder_kind = {encoder_detect, encoder_plan, encoder_keys, encoder_check};

/* bert.c - encoders of BERT's kind, as transformers and sentence-transformers save them, to GGUF files of architecture bert.
 *
 * Reads: config.json, the tensors, the vocabulary (tokenizer.json, or vocab.txt), and 1_Pooling/config.json where there is one. A
 * classifier with one label makes it a reranker: the pooler's layer is its first, the classifier its second.
 * Source: transformers' BertModel and BertForSequenceClassification; names and keys are those that llama.cpp reads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "convert/convert_int.h"
#include "quant/types.h"

#define SPACE_MARK "\xe2\x96\x81"

enum { MAX_VOCAB = 1 << 22 };

static const struct special {
    const char *text, *key;
} specials[] = {
    {"[UNK]", "tokenizer.ggml.unknown_token_id"},   {"[SEP]", "tokenizer.ggml.seperator_token_id"},
    {"[PAD]", "tokenizer.ggml.padding_token_id"},   {"[CLS]", "tokenizer.ggml.cls_token_id"},
    {"[MASK]", "tokenizer.ggml.mask_token_id"},
};
#define N_SPECIALS (sizeof specials / sizeof *specials)

/* ---- Detecting -------------------------------------------------------------------------------------- */

/* A file in the checkpoint's folder, as text to be freed with ae_free; NULL if it is no folder, or out of memory. */
static char *path_in(const ae_convert *c, const char *name)
{
    struct stat info;
    ae_buf path = {0};
    if (stat(c->path, &info) || !S_ISDIR(info.st_mode)) {
        const char *slash = strrchr(c->path, '/');
        ae_buf_addf(&path, "%.*s%s", slash ? (int)(slash - c->path) + 1 : 0, c->path, name);
    } else {
        ae_buf_addf(&path, "%s/%s", c->path, name);
    }
    if (!path.failed) return path.data;
    ae_buf_free(&path);
    return NULL;
}

/* A JSON object of the folder; NULL in *json without the file. */
static aerie_status read_json(const ae_convert *c, const char *name, json_t **json)
{
    ae_file_map text;
    json_error_t where;
    char *path = path_in(c, name);
    *json = NULL;
    if (!path) return ae_convert_no_memory(c, "a path");
    aerie_status status = AERIE_OK;
    if (ae_file_exists(path)) {
        status = ae_file_map_open(&text, path, true, c->error);
        if (status == AERIE_OK) {
            *json = json_loadb((const char *)text.data, text.bytes, JSON_ALLOW_NUL, &where);
            ae_file_map_close(&text);
            if (!json_is_object(*json))
                status = ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: %s", path, *json ? "this is not a JSON object" : where.text);
        }
    }
    if (status != AERIE_OK) {
        json_decref(*json);
        *json = NULL;
    }
    ae_free(path);
    return status;
}

/* How sentence-transformers pools, unless it says nothing. */
static aerie_status read_pooling(ae_convert *c, ae_convert_bert *b)
{
    static const struct {
        const char *key;
        ae_pooling pooling;
    } modes[] = {{"pooling_mode_cls_token", AE_POOLING_CLS}, {"pooling_mode_mean_tokens", AE_POOLING_MEAN},
                 {"pooling_mode_lasttoken", AE_POOLING_LAST}};
    static const char *const others[] = {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                                         "pooling_mode_weightedmean_tokens"};
    json_t *json;
    AE_TRY(read_json(c, "1_Pooling/config.json", &json));
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (!json_is_true(json_object_get(json, modes[i].key))) continue;
        b->pooling = modes[i].pooling;
        n++;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) n += json_is_true(json_object_get(json, others[i])) ? 2 : 0;
    json_decref(json);
    if (n > 1)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 1_Pooling/config.json pools in a way, or in several at once, that a "
                       "GGUF file cannot say; mean, cls and last are possible", c->path);
    return AERIE_OK;
}

static aerie_status check_kind(const ae_convert *c)
{
    const char *position = ae_convert_text(c, "position_embedding_type"), *act = ae_convert_text(c, "hidden_act");
    const char *type = ae_convert_text(c, "model_type");
    if (type && strcmp(type, "bert"))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'model_type' is \"%.40s\"; of encoders \"bert\" is supported",
                       c->config_path, type);
    if (position && strcmp(position, "absolute"))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'position_embedding_type' is \"%.40s\"; \"absolute\" is supported",
                       c->config_path, position);
    if (act && strncmp(act, "gelu", 4))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'hidden_act' is \"%.40s\"; \"gelu\" is supported", c->config_path,
                       act);
    return AERIE_OK;
}

static aerie_status bert_detect(ae_convert *c, bool *mine)
{
    static const ae_convert_rename renames[] = {{"bert.", ""}};
    ae_convert_bert *b = &c->bert;
    AE_TRY(ae_convert_read_names(c, renames, 1));
    *mine = ae_convert_look(c, "embeddings.word_embeddings.weight") &&
            ae_convert_look(c, "encoder.layer.0.attention.self.query.weight");
    if (!*mine) return AERIE_OK;
    if (c->options.target)
        return ae_fail(c->error, AERIE_ERROR_ARGUMENT, "%s: this is an encoder, which has no --target", c->path);
    AE_TRY(check_kind(c));
    AE_TRY(ae_convert_need_u32(c, "hidden_size", 1, AE_MAX_EMBD, &b->n_embd));
    AE_TRY(ae_convert_need_u32(c, "num_hidden_layers", 1, AE_MAX_LAYERS, &b->n_layers));
    AE_TRY(ae_convert_need_u32(c, "num_attention_heads", 1, AE_MAX_HEADS, &b->n_heads));
    AE_TRY(ae_convert_need_u32(c, "intermediate_size", 1, AE_MAX_FF, &b->n_ff));
    AE_TRY(ae_convert_need_u32(c, "max_position_embeddings", 1, 1u << 20, &b->n_ctx));
    AE_TRY(ae_convert_need_u32(c, "vocab_size", 1, MAX_VOCAB, &b->n_vocab));
    b->n_types = 2;
    AE_TRY(ae_convert_u32(c, "type_vocab_size", 1, 1u << 10, &b->n_types));
    b->norm_eps = 1e-12;
    AE_TRY(ae_convert_real(c, ae_convert_value(c, "layer_norm_eps"), "layer_norm_eps", 1e-30, 0.1, &b->norm_eps));
    if (b->n_embd % b->n_heads)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: 'hidden_size' %u is no multiple of 'num_attention_heads' %u",
                       c->config_path, b->n_embd, b->n_heads);
    const ae_st_tensor *classifier = ae_convert_look(c, "classifier.weight");
    if (classifier && (classifier->n_dims != 2 || classifier->shape[0] != 1))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: the classifier has several labels; rerankers have one, and --skip "
                       "classifier makes a file without it", c->path);
    b->ranks = classifier != NULL;
    if (b->ranks) b->pooling = AE_POOLING_RANK;
    else AE_TRY(read_pooling(c, b));
    return AERIE_OK;
}

/* ---- Tensors ------------------------------------------------------------------------------------------ */

/* Norms of old checkpoints are spelled gamma and beta. */
static const ae_st_tensor *take(ae_convert *c, const char *from, const char *part, const char *old, char name[128])
{
    snprintf(name, 128, "%s.%s", from, part);
    if (ae_convert_look(c, name)) return ae_convert_take(c, name);
    snprintf(name, 128, "%s.%s", from, old);
    const ae_st_tensor *t = ae_convert_take(c, name);
    if (!t) snprintf(name, 128, "%s.%s", from, part);
    return t;
}

/* A tensor [rows, columns], rows 0: [columns]; numbers that are added are always F32, as other programs need them. */
static aerie_status add(ae_convert *c, const char *from, const char *to, const char *part, const char *old, uint64_t rows,
                        uint64_t columns, bool f32)
{
    char name[128];
    const ae_st_tensor *t = take(c, from, part, old, name);
    if (!t) return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tensor %s is missing", c->path, name);
    AE_TRY(ae_convert_check_shape(c, t, rows, columns, "by config.json"));
    snprintf(name, sizeof name, "%s.%s", to, part);
    AE_TRY(ae_convert_add(c, &(ae_convert_item){.name = name, .from = t, .rows = rows, .columns = columns}));
    if (f32) c->items[c->n_items - 1].type = AE_TYPE_F32;
    return AERIE_OK;
}

static aerie_status add_matrix(ae_convert *c, const char *from, const char *to, uint64_t rows, uint64_t columns)
{
    AE_TRY(add(c, from, to, "weight", "weight", rows, columns, false));
    return add(c, from, to, "bias", "bias", 0, rows, false);
}

static aerie_status add_norm(ae_convert *c, const char *from, const char *to)
{
    AE_TRY(add(c, from, to, "weight", "gamma", 0, c->bert.n_embd, true));
    return add(c, from, to, "bias", "beta", 0, c->bert.n_embd, true);
}

static aerie_status plan_layer(ae_convert *c, uint32_t i)
{
    const uint64_t e = c->bert.n_embd, f = c->bert.n_ff;
    const struct {
        const char *from, *to;
        uint64_t rows, columns; /* 0: a norm */
    } parts[] = {
        {"attention.self.query", "attn_q", e, e},       {"attention.self.key", "attn_k", e, e},
        {"attention.self.value", "attn_v", e, e},       {"attention.output.dense", "attn_output", e, e},
        {"attention.output.LayerNorm", "attn_output_norm", 0, 0},
        {"intermediate.dense", "ffn_up", f, e},         {"output.dense", "ffn_down", e, f},
        {"output.LayerNorm", "layer_output_norm", 0, 0},
    };
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        char from[96], to[64];
        snprintf(from, sizeof from, "encoder.layer.%u.%s", i, parts[k].from);
        snprintf(to, sizeof to, "blk.%u.%s", i, parts[k].to);
        AE_TRY(parts[k].rows ? add_matrix(c, from, to, parts[k].rows, parts[k].columns) : add_norm(c, from, to));
    }
    return AERIE_OK;
}

static aerie_status bert_plan(ae_convert *c)
{
    static const char *const unneeded[] = {"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"};
    const ae_convert_bert *b = &c->bert;
    const bool bf16 = ae_convert_look(c, "embeddings.word_embeddings.weight")->dtype == AE_ST_BF16;
    c->out_type = c->options.type != AE_CONVERT_TYPE_AUTO ? c->options.type : bf16 ? AE_TYPE_BF16 : AE_TYPE_F16;
    AE_TRY(add(c, "embeddings.word_embeddings", "token_embd", "weight", "weight", b->n_vocab, b->n_embd, false));
    AE_TRY(add(c, "embeddings.position_embeddings", "position_embd", "weight", "weight", b->n_ctx, b->n_embd, true));
    AE_TRY(add(c, "embeddings.token_type_embeddings", "token_types", "weight", "weight", b->n_types, b->n_embd, true));
    AE_TRY(add_norm(c, "embeddings.LayerNorm", "token_embd_norm"));
    for (uint32_t i = 0; i < b->n_layers; i++) AE_TRY(plan_layer(c, i));
    if (b->ranks) {
        AE_TRY(add_matrix(c, "pooler.dense", "cls", b->n_embd, b->n_embd));
        AE_TRY(add_matrix(c, "classifier", "cls.output", 1, b->n_embd));
    }
    for (size_t i = 0; i < c->n_entries; i++) { /* what the training's own heads left */
        static const char training[] = "cls.";
        if (strncmp(c->entries[i].name, training, sizeof training - 1) == 0) c->entries[i].used = true;
    }
    const ae_convert_entry *left = ae_convert_unused(c, unneeded, sizeof unneeded / sizeof *unneeded);
    if (!left) return AERIE_OK;
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tensor %s belongs to no part of a BERT encoder; --skip leaves it out",
                   c->path, left->tensor->name);
}

/* ---- The vocabulary ------------------------------------------------------------------------------------- */

typedef struct words {
    ae_gguf_string *list; /* [n_vocab] data NULL: no token has this id */
    int32_t *types;       /* [n_vocab] */
    ae_arena arena;
    uint32_t n_vocab;
} words;

static aerie_status put_word(const ae_convert *c, words *w, const char *text, size_t n, json_int_t id, bool control)
{
    static const char mark[] = SPACE_MARK;
    if (id < 0 || id >= (json_int_t)w->n_vocab)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: token \"%.*s\" has id %lld, but 'vocab_size' is %u", c->path,
                       (int)(n < 40 ? n : 40), text, (long long)id, w->n_vocab);
    for (size_t i = 0; i < N_SPECIALS; i++)
        control |= strlen(specials[i].text) == n && memcmp(specials[i].text, text, n) == 0;
    const bool inside = !control && n > 2 && memcmp(text, "##", 2) == 0;
    const size_t n_mark = control || inside ? 0 : sizeof mark - 1;
    char *copy = ae_arena_alloc(&w->arena, n + n_mark + 1, 1);
    if (!copy) return ae_convert_no_memory(c, "the vocabulary");
    memcpy(copy, mark, n_mark);
    memcpy(copy + n_mark, text + (inside ? 2 : 0), n - (inside ? 2 : 0));
    w->list[id] = (ae_gguf_string){copy, n + n_mark - (inside ? 2 : 0)};
    w->types[id] = control ? AERIE_TOKEN_CONTROL : AERIE_TOKEN_NORMAL;
    return AERIE_OK;
}

static aerie_status words_of_json(const ae_convert *c, words *w, json_t *tokenizer)
{
    const json_t *model = json_object_get(tokenizer, "model");
    const char *type = json_string_value(json_object_get(model, "type")), *text;
    json_t *vocab = json_object_get(model, "vocab"), *id, *added;
    size_t i, n;
    if ((type && strcmp(type, "WordPiece")) || !json_is_object(vocab))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tokenizer.json is of the kind \"%.40s\"; of encoders WordPiece is "
                       "supported", c->path, type ? type : "?");
    json_object_keylen_foreach(vocab, text, n, id) AE_TRY(put_word(c, w, text, n, json_is_integer(id) ? json_integer_value(id) : -1,
                                                                   false));
    json_array_foreach(json_object_get(tokenizer, "added_tokens"), i, added) {
        const json_t *content = json_object_get(added, "content");
        if (json_is_string(content))
            AE_TRY(put_word(c, w, json_string_value(content), json_string_length(content),
                            json_integer_value(json_object_get(added, "id")), json_is_true(json_object_get(added, "special"))));
    }
    return AERIE_OK;
}

static aerie_status words_of_text(const ae_convert *c, words *w)
{
    ae_file_map text;
    char *path = path_in(c, "vocab.txt");
    if (!path) return ae_convert_no_memory(c, "a path");
    aerie_status status = ae_file_exists(path) ? ae_file_map_open(&text, path, true, c->error)
                                               : ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: neither tokenizer.json nor vocab.txt is "
                                                         "beside the tensors", c->path);
    ae_free(path);
    AE_TRY(status);
    json_int_t id = 0;
    for (size_t at = 0; at < text.bytes && status == AERIE_OK; id++) {
        const char *line = (const char *)text.data + at, *end = memchr(line, '\n', text.bytes - at);
        size_t n = end ? (size_t)(end - line) : text.bytes - at;
        at += n + 1;
        if (n && line[n - 1] == '\r') n--;
        status = put_word(c, w, line, n, id, false);
    }
    ae_file_map_close(&text);
    return status;
}

/* Ids that nobody has are fillers. */
static aerie_status fill_holes(const ae_convert *c, words *w)
{
    for (uint32_t i = 0; i < w->n_vocab; i++) {
        char name[24];
        if (w->list[i].data) continue;
        const int n = snprintf(name, sizeof name, "[PAD%u]", i);
        char *copy = ae_arena_strndup(&w->arena, name, (size_t)n);
        if (!copy) return ae_convert_no_memory(c, "the vocabulary");
        w->list[i] = (ae_gguf_string){copy, (size_t)n};
        w->types[i] = AERIE_TOKEN_UNUSED;
    }
    return AERIE_OK;
}

static aerie_status write_words(const ae_convert *c, const words *w, ae_gguf_writer *out)
{
    AE_TRY(ae_gguf_writer_string(out, "tokenizer.ggml.model", "bert", c->error));
    AE_TRY(ae_gguf_writer_strings(out, "tokenizer.ggml.tokens", w->list, w->n_vocab, c->error));
    AE_TRY(ae_gguf_writer_array(out, "tokenizer.ggml.token_type", AE_GGUF_I32, w->types, w->n_vocab, c->error));
    AE_TRY(ae_gguf_writer_u32(out, "tokenizer.ggml.token_type_count", c->bert.n_types, c->error));
    for (uint32_t i = 0; i < w->n_vocab; i++)
        for (size_t k = 0; k < N_SPECIALS; k++)
            if (w->types[i] == AERIE_TOKEN_CONTROL && w->list[i].n == strlen(specials[k].text) &&
                memcmp(w->list[i].data, specials[k].text, w->list[i].n) == 0)
                AE_TRY(ae_gguf_writer_u32(out, specials[k].key, i, c->error));
    return AERIE_OK;
}

static aerie_status put_tokenizer(const ae_convert *c, ae_gguf_writer *out)
{
    words w = {.n_vocab = c->bert.n_vocab, .list = ae_alloc(c->bert.n_vocab, sizeof *w.list),
               .types = ae_alloc(c->bert.n_vocab, sizeof *w.types)};
    json_t *json = NULL;
    ae_arena_init(&w.arena, 65536);
    aerie_status status = w.list && w.types ? read_json(c, "tokenizer.json", &json) : ae_convert_no_memory(c, "the vocabulary");
    if (status == AERIE_OK) status = json ? words_of_json(c, &w, json) : words_of_text(c, &w);
    if (status == AERIE_OK) status = fill_holes(c, &w);
    if (status == AERIE_OK) status = write_words(c, &w, out);
    json_decref(json);
    ae_arena_free(&w.arena);
    ae_free(w.list);
    ae_free(w.types);
    return status;
}

/* ---- Keys and checks ---------------------------------------------------------------------------------- */

static aerie_status bert_keys(const ae_convert *c, ae_gguf_writer *w)
{
    const ae_convert_bert *b = &c->bert;
    char name[128];
    const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {
        {"bert.block_count", b->n_layers},          {"bert.context_length", b->n_ctx},
        {"bert.embedding_length", b->n_embd},       {"bert.feed_forward_length", b->n_ff},
        {"bert.attention.head_count", b->n_heads},  {"bert.vocab_size", b->n_vocab},
    };
    AE_TRY(ae_gguf_writer_string(w, "general.architecture", "bert", c->error));
    AE_TRY(ae_gguf_writer_string(w, "general.name", ae_convert_name(c, name), c->error));
    if (ae_type_get(c->out_type)->dot != AE_DOT_FLOAT)
        AE_TRY(ae_gguf_writer_u32(w, "general.quantization_version", 2, c->error));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        AE_TRY(ae_gguf_writer_u32(w, numbers[i].key, numbers[i].value, c->error));
    AE_TRY(ae_gguf_writer_f32(w, "bert.attention.layer_norm_epsilon", (float)b->norm_eps, c->error));
    AE_TRY(ae_gguf_writer_bool(w, "bert.attention.causal", false, c->error));
    if (b->pooling != AE_POOLING_NONE) AE_TRY(ae_gguf_writer_u32(w, "bert.pooling_type", b->pooling, c->error));
    return put_tokenizer(c, w);
}

static aerie_status bert_check(ae_convert *c)
{
    ae_model *model;
    AE_TRY(ae_model_load(&model, ae_gguf_writer_part(c->writer), NULL, c->error));
    c->head_kind = c->bert.ranks ? "BERT reranker" : "BERT encoder";
    ae_model_free(model);
    return AERIE_OK;
}

const ae_convert_kind ae_convert_bert_encoder = {bert_detect, bert_plan, bert_keys, bert_check};

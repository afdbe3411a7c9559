/* bert.c - encoders of BERT's kind, as transformers and sentence-transformers save them, to GGUF files of architecture bert.
 *
 * Reads: config.json, the tensors, the vocabulary (tokenizer.json, or vocab.txt), and 1_Pooling/config.json where there is one.
 * A classifier with one label makes it a reranker: the pooler's layer is its first, the classifier its second. Source:
 * transformers' BertModel and BertForSequenceClassification; names and keys are those that llama.cpp reads.
 */
#include <stdio.h>
#include <string.h>

#include "convert/vocab.h"
#include "quant/mix.h"
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
    AE_TRY(ae_convert_read_json(c, "1_Pooling/config.json", &json));
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (!json_is_true(json_object_get(json, modes[i].key))) continue;
        b->pooling = modes[i].pooling;
        n++;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) n += json_is_true(json_object_get(json, others[i])) ? 2 : 0;
    json_decref(json);
    if (n > 1)
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: 1_Pooling/config.json pools in a way, or in several at once, that a "
                       "GGUF file cannot say; mean, cls and last are possible",
                       c->path);
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
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: 'position_embedding_type' is \"%.40s\"; \"absolute\" is supported", c->config_path, position);
    if (act && strncmp(act, "gelu", 4))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: 'hidden_act' is \"%.40s\"; \"gelu\" is supported",
                       c->config_path, act);
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
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: the classifier has several labels; rerankers have one, and --skip "
                       "classifier makes a file without it",
                       c->path);
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
    return ae_convert_add(c, &(ae_convert_item){.name = name, .from = t, .rows = rows, .columns = columns, .f32 = f32,
                                                .f16 = ae_mix_needs_floats((ae_gguf_string){name, strlen(name)})});
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
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                   "%s: tensor %s belongs to no part of a BERT encoder; --skip leaves it out", c->path, left->tensor->name);
}

/* ---- The vocabulary ------------------------------------------------------------------------------------- */

static aerie_status put_word(const ae_convert *c, ae_convert_words *w, const char *text, size_t n, json_int_t id, bool control)
{
    static const char mark[] = SPACE_MARK;
    for (size_t i = 0; i < N_SPECIALS; i++)
        control |= strlen(specials[i].text) == n && memcmp(specials[i].text, text, n) == 0;
    const bool inside = !control && n > 2 && memcmp(text, "##", 2) == 0;
    const size_t n_mark = control || inside ? 0 : sizeof mark - 1;
    ae_buf marked = {0};
    ae_buf_add(&marked, mark, n_mark);
    ae_buf_add(&marked, text + (inside ? 2 : 0), n - (inside ? 2 : 0));
    const aerie_status status = marked.failed ? ae_convert_no_memory(c, "the vocabulary")
                                              : ae_convert_words_put(c, w, marked.data ? marked.data : "", marked.n, id,
                                                                     control ? AERIE_TOKEN_CONTROL : AERIE_TOKEN_NORMAL);
    ae_buf_free(&marked);
    return status;
}

static aerie_status words_of_json(const ae_convert *c, ae_convert_words *w, json_t *tokenizer)
{
    const json_t *model = json_object_get(tokenizer, "model");
    const char *type = json_string_value(json_object_get(model, "type")), *text;
    json_t *vocab = json_object_get(model, "vocab"), *id, *added;
    size_t i, n;
    if ((type && strcmp(type, "WordPiece")) || !json_is_object(vocab))
        return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED,
                       "%s: tokenizer.json is of the kind \"%.40s\"; of encoders WordPiece is "
                       "supported",
                       c->path, type ? type : "?");
    json_object_keylen_foreach(vocab, text, n, id)
        AE_TRY(put_word(c, w, text, n, json_is_integer(id) ? json_integer_value(id) : -1, false));
    json_array_foreach(json_object_get(tokenizer, "added_tokens"), i, added) {
        const json_t *content = json_object_get(added, "content");
        if (json_is_string(content))
            AE_TRY(put_word(c, w, json_string_value(content), json_string_length(content),
                            json_integer_value(json_object_get(added, "id")), json_is_true(json_object_get(added, "special"))));
    }
    return AERIE_OK;
}

static aerie_status words_of_text(const ae_convert *c, ae_convert_words *w)
{
    ae_file_map text;
    char *path = ae_convert_path_in(c, "vocab.txt");
    if (!path) return ae_convert_no_memory(c, "a path");
    aerie_status status = ae_file_exists(path) ? ae_file_map_open(&text, path, true, c->error)
                                               : ae_fail(c->error, AERIE_ERROR_FORMAT,
                                                         "%s: neither tokenizer.json nor vocab.txt is "
                                                         "beside the tensors",
                                                         c->path);
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

static aerie_status write_words(const ae_convert *c, const ae_convert_words *w, ae_gguf_writer *out)
{
    AE_TRY(ae_gguf_writer_string(out, "tokenizer.ggml.model", "bert", c->error));
    AE_TRY(ae_gguf_writer_strings(out, "tokenizer.ggml.tokens", w->list, w->n, c->error));
    AE_TRY(ae_gguf_writer_array(out, "tokenizer.ggml.token_type", AE_GGUF_I32, w->types, w->n, c->error));
    AE_TRY(ae_gguf_writer_u32(out, "tokenizer.ggml.token_type_count", c->bert.n_types, c->error));
    for (uint32_t i = 0; i < w->n; i++)
        for (size_t k = 0; k < N_SPECIALS; k++)
            if (w->types[i] == AERIE_TOKEN_CONTROL && w->list[i].n == strlen(specials[k].text) &&
                memcmp(w->list[i].data, specials[k].text, w->list[i].n) == 0)
                AE_TRY(ae_gguf_writer_u32(out, specials[k].key, i, c->error));
    return AERIE_OK;
}

static aerie_status put_tokenizer(const ae_convert *c, ae_gguf_writer *out)
{
    ae_convert_words w;
    json_t *json = NULL;
    aerie_status status = ae_convert_words_init(c, &w, c->bert.n_vocab);
    if (status == AERIE_OK) status = ae_convert_read_json(c, "tokenizer.json", &json);
    if (status == AERIE_OK) status = json ? words_of_json(c, &w, json) : words_of_text(c, &w);
    if (status == AERIE_OK) status = ae_convert_words_fill(c, &w);
    if (status == AERIE_OK) status = write_words(c, &w, out);
    json_decref(json);
    ae_convert_words_free(&w);
    return status;
}

/* ---- Keys and checks ---------------------------------------------------------------------------------- */

static aerie_status bert_keys(const ae_convert *c, ae_gguf_writer *w)
{
    const ae_convert_bert *b = &c->bert;
    ae_convert_keys k = {.w = w, .arch = "bert", .status = AERIE_OK, .error = c->error};
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
    ae_convert_put_bool(&k, "attention.causal", false);
    if (b->pooling != AE_POOLING_NONE) ae_convert_put_u32(&k, "pooling_type", b->pooling);
    AE_TRY(k.status);
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

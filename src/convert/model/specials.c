/* specials.c - added and special tokens of a model's folder: those of tokenizer_config.json and added_tokens.json that
 * tokenizer.json or tokenizer.model lack, the ids of BOS, EOS and others, and all tokens that end a generation. */
#include <string.h>

#include "convert/archs/arch.h"
#include "convert/model/vocab.h"
#include "text/token/vocab.h"

/* ---- Added tokens --------------------------------------------------------------------------------------- */

bool ae_convert_beyond(const ae_convert *c, const ae_convert_words *w, const char *text, json_int_t id)
{
    if (id >= 0 && id < (json_int_t)w->n) return false;
    ae_log_say(&c->options.log, AERIE_LOG_WARNING,
               "%s: the added token \"%.40s\" is left out: its id is %lld, but there are %u rows in the embedding", c->path,
               text, (long long)id, w->n);
    return true;
}

void ae_convert_note_twice(const ae_convert *c, const ae_convert_words *w, const char *text, size_t n, uint32_t id)
{
    const ae_gguf_string *had = &w->list[id];
    const bool added = w->types[id] == AERIE_TOKEN_CONTROL || w->types[id] == AERIE_TOKEN_USER_DEFINED;
    if (!had->data || !added || (had->n == n && memcmp(had->data, text, n) == 0)) return;
    ae_log_say(&c->options.log, AERIE_LOG_WARNING, "%s: two added tokens have the id %u, \"%.*s\" and \"%.*s\"; the latter is "
               "kept", c->path, id, (int)(had->n < 40 ? had->n : 40), had->data, (int)(n < 40 ? n : 40), text);
}

static const char *text_of(const json_t *token)
{
    return json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
}

/* Returns whether the text is one of the file's special tokens, under its own key or in a list. */
static bool is_listed(const json_t *file, const char *text)
{
    const char *key;
    json_t *value, *one;
    size_t i;
    json_object_foreach((json_t *)file, key, value) {
        const size_t n = strlen(key);
        const bool tokens = n > 7 && strcmp(key + n - 7, "_tokens") == 0; /* additional_special_tokens, extra_special_tokens */
        if (!tokens && (n < 6 || strcmp(key + n - 6, "_token"))) continue;
        if (text_of(value) && strcmp(text_of(value), text) == 0) return true;
        if (tokens) json_array_foreach(value, i, one) if (text_of(one) && strcmp(text_of(one), text) == 0) return true;
    }
    return false;
}

/* Returns whether an added token is special. added_tokens.json has no flags, so other files decide, or else its text, as in
 * llama.cpp's converter. */
static bool is_special(const ae_convert_folder *f, const char *text)
{
    static const char *const marks[][2] = {{"<|", "|>"}, {"<\xef\xbd\x9c", "\xef\xbd\x9c>"}};
    const size_t n = strlen(text);
    for (size_t i = 0; i < 2; i++) {
        const size_t k = strlen(marks[i][0]);
        if (n > 2 * k && memcmp(text, marks[i][0], k) == 0 && memcmp(text + n - k, marks[i][1], k) == 0) return true;
    }
    return is_listed(f->config, text) || is_listed(f->special, text) || ae_vocab_text_ends(text, n);
}

static bool has_text(const ae_convert_words *w, const char *text, size_t n, json_int_t id)
{
    return w->list[id].data && w->list[id].n == n && memcmp(w->list[id].data, text, n) == 0;
}

static aerie_status put_added(const ae_convert *c, ae_convert_words *w, const ae_convert_folder *f, const json_t *name,
                              json_int_t id, bool special)
{
    const char *text = json_string_value(name);
    const size_t n = json_string_length(name);
    const int32_t type = special ? AERIE_TOKEN_CONTROL : AERIE_TOKEN_USER_DEFINED;
    if (ae_convert_beyond(c, w, text, id)) return AERIE_OK;
    if (has_text(w, text, n, id)) {
        const int32_t had = w->types[id];
        if (had == AERIE_TOKEN_NORMAL || (special && had == AERIE_TOKEN_USER_DEFINED)) w->types[id] = type;
        return AERIE_OK;
    }
    if (w->list[id].data && f->tokenizer) { /* tokenizer.json has precedence, since the model was used with it */
        ae_log_say(&c->options.log, AERIE_LOG_WARNING,
                   "%s: tokenizer.json has \"%.*s\" under id %lld, where another file has \"%.40s\", which is left out",
                   c->path, (int)(w->list[id].n < 40 ? w->list[id].n : 40), w->list[id].data, (long long)id, text);
        return AERIE_OK;
    }
    ae_convert_note_twice(c, w, text, n, (uint32_t)id);
    return ae_convert_words_put(c, w, text, n, id, type);
}

/* Parses an integer in a string; -1: it is none. */
static json_int_t id_of(const char *text)
{
    json_int_t id = 0;
    if (!*text || strlen(text) > 9) return -1;
    for (; *text >= '0' && *text <= '9'; text++) id = 10 * id + (*text - '0');
    return *text ? -1 : id;
}

aerie_status ae_convert_put_added(const ae_convert *c, ae_convert_words *w, const ae_convert_folder *f)
{
    json_t *decoder = json_object_get(f->config, "added_tokens_decoder"), *token, *id;
    const char *key;
    size_t n;
    json_object_foreach(decoder, key, token) {
        const json_t *content = json_object_get(token, "content");
        if (json_is_string(content))
            AE_TRY(put_added(c, w, f, content, id_of(key), json_is_true(json_object_get(token, "special"))));
    }
    json_object_keylen_foreach(f->added, key, n, id) {
        json_t *name = json_stringn(key, n);
        const json_int_t at = json_is_integer(id) ? json_integer_value(id) : -1;
        if (!name) return ae_convert_no_memory(c, "the vocabulary");
        const bool known = at >= 0 && at < (json_int_t)w->n && has_text(w, key, n, at) && w->types[at] != AERIE_TOKEN_NORMAL;
        const aerie_status status = known ? AERIE_OK : put_added(c, w, f, name, at, is_special(f, json_string_value(name)));
        json_decref(name);
        AE_TRY(status);
    }
    return AERIE_OK;
}

/* ---- Special tokens ------------------------------------------------------------------------------------- */

/* Returns the id of a token; -1: there is no such token. */
static int64_t find_word(const ae_convert_words *w, const json_t *name)
{
    if (json_is_object(name)) name = json_object_get(name, "content");
    const size_t n = json_string_length(name);
    for (uint32_t i = 0; n && i < w->n; i++)
        if (has_text(w, json_string_value(name), n, i)) return i;
    return -1;
}

/* Reports ids in a number or a list to which no token belongs. */
static void note_strays(const ae_convert *c, const ae_convert_words *w, const char *name, const json_t *value)
{
    for (size_t i = 0; i < (json_is_array(value) ? json_array_size(value) : 1); i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
        const json_int_t id = json_is_integer(one) ? json_integer_value(one) : -1;
        if (id == -1 || (id >= 0 && id < (json_int_t)w->n)) continue; /* -1 means none */
        ae_log_say(&c->options.log, AERIE_LOG_WARNING, "%s: %s has %lld, but the vocabulary has %u tokens: it is ignored",
                   c->path, name, (long long)id, w->n);
    }
}

/* Returns an id of config.json or generation_config.json, or the first id of a list. */
static int64_t find_id(const ae_convert_words *w, const json_t *value)
{
    if (json_is_array(value)) value = json_array_get(value, 0);
    const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    return id >= 0 && id < (json_int_t)w->n ? id : -1;
}

/* Returns whether tokenizer.json puts the token before (or after) a text. */
static bool frames(const json_t *tokenizer, const ae_convert_words *w, int64_t id, bool after)
{
    const json_t *post = json_object_get(tokenizer, "post_processor");
    const json_t *template = ae_convert_find_step(post, "processors", "TemplateProcessing");
    const json_t *single = json_object_get(template, "single");
    const json_t *piece = json_array_get(single, after ? json_array_size(single) - 1 : 0);
    const json_t *name = json_object_get(json_object_get(piece, "SpecialToken"), "id");
    return id >= 0 && name && find_word(w, name) == id;
}

enum { MAX_ENDS = 64 };

typedef struct ends {
    int32_t ids[MAX_ENDS];
    size_t n;
} ends;

static void add_end(ends *e, int64_t id)
{
    for (size_t i = 0; i < e->n; i++)
        if (e->ids[i] == id) return;
    if (id >= 0 && e->n < MAX_ENDS) e->ids[e->n++] = (int32_t)id;
}

/* Collects all tokens that end a generation, EOS first. As in transformers, a number in generation_config.json replaces one in
 * config.json; lists count in both files. */
static void find_ends(ends *e, const ae_convert *c, const ae_convert_words *w, const json_t *generation, int64_t eos)
{
    const json_t *const lists[] = {json_object_get(generation, "eos_token_id"), ae_convert_value(c, "eos_token_id"),
                                   json_object_get(c->config, "eos_token_id")};
    bool any = false;
    add_end(e, eos);
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        if (!any && json_is_integer(lists[k])) add_end(e, find_id(w, lists[k]));
        any |= lists[k] && !json_is_null(lists[k]);
        for (size_t i = 0; i < json_array_size(lists[k]); i++) add_end(e, find_id(w, json_array_get(lists[k], i)));
    }
}

/* Writes the whole list under ollama's key, and under llama.cpp's two keys those that it does not recognize by their text. */
static aerie_status put_ends(const ae_convert *c, ae_gguf_writer *out, const ae_convert_words *w, const ends *e)
{
    static const char *const keys[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    size_t k = 0;
    if (e->n < 2) return AERIE_OK;
    for (size_t i = 1; i < e->n && k < 2; i++) {
        const ae_gguf_string text = w->list[e->ids[i]];
        if (!ae_vocab_text_ends(text.data, text.n)) AE_TRY(ae_gguf_writer_u32(out, keys[k++], (uint32_t)e->ids[i], c->error));
    }
    return ae_gguf_writer_array(out, "tokenizer.ggml.eos_token_ids", AE_GGUF_I32, e->ids, e->n, c->error);
}

/* Writes the mask token. config.json has precedence, since the model's own code reads it. */
static aerie_status put_mask(const ae_convert *c, ae_gguf_writer *out, const ae_convert_words *w, const ae_convert_folder *f)
{
    int64_t id = find_id(w, ae_convert_value(c, "mask_token_id"));
    if (id < 0) id = find_word(w, json_object_get(f->config, "mask_token"));
    if (id < 0) id = find_word(w, json_object_get(f->special, "mask_token"));
    if (id >= 0) return ae_gguf_writer_u32(out, "tokenizer.ggml.mask_token_id", (uint32_t)id, c->error);
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: neither 'mask_token_id' nor the tokenizer's 'mask_token' is one of the "
                   "%u tokens; the model cannot generate without a mask token", c->config_path, w->n);
}

/* Writes the tokens of encoders: around a text, between two, and instead of a hidden one. *bos and *eos get the first two if
 * there are no others. */
static aerie_status put_framing(const ae_convert *c, ae_gguf_writer *out, const ae_convert_words *w, const ae_convert_folder *f,
                                int64_t *bos, int64_t *eos)
{
    static const struct {
        const char *name, *id, *key;
    } tokens[] = {{"cls_token", "cls_token_id", "tokenizer.ggml.cls_token_id"},
                  {"sep_token", "sep_token_id", "tokenizer.ggml.seperator_token_id"}, /* misspelled in all files */
                  {"mask_token", "mask_token_id", "tokenizer.ggml.mask_token_id"}};
    int64_t ids[3];
    for (size_t i = 0; i < 3; i++) {
        ids[i] = find_word(w, json_object_get(f->config, tokens[i].name));
        if (ids[i] < 0) ids[i] = find_word(w, json_object_get(f->special, tokens[i].name));
        if (ids[i] < 0) ids[i] = find_id(w, ae_convert_value(c, tokens[i].id));
        if (ids[i] >= 0) AE_TRY(ae_gguf_writer_u32(out, tokens[i].key, (uint32_t)ids[i], c->error));
    }
    if (*bos < 0) *bos = ids[0];
    if (*eos < 0) *eos = ids[1];
    return AERIE_OK;
}

aerie_status ae_convert_put_special(const ae_convert *c, ae_gguf_writer *out, const ae_convert_words *w,
                                    const ae_convert_folder *f)
{
    static const struct {
        const char *name, *id, *key;
    } tokens[] = {{"bos_token", "bos_token_id", "tokenizer.ggml.bos_token_id"},
                  {"eos_token", "eos_token_id", "tokenizer.ggml.eos_token_id"},
                  {"unk_token", "unk_token_id", "tokenizer.ggml.unknown_token_id"},
                  {"pad_token", "pad_token_id", "tokenizer.ggml.padding_token_id"}};
    int64_t ids[4];
    ends e = {.n = 0};
    const char *kind = ae_convert_type_of(json_object_get(f->tokenizer, "model"));
    const bool framed = c->arch ? strcmp(c->arch->arch, "modern-bert") == 0 : c->encoder.family && strcmp(kind, "BPE") == 0;
    for (size_t i = 0; i < 4; i++) {
        note_strays(c, w, tokens[i].id, ae_convert_value(c, tokens[i].id));
        note_strays(c, w, tokens[i].id, json_object_get(f->generation, tokens[i].id));
        ids[i] = find_word(w, json_object_get(f->config, tokens[i].name));
        if (ids[i] < 0) ids[i] = find_word(w, json_object_get(f->special, tokens[i].name));
    }
    if (framed) AE_TRY(put_framing(c, out, w, f, &ids[0], &ids[1]));
    for (size_t i = 0; i < 4; i++) {
        if (ids[i] < 0) ids[i] = find_id(w, ae_convert_value(c, tokens[i].id));
        if (ids[i] < 0) ids[i] = find_id(w, json_object_get(f->generation, tokens[i].id));
        if (ids[i] >= 0) AE_TRY(ae_gguf_writer_u32(out, tokens[i].key, (uint32_t)ids[i], c->error));
    }
    if (framed && (ids[0] < 0 || ids[1] < 0))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: neither 'cls_token' and 'sep_token' of tokenizer_config.json nor "
                       "'bos_token_id' and 'eos_token_id' name tokens; a text begins and ends with them", c->path);
    if (c->arch && c->arch->flags & AE_ARCH_DENOISES) AE_TRY(put_mask(c, out, w, f));
    find_ends(&e, c, w, f->generation, ids[1]);
    AE_TRY(put_ends(c, out, w, &e));
    const json_t *bos = json_object_get(f->config, "add_bos_token"), *eos = json_object_get(f->config, "add_eos_token");
    const bool add_bos = f->tokenizer ? frames(f->tokenizer, w, ids[0], false) : !json_is_false(bos) && ids[0] >= 0;
    const bool add_eos = f->tokenizer ? frames(f->tokenizer, w, ids[1], true) : json_is_true(eos);
    AE_TRY(ae_gguf_writer_bool(out, "tokenizer.ggml.add_bos_token", framed || json_is_true(bos) || add_bos, c->error));
    /* programs put it between the two texts of a pair */
    if (framed || c->encoder.family) AE_TRY(ae_gguf_writer_bool(out, "tokenizer.ggml.add_sep_token", true, c->error));
    return ae_gguf_writer_bool(out, "tokenizer.ggml.add_eos_token", framed || json_is_true(eos) || add_eos, c->error);
}

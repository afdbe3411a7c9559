/* wordpiece.c - the vocabulary of an encoder: WordPiece, from tokenizer.json or vocab.txt, or Unigram (unigram.c), or
 * byte-level BPE (vocab.c). */
#include <string.h>

#include "convert/model/vocab.h"

#define SPACE_MARK "\xe2\x96\x81"

static const struct special {
    const char *text, *key;
} specials[] = {
    {"[UNK]", "tokenizer.ggml.unknown_token_id"},   {"[SEP]", "tokenizer.ggml.seperator_token_id"},
    {"[PAD]", "tokenizer.ggml.padding_token_id"},   {"[CLS]", "tokenizer.ggml.cls_token_id"},
    {"[MASK]", "tokenizer.ggml.mask_token_id"},
};
#define N_SPECIALS (sizeof specials / sizeof *specials)

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
                       "%s: tokenizer.json is of the kind \"%.40s\"; for encoders, WordPiece and "
                       "Unigram are supported, and for RoBERTa and JinaBERT 2 byte-level BPE",
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
    char *text = NULL, *path = ae_convert_path_in(c, "vocab.txt");
    size_t n_text = 0;
    if (!path) return ae_convert_no_memory(c, "a path");
    aerie_status status = ae_file_exists(path) ? ae_convert_read_text(c, path, &text, &n_text)
                                               : ae_fail(c->error, AERIE_ERROR_FORMAT,
                                                         "%s: neither tokenizer.json nor vocab.txt is "
                                                         "beside the tensors",
                                                         c->path);
    ae_free(path);
    AE_TRY(status);
    json_int_t id = 0;
    for (size_t at = 0; at < n_text && status == AERIE_OK; id++) {
        const char *line = text + at, *end = memchr(line, '\n', n_text - at);
        size_t n = end ? (size_t)(end - line) : n_text - at;
        at += n + 1;
        if (n && line[n - 1] == '\r') n--;
        status = put_word(c, w, line, n, id, false);
    }
    ae_free(text);
    return status;
}

static aerie_status write_words(const ae_convert *c, const ae_convert_words *w, uint32_t n_types, ae_gguf_writer *out)
{
    AE_TRY(ae_gguf_writer_string(out, "tokenizer.ggml.model", "bert", c->error));
    AE_TRY(ae_gguf_writer_strings(out, "tokenizer.ggml.tokens", w->list, w->n, c->error));
    AE_TRY(ae_gguf_writer_array(out, "tokenizer.ggml.token_type", AE_GGUF_I32, w->types, w->n, c->error));
    AE_TRY(ae_gguf_writer_u32(out, "tokenizer.ggml.token_type_count", n_types, c->error));
    for (uint32_t i = 0; i < w->n; i++)
        for (size_t k = 0; k < N_SPECIALS; k++)
            if (w->types[i] == AERIE_TOKEN_CONTROL && w->list[i].n == strlen(specials[k].text) &&
                memcmp(w->list[i].data, specials[k].text, w->list[i].n) == 0)
                AE_TRY(ae_gguf_writer_u32(out, specials[k].key, i, c->error));
    return AERIE_OK;
}

/* XLM-R has a Unigram vocabulary, RoBERTa a byte-level BPE; both have the folder's special tokens. */
static aerie_status put_pieces(const ae_convert *c, ae_convert_words *w, uint32_t n_types, const char *bpe, ae_gguf_writer *out)
{
    ae_convert_folder f = {0};
    aerie_status status = ae_convert_read_folder(c, &f);
    if (status == AERIE_OK)
        status = bpe ? ae_convert_put_bpe(c, out, w, &f, bpe) : ae_convert_put_unigram(c, out, w, &f, NULL);
    if (status == AERIE_OK) status = ae_gguf_writer_u32(out, "tokenizer.ggml.token_type_count", n_types, c->error);
    if (status == AERIE_OK) status = ae_convert_put_special(c, out, w, &f);
    ae_convert_folder_free(&f);
    return status;
}

aerie_status ae_convert_put_pieces(const ae_convert *c, uint32_t n_vocab, uint32_t n_types, const char *bpe,
                                   ae_gguf_writer *out)
{
    ae_convert_words w;
    json_t *json = NULL;
    aerie_status status = ae_convert_words_init(c, &w, n_vocab);
    if (status == AERIE_OK) status = ae_convert_read_json(c, "tokenizer.json", &json);
    const bool bytes = bpe && json && strcmp(ae_convert_type_of(json_object_get(json, "model")), "BPE") == 0 &&
                       ae_convert_is_byte_level(json);
    const bool pieces = bytes || ae_convert_is_unigram(json);
    if (status == AERIE_OK && pieces) status = put_pieces(c, &w, n_types, bytes ? bpe : NULL, out);
    if (status == AERIE_OK && !pieces) status = json ? words_of_json(c, &w, json) : words_of_text(c, &w);
    if (status == AERIE_OK && !pieces) status = ae_convert_words_fill(c, &w);
    if (status == AERIE_OK && !pieces) status = write_words(c, &w, n_types, out);
    json_decref(json);
    ae_convert_words_free(&w);
    return status;
}

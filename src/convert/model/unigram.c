/* unigram.c - Unigram vocabularies of SentencePiece: from tokenizer.json, as tokenizers writes those of T5 and XLM-R, or from
 * the pieces of tokenizer.model (spm.c). Writes them as "t5", with the map of characters that normalizes text.
 * Steps of tokenizer.json that a GGUF file cannot express are refused. Sources: tokenizers' Unigram, Precompiled and
 * Metaspace. */
#include <string.h>

#include "convert/model/vocab.h"

bool ae_convert_is_unigram(const json_t *tokenizer)
{
    return strcmp(ae_convert_type_of(json_object_get(tokenizer, "model")), "Unigram") == 0;
}

/* ---- The map of characters ------------------------------------------------------------------------------------- */

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool ae_convert_base64(const char *text, size_t n, ae_buf *out)
{
    uint32_t bits = 0;
    unsigned n_bits = 0;
    while (n && text[n - 1] == '=') n--;
    if (n % 4 == 1) return false;
    for (size_t i = 0; i < n; i++) {
        const int digit = digit_of(text[i]);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        const char byte = (char)(bits >> n_bits & 0xFF);
        ae_buf_add(out, &byte, 1);
    }
    return true;
}

/* Returns whether the step replaces runs of spaces by one space, or by its mark. */
static bool joins_spaces(const json_t *step)
{
    const char *pattern = json_string_value(json_object_get(json_object_get(step, "pattern"), "Regex"));
    const char *content = json_string_value(json_object_get(step, "content"));
    return pattern && content && strcmp(pattern, " {2,}") == 0 &&
           (strcmp(content, " ") == 0 || strcmp(content, "\xe2\x96\x81") == 0);
}

static aerie_status fail_step(const ae_convert *c, const char *type)
{
    return ae_fail(c->error, AERIE_ERROR_UNSUPPORTED, "%s: tokenizer.json normalizes text by a step \"%.40s\", which a GGUF "
                   "file with a Unigram vocabulary cannot express; supported are a character map (Precompiled), Strip and a "
                   "Replace of spaces by one, and WhitespaceSplit and Metaspace after them", c->path, *type ? type : "?");
}

/* Reads the steps of the normalizer: the map of characters to s->charsmap, and whether repeated spaces are dropped. */
static aerie_status read_normalizer(const ae_convert *c, const json_t *normalizer, ae_convert_spm *s)
{
    const json_t *steps = json_object_get(normalizer, "normalizers");
    const size_t n = steps ? json_array_size(steps) : json_is_object(normalizer);
    for (size_t i = 0; i < n; i++) {
        const json_t *step = steps ? json_array_get(steps, i) : normalizer;
        const json_t *map = json_object_get(step, "precompiled_charsmap");
        const char *type = ae_convert_type_of(step);
        if (strcmp(type, "Precompiled") == 0 && s->charsmap.n == 0) {
            if (map && !json_is_null(map) &&
                (!json_is_string(map) || !ae_convert_base64(json_string_value(map), json_string_length(map), &s->charsmap)))
                return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tokenizer.json: 'precompiled_charsmap' is not base64",
                               c->path);
            if (s->charsmap.failed) return ae_convert_no_memory(c, "a map of characters");
        } else if (strcmp(type, "Replace") == 0 && joins_spaces(step)) {
            s->collapses = true;
        } else if (strcmp(type, "Strip") != 0) {
            return fail_step(c, type);
        }
    }
    return AERIE_OK;
}

static aerie_status read_pre_tokenizer(const ae_convert *c, const json_t *pre, ae_convert_spm *s)
{
    const json_t *steps = json_object_get(pre, "pretokenizers");
    const size_t n = steps ? json_array_size(steps) : json_is_object(pre);
    for (size_t i = 0; i < n; i++) {
        const char *type = ae_convert_type_of(steps ? json_array_get(steps, i) : pre);
        if (strcmp(type, "WhitespaceSplit") == 0) s->collapses = true;
        else if (strcmp(type, "Metaspace") != 0) return fail_step(c, type);
    }
    return AERIE_OK;
}

/* ---- Pieces ---------------------------------------------------------------------------------------------------- */

static aerie_status read_pieces(const ae_convert *c, ae_convert_words *w, const json_t *model)
{
    const json_t *vocab = json_object_get(model, "vocab"), *unknown = json_object_get(model, "unk_id"), *piece;
    const bool bytes = json_is_true(json_object_get(model, "byte_fallback"));
    size_t i;
    if (!json_is_array(vocab))
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tokenizer.json: 'vocab' of a Unigram model must be a list", c->path);
    json_array_foreach((json_t *)vocab, i, piece) {
        const json_t *text = json_array_get(piece, 0), *score = json_array_get(piece, 1);
        if (!json_is_string(text) || !json_is_number(score))
            return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tokenizer.json: entry %zu of 'vocab' is not a text and a number",
                           c->path, i);
        const char *data = json_string_value(text);
        const size_t n = json_string_length(text);
        int32_t type = AERIE_TOKEN_NORMAL;
        if (bytes && n == 6 && memcmp(data, "<0x", 3) == 0 && data[5] == '>') type = AERIE_TOKEN_BYTE;
        if (json_is_integer(unknown) && json_integer_value(unknown) == (json_int_t)i) type = AERIE_TOKEN_UNKNOWN;
        AE_TRY(ae_convert_words_put(c, w, data, n, (json_int_t)i, type));
        w->scores[i] = (float)json_number_value(score);
    }
    return AERIE_OK;
}

static aerie_status read_json(const ae_convert *c, ae_convert_words *w, const json_t *tokenizer, ae_convert_spm *s)
{
    s->space = ae_convert_adds_space(tokenizer);
    AE_TRY(read_normalizer(c, json_object_get(tokenizer, "normalizer"), s));
    AE_TRY(read_pre_tokenizer(c, json_object_get(tokenizer, "pre_tokenizer"), s));
    AE_TRY(read_pieces(c, w, json_object_get(tokenizer, "model")));
    return ae_convert_put_json_added(c, w, tokenizer);
}

static aerie_status put(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w, const ae_convert_folder *f,
                        const ae_convert_spm *s)
{
    AE_TRY(ae_convert_put_added(c, w, f));
    AE_TRY(ae_convert_put_words(c, out, w, "t5", true));
    AE_TRY(ae_gguf_writer_bool(out, "tokenizer.ggml.add_space_prefix", s->space, c->error));
    AE_TRY(ae_gguf_writer_bool(out, "tokenizer.ggml.remove_extra_whitespaces", s->collapses, c->error));
    if (!s->charsmap.n) return AERIE_OK;
    return ae_gguf_writer_array(out, "tokenizer.ggml.precompiled_charsmap", AE_GGUF_U8, s->charsmap.data, s->charsmap.n,
                                c->error);
}

aerie_status ae_convert_put_unigram(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w, const ae_convert_folder *f,
                                    ae_convert_spm *s)
{
    if (s) return put(c, out, w, f, s);
    ae_convert_spm own = {.there = true, .unigram = true};
    aerie_status status = read_json(c, w, f->tokenizer, &own);
    if (status == AERIE_OK) status = put(c, out, w, f, &own);
    ae_buf_free(&own.charsmap);
    return status;
}

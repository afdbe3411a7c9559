/* unigram.c - vocabularies whose tokens are looked up in a trie: Unigram, PLaMo-2 and RWKV.
 *
 * Unigram (SentencePiece's, T5 and XLM-R): the text is normalized by the model's map of characters, and each word becomes the
 * tokens with the best sum of scores; sums are double, as in Hugging Face tokenizers. A character that no token covers costs
 * ten more than the worst token and becomes the unknown token (neighbours share one), or its bytes if all bytes have tokens.
 * PLaMo-2: the same from the end of the text on, with scores in units of 1e-4; among equal sums the one with the longer first
 * token wins. Characters without a token are spelled in bytes. RWKV: at each place the longest token.
 * Time is linear in the text, for tokens of a given length. Sources: SentencePiece's unigram_model.cc and normalizer.cc,
 * PLaMo-2's tokenizer, RWKV's reference tokenizer; ids as llama.cpp's, but text never becomes a control token.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "text/token/unicode.h"
#include "text/token/vocab_int.h"

#define SPACE_MARK "\xe2\x96\x81"
#define BOM "\xef\xbb\xbf"

/* ---- Loading --------------------------------------------------------------------------------------------------- */

static aerie_status load_scores(ae_vocab *vocab, const ae_gguf *gguf, float *worst, aerie_error *error)
{
    static const char key[] = "tokenizer.ggml.scores";
    const size_t n = (size_t)vocab->n_tokens;
    const ae_gguf_kv *kv = ae_gguf_kv_find(gguf, key);
    if (!kv || kv->type != AE_GGUF_ARRAY || kv->n < n)
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s must be an array with one number for each of the %zu tokens", key, n);
    vocab->scores = ae_alloc(n, sizeof *vocab->scores);
    if (!vocab->scores) return ae_fail_memory(error, "the token scores", n * sizeof *vocab->scores);
    *worst = FLT_MAX;
    for (size_t i = 0; i < n; i++) {
        double value;
        int64_t whole; /* as in vocab.c */
        if (ae_gguf_kv_int(kv, i, &whole)) value = (double)whole;
        else if (!ae_gguf_kv_float(kv, i, &value)) value = NAN;
        if (!isfinite((float)value))
            return ae_fail(error, AERIE_ERROR_FORMAT, "%s: entry %zu is not a finite number", key, i);
        vocab->scores[i] = (float)value;
        if (vocab->types[i] == AE_TOKEN_NORMAL && vocab->scores[i] < *worst) *worst = vocab->scores[i];
        if (vocab->types[i] == AE_TOKEN_USER) vocab->scores[i] = 0;
    }
    return AERIE_OK;
}

aerie_status ae_vocab_build_trie(ae_vocab *vocab, aerie_error *error)
{
    const size_t n = (size_t)vocab->n_tokens;
    ae_trie_string *strings = ae_alloc(n, sizeof *strings);
    if (!strings) return ae_fail_memory(error, "the tokens", n * sizeof *strings);
    size_t n_strings = 0;
    for (int32_t id = 0; id < vocab->n_tokens; id++) {
        if (vocab->types[id] == AE_TOKEN_CONTROL || vocab->types[id] == AE_TOKEN_UNUSED) continue; /* also [PAD123] */
        ae_trie_string *string = &strings[n_strings++];
        string->id = id;
        string->bytes = ae_strings_get(&vocab->keys, id, &string->n);
    }
    const aerie_status status = ae_trie_build(&vocab->trie, strings, n_strings, error);
    ae_free(strings);
    return status;
}

static bool has_all_bytes(const ae_vocab *vocab)
{
    for (int byte = 0; byte < 256; byte++)
        if (vocab->byte_token[byte] < 0) return false;
    return true;
}

aerie_status ae_ugm_load(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error)
{
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    float worst;
    vocab->spm = vocab->ugm = true;
    vocab->add_eos = true;
    AE_TRY(ae_vocab_load_tokens(vocab, gguf, error));
    AE_TRY(load_scores(vocab, gguf, &worst, error));
    vocab->unknown_score = worst == FLT_MAX ? -10.0f : worst - 10.0f;
    const ae_gguf_kv *kv = ae_gguf_kv_find(gguf, key);
    if (kv && (kv->type != AE_GGUF_ARRAY || (kv->element_type != AE_GGUF_I8 && kv->element_type != AE_GGUF_U8)))
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s must be an array of bytes", key);
    if (kv) AE_TRY(ae_charsmap_create(&vocab->charsmap, kv->data, (size_t)kv->n, key, error));
    AE_TRY(ae_gguf_get_bool(gguf, "tokenizer.ggml.remove_extra_whitespaces", false, &vocab->collapses_spaces, error));
    vocab->split_at_space = ae_vocab_splits_at_space(vocab);
    vocab->byte_fallback = has_all_bytes(vocab);
    snprintf(vocab->kind, sizeof vocab->kind, "unigram");
    return AERIE_OK;
}

aerie_status ae_plamo2_load(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error)
{
    float worst;
    vocab->plamo2 = vocab->verbatim = true;
    AE_TRY(ae_vocab_load_tokens(vocab, gguf, error));
    AE_TRY(load_scores(vocab, gguf, &worst, error));
    for (int byte = 0; byte < 256; byte++)
        if (vocab->byte_token[byte] < 0)
            return ae_fail(error, AERIE_ERROR_FORMAT, "tokenizer.ggml.tokens has no byte token <0x%02X>; PLaMo-2's vocabulary "
                           "has one for each byte", (unsigned)byte);
    snprintf(vocab->kind, sizeof vocab->kind, "plamo2");
    return AERIE_OK;
}

aerie_status ae_rwkv_load(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error)
{
    vocab->rwkv = vocab->verbatim = true;
    AE_TRY(ae_vocab_load_tokens(vocab, gguf, error));
    snprintf(vocab->kind, sizeof vocab->kind, "rwkv");
    return AERIE_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* RWKV spells bytes as Python's literals do. An unknown escape stands for its character. */
void ae_rwkv_unescape(const char *text, size_t n, ae_buf *out)
{
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '\\' && i + 1 < n) {
            c = text[++i];
            const int hi = c == 'x' && i + 2 < n ? hex_digit(text[i + 1]) : -1, lo = hi >= 0 ? hex_digit(text[i + 2]) : -1;
            if (c == 't') c = '\t';
            else if (c == 'n') c = '\n';
            else if (c == 'r') c = '\r';
            else if (lo >= 0) {
                c = (char)(hi * 16 + lo);
                i += 2;
            }
        }
        ae_buf_add(out, &c, 1);
    }
}

/* ---- Normalization --------------------------------------------------------------------------------------------- */

/* The normalized text so far, and SentencePiece's state after it. */
typedef struct normal {
    ae_buf *out;
    bool collapses, in_word, pending; /* pending: U+2581 is due before the next character of a word */
} normal;

static void add_normal(normal *s, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != ' ') {
            if (s->pending) ae_buf_add(s->out, SPACE_MARK, 3);
            ae_buf_add(s->out, bytes + i, 1);
            s->pending = false;
            s->in_word = true;
        } else if (!s->collapses) {
            if (s->pending) ae_buf_add(s->out, SPACE_MARK, 3);
            ae_buf_add(s->out, SPACE_MARK, 3);
            s->pending = false;
        } else if (s->in_word) { /* spaces before the first word, and after the last, are dropped */
            s->pending = true;
        }
    }
}

aerie_status ae_ugm_normalize(const ae_vocab *vocab, const char *text, size_t n, bool prefix, ae_buf *out, aerie_error *error)
{
    const size_t begin = out->n, most = 64 * n + 64; /* published maps make at most 11 bytes from one */
    normal s = {.out = out, .collapses = vocab->collapses_spaces, .pending = prefix};
    for (size_t i = 0; i < n && !out->failed;) {
        const char *replacement;
        size_t n_replacement;
        uint32_t n_bytes;
        const size_t length = ae_charsmap_find(&vocab->charsmap, text + i, n - i, &replacement, &n_replacement);
        if (length) {
            add_normal(&s, replacement, n_replacement);
            i += length;
        } else {
            const bool bad = ae_uni_decode(text + i, n - i, &n_bytes) == AE_UNI_BAD;
            add_normal(&s, bad ? "\xef\xbf\xbd" : text + i, bad ? 3 : n_bytes);
            i += n_bytes;
        }
        if (out->n - begin > most)
            return ae_fail(error, AERIE_ERROR_LIMIT, "the model's map of characters makes more than %zu bytes of a text of %zu",
                           most, n);
    }
    return out->failed ? ae_fail_memory(error, "a normalized text", n) : AERIE_OK;
}

/* ---- Encoding -------------------------------------------------------------------------------------------------- */

bool ae_lattice_reserve(ae_lattice *lattice, size_t n)
{
    if (n <= lattice->capacity) return true;
    const size_t capacity = n < 256 ? 256 : n + n / 2;
    ae_lattice_place *places = ae_realloc(lattice->places, capacity, sizeof *places);
    if (!places) return false;
    lattice->places = places;
    lattice->capacity = capacity;
    return true;
}

void ae_lattice_free(ae_lattice *lattice)
{
    ae_free(lattice->places);
    *lattice = (ae_lattice){0};
}

static aerie_status fail_lattice(size_t n, aerie_error *error)
{
    return ae_fail_memory(error, "the ways to split a text", n * sizeof(ae_lattice_place));
}

static bool add_bytes(const ae_vocab *vocab, const char *bytes, size_t n, ae_tokens *out)
{
    for (size_t i = 0; i < n; i++)
        if (!ae_tokens_add(out, vocab->byte_token[(uint8_t)bytes[i]])) return false;
    return true;
}

/* Offers a path that ends at a place; the first of equal ones is kept. */
static void offer(ae_lattice_place *place, double score, int32_t id, size_t other)
{
    if (score > place->score) *place = (ae_lattice_place){score, id, (uint32_t)other};
}

aerie_status ae_ugm_word(const ae_vocab *vocab, ae_lattice *lattice, const char *word, size_t n, ae_tokens *out,
                         aerie_error *error)
{
    if (!ae_lattice_reserve(lattice, n + 1)) return fail_lattice(n, error);
    ae_lattice_place *at = lattice->places; /* at[i]: the best path to i; other: where its last token begins */
    for (size_t i = 0; i <= n; i++) at[i] = (ae_lattice_place){i ? -DBL_MAX : 0, -1, 0};
    for (size_t i = 0, next; i < n; i = next) {
        uint32_t n_bytes, node = 0;
        ae_uni_decode(word + i, n - i, &n_bytes);
        next = i + n_bytes;
        bool single = false;
        for (size_t k = i; k < n && (node = ae_trie_step(&vocab->trie, node, (uint8_t)word[k])) != 0; k++) {
            const int32_t id = vocab->trie.nodes[node].id;
            if (id < 0) continue;
            offer(&at[k + 1], at[i].score + (double)vocab->scores[id], id, i);
            single = single || k + 1 == next;
        }
        if (!single) offer(&at[next], at[i].score + (double)vocab->unknown_score, -1, i);
    }
    /* The best path is known from its end. It is reversed by giving each place its successor. */
    uint32_t after = (uint32_t)n;
    for (size_t i = n; i > 0; after = (uint32_t)i, i = at[i].other) at[i].score = (double)after;
    bool ok = true, unknown = false;
    for (size_t i = 0, end = after; ok && i < n; i = end, end = (size_t)at[end].score) {
        if (at[end].id >= 0) ok = ae_tokens_add(out, at[end].id);
        else if (vocab->byte_fallback) ok = add_bytes(vocab, word + i, end - i, out);
        else if (!unknown && vocab->unknown >= 0) ok = ae_tokens_add(out, vocab->unknown);
        unknown = at[end].id < 0;
        if (end == n) break;
    }
    return ok ? AERIE_OK : ae_fail_memory(error, "the tokens of a text", out->n * sizeof *out->data);
}

aerie_status ae_plamo2_text(const ae_vocab *vocab, ae_lattice *lattice, const char *text, size_t n, ae_tokens *out,
                            aerie_error *error)
{
    enum { UNKNOWN = -10000000, INVALID = -20000000 };
    if (n >= 3 && memcmp(text, BOM, 3) == 0) {
        text += 3;
        n -= 3;
    }
    if (!ae_lattice_reserve(lattice, n + 1)) return fail_lattice(n, error);
    ae_lattice_place *at = lattice->places; /* at[i]: the best path from i to the end; other: where its first token ends */
    uint32_t n_bytes;
    for (size_t i = 0; i <= n; i++) at[i] = (ae_lattice_place){i < n ? -DBL_MAX : 0, -1, 0};
    for (size_t i = 0; i < n; i += n_bytes) {
        ae_uni_decode(text + i, n - i, &n_bytes);
        at[i].other = n_bytes; /* 0: no character begins there */
    }
    for (size_t i = n; i-- > 0;) {
        uint32_t node = 0;
        if ((n_bytes = at[i].other) == 0) continue;
        offer(&at[i], at[i + n_bytes].score + UNKNOWN, -1, i + n_bytes);
        for (size_t k = i; k < n && (node = ae_trie_step(&vocab->trie, node, (uint8_t)text[k])) != 0; k++) {
            const int32_t id = vocab->trie.nodes[node].id;
            if (id < 0) continue;
            const double score = round((double)vocab->scores[id] * 1e4);
            if (score > INVALID && at[k + 1].score > -DBL_MAX && at[k + 1].score + score >= at[i].score)
                at[i] = (ae_lattice_place){at[k + 1].score + score, id, (uint32_t)(k + 1)};
        }
    }
    bool ok = true;
    for (size_t i = 0, next; ok && i < n; i = next) {
        next = at[i].other;
        ok = at[i].id >= 0 ? ae_tokens_add(out, at[i].id) : add_bytes(vocab, text + i, next - i, out);
    }
    return ok ? AERIE_OK : ae_fail_memory(error, "the tokens of a text", out->n * sizeof *out->data);
}

aerie_status ae_rwkv_text(const ae_vocab *vocab, const char *text, size_t n, ae_tokens *out, aerie_error *error)
{
    for (size_t i = 0, length; i < n; i += length) {
        length = 1;
        int32_t id = ae_trie_longest(&vocab->trie, text + i, n - i, &length);
        if (id < 0) id = vocab->unknown;
        if (id >= 0 && !ae_tokens_add(out, id))
            return ae_fail_memory(error, "the tokens of a text", out->n * sizeof *out->data);
    }
    return AERIE_OK;
}

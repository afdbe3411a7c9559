/* vocab.c - builds a vocabulary from the keys of a GGUF file, and answers questions about it.
 *
 * The file may be hostile: counts, ids and types are checked here; errors are FORMAT and name the
 * key and the entry. Loading is linear in the size of the vocabulary.
 * Source: the GGUF specification, "Tokenizer"; defaults as llama.cpp's.
 */
#include "text/token/vocab.h"

#include <math.h>
#include <stdio.h>

#include "text/token/unicode.h"
#include "text/token/vocab_int.h"

#define SPACE_MARK "\xe2\x96\x81" /* U+2581, how SPM spells a space */

bool ae_tokens_add(ae_tokens *tokens, int32_t token)
{
    int32_t *data = ae_grow(tokens->data, tokens->n, &tokens->capacity, sizeof *data);
    if (!data) return false;
    tokens->data = data;
    tokens->data[tokens->n++] = token;
    return true;
}

bool ae_tokens_reserve(ae_tokens *tokens, size_t n)
{
    if (n <= tokens->capacity) return true;
    int32_t *data = ae_realloc(tokens->data, n, sizeof *data);
    if (!data) return false;
    tokens->data = data;
    tokens->capacity = n;
    return true;
}

void ae_tokens_free(ae_tokens *tokens)
{
    ae_free(tokens->data);
    *tokens = (ae_tokens){0};
}

/* ---- Tokens ------------------------------------------------------------------------------- */

static aerie_status load_types(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error)
{
    static const char key[] = "tokenizer.ggml.token_type";
    size_t n = (size_t)vocab->n_tokens;
    vocab->types = ae_alloc(n, 1);
    vocab->flags = ae_alloc(n, 1);
    if (!vocab->types || !vocab->flags) return ae_fail_memory(error, "the token types", 2 * n);
    memset(vocab->types, AE_TOKEN_NORMAL, n);
    const ae_gguf_kv *kv = ae_gguf_kv_find(gguf, key);
    if (!kv) return AERIE_OK;
    if (kv->type != AE_GGUF_ARRAY || kv->n < n) {
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s must be an array with one integer for each of the %zu tokens", key,
                       n);
    }
    for (size_t i = 0; i < n; i++) {
        int64_t type;
        if (!ae_gguf_kv_int(kv, i, &type) || type < 0 || type > AE_TOKEN_BYTE) {
            return ae_fail(error, AERIE_ERROR_FORMAT, "%s: entry %zu is not a token type (0 to %d)", key, i,
                           AE_TOKEN_BYTE);
        }
        vocab->types[i] = type ? (uint8_t)type : AE_TOKEN_NORMAL;
    }
    return AERIE_OK;
}

/* Scores become the order in which pairs merge: the best score first, as an unsigned integer. Without scores all tokens have
 * the same, by the description of GGUF and in llama.cpp; a file with merges, however, is one of BPE. */
static aerie_status load_scores(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error)
{
    static const char key[] = "tokenizer.ggml.scores";
    size_t n = (size_t)vocab->n_tokens;
    const ae_gguf_kv *kv = ae_gguf_kv_find(gguf, key);
    if (!kv && ae_gguf_kv_find(gguf, "tokenizer.ggml.merges"))
        return ae_fail(error, AERIE_ERROR_FORMAT, "tokenizer.ggml.model is \"llama\" (SPM), but the file has merges and no "
                       "tokenizer.ggml.scores, as BPE has it: --override-kv tokenizer.ggml.model=str:gpt2 reads it so");
    if (kv && (kv->type != AE_GGUF_ARRAY || kv->n < n)) {
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s must be an array with one number for each of the %zu tokens", key,
                       n);
    }
    vocab->order = ae_alloc(n, sizeof *vocab->order);
    if (!vocab->order) return ae_fail_memory(error, "the token scores", n * sizeof *vocab->order);
    if (!kv) snprintf(vocab->warning, sizeof vocab->warning, "%s is missing: all tokens count the same", key);
    for (size_t i = 0; kv && i < n; i++) {
        double value;
        int64_t whole; /* writers in other languages make a list of integers of scores without a fraction */
        if (ae_gguf_kv_int(kv, i, &whole)) value = (double)whole;
        else if (!ae_gguf_kv_float(kv, i, &value)) value = NAN;
        if (value != value) {
            return ae_fail(error, AERIE_ERROR_FORMAT, "%s: entry %zu is not a number", key, i);
        }
        float score = (float)value + 0.0f; /* -0 and 0 are the same score */
        uint32_t bits;
        memcpy(&bits, &score, sizeof bits);
        vocab->order[i] = ~(bits & 0x80000000u ? ~bits : bits | 0x80000000u);
    }
    return AERIE_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the byte of "<0xAB>", or -1. */
static int byte_of(const char *text, size_t n)
{
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int hi = hex_digit(text[3]), lo = hex_digit(text[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

/* Byte tokens count by their texts where no token has that type: the types are optional, and some converters write all as
 * normal. */
static void find_bytes(ae_vocab *vocab, const ae_gguf_kv *tokens)
{
    ae_gguf_string text;
    size_t cursor = 0;
    for (int32_t id = 0; id < vocab->n_tokens; id++)
        if (vocab->types[id] == AE_TOKEN_BYTE) return;
    for (int32_t id = 0; id < vocab->n_tokens && ae_gguf_kv_next_string(tokens, &cursor, &text); id++)
        if (vocab->types[id] == AE_TOKEN_NORMAL && byte_of(text.data, text.n) >= 0) vocab->types[id] = AE_TOKEN_BYTE;
}

/* Writes the bytes that the token prints to `out`. */
static void make_piece(const ae_vocab *vocab, uint8_t type, ae_gguf_string text, ae_buf *out)
{
    int byte = type == AE_TOKEN_BYTE ? byte_of(text.data, text.n) : -1;
    ae_buf_clear(out);
    if (byte >= 0) {
        char c = (char)byte;
        ae_buf_add(out, &c, 1);
    } else if (type != AE_TOKEN_NORMAL && type != AE_TOKEN_UNUSED) {
        ae_buf_add(out, text.data, text.n);
    } else if (vocab->verbatim) {
        if (vocab->rwkv) ae_rwkv_unescape(text.data, text.n, out);
        else ae_buf_add(out, text.data, text.n);
    } else if (vocab->spm) {
        for (size_t i = 0; i < text.n;) {
            bool space = text.n - i >= 3 && memcmp(text.data + i, SPACE_MARK, 3) == 0;
            ae_buf_add(out, space ? " " : text.data + i, 1);
            i += space ? 3 : 1;
        }
    } else {
        size_t n;
        ae_buf_add(out, text.data, text.n);
        if (!out->failed && text.n && ae_bytemap_decode(text.data, text.n, out->data, &n)) out->n = n;
    }
}

/* Adds the piece and the key of one token (vocab_int.h says which tokens have a key). */
static bool add_token(ae_vocab *vocab, int32_t id, ae_gguf_string text, ae_buf *scratch)
{
    uint8_t type = vocab->types[id];
    make_piece(vocab, type, text, scratch);
    if (scratch->failed || !ae_strings_add(&vocab->pieces, scratch->data, scratch->n)) return false;
    if (type == AE_TOKEN_BYTE) {
        int byte = byte_of(text.data, text.n);
        if (byte >= 0 && vocab->byte_token[byte] < 0) vocab->byte_token[byte] = id;
    }
    if (type == AE_TOKEN_BYTE || type == AE_TOKEN_CONTROL || type == AE_TOKEN_UNKNOWN) {
        return ae_strings_add(&vocab->keys, NULL, 0);
    }
    if (vocab->verbatim) return ae_strings_add(&vocab->keys, scratch->data, scratch->n);
    if (vocab->spm) return ae_strings_add(&vocab->keys, text.data, text.n);
    /* User-defined tokens are found in the text as it is; merging never makes them. */
    size_t n = 0;
    ae_buf_clear(scratch);
    ae_buf_add(scratch, text.data, text.n);
    if (scratch->failed) return false;
    if (type == AE_TOKEN_USER || !ae_bytemap_decode(text.data, text.n, scratch->data, &n)) n = 0;
    return ae_strings_add(&vocab->keys, scratch->data, n);
}

aerie_status ae_vocab_load_tokens(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error)
{
    const ae_gguf_kv *kv;
    AE_TRY(ae_gguf_get_array(gguf, "tokenizer.ggml.tokens", true, AE_GGUF_STRING, &kv, error));
    if (kv->n == 0 || kv->n > INT32_MAX / 4) {
        return ae_fail(error, AERIE_ERROR_FORMAT, "tokenizer.ggml.tokens has %llu entries; a vocabulary has 1 to %d",
                       (unsigned long long)kv->n, INT32_MAX / 4);
    }
    vocab->n_tokens = (int32_t)kv->n;
    AE_TRY(load_types(vocab, gguf, error));
    if (vocab->spm && !vocab->wpm && !vocab->ugm && !vocab->split_at_newline && !vocab->bare_words) {
        AE_TRY(load_scores(vocab, gguf, error));
        find_bytes(vocab, kv);
    }
    ae_buf scratch = {0};
    ae_gguf_string text;
    size_t cursor = 0;
    int32_t id = 0;
    bool ok = true;
    for (; ok && id < vocab->n_tokens && ae_gguf_kv_next_string(kv, &cursor, &text); id++) {
        ok = add_token(vocab, id, text, &scratch);
    }
    ae_buf_free(&scratch);
    if (!ok) return ae_fail_memory(error, "the token texts", vocab->pieces.n_bytes);
    if (id != vocab->n_tokens) {
        return ae_fail(error, AERIE_ERROR_FORMAT, "tokenizer.ggml.tokens ends after %d of %d strings", id,
                       vocab->n_tokens);
    }
    return ae_keys_build(vocab, error);
}

/* ---- The kinds ---------------------------------------------------------------------------- */

bool ae_vocab_splits_at_space(const ae_vocab *vocab)
{
    for (int32_t id = 0; id < (int32_t)vocab->keys.n; id++) {
        uint32_t n;
        const char *key = ae_strings_get(&vocab->keys, id, &n);
        for (uint32_t i = 1; i + 3 <= n; i++) {
            if (memcmp(key + i, SPACE_MARK, 3) != 0) continue;
            if (i < 3 || memcmp(key + i - 3, SPACE_MARK, 3) != 0) return false;
        }
    }
    return true;
}

static aerie_status load_spm(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error)
{
    vocab->spm = true;
    vocab->add_bos = true;
    vocab->add_space_prefix = true;
    AE_TRY(ae_vocab_load_tokens(vocab, gguf, error));
    vocab->split_at_space = ae_vocab_splits_at_space(vocab);
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        if (vocab->byte_token[byte] < 0) vocab->byte_token[byte] = ae_keys_find(vocab, &c, 1);
    }
    snprintf(vocab->kind, sizeof vocab->kind, "spm");
    return AERIE_OK;
}

/* Vocabularies written like SPM, but merged by a list of pairs of characters. */
static const struct {
    const char *pre;
    bool newline_tokens, metaspace, bare_words;
} character_bpe[] = {
    {"gemma4", true, false, false},
    {"granite-embed-multi-311m", true, false, false},
    {"mmbert", true, true, false},
    {"sarvam-moe", false, false, false},
    {"whitespace", false, false, true},
};

static bool is_character_bpe(ae_gguf_string pre)
{
    for (size_t i = 0; i < sizeof character_bpe / sizeof *character_bpe; i++)
        if (strlen(character_bpe[i].pre) == pre.n && memcmp(character_bpe[i].pre, pre.data, pre.n) == 0) return true;
    return false;
}

static aerie_status load_character_bpe(ae_vocab *vocab, const ae_gguf *gguf, ae_gguf_string pre, aerie_error *error)
{
    size_t i = 0;
    while (strlen(character_bpe[i].pre) != pre.n || memcmp(character_bpe[i].pre, pre.data, pre.n) != 0) i++;
    vocab->spm = true;
    vocab->split_at_newline = !character_bpe[i].bare_words;
    vocab->newline_tokens = character_bpe[i].newline_tokens;
    vocab->metaspace = character_bpe[i].metaspace;
    vocab->bare_words = character_bpe[i].bare_words;
    if (vocab->bare_words)
        AE_TRY(ae_gguf_get_bool(gguf, "tokenizer.ggml.normalizer.lowercase", false, &vocab->lowercase, error));
    AE_TRY(ae_vocab_load_tokens(vocab, gguf, error));
    AE_TRY(ae_merges_load(vocab, gguf, error));
    vocab->split_at_space = vocab->metaspace || ae_vocab_splits_at_space(vocab);
    for (int byte = 0; byte < 256; byte++) { /* byte tokens count by their texts, whatever their types */
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", byte);
        if (vocab->byte_token[byte] < 0) vocab->byte_token[byte] = ae_keys_find(vocab, text, 6);
        if (vocab->byte_token[byte] >= vocab->n_tokens) vocab->byte_token[byte] = -1;
    }
    snprintf(vocab->kind, sizeof vocab->kind, "bpe/%s", character_bpe[i].pre);
    return AERIE_OK;
}

/* Returns whether some token of text has a capital letter: then the vocabulary distinguishes cases. */
static bool has_capitals(const ae_vocab *vocab)
{
    for (int32_t id = 0; id < vocab->n_tokens; id++) {
        uint32_t n;
        const char *key = ae_strings_get(&vocab->keys, id, &n);
        const bool bracketed = n > 1 && key[0] == '[' && key[n - 1] == ']'; /* [UNK], whatever its type */
        for (uint32_t i = 0; !bracketed && i < n; i++)
            if (key[i] >= 'A' && key[i] <= 'Z') return true;
    }
    return false;
}

static aerie_status load_wpm(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error)
{
    vocab->spm = vocab->wpm = true;
    vocab->add_bos = vocab->add_eos = true;
    vocab->add_space_prefix = true; /* the space before the first word is not part of the text */
    AE_TRY(ae_vocab_load_tokens(vocab, gguf, error));
    vocab->folds_case = !has_capitals(vocab);
    snprintf(vocab->kind, sizeof vocab->kind, "wordpiece/%s", vocab->folds_case ? "uncased" : "cased");
    return AERIE_OK;
}

/* A vocabulary without merges, as Kimi K2's may be: pairs merge if they make a token, the lowest id first, as in tiktoken. */
static aerie_status order_by_ids(ae_vocab *vocab, aerie_error *error)
{
    const size_t n = (size_t)vocab->n_tokens;
    vocab->order = ae_alloc(n, sizeof *vocab->order);
    if (!vocab->order) return ae_fail_memory(error, "the order of the tokens", n * sizeof *vocab->order);
    for (size_t i = 0; i < n; i++) vocab->order[i] = (uint32_t)i;
    return AERIE_OK;
}

static aerie_status load_bpe(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error)
{
    ae_gguf_string pre = {"default", 7};
    AE_TRY(ae_gguf_get_string(gguf, "tokenizer.ggml.pre", false, &pre, error));
    if (pre.n == 0) pre = (ae_gguf_string){"default", 7};
    if (is_character_bpe(pre)) return load_character_bpe(vocab, gguf, pre, error);
    AE_TRY(ae_pretok_init(&vocab->pretok, pre.data, pre.n, error));
    vocab->ignore_merges = ae_pretok_ignores_merges(&vocab->pretok);
    vocab->add_bos = ae_pretok_adds_bos(&vocab->pretok);
    AE_TRY(ae_vocab_load_tokens(vocab, gguf, error));
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        int32_t symbol = ae_keys_intern(vocab, &c, 1);
        if (symbol < 0) return ae_fail_memory(error, "the byte symbols", 256);
        vocab->byte_symbol[byte] = symbol;
        vocab->byte_token[byte] = symbol < vocab->n_tokens ? symbol : -1;
        if (symbol >= vocab->n_tokens) vocab->lacks_bytes = true;
    }
    const bool ranked = pre.n == 7 && memcmp(pre.data, "kimi-k2", 7) == 0 && !ae_gguf_kv_find(gguf, "tokenizer.ggml.merges");
    AE_TRY(ranked ? order_by_ids(vocab, error) : ae_merges_load(vocab, gguf, error));
    snprintf(vocab->kind, sizeof vocab->kind, "bpe/%.*s", (int)(pre.n < 50 ? pre.n : 50), pre.data);
    return AERIE_OK;
}

static aerie_status load_template(char **to, const ae_gguf *gguf, const char *key, aerie_error *error)
{
    ae_gguf_string text = {NULL, 0};
    AE_TRY(ae_gguf_get_string(gguf, key, false, &text, error));
    size_t blank = 0;
    while (blank < text.n && memchr(" \t\r\n", text.data[blank], 4)) blank++;
    if (blank == text.n) return AERIE_OK; /* a blank template counts as none */
    *to = ae_strndup(text.data, text.n);
    return *to ? AERIE_OK : ae_fail_memory(error, "the chat template", text.n);
}

/* A file whose only template is the one for tools uses it for all conversations. */
static aerie_status load_templates(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error)
{
    AE_TRY(load_template(&vocab->chat_template, gguf, "tokenizer.chat_template", error));
    AE_TRY(load_template(&vocab->tool_template, gguf, "tokenizer.chat_template.tool_use", error));
    if (vocab->chat_template) return AERIE_OK;
    vocab->chat_template = vocab->tool_template;
    vocab->tool_template = NULL;
    return AERIE_OK;
}

static aerie_status load_whitespace(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error)
{
    return load_character_bpe(vocab, gguf, (ae_gguf_string){"whitespace", 10}, error);
}

static aerie_status load_gemma4(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error)
{
    return load_character_bpe(vocab, gguf, (ae_gguf_string){"gemma4", 6}, error);
}

static aerie_status load(ae_vocab *vocab, const ae_gguf *gguf, aerie_error *error)
{
    static const struct {
        const char *model;
        aerie_status (*load)(ae_vocab *, const ae_gguf *, aerie_error *);
    } kinds[] = {
        {"llama", load_spm}, {"gpt2", load_bpe},       {"gemma4", load_gemma4},    {"bert", load_wpm},
        {"t5", ae_ugm_load}, {"rwkv", ae_rwkv_load}, {"plamo2", ae_plamo2_load}, {"whitespace", load_whitespace},
    };
    const size_t n_kinds = sizeof kinds / sizeof *kinds;
    ae_gguf_string model = {NULL, 0};
    AE_TRY(ae_gguf_get_string(gguf, "tokenizer.ggml.model", true, &model, error));
    if ((model.n == 4 && memcmp(model.data, "none", 4) == 0) || (model.n == 8 && memcmp(model.data, "no_vocab", 8) == 0))
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "tokenizer.ggml.model is \"%.*s\": the file has no vocabulary",
                       (int)model.n, model.data);
    size_t i = 0;
    while (i < n_kinds && (strlen(kinds[i].model) != model.n || memcmp(kinds[i].model, model.data, model.n) != 0)) i++;
    if (i == n_kinds)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                       "tokenizer.ggml.model is \"%.*s\"; aerie knows gpt2 (byte-level BPE), llama (SPM), gemma4 and "
                       "whitespace (BPE on characters), bert (WordPiece), t5 (Unigram), rwkv and plamo2",
                       (int)(model.n > 40 ? 40 : model.n), model.data);
    AE_TRY(kinds[i].load(vocab, gguf, error));
    AE_TRY(ae_special_load(vocab, gguf, error));
    if (vocab->ugm || vocab->verbatim) AE_TRY(ae_vocab_build_trie(vocab, error));
    AE_TRY(load_templates(vocab, gguf, error));
    ae_special_check_template(vocab);
    return AERIE_OK;
}

/* Returns the number of tokens of a file whose tokenizer is unknown; 0: it does not say. */
static uint64_t count_ids(const ae_gguf *gguf)
{
    const ae_gguf_kv *tokens = ae_gguf_kv_find(gguf, "tokenizer.ggml.tokens");
    const ae_gguf_tensor *embedding = ae_gguf_tensor_find(gguf, "token_embd.weight");
    if (tokens && tokens->type == AE_GGUF_ARRAY) return tokens->n;
    return embedding && embedding->ne[1] > 0 ? (uint64_t)embedding->ne[1] : 0;
}

/* Loads ids without texts. why: the sentence with which texts are refused. */
static aerie_status load_raw(ae_vocab *vocab, const ae_gguf *gguf, const char *why, aerie_error *error)
{
    const uint64_t n = count_ids(gguf);
    if (n == 0 || n > INT32_MAX / 4) return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "%s", why);
    vocab->n_tokens = (int32_t)n;
    vocab->types = ae_alloc(n, 1);
    vocab->flags = ae_alloc(n, 1);
    snprintf(vocab->no_text, sizeof vocab->no_text,
             "this model takes token ids only (the library, 'aerie bench logits'): %s", why);
    snprintf(vocab->kind, sizeof vocab->kind, "none");
    bool ok = vocab->types && vocab->flags;
    if (ok) memset(vocab->types, AE_TOKEN_NORMAL, n);
    for (uint64_t i = 0; ok && i < n; i++)
        ok = ae_strings_add(&vocab->keys, NULL, 0) && ae_strings_add(&vocab->pieces, NULL, 0);
    if (!ok) return ae_fail_memory(error, "a list of ids", n * 10);
    AE_TRY(ae_keys_build(vocab, error));
    return ae_special_load(vocab, gguf, error);
}

static ae_vocab *vocab_new(aerie_error *error)
{
    ae_vocab *vocab = ae_alloc(1, sizeof *vocab);
    if (!vocab) {
        ae_fail_memory(error, "a vocabulary", sizeof *vocab);
        return NULL;
    }
    /* With address randomisation a file cannot know the seed, so it cannot choose words that collide; results do not depend on
     * it. */
    vocab->seed = (uint64_t)(uintptr_t)vocab * 0x9E3779B97F4A7C15u | 1;
    vocab->bos = vocab->eos = vocab->eot = vocab->eom = vocab->unknown = vocab->padding = -1;
    for (int i = 0; i < 256; i++) vocab->byte_token[i] = -1;
    return vocab;
}

aerie_status ae_vocab_create(ae_vocab **out, const ae_gguf *gguf, aerie_error *error)
{
    aerie_error why = {0};
    *out = NULL;
    ae_vocab *vocab = vocab_new(error);
    if (!vocab) return AERIE_ERROR_MEMORY;
    aerie_status status = load(vocab, gguf, &why);
    if (status == AERIE_ERROR_UNSUPPORTED) {
        ae_vocab_free(vocab);
        vocab = vocab_new(error);
        if (!vocab) return AERIE_ERROR_MEMORY;
        aerie_error raw = {0};
        status = load_raw(vocab, gguf, why.text, &raw);
        why = raw;
    }
    if (status != AERIE_OK) {
        ae_vocab_free(vocab);
        if (error) *error = why;
        return status;
    }
    *out = vocab;
    return AERIE_OK;
}

void ae_vocab_free(ae_vocab *vocab)
{
    if (!vocab) return;
    ae_strings_free(&vocab->keys);
    ae_strings_free(&vocab->pieces);
    ae_free(vocab->types);
    ae_free(vocab->flags);
    ae_free(vocab->order);
    ae_free(vocab->scores);
    ae_trie_free(&vocab->trie);
    ae_charsmap_free(&vocab->charsmap);
    ae_free(vocab->slots);
    ae_free(vocab->merges);
    ae_special_free(&vocab->user);
    ae_special_free(&vocab->special);
    ae_pretok_free(&vocab->pretok);
    ae_free(vocab->chat_template);
    ae_free(vocab->tool_template);
    ae_free(vocab);
}

/* ---- Queries ------------------------------------------------------------------------------ */

int32_t ae_vocab_n_tokens(const ae_vocab *vocab) { return vocab->n_tokens; }
int32_t ae_vocab_bos(const ae_vocab *vocab) { return vocab->bos; }
int32_t ae_vocab_eos(const ae_vocab *vocab) { return vocab->eos; }
bool ae_vocab_adds_bos(const ae_vocab *vocab) { return vocab->add_bos && vocab->bos >= 0; }
const char *ae_vocab_kind(const ae_vocab *vocab) { return vocab->kind; }
const char *ae_vocab_warning(const ae_vocab *vocab) { return vocab->warning; }
const char *ae_vocab_chat_template(const ae_vocab *vocab) { return vocab->chat_template; }
const char *ae_vocab_tool_template(const ae_vocab *vocab) { return vocab->tool_template; }

bool ae_vocab_is_eog(const ae_vocab *vocab, int32_t token)
{
    return token >= 0 && token < vocab->n_tokens && (vocab->flags[token] & AE_TOKEN_EOG);
}

bool ae_vocab_is_control(const ae_vocab *vocab, int32_t token)
{
    return token >= 0 && token < vocab->n_tokens &&
           (vocab->types[token] == AE_TOKEN_CONTROL || vocab->types[token] == AE_TOKEN_UNKNOWN);
}

/* Fails unless all tokens from `begin` on, which the other vocabulary lacks, are fillers, which are never sampled or fed. */
static aerie_status check_fillers(const ae_vocab *vocab, int32_t begin, const char *which, const char *other,
                                  aerie_error *error)
{
    for (int32_t id = begin; id < vocab->n_tokens; id++) {
        if (vocab->types[id] == AE_TOKEN_UNUSED) continue;
        uint32_t n;
        const char *piece = ae_strings_get(&vocab->pieces, id, &n);
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the %s has a token %d (\"%.*s\") that the %s model lacks", which,
                       id, (int)(n > 40 ? 40 : n), piece, other);
    }
    return AERIE_OK;
}

aerie_status ae_vocab_check_same(const ae_vocab *target, const ae_vocab *draft, aerie_error *error)
{
    int32_t n = target->n_tokens < draft->n_tokens ? target->n_tokens : draft->n_tokens;
    const bool raw = *target->no_text || *draft->no_text;
    if ((raw && strcmp(target->kind, draft->kind) != 0) || target->spm != draft->spm || target->wpm != draft->wpm ||
        target->ugm != draft->ugm) {
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the target's tokenizer is %s, the draft model's is %s",
                       target->kind, draft->kind);
    }
    for (int32_t id = 0; id < n; id++) {
        uint32_t n_target, n_draft;
        const char *a = ae_strings_get(&target->pieces, id, &n_target);
        const char *b = ae_strings_get(&draft->pieces, id, &n_draft);
        if (n_target == n_draft && memcmp(a, b, n_target) == 0 &&
            ae_vocab_is_control(target, id) == ae_vocab_is_control(draft, id)) {
            continue;
        }
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                       "token %d is \"%.*s\" in the target and \"%.*s\" in the draft model%s", id,
                       (int)(n_target > 40 ? 40 : n_target), a, (int)(n_draft > 40 ? 40 : n_draft), b,
                       n_target == n_draft && memcmp(a, b, n_target) == 0 ? ", a control token in one only" : "");
    }
    AE_TRY(check_fillers(target, n, "target", "draft", error));
    return check_fillers(draft, n, "draft model", "target", error);
}

/* wordpiece.c - WordPiece: words of plain text, each spelled by the longest tokens from its beginning on.
 *
 * Text is cleaned as BERT does it: control characters are dropped, white space and punctuation separate words, each CJK
 * ideograph is a word; vocabularies without capitals also drop case and accents. A word that cannot be spelled, or has more
 * than 100 characters, is the unknown token. So detokenizing returns the words, not the exact text.
 * GGUF spells tokens that begin a word with U+2581 and others without the "##" of BERT's own files.
 * Source: BERT's tokenization as Hugging Face tokenizers has it (BertNormalizer, BertPreTokenizer, WordPiece).
 */
#include <utf8proc.h>

#include "text/token/unicode.h"
#include "text/token/vocab_int.h"

enum { MAX_CHARS = 100, MARK_BYTES = 3, MAX_DECOMPOSED = 32 };

typedef struct words {
    const ae_vocab *vocab;
    char word[MARK_BYTES + 4 * MAX_CHARS]; /* U+2581 and the word */
    size_t n, n_chars;                     /* n: bytes, with U+2581; n_chars: characters, including those that did not fit */
    ae_tokens *out;
    bool failed;
} words;

static void add_token(words *w, int32_t id)
{
    if (id >= 0 && !ae_tokens_add(w->out, id)) w->failed = true;
}

/* Finds the longest token at word[at..n): returns its id, and its length in *length; -1 if there is none. */
static int32_t longest(const words *w, size_t at, size_t *length)
{
    size_t n = w->n - at;
    /* the U+2581 comes from the text itself */
    if (at && n >= MARK_BYTES && memcmp(w->word + at, w->word, MARK_BYTES) == 0) return -1;
    if (n > w->vocab->max_key_bytes) n = w->vocab->max_key_bytes;
    for (; n > 0; n--) {
        const int32_t id = ae_keys_find(w->vocab, w->word + at, n);
        if (id < 0) continue;
        *length = n;
        return id;
    }
    return -1;
}

static void end_word(words *w)
{
    const size_t n_before = w->out->n;
    size_t length = 0;
    bool known = w->n_chars <= MAX_CHARS;
    for (size_t at = 0; w->n_chars && known && at < w->n; at += length) {
        const int32_t id = longest(w, at, &length);
        known = id >= 0 && length > (at ? 0 : MARK_BYTES); /* U+2581 alone is not enough */
        if (known) add_token(w, id);
    }
    if (!known) {
        w->out->n = n_before;
        add_token(w, w->vocab->unknown);
    }
    w->n = MARK_BYTES;
    w->n_chars = 0;
}

static void add_char(words *w, uint32_t code)
{
    if (w->n_chars++ < MAX_CHARS) w->n += ae_uni_encode(code, w->word + w->n);
}

static void add_alone(words *w, uint32_t code)
{
    end_word(w);
    add_char(w, code);
    end_word(w);
}

static bool is_ideograph(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

static bool is_punctuation(uint32_t c)
{
    if (c < 128) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
    return ae_uni_class(c) & AE_UNI_PUNCT;
}

/* Returns whether a character is dropped: control, format, surrogate and private-use characters, except tabs and newlines,
 * which are white space. */
static bool is_dropped(uint32_t c)
{
    if (c == '\t' || c == '\n' || c == '\r') return false;
    if (c == 0 || c == 0xFFFD || c == AE_UNI_BAD) return true;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO: return true;
    default: return false;
    }
}

static void add_clean(words *w, uint32_t code)
{
    if (is_punctuation(code)) add_alone(w, code);
    else add_char(w, code);
}

/* Adds a character in lower case and without its accents. */
static void add_folded(words *w, uint32_t code)
{
    utf8proc_int32_t parts[MAX_DECOMPOSED];
    int boundary = 0;
    const utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)code, parts, MAX_DECOMPOSED, UTF8PROC_DECOMPOSE, &boundary);
    if (n < 0 || n > MAX_DECOMPOSED) {
        add_clean(w, code);
        return;
    }
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        if (utf8proc_category(parts[i]) == UTF8PROC_CATEGORY_MN) continue;
        add_clean(w, (uint32_t)utf8proc_tolower(parts[i]));
    }
}

aerie_status ae_wpm_text(const ae_vocab *vocab, const char *text, size_t n, ae_tokens *out, aerie_error *error)
{
    words w = {.vocab = vocab, .n = MARK_BYTES, .out = out};
    memcpy(w.word, "\xe2\x96\x81", MARK_BYTES);
    for (size_t i = 0; i < n && !w.failed;) {
        uint32_t n_bytes;
        const uint32_t code = ae_uni_decode(text + i, n - i, &n_bytes);
        i += n_bytes;
        if (is_dropped(code)) continue;
        if (ae_uni_class(code) & AE_UNI_SPACE) end_word(&w);
        else if (is_ideograph(code)) {
            end_word(&w);
            if (vocab->folds_case) add_folded(&w, code);
            else add_char(&w, code);
            end_word(&w);
        } else if (code < 128) add_clean(&w, vocab->folds_case && code >= 'A' && code <= 'Z' ? code | 0x20 : code);
        else if (vocab->folds_case) add_folded(&w, code);
        else add_clean(&w, code);
    }
    end_word(&w);
    return w.failed ? ae_fail_memory(error, "the tokens of a text", out->n * sizeof *out->data) : AERIE_OK;
}

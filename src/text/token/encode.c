/* encode.c - text to tokens: special tokens first, then the text between them.
 *
 * Text between special tokens goes through the pre-tokenizer (BPE) or is cut before its spaces (SPM) and around runs of
 * newlines (Gemma 4), and each word is merged; WordPiece has rules of its own (wordpiece.c). Words repeat: a small
 * direct-mapped cache remembers where in the current call a word was seen and which tokens it became, so it owns no text.
 * Memory lives for one call, unless the caller keeps it (ae_encode_memory); the vocabulary is only read.
 */
#include <utf8proc.h>

#include "text/token/pretok_int.h"
#include "text/token/unicode.h"
#include "text/token/vocab_int.h"

#define SPACE_MARK "\xe2\x96\x81"
enum { CACHED_BYTES = 48, CACHE_SLOTS = 1 << 15 };

typedef struct seen {
    uint32_t hash, n; /* n == 0: free */
    uint32_t n_tokens;
    size_t begin, token; /* offset in the text; index of the first token in the output */
} seen;

struct ae_encode_memory {
    const ae_vocab *vocab;
    ae_buf escaped;  /* SPM: the text with spaces replaced */
    ae_buf replaced; /* the text with ill-formed bytes replaced */
    ae_merger merger;
    ae_lattice lattice;
    ae_pretok_memory pretok;
};

typedef struct encoder {
    const ae_vocab *vocab;
    const char *text; /* the text that words are cut from */
    size_t base;      /* offset of the current fragment in text */
    ae_encode_memory *memory;
    seen *cache; /* NULL: none */
    uint32_t cache_mask;
    ae_tokens *out;
    aerie_error *error;
} encoder;

static void release(ae_encode_memory *m)
{
    ae_buf_free(&m->escaped);
    ae_buf_free(&m->replaced);
    ae_merger_free(&m->merger);
    ae_lattice_free(&m->lattice);
    ae_pretok_memory_free(&m->pretok);
}

static aerie_status fail_tokens(const encoder *e)
{
    return ae_fail_memory(e->error, "the tokens of a text", e->out->n * sizeof *e->out->data);
}

static aerie_status merge_word(encoder *e, const char *word, size_t n)
{
    if (e->vocab->ugm) return ae_ugm_word(e->vocab, &e->memory->lattice, word, n, e->out, e->error);
    if (e->vocab->spm) return ae_spm_word(e->vocab, &e->memory->merger, word, n, e->out, e->error);
    return ae_bpe_word(e->vocab, &e->memory->merger, word, n, e->out, e->error);
}

static aerie_status add_word(void *context, size_t begin, size_t end)
{
    encoder *e = context;
    const char *word = e->text + e->base + begin;
    size_t n = end - begin;
    if (!e->cache || n < 2 || n > CACHED_BYTES) return merge_word(e, word, n);
    uint32_t hash = ae_keys_hash(e->vocab->seed, word, n);
    seen *slot = &e->cache[hash & e->cache_mask];
    if (slot->hash == hash && slot->n == n && memcmp(e->text + slot->begin, word, n) == 0) {
        for (uint32_t i = 0; i < slot->n_tokens; i++) {
            if (!ae_tokens_add(e->out, e->out->data[slot->token + i])) return fail_tokens(e);
        }
        return AERIE_OK;
    }
    size_t token = e->out->n;
    AE_TRY(merge_word(e, word, n));
    *slot = (seen){hash, (uint32_t)n, (uint32_t)(e->out->n - token), e->base + begin, token};
    return AERIE_OK;
}

static bool is_mark(const char *text)
{
    return memcmp(text, SPACE_MARK, 3) == 0;
}

/* Returns whether a word begins at text[i]. Words begin with their spaces, so one begins at a U+2581 that follows another
 * character. A run of newlines is a word. */
static bool is_cut(const ae_vocab *vocab, const char *text, size_t n, size_t word, size_t i)
{
    if (vocab->split_at_newline && (text[i] == '\n') != (text[i - 1] == '\n')) return true;
    if (!vocab->split_at_space || text[i] != SPACE_MARK[0] || i + 3 > n || !is_mark(text + i)) return false;
    return vocab->metaspace || i < word + 3 || !is_mark(text + i - 3);
}

/* mmBERT: whether a line begins at text[i] without its U+2581. */
static bool lacks_mark(const char *text, size_t n, size_t i)
{
    if (i == n || text[i] == '\n' || text[i] == ' ' || (i && text[i - 1] != '\n')) return false;
    return n - i < 3 || !is_mark(text + i);
}

/* Adds the words between white space, which is dropped. */
static aerie_status add_bare_words(encoder *e, const char *text, size_t n)
{
    ae_buf *words = &e->memory->escaped;
    size_t begin = words->n;
    for (size_t i = 0; i <= n && !words->failed;) {
        uint32_t n_bytes = 1;
        const uint32_t code = i < n ? ae_uni_decode(text + i, n - i, &n_bytes) : ' ';
        if (ae_uni_class(code) & AE_UNI_SPACE) {
            e->text = words->data; /* the buffer may have moved */
            e->base = 0;
            if (words->n > begin) AE_TRY(add_word(e, begin, words->n));
            begin = words->n;
        } else if (e->vocab->lowercase && code != AE_UNI_BAD) {
            char lower[4];
            ae_buf_add(words, lower, ae_uni_encode((uint32_t)utf8proc_tolower((utf8proc_int32_t)code), lower));
        } else {
            ae_buf_add(words, text + i, n_bytes);
        }
        i += n_bytes;
    }
    return words->failed ? ae_fail_memory(e->error, "the words of a text", n) : AERIE_OK;
}

/* Adds the words in memory->escaped from `begin` on. */
static aerie_status add_escaped(encoder *e, size_t begin, size_t n_text)
{
    const ae_buf *escaped = &e->memory->escaped;
    if (escaped->failed) return ae_fail_memory(e->error, "a text with its spaces marked", n_text);
    if (escaped->n > INT32_MAX) return ae_fail(e->error, AERIE_ERROR_LIMIT, "a text of %zu bytes is too long", n_text);
    if (escaped->n == begin) return AERIE_OK;
    e->text = escaped->data;
    e->base = begin;
    const size_t end = escaped->n - begin;
    const char *at = escaped->data + begin;
    const bool cuts = e->vocab->split_at_space || e->vocab->split_at_newline;
    size_t word = 0;
    for (size_t i = 1; cuts && i < end; i++) {
        if (!is_cut(e->vocab, at, end, word, i)) continue;
        AE_TRY(add_word(e, word, i));
        word = i;
    }
    return add_word(e, word, end);
}

static aerie_status add_spm(encoder *e, const char *text, size_t n, bool prefix)
{
    ae_buf *escaped = &e->memory->escaped;
    size_t begin = escaped->n;
    if (prefix) ae_buf_add(escaped, SPACE_MARK, 3);
    const bool metaspace = e->vocab->metaspace;
    for (size_t i = 0; i < n;) {
        size_t run = 0;
        if (metaspace && lacks_mark(text, n, i)) ae_buf_add(escaped, SPACE_MARK, 3);
        while (i + run < n && text[i + run] != ' ' && !(metaspace && run && lacks_mark(text, n, i + run))) run++;
        ae_buf_add(escaped, text + i, run);
        i += run;
        if (i == n || text[i] != ' ') continue;
        ae_buf_add(escaped, SPACE_MARK, 3);
        i++;
    }
    return add_escaped(e, begin, n);
}

static aerie_status add_fragment(encoder *e, const char *text, size_t begin, size_t end, bool after_special)
{
    if (begin == end) return AERIE_OK;
    if (e->vocab->wpm) return ae_wpm_text(e->vocab, text + begin, end - begin, e->out, e->error);
    const bool prefix = e->vocab->add_space_prefix && after_special;
    if (e->vocab->rwkv) return ae_rwkv_text(e->vocab, text + begin, end - begin, e->out, e->error);
    if (e->vocab->plamo2) return ae_plamo2_text(e->vocab, &e->memory->lattice, text + begin, end - begin, e->out, e->error);
    if (e->vocab->ugm) {
        ae_buf *escaped = &e->memory->escaped;
        const size_t n_before = escaped->n;
        AE_TRY(ae_ugm_normalize(e->vocab, text + begin, end - begin, prefix, escaped, e->error));
        return add_escaped(e, n_before, end - begin);
    }
    if (e->vocab->bare_words) return add_bare_words(e, text + begin, end - begin);
    if (e->vocab->spm) return add_spm(e, text + begin, end - begin, prefix);
    e->text = text;
    e->base = begin;
    return ae_pretok_run(&e->vocab->pretok, &e->memory->pretok, text + begin, end - begin, add_word, e, e->error);
}

/* Returns the end of the white space at `at`. */
static size_t skip_space(const char *text, size_t at, size_t n)
{
    uint32_t n_bytes;
    while (at < n && (ae_uni_class_at(text + at, n - at, &n_bytes) & AE_UNI_SPACE)) at += n_bytes;
    return at;
}

/* Returns the special token at `at`, or -1. A control token must end before the next plain stretch begins; user-defined tokens
 * are found everywhere. Moves *i_plain to the first stretch that ends after `at`. */
static int32_t match_at(const ae_vocab *vocab, const ae_specials *set, const char *text, size_t at, size_t n,
                        const ae_encode_options *options, size_t *i_plain)
{
    while (*i_plain < options->n_plain && options->plain[*i_plain].end <= at) ++*i_plain;
    if (*i_plain == options->n_plain || options->plain[*i_plain].begin >= n)
        return ae_special_match(vocab, set, text + at, n - at);
    const size_t begin = options->plain[*i_plain].begin;
    const int32_t any = begin > at ? ae_special_match(vocab, set, text + at, begin - at) : -1;
    const int32_t user = ae_special_match(vocab, &vocab->user, text + at, n - at);
    uint32_t n_any = 0, n_user = 0;
    if (any >= 0) ae_strings_get(&vocab->pieces, any, &n_any);
    if (user >= 0) ae_strings_get(&vocab->pieces, user, &n_user);
    return n_user > n_any ? user : any;
}

/* Appends the special tokens of the text and the tokens of the fragments between them. */
static aerie_status add_text(encoder *e, const char *text, size_t n, const ae_encode_options *options)
{
    const ae_specials *set = options->parse_special ? &e->vocab->special : &e->vocab->user;
    const bool inside = options->inside;
    bool after_special = !inside;
    size_t begin = 0, at = 0, i_plain = 0;
    while (set->n && at < n) {
        if (set->n_first == 1) { /* usually '<': memchr finds it fastest */
            const char *next = memchr(text + at, (uint8_t)*ae_strings_get(&e->vocab->pieces, set->ids[0], &(uint32_t){0}),
                                      n - at);
            if (!next) break;
            at = (size_t)(next - text);
        }
        int32_t id = match_at(e->vocab, set, text, at, n, options, &i_plain);
        if (id < 0) {
            at++;
            continue;
        }
        uint32_t n_piece;
        ae_strings_get(&e->vocab->pieces, id, &n_piece);
        const size_t end = e->vocab->flags[id] & AE_TOKEN_LSTRIP ? ae_scan_trailing(text, begin, at) : at;
        AE_TRY(add_fragment(e, text, begin, end, after_special));
        if (!ae_tokens_add(e->out, id)) return fail_tokens(e);
        after_special = !inside;
        at += n_piece;
        if (e->vocab->flags[id] & AE_TOKEN_RSTRIP) at = skip_space(text, at, n);
        begin = at;
    }
    return add_fragment(e, text, begin, n, after_special);
}

/* Appends the text to `out`; ill-formed bytes that no token can spell become U+FFFD. */
static aerie_status replace_unspellable(const ae_vocab *vocab, const char *text, size_t n, ae_buf *out,
                                        aerie_error *error)
{
    for (size_t i = 0; i < n;) {
        uint32_t n_bytes;
        bool bad = ae_uni_decode(text + i, n - i, &n_bytes) == AE_UNI_BAD;
        if (bad && vocab->byte_token[(uint8_t)text[i]] < 0) {
            ae_buf_add(out, "\xef\xbf\xbd", 3);
        } else {
            ae_buf_add(out, text + i, n_bytes);
        }
        i += n_bytes;
    }
    return out->failed ? ae_fail_memory(error, "a text", n) : AERIE_OK;
}

static aerie_status encode(encoder *e, const char *text, size_t n, ae_encode_options options)
{
    const ae_vocab *vocab = e->vocab;
    ae_buf *replaced = &e->memory->replaced;
    if (*vocab->no_text && n) return ae_fail(e->error, AERIE_ERROR_UNSUPPORTED, "%s", vocab->no_text);
    if (n > INT32_MAX / 3) {
        return ae_fail(e->error, AERIE_ERROR_LIMIT, "a text of %zu bytes is too long; at most %d fit", n, INT32_MAX / 3);
    }
    if (options.add_special && ae_vocab_adds_bos(vocab) && !ae_tokens_add(e->out, vocab->bos)) return fail_tokens(e);
    if (vocab->lacks_bytes && !vocab->wpm && !ae_uni_is_valid(text, n)) {
        AE_TRY(replace_unspellable(vocab, text, n, replaced, e->error));
        text = replaced->data;
        n = replaced->n;
        if (options.n_plain) options.parse_special = false; /* offsets have changed, and texts written by templates are
                                                             * well-formed */
    }
    if (n) AE_TRY(add_text(e, text, n, &options));
    if (options.add_special && vocab->add_eos && vocab->eos >= 0 && !ae_tokens_add(e->out, vocab->eos)) return fail_tokens(e);
    return AERIE_OK;
}

aerie_status ae_vocab_encode(const ae_vocab *vocab, const char *text, size_t n, ae_encode_options options,
                             ae_tokens *out, aerie_error *error)
{
    const size_t n_before = out->n;
    ae_encode_memory memory = {.vocab = vocab};
    encoder e = {.vocab = vocab, .memory = &memory, .out = out, .error = error};
    if (n >= 256) { /* if there is no memory for the cache, encoding is only slower */
        uint32_t slots = 64;
        while (slots < CACHE_SLOTS && slots < n / 8) slots *= 2;
        e.cache = ae_alloc(slots, sizeof *e.cache);
        e.cache_mask = slots - 1;
    }
    const aerie_status status = encode(&e, text, n, options);
    if (status != AERIE_OK) out->n = n_before;
    release(&memory);
    ae_free(e.cache);
    return status;
}

/* ---- Memory that the caller keeps ----------------------------------------------------------- */

aerie_status ae_vocab_encode_in(ae_encode_memory *memory, const char *text, size_t n, ae_encode_options options,
                                ae_tokens *out, aerie_error *error)
{
    const size_t n_before = out->n;
    encoder e = {.vocab = memory->vocab, .memory = memory, .out = out, .error = error};
    ae_buf_clear(&memory->escaped);
    ae_buf_clear(&memory->replaced);
    const aerie_status status = encode(&e, text, n, options);
    if (status != AERIE_OK) out->n = n_before;
    if (memory->escaped.failed) ae_buf_free(&memory->escaped); /* only freeing clears a failure */
    if (memory->replaced.failed) ae_buf_free(&memory->replaced);
    return status;
}

aerie_status ae_encode_memory_create(ae_encode_memory **out, const ae_vocab *vocab, size_t n_bytes, aerie_error *error)
{
    *out = NULL;
    size_t n_marked, n_both; /* n_marked, n_both: a byte becomes at most three, and each fragment between special tokens may get
                              * a space */
    ae_encode_memory *m = ae_alloc(1, sizeof *m);
    bool ok = m && ae_mul_size(n_bytes, 3, &n_marked) && ae_add_size(n_marked, 3, &n_marked);
    if (ok) m->vocab = vocab;
    if (ok && vocab->lacks_bytes) ok = ae_buf_reserve(&m->replaced, n_marked);
    if (ok && vocab->spm) ok = ae_mul_size(n_marked, 2, &n_both) && ae_buf_reserve(&m->escaped, n_both);
    if (ok && (vocab->ugm || vocab->plamo2)) ok = ae_lattice_reserve(&m->lattice, n_marked + 1);
    else if (ok && !vocab->wpm && !vocab->rwkv) ok = ae_merger_reserve_all(&m->merger, n_marked);
    aerie_status status = ok ? AERIE_OK : ae_fail_memory(error, "a tokenizer's buffers", n_bytes);
    if (ok && vocab->pretok.has_pattern) status = ae_pretok_memory_reserve(&m->pretok, &vocab->pretok, n_bytes, error);
    if (status == AERIE_OK) *out = m;
    else ae_encode_memory_free(m);
    return status;
}

void ae_encode_memory_free(ae_encode_memory *memory)
{
    if (!memory) return;
    release(memory);
    ae_free(memory);
}

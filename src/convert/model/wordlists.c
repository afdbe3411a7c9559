/* wordlists.c - vocabularies that are text files with a line for each token, instead of tokenizer.json (vocab.h).
 * tiktoken.model (Kimi), qwen.tiktoken (Qwen 1), tokenizer.model (GLM-4 of old): a token's bytes in base64, and its rank,
 * which is its id. Tokens are written as in byte-level BPE. There are no merges: two parts are joined if the result is a token,
 * the lowest id first, which is what tiktoken does, and what programs do for Kimi's files without merges; for the others the
 * merges are computed. rwkv_vocab_v20230424.txt (RWKV): an id, a Python literal, a number of
 * bytes. Owns nothing. Sources: the published formats. The files may be malicious. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/archs/arch.h"
#include "convert/model/vocab.h"

/* limits of a token, and of one that merges are computed for, which takes time by its square; the longest known token has 128
 * bytes */
enum { MAX_BYTES = 1024, MAX_MERGED = 256 };
static const char plamo_name[] = "tokenizer.jsonl";
static const char rwkv_name[] = "rwkv_vocab_v20230424.txt";

/* The lists of bytes and ranks: which architecture has which file, and the name of its rules. */
static const struct {
    const char *arch, *file, *pre;
    bool merges; /* computes them */
} ranks[] = {{"qwen", "qwen.tiktoken", "qwen2", true}, {"chatglm", "tokenizer.model", "chatglm-bpe", true},
             {NULL, "tiktoken.model", "kimi-k2", false}};

/* Reads one line, without its end. bytes: a buffer for the token. */
typedef aerie_status line_fn(const ae_convert *c, ae_convert_words *w, const char *text, size_t n, size_t line, ae_buf *bytes);

/* ---- Bytes and ranks --------------------------------------------------------------------------------------------- */

/* Returns the character that stands for a byte in byte-level BPE, in UTF-8 [2]. */
static size_t put_byte(uint8_t byte, char out[2])
{
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    uint32_t at = byte;
    if (!itself) at = 256 + (byte <= 32 ? byte : byte <= 160 ? 33u + byte - 127 : 67);
    if (at < 128) {
        out[0] = (char)at;
        return 1;
    }
    out[0] = (char)(0xC0 | at >> 6);
    out[1] = (char)(0x80 | (at & 63));
    return 2;
}

/* Returns the row of `ranks` for the architecture. */
static size_t ranks_of(const ae_convert *c)
{
    size_t i = 0;
    while (ranks[i].arch && strcmp(ranks[i].arch, c->arch->arch)) i++;
    return i;
}

static aerie_status fail_line(const ae_convert *c, size_t line)
{
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: line %zu of %s is not a token in base64 and its rank", c->path, line,
                   ranks[ranks_of(c)].file);
}

static aerie_status put_rank(const ae_convert *c, ae_convert_words *w, const char *text, size_t n, size_t line, ae_buf *bytes)
{
    char word[2 * MAX_BYTES], *end;
    const char *space = memchr(text, ' ', n);
    size_t n_word = 0;
    bytes->n = 0;
    if (!space || !ae_convert_base64(text, (size_t)(space - text), bytes)) return fail_line(c, line);
    if (bytes->failed) return ae_convert_no_memory(c, "a token");
    if (!bytes->n || bytes->n > MAX_BYTES || space[1] < '0' || space[1] > '9') return fail_line(c, line);
    const unsigned long long rank = strtoull(space + 1, &end, 10);
    if (end != text + n || rank > INT32_MAX) return fail_line(c, line);
    for (size_t i = 0; i < bytes->n; i++) n_word += put_byte((uint8_t)bytes->data[i], word + n_word);
    if (rank < w->n && w->list[rank].data)
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: %s: line %zu has rank %llu, as an earlier one", c->path,
                       ranks[ranks_of(c)].file, line, rank);
    return ae_convert_words_put(c, w, word, n_word, (json_int_t)rank, AERIE_TOKEN_NORMAL);
}

static aerie_status put_lines(const ae_convert *c, ae_convert_words *w, const char *name, line_fn *put, const char *text,
                              size_t n)
{
    size_t line = 0, n_tokens = 0;
    ae_buf bytes = {0};
    aerie_status status = AERIE_OK;
    for (size_t at = 0, length; status == AERIE_OK && at < n; at += length + 1) {
        const char *end = memchr(text + at, '\n', n - at);
        length = end ? (size_t)(end - text) - at : n - at;
        const size_t own = length && text[at + length - 1] == '\r' ? length - 1 : length;
        line++;
        if (own) status = put(c, w, text + at, own, line, &bytes);
        n_tokens += own > 0;
    }
    ae_buf_free(&bytes);
    if (status != AERIE_OK || n_tokens) return status;
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: %s has no token", c->path, name);
}

static aerie_status read_lines(const ae_convert *c, ae_convert_words *w, const char *name, line_fn *put)
{
    char *path = ae_convert_path_in(c, name), *text = NULL;
    size_t n;
    if (!path) return ae_convert_no_memory(c, "a path");
    aerie_status status = ae_convert_read_text(c, path, &text, &n);
    ae_free(path);
    if (status == AERIE_OK) status = put_lines(c, w, name, put, text, n);
    ae_free(text);
    return status;
}

aerie_status ae_convert_has_tiktoken(const ae_convert *c, bool *has)
{
    char *path = ae_convert_path_in(c, ranks[ranks_of(c)].file);
    *has = false;
    if (!path) return ae_convert_no_memory(c, "a path");
    *has = ae_file_exists(path);
    if (*has && strcmp(ranks[ranks_of(c)].file, "tokenizer.model") == 0) {
        FILE *file = fopen(path, "rb");
        *has = file && getc(file) != '\n'; /* SentencePiece's models begin with this byte */
        if (file) fclose(file);
    }
    ae_free(path);
    return AERIE_OK;
}

/* Adds the special tokens of Qwen 1, which its code has: they follow the others. */
static aerie_status put_qwen_specials(const ae_convert *c, ae_convert_words *w)
{
    static const char *const names[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    uint32_t first = 0;
    for (uint32_t i = 0; i < w->n; i++)
        if (w->list[i].data) first = i + 1;
    for (uint32_t i = 0; i < 208 && first + i < w->n; i++) {
        char name[32];
        if (i < 3) snprintf(name, sizeof name, "%s", names[i]);
        else snprintf(name, sizeof name, "<|extra_%u|>", i - 3);
        AE_TRY(ae_convert_words_put(c, w, name, strlen(name), (json_int_t)first + i, AERIE_TOKEN_CONTROL));
    }
    return AERIE_OK;
}

typedef struct ranked {
    const char *data;
    size_t n;
    uint32_t rank;
} ranked;

static int by_text(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    const int order = memcmp(x->data, y->data, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* Returns the rank of a text, UINT32_MAX if it is not a token. */
static uint32_t rank_of(const ranked *words, size_t n_words, const char *text, size_t n)
{
    const ranked key = {text, n, 0}, *found = bsearch(&key, words, n_words, sizeof key, by_text);
    return found ? found->rank : UINT32_MAX;
}

/* Joins parts of a token as tiktoken does, but only to tokens of lower ranks. Returns where the second one of two last parts
 * begins; 0: more than two remain, so that no text yields the token. */
static size_t split_word(const ranked *words, size_t n_words, const ae_gguf_string *text, uint32_t rank)
{
    size_t at[MAX_MERGED + 1], n = 0;
    for (size_t i = 0; i < text->n; i++) {
        if ((text->data[i] & 0xC0) == 0x80) continue;
        if (n == MAX_MERGED) return 0;
        at[n++] = i;
    }
    at[n] = text->n;
    while (n > 2) {
        size_t best = 0;
        uint32_t least = rank;
        for (size_t i = 0; i + 1 < n; i++) {
            const uint32_t r = rank_of(words, n_words, text->data + at[i], at[i + 2] - at[i]);
            if (r < least) least = r, best = i + 1;
        }
        if (!best) return 0;
        memmove(at + best, at + best + 1, (n - best) * sizeof *at);
        n--;
    }
    return n == 2 ? at[1] : 0;
}

/* Writes for each token, in the order of ranks, the two parts that it is made of. */
static aerie_status put_split(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w, ranked *words,
                              ae_gguf_string *merges)
{
    size_t n_words = 0, n_merges = 0;
    for (uint32_t i = 0; i < w->n; i++)
        if (w->list[i].data && w->types[i] == AERIE_TOKEN_NORMAL) words[n_words++] = (ranked){w->list[i].data, w->list[i].n, i};
    if (n_words) qsort(words, n_words, sizeof *words, by_text);
    for (uint32_t i = 0; i < w->n; i++) {
        const ae_gguf_string *text = &w->list[i];
        if (!text->data || w->types[i] != AERIE_TOKEN_NORMAL) continue;
        const size_t second = split_word(words, n_words, text, i);
        if (!second) continue; /* a byte, or a token that no text yields */
        char *both = ae_arena_alloc(&w->arena, text->n + 1, 1);
        if (!both) return ae_convert_no_memory(c, "the merges");
        memcpy(both, text->data, second);
        both[second] = ' ';
        memcpy(both + second + 1, text->data + second, text->n - second);
        merges[n_merges++] = (ae_gguf_string){both, text->n + 1};
    }
    return ae_gguf_writer_strings(out, "tokenizer.ggml.merges", merges, n_merges, c->error);
}

static aerie_status put_rank_merges(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w)
{
    ranked *words = ae_alloc(w->n + 1, sizeof *words);
    ae_gguf_string *merges = ae_alloc(w->n + 1, sizeof *merges);
    const aerie_status status = words && merges ? put_split(c, out, w, words, merges)
                                                : ae_convert_no_memory(c, "the merges");
    ae_free(words);
    ae_free(merges);
    return status;
}

aerie_status ae_convert_put_tiktoken(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w, const ae_convert_folder *f)
{
    const size_t at = ranks_of(c);
    AE_TRY(read_lines(c, w, ranks[at].file, put_rank));
    if (ranks[at].merges) AE_TRY(put_rank_merges(c, out, w));
    if (strcmp(c->arch->arch, "qwen") == 0) AE_TRY(put_qwen_specials(c, w));
    AE_TRY(ae_convert_put_added(c, w, f));
    AE_TRY(ae_convert_put_words(c, out, w, "gpt2", false));
    return ae_gguf_writer_string(out, "tokenizer.ggml.pre", c->options.pre ? c->options.pre : ranks[at].pre, c->error);
}

/* ---- RWKV ------------------------------------------------------------------------------------------------------- */

static void put_point(ae_buf *out, uint32_t point)
{
    char bytes[4];
    size_t n = 0;
    if (point < 0x80) bytes[n++] = (char)point;
    else if (point < 0x800) bytes[n++] = (char)(0xC0 | point >> 6);
    else if (point < 0x10000) bytes[n++] = (char)(0xE0 | point >> 12);
    else bytes[n++] = (char)(0xF0 | point >> 18);
    if (point >= 0x10000) bytes[n++] = (char)(0x80 | (point >> 12 & 63));
    if (point >= 0x800) bytes[n++] = (char)(0x80 | (point >> 6 & 63));
    if (point >= 0x80) bytes[n++] = (char)(0x80 | (point & 63));
    ae_buf_add(out, bytes, n);
}

/* Reads n digits of base 16. */
static bool read_hex(const char *text, size_t n, uint32_t *value)
{
    *value = 0;
    for (size_t i = 0; i < n; i++) {
        const char digit = (char)(text[i] | 32);
        if (!((digit >= '0' && digit <= '9') || (digit >= 'a' && digit <= 'f'))) return false;
        *value = *value << 4 | (uint32_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    return true;
}

/* Appends the bytes of a Python literal of text or bytes. Returns false if it is invalid. */
static bool read_literal(const char *text, size_t n, ae_buf *out)
{
    static const char plain[] = "nrt\\'\"abfv", means[] = "\n\r\t\\'\"\a\b\f\v";
    const bool is_bytes = n && *text == 'b';
    if (is_bytes) text++, n--;
    if (n < 2 || (*text != '\'' && *text != '"') || text[n - 1] != *text) return false;
    const char *end = text + n - 1, quote = *text;
    for (const char *at = text + 1; at < end; at++) {
        if (*at == quote) return false;
        if (*at != '\\') {
            ae_buf_add(out, at, 1);
            continue;
        }
        if (++at == end) return false;
        const char *known = *at ? strchr(plain, *at) : NULL;
        const size_t digits = *at == 'x' ? 2 : *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
        uint32_t value = 0;
        if (known) {
            ae_buf_add(out, &means[known - plain], 1);
        } else if (digits && (size_t)(end - at) > digits && read_hex(at + 1, digits, &value) && value < 0x110000) {
            const char byte = (char)value;
            if (is_bytes && digits == 2) ae_buf_add(out, &byte, 1);
            else put_point(out, value);
            at += digits;
        } else {
            return false;
        }
    }
    return true;
}

/* Writes bytes as a Python literal without the quotes. */
static void spell(const ae_buf *bytes, ae_buf *out)
{
    const bool both = memchr(bytes->data, '\'', bytes->n) && memchr(bytes->data, '"', bytes->n);
    for (size_t i = 0; i < bytes->n; i++) {
        const uint8_t byte = (uint8_t)bytes->data[i];
        const char *escape = byte == '\n' ? "\\n" : byte == '\r' ? "\\r" : byte == '\t' ? "\\t" : byte == '\\' ? "\\\\"
                             : byte == '\'' && both ? "\\'" : NULL;
        if (escape) ae_buf_adds(out, escape);
        else if (byte >= 32 && byte < 127) ae_buf_add(out, &byte, 1);
        else ae_buf_addf(out, "\\x%02x", byte);
    }
}

static aerie_status put_rwkv_line(const ae_convert *c, ae_convert_words *w, const char *text, size_t n, size_t line,
                                  ae_buf *bytes)
{
    char *end;
    const unsigned long long id = strtoull(text, &end, 10);
    const char *first = end + 1, *last = text + n;
    while (last > first && last[-1] != ' ') last--; /* the number of bytes follows the last space */
    ae_buf spelled = {0};
    ae_buf_clear(bytes);
    const bool fits = *text >= '0' && *text <= '9' && *end == ' ' && last > first + 1 && *last >= '0' && *last <= '9' &&
                      read_literal(first, (size_t)(last - 1 - first), bytes) && bytes->n &&
                      strtoull(last, &end, 10) == bytes->n && end == text + n && id <= INT32_MAX;
    if (fits) spell(bytes, &spelled);
    aerie_status status = bytes->failed || spelled.failed ? ae_convert_no_memory(c, "a token") : AERIE_OK;
    if (status == AERIE_OK && !fits)
        status = ae_fail(c->error, AERIE_ERROR_FORMAT,
                         "%s: line %zu of %s is not an id, a token as a literal and its number of "
                         "bytes", c->path, line, rwkv_name);
    if (status == AERIE_OK && id < w->n && w->list[id].data)
        status = ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: %s: line %zu has id %llu, as an earlier one", c->path, rwkv_name,
                         line,
                         id);
    if (status == AERIE_OK)
        status = ae_convert_words_put(c, w, spelled.data, spelled.n, (json_int_t)id, AERIE_TOKEN_NORMAL);
    ae_buf_free(&spelled);
    return status;
}

/* Token 0 begins and ends texts; an empty line ends an answer, too. */
aerie_status ae_convert_put_rwkv(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w)
{
    static const char *const zero[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"};
    AE_TRY(ae_convert_words_put(c, w, "<s>", 3, 0, AERIE_TOKEN_CONTROL));
    AE_TRY(read_lines(c, w, rwkv_name, put_rwkv_line));
    AE_TRY(ae_convert_put_words(c, out, w, "rwkv", false));
    for (size_t i = 0; i < 2; i++) AE_TRY(ae_gguf_writer_u32(out, zero[i], 0, c->error));
    for (uint32_t i = 1; i < w->n; i++)
        if (w->list[i].n == 4 && memcmp(w->list[i].data, "\\n\\n", 4) == 0)
            return ae_gguf_writer_u32(out, "tokenizer.ggml.eot_token_id", i, c->error);
    return AERIE_OK;
}

/* ---- PLaMo 2 ---------------------------------------------------------------------------------------------------- */

static int32_t plamo_type(const json_t *kind, const char *text, size_t n)
{
    static const struct {
        const char *name;
        int32_t type;
    } kinds[] = {{"UNKNOWN", AERIE_TOKEN_UNKNOWN}, {"CONTROL", AERIE_TOKEN_CONTROL}, {"BYTE", AERIE_TOKEN_BYTE}};
    const char *name = json_string_value(kind);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && name; i++)
        if (strcmp(name, kinds[i].name) == 0) return kinds[i].type;
    const bool marked = n >= 10 && memcmp(text, "<|plamo:", 8) == 0 && memcmp(text + n - 2, "|>", 2) == 0;
    return marked ? AERIE_TOKEN_CONTROL : AERIE_TOKEN_NORMAL;
}

/* bytes: its length counts the tokens, since PLaMo's lines have no ids. */
static aerie_status put_plamo_line(const ae_convert *c, ae_convert_words *w, const char *text, size_t n, size_t line,
                                   ae_buf *bytes)
{
    json_t *token = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    const json_t *word = json_array_get(token, 0), *score = json_array_get(token, 1);
    const size_t id = bytes->n;
    aerie_status status = AERIE_OK;
    ae_buf_add(bytes, "", 1);
    if (bytes->failed) status = ae_convert_no_memory(c, "the vocabulary");
    else if (!json_string_length(word) || !json_is_number(score) || !isfinite((float)json_number_value(score)))
        status = ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: line %zu of %s is not a list of a token, its score and its kind",
                         c->path, line, plamo_name);
    if (status == AERIE_OK)
        status = ae_convert_words_put(c, w, json_string_value(word), json_string_length(word), (json_int_t)id,
                                      plamo_type(json_array_get(token, 2), json_string_value(word), json_string_length(word)));
    if (status == AERIE_OK) w->scores[id] = (float)json_number_value(score);
    json_decref(token);
    return status;
}

/* Token 4, <|plamo:op|>, ends an answer. */
aerie_status ae_convert_put_plamo(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w)
{
    static const char op[] = "<|plamo:op|>";
    for (uint32_t i = 0; i < w->n; i++) w->scores[i] = -1000;
    AE_TRY(read_lines(c, w, plamo_name, put_plamo_line));
    AE_TRY(ae_convert_put_words(c, out, w, "plamo2", true));
    for (uint32_t i = 0; i < w->n; i++)
        if (w->list[i].n == sizeof op - 1 && memcmp(w->list[i].data, op, sizeof op - 1) == 0)
            return ae_gguf_writer_u32(out, "tokenizer.ggml.eot_token_id", i, c->error);
    return AERIE_OK;
}

/* tiktoken.c - tiktoken.model, the ranks of tiktoken's vocabularies: a line for each token, its bytes in base64 and its rank,
 * which is its id (vocab.h). Kimi's folders have it in place of tokenizer.json.
 *
 * Owns nothing. Tokens are written as byte-level BPE has them. There are no merges: two parts become one if together they are a
 * token, the lowest id first, which is what tiktoken does and what readers of files without merges do. Source: tiktoken's
 * format as published, read as hostile input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/model/arch.h"
#include "convert/model/vocab.h"

enum { MAX_BYTES = 1024 }; /* of a token; Kimi's longest one has 128 */

/* The character that stands for a byte in byte-level BPE, in UTF-8 [2]. */
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

static aerie_status fail_line(const ae_convert *c, size_t line)
{
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: line %zu of tiktoken.model is not a token in base64 and its rank",
                   c->path, line);
}

/* bytes: room for the token's. */
static aerie_status put_line(const ae_convert *c, ae_convert_words *w, const char *text, size_t n, size_t line, ae_buf *bytes)
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
        return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tiktoken.model: line %zu has rank %llu, as an earlier one", c->path,
                       line, rank);
    return ae_convert_words_put(c, w, word, n_word, (json_int_t)rank, AERIE_TOKEN_NORMAL);
}

static aerie_status put_lines(const ae_convert *c, ae_convert_words *w, const char *text, size_t n)
{
    size_t line = 0, n_tokens = 0;
    ae_buf bytes = {0};
    aerie_status status = AERIE_OK;
    for (size_t at = 0, length; status == AERIE_OK && at < n; at += length + 1) {
        const char *end = memchr(text + at, '\n', n - at);
        length = end ? (size_t)(end - text) - at : n - at;
        const size_t own = length && text[at + length - 1] == '\r' ? length - 1 : length;
        line++;
        if (own) status = put_line(c, w, text + at, own, line, &bytes);
        n_tokens += own > 0;
    }
    ae_buf_free(&bytes);
    if (status != AERIE_OK || n_tokens) return status;
    return ae_fail(c->error, AERIE_ERROR_FORMAT, "%s: tiktoken.model has no token", c->path);
}

aerie_status ae_convert_put_tiktoken(const ae_convert *c, ae_gguf_writer *out, ae_convert_words *w, const ae_convert_folder *f)
{
    char *path = ae_convert_path_in(c, "tiktoken.model"), *text = NULL;
    size_t n;
    if (!path) return ae_convert_no_memory(c, "a path");
    aerie_status status = ae_convert_read_text(c, path, &text, &n);
    ae_free(path);
    if (status == AERIE_OK) status = put_lines(c, w, text, n);
    ae_free(text);
    AE_TRY(status);
    AE_TRY(ae_convert_put_added(c, w, f));
    AE_TRY(ae_convert_put_words(c, out, w, "gpt2", false));
    return ae_gguf_writer_string(out, "tokenizer.ggml.pre", c->options.pre ? c->options.pre : "kimi-k2", c->error);
}

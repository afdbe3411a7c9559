/* fuzz_framing.c - any bytes of a connection, read by the server's framing.
 *
 * Input: the bytes. Looks for crashes, for pieces that change the result, for a number of requests other than that of a
 * plain reader that has the whole text before it, and for endings that do not complete the header they are made for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/http/framing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fail(const char *what)
{
    fprintf(stderr, "fuzz_framing: %s\n", what);
    abort();
}

/* Feeds pieces of `step` bytes, and returns how many came before the first wrong one. */
static size_t feed(serve_framing *f, const char *bytes, size_t n, size_t step)
{
    memset(f, 0, sizeof *f);
    for (size_t at = 0; at < n; at += step) {
        const size_t part = step < n - at ? step : n - at, good = serve_framing_feed(f, bytes + at, part);
        if (good < part) return at + good;
    }
    return n;
}

/* ---- A plain reader of whole texts ---- */

/* The line at `*at`, without its CR LF. false: it has no end. */
static bool next_line(const char *bytes, size_t n, size_t *at, const char **line, size_t *length)
{
    *line = bytes + *at;
    for (size_t i = *at; i + 1 < n; i++)
        if (bytes[i] == '\r' && bytes[i + 1] == '\n') {
            *length = i - *at;
            *at = i + 2;
            return true;
        }
    return false;
}

static bool is_named(const char *line, size_t length, const char *name, const char **value, size_t *n_value)
{
    const size_t n = strlen(name);
    if (length <= n || line[n] != ':') return false;
    for (size_t i = 0; i < n; i++)
        if ((line[i] | 0x20) != name[i]) return false;
    *value = line + n + 1;
    *n_value = length - n - 1;
    while (*n_value && (**value == ' ' || **value == '\t')) (*value)++, (*n_value)--;
    return true;
}

/* Passes the chunks and the trailer. false: they have no end. */
static bool pass_chunks(const char *bytes, size_t n, size_t *at)
{
    for (const char *line;;) {
        size_t length;
        if (!next_line(bytes, n, at, &line, &length)) return false;
        char text[17] = "";
        memcpy(text, line, length < 16 ? length : 16);
        const uint64_t left = strtoull(text, NULL, 16);
        if (!left) break;
        if (left > n || *at + left + 2 > n) return false;
        *at += left + 2;
    }
    for (const char *line;;) {
        size_t length;
        if (!next_line(bytes, n, at, &line, &length)) return false;
        if (!length) return true;
    }
}

/* How many complete headers a text without a fault has. */
static uint64_t count_heads(const char *bytes, size_t n)
{
    uint64_t n_heads = 0;
    for (size_t at = 0;;) {
        const char *line, *value;
        size_t length, n_value;
        uint64_t n_body = 0;
        bool chunked = false;
        do /* empty lines may come first */
            if (!next_line(bytes, n, &at, &line, &length)) return n_heads;
        while (!length);
        do {
            if (!next_line(bytes, n, &at, &line, &length)) return n_heads;
            if (is_named(line, length, "content-length", &value, &n_value)) n_body = strtoull(value, NULL, 10);
            if (is_named(line, length, "transfer-encoding", &value, &n_value)) chunked = true;
        } while (length);
        n_heads++;
        if (chunked && !pass_chunks(bytes, n, &at)) return n_heads;
        if (n_body > n - at) return n_heads;
        at += n_body;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t steps[] = {1, 2, 7, 61};
    char *bytes = malloc(size + 1);
    serve_framing whole, f;
    if (!bytes) return 0;
    memcpy(bytes, data, size);
    bytes[size] = 0;
    const size_t good = feed(&whole, bytes, size, size + 1);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (feed(&f, bytes, size, steps[i]) != good || f.n_heads != whole.n_heads || f.wrong_at != whole.wrong_at ||
            f.wrong != whole.wrong || f.ending != whole.ending || f.state != whole.state || f.n_left != whole.n_left)
            fail("pieces change the result");
    if ((good < size) != (whole.wrong != NULL)) fail("the wrong byte is not where the fault is");
    if (count_heads(bytes, good) != whole.n_heads) fail("a plain reader counts other requests");
    if (whole.ending) { /* what libmicrohttpd gets in place of the wrong byte */
        feed(&f, bytes, good, size + 1);
        serve_framing_feed(&f, whole.ending, strlen(whole.ending));
        /* faults that only a whole line or header shows may still exist */
        const bool still = f.wrong && (strstr(f.wrong, "version") || strstr(f.wrong, "ncoding"));
        if (!still && (f.wrong || f.n_heads != whole.n_heads + 1)) fail("an ending does not complete its header");
    }
    free(bytes);
    return 0;
}

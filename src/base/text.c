/* text.c - implements text.h. */
#include "base/text.h"

#include <stdbool.h>
#include <string.h>

/* Returns whether each of the first pairs of bytes is a NUL at index `zero` (0 or 1) and a non-NUL byte at the other index. */
static bool is_pairs(const char *bytes, size_t n, size_t zero)
{
    enum { MOST = 64 };
    const size_t n_looked = n < MOST ? n & ~(size_t)1 : MOST;
    if (n_looked < 4) return false;
    for (size_t i = 0; i < n_looked; i++)
        if ((bytes[i] == '\0') != (i % 2 == zero)) return false;
    return true;
}

const char *ae_text_foreign(const char *bytes, size_t n)
{
    if (n >= 4 && (memcmp(bytes, "\xff\xfe\0\0", 4) == 0 || memcmp(bytes, "\0\0\xfe\xff", 4) == 0)) return "UTF-32";
    if (n >= 2 && (memcmp(bytes, "\xff\xfe", 2) == 0 || memcmp(bytes, "\xfe\xff", 2) == 0)) return "UTF-16";
    return is_pairs(bytes, n, 1) ? "UTF-16LE" : is_pairs(bytes, n, 0) ? "UTF-16BE" : NULL;
}

/* Returns the bytes of the UTF-8 byte order mark at the beginning: 0 or 3. */
static size_t mark_bytes(const char *bytes, size_t n)
{
    return n >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* Returns whether the text has a newline and every newline follows a CR. */
static bool is_windows(const char *text, size_t n)
{
    bool any = false;
    for (const char *at = text, *end = text + n; at < end && (at = memchr(at, '\n', (size_t)(end - at))); at++) {
        if (at == text || at[-1] != '\r') return false;
        any = true;
    }
    return any;
}

size_t ae_text_settle(char *text, size_t n)
{
    const size_t from = mark_bytes(text, n);
    const bool windows = is_windows(text + from, n - from);
    size_t out = 0;
    if (!from && !windows) return n;
    for (size_t i = from; i < n; i++)
        if (!windows || text[i] != '\r' || i + 1 == n || text[i + 1] != '\n') text[out++] = text[i];
    return out;
}

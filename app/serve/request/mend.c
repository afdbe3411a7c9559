/* mend.c - repairs bodies that are not valid JSON but whose meaning is certain (request.h): a byte order mark at the beginning,
 * which programs on Windows write, and halves of surrogate pairs, which JavaScript writes where it has cut a character.
 * Owns nothing: bytes change in place, and their number stays. RFC 8259, section 8.1, allows a reader to ignore the mark; a
 * half becomes U+FFFD, as in browsers' TextEncoder. */
#include <string.h>

#include "serve/request/request.h"

/* Returns the number of an escape \uXXXX at text[0..n); -1 if there is none. */
static int escape_at(const char *text, size_t n)
{
    int code = 0;
    if (n < 6 || text[0] != '\\' || text[1] != 'u') return -1;
    for (size_t i = 2; i < 6; i++) {
        const char c = text[i], low = (char)(c | 0x20);
        const bool digit = c >= '0' && c <= '9', letter = low >= 'a' && low <= 'f';
        if (!digit && !letter) return -1;
        code = code * 16 + (digit ? c - '0' : low - 'a' + 10);
    }
    return code;
}

void serve_mend_mark(char *text, size_t n)
{
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) memset(text, ' ', 3);
}

bool serve_mend_halves(char *text, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n;) {
        const int code = escape_at(text + i, n - i);
        if (code < 0) {
            i += text[i] == '\\' ? 2 : 1;
            continue;
        }
        const int next = code >= 0xd800 && code < 0xdc00 ? escape_at(text + i + 6, n - i - 6) : -1;
        if (next >= 0xdc00 && next < 0xe000) {
            i += 12;
            continue;
        }
        if (code >= 0xd800 && code < 0xe000) {
            memcpy(text + i, "\\ufffd", 6);
            any = true;
        }
        i += 6;
    }
    return any;
}

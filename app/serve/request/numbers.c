/* numbers.c - whole numbers from 2^63 on in a body, which jansson cannot represent (request.h).
 * They are replaced by reals of the same length: the first 17 digits, which are all that a double has, and an exponent with
 * leading zeros. All other numbers, such as the tokens of a prompt, stay as they are. A seed may have more digits than a
 * double, so its exact value is returned separately. */
#include <string.h>

#include "serve/request/request.h"

enum {
    KEPT_DIGITS = 17,
    LEAST_DIGITS = 19, /* digits of 2^63 */
    DEEPEST_SEED = 2,  /* depth of braces at which a seed may be: ollama has it in "options" */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns digits[0..n) as a number if it is from 2^63 to 2^64 - 1; else 0. */
static uint64_t wide_number(const char *digits, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t digit = (uint64_t)(digits[i] - '0');
        if (value > (UINT64_MAX - digit) / 10) return 0;
        value = value * 10 + digit;
    }
    return value > INT64_MAX ? value : 0;
}

static void narrow(char *digits, size_t n)
{
    size_t exponent = n - KEPT_DIGITS;
    digits[KEPT_DIGITS] = 'e';
    for (size_t i = n; i-- > KEPT_DIGITS + 1; exponent /= 10) digits[i] = (char)('0' + exponent % 10);
}

/* Returns the end of a number; `at` is just after its first digit. *is_whole: it has neither a fraction nor an exponent. */
static size_t end_of_number(const char *text, size_t n, size_t at, bool *is_whole)
{
    while (at < n && is_digit(text[at])) at++;
    *is_whole = at == n || !strchr(".eE", text[at]);
    return at;
}

static size_t end_of_string(const char *text, size_t n, size_t at)
{
    for (at++; at < n && text[at] != '"'; at++) at += text[at] == '\\';
    return at < n ? at + 1 : n;
}

void serve_numbers_narrow(char *text, size_t n, uint64_t *seed)
{
    static const char name[] = "\"seed\"";
    size_t depth = 0;
    bool is_seed = false; /* the next value belongs to "seed" */
    *seed = 0;
    for (size_t at = 0; at < n;) {
        const char c = text[at];
        if (c == '"') {
            const size_t end = end_of_string(text, n, at);
            is_seed = end - at == sizeof name - 1 && memcmp(text + at, name, sizeof name - 1) == 0 && depth <= DEEPEST_SEED;
            at = end;
        } else if (is_digit(c)) {
            bool is_whole;
            const size_t end = end_of_number(text, n, at, &is_whole), n_digits = end - at;
            const bool is_negative = at && text[at - 1] == '-';
            const uint64_t wide = is_whole && n_digits >= LEAST_DIGITS ? wide_number(text + at, n_digits) : 0;
            if (wide && is_seed && !is_negative) *seed = wide;
            if (is_whole && (wide || n_digits > LEAST_DIGITS)) narrow(text + at, n_digits);
            for (at = end; !is_whole && at < n && (is_digit(text[at]) || strchr(".eE+-", text[at]));) at++;
            is_seed = false;
        } else {
            depth += c == '{' || c == '[';
            depth -= depth && (c == '}' || c == ']');
            is_seed = is_seed && strchr(": \t\r\n", c);
            at++;
        }
    }
}

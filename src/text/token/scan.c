/* scan.c - the common pre-tokenizer patterns as scanners: one pass, no backtracking, no memory.
 *
 * Each function returns what its regular expression (see pretok_rules.c) matches at a position;
 * tests compare them with PCRE2. Where alternatives of the pattern could backtrack, the comment
 * says why one character of look-ahead is enough.
 */
#include "text/token/pretok_int.h"

static size_t run_of(const char *text, size_t pos, size_t end, uint16_t wanted)
{
    uint32_t n;
    while (pos < end && (ae_uni_class_at(text + pos, end - pos, &n) & wanted)) pos += n;
    return pos;
}

static size_t run_without(const char *text, size_t pos, size_t end, uint16_t unwanted)
{
    uint32_t n;
    while (pos < end && !(ae_uni_class_at(text + pos, end - pos, &n) & unwanted)) pos += n;
    return pos;
}

/* \s+(?!\S)|\s+ : a run leaves its last character to the word after it, unless it is alone. */
static size_t scan_space(const char *text, size_t pos, size_t end)
{
    size_t last = pos, at = pos;
    uint32_t n;
    while (at < end && (ae_uni_class_at(text + at, end - at, &n) & AE_UNI_SPACE)) {
        last = at;
        at += n;
    }
    return at == end || last == pos ? at : last;
}

/* 's 't 're 've 'm 'll 'd at text[0..n): bytes matched, or 0. With `fold` in any case, where U+017F
 * (long s) folds to s. */
static size_t contraction(const char *text, size_t n, bool fold)
{
    if (n < 2) return 0;
    if (fold && n >= 3 && (uint8_t)text[1] == 0xC5 && (uint8_t)text[2] == 0xBF) return 3;
    char a = text[1], b = n > 2 ? text[2] : 0;
    if (fold && a >= 'A' && a <= 'Z') a = (char)(a | 0x20);
    if (fold && b >= 'A' && b <= 'Z') b = (char)(b | 0x20);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

size_t ae_scan_gpt2(const char *text, size_t pos, size_t end)
{
    if (text[pos] == '\'') {
        size_t n = contraction(text + pos, end - pos, false);
        if (n) return pos + n;
    }
    uint32_t n;
    size_t at = pos;
    uint16_t class = ae_uni_class_at(text + pos, end - pos, &n);
    if (text[pos] == ' ' && pos + 1 < end) class = ae_uni_class_at(text + (at = pos + 1), end - pos - 1, &n);
    if (class & AE_UNI_LETTER) return run_of(text, at + n, end, AE_UNI_LETTER);
    if (class & AE_UNI_NUMBER) return run_of(text, at + n, end, AE_UNI_NUMBER);
    if (!(class & AE_UNI_SPACE)) {
        return run_without(text, at + n, end, AE_UNI_LETTER | AE_UNI_NUMBER | AE_UNI_SPACE);
    }
    return scan_space(text, pos, end);
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ : greedy, so the first alternative ends after the run's last newline. */
static size_t scan_space_newline(const char *text, size_t pos, size_t end)
{
    size_t last = pos, at = pos, newline = 0;
    uint32_t n;
    while (at < end) {
        uint16_t class = ae_uni_class_at(text + at, end - at, &n);
        if (!(class & AE_UNI_SPACE)) break;
        last = at;
        at += n;
        if (class & AE_UNI_NEWLINE) newline = at;
    }
    if (newline) return newline;
    return at == end || last == pos ? at : last;
}

/* \s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s : a run without newlines gives the largest power
 * of two that leaves a character to the word after it. The run is searched for newlines once; its pieces look 513 ahead. */
static size_t scan_space_powers(const char *text, size_t pos, size_t end, size_t *clean)
{
    enum { LARGEST = 512 };
    uint32_t n;
    if (*clean <= pos) {
        const size_t stop = scan_space_newline(text, pos, end);
        if (text[stop - 1] == '\r' || text[stop - 1] == '\n') return stop;
        *clean = run_of(text, pos, end, AE_UNI_SPACE);
    }
    size_t ends[LARGEST + 2], count = 0; /* ends[i]: where the first i characters end */
    for (size_t at = pos; at < *clean && count <= LARGEST; at += n) {
        ae_uni_class_at(text + at, end - at, &n);
        ends[++count] = at + n;
    }
    /* the whole run, or all but its last character */
    const size_t room = *clean == end && count <= LARGEST ? count : count - 1;
    for (size_t size = LARGEST; size >= 2; size /= 2)
        if (room >= size) return ends[size];
    return ends[1];
}

/* \p{N}{1,n}, n = 0: any number; pos is after the first. */
static size_t more_numbers(const char *text, size_t pos, size_t end, uint32_t n_group)
{
    uint32_t n;
    for (uint32_t i = 1; pos < end && (i < n_group || !n_group); i++, pos += n) {
        if (!(ae_uni_class_at(text + pos, end - pos, &n) & AE_UNI_NUMBER)) break;
    }
    return pos;
}

/* Matches the alternatives that follow words in both families: numbers, punctuation, white space. */
static size_t scan_rest(const char *text, size_t pos, size_t end, const ae_scan *scan, uint16_t letters, size_t *clean)
{
    uint32_t n, n_next;
    uint16_t class = ae_uni_class_at(text + pos, end - pos, &n);
    if (class & AE_UNI_NUMBER) return more_numbers(text, pos + n, end, scan->n_numbers);
    const uint16_t unwanted = letters | AE_UNI_LETTER | AE_UNI_NUMBER | AE_UNI_SPACE;
    if (text[pos] == ' ' && pos + 1 < end) class = ae_uni_class_at(text + pos + 1, end - pos - 1, &n_next);
    if (class & unwanted) return scan->powers ? scan_space_powers(text, pos, end, clean) : scan_space_newline(text, pos, end);
    size_t at = run_without(text, pos + n, end, unwanted);
    while (scan->tail && at < end && (text[at] == '\r' || text[at] == '\n' || text[at] == scan->tail)) at++;
    return at;
}

size_t ae_scan_llama3(const char *text, size_t pos, size_t end, const ae_scan *scan, size_t *clean)
{
    if (text[pos] == '\'' && !scan->bare) {
        size_t n = contraction(text + pos, end - pos, true);
        if (n) return pos + n;
    }
    uint32_t n, n_next = 0;
    uint16_t class = ae_uni_class_at(text + pos, end - pos, &n), next = 0;
    /* [^\r\n\p{L}\p{N}]?letters+ : a mark may be the prefix or the first letter, with the same end */
    if (class & scan->letters) return run_of(text, pos + n, end, scan->letters);
    if (pos + n < end) next = ae_uni_class_at(text + pos + n, end - pos - n, &n_next);
    if (!(class & (AE_UNI_NEWLINE | AE_UNI_LETTER | AE_UNI_NUMBER)) && (next & scan->letters)) {
        return run_of(text, pos + n + n_next, end, scan->letters);
    }
    return scan_rest(text, pos, end, scan, scan->letters, clean);
}

/* Returns the end of upper*lower+ at pos, or pos if it does not match. The greedy upper* gives characters back until a caseless
 * one can match lower+; all after that one are upper case only, so it ends the word. *upper_end is where upper* ended, for the
 * second alternative. */
static size_t camel_word(const char *text, size_t pos, size_t end, size_t *upper_end)
{
    size_t at = pos, caseless = pos;
    uint32_t n;
    while (at < end) {
        uint16_t class = ae_uni_class_at(text + at, end - at, &n);
        if (!(class & AE_UNI_UPPER)) {
            if (class & AE_UNI_LOWER) caseless = run_of(text, at + n, end, AE_UNI_LOWER);
            break;
        }
        at += n;
        if (class & AE_UNI_LOWER) caseless = at;
    }
    *upper_end = at;
    return caseless;
}

size_t ae_scan_camel(const char *text, size_t pos, size_t end, const ae_scan *scan)
{
    uint32_t n;
    uint16_t class = ae_uni_class_at(text + pos, end - pos, &n);
    size_t stop = pos, upper = pos, upper_bare = pos;
    /* alternatives in order: word after a prefix, word, upper+ after a prefix, upper+ */
    if (!(class & (AE_UNI_NEWLINE | AE_UNI_LETTER | AE_UNI_NUMBER))) {
        stop = camel_word(text, pos + n, end, &upper);
        if (stop == pos + n) stop = pos;
        if (upper == pos + n) upper = pos;
    }
    if (stop == pos && (class & (AE_UNI_UPPER | AE_UNI_LOWER))) stop = camel_word(text, pos, end, &upper_bare);
    if (stop == pos) stop = upper > pos ? upper : upper_bare;
    if (stop == pos) return scan_rest(text, pos, end, scan, 0, NULL);
    if (scan->apostrophes && stop < end && text[stop] == '\'') stop += contraction(text + stop, end - stop, true);
    return stop;
}

size_t ae_scan_numbers(const char *text, size_t pos, size_t end, uint32_t n_group)
{
    uint32_t n;
    if (!(ae_uni_class_at(text + pos, end - pos, &n) & AE_UNI_NUMBER)) {
        return run_without(text, pos, end, AE_UNI_NUMBER);
    }
    return more_numbers(text, pos + n, end, n_group);
}

size_t ae_scan_newlines(const char *text, size_t pos, size_t end)
{
    if (text[pos] == '\r' || text[pos] == '\n') return pos + 1;
    while (pos < end && text[pos] != '\r' && text[pos] != '\n') pos++;
    return pos;
}

size_t ae_scan_lines(const char *text, size_t pos, size_t end)
{
    const bool newline = text[pos] == '\n';
    while (pos < end && (text[pos] == '\n') == newline) pos++;
    return pos;
}

size_t ae_scan_threes(const char *text, size_t pos, size_t end, ae_threes which, size_t *n_digits, size_t *stop)
{
    size_t begin = end;
    *n_digits = 0;
    for (uint32_t n; pos < end; pos += n) {
        const uint32_t code = ae_uni_decode(text + pos, end - pos, &n);
        if (which == AE_THREES_NUMBERS ? ae_uni_class(code) & AE_UNI_NUMBER : ae_uni_is_digit(code)) {
            if (!(*n_digits)++) begin = pos;
            continue;
        }
        if (*n_digits && which == AE_THREES_WORDS && ae_uni_is_word(code)) *n_digits = 0;
        if (*n_digits) break;
    }
    *stop = pos;
    return *n_digits ? begin : end;
}

size_t ae_scan_trailing(const char *text, size_t begin, size_t end)
{
    size_t at = end;
    while (at > begin) {
        size_t back = at - 1;
        while (back > begin && at - back < 4 && ((uint8_t)text[back] & 0xC0) == 0x80) back--;
        uint32_t n;
        if (!(ae_uni_class_at(text + back, at - back, &n) & AE_UNI_SPACE) || back + n != at) break;
        at = back;
    }
    return at;
}

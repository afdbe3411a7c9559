/* gbnf.c - reads GBNF (grammar.h says which) into an automaton.
 *
 * One pass, recursive over groups only, whose depth is bounded. Positions are lines and columns (code points) from 1.
 */
#include "text/grammar/build.h"
#include "text/template/value.h"

typedef struct reader {
    ae_gbuild b;
    const char *text, *at, *end;
    const char *known; /* a place whose line and column are known; later places, the usual case, are counted from it */
    uint32_t known_line, known_column;
    uint32_t depth;
    ae_grange *ranges; /* of the class being read */
    size_t n_ranges, ranges_capacity;
} reader;

/* ---- Places and failures ------------------------------------------------------------------------------ */

static void place(reader *r, const char *at, uint32_t *line, uint32_t *column)
{
    if (at < r->known) r->known = r->text, r->known_line = r->known_column = 1;
    for (; r->known < at; r->known++) {
        if (*r->known == '\n') {
            r->known_line++;
            r->known_column = 1;
        } else if (((uint8_t)*r->known & 0xC0) != 0x80) {
            r->known_column++;
        }
    }
    *line = r->known_line;
    *column = r->known_column;
}

/* Fails at a place. found: the message says what was found there. */
static void fail_at(reader *r, const char *at, const char *sentence, bool found)
{
    uint32_t line, column;
    if (r->b.status != AERIE_OK) return;
    place(r, at, &line, &column);
    aerie_status status;
    if (!found) {
        status = ae_fail(r->b.error, AERIE_ERROR_FORMAT, "grammar line %u, column %u: %s", line, column, sentence);
    } else if (at >= r->end) {
        status = ae_fail(r->b.error, AERIE_ERROR_FORMAT, "grammar line %u, column %u: %s, found the end of the text", line,
                         column, sentence);
    } else {
        size_t n = ae_utf8_valid(at, (size_t)(r->end - at));
        if (!n || (uint8_t)*at < 0x20) {
            status = ae_fail(r->b.error, AERIE_ERROR_FORMAT, "grammar line %u, column %u: %s, found byte 0x%02x", line, column,
                             sentence, (uint8_t)*at);
        } else {
            status = ae_fail(r->b.error, AERIE_ERROR_FORMAT, "grammar line %u, column %u: %s, found '%.*s'", line, column,
                             sentence, (int)n, at);
        }
    }
    ae_gbuild_fail(&r->b, status);
}

static bool ok(const reader *r)
{
    return r->b.status == AERIE_OK;
}

static bool is_at(const reader *r, char c)
{
    return r->at < r->end && *r->at == c;
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Skips spaces and comments, and line ends unless they end the rule (newlines). */
static void skip(reader *r, bool newlines)
{
    for (; r->at < r->end; r->at++) {
        if (*r->at == '#') {
            while (r->at < r->end && *r->at != '\n') r->at++;
            if (r->at == r->end) return;
        }
        if (*r->at == '\n' || *r->at == '\r') {
            if (!newlines) return;
        } else if (*r->at != ' ' && *r->at != '\t') {
            return;
        }
    }
}

/* ---- Characters ---------------------------------------------------------------------------------------- */

static uint32_t read_hex(reader *r, int n)
{
    uint32_t value = 0;
    const char *begin = r->at - 2;
    for (int i = 0; i < n; i++, r->at++) {
        const char c = r->at < r->end ? *r->at : 0;
        const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (digit < 0) {
            fail_at(r, r->at,
                    n == 2   ? "\\x takes 2 hex digits"
                    : n == 4 ? "\\u takes 4 hex digits"
                             : "\\U takes 8 hex digits",
                    true);
            return 0;
        }
        value = value << 4 | (uint32_t)digit;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
        fail_at(r, begin, "this is not the number of a character", false);
    return value;
}

/* Reads one character of a literal or class, and resolves escapes. */
static uint32_t read_char(reader *r)
{
    uint32_t code = 0;
    const size_t left = (size_t)(r->end - r->at), n = ae_utf8_valid(r->at, left);
    if (!n) {
        fail_at(r, r->at, "this is not UTF-8", true);
        return 0;
    }
    if (*r->at != '\\') {
        ae_utf8_decode(r->at, left, &code);
        r->at += n;
        return code;
    }
    const char *begin = r->at++;
    if (r->at == r->end) {
        fail_at(r, r->at, "an escape needs a character after the backslash", true);
        return 0;
    }
    switch (*r->at++) {
    case 'x': return read_hex(r, 2);
    case 'u': return read_hex(r, 4);
    case 'U': return read_hex(r, 8);
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case '\\': return '\\';
    case '"': return '"';
    case '[': return '[';
    case ']': return ']';
    default:
        fail_at(r, begin,
                "an unknown escape; \\n \\r \\t \\\\ \\\" \\[ \\] \\xNN \\uNNNN \\UNNNNNNNN, and \\- in a class, are known",
                false);
        return 0;
    }
}

static ae_gpiece read_literal(reader *r)
{
    const char *begin = r->at++;
    ae_buf bytes = {0};
    while (ok(r) && !is_at(r, '"')) {
        char encoded[4];
        if (r->at == r->end || *r->at == '\n') {
            fail_at(r, begin, "this literal is not closed by a quotation mark in its line", false);
            break;
        }
        const uint32_t code = read_char(r);
        if (ok(r)) ae_buf_add(&bytes, encoded, ae_utf8_encode(code, encoded));
    }
    if (ok(r)) r->at++;
    if (bytes.failed) ae_gbuild_fail(&r->b, ae_fail_memory(r->b.error, "a grammar", bytes.n));
    const ae_gpiece piece = ae_gbuild_bytes(&r->b, bytes.data, bytes.n);
    ae_buf_free(&bytes);
    return piece;
}

static void add_range(reader *r, uint32_t lo, uint32_t hi)
{
    ae_grange *grown =
        ae_grow(r->ranges, r->n_ranges + 1, &r->ranges_capacity, 2 * sizeof *grown); /* room for the complement */
    if (!grown) {
        ae_gbuild_fail(&r->b, ae_fail_memory(r->b.error, "a grammar", r->n_ranges * sizeof *grown));
        return;
    }
    r->ranges = grown;
    r->ranges[r->n_ranges++] = (ae_grange){lo, hi};
}

/* Reads one character of a class, in which \- is an escape too. */
static uint32_t read_class_char(reader *r)
{
    if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != '-') return read_char(r);
    r->at += 2;
    return '-';
}

static ae_gpiece read_class(reader *r)
{
    const char *begin = r->at++;
    const bool negated = is_at(r, '^');
    r->at += negated;
    r->n_ranges = 0;
    while (ok(r) && !is_at(r, ']')) {
        if (r->at == r->end) {
            fail_at(r, begin, "this character class is not closed by ]", false);
            break;
        }
        const char *from = r->at;
        const uint32_t lo = read_class_char(r);
        uint32_t hi = lo;
        if (is_at(r, '-') && r->at + 1 < r->end && r->at[1] != ']') {
            r->at++;
            hi = read_class_char(r);
        }
        if (ok(r) && hi < lo) fail_at(r, from, "this range runs backwards", false);
        if (ok(r)) add_range(r, lo, hi);
    }
    if (!ok(r)) return (ae_gpiece){0, 0};
    r->at++;
    if (!r->n_ranges) return negated ? ae_gbuild_class(&r->b, &(ae_grange){0, 0x10FFFF}, 1) : ae_gbuild_never(&r->b);
    size_t n = ae_granges_normalize(r->ranges, r->n_ranges);
    ae_grange *ranges = r->ranges;
    if (negated) {
        ranges = r->ranges + r->ranges_capacity; /* the second half of the storage */
        n = ae_granges_negate(r->ranges, n, ranges);
    }
    return ae_gbuild_class(&r->b, ranges, n);
}

/* ---- Repetitions ------------------------------------------------------------------------------------------ */

static uint32_t read_count(reader *r)
{
    uint64_t value = 0;
    const char *begin = r->at;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        if (value <= AE_GRAMMAR_MAX_NODES) value = value * 10 + (uint64_t)(*r->at - '0');
    if (r->at == begin) fail_at(r, r->at, "a repetition is {m}, {m,} or {m,n} with numbers", true);
    else if (value > AE_GRAMMAR_MAX_NODES) fail_at(r, begin, "this repetition count exceeds the limit of 1048576", false);
    return (uint32_t)value;
}

static ae_gpiece read_repetition(reader *r, ae_gpiece piece, bool nested)
{
    const char *begin = r->at;
    uint32_t min = 0, max = AE_GNONE;
    switch (*r->at++) {
    case '*': break;
    case '+': min = 1; break;
    case '?': max = 1; break;
    default:
        skip(r, nested);
        max = min = read_count(r);
        skip(r, nested);
        if (ok(r) && is_at(r, ',')) {
            r->at++;
            skip(r, nested);
            max = is_at(r, '}') ? AE_GNONE : read_count(r);
            skip(r, nested);
        }
        if (ok(r) && !is_at(r, '}')) fail_at(r, r->at, "a repetition is {m}, {m,} or {m,n} with numbers", true);
        if (ok(r)) r->at++;
        if (ok(r) && max < min) fail_at(r, begin, "this repetition's maximum is less than its minimum", false);
    }
    return ok(r) ? ae_gbuild_repeat(&r->b, piece, min, max) : piece;
}

/* ---- Alternatives, sequences, rules ------------------------------------------------------------------------- */

static ae_gpiece read_choices(reader *r, bool nested);

static ae_gpiece read_group(reader *r)
{
    const char *begin = r->at++;
    if (r->depth == AE_GRAMMAR_MAX_DEPTH) {
        fail_at(r, begin, "groups are nested deeper than 128", false);
        return (ae_gpiece){0, 0};
    }
    r->depth++;
    skip(r, true);
    const ae_gpiece piece = read_choices(r, true);
    r->depth--;
    if (ok(r) && !is_at(r, ')')) fail_at(r, r->at, "a group ends with )", true);
    if (ok(r)) r->at++;
    return piece;
}

static ae_gpiece read_name(reader *r)
{
    const char *begin = r->at;
    uint32_t line = 0, column = 0;
    while (r->at < r->end && is_name(*r->at)) r->at++;
    const uint32_t n_before = r->b.n_rules, rule = ae_gbuild_rule_named(&r->b, begin, (size_t)(r->at - begin), 0, 0);
    if (ok(r) && r->b.n_rules > n_before) { /* this is the rule's first use, which is reported if it stays undefined */
        place(r, begin, &line, &column);
        r->b.rules[rule].line = line;
        r->b.rules[rule].column = column;
    }
    return ae_gbuild_call(&r->b, rule);
}

/* Reads the literal, class, name or group at this point; returns false if there is none. */
static bool read_element(reader *r, ae_gpiece *piece)
{
    const char c = *r->at;
    if (c == '"') {
        *piece = read_literal(r);
    } else if (c == '[') {
        *piece = read_class(r);
    } else if (c == '(') {
        *piece = read_group(r);
    } else if (c == '.') {
        r->at++;
        *piece = ae_gbuild_class(&r->b, &(ae_grange){0, 0x10FFFF}, 1);
    } else if (is_name(c)) {
        *piece = read_name(r);
    } else {
        if (c == '<' || c == '!')
            fail_at(r, r->at, "references to tokens (<...>) are not possible; write their text as a literal", false);
        return false;
    }
    return true;
}

static bool is_repetition(const reader *r)
{
    return is_at(r, '*') || is_at(r, '+') || is_at(r, '?') || is_at(r, '{');
}

/* Reads elements up to | or ) or the end of the rule. */
static ae_gpiece read_sequence(reader *r, bool nested)
{
    ae_gpiece all = ae_gbuild_empty(&r->b), element;
    while (ok(r) && r->at < r->end) {
        if (is_repetition(r)) fail_at(r, r->at, "there is nothing before this to repeat", false);
        if (!ok(r) || !read_element(r, &element)) break;
        skip(r, nested);
        while (ok(r) && is_repetition(r)) {
            element = read_repetition(r, element, nested);
            skip(r, nested);
        }
        all = ae_gbuild_then(&r->b, all, element);
    }
    return all;
}

/* Returns whether a | follows, here or at the beginning of a later line. */
static bool is_at_bar(reader *r)
{
    const char *at = r->at;
    if (ok(r)) skip(r, true);
    if (is_at(r, '|')) return true;
    r->at = at;
    return false;
}

static ae_gpiece read_choices(reader *r, bool nested)
{
    ae_gpiece first = read_sequence(r, nested);
    if (!is_at_bar(r)) return first;
    const ae_gpiece choices = ae_gbuild_never(&r->b);
    ae_gbuild_or(&r->b, choices, first);
    while (ok(r) && is_at_bar(r)) {
        r->at++;
        skip(r, true);
        ae_gbuild_or(&r->b, choices, read_sequence(r, nested));
    }
    return choices;
}

static void read_rule(reader *r)
{
    const char *begin = r->at;
    while (r->at < r->end && is_name(*r->at)) r->at++;
    const size_t n = (size_t)(r->at - begin);
    if (!n) {
        fail_at(r, r->at, "a rule begins with its name", true);
        return;
    }
    const uint32_t rule = ae_gbuild_rule_named(&r->b, begin, n, 0, 0);
    skip(r, false);
    if (!ok(r)) return;
    if (r->end - r->at < 3 || memcmp(r->at, "::=", 3)) {
        fail_at(r, r->at, "a rule is written: name ::= what it consists of; expected ::=", true);
        return;
    }
    if (r->b.rules[rule].start != AE_GNONE) {
        fail_at(r, begin, "this rule is defined a second time", false);
        return;
    }
    place(r, begin, &r->b.rules[rule].line, &r->b.rules[rule].column);
    r->at += 3;
    skip(r, true);
    const ae_gpiece piece = read_choices(r, false);
    if (!ok(r)) return;
    ae_gbuild_define(&r->b, rule, piece);
    if (r->at < r->end && *r->at != '\n' && *r->at != '\r')
        fail_at(r, r->at, "expected a literal, a class, a rule, a group, |, or the end of the line", true);
}

aerie_status ae_grammar_from_gbnf(ae_grammar **out, const char *text, size_t n, aerie_error *error)
{
    *out = NULL;
    if (n > AE_GRAMMAR_MAX_TEXT)
        return ae_fail(error, AERIE_ERROR_LIMIT, "the grammar has %zu bytes; %u are possible", n, AE_GRAMMAR_MAX_TEXT);
    reader r = {.text = text, .at = text, .end = text + n, .known = text, .known_line = 1, .known_column = 1};
    ae_gbuild_init(&r.b, error);
    const uint32_t root = ae_gbuild_rule_named(&r.b, "root", 4, 0, 0);
    skip(&r, true);
    while (ok(&r) && r.at < r.end) {
        read_rule(&r);
        skip(&r, true);
    }
    const aerie_status status = ae_gbuild_finish(&r.b, root, "grammar", out);
    ae_free(r.ranges);
    ae_gbuild_free(&r.b);
    return status;
}

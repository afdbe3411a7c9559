/* regex.c - the regular expressions of `pattern`, as strings of JSON.
 *
 * ECMA 262's, without what is not regular or looks around: | ( ) (?: ) * + ? {m} {m,} {m,n} (also with ? after, which
 * changes no language), . [classes], \d \w \s and their opposites, \n \r \t \f \v \0 \xNN \uNNNN, punctuation after a
 * backslash, ^ and $ at the ends of the whole or of its outermost alternatives. Without ^ or $ anything may stand before
 * or after, as the standard has it. Refused: \b \B, references back, (?= (?! (?<, \p, \c. Nesting is bounded.
 */
#include "text/schema/schema.h"
#include "text/template/value.h"

#define MAX_RANGES 256

/* Characters by ranges. */
typedef struct ranges {
    ae_grange items[MAX_RANGES + 1]; /* one more: complements */
    size_t n;
} ranges;

typedef struct regex {
    ae_schema *s;
    ae_gbuild *b;
    const char *text, *at, *end;
    const json_t *schema;
    uint32_t depth;
    uint32_t any;        /* rule: any character; AE_GNONE until needed */
    ranges class, named; /* the class that is being read, and \d or the like in it; here, since the stack may be deep */
} regex;

static void fail(regex *r, aerie_status status, const char *sentence)
{
    ae_schema_fail(r->s, status, r->schema, "pattern '%.60s', character %zu: %s", r->text,
                   (size_t)(r->at - r->text) + 1, sentence);
}

static bool ok(const regex *r)
{
    return ae_schema_ok(r->s);
}

static bool is_at(const regex *r, char c)
{
    return r->at < r->end && *r->at == c;
}

static ae_gpiece any_text(regex *r)
{
    if (r->any == AE_GNONE) {
        r->any = ae_gbuild_rule(r->b, NULL);
        ae_gbuild_define(r->b, r->any, ae_schema_char(r->s, &(ae_grange){0, 0x10FFFF}, 1));
    }
    return ae_gbuild_repeat(r->b, ae_gbuild_call(r->b, r->any), 0, AE_GNONE);
}

/* ---- Sets of characters ------------------------------------------------------------------------------------ */

static void add_ranges(regex *r, ranges *out, const ae_grange *items, size_t n)
{
    if (out->n + n > MAX_RANGES) {
        fail(r, AERIE_ERROR_LIMIT, "a class of more than 256 ranges");
        return;
    }
    for (size_t i = 0; i < n; i++) out->items[out->n++] = items[i];
}

static void negate(ranges *x)
{
    ae_grange other[MAX_RANGES + 1]; /* may be on the stack: no function is called here that recurses */
    const size_t n = ae_granges_negate(x->items, ae_granges_normalize(x->items, x->n), other);
    memcpy(x->items, other, n * sizeof *other);
    x->n = n;
}

/* \d \w \s and opposites: adds them. Returns false if `letter` is none of these. */
static bool add_named(regex *r, ranges *out, char letter)
{
    static const ae_grange digits[] = {{'0', '9'}};
    static const ae_grange words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const ae_grange spaces[] = {{9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680},
                                       {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                       {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    r->named.n = 0;
    switch (letter | 32) {
    case 'd': add_ranges(r, &r->named, digits, 1); break;
    case 'w': add_ranges(r, &r->named, words, 4); break;
    case 's': add_ranges(r, &r->named, spaces, sizeof spaces / sizeof *spaces); break;
    default: return false;
    }
    if (!(letter & 32)) negate(&r->named);
    if (out != &r->named) add_ranges(r, out, r->named.items, r->named.n);
    return true;
}

static uint32_t read_hex(regex *r, int n)
{
    uint32_t value = 0;
    for (int i = 0; i < n; i++, r->at++) {
        const char c = r->at < r->end ? *r->at : 0;
        const int d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (d < 0) {
            fail(r, AERIE_ERROR_FORMAT, "expected a hex digit");
            return 0;
        }
        value = value << 4 | (uint32_t)d;
    }
    if (value >= 0xD800 && value <= 0xDFFF)
        fail(r, AERIE_ERROR_UNSUPPORTED, "surrogates are not possible; write the character itself");
    return value;
}

/* Reads the rest of an escape that stands for a single character. */
static uint32_t read_escape(regex *r, bool in_class)
{
    static const char letters[] = "nrtfv", codes[] = "\n\r\t\f\v";
    if (r->at == r->end) {
        fail(r, AERIE_ERROR_FORMAT, "a backslash at the end");
        return 0;
    }
    const char c = *r->at;
    const char *simple = strchr(letters, c);
    if (c == 'x' || c == 'u') {
        r->at++;
        return read_hex(r, c == 'x' ? 2 : 4);
    }
    if (simple && c) {
        r->at++;
        return (uint8_t)codes[simple - letters];
    }
    if (c == '0' && !(r->at + 1 < r->end && r->at[1] >= '0' && r->at[1] <= '9')) {
        r->at++;
        return 0;
    }
    if (c == 'b' && in_class) {
        r->at++;
        return '\b';
    }
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (uint8_t)c >= 0x80 || (uint8_t)c < 0x20) {
        fail(r, AERIE_ERROR_UNSUPPORTED,
             "this escape is not supported; \\d \\w \\s, their opposites, \\n \\r \\t \\f \\v \\0 \\xNN \\uNNNN and "
             "punctuation are");
        return 0;
    }
    r->at++;
    return (uint8_t)c;
}

static uint32_t read_plain(regex *r)
{
    uint32_t code = 0;
    r->at += ae_utf8_decode(r->at, (size_t)(r->end - r->at), &code);
    return code;
}

/* Reads one member of a class; *single: whether it can begin or end a range. */
static uint32_t read_class_char(regex *r, ranges *out, bool *single)
{
    *single = true;
    if (*r->at != '\\') return read_plain(r);
    r->at++;
    if (r->at < r->end && add_named(r, out, *r->at)) {
        r->at++;
        *single = false;
        return 0;
    }
    return read_escape(r, true);
}

static ae_gpiece read_class(regex *r)
{
    ranges *all = &r->class;
    all->n = 0;
    r->at++;
    const bool negated = is_at(r, '^');
    r->at += negated;
    while (ok(r) && !is_at(r, ']')) {
        bool single, to_single = true;
        if (r->at == r->end) {
            fail(r, AERIE_ERROR_FORMAT, "a class is not closed by ]");
            break;
        }
        const uint32_t lo = read_class_char(r, all, &single);
        uint32_t hi = lo;
        if (single && ok(r) && is_at(r, '-') && r->at + 1 < r->end && r->at[1] != ']') {
            r->at++;
            hi = read_class_char(r, all, &to_single);
            if (!to_single) add_ranges(r, all, &(ae_grange){'-', '-'}, 1), hi = lo;
        }
        if (ok(r) && hi < lo) fail(r, AERIE_ERROR_FORMAT, "a range runs backwards");
        if (ok(r) && single) add_ranges(r, all, &(ae_grange){lo, hi}, 1);
    }
    if (!ok(r)) return ae_gbuild_empty(r->b);
    r->at++;
    if (negated) negate(all);
    else all->n = ae_granges_normalize(all->items, all->n);
    return all->n ? ae_schema_char(r->s, all->items, all->n) : ae_gbuild_never(r->b);
}

/* ---- Structure -------------------------------------------------------------------------------------------------- */

static ae_gpiece read_choices(regex *r);

static ae_gpiece read_group(regex *r)
{
    if (++r->depth > AE_GRAMMAR_MAX_DEPTH) fail(r, AERIE_ERROR_LIMIT, "groups are nested deeper than 128");
    r->at++;
    if (is_at(r, '?')) {
        if (r->at + 1 < r->end && r->at[1] == ':') r->at += 2;
        else fail(r, AERIE_ERROR_UNSUPPORTED, "only plain groups and (?: ) are possible");
    }
    const ae_gpiece piece = ok(r) ? read_choices(r) : ae_gbuild_empty(r->b);
    r->depth--;
    if (ok(r) && !is_at(r, ')')) fail(r, AERIE_ERROR_FORMAT, "a group is not closed by )");
    if (ok(r)) r->at++;
    return piece;
}

static ae_gpiece read_atom(regex *r)
{
    static const ae_grange dot[] = {{0, 9}, {11, 12}, {14, 0x2027}, {0x202A, 0x10FFFF}};
    uint32_t code;
    switch (*r->at) {
    case '(': return read_group(r);
    case '[': return read_class(r);
    case '.': r->at++; return ae_schema_char(r->s, dot, 4);
    case '^':
    case '$': fail(r, AERIE_ERROR_UNSUPPORTED, "^ and $ are possible at the ends only"); return ae_gbuild_empty(r->b);
    case '*':
    case '+':
    case '?':
    case '{':
    case '}':
    case ']':
        fail(r, AERIE_ERROR_FORMAT, "there is nothing to repeat, or a bracket without its other");
        return ae_gbuild_empty(r->b);
    case '\\':
        r->at++;
        if (r->at < r->end && add_named(r, &r->named, *r->at)) {
            r->at++;
            return ae_schema_char(r->s, r->named.items, r->named.n);
        }
        code = read_escape(r, false);
        break;
    default: code = read_plain(r);
    }
    return ae_schema_char(r->s, &(ae_grange){code, code}, 1);
}

static uint32_t read_count(regex *r)
{
    uint32_t value = 0;
    const char *begin = r->at;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        if (value <= AE_GRAMMAR_MAX_NODES) value = value * 10 + (uint32_t)(*r->at - '0');
    if (r->at == begin) fail(r, AERIE_ERROR_FORMAT, "a repetition is {m}, {m,} or {m,n}");
    if (value > AE_GRAMMAR_MAX_NODES) fail(r, AERIE_ERROR_LIMIT, "a repetition of more than 1048576");
    return value;
}

static ae_gpiece read_repetition(regex *r, ae_gpiece piece)
{
    uint32_t min = 0, max = AE_GNONE;
    switch (*r->at++) {
    case '*': break;
    case '+': min = 1; break;
    case '?': max = 1; break;
    default:
        max = min = read_count(r);
        if (ok(r) && is_at(r, ',')) {
            r->at++;
            max = is_at(r, '}') ? AE_GNONE : read_count(r);
        }
        if (ok(r) && !is_at(r, '}')) fail(r, AERIE_ERROR_FORMAT, "a repetition is {m}, {m,} or {m,n}");
        if (ok(r) && max < min) fail(r, AERIE_ERROR_FORMAT, "a repetition's most is less than its least");
        r->at++;
    }
    if (!ok(r)) return piece;
    if (is_at(r, '?')) r->at++;
    return ae_gbuild_repeat(r->b, piece, min, max);
}

static ae_gpiece read_sequence(regex *r)
{
    ae_gpiece all = ae_gbuild_empty(r->b);
    while (ok(r) && r->at < r->end && *r->at != '|' && *r->at != ')') {
        if (!r->depth && *r->at == '$' && (r->at + 1 == r->end || r->at[1] == '|')) break;
        ae_gpiece piece = read_atom(r);
        if (ok(r) && (is_at(r, '*') || is_at(r, '+') || is_at(r, '?') || is_at(r, '{'))) piece = read_repetition(r, piece);
        all = ae_gbuild_then(r->b, all, piece);
    }
    return all;
}

static ae_gpiece read_choices(regex *r)
{
    const ae_gpiece first = read_sequence(r);
    if (!is_at(r, '|')) return first;
    const ae_gpiece choices = ae_gbuild_never(r->b);
    ae_gbuild_or(r->b, choices, first);
    while (ok(r) && is_at(r, '|')) {
        r->at++;
        ae_gbuild_or(r->b, choices, read_sequence(r));
    }
    return choices;
}

/* Returns the outermost alternatives, each with its own anchors. */
static ae_gpiece read_whole(regex *r)
{
    const ae_gpiece choices = ae_gbuild_never(r->b);
    for (;;) {
        const bool from_begin = is_at(r, '^');
        r->at += from_begin;
        ae_gpiece piece = read_sequence(r);
        const bool to_end = is_at(r, '$');
        r->at += to_end;
        if (!from_begin) piece = ae_gbuild_then(r->b, any_text(r), piece);
        if (!to_end) piece = ae_gbuild_then(r->b, piece, any_text(r));
        ae_gbuild_or(r->b, choices, piece);
        if (!ok(r) || !is_at(r, '|')) break;
        r->at++;
    }
    if (ok(r) && r->at < r->end) fail(r, AERIE_ERROR_FORMAT, "a ) without its (");
    return choices;
}

ae_gpiece ae_schema_regex(ae_schema *s, const char *text, size_t n, const json_t *schema)
{
    regex r = {.s = s, .b = &s->b, .text = text, .at = text, .end = text + n, .schema = schema, .any = AE_GNONE};
    ae_gpiece piece = ae_gbuild_then(&s->b, ae_gbuild_text(&s->b, "\""), read_whole(&r));
    return ae_gbuild_then(&s->b, piece, ae_gbuild_text(&s->b, "\""));
}

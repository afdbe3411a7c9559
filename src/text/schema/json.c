/* json.c - JSON itself as rules, and its strings and values one by one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/schema/schema.h"
#include "text/template/value.h"

#define MAX_INDENT 60

static ae_gpiece then(ae_schema *s, ae_gpiece a, ae_gpiece b)
{
    return ae_gbuild_then(&s->b, a, b);
}

static ae_gpiece text(ae_schema *s, const char *bytes)
{
    return ae_gbuild_text(&s->b, bytes);
}

static ae_gpiece one_of(ae_schema *s, const char *characters)
{
    ae_grange ranges[16];
    size_t n = 0;
    for (; characters[n]; n++) ranges[n] = (ae_grange){(uint8_t)characters[n], (uint8_t)characters[n]};
    return ae_gbuild_class(&s->b, ranges, n);
}

static ae_gpiece between(ae_schema *s, char lo, char hi)
{
    return ae_gbuild_class(&s->b, &(ae_grange){(uint32_t)lo, (uint32_t)hi}, 1);
}

/* Returns whether the rule exists. If not, it is added, and the caller must define it. */
static bool have(ae_schema *s, uint32_t *rule)
{
    if (*rule != AE_GNONE) return true;
    *rule = ae_gbuild_rule(&s->b, NULL);
    return false;
}

static uint32_t ws_rule(ae_schema *s)
{
    if (!have(s, &s->ws)) {
        const ae_gpiece choices = ae_gbuild_never(&s->b);
        ae_gbuild_or(&s->b, choices, ae_gbuild_empty(&s->b));
        ae_gbuild_or(&s->b, choices, text(s, " "));
        ae_gbuild_or(&s->b, choices, then(s, text(s, "\n"), ae_gbuild_repeat(&s->b, one_of(s, " \t"), 0, MAX_INDENT)));
        ae_gbuild_define(&s->b, s->ws, choices);
    }
    return s->ws;
}

ae_gpiece ae_schema_ws(ae_schema *s)
{
    return ae_gbuild_call(&s->b, ws_rule(s));
}

/* ---- Strings ------------------------------------------------------------------------------------------------ */

static ae_gpiece hex(ae_schema *s, const char *extra)
{
    ae_grange ranges[8] = {{'0', '9'}, {'a', 'f'}, {'A', 'F'}};
    size_t n = 3;
    if (extra)
        for (n = 0; extra[2 * n]; n++) ranges[n] = (ae_grange){(uint8_t)extra[2 * n], (uint8_t)extra[2 * n + 1]};
    return ae_gbuild_class(&s->b, ranges, n);
}

/* Matches \uNNNN for a character of the basic plane other than surrogates, or for a pair of surrogates. */
static ae_gpiece unicode_escape(ae_schema *s)
{
    const ae_gpiece choices = ae_gbuild_never(&s->b);
    ae_gpiece p = then(s, hex(s, "09acefACEF"), ae_gbuild_repeat(&s->b, hex(s, NULL), 3, 3));
    ae_gbuild_or(&s->b, choices, p);
    p = then(s, one_of(s, "dD"), between(s, '0', '7'));
    ae_gbuild_or(&s->b, choices, then(s, p, ae_gbuild_repeat(&s->b, hex(s, NULL), 2, 2)));
    p = then(s, one_of(s, "dD"), hex(s, "89abAB"));
    p = then(s, p, ae_gbuild_repeat(&s->b, hex(s, NULL), 2, 2));
    p = then(s, p, then(s, text(s, "\\u"), one_of(s, "dD")));
    p = then(s, p, then(s, hex(s, "cfCF"), ae_gbuild_repeat(&s->b, hex(s, NULL), 2, 2)));
    ae_gbuild_or(&s->b, choices, p);
    return then(s, text(s, "u"), choices);
}

uint32_t ae_schema_string_char(ae_schema *s)
{
    static const ae_grange plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
    if (!have(s, &s->string_char)) {
        const ae_gpiece escape = ae_gbuild_never(&s->b), choices = ae_gbuild_never(&s->b);
        ae_gbuild_or(&s->b, escape, one_of(s, "\"\\/bfnrt"));
        ae_gbuild_or(&s->b, escape, unicode_escape(s));
        ae_gbuild_or(&s->b, choices, ae_gbuild_class(&s->b, plain, 3));
        ae_gbuild_or(&s->b, choices, then(s, text(s, "\\"), escape));
        ae_gbuild_define(&s->b, s->string_char, choices);
    }
    return s->string_char;
}

uint32_t ae_schema_any_string(ae_schema *s)
{
    if (!have(s, &s->string)) {
        const ae_gpiece chars = ae_gbuild_repeat(&s->b, ae_gbuild_call(&s->b, ae_schema_string_char(s)), 0, AE_GNONE);
        ae_gbuild_define(&s->b, s->string, then(s, text(s, "\""), then(s, chars, text(s, "\""))));
    }
    return s->string;
}

/* Writes the escape of a character that cannot stand in a string itself. */
static void spell(uint32_t code, char out[8])
{
    static const char shorts[] = "\"\"\\\\b\bf\fn\nr\rt\t"; /* letter, character */
    for (size_t i = 0; i + 1 < sizeof shorts; i += 2)
        if ((uint8_t)shorts[i + 1] == code) {
            snprintf(out, 8, "\\%c", shorts[i]);
            return;
        }
    snprintf(out, 8, "\\u%04x", (unsigned)(code & 0xFFFF));
}

static bool needs_escape(uint32_t code)
{
    return code < 0x20 || code == '"' || code == '\\';
}

ae_gpiece ae_schema_char(ae_schema *s, const ae_grange *ranges, size_t n)
{
    static const ae_grange plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
    ae_gpiece choices = {AE_GNONE, AE_GNONE};
    ae_grange *cut = ae_alloc(n + 3, 3 * sizeof *cut);
    size_t n_cut = 0;
    if (!cut) {
        ae_schema_fail_memory(s);
        return ae_gbuild_empty(&s->b);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 3; k++) {
            const uint32_t lo = ranges[i].lo > plain[k].lo ? ranges[i].lo : plain[k].lo;
            const uint32_t hi = ranges[i].hi < plain[k].hi ? ranges[i].hi : plain[k].hi;
            if (lo <= hi) cut[n_cut++] = (ae_grange){lo, hi};
        }
    const ae_gpiece whole = ae_gbuild_class(&s->b, cut, n_cut);
    ae_free(cut);
    for (size_t i = 0; i < n; i++)
        for (uint32_t c = ranges[i].lo; c <= ranges[i].hi && c <= '\\'; c++) {
            char spelled[8];
            if (!needs_escape(c)) continue;
            if (choices.start == AE_GNONE) {
                choices = ae_gbuild_never(&s->b);
                ae_gbuild_or(&s->b, choices, whole);
            }
            spell(c, spelled);
            ae_gbuild_or(&s->b, choices, text(s, spelled));
        }
    return choices.start == AE_GNONE ? whole : choices;
}

/* Writes the bytes of a string as they stand between its quotation marks. */
static void spell_text(ae_buf *out, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char spelled[8];
        if (!needs_escape((uint8_t)bytes[i])) {
            ae_buf_add(out, bytes + i, 1);
            continue;
        }
        spell((uint8_t)bytes[i], spelled);
        ae_buf_adds(out, spelled);
    }
}

ae_gpiece ae_schema_text(ae_schema *s, const char *bytes, size_t n)
{
    ae_buf out = {0};
    ae_buf_adds(&out, "\"");
    spell_text(&out, bytes, n);
    ae_buf_adds(&out, "\"");
    if (out.failed) ae_schema_fail_memory(s);
    const ae_gpiece piece = ae_gbuild_bytes(&s->b, out.failed ? "" : out.data, out.failed ? 0 : out.n);
    ae_buf_free(&out);
    return piece;
}

/* ---- Numbers and any value --------------------------------------------------------------------------------------- */

/* Matches digits of a number, at most `most` unless the standard is asked for: small models would write them without end. */
static ae_gpiece digits_to(ae_schema *s, uint32_t min, uint32_t most)
{
    return ae_gbuild_repeat(&s->b, between(s, '0', '9'), min, s->standard ? AE_GNONE : most);
}

static ae_gpiece whole_number(ae_schema *s)
{
    const ae_gpiece digits = ae_gbuild_never(&s->b);
    ae_gbuild_or(&s->b, digits, text(s, "0"));
    ae_gbuild_or(&s->b, digits, then(s, between(s, '1', '9'), digits_to(s, 0, AE_SCHEMA_DIGITS - 1)));
    return then(s, ae_gbuild_repeat(&s->b, text(s, "-"), 0, 1), digits);
}

uint32_t ae_schema_any_integer(ae_schema *s)
{
    if (!have(s, &s->integer)) ae_gbuild_define(&s->b, s->integer, whole_number(s));
    return s->integer;
}

uint32_t ae_schema_any_number(ae_schema *s)
{
    if (!have(s, &s->number)) {
        ae_gpiece fraction = then(s, text(s, "."), digits_to(s, 1, AE_SCHEMA_DIGITS));
        ae_gpiece exponent = then(s, one_of(s, "eE"), ae_gbuild_repeat(&s->b, one_of(s, "+-"), 0, 1));
        exponent = then(s, exponent, digits_to(s, 1, 3)); /* no double has a longer exponent */
        fraction = then(s, ae_gbuild_repeat(&s->b, fraction, 0, 1), ae_gbuild_repeat(&s->b, exponent, 0, 1));
        ae_gbuild_define(&s->b, s->number, then(s, whole_number(s), fraction));
    }
    return s->number;
}

/* open ws ( member ("," ws member)* ws )? close */
static ae_gpiece enclosed(ae_schema *s, const char *open, ae_gpiece first, ae_gpiece next, const char *close)
{
    const ae_gpiece more = then(s, then(s, text(s, ","), ae_schema_ws(s)), next);
    const ae_gpiece all = then(s, then(s, first, ae_gbuild_repeat(&s->b, more, 0, AE_GNONE)), ae_schema_ws(s));
    return then(s, then(s, text(s, open), ae_schema_ws(s)), then(s, ae_gbuild_repeat(&s->b, all, 0, 1), text(s, close)));
}

static ae_gpiece any_member(ae_schema *s)
{
    const ae_gpiece key = then(s, ae_gbuild_call(&s->b, ae_schema_any_string(s)), text(s, ":"));
    return then(s, then(s, key, ae_schema_ws(s)), ae_gbuild_call(&s->b, ae_schema_any(s)));
}

uint32_t ae_schema_any_object(ae_schema *s)
{
    if (!have(s, &s->object)) {
        const ae_gpiece first = any_member(s), next = any_member(s);
        ae_gbuild_define(&s->b, s->object, enclosed(s, "{", first, next, "}"));
    }
    return s->object;
}

uint32_t ae_schema_any_array(ae_schema *s)
{
    if (!have(s, &s->array)) {
        const ae_gpiece first = ae_gbuild_call(&s->b, ae_schema_any(s)), next = ae_gbuild_call(&s->b, ae_schema_any(s));
        ae_gbuild_define(&s->b, s->array, enclosed(s, "[", first, next, "]"));
    }
    return s->array;
}

uint32_t ae_schema_any(ae_schema *s)
{
    if (!have(s, &s->value)) {
        static const char *const words[] = {"null", "true", "false"};
        const ae_gpiece choices = ae_gbuild_never(&s->b);
        for (int i = 0; i < 3; i++) ae_gbuild_or(&s->b, choices, text(s, words[i]));
        ae_gbuild_or(&s->b, choices, ae_gbuild_call(&s->b, ae_schema_any_object(s)));
        ae_gbuild_or(&s->b, choices, ae_gbuild_call(&s->b, ae_schema_any_array(s)));
        ae_gbuild_or(&s->b, choices, ae_gbuild_call(&s->b, ae_schema_any_string(s)));
        ae_gbuild_or(&s->b, choices, ae_gbuild_call(&s->b, ae_schema_any_number(s)));
        ae_gbuild_define(&s->b, s->value, choices);
    }
    return s->value;
}

/* ---- Values one by one ---------------------------------------------------------------------------------------------- */

static void write_number(ae_buf *out, const json_t *value)
{
    char digits[AE_DOUBLE_TEXT];
    const double x = json_number_value(value);
    if (json_is_integer(value)) snprintf(digits, sizeof digits, "%lld", (long long)json_integer_value(value));
    else if (x == floor(x) && fabs(x) < 1e15) snprintf(digits, sizeof digits, "%.0f", x == 0 ? 0.0 : x);
    else ae_double_repr(x, digits);
    ae_buf_adds(out, digits);
}

static void write_text(ae_buf *out, const char *bytes, size_t n)
{
    ae_buf_adds(out, "\"");
    spell_text(out, bytes, n);
    ae_buf_adds(out, "\"");
}

static void write_value(ae_schema *s, ae_buf *out, const json_t *value, int depth);

/* Writes a value. AE_GWORD_CALL marks the places where white space may stand. */
static void write_members(ae_schema *s, ae_buf *out, const json_t *value, int depth)
{
    static const char ws[] = {(char)AE_GWORD_CALL, 0};
    const bool object = json_is_object(value);
    const char *key;
    json_t *item;
    size_t i = 0;
    ae_buf_adds(out, object ? "{" : "[");
    ae_buf_adds(out, ws);
    if (object) {
        json_object_foreach((json_t *)value, key, item) {
            if (i++) ae_buf_adds(out, ","), ae_buf_adds(out, ws);
            write_text(out, key, strlen(key));
            ae_buf_adds(out, ":");
            ae_buf_adds(out, ws);
            write_value(s, out, item, depth + 1);
        }
    } else {
        json_array_foreach((json_t *)value, i, item) {
            if (i) ae_buf_adds(out, ","), ae_buf_adds(out, ws);
            write_value(s, out, item, depth + 1);
        }
    }
    if (i) ae_buf_adds(out, ws);
    ae_buf_adds(out, object ? "}" : "]");
}

static void write_value(ae_schema *s, ae_buf *out, const json_t *value, int depth)
{
    if (depth > AE_GRAMMAR_MAX_DEPTH)
        ae_schema_fail(s, AERIE_ERROR_LIMIT, value, "a value is nested deeper than %d", AE_GRAMMAR_MAX_DEPTH);
    if (!ae_schema_ok(s)) return;
    switch (json_typeof(value)) {
    case JSON_NULL: ae_buf_adds(out, "null"); break;
    case JSON_TRUE: ae_buf_adds(out, "true"); break;
    case JSON_FALSE: ae_buf_adds(out, "false"); break;
    case JSON_STRING: write_text(out, json_string_value(value), json_string_length(value)); break;
    case JSON_INTEGER:
    case JSON_REAL: write_number(out, value); break;
    default: write_members(s, out, value, depth);
    }
}

ae_gpiece ae_schema_values(ae_schema *s, const json_t *const *values, size_t n)
{
    ae_buf out = {0};
    ae_gword *words = ae_alloc(n + 1, sizeof *words);
    ae_gpiece piece = {0, 0};
    const uint32_t ws = ws_rule(s);
    for (size_t i = 0; words && i < n; i++) {
        const size_t begin = out.n;
        write_value(s, &out, values[i], 0);
        words[i].n = out.n - begin;
    }
    if (words && !out.failed && ae_schema_ok(s)) {
        const char *at = out.data;
        for (size_t i = 0; i < n; at += words[i++].n) words[i].bytes = at;
        qsort(words, n, sizeof *words, ae_gword_compare);
        piece = ae_gbuild_words(&s->b, words, n, ws);
    } else {
        ae_schema_fail_memory(s);
    }
    ae_free(words);
    ae_buf_free(&out);
    return piece;
}

/* ---- Other keys -------------------------------------------------------------------------------------------------------- */

/* A trie of the known keys, by code points. Children are in ascending order. */
typedef struct key_node {
    uint32_t code, child, last_child, sibling; /* AE_GNONE: none */
    bool is_key;
} key_node;

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b); /* bytes of UTF-8 sort as code points */
}

static uint32_t add_keys(key_node *nodes, const char *const *keys, size_t n)
{
    uint32_t count = 1;
    nodes[0] = (key_node){0, AE_GNONE, AE_GNONE, AE_GNONE, false};
    for (size_t i = 0; i < n; i++) {
        uint32_t at = 0;
        for (const char *p = keys[i]; *p;) {
            uint32_t code;
            p += ae_utf8_decode(p, strlen(p), &code);
            /* sorted keys share only the path to the last child */
            if (nodes[at].last_child == AE_GNONE || nodes[nodes[at].last_child].code != code) {
                nodes[count] = (key_node){code, AE_GNONE, AE_GNONE, AE_GNONE, false};
                if (nodes[at].last_child != AE_GNONE) nodes[nodes[at].last_child].sibling = count;
                else nodes[at].child = count;
                nodes[at].last_child = count++;
            }
            at = nodes[at].last_child;
        }
        nodes[at].is_key = true;
    }
    return count;
}

/* Adds the moves after each node: to a child, to the end of a string that is not a key, or by any other character to arbitrary
 * text. */
static ae_gpiece keys_piece(ae_schema *s, const key_node *nodes, uint32_t n, uint32_t *starts, ae_grange *ranges)
{
    ae_gpiece out = {AE_GNONE, AE_GNONE}, quote = text(s, "\""), end = text(s, "\"");
    const ae_gpiece rest = ae_gbuild_repeat(&s->b, ae_schema_char(s, &(ae_grange){0, 0x10FFFF}, 1), 0, AE_GNONE);
    ae_gbuild_move(&s->b, rest.end, end.start);
    for (uint32_t i = 0; i < n; i++) starts[i] = ae_gbuild_empty(&s->b).start;
    for (uint32_t i = 0; i < n && ae_schema_ok(s); i++) {
        size_t n_ranges = 0;
        uint32_t lo = 0;
        for (uint32_t k = nodes[i].child; k != AE_GNONE; k = nodes[k].sibling) {
            const ae_gpiece step = ae_schema_char(s, &(ae_grange){nodes[k].code, nodes[k].code}, 1);
            ae_gbuild_move(&s->b, starts[i], step.start);
            ae_gbuild_move(&s->b, step.end, starts[k]);
            if (nodes[k].code > lo) ranges[n_ranges++] = (ae_grange){lo, nodes[k].code - 1};
            lo = nodes[k].code + 1;
        }
        if (lo <= 0x10FFFF) ranges[n_ranges++] = (ae_grange){lo, 0x10FFFF};
        const ae_gpiece other = ae_schema_char(s, ranges, n_ranges);
        ae_gbuild_move(&s->b, starts[i], other.start);
        ae_gbuild_move(&s->b, other.end, rest.start);
        if (!nodes[i].is_key) ae_gbuild_move(&s->b, starts[i], end.start);
    }
    ae_gbuild_move(&s->b, quote.end, starts[0]);
    out.start = quote.start;
    out.end = end.end;
    return out;
}

ae_gpiece ae_schema_other_key(ae_schema *s, const json_t *keys)
{
    const size_t n = json_object_size(keys);
    size_t n_bytes = 1, i = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)keys, key, value) n_bytes += strlen(key);
    const char **sorted = ae_alloc(n, sizeof *sorted);
    key_node *nodes = ae_alloc(n_bytes, sizeof *nodes);
    uint32_t *starts = ae_alloc(n_bytes, sizeof *starts);
    ae_grange *ranges = ae_alloc(n_bytes + 1, sizeof *ranges);
    ae_gpiece out = {0, 0};
    if (sorted && nodes && starts && ranges) {
        json_object_foreach((json_t *)keys, key, value) sorted[i++] = key;
        qsort(sorted, n, sizeof *sorted, by_text);
        out = keys_piece(s, nodes, add_keys(nodes, sorted, n), starts, ranges);
    } else {
        ae_schema_fail_memory(s);
    }
    ae_free(sorted);
    ae_free(nodes);
    ae_free(starts);
    ae_free(ranges);
    return out;
}

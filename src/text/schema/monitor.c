/* monitor.c - lengths beside a pattern, and multipleOf: deterministic automata that count while the string or
 * the number is matched (ae_gbuild_both). */
#include <stdio.h>
#include <stdlib.h>

#include "text/schema/schema.h"
#include "text/template/value.h"

/* ---- Characters of a string --------------------------------------------------------------------------------- */

typedef struct lengths {
    uint32_t min, max;
} lengths;

/* A state is 8 * characters + phase; these are the phases. */
enum {
    BEFORE,    /* the opening quotation mark */
    INSIDE,
    ESCAPED,   /* after a backslash */
    HEX,       /* four states: before so many hex digits, less one */
    AFTER = 7, /* the closing quotation mark */
};

static uint32_t step_length(const void *context, uint32_t state, uint8_t byte)
{
    const lengths *l = context;
    const uint32_t phase = state % 8, n = state / 8;
    if (phase == BEFORE) return byte == '"' ? INSIDE : AE_GNONE;
    if (phase == AFTER) return AE_GNONE;
    if (phase == ESCAPED) return 8 * n + (byte == 'u' ? HEX + 3 : INSIDE);
    if (phase > HEX) return state - 1;
    if (phase == HEX) return 8 * n + INSIDE;
    if (byte == '"') return n >= l->min ? AFTER : AE_GNONE;
    if ((byte & 0xC0) == 0x80) return state; /* the byte belongs to a character that was already counted */
    const uint32_t more = l->max == AE_GNONE && n == l->min ? n : n + 1;
    return more > l->max ? AE_GNONE : 8 * more + (byte == '\\' ? ESCAPED : INSIDE);
}

static bool may_end_length(const void *context, uint32_t state)
{
    (void)context;
    return state == AFTER;
}

bool ae_schema_lengths(ae_schema *s, ae_gpiece *piece, uint32_t min, uint32_t max)
{
    const lengths l = {min, max};
    const ae_gmonitor m = {&l, BEFORE, step_length, may_end_length};
    return ae_gbuild_both(&s->b, *piece, &m, AE_SCHEMA_MAX_PRODUCT, piece);
}

/* ---- Multiples ------------------------------------------------------------------------------------------------ */

/* A state is remainder * (places + 2) + phase. Phase 0: no point yet; 1 + k: k digits after the point. */
static uint32_t step_multiple(const void *context, uint32_t state, uint8_t byte)
{
    const ae_schema_multiple *m = context;
    const uint32_t n_phases = m->places + 2, phase = state % n_phases, rest = state / n_phases;
    if (byte == '-') return state;
    if (byte == '.') return m->places ? rest * n_phases + 1 : AE_GNONE;
    if (byte < '0' || byte > '9' || phase == n_phases - 1) return AE_GNONE;
    return (uint32_t)((rest * (uint64_t)10 + (byte - '0')) % m->factor) * n_phases + (phase ? phase + 1 : 0);
}

static bool may_end_multiple(const void *context, uint32_t state)
{
    const ae_schema_multiple *m = context;
    const uint32_t n_phases = m->places + 2, phase = state % n_phases;
    uint64_t rest = state / n_phases;
    for (uint32_t k = phase ? phase - 1 : 0; k < m->places; k++) rest = rest * 10 % m->factor;
    return rest % m->factor == 0;
}

bool ae_schema_multiples(ae_schema *s, ae_gpiece *piece, const ae_schema_multiple *of)
{
    const ae_gmonitor m = {of, 0, step_multiple, may_end_multiple};
    return ae_gbuild_both(&s->b, *piece, &m, AE_SCHEMA_MAX_PRODUCT, piece);
}

enum { MAX_FACTOR = 65536, MAX_PLACES = 9 };

/* Reads value > 0 as factor / 10^places. Returns false if it does not fit. */
static bool read_multiple(const json_t *value, uint64_t *factor, uint32_t *places)
{
    char digits[AE_DOUBLE_TEXT + 24];
    if (json_is_integer(value)) snprintf(digits, sizeof digits, "%lld", (long long)json_integer_value(value));
    else ae_double_repr(json_real_value(value), digits);
    *factor = 0, *places = 0;
    bool point = false;
    for (const char *p = digits; *p; p++) {
        if (*p == '.') {
            point = true;
            continue;
        }
        if (*p < '0' || *p > '9') return false; /* an exponent */
        if (point && !strcmp(p, "0")) break;    /* 2.0 */
        *factor = *factor * 10 + (uint64_t)(*p - '0');
        *places += point;
        if (*factor > MAX_FACTOR || *places > MAX_PLACES) return false;
    }
    return true;
}

/* Replaces *m by the least common multiple of both. Returns false if it is too large. */
static bool join(ae_schema_multiple *m, uint64_t factor, uint32_t places)
{
    uint64_t a = m->factor, b = factor, x, y;
    uint32_t most = m->places > places ? m->places : places;
    if (!a) a = factor, most = places;
    else {
        for (uint32_t k = m->places; k < most; k++) a *= 10;
        for (uint32_t k = places; k < most; k++) b *= 10;
        for (x = a, y = b; y;) {
            const uint64_t rest = x % y;
            x = y;
            y = rest;
        }
        if (a / x > MAX_FACTOR / (b < MAX_FACTOR ? b : MAX_FACTOR)) return false;
        a = a / x * b;
    }
    for (; most && a % 10 == 0; most--) a /= 10;
    if (a > MAX_FACTOR) return false;
    m->factor = (uint32_t)a;
    m->places = most;
    return true;
}

ae_schema_multiple ae_schema_multiple_of(ae_schema *s, const ae_conjuncts *set)
{
    ae_schema_multiple m = {0};
    for (size_t i = 0; i < set->n && ae_schema_ok(s); i++) {
        const json_t *schema = set->items[i].schema, *value = json_object_get(schema, "multipleOf");
        uint64_t factor;
        uint32_t places;
        if (!value) continue;
        if (!json_is_number(value) || !(json_number_value(value) > 0)) {
            ae_schema_fail(s, AERIE_ERROR_FORMAT, schema, "\"multipleOf\" is a number greater than 0");
        } else if (!read_multiple(value, &factor, &places) || !join(&m, factor, places)) {
            ae_schema_pass_over(s, schema, "multipleOf",
                                "\"multipleOf\": %g is not possible here; up to %d, with up to %d digits after the point, is",
                                json_number_value(value), MAX_FACTOR, MAX_PLACES);
        } else {
            m.from = schema;
        }
    }
    return m;
}

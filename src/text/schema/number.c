/* number.c - numbers between bounds, digit by digit.
 *
 * A bound is a sign and a decimal: digits before and after the point. The digits before it are compared by lengths and
 * places; those after it by a walk that remembers for each bound whether the digits so far are the bound's own.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/schema/schema.h"
#include "text/template/value.h"

static const ae_gpiece nothing = {AE_GNONE, AE_GNONE};

/* |x| of a bound. */
typedef struct decimal {
    uint64_t whole;
    char fraction[AE_DOUBLE_TEXT]; /* digits, no zeros at the end */
    bool strict;                   /* the bound itself is excluded */
} decimal;

typedef struct bound {
    bool there, negative;
    decimal size;
} bound;

static ae_gpiece digit(ae_schema *s, char lo, char hi)
{
    return ae_gbuild_class(&s->b, &(ae_grange){(uint32_t)lo, (uint32_t)hi}, 1);
}

static ae_gpiece digits(ae_schema *s, uint32_t min, uint32_t max)
{
    return ae_gbuild_repeat(&s->b, digit(s, '0', '9'), min, max);
}

/* ---- Whole numbers ----------------------------------------------------------------------------------------- */

/* Matches the numbers of n digits from lo to hi. The grammar grows linearly with n. */
static ae_gpiece same_length(ae_schema *s, const char *lo, const char *hi, uint32_t n)
{
    static const char nines[] = "99999999999999999999", zeros[] = "00000000000000000000";
    char first = lo[0], last = hi[0];
    if (!n) return ae_gbuild_empty(&s->b);
    if (first == last) return ae_gbuild_then(&s->b, digit(s, first, first), same_length(s, lo + 1, hi + 1, n - 1));
    const ae_gpiece choices = ae_gbuild_never(&s->b);
    if (strncmp(lo + 1, zeros, n - 1)) {
        ae_gbuild_or(&s->b, choices, ae_gbuild_then(&s->b, digit(s, first, first), same_length(s, lo + 1, nines, n - 1)));
        first++;
    }
    if (strncmp(hi + 1, nines, n - 1)) {
        ae_gbuild_or(&s->b, choices, ae_gbuild_then(&s->b, digit(s, last, last), same_length(s, zeros, hi + 1, n - 1)));
        last--;
    }
    if (first <= last) ae_gbuild_or(&s->b, choices, ae_gbuild_then(&s->b, digit(s, first, last), digits(s, n - 1, n - 1)));
    return choices;
}

/* Matches whole numbers from lo to hi; without a highest one unless `bounded`. */
static ae_gpiece whole_between(ae_schema *s, uint64_t lo, uint64_t hi, bool bounded)
{
    if (bounded && lo > hi) return nothing;
    const ae_gpiece choices = ae_gbuild_never(&s->b);
    char from[24], to[24];
    uint64_t power = 1; /* 10^(n - 1) */
    for (uint32_t n = 1; n <= 20; power *= 10, n++) {
        const uint64_t least = n == 1 ? 0 : power, most = n == 20 ? UINT64_MAX : power * 10 - 1;
        const uint64_t a = lo > least ? lo : least, b = bounded && hi < most ? hi : most;
        if (a > b) continue;
        if (!bounded && !s->standard && n > AE_SCHEMA_DIGITS && power > lo) break;
        if (n == 20) { /* these numbers are longer than any lower bound */
            const uint32_t more = s->standard ? AE_GNONE : 19;
            if (!bounded) ae_gbuild_or(&s->b, choices, ae_gbuild_then(&s->b, digit(s, '1', '9'), digits(s, 19, more)));
            continue;
        }
        snprintf(from, sizeof from, "%" PRIu64, a);
        snprintf(to, sizeof to, "%" PRIu64, b);
        ae_gbuild_or(&s->b, choices, same_length(s, from, to, n));
    }
    return choices;
}

/* ---- Fractions ----------------------------------------------------------------------------------------------- */

static char digit_at(const decimal *d, size_t k)
{
    return k < strlen(d->fraction) ? d->fraction[k] : '0';
}

/* Returns whether a fraction may end after k digits that are the bound's own: whether the number is then on the right side of
 * the bound. */
static bool may_end(const decimal *lo, const decimal *hi, bool tight_lo, bool tight_hi, size_t k)
{
    if (tight_lo && (k < strlen(lo->fraction) || lo->strict)) return false;
    return !tight_hi || k < strlen(hi->fraction) || !hi->strict;
}

/* Matches what may follow the whole part: nothing, or a point and digits. lo, hi: bounds with the same whole part, or NULL. */
static ae_gpiece fraction_between(ae_schema *s, const decimal *lo, const decimal *hi)
{
    static const decimal none = {0, "", false};
    const size_t n_lo = lo ? strlen(lo->fraction) : 0, n_hi = hi ? strlen(hi->fraction) : 0, n_own = n_lo > n_hi ? n_lo : n_hi;
    const size_t n = s->standard || n_own > AE_SCHEMA_DIGITS ? n_own : AE_SCHEMA_DIGITS;
    const uint32_t start = ae_gbuild_empty(&s->b).start, end = ae_gbuild_empty(&s->b).start;
    uint32_t nodes[AE_DOUBLE_TEXT + 1][2][2]; /* nodes[k][a][b]: after k digits; a: they are the first digits of lo; b: they are
                                               * the first digits of hi */
    const ae_gpiece point = ae_gbuild_text(&s->b, ".");
    const ae_gpiece first = ae_gbuild_empty(&s->b); /* after the point, where at least one digit must follow */
    if (may_end(lo ? lo : &none, hi ? hi : &none, lo, hi, 0)) ae_gbuild_move(&s->b, start, end);
    ae_gbuild_move(&s->b, start, point.start);
    ae_gbuild_move(&s->b, point.end, first.start);
    for (size_t k = 0; k <= n; k++)
        for (int a = 0; a < 2; a++)
            for (int b = 0; b < 2; b++) nodes[k][a][b] = ae_gbuild_empty(&s->b).start;
    for (size_t k = 0; k <= n && ae_schema_ok(s); k++)
        for (int a = 0; a <= (lo != NULL); a++)
            for (int b = 0; b <= (hi != NULL); b++) {
                const bool begin = !k && a == (lo != NULL) && b == (hi != NULL);
                if (k && may_end(lo ? lo : &none, hi ? hi : &none, a, b, k)) ae_gbuild_move(&s->b, nodes[k][a][b], end);
                for (char d = '0'; d <= '9' && (s->standard || k < n); d++) {
                    if ((a && d < digit_at(lo, k)) || (b && d > digit_at(hi, k))) continue;
                    const int tight_lo = a && d == digit_at(lo, k), tight_hi = b && d == digit_at(hi, k);
                    /* after the last digit of the bounds the walk stays in place, if the standard is asked for; the first digit
                     * leads to a node that may end */
                    const size_t next = k < n ? k + 1 : n ? n : 0;
                    const ae_gpiece step = digit(s, d, d);
                    if (n) {
                        ae_gbuild_move(&s->b, begin ? first.start : nodes[k][a][b], step.start);
                        ae_gbuild_move(&s->b, step.end, nodes[next][tight_lo][tight_hi]);
                    } else {
                        /* the bounds have no digits: a single node means "some digits were read" */
                        ae_gbuild_move(&s->b, nodes[0][a][b], step.start);
                        if (begin) ae_gbuild_move(&s->b, first.start, step.start);
                        ae_gbuild_move(&s->b, step.end, nodes[0][tight_lo][tight_hi]);
                    }
                }
                if (!n && may_end(lo ? lo : &none, hi ? hi : &none, a, b, 0)) ae_gbuild_move(&s->b, nodes[0][a][b], end);
            }
    return (ae_gpiece){start, end};
}

/* ---- Sizes: from lo to hi, both >= 0, hi may be missing ------------------------------------------------------- */

static void add_sizes(ae_schema *s, ae_gpiece choices, uint64_t whole, const decimal *lo, const decimal *hi)
{
    const ae_gpiece number = whole_between(s, whole, whole, true);
    ae_gbuild_or(&s->b, choices, ae_gbuild_then(&s->b, number, fraction_between(s, lo, hi)));
}

static ae_gpiece sizes_between(ae_schema *s, const decimal *lo, const decimal *hi, bool fractions)
{
    const ae_gpiece choices = ae_gbuild_never(&s->b);
    if (!fractions) {
        uint64_t from = lo->whole, to = hi ? hi->whole : 0;
        if (*lo->fraction || lo->strict) from++;
        if (hi && !*hi->fraction && hi->strict) {
            if (!to) return nothing;
            to--;
        }
        return whole_between(s, from, to, hi != NULL);
    }
    if (hi && (lo->whole > hi->whole || (lo->whole == hi->whole && strcmp(lo->fraction, hi->fraction) > 0))) return nothing;
    if (hi && lo->whole == hi->whole) {
        const bool point = !strcmp(lo->fraction, hi->fraction);
        if (point && (lo->strict || hi->strict)) return nothing;
        add_sizes(s, choices, lo->whole, lo, hi);
        return choices;
    }
    add_sizes(s, choices, lo->whole, lo, NULL);
    if (hi && (*hi->fraction || !hi->strict)) add_sizes(s, choices, hi->whole, NULL, hi);
    const ae_gpiece middle = whole_between(s, lo->whole + 1, hi ? hi->whole - 1 : 0, hi != NULL);
    if (middle.start != AE_GNONE) ae_gbuild_or(&s->b, choices, ae_gbuild_then(&s->b, middle, fraction_between(s, NULL, NULL)));
    return choices;
}

/* ---- Bounds of a schema ------------------------------------------------------------------------------------------ */

static bool read_bound(ae_schema *s, const json_t *schema, const char *keyword, bool strict, bound *out)
{
    const json_t *value = json_object_get(schema, keyword);
    char digits_of[AE_DOUBLE_TEXT + 24];
    if (!value || json_is_boolean(value)) return false; /* in draft 4, exclusiveMinimum is a boolean that accompanies minimum */
    if (!json_is_number(value)) {
        ae_schema_fail(s, AERIE_ERROR_FORMAT, schema, "\"%s\" is a number", keyword);
        return false;
    }
    if (json_is_integer(value)) snprintf(digits_of, sizeof digits_of, "%lld", (long long)json_integer_value(value));
    else ae_double_repr(json_real_value(value), digits_of);
    const char *p = digits_of;
    *out = (bound){.there = true, .negative = *p == '-', .size.strict = strict};
    p += out->negative;
    out->size.whole = strtoull(p, NULL, 10);
    p += strspn(p, "0123456789");
    if (*p == '.') {
        const size_t n = strspn(++p, "0123456789");
        memcpy(out->size.fraction, p, n);
        for (size_t k = n; k > 0 && out->size.fraction[k - 1] == '0'; k--) out->size.fraction[k - 1] = 0;
        p += n;
    }
    if (*p) {
        ae_schema_pass_over(s, schema, keyword,
                            "\"%s\": %.30s is too large or too small; bounds are written without an exponent", keyword,
                            digits_of);
        return false;
    }
    if (!out->size.whole && !*out->size.fraction) out->negative = false;
    return true;
}

static int compare_sizes(const decimal *a, const decimal *b)
{
    if (a->whole != b->whole) return a->whole < b->whole ? -1 : 1;
    return strcmp(a->fraction, b->fraction);
}

/* a < b as numbers. */
static bool is_below(const bound *a, const bound *b)
{
    if (a->negative != b->negative) return a->negative;
    const int order = compare_sizes(&a->size, &b->size);
    return a->negative ? order > 0 : order < 0;
}

static bool is_equal(const bound *a, const bound *b)
{
    return a->negative == b->negative && !compare_sizes(&a->size, &b->size);
}

/* Finds the narrowest bounds of all conjuncts. */
static void gather(ae_schema *s, const ae_conjuncts *set, bound *lo, bound *hi)
{
    static const struct {
        const char *keyword, *beside;
        bool low, strict;
    } words[] = {{"minimum", "exclusiveMinimum", true, false}, {"exclusiveMinimum", NULL, true, true},
                 {"maximum", "exclusiveMaximum", false, false}, {"exclusiveMaximum", NULL, false, true}};
    *lo = *hi = (bound){0};
    for (size_t i = 0; i < set->n; i++)
        for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
            bound found, *now = words[k].low ? lo : hi;
            const json_t *schema = set->items[i].schema;
            const bool strict = words[k].strict || (words[k].beside && json_is_true(json_object_get(schema, words[k].beside)));
            if (!read_bound(s, schema, words[k].keyword, strict, &found)) continue;
            const bool narrower = !now->there || (words[k].low ? is_below(now, &found) : is_below(&found, now)) ||
                                  (is_equal(now, &found) && strict);
            if (narrower) *now = found;
        }
}

static ae_gpiece between_bounds(ae_schema *s, const ae_conjuncts *set, bool fractions)
{
    static const decimal zero = {0, "", false}, above_zero = {0, "", true};
    bound lo, hi;
    gather(s, set, &lo, &hi);
    if (!ae_schema_ok(s)) return nothing;
    if (!lo.there && !hi.there) return ae_gbuild_call(&s->b, fractions ? ae_schema_any_number(s) : ae_schema_any_integer(s));
    const ae_gpiece choices = ae_gbuild_never(&s->b);
    bool any = false;
    if (!hi.there || !hi.negative) {
        const decimal *from = lo.there && !lo.negative ? &lo.size : &zero;
        const ae_gpiece p = sizes_between(s, from, hi.there ? &hi.size : NULL, fractions);
        if (p.start != AE_GNONE) ae_gbuild_or(&s->b, choices, p), any = true;
    }
    if (!lo.there || lo.negative) { /* handles numbers below zero; zero itself has no sign */
        const decimal *from = hi.there && hi.negative ? &hi.size : &above_zero;
        const ae_gpiece p = sizes_between(s, from, lo.there ? &lo.size : NULL, fractions);
        if (p.start != AE_GNONE) ae_gbuild_or(&s->b, choices, ae_gbuild_then(&s->b, ae_gbuild_text(&s->b, "-"), p)), any = true;
    }
    return any ? choices : nothing;
}

ae_gpiece ae_schema_number(ae_schema *s, const ae_conjuncts *set, bool fractions)
{
    const ae_schema_multiple of = ae_schema_multiple_of(s, set);
    ae_gpiece piece = between_bounds(s, set, fractions && (!of.factor || of.places));
    if (!of.factor || piece.start == AE_GNONE || !ae_schema_ok(s)) return piece;
    if (!ae_schema_multiples(s, &piece, &of)) {
        ae_schema_pass_over(s, of.from, "multipleOf", "\"multipleOf\": %g is too large beside these bounds",
                            json_number_value(json_object_get(of.from, "multipleOf")));
    }
    return piece;
}

/* jinja_ops.c - what operators, comparisons, attributes and items mean on values.
 *
 * Source of the semantics: Python's data model and jinja2's sandbox (attribute first for a.b,
 * item first for a["b"], each falling back to the other; Undefined fails on nearly everything).
 * Integers have 64 bits; what would not fit is an error rather than another number.
 */
#include "text/template/jinja_internal.h"

#include <math.h>

const char *ae_jinja_type_name(ae_value v)
{
    static const char *const names[] = {"Undefined", "NoneType", "bool",   "int",       "float",      "str",
                                        "list",      "dict",     "function", "Namespace", "LoopContext"};
    static const char *const arrays[] = {"list", "tuple", "range", "generator", "dict_keys", "dict_values", "dict_items",
                                         "tuple"};
    return v.kind == AE_VALUE_ARRAY ? arrays[v.as.array->kind] : names[v.kind];
}

bool ae_jinja_truth(ae_value v)
{
    switch (v.kind) {
    case AE_VALUE_UNDEFINED:
    case AE_VALUE_NONE: return false;
    case AE_VALUE_BOOL: return v.as.boolean;
    case AE_VALUE_INT: return v.as.integer != 0;
    case AE_VALUE_DOUBLE: return v.as.number != 0;
    case AE_VALUE_STRING: return v.as.string->n > 0;
    case AE_VALUE_ARRAY: return v.as.array->n > 0 || v.as.array->kind == AE_ARRAY_GENERATOR;
    case AE_VALUE_OBJECT: return v.as.object->n > 0;
    case AE_VALUE_LOOP: return v.as.loop->n > 0;
    default: return true;
    }
}

bool ae_jinja_is_number(ae_value v)
{
    return v.kind == AE_VALUE_BOOL || v.kind == AE_VALUE_INT || v.kind == AE_VALUE_DOUBLE;
}

bool ae_jinja_to_int(ae_value v, int64_t *out)
{
    if (v.kind != AE_VALUE_INT && v.kind != AE_VALUE_BOOL) return false;
    *out = v.kind == AE_VALUE_INT ? v.as.integer : v.as.boolean;
    return true;
}

double ae_jinja_to_double(ae_value v)
{
    return v.kind == AE_VALUE_DOUBLE ? v.as.number : v.kind == AE_VALUE_INT ? (double)v.as.integer : v.as.boolean;
}

/* ---- Undefined -------------------------------------------------------------------------- */

aerie_status ae_jinja_fail_undefined(ae_jinja_run *r, ae_value v)
{
    const ae_undefined *u = v.as.undefined;
    if (!u) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "an undefined value is used");
    if (!u->name) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "%s", u->owner);
    if (!u->owner) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%.80s' is undefined", u->name->data);
    if (u->unsafe)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%.80s' of a '%s' is not open to templates", u->name->data, u->owner);
    return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a '%s' has no '%.80s'", u->owner, u->name->data);
}

aerie_status ae_jinja_undefined(ae_jinja_run *r, const char *owner, const ae_string *name, ae_value *out)
{
    ae_undefined *u = ae_value_alloc(&r->heap, 1, sizeof *u);
    if (!u) return ae_jinja_fail_heap(r);
    u->owner = owner;
    u->name = name;
    *out = ae_value_undefined();
    out->as.undefined = u;
    return AERIE_OK;
}

/* ---- Comparison ------------------------------------------------------------------------- */

static bool is_tuple(const ae_array *a) { return a->kind == AE_ARRAY_TUPLE || a->kind == AE_ARRAY_GROUP; }

static bool same_sort(const ae_array *a, const ae_array *b) { return a->kind == b->kind || (is_tuple(a) && is_tuple(b)); }

static aerie_status equal_arrays(ae_jinja_run *r, const ae_array *a, const ae_array *b, bool *out)
{
    *out = a == b || (a->n == b->n && same_sort(a, b) && a->kind != AE_ARRAY_GENERATOR && a->kind != AE_ARRAY_VALUES);
    if (a == b) return AERIE_OK;
    for (size_t i = 0; *out && i < a->n; i++) AE_TRY(ae_jinja_equal(r, a->items[i], b->items[i], out));
    return AERIE_OK;
}

static aerie_status equal_objects(ae_jinja_run *r, const ae_object *a, const ae_object *b, bool *out)
{
    *out = a->n == b->n;
    if (a == b) return AERIE_OK;
    for (size_t i = 0; *out && i < a->n; i++) {
        const ae_value *other = ae_object_find(b, a->entries[i].key);
        if (other) AE_TRY(ae_jinja_equal(r, a->entries[i].value, *other, out));
        else *out = false;
    }
    return AERIE_OK;
}

aerie_status ae_jinja_equal(ae_jinja_run *r, ae_value a, ae_value b, bool *out)
{
    AE_JINJA_CHARGE(r, 1);
    *out = false;
    if (ae_jinja_is_number(a) && ae_jinja_is_number(b)) {
        if (a.kind != AE_VALUE_DOUBLE && b.kind != AE_VALUE_DOUBLE) {
            int64_t x = 0, y = 0;
            ae_jinja_to_int(a, &x);
            ae_jinja_to_int(b, &y);
            *out = x == y;
        } else {
            *out = ae_jinja_to_double(a) == ae_jinja_to_double(b);
        }
        return AERIE_OK;
    }
    if (a.kind != b.kind) return AERIE_OK;
    switch (a.kind) {
    case AE_VALUE_UNDEFINED:
    case AE_VALUE_NONE: *out = true; return AERIE_OK;
    case AE_VALUE_STRING:
        AE_JINJA_CHARGE(r, a.as.string->n / 1024);
        *out = ae_string_equal(a.as.string, b.as.string);
        return AERIE_OK;
    case AE_VALUE_ARRAY:
    case AE_VALUE_OBJECT:
        AE_TRY(ae_jinja_descend(r));
        if (a.kind == AE_VALUE_ARRAY) AE_TRY(equal_arrays(r, a.as.array, b.as.array, out));
        else AE_TRY(equal_objects(r, a.as.object, b.as.object, out));
        r->depth--;
        return AERIE_OK;
    default: *out = a.as.callable == b.as.callable; return AERIE_OK;
    }
}

static aerie_status order_arrays(ae_jinja_run *r, const ae_array *a, const ae_array *b, int *order)
{
    size_t n = a->n < b->n ? a->n : b->n;
    for (size_t i = 0; i < n; i++) {
        bool equal;
        AE_TRY(ae_jinja_equal(r, a->items[i], b->items[i], &equal));
        if (equal) continue;
        AE_TRY(ae_jinja_descend(r));
        AE_TRY(ae_jinja_order(r, a->items[i], b->items[i], order));
        r->depth--;
        return AERIE_OK;
    }
    *order = (a->n > b->n) - (a->n < b->n);
    return AERIE_OK;
}

aerie_status ae_jinja_order(ae_jinja_run *r, ae_value a, ae_value b, int *order)
{
    AE_JINJA_CHARGE(r, 1);
    if (a.kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, a);
    if (b.kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, b);
    if (ae_jinja_is_number(a) && ae_jinja_is_number(b)) {
        int64_t x, y;
        if (ae_jinja_to_int(a, &x) && ae_jinja_to_int(b, &y)) {
            *order = (x > y) - (x < y);
        } else {
            double u = ae_jinja_to_double(a), v = ae_jinja_to_double(b);
            *order = u < v ? -1 : u > v ? 1 : u == v ? 0 : 2;
        }
        return AERIE_OK;
    }
    if (a.kind == AE_VALUE_STRING && b.kind == AE_VALUE_STRING) {
        const ae_string *s = a.as.string, *t = b.as.string;
        size_t n = s->n < t->n ? s->n : t->n;
        AE_JINJA_CHARGE(r, n / 1024);
        int cmp = memcmp(s->data, t->data, n); /* UTF-8 sorts as its code points do */
        *order = cmp ? (cmp > 0) - (cmp < 0) : (s->n > t->n) - (s->n < t->n);
        return AERIE_OK;
    }
    if (a.kind == AE_VALUE_ARRAY && b.kind == AE_VALUE_ARRAY && same_sort(a.as.array, b.as.array) &&
        (a.as.array->kind == AE_ARRAY_LIST || is_tuple(a.as.array)))
        return order_arrays(r, a.as.array, b.as.array, order);
    return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a '%s' and a '%s' have no order", ae_jinja_type_name(a),
                         ae_jinja_type_name(b));
}

aerie_status ae_jinja_find(ae_jinja_run *r, const ae_string *hay, size_t from, const ae_string *needle, size_t *at)
{
    *at = SIZE_MAX;
    if (from > hay->n || needle->n > hay->n - from) return AERIE_OK;
    if (needle->n == 0) {
        *at = from;
        return AERIE_OK;
    }
    AE_JINJA_CHARGE(r, (hay->n - from) / 4096);
    size_t last = hay->n - needle->n, work = 0;
    for (size_t i = from; i <= last; i++) {
        const char *p = memchr(hay->data + i, needle->data[0], last - i + 1);
        if (!p) return AERIE_OK;
        i = (size_t)(p - hay->data);
        if (memcmp(p, needle->data, needle->n) == 0) {
            *at = i;
            return AERIE_OK;
        }
        /* Partial matches are what makes a search slow, so they are charged. */
        if ((work += 4 + needle->n) >= 256) {
            AE_JINJA_CHARGE(r, work / 256);
            work = 0;
        }
    }
    return AERIE_OK;
}

static aerie_status contains(ae_jinja_run *r, ae_value item, ae_value container, bool *out)
{
    *out = false;
    switch (container.kind) {
    case AE_VALUE_UNDEFINED: return AERIE_OK;
    case AE_VALUE_STRING: {
        size_t at;
        if (item.kind != AE_VALUE_STRING)
            return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'in' looks for a string in a string, not for a '%s'",
                                 ae_jinja_type_name(item));
        AE_TRY(ae_jinja_find(r, container.as.string, 0, item.as.string, &at));
        *out = at != SIZE_MAX;
        return AERIE_OK;
    }
    case AE_VALUE_OBJECT:
        if (item.kind == AE_VALUE_ARRAY && item.as.array->kind == AE_ARRAY_GENERATOR) return AERIE_OK; /* is only itself */
        if (item.kind == AE_VALUE_ARRAY || item.kind == AE_VALUE_OBJECT)
            return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a '%s' cannot be a key", ae_jinja_type_name(item));
        *out = ae_object_find(container.as.object, item) != NULL;
        return AERIE_OK;
    case AE_VALUE_ARRAY: {
        ae_value items;
        AE_TRY(ae_jinja_items(r, container, false, &items));
        for (size_t i = 0; i < items.as.array->n && !*out; i++) AE_TRY(ae_jinja_equal(r, items.as.array->items[i], item, out));
        return AERIE_OK;
    }
    default: return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "nothing can be 'in' a '%s'", ae_jinja_type_name(container));
    }
}

aerie_status ae_jinja_compare(ae_jinja_run *r, ae_jinja_op op, ae_value a, ae_value b, bool *out)
{
    int order;
    if (op == OP_EQ || op == OP_NE) {
        AE_TRY(ae_jinja_equal(r, a, b, out));
        if (op == OP_NE) *out = !*out;
        return AERIE_OK;
    }
    if (op == OP_IN || op == OP_NOT_IN) {
        AE_TRY(contains(r, a, b, out));
        if (op == OP_NOT_IN) *out = !*out;
        return AERIE_OK;
    }
    AE_TRY(ae_jinja_order(r, a, b, &order));
    *out = op == OP_LT   ? order == -1
           : op == OP_LE ? order == -1 || order == 0
           : op == OP_GT ? order == 1
                         : order == 0 || order == 1;
    return AERIE_OK;
}

/* ---- Arithmetic ------------------------------------------------------------------------- */

static aerie_status fail_types(ae_jinja_run *r, const char *what, ae_value a, ae_value b)
{
    if (a.kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, a);
    if (b.kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, b);
    return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%s' does not work on a '%s' and a '%s'", what, ae_jinja_type_name(a),
                         ae_jinja_type_name(b));
}

static void fill_map(uint8_t *map, const ae_string *s)
{
    if (s->map) memcpy(map, s->map, s->n);
    else memset(map, s->origin, s->n);
}

static aerie_status concat_strings(ae_jinja_run *r, ae_value a, ae_value b, ae_value *out)
{
    /* A safe side makes the other side escaped: that is what Markup does, even without autoescape. */
    bool safe = a.safe || b.safe;
    if (safe && !a.safe) AE_TRY(ae_jinja_escape(r, a, &a));
    if (safe && !b.safe) AE_TRY(ae_jinja_escape(r, b, &b));
    const ae_string *x = a.as.string, *y = b.as.string;
    const bool mixed = x->n && y->n && (x->map || y->map || x->origin != y->origin);
    size_t n;
    ae_string *s = ae_add_size(x->n, y->n, &n) ? ae_string_alloc(&r->heap, n) : NULL;
    uint8_t *map = s && mixed ? ae_value_alloc(&r->heap, n, 1) : NULL;
    if (!s || (mixed && !map)) return ae_jinja_fail_heap(r);
    memcpy(s->data, x->data, x->n);
    memcpy(s->data + x->n, y->data, y->n);
    if (mixed) {
        fill_map(map, x);
        fill_map(map + x->n, y);
    }
    s->map = mixed ? map : x->n ? x->map : y->map;
    s->origin = mixed ? AE_ORIGIN_MIXED : x->n ? x->origin : y->origin;
    ae_string_seal(s);
    *out = ae_value_of_string(s);
    out->safe = safe;
    return AERIE_OK;
}

static aerie_status add_objects(ae_jinja_run *r, ae_value a, ae_value b, ae_value *out)
{
    if (a.kind == AE_VALUE_STRING && b.kind == AE_VALUE_STRING) return concat_strings(r, a, b, out);
    if (a.kind != AE_VALUE_ARRAY || b.kind != AE_VALUE_ARRAY) return fail_types(r, "+", a, b);
    const ae_array *x = a.as.array, *y = b.as.array;
    bool tuples = is_tuple(x) && is_tuple(y);
    if (!tuples && (x->kind != AE_ARRAY_LIST || y->kind != AE_ARRAY_LIST)) return fail_types(r, "+", a, b);
    AE_JINJA_CHARGE(r, (x->n + y->n) / 64);
    if (!ae_value_array(&r->heap, tuples ? AE_ARRAY_TUPLE : AE_ARRAY_LIST, x->n + y->n, out)) return ae_jinja_fail_heap(r);
    ae_array *sum = out->as.array;
    if (x->n) memcpy(sum->items, x->items, x->n * sizeof *x->items);
    if (y->n) memcpy(sum->items + x->n, y->items, y->n * sizeof *y->items);
    sum->n = x->n + y->n;
    return AERIE_OK;
}

/* "ab" * 3, [1] * 3 */
static aerie_status repeat(ae_jinja_run *r, ae_value v, int64_t count, ae_value *out)
{
    size_t times = count > 0 ? (size_t)count : 0, n;
    bool is_string = v.kind == AE_VALUE_STRING;
    size_t unit = is_string ? v.as.string->n : v.as.array->n;
    if (unit == 0) times = 0;
    if (!ae_mul_size(unit, times, &n) || n > r->heap.limit_bytes) {
        r->heap.limit_hit = true;
        return ae_jinja_fail_heap(r);
    }
    if (is_string) {
        const bool mixed = v.as.string->map && n;
        ae_string *s = ae_string_alloc(&r->heap, n);
        uint8_t *map = s && mixed ? ae_value_alloc(&r->heap, n, 1) : NULL;
        if (!s || (mixed && !map)) return ae_jinja_fail_heap(r);
        for (size_t i = 0; i < times; i++) {
            memcpy(s->data + i * unit, v.as.string->data, unit);
            if (mixed) fill_map(map + i * unit, v.as.string);
        }
        s->map = map;
        s->origin = n ? v.as.string->origin : AE_ORIGIN_TEMPLATE;
        ae_string_seal(s);
        *out = ae_value_of_string(s);
        out->safe = v.safe;
        return AERIE_OK;
    }
    if (!ae_value_array(&r->heap, (ae_array_kind)v.as.array->kind, n, out)) return ae_jinja_fail_heap(r);
    for (size_t i = 0; i < times; i++)
        memcpy(out->as.array->items + i * unit, v.as.array->items, unit * sizeof *v.as.array->items);
    out->as.array->n = n;
    return AERIE_OK;
}

static aerie_status fail_zero(ae_jinja_run *r) { return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "division by zero"); }

static aerie_status power(int64_t x, int64_t y, int64_t *out, bool *overflow)
{
    *out = 1;
    for (; y > 0 && !*overflow; y >>= 1) {
        if ((y & 1) && __builtin_mul_overflow(*out, x, out)) *overflow = true;
        if (y > 1 && __builtin_mul_overflow(x, x, &x)) *overflow = true;
    }
    return AERIE_OK;
}

static aerie_status integer_arithmetic(ae_jinja_run *r, ae_jinja_op op, int64_t x, int64_t y, ae_value *out)
{
    int64_t z = 0;
    bool overflow = false;
    if ((op == OP_FLOORDIV || op == OP_MOD) && y == 0) return fail_zero(r);
    switch (op) {
    case OP_ADD: overflow = __builtin_add_overflow(x, y, &z); break;
    case OP_SUB: overflow = __builtin_sub_overflow(x, y, &z); break;
    case OP_MUL: overflow = __builtin_mul_overflow(x, y, &z); break;
    case OP_FLOORDIV:
        overflow = x == INT64_MIN && y == -1;
        if (!overflow) z = x / y - (x % y != 0 && (x < 0) != (y < 0));
        break;
    case OP_MOD:
        if (y == -1) break; /* INT64_MIN % -1 traps */
        z = x % y;
        if (z != 0 && (z < 0) != (y < 0)) z += y;
        break;
    case OP_POW: AE_TRY(power(x, y, &z, &overflow)); break;
    default: break;
    }
    if (overflow) return ae_jinja_fail(r, AERIE_ERROR_LIMIT, "the result does not fit in 64 bits");
    *out = ae_value_int(z);
    return AERIE_OK;
}

static aerie_status float_arithmetic(ae_jinja_run *r, ae_jinja_op op, double x, double y, ae_value *out)
{
    double z = 0;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && y == 0) return fail_zero(r);
    if (op == OP_POW && x == 0 && y < 0) return fail_zero(r);
    switch (op) {
    case OP_ADD: z = x + y; break;
    case OP_SUB: z = x - y; break;
    case OP_MUL: z = x * y; break;
    case OP_DIV: z = x / y; break;
    case OP_POW: z = pow(x, y); break;
    case OP_FLOORDIV:
    case OP_MOD: {
        double mod = fmod(x, y), div = (x - mod) / y;
        if (mod != 0 && (mod < 0) != (y < 0)) {
            mod += y;
            div -= 1;
        }
        if (mod == 0) mod = copysign(0.0, y);
        if (div != 0) {
            double floored = floor(div);
            div = div - floored > 0.5 ? floored + 1 : floored;
        } else {
            div = copysign(0.0, x / y);
        }
        z = op == OP_MOD ? mod : div;
        break;
    }
    default: break;
    }
    if (op == OP_POW && ((isinf(z) && isfinite(x) && isfinite(y)) || (isnan(z) && !isnan(x) && !isnan(y))))
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "the power is not a finite real number");
    *out = ae_value_double(z);
    return AERIE_OK;
}

aerie_status ae_jinja_binary(ae_jinja_run *r, ae_jinja_op op, ae_value a, ae_value b, ae_value *out)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    int64_t x, y;
    if (op == OP_MOD && a.kind == AE_VALUE_STRING) return ae_jinja_percent(r, a, b, out);
    if (ae_jinja_is_number(a) && ae_jinja_is_number(b)) {
        bool integers = ae_jinja_to_int(a, &x) && ae_jinja_to_int(b, &y);
        if (integers && op != OP_DIV && !(op == OP_POW && y < 0)) return integer_arithmetic(r, op, x, y, out);
        return float_arithmetic(r, op, ae_jinja_to_double(a), ae_jinja_to_double(b), out);
    }
    if (op == OP_ADD) return add_objects(r, a, b, out);
    if (op == OP_MUL) {
        if (ae_jinja_to_int(a, &x)) {
            ae_value swap = a;
            a = b;
            b = swap;
        }
        bool sequence = a.kind == AE_VALUE_STRING ||
                        (a.kind == AE_VALUE_ARRAY && (a.as.array->kind == AE_ARRAY_LIST || is_tuple(a.as.array)));
        if (sequence && ae_jinja_to_int(b, &y)) return repeat(r, a, y, out);
    }
    return fail_types(r, names[op], a, b);
}

aerie_status ae_jinja_negate(ae_jinja_run *r, ae_value v, bool negative, ae_value *out)
{
    int64_t i;
    if (v.kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, v);
    if (v.kind == AE_VALUE_DOUBLE) {
        *out = ae_value_double(negative ? -v.as.number : v.as.number);
        return AERIE_OK;
    }
    if (!ae_jinja_to_int(v, &i))
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a '%s' has no sign", ae_jinja_type_name(v));
    if (!negative) {
        *out = ae_value_int(i);
        return AERIE_OK;
    }
    return integer_arithmetic(r, OP_SUB, 0, i, out);
}

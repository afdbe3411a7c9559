/* values.c - enum and const: which values all conjuncts of a set leave, and sets that are a few values.
 *
 * Lists of values are ae_buf of const json_t *.
 */
#include <math.h>

#include "text/schema/schema.h"

enum { MAX_COMPARISONS = 4000000 }; /* most comparisons of values, in the whole schema, to find those that several lists have */

static unsigned type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL: return AE_JSON_NULL;
    case JSON_OBJECT: return AE_JSON_OBJECT;
    case JSON_ARRAY: return AE_JSON_ARRAY;
    case JSON_STRING: return AE_JSON_STRING;
    case JSON_INTEGER: return AE_JSON_INTEGER;
    case JSON_REAL: return json_real_value(value) == floor(json_real_value(value)) ? AE_JSON_INTEGER : AE_JSON_FRACTION;
    default: return AE_JSON_BOOLEAN;
    }
}

/* schema == from: the value comes from the schema's own enum. */
static bool is_allowed(const json_t *schema, const json_t *from, const json_t *value)
{
    const json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    bool found = !list || schema == from;
    for (size_t i = 0; i < json_array_size(list) && !found; i++) found = json_equal(json_array_get(list, i), value);
    return found && (!one || json_equal(one, value));
}

/* Returns how many values the other lists hold: each value of the first list is searched in them. */
static size_t count_others(const ae_conjuncts *set, const json_t *first)
{
    size_t n = 0;
    for (size_t i = 0; i < set->n; i++)
        if (set->items[i].schema != first) n += json_array_size(json_object_get(set->items[i].schema, "enum"));
    return n;
}

/* Returns the first conjunct with enum or const, or NULL. */
static const json_t *first_of(ae_schema *s, const ae_conjuncts *set)
{
    const json_t *first = NULL;
    for (size_t i = 0; i < set->n; i++) {
        const json_t *schema = set->items[i].schema, *list = json_object_get(schema, "enum");
        if (list && (!json_is_array(list) || !json_array_size(list)))
            ae_schema_fail(s, AERIE_ERROR_FORMAT, schema, "\"enum\" is a list of at least one value");
        if (!first && (list || json_object_get(schema, "const"))) first = schema;
    }
    return ae_schema_ok(s) ? first : NULL;
}

bool ae_schema_has_values(ae_schema *s, const ae_conjuncts *set)
{
    return first_of(s, set) != NULL;
}

static void add_value(ae_schema *s, ae_buf *values, const json_t *value)
{
    ae_buf_add(values, &value, sizeof value);
    if (values->failed) ae_schema_fail_memory(s);
}

void ae_schema_add_values(ae_schema *s, const ae_conjuncts *set, ae_buf *values)
{
    const json_t *first = first_of(s, set);
    const unsigned types = ae_schema_types(s, set);
    for (size_t i = 0; first && i < set->n; i++)
        if (ae_schema_implied(set->items[i].schema))
            ae_schema_pass_over(s, set->items[i].schema, "enum",
                                "beside enum and const only \"type\" is possible; leave out the values that the other keywords "
                                "exclude");
    if (!first || !ae_schema_ok(s)) return;
    const json_t *list = json_object_get(first, "enum"), *one = json_object_get(first, "const");
    const size_t n = list ? json_array_size(list) : 1, n_others = count_others(set, first);
    if (n_others > (MAX_COMPARISONS - s->n_compared) / n) {
        ae_schema_fail(s, AERIE_ERROR_LIMIT, first,
                       "lists of %zu and %zu values hold at once here; that is too many to compare", n, n_others);
        return;
    }
    s->n_compared += (uint32_t)(n * n_others);
    for (size_t k = 0; k < n && ae_schema_ok(s); k++) {
        const json_t *value = list ? json_array_get(list, k) : one;
        bool good = type_of(value) & types;
        for (size_t i = 0; i < set->n && good; i++) good = is_allowed(set->items[i].schema, list ? first : NULL, value);
        if (good) add_value(s, values, value);
    }
}

bool ae_schema_choose(ae_schema *s, ae_gpiece choices, ae_buf *values)
{
    const size_t n = values->n / sizeof(const json_t *);
    if (n && ae_schema_ok(s))
        ae_gbuild_or(&s->b, choices, ae_schema_values(s, (const json_t *const *)(const void *)values->data, n));
    ae_buf_free(values);
    return n && ae_schema_ok(s);
}

/* ---- Sets of few values ----------------------------------------------------------------------------------- */

bool ae_schema_few(ae_schema *s, const ae_conjuncts *set, size_t max, ae_buf *values)
{
    if (!ae_schema_ok(s)) return false;
    if (set->never) return true;
    for (size_t i = 0; i < set->n; i++) {
        const json_t *schema = set->items[i].schema;
        const json_t *list = set->items[i].chosen ? NULL : ae_schema_alternatives(s, schema);
        if (!list) continue;
        for (size_t k = 0; k < json_array_size(list); k++) {
            ae_conjuncts with = *set;
            with.items[i].chosen = true;
            ae_schema_add(s, &with, json_array_get(list, k), schema);
            if (!ae_schema_few(s, &with, max, values)) return false;
        }
        return true;
    }
    if (ae_schema_has_values(s, set)) {
        ae_schema_add_values(s, set, values);
    } else {
        const unsigned types = ae_schema_types(s, set);
        if (!set->n || types & ~(unsigned)(AE_JSON_NULL | AE_JSON_BOOLEAN)) return false;
        if (types & AE_JSON_NULL) add_value(s, values, json_null());
        if (types & AE_JSON_BOOLEAN) add_value(s, values, json_true()), add_value(s, values, json_false());
    }
    return ae_schema_ok(s) && values->n / sizeof(const json_t *) <= max;
}

bool ae_schema_same(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    size_t i;
    if (json_is_number(a) && json_is_number(b) && json_typeof(a) != json_typeof(b))
        return json_number_value(a) == json_number_value(b);
    if (json_typeof(a) != json_typeof(b)) return false;
    if (json_is_array(a)) {
        if (json_array_size(a) != json_array_size(b)) return false;
        json_array_foreach((json_t *)a, i, value)
            if (!ae_schema_same(value, json_array_get(b, i))) return false;
        return true;
    }
    if (!json_is_object(a)) return json_equal(a, b);
    if (json_object_size(a) != json_object_size(b)) return false;
    json_object_foreach((json_t *)a, key, value) {
        const json_t *other = json_object_get(b, key);
        if (!other || !ae_schema_same(value, other)) return false;
    }
    return true;
}

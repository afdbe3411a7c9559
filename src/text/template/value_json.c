/* value_json.c - JSON to template values; see value_json.h. jansson reads, this converts. */
#include "text/template/value_json.h"

/* Returns the depth of nesting, counted no further than `limit`, which bounds the recursion. */
static int depth_of(const json_t *json, int limit)
{
    int deepest = 0;
    const char *key;
    json_t *child;
    size_t i;
    if (!json_is_array(json) && !json_is_object(json)) return 0;
    if (limit == 0) return 1;
    json_array_foreach(json, i, child)
    {
        const int depth = depth_of(child, limit - 1);
        if (depth > deepest) deepest = depth;
        if (deepest == limit) break;
    }
    json_object_foreach((json_t *)json, key, child)
    {
        const int depth = depth_of(child, limit - 1);
        if (depth > deepest) deepest = depth;
        if (deepest == limit) break;
    }
    return deepest + 1;
}

static bool from_object(ae_value_heap *heap, json_t *json, ae_value *out)
{
    ae_value name, item;
    const char *key;
    json_t *child;
    if (!ae_value_object(heap, out)) return false;
    json_object_foreach(json, key, child)
    {
        if (!ae_value_string(heap, key, strlen(key), &name) || !ae_value_from_json(heap, child, &item) ||
            !ae_value_object_set(heap, *out, name, item))
            return false;
    }
    return true;
}

static bool from_array(ae_value_heap *heap, const json_t *json, ae_value *out)
{
    ae_value item;
    json_t *child;
    size_t i;
    if (!ae_value_array(heap, AE_ARRAY_LIST, json_array_size(json), out)) return false;
    out->as.array->is_data = true;
    json_array_foreach(json, i, child)
    {
        if (!ae_value_from_json(heap, child, &item) || !ae_value_array_add(heap, *out, item)) return false;
    }
    return true;
}

bool ae_value_from_json(ae_value_heap *heap, const json_t *json, ae_value *out)
{
    switch (json_typeof(json)) {
    case JSON_OBJECT: return from_object(heap, (json_t *)json, out);
    case JSON_ARRAY: return from_array(heap, json, out);
    case JSON_STRING: return ae_value_string(heap, json_string_value(json), json_string_length(json), out);
    case JSON_INTEGER: *out = ae_value_int(json_integer_value(json)); return true;
    case JSON_REAL: *out = ae_value_double(json_real_value(json)); return true;
    case JSON_TRUE: *out = ae_value_bool(true); return true;
    case JSON_FALSE: *out = ae_value_bool(false); return true;
    case JSON_NULL: break;
    }
    *out = ae_value_none();
    return true;
}

static aerie_status fail_parse(const json_error_t *e, const char *name, size_t n, aerie_error *error)
{
    if (!e->text[0]) return ae_fail_memory(error, name, n); /* jansson has no sentence for this failure */
    switch (json_error_code(e)) {
    case json_error_out_of_memory: return ae_fail_memory(error, name, n);
    case json_error_stack_overflow:
        return ae_fail(error, AERIE_ERROR_LIMIT, "%s: line %d: nested deeper than %d", name, e->line, AE_JSON_MAX_DEPTH);
    default:
        if (e->line < 0) return ae_fail(error, AERIE_ERROR_FORMAT, "%s: not JSON: %s", name, e->text);
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s: line %d, column %d: not JSON: %s", name, e->line, e->column, e->text);
    }
}

aerie_status ae_value_parse_json(ae_value_heap *heap, const char *text, size_t n, const char *name, ae_value *out,
                                 aerie_error *error)
{
    json_error_t e;
    json_t *json = json_loadb(text ? text : "", n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (!json) return fail_parse(&e, name, n, error);
    aerie_status status = AERIE_OK;
    if (depth_of(json, AE_JSON_MAX_DEPTH + 1) > AE_JSON_MAX_DEPTH)
        status = ae_fail(error, AERIE_ERROR_LIMIT, "%s: nested deeper than %d", name, AE_JSON_MAX_DEPTH);
    else if (!ae_value_from_json(heap, json, out)) status = ae_fail_memory(error, name, heap->arena.used_bytes);
    json_decref(json);
    return status;
}

/* jinja_json.h - test helper: JSON documents to template values.
 *
 * Owns nothing: the values live in the given heap. Numbers, strings and order are kept as they are.
 */
#ifndef AE_TESTS_JINJA_JSON_H
#define AE_TESTS_JINJA_JSON_H

#include <jansson.h>

#include "text/jinja.h"

static inline bool jinja_from_json(ae_value_heap *heap, const json_t *json, ae_value *out)
{
    ae_value item;
    size_t i;
    const char *key;
    json_t *child;
    switch (json_typeof(json)) {
    case JSON_NULL: *out = ae_value_none(); return true;
    case JSON_TRUE: *out = ae_value_bool(true); return true;
    case JSON_FALSE: *out = ae_value_bool(false); return true;
    case JSON_INTEGER: *out = ae_value_int(json_integer_value(json)); return true;
    case JSON_REAL: *out = ae_value_double(json_real_value(json)); return true;
    case JSON_STRING: return ae_value_string(heap, json_string_value(json), json_string_length(json), out);
    case JSON_ARRAY:
        if (!ae_value_array(heap, AE_ARRAY_LIST, json_array_size(json), out)) return false;
        json_array_foreach(json, i, child)
            if (!jinja_from_json(heap, child, &item) || !ae_value_array_add(heap, *out, item)) return false;
        return true;
    case JSON_OBJECT:
        if (!ae_value_object(heap, out)) return false;
        json_object_foreach((json_t *)json, key, child)
            if (!jinja_from_json(heap, child, &item) || !ae_value_object_put(heap, *out, key, item)) return false;
        return true;
    }
    return false;
}

#endif

/* value_json.h - JSON documents as the values that templates see.
 *
 * Owns nothing: values live in the given heap, texts are the caller's. Numbers, strings and the order of keys are kept as
 * they are; the last value of equal keys counts, as in Python. Hostile input: depth and the size of numbers are bounded.
 */
#ifndef AE_TEXT_VALUE_JSON_H
#define AE_TEXT_VALUE_JSON_H

#include <jansson.h>

#include "text/template/value.h"

#define AE_JSON_MAX_DEPTH 128 /* most lists and objects within each other */

/* Reads any JSON value. `name` begins the sentence of an error. Errors: FORMAT (line and column), LIMIT (too deep, too large),
 * MEMORY. */
aerie_status ae_value_parse_json(ae_value_heap *heap, const char *text, size_t n, const char *name, ae_value *out,
                                 aerie_error *error);
/* Converts a document that was already read; returns false if the heap is exhausted. The caller must ensure that it is not too
 * deep. */
bool ae_value_from_json(ae_value_heap *heap, const json_t *json, ae_value *out);

#endif

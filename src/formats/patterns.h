/* patterns.h - regular expressions over the names of tensors.
 *
 * A pattern matches a name that contains a match of it, ignoring case. The syntax is PCRE2's. One thread uses a list at a time.
 */
#ifndef AE_FORMATS_PATTERNS_H
#define AE_FORMATS_PATTERNS_H

#include "formats/gguf.h"

typedef struct ae_patterns {
    struct ae_pattern *list; /* [n] */
    size_t n, room;
} ae_patterns;

/* Adds the first n bytes of the text as a pattern to a list that begins as {0}. Errors: ARGUMENT (which pattern, where and
 * why), MEMORY. The list has to be freed in any case. */
aerie_status ae_patterns_add(ae_patterns *patterns, const char *text, size_t n, aerie_error *error);
void ae_patterns_free(ae_patterns *patterns);
/* Finds the first pattern that matches the name; *first is its index, or patterns->n. Errors: ARGUMENT (a pattern takes too
 * long), MEMORY. */
aerie_status ae_patterns_first(const ae_patterns *patterns, ae_gguf_string name, size_t *first, aerie_error *error);
/* The same for pattern i alone. */
aerie_status ae_patterns_match(const ae_patterns *patterns, size_t i, ae_gguf_string name, bool *found, aerie_error *error);

#endif

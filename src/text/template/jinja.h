/* jinja.h - chat templates: parse once, render many times.
 *
 * A bounded interpreter of the Jinja language with the semantics of Python's jinja2 in the
 * environment that model makers test their templates in: an immutable sandbox, trim_blocks,
 * lstrip_blocks, loop controls, raise_exception, strftime_now, tojson as json.dumps without
 * ASCII escapes, and {% generation %} blocks without effect.
 *
 * Owns: the parsed template. It is immutable and may be rendered by several threads at once.
 * Does not own: the root values, which are only read.
 * Invariants: templates are hostile input. Nesting, steps, memory and output are bounded; there
 * is nothing to call but the built-in functions. There is no inheritance, include or import.
 */
#ifndef AE_TEXT_JINJA_H
#define AE_TEXT_JINJA_H

#include <time.h>

#include "text/template/value.h"

#define AE_TEMPLATE_MAX_BYTES ((size_t)4 << 20)

typedef struct ae_template ae_template;

typedef struct ae_template_options {
    uint64_t max_steps;      /* most nodes evaluated, plus a share for every byte looked at */
    size_t max_output_bytes; /* of the rendered text */
    size_t max_memory_bytes; /* most bytes of all values made while rendering */
    const struct tm *now;    /* the time that strftime_now shows; NULL: the local time */
} ae_template_options;

ae_template_options ae_template_options_default(void);

/* Errors: FORMAT (line and reason), LIMIT (too large, too deeply nested), UNSUPPORTED (known to
 * jinja2, but not offered here), MEMORY. */
aerie_status ae_template_parse(ae_template **out, const char *text, size_t n, aerie_error *error);
void ae_template_free(ae_template *tmpl);

/* Appends the text to `out`, all of it or nothing, and to `spans` (NULL: not wanted) the ae_span of its bytes that come from
 * data (value.h), in ascending order, no two adjacent. `root` must be an OBJECT: the variables that the template sees.
 * `options` may be NULL. Errors: FORMAT (line and reason; what the template itself raises is passed on unchanged), LIMIT,
 * UNSUPPORTED, MEMORY. */
aerie_status ae_template_render(const ae_template *tmpl, ae_value root, const ae_template_options *options,
                                ae_buf *out, ae_buf *spans, aerie_error *error);

#endif

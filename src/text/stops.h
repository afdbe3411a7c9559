/* stops.h - stop strings in a stream of bytes: passes on the text before the first one as soon as it is certain.
 *
 * The first stop string is the one that ends first, or the longest if several end at the same byte. The result depends on the
 * bytes only, not on how calls divide them. Bytes that may begin a stop string are held back until that is ruled out, or until
 * the text ends.
 * Owns: a matcher per string (Knuth, Morris, Pratt), and the bytes held back. Time: linear in bytes times strings.
 */
#ifndef AE_TEXT_STOPS_H
#define AE_TEXT_STOPS_H

#include "base/err.h"
#include "base/mem.h"

typedef struct ae_stops ae_stops;

/* Errors: ARGUMENT (more than AERIE_MAX_STOPS strings, or one that is empty or has more than AERIE_MAX_STOP_BYTES bytes; the
 * message says which). */
aerie_status ae_stops_check(const char *const *texts, size_t n, aerie_error *error);
/* texts [n] are copied. */
aerie_status ae_stops_create(ae_stops **out, const char *const *texts, size_t n, aerie_error *error);
void ae_stops_free(ae_stops *stops);

/* Appends to `out` the bytes that can no longer belong to a stop string. True once a stop string is complete; neither it nor
 * anything after it is passed on. */
bool ae_stops_feed(ae_stops *stops, const char *bytes, size_t n, ae_buf *out);
/* Called when the text has ended: appends what was held back, unless a stop string was found. */
void ae_stops_end(ae_stops *stops, ae_buf *out);

#endif

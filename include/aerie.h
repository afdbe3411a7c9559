/* aerie.h - the public interface of libaerie, an LLM inference engine built for speculation.
 *
 * Conventions
 *   - Every function that can fail returns an aerie_status; results come back through pointers.
 *     The last parameter, `error`, may be NULL; if given, it is owned by the caller and receives a
 *     sentence that names the file or option, what was found, and what would work.
 *   - What you load/create you free; `free` functions accept NULL.
 *   - A getter lends: what it returns lives as long as the object it was asked of.
 *   - Option structs are initialised by their `_default` function and then changed; fields that
 *     a caller does not know keep their defaults.
 *   - A model is immutable once loaded and may be shared by threads and sessions. A session is
 *     used by one thread at a time.
 */
#ifndef AERIE_H
#define AERIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define AERIE_API __attribute__((visibility("default")))
#else
#define AERIE_API
#endif

#define AERIE_VERSION_MAJOR 0
#define AERIE_VERSION_MINOR 1
#define AERIE_VERSION_PATCH 0

/* ---- Status and errors ----------------------------------------------------------------- */

/* X(name, value, sentence) */
#define AERIE_STATUS_LIST(X)                                                    \
    X(OK, 0, "done")                                                            \
    X(ERROR_ARGUMENT, -1, "an argument is out of range or contradicts another") \
    X(ERROR_MEMORY, -2, "not enough memory")                                    \
    X(ERROR_IO, -3, "a file could not be read or written")                      \
    X(ERROR_FORMAT, -4, "a file or text is malformed")                          \
    X(ERROR_UNSUPPORTED, -5, "well-formed, but of a kind that aerie lacks")     \
    X(ERROR_LIMIT, -6, "a limit would be exceeded")                             \
    X(ERROR_CANCELLED, -7, "the caller asked to stop")                          \
    X(ERROR_INTERNAL, -8, "an invariant of aerie does not hold; please report")

typedef enum aerie_status {
#define AERIE_STATUS_ENUM(name, value, text) AERIE_##name = value,
    AERIE_STATUS_LIST(AERIE_STATUS_ENUM)
#undef AERIE_STATUS_ENUM
} aerie_status;

typedef struct aerie_error {
    aerie_status status;
    char text[512]; /* one sentence, NUL-terminated UTF-8, cut if longer */
} aerie_error;

#ifdef __cplusplus
}
#endif
#endif

/* err.h - how failures are reported: a status is returned, and a message is written to a record that the caller owns.
 *
 * Owns: formatting the message. Does not own: the record, which may always be NULL.
 * Invariant: input is never asserted. AE_ASSERT checks internal invariants only and is compiled out of release builds.
 */
#ifndef AE_BASE_ERR_H
#define AE_BASE_ERR_H

#include <assert.h>

#include "aerie.h"

/* Writes the message to `error` (may be NULL) and returns `status`. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
aerie_status ae_fail(aerie_error *error, aerie_status status, const char *format, ...);

/* Writes "not enough memory for <what> (<bytes> bytes)"; returns AERIE_ERROR_MEMORY. */
aerie_status ae_fail_memory(aerie_error *error, const char *what, size_t bytes);

/* Returns the short name of a status ("ERROR_FORMAT"). Static storage. */
const char *ae_status_name(aerie_status status);
/* Returns the sentence that describes a status. Static storage. */
const char *ae_status_text(aerie_status status);

/* In builds with assertions: says on standard error where a failure began and the way that it took, if the list in the
 * environment variable AERIE_DEBUG has "status". */
#ifdef NDEBUG
#define AE_NOTE_WAY(status) ((void)0)
#else
void ae_note_way(aerie_status status, const char *file, int line, const char *function);
#define AE_NOTE_WAY(status) ae_note_way(status, __FILE__, __LINE__, __func__)
#endif

/* Returns a failure to the caller. */
#define AE_TRY(expr)                              \
    do {                                          \
        aerie_status ae_try_status = (expr);      \
        if (ae_try_status != AERIE_OK) {          \
            AE_NOTE_WAY(ae_try_status);           \
            return ae_try_status;                 \
        }                                         \
    } while (0)

/* Sets `status` to the result of expr; if that is a failure, jumps to the label, where the caller cleans up. */
#define AE_TRY_GOTO(status, expr, label)       \
    do {                                       \
        (status) = (expr);                     \
        if ((status) != AERIE_OK) {            \
            AE_NOTE_WAY(status);               \
            goto label;                        \
        }                                      \
    } while (0)

#define AE_ASSERT(cond) assert(cond)

#endif

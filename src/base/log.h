/* log.h - sentences for the caller's log (aerie.h, "Log"). Failures are not logged: they are returned as statuses (err.h).
 *
 * Owns: formatting the sentence. Called by the thread that called the library, never by threads of the pool.
 */
#ifndef AE_BASE_LOG_H
#define AE_BASE_LOG_H

#include "aerie.h"

/* Sends one sentence to the log, truncated to 1,023 bytes. Does nothing if log is NULL or has no callback. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void ae_log_say(const aerie_log *log, aerie_log_level level, const char *format, ...);

#endif

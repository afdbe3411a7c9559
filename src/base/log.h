/* log.h - sentences for the caller's log (aerie.h, "Log"). Failures are not among them: they are statuses (err.h).
 *
 * Owns: formatting the sentence. Called by the thread that called the library, never by threads of the pool.
 */
#ifndef AE_BASE_LOG_H
#define AE_BASE_LOG_H

#include "aerie.h"

/* One sentence, cut if it is longer than 1,023 bytes. log NULL or without a callback: nothing is done. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void ae_log_say(const aerie_log *log, aerie_log_level level, const char *format, ...);

#endif

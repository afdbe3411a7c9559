/* log.c - implements log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void ae_log_say(const aerie_log *log, aerie_log_level level, const char *format, ...)
{
    char sentence[1024];
    va_list args;
    if (!log || !log->call) return;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    log->call(log->user, level, sentence);
}

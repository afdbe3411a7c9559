/* err.c - messages of failures, and the names of statuses. The contract is in err.h. Owns nothing. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef NDEBUG
static bool says_way(void)
{
    const char *list = getenv("AERIE_DEBUG");
    return list && strstr(list, "status");
}

void ae_note_way(aerie_status status, const char *file, int line, const char *function)
{
    if (says_way()) fprintf(stderr, "aerie:   %s passed on by %s (%s:%d)\n", ae_status_name(status), function, file, line);
}

static void note_begin(aerie_status status, const char *format, va_list args)
{
    char text[512];
    if (!says_way()) return;
    vsnprintf(text, sizeof text, format, args);
    fprintf(stderr, "aerie: %s: %s\n", ae_status_name(status), text);
}
#endif

aerie_status ae_fail(aerie_error *error, aerie_status status, const char *format, ...)
{
#ifndef NDEBUG
    va_list noted;
    va_start(noted, format);
    note_begin(status, format, noted);
    va_end(noted);
#endif
    if (error) {
        va_list args;
        va_start(args, format);
        error->status = status;
        vsnprintf(error->text, sizeof error->text, format, args);
        va_end(args);
    }
    return status;
}

aerie_status ae_fail_memory(aerie_error *error, const char *what, size_t bytes)
{
    return ae_fail(error, AERIE_ERROR_MEMORY, "not enough memory for %s (%zu bytes)", what, bytes);
}

const char *ae_status_name(aerie_status status)
{
    switch (status) {
#define CASE(name, value, text) case AERIE_##name: return #name;
        AERIE_STATUS_LIST(CASE)
#undef CASE
    }
    return "UNKNOWN";
}

const char *ae_status_text(aerie_status status)
{
    switch (status) {
#define CASE(name, value, text) case AERIE_##name: return text;
        AERIE_STATUS_LIST(CASE)
#undef CASE
    }
    return "unknown status";
}

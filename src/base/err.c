/* err.c - messages of failures, and the names of statuses. The contract is in err.h. Owns nothing. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>

aerie_status ae_fail(aerie_error *error, aerie_status status, const char *format, ...)
{
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

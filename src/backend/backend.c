/* backend.c - functions that all backends share. See backend.h. Owns nothing. */
#include "backend/backend.h"

#include <stdarg.h>
#include <stdio.h>

void ae_backend_close(ae_backend *backend)
{
    if (backend) backend->ops->close(backend);
}

void ae_backend_note(aerie_error *fault, aerie_status status, const char *format, ...)
{
    if (fault->status != AERIE_OK) return;
    va_list args;
    va_start(args, format);
    vsnprintf(fault->text, sizeof fault->text, format, args);
    va_end(args);
    fault->status = status;
}

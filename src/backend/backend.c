/* backend.c - functions that all backends share. See backend.h. Owns nothing. */
#include "backend/backend.h"

#include <stdarg.h>
#include <stdio.h>

void ae_backend_close(ae_backend *backend)
{
    if (backend) backend->ops->close(backend);
}

void ae_backend_move(const ae_backend_ops *from_ops, ae_stream *from, const void *source, const ae_backend_ops *to_ops,
                     ae_stream *to, void *target, void *room, size_t n)
{
    from_ops->download(from, room, source, n);
    to_ops->upload(to, target, room, n);
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

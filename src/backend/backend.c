/* backend.c - functions that all backends share. See backend.h. Owns nothing. */
#include "backend/backend.h"
#include "backend/alloc_fail.h"

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

aerie_status ae_backend_fail_alloc(const ae_backend *backend, const char *what, size_t bytes, aerie_error *error)
{
    const size_t most = backend->ops->max_block ? backend->ops->max_block(backend) : SIZE_MAX;
    if (bytes <= most) return ae_fail_memory(error, what, bytes);
    return ae_fail(error, AERIE_ERROR_MEMORY, "not enough memory for %s: it takes one block of %zu bytes, and %s allocates at "
                   "most %zu in one (AERIE_VULKAN_BLOCK lowers this). A smaller context (-c), fewer sequences (-np), shorter "
                   "passes (-b) or fewer layers on the device (-ngl) may fit", what, bytes, backend->ops->name, most);
}

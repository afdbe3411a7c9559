/* device.c - the list of backends, by name, and what all of them share.
 *
 * Owns nothing. A backend is entered here and nowhere else. */
#include "backend/backend.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"

typedef aerie_status open_fn(ae_backend **out, const char *cpu_level, aerie_error *error);

static const struct {
    const char *name;
    open_fn *open;
} backends[] = {
    {"cpu", ae_cpu_open},
    {"cpu-strict", ae_cpu_open_strict},
};

const char *ae_backend_names(void)
{
    return "cpu, cpu-strict";
}

aerie_status ae_backend_open(ae_backend **out, const char *name, const char *cpu_level, aerie_error *error)
{
    *out = NULL;
    const char *said = name && *name ? NULL : getenv("AERIE_BACKEND");
    if (!name || !*name) name = said && *said ? said : backends[0].name;
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++)
        if (!strcmp(backends[i].name, name)) return backends[i].open(out, cpu_level, error);
    return ae_fail(error, AERIE_ERROR_ARGUMENT, "backend \"%s\"%s is unknown; there are %s", name,
                   said ? ", named by AERIE_BACKEND," : "", ae_backend_names());
}

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

/* device.c - the table of backends. See device.h. */
#include "device/device.h"

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

/* names.c - aerie.h: the version, names of values, defaults. Owns nothing. */
#include <string.h>

#include "base/mem.h"
#include "device/device.h"
#include "model/model.h"
#include "sample/sampler.h"

const char *aerie_version(void)
{
#define TEXT(x) #x
#define VERSION(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)
    return VERSION(AERIE_VERSION_MAJOR, AERIE_VERSION_MINOR, AERIE_VERSION_PATCH);
}

uint32_t aerie_version_number(void)
{
    return AERIE_VERSION_NUMBER;
}

const char *aerie_status_text(aerie_status status)
{
    return ae_status_text(status);
}

void aerie_free(void *memory)
{
    ae_free(memory);
}

const char *aerie_log_level_name(aerie_log_level level)
{
    static const char *const names[] = {"debug", "info", "warning"};
    return (size_t)level < sizeof names / sizeof names[0] ? names[level] : NULL;
}

const char *aerie_rope_scaling_name(aerie_rope_scaling scaling)
{
    return ae_model_rope_scaling_name(scaling);
}

bool aerie_rope_scaling_parse(const char *name, aerie_rope_scaling *scaling)
{
    if (!name || !scaling) return false;
    return ae_model_rope_scaling_parse(name, strlen(name), scaling);
}

const char *aerie_backend_names(void)
{
    return ae_backend_names();
}

aerie_sampling aerie_sampling_default(void)
{
    return ae_sampling_default();
}

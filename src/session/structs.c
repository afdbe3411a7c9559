/* structs.c - aerie.h: structs that grow: their defaults, and reading and writing them in any version's size. */
#include <string.h>

#include "session/session_int.h"
#include "base/err.h"

#define MAX_SIZE 65536 /* largest size of a struct of any version */

aerie_status ae_struct_take(void *own, size_t own_size, const void *theirs, const char *name, aerie_error *error)
{
    size_t size;
    if (!theirs) return AERIE_OK;
    memcpy(&size, theirs, sizeof size);
    if (size < sizeof size || size > MAX_SIZE)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the size of an %s is %zu, which no version has; %s_init or %s_default "
                       "sets it", name, size, name, name);
    const uint8_t *bytes = theirs;
    for (size_t i = own_size; i < size; i++)
        if (bytes[i])
            return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "an %s of %zu bytes has a field set that this aerie (%s, %zu bytes) "
                           "does "
                           "not know; a newer one is needed", name, size, aerie_version(), own_size);
    memcpy(own, theirs, size < own_size ? size : own_size);
    memcpy(own, &own_size, sizeof own_size);
    return AERIE_OK;
}

aerie_status ae_session_check_fork(const ae_pool *pool, const char *what, aerie_error *error)
{
    if (!ae_pool_is_forked(pool)) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_ARGUMENT, "the %s belongs to the process that called fork(); this child process has none "
                   "of its threads and can only free it: create a new one here", what);
}

void ae_struct_give(void *theirs, size_t size, const void *own, size_t own_size)
{
    memcpy(theirs, own, size < own_size ? size : own_size);
    if (size > own_size) memset((uint8_t *)theirs + own_size, 0, size - own_size);
}

aerie_status ae_struct_check_reserved(const uint64_t *reserved, size_t n, const char *name, aerie_error *error)
{
    for (size_t i = 0; i < n; i++)
        if (reserved[i])
            return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the reserved fields of an %s are not zero: its default was not "
                           "taken, or a newer aerie is needed", name);
    return AERIE_OK;
}

/* Writes defaults to a struct that may have another version's size. */
static void init(void *theirs, size_t size, void *own, size_t own_size)
{
    if (!theirs) return;
    memcpy(own, &size, sizeof size);
    ae_struct_give(theirs, size, own, own_size);
}

#define INIT(name, ...)                                       \
    void aerie_##name##_init(aerie_##name *it, size_t size)   \
    {                                                         \
        aerie_##name own = __VA_ARGS__;                       \
        init(it, size, &own, sizeof own);                     \
    }

INIT(model_params, {0})
INIT(imatrix_params, {0})
INIT(rope, ae_model_rope_default())
INIT(chat, {0})
INIT(schema_params, {0})
INIT(lazy_params, {0})
INIT(drafter_head_params, {0})
INIT(image_limits, {.max_bytes = (size_t)20 << 20, .max_pixels = 50000000, .max_side = 16384, .max_ratio = 200})
INIT(tower_params, {.cache_bytes = (size_t)256 << 20})
INIT(machines, {.limit = 300})
INIT(adapter_params, {0})
INIT(session_params, {.n_seqs = 1, .n_batch = 512, .n_checkpoints = 8, .spec = aerie_spec_default()})
INIT(embedder_params, {.normalize = 2})
INIT(request, {.sampling = aerie_sampling_default()})
INIT(reasoning, {0})
INIT(diffusion, {.n_steps = 128, .algorithm = AERIE_DIFFUSION_CONFIDENCE})

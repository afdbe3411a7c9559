/* library.c - loads CUDA's driver API (cuda_api.h).
 * Each device keeps its own table of functions. The library stays loaded, since drivers do not expect to be unloaded. */
#include "backend/gpu/cuda/cuda_api.h"

#ifdef AE_GPU_CUDA

#include <dlfcn.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"
#define OLDEST_DRIVER 12000

/* Containers and WSL have the driver's library in folders that the loader may not know. */
static const char *const places[] = {LIBRARY, "/usr/local/nvidia/lib64/" LIBRARY, "/usr/lib/wsl/lib/" LIBRARY};

static void *open_library(void)
{
    void *library = NULL;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && !library; i++)
        library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* Fills the table of functions. Returns the name of the first one that the library lacks, or NULL if it has all. */
static const char *find_functions(void *library, ae_cuda_api *api)
{
    void *symbol;
#define FIND(field, name, args)                         \
    symbol = dlsym(library, #name);                     \
    if (!symbol) return #name;                          \
    memcpy(&api->field, &symbol, sizeof api->field);
    AE_CU_FUNCTIONS(FIND)
    AE_CU_LAUNCHES(FIND)
#undef FIND
    return NULL;
}

aerie_status ae_cuda_api_load(ae_cuda_api *api, aerie_error *error)
{
    void *library = open_library();
    if (!library)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                       LIBRARY " is not here: no NVIDIA driver is installed; --device cpu runs on the CPU");
    const char *missing = find_functions(library, api);
    if (missing)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the NVIDIA driver is too old: its " LIBRARY " lacks %s; a driver for "
                       "CUDA %d.%d or newer has it", missing, OLDEST_DRIVER / 1000, OLDEST_DRIVER % 1000 / 10);
    ae_cu_result result = api->driver_version(&api->version);
    if (result != AE_CU_OK) return ae_cuda_fail(api, result, "cuDriverGetVersion", error);
    if (api->version < OLDEST_DRIVER)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the NVIDIA driver is too old: it is for CUDA %d.%d, and %d.%d or newer "
                       "is needed", api->version / 1000, api->version % 1000 / 10, OLDEST_DRIVER / 1000,
                       OLDEST_DRIVER % 1000 / 10);
    result = api->init(0);
    if (result == AE_CU_OK || result == AE_CU_NO_DEVICE) return AERIE_OK;
    ae_cuda_fail(api, result, "cuInit", error);
    if (error) error->status = AERIE_ERROR_UNSUPPORTED;
    return AERIE_ERROR_UNSUPPORTED;
}

aerie_status ae_cuda_fail(const ae_cuda_api *api, ae_cu_result result, const char *call, aerie_error *error)
{
    const char *text = NULL, *name = NULL;
    if (api->error_string(result, &text) != AE_CU_OK || !text) text = "an error that the driver cannot explain";
    if (api->error_name(result, &name) != AE_CU_OK || !name) name = "no name";
    return ae_fail(error, result == AE_CU_OUT_OF_MEMORY ? AERIE_ERROR_MEMORY : AERIE_ERROR_INTERNAL, "%s: %s (%s, %u)", call,
                   text, name, result);
}

#endif

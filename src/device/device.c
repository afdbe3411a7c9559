/* device.c - the table of backends. See device.h. */
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/os.h"

typedef aerie_status open_fn(ae_backend **out, const char *cpu_level, aerie_error *error);

static const struct {
    const char *name;
    open_fn *open;
} backends[] = {
    {"cpu", ae_cpu_open},
    {"cpu-strict", ae_cpu_open_strict},
};

#ifdef AE_GPU_CUDA
#define NAME_CUDA ", cuda"
#ifdef AE_GPU_CUDA_ARCHS
#define CUDA_ARCHS " (" AE_GPU_CUDA_ARCHS ")"
#else
#define CUDA_ARCHS ""
#endif
#else
#define NAME_CUDA ""
#define CUDA_ARCHS ""
#endif
#ifdef AE_GPU_VULKAN
#define NAME_VULKAN ", vulkan"
#else
#define NAME_VULKAN ""
#endif
#ifdef AE_GPU_EMU
#define NAME_EMU ", emu"
#else
#define NAME_EMU ""
#endif

const char *ae_backend_names(void)
{
    return "cpu, cpu-strict" NAME_CUDA NAME_VULKAN NAME_EMU;
}

const char *ae_device_drivers(void)
{
    static const char names[] = NAME_CUDA CUDA_ARCHS NAME_VULKAN NAME_EMU;
    return sizeof names > 2 ? &names[2 * (sizeof names > 2)] : "none";
}

/* Returns whether `name` is a driver's name, alone or followed by a device number. */
static bool is_of_driver(const char *name, const char *driver, uint32_t *i)
{
    const size_t n = strlen(driver);
    if (strncmp(name, driver, n)) return false;
    const char *digits = name + n;
    const size_t n_digits = strspn(digits, "0123456789");
    *i = (uint32_t)strtoul(digits, NULL, 10);
    return n_digits <= 3 && !digits[n_digits];
}

/* ---- GPUs ------------------------------------------------------------------------------------------------- */

#if defined AE_GPU_CUDA || defined AE_GPU_VULKAN || defined AE_GPU_EMU
#include "backend/gpu/gpu.h"

static const ae_gpu_driver *const drivers[] = {
#ifdef AE_GPU_CUDA
    &ae_gpu_driver_cuda,
#endif
#ifdef AE_GPU_VULKAN
    &ae_gpu_driver_vulkan,
#endif
#ifdef AE_GPU_EMU
    &ae_gpu_driver_emu,
#endif
};
#define N_DRIVERS (sizeof drivers / sizeof drivers[0])

/* Finds the driver for this name, and the device's number; NULL if there is none. */
static const ae_gpu_driver *find_driver(const char *name, uint32_t *i_device)
{
    for (size_t i = 0; i < N_DRIVERS; i++)
        if (is_of_driver(name, drivers[i]->name, i_device)) return drivers[i];
    return NULL;
}

/* Checks that the driver has device i, called `name`. */
static aerie_status check_gpu(const ae_gpu_driver *driver, uint32_t i, const char *name, aerie_error *error)
{
    uint32_t n = 0;
    AE_TRY(driver->count(&n, error));
    if (i < n) return AERIE_OK;
    if (!n) return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "there is no %s device on this machine; --device cpu runs on the "
                           "CPU", driver->name);
    if (n == 1)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "there is no device %s: this machine has one, %s", name, driver->name);
    return ae_fail(error, AERIE_ERROR_ARGUMENT, "there is no device %s: this machine has %s0 to %s%u", name, driver->name,
                   driver->name, n - 1);
}

/* Returns whether the name belongs to a driver. If so, *status is the result of opening the device, or, if out is NULL, of
 * checking it. */
static bool open_by_driver(const char *name, ae_backend **out, aerie_status *status, aerie_error *error)
{
    uint32_t i;
    const ae_gpu_driver *driver = find_driver(name, &i);
    if (!driver) return false;
    *status = check_gpu(driver, i, name, error);
    if (*status == AERIE_OK && out) *status = ae_gpu_open(driver, i, name, out, error);
    return true;
}

static void describe_gpu(const ae_gpu_driver *driver, uint32_t i, bool alone, ae_device_info *info)
{
    aerie_error error = {0};
    ae_backend *backend;
    if (alone) snprintf(info->name, sizeof info->name, "%s", driver->name);
    else snprintf(info->name, sizeof info->name, "%s%u", driver->name, i % 1000);
    info->usable = ae_gpu_open(driver, i, info->name, &backend, &error) == AERIE_OK;
    if (!info->usable) {
        snprintf(info->text, sizeof info->text, "%s", error.text);
        return;
    }
    snprintf(info->text, sizeof info->text, "%s", ae_gpu(backend)->facts.name);
    backend->ops->memory_info(backend, &info->n_free, &info->n_total);
    ae_backend_close(backend);
}

static uint32_t describe_driver(const ae_gpu_driver *driver, ae_device_info *out, uint32_t n_most)
{
    aerie_error error = {0};
    uint32_t n = 0;
    if (!n_most) return 0;
    const aerie_status status = driver->count(&n, &error);
    if (status != AERIE_OK || !n) {
        out[0] = (ae_device_info){.usable = false};
        snprintf(out[0].name, sizeof out[0].name, "%s", driver->name);
        snprintf(out[0].text, sizeof out[0].text, "%s", status == AERIE_OK ? "no device" : error.text);
        return 1;
    }
    if (n > n_most) n = n_most;
    for (uint32_t i = 0; i < n; i++) {
        out[i] = (ae_device_info){.usable = false};
        describe_gpu(driver, i, n == 1, &out[i]);
    }
    return n;
}

static uint32_t describe_gpus(ae_device_info *out, uint32_t n_most)
{
    uint32_t n = 0;
    for (size_t i = 0; i < N_DRIVERS; i++) n += describe_driver(drivers[i], out + n, n_most - n);
    return n;
}

#else

static bool open_by_driver(const char *name, ae_backend **out, aerie_status *status, aerie_error *error)
{
    (void)name, (void)out, (void)status, (void)error;
    return false;
}

static uint32_t describe_gpus(ae_device_info *out, uint32_t n_most)
{
    (void)out, (void)n_most;
    return 0;
}
#endif

/* ---- All of them ------------------------------------------------------------------------------------------ */

/* Opens a device, or only checks its name if out is NULL. said: the name comes from the environment variable. */
static aerie_status open_by_name(const char *name, bool said, const char *cpu_level, ae_backend **out, aerie_error *error)
{
    aerie_status status = AERIE_OK;
    uint32_t i_device;
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++)
        if (!strcmp(backends[i].name, name)) return out ? backends[i].open(out, cpu_level, error) : AERIE_OK;
    if (open_by_driver(name, out, &status, error)) return status;
    if (is_of_driver(name, "cuda", &i_device))
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "this build cannot use NVIDIA's GPUs by CUDA: it was made without "
                       "CUDA's compiler; there are %s", ae_backend_names());
    if (is_of_driver(name, "vulkan", &i_device))
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "this build does not support Vulkan: it was built without "
                       "glslangValidator or Vulkan's headers (Debian's packages glslang-tools and libvulkan-dev); available "
                       "devices: %s",
                       ae_backend_names());
    return ae_fail(error, AERIE_ERROR_ARGUMENT, "backend \"%s\"%s is unknown; there are %s", name,
                   said ? ", named by AERIE_BACKEND," : "", ae_backend_names());
}

aerie_status ae_backend_open(ae_backend **out, const char *name, const char *cpu_level, aerie_error *error)
{
    *out = NULL;
    const char *said = name && *name ? NULL : getenv("AERIE_BACKEND");
    if (!name || !*name) name = said && *said ? said : backends[0].name;
    return open_by_name(name, said != NULL, cpu_level, out, error);
}

aerie_status ae_device_check(const char *name, aerie_error *error)
{
    return open_by_name(name, false, NULL, NULL, error);
}

uint32_t ae_device_list(ae_device_info *out, uint32_t n_most)
{
    ae_kernels kernels;
    bool supported;
    uint32_t n = 0;
    if (!n_most) return 0;
    out[n] = (ae_device_info){.name = "cpu", .usable = true, .n_free = ae_os_memory_available(),
                              .n_total = ae_os_memory_total()};
    ae_kernels_select(&kernels, NULL, &supported);
    snprintf(out[n].text, sizeof out[n].text, "%zu cores, kernels %s", (size_t)ae_os_n_cores(), kernels.level);
    n++;
    return n + describe_gpus(out + n, n_most - n);
}

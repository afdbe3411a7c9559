/* device.h - the devices that a model can run on, by name.
 *
 * Owns the list: a backend is entered in device.c and nowhere else. What a backend offers is in backend/backend.h.
 */
#ifndef AE_DEVICE_DEVICE_H
#define AE_DEVICE_DEVICE_H

#include "backend/backend.h"

/* A backend by name:
 *   cpu         this machine's CPU
 *   cpu-strict  the same, but only operations can touch device memory: anything else that does is stopped by a signal.
 *               For tests. Weights that are used where they are in the file are not covered.
 *   cuda        the first NVIDIA GPU; cuda0, cuda1, ...: one of several. In builds with a CUDA compiler
 *   vulkan      the first device with Vulkan 1.3, real GPUs before CPUs; vulkan0, vulkan1, ...: one of several. In builds
 *               with glslangValidator
 *   emu         the GPU's kernels, run by the CPU one thread after another. For tests; in builds for tests
 * NULL or "": the environment variable AERIE_BACKEND, or cpu. cpu_level names the highest kernel level of
 * the CPU to use ("ref", "avx2", "avx512", ...); NULL or "" = the best it has. ARGUMENT for an unknown name or level (the
 * known ones are listed), for a level that this machine lacks, and for a number that no device has; UNSUPPORTED for a kind of
 * device that this machine or this build lacks. */
aerie_status ae_backend_open(ae_backend **out, const char *name, const char *cpu_level, aerie_error *error);
/* Checks the name with the same errors, without opening the device. */
aerie_status ae_device_check(const char *name, aerie_error *error);
/* Returns a list such as "cpu, cpu-strict". Static storage. */
const char *ae_backend_names(void);

typedef struct ae_device_info {
    char name[16];  /* for ae_backend_open */
    char text[512]; /* describes the device to people, or says why there is none of this kind */
    bool usable;
    uint64_t n_free, n_total; /* bytes of memory; 0: unknown */
} ae_device_info;

#define AE_DEVICES_MAX 32

/* Describes the CPU and the GPUs in out [n_most]; for a kind of GPU without a device, it says why. Returns the number of
 * entries. Opens each GPU for a moment. */
uint32_t ae_device_list(ae_device_info *out, uint32_t n_most);
/* Returns the kinds of GPU that this build can use, as in "cuda (sm_90), vulkan, emu" or "none". Static storage. */
const char *ae_device_drivers(void);

#endif

/* driver.h - what the GPU backends need of an API: memory, copies, launches, recordings. One table for each API.
 *
 * Owns nothing. A driver knows neither tensors nor operations. A device has one queue: copies, launches and recordings run in
 * the order in which they were given, whichever thread gave them. Calls for one device come one at a time (gpu.c holds its
 * lock), except alloc, free and fill, which any thread may call at any time.
 * Errors: functions that can fail return a status and a sentence that names the device and the call that failed. A device that
 * is lost fails every later call.
 */
#ifndef AE_BACKEND_GPU_DRIVER_H
#define AE_BACKEND_GPU_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct ae_gpu_device ae_gpu_device;       /* defined by each driver */
typedef struct ae_gpu_recording ae_gpu_recording; /* likewise */

#define AE_GPU_MARKS 4096 /* timestamps that a device holds: the marks of 64 streams */

typedef struct ae_gpu_facts {
    char name[128];            /* for messages: "NVIDIA H100 80GB HBM3, compute capability 9.0, driver 580.159" */
    uint32_t n_multiprocessors;
    uint32_t max_shared_bytes; /* of a block */
    bool int8_mma;             /* the device has the matrix instructions that kernels/kernel.h declares */
    size_t max_block;          /* most bytes of one allocation; 0: no limit but the memory */
    bool single_queries;       /* the device's attention kernels take one query at a time */
    bool narrow_codes;         /* the device's products and lookups read 4-bit codes (kernels/args_product.h) */
    bool early;                /* a kernel may begin before the previous one has ended, and then waits for it (kernel.h) */
} ae_gpu_facts;

typedef struct ae_gpu_driver {
    const char *name; /* of the backend: "cuda" */
    /* Returns the number of devices. UNSUPPORTED, with a message, if the API or its library is missing. */
    aerie_status (*count)(uint32_t *n, aerie_error *error);
    aerie_status (*open)(uint32_t i, ae_gpu_device **out, ae_gpu_facts *facts, aerie_error *error);
    void (*close)(ae_gpu_device *device);
    void (*memory_info)(ae_gpu_device *device, uint64_t *n_free, uint64_t *n_total);

    /* Allocates device memory, zeroed, 256-byte aligned. Returns NULL if there is none left. */
    void *(*alloc)(ae_gpu_device *device, size_t bytes);
    void (*free)(ae_gpu_device *device, void *memory);
    /* Allocates (host) memory that the device can copy from and to while the host continues. Returns NULL if there is none
     * left. */
    void *(*alloc_pinned)(ae_gpu_device *device, size_t bytes);
    void (*free_pinned)(ae_gpu_device *device, void *memory);
    /* Copies n bytes from any (host) memory to the device, outside the queue; done when it returns. */
    aerie_status (*fill)(ae_gpu_device *device, void *to, const void *host, size_t n, aerie_error *error);

    /* In the queue: */
    aerie_status (*copy_in)(ae_gpu_device *device, void *to, const void *pinned, size_t n, aerie_error *error);
    aerie_status (*copy_out)(ae_gpu_device *device, void *pinned, const void *from, size_t n, aerie_error *error);
    aerie_status (*zero)(ae_gpu_device *device, void *to, size_t n, aerie_error *error);
    /* Launches kernel i of AE_GPU_KERNELS over a grid of blocks, with n_shared bytes of shared memory per block; args is
     * copied. */
    aerie_status (*launch)(ae_gpu_device *device, uint32_t i, const uint32_t grid[3], uint32_t n_shared, const void *args,
                           aerie_error *error);
    /* Records a timestamp in the queue, in slot i of AE_GPU_MARKS. The second function returns the seconds between two of them,
     * after sync. */
    aerie_status (*mark)(ae_gpu_device *device, uint32_t i, aerie_error *error);
    double (*elapsed)(ae_gpu_device *device, uint32_t from, uint32_t to);
    /* Waits until the queue is empty. Returns the first failure since the last sync, that of a launch included. */
    aerie_status (*sync)(ae_gpu_device *device, aerie_error *error);

    /* Keeps launches, copies between device addresses and zeroing, from begin to end, instead of running them. NULL: the driver
     * cannot record. A recording may be replayed any number of times. */
    aerie_status (*record_begin)(ae_gpu_device *device, aerie_error *error);
    aerie_status (*record_end)(ae_gpu_device *device, ae_gpu_recording **out, aerie_error *error);
    aerie_status (*replay)(ae_gpu_device *device, ae_gpu_recording *recording, aerie_error *error);
    void (*recording_free)(ae_gpu_device *device, ae_gpu_recording *recording);
} ae_gpu_driver;

extern const ae_gpu_driver ae_gpu_driver_cuda; /* cuda/: libcuda.so.1, loaded when it is asked for */
extern const ae_gpu_driver ae_gpu_driver_vulkan; /* vulkan/: libvulkan.so.1, likewise; shaders of its own for most kernels */
#ifdef AE_GPU_EMU
extern const ae_gpu_driver ae_gpu_driver_emu;  /* emu/: the same kernels on the host, for tests */
#endif

#endif

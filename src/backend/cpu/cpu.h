/* cpu.h - internals of the CPU backend: the device and its weights (weight.c). */
#ifndef AE_BACKEND_CPU_CPU_H
#define AE_BACKEND_CPU_CPU_H

#include <pthread.h>

#include "backend/cpu/ref/kernels.h"

/* The number of rows from which products use tiles, for one packed form. */
typedef struct ae_cpu_choice {
    uint32_t type; /* the first type that was measured with this form */
    ae_dot dot;
    ae_packed form;
    uint32_t tiles_from;
} ae_cpu_choice;

typedef struct ae_cpu_guard ae_cpu_guard; /* strict.c */

/* Round trips of a stream between host and device, counted by "cpu-strict". */
typedef struct ae_cpu_trips {
    uint32_t n_waits, n_downloads;
} ae_cpu_trips;

typedef struct ae_cpu_backend {
    ae_backend base;
    ae_kernels kernels;
    ae_cpu_guard *guard;   /* set for "cpu-strict", whose device memory it guards; else NULL */
    uint32_t tiles_from;   /* for tests: this number is used instead of measuring; 0: measure */
    pthread_mutex_t mutex; /* protects the fields below */
    bool order_known, in_order; /* the measured order of blocks of codes, see ae_packed */
    ae_cpu_choice choices[AE_TYPE_COUNT];
    uint32_t n_choices;
    char said[512]; /* the choices as text, for messages */
} ae_cpu_backend;

static inline bool ae_kernels_tile(const ae_kernels *kernels)
{
    return kernels->mm_tiles_32 || kernels->mm_tiles_256;
}

static inline const ae_cpu_backend *ae_cpu(const ae_backend *backend)
{
    return (const ae_cpu_backend *)backend;
}

static inline uint32_t ae_weight_n_panels(uint32_t n_out)
{
    return (n_out + AE_PANEL - 1) / AE_PANEL;
}

/* Opens the backend for the list of backends (device.c). */
aerie_status ae_cpu_open(ae_backend **out, const char *level, aerie_error *error);
aerie_status ae_cpu_open_strict(ae_backend **out, const char *level, aerie_error *error);

/* Allocates device memory, zeroed, and guarded if the backend has a guard. Returns NULL if there is none left. */
void *ae_cpu_alloc(ae_backend *backend, size_t bytes);
void ae_cpu_free(ae_backend *backend, void *memory, size_t bytes);
void *ae_cpu_guard_alloc(ae_cpu_guard *guard, size_t bytes);
void ae_cpu_guard_free(ae_cpu_guard *guard, void *memory);
void ae_cpu_guard_destroy(ae_cpu_guard *guard);

/* Returns the seam's operations. */
size_t ae_cpu_weight_bytes(const ae_backend *backend, const ae_weight_source *source);
aerie_status ae_cpu_weight_create(ae_backend *backend, const ae_weight_source *source, void *memory, ae_weight **out,
                                  aerie_error *error);
aerie_status ae_cpu_weight_fill(ae_backend *backend, ae_weight *weight, const void *rows, uint32_t first, uint32_t n,
                                aerie_error *error);
void ae_cpu_weight_free(ae_backend *backend, ae_weight *weight);

/* Sets w->tiles_from, which is measured for the first weight of a form. Sets w->packed.in_order, which is measured once, if the
 * weight is packed in memory and larger than a cache (choose.c). Errors: MEMORY. */
aerie_status ae_cpu_choose(ae_cpu_backend *backend, ae_weight *w, aerie_error *error);

/* Returns the bytes of one packed panel of the largest type, with up to n_in columns. */
size_t ae_weight_panel_bytes(uint32_t n_in);
/* Computes outputs [begin, end) (ae_mm_fn) of a weight in any form. panel: [ae_weight_panel_bytes] scratch, 64-byte
 * aligned, of the calling thread. */
void ae_weight_multiply(const ae_weight *weight, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end,
                        uint8_t *panel);

#endif

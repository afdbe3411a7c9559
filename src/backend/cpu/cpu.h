/* cpu.h - inside the CPU backend: the device itself, and its weights (weight.c). */
#ifndef AE_BACKEND_CPU_CPU_H
#define AE_BACKEND_CPU_CPU_H

#include <pthread.h>

#include "backend/cpu/ref/kernels.h"

/* From how many rows on a packed form's products go by tiles. */
typedef struct ae_cpu_choice {
    uint32_t type; /* the first of the form */
    ae_dot dot;
    ae_packed form;
    uint32_t tiles_from;
} ae_cpu_choice;

typedef struct ae_cpu_guard ae_cpu_guard; /* strict.c */

typedef struct ae_cpu_backend {
    ae_backend base;
    ae_kernels kernels;
    ae_cpu_guard *guard;   /* of "cpu-strict", over all device memory; else NULL */
    uint32_t tiles_from;   /* for tests: instead of measuring; 0: measure */
    pthread_mutex_t mutex; /* of what follows */
    bool order_known, in_order; /* where blocks of codes stand, see ae_packed */
    ae_cpu_choice choices[AE_TYPE_COUNT];
    uint32_t n_choices;
    char said[512]; /* the choices, for people */
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

/* For the list of backends (device.c). */
aerie_status ae_cpu_open(ae_backend **out, const char *level, aerie_error *error);
aerie_status ae_cpu_open_strict(ae_backend **out, const char *level, aerie_error *error);

/* Device memory, zeroed: guarded where there is a guard. NULL when there is none left. */
void *ae_cpu_alloc(ae_backend *backend, size_t bytes);
void ae_cpu_free(ae_backend *backend, void *memory, size_t bytes);
void *ae_cpu_guard_alloc(ae_cpu_guard *guard, size_t bytes);
void ae_cpu_guard_free(ae_cpu_guard *guard, void *memory);
void ae_cpu_guard_destroy(ae_cpu_guard *guard);

/* The seam's operations. */
size_t ae_cpu_weight_bytes(const ae_backend *backend, const ae_weight_source *source);
aerie_status ae_cpu_weight_create(ae_backend *backend, const ae_weight_source *source, void *memory, ae_weight **out,
                                  aerie_error *error);
void ae_cpu_weight_fill(ae_backend *backend, ae_weight *weight, const void *rows, uint32_t first, uint32_t n);
void ae_cpu_weight_free(ae_backend *backend, ae_weight *weight);

/* w->tiles_from, measured when the first weight of a form comes, and, if a weight that is packed in memory is larger than a
 * cache, w->packed.in_order, measured once (choose.c). Errors: MEMORY. */
aerie_status ae_cpu_choose(ae_cpu_backend *backend, ae_weight *w, aerie_error *error);

/* Room for one packed panel of any type with up to n_in columns. */
size_t ae_weight_panel_bytes(uint32_t n_in);
/* Outputs [begin, end) (ae_mm_fn), of a weight in whatever form. panel: [ae_weight_panel_bytes] scratch, 64-byte
 * aligned, of the calling thread. */
void ae_weight_multiply(const ae_weight *weight, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end,
                        uint8_t *panel);

#endif

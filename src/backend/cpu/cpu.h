/* cpu.h - inside the CPU backend: the device itself, and its weights (cpu_weight.c). */
#ifndef AE_BACKEND_CPU_CPU_H
#define AE_BACKEND_CPU_CPU_H

#include "backend/cpu/kernels.h"

typedef struct ae_cpu_backend {
    ae_backend base;
    ae_kernels kernels;
} ae_cpu_backend;

static inline const ae_cpu_backend *ae_cpu(const ae_backend *backend)
{
    return (const ae_cpu_backend *)backend;
}

static inline uint32_t ae_weight_n_panels(uint32_t n_out)
{
    return (n_out + AE_PANEL - 1) / AE_PANEL;
}

/* The seam's operations. */
size_t ae_cpu_weight_bytes(const ae_backend *backend, const ae_weight_source *source);
aerie_status ae_cpu_weight_create(ae_backend *backend, const ae_weight_source *source, void *memory, ae_weight **out,
                                  aerie_error *error);
void ae_cpu_weight_fill(ae_backend *backend, ae_weight *weight, const void *rows, uint32_t first, uint32_t n);
void ae_cpu_weight_free(ae_backend *backend, ae_weight *weight);

/* Room for one packed panel of any type with up to n_in columns. */
size_t ae_weight_panel_bytes(uint32_t n_in);
/* Outputs [begin, end) (ae_mm_fn), of a weight in whatever form. panel: [ae_weight_panel_bytes] scratch, 64-byte
 * aligned, of the calling thread. */
void ae_weight_multiply(const ae_weight *weight, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end,
                        uint8_t *panel);

#endif

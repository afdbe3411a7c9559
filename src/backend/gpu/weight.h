/* weight.h - a weight on the device, with one form for products and one for lookups. */
#ifndef AE_BACKEND_GPU_WEIGHT_H
#define AE_BACKEND_GPU_WEIGHT_H

#include "backend/gpu/gpu.h"

struct ae_weight {
    uint32_t type, n_out, n_in;
    ae_gpu_form form;        /* for products; AE_GPU_FORM_NONE: it is only looked up */
    ae_gpu_form table_form;  /* for lookups, a generic one or AE_GPU_FORM_FILE; AE_GPU_FORM_NONE: it is not looked up */
    uint8_t *product;        /* device memory, borrowed, 64-byte aligned */
    uint8_t *table;          /* likewise; `product` if the forms are equal */
    bool has_scale, has_row_scale; /* false: the factor is 1, and no kernel multiplies by it */
    float scale, row_scale;
};

/* Returns the forms in which products by such a weight need the rows: AE_GPU_WANT_..., or-ed. */
uint32_t ae_gpu_weight_wants(const ae_weight *weight);

/* Returns the generic form of a type (weight_generic.c); AE_GPU_FORM_NONE: it has none. F64, Q8_1 and Q8_K are kept as f32. */
ae_gpu_form ae_gpu_generic_form(uint32_t type);
/* Returns whether lookups can read rows of this type in the file's layout (lookup.cu). */
bool ae_gpu_file_form(uint32_t type);
/* Returns the size on the device in bytes, a multiple of 64. */
size_t ae_gpu_generic_bytes(const ae_gpu_backend *backend, uint32_t type, uint32_t n_out, uint32_t n_in);
/* Packs rows [first, first + n), which `rows` (host) has in the file's layout, and writes them into the form at `device`. */
aerie_status ae_gpu_generic_fill(ae_gpu_backend *backend, uint32_t type, uint32_t n_out, uint32_t n_in, uint8_t *device,
                                 const void *rows, uint32_t first, uint32_t n, aerie_error *error);

#endif

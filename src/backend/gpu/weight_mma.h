/* weight_mma.h - weights in the layout of the matrix instructions (kernels/args_mma.h), and products with them. */
#ifndef AE_BACKEND_GPU_WEIGHT_MMA_H
#define AE_BACKEND_GPU_WEIGHT_MMA_H

#include "backend/gpu/gpu.h"

/* Returns whether a weight can have this form on this device. */
bool ae_gpu_mma_takes(const ae_weight_source *source, const ae_gpu_facts *facts);
/* Returns the bytes of a weight, a multiple of 256; 0 for a type that has no such form. */
size_t ae_gpu_mma_bytes(uint32_t type, uint32_t n_out, uint32_t n_in);
/* Packs rows [first, first + n) of a weight, given in the file's layout. first is a multiple of 16, and so is n unless these
 * are the last rows. `to` has room for ae_gpu_mma_bytes of n rows. Returns the offset in the weight's memory for the result. */
size_t ae_gpu_mma_pack(uint32_t type, uint32_t n_in, const void *rows, uint32_t first, uint32_t n, uint8_t *to);
/* Packs rows and copies them to the weight's memory on the device. */
aerie_status ae_gpu_mma_fill(ae_gpu_backend *backend, uint32_t type, uint32_t n_out, uint32_t n_in, uint8_t *device,
                             const void *rows, uint32_t first, uint32_t n, aerie_error *error);
/* Launches the products of jobs, all with n_in columns and weights of this form. */
void ae_gpu_mma_run(ae_stream *stream, const ae_gpu_rows *rows, const ae_gpu_job *jobs, uint32_t n_jobs);

/* How products of experts with such weights are launched: n_in columns, and n_rows rows for each expert on average. */
typedef struct ae_gpu_mma_experts {
    ae_gpu_kernel kernel;
    uint32_t n_rows;  /* of a block */
    uint32_t teams;   /* granules of a block; each job has a whole number of blocks */
    uint32_t n_shared, n_records, group_bytes;
} ae_gpu_mma_experts;

ae_gpu_mma_experts ae_gpu_mma_experts_of(const ae_gpu_facts *facts, uint32_t type, uint32_t n_in, uint32_t n_rows);

#endif

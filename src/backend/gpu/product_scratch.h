/* product_scratch.h - what a stream keeps on the device for products (product.c). */
#ifndef AE_BACKEND_GPU_PRODUCT_SCRATCH_H
#define AE_BACKEND_GPU_PRODUCT_SCRATCH_H

#include "backend/gpu/kernels/args_product.h"

typedef struct ae_gpu_product_scratch {
    ae_gpu_rows rows;    /* the arrays; the sizes are those of the product at hand */
    uint32_t tiles;      /* room: tiles of 8 rows of max_in columns */
    uint32_t max_in;     /* a multiple of 256 */
} ae_gpu_product_scratch;

#endif

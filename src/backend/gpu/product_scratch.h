/* product_scratch.h - what a stream keeps on the device for products (product.c). */
#ifndef AE_BACKEND_GPU_PRODUCT_SCRATCH_H
#define AE_BACKEND_GPU_PRODUCT_SCRATCH_H

#include "backend/gpu/kernels/args_product.h"

typedef struct ae_gpu_product_scratch {
    ae_gpu_rows rows;    /* the arrays; the sizes are those of the product at hand */
    size_t n_codes;      /* room: codes of q32, q256 that may be used; 64 rows follow */
    uint32_t *fault;     /* [1] what a lookup found wrong; 0: nothing */
} ae_gpu_product_scratch;

#endif

/* product_scratch.h - what a stream keeps on the device for products (product.c). */
#ifndef AE_BACKEND_GPU_PRODUCT_SCRATCH_H
#define AE_BACKEND_GPU_PRODUCT_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

typedef struct ae_gpu_product_scratch {
    uint8_t *room; /* to be replaced */
} ae_gpu_product_scratch;

#endif

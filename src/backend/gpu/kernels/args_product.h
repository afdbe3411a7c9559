/* args_product.h - arguments of the kernels for matrix products, activations and lookups (activation.cu, product*.cu). */
#ifndef AE_BACKEND_GPU_KERNELS_ARGS_PRODUCT_H
#define AE_BACKEND_GPU_KERNELS_ARGS_PRODUCT_H

#include <stdint.h>

#define AE_GPU_KERNELS_PRODUCT(X)

#endif

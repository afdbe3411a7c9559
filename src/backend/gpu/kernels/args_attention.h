/* args_attention.h - arguments of the kernels for attention (attention.cu). */
#ifndef AE_BACKEND_GPU_KERNELS_ARGS_ATTENTION_H
#define AE_BACKEND_GPU_KERNELS_ARGS_ATTENTION_H

#include <stdint.h>

#define AE_GPU_KERNELS_ATTENTION(X)

#endif

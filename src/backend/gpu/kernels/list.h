/* list.h - the list of all kernels with their arguments.
 * Three compilers read this file: the host's C compiler, nvcc, and g++ for the emulation. Arguments are plain structs of device
 * addresses and 32-bit numbers, at most 4,000 bytes. A kernel is listed here and defined in one .cu file of this folder. */
#ifndef AE_BACKEND_GPU_KERNELS_LIST_H
#define AE_BACKEND_GPU_KERNELS_LIST_H

#include "backend/gpu/kernels/args_attention.h"
#include "backend/gpu/kernels/args_draw.h"
#include "backend/gpu/kernels/args_mma.h"
#include "backend/gpu/kernels/args_moe.h"
#include "backend/gpu/kernels/args_product.h"
#include "backend/gpu/kernels/args_rows.h"
#include "backend/gpu/kernels/args_state.h"

/* The kernels as X(name, type of the arguments, threads per block). Each args_*.h lists the kernels that take its structs. */
#define AE_GPU_KERNELS(X) \
    AE_GPU_KERNELS_PRODUCT(X) \
    AE_GPU_KERNELS_MMA(X) \
    AE_GPU_KERNELS_MOE(X) \
    AE_GPU_KERNELS_ROWS(X) \
    AE_GPU_KERNELS_ATTENTION(X) \
    AE_GPU_KERNELS_STATE(X) \
    AE_GPU_KERNELS_DRAW(X)

/* Each kernel waits for the previous launch before it reads what others write (kernel.h), so launches may begin early. */
#define AE_GPU_KERNELS_WAIT 1

typedef enum ae_gpu_kernel {
#define AE_GPU_KERNEL_ID(name, args, threads) AE_GPU_##name,
    AE_GPU_KERNELS(AE_GPU_KERNEL_ID)
#undef AE_GPU_KERNEL_ID
    AE_GPU_N_KERNELS
} ae_gpu_kernel;

#endif

/* args_rows.h - arguments of the kernels for norms, maps, copies, rotation and the KV cache (rows.cu, kv.cu). */
#ifndef AE_BACKEND_GPU_KERNELS_ARGS_ROWS_H
#define AE_BACKEND_GPU_KERNELS_ARGS_ROWS_H

#include <stdint.h>

#define AE_GPU_KERNELS_ROWS(X)

#endif

/* few.cu - attention of few rows over caches of f16 and f32: several blocks have the same tile and divide its chunks. */
#include "backend/gpu/kernels/attention/block.h"

#define KERNEL(name, T, Q) \
    AE_KERNEL(name, ae_gpu_attention_args, ATTN_THREADS(4)) \
    { \
        AE_SHARED(shared); \
        attn_block<T, Q>(a, shared, ae_block_x(), a.n_splits); \
    }

KERNEL(attention_few_f16_4, AE_KV_F16, 4)
KERNEL(attention_few_f16_8, AE_KV_F16, 8)
KERNEL(attention_few_f16_16, AE_KV_F16, 16)
KERNEL(attention_few_f32_8, AE_KV_F32, 8)

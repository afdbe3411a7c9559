/* float.cu - attention of many rows over caches of f16 and f32: a warp walks all chunks of its tile. */
#include "backend/gpu/kernels/attention/warp.h"

#define KERNEL(name, T, Q) \
    AE_KERNEL(name, ae_gpu_attention_args, ATTN_THREADS(3)) \
    { \
        AE_SHARED(shared); \
        attn_warp<T, Q>(a, shared); \
    }

KERNEL(attention_f16_4, AE_KV_F16, 4)
KERNEL(attention_f16_8, AE_KV_F16, 8)
KERNEL(attention_f32_4, AE_KV_F32, 4)
KERNEL(attention_f32_8, AE_KV_F32, 8)

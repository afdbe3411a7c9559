/* attention_float.cu - attention over caches of f16 and f32: of many rows, where warps walk all chunks of their tiles, and of a
 * number of rows for which the context decides.
 */
#include "backend/gpu/kernels/attention_block.h"
#include "backend/gpu/kernels/attention_warp.h"

#define KERNEL(name, T, Q) \
    AE_KERNEL(name, ae_gpu_attention_args, ATTN_THREADS(3)) \
    { \
        AE_SHARED(shared); \
        attn_warp<T, Q>(a, shared, 1); \
    }

KERNEL(attention_f16_4, AE_KV_F16, 4)
KERNEL(attention_f16_8, AE_KV_F16, 8)
KERNEL(attention_f32_4, AE_KV_F32, 4)
KERNEL(attention_f32_8, AE_KV_F32, 8)

/* Behind a short context units are blocks, which take less time for a chunk; behind a long one they are warps. */
AE_KERNEL(attention_either_f16, ae_gpu_attention_args, ATTN_THREADS(3))
{
    AE_SHARED(shared);
    if (attn_by_warps(a)) attn_warp<AE_KV_F16, 8>(a, shared, a.n_warp_splits);
    else attn_block<AE_KV_F16, 8>(a, shared, ae_block_x(), a.n_splits);
}

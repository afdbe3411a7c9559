/* sums.h - the reference's sums over a row by the lanes of a warp (base/math/fmath.h). For kernels only. */
#ifndef AE_BACKEND_GPU_KERNELS_SUMS_H
#define AE_BACKEND_GPU_KERNELS_SUMS_H

#include "backend/gpu/kernels/kernel.h"

/* ae_sum64 of 64 sums over k % 64, of which lane l holds l (low) and l + 32 (high). All lanes get the result: a sum of two does
 * not depend on their order. */
AE_DEV float ae_warp_sum64(float low, float high)
{
    float s = low + high;
    AE_UNROLL
    for (uint32_t m = 16; m; m /= 2) s = s + ae_shfl_xor(s, m);
    return s;
}

/* The largest of the lanes' values; a NaN is never the largest. */
AE_DEV float ae_warp_max(float x)
{
    AE_UNROLL
    for (uint32_t m = 16; m; m /= 2) {
        const float other = ae_shfl_xor(x, m);
        x = other > x ? other : x;
    }
    return x;
}

#endif

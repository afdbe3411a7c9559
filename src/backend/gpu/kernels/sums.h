/* sums.h - sums over a row in the reference's order (base/math/fmath.h), by the lanes of a warp or by a block. For kernels
 * only. */
#ifndef AE_BACKEND_GPU_KERNELS_SUMS_H
#define AE_BACKEND_GPU_KERNELS_SUMS_H

#include "backend/gpu/kernels/kernel.h"

/* Returns ae_sum64 of 64 sums, of which lane l holds number l (low) and number l + 32 (high). All lanes get the result, since
 * the sum of two numbers does not depend on their order. */
AE_DEV float ae_warp_sum64(float low, float high)
{
    return ae_fold<ae_add>(low + high, 16, 1);
}

/* Adds the term of x to a sum: x itself, or the square of its deviation from the mean. With a mean of 0, x - mean is x bit for
 * bit. */
AE_DEV float ae_sum_step(float sum, float x, float mean, bool squares)
{
    const float d = x - mean;
    return squares ? ae_fma(d, d, sum) : sum + d;
}

/* Returns the sum over x [n], computed by a warp. */
AE_DEV float ae_warp_sum(const float *x, uint32_t n, float mean, bool squares, uint32_t lane)
{
    float low = 0, high = 0;
    for (uint32_t k = lane; k < n; k += 64) {
        low = ae_sum_step(low, x[k], mean, squares);
        if (k + 32 < n) high = ae_sum_step(high, x[k + 32], mean, squares);
    }
    return ae_warp_sum64(low, high);
}

#define AE_SUM_THREADS 256u /* threads of a block that sums a row */
#define AE_SUM_CHUNK 4096u  /* floats of a row that shared memory holds at once */
#define AE_SUM_AHEAD 16u    /* loads that a thread has in flight at once */
#define AE_SUM_SHARED ((AE_SUM_CHUNK + 64) * (uint32_t)sizeof(float))

/* Copies a chunk x [n] of a row to shared memory. */
AE_DEV void ae_sum_stage(const float *x, uint32_t n, float *room)
{
    float v[AE_SUM_AHEAD];
    AE_UNROLL
    for (uint32_t i = 0; i < AE_SUM_AHEAD; i++) {
        const uint32_t k = ae_thread() + i * AE_SUM_THREADS;
        v[i] = k < n ? x[k] : 0;
    }
    AE_UNROLL
    for (uint32_t i = 0; i < AE_SUM_AHEAD; i++) {
        const uint32_t k = ae_thread() + i * AE_SUM_THREADS;
        if (k < n) AE_STORE_SHARED(float, room + k, v[i]);
    }
}

/* Continues the partial sum of thread k % 64 over a chunk in shared memory. */
AE_DEV float ae_sum_chunk(float sum, const float *room, uint32_t n, float mean, bool squares)
{
    uint32_t k = ae_thread();
    for (; k + (AE_SUM_AHEAD - 1) * 64 < n; k += AE_SUM_AHEAD * 64) {
        float v[AE_SUM_AHEAD];
        AE_UNROLL
        for (uint32_t i = 0; i < AE_SUM_AHEAD; i++) v[i] = AE_LOAD_SHARED(float, room + k + i * 64);
        AE_UNROLL
        for (uint32_t i = 0; i < AE_SUM_AHEAD; i++) sum = ae_sum_step(sum, v[i], mean, squares);
    }
    for (; k < n; k += 64) sum = ae_sum_step(sum, AE_LOAD_SHARED(float, room + k), mean, squares);
    return sum;
}

/* Returns the sum over x [n], computed by a block of AE_SUM_THREADS. room: AE_SUM_SHARED bytes of shared memory. Only thread
 * k % AE_SUM_THREADS reads x[k]. */
AE_DEV float ae_block_sum(const float *x, uint32_t n, float mean, bool squares, float *room)
{
    const uint32_t t = ae_thread();
    float s = 0;
    for (uint32_t base = 0; base < n; base += AE_SUM_CHUNK) {
        const uint32_t m = ae_min(n - base, AE_SUM_CHUNK);
        ae_sync();
        ae_sum_stage(x + base, m, room);
        ae_sync();
        if (t < 64) s = ae_sum_chunk(s, room, m, mean, squares);
    }
    if (t < 64) AE_STORE_SHARED(float, room + AE_SUM_CHUNK + t, s);
    ae_sync();
    const float *sums = room + AE_SUM_CHUNK + t % 32;
    return ae_warp_sum64(AE_LOAD_SHARED(float, sums), AE_LOAD_SHARED(float, sums + 32));
}

struct ae_other_larger {
    AE_DEV float of(float x, float y) { return y > x ? y : x; }
};

/* Returns the largest of the lanes' values; a NaN is never the largest. */
AE_DEV float ae_warp_max(float x)
{
    return ae_fold<ae_other_larger>(x, 16, 1);
}

#endif

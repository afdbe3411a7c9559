/* kernel.h - the language of the kernels: what a .cu file may use.
 *
 * nvcc: thin names over CUDA and PTX. g++ with AE_GPU_EMU: the emulation of emu/emu.h, where threads are fibers. Both give the
 * bits of the reference: nvcc is called with -fmad=false -ftz=false -prec-div=true -prec-sqrt=true, and +, -, *, /, sqrtf and
 * ae_fma are IEEE operations rounded to nearest in both.
 *
 * Rules for kernels: one dynamic block of shared memory (AE_SHARED); no __shared__ or static variables; no warp operation
 * without all 32 lanes, no ae_sync without all threads of the block (also none that has returned); loads and stores of shared
 * memory that other threads see go through AE_LOAD_SHARED and AE_STORE_SHARED (the emulation checks alignment there); templates
 * over integers and types only; no libm but sqrtf, fabsf; no references or C++ classes in arguments. Where one call does, use
 * one instead of several ae_shfl: the emulation needs a meeting of the warp for each.
 *
 *   AE_KERNEL(name, type, threads) { ... a ... }   a kernel of list.h; its arguments are `a`, a const struct
 * AE_KERNEL_EARLY(name, type, threads) the same, but it may begin before the previous launch has ended: until
 *                                                  ae_depend_wait(), which each thread calls, it reads nothing but weights and
 *                                                  writes nothing. AE_KERNEL calls that before its body.
 *   AE_DEV                                         a function for the device, inlined
 *   AE_SHARED(p)                                   uint8_t *p, the block's shared memory, 16-byte aligned
 *   ae_thread(), ae_block_x(), _y(), _z(), ae_grid_x(), ae_grid_y()
 *   ae_sync()                                      all threads of the block meet; shared memory is seen
 *   ae_sync_warp()                                 the same of a warp
 * ae_bar_wait(id, n), ae_bar_post(id, n) a whole warp comes to barrier id, 1 to 15, of n threads (a multiple of 32): wait
 * returns when n have come, post at once; then the count starts again
 *   ae_shfl(v, lane), ae_shfl_xor(v, mask)         v of another lane; numbers, or structs of up to 16 bytes
 *   ae_shfl_each<n>(x, v, first, step)             x[i] = v of lane first + i step
 *   ae_fold<F>(v, from, to)                        v = F::of(v, v of lane ^ d) for d = from, half (or twice) of it and so on to
 *                                                  `to`; F: ae_add, ae_larger or a struct like them
 *   ae_fma(a, b, c)                                fmaf, and fma of doubles
 *   ae_as_float(bits), ae_as_bits(f)               uint32_t <-> float
 *   ae_half(bits), ae_to_half(f)                   f16 bits (uint16_t) to f32 and back, to nearest even
 *   ae_dp4a(a, b, c)                               c + the dot of four s8 by four s8, int32_t
 *   ae_dp4a_us(a, b, c)                            the same, a unsigned, b signed
 *   ae_perm(x, y, s)                               four bytes, each chosen by 4 bits of s: byte 0 to 3 of x, 4 to 7 of y; 8 and
 *                                                  more: its sign bit eight times
 *   ae_load4, ae_load8, ae_load16(p)               global memory that no thread of this launch writes: uint32_t, uint2, uint4
 *   ae_stream16(p)                                 ae_load16 of weights (no kernel writes them) that are read once: kept out of
 *                                                  the first cache
 *   ae_prefetch(p)                                 the line of global memory at p will be read soon
 *   ae_atomic_add(p, v)                            *p += v of uint32_t in global memory, as one step; what it was
 *   ae_fence()                                     what this thread wrote is seen before what it writes later
 *   AE_LOAD_SHARED(type, p), AE_STORE_SHARED(type, p, v)
 *   ae_mma_s8(c, a, b)                             c += A B: m16n8k32 of s8, fragments as PTX places them
 *   ae_mma_s8_k16(c, a, b)                         m16n8k16 of s8: a[2], b[1]
 *   ae_copy16(shared, global)                      16 bytes, asynchronously: there after ae_copy_wait and ae_sync
 *   ae_copy_commit(), ae_copy_wait<n>()            a group of copies; waits until at most n groups are under way
 *   ae_max(a, b), ae_min(a, b)                     of integers
 *   AE_UNROLL, AE_NO_UNROLL                        before a loop: unroll it wholly, or leave it as it is
 */
#ifndef AE_BACKEND_GPU_KERNELS_KERNEL_H
#define AE_BACKEND_GPU_KERNELS_KERNEL_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef AE_GPU_EMU
#include "backend/gpu/emu/emu.h"
#else

#define AE_DEV static __device__ __forceinline__

/* A launch may begin as soon as all blocks of the previous one run (compute capability 9.0 and later, if the driver asks for
 * it). So each kernel waits for the end of the previous one, which in turn has waited for the one before it. */
#define AE_DEPEND
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
AE_DEV void ae_depend_launch(void) { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
AE_DEV void ae_depend_wait(void) { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
AE_DEV void ae_depend_launch(void) {}
AE_DEV void ae_depend_wait(void) {}
#endif

#define AE_KERNEL_AFTER(name, type, wait, ...) \
    AE_DEV void ae_body_##name(const type &a); \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__) ae_##name(const __grid_constant__ type a) \
    { \
        ae_depend_launch(); \
        wait; \
        ae_body_##name(a); \
    } \
    AE_DEV void ae_body_##name(const type &a)
#define AE_KERNEL(name, type, ...) AE_KERNEL_AFTER(name, type, ae_depend_wait(), __VA_ARGS__)
#define AE_KERNEL_EARLY(name, type, ...) AE_KERNEL_AFTER(name, type, (void)0, __VA_ARGS__)
#define AE_SHARED(p) \
    extern __shared__ uint4 ae_shared_memory[]; \
    uint8_t *p = reinterpret_cast<uint8_t *>(ae_shared_memory)
#define AE_UNROLL _Pragma("unroll")
#define AE_NO_UNROLL _Pragma("unroll 1")

AE_DEV uint32_t ae_thread(void) { return threadIdx.x; }
AE_DEV uint32_t ae_block_x(void) { return blockIdx.x; }
AE_DEV uint32_t ae_block_y(void) { return blockIdx.y; }
AE_DEV uint32_t ae_block_z(void) { return blockIdx.z; }
AE_DEV uint32_t ae_grid_x(void) { return gridDim.x; }
AE_DEV uint32_t ae_grid_y(void) { return gridDim.y; }

AE_DEV void ae_sync(void) { __syncthreads(); }
AE_DEV void ae_sync_warp(void) { __syncwarp(); }
AE_DEV void ae_bar_wait(uint32_t id, uint32_t n) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(n) : "memory"); }
AE_DEV void ae_bar_post(uint32_t id, uint32_t n) { asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(n) : "memory"); }

template <bool by_xor, class T> AE_DEV T ae_shfl_words(T v, uint32_t lane)
{
    static_assert(sizeof(T) % 4 == 0 && sizeof(T) <= 16, "a shuffle moves 4 to 16 bytes");
    uint32_t w[sizeof(T) / 4];
    memcpy(w, &v, sizeof v);
    AE_UNROLL
    for (uint32_t i = 0; i < sizeof(T) / 4; i++)
        w[i] = by_xor ? __shfl_xor_sync(0xffffffffu, w[i], static_cast<int>(lane))
                      : __shfl_sync(0xffffffffu, w[i], static_cast<int>(lane));
    memcpy(&v, w, sizeof v);
    return v;
}

template <class T> AE_DEV T ae_shfl(T v, uint32_t lane) { return ae_shfl_words<false>(v, lane); }
template <class T> AE_DEV T ae_shfl_xor(T v, uint32_t mask) { return ae_shfl_words<true>(v, mask); }

template <int n, class T> AE_DEV void ae_shfl_each(T *x, T v, uint32_t first, uint32_t step)
{
    AE_UNROLL
    for (uint32_t i = 0; i < n; i++) x[i] = ae_shfl(v, first + i * step);
}

template <class F, class T> AE_DEV T ae_fold(T v, uint32_t from, uint32_t to)
{
    if (from > to) {
        AE_UNROLL
        for (uint32_t d = from; d >= to; d /= 2) v = F::of(v, ae_shfl_xor(v, d));
    } else {
        AE_UNROLL
        for (uint32_t d = from; d <= to; d *= 2) v = F::of(v, ae_shfl_xor(v, d));
    }
    return v;
}

AE_DEV float ae_fma(float x, float y, float z) { return __fmaf_rn(x, y, z); }
AE_DEV double ae_fma(double x, double y, double z) { return __fma_rn(x, y, z); }
AE_DEV float ae_as_float(uint32_t bits) { return __uint_as_float(bits); }
AE_DEV uint32_t ae_as_bits(float f) { return __float_as_uint(f); }

AE_DEV float ae_half(uint16_t bits)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
    return f;
}

AE_DEV uint16_t ae_to_half(float f)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f));
    return bits;
}

AE_DEV int32_t ae_dp4a(uint32_t x, uint32_t y, int32_t z)
{
    int32_t sum;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(x), "r"(y), "r"(z));
    return sum;
}

AE_DEV int32_t ae_dp4a_us(uint32_t x, uint32_t y, int32_t z)
{
    int32_t sum;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(x), "r"(y), "r"(z));
    return sum;
}

AE_DEV uint32_t ae_perm(uint32_t x, uint32_t y, uint32_t s)
{
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(x), "r"(y), "r"(s));
    return bytes;
}

AE_DEV void ae_prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); }
AE_DEV uint32_t ae_atomic_add(uint32_t *p, uint32_t v) { return atomicAdd(p, v); }
AE_DEV void ae_fence(void) { __threadfence(); }

/* Plain loads: what the previous launch wrote must not be read through the read-only cache, which the wait does not order. */
AE_DEV uint32_t ae_load4(const void *p) { return *static_cast<const uint32_t *>(p); }
AE_DEV uint2 ae_load8(const void *p) { return *static_cast<const uint2 *>(p); }
AE_DEV uint4 ae_load16(const void *p) { return *static_cast<const uint4 *>(p); }

AE_DEV uint4 ae_stream16(const void *p)
{
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

#define AE_LOAD_SHARED(type, p) (*reinterpret_cast<const type *>(p))
#define AE_STORE_SHARED(type, p, v) (*reinterpret_cast<type *>(p) = (v))

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
/* c[0], c[1] += A B as m8n8k16, the shape that compute capability 7.5 has. */
AE_DEV void ae_mma_8(int32_t *c, uint32_t a, uint32_t b)
{
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+r"(c[0]), "+r"(c[1]) : "r"(a), "r"(b));
}

AE_DEV void ae_mma_s8(int32_t c[4], const uint32_t a[4], const uint32_t b[2])
{
    ae_mma_8(c, a[0], b[0]);
    ae_mma_8(c + 2, a[1], b[0]);
    ae_mma_8(c, a[2], b[1]);
    ae_mma_8(c + 2, a[3], b[1]);
}

AE_DEV void ae_mma_s8_k16(int32_t c[4], const uint32_t a[2], const uint32_t b[1])
{
    ae_mma_8(c, a[0], b[0]);
    ae_mma_8(c + 2, a[1], b[0]);
}

AE_DEV void ae_copy16(void *shared, const void *global)
{
    *static_cast<uint4 *>(shared) = *static_cast<const uint4 *>(global);
}

AE_DEV void ae_copy_commit(void) {}
template <int n> AE_DEV void ae_copy_wait(void) {}
#else
AE_DEV void ae_mma_s8(int32_t c[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

AE_DEV void ae_mma_s8_k16(int32_t c[4], const uint32_t a[2], const uint32_t b[1])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}

AE_DEV void ae_copy16(void *shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))), "l"(global));
}

AE_DEV void ae_copy_commit(void) { asm volatile("cp.async.commit_group;"); }
template <int n> AE_DEV void ae_copy_wait(void) { asm volatile("cp.async.wait_group %0;" :: "n"(n) : "memory"); }
#endif

#endif

/* Both arguments are integers of one type. */
template <class T> AE_DEV T ae_max(T x, T y) { return x > y ? x : y; }
template <class T> AE_DEV T ae_min(T x, T y) { return x < y ? x : y; }

/* For ae_fold. */
struct ae_add {
    template <class T> AE_DEV T of(T x, T y) { return x + y; }
};
struct ae_larger {
    template <class T> AE_DEV T of(T x, T y) { return x > y ? x : y; }
};

/* Returns the sum of v over the block's threads before this one; all of them call it. totals: (shared) a word for each warp. */
AE_DEV uint32_t ae_sum_before(uint8_t *totals, uint32_t v)
{
    const uint32_t t = ae_thread(), lane = t % 32;
    uint32_t sum = v;
    AE_UNROLL
    for (uint32_t i = 1; i < 32; i *= 2) {
        const uint32_t other = ae_shfl(sum, lane >= i ? lane - i : lane);
        if (lane >= i) sum += other;
    }
    ae_sync();
    if (lane == 31) AE_STORE_SHARED(uint32_t, totals + t / 32 * 4, sum);
    ae_sync();
    for (uint32_t w = 0; w < t / 32; w++) sum += AE_LOAD_SHARED(uint32_t, totals + w * 4);
    return sum - v;
}

#endif

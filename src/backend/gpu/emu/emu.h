/* emu.h - the language of kernel.h on the host: what a kernel compiled by g++ calls.
 *
 * A block's threads are fibers of one host thread (fiber.c); they change only where they meet: ae_sync and the operations of a
 * warp. A kernel that breaks a rule ends the launch with a sentence that names the block, the thread, the file and the line.
 */
#ifndef AE_BACKEND_GPU_EMU_EMU_H
#define AE_BACKEND_GPU_EMU_EMU_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "backend/gpu/emu/launch.h"

struct alignas(8) uint2 { uint32_t x, y; };
struct alignas(16) uint4 { uint32_t x, y, z, w; };
struct alignas(8) int2 { int32_t x, y; };
struct alignas(16) int4 { int32_t x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };

#define AE_DEV static inline
#define AE_UNROLL
#define AE_NO_UNROLL

AE_DEV uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
AE_DEV uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
AE_DEV int2 make_int2(int32_t x, int32_t y) { return {x, y}; }
AE_DEV int4 make_int4(int32_t x, int32_t y, int32_t z, int32_t w) { return {x, y, z, w}; }
AE_DEV float2 make_float2(float x, float y) { return {x, y}; }
AE_DEV float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
AE_DEV double2 make_double2(double x, double y) { return {x, y}; }

/* The driver finds ae_emu_NAME, and the sizes that the kernel was compiled for, by list.h. */
#define AE_KERNEL(name, type, threads) \
    static void ae_kernel_##name(const type &a); \
    extern "C" { \
    void ae_emu_##name(const void *args); \
    void ae_emu_##name(const void *args) { ae_kernel_##name(*static_cast<const type *>(args)); } \
    extern const ae_emu_facts ae_emu_facts_##name; \
    const ae_emu_facts ae_emu_facts_##name = {threads, sizeof(type)}; \
    } \
    static void ae_kernel_##name(const type &a)

#define AE_KERNEL_EARLY(name, type, threads) AE_KERNEL(name, type, threads)
#define AE_DEPEND
AE_DEV void ae_depend_launch(void) {} /* nothing to do: in the emulation a launch begins only when the previous one has ended */
AE_DEV void ae_depend_wait(void) {}

#define AE_SHARED(p) uint8_t *p = ae_emu_now->shared

AE_DEV uint32_t ae_thread(void) { return ae_emu_now->thread; }
AE_DEV uint32_t ae_block_x(void) { return ae_emu_now->block[0]; }
AE_DEV uint32_t ae_block_y(void) { return ae_emu_now->block[1]; }
AE_DEV uint32_t ae_block_z(void) { return ae_emu_now->block[2]; }
AE_DEV uint32_t ae_grid_x(void) { return ae_emu_now->grid[0]; }
AE_DEV uint32_t ae_grid_y(void) { return ae_emu_now->grid[1]; }

/* The place of a call in a kernel, as default arguments of every function that may report. */
#define AE_EMU_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

AE_DEV void ae_sync(AE_EMU_HERE) { ae_emu_sync(file, line); }
AE_DEV void ae_sync_warp(AE_EMU_HERE) { ae_emu_sync_warp(file, line); }
AE_DEV void ae_bar_wait(uint32_t id, uint32_t n, AE_EMU_HERE) { ae_emu_bar(id, n, true, file, line); }
AE_DEV void ae_bar_post(uint32_t id, uint32_t n, AE_EMU_HERE) { ae_emu_bar(id, n, false, file, line); }

#if defined(__SANITIZE_THREAD__) /* a slate is no memory of the kernel's */
#define AE_EMU_SLATE_COPY(to, from, n) ae_emu_slate_copy(to, from, (n) / 4)
#else
#define AE_EMU_SLATE_COPY(to, from, n) memcpy(to, from, n)
#endif

/* Leaves v for the other lanes and waits until all have done so. */
template <class T> AE_DEV ae_emu_slate *ae_emu_give(T v, const char *file, int line)
{
    static_assert(sizeof(T) % 4 == 0 && sizeof(T) <= 16, "a shuffle moves 4 to 16 bytes");
    ae_emu_slate *s = ae_emu_slate_now();
    AE_EMU_SLATE_COPY(reinterpret_cast<char *>(s->lanes) + ae_thread() % 32 * sizeof v, &v, sizeof v);
    ae_emu_exchange(file, line);
    return s;
}

template <class T> AE_DEV T ae_emu_take(const ae_emu_slate *s, uint32_t lane)
{
    T v;
    AE_EMU_SLATE_COPY(&v, reinterpret_cast<const char *>(s->lanes) + lane % 32 * sizeof v, sizeof v);
    return v;
}

template <class T> AE_DEV T ae_shfl(T v, uint32_t lane, AE_EMU_HERE)
{
    return ae_emu_take<T>(ae_emu_give(v, file, line), lane);
}

template <class T> AE_DEV T ae_shfl_xor(T v, uint32_t mask, AE_EMU_HERE)
{
    return ae_shfl(v, (ae_thread() % 32) ^ mask, file, line);
}

template <int n, class T> AE_DEV void ae_shfl_each(T *x, T v, uint32_t first, uint32_t step, AE_EMU_HERE)
{
    const ae_emu_slate *s = ae_emu_give(v, file, line);
    for (uint32_t i = 0; i < n; i++) x[i] = ae_emu_take<T>(s, first + i * step);
}

/* A fold of all lanes by the one that runs first, instead of a meeting for each distance. */
template <class F, class T> __attribute__((noinline)) void ae_emu_fold(ae_emu_slate *s, uint32_t from, uint32_t to)
{
    T x[32], y[32];
    memcpy(x, s->lanes, sizeof x);
    for (uint32_t d = from;; d = from > to ? d / 2 : d * 2) {
        for (uint32_t l = 0; l < 32; l++) y[l] = F::of(x[l], x[l ^ d]);
        memcpy(x, y, sizeof x);
        if (d == to) break;
    }
    memcpy(s->lanes, x, sizeof x);
    s->folded = true;
}

template <class F, class T> AE_DEV T ae_fold(T v, uint32_t from, uint32_t to, AE_EMU_HERE)
{
#if defined(__SANITIZE_THREAD__) /* it would see lanes race for `folded` */
    for (uint32_t d = from;; d = from > to ? d / 2 : d * 2) {
        v = F::of(v, ae_shfl_xor(v, d, file, line));
        if (d == to) return v;
    }
#else
    ae_emu_slate *s = ae_emu_give(v, file, line);
    if (!s->folded) ae_emu_fold<F, T>(s, from, to);
    return ae_emu_take<T>(s, ae_thread());
#endif
}

/* Uses an instruction if there is one: libm's function is slow in a plain x86-64 build. Both are exact. */
#if defined(__x86_64__)
AE_DEV float ae_fma(float x, float y, float z)
{
    if (!__builtin_cpu_supports("fma")) return fmaf(x, y, z);
    __asm__("vfmadd213ss %2, %1, %0" : "+x"(x) : "x"(y), "x"(z));
    return x;
}

AE_DEV double ae_fma(double x, double y, double z)
{
    if (!__builtin_cpu_supports("fma")) return fma(x, y, z);
    __asm__("vfmadd213sd %2, %1, %0" : "+x"(x) : "x"(y), "x"(z));
    return x;
}
#else
AE_DEV float ae_fma(float x, float y, float z) { return fmaf(x, y, z); }
AE_DEV double ae_fma(double x, double y, double z) { return fma(x, y, z); }
#endif

AE_DEV float ae_as_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

AE_DEV uint32_t ae_as_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

AE_DEV float ae_half(uint16_t bits)
{
    const uint32_t t = (bits & 0x7fffu) << 13;
    const uint32_t f = t >= 0x0f800000u ? t | 0x7f800000u : ae_as_bits(ae_as_float(t) * 0x1p112f);
    return ae_as_float(f | (bits & 0x8000u) << 16);
}

AE_DEV uint16_t ae_to_half(float f)
{
    const uint32_t bits = ae_as_bits(f), sign = bits >> 16 & 0x8000u, t = bits & 0x7fffffffu;
    if (t > 0x7f800000u) return 0x7fff;                                    /* CUDA's NaN */
    if (t >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);    /* 65520 and more */
    if (t < 0x38800000u) /* subnormal: the addition rounds to units of 2^-24 */
        return static_cast<uint16_t>(sign | (ae_as_bits(ae_as_float(t) + 0.5f) - 0x3f000000u));
    return static_cast<uint16_t>(sign | ((t - 0x38000000u + 0xfffu + (t >> 13 & 1)) >> 13));
}

AE_DEV int32_t ae_dp4a(uint32_t x, uint32_t y, int32_t z)
{
    uint32_t sum = static_cast<uint32_t>(z); /* it wraps */
    for (int i = 0; i < 32; i += 8)
        sum += static_cast<uint32_t>(static_cast<int8_t>(x >> i) * static_cast<int8_t>(y >> i));
    return static_cast<int32_t>(sum);
}

AE_DEV int32_t ae_dp4a_us(uint32_t x, uint32_t y, int32_t z)
{
    uint32_t sum = static_cast<uint32_t>(z);
    for (int i = 0; i < 32; i += 8)
        sum += static_cast<uint32_t>(static_cast<uint8_t>(x >> i) * static_cast<int8_t>(y >> i));
    return static_cast<int32_t>(sum);
}

AE_DEV uint32_t ae_perm(uint32_t x, uint32_t y, uint32_t s)
{
    const uint64_t from = static_cast<uint64_t>(y) << 32 | x;
    uint32_t bytes = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t byte = from >> (s >> 4 * i & 7) * 8 & 0xff;
        if (s >> 4 * i & 8) byte = byte & 0x80 ? 0xff : 0;
        bytes |= byte << 8 * i;
    }
    return bytes;
}

AE_DEV void ae_prefetch(const void *) {}
AE_DEV uint32_t ae_atomic_add(uint32_t *p, uint32_t v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
AE_DEV void ae_fence(void) {}

template <class T> AE_DEV T ae_emu_load(const void *p, AE_EMU_HERE)
{
    if (reinterpret_cast<uintptr_t>(p) % alignof(T)) ae_emu_misaligned(p, alignof(T), file, line);
    T v;
    memcpy(&v, __builtin_assume_aligned(p, alignof(T)), sizeof v);
    return v;
}

template <class T> AE_DEV void ae_emu_store(void *p, T v, AE_EMU_HERE)
{
    if (reinterpret_cast<uintptr_t>(p) % alignof(T)) ae_emu_misaligned(p, alignof(T), file, line);
    memcpy(__builtin_assume_aligned(p, alignof(T)), &v, sizeof v);
}

AE_DEV uint32_t ae_load4(const void *p, AE_EMU_HERE) { return ae_emu_load<uint32_t>(p, file, line); }
AE_DEV uint2 ae_load8(const void *p, AE_EMU_HERE) { return ae_emu_load<uint2>(p, file, line); }
AE_DEV uint4 ae_load16(const void *p, AE_EMU_HERE) { return ae_emu_load<uint4>(p, file, line); }
AE_DEV uint4 ae_stream16(const void *p, AE_EMU_HERE) { return ae_emu_load<uint4>(p, file, line); }
#define AE_LOAD_SHARED(type, p) ae_emu_load<type>(p)
#define AE_STORE_SHARED(type, p, v) ae_emu_store<type>(p, v)

AE_DEV void ae_mma_s8(int32_t c[4], const uint32_t a[4], const uint32_t b[2], AE_EMU_HERE)
{
    ae_emu_mma(c, a, b, 32, file, line);
}

AE_DEV void ae_mma_s8_k16(int32_t c[4], const uint32_t a[2], const uint32_t b[1], AE_EMU_HERE)
{
    ae_emu_mma(c, a, b, 16, file, line);
}

AE_DEV void ae_copy16(void *shared, const void *global, AE_EMU_HERE) { ae_emu_copy16(shared, global, file, line); }
AE_DEV void ae_copy_commit(AE_EMU_HERE) { ae_emu_copy_commit(file, line); }
template <int n> AE_DEV void ae_copy_wait(AE_EMU_HERE) { ae_emu_copy_wait(n, file, line); }

#endif

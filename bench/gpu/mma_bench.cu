/* mma_bench.cu - times the products by mma (src/backend/gpu/kernels/product/mma.h) in variants and checks their bits.
 *
 *     nvcc -O2 -std=c++17 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true -arch=sm_90 -Isrc -Iinclude \
 *          -o mma_bench bench/gpu/mma_bench.cu
 *     ./mma_bench [--quick] [--types q4_0,q4_k] > mma.csv
 *
 * Each line is a type, a shape, a number of rows and a variant: microseconds of one product, weight bytes per second as a
 * share of the measured copy, T(n) / T(1) of the best variants, and blocks per multiprocessor. Products are launched from a
 * graph, one after the other, over copies of the weight of 300 MB in all, so that the L2 cache does not help; the time between
 * two empty kernels is printed first. Weights are random bytes with scales that are neither small nor infinite.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#ifdef TRACE /* -DTRACE: instead of times of products, clocks between points of a warp's run */
#define TRACE_RUNS 16
__device__ uint32_t trace_clocks[8][TRACE_RUNS][7]; /* [warp][run][point], block 1 */
#define AE_MMA_TRACE(i, point) \
    do { \
        if (blockIdx.y == 1 && !blockIdx.x && threadIdx.x % 32 == 0 && (i) < TRACE_RUNS) \
            trace_clocks[threadIdx.x / 32][i][point] = (uint32_t)clock(); \
    } while (0)
#endif
#include "backend/gpu/kernels/product/mma.h"

#define CHECK(call) \
    do { \
        cudaError_t status_ = (call); \
        if (status_ != cudaSuccess) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status_)); \
            exit(1); \
        } \
    } while (0)

#define POOL ((size_t)320 << 20) /* bytes of weights */
#define MAX_IN 14336
#define MAX_OUT 128256
#define MAX_N 64

typedef void kernel_fn(const ae_mma_args);

template <int type, int C, int run, int S, int D>
__global__ void __launch_bounds__(AE_MMA_THREADS) product(const __grid_constant__ ae_mma_args a)
{
    AE_SHARED(shared);
    ae_mma_product<type, C, run, S, D>(&a, shared);
}

__global__ void empty(void) {}

struct variant {
    int type, c, run, team, stages;
    uint32_t shared;
    kernel_fn *kernel;
    bool listed; /* it is what args_mma.h says */
    int blocks, registers; /* a multiprocessor's, a thread's */
};

template <int type, int C, int run, int S, int D> static variant make(bool listed)
{
    typedef ae_mma_work<type, C, run, S, D> work;
    const uint32_t shared = AE_MMA_SHARED(work::w_bytes, work::x_bytes, C, S, D);
    return {type, C, run, S, D, shared, product<type, C, run, S, D>, listed, 0, 0};
}

static const char *const type_names[] = {
#define NAME_OF(name, NAME, wide, bits, codes, high, scales) #name,
    AE_MMA_TYPES(NAME_OF)
};
static const int type_wide[] = {
#define WIDE_OF(name, NAME, wide, bits, codes, high, scales) wide,
    AE_MMA_TYPES(WIDE_OF)
};
static const int type_parts[][3] = {
#define PARTS_OF(name, NAME, wide, bits, codes, high, scales) {codes, high, scales},
    AE_MMA_TYPES(PARTS_OF)
};

static uint32_t record_of(int type) { return type_parts[type][0] + type_parts[type][1] + type_parts[type][2]; }

/* ---- Inputs --------------------------------------------------------------------------------------- */

__device__ static uint32_t hash(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(x ^ x >> 31);
}

__global__ void fill_words(uint32_t *to, size_t n, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        to[i] = hash(i * 0x9e3779b97f4a7c15u + seed);
}

/* Makes the first n_halves 16-bit numbers of each record's scales ordinary. */
__global__ void fix_scales(uint8_t *to, size_t n_records, uint32_t record, uint32_t at, uint32_t n_halves, uint32_t bf16)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n_records; i += (size_t)gridDim.x * blockDim.x) {
        uint16_t *h = (uint16_t *)(to + i * record + at);
        for (uint32_t j = 0; j < n_halves; j++) h[j] = bf16 ? (h[j] & 0x0380) + 0x3800 : (h[j] & 0x8FFF) + 0x1000;
    }
}

__global__ void cap_bytes(uint8_t *to, size_t n_records, uint32_t record, uint32_t at, uint32_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n_records; i += (size_t)gridDim.x * blockDim.x)
        for (uint32_t j = 0; j < n; j++) to[i * record + at + j] &= 63;
}

__global__ void fill_rows(uint8_t *to, size_t n_records, bool wide, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n_records; i += (size_t)gridDim.x * blockDim.x) {
        uint8_t *r = to + i * (wide ? AE_MMA_RECORD_256 : AE_MMA_RECORD);
        const uint32_t n = wide ? 2048 : 512;
        for (uint32_t j = 0; j < n; j++) r[j] = (uint8_t)(int8_t)((int32_t)(hash(i * 4096 + j + seed) % 255) - 127);
        float *f = (float *)(r + n);
        for (uint32_t j = 0; j < (wide ? 8u : 32u); j++) f[j] = (float)(int32_t)hash(i * 4096 + 3000 + j + seed) * 0x1p-40f;
        for (uint32_t j = AE_MMA_SUMS_256; wide && j < AE_MMA_RECORD_256; j++)
            r[j] = (uint8_t)(int8_t)((int32_t)(hash(i * 4096 + j + seed) % 63) - 31);
    }
}

/* ---- The reference: one thread for each output and row ----------------------------------------------- */

__device__ static int code_of(int type, const uint8_t *r, uint32_t row, uint32_t k)
{
    const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    const int8_t fp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const uint32_t b = k / 32, e = k % 32, half = b % 2, pair = b / 2, up = e / 16, t = e % 16 / 4, j = e % 4;
    const uint32_t lane = row % 8 * 4 + t, high = row / 8, i = 2 * up + high;
    if (type == AE_MMA_Q8_0) return (int8_t)r[half * 512 + lane * 16 + up * 8 + high * 4 + j];
    const uint32_t word = *(const uint32_t *)(r + pair * 512 + lane * 16 + half * 8 + high * 4);
    const bool table = type == AE_MMA_IQ4_NL || type == AE_MMA_IQ4_XS || type == AE_MMA_MXFP4;
    int c = word >> (table ? 16 * up + 4 * j : 8 * j + 4 * up) & 15;
    if (table) return type == AE_MMA_MXFP4 ? fp4[c] : iq4[c];
    switch (type) {
    case AE_MMA_Q4_0: return c >= 8 ? c - 16 : c;
    case AE_MMA_Q5_0:
    case AE_MMA_Q5_1: c |= (*(const uint32_t *)(r + 512 + lane * 4) >> (8 * j + 4 * half + i) & 1) << 4; break;
    case AE_MMA_Q5_K: c |= (*(const uint32_t *)(r + 2048 + lane * 16 + pair * 4) >> (8 * j + 4 * half + i) & 1) << 4; break;
    case AE_MMA_Q6_K:
        c |= (*(const uint32_t *)(r + 2048 + pair / 2 * 512 + lane * 16 + pair % 2 * 8 + half * 4) >> (8 * j + 2 * i) & 3) << 4;
        return c >= 32 ? c - 64 : c;
    default: break;
    }
    return type == AE_MMA_Q5_0 && c >= 16 ? c - 32 : c;
}

__device__ static float scale_of(int type, const uint8_t *p)
{
    const uint16_t bits = *(const uint16_t *)p;
    return type == AE_MMA_MXFP4 ? __uint_as_float((uint32_t)bits << 16) : ae_half(bits);
}

__device__ static int q_of(const uint8_t *x, uint32_t row, uint32_t k)
{
    return (int8_t)x[k / 64 * 512 + AE_MMA_Q_AT(row, k / 32 % 2, k % 32 / 4) + k % 4];
}

__device__ static float chain_32(int type, const uint8_t *w, const uint8_t *scales, const uint8_t *x, uint32_t row, uint32_t r,
                                 float acc)
{
    const bool has_min = type == AE_MMA_Q4_1 || type == AE_MMA_Q5_1;
    for (uint32_t half = 0; half < 2; half++) {
        int sum = 0;
        for (uint32_t k = 0; k < 32; k++) sum += code_of(type, w, row, half * 32 + k) * q_of(x, r, half * 32 + k);
        const uint8_t *d = scales + row % 8 * (has_min ? 16 : 8) + half * 4 + row / 8 * 2;
        const float dx = *(const float *)(x + AE_MMA_DX_AT(r, half)), s = *(const float *)(x + AE_MMA_S_AT(r, half));
        acc = __fmaf_rn((float)sum, scale_of(type, d) * dx, acc);
        if (has_min) acc = __fmaf_rn(scale_of(type, d + 8), s, acc);
    }
    return acc;
}

__device__ static float chain_256(int type, const uint8_t *w, const uint8_t *scales, const uint8_t *x, uint32_t row, uint32_t r,
                                  float acc)
{
    const bool has_min = type == AE_MMA_Q4_K || type == AE_MMA_Q5_K, narrow = type == AE_MMA_Q6_K;
    const uint32_t g = row % 8, high = row / 8;
    const uint8_t *sub = scales + (has_min ? 64 : 32);
    int p = 0, m = 0;
    for (uint32_t k = 0; k < 256; k++) {
        const int8_t by = (int8_t)(narrow ? sub[high * 128 + g * 16 + k / 16] : sub[g * 16 + high * 8 + k / 32]);
        p += by * code_of(type, w, row, k) * q_of(x, r, k);
    }
    for (uint32_t j = 0; has_min && j < 8; j++) {
        const int8_t *digits = (const int8_t *)x + AE_MMA_SUMS_256 + r * 16;
        m += sub[128 + g * 16 + j / 4 * 8 + high * 4 + j % 4] * (digits[j] + 128 * digits[8 + j]);
    }
    const float dx = *(const float *)(x + AE_MMA_DX_256 + r * 4);
    acc = __fmaf_rn((float)p, scale_of(type, scales + g * (has_min ? 8 : 4) + high * 2) * dx, acc);
    return has_min ? __fmaf_rn((float)m, -(scale_of(type, scales + g * 8 + 4 + high * 2) * dx), acc) : acc;
}

__global__ void reference(const ae_mma_args a, int type, bool wide, uint32_t record, uint32_t scales_at, uint32_t every,
                          float *y)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, n_some = a.job[0].n_out / every;
    if (i >= n_some * a.n_rows) return;
    const uint32_t o = i % n_some * every + i % n_some % every, r = i / n_some;
    const uint8_t *w = a.job[0].weight + (size_t)(o / 16) * a.n_records * record, *x = a.job[0].rows + r / 8 * a.group_bytes;
    float acc = 0;
    for (uint32_t u = 0; u < a.n_records; u++, w += record, x += wide ? AE_MMA_RECORD_256 : AE_MMA_RECORD)
        acc = wide ? chain_256(type, w, w + scales_at, x, o % 16, r % 8, acc)
                   : chain_32(type, w, w + scales_at, x, o % 16, r % 8, acc);
    y[(size_t)r * a.job[0].y_stride + o] = acc;
}

__global__ void compare(const uint32_t *x, const uint32_t *y, uint32_t n_out, uint32_t n_rows, uint32_t every, uint32_t *n_bad)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, n_some = n_out / every;
    if (i >= n_some * n_rows) return;
    const size_t at = (size_t)(i / n_some) * n_out + i % n_some * every + i % n_some % every;
    if (x[at] != y[at]) atomicAdd(n_bad, 1);
}

/* ---- The machine ----------------------------------------------------------------------------------- */

static cudaStream_t stream;
static uint8_t *pool, *rows_32, *rows_256;
static float *y, *y_ref;
static uint32_t *n_bad;
static double copy_rate, gap_us;
static uint32_t n_sm;

static double replay_us(cudaGraphExec_t graph, int n)
{
    cudaEvent_t from, to;
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&to));
    std::vector<double> times;
    for (int i = 0; i < 4; i++) {
        CHECK(cudaEventRecord(from, stream));
        CHECK(cudaGraphLaunch(graph, stream));
        CHECK(cudaEventRecord(to, stream));
        CHECK(cudaStreamSynchronize(stream));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, from, to));
        if (i) times.push_back(ms * 1e3 / n);
    }
    CHECK(cudaEventDestroy(from));
    CHECK(cudaEventDestroy(to));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

template <class F> static double graph_us(int n, F body)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < n; i++) body(i);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    const double us = replay_us(exec, n);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    return us;
}

__global__ void read_all(const uint4 *p, size_t n, uint32_t *out)
{
    uint32_t sum = 0;
    const size_t step = (size_t)gridDim.x * blockDim.x;
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    for (; i + 3 * step < n; i += 4 * step) {
        const uint4 v0 = ae_stream16(p + i), v1 = ae_stream16(p + i + step), v2 = ae_stream16(p + i + 2 * step),
                    v3 = ae_stream16(p + i + 3 * step);
        sum += v0.x ^ v1.y ^ v2.z ^ v3.w;
    }
    if (sum == 0x12345678) *out = sum;
}

static void machine(void)
{
    cudaDeviceProp p;
    CHECK(cudaGetDeviceProperties(&p, 0));
    n_sm = (uint32_t)p.multiProcessorCount;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&pool, POOL));
    CHECK(cudaMalloc(&rows_32, MAX_N / 8 * (size_t)AE_MMA_GROUP_BYTES(MAX_IN)));
    CHECK(cudaMalloc(&rows_256, MAX_N / 8 * (size_t)AE_MMA_GROUP_BYTES_256(MAX_IN)));
    CHECK(cudaMalloc(&y, sizeof(float) * MAX_OUT * MAX_N));
    CHECK(cudaMalloc(&y_ref, sizeof(float) * MAX_OUT * MAX_N));
    CHECK(cudaMalloc(&n_bad, 4));
    fill_words<<<4096, 256, 0, stream>>>((uint32_t *)pool, POOL / 4, 1);
    fill_rows<<<256, 256, 0, stream>>>(rows_32, MAX_N / 8 * AE_MMA_PAIRS(MAX_IN), false, 2);
    fill_rows<<<256, 256, 0, stream>>>(rows_256, MAX_N / 8 * (MAX_IN / 256), true, 3);
    CHECK(cudaStreamSynchronize(stream));
    const size_t half = POOL / 2;
    uint8_t *other;
    CHECK(cudaMalloc(&other, half));
    const double copy = graph_us(8, [&](int) { CHECK(cudaMemcpyAsync(other, pool, half, cudaMemcpyDeviceToDevice, stream)); });
    copy_rate = 2.0 * half / copy * 1e-6; /* TB/s */
    CHECK(cudaFree(other));
    gap_us = graph_us(64, [&](int) { empty<<<1, 32, 0, stream>>>(); });
    printf("# %s, %d SMs, L2 %d MB, shared %zu; copy %.2f TB/s", p.name, p.multiProcessorCount, p.l2CacheSize >> 20,
           p.sharedMemPerBlockOptin, copy_rate);
    for (int blocks : {1, 2, 4, 8}) {
        const double us = graph_us(8, [&](int) {
            read_all<<<p.multiProcessorCount * blocks, 256, 0, stream>>>((uint4 *)pool, POOL / 16, n_bad);
        });
        printf(", read by %d blocks %.2f", blocks, POOL / us * 1e-6);
    }
    printf(" TB/s; empty kernel in a graph %.2f us\n", gap_us);
}

/* ---- Products --------------------------------------------------------------------------------------- */

struct shape {
    const char *name;
    uint32_t n_out, n_in;
};

static ae_mma_args args_of(const variant &v, const shape &s, uint32_t n, size_t at)
{
    const bool wide = type_wide[v.type];
    const uint32_t teams = AE_MMA_WARPS / v.team;
    ae_mma_args a = {};
    a.n_jobs = 1, a.n_rows = n, a.n_records = wide ? s.n_in / 256 : AE_MMA_PAIRS(s.n_in);
    a.group_bytes = wide ? AE_MMA_GROUP_BYTES_256(s.n_in) : AE_MMA_GROUP_BYTES(s.n_in);
    a.job[0].weight = pool + at, a.job[0].rows = wide ? rows_256 : rows_32, a.job[0].y = y;
    a.job[0].n_out = s.n_out, a.job[0].y_stride = s.n_out;
    a.job[0].end = ((s.n_out + 15) / 16 + teams - 1) / teams * teams;
    return a;
}

/* most: blocks of a multiprocessor, 0: one block for each granule of its teams. */
static dim3 grid_of(const variant &v, const ae_mma_args &a, int most)
{
    const uint32_t tiles = (a.n_rows + 8 * v.c - 1) / (8 * v.c), n = a.job[0].end / (AE_MMA_WARPS / v.team);
    return dim3(tiles, most ? std::min<uint32_t>(n, std::max<uint32_t>(1, n_sm * most / tiles)) : n);
}

/* Sets what depends on the grid. */
static ae_mma_args with_grid(const variant &v, ae_mma_args a, int most)
{
    const uint32_t n = a.job[0].end / (AE_MMA_WARPS / v.team), y = grid_of(v, a, most).y;
    a.each = n / y, a.more = n % y;
    return a;
}

static void launch(const variant &v, const ae_mma_args &a, int most)
{
    v.kernel<<<grid_of(v, a, most), AE_MMA_THREADS, v.shared, stream>>>(with_grid(v, a, most));
}

/* With `early` the kernel may begin while the one before it runs. */
static void launch_early(kernel_fn *kernel, dim3 grid, uint32_t threads, uint32_t shared, bool early, const ae_mma_args &a)
{
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = dim3(threads), config.dynamicSmemBytes = shared, config.stream = stream;
    config.attrs = &attribute, config.numAttrs = early;
    CHECK(cudaLaunchKernelEx(&config, kernel, a));
}

/* Stands for what comes between products: a few blocks that take about two microseconds. */
__global__ void glue(const ae_mma_args a)
{
    ae_depend_launch();
    ae_depend_wait();
    uint64_t from, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(from));
    const long long begin = clock64();
    while (clock64() - begin < 3500) {}
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (now == from + 1 && a.n_rows == 12345) *a.job[0].y = 1;
}

static uint32_t check(const variant &v, const shape &s, uint32_t n, int most)
{
    const ae_mma_args a = args_of(v, s, n, 0);
    const uint32_t every = s.n_out > 16384 ? 37 : 3, n_some = s.n_out / every * n;
    CHECK(cudaMemsetAsync(y, 0xFF, sizeof(float) * s.n_out * n, stream));
    CHECK(cudaMemsetAsync(n_bad, 0, 4, stream));
    launch(v, a, most);
    CHECK(cudaGetLastError());
    reference<<<(n_some + 127) / 128, 128, 0, stream>>>(a, v.type, type_wide[v.type], record_of(v.type),
                                                       type_parts[v.type][0] + type_parts[v.type][1], every, y_ref);
    compare<<<(n_some + 127) / 128, 128, 0, stream>>>((uint32_t *)y, (uint32_t *)y_ref, s.n_out, n, every, n_bad);
    uint32_t bad;
    CHECK(cudaMemcpyAsync(&bad, n_bad, 4, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    return bad;
}

static double time_us(const variant &v, const shape &s, uint32_t n, int most)
{
    const size_t bytes = (size_t)((s.n_out + 15) / 16) * args_of(v, s, n, 0).n_records * record_of(v.type);
    const size_t step = (bytes + 255) / 256 * 256, n_copies = std::max<size_t>(1, POOL / step);
    const int count = bytes > ((size_t)64 << 20) ? 5 : 20;
    static size_t next;
    return graph_us(count, [&](int) { launch(v, args_of(v, s, n, next++ % n_copies * step), most); });
}

/* Pairs of glue and product: launched in order, and early. */
static void time_early(const variant &v, const shape &s, uint32_t n)
{
    const size_t bytes = (size_t)((s.n_out + 15) / 16) * args_of(v, s, n, 0).n_records * record_of(v.type);
    const size_t step = (bytes + 255) / 256 * 256, n_copies = std::max<size_t>(1, POOL / step);
    double us[4];
    for (int mode = 0; mode < 4; mode++) /* glue alone; both in order; product early; both early */
        us[mode] = graph_us(20, [&](int i) {
            ae_mma_args a = args_of(v, s, n, i % n_copies * step);
            launch_early(glue, dim3(16), 256, 0, mode == 3, a);
            if (!mode) return;
            a.early = mode > 1;
            launch_early(v.kernel, grid_of(v, a, v.blocks), AE_MMA_THREADS, v.shared, mode > 1, with_grid(v, a, v.blocks));
        });
    printf("#early %s %s n %u %d:%d:%d:%d: glue alone %.2f us; glue and product %.2f, product early %.2f, both early %.2f; "
           "product alone %.2f\n", type_names[v.type], s.name, n, v.c, v.run, v.team, v.stages,
           us[0], us[1], us[2], us[3], time_us(v, s, n, v.blocks));
}

static void prepare(variant *v)
{
    CHECK(cudaFuncSetAttribute(v->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, v->shared));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&v->blocks, v->kernel, AE_MMA_THREADS, v->shared));
    cudaFuncAttributes f;
    CHECK(cudaFuncGetAttributes(&f, v->kernel));
    v->registers = f.numRegs;
}

static void set_scales(int type)
{
    const uint32_t record = record_of(type), at = type_parts[type][0] + type_parts[type][1];
    const bool has_min = type == AE_MMA_Q4_K || type == AE_MMA_Q5_K;
    const uint32_t halves = type_wide[type] ? (has_min ? 32 : 16) : type_parts[type][2] / 2;
    fill_words<<<4096, 256, 0, stream>>>((uint32_t *)pool, POOL / 4, 77 + type);
    fix_scales<<<1024, 256, 0, stream>>>(pool, POOL / record, record, at, halves, type == AE_MMA_MXFP4);
    /* sub and submin are at most 63 */
    if (has_min) cap_bytes<<<1024, 256, 0, stream>>>(pool, POOL / record, record, at + 64, 256);
}

#ifdef TRACE
static void trace(const variant &v, const shape &s, uint32_t n)
{
    static uint32_t t[8][TRACE_RUNS][7];
    const uint32_t warps[2] = {1, (uint32_t)v.team - 1};
    for (int i = 0; i < 3; i++) launch(v, args_of(v, s, n, (size_t)i << 26), v.blocks);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpyFromSymbol(t, trace_clocks, sizeof t));
    printf("%s %s n %u %d:%d:%d:%d, %d blocks, %d registers: clocks of each run: wait for copies, barrier, copies, integers, "
           "wait for turn, chain, next\n", type_names[v.type], s.name, n, v.c, v.run, v.team, v.stages, v.blocks, v.registers);
    const int n_runs = (int)((s.n_in / 32 + v.run - 1) / v.run / v.team);
    for (int j = 0; j < 2; j++)
        for (int r = 0; r < std::min(n_runs, TRACE_RUNS) - 1; r++) {
            const uint32_t *p = t[warps[j]][r], next = t[warps[j]][r + 1][0];
            const bool turn = v.team > 1;
            printf("  warp %u run %2d:", warps[j], r);
            for (int k = 0; k < 4; k++) printf(" %5u", p[k + 1] - p[k]);
            printf(" %5u %5u %5u  all %5u\n", turn ? p[5] - p[4] : 0, p[6] - p[turn ? 5 : 4], next - p[6], next - p[0]);
        }
    fflush(stdout);
}
#endif

static const uint32_t row_counts[] = {1, 2, 4, 8, 16, 32, 64};

/* All variants of a type over all shapes; `others`: also those that are not listed. */
static void run_type(std::vector<variant> &all, int type, const std::vector<shape> &shapes, bool others)
{
    set_scales(type);
    for (const shape &s : shapes) {
        double t1 = 0;
        const double bytes = (double)s.n_out * s.n_in / (type_wide[type] ? 256 * 16 : 64 * 16) * record_of(type);
        for (uint32_t n : row_counts) {
            const int c = n <= 8 ? 1 : n <= 16 ? 2 : n <= 32 ? 4 : 8;
            if (others && n != 1 && n < 8) continue;
            double best = 0;
            char what[64] = "";
            for (variant &v : all) {
                if (v.type != type || v.c > c || (!others && !v.listed) || !v.blocks) continue;
                
                for (int most = 0; most <= v.blocks; most += std::max(v.blocks, 1)) {
                    const double us = time_us(v, s, n, most);
                    uint32_t bad = 0;
                    if (most == v.blocks && (n == 1 || n >= 8) && (s.n_out != 128256 || v.listed)) bad = check(v, s, n, most);
                    if (!best || us < best) {
                        best = us;
                        snprintf(what, sizeof what, "%d:%d:%d:%d/%d", v.c, v.run, v.team, v.stages, most);
                    }
                    printf("%s,%s,%u,%d:%d:%d:%d%s,%d,%.2f,%.3f,%.3f,%u,%d,%d%s\n", type_names[v.type], s.name, n, v.c, v.run,
                           v.team, v.stages, v.listed ? "*" : "", most, us, bytes / us * 1e-6 / copy_rate,
                           bytes / std::max(us - gap_us, 0.1) * 1e-6 / copy_rate, bad, v.blocks, v.registers,
                           bad ? ",BITS DIFFER" : "");
                }
            }
            if (n == 1) t1 = best;
            printf("#best %s %s n %u: %.2f us, %.3f of copy, T(n)/T(1) %.2f by %s\n", type_names[type], s.name, n, best,
                   bytes / best * 1e-6 / copy_rate, best / t1, what);
        }
        fflush(stdout);
    }
}

static void add_listed(std::vector<variant> &all)
{
#define LISTED(name, NAME, c, team, run, stages, most) all.push_back(make<AE_MMA_##NAME, c, run, team, stages>(true));
    AE_MMA_ALL_32(LISTED)
    AE_MMA_ALL_256(LISTED)
#undef LISTED
}

#define OTHER(NAME, c, run, team, stages) all.push_back(make<AE_MMA_##NAME, c, run, team, stages>(false));

/* What the listed variants are chosen from; SWEEP_TYPES limits what is built. */
#define SWEEP_32(NAME) \
    OTHER(NAME, 1, 8, 8, 2) OTHER(NAME, 1, 8, 8, 3) OTHER(NAME, 1, 8, 4, 2) OTHER(NAME, 1, 8, 4, 3) OTHER(NAME, 1, 8, 2, 3) \
    OTHER(NAME, 1, 8, 1, 3) OTHER(NAME, 1, 4, 8, 3) OTHER(NAME, 1, 4, 8, 5) OTHER(NAME, 1, 4, 4, 4) OTHER(NAME, 1, 4, 2, 4) \
    OTHER(NAME, 1, 4, 1, 4) OTHER(NAME, 2, 4, 8, 3) OTHER(NAME, 2, 4, 4, 3) OTHER(NAME, 2, 4, 2, 3) OTHER(NAME, 2, 4, 1, 3) \
    OTHER(NAME, 2, 8, 8, 2) OTHER(NAME, 2, 8, 4, 2) OTHER(NAME, 2, 8, 4, 3) OTHER(NAME, 2, 8, 2, 2) OTHER(NAME, 2, 8, 1, 2) \
    OTHER(NAME, 2, 8, 1, 3) \
    OTHER(NAME, 4, 2, 8, 3) OTHER(NAME, 4, 2, 4, 3) OTHER(NAME, 4, 2, 2, 3) OTHER(NAME, 4, 4, 1, 3) OTHER(NAME, 4, 4, 8, 2) \
    OTHER(NAME, 4, 4, 4, 3) OTHER(NAME, 4, 4, 2, 3) OTHER(NAME, 4, 8, 1, 2) OTHER(NAME, 4, 8, 1, 3) OTHER(NAME, 8, 2, 8, 2) \
    OTHER(NAME, 8, 2, 4, 3) \
    OTHER(NAME, 8, 2, 2, 3) OTHER(NAME, 8, 4, 1, 2) OTHER(NAME, 8, 4, 1, 3) OTHER(NAME, 8, 8, 1, 2)
#define SWEEP_256(NAME) \
    OTHER(NAME, 1, 8, 8, 2) OTHER(NAME, 1, 8, 8, 3) OTHER(NAME, 1, 8, 4, 2) OTHER(NAME, 1, 8, 4, 3) OTHER(NAME, 1, 8, 2, 3) \
    OTHER(NAME, 1, 8, 1, 3) OTHER(NAME, 2, 8, 8, 2) OTHER(NAME, 2, 8, 4, 2) OTHER(NAME, 2, 8, 4, 3) OTHER(NAME, 2, 8, 2, 3) \
    OTHER(NAME, 2, 8, 1, 3) OTHER(NAME, 4, 8, 8, 2) OTHER(NAME, 4, 8, 4, 2) OTHER(NAME, 4, 8, 2, 2) OTHER(NAME, 4, 8, 1, 2) \
    OTHER(NAME, 8, 8, 4, 2) OTHER(NAME, 8, 8, 2, 2) OTHER(NAME, 8, 8, 1, 2)

static void add_others(std::vector<variant> &all)
{
#ifndef TRACE
    SWEEP_32(Q4_0)
    SWEEP_256(Q4_K)
    SWEEP_256(Q6_K)
    OTHER(Q8_0, 1, 8, 8, 2) OTHER(Q8_0, 1, 8, 4, 2) OTHER(Q8_0, 1, 4, 8, 3) OTHER(Q8_0, 1, 4, 4, 3) OTHER(Q8_0, 1, 4, 2, 3)
    OTHER(Q8_0, 2, 4, 8, 2) OTHER(Q8_0, 2, 4, 4, 3) OTHER(Q8_0, 2, 4, 2, 3) OTHER(Q8_0, 2, 4, 1, 3) OTHER(Q8_0, 4, 2, 8, 3)
    OTHER(Q8_0, 4, 2, 4, 3) OTHER(Q8_0, 4, 2, 2, 3) OTHER(Q8_0, 4, 4, 1, 3) OTHER(Q8_0, 8, 4, 1, 2) OTHER(Q8_0, 8, 4, 1, 3)
    OTHER(Q4_1, 1, 8, 8, 2) OTHER(Q4_1, 1, 4, 8, 3) OTHER(Q4_1, 1, 4, 4, 3) OTHER(Q4_1, 2, 4, 8, 2) OTHER(Q4_1, 2, 4, 2, 3)
    OTHER(Q4_1, 4, 2, 8, 3) OTHER(Q4_1, 4, 2, 4, 3) OTHER(Q4_1, 4, 2, 2, 3)
#else
    OTHER(Q4_0, 1, 8, 8, 2) OTHER(Q4_0, 1, 8, 4, 3) OTHER(Q4_0, 1, 8, 1, 3) OTHER(Q4_0, 2, 4, 4, 3) OTHER(Q4_0, 2, 8, 4, 3)
    OTHER(Q4_0, 2, 4, 8, 3) OTHER(Q4_0, 2, 4, 1, 3) OTHER(Q4_0, 4, 2, 8, 3) OTHER(Q4_0, 4, 4, 4, 3) OTHER(Q4_0, 4, 8, 1, 3)
    OTHER(Q4_0, 8, 2, 4, 3) OTHER(Q4_0, 8, 4, 1, 3)
#endif
}

int main(int argc, char **argv)
{
    bool quick = false;
    std::string types;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick")) quick = true;
        else if (!strcmp(argv[i], "--types") && i + 1 < argc) types = std::string(",") + argv[++i] + ",";
    }
    machine();
    std::vector<variant> all;
    add_listed(all);
    if (!quick) add_others(all);
    for (variant &v : all) {
        if (v.shared <= 227 * 1024) prepare(&v);
    }
    const std::vector<shape> full = {{"4096x4096", 4096, 4096}, {"6144x4096", 6144, 4096}, {"1024x4096", 1024, 4096},
                                     {"28672x4096", 28672, 4096}, {"4096x14336", 4096, 14336}, {"128256x4096", 128256, 4096}};
    const std::vector<shape> small = {{"576x576", 576, 576}, {"192x576", 192, 576}, {"3072x576", 3072, 576},
                                      {"576x1536", 576, 1536}, {"49152x576", 49152, 576}};
#ifdef TRACE
    set_scales(AE_MMA_Q4_0);
    for (const variant &v : all)
        if (!v.listed && v.blocks)
            for (int i = 0; i < 5; i += 1 + 2 * (i == 0) ) trace(v, full[i], 8 * v.c);
    return 0;
#endif
    printf("type,shape,n,c:run:team:stages,blocks per SM (0: no loop),us,share_of_copy,share_without_gap,bits that differ,"
           "most blocks per SM,registers\n");
    for (int type = 0; type < AE_MMA_N_TYPES; type++) {
        if (!types.empty() && types.find(std::string(",") + type_names[type] + ",") == std::string::npos) continue;
        run_type(all, type, full, !quick);
        if (type == AE_MMA_Q4_0 || type == AE_MMA_Q4_1 || type == AE_MMA_Q8_0) run_type(all, type, small, !quick);
    }
    set_scales(AE_MMA_Q4_0);
    for (const variant &v : all)
        for (int i = 0; v.type == AE_MMA_Q4_0 && v.c <= 2 && v.blocks && i < 5; i += v.listed ? 1 : 3)
            time_early(v, full[i], v.c * 8);
    return 0;
}

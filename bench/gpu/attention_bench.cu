/* attention_bench.cu - times attention (src/backend/gpu/kernels/attention/) on a GPU.
 *
 *     nvcc -O2 -std=c++17 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true -arch=sm_90 -Isrc -Iinclude \
 *          -o attention_bench bench/gpu/attention_bench.cu
 *     ./attention_bench > attention.csv          (about ten seconds)
 *
 * Each line is a shape, a cache type, a number of rows and a context, and the kernel with blocks wanted of a multiprocessor:
 * microseconds of one launch, bytes of keys and values read once as a share of 3.0 TB/s, registers. Rows are a draft tree after
 * the context, or with "prompt" a prompt's last rows. Launches run from a graph over layers with 400 MB in all, so that the L2
 * cache does not help; the time of an empty kernel is printed first, and is part of each time.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "backend/gpu/kernels/attention/elements.h"
#include "backend/gpu/kernels/attention/merge.h"

#include "backend/gpu/kernels/attention/few.cu"
#undef KERNEL
#include "backend/gpu/kernels/attention/float.cu"
#undef KERNEL
#include "backend/gpu/kernels/attention/merge.cu"
#include "backend/gpu/kernels/attention/codes.cu"
#undef KERNEL
#undef SPAN
#undef Q

#define CHECK(call) \
    do { \
        cudaError_t status_ = (call); \
        if (status_ != cudaSuccess) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status_)); \
            exit(1); \
        } \
    } while (0)

#define POOL ((size_t)400 << 20) /* bytes of keys and values */
#define PARTS ((size_t)32 << 20) /* floats */
#define MAX_ROWS 512
#define PATH 64

typedef void kernel_fn(const ae_gpu_attention_args);

struct kernel {
    const char *name;
    kernel_fn *run;
    uint32_t tile;
    bool is_block;
};

static const kernel few4 = {"few_4", ae_attention_few_f16_4, 4, true};
static const kernel few8 = {"few_8", ae_attention_few_f16_8, 8, true};
static const kernel few16 = {"few_16", ae_attention_few_f16_16, 16, true};
static const kernel walk8 = {"walk_8", ae_attention_f16_8, 8, false};
static const kernel code8 = {"codes", ae_attention_q8, 8, true};

struct shape {
    const char *name;
    uint32_t n_heads, n_kv_heads, head_dim;
};

static uint8_t *pool;
static float *parts, *q, *y;
static uint32_t *arrivals;
static int32_t *ints; /* seq, pos, n_inplace [MAX_ROWS], path [MAX_ROWS][PATH], table */
static cudaStream_t stream;
static int n_sms;

static __global__ void fill(uint16_t *to, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        to[i] = 0x3000 + (uint16_t)((i * 2654435761u) >> 12 & 0x83ff);
}

static __global__ void empty(void) {}

/* Microseconds of one of n launches in a graph; the best of five. */
template <class F> static double time_graph(int n, F launch)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    float best = 1e30f;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < n; i++) launch(i);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    for (int i = 0; i < 6; i++) {
        float ms;
        CHECK(cudaEventRecord(begin, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (i) best = std::min(best, ms);
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return best * 1000 / n;
}

/* Places of n rows: a tree of two branches after `context` positions, or the last rows of a prompt. */
static void put_rows(uint32_t n, uint32_t context, bool prompt, uint32_t n_pages)
{
    std::vector<int32_t> host(3 * MAX_ROWS + MAX_ROWS * PATH + n_pages);
    int32_t *pos = host.data() + MAX_ROWS, *n_inplace = pos + MAX_ROWS, *path = n_inplace + MAX_ROWS;
    int32_t *table = path + MAX_ROWS * PATH;
    for (uint32_t r = 0; r < n; r++) {
        const uint32_t depth = prompt ? r : r / 2;
        pos[r] = (int32_t)(context + depth);
        n_inplace[r] = (int32_t)(prompt ? context + r + 1 : context);
        for (uint32_t i = 0; i <= depth && i < PATH; i++)
            path[r * PATH + i] = (int32_t)(context + 2 * i + (i == depth ? r % 2 : 0));
    }
    for (uint32_t i = 0; i < n_pages; i++) table[i] = (int32_t)(n_pages - 1 - i);
    CHECK(cudaMemcpy(ints, host.data(), host.size() * 4, cudaMemcpyHostToDevice));
}

static void run(const shape &s, int type, const kernel &k, uint32_t each, uint32_t n, uint32_t context, bool prompt)
{
    const uint32_t n_pages = (context + 2 * n) / AE_KV_PAGE + 2, group = s.n_heads / s.n_kv_heads;
    const ae_gpu_kv_form form = ae_gpu_kv_form_of((uint32_t)type, s.head_dim, 0);
    const size_t page_bytes = (size_t)form.bytes * s.n_kv_heads, layer = page_bytes * n_pages;
    const ae_gpu_attention_room room = type == AE_KV_Q8_0 ? ae_gpu_attention_room_codes(&form)
                                                          : ae_gpu_attention_room_of(&form, k.tile, k.is_block);
    const int n_layers = (int)std::min<size_t>(std::max<size_t>(POOL / layer, 1), 64);
    put_rows(n, context, prompt, n_pages);
    ae_gpu_attention_args a = {};
    a.seq = ints, a.pos = ints + MAX_ROWS, a.n_inplace = a.pos + MAX_ROWS, a.path = a.n_inplace + MAX_ROWS;
    a.tables = a.path + MAX_ROWS * PATH;
    a.q = q, a.y = y, a.parts = parts, a.arrivals = arrivals, a.path_stride = PATH, a.table_stride = n_pages;
    a.n_rows = n, a.n_heads = s.n_heads, a.n_kv_heads = s.n_kv_heads, a.scale = 0.088f;
    a.n_tiles = (n * group + k.tile - 1) / k.tile;
    a.n_splits = 1;
    a.n_warps = k.is_block ? 1 : AE_ATTENTION_WARPS;
    const size_t most = std::min<size_t>(PARTS / ((size_t)n * s.n_heads * ae_gpu_attention_part(s.head_dim)), 2048);
    const uint32_t tiles = a.n_tiles * s.n_kv_heads;
    if (each) a.n_splits = std::max<uint32_t>(1, std::min<uint32_t>((uint32_t)most, n_sms * each / tiles));
    a.max_parts = a.n_splits > 1 ? (uint32_t)most : 0;
    a.merge_apart = a.max_parts && a.n_tiles > 1;
    const uint32_t n_blocks = (tiles * a.n_splits + a.n_warps - 1) / a.n_warps, bytes = room.bytes * a.n_warps;
    const uint32_t merge_bytes = ae_gpu_attention_room_merge(&form, k.tile).bytes;
    cudaFuncAttributes facts;
    CHECK(cudaFuncGetAttributes(&facts, k.run));
    CHECK(cudaFuncSetAttribute(k.run, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024));
    const double us = time_graph(std::max(n_layers, 4), [&](int i) {
        a.kv = {pool + (i % n_layers) * layer, page_bytes, n_pages, form};
        k.run<<<n_blocks, AE_ATTENTION_WARPS * 32, bytes, stream>>>(a);
        if (!a.merge_apart) return;
        kernel_fn *merge = k.tile == 16 ? ae_attention_merge_16 : ae_attention_merge_8;
        merge<<<tiles * (k.tile / 4), AE_ATTENTION_WARPS * 32, merge_bytes, stream>>>(a);
    });
    CHECK(cudaGetLastError());
    const double read = (double)form.bytes * s.n_kv_heads * (context + n) / AE_KV_PAGE;
    printf("%s,%s,%u,%u,%s,%s,%u,%.2f,%.3f,%d\n", s.name, type == AE_KV_F16 ? "f16" : "q8_0", n, context,
           prompt ? "prompt" : "tree", k.name, each, us, read / us / 3.0e6, facts.numRegs);
    fflush(stdout);
}

static void run_shape(const shape &s)
{
    const uint32_t contexts[] = {1, 200, 1000, 4096, 16384};
    for (uint32_t context : contexts)
        for (uint32_t n : {1u, 2u, 4u, 8u, 16u, 32u, 64u}) {
            const uint32_t group = s.n_heads / s.n_kv_heads;
            for (uint32_t each : {2u, 4u, 8u}) {
                if (each != 4 && n != 1 && n != 8) continue;
                if (n * group <= 4) run(s, AE_KV_F16, few4, each, n, context, false);
                if (n * group > 8) run(s, AE_KV_F16, few16, each, n, context, false);
                run(s, AE_KV_F16, few8, each, n, context, false);
                run(s, AE_KV_Q8_0, code8, each, n, context, false);
            }
            if (n >= 32) run(s, AE_KV_F16, walk8, 0, n, context, false);
        }
    for (uint32_t context : {0u, 3584u, 15872u}) {
        run(s, AE_KV_F16, walk8, 0, 512, context, true);
        run(s, AE_KV_F16, few16, 0, 512, context, true);
        run(s, AE_KV_Q8_0, code8, 0, 512, context, true);
    }
}

int main(void)
{
    const shape shapes[] = {{"8b", 32, 8, 128}, {"1b", 32, 8, 64}};
    cudaDeviceProp prop;
    CHECK(cudaGetDeviceProperties(&prop, 0));
    n_sms = prop.multiProcessorCount;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&pool, POOL + ((size_t)64 << 20)));
    CHECK(cudaMalloc(&parts, PARTS * 4));
    CHECK(cudaMalloc(&q, (size_t)MAX_ROWS * 4096 * 4));
    CHECK(cudaMalloc(&y, (size_t)MAX_ROWS * 4096 * 4));
    CHECK(cudaMalloc(&arrivals, 16384 * 4));
    CHECK(cudaMalloc(&ints, ((size_t)MAX_ROWS * (PATH + 3) + 4096) * 4));
    CHECK(cudaMemset(arrivals, 0, 16384 * 4));
    fill<<<n_sms * 8, 256, 0, stream>>>((uint16_t *)pool, (POOL + ((size_t)64 << 20)) / 2);
    CHECK(cudaMemset(q, 0x3c, (size_t)MAX_ROWS * 4096 * 4));
    CHECK(cudaDeviceSynchronize());
    printf("# %s, %d multiprocessors; an empty kernel: %.2f us\n", prop.name, n_sms,
           time_graph(64, [](int) { empty<<<1, 32, 0, stream>>>(); }));
    printf("shape,type,rows,context,kind,kernel,blocks_each,us,share,registers\n");
    for (const shape &s : shapes) run_shape(s);
    return 0;
}

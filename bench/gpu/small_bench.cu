/* small_bench.cu - times the kernels between products (activation.cu, moe.cu) and products by float weights on a GPU.
 *
 *     nvcc -O2 -std=c++17 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true -arch=sm_90 -Isrc -Iinclude \
 *          -o small_bench bench/gpu/small_bench.cu
 *     ./small_bench > small.csv          (about five seconds)
 *
 * Each line is a kernel, its shape and a number of rows: microseconds of a launch from a graph of 100 equal launches, in order,
 * and with "early" where each may begin before the one before it has ended. Caches are warm. The empty kernel's time is part of
 * each time.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "backend/gpu/kernels/product/activation.cu"
#undef AHEAD
#include "backend/gpu/kernels/product/moe.cu"
#undef AHEAD
namespace floats {
#include "backend/gpu/kernels/product/product.cu"
}

#define CHECK(call) \
    do { \
        cudaError_t status_ = (call); \
        if (status_ != cudaSuccess) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status_)); \
            exit(1); \
        } \
    } while (0)

#define LAUNCHES 100
#define REPEATS 30

struct empty_args {
    uint32_t n;
};

AE_KERNEL(empty, empty_args, 32)
{
    (void)a.n;
}

static cudaStream_t stream;
static uint8_t *memory; /* zeroed */
static size_t used;

template <class T> static T *room(size_t n)
{
    T *p = reinterpret_cast<T *>(memory + used);
    used += (n * sizeof(T) + 255) / 256 * 256;
    return p;
}

template <class A>
static void launch(void (*kernel)(A), dim3 grid, uint32_t threads, uint32_t shared, const A &args, bool early)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = early;
    config.gridDim = grid, config.blockDim = dim3(threads), config.dynamicSmemBytes = shared, config.stream = stream;
    config.attrs = &attribute, config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, kernel, args));
}

/* Microseconds of a launch; the best of REPEATS replays. */
template <class A>
static double time_of(void (*kernel)(A), dim3 grid, uint32_t threads, uint32_t shared, const A &args, bool early)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t from, to;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(shared > 49152 ? shared : 49152)));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < LAUNCHES; i++) launch(kernel, grid, threads, shared, args, early);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&to));
    float best = 1e9f;
    for (int i = 0; i < REPEATS; i++) {
        float ms;
        CHECK(cudaEventRecord(from, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(to, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaEventElapsedTime(&ms, from, to));
        if (i) best = std::min(best, ms);
    }
    cudaEventDestroy(from), cudaEventDestroy(to), cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
    return best * 1000 / LAUNCHES;
}

template <class A>
static void show(const char *name, const char *shape, uint32_t n, void (*kernel)(A), dim3 grid, uint32_t threads,
                 uint32_t shared, const A &args)
{
    printf("%s,%s,%u,%.2f,%.2f\n", name, shape, n, time_of(kernel, grid, threads, shared, args, false),
           time_of(kernel, grid, threads, shared, args, true));
    fflush(stdout);
}

static void activations(uint32_t n_in, uint32_t input, const char *name, uint32_t n, uint32_t want)
{
    used = 0;
    ae_gpu_activation_args a = {};
    char shape[32];
    const bool norm = input == AE_INPUT_RMSNORM;
    const uint32_t groups = (n_in + 255) / 256, most = std::max(1024 / n, 1u), pieces = norm ? std::min(groups, most) : groups;
    a.out.n_rows = n, a.out.n_in = n_in, a.out.x_stride = n_in;
    a.want = want, a.input = input, a.glu = AE_GLU_SILU, a.columns = (groups + pieces - 1) / pieces * 256;
    a.staged = norm, a.norm_eps = 1e-5f, a.x_stride = n_in;
    a.x = room<float>((size_t)n * n_in);
    a.x2 = input == AE_INPUT_GLU ? room<float>((size_t)n * n_in) : NULL;
    a.norm = room<float>(n_in);
    a.out.r32 = room<uint8_t>((size_t)(n + 7) / 8 * AE_MMA_GROUP_BYTES(n_in));
    a.out.r256 = room<uint8_t>((size_t)(n + 7) / 8 * AE_MMA_GROUP_BYTES_256(n_in));
    std::vector<float> x((size_t)n * n_in);
    for (size_t i = 0; i < x.size(); i++) x[i] = (float)((int)(i * 2654435761u >> 8) % 2001 - 1000) / 500.0f;
    CHECK(cudaMemcpy((void *)a.x, x.data(), x.size() * 4, cudaMemcpyHostToDevice));
    if (a.x2) CHECK(cudaMemcpy((void *)a.x2, x.data(), x.size() * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy((void *)a.norm, x.data(), n_in * 4, cudaMemcpyHostToDevice));
    snprintf(shape, sizeof shape, "%u %s", n_in, want & AE_GPU_WANT_256 ? "256" : "32");
    show(name, shape, n, ae_activation, dim3((n_in + a.columns - 1) / a.columns, n), AE_GPU_ACTIVATION_THREADS,
         AE_GPU_ACTIVATION_SHARED(norm ? n_in : 0), a);
}

static void routes(uint32_t n_experts, uint32_t n_used, uint32_t n)
{
    used = 0;
    ae_gpu_route_args r = {};
    ae_gpu_group_args g = {};
    ae_gpu_combine_args c = {};
    char shape[32];
    r.routing.n_experts = n_experts, r.routing.n_used = n_used, r.routing.renorm = true, r.routing.scale = 1;
    r.logits = room<float>((size_t)n * n_experts);
    r.ids = room<uint32_t>((size_t)n * n_used), r.weights = room<float>((size_t)n * n_used);
    g.ids = r.ids, g.n_pairs = n * n_used, g.n_experts = n_experts, g.slots = room<uint32_t>(g.n_pairs);
    g.active = room<ae_gpu_active>(n_experts), g.n_active = room<uint32_t>(1);
    c.down = room<float>(((size_t)g.n_pairs + n_experts * 8) * 2048), c.slots = g.slots, c.weights = r.weights;
    c.y = room<float>((size_t)n * 2048), c.n_used = n_used, c.dim = 2048;
    std::vector<float> x((size_t)n * n_experts);
    for (size_t i = 0; i < x.size(); i++) x[i] = (float)((int)(i * 2654435761u >> 8) % 2001) / 500.0f;
    CHECK(cudaMemcpy(r.logits, x.data(), x.size() * 4, cudaMemcpyHostToDevice));
    snprintf(shape, sizeof shape, "%u of %u", n_used, n_experts);
    show("route", shape, n, ae_route, dim3(n), AE_GPU_ROUTE_THREADS, AE_GPU_ROUTE_SHARED, r);
    show("group", shape, n, ae_group, dim3(1), AE_GPU_GROUP_THREADS, AE_GPU_GROUP_SHARED, g);
    show("combine", shape, n, ae_combine, dim3(2048 / AE_GPU_COMBINE_THREADS, n), AE_GPU_COMBINE_THREADS, 0, c);
}

/* A product by float weights in each shape of a block; all launches read one weight, which L2 may hold. */
static void products(uint32_t n_out, uint32_t n_in, uint32_t n)
{
    used = 0;
    ae_gpu_product_args a = {};
    char shape[32];
    a.rows.n_rows = n, a.rows.n_in = n_in, a.rows.x_stride = n_in, a.rows.x = room<float>((size_t)n * n_in), a.n_jobs = 1;
    a.job[0].weight = room<uint8_t>((size_t)n_out * n_in * 4), a.job[0].y = room<float>((size_t)n * n_out);
    a.job[0].y_stride = a.job[0].n_out = n_out, a.job[0].n_rows = n;
    snprintf(shape, sizeof shape, "%ux%u", n_out, n_in);
#define PRODUCT(name, kernel, kind, size) \
    show(name, shape, n, floats::kernel, \
         dim3((n_out + AE_GPU_FLOAT_OUT(kind) - 1) / AE_GPU_FLOAT_OUT(kind), \
              (n + AE_GPU_FLOAT_ROWS - 1) / AE_GPU_FLOAT_ROWS), \
         AE_GPU_FLOAT_THREADS(kind), AE_GPU_FLOAT_SHARED(kind, size), a)
    PRODUCT("f32", ae_product_f32, AE_GPU_PLAIN, 4);
    PRODUCT("f32 narrow", ae_product_f32_narrow, AE_GPU_NARROW, 4);
    PRODUCT("f16", ae_product_f16, AE_GPU_PLAIN, 2);
    PRODUCT("f16 narrow", ae_product_f16_narrow, AE_GPU_NARROW, 2);
    PRODUCT("f16 wide", ae_product_f16_wide, AE_GPU_WIDE, 2);
}

int main(void)
{
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&memory, (size_t)2 << 30));
    CHECK(cudaMemset(memory, 0, (size_t)2 << 30));
    printf("kernel,shape,rows,us,us early\n");
    show("empty", "", 1, ae_empty, dim3(1), 32, 0, empty_args{1});
    show("empty", "", 1, ae_empty, dim3(132), 32, 0, empty_args{1});
    for (uint32_t n : {1u, 8u, 64u, 512u}) {
        for (uint32_t want : {(uint32_t)AE_GPU_WANT_32, (uint32_t)AE_GPU_WANT_256}) {
            activations(4096, AE_INPUT_PLAIN, "plain", n, want);
            activations(4096, AE_INPUT_RMSNORM, "rmsnorm", n, want);
            activations(2048, AE_INPUT_RMSNORM, "rmsnorm", n, want);
            activations(14336, AE_INPUT_GLU, "glu", n, want);
        }
        routes(128, 8, n);
        routes(32, 4, n);
        products(128, 2048, n);
        if (n <= 64) products(4096, 4096, n);
    }
    return 0;
}

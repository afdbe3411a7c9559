/* cuda.c - the driver "cuda": implements driver.h with CUDA's driver API.
 * Owns contexts, the modules of the embedded kernels, two streams for each device (the queue, and one for fills), events, and
 * the executable graphs of recordings. Any thread may call, so each call first makes the device's context current in its
 * thread. A queue is captured in thread-local mode: memory that other threads allocate or fill meanwhile is not part of the
 * recording. If a device hangs, the driver gives it up (limit.h): most CUDA calls would wait for it, so none is made for it any
 * more, and its memory is not released before the process ends, unless the device answers again. */
#include "backend/gpu/driver.h"

#ifdef AE_GPU_CUDA

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/cuda/cuda_api.h"
#include "backend/gpu/kernels/list.h"
#include "backend/gpu/limit.h"
#include "base/mem.h"
#include "base/os.h"

#ifndef AE_GPU_CUDA_ARCHS
#define AE_GPU_CUDA_ARCHS "other chips" /* for messages: "sm_90" */
#endif

struct ae_gpu_device {
    ae_cuda_api api;
    ae_gpu_device *next;   /* of `abandoned` */
    uint32_t i;            /* number of the device */
    ae_cu_device device;
    ae_cu_context context; /* the device's primary context */
    ae_cu_module modules[AE_CU_MAX_IMAGES]; /* [n_modules] of ae_gpu_images */
    uint32_t n_modules;
    bool early;            /* facts.early */
    double limit;          /* most seconds of a wait; 0: no limit */
    _Atomic bool hung;     /* it was over */
    ae_cu_stream queue;
    ae_cu_stream fills;    /* the stream for zeroing new memory and for fills */
    pthread_mutex_t fills_mutex;
    ae_cu_function kernels[AE_GPU_N_KERNELS + 1]; /* by ae_gpu_kernel */
    ae_cu_event marks[AE_GPU_MARKS];              /* events, created when they are first needed */
};

/* Devices that hung when they were closed. */
static pthread_mutex_t abandoned_mutex = PTHREAD_MUTEX_INITIALIZER;
static ae_gpu_device *abandoned;

struct ae_gpu_recording {
    ae_cu_exec exec;
};

static const struct {
    const char *symbol; /* NULL ends the list */
    uint32_t threads;
} kernels[] = {
#define KERNEL(name, args, n_threads) {"ae_" #name, n_threads},
    AE_GPU_KERNELS(KERNEL)
#undef KERNEL
    {NULL, 0},
};

/* Returns from the function with an error if the call fails. */
#define CU_TRY(api, call, name, error)                                                \
    do {                                                                              \
        const ae_cu_result cu_result = (api)->call;                                   \
        if (cu_result != AE_CU_OK) return ae_cuda_fail(api, cu_result, name, error);  \
    } while (0)

static ae_cu_pointer address(const void *memory)
{
    return (ae_cu_pointer)(uintptr_t)memory;
}

/* Makes the device's context current in the calling thread. */
static aerie_status enter(const ae_gpu_device *d, aerie_error *error)
{
    if (d->hung) return ae_gpu_hung(d->limit, error);
    CU_TRY(&d->api, context_set(d->context), "cuCtxSetCurrent", error);
    return AERIE_OK;
}

/* Waits until all work that was queued on the stream is done. */
static aerie_status wait_for(ae_gpu_device *d, ae_cu_stream stream, const char *call, aerie_error *error)
{
    ae_cu_result result;
    const double start = ae_time_now();
    if (d->limit > 0) {
        while ((result = d->api.stream_query(stream)) == AE_CU_NOT_READY) {
            if (ae_gpu_pause(start, d->limit)) continue;
            d->hung = true;
            return ae_gpu_hung(d->limit, error);
        }
    } else {
        result = d->api.stream_sync(stream);
    }
    return result == AE_CU_OK ? AERIE_OK : ae_cuda_fail(&d->api, result, call, error);
}

/* Returns whether the device may still write to its memory. A device that was given up is asked again. */
static bool is_busy(const ae_gpu_device *d)
{
    if (!d->hung) return false;
    return d->api.context_set(d->context) != AE_CU_OK || d->api.stream_query(d->queue) == AE_CU_NOT_READY ||
           d->api.stream_query(d->fills) == AE_CU_NOT_READY;
}

static aerie_status cuda_count(uint32_t *n, aerie_error *error)
{
    ae_cuda_api api;
    int count = 0;
    *n = 0;
    AE_TRY(ae_cuda_api_load(&api, error));
    const ae_cu_result result = api.device_count(&count);
    if (result != AE_CU_OK && result != AE_CU_NO_DEVICE) return ae_cuda_fail(&api, result, "cuDeviceGetCount", error);
    *n = result == AE_CU_OK && count > 0 ? (uint32_t)count : 0;
    return AERIE_OK;
}

/* ---- Opening and closing ---------------------------------------------------------------------------------- */

typedef struct device_numbers {
    char name[64];
    int major, minor, n_multiprocessors, shared, shared_most;
} device_numbers;

static aerie_status read_numbers(const ae_gpu_device *d, device_numbers *n, aerie_error *error)
{
    const ae_cuda_api *api = &d->api;
    const struct {
        unsigned attribute;
        int *value;
    } wanted[] = {{AE_CU_DEVICE_MAJOR, &n->major}, {AE_CU_DEVICE_MINOR, &n->minor},
                  {AE_CU_DEVICE_MULTIPROCESSORS, &n->n_multiprocessors}, {AE_CU_DEVICE_SHARED, &n->shared},
                  {AE_CU_DEVICE_SHARED_MOST, &n->shared_most}};
    memset(n, 0, sizeof *n);
    CU_TRY(api, device_name(n->name, (int)sizeof n->name - 1, d->device), "cuDeviceGetName", error);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        CU_TRY(api, device_attribute(wanted[i].value, wanted[i].attribute, d->device), "cuDeviceGetAttribute", error);
    if (n->shared_most < n->shared) n->shared_most = n->shared;
    return AERIE_OK;
}

/* Finds a kernel in one of the modules. */
static aerie_status find_kernel(ae_gpu_device *d, const char *symbol, ae_cu_function *function, aerie_error *error)
{
    const ae_cuda_api *api = &d->api;
    for (uint32_t i = 0; i < d->n_modules; i++) {
        const ae_cu_result result = api->module_function(function, d->modules[i], symbol);
        if (result == AE_CU_OK) return AERIE_OK;
        if (result != AE_CU_NOT_FOUND) return ae_cuda_fail(api, result, symbol, error);
    }
    return ae_fail(error, AERIE_ERROR_INTERNAL, "the embedded kernels lack %s: this build is not complete", symbol);
}

static aerie_status load_kernel(ae_gpu_device *d, uint32_t i, int shared_most, aerie_error *error)
{
    const ae_cuda_api *api = &d->api;
    const char *symbol = kernels[i].symbol;
    char what[96];
    int n_threads = 0, n_shared = 0;
    AE_TRY(find_kernel(d, symbol, &d->kernels[i], error));
    snprintf(what, sizeof what, "loading the kernel %s", symbol);
    const ae_cu_function f = d->kernels[i];
    CU_TRY(api, function_get(&n_threads, AE_CU_FUNCTION_THREADS, f), what, error);
    if ((uint32_t)n_threads < kernels[i].threads)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "%s needs %u threads a block, and this device runs %d of them", symbol,
                       kernels[i].threads, n_threads);
    CU_TRY(api, function_get(&n_shared, AE_CU_FUNCTION_SHARED, f), what, error);
    CU_TRY(api, function_set(f, AE_CU_FUNCTION_SHARED_MOST, shared_most - n_shared), what, error);
    return AERIE_OK;
}

static aerie_status load_modules(ae_gpu_device *d, const device_numbers *n, aerie_error *error)
{
    const ae_cuda_api *api = &d->api;
    if (ae_gpu_n_images > AE_CU_MAX_IMAGES)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "%zu images of kernels, and room for %d", ae_gpu_n_images,
                       AE_CU_MAX_IMAGES);
    for (size_t i = 0; i < ae_gpu_n_images; i++) {
        const ae_cu_result result = api->module_load(&d->modules[i], ae_gpu_images[i].bytes);
        if (result == AE_CU_NO_BINARY || result == AE_CU_UNSUPPORTED_PTX || result == AE_CU_INVALID_IMAGE)
            return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "this build has GPU kernels for " AE_GPU_CUDA_ARCHS ", and none "
                           "that run on %s (sm_%d%d) with a driver for CUDA %d.%d; --device cpu runs on the CPU",
                           n->name, n->major, n->minor, api->version / 1000, api->version % 1000 / 10);
        if (result != AE_CU_OK) return ae_cuda_fail(api, result, "cuModuleLoadData", error);
        d->n_modules++;
    }
    for (uint32_t i = 0; i < AE_GPU_N_KERNELS; i++) AE_TRY(load_kernel(d, i, n->shared_most, error));
    return AERIE_OK;
}

/* Returns whether a launch may begin before the previous one ends (programmatic dependent launch). AE_GPU_KERNELS_WAIT says
 * that every kernel waits for the previous one itself. */
static bool may_be_early(void)
{
#ifdef AE_GPU_KERNELS_WAIT
    const char *said = getenv("AERIE_GPU_EARLY");
    return !said || strcmp(said, "0") != 0;
#else
    return false;
#endif
}

static aerie_status set_up(ae_gpu_device *d, uint32_t i, ae_gpu_facts *facts, aerie_error *error)
{
    const ae_cuda_api *api = &d->api;
    device_numbers n;
    CU_TRY(api, device_get(&d->device, (int)i), "cuDeviceGet", error);
    AE_TRY(read_numbers(d, &n, error));
    CU_TRY(api, context_retain(&d->context, d->device), "cuDevicePrimaryCtxRetain", error);
    AE_TRY(enter(d, error));
    CU_TRY(api, stream_create(&d->queue, AE_CU_NON_BLOCKING), "cuStreamCreate", error);
    CU_TRY(api, stream_create(&d->fills, AE_CU_NON_BLOCKING), "cuStreamCreate", error);
    AE_TRY(load_modules(d, &n, error));
    snprintf(facts->name, sizeof facts->name, "%s, compute capability %d.%d, driver for CUDA %d.%d", n.name, n.major, n.minor,
             api->version / 1000, api->version % 1000 / 10);
    facts->n_multiprocessors = (uint32_t)n.n_multiprocessors;
    facts->max_shared_bytes = (uint32_t)n.shared_most;
    facts->int8_mma = n.major >= 8; /* m16n8k32 of s8 */
    facts->early = d->early = n.major >= 9 && may_be_early();
    d->limit = ae_gpu_limit(AE_GPU_LIMIT);
    return AERIE_OK;
}

/* Waits once more, before closing, for a device that was given up. Returns whether it answers. */
static bool comes_back(ae_gpu_device *d)
{
    const double start = ae_time_now();
    while (is_busy(d))
        if (!ae_gpu_pause(start, d->limit)) return false;
    d->hung = false;
    return true;
}

static void cuda_close(ae_gpu_device *d)
{
    if (!d) return;
    const ae_cuda_api *api = &d->api;
    if (d->context && comes_back(d)) {
        (void)enter(d, NULL);
        if (d->queue) (void)wait_for(d, d->queue, "cuStreamSynchronize", NULL);
    }
    if (d->context && !d->hung) {
        for (uint32_t i = 0; i < AE_GPU_MARKS; i++)
            if (d->marks[i]) (void)api->event_destroy(d->marks[i]);
        for (uint32_t i = 0; i < d->n_modules; i++) (void)api->module_unload(d->modules[i]);
        if (d->queue) (void)api->stream_destroy(d->queue);
        if (d->fills) (void)api->stream_destroy(d->fills);
        (void)api->context_set(NULL);
        (void)api->context_release(d->device);
    }
    if (d->hung) {
        pthread_mutex_lock(&abandoned_mutex);
        d->next = abandoned;
        abandoned = d;
        pthread_mutex_unlock(&abandoned_mutex);
        return;
    }
    pthread_mutex_destroy(&d->fills_mutex);
    ae_free(d);
}

/* Closes a device that hung when it was closed before, if it answers again. It is not opened while it hangs, since most calls
 * for its context would never return. */
static aerie_status take_back(uint32_t i, aerie_error *error)
{
    pthread_mutex_lock(&abandoned_mutex);
    ae_gpu_device **at = &abandoned, *d;
    while ((d = *at) && d->i != i) at = &d->next;
    const bool busy = d && is_busy(d);
    if (d && !busy) *at = d->next;
    pthread_mutex_unlock(&abandoned_mutex);
    if (busy)
        return ae_fail(error, AERIE_ERROR_INTERNAL, "CUDA device %u made no progress and was given up; restarting the program "
                       "may bring it back", i);
    cuda_close(d);
    return AERIE_OK;
}

static aerie_status cuda_open(uint32_t i, ae_gpu_device **out, ae_gpu_facts *facts, aerie_error *error)
{
    *out = NULL;
    AE_TRY(take_back(i, error));
    ae_gpu_device *d = ae_alloc(1, sizeof *d);
    if (!d) return ae_fail_memory(error, "a CUDA device", sizeof *d);
    d->i = i;
    pthread_mutex_init(&d->fills_mutex, NULL);
    aerie_status status = ae_cuda_api_load(&d->api, error);
    if (status == AERIE_OK) status = set_up(d, i, facts, error);
    if (status != AERIE_OK) cuda_close(d);
    else *out = d;
    return status;
}

/* ---- Memory ----------------------------------------------------------------------------------------------- */

static void cuda_memory_info(ae_gpu_device *d, uint64_t *n_free, uint64_t *n_total)
{
    size_t left = 0, total = 0;
    const bool ok = enter(d, NULL) == AERIE_OK && d->api.memory_info(&left, &total) == AE_CU_OK;
    *n_free = ok ? left : 0;
    *n_total = ok ? total : 0;
}

/* Waits until the fills are done. The caller holds their lock. */
static aerie_status finish_fills(ae_gpu_device *d, ae_cu_result queued, const char *call, aerie_error *error)
{
    aerie_error said = {0};
    const aerie_status status = wait_for(d, d->fills, call, &said); /* also after an error */
    if (queued != AE_CU_OK) return ae_cuda_fail(&d->api, queued, call, error);
    if (status != AERIE_OK && error) *error = said;
    return status;
}

static void *cuda_alloc(ae_gpu_device *d, size_t bytes)
{
    ae_cu_pointer memory = 0;
    if (!bytes) bytes = 1;
    if (enter(d, NULL) != AERIE_OK || d->api.alloc(&memory, bytes) != AE_CU_OK) return NULL;
    pthread_mutex_lock(&d->fills_mutex);
    const aerie_status status = finish_fills(d, d->api.set(memory, 0, bytes, d->fills), "cuMemsetD8Async", NULL);
    pthread_mutex_unlock(&d->fills_mutex);
    if (status == AERIE_OK) return (void *)(uintptr_t)memory;
    if (!is_busy(d)) (void)d->api.free(memory);
    return NULL;
}

/* cuMemFree waits for all work on the device. */
static void cuda_free(ae_gpu_device *d, void *memory)
{
    if (!memory || is_busy(d)) return;
    (void)d->api.context_set(d->context); /* the memory counts as released even if the call fails */
    (void)d->api.free(address(memory));
}

static void *cuda_alloc_pinned(ae_gpu_device *d, size_t bytes)
{
    void *memory = NULL;
    if (!bytes) bytes = 1;
    if (enter(d, NULL) != AERIE_OK || d->api.host_alloc(&memory, bytes, AE_CU_HOST_PORTABLE) != AE_CU_OK) return NULL;
    return memory;
}

static void cuda_free_pinned(ae_gpu_device *d, void *memory)
{
    if (!memory || is_busy(d)) return;
    (void)d->api.context_set(d->context);
    (void)d->api.host_free(memory);
}

static aerie_status cuda_fill(ae_gpu_device *d, void *to, const void *host, size_t n, aerie_error *error)
{
    if (!n) return AERIE_OK;
    AE_TRY(enter(d, error));
    pthread_mutex_lock(&d->fills_mutex);
    const ae_cu_result queued = d->api.copy_in(address(to), host, n, d->fills);
    const aerie_status status = finish_fills(d, queued, "cuMemcpyHtoDAsync", error);
    pthread_mutex_unlock(&d->fills_mutex);
    return status;
}

/* ---- The queue -------------------------------------------------------------------------------------------- */

static aerie_status cuda_copy_in(ae_gpu_device *d, void *to, const void *pinned, size_t n, aerie_error *error)
{
    if (!n) return AERIE_OK;
    AE_TRY(enter(d, error));
    CU_TRY(&d->api, copy_in(address(to), pinned, n, d->queue), "cuMemcpyHtoDAsync", error);
    return AERIE_OK;
}

static aerie_status cuda_copy_out(ae_gpu_device *d, void *pinned, const void *from, size_t n, aerie_error *error)
{
    if (!n) return AERIE_OK;
    AE_TRY(enter(d, error));
    CU_TRY(&d->api, copy_out(pinned, address(from), n, d->queue), "cuMemcpyDtoHAsync", error);
    return AERIE_OK;
}

static aerie_status cuda_zero(ae_gpu_device *d, void *to, size_t n, aerie_error *error)
{
    if (!n) return AERIE_OK;
    AE_TRY(enter(d, error));
    CU_TRY(&d->api, set(address(to), 0, n, d->queue), "cuMemsetD8Async", error);
    return AERIE_OK;
}

static aerie_status cuda_launch(ae_gpu_device *d, uint32_t i, const uint32_t grid[3], uint32_t n_shared, const void *args,
                                aerie_error *error)
{
    void *params[] = {(void *)(uintptr_t)args}; /* the launch's only parameter, a struct; the call copies it */
    ae_cu_attribute early = {.id = AE_CU_LAUNCH_EARLY, .value.on = 1};
    const ae_cu_launch launch = {grid[0], grid[1], grid[2], kernels[i].threads, 1, 1, n_shared, d->queue, &early, d->early};
    AE_TRY(enter(d, error));
    CU_TRY(&d->api, launch_with(&launch, d->kernels[i], params, NULL), "cuLaunchKernelEx", error);
    return AERIE_OK;
}

static aerie_status cuda_mark(ae_gpu_device *d, uint32_t i, aerie_error *error)
{
    AE_TRY(enter(d, error));
    if (!d->marks[i]) CU_TRY(&d->api, event_create(&d->marks[i], 0), "cuEventCreate", error);
    CU_TRY(&d->api, event_record(d->marks[i], d->queue), "cuEventRecord", error);
    return AERIE_OK;
}

static double cuda_elapsed(ae_gpu_device *d, uint32_t from, uint32_t to)
{
    float milliseconds = 0;
    if (!d->marks[from] || !d->marks[to] || enter(d, NULL) != AERIE_OK) return 0;
    if (d->api.event_elapsed(&milliseconds, d->marks[from], d->marks[to]) != AE_CU_OK) return 0;
    return milliseconds / 1000.0;
}

static aerie_status cuda_sync(ae_gpu_device *d, aerie_error *error)
{
    AE_TRY(enter(d, error));
    return wait_for(d, d->queue, "cuStreamSynchronize", error);
}

/* ---- Recordings ------------------------------------------------------------------------------------------- */

static aerie_status cuda_record_begin(ae_gpu_device *d, aerie_error *error)
{
    AE_TRY(enter(d, error));
    CU_TRY(&d->api, capture_begin(d->queue, AE_CU_THREAD_LOCAL), "cuStreamBeginCapture", error);
    return AERIE_OK;
}

/* Makes an executable graph from the captured graph, which it frees. */
static aerie_status instantiate(const ae_cuda_api *api, ae_cu_graph graph, ae_gpu_recording **out, aerie_error *error)
{
    ae_gpu_recording *r = ae_alloc(1, sizeof *r);
    const ae_cu_result result = r ? api->graph_instantiate(&r->exec, graph, 0) : AE_CU_OK;
    (void)api->graph_destroy(graph);
    if (!r) return ae_fail_memory(error, "a recorded pass", sizeof *r);
    if (result == AE_CU_OK) {
        *out = r;
        return AERIE_OK;
    }
    ae_free(r);
    return ae_cuda_fail(api, result, "cuGraphInstantiate", error);
}

static aerie_status cuda_record_end(ae_gpu_device *d, ae_gpu_recording **out, aerie_error *error)
{
    ae_cu_graph graph = NULL;
    *out = NULL;
    const aerie_status entered = enter(d, error);
    const ae_cu_result result = d->api.capture_end(d->queue, &graph); /* also after an error: the stream must not stay in
                                                                       * capture mode */
    if (result == AE_CU_OK && entered == AERIE_OK) return instantiate(&d->api, graph, out, error);
    if (graph) (void)d->api.graph_destroy(graph);
    return entered != AERIE_OK ? entered : ae_cuda_fail(&d->api, result, "cuStreamEndCapture", error);
}

static aerie_status cuda_replay(ae_gpu_device *d, ae_gpu_recording *recording, aerie_error *error)
{
    AE_TRY(enter(d, error));
    CU_TRY(&d->api, exec_launch(recording->exec, d->queue), "cuGraphLaunch", error);
    return AERIE_OK;
}

static void cuda_recording_free(ae_gpu_device *d, ae_gpu_recording *recording)
{
    if (!recording) return;
    if (!is_busy(d)) {
        (void)d->api.context_set(d->context);
        (void)d->api.exec_destroy(recording->exec);
    }
    ae_free(recording);
}

const ae_gpu_driver ae_gpu_driver_cuda = {
    .name = "cuda",
    .count = cuda_count,
    .open = cuda_open,
    .close = cuda_close,
    .memory_info = cuda_memory_info,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .alloc_pinned = cuda_alloc_pinned,
    .free_pinned = cuda_free_pinned,
    .fill = cuda_fill,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .zero = cuda_zero,
    .launch = cuda_launch,
    .mark = cuda_mark,
    .elapsed = cuda_elapsed,
    .sync = cuda_sync,
    .record_begin = cuda_record_begin,
    .record_end = cuda_record_end,
    .replay = cuda_replay,
    .recording_free = cuda_recording_free,
};

#endif

/* fake_cuda.c - see fake_cuda.h. Built as libcuda.so.1 in a folder of its own. Variables of the environment
 * set what tests of whole programs need: FAKE_CUDA_VERSION the driver's version, FAKE_CUDA_INIT what cuInit returns,
 * FAKE_CUDA_FAIL_AT the call that fails, FAKE_CUDA_LEFT the bytes of device memory. */
#include "fake_cuda.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/cuda/cuda_api.h"

#define API __attribute__((visibility("default")))

API fake_cuda fake_cuda_state = {.version = 13000, .n_devices = 2, .n_left = SIZE_MAX};
#define S fake_cuda_state

static _Thread_local ae_cu_context current;

static unsigned long long setting(const char *name, unsigned long long otherwise)
{
    const char *set = getenv(name);
    return set ? strtoull(set, NULL, 10) : otherwise;
}

__attribute__((constructor)) static void read_settings(void)
{
    S.version = (int)setting("FAKE_CUDA_VERSION", 13000);
    S.fail_at = (unsigned)setting("FAKE_CUDA_FAIL_AT", 0);
    S.fail_with = 700; /* CUDA_ERROR_ILLEGAL_ADDRESS */
    S.n_left = (size_t)setting("FAKE_CUDA_LEFT", SIZE_MAX);
}

/* Counts a call; whether it is the one that fails. */
static bool fails(const char *call)
{
    if (++S.n_calls != S.fail_at) return false;
    strncpy(S.failed, call, sizeof S.failed - 1);
    return true;
}

#define CALL()                              \
    do {                                    \
        if (fails(__func__)) return S.fail_with; \
    } while (0)
/* For calls that need a context. */
#define CALL_IN_CONTEXT()       \
    do {                        \
        CALL();                 \
        if (!current) return 201; /* CUDA_ERROR_INVALID_CONTEXT */ \
    } while (0)
/* For calls that release something. */
#define RELEASE(count)                       \
    do {                                     \
        const bool failed_ = fails(__func__); \
        (count)--;                           \
        return failed_ ? S.fail_with : 0;    \
    } while (0)

/* Something for the caller to point to. */
static void *thing(void)
{
    static char room[1 << 16];
    static size_t used;
    return &room[used++ % sizeof room];
}

API ae_cu_result cuGetErrorString(ae_cu_result result, const char **text)
{
    *text = result == 2 ? "out of memory" : result == 9999 ? NULL : "a failure that the test wanted";
    return result == 9999 ? 1 : 0;
}

API ae_cu_result cuGetErrorName(ae_cu_result result, const char **name)
{
    *name = result == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : result == 9999 ? NULL : "CUDA_ERROR_WANTED";
    return result == 9999 ? 1 : 0;
}

API ae_cu_result cuInit(unsigned flags)
{
    (void)flags;
    const unsigned result = (unsigned)setting("FAKE_CUDA_INIT", 0);
    CALL();
    if (result) return result;
    return S.n_devices ? 0 : AE_CU_NO_DEVICE;
}

API ae_cu_result cuDriverGetVersion(int *version)
{
    CALL();
    *version = S.version;
    return 0;
}

API ae_cu_result cuDeviceGetCount(int *n)
{
    CALL();
    *n = S.n_devices;
    return 0;
}

API ae_cu_result cuDeviceGet(ae_cu_device *device, int i)
{
    CALL();
    if (i < 0 || i >= S.n_devices) return 101; /* CUDA_ERROR_INVALID_DEVICE */
    *device = i;
    return 0;
}

API ae_cu_result cuDeviceGetName(char *name, int bytes, ae_cu_device device)
{
    CALL();
    (void)device;
    strncpy(name, "Fake GPU", (size_t)bytes);
    return 0;
}

API ae_cu_result cuDeviceGetAttribute(int *value, unsigned attribute, ae_cu_device device)
{
    CALL();
    (void)device;
    switch (attribute) {
    case AE_CU_DEVICE_MAJOR: *value = 9; return 0;
    case AE_CU_DEVICE_MINOR: *value = 0; return 0;
    case AE_CU_DEVICE_MULTIPROCESSORS: *value = 132; return 0;
    case AE_CU_DEVICE_SHARED: *value = 48 << 10; return 0;
    case AE_CU_DEVICE_SHARED_MOST: *value = 227 << 10; return 0;
    default: return 1;
    }
}

API ae_cu_result cuDevicePrimaryCtxRetain(ae_cu_context *context, ae_cu_device device)
{
    CALL();
    (void)device;
    S.n_contexts++;
    *context = thing();
    return 0;
}

API ae_cu_result cuDevicePrimaryCtxRelease_v2(ae_cu_device device)
{
    (void)device;
    RELEASE(S.n_contexts);
}

API ae_cu_result cuCtxSetCurrent(ae_cu_context context)
{
    CALL();
    current = context;
    return 0;
}

API ae_cu_result cuMemGetInfo_v2(size_t *n_free, size_t *n_total)
{
    CALL_IN_CONTEXT();
    *n_free = S.n_left == SIZE_MAX ? 70000000000 : S.n_left;
    *n_total = 80000000000;
    return 0;
}

API ae_cu_result cuMemAlloc_v2(ae_cu_pointer *memory, size_t bytes)
{
    CALL_IN_CONTEXT();
    if (!bytes) return 1;
    void *room = bytes <= S.n_left ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
    if (!room) return AE_CU_OUT_OF_MEMORY;
    memset(room, 0xa5, bytes);
    S.n_memory++;
    S.n_left -= S.n_left == SIZE_MAX ? 0 : bytes;
    *memory = (ae_cu_pointer)(uintptr_t)room;
    return 0;
}

API ae_cu_result cuMemFree_v2(ae_cu_pointer memory)
{
    free((void *)(uintptr_t)memory);
    RELEASE(S.n_memory);
}

API ae_cu_result cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    CALL_IN_CONTEXT();
    (void)flags;
    *memory = malloc(bytes);
    if (!*memory) return AE_CU_OUT_OF_MEMORY;
    memset(*memory, 0xa5, bytes);
    S.n_pinned++;
    return 0;
}

API ae_cu_result cuMemFreeHost(void *memory)
{
    free(memory);
    RELEASE(S.n_pinned);
}

API ae_cu_result cuMemcpyHtoDAsync_v2(ae_cu_pointer to, const void *from, size_t bytes, ae_cu_stream stream)
{
    CALL_IN_CONTEXT();
    if (stream == S.captured) return 900; /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}

API ae_cu_result cuMemcpyDtoHAsync_v2(void *to, ae_cu_pointer from, size_t bytes, ae_cu_stream stream)
{
    CALL_IN_CONTEXT();
    if (stream == S.captured) return 900;
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}

API ae_cu_result cuMemsetD8Async(ae_cu_pointer to, unsigned char value, size_t bytes, ae_cu_stream stream)
{
    (void)stream;
    CALL_IN_CONTEXT();
    memset((void *)(uintptr_t)to, value, bytes);
    return 0;
}

API ae_cu_result cuStreamCreate(ae_cu_stream *stream, unsigned flags)
{
    CALL_IN_CONTEXT();
    if (flags != AE_CU_NON_BLOCKING) return 1;
    S.n_streams++;
    *stream = thing();
    return 0;
}

API ae_cu_result cuStreamDestroy_v2(ae_cu_stream stream)
{
    (void)stream;
    RELEASE(S.n_streams);
}

API ae_cu_result cuStreamSynchronize(ae_cu_stream stream)
{
    CALL_IN_CONTEXT();
    if (stream == S.captured) return 900;
    return 0;
}

API ae_cu_result cuStreamQuery(ae_cu_stream stream)
{
    CALL_IN_CONTEXT();
    if (stream == S.captured) return 900;
    return S.hangs ? 600 : 0; /* CUDA_ERROR_NOT_READY */
}

API ae_cu_result cuEventCreate(ae_cu_event *event, unsigned flags)
{
    (void)flags;
    CALL_IN_CONTEXT();
    S.n_events++;
    *event = thing();
    return 0;
}

API ae_cu_result cuEventDestroy_v2(ae_cu_event event)
{
    (void)event;
    RELEASE(S.n_events);
}

API ae_cu_result cuEventRecord(ae_cu_event event, ae_cu_stream stream)
{
    (void)event;
    CALL_IN_CONTEXT();
    if (stream == S.captured) return 900;
    return 0;
}

API ae_cu_result cuEventElapsedTime(float *milliseconds, ae_cu_event from, ae_cu_event to)
{
    (void)from, (void)to;
    CALL_IN_CONTEXT();
    *milliseconds = 1.5f;
    return 0;
}

API ae_cu_result cuModuleLoadData(ae_cu_module *module, const void *image)
{
    (void)image;
    CALL_IN_CONTEXT();
    if (S.load_result) return S.load_result;
    S.n_modules++;
    *module = thing();
    return 0;
}

API ae_cu_result cuModuleUnload(ae_cu_module module)
{
    (void)module;
    RELEASE(S.n_modules);
}

API ae_cu_result cuModuleGetFunction(ae_cu_function *function, ae_cu_module module, const char *name)
{
    (void)module;
    CALL_IN_CONTEXT();
    if (!strcmp(name, S.missing)) return AE_CU_NOT_FOUND;
    *function = thing();
    return 0;
}

API ae_cu_result cuFuncGetAttribute(int *value, unsigned attribute, ae_cu_function function)
{
    (void)function;
    CALL_IN_CONTEXT();
    *value = attribute == AE_CU_FUNCTION_THREADS ? 1024 : 0;
    return 0;
}

API ae_cu_result cuFuncSetAttribute(ae_cu_function function, unsigned attribute, int value)
{
    (void)function, (void)attribute;
    CALL_IN_CONTEXT();
    return value > 227 << 10 ? 1 : 0;
}

API ae_cu_result cuLaunchKernelEx(const ae_cu_launch *l, ae_cu_function function, void **params, void **extra)
{
    (void)function;
    CALL_IN_CONTEXT();
    if (!params || extra || l->block_y != 1 || l->block_z != 1 || l->n_attributes > 1) return 1;
    if (l->n_attributes && (l->attributes->id != AE_CU_LAUNCH_EARLY || !l->attributes->value.on)) return 1;
    if (S.capturing) S.n_captured++;
    else S.n_launches++;
    S.grid[0] = l->grid_x, S.grid[1] = l->grid_y, S.grid[2] = l->grid_z;
    S.n_threads = l->block_x;
    S.n_shared = l->n_shared;
    S.args = params[0];
    return 0;
}

API ae_cu_result cuStreamBeginCapture_v2(ae_cu_stream stream, unsigned mode)
{
    CALL_IN_CONTEXT();
    if (S.capturing || mode != AE_CU_THREAD_LOCAL) return 1;
    S.capturing = true;
    S.captured = stream;
    return 0;
}

API ae_cu_result cuStreamEndCapture(ae_cu_stream stream, ae_cu_graph *graph)
{
    (void)stream;
    S.capturing = false;
    S.captured = NULL;
    *graph = NULL;
    CALL_IN_CONTEXT();
    S.n_graphs++;
    *graph = thing();
    return 0;
}

API ae_cu_result cuGraphInstantiateWithFlags(ae_cu_exec *exec, ae_cu_graph graph, unsigned long long flags)
{
    (void)graph;
    CALL_IN_CONTEXT();
    if (flags) return 1;
    S.n_execs++;
    *exec = thing();
    return 0;
}

API ae_cu_result cuGraphDestroy(ae_cu_graph graph)
{
    (void)graph;
    RELEASE(S.n_graphs);
}

API ae_cu_result cuGraphLaunch(ae_cu_exec exec, ae_cu_stream stream)
{
    (void)exec, (void)stream;
    CALL_IN_CONTEXT();
    S.n_replays++;
    return 0;
}

API ae_cu_result cuGraphExecDestroy(ae_cu_exec exec)
{
    (void)exec;
    RELEASE(S.n_execs);
}

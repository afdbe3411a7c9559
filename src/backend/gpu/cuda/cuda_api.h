/* cuda_api.h - the part of CUDA's driver API that Aerie uses, with declarations of our own: libcuda.so.1 is loaded when a
 * device is opened, and building does not need CUDA's headers.
 * The test tests/kernels/test_cuda_api.c compares every type and number with cuda.h where that header is installed. */
#ifndef AE_BACKEND_GPU_CUDA_CUDA_API_H
#define AE_BACKEND_GPU_CUDA_CUDA_API_H

#include "base/err.h"

/* CUDA's opaque types are pointers to structs of the same names; its enums are unsigned. */
typedef unsigned ae_cu_result;
typedef int ae_cu_device;
typedef unsigned long long ae_cu_pointer; /* a device address */
typedef struct CUctx_st *ae_cu_context;
typedef struct CUmod_st *ae_cu_module;
typedef struct CUfunc_st *ae_cu_function;
typedef struct CUstream_st *ae_cu_stream;
typedef struct CUevent_st *ae_cu_event;
typedef struct CUgraph_st *ae_cu_graph;
typedef struct CUgraphExec_st *ae_cu_exec;

enum {
    AE_CU_OK = 0,
    AE_CU_OUT_OF_MEMORY = 2,
    AE_CU_NO_DEVICE = 100,
    AE_CU_INVALID_IMAGE = 200,
    AE_CU_NO_BINARY = 209,
    AE_CU_UNSUPPORTED_PTX = 222,
    AE_CU_NOT_FOUND = 500,
    AE_CU_NOT_READY = 600,

    AE_CU_DEVICE_SHARED = 8, /* attributes of a device: shared memory of a block in bytes, by default and at most */
    AE_CU_DEVICE_MULTIPROCESSORS = 16,
    AE_CU_DEVICE_MAJOR = 75, /* compute capability */
    AE_CU_DEVICE_MINOR = 76,
    AE_CU_DEVICE_SHARED_MOST = 97,

    AE_CU_FUNCTION_THREADS = 0, /* attribute of a function: most threads of a block */
    AE_CU_FUNCTION_SHARED = 1,  /* attribute of a function: bytes of shared memory that it declares */
    AE_CU_FUNCTION_SHARED_MOST = 8,

    AE_CU_NON_BLOCKING = 1,  /* a stream that does not wait for the default one */
    AE_CU_THREAD_LOCAL = 1,  /* other threads may make any call during a capture */
    AE_CU_HOST_PORTABLE = 1, /* pinned for all contexts */

    AE_CU_LAUNCH_EARLY = 6,  /* attribute of a launch: it may begin before the previous launch has ended */
};

/* Correspond to CUlaunchAttribute and CUlaunchConfig. */
typedef struct ae_cu_attribute {
    unsigned id, pad;
    union {
        char pad[64];
        int on; /* of AE_CU_LAUNCH_EARLY */
        void *align;
    } value;
} ae_cu_attribute;

typedef struct ae_cu_launch {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, n_shared;
    ae_cu_stream stream;
    ae_cu_attribute *attributes; /* [n_attributes] */
    unsigned n_attributes;
} ae_cu_launch;

/* X(field, symbol of the library, arguments) */
#define AE_CU_FUNCTIONS(X) \
    X(error_string, cuGetErrorString, (ae_cu_result result, const char **text)) \
    X(error_name, cuGetErrorName, (ae_cu_result result, const char **name)) \
    X(init, cuInit, (unsigned flags)) \
    X(driver_version, cuDriverGetVersion, (int *version)) \
    X(device_count, cuDeviceGetCount, (int *n)) \
    X(device_get, cuDeviceGet, (ae_cu_device * device, int i)) \
    X(device_name, cuDeviceGetName, (char *name, int bytes, ae_cu_device device)) \
    X(device_attribute, cuDeviceGetAttribute, (int *value, unsigned attribute, ae_cu_device device)) \
    X(context_retain, cuDevicePrimaryCtxRetain, (ae_cu_context * context, ae_cu_device device)) \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (ae_cu_device device)) \
    X(context_set, cuCtxSetCurrent, (ae_cu_context context)) \
    X(memory_info, cuMemGetInfo_v2, (size_t * n_free, size_t *n_total)) \
    X(alloc, cuMemAlloc_v2, (ae_cu_pointer * memory, size_t bytes)) \
    X(free, cuMemFree_v2, (ae_cu_pointer memory)) \
    X(host_alloc, cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags)) \
    X(host_free, cuMemFreeHost, (void *memory)) \
    X(copy_in, cuMemcpyHtoDAsync_v2, (ae_cu_pointer to, const void *from, size_t bytes, ae_cu_stream stream)) \
    X(copy_out, cuMemcpyDtoHAsync_v2, (void *to, ae_cu_pointer from, size_t bytes, ae_cu_stream stream)) \
    X(set, cuMemsetD8Async, (ae_cu_pointer to, unsigned char value, size_t bytes, ae_cu_stream stream)) \
    X(stream_create, cuStreamCreate, (ae_cu_stream * stream, unsigned flags)) \
    X(stream_destroy, cuStreamDestroy_v2, (ae_cu_stream stream)) \
    X(stream_sync, cuStreamSynchronize, (ae_cu_stream stream)) \
    X(stream_query, cuStreamQuery, (ae_cu_stream stream)) \
    X(event_create, cuEventCreate, (ae_cu_event * event, unsigned flags)) \
    X(event_destroy, cuEventDestroy_v2, (ae_cu_event event)) \
    X(event_record, cuEventRecord, (ae_cu_event event, ae_cu_stream stream)) \
    X(event_elapsed, cuEventElapsedTime, (float *milliseconds, ae_cu_event from, ae_cu_event to)) \
    X(module_load, cuModuleLoadData, (ae_cu_module * module, const void *image)) \
    X(module_unload, cuModuleUnload, (ae_cu_module module)) \
    X(module_function, cuModuleGetFunction, (ae_cu_function * function, ae_cu_module module, const char *name)) \
    X(function_get, cuFuncGetAttribute, (int *value, unsigned attribute, ae_cu_function function)) \
    X(function_set, cuFuncSetAttribute, (ae_cu_function function, unsigned attribute, int value)) \
    X(capture_begin, cuStreamBeginCapture_v2, (ae_cu_stream stream, unsigned mode)) \
    X(capture_end, cuStreamEndCapture, (ae_cu_stream stream, ae_cu_graph *graph)) \
    X(graph_instantiate, cuGraphInstantiateWithFlags, (ae_cu_exec * exec, ae_cu_graph graph, unsigned long long flags)) \
    X(graph_destroy, cuGraphDestroy, (ae_cu_graph graph)) \
    X(exec_launch, cuGraphLaunch, (ae_cu_exec exec, ae_cu_stream stream)) \
    X(exec_destroy, cuGraphExecDestroy, (ae_cu_exec exec))

/* The functions that take our own structs as parameters. */
#define AE_CU_LAUNCHES(X) \
    X(launch_with, cuLaunchKernelEx, (const ae_cu_launch *launch, ae_cu_function function, void **params, void **extra))

typedef struct ae_cuda_api {
#define AE_CU_FIELD(field, symbol, args) ae_cu_result(*field) args;
    AE_CU_FUNCTIONS(AE_CU_FIELD)
    AE_CU_LAUNCHES(AE_CU_FIELD)
#undef AE_CU_FIELD
    int version; /* version of the driver: 13000 is CUDA 13.0 */
} ae_cuda_api;

/* The kernels of a .cu file, compiled for all chips of the build. The build writes ae_gpu_images (cmake/gpu.cmake). */
typedef struct ae_gpu_image {
    const unsigned char *bytes, *end;
} ae_gpu_image;
extern const ae_gpu_image ae_gpu_images[]; /* [ae_gpu_n_images] */
extern const size_t ae_gpu_n_images;
#define AE_CU_MAX_IMAGES 64

/* Loads the library, initializes it if this process has not, and finds its functions. Errors: UNSUPPORTED, with the reason, if
 * there is no library or no usable driver. */
aerie_status ae_cuda_api_load(ae_cuda_api *api, aerie_error *error);
/* Fills *error with the failure of a call ("cuMemAlloc_v2: out of memory (CUDA_ERROR_OUT_OF_MEMORY)"), and returns MEMORY or
 * INTERNAL. */
aerie_status ae_cuda_fail(const ae_cuda_api *api, ae_cu_result result, const char *call, aerie_error *error);

#endif

/* test_cuda_api.c - our declarations of CUDA's driver API against cuda.h, where that is: compiling it is the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/gpu/cuda/cuda_api.h"

#if defined(__has_include)
#if __has_include(<cuda.h>)
#include <cuda.h>
#define HAS_CUDA_H
#endif
#endif

#ifdef HAS_CUDA_H

/* Assigned, not cast: the compiler compares the types. cuEventElapsedTime is cuEventElapsedTime_v2 in newer headers, with the
 * same arguments. */
#pragma GCC diagnostic error "-Wincompatible-pointer-types"
static ae_cuda_api of_cuda_h(void)
{
    ae_cuda_api api = {0};
#define ASSIGN(field, symbol, args) \
    api.field = 0 ? &symbol : NULL;
    AE_CU_FUNCTIONS(ASSIGN)
#undef ASSIGN
    return api;
}

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(AE_CU_OK, CUDA_SUCCESS);
SAME(AE_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(AE_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(AE_CU_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME(AE_CU_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(AE_CU_UNSUPPORTED_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME(AE_CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(AE_CU_DEVICE_SHARED, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
SAME(AE_CU_DEVICE_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(AE_CU_DEVICE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(AE_CU_DEVICE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(AE_CU_DEVICE_SHARED_MOST, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(AE_CU_FUNCTION_THREADS, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(AE_CU_FUNCTION_SHARED, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME(AE_CU_FUNCTION_SHARED_MOST, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(AE_CU_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(AE_CU_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(AE_CU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME(AE_CU_LAUNCH_EARLY, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(sizeof(CUlaunchAttribute), sizeof(ae_cu_attribute));
SAME(offsetof(CUlaunchAttribute, value), offsetof(ae_cu_attribute, value));
SAME(sizeof(CUlaunchConfig), sizeof(ae_cu_launch));
SAME(offsetof(CUlaunchConfig, gridDimX), offsetof(ae_cu_launch, grid_x));
SAME(offsetof(CUlaunchConfig, blockDimX), offsetof(ae_cu_launch, block_x));
SAME(offsetof(CUlaunchConfig, blockDimZ), offsetof(ae_cu_launch, block_z));
SAME(offsetof(CUlaunchConfig, sharedMemBytes), offsetof(ae_cu_launch, n_shared));
SAME(offsetof(CUlaunchConfig, hStream), offsetof(ae_cu_launch, stream));
SAME(offsetof(CUlaunchConfig, attrs), offsetof(ae_cu_launch, attributes));
SAME(offsetof(CUlaunchConfig, numAttrs), offsetof(ae_cu_launch, n_attributes));
/* The rest of its type is cuLaunchKernelEx's. */
static CUresult (*const launch_with)(const CUlaunchConfig *, CUfunction, void **, void **) = 0 ? &cuLaunchKernelEx : NULL;
SAME(sizeof(CUdevice), sizeof(ae_cu_device));
SAME(sizeof(CUdeviceptr), sizeof(ae_cu_pointer));
SAME(sizeof(CUresult), sizeof(ae_cu_result));

static void test_declarations(void **state)
{
    (void)state;
    const ae_cuda_api api = of_cuda_h();
    assert_null(api.init);
    assert_null(launch_with);
}

#else

static void test_declarations(void **state)
{
    (void)state;
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_declarations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

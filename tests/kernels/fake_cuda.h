/* fake_cuda.h - a libcuda.so.1 for tests: memory is the host's, copies are made, kernels are counted and not run.
 *
 * Each of its calls has a number, from 1, and one of them can be made to fail. Calls that release something release it even
 * then. */
#ifndef TESTS_KERNELS_FAKE_CUDA_H
#define TESTS_KERNELS_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct fake_cuda {
    _Atomic unsigned n_calls;
    unsigned fail_at, fail_with;          /* fail_at 0: none fails */
    char failed[64];                      /* the call that failed */
    int version, n_devices;
    unsigned load_result;                 /* of cuModuleLoadData */
    char missing[64];                     /* a kernel that the module lacks */
    size_t n_left;                        /* bytes of device memory that may still be allocated */
    _Atomic int n_memory;                 /* that there are */
    int n_pinned, n_streams, n_events, n_graphs, n_execs, n_modules, n_contexts; /* likewise */
    _Atomic bool hangs;                   /* no stream becomes empty */
    bool capturing;
    const void *captured;                 /* the stream that is captured: it copies nothing, and is not waited for */
    unsigned n_launches, n_captured, n_replays; /* kernels run, kernels captured, graphs launched */
    unsigned grid[3], n_threads, n_shared; /* of the newest launch */
    const void *args;                      /* likewise, while the call lasts */
} fake_cuda;

#endif

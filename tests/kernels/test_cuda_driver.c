/* test_cuda_driver.c - the driver "cuda" over a fake libcuda.so.1 (fake_cuda.h), which LD_LIBRARY_PATH names: every call fails
 * once, nothing is left behind, and the sentences say what is wrong. No GPU is needed.
 *
 * The driver's files are compiled into the test, since builds without nvcc do not have them. */
#define _GNU_SOURCE /* popen, realpath */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/gpu/cuda/cuda_api.h"
#include "backend/gpu/driver.h"
#include "backend/gpu/kernels/list.h"
#include "fake_cuda.h"

static const unsigned char image[16];
const ae_gpu_image ae_gpu_images[2] = {{image, image + sizeof image}, {image, image + sizeof image}};
const size_t ae_gpu_n_images = 2;

static const ae_gpu_driver *const cuda = &ae_gpu_driver_cuda;
static fake_cuda *fake;

static int find_fake(void **state)
{
    (void)state;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    fake = library ? dlsym(library, "fake_cuda_state") : NULL;
    if (!fake) print_message("no fake libcuda.so.1: run by ctest\n");
    return fake ? 0 : -1;
}

static int reset(void **state)
{
    (void)state;
    *fake = (fake_cuda){.version = 13000, .n_devices = 2, .n_left = SIZE_MAX};
    return 0;
}

static void assert_nothing_left(void)
{
    assert_int_equal(fake->n_memory, 0);
    assert_int_equal(fake->n_pinned, 0);
    assert_int_equal(fake->n_streams, 0);
    assert_int_equal(fake->n_events, 0);
    assert_int_equal(fake->n_graphs, 0);
    assert_int_equal(fake->n_execs, 0);
    assert_int_equal(fake->n_modules, 0);
    assert_int_equal(fake->n_contexts, 0);
    assert_false(fake->capturing);
}

/* Calls everything once. After a failure it goes on where possible; returns the first failure, also of calls that return
 * NULL. */
static aerie_status use_everything(aerie_error *error)
{
    enum { N = 1000 };
    static uint8_t host[N], back[N];
    uint32_t n = 0;
    ae_gpu_device *device;
    ae_gpu_facts facts;
    ae_gpu_recording *recording = NULL;
    const uint32_t grid[3] = {3, 2, 1};
    const uint64_t args = 7;
    for (uint32_t i = 0; i < N; i++) host[i] = (uint8_t)(i * 7);
    AE_TRY(cuda->count(&n, error));
    AE_TRY(cuda->open(n - 1, &device, &facts, error));
    uint64_t n_free, n_total;
    cuda->memory_info(device, &n_free, &n_total);
    uint8_t *memory = cuda->alloc(device, 2 * N), *pinned = cuda->alloc_pinned(device, N);
    aerie_status status = memory && pinned ? AERIE_OK : ae_fail_memory(error, "the test", N);
#define DO(call) \
    if (status == AERIE_OK) status = cuda->call
    DO(fill(device, memory, host, N, error));
    DO(copy_out(device, pinned, memory, N, error));
    DO(mark(device, 5, error));
    DO(sync(device, error));
    if (status == AERIE_OK) memcpy(back, pinned, N);
    if (status == AERIE_OK) assert_memory_equal(back, host, N);
    DO(copy_in(device, memory + N, pinned, N, error));
    DO(zero(device, memory, N / 2, error));
    DO(launch(device, 0, grid, 512, &args, error));
    DO(mark(device, 6, error));
    DO(sync(device, error));
    const double seconds = cuda->elapsed(device, 5, 6);
    assert_true(status != AERIE_OK || seconds == 0 || (seconds > 0.00149 && seconds < 0.00151));
    DO(record_begin(device, error));
    if (status == AERIE_OK) {
        status = cuda->launch(device, 0, grid, 0, &args, error);
        aerie_error other;
        const aerie_status ended = cuda->record_end(device, &recording, &other);
        if (status == AERIE_OK && ended != AERIE_OK) status = ended, *error = other;
    }
    DO(replay(device, recording, error));
    DO(sync(device, error));
#undef DO
    cuda->recording_free(device, recording);
    cuda->free(device, memory);
    cuda->free_pinned(device, pinned);
    cuda->close(device);
    return status;
}

static void test_does_everything(void **state)
{
    (void)state;
    aerie_error error = {0};
    if (use_everything(&error) != AERIE_OK) fail_msg("%s", error.text);
    assert_nothing_left();
    assert_int_equal(fake->n_launches, 1);
    assert_int_equal(fake->n_captured, 1);
    assert_int_equal(fake->n_replays, 1);
    assert_int_equal(fake->grid[0], 3);
    assert_int_equal(fake->grid[1], 2);
}

/* Whichever call fails, everything is released, and the sentence names the call. */
static void test_every_call_fails(void **state)
{
    (void)state;
    unsigned n_calls, n_seen = 0;
    aerie_error error = {0};
    assert_int_equal(use_everything(&error), AERIE_OK);
    n_calls = fake->n_calls;
    for (unsigned i = 1; i <= n_calls; i++) {
        reset(NULL);
        fake->fail_at = i;
        fake->fail_with = i % 3 ? 700 : i % 2 ? AE_CU_OUT_OF_MEMORY : 9999;
        error = (aerie_error){0};
        const aerie_status status = use_everything(&error);
        assert_nothing_left();
        if (status == AERIE_OK) continue; /* a call that only releases something, or returns a number that may be unknown */
        n_seen++;
        if (!*error.text || error.status != status) fail_msg("call %u, %s: no sentence", i, fake->failed);
        if (fake->fail_with == AE_CU_OUT_OF_MEMORY && status != AERIE_ERROR_MEMORY)
            fail_msg("call %u, %s: %s", i, fake->failed, error.text);
    }
    assert_true(n_seen > 30);
}

/* The context belongs to the calling thread after any call; memory is zeroed; none left is NULL. */
static void test_memory(void **state)
{
    (void)state;
    ae_gpu_device *device;
    ae_gpu_facts facts;
    uint64_t n_free, n_total;
    assert_int_equal(cuda->open(0, &device, &facts, NULL), AERIE_OK);
    assert_string_equal(facts.name, "Fake GPU, compute capability 9.0, driver for CUDA 13.0");
    assert_int_equal(facts.n_multiprocessors, 132);
    assert_int_equal(facts.max_shared_bytes, 227 << 10);
    assert_true(facts.int8_mma);
    cuda->memory_info(device, &n_free, &n_total);
    assert_true(n_free == 70000000000 && n_total == 80000000000);
    fake->n_left = 5000;
    uint8_t *memory = cuda->alloc(device, 4000);
    for (uint32_t i = 0; i < 4000; i++) assert_int_equal(memory[i], 0);
    assert_null(cuda->alloc(device, 4000));
    uint8_t *nothing = cuda->alloc(device, 0);
    assert_non_null(nothing);
    cuda->free(device, memory);
    cuda->free(device, nothing);
    cuda->free(device, NULL);
    cuda->free_pinned(device, NULL);
    cuda->close(device);
    assert_nothing_left();
}

/* A device that hangs is given up after the limit. Nothing that CUDA would wait for is called from then on, so what the device
 * has stays with it, unless it comes back. */
static void test_hang(void **state)
{
    (void)state;
    for (int comes_back = 0; comes_back < 2; comes_back++) {
        aerie_error error = {0};
        ae_gpu_device *device;
        ae_gpu_facts facts;
        reset(NULL);
        setenv("AERIE_GPU_LIMIT", "0.05", 1);
        assert_int_equal(cuda->open(0, &device, &facts, &error), AERIE_OK);
        unsetenv("AERIE_GPU_LIMIT");
        void *memory = cuda->alloc(device, 100), *pinned = cuda->alloc_pinned(device, 100);
        ae_gpu_recording *recording = NULL;
        assert_int_equal(cuda->record_begin(device, &error), AERIE_OK);
        assert_int_equal(cuda->zero(device, memory, 4, &error), AERIE_OK);
        assert_int_equal(cuda->record_end(device, &recording, &error), AERIE_OK);
        assert_true(memory && pinned && recording);
        fake->hangs = true;
        assert_int_equal(cuda->sync(device, &error), AERIE_ERROR_INTERNAL);
        assert_non_null(strstr(error.text, "the device made no progress for 0.05 s and is given up"));
        assert_int_equal(cuda->fill(device, memory, "abc", 3, &error), AERIE_ERROR_INTERNAL);
        assert_int_equal(cuda->copy_in(device, memory, pinned, 3, &error), AERIE_ERROR_INTERNAL);
        assert_int_equal(cuda->replay(device, recording, &error), AERIE_ERROR_INTERNAL);
        assert_non_null(strstr(error.text, "is given up"));
        assert_null(cuda->alloc(device, 1));
        if (comes_back) fake->hangs = false;
        cuda->recording_free(device, recording);
        cuda->free(device, memory);
        cuda->free_pinned(device, pinned);
        assert_int_equal(fake->n_memory + fake->n_pinned + fake->n_execs, comes_back ? 0 : 3);
        cuda->close(device);
        if (comes_back) assert_nothing_left();
        else assert_int_equal(fake->n_contexts, 1);
        if (!comes_back) { /* it is not opened again before it answers */
            assert_int_equal(cuda->open(0, &device, &facts, &error), AERIE_ERROR_INTERNAL);
            assert_non_null(strstr(error.text, "CUDA device 0 made no progress and was given up"));
        }
        fake->hangs = false;
        assert_int_equal(cuda->open(0, &device, &facts, &error), AERIE_OK);
        cuda->close(device);
        assert_int_equal(fake->n_contexts, 0);
        if (!comes_back) { /* the context's end does this on a real device */
            free(memory);
            free(pinned);
        }
    }
}

/* Memory that is new is zeroed, which may hang, too. */
static void test_hang_in_a_fill(void **state)
{
    (void)state;
    aerie_error error = {0};
    ae_gpu_device *device;
    ae_gpu_facts facts;
    reset(NULL);
    setenv("AERIE_GPU_LIMIT", "0.05", 1);
    assert_int_equal(cuda->open(0, &device, &facts, &error), AERIE_OK);
    void *memory = cuda->alloc(device, 100);
    fake->hangs = true;
    assert_int_equal(cuda->fill(device, memory, "abc", 3, &error), AERIE_ERROR_INTERNAL);
    assert_non_null(strstr(error.text, "is given up"));
    fake->hangs = false;
    cuda->free(device, memory);
    cuda->close(device);
    assert_nothing_left();
    setenv("AERIE_GPU_LIMIT", "0", 1); /* none: CUDA waits */
    assert_int_equal(cuda->open(0, &device, &facts, &error), AERIE_OK);
    fake->hangs = true;
    assert_int_equal(cuda->sync(device, &error), AERIE_OK);
    fake->hangs = false;
    cuda->close(device);
    unsetenv("AERIE_GPU_LIMIT");
    assert_nothing_left();
}

static void assert_open_says(aerie_status expected, const char *part)
{
    aerie_error error = {0};
    ae_gpu_device *device;
    ae_gpu_facts facts;
    assert_int_equal(cuda->open(0, &device, &facts, &error), expected);
    assert_null(device);
    if (!strstr(error.text, part)) fail_msg("\"%s\" lacks \"%s\"", error.text, part);
    assert_nothing_left();
}

static void test_sentences(void **state)
{
    (void)state;
    uint32_t n = 9;
    fake->load_result = AE_CU_NO_BINARY;
    assert_open_says(AERIE_ERROR_UNSUPPORTED, "none that run on Fake GPU (sm_90) with a driver for CUDA 13.0");
    fake->load_result = AE_CU_OUT_OF_MEMORY;
    assert_open_says(AERIE_ERROR_MEMORY, "cuModuleLoadData: out of memory");
    fake->load_result = 0;
    if (AE_GPU_N_KERNELS) {
#define FIRST(name, args, threads) if (!*fake->missing) strcpy(fake->missing, "ae_" #name);
        AE_GPU_KERNELS(FIRST)
#undef FIRST
        assert_open_says(AERIE_ERROR_INTERNAL, "the embedded kernels lack ae_");
        fake->missing[0] = 0;
    }
    fake->n_devices = 0;
    assert_int_equal(cuda->count(&n, NULL), AERIE_OK);
    assert_int_equal(n, 0);
    assert_open_says(AERIE_ERROR_INTERNAL, "cuDeviceGet: a failure that the test wanted");
}

/* ---- What is seen only before the library is loaded: in processes of their own ------------------------------- */

static int say_error(void)
{
    aerie_error error = {0};
    uint32_t n;
    const aerie_status status = cuda->count(&n, &error);
    printf("%s %s\n", ae_status_name(status), status == AERIE_OK ? "" : error.text);
    return 0;
}

static char self[4096];

static void assert_prints(const char *settings, const char *part)
{
    char command[8192], line[1024] = "";
    snprintf(command, sizeof command, "%s '%s' error", settings, self);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(line, sizeof line, pipe));
    pclose(pipe);
    if (!strstr(line, part)) fail_msg("\"%s\" lacks \"%s\"", line, part);
}

static void test_library(void **state)
{
    (void)state;
    assert_prints("FAKE_CUDA_VERSION=11040", "ERROR_UNSUPPORTED the NVIDIA driver is too old: it is for CUDA 11.4, and 12.0");
    assert_prints("FAKE_CUDA_VERSION=12080", "OK");
    assert_prints("FAKE_CUDA_INIT=803", "ERROR_UNSUPPORTED cuInit: a failure that the test wanted");
    assert_prints("FAKE_CUDA_INIT=100", "OK");
    void *real = dlopen("/usr/local/nvidia/lib64/libcuda.so.1", RTLD_LAZY);
    if (!real && access("/usr/lib/x86_64-linux-gnu/libcuda.so.1", R_OK) && access("/usr/lib/wsl/lib/libcuda.so.1", R_OK))
        assert_prints("env -u LD_LIBRARY_PATH", "ERROR_UNSUPPORTED libcuda.so.1 is not here: no NVIDIA driver is installed");
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "error")) return say_error();
    if (!realpath(argv[0], self)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_does_everything, reset), cmocka_unit_test_setup(test_every_call_fails, reset),
        cmocka_unit_test_setup(test_memory, reset), cmocka_unit_test_setup(test_hang, reset),
        cmocka_unit_test_setup(test_hang_in_a_fill, reset),          cmocka_unit_test_setup(test_sentences, reset),
        cmocka_unit_test(test_library),
    };
    return cmocka_run_group_tests(tests, find_fake, NULL);
}

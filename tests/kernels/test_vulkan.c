/* test_vulkan.c - the driver "vulkan": the examination, what is added to shaders, and, on the first device of the machine
 * (Mesa's lavapipe will do), memory, copies, launches, recordings, and what is said when a call fails. Without a device those
 * are skipped; a device that the machine lists must open. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#ifdef AE_GPU_VULKAN

#include "backend/alloc_fail.h"
#include "backend/gpu/gpu.h"
#include "backend/gpu/limit.h"
#include "backend/gpu/vulkan/exam.h"
#include "base/mem.h"

#define N AE_VK_EXAM_N

static const ae_gpu_driver *const vulkan = &ae_gpu_driver_vulkan;

/* ---- The examination, without a device -------------------------------------------------------------- */

static void test_exam(void **state)
{
    (void)state;
    const size_t n = (size_t)AE_VK_EXAM_OPERATIONS * N;
    uint32_t *in = calloc(3 * N, 4), *want = calloc(n, 4), *got = calloc(n, 4);
    assert_true(in && want && got);
    ae_vk_exam_inputs(in, in + N, in + 2 * N);
    ae_vk_exam_expect(in, in + N, in + 2 * N, want);
    memcpy(got, want, n * 4);
    assert_int_equal(ae_vk_exam_compare(want, got), 0);
    for (uint32_t j = 0; j < AE_VK_EXAM_OPERATIONS; j++) { /* one bit of one result */
        uint32_t at = j * N + (977 * j + 1500) % N;
        while ((want[at] & 0x7f800000) == 0x7f800000) at = at + 1 < (j + 1) * N ? at + 1 : j * N; /* no NaN */
        got[at] ^= 1;
        assert_int_equal(ae_vk_exam_compare(want, got), 1u << j);
        got[at] ^= 1;
        assert_true(strlen(ae_vk_exam_name(j)) > 2);
    }
    for (size_t i = 0; i < N; i++) /* any NaN is as good as another */
        if ((want[i] & 0x7fffffff) > 0x7f800000) got[i] = 0xffc12345;
    assert_int_equal(ae_vk_exam_compare(want, got), 0);
    assert_int_equal(ae_vk_exam_repairs(1u << 4), 1);        /* fma */
    assert_int_equal(ae_vk_exam_repairs(1u << 5), 2);        /* division */
    assert_int_equal(ae_vk_exam_repairs(1u << 6), 2);        /* square roots */
    assert_int_equal(ae_vk_exam_repairs(1u << 0 | 1u << 7), 0); /* nothing helps */
    free(in), free(want), free(got);
}

/* ---- Shaders, without a device ---------------------------------------------------------------------- */

static size_t count(const uint32_t *words, size_t n, uint32_t opcode, size_t at, uint32_t value)
{
    size_t found = 0;
    for (size_t i = 5; i < n; i += words[i] >> 16) {
        assert_true(words[i] >> 16 && (words[i] >> 16) <= n - i);
        if ((words[i] & 0xffff) == opcode && (!at || ((words[i] >> 16) > at && words[i + at] == value))) found++;
    }
    return found;
}

static void test_spirv(void **state)
{
    (void)state;
    const VkPhysicalDeviceFloatControlsProperties none = {0};
    VkPhysicalDeviceFloatControlsProperties all;
    memset(&all, 0xFF, sizeof all);
    all.roundingModeIndependence = all.denormBehaviorIndependence = VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_ALL;
    assert_true(ae_vk_n_images > 8);
    for (size_t i = 0; i < ae_vk_n_images; i++) {
        const uint32_t *words = (const uint32_t *)(const void *)ae_vk_images[i].bytes;
        const size_t n = (size_t)(ae_vk_images[i].end - ae_vk_images[i].bytes) / 4;
        size_t n_plain = n, n_all = n;
        aerie_error error = {0};
        uint32_t *plain = ae_vk_spirv_prepare(words, &n_plain, &none, &error);
        uint32_t *full = ae_vk_spirv_prepare(words, &n_all, &all, &error);
        assert_true(plain && full);
        size_t n_steps = 0;
        const uint32_t opcodes[] = {127, 129, 131, 133, 136}; /* OpFNegate, OpFAdd, OpFSub, OpFMul, OpFDiv */
        for (int j = 0; j < 5; j++) n_steps += count(words, n, opcodes[j], 0, 0);
        n_steps += count(words, n, 12, 4, 50) + count(words, n, 12, 4, 31); /* Fma and Sqrt of GLSL.std.450 */
        assert_int_equal(count(plain, n_plain, 71, 2, 42), n_steps); /* OpDecorate .. NoContraction */
        assert_int_equal(count(full, n_all, 71, 2, 42), n_steps);
        assert_int_equal(count(words, n, 71, 2, 42), 0);
        /* Round, RoundEven, Trunc, Floor, Ceil, Fract: some drivers compute them wrongly */
        const uint32_t roundings[] = {1, 2, 3, 8, 9, 10};
        for (int j = 0; j < 6; j++) assert_int_equal(count(words, n, 12, 4, roundings[j]), 0);
        for (uint32_t mode = 4459; mode <= 4462; mode++)
            assert_int_equal(count(full, n_all, 16, 2, mode) - count(plain, n_plain, 16, 2, mode), mode == 4460 ? 0 : 3);
        ae_free(plain), ae_free(full);
        for (size_t cut = 0; cut < n; cut += 1 + n / 61) { /* a cut module is refused or still valid */
            size_t m = cut;
            uint32_t *less = ae_vk_spirv_prepare(words, &m, &all, &error);
            if (!less) assert_non_null(strstr(error.text, "not a module of SPIR-V"));
            ae_free(less);
        }
    }
}

/* ---- On a device ------------------------------------------------------------------------------------ */

static ae_gpu_device *device;
static ae_gpu_facts facts;

static int open_device(void **state)
{
    aerie_error error = {0};
    uint32_t n = 0;
    (void)state;
    const aerie_status status = vulkan->count(&n, &error);
    if (status != AERIE_OK || !n) {
        print_message("skip: %s\n", n ? "no device" : error.text);
        return 0;
    }
    if (vulkan->open(0, &device, &facts, &error) != AERIE_OK) {
        print_error("%s\n", error.text);
        return 1;
    }
    print_message("%s\n", facts.name);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    vulkan->close(device);
    device = NULL;
    return 0;
}

#define NEED_DEVICE \
    aerie_error error = {0}; \
    (void)state; \
    if (!device) skip()

static void must(aerie_status status, const aerie_error *error)
{
    if (status != AERIE_OK) fail_msg("%s", error->text);
}

static void test_memory(void **state)
{
    NEED_DEVICE;
    uint8_t bytes[700], *pinned = vulkan->alloc_pinned(device, 4096);
    uint64_t left, total;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7 + 1);
    assert_non_null(pinned);
    uint8_t *x = vulkan->alloc(device, 701), *y = vulkan->alloc(device, 1), *none = vulkan->alloc(device, 0);
    assert_true(x && y && none && (uintptr_t)x % 256 == 0 && (uintptr_t)y % 256 == 0);
    memset(pinned, 0xEE, 4096);
    must(vulkan->copy_out(device, pinned + 3, x, 701, &error), &error);
    must(vulkan->sync(device, &error), &error);
    for (int i = 0; i < 710; i++) assert_int_equal(pinned[i], i < 3 || i >= 704 ? 0xEE : 0); /* memory is zeroed */
    must(vulkan->fill(device, x + 1, bytes, 700, &error), &error);
    must(vulkan->zero(device, x + 8, 12, &error), &error);
    memcpy(pinned + 2000, bytes, 5);
    must(vulkan->copy_in(device, x + 696, pinned + 2000, 5, &error), &error);
    must(vulkan->copy_out(device, pinned, x, 701, &error), &error);
    must(vulkan->sync(device, &error), &error);
    for (int i = 0; i < 701; i++)
        assert_int_equal(pinned[i], i == 0 || (i >= 8 && i < 20) ? 0 : i >= 696 ? bytes[i - 696] : bytes[i - 1]);
    assert_int_equal(vulkan->copy_out(device, pinned, x + 600, 102, &error), AERIE_ERROR_INTERNAL); /* past its end */
    assert_int_equal(vulkan->copy_in(device, x, bytes, 4, &error), AERIE_ERROR_INTERNAL);           /* not pinned */
    assert_int_equal(vulkan->zero(device, x + 1, 4, &error), AERIE_ERROR_INTERNAL);                 /* no words */
    assert_int_equal(vulkan->fill(device, x + 700, bytes, 2, &error), AERIE_ERROR_INTERNAL);
    assert_null(vulkan->alloc(device, SIZE_MAX));
    assert_null(vulkan->alloc(device, (size_t)1 << 60));
    vulkan->memory_info(device, &left, &total);
    assert_true(total && left <= total);
    void *many[200];
    for (int i = 0; i < 200; i++) assert_non_null(many[i] = vulkan->alloc(device, 64 + (size_t)i * 100));
    for (int i = 0; i < 200; i++) vulkan->free(device, many[i * 7 % 200]);
    vulkan->free(device, none), vulkan->free(device, y), vulkan->free(device, x), vulkan->free_pinned(device, pinned);
    vulkan->free(device, NULL), vulkan->free_pinned(device, NULL);
}

#define ROWS 3000u /* more launches than a batch has */

/* y += x by many launches, each one float: in order, and all of them. */
static void test_queue(void **state)
{
    NEED_DEVICE;
    float *pinned = vulkan->alloc_pinned(device, 64);
    float *x = vulkan->alloc(device, 64), *y = vulkan->alloc(device, 64), one = 1;
    assert_true(pinned && x && y);
    must(vulkan->fill(device, x, &one, sizeof one, &error), &error);
    const ae_gpu_axpy_args add = {.x = x, .y = y, .x_stride = 1, .y_stride = 1, .dim = 1, .a = 1};
    const uint32_t grid[3] = {1, 1, 1};
    must(vulkan->mark(device, 5, &error), &error);
    for (uint32_t i = 0; i < ROWS; i++) must(vulkan->launch(device, AE_GPU_axpy_rows, grid, 0, &add, &error), &error);
    must(vulkan->mark(device, 6, &error), &error);
    ae_gpu_recording *r = NULL;
    must(vulkan->record_begin(device, &error), &error);
    assert_int_equal(vulkan->sync(device, &error), AERIE_ERROR_INTERNAL);
    assert_int_equal(vulkan->mark(device, 0, &error), AERIE_ERROR_INTERNAL);
    assert_int_equal(vulkan->record_begin(device, &error), AERIE_ERROR_INTERNAL);
    for (uint32_t i = 0; i < ROWS; i++) must(vulkan->launch(device, AE_GPU_axpy_rows, grid, 0, &add, &error), &error);
    must(vulkan->record_end(device, &r, &error), &error);
    assert_int_equal(vulkan->record_end(device, &(ae_gpu_recording *){NULL}, &error), AERIE_ERROR_INTERNAL);
    for (int i = 0; i < 3; i++) must(vulkan->replay(device, r, &error), &error);
    must(vulkan->copy_out(device, pinned, y, sizeof one, &error), &error);
    must(vulkan->sync(device, &error), &error);
    assert_true(*pinned == 4.0f * ROWS);
    const double seconds = vulkan->elapsed(device, 5, 6);
    assert_true(seconds > 0 && seconds < 600);
    assert_true(vulkan->elapsed(device, 100, 101) == 0); /* no such marks */
    vulkan->recording_free(device, r), vulkan->recording_free(device, NULL);
    vulkan->free(device, x), vulkan->free(device, y), vulkan->free_pinned(device, pinned);
}

/* A grid that is wider than a device's. */
static void test_wide_grid(void **state)
{
    NEED_DEVICE;
    const uint32_t n = 3 * 4096 + 17, most = device->max_groups[0];
    float *x = vulkan->alloc(device, n * sizeof *x), *pinned = vulkan->alloc_pinned(device, n * sizeof *pinned);
    const ae_gpu_map_args zero = {.x = x, .x_stride = 1, .dim = 1, .kind = AE_MAP_ZERO};
    assert_true(x && pinned);
    for (uint32_t i = 0; i < n; i++) pinned[i] = (float)i + 1;
    must(vulkan->copy_in(device, x, pinned, n * sizeof *x, &error), &error);
    if (most > 4096) device->max_groups[0] = 4096;
    must(vulkan->launch(device, AE_GPU_map_rows, (const uint32_t[3]){n - 1, 1, 1}, 0, &zero, &error), &error);
    must(vulkan->copy_out(device, pinned, x, n * sizeof *x, &error), &error);
    must(vulkan->sync(device, &error), &error);
    device->max_groups[0] = most;
    for (uint32_t i = 0; i < n; i++)
        if (pinned[i] != (i + 1 < n ? 0.0f : (float)n)) fail_msg("element %u is %g", i, (double)pinned[i]);
    vulkan->free(device, x), vulkan->free_pinned(device, pinned);
}

/* ---- Models that share a device --------------------------------------------------------------------- */

typedef struct user {
    ae_gpu_device *d;
    float sum;
} user;

/* Adds 1 to a float ROWS times, by launches and in the end by replays, while others do the same. */
static void *add_up(void *arg)
{
    user *u = arg;
    const uint32_t grid[3] = {1, 1, 1};
    const float one = 1;
    aerie_error error = {0};
    ae_gpu_recording *r = NULL;
    float *pinned = vulkan->alloc_pinned(u->d, 64), *x = vulkan->alloc(u->d, 64), *y = vulkan->alloc(u->d, 64);
    const ae_gpu_axpy_args add = {.x = x, .y = y, .x_stride = 1, .y_stride = 1, .dim = 1, .a = 1};
    bool ok = pinned && x && y && vulkan->fill(u->d, x, &one, sizeof one, &error) == AERIE_OK;
    for (uint32_t i = 0; ok && i < ROWS - 20; i++) {
        ok = vulkan->launch(u->d, AE_GPU_axpy_rows, grid, 0, &add, &error) == AERIE_OK;
        if (ok && i % 100 == 0) ok = vulkan->sync(u->d, &error) == AERIE_OK;
    }
    ok = ok && vulkan->record_begin(u->d, &error) == AERIE_OK;
    ok = ok && vulkan->launch(u->d, AE_GPU_axpy_rows, grid, 0, &add, &error) == AERIE_OK;
    ok = ok && vulkan->record_end(u->d, &r, &error) == AERIE_OK;
    for (int i = 0; ok && i < 20; i++) ok = vulkan->replay(u->d, r, &error) == AERIE_OK;
    ok = ok && vulkan->copy_out(u->d, pinned, y, sizeof one, &error) == AERIE_OK;
    ok = ok && vulkan->sync(u->d, &error) == AERIE_OK;
    u->sum = ok ? *pinned : -1;
    vulkan->recording_free(u->d, r);
    vulkan->free(u->d, x), vulkan->free(u->d, y), vulkan->free_pinned(u->d, pinned);
    return NULL;
}

/* Models on one device have their own memory and recordings, and share the queue, the pipelines and what is free. */
static void test_shared(void **state)
{
    NEED_DEVICE;
    enum { N_USERS = 3 };
    user users[N_USERS];
    pthread_t threads[N_USERS];
    uint64_t before, after, total;
    ae_gpu_facts facts_here;
    for (int i = 0; i < N_USERS; i++) {
        must(vulkan->open(0, &users[i].d, &facts_here, &error), &error);
        assert_string_equal(facts_here.name, facts.name);
        assert_true(users[i].d != device && users[i].d->shared == device->shared);
    }
    if (!device->has_budget) {
        vulkan->memory_info(users[0].d, &before, &total);
        void *x = vulkan->alloc(device, 5000000);
        vulkan->memory_info(users[0].d, &after, &total);
        assert_true(x && before - after == 5000000);
        vulkan->free(device, x);
        vulkan->memory_info(users[0].d, &after, &total);
        assert_true(before == after);
    }
    for (int i = 0; i < N_USERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, add_up, &users[i]), 0);
    for (int i = 0; i < N_USERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        if (users[i].sum != (float)ROWS) fail_msg("model %d: %g", i, (double)users[i].sum);
        assert_true(users[i].d->pipelines[AE_GPU_axpy_rows] == device->shared->pipelines[AE_GPU_axpy_rows]);
        vulkan->close(users[i].d);
    }
}

/* ---- Failures --------------------------------------------------------------------------------------- */

static PFN_vkAllocateMemory allocate_really;
static int n_allocations; /* that succeed; then they fail */

static VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice d, const VkMemoryAllocateInfo *info, const VkAllocationCallbacks *a,
                                               VkDeviceMemory *memory)
{
    return n_allocations-- > 0 ? allocate_really(d, info, a, memory) : VK_ERROR_OUT_OF_DEVICE_MEMORY;
}

static void test_out_of_memory(void **state)
{
    NEED_DEVICE;
    allocate_really = device->call.AllocateMemory;
    device->call.AllocateMemory = allocate;
    n_allocations = 1;
    void *x = vulkan->alloc(device, 100), *y = vulkan->alloc(device, 100), *z = vulkan->alloc_pinned(device, 100);
    assert_true(x && !y && !z);
    ae_gpu_recording *r = NULL;
    must(vulkan->record_begin(device, &error), &error);
    const ae_gpu_axpy_args add = {.x = x, .y = x, .x_stride = 1, .y_stride = 1, .dim = 1, .a = 1};
    assert_int_equal(vulkan->launch(device, AE_GPU_axpy_rows, (const uint32_t[3]){1, 1, 1}, 0, &add, &error),
                     AERIE_ERROR_MEMORY);
    assert_non_null(strstr(error.text, "vkAllocateMemory: VK_ERROR_OUT_OF_DEVICE_MEMORY"));
    must(vulkan->record_end(device, &r, &error), &error);
    vulkan->recording_free(device, r);
    device->call.AllocateMemory = allocate_really;
    y = vulkan->alloc(device, 100);
    assert_non_null(y);
    vulkan->free(device, x), vulkan->free(device, y);
    must(vulkan->sync(device, &error), &error);
}

/* A device whose blocks are small: a stream's scratch fits, and a message says what does not. */
static void test_small_blocks(void **state)
{
    NEED_DEVICE;
    ae_backend *backend;
    ae_stream *stream;
    ae_pool *pool;
    setenv("AERIE_VULKAN_BLOCK", "1", 1); /* the least that is possible: 8 MiB */
    must(ae_gpu_open(vulkan, 0, "vulkan", &backend, &error), &error);
    unsetenv("AERIE_VULKAN_BLOCK");
    must(ae_pool_create(&pool, 1, &error), &error);
    const ae_stream_options options = {.n_threads = 1, .max_rows = 64, .max_in = 256, .pool = pool};
    must(backend->ops->stream_create(backend, &options, &stream, &error), &error);
    backend->ops->stream_free(stream);
    assert_null(backend->ops->alloc(backend, (size_t)9 << 20));
    assert_int_equal(ae_backend_fail_alloc(backend, "the cache", (size_t)9 << 20, &error), AERIE_ERROR_MEMORY);
    if (!strstr(error.text, "the cache: it takes one block of 9437184 bytes, and vulkan allocates at most 8"))
        fail_msg("%s", error.text);
    ae_backend_fail_alloc(backend, "the cache", 100, &error);
    assert_string_equal(error.text, "not enough memory for the cache (100 bytes)");
    ae_backend_close(backend);
    ae_pool_free(pool);
}

static void test_lacks(void **state)
{
    NEED_DEVICE;
    assert_true(!facts.int8_mma && facts.single_queries);
    assert_int_equal(vulkan->launch(device, AE_GPU_mma_q4_0_1_8, (const uint32_t[3]){1, 1, 1}, 0, &error, &error),
                     AERIE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "--device cpu"));
    assert_int_equal(vulkan->open(999, &(ae_gpu_device *){NULL}, &(ae_gpu_facts){0}, &error), AERIE_ERROR_ARGUMENT);
}

/* A device that is slow, or hangs: waits end after the limit, and the counter of work done goes on or stops. */
static PFN_vkWaitSemaphores wait_really;
static PFN_vkGetSemaphoreCounterValue count_really;
static int n_late; /* waits that time out */
static uint64_t n_done;
static bool hangs;

static VKAPI_ATTR VkResult VKAPI_CALL wait_long(VkDevice d, const VkSemaphoreWaitInfo *info, uint64_t limit)
{
    assert_true(limit == 2000000000);
    return hangs || n_late-- > 0 ? VK_TIMEOUT : wait_really(d, info, UINT64_MAX);
}

static VKAPI_ATTR VkResult VKAPI_CALL count_done(VkDevice d, VkSemaphore semaphore, uint64_t *value)
{
    if (!hangs && n_late <= 0) return count_really(d, semaphore, value);
    *value = hangs ? 0 : ++n_done;
    return VK_SUCCESS;
}

/* comes_back: before it is closed. */
static void hang(bool comes_back)
{
    aerie_error error = {0};
    ae_gpu_device *d;
    ae_gpu_facts facts_here;
    ae_gpu_recording *r = NULL;
    setenv("AERIE_GPU_LIMIT", "2", 1);
    must(vulkan->open(0, &d, &facts_here, &error), &error);
    unsetenv("AERIE_GPU_LIMIT");
    assert_true(d->limit == 2);
    void *x = vulkan->alloc(d, 64), *y = vulkan->alloc(d, 64), *pinned = vulkan->alloc_pinned(d, 64);
    must(vulkan->record_begin(d, &error), &error);
    must(vulkan->zero(d, x, 64, &error), &error);
    must(vulkan->record_end(d, &r, &error), &error);
    wait_really = d->call.WaitSemaphores, count_really = d->call.GetSemaphoreCounterValue;
    d->call.WaitSemaphores = wait_long, d->call.GetSemaphoreCounterValue = count_done;
    n_late = 5, n_done = 0;
    must(vulkan->replay(d, r, &error), &error);
    must(vulkan->sync(d, &error), &error); /* slow, but there is progress */
    hangs = true;
    must(vulkan->replay(d, r, &error), &error);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(vulkan->sync(d, &error), AERIE_ERROR_INTERNAL);
        assert_non_null(strstr(error.text, "the device made no progress for 2 s and is given up"));
    }
    assert_int_equal(vulkan->copy_in(d, x, pinned, 64, &error), AERIE_ERROR_INTERNAL);
    const size_t n = d->blocks.n + d->pinned.n;
    vulkan->free(d, x), vulkan->free_pinned(d, pinned), vulkan->recording_free(d, r);
    assert_true(d->blocks.n + d->pinned.n == n && d->left); /* the device may still use them */
    if (comes_back) hangs = false;
    while (comes_back && ae_vk_is_stuck(d)) (void)ae_gpu_pause(0, 0); /* until what was submitted is done */
    vulkan->free(d, y);
    assert_int_equal(d->blocks.n + d->pinned.n, comes_back ? n - 1 : n);
    assert_int_equal(vulkan->sync(d, &error), AERIE_ERROR_INTERNAL); /* it is unknown which commands ran */
    d->limit = 0.05;
    if (!comes_back) assert_false(ae_vk_comes_back(d));
    hangs = false; /* or nothing would be freed */
    vulkan->close(d);
}

static void test_hang(void **state)
{
    (void)state;
    if (!device) skip();
    hang(true);
    hang(false);
}

static VKAPI_ATTR VkResult VKAPI_CALL submit_to_lost(VkQueue queue, uint32_t n, const VkSubmitInfo *submits, VkFence fence)
{
    (void)queue, (void)n, (void)submits, (void)fence;
    return VK_ERROR_DEVICE_LOST;
}

/* The last test: a lost device fails all that follows, and can be closed. */
static void test_lost(void **state)
{
    NEED_DEVICE;
    void *x = vulkan->alloc(device, 64);
    assert_non_null(x);
    device->call.QueueSubmit = submit_to_lost;
    must(vulkan->zero(device, x, 64, &error), &error);
    assert_int_equal(vulkan->sync(device, &error), AERIE_ERROR_INTERNAL);
    assert_non_null(strstr(error.text, "vkQueueSubmit: VK_ERROR_DEVICE_LOST"));
    error.text[0] = 0;
    assert_int_equal(vulkan->zero(device, x, 64, &error), AERIE_ERROR_INTERNAL);
    assert_non_null(strstr(error.text, "VK_ERROR_DEVICE_LOST"));
    assert_int_equal(vulkan->sync(device, &error), AERIE_ERROR_INTERNAL);
    vulkan->free(device, x);
    user later = {0}; /* a model that is loaded then gets the device anew */
    must(vulkan->open(0, &later.d, &(ae_gpu_facts){0}, &error), &error);
    assert_true(later.d->shared != device->shared);
    (void)add_up(&later);
    assert_true(later.sum == (float)ROWS);
    vulkan->close(later.d);
}

int main(void)
{
    const struct CMUnitTest plain[] = {cmocka_unit_test(test_exam), cmocka_unit_test(test_spirv)};
    const struct CMUnitTest on_device[] = {
        cmocka_unit_test(test_memory), cmocka_unit_test(test_queue), cmocka_unit_test(test_wide_grid),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_small_blocks),
        cmocka_unit_test(test_lacks), cmocka_unit_test(test_hang),
        cmocka_unit_test(test_lost),
    };
    /* Mesa's driver frees not all of its memory, which a leak checker can tell from ours only while its library is there. */
    (void)dlopen("libvulkan_lvp.so", RTLD_NOW | RTLD_NODELETE);
    int failed = cmocka_run_group_tests_name("without a device", plain, NULL, NULL);
    failed += cmocka_run_group_tests_name("as it is", on_device, open_device, close_device);
    setenv("AERIE_VULKAN_MAP", "0", 1); /* fills through a staging block */
    setenv("AERIE_VULKAN_REPAIRS", "1", 1);
    failed += cmocka_run_group_tests_name("unseen memory, all repairs", on_device, open_device, close_device);
    return failed;
}

#else

int main(void)
{
    puts("skip: this build has no Vulkan driver");
    return 77;
}

#endif

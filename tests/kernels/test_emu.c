/* test_emu.c - the emulation of CUDA: valid kernels give the results of CUDA under any order of threads, and broken rules are
 * reported. */
#define _DEFAULT_SOURCE /* setenv */
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

#ifdef AE_GPU_EMU
#include "backend/gpu/driver.h"
#include "backend/gpu/emu/launch.h"
#include "backend/gpu/kernels/args_rows.h"
#include "backend/gpu/kernels/list.h"
#include "base/os.h"
#include "emu_kernels.h"
#include "mkmodel.h"
#include "quant/types.h"

#ifdef __SANITIZE_THREAD__ /* it is slow, and detects faults under any order */
#define N_SEEDS 2u
#else
#define N_SEEDS 20u
#endif

#define DECLARE(name, args, threads) \
    void ae_emu_##name(const void *a); \
    extern const ae_emu_facts ae_emu_facts_##name; \
    static const ae_emu_kernel name = {#name, ae_emu_##name, &ae_emu_facts_##name};
EMU_KERNELS(DECLARE)

static ae_emu_engine *engine;
static char report[AE_EMU_REPORT];
static uint64_t random_state = 1;

static uint32_t word(void)
{
    return (uint32_t)(mk_random(&random_state) >> 32);
}

static bool run(const ae_emu_kernel *kernel, uint32_t n_blocks, uint32_t n_shared, uint64_t seed, const void *args)
{
    return ae_emu_run(engine, kernel, (const uint32_t[3]){n_blocks, 1, 1}, n_shared, seed, args, report);
}

static int setup(void **state)
{
    (void)state;
    engine = ae_emu_engine_create();
    return !engine;
}

static int teardown(void **state)
{
    (void)state;
    ae_emu_engine_free(engine);
    return 0;
}

/* ---- What kernels may do ------------------------------------------------------------------------------------------------ */

static void test_mma(void **state)
{
    (void)state;
    for (uint32_t k = 16; k <= 32; k += 16)
        for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
            int8_t a[16 * 32], b[8 * 32];
            int32_t c[16 * 8], want[16 * 8];
            for (uint32_t i = 0; i < 16 * k; i++) a[i] = (int8_t)(seed == 1 ? -128 : (int)word());
            for (uint32_t i = 0; i < 8 * k; i++) b[i] = (int8_t)(seed == 1 ? -128 : (int)word());
            for (uint32_t i = 0; i < 128; i++) {
                uint32_t sum = (uint32_t)(c[i] = (int32_t)(seed % 2 ? word() : word() % 1000));
                for (uint32_t j = 0; j < k; j++) sum += (uint32_t)(a[i / 8 * k + j] * b[i % 8 * k + j]);
                want[i] = (int32_t)sum;
            }
            assert_true(run(&t_mma, 1, 0, seed, &(emu_mma_args){a, b, c, k}));
            assert_memory_equal(c, want, sizeof c);
        }
}

/* The fold of t_shfl at one distance. */
static void fold(uint32_t v[64][4], uint32_t distance)
{
    uint32_t before[64][4];
    memcpy(before, v, sizeof before);
    for (uint32_t t = 0; t < 64; t++)
        for (uint32_t i = 0; i < 4; i++) v[t][i] = (3 + 2 * i) * before[t][i] + before[t ^ distance][i];
}

static void test_shfl(void **state)
{
    (void)state;
    uint32_t v[64][4], three[64], four[64];
    for (uint32_t t = 0; t < 64; t++) v[t][0] = t, v[t][1] = t * t, v[t][2] = t + 1000, v[t][3] = t ^ 77;
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t d = 16; d; d /= 2) fold(v, d);
    for (uint32_t t = 0; t < 64; t++) three[t] = v[t][0] ^ v[t][1] ^ v[t][2] ^ v[t][3];
    for (uint32_t d = 2; d <= 8; d *= 2) fold(v, d);
    for (uint32_t t = 0; t < 64; t++) four[t] = v[t][0] ^ v[t][1] ^ v[t][2] ^ v[t][3];
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        uint32_t in[64], out[512];
        for (uint32_t t = 0; t < 64; t++) in[t] = word() % 32;
        assert_true(run(&t_shfl, 1, 0, seed, &(emu_words_args){in, out, 64, 0}));
        for (uint32_t t = 0; t < 64; t++) {
            const uint32_t warp = t / 32 * 32, from = warp + in[t];
            const float f = (float)from;
            assert_int_equal(out[t], from * 3);
            assert_memory_equal(&out[64 + t], &f, 4);
            assert_int_equal(out[128 + t], t ^ 5);
            assert_int_equal(out[192 + t], warp ? 1520 : 496);
            assert_int_equal(out[256 + t], three[t]);
            assert_int_equal(out[320 + t], four[t]);
            const uint32_t first = warp + t % 8;
            assert_int_equal(out[384 + t], first + 64 * (first + 8 + 64 * (first + 16 + 64 * (first + 24))));
            assert_int_equal(out[448 + t], (t ^ 9) + 3);
        }
    }
}

static void words(uint32_t what, const uint32_t *in, uint32_t *out, uint32_t n)
{
    assert_true(run(&t_words, 2, 0, 0, &(emu_words_args){in, out, n, what}));
}

static void test_halves(void **state)
{
    (void)state;
    const uint32_t n = 65536;
    uint32_t *in = malloc(n * 4), *out = malloc(n * 4);
    for (uint32_t i = 0; i < n; i++) in[i] = i;
    words(WORDS_HALF, in, out, n);
    for (uint32_t i = 0; i < n; i++) {
        const float want = ae_f16_to_f32((uint16_t)i);
        if (!isnan(want)) assert_memory_equal(&want, &out[i], 4);
        else assert_true((out[i] & 0x7fffffff) > 0x7f800000);
    }
    for (uint32_t round = 0; round < 8; round++) {
        for (uint32_t i = 0; i < n; i++) { /* around the middle between two halves, and anything */
            const float low = ae_f16_to_f32((uint16_t)i), high = ae_f16_to_f32((uint16_t)(i + 1)), middle = low / 2 + high / 2;
            memcpy(&in[i], &middle, 4);
            if (round == 7) in[i] = word();
            else if (i % 0x8000 < 0x7c00) in[i] += round - 3;
        }
        words(WORDS_TO_HALF, in, out, n);
        for (uint32_t i = 0; i < n; i++) {
            float f;
            memcpy(&f, &in[i], 4);
            if (!isnan(f)) assert_int_equal(out[i], ae_f32_to_f16(f));
            else assert_true((out[i] & 0x7fff) > 0x7c00);
        }
    }
    free(in);
    free(out);
}

static void test_words(void **state)
{
    (void)state;
    enum { N = 10000 };
    uint32_t *in = malloc(3 * N * 4), *out = malloc(N * 4);
    for (uint32_t i = 0; i < 3 * N; i++) in[i] = word();
    words(WORDS_PERM, in, out, N);
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t s = in[3 * i + 2] >> 4 * j & 15, byte = in[3 * i + (s & 7) / 4] >> (s & 3) * 8 & 255;
            assert_int_equal(out[i] >> 8 * j & 255, s < 8 ? byte : byte >> 7 ? 255 : 0);
        }
    words(WORDS_DP4A, in, out, N);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t sum = in[3 * i + 2];
        for (uint32_t j = 0; j < 32; j += 8)
            sum += (uint32_t)(((int8_t)(in[3 * i] >> j) + (uint8_t)(in[3 * i] >> j)) * (int8_t)(in[3 * i + 1] >> j));
        assert_int_equal(out[i], sum);
    }
    words(WORDS_FMA, in, out, N);
    for (uint32_t i = 0; i < N; i++) {
        float f[3], got;
        memcpy(f, &in[3 * i], 12), memcpy(&got, &out[i], 4);
        const float want = fmaf(f[0], f[1], f[2]);
        assert_true(isnan(want) ? isnan(got) : !memcmp(&got, &want, 4));
    }
    free(in);
    free(out);
}

static void test_blocks(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        uint32_t out[2 * 30] = {0};
        assert_true(ae_emu_run(engine, &t_blocks, (const uint32_t[3]){5, 3, 2}, 4, seed, &(emu_words_args){NULL, out, 30, 0},
                               report));
        for (uint32_t i = 0; i < 30; i++) {
            assert_int_equal(out[i], i + 1);
            assert_int_equal(out[30 + i], UINT32_MAX);
        }
    }
}

static void test_plain(void **state)
{
    (void)state;
    enum { N = 1000 };
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        uint32_t in[N], out[N + 1] = {0};
        for (uint32_t i = 0; i < N; i++) in[i] = word();
        assert_true(run(&t_plain, 4, 0, seed, &(emu_words_args){in, out, N, 0}));
        for (uint32_t i = 0; i < N; i++) assert_int_equal(out[i], in[i] * 3);
        assert_int_equal(out[N], N);
    }
}

/* Under how many seeds the result is right. */
static uint32_t n_right_syncs(uint32_t what)
{
    uint32_t n_right = 0;
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        uint32_t out[128], n_equal = 0;
        assert_true(run(&t_sync, 1, 512, seed, &(emu_words_args){NULL, out, 3, what}));
        for (uint32_t t = 0; t < 128; t++) n_equal += out[t] == (t + 96) % 128 * 300 + 3;
        n_right += n_equal == 128;
    }
    return n_right;
}

static void test_sync(void **state)
{
    (void)state;
    assert_int_equal(n_right_syncs(SYNC_RIGHT), N_SEEDS);
#ifndef __SANITIZE_THREAD__ /* which reports it */
    assert_true(n_right_syncs(SYNC_FORGOTTEN) < N_SEEDS);
#endif
}

static uint32_t n_right_copies(uint32_t what)
{
    enum { N = 7 };
    uint32_t in[N * 64] __attribute__((aligned(16))), n_right = 0;
    for (uint32_t i = 0; i < N * 64; i++) in[i] = word();
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        uint32_t out[64], n_equal = 0;
        assert_true(run(&t_copy, 1, 512, seed, &(emu_words_args){in, out, N, what}));
        for (uint32_t t = 0; t < 64; t++) {
            uint32_t sum = 0;
            for (uint32_t i = 0; i < N; i++) sum += in[i * 64 + t];
            n_equal += out[t] == sum;
        }
        n_right += n_equal == 64;
    }
    return n_right;
}

static void test_copies(void **state)
{
    (void)state;
    assert_int_equal(n_right_copies(COPY_RIGHT), N_SEEDS);
    assert_int_equal(n_right_copies(COPY_TWO_GROUPS), N_SEEDS);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* which report them */
    assert_int_equal(n_right_copies(COPY_NOT_WAITED), 0);
    assert_true(n_right_copies(COPY_NOT_SYNCED) < N_SEEDS);
#endif
}

static void test_bars(void **state)
{
    (void)state;
    enum { N = 9 };
    uint32_t in[N * 64];
    for (uint32_t i = 0; i < N * 64; i++) in[i] = word();
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        uint32_t out[64];
        assert_true(run(&t_bars, 1, 512, seed, &(emu_words_args){in, out, N, 0}));
        for (uint32_t t = 0; t < 64; t++) {
            uint32_t sum = 0;
            for (uint32_t i = 0; i < N; i++) sum += in[i * 64 + ((t + 64) * 7 + 11) % 64];
            assert_int_equal(out[t], sum);
        }
    }
}

/* ---- What they may not ------------------------------------------------------------------------------------------------- */

/* Both parts are in the report, whatever the order of threads; after it the engine runs on. */
static void reported(const ae_emu_kernel *kernel, uint32_t what, const char *part, const char *other)
{
    static const uint32_t in[8] __attribute__((aligned(16)));
    uint32_t out[256];
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        assert_false(run(kernel, 2, 512, seed, &(emu_words_args){in, out, 8, what}));
        if (!strstr(report, part) || !strstr(report, other)) fail_msg("%s, seed %u: %s", part, (unsigned)seed, report);
        assert_true(run(&t_bad, 2, 512, seed, &(emu_words_args){in, out, 8, BAD_NONE}));
        for (uint32_t i = 0; i < 256; i++) assert_int_equal(out[i], i % 128);
    }
}

static void test_broken_rules(void **state)
{
    (void)state;
    reported(&t_bad, BAD_LINES, "kernel t_bad, block 1 0 0: thread ", "ae_sync (emu_kernels.cu:");
    reported(&t_bad, BAD_RETURN, "block 1 0 0: thread ", "1 threads have returned");
    reported(&t_bad, BAD_LANE, "ae_shfl (emu_kernels.cu:", "but thread 5 waits at ae_sync (emu_kernels.cu:");
    reported(&t_bad, BAD_KINDS, "ae_shfl (emu_kernels.cu:", "ae_mma_s8 (emu_kernels.cu:");
    reported(&t_bad, BAD_ALIGN, "thread 3: address ", "is not a multiple of 16 (emu_kernels.cu:");
    reported(&t_bad, BAD_COPY, "thread 4: ae_copy16 leaves the 512 bytes of shared memory", "(emu_kernels.cu:");
    reported(&t_bad, BAD_BAR, "of barrier 1 for 64 threads, but 32 have come", "ae_bar_wait (emu_kernels.cu:");
    reported(&t_bad, BAD_POST, "all threads have returned", "32 have come to barrier 2 of 64 threads");
    reported(&t_bad, BAD_COUNT, "comes to barrier 3 of ", "but others to that of ");
    reported(&t_few, 1, "ae_sync_warp (emu_kernels.cu:", "in a warp of 16 threads");
    assert_false(run(&t_blocks, 1, AE_EMU_MAX_SHARED + 4, 0, &(emu_words_args){0}));
}

/* ---- Several host threads ----------------------------------------------------------------------------------------------- */

static void *run_alone(void *unused)
{
    (void)unused;
    static const uint32_t in[9 * 64];
    char text[AE_EMU_REPORT];
    uint32_t out[128];
    bool ok = true;
    ae_emu_engine *own = ae_emu_engine_create();
    for (uint64_t seed = 0; own && seed < N_SEEDS; seed++) {
        const uint32_t grid[3] = {1, 1, 1};
        ok = ok && ae_emu_run(own, &t_bars, grid, 512, seed, &(emu_words_args){in, out, 9, 0}, text);
        ok = ok && ae_emu_run(own, &t_sync, grid, 512, seed, &(emu_words_args){NULL, out, 3, SYNC_RIGHT}, text);
        for (uint32_t t = 0; t < 128; t++) ok = ok && out[t] == (t + 96) % 128 * 300 + 3;
    }
    ae_emu_engine_free(own);
    return own && ok ? NULL : unused;
}

static void test_host_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_alone, &threads), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}

/* ---- The device --------------------------------------------------------------------------------------------------------- */

static void test_driver(void **state)
{
    (void)state;
    const ae_gpu_driver *emu = &ae_gpu_driver_emu;
    ae_gpu_device *device;
    ae_gpu_facts facts;
    aerie_error error;
    setenv("AERIE_EMU_MEMORY", "1000", 1);
    assert_int_equal(emu->open(0, &device, &facts, &error), AERIE_OK);
    unsetenv("AERIE_EMU_MEMORY");
    uint8_t *x = emu->alloc(device, 600), *y = emu->alloc(device, 400), *host = emu->alloc_pinned(device, 400);
    assert_non_null(x);
    assert_non_null(y);
    assert_int_equal((uintptr_t)x % 256 | (uintptr_t)y % 256, 0);
    assert_null(emu->alloc(device, 1));
    for (uint32_t i = 0; i < 600; i++) assert_int_equal(x[i], 0);
    for (uint32_t i = 0; i < 400; i++) host[i] = (uint8_t)(i + 1);

    ae_gpu_recording *recording;
    assert_int_equal(emu->fill(device, x, host, 400, &error), AERIE_OK);
    assert_int_equal(emu->record_begin(device, &error), AERIE_OK);
    assert_int_equal(emu->copy_out(device, y, x, 400, &error), AERIE_OK);
    assert_int_equal(emu->zero(device, x, 400, &error), AERIE_OK);
    assert_int_not_equal(emu->sync(device, &error), AERIE_OK);
    assert_int_equal(emu->record_end(device, &recording, &error), AERIE_OK);
    assert_int_equal(x[7] + y[7], 8); /* nothing has run */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(emu->copy_in(device, x, host, 400, &error), AERIE_OK);
        memset(y, 0, 400);
        assert_int_equal(emu->replay(device, recording, &error), AERIE_OK);
        assert_int_equal(emu->sync(device, &error), AERIE_OK);
        assert_memory_equal(y, host, 400);
        assert_int_equal(x[7], 0);
    }
    emu->recording_free(device, recording);
    emu->free(device, x);
    x = emu->alloc(device, 600);
    assert_non_null(x);
    emu->free(device, x);
    emu->free(device, y);
    emu->free_pinned(device, host);
    emu->close(device);
}

/* A launch that never ends: nothing after it runs, and the wait for it ends after the limit. */
static void test_hang(void **state)
{
    (void)state;
    const ae_gpu_driver *emu = &ae_gpu_driver_emu;
    ae_gpu_device *device;
    ae_gpu_facts facts;
    aerie_error error = {0};
    setenv("AERIE_EMU_HANG", "2", 1);
    setenv("AERIE_GPU_LIMIT", "0.1", 1);
    assert_int_equal(emu->open(0, &device, &facts, &error), AERIE_OK);
    unsetenv("AERIE_EMU_HANG");
    unsetenv("AERIE_GPU_LIMIT");
    float *x = emu->alloc(device, 256), one = 1;
    const ae_gpu_axpy_args add = {.x = x, .y = x, .x_stride = 1, .y_stride = 1, .dim = 1, .a = 1};
    const double start = ae_time_now();
    assert_int_equal(emu->fill(device, x, &one, sizeof one, &error), AERIE_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(emu->launch(device, AE_GPU_axpy_rows, (uint32_t[3]){1, 1, 1}, 0, &add, &error), AERIE_OK);
    assert_int_equal(emu->zero(device, x, 4, &error), AERIE_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(emu->sync(device, &error), AERIE_ERROR_INTERNAL);
        assert_non_null(strstr(error.text, "the device made no progress for 0.1 s and is given up"));
    }
    assert_true(ae_time_now() - start >= 0.1 && *x == 2); /* the first launch */
    assert_int_equal(emu->fill(device, x, &one, sizeof one, &error), AERIE_ERROR_INTERNAL);
    emu->free(device, x);
    emu->close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mma),    cmocka_unit_test(test_shfl),         cmocka_unit_test(test_halves),
        cmocka_unit_test(test_words),  cmocka_unit_test(test_blocks),       cmocka_unit_test(test_plain),
        cmocka_unit_test(test_sync),   cmocka_unit_test(test_copies),       cmocka_unit_test(test_bars),
        cmocka_unit_test(test_broken_rules), cmocka_unit_test(test_host_threads), cmocka_unit_test(test_driver),
        cmocka_unit_test(test_hang),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
#else
int main(void)
{
    return 0; /* this build has no emulation */
}
#endif

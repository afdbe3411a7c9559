/* test_kernels.c - every kernel of every level gives the reference's bits: all types, shapes, edge values.
 *
 * In the manner of dav1d's checkasm: one random input, the reference and the kernel under test, memcmp over the
 * whole output buffer with guards. Two NaNs count as equal: payloads depend on the machine. A level that this CPU lacks is
 * skipped. `--bench` times the same entries instead; `--hash` prints one number made of all outputs of the reference, which
 * must be the same on every machine. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime, for the bench */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "every.h"
#include "backend/cpu/ref/ref.h"
#include "base/math/fmath.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/pool.h"

#include "kernels_data.inc"
#include "kernels_bench.inc"

static unsigned long n_checks;
static bool hashing;
static uint64_t reference_hash = 0xCBF29CE484222325u; /* FNV-1a over the expected outputs */

static void hash_word(uint32_t word)
{
    for (int i = 0; i < 4; i++) reference_hash = (reference_hash ^ (word >> 8 * i & 255)) * 0x100000001B3u;
}

static void hash_floats(const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &want[i], 4);
        hash_word(want[i] != want[i] ? 0x7FC00000u : bits);
    }
}

static void hash_bytes(const void *want, size_t n)
{
    for (size_t i = 0; i < n; i++) hash_word(((const uint8_t *)want)[i]);
}

/* The kernels of the level under test, or skip. */
static ae_kernels level_of(void **state)
{
    const char *name = *state;
    ae_kernels k;
    bool supported;
    if (!ae_kernels_select(&k, name, &supported)) {
        print_message("skip: no level %s in this build\n", name);
        skip();
    }
    if (!supported) {
        print_message("skip: this CPU lacks %s\n", name);
        skip();
    }
    return k;
}

static bool same_floats(const float *got, const float *want, size_t n, size_t *at)
{
    n_checks++;
    if (hashing) hash_floats(want, n);
    if (!memcmp(got, want, n * sizeof *got)) return true;
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], 4) && !(got[i] != got[i] && want[i] != want[i])) {
            *at = i;
            return false;
        }
    return true;
}

/* ---- Matrix products ------------------------------------------------------------------------- */

typedef struct mm_case {
    const ae_kernels *k;
    const ae_weight *w;
    const ae_act *act;    /* of the most rows */
    const float *plain;   /* [act->n_rows][n_out] reference, no bias */
    const float *bias, *old;
} mm_case;

static void check_kernel(const mm_case *c, ae_mm_fn *mm, uint32_t n_rows, uint32_t begin, uint32_t end, bool with_bias,
                         bool add)
{
    const uint32_t n_out = c->w->n_out, stride = n_out + 5;
    const size_t n = (size_t)n_rows * stride;
    float *y = get(n, 4), *want = get(n, 4);
    for (size_t i = 0; i < n; i++) y[i] = want[i] = c->old[i % 997];
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t o = begin; o < end; o++) {
            float v = c->plain[(size_t)r * n_out + o], *at = &want[(size_t)r * stride + o];
            if (with_bias) v += c->bias[o];
            *at = add ? *at + v : v;
        }
    ae_act act = *c->act;
    act.n_rows = n_rows;
    if (mm == tiles_of(c->k, c->w)) tile_again(&act); /* the layout of rows in tiles depends on their number */
    void *scratch = ae_alloc_aligned(1, AE_MM_SCRATCH);
    assert_non_null(scratch);
    memset(scratch, 0xA5, AE_MM_SCRATCH);
    const ae_mm_out out = {.y = y, .stride = stride, .bias = with_bias ? c->bias : NULL, .add = add, .scratch = scratch};
    mm(c->w, &act, &out, begin, end);
    ae_free(scratch);
    size_t at;
    if (!same_floats(y, want, n, &at))
        fail_msg("%s%s %s: n_out %u n_in %u rows %u [%u, %u) bias %d add %d: row %zu output %zu is %a, must be %a", c->k->level,
                 mm == tiles_of(c->k, c->w) ? " (tiles)" : "", ae_type_get(c->w->type)->name, n_out, c->w->n_in, n_rows, begin,
                 end, with_bias, add, at / stride, at % stride, (double)y[at], (double)want[at]);
    ae_free(y), ae_free(want);
}

static void check_mm(const mm_case *c, uint32_t n_rows, uint32_t begin, uint32_t end, bool with_bias, bool add)
{
    ae_mm_fn *tiles = tiles_of(c->k, c->w);
    check_kernel(c, mm_of(c->k, c->w), n_rows, begin, end, with_bias, add);
    if (tiles) check_kernel(c, tiles, n_rows, begin, end, with_bias, add);
}

static float *reference(const ae_weight *w, const ae_act *act)
{
    float *y = get((size_t)act->n_rows * w->n_out, 4);
    const ae_mm_out out = {.y = y, .stride = w->n_out};
    (w->dot == AE_DOT_FLOAT ? ae_ref_mm_float : ae_ref_mm_plain)(w, act, &out, 0, w->n_out);
    return y;
}

static const uint32_t all_rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 33, 64};

static void check_shape(const ae_kernels *k, uint32_t type, uint32_t n_out, uint32_t n_in, uint32_t max_rows,
                        weights_kind wk, act_kind ak)
{
    uint8_t *plain = ae_type_get(type)->dot == AE_DOT_FLOAT ? random_floats(type, n_out, n_in)
                                                            : random_rows(type, n_out, n_in, wk);
    static bool in_order; /* by turns */
    in_order = !in_order;
    ae_weight w = weight_make(type, plain, n_out, n_in, in_order);
    w.has_scale = (n_out + n_in / 32 + in_order) % 2, w.scale = w.has_scale ? 1.37f : NAN;
    ae_act act = act_make(max_rows, n_in, ak);
    float *want = reference(&w, &act), bias[560], old[997];
    for (int i = 0; i < 560; i++) bias[i] = uniform(-1, 1);
    for (int i = 0; i < 997; i++) old[i] = uniform(-1, 1);
    const mm_case c = {k, &w, &act, want, bias, old};
    const uint32_t step = AE_TEST_EVERY > 4 ? 4 : 1; /* others for each type and shape, where not all are checked */
    for (size_t i = (type + n_out) % step; i < sizeof all_rows / sizeof all_rows[0]; i += step)
        if (all_rows[i] <= max_rows) check_mm(&c, all_rows[i], 0, n_out, i & 1, i >> 1 & 1);
    if (max_rows > 64) check_mm(&c, max_rows, 0, n_out, false, false);
    if (n_out > 32) {
        check_mm(&c, 3, 16, 32, true, true);
        check_mm(&c, 5, 32, n_out, false, false);
        check_mm(&c, 1, 16, n_out, true, false);
    }
    ae_free(want);
    act_free(&act);
    weight_free(&w);
    ae_free(plain);
}

static void check_type(const ae_kernels *k, uint32_t type)
{
    static const uint32_t outs[] = {1, 15, 16, 17, 48, 100};
    const uint32_t block = ae_type_block_elements(type);
    const uint32_t unit = ae_type_get(type)->dot == AE_DOT_256 ? 256 : block > 32 ? block : 32;
    for (size_t i = 0; i < sizeof outs / sizeof outs[0]; i++) {
        check_shape(k, type, outs[i], unit, 20, W_RANDOM, A_RANDOM);
        check_shape(k, type, outs[i], unit * 3, 20, W_RANDOM, A_RANDOM);
    }
    /* more than a run (AE_RUN), the last one short and of units of 32 not a multiple of 4 */
    const uint32_t many = AE_TEST_EVERY > 4 ? 20 : 64; /* the reference takes its time */
    for (int order = 0; order < 2; order++)
        check_shape(k, type, 48, (2144 + unit - 1) / unit * unit, many, W_RANDOM, A_RANDOM);
    check_shape(k, type, 17, 1024, many, W_RANDOM, A_RANDOM);
    check_shape(k, type, 16, unit, 200, W_RANDOM, A_RANDOM);
    if (AE_TEST_EVERY <= 4) check_shape(k, type, 560, unit * 4, 70, W_RANDOM, A_RANDOM);
    for (int i = 0; i < W_KINDS * A_KINDS; i++) /* in another order for each type, where not all are checked */
        if ((i + (int)type) % AE_TEST_EVERY == 0)
            check_shape(k, type, 19, unit * 4, 33, (weights_kind)(i / A_KINDS), (act_kind)(i % A_KINDS));
}

static void test_mm_integer(void **state)
{
    const ae_kernels k = level_of(state);
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        const ae_type_info *info = ae_type_get(type);
        if (info && (info->dot == AE_DOT_32 || info->dot == AE_DOT_256)) check_type(&k, type);
    }
}

static void test_mm_float(void **state)
{
    static const uint32_t types[] = {AE_TYPE_F32, AE_TYPE_F16, AE_TYPE_BF16};
    static const uint32_t ins[] = {1, 7, 15, 16, 17, 31, 48, 256, 1000};
    const ae_kernels k = level_of(state);
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof ins / sizeof ins[0]; i++) {
            check_shape(&k, types[t], 1, ins[i], 20, W_RANDOM, A_RANDOM);
            check_shape(&k, types[t], 17, ins[i], 20, W_RANDOM, A_RANDOM);
            if (AE_TEST_EVERY > 4 && (i + (size_t)t) % 3) continue;
            check_shape(&k, types[t], 100, ins[i], ins[i] > 256 && AE_TEST_EVERY > 4 ? 20 : 64, W_RANDOM, A_RANDOM);
            for (int ak = 0; ak < A_KINDS; ak++) check_shape(&k, types[t], 3, ins[i], 4, W_RANDOM, (act_kind)ak);
        }
}

/* Packing is lossless: reading a packed weight back gives the unit's codes. */
static void test_forms(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        const ae_type_info *info = ae_type_get(type);
        ae_packed p;
        if (!info || (info->dot != AE_DOT_32 && info->dot != AE_DOT_256)) continue;
        assert_true(ae_pack_plan(type, 40, 1024, &p));
        int lo, hi;
        ae_type_code_range(type, &lo, &hi);
        assert_true(p.has_min ? p.zero == 0 : p.zero >= -lo);
        assert_true(p.zero == 128 || p.code_bits < 8 || hi + p.zero < 128);
        assert_true(ae_type_sub_top(type) * (-lo > hi ? -lo : hi) <= AE_UNIT_TOP);
        if (p.has_lut && p.zero < 16)
            for (int i = 0; i < 16; i++) assert_true(p.lut[i] < 32);
        assert_false(ae_pack_plan(type, 40, 16, &p));
    }
}

#include "kernels_rows.inc"
/* The tiled form of n_rows rows against its definition in kernels.h, code by code. */
static void check_tiles(uint32_t n_rows, uint32_t n_in)
{
    ae_act a = act_make(n_rows, n_in, A_RANDOM);
    const size_t stride = ae_act_stride(n_in), n_blocks = n_in / 32, n_units = n_in / 256;
    const uint32_t m = ae_act_pair_rows(&a);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t b = 0; b < n_blocks; b++) {
            const size_t group = r / 16, i = r % 16, block = group * n_blocks + b, unit = group * n_units + b / 8;
            const int8_t *row32 = a.q32 + r * stride + 32 * b, *row256 = a.q256 + r * stride + 32 * b;
            const int8_t *tile = a.t32 + (m ? (b / 2 * 2 * 16 + (b % 2 * m + i) * 2 + b % 2) * 32 : (block * 16 + i) * 32);
            assert_memory_equal(tile, row32, 32);
            for (size_t k = 0; m && k < 32; k++) assert_int_equal((b % 2 ? tile - 32 : tile + 32)[k], 0);
            assert_memory_equal(&a.td32[block * 16 + i], &a.d32[r * n_blocks + b], 4);
            assert_memory_equal(&a.ts32[block * 16 + i], &a.s32[r * n_blocks + b], 4);
            if (n_in % 256) continue;
            const int16_t *sums = a.bsum + (r * n_blocks + b) * 2;
            assert_memory_equal(a.t256 + ((group * n_in / 64 + b / 2) * 16 + i) * 64 + b % 2 * 32, row256, 32);
            assert_memory_equal(&a.td256[unit * 16 + i], &a.d256[r * n_units + b / 8], 4);
            assert_memory_equal(&a.tb16[((unit * 8 + b % 8) * 16 + i) * 2], sums, 4);
            assert_int_equal(a.tb32[((unit * 4 + b % 8 / 2) * 16 + i) * 2 + b % 2], sums[0] + sums[1]);
        }
    act_free(&a);
}

static void test_tiles(void **state)
{
    static const uint32_t rows[] = {1, 4, 5, 8, 9, 16, 17, 40}, columns[] = {256, 576, 1024, 2048, 2304};
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++) check_tiles(rows[r], columns[c]);
}

#include "kernels_attention.inc"
#include "kernels_recur.inc"

#define LEVEL_TESTS(level) \
    {"rows " level, test_rows, NULL, NULL, (void *)(uintptr_t)level}, \
    {"attention " level, test_attention, NULL, NULL, (void *)(uintptr_t)level}, \
    {"latent " level, test_latent, NULL, NULL, (void *)(uintptr_t)level}, \
    {"index " level, test_index, NULL, NULL, (void *)(uintptr_t)level}, \
    {"mm_integer " level, test_mm_integer, NULL, NULL, (void *)(uintptr_t)level}, \
    {"mm_float " level, test_mm_float, NULL, NULL, (void *)(uintptr_t)level}, \
    {"recur " level, test_recur, NULL, NULL, (void *)(uintptr_t)level}

static int print_hash(void)
{
    const struct CMUnitTest tests[] = {LEVEL_TESTS("ref")};
    hashing = true;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("reference %016llx over %lu buffers\n", (unsigned long long)reference_hash, n_checks);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--bench")) return bench(argc - 2, argv + 2);
    if (argc > 1 && !strcmp(argv[1], "--calls")) return make_calls(argc - 2, argv + 2);
    if (argc > 1 && !strcmp(argv[1], "--hash")) return print_hash();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_recur_scalars),
#if defined(__aarch64__)
        LEVEL_TESTS("neon"),
        LEVEL_TESTS("dotprod"),
        LEVEL_TESTS("i8mm"),
#else
        LEVEL_TESTS("avx2"),
        LEVEL_TESTS("avxvnni"),
        LEVEL_TESTS("avx512"),
        LEVEL_TESTS("amx"),
#endif
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    print_message("%lu buffers compared\n", n_checks);
    return failed;
}

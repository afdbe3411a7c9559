/* test_pack.c - the packers of single types give the bytes of the generic one, which goes through the integer view.
 *
 * All types, random and edge blocks, odd shapes, parts of a weight; memcmp over codes and scales with guards after
 * them. `--bench` prints bytes of source per second on one core instead, source and target in L2. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "backend/cpu/ref/kernels.h"
#include "base/mem.h"
#include "base/os.h"

#define GUARD 64

static uint64_t state_of_random = 88172645463325252u;

static uint8_t random_byte(void)
{
    state_of_random ^= state_of_random << 13;
    state_of_random ^= state_of_random >> 7;
    state_of_random ^= state_of_random << 17;
    return (uint8_t)(state_of_random >> 24);
}

static bool is_packed(uint32_t type)
{
    const ae_type_info *info = ae_type_get(type);
    return info && (info->dot == AE_DOT_32 || info->dot == AE_DOT_256);
}

typedef struct form {
    ae_packed packed;
    size_t code_bytes, scale_bytes;
} form;

static form form_make(uint32_t type, uint32_t n_out, uint32_t n_in)
{
    form f;
    assert_true(ae_pack_plan(type, n_out, n_in, &f.packed));
    f.packed.in_order = n_out % 2;
    const size_t n = (n_out + AE_PANEL - 1) / AE_PANEL;
    f.code_bytes = ae_code_bytes(&f.packed);
    f.scale_bytes = n * f.packed.scale_stride;
    f.packed.codes = ae_alloc_aligned(1, f.code_bytes + GUARD);
    f.packed.scales = ae_alloc_aligned(1, f.scale_bytes + GUARD);
    assert_non_null(f.packed.codes);
    assert_non_null(f.packed.scales);
    memset(f.packed.codes, 0xA5, f.code_bytes + GUARD);
    memset(f.packed.scales, 0xA5, f.scale_bytes + GUARD);
    return f;
}

static void form_free(form *f)
{
    ae_free(f->packed.codes);
    ae_free(f->packed.scales);
}

static void check(uint32_t type, uint32_t n_out, uint32_t n_in, const uint8_t *plain, uint32_t cut)
{
    form want = form_make(type, n_out, n_in), got = form_make(type, n_out, n_in);
    const uint32_t n = (n_out + AE_PANEL - 1) / AE_PANEL;
    if (cut > n) cut = n;
    ae_pack_panels_generic(type, plain, n_out, n_in, &want.packed, 0, n);
    ae_pack_panels(type, plain + cut * AE_PANEL * ae_type_row_bytes(type, n_in), n_out, n_in, &got.packed, cut, n);
    ae_pack_panels(type, plain, n_out, n_in, &got.packed, 0, cut);
    /* the scales of a panel may end in padding that is never written: both were filled with the same bytes */
    if (memcmp(want.packed.codes, got.packed.codes, want.code_bytes + GUARD))
        fail_msg("%s [%u, %u]: the codes differ", ae_type_name(type), n_out, n_in);
    if (memcmp(want.packed.scales, got.packed.scales, want.scale_bytes + GUARD))
        fail_msg("%s [%u, %u]: the scales differ", ae_type_name(type), n_out, n_in);
    form_free(&want);
    form_free(&got);
}

/* Every line has a place of its own inside the weight, and no run is longer than it may be. */
static void check_places(uint32_t type, bool in_order)
{
    const uint32_t ins[] = {1, 2, 3, 7, 8, 18, 20, 28, 32, 48, 63, 64, 65, 72, 128, 257, 432, 2047, 2049, 5000};
    const uint32_t panels[] = {1, 2, 3, 4, 7, 15, 33, 64, 257};
    for (size_t i = 0; i < sizeof ins / sizeof ins[0]; i++)
        for (size_t k = 0; k < sizeof panels / sizeof panels[0]; k++) {
            ae_packed p;
            const bool planned = ae_pack_plan(type, panels[k] * AE_PANEL - 3, ins[i] * 32, &p);
            assert_true(planned || ae_type_get(type)->dot == AE_DOT_256);
            if (!planned) continue;
            p.in_order = in_order;
            assert_int_equal(p.n_panels, panels[k]);
            const size_t n = ae_code_bytes(&p) / AE_LINE, n_used = (size_t)ins[i] * panels[k] * p.code_bits;
            assert_int_equal(ae_code_bytes(&p) % AE_LINE, 0);
            uint8_t *seen = ae_alloc(n, 1);
            assert_non_null(seen);
            size_t end = 0, count = 0;
            for (uint32_t panel = 0; panel < panels[k]; panel++) {
                const ae_run run = ae_run_of(&p, panel);
                assert_true(run.n <= AE_RUN || run.n == ins[i]);
                assert_true(run.begin + ins[i] <= run.n && run.begin % ins[i] == 0);
                if (run.begin == 0) {
                    assert_int_equal(run.at, end);
                    end += ae_run_bytes(&p, run.n);
                }
                assert_true(run.n_next ? end < ae_code_bytes(&p) : end == ae_code_bytes(&p));
                for (uint32_t b = 0; b < ins[i]; b++) {
                    const ae_lines lines = ae_lines_of(&p, &run, panel, b);
                    for (uint32_t v = 0; v < p.code_bits; v++, count++) {
                        const size_t at = lines.at + v * (size_t)lines.line;
                        assert_int_equal(at % AE_LINE, 0);
                        assert_true(at / AE_LINE < n);
                        assert_int_equal(seen[at / AE_LINE]++, 0);
                        if (in_order) assert_int_equal(at / AE_LINE, count);
                    }
                    if (b + 1 < ins[i])
                        assert_int_equal(lines.at + (size_t)lines.step, ae_lines_of(&p, &run, panel, b + 1).at);
                }
            }
            assert_int_equal(count, n_used);
            ae_free(seen);
        }
}

static void test_places(void **state)
{
    (void)state;
    const uint32_t types[] = {AE_TYPE_Q4_0, AE_TYPE_Q5_0, AE_TYPE_Q6_K, AE_TYPE_Q8_0};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) check_places(types[i], i % 2), check_places(types[i], !(i % 2));
}

/* Every packed type; the unpackers take any bytes. */
static void test_same_bytes(void **state)
{
    (void)state;
    const uint32_t outs[] = {1, 15, 16, 17, 32, 45, 100, 300}, ins[] = {32, 64, 96, 128, 256, 512, 768, 1024, 2144, 2304};
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        if (!is_packed(type)) continue;
        for (size_t o = 0; o < sizeof outs / sizeof outs[0]; o++)
            for (size_t i = 0; i < sizeof ins / sizeof ins[0]; i++) {
                ae_packed plan;
                if (ins[i] % ae_type_block_elements(type) || !ae_pack_plan(type, outs[o], ins[i], &plan)) continue;
                const size_t bytes = outs[o] * ae_type_row_bytes(type, ins[i]);
                uint8_t *plain = ae_alloc(1, bytes + 1), *odd = plain + 1; /* any alignment is allowed */
                assert_non_null(plain);
                for (int kind = 0; kind < 4; kind++) {
                    for (size_t k = 0; k < bytes; k++)
                        odd[k] = kind == 0 ? 0 : kind == 1 ? 0xFF : kind == 2 ? (uint8_t)k : random_byte();
                    check(type, outs[o], ins[i], odd, (uint32_t)(o + i) % 4);
                }
                ae_free(plain);
            }
    }
}

/* All 65536 scales: subnormals, infinities, quiet and signalling NaNs. */
static void test_every_scale(void **state)
{
    (void)state;
    enum { ROWS = 256, UNITS = 256 };
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        if (!is_packed(type) || !ae_pack_fast(type)) continue;
        const uint32_t n_in = UNITS * ae_type_block_elements(type);
        const size_t row = ae_type_row_bytes(type, n_in), block = row / UNITS, bytes = ROWS * row;
        uint8_t *plain = ae_alloc(1, bytes);
        assert_non_null(plain);
        for (size_t at = 0; at + 2 <= block; at += block - 2) { /* d stands first, or last (Q6_K) */
            for (uint32_t i = 0; i < ROWS * UNITS; i++) {
                const uint16_t half = (uint16_t)i;
                memcpy(plain + i * block + at, &half, 2);
                if (block >= 4) memcpy(plain + i * block + (at ? at - 2 : 2), &half, 2);
            }
            check(type, ROWS, n_in, plain, 3);
        }
        ae_free(plain);
    }
}

static int bench(void)
{
    enum { ROWS = 128, N_IN = 8192 };
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        if (!is_packed(type) || !ae_pack_fast(type)) continue;
        form f = form_make(type, ROWS, N_IN);
        const size_t bytes = ROWS * ae_type_row_bytes(type, N_IN);
        uint8_t *plain = ae_alloc(1, bytes);
        if (!plain) return 1;
        for (size_t k = 0; k < bytes; k++) plain[k] = random_byte();
        double best[2] = {1e9, 1e9};
        for (int run = 0; run < 40; run++)
            for (int fast = 0; fast < 2; fast++) {
                const double start = ae_time_now();
                (fast ? ae_pack_panels : ae_pack_panels_generic)(type, plain, ROWS, N_IN, &f.packed, 0, ROWS / AE_PANEL);
                const double seconds = ae_time_now() - start;
                if (seconds < best[fast]) best[fast] = seconds;
            }
        printf("%-8s generic %6.2f GB/s  own %6.2f GB/s\n", ae_type_name(type), (double)bytes / best[0] / 1e9,
               (double)bytes / best[1] / 1e9);
        ae_free(plain);
        form_free(&f);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places), cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_every_scale),
    };
    if (argc > 1 && !strcmp(argv[1], "--bench")) return bench();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

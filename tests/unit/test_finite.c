/* test_finite.c - weights that are not numbers are found in every type, wherever in a block a scale is; compared with what the
 * decoders return. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "every.h"
#include "mkmodel.h"
#include "quant/encode/encoder.h"
#include "quant/finite.h"
#include "quant/types.h"

/* Does some scale, minimum or value of the block decode to infinity or NaN? */
static bool is_finite(const ae_type_info *info, const uint8_t *block)
{
    static float x[256];
    if (info->type == AE_TYPE_Q8_K) { /* d is f32, so d * code may be infinite where d is not */
        memcpy(x, block, sizeof *x);
        return isfinite(x[0]);
    }
    if (info->dot != AE_DOT_32 && info->dot != AE_DOT_256) {
        info->decode(block, x, info->n_block);
        for (uint32_t i = 0; i < info->n_block; i++)
            if (!isfinite(x[i])) return false;
        return true;
    }
    const uint32_t unit = info->dot == AE_DOT_256 ? 256 : 32;
    for (uint32_t u = 0; u < info->n_block / unit; u++) {
        ae_unit view;
        ae_unit_unpack(info->type, block, u, &view);
        if (!isfinite(view.d[0]) || (unit == 32 && !isfinite(view.d[1])) || !isfinite(view.m) || !isfinite(view.dmin))
            return false;
    }
    return true;
}

static void test_every_type(void **state)
{
    enum { N = 40 };
    uint64_t random = 1;
    (void)state;
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        const ae_type_info *info = ae_type_get(type);
        if (!info || !info->decode || type == AE_TYPE_F64) continue; /* F64 has values that f32 lacks */
        const size_t bytes = info->block_bytes;
        uint8_t *blocks = malloc(N * bytes);
        int n_bad = 0;
        assert_non_null(blocks);
        for (int round = 0; round < (AE_TEST_EVERY > 4 ? 1000 : 3000); round++) {
            size_t at = SIZE_MAX, want = SIZE_MAX;
            const uint32_t n = 1 + (uint32_t)(mk_random(&random) % N);
            mk_blocks(type, 0.1f, false, &random, blocks, (size_t)n * info->n_block);
            if (round % 2) { /* two neighbouring bytes of some block become those of an infinity or a NaN */
                uint8_t *b = blocks + mk_random(&random) % n * bytes + mk_random(&random) % bytes;
                const bool last = b + 1 == blocks + n * bytes;
                b[0] = round % 4 == 1 ? 0xFF : 0x00;
                if (!last) b[1] = (uint8_t)(0x7C | mk_random(&random));
            }
            if (type == AE_TYPE_IQ1_M && round % 3 == 0) { /* its exponent lies in two bytes that are not neighbours */
                uint8_t *b = blocks + mk_random(&random) % n * bytes;
                b[55] |= 0x70, b[53] |= 0xC0;
            }
            for (uint32_t i = 0; i < n && want == SIZE_MAX; i++)
                if (!is_finite(info, blocks + i * bytes) || (type == AE_TYPE_MXFP4 && blocks[i * bytes] == 0xFF))
                    want = (size_t)i * info->n_block;
            const bool finite = ae_type_finite(type, blocks, (size_t)n * info->n_block, &at);
            if (finite != (want == SIZE_MAX) || (!finite && at != want))
                fail_msg("%s, round %d: %zu found, %zu expected", info->name, round, at, want);
            n_bad += !finite;
        }
        if (type != AE_TYPE_NVFP4 && !n_bad) fail_msg("%s: nothing was tried", info->name);
        free(blocks);
    }
}

static void test_doubles(void **state)
{
    double x[3] = {1e300, -1, 0};
    size_t at;
    (void)state;
    assert_true(ae_type_finite(AE_TYPE_F64, x, 3, &at));
    x[1] = NAN;
    assert_false(ae_type_finite(AE_TYPE_F64, x, 3, &at));
    assert_int_equal(at, 1);
}

/* Numbers as large as a type can hold, and a little larger. */
static void test_holds(void **state)
{
    static const struct {
        uint32_t type;
        float most, more;
    } cases[] = {
        {AE_TYPE_F16, 65504, 65536}, {AE_TYPE_BF16, 3.38e38f, 3.4e38f}, {AE_TYPE_Q8_0, 8.3e6f, 9e6f},
        {AE_TYPE_Q4_0, 5.2e5f, 6e5f}, {AE_TYPE_Q5_0, 1.04e6f, 1.2e6f}, {AE_TYPE_NVFP4, 2688, 3000},
        {AE_TYPE_F32, 3e38f, 0}, {AE_TYPE_MXFP4, 1e38f, 0}, {AE_TYPE_Q8_K, 1e37f, 0},
    };
    float x[512];
    size_t at = 0;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int k = 0; k < 512; k++) x[k] = (float)(k % 7) - 3;
        x[300] = -cases[i].most;
        if (!ae_type_encoder(cases[i].type)) continue;
        if (!ae_type_holds(cases[i].type, x, 512, &at)) fail_msg("type %u, %g: not held", cases[i].type, (double)x[300]);
        x[300] = cases[i].more;
        if (cases[i].more == 0.0f) continue;
        if (ae_type_holds(cases[i].type, x, 512, &at)) fail_msg("type %u, %g: held", cases[i].type, (double)x[300]);
        assert_int_equal(at, 300);
    }
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        const ae_type_info *info = ae_type_get(type);
        if (!info || !ae_type_encoder(type)) continue;
        const bool wide = type == AE_TYPE_F32 || type == AE_TYPE_BF16 || type == AE_TYPE_MXFP4 || type == AE_TYPE_Q8_K;
        for (int k = 0; k < 512; k++) x[k] = (float)(k % 7) * 300 - 900;
        if (!ae_type_holds(type, x, 512, &at)) fail_msg("%s does not hold usual numbers", info->name);
        x[100] = 1e9f;
        if (ae_type_holds(type, x, 512, &at) != wide) fail_msg("%s and 1e9", info->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_type), cmocka_unit_test(test_doubles),
                                       cmocka_unit_test(test_holds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

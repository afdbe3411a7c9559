/* test_quant.c - tensor types: the table, 16-bit floats, the integer view, encoders and their bounds.
 *
 * tests/golden/test_quant_vectors.c tests decoders against the formats.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/math/rng.h"
#include "quant/encode/lanes.h"
#include "quant/encode/encoder.h"
#include "quant/types.h"

/* ---- helpers --------------------------------------------------------------------------------------- */

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void random_bytes(uint64_t key, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i += 4) {
        uint32_t r[4];
        ae_philox(key, i, 0, r);
        memcpy(out + i, r, n - i < 4 ? n - i : 4);
    }
}

/* Normal deviates (Box and Muller); cubed a little when `heavy`, for a longer tail. */
static void random_weights(uint64_t key, float *x, size_t n, bool heavy)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t r[4];
        ae_philox(key, i, 1, r);
        double radius = sqrt(-2.0 * log(ae_uniform_open(r[0])));
        double v = radius * cos(6.283185307179586 * ae_uniform_open(r[1]));
        x[i] = (float)(0.02 * (heavy ? v + 0.15 * v * v * v : v));
    }
}

static double rms(const float *x, const float *y, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double r = (double)x[i] - (y ? (double)y[i] : 0.0);
        sum += r * r;
    }
    return sqrt(sum / (double)n);
}

static bool same_number(float a, float b)
{
    return a == b || (a != a && b != b);
}

/* ---- the table -------------------------------------------------------------------------------------- */

static void test_table(void **state)
{
    (void)state;
    int n_types = 0;
#define CHECK(id_name, id, elements, bytes)                                                                            \
    {                                                                                                                  \
        const ae_type_info *info = ae_type_get(id);                                                                    \
        assert_non_null(info);                                                                                         \
        assert_int_equal(info->type, id);                                                                              \
        assert_int_equal(info->n_block, elements);                                                                     \
        assert_int_equal(info->block_bytes, bytes);                                                                    \
        assert_ptr_equal(ae_type_by_name(#id_name), info);                                                             \
        assert_ptr_equal(ae_type_by_name(info->name), info);                                                           \
        assert_true(info->decode || (id >= AE_TYPE_I8 && id <= AE_TYPE_I64));                                          \
        assert_true(info->dot == AE_DOT_NONE || info->decode);                                                         \
        n_types++;                                                                                                     \
    }
    AE_TYPE_LIST(CHECK)
#undef CHECK
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) n_types -= ae_type_get(type) != NULL;
    assert_int_equal(n_types, 0);
    static const uint32_t unknown[] = {4, 5, 31, 33, 36, 38, AE_TYPE_COUNT, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) assert_null(ae_type_get(unknown[i]));
    static const char *const names[] = {"", "q4", "q4_00", "q4_k_m", "f", "nonsense"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_null(ae_type_by_name(names[i]));
    assert_null(ae_type_by_name(NULL));
    assert_ptr_equal(ae_type_by_name("q4_k"), ae_type_get(AE_TYPE_Q4_K));
    assert_ptr_equal(ae_type_by_name("IQ4_xs"), ae_type_get(AE_TYPE_IQ4_XS));
}

static void test_view_facts_of_other_types(void **state)
{
    (void)state;
    static const uint32_t types[] = {AE_TYPE_F32, AE_TYPE_I8, AE_TYPE_Q8_K, 4, AE_TYPE_COUNT, UINT32_MAX};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        int lo = 1, hi = 1;
        ae_type_code_range(types[i], &lo, &hi);
        assert_int_equal(lo, 0);
        assert_int_equal(hi, 0);
        assert_false(ae_type_has_min(types[i]));
        assert_int_equal(ae_type_sub_block(types[i]), 0);
        assert_int_equal(ae_type_sub_top(types[i]), 0);
    }
}

/* ---- 16-bit floats ------------------------------------------------------------------------------------ */

static void test_f16_exhaustive(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = ae_f16_to_f32((uint16_t)h);
        int exponent = h >> 10 & 31, mantissa = h & 1023;
        double sign = h >> 15 ? -1 : 1;
        if (exponent == 31 && mantissa) {
            assert_true(f != f);
            assert_int_equal(ae_f32_to_f16(f), h | 0x200); /* quiet, payload and sign kept */
            continue;
        }
        double expected = exponent == 31 ? (double)INFINITY
                          : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                         : ldexp(mantissa, -24);
        assert_true((double)f == sign * expected);
        assert_int_equal(signbit(f) != 0, h >> 15);
        assert_int_equal(ae_f32_to_f16(f), h);
    }
}

/* Between each pair of neighbours: the middle goes to the even one, anything off the middle to the nearer. */
static void test_f16_rounding(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float low = ae_f16_to_f32((uint16_t)h);
        float high = h == 0x7bff ? 65536.0f : ae_f16_to_f32((uint16_t)(h + 1));
        float middle = 0.5f * (low + high); /* exact */
        assert_int_equal(ae_f32_to_f16(middle), h + (h & 1));
        assert_int_equal(ae_f32_to_f16(-middle), (h + (h & 1)) | 0x8000);
        assert_int_equal(ae_f32_to_f16(nextafterf(middle, 0.0f)), h);
        assert_int_equal(ae_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
    }
    assert_int_equal(ae_f32_to_f16(FLT_MAX), 0x7c00);
    assert_int_equal(ae_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(ae_f32_to_f16(FLT_TRUE_MIN), 0);
    assert_int_equal(ae_f32_to_f16(-FLT_TRUE_MIN), 0x8000);
}

static void test_bf16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = ae_bf16_to_f32((uint16_t)h);
        assert_int_equal(bits_of(f), h << 16);
        bool nan = (h & 0x7fff) > 0x7f80;
        assert_int_equal(ae_f32_to_bf16(f), nan ? h | 64 : h);
        if (nan || (h & 0x7fff) == 0x7f80) continue;
        assert_int_equal(ae_f32_to_bf16(from_bits(h << 16 | 0x7fff)), h);
        assert_int_equal(ae_f32_to_bf16(from_bits(h << 16 | 0x8000)), h + (h & 1));
        assert_int_equal(ae_f32_to_bf16(from_bits(h << 16 | 0x8001)), h + 1);
    }
    assert_int_equal(ae_f32_to_bf16(from_bits(0x7f800001)), 0x7fc0); /* a NaN whose top bits say infinity */
}

/* ---- the integer view ----------------------------------------------------------------------------------- */

enum { N_RANDOM_BLOCKS = 200 };

typedef struct seen {
    int lo, hi, sub_top;
} seen;

static void check_unit(const ae_type_info *info, const ae_unit *unit, const float *x, seen *seen_codes)
{
    int lo, hi, n = info->dot == AE_DOT_32 ? 32 : 256;
    uint32_t sub_block = ae_type_sub_block(info->type);
    ae_type_code_range(info->type, &lo, &hi);
    for (int e = 0; e < n; e++) {
        int code = unit->code[e];
        assert_in_range(code + 128, lo + 128, hi + 128);
        if (code < seen_codes->lo) seen_codes->lo = code;
        if (code > seen_codes->hi) seen_codes->hi = code;
        float w;
        if (info->dot == AE_DOT_32) {
            w = unit->d[e / 16] * (float)code + unit->m;
        } else {
            int sub = unit->sub[e / 16], submin = unit->submin[e / 16];
            assert_in_range(abs(sub), 0, ae_type_sub_top(info->type));
            if (abs(sub) > seen_codes->sub_top) seen_codes->sub_top = abs(sub);
            assert_in_range(submin, 0, 63);
            assert_int_equal(sub, unit->sub[e / sub_block * sub_block / 16]);
            assert_int_equal(submin, unit->submin[e / sub_block * sub_block / 16]);
            w = unit->d[0] * (float)sub * (float)code;
            if (ae_type_has_min(info->type)) w -= unit->dmin * (float)submin;
        }
        if (!same_number(w, x[e]))
            fail_msg("%s: element %d is %a, the view says %a", info->name, e, (double)x[e], (double)w);
    }
    if (info->dot == AE_DOT_32 && sub_block == 32) assert_true(same_number(unit->d[0], unit->d[1]));
    if (!ae_type_has_min(info->type)) assert_true(info->dot == AE_DOT_32 ? unit->m == 0 : unit->dmin == 0);
}

/* The products are exact, so view and decode agree exactly for every type (zeros of either sign are equal). */
static void test_view_equals_decode(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        const ae_type_info *info = ae_type_get(type);
        if (!info || (info->dot != AE_DOT_32 && info->dot != AE_DOT_256)) continue;
        size_t bytes = (size_t)N_RANDOM_BLOCKS * info->block_bytes, n = (size_t)N_RANDOM_BLOCKS * info->n_block;
        size_t n_unit = info->dot == AE_DOT_32 ? 32 : 256;
        uint8_t *blocks = malloc(bytes + 1);
        float *x = malloc(n * sizeof *x);
        random_bytes(type, blocks + 1, bytes); /* at an odd address */
        info->decode(blocks + 1, x, n);
        seen seen_codes = {0, 0, 0};
        for (size_t i = 0; i < n / n_unit; i++) {
            ae_unit unit;
            memset(&unit, 0x55, sizeof unit);
            ae_unit_unpack(type, blocks + 1, i, &unit);
            check_unit(info, &unit, x + i * n_unit, &seen_codes);
        }
        int lo, hi;
        ae_type_code_range(type, &lo, &hi);
        if (seen_codes.lo != (lo < 0 ? lo : 0) || seen_codes.hi != hi)
            fail_msg("%s: codes seen in [%d, %d], declared [%d, %d]", info->name, seen_codes.lo, seen_codes.hi, lo, hi);
        assert_int_equal(seen_codes.sub_top, ae_type_sub_top(type));
        free(blocks);
        free(x);
    }
}

static void test_decode_at_any_address(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        const ae_type_info *info = ae_type_get(type);
        if (!info || !info->decode) continue;
        size_t bytes = 16 * (size_t)info->block_bytes, n = 16 * (size_t)info->n_block;
        uint8_t *blocks = malloc(bytes + 8);
        float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
        random_bytes(100 + type, blocks, bytes);
        info->decode(blocks, x, n);
        for (int offset = 1; offset < 8; offset += 2) {
            memmove(blocks + offset, blocks + (offset == 1 ? 0 : offset - 2), bytes);
            info->decode(blocks + offset, y, n);
            for (size_t i = 0; i < n; i++) assert_true(same_number(x[i], y[i]));
        }
        info->decode(blocks, y, 0); /* no elements are allowed */
        free(blocks);
        free(x);
        free(y);
    }
}

/* Scales that are infinite, NaN or as small as can be: any bytes decode without undefined behaviour. */
static void test_decode_constant_bytes(void **state)
{
    (void)state;
    static const uint8_t fills[] = {0x00, 0x01, 0x7c, 0x7f, 0x80, 0xfc, 0xff};
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        const ae_type_info *info = ae_type_get(type);
        if (!info || !info->decode) continue;
        for (size_t i = 0; i < sizeof fills; i++) {
            uint8_t block[512];
            float x[256];
            memset(block, fills[i], sizeof block);
            info->decode(block, x, info->n_block);
            if (fills[i]) continue;
            for (uint32_t e = 0; e < info->n_block; e++) assert_true(x[e] == 0.0f);
        }
    }
}

/* ---- encoders --------------------------------------------------------------------------------------------- */

/* Largest RMS error relative to the RMS of the weights, for normal weights and for a longer tail: 1% above
 * what the encoders reach. ggml's reference quantizers were measured on the same weights: equal errors for
 * Q4_0 to Q8_0, MXFP4, Q1_0 and TQ, and errors 2% and more above ours for the types that search. */
static const struct {
    uint32_t type;
    double normal, heavy;
} bounds[] = {
    {AE_TYPE_F32, 0.0, 0.0},
    {AE_TYPE_F16, 0.00022, 0.00022},
    {AE_TYPE_Q4_0, 0.08728, 0.11829},
    {AE_TYPE_Q4_1, 0.07910, 0.09652},
    {AE_TYPE_Q5_0, 0.04345, 0.05870},
    {AE_TYPE_Q5_1, 0.03825, 0.04653},
    {AE_TYPE_Q8_0, 0.00544, 0.00740},
    {AE_TYPE_Q2_K, 0.26494, 0.29775},
    {AE_TYPE_Q3_K, 0.15338, 0.19214}, /* the smallest possible error is 5.6% and 6.8% lower, but models predict text worse with
                                       * it */
    {AE_TYPE_Q4_K, 0.07049, 0.08703},
    {AE_TYPE_Q5_K, 0.03490, 0.04282},
    {AE_TYPE_Q6_K, 0.01750, 0.02269},
    {AE_TYPE_IQ4_NL, 0.07553, 0.09430}, /* the smallest possible error is 1.7% and 2.9% lower, but models predict text worse
                                         * with it */
    {AE_TYPE_IQ4_XS, 0.07486, 0.09246},
    {AE_TYPE_BF16, 0.00169, 0.00168},
    {AE_TYPE_TQ1_0, 0.81775, 0.84470},
    {AE_TYPE_TQ2_0, 0.81775, 0.84470},
    {AE_TYPE_MXFP4, 0.11616, 0.13379},
    {AE_TYPE_NVFP4, 0.09005, 0.08704},
    {AE_TYPE_Q1_0, 0.60791, 0.72735},
    {AE_TYPE_Q2_0, 0.35464, 0.42860},
    {AE_TYPE_IQ1_S, 0.44961, 0.51572},
    {AE_TYPE_IQ1_M, 0.41702, 0.45324},
    {AE_TYPE_IQ2_XXS, 0.33048, 0.37091},
    {AE_TYPE_IQ2_XS, 0.28683, 0.31618},
    {AE_TYPE_IQ2_S, 0.24083, 0.29189},
    {AE_TYPE_IQ3_XXS, 0.17844, 0.19548},
    {AE_TYPE_IQ3_S, 0.13022, 0.15130},
};

enum { N_WEIGHTS = 65536 };

static void test_encode_error(void **state)
{
    (void)state;
    float *x = malloc(N_WEIGHTS * sizeof *x), *y = malloc(N_WEIGHTS * sizeof *y);
    uint8_t *blocks = malloc(N_WEIGHTS * sizeof(float));
    int n_failed = 0;
    for (int heavy = 0; heavy < 2; heavy++) {
        random_weights(7, x, N_WEIGHTS, heavy);
        for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
            const ae_type_info *info = ae_type_get(bounds[i].type);
            ae_type_encoder(info->type)(x, NULL, blocks, N_WEIGHTS);
            info->decode(blocks, y, N_WEIGHTS);
            double error = rms(x, y, N_WEIGHTS) / rms(x, NULL, N_WEIGHTS);
            double bound = heavy ? bounds[i].heavy : bounds[i].normal;
            if (error <= bound) continue;
            print_error("%s %s: error %.6f above %.6f\n", info->name, heavy ? "heavy" : "normal", error, bound);
            n_failed++;
        }
    }
    assert_int_equal(n_failed, 0);
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) { /* every encoder has a bound */
        const ae_type_info *info = ae_type_get(type);
        bool bounded = false;
        for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) bounded |= bounds[i].type == type;
        assert_int_equal(info && ae_type_encoder(info->type), bounded);
    }
    free(x);
    free(y);
    free(blocks);
}

/* Decoded weights are encoded again: only the search can lose anything. */
static void test_encode_again(void **state)
{
    (void)state;
    enum { N = 4096 };
    float x[N], y[N], z[N];
    uint8_t blocks[N * sizeof(float)];
    random_weights(8, x, N, false);
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        const ae_type_info *info = ae_type_get(type);
        if (!info || !ae_type_encoder(info->type)) continue;
        ae_type_encoder(info->type)(x, NULL, blocks, N);
        info->decode(blocks, y, N);
        ae_type_encoder(info->type)(y, NULL, blocks, N);
        info->decode(blocks, z, N);
        if (rms(y, z, N) > 0.25 * rms(x, y, N))
            fail_msg("%s: error %g, and again %g", info->name, rms(x, y, N), rms(y, z, N));
    }
}

/* A row with a single weight: the decoded value is nearer to it than 0 is, and no other value is larger. */
static void test_encode_one_hot(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        const ae_type_info *info = ae_type_get(type);
        if (!info || !ae_type_encoder(info->type)) continue;
        for (int at = 0; at < 256; at += 51) {
            float x[256] = {0}, y[256];
            uint8_t blocks[1024];
            x[at] = at % 2 ? -0.5f : 0.5f;
            ae_type_encoder(info->type)(x, NULL, blocks, 256);
            info->decode(blocks, y, 256);
            if (!(rms(x, y, 256) < rms(x, NULL, 256))) fail_msg("%s: error %g", info->name, rms(x, y, 256));
            for (int e = 0; e < 256; e++)
                if (fabsf(y[e]) > fabsf(y[at]) * 1.001f)
                    fail_msg("%s: element %d is %g, the hot one %g", info->name, e, (double)y[e], (double)y[at]);
        }
    }
}

static double weighted_error(const float *x, const float *y, const float *w, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)w[i] * ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    return sum;
}

/* Types with a choice of codes use the importances; a factor on all of them changes nothing. */
static void test_importance(void **state)
{
    (void)state;
    enum { N = 4096 };
    float x[N], y[N], w[N], doubled[N];
    uint8_t plain[N * sizeof(float)], weighted[N * sizeof(float)], again[N * sizeof(float)];
    random_weights(9, x, N, true);
    for (size_t i = 0; i < N; i++) {
        uint32_t r[4];
        ae_philox(10, i, 4, r);
        w[i] = r[0] % 4 ? 0.01f : ae_uniform_open(r[1]);
        doubled[i] = 0x1p40f * w[i];
    }
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        const ae_type_info *info = ae_type_get(type);
        if (!info || !ae_type_encoder(info->type)) continue;
        const bool ignored =
            info->dot == AE_DOT_FLOAT || type == AE_TYPE_Q8_0 || type == AE_TYPE_TQ1_0 || type == AE_TYPE_TQ2_0;
        const size_t bytes = N / info->n_block * info->block_bytes;
        ae_type_encoder(info->type)(x, NULL, plain, N);
        ae_type_encoder(info->type)(x, w, weighted, N);
        ae_type_encoder(info->type)(x, doubled, again, N);
        assert_memory_equal(weighted, again, bytes);
        if (ignored) {
            assert_memory_equal(plain, weighted, bytes);
            continue;
        }
        info->decode(plain, y, N);
        const double before = weighted_error(x, y, w, N);
        info->decode(weighted, y, N);
        const double after = weighted_error(x, y, w, N);
        if (!(after < 0.99 * before)) fail_msg("%s: weighted error %g, with importance %g", info->name, before, after);
    }
}

/* Weights that a format can express exactly come back exactly. */
static void test_encode_exact(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        int lo, hi; /* integers of this range times a power of two, both ends in each block */
    } exact[] = {
        {AE_TYPE_Q4_0, -8, 7},  {AE_TYPE_Q4_1, 0, 15},     {AE_TYPE_Q4_1, -3, 12}, {AE_TYPE_Q5_0, -16, 15},
        {AE_TYPE_Q5_1, 0, 31},  {AE_TYPE_Q8_0, -127, 127}, {AE_TYPE_Q2_0, -1, 1},  {AE_TYPE_Q2_0, -1, 2},
        {AE_TYPE_TQ1_0, -1, 1}, {AE_TYPE_TQ2_0, -1, 1},    {AE_TYPE_MXFP4, -4, 4}, {AE_TYPE_Q6_K, -32, 31},
        {AE_TYPE_Q3_K, -4, 3},
    };
    for (size_t t = 0; t < sizeof exact / sizeof *exact; t++) {
        const ae_type_info *info = ae_type_get(exact[t].type);
        float x[512], y[512];
        uint8_t blocks[2048];
        for (int i = 0; i < 512; i++) {
            uint32_t r[4];
            ae_philox(t, (uint64_t)i, 2, r);
            int range = exact[t].hi - exact[t].lo + 1, v = exact[t].lo + (int)(r[0] % (uint32_t)range);
            if (i % 16 == 3) v = exact[t].lo;
            if (i % 16 == 9) v = exact[t].hi;
            x[i] = 0.0625f * (float)v;
        }
        ae_type_encoder(info->type)(x, NULL, blocks, 512);
        info->decode(blocks, y, 512);
        for (int i = 0; i < 512; i++)
            if (fabsf(x[i] - y[i]) > 1e-3f * 0.0625f)
                fail_msg("%s: %g came back as %g", info->name, (double)x[i], (double)y[i]);
    }
}

static void test_encode_constant(void **state)
{
    (void)state;
    static const float constants[] = {0.0625f, -0.0625f, 1.0f, -3.0f};
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        const ae_type_info *info = ae_type_get(type);
        if (!info || !ae_type_encoder(info->type)) continue;
        for (size_t c = 0; c < sizeof constants / sizeof *constants; c++) {
            float x[256], y[256];
            uint8_t blocks[1024];
            for (int i = 0; i < 256; i++) x[i] = constants[c];
            ae_type_encoder(info->type)(x, NULL, blocks, 256);
            info->decode(blocks, y, 256);
            for (int i = 0; i < 256; i++)
                if (!(fabsf(x[i] - y[i]) <= 0.002f * fabsf(x[i])))
                    fail_msg("%s: %g came back as %g", info->name, (double)x[i], (double)y[i]);
        }
    }
}

static void fill_strange(float *x, size_t n, int kind)
{
    static const float strange[] = {0.0f,     -0.0f, FLT_TRUE_MIN, -FLT_TRUE_MIN, FLT_MIN,  1e-30f,    1.0f, -1.0f,
                                    65504.0f, 1e10f, FLT_MAX,      -FLT_MAX,      INFINITY, -INFINITY, NAN,  -NAN};
    size_t n_strange = sizeof strange / sizeof *strange;
    for (size_t i = 0; i < n; i++) {
        uint32_t r[4];
        ae_philox((uint64_t)kind, i, 3, r);
        if ((size_t)kind < n_strange) x[i] = strange[kind]; /* all the same */
        else if ((size_t)kind < 2 * n_strange)
            x[i] = i % 37 ? 0.01f * (float)ae_uniform_open(r[0]) : strange[kind - (int)n_strange];
        else if (kind == (int)(2 * n_strange)) x[i] = strange[r[0] % n_strange]; /* a mixture */
        else x[i] = from_bits(r[0]);                                             /* any bits */
    }
}

static void test_encode_strange_input(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        const ae_type_info *info = ae_type_get(type);
        if (!info || !ae_type_encoder(info->type)) continue;
        for (int kind = 0; kind < 36; kind++) {
            enum { N = 1024 };
            float x[N], y[N];
            uint8_t blocks[N * sizeof(float) + 1];
            fill_strange(x, N, kind);
            ae_type_encoder(info->type)(x, NULL, blocks + 1, N); /* at an odd address */
            info->decode(blocks + 1, y, N);
            if (info->dot == AE_DOT_FLOAT) continue;
            if (kind >= 32) { /* importances may be hostile, too */
                float z[N];
                uint8_t other[N * sizeof(float)];
                fill_strange(z, N, kind == 32 ? 35 : kind - 20);
                ae_type_encoder(info->type)(kind == 33 ? z : x, z, other, N);
                info->decode(other, z, N);
                for (int i = 0; i < N; i++)
                    if (z[i] - z[i] != 0.0f) fail_msg("%s, input %d: element %d is %g", info->name, kind, i, (double)z[i]);
            }
            for (int i = 0; i < N; i++) { /* saturated, never infinite or NaN */
                if (y[i] - y[i] != 0.0f) fail_msg("%s, input %d: element %d is %g", info->name, kind, i, (double)y[i]);
                if (kind < 2 && y[i] != 0.0f) fail_msg("%s: zero came back as %g", info->name, (double)y[i]);
            }
        }
    }
}

/* ---- the searches of every level --------------------------------------------------------------------------- */

/* Sixteen runs of n weights in lanes: ordinary ones, and some with nothing, with one weight, with a constant, with tiny
 * and huge numbers, with halves of a step. Weights are 0 here and there, and in a lane all. */
static void fill_lanes(uint64_t key, int n, float *x, float *w)
{
    float normal[16 * 64];
    random_weights(key, normal, (size_t)(16 * n), key % 2);
    for (int i = 0; i < 16 * n; i++) {
        uint32_t r[4];
        ae_philox(key, (uint64_t)i, 5, r);
        const int lane = i % 16, e = i / 16;
        static const float sizes[] = {1e-20f, 0x1p-60f, 1e-8f, 1.0f, 0x1p30f};
        x[i] = normal[i];
        if (lane == 1) x[i] = r[0] % 2 ? 0.0f : -0.0f;
        if (lane == 2) x[i] = e == (int)(key % (uint64_t)n) ? -0.25f : 0.0f;
        if (lane == 3) x[i] = 0.0625f;
        if (lane == 4) x[i] *= sizes[key % 5];
        if (lane == 5) x[i] = e == 3 ? 0x1p30f : normal[i];
        if (lane == 6) x[i] = 0.5f * (float)(int)(r[0] % 33) - 8.0f;
        if (lane == 7) x[i] = fabsf(x[i]);
        if (lane == 8) x[i] = -fabsf(x[i]);
        w[i] = lane < 8 ? 1.0f : lane == 9 || r[1] % 8 == 0 ? 0.0f : 2.0f * ae_uniform_open(r[2]) * ae_uniform_open(r[3]);
    }
}

enum { MOST = 16 * 64, N_FLOATS = 14 * 16, N_CODES = 3 * MOST };

/* All results of a level for one input, one after the other. */
static void search_all(const ae_lane_search *s, const ae_lane_codes *codes, const float *x, const float *w, int n, int top,
                       float *f, int8_t *code)
{
    float d[16], dmin[16], *at = f;
    memset(f, 0, N_FLOATS * sizeof *f);
    memset(code, 0, N_CODES);
    s->fit_scale(codes, x, w, n, at);
    s->round_scale(codes, x, n, at, code);
    for (int l = 0; l < 16; l++) {
        at[16 + l] = (float)((int)(x[l] * 1e6f) % 31); /* whole numbers to improve, the ends of the range among them */
        d[l] = at[l] / (l % 3 ? at[16 + l] + 0.5f : 31.0f);
    }
    s->improve_sub(codes, x, w, n, -32.0f, 31.0f, d, at + 16);
    s->sums_scale(codes, x, w, n, code, at + 16, at + 32, at + 48);
    at += 64;
    s->fit_range(x, w, n, top, top % 2 == 0, at, at + 16);
    s->round_range(x, n, top, 0.5f, at, at + 16, code + MOST);
    for (int l = 0; l < 16; l++) {
        at[32 + l] = (float)(l * 4);
        at[48 + l] = (float)((63 - l * 4) % 63);
        d[l] = at[l] / 31.0f;
        dmin[l] = at[16 + l] / 40.0f;
    }
    s->improve_sub_min(x, w, n, top, 63.0f, d, dmin, at + 32, at + 48);
    float *sums[5] = {at + 64, at + 80, at + 96, at + 112, at + 128};
    s->sums_range(x, w, n, code + MOST, at + 32, at + 48, sums);
    s->extreme(x, n, d);
    s->round_away(x, n, 127.0f, d, code + 2 * MOST);
    s->bounds(x, n, d, dmin);
    for (int l = 0; l < 16; l++) at[l] += d[l] * dmin[l] * 0x1p-20f;
}

static void test_levels_search_alike(void **state)
{
    (void)state;
    static const ae_lane_codes small = {NULL, NULL, -4.0f, 3.0f, 3.0f, 0.125f, 17, true};
    static const ae_lane_codes large = {NULL, NULL, -32.0f, 31.0f, -32.9f, 0.1f, 19, false};
    const ae_lane_codes *codes[] = {&small, &large, &ae_lane_iq4};
    static const int sizes[] = {16, 32, 64}, tops[] = {3, 15, 31, 4};
    const ae_lane_search *levels[3];
    const size_t n_levels = ae_lane_levels(levels);
    assert_string_equal(levels[0]->level, "plain");
    assert_ptr_equal(levels[n_levels - 1], ae_lane_best());
    float x[MOST], w[MOST], wanted[N_FLOATS], got[N_FLOATS];
    int8_t wanted_codes[N_CODES], got_codes[N_CODES];
    for (uint64_t key = 0; key < 60; key++) {
        const int n = sizes[key % 3], top = tops[key % 4];
        const ae_lane_codes *of = codes[key / 3 % 3];
        fill_lanes(key, n, x, w);
        search_all(levels[0], of, x, w, n, top, wanted, wanted_codes);
        for (size_t i = 1; i < n_levels; i++) {
            search_all(levels[i], of, x, w, n, top, got, got_codes);
            for (int j = 0; j < N_FLOATS; j++)
                if (bits_of(got[j]) != bits_of(wanted[j]) && !(got[j] != got[j] && wanted[j] != wanted[j]))
                    fail_msg("%s, input %d: number %d is %.9g, not %.9g", levels[i]->level, (int)key, j, (double)got[j],
                             (double)wanted[j]);
            assert_memory_equal(got_codes, wanted_codes, N_CODES);
        }
    }
}

/* Runs that share a search are independent: a row gives the bytes of its blocks encoded alone. */
static void test_blocks_alone(void **state)
{
    (void)state;
    enum { N = 256 * 17 };
    float x[N], w[N];
    uint8_t blocks[N * sizeof(float)], alone[1024];
    random_weights(12, x, N, true);
    random_weights(13, w, N, false);
    for (size_t i = 0; i < N; i++) w[i] = fabsf(w[i]);
    for (uint32_t type = 0; type < AE_TYPE_COUNT; type++) {
        const ae_type_info *info = ae_type_get(type);
        if (!info || !ae_type_encoder(info->type)) continue;
        const size_t n = info->n_block, n_blocks = N / n < 40 ? N / n : 40;
        for (int weighed = 0; weighed < 2; weighed++) {
            ae_type_encoder(info->type)(x, weighed ? w : NULL, blocks, n * n_blocks);
            for (size_t b = 0; b < n_blocks; b += 3) {
                ae_type_encoder(info->type)(x + n * b, weighed ? w + n * b : NULL, alone, n);
                if (memcmp(alone, blocks + b * info->block_bytes, info->block_bytes) != 0)
                    fail_msg("%s: block %d is another one beside others", info->name, (int)b);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_view_facts_of_other_types),
        cmocka_unit_test(test_f16_exhaustive),
        cmocka_unit_test(test_f16_rounding),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_view_equals_decode),
        cmocka_unit_test(test_decode_at_any_address),
        cmocka_unit_test(test_decode_constant_bytes),
        cmocka_unit_test(test_encode_error),
        cmocka_unit_test(test_encode_again),
        cmocka_unit_test(test_encode_one_hot),
        cmocka_unit_test(test_importance),
        cmocka_unit_test(test_encode_exact),
        cmocka_unit_test(test_encode_constant),
        cmocka_unit_test(test_encode_strange_input),
        cmocka_unit_test(test_levels_search_alike),
        cmocka_unit_test(test_blocks_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

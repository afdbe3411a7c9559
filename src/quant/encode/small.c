/* small.c - f32 to the formats whose codes are not plain integers, and to those of 1 and 2 bits.
 *
 * Owns IQ4_NL, MXFP4, NVFP4, Q1_0, Q2_0, TQ1_0, TQ2_0. MXFP4, Q1_0, TQ1_0 and TQ2_0 have one obvious scale and give the same
 * bytes as ggml's reference; the others search.
 */
#include <float.h>
#include <math.h>

#include "quant/encode/encode.h"
#include "quant/unit.h"

static float largest(const float *x, int n)
{
    float a = 0.0f;
    for (int e = 0; e < n; e++)
        if (fabsf(x[e]) > a) a = fabsf(x[e]);
    return a;
}

/* Without importance, errors are weighted by the size of the element: on SmolLM2 that gave a lower perplexity than equal
 * weights and than squares (docs/quantizing.md). */
void ae_encode_iq4_nl(const float *x, const float *importance, void *blocks, size_t n)
{
    uint8_t *out = blocks;
    ae_encode_runs runs;
    uint16_t d[AE_LANES];
    for (size_t i = 0; i < n / 32; i += AE_LANES) {
        ae_encode_take(&runs, 32, ae_encode_n_runs(n / 32, i), 32, AE_ENCODE_SIZE, x + 32 * i,
                       ae_encode_from(importance, 32 * i));
        runs.search->fit_scale(&ae_lane_iq4, runs.x, runs.w, 32, runs.scale);
        ae_encode_f16_scales(&runs, runs.scale, d);
        runs.search->round_scale(&ae_lane_iq4, runs.x, 32, runs.scale, runs.lanes);
        ae_encode_collect(&runs);
        for (int l = 0; l < runs.n_runs; l++, out += sizeof(ae_block_iq4_nl)) {
            const int8_t *code = runs.code + 32 * l;
            ae_block_iq4_nl b = {.d = d[l]};
            for (int e = 0; e < 16; e++) b.qs[e] = (uint8_t)(code[e] | code[e + 16] << 4);
            memcpy(out, &b, sizeof b);
        }
    }
}

/* Returns the index of the FP4 value nearest to x / half, ties to the smaller magnitude; `half` is the scale of the doubled
 * values. Compared by products, since the inverse of the smallest scales is not finite. */
static int fp4_index(float x, float half)
{
    static const float middle[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f};
    int i = 0;
    while (i < 7 && fabsf(x) > middle[i] * half) i++;
    return i && x < 0.0f ? i | 8 : i;
}

static float fp4_error(const float *x, const float *w, int n, float half)
{
    float error = 0.0f;
    for (int e = 0; e < n; e++) {
        float r = x[e] - half * (float)ae_quant_fp4_values[fp4_index(x[e], half)];
        error += w[e] * r * r;
    }
    return error;
}

/* Chooses e or the next larger exponent, whichever leaves the smaller weighted error. */
static uint8_t better_exponent(const float *x, const float *importance, uint8_t e)
{
    float v[32], w[32];
    ae_encode_clean(x, 32, AE_ENCODE_LIMIT, v);
    ae_encode_weigh(importance, 32, w);
    if (e == 0 || e > 127 + 30) return e; /* errors there exceed the range of squares in f32 */
    const float here = fp4_error(v, w, 32, ae_quant_e8m0_half(e));
    return fp4_error(v, w, 32, ae_quant_e8m0_half((uint8_t)(e + 1))) < here ? (uint8_t)(e + 1) : e;
}

void ae_encode_mxfp4(const float *x, const float *importance, void *blocks, size_t n)
{
    uint8_t *out = blocks;
    for (size_t i = 0; i < n / 32; i++, x += 32, out += sizeof(ae_block_mxfp4)) {
        float v[32];
        ae_encode_clean(x, 32, FLT_MAX, v);
        int exponent = 0;
        float top = largest(v, 32);
        (void)frexpf(top, &exponent); /* top = f * 2^exponent, f in [0.5, 1): its floor(log2) is one less */
        int e8m0 = top > 0.0f ? exponent - 1 - 2 + 127 : 0;
        ae_block_mxfp4 b = {.e = (uint8_t)(e8m0 < 0 ? 0 : e8m0)};
        if (importance) b.e = better_exponent(v, importance + 32 * i, b.e);
        float half = ae_quant_e8m0_half(b.e);
        for (int e = 0; e < 16; e++) b.qs[e] = (uint8_t)(fp4_index(v[e], half) | fp4_index(v[e + 16], half) << 4);
        memcpy(out, &b, sizeof b);
    }
}

/* Returns the e4m3 code whose half is the largest not above `half`; codes 0 .. 0x7e ascend. */
static int e4m3_below(float half)
{
    int lo = 0, hi = 0x7e;
    while (lo < hi) {
        int middle = (lo + hi + 1) / 2;
        if (ae_quant_e4m3_half((uint8_t)middle) <= half) lo = middle;
        else hi = middle - 1;
    }
    return lo;
}

void ae_encode_nvfp4(const float *x, const float *importance, void *blocks, size_t n)
{
    uint8_t *out = blocks;
    for (size_t i = 0; i < n / 64; i++, x += 64, out += sizeof(ae_block_nvfp4)) {
        float v[64], w[64];
        ae_block_nvfp4 b;
        ae_encode_clean(x, 64, AE_ENCODE_LIMIT, v);
        ae_encode_weigh(ae_encode_from(importance, 64 * i), 64, w);
        for (int s = 0; s < 4; s++) {
            const float *sub = v + 16 * s;
            int first = e4m3_below(largest(sub, 16) / 12.0f);
            float least = INFINITY;
            b.d[s] = 0;
            for (int code = first > 2 ? first - 2 : 0; code <= first + 6 && code <= 0x7e; code++) {
                float error = fp4_error(sub, w + 16 * s, 16, ae_quant_e4m3_half((uint8_t)code));
                if (error < least) {
                    least = error;
                    b.d[s] = (uint8_t)code;
                }
            }
            float half = ae_quant_e4m3_half(b.d[s]);
            for (int e = 0; e < 8; e++)
                b.qs[8 * s + e] = (uint8_t)(fp4_index(sub[e], half) | fp4_index(sub[e + 8], half) << 4);
        }
        memcpy(out, &b, sizeof b);
    }
}

/* Signs, and the weighted mean magnitude, which is their least-squares scale. */
void ae_encode_q1_0(const float *x, const float *importance, void *blocks, size_t n)
{
    uint8_t *out = blocks;
    for (size_t i = 0; i < n / 128; i++, x += 128, out += sizeof(ae_block_q1_0)) {
        float v[128], w[128], sum = 0.0f, total = 0.0f;
        ae_encode_clean(x, 128, AE_ENCODE_LIMIT, v);
        ae_encode_weigh(ae_encode_from(importance, 128 * i), 128, w);
        for (int e = 0; e < 128; e++) {
            sum += w[e] * fabsf(v[e]);
            total += w[e];
        }
        ae_block_q1_0 b = {.d = ae_encode_f16_scale(sum / total)};
        for (int e = 0; e < 128; e++)
            if (v[e] >= 0.0f) b.qs[e / 8] = (uint8_t)(b.qs[e / 8] | 1 << (e % 8));
        memcpy(out, &b, sizeof b);
    }
}

void ae_encode_q2_0(const float *x, const float *importance, void *blocks, size_t n)
{
    static const ae_lane_codes codes = {NULL, NULL, -1.0f, 2.0f, 0.75f, 0.125f, 27, true};
    uint8_t *out = blocks;
    ae_encode_runs runs;
    uint16_t d[AE_LANES];
    for (size_t i = 0; i < n / 64; i += AE_LANES) {
        ae_encode_take(&runs, 64, ae_encode_n_runs(n / 64, i), 64, AE_ENCODE_EQUAL, x + 64 * i,
                       ae_encode_from(importance, 64 * i));
        runs.search->fit_scale(&codes, runs.x, runs.w, 64, runs.scale);
        ae_encode_f16_scales(&runs, runs.scale, d);
        runs.search->round_scale(&codes, runs.x, 64, runs.scale, runs.lanes);
        ae_encode_collect(&runs);
        for (int l = 0; l < runs.n_runs; l++, out += sizeof(ae_block_q2_0)) {
            ae_block_q2_0 b = {.d = d[l]};
            for (int e = 0; e < 64; e++)
                b.qs[e / 4] = (uint8_t)(b.qs[e / 4] | (runs.code[64 * l + e] + 1) << (2 * (e % 4)));
            memcpy(out, &b, sizeof b);
        }
    }
}

/* Codes 0, 1, 2 for -1, 0, 1 times the largest magnitude; meant for weights that are already ternary. */
static uint16_t encode_ternary(const float *x, uint8_t q[256])
{
    float v[256];
    ae_encode_clean(x, 256, AE_ENCODE_LIMIT, v);
    float d = largest(v, 256), inverse = ae_encode_inverse(d);
    for (int e = 0; e < 256; e++) {
        bool one = fabsf(v[e]) * inverse >= 0.5f;
        q[e] = (uint8_t)(!one ? 1 : v[e] < 0.0f ? 0 : 2);
    }
    return ae_encode_f16_scale(d);
}

/* Up to five digits, `stride` apart, first digit highest, as a fraction of 243 scaled to 256, rounded up. */
static uint8_t pack_trits(const uint8_t *q, int n, int stride)
{
    int v = 0;
    for (int i = 0; i < 5; i++) v = 3 * v + (i < n ? q[i * stride] : 0);
    return (uint8_t)((v * 256 + 242) / 243);
}

void ae_encode_tq1_0(const float *x, const float *importance, void *blocks, size_t n)
{
    (void)importance;
    uint8_t q[256], *out = blocks;
    for (size_t i = 0; i < n / 256; i++, x += 256, out += sizeof(ae_block_tq1_0)) {
        ae_block_tq1_0 b = {.d = encode_ternary(x, q)};
        for (int m = 0; m < 32; m++) b.qs[m] = pack_trits(q + m, 5, 32);
        for (int m = 0; m < 16; m++) b.qs[32 + m] = pack_trits(q + 160 + m, 5, 16);
        for (int m = 0; m < 4; m++) b.qh[m] = pack_trits(q + 240 + m, 4, 4);
        memcpy(out, &b, sizeof b);
    }
}

void ae_encode_tq2_0(const float *x, const float *importance, void *blocks, size_t n)
{
    (void)importance;
    uint8_t q[256], *out = blocks;
    for (size_t i = 0; i < n / 256; i++, x += 256, out += sizeof(ae_block_tq2_0)) {
        ae_block_tq2_0 b = {.d = encode_ternary(x, q)};
        for (int e = 0; e < 256; e++) {
            uint8_t *byte = &b.qs[32 * (e / 128) + e % 32];
            *byte = (uint8_t)(*byte | q[e] << (2 * (e / 32 % 4)));
        }
        memcpy(out, &b, sizeof b);
    }
}

/* encode.c - f32 to the float formats and to the simple formats of 32 elements.
 *
 * Owns F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, and how errors are weighed. Without importance these scale by the
 * block's extremes, without a search, in the same order of roundings as ggml's reference, so finite ordinary input gives
 * the same bytes as ggml. With importance all but Q8_0 search, as the other formats do (encode_fit.h).
 */
#include "quant/encode.h"

#include <float.h>
#include <math.h>

#include "quant/blocks.h"
#include "quant/encode_fit.h"

void ae_encode_clean(const float *x, size_t n, float limit, float *out)
{
    for (size_t i = 0; i < n; i++) {
        float v = x[i];
        out[i] = v != v ? 0.0f : v > limit ? limit : v < -limit ? -limit : v;
    }
}

void ae_encode_weigh(const float *importance, size_t n, float *w)
{
    float most = 0.0f;
    int exponent = 1;
    for (size_t i = 0; i < n; i++) {
        w[i] = !importance ? 1.0f : !(importance[i] > 0.0f) ? 0.0f : importance[i] > FLT_MAX ? FLT_MAX : importance[i];
        if (w[i] > most) most = w[i];
    }
    if (most > 0.0f) (void)frexpf(most, &exponent);
    if (exponent == 1 && most > 0.0f) return;
    for (size_t i = 0; i < n; i++) w[i] = most > 0.0f ? ldexpf(w[i], 1 - exponent) : 1.0f;
}

uint16_t ae_encode_f16_scale(float d)
{
    return ae_f32_to_f16(d > 65504.0f ? 65504.0f : d < -65504.0f ? -65504.0f : d);
}

void ae_encode_f32(const float *x, const float *importance, void *blocks, size_t n)
{
    (void)importance;
    if (n) memcpy(blocks, x, n * sizeof *x);
}

static void store_u16(void *blocks, size_t i, uint16_t v)
{
    memcpy((uint8_t *)blocks + 2 * i, &v, sizeof v);
}

void ae_encode_f16(const float *x, const float *importance, void *blocks, size_t n)
{
    (void)importance;
    for (size_t i = 0; i < n; i++) store_u16(blocks, i, ae_f32_to_f16(x[i]));
}

void ae_encode_bf16(const float *x, const float *importance, void *blocks, size_t n)
{
    (void)importance;
    for (size_t i = 0; i < n; i++) store_u16(blocks, i, ae_f32_to_bf16(x[i]));
}

static void pack_nibbles(const uint8_t q[32], uint8_t qs[16])
{
    for (int i = 0; i < 16; i++) qs[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
}

static void pack_fifth_bit(const uint8_t q[32], uint8_t qh[4])
{
    memset(qh, 0, 4);
    for (int e = 0; e < 32; e++) qh[e / 8] = (uint8_t)(qh[e / 8] | (q[e] >> 4) << (e % 8));
}

static float search_centred(const float *x, const float *importance, int half, uint8_t q[32])
{
    const ae_fit_codes codes = {NULL, NULL, -half, half - 1, (float)-half - 0.9f, 0.1f, 19, true};
    float w[32];
    int8_t code[32];
    ae_encode_weigh(importance, 32, w);
    const float d = ae_f16_to_f32(ae_encode_f16_scale(ae_fit_scale(&codes, x, w, 32, code)));
    ae_fit_round(&codes, x, 32, d, code);
    for (int e = 0; e < 32; e++) q[e] = (uint8_t)(code[e] + half);
    return d;
}

static float search_range(const float *x, const float *importance, int n_steps, uint8_t q[32], float *min)
{
    float w[32], d, below;
    int8_t code[32];
    ae_encode_weigh(importance, 32, w);
    ae_fit_range(x, w, 32, n_steps, true, &d, &below);
    d = ae_f16_to_f32(ae_encode_f16_scale(d));
    *min = ae_f16_to_f32(ae_encode_f16_scale(-below));
    ae_fit_range_round(x, 32, n_steps, d, -*min, code);
    for (int e = 0; e < 32; e++) q[e] = (uint8_t)code[e];
    return d;
}

/* Codes 0 .. 2 half - 1 around half; the signed extreme of the block becomes code 0 exactly. */
static float encode_centred(const float *input, const float *importance, int half, uint8_t q[32])
{
    float x[32], extreme = 0.0f;
    ae_encode_clean(input, 32, AE_ENCODE_LIMIT, x);
    if (importance) return search_centred(x, importance, half, q);
    for (int e = 0; e < 32; e++)
        if (fabsf(x[e]) > fabsf(extreme)) extreme = x[e];
    float d = extreme / (float)-half, inverse = ae_encode_inverse(d);
    for (int e = 0; e < 32; e++)
        q[e] = (uint8_t)ae_encode_floor(x[e] * inverse + ((float)half + 0.5f), 0, 2 * half - 1);
    return d;
}

/* Codes 0 .. n_steps from minimum to maximum. */
static float encode_range(const float *input, const float *importance, int n_steps, uint8_t q[32], float *min)
{
    float x[32];
    ae_encode_clean(input, 32, AE_ENCODE_LIMIT, x);
    if (importance) return search_range(x, importance, n_steps, q, min);
    float lo = x[0], hi = x[0];
    for (int e = 1; e < 32; e++) {
        if (x[e] < lo) lo = x[e];
        if (x[e] > hi) hi = x[e];
    }
    float d = (hi - lo) / (float)n_steps, inverse = ae_encode_inverse(d);
    for (int e = 0; e < 32; e++) q[e] = (uint8_t)ae_encode_floor((x[e] - lo) * inverse + 0.5f, 0, n_steps);
    *min = lo;
    return d;
}

void ae_encode_q4_0(const float *x, const float *importance, void *blocks, size_t n)
{
    uint8_t q[32], *out = blocks;
    for (size_t i = 0; i < n / 32; i++, x += 32, out += sizeof(ae_block_q4_0)) {
        ae_block_q4_0 b = {.d = ae_encode_f16_scale(encode_centred(x, ae_encode_from(importance, 32 * i), 8, q))};
        pack_nibbles(q, b.qs);
        memcpy(out, &b, sizeof b);
    }
}

void ae_encode_q4_1(const float *x, const float *importance, void *blocks, size_t n)
{
    uint8_t q[32], *out = blocks;
    float min;
    for (size_t i = 0; i < n / 32; i++, x += 32, out += sizeof(ae_block_q4_1)) {
        ae_block_q4_1 b = {.d = ae_encode_f16_scale(encode_range(x, ae_encode_from(importance, 32 * i), 15, q, &min))};
        b.m = ae_encode_f16_scale(min);
        pack_nibbles(q, b.qs);
        memcpy(out, &b, sizeof b);
    }
}

void ae_encode_q5_0(const float *x, const float *importance, void *blocks, size_t n)
{
    uint8_t q[32], *out = blocks;
    for (size_t i = 0; i < n / 32; i++, x += 32, out += sizeof(ae_block_q5_0)) {
        ae_block_q5_0 b = {.d = ae_encode_f16_scale(encode_centred(x, ae_encode_from(importance, 32 * i), 16, q))};
        pack_nibbles(q, b.qs);
        pack_fifth_bit(q, b.qh);
        memcpy(out, &b, sizeof b);
    }
}

void ae_encode_q5_1(const float *x, const float *importance, void *blocks, size_t n)
{
    uint8_t q[32], *out = blocks;
    float min;
    for (size_t i = 0; i < n / 32; i++, x += 32, out += sizeof(ae_block_q5_1)) {
        ae_block_q5_1 b = {.d = ae_encode_f16_scale(encode_range(x, ae_encode_from(importance, 32 * i), 31, q, &min))};
        b.m = ae_encode_f16_scale(min);
        pack_nibbles(q, b.qs);
        pack_fifth_bit(q, b.qh);
        memcpy(out, &b, sizeof b);
    }
}

void ae_encode_q8_0(const float *x, const float *importance, void *blocks, size_t n)
{
    (void)importance;
    uint8_t *out = blocks;
    for (size_t i = 0; i < n / 32; i++, x += 32, out += sizeof(ae_block_q8_0)) {
        float v[32], largest = 0.0f;
        ae_encode_clean(x, 32, AE_ENCODE_LIMIT, v);
        for (int e = 0; e < 32; e++)
            if (fabsf(v[e]) > largest) largest = fabsf(v[e]);
        float d = largest / 127.0f, inverse = ae_encode_inverse(d);
        ae_block_q8_0 b = {.d = ae_encode_f16_scale(d)};
        for (int e = 0; e < 32; e++) { /* ties away from zero, as roundf */
            int q = ae_encode_round(fabsf(v[e]) * inverse, 0, 127);
            b.qs[e] = (int8_t)(v[e] < 0.0f ? -q : q);
        }
        memcpy(out, &b, sizeof b);
    }
}

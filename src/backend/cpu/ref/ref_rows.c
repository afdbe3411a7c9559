/* ref_rows.c - the definition of the row operations: norm, activation, quantization, rotation. */
#include <math.h>
#include <string.h>

#include "backend/cpu/ref/ref.h"
#include "base/fmath.h"

void ae_ref_rmsnorm(const float *x, const float *norm, float eps, uint32_t n, float *y)
{
    float a[16] = {0};
    for (uint32_t i = 0; i < n; i++) a[i % 16] = fmaf(x[i], x[i], a[i % 16]);
    const float inv = 1.0f / sqrtf(ae_sum16(a) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++) y[i] = x[i] * inv * norm[i];
}

void ae_ref_swiglu(const float *g, const float *u, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++) y[i] = ae_siluf(g[i]) * u[i];
}

/* Rounds to the nearest even integer by the magic number, so that SIMD code can do just the same. */
static int8_t round_code(float x, float inv)
{
    float t = fmaf(x, inv, AE_EXP_MAGIC);
    uint32_t bits;
    memcpy(&bits, &t, 4);
    return (int8_t)(uint8_t)(bits - 0x4B400000u);
}

/* One group; returns its scale. A NaN never becomes the maximum; a group too small to invert is zero. */
static float quant_group(const float *x, uint32_t n, int8_t *q)
{
    float top = 0;
    for (uint32_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        top = a > top ? a : top;
    }
    if (!(top > 1e-30f)) {
        memset(q, 0, n);
        return 0;
    }
    const float inv = 127.0f / top;
    for (uint32_t i = 0; i < n; i++) q[i] = round_code(x[i], inv);
    return top / 127.0f;
}

void ae_ref_quant32(const float *x, uint32_t n, int8_t *q, float *d, int32_t *sum, float *s)
{
    for (uint32_t b = 0; b < n / 32; b++) {
        d[b] = quant_group(x + 32 * b, 32, q + 32 * b);
        sum[b] = 0;
        for (uint32_t i = 0; i < 32; i++) sum[b] += q[32 * b + i];
        s[b] = d[b] * (float)sum[b];
    }
}

void ae_ref_quant256(const float *x, uint32_t n, int8_t *q, float *d, int16_t *bsum)
{
    for (uint32_t b = 0; b < n / 256; b++) d[b] = quant_group(x + 256 * b, 256, q + 256 * b);
    for (uint32_t b = 0; b < n / 16; b++) {
        int sum = 0;
        for (uint32_t i = 0; i < 16; i++) sum += q[16 * b + i];
        bsum[b] = (int16_t)sum;
    }
}

void ae_ref_rope(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t n_rot, ae_rope_kind kind, const float *cos,
                 const float *sin)
{
    const uint32_t half = n_rot / 2;
    for (uint32_t h = 0; h < n_heads; h++, x += head_dim)
        for (uint32_t i = 0; i < half; i++) {
            float *a = kind == AE_ROPE_NEOX ? x + i : x + 2 * i;
            float *b = kind == AE_ROPE_NEOX ? x + i + half : x + 2 * i + 1;
            const float xa = *a, xb = *b;
            *a = xa * cos[i] - xb * sin[i];
            *b = xa * sin[i] + xb * cos[i];
        }
}

void ae_ref_kv_write(const float *k, const float *v, uint32_t head_dim, uint16_t *page, uint32_t place)
{
    uint16_t *kp = page + (size_t)(place / 16) * head_dim * 16 + place % 16;
    uint16_t *vp = page + AE_KV_K_ELEMENTS(head_dim) + (size_t)place * head_dim;
    for (uint32_t i = 0; i < head_dim; i++) {
        kp[i * 16] = ae_f32_to_f16(k[i]);
        vp[i] = ae_f32_to_f16(v[i]);
    }
}

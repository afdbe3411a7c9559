/* rows_neon.c - row operations with NEON: the bodies of simd/rows.inc, rotation, and writing keys and values. */
#include "backend/cpu/arm/vec_neon.inc"
#define ENTRY(name) ae_neon_##name
#define ROWS_ENTRIES
#include "backend/cpu/simd/rows.inc"
#include "backend/cpu/simd/recur.inc"

/* Computes a*c - b*s and a*s + b*c. Products are rounded before the sum, as in the definition. */
INLINE float32x4x2_t rotate(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t s)
{
    return (float32x4x2_t){{vsubq_f32(vmulq_f32(a, c), vmulq_f32(b, s)), vaddq_f32(vmulq_f32(a, s), vmulq_f32(b, c))}};
}

/* Pairs (i, i + half). */
static void rope_neox(float *x, uint32_t half, const float *cos, const float *sin)
{
    uint32_t i = 0;
    for (; i + 4 <= half; i += 4) {
        const float32x4x2_t y = rotate(vld1q_f32(x + i), vld1q_f32(x + i + half), vld1q_f32(cos + i), vld1q_f32(sin + i));
        vst1q_f32(x + i, y.val[0]);
        vst1q_f32(x + i + half, y.val[1]);
    }
    for (; i < half; i++) {
        const float a = x[i], b = x[i + half];
        x[i] = a * cos[i] - b * sin[i];
        x[i + half] = a * sin[i] + b * cos[i];
    }
}

/* Pairs (2i, 2i + 1). */
static void rope_norm(float *x, uint32_t half, const float *cos, const float *sin)
{
    uint32_t i = 0;
    for (; i + 4 <= half; i += 4) {
        const float32x4x2_t v = vld2q_f32(x + 2 * i);
        vst2q_f32(x + 2 * i, rotate(v.val[0], v.val[1], vld1q_f32(cos + i), vld1q_f32(sin + i)));
    }
    for (; i < half; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cos[i] - b * sin[i];
        x[2 * i + 1] = a * sin[i] + b * cos[i];
    }
}

void ae_neon_rope(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t n_rot, ae_rope_kind kind, const float *cos,
                  const float *sin)
{
    for (uint32_t h = 0; h < n_heads; h++, x += head_dim)
        (kind == AE_ROPE_NEOX ? rope_neox : rope_norm)(x, n_rot / 2, cos, sin);
}

/* Returns four floats with any NaN replaced by the default one, which becomes 0x7E00. */
INLINE float32x4_t one_nan(const float *p)
{
    const float32x4_t v = vld1q_f32(p);
    return vbslq_f32(vceqq_f32(v, v), v, vdupq_n_f32(NAN));
}

/* Returns eight floats as f16, rounded to nearest even, which is the mode in which C programs start. */
INLINE uint16x8_t halves_of(const float *p)
{
    return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(one_nan(p)), one_nan(p + 4)));
}

void ae_neon_kv_write_f16(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place)
{
    uint16_t *kp = (uint16_t *)page + (size_t)(place / 16) * head_dim * 16 + place % 16;
    uint16_t *vp = (uint16_t *)page + AE_KV_K_ELEMENTS(head_dim) + (size_t)place * head_dim;
    uint32_t i = 0;
    for (; i + 8 <= head_dim; i += 8) {
        uint16_t halves[8];
        vst1q_u16(halves, halves_of(k + i));
        vst1q_u16(vp + i, halves_of(v + i));
        for (uint32_t e = 0; e < 8; e++) kp[(i + e) * 16] = halves[e];
    }
    for (; i < head_dim; i++) {
        kp[i * 16] = ae_kv_half(k[i]);
        vp[i] = ae_kv_half(v[i]);
    }
}

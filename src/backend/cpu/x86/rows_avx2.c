/* rows_avx2.c - row operations with AVX2: the bodies of rows.inc, rotation, and writing keys and values. */
#include "backend/cpu/x86/vec_avx2.inc"
#define ENTRY(name) ae_avx2_##name
#define ROWS_ENTRIES
#include "backend/cpu/simd/rows.inc"
#include "backend/cpu/simd/recur.inc"

/* Rotates pairs (i, i + half). Products are rounded before the sum, as in the definition. */
static void rope_neox(float *x, uint32_t half, const float *cos, const float *sin)
{
    uint32_t i = 0;
    for (; i + 8 <= half; i += 8) {
        const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + half);
        const __m256 c = _mm256_loadu_ps(cos + i), s = _mm256_loadu_ps(sin + i);
        _mm256_storeu_ps(x + i, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
        _mm256_storeu_ps(x + i + half, _mm256_add_ps(_mm256_mul_ps(a, s), _mm256_mul_ps(b, c)));
    }
    for (; i < half; i++) {
        const float a = x[i], b = x[i + half];
        x[i] = a * cos[i] - b * sin[i];
        x[i + half] = a * sin[i] + b * cos[i];
    }
}

/* Returns four floats, each twice. */
INLINE __m256 twice(const float *p)
{
    const __m256 four = _mm256_castps128_ps256(_mm_loadu_ps(p));
    return _mm256_permutevar8x32_ps(four, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}

/* Pairs (2i, 2i + 1). */
static void rope_norm(float *x, uint32_t half, const float *cos, const float *sin)
{
    uint32_t i = 0;
    for (; i + 4 <= half; i += 4) {
        const __m256 v = _mm256_loadu_ps(x + 2 * i), swapped = _mm256_permute_ps(v, 0xB1);
        _mm256_storeu_ps(x + 2 * i, _mm256_addsub_ps(_mm256_mul_ps(v, twice(cos + i)), _mm256_mul_ps(swapped, twice(sin + i))));
    }
    for (; i < half; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cos[i] - b * sin[i];
        x[2 * i + 1] = a * sin[i] + b * cos[i];
    }
}

void ae_avx2_rope(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t n_rot, ae_rope_kind kind, const float *cos,
                  const float *sin)
{
    for (uint32_t h = 0; h < n_heads; h++, x += head_dim)
        (kind == AE_ROPE_NEOX ? rope_neox : rope_norm)(x, n_rot / 2, cos, sin);
}

/* Returns eight floats as f16, rounded to nearest even; NaN becomes 0x7E00. */
INLINE __m128i halves_of(const float *p)
{
    const __m256 v = _mm256_loadu_ps(p);
    const __m256 one_nan = _mm256_blendv_ps(v, _mm256_set1_ps(NAN), _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_cvtps_ph(one_nan, _MM_FROUND_TO_NEAREST_INT);
}

void ae_avx2_kv_write_f16(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place)
{
    uint16_t *kp = (uint16_t *)page + (size_t)(place / 16) * head_dim * 16 + place % 16;
    uint16_t *vp = (uint16_t *)page + AE_KV_K_ELEMENTS(head_dim) + (size_t)place * head_dim;
    uint32_t i = 0;
    for (; i + 8 <= head_dim; i += 8) {
        uint16_t halves[8];
        _mm_storeu_si128((__m128i *)(void *)halves, halves_of(k + i));
        _mm_storeu_si128((__m128i *)(void *)(vp + i), halves_of(v + i));
        for (uint32_t e = 0; e < 8; e++) kp[(i + e) * 16] = halves[e];
    }
    for (; i < head_dim; i++) {
        kp[i * 16] = ae_kv_half(k[i]);
        vp[i] = ae_kv_half(v[i]);
    }
}

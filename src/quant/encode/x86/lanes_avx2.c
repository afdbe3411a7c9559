/* lanes_avx2.c - the searches of lanes.h with sixteen floats in two AVX registers. */
#include <immintrin.h>
#include <math.h>

#include "quant/encode/lanes.h"

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 4")
#endif
#define LEVEL(name) name##_avx2
#define LEVEL_NAME "avx2"

typedef struct v16 {
    __m256 a, b;
} v16;
typedef v16 m16; /* all bits of a lane, or none */

#define PAIR(first, second) ((v16){first, second})

INLINE v16 v_set1(float x) { return PAIR(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
INLINE v16 v_load(const float *p) { return PAIR(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
INLINE void v_store(float *p, v16 x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
INLINE v16 v_add(v16 x, v16 y) { return PAIR(_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)); }
INLINE v16 v_sub(v16 x, v16 y) { return PAIR(_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)); }
INLINE v16 v_mul(v16 x, v16 y) { return PAIR(_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)); }
INLINE v16 v_div(v16 x, v16 y) { return PAIR(_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)); }
/* x > y ? x : y and x < y ? x : y, so y where either is NaN */
INLINE v16 v_max(v16 x, v16 y) { return PAIR(_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)); }
INLINE v16 v_min(v16 x, v16 y) { return PAIR(_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)); }
INLINE v16 v_floor(v16 x) { return PAIR(_mm256_floor_ps(x.a), _mm256_floor_ps(x.b)); }

INLINE m16 m_and(m16 x, m16 y) { return PAIR(_mm256_and_ps(x.a, y.a), _mm256_and_ps(x.b, y.b)); }
INLINE m16 m_or(m16 x, m16 y) { return PAIR(_mm256_or_ps(x.a, y.a), _mm256_or_ps(x.b, y.b)); }
INLINE m16 m_not(m16 x)
{
    const __m256 all = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    return PAIR(_mm256_xor_ps(x.a, all), _mm256_xor_ps(x.b, all));
}
INLINE bool m_any(m16 x) { return _mm256_movemask_ps(_mm256_or_ps(x.a, x.b)) != 0; }
INLINE v16 v_abs(v16 x)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return PAIR(_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b));
}

INLINE m16 v_gt(v16 x, v16 y) { return PAIR(_mm256_cmp_ps(x.a, y.a, _CMP_GT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GT_OQ)); }
INLINE m16 v_ge(v16 x, v16 y) { return PAIR(_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ)); }
INLINE m16 v_eq(v16 x, v16 y) { return PAIR(_mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ)); }
/* x where m, else y */
INLINE v16 v_select(m16 m, v16 x, v16 y)
{
    return PAIR(_mm256_blendv_ps(y.a, x.a, m.a), _mm256_blendv_ps(y.b, x.b, m.b));
}
/* x + y where m, else x */
INLINE v16 v_add_if(v16 x, m16 m, v16 y)
{
    return PAIR(_mm256_add_ps(x.a, _mm256_and_ps(m.a, y.a)), _mm256_add_ps(x.b, _mm256_and_ps(m.b, y.b)));
}

INLINE __m256 look_up(const float *table, __m256 at)
{
    const __m256i i = _mm256_cvttps_epi32(at);
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), i);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), i);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(i, 28))); /* bit 3 of the index */
}

/* table[(int)i] for indices 0 to 15 */
INLINE v16 v_look_up(const float *table, v16 i) { return PAIR(look_up(table, i.a), look_up(table, i.b)); }

/* Whole numbers as bytes. */
INLINE void v_store_bytes(int8_t *p, v16 x)
{
    const __m256i words = _mm256_packs_epi32(_mm256_cvttps_epi32(x.a), _mm256_cvttps_epi32(x.b));
    const __m256i ordered = _mm256_permute4x64_epi64(words, 0xD8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
    _mm_storeu_si128((__m128i *)(void *)p, bytes);
}

INLINE v16 v_load_bytes(const int8_t *p)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return PAIR(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))));
}

#include "quant/encode/lane_search.inc"

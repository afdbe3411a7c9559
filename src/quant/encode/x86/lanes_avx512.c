/* lanes_avx512.c - the searches of lanes.h with sixteen floats in an AVX-512 register. */
#include <immintrin.h>
#include <math.h>

#include "quant/encode/lanes.h"

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 4")
#endif
#define LEVEL(name) name##_avx512
#define LEVEL_NAME "avx512"

typedef __m512 v16;
typedef __mmask16 m16;

INLINE v16 v_set1(float x) { return _mm512_set1_ps(x); }
INLINE v16 v_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void v_store(float *p, v16 a) { _mm512_storeu_ps(p, a); }
INLINE v16 v_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
INLINE v16 v_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
INLINE v16 v_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
INLINE v16 v_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
INLINE v16 v_abs(v16 a) { return _mm512_abs_ps(a); }
/* a > b ? a : b and a < b ? a : b, so b where either is NaN */
INLINE v16 v_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
INLINE v16 v_min(v16 a, v16 b) { return _mm512_min_ps(a, b); }
INLINE v16 v_floor(v16 a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }

INLINE m16 v_gt(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
INLINE m16 v_ge(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
INLINE m16 v_eq(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
INLINE m16 m_and(m16 a, m16 b) { return (m16)(a & b); }
INLINE m16 m_or(m16 a, m16 b) { return (m16)(a | b); }
INLINE m16 m_not(m16 a) { return (m16)~a; }
INLINE bool m_any(m16 a) { return a != 0; }
/* a where m, else b */
INLINE v16 v_select(m16 m, v16 a, v16 b) { return _mm512_mask_mov_ps(b, m, a); }
/* a + b where m, else a */
INLINE v16 v_add_if(v16 a, m16 m, v16 b) { return _mm512_mask_add_ps(a, m, a, b); }

/* table[(int)i] for indices 0 to 15 */
INLINE v16 v_look_up(const float *table, v16 i)
{
    return _mm512_permutexvar_ps(_mm512_cvttps_epi32(i), _mm512_loadu_ps(table));
}

/* Whole numbers as bytes. */
INLINE void v_store_bytes(int8_t *p, v16 a)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(a)));
}

INLINE v16 v_load_bytes(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

#include "quant/encode/lane_search.inc"

/* mm_p16_256_avx512.c - packed AE_DOT_256 products with AVX-512 VNNI: 16 output rows in the lanes.
 *
 * Arithmetic and layout: kernels.h. The chain p over a unit's sub-blocks stays in registers, the sums of
 * the outputs in L1: they are touched once per 256 k. */
#define GROUP 16
#include "backend/cpu/simd/p16.inc"
#include "backend/cpu/x86/x86.h"
#include "backend/cpu/x86/codes_avx512.inc"
#include "backend/cpu/x86/dots_avx512.inc"

INLINE __m512 sub_at(const uint8_t *sub, uint32_t i)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)(const void *)(sub + i * AE_PANEL))));
}

/* Two neighbouring sub-blocks' minimums per row, as pairs of int16. */
INLINE __m512i min_pair(const uint8_t *submin, uint32_t i)
{
    const __m128i a = _mm_load_si128((const __m128i *)(const void *)(submin + i * AE_PANEL));
    const __m128i b = _mm_load_si128((const __m128i *)(const void *)(submin + (i + 1) * AE_PANEL));
    return _mm512_cvtepu8_epi16(_mm256_set_m128i(_mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(a, b)));
}

/* p[r] += s[r] * sub */
INLINE void add_sums(__m512 *p, const __m512i *s, __m512 sub, const int rows)
{
    UNROLL
    for (int r = 0; r < TOGETHER; r++)
        if (r < rows) p[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s[r]), sub, p[r]);
}

/* p[r] of one unit. */
INLINE void chains(const job *j, uint32_t row, const int n, const int form, const uint32_t n_sub, const bool has_min,
                   const uint8_t *codes, const uint8_t *sub, uint32_t u, __m512i lut, __m512 p[GROUP])
{
    const int8_t *q = j->q + row * j->q_stride + u * 256;
    const size_t q_stride = j->q_stride;
    const int most = n_sub == 16 && n > 8 ? 4 : TOGETHER;
    __m512i whole[GROUP]; /* n_sub == 1: one sum through all blocks */
    UNROLL
    for (int r = 0; r < n; r++) {
        p[r] = _mm512_setzero_ps();
        if (n_sub == 1) whole[r] = has_min ? _mm512_setzero_si512() : _mm512_set1_epi32(j->start[row + (uint32_t)r][u]);
    }
    for (uint32_t b = 0; b < 8; b++, codes += block_bytes(form)) {
        __m512i w[8];
        prefetch(codes, j->ahead, form);
        unpack(codes, form, lut, w);
        const uint32_t i = n_sub == 16 ? 2 * b : n_sub == 8 ? b : 0;
        const __m512 s0 = sub_at(sub, i), s1 = n_sub == 16 ? sub_at(sub, i + 1) : s0;
        UNROLL
        for (int r = 0; r < n; r += together(n, most)) {
            const int part = together(n, most), rows = n - r < part ? n - r : part;
            const int8_t *x = q + r * q_stride + b * 32;
            __m512i s[TOGETHER];
            if (n_sub == 1) {
                dot(whole + r, w, x, q_stride, 0, 8, rows);
                continue;
            }
            begin_sums(s, j, row + (uint32_t)r, u * n_sub + i, has_min, rows);
            dot(s, w, x, q_stride, 0, n_sub == 16 ? 4 : 8, rows);
            add_sums(p + r, s, s0, rows);
            if (n_sub == 16) {
                begin_sums(s, j, row + (uint32_t)r, u * n_sub + i + 1, has_min, rows);
                dot(s, w, x, q_stride, 4, 4, rows);
                add_sums(p + r, s, s1, rows);
            }
        }
    }
    UNROLL
    for (int r = 0; n_sub == 1 && r < n; r++) p[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole[r]), sub_at(sub, 0), p[r]);
}

/* sum_j(submin_j * bsum_j) of one row and unit; pair[n_sub / 2] */
INLINE __m512i min_sum(const __m512i *pair, const int16_t *bsum, const uint32_t n_sub)
{
    __m512i s = _mm512_setzero_si512();
    UNROLL
    for (uint32_t i = 0; i < n_sub / 2; i++) {
        int32_t two;
        memcpy(&two, bsum + 2 * i, 4);
        s = _mm512_dpwssd_epi32(s, pair[i], _mm512_set1_epi32(two));
    }
    return s;
}

INLINE void body(const job *j, uint32_t row, const int n, const int form, const uint32_t n_sub, const bool has_min)
{
    const uint8_t *codes = j->codes, *scales = j->scales;
    const float *dx = j->dx + row * j->u_stride;
    float *out = j->acc + row * AE_PANEL;
    const __m512i lut = load_lut(j, form);
    for (uint32_t u = 0; u < j->n_units; u++) {
        const uint8_t *sub = scales + (has_min ? 128 : 64), *submin = sub + n_sub * AE_PANEL;
        __m512 p[GROUP];
        const uint32_t unit_bytes = (has_min ? 2 : 1) * (64 + n_sub * AE_PANEL);
        UNROLL
        for (uint32_t i = 0; i < unit_bytes; i += 64) _mm_prefetch((const char *)scales + 2 * unit_bytes + i, _MM_HINT_T0);
        chains(j, row, n, form, n_sub, has_min, codes, sub, u, lut, p);
        const __m512 d = _mm512_loadu_ps((const float *)(const void *)scales);
        UNROLL
        for (int r = 0; r < n; r++) {
            const __m512 dd = _mm512_mul_ps(d, _mm512_set1_ps(dx[r * j->u_stride + u]));
            _mm512_store_ps(out + r * AE_PANEL, _mm512_fmadd_ps(p[r], dd, _mm512_load_ps(out + r * AE_PANEL)));
        }
        if (has_min) {
            const __m512 dmin = _mm512_load_ps((const float *)(const void *)(scales + 64));
            __m512i pair[8];
            for (uint32_t i = 0; i < n_sub / 2; i++) pair[i] = min_pair(submin, 2 * i);
            UNROLL
            for (int r = 0; r < n; r++) {
                const __m512i s = min_sum(pair, &j->bsum[row + (uint32_t)r][u * n_sub], n_sub);
                const __m512 dd = _mm512_mul_ps(dmin, _mm512_set1_ps(dx[r * j->u_stride + u]));
                _mm512_store_ps(out + r * AE_PANEL,
                                _mm512_fnmadd_ps(_mm512_cvtepi32_ps(s), dd, _mm512_load_ps(out + r * AE_PANEL)));
            }
        }
        codes += 8 * block_bytes(form);
        scales += unit_bytes;
    }
}

KERNEL_TIGHT(q4_k, CASES_16, body, FORM_4, 8, true)
KERNEL_TIGHT(q5_k, CASES_16, body, FORM_5, 8, true)
KERNEL_TIGHT(q6_k, CASES_16, body, FORM_6, 16, false)
KERNEL_FEW(q2_k, body, FORM_4, 16, true)
KERNEL_FEW(q3_k, body, FORM_4, 16, false)
KERNEL_FEW(tq, body, FORM_4, 1, false)
KERNEL_FEW(iq4_xs, body, FORM_LUT, 8, false)
KERNEL_FEW(iq3_s, body, FORM_5, 8, false)
KERNEL_FEW(iq1_m, body, FORM_5, 16, false)
KERNEL_FEW(iq2_xxs, body, FORM_8, 8, false)
KERNEL_FEW(iq2_xs, body, FORM_8, 16, false)

#include "backend/cpu/simd/choose_256.inc"

void ae_avx512_mm_p16_256(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    drive(w, act, out, begin, end, true, choose(&w->packed));
}

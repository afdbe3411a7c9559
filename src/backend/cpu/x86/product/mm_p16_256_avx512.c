/* mm_p16_256_avx512.c - packed AE_DOT_256 products with AVX-512 VNNI: 16 output rows in the lanes.
 * Arithmetic and layout: kernels.h. The sums p of a unit stay in registers, those of the outputs in L1, where they are updated
 * once per 256 k. The sums are over codes as stored; what `zero` adds is subtracted once per unit. */
#define GROUP 16
#include "backend/cpu/simd/p16.inc"
#include "backend/cpu/x86/x86.h"
#include "backend/cpu/x86/codes_avx512.inc"
#include "backend/cpu/x86/dots_avx512.inc"

/* Returns a sub-block's scale per row; narrow: as a pair of int16, of which the second is 0. */
INLINE __m512i sub_at(const uint8_t *sub, uint32_t i, const bool narrow)
{
    const __m512i wide = _mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)(const void *)(sub + i * AE_PANEL)));
    return narrow ? _mm512_and_si512(wide, _mm512_set1_epi32(0xFFFF)) : wide;
}

/* Returns the scales or minimums of two adjacent sub-blocks per row, as pairs of int16; with n_sub == 1 the second one is
 * zero. */
INLINE __m512i pair_at(const uint8_t *from, uint32_t i, const uint32_t n_sub, const bool is_signed)
{
    const __m128i *at = (const __m128i *)(const void *)(from + i * AE_PANEL);
    const __m128i a = _mm_load_si128(at), b = n_sub == 1 ? _mm_setzero_si128() : _mm_load_si128(at + 1);
    const __m256i both = _mm256_set_m128i(_mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(a, b));
    return is_signed ? _mm512_cvtepi8_epi16(both) : _mm512_cvtepu8_epi16(both);
}

/* Returns sum_j(factor_j * bsum_j) of one row and unit; pair[(n_sub + 1) / 2] */
INLINE __m512i pair_sum(const __m512i *pair, const int16_t *bsum, const uint32_t n_sub)
{
    __m512i s = _mm512_setzero_si512();
    UNROLL
    for (uint32_t i = 0; i < (n_sub + 1) / 2; i++) {
        int32_t two = bsum[0];
        if (n_sub > 1) memcpy(&two, bsum + 2 * i, 4);
        s = _mm512_dpwssd_epi32(s, pair[i], _mm512_set1_epi32(two));
    }
    return s;
}

/* p[r] += s[r] * sub. Narrow sums fit in their low 16 bits, and the high ones are multiplied by 0. */
INLINE void add_sums(__m512i *p, const __m512i *s, __m512i sub, const bool narrow, const int rows)
{
    UNROLL
    for (int r = 0; r < TOGETHER; r++)
        if (r < rows)
            p[r] = narrow ? _mm512_dpwssd_epi32(p[r], s[r], sub) : _mm512_add_epi32(p[r], _mm512_mullo_epi32(s[r], sub));
}

/* Computes p[r] of one unit, block by block. The sums of 16 k of codes up to 16 stay within 16 * 127 * 16 = 32512. */
INLINE void sums(const job *j, uint32_t row, const int n, const int form, const int top, const uint32_t n_sub,
                 const uint8_t **codes, const uint8_t *sub, uint32_t u, __m512i lut, __m512i p[GROUP])
{
    const int8_t *q = j->q + row * j->q_stride + u * 256;
    const size_t q_stride = j->q_stride;
    const bool narrow = top <= 16;
    const int halves = n_sub == 16 || (n_sub == 8 && narrow) ? 2 : 1;
    const int most = halves == 2 && n > 8 ? 4 : TOGETHER, groups = 8 / halves;
    UNROLL
    for (int r = 0; r < n; r++) p[r] = _mm512_setzero_si512();
    for (uint32_t b = 0; b < 8; b++) {
        __m512i w[8];
        fetch_ahead(j, *codes, 8 * u + b, form);
        unpack(*codes, j->line, form, lut, w);
        *codes += j->step;
        UNROLL
        for (int h = 0; h < halves; h++) {
            const uint32_t i = n_sub == 16 ? 2 * b + (uint32_t)h : n_sub == 8 ? b : 0;
            const __m512i scale = sub_at(sub, i, narrow);
            UNROLL
            for (int r = 0; r < n; r += together(n, most)) {
                const int part = together(n, most), rows = n - r < part ? n - r : part;
                const int8_t *x = q + r * q_stride + b * 32;
                __m512i s[TOGETHER];
                if (n_sub == 1) {
                    dot(p + r, w, x, q_stride, 0, 8, rows);
                    continue;
                }
                UNROLL
                for (int e = 0; e < TOGETHER; e++) s[e] = _mm512_setzero_si512();
                dot(s, w, x, q_stride, h * groups, groups, rows);
                add_sums(p + r, s, scale, narrow, rows);
            }
        }
    }
    UNROLL
    for (int r = 0; r < n; r++)
        if (n_sub == 1) p[r] = _mm512_mullo_epi32(p[r], sub_at(sub, 0, false));
}

/* Adds the unit's sums, less what `zero` adds, to the sums of the outputs, then its minimums. */
INLINE void finish(const job *j, uint32_t row, const int n, const uint32_t n_sub, const bool has_min, const uint8_t *scales,
                   uint32_t u, const __m512i p[GROUP])
{
    const uint8_t *from = scales + (has_min ? 128 + n_sub * AE_PANEL : 64);
    const __m512 d = _mm512_loadu_ps((const float *)(const void *)scales);
    const __m512 dmin = has_min ? _mm512_loadu_ps((const float *)(const void *)(scales + 64)) : d;
    const __m512i zero = _mm512_set1_epi32(j->zero);
    __m512i pair[8];
    UNROLL
    for (uint32_t i = 0; i < (n_sub + 1) / 2; i++) pair[i] = pair_at(from, 2 * i, n_sub, !has_min);
    UNROLL
    for (int r = 0; r < n; r++) {
        float *out = j->acc + (row + (uint32_t)r) * AE_PANEL;
        const __m512 dx = _mm512_set1_ps(j->dx[(row + (uint32_t)r) * j->u_stride + u]);
        const __m512i s = pair_sum(pair, &j->bsum[row + (uint32_t)r][u * n_sub], n_sub);
        const __m512i sum = has_min ? p[r] : _mm512_sub_epi32(p[r], _mm512_mullo_epi32(s, zero));
        __m512 acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(d, dx), _mm512_load_ps(out));
        if (has_min) acc = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(s), _mm512_mul_ps(dmin, dx), acc);
        _mm512_store_ps(out, acc);
    }
}

INLINE void body(const job *j, uint32_t row, const int n, const int form, const int top, const uint32_t n_sub,
                 const bool has_min)
{
    const uint8_t *codes = j->codes, *scales = j->scales;
    const __m512i lut = load_lut(j, form);
    const uint32_t unit_bytes = (has_min ? 2 : 1) * (64 + n_sub * AE_PANEL);
    for (uint32_t u = 0; u < j->n_units; u++) {
        __m512i p[GROUP];
        UNROLL
        for (uint32_t i = 0; i < unit_bytes; i += 64) _mm_prefetch((const char *)scales + 2 * unit_bytes + i, _MM_HINT_T0);
        sums(j, row, n, form, top, n_sub, &codes, scales + (has_min ? 128 : 64), u, lut, p);
        finish(j, row, n, n_sub, has_min, scales, u, p);
        scales += unit_bytes;
    }
}

KERNEL_TIGHT(q4_k, CASES_16, body, FORM_4, 15, 8, true)
KERNEL_TIGHT(q5_k, CASES_16, body, FORM_5, 31, 8, true)
KERNEL_TIGHT(q6_k, CASES_16, body, FORM_6, 63, 16, false)
KERNEL_FEW(q2_k, body, FORM_4, 15, 16, true)
KERNEL_FEW(q3_k, body, FORM_4, 15, 16, false)
KERNEL_FEW(tq, body, FORM_4, 15, 1, false)
KERNEL_FEW(iq4_xs, body, FORM_LUT, 255, 8, false)
KERNEL_FEW(iq3_s, body, FORM_5, 31, 8, false)
KERNEL_FEW(iq1_m, body, FORM_5, 31, 16, false)
KERNEL_FEW(iq2_xxs, body, FORM_8, 127, 8, false)
KERNEL_FEW(iq2_xs, body, FORM_8, 127, 16, false)

#include "backend/cpu/simd/choose_256.inc"

void ae_avx512_mm_p16_256(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    drive(w, act, out, begin, end, true, choose(&w->packed));
}

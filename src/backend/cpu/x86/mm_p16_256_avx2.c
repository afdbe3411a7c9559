/* mm_p16_256_avx2.c - packed AE_DOT_256 products with AVX2: a panel's 16 output rows as two halves of 8 lanes.
 *
 * Arithmetic and layout: kernels.h; the integer sums: codes_avx2.inc. The chains p over the sub-blocks of
 * a unit and the sums of the outputs live in L1: 16 registers hold little more than a block's codes. */
#define GROUP 8
#include "backend/cpu/simd/p16.inc"
#include "backend/cpu/x86/x86.h"
#include "backend/cpu/x86/codes_avx2.inc"

INLINE __m256 sub_at(const uint8_t *sub, uint32_t i, size_t half)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(sub + i * AE_PANEL + 8 * half))));
}

/* Two neighbouring sub-blocks' minimums per row, as pairs of int16. */
INLINE __m256i min_pair(const uint8_t *submin, uint32_t i, size_t half)
{
    const __m128i a = _mm_loadl_epi64((const __m128i *)(const void *)(submin + i * AE_PANEL + 8 * half));
    const __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)(submin + (i + 1) * AE_PANEL + 8 * half));
    return _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b));
}

/* One block of 32 k of one unit, one half, all rows. */
INLINE void step(const job *j, uint32_t row, const int n, const int form, const int top, const uint32_t n_sub,
                 const bool has_min, const uint8_t *codes, const uint8_t *sub, uint32_t u, uint32_t b, size_t half,
                 __m256i lut, __m256 *p, __m256i *whole)
{
    __m256i w[8], size[8];
    unpack(codes + 32 * half, form, lut, w);
    if (top > 127) make_signed(w, size);
    else memcpy(size, w, sizeof size);
    const uint32_t i = n_sub == 16 ? 2 * b : n_sub == 8 ? b : 0;
    const __m256 s0 = sub_at(sub, i, half), s1 = n_sub == 16 ? sub_at(sub, i + 1, half) : s0;
    UNROLL
    for (int r = 0; r < n; r++) {
        const int8_t *x = j->q + (row + (uint32_t)r) * j->q_stride + u * 256 + b * 32;
        const int32_t *start = top > 127 || has_min ? NULL : &j->start[row + (uint32_t)r][u * n_sub + i];
        if (n_sub == 1) {
            whole[r] = dot(whole[r], w, size, x, 0, 8, top);
            continue;
        }
        __m256i s = start ? _mm256_set1_epi32(start[0]) : _mm256_setzero_si256();
        s = dot(s, w, size, x, 0, n_sub == 16 ? 4 : 8, top);
        p[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s), s0, p[r]);
        if (n_sub == 16) {
            s = dot(start ? _mm256_set1_epi32(start[1]) : _mm256_setzero_si256(), w, size, x, 4, 4, top);
            p[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s), s1, p[r]);
        }
    }
}

/* The unit's chain joins the sum of the output, then its minimums. */
INLINE void finish(const job *j, uint32_t row, const int n, const uint32_t n_sub, const bool has_min,
                   const uint8_t *scales, uint32_t u, size_t half, const __m256 *p)
{
    const uint8_t *submin = scales + 128 + n_sub * AE_PANEL;
    const __m256 d = _mm256_loadu_ps((const float *)(const void *)scales + 8 * half);
    const __m256 dmin = has_min ? _mm256_loadu_ps((const float *)(const void *)scales + 16 + 8 * half) : d;
    __m256i pair[8];
    for (uint32_t i = 0; has_min && i < n_sub / 2; i++) pair[i] = min_pair(submin, 2 * i, half);
    for (int r = 0; r < n; r++) {
        float *out = j->acc + (row + (uint32_t)r) * AE_PANEL + 8 * half;
        const __m256 dx = _mm256_set1_ps(j->dx[(row + (uint32_t)r) * j->u_stride + u]);
        __m256 acc = _mm256_fmadd_ps(p[r], _mm256_mul_ps(d, dx), _mm256_load_ps(out));
        if (has_min) {
            const int16_t *bsum = &j->bsum[row + (uint32_t)r][u * n_sub];
            __m256i s = _mm256_setzero_si256();
            for (uint32_t i = 0; i < n_sub / 2; i++) {
                int32_t two;
                memcpy(&two, bsum + 2 * i, 4);
                s = _mm256_add_epi32(s, _mm256_madd_epi16(pair[i], _mm256_set1_epi32(two)));
            }
            acc = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(s), _mm256_mul_ps(dmin, dx), acc);
        }
        _mm256_store_ps(out, acc);
    }
}

INLINE void body(const job *j, uint32_t row, const int n, const int form, const int top, const uint32_t n_sub,
                 const bool has_min)
{
    const uint8_t *codes = j->codes, *scales = j->scales;
    const __m256i lut = load_lut(j, form);
    const size_t unit_bytes = (has_min ? 2 : 1) * (64 + n_sub * AE_PANEL);
    for (uint32_t u = 0; u < j->n_units; u++) {
        const uint8_t *sub = scales + (has_min ? 128 : 64);
        __m256 p[2][GROUP];
        __m256i whole[2][GROUP];
        for (size_t i = 0; i < unit_bytes; i += 64) _mm_prefetch((const char *)scales + 2 * unit_bytes + i, _MM_HINT_T0);
        for (int r = 0; r < n; r++) {
            p[0][r] = p[1][r] = _mm256_setzero_ps();
            if (n_sub == 1) whole[0][r] = whole[1][r] = _mm256_set1_epi32(j->start[row + (uint32_t)r][u]);
        }
        for (uint32_t b = 0; b < 8; b++, codes += block_bytes(form)) {
            prefetch(codes, j->ahead, form);
            step(j, row, n, form, top, n_sub, has_min, codes, sub, u, b, 0, lut, p[0], whole[0]);
            step(j, row, n, form, top, n_sub, has_min, codes, sub, u, b, 1, lut, p[1], whole[1]);
        }
        for (size_t half = 0; half < 2; half++) {
            for (int r = 0; n_sub == 1 && r < n; r++)
                p[half][r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole[half][r]), sub_at(sub, 0, half), p[half][r]);
            finish(j, row, n, n_sub, has_min, scales, u, half, p[half]);
        }
        scales += unit_bytes;
    }
}

KERNEL_TIGHT(q4_k, CASES_8, body, FORM_4, 15, 8, true)
KERNEL_TIGHT(q5_k, CASES_8, body, FORM_5, 31, 8, true)
KERNEL_TIGHT(q6_k, CASES_8, body, FORM_6, 63, 16, false)
KERNEL_FEW(q2_k, body, FORM_4, 15, 16, true)
KERNEL_FEW(q3_k, body, FORM_4, 15, 16, false)
KERNEL_FEW(tq, body, FORM_4, 15, 1, false)
KERNEL_FEW(iq4_xs, body, FORM_LUT, 255, 8, false)
KERNEL_FEW(iq3_s, body, FORM_5, 31, 8, false)
KERNEL_FEW(iq1_m, body, FORM_5, 31, 16, false)
KERNEL_FEW(iq2_xxs, body, FORM_8, 127, 8, false)
KERNEL_FEW(iq2_xs, body, FORM_8, 127, 16, false)

#include "backend/cpu/simd/choose_256.inc"

void ae_avx2_mm_p16_256(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    drive(w, act, out, begin, end, true, choose(&w->packed));
}

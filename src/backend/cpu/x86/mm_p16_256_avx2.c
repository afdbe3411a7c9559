/* mm_p16_256_avx2.c - packed AE_DOT_256 products with AVX2: a panel's 16 output rows as two halves of 8 lanes.
 *
 * Arithmetic and layout: kernels.h; the integer sums: codes_avx2.inc. The multiplication that widens 16-bit sums takes the
 * sub-scale with it. Sums are of codes as stored; what `zero` added is taken off once per unit. The sums p of a unit
 * and those of the outputs live in L1: 16 registers hold little more than a block's codes. */
#define GROUP 8
#include "backend/cpu/simd/p16.inc"
#include "backend/cpu/x86/x86.h"
#include "backend/cpu/x86/codes_avx2.inc"

INLINE __m128i bytes_at(const uint8_t *from, uint32_t i, size_t half)
{
    return _mm_loadl_epi64((const __m128i *)(const void *)(from + i * AE_PANEL + 8 * half));
}

/* A sub-block's scale per row, twice as int16. */
INLINE __m256i sub_at(const uint8_t *sub, uint32_t i, size_t half)
{
    const __m128i a = bytes_at(sub, i, half);
    return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, a));
}

/* Two neighbouring sub-blocks' scales or minimums per row, as pairs of int16; with n_sub == 1 a zero follows. */
INLINE __m256i pair_at(const uint8_t *from, uint32_t i, const uint32_t n_sub, size_t half, const bool is_signed)
{
    const __m128i a = bytes_at(from, i, half), b = n_sub == 1 ? _mm_setzero_si128() : bytes_at(from, i + 1, half);
    const __m128i both = _mm_unpacklo_epi8(a, b);
    return is_signed ? _mm256_cvtepi8_epi16(both) : _mm256_cvtepu8_epi16(both);
}

/* sum_j(factor_j * bsum_j) of one row and unit; pair[(n_sub + 1) / 2] */
INLINE __m256i pair_sum(const __m256i *pair, const int16_t *bsum, const uint32_t n_sub)
{
    __m256i s = _mm256_setzero_si256();
    UNROLL
    for (uint32_t i = 0; i < (n_sub + 1) / 2; i++) {
        int32_t two = bsum[0];
        if (n_sub > 1) memcpy(&two, bsum + 2 * i, 4);
        s = _mm256_add_epi32(s, _mm256_madd_epi16(pair[i], _mm256_set1_epi32(two)));
    }
    return s;
}

/* One block of 32 k of one unit, one half, all rows. */
INLINE void step(const job *j, uint32_t row, const int n, const int form, const int top, const uint32_t n_sub,
                 const uint8_t *codes, const uint8_t *sub, uint32_t u, uint32_t b, size_t half, __m256i lut, __m256i *p)
{
    __m256i w[8], size[8];
    unpack(codes + 32 * half, form, lut, w);
    if (top > 127) make_signed(w, size);
    else memcpy(size, w, sizeof size);
    const uint32_t i = n_sub == 16 ? 2 * b : n_sub == 8 ? b : 0;
    const __m256i s0 = sub_at(sub, i, half), s1 = n_sub == 16 ? sub_at(sub, i + 1, half) : s0;
    UNROLL
    for (int r = 0; r < n; r++) {
        const int8_t *x = j->q + (row + (uint32_t)r) * j->q_stride + u * 256 + b * 32;
        p[r] = dot(p[r], w, size, x, 0, n_sub == 16 ? 4 : 8, top, s0);
        if (n_sub == 16) p[r] = dot(p[r], w, size, x, 4, 4, top, s1);
    }
}

/* The unit's sum, less what `zero` added, joins the sum of the output, then its minimums. */
INLINE void finish(const job *j, uint32_t row, const int n, const int top, const uint32_t n_sub, const bool has_min,
                   const uint8_t *scales, uint32_t u, size_t half, const __m256i *p)
{
    const uint8_t *from = scales + (has_min ? 128 + n_sub * AE_PANEL : 64);
    const __m256 d = _mm256_loadu_ps((const float *)(const void *)scales + 8 * half);
    const __m256 dmin = has_min ? _mm256_loadu_ps((const float *)(const void *)scales + 16 + 8 * half) : d;
    const __m256i zero = _mm256_set1_epi32(j->zero);
    __m256i pair[8];
    for (uint32_t i = 0; i < (n_sub + 1) / 2; i++) pair[i] = pair_at(from, 2 * i, n_sub, half, !has_min);
    for (int r = 0; r < n; r++) {
        const int16_t *bsum = &j->bsum[row + (uint32_t)r][u * n_sub];
        float *out = j->acc + (row + (uint32_t)r) * AE_PANEL + 8 * half;
        const __m256 dx = _mm256_set1_ps(j->dx[(row + (uint32_t)r) * j->u_stride + u]);
        __m256i sum = p[r];
        if (!has_min && top <= 127) sum = _mm256_sub_epi32(sum, _mm256_mullo_epi32(pair_sum(pair, bsum, n_sub), zero));
        __m256 acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(d, dx), _mm256_load_ps(out));
        if (has_min) acc = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(pair_sum(pair, bsum, n_sub)), _mm256_mul_ps(dmin, dx), acc);
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
        __m256i p[2][GROUP];
        for (size_t i = 0; i < unit_bytes; i += 64) _mm_prefetch((const char *)scales + 2 * unit_bytes + i, _MM_HINT_T0);
        for (int r = 0; r < n; r++) p[0][r] = p[1][r] = _mm256_setzero_si256();
        for (uint32_t b = 0; b < 8; b++, codes += block_bytes(form)) {
            prefetch(codes, j->ahead, form);
            step(j, row, n, form, top, n_sub, codes, sub, u, b, 0, lut, p[0]);
            step(j, row, n, form, top, n_sub, codes, sub, u, b, 1, lut, p[1]);
        }
        for (size_t half = 0; half < 2; half++) finish(j, row, n, top, n_sub, has_min, scales, u, half, p[half]);
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

/* mm_p16_256_avx2.c - packed AE_DOT_256 products with AVX2: unsigned codes by half blocks, others as with AVX-VNNI. */
#define GROUP 16
#include "backend/cpu/simd/p16.inc"
#include "backend/cpu/x86/x86.h"
#include "backend/cpu/x86/codes_avx2.inc"
#include "backend/cpu/x86/product/sums_avx2.inc"
#include "backend/cpu/x86/product/mm_p16_256_avx2.inc"
#include "backend/cpu/x86/product/halves_avx2.inc"

/* Computes half h of block b of unit u for all rows: p[r][o] is the sum over the unit. part: sums of h == 0 for h == 1 in
 * int16, if the sums of a whole block fit and have one scale. */
INLINE void half_step(const job *j, const uint32_t n, const int form, const int top, const uint32_t n_sub, const uint8_t *codes,
                      const uint8_t *sub, uint32_t u, uint32_t b, const int h, __m256i lut, __m256i (*part)[2], __m256i (*p)[2])
{
    const bool parts = n_sub != 16 && top <= 15;
    const uint32_t i = n_sub == 16 ? 2 * b + (uint32_t)h : n_sub == 8 ? b : 0;
    const __m256i times[2] = {sub_at(sub, i, 0), sub_at(sub, i, 1)};
    const int8_t *q = j->q + u * 256 + b * 32 + 16 * h;
    const size_t q_stride = j->q_stride;
    __m256i w[2][4];
    unpack_half(codes, j->line, form, lut, h, w);
    for (uint32_t r = 0; r < n; r++, q += q_stride) {
        __m256i x[4];
        spread(q, x);
        UNROLL
        for (int o = 0; o < 2; o++) {
            if (parts && h == 0) part[r][o] = sums_16(w[o], x);
            else if (parts) p[r][o] = add_pairs(p[r][o], _mm256_add_epi16(sums_16(w[o], x), part[r][o]), times[o]);
            else p[r][o] = add_sums(p[r][o], w[o], x, top, times[o]);
        }
    }
}

INLINE void halves(const job *j, const uint32_t n, const int form, const int top, const uint32_t n_sub, const bool has_min)
{
    const uint8_t *codes = j->codes, *scales = j->scales;
    const __m256i lut = load_lut(j, form);
    const size_t unit_bytes = unit_bytes_of(n_sub, has_min);
    for (uint32_t u = 0; u < j->n_units; u++) {
        const uint8_t *sub = scales + (has_min ? 128 : 64);
        __m256i part[GROUP][2], p[GROUP][2];
        prefetch_scales(scales, unit_bytes);
        for (uint32_t r = 0; r < n; r++) p[r][0] = p[r][1] = _mm256_setzero_si256();
        for (uint32_t b = 0; b < 8; b++, codes += j->step) {
            fetch_ahead(j, codes, 8 * u + b, form);
            half_step(j, n, form, top, n_sub, codes, sub, u, b, 0, lut, part, p);
            half_step(j, n, form, top, n_sub, codes, sub, u, b, 1, lut, part, p);
        }
        for (size_t o = 0; o < 2; o++) finish(j, 0, (int)n, top, n_sub, has_min, scales, u, o, &p[0][o], 2);
        scales += unit_bytes;
    }
}

KERNEL_HALVES(q4_k, FORM_4, 15, 8, true)
KERNEL_HALVES(q5_k, FORM_5, 31, 8, true)
KERNEL_HALVES(q6_k, FORM_6, 63, 16, false)
KERNEL_HALVES(q2_k, FORM_4, 15, 16, true)
KERNEL_HALVES(q3_k, FORM_4, 15, 16, false)
KERNEL_HALVES(tq, FORM_4, 15, 1, false)
KERNEL_HALVES(iq3_s, FORM_5, 31, 8, false)
KERNEL_HALVES(iq1_m, FORM_5, 31, 16, false)
KERNEL_HALVES(iq2_xxs, FORM_8, 127, 8, false)
KERNEL_HALVES(iq2_xs, FORM_8, 127, 16, false)
KERNEL_FEW(iq4_xs, body, FORM_LUT, 255, 8, false)

#include "backend/cpu/simd/choose_256.inc"

void ae_avx2_mm_p16_256(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    drive(w, act, out, begin, end, true, choose(&w->packed));
}

/* mm_p16_32_avx2.c - packed AE_DOT_32 products with AVX2: unsigned codes by half blocks, others as with AVX-VNNI. */
#define GROUP 16
#include "backend/cpu/simd/p16.inc"
#include "backend/cpu/x86/x86.h"
#include "backend/cpu/x86/codes_avx2.inc"
#include "backend/cpu/x86/product/sums_avx2.inc"
#include "backend/cpu/x86/product/mm_p16_32_avx2.inc"
#include "backend/cpu/x86/product/halves_avx2.inc"

/* Computes half h of unit u for all rows. part: sums of h == 0 for h == 1, in int16 or int32; unused with a scale for each
 * half. */
INLINE void half_step(const job *j, const uint32_t n, const int form, const int top, const uint32_t n_sub, const bool has_min,
                      const bool f32, const uint8_t *codes, const uint8_t *scales, uint32_t u, const int h, __m256i lut,
                      __m256i (*part)[2])
{
    const bool parts = n_sub == 1, narrow = parts && top <= 15;
    const __m256i one = _mm256_set1_epi16(1);
    const int8_t *q = j->q + u * 32 + 16 * h;
    const float *dx = j->dx + u, *sx = j->sx + u;
    const int32_t *start = &j->start[0][u * n_sub + (n_sub == 2 ? (uint32_t)h : 0)];
    const size_t q_stride = j->q_stride, u_stride = j->u_stride;
    float *out = j->acc;
    __m256i w[2][4];
    __m256 d[2], m[2];
    unpack_half(codes, j->line, form, lut, h, w);
    UNROLL
    for (size_t o = 0; o < 2; o++) {
        d[o] = scale_at(scales, n_sub == 2 ? (size_t)h : 0, o, f32);
        m[o] = has_min ? scale_at(scales, n_sub, o, f32) : d[o];
    }
    for (uint32_t r = 0; r < n; r++, q += q_stride, dx += u_stride, sx += u_stride, start += CHUNK_SUBS, out += AE_PANEL) {
        __m256i x[4];
        spread(q, x);
        if (parts && h == 0) {
            UNROLL
            for (int o = 0; o < 2; o++)
                part[r][o] = narrow ? sums_16(w[o], x) : add_sums(_mm256_setzero_si256(), w[o], x, top, one);
            continue;
        }
        const __m256i from = has_min ? _mm256_setzero_si256() : _mm256_set1_epi32(*start);
        const __m256 dr = _mm256_set1_ps(*dx);
        UNROLL
        for (int o = 0; o < 2; o++) {
            __m256i s = narrow ? add_pairs(from, _mm256_add_epi16(sums_16(w[o], x), part[r][o]), one)
                               : add_sums(from, w[o], x, top, one);
            if (parts && !narrow) s = _mm256_add_epi32(s, part[r][o]);
            __m256 acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s), _mm256_mul_ps(d[o], dr), _mm256_load_ps(out + 8 * o));
            if (has_min) acc = _mm256_fmadd_ps(m[o], _mm256_set1_ps(*sx), acc);
            _mm256_store_ps(out + 8 * o, acc);
        }
    }
}

INLINE void halves(const job *j, const uint32_t n, const int form, const int top, const uint32_t n_sub, const bool has_min,
                   const bool f32)
{
    const uint8_t *codes = j->codes, *scales = j->scales;
    const __m256i lut = load_lut(j, form);
    __m256i part[GROUP][2];
    for (uint32_t u = 0; u < j->n_units; u++) {
        fetch_ahead(j, codes, u, form);
        half_step(j, n, form, top, n_sub, has_min, f32, codes, scales, u, 0, lut, part);
        half_step(j, n, form, top, n_sub, has_min, f32, codes, scales, u, 1, lut, part);
        codes += j->step;
        scales += AE_PANEL * (n_sub + has_min) * (f32 ? 4 : 2);
    }
}

KERNEL_HALVES(q4_0, FORM_4, 15, 1, false, false)
KERNEL_HALVES(q4_1, FORM_4, 15, 1, true, false)
KERNEL_HALVES(q5_0, FORM_5, 31, 1, false, false)
KERNEL_HALVES(q5_1, FORM_5, 31, 1, true, false)
KERNEL_HALVES(mxfp4, FORM_LUT, 31, 1, false, true)
KERNEL_HALVES(nvfp4, FORM_LUT, 31, 2, false, true)
KERNEL_TIGHT_8(q8_0, body, FORM_8, 255, 1, false, false)
KERNEL_FEW(iq4_nl, body, FORM_LUT, 255, 1, false, false)

#include "backend/cpu/simd/choose_32.inc"

void ae_avx2_mm_p16_32(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    drive(w, act, out, begin, end, false, choose(&w->packed));
}

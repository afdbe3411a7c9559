/* mm_p16_32_avx2.c - packed AE_DOT_32 products with AVX2: a panel's 16 output rows as two halves of 8 lanes.
 *
 * Arithmetic and layout: kernels.h; the integer sums: codes_avx2.inc. */
#define GROUP 8
#include "backend/cpu/simd/p16.inc"
#include "backend/cpu/x86/x86.h"
#include "backend/cpu/x86/codes_avx2.inc"

INLINE __m256 scale_at(const uint8_t *scales, size_t i, size_t half, bool f32)
{
    return f32 ? _mm256_loadu_ps((const float *)(const void *)scales + 16 * i + 8 * half)
               : _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(scales + 32 * i + 16 * half)));
}

/* One unit, one half, all rows. */
INLINE void step(const job *j, uint32_t row, const int n, const int form, const int top, const uint32_t n_sub,
                 const bool has_min, const bool f32, const uint8_t *codes, const uint8_t *scales, uint32_t u, size_t half,
                 __m256i lut, __m256 *acc)
{
    __m256i w[8], size[8];
    unpack(codes + 32 * half, form, lut, w);
    /* Codes from 128 up need the sign trick; otherwise w serves as both and the copies vanish. */
    if (top > 127) make_signed(w, size);
    else memcpy(size, w, sizeof size);
    const int32_t zero = 0;
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256 d0 = scale_at(scales, 0, half, f32), d1 = n_sub == 2 ? scale_at(scales, 1, half, f32) : d0;
    const __m256 m = has_min ? scale_at(scales, n_sub, half, f32) : d0;
    UNROLL
    for (int r = 0; r < n; r++) {
        const int8_t *x = j->q + (row + (uint32_t)r) * j->q_stride + u * 32;
        const size_t at = (row + (uint32_t)r) * j->u_stride + u;
        const __m256 dx = _mm256_set1_ps(j->dx[at]);
        const int32_t *start = top > 127 || has_min ? NULL : &j->start[row + (uint32_t)r][u * n_sub];
        __m256i s = _mm256_set1_epi32(start ? start[0] : zero);
        s = dot(s, w, size, x, 0, n_sub == 2 ? 4 : 8, top, ones);
        acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s), _mm256_mul_ps(d0, dx), acc[r]);
        if (n_sub == 2) {
            s = dot(_mm256_set1_epi32(start ? start[1] : zero), w, size, x, 4, 4, top, ones);
            acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s), _mm256_mul_ps(d1, dx), acc[r]);
        }
        if (has_min) acc[r] = _mm256_fmadd_ps(m, _mm256_set1_ps(j->sx[at]), acc[r]);
    }
}

/* Rows [row, row + n): all but j and row are constants of the instance. */
INLINE void body(const job *j, uint32_t row, const int n, const int form, const int top, const uint32_t n_sub,
                 const bool has_min, const bool f32)
{
    const uint8_t *codes = j->codes, *scales = j->scales;
    float *out = j->acc + row * AE_PANEL;
    const __m256i lut = load_lut(j, form);
    __m256 low[GROUP], high[GROUP];
    UNROLL
    for (int r = 0; r < n; r++) {
        low[r] = _mm256_load_ps(out + r * AE_PANEL);
        high[r] = _mm256_load_ps(out + r * AE_PANEL + 8);
    }
    for (uint32_t u = 0; u < j->n_units; u++) {
        prefetch(codes, j->ahead, form);
        step(j, row, n, form, top, n_sub, has_min, f32, codes, scales, u, 0, lut, low);
        step(j, row, n, form, top, n_sub, has_min, f32, codes, scales, u, 1, lut, high);
        codes += block_bytes(form);
        scales += AE_PANEL * (n_sub + has_min) * (f32 ? 4 : 2);
    }
    UNROLL
    for (int r = 0; r < n; r++) {
        _mm256_store_ps(out + r * AE_PANEL, low[r]);
        _mm256_store_ps(out + r * AE_PANEL + 8, high[r]);
    }
}

KERNEL_TIGHT(q4_0, CASES_8, body, FORM_4, 15, 1, false, false)
KERNEL_TIGHT(q4_1, CASES_8, body, FORM_4, 15, 1, true, false)
KERNEL_TIGHT(q8_0, CASES_8, body, FORM_8, 255, 1, false, false)
KERNEL_FEW(q5_0, body, FORM_5, 31, 1, false, false)
KERNEL_FEW(q5_1, body, FORM_5, 31, 1, true, false)
KERNEL_FEW(iq4_nl, body, FORM_LUT, 255, 1, false, false)
KERNEL_FEW(mxfp4, body, FORM_LUT, 31, 1, false, true)
KERNEL_FEW(nvfp4, body, FORM_LUT, 31, 2, false, true)

#include "backend/cpu/simd/choose_32.inc"

void ae_avx2_mm_p16_32(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    drive(w, act, out, begin, end, false, choose(&w->packed));
}

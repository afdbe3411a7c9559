/* mm_p16_32_avx512.c - packed AE_DOT_32 products with AVX-512 VNNI: 16 output rows in the lanes.
 * Arithmetic and layout: kernels.h. A block is unpacked to registers once and multiplied by up to 16
 * activation rows; the integer sum starts at -zero * sum of activation codes, so codes stay unsigned. */
#define GROUP 16
#include "backend/cpu/simd/p16.inc"
#include "backend/cpu/x86/x86.h"
#include "backend/cpu/x86/codes_avx512.inc"
#include "backend/cpu/x86/dots_avx512.inc"

/* Sets the initial sums of some rows. */
INLINE void begin_sums(__m512i *s, const job *j, uint32_t row, uint32_t i, const bool has_min, const int rows)
{
    UNROLL
    for (int r = 0; r < TOGETHER; r++)
        if (r < rows)
            s[r] = has_min ? _mm512_setzero_si512() : _mm512_set1_epi32(j->start[row + (uint32_t)r][i]);
}

INLINE __m512 scale_at(const uint8_t *scales, size_t i, bool f32)
{
    return f32 ? _mm512_loadu_ps((const float *)(const void *)scales + 16 * i)
               : _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(scales + 32 * i)));
}

/* acc[r] += s[r] * (d * dx[r]) */
INLINE void add_sums(__m512 *acc, const __m512i *s, __m512 d, const float *dx, size_t stride, const int rows)
{
    UNROLL
    for (int r = 0; r < TOGETHER; r++)
        if (r < rows)
            acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s[r]), _mm512_mul_ps(d, _mm512_set1_ps(dx[r * stride])), acc[r]);
}

/* Computes rows [row, row + n). All parameters except j and row are constants of the instance. */
INLINE void body(const job *j, uint32_t row, const int n, const int form, const uint32_t n_sub, const bool has_min,
                 const bool f32)
{
    const uint8_t *codes = j->codes, *scales = j->scales;
    const int8_t *q = j->q + row * j->q_stride;
    const float *dx = j->dx + row * j->u_stride, *sx = j->sx + row * j->u_stride;
    float *out = j->acc + row * AE_PANEL;
    const size_t q_stride = j->q_stride, u_stride = j->u_stride;
    const __m512i lut = load_lut(j, form);
    __m512 acc[GROUP];
    UNROLL
    for (int r = 0; r < n; r++) acc[r] = _mm512_load_ps(out + r * AE_PANEL);
    for (uint32_t u = 0; u < j->n_units; u++) {
        __m512i w[8];
        fetch_ahead(j, codes, u, form);
        unpack(codes, j->line, form, lut, w);
        const __m512 d0 = scale_at(scales, 0, f32), d1 = n_sub == 2 ? scale_at(scales, 1, f32) : d0;
        const __m512 m = has_min ? scale_at(scales, n_sub, f32) : d0;
        UNROLL
        for (int r = 0; r < n; r += together(n, TOGETHER)) {
            const int part = together(n, TOGETHER), rows = n - r < part ? n - r : part;
            const int8_t *x = q + r * q_stride + u * 32;
            __m512i s[TOGETHER];
            begin_sums(s, j, row + (uint32_t)r, u * n_sub, has_min, rows);
            dot(s, w, x, q_stride, 0, n_sub == 2 ? 4 : 8, rows);
            add_sums(acc + r, s, d0, dx + r * u_stride + u, u_stride, rows);
            if (n_sub == 2) {
                begin_sums(s, j, row + (uint32_t)r, u * n_sub + 1, has_min, rows);
                dot(s, w, x, q_stride, 4, 4, rows);
                add_sums(acc + r, s, d1, dx + r * u_stride + u, u_stride, rows);
            }
            if (!has_min) continue;
            UNROLL
            for (int i = 0; i < TOGETHER; i++)
                if (i < rows) acc[r + i] = _mm512_fmadd_ps(m, _mm512_set1_ps(sx[(r + i) * u_stride + u]), acc[r + i]);
        }
        codes += j->step;
        scales += AE_PANEL * (n_sub + has_min) * (f32 ? 4 : 2);
    }
    UNROLL
    for (int r = 0; r < n; r++) _mm512_store_ps(out + r * AE_PANEL, acc[r]);
}

KERNEL_TIGHT(q4_0, CASES_16, body, FORM_4, 1, false, false)
KERNEL_TIGHT(q4_1, CASES_16, body, FORM_4, 1, true, false)
KERNEL_TIGHT(q8_0, CASES_16, body, FORM_8, 1, false, false)
KERNEL_FEW(q5_0, body, FORM_5, 1, false, false)
KERNEL_FEW(q5_1, body, FORM_5, 1, true, false)
KERNEL_FEW(iq4_nl, body, FORM_LUT, 1, false, false)
KERNEL_FEW(mxfp4, body, FORM_LUT, 1, false, true)
KERNEL_FEW(nvfp4, body, FORM_LUT, 2, false, true)

#include "backend/cpu/simd/choose_32.inc"

void ae_avx512_mm_p16_32(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    drive(w, act, out, begin, end, false, choose(&w->packed));
}

/* mm_p16_256_avxvnni.c - packed AE_DOT_256 products with AVX2 and AVX-VNNI. */
#define GROUP 8
#include "backend/cpu/simd/p16.inc"
#include "backend/cpu/x86/x86.h"
#include "backend/cpu/x86/codes_avx2.inc"
#include "backend/cpu/x86/product/sums_avxvnni.inc"
#include "backend/cpu/x86/product/mm_p16_256_avx2.inc"

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

void ae_avxvnni_mm_p16_256(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    drive(w, act, out, begin, end, true, choose(&w->packed));
}

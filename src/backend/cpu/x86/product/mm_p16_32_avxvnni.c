/* mm_p16_32_avxvnni.c - packed AE_DOT_32 products with AVX2 and AVX-VNNI. */
#define GROUP 8
#include "backend/cpu/simd/p16.inc"
#include "backend/cpu/x86/x86.h"
#include "backend/cpu/x86/codes_avx2.inc"
#include "backend/cpu/x86/product/sums_avxvnni.inc"
#include "backend/cpu/x86/product/mm_p16_32_avx2.inc"

KERNEL_TIGHT(q4_0, CASES_8, body, FORM_4, 15, 1, false, false)
KERNEL_TIGHT(q4_1, CASES_8, body, FORM_4, 15, 1, true, false)
KERNEL_TIGHT(q8_0, CASES_8, body, FORM_8, 255, 1, false, false)
KERNEL_FEW(q5_0, body, FORM_5, 31, 1, false, false)
KERNEL_FEW(q5_1, body, FORM_5, 31, 1, true, false)
KERNEL_FEW(iq4_nl, body, FORM_LUT, 255, 1, false, false)
KERNEL_FEW(mxfp4, body, FORM_LUT, 31, 1, false, true)
KERNEL_FEW(nvfp4, body, FORM_LUT, 31, 2, false, true)

#include "backend/cpu/simd/choose_32.inc"

void ae_avxvnni_mm_p16_32(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    drive(w, act, out, begin, end, false, choose(&w->packed));
}

/* mm_p16_256_avxvnni.c - packed AE_DOT_256 products with AVX2 and AVX-VNNI. */
#define GROUP 8
#include "backend/cpu/simd/p16.inc"
#include "backend/cpu/x86/x86.h"
#include "backend/cpu/x86/codes_avx2.inc"
#include "backend/cpu/x86/sums_avxvnni.inc"
#include "backend/cpu/x86/mm_p16_256_avx2.inc"

void ae_avxvnni_mm_p16_256(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    drive(w, act, out, begin, end, true, choose(&w->packed));
}

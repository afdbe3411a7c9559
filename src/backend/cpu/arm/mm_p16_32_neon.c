/* mm_p16_32_neon.c - packed AE_DOT_32 products with NEON: widening multiplies; the body is in mm_p16_32.inc, the sums
 * in sums_neon.inc. */
#define GROUP 8
#define ARRANGES
#include "backend/cpu/simd/p16.inc"
#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/codes_neon.inc"
#include "backend/cpu/arm/sums_neon.inc"
#include "backend/cpu/arm/mm_p16_32.inc"

void ae_neon_mm_p16_32(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    drive(w, act, out, begin, end, false, choose(&w->packed));
}

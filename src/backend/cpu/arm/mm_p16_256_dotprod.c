/* mm_p16_256_dotprod.c - packed AE_DOT_256 products with SDOT; the body is in mm_p16_256.inc, the sums in
 * sums_dotprod.inc. */
#define GROUP 8
#define ARRANGES
#include "backend/cpu/simd/p16.inc"
#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/codes_neon.inc"
#include "backend/cpu/arm/sums_dotprod.inc"
#include "backend/cpu/arm/mm_p16_256.inc"

void ae_dotprod_mm_p16_256(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    drive(w, act, out, begin, end, true, choose(&w->packed));
}

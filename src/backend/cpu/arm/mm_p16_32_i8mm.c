/* mm_p16_32_i8mm.c - packed AE_DOT_32 products with SMMLA for four rows and more; the body is in mm_p16_32.inc, the
 * sums in sums_i8mm.inc. */
#define GROUP 8
#define ARRANGES
#include "backend/cpu/simd/p16.inc"
#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/codes_neon.inc"
#include "backend/cpu/arm/sums_i8mm.inc"
#include "backend/cpu/arm/mm_p16_32.inc"

/* Below four rows SDOT takes no more instructions: putting weights side by side costs what wider products save. */
void ae_i8mm_mm_p16_32(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end)
{
    if (act->n_rows < 4) ae_dotprod_mm_p16_32(w, act, out, begin, end);
    else drive(w, act, out, begin, end, false, choose(&w->packed));
}

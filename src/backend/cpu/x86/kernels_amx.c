/* kernels_amx.c - the kernels of the level amx that avx512 lacks: products of several rows with packed weights, attention over
 * caches of codes. */
#include "backend/cpu/x86/x86.h"

void ae_kernels_amx(ae_kernels *k)
{
    k->level = "amx";
    k->mm_tiles_32 = ae_amx_mm_p16_32;
    k->mm_tiles_256 = ae_amx_mm_p16_256;
    ae_amx_kernels_codes(k);
}

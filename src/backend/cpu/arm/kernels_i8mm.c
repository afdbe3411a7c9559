/* kernels_i8mm.c - what the i8mm level improves: tiles of 2 x 2 sums of 8 products (SMMLA). */
#include "backend/cpu/arm/arm.h"

void ae_kernels_i8mm(ae_kernels *k)
{
    k->level = "i8mm";
    k->mm_p16_32[0] = k->mm_p16_32[1] = ae_i8mm_mm_p16_32;
    k->mm_p16_256[0] = k->mm_p16_256[1] = ae_i8mm_mm_p16_256;
}

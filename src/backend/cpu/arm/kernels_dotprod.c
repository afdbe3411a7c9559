/* kernels_dotprod.c - what the dotprod level improves: four products at a time (SDOT). */
#include "backend/cpu/arm/arm.h"

void ae_kernels_dotprod(ae_kernels *k)
{
    k->level = "dotprod";
    k->mm_p16_32[0] = k->mm_p16_32[1] = ae_dotprod_mm_p16_32;
    k->mm_p16_256[0] = k->mm_p16_256[1] = ae_dotprod_mm_p16_256;
}

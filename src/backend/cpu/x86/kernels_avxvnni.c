/* kernels_avxvnni.c - the kernels of the level avxvnni that avx2 lacks: products with packed weights. */
#include "backend/cpu/x86/x86.h"

void ae_kernels_avxvnni(ae_kernels *k)
{
    k->level = "avxvnni";
    k->mm_p16_32[0] = k->mm_p16_32[1] = ae_avxvnni_mm_p16_32;
    k->mm_p16_256[0] = k->mm_p16_256[1] = ae_avxvnni_mm_p16_256;
}

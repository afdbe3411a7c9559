/* kernels_avx2.c - what the avx2 level improves: AVX2, FMA and F16C. */
#include "backend/cpu/x86/x86.h"

void ae_kernels_avx2(ae_kernels *k)
{
    k->level = "avx2";
    k->mm_p16_32[0] = k->mm_p16_32[1] = ae_avx2_mm_p16_32;
    k->mm_p16_256[0] = k->mm_p16_256[1] = ae_avx2_mm_p16_256;
}

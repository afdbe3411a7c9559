/* kernels_avx512.c - what the avx512 level improves: AVX-512 F, BW, VL, DQ and VNNI. */
#include "backend/cpu/x86/x86.h"

void ae_kernels_avx512(ae_kernels *k)
{
    k->level = "avx512";
    k->mm_p16_32[0] = k->mm_p16_32[1] = ae_avx512_mm_p16_32;
    k->mm_p16_256[0] = k->mm_p16_256[1] = ae_avx512_mm_p16_256;
}

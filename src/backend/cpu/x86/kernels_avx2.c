/* kernels_avx2.c - what the avx2 level improves: AVX2, FMA and F16C. */
#include "backend/cpu/x86/x86.h"

void ae_kernels_avx2(ae_kernels *k)
{
    k->level = "avx2";
}

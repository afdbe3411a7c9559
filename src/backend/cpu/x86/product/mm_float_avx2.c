/* mm_float_avx2.c - products with float weights with AVX2; simd/float.inc has the body. Two registers make sixteen lanes, so a
 * tile is 2 x 2. */
#include "backend/cpu/x86/vec_avx2.inc"
#define ENTRY(name) ae_avx2_##name
#define OUTS 2
#define ROWS 2
#include "backend/cpu/simd/float.inc"

/* mm_float_avx512.c - products with float weights with AVX-512; simd/float.inc has the body. */
#include "backend/cpu/x86/vec_avx512.inc"
#define ENTRY(name) ae_avx512_##name
#define OUTS 4
#define ROWS 4
#include "backend/cpu/simd/float.inc"

/* mm_float_neon.c - products with float weights with NEON; the body is in simd/float.inc. Four registers make
 * sixteen lanes, so a tile is 2 x 2. */
#include "backend/cpu/arm/vec_neon.inc"
#define ENTRY(name) ae_neon_##name
#define OUTS 2
#define ROWS 2
#include "backend/cpu/simd/float.inc"

/* attention_neon.c - attention with NEON; the body is in simd/attention.inc. Sixteen lanes are four of 32 registers,
 * so tiles hold four sums of 16. */
#include "backend/cpu/arm/vec_neon.inc"
#include "backend/cpu/ref/ref.h"
#define ENTRY(name) ae_neon_##name
#include "backend/cpu/simd/rows.inc"
#define SCORE_1 4
#define SCORE_2 2
#define SCORE_3 0
#define SCORE_4 1
#define SCORE_6 0
#define SCORE_8 0
#define VALUES_1 4
#define VALUES_2 2
#define VALUES_3 0
#define VALUES_4 1
#define VALUES_6 0
#define VALUES_8 0
#define EXPS 1
#include "backend/cpu/simd/attn_chunk.inc"
#include "backend/cpu/simd/attention.inc"

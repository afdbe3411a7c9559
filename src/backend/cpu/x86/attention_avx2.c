/* attention_avx2.c - attention with AVX2; simd/attention.inc has the body. Sixteen lanes are two registers, so tiles have
 * four sums of 16, or six with enough queries, which takes 3 to 7 % less time (Zen 3). */
#include "backend/cpu/x86/vec_avx2.inc"
#include "backend/cpu/ref/ref.h"
#define ENTRY(name) ae_avx2_##name
#include "backend/cpu/simd/rows.inc"
#define SCORE_1 4
#define SCORE_2 2
#define SCORE_3 0
#define SCORE_4 1
#define SCORE_6 1
#define SCORE_8 0
#define VALUES_1 4
#define VALUES_2 2
#define VALUES_3 0
#define VALUES_4 1
#define VALUES_6 1
#define VALUES_8 0
#define EXPS 2
#include "backend/cpu/simd/attn_chunk.inc"
#include "backend/cpu/simd/attention.inc"

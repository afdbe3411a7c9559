/* attention_avx512.c - attention with AVX-512; simd/attention.inc has the body. Tiles are queries times vectors of
 * 16 positions or dimensions, and share loads; 16 sums in flight hide the latency of FMA. */
#include "backend/cpu/x86/vec_avx512.inc"
#include "backend/cpu/ref/ref.h"
#define ENTRY(name) ae_avx512_##name
#include "backend/cpu/simd/rows.inc"
#define SCORE_1 4
#define SCORE_2 4
#define SCORE_3 4
#define SCORE_4 4
#define SCORE_6 0
#define SCORE_8 2
#define VALUES_1 8
#define VALUES_2 8
#define VALUES_3 4
#define VALUES_4 4
#define VALUES_6 0
#define VALUES_8 0
#define EXPS 4
#include "backend/cpu/simd/attn_chunk.inc"
#include "backend/cpu/simd/attention.inc"

/* attention_q8_avx2.c - attention over q8_0 caches with AVX2; simd/attention_q8.inc has the body. DOTS_n: number of vectors of
 * 16 sums that n rows compute at once. */
#include "backend/cpu/x86/vec_avx2.inc"
#include "backend/cpu/ref/ref.h"
#define ENTRY(name) ae_avx2_##name
#include "backend/cpu/simd/rows.inc"
#include "backend/cpu/x86/bytes_avx2.inc"
#define EXPS 2
#include "backend/cpu/simd/attn_chunk.inc"
#define DOTS_1 2
#define DOTS_2 1
#define DOTS_4 0
#include "backend/cpu/simd/attention_q8.inc"

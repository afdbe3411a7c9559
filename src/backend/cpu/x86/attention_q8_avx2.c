/* attention_q8_avx2.c - attention over caches of codes with AVX2; simd/attention_q8.inc has the body. */
#include "backend/cpu/x86/vec_avx2.inc"
#include "backend/cpu/ref/ref.h"
#define ENTRY(name) ae_avx2_##name
#include "backend/cpu/simd/rows.inc"
#include "backend/cpu/x86/bytes_avx2.inc"
#define EXPS 2
#include "backend/cpu/simd/attn_chunk.inc"
#define DOTS_WORDS "backend/cpu/x86/dots_words.inc"
#include "backend/cpu/simd/attention_q8.inc"

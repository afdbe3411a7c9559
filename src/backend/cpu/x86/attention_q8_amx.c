/* attention_q8_amx.c - attention over q8_0 caches with tiles for many queries; simd/attention_q8.inc has the body. DOTS_n:
 * number of vectors of 16 sums that n rows compute at once. */
#include "backend/cpu/x86/vec_avx512.inc"
#include "backend/cpu/ref/ref.h"
#define ENTRY(name) ae_amx_##name
#include "backend/cpu/simd/rows.inc"
#include "backend/cpu/x86/bytes_avx512.inc"
#define EXPS 4
#include "backend/cpu/simd/attn_chunk.inc"
/* With fewer rows VNNI is faster: 8 rows of 64 took 174 ns per row and chunk with tiles and 130 with VNNI, on a Sapphire Rapids
 * VM. */
#define TILE_ROWS 16
#define TILE_DOTS "backend/cpu/x86/dots_amx.inc"
#define DOTS_1 4
#define DOTS_2 4
#define DOTS_4 2
#include "backend/cpu/simd/attention_q8.inc"

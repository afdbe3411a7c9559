/* rows_avx512.c - row operations with AVX-512; the bodies are in rows.inc. */
#include "backend/cpu/x86/vec_avx512.inc"
#define ENTRY(name) ae_avx512_##name
#define ROWS_ENTRIES
#include "backend/cpu/simd/rows.inc"
#include "backend/cpu/simd/recur.inc"

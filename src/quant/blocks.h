/* blocks.h - the blocks of each quantized format as they are in a file.
 *
 * Owns the layouts; sizes are in formats/tensor_type.h and asserted against it below. unit_*.c define what the
 * fields mean. Multi-byte fields are little-endian in the file and native here, so only
 * little-endian machines are supported. A block in a mapped file may be at any address: copy it
 * (ae_block_copy) before touching fields. Fields wider than their alignment would allow are bytes.
 * Half-precision fields are uint16_t.
 */
#ifndef AE_QUANT_BLOCKS_H
#define AE_QUANT_BLOCKS_H

#include <stdint.h>
#include <string.h>

#include "formats/tensor_type.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF files are little-endian; so must be the machine");

typedef struct ae_block_q4_0 {
    uint16_t d;
    uint8_t qs[16];
} ae_block_q4_0;
typedef struct ae_block_q4_1 {
    uint16_t d, m;
    uint8_t qs[16];
} ae_block_q4_1;
typedef struct ae_block_q5_0 {
    uint16_t d;
    uint8_t qh[4], qs[16];
} ae_block_q5_0;
typedef struct ae_block_q5_1 {
    uint16_t d, m;
    uint8_t qh[4], qs[16];
} ae_block_q5_1;
typedef struct ae_block_q8_0 {
    uint16_t d;
    int8_t qs[32];
} ae_block_q8_0;
typedef struct ae_block_q8_1 {
    uint16_t d, s;
    int8_t qs[32];
} ae_block_q8_1;
typedef struct ae_block_iq4_nl {
    uint16_t d;
    uint8_t qs[16];
} ae_block_iq4_nl;
typedef struct ae_block_mxfp4 {
    uint8_t e, qs[16];
} ae_block_mxfp4;
typedef struct ae_block_nvfp4 {
    uint8_t d[4], qs[32];
} ae_block_nvfp4;
typedef struct ae_block_q1_0 {
    uint16_t d;
    uint8_t qs[16];
} ae_block_q1_0;
typedef struct ae_block_q2_0 {
    uint16_t d;
    uint8_t qs[16];
} ae_block_q2_0;

typedef struct ae_block_q2_k {
    uint8_t scales[16], qs[64];
    uint16_t d, dmin;
} ae_block_q2_k;
typedef struct ae_block_q3_k {
    uint8_t hmask[32], qs[64], scales[12];
    uint16_t d;
} ae_block_q3_k;
typedef struct ae_block_q4_k {
    uint16_t d, dmin;
    uint8_t scales[12], qs[128];
} ae_block_q4_k;
typedef struct ae_block_q5_k {
    uint16_t d, dmin;
    uint8_t scales[12], qh[32], qs[128];
} ae_block_q5_k;
typedef struct ae_block_q6_k {
    uint8_t ql[128], qh[64];
    int8_t scales[16];
    uint16_t d;
} ae_block_q6_k;
typedef struct ae_block_q8_k {
    float d;
    int8_t qs[256];
    int16_t bsums[16];
} ae_block_q8_k;
typedef struct ae_block_tq1_0 {
    uint8_t qs[48], qh[4];
    uint16_t d;
} ae_block_tq1_0;
typedef struct ae_block_tq2_0 {
    uint8_t qs[64];
    uint16_t d;
} ae_block_tq2_0;

typedef struct ae_block_iq1_s {
    uint16_t d;
    uint8_t qs[32];
    uint16_t qh[8];
} ae_block_iq1_s;
typedef struct ae_block_iq1_m {
    uint8_t qs[32], qh[16];
    uint16_t scales[4];
} ae_block_iq1_m;
typedef struct ae_block_iq2_xxs {
    uint16_t d;
    uint8_t qs[8][8];
} ae_block_iq2_xxs;
typedef struct ae_block_iq2_xs {
    uint16_t d;
    uint16_t qs[32];
    uint8_t scales[8];
} ae_block_iq2_xs;
typedef struct ae_block_iq2_s {
    uint16_t d;
    uint8_t qs[32], signs[32], qh[8], scales[8];
} ae_block_iq2_s;
typedef struct ae_block_iq3_xxs {
    uint16_t d;
    uint8_t qs[64], tail[8][4];
} ae_block_iq3_xxs;
typedef struct ae_block_iq3_s {
    uint16_t d;
    uint8_t qs[64], qh[8], signs[32], scales[4];
} ae_block_iq3_s;
typedef struct ae_block_iq4_xs {
    uint16_t d, scales_h;
    uint8_t scales_l[4], qs[128];
} ae_block_iq4_xs;

/* X(id in AE_TYPE_LIST, struct suffix): every type that has a block struct */
#define AE_BLOCK_LIST(X)                                                                                               \
    X(Q4_0, q4_0)                                                                                                      \
    X(Q4_1, q4_1)                                                                                                      \
    X(Q5_0, q5_0) X(Q5_1, q5_1) X(Q8_0, q8_0) X(Q8_1, q8_1) X(IQ4_NL, iq4_nl) X(MXFP4, mxfp4) X(NVFP4, nvfp4)          \
        X(Q1_0, q1_0) X(Q2_0, q2_0) X(Q2_K, q2_k) X(Q3_K, q3_k) X(Q4_K, q4_k) X(Q5_K, q5_k) X(Q6_K, q6_k)              \
            X(Q8_K, q8_k) X(TQ1_0, tq1_0) X(TQ2_0, tq2_0) X(IQ1_S, iq1_s) X(IQ1_M, iq1_m) X(IQ2_XXS, iq2_xxs)          \
                X(IQ2_XS, iq2_xs) X(IQ2_S, iq2_s) X(IQ3_XXS, iq3_xxs) X(IQ3_S, iq3_s) X(IQ4_XS, iq4_xs)
enum { /* AE_BYTES_Q4_0 = 18, ... */
#define AE_BLOCK_BYTES(name, id, elements, bytes) AE_BYTES_##name = bytes,
       AE_TYPE_LIST(AE_BLOCK_BYTES)
#undef AE_BLOCK_BYTES
};
#define AE_BLOCK_ASSERT(name, suffix) _Static_assert(sizeof(ae_block_##suffix) == AE_BYTES_##name, "block of " #name);
AE_BLOCK_LIST(AE_BLOCK_ASSERT)
#undef AE_BLOCK_ASSERT

/* Copies block i of a row, at any address, to `block` (a pointer to a block struct). */
#define ae_block_copy(block, row, i) memcpy((block), (const uint8_t *)(row) + (i) * sizeof(*(block)), sizeof(*(block)))

#endif

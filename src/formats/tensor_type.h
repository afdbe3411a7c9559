/* tensor_type.h - tensor types of GGUF files: name, id, elements and bytes per block.
 *
 * These numbers are defined only here. quant/types.h says what the bytes of a block mean.
 * Ids 4, 5, 31-33 and 36-38 were used by older files and are retired.
 */
#ifndef AE_FORMATS_TENSOR_TYPE_H
#define AE_FORMATS_TENSOR_TYPE_H

#include <stddef.h>
#include <stdint.h>

/* X(name, id in the file, elements per block, bytes per block) */
#define AE_TYPE_LIST(X) \
    X(F32, 0, 1, 4)           \
    X(F16, 1, 1, 2)           \
    X(Q4_0, 2, 32, 18)        \
    X(Q4_1, 3, 32, 20)        \
    X(Q5_0, 6, 32, 22)        \
    X(Q5_1, 7, 32, 24)        \
    X(Q8_0, 8, 32, 34)        \
    X(Q8_1, 9, 32, 36)        \
    X(Q2_K, 10, 256, 84)      \
    X(Q3_K, 11, 256, 110)     \
    X(Q4_K, 12, 256, 144)     \
    X(Q5_K, 13, 256, 176)     \
    X(Q6_K, 14, 256, 210)     \
    X(Q8_K, 15, 256, 292)     \
    X(IQ2_XXS, 16, 256, 66)   \
    X(IQ2_XS, 17, 256, 74)    \
    X(IQ3_XXS, 18, 256, 98)   \
    X(IQ1_S, 19, 256, 50)     \
    X(IQ4_NL, 20, 32, 18)     \
    X(IQ3_S, 21, 256, 110)    \
    X(IQ2_S, 22, 256, 82)     \
    X(IQ4_XS, 23, 256, 136)   \
    X(I8, 24, 1, 1)           \
    X(I16, 25, 1, 2)          \
    X(I32, 26, 1, 4)          \
    X(I64, 27, 1, 8)          \
    X(F64, 28, 1, 8)          \
    X(IQ1_M, 29, 256, 56)     \
    X(BF16, 30, 1, 2)         \
    X(TQ1_0, 34, 256, 54)     \
    X(TQ2_0, 35, 256, 66)     \
    X(MXFP4, 39, 32, 17)      \
    X(NVFP4, 40, 64, 36)      \
    X(Q1_0, 41, 128, 18)      \
    X(Q2_0, 42, 64, 18)

typedef enum ae_type {
#define AE_TYPE_ENUM(name, id, elements, bytes) AE_TYPE_##name = id,
    AE_TYPE_LIST(AE_TYPE_ENUM)
#undef AE_TYPE_ENUM
    AE_TYPE_COUNT = 43
} ae_type;

/* "Q4_0"; NULL for an unknown or retired id. */
const char *ae_type_name(uint32_t type);
/* Elements per block; 0 for an unknown id. */
uint32_t ae_type_block_elements(uint32_t type);
/* Bytes per block; 0 for an unknown id. */
uint32_t ae_type_block_bytes(uint32_t type);
/* Returns the bytes of a row of n elements; 0 when n is not a positive multiple of the block or the result would wrap. */
size_t ae_type_row_bytes(uint32_t type, uint64_t n);

#endif

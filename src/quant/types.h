/* types.h - the table of tensor types, and the plain-C definition of each format.
 *
 * Everything that the program knows of a format starts here: block size, bytes, decode to f32,
 * encode from f32 where we write it, and the integer view that all matrix kernels share.
 * Layouts and formulas: kernels note section 1; block structs with static asserts: blocks.h.
 */
#ifndef AE_QUANT_TYPES_H
#define AE_QUANT_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, id in the file, elements per block, bytes per block) */
#define AE_QUANT_TYPE_LIST(X) \
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
    AE_QUANT_TYPE_LIST(AE_TYPE_ENUM)
#undef AE_TYPE_ENUM
    AE_TYPE_COUNT = 43
} ae_type;

/* How a type's dot products are summed (DESIGN section 2). */
typedef enum ae_dot {
    AE_DOT_NONE,  /* no matrix weights of this type (integers, F64, Q8_1, Q8_K) */
    AE_DOT_FLOAT, /* F32, F16, BF16: f32 activations */
    AE_DOT_32,    /* activations int8 in groups of 32, a scale each; f32 scale (and minimum) per 32 or 16 weights */
    AE_DOT_256,   /* activations int8 in groups of 256, a scale each; integer sub-scales under an f32 scale */
} ae_dot;

typedef void ae_decode_fn(const void *blocks, float *x, size_t n);  /* n elements, a multiple of the block */
typedef void ae_encode_fn(const float *x, void *blocks, size_t n);

typedef struct ae_type_info {
    const char *name;   /* as in ggml, lower case: "q4_0", "f16", "iq4_xs" */
    uint32_t type;      /* ae_type */
    uint32_t n_block;   /* elements per block */
    uint32_t block_bytes;
    ae_dot dot;
    ae_decode_fn *decode; /* NULL for I8..I64, F64 is decoded */
    ae_encode_fn *encode; /* NULL where we do not write the format */
} ae_type_info;

/* NULL for an unknown or retired id. */
const ae_type_info *ae_type_get(uint32_t type);
/* By name, any case ("Q4_0"); NULL if unknown. */
const ae_type_info *ae_type_by_name(const char *name);
/* Bytes of a row of n elements; 0 when n is not a multiple of the block or the result would wrap. */
size_t ae_type_row_bytes(uint32_t type, uint64_t n);

/* ---- The integer view: w = scale * code + min, codes int8 ---------------------------------- */
/* One form for every AE_DOT_32 and AE_DOT_256 type: the reference kernels and the packers of the
 * fast ones see nothing else of a format.
 *
 * AE_DOT_32, one unit = 32 elements (a block of 64 or 128 elements is 2 or 4 units):
 *     w[e] = d[e/16] * code[e] + m            d[0] == d[1] but for NVFP4
 * AE_DOT_256, one unit = 256 elements:
 *     w[e] = d[0] * sub[e/16] * code[e] - dmin * submin[e/16]
 *     formats with 32-wide sub-blocks repeat each sub and submin twice. Any power of two of the
 *     formula is in d (exact), so sub is a small integer: |sub| <= 128, 0 <= submin <= 63. */
typedef struct ae_unit {
    int8_t code[256]; /* [32] or [256] used */
    float d[2];       /* AE_DOT_32: of elements 0..15 and 16..31; AE_DOT_256: d[0] */
    float m;          /* AE_DOT_32: minimum, else 0 */
    float dmin;       /* AE_DOT_256, else 0 */
    int16_t sub[16];    /* AE_DOT_256 */
    int16_t submin[16]; /* AE_DOT_256 */
} ae_unit;

/* Unit i_unit of a row of blocks of `type` (dot must be AE_DOT_32 or AE_DOT_256). Exact: decode() of
 * the same elements equals the formula above computed in f32, up to that formula's own rounding. */
void ae_unit_unpack(uint32_t type, const void *row, size_t i_unit, ae_unit *unit);

/* Codes of this type lie in [lo, hi] (over all blocks): what packers use to choose a form. */
void ae_type_code_range(uint32_t type, int *lo, int *hi);
bool ae_type_has_min(uint32_t type);      /* m or dmin can be other than 0 */
uint32_t ae_type_sub_block(uint32_t type); /* elements that share a scale: 16, 32 or 256 */

/* ---- f16, bf16 ------------------------------------------------------------------------------- */

float ae_f16_to_f32(uint16_t h);     /* exact, subnormals, inf and NaN kept */
uint16_t ae_f32_to_f16(float f);     /* round to nearest even; overflow to inf */
static inline float ae_bf16_to_f32(uint16_t h)
{
    union { uint32_t u; float f; } v = {(uint32_t)h << 16};
    return v.f;
}
uint16_t ae_f32_to_bf16(float f);    /* round to nearest even; NaN stays NaN */

#endif

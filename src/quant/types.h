/* types.h - the table of tensor types, and the plain-C definition of each format.
 *
 * Decodes to f32, and provides the integer view that all matrix kernels share. Encoders are in encode/encoder.h. Names, ids and
 * sizes are in formats/tensor_type.h, where the file reader needs them; block structs, with static asserts against those sizes,
 * are in blocks.h.
 */
#ifndef AE_QUANT_TYPES_H
#define AE_QUANT_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/tensor_type.h"

/* How a type's dot products are summed (docs/same-bytes.md; backend/cpu/ref/kernels.h). */
typedef enum ae_dot {
    AE_DOT_NONE,  /* no matrix weights of this type (integers, F64, Q8_1, Q8_K) */
    AE_DOT_FLOAT, /* F32, F16, BF16: f32 activations */
    AE_DOT_32,    /* activations int8 in groups of 32, a scale each; f32 scale (and minimum) per 32 or 16 weights */
    AE_DOT_256,   /* activations int8 in groups of 256, a scale each; integer sub-scales under an f32 scale */
} ae_dot;

typedef void ae_decode_fn(const void *blocks, float *x, size_t n);  /* n elements, a multiple of the block */

typedef struct ae_type_info {
    const char *name;     /* as in ggml, lower case: "q4_0", "f16", "iq4_xs" */
    uint32_t type;        /* ae_type */
    uint32_t n_block;     /* elements per block, from formats/tensor_type.h */
    uint32_t block_bytes; /* from formats/tensor_type.h */
    ae_dot dot;
    ae_decode_fn *decode; /* NULL for I8..I64, F64 is decoded */
} ae_type_info;

/* NULL for an unknown or retired id. */
const ae_type_info *ae_type_get(uint32_t type);
/* By name, any case ("Q4_0"); NULL if unknown. */
const ae_type_info *ae_type_by_name(const char *name);

/* ---- The integer view: w = scale * code + min, with int8 codes ---------------------------------- */
/* One form for every AE_DOT_32 and AE_DOT_256 type: the reference kernels and the packers of the fast kernels see no other
 * property of a format. */
/* One form for every AE_DOT_32 and AE_DOT_256 type: the reference kernels and the packers of the
 * fast ones see nothing else of a format.
 *
 * AE_DOT_32, one unit = 32 elements (a block of 64 or 128 elements is 2 or 4 units):
 *     w[e] = d[e/16] * code[e] + m            d[0] == d[1] except for NVFP4
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

/* Codes of this type are in [lo, hi] (over all blocks). Packers use this to choose a form. */
void ae_type_code_range(uint32_t type, int *lo, int *hi);
bool ae_type_has_min(uint32_t type);      /* m or dmin can be other than 0 */
uint32_t ae_type_sub_block(uint32_t type); /* elements that share a scale: 16, 32 or 256 */
int ae_type_sub_top(uint32_t type);        /* AE_DOT_256: the largest |sub|, else 0 */

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

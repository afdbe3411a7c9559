/* unit.h - one unpacker per format, from blocks to the integer view of types.h. Private to src/quant.
 *
 * These functions define the formats: decode.c only computes w = scale * code + min over them, and the reference kernels use
 * nothing else.
 */
#ifndef AE_QUANT_UNIT_H
#define AE_QUANT_UNIT_H

#include "quant/blocks.h"
#include "quant/types.h"

/* `row` points at the first block of a row; i_unit counts units of 32 or 256 elements.
 * Writes exactly the fields that the type's class uses, and zeros into m or dmin and submin where
 * the format has no minimum. */
typedef void ae_unit_fn(const void *row, size_t i_unit, ae_unit *unit);

/* unit_32.c */
ae_unit_fn ae_unit_q4_0, ae_unit_q4_1, ae_unit_q5_0, ae_unit_q5_1, ae_unit_q8_0, ae_unit_iq4_nl, ae_unit_mxfp4,
    ae_unit_nvfp4, ae_unit_q1_0, ae_unit_q2_0;
/* unit_k.c */
ae_unit_fn ae_unit_q2_k, ae_unit_q3_k, ae_unit_q4_k, ae_unit_q5_k, ae_unit_q6_k, ae_unit_iq4_xs, ae_unit_tq1_0,
    ae_unit_tq2_0;
/* unit_iq.c */
ae_unit_fn ae_unit_iq1_s, ae_unit_iq1_m, ae_unit_iq2_xxs, ae_unit_iq2_xs, ae_unit_iq2_s, ae_unit_iq3_xxs, ae_unit_iq3_s;

/* Values of the 4-bit codes of IQ4_NL and IQ4_XS, and twice those of FP4 (e2m1). */
extern const int8_t ae_quant_iq4_values[16];
extern const int8_t ae_quant_fp4_values[16];

/* Returns half of 2^(e - 127), the scale for the doubled FP4 values. e8m0: a float that has only an exponent. */
float ae_quant_e8m0_half(uint8_t e);
/* Returns half of an unsigned e4m3 float (bias 7; 0x7f means 0). */
float ae_quant_e4m3_half(uint8_t e);

/* Reads the 6-bit scale and minimum of sub-block s (0..7) of Q4_K and Q5_K from 12 packed bytes. */
static inline void ae_quant_k4_scale(const uint8_t scales[12], int s, int *scale, int *min)
{
    if (s < 4) {
        *scale = scales[s] & 63;
        *min = scales[s + 4] & 63;
    } else {
        *scale = (scales[s + 4] & 15) | (scales[s - 4] >> 6) << 4;
        *min = (scales[s + 4] >> 4) | (scales[s] >> 6) << 4;
    }
}

#endif

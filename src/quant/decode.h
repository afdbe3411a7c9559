/* decode.h - internal to src/quant: the decoders that types.c enters into its table. */
#ifndef AE_QUANT_DECODE_H
#define AE_QUANT_DECODE_H

#include "quant/types.h"

/* Every type except the integers has a decoder. */
ae_decode_fn ae_decode_f32, ae_decode_f16, ae_decode_bf16, ae_decode_f64, ae_decode_q4_0, ae_decode_q4_1,
    ae_decode_q5_0, ae_decode_q5_1, ae_decode_q8_0, ae_decode_q8_1, ae_decode_q8_k, ae_decode_iq4_nl, ae_decode_mxfp4,
    ae_decode_nvfp4, ae_decode_q1_0, ae_decode_q2_0, ae_decode_q2_k, ae_decode_q3_k, ae_decode_q4_k, ae_decode_q5_k,
    ae_decode_q6_k, ae_decode_iq4_xs, ae_decode_tq1_0, ae_decode_tq2_0, ae_decode_iq1_s, ae_decode_iq1_m,
    ae_decode_iq2_xxs, ae_decode_iq2_xs, ae_decode_iq2_s, ae_decode_iq3_xxs, ae_decode_iq3_s;

#endif

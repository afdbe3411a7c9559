/* encoder.c - the table of encoders by type. See encoder.h. */
#include "quant/encode/encoder.h"

#include "quant/encode/encode.h"

#define ENTRY(id, encode) [AE_TYPE_##id] = encode

static ae_encode_fn *const encoders[AE_TYPE_COUNT] = {
    ENTRY(F32, ae_encode_f32),
    ENTRY(F16, ae_encode_f16),
    ENTRY(BF16, ae_encode_bf16),
    ENTRY(Q4_0, ae_encode_q4_0),
    ENTRY(Q4_1, ae_encode_q4_1),
    ENTRY(Q5_0, ae_encode_q5_0),
    ENTRY(Q5_1, ae_encode_q5_1),
    ENTRY(Q8_0, ae_encode_q8_0),
    ENTRY(IQ4_NL, ae_encode_iq4_nl),
    ENTRY(MXFP4, ae_encode_mxfp4),
    ENTRY(NVFP4, ae_encode_nvfp4),
    ENTRY(Q1_0, ae_encode_q1_0),
    ENTRY(Q2_0, ae_encode_q2_0),
    ENTRY(Q2_K, ae_encode_q2_k),
    ENTRY(Q3_K, ae_encode_q3_k),
    ENTRY(Q4_K, ae_encode_q4_k),
    ENTRY(Q5_K, ae_encode_q5_k),
    ENTRY(Q6_K, ae_encode_q6_k),
    ENTRY(IQ4_XS, ae_encode_iq4_xs),
    ENTRY(TQ1_0, ae_encode_tq1_0),
    ENTRY(TQ2_0, ae_encode_tq2_0),
    ENTRY(IQ1_S, ae_encode_iq1_s),
    ENTRY(IQ1_M, ae_encode_iq1_m),
    ENTRY(IQ2_XXS, ae_encode_iq2_xxs),
    ENTRY(IQ2_XS, ae_encode_iq2_xs),
    ENTRY(IQ2_S, ae_encode_iq2_s),
    ENTRY(IQ3_XXS, ae_encode_iq3_xxs),
    ENTRY(IQ3_S, ae_encode_iq3_s),
};

ae_encode_fn *ae_type_encoder(uint32_t type)
{
    return type < AE_TYPE_COUNT ? encoders[type] : NULL;
}

/* types.c - the table of tensor types: how each is summed and decoded.
 *
 * Owns the table. Sizes come from formats/tensor_type.h alone. Retired ids have no entry (n_block is 0).
 */
#include "quant/types.h"

#include "quant/decode.h"

#define ENTRY(id, text, dot, decode) [AE_TYPE_##id] = {text, AE_TYPE_##id, N_##id, BYTES_##id, dot, decode}

enum {
#define SIZES(name, id, elements, bytes) N_##name = elements, BYTES_##name = bytes,
    AE_TYPE_LIST(SIZES)
#undef SIZES
};

static const ae_type_info types[AE_TYPE_COUNT] = {
    ENTRY(F32, "f32", AE_DOT_FLOAT, ae_decode_f32),
    ENTRY(F16, "f16", AE_DOT_FLOAT, ae_decode_f16),
    ENTRY(BF16, "bf16", AE_DOT_FLOAT, ae_decode_bf16),
    ENTRY(F64, "f64", AE_DOT_NONE, ae_decode_f64),
    ENTRY(I8, "i8", AE_DOT_NONE, NULL),
    ENTRY(I16, "i16", AE_DOT_NONE, NULL),
    ENTRY(I32, "i32", AE_DOT_NONE, NULL),
    ENTRY(I64, "i64", AE_DOT_NONE, NULL),
    ENTRY(Q8_1, "q8_1", AE_DOT_NONE, ae_decode_q8_1),
    ENTRY(Q8_K, "q8_K", AE_DOT_NONE, ae_decode_q8_k),

    ENTRY(Q4_0, "q4_0", AE_DOT_32, ae_decode_q4_0),
    ENTRY(Q4_1, "q4_1", AE_DOT_32, ae_decode_q4_1),
    ENTRY(Q5_0, "q5_0", AE_DOT_32, ae_decode_q5_0),
    ENTRY(Q5_1, "q5_1", AE_DOT_32, ae_decode_q5_1),
    ENTRY(Q8_0, "q8_0", AE_DOT_32, ae_decode_q8_0),
    ENTRY(IQ4_NL, "iq4_nl", AE_DOT_32, ae_decode_iq4_nl),
    ENTRY(MXFP4, "mxfp4", AE_DOT_32, ae_decode_mxfp4),
    ENTRY(NVFP4, "nvfp4", AE_DOT_32, ae_decode_nvfp4),
    ENTRY(Q1_0, "q1_0", AE_DOT_32, ae_decode_q1_0),
    ENTRY(Q2_0, "q2_0", AE_DOT_32, ae_decode_q2_0),

    ENTRY(Q2_K, "q2_K", AE_DOT_256, ae_decode_q2_k),
    ENTRY(Q3_K, "q3_K", AE_DOT_256, ae_decode_q3_k),
    ENTRY(Q4_K, "q4_K", AE_DOT_256, ae_decode_q4_k),
    ENTRY(Q5_K, "q5_K", AE_DOT_256, ae_decode_q5_k),
    ENTRY(Q6_K, "q6_K", AE_DOT_256, ae_decode_q6_k),
    ENTRY(IQ4_XS, "iq4_xs", AE_DOT_256, ae_decode_iq4_xs),
    ENTRY(TQ1_0, "tq1_0", AE_DOT_256, ae_decode_tq1_0),
    ENTRY(TQ2_0, "tq2_0", AE_DOT_256, ae_decode_tq2_0),
    ENTRY(IQ1_S, "iq1_s", AE_DOT_256, ae_decode_iq1_s),
    ENTRY(IQ1_M, "iq1_m", AE_DOT_256, ae_decode_iq1_m),
    ENTRY(IQ2_XXS, "iq2_xxs", AE_DOT_256, ae_decode_iq2_xxs),
    ENTRY(IQ2_XS, "iq2_xs", AE_DOT_256, ae_decode_iq2_xs),
    ENTRY(IQ2_S, "iq2_s", AE_DOT_256, ae_decode_iq2_s),
    ENTRY(IQ3_XXS, "iq3_xxs", AE_DOT_256, ae_decode_iq3_xxs),
    ENTRY(IQ3_S, "iq3_s", AE_DOT_256, ae_decode_iq3_s),
};

const ae_type_info *ae_type_get(uint32_t type)
{
    return type < AE_TYPE_COUNT && types[type].n_block ? &types[type] : NULL;
}

static int lower(int c)
{
    return c >= 'A' && c <= 'Z' ? c + 'a' - 'A' : c; /* not tolower: no locale */
}

const ae_type_info *ae_type_by_name(const char *name)
{
    for (uint32_t type = 0; name && type < AE_TYPE_COUNT; type++) {
        const char *a = types[type].name, *b = name;
        if (!a) continue;
        while (*a && lower(*a) == lower(*b)) a++, b++;
        if (!*a && !*b) return &types[type];
    }
    return NULL;
}

/* unit.c - the integer view of every matrix type: which unpacker, which range of codes.
 *
 * Owns the dispatch only; unit_32.c, unit_k.c and unit_iq.c own the formats.
 */
#include "quant/unit.h"

#include "base/err.h"

typedef struct unit_info {
    ae_unit_fn *unpack;
    int8_t lo, hi;      /* all codes are in [lo, hi] */
    uint16_t sub_block; /* elements that share a scale, within a unit */
    bool has_min;
    uint8_t sub_top;    /* AE_DOT_256: |sub| is at most this */
} unit_info;

static const unit_info units[AE_TYPE_COUNT] = {
    [AE_TYPE_Q4_0] = {ae_unit_q4_0, -8, 7, 32, false, 0},
    [AE_TYPE_Q4_1] = {ae_unit_q4_1, 0, 15, 32, true, 0},
    [AE_TYPE_Q5_0] = {ae_unit_q5_0, -16, 15, 32, false, 0},
    [AE_TYPE_Q5_1] = {ae_unit_q5_1, 0, 31, 32, true, 0},
    [AE_TYPE_Q8_0] = {ae_unit_q8_0, -128, 127, 32, false, 0},
    [AE_TYPE_IQ4_NL] = {ae_unit_iq4_nl, -127, 113, 32, false, 0},
    [AE_TYPE_MXFP4] = {ae_unit_mxfp4, -12, 12, 32, false, 0},
    [AE_TYPE_NVFP4] = {ae_unit_nvfp4, -12, 12, 16, false, 0},
    [AE_TYPE_Q1_0] = {ae_unit_q1_0, -1, 1, 32, false, 0},
    [AE_TYPE_Q2_0] = {ae_unit_q2_0, -1, 2, 32, false, 0},
    [AE_TYPE_Q2_K] = {ae_unit_q2_k, 0, 3, 16, true, 15},
    [AE_TYPE_Q3_K] = {ae_unit_q3_k, -4, 3, 16, false, 32},
    [AE_TYPE_Q4_K] = {ae_unit_q4_k, 0, 15, 32, true, 63},
    [AE_TYPE_Q5_K] = {ae_unit_q5_k, 0, 31, 32, true, 63},
    [AE_TYPE_Q6_K] = {ae_unit_q6_k, -32, 31, 16, false, 128},
    [AE_TYPE_IQ4_XS] = {ae_unit_iq4_xs, -127, 113, 32, false, 32},
    [AE_TYPE_TQ1_0] = {ae_unit_tq1_0, -1, 1, 256, false, 1},
    [AE_TYPE_TQ2_0] = {ae_unit_tq2_0, -1, 2, 256, false, 1},
    [AE_TYPE_IQ1_S] = {ae_unit_iq1_s, -9, 9, 32, false, 15},
    [AE_TYPE_IQ1_M] = {ae_unit_iq1_m, -9, 9, 16, false, 15},
    [AE_TYPE_IQ2_XXS] = {ae_unit_iq2_xxs, -43, 43, 32, false, 31},
    [AE_TYPE_IQ2_XS] = {ae_unit_iq2_xs, -43, 43, 16, false, 31},
    [AE_TYPE_IQ2_S] = {ae_unit_iq2_s, -43, 43, 16, false, 31},
    [AE_TYPE_IQ3_XXS] = {ae_unit_iq3_xxs, -62, 62, 32, false, 31},
    [AE_TYPE_IQ3_S] = {ae_unit_iq3_s, -15, 15, 32, false, 31},
};

void ae_unit_unpack(uint32_t type, const void *row, size_t i_unit, ae_unit *unit)
{
    AE_ASSERT(type < AE_TYPE_COUNT && units[type].unpack);
    units[type].unpack(row, i_unit, unit);
}

void ae_type_code_range(uint32_t type, int *lo, int *hi)
{
    *lo = type < AE_TYPE_COUNT ? units[type].lo : 0;
    *hi = type < AE_TYPE_COUNT ? units[type].hi : 0;
}

bool ae_type_has_min(uint32_t type)
{
    return type < AE_TYPE_COUNT && units[type].has_min;
}

uint32_t ae_type_sub_block(uint32_t type)
{
    return type < AE_TYPE_COUNT ? units[type].sub_block : 0;
}

int ae_type_sub_top(uint32_t type)
{
    return type < AE_TYPE_COUNT ? units[type].sub_top : 0;
}

/* unit_32.c - unpackers of the formats whose units are 32 elements with f32 scales.
 *
 * Owns the meaning of Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4, NVFP4, Q1_0 and Q2_0 blocks.
 * Source: the GGUF formats as ggml defines them. Nibbles are split, not interleaved: the low
 * nibbles of a run of bytes are its first half, the high nibbles its second.
 */
#include "quant/unit.h"

const int8_t ae_quant_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const int8_t ae_quant_fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

float ae_quant_e8m0_half(uint8_t e)
{
    /* 2^-128 and 2^-127 are below the normal range of f32. */
    return from_bits(e < 2 ? UINT32_C(0x00200000) << e : (uint32_t)(e - 1) << 23);
}

float ae_quant_e4m3_half(uint8_t e)
{
    uint32_t exponent = e >> 3 & 15, mantissa = e & 7;
    if (e == 0x7f) return 0.0f;
    if (!exponent) return (float)mantissa * 0x1p-10f;
    return (float)(8 + mantissa) * from_bits((exponent + 116) << 23); /* (1 + m/8) * 2^(e-7) / 2 */
}

static void set_scale(ae_unit *unit, uint16_t d, uint16_t m)
{
    unit->d[0] = unit->d[1] = ae_f16_to_f32(d);
    unit->m = ae_f16_to_f32(m);
    unit->dmin = 0.0f;
}

static void nibbles(const uint8_t qs[16], int offset, int8_t code[32])
{
    for (int i = 0; i < 16; i++) {
        code[i] = (int8_t)((qs[i] & 15) - offset);
        code[i + 16] = (int8_t)((qs[i] >> 4) - offset);
    }
}

static void nibbles_mapped(const uint8_t *qs, int n, const int8_t values[16], int8_t *code)
{
    for (int i = 0; i < n; i++) {
        code[i] = values[qs[i] & 15];
        code[i + n] = values[qs[i] >> 4];
    }
}

/* Bit e of qh is the fifth bit of element e. */
static void add_fifth_bit(const uint8_t qh[4], int8_t code[32])
{
    for (int e = 0; e < 32; e++) code[e] = (int8_t)(code[e] + ((qh[e / 8] >> (e % 8) & 1) << 4));
}

void ae_unit_q4_0(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_q4_0 b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, b.d, 0);
    nibbles(b.qs, 8, unit->code);
}

void ae_unit_q4_1(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_q4_1 b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, b.d, b.m);
    nibbles(b.qs, 0, unit->code);
}

void ae_unit_q5_0(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_q5_0 b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, b.d, 0);
    nibbles(b.qs, 16, unit->code);
    add_fifth_bit(b.qh, unit->code);
}

void ae_unit_q5_1(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_q5_1 b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, b.d, b.m);
    nibbles(b.qs, 0, unit->code);
    add_fifth_bit(b.qh, unit->code);
}

void ae_unit_q8_0(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_q8_0 b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, b.d, 0);
    memcpy(unit->code, b.qs, 32);
}

void ae_unit_iq4_nl(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_iq4_nl b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, b.d, 0);
    nibbles_mapped(b.qs, 16, ae_quant_iq4_values, unit->code);
}

void ae_unit_mxfp4(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_mxfp4 b;
    ae_block_copy(&b, row, i_unit);
    unit->d[0] = unit->d[1] = ae_quant_e8m0_half(b.e);
    unit->m = unit->dmin = 0.0f;
    nibbles_mapped(b.qs, 16, ae_quant_fp4_values, unit->code);
}

/* 64 elements, a scale per 16; each 16 are 8 bytes, split. */
void ae_unit_nvfp4(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_nvfp4 b;
    size_t part = i_unit % 2;
    ae_block_copy(&b, row, i_unit / 2);
    unit->m = unit->dmin = 0.0f;
    for (size_t s = 0; s < 2; s++) {
        unit->d[s] = ae_quant_e4m3_half(b.d[2 * part + s]);
        nibbles_mapped(b.qs + 16 * part + 8 * s, 8, ae_quant_fp4_values, unit->code + 16 * s);
    }
}

/* 128 elements of one bit: set is +d, clear is -d. */
void ae_unit_q1_0(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_q1_0 b;
    ae_block_copy(&b, row, i_unit / 4);
    set_scale(unit, b.d, 0);
    const uint8_t *qs = b.qs + 4 * (i_unit % 4);
    for (int e = 0; e < 32; e++) unit->code[e] = qs[e / 8] >> (e % 8) & 1 ? 1 : -1;
}

/* 64 elements of two bits, -1 to 2. */
void ae_unit_q2_0(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_q2_0 b;
    ae_block_copy(&b, row, i_unit / 2);
    set_scale(unit, b.d, 0);
    const uint8_t *qs = b.qs + 8 * (i_unit % 2);
    for (int e = 0; e < 32; e++) unit->code[e] = (int8_t)((qs[e / 4] >> (2 * (e % 4)) & 3) - 1);
}

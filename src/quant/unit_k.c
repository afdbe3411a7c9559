/* unit_k.c - unpackers of the 256-element formats with integer sub-scales: Q2_K to Q6_K, IQ4_XS, TQ1_0, TQ2_0.
 *
 * Owns the meaning of those blocks. Source: the GGUF formats as ggml defines them. In Q2_K, Q3_K and
 * Q6_K element e = 128 h + 32 j + l takes bit pair j of a byte chosen by h and l.
 */
#include "quant/unit.h"

static void set_scale(ae_unit *unit, uint16_t d, uint16_t dmin)
{
    unit->d[0] = unit->d[1] = ae_f16_to_f32(d);
    unit->m = 0.0f;
    unit->dmin = ae_f16_to_f32(dmin);
}

static void no_minimum(ae_unit *unit)
{
    memset(unit->submin, 0, sizeof unit->submin);
}

static int bit_pair(const uint8_t *qs, int e)
{
    return qs[32 * (e / 128) + e % 32] >> (2 * (e / 32 % 4)) & 3;
}

void ae_unit_q2_k(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_q2_k b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, b.d, b.dmin);
    for (int s = 0; s < 16; s++) {
        unit->sub[s] = b.scales[s] & 15;
        unit->submin[s] = b.scales[s] >> 4;
    }
    for (int e = 0; e < 256; e++) unit->code[e] = (int8_t)bit_pair(b.qs, e);
}

void ae_unit_q3_k(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_q3_k b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, b.d, 0);
    no_minimum(unit);
    for (int s = 0; s < 16; s++) {
        int low = s < 8 ? b.scales[s] & 15 : b.scales[s - 8] >> 4;
        int high = b.scales[8 + s % 4] >> (2 * (s / 4)) & 3;
        unit->sub[s] = (int16_t)((low | high << 4) - 32);
    }
    for (int e = 0; e < 256; e++) { /* a clear high bit means minus 4 */
        int high = b.hmask[e % 32] >> (e / 32) & 1;
        unit->code[e] = (int8_t)(bit_pair(b.qs, e) - (high ? 0 : 4));
    }
}

static void set_k4_scales(ae_unit *unit, const uint8_t scales[12])
{
    for (int s = 0; s < 16; s++) {
        int scale, min;
        ae_quant_k4_scale(scales, s / 2, &scale, &min);
        unit->sub[s] = (int16_t)scale;
        unit->submin[s] = (int16_t)min;
    }
}

static int k4_nibble(const uint8_t qs[128], int e)
{
    return qs[32 * (e / 64) + e % 32] >> (e / 32 % 2 * 4) & 15;
}

void ae_unit_q4_k(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_q4_k b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, b.d, b.dmin);
    set_k4_scales(unit, b.scales);
    for (int e = 0; e < 256; e++) unit->code[e] = (int8_t)k4_nibble(b.qs, e);
}

void ae_unit_q5_k(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_q5_k b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, b.d, b.dmin);
    set_k4_scales(unit, b.scales);
    for (int e = 0; e < 256; e++) unit->code[e] = (int8_t)(k4_nibble(b.qs, e) | (b.qh[e % 32] >> (e / 32) & 1) << 4);
}

void ae_unit_q6_k(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_q6_k b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, b.d, 0);
    no_minimum(unit);
    for (int s = 0; s < 16; s++) unit->sub[s] = b.scales[s];
    for (int e = 0; e < 256; e++) {
        int half = e / 128, j = e / 32 % 4;
        int low = b.ql[64 * half + 32 * (j % 2) + e % 32] >> (j / 2 * 4) & 15;
        unit->code[e] = (int8_t)((low | bit_pair(b.qh, e) << 4) - 32);
    }
}

void ae_unit_iq4_xs(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_iq4_xs b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, b.d, 0);
    no_minimum(unit);
    for (int s = 0; s < 8; s++) {
        int low = b.scales_l[s / 2] >> (s % 2 * 4) & 15, high = b.scales_h >> (2 * s) & 3;
        unit->sub[2 * s] = unit->sub[2 * s + 1] = (int16_t)((low | high << 4) - 32);
    }
    for (int e = 0; e < 256; e++)
        unit->code[e] = ae_quant_iq4_values[b.qs[16 * (e / 32) + e % 16] >> (e / 16 % 2 * 4) & 15];
}

static void one_scale(ae_unit *unit, uint16_t d)
{
    set_scale(unit, d, 0);
    no_minimum(unit);
    for (int s = 0; s < 16; s++) unit->sub[s] = 1;
}

/* Five base-3 digits in a byte as a fraction of 256; digit n is the integer part of 3 * frac(x * 3^n / 256). */
static int8_t trit(uint8_t x, int n)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    uint8_t rest = (uint8_t)(x * power[n]);
    return (int8_t)((rest * 3 >> 8) - 1);
}

void ae_unit_tq1_0(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_tq1_0 b;
    ae_block_copy(&b, row, i_unit);
    one_scale(unit, b.d);
    for (int e = 0; e < 160; e++) unit->code[e] = trit(b.qs[e % 32], e / 32);
    for (int e = 0; e < 80; e++) unit->code[160 + e] = trit(b.qs[32 + e % 16], e / 16);
    for (int e = 0; e < 16; e++) unit->code[240 + e] = trit(b.qh[e % 4], e / 4);
}

void ae_unit_tq2_0(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_tq2_0 b;
    ae_block_copy(&b, row, i_unit);
    one_scale(unit, b.d);
    for (int e = 0; e < 256; e++) unit->code[e] = (int8_t)(bit_pair(b.qs, e) - 1);
}

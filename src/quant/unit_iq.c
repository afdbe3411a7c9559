/* unit_iq.c - unpackers of the formats that draw groups of 4 or 8 elements from a grid: IQ1, IQ2, IQ3.
 *
 * Owns the meaning of those blocks; the grids are in grids_table.c. Source: the GGUF formats as
 * ggml defines them. The formulas' fractions (0.5 + s, 1/8 ...) are taken into d, exactly, so that
 * sub = 2 s + 1 is an integer.
 */
#include "quant/grids_table.h"
#include "quant/unit.h"

static void set_scale(ae_unit *unit, float d)
{
    unit->d[0] = unit->d[1] = d;
    unit->m = unit->dmin = 0.0f;
    memset(unit->submin, 0, sizeof unit->submin);
}

static void set_sub_32(ae_unit *unit, int i, int s)
{
    unit->sub[2 * i] = unit->sub[2 * i + 1] = (int16_t)(2 * s + 1);
}

static uint32_t load_u32(const uint8_t bytes[4])
{
    uint32_t v;
    memcpy(&v, bytes, sizeof v);
    return v;
}

/* The number of negative elements is even, so the eighth sign follows from seven. */
static unsigned signs_from_7(unsigned bits)
{
    unsigned parity = bits ^ bits >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return bits | (parity & 1) << 7;
}

/* Eight elements of 2 bits, bit j of `signs` negates element j. */
static void grid_8(unsigned entry, const int8_t *values, unsigned signs, int8_t code[8])
{
    for (int j = 0; j < 8; j++) {
        int v = values[entry >> (2 * j) & 3];
        code[j] = (int8_t)(signs >> j & 1 ? -v : v);
    }
}

/* Four elements of 4 bits. */
static void grid_4(unsigned entry, const int8_t *values, unsigned signs, int8_t code[4])
{
    for (int j = 0; j < 4; j++) {
        int v = values[entry >> (4 * j) & 7];
        code[j] = (int8_t)(signs >> j & 1 ? -v : v);
    }
}

/* Eight elements of -1, 0 or 1, shifted by an eighth: code = 8 * grid + delta, delta +1 or -1. */
static void grid_1(unsigned entry, int delta, int8_t code[8])
{
    for (int j = 0; j < 8; j++) code[j] = (int8_t)(8 * ae_quant_grid_iq1_values[entry >> (2 * j) & 3] + delta);
}

void ae_unit_iq2_xxs(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_iq2_xxs b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, ae_f16_to_f32(b.d) * 0.125f);
    for (int i = 0; i < 8; i++) {
        uint32_t tail = load_u32(b.qs[i] + 4); /* four times 7 sign bits, then the scale */
        set_sub_32(unit, i, (int)(tail >> 28));
        for (int g = 0; g < 4; g++)
            grid_8(ae_quant_grid_iq2xxs[b.qs[i][g]], ae_quant_grid_iq2xxs_values, signs_from_7(tail >> (7 * g) & 127),
                   unit->code + 32 * i + 8 * g);
    }
}

static void set_sub_nibbles(ae_unit *unit, const uint8_t scales[8])
{
    for (int s = 0; s < 16; s++) unit->sub[s] = (int16_t)(2 * (scales[s / 2] >> (s % 2 * 4) & 15) + 1);
}

void ae_unit_iq2_xs(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_iq2_xs b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, ae_f16_to_f32(b.d) * 0.125f);
    set_sub_nibbles(unit, b.scales);
    for (int g = 0; g < 32; g++)
        grid_8(ae_quant_grid_iq2xs[b.qs[g] & 511], ae_quant_grid_iq2xs_values, signs_from_7(b.qs[g] >> 9),
               unit->code + 8 * g);
}

void ae_unit_iq2_s(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_iq2_s b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, ae_f16_to_f32(b.d) * 0.125f);
    set_sub_nibbles(unit, b.scales);
    for (int g = 0; g < 32; g++) {
        int index = b.qs[g] | (b.qh[g / 4] >> (2 * (g % 4)) & 3) << 8;
        grid_8(ae_quant_grid_iq2s[index], ae_quant_grid_iq2s_values, b.signs[g], unit->code + 8 * g);
    }
}

void ae_unit_iq3_xxs(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_iq3_xxs b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, ae_f16_to_f32(b.d) * 0.25f);
    for (int i = 0; i < 8; i++) {
        uint32_t tail = load_u32(b.tail[i]);
        set_sub_32(unit, i, (int)(tail >> 28));
        for (int g = 0; g < 8; g++) {
            unsigned signs = signs_from_7(tail >> (7 * (g / 2)) & 127) >> (g % 2 * 4);
            grid_4(ae_quant_grid_iq3xxs[b.qs[8 * i + g]], ae_quant_grid_iq3xxs_values, signs,
                   unit->code + 32 * i + 4 * g);
        }
    }
}

void ae_unit_iq3_s(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_iq3_s b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, ae_f16_to_f32(b.d));
    for (int i = 0; i < 8; i++) set_sub_32(unit, i, b.scales[i / 2] >> (i % 2 * 4) & 15);
    for (int g = 0; g < 64; g++) {
        int index = b.qs[g] | (b.qh[g / 8] >> (g % 8) & 1) << 8;
        grid_4(ae_quant_grid_iq3s[index], ae_quant_grid_iq3s_values, b.signs[g / 2] >> (g % 2 * 4), unit->code + 4 * g);
    }
}

void ae_unit_iq1_s(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_iq1_s b;
    ae_block_copy(&b, row, i_unit);
    set_scale(unit, ae_f16_to_f32(b.d) * 0.125f);
    for (int i = 0; i < 8; i++) {
        set_sub_32(unit, i, b.qh[i] >> 12 & 7);
        for (int g = 0; g < 4; g++) {
            int index = b.qs[4 * i + g] | (b.qh[i] >> (3 * g) & 7) << 8;
            grid_1(ae_quant_grid_iq1[index], b.qh[i] >> 15 ? -1 : 1, unit->code + 32 * i + 8 * g);
        }
    }
}

/* The f16 scale is spread over the top nibbles of four words; below them, 3-bit scales per 16. */
void ae_unit_iq1_m(const void *row, size_t i_unit, ae_unit *unit)
{
    ae_block_iq1_m b;
    ae_block_copy(&b, row, i_unit);
    unsigned d = 0;
    for (int i = 0; i < 4; i++) d |= (unsigned)(b.scales[i] >> 12) << (4 * i);
    set_scale(unit, ae_f16_to_f32((uint16_t)d) * 0.125f);
    for (int s = 0; s < 16; s++) unit->sub[s] = (int16_t)(2 * (b.scales[s / 4] >> (s % 4 * 3) & 7) + 1);
    for (int g = 0; g < 32; g++) {
        int high = b.qh[g / 2] >> (g % 2 * 4);
        grid_1(ae_quant_grid_iq1[b.qs[g] | (high & 7) << 8], high & 8 ? -1 : 1, unit->code + 8 * g);
    }
}

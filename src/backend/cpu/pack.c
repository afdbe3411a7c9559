/* pack.c - weights from the file's layout to P16 (kernels.h), any type through its integer view.
 *
 * The definition of the packed form; pack_fast.c gives the same bytes for the common types. Owns the form that each type takes;
 * the memory belongs to the caller. Packing is exact: the packed kernels see the same integers and scales as the reference.
 * Codes take as few bits as their range allows, since decoding is bound by the bytes read: 4, 5, 6 or 8, or 4-bit indices where
 * the 16 values are unevenly spaced. */
#include <string.h>

#include "backend/cpu/ref/kernels.h"
#include "base/err.h"
#include "quant/unit.h"

/* Returns the 16 values of a type whose codes are indices, else NULL. */
static const int8_t *values_of(uint32_t type)
{
    if (type == AE_TYPE_IQ4_NL || type == AE_TYPE_IQ4_XS) return ae_quant_iq4_values;
    if (type == AE_TYPE_MXFP4 || type == AE_TYPE_NVFP4) return ae_quant_fp4_values;
    return NULL;
}

static void plan_codes(uint32_t type, ae_packed *p)
{
    int lo, hi;
    ae_type_code_range(type, &lo, &hi);
    AE_ASSERT((-lo > hi ? -lo : hi) * ae_type_sub_top(type) <= AE_UNIT_TOP);
    const int8_t *values = values_of(type);
    const int range = hi - lo;
    p->code_bits = range < 16 ? 4 : range < 32 ? 5 : range < 64 ? 6 : 8;
    p->zero = range < 64 ? -lo : range < 128 ? 64 : 128;
    if (!values) return;
    p->has_lut = true;
    p->code_bits = 4;
    for (int i = 0; i < 16; i++) p->lut[i] = (uint8_t)(values[i] + p->zero);
}

bool ae_pack_plan(uint32_t type, uint32_t n_out, uint32_t n_in, ae_packed *packed)
{
    const ae_type_info *info = ae_type_get(type);
    *packed = (ae_packed){0};
    if (!info || (info->dot != AE_DOT_32 && info->dot != AE_DOT_256) || !n_out) return false;
    const uint32_t unit = info->dot == AE_DOT_256 ? 256 : 32, sub = ae_type_sub_block(type);
    if (n_in % unit) return false;
    plan_codes(type, packed);
    packed->n_sub = sub < unit ? unit / sub : 1;
    packed->has_min = ae_type_has_min(type);
    packed->n_units = n_in / unit;
    size_t scale_bytes;
    if (info->dot == AE_DOT_32) {
        packed->scale_f32 = type == AE_TYPE_MXFP4 || type == AE_TYPE_NVFP4;
        scale_bytes = (size_t)(packed->n_sub + packed->has_min) * AE_PANEL * (packed->scale_f32 ? 4 : 2);
    } else {
        scale_bytes = (size_t)(1 + packed->has_min) * AE_PANEL * 4 + (size_t)packed->n_sub * AE_PANEL * (1 + packed->has_min);
    }
    packed->n_panels = (n_out + AE_PANEL - 1) / AE_PANEL;
    packed->n_blocks = n_in / 32;
    packed->run_panels = ae_run_panels(packed->n_blocks);
    packed->scale_stride = ((size_t)packed->n_units * scale_bytes + 63) & ~(size_t)63;
    return true;
}

/* Writes n codes in the form that is stored: code + zero, or the index. */
static void to_stored(const ae_packed *p, const uint8_t *index, int8_t *code, uint32_t n)
{
    if (p->has_lut) {
        for (uint32_t k = 0; k < n; k++) code[k] = (int8_t)index[(uint8_t)code[k]];
    } else {
        const uint8_t zero = (uint8_t)p->zero;
        for (uint32_t k = 0; k < n; k++) code[k] = (int8_t)((uint8_t)code[k] + zero);
    }
}

/* Writes 32 stored codes of one row; groups of 4 are handled as one 32-bit word. */
static void put_codes(uint32_t bits, const int8_t *code, uint32_t row, uint8_t *out, ptrdiff_t line)
{
    uint32_t group[8], both, high[2] = {0, 0};
    memcpy(group, code, 32);
    out += row * 4;
    if (bits == 8) {
        for (int g = 0; g < 8; g++) memcpy(out + g * line, &group[g], 4);
        return;
    }
    for (int v = 0; v < 4; v++) {
        both = (group[2 * v] & 0x0F0F0F0Fu) | (group[2 * v + 1] & 0x0F0F0F0Fu) << 4;
        memcpy(out + v * line, &both, 4);
    }
    if (bits == 5) {
        for (uint32_t g = 0; g < 8; g++) high[0] |= (group[g] >> 4 & 0x01010101u) << g;
        memcpy(out + 4 * line, &high[0], 4);
    } else if (bits == 6) {
        for (uint32_t g = 0; g < 8; g++) high[g / 4] |= (group[g] >> 4 & 0x03030303u) << (2 * (g % 4));
        memcpy(out + 4 * line, &high[0], 4);
        memcpy(out + 5 * line, &high[1], 4);
    }
}

static uint8_t *put_scale(const ae_packed *p, float value, uint32_t row, uint8_t *at)
{
    if (p->scale_f32) {
        memcpy(at + row * 4, &value, 4);
        return at + AE_PANEL * 4;
    }
    const uint16_t half = ae_f32_to_f16(value);
    memcpy(at + row * 2, &half, 2);
    return at + AE_PANEL * 2;
}

static uint8_t *put_32(const ae_packed *p, const ae_unit *unit, uint32_t row, uint8_t *at)
{
    for (uint32_t j = 0; j < p->n_sub; j++) at = put_scale(p, unit->d[j], row, at);
    return p->has_min ? put_scale(p, unit->m, row, at) : at;
}

static uint8_t *put_256(const ae_packed *p, const ae_unit *unit, uint32_t row, uint8_t *at)
{
    const uint32_t step = 16 / p->n_sub;
    memcpy(at + row * 4, &unit->d[0], 4);
    at += AE_PANEL * 4;
    if (p->has_min) {
        memcpy(at + row * 4, &unit->dmin, 4);
        at += AE_PANEL * 4;
    }
    for (uint32_t j = 0; j < p->n_sub; j++, at += AE_PANEL) at[row] = (uint8_t)(int8_t)unit->sub[j * step];
    for (uint32_t j = 0; p->has_min && j < p->n_sub; j++, at += AE_PANEL) at[row] = (uint8_t)unit->submin[j * step];
    return at;
}

static ae_lines lines_of(const ae_packed *p, uint32_t panel, uint32_t block)
{
    const ae_run run = ae_run_of(p, panel);
    return ae_lines_of(p, &run, panel, block);
}

void ae_pack_panels_generic(uint32_t type, const uint8_t *plain, uint32_t n_out, uint32_t n_in,
                            const ae_packed *p, uint32_t begin, uint32_t end)
{
    const bool wide = ae_type_get(type)->dot == AE_DOT_256;
    const uint32_t size = wide ? 256 : 32;
    const size_t row_bytes = ae_type_row_bytes(type, n_in);
    uint8_t index[256] = {0};
    for (int i = 15; p->has_lut && i >= 0; i--) index[(uint8_t)(p->lut[i] - p->zero)] = (uint8_t)i;
    /* The loop over units is outside that over rows: the 16 rows of a unit are written while its lines are in L1. */
    for (uint32_t panel = begin; panel < end; panel++) {
        uint8_t *scales = p->scales + panel * p->scale_stride;
        for (uint32_t u = 0; u < p->n_units; u++) {
            uint8_t *next = scales;
            for (uint32_t row = 0; row < AE_PANEL; row++) {
                const uint32_t o = panel * AE_PANEL + row;
                ae_unit unit;
                if (o < n_out) ae_unit_unpack(type, plain + (o - begin * AE_PANEL) * row_bytes, u, &unit);
                else memset(&unit, 0, sizeof unit);
                to_stored(p, index, unit.code, size);
                for (uint32_t b = 0; b < size / 32; b++) {
                    const ae_lines to = lines_of(p, panel, u * (size / 32) + b);
                    put_codes(p->code_bits, unit.code + 32 * b, row, p->codes + to.at, to.line);
                }
                next = wide ? put_256(p, &unit, row, scales) : put_32(p, &unit, row, scales);
            }
            scales = next;
        }
    }
}

/* Packs a unit and distributes it over its cache lines. The packer itself writes the unit's blocks one after another, since it
 * does not know the order of lines. */
static uint8_t *pack_unit(ae_pack_unit_fn *pack, const ae_packed *p, const uint8_t *from, size_t row_bytes, uint32_t panel,
                          uint32_t u, uint8_t *scales)
{
    const uint32_t n = p->n_blocks / p->n_units;
    uint8_t unit[AE_PANEL * 256], *line = unit;
    scales = pack(from, row_bytes, unit, scales);
    ae_lines to = lines_of(p, panel, u * n);
    for (uint32_t b = 0; b < n; b++, to.at += (size_t)to.step) {
        uint8_t *at = p->codes + to.at;
        for (uint32_t i = 0; i < p->code_bits; i++, line += AE_LINE, at += to.line) memcpy(at, line, AE_LINE);
    }
    return scales;
}

void ae_pack_panels(uint32_t type, const uint8_t *plain, uint32_t n_out, uint32_t n_in, const ae_packed *p,
                    uint32_t begin, uint32_t end)
{
    ae_pack_unit_fn *pack = ae_pack_fast(type);
    const size_t row_bytes = ae_type_row_bytes(type, n_in), unit_bytes = row_bytes / p->n_units;
    const uint32_t whole = n_out / AE_PANEL < end ? n_out / AE_PANEL : end;
    uint32_t panel = begin;
    for (; pack && panel < whole; panel++) {
        const uint8_t *from = plain + (size_t)(panel - begin) * AE_PANEL * row_bytes;
        uint8_t *scales = p->scales + panel * p->scale_stride;
        for (uint32_t u = 0; u < p->n_units; u++, from += unit_bytes)
            scales = pack_unit(pack, p, from, row_bytes, panel, u, scales);
    }
    if (panel < end)
        ae_pack_panels_generic(type, plain + (size_t)(panel - begin) * AE_PANEL * row_bytes, n_out, n_in, p, panel, end);
}

/* pack.c - weights from the file's layout to P16 (kernels.h), any type through its integer view.
 *
 * Owns the form that each type takes; the memory belongs to the caller. Packing is exact: the
 * packed kernels see the same integers and scales as the reference. */
#include <string.h>

#include "backend/cpu/kernels.h"

bool ae_pack_plan(uint32_t type, uint32_t n_out, uint32_t n_in, ae_packed *packed)
{
    const ae_type_info *info = ae_type_get(type);
    *packed = (ae_packed){0};
    if (!info || (info->dot != AE_DOT_32 && info->dot != AE_DOT_256) || !n_out) return false;
    const uint32_t unit = info->dot == AE_DOT_256 ? 256 : 32, sub = ae_type_sub_block(type);
    if (n_in % unit) return false;
    int lo, hi;
    ae_type_code_range(type, &lo, &hi);
    packed->code_bits = hi - lo <= 15 ? 4 : 8;
    packed->zero = packed->code_bits == 8 ? 128 : -lo;
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
    packed->code_stride = (size_t)n_in * packed->code_bits * AE_PANEL / 8;
    packed->scale_stride = ((size_t)packed->n_units * scale_bytes + 63) & ~(size_t)63;
    return true;
}

static void put_codes(const ae_packed *p, const int8_t *code, uint32_t n, uint32_t row, uint8_t *out)
{
    for (uint32_t k = 0; k < n; k++) {
        const uint8_t c = (uint8_t)(code[k] + p->zero);
        const uint32_t block = k / 32, g = k % 32 / 4, j = k % 4;
        if (p->code_bits == 8) {
            out[block * 512 + g * 64 + row * 4 + j] = c;
        } else {
            uint8_t *at = &out[block * 256 + g / 2 * 64 + row * 4 + j];
            *at = g & 1 ? (uint8_t)((*at & 15) | c << 4) : (uint8_t)((*at & 0xF0) | c);
        }
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

void ae_pack_panels(uint32_t type, const uint8_t *plain, uint32_t n_out, uint32_t n_in, const ae_packed *p,
                    uint32_t begin, uint32_t end)
{
    const bool wide = ae_type_get(type)->dot == AE_DOT_256;
    const uint32_t size = wide ? 256 : 32;
    const size_t row_bytes = ae_type_row_bytes(type, n_in);
    for (uint32_t panel = begin; panel < end; panel++)
        for (uint32_t row = 0; row < AE_PANEL; row++) {
            const uint32_t o = panel * AE_PANEL + row;
            uint8_t *codes = p->codes + panel * p->code_stride, *scales = p->scales + panel * p->scale_stride;
            for (uint32_t u = 0; u < p->n_units; u++) {
                ae_unit unit;
                if (o < n_out) ae_unit_unpack(type, plain + o * row_bytes, u, &unit);
                else memset(&unit, 0, sizeof unit);
                put_codes(p, unit.code, size, row, codes + (size_t)u * size * p->code_bits * AE_PANEL / 8);
                scales = wide ? put_256(p, &unit, row, scales) : put_32(p, &unit, row, scales);
            }
        }
}

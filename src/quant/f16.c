/* f16.c - conversions between f32 and the two 16-bit floats, by integer operations: same bits everywhere. */
#include "quant/types.h"

#include <string.h>

static uint32_t to_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

float ae_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return from_bits(sign | 0x7f800000 | mantissa << 13);
    if (exponent) return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float f = (float)mantissa * 0x1p-24f; /* subnormal or zero; normal in f32 */
    return from_bits(sign | to_bits(f));
}

uint16_t ae_f32_to_f16(float f)
{
    uint32_t bits = to_bits(f), sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x3ff)); /* NaN, made quiet */
    if (bits >= 0x477ff000) return (uint16_t)(sign | 0x7c00);                       /* 65520 and up round to inf */
    if (bits < 0x38800000) { /* below 2^-14: subnormal. Adding 0.5 leaves units of 2^-24, rounded by the FPU. */
        float shifted = from_bits(bits) + 0.5f;
        return (uint16_t)(sign | (to_bits(shifted) - 0x3f000000));
    }
    bits += 0xfff + (bits >> 13 & 1); /* ties to even; a carry into the exponent is right */
    return (uint16_t)(sign | (bits - 0x38000000) >> 13);
}

uint16_t ae_f32_to_bf16(float f)
{
    uint32_t bits = to_bits(f);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 64);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

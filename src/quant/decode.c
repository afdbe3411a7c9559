/* decode.c - blocks to f32.
 *
 * Owns the one formula w = scale * code + min over the integer view (unit_*.c), and the types that
 * have no such view. Invariant: the products d * sub * code are exact in f32 for every format (at most
 * 24 significant bits), so a weight is rounded at most once, when the minimum is added. The order
 * (d * sub) * code decides the sign of zeros and is kept. Blocks may be at any address.
 */
#include "quant/decode.h"

#include "quant/unit.h"

static inline void decode_32(ae_unit_fn *unpack, bool has_min, const void *blocks, float *x, size_t n)
{
    ae_unit unit;
    for (size_t i = 0; i < n / 32; i++, x += 32) {
        unpack(blocks, i, &unit);
        for (int e = 0; e < 32; e++) {
            x[e] = unit.d[e / 16] * (float)unit.code[e];
            if (has_min) x[e] += unit.m;
        }
    }
}

static inline void decode_256(ae_unit_fn *unpack, bool has_min, const void *blocks, float *x, size_t n)
{
    ae_unit unit;
    for (size_t i = 0; i < n / 256; i++, x += 256) {
        unpack(blocks, i, &unit);
        for (int s = 0; s < 16; s++) {
            float scale = unit.d[0] * (float)unit.sub[s], min = unit.dmin * (float)unit.submin[s];
            for (int e = 16 * s; e < 16 * s + 16; e++) {
                x[e] = scale * (float)unit.code[e];
                if (has_min) x[e] -= min;
            }
        }
    }
}

#define DECODE(width, suffix, has_min)                                                                                 \
    void ae_decode_##suffix(const void *blocks, float *x, size_t n)                                                    \
    {                                                                                                                  \
        decode_##width(ae_unit_##suffix, has_min, blocks, x, n);                                                       \
    }
DECODE(32, q4_0, false)
DECODE(32, q4_1, true)
DECODE(32, q5_0, false)
DECODE(32, q5_1, true)
DECODE(32, q8_0, false)
DECODE(32, iq4_nl, false)
DECODE(32, mxfp4, false)
DECODE(32, nvfp4, false)
DECODE(32, q1_0, false)
DECODE(32, q2_0, false)
DECODE(256, q2_k, true)
DECODE(256, q3_k, false)
DECODE(256, q4_k, true)
DECODE(256, q5_k, true)
DECODE(256, q6_k, false)
DECODE(256, iq4_xs, false)
DECODE(256, tq1_0, false)
DECODE(256, tq2_0, false)
DECODE(256, iq1_s, false)
DECODE(256, iq1_m, false)
DECODE(256, iq2_xxs, false)
DECODE(256, iq2_xs, false)
DECODE(256, iq2_s, false)
DECODE(256, iq3_xxs, false)
DECODE(256, iq3_s, false)
#undef DECODE

void ae_decode_f32(const void *blocks, float *x, size_t n)
{
    if (n) memcpy(x, blocks, n * sizeof *x);
}

static uint16_t load_u16(const void *blocks, size_t i)
{
    uint16_t v;
    memcpy(&v, (const uint8_t *)blocks + 2 * i, sizeof v);
    return v;
}

/* The same as ae_f16_to_f32, but without branches, so that compilers vectorize the loop. */
void ae_decode_f16(const void *blocks, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t h = load_u16(blocks, i), exponent = h & 0x7c00;
        const uint32_t normal = ((h & 0x7fff) << 13) + (exponent == 0x7c00 ? 224u << 23 : 112u << 23);
        const uint32_t above = ((h & 0x3ff) << 13) + (113u << 23); /* 2^-14 more than a subnormal number */
        uint32_t bits;
        float small;
        memcpy(&small, &above, sizeof small);
        small -= 0x1p-14f;
        memcpy(&bits, &small, sizeof bits);
        bits = (exponent ? normal : bits) | (h & 0x8000) << 16;
        memcpy(&x[i], &bits, sizeof bits);
    }
}

void ae_decode_bf16(const void *blocks, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = ae_bf16_to_f32(load_u16(blocks, i));
}

void ae_decode_f64(const void *blocks, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double v;
        memcpy(&v, (const uint8_t *)blocks + sizeof v * i, sizeof v);
        x[i] = (float)v;
    }
}

/* The two activation formats of ggml: read for completeness; their sums are redundant. */
void ae_decode_q8_1(const void *blocks, float *x, size_t n)
{
    ae_block_q8_1 b;
    for (size_t i = 0; i < n / 32; i++, x += 32) {
        ae_block_copy(&b, blocks, i);
        float d = ae_f16_to_f32(b.d);
        for (int e = 0; e < 32; e++) x[e] = d * (float)b.qs[e];
    }
}

void ae_decode_q8_k(const void *blocks, float *x, size_t n)
{
    ae_block_q8_k b;
    for (size_t i = 0; i < n / 256; i++, x += 256) {
        ae_block_copy(&b, blocks, i);
        for (int e = 0; e < 256; e++) x[e] = b.d * (float)b.qs[e];
    }
}

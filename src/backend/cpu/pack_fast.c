/* pack_fast.c - packers of the common types, 16 rows of a unit at a time; the bytes of pack.c's generic ones.
 *
 * Owns nothing. Codes of a block are mostly stored as they are in the file, four to a 32-bit word, so packing is a
 * transposition of words: 16 rows are gathered into arrays of lanes, one lane per row, and then every step is the
 * same operation on all 16 lanes, which compilers turn into vector code. Handles whole panels only: padded ones and all other
 * types go through the integer view. Speeds: docs/loading.md. */
#include <string.h>

#include "backend/cpu/ref/kernels.h"
#include "quant/blocks.h"
#include "quant/unit.h"

#define NIBBLES 0x0F0F0F0Fu
#define ROWS AE_PANEL

typedef struct lanes {
    uint32_t w[ROWS];
} lanes;

#define EACH(r) for (uint32_t r = 0; r < ROWS; r++)

static inline uint32_t load32(const uint8_t *p)
{
    uint32_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

/* Gathers n words from each row into out[n]. */
static inline void gather(const uint8_t *block, size_t stride, uint32_t n, lanes *out)
{
    EACH(r)
    {
        const uint8_t *p = block + r * stride;
        for (uint32_t i = 0; i < n; i++) out[i].w[r] = load32(p + 4 * i);
    }
}

static inline void put(uint8_t *out, const lanes *x)
{
    memcpy(out, x->w, sizeof x->w);
}

/* Writes two groups of four codes, given in the nibbles at `shift` (0 or 4) of a and b. */
static inline void put_nibbles(uint8_t *out, const lanes *a, const lanes *b, uint32_t shift)
{
    lanes x;
    EACH(r) x.w[r] = (a->w[r] >> shift & NIBBLES) | (b->w[r] >> shift & NIBBLES) << 4;
    put(out, &x);
}

/* Writes a 16-bit scale for each row. A signalling NaN becomes quiet, as it does on the way through f32. */
static inline uint8_t *put_halves(uint8_t *out, const uint8_t *block, size_t stride)
{
    uint16_t x[ROWS];
    EACH(r) memcpy(&x[r], block + r * stride, 2);
    EACH(r) x[r] = (uint16_t)(x[r] | ((x[r] & 0x7FFF) > 0x7C00 ? 0x200 : 0));
    memcpy(out, x, sizeof x);
    return out + sizeof x;
}

static inline uint8_t *put_floats(uint8_t *out, const uint8_t *block, size_t stride)
{
    float x[ROWS];
    EACH(r)
    {
        uint16_t h;
        memcpy(&h, block + r * stride, 2);
        x[r] = ae_f16_to_f32(h);
    }
    memcpy(out, x, sizeof x);
    return out + sizeof x;
}

/* Writes the bytes of n words, byte by byte: [4 * n][16]. */
static inline uint8_t *put_bytes(uint8_t *out, const lanes *x, uint32_t n)
{
    for (uint32_t i = 0; i < 4 * n; i++, out += ROWS)
        EACH(r) out[r] = (uint8_t)(x[i / 4].w[r] >> (8 * (i % 4)));
    return out;
}

/* ---- Units of 32 ---------------------------------------------------------------------------------- */

/* Splits 16 bytes: element e is in the low nibble of byte e, e + 16 in the high one. */
static inline void split_nibbles(uint8_t *codes, const lanes q[4])
{
    put_nibbles(codes, &q[0], &q[1], 0);
    put_nibbles(codes + 64, &q[2], &q[3], 0);
    put_nibbles(codes + 128, &q[0], &q[1], 4);
    put_nibbles(codes + 192, &q[2], &q[3], 4);
}

static uint8_t *pack_q4_0(const uint8_t *block, size_t stride, uint8_t *codes, uint8_t *scales)
{
    lanes q[4];
    gather(block + offsetof(ae_block_q4_0, qs), stride, 4, q);
    split_nibbles(codes, q);
    return put_halves(scales, block, stride);
}

static uint8_t *pack_q4_1(const uint8_t *block, size_t stride, uint8_t *codes, uint8_t *scales)
{
    lanes q[4];
    gather(block + offsetof(ae_block_q4_1, qs), stride, 4, q);
    split_nibbles(codes, q);
    scales = put_halves(scales, block, stride);
    return put_halves(scales, block + offsetof(ae_block_q4_1, m), stride);
}

/* Exchanges the bits at `mask` with the bits `shift` above them. */
static inline void swap_bits(lanes *x, uint32_t mask, uint32_t shift)
{
    EACH(r)
    {
        const uint32_t t = (x->w[r] ^ x->w[r] >> shift) & mask;
        x->w[r] ^= t ^ t << shift;
    }
}

/* Moves bit 4 g + j of the file to bit g of byte j: the five bits of the bit's number, rotated. Each step exchanges two of the
 * five: 0 with 1, 0 with 2, 1 with 3, 2 with 4. */
static inline void put_fifth_bits(uint8_t *out, const lanes *qh)
{
    lanes x = *qh;
    swap_bits(&x, 0x22222222u, 1);
    swap_bits(&x, 0x0A0A0A0Au, 3);
    swap_bits(&x, 0x00CC00CCu, 6);
    swap_bits(&x, 0x0000F0F0u, 12);
    put(out, &x);
}

static uint8_t *pack_q5_0(const uint8_t *block, size_t stride, uint8_t *codes, uint8_t *scales)
{
    lanes q[5];
    gather(block + offsetof(ae_block_q5_0, qh), stride, 5, q);
    split_nibbles(codes, q + 1);
    put_fifth_bits(codes + 256, q);
    return put_halves(scales, block, stride);
}

static uint8_t *pack_q5_1(const uint8_t *block, size_t stride, uint8_t *codes, uint8_t *scales)
{
    lanes q[5];
    gather(block + offsetof(ae_block_q5_1, qh), stride, 5, q);
    split_nibbles(codes, q + 1);
    put_fifth_bits(codes + 256, q);
    scales = put_halves(scales, block, stride);
    return put_halves(scales, block + offsetof(ae_block_q5_1, m), stride);
}

static uint8_t *pack_q8_0(const uint8_t *block, size_t stride, uint8_t *codes, uint8_t *scales)
{
    lanes q[8];
    gather(block + offsetof(ae_block_q8_0, qs), stride, 8, q);
    for (uint32_t g = 0; g < 8; g++) {
        EACH(r) q[g].w[r] ^= 0x80808080u; /* plus 128 */
        put(codes + 64 * g, &q[g]);
    }
    return put_halves(scales, block, stride);
}

/* Stores the two zeros of FP4, codes 0 and 8, as one. */
static inline uint32_t one_zero(uint32_t nibbles)
{
    const uint32_t other = ((nibbles ^ 0x08080808u) + NIBBLES) >> 4 & 0x01010101u; /* 1 where it is not 8 */
    return nibbles & ((other << 4) - other);
}

static uint8_t *pack_mxfp4(const uint8_t *block, size_t stride, uint8_t *codes, uint8_t *scales)
{
    lanes q[4];
    float d[ROWS];
    gather(block + offsetof(ae_block_mxfp4, qs), stride, 4, q);
    for (uint32_t i = 0; i < 4; i++)
        EACH(r) q[i].w[r] = one_zero(q[i].w[r] & NIBBLES) | one_zero(q[i].w[r] >> 4 & NIBBLES) << 4;
    split_nibbles(codes, q);
    EACH(r) d[r] = ae_quant_e8m0_half(block[r * stride]);
    memcpy(scales, d, sizeof d);
    return scales + sizeof d;
}

/* ---- Units of 256 --------------------------------------------------------------------------------- */

/* Writes 128 bytes: each 32 bytes hold a block of 32 codes in their low nibbles and the next block in the high ones. bytes:
 * those of a packed block. */
static inline void pair_nibbles(uint8_t *codes, const lanes q[32], size_t bytes)
{
    for (uint32_t b = 0; b < 8; b++)
        for (uint32_t v = 0; v < 4; v++) {
            const lanes *word = q + b / 2 * 8 + 2 * v;
            put_nibbles(codes + b * bytes + 64 * v, word, word + 1, b % 2 * 4);
        }
}

/* Writes d, dmin, then the 6-bit scales and minimums (ae_quant_k4_scale, four at once). `block` starts with d, dmin, scales. */
static inline uint8_t *put_k4_scales(uint8_t *scales, const uint8_t *block, size_t stride)
{
    lanes s[3], sub[2], min[2];
    scales = put_floats(scales, block, stride);
    scales = put_floats(scales, block + 2, stride);
    gather(block + 4, stride, 3, s);
    EACH(r)
    {
        sub[0].w[r] = s[0].w[r] & 0x3F3F3F3Fu;
        min[0].w[r] = s[1].w[r] & 0x3F3F3F3Fu;
        sub[1].w[r] = (s[2].w[r] & NIBBLES) | (s[0].w[r] >> 2 & 0x30303030u);
        min[1].w[r] = (s[2].w[r] >> 4 & NIBBLES) | (s[1].w[r] >> 2 & 0x30303030u);
    }
    scales = put_bytes(scales, sub, 2);
    return put_bytes(scales, min, 2);
}

static uint8_t *pack_q4_k(const uint8_t *block, size_t stride, uint8_t *codes, uint8_t *scales)
{
    lanes q[32];
    gather(block + offsetof(ae_block_q4_k, qs), stride, 32, q);
    pair_nibbles(codes, q, 256);
    return put_k4_scales(scales, block, stride);
}

static uint8_t *pack_q5_k(const uint8_t *block, size_t stride, uint8_t *codes, uint8_t *scales)
{
    lanes q[32], h[8], high;
    gather(block + offsetof(ae_block_q5_k, qs), stride, 32, q);
    gather(block + offsetof(ae_block_q5_k, qh), stride, 8, h);
    pair_nibbles(codes, q, 320);
    for (uint32_t b = 0; b < 8; b++) {
        memset(&high, 0, sizeof high);
        for (uint32_t g = 0; g < 8; g++)
            EACH(r) high.w[r] |= (h[g].w[r] >> b & 0x01010101u) << g;
        put(codes + 320 * b + 256, &high);
    }
    return put_k4_scales(scales, block, stride);
}

static uint8_t *pack_q6_k(const uint8_t *block, size_t stride, uint8_t *codes, uint8_t *scales)
{
    lanes low[16], h[8], x, sub[4];
    for (uint32_t half = 0; half < 2; half++) {
        gather(block + 64 * half, stride, 16, low);
        gather(block + offsetof(ae_block_q6_k, qh) + 32 * half, stride, 8, h);
        for (uint32_t j = 0; j < 4; j++, codes += 384) {
            for (uint32_t v = 0; v < 4; v++)
                put_nibbles(codes + 64 * v, &low[8 * (j % 2) + 2 * v], &low[8 * (j % 2) + 2 * v + 1], j / 2 * 4);
            for (uint32_t part = 0; part < 2; part++) {
                memset(&x, 0, sizeof x);
                for (uint32_t g = 0; g < 4; g++)
                    EACH(r) x.w[r] |= (h[4 * part + g].w[r] >> (2 * j) & 0x03030303u) << (2 * g);
                put(codes + 256 + 64 * part, &x);
            }
        }
    }
    scales = put_floats(scales, block + offsetof(ae_block_q6_k, d), stride);
    gather(block + offsetof(ae_block_q6_k, scales), stride, 4, sub);
    return put_bytes(scales, sub, 4);
}

/* Writes groups of four 2-bit codes at `shift`, with bit `bit` of `top` as their third bit (top NULL: none). */
static inline void put_pairs(uint8_t *codes, const lanes q[8], uint32_t shift, const lanes *top, uint32_t bit)
{
    for (uint32_t v = 0; v < 4; v++, codes += 64) {
        lanes x[2];
        for (uint32_t i = 0; i < 2; i++)
            EACH(r)
            {
                x[i].w[r] = q[2 * v + i].w[r] >> shift & 0x03030303u;
                if (top) x[i].w[r] |= (top[2 * v + i].w[r] >> bit & 0x01010101u) << 2;
            }
        put_nibbles(codes, &x[0], &x[1], 0);
    }
}

static uint8_t *pack_q2_k(const uint8_t *block, size_t stride, uint8_t *codes, uint8_t *scales)
{
    lanes q[16], s[4], sub[4], min[4];
    gather(block + offsetof(ae_block_q2_k, qs), stride, 16, q);
    gather(block + offsetof(ae_block_q2_k, scales), stride, 4, s);
    for (uint32_t b = 0; b < 8; b++) put_pairs(codes + 256 * b, q + b / 4 * 8, b % 4 * 2, NULL, 0);
    for (uint32_t i = 0; i < 4; i++)
        EACH(r)
        {
            sub[i].w[r] = s[i].w[r] & NIBBLES;
            min[i].w[r] = s[i].w[r] >> 4 & NIBBLES;
        }
    scales = put_floats(scales, block + offsetof(ae_block_q2_k, d), stride);
    scales = put_floats(scales, block + offsetof(ae_block_q2_k, dmin), stride);
    scales = put_bytes(scales, sub, 4);
    return put_bytes(scales, min, 4);
}

/* Returns four 6-bit numbers minus 32, as int8. */
static inline uint32_t minus_32(uint32_t x)
{
    x ^= 0x20202020u;
    return x | (x & 0x20202020u) << 1 | (x & 0x20202020u) << 2;
}

static uint8_t *pack_q3_k(const uint8_t *block, size_t stride, uint8_t *codes, uint8_t *scales)
{
    lanes q[16], high[8], s[3], sub[4];
    gather(block + offsetof(ae_block_q3_k, qs), stride, 16, q);
    gather(block + offsetof(ae_block_q3_k, hmask), stride, 8, high);
    gather(block + offsetof(ae_block_q3_k, scales), stride, 3, s);
    for (uint32_t b = 0; b < 8; b++) put_pairs(codes + 256 * b, q + b / 4 * 8, b % 4 * 2, high, b);
    for (uint32_t i = 0; i < 4; i++)
        EACH(r) sub[i].w[r] = minus_32((s[i % 2].w[r] >> (i / 2 * 4) & NIBBLES) | (s[2].w[r] >> (2 * i) & 0x03030303u) << 4);
    scales = put_floats(scales, block + offsetof(ae_block_q3_k, d), stride);
    return put_bytes(scales, sub, 4);
}

static uint8_t *pack_iq4_xs(const uint8_t *block, size_t stride, uint8_t *codes, uint8_t *scales)
{
    lanes q[4];
    for (uint32_t b = 0; b < 8; b++) {
        gather(block + offsetof(ae_block_iq4_xs, qs) + 16 * b, stride, 4, q);
        split_nibbles(codes + 256 * b, q);
    }
    scales = put_floats(scales, block, stride);
    for (uint32_t b = 0; b < 8; b++, scales += ROWS)
        EACH(r)
        {
            ae_block_iq4_xs head;
            memcpy(&head, block + r * stride, offsetof(ae_block_iq4_xs, qs));
            scales[r] = (uint8_t)(((head.scales_l[b / 2] >> (b % 2 * 4) & 15) | (head.scales_h >> (2 * b) & 3) << 4) - 32);
        }
    return scales;
}

ae_pack_unit_fn *ae_pack_fast(uint32_t type)
{
    switch (type) {
    case AE_TYPE_Q4_0: return pack_q4_0;
    case AE_TYPE_IQ4_NL: return pack_q4_0; /* codes that index a table of unevenly spaced values are stored unchanged */
    case AE_TYPE_Q4_1: return pack_q4_1;
    case AE_TYPE_Q5_0: return pack_q5_0;
    case AE_TYPE_Q5_1: return pack_q5_1;
    case AE_TYPE_Q8_0: return pack_q8_0;
    case AE_TYPE_MXFP4: return pack_mxfp4;
    case AE_TYPE_Q2_K: return pack_q2_k;
    case AE_TYPE_Q3_K: return pack_q3_k;
    case AE_TYPE_IQ4_XS: return pack_iq4_xs;
    case AE_TYPE_Q4_K: return pack_q4_k;
    case AE_TYPE_Q5_K: return pack_q5_k;
    case AE_TYPE_Q6_K: return pack_q6_k;
    default: return NULL;
    }
}

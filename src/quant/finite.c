/* finite.c - see finite.h. Owns where each block has its scales. Codes are always finite. */
#include "quant/finite.h"

#include <math.h>

#include "quant/blocks.h"
#include "quant/types.h"

typedef struct place {
    uint8_t first;
    uint8_t n; /* number of adjacent f16 scales */
} place;

#define AT(suffix, field, n) {offsetof(ae_block_##suffix, field), n}

static const place places[AE_TYPE_COUNT] = {
    [AE_TYPE_F16] = {0, 1},
    [AE_TYPE_Q4_0] = AT(q4_0, d, 1),
    [AE_TYPE_Q4_1] = AT(q4_1, d, 2),
    [AE_TYPE_Q5_0] = AT(q5_0, d, 1),
    [AE_TYPE_Q5_1] = AT(q5_1, d, 2),
    [AE_TYPE_Q8_0] = AT(q8_0, d, 1),
    [AE_TYPE_Q8_1] = AT(q8_1, d, 1),
    [AE_TYPE_IQ4_NL] = AT(iq4_nl, d, 1),
    [AE_TYPE_Q1_0] = AT(q1_0, d, 1),
    [AE_TYPE_Q2_0] = AT(q2_0, d, 1),
    [AE_TYPE_Q2_K] = AT(q2_k, d, 2),
    [AE_TYPE_Q3_K] = AT(q3_k, d, 1),
    [AE_TYPE_Q4_K] = AT(q4_k, d, 2),
    [AE_TYPE_Q5_K] = AT(q5_k, d, 2),
    [AE_TYPE_Q6_K] = AT(q6_k, d, 1),
    [AE_TYPE_TQ1_0] = AT(tq1_0, d, 1),
    [AE_TYPE_TQ2_0] = AT(tq2_0, d, 1),
    [AE_TYPE_IQ1_S] = AT(iq1_s, d, 1),
    [AE_TYPE_IQ2_XXS] = AT(iq2_xxs, d, 1),
    [AE_TYPE_IQ2_XS] = AT(iq2_xs, d, 1),
    [AE_TYPE_IQ2_S] = AT(iq2_s, d, 1),
    [AE_TYPE_IQ3_XXS] = AT(iq3_xxs, d, 1),
    [AE_TYPE_IQ3_S] = AT(iq3_s, d, 1),
    [AE_TYPE_IQ4_XS] = AT(iq4_xs, d, 1),
};

static inline bool is_bad_half(uint16_t h)
{
    return (h & 0x7C00) == 0x7C00;
}

static inline uint16_t half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

/* IQ1_M spreads its scale over the upper bits of four words. */
static uint16_t iq1_m_scale(const uint8_t *block)
{
    ae_block_iq1_m b;
    unsigned d = 0;
    ae_block_copy(&b, block, 0);
    for (int i = 0; i < 4; i++) d |= (unsigned)(b.scales[i] >> 12) << (4 * i);
    return (uint16_t)d;
}

static bool is_bad(uint32_t type, const uint8_t *block)
{
    uint64_t bits;
    switch (type) {
    case AE_TYPE_F32:
    case AE_TYPE_Q8_K: /* starts with an f32 scale */
        bits = 0, memcpy(&bits, block, 4);
        return (bits & 0x7F800000) == 0x7F800000;
    case AE_TYPE_BF16: return (half_at(block) & 0x7F80) == 0x7F80;
    case AE_TYPE_F64:
        memcpy(&bits, block, 8);
        return (bits & 0x7FF0000000000000) == 0x7FF0000000000000;
    case AE_TYPE_IQ1_M: return is_bad_half(iq1_m_scale(block));
    case AE_TYPE_MXFP4: return block[0] == 0xFF; /* the only NaN of E8M0 */
    default: break;
    }
    bool bad = false;
    for (uint8_t i = 0; i < places[type].n; i++) bad |= is_bad_half(half_at(block + places[type].first + 2 * i));
    return bad;
}

/* Loops without branches, one for each form that makes up much of a file. */
static inline bool any_bad_halves(const uint8_t *p, size_t n_blocks, size_t stride, place at)
{
    unsigned bad = 0;
    p += at.first;
    for (size_t i = 0; i < n_blocks; i++)
        for (uint8_t k = 0; k < at.n; k++) bad |= is_bad_half(half_at(p + i * stride + 2 * k));
    return bad;
}

static bool any_bad_floats(const uint8_t *p, size_t n)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, p + 4 * i, 4);
        bad |= (bits & 0x7F800000) == 0x7F800000;
    }
    return bad;
}

static bool any_bad_bf16(const uint8_t *p, size_t n)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++) bad |= (half_at(p + 2 * i) & 0x7F80) == 0x7F80;
    return bad;
}

static bool any_bad(uint32_t type, const uint8_t *p, size_t n_blocks, size_t block_bytes)
{
    if (type == AE_TYPE_F32) return any_bad_floats(p, n_blocks);
    if (type == AE_TYPE_BF16) return any_bad_bf16(p, n_blocks);
    if (type == AE_TYPE_F16) return any_bad_halves(p, n_blocks, 2, (place){0, 1});
    if (places[type].n == 1) return any_bad_halves(p, n_blocks, block_bytes, (place){places[type].first, 1});
    if (places[type].n == 2) return any_bad_halves(p, n_blocks, block_bytes, (place){places[type].first, 2});
    for (size_t i = 0; i < n_blocks; i++)
        if (is_bad(type, p + i * block_bytes)) return true;
    return false;
}

bool ae_type_finite(uint32_t type, const void *blocks, size_t n, size_t *at)
{
    const size_t elements = ae_type_block_elements(type), bytes = ae_type_block_bytes(type);
    const uint8_t *p = blocks;
    if (!elements || !any_bad(type, p, n / elements, bytes)) return true;
    for (size_t i = 0; i < n / elements; i++)
        if (is_bad(type, p + i * bytes)) {
            *at = i * elements;
            return false;
        }
    return true;
}

/* mkmodel_blocks.c - random blocks of every tensor type, with scales that give a wanted spread.
 *
 * Owns: where the scales of a block stand. Any bytes elsewhere in a block are valid, so they are random. The
 * spread of a type's blocks at scale 1 is measured by decoding some, not known in advance.
 */
#include <math.h>
#include <string.h>

#include "mkmodel.h"
#include "quant/types.h"

typedef struct scale_place {
    int16_t d, m;  /* byte offsets of the f16 scale, and of the minimum or its scale; -1 = none */
    float m_per_d; /* makes the mean 0 */
} scale_place;

static scale_place place_of(uint32_t type)
{
    switch (type) {
    case AE_TYPE_Q4_1: return (scale_place){0, 2, -7.5f};
    case AE_TYPE_Q5_1: return (scale_place){0, 2, -15.5f};
    case AE_TYPE_Q2_K: return (scale_place){80, 82, 1.5f};
    case AE_TYPE_Q3_K: return (scale_place){108, -1, 0};
    case AE_TYPE_Q4_K: return (scale_place){0, 2, 7.5f};
    case AE_TYPE_Q5_K: return (scale_place){0, 2, 15.5f};
    case AE_TYPE_Q6_K: return (scale_place){208, -1, 0};
    case AE_TYPE_TQ1_0: return (scale_place){52, -1, 0};
    case AE_TYPE_TQ2_0: return (scale_place){64, -1, 0};
    case AE_TYPE_MXFP4: case AE_TYPE_NVFP4: case AE_TYPE_IQ1_M: return (scale_place){-1, -1, 0};
    default: return (scale_place){0, -1, 0};
    }
}

/* The largest unsigned E4M3 code (NVFP4) whose value is at most d: 4 exponent bits over 3 of mantissa, bias 7. */
static uint8_t e4m3_below(float d)
{
    int code = 1;
    while (code < 0x7e) {
        const int e = (code + 1) >> 3, m = (code + 1) & 7;
        if ((e ? ldexpf(1.0f + (float)m / 8, e - 7) : ldexpf((float)m / 8, -6)) > d) break;
        code++;
    }
    return (uint8_t)code;
}

static void set_scale(uint32_t type, uint8_t *block, float d)
{
    const scale_place at = place_of(type);
    const uint16_t half = ae_f32_to_f16(d), min = ae_f32_to_f16(d * at.m_per_d);
    if (at.d >= 0) memcpy(block + at.d, &half, 2);
    if (at.m >= 0) memcpy(block + at.m, &min, 2);
    if (type == AE_TYPE_IQ1_M) /* four bits of the scale on top of each of four 16-bit words */
        for (int i = 0; i < 4; i++) block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | (half >> 4 * i & 15) << 4);
    if (type == AE_TYPE_MXFP4) {
        const int e = (int)floorf(log2f(d) + 0.5f) + 127;
        block[0] = (uint8_t)(e < 1 ? 1 : e > 250 ? 250 : e);
    }
    if (type == AE_TYPE_NVFP4) memset(block, e4m3_below(d), 4);
}

static void random_bytes(uint64_t *state, uint8_t *out, size_t n)
{
    for (; n >= 8; n -= 8, out += 8) {
        const uint64_t r = mk_random(state);
        memcpy(out, &r, 8);
    }
    const uint64_t r = mk_random(state);
    memcpy(out, &r, n);
}

/* Root of the mean square of decoded elements at scale 1; measured once for each type. */
static float unit_spread(const ae_type_info *info)
{
    static _Thread_local float known[AE_TYPE_COUNT];
    if (known[info->type] > 0) return known[info->type];
    uint8_t block[512];
    float x[256];
    double sum = 0;
    size_t n = 0;
    uint64_t state = 1;
    for (int i = 0; i < 256; i++, n += info->n_block) {
        random_bytes(&state, block, info->block_bytes);
        set_scale(info->type, block, 1.0f);
        info->decode(block, x, info->n_block);
        for (uint32_t k = 0; k < info->n_block; k++) sum += (double)x[k] * (double)x[k];
    }
    return known[info->type] = (float)sqrt(sum / (double)n);
}

/* Uniform, of standard deviation 1. */
static float uniform(uint32_t bits)
{
    return ((float)(bits >> 8) * 0x1p-24f - 0.5f) * 3.4641016f;
}

static void random_floats(uint32_t type, float sd, uint64_t *state, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float f = sd * uniform((uint32_t)(mk_random(state) >> 32));
        const uint16_t half = type == AE_TYPE_F16 ? ae_f32_to_f16(f) : ae_f32_to_bf16(f);
        if (type == AE_TYPE_F32) memcpy(out + 4 * i, &f, 4);
        else memcpy(out + 2 * i, &half, 2);
    }
}

void mk_blocks(uint32_t type, float sd, bool balanced, uint64_t *state, void *blocks, size_t n)
{
    const ae_type_info *info = ae_type_get(type);
    if (info->dot == AE_DOT_FLOAT) {
        random_floats(type, sd, state, blocks, n);
        return;
    }
    const float d = sd / unit_spread(info);
    const size_t n_blocks = n / info->n_block;
    uint8_t *p = blocks;
    random_bytes(state, p, n_blocks * info->block_bytes);
    balanced = balanced && type != AE_TYPE_MXFP4 && type != AE_TYPE_NVFP4; /* these have no sign, and even codes */
    for (size_t i = 0; i < n_blocks; i++, p += info->block_bytes) { /* scales differ from block to block */
        const uint8_t bits = p[info->block_bytes / 2] ^ p[info->block_bytes / 2 + 1];
        const float sign = balanced && (p[info->block_bytes - 1] ^ p[info->block_bytes - 2]) & 1 ? -1.0f : 1.0f;
        set_scale(type, p, sign * d * (0.7f + 0.6f * (float)bits / 255.0f));
    }
}

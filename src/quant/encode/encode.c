/* encode.c - f32 to the float formats and to the simple formats of 32 elements.
 *
 * Owns F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, and the weighting of errors. Without importance these formats scale by the
 * block's extremes, without a search, in the same order of roundings as ggml's reference, so finite ordinary input gives the
 * same bytes as ggml. With importance all but Q8_0 search, as the other formats do (lanes.h).
 */
#include "quant/encode/encode.h"

#include <float.h>
#include <math.h>

#include "quant/blocks.h"

void ae_encode_clean(const float *x, size_t n, float limit, float *out)
{
    for (size_t i = 0; i < n; i++) {
        float v = x[i];
        out[i] = v != v ? 0.0f : v > limit ? limit : v < -limit ? -limit : v;
    }
}

/* Returns the largest finite, non-negative weight; the bits of such floats ascend with their values. */
static float largest_weight(const float *w, size_t n)
{
    int32_t most = 0, bits;
    for (size_t i = 0; i < n; i++) {
        memcpy(&bits, &w[i], sizeof bits);
        most = bits > most ? bits : most;
    }
    float largest;
    memcpy(&largest, &most, sizeof largest);
    return largest;
}

void ae_encode_weigh(const float *importance, size_t n, float *w)
{
    int exponent = 1;
    for (size_t i = 0; i < n; i++) {
        const float at = importance ? importance[i] : 1.0f, positive = at > 0.0f ? at : 0.0f;
        w[i] = positive > FLT_MAX ? FLT_MAX : positive;
    }
    const float most = largest_weight(w, n);
    if (most > 0.0f) (void)frexpf(most, &exponent);
    if (exponent == 1 && most > 0.0f) return;
    /* 2^(1 - exponent) in two factors, because it may exceed the range of f32 */
    const int up = 1 - exponent > 127 ? 127 : 1 - exponent;
    const float factor = ldexpf(1.0f, up), rest = ldexpf(1.0f, 1 - exponent - up);
    for (size_t i = 0; i < n; i++) w[i] = most > 0.0f ? w[i] * factor * rest : 1.0f;
}

void ae_encode_take(ae_encode_runs *runs, int n, int n_runs, int group, ae_encode_by by, const float *input,
                    const float *importance)
{
    float x[AE_LANES * AE_LANES_MOST], w[AE_LANES * AE_LANES_MOST];
    const int n_all = n * n_runs;
    runs->search = ae_lane_best();
    runs->n = n;
    runs->n_runs = n_runs;
    ae_encode_clean(input, (size_t)n_all, AE_ENCODE_LIMIT, x);
    ae_lane_spread(x, n, n_runs, runs->x);
    if (!importance && by == AE_ENCODE_EQUAL) {
        for (int i = 0; i < AE_LANES * n; i++) runs->w[i] = 1.0f;
        return;
    }
    if (!importance)
        for (int i = 0; i < n_all; i++) w[i] = by == AE_ENCODE_SQUARE ? x[i] * x[i] : fabsf(x[i]);
    const float *from = importance ? importance : w;
    for (int i = 0; i < n_all; i += group) ae_encode_weigh(from + i, (size_t)group, w + i);
    ae_lane_spread(w, n, n_runs, runs->w);
}

void ae_encode_collect(ae_encode_runs *runs)
{
    ae_lane_collect(runs->lanes, runs->n, runs->n_runs, runs->code);
}

void ae_encode_f16_scales(const ae_encode_runs *runs, float *scale, uint16_t *half)
{
    for (int l = 0; l < runs->n_runs; l++) {
        half[l] = ae_encode_f16_scale(scale[l]);
        scale[l] = ae_f16_to_f32(half[l]);
    }
}

uint16_t ae_encode_f16_scale(float d)
{
    return ae_f32_to_f16(d > 65504.0f ? 65504.0f : d < -65504.0f ? -65504.0f : d);
}

void ae_encode_f32(const float *x, const float *importance, void *blocks, size_t n)
{
    (void)importance;
    if (n) memcpy(blocks, x, n * sizeof *x);
}

static void store_u16(void *blocks, size_t i, uint16_t v)
{
    memcpy((uint8_t *)blocks + 2 * i, &v, sizeof v);
}

void ae_encode_f16(const float *x, const float *importance, void *blocks, size_t n)
{
    (void)importance;
    for (size_t i = 0; i < n; i++) store_u16(blocks, i, ae_f32_to_f16(x[i]));
}

void ae_encode_bf16(const float *x, const float *importance, void *blocks, size_t n)
{
    (void)importance;
    for (size_t i = 0; i < n; i++) store_u16(blocks, i, ae_f32_to_bf16(x[i]));
}

/* ---- Blocks of 32 ------------------------------------------------------------------------------------------ */

static void pack_nibbles(const int8_t q[32], uint8_t qs[16])
{
    for (int i = 0; i < 16; i++) qs[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
}

static void pack_fifth_bit(const int8_t q[32], uint8_t qh[4])
{
    uint32_t bits = 0;
    for (int e = 0; e < 32; e++) bits |= (uint32_t)(q[e] >> 4) << e;
    memcpy(qh, &bits, sizeof bits);
}

/* Codes 0 .. 2 half - 1, centred on half. Without importance the block's signed extreme gets code 0 exactly. */
static void fit_centred(ae_encode_runs *runs, bool search_scale, int half, uint16_t *d)
{
    static const float no_min[AE_LANES];
    const ae_lane_codes codes = {NULL, NULL, (float)-half, (float)(half - 1), (float)-half - 0.9f, 0.1f, 19, true};
    const ae_lane_search *search = runs->search;
    if (search_scale) {
        search->fit_scale(&codes, runs->x, runs->w, 32, runs->scale);
        ae_encode_f16_scales(runs, runs->scale, d);
        search->round_scale(&codes, runs->x, 32, runs->scale, runs->lanes);
        for (int i = 0; i < AE_LANES * 32; i++) runs->lanes[i] = (int8_t)(runs->lanes[i] + half);
    } else {
        search->extreme(runs->x, 32, runs->scale);
        for (int l = 0; l < AE_LANES; l++) runs->scale[l] /= (float)-half;
        search->round_range(runs->x, 32, 2 * half - 1, (float)half + 0.5f, runs->scale, no_min, runs->lanes);
        ae_encode_f16_scales(runs, runs->scale, d);
    }
    ae_encode_collect(runs);
}

/* Codes 0 .. n_steps from the minimum to the maximum. */
static void fit_between(ae_encode_runs *runs, bool search_scale, int n_steps, uint16_t *d, uint16_t *m)
{
    const ae_lane_search *search = runs->search;
    if (search_scale) {
        search->fit_range(runs->x, runs->w, 32, n_steps, true, runs->scale, runs->min);
        ae_encode_f16_scales(runs, runs->scale, d);
    } else {
        float hi[AE_LANES];
        search->bounds(runs->x, 32, runs->min, hi);
        for (int l = 0; l < AE_LANES; l++) {
            runs->scale[l] = (hi[l] - runs->min[l]) / (float)n_steps;
            runs->min[l] = -runs->min[l];
        }
    }
    if (search_scale) ae_encode_f16_scales(runs, runs->min, m);
    search->round_range(runs->x, 32, n_steps, 0.5f, runs->scale, runs->min, runs->lanes);
    if (!search_scale) {
        ae_encode_f16_scales(runs, runs->scale, d);
        ae_encode_f16_scales(runs, runs->min, m);
    }
    for (int l = 0; l < runs->n_runs; l++) m[l] ^= 0x8000; /* the file stores the number that is added */
    ae_encode_collect(runs);
}

void ae_encode_q4_0(const float *x, const float *importance, void *blocks, size_t n)
{
    uint8_t *out = blocks;
    ae_encode_runs runs;
    uint16_t d[AE_LANES];
    for (size_t i = 0; i < n / 32; i += AE_LANES) {
        ae_encode_take(&runs, 32, ae_encode_n_runs(n / 32, i), 32, AE_ENCODE_EQUAL, x + 32 * i,
                       ae_encode_from(importance, 32 * i));
        fit_centred(&runs, importance, 8, d);
        for (int l = 0; l < runs.n_runs; l++, out += sizeof(ae_block_q4_0)) {
            ae_block_q4_0 b = {.d = d[l]};
            pack_nibbles(runs.code + 32 * l, b.qs);
            memcpy(out, &b, sizeof b);
        }
    }
}

void ae_encode_q4_1(const float *x, const float *importance, void *blocks, size_t n)
{
    uint8_t *out = blocks;
    ae_encode_runs runs;
    uint16_t d[AE_LANES], m[AE_LANES];
    for (size_t i = 0; i < n / 32; i += AE_LANES) {
        ae_encode_take(&runs, 32, ae_encode_n_runs(n / 32, i), 32, AE_ENCODE_EQUAL, x + 32 * i,
                       ae_encode_from(importance, 32 * i));
        fit_between(&runs, importance, 15, d, m);
        for (int l = 0; l < runs.n_runs; l++, out += sizeof(ae_block_q4_1)) {
            ae_block_q4_1 b = {.d = d[l], .m = m[l]};
            pack_nibbles(runs.code + 32 * l, b.qs);
            memcpy(out, &b, sizeof b);
        }
    }
}

void ae_encode_q5_0(const float *x, const float *importance, void *blocks, size_t n)
{
    uint8_t *out = blocks;
    ae_encode_runs runs;
    uint16_t d[AE_LANES];
    for (size_t i = 0; i < n / 32; i += AE_LANES) {
        ae_encode_take(&runs, 32, ae_encode_n_runs(n / 32, i), 32, AE_ENCODE_EQUAL, x + 32 * i,
                       ae_encode_from(importance, 32 * i));
        fit_centred(&runs, importance, 16, d);
        for (int l = 0; l < runs.n_runs; l++, out += sizeof(ae_block_q5_0)) {
            ae_block_q5_0 b = {.d = d[l]};
            pack_nibbles(runs.code + 32 * l, b.qs);
            pack_fifth_bit(runs.code + 32 * l, b.qh);
            memcpy(out, &b, sizeof b);
        }
    }
}

void ae_encode_q5_1(const float *x, const float *importance, void *blocks, size_t n)
{
    uint8_t *out = blocks;
    ae_encode_runs runs;
    uint16_t d[AE_LANES], m[AE_LANES];
    for (size_t i = 0; i < n / 32; i += AE_LANES) {
        ae_encode_take(&runs, 32, ae_encode_n_runs(n / 32, i), 32, AE_ENCODE_EQUAL, x + 32 * i,
                       ae_encode_from(importance, 32 * i));
        fit_between(&runs, importance, 31, d, m);
        for (int l = 0; l < runs.n_runs; l++, out += sizeof(ae_block_q5_1)) {
            ae_block_q5_1 b = {.d = d[l], .m = m[l]};
            pack_nibbles(runs.code + 32 * l, b.qs);
            pack_fifth_bit(runs.code + 32 * l, b.qh);
            memcpy(out, &b, sizeof b);
        }
    }
}

void ae_encode_q8_0(const float *x, const float *importance, void *blocks, size_t n)
{
    (void)importance;
    uint8_t *out = blocks;
    ae_encode_runs runs;
    uint16_t d[AE_LANES];
    for (size_t i = 0; i < n / 32; i += AE_LANES) {
        ae_encode_take(&runs, 32, ae_encode_n_runs(n / 32, i), 32, AE_ENCODE_EQUAL, x + 32 * i, NULL);
        runs.search->extreme(runs.x, 32, runs.scale);
        for (int l = 0; l < AE_LANES; l++) runs.scale[l] = fabsf(runs.scale[l]) / 127.0f;
        runs.search->round_away(runs.x, 32, 127.0f, runs.scale, runs.lanes);
        ae_encode_collect(&runs);
        ae_encode_f16_scales(&runs, runs.scale, d);
        for (int l = 0; l < runs.n_runs; l++, out += sizeof(ae_block_q8_0)) {
            ae_block_q8_0 b = {.d = d[l]};
            memcpy(b.qs, runs.code + 32 * l, 32);
            memcpy(out, &b, sizeof b);
        }
    }
}

/* encode_k.c - f32 to the 256-element formats with integer sub-scales: Q2_K to Q6_K and IQ4_XS.
 *
 * Owns these encoders. A block is first fitted as the integer view of types.h (codes, sub-scales,
 * f16 scales), the same for all formats, then packed into its bits. Method: fit each sub-block by itself,
 * quantize the sub-scales against the largest, then improve what can be improved given the rest:
 * the f16 scales by least squares, each sub-scale among its neighbours, the codes by rounding.
 */
#include <math.h>

#include "quant/encode.h"
#include "quant/encode_fit.h"
#include "quant/unit.h"

/* ---- Formats without minimum: w = d * sub * code ---------------------------------------------- */

typedef struct signed_form {
    const ae_fit_codes *codes;
    int n_sub, sub_lo, sub_hi; /* elements per sub-block; range of sub */
    bool by_square;            /* without importance, errors weigh by the square of the weight: large weights count most */
} signed_form;

static float signed_error(const signed_form *form, const float *x, const float *w, float scale)
{
    float inverse = ae_encode_inverse(scale), error = 0.0f;
    for (int e = 0; e < form->n_sub; e++) {
        float r = x[e] - scale * (float)ae_fit_nearest(form->codes, x[e] * inverse);
        error += w[e] * r * r;
    }
    return error;
}

/* sub in place: the best of itself and its neighbours for the given d. */
static void improve_sub(const signed_form *form, const float *x, const float *w, float d, int16_t *sub)
{
    float least = INFINITY;
    int centre = *sub;
    for (int s = centre - 1; s <= centre + 1; s++) {
        if (s < form->sub_lo || s > form->sub_hi) continue;
        float error = signed_error(form, x, w, d * (float)s);
        if (error < least) {
            least = error;
            *sub = (int16_t)s;
        }
    }
}

/* The f16 scale that suits these codes and sub-scales best. */
static uint16_t solve_d(const signed_form *form, const float *x, const float *w, const ae_unit *unit)
{
    float xq = 0.0f, qq = 0.0f;
    for (int e = 0; e < 256; e++) {
        float q = (float)(unit->sub[e / form->n_sub] * unit->code[e]);
        xq += w[e] * x[e] * q;
        qq += w[e] * q * q;
    }
    return ae_encode_f16_scale(qq > 0.0f ? xq / qq : 0.0f);
}

/* sub[i] belongs to sub-block i here (not to 16 elements). Returns d as f16. */
static uint16_t fit_signed(const signed_form *form, const float *input, const float *importance, ae_unit *unit)
{
    float x[256], w[256], scale[16], extreme = 0.0f;
    int n_subs = 256 / form->n_sub, step = form->n_sub;
    ae_encode_clean(input, 256, AE_ENCODE_LIMIT, x);
    const bool by_square = !importance && form->by_square;
    for (int e = 0; e < 256 && by_square; e++) w[e] = x[e] * x[e];
    ae_encode_weigh(by_square ? w : importance, 256, w);
    for (int i = 0; i < n_subs; i++) {
        scale[i] = ae_fit_scale(form->codes, x + step * i, w + step * i, step, unit->code + step * i);
        if (fabsf(scale[i]) > fabsf(extreme)) extreme = scale[i];
    }
    uint16_t d = ae_encode_f16_scale(extreme / (float)form->sub_lo);
    float inverse = ae_encode_inverse(ae_f16_to_f32(d));
    for (int i = 0; i < n_subs; i++)
        unit->sub[i] = (int16_t)ae_encode_round(scale[i] * inverse, form->sub_lo, form->sub_hi);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n_subs; i++) {
            improve_sub(form, x + step * i, w + step * i, ae_f16_to_f32(d), &unit->sub[i]);
            ae_fit_round(form->codes, x + step * i, step, ae_f16_to_f32(d) * (float)unit->sub[i],
                         unit->code + step * i);
        }
        if (pass == 0) d = solve_d(form, x, w, unit);
    }
    return d;
}

/* ---- Formats with minimum: w = d * sub * code - dmin * submin ----------------------------------- */

typedef struct range_form {
    int n_sub, n_steps, sub_hi; /* elements per sub-block; codes 0 .. n_steps; sub and submin 0 .. sub_hi */
} range_form;

typedef struct range_scales {
    uint16_t d, dmin;
} range_scales;

static float range_error(const range_form *form, const float *x, const float *w, float scale, float min)
{
    float inverse = ae_encode_inverse(scale), error = 0.0f;
    for (int e = 0; e < form->n_sub; e++) {
        int q = ae_encode_floor((x[e] + min) * inverse + 0.5f, 0, form->n_steps);
        float r = x[e] - (scale * (float)q - min);
        error += w[e] * r * r;
    }
    return error;
}

static void improve_sub_min(const range_form *form, const float *x, const float *w, float d, float dmin, int16_t *sub,
                            int16_t *submin)
{
    float least = INFINITY;
    int s0 = *sub, m0 = *submin;
    for (int s = s0 > 0 ? s0 - 1 : 0; s <= s0 + 1 && s <= form->sub_hi; s++)
        for (int m = m0 > 0 ? m0 - 1 : 0; m <= m0 + 1 && m <= form->sub_hi; m++) {
            float error = range_error(form, x, w, d * (float)s, dmin * (float)m);
            if (error < least) {
                least = error;
                *sub = (int16_t)s;
                *submin = (int16_t)m;
            }
        }
}

/* Least squares of x = d * a - dmin * b, a = sub * code, b = submin; keeps `old` where that has no sense. */
static range_scales solve_d_dmin(const range_form *form, const float *x, const float *w, const ae_unit *unit,
                                 range_scales old)
{
    float aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
    for (int e = 0; e < 256; e++) {
        int i = e / form->n_sub;
        float a = (float)(unit->sub[i] * unit->code[e]), b = (float)unit->submin[i];
        aa += w[e] * a * a;
        ab += w[e] * a * b;
        bb += w[e] * b * b;
        xa += w[e] * x[e] * a;
        xb += w[e] * x[e] * b;
    }
    float det = aa * bb - ab * ab, d, dmin = 0.0f;
    if (det > 0.001f * aa * bb) {
        d = (xa * bb - xb * ab) / det;
        dmin = (xa * ab - xb * aa) / det;
    } else if (bb == 0.0f && aa > 0.0f) {
        d = xa / aa;
    } else {
        return old;
    }
    if (!(d > 0.0f && dmin >= 0.0f)) return old;
    return (range_scales){ae_encode_f16_scale(d), ae_encode_f16_scale(dmin)};
}

static range_scales fit_range(const range_form *form, const float *input, const float *importance, ae_unit *unit)
{
    float x[256], w[256], scale[16], min[16], top_scale = 0.0f, top_min = 0.0f;
    int n_subs = 256 / form->n_sub, step = form->n_sub;
    ae_encode_clean(input, 256, AE_ENCODE_LIMIT, x);
    ae_encode_weigh(importance, 256, w);
    for (int i = 0; i < n_subs; i++) {
        ae_fit_range(x + step * i, w + step * i, step, form->n_steps, false, &scale[i], &min[i]);
        if (scale[i] > top_scale) top_scale = scale[i];
        if (min[i] > top_min) top_min = min[i];
    }
    range_scales out = {ae_encode_f16_scale(top_scale / (float)form->sub_hi),
                        ae_encode_f16_scale(top_min / (float)form->sub_hi)};
    float inverse = ae_encode_inverse(ae_f16_to_f32(out.d)), inverse_min = ae_encode_inverse(ae_f16_to_f32(out.dmin));
    for (int i = 0; i < n_subs; i++) {
        unit->sub[i] = (int16_t)ae_encode_round(scale[i] * inverse, 0, form->sub_hi);
        unit->submin[i] = (int16_t)ae_encode_round(min[i] * inverse_min, 0, form->sub_hi);
    }
    for (int pass = 0; pass < 2; pass++) {
        float d = ae_f16_to_f32(out.d), dmin = ae_f16_to_f32(out.dmin);
        for (int i = 0; i < n_subs; i++) {
            improve_sub_min(form, x + step * i, w + step * i, d, dmin, &unit->sub[i], &unit->submin[i]);
            ae_fit_range_round(x + step * i, step, form->n_steps, d * (float)unit->sub[i],
                               dmin * (float)unit->submin[i], unit->code + step * i);
        }
        if (pass == 0) out = solve_d_dmin(form, x, w, unit, out);
    }
    return out;
}

/* ---- Packing --------------------------------------------------------------------------------------- */

static void or_bits(uint8_t *byte, int bits, int shift)
{
    *byte = (uint8_t)(*byte | bits << shift);
}

/* Two bits of element e, the inverse of the order in unit_k.c. */
static void put_pair(uint8_t *qs, int e, int bits)
{
    or_bits(&qs[32 * (e / 128) + e % 32], bits, 2 * (e / 32 % 4));
}

static void put_k4_scales(const ae_unit *unit, uint8_t scales[12])
{
    for (int s = 0; s < 8; s++) {
        int scale = unit->sub[s], min = unit->submin[s];
        if (s < 4) {
            or_bits(&scales[s], scale, 0);
            or_bits(&scales[s + 4], min, 0);
        } else {
            or_bits(&scales[s + 4], scale & 15, 0);
            or_bits(&scales[s + 4], min & 15, 4);
            or_bits(&scales[s - 4], scale >> 4, 6);
            or_bits(&scales[s], min >> 4, 6);
        }
    }
}

static void put_k4_nibble(uint8_t *qs, int e, int bits)
{
    or_bits(&qs[32 * (e / 64) + e % 32], bits, e / 32 % 2 * 4);
}

void ae_encode_q2_k(const float *x, const float *importance, void *blocks, size_t n)
{
    static const range_form form = {16, 3, 15};
    uint8_t *out = blocks;
    ae_unit unit;
    for (size_t i = 0; i < n / 256; i++, out += sizeof(ae_block_q2_k)) {
        range_scales scales = fit_range(&form, x + 256 * i, ae_encode_from(importance, 256 * i), &unit);
        ae_block_q2_k b = {.d = scales.d, .dmin = scales.dmin};
        for (int s = 0; s < 16; s++) b.scales[s] = (uint8_t)(unit.sub[s] | unit.submin[s] << 4);
        for (int e = 0; e < 256; e++) put_pair(b.qs, e, unit.code[e]);
        memcpy(out, &b, sizeof b);
    }
}

void ae_encode_q3_k(const float *x, const float *importance, void *blocks, size_t n)
{
    static const ae_fit_codes codes = {NULL, NULL, -4, 3, 3.0f, 0.125f, 17, true};
    static const signed_form form = {&codes, 16, -32, 31, true};
    uint8_t *out = blocks;
    ae_unit unit;
    for (size_t i = 0; i < n / 256; i++, out += sizeof(ae_block_q3_k)) {
        ae_block_q3_k b = {.d = fit_signed(&form, x + 256 * i, ae_encode_from(importance, 256 * i), &unit)};
        for (int s = 0; s < 16; s++) {
            int sub = unit.sub[s] + 32;
            or_bits(&b.scales[s % 8], sub & 15, s / 8 * 4);
            or_bits(&b.scales[8 + s % 4], sub >> 4, s / 4 * 2);
        }
        for (int e = 0; e < 256; e++) {
            int q = unit.code[e] + 4;
            put_pair(b.qs, e, q & 3);
            or_bits(&b.hmask[e % 32], q >> 2, e / 32);
        }
        memcpy(out, &b, sizeof b);
    }
}

void ae_encode_q4_k(const float *x, const float *importance, void *blocks, size_t n)
{
    static const range_form form = {32, 15, 63};
    uint8_t *out = blocks;
    ae_unit unit;
    for (size_t i = 0; i < n / 256; i++, out += sizeof(ae_block_q4_k)) {
        range_scales scales = fit_range(&form, x + 256 * i, ae_encode_from(importance, 256 * i), &unit);
        ae_block_q4_k b = {.d = scales.d, .dmin = scales.dmin};
        put_k4_scales(&unit, b.scales);
        for (int e = 0; e < 256; e++) put_k4_nibble(b.qs, e, unit.code[e]);
        memcpy(out, &b, sizeof b);
    }
}

void ae_encode_q5_k(const float *x, const float *importance, void *blocks, size_t n)
{
    static const range_form form = {32, 31, 63};
    uint8_t *out = blocks;
    ae_unit unit;
    for (size_t i = 0; i < n / 256; i++, out += sizeof(ae_block_q5_k)) {
        range_scales scales = fit_range(&form, x + 256 * i, ae_encode_from(importance, 256 * i), &unit);
        ae_block_q5_k b = {.d = scales.d, .dmin = scales.dmin};
        put_k4_scales(&unit, b.scales);
        for (int e = 0; e < 256; e++) {
            put_k4_nibble(b.qs, e, unit.code[e] & 15);
            or_bits(&b.qh[e % 32], unit.code[e] >> 4, e / 32);
        }
        memcpy(out, &b, sizeof b);
    }
}

void ae_encode_q6_k(const float *x, const float *importance, void *blocks, size_t n)
{
    static const ae_fit_codes codes = {NULL, NULL, -32, 31, -32.9f, 0.1f, 19, false};
    static const signed_form form = {&codes, 16, -128, 127, false};
    uint8_t *out = blocks;
    ae_unit unit;
    for (size_t i = 0; i < n / 256; i++, out += sizeof(ae_block_q6_k)) {
        ae_block_q6_k b = {.d = fit_signed(&form, x + 256 * i, ae_encode_from(importance, 256 * i), &unit)};
        for (int s = 0; s < 16; s++) b.scales[s] = (int8_t)unit.sub[s];
        for (int e = 0; e < 256; e++) {
            int q = unit.code[e] + 32, half = e / 128, j = e / 32 % 4;
            or_bits(&b.ql[64 * half + 32 * (j % 2) + e % 32], q & 15, j / 2 * 4);
            put_pair(b.qh, e, q >> 4);
        }
        memcpy(out, &b, sizeof b);
    }
}

void ae_encode_iq4_xs(const float *x, const float *importance, void *blocks, size_t n)
{
    static const signed_form form = {&ae_fit_iq4, 32, -32, 31, false};
    uint8_t *out = blocks;
    ae_unit unit;
    for (size_t i = 0; i < n / 256; i++, out += sizeof(ae_block_iq4_xs)) {
        ae_block_iq4_xs b = {.d = fit_signed(&form, x + 256 * i, ae_encode_from(importance, 256 * i), &unit)};
        for (int s = 0; s < 8; s++) {
            int sub = unit.sub[s] + 32;
            or_bits(&b.scales_l[s / 2], sub & 15, s % 2 * 4);
            b.scales_h = (uint16_t)(b.scales_h | (sub >> 4) << (2 * s));
        }
        for (int e = 0; e < 256; e++)
            or_bits(&b.qs[16 * (e / 32) + e % 16], ae_fit_iq4_index(unit.code[e]), e / 16 % 2 * 4);
        memcpy(out, &b, sizeof b);
    }
}

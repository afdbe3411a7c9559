/* k.c - f32 to the 256-element formats with integer sub-scales: Q2_K to Q6_K and IQ4_XS.
 *
 * Owns these encoders. A block is fitted first (codes, sub-scales, f16 scales), in the same way for all formats, and then
 * packed into its bits. Method: fit each sub-block by itself, quantize the sub-scales relative to the largest, then improve
 * each part given the others: the f16 scales by least squares, each sub-scale among its neighbours, the codes by rounding. The
 * sub-blocks of a block, or of two blocks if they have 32 weights, are searched side by side (lanes.h).
 */
#include <math.h>

#include "quant/encode/encode.h"
#include "quant/unit.h"

enum { MOST_BLOCKS = 2 }; /* blocks that are fitted at a time */

/* The result for a block. */
typedef struct fitted {
    uint16_t d, dmin;
    int16_t sub[16], submin[16];
    int8_t code[256];
} fitted;

/* The blocks being fitted, with a sub-block in each lane; a block has per_block lanes. */
typedef struct k_work {
    ae_encode_runs runs;
    int n_blocks, per_block;
    float sub[AE_LANES], submin[AE_LANES]; /* integers */
    float d[AE_LANES], dmin[AE_LANES];     /* those of the lane's block */
} k_work;

static void take(k_work *work, int n_sub, ae_encode_by by, const float *input, const float *importance, int n_blocks)
{
    const float zero[AE_LANES] = {0.0f};
    work->n_blocks = n_blocks;
    work->per_block = 256 / n_sub;
    ae_encode_take(&work->runs, n_sub, work->per_block * n_blocks, 256, by, input, importance);
    memcpy(work->sub, zero, sizeof zero); /* also for lanes without a block */
    memcpy(work->submin, zero, sizeof zero);
    memcpy(work->d, zero, sizeof zero);
    memcpy(work->dmin, zero, sizeof zero);
}

/* Returns the sum over the lanes of block b. */
static float sum_of(const k_work *work, const float *lanes, int b)
{
    float sum = 0.0f;
    for (int l = work->per_block * b; l < work->per_block * (b + 1); l++) sum += lanes[l];
    return sum;
}

/* Returns the scale that maps block b's largest value (by magnitude) to `top`, for all its lanes; returns it as f16. */
static uint16_t start_scale(const k_work *work, const float *lanes, int b, float top, float *d)
{
    float extreme = 0.0f;
    const int first = work->per_block * b;
    for (int l = first; l < first + work->per_block; l++)
        if (fabsf(lanes[l]) > fabsf(extreme)) extreme = lanes[l];
    const uint16_t half = ae_encode_f16_scale(extreme / top);
    for (int l = first; l < first + work->per_block; l++) d[l] = ae_f16_to_f32(half);
    return half;
}

static void set_scale(const k_work *work, int b, uint16_t half, float *d)
{
    for (int l = work->per_block * b; l < work->per_block * (b + 1); l++) d[l] = ae_f16_to_f32(half);
}

/* Rounds scale / d to integers in [lo, hi]. */
static void round_subs(const k_work *work, const float *scale, const float *d, int lo, int hi, float *sub)
{
    for (int l = 0; l < work->per_block * work->n_blocks; l++)
        sub[l] = (float)ae_encode_round(scale[l] * ae_encode_inverse(d[l]), lo, hi);
}

static void store_subs(const k_work *work, const float *sub, int b, int16_t *out)
{
    for (int i = 0; i < work->per_block; i++) out[i] = (int16_t)sub[work->per_block * b + i];
}

static void store_codes(k_work *work, fitted *out)
{
    ae_encode_collect(&work->runs);
    for (int b = 0; b < work->n_blocks; b++) memcpy(out[b].code, work->runs.code + 256 * b, 256);
}

/* ---- Formats without minimum: w = d * sub * code ---------------------------------------------- */

typedef struct signed_form {
    const ae_lane_codes *codes;
    int n_sub, sub_lo, sub_hi; /* elements per sub-block; range of sub */
    ae_encode_by by;
} signed_form;

static void fit_signed(const signed_form *form, const float *input, const float *importance, int n_blocks, fitted *out)
{
    k_work work;
    ae_encode_runs *runs = &work.runs;
    const ae_lane_codes *codes = form->codes;
    const int n = form->n_sub;
    take(&work, n, form->by, input, importance, n_blocks);
    const ae_lane_search *search = runs->search;
    search->fit_scale(codes, runs->x, runs->w, n, runs->scale);
    for (int b = 0; b < n_blocks; b++) out[b].d = start_scale(&work, runs->scale, b, (float)form->sub_lo, work.d);
    round_subs(&work, runs->scale, work.d, form->sub_lo, form->sub_hi, work.sub);
    for (int pass = 0; pass < 2; pass++) {
        search->improve_sub(codes, runs->x, runs->w, n, (float)form->sub_lo, (float)form->sub_hi, work.d, work.sub);
        for (int l = 0; l < AE_LANES; l++) runs->scale[l] = work.d[l] * work.sub[l];
        search->round_scale(codes, runs->x, n, runs->scale, runs->lanes);
        if (pass > 0) break;
        float xa[AE_LANES], aa[AE_LANES]; /* the operands of the best f16 scale for these codes and sub-scales */
        search->sums_scale(codes, runs->x, runs->w, n, runs->lanes, work.sub, xa, aa);
        for (int b = 0; b < n_blocks; b++) {
            const float of_x = sum_of(&work, xa, b), of_a = sum_of(&work, aa, b);
            out[b].d = ae_encode_f16_scale(of_a > 0.0f ? of_x / of_a : 0.0f);
            set_scale(&work, b, out[b].d, work.d);
        }
    }
    for (int b = 0; b < n_blocks; b++) store_subs(&work, work.sub, b, out[b].sub);
    store_codes(&work, out);
}

/* ---- Formats with minimum: w = d * sub * code - dmin * submin ----------------------------------- */

typedef struct range_form {
    int n_sub, n_steps, sub_hi; /* elements per sub-block; codes 0 .. n_steps; sub and submin 0 .. sub_hi */
} range_form;

/* Solves x = d * a - dmin * b by least squares, with a = sub * code and b = submin. Keeps the old values if the result makes no
 * sense. */
static void solve_d_dmin(k_work *work, fitted *out)
{
    float lanes[5][AE_LANES];
    float *sums[5] = {lanes[0], lanes[1], lanes[2], lanes[3], lanes[4]};
    const ae_encode_runs *runs = &work->runs;
    runs->search->sums_range(runs->x, runs->w, runs->n, runs->lanes, work->sub, work->submin, sums);
    for (int i = 0; i < work->n_blocks; i++) {
        const float aa = sum_of(work, sums[0], i), ab = sum_of(work, sums[1], i), bb = sum_of(work, sums[2], i);
        const float xa = sum_of(work, sums[3], i), xb = sum_of(work, sums[4], i), det = aa * bb - ab * ab;
        float d, dmin = 0.0f;
        if (det > 0.001f * aa * bb) {
            d = (xa * bb - xb * ab) / det;
            dmin = (xa * ab - xb * aa) / det;
        } else if (bb == 0.0f && aa > 0.0f) {
            d = xa / aa;
        } else {
            continue;
        }
        if (!(d > 0.0f && dmin >= 0.0f)) continue;
        out[i].d = ae_encode_f16_scale(d);
        out[i].dmin = ae_encode_f16_scale(dmin);
        set_scale(work, i, out[i].d, work->d);
        set_scale(work, i, out[i].dmin, work->dmin);
    }
}

static void fit_range(const range_form *form, const float *input, const float *importance, int n_blocks, fitted *out)
{
    k_work work;
    ae_encode_runs *runs = &work.runs;
    const int n = form->n_sub;
    take(&work, n, AE_ENCODE_EQUAL, input, importance, n_blocks);
    const ae_lane_search *search = runs->search;
    search->fit_range(runs->x, runs->w, n, form->n_steps, false, runs->scale, runs->min);
    for (int b = 0; b < n_blocks; b++) {
        out[b].d = start_scale(&work, runs->scale, b, (float)form->sub_hi, work.d);
        out[b].dmin = start_scale(&work, runs->min, b, (float)form->sub_hi, work.dmin);
    }
    round_subs(&work, runs->scale, work.d, 0, form->sub_hi, work.sub);
    round_subs(&work, runs->min, work.dmin, 0, form->sub_hi, work.submin);
    for (int pass = 0; pass < 2; pass++) {
        search->improve_sub_min(runs->x, runs->w, n, form->n_steps, (float)form->sub_hi, work.d, work.dmin, work.sub,
                                work.submin);
        for (int l = 0; l < AE_LANES; l++) {
            runs->scale[l] = work.d[l] * work.sub[l];
            runs->min[l] = work.dmin[l] * work.submin[l];
        }
        search->round_range(runs->x, n, form->n_steps, 0.5f, runs->scale, runs->min, runs->lanes);
        if (pass == 0) solve_d_dmin(&work, out);
    }
    for (int b = 0; b < n_blocks; b++) {
        store_subs(&work, work.sub, b, out[b].sub);
        store_subs(&work, work.submin, b, out[b].submin);
    }
    store_codes(&work, out);
}

/* ---- Packing --------------------------------------------------------------------------------------- */

/* Packs codes 0 to 3 in the order of unit_k.c. */
static void pack_pairs(const uint8_t code[256], uint8_t qs[64])
{
    for (int h = 0; h < 2; h++)
        for (int l = 0; l < 32; l++) {
            const uint8_t *c = code + 128 * h + l;
            qs[32 * h + l] = (uint8_t)(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
        }
}

/* Packs codes 0 to 15 into bytes, two codes that are `apart` elements apart in each. */
static void pack_nibbles(const uint8_t *code, int n, int apart, uint8_t *qs)
{
    for (int at = 0; at < n; at += 2 * apart)
        for (int l = 0; l < apart; l++) qs[at / 2 + l] = (uint8_t)(code[at + l] | code[at + apart + l] << 4);
}

/* Packs the bits of 256 codes above the lowest `shift` bits. */
static void pack_high(const uint8_t code[256], int shift, uint8_t high[32])
{
    memset(high, 0, 32);
    for (int j = 0; j < 8; j++)
        for (int l = 0; l < 32; l++) high[l] = (uint8_t)(high[l] | (code[32 * j + l] >> shift & 1) << j);
}

/* Computes code + zero, and takes the bits in mask. */
static void offset_codes(const fitted *f, int zero, int shift, int mask, uint8_t out[256])
{
    for (int e = 0; e < 256; e++) out[e] = (uint8_t)((f->code[e] + zero) >> shift & mask);
}

static void put_k4_scales(const fitted *f, uint8_t scales[12])
{
    for (int s = 0; s < 4; s++) {
        scales[s] = (uint8_t)(f->sub[s] | f->sub[s + 4] >> 4 << 6);
        scales[s + 4] = (uint8_t)(f->submin[s] | f->submin[s + 4] >> 4 << 6);
        scales[s + 8] = (uint8_t)((f->sub[s + 4] & 15) | (f->submin[s + 4] & 15) << 4);
    }
}

static void pack_q2_k(const fitted *f, void *out)
{
    uint8_t code[256];
    ae_block_q2_k b = {.d = f->d, .dmin = f->dmin};
    for (int s = 0; s < 16; s++) b.scales[s] = (uint8_t)(f->sub[s] | f->submin[s] << 4);
    offset_codes(f, 0, 0, 3, code);
    pack_pairs(code, b.qs);
    memcpy(out, &b, sizeof b);
}

static void pack_q3_k(const fitted *f, void *out)
{
    uint8_t code[256];
    ae_block_q3_k b = {.d = f->d};
    for (int s = 0; s < 16; s++) {
        const int sub = f->sub[s] + 32;
        b.scales[s % 8] = (uint8_t)(b.scales[s % 8] | (sub & 15) << (s / 8 * 4));
        b.scales[8 + s % 4] = (uint8_t)(b.scales[8 + s % 4] | sub >> 4 << (s / 4 * 2));
    }
    offset_codes(f, 4, 0, 3, code);
    pack_pairs(code, b.qs);
    offset_codes(f, 4, 0, 7, code);
    pack_high(code, 2, b.hmask);
    memcpy(out, &b, sizeof b);
}

static void pack_q4_k(const fitted *f, void *out)
{
    uint8_t code[256];
    ae_block_q4_k b = {.d = f->d, .dmin = f->dmin};
    put_k4_scales(f, b.scales);
    offset_codes(f, 0, 0, 15, code);
    pack_nibbles(code, 256, 32, b.qs);
    memcpy(out, &b, sizeof b);
}

static void pack_q5_k(const fitted *f, void *out)
{
    uint8_t code[256];
    ae_block_q5_k b = {.d = f->d, .dmin = f->dmin};
    put_k4_scales(f, b.scales);
    offset_codes(f, 0, 0, 15, code);
    pack_nibbles(code, 256, 32, b.qs);
    offset_codes(f, 0, 0, 31, code);
    pack_high(code, 4, b.qh);
    memcpy(out, &b, sizeof b);
}

static void pack_q6_k(const fitted *f, void *out)
{
    uint8_t code[256];
    ae_block_q6_k b = {.d = f->d};
    for (int s = 0; s < 16; s++) b.scales[s] = (int8_t)f->sub[s];
    offset_codes(f, 32, 0, 15, code);
    pack_nibbles(code, 256, 64, b.ql);
    offset_codes(f, 32, 4, 3, code);
    pack_pairs(code, b.qh);
    memcpy(out, &b, sizeof b);
}

static void pack_iq4_xs(const fitted *f, void *out)
{
    uint8_t code[256];
    ae_block_iq4_xs b = {.d = f->d};
    for (int s = 0; s < 8; s++) {
        const int sub = f->sub[s] + 32;
        b.scales_l[s / 2] = (uint8_t)(b.scales_l[s / 2] | (sub & 15) << (s % 2 * 4));
        b.scales_h = (uint16_t)(b.scales_h | (sub >> 4) << (2 * s));
    }
    offset_codes(f, 0, 0, 15, code);
    pack_nibbles(code, 256, 16, b.qs);
    memcpy(out, &b, sizeof b);
}

/* ---- The formats ----------------------------------------------------------------------------------- */

typedef void pack_fn(const fitted *f, void *out);

static void encode(const signed_form *without_min, const range_form *with_min, pack_fn *pack, size_t block_bytes,
                   const float *x, const float *importance, void *blocks, size_t n)
{
    uint8_t *out = blocks;
    fitted found[MOST_BLOCKS] = {{0}};
    const int at_once = (without_min ? without_min->n_sub : with_min->n_sub) / 16;
    for (size_t i = 0; i < n / 256; i += (size_t)at_once) {
        const int n_blocks = n / 256 - i < (size_t)at_once ? 1 : at_once;
        if (without_min) fit_signed(without_min, x + 256 * i, ae_encode_from(importance, 256 * i), n_blocks, found);
        else fit_range(with_min, x + 256 * i, ae_encode_from(importance, 256 * i), n_blocks, found);
        for (int b = 0; b < n_blocks; b++, out += block_bytes) pack(&found[b], out);
    }
}

void ae_encode_q2_k(const float *x, const float *importance, void *blocks, size_t n)
{
    static const range_form form = {16, 3, 15};
    encode(NULL, &form, pack_q2_k, sizeof(ae_block_q2_k), x, importance, blocks, n);
}

void ae_encode_q3_k(const float *x, const float *importance, void *blocks, size_t n)
{
    static const ae_lane_codes codes = {NULL, NULL, -4.0f, 3.0f, 3.0f, 0.125f, 17, true};
    static const signed_form form = {&codes, 16, -32, 31, AE_ENCODE_SQUARE};
    encode(&form, NULL, pack_q3_k, sizeof(ae_block_q3_k), x, importance, blocks, n);
}

void ae_encode_q4_k(const float *x, const float *importance, void *blocks, size_t n)
{
    static const range_form form = {32, 15, 63};
    encode(NULL, &form, pack_q4_k, sizeof(ae_block_q4_k), x, importance, blocks, n);
}

void ae_encode_q5_k(const float *x, const float *importance, void *blocks, size_t n)
{
    static const range_form form = {32, 31, 63};
    encode(NULL, &form, pack_q5_k, sizeof(ae_block_q5_k), x, importance, blocks, n);
}

void ae_encode_q6_k(const float *x, const float *importance, void *blocks, size_t n)
{
    static const ae_lane_codes codes = {NULL, NULL, -32.0f, 31.0f, -32.9f, 0.1f, 19, false};
    static const signed_form form = {&codes, 16, -128, 127, AE_ENCODE_EQUAL};
    encode(&form, NULL, pack_q6_k, sizeof(ae_block_q6_k), x, importance, blocks, n);
}

void ae_encode_iq4_xs(const float *x, const float *importance, void *blocks, size_t n)
{
    static const signed_form form = {&ae_lane_iq4, 32, -32, 31, AE_ENCODE_EQUAL};
    encode(&form, NULL, pack_iq4_xs, sizeof(ae_block_iq4_xs), x, importance, blocks, n);
}

/* encode_fit.c - scales and codes that make the squared error of a few weights small.
 *
 * Method: for given codes the best scale (and minimum) is a least-squares solution in closed form,
 * and for given scales the best codes are the nearest ones; so try a number of starting scales,
 * solve, and keep the best. Owns nothing. Inputs are finite and at most AE_ENCODE_LIMIT.
 */
#include "quant/encode_fit.h"

#include <math.h>

#include "quant/encode.h"
#include "quant/unit.h"

static const float iq4_middles[15] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f,
                                      7.0f,    19.0f,  31.5f,  45.5f,  61.0f,  79.0f,  101.0f};
const ae_fit_codes ae_fit_iq4 = {ae_quant_iq4_values, iq4_middles, 0, 0, -143.0f, 4.0f, 10, true};

int ae_fit_iq4_index(int8_t value)
{
    int i = 0;
    while (ae_quant_iq4_values[i] != value) i++;
    return i;
}

int ae_fit_nearest(const ae_fit_codes *codes, float v)
{
    if (!codes->values) return ae_encode_round(v, codes->lo, codes->hi);
    const float *middles = codes->middles; /* binary search without branches, which would be mispredicted */
    int i = 8 * (v > middles[7]);
    i += 4 * (v > middles[i + 3]);
    i += 2 * (v > middles[i + 1]);
    i += v > middles[i];
    return codes->values[i];
}

void ae_fit_round(const ae_fit_codes *codes, const float *x, int n, float scale, int8_t *code)
{
    float inverse = ae_encode_inverse(scale);
    for (int e = 0; e < n; e++) code[e] = (int8_t)ae_fit_nearest(codes, x[e] * inverse);
}

/* With the best scale for these codes the squared error is sum w x^2 - xq^2 / qq. */
typedef struct sums {
    float xq, qq;
} sums;

static sums sums_at(const ae_fit_codes *codes, const float *x, const float *w, int n, float inverse)
{
    sums s = {0};
    for (int e = 0; e < n; e++) {
        float q = (float)ae_fit_nearest(codes, x[e] * inverse);
        s.xq += w[e] * x[e] * q;
        s.qq += w[e] * q * q;
    }
    return s;
}

static void keep_better(sums *best, sums s)
{
    if (s.xq * s.xq * best->qq > best->xq * best->xq * s.qq || (best->qq == 0.0f && s.qq > 0.0f)) *best = s;
}

float ae_fit_scale(const ae_fit_codes *codes, const float *x, const float *w, int n, int8_t *code)
{
    float extreme = 0.0f;
    for (int e = 0; e < n; e++)
        if (fabsf(x[e]) > fabsf(extreme)) extreme = x[e];
    if (fabsf(extreme) < 0x1p-60f) { /* far below what an f16 scale can express; squares would vanish */
        ae_fit_round(codes, x, n, 0.0f, code);
        return 0.0f;
    }
    sums best = {0};
    for (int i = 0; i < codes->n_tries; i++) {
        float inverse = (codes->first + (float)i * codes->step) / extreme;
        keep_better(&best, sums_at(codes, x, w, n, inverse));
        if (codes->both_signs) keep_better(&best, sums_at(codes, x, w, n, -inverse));
    }
    for (int i = 0; i < 3 && best.qq > 0.0f && best.xq != 0.0f; i++) {
        float before = best.xq;
        keep_better(&best, sums_at(codes, x, w, n, best.qq / best.xq));
        if (best.xq == before) break;
    }
    float scale = best.qq > 0.0f ? best.xq / best.qq : 0.0f;
    ae_fit_round(codes, x, n, scale, code);
    return scale;
}

void ae_fit_range_round(const float *x, int n, int n_steps, float scale, float min, int8_t *code)
{
    float inverse = ae_encode_inverse(scale);
    for (int e = 0; e < n; e++) code[e] = (int8_t)ae_encode_floor((x[e] + min) * inverse + 0.5f, 0, n_steps);
}

typedef struct line {
    float scale, min, error;
} line;

/* Least squares of x = scale * q - min for the codes that `start` gives. */
static line solve_line(const float *x, const float *w, int n, int n_steps, bool any_min, line start)
{
    int8_t code[32];
    float s1 = 0, sq = 0, sqq = 0, sx = 0, sxq = 0;
    ae_fit_range_round(x, n, n_steps, start.scale, start.min, code);
    for (int e = 0; e < n; e++) {
        float q = (float)code[e];
        s1 += w[e];
        sq += w[e] * q;
        sqq += w[e] * q * q;
        sx += w[e] * x[e];
        sxq += w[e] * x[e] * q;
    }
    float det = s1 * sqq - sq * sq;
    line out = start;
    if (det > 0.0f) {
        out.scale = (s1 * sxq - sx * sq) / det;
        out.min = (sq * sxq - sqq * sx) / det;
    }
    if (!any_min && out.min < 0.0f && sqq > 0.0f) {
        out.min = 0.0f;
        out.scale = sxq / sqq;
    }
    if (!(out.scale > 0.0f) || (!any_min && out.min < 0.0f)) out = start;
    out.error = 0.0f;
    for (int e = 0; e < n; e++) {
        float r = x[e] - (out.scale * (float)code[e] - out.min);
        out.error += w[e] * r * r;
    }
    return out;
}

void ae_fit_range(const float *x, const float *w, int n, int n_steps, bool any_min, float *scale, float *min)
{
    float lo = any_min ? x[0] : 0.0f, hi = x[0];
    for (int e = 0; e < n; e++) {
        if (x[e] < lo) lo = x[e];
        if (x[e] > hi) hi = x[e];
    }
    *scale = 0.0f;
    *min = -lo;
    if (hi - lo < 0x1p-60f) return;
    line best = {(hi - lo) / (float)n_steps, -lo, INFINITY};
    for (int i = 0; i < 20; i++) { /* the range laid on n_steps - 1 .. n_steps + 0.9 codes */
        line start = {(hi - lo) / ((float)n_steps - 1.0f + 0.1f * (float)i), -lo, 0.0f};
        line solved = solve_line(x, w, n, n_steps, any_min, start);
        if (solved.error < best.error) best = solved;
    }
    for (int i = 0; i < 3; i++) {
        line solved = solve_line(x, w, n, n_steps, any_min, best);
        if (!(solved.error < best.error)) break;
        best = solved;
    }
    *scale = best.scale;
    *min = best.min;
}

/* encode.h - the encoders that encoder.c enters into its table, and what they share. Private to src/quant/encode.
 *
 * Contract of every encoder: any input is safe. NaN counts as 0; infinities and numbers beyond the format saturate; all bytes
 * of the blocks are written, at any address. Importance counts as 0 where it is negative or NaN; if none is positive, all
 * weights are equal.
 */
#ifndef AE_QUANT_ENCODE_ENCODE_H
#define AE_QUANT_ENCODE_ENCODE_H

#include "quant/encode/encoder.h"
#include "quant/encode/lanes.h"

ae_encode_fn ae_encode_f32, ae_encode_f16, ae_encode_bf16, ae_encode_q4_0, ae_encode_q4_1, ae_encode_q5_0,
    ae_encode_q5_1, ae_encode_q8_0, ae_encode_iq4_nl, ae_encode_mxfp4, ae_encode_nvfp4, ae_encode_q1_0, ae_encode_q2_0,
    ae_encode_q2_k, ae_encode_q3_k, ae_encode_q4_k, ae_encode_q5_k, ae_encode_q6_k, ae_encode_iq4_xs, ae_encode_tq1_0,
    ae_encode_tq2_0, ae_encode_iq1_s, ae_encode_iq1_m, ae_encode_iq2_xxs, ae_encode_iq2_xs, ae_encode_iq2_s,
    ae_encode_iq3_xxs, ae_encode_iq3_s;

/* Copies x[n] to out[n] with NaN replaced by 0 and magnitudes limited to `limit`. */
void ae_encode_clean(const float *x, size_t n, float limit, float *out);
/* Magnitude that no format with an f16 scale reaches (65504 * 32 * 127 < 2^28); its square is safe in f32. */
#define AE_ENCODE_LIMIT 0x1p30f

/* Sets w[n] to the weight of each squared error, from importance[n], or equal for all; the largest is in [1, 2). */
void ae_encode_weigh(const float *importance, size_t n, float *w);
/* importance + i, or NULL if there is no importance. */
static inline const float *ae_encode_from(const float *importance, size_t i)
{
    return importance ? importance + i : NULL;
}

/* Runs of weights that share a scale, side by side for the searches of lanes.h. */
typedef struct ae_encode_runs {
    const ae_lane_search *search;
    int n, n_runs; /* weights of a run; number of runs */
    float x[AE_LANES * AE_LANES_MOST], w[AE_LANES * AE_LANES_MOST];
    float scale[AE_LANES], min[AE_LANES];
    int8_t lanes[AE_LANES * AE_LANES_MOST]; /* codes in lanes */
    int8_t code[AE_LANES * AE_LANES_MOST];  /* the codes in the order of the runs (ae_encode_collect) */
} ae_encode_runs;

/* How errors are weighted without importance. */
typedef enum ae_encode_by {
    AE_ENCODE_EQUAL,
    AE_ENCODE_SIZE,   /* by the magnitude of the weight */
    AE_ENCODE_SQUARE, /* by the square of the magnitude: large weights count most */
} ae_encode_by;

/* Takes n_runs runs of n cleaned weights, and computes their weighting over groups of `group` weights (at most 256; whole
 * groups). */
void ae_encode_take(ae_encode_runs *runs, int n, int n_runs, int group, ae_encode_by by, const float *x,
                    const float *importance);
void ae_encode_collect(ae_encode_runs *runs);
/* Rounds scale[] (or min[]) of the runs to f16: the bits go to half[], and scale[] gets the rounded values. */
void ae_encode_f16_scales(const ae_encode_runs *runs, float *scale, uint16_t *half);
/* Returns the number of runs of n weights from run `first` to the end of n_all weights, at most AE_LANES. */
static inline int ae_encode_n_runs(size_t n_all, size_t first)
{
    return n_all - first < AE_LANES ? (int)(n_all - first) : AE_LANES;
}

/* Returns a scale as f16, saturated instead of infinite. */
uint16_t ae_encode_f16_scale(float d);

/* floor(v) as an integer, cut to [lo, hi]; NaN gives lo. */
static inline int ae_encode_floor(float v, int lo, int hi)
{
    if (!(v >= (float)lo)) return lo;
    if (v >= (float)hi) return hi;
    int i = (int)v;
    return (float)i > v ? i - 1 : i;
}

/* Nearest integer, ties upwards, cut to [lo, hi]. (v + 0.5f itself would round.) */
static inline int ae_encode_round(float v, int lo, int hi)
{
    int i = ae_encode_floor(v, lo, hi);
    return i < hi && v - (float)i >= 0.5f ? i + 1 : i;
}

/* 1 / d, or 0 for a scale that is zero. */
static inline float ae_encode_inverse(float d)
{
    return d != 0.0f ? 1.0f / d : 0.0f;
}

#endif

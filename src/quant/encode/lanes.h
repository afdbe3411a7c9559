/* lanes.h - the searches of the encoders, for sixteen runs of weights side by side. Private to src/quant/encode.
 *
 * A run is a block or sub-block of n weights that share a scale. It has a lane of its own: element e of lane l is at [16 * e +
 * l]. So a lane's sums have one order, that of its elements, and every level gives the same bits; lane_search.inc defines the
 * arithmetic and is compiled for each level. Inputs are finite and at most AE_ENCODE_LIMIT. Owns nothing.
 */
#ifndef AE_QUANT_ENCODE_LANES_H
#define AE_QUANT_ENCODE_LANES_H

#include "quant/types.h"

enum { AE_LANES = 16, AE_LANES_MOST = 64 }; /* number of lanes; most elements of a run */

/* The values that codes stand for, and the scales to try: those that map the run's extreme to first, first + step, ... (n_tries
 * of them) in units of a code, and to their negatives if both_signs. */
typedef struct ae_lane_codes {
    const float *values;  /* [16] ascending; codes are indices. NULL: codes are the integers in [lo, hi] */
    const float *middles; /* [16] half-way between neighbouring values; the last is not used */
    float lo, hi, first, step;
    int n_tries;
    bool both_signs;
} ae_lane_codes;

/* The table of IQ4_NL and IQ4_XS. */
extern const ae_lane_codes ae_lane_iq4;

typedef struct ae_lane_search {
    const char *level;
    /* For x ~ scale * value of a code, with errors weighted by w: finds the scale for each lane. */
    void (*fit_scale)(const ae_lane_codes *codes, const float *x, const float *w, int n, float *scale);
    /* The codes nearest to x / scale; scale 0 gives the code nearest to 0. */
    void (*round_scale)(const ae_lane_codes *codes, const float *x, int n, const float *scale, int8_t *code);
    /* For scales d * sub: the best of sub - 1, sub and sub + 1 within [lo, hi], in place. */
    void (*improve_sub)(const ae_lane_codes *codes, const float *x, const float *w, int n, float lo, float hi,
                        const float *d, float *sub);
    /* For x ~ scale * code - min with codes 0 .. n_steps: finds scale >= 0 and min, which is >= 0 unless any_min. */
    void (*fit_range)(const float *x, const float *w, int n, int n_steps, bool any_min, float *scale, float *min);
    /* floor((x + min) / scale + plus), limited to 0 .. n_steps; plus is at least 0.5. */
    void (*round_range)(const float *x, int n, int n_steps, float plus, const float *scale, const float *min, int8_t *code);
    /* For scales d * sub and minimums dmin * submin: the best of sub and submin and their neighbours within [0, hi]. */
    void (*improve_sub_min)(const float *x, const float *w, int n, int n_steps, float hi, const float *d, const float *dmin,
                            float *sub, float *submin);
    /* Sums of w x a and w a a for a = sub * code, where code is an integer or an index into the values. */
    void (*sums_scale)(const ae_lane_codes *codes, const float *x, const float *w, int n, const int8_t *code,
                       const float *sub, float *xa, float *aa);
    /* x / scale rounded to the nearest of -top .. top, halves away from zero. */
    void (*round_away)(const float *x, int n, float top, const float *scale, int8_t *code);
    /* `extreme`: the first element of largest magnitude, with its sign; `range`: the least and the largest. */
    void (*extreme)(const float *x, int n, float *extreme);
    void (*bounds)(const float *x, int n, float *lo, float *hi);
    /* With b = submin: sums of w a a, w a b, w b b, w x a, w x b. */
    void (*sums_range)(const float *x, const float *w, int n, const int8_t *code, const float *sub, const float *submin,
                       float *sums[5]);
} ae_lane_search;

/* Returns the levels that this machine has, the best one last; ae_lane_best returns that one. */
size_t ae_lane_levels(const ae_lane_search *levels[3]);
const ae_lane_search *ae_lane_best(void);

extern const ae_lane_search ae_lane_search_plain;
#if defined(__x86_64__)
extern const ae_lane_search ae_lane_search_avx2, ae_lane_search_avx512;
#endif

/* Spreads n_runs (at most 16) consecutive runs of n weights into lanes; the other lanes become 0. */
void ae_lane_spread(const float *x, int n, int n_runs, float *lanes);
/* Collects the codes of the first n_runs lanes into consecutive runs. */
void ae_lane_collect(const int8_t *lanes, int n, int n_runs, int8_t *code);

#endif

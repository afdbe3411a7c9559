/* encode_fit.h - internal to src/quant: scales and codes that make the weighted squared error small. */
#ifndef AE_QUANT_ENCODE_FIT_H
#define AE_QUANT_ENCODE_FIT_H

#include "quant/types.h"

/* The values that codes stand for, and the scales to try: those that put the block's extreme at first, first + step, ...
 * (n_tries of them) in units of a code, and at their negatives if both_signs. */
typedef struct ae_fit_codes {
    const int8_t *values; /* [16] ascending, or NULL: all integers in [lo, hi] */
    const float *middles; /* [15] half-way between neighbouring values */
    int lo, hi;
    float first, step;
    int n_tries;
    bool both_signs;
} ae_fit_codes;

/* The table of IQ4_NL and IQ4_XS, and the index of one of its values. */
extern const ae_fit_codes ae_fit_iq4;
int ae_fit_iq4_index(int8_t value);

/* The value nearest to v. */
int ae_fit_nearest(const ae_fit_codes *codes, float v);

/* x[e] / scale to nearest values; scale 0 gives the value nearest to 0. */
void ae_fit_round(const ae_fit_codes *codes, const float *x, int n, float scale, int8_t *code);

/* x[e] ~ scale * code[e], errors weighted by w[n]: returns the scale, writes code[n]. */
float ae_fit_scale(const ae_fit_codes *codes, const float *x, const float *w, int n, int8_t *code);

/* (x[e] + min) / scale to the nearest of 0 .. n_steps. */
void ae_fit_range_round(const float *x, int n, int n_steps, float scale, float min, int8_t *code);

/* x[e] ~ scale * code[e] - min with scale >= 0, codes 0 .. n_steps, and min >= 0 unless any_min. */
void ae_fit_range(const float *x, const float *w, int n, int n_steps, bool any_min, float *scale, float *min);

#endif

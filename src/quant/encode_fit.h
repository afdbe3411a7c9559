/* encode_fit.h - internal to src/quant: scales and codes that make the squared error small. */
#ifndef AE_QUANT_ENCODE_FIT_H
#define AE_QUANT_ENCODE_FIT_H

#include "quant/types.h"

/* The values that a code may stand for, and where to look for scales: the block's extreme is laid on
 * first, first + step, ... (n_tries of them) in units of a code, and on their negatives if both_signs. */
typedef struct ae_fit_codes {
    const int8_t *values; /* [n_values] ascending, or NULL: all integers in [lo, hi] */
    int n_values, lo, hi;
    float first, step;
    int n_tries;
    bool both_signs;
} ae_fit_codes;

/* The value nearest to v. */
int ae_fit_nearest(const ae_fit_codes *codes, float v);

/* x[e] / scale to nearest values; scale 0 gives the value nearest to 0. */
void ae_fit_round(const ae_fit_codes *codes, const float *x, int n, float scale, int8_t *code);

/* x[e] ~ scale * code[e]: returns the scale, writes code[n]. */
float ae_fit_scale(const ae_fit_codes *codes, const float *x, int n, int8_t *code);

/* (x[e] + min) / scale to the nearest of 0 .. n_steps. */
void ae_fit_range_round(const float *x, int n, int n_steps, float scale, float min, int8_t *code);

/* x[e] ~ scale * code[e] - min with scale, min >= 0 and codes 0 .. n_steps. */
void ae_fit_range(const float *x, int n, int n_steps, float *scale, float *min);

#endif

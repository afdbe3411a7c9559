/* double.h - the arithmetic of ae_log, ae_exp and ae_sincos (fmath.h), one text for the host and for kernels on a device.
 *
 * Only IEEE operations on doubles, without contraction, in the order in which they stand here: the same bits everywhere.
 * Method: argument reduction and polynomials, checked against long double in unit/fmath.
 */
#ifndef AE_BASE_MATH_DOUBLE_H
#define AE_BASE_MATH_DOUBLE_H

#include <stdint.h>
#include <string.h>

#include "base/math/hd.h"

AE_HD static inline double ae_log_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, 8);
    int e = (int)(bits >> 52) - 1022;
    bits = (bits & 0x000FFFFFFFFFFFFFull) | 0x3FE0000000000000ull; /* mantissa in [0.5, 1) */
    double m;
    memcpy(&m, &bits, 8);
    if (m < 0.70710678118654752440) {
        m += m;
        e--;
    }
    /* log m = 2 atanh(s), |s| < 0.172: s^25 is below 1e-19 */
    double s = (m - 1.0) / (m + 1.0), s2 = s * s, sum = 0;
    for (int k = 23; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
    return e * 0.693147180559945309417 + 2.0 * s * sum;
}

/* ln 2 in two parts; the first has trailing zeros, so n times it is exact for |n| < 2^20. */
#define AE_LN2_HI 0x1.62e42feep-1
#define AE_LN2_LO 0x1.a39ef35793c76p-33

AE_HD static inline double ae_exp_of(double x)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer */
    x = x > -700.0 ? x : -700.0;
    x = x < 700.0 ? x : 700.0;
    const double t = x * 1.44269504088896340736 + magic, n = t - magic;
    const double r = (x - n * AE_LN2_HI) - n * AE_LN2_LO;
    /* |r| < 0.347: r^14 / 14! is below 1e-17 */
    double sum = 1.0 / 6227020800.0, factorial = 6227020800.0; /* 13! */
    for (int k = 13; k > 0; k--) {
        factorial /= k;
        sum = sum * r + 1.0 / factorial;
    }
    uint64_t bits = (uint64_t)((int64_t)n + 1023) << 52; /* 2^n */
    double scale;
    memcpy(&scale, &bits, 8);
    return sum * scale;
}

/* pi/2 in three parts; the first two have trailing zeros, so k times them is exact for |k| < 2^24. */
#define AE_PIO2_1 0x1.921fb5p+0
#define AE_PIO2_2 0x1.110b46p-26
#define AE_PIO2_3 6.123233995736766e-17

AE_HD static inline void ae_sincos_of(double x, double *sin_out, double *cos_out)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer */
    double t = x * 0.63661977236758134308 + magic;
    uint64_t quadrant;
    memcpy(&quadrant, &t, 8);
    double k = t - magic;
    double r = ((x - k * AE_PIO2_1) - k * AE_PIO2_2) - k * AE_PIO2_3;
    double z = r * r;
    double s = r + r * z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 + z * (-1.0 / 39916800 +
               z * (1.0 / 6227020800.0))))));
    double c = 1.0 + z * (-0.5 + z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800 +
               z * (1.0 / 479001600.0 + z * (-1.0 / 87178291200.0)))))));
    switch (quadrant & 3) {
    case 0: *sin_out = s, *cos_out = c; break;
    case 1: *sin_out = c, *cos_out = -s; break;
    case 2: *sin_out = -s, *cos_out = -c; break;
    default: *sin_out = -c, *cos_out = s; break;
    }
}

#endif

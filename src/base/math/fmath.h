/* fmath.h - transcendental functions that give the same bits on every machine and ISA.
 *
 * libm may choose an implementation by CPU, and compilers may contract expressions; these functions use only basic IEEE
 * operations and fmaf, in a fixed order. The SIMD kernels repeat ae_expf operation by operation and are checked against it bit
 * for bit.
 */
#ifndef AE_BASE_MATH_FMATH_H
#define AE_BASE_MATH_FMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/math/hd.h"

/* Constants of ae_expf, shared with the SIMD versions. */
#define AE_EXP_LO (-87.0f)
#define AE_EXP_HI 88.0f
#define AE_EXP_LOG2E 1.44269504088896341f
#define AE_EXP_MAGIC 12582912.0f /* 1.5 * 2^23: adding it rounds to an integer */
#define AE_EXP_LN2_HI 0.693359375f
#define AE_EXP_LN2_LO (-2.12194440e-4f)
#define AE_EXP_C0 1.9875691500e-4f
#define AE_EXP_C1 1.3981999507e-3f
#define AE_EXP_C2 8.3334519073e-3f
#define AE_EXP_C3 4.1665795894e-2f
#define AE_EXP_C4 1.6666665459e-1f
#define AE_EXP_C5 5.0000001201e-1f

/* Returns e^x within 2 ulp for x in [-87, 88]; arguments outside are clamped to it (NaN becomes 88). */
AE_HD static inline float ae_expf(float x)
{
    x = x < AE_EXP_HI ? x : AE_EXP_HI;
    x = x > AE_EXP_LO ? x : AE_EXP_LO;
    float t = fmaf(x, AE_EXP_LOG2E, AE_EXP_MAGIC);
    float n = t - AE_EXP_MAGIC;
    float r = fmaf(n, -AE_EXP_LN2_HI, x);
    r = fmaf(n, -AE_EXP_LN2_LO, r);
    float p = fmaf(AE_EXP_C0, r, AE_EXP_C1);
    p = fmaf(p, r, AE_EXP_C2);
    p = fmaf(p, r, AE_EXP_C3);
    p = fmaf(p, r, AE_EXP_C4);
    p = fmaf(p, r, AE_EXP_C5);
    float y = fmaf(p, r * r, r) + 1.0f;
    uint32_t bits;
    memcpy(&bits, &t, 4);
    bits = (bits - 0x4B400000u + 127u) << 23; /* 2^n */
    float scale;
    memcpy(&scale, &bits, 4);
    return y * scale;
}

/* Returns x / (1 + e^-x). */
AE_HD static inline float ae_siluf(float x)
{
    return x / (1.0f + ae_expf(-x));
}

/* log(1 + e^x) within 4 ulp, by log(1 + u) = 2 artanh(z), z = u / (2 + u), u = e^-|x|; shared with the SIMD versions. */
#define AE_ARTANH_1 0.333333333f
#define AE_ARTANH_2 0.2f
#define AE_ARTANH_3 0.142857143f
#define AE_ARTANH_4 0.111111111f
#define AE_ARTANH_5 0.0909090909f
#define AE_ARTANH_6 0.0769230769f
#define AE_ARTANH_7 0.0666666667f
AE_HD static inline float ae_softplusf(float x)
{
    const float u = ae_expf(-fabsf(x)), z = u / (2.0f + u), zz = z * z;
    float p = fmaf(AE_ARTANH_7, zz, AE_ARTANH_6);
    p = fmaf(p, zz, AE_ARTANH_5);
    p = fmaf(p, zz, AE_ARTANH_4);
    p = fmaf(p, zz, AE_ARTANH_3);
    p = fmaf(p, zz, AE_ARTANH_2);
    p = fmaf(p, zz, AE_ARTANH_1);
    const float twice = z + z;
    return (x > 0.0f ? x : 0.0f) + fmaf(p * zz, twice, twice);
}

/* Returns the natural logarithm of a positive, normal x; error below 1e-15 relative to max(1, |log x|). */
double ae_log(double x);

/* Returns e^x for x in [-700, 700], relative error below 1e-15; arguments outside are clamped to it (NaN becomes -700). */
double ae_exp(double x);

/* Returns x^y for a positive, normal x; relative error below 1e-15 * (1 + |y log x|); clamped like ae_exp. */
double ae_pow(double x, double y);

/* Computes sine and cosine for |x| up to 1e7; absolute error below 1e-12. */
void ae_sincos(double x, double *sin_out, double *cos_out);

/* Reduces 16 partial sums in a fixed order: adds the upper half to the lower one until 1 is left (8, 4, 2, 1). */
AE_HD static inline float ae_sum16(const float a[16])
{
    float b[8], c[4];
    for (int i = 0; i < 8; i++) b[i] = a[i] + a[i + 8];
    for (int i = 0; i < 4; i++) c[i] = b[i] + b[i + 4];
    return (c[0] + c[2]) + (c[1] + c[3]);
}

/* Reduces 64 partial sums in the same way: 32, 16, then ae_sum16. */
AE_HD static inline float ae_sum64(const float a[64])
{
    float b[32], c[16];
    for (int i = 0; i < 32; i++) b[i] = a[i] + a[i + 32];
    for (int i = 0; i < 16; i++) c[i] = b[i] + b[i + 16];
    return ae_sum16(c);
}

#endif

/* fmath.c - logarithm, exponential, power, sine and cosine in double (fmath.h); their arithmetic is in double.h. The
 * exponential in float is inline in fmath.h. Owns nothing. */
#include "base/math/fmath.h"

#include "base/math/double.h"

double ae_log(double x)
{
    return ae_log_of(x);
}

double ae_exp(double x)
{
    return ae_exp_of(x);
}

double ae_pow(double x, double y)
{
    return ae_exp(y * ae_log(x));
}

void ae_sincos(double x, double *sin_out, double *cos_out)
{
    ae_sincos_of(x, sin_out, cos_out);
}

/* rng.h - counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011).
 *
 * A value is a pure function of key and counter, so a draw does not depend on which draws came
 * before it: that is what makes sampling independent of speculation (docs/same-bytes.md).
 */
#ifndef AE_BASE_MATH_RNG_H
#define AE_BASE_MATH_RNG_H

#include <stdint.h>

/* Writes 128 random bits for a 64-bit key and a 128-bit counter (two halves) to out[4]. */
void ae_philox(uint64_t key, uint64_t counter_lo, uint64_t counter_hi, uint32_t out[4]);

/* Returns a uniform number in (0, 1), never 0 or 1: (bits + 1/2) / 2^32. Both the result and 1 minus it are exact. */
static inline double ae_uniform_open(uint32_t bits)
{
    return ((double)bits + 0.5) * 0x1p-32;
}

#endif

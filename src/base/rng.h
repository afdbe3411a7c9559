/* rng.h - counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011).
 *
 * A value is a pure function of key and counter, so a draw does not depend on which draws came
 * before it: that is what makes sampling independent of speculation (DESIGN section 2).
 */
#ifndef AE_BASE_RNG_H
#define AE_BASE_RNG_H

#include <stdint.h>

/* out[4]: 128 random bits for a 64-bit key and a 128-bit counter (two halves). */
void ae_philox(uint64_t key, uint64_t counter_lo, uint64_t counter_hi, uint32_t out[4]);

/* Uniform in (0, 1), never 0 nor 1: 24 bits of `bits`, centred. Exact in f32. */
static inline float ae_uniform_open(uint32_t bits)
{
    return ((float)(bits >> 9) + 0.5f) * (1.0f / 8388608.0f);
}

#endif

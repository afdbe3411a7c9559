/* logprobs.h - log-probabilities of a row of logits: the target's own softmax, before any sampler, at temperature 1.
 *
 * A pure function of the row, so speculation cannot change it. NaN counts as -infinity; a row without candidates gives
 * -infinity for everything.
 */
#ifndef AE_SAMPLE_LOGPROBS_H
#define AE_SAMPLE_LOGPROBS_H

#include "base/err.h"

/* Returns the token's log-probability; the n <= AERIE_MAX_LOGPROBS likeliest tokens go to top [*n_top], best first, equal ones
 * by ascending id. */
float ae_logprobs(const float *logits, uint32_t n_vocab, int32_t token, uint32_t n, aerie_logprob *top, uint32_t *n_top);

#endif

/* logprobs.c - the softmax of a row and its likeliest tokens (logprobs.h). Owns nothing. */
#include "sample/logprobs.h"

#include "sample/sampler_int.h"

float ae_logprobs(const float *logits, uint32_t n_vocab, int32_t token, uint32_t n, aerie_logprob *top, uint32_t *n_top)
{
    ae_candidate best[AERIE_MAX_LOGPROBS];
    AE_ASSERT(n <= AERIE_MAX_LOGPROBS && token >= 0 && (uint32_t)token < n_vocab);
    const float largest = ae_clean(logits[ae_argmax(logits, n_vocab)]);
    *n_top = 0;
    if (largest == -INFINITY) return -INFINITY;
    const double log_total = ae_log_total(ae_total_weight(logits, n_vocab, largest, 1.0));
    *n_top = ae_select_top(logits, n_vocab, n, best);
    for (uint32_t i = 0; i < *n_top; i++)
        top[i] = (aerie_logprob){best[i].id, (float)((double)best[i].logit - (double)largest - log_total)};
    return (float)((double)ae_clean(logits[token]) - (double)largest - log_total);
}

/* sampler.h - from logits to a token: a chain of filters, then one coupled draw.
 *
 * The chain turns a row of logits into candidates with weights; the token is the argmax of
 * log weight + Gumbel(seed, position, token id), ties to the lowest id; at temperature 0 there is no
 * noise. The draw is a pure function of the logits, the tokens before it, the parameters, the seed and
 * the position: nothing here remembers an earlier draw. That is why speculation cannot change it,
 * and why a drafter that uses the same noise is accepted more often (DESIGN section 2).
 *
 * Order of the chain (llama.cpp's default): penalties, top-k, top-p, min-p, temperature.
 * Owns: scratch for candidates. Arithmetic is scalar C with our own exp and log: the same everywhere.
 */
#ifndef AE_SAMPLE_SAMPLER_H
#define AE_SAMPLE_SAMPLER_H

#include "base/err.h"

typedef struct ae_sampling {
    float temperature;      /* <= 0: greedy */
    int32_t top_k;          /* <= 0: off */
    float top_p;            /* >= 1: off */
    float min_p;            /* <= 0: off */
    float repeat_penalty;   /* 1: off; > 1 divides positive and multiplies negative logits of seen tokens */
    float presence_penalty; /* 0: off; subtracted once for a seen token */
    float frequency_penalty; /* 0: off; subtracted per occurrence */
    int32_t penalty_last_n; /* how many of the newest tokens count as seen; 0: off, -1: all */
    uint64_t seed;
} ae_sampling;

ae_sampling ae_sampling_default(void);
/* ARGUMENT with the field and what would work. */
aerie_status ae_sampling_check(const ae_sampling *sampling, aerie_error *error);

typedef struct ae_sampler ae_sampler;

aerie_status ae_sampler_create(ae_sampler **out, const ae_sampling *sampling, uint32_t n_vocab, aerie_error *error);
void ae_sampler_free(ae_sampler *sampler);
const ae_sampling *ae_sampler_params(const ae_sampler *sampler);

/* The token at position n_tokens, given logits [n_vocab] and the tokens [n_tokens] before it. */
int32_t ae_sampler_draw(ae_sampler *sampler, const float *logits, const int32_t *tokens, size_t n_tokens);

/* For drafters: scores that rank tokens as the draw would, from a drafter's own logits: the k best, best first, their ids
 * [k] and the belief [k] that the draw takes them. map: target ids of the logits, or NULL. Uses the same noise and only the
 * temperature of the chain. The belief is a softmax: without noise of the logits; with noise of the scores, whose gaps
 * say how far the target must differ for another token to win. Returns how many (<= k). */
uint32_t ae_sampler_propose(ae_sampler *sampler, const float *logits, uint32_t n_logits, const int32_t *map, size_t position,
                            uint32_t k, int32_t *ids, float *p);

/* The noise itself: a standard Gumbel value. */
double ae_gumbel(uint64_t seed, uint64_t position, uint32_t token);
/* No value of ae_gumbel is larger. */
#define AE_GUMBEL_MAX 16.7

#endif

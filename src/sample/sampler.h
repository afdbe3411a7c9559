/* sampler.h - from logits to a token: a chain of steps, then one coupled draw.
 *
 * The chain turns a row of logits into candidates with weights; the token is the argmax of
 * log weight + Gumbel(seed, position, token id), ties to the lowest id; at temperature 0 there is no
 * noise. The draw is a pure function of the logits, the tokens before it, the parameters, the seed, the
 * position and, with mirostat, of mu: nothing else is remembered. That is why speculation cannot change it,
 * and why a drafter that uses the same noise is accepted more often (docs/speculation-internals.md). XTC's coin is noise
 * of seed and position too.
 *
 * mu is a function of the emitted tokens and the logits they were drawn from: a draw leaves what mu would become if its token
 * were emitted, and ae_sampler_accept, called for emitted tokens only, makes it so. A draw whose token is not emitted
 * leaves no trace.
 *
 * A token whose logit is NaN or -infinity is not a candidate; +infinity counts as the largest float. When no candidate is
 * left, the token is the lowest id of the largest logit.
 *
 * Steps and their order are llama.cpp's (docs/sampling.md). Arithmetic is scalar C with our own exp and log: the same
 * everywhere. Owns: copies of what the parameters point to, scratch for candidates. Borrows the vocabulary.
 */
#ifndef AE_SAMPLE_SAMPLER_H
#define AE_SAMPLE_SAMPLER_H

#include "draw/draw.h"

ae_sampling ae_sampling_default(void);
/* ARGUMENT, with a message that names the field and what would work. */
aerie_status ae_sampling_check(const ae_sampling *sampling, uint32_t n_vocab, aerie_error *error);

typedef struct ae_sampler ae_sampler;
struct ae_vocab;

/* Creates a sampler for sequences of at most n_ctx tokens. vocab gives DRY the texts of tokens; NULL: DRY has no breakers. */
aerie_status ae_sampler_create(ae_sampler **out, const ae_sampling *sampling, const struct ae_vocab *vocab, uint32_t n_vocab,
                               size_t n_ctx, aerie_error *error);
void ae_sampler_free(ae_sampler *sampler);
/* Returns the bytes of scratch of a sampler with the usual chains, for planning memory. */
size_t ae_sampler_plan_bytes(uint32_t n_vocab);
const ae_sampling *ae_sampler_params(const ae_sampler *sampler);

/* Return the part of the draw that is plain numbers, for devices and proposals (draw.h), valid as long as the sampler; and its
 * scratch. */
const ae_draw *ae_sampler_plain(const ae_sampler *sampler);
ae_draw_room *ae_sampler_room(ae_sampler *sampler);
/* As ae_draw_is_best_of_any. */
bool ae_sampler_is_best_of_any(const ae_sampler *sampler);
/* As ae_draw_is_from_row. If true, ae_sampler_draw reads no earlier tokens (they may be NULL), and ae_sampler_accept has
 * nothing to remember. */
bool ae_sampler_draws_from_row(const ae_sampler *sampler);

/* Returns the token at position n_tokens, given logits [n_vocab] and the tokens [n_tokens] before it. */
int32_t ae_sampler_draw(ae_sampler *sampler, const float *logits, const int32_t *tokens, size_t n_tokens);
/* Called when the token drawn at this position is emitted. */
void ae_sampler_accept(ae_sampler *sampler, int32_t token, size_t position);
/* Returns mirostat's mu, which is all that a sampler remembers: for saved sequences. */
double ae_sampler_mu(const ae_sampler *sampler);
void ae_sampler_set_mu(ae_sampler *sampler, double mu);

/* Returns the candidates that the draw chooses from: *n candidates in no particular order, and in *temperature the divisor of
 * their logits that gives log weights. Lent until the next call. */
const ae_candidate *ae_sampler_candidates(ae_sampler *sampler, const float *logits, const int32_t *tokens, size_t n_tokens,
                                          uint32_t *n, double *temperature);

/* For drafters: as ae_draw_propose. */
uint32_t ae_sampler_propose(const ae_sampler *sampler, const float *logits, uint32_t n_logits, const int32_t *map,
                            size_t position, uint32_t k, int32_t *ids, float *p);

#endif

/* draw.h - from a row of logits to a token: a chain of filters, then one coupled draw, as plain numbers.
 *
 * This is the part of sampling that needs nothing but the row and its position. A backend does it where the logits lie, so it
 * sees neither a sampler nor text: ae_draw is a struct of numbers, which may be copied, and the room is scratch.
 * What looks at earlier tokens, or remembers, is sample/sampler.h.
 *
 * The chain turns the row into candidates with weights; the token is the argmax of
 * log weight + Gumbel(seed, position, token id), ties to the lowest id; at temperature 0 there is no noise. A token whose
 * logit is NaN or -infinity is not a candidate; +infinity counts as the largest float. When no candidate is left, the
 * token is the lowest id of the largest logit.
 *
 * Steps and their order are llama.cpp's (docs/sampling.md). Arithmetic is scalar C with our own exp and log: the same
 * everywhere. Owns nothing but rooms.
 */
#ifndef AE_DRAW_DRAW_H
#define AE_DRAW_DRAW_H

#include "base/err.h"

typedef aerie_sampling ae_sampling;

/* How tokens are drawn from rows: all of it numbers, but for the list of biases. */
typedef struct ae_draw {
    ae_sampling params; /* its list logit_bias (host) is lent by whoever made this; texts are not read */
    uint32_t n_vocab;   /* logits of a row */
    uint32_t n_steps;
    aerie_sampler steps[AERIE_MAX_SAMPLERS]; /* [n_steps] those that have an effect */
    double draft_temperature;                /* of the whole chain; <= 0: greedy */
} ae_draw;

/* (host) scratch of one draw at a time. */
typedef struct ae_draw_room ae_draw_room;

typedef struct ae_candidate {
    int32_t id;
    float logit;
} ae_candidate;

/* Copies params, whose lists stay the caller's, and finds the steps. */
void ae_draw_plan(ae_draw *out, const ae_sampling *params, uint32_t n_vocab);

/* Whether the draw is the largest of logits that were changed token by token at most (penalties, DRY, biases), ties to the
 * lowest id. Then the token drawn from all is also the one drawn from any subset that holds it: taking other logits away
 * changes neither its own nor the order of the rest. False for chains with noise, and for those with a filter or an
 * entropy before the greedy step, whose outcome depends on which candidates there are. */
bool ae_draw_is_best_of_any(const ae_draw *draw);

/* Whether the draw needs nothing but its row of logits and its position: no penalties, no DRY, no mirostat. The functions
 * below are for such draws. */
bool ae_draw_is_from_row(const ae_draw *draw);

/* How many of a row's best candidates the draw looks at, if these are all that it needs of the row: 1 of greedy chains, top-k's
 * number where that is the first step. 0: it needs the whole row, or tokens before it. */
uint32_t ae_draw_reach(const ae_draw *draw);

/* The token at this position, given logits [n_vocab]. */
int32_t ae_draw_token(const ae_draw *draw, ae_draw_room *room, const float *logits, size_t position);

/* The token that ae_draw_token gives for a row without infinite logits whose n best candidates are best [n], best first
 * (equals by ascending id). n is at least 1, and ae_draw_reach or the number of candidates that there are. */
int32_t ae_draw_best(const ae_draw *draw, ae_draw_room *room, const ae_candidate *best, uint32_t n, size_t position);

/* ---- Proposals: any draw, also those that look at earlier tokens ---- */

/* Scores that rank tokens as the draw would, from a drafter's own logits: the k best, best first, their ids [k] and the belief
 * [k] that the draw takes them. map: target ids of the logits, or NULL. Uses the same noise, and of the chain the
 * temperature, top-k, top-p and min-p. The belief is a softmax: without noise of the logits; with noise of the scores,
 * whose gaps say how far the target must differ for another token to win. Returns how many (<= k). */
uint32_t ae_draw_propose(const ae_draw *draw, const float *logits, uint32_t n_logits, const int32_t *map, size_t position,
                         uint32_t k, int32_t *ids, float *p);

/* The same from the row's best candidates: how many it looks at, at most AE_PROPOSE_REACH, and whether it needs the row's whole
 * weight, too (ae_total_weight for the best's logit and t 1). */
#define AE_PROPOSE_REACH 64
uint32_t ae_draw_propose_reach(const ae_draw *draw, uint32_t k, bool *needs_total);
uint32_t ae_draw_propose_best(const ae_draw *draw, const ae_candidate *best, uint32_t n, uint64_t total, const int32_t *map,
                              size_t position, uint32_t k, int32_t *ids, float *p);

/* The noise itself: a standard Gumbel value. */
double ae_gumbel(uint64_t seed, uint64_t position, uint32_t token);
/* No value of ae_gumbel is larger: -log(-log(1 - 2^-33)). */
#define AE_GUMBEL_MAX 22.9

#endif

/* draw.h - from a row of logits to a token: a chain of filters, then one coupled draw, as plain numbers.
 *
 * This is the part of sampling that needs nothing but the row and its position. A backend does it where the logits lie, so it
 * sees neither a sampler nor text: ae_draw is a struct of numbers, which may be copied, and the room is scratch.
 * Steps that look at earlier tokens or have a memory are in sample/sampler.h.
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

/* How tokens are drawn from rows: plain numbers, except for the list of biases. */
typedef struct ae_draw {
    ae_sampling params; /* its list logit_bias (host) is lent by the creator; texts are not used */
    uint32_t n_vocab;   /* logits in a row */
    uint32_t n_steps;
    aerie_sampler steps[AERIE_MAX_SAMPLERS]; /* [n_steps] the steps that have an effect */
    double draft_temperature;                /* temperature of the whole chain; <= 0: greedy */
} ae_draw;

/* (host) Scratch for one draw at a time. */
typedef struct ae_draw_room ae_draw_room;

typedef struct ae_candidate {
    int32_t id;
    float logit;
} ae_candidate;

/* Copies params, whose lists remain the caller's, and finds the steps that have an effect. */
void ae_draw_plan(ae_draw *out, const ae_sampling *params, uint32_t n_vocab);

/* Returns whether the draw is the largest logit after changes to single tokens (penalties, DRY, biases), ties to the lowest id.
 * Then the token drawn from all tokens is also drawn from any subset that contains it: removing other logits changes neither
 * its own logit nor the order of the rest. False for chains with noise, and for those with a filter or an entropy before the
 * greedy step, whose result depends on the set of candidates. */
bool ae_draw_is_best_of_any(const ae_draw *draw);

/* Returns whether the draw needs nothing but its row of logits and its position: no penalties, no DRY, no mirostat. The
 * functions below are for such draws. */
bool ae_draw_is_from_row(const ae_draw *draw);

/* Returns how many of a row's best candidates the draw looks at, if it needs nothing else of the row: 1 for greedy chains, k if
 * the first step is top-k. 0: it needs the whole row, or earlier tokens. */
uint32_t ae_draw_reach(const ae_draw *draw);

/* Returns the token at this position, given logits [n_vocab]. */
int32_t ae_draw_token(const ae_draw *draw, ae_draw_room *room, const float *logits, size_t position);

/* Returns the token that ae_draw_token gives for a row without infinite logits whose n best candidates are best [n], best first
 * (equal ones by ascending id). n is at least 1, and is ae_draw_reach (unless the row has fewer candidates) or the result of
 * ae_draw_takes (best.h). */
int32_t ae_draw_best(const ae_draw *draw, ae_draw_room *room, const ae_candidate *best, uint32_t n, size_t position);

/* Measures of how sure a draw was: the probability of its token; the difference between the probabilities of the two likeliest
 * tokens; or the negative entropy. It is computed over the remaining candidates at their temperature, or, for greedy draws,
 * over all tokens at temperature 1. */
typedef enum ae_sureness {
    AE_SURENESS_PROBABILITY,
    AE_SURENESS_MARGIN,
    AE_SURENESS_ENTROPY,
} ae_sureness;
/* Returns the sureness of the newest draw in this room, which drew `token` from this row. */
double ae_draw_sureness(const ae_draw *draw, ae_draw_room *room, const float *logits, int32_t token, ae_sureness kind);

/* ---- Proposals: for any draw, also one that looks at earlier tokens ---- */

/* Ranks tokens as the draw would, from a drafter's own logits: writes the ids [k] of the k best, best first, and the estimated
 * probability [k] that the draw takes each. map: target ids of the logits, or NULL. Uses the same noise, and from the chain the
 * temperature, top-k, top-p and min-p. The estimate is a softmax: without noise, of the logits; with noise, of the scores,
 * whose gaps show by how much the target must differ for another token to win. Returns how many it has ranked (<= k). */
uint32_t ae_draw_propose(const ae_draw *draw, const float *logits, uint32_t n_logits, const int32_t *map, size_t position,
                         uint32_t k, int32_t *ids, float *p);

/* The same from a row's best candidates. The first function returns how many of these the other one reads, at most
 * AE_PROPOSE_REACH, and whether it also needs the row's total weight (ae_total_weight for the best logit and t 1). */
#define AE_PROPOSE_REACH 64
uint32_t ae_draw_propose_reach(const ae_draw *draw, uint32_t k, bool *needs_total);
uint32_t ae_draw_propose_best(const ae_draw *draw, const ae_candidate *best, uint32_t n, uint64_t total, const int32_t *map,
                              size_t position, uint32_t k, int32_t *ids, float *p);

/* Returns the noise itself: a standard Gumbel value. */
double ae_gumbel(uint64_t seed, uint64_t position, uint32_t token);
/* No value of ae_gumbel is larger: -log(-log(1 - 2^-33)). */
#define AE_GUMBEL_MAX 22.9

#endif

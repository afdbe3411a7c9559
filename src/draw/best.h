/* best.h - draws from a row's best candidates, where the whole row is elsewhere: how many they look at (draw.h).
 *
 * Owns nothing. */
#ifndef AE_DRAW_BEST_H
#define AE_DRAW_BEST_H

#include "draw/draw.h"

#define AE_BEST_MOST 64

/* Writes the k best candidates of logits [n] to out [k], best first. Returns their number. */
uint32_t ae_select_top(const float *logits, uint32_t n, uint32_t k, ae_candidate *out);
/* Returns how many of a row's best candidates should be ready for the draw, at most AE_BEST_MOST: ae_draw_reach, or
 * AE_BEST_MOST if the first step is min-p, whose number of candidates depends on the row. 0: the draw needs the whole row, or
 * more candidates. */
uint32_t ae_draw_wants(const ae_draw *draw);
/* Returns how many of the row's n best candidates [n], best first, ae_draw_best needs. all: the row has no other candidates. 0:
 * more than these, or the row has infinite logits. */
uint32_t ae_draw_takes(const ae_draw *draw, const ae_candidate *best, uint32_t n, bool all);

/* ---- Draws of noise alone: the argmax of log weight + noise over all candidates of a row ----
 *
 * A part of the row, without the others, knows its log weights up to one number: the row's largest logit, from which all are
 * counted. In real numbers the best of a part does not depend on it. In double precision it does, by rounding, if two scores
 * are very near each other; so a part names all tokens within a margin of its best one. The best of the row is among those that
 * the parts name, and whoever also has the largest logit draws it from them (ae_draw_best), with the row's own arithmetic. */

#define AE_NOISY_MOST 2  /* tokens that a part names; a second one within the margin is very rare */
#define AE_NOISY_MORE -2 /* id: more than these are within the margin */

typedef struct ae_noise {
    uint64_t seed;
    float temperature; /* 0: there is no such draw */
} ae_noise;

/* Returns whether the draw is of that kind; *noise: its numbers. */
bool ae_draw_is_noise(const ae_draw *draw, ae_noise *noise);
/* Names tokens of logits [n], which are those of ids from `first` on, in out [AE_NOISY_MOST]; ids -1 fill the rest. With
 * AE_NOISY_MORE in the first, the row itself is needed. */
void ae_draw_noisy(const ae_noise *noise, uint64_t position, const float *logits, uint32_t n, uint32_t first,
                   ae_candidate *out);

#endif

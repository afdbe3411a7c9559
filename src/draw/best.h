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

#endif

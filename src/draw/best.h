/* best.h - draws from a row's best candidates, where the whole row is elsewhere: how many they look at (draw.h).
 *
 * Owns nothing. */
#ifndef AE_DRAW_BEST_H
#define AE_DRAW_BEST_H

#include "draw/draw.h"

#define AE_BEST_MOST 64

/* The k best candidates of logits [n], best first, to out [k]. Returns how many there are. */
uint32_t ae_select_top(const float *logits, uint32_t n, uint32_t k, ae_candidate *out);
/* Returns how many of a row's best candidates to have ready for the draw, at most AE_BEST_MOST: ae_draw_reach, or all of these
 * if the first step is min-p, of which the row says how many it leaves. 0: the draw needs the whole row, or more candidates. */
uint32_t ae_draw_wants(const ae_draw *draw);
/* Returns how many of the row's n best candidates [n], best first, ae_draw_best is to be given. all: the row has no others. 0:
 * more than these, or the row has infinite logits. */
uint32_t ae_draw_takes(const ae_draw *draw, const ae_candidate *best, uint32_t n, bool all);

#endif

/* timing.h - what something takes by its size: measured seconds, and what they say about sizes that were not measured.
 *
 * A curve keeps, for every size (rows of a pass, sequences of a draft), the last few times that were measured. Sizes up to 32
 * stand alone; larger ones share bins, eight to a doubling, whose borders are multiples of a tile's rows. Any size can be
 * asked for and any can be recorded.
 *
 * Other programs take the cores now and then, which can only add to a time; so a size's time is an order statistic of its last
 * few, the lower quartile, which a quarter of slow passes cannot move. What was seen less than three times is only half
 * believed, and less with every round: one slow pass does not rule a size out for good, nor does it go unheard. What lies
 * between two measured sizes is on the line between them; what is beyond them goes on at the last slope. No size costs more
 * than a larger one.
 *
 * Owns: nothing but its numbers. Does not own: decisions (controller.h).
 */
#ifndef AE_SPECULATE_CONTROL_TIMING_H
#define AE_SPECULATE_CONTROL_TIMING_H

#include <stdbool.h>
#include <stdint.h>

#define AE_TIME_SAMPLES 7
#define AE_TIME_EXACT 32u  /* sizes up to here have a bin each */
#define AE_TIME_BINS (AE_TIME_EXACT + 8 * 13) /* up to 262,144; the last one takes what is larger */

/* The last times of one size. */
typedef struct ae_times {
    float seconds[AE_TIME_SAMPLES]; /* a ring */
    float size[AE_TIME_SAMPLES];    /* that each was measured at */
    float typical, typical_size;    /* their lower quartile, and the mean size */
    uint32_t n_seen, last;          /* last: the clock at the newest one */
} ae_times;

typedef struct ae_curve {
    ae_times bin[AE_TIME_BINS];
} ae_curve;

void ae_curve_add(ae_curve *curve, uint32_t size, double seconds, uint32_t clock);
/* Forgets sizes that were last measured after a time of the clock, except one. */
void ae_curve_forget(ae_curve *curve, uint32_t after, uint32_t except);
/* The bin of a size. */
const ae_times *ae_curve_times(const ae_curve *curve, uint32_t size);
/* Seen often and lately enough that nothing else is asked. */
bool ae_times_trusted(const ae_times *times, uint32_t clock);

/* A curve as it looks now: straight between points. */
typedef struct ae_line {
    uint32_t n;
    float size[AE_TIME_BINS], seconds[AE_TIME_BINS];
} ae_line;

/* n = 0 when nothing was measured lately. doubt_first: the smallest size is doubted as others are, though there is nothing to
 * compare it with. */
void ae_curve_line(const ae_curve *curve, uint32_t clock, bool doubt_first, ae_line *line);
/* Beyond its last size the line goes on as the other does, in proportion. */
void ae_line_extend(ae_line *line, const ae_line *other);
/* Well beyond its last size the line goes on at the other's times. */
void ae_line_append(ae_line *line, const ae_line *other);
/* Expected seconds; 0 when the line has no points. */
double ae_line_at(const ae_line *line, double size);

#endif

/* timing.h - times by size: measured seconds, and estimates for sizes that were not measured.
 *
 * A curve keeps the last few measured times for every size (rows of a pass, sequences of a draft). Sizes up to 32 have a bin
 * each; larger ones share bins, eight per doubling, whose borders are multiples of a tile's rows. Any size can be recorded and
 * asked for.
 *
 * Other programs take the cores now and then, which can only add to a time. So a size's time is the lower quartile of its last
 * few, which a quarter of slow passes cannot move. A time that was measured less than three times has half the weight, and
 * loses weight with every round: one slow pass neither rules a size out for good nor goes unnoticed. Between two measured sizes
 * the estimate is interpolated; beyond them it continues at the last slope. No size costs more than a larger one.
 *
 * Owns nothing but its numbers. Does not own decisions (controller.h).
 */
#ifndef AE_SPECULATE_CONTROL_TIMING_H
#define AE_SPECULATE_CONTROL_TIMING_H

#include <stdbool.h>
#include <stdint.h>

#define AE_TIME_SAMPLES 7
#define AE_TIME_EXACT 32u  /* sizes up to here have a bin each */
#define AE_TIME_BINS (AE_TIME_EXACT + 8 * 13) /* up to size 262,144; the last bin takes all larger ones */

/* The last measured times of a bin. */
typedef struct ae_times {
    float seconds[AE_TIME_SAMPLES]; /* a ring */
    float size[AE_TIME_SAMPLES];    /* the sizes of these measurements */
    float typical, typical_size;    /* lower quartile of the times; mean of the sizes */
    uint32_t n_seen, last;          /* measurements; the clock at the newest one */
} ae_times;

typedef struct ae_curve {
    ae_times bin[AE_TIME_BINS];
} ae_curve;

void ae_curve_add(ae_curve *curve, uint32_t size, double seconds, uint32_t clock);
/* Forgets bins that were last measured after `after` on the clock, except the bin of size `except`. */
void ae_curve_forget(ae_curve *curve, uint32_t after, uint32_t except);
/* Returns the bin of a size. */
const ae_times *ae_curve_times(const ae_curve *curve, uint32_t size);
/* Returns whether the time was measured often and lately enough to be used alone. */
bool ae_times_trusted(const ae_times *times, uint32_t clock);

/* A curve at one time of the clock: points with straight lines between them. */
typedef struct ae_line {
    uint32_t n;
    float size[AE_TIME_BINS], seconds[AE_TIME_BINS];
} ae_line;

/* Makes the line; n = 0 when nothing was measured lately. doubt_first: the smallest size is doubted like others, although there
 * is nothing to compare it with. */
void ae_curve_line(const ae_curve *curve, uint32_t clock, bool doubt_first, ae_line *line);
/* The same, but times that were measured often enough do not lose weight with age. */
void ae_curve_sure_line(const ae_curve *curve, uint32_t clock, bool doubt_first, ae_line *line);
/* Continues the line beyond its last size with the shape of another line, scaled to meet it. */
void ae_line_extend(ae_line *line, const ae_line *other);
/* Continues the line well beyond its last size with the times of another line. */
void ae_line_append(ae_line *line, const ae_line *other);
/* Expected seconds; 0 when the line has no points. */
double ae_line_at(const ae_line *line, double size);

#endif

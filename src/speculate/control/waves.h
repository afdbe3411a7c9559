/* waves.h - in how many waves the passes of a pipeline run (engine.h, ae_engine_cut).
 *
 * With w waves on s stages, a pass takes s + w - 1 times what a stage needs for a wave, instead of s times what it needs for
 * all rows. So waves pay where rows cost time of their own, as in prompts and for many sequences, and lose where a stage reads
 * its weights for each wave and does little else. The fastest number for each size of pass is measured: each number is tried a
 * few times, unless a smaller one was far slower already, and again now and then.
 *
 * Owns its curves (timing.h). Does not own the cut: any number gives the same results.
 */
#ifndef AE_SPECULATE_CONTROL_WAVES_H
#define AE_SPECULATE_CONTROL_WAVES_H

#include "speculate/control/timing.h"

#define AE_WAVES_CHOICES 4 /* one wave, or once, twice, four times as many as there are stages */

typedef struct ae_waves {
    ae_curve seconds[AE_WAVES_CHOICES]; /* of passes by rows */
    uint32_t n_stages, n_passes, clock;
} ae_waves;

/* Returns the number of waves for a pass of n_rows rows, at most `most`. */
uint32_t ae_waves_choose(ae_waves *waves, uint32_t n_rows, uint32_t most);
/* Records the seconds of a pass in n waves. */
void ae_waves_saw(ae_waves *waves, uint32_t n_rows, uint32_t n, double seconds);

#endif

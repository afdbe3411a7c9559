/* bench.h - what the measuring commands share: samples and their summary, the machine's read bandwidth. */
#ifndef AERIE_APP_BENCH_H
#define AERIE_APP_BENCH_H

#include "load.h"

typedef struct app_samples {
    double *items; /* [n] owned */
    size_t n, capacity;
} app_samples;

bool app_samples_add(app_samples *samples, double value);
void app_samples_free(app_samples *samples);

typedef struct app_summary {
    double mean, min, max, median;
} app_summary;

app_summary app_samples_summary(const app_samples *samples); /* all 0 without samples */

/* Bytes per second that n_threads cores (0: all) read together from memory: best of several sums over a buffer
 * larger than the last cache. 0 when it cannot be measured. */
double app_read_bandwidth(uint32_t n_threads, uint64_t *buffer_bytes);

#endif

/* bench.h - what the measuring commands share: samples with a summary, and the machine's read bandwidth. */
#ifndef AERIE_APP_BENCH_H
#define AERIE_APP_BENCH_H

#include "setup/load.h"

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

/* ---- bandwidth.c: the machine's read bandwidth ------------------------------------------------------- */

typedef struct app_reader app_reader;

/* Starts threads and allocates a buffer as large as the data with which it is compared, and larger than the last cache. Must be
 * closed even if this fails. */
int app_reader_open(app_reader **reader, uint32_t n_threads, uint64_t bytes_wanted);
/* Reads the buffer once with all threads and returns bytes per second. 0 if that cannot be measured, and for NULL. */
double app_reader_read(app_reader *reader);
uint64_t app_reader_bytes(const app_reader *reader);
void app_reader_free(app_reader *reader); /* NULL is allowed */

#endif

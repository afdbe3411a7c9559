/* bench.c - implements bench.h. */
#include "bench/bench.h"

#include <stdlib.h>

bool app_samples_add(app_samples *samples, double value)
{
    double *grown = app_grow(samples->items, samples->n, &samples->capacity, sizeof *grown);
    if (!grown) return false;
    samples->items = grown;
    grown[samples->n++] = value;
    return true;
}

void app_samples_free(app_samples *samples)
{
    free(samples->items);
    *samples = (app_samples){0};
}

app_summary app_samples_summary(const app_samples *samples)
{
    app_summary s = {0};
    const size_t n = samples->n;
    if (n == 0) return s;
    s.median = app_median(samples->items, n);
    s.min = samples->items[0];
    s.max = samples->items[n - 1];
    for (size_t i = 0; i < n; i++) s.mean += samples->items[i] / (double)n;
    return s;
}

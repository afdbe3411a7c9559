/* bench.c - implements bench.h. */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h" /* cores of this process and free memory, which aerie.h does not tell */

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

/* ---- Bandwidth ------------------------------------------------------------------------------------ */

typedef struct reader {
    pthread_t thread;
    const uint64_t *words; /* [n] */
    size_t n;
    uint64_t sum; /* so that the reading cannot be left out */
} reader;

static void *read_all(void *user)
{
    reader *r = user;
    uint64_t sum[8] = {0}; /* independent chains: the loads are the limit, not the additions */
    for (size_t i = 0; i + 8 <= r->n; i += 8) {
        for (size_t k = 0; k < 8; k++) sum[k] += r->words[i + k];
    }
    for (size_t k = 0; k < 8; k++) r->sum += sum[k];
    return NULL;
}

/* Seconds of one reading of words [n] by all readers; 0 if threads cannot be had. */
static double read_once(reader *readers, size_t n_readers, const uint64_t *words, size_t n)
{
    const size_t share = n / n_readers / 8 * 8;
    size_t started = 0;
    const double start = app_now();
    for (; started < n_readers; started++) {
        reader *r = &readers[started];
        r->words = words + started * share;
        r->n = share;
        if (pthread_create(&r->thread, NULL, read_all, r)) break;
    }
    for (size_t i = 0; i < started; i++) pthread_join(readers[i].thread, NULL);
    return started == n_readers ? app_now() - start : 0;
}

/* Four times the last cache, at least 256 MiB, at most 2 GiB and a quarter of what is free. */
static size_t buffer_size(void)
{
    size_t bytes = (size_t)256 << 20;
#ifdef _SC_LEVEL3_CACHE_SIZE
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (cache > 0 && (size_t)cache * 4 > bytes) bytes = (size_t)cache * 4;
#endif
    if (bytes > (size_t)2 << 30) bytes = (size_t)2 << 30;
    const uint64_t available = ae_os_memory_available();
    if (available && bytes > available / 4) bytes = (size_t)(available / 4);
    return bytes;
}

double app_read_bandwidth(uint32_t n_threads, uint64_t *buffer_bytes)
{
    enum { ROUNDS = 7 };
    const size_t n_readers = n_threads ? n_threads : (size_t)ae_os_n_cores();
    const size_t bytes = buffer_size() / 4096 * 4096;
    uint64_t *words = bytes ? malloc(bytes) : NULL;
    reader *readers = calloc(n_readers, sizeof *readers);
    double best = 0;
    *buffer_bytes = bytes;
    if (words && readers) {
        memset(words, 1, bytes); /* pages of their own, not the shared zero page */
        for (int round = 0; round < ROUNDS; round++) {
            const double seconds = read_once(readers, n_readers, words, bytes / sizeof *words);
            if (seconds > 0 && (double)bytes / seconds > best) best = (double)bytes / seconds;
        }
    }
    free(words);
    free(readers);
    return best;
}

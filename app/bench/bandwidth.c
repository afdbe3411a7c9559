/* bandwidth.c - how fast all cores together read memory, with the access pattern of kernels that stream weights.
 * Owns a buffer larger than the last cache, and a team of threads. A reading visits the buffer once, in pieces that the
 * threads claim, as in the engine's passes. Each piece is read in the fastest way on this machine, which is measured first: as
 * several streams that lie apart, or as one, with prefetches ahead. A single stream leaves a third of the bandwidth unused on a
 * 2-core Sapphire Rapids (medians of 25: one to two streams 13 to 18 GB/s, four 21.3, eight 21.8, sixteen 20.6; wider
 * loads than the 16 bytes of every x86-64 gain 1 %), and eight leave a quarter on a 2-core Zen 5 (medians of 15: one stream 39
 * to 41 GB/s with prefetches 2 to 8 KiB ahead, 32 without; two 38, four 34, eight 31); on a 2-core Granite Rapids four are
 * best (medians of 7: one 29, four 33, eight 32). */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"

#include "base/os.h"   /* free memory and huge pages, which aerie.h does not report */
#include "base/pool.h" /* the threads that passes run on */

enum {
    PIECE = 1 << 20, /* bytes that a thread claims */
    MOST_AHEAD = 4096,
    LINE = 64,
    TRIES = 3, /* readings of each way; the best one counts */
};

static const struct way {
    size_t n_streams; /* per piece */
    size_t ahead;     /* distance in bytes from a load to its prefetch */
} ways[] = {{8, 2048}, {4, 2048}, {1, MOST_AHEAD}};

struct app_reader {
    ae_pool *pool;
    const unsigned char *bytes; /* [n_pieces * PIECE] */
    uint32_t n_pieces;
    struct way way;
    uint64_t *sums; /* [n_pieces] sums, so that the compiler cannot remove the reading */
};

static void read_piece(void *context, uint32_t item, uint32_t i_worker)
{
    app_reader *r = context;
    const unsigned char *piece = r->bytes + (size_t)item * PIECE;
    uint64_t sum[LINE / 8] = {0}; /* independent chains: the loads are the limit, not the additions */
    const size_t n_streams = r->way.n_streams, stream = PIECE / n_streams, ahead = r->way.ahead;
    (void)i_worker, (void)ahead;
    for (size_t at = 0; at < stream; at += LINE) {
        for (size_t s = 0; s < n_streams; s++) {
            const unsigned char *line = piece + s * stream + at;
            uint64_t words[LINE / 8];
#if defined(__GNUC__)
            __builtin_prefetch(line + ahead);
#endif
            memcpy(words, line, LINE);
            for (size_t k = 0; k < LINE / 8; k++) sum[k] += words[k];
        }
    }
    for (size_t k = 0; k < LINE / 8; k++) r->sums[item] += sum[k];
}

/* Returns the number of pieces of the buffer: as many as requested, so that the cache holds the same share of it; at least four
 * times the last-level cache and 256 MiB, at most 2 GiB and a quarter of the free memory. */
static size_t buffer_pieces(uint64_t bytes)
{
    if (bytes < (uint64_t)256 << 20) bytes = (uint64_t)256 << 20;
    const uint64_t available = ae_os_memory_available();
#ifdef _SC_LEVEL3_CACHE_SIZE
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (cache > 0 && (uint64_t)cache * 4 > bytes) bytes = (uint64_t)cache * 4;
#endif
    if (bytes > (uint64_t)2 << 30) bytes = (uint64_t)2 << 30;
    if (available && bytes > available / 4) bytes = available / 4;
    return (size_t)(bytes / PIECE);
}

static void choose_way(app_reader *r)
{
    double best = 0;
    struct way fastest = ways[0];
    for (size_t i = 0; i < TRIES * (sizeof ways / sizeof ways[0]); i++) {
        r->way = ways[i % (sizeof ways / sizeof ways[0])];
        const double rate = app_reader_read(r);
        if (rate > best) best = rate, fastest = r->way;
    }
    r->way = fastest;
}

int app_reader_open(app_reader **out, uint32_t n_threads, uint64_t bytes_wanted)
{
    const size_t n_pieces = buffer_pieces(bytes_wanted);
    aerie_error error = {0};
    app_reader *r = *out = calloc(1, sizeof *r);
    if (!r) return app_error_memory("the read bandwidth");
    if (n_pieces == 0) return APP_DONE; /* without memory to spare, readings return 0 */
    r->n_pieces = (uint32_t)n_pieces;
    r->sums = calloc(n_pieces, sizeof *r->sums);
    unsigned char *bytes = ae_os_pages_alloc(n_pieces * PIECE + MOST_AHEAD);
    r->bytes = bytes;
    if (!r->sums || !bytes) return app_error_memory("the read bandwidth");
    memset(bytes, 1, n_pieces * PIECE); /* gives each page its own memory instead of the shared zero page */
    const aerie_status status = ae_pool_create(&r->pool, n_threads, &error);
    if (status != AERIE_OK) return app_report(APP_WORKING, status, &error);
    choose_way(r);
    return APP_DONE;
}

double app_reader_read(app_reader *r)
{
    if (!r || !r->pool) return 0;
    const double start = app_now();
    ae_pool_run(r->pool, read_piece, r, r->n_pieces);
    const double seconds = app_now() - start;
    return seconds > 0 ? (double)app_reader_bytes(r) / seconds : 0;
}

uint64_t app_reader_bytes(const app_reader *r)
{
    return r ? (uint64_t)r->n_pieces * PIECE : 0;
}

void app_reader_free(app_reader *r)
{
    if (!r) return;
    ae_pool_free(r->pool);
    ae_os_pages_free((void *)r->bytes, (size_t)r->n_pieces * PIECE + MOST_AHEAD);
    free(r->sums);
    free(r);
}

/* pool.h - a thread pool of fixed size that processes the items of one job at a time, with a fair lock for its users.
 *
 * The calling thread takes part as worker 0; ae_pool_run returns when every item is done. Items are
 * claimed one by one, so a worker that the system has not scheduled does not hold up the others: they
 * take its share. Workers spin briefly for the next job and then sleep, so an idle session costs no
 * CPU. Which worker does an item never changes a result: jobs are split over output elements only (docs/same-bytes.md).
 *
 * One thread at a time uses a pool. Threads that share a pool hold it while they need it; those that wait get it in the order
 * of their calls. ae_pool_run holds the pool itself, within the caller's hold if there is one.
 */
#ifndef AE_BASE_POOL_H
#define AE_BASE_POOL_H

#include "base/err.h"

typedef struct ae_pool ae_pool;

/* Processes one item; i_worker in [0, n_workers) selects scratch and nothing else. */
typedef void ae_pool_job(void *context, uint32_t item, uint32_t i_worker);

/* n_workers: 1 to 1024, including the caller. Errors: ARGUMENT, MEMORY, INTERNAL when a thread cannot be started. */
aerie_status ae_pool_create(ae_pool **out, uint32_t n_workers, aerie_error *error);
void ae_pool_free(ae_pool *pool);

/* Returns whether this process is a fork() of the one that created the pool. The pool's threads do not exist in it, so jobs run
 * on the caller alone, and ae_pool_free only frees memory. */
bool ae_pool_is_forked(const ae_pool *pool);
uint32_t ae_pool_n_workers(const ae_pool *pool);
/* Waits until no other thread holds the pool, then holds it. Holds nest: the pool is free again after as many calls of
 * ae_pool_release. A job must not call it. */
void ae_pool_hold(ae_pool *pool);
void ae_pool_release(ae_pool *pool);
/* Runs job for items 0 .. n_items - 1. */
void ae_pool_run(ae_pool *pool, ae_pool_job *job, void *context, uint32_t n_items);

/* How n_pieces pieces of equal work, such as panels, are grouped into items: first n_long items of `longs` pieces, one for each
 * thread, then the remaining pieces in items of up to `shorts` pieces. Most of a thread's share is one contiguous range of
 * weights, because the hardware prefetchers start over with each range. Any free thread takes the short items, so a delayed
 * thread does not delay the others much. A product with 576 x 576 weights in Q4_0 takes 0.7 of the time that it takes with 12
 * equal items (2-core Zen 3). */
typedef struct ae_items {
    uint32_t n_pieces, n_long, longs, shorts;
} ae_items;

/* least: the fewest pieces of an item, unless that would leave threads without an item. 0 pieces give 0 items. */
static inline ae_items ae_items_cut(uint32_t n_pieces, uint32_t n_workers, uint32_t least)
{
    const uint32_t n_parts = 8 * n_workers, share = (n_pieces + n_workers - 1) / n_workers;
    const uint32_t longs = n_pieces / n_workers * 5 / 8;
    uint32_t shorts = (n_pieces + n_parts - 1) / n_parts;
    if (shorts < least) shorts = least < share ? least : share;
    if (!shorts) shorts = 1;
    return (ae_items){n_pieces, longs > shorts ? n_workers : 0, longs, shorts};
}

static inline uint32_t ae_items_count(const ae_items *items)
{
    const uint32_t rest = items->n_pieces - items->n_long * items->longs;
    return items->n_long + (rest + items->shorts - 1) / items->shorts;
}

/* Returns the first piece of an item. */
static inline uint32_t ae_items_begin(const ae_items *items, uint32_t item)
{
    if (item < items->n_long) return item * items->longs;
    return items->n_long * items->longs + (item - items->n_long) * items->shorts;
}

/* Returns the piece after the last one of an item. */
static inline uint32_t ae_items_end(const ae_items *items, uint32_t item)
{
    const uint32_t end = ae_items_begin(items, item + 1);
    return end < items->n_pieces ? end : items->n_pieces;
}

#endif

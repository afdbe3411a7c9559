/* pool.h - a fixed team of threads that process a list of items together, and turns at using it.
 *
 * The calling thread takes part as worker 0; ae_pool_run returns when every item is done. Items are
 * claimed one by one, so a worker that the system has not scheduled does not hold up the others: they
 * take its share. Workers spin briefly for the next job and then sleep, so an idle session costs no
 * CPU. Which worker does an item never changes a result: jobs are split over output elements only (DESIGN section 2).
 *
 * One thread at a time uses a pool. Several threads may share one: each holds it while it needs it, and those that wait
 * get it in the order in which they came. A job runs under its caller's hold, or under one of its own.
 */
#ifndef AE_BASE_POOL_H
#define AE_BASE_POOL_H

#include "base/err.h"

typedef struct ae_pool ae_pool;

/* One item; i_worker in [0, n_workers) selects scratch and nothing else. */
typedef void ae_pool_job(void *context, uint32_t item, uint32_t i_worker);

/* n_workers >= 1, counts the caller. Errors: MEMORY, INTERNAL when a thread cannot be started. */
aerie_status ae_pool_create(ae_pool **out, uint32_t n_workers, aerie_error *error);
void ae_pool_free(ae_pool *pool);

uint32_t ae_pool_n_workers(const ae_pool *pool);
/* Waits until no other thread holds the pool, then holds it. A thread that holds it already holds it once more, and gives it
 * back with the last of as many releases. Not to be called by a job. */
void ae_pool_hold(ae_pool *pool);
void ae_pool_release(ae_pool *pool);
/* Runs job for items 0 .. n_items - 1. */
void ae_pool_run(ae_pool *pool, ae_pool_job *job, void *context, uint32_t n_items);

#endif

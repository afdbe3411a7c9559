/* pool.h - a fixed team of worker threads that run one job together.
 *
 * The calling thread is worker 0; ae_pool_run returns when every worker has finished. Workers
 * spin briefly for the next job and then sleep, so an idle session costs no CPU. One job at a
 * time; the pool is used by one thread at a time (a session's). Which worker does what never
 * changes a result: jobs split over output elements only (DESIGN section 2).
 */
#ifndef AE_BASE_POOL_H
#define AE_BASE_POOL_H

#include "base/err.h"

typedef struct ae_pool ae_pool;

/* i_worker in [0, n_workers) */
typedef void ae_pool_job(void *context, int i_worker, int n_workers);

/* n_workers >= 1, counts the caller. Errors: MEMORY, INTERNAL when a thread cannot be started. */
aerie_status ae_pool_create(ae_pool **out, int n_workers, aerie_error *error);
void ae_pool_free(ae_pool *pool);

int ae_pool_n_workers(const ae_pool *pool);
void ae_pool_run(ae_pool *pool, ae_pool_job *job, void *context);

/* The part [*begin, *end) of n items that belongs to a worker; multiples of `unit` but for the last. */
void ae_pool_split(size_t n, size_t unit, int i_worker, int n_workers, size_t *begin, size_t *end);

#endif

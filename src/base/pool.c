#define _GNU_SOURCE
#include "base/pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"

/* A round is one job. The caller publishes job and context, then raises `round`; each worker runs it
 * and lowers `busy`. Spinning covers the gaps inside a forward pass (microseconds); the gaps
 * between passes may be long, so after SPIN_SECONDS a worker sleeps on the condition. */
#define SPIN_SECONDS 200e-6

struct ae_pool {
    int n_workers;
    int n_started;
    ae_pool_job *job;
    void *context;
    _Alignas(64) atomic_uint round;
    _Alignas(64) atomic_int busy;
    _Alignas(64) atomic_int sleeping;
    atomic_bool stop;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    struct ae_pool_worker {
        ae_pool *pool;
        int i;
        pthread_t thread;
    } worker[];
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wait_for_round(ae_pool *pool, unsigned seen)
{
    double until = 0;
    for (unsigned i = 0;; i++) {
        if (atomic_load_explicit(&pool->round, memory_order_acquire) != seen) return;
        relax();
        if ((i & 127) == 127) {
            double now = ae_time_now();
            if (until == 0) until = now + SPIN_SECONDS;
            else if (now > until) break;
        }
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleeping, 1);
    while (atomic_load(&pool->round) == seen) pthread_cond_wait(&pool->wake, &pool->mutex);
    atomic_fetch_sub(&pool->sleeping, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *argument)
{
    struct ae_pool_worker *self = argument;
    ae_pool *pool = self->pool;
    unsigned seen = 0;
    for (;;) {
        wait_for_round(pool, seen);
        seen++;
        if (atomic_load(&pool->stop)) return NULL;
        pool->job(pool->context, self->i, pool->n_workers);
        atomic_fetch_sub_explicit(&pool->busy, 1, memory_order_release);
    }
}

static void publish(ae_pool *pool)
{
    atomic_fetch_add(&pool->round, 1);
    /* A worker that counts itself asleep after this load still holds the mutex and sees the new round. */
    if (atomic_load(&pool->sleeping)) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
    }
}

aerie_status ae_pool_create(ae_pool **out, int n_workers, aerie_error *error)
{
    *out = NULL;
    if (n_workers < 1 || n_workers > 1024)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%d threads asked for; 1 to 1024 are possible", n_workers);
    ae_pool *pool = ae_alloc_aligned(1, sizeof *pool + (size_t)n_workers * sizeof pool->worker[0]);
    if (!pool) return ae_fail_memory(error, "the thread pool", sizeof *pool);
    pool->n_workers = n_workers;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    for (int i = 1; i < n_workers; i++) {
        pool->worker[i].pool = pool;
        pool->worker[i].i = i;
        int code = pthread_create(&pool->worker[i].thread, NULL, worker_main, &pool->worker[i]);
        if (code) {
            ae_pool_free(pool);
            return ae_fail(error, AERIE_ERROR_INTERNAL, "thread %d of %d could not be started: %s", i + 1, n_workers, strerror(code));
        }
        pool->n_started++;
    }
    *out = pool;
    return AERIE_OK;
}

void ae_pool_free(ae_pool *pool)
{
    if (!pool) return;
    atomic_store(&pool->stop, true);
    publish(pool);
    for (int i = 1; i <= pool->n_started; i++) pthread_join(pool->worker[i].thread, NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
    ae_free(pool);
}

int ae_pool_n_workers(const ae_pool *pool)
{
    return pool->n_workers;
}

void ae_pool_run(ae_pool *pool, ae_pool_job *job, void *context)
{
    if (pool->n_workers > 1) {
        pool->job = job;
        pool->context = context;
        atomic_store_explicit(&pool->busy, pool->n_workers - 1, memory_order_relaxed);
        publish(pool);
    }
    job(context, 0, pool->n_workers);
    for (unsigned i = 1; pool->n_workers > 1 && atomic_load_explicit(&pool->busy, memory_order_acquire); i++) {
        relax();
        /* with more threads than cores the last worker may need this core */
        if ((i & 4095) == 0) sched_yield();
    }
}

void ae_pool_split(size_t n, size_t unit, int i_worker, int n_workers, size_t *begin, size_t *end)
{
    size_t units = (n + unit - 1) / unit;
    size_t b = units * (size_t)i_worker / (size_t)n_workers * unit;
    size_t e = units * ((size_t)i_worker + 1) / (size_t)n_workers * unit;
    *begin = b < n ? b : n;
    *end = e < n ? e : n;
}

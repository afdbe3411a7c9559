/* pool.c - see pool.h. Owns the threads, the round that they work on, and the queue of threads that wait for the pool. */
#define _GNU_SOURCE
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"

/* A round is one job. `claim` holds the number of the round in its upper half and the next item in its lower half, so taking an
 * item also proves that the round is still the one whose job was read: a worker that was descheduled in the middle of a claim
 * cannot take an item of a later job.
 *
 * When all items of a round are done, the caller closes it (`claim` with CLOSED as the next item), then writes job, context,
 * n_items and done, then opens the next round by `claim`. If the round were not closed, a worker that had read the old claim
 * and then the new n_items could take an item of a round that is not open yet. Since it is closed first, a worker that saw any
 * of the new values also sees the closed claim, so its exchange of the old claim fails. */
#define CLOSED UINT32_MAX
#define SPIN_SECONDS 200e-6 /* longer than the gaps inside a forward pass, shorter than those between requests */

struct ae_pool {
    const volatile unsigned char *origin; /* ae_os_origin_create */
    uint32_t n_workers, n_started;
    _Atomic(ae_pool_job *) job;
    _Atomic(void *) context;
    atomic_uint n_items;
    _Alignas(64) atomic_ullong claim;
    _Alignas(64) atomic_uint done;
    _Alignas(64) atomic_int sleeping;
    atomic_bool stop;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    pthread_mutex_t turn_mutex;
    pthread_cond_t turn;
    uint64_t next_ticket, serving; /* under turn_mutex: the next ticket to give out, and the ticket whose turn it is */
    atomic_uintptr_t holder;       /* pthread_t of the thread that holds the pool; 0: none */
    uint32_t n_holds;              /* how many times the holder holds it */
    struct ae_pool_worker {
        ae_pool *pool;
        uint32_t i;
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

static uint32_t round_of(const ae_pool *pool)
{
    return (uint32_t)(atomic_load_explicit(&pool->claim, memory_order_acquire) >> 32);
}

/* Processes items of the current round until none is left; returns that round. */
static uint32_t work(ae_pool *pool, uint32_t i_worker)
{
    unsigned long long claim = atomic_load_explicit(&pool->claim, memory_order_acquire);
    for (;;) {
        const uint32_t item = (uint32_t)claim;
        ae_pool_job *job = atomic_load_explicit(&pool->job, memory_order_acquire);
        void *context = atomic_load_explicit(&pool->context, memory_order_acquire);
        if (item >= atomic_load_explicit(&pool->n_items, memory_order_acquire)) {
            /* n_items may already belong to the next round; only if claim is unchanged is the round exhausted */
            const unsigned long long now = atomic_load_explicit(&pool->claim, memory_order_acquire);
            if (now == claim) return (uint32_t)(claim >> 32);
            claim = now;
            continue;
        }
        if (!atomic_compare_exchange_weak_explicit(&pool->claim, &claim, claim + 1, memory_order_acq_rel, memory_order_acquire))
            continue;
        job(context, item, i_worker);
        atomic_fetch_add_explicit(&pool->done, 1, memory_order_release);
        claim = atomic_load_explicit(&pool->claim, memory_order_acquire);
    }
}

static void wait_for_round(ae_pool *pool, uint32_t seen)
{
    double until = 0;
    for (unsigned i = 0;; i++) {
        if (round_of(pool) != seen) return;
        relax();
        if ((i & 63) == 63) {
            const double now = ae_time_now();
            if (until == 0) until = now + SPIN_SECONDS;
            else if (now > until) break;
        }
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleeping, 1);
    while ((uint32_t)(atomic_load(&pool->claim) >> 32) == seen) pthread_cond_wait(&pool->wake, &pool->mutex);
    atomic_fetch_sub(&pool->sleeping, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *argument)
{
    struct ae_pool_worker *self = argument;
    uint32_t seen = 0;
    for (;;) {
        wait_for_round(self->pool, seen);
        if (atomic_load(&self->pool->stop)) return NULL;
        seen = work(self->pool, self->i);
        if (atomic_load(&self->pool->stop)) return NULL; /* the round just seen may have been the last one */
    }
}

/* Opens the next round. A worker that increments `sleeping` after it is loaded here reads the new claim before it waits. */
static void publish(ae_pool *pool, ae_pool_job *job, void *context, uint32_t n_items)
{
    const unsigned long long round = round_of(pool);
    atomic_exchange(&pool->claim, round << 32 | CLOSED);
    atomic_store_explicit(&pool->job, job, memory_order_release);
    atomic_store_explicit(&pool->context, context, memory_order_release);
    atomic_store_explicit(&pool->n_items, n_items, memory_order_release);
    atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
    atomic_store(&pool->claim, (unsigned long long)((uint32_t)round + 1) << 32);
    if (atomic_load(&pool->sleeping)) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
    }
}

aerie_status ae_pool_create(ae_pool **out, uint32_t n_workers, aerie_error *error)
{
    *out = NULL;
    if (n_workers < 1 || n_workers > 1024)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "%u threads were requested; 1 to 1024 are possible", n_workers);
    ae_pool *pool = ae_alloc_aligned(1, sizeof *pool + n_workers * sizeof pool->worker[0]);
    if (!pool) return ae_fail_memory(error, "the thread pool", sizeof *pool);
    pool->n_workers = n_workers;
    pool->origin = ae_os_origin_create();
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_mutex_init(&pool->turn_mutex, NULL);
    pthread_cond_init(&pool->turn, NULL);
    for (uint32_t i = 1; i < n_workers; i++) {
        pool->worker[i].pool = pool;
        pool->worker[i].i = i;
        const int code = pthread_create(&pool->worker[i].thread, NULL, worker_main, &pool->worker[i]);
        if (code) {
            ae_pool_free(pool);
            return ae_fail(error, AERIE_ERROR_INTERNAL, "thread %u of %u could not be started: %s", i + 1, n_workers,
                           strerror(code));
        }
        pool->n_started++;
    }
    *out = pool;
    return AERIE_OK;
}

void ae_pool_free(ae_pool *pool)
{
    if (!pool) return;
    if (ae_pool_is_forked(pool)) { /* no threads to join; the conditions still count waiters that do not exist here */
        ae_os_origin_free(pool->origin);
        ae_free(pool);
        return;
    }
    atomic_store(&pool->stop, true);
    publish(pool, NULL, NULL, 0);
    for (uint32_t i = 1; i <= pool->n_started; i++) pthread_join(pool->worker[i].thread, NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
    pthread_cond_destroy(&pool->turn);
    pthread_mutex_destroy(&pool->turn_mutex);
    ae_os_origin_free(pool->origin);
    ae_free(pool);
}

bool ae_pool_is_forked(const ae_pool *pool)
{
    return pool->origin && !*pool->origin;
}

uint32_t ae_pool_n_workers(const ae_pool *pool)
{
    return pool->n_workers;
}

_Static_assert(sizeof(pthread_t) <= sizeof(uintptr_t), "a pthread_t fits into `holder`");

void ae_pool_hold(ae_pool *pool)
{
    const uintptr_t self = (uintptr_t)pthread_self();
    if (ae_pool_is_forked(pool)) return; /* the thread that held the pool does not exist in this process */
    /* only this thread stores its own id in `holder`, so a relaxed load is enough to compare with it */
    if (atomic_load_explicit(&pool->holder, memory_order_relaxed) != self) {
        pthread_mutex_lock(&pool->turn_mutex);
        const uint64_t ticket = pool->next_ticket++;
        while (pool->serving != ticket) pthread_cond_wait(&pool->turn, &pool->turn_mutex);
        pthread_mutex_unlock(&pool->turn_mutex);
        atomic_store_explicit(&pool->holder, self, memory_order_relaxed);
    }
    pool->n_holds++;
}

void ae_pool_release(ae_pool *pool)
{
    if (ae_pool_is_forked(pool) || --pool->n_holds) return;
    atomic_store_explicit(&pool->holder, 0, memory_order_relaxed);
    pthread_mutex_lock(&pool->turn_mutex);
    pool->serving++;
    if (pool->serving != pool->next_ticket) pthread_cond_broadcast(&pool->turn);
    pthread_mutex_unlock(&pool->turn_mutex);
}

void ae_pool_run(ae_pool *pool, ae_pool_job *job, void *context, uint32_t n_items)
{
    if (pool->n_workers == 1 || n_items == 1 || ae_pool_is_forked(pool)) {
        for (uint32_t i = 0; i < n_items; i++) job(context, i, 0);
        return;
    }
    ae_pool_hold(pool);
    publish(pool, job, context, n_items);
    work(pool, 0);
    for (unsigned i = 1; atomic_load_explicit(&pool->done, memory_order_acquire) != n_items; i++) {
        relax();
        if ((i & 1023) == 0) sched_yield(); /* the worker with the last item may need this core */
    }
    ae_pool_release(pool);
}

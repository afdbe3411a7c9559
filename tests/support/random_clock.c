/* random_clock.c - see random_clock.h. Linked with --wrap=ae_time_now. */
#include "random_clock.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "mkmodel.h"

double __real_ae_time_now(void);
double __wrap_ae_time_now(void);

static struct {
    atomic_bool runs;
    pthread_t owner;
    uint64_t random;
    double now, usual; /* seconds */
    uint32_t n_left;   /* calls until another time is usual */
} state;
static atomic_uint n_calls;

void random_clock_start(uint64_t seed)
{
    if (!state.runs) state.now = __real_ae_time_now();
    state.owner = pthread_self();
    state.random = seed;
    state.n_left = 0;
    state.runs = true;
}

static double next_time(void)
{
    if (!state.n_left--) {
        const uint64_t r = mk_random(&state.random);
        state.n_left = 1 + (uint32_t)(r % 400);
        state.usual = r >> 32 & 3 ? ldexp(1e-9, (int)(r >> 40 & 31)) : 0; /* 1 ns to 2 s */
    }
    const uint64_t r = mk_random(&state.random);
    if (r & 7) state.now += ldexp(state.usual, (int)(r >> 8 & 7));
    return state.now;
}

double __wrap_ae_time_now(void)
{
    if (!state.runs) return __real_ae_time_now();
    if (pthread_equal(state.owner, pthread_self())) return next_time();
    if (atomic_fetch_add(&n_calls, 1) % 5 == 0) sched_yield();
    return __real_ae_time_now();
}

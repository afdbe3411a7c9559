/* wakeup.c - see wakeup.h. */
#define _POSIX_C_SOURCE 200809L
#include "base/wakeup.h"

#include <errno.h>
#include <time.h>

bool ae_bell_init(ae_bell *bell)
{
    pthread_condattr_t attributes;
    *bell = (ae_bell){0};
    if (pthread_mutex_init(&bell->mutex, NULL)) return false;
    bool ok = pthread_condattr_init(&attributes) == 0;
    if (ok) {
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* a clock that cannot be set back */
        ok = pthread_cond_init(&bell->condition, &attributes) == 0;
        pthread_condattr_destroy(&attributes);
    }
    if (!ok) pthread_mutex_destroy(&bell->mutex);
    return bell->made = ok;
}

void ae_bell_free(ae_bell *bell)
{
    if (!bell->made) return;
    pthread_cond_destroy(&bell->condition);
    pthread_mutex_destroy(&bell->mutex);
    bell->made = false;
}

void ae_bell_ring(ae_bell *bell)
{
    pthread_mutex_lock(&bell->mutex);
    bell->rung = true;
    pthread_cond_broadcast(&bell->condition);
    pthread_mutex_unlock(&bell->mutex);
}

void ae_bell_wait(ae_bell *bell, double seconds)
{
    struct timespec end;
    const double most = 1e9, wanted = seconds > 0 ? seconds < most ? seconds : most : 0;
    const time_t whole = (time_t)wanted;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += whole;
    end.tv_nsec += (long)((wanted - (double)whole) * 1e9);
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&bell->mutex);
    while (!bell->rung && pthread_cond_timedwait(&bell->condition, &bell->mutex, &end) != ETIMEDOUT) {}
    bell->rung = false;
    pthread_mutex_unlock(&bell->mutex);
}

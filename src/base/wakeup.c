/* wakeup.c - implements wakeup.h. */
#define _POSIX_C_SOURCE 200809L
#include "base/wakeup.h"

#include <errno.h>
#include <time.h>

bool ae_wakeup_init(ae_wakeup *wakeup)
{
    pthread_condattr_t attributes;
    *wakeup = (ae_wakeup){0};
    if (pthread_mutex_init(&wakeup->mutex, NULL)) return false;
    bool ok = pthread_condattr_init(&attributes) == 0;
    if (ok) {
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* a clock that cannot be set back */
        ok = pthread_cond_init(&wakeup->condition, &attributes) == 0;
        pthread_condattr_destroy(&attributes);
    }
    if (!ok) pthread_mutex_destroy(&wakeup->mutex);
    return wakeup->made = ok;
}

void ae_wakeup_free(ae_wakeup *wakeup)
{
    if (!wakeup->made) return;
    pthread_cond_destroy(&wakeup->condition);
    pthread_mutex_destroy(&wakeup->mutex);
    wakeup->made = false;
}

void ae_wakeup_signal(ae_wakeup *wakeup)
{
    pthread_mutex_lock(&wakeup->mutex);
    wakeup->signalled = true;
    pthread_cond_broadcast(&wakeup->condition);
    pthread_mutex_unlock(&wakeup->mutex);
}

void ae_wakeup_wait(ae_wakeup *wakeup, double seconds)
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
    pthread_mutex_lock(&wakeup->mutex);
    while (!wakeup->signalled && pthread_cond_timedwait(&wakeup->condition, &wakeup->mutex, &end) != ETIMEDOUT) {}
    wakeup->signalled = false;
    pthread_mutex_unlock(&wakeup->mutex);
}

/* wakeup.h - lets one thread wait until another one wakes it, or until a timeout.
 *
 * Owns: a mutex and a condition. A signal is remembered until the next wait, so none is lost between a check and the wait. */
#ifndef AE_BASE_WAKEUP_H
#define AE_BASE_WAKEUP_H

#include <pthread.h>
#include <stdbool.h>

typedef struct ae_wakeup {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    bool signalled, made;
} ae_wakeup;

/* Returns false if the system cannot create the mutex or the condition. */
bool ae_wakeup_init(ae_wakeup *wakeup);
/* Also takes a wakeup that is all zero. */
void ae_wakeup_free(ae_wakeup *wakeup);
/* Wakes the thread that waits, or lets the next wait return at once. Any thread may call it. */
void ae_wakeup_signal(ae_wakeup *wakeup);
/* Returns once the wakeup has been signalled since the last wait, or when the given number of seconds has passed. */
void ae_wakeup_wait(ae_wakeup *wakeup, double seconds);

#endif

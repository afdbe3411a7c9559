/* wakeup.h - lets one thread wait until another one wakes it, or until a timeout.
 *
 * Owns: a mutex and a condition. A ring is remembered until the next wait, so none is lost between a check and the wait. */
#ifndef AE_BASE_WAKEUP_H
#define AE_BASE_WAKEUP_H

#include <pthread.h>
#include <stdbool.h>

typedef struct ae_bell {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    bool rung, made;
} ae_bell;

/* false: the system cannot create one. */
bool ae_bell_init(ae_bell *bell);
/* A bell that is all zero is allowed. */
void ae_bell_free(ae_bell *bell);
/* Any thread. */
void ae_bell_ring(ae_bell *bell);
/* Returns once the bell has been rung since the last wait, or when the given number of seconds has passed. */
void ae_bell_wait(ae_bell *bell, double seconds);

#endif

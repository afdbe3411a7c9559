/* bell.h - one thread waits until another rings, or for a time.
 *
 * Owns: a mutex and a condition. A ring is remembered until the next wait, so none is lost between looking and waiting. */
#ifndef AE_BASE_BELL_H
#define AE_BASE_BELL_H

#include <pthread.h>
#include <stdbool.h>

typedef struct ae_bell {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    bool rung, made;
} ae_bell;

/* false: the system has no room for one. */
bool ae_bell_init(ae_bell *bell);
/* All zero is fine. */
void ae_bell_free(ae_bell *bell);
/* Any thread. */
void ae_bell_ring(ae_bell *bell);
/* Returns when the bell was rung since the last wait, or after so many seconds. */
void ae_bell_wait(ae_bell *bell, double seconds);

#endif

/* waves.c - implements waves.h. */
#include "speculate/control/waves.h"

#define TRIES 3     /* measurements after which a time is known */
#define AGAIN 64u   /* one pass in so many tries another number again */
#define TOO_SLOW 1.5f /* times the fastest: larger numbers are not tried, and this one only every SELDOM-th time */
#define SELDOM 8u

static uint32_t waves_of(const ae_waves *w, uint32_t choice)
{
    return choice ? w->n_stages << (choice - 1) : 1;
}

uint32_t ae_waves_choose(ae_waves *w, uint32_t n_rows, uint32_t most)
{
    uint32_t best = 0, n = 0;
    float fastest = 0;
    for (; n < AE_WAVES_CHOICES && waves_of(w, n) <= most; n++) {
        const ae_times *t = ae_curve_times(&w->seconds[n], n_rows);
        if (n && fastest > 0 && ae_curve_times(&w->seconds[n - 1], n_rows)->typical > TOO_SLOW * fastest) break;
        if (t->n_seen < TRIES) return waves_of(w, n);
        if (!n || t->typical < fastest) best = n, fastest = t->typical;
    }
    if (n > 1 && ++w->n_passes % AGAIN == 0) {
        const uint32_t turn = w->n_passes / AGAIN, other = turn % n;
        const bool slow = ae_curve_times(&w->seconds[other], n_rows)->typical > TOO_SLOW * fastest;
        if (!slow || turn / n % SELDOM == 0) return waves_of(w, other);
    }
    return waves_of(w, best);
}

void ae_waves_saw(ae_waves *w, uint32_t n_rows, uint32_t n, double seconds)
{
    for (uint32_t i = 0; i < AE_WAVES_CHOICES; i++)
        if (waves_of(w, i) == n) ae_curve_add(&w->seconds[i], n_rows, seconds, ++w->clock);
}

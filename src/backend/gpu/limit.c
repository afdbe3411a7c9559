/* limit.c - see limit.h. */
#define _POSIX_C_SOURCE 200809L
#include "backend/gpu/limit.h"

#include <stdlib.h>
#include <time.h>

#include "base/os.h"

#define MOST_SECONDS 1e6
#define SPIN_SECONDS 0.02 /* passes are shorter, and a sleep would cost them 50 us and more */
#define NAP_NANOSECONDS 100000

double ae_gpu_limit(double otherwise)
{
    const char *said = getenv("AERIE_GPU_LIMIT");
    char *end = NULL;
    const double limit = said ? strtod(said, &end) : 0;
    if (!said || end == said || *end || !(limit >= 0)) return otherwise;
    return limit < MOST_SECONDS ? limit : MOST_SECONDS;
}

bool ae_gpu_pause(double start, double limit)
{
    const double waited = ae_time_now() - start;
    if (limit > 0 && waited > limit) return false;
    if (waited > SPIN_SECONDS) (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NANOSECONDS}, NULL);
    return true;
}

aerie_status ae_gpu_hung(double limit, aerie_error *error)
{
    return ae_fail(error, AERIE_ERROR_INTERNAL, "the device made no progress for %g s and is given up; a restart of the "
                   "program may bring it back (AERIE_GPU_LIMIT=0 waits without a limit)", limit);
}

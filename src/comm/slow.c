/* slow.c - a network that is slower than the one at hand (comm.h): for tests and measurements on one machine.
 *
 * A round ends no earlier than latency + bytes received / bandwidth after its start. Jitter is drawn by the number of the
 * round, so that all ranks draw the same. Owns the communicator that does the work. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/math/rng.h"
#include "base/mem.h"
#include "base/os.h"
#include "comm/comm.h"

typedef struct slow_comm {
    ae_comm base;
    ae_comm *inner;
    ae_comm_delay delay;
    uint64_t n_rounds;
} slow_comm;

static void close_slow(ae_comm *comm)
{
    slow_comm *s = (slow_comm *)comm;
    ae_comm_close(s->inner);
    ae_free(s);
}

/* Lets sleeps of this thread end on time: the kernel may otherwise add 50 us, as much as a round of a fast network takes. */
static void wake_on_time(void)
{
#if defined(__linux__)
    (void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
#endif
}

static void sleep_until(double end)
{
    for (double left; (left = end - ae_time_now()) > 0;) {
        if (left < 50e-6) continue; /* a sleep would take longer than that */
        const double nap = left - 40e-6;
        wake_on_time();
        const struct timespec t = {(time_t)nap, (long)((nap - floor(nap)) * 1e9)};
        clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
    }
}

static void wait_for(slow_comm *s, double start, size_t received)
{
    uint32_t bits[4];
    const ae_comm_delay *d = &s->delay;
    double seconds = d->latency + (d->bandwidth > 0 ? (double)received / d->bandwidth : 0);
    ae_philox(d->seed, s->n_rounds++, 0, bits);
    seconds *= 1 + d->jitter * (2 * ae_uniform_open(bits[0]) - 1);
    sleep_until(start + seconds);
}

static void note(slow_comm *s)
{
    if (atomic_load(&s->inner->failed)) atomic_store(&s->base.failed, true);
}

static void exchange(ae_comm *comm, char *packed, const size_t *begin, ae_receivers to)
{
    slow_comm *s = (slow_comm *)comm;
    const double start = ae_time_now();
    size_t most = 0; /* a round ends when the rank with the smallest piece has received all others */
    for (uint32_t r = to.first; r < to.first + to.n; r++) {
        const size_t received = begin[comm->n_ranks] - (begin[r + 1] - begin[r]);
        if (received > most) most = received;
    }
    s->inner->ops->exchange(s->inner, packed, begin, to);
    note(s);
    wait_for(s, start, most);
}

static void frame(ae_comm *comm, void *bytes)
{
    slow_comm *s = (slow_comm *)comm;
    const double start = ae_time_now();
    s->inner->ops->frame(s->inner, bytes);
    note(s);
    if (comm->rank == 0) wait_for(s, start, AE_COMM_FRAME); /* only rank 0 waits: a rank that receives a frame does not know
                                                             * when it was sent */
    else s->n_rounds++;
}

static void set_limit(ae_comm *comm, double seconds)
{
    ae_comm_limit(((slow_comm *)comm)->inner, seconds);
}

static void fail(ae_comm *comm, const char *reason)
{
    ae_comm_fail(((slow_comm *)comm)->inner, reason);
}

aerie_status ae_comm_slow(ae_comm **out, ae_comm *inner, const ae_comm_delay *delay, aerie_error *error)
{
    static const ae_comm_ops ops = {"slow", close_slow, exchange, frame, set_limit, fail};
    slow_comm *s = ae_alloc(1, sizeof *s);
    *out = NULL;
    if (!s) {
        ae_comm_close(inner);
        return ae_fail_memory(error, "a group of ranks", sizeof *s);
    }
    *s = (slow_comm){{.ops = &ops, .rank = inner->rank, .n_ranks = inner->n_ranks}, inner, *delay, 0};
    *out = &s->base;
    return AERIE_OK;
}

/* ---- Parsing ------------------------------------------------------------------------------------------ */

typedef struct unit {
    const char *name;
    double factor;
} unit;

/* Parses a number of at least 0 with one of these units, or without one if the first unit is "". */
static bool parse_number(const char *text, size_t n, const unit *units, double *x)
{
    char own[64], *end;
    if (!n || n >= sizeof own) return false;
    memcpy(own, text, n);
    own[n] = '\0';
    *x = strtod(own, &end);
    if (end == own || !isfinite(*x) || *x < 0) return false;
    for (; units->name; units++) {
        if (strcmp(end, units->name)) continue;
        *x *= units->factor;
        return true;
    }
    return false;
}

aerie_status ae_comm_delay_parse(const char *text, ae_comm_delay *delay, aerie_error *error)
{
    static const unit times[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {NULL, 0}};
    static const unit rates[] = {{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {NULL, 0}}, plain[] = {{"", 1}, {NULL, 0}};
    const struct {
        const char *name;
        const unit *units;
        double most;
    } keys[] = {{"latency", times, 60}, {"bandwidth", rates, 1e15}, {"jitter", plain, 0.999}, {"seed", plain, 1e15}};
    double values[4] = {0};
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, ","), n_key = strcspn(at, "=,");
        bool known = false;
        for (size_t i = 0; i < 4; i++) {
            if (n_key != strlen(keys[i].name) || strncmp(at, keys[i].name, n_key) || n_key == n) continue;
            known = parse_number(at + n_key + 1, n - n_key - 1, keys[i].units, &values[i]) && values[i] <= keys[i].most;
        }
        if (!known)
            return ae_fail(error, AERIE_ERROR_ARGUMENT, "a slow network of \"%.*s\"; what would work: latency=200us, "
                           "bandwidth=117MB, jitter=0.1, seed=1, with commas between", (int)(n < 64 ? n : 64), at);
        at += n + (at[n] == ',');
    }
    *delay = (ae_comm_delay){values[0], values[1], values[2], (uint64_t)values[3]};
    return AERIE_OK;
}

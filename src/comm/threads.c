/* threads.c - ranks that are threads of one process (comm.h): for tests, in which sanitizers see the whole group.
 *
 * Owns: what the ranks share, until the last of them is closed. In a round every rank publishes where its pieces are, waits for
 * the others, copies their pieces, and waits again before any rank may change its own. */
#define _POSIX_C_SOURCE 200809L
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "comm/comm.h"

typedef struct shared {
    uint32_t n_ranks;
    atomic_uint n_open, n_waiting;
    atomic_ullong n_met; /* how often all ranks have met */
    atomic_bool failed;
    const char *packed[AE_MAX_RANKS]; /* of the running round */
    char frame[AE_COMM_FRAME];
} shared;

typedef struct thread_comm {
    ae_comm base;
    shared *group;
} thread_comm;

static shared *group_of(const ae_comm *comm)
{
    return ((const thread_comm *)comm)->group;
}

#define YIELDS 2000 /* yields before a waiting rank sleeps: it may have nothing to do for long */

/* Waits for all ranks, or until one fails. */
static bool meet(ae_comm *comm)
{
    shared *g = group_of(comm);
    const struct timespec nap = {0, 50000};
    const unsigned long long met = atomic_load(&g->n_met);
    if (atomic_fetch_add(&g->n_waiting, 1) + 1 == g->n_ranks) {
        atomic_store(&g->n_waiting, 0);
        atomic_fetch_add(&g->n_met, 1);
    }
    for (uint32_t i = 0; atomic_load(&g->n_met) == met && !atomic_load(&g->failed); i++) {
        if (i < YIELDS) sched_yield();
        else nanosleep(&nap, NULL);
    }
    if (!atomic_load(&g->failed)) return true;
    atomic_store(&comm->failed, true);
    return false;
}

static void exchange(ae_comm *comm, char *packed, const size_t *begin, int root)
{
    shared *g = group_of(comm);
    g->packed[comm->rank] = packed; /* each rank writes its own element; the meeting orders the accesses */
    if (!meet(comm)) return;
    for (uint32_t r = 0; r < comm->n_ranks && (root == AE_COMM_ALL || (uint32_t)root == comm->rank); r++)
        if (r != comm->rank) memcpy(packed + begin[r], g->packed[r] + begin[r], begin[r + 1] - begin[r]);
    meet(comm);
}

static void frame(ae_comm *comm, void *bytes)
{
    shared *g = group_of(comm);
    if (!comm->rank) memcpy(g->frame, bytes, AE_COMM_FRAME);
    if (!meet(comm)) return;
    if (comm->rank) memcpy(bytes, g->frame, AE_COMM_FRAME);
    meet(comm);
}

static void fail(ae_comm *comm, const char *reason)
{
    (void)reason;
    atomic_store(&group_of(comm)->failed, true);
}

static void close_one(ae_comm *comm)
{
    shared *g = group_of(comm);
    ae_free(comm);
    if (atomic_fetch_sub(&g->n_open, 1) == 1) ae_free(g);
}

aerie_status ae_comm_threads(ae_comm **out, uint32_t n, aerie_error *error)
{
    static const ae_comm_ops ops = {"threads", close_one, exchange, frame, NULL, fail};
    if (!n || n > AE_MAX_RANKS)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a group of %u ranks; 1 to %d are possible", n, AE_MAX_RANKS);
    memset(out, 0, n * sizeof *out);
    shared *g = ae_alloc(1, sizeof *g);
    if (!g) return ae_fail_memory(error, "a group of ranks", sizeof *g);
    g->n_ranks = n;
    atomic_store(&g->n_open, n);
    for (uint32_t r = 0; r < n; r++) {
        thread_comm *c = ae_alloc(1, sizeof *c);
        if (!c) {
            for (uint32_t i = 0; i < r; i++) ae_free(out[i]), out[i] = NULL;
            ae_free(g);
            return ae_fail_memory(error, "a group of ranks", sizeof *c);
        }
        *c = (thread_comm){{.ops = &ops, .rank = r, .n_ranks = n}, g};
        out[r] = &c->base;
    }
    return AERIE_OK;
}

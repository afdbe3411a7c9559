/* threads.c - ranks that are threads of one process (comm.h): for tests, in which sanitizers see the whole group.
 *
 * Owns: what the ranks share, until the last of them is closed. In a round a rank offers its piece to each rank that receives,
 * and waits until all of them have copied it; only then may it change the piece. Frames are rounds of all ranks. */
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
    char frame[AE_COMM_FRAME];
    _Atomic(const char *) *offers; /* [n_ranks][n_ranks] the piece that a rank has for another one; NULL: none, or it was
                                    * copied */
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

/* Returns whether no rank has failed. */
static bool goes_on(ae_comm *comm)
{
    if (!atomic_load(&group_of(comm)->failed)) return true;
    atomic_store(&comm->failed, true);
    return false;
}

/* Waits a little, longer from the YIELDS-th time on. false: a rank has failed. */
static bool wait_a_little(ae_comm *comm, uint32_t i)
{
    const struct timespec nap = {0, 50000};
    if (!goes_on(comm)) return false;
    if (i < YIELDS) sched_yield();
    else nanosleep(&nap, NULL);
    return true;
}

/* Waits for all ranks, or until one fails. */
static bool meet(ae_comm *comm)
{
    shared *g = group_of(comm);
    const unsigned long long met = atomic_load(&g->n_met);
    if (atomic_fetch_add(&g->n_waiting, 1) + 1 == g->n_ranks) {
        atomic_store(&g->n_waiting, 0);
        atomic_fetch_add(&g->n_met, 1);
    }
    for (uint32_t i = 0; atomic_load(&g->n_met) == met;)
        if (!wait_a_little(comm, i++)) return false;
    return goes_on(comm);
}

static _Atomic(const char *) *offer(const ae_comm *comm, uint32_t from, uint32_t to)
{
    return &group_of(comm)->offers[(size_t)from * comm->n_ranks + to];
}

static void exchange(ae_comm *comm, char *packed, const size_t *begin, ae_receivers to)
{
    const uint32_t own = comm->rank;
    const char *piece;
    for (uint32_t r = to.first; begin[own + 1] > begin[own] && r < to.first + to.n; r++)
        if (r != own) atomic_store(offer(comm, own, r), packed + begin[own]); /* the one before was copied */
    for (uint32_t r = 0; ae_receives(to, own) && r < comm->n_ranks; r++) {
        if (r == own || begin[r + 1] == begin[r]) continue;
        for (uint32_t i = 0; !(piece = atomic_load(offer(comm, r, own)));)
            if (!wait_a_little(comm, i++)) return;
        memcpy(packed + begin[r], piece, begin[r + 1] - begin[r]);
        atomic_store(offer(comm, r, own), NULL);
    }
    for (uint32_t r = to.first; r < to.first + to.n; r++)
        for (uint32_t i = 0; r != own && atomic_load(offer(comm, own, r));)
            if (!wait_a_little(comm, i++)) return;
    (void)goes_on(comm);
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
    if (atomic_fetch_sub(&g->n_open, 1) > 1) return;
    ae_free(g->offers);
    ae_free(g);
}

aerie_status ae_comm_threads(ae_comm **out, uint32_t n, aerie_error *error)
{
    static const ae_comm_ops ops = {"threads", close_one, exchange, frame, NULL, fail};
    if (!n || n > AE_MAX_RANKS)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a group of %u ranks; 1 to %d are possible", n, AE_MAX_RANKS);
    memset(out, 0, n * sizeof *out);
    shared *g = ae_alloc(1, sizeof *g);
    if (!g) return ae_fail_memory(error, "a group of ranks", sizeof *g);
    g->offers = ae_alloc((size_t)n * n, sizeof *g->offers);
    if (!g->offers) {
        ae_free(g);
        return ae_fail_memory(error, "a group of ranks", (size_t)n * n * sizeof *g->offers);
    }
    g->n_ranks = n;
    atomic_store(&g->n_open, n);
    for (uint32_t r = 0; r < n; r++) {
        thread_comm *c = ae_alloc(1, sizeof *c);
        if (!c) {
            for (uint32_t i = 0; i < r; i++) ae_free(out[i]), out[i] = NULL;
            ae_free(g->offers);
            ae_free(g);
            return ae_fail_memory(error, "a group of ranks", sizeof *c);
        }
        *c = (thread_comm){{.ops = &ops, .rank = r, .n_ranks = n}, g};
        out[r] = &c->base;
    }
    return AERIE_OK;
}

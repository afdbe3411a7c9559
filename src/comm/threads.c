/* threads.c - ranks that are threads of one process (comm.h): for tests, in which sanitizers see the whole group.
 *
 * Owns: what the ranks share, until the last of them is closed. In a round a rank offers its piece to each rank that receives,
 * and waits until all of them have copied it; only then may it change the piece. A rank that waits sleeps: there may be more
 * ranks than CPUs. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "comm/comm.h"

typedef struct place { /* of a rank in the group */
    pthread_cond_t changed; /* something that the rank may wait for */
    const char *piece;      /* what it offers in this round */
    uint32_t n_untaken;     /* ranks that have not copied it yet */
} place;

typedef struct shared {
    uint32_t n_ranks;
    pthread_mutex_t mutex; /* of all that follows */
    uint32_t n_open;
    bool failed;
    bool *offered; /* [n_ranks][n_ranks] whether a rank has a piece for another one that was not copied yet */
    place places[];
} shared;

typedef struct thread_comm {
    ae_comm base;
    shared *group;
} thread_comm;

static shared *group_of(const ae_comm *comm)
{
    return ((const thread_comm *)comm)->group;
}

/* Waits until another rank changes something, with the mutex held. false: a rank has failed. */
static bool wait_for_change(ae_comm *comm)
{
    shared *g = group_of(comm);
    if (!g->failed) pthread_cond_wait(&g->places[comm->rank].changed, &g->mutex);
    if (g->failed) atomic_store(&comm->failed, true);
    return !g->failed;
}

static bool *offered(const ae_comm *comm, uint32_t from, uint32_t to)
{
    return &group_of(comm)->offered[(size_t)from * comm->n_ranks + to];
}

static void offer(ae_comm *comm, const char *piece, ae_receivers to)
{
    shared *g = group_of(comm);
    place *own = &g->places[comm->rank];
    own->piece = piece; /* the one before was copied */
    for (uint32_t r = to.first; r < to.first + to.n; r++) {
        if (r == comm->rank) continue;
        *offered(comm, comm->rank, r) = true, own->n_untaken++;
        pthread_cond_signal(&g->places[r].changed);
    }
}

/* Copies the piece of rank `from`. false: a rank has failed. Then a piece that was offered is not copied, either: the rank that
 * offered it may have left the round and changed it. */
static bool take(ae_comm *comm, uint32_t from, char *to, size_t n_bytes)
{
    place *other = &group_of(comm)->places[from];
    while (group_of(comm)->failed || !*offered(comm, from, comm->rank))
        if (!wait_for_change(comm)) return false;
    memcpy(to, other->piece, n_bytes);
    *offered(comm, from, comm->rank) = false;
    if (!--other->n_untaken) pthread_cond_signal(&other->changed);
    return true;
}

static void exchange(ae_comm *comm, char *packed, const size_t *begin, ae_receivers to)
{
    shared *g = group_of(comm);
    const uint32_t own = comm->rank;
    bool good = true;
    pthread_mutex_lock(&g->mutex);
    if (begin[own + 1] > begin[own]) offer(comm, packed + begin[own], to);
    for (uint32_t r = 0; good && ae_receives(to, own) && r < comm->n_ranks; r++)
        if (r != own && begin[r + 1] > begin[r]) good = take(comm, r, packed + begin[r], begin[r + 1] - begin[r]);
    while (good && g->places[own].n_untaken) good = wait_for_change(comm);
    pthread_mutex_unlock(&g->mutex);
}

static void frame(ae_comm *comm, void *bytes)
{
    shared *g = group_of(comm);
    bool good = true;
    pthread_mutex_lock(&g->mutex);
    if (comm->rank) good = take(comm, 0, bytes, AE_COMM_FRAME);
    else offer(comm, bytes, ae_to_all(comm));
    while (good && g->places[comm->rank].n_untaken) good = wait_for_change(comm);
    pthread_mutex_unlock(&g->mutex);
}

static void fail(ae_comm *comm, const char *reason)
{
    shared *g = group_of(comm);
    (void)reason;
    pthread_mutex_lock(&g->mutex);
    g->failed = true;
    for (uint32_t r = 0; r < g->n_ranks; r++) pthread_cond_signal(&g->places[r].changed);
    pthread_mutex_unlock(&g->mutex);
}

static void free_group(shared *g)
{
    for (uint32_t r = 0; r < g->n_ranks; r++) pthread_cond_destroy(&g->places[r].changed);
    pthread_mutex_destroy(&g->mutex);
    ae_free(g->offered);
    ae_free(g);
}

static void close_one(ae_comm *comm)
{
    shared *g = group_of(comm);
    ae_free(comm);
    pthread_mutex_lock(&g->mutex);
    const bool last = !--g->n_open;
    pthread_mutex_unlock(&g->mutex);
    if (last) free_group(g);
}

aerie_status ae_comm_threads(ae_comm **out, uint32_t n, aerie_error *error)
{
    static const ae_comm_ops ops = {"threads", close_one, exchange, frame, NULL, fail};
    if (!n || n > AE_MAX_RANKS)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a group of %u ranks; 1 to %d are possible", n, AE_MAX_RANKS);
    memset(out, 0, n * sizeof *out);
    shared *g = ae_alloc(1, sizeof *g + n * sizeof g->places[0]);
    if (!g) return ae_fail_memory(error, "a group of ranks", sizeof *g + n * sizeof g->places[0]);
    g->offered = ae_alloc((size_t)n * n, sizeof *g->offered);
    if (!g->offered) {
        ae_free(g);
        return ae_fail_memory(error, "a group of ranks", (size_t)n * n * sizeof *g->offered);
    }
    g->n_ranks = g->n_open = n;
    pthread_mutex_init(&g->mutex, NULL);
    for (uint32_t r = 0; r < n; r++) pthread_cond_init(&g->places[r].changed, NULL);
    for (uint32_t r = 0; r < n; r++) {
        thread_comm *c = ae_alloc(1, sizeof *c);
        if (!c) {
            for (uint32_t i = 0; i < r; i++) ae_free(out[i]), out[i] = NULL;
            free_group(g);
            return ae_fail_memory(error, "a group of ranks", sizeof *c);
        }
        *c = (thread_comm){{.ops = &ops, .rank = r, .n_ranks = n}, g};
        out[r] = &c->base;
    }
    return AERIE_OK;
}

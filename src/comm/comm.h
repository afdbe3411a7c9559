/* comm.h - messages between the ranks of a group: slices of rows, and frames of commands from rank 0.
 *
 * A rank is one of several engines that run one model together, each in its own process or thread. All of them make the same
 * calls in the same order, but for rounds in which a rank neither has a slice nor receives, which it may leave out. A round
 * copies each rank's slice of some rows to the ranks that need it. Nothing here computes with
 * the values, so a value has the same bits wherever it arrives, on any number of ranks.
 *
 * Kinds: `threads`, ranks in one process, for tests, of which one alone sends nothing; `slow`, another kind with added
 * latency and limited bandwidth; `mpi`, processes connected by MPI (mpi.h).
 *
 * Owns: a buffer to pack slices in. Only the functions that create a communicator, and ae_comm_reserve, allocate. Sizes come
 * from the caller, who has them from the plan of the group, never from another rank. One user thread per rank.
 * Failures: when a rank fails, calls return early and their results have no meaning. ae_comm_status reports the failure from
 * then on: a group does not recover.
 */
#ifndef AE_COMM_COMM_H
#define AE_COMM_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define AE_MAX_RANKS 64
#define AE_COMM_FRAME 4096 /* bytes in a frame of commands */

typedef struct ae_comm ae_comm;

/* Which part of a row each rank has: rank r has elements [first[r], first[r] + n[r]). */
typedef struct ae_slices {
    uint32_t first[AE_MAX_RANKS], n[AE_MAX_RANKS];
} ae_slices;

/* The ranks that receive in a round: [first, first + n). */
typedef struct ae_receivers {
    uint32_t first, n;
} ae_receivers;

static inline bool ae_receives(ae_receivers to, uint32_t rank)
{
    return rank >= to.first && rank - to.first < to.n;
}

/* Some rows, each rank having a slice of every row. */
typedef struct ae_comm_part {
    void *rows;       /* (host) [n_rows][stride] elements */
    size_t stride;    /* elements from row to row */
    size_t element;   /* bytes of one */
    uint32_t n_rows;
    const ae_slices *slices;
} ae_comm_part;

typedef struct ae_comm_counts {
    uint64_t n_rounds, n_frames;
    uint64_t n_sent, n_received; /* bytes sent and received in rounds; bytes sent to several ranks count several times */
    double seconds;              /* time that rounds took, waiting included */
} ae_comm_counts;

typedef struct ae_comm_ops {
    const char *name;
    void (*close)(ae_comm *comm);
    /* Piece r is packed[begin[r] .. begin[r + 1]); the rank's own piece is filled in. Afterwards the receivers have all pieces.
     * Called by them, and by ranks whose piece is not empty. */
    void (*exchange)(ae_comm *comm, char *packed, const size_t *begin, ae_receivers to);
    /* Sends bytes [AE_COMM_FRAME] from rank 0 to all ranks. */
    void (*frame)(ae_comm *comm, void *bytes);
    /* From now on a round that takes longer than this many seconds is a failure. NULL: this kind has no limit. */
    void (*limit)(ae_comm *comm, double seconds);
    /* Declares that this rank has failed. `reason` is for the log of the group's operator. */
    void (*fail)(ae_comm *comm, const char *reason);
} ae_comm_ops;

struct ae_comm {
    const ae_comm_ops *ops;
    uint32_t rank, n_ranks;
    ae_comm_counts counts;
    char *packed;       /* [room] */
    size_t room;
    atomic_bool failed;
};

/* Makes room for rounds of up to `bytes` bytes in all. Must be called before any round. MEMORY. */
aerie_status ae_comm_reserve(ae_comm *comm, size_t bytes, aerie_error *error);
void ae_comm_close(ae_comm *comm); /* NULL is allowed */

static inline ae_receivers ae_to_all(const ae_comm *comm)
{
    return (ae_receivers){0, comm->n_ranks};
}

static inline ae_receivers ae_to_first(void)
{
    return (ae_receivers){0, 1};
}

/* Runs one round for all parts [n]; this rank's slices must be valid. Afterwards all slices are valid on the receivers. Does
 * nothing, and counts nothing, on a rank that neither has a slice nor receives. */
void ae_comm_gather(ae_comm *comm, const ae_comm_part *parts, uint32_t n, ae_receivers to);
void ae_comm_frame(ae_comm *comm, void *bytes);
void ae_comm_limit(ae_comm *comm, double seconds); /* 0: no limit, the default */
void ae_comm_fail(ae_comm *comm, const char *reason);
/* UNSUPPORTED once a rank has failed. */
aerie_status ae_comm_status(const ae_comm *comm, aerie_error *error);

/* ---- threads.c ---- */

/* Creates n ranks in this process, in out[n]; each is closed separately. When the group fails, no rank waits any longer.
 * ARGUMENT, MEMORY. */
aerie_status ae_comm_threads(ae_comm **out, uint32_t n, aerie_error *error);

/* ---- slow.c ---- */

typedef struct ae_comm_delay {
    double latency;   /* seconds per round */
    double bandwidth; /* bytes per second that a rank can receive; 0: unlimited */
    double jitter;    /* a round's time is multiplied by a number from 1 - jitter to 1 + jitter; below 1 */
    uint64_t seed;
} ae_comm_delay;

/* Parses "latency=200us,bandwidth=117MB,jitter=0.1,seed=1", in any order; units are s, ms, us and kB, MB, GB. ARGUMENT: the
 * message says what is wrong. */
aerie_status ae_comm_delay_parse(const char *text, ae_comm_delay *delay, aerie_error *error);
/* Wraps `inner`, of which it takes ownership, so that rounds end no earlier than latency and bandwidth allow. Ranks that take
 * part in the same rounds draw the same jitter. */
aerie_status ae_comm_slow(ae_comm **out, ae_comm *inner, const ae_comm_delay *delay, aerie_error *error);

#endif

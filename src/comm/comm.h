/* comm.h - what the ranks of a group tell each other: slices of rows, and frames of commands from rank 0.
 *
 * A rank is one of several engines that run one model together, each in its own process or thread. All of them make the same
 * calls in the same order. A round copies each rank's slice of some rows to those who need it; nothing here computes with what
 * it carries, so that a value has the same bits wherever it arrives, on any number of ranks.
 *
 * Kinds: `self` one rank alone; `threads` ranks in one process, for tests; `slow` another one with latency and bandwidth;
 * `mpi` processes, by MPI (mpi.h).
 *
 * Owns: a buffer to pack slices in. No call but those that create allocates. Sizes come from the caller, who has them from the
 * plan of the group, never from another rank. One user thread for each rank.
 * Failures: when a rank fails, calls return early and what they give means nothing; ae_comm_status says so once and for all:
 * a group does not recover.
 */
#ifndef AE_COMM_COMM_H
#define AE_COMM_COMM_H

#include <stdatomic.h>

#include "base/err.h"

#define AE_MAX_RANKS 64
#define AE_COMM_FRAME 4096 /* bytes of a frame of commands */
#define AE_COMM_ALL (-1)   /* root of a round whose slices all ranks need */

typedef struct ae_comm ae_comm;

/* Which floats of a row are whose: rank r has [first[r], first[r] + n[r]). */
typedef struct ae_slices {
    uint32_t first[AE_MAX_RANKS], n[AE_MAX_RANKS];
} ae_slices;

typedef struct ae_comm_counts {
    uint64_t n_rounds, n_frames;
    uint64_t n_sent, n_received; /* bytes of rounds; what goes to several ranks counts as often */
    double seconds;              /* that rounds took, waiting included */
} ae_comm_counts;

typedef struct ae_comm_ops {
    const char *name;
    void (*close)(ae_comm *comm);
    /* Piece r is packed[begin[r] .. begin[r + 1]); the own one is there. Afterwards `root` has all of them, or, AE_COMM_ALL,
     * every rank has. */
    void (*exchange)(ae_comm *comm, char *packed, const size_t *begin, int root);
    /* bytes [AE_COMM_FRAME] of rank 0 to all. */
    void (*frame)(ae_comm *comm, void *bytes);
    /* From now on a round that takes longer than so many seconds is a failure; NULL: no such thing. */
    void (*limit)(ae_comm *comm, double seconds);
    /* This rank has failed; reason is for the log of whoever runs the group. */
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

/* Makes room for rounds of up to `bytes` in all; before any round. */
aerie_status ae_comm_reserve(ae_comm *comm, size_t bytes, aerie_error *error);
void ae_comm_close(ae_comm *comm); /* NULL is fine */

/* rows [n_rows][stride] of f32 on the host, of each the own slice valid. Afterwards all slices are, on rank `root` or, with
 * AE_COMM_ALL, on every rank. */
void ae_comm_gather(ae_comm *comm, float *rows, size_t stride, const ae_slices *slices, uint32_t n_rows, int root);
void ae_comm_frame(ae_comm *comm, void *bytes);
void ae_comm_limit(ae_comm *comm, double seconds); /* 0: none, as at first */
void ae_comm_fail(ae_comm *comm, const char *reason);
/* UNSUPPORTED for good once a rank has failed. */
aerie_status ae_comm_status(const ae_comm *comm, aerie_error *error);

/* ---- self.c ---- */

/* One rank. */
aerie_status ae_comm_self(ae_comm **out, aerie_error *error);

/* ---- threads.c ---- */

/* n ranks of this process, to out[n]; each is closed by itself. A group that has failed lets nobody wait. */
aerie_status ae_comm_threads(ae_comm **out, uint32_t n, aerie_error *error);

/* ---- slow.c ---- */

typedef struct ae_comm_delay {
    double latency;   /* seconds of a round */
    double bandwidth; /* bytes a second that a rank can receive; 0: any number */
    double jitter;    /* a round's time is multiplied by 1 - jitter to 1 + jitter; below 1 */
    uint64_t seed;
} ae_comm_delay;

/* "latency=200us,bandwidth=117MB,jitter=0.1,seed=1", in any order; s, ms, us; kB, MB, GB. ARGUMENT: what is wrong. */
aerie_status ae_comm_delay_parse(const char *text, ae_comm_delay *delay, aerie_error *error);
/* Rounds of `inner`, which is taken over, that end no earlier than latency and bandwidth allow. All ranks draw the same
 * jitter. */
aerie_status ae_comm_slow(ae_comm **out, ae_comm *inner, const ae_comm_delay *delay, aerie_error *error);

#endif

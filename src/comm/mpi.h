/* mpi.h - ranks that are processes, by MPI: started by mpirun, srun or the like (comm.h).
 *
 * MPI has no authentication and no encryption: whoever reaches the ranks' ports can take part. So a group does not start where
 * MPI may use a public address (network.c), unless the caller insists.
 * A group is crash-only: a rank that fails, or that waits for longer than the limit, says why and ends all processes; who
 * started them starts them again.
 */
#ifndef AE_COMM_MPI_H
#define AE_COMM_MPI_H

#include "comm/comm.h"

/* Told why this rank ends all of them; it does so after this. */
typedef void ae_comm_last_words(void *user, const char *reason);

typedef struct ae_comm_mpi_options {
    const char *module;  /* path of the shared object; NULL: AERIE_MPI_MODULE, else looked for beside the library */
    bool insecure;       /* public addresses may be used */
    ae_comm_last_words *last_words; /* or NULL */
    void *user;
} ae_comm_mpi_options;

/* The host's name, for messages. */
void ae_comm_mpi_host(const ae_comm *comm, char *name, size_t room);
/* How many ranks this process was started with, and its number to *rank (or NULL), by the environment that launchers set; 0: it
 * was not started as a rank. */
uint32_t ae_comm_mpi_started(uint32_t *rank);
/* UNSUPPORTED: there is no module, or MPI cannot be used (why, and what would help); ARGUMENT: public addresses. */
aerie_status ae_comm_mpi(ae_comm **out, const ae_comm_mpi_options *options, aerie_error *error);

/* ---- network.c ---- */

/* ARGUMENT if one of the host's addresses that MPI may use is public: neither private (RFC 1918, unique local), shared
 * (100.64/10), link-local nor loopback. */
aerie_status ae_comm_check_network(aerie_error *error);
/* Whether such an address is public: bytes [4] or [16], as the network has them. */
bool ae_comm_is_public(const uint8_t *bytes, size_t n);

#endif

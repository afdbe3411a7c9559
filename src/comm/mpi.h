/* mpi.h - ranks that are processes, connected by MPI and started by mpirun, srun or similar (comm.h).
 *
 * MPI has no authentication and no encryption: whoever can reach the ranks' ports can take part. So a group does not start if
 * MPI may use a public address (network.c), unless the caller insists.
 * A group is crash-only: a rank that fails, or that waits for longer than the limit, says why and ends all processes; whoever
 * started them starts them again.
 */
#ifndef AE_COMM_MPI_H
#define AE_COMM_MPI_H

#include "comm/comm.h"

/* Called with the reason before this rank ends all processes. */
typedef void ae_comm_last_words(void *user, const char *reason);

typedef struct ae_comm_mpi_options {
    const char *module;  /* path of the module; NULL: AERIE_MPI_MODULE, or the module next to the library */
    bool insecure;       /* public addresses may be used */
    ae_comm_last_words *last_words; /* or NULL */
    void *user;
} ae_comm_mpi_options;

/* Writes the host's name, for messages. */
void ae_comm_mpi_host(const ae_comm *comm, char *name, size_t room);
/* Returns how many ranks this process was started with, by the environment that launchers set, and writes its own number to
 * *rank (or NULL). Returns 0 if it was not started as a rank. */
uint32_t ae_comm_mpi_started(uint32_t *rank);
/* Joins the group. UNSUPPORTED: there is no module, or MPI cannot be used (the message says why, and what would help).
 * ARGUMENT: public addresses. MEMORY. */
aerie_status ae_comm_mpi(ae_comm **out, const ae_comm_mpi_options *options, aerie_error *error);

/* ---- network.c ---- */

/* ARGUMENT if one of the host's addresses that MPI may use is public: neither private (RFC 1918, unique local), shared
 * (100.64/10), link-local nor loopback. */
aerie_status ae_comm_check_network(aerie_error *error);
/* Returns whether an address is public: bytes [4] or [16] in network order. */
bool ae_comm_is_public(const uint8_t *bytes, size_t n);

#endif

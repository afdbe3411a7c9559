/* module.c - the part of the library that links MPI, a shared object of its own (mpi_table.h). MPI-3.1.
 *
 * Rounds are point-to-point, which costs one latency for the numbers of ranks that are supported. All data are bytes, and both
 * sides know sizes from their callers; a message of another size is an error. Owns a communicator. One user thread at a
 * time. */
#define _POSIX_C_SOURCE 200809L
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/mpi_table.h"

#define MOST 64 /* AE_MAX_RANKS */
#define TAG_SLICES 1

static MPI_Comm group = MPI_COMM_NULL; /* one for the whole process, like MPI itself */
static int own, n_ranks;

static int report(int code, const char *what, char *reason)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (code == MPI_SUCCESS) return 0;
    MPI_Error_string(code, text, &n);
    snprintf(reason, AE_MPI_TEXT, "MPI: %s: %.180s", what, text);
    return 1;
}

static int start(uint32_t *rank, uint32_t *n, char *reason)
{
    int begun = 0, ended = 0, provided = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    if (begun || ended) {
        snprintf(reason, AE_MPI_TEXT, "a process is a rank of one group only, for one model");
        return 1;
    }
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    if (code == MPI_SUCCESS && provided < MPI_THREAD_SERIALIZED) {
        snprintf(reason, AE_MPI_TEXT, "this MPI takes calls from one thread only; one built with threads is needed");
        return 1;
    }
    if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &group);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(group, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) code = MPI_Comm_rank(group, &own);
    if (code == MPI_SUCCESS) code = MPI_Comm_size(group, &n_ranks);
    if (report(code, "starting", reason)) return 1;
    if (n_ranks > MOST) {
        snprintf(reason, AE_MPI_TEXT, "a group of %d ranks; at most %d are possible", n_ranks, MOST);
        return 1;
    }
    *rank = (uint32_t)own;
    *n = (uint32_t)n_ranks;
    return 0;
}

/* Waits for requests, yielding the core: ranks that share cores would otherwise block each other. */
static int wait_all(int n, MPI_Request *requests, MPI_Status *statuses)
{
    int done = 0, code = MPI_SUCCESS;
    for (uint32_t i = 0; !done && code == MPI_SUCCESS; i++) {
        code = MPI_Testall(n, requests, &done, statuses);
        if (!done && i > 200) sched_yield();
    }
    return code;
}

static int exchange(char *packed, const size_t *begin, int first, int end, char *reason)
{
    MPI_Request requests[2 * MOST];
    MPI_Status statuses[2 * MOST];
    int sizes[MOST], n = 0, n_receive, code = MPI_SUCCESS;
    const int mine = (int)(begin[own + 1] - begin[own]);
    if (begin[n_ranks] > INT_MAX) {
        snprintf(reason, AE_MPI_TEXT, "a round of %zu bytes; please report", begin[n_ranks]);
        return 1;
    }
    for (int r = 0; r < n_ranks && code == MPI_SUCCESS; r++) {
        const int size = (int)(begin[r + 1] - begin[r]);
        if (r == own || !size || own < first || own >= end) continue;
        sizes[n] = size;
        code = MPI_Irecv(packed + begin[r], size, MPI_BYTE, r, TAG_SLICES, group, &requests[n++]);
    }
    n_receive = n;
    /* each rank starts with another peer, so that no rank gets all messages at once */
    for (int k = 1; k < n_ranks && code == MPI_SUCCESS; k++) {
        const int r = (own + k) % n_ranks;
        if (!mine || r < first || r >= end) continue;
        code = MPI_Isend(packed + begin[own], mine, MPI_BYTE, r, TAG_SLICES, group, &requests[n++]);
    }
    if (code == MPI_SUCCESS) code = wait_all(n, requests, statuses);
    for (int i = 0; i < n_receive && code == MPI_SUCCESS; i++) { /* checks sizes, since MPI itself refuses only messages that
                                                                  * are too long */
        int size = 0;
        code = MPI_Get_count(&statuses[i], MPI_BYTE, &size);
        if (code != MPI_SUCCESS || size == sizes[i]) continue;
        snprintf(reason, AE_MPI_TEXT, "rank %d sent %d bytes where %d were due", statuses[i].MPI_SOURCE, size, sizes[i]);
        return 1;
    }
    return report(code, "a round", reason);
}

#define SPINS 2000 /* polls before a rank that has nothing to do sleeps */

static int frame(void *bytes, size_t n, char *reason)
{
    MPI_Request request;
    long nap = 20000;
    int done = 0, code = MPI_Ibcast(bytes, (int)n, MPI_BYTE, 0, group, &request);
    for (uint32_t i = 0; !done && code == MPI_SUCCESS; i++) {
        code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done || i < 200) continue;
        if (own == 0 || i < SPINS) {
            sched_yield();
        } else {
            nanosleep(&(struct timespec){0, nap}, NULL);
            if (nap < 1000000) nap += nap / 8;
        }
    }
    return report(code, "a frame", reason);
}

static void host(char *name, size_t room)
{
    char own_name[MPI_MAX_PROCESSOR_NAME] = "";
    int n = 0;
    MPI_Get_processor_name(own_name, &n);
    snprintf(name, room, "%s", own_name);
}

static void end(void)
{
    if (group != MPI_COMM_NULL) MPI_Comm_free(&group);
    MPI_Finalize();
}

static void give_up(int status)
{
    MPI_Abort(MPI_COMM_WORLD, status);
}

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const ae_mpi_table *ae_mpi_table_get(void);

const ae_mpi_table *ae_mpi_table_get(void)
{
    static const ae_mpi_table table = {AE_MPI_VERSION, start, exchange, frame, host, end, give_up};
    return &table;
}

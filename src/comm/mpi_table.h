/* mpi_table.h - the functions that the module that links MPI offers to the library, which does not link it: a table in a shared
 * object that is loaded only for a group. Module and library are of one build. Owns nothing. */
#ifndef AE_COMM_MPI_TABLE_H
#define AE_COMM_MPI_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define AE_MPI_SYMBOL "ae_mpi_table_get"
#define AE_MPI_VERSION 2
#define AE_MPI_TEXT 256 /* bytes for a reason */

/* Functions return 0, or write the reason of a failure to reason [AE_MPI_TEXT]. begin [n + 1] is as in ae_comm_ops.exchange;
 * ranks [first, end) receive. */
typedef struct ae_mpi_table {
    uint32_t version;
    int (*start)(uint32_t *rank, uint32_t *n_ranks, char *reason);
    int (*exchange)(char *packed, const size_t *begin, int first, int end, char *reason);
    int (*frame)(void *bytes, size_t n, char *reason);
    void (*host)(char *name, size_t room);
    void (*end)(void);       /* called when all ranks are done */
    void (*give_up)(int status); /* ends the processes of all ranks; does not return */
} ae_mpi_table;

typedef const ae_mpi_table *ae_mpi_table_fn(void);

#endif

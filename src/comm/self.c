/* self.c - a group of one rank: nothing is ever sent (comm.h). */
#include "base/mem.h"
#include "comm/comm.h"

static void close_self(ae_comm *comm)
{
    ae_free(comm);
}

static void exchange(ae_comm *comm, char *packed, const size_t *begin, int root)
{
    (void)comm, (void)packed, (void)begin, (void)root;
}

static void frame(ae_comm *comm, void *bytes)
{
    (void)comm, (void)bytes;
}

static void fail(ae_comm *comm, const char *reason)
{
    (void)comm, (void)reason;
}

aerie_status ae_comm_self(ae_comm **out, aerie_error *error)
{
    static const ae_comm_ops ops = {"self", close_self, exchange, frame, NULL, fail};
    ae_comm *comm = ae_alloc(1, sizeof *comm);
    *out = comm;
    if (!comm) return ae_fail_memory(error, "a group of ranks", sizeof *comm);
    *comm = (ae_comm){.ops = &ops, .n_ranks = 1};
    return AERIE_OK;
}

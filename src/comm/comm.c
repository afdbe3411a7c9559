/* comm.c - what all kinds of communicators share: packing, counting and unpacking slices (comm.h). Owns the buffer. */
#include "comm/comm.h"

#include <string.h>

#include "base/mem.h"
#include "base/os.h"

aerie_status ae_comm_reserve(ae_comm *comm, size_t bytes, aerie_error *error)
{
    if (bytes <= comm->room) return AERIE_OK;
    char *packed = ae_alloc_aligned(1, bytes);
    if (!packed) return ae_fail_memory(error, "what ranks exchange", bytes);
    ae_free(comm->packed);
    comm->packed = packed;
    comm->room = bytes;
    return AERIE_OK;
}

void ae_comm_close(ae_comm *comm)
{
    if (!comm) return;
    ae_free(comm->packed);
    comm->packed = NULL;
    comm->ops->close(comm);
}

/* Copies rank r's slices of a part between the part's rows and a piece, in which they follow each other without gaps. Returns
 * where the piece continues. */
static char *pack(const ae_comm_part *p, uint32_t r, char *piece, bool out)
{
    const size_t bytes = p->slices->n[r] * p->element, step = p->stride * p->element;
    char *row = (char *)p->rows + p->slices->first[r] * p->element;
    for (uint32_t i = 0; bytes && i < p->n_rows; i++, piece += bytes, row += step) {
        if (out) memcpy(piece, row, bytes);
        else memcpy(row, piece, bytes);
    }
    return piece;
}

static void count(ae_comm *comm, const size_t *begin, ae_receivers to)
{
    const uint32_t own = comm->rank;
    const size_t all = begin[comm->n_ranks], mine = begin[own + 1] - begin[own];
    comm->counts.n_rounds++;
    comm->counts.n_sent += mine * (to.n - ae_receives(to, own));
    if (ae_receives(to, own)) comm->counts.n_received += all - mine;
}

void ae_comm_gather(ae_comm *comm, const ae_comm_part *parts, uint32_t n, ae_receivers to)
{
    size_t begin[AE_MAX_RANKS + 1] = {0};
    const uint32_t own = comm->rank;
    if (comm->n_ranks == 1 || atomic_load(&comm->failed)) return;
    for (uint32_t r = 0; r < comm->n_ranks; r++) {
        begin[r + 1] = begin[r];
        for (uint32_t i = 0; i < n; i++) begin[r + 1] += parts[i].slices->n[r] * parts[i].element * parts[i].n_rows;
    }
    if (begin[own + 1] == begin[own] && !ae_receives(to, own)) return;
    if (begin[comm->n_ranks] > comm->room) { /* the plan of the group was wrong: nothing is written */
        ae_comm_fail(comm, "a round is larger than was planned; please report");
        return;
    }
    const double start = ae_time_now();
    char *piece = comm->packed + begin[own];
    for (uint32_t i = 0; i < n; i++) piece = pack(&parts[i], own, piece, true);
    comm->ops->exchange(comm, comm->packed, begin, to);
    count(comm, begin, to);
    comm->counts.seconds += ae_time_now() - start;
    if (atomic_load(&comm->failed) || !ae_receives(to, own)) return;
    for (uint32_t r = 0; r < comm->n_ranks; r++) {
        piece = comm->packed + begin[r];
        for (uint32_t i = 0; r != own && i < n; i++) piece = pack(&parts[i], r, piece, false);
    }
}

void ae_comm_frame(ae_comm *comm, void *bytes)
{
    if (comm->n_ranks == 1 || atomic_load(&comm->failed)) return;
    comm->ops->frame(comm, bytes);
    comm->counts.n_frames++;
}

void ae_comm_limit(ae_comm *comm, double seconds)
{
    if (comm->ops->limit) comm->ops->limit(comm, seconds);
}

void ae_comm_fail(ae_comm *comm, const char *reason)
{
    if (!atomic_exchange(&comm->failed, true)) comm->ops->fail(comm, reason);
}

aerie_status ae_comm_status(const ae_comm *comm, aerie_error *error)
{
    if (!atomic_load(&comm->failed)) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "a rank of the group that runs this model has failed; see its own message. "
                   "Start the group again");
}

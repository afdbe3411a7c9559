/* ranks.c - gathers the slices of rows that the ranks of a group have computed (weights/ranks.h). It only copies; no
 * value changes. Owns nothing. */
#include "engine/layers/block.h"

void ae_block_gather(const ae_block_group *g, const ae_backend_ops *ops, ae_stream *stream, float *rows, size_t stride,
                     const ae_slices *slices, uint32_t n_rows, int root)
{
    const size_t bytes = n_rows * stride * sizeof *rows;
    ae_comm *comm = g->ranks->comm;
    const bool gets = root == AE_COMM_ALL || (uint32_t)root == comm->rank, gives = slices->n[comm->rank] > 0;
    if (comm->n_ranks == 1 || !n_rows) return;
    if (gives) ops->download(stream, g->room, rows, bytes);
    ae_comm_gather(comm, g->room, stride, slices, n_rows, root);
    if (gets) ops->upload(stream, rows, g->room, bytes);
}

/* Copies narrow rows into columns [first, first + n) of wide ones. */
static void widen(const ae_block *b, const float *narrow, uint32_t n, float *wide, size_t stride, uint32_t first)
{
    if (n)
        b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = n, .x = narrow, .x_stride = n, .y = wide + first,
                                           .y_stride = stride});
}

void ae_block_gather_input(const ae_block *b, ae_matmul *m, const ae_slices *slices, float *wide, uint32_t width)
{
    const uint32_t own = b->group->ranks->own, n = slices->n[own];
    if (m->input == AE_INPUT_GLU && n)
        b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_GLU, .n_rows = b->n_rows, .dim = n, .x = (float *)m->x,
                                         .x_stride = m->x_stride, .x2 = m->x2, .x2_stride = m->x_stride, .glu = m->glu,
                                         .glu_limit = m->glu_limit});
    widen(b, m->x, n, wide, width, slices->first[own]);
    ae_block_gather(b->group, b->ops, b->stream, wide, width, slices, b->n_rows, AE_COMM_ALL);
    *m = (ae_matmul){.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = wide, .x_stride = width};
}

float *ae_block_own(const ae_block *b, float *y, bool is_cut)
{
    return is_cut ? y + b->group->ranks->embd.first[b->group->ranks->own] : y;
}

void ae_block_gather_stream(const ae_block *b, float *y)
{
    const ae_ranks *r = b->group->ranks;
    ae_block_gather(b->group, b->ops, b->stream, y, b->h->n_embd, &r->embd, b->n_rows, AE_COMM_ALL);
}

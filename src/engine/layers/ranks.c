/* ranks.c - gathers the slices of rows that the ranks of a group have computed (weights/ranks.h), as numbers or as the codes
 * that the next product would make of them anyway, and does what needs whole rows first: GLU, norms over all heads. Owns
 * nothing. */
#include "engine/layers/block.h"

#define MOST_PARTS (AE_RECUR_RUNS + 1)

void ae_block_gather(const ae_block_group *g, const ae_backend_ops *ops, ae_stream *stream, const ae_block_slices *wide,
                     uint32_t n, ae_receivers to)
{
    ae_comm *comm = g->ranks->comm;
    const bool gets = ae_receives(to, comm->rank);
    ae_comm_part parts[MOST_PARTS];
    float *room = g->room;
    uint32_t n_parts = 0;
    if (comm->n_ranks == 1 || !n || !wide->n_rows) return;
    for (uint32_t i = 0; i < n; i++) {
        const ae_block_slices *w = &wide[i];
        bool gives = false;
        for (uint32_t k = 0; k < w->n; k++) {
            gives |= w->slices[k].n[comm->rank] > 0;
            parts[n_parts++] = (ae_comm_part){room, w->stride, sizeof *room, w->n_rows, &w->slices[k]};
        }
        if (gives) ops->download(stream, room, w->rows, w->n_rows * w->stride * sizeof *room);
        room += w->n_rows * w->stride;
    }
    ae_comm_gather(comm, parts, n_parts, to);
    room = g->room;
    for (uint32_t i = 0; gets && i < n; i++) {
        const size_t size = wide[i].n_rows * wide[i].stride;
        ops->upload(stream, wide[i].rows, room, size * sizeof *room);
        room += size;
    }
}

/* Copies narrow rows into columns [first, first + n) of wide ones. */
static void widen(const ae_block *b, const float *narrow, uint32_t n, float *wide, size_t stride, uint32_t first)
{
    if (n)
        b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = n, .x = narrow, .x_stride = n, .y = wide + first,
                                           .y_stride = stride});
}

/* The ranks that split this rank's layers. */
static ae_receivers stage_of(const ae_block *b)
{
    return ae_ranks_of(b->group->ranks, b->group->ranks->stage);
}

static void gather(const ae_block *b, float *rows, size_t stride, const ae_slices *slices, uint32_t n)
{
    ae_block_gather(b->group, b->ops, b->stream, &(ae_block_slices){rows, stride, b->n_rows, slices, n}, 1, stage_of(b));
}

void ae_block_gather_recur(const ae_block *b, const float *narrow, uint32_t n, float *wide, uint32_t width)
{
    const ae_recur_cut *cut = &b->group->ranks->recur;
    const uint32_t own = b->group->ranks->own;
    for (uint32_t i = 0, at = 0; i < cut->n_slices; at += cut->slices[i++].n[own])
        if (cut->slices[i].n[own])
            b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = cut->slices[i].n[own], .x = narrow + at, .x_stride = n,
                                               .y = wide + cut->slices[i].first[own], .y_stride = width});
    gather(b, wide, width, cut->slices, cut->n_slices);
}

void ae_block_gather_hidden(const ae_block *b, uint32_t n_used)
{
    const ae_ranks *r = b->group->ranks;
    const ae_expert_hparams *x = &b->h->experts;
    const bool shared = x->n_ff_shared && !x->n_latent; /* otherwise the shared expert runs as a block of its own */
    const ae_block_slices parts[] = {{b->hidden, x->n_ff, b->n_rows * n_used, &r->expert_ff, 1},
                                     {b->hidden_shared, x->n_ff_shared, b->n_rows, &r->shared_ff, 1}};
    const uint32_t first = n_used ? 0 : 1, n = (n_used > 0) + shared;
    ae_block_gather(b->group, b->ops, b->stream, parts + first, n, stage_of(b));
}

/* Makes blocks of narrow rows [n_rows][n] in place and copies them to wide rows, of blocks too, which are gathered. */
static void gather_blocks(const ae_block *b, const float *narrow, uint32_t n, const ae_slices *slices, float *wide,
                          uint32_t width, uint32_t block)
{
    ae_slices in_blocks;
    const uint32_t n_floats = ae_block_floats(n, block);
    for (uint32_t r = 0; r < b->group->ranks->n; r++)
        in_blocks.first[r] = ae_block_floats(slices->first[r], block), in_blocks.n[r] = ae_block_floats(slices->n[r], block);
    if (n) {
        b->ops->map(b->stream, &(ae_map){.kind = block == 32 ? AE_MAP_BLOCKS_32 : AE_MAP_BLOCKS_256, .n_rows = b->n_rows,
                                         .dim = n, .x = (float *)(uintptr_t)narrow, .x_stride = n});
        b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = n_floats, .x = narrow, .x_stride = n,
                                           .y = wide + in_blocks.first[b->group->ranks->own],
                                           .y_stride = ae_block_floats(width, block)});
    }
    gather(b, wide, ae_block_floats(width, block), &in_blocks, 1);
}

void ae_block_gather_input(const ae_block *b, ae_matmul *m, const ae_slices *slices, float *wide, uint32_t width,
                           uint32_t block)
{
    const uint32_t own = b->group->ranks->own, n = slices->n[own];
    if (!b->group->codes) block = 0;
    if (m->input == AE_INPUT_GLU && n)
        b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_GLU, .n_rows = b->n_rows, .dim = n, .x = (float *)m->x,
                                         .x_stride = m->x_stride, .x2 = m->x2, .x2_stride = m->x_stride, .glu = m->glu,
                                         .glu_limit = m->glu_limit, .up_limit = m->up_limit});
    if (block) {
        gather_blocks(b, m->x, n, slices, wide, width, block);
        *m = (ae_matmul){.n_rows = b->n_rows, .input = AE_INPUT_BLOCKS, .x = wide, .x_stride = ae_block_floats(width, block)};
        return;
    }
    widen(b, m->x, n, wide, width, slices->first[own]);
    gather(b, wide, width, slices, 1);
    *m = (ae_matmul){.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = wide, .x_stride = width};
}

float *ae_block_own(const ae_block *b, float *y, bool is_cut)
{
    return is_cut ? y + b->group->ranks->embd.first[b->group->ranks->own] : y;
}

void ae_block_gather_stream(const ae_block *b, float *y)
{
    gather(b, y, b->h->n_embd, &b->group->ranks->embd, 1);
}

void ae_block_gather_latent(const ae_block *b, float *y)
{
    gather(b, y, b->h->experts.n_latent, &b->group->ranks->latent, 1);
}

/* Norms rows of all heads in place, and copies this rank's columns back. */
static void norm_and_narrow(const ae_block *b, const ae_layer_spec *s, float *wide, uint32_t width, const float *weight,
                            const float *bias, float *narrow, uint32_t first, uint32_t n)
{
    b->ops->norm(b->stream, &(ae_norm){.n_rows = b->n_rows, .n_groups = 1, .dim = width, .x = wide, .x_stride = width,
                                       .weight = weight ? weight : b->ones, .eps = b->h->norm_eps,
                                       .layer = s->qk_norm == AE_QK_NORM_ROW_LAYER});
    if (bias) b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, width, 1.0f, bias, 0, wide, width});
    b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = n, .x = wide + first, .x_stride = width, .y = narrow,
                                       .y_stride = n});
}

void ae_block_norm_rows(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l, const ae_layer_cut *cut)
{
    const uint32_t d = s->head_dim, q_dim = s->n_heads * d, k_dim = s->n_kv_heads * d, group = s->n_heads / s->n_kv_heads;
    const uint32_t first_q = cut->first_head * d, first_k = cut->first_kv_head * d;
    const uint32_t own_q = cut->own.n_heads * d, own_k = cut->own.n_kv_heads * d;
    const bool has_keys = s->kv_from == (int)l->index;
    ae_slices keys = {{0}, {0}};
    for (uint32_t r = 0; r < b->group->ranks->n; r++)
        keys.first[r] = cut->attn.first[r] / group, keys.n[r] = cut->attn.n[r] / group;
    const ae_block_slices rows[] = {{b->attn, q_dim, b->n_rows, &cut->attn, 1}, {b->wide_k, k_dim, b->n_rows, &keys, 1}};
    widen(b, b->q, own_q, b->attn, q_dim, first_q);
    if (has_keys) widen(b, b->k, own_k, b->wide_k, k_dim, first_k);
    ae_block_gather(b->group, b->ops, b->stream, rows, 1 + has_keys, stage_of(b));
    if (!own_q) return;
    norm_and_narrow(b, s, b->attn, q_dim, l->q_norm, l->q_norm_b, b->q, first_q, own_q);
    if (has_keys) norm_and_narrow(b, s, b->wide_k, k_dim, l->k_norm, l->k_norm_b, b->k, first_k, own_k);
}

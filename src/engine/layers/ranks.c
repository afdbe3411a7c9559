/* ranks.c - gathers the slices of rows that the ranks of a group have computed (weights/ranks.h), as numbers or as the codes
 * that the next product would make of them anyway, and does what needs whole rows first: GLU, norms over all heads. Owns
 * nothing. */
#include "engine/layers/block.h"

#define MOST_PARTS (AE_RECUR_RUNS + 1)

void ae_block_layout_group(ae_layout *l, const ae_hparams *h, const ae_layer *layers, size_t n, bool codes, ae_block *b)
{
    const ae_expert_hparams *x = &h->experts;
    const uint32_t n_out = x->n_latent > h->n_embd ? x->n_latent : h->n_embd;
    bool norms_rows = false;
    for (uint32_t k = 0; k < h->n_layers; k++) norms_rows |= ae_ranks_norms_rows(&layers[k].spec);
    b->wide_k = ae_layout_add(l, norms_rows ? n * ae_model_widths(layers, h->n_layers).kv : 0, sizeof(float));
    if (!x->n) return;
    b->hidden = ae_layout_add(l, n * x->n_used * x->n_ff, sizeof(float));
    b->hidden_shared = ae_layout_add(l, n * x->n_ff_shared, sizeof(float));
    b->hidden_codes = ae_layout_add(l, codes ? n * x->n_used * ae_block_floats(x->n_ff, 32) : 0, sizeof(float));
    b->shared_codes = ae_layout_add(l, codes ? n * ae_block_floats(x->n_ff_shared, 32) : 0, sizeof(float));
    b->narrow = ae_layout_add(l, n * n_out, sizeof(float));
}

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

/* Returns where values that begin at `at` lie in rows of blocks; block 0: in rows of values. Also how many floats `at` values
 * take. */
static uint32_t place_of(uint32_t at, uint32_t block)
{
    return block ? ae_block_floats(at, block) : at;
}

static ae_slices slices_in(const ae_block *b, const ae_slices *slices, uint32_t block)
{
    ae_slices in = *slices;
    for (uint32_t r = 0; r < b->group->ranks->n; r++)
        in.first[r] = place_of(in.first[r], block), in.n[r] = place_of(in.n[r], block);
    return in;
}

/* Makes blocks of rows [n_rows][n], in place. */
static void make_blocks(const ae_block *b, uint32_t n_rows, float *rows, uint32_t n, uint32_t block)
{
    b->ops->map(b->stream, &(ae_map){.kind = block == 32 ? AE_MAP_BLOCKS_32 : AE_MAP_BLOCKS_256, .n_rows = n_rows, .dim = n,
                                     .x = rows, .x_stride = n});
}

void ae_block_gather_recur(const ae_block *b, float *narrow, uint32_t n, float *wide, uint32_t width, uint32_t block)
{
    const ae_recur_cut *cut = &b->group->ranks->recur;
    const uint32_t own = b->group->ranks->own, stride = place_of(width, block);
    ae_slices slices[AE_RECUR_RUNS];
    if (block && n) make_blocks(b, b->n_rows, narrow, n, block);
    for (uint32_t i = 0, at = 0; i < cut->n_slices; at += slices[i++].n[own]) {
        slices[i] = slices_in(b, &cut->slices[i], block);
        if (slices[i].n[own])
            b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = slices[i].n[own], .x = narrow + at, .x_stride = n,
                                               .y = wide + slices[i].first[own], .y_stride = stride});
    }
    gather(b, wide, stride, slices, cut->n_slices);
}

/* Inner rows of experts of which this rank has some, and how they are sent. */
typedef struct inner {
    uint32_t n_rows, width, block;
    const ae_slices *cut;
    float *rows, *codes; /* [n_rows][width], and the same in blocks; AE_MOE_UP writes to rows, if blocks are made of them only
                          * this rank's values */
} inner;

static inner routed_of(const ae_block *b, const ae_layer_cut *cut, const ae_moe *m)
{
    const uint32_t block = b->group->codes ? cut->expert_block : 0;
    return (inner){b->n_rows * m->routing.n_used, b->h->experts.n_ff, block, &b->group->ranks->expert_ff, b->hidden,
                   b->hidden_codes};
}

static inner shared_of(const ae_block *b, const ae_layer_cut *cut)
{
    const uint32_t block = b->group->codes ? cut->shared_block : 0;
    return (inner){b->n_rows, b->h->experts.n_ff_shared, block, &b->group->ranks->shared_ff, b->hidden_shared, b->shared_codes};
}

static float *up_to(const ae_block *b, const inner *x, size_t *stride)
{
    const uint32_t own = b->group->ranks->own;
    *stride = x->block ? x->cut->n[own] : x->width;
    return x->rows + (x->block ? 0 : x->cut->first[own]);
}

void ae_block_hidden_up(const ae_block *b, const ae_layer_cut *cut, ae_moe *m)
{
    const inner routed = routed_of(b, cut, m), shared = shared_of(b, cut);
    m->hidden = up_to(b, &routed, &m->hidden_stride);
    m->shared_hidden = up_to(b, &shared, &m->shared_stride);
}

/* Returns rows of all ranks' values, or blocks, that are to be gathered. slices: room for theirs. */
static ae_block_slices to_gather(const ae_block *b, const inner *x, ae_slices *slices)
{
    const uint32_t own = b->group->ranks->own, n = x->cut->n[own], stride = place_of(x->width, x->block);
    *slices = slices_in(b, x->cut, x->block);
    if (x->block && n && x->n_rows) {
        make_blocks(b, x->n_rows, x->rows, n, x->block);
        b->ops->copy(b->stream, &(ae_copy){.n = x->n_rows, .dim = slices->n[own], .x = x->rows, .x_stride = n,
                                           .y = x->codes + slices->first[own], .y_stride = stride});
    }
    return (ae_block_slices){x->block ? x->codes : x->rows, stride, x->n_rows, slices, 1};
}

void ae_block_gather_hidden(const ae_block *b, const ae_layer_cut *cut, ae_moe *m)
{
    const ae_expert_hparams *x = &b->h->experts;
    const bool has_shared = x->n_ff_shared && !x->n_latent; /* otherwise the shared expert runs as a block of its own */
    const inner routed = routed_of(b, cut, m), shared = shared_of(b, cut);
    ae_slices slices[2];
    ae_block_slices parts[2];
    uint32_t n = 0;
    if (m->routing.n_used) parts[n] = to_gather(b, &routed, &slices[n]), n++;
    if (has_shared) parts[n] = to_gather(b, &shared, &slices[n]), n++;
    ae_block_gather(b->group, b->ops, b->stream, parts, n, stage_of(b));
    m->hidden = routed.block ? routed.codes : routed.rows, m->hidden_stride = place_of(routed.width, routed.block);
    m->shared_hidden = shared.block ? shared.codes : shared.rows, m->shared_stride = place_of(shared.width, shared.block);
    m->hidden_blocks = routed.block > 0, m->shared_blocks = shared.block > 0;
}

/* Makes blocks of narrow rows [n_rows][n] in place and copies them to wide rows, of blocks too, which are gathered. */
static void gather_blocks(const ae_block *b, float *narrow, uint32_t n, const ae_slices *slices, float *wide, uint32_t width,
                          uint32_t block)
{
    const ae_slices in_blocks = slices_in(b, slices, block);
    if (n) {
        make_blocks(b, b->n_rows, narrow, n, block);
        b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = ae_block_floats(n, block), .x = narrow, .x_stride = n,
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
        gather_blocks(b, (float *)(uintptr_t)m->x, n, slices, wide, width, block);
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

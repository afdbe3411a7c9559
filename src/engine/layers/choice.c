/* choice.c - layers whose rows choose what they attend to, by keys of an index (block.h, ae_select in backend/attention.h).
 *
 * Owns nothing: what was chosen stays in the engine's ae_selection, for attention and for layers that take the same choice. */
#include "engine/layers/block.h"

void ae_block_index_rows(const ae_block *b, const ae_net_layer *l, const ae_matmul *input)
{
    const ae_index_hparams *x = &b->h->index;
    ae_matmul m = *input;
    m.n_weights = 0;
    ae_block_output(&m, l->mla.index_q, NULL, b->selection->q, (size_t)x->n_heads * x->head_dim, false);
    ae_block_output(&m, l->mla.index_k, NULL, x->mean ? b->compress->index : b->selection->k, x->head_dim, false);
    ae_block_matmul(b, &m);
}

static void rotate(const ae_block *b, float *x, uint32_t n_heads, int rope)
{
    const ae_index_hparams *i = &b->h->index;
    b->ops->rotate(b->stream, &(ae_rotate){.n_rows = b->n_rows, .n_heads = n_heads, .head_dim = i->head_dim,
                                           .n_rot = b->h->ropes[rope].n_rot, .kind = i->neox ? AE_ROPE_NEOX : AE_ROPE_NORM,
                                           .cos = b->cos[rope], .sin = b->sin[rope], .x = x});
}

/* Norms and rotates queries and means of keys, whose positions differ. All heads of the index have the same weight. */
static void turn_means(const ae_block *b, const ae_net_layer *l)
{
    const ae_index_hparams *x = &b->h->index;
    const ae_selection *to = b->selection;
    b->ops->norm(b->stream, &(ae_norm){.n_rows = b->n_rows, .n_groups = x->n_heads, .dim = x->head_dim, .x = to->q,
                                       .x_stride = (size_t)x->n_heads * x->head_dim, .weight = l->mla.index_q_norm,
                                       .eps = b->h->norm_eps});
    b->ops->norm(b->stream, &(ae_norm){.n_rows = b->n_rows, .n_groups = 1, .dim = x->head_dim, .x = to->k,
                                       .x_stride = x->head_dim, .weight = l->mla.index_k_norm, .eps = b->h->norm_eps});
    rotate(b, to->q, x->n_heads, 0);
    rotate(b, to->k, 1, x->pool_rope);
    b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = x->n_heads, .x = b->ones, .y = to->weight,
                                       .y_stride = x->n_heads});
}

void ae_block_choose(const ae_block *b, const ae_net_layer *l)
{
    const ae_index_hparams *x = &b->h->index;
    const ae_selection *to = b->selection;
    const ae_rope *rope = &b->h->ropes[0];
    const bool normed = l->mla.index_q_norm; /* otherwise the key is already normed, and queries have no norm */
    if (x->pool)
        b->ops->compress(b->stream, &(ae_compress){
            .places = b->part_places, .kv = b->kv_parts, .layer = l->compress.index.kept, .dim = x->head_dim, .n_parts = 1,
            .every = x->pool, .x = b->compress->index, .ape = l->compress.index.ape, .y = to->k});
    if (x->mean) turn_means(b, l);
    const bool turned = x->mean || x->still;
    b->ops->rope_kv(b->stream, &(ae_rope_kv){
        .places = b->places, .kv = b->kv, .layer = l->kv_index, .n_heads = x->n_heads, .n_kv_heads = 1,
        .head_dim = x->head_dim, .n_rot = turned ? 0 : rope->n_rot, .kind = x->neox ? AE_ROPE_NEOX : AE_ROPE_NORM,
        .cos = b->cos[0], .sin = b->sin[0], .q = to->q, .k = to->k, .q_norm = x->mean ? NULL : l->mla.index_q_norm,
        .k_norm = normed && !x->mean ? l->mla.index_k_norm : NULL, .norm_eps = b->h->norm_eps});
    b->ops->select(b->stream, &(ae_select){
        .places = b->places, .kv = b->kv, .layer = l->kv_index, .n_heads = x->n_heads,
        .n_groups = x->block ? x->n_heads : 0, .block = x->pool ? x->pool : x->block, .pooled = x->pool > 0,
        .n_local = x->n_local, .n_most = to->n_most, .q = to->q,
        .weight = l->mla.index_weight || x->mean ? to->weight : NULL, .pos = to->pos,
        .n_inplace = to->n_inplace, .path = to->path});
}

ae_places ae_block_chosen(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    ae_places p = l->windowed ? *b->part_places : *b->places;
    if (s->index == AE_INDEX_NONE || (b->all_lacks && b->all_lacks[s->index_from] & AE_LACKS_MIXER)) return p;
    p.pos = b->selection->pos;
    p.n_inplace = b->selection->n_inplace;
    p.path = b->selection->path;
    p.path_stride = b->selection->n_most;
    if (b->h->index.block) p.head_rows = b->n_rows;
    return p;
}

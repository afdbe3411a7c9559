/* mla.c - multi-head latent attention, always in its absorbed form: for prompts, decoding and drafts.
 *
 * A position keeps one row for all heads: n_rope rotated values, then n_latent normed ones. Each head's query is multiplied by
 * its k_b into the space of these rows, [rotated | latent]. Attention returns a weighted sum of latent values, which the head's
 * v_b turns into its result. Only the queries differ between heads, so all heads share one read of the cache.
 * Owns nothing. */
#include "engine/layers/block.h"

/* Computes index keys and the weights of the index's heads. */
static void project_keys(const ae_block *b, const ae_net_layer *l)
{
    const ae_index_hparams *x = &b->h->index;
    float *keys = x->pool ? b->compress->index : b->selection->k; /* next to the gates from which pools are made */
    const size_t stride = (x->pool ? 2 : 1) * (size_t)x->head_dim;
    ae_matmul m = ae_block_input(b, l->attn_norm, l->attn_norm_b);
    if (b->mixer_in) m.x = b->mixer_in, m.x_stride = b->mixer_in_stride;
    ae_block_output(&m, l->mla.index_k, NULL, keys, stride, false);
    ae_block_output(&m, l->compress.index.gate, NULL, b->compress->index + x->head_dim, stride, false);
    ae_block_output(&m, l->mla.index_weight, NULL, b->selection->weight, x->n_heads, false);
    ae_block_matmul(b, &m);
    b->ops->norm(b->stream, &(ae_norm){.n_rows = b->n_rows, .n_groups = 1, .dim = x->head_dim, .x = keys,
                                       .x_stride = stride, .weight = l->mla.index_k_norm, .eps = x->eps,
                                       .layer = true, .bias = l->mla.index_k_norm_b});
}

/* Computes the queries of all heads into b->mla_head, and the rows to store into b->k. */
static void project(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    const ae_mla_hparams *h = &s->mla;
    const uint32_t q_dim = s->n_heads * (h->n_nope + ae_mla_rotated(h)), row = h->n_rope + h->n_latent;
    ae_matmul m = ae_block_input(b, l->attn_norm, l->attn_norm_b);
    if (b->mixer_in) m.x = b->mixer_in, m.x_stride = b->mixer_in_stride;
    if (l->mla.q_a) ae_block_output(&m, l->mla.q_a, NULL, b->mla_q, h->n_q, false);
    else ae_block_output(&m, l->wq, NULL, b->mla_head, q_dim, false);
    ae_block_output(&m, l->mla.kv_latent, NULL, b->k + h->n_rope, row, false);
    ae_block_output(&m, l->mla.kv_rope, NULL, b->k, row, false);
    if (s->out_gate == AE_OUT_GATE_HEAD) ae_block_output(&m, l->out_gate, NULL, b->q_gate, s->n_heads, false);
    if (s->out_gate == AE_OUT_GATE_OWN)
        ae_block_output(&m, l->out_gate, NULL, b->q_gate, (size_t)s->n_heads * h->value_dim, false);
    ae_block_matmul(b, &m);
    if (s->index == AE_INDEX_OWN) project_keys(b, l);
    if (l->mla.q_a) {
        m = (ae_matmul){.n_rows = b->n_rows, .input = AE_INPUT_RMSNORM, .x = b->mla_q, .x_stride = h->n_q,
                        .norm = l->mla.q_a_norm, .norm_eps = b->h->norm_eps};
        ae_block_output(&m, l->mla.q_b, NULL, b->mla_head, q_dim, false);
        if (s->index == AE_INDEX_OWN)
            ae_block_output(&m, l->mla.index_q, NULL, b->selection->q,
                            (size_t)b->h->index.n_heads * b->h->index.head_dim, false);
        ae_block_matmul(b, &m);
    }
    b->ops->norm(b->stream, &(ae_norm){.n_rows = b->n_rows, .n_groups = 1, .dim = h->n_latent, .x = b->k + h->n_rope,
                                       .x_stride = row, .weight = l->mla.kv_a_norm, .eps = b->h->norm_eps});
    if (l->k_norm)
        b->ops->norm(b->stream, &(ae_norm){.n_rows = b->n_rows, .n_groups = 1, .dim = h->n_rope, .x = b->k, .x_stride = row,
                                           .weight = l->k_norm, .eps = b->h->norm_eps});
}

static void zero(const ae_block *b, float *x, uint32_t n_rows, uint32_t dim, size_t stride)
{
    b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_ZERO, .n_rows = n_rows, .dim = dim, .x = x, .x_stride = stride});
}

/* Projects the queries into the space of the rows: b->q. If nothing rotates, fills the rotated part with zeros; if everything
 * does, the other one. */
static void enter(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    const ae_mla_hparams *h = &s->mla;
    const size_t from = h->n_nope + ae_mla_rotated(h), to = h->n_rope + h->n_latent;
    if (h->still) {
        zero(b, b->q, b->n_rows * s->n_heads, h->n_rope, to);
        zero(b, b->k, b->n_rows, h->n_rope, to);
    } else b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows * s->n_heads, .dim = h->n_rope, .x = b->mla_head + h->n_nope,
                                       .x_stride = from, .y = b->q, .y_stride = to});
    if (!h->n_nope) zero(b, b->q + h->n_rope, b->n_rows * s->n_heads, h->n_latent, to);
    else b->ops->head_matmul(b->stream, &(ae_head_matmul){
        .n_rows = b->n_rows, .n_heads = s->n_heads, .x = b->mla_head, .x_stride = from * s->n_heads, .x_step = from,
        .weights = l->mla.k_b, .y = b->q + h->n_rope, .y_stride = to * s->n_heads, .y_step = to});
}

/* Rotates queries and rows, and stores the rows in the cache. */
static void store(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    const ae_rope *rope = s->rope == AE_NO_ROPE ? NULL : &b->h->ropes[s->rope];
    b->ops->rope_kv(b->stream, &(ae_rope_kv){
        .places = l->windowed ? b->part_places : b->places, .kv = l->windowed ? b->kv_parts : b->kv, .layer = l->kv,
        .n_heads = s->n_heads, .n_kv_heads = 1, .head_dim = s->head_dim,
        .n_rot = rope ? rope->n_rot : 0, .kind = rope && rope->neox ? AE_ROPE_NEOX : AE_ROPE_NORM,
        .cos = rope ? b->cos[s->rope] : NULL, .sin = rope ? b->sin[s->rope] : NULL,
        .q = b->q, .k = b->k, .q_scale = s->temperature ? b->q_scale : NULL});
}

void ae_block_mla_fill(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    project(b, s, l);
    enter(b, s, l);
    store(b, s, l);
}

/* Computes the output of this rank's heads: b->mla_head. */
static void attend(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    const ae_mla_hparams *h = &s->mla;
    const uint32_t v_dim = s->n_heads * h->value_dim;
    ae_block_mla_fill(b, s, l);
    if (s->index == AE_INDEX_OWN) ae_block_choose(b, l);
    const ae_places places = ae_block_chosen(b, s, l);
    b->ops->attention(b->stream, &(ae_attention){
        .places = &places, .kv = l->windowed ? b->kv_parts : b->kv, .layer = l->kv, .window = s->window, .n_heads = s->n_heads,
        .sinks = l->sinks, .n_kv_heads = 1, .head_dim = h->n_latent, .n_rope = h->n_rope, .scale = s->attn_scale, .q = b->q,
        .y = b->attn});
    b->ops->head_matmul(b->stream, &(ae_head_matmul){
        .n_rows = b->n_rows, .n_heads = s->n_heads, .x = b->attn, .x_stride = (size_t)s->n_heads * h->n_latent,
        .x_step = h->n_latent, .weights = l->mla.v_b, .y = b->mla_head, .y_stride = v_dim,
        .y_step = h->value_dim});
    if (s->out_gate == AE_OUT_GATE_HEAD)
        b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_GATE, .n_rows = b->n_rows, .dim = v_dim, .x = b->mla_head,
                                         .x_stride = v_dim, .x2 = b->q_gate, .x2_stride = s->n_heads, .n_groups = s->n_heads,
                                         .glu = AE_GLU_SIGMOID});
    if (s->out_gate == AE_OUT_GATE_OWN) {
        b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_GLU, .n_rows = b->n_rows, .dim = v_dim, .x = b->q_gate,
                                         .x_stride = v_dim, .x2 = b->mla_head, .x2_stride = v_dim, .glu = AE_GLU_SIGMOID});
        b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = v_dim, .x = b->q_gate, .x_stride = v_dim, .y = b->mla_head,
                                           .y_stride = v_dim});
    }
}

void ae_block_mla(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l, bool to_y)
{
    const ae_layer_cut *cut = ae_block_cut(b, l);
    const bool is_cut = cut && cut->mixer;
    const ae_layer_spec *own = is_cut ? &cut->own : s;
    const uint32_t width = s->n_heads * s->mla.value_dim;
    float *y = to_y ? b->y : b->x;
    if (own->n_heads) attend(b, own, l);
    ae_matmul m = {.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = b->mla_head, .x_stride = width};
    if (is_cut) ae_block_gather_input(b, &m, &cut->attn, b->attn, width, cut->attn_block);
    ae_block_output(&m, l->wo, NULL, ae_block_own(b, y, is_cut), b->h->n_embd, !to_y);
    ae_block_matmul(b, &m);
    if (is_cut) ae_block_gather_stream(b, y);
}

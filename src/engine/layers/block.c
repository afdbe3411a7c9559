/* block.c - attention and feed-forward blocks over the backend's operations (block.h). Latent attention is in mla.c,
 * recurrent mixers are in recur.c. Owns nothing: the activations belong to the engine. */
#include "engine/layers/block.h"

#include <math.h>

/* ---- Room -------------------------------------------------------------------------------------------- */

/* The buffers that the widest layers need in addition to the residual stream. */
typedef struct wants {
    uint32_t q_gate; /* floats per row for queries with their gates */
    uint32_t mla_q, mla_head; /* floats per row */
    bool y;          /* some block's output is normed or scaled before it is added */
    bool y2;         /* experts run in addition to a dense block, or their output is scaled */
    bool normed;     /* experts read the output of a layer norm */
} wants;

static wants wants_of(const ae_hparams *h, const ae_layer *layers, uint32_t n_layers)
{
    wants w = {.y = h->hyper || h->n_banks || h->parallel || h->residual_scale != 1.0f || h->n_positions};
    for (uint32_t i = 0; i < n_layers; i++) {
        const ae_layer *l = &layers[i];
        const bool mla = l->spec.mixer == AE_MIXER_MLA;
        const uint32_t q = l->spec.n_heads * (mla ? l->spec.mla.value_dim : l->spec.head_dim);
        const uint32_t gate = l->spec.out_gate == AE_OUT_GATE_ELEMENT ? 2 * q
                              : l->spec.out_gate == AE_OUT_GATE_OWN   ? q
                              : l->spec.out_gate == AE_OUT_GATE_HEAD  ? l->spec.n_heads : 0;
        const ae_mla_hparams *m = &l->spec.mla;
        const uint32_t query = m->n_nope + m->n_rope, head = l->spec.n_heads * (query > m->value_dim ? query : m->value_dim);
        w.q_gate = gate > w.q_gate ? gate : w.q_gate;
        w.mla_q = m->n_q > w.mla_q ? m->n_q : w.mla_q;
        w.mla_head = head > w.mla_head ? head : w.mla_head;
        w.y |= h->experts.n_chunks > 0 || h->carry_scale != 0.0f;
        w.y2 |= (h->n_streams > 0 && !h->hyper) || h->experts.n_chunks > 0;
        w.normed |= h->n_streams > 0 && !h->hyper;
        w.y |= l->spec.ffn == AE_FFN_BOTH || l->attn_post_norm || l->ffn_post_norm || l->ple_gate || l->spec.recur_beside;
        w.y2 |= l->spec.ffn == AE_FFN_BOTH || (l->spec.ffn == AE_FFN_EXPERTS && l->spec.experts_scale != 1.0f);
        w.normed |= l->spec.ffn == AE_FFN_EXPERTS && h->layer_norm;
        w.normed |= l->spec.router_of_input;
        w.normed |= !h->layer_norm && (l->attn_norm_b || l->ffn_norm_b);
    }
    return w;
}

void ae_block_layout(ae_layout *l, const ae_hparams *h, const ae_layer *layers, uint32_t n_layers, size_t n, ae_block *b)
{
    const wants w = wants_of(h, layers, n_layers);
    const ae_widths widths = ae_model_widths(layers, n_layers);
    const uint32_t shared = h->experts.n_latent ? h->experts.n_ff_shared : 0, ff = widths.ff > shared ? widths.ff : shared;
    b->x = ae_layout_add(l, n * h->n_embd, sizeof(float));
    b->y = ae_layout_add(l, w.y ? n * h->n_embd : 0, sizeof(float));
    b->y2 = ae_layout_add(l, w.y2 ? n * h->n_embd : 0, sizeof(float));
    b->start = ae_layout_add(l, h->adds_start || h->crosses ? n * h->n_embd : 0, sizeof(float));
    b->input = ae_layout_add(l, h->keeps_input ? n * h->n_embd : 0, sizeof(float));
    b->streams = ae_layout_add(l, n * ae_model_n_streams(h) * h->n_embd, sizeof(float));
    b->coef = ae_layout_add(l, n * h->n_streams * (h->n_streams + 2), sizeof(float));
    const size_t wide = h->hyper_rank ? n * h->n_streams * h->n_embd : 0;
    b->hyper_in = ae_layout_add(l, wide, sizeof(float));
    b->hyper_gate = ae_layout_add(l, wide, sizeof(float));
    b->hyper_low = ae_layout_add(l, n * h->hyper_rank, sizeof(float));
    b->memory_ids = ae_layout_add(l, n * h->memory.n_heads, sizeof *b->memory_ids);
    b->memory_rows = ae_layout_add(l, n * h->memory.n_heads * h->memory.width, sizeof(float));
    b->laurel = ae_layout_add(l, n * h->laurel_rank, sizeof(float));
    b->banks = ae_layout_add(l, n * h->n_banks * h->n_embd, sizeof(float));
    b->bank_coef = ae_layout_add(l, h->n_banks ? n * (h->n_banks + 1) : 0, sizeof(float));
    b->mixed = ae_layout_add(l, h->n_banks ? n * h->n_embd : 0, sizeof(float));
    b->normed = ae_layout_add(l, w.normed ? n * h->n_embd : 0, sizeof(float));
    b->q = ae_layout_add(l, n * widths.q, sizeof(float));
    b->attn = ae_layout_add(l, n * widths.q, sizeof(float));
    b->k = ae_layout_add(l, n * widths.kv, sizeof(float));
    b->v = ae_layout_add(l, n * widths.kv, sizeof(float));
    b->q_gate = ae_layout_add(l, n * w.q_gate, sizeof(float));
    b->gate = ae_layout_add(l, n * ff, sizeof(float));
    b->up = ae_layout_add(l, n * ff, sizeof(float));
    b->latent = ae_layout_add(l, n * h->experts.n_latent, sizeof(float));
    b->latent_sum = ae_layout_add(l, n * h->experts.n_latent, sizeof(float));
    b->mla_q = ae_layout_add(l, n * (w.mla_q + h->compress.n_q), sizeof(float));
    b->mla_head = ae_layout_add(l, n * w.mla_head, sizeof(float));
}

uint32_t ae_block_max_in(const ae_hparams *h, const ae_layer *layers, uint32_t n_layers)
{
    const ae_widths w = ae_model_widths(layers, n_layers);
    const ae_recur_hparams *r = &h->recur;
    const uint32_t dims[] = {h->laurel_rank, h->n_embd_layer, h->experts.n_ff_chunk,
                             r->n_mix, r->n_decay, r->n_rate, r->n_blend, r->n_gate,
                             w.q, w.ff, h->adapters.rank, h->experts.n_ff_shared, h->experts.n_ff, h->experts.n_latent,
                             h->recur.n_heads * h->recur.value_dim, h->recur.n_dt,
                             h->compress.n_q, h->compress.n_groups * h->compress.n_out,
                             h->hyper ? h->n_streams * h->n_embd : 0, h->hyper_rank, h->memory.n_heads * h->memory.width};
    uint32_t most = h->n_embd;
    for (uint32_t i = 0; i < n_layers; i++) {
        const ae_mla_hparams *m = &layers[i].spec.mla;
        const uint32_t of_mla[] = {m->n_q, m->n_nope, m->n_latent, layers[i].spec.n_heads * m->value_dim};
        for (size_t k = 0; k < sizeof of_mla / sizeof of_mla[0]; k++)
            if (of_mla[k] > most) most = of_mla[k];
    }
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        if (dims[i] > most) most = dims[i];
    return most;
}

/* ---- Layers -------------------------------------------------------------------------------------------- */

ae_matmul ae_block_input(const ae_block *b, const float *norm, const float *bias)
{
    const ae_input kind = !norm ? AE_INPUT_PLAIN : b->h->layer_norm ? AE_INPUT_LAYERNORM : AE_INPUT_RMSNORM;
    return (ae_matmul){.n_rows = b->n_rows, .input = kind, .x = b->x, .x_stride = b->h->n_embd, .norm = norm, .norm_bias = bias,
                       .norm_eps = b->h->norm_eps};
}

void ae_block_output(ae_matmul *m, const ae_weight *weight, const float *bias, float *y, size_t stride, bool add)
{
    /* a rank may hold no rows of this weight */
    if (weight) m->out[m->n_weights++] = (struct ae_matmul_out){weight, bias, y, stride, add};
}

void ae_block_matmul(const ae_block *b, const ae_matmul *m)
{
    if (m->n_weights) ae_adapter_matmul(b->ops, b->stream, m, b->adapted);
}

static void norm_rows(const ae_block *b, float *x, const float *weight, const float *bias)
{
    const uint32_t n = b->h->n_embd;
    const bool layer = b->h->layer_norm;
    b->ops->norm(b->stream, &(ae_norm){.n_rows = b->n_rows, .n_groups = 1, .dim = n, .x = x, .x_stride = n, .weight = weight,
                                       .eps = b->h->norm_eps, .layer = layer, .bias = layer ? bias : NULL});
    if (bias && !layer) b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, n, 1.0f, bias, 0, x, n});
}

/* Writes the normed stream to b->normed. */
static void norm_apart(const ae_block *b, const float *norm, const float *bias)
{
    const uint32_t n = b->h->n_embd;
    b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = n, .x = b->x, .x_stride = n, .y = b->normed, .y_stride = n});
    norm_rows(b, b->normed, norm, bias);
}

/* Returns the input of a product. Products cannot apply an RMS norm with a bias, so such a norm is computed beforehand. */
static ae_matmul normed_input(const ae_block *b, const float *norm, const float *bias)
{
    if (!bias || b->h->layer_norm) return ae_block_input(b, norm, bias);
    norm_apart(b, norm, bias);
    ae_matmul m = ae_block_input(b, NULL, NULL);
    m.x = b->normed;
    return m;
}

/* Adds the block's output in y to the stream, normed and scaled first where the layer does so. */
static void join(const ae_block *b, const float *norm)
{
    const uint32_t n = b->h->n_embd;
    if (norm)
        b->ops->norm(b->stream, &(ae_norm){.n_rows = b->n_rows, .n_groups = 1, .dim = n, .x = b->y, .x_stride = n,
                                           .weight = norm, .eps = b->h->post_eps, .layer = b->h->layer_norm});
    b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, n, b->h->residual_scale, b->y, n, b->x, n});
}

/* ---- Attention ------------------------------------------------------------------------------------ */

/* Copies the queries out of the rows that hold queries and gates. */
static void part_gates(const ae_block *b, const ae_layer_spec *s)
{
    const uint32_t d = s->head_dim, n = b->n_rows * s->n_heads;
    b->ops->copy(b->stream, &(ae_copy){.n = n, .dim = d, .x = b->q_gate, .x_stride = 2 * (size_t)d, .y = b->q, .y_stride = d});
}

static uint32_t value_dim_of(const ae_layer_spec *s)
{
    return s->value_dim ? s->value_dim : s->head_dim;
}

static void map(const ae_block *b, ae_map_kind kind, float *x, uint32_t dim, float a)
{
    b->ops->map(b->stream, &(ae_map){.kind = kind, .n_rows = b->n_rows, .dim = dim, .x = x, .x_stride = dim, .a = a});
}

/* The cache stores keys and values at one width, so values narrower than keys are padded with zeros. */
static void widen_values(const ae_block *b, const ae_layer_spec *s, const float *v)
{
    const uint32_t d = s->head_dim, narrow = value_dim_of(s);
    map(b, AE_MAP_ZERO, b->v, s->n_kv_heads * d, 0);
    b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows * s->n_kv_heads, .dim = narrow, .x = v, .x_stride = narrow, .y = b->v,
                                       .y_stride = d});
}

static void project(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    const uint32_t q_dim = s->n_heads * s->head_dim, kv_dim = s->n_kv_heads * s->head_dim;
    const uint32_t v_dim = s->n_kv_heads * value_dim_of(s);
    float *v = v_dim == kv_dim ? b->v : b->attn;
    const bool gated = s->out_gate == AE_OUT_GATE_ELEMENT;
    ae_matmul m = normed_input(b, l->attn_norm, l->attn_norm_b);
    if (b->mixer_in) m.x = b->mixer_in, m.x_stride = b->mixer_in_stride;
    ae_block_output(&m, l->wq, l->bq, gated ? b->q_gate : b->q, gated ? 2 * q_dim : q_dim, false);
    if (l->wk) ae_block_output(&m, l->wk, l->bk, b->k, kv_dim, false);
    if (l->wv) ae_block_output(&m, l->wv, l->bv, v, v_dim, false);
    if (s->out_gate == AE_OUT_GATE_OWN) ae_block_output(&m, l->out_gate, NULL, b->q_gate, q_dim, false);
    ae_block_matmul(b, &m);
    if (s->index == AE_INDEX_OWN) ae_block_index_rows(b, l, &m);
    ae_block_switched(b, l, AE_SWITCH_Q, b->x, l->attn_norm, b->q);
    ae_block_switched(b, l, AE_SWITCH_K, b->x, l->attn_norm, b->k);
    ae_block_switched(b, l, AE_SWITCH_V, b->x, l->attn_norm, b->v);
    if (s->clamp_qkv > 0.0f) {
        map(b, AE_MAP_CLAMP, b->q, q_dim, s->clamp_qkv);
        if (l->wk) map(b, AE_MAP_CLAMP, b->k, kv_dim, s->clamp_qkv);
        if (l->wv) map(b, AE_MAP_CLAMP, v, v_dim, s->clamp_qkv);
    }
    if (v != b->v) widen_values(b, s, v);
    if (gated) part_gates(b, s);
    if (l->wk && !l->wv)
        b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = kv_dim, .x = b->k, .x_stride = kv_dim, .y = b->v,
                                           .y_stride = kv_dim});
    if (s->out_gate == AE_OUT_GATE_HEAD) {
        m = ae_block_input(b, l->attn_norm, l->attn_norm_b);
        ae_block_output(&m, l->out_gate, NULL, b->q_gate, s->n_heads, false);
        ae_block_matmul(b, &m);
    }
}

static const ae_places *places_of(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    return l->windowed ? b->part_places : s->window && b->near_places ? b->near_places : b->places;
}

/* Applies the norms of queries or keys that rope_kv cannot: layer norms with biases, norms over all heads together, and norms
 * with separate weights for each head. */
static void norm_heads(const ae_block *b, const ae_layer_spec *s, float *x, uint32_t n_heads, const float *norm,
                             const float *bias)
{
    const uint32_t dim = n_heads * s->head_dim;
    const bool whole = s->qk_norm == AE_QK_NORM_ROW_LAYER;
    b->ops->norm(b->stream, &(ae_norm){.n_rows = b->n_rows, .n_groups = whole ? 1 : n_heads, .dim = whole ? dim : s->head_dim,
                                       .x = x, .x_stride = dim, .weight = norm ? norm : b->ones, .eps = b->h->norm_eps,
                                       .each_group = norm && !whole,
                                       .layer = s->qk_norm != AE_QK_NORM_EACH});
    if (bias) b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, dim, 1.0f, bias, 0, x, dim});
}

/* Rotates queries and keys; stores keys and values. */
static void store(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    const ae_rope *rope = s->rope == AE_NO_ROPE ? NULL : &b->h->ropes[s->rope];
    const bool norms = s->qk_norm != AE_QK_NORM_NONE, apart = norms &&
        (s->qk_norm == AE_QK_NORM_ROW_LAYER || s->qk_norm == AE_QK_NORM_EACH || l->q_norm_b);
    const bool normed = norms && !apart;
    if (apart) {
        norm_heads(b, s, b->q, s->n_heads, l->q_norm, l->q_norm_b);
        if (l->wk) norm_heads(b, s, b->k, s->n_kv_heads, l->k_norm, l->k_norm_b);
    }
    b->ops->rope_kv(b->stream, &(ae_rope_kv){
        .places = places_of(b, s, l), .kv = l->windowed ? b->kv_parts : b->kv, .layer = l->kv,
        .n_heads = s->n_heads, .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim, .n_rot = rope ? rope->n_rot : 0, .kind = rope && rope->neox ? AE_ROPE_NEOX : AE_ROPE_NORM,
        .cos = rope ? b->cos[s->rope] : NULL, .sin = rope ? b->sin[s->rope] : NULL,
        .q = b->q, .k = l->wk ? b->k : NULL, .v = b->v,
        .q_norm = !normed ? NULL : l->q_norm ? l->q_norm : b->ones, .k_norm = !normed ? NULL : l->k_norm ? l->k_norm : b->ones,
        .norm_row = s->qk_norm == AE_QK_NORM_ROW, .norm_layer = s->qk_norm == AE_QK_NORM_LAYER, .norm_last = s->qk_norm_last,
        .v_norm = s->v_norm ? b->ones : NULL,
        .norm_eps = b->h->norm_eps, .q_scale = s->temperature ? b->q_scale : NULL});
}

/* Computes queries, keys and values, and puts keys and values into the cache. normed: the layer as all ranks have it together,
 * if its queries and keys are normed over all their heads; else NULL. */
static void fill(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l, const ae_layer_spec *normed)
{
    project(b, s, l);
    if (normed) ae_block_norm_rows(b, normed, l, ae_block_cut(b, l));
    store(b, s, l);
}

/* Computes the output of this rank's heads, [n_rows][v_dim], and returns it as the input of the last product. normed: as for
 * fill. */
static ae_matmul attend(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l, const ae_layer_spec *normed)
{
    const ae_layer_cut *cut = ae_block_cut(b, l);
    const uint32_t first_head = cut && cut->mixer ? cut->first_head : 0;
    const uint32_t q_dim = s->n_heads * s->head_dim, v_dim = s->n_heads * value_dim_of(s);
    fill(b, s, l, normed);
    if (s->index == AE_INDEX_OWN) ae_block_choose(b, l);
    const ae_places chosen = ae_block_chosen(b, s, l);
    b->ops->attention(b->stream, &(ae_attention){
        .places = s->index == AE_INDEX_NONE ? places_of(b, s, l) : &chosen, .kv = l->windowed ? b->kv_parts : b->kv,
        .layer = l->kv,
        .n_heads = s->n_heads, .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim, .scale = s->attn_scale, .softcap = s->attn_softcap, .window = s->window, .chunked = s->chunked,
        .sinks = l->sinks, .slopes = b->slopes ? b->slopes + first_head : NULL, .bias = l->bias, .q = b->q, .y = b->attn});
    if (s->out_gate == AE_OUT_GATE_HEAD)
        b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_GATE, .n_rows = b->n_rows, .dim = q_dim, .x = b->attn,
                                         .x_stride = q_dim,
                                         .x2 = b->q_gate, .x2_stride = s->n_heads, .n_groups = s->n_heads,
                                         .glu = s->softplus_gate ? AE_GLU_SOFTPLUS : AE_GLU_SIGMOID});
    if (s->out_gate == AE_OUT_GATE_ELEMENT) {
        const uint32_t d = s->head_dim;
        b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows * s->n_heads, .dim = d, .x = b->q_gate + d, .x_stride = 2 * (size_t)d,
                                           .y = b->q, .y_stride = d});
    }
    ae_matmul m = {.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = b->attn, .x_stride = v_dim};
    if (v_dim != q_dim) {
        const uint32_t d = value_dim_of(s);
        b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows * s->n_heads, .dim = d, .x = b->attn, .x_stride = s->head_dim,
                                           .y = b->q, .y_stride = d});
        m.x = b->q;
    }
    if (s->value_scale != 0.0f && s->value_scale != 1.0f) map(b, AE_MAP_SCALE, (float *)m.x, v_dim, s->value_scale);
    if (s->out_gate == AE_OUT_GATE_ELEMENT) m.input = AE_INPUT_GLU, m.glu = AE_GLU_SIGMOID, m.x = b->q, m.x2 = b->attn;
    if (s->out_gate == AE_OUT_GATE_OWN)
        m.input = AE_INPUT_GLU, m.glu = s->softplus_gate ? AE_GLU_SOFTPLUS : AE_GLU_SIGMOID, m.x = b->q_gate, m.x2 = b->attn;
    return m;
}

/* Adds the result to the stream, or writes it to y. */
static void attention(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l, bool to_y)
{
    const ae_layer_cut *cut = ae_block_cut(b, l);
    const bool is_cut = cut && cut->mixer;
    const ae_layer_spec *own = is_cut ? &cut->own : s;
    float *y = to_y ? b->y : b->x;
    ae_matmul m = {.x = b->attn};
    const ae_layer_spec *normed = is_cut && ae_ranks_norms_rows(s) ? s : NULL;
    if (own->n_heads) m = attend(b, own, l, normed);
    else if (normed) ae_block_norm_rows(b, normed, l, cut);
    if (is_cut) ae_block_gather_input(b, &m, &cut->attn, m.x == b->q ? b->attn : b->q, s->n_heads * value_dim_of(s),
                                      cut->attn_block);
    if (l->attn_sub_norm) m.input = AE_INPUT_RMSNORM, m.norm = l->attn_sub_norm, m.norm_eps = b->h->norm_eps;
    ae_block_output(&m, l->wo, l->bo, ae_block_own(b, y, is_cut), b->h->n_embd, !to_y);
    ae_block_matmul(b, &m);
    ae_block_switched(b, l, AE_SWITCH_OUT, m.x, NULL, y);
    if (is_cut) ae_block_gather_stream(b, y);
}

/* ---- The source of an encoder-decoder ----------------------------------------------------------------- */

/* Stores keys and values of the source's rows at the source's positions, in the same layer as those of the text after it. */
void ae_block_source(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    const uint32_t n_embd = b->h->n_embd, kv_dim = s->n_kv_heads * s->head_dim;
    for (uint32_t i = 0; i < b->n_given; i++) {
        const ae_given *g = &b->given[i];
        ae_places places = *b->places;
        places.n_rows = g->n;
        places.seq += g->first, places.pos += g->first, places.slot += g->first, places.n_inplace += g->first;
        places.path += (size_t)g->first * places.path_stride;
        ae_matmul m = {.n_rows = g->n, .input = AE_INPUT_PLAIN, .x = b->start + (size_t)g->first * n_embd, .x_stride = n_embd};
        ae_block_output(&m, l->cross_k, NULL, b->k, kv_dim, false);
        ae_block_output(&m, l->cross_v, NULL, b->v, kv_dim, false);
        ae_block_matmul(b, &m);
        b->ops->rope_kv(b->stream, &(ae_rope_kv){.places = &places, .kv = b->kv, .layer = l->kv, .n_heads = s->n_heads,
                                                 .n_kv_heads = s->n_kv_heads, .head_dim = s->head_dim, .q = b->q, .k = b->k,
                                                 .v = b->v, .norm_eps = b->h->norm_eps});
    }
}

/* Lets the rows attend to their source, and adds the result. */
static void cross(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    const uint32_t q_dim = s->n_heads * s->head_dim;
    ae_block_source(b, s, l);
    ae_matmul m = ae_block_input(b, l->cross_norm, NULL);
    ae_block_output(&m, l->cross_q, NULL, b->q, q_dim, false);
    ae_block_matmul(b, &m);
    b->ops->attention(b->stream, &(ae_attention){.places = b->cross_places, .kv = b->kv, .layer = l->kv,
                                                 .n_heads = s->n_heads, .n_kv_heads = s->n_kv_heads, .head_dim = s->head_dim,
                                                 .scale = s->attn_scale, .q = b->q, .y = b->attn});
    m = (ae_matmul){.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = b->attn, .x_stride = q_dim};
    ae_block_output(&m, l->cross_o, NULL, b->x, b->h->n_embd, true);
    ae_block_matmul(b, &m);
}

/* ---- Feed-forward blocks ---------------------------------------------------------------------------- */

ae_glu ae_block_glu(ae_activation a)
{
    switch (a) {
    case AE_ACTIVATION_GELU: return AE_GLU_GELU;
    case AE_ACTIVATION_RELU2: return AE_GLU_RELU2;
    case AE_ACTIVATION_OAI: return AE_GLU_OAI;
    case AE_ACTIVATION_SILU_CLAMPED: return AE_GLU_SILU_CLAMPED;
    case AE_ACTIVATION_GELU_ERF: return AE_GLU_GELU_ERF;
    case AE_ACTIVATION_RELU: return AE_GLU_RELU;
    case AE_ACTIVATION_SILU_LIMITED: return AE_GLU_SILU_LIMITED;
    case AE_ACTIVATION_SITU: return AE_GLU_SITU;
    case AE_ACTIVATION_XIELU: /* the activation is a separate operation before the product */
    case AE_ACTIVATION_SILU: break;
    }
    return AE_GLU_SILU;
}

/* Returns the product whose input is the activated gate and up rows, or up alone. */
static ae_matmul glu_product(const ae_block *b, const ae_layer_spec *s, bool gated, uint32_t n_ff)
{
    return (ae_matmul){.n_rows = b->n_rows, .input = AE_INPUT_GLU, .x = gated ? b->gate : b->up, .x2 = gated ? b->up : NULL,
                       .x_stride = n_ff, .glu = ae_block_glu(s->activation), .glu_limit = s->shared_limit,
                       .up_limit = s->up_limit};
}

/* Computes gate and up for this rank's rows, and returns them as the input of the down projection. */
static ae_matmul inner_rows(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    /* a parallel block may share the mixer's norm */
    const bool shared = b->h->parallel && !l->ffn_norm;
    ae_matmul m = normed_input(b, shared ? l->attn_norm : l->ffn_norm, shared ? l->attn_norm_b : l->ffn_norm_b);
    if (l->w_gate) ae_block_output(&m, l->w_gate, l->b_gate, b->gate, s->n_ff, false);
    ae_block_output(&m, l->w_up, l->b_up, b->up, s->n_ff, false);
    ae_block_matmul(b, &m);
    ae_block_switched(b, l, AE_SWITCH_GATE, b->x, l->ffn_norm, b->gate);
    ae_block_switched(b, l, AE_SWITCH_UP, b->x, l->ffn_norm, b->up);
    if (s->sparse) map(b, AE_MAP_CUTOFF, l->w_gate ? b->gate : b->up, s->n_ff, s->cutoff);
    if (l->ff_factors) {
        ae_matmul down = glu_product(b, s, false, s->n_ff);
        b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_GLU, .n_rows = b->n_rows, .dim = s->n_ff, .x = b->up,
                                         .x_stride = s->n_ff, .x2 = l->ff_factors, .glu = down.glu});
        return (ae_matmul){.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = b->up, .x_stride = s->n_ff};
    }
    if (s->activation != AE_ACTIVATION_XIELU) return glu_product(b, s, l->w_gate != NULL, s->n_ff);
    b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_XIELU, .n_rows = b->n_rows, .dim = s->n_ff, .x = b->up,
                                     .x_stride = s->n_ff, .a = s->xielu[0], .b = s->xielu[1], .c = s->xielu[2],
                                     .d = s->xielu[3]});
    return (ae_matmul){.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = b->up, .x_stride = s->n_ff};
}

static void dense(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l, bool to_y)
{
    const ae_layer_cut *cut = ae_block_cut(b, l);
    const bool is_cut = cut && cut->ffn;
    float *y = to_y ? b->y : b->x;
    ae_matmul m = inner_rows(b, is_cut ? &cut->own : s, l);
    if (is_cut) ae_block_gather_input(b, &m, &cut->ff, m.x == b->gate ? b->up : b->gate, s->n_ff, cut->ff_block);
    if (l->ffn_sub_norm || l->switched[AE_SWITCH_DOWN].a) {
        if (!is_cut)
            b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_GLU, .n_rows = b->n_rows, .dim = s->n_ff, .x = (float *)m.x,
                                             .x_stride = s->n_ff, .x2 = m.x2, .x2_stride = s->n_ff, .glu = m.glu,
                                             .glu_limit = m.glu_limit, .up_limit = m.up_limit});
        m = (ae_matmul){.n_rows = b->n_rows, .input = l->ffn_sub_norm ? AE_INPUT_RMSNORM : AE_INPUT_PLAIN, .x = m.x,
                        .x_stride = s->n_ff, .norm = l->ffn_sub_norm, .norm_eps = b->h->norm_eps};
    }
    ae_block_output(&m, l->w_down, l->b_down, ae_block_own(b, y, is_cut), b->h->n_embd, !to_y);
    ae_block_matmul(b, &m);
    ae_block_switched(b, l, AE_SWITCH_DOWN, m.x, NULL, y);
    if (is_cut) ae_block_gather_stream(b, y);
}

static ae_gate gate_of(ae_expert_gate gate)
{
    return gate == AE_EXPERT_GATE_SIGMOID          ? AE_GATE_SIGMOID
           : gate == AE_EXPERT_GATE_SQRT_SOFTPLUS  ? AE_GATE_SQRT_SOFTPLUS
           : gate == AE_EXPERT_GATE_SPARSE_MIXER   ? AE_GATE_SPARSE_MIXER
           : gate == AE_EXPERT_GATE_SOFTMAX_CHOSEN ? AE_GATE_SOFTMAX_CHOSEN
                                                   : AE_GATE_SOFTMAX;
}

static void zero(const ae_block *b, float *y, uint32_t n)
{
    b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_ZERO, .n_rows = b->n_rows, .dim = n, .x = y, .x_stride = n});
}

/* Projects the stream down to the width of such experts, and clears the buffer for their output. */
static void enter_latent(const ae_block *b, const ae_net_layer *l, const float *norm)
{
    const uint32_t n = b->h->experts.n_latent;
    ae_matmul m = ae_block_input(b, norm, NULL);
    ae_block_output(&m, l->latent_down, NULL, b->latent, n, false);
    ae_block_matmul(b, &m);
    zero(b, b->latent_sum, n);
}

static bool cuts_experts(const ae_block *b, const ae_net_layer *l)
{
    const ae_layer_cut *cut = ae_block_cut(b, l);
    return cut && cut->experts;
}

/* Adds the shared expert, which reads the full-width stream, before the projected output of the routed experts: the stream must
 * not yet contain that output. */
static void leave_latent(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l, const float *norm, float *y)
{
    const ae_expert_hparams *x = &b->h->experts;
    const ae_slices *cut = cuts_experts(b, l) ? &b->group->ranks->shared_ff : NULL;
    const uint32_t block = cut ? ae_block_cut(b, l)->shared_block : 0;
    const uint32_t n = cut ? cut->n[b->group->ranks->own] : x->n_ff_shared;
    float *to = y ? y : b->x, *own = ae_block_own(b, to, cut);
    ae_matmul m = ae_block_input(b, norm, NULL);
    if (l->s_gate) ae_block_output(&m, l->s_gate, NULL, b->gate, n, false);
    if (x->n_ff_shared) {
        ae_block_output(&m, l->s_up, NULL, b->up, n, false);
        ae_block_matmul(b, &m);
        m = glu_product(b, s, l->s_gate != NULL, n);
        if (cut) ae_block_gather_input(b, &m, cut, m.x == b->gate ? b->up : b->gate, x->n_ff_shared, block);
        ae_block_output(&m, l->s_down, NULL, own, b->h->n_embd, true);
        ae_block_matmul(b, &m);
    }
    m = (ae_matmul){.n_rows = b->n_rows, .input = l->latent_norm ? AE_INPUT_RMSNORM : AE_INPUT_PLAIN, .x = b->latent_sum,
                    .x_stride = x->n_latent, .norm = l->latent_norm, .norm_eps = b->h->norm_eps};
    ae_block_output(&m, l->latent_up, NULL, own, b->h->n_embd, true);
    ae_block_matmul(b, &m);
    if (cut) ae_block_gather_stream(b, to);
}

/* Computes the part of the output that is in this rank's columns, and adds it to y; `m` has been run as AE_MOE_UP. */
static void add_down(const ae_block *b, ae_moe *m, const ae_slices *columns, size_t width)
{
    const uint32_t own = b->group->ranks->own, n = columns->n[own];
    float *y = m->y + columns->first[own];
    if (!n) return;
    b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = n, .x = y, .x_stride = width, .y = b->narrow, .y_stride = n});
    m->y = b->narrow;
    b->ops->moe(b->stream, m);
    b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = n, .x = b->narrow, .x_stride = n, .y = y, .y_stride = width});
}

/* Runs the block in a group: this rank's inner rows, a gather, this rank's columns of the output, another gather. */
static void experts_by_rank(const ae_block *b, const ae_layer_cut *cut, ae_moe *m)
{
    const ae_ranks *r = b->group->ranks;
    const ae_expert_hparams *x = &b->h->experts;
    float *y = m->y;
    m->part = AE_MOE_UP;
    ae_block_hidden_up(b, cut, m);
    b->ops->moe(b->stream, m);
    ae_block_gather_hidden(b, cut, m);
    m->part = AE_MOE_DOWN;
    add_down(b, m, x->n_latent ? &r->latent : &r->embd, x->n_latent ? x->n_latent : b->h->n_embd);
    if (x->n_latent) ae_block_gather_latent(b, y);
    else ae_block_gather_stream(b, y);
}

/* Adds the result to the stream (y NULL), or writes it to y. */
static void experts(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l, const float *norm, float *y)
{
    const ae_expert_hparams *x = &b->h->experts;
    const uint32_t n = b->h->n_embd;
    const uint32_t n_used = b->lacks & AE_LACKS_EXPERTS ? b->n_experts : x->n_used;
    const bool latent = l->latent_down != NULL, early = s->router_of_input;
    const float *bias = b->h->parallel && !l->ffn_norm ? l->attn_norm_b : l->ffn_norm_b;
    const float *in = s->experts_of_input ? b->input : b->x;
    if (latent) enter_latent(b, l, norm);
    if (y) zero(b, y, n);
    if ((b->h->layer_norm && !b->h->norm_stream) || bias) { /* ae_moe cannot apply these norms */
        norm_apart(b, norm, bias);
        in = b->normed, norm = NULL;
    }
    if (early) { /* the router reads the layer's input, while the experts read the normed stream */
        norm_apart(b, l->ffn_norm, NULL);
        in = b->input, norm = NULL;
    }
    ae_moe m = {
        .n_rows = b->n_rows,
        .routing = {.n_experts = x->n, .n_used = n_used, .gate = gate_of(x->gate), .renorm = x->renorm, .scale = x->scale,
                    .n_groups = x->n_groups, .n_groups_used = x->n_groups_used, .n_full = x->n_used},
        .x = in, .norm = norm, .norm_eps = b->h->norm_eps,
        .glu = ae_block_glu(s->activation), .shared_glu = ae_block_glu(s->activation), .glu_limit = s->limit,
        .shared_limit = s->shared_limit, .up_limit = s->up_limit,
        .router = l->router, .router_norm = l->router_norm,
        .router_scale = l->router_norm ? 1.0f / sqrtf((float)n) : 0.0f, .router_bias = l->router_b, .bias = l->router_bias,
        .table = l->router_table, .tokens = l->router_table ? b->tokens : NULL,
        .weigh_input = x->weigh_input, .gate = l->e_gate, .up = l->e_up, .down = l->e_down,
        .gate_bias = l->eb_gate, .up_bias = l->eb_up, .down_bias = l->eb_down, .out_scale = l->e_scale,
        .shared_gate = latent ? NULL : l->s_gate, .shared_up = latent ? NULL : l->s_up,
        .shared_down = latent ? NULL : l->s_down, .shared_router = l->s_router,
        .latent = latent ? b->latent : early ? b->normed : NULL, .y = latent ? b->latent_sum : y ? y : b->x};
    if (!n_used && (!x->n_ff_shared || latent)) m.n_rows = 0; /* a draft without experts */
    else if (cuts_experts(b, l)) experts_by_rank(b, ae_block_cut(b, l), &m);
    else b->ops->moe(b->stream, &m);
    if (latent) leave_latent(b, s, l, norm, y);
}

/* Adds the outputs of the chunk experts that belong to a row's chosen experts, with the same weights (GroveMoE). */
static void chunk_experts(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    const ae_expert_hparams *x = &b->h->experts;
    const uint32_t n = b->h->n_embd, n_used = b->lacks & AE_LACKS_EXPERTS ? b->n_experts : x->n_used;
    if (!n_used) return;
    zero(b, b->y2, n);
    b->ops->moe(b->stream, &(ae_moe){
        .n_rows = b->n_rows,
        .routing = {.n_experts = x->n, .n_used = n_used, .gate = gate_of(x->gate), .renorm = x->renorm, .scale = x->scale,
                    .n_groups = x->n_groups, .n_groups_used = x->n_groups_used, .n_full = x->n_used},
        .x = b->x, .norm = l->ffn_norm, .norm_eps = b->h->norm_eps, .glu = ae_block_glu(s->activation), .router = l->router,
        .router_bias = l->router_b, .bias = l->router_bias, .gate = l->c_gate, .up = l->c_up, .down = l->c_down,
        .n_each = x->n / x->n_chunks, .y = b->y2});
}

/* Runs the dense block and the experts, norms each output where the layer has a norm for it, and writes the sum to y. */
static void both(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    const uint32_t n = b->h->n_embd;
    dense(b, s, l, true);
    if (l->dense_post_norm) norm_rows(b, b->y, l->dense_post_norm, NULL);
    experts(b, s, l, l->e_norm ? l->e_norm : l->ffn_norm, b->y2);
    if (l->e_post_norm) norm_rows(b, b->y2, l->e_post_norm, NULL);
    b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, n, 1.0f, b->y2, n, b->y, n});
    if (s->experts_scale != 0.0f && s->experts_scale != 1.0f) map(b, AE_MAP_SCALE, b->y, n, s->experts_scale);
}

/* Adds the layer's own embedding of the token to the stream, through a gate. */
static void add_layer_embedding(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    const uint32_t e = b->h->n_embd, n = b->h->n_embd_layer;
    ae_matmul m = ae_block_input(b, NULL, NULL);
    if (b->h->n_streams) {
        b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = e, .x = b->x, .x_stride = e, .y = b->normed, .y_stride = e});
        b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_TIMES, .n_rows = b->n_rows, .dim = e, .x = b->normed, .x_stride = e,
                                         .x2 = l->altup.correct_scale});
        m.x = b->normed;
    }
    ae_block_output(&m, l->ple_gate, NULL, b->ple_gate, n, false);
    ae_block_matmul(b, &m);
    b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = n, .x = b->ple + (size_t)l->index * n,
                                       .x_stride = (size_t)n * b->h->n_layers, .y = b->ple_own, .y_stride = n});
    m = (ae_matmul){.n_rows = b->n_rows, .input = AE_INPUT_GLU, .x = b->ple_gate, .x2 = b->ple_own, .x_stride = n,
                    .glu = ae_block_glu(s->activation)};
    ae_block_output(&m, l->ple_proj, NULL, b->y, e, false);
    ae_block_matmul(b, &m);
    if (!b->h->n_streams) {
        join(b, l->ple_post_norm);
        return;
    }
    norm_rows(b, b->y, l->ple_post_norm, NULL);
    ae_block_spread(b);
}

/* Scales the experts' output; adds it to the stream, or writes it to y. */
static void scaled_experts(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l, const float *norm, bool to_y)
{
    const uint32_t n = b->h->n_embd;
    experts(b, s, l, norm, b->y2);
    if (to_y) zero(b, b->y, n);
    b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, n, s->experts_scale, b->y2, n, to_y ? b->y : b->x, n});
}

/* Runs a layer whose mixer is a single projection. */
static void linear(const ae_block *b, const ae_net_layer *l, bool to_y)
{
    ae_matmul m = normed_input(b, l->attn_norm, l->attn_norm_b);
    ae_block_output(&m, l->wo, l->bo, to_y ? b->y : b->x, b->h->n_embd, !to_y);
    ae_block_matmul(b, &m);
}

/* Adds the mixer's output to the stream, or writes it to y. */
static void mix(const ae_block *b, ae_mixer mixer, const ae_layer_spec *s, const ae_net_layer *l, bool to_y)
{
    if (mixer == AE_MIXER_ATTENTION) attention(b, s, l, to_y);
    if (mixer == AE_MIXER_MLA) ae_block_mla(b, s, l, to_y);
    if (mixer == AE_MIXER_COMPRESSED) ae_block_compressed(b, s, l, to_y);
    if (mixer == AE_MIXER_LINEAR) linear(b, l, to_y);
    if (mixer == AE_MIXER_RECUR) ae_block_recur(b, l, to_y ? b->y : b->x, !to_y);
    if (mixer != AE_MIXER_NONE && s->recur_beside) ae_block_recur(b, l, b->y, true);
}

/* Runs as much of the mixer as later passes read, if that is less than all of it: its part of the cache, without the attention.
 * Returns whether it did. */
static bool fills_only(const ae_block *b, ae_mixer mixer, const ae_layer_spec *s, const ae_net_layer *l)
{
    if (!b->fills || s->recur_beside || s->index == AE_INDEX_OWN) return false;
    if (mixer == AE_MIXER_ATTENTION) fill(b, s, l, NULL);
    else if (mixer == AE_MIXER_MLA) ae_block_mla_fill(b, s, l);
    else return false;
    return true;
}

static ae_mixer mixer_of(const ae_block *b, const ae_layer_spec *s)
{
    return b->lacks & AE_LACKS_MIXER ? AE_MIXER_NONE : s->mixer;
}

/* Runs a half of a layer with hyper-connections; does nothing if the pass leaves the block out. */
static void hyper_mixer(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    if (mixer_of(b, s) == AE_MIXER_NONE) return;
    if (l->memory.table) ae_block_remember(b, &l->memory);
    ae_block_hyper_enter(b, &l->hyper_mixer);
    mix(b, s->mixer, s, l, true);
    ae_block_hyper_leave(b);
}

static void hyper_ffn(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    if (b->lacks & AE_LACKS_FFN) return;
    ae_block_hyper_enter(b, &l->hyper_ffn);
    if (s->ffn == AE_FFN_EXPERTS) experts(b, s, l, l->ffn_norm, b->y);
    else dense(b, s, l, true);
    ae_block_hyper_leave(b);
}

/* Runs a layer with attention residuals. Its blocks read other rows than those that they add to. */
static void banked_mixer(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    const uint32_t n = b->h->n_embd;
    ae_block reads = *b;
    if (mixer_of(b, s) == AE_MIXER_NONE) { /* a draft leaves the mixer out: the stream goes on unchanged */
        (void)ae_block_bank(b, l);
        return;
    }
    reads.x = ae_block_banked(b, l, false);
    mix(&reads, s->mixer, s, l, true);
    if (ae_block_bank(b, l)) b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = n, .x = b->y, .x_stride = n, .y = b->x,
                                                                .y_stride = n});
    else b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, n, 1.0f, b->y, n, b->x, n});
}

static void banked_ffn(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    const uint32_t n = b->h->n_embd;
    ae_block reads = *b;
    if (b->lacks & AE_LACKS_FFN) return;
    reads.x = ae_block_banked(b, l, true);
    if (s->ffn == AE_FFN_EXPERTS) experts(&reads, s, l, l->ffn_norm, b->y);
    else dense(&reads, s, l, true);
    b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, n, 1.0f, b->y, n, b->x, n});
}

void ae_block_mixer(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    if (b->h->hyper) {
        hyper_mixer(b, s, l);
        return;
    }
    if (b->h->n_banks) {
        banked_mixer(b, s, l);
        return;
    }
    const bool scaled = b->h->residual_scale != 1.0f, parallel = b->h->parallel, of_stream = b->h->norm_stream;
    const float *attn_norm = of_stream ? NULL : l->attn_post_norm;
    const ae_mixer mixer = mixer_of(b, s);
    const bool carries = b->h->carry_scale != 0.0f;
    const bool joins = scaled || attn_norm || s->recur_beside || carries; /* added by a separate step */
    const uint32_t n = b->h->n_embd;
    if (b->h->keeps_input)
        b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = n, .x = b->x, .x_stride = n, .y = b->input, .y_stride = n});
    if (carries) norm_rows(b, b->x, l->mixer_carry, NULL);
    if (fills_only(b, mixer, s, l)) return;
    if (b->h->n_streams) ae_block_predict(b, l);
    if (b->h->n_streams && mixer != AE_MIXER_NONE) ae_block_laurel(b, l);
    mix(b, mixer, s, l, parallel || joins);
    if (carries) map(b, AE_MAP_SCALE, b->x, n, b->h->carry_scale);
    if (!parallel && mixer != AE_MIXER_NONE && joins) join(b, attn_norm);
    if (l->cross_q && mixer != AE_MIXER_NONE) cross(b, s, l);
    if (b->h->n_streams && mixer != AE_MIXER_NONE) ae_block_join_laurel(b);
    if (of_stream) norm_rows(b, b->x, l->attn_post_norm, l->attn_post_norm_b);
    if (l->again_norm) {
        b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, n, 1.0f, b->input, n, b->x, n});
        norm_rows(b, b->x, l->again_norm, l->again_norm_b);
    }
}

void ae_block_ffn(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    if (b->h->hyper) {
        hyper_ffn(b, s, l);
        return;
    }
    if (b->h->n_banks) {
        banked_ffn(b, s, l);
        return;
    }
    const bool scaled = b->h->residual_scale != 1.0f, parallel = b->h->parallel, of_stream = b->h->norm_stream;
    const float *ffn_norm = of_stream ? NULL : l->ffn_post_norm;
    const ae_ffn ffn = b->lacks & AE_LACKS_FFN ? AE_FFN_NONE : s->ffn;
    const bool carries = b->h->carry_scale != 0.0f;
    const bool to_y = (scaled || ffn_norm || carries) && !parallel; /* y still holds a parallel mixer's output */
    const float *expert_norm = parallel && !l->ffn_norm ? l->attn_norm : l->ffn_norm;
    if (carries) norm_rows(b, b->x, l->ffn_carry, NULL);
    if (ffn == AE_FFN_DENSE) dense(b, s, l, to_y);
    if (ffn == AE_FFN_CHANNEL_MIX) ae_block_channel_mix(b, l, s->n_ff, to_y);
    const bool chunks = ffn == AE_FFN_EXPERTS && l->c_up;
    if (chunks) chunk_experts(b, s, l); /* these read the stream before the other experts add to it */
    if (ffn == AE_FFN_EXPERTS && s->experts_scale != 0.0f && s->experts_scale != 1.0f)
        scaled_experts(b, s, l, expert_norm, to_y);
    else if (ffn == AE_FFN_EXPERTS) experts(b, s, l, expert_norm, to_y ? b->y : NULL);
    if (ffn == AE_FFN_BOTH) both(b, s, l);
    if (chunks) b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, b->h->n_embd, b->h->experts.chunk_scale, b->y2, b->h->n_embd,
                                                   to_y ? b->y : b->x, b->h->n_embd});
    if (carries) map(b, AE_MAP_SCALE, b->x, b->h->n_embd, b->h->carry_scale);
    if (ffn != AE_FFN_NONE && (to_y || ffn == AE_FFN_BOTH)) join(b, ffn_norm);
    if (of_stream) norm_rows(b, b->x, l->ffn_post_norm, l->ffn_post_norm_b);
    /* a parallel block has read the stream by now, so the mixer's output can be added to it */
    if (parallel && mixer_of(b, s) != AE_MIXER_NONE) join(b, NULL);
    if (b->h->n_streams) ae_block_correct(b, l);
    if (l->ple_gate) add_layer_embedding(b, s, l);
    if (s->normed_after) norm_rows(b, b->x, l->end_norm, NULL);
    if (s->normed_after && b->h->n_stack) ae_block_cycle(b, l);
    const uint32_t n = b->h->n_embd;
    if (b->h->adds_start) b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, n, l->out_scale, b->start, n, b->x, n});
    else if (l->out_scale != 1.0f)
        b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_SCALE, .n_rows = b->n_rows, .dim = b->h->n_embd, .x = b->x,
                                         .x_stride = b->h->n_embd, .a = l->out_scale});
}

void ae_block_layer(const ae_block *b, const ae_layer_spec *s, const ae_net_layer *l)
{
    ae_block_mixer(b, s, l);
    ae_block_ffn(b, s, l);
}

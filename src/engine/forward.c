/* forward.c - the pass, written once over the backend's operations.
 *
 * What differs between architectures is data in ae_hparams and absent (NULL) weights. */
#include "engine/engine_int.h"

/* Queries or keys, each head by itself or all heads together. */
static void norm_heads(ae_engine *e, float *x, const float *weight, uint32_t n_heads)
{
    const ae_hparams *h = &e->net->model->hparams;
    const bool by_head = h->qk_norm == AE_QK_NORM_HEAD;
    e->backend->ops->norm(e->stream, &(ae_norm){
        .n_rows = e->n_rows, .n_groups = by_head ? n_heads : 1, .dim = by_head ? h->head_dim : n_heads * h->head_dim, .x = x,
        .x_stride = (size_t)n_heads * h->head_dim, .weight = weight, .eps = h->norm_eps});
}

static void attention_block(ae_engine *e, const ae_places *places, uint32_t i_layer)
{
    const ae_backend_ops *ops = e->backend->ops;
    const ae_hparams *h = &e->net->model->hparams;
    const ae_net_layer *l = &e->net->layers[i_layer];
    const uint32_t q_dim = h->n_heads * h->head_dim, kv_dim = h->n_kv_heads * h->head_dim;
    ops->matmul(e->stream, &(ae_matmul){
        .n_rows = e->n_rows, .input = AE_INPUT_RMSNORM, .x = e->x, .x_stride = h->n_embd,
        .norm = l->attn_norm, .norm_eps = h->norm_eps, .n_weights = 3,
        .out = {{l->wq, l->bq, e->q, q_dim, false}, {l->wk, l->bk, e->k, kv_dim, false}, {l->wv, l->bv, e->v, kv_dim, false}}});
    if (h->qk_norm) {
        norm_heads(e, e->q, l->q_norm, h->n_heads);
        norm_heads(e, e->k, l->k_norm, h->n_kv_heads);
    }
    ops->rope_kv(e->stream, &(ae_rope_kv){
        .places = places, .kv = ae_kv_pages(e->kv), .layer = i_layer, .n_heads = h->n_heads,
        .n_kv_heads = h->n_kv_heads, .head_dim = h->head_dim, .n_rot = h->n_rot,
        .kind = h->rope_neox ? AE_ROPE_NEOX : AE_ROPE_NORM, .cos = e->cos, .sin = e->sin,
        .q = e->q, .k = e->k, .v = e->v});
    ops->attention(e->stream, &(ae_attention){
        .places = places, .kv = ae_kv_pages(e->kv), .layer = i_layer, .n_heads = h->n_heads,
        .n_kv_heads = h->n_kv_heads, .head_dim = h->head_dim, .scale = h->attn_scale, .window = h->window,
        .q = e->q, .y = e->attn});
    ops->matmul(e->stream, &(ae_matmul){
        .n_rows = e->n_rows, .input = AE_INPUT_PLAIN, .x = e->attn, .x_stride = q_dim, .n_weights = 1,
        .out = {{l->wo, l->bo, e->x, h->n_embd, true}}});
}

static void ffn_block(ae_engine *e, uint32_t i_layer)
{
    const ae_backend_ops *ops = e->backend->ops;
    const ae_hparams *h = &e->net->model->hparams;
    const ae_net_layer *l = &e->net->layers[i_layer];
    ops->matmul(e->stream, &(ae_matmul){
        .n_rows = e->n_rows, .input = AE_INPUT_RMSNORM, .x = e->x, .x_stride = h->n_embd,
        .norm = l->ffn_norm, .norm_eps = h->norm_eps, .n_weights = 2,
        .out = {{l->w_gate, l->b_gate, e->gate, h->n_ff, false}, {l->w_up, l->b_up, e->up, h->n_ff, false}}});
    ops->matmul(e->stream, &(ae_matmul){
        .n_rows = e->n_rows, .input = AE_INPUT_SWIGLU, .x = e->gate, .x2 = e->up, .x_stride = h->n_ff, .n_weights = 1,
        .out = {{l->w_down, l->b_down, e->x, h->n_embd, true}}});
}

_Static_assert(AE_MODEL_MAX_EXPERTS <= AE_MAX_EXPERTS, "a model that loads must run");

static void expert_block(ae_engine *e, uint32_t i_layer)
{
    const ae_hparams *h = &e->net->model->hparams;
    const ae_expert_hparams *x = &h->experts;
    const ae_net_layer *l = &e->net->layers[i_layer];
    const ae_gate gate = x->gate == AE_EXPERT_GATE_SIGMOID ? AE_GATE_SIGMOID
                         : x->gate == AE_EXPERT_GATE_SOFTMAX_CHOSEN ? AE_GATE_SOFTMAX_CHOSEN : AE_GATE_SOFTMAX;
    e->backend->ops->moe(e->stream, &(ae_moe){
        .n_rows = e->n_rows, .routing = {x->n, x->n_used, gate, x->renorm, x->scale}, .x = e->x, .norm = l->ffn_norm,
        .norm_eps = h->norm_eps, .router = l->router, .bias = l->router_bias,
        .gate = l->e_gate, .up = l->e_up, .down = l->e_down,
        .shared_gate = l->s_gate, .shared_up = l->s_up, .shared_down = l->s_down, .shared_router = l->s_router, .y = e->x});
}

/* The residual stream before layer `at`, for those who tap it there. */
static void tap(ae_engine *e, uint32_t at)
{
    const uint32_t n_embd = e->net->model->hparams.n_embd, n_taps = e->options.n_taps;
    for (uint32_t i = 0; i < n_taps; i++) {
        if (e->options.taps[i] != at) continue;
        float *y = e->features + (size_t)i * n_embd;
        const size_t stride = (size_t)n_taps * n_embd;
        e->backend->ops->copy(e->stream, &(ae_copy){.n = e->n_rows, .dim = n_embd, .x = e->x, .x_stride = n_embd,
                                                    .y = y, .y_stride = stride});
        if (at == AE_TAP_NORMED)
            e->backend->ops->norm(e->stream, &(ae_norm){.n_rows = e->n_rows, .n_groups = 1, .dim = n_embd,
                                                        .x = y, .x_stride = stride,
                                                        .weight = e->net->out_norm, .eps = e->net->model->hparams.norm_eps});
    }
}

void ae_forward(ae_engine *e)
{
    const ae_backend_ops *ops = e->backend->ops;
    const ae_hparams *h = &e->net->model->hparams;
    const ae_places places = {
        e->n_rows, e->on_device.seq, e->on_device.pos, e->on_device.slot, e->on_device.n_inplace, e->on_device.path, AE_TREE_MAX,
        e->tables, e->table_stride, e->on_device.count};
    ops->rope_table(e->stream, &(ae_rope_table){e->n_rows, h->n_rot, e->on_device.pos, e->rope_freq, e->net->rope_magnitude, e->cos, e->sin});
    ops->lookup(e->stream, e->net->embedding, e->on_device.token, e->n_rows, e->x, h->n_embd);
    for (uint32_t i = 0; i < h->n_layers; i++) {
        tap(e, i);
        if (e->net->layers[i].recur.in) ae_forward_recur(e, i);
        else attention_block(e, &places, i);
        if (e->net->layers[i].router) expert_block(e, i);
        else ffn_block(e, i);
    }
    tap(e, h->n_layers);
    tap(e, AE_TAP_NORMED);
    if (e->n_out) {
        ops->copy(e->stream, &(ae_copy){.n = e->n_out, .dim = h->n_embd, .x = e->x, .x_stride = h->n_embd,
                                        .rows = e->on_device.out_rows, .y = e->x_out, .y_stride = h->n_embd});
        ops->matmul(e->stream, &(ae_matmul){
            .n_rows = e->n_out, .input = AE_INPUT_RMSNORM, .x = e->x_out, .x_stride = h->n_embd,
            .norm = e->net->out_norm, .norm_eps = h->norm_eps, .n_weights = 1,
            .out = {{e->net->output, NULL, e->logits, h->n_vocab, false}}});
    }
}

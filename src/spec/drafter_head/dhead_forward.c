/* dhead_forward.c - a pass of a drafter head, written over the backend's operations.
 *
 * The networks are those of spec/drafter_head/dhead.h. What differs between kinds is which norms and matrices there are. */
#include "spec/drafter_head/dhead_pass.h"

static void copy(ae_dhead_engine *e, uint32_t n, uint32_t dim, const float *x, size_t x_stride, const int32_t *rows, float *y,
                 size_t y_stride)
{
    e->backend->ops->copy(e->stream, &(ae_copy){n, dim, x, x_stride, rows, y, y_stride, NULL});
}

/* Norms `dim` values of each row in place. */
static void norm(ae_dhead_engine *e, uint32_t n_rows, uint32_t n_groups, uint32_t dim, float *x, size_t stride,
                 const float *weight)
{
    e->backend->ops->norm(e->stream, &(ae_norm){.n_rows = n_rows, .n_groups = n_groups, .dim = dim, .x = x, .x_stride = stride,
                                                .weight = weight, .eps = e->net->head->hparams.layer.norm_eps});
}

static void product(ae_dhead_engine *e, uint32_t n_rows, const float *x, size_t x_stride, const ae_weight *w, const float *bias,
                    float *y, size_t y_stride, bool add)
{
    e->backend->ops->matmul(e->stream, &(ae_matmul){.n_rows = n_rows, .input = AE_INPUT_PLAIN, .x = x, .x_stride = x_stride,
                                                    .n_weights = 1, .out = {{w, bias, y, y_stride, add}}});
}

/* g of true rows: the target's hidden rows through fc. EAGLE-1/2 use the one hidden row as it is. */
static void fuse(ae_dhead_engine *e)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const size_t width = (size_t)h->n_taps * h->n_target_embd;
    if (h->kind == AE_DHEAD_EAGLE) {
        copy(e, e->n_rows, h->n_target_embd, e->features, width, NULL, e->g, h->layer.n_embd);
        return;
    }
    if (h->fc_norm == AE_FC_NORM_JOINT) norm(e, e->n_rows, 1, (uint32_t)width, e->features, width, e->net->fc_norm[0]);
    for (uint32_t i = 0; h->fc_norm == AE_FC_NORM_EACH && i < h->n_taps; i++)
        norm(e, e->n_rows, 1, h->n_target_embd, e->features + (size_t)i * h->n_target_embd, width, e->net->fc_norm[i]);
    product(e, e->n_rows, e->features, width, e->net->fc, e->net->fc_bias, e->g, h->layer.n_embd, false);
}

/* The layer's input c and the start of the residual stream x. */
static void combine(ae_dhead_engine *e)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t n = e->n_rows, H = h->layer.n_embd;
    float *feature = e->c + H;
    e->backend->ops->lookup(e->stream, e->net->embedding, e->on_device.token, n, e->c, 2 * (size_t)H);
    copy(e, n, H, e->g, H, NULL, feature, 2 * (size_t)H);
    if (h->kind == AE_DHEAD_EAGLE) {
        product(e, n, e->c, 2 * (size_t)H, e->net->fc, e->net->fc_bias, e->x, H, false);
        return;
    }
    norm(e, n, 1, H, e->c, 2 * (size_t)H, e->net->embd_norm);
    norm(e, n, 1, H, feature, 2 * (size_t)H, e->net->hidden_norm);
    if (h->norm_before_residual) copy(e, n, H, feature, 2 * (size_t)H, NULL, e->x, H);
    else copy(e, n, H, e->g, H, NULL, e->x, H);
}

static void attention_block(ae_dhead_engine *e)
{
    const ae_backend_ops *ops = e->backend->ops;
    const ae_hparams *h = &e->net->head->hparams.layer;
    const ae_dhead_net *net = e->net;
    const bool eagle3 = net->head->hparams.kind == AE_DHEAD_EAGLE3;
    const uint32_t q_dim = h->n_heads * h->head_dim, kv_dim = h->n_kv_heads * h->head_dim;
    const ae_places places = {
        e->n_rows, e->on_device.seq, e->on_device.pos, e->on_device.slot, e->on_device.n_inplace, e->on_device.path, AE_TREE_MAX,
        e->tables, e->table_stride, e->on_device.count};
    ops->matmul(e->stream, &(ae_matmul){
        .n_rows = e->n_rows, .input = AE_INPUT_PLAIN,
        .x = eagle3 ? e->c : e->x, .x_stride = eagle3 ? 2 * (size_t)h->n_embd : h->n_embd,
        .n_weights = 3,
        .out = {{net->wq, net->bq, e->q, q_dim, false},
                {net->wk, net->bk, e->k, kv_dim, false},
                {net->wv, net->bv, e->v, kv_dim, false}}});
    if (net->q_norm) norm(e, e->n_rows, h->n_heads, h->head_dim, e->q, q_dim, net->q_norm);
    if (net->k_norm) norm(e, e->n_rows, h->n_kv_heads, h->head_dim, e->k, kv_dim, net->k_norm);
    ops->rope_kv(e->stream, &(ae_rope_kv){
        .places = &places, .kv = ae_kv_pages(e->kv), .layer = 0, .n_heads = h->n_heads, .n_kv_heads = h->n_kv_heads,
        .head_dim = h->head_dim, .n_rot = h->ropes[0].n_rot, .kind = h->ropes[0].neox ? AE_ROPE_NEOX : AE_ROPE_NORM,
        .cos = e->cos, .sin = e->sin,
        .q = e->q, .k = e->k, .v = e->v});
    ops->attention(e->stream, &(ae_attention){
        .places = &places, .kv = ae_kv_pages(e->kv), .layer = 0, .n_heads = h->n_heads, .n_kv_heads = h->n_kv_heads,
        .head_dim = h->head_dim, .scale = h->attn_scale, .q = e->q, .y = e->attn});
    product(e, e->n_rows, e->attn, q_dim, net->wo, net->bo, e->x, h->n_embd, true);
}

static void ffn_block(ae_dhead_engine *e)
{
    const ae_hparams *h = &e->net->head->hparams.layer;
    const ae_dhead_net *net = e->net;
    e->backend->ops->matmul(e->stream, &(ae_matmul){
        .n_rows = e->n_rows, .input = AE_INPUT_RMSNORM, .x = e->x, .x_stride = h->n_embd, .norm = net->ffn_norm,
        .norm_eps = h->norm_eps,
        .n_weights = 2, .out = {{net->w_gate, net->b_gate, e->gate, h->n_ff, false},
                               {net->w_up, net->b_up, e->up, h->n_ff, false}}});
    e->backend->ops->matmul(e->stream, &(ae_matmul){
        .n_rows = e->n_rows, .input = AE_INPUT_GLU, .glu = AE_GLU_SILU, .x = e->gate, .x2 = e->up, .x_stride = h->n_ff, .n_weights = 1,
        .out = {{net->w_down, net->b_down, e->x, h->n_embd, true}}});
}

/* Logits of the rows that export them, and what they feed back: before the norm, or after it (EAGLE-3.1). */
static void put_out(ae_dhead_engine *e)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t H = h->layer.n_embd;
    copy(e, e->n_out, H, e->x, H, e->on_device.out_rows, e->x_out, H);
    if (h->feedback_normed && e->net->out_norm) norm(e, e->n_out, 1, H, e->x_out, H, e->net->out_norm);
    for (uint32_t i = 0; i < e->n_out; i++)
        copy(e, 1, H, e->x_out + (size_t)i * H, H, NULL, e->fed + (size_t)e->rows.out_fed[i] * H, H);
    const bool normed = h->feedback_normed || !e->net->out_norm;
    e->backend->ops->matmul(e->stream, &(ae_matmul){
        .n_rows = e->n_out, .input = normed ? AE_INPUT_PLAIN : AE_INPUT_RMSNORM, .x = e->x_out, .x_stride = H,
        .norm = e->net->out_norm,
        .norm_eps = h->layer.norm_eps, .n_weights = 1, .out = {{e->net->output, NULL, e->logits, e->net->n_draft, false}}});
}

void ae_dhead_forward(ae_dhead_engine *e, bool drafted)
{
    const uint32_t H = e->net->head->hparams.layer.n_embd;
    e->backend->ops->rope_table(e->stream, &(ae_rope_table){e->n_rows, e->net->head->hparams.layer.ropes[0].n_rot, e->on_device.rope_pos,
                                                            e->rope_freq, e->net->rope_magnitude, e->cos, e->sin});
    if (drafted) copy(e, e->n_rows, H, e->fed, H, e->on_device.fed_from, e->g, H);
    else fuse(e);
    combine(e);
    attention_block(e);
    ffn_block(e);
    if (e->n_out) put_out(e);
}

void ae_dhead_forward_medusa(ae_dhead_engine *e, const float *features, uint32_t n)
{
    const ae_dhead_hparams *h = &e->net->head->hparams;
    const uint32_t H = h->layer.n_embd;
    const size_t stride = (size_t)h->n_medusa * H;
    for (uint32_t j = 0; j < h->n_medusa; j++) {
        float *x = e->x_out + (size_t)j * H; /* of row r: output r * n_medusa + j */
        copy(e, n, H, features, H, NULL, x, stride);
        for (uint32_t b = 0; b < h->n_blocks; b++) {
            product(e, n, x, stride, e->net->medusa_w[j][b], e->net->medusa_b[j][b], e->gate, H, false);
            e->backend->ops->map(e->stream, &(ae_map){.kind = AE_MAP_GLU, .n_rows = n, .dim = H, .x = e->gate, .x_stride = H,
                                                      .glu = AE_GLU_SILU});
            e->backend->ops->axpy(e->stream, &(ae_axpy){n, H, 1.0f, e->gate, H, x, stride});
        }
        product(e, n, x, stride, e->net->medusa_out[j], NULL, e->logits + (size_t)j * e->net->n_draft,
                (size_t)h->n_medusa * e->net->n_draft, false);
    }
}

/* forward.c - the pass, written once over the backend's operations.
 *
 * What differs between architectures is data in ae_hparams and absent (NULL) weights. */
#include <math.h>

#include "base/math/fmath.h"
#include "engine/block.h"
#include "engine/engine_int.h"

/* The residual stream before layer `at`, for those who tap it there. */
static void tap(ae_engine *e, uint32_t at)
{
    const uint32_t n_embd = e->net->model->hparams.n_embd, n_taps = e->options.n_taps;
    for (uint32_t i = 0; i < n_taps; i++) {
        if (e->options.taps[i] != at) continue;
        float *y = e->features + (size_t)i * n_embd;
        const size_t stride = (size_t)n_taps * n_embd;
        e->backend->ops->copy(e->stream, &(ae_copy){.n = e->n_rows, .dim = n_embd, .x = e->block.x, .x_stride = n_embd,
                                                    .y = y, .y_stride = stride});
        if (at == AERIE_TAP_NORMED)
            e->backend->ops->norm(e->stream, &(ae_norm){.n_rows = e->n_rows, .n_groups = 1, .dim = n_embd,
                                                        .x = y, .x_stride = stride,
                                                        .weight = e->net->out_norm, .eps = e->net->model->hparams.norm_eps,
                                                        .layer = e->net->model->hparams.layer_norm,
                                                        .bias = e->net->out_norm_b});
    }
}

void ae_forward_upload(ae_engine *e)
{
    const ae_hparams *h = &e->net->model->hparams;
    if (h->temp_scale == 0.0f) return;
    for (uint32_t r = 0; r < e->n_rows; r++) {
        const double at =
            (double)(uint32_t)(((float)e->rows.pos[r] + h->temp_offset) / (float)h->temp_length); /* whole lengths */
        e->q_scale_host[r] = (float)(1.0 + (double)h->temp_scale * ae_log(at + 1.0));
    }
    e->backend->ops->upload(e->stream, e->q_scale, e->q_scale_host, e->n_rows * sizeof *e->q_scale);
}

static void scale(ae_engine *e, float *x, uint32_t dim, float a)
{
    e->backend->ops->map(e->stream, &(ae_map){.kind = AE_MAP_SCALE, .n_rows = e->n_rows, .dim = dim, .x = x, .x_stride = dim,
                                              .a = a});
}

/* What the rows' tokens bring to each layer: of a table of their own, and of the stream's start. */
static void layer_embeddings(ae_engine *e)
{
    const ae_backend_ops *ops = e->backend->ops;
    const ae_hparams *h = &e->net->model->hparams;
    const uint32_t n = h->n_layers * h->n_embd_layer;
    ops->lookup(e->stream, e->net->ple_embedding, e->on_device.token, e->n_rows, e->ple, n);
    scale(e, e->ple, n, sqrtf((float)h->n_embd_layer));
    ae_adapter_matmul(ops, e->stream, &(ae_matmul){
        .n_rows = e->n_rows, .input = AE_INPUT_PLAIN, .x = e->block.x, .x_stride = h->n_embd, .n_weights = 1,
        .out = {{e->net->ple_model_proj, NULL, e->ple_part, n, false}}}, &e->adapted);
    scale(e, e->ple_part, n, 1.0f / sqrtf((float)h->n_embd));
    ops->norm(e->stream, &(ae_norm){.n_rows = e->n_rows, .n_groups = h->n_layers, .dim = h->n_embd_layer, .x = e->ple_part,
                                    .x_stride = n, .weight = e->net->ple_proj_norm, .eps = h->norm_eps});
    ops->axpy(e->stream, &(ae_axpy){e->n_rows, n, 1.0f, e->ple_part, n, e->ple, n});
    scale(e, e->ple, n, 1.0f / sqrtf(2.0f));
}

/* Rows of a table join the stream. */
static void add_rows(ae_engine *e, const ae_weight *table, const int32_t *rows)
{
    const ae_backend_ops *ops = e->backend->ops;
    const uint32_t n = e->net->model->hparams.n_embd;
    ops->lookup(e->stream, table, rows, e->n_rows, e->block.y, n);
    ops->axpy(e->stream, &(ae_axpy){e->n_rows, n, 1.0f, e->block.y, n, e->block.x, n});
}

/* An encoder's stream starts with token, token type and position, normed. */
static void begin_encoder(ae_engine *e)
{
    const ae_net *net = e->net;
    const ae_hparams *h = &net->model->hparams;
    if (net->types) add_rows(e, net->types, e->on_device.type);
    if (net->positions) add_rows(e, net->positions, e->on_device.pos);
    e->backend->ops->norm(e->stream, &(ae_norm){.n_rows = e->n_rows, .n_groups = 1, .dim = h->n_embd, .x = e->block.x,
                                                .x_stride = h->n_embd, .weight = net->embed_norm, .eps = h->norm_eps,
                                                .layer = h->layer_norm, .bias = net->embed_norm_b});
}

static void put_logits(ae_engine *e)
{
    const ae_backend_ops *ops = e->backend->ops;
    const ae_hparams *h = &e->net->model->hparams;
    ops->copy(e->stream, &(ae_copy){.n = e->n_out, .dim = h->n_embd, .x = e->block.x, .x_stride = h->n_embd,
                                    .rows = e->on_device.out_rows, .y = e->x_out, .y_stride = h->n_embd});
    ae_adapter_matmul(ops, e->stream, &(ae_matmul){
        .n_rows = e->n_out, .input = h->layer_norm ? AE_INPUT_LAYERNORM : AE_INPUT_RMSNORM, .x = e->x_out,
        .x_stride = h->n_embd, .norm = e->net->out_norm, .norm_bias = e->net->out_norm_b, .norm_eps = h->norm_eps,
        .n_weights = 1, .out = {{e->net->output, e->net->output_b, e->logits, h->n_vocab, false}}}, &e->adapted_out);
    ae_map map = {.kind = AE_MAP_SCALE, .n_rows = e->n_out, .dim = h->n_vocab, .x = e->logits, .x_stride = h->n_vocab,
                  .a = h->logit_scale};
    if (h->logit_scale != 1.0f) ops->map(e->stream, &map);
    map.kind = AE_MAP_SOFTCAP, map.a = h->logit_softcap;
    if (h->logit_softcap != 0.0f) ops->map(e->stream, &map);
}

void ae_forward(ae_engine *e)
{
    const ae_backend_ops *ops = e->backend->ops;
    const ae_hparams *h = &e->net->model->hparams;
    ae_places places = ae_rows_places(&e->on_device, e->n_rows, e->kv);
    if (h->encoder) places.pos = e->on_device.last; /* a row sees all of its text */
    ae_places part_places = places;
    part_places.tables = ae_kv_part_tables(e->kv);
    ae_block block = e->block;
    block.ops = ops, block.stream = e->stream, block.h = h, block.places = &places, block.kv = ae_kv_pages(e->kv);
    block.part_places = &part_places, block.kv_parts = ae_kv_parts(e->kv);
    block.n_rows = e->n_rows, block.ones = e->net->ones;
    block.ple = e->ple, block.ple_gate = e->ple_gate, block.ple_own = e->ple_own;
    block.cos = e->cos, block.sin = e->sin, block.q_scale = e->q_scale;
    block.recur = &e->recur, block.state = e->state_pass, block.adapted = &e->adapted;
    block.n_experts = e->mode ? e->mode->n_experts : 0;
    for (uint32_t i = 0; i < h->n_ropes; i++)
        ops->rope_table(e->stream, &(ae_rope_table){e->n_rows, h->ropes[i].n_rot, e->on_device.pos, e->rope_freq[i],
                                                    e->rope_magnitude[i], e->cos[i], e->sin[i]});
    ops->lookup(e->stream, e->net->embedding, e->on_device.token, e->n_rows, e->block.x, h->n_embd);
    if (h->embedding_scale != 1.0f)
        ops->map(e->stream, &(ae_map){.kind = AE_MAP_SCALE, .n_rows = e->n_rows, .dim = h->n_embd, .x = e->block.x,
                                      .x_stride = h->n_embd, .a = h->embedding_scale});
    if (h->n_embd_layer) layer_embeddings(e);
    if (h->encoder) begin_encoder(e);
    else if (e->net->embed_norm)
        ops->norm(e->stream, &(ae_norm){.n_rows = e->n_rows, .n_groups = 1, .dim = h->n_embd, .x = e->block.x,
                                        .x_stride = h->n_embd, .weight = e->net->embed_norm, .eps = h->norm_eps,
                                        .layer = h->layer_norm, .bias = e->net->embed_norm_b});
    for (uint32_t i = 0; i < h->n_layers; i++) {
        tap(e, i);
        block.lacks = e->mode ? e->mode->lacks[i] : 0;
        ae_block_layer(&block, &e->net->model->layers[i].spec, &e->net->layers[i]);
    }
    tap(e, h->n_layers);
    tap(e, AERIE_TAP_NORMED);
    if (e->n_out) put_logits(e);
}

/* forward_recur.c - the mixers of layers that keep a state instead of a KV cache: their part of the pass.
 *
 * Each reads the residual stream through the layer's norm, lets the backend run its convolution and recurrence
 * over rows and records (backend/state.h), and adds what comes of it. */
#include "engine/engine_int.h"

uint32_t ae_recur_in_width(const ae_recur_hparams *r)
{
    if (r->kind == AE_RECUR_SHORTCONV) return 3 * r->n_channels;
    return r->kind == AE_RECUR_MAMBA2 ? r->n_heads * r->value_dim + r->n_channels + r->n_heads : r->n_channels;
}

ae_state_layer ae_recur_state(const ae_recur_hparams *r)
{
    static const ae_state_kind kinds[] = {[AE_RECUR_NONE] = AE_STATE_CONV, [AE_RECUR_DELTA] = AE_STATE_DELTA,
                                          [AE_RECUR_MAMBA2] = AE_STATE_MAMBA2, [AE_RECUR_SHORTCONV] = AE_STATE_CONV};
    return (ae_state_layer){.kind = kinds[r->kind], .n_channels = r->n_channels, .n_taps = r->n_taps, .n_heads = r->n_heads,
                            .n_groups = r->n_groups, .key_dim = r->key_dim, .value_dim = r->value_dim, .tiled = r->tiled};
}

/* The residual stream, normed, through the input projections. */
static void project(ae_engine *e, const ae_net_layer *l, const struct ae_matmul_out *out, uint32_t n)
{
    const ae_hparams *h = &e->net->model->hparams;
    ae_matmul m = {.n_rows = e->n_rows, .input = AE_INPUT_RMSNORM, .x = e->x, .x_stride = h->n_embd, .norm = l->attn_norm,
                   .norm_eps = h->norm_eps, .n_weights = n};
    for (uint32_t i = 0; i < n; i++) m.out[i] = out[i];
    e->backend->ops->matmul(e->stream, &m);
}

static void delta(ae_engine *e, const ae_net_layer *l, uint32_t i_state)
{
    const ae_hparams *h = &e->net->model->hparams;
    const ae_recur_hparams *r = &h->recur;
    const ae_net_recur *w = &l->recur;
    const ae_backend_ops *ops = e->backend->ops;
    const uint32_t values = r->n_heads * r->value_dim, pair = 2 * r->n_heads, per_group = r->n_heads / r->n_groups;
    float *z = e->recur_z, *ab = e->recur_ab;
    if (w->beta_alpha)
        project(e, l, (struct ae_matmul_out[]){{w->in, NULL, e->recur_in, r->n_channels, false}, {w->gate, NULL, z, values, false},
                                               {w->beta_alpha, NULL, ab, pair, false}}, 3);
    else
        project(e, l, (struct ae_matmul_out[]){{w->in, NULL, e->recur_in, r->n_channels, false}, {w->gate, NULL, z, values, false},
                                               {w->beta, NULL, ab, pair, false},
                                               {w->alpha, NULL, ab + r->n_heads, pair, false}}, 4);
    ops->conv(e->stream, &(ae_conv){.pass = e->state_pass, .layer = i_state, .x = e->recur_in, .x_stride = r->n_channels,
                                    .weight = w->conv, .bias = w->conv_bias, .silu = true, .y = e->recur_c,
                                    .y_stride = r->n_channels});
    ops->recur(e->stream, &(ae_recur){.pass = e->state_pass, .layer = i_state, .c = e->recur_c, .c_stride = r->n_channels,
                                      .a = w->beta_alpha ? ab + per_group : ab + r->n_heads, .b = ab, .ab_stride = pair,
                                      .ab_group = w->beta_alpha ? per_group : 0, .decay = w->decay, .dt_bias = w->dt_bias,
                                      .y = e->recur_y, .y_stride = values});
    ops->gated_norm(e->stream, &(ae_gated_norm){.n_rows = e->n_rows, .n_groups = r->n_heads, .dim = r->value_dim,
                                                .x = e->recur_y, .x_stride = values, .z = z, .z_stride = values,
                                                .weight = w->norm, .eps = h->norm_eps});
}

static void mamba2(ae_engine *e, const ae_net_layer *l, uint32_t i_state)
{
    const ae_hparams *h = &e->net->model->hparams;
    const ae_recur_hparams *r = &h->recur;
    const ae_net_recur *w = &l->recur;
    const ae_backend_ops *ops = e->backend->ops;
    const uint32_t values = r->n_heads * r->value_dim, width = ae_recur_in_width(r);
    project(e, l, (struct ae_matmul_out[]){{w->in, NULL, e->recur_in, width, false}}, 1);
    ops->conv(e->stream, &(ae_conv){.pass = e->state_pass, .layer = i_state, .x = e->recur_in + values, .x_stride = width,
                                    .weight = w->conv, .bias = w->conv_bias, .silu = true, .y = e->recur_c,
                                    .y_stride = r->n_channels});
    ops->recur(e->stream, &(ae_recur){.pass = e->state_pass, .layer = i_state, .c = e->recur_c, .c_stride = r->n_channels,
                                      .a = e->recur_in + values + r->n_channels, .ab_stride = width, .decay = w->decay,
                                      .dt_bias = w->dt_bias, .skip = w->skip, .y = e->recur_y, .y_stride = values});
    ops->gated_norm(e->stream, &(ae_gated_norm){.n_rows = e->n_rows, .n_groups = r->n_groups, .dim = values / r->n_groups,
                                                .x = e->recur_y, .x_stride = values, .z = e->recur_in, .z_stride = width,
                                                .weight = w->norm, .by_group = true, .gate_first = true, .eps = h->norm_eps});
}

static void shortconv(ae_engine *e, const ae_net_layer *l, uint32_t i_state)
{
    const ae_recur_hparams *r = &e->net->model->hparams.recur;
    const uint32_t n = r->n_channels, width = 3 * n;
    project(e, l, (struct ae_matmul_out[]){{l->recur.in, NULL, e->recur_in, width, false}}, 1);
    e->backend->ops->conv(e->stream, &(ae_conv){.pass = e->state_pass, .layer = i_state, .x = e->recur_in,
                                                .x2 = e->recur_in + 2 * n, .x_stride = width, .weight = l->recur.conv,
                                                .gate = e->recur_in + n, .y = e->recur_y, .y_stride = n});
}

void ae_forward_recur(ae_engine *e, uint32_t i_layer)
{
    const ae_hparams *h = &e->net->model->hparams;
    const ae_net_layer *l = &e->net->layers[i_layer];
    const uint32_t i_state = l->recur.i_state;
    switch (h->recur.kind) {
    case AE_RECUR_DELTA: delta(e, l, i_state); break;
    case AE_RECUR_MAMBA2: mamba2(e, l, i_state); break;
    case AE_RECUR_SHORTCONV: shortconv(e, l, i_state); break;
    case AE_RECUR_NONE: return;
    }
    const uint32_t width = h->recur.kind == AE_RECUR_SHORTCONV ? h->recur.n_channels : h->recur.n_heads * h->recur.value_dim;
    e->backend->ops->matmul(e->stream, &(ae_matmul){
        .n_rows = e->n_rows, .input = AE_INPUT_PLAIN, .x = e->recur_y, .x_stride = width, .n_weights = 1,
        .out = {{l->recur.out, NULL, e->x, h->n_embd, true}}});
}

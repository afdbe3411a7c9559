/* recur.c - the mixers of layers that keep a recurrent state instead of a KV cache.
 *
 * Each reads the residual stream through the layer's norm, lets the backend run its convolution and recurrence over rows and
 * records (backend/recurrent.h), and adds the result to the stream. */
#include "engine/layers/block.h"

ae_recur_widths ae_block_recur_widths(const ae_recur_hparams *r)
{
    const uint32_t c = r->n_channels, values = r->n_heads * r->value_dim, pair = 2 * r->n_heads;
    switch (r->kind) {
    case AE_RECUR_DELTA: return (ae_recur_widths){c, values, pair, c, values};
    case AE_RECUR_MAMBA2: return (ae_recur_widths){values + c + r->n_heads, 0, 0, c, values};
    case AE_RECUR_MAMBA1: return (ae_recur_widths){2 * values, values, r->n_dt + 2 * r->key_dim, c, values};
    case AE_RECUR_PLAMO2:
        return (ae_recur_widths){2 * values, 2 * values, 2 * r->key_dim + r->n_dt + r->n_heads, values + 2 * r->key_dim,
                                 values};
    case AE_RECUR_KDA: return (ae_recur_widths){c, values, values + r->n_heads + 2 * r->value_dim, c, values};
    case AE_RECUR_SHORTCONV: return (ae_recur_widths){3 * c, 0, 0, 0, c};
    case AE_RECUR_LIGHTNING: return (ae_recur_widths){c, values, 0, 0, values};
    case AE_RECUR_WKV6:
    case AE_RECUR_WKV7: return ae_block_wkv_widths(r);
    case AE_RECUR_NONE: break;
    }
    return (ae_recur_widths){0};
}

ae_state_layer ae_block_recur_state(const ae_recur_hparams *r, const ae_net_recur *w)
{
    static const ae_state_kind kinds[] = {[AE_RECUR_NONE] = AE_STATE_CONV, [AE_RECUR_DELTA] = AE_STATE_DELTA,
                                          [AE_RECUR_MAMBA2] = AE_STATE_MAMBA2, [AE_RECUR_SHORTCONV] = AE_STATE_CONV,
                                          [AE_RECUR_MAMBA1] = AE_STATE_MAMBA1, [AE_RECUR_KDA] = AE_STATE_KDA,
                                          [AE_RECUR_PLAMO2] = AE_STATE_MAMBA2, [AE_RECUR_LIGHTNING] = AE_STATE_MAMBA2,
                                          [AE_RECUR_WKV6] = AE_STATE_WKV6,
                                          [AE_RECUR_WKV7] = AE_STATE_WKV7};
    return (ae_state_layer){.kind = kinds[r->kind], .n_channels = r->n_channels, .n_taps = r->n_taps, .n_heads = r->n_heads,
                            .n_groups = r->n_groups, .key_dim = r->key_dim, .value_dim = r->value_dim, .tiled = r->tiled,
                            .decay = w && r->kind == AE_RECUR_MAMBA1 ? w->decay : NULL};
}

/* Projects the normed residual stream through the input projections. */
static void project(const ae_block *b, const ae_net_layer *l, const struct ae_matmul_out *out, uint32_t n)
{
    const ae_hparams *h = b->h;
    ae_matmul m = {.n_rows = b->n_rows, .input = l->attn_norm ? AE_INPUT_RMSNORM : AE_INPUT_PLAIN, .x = b->x,
                   .x_stride = h->n_embd, .norm = l->attn_norm, .norm_eps = h->norm_eps, .n_weights = n};
    for (uint32_t i = 0; i < n; i++) m.out[i] = out[i];
    ae_block_matmul(b, &m);
}

static void delta(const ae_block *b, const ae_recur_hparams *r, const ae_net_layer *l, uint32_t i_state)
{
    const ae_hparams *h = b->h;
    const ae_net_recur *w = &l->recur;
    const ae_backend_ops *ops = b->ops;
    const uint32_t values = r->n_heads * r->value_dim, pair = 2 * r->n_heads, per_group = r->n_heads / r->n_groups;
    float *z = b->recur->z, *ab = b->recur->ab;
    if (w->beta_alpha)
        project(b, l, (struct ae_matmul_out[]){{w->in, NULL, b->recur->in, r->n_channels, false},
                                               {w->gate, NULL, z, values, false},
                                               {w->beta_alpha, NULL, ab, pair, false}}, 3);
    else
        project(b, l, (struct ae_matmul_out[]){{w->in, NULL, b->recur->in, r->n_channels, false},
                                               {w->gate, NULL, z, values, false},
                                               {w->beta, NULL, ab, pair, false},
                                               {w->alpha, NULL, ab + r->n_heads, pair, false}}, 4);
    ops->conv(b->stream, &(ae_conv){.pass = b->state, .layer = i_state, .x = b->recur->in, .x_stride = r->n_channels,
                                    .weight = w->conv, .bias = w->conv_bias, .silu = true, .y = b->recur->c,
                                    .y_stride = r->n_channels});
    ops->recur(b->stream, &(ae_recur){.pass = b->state, .layer = i_state, .c = b->recur->c, .c_stride = r->n_channels,
                                      .a = w->beta_alpha ? ab + per_group : ab + r->n_heads, .b = ab, .ab_stride = pair,
                                      .ab_group = w->beta_alpha ? per_group : 0, .decay = w->decay, .dt_bias = w->dt_bias,
                                      .y = b->recur->y, .y_stride = values});
    ops->gated_norm(b->stream, &(ae_gated_norm){.n_rows = b->n_rows, .n_groups = r->n_heads, .dim = r->value_dim,
                                                .x = b->recur->y, .x_stride = values, .z = z, .z_stride = values,
                                                .weight = w->norm, .sigmoid = r->sigmoid, .eps = h->norm_eps});
}

/* Computes a product over some columns of rows. */
static void product_of(const ae_block *b, const float *x, size_t stride, const ae_weight *weight, float *y, size_t y_stride)
{
    ae_block_matmul(b, &(ae_matmul){.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = x, .x_stride = stride, .n_weights = 1,
                                    .out = {{weight, NULL, y, y_stride, false}}});
}

static void kda(const ae_block *b, const ae_recur_hparams *r, const ae_net_layer *l, uint32_t i_state)
{
    const ae_hparams *h = b->h;
    const ae_net_recur *w = &l->recur;
    const ae_backend_ops *ops = b->ops;
    const uint32_t d = r->value_dim, n = r->n_heads * d, c = r->n_channels, width = ae_block_recur_widths(r).ab;
    float *in = b->recur->in, *ab = b->recur->ab, *beta = ab + n, *narrow = beta + r->n_heads, *z = b->recur->z;
    if (w->in)
        project(b, l, (struct ae_matmul_out[]){{w->in, NULL, in, c, false}, {w->beta, NULL, beta, width, false}}, 2);
    else
        project(b, l, (struct ae_matmul_out[]){{w->in_q, NULL, in, c, false}, {w->in_k, NULL, in + n, c, false},
                                               {w->in_v, NULL, in + 2 * (size_t)n, c, false},
                                               {w->beta, NULL, beta, width, false}}, 4);
    if (w->f_a && !w->g_a) {
        project(b, l, (struct ae_matmul_out[]){{w->f_a, NULL, narrow, width, false}, {w->gate, NULL, z, n, false}}, 2);
        product_of(b, narrow, width, w->alpha, ab, width);
    } else if (w->f_a) {
        project(b, l, (struct ae_matmul_out[]){{w->f_a, NULL, narrow, width, false},
                                               {w->g_a, NULL, narrow + d, width, false}}, 2);
        product_of(b, narrow, width, w->alpha, ab, width);
        product_of(b, narrow + d, width, w->gate, z, n);
    } else {
        project(b, l, (struct ae_matmul_out[]){{w->alpha, NULL, ab, width, false}, {w->gate, NULL, z, n, false}}, 2);
    }
    ops->conv(b->stream, &(ae_conv){.pass = b->state, .layer = i_state, .x = in, .x_stride = c, .weight = w->conv,
                                    .weight_2 = w->conv_k, .weight_3 = w->conv_v, .silu = true, .y = b->recur->c,
                                    .y_stride = c});
    ops->recur(b->stream, &(ae_recur){.pass = b->state, .layer = i_state, .c = b->recur->c, .c_stride = c, .a = ab, .b = beta,
                                      .ab_stride = width, .decay = w->decay, .dt_bias = w->dt_bias, .bound = r->bound,
                                      .y = b->recur->y, .y_stride = n});
    ops->gated_norm(b->stream, &(ae_gated_norm){.n_rows = b->n_rows, .n_groups = r->n_heads, .dim = d, .x = b->recur->y,
                                                .x_stride = n, .z = z, .z_stride = n, .weight = w->norm, .sigmoid = true,
                                                .eps = h->norm_eps});
}

static void mamba2(const ae_block *b, const ae_recur_hparams *r, const ae_net_layer *l, uint32_t i_state, bool norms)
{
    const ae_hparams *h = b->h;
    const ae_net_recur *w = &l->recur;
    const ae_backend_ops *ops = b->ops;
    const uint32_t values = r->n_heads * r->value_dim, width = ae_block_recur_widths(r).in;
    project(b, l, (struct ae_matmul_out[]){{w->in, NULL, b->recur->in, width, false}}, 1);
    ops->conv(b->stream, &(ae_conv){.pass = b->state, .layer = i_state, .x = b->recur->in + values, .x_stride = width,
                                    .weight = w->conv, .bias = w->conv_bias, .silu = true, .y = b->recur->c,
                                    .y_stride = r->n_channels});
    ops->recur(b->stream, &(ae_recur){.pass = b->state, .layer = i_state, .c = b->recur->c, .c_stride = r->n_channels,
                                      .a = b->recur->in + values + r->n_channels, .ab_stride = width, .decay = w->decay,
                                      .dt_bias = w->dt_bias, .skip = w->skip, .y = b->recur->y, .y_stride = values});
    ops->gated_norm(b->stream, &(ae_gated_norm){.n_rows = b->n_rows, .n_groups = r->n_groups, .dim = values / r->n_groups,
                                                .x = b->recur->y, .x_stride = values, .z = b->recur->in, .z_stride = width,
                                                .weight = norms ? w->norm : NULL, .by_group = true, .gate_first = true,
                                                .eps = h->norm_eps});
}

static void norm_part(const ae_block *b, float *x, uint32_t stride, uint32_t n, const float *weight)
{
    const float *own = weight ? weight : b->h->recur.plain_norms ? b->ones : NULL;
    if (own)
        b->ops->norm(b->stream, &(ae_norm){.n_rows = b->n_rows, .n_groups = 1, .dim = n, .x = x, .x_stride = stride,
                                           .weight = own, .eps = b->h->norm_eps});
}

/* Returns how the mixer is cut on this rank; NULL: it is not cut. */
static const ae_recur_cut *cut_of(const ae_block *b, const ae_net_layer *l)
{
    const ae_layer_cut *cut = ae_block_cut(b, l);
    return cut && cut->recur ? &b->group->ranks->recur : NULL;
}

/* Returns the input width of the last projection, for all heads. */
static uint32_t n_values(const ae_recur_hparams *r)
{
    return ae_block_recur_widths(r).y;
}

/* Returns the convolution's output of all heads, in rows of stride floats, from which keys and time steps are computed. */
static const float *all_channels(const ae_block *b, const ae_net_layer *l, float *c, uint32_t stride, uint32_t *width)
{
    *width = stride;
    if (!cut_of(b, l)) return c;
    *width = n_values(&b->h->recur);
    ae_block_gather_recur(b, c, stride, b->recur->y, *width, 0); /* the recurrence reads c, too */
    return b->recur->y;
}

static void mamba1(const ae_block *b, const ae_recur_hparams *r, const ae_net_layer *l, uint32_t i_state)
{
    const ae_net_recur *w = &l->recur;
    const ae_backend_ops *ops = b->ops;
    const uint32_t n = r->value_dim, width = 2 * n, part = r->n_dt + 2 * r->key_dim;
    float *ab = b->recur->ab;
    if (n) {
        project(b, l, (struct ae_matmul_out[]){{w->in, NULL, b->recur->in, width, false}}, 1);
        ops->conv(b->stream, &(ae_conv){.pass = b->state, .layer = i_state, .x = b->recur->in, .x_stride = width,
                                        .weight = w->conv, .bias = w->conv_bias, .silu = true, .y = b->recur->c,
                                        .y_stride = n});
    }
    uint32_t n_all;
    const float *all = all_channels(b, l, b->recur->c, n, &n_all);
    if (!n) return;
    product_of(b, all, n_all, w->x_proj, ab, part);
    norm_part(b, ab, part, r->n_dt, w->dt_norm);
    norm_part(b, ab + r->n_dt, part, r->key_dim, w->b_norm);
    norm_part(b, ab + r->n_dt + r->key_dim, part, r->key_dim, w->c_norm);
    ae_block_matmul(b, &(ae_matmul){.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = ab, .x_stride = part,
                                    .n_weights = 1, .out = {{w->dt_proj, NULL, b->recur->z, n, false}}});
    ops->recur(b->stream, &(ae_recur){.pass = b->state, .layer = i_state, .c = b->recur->c, .c_stride = n, .a = b->recur->z,
                                      .ab_stride = n, .keys = ab + r->n_dt, .keys_stride = part, .dt_bias = w->dt_bias,
                                      .skip = w->skip, .y = b->recur->y, .y_stride = n});
    ops->gated_norm(b->stream, &(ae_gated_norm){.n_rows = b->n_rows, .n_groups = 1, .dim = n, .x = b->recur->y, .x_stride = n,
                                                .z = b->recur->in + n, .z_stride = width});
}

static void plamo2(const ae_block *b, const ae_recur_hparams *r, const ae_net_layer *l, uint32_t i_state)
{
    const ae_net_recur *w = &l->recur;
    const ae_backend_ops *ops = b->ops;
    const ae_recur_widths widths = ae_block_recur_widths(r);
    const uint32_t head = r->value_dim, n = r->n_heads * head, keys = 2 * r->key_dim, n_heads = b->n_rows * r->n_heads;
    float *z = b->recur->z, *x = z + (size_t)b->n_rows * n, *ab = b->recur->ab, *c = b->recur->c, *step = ab + keys + r->n_dt;
    if (n) {
        project(b, l, (struct ae_matmul_out[]){{w->in, NULL, b->recur->in, widths.in, false}}, 1);
        ops->copy(b->stream, &(ae_copy){.n = n_heads, .dim = head, .x = b->recur->in, .x_stride = 2 * (size_t)head, .y = z,
                                        .y_stride = head});
        ops->copy(b->stream, &(ae_copy){.n = n_heads, .dim = head, .x = b->recur->in + head, .x_stride = 2 * (size_t)head,
                                        .y = x, .y_stride = head});
        ops->conv(b->stream, &(ae_conv){.pass = b->state, .layer = i_state, .x = x, .x_stride = n, .weight = w->conv,
                                        .bias = w->conv_bias, .silu = true, .y = c, .y_stride = widths.c});
    }
    uint32_t n_all;
    const float *all = all_channels(b, l, c, widths.c, &n_all);
    if (!n) return;
    product_of(b, all, n_all, w->x_proj, ab, widths.ab);
    norm_part(b, ab, widths.ab, r->key_dim, w->b_norm);
    norm_part(b, ab + r->key_dim, widths.ab, r->key_dim, w->c_norm);
    norm_part(b, ab + keys, widths.ab, r->n_dt, w->dt_norm);
    ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = keys, .x = ab, .x_stride = widths.ab, .y = c + n,
                                    .y_stride = widths.c});
    product_of(b, ab + keys, widths.ab, w->dt_proj, step, widths.ab);
    ops->recur(b->stream, &(ae_recur){.pass = b->state, .layer = i_state, .c = c, .c_stride = widths.c, .a = step,
                                      .ab_stride = widths.ab, .decay = w->decay, .dt_bias = w->dt_bias, .skip = w->skip,
                                      .y = b->recur->y, .y_stride = n});
    ops->gated_norm(b->stream, &(ae_gated_norm){.n_rows = b->n_rows, .n_groups = 1, .dim = n, .x = b->recur->y, .x_stride = n,
                                                .z = z, .z_stride = n});
}

/* Linear attention is Mamba2's recurrence with time steps of 1: keys and queries take the places of B and C, values that of its
 * input. */
static void lightning(const ae_block *b, const ae_recur_hparams *r, const ae_net_layer *l, uint32_t i_state)
{
    const ae_net_recur *w = &l->recur;
    const uint32_t n = r->n_heads * r->value_dim, width = 3 * n;
    float *in = b->recur->in, *z = b->recur->z, *gate = b->recur->y;
    project(b, l, (struct ae_matmul_out[]){{w->in, NULL, in, width, false}, {w->gate, NULL, gate, n, false}}, 2);
    b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_GLU, .n_rows = b->n_rows, .dim = width, .x = in, .x_stride = width,
                                     .glu = AE_GLU_SILU});
    b->ops->recur(b->stream, &(ae_recur){.pass = b->state, .layer = i_state, .c = in, .c_stride = width, .a = w->zeros,
                                         .decay = w->decay, .dt_bias = w->dt_bias, .y = z, .y_stride = n});
    b->ops->norm(b->stream, &(ae_norm){.n_rows = b->n_rows, .n_groups = 1, .dim = n, .x = z, .x_stride = n, .weight = w->norm,
                                       .eps = b->h->norm_eps});
    b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_GLU, .n_rows = b->n_rows, .dim = n, .x = gate, .x_stride = n, .x2 = z,
                                     .x2_stride = n, .glu = AE_GLU_SIGMOID});
}

static void shortconv(const ae_block *b, const ae_recur_hparams *r, const ae_net_layer *l, uint32_t i_state)
{
    const uint32_t n = r->n_channels, width = 3 * n;
    project(b, l, (struct ae_matmul_out[]){{l->recur.in, NULL, b->recur->in, width, false}}, 1);
    b->ops->conv(b->stream, &(ae_conv){.pass = b->state, .layer = i_state, .x = b->recur->in,
                                                .x2 = b->recur->in + 2 * n, .x_stride = width, .weight = l->recur.conv,
                                                .gate = b->recur->in + n, .y = b->recur->y, .y_stride = n});
}

/* Computes the mixer without its last projection, for the heads that `r` counts. */
static void heads(const ae_block *b, const ae_recur_hparams *r, const ae_net_layer *l, bool norms)
{
    const uint32_t i_state = l->recur.i_state;
    switch (r->kind) {
    case AE_RECUR_DELTA: delta(b, r, l, i_state); break;
    case AE_RECUR_MAMBA2: mamba2(b, r, l, i_state, norms); break;
    case AE_RECUR_MAMBA1: mamba1(b, r, l, i_state); break;
    case AE_RECUR_KDA: kda(b, r, l, i_state); break;
    case AE_RECUR_PLAMO2: plamo2(b, r, l, i_state); break;
    case AE_RECUR_LIGHTNING: lightning(b, r, l, i_state); break;
    case AE_RECUR_SHORTCONV: shortconv(b, r, l, i_state); break;
    case AE_RECUR_WKV6:
    case AE_RECUR_WKV7: ae_block_wkv(b, r, l); break;
    case AE_RECUR_NONE: break;
    }
}

/* Computes this rank's heads, and gathers what all ranks have computed into rows of recur->in, in blocks of this size. */
static void gather_heads(const ae_block *b, const ae_recur_cut *cut, const ae_net_layer *l, uint32_t block)
{
    const ae_recur_hparams *r = &b->h->recur;
    const bool twice = r->kind == AE_RECUR_MAMBA1 || r->kind == AE_RECUR_PLAMO2; /* there is a round inside */
    const uint32_t n = n_values(r);
    if (cut->own.n_channels || twice) heads(b, &cut->own, l, !cut->whole_norm);
    ae_block_gather_recur(b, b->recur->y, n_values(&cut->own), b->recur->in, n, block);
    if (cut->whole_norm && l->recur.norm)
        b->ops->gated_norm(b->stream, &(ae_gated_norm){.n_rows = b->n_rows, .n_groups = r->n_groups, .dim = n / r->n_groups,
                                                       .x = b->recur->in, .x_stride = n, .weight = l->recur.norm,
                                                       .by_group = true, .eps = b->h->norm_eps});
}

void ae_block_recur(const ae_block *b, const ae_net_layer *l, float *y, bool add)
{
    const ae_recur_hparams *r = &b->h->recur;
    const ae_recur_cut *cut = cut_of(b, l);
    const uint32_t n = b->h->n_embd, width = n_values(r);
    if (r->kind == AE_RECUR_NONE) return;
    const uint32_t block = cut && b->group->codes ? ae_block_cut(b, l)->recur_block : 0;
    if (cut) gather_heads(b, cut, l, block);
    else heads(b, r, l, true);
    ae_matmul m = {.n_rows = b->n_rows, .input = block ? AE_INPUT_BLOCKS : AE_INPUT_PLAIN,
                   .x = cut ? b->recur->in : b->recur->y, .x_stride = block ? ae_block_floats(width, block) : width};
    ae_block_output(&m, l->recur.out, NULL, ae_block_own(b, y, cut), n, add);
    ae_block_matmul(b, &m);
    if (cut) ae_block_gather_stream(b, y);
}

/* wkv.c - the mixers of RWKV 6 and 7, and the channel mix that stands in place of a feed-forward block there.
 *
 * Owns nothing. Both take a row and the difference of the row before to it (the token shift, a convolution of the seam with
 * taps 1 and -1), mixed for each projection by weights of their own; the recurrence is the backend's (backend/recurrent.h). A
 * state layer keeps the last row that the mixer took and, with a channel mix, the last that this took after it. ab holds planes
 * of n_rows rows: values of the first layer, r, k, v, decays, rates, blends, gates, n_embd each; then what products in two
 * steps have in between; then the bonus of heads. A rank that has only some heads uses rows of as many values as these have, in
 * all planes but that of the first layer's values and that of the blends. */
#include "engine/layers/block.h"

#define NORM_EPS 64e-5f /* epsilon of the heads' norm, in all published models */
#define N_MIXED 6       /* most inputs of the mixer */

enum plane { FIRST_V, R, K, V, DECAY, RATE, BLEND, GATE, N_PLANES };

static uint32_t width_of(const ae_recur_hparams *r)
{
    return r->n_heads * r->key_dim;
}

/* Returns how many floats of a row are between a product's two steps. */
static uint32_t between(const ae_recur_hparams *r)
{
    return 5 * r->n_mix + r->n_decay + r->n_rate + r->n_blend + r->n_gate;
}

ae_recur_widths ae_block_wkv_widths(const ae_recur_hparams *r)
{
    const uint32_t e = width_of(r);
    return (ae_recur_widths){e, N_MIXED * e, N_PLANES * e + between(r) + r->n_heads, e, e};
}

static float *plane(const ae_block *b, enum plane which)
{
    return b->recur->ab + (size_t)which * b->n_rows * b->h->n_embd;
}

float *ae_block_first_values(const ae_recur_rows *rows)
{
    return rows->ab;
}

/* Computes the normed stream, and for each row the row before it minus the row. */
static void shift(const ae_block *b, const ae_net_layer *l, const float *norm, const float *bias, uint32_t first)
{
    const ae_hparams *h = b->h;
    const uint32_t e = h->n_embd;
    float *x = b->recur->in;
    b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = e, .x = b->x, .x_stride = e, .y = x, .y_stride = e});
    b->ops->norm(b->stream, &(ae_norm){.n_rows = b->n_rows, .n_groups = 1, .dim = e, .x = x, .x_stride = e, .weight = norm,
                                       .eps = h->norm_eps, .layer = h->layer_norm, .bias = h->layer_norm ? bias : NULL});
    if (bias && !h->layer_norm) b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, e, 1.0f, bias, 0, x, e});
    b->ops->conv(b->stream, &(ae_conv){.pass = b->state, .layer = l->recur.i_state, .x = x, .x_stride = e, .first = first,
                                       .n = e, .y = b->recur->c, .y_stride = e});
}

/* Computes inputs [at, at + n) of `of`: the row plus the difference times the weights. by: the weights are increased by the
 * numbers that are already there. */
static void mix(const ae_block *b, uint32_t at, uint32_t n, uint32_t of, const float *weight, bool by)
{
    const uint32_t e = b->h->n_embd;
    b->ops->map(b->stream, &(ae_map){.kind = by ? AE_MAP_LERP_BY : AE_MAP_LERP, .n_rows = b->n_rows, .dim = n * e,
                                     .x = b->recur->z + (size_t)at * e, .x_stride = (size_t)of * e, .x2 = b->recur->c,
                                     .x3 = b->recur->in, .x2_stride = e, .weight = weight, .n_groups = n});
}

typedef struct rows {
    float *x;
    size_t stride;
} rows;

static void product(const ae_block *b, rows x, const ae_weight *weight, const float *bias, rows y)
{
    ae_block_matmul(b, &(ae_matmul){.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = x.x, .x_stride = x.stride,
                                    .n_weights = 1, .out = {{weight, bias, y.x, y.stride, false}}});
}

static void tanh_of(const ae_block *b, rows x, uint32_t n)
{
    b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_SOFTCAP, .n_rows = b->n_rows, .dim = n, .x = x.x, .x_stride = x.stride,
                                     .a = 1.0f});
}

/* Input number i of `of`. */
static rows mixed(const ae_block *b, uint32_t i, uint32_t of)
{
    const size_t e = b->h->n_embd;
    return (rows){b->recur->z + i * e, of * e};
}

/* Rows of n values. */
static rows of(const ae_block *b, enum plane which, size_t n)
{
    return (rows){plane(b, which), n};
}

static void recur(const ae_block *b, const ae_recur_hparams *r, const ae_net_layer *l, float *bonus)
{
    const size_t e = width_of(r);
    const ae_net_wkv *w = &l->wkv;
    b->ops->recur(b->stream, &(ae_recur){.pass = b->state, .layer = l->recur.i_state, .c = plane(b, R), .c_stride = e,
                                         .k = plane(b, K), .v = plane(b, V), .a = plane(b, DECAY), .b = plane(b, RATE),
                                         .ab_stride = e, .first = w->first, .k_k = w->k_k, .k_a = w->k_a, .bonus = bonus,
                                         .y = b->recur->y, .y_stride = e});
}

/* Copies heads of keys or values, which each serve several heads of the state, from a plane of their own. */
static void spread(const ae_block *b, const ae_recur_hparams *r, enum plane from, enum plane to)
{
    const uint32_t d = r->key_dim, each = r->n_heads / r->n_kv;
    for (uint32_t i = 0; i < each; i++)
        b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows * r->n_kv, .dim = d, .x = plane(b, from), .x_stride = d,
                                           .y = plane(b, to) + (size_t)i * d, .y_stride = (size_t)each * d});
}

static void wkv6(const ae_block *b, const ae_recur_hparams *r, const ae_net_layer *l, float *low)
{
    enum { W_IN, K_IN, V_IN, R_IN, G_IN, N_IN };
    const ae_net_wkv *w = &l->wkv;
    const uint32_t e = width_of(r), kv = r->n_kv * r->key_dim;
    const rows all = {low, 5 * (size_t)r->n_mix}, decay = {low + b->n_rows * all.stride, r->n_decay};
    const bool narrow = r->n_kv != r->n_heads;
    mix(b, 0, 1, N_IN, w->lerp_x, false);
    product(b, mixed(b, 0, N_IN), w->mix_a, NULL, all);
    tanh_of(b, all, 5 * r->n_mix);
    for (uint32_t i = 0; i < N_IN; i++)
        product(b, (rows){low + (size_t)i * r->n_mix, all.stride}, w->mix_b[i], NULL, mixed(b, i, N_IN));
    if (w->lerp) mix(b, 0, N_IN, N_IN, w->lerp, true);
    for (uint32_t i = 0; !w->lerp && i < N_IN; i++) mix(b, i, 1, N_IN, w->lerps[i], true);
    product(b, mixed(b, R_IN, N_IN), l->recur.in_q, w->bias_r, of(b, R, e));
    product(b, mixed(b, K_IN, N_IN), l->recur.in_k, w->bias_k, (rows){plane(b, narrow ? RATE : K), kv});
    product(b, mixed(b, V_IN, N_IN), l->recur.in_v, w->bias_v, (rows){plane(b, narrow ? BLEND : V), kv});
    if (narrow) spread(b, r, RATE, K), spread(b, r, BLEND, V);
    product(b, mixed(b, G_IN, N_IN), l->recur.gate, NULL, of(b, GATE, e));
    product(b, mixed(b, W_IN, N_IN), w->decay_a, NULL, decay);
    tanh_of(b, decay, r->n_decay);
    product(b, decay, w->decay_b, w->decay, of(b, DECAY, e));
    recur(b, r, l, NULL);
    b->ops->gated_norm(b->stream, &(ae_gated_norm){.n_rows = b->n_rows, .n_groups = r->n_heads, .dim = r->value_dim,
                                                   .x = b->recur->y, .x_stride = e, .z = plane(b, GATE), .z_stride = e,
                                                   .weight = w->norm, .bias = w->norm_b, .by_group = true, .layer = true,
                                                   .sigmoid = !w->first, .eps = NORM_EPS});
}

/* Blends the values [n] of this rank's heads with those of the first layer, by the row's own factors. The first layer's are in
 * rows of all heads, which go to further stages of a pipeline. */
static void blend_values(const ae_block *b, const ae_net_layer *l, uint32_t n, rows low)
{
    const ae_layer_cut *cut = ae_block_cut(b, l);
    const ae_ranks *ranks = cut && cut->recur ? b->group->ranks : NULL;
    const ae_net_wkv *w = &l->wkv;
    const size_t e = b->h->n_embd;
    float *first = plane(b, FIRST_V) + (ranks ? ranks->recur.slices[0].first[ranks->own] : 0);
    if (!w->blend_a && ranks && ranks->n_stages > 1) {
        ae_block_gather_recur(b, plane(b, V), n, plane(b, FIRST_V), (uint32_t)e, 0);
    } else if (!w->blend_a) {
        b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = n, .x = plane(b, V), .x_stride = n, .y = first,
                                           .y_stride = e});
    } else {
        product(b, low, w->blend_b, w->blend, of(b, BLEND, e));
        b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_BLEND, .n_rows = b->n_rows, .dim = n, .x = plane(b, V), .x_stride = n,
                                         .x2 = plane(b, BLEND), .x3 = first, .x2_stride = e});
    }
}

static void wkv7(const ae_block *b, const ae_recur_hparams *r, const ae_net_layer *l, float *low, float *bonus)
{
    enum { R_IN, W_IN, K_IN, V_IN, A_IN, G_IN };
    const ae_net_wkv *w = &l->wkv;
    const uint32_t e = width_of(r), n = w->gate_a ? 6 : 5;
    const size_t n_rows = b->n_rows;
    const rows decay = {low, r->n_decay}, rate = {decay.x + n_rows * decay.stride, r->n_rate};
    const rows blend = {rate.x + n_rows * rate.stride, r->n_blend}, gate = {blend.x + n_rows * blend.stride, r->n_gate};
    ae_matmul values = {.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = mixed(b, V_IN, n).x,
                        .x_stride = mixed(b, V_IN, n).stride};
    mix(b, 0, n, n, w->lerp, false);
    product(b, mixed(b, R_IN, n), l->recur.in_q, NULL, of(b, R, e));
    product(b, mixed(b, K_IN, n), l->recur.in_k, NULL, of(b, K, e));
    ae_block_output(&values, l->recur.in_v, NULL, plane(b, V), e, false);
    ae_block_output(&values, w->blend_a, NULL, blend.x, blend.stride, false);
    ae_block_matmul(b, &values);
    product(b, mixed(b, W_IN, n), w->decay_a, NULL, decay);
    tanh_of(b, decay, r->n_decay);
    product(b, decay, w->decay_b, w->decay, of(b, DECAY, e));
    product(b, mixed(b, A_IN, n), w->rate_a, NULL, rate);
    product(b, rate, w->rate_b, w->rate, of(b, RATE, e));
    blend_values(b, l, e, blend);
    if (w->gate_a) {
        product(b, mixed(b, G_IN, n), w->gate_a, NULL, gate);
        ae_matmul m = {.n_rows = b->n_rows, .input = AE_INPUT_GLU, .x = gate.x, .x_stride = gate.stride, .glu = AE_GLU_SIGMOID};
        ae_block_output(&m, w->gate_b, NULL, plane(b, GATE), e, false);
        ae_block_matmul(b, &m);
    }
    recur(b, r, l, bonus);
    b->ops->gated_norm(b->stream, &(ae_gated_norm){.n_rows = b->n_rows, .n_groups = r->n_heads, .dim = r->value_dim,
                                                   .x = b->recur->y, .x_stride = e, .z = w->gate_a ? plane(b, GATE) : NULL,
                                                   .z_stride = e, .weight = w->norm, .bias = w->norm_b, .by_group = true,
                                                   .layer = true, .times = true, .bonus = bonus, .v = plane(b, V),
                                                   .eps = NORM_EPS});
}

void ae_block_wkv(const ae_block *b, const ae_recur_hparams *r, const ae_net_layer *l)
{
    float *low = plane(b, N_PLANES), *bonus = low + (size_t)b->n_rows * between(r);
    shift(b, l, l->attn_norm, l->attn_norm_b, 0);
    if (r->kind == AE_RECUR_WKV6) wkv6(b, r, l, low);
    else wkv7(b, r, l, low, bonus);
}

/* Gates the first n columns from `first` on of what the channel mix has made, in plane R, and adds them to y or writes them
 * there. */
static void gate_columns(const ae_block *b, const ae_net_layer *l, rows x, uint32_t first, uint32_t n, float *y, bool to_y)
{
    const size_t e = b->h->n_embd;
    float *gates = plane(b, GATE) + first;
    if (!n) return;
    product(b, x, l->w_gate, NULL, (rows){gates, e});
    b->ops->map(b->stream, &(ae_map){.kind = AE_MAP_GLU, .n_rows = b->n_rows, .dim = n, .x = gates, .x_stride = e,
                                     .x2 = plane(b, R) + first, .x2_stride = e, .glu = AE_GLU_SIGMOID});
    if (to_y) b->ops->copy(b->stream, &(ae_copy){.n = b->n_rows, .dim = n, .x = gates, .x_stride = e, .y = y + first,
                                                 .y_stride = e});
    else b->ops->axpy(b->stream, &(ae_axpy){b->n_rows, n, 1.0f, gates, e, y + first, e});
}

void ae_block_channel_mix(const ae_block *b, const ae_net_layer *l, uint32_t n_ff, bool to_y)
{
    const ae_layer_cut *cut = ae_block_cut(b, l);
    const ae_slices *columns = cut && cut->ffn ? &b->group->ranks->embd : NULL;
    const uint32_t e = b->h->n_embd, n = l->wkv.channel_r ? 2 : 1; /* every rank has this vector, if there are gates */
    const uint32_t first = columns ? columns->first[b->group->ranks->own] : 0;
    const uint32_t own_ff = columns ? cut->own.n_ff : n_ff;
    float *y = to_y ? b->y : b->x, *to = n > 1 ? plane(b, R) : y;
    ae_matmul up = {.n_rows = b->n_rows, .input = AE_INPUT_PLAIN, .x = mixed(b, 0, n).x, .x_stride = mixed(b, 0, n).stride};
    ae_matmul down = {.n_rows = b->n_rows, .input = AE_INPUT_GLU, .x = b->up, .x_stride = own_ff, .glu = AE_GLU_RELU2};
    shift(b, l, l->ffn_norm, l->ffn_norm_b, e);
    mix(b, 0, 1, n, l->wkv.channel_k, false);
    ae_block_output(&up, l->w_up, NULL, b->up, own_ff, false);
    ae_block_matmul(b, &up);
    if (columns) ae_block_gather_input(b, &down, &cut->ff, b->gate, n_ff, cut->ff_block);
    ae_block_output(&down, l->w_down, NULL, to + first, e, n == 1 && !to_y);
    ae_block_matmul(b, &down);
    if (n > 1) {
        mix(b, 1, 1, n, l->wkv.channel_r, false);
        gate_columns(b, l, mixed(b, 1, n), first, columns ? columns->n[b->group->ranks->own] : e, y, to_y);
    }
    if (columns) ae_block_gather_stream(b, y);
}

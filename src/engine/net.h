/* net.h - a model on a device: every weight in the backend's own layout, or in place where the file's layout will do.
 *
 * Owns: the device weights. Borrows: the model (which must outlive it) and the backend. Immutable
 * once created; shared by engines and threads.
 */
#ifndef AE_ENGINE_NET_H
#define AE_ENGINE_NET_H

#include "engine/parts.h"

/* Names as in ae_recur_layer. */
typedef struct ae_net_recur {
    ae_weight *in, *gate, *alpha, *beta, *beta_alpha, *out;
    float *conv, *conv_bias, *decay, *dt_bias, *skip, *norm; /* device f32 or NULL */
    uint32_t i_state; /* number among the recurrent layers */
} ae_net_recur;

typedef struct ae_net_layer {
    float *attn_norm, *ffn_norm; /* [n_embd] device f32 */
    ae_weight *wq, *wk, *wv, *wo, *w_gate, *w_up, *w_down;
    float *bq, *bk, *bv, *bo, *b_gate, *b_up, *b_down; /* device f32 or NULL */
    float *q_norm, *k_norm;      /* device f32 or NULL */
    /* a layer with experts has these instead of w_gate, w_up, w_down; names as in ae_layer */
    ae_weight *router, **e_gate, **e_up, **e_down; /* but for the router one for each expert */
    ae_weight *s_gate, *s_up, *s_down, *s_router; /* or NULL */
    float *router_bias;
    ae_net_recur recur; /* in NULL: the layer is not recurrent */
} ae_net_layer;

typedef struct ae_net {
    const ae_model *model;
    ae_backend *backend;
    ae_weight *embedding; /* lookup; the same object as output when the head is tied */
    ae_weight *output;    /* matmul */
    float *out_norm;      /* [n_embd] device f32 */
    ae_net_layer *layers; /* [n_layers] */
    uint32_t n_recur;     /* layers with recurrent state */
    double *rope_freq;    /* [n_rot / 2] radians per position */
    double rope_magnitude;
    ae_parts parts;       /* every weight and vector */
    ae_weight **experts;  /* [n_layers][3][n of experts] where e_gate, e_up and e_down point; NULL: none */
    size_t pass_bytes;    /* what a pass of one row reads: no lookup table, of experts those it uses; also where it
                           * lies in the file */
} ae_net;

/* Device bytes that the weights will take. */
size_t ae_net_plan_bytes(const ae_model *model, const ae_backend *backend, const ae_load_options *options);
aerie_status ae_net_create(ae_net **out, const ae_model *model, ae_backend *backend, const ae_load_options *options,
                           aerie_error *error);
void ae_net_free(ae_net *net);

#endif

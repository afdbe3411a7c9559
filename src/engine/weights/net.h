/* net.h - a model on a device: every weight in the backend's own layout, or in place where the file's layout will do.
 *
 * Owns: the device weights. Borrows: the model (which must outlive it) and the backends. Immutable
 * once created; shared by engines and threads. Layers may lie on several devices (split.h).
 */
#ifndef AE_ENGINE_WEIGHTS_NET_H
#define AE_ENGINE_WEIGHTS_NET_H

#include "engine/weights/parts.h"
#include "engine/weights/ranks.h"
#include "engine/weights/split.h"

/* Names as in ae_recur_layer. */
typedef struct ae_net_recur {
    ae_weight *in, *gate, *alpha, *beta, *beta_alpha, *out, *x_proj, *dt_proj, *in_q, *in_k, *in_v, *f_a, *g_a;
    float *conv, *conv_bias, *decay, *dt_bias, *skip, *norm, *dt_norm, *b_norm, *c_norm; /* device f32 or NULL */
    float *conv_k, *conv_v;
    uint32_t i_state; /* number among the recurrent layers of its device */
} ae_net_recur;

/* Names as in ae_mla_layer. */
typedef struct ae_net_mla {
    ae_weight *q_a, *q_b;
    ae_weight *kv_latent, *kv_rope; /* rows of kv_a */
    ae_weight **k_b, **v_b;         /* one for each head */
    float *q_a_norm, *kv_a_norm;    /* device f32 */
} ae_net_mla;

/* A layer's weights; names as in ae_layer, fused ones split. Absent ones are NULL. */
typedef struct ae_net_layer {
    float *attn_norm, *attn_norm_b, *attn_post_norm, *ffn_norm, *ffn_norm_b, *ffn_post_norm; /* device f32 */
    float *attn_post_norm_b, *ffn_post_norm_b, *again_norm, *again_norm_b;
    ae_weight *wq, *wk, *wv, *wo, *out_gate, *w_gate, *w_up, *w_down;
    float *bq, *bk, *bv, *bo, *b_gate, *b_up, *b_down;
    float *q_norm, *k_norm, *q_norm_b, *k_norm_b, *sinks, *attn_sub_norm, *ffn_sub_norm;
    float *end_norm; /* [n_embd] of the stream after the layer, with spec.normed_after */
    /* experts */
    ae_weight *router, **e_gate, **e_up, **e_down; /* but for the router one for each expert */
    ae_weight *s_gate, *s_up, *s_down, *s_router;
    ae_weight *latent_down, *latent_up;
    float *router_b, *router_bias, *router_norm, *e_norm, *dense_post_norm, *e_post_norm;
    float *eb_gate, *eb_up, *eb_down, *e_scale;
    ae_weight *ple_gate, *ple_proj;
    float *ple_post_norm;
    float out_scale;
    uint32_t index;
    bool windowed; /* its keys and values are among the parts of pages */
    uint32_t kv; /* layer of its device's KV store that it reads */
    ae_net_recur recur; /* in NULL: the layer is not recurrent */
    ae_net_mla mla;
} ae_net_layer;

typedef struct ae_net {
    const ae_model *model;
    ae_split split;
    const ae_ranks *ranks; /* lent: weights are those of one rank of a group; NULL: there is no group */
    ae_backend *backend;  /* that of the output */
    ae_weight *embedding; /* lookup; the same object as output when the head is tied and on the same device */
    ae_weight *embedding_out; /* lookup on the device of the output; NULL: there is none */
    ae_weight *output;    /* matmul; NULL: an encoder */
    ae_weight *positions, *types; /* lookup; or NULL */
    float *embed_norm, *embed_norm_b; /* or NULL; with plain norms `ones` */
    float *out_norm;      /* [n_embd] device f32; NULL: an encoder whose stream is normed */
    float *out_norm_b, *output_b; /* or NULL */
    ae_weight *ple_embedding, *ple_model_proj; /* or NULL; names as in ae_model */
    float *ple_proj_norm;
    float *slopes[AE_MAX_DEVICES]; /* [n_heads] of ALiBi, device f32; or NULL */
    float *ones[AE_MAX_DEVICES]; /* [most of a head, n_embd with plain norms] device f32: norms without weights */
    ae_net_layer *layers; /* [n_layers] */
    uint32_t n_recur;     /* layers with recurrent state */
    ae_parts parts;       /* every weight and vector */
    ae_weight **stacked;  /* [n_layers][ae_net_n_stacked] where arrays of weights stand, of experts and heads; NULL: none */
    size_t pass_bytes;    /* what a pass of one row reads: no lookup table, of experts those it uses; also where it
                           * lies in the file */
} ae_net;

/* What the layers of a model keep in the KV cache, to layers[n_layers], and how many positions are seen of it, 0: all, to
 * windows[n_layers]; of[n_layers] (or NULL): which of them layer i reads. Returns how many. */
uint32_t ae_net_kv_layers(const ae_model *model, ae_kv_layer *layers, uint32_t *windows, uint32_t *of);

/* On which devices they keep it, to devices [as many]. */
void ae_net_kv_devices(const ae_model *model, const ae_split *split, uint8_t *devices);

#define AE_NET_PARTS_PER_LAYER 112 /* and ae_net_n_stacked */

/* Weights of a layer that stand in arrays: three for each expert, then two for each head of latent attention. */
uint32_t ae_net_n_stacked(const ae_hparams *h);
/* Lists the parts of a layer, to be filled into *to. stacked: [ae_net_n_stacked], room for its arrays. */
void ae_net_list_layer(ae_parts *parts, const ae_hparams *h, const ae_layer *from, ae_weight **stacked, ae_net_layer *to);

/* Whether something can be added to what products with this part of the network give: where a product of rows makes it by
 * itself, not inside of an operation on experts or heads. */
bool ae_net_adapts(const ae_net *net, const ae_part *part);

/* Device bytes that the weights will take. Errors: MEMORY, for the tables that say so. */
aerie_status ae_net_plan_bytes(size_t *bytes, const ae_model *model, const ae_backend *backend, const ae_load_options *options,
                               aerie_error *error);
/* The same of each device, to bytes [n_devices]. */
aerie_status ae_net_plan_split(size_t *bytes, const ae_model *model, const ae_split *split, const ae_load_options *options,
                               aerie_error *error);
aerie_status ae_net_create(ae_net **out, const ae_model *model, ae_backend *backend, const ae_load_options *options,
                           aerie_error *error);
/* The layers lie as the split, which is copied, says. */
aerie_status ae_net_create_split(ae_net **out, const ae_model *model, const ae_split *split, const ae_load_options *options,
                                 aerie_error *error);
void ae_net_free(ae_net *net);

#endif

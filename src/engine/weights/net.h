/* net.h - a model on a device: every weight in the backend's own layout, or in place where the file's layout will do.
 *
 * Owns: the device weights. Borrows: the model (which must outlive it) and the backends. Immutable once created; shared by
 * engines and threads. Layers may be on several devices (split.h).
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
    float *zeros;     /* LIGHTNING [H]; the rows of `in` are first the values of all heads, then all keys, then all queries */
    uint32_t i_state; /* index among the recurrent layers of its device */
} ae_net_recur;

/* Names as in ae_wkv_layer. */
typedef struct ae_net_wkv {
    ae_weight *mix_a, *mix_b[5], *decay_a, *decay_b, *rate_a, *rate_b, *blend_a, *blend_b, *gate_a, *gate_b;
    float *lerp, *lerps[5], *lerp_x, *bias_r, *bias_k, *bias_v, *decay, *rate, *blend, *first, *k_k, *k_a, *norm, *norm_b;
    float *channel_k, *channel_r; /* all device f32 or NULL */
} ae_net_wkv;

/* An adapter's low-rank products for one of the layer's products. */
typedef struct ae_net_switch {
    ae_weight **a, **b; /* [adapters.n] x 2; or NULL */
} ae_net_switch;

/* Names as in ae_altup_layer. */
typedef struct ae_net_altup {
    ae_weight *router, *predict, *laurel_a, *laurel_b;   /* router NULL: one stream */
    ae_weight *late_router, *correct;                    /* late_router: the router again, on the device of the feed-forward
                                                          * block */
    float *router_norm, *laurel_norm, *late_router_norm, *correct_scale; /* device f32 */
} ae_net_altup;

/* Names as in ae_hyper_layer. */
typedef struct ae_net_hyper {
    ae_weight *fn, *down, *up, *inject;
    float *scale, *base, *norm; /* device f32 */
} ae_net_hyper;

/* Names as in ae_memory_layer. */
typedef struct ae_net_memory {
    ae_weight *table, *key, *value;
    float *norm_key, *norm_query, *norm_conv, *taps; /* device f32 */
    uint32_t kept_tokens, kept_rows; /* layers of the store for layers with windows, on this device */
} ae_net_memory;

/* Names as in ae_compressor. */
typedef struct ae_net_compressor {
    ae_weight *kv, *gate;
    float *ape, *norm; /* device f32 */
    uint32_t kept;     /* layer of the device's store for layers with windows: the values from which rows are compressed */
} ae_net_compressor;

/* Names as in ae_compress_layer. */
typedef struct ae_net_compress {
    ae_weight **out_a; /* [n_groups] one weight per group */
    ae_net_compressor rows, index;
    uint32_t kv_rows;  /* layer of the device's KV store: the compressed rows */
} ae_net_compress;

/* Names as in ae_mla_layer. */
typedef struct ae_net_mla {
    ae_weight *q_a, *q_b;
    ae_weight *kv_latent, *kv_rope; /* rows of kv_a */
    ae_weight **k_b, **v_b;         /* [n_heads] one weight for each head */
    float *q_a_norm, *kv_a_norm;    /* device f32 */
    ae_weight *index_q, *index_k, *index_weight;
    float *index_q_norm, *index_k_norm, *index_k_norm_b; /* device f32 */
} ae_net_mla;

/* A layer's weights; names as in ae_layer, fused ones split. Absent ones are NULL. */
typedef struct ae_net_layer {
    float *attn_norm, *attn_norm_b, *attn_post_norm, *ffn_norm, *ffn_norm_b, *ffn_post_norm; /* device f32 */
    float *attn_post_norm_b, *ffn_post_norm_b, *again_norm, *again_norm_b;
    ae_weight *wq, *wk, *wv, *wo, *out_gate, *w_gate, *w_up, *w_down;
    float *bq, *bk, *bv, *bo, *b_gate, *b_up, *b_down;
    float *ff_factors; /* [n_ff] or NULL: factors of the activation's results */
    float *q_norm, *k_norm, *q_norm_b, *k_norm_b, *sinks, *attn_sub_norm, *ffn_sub_norm;
    ae_weight *cross_q, *cross_k, *cross_v, *cross_o; /* cross_q NULL: the layer has no source */
    float *cross_norm;
    float *bias; /* [own heads][AE_BIAS_ROW] */
    float *end_norm; /* [n_embd] norm of the stream after the layer, if spec.normed_after */
    /* experts */
    ae_weight *router, **e_gate, **e_up, **e_down; /* one weight per expert, except for the router */
    ae_weight **c_gate, **c_up, **c_down; /* one weight per chunk expert; or NULL */
    ae_weight *s_gate, *s_up, *s_down, *s_router;
    ae_weight *latent_down, *latent_up;
    float *router_table;
    float *latent_norm;
    ae_weight *mixer_score, *ffn_score;
    float *router_b, *router_bias, *router_norm, *e_norm, *dense_post_norm, *e_post_norm;
    float *eb_gate, *eb_up, *eb_down, *e_scale;
    ae_weight *ple_gate, *ple_proj;
    float *ple_post_norm;
    float out_scale;
    uint32_t index;
    bool windowed; /* the layer's keys and values are in the store for layers with windows */
    uint32_t kv; /* the layer of the device's KV store that attention reads */
    uint32_t kv_index; /* the same for its index keys, if spec.index is OWN */
    float *mixer_carry, *ffn_carry; /* device f32 */
    ae_net_recur recur; /* recur.out NULL: the layer is not recurrent */
    ae_net_wkv wkv;
    ae_net_altup altup;
    ae_net_switch switched[AE_SWITCHES];
    ae_net_mla mla;
    ae_net_hyper hyper_mixer, hyper_ffn;
    ae_net_compress compress;
    ae_net_memory memory;
} ae_net_layer;

typedef struct ae_net {
    const ae_model *model;
    ae_split split;
    const ae_ranks *ranks; /* lent: the weights are those of one rank of a group; NULL: there is no group */
    ae_backend *backend;  /* backend of the output */
    ae_weight *embedding; /* for lookups; the same object as output if the head is tied and on the same device */
    ae_weight *embedding_out; /* for lookups on the output's device; NULL: there is none */
    ae_weight *output;    /* for products; NULL: an encoder */
    ae_weight *positions, *types; /* lookup; or NULL */
    float *embed_norm, *embed_norm_b; /* or NULL; `ones` if norms have no weights */
    uint32_t kv_switch;   /* with adapters that tokens choose: the layer of the first layer's KV store in which rows find
                           * theirs */
    float *low_start;     /* or NULL; as in ae_model */
    float *out_norm;      /* [n_embd] device f32; NULL: an encoder whose stream is normed */
    float *out_norm_b, *output_b; /* or NULL */
    ae_weight *end_score; /* product; or NULL */
    ae_weight *ple_embedding, *ple_model_proj; /* or NULL; names as in ae_model */
    float *ple_proj_norm;
    ae_weight *altup_proj[AE_MAX_STREAMS], *altup_unembd[AE_MAX_STREAMS]; /* of streams from 1 on */
    ae_net_hyper hyper_end;
    float *slopes[AE_MAX_DEVICES]; /* [n_heads] slopes of ALiBi, device f32; or NULL */
    /* [max(widest head, n_embd with norms without weights, all streams with hyper-connections)] device f32 ones */
    float *ones[AE_MAX_DEVICES];
    ae_net_layer *layers; /* [n_layers] */
    uint32_t n_recur;     /* number of layers with recurrent state */
    ae_parts parts;       /* every weight and vector */
    ae_part_run *by_index; /* [2 * index heads] the rows of index queries, rotated ones first; NULL: they are in this order in
                            * the file */
    ae_part_run *by_part; /* rows of `in`, LIGHTNING [3 * heads], DELTA [4 * this rank's groups] with those of `gate`; NULL */
    ae_weight **stacked;  /* [n_layers][ae_net_n_stacked] arrays of the weights of experts and heads; NULL: there are none */
    size_t pass_bytes;    /* bytes that a pass of one row reads, from memory or from the file: without lookup tables, and with
                           * only as many experts as a row uses */
} ae_net;

/* Entries of a layer: keys and values, index keys; or those, compressed rows, and what both are compressed from. */
#define AE_MAX_KV_LAYERS (5 * AE_MAX_LAYERS)

/* Lists what the layers of a model keep in the KV cache in layers[AE_MAX_KV_LAYERS], and in windows[AE_MAX_KV_LAYERS] how many
 * positions of each entry are seen (0: all). of[n_layers] (or NULL) gets the index of the entry that layer i reads; after this
 * entry come the layer's index keys, then compressed rows, what these are compressed from, and what index keys are compressed
 * from. If an index has pools, what its keys are made from follows the index keys. Returns the number of entries. */
uint32_t ae_net_kv_layers(const ae_model *model, ae_kv_layer *layers, uint32_t *windows, uint32_t *of);

/* Writes to owners which layer keeps each of these entries, and to own_rows whether the entry is the layer's keys and
 * values. */
void ae_net_kv_owners(const ae_model *model, uint32_t *owners, bool *own_rows);
/* Writes to devices the device on which each of these entries lies. */
void ae_net_kv_devices(const ae_model *model, const ae_split *split, uint8_t *devices);

#define AE_NET_PARTS_PER_LAYER 232 /* beside ae_net_n_stacked */

/* Returns how many weights of a layer are in arrays: three for each expert and chunk expert, then two for each head of latent
 * attention, or one for each group of heads. */
uint32_t ae_net_n_stacked(const ae_hparams *h);
/* Lists the parts of a layer, which will be filled into *to. stacked: room for ae_net_n_stacked pointers, for the layer's
 * arrays. */
void ae_net_list_layer(ae_parts *parts, const ae_hparams *h, const ae_layer *from, ae_weight **stacked, ae_net_layer *to);
/* Lists the weights that compute the streams' coefficients. */
void ae_net_list_hyper(ae_parts *parts, const ae_hyper_layer *from, ae_net_hyper *to);

/* Returns whether an adapter can add to products with this part of the network: only if a product of its own uses it, not an
 * operation on experts or heads. In adapter.c. */
bool ae_net_adapts(const ae_net *net, const ae_part *part);

/* Computes the device bytes that the weights will take. Errors: MEMORY, for the tables needed to compute them. */
aerie_status ae_net_plan_bytes(size_t *bytes, const ae_model *model, const ae_backend *backend, const ae_load_options *options,
                               aerie_error *error);
/* The same for each device: bytes [n_devices]. */
aerie_status ae_net_plan_split(size_t *bytes, const ae_model *model, const ae_split *split, const ae_load_options *options,
                               aerie_error *error);
aerie_status ae_net_create(ae_net **out, const ae_model *model, ae_backend *backend, const ae_load_options *options,
                           aerie_error *error);
/* Loads the network with its layers on devices as the split says. The split is copied. */
aerie_status ae_net_create_split(ae_net **out, const ae_model *model, const ae_split *split, const ae_load_options *options,
                                 aerie_error *error);
void ae_net_free(ae_net *net);

#endif

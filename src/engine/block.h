/* block.h - the blocks of a layer over the backend's operations: mixer and feed-forward block.
 *
 * Owns nothing. What differs between architectures is data in ae_layer_spec and absent (NULL) weights. */
#ifndef AE_ENGINE_BLOCK_H
#define AE_ENGINE_BLOCK_H

#include "engine/weights/adapter.h"
#include "cache/kv.h"
#include "engine/pass_mode.h"

/* What recurrent layers work on, rows of ae_recur_widths. */
typedef struct ae_recur_rows {
    float *in; /* what the first projection gives */
    float *z;  /* DELTA, KDA: gates; MAMBA1: time steps; PLAMO2: gates, then what the convolution takes */
    float *ab; /* DELTA: beta and alpha; KDA: alpha, beta, and what alpha and gates take; MAMBA1: what time steps are made
                * from, B, C; PLAMO2: B, C, what time steps are made from, these */
    float *c;  /* after the convolution; not of SHORTCONV; of PLAMO2 with B and C behind it */
    float *y;  /* what the layer's last projection takes */
} ae_recur_rows;

/* Floats of a row of each; 0: there is no such array. */
typedef struct ae_recur_widths {
    uint32_t in, z, ab, c, y;
} ae_recur_widths;

/* What an engine needs that is one rank of a group. */
typedef struct ae_block_group {
    const ae_ranks *ranks;
    float *room; /* (host) [n_batch][widest row that is gathered] */
} ae_block_group;

/* The rows of a pass and the activations that layers work on; all arrays device f32 but for places. */
typedef struct ae_block {
    const ae_backend_ops *ops;
    ae_stream *stream;
    const ae_hparams *h;
    const ae_places *places, *part_places; /* of pages, and of parts: the same rows, other tables */
    const ae_places *near_places;          /* of an encoder's layers with windows: the same rows, which see less; or NULL */
    ae_kv_store *kv, *kv_parts;            /* NULL: no layer has a window */
    uint32_t n_rows;
    float *x;            /* [n_rows][n_embd] residual stream */
    const float *mixer_in; /* what attention projects in place of the stream, rows of mixer_in_stride; or NULL */
    size_t mixer_in_stride;
    float *y;            /* [n_rows][n_embd] what a block adds, where that is normed or scaled first */
    float *y2;           /* as y, of what experts add beside a dense block, or scaled */
    float *input;        /* [n_rows][n_embd] the stream before the layer, with keeps_input */
    float *normed;       /* [n_rows][n_embd] what experts take, where it is not their own norm's */
    float *q, *k, *v;    /* [n_rows][n_heads * head_dim] of the layer, [n_rows][n_kv_heads * head_dim] x 2 */
    float *q_gate;       /* [n_rows][2 * n_heads * head_dim], [n_rows][n_heads * head_dim] or [n_rows][n_heads] */
    float *attn;         /* as q */
    float *gate, *up;    /* [n_rows][n_ff] */
    float *latent, *latent_sum; /* [n_rows][experts.n_latent] x 2 what such experts take and give */
    float *mla_q;        /* [n_rows][mla.n_q] */
    float *mla_head;     /* [n_rows][n_heads * (n_nope + n_rope)] queries, then [n_rows][n_heads * value_dim] results, by mla */
    float *const *cos, *const *sin; /* by rotation: [n_rows][n_rot / 2] */
    const float *q_scale; /* [n_rows] or NULL */
    const ae_recur_rows *recur;
    const ae_state_pass *state; /* (host) */
    const float *ple;    /* [n_rows][n_layers][n_embd_layer] embeddings of the rows' tokens for layers; or NULL */
    float *ple_gate, *ple_own; /* [n_rows][n_embd_layer] x 2 */
    const float *slopes; /* [n_heads] what scores lose with distance, or NULL */
    const float *ones;   /* [AE_MAX_HEAD_DIM] */
    const ae_adapter_rows *adapted; /* (host) which rows have adapters; NULL: none */
    const ae_block_group *group; /* (host) NULL: none */
    uint32_t lacks;      /* AE_LACKS_ bits of the layer that comes next, in passes that draft */
    uint32_t n_experts;  /* routed experts of a row, with AE_LACKS_EXPERTS */
} ae_block;

/* Room for n_rows rows of these layers: x to mla_head, NULL where no layer has a use for it. */
void ae_block_layout(ae_layout *layout, const ae_hparams *h, const ae_layer *layers, uint32_t n_layers, size_t n_rows,
                     ae_block *b);
/* The most inputs of a product in these layers. */
uint32_t ae_block_max_in(const ae_hparams *h, const ae_layer *layers, uint32_t n_layers);

/* But for what the layer lacks: x += mixer(norm(x)), then x += ffn(norm(x)), with the norms, scales and order that the layer
 * has. */
void ae_block_layer(const ae_block *b, const ae_layer_spec *spec, const ae_net_layer *layer);
/* The first of these, and the second: the halves of a layer (weights/split.h). */
void ae_block_mixer(const ae_block *b, const ae_layer_spec *spec, const ae_net_layer *layer);
void ae_block_ffn(const ae_block *b, const ae_layer_spec *spec, const ae_net_layer *layer);

/* block_ranks.c: all slices of (device) rows [n_rows][stride] come together, on rank `root` or everywhere. */
void ae_block_gather(const ae_block_group *group, const ae_backend_ops *ops, ae_stream *stream, float *rows, size_t stride,
                     const ae_slices *slices, uint32_t n_rows, int root);
/* The product's input stands in narrow rows of what this rank has: gated if it is to be, it is gathered to
 * wide [n_rows][width], and becomes the product's input. */
void ae_block_gather_input(const ae_block *b, ae_matmul *m, const ae_slices *slices, float *wide, uint32_t width);
/* Where this rank's columns of rows of the stream begin; all of them where the half is not cut. */
float *ae_block_own(const ae_block *b, float *y, bool is_cut);
/* They come together. */
void ae_block_gather_stream(const ae_block *b, float *y);
/* The layer on this rank; NULL: there is no group. */
static inline const ae_layer_cut *ae_block_cut(const ae_block *b, const ae_net_layer *layer)
{
    return b->group && b->group->ranks->kind == AE_RANKS_SPLIT ? &b->group->ranks->layers[layer->index] : NULL;
}

/* block_mla.c: latent attention. Into y, or into the stream. */
void ae_block_mla(const ae_block *b, const ae_layer_spec *spec, const ae_net_layer *layer, bool to_y);

/* What an activation is to products. */
ae_glu ae_block_glu(ae_activation activation);

/* A product of the block's rows: its input, normed if there is a norm; one more weight for it. */
ae_matmul ae_block_input(const ae_block *b, const float *norm, const float *bias);
void ae_block_matmul(const ae_block *b, const ae_matmul *m);
void ae_block_output(ae_matmul *m, const ae_weight *weight, const float *bias, float *y, size_t stride, bool add);

/* block_recur.c: the mixers of layers that keep a state, instead of a KV cache or beside it. y [n_rows][n_embd] = the result,
 * or += it. */
void ae_block_recur(const ae_block *b, const ae_net_layer *layer, float *y, bool add);
ae_recur_widths ae_block_recur_widths(const ae_recur_hparams *recur);
/* What such a layer keeps; its weights (NULL: not yet there). */
ae_state_layer ae_block_recur_state(const ae_recur_hparams *recur, const ae_net_recur *weights);

#endif

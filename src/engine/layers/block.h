/* block.h - the blocks of a layer over the backend's operations: mixer and feed-forward block.
 *
 * Owns nothing. Differences between architectures are data in ae_layer_spec and absent (NULL) weights. */
#ifndef AE_ENGINE_BLOCK_H
#define AE_ENGINE_BLOCK_H

#include "engine/weights/adapter.h"
#include "cache/kv.h"
#include "engine/layers/pass_mode.h"

/* The activations of recurrent layers; ae_recur_widths has the widths of their rows. */
typedef struct ae_recur_rows {
    float *in; /* output of the first projection */
    float *z;  /* DELTA, KDA: gates; MAMBA1: time steps; PLAMO2: gates, then the input of the convolution */
    float *ab; /* DELTA: beta and alpha; KDA: alpha, beta, and the low-rank inputs of alpha and the gates; MAMBA1: the low-rank
                * time steps, B and C; PLAMO2: B, C, the low-rank time steps, then the time steps; WKV: see wkv.c */
    float *c;  /* output of the convolution (PLAMO2 appends B and C); unused by SHORTCONV */
    float *y;  /* input of the layer's last projection */
} ae_recur_rows;

/* Scratch of layers with an index, and their choice, which later layers may use. */
typedef struct ae_selection {
    uint32_t n_most;                /* of a row */
    int32_t *pos, *n_inplace, *path; /* [n_rows] x 2, [n_rows][n_most] for each group: the places that attention reads
                                      * (ae_select) */
    float *q, *k, *weight;          /* [n_rows][index heads * length], [n_rows][length], [n_rows][index heads] */
} ae_selection;

/* Scratch of layers with compressed rows, which use only this, a selection and mla_q. Models whose index pools keys have only
 * `index`: [n_rows][2 * length]. */
typedef struct ae_compress_rows {
    float *rows, *index; /* [n_rows][2 * parts * head_dim], for the index [n_rows][2 * parts * length]: values, then scores */
    float *grouped;      /* [n_rows][n_groups * n_out] */
    uint32_t n_most_chosen; /* most rows that an index chooses; the selection's n_most is enough for all layers */
} ae_compress_rows;

/* Floats per row of each array; 0: the array does not exist. */
typedef struct ae_recur_widths {
    uint32_t in, z, ab, c, y;
} ae_recur_widths;

/* State of an engine that is one rank of a group. */
typedef struct ae_block_group {
    const ae_ranks *ranks;
    float *room; /* (host) [n_batch][widest row that is gathered] scratch */
    bool codes;  /* inputs of products are sent as codes where they can be: all ranks take blocks, and no adapter reads rows */
} ae_block_group;

/* The rows of a pass and the activations of its layers. All arrays are f32 on the device, except for the places. */
/* Rows of a pass that start from embeddings of the caller. */
typedef struct ae_given {
    uint32_t first, n;
    const float *rows; /* lent, [n][n_embd] */
    size_t plane;      /* floats from `rows` to the numbers added after layer 0, and from each layer's to the next layer's */
} ae_given;

typedef struct ae_block {
    const ae_backend_ops *ops;
    ae_stream *stream;
    const ae_hparams *h;
    /* places in pages, and in the pages of layers with a window: the same rows, but other page tables */
    const ae_places *places, *part_places;
    /* places for an encoder's layers with windows, in which a row sees fewer positions; or NULL */
    const ae_places *near_places;
    /* models with a source: the places of what rows see of it, and the source's own rows in the pass (host) [n_given] */
    const ae_places *cross_places;
    const ae_given *given;
    uint32_t n_given;
    ae_kv_store *kv, *kv_parts;            /* kv_parts belongs to layers with a window; NULL: there are none */
    uint32_t n_rows;
    float *x;            /* [n_rows][n_embd] residual stream */
    const float *mixer_in; /* the rows that attention projects instead of the stream, mixer_in_stride floats apart; or NULL */
    size_t mixer_in_stride;
    float *y;            /* [n_rows][n_embd] output of a block, if it is normed or scaled before it is added to the stream */
    float *y2;           /* [n_rows][n_embd] output of experts, if they run in addition to a dense block or are scaled */
    float *start;        /* [n_rows][n_embd] the start of the stream, with adds_start or crosses */
    float *input;        /* [n_rows][n_embd] the stream before the layer, with keeps_input */
    float *streams;      /* [n_rows][n_streams][n_embd] all streams of rows that have several */
    float *coef;         /* [n_rows][n_streams * (n_streams + 2)] coefficients of the streams */
    /* with hyper_rank: [n_rows][n_streams][n_embd] x 2 normed streams, gates; [n_rows][hyper_rank] */
    float *hyper_in, *hyper_gate, *hyper_low;
    int32_t *memory_ids; /* [n_rows][memory.n_heads] rows of the table, with a memory */
    float *memory_rows;  /* [n_rows][memory.n_heads * memory.width] */
    float *laurel;       /* [n_rows][laurel_rank] */
    float *banks;        /* [n_rows][n_banks][n_embd] the stream as it was before each layer that banks it */
    float *bank_coef;    /* [n_rows][n_banks + 1] scores of the banks and of the stream */
    float *mixed;        /* [n_rows][n_embd] the sum that a block reads, with n_banks */
    float *normed;       /* [n_rows][n_embd] input of experts when they cannot norm the stream themselves */
    float *q, *k, *v;    /* [n_rows][n_heads * head_dim] of the layer, then [n_rows][n_kv_heads * head_dim] x 2 */
    float *q_gate;       /* [n_rows][2 * n_heads * head_dim], [n_rows][n_heads * head_dim] or [n_rows][n_heads] */
    float *attn;         /* [n_rows][n_heads * head_dim] */
    float *gate, *up;    /* [n_rows][n_ff] */
    /* in a group only: activations between the experts' products, of all ranks, and this rank's columns of the rows that
     * experts add to */
    float *wide_k; /* of a rank in a split, if keys are normed over all heads: [n_rows][n_kv_heads * head_dim]; else NULL */
    float *hidden, *hidden_shared, *narrow; /* [n_rows][n_used][n_ff], [n_rows][n_ff_shared], [n_rows][n_embd or n_latent] */
    float *hidden_codes, *shared_codes; /* the first two as blocks, if the group sends codes */
    float *latent, *latent_sum; /* [n_rows][experts.n_latent] x 2: input and output of experts that work on a narrower stream */
    float *mla_q;        /* [n_rows][mla.n_q] */
    float *mla_head;     /* [n_rows][n_heads * (n_nope + n_rope)] queries, then [n_rows][n_heads * value_dim] results, by mla */
    float *const *cos, *const *sin; /* one table per rotation: [n_rows][n_rot / 2] */
    const float *q_scale; /* [n_rows] or NULL */
    const ae_selection *selection;
    const ae_compress_rows *compress;
    const int32_t *tokens; /* [n_rows] tokens of the rows, for experts that a table assigns to tokens */
    float *adapter;      /* [n_rows][AE_SWITCH_DIM] the first number of each row is the number of its adapter; or NULL */
    const uint8_t *all_lacks; /* (host) [n_layers] `lacks` of all layers; NULL: no layer lacks anything */
    const ae_recur_rows *recur;
    const ae_state_pass *state; /* (host) */
    const float *ple;    /* [n_rows][n_layers][n_embd_layer] embeddings of the rows' tokens for layers; or NULL */
    float *ple_gate, *ple_own; /* [n_rows][n_embd_layer] x 2 */
    const float *slopes; /* [n_heads] how much a score falls per position of distance; or NULL */
    const float *ones;   /* [AE_MAX_HEAD_DIM] */
    const ae_adapter_rows *adapted; /* (host) the rows that have adapters; NULL: none */
    const ae_block_group *group; /* (host) NULL: this engine is not part of a group */
    bool fills;          /* nothing reads the rows after this layer's mixer, which has only to fill the cache */
    uint32_t lacks;      /* in drafting passes, the AE_LACKS_ bits of the layer that runs next */
    uint32_t n_experts;  /* with AE_LACKS_EXPERTS: routed experts per row */
} ae_block;

/* Lays out the arrays x to mla_head for n_rows rows of these layers; arrays that no layer uses stay NULL. */
void ae_block_layout(ae_layout *layout, const ae_hparams *h, const ae_layer *layers, uint32_t n_layers, size_t n_rows,
                     ae_block *b);
/* ranks.c: the same for the arrays wide_k to shared_codes of an engine in a group. codes: the group sends codes. */
void ae_block_layout_group(ae_layout *layout, const ae_hparams *h, const ae_layer *layers, size_t n_rows, bool codes,
                           ae_block *b);
/* Returns the largest input size of a product in these layers. */
uint32_t ae_block_max_in(const ae_hparams *h, const ae_layer *layers, uint32_t n_layers);

/* x += mixer(norm(x)), then x += ffn(norm(x)), with the layer's own norms, scales and order, and without the parts that `lacks`
 * leaves out. */
void ae_block_layer(const ae_block *b, const ae_layer_spec *spec, const ae_net_layer *layer);
/* Run the two halves of a layer (weights/split.h). */
void ae_block_mixer(const ae_block *b, const ae_layer_spec *spec, const ae_net_layer *layer);
void ae_block_ffn(const ae_block *b, const ae_layer_spec *spec, const ae_net_layer *layer);

/* Stores the source's keys and values in a layer, in a pass of the source's rows alone. */
void ae_block_source(const ae_block *b, const ae_layer_spec *spec, const ae_net_layer *layer);

/* Rows of which each rank has computed slices. */
typedef struct ae_block_slices {
    float *rows;             /* (device) [n_rows][stride] */
    size_t stride;
    uint32_t n_rows;
    const ae_slices *slices; /* [n] */
    uint32_t n;
} ae_block_slices;

/* ranks.c: gathers all ranks' slices of these rows [n] in one round, on the ranks `to`. */
void ae_block_gather(const ae_block_group *group, const ae_backend_ops *ops, ae_stream *stream, const ae_block_slices *rows,
                     uint32_t n, ae_receivers to);
/* Copies narrow rows [n_rows][n] of this rank's recurrent heads to their places in wide [n_rows][width], and gathers those.
 * block: 32 or 256 values become codes with a scale, in narrow rows too; 0: they stay as they are. */
void ae_block_gather_recur(const ae_block *b, float *narrow, uint32_t n, float *wide, uint32_t width, uint32_t block);
/* Set where AE_MOE_UP writes its values, gather these of all ranks, and set where AE_MOE_DOWN reads them. */
void ae_block_hidden_up(const ae_block *b, const ae_layer_cut *cut, ae_moe *m);
void ae_block_gather_hidden(const ae_block *b, const ae_layer_cut *cut, ae_moe *m);
/* Norms queries and keys over all heads of a row, although a rank has only some heads (ae_ranks_norms_rows). spec: that of all
 * heads. */
void ae_block_norm_rows(const ae_block *b, const ae_layer_spec *spec, const ae_net_layer *layer, const ae_layer_cut *cut);
/* Gathers the output of experts that are narrower than the stream. */
void ae_block_gather_latent(const ae_block *b, float *y);
/* Makes the input of a product whole: the input is in narrow rows that hold only this rank's columns. Applies its gate, if it
 * has one, gathers the result into wide [n_rows][width], and makes that the product's input. block: 32 or 256 values are sent
 * as codes with a scale, if the group does so; 0: as they are. */
void ae_block_gather_input(const ae_block *b, ae_matmul *m, const ae_slices *slices, float *wide, uint32_t width,
                           uint32_t block);
/* Returns where this rank's columns of stream rows begin; the beginning of the row if the half of the layer is not cut. */
float *ae_block_own(const ae_block *b, float *y, bool is_cut);
/* Gathers these columns from all ranks. */
void ae_block_gather_stream(const ae_block *b, float *y);
/* Returns how the layer is cut on this rank; NULL: it is whole. */
static inline const ae_layer_cut *ae_block_cut(const ae_block *b, const ae_net_layer *layer)
{
    return b->group && ae_ranks_cuts(b->group->ranks) ? &b->group->ranks->layers[layer->index] : NULL;
}

/* mla.c: latent attention. Adds the result to the stream, or writes it to y. */
void ae_block_mla(const ae_block *b, const ae_layer_spec *spec, const ae_net_layer *layer, bool to_y);
/* Only puts the rows into the cache. */
void ae_block_mla_fill(const ae_block *b, const ae_layer_spec *spec, const ae_net_layer *layer);

/* choice.c: layers that choose what they attend to. Puts the index keys (in selection->k) into the cache and chooses by the
 * queries and weights there, which are rotated, and normed if the layer has norms for it. */
void ae_block_choose(const ae_block *b, const ae_net_layer *layer);
/* Adds to m the queries and keys of an index that reads the input of the layer's own projections. Call it before
 * ae_block_choose. */
void ae_block_index_rows(const ae_block *b, const ae_net_layer *layer, const ae_matmul *m);
/* Returns where a layer's attention finds the positions that the rows chose. In a pass that leaves the choosing layer out, rows
 * see all positions. */
ae_places ae_block_chosen(const ae_block *b, const ae_layer_spec *spec, const ae_net_layer *layer);

/* switch.c: adapters that tokens choose. find: from queries, keys and values [3][n_batch][AE_SWITCH_DIM], which are stored in
 * `layer` of the KV store, the adapter of each row; switched: adds to y what the rows' adapters make of x, the input of product
 * `which` of the layer (normed if norm is not NULL). */
void ae_block_find_adapters(const ae_block *b, uint32_t layer, float *rows, size_t n_batch);
void ae_block_switched(const ae_block *b, const ae_net_layer *l, uint32_t which, const float *x, const float *norm, float *y);

/* streams.c: layers whose rows have several streams. begin: x is the first of them, proj[k] computes stream k; end: x
 * becomes the mean of all; before a layer's mixer, predict; beside it, laurel writes y2 and join_laurel adds it; after its
 * feed-forward block, correct. spread adds y to all streams but the first. */
void ae_block_streams_begin(const ae_block *b, ae_weight *const *proj);
void ae_block_streams_end(const ae_block *b, ae_weight *const *unembd);
void ae_block_predict(const ae_block *b, const ae_net_layer *layer);
void ae_block_laurel(const ae_block *b, const ae_net_layer *layer);
void ae_block_join_laurel(const ae_block *b);
void ae_block_correct(const ae_block *b, const ae_net_layer *layer);
void ae_block_spread(const ae_block *b);
/* The same for stacks that work on the sum of a low and a high stream (ae_hparams.n_stack). begin: x is the high one; cycle: x
 * is the normed result of the stack that ends with this layer, and becomes the input of the next one. */
void ae_block_cycles_begin(const ae_block *b, const float *low_start);
void ae_block_cycle(const ae_block *b, const ae_net_layer *layer);

/* compressed.c: attention over a window and compressed rows. Adds the result to the stream, or writes it to y. */
void ae_block_compressed(const ae_block *b, const ae_layer_spec *spec, const ae_net_layer *layer, bool to_y);

/* hyper.c: layers with hyper-connections. begin: all streams become x; enter: x becomes what a block reads, which leaves its
 * result in y; leave: the streams become those after the block; mean: x becomes the mean of all, which others read as the row;
 * end: x becomes the row at the end of the model. */
void ae_block_hyper_begin(const ae_block *b);
void ae_block_hyper_enter(const ae_block *b, const ae_net_hyper *layer);
void ae_block_hyper_leave(const ae_block *b);
void ae_block_hyper_mean(const ae_block *b);
void ae_block_hyper_end(const ae_block *b, const ae_net_hyper *layer);
/* ngrams.c: adds to the streams what the layer's memory has about the last tokens. */
void ae_block_remember(const ae_block *b, const ae_net_memory *layer);

/* banks.c: attention residuals. banked: what a half of the layer reads, in rows of n_embd: the stream itself (before the first
 * bank), or mixed; bank: keeps the stream, if it begins anew in this layer; end: the stream becomes the sum that the
 * output reads. */
float *ae_block_banked(const ae_block *b, const ae_net_layer *layer, bool ffn);
bool ae_block_bank(const ae_block *b, const ae_net_layer *layer);
void ae_block_banks_end(const ae_block *b, const ae_weight *weight);

/* Returns the gated form in which products apply an activation. */
ae_glu ae_block_glu(ae_activation activation);

/* Returns a product whose input is the stream, normed if norm is not NULL; ae_block_output adds a weight to it. */
ae_matmul ae_block_input(const ae_block *b, const float *norm, const float *bias);
void ae_block_matmul(const ae_block *b, const ae_matmul *m);
void ae_block_output(ae_matmul *m, const ae_weight *weight, const float *bias, float *y, size_t stride, bool add);

/* recur.c: the mixers of layers that keep a recurrent state, instead of a KV cache or in addition to it. Writes the result to y
 * [n_rows][n_embd], or adds it. */
void ae_block_recur(const ae_block *b, const ae_net_layer *layer, float *y, bool add);
ae_recur_widths ae_block_recur_widths(const ae_recur_hparams *recur);
/* wkv.c: RWKV. The mixer without its last product, for the heads that `own` counts, from the stream to recur->y; the channel
 * mix, to y or added to the stream. */
void ae_block_wkv(const ae_block *b, const ae_recur_hparams *own, const ae_net_layer *layer);
void ae_block_channel_mix(const ae_block *b, const ae_net_layer *layer, uint32_t n_ff, bool to_y);
ae_recur_widths ae_block_wkv_widths(const ae_recur_hparams *recur);
/* WKV7: returns [n_rows][n_embd], the values of the model's first layer, which later layers read. */
float *ae_block_first_values(const ae_recur_rows *rows);
/* Returns the state that such a layer keeps, and its weights (NULL: not loaded yet). */
ae_state_layer ae_block_recur_state(const ae_recur_hparams *recur, const ae_net_recur *weights);

#endif

/* ranks.h - which rank of a group computes which part of a model.
 *
 * SPLIT: every matrix is cut by its output rows. A rank has whole heads (keys and values with the queries that read them, of
 * recurrent layers with their state), and some rows of the feed-forward blocks, of every expert, of the matrices whose output
 * is added to the stream, and of the vocabulary. What each rank computes is gathered. An output element is one chain of
 * operations, so its bits do not depend on the rank that computes it. Halves of layers that cannot be cut are computed by every
 * rank, without messages, because every rank has the whole stream.
 * PIPELINE: a stage has whole layers, and sends the stream to the next stage (and whatever else layers hand on: further
 * streams, banked rows, values of the first layer). The output belongs to stage 0. Weights that layers share are on each of
 * their stages. The ranks of a stage, which follow each other, split its layers. A split is one stage of all ranks.
 *
 * Owns the table of layers. Borrows model and communicator. Immutable. Reads only the shapes of the model from its file, so
 * that all ranks with the same model file have the same map.
 */
#ifndef AE_ENGINE_WEIGHTS_RANKS_H
#define AE_ENGINE_WEIGHTS_RANKS_H

#include "backend/backend.h"
#include "comm/comm.h"
#include "engine/weights/parts.h"
#include "model/model.h"

#define AE_RECUR_RUNS 16 /* most runs of rows that a rank has of one weight */

typedef struct ae_runs {
    uint32_t n;
    ae_part_run list[AE_RECUR_RUNS];
} ae_runs;

/* This rank's part of the recurrent layers, which are all alike (ranks_recur.c). The runs say which rows of the weights, or
 * elements of the vectors, it has. A unit is a head, or a channel if there are no heads. */
typedef struct ae_recur_cut {
    bool is_cut;
    bool whole_norm; /* MAMBA2: the norm spans several ranks' values, so it comes after the gather */
    ae_recur_hparams own; /* with this rank's numbers of heads, groups and channels; n_channels 0: the rank has no part */
    ae_runs in, units, values, pairs, taps, bias, norm, decay; /* in: rows of `in`; units: one row of each unit; pairs: rows of
                                                                * beta_alpha, of RWKV's keys and values; decay:
                                                                * MAMBA1's */
    uint32_t n_slices;
    ae_slices slices[AE_RECUR_RUNS]; /* for the input of `out`: each rank's values, run by run */
} ae_recur_cut;

/* This rank's part of a layer. For halves that are not cut, `own` equals the layer's spec. */
typedef struct ae_layer_cut {
    bool mixer, recur, ffn, experts; /* whether these are cut over the ranks: attention, recurrent mixer, dense block,
                                      * experts */
    ae_layer_spec own;        /* with this rank's numbers of heads and n_ff, which may be 0 */
    uint32_t first_head, first_kv_head;
    ae_slices attn, ff;       /* the slices of the inputs of wo and w_down that each rank has */
    /* the block in whose codes and scale inputs of the last products can be sent: 32, 256; 0: as f32 alone. recur: of the
     * recurrent mixer's; expert, shared: of the experts' and of the shared one's */
    uint32_t attn_block, ff_block, recur_block, expert_block, shared_block;
} ae_layer_cut;

typedef struct ae_ranks {
    ae_comm *comm;
    uint32_t n, own;
    uint32_t n_stages, stage; /* stage: this rank's */
    bool codes; /* set by the creator, before engines: all ranks' backends take blocks */
    uint32_t shares[AE_MAX_RANKS]; /* as they were given */
    uint32_t first[AE_MAX_RANKS + 1]; /* stage s is ranks [first[s], first[s + 1]) */
    uint32_t begin[AE_MAX_RANKS + 1]; /* and has layers [begin[s], begin[s + 1]) */
    /* Slices of the layers are those of this rank's stage; ranks of others have nothing. vocab: of stage 0. */
    ae_slices embd, vocab; /* rows of the matrices whose output is added to the stream, and rows of the output */
    ae_slices expert_ff, shared_ff, latent; /* inner rows of each expert and of the shared one; rows of the experts' output if
                                             * it is narrower than the stream */
    ae_part_run *inner_bias, *out_bias; /* [n_experts] x 2, the elements that this rank has of the biases of all experts */
    ae_recur_cut recur;
    ae_layer_cut *layers;  /* [n_layers] */
    uint32_t n_whole;      /* of this stage: number of half layers that all of its ranks, if there are several, compute */
} ae_ranks;

#define AE_RANKS_SPLIT 1 /* stages */

/* n_stages: 1 to comm->n_ranks, over which the ranks are dealt evenly, in order; the first ones have one more where that is not
 * possible. shares [comm->n_ranks] of the work, each from 0 (none) to 1000; NULL: equal shares. ARGUMENT: all are 0.
 * UNSUPPORTED: an encoder. MEMORY. */
aerie_status ae_ranks_create(ae_ranks **out, const ae_model *model, ae_comm *comm, uint32_t n_stages, const uint32_t *shares,
                             aerie_error *error);
void ae_ranks_free(ae_ranks *ranks);

/* Cuts `total` floats by shares, in multiples of `unit`. */
void ae_ranks_cut(ae_slices *slices, uint32_t total, uint32_t unit, const uint32_t *shares, uint32_t n);
/* Return the block that products with this weight make codes of (0: none), and the unit in which n values that such a product
 * reads are cut: a block, unless shares of whole blocks would be too coarse. */
uint32_t ae_ranks_block(ae_tensor_ref weight);
uint32_t ae_ranks_unit(const ae_ranks *ranks, uint32_t n, uint32_t block);
/* ranks_recur.c: sets ranks->recur. */
void ae_ranks_cut_recur(ae_ranks *ranks, const ae_model *model, const uint32_t *shares);
/* Returns the stage that has a layer; n_layers: the output. */
uint32_t ae_ranks_stage(const ae_ranks *ranks, uint32_t layer);
static inline bool ae_ranks_has(const ae_ranks *ranks, uint32_t layer)
{
    return !ranks || ae_ranks_stage(ranks, layer) == ranks->stage;
}
/* Returns the ranks of a stage. */
static inline ae_receivers ae_ranks_of(const ae_ranks *ranks, uint32_t stage)
{
    return (ae_receivers){ranks->first[stage], ranks->first[stage + 1] - ranks->first[stage]};
}
/* Return whether this rank has only parts of its layers, and whether rank 0 has only a part of the output. */
static inline bool ae_ranks_cuts(const ae_ranks *ranks)
{
    return ranks && ae_ranks_of(ranks, ranks->stage).n > 1;
}
static inline bool ae_ranks_cuts_output(const ae_ranks *ranks)
{
    return ranks && ae_ranks_of(ranks, 0).n > 1;
}
/* Writes which part of rows of `width` floats each rank of a stage sends to another stage. */
void ae_ranks_handed(const ae_ranks *ranks, uint32_t stage, uint32_t width, ae_slices *slices);
/* Replaces what layers [n] keep in the KV cache, as ae_net_kv_layers lists them for the whole model, by what this rank keeps;
 * the next function does the same for recurrent state. Where this rank keeps nothing, a small stand-in takes its place, so that
 * pages, windows and landings are the same on all ranks. */
void ae_ranks_kv(const ae_ranks *ranks, const ae_model *model, ae_kv_layer *layers, uint32_t n);
void ae_ranks_state(const ae_ranks *ranks, const ae_model *model, ae_state_layer *layers);

/* Returns whether this rank keeps a part of such an entry (ae_net_kv_owners). */
bool ae_ranks_keeps(const ae_ranks *ranks, const ae_model *model, uint32_t layer, bool own_rows);

/* Returns whether queries and keys are normed over all heads of a row. Ranks that have only some heads must gather them
 * before. */
static inline bool ae_ranks_norms_rows(const ae_layer_spec *s)
{
    return s->mixer == AE_MIXER_ATTENTION && (s->qk_norm == AE_QK_NORM_ROW || s->qk_norm == AE_QK_NORM_ROW_LAYER);
}

/* Returns the floats of a row that a stage sends to the next one. */
uint32_t ae_ranks_stream_width(const ae_hparams *h);
/* The messages of a pass with logits of all rows. One stage after another does its rounds. */
typedef struct ae_ranks_counts {
    uint32_t n_inner;   /* rounds within this rank's stage */
    uint32_t n_handed;  /* from stage to stage */
    uint32_t n_own;     /* rounds in which this rank takes part */
    uint64_t row_bytes; /* that this rank receives for one row */
} ae_ranks_counts;

/* codes: inputs of products are sent as codes, where that is possible: ranks->codes, and no adapters. */
ae_ranks_counts ae_ranks_count(const ae_ranks *ranks, const ae_model *model, bool codes);

#endif

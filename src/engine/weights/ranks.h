/* ranks.h - which rank of a group computes which part of a model.
 *
 * SPLIT: every matrix is cut by its output rows. A rank has whole heads (keys and values with the queries that read them), and
 * some rows of the feed-forward blocks, of the matrices whose output is added to the stream, and of the vocabulary. What each
 * rank computes is gathered. An output element is one chain of operations, so its bits do not depend on the rank that computes
 * it. Halves of layers that cannot be cut are computed by every rank, without messages, because every rank has the whole
 * stream.
 * PIPELINE: a rank has whole layers, and sends the stream to the next rank. The output belongs to rank 0.
 *
 * Owns the table of layers. Borrows model and communicator. Immutable. Reads only the shapes of the model from its file, so
 * that all ranks with the same model file have the same map.
 */
#ifndef AE_ENGINE_WEIGHTS_RANKS_H
#define AE_ENGINE_WEIGHTS_RANKS_H

#include "backend/backend.h"
#include "comm/comm.h"
#include "model/model.h"

typedef enum ae_ranks_kind {
    AE_RANKS_SPLIT,
    AE_RANKS_PIPELINE,
} ae_ranks_kind;

/* A layer on this rank. For halves that are not cut, `own` equals the layer's spec. */
typedef struct ae_layer_cut {
    bool mixer, ffn; /* whether each half is cut over the ranks; experts never are */
    ae_layer_spec own;        /* with this rank's numbers of heads and n_ff, which may be 0 */
    uint32_t first_head, first_kv_head;
    ae_slices attn, ff;       /* which part of the inputs of wo and w_down each rank has */
} ae_layer_cut;

typedef struct ae_ranks {
    ae_comm *comm;
    uint32_t n, own;
    ae_ranks_kind kind;
    uint32_t begin[AE_MAX_RANKS + 1]; /* PIPELINE: rank r has layers [begin[r], begin[r + 1]) */
    ae_slices embd, vocab; /* rows of the matrices whose output is added to the stream, and rows of the output */
    ae_layer_cut *layers;  /* [n_layers] */
    uint32_t n_whole;      /* SPLIT: number of half layers that every rank computes */
} ae_ranks;

/* shares [comm->n_ranks] of the work, each from 0 (none) to 1000; NULL: equal shares. ARGUMENT: all are 0. UNSUPPORTED: an
 * encoder, or for PIPELINE a model whose layers share weights. MEMORY. */
aerie_status ae_ranks_create(ae_ranks **out, const ae_model *model, ae_comm *comm, ae_ranks_kind kind, const uint32_t *shares,
                             aerie_error *error);
void ae_ranks_free(ae_ranks *ranks);

/* Cuts `total` floats by shares, in multiples of `unit`. */
void ae_ranks_cut(ae_slices *slices, uint32_t total, uint32_t unit, const uint32_t *shares, uint32_t n);
/* The rank that has a layer; n_layers: the output. With SPLIT, this rank. */
uint32_t ae_ranks_owner(const ae_ranks *ranks, uint32_t layer);
static inline bool ae_ranks_has(const ae_ranks *ranks, uint32_t layer)
{
    return !ranks || ae_ranks_owner(ranks, layer) == ranks->own;
}
/* Replaces what layers [n], as ae_net_kv_layers lists them for the whole model, keep in the KV cache by what this rank keeps;
 * the next function does the same for recurrent state. Where this rank keeps nothing, a small stand-in takes its place, so that
 * pages, windows and landings are the same on all ranks. */
void ae_ranks_kv(const ae_ranks *ranks, const ae_model *model, ae_kv_layer *layers);
void ae_ranks_state(const ae_ranks *ranks, const ae_model *model, ae_state_layer *layers);

/* Rounds of messages in a pass with logits. */
uint32_t ae_ranks_rounds(const ae_ranks *ranks, const ae_model *model);
/* Bytes that this rank receives in them for one row with logits. */
uint64_t ae_ranks_row_bytes(const ae_ranks *ranks, const ae_model *model);

#endif

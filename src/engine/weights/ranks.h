/* ranks.h - which rank of a group computes what of a model.
 *
 * SPLIT: every matrix is cut by its output rows. A rank has whole heads (keys and values with the queries that read them), rows
 * of the feed-forward blocks, of what both add to the stream, and of the vocabulary; what it has made is gathered. An output
 * element is one chain of operations, so that its bits do not depend on who computes it. Halves of layers that cannot be
 * cut are computed by every rank, which needs no message: all of them have the whole stream.
 * PIPELINE: a rank has whole layers, and hands the stream on. The output is rank 0's.
 *
 * Owns the table of layers. Borrows model and communicator. Immutable. Reads nothing of a file but the model's shapes, so that
 * all ranks of one model file have the same map.
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

/* A layer on this rank. Of halves that are not cut `own` says what the layer's spec does. */
typedef struct ae_layer_cut {
    bool mixer, ffn; /* cut over the ranks; experts are not */
    ae_layer_spec own;        /* with the heads and n_ff of this rank, which may be 0 */
    uint32_t first_head, first_kv_head;
    ae_slices attn, ff;       /* what ranks have of the inputs of wo and w_down */
} ae_layer_cut;

typedef struct ae_ranks {
    ae_comm *comm;
    uint32_t n, own;
    ae_ranks_kind kind;
    uint32_t begin[AE_MAX_RANKS + 1]; /* PIPELINE: rank r has the layers [begin[r], begin[r + 1]) */
    ae_slices embd, vocab; /* rows of what joins the stream, and of the output */
    ae_layer_cut *layers;  /* [n_layers] */
    uint32_t n_whole;      /* SPLIT: halves of layers that every rank computes */
} ae_ranks;

/* shares [comm->n_ranks] of the work, each from 0 (none) to 1000; NULL: equal ones. ARGUMENT: all are 0. UNSUPPORTED: an
 * encoder. */
aerie_status ae_ranks_create(ae_ranks **out, const ae_model *model, ae_comm *comm, ae_ranks_kind kind, const uint32_t *shares,
                             aerie_error *error);
void ae_ranks_free(ae_ranks *ranks);

/* Cuts total floats, in units, by shares. */
void ae_ranks_cut(ae_slices *slices, uint32_t total, uint32_t unit, const uint32_t *shares, uint32_t n);
/* The rank that has a layer; n_layers: the output. SPLIT: this one. */
uint32_t ae_ranks_owner(const ae_ranks *ranks, uint32_t layer);
static inline bool ae_ranks_has(const ae_ranks *ranks, uint32_t layer)
{
    return !ranks || ae_ranks_owner(ranks, layer) == ranks->own;
}
/* What this rank keeps in its KV cache, layers [n] as ae_net_kv_layers lists them for the whole model, and as recurrent state.
 * Where it keeps nothing a small stand-in takes the place, so that pages, windows and landings are those of all ranks. */
void ae_ranks_kv(const ae_ranks *ranks, const ae_model *model, ae_kv_layer *layers);
void ae_ranks_state(const ae_ranks *ranks, const ae_model *model, ae_state_layer *layers);

/* Rounds that a pass takes, with logits. */
uint32_t ae_ranks_rounds(const ae_ranks *ranks, const ae_model *model);
/* Bytes that this rank receives in them for one row with logits. */
uint64_t ae_ranks_row_bytes(const ae_ranks *ranks, const ae_model *model);

#endif

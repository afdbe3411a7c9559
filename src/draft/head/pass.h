/* pass.h - the head's state, shared by engine.c (rows, life), forward.c, block_pass.c and lattice.c (the passes). */
#ifndef AE_DRAFT_HEAD_PASS_H
#define AE_DRAFT_HEAD_PASS_H

#include "engine/layers/block.h"
#include "engine/rows.h"
#include "draft/head/engine.h"

typedef struct ae_dhead_seq {
    uint32_t forgotten;  /* true rows that the window dropped or that were not kept; except for sinks, the position of a row is
                          * its slot + forgotten */
    uint32_t gap_end;    /* the first row after the newest gap of skipped rows (ae_dhead_skip); 0: there is no gap */
    uint32_t n_added;    /* true rows that the pass being built has for this sequence */
    uint32_t debt;       /* position minus rotation of the rows after the newest true one */
    const ae_media *media; /* [n_media] media for the pass being built */
    uint32_t n_media;
    uint32_t n_drafted;
    int32_t parent[AERIE_MAX_DRAFT], depth[AERIE_MAX_DRAFT]; /* parents and depths of drafted rows; rows of depth 1 continue the
                                                              * newest true row */
} ae_dhead_seq;

struct ae_dhead_engine {
    const ae_dhead_net *net;
    ae_backend *backend;
    ae_dhead_engine_options options; /* with defaults resolved */
    uint32_t n_outputs;
    ae_stream *stream;
    ae_engine *target;
    ae_kv *kv; /* NULL for Medusa, and for an assistant, which reads the target's */
    void *host, *device;
    size_t device_bytes;
    ae_dhead_seq *seqs; /* [n_seqs] */

    /* the rows of the pass being built (host), [n_batch] each */
    uint32_t n_rows, n_out;
    uint32_t n_chains; /* chains of true rows; not counted if the head has one step */
    uint32_t depth; /* depth of the drafted rows: the same for all rows of a pass, if the head has several layers */
    uint32_t i_out; /* the layer whose outputs the pass exported */
    ae_rows rows;       /* `parent` is not used: `seqs` has the parents */
    ae_rows on_device;  /* (device) the rows of the running pass; fed_from, out_fed: indices into fed */
    ae_proposal *proposals; /* (device) [n_outputs] */
    int32_t *to_target; /* (device) [n_draft] the target's ids, if the network has a map */
    float *logits_room; /* [n_outputs][n_draft] if the host cannot read device memory; else NULL */
    const float **logits_host; /* [n_outputs] rows of the last pass that the host has read; else NULL */

    struct ae_dhead_given {
        uint32_t first, n;
        const float *rows; /* lent, [n][n_target_embd] */
    } *given;           /* [n_batch], n_given of them used: rows of the pass that read these numbers, since their next position
                         * is not a token */
    uint32_t n_given;

    /* device, f32; H = n_embd, F = n_taps * n_target_embd, W = n_target_embd for an assistant, all streams of a row with
     * hyper-connections, otherwise H */
    float *features;    /* [n_batch][F] */
    float *g;           /* [n_batch][W] the feature, fused or fed back */
    float *c;           /* [n_batch][2W] embedding | feature, normed for EAGLE-3; with several streams one per stream,
                         * [n_batch][streams][2H] */
    ae_block block;     /* activations x to up of a block, for n_batch rows */
    ae_compress_rows compress; /* only `grouped` */
    float *medusa;      /* [n_outputs][H] */
    double *rope_freq[AE_MAX_ROPES]; /* [n_rot / 2] */
    float *cos[AE_MAX_ROPES], *sin[AE_MAX_ROPES]; /* [n_batch][n_rot / 2] */
    float *x_out;       /* [n_outputs][H] */
    float *logits;      /* [n_outputs][n_draft] */
    /* block drafters; L = n_seqs * AE_DHEAD_LEVEL_MAX links, K = n_markov */
    float *hidden;      /* [n_outputs][H] the blocks' rows after the last norm */
    int32_t *links, *link_tokens, *host_links; /* [L] output of each link, and its token; host_links (host) has both, [2 L] */
    float *link_in, *conf; /* [L][H + K] the row and the token's contribution to the bias; [L] confidence before the sigmoid */
    float *linked;      /* [L][n_draft] logits */
    float *link_up, *link_x; /* DFly: [2][L][n_correct] gate and up; [L][H] corrected rows. link_in is [L][2H] then */
    float *conf_out;    /* (host) where the next ae_dhead_sync puts the confidences of n_conf links; NULL: nowhere */
    uint32_t n_conf;
    /* DFlash2; C = 2 * n_conv * H / conv_group, T tokens of a turn, P = n_pair */
    float *conv_in, *conv_out; /* [n_batch + 1][H] what a convolution reads; their last row is zero */
    float *conv_y, *conv_a, *conv_b; /* [n_batch][H] the sublayer's input, and terms of the convolution's sum */
    float *conv_c;      /* [n_batch][C] coefficients */
    int32_t *conv_rows; /* (host) [n_conv][n_batch] the row that each tap of a row sees */
    float *pair_rows, *pair_before, *pair_after; /* vectors of pairs: [n_outputs][P], [T][P] x 2 */
    float *pair_rows_host, *pair_before_host, *pair_after_host; /* (host) the same */
    int32_t *pair_tokens; /* [T] */
    /* LiLiCorr */
    float *anchors;     /* [n_seqs][H] the context feature of each sequence's newest true row */
    struct ae_dhead_lattice_room *lattice;
    const float *read;  /* where the logits of the last pass are: logits or linked */
    float *fed;         /* [n_seqs][1 + AERIE_MAX_DRAFT][n_steps][W] feedback: of the newest true row, then of drafted rows */
};

/* Returns the width of the feature that a row reads and feeds back: W. */
static inline uint32_t ae_dhead_width(const ae_dhead_hparams *h)
{
    const uint32_t n_streams = h->layer.hyper ? h->layer.n_streams : 1;
    return ae_dhead_traits_of(h)->reads_target ? h->n_target_embd : n_streams * h->layer.n_embd;
}
/* Returns the cache that rows attend to. */
static inline ae_kv *ae_dhead_kv(const ae_dhead_engine *e)
{
    return e->kv ? e->kv : ae_engine_kv(e->target);
}

/* The operations of a recorded pass (backend.h). */
typedef enum ae_dhead_pass {
    AE_DHEAD_TRUE,
    AE_DHEAD_DRAFTED,
    AE_DHEAD_MEDUSAS,
    AE_DHEAD_CONTEXT,
    AE_DHEAD_BLOCKS,
    AE_DHEAD_LINKS,
    AE_DHEAD_LATTICE,
} ae_dhead_pass;

/* forward.c: begins a recorded pass of the rows. more: a hash of everything else that its operations depend on. */
bool ae_dhead_pass_begin(ae_dhead_engine *engine, ae_dhead_pass kind, uint64_t more);
/* Runs rows that are all true, or all drafted. */
void ae_dhead_forward(ae_dhead_engine *engine, bool drafted);
void ae_dhead_run_layers(ae_dhead_engine *engine, uint32_t i_step);
void ae_dhead_fuse(ae_dhead_engine *engine); /* computes g of true rows */
void ae_dhead_turn(ae_dhead_engine *engine); /* computes the rotation angles of the rows */
/* block_conv.c: runs a layer of DFlash2. block: the activations of the pass's rows. */
void ae_dhead_conv_layer(ae_dhead_engine *engine, const ae_block *block, uint32_t i);
void ae_dhead_conv_begin(ae_dhead_engine *engine); /* before a pass of blocks begins */
/* Returns the most tokens of ae_dhead_run_pairs. */
static inline size_t ae_dhead_n_paired(const ae_dhead_hparams *h, uint32_t n_seqs)
{
    return h->n_pair ? (size_t)n_seqs * (1 + (size_t)h->n_block * h->n_candidates) : 0;
}
/* lattice.c: the arrays of LiLiCorr's passes, for heads that have a lattice; the number of rows that the engine's largest pass
 * must have for them, and the length of those rows. */
uint32_t ae_dhead_lattice_rows(const ae_dhead_hparams *h);
uint32_t ae_dhead_lattice_max_in(const ae_dhead_hparams *h);
size_t ae_dhead_lattice_bytes(const ae_dhead_hparams *h, const ae_backend *backend, uint32_t n_batch, uint32_t n_seqs);
aerie_status ae_dhead_lattice_create(struct ae_dhead_lattice_room **out, const ae_dhead_engine *engine, aerie_error *error);
void ae_dhead_lattice_free(struct ae_dhead_lattice_room *room);
/* block_pass.c: runs the true rows of a block drafter. */
void ae_dhead_forward_context(ae_dhead_engine *engine);
/* engine.c: called after the operations of a pass; from now on logits are read from `read`. */
void ae_dhead_end_pass(ae_dhead_engine *engine, const float *read);
uint32_t ae_dhead_add_row(ae_dhead_engine *engine, uint32_t seq, int32_t token, uint32_t pos, uint32_t slot,
                          uint32_t n_inplace);
void ae_dhead_upload_rows(ae_dhead_engine *engine);
void ae_dhead_forward_medusa(ae_dhead_engine *engine, const float *features, uint32_t n);

#endif

/* net.h - a drafter head on a device: its own weights, and those that it borrows from its target.
 *
 * Owns: the head's device weights and, if the head drafts from some rows of the target's output head, a copy of these rows.
 * Borrows: the head, the target's network (both must outlive it) and its backend. Immutable, shared.
 */
#ifndef AE_DRAFT_HEAD_NET_H
#define AE_DRAFT_HEAD_NET_H

#include "engine/weights/net.h"
#include "draft/head/head.h"

/* The weights before and after the layers of a network. */
typedef struct ae_dhead_step {
    ae_weight *embedding;   /* [n_vocab, n_embd] lookup */
    ae_weight *output;      /* [n_draft, n_embd]; NULL for Medusa */
    ae_weight *fc;          /* EAGLE: as in ae_dhead; MTP: eh_proj */
    /* [n_embd] device f32: norms of the embedding and of the feature; or NULL. With hyper_rank hnorm has weights for each
     * stream */
    float *enorm, *hnorm;
    float *norm;            /* [n_embd] norm before the output, or NULL */
    ae_weight *post;        /* assistant: computes the next feature; otherwise NULL */
    ae_weight *own_embedding, *own_output; /* NULL: borrowed */
    float *own_norm;
} ae_dhead_step;

/* A linear map of LiLiCorr, as in ae_dhead_lattice; vectors are device f32. */
typedef struct ae_dhead_net_linear {
    ae_weight *w;
    float *b;
} ae_dhead_net_linear;

typedef struct ae_dhead_net_lattice {
    ae_dhead_net_linear token, row, context, feature_up, feature_down, factors, out, in, first;
    float *feature_norm, *feature_norm_b, *out_norm, *context_norm;
    struct {
        float *attn_norm, *ffn_norm;
        ae_dhead_net_linear q, k, v, o, up, down;
    } layers[AE_DHEAD_MAX_LATTICE];
} ae_dhead_net_lattice;

typedef struct ae_dhead_net {
    const ae_dhead *head;
    const ae_net *target;
    ae_backend *backend;
    uint32_t n_draft;          /* rows of output */
    const int32_t *to_target;  /* [n_draft] target ids; NULL: draft id = target id */
    ae_dhead_step *steps;      /* [n_steps of the head] */
    ae_net_layer *layers;      /* [n_layers of the head] */
    ae_weight **experts;       /* [n_layers][ae_net_n_stacked] the arrays that the layers' experts point to; NULL: none */
    float *fc_bias;            /* device f32 or NULL */
    float *mask_hidden;        /* device f32, P-EAGLE, as in ae_dhead; or NULL */
    ae_net_hyper end;          /* MTP with hyper-connections: the weights that combine the streams of a row into the one that
                                * the output reads */
    float *fc_norm[AERIE_MAX_TAPS]; /* EACH: one per tap, [n_target_embd]; JOINT: only the first, [n_taps * n_target_embd] */
    ae_weight *medusa_w[AE_DHEAD_MAX_MEDUSA][AE_DHEAD_MAX_BLOCKS], *medusa_out[AE_DHEAD_MAX_MEDUSA];
    float *medusa_b[AE_DHEAD_MAX_MEDUSA][AE_DHEAD_MAX_BLOCKS];
    ae_weight *markov_w1, *markov_w2, *conf; /* DSpark, as in ae_dhead; conf NULL: the head computes no confidence */
    float *conf_bias;          /* device f32 or NULL */
    struct ae_dhead_net_conv {
        float *base;     /* device f32, as in ae_dhead_conv */
        ae_weight *proj;
    } conv[AE_DHEAD_MAX_LAYERS][2]; /* [n_layers] DFlash2, LiLiCorr */
    ae_weight *pair_rows, *pair_before, *pair_after;
    float *correct_hidden_norm, *correct_embd_norm; /* DFly: f32 on the device, as in ae_dhead */
    ae_weight *correct_gate, *correct_up, *correct_down;
    ae_dhead_net_lattice lattice; /* LiLiCorr */
    double *rope_freq[AE_MAX_ROPES]; /* [n_rot / 2] radians per position; all arrays are in one block, to which the first one
                                      * points */
    double rope_magnitude[AE_MAX_ROPES];
    ae_parts parts;
    ae_parts borrowed;         /* the target's token embeddings, if they are on another device than its output */
    ae_weight *embedding;      /* the weight in `borrowed`; or NULL */
    ae_weight *trimmed;        /* some rows of the target's output, instead of a borrowed output; or NULL */
    void *trimmed_memory;
    size_t trimmed_bytes;
    int32_t *trimmed_map;      /* [n_draft] */
} ae_dhead_net;

typedef struct ae_dhead_net_options {
    ae_load_options load;
    const struct ae_vocab *vocab; /* the target's vocabulary, for the ids that end a text if n_vocab is set; NULL: no such ids
                                   * are known */
    uint32_t n_vocab; /* for a head that uses the target's whole output: draft only the first n_vocab ids (tokenizers number
                       * frequent tokens first) and those that end a text; 0: all ids */
} ae_dhead_net_options;

/* Computes the device bytes that the head's weights will take. */
aerie_status ae_dhead_net_plan_bytes(size_t *bytes, const ae_dhead *head, const ae_net *target,
                                     const ae_dhead_net_options *options, aerie_error *error);
/* Errors: those of ae_dhead_fits and of loading. */
aerie_status ae_dhead_net_create(ae_dhead_net **out, const ae_dhead *head, const ae_net *target,
                                const ae_dhead_net_options *options, aerie_error *error);
void ae_dhead_net_free(ae_dhead_net *net);

#endif

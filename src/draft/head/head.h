/* head.h - what a drafter head's file says: hyper-parameters and the table of its weights, bound and checked.
 *
 * A head is a small network that drafts for one target model: from the target's hidden rows ("features") and the
 * tokens drawn, it predicts the tokens that follow. Kinds: EAGLE-1 and 2 (one network, two policies), EAGLE-3 and
 * 3.1, Medusa, and MTP blocks, which a model's own file may hold. The file format, its keys and aliases are in
 * docs/heads.md; the networks in reference order:
 *
 *   EAGLE-1/2   x = fc(embedding(t) | f);  y = x + attention(x);  z = y + ffn(norm(y));  logits = output(z), feature' = z
 *   EAGLE-3     g = fc(taps), or a fed-back vector;  c = norm(embedding(t)) | norm_h(g);  y = g + attention(c)
 *               (norm_before_residual: norm_h(g) + ...);  z = y + ffn(norm(y));  logits = output(norm(z)), feature' = z
 *               layers after the first: z += attention(norm(z));  z += ffn(norm(z))
 *   EAGLE-3.1   the taps are normed before fc, each by itself; feature' = norm(z)
 *   P-EAGLE     EAGLE-3 without feedback: after the newest row come rows of a mask token, with a learned vector for taps, in
 *               the same pass; each predicts one token further, whatever was drafted before it
 *   MTP         x = eh_proj(norm(embedding(t)) | norm_h(f));  z = layer(x), one of the target's kind;
 * logits = output(norm(z)), feature' = norm(z) or z. With several blocks each predicts one token further:
 *               block k reads as feature the output of block k - 1 for the row before. With hyper-connections a feature is
 *               all streams of a row, of the target before its end; x_k = eh_proj(norm(embedding(t)) | norm_h(f_k)) for each,
 *               and z is their sum at the blocks' own end
 *   assistant   x = pre(target's embedding(t) | f);  z = layers(x), which have queries only and attend to the target's
 *               cache;  logits = output(norm(z)), feature' = post(norm(z))   (Gemma 4)
 *   DFlash      g = norm(fc(taps)) gives every layer keys and values of its position; a block of rows, the newest token and
 *               masks, runs once through all layers, and sees these and, unless it is causal, all of itself;
 *               logits = output(norm(z)), of all tokens of a draft at once
 *   DSpark      the same, and logits += w2 w1[token before]: a draft is conditional, each token on the one before it
 *   DFlash2     DFlash, with a convolution over the block's rows around each sublayer: coefficients are c = proj(x) of its
 *               normed input x, one for each tap and group of channels, beside constant ones;
 *               h += conv(attention(conv(x))), the same of ffn. Of a row z the likeliest tokens t are candidates:
 *               score(t | token before) = logit(t) + sum(before[token before] * (rows z) * after[t])
 *   DFly        DFlash, where each layer i has a feature of its own: g_i = norm(fc(taps) + sum over taps j of w_ij tap_j), the
 *               w_i being a softmax of the file's numbers; and before the output z += down(silu(gate m) * up m),
 *               m = norm_h(z) | norm_e(embedding(token before)): a draft is conditional
 *   LiLiCorr    DFlash, with DFlash2's convolutions or without; of each row the likeliest tokens are candidates, and a small
 *               transformer reads all candidates of the block at once, which see each other:
 *               x = proj(embedding) + proj(row) + mlp(norm(phi)) + embedding of the row's place and of the candidate's rank,
 *               phi the logarithm l of its probability, e^l, l less the best one's, the rank from 0 to 1, whether it is best;
 *               2 layers of x += attention(norm(x)), x += down(silu(up(norm(x)))), where scores have a bias by how many rows
 *               apart two candidates are; z = silu(proj(y | a | y * a)), y = norm(x), a = norm(proj(g)) with g the context
 *               feature of the newest position; score(t | token before) = scale * cos(out(token before), in(t)), out and in
 *               projections of z; of the newest token out is a projection of a
 *   Medusa      head j: h += silu(W h + b) block by block;  logits = output_j(h); no attention, no feedback
 *
 * Row P reads the token at position P + 1 and the feature of position P, rotates by P, and predicts the token at P + 2. An
 * assistant's row rotates by P + 1 and sees the target's positions up to P, and so do all rows of a draft that begins there. A
 * block drafter's keys and values of position P need no token; row j of a block at positions s, s + 1, ... rotates by s + j and
 * predicts the token at s + j, or at s + j + 1 (from_anchor).
 *
 * Owns: the GGUF file and the tables. Immutable once loaded. Knows nothing of devices.
 * Sources: SafeAILab/EAGLE (cnets1.py, cnets.py), arXiv 2401.15077, 2406.16858, 2503.01840, 2605.09992, 2401.10774.
 */
#ifndef AE_DRAFT_HEAD_HEAD_H
#define AE_DRAFT_HEAD_HEAD_H

#include "model/model.h"

#define AE_DHEAD_MAX_MEDUSA 16 /* most tokens that Medusa's heads predict at once */
#define AE_DHEAD_MAX_BLOCKS 4  /* most residual blocks of one of its heads */
#define AE_DHEAD_MAX_LAYERS 8  /* most MTP blocks, and most layers of a block drafter or an EAGLE-3 head */
#define AE_DHEAD_MAX_PARALLEL 16 /* most tokens that a pass of P-EAGLE predicts */
#define AE_DHEAD_MAX_BLOCK 32  /* most rows of a block */
#define AE_DHEAD_MAX_CONV 8    /* most taps of a convolution over them */
#define AE_DHEAD_MAX_LATTICE 4 /* most layers over their candidates */

typedef enum ae_dhead_kind {
    AE_DHEAD_EAGLE,  /* 1 and 2 */
    AE_DHEAD_EAGLE3, /* 3 and 3.1 */
    AE_DHEAD_MEDUSA,
    AE_DHEAD_MTP,
    AE_DHEAD_ASSISTANT, /* an MTP drafter without keys and values of its own */
    AE_DHEAD_DFLASH,    /* block drafters */
    AE_DHEAD_DSPARK,
    AE_DHEAD_DFLASH2,
    AE_DHEAD_DFLY,
    AE_DHEAD_LILICORR,
} ae_dhead_kind;

typedef enum ae_dhead_fc_norm {
    AE_FC_NORM_NONE,
    AE_FC_NORM_EACH,  /* each tap normed separately, weights [n_taps][n_target_embd] (EAGLE-3.1) */
    AE_FC_NORM_JOINT, /* all taps together, weights [n_taps * n_target_embd] (norm_before_fc) */
} ae_dhead_fc_norm;

typedef struct ae_dhead_hparams {
    ae_dhead_kind kind;
    uint32_t n_target_embd;  /* width of a tapped row */
    uint32_t n_target_layers; /* 0: not given */
    uint32_t n_taps;
    /* The layers of the target whose input the head reads: 0 to n_layers (n_layers: the output of the last one), or
     * AERIE_TAP_NORMED. MTP with hyper-connections: all streams, AE_TAP_STREAM and following. */
    uint32_t taps[AERIE_MAX_TAPS];
    uint32_t n_vocab;        /* size of the target's vocabulary; 0: not given */
    uint32_t n_draft;        /* rows of the head's output, which is the size of the draft vocabulary */
    ae_dhead_fc_norm fc_norm;
    bool norm_before_residual; /* EAGLE-3: the residual starts from the normed feature */
    bool feedback_normed;      /* EAGLE-3.1, most MTP: the next step's feature is the normed output */
    uint32_t window, n_sinks;  /* the drafter's attention: 0: sees all rows; else the newest `window` rows and the first
                                * n_sinks */
    uint32_t n_medusa, n_blocks; /* Medusa */
    /* block drafters */
    uint32_t n_block;        /* rows of a block: the newest token and masks */
    int32_t mask;            /* the token that stands for tokens to be predicted; also of P-EAGLE */
    uint32_t n_parallel;     /* P-EAGLE: tokens that a pass predicts, by the newest row and masks; 0: not P-EAGLE */
    bool from_anchor;        /* row j predicts the token after its own position, so row 0 drafts too */
    bool causal;             /* a row sees no later row of its block */
    uint32_t n_markov;       /* rank of DSpark's bias */
    bool conf_markov;        /* the confidence also reads the previous token's contribution to the bias */
    /* DFlash2, LiLiCorr: taps of the convolutions (0: no convolutions); channels that share a coefficient */
    uint32_t n_conv, conv_group;
    uint32_t n_pair, n_candidates; /* rank of DFlash2's pair scores; candidates of a row */
    struct ae_dhead_lattice_hparams {
        uint32_t width, n_layers, n_heads, n_ff, n_factors; /* width 0: no lattice; n_factors: length of the vectors `out` and
                                                             * `in` */
        float vector_eps, scale; /* a vector shorter than vector_eps is divided by vector_eps instead of its length; factor of
                                  * the scores */
    } lattice; /* LiLiCorr */
    uint32_t n_correct;        /* DFly: width of the correction by the token before; 0: there is no correction */
    uint32_t n_layers;         /* EAGLE-1/2: 1; MTP: the number of layers in its blocks; Medusa: 0 */
    uint32_t n_steps;          /* networks that the layers form. MTP: one per layer; assistant: one; Medusa: 0 */
    /* MTP: the hyper-parameters of the model that the blocks belong to. Assistant: its own. Other heads: those of the head's
     * layers: n_layers, n_embd (the head's own width; EAGLE-1/2 and Medusa: n_target_embd), n_vocab = n_draft, rope, attention,
     * norms and ffn; no window. Medusa: only n_embd. */
    ae_hparams layer;
} ae_dhead_hparams;

/* DFlash2, LiLiCorr: the convolution around a sublayer. base [2][n_conv][n_embd]: side (before the sublayer, after it), tap (0:
 * the row itself), channel. proj [2 * n_conv * n_embd / conv_group, n_embd]: rows in the same order, by groups of channels. */
typedef struct ae_dhead_conv {
    ae_tensor_ref base, proj;
} ae_dhead_conv;

/* A linear map: w [n_out, n_in], b [n_out]. */
typedef struct ae_dhead_linear {
    ae_tensor_ref w, b;
} ae_dhead_linear;

/* The weights of LiLiCorr's lattice; M = lattice.width. */
typedef struct ae_dhead_lattice {
    ae_dhead_linear token;   /* [M, n_embd]; NULL: the embedding itself, M = n_embd */
    ae_dhead_linear row, context, feature_up, feature_down; /* [M, n_embd] x 2, [M, 5], [M, M] */
    ae_dhead_linear factors, out, in, first; /* [M, 3M], [n_factors, M] x 3; first: `out` of the newest token */
    ae_tensor_ref feature_norm, feature_norm_b; /* [5] layer norm, of eps 1e-5 */
    ae_tensor_ref out_norm, context_norm;       /* [M] */
    struct ae_dhead_lattice_layer {
        ae_tensor_ref attn_norm, ffn_norm; /* [M] */
        ae_dhead_linear q, k, v, o, up, down; /* [M, M] x 4, [n_ff, M], [M, n_ff] */
    } layers[AE_DHEAD_MAX_LATTICE];
    const float *slots, *ranks; /* [n_block - 1][M], [n_candidates][M] */
    /* Biases of attention scores. bias [n_heads][2 n_block - 1]: by the row of the query less the row of the key, + n_block -
     * 1. same_bias [n_heads]: added within a row. */
    const float *bias, *same_bias;
} ae_dhead_lattice;

typedef struct ae_dhead {
    ae_gguf *gguf;     /* owned; for MTP, owned by `mtp` */
    /* Owned: the file and weights of MTP blocks or of an assistant; then all fields below except to_target are NULL. Or the
     * file and layers of a block drafter; then only embedding, fc, hidden_norm, out_norm, output and the fields that only block
     * drafters have are set. */
    ae_model *mtp;
    ae_arena arena;
    ae_bound *bound;   /* [tensors of the file]; for MTP, owned by `mtp` */
    ae_dhead_hparams hparams;
    const char *name;  /* general.name, "" if absent */
    ae_tensor_ref embedding; /* [n_vocab, n_embd]; NULL: the target's embedding is used */
    ae_tensor_ref fc;        /* [n_embd, n_taps * n_target_embd]; EAGLE-1/2: [n_embd, 2 n_embd], embedding first */
    ae_tensor_ref fc_bias;   /* [n_embd] or NULL */
    /* hparams.fc_norm EACH: n_taps tensors of [n_target_embd], or one tensor for all; JOINT: one tensor */
    ae_tensor_ref fc_norm[AERIE_MAX_TAPS];
    ae_tensor_ref embd_norm;   /* [n_embd] EAGLE-3: norm of the token's embedding */
    ae_tensor_ref hidden_norm; /* [n_embd] EAGLE-3: norm of the feature; block drafters: norm of fc's output */
    ae_layer *layers;          /* [n_layers] of EAGLE; in the first layer of EAGLE-3, wq, wk, wv are [.., 2 n_embd], and
                                * attn_norm is NULL */
    ae_tensor_ref mask_hidden; /* [n_taps * n_target_embd] P-EAGLE: what mask rows read instead of taps; NULL: the head has no
                                * mask rows */
    ae_tensor_ref out_norm;    /* [n_embd] EAGLE-3; NULL: no norm before the output */
    ae_tensor_ref output;      /* [n_draft, n_embd]; NULL: the target's output is used */
    ae_tensor_ref medusa_w[AE_DHEAD_MAX_MEDUSA][AE_DHEAD_MAX_BLOCKS]; /* [n_embd, n_embd] */
    ae_tensor_ref medusa_b[AE_DHEAD_MAX_MEDUSA][AE_DHEAD_MAX_BLOCKS]; /* [n_embd] or NULL */
    ae_tensor_ref medusa_out[AE_DHEAD_MAX_MEDUSA]; /* [n_draft, n_embd] */
    ae_tensor_ref markov_w1, markov_w2; /* [n_vocab, n_markov], [n_draft, n_markov] DSpark */
    ae_tensor_ref conf, conf_bias; /* [1, n_embd (+ n_markov)], [1] or NULL: DSpark's confidence; NULL: the head has none */
    ae_dhead_conv conv[AE_DHEAD_MAX_LAYERS][2]; /* [n_layers] of attention, of the feed-forward block */
    ae_tensor_ref pair_rows, pair_before, pair_after; /* [n_pair, n_embd], [n_vocab, n_pair] x 2: DFlash2 */
    /* DFly: the weights w of the taps in each layer's feature, [n_layers][n_taps]; the weights of its correction, [n_embd] x 2,
     * [n_correct, 2 n_embd] x 2 and [n_embd, n_correct], or NULL */
    float fusion[AE_DHEAD_MAX_LAYERS][AERIE_MAX_TAPS];
    ae_tensor_ref correct_hidden_norm, correct_embd_norm, correct_gate, correct_up, correct_down;
    ae_dhead_lattice lattice;
    const int32_t *to_target; /* [n_draft] target ids of the draft vocabulary, distinct; NULL: draft id = target id */
    uint64_t n_params;
} ae_dhead;

/* Errors: those of ae_gguf_open; UNSUPPORTED: the file is not a head (the message says what it is) or a part is of a kind that
 * aerie does not implement; FORMAT: a missing, misshapen or contradictory tensor or key (named, with what was expected). */
aerie_status ae_dhead_load(ae_dhead **out, const char *path, aerie_error *error);
/* The same for an open file. Takes ownership of the file, also on failure. */
aerie_status ae_dhead_bind(ae_dhead **out, ae_gguf *gguf, aerie_error *error);
void ae_dhead_free(ae_dhead *head);

/* The facts about a kind that shared code needs. */
typedef struct ae_dhead_traits {
    const char *name;     /* for people */
    bool keeps_rows;      /* the head has its own keys and values */
    bool reads_target;    /* the head reads the target's keys and values, and its rows are as wide as the target's */
    bool fuses;           /* fc reads features alone, not an embedding and a feature side by side */
    bool doubles;         /* the head's attention reads an embedding and a feature side by side */
    bool blocks;          /* it runs blocks */
    bool of_model;        /* the head is a part of a model's file, and has that model's rotation and output */
    bool needs_embedding; /* its own, or the target's */
} ae_dhead_traits;
extern const ae_dhead_traits ae_dhead_kinds[]; /* by ae_dhead_kind */

static inline const ae_dhead_traits *ae_dhead_traits_of(const ae_dhead_hparams *h)
{
    return &ae_dhead_kinds[h->kind];
}
/* Returns whether the head runs blocks: DFlash, DSpark, DFlash2, DFly, LiLiCorr. */
static inline bool ae_dhead_has_blocks(ae_dhead_kind kind)
{
    return ae_dhead_kinds[kind].blocks;
}
static inline bool ae_dhead_is_block(const ae_dhead_hparams *h)
{
    return ae_dhead_has_blocks(h->kind);
}
/* Returns the number of tokens that a block predicts. */
static inline uint32_t ae_dhead_n_foreseen(const ae_dhead_hparams *h)
{
    return h->from_anchor ? h->n_block : h->n_block - 1;
}

/* Returns the head's layers, [hparams.n_layers]. */
const ae_layer *ae_dhead_layers(const ae_dhead *head);
/* Returns whether the head uses the target's output matrix. */
bool ae_dhead_borrows_output(const ae_dhead *head);

/* FORMAT unless the head can draft for this target: widths, layers tapped, vocabulary, borrowed tensors. The message has both
 * values. */
aerie_status ae_dhead_fits(const ae_dhead *head, const ae_model *target, aerie_error *error);

/* Returns whether a file's general.architecture is that of a head. */
bool ae_dhead_is_arch(const char *arch, size_t n);
/* Returns whether a file is a head. A model's file is not, even if it has MTP blocks. */
bool ae_dhead_is_file(const ae_gguf *gguf);
/* For assistants: returns the layer of the target whose keys and values layer i reads: the last one that has a window if layer
 * i has one, else the last one without. */
uint32_t ae_dhead_target_layer(const ae_dhead *head, const ae_model *target, uint32_t i);
/* Returns "EAGLE-1/2", "EAGLE-3", "EAGLE-3.1", "P-EAGLE", "Medusa", "MTP", "MTP assistant", "DFlash", "DSpark",
 * "DFlash2", "DFly" or "LiLiCorr". Static storage. */
const char *ae_dhead_kind_name(const ae_dhead *head);

#endif

/* model.h - what a model file says: hyper-parameters and the table of its weights, bound and checked.
 *
 * Owns: the GGUF file (kept open: weights point into it), the vocabulary, the tables. Immutable
 * once loaded, shared by threads and sessions. Knows nothing of devices.
 * Invariants after a successful load: every required tensor is present with the shape written
 * beside it; dimensions divide as the forward pass needs; all counts are within the limits below.
 * An architecture is data: a row in the table of model/arch.c; the forward pass is written once.
 */
#ifndef AE_MODEL_MODEL_H
#define AE_MODEL_MODEL_H

#include "base/err.h"
#include "base/mem.h"
#include "formats/gguf.h"
#include "text/token/vocab.h"

#define AE_MAX_LAYERS 512
#define AE_MAX_HEADS 1024
#define AE_MAX_HEAD_DIM 512
#define AE_MAX_EMBD (1u << 17)
#define AE_MAX_FF (1u << 20)
#define AE_MODEL_MAX_EXPERTS 512

typedef enum ae_rope_scaling {
    AE_ROPE_SCALING_NONE,
    AE_ROPE_SCALING_LINEAR,
    AE_ROPE_SCALING_YARN,
} ae_rope_scaling;

/* Norm of queries and keys before they are rotated. */
typedef enum ae_qk_norm {
    AE_QK_NORM_NONE,
    AE_QK_NORM_HEAD, /* of each head by itself, weights [head_dim] */
    AE_QK_NORM_ROW,  /* of all heads together, weights [n_heads * head_dim] and [n_kv_heads * head_dim] */
} ae_qk_norm;

/* Values of expert_gating_func in a file; ae_routing (backend.h) has the arithmetic. */
typedef enum ae_expert_gate {
    AE_EXPERT_GATE_SOFTMAX = 1,
    AE_EXPERT_GATE_SIGMOID = 2,
    AE_EXPERT_GATE_SOFTMAX_CHOSEN = 3,
} ae_expert_gate;

typedef struct ae_expert_hparams {
    uint32_t n;           /* of a layer; 0 = a dense model, the rest is 0 then */
    uint32_t n_used;      /* by a row, 1 to n */
    uint32_t n_ff;        /* of an expert */
    uint32_t n_ff_shared; /* of the expert that every row uses; 0 = none */
    uint32_t n_dense;     /* the first layers that have no experts but n_ff of ae_hparams */
    ae_expert_gate gate;
    bool renorm;          /* chosen weights are divided by their sum */
    float scale;          /* of the weights */
} ae_expert_hparams;

/* What a layer has instead of attention. */
typedef enum ae_recur_kind {
    AE_RECUR_NONE,
    AE_RECUR_DELTA,     /* Gated DeltaNet */
    AE_RECUR_MAMBA2,
    AE_RECUR_SHORTCONV, /* LFM2: a convolution between two gates */
} ae_recur_kind;

/* The same for all recurrent layers of a model; backend/state.h has the arithmetic. */
typedef struct ae_recur_hparams {
    ae_recur_kind kind;
    uint32_t n_taps, n_channels; /* of the convolution */
    uint32_t n_heads, n_groups, key_dim, value_dim; /* 0 of SHORTCONV */
    bool tiled;     /* head h belongs to group h % n_groups, not h / (n_heads / n_groups) */
} ae_recur_hparams;

typedef struct ae_hparams {
    const char *arch;     /* "llama" */
    uint32_t n_vocab;     /* rows of the output head */
    uint32_t n_embd, n_layers;
    uint32_t n_ff;        /* of layers without experts */
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t n_ctx_train; /* 0 = not said */
    float norm_eps;
    float attn_scale;     /* of q */
    uint32_t window;      /* attention window, 0 = all */
    ae_qk_norm qk_norm;
    ae_expert_hparams experts;
    ae_recur_hparams recur;
    /* rotation */
    bool rope_neox;       /* pairs (i, i + n_rot/2) instead of (2i, 2i+1) */
    uint32_t n_rot;       /* even, <= head_dim */
    float rope_base;
    ae_rope_scaling rope_scaling;
    float rope_factor;    /* > 0: positions are divided by it */
    uint32_t rope_n_ctx_orig;
    float yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow; /* as aerie_rope has them */
} ae_hparams;

/* A weight in the file: [n_out][n_in]. NULL where the architecture has none. */
typedef const ae_gguf_tensor *ae_tensor_ref;

/* C channels, V = n_heads * value_dim, H heads. */
typedef struct ae_recur_layer {
    ae_tensor_ref in;          /* DELTA [C, n_embd] q, k, v; MAMBA2 [V + C + H, n_embd] z, x, B, C, dt; SHORTCONV [3 C, n_embd]
                                * B, C, X. NULL: the layer is not recurrent */
    ae_tensor_ref gate;        /* DELTA [V, n_embd] z */
    ae_tensor_ref alpha, beta; /* DELTA [H, n_embd] x 2 */
    ae_tensor_ref beta_alpha;  /* instead of both, [2 H, n_embd]: of each group its heads' beta, then their alpha */
    ae_tensor_ref conv;        /* [C, n_taps] */
    ae_tensor_ref conv_bias;   /* optional, [C] */
    ae_tensor_ref decay;       /* [H], negative */
    ae_tensor_ref dt_bias;     /* [H] */
    ae_tensor_ref skip;        /* MAMBA2 [H] */
    ae_tensor_ref norm;        /* DELTA [value_dim]; MAMBA2 optional, [n_groups][V / n_groups] */
    ae_tensor_ref out;         /* [n_embd, V or C] */
} ae_recur_layer;

typedef struct ae_layer {
    ae_tensor_ref attn_norm;           /* [n_embd] */
    ae_tensor_ref wq, wk, wv, wo;      /* [n_heads * head_dim, n_embd] .. [n_embd, n_heads * head_dim] */
    ae_tensor_ref bq, bk, bv, bo;      /* optional, [n_out of the weight] */
    ae_tensor_ref q_norm, k_norm;      /* by hparams.qk_norm */
    ae_tensor_ref ffn_norm;            /* [n_embd] */
    ae_tensor_ref w_gate, w_up, w_down; /* [n_ff, n_embd] x 2, [n_embd, n_ff] */
    ae_tensor_ref b_gate, b_up, b_down; /* optional */
    /* with experts, instead of the six above; E experts of f = experts.n_ff */
    ae_tensor_ref router;              /* [E, n_embd]; NULL: a layer without experts */
    ae_tensor_ref router_bias;         /* optional, [E], for the choice alone */
    ae_tensor_ref e_gate, e_up, e_down; /* [E][f, n_embd] x 2, [E][n_embd, f] */
    ae_tensor_ref e_gate_up;           /* [E][2 f, n_embd], gate's rows first; e_gate and e_up are NULL then */
    ae_tensor_ref s_gate, s_up, s_down; /* the shared expert: [n_ff_shared, n_embd] x 2, [n_embd, n_ff_shared] */
    ae_tensor_ref s_router;            /* [1, n_embd]; NULL: its weight is 1 */
    ae_recur_layer recur;
} ae_layer;

typedef struct ae_model {
    ae_gguf *gguf;   /* owned */
    ae_vocab *vocab; /* owned */
    ae_arena arena;  /* the tables below and strings */
    ae_hparams hparams;
    const char *name;        /* general.name, "" if absent */
    ae_tensor_ref embedding; /* [n_vocab, n_embd] */
    ae_tensor_ref out_norm;  /* [n_embd] */
    ae_tensor_ref output;    /* [n_vocab, n_embd]; the embedding if the head is tied */
    bool tied;
    const float *rope_divisors; /* optional, [n_rot / 2]: divisors of the rotation's frequencies */
    ae_layer *layers;         /* [n_layers] */
    uint64_t n_params;        /* elements of all tensors */
} ae_model;

typedef struct ae_model_options {
    bool no_mmap; /* read keys and tensor list only: tensors have no data in memory */
    bool no_vocab; /* for sizes only: vocab is NULL */
    const aerie_rope *rope;       /* NULL: as the file says */
    const char *const *overrides; /* [n_overrides] as in ae_gguf_options */
    size_t n_overrides;
} ae_model_options;

/* Errors: those of ae_gguf_open and ae_vocab_create; UNSUPPORTED for an unknown architecture (named, with the
 * known) or a part that we lack; FORMAT for a missing or misshapen tensor or key (named). */
aerie_status ae_model_load(ae_model **out, const char *path, const ae_model_options *options, aerie_error *error);
/* Takes over an opened file, also on failure. */
aerie_status ae_model_bind(ae_model **out, ae_gguf *gguf, aerie_error *error);
void ae_model_free(ae_model *model);

/* Everything as a file says; names as in aerie_rope_scaling_name, text[0..n) one of them. */
aerie_rope ae_model_rope_default(void);
const char *ae_model_rope_scaling_name(aerie_rope_scaling scaling);
bool ae_model_rope_scaling_parse(const char *text, size_t n, aerie_rope_scaling *scaling);

/* Frequencies of the rotation, with scaling and divisors [n_rot / 2] (or NULL) applied: radians per position of pair i,
 * freq [n_rot / 2]; *magnitude multiplies cos and sin. */
void ae_model_rope_freqs(const ae_hparams *hparams, const float *divisors, double *freq, double *magnitude);

/* "llama" and whatever else is known, comma-separated. */
const char *ae_model_known_archs(void);

#endif

/* model.h - what a model file says: hyper-parameters and the table of its weights, bound and checked.
 *
 * Owns: the GGUF file (kept open: weights point into it), the tables. Immutable
 * once loaded, shared by threads and sessions. Knows nothing of devices.
 * Invariants after a successful load: every required tensor is present with the shape written
 * beside it; dimensions divide as the forward pass needs; all counts are within the limits below.
 * An architecture is data: a row in the table of model/arch.c; the forward pass is written once.
 */
#ifndef AE_MODEL_MODEL_H
#define AE_MODEL_MODEL_H

#include "base/err.h"
#include "base/mem.h"
#include "base/shape_limits.h"
#include "formats/gguf.h"

#define AE_MAX_ROPES 3

typedef enum ae_rope_scaling {
    AE_ROPE_SCALING_NONE,
    AE_ROPE_SCALING_LINEAR,
    AE_ROPE_SCALING_YARN,
    AE_ROPE_SCALING_LONGROPE,
} ae_rope_scaling;

/* A rotation of queries and keys. */
typedef struct ae_rope {
    bool neox;            /* pairs (i, i + n_rot/2) instead of (2i, 2i+1) */
    uint32_t n_rot;       /* even, <= head_dim of the layers that use it */
    float base;
    ae_rope_scaling scaling;
    float factor;         /* > 0: positions are divided by it */
    uint32_t n_ctx_orig;
    float yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow; /* as aerie_rope has them */
    float yarn_log_mul;   /* 0: not given; else YaRN's magnitude is that of 1 over that of this */
    uint32_t sections[4]; /* pairs that turn with a row's time, height, width and fourth position; all 0: all turn with
                           * one position. Of a model's first rotation alone */
    bool interleaved;     /* sections: pairs take turns; else one section comes after the other */
    const float *divisors;      /* [n_rot / 2] of the frequencies, or NULL */
    const float *divisors_long; /* the same of contexts longer than n_ctx_orig, or NULL: no difference */
} ae_rope;

/* Norm of queries and keys. */
typedef enum ae_qk_norm {
    AE_QK_NORM_NONE,
    AE_QK_NORM_HEAD, /* of each head by itself, weights [head_dim] */
    AE_QK_NORM_ROW,  /* of all heads together, weights [n_heads * head_dim] and [n_kv_heads * head_dim] */
    AE_QK_NORM_ROW_LAYER, /* the layer norm of all heads together, weights as ROW, before the rotation */
    AE_QK_NORM_EACH, /* of each head by itself, weights [n_heads][head_dim] and [n_kv_heads][head_dim] */
    AE_QK_NORM_LAYER, /* the layer norm of each head, weights [n_heads][head_dim] and [n_kv_heads][head_dim] */
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
    uint32_t n_groups, n_groups_used; /* 0: no groups */
    uint32_t n_latent;    /* width of what experts take and give, between two projections; 0: n_embd */
    ae_expert_gate gate;
    bool renorm;          /* chosen weights are divided by their sum */
    bool weigh_input;     /* the weight multiplies what an expert gets, not what it gives */
    float scale;          /* of the weights */
} ae_expert_hparams;

/* What a layer has instead of attention. */
typedef enum ae_recur_kind {
    AE_RECUR_NONE,
    AE_RECUR_DELTA,     /* Gated DeltaNet */
    AE_RECUR_MAMBA2,
    AE_RECUR_SHORTCONV, /* LFM2: a convolution between two gates */
    AE_RECUR_KDA,       /* Kimi Delta Attention: Gated DeltaNet whose keys decay each by itself */
    AE_RECUR_PLAMO2,    /* Mamba2 whose time steps, B and C come from the convolution's result */
    AE_RECUR_MAMBA1,    /* one head: key_dim numbers of state for each of value_dim channels */
} ae_recur_kind;

/* The same for all recurrent layers of a model; backend/recurrent.h has the arithmetic. */
typedef struct ae_recur_hparams {
    ae_recur_kind kind;
    uint32_t n_taps, n_channels; /* of the convolution */
    uint32_t n_heads, n_groups, key_dim, value_dim; /* 0 of SHORTCONV */
    bool tiled;     /* head h belongs to group h % n_groups, not h / (n_heads / n_groups) */
    uint32_t n_dt;  /* MAMBA1, PLAMO2: width of the projection that time steps are made from */
    bool plain_norms; /* MAMBA1: that, B and C are normed without weights */
    float bound;      /* KDA: of the decay, negative; 0: none */
} ae_recur_hparams;

/* Multi-head latent attention (DeepSeek-V2), the same for all layers: a position keeps one row for all heads, a rotated part
 * and a latent one, from which every head would make its keys and values. In the absorbed form, the only one here, the heads'
 * matrices move to the other side instead: a query comes into the space of the rows, and attention's result leaves it. */
typedef struct ae_mla_hparams {
    uint32_t n_latent;  /* kv_lora_rank; 0: the model has no such attention, the rest is 0 then */
    uint32_t n_rope;    /* values of the rotated part */
    uint32_t n_q;       /* q_lora_rank: width of the projection that queries are made from; 0: they are projected at once */
    uint32_t n_nope;    /* values of a head's query that are not rotated */
    uint32_t value_dim; /* of a head's result */
} ae_mla_hparams;

/* What mixes the rows of a sequence in a layer. */
typedef enum ae_mixer {
    AE_MIXER_NONE,
    AE_MIXER_ATTENTION,
    AE_MIXER_MLA,   /* by ae_hparams.mla; one KV head of n_rope + n_latent values */
    AE_MIXER_RECUR, /* by ae_hparams.recur: a state instead of a KV cache */
    AE_MIXER_LINEAR, /* a projection of the row itself, by wo */
} ae_mixer;

/* How the mixer's result is gated before the output projection. */
typedef enum ae_out_gate {
    AE_OUT_GATE_NONE,
    AE_OUT_GATE_ELEMENT, /* by as many values, which stand after each head's query in wq's rows */
    AE_OUT_GATE_HEAD,    /* by one value a head, from attn_gate */
    AE_OUT_GATE_OWN,     /* by as many values, from attn_gate */
} ae_out_gate;

typedef enum ae_ffn {
    AE_FFN_NONE,
    AE_FFN_DENSE,
    AE_FFN_EXPERTS,
    AE_FFN_BOTH, /* dense and experts side by side */
} ae_ffn;

/* What a feed-forward block does to its gate; ae_glu (backend.h) has the arithmetic. */
typedef enum ae_activation {
    AE_ACTIVATION_SILU,
    AE_ACTIVATION_GELU,
    AE_ACTIVATION_RELU2,
    AE_ACTIVATION_OAI,
    AE_ACTIVATION_SILU_CLAMPED,
    AE_ACTIVATION_RELU,
    AE_ACTIVATION_SILU_LIMITED,
    AE_ACTIVATION_XIELU, /* without a gate */
    AE_ACTIVATION_GELU_ERF,
} ae_activation;

#define AE_NO_ROPE (-1)
#define AE_KV_OTHER (-1) /* those of another model, for which this one drafts */

/* A layer as data. The forward pass reads nothing else about an architecture but this and ae_hparams. */
typedef struct ae_layer_spec {
    ae_mixer mixer;
    bool recur_beside;    /* with ATTENTION: the mixer of ae_hparams.recur reads the same input, and both results are added */
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t value_dim;   /* of a head's values and of its result, 1 to head_dim; the cache's rows have zeros behind them */
    float value_scale;    /* of attention's result; 1 = none */
    float clamp_qkv;      /* queries, keys and values are clamped to -clamp_qkv .. clamp_qkv; 0 = not */
    uint32_t window;      /* positions seen, own included; 0 = all */
    bool chunked;         /* those since the last multiple of window instead */
    int rope;             /* index of ae_hparams.ropes, or AE_NO_ROPE */
    float attn_scale;     /* of q */
    float attn_softcap;   /* 0 = none */
    ae_qk_norm qk_norm;   /* with the layer's weights, or without where they are NULL */
    bool qk_norm_last;    /* after the rotation */
    bool v_norm;          /* of each head of the values, without weights */
    bool temperature;     /* q is multiplied by the temperature of its position */
    ae_out_gate out_gate;
    bool softplus_gate;   /* by softplus, not by the sigmoid */
    int kv_from;          /* the layer whose keys and values it reads; its own index: it writes its own; or AE_KV_OTHER */
    ae_ffn ffn;
    float experts_scale;  /* of what experts add, the shared one and with BOTH the dense block included; 1 = none */
    bool experts_of_input; /* BOTH: experts take the layer's input, not that of the dense block */
    bool normed_after;    /* the stream is normed by the model's last norm after the layer */
    uint32_t n_ff;        /* of the dense block */
    ae_activation activation;
    float xielu[4];       /* AE_ACTIVATION_XIELU: its factors above and below 0, beta, eps */
    bool router_of_input; /* EXPERTS: the router reads the layer's input, without a norm */
    float limit, shared_limit; /* of activations that have one: of experts; of the shared expert and the dense block */
} ae_layer_spec;

/* Values of pooling_type in a file. */
typedef enum ae_pooling {
    AE_POOLING_NONE, /* a row for each token; also where the file says nothing */
    AE_POOLING_MEAN,
    AE_POOLING_CLS,  /* the first row */
    AE_POOLING_LAST, /* the last row */
    AE_POOLING_RANK, /* the first row through a classification head: one number */
} ae_pooling;

typedef struct ae_hparams {
    const char *arch;     /* "llama" */
    uint32_t n_vocab;     /* rows of the output head */
    uint32_t n_embd;
    uint32_t n_layers;    /* of the trunk */
    uint32_t n_blocks;    /* 0: as many; else layer i has the weights of layer i % n_blocks */
    uint32_t n_nextn;     /* MTP blocks after the trunk, which predict tokens further ahead */
    bool nextn_pre;       /* these take the trunk's rows before its final norm, not after it, and feed back theirs likewise */
    uint32_t n_ctx_train; /* 0 = not said */
    float norm_eps;
    bool layer_norm;      /* all norms but those of queries and keys subtract the mean */
    bool norm_after;      /* norms stand after the blocks that they are named for */
    bool keeps_input;     /* feed-forward blocks read their layer's input, too */
    float post_eps;       /* of the norms of what blocks add */
    bool plain_norms;     /* norms before blocks and of the stream's end have no weights */
    bool embed_norm_plain; /* the stream's start is normed, without weights */
    bool parallel;        /* attention and feed-forward block both take the layer's normed input, or each its own norm of it */
    bool norm_stream;     /* blocks take the stream as it is, and it is normed itself after each of them */
    bool encoder;         /* a row attends to all rows of its text, also to later ones; there is no output head */
    uint32_t n_near;      /* of encoders: positions after its own that a row sees in layers with a window */
    uint32_t n_positions, n_types; /* rows of the tables of positions and token types; 0 = no such table */
    ae_pooling pooling;   /* how an embedding is made of a text's rows, as the file says */
    bool rank_mean;       /* a classification head takes the mean of the rows, not the first */
    float embedding_scale, residual_scale, logit_scale; /* 1 = none */
    float logit_softcap;  /* 0 = none */
    uint32_t mask_begin, mask_end; /* logits of these tokens are the lowest number */
    /* of queries at position p: 1 + temp_scale * ln(floor((p + temp_offset) / temp_length) + 1); temp_scale 0 = none */
    float temp_scale, temp_offset;
    const float *slopes;  /* [n_heads] scores lose this times the distance (ALiBi); NULL: nothing */
    uint32_t temp_length;
    bool group_windows;    /* rows that see each other do so in layers with a window alone */
    uint32_t n_deepstack;  /* rows that are given bring as many more, which join the stream after layers 0, 1, ... */
    uint32_t n_embd_layer; /* of the embedding that a token has for each layer; 0 = none */
    ae_expert_hparams experts;
    ae_recur_hparams recur;
    ae_mla_hparams mla;
    uint32_t n_ropes;
    ae_rope ropes[AE_MAX_ROPES];
    /* What all layers have in common before their specs say otherwise, and the one layer of a drafter head. */
    uint32_t n_ff, n_heads, n_kv_heads, head_dim, value_dim;
    float attn_scale;
} ae_hparams;

/* A weight in the file: [n_out][n_in]. NULL where the architecture has none. */
typedef const ae_gguf_tensor *ae_tensor_ref;

/* What was made of one of a file's tensors. */
typedef struct ae_bound {
    bool read;           /* it is a part of the model */
    ae_tensor_ref scale; /* the numbers that products with it are multiplied by, "NAME.scale" of "NAME.weight": one, or one for
                          * each matrix of a stack; NULL: none */
} ae_bound;

/* C channels, V = n_heads * value_dim, H heads. */
typedef struct ae_recur_layer {
    ae_tensor_ref in;          /* DELTA [C, n_embd] q, k, v; MAMBA2 [V + C + H, n_embd] z, x, B, C, dt; SHORTCONV [3 C, n_embd]
                                * B, C, X; MAMBA1 [2 V, n_embd] x, z; PLAMO2 [2 V, n_embd]
                                * of each head z, x. NULL: the layer is not recurrent */
    ae_tensor_ref gate;        /* DELTA [V, n_embd] z; KDA [V, value_dim or n_embd] */
    ae_tensor_ref alpha, beta; /* DELTA [H, n_embd] x 2; KDA [V, value_dim or n_embd], [H, n_embd] */
    ae_tensor_ref beta_alpha;  /* instead of both, [2 H, n_embd]: of each group its heads' beta, then their alpha */
    ae_tensor_ref conv;        /* [C, n_taps] */
    ae_tensor_ref conv_bias;   /* optional, [C] */
    ae_tensor_ref decay;       /* [H], MAMBA1 [V, key_dim], negative */
    ae_tensor_ref dt_bias;     /* [H], MAMBA1 and KDA [V] */
    ae_tensor_ref skip;        /* MAMBA2, PLAMO2 [H], MAMBA1 [V] */
    ae_tensor_ref in_q, in_k, in_v; /* KDA, instead of in: its rows */
    ae_tensor_ref conv_k, conv_v; /* KDA [V, n_taps] x 2; conv is that of queries then */
    ae_tensor_ref f_a, g_a;    /* KDA [value_dim, n_embd] x 2 what alpha and gate take; NULL: they take the input */
    ae_tensor_ref x_proj;      /* MAMBA1 [n_dt + 2 key_dim, V] what time steps are made from, B, C; PLAMO2 B, C, steps */
    ae_tensor_ref dt_proj;     /* MAMBA1 [V, n_dt], PLAMO2 [H, n_dt] */
    ae_tensor_ref dt_norm, b_norm, c_norm; /* PLAMO2, MAMBA1 optional: [n_dt], [key_dim] x 2 */
    ae_tensor_ref norm;        /* DELTA, KDA [value_dim]; MAMBA2 optional, [n_groups][V / n_groups] */
    ae_tensor_ref out;         /* [n_embd, V or C] */
} ae_recur_layer;

/* H heads; sizes by ae_mla_hparams. */
typedef struct ae_mla_layer {
    ae_tensor_ref q_a;         /* [n_q, n_embd], its norm [n_q]; NULL: the layer's wq [H * (n_nope + n_rope), n_embd] */
    ae_tensor_ref q_a_norm;
    ae_tensor_ref q_b;         /* [H * (n_nope + n_rope), n_q]; of a head the rotated values come last */
    ae_tensor_ref kv_a;        /* [n_latent + n_rope, n_embd] the row that is kept; NULL: no such layer */
    ae_tensor_ref kv_a_norm;   /* [n_latent] */
    ae_tensor_ref k_b, v_b;    /* [H][n_latent, n_nope], [H][value_dim, n_latent] */
    ae_tensor_ref kv_b;        /* instead of both, [H * (n_nope + value_dim), n_latent]: of each head k_b transposed, v_b */
} ae_mla_layer;

typedef struct ae_layer {
    ae_layer_spec spec;
    ae_tensor_ref attn_norm;           /* [n_embd]; NULL: the mixer takes the stream as it is */
    ae_tensor_ref attn_norm_b;         /* optional, of the layer norm */
    ae_tensor_ref attn_post_norm;      /* [n_embd] of what the mixer adds (of the stream after it with norm_stream), or NULL */
    ae_tensor_ref again_norm, again_norm_b; /* optional, [n_embd] x 2, with norm_stream: of the stream and the layer's input */
    ae_tensor_ref attn_post_norm_b, ffn_post_norm_b; /* optional, [n_embd], with norm_stream */
    ae_tensor_ref wq, wk, wv, wo;      /* [n_heads * head_dim, n_embd] (twice the rows with AE_OUT_GATE_ELEMENT) ..
                                        * [n_embd, n_heads * head_dim]; wv NULL: values are the keys before norm and rotation */
    ae_tensor_ref wqkv;                /* instead of wq, wk and wv: their rows in this order */
    ae_tensor_ref bq, bk, bv, bo;      /* optional, [n_out of the weight] */
    ae_tensor_ref bqkv;                /* instead of bq, bk and bv */
    ae_tensor_ref q_norm, k_norm;      /* by spec.qk_norm */
    ae_tensor_ref q_norm_b, k_norm_b;  /* optional, as many, of layer norms */
    ae_tensor_ref sinks;               /* optional, [n_heads] */
    ae_tensor_ref out_gate;            /* [n_heads, n_embd] with AE_OUT_GATE_HEAD, [n_heads * head_dim, n_embd] with OWN */
    ae_tensor_ref attn_sub_norm, ffn_sub_norm; /* optional, [n_heads * head_dim], [n_ff] of what wo and w_down take */
    ae_tensor_ref ffn_norm, ffn_norm_b; /* [n_embd]; as attn_norm */
    ae_tensor_ref ffn_post_norm;       /* [n_embd] of what the block adds, or NULL */
    ae_tensor_ref w_gate, w_up, w_down; /* [n_ff, n_embd] x 2, [n_embd, n_ff]; w_gate NULL: no gate */
    ae_tensor_ref w_gate_up;           /* instead of w_gate and w_up: their rows in this order */
    ae_tensor_ref b_gate, b_up, b_down; /* optional */
    /* with experts, instead of the six above or beside them; E experts of f = experts.n_ff */
    ae_tensor_ref router;              /* [E, n_embd]; NULL: a layer without experts */
    ae_tensor_ref router_b;            /* optional, [E], added to the logits */
    ae_tensor_ref router_bias;         /* optional, [E], for the choice alone */
    ae_tensor_ref router_norm;         /* [n_embd] of the router's own input, or NULL: it takes the block's */
    ae_tensor_ref e_norm;              /* [n_embd] AE_FFN_BOTH: of the experts' input; NULL: ffn_norm */
    ae_tensor_ref dense_post_norm, e_post_norm; /* optional, [n_embd] AE_FFN_BOTH: of what each gives */
    ae_tensor_ref eb_gate, eb_up, eb_down; /* optional, [E][f] x 2, [E][n_embd] */
    ae_tensor_ref e_scale;             /* optional, [E], of what experts give */
    ae_tensor_ref e_gate, e_up, e_down; /* [E][f, n_embd] x 2, [E][n_embd, f] */
    ae_tensor_ref e_gate_up;           /* [E][2 f, n_embd], gate's rows first; e_gate and e_up are NULL then */
    ae_tensor_ref s_gate, s_up, s_down; /* the shared expert: [n_ff_shared, n_embd] x 2, [n_embd, n_ff_shared] */
    ae_tensor_ref s_gate_up;           /* instead of s_gate and s_up: their rows in this order */
    ae_tensor_ref s_router;            /* [1, n_embd]; NULL: its weight is 1 */
    ae_tensor_ref latent_down, latent_up; /* [n_latent, n_embd], [n_embd, n_latent] around the experts with experts.n_latent,
                                           * which have e_gate, e_up and e_down of n_latent instead of n_embd */
    ae_mla_layer mla;
    ae_recur_layer recur;
    /* embeddings for layers */
    ae_tensor_ref ple_gate, ple_proj;  /* [n_embd_layer, n_embd], [n_embd, n_embd_layer] */
    ae_tensor_ref ple_post_norm;       /* [n_embd] */
    float out_scale;                   /* of the stream after the layer; 1 = none */
} ae_layer;

/* What an MTP block has besides its layer: y = layer(eh_proj(enorm(embedding(t)) | hnorm(f))); logits = head(head_norm(y)) */
typedef struct ae_nextn {
    ae_tensor_ref eh_proj;      /* [n_embd, 2 n_embd], the embedding's half first */
    ae_tensor_ref enorm, hnorm; /* [n_embd] x 2 */
    ae_tensor_ref embedding;    /* [n_vocab, n_embd]; NULL: the model's, as the other two */
    ae_tensor_ref head;         /* [n_vocab, n_embd]; of as many rows as d2t has if the file has one */
    ae_tensor_ref head_norm;    /* [n_embd] */
} ae_nextn;

typedef struct ae_model {
    ae_gguf *gguf;   /* owned */
    ae_arena arena;  /* the tables below and strings */
    ae_hparams hparams;
    const char *name;        /* general.name, "" if absent */
    ae_tensor_ref embedding; /* [n_vocab, n_embd] */
    ae_tensor_ref out_norm;  /* [n_embd] */
    ae_tensor_ref output;    /* [n_vocab, n_embd]; the embedding if the head is tied; NULL: an encoder */
    bool tied;
    ae_tensor_ref out_norm_b; /* optional, of the layer norm */
    ae_tensor_ref output_b;   /* optional, [n_vocab] */
    ae_tensor_ref output_scale; /* optional, [1]: with a tied head its products alone are multiplied by it */
    /* embed_norm also of models that write text; the rest of encoders, which have no output, and out_norm if their norms stand
     * before blocks */
    ae_tensor_ref positions, types;         /* [n_positions, n_embd] not only of encoders, [n_types, n_embd]; or NULL */
    ae_tensor_ref embed_norm, embed_norm_b; /* [n_embd] x 2 of the stream's start */
    ae_tensor_ref cls, cls_b;               /* [n_embd, n_embd], [n_embd] of the classification head; NULL: it has one layer */
    ae_tensor_ref cls_norm;                 /* [n_embd] of the layer norm after it, whose activation is GELU then; or NULL */
    ae_tensor_ref cls_out, cls_out_b;       /* [1, n_embd], [1]; NULL: there is no head */
    ae_tensor_ref dense_2, dense_3;         /* [f, n_embd], [n_embd, f] what the pooled row goes through, or NULL x 2 */
    ae_tensor_ref ple_embedding; /* [n_vocab, n_layers * n_embd_layer], or NULL */
    ae_tensor_ref ple_model_proj, ple_proj_norm; /* [n_layers * n_embd_layer, n_embd], [n_embd_layer] */
    /* of an assistant, for a model of n_target_embd: x = pre(embedding(t) | f), f' = post(out_norm(y)); else NULL */
    ae_tensor_ref pre_projection, post_projection; /* [n_embd, 2 n_target_embd], the embedding's half first, and [n_target_embd,
                                                    * n_embd] */
    ae_bound *bound;          /* of each of the file's tensors, by its place in it */
    ae_layer *layers;         /* [n_layers]; with options.nextn [n_layers + n_nextn], of which only the last have weights */
    ae_nextn *nextn;          /* [n_nextn] with options.nextn, else NULL */
    uint64_t n_params;        /* elements of all tensors; with options.nextn of the MTP blocks' */
} ae_model;

typedef struct ae_model_options {
    bool no_mmap; /* read keys and tensor list only: tensors have no data in memory */
    bool nextn;    /* the MTP blocks instead of the trunk, whose tensors may be missing and whose weights are NULL; or an
                    * assistant; or a block drafter, whose tensors outside of layers are not all read, and whose embedding and
                    * output may be NULL */
    const aerie_rope *rope;       /* NULL: as the file says */
    const char *const *overrides; /* [n_overrides] as in ae_gguf_options */
    size_t n_overrides;
} ae_model_options;

/* Errors: those of ae_gguf_open; UNSUPPORTED for an unknown architecture (named, with the
 * known) or a part that we lack; FORMAT for a missing or misshapen tensor or key (named). */
aerie_status ae_model_load(ae_model **out, const char *path, const ae_model_options *options, aerie_error *error);
/* Takes over an opened file, also on failure. */
aerie_status ae_model_bind(ae_model **out, ae_gguf *gguf, aerie_error *error);
/* The same with options.nextn. */
aerie_status ae_model_bind_nextn(ae_model **out, ae_gguf *gguf, aerie_error *error);
void ae_model_free(ae_model *model);

/* The scale beside a weight of the file that `bound` is about; NULL: none. */
ae_tensor_ref ae_model_scale(const ae_gguf *gguf, const ae_bound *bound, ae_tensor_ref weight);
/* That of the output head's products. */
ae_tensor_ref ae_model_output_scale(const ae_model *model);

/* The first n numbers of a tensor, to x[n]. */
aerie_status ae_model_read_f32(const ae_model *model, ae_tensor_ref tensor, float *x, size_t n, aerie_error *error);

/* What a model's file has of MTP blocks. */
typedef enum ae_nextn_found {
    AE_NEXTN_NONE,
    AE_NEXTN_KEY,    /* nextn_predict_layers says that there are some, but their tensors are elsewhere */
    AE_NEXTN_INSIDE, /* tensors, beside the trunk */
    AE_NEXTN_ALONE,  /* tensors, without a trunk */
} ae_nextn_found;
ae_nextn_found ae_model_find_nextn(const ae_gguf *gguf);

/* Everything as a file says; names as in aerie_rope_scaling_name, text[0..n) one of them. */
aerie_rope ae_model_rope_default(void);
const char *ae_model_rope_scaling_name(aerie_rope_scaling scaling);
bool ae_model_rope_scaling_parse(const char *text, size_t n, aerie_rope_scaling *scaling);

/* Frequencies of a rotation in a context of n_ctx positions, scaling and divisors applied: radians per position of pair i,
 * freq [n_rot / 2]; *magnitude multiplies cos and sin. */
void ae_model_rope_freqs(const ae_rope *rope, uint32_t n_ctx, double *freq, double *magnitude);
/* Which of a row's four positions turns pair i. */
uint32_t ae_model_rope_component(const ae_rope *rope, uint32_t i);

/* Widest of some layers: queries, keys (or values), dense feed-forward blocks. */
typedef struct ae_widths {
    uint32_t q, kv, ff, heads;
} ae_widths;
ae_widths ae_model_widths(const ae_layer *layers, uint32_t n_layers);

/* The architectures that models can have, by number from 0: "llama" and whatever else is known; NULL after the last. */
const char *ae_model_arch_name(size_t i);

#endif

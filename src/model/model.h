/* model.h - what a model file contains: hyper-parameters and the table of its weights, bound and checked.
 *
 * Owns: the GGUF file (kept open, because weights point into it) and the tables. Immutable once loaded, shared by threads and
 * sessions. Knows nothing of devices.
 * Invariants after a successful load: every required tensor is present with the shape written beside it; dimensions divide as
 * the forward pass needs; all counts are within the limits below.
 * An architecture is data: a row in the table of model/arch.c; the forward pass is written once.
 */
#ifndef AE_MODEL_MODEL_H
#define AE_MODEL_MODEL_H

#include "base/err.h"
#include "base/mem.h"
#include "base/shape_limits.h"
#include "formats/gguf.h"
#include "model/decision.h"

#define AE_MAX_ROPES 4

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
    float factor;         /* above 0: positions are divided by it */
    uint32_t n_ctx_orig;
    float yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow; /* see aerie_rope */
    float yarn_log_mul;   /* 0: not given; otherwise YaRN's magnitude is divided by the magnitude for this value */
    uint32_t sections[4]; /* how many pairs rotate by a row's time, height, width and fourth position; all 0: every pair rotates
                           * by one position. Only in a model's first rotation */
    bool interleaved;     /* pairs of the sections alternate; otherwise each section's pairs are adjacent */
    uint32_t every;       /* above 1: rows rotate by the last multiple of this up to their position */
    const float *divisors;      /* [n_rot / 2] divisors of the frequencies; or NULL */
    const float *divisors_long; /* the same for contexts longer than n_ctx_orig; NULL: the same as `divisors` */
} ae_rope;

/* Norm of queries and keys, with the shape of its weights. */
typedef enum ae_qk_norm {
    AE_QK_NORM_NONE,
    AE_QK_NORM_HEAD, /* each head separately, [head_dim] */
    AE_QK_NORM_ROW,  /* all heads together, [n_heads * head_dim] and [n_kv_heads * head_dim] */
    AE_QK_NORM_ROW_LAYER, /* layer norm of all heads together, as ROW, before the rotation */
    AE_QK_NORM_EACH, /* each head separately, [n_heads][head_dim] and [n_kv_heads][head_dim] */
    AE_QK_NORM_LAYER, /* layer norm of each head, [n_heads][head_dim] and [n_kv_heads][head_dim] */
} ae_qk_norm;

/* Values of expert_gating_func, and one that no file has; ae_routing (backend/moe.h) has the arithmetic. */
typedef enum ae_expert_gate {
    AE_EXPERT_GATE_SOFTMAX = 1,
    AE_EXPERT_GATE_SIGMOID = 2,
    AE_EXPERT_GATE_SOFTMAX_CHOSEN = 3,
    AE_EXPERT_GATE_SQRT_SOFTPLUS = 4,
    AE_EXPERT_GATE_SPARSE_MIXER, /* of an architecture */
} ae_expert_gate;

typedef struct ae_expert_hparams {
    uint32_t n;           /* experts of a layer; 0: a dense model, and all other fields are 0 */
    uint32_t n_used;      /* experts that a row uses, 1 to n */
    uint32_t n_ff;        /* neurons of an expert */
    uint32_t n_ff_shared; /* neurons of the shared expert, which every row uses; 0: there is none */
    uint32_t n_groups, n_groups_used; /* 0: no groups */
    uint32_t n_latent;    /* width of the experts' input and output, which projections connect to the stream; 0: n_embd */
    ae_expert_gate gate;
    bool renorm;          /* chosen weights are divided by their sum */
    bool weigh_input;     /* the weight multiplies an expert's input, not its output */
    float scale;          /* factor of the weights */
    /* GroveMoE: smaller experts in addition to these, each shared by n / n_chunks of them; 0: none, and the next two fields are
     * 0 */
    uint32_t n_chunks;
    uint32_t n_ff_chunk;  /* neurons of a smaller expert */
    float chunk_scale;    /* factor of what they add */
} ae_expert_hparams;

/* The mixer that a layer has instead of attention. */
typedef enum ae_recur_kind {
    AE_RECUR_NONE,
    AE_RECUR_DELTA,     /* Gated DeltaNet */
    AE_RECUR_MAMBA2,
    AE_RECUR_SHORTCONV, /* LFM2: a convolution between two gates */
    AE_RECUR_KDA,       /* Kimi Delta Attention: Gated DeltaNet in which each key dimension has its own decay */
    AE_RECUR_PLAMO2,    /* Mamba2 whose time steps, B and C are computed from the convolution's result */
    AE_RECUR_MAMBA1,    /* one head: key_dim values of state for each of value_dim channels */
    AE_RECUR_LIGHTNING, /* linear attention whose heads decay at fixed rates (MiniMax-01) */
    AE_RECUR_WKV6,      /* RWKV 6 */
    AE_RECUR_WKV7,      /* RWKV 7 */
} ae_recur_kind;

/* Sizes of all recurrent layers of a model; backend/recurrent.h has the arithmetic. */
typedef struct ae_recur_hparams {
    ae_recur_kind kind;
    uint32_t n_taps, n_channels; /* taps and channels of the convolution */
    uint32_t n_heads, n_groups, key_dim, value_dim; /* 0 for SHORTCONV */
    bool sigmoid;   /* DELTA: a sigmoid gates the results, not SiLU */
    bool tiled;     /* head h belongs to group h % n_groups, not h / (n_heads / n_groups) */
    uint32_t n_dt;  /* MAMBA1, PLAMO2: width of the low-rank time steps */
    bool plain_norms; /* MAMBA1: low-rank time steps, B and C are normed without weights */
    float bound;      /* KDA: bound of the decay, negative; 0: none */
    uint32_t n_kv;    /* WKV: heads of keys and values, each shared by n_heads / n_kv heads of the state */
    uint32_t n_mix, n_decay, n_rate, n_blend, n_gate; /* WKV: ranks of low-rank products; 0: the product does not exist */
} ae_recur_hparams;

/* Sizes of a layer's multi-head latent attention (DeepSeek-V2). A position keeps one row for all heads: a rotated part,
 * and a latent part from which each head could compute its keys and values. Only the absorbed form is implemented: the heads'
 * matrices are applied to the query, which moves it into the space of the rows, and to attention's result, which moves it
 * back. */
typedef struct ae_mla_hparams {
    uint32_t n_latent;  /* kv_lora_rank; 0: there is no such attention, and all other fields are 0 */
    uint32_t n_rope;    /* rotated values of a row */
    bool still;         /* nothing rotates: the first n_rope values of rows and queries are zeros, which no weight computes */
    /* q_lora_rank: width of the projection from which queries are computed; 0: they are projected directly */
    uint32_t n_q;
    uint32_t n_nope;    /* values of a head's query that are not rotated */
    uint32_t value_dim; /* values of a head's result */
} ae_mla_hparams;

/* Values of a row, and of a head's query, that rotate. */
static inline uint32_t ae_mla_rotated(const ae_mla_hparams *m)
{
    return m->still ? 0 : m->n_rope;
}

/* DeepSeek-V4's attention. It has one KV head, whose rows are both keys and values. The last n_rot values of heads rotate, and
 * those of the results rotate back. Groups of heads are projected separately before the last product. A row sees a window and,
 * in layers with spec.every, rows that each represent a block of that many positions, chosen by an index in some layers
 * (ae_hparams.index, whose keys are compressed in the same way). */
typedef struct ae_compress_hparams {
    uint32_t n_groups; /* groups of heads, a divisor of their number; 0: the model has no such attention, and all other fields
                        * are 0 */
    uint32_t n_out;    /* output_lora_rank: values of a group after the group's projection */
    uint32_t n_q;      /* q_lora_rank */
    uint32_t widest;   /* the largest spec.every */
} ae_compress_hparams;

#define AE_COMPRESS_OVERLAP 4  /* blocks of this many positions overlap with the block before, and have an index */
#define AE_COMPRESS_MOST 128   /* positions of a block */

/* The index of sparse attention (DeepSeek-V3.2, MiniMax-M3), by which rows choose the positions that they attend to. It is the
 * same for all layers that have one. Each position, or each pool of positions, has an index key in addition to keys and
 * values. */
typedef struct ae_index_hparams {
    uint32_t n_heads;  /* 0: no layer has an index, and all other fields are 0 */
    uint32_t head_dim; /* length of a key, of which the first values rotate */
    uint32_t n_most;   /* most positions that a row chooses */
    bool neox;         /* how keys and queries rotate, with the model's first rotation */
    float eps;         /* of the keys' norm */
    bool late;         /* in the file, the values that rotate come last */
    bool still;        /* nothing rotates */
    /* 0: all heads together choose positions; otherwise each KV head has an index head of its own and chooses blocks of so many
     * positions, including the n_local blocks up to the row's own */
    uint32_t block, n_local;
    /* above 0: positions of a pool. One key is made from their keys and is at the pool's last position. A row chooses whole
     * pools, and also sees the positions of the last, incomplete one; n_most counts these too */
    uint32_t pool;
    bool mean;         /* the key of a pool is the mean of its positions' keys, which is then normed and rotated */
    int pool_rope;     /* mean: the rotation of keys, by the first position of their pool */
} ae_index_hparams;

/* Choices of a row. */
static inline uint32_t ae_index_n_groups(const ae_index_hparams *index)
{
    return index->block ? index->n_heads : 1;
}

/* Returns how many values the first part of a key has: keys are stored like latent rows, in two parts of codes with a scale
 * each. */
static inline uint32_t ae_index_first(const ae_index_hparams *index, uint32_t n_rope)
{
    return n_rope < index->head_dim ? n_rope : index->head_dim / 2;
}

/* A memory of n-grams (Qwen 4): before its mixer, one layer adds to each stream what a table has for the row's token and those
 * before it. For each n from 2 to n_tokens, n_each hashes of the last n tokens select rows of the table. */
typedef struct ae_memory_hparams {
    uint32_t n_tokens;  /* 0: there is no memory, and all other fields are 0 */
    uint32_t layer;
    uint32_t n_each, n_heads, width; /* n_heads: number of all hashes of a row; width: of a row of the table */
    uint32_t n_taps;    /* taps of a convolution over rows that are n_tokens apart */
    uint32_t part;      /* the cache stores a stream's values in heads of this width, which divides n_embd */
    int32_t end;        /* a token that ends a text: tokens before it count as this one */
    uint64_t factors[AE_MAX_NGRAM], sizes[AE_MAX_NGRAM_HEADS], offsets[AE_MAX_NGRAM_HEADS]; /* ae_ngrams */
} ae_memory_hparams;

#define AE_SWITCH_DIM 16 /* head width of the attention that finds a row's adapter */

/* Low-rank adapters within the model, which tokens choose (Granite Switch). Each position has a key and a value: `gain` and the
 * number of the adapter that its token chooses, or -gain and 0. Attention over these gives the number of a row's adapter,
 * rounded: if several were chosen, their mean. Adapter 0 belongs to rows that have found none. */
typedef struct ae_switch_hparams {
    uint32_t n;       /* number of adapters, including number 0; 0: there are none, and all other fields are 0 */
    uint32_t rank;
    float gain;
    const int32_t *activate, *substitute; /* [n - 1] x 2 the tokens that choose adapters 1, 2, ..; the tokens that are embedded
                                           * in their place */
} ae_switch_hparams;

/* The products that such an adapter can add to. */
enum { AE_SWITCH_Q, AE_SWITCH_K, AE_SWITCH_V, AE_SWITCH_OUT, AE_SWITCH_GATE, AE_SWITCH_UP, AE_SWITCH_DOWN, AE_SWITCHES };

/* Returns whether a layer's attention uses an index to choose positions. */
typedef enum ae_index {
    AE_INDEX_NONE,
    AE_INDEX_OWN,   /* by its own index */
    AE_INDEX_OTHER, /* the layer uses what an earlier layer chose, spec.index_from */
} ae_index;

/* How a layer mixes the rows of a sequence. */
typedef enum ae_mixer {
    AE_MIXER_NONE,
    AE_MIXER_ATTENTION,
    AE_MIXER_MLA,   /* see ae_layer_spec.mla; one KV head of n_rope + n_latent values */
    AE_MIXER_RECUR, /* see ae_hparams.recur: a state instead of a KV cache */
    AE_MIXER_LINEAR, /* wo projects the row itself */
    AE_MIXER_COMPRESSED, /* see ae_hparams.compress */
} ae_mixer;

/* How the mixer's result is gated before the output projection. */
typedef enum ae_out_gate {
    AE_OUT_GATE_NONE,
    AE_OUT_GATE_ELEMENT, /* elementwise, by values that follow each head's query in wq's rows */
    AE_OUT_GATE_HEAD,    /* one value per head, from attn_gate */
    AE_OUT_GATE_OWN,     /* elementwise, by values from attn_gate */
} ae_out_gate;

typedef enum ae_ffn {
    AE_FFN_NONE,
    AE_FFN_DENSE,
    AE_FFN_EXPERTS,
    AE_FFN_BOTH, /* a dense block and experts side by side */
    AE_FFN_CHANNEL_MIX, /* RWKV: also reads the row before */
} ae_ffn;

/* The activation of a feed-forward block; ae_glu (backend.h) has the arithmetic. */
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
    AE_ACTIVATION_SITU,
} ae_activation;

#define AE_NO_ROPE (-1)
#define AE_KV_OTHER (-1) /* the layer reads the keys and values of another model, for which this one drafts */

/* A layer as data. The forward pass knows nothing about an architecture except this and ae_hparams. */
typedef struct ae_layer_spec {
    ae_mixer mixer;
    bool recur_beside;    /* with ATTENTION: the mixer of ae_hparams.recur reads the same input, and both results are added */
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t value_dim;   /* width of a head's values and of its result, 1 to head_dim; the cache pads values with zeros */
    float value_scale;    /* factor of attention's result; 1: none */
    float clamp_qkv;      /* queries, keys and values are clamped to -clamp_qkv .. clamp_qkv; 0: they are not */
    uint32_t window;      /* positions that a row sees, its own included; 0: all */
    bool chunked;         /* the row sees the positions since the last multiple of window instead */
    int rope;             /* index of ae_hparams.ropes, or AE_NO_ROPE */
    float attn_scale;     /* factor of queries */
    float attn_softcap;   /* 0 = none */
    ae_qk_norm qk_norm;   /* by the layer's weights, or without weights if they are NULL */
    bool qk_norm_last;    /* the norm comes after the rotation */
    bool v_norm;          /* each head of the values is normed without weights */
    bool temperature;     /* queries are multiplied by the temperature of their position */
    ae_out_gate out_gate;
    bool softplus_gate;   /* the gate is a softplus, not a sigmoid */
    int kv_from;          /* the layer whose keys and values it reads: itself if it writes its own; or AE_KV_OTHER */
    ae_mla_hparams mla;   /* MLA */
    ae_index index;       /* for MLA, ATTENTION and COMPRESSED */
    uint32_t every;       /* COMPRESSED: positions of a block; 0: the layer sees only its window */
    int late_rope;        /* with every: the rotation of blocks, by their first position */
    uint32_t index_from;  /* the layer whose choice it uses: itself, or an earlier one */
    ae_ffn ffn;
    float experts_scale;  /* factor of the experts' output, including the shared expert's and, with BOTH, the dense block's; 1:
                           * none */
    bool experts_of_input; /* BOTH: experts read the layer's input, not the dense block's */
    bool normed_after;    /* after the layer, the stream is normed by the model's last norm */
    uint32_t n_ff;        /* neurons of the dense block */
    ae_activation activation;
    bool sparse;          /* DENSE: gates below mean + cutoff * deviation become 0, and the others lose that much */
    float cutoff;
    float xielu[4];       /* AE_ACTIVATION_XIELU: factors for positive and negative inputs, beta, eps */
    bool router_of_input; /* EXPERTS: the router reads the layer's input without a norm */
    float limit, shared_limit; /* limits of activations that have one: for experts; for the shared expert and the dense block */
    float up_limit;       /* SITU: limit of the values that are not gated; 0: none */
} ae_layer_spec;

/* Values of pooling_type in a file. */
typedef enum ae_pooling {
    AE_POOLING_NONE, /* one row per token; also if the file does not say */
    AE_POOLING_MEAN,
    AE_POOLING_CLS,  /* the first row */
    AE_POOLING_LAST, /* the last row */
    AE_POOLING_RANK, /* a classification head reads the first row: one number */
} ae_pooling;

typedef struct ae_hparams {
    const char *arch;     /* "llama" */
    uint32_t n_vocab;     /* rows of the output head */
    uint32_t n_embd;
    uint32_t n_layers;    /* layers of the trunk */
    uint32_t n_blocks;    /* 0: n_layers; otherwise several layers share the weights of one block (ae_model_block_of) */
    /* HRM: rows have a low and a high stream, and layers form stacks of n_stack. A stack runs on the sum of both streams, and
     * its normed result becomes the new high stream in the last of n_cycle stacks, the new low stream in the others. Two sets
     * of n_stack blocks have the weights of these two kinds of stacks, the low one's first. 0: the model is not of this kind */
    uint32_t n_stack, n_cycle;
    uint32_t n_nextn;     /* MTP blocks after the trunk, which predict tokens further ahead */
    /* MTP blocks read the trunk's rows before its final norm instead of after it, and feed back their own in the same way */
    bool nextn_pre;
    bool nextn_end_layer; /* the norm at the end of an MTP block is a layer norm, with nextn_eps */
    float nextn_eps;
    uint32_t n_ctx_train; /* 0: not given */
    float norm_eps;
    bool layer_norm;      /* norms, except those of queries and keys, subtract the mean */
    bool norm_after;      /* each norm comes after the block that it is named for */
    bool keeps_input;     /* feed-forward blocks also read their layer's input */
    float post_eps;       /* epsilon of the norms of blocks' outputs */
    bool plain_norms;     /* norms before blocks and at the end have no weights */
    bool embed_norm_plain; /* the start of the stream is normed without weights */
    bool adds_start;       /* after each layer, out_scale times the start of the stream is added to it */
    /* AltUp: streams of a row. Layers work on the first one; all are predicted before a layer and corrected after it; 0: there
     * is one stream */
    uint32_t n_streams;
    uint32_t laurel_rank; /* AltUp: width of the path parallel to attention */
    bool hyper;           /* hyper-connections, not AltUp: a block reads one sum of all streams, and adds to each of them */
    float hyper_eps;
    uint32_t hyper_iterations;
    float hyper_magnitude; /* above 0: streams are not mixed; outputs have weights magnitude * sigmoid(a) + eps */
    /* above 0: streams are not mixed; each is normed separately, and a block reads their mean through gates, which a product of
     * this rank computes (Qwen 4) */
    uint32_t hyper_rank;
    /* Attention residuals (Kimi K3): before layers 0, bank_every, 2 bank_every, .. the stream is banked and begins anew. A
     * block reads the sum of all banks and the stream, weighted by the softmax of their scores. 0: no banks */
    uint32_t n_banks, bank_every;
    bool parallel;        /* attention and feed-forward block both read the layer's normed input, or each its own norm of it */
    bool norm_stream;     /* blocks read the stream as it is, and the stream itself is normed after each of them */
    bool encoder;         /* a row attends to all rows of its text, also to later ones; there is no output head */
    /* answers are denoised (speculate/denoise.h): the rows of a text see each other, and there is an output head */
    bool denoises;
    bool shifts_logits;   /* denoises: a token is predicted by the row before its position, not by the position's own row */
    bool masks_ahead;     /* the model decodes, and was also trained to fill a block of masks after a text
                           * (draft/head/masked.c) */
    int32_t mask_token;   /* stands for positions whose token is not known yet; -1: the file names none */
    uint32_t n_near;      /* encoders: how many positions after its own a row sees in layers with a window */
    uint32_t n_positions, n_types; /* rows of the tables of positions and of token types; 0: no such table */
    ae_pooling pooling;   /* how a text's rows become an embedding, as the file says */
    bool rank_mean;       /* a classification head reads the mean of the rows, not the first row */
    float embedding_scale, residual_scale, logit_scale; /* 1: none */
    float carry_scale;    /* not 0: the stream itself is normed before each block, which adds its output to this times the
                           * result */
    float logit_softcap;  /* 0: none */
    uint32_t mask_begin, mask_end; /* the logits of these tokens are set to the lowest number */
    /* queries at position p are multiplied by 1 + temp_scale * ln(floor((p + temp_offset) / temp_length) + 1); temp_scale 0:
     * they are not */
    float temp_scale, temp_offset;
    const float *slopes;  /* [n_heads] ALiBi: scores are reduced by this times the distance; NULL: they are not */
    /* layers also attend to the rows of a source, which the encoder in the same file computes (ae_model_options.source) */
    bool crosses;
    int32_t start_token;   /* crosses: the token with which a text about a source begins */
    bool biased;           /* layers have biases by distance */
    uint32_t n_buckets;    /* biased: number of kinds of distances */
    uint32_t temp_length;
    bool group_windows;    /* rows of a group see each other only in layers with a window */
    /* number of further rows that come with each given row, and are added to the stream after layers 0, 1, ... */
    uint32_t n_deepstack;
    uint32_t n_embd_layer; /* width of the embeddings that each token has for every layer; 0: none */
    ae_expert_hparams experts;
    ae_recur_hparams recur;
    ae_mla_hparams mla; /* for layers without a window, if any layer has such attention */
    ae_compress_hparams compress;
    ae_index_hparams index;
    ae_switch_hparams adapters;
    ae_memory_hparams memory;
    ae_decision_hparams decision;
    uint32_t n_ropes;
    ae_rope ropes[AE_MAX_ROPES];
    /* default sizes for all layers' specs; also the sizes of a drafter head's single layer */
    uint32_t n_ff, n_heads, n_kv_heads, head_dim, value_dim;
    float attn_scale;
} ae_hparams;

/* Returns whether the model makes vectors or decisions of texts, and cannot continue them. */
static inline bool ae_model_only_reads(const ae_hparams *h)
{
    return h->encoder || h->decision.kind;
}

/* Returns whether layer i is in a stack of the high stream. */
static inline bool ae_model_is_high(const ae_hparams *h, uint32_t i)
{
    return h->n_stack && i / h->n_stack % h->n_cycle == h->n_cycle - 1;
}

/* Returns the block of the file that has the weights of layer i. */
static inline uint32_t ae_model_block_of(const ae_hparams *h, uint32_t i)
{
    if (h->n_stack) return i % h->n_stack + (ae_model_is_high(h, i) ? h->n_stack : 0);
    return h->n_blocks ? i % h->n_blocks : i;
}

/* Returns the first layer that uses the same block. */
static inline uint32_t ae_model_first_of(const ae_hparams *h, uint32_t i)
{
    if (h->n_stack) return i % h->n_stack + (ae_model_is_high(h, i) ? (h->n_cycle - 1) * h->n_stack : 0);
    return h->n_blocks ? i % h->n_blocks : i;
}

/* Returns how many streams of a row pass from layer to layer in addition to the one that layers work on. */
static inline uint32_t ae_model_n_streams(const ae_hparams *h)
{
    return h->n_stack ? 2 : h->n_streams;
}

/* A weight in the file, [n_out][n_in]. NULL if the architecture does not have it. */
typedef const ae_gguf_tensor *ae_tensor_ref;

/* A tensor of the file, and whether the model reads it. */
typedef struct ae_bound {
    bool read;           /* it is part of the model */
    ae_tensor_ref scale; /* factors of products with the tensor, "NAME.scale" for "NAME.weight": one, or one for each matrix of
                          * a stack; NULL: none */
} ae_bound;

/* Sizes: C channels, V = n_heads * value_dim, H heads. */
typedef struct ae_recur_layer {
    /* DELTA [C, n_embd] q, k, v; MAMBA2 [V + C + H, n_embd] z, x, B, C, dt; SHORTCONV [3 C, n_embd] B, C, X; MAMBA1 [2 V,
     * n_embd] x, z; PLAMO2 [2 V, n_embd] z and x of each head. NULL: the layer is not recurrent */
    ae_tensor_ref in;
    ae_tensor_ref gate;        /* DELTA [V, n_embd] z, or `in` again: q, k, v, z of each group; KDA [V, value_dim or n_embd] */
    ae_tensor_ref alpha, beta; /* DELTA [H, n_embd] x 2; KDA [V, value_dim or n_embd], [H, n_embd] */
    ae_tensor_ref beta_alpha;  /* instead of both, [2 H, n_embd]: for each group the beta of its heads, then their alpha */
    ae_tensor_ref conv;        /* [C, n_taps] */
    ae_tensor_ref conv_bias;   /* optional, [C] */
    ae_tensor_ref decay;       /* [H], MAMBA1 [V, key_dim], negative */
    ae_tensor_ref dt_bias;     /* [H], MAMBA1 and KDA [V] */
    ae_tensor_ref skip;        /* MAMBA2, PLAMO2 [H], MAMBA1 [V] */
    ae_tensor_ref in_q, in_k, in_v; /* KDA, instead of `in`: queries, keys and values separately */
    ae_tensor_ref conv_k, conv_v; /* KDA [V, n_taps] x 2; conv is then for queries */
    /* KDA [value_dim, n_embd] x 2: low-rank inputs of alpha and gate; NULL: alpha and gate read the layer's input */
    ae_tensor_ref f_a, g_a; /* each for itself */
    ae_tensor_ref x_proj;      /* MAMBA1 [n_dt + 2 key_dim, V]: low-rank time steps, B, C; PLAMO2: B, C, low-rank time steps */
    ae_tensor_ref dt_proj;     /* MAMBA1 [V, n_dt], PLAMO2 [H, n_dt] */
    ae_tensor_ref dt_norm, b_norm, c_norm; /* PLAMO2, MAMBA1 optional: [n_dt], [key_dim] x 2 */
    /* LIGHTNING [3][H]: zeros, biases that make time steps 1, negative rates. `in` has the rows of q, k and v of each head,
     * `gate` is [V, n_embd], `norm` [V] */
    const float *rates;
    ae_tensor_ref norm;        /* DELTA, KDA [value_dim]; MAMBA2 optional, [n_groups][V / n_groups] */
    ae_tensor_ref out;         /* [n_embd, V or C] */
} ae_recur_layer;

/* Weights of an RWKV layer, in addition to in_q (receptance), in_k, in_v, gate (WKV6) and out of ae_recur_layer; e = n_embd,
 * ranks as in ae_recur_hparams. decay, rate, blend and gate are low-rank products, first _a, then _b. */
typedef struct ae_wkv_layer {
    ae_tensor_ref lerp;             /* WKV7 [6 or 5][e]: share of the row before in the inputs of r, w, k, v, a, g; WKV6 [5][e]:
                                     * the same for w, k, v, r, g, to which a product of the row is added; NULL: `lerps` has
                                     * them */
    ae_tensor_ref lerps[5];         /* WKV6: each [e] */
    ae_tensor_ref lerp_x, mix_a, mix_b; /* WKV6: [e], [5 n_mix, e], [5][e, n_mix] */
    ae_tensor_ref bias_r, bias_k, bias_v; /* WKV6, optional */
    ae_tensor_ref decay, decay_a, decay_b; /* [e], [n_decay, e], [e, n_decay] */
    ae_tensor_ref rate, rate_a, rate_b; /* WKV7: [e], [n_rate, e], [e, n_rate] */
    ae_tensor_ref blend, blend_a, blend_b; /* WKV7: [e], [n_blend, e], [e, n_blend]; NULL: the first layer */
    ae_tensor_ref gate_a, gate_b;   /* WKV7: [n_gate, e], [e, n_gate]; NULL: no gate */
    ae_tensor_ref first;            /* [e] weights of a row's own key; NULL: WKV6 in Qwen2's form */
    ae_tensor_ref k_k, k_a;         /* WKV7: [e] x 2 */
    ae_tensor_ref norm, norm_b;     /* [e] x 2, or NULL x 2 */
    ae_tensor_ref channel_k, channel_r; /* [e] x 2 share of the row before in the channel mix; channel_r if there is a w_gate */
} ae_wkv_layer;

/* AltUp's weights in a layer, with a low-rank path parallel to attention (Laurel); e = n_embd, c = n_streams. */
typedef struct ae_altup_layer {
    ae_tensor_ref router, router_norm; /* [c, e], [e]; NULL: the model has one stream */
    ae_tensor_ref predict, correct;    /* [c * c, c], [c, c]: coefficients of streams, from the router's result */
    ae_tensor_ref correct_scale;       /* [e] factor of the first stream, to which the token's own embedding is added */
    ae_tensor_ref laurel_a, laurel_b, laurel_norm; /* [rank, e], [e, rank], [e] */
} ae_altup_layer;

/* The weights that compute the coefficients of a block's hyper-connections from the normed streams; c = n_streams. */
typedef struct ae_hyper_layer {
    ae_tensor_ref fn;          /* [c * (2 + c), c * n_embd], at the end of the model [c, c * n_embd]; NULL: there are none */
    ae_tensor_ref scale, base; /* [3], [c * (2 + c)]; at the end [1], [c] */
    /* with hyper_rank r, instead of these: [c][n_embd], [r, c * n_embd], [c * n_embd, r], [c, c * n_embd] (NULL at the end) */
    ae_tensor_ref norm, down, up, inject;
} ae_hyper_layer;

/* A memory's weights; c = n_streams. */
typedef struct ae_memory_layer {
    ae_tensor_ref table;      /* [rows, memory.width]; NULL: the layer has no memory */
    ae_tensor_ref key, value; /* [c * n_embd, n_heads * width], [n_embd, n_heads * width] */
    ae_tensor_ref norm_key, norm_query, norm_conv; /* [c][n_embd] x 3 */
    ae_tensor_ref taps;       /* [c * n_embd, n_taps] */
} ae_memory_layer;

/* The weights that compress rows of d values, in f = 2 parts if blocks overlap, else 1. */
typedef struct ae_compressor {
    ae_tensor_ref kv, gate; /* [f * d, n_embd] x 2; NULL: the layer does not compress */
    ae_tensor_ref ape;      /* [every, f * d] */
    ae_tensor_ref norm;     /* [d] */
} ae_compressor;

/* Weights of AE_MIXER_COMPRESSED, in addition to q_a, q_a_norm, q_b, kv_a_norm, index_q and index_weight of ae_mla_layer, wk,
 * and wo [n_embd, n_groups * n_out]. Latent attention with index.pool has only gate and ape of `index`. */
typedef struct ae_compress_layer {
    ae_tensor_ref out_a; /* [n_groups][n_out, values of a group's heads], or the same as one matrix */
    ae_compressor rows, index;
} ae_compress_layer;

/* Sizes: H heads; see ae_mla_hparams. */
typedef struct ae_mla_layer {
    /* [n_q, n_embd], with norm [n_q]; NULL: the layer's wq [H * (n_nope + n_rope), n_embd] is used */
    ae_tensor_ref q_a;
    ae_tensor_ref q_a_norm;
    ae_tensor_ref q_b;         /* [H * (n_nope + n_rope), n_q]; a head's rotated values come last */
    ae_tensor_ref kv_a;        /* [n_latent + n_rope, n_embd] computes the row that is kept; NULL: not such a layer */
    ae_tensor_ref kv_a_norm;   /* [n_latent] */
    ae_tensor_ref k_b, v_b;    /* [H][n_latent, n_nope], [H][value_dim, n_latent] */
    /* spec.index OWN: [index heads * length, n_q], with the input of q_b; without latent attention [.., n_embd], and its norm
     * [length] for each head */
    ae_tensor_ref index_q, index_q_norm;
    ae_tensor_ref index_k;     /* [length, n_embd], its layer norm [length] x 2; without latent attention an RMS norm */
    ae_tensor_ref index_k_norm, index_k_norm_b;
    ae_tensor_ref index_weight; /* [index heads, n_embd]; NULL: dot products are the scores */
    /* instead of both, [H * (n_nope + value_dim), n_latent]: for each head, k_b transposed, then v_b */
    ae_tensor_ref kv_b;
} ae_mla_layer;

typedef struct ae_layer {
    ae_layer_spec spec;
    /* [n_heads][AE_BIAS_ROW] numbers added to scores, by distance (shape_limits.h); NULL: none */
    const float *bias;
    /* with ae_hparams.crosses: [n_embd], [n_heads * head_dim, n_embd], [n_kv_heads * head_dim, n_embd] x 2, [n_embd, n_heads *
     * head_dim]: attention to the source, between the mixer and the feed-forward block */
    ae_tensor_ref cross_norm, cross_q, cross_k, cross_v, cross_o;
    const float *q_gain; /* [n_heads * head_dim] weights of the query norm as numbers; NULL: q_norm has them */
    ae_tensor_ref attn_norm;           /* [n_embd]; NULL: the mixer reads the stream as it is */
    ae_tensor_ref mixer_carry, ffn_carry; /* [n_embd] x 2, with carry_scale, instead of attn_norm and ffn_norm */
    ae_tensor_ref attn_norm_b;         /* optional, bias of a layer norm */
    /* [n_embd] norm of the mixer's output (with norm_stream: of the stream after it); or NULL */
    ae_tensor_ref attn_post_norm;
    /* optional, [n_embd] x 2, with norm_stream: norm of the sum of stream and layer's input */
    ae_tensor_ref again_norm, again_norm_b;
    ae_tensor_ref attn_post_norm_b, ffn_post_norm_b; /* optional, [n_embd], with norm_stream */
    ae_tensor_ref wq, wk, wv, wo;      /* [n_heads * head_dim, n_embd] (twice the rows with AE_OUT_GATE_ELEMENT) .. [n_embd,
                                        * n_heads * head_dim]; wv NULL: values are the keys before norm and rotation */
    ae_tensor_ref wqkv;                /* instead of wq, wk and wv: their rows in this order */
    ae_tensor_ref bq, bk, bv, bo;      /* optional, [n_out of the weight] */
    ae_tensor_ref bqkv;                /* instead of bq, bk and bv */
    ae_tensor_ref q_norm, k_norm;      /* by spec.qk_norm */
    ae_tensor_ref q_norm_b, k_norm_b;  /* optional, of the same size, biases of layer norms */
    ae_tensor_ref sinks;               /* optional, [n_heads] */
    ae_tensor_ref out_gate;            /* [n_heads, n_embd] with AE_OUT_GATE_HEAD, [n_heads * head_dim, n_embd] with OWN */
    ae_tensor_ref attn_sub_norm, ffn_sub_norm; /* optional, [n_heads * head_dim], [n_ff] norms of the inputs of wo and w_down */
    ae_tensor_ref ffn_norm, ffn_norm_b; /* [n_embd]; as attn_norm */
    ae_tensor_ref ffn_post_norm;       /* [n_embd] norm of the feed-forward block's output, or NULL */
    ae_tensor_ref w_gate, w_up, w_down; /* [n_ff, n_embd] x 2, [n_embd, n_ff]; w_gate NULL: no gate */
    ae_tensor_ref w_gate_up;           /* instead of w_gate and w_up: their rows in this order */
    ae_tensor_ref b_gate, b_up, b_down; /* optional */
    ae_tensor_ref ff_divisors;         /* optional, [n_ff]: the activation's results are divided by these (AWQ) */
    /* with experts, instead of the six fields above or in addition to them; E experts with f = experts.n_ff neurons */
    ae_tensor_ref router;              /* [E, n_embd]; NULL: a layer without experts */
    ae_tensor_ref router_b;            /* optional, [E], added to the logits */
    ae_tensor_ref router_bias;         /* optional, [E], used for the choice only */
    /* [n_vocab][n_used] the experts of each token, regardless of the router, which then only computes their weights; or NULL */
    const float *router_table;
    ae_tensor_ref router_norm;         /* [n_embd] norm of the router's own input; NULL: it reads the block's input */
    ae_tensor_ref e_norm;              /* [n_embd] AE_FFN_BOTH: norm of the experts' input; NULL: ffn_norm */
    ae_tensor_ref dense_post_norm, e_post_norm; /* optional, [n_embd] AE_FFN_BOTH: norms of the dense block's and of the
                                                 * experts' output */
    ae_tensor_ref eb_gate, eb_up, eb_down; /* optional, [E][f] x 2, [E][n_embd] */
    ae_tensor_ref e_scale;             /* optional, [E] factors of the experts' results */
    ae_tensor_ref e_gate, e_up, e_down; /* [E][f, n_embd] x 2, [E][n_embd, f] */
    ae_tensor_ref e_gate_up;           /* [E][2 f, n_embd], the gate's rows first; e_gate and e_up are NULL then */
    ae_tensor_ref c_gate, c_up, c_down; /* [n_chunks][n_ff_chunk, n_embd] x 2, [n_chunks][n_embd, n_ff_chunk]; or NULL */
    ae_tensor_ref s_gate, s_up, s_down; /* the shared expert: [n_ff_shared, n_embd] x 2, [n_embd, n_ff_shared] */
    ae_tensor_ref s_gate_up;           /* instead of s_gate and s_up: their rows in this order */
    ae_tensor_ref s_router;            /* [1, n_embd]; NULL: its weight is 1 */
    ae_tensor_ref latent_down, latent_up; /* [n_latent, n_embd], [n_embd, n_latent] projections around the experts with
                                           * experts.n_latent; then e_gate, e_up and e_down have n_latent instead of n_embd */
    ae_tensor_ref latent_norm;         /* optional, [n_latent] norm of the experts' output, before latent_up */
    ae_tensor_ref mixer_score, ffn_score; /* [1, n_embd] x 2, with n_banks: scores of normed rows, for each half of the layer */
    ae_mla_layer mla;
    ae_recur_layer recur;
    ae_wkv_layer wkv;
    ae_altup_layer altup;
    ae_hyper_layer hyper_mixer, hyper_ffn;
    ae_compress_layer compress;
    ae_memory_layer memory;
    /* [adapters.n][rank, inputs of the product], [adapters.n][its outputs, rank]; NULL: there are none */
    ae_tensor_ref switch_a[AE_SWITCHES], switch_b[AE_SWITCHES];
    /* embeddings that tokens have for each layer */
    ae_tensor_ref ple_gate, ple_proj;  /* [n_embd_layer, n_embd], [n_embd, n_embd_layer] */
    ae_tensor_ref ple_post_norm;       /* [n_embd] */
    float out_scale;                   /* factor of the stream after the layer; 1: none */
} ae_layer;

/* Weights of an MTP block in addition to its layer: y = layer(eh_proj(enorm(embedding(t)) | hnorm(f))); logits =
 * head(head_norm(y)). With hyper-connections eh_proj and hnorm are applied to each stream, with the same embedding. */
typedef struct ae_nextn {
    ae_tensor_ref eh_proj;      /* [n_embd, 2 n_embd], the embedding's half first */
    ae_tensor_ref enorm, hnorm; /* [n_embd] x 2; with hyper_rank hnorm is [n_streams][n_embd] */
    ae_tensor_ref embedding;    /* [n_vocab, n_embd]; NULL: the model's is used, also for the next two */
    ae_tensor_ref head;         /* [n_vocab, n_embd], or as many rows as the file's d2t */
    ae_tensor_ref head_norm;    /* [n_embd] */
} ae_nextn;

typedef struct ae_model {
    ae_gguf *gguf;   /* owned */
    ae_arena arena;  /* holds the tables below and strings */
    ae_hparams hparams;
    const char *name;        /* general.name, "" if absent */
    ae_tensor_ref embedding; /* [n_vocab, n_embd] */
    ae_tensor_ref out_norm;  /* [n_embd] */
    ae_tensor_ref output;    /* [n_vocab, n_embd]; the embedding if the head is tied; NULL: an encoder */
    bool tied;
    ae_tensor_ref out_norm_b; /* optional, bias of a layer norm */
    ae_tensor_ref end_score;  /* [1, n_embd] like mixer_score, for the output */
    ae_tensor_ref output_b;   /* optional, [n_vocab] */
    ae_tensor_ref output_scale; /* optional, [1]: with a tied head, factor of the output products only */
    /* Only models that generate text have an output. Encoders have out_norm if their norms come before blocks, and the
     * following tensors; models that generate text may have positions and embed_norm. */
    ae_tensor_ref positions, types;         /* [n_positions, n_embd], [n_types, n_embd]; or NULL */
    ae_tensor_ref embed_norm, embed_norm_b; /* [n_embd] x 2, norm of the start of the stream */
    /* [n_embd, n_embd], [n_embd] first layer of the classification head; NULL: the head has one layer */
    ae_tensor_ref cls, cls_b;
    /* [n_embd] layer norm after the first layer, whose activation is then GELU; or NULL */
    ae_tensor_ref cls_norm;
    ae_tensor_ref cls_out, cls_out_b;       /* [1, n_embd], [1]; NULL: there is no classification head */
    ae_tensor_ref dense_2, dense_3;         /* [f, n_embd], [n_embd, f] applied to the pooled row; or both NULL */
    const ae_decision *decision;            /* NULL: the model has no decision head */
    ae_tensor_ref ple_embedding; /* [n_vocab, n_layers * n_embd_layer], or NULL */
    /* [n_streams - 1][n_embd, n_embd] x 2: the other streams at the beginning, and what they add at the end; or NULL */
    ae_tensor_ref altup_proj, altup_unembd;
    ae_tensor_ref low_start;  /* [n_embd] start of the low stream, with n_stack; else NULL */
    ae_hyper_layer hyper_end; /* weights that combine the streams at the end; with options.nextn, at the end of the blocks */
    ae_tensor_ref ple_model_proj, ple_proj_norm; /* [n_layers * n_embd_layer, n_embd], [n_embd_layer] */
    /* an assistant, for a model of width n_target_embd: x = pre(embedding(t) | f), f' = post(out_norm(y)); otherwise NULL */
    ae_tensor_ref pre_projection, post_projection; /* [n_embd, 2 n_target_embd], the embedding's half first, and [n_target_embd,
                                                    * n_embd] */
    ae_bound *bound;          /* [tensors of the file] in the file's order */
    ae_tensor_ref unused;     /* first of n_unused tensors of the file that no program uses, although it has them; or NULL */
    uint32_t n_unused;
    ae_layer *layers;         /* [n_layers]; with options.nextn [n_layers + n_nextn], of which only the last n_nextn have
                               * weights */
    ae_nextn *nextn;          /* [n_nextn] with options.nextn, else NULL */
    uint64_t n_params;        /* elements of all tensors; with options.nextn, of those of the MTP blocks */
} ae_model;

enum { AE_MODEL_UNREAD = 128 };

typedef struct ae_model_options {
    bool no_mmap; /* read only the keys and the list of tensors: tensors have no data in memory */
    /* Load drafters instead of a model: the MTP blocks (the trunk's tensors may be missing, and its weights are NULL), an
     * assistant, or a block drafter (some of its tensors outside layers are not read, and embedding and output may be NULL). */
    bool nextn;
    bool source;                  /* load the encoder of a model with ae_hparams.crosses */
    const aerie_rope *rope;       /* NULL: as the file says */
    const char *const *overrides; /* [n_overrides] as in ae_gguf_options */
    size_t n_overrides;
    char *unread; /* [AE_MODEL_UNREAD] NULL, or where to put the name of a tensor that nothing reads, if that is why the file is
                   * refused; otherwise "" */
} ae_model_options;

/* Errors: those of ae_gguf_open; UNSUPPORTED: an unknown architecture (the message names it), or a part that aerie does not
 * implement; FORMAT: a missing or misshapen tensor or key (named). */
aerie_status ae_model_load(ae_model **out, const char *path, const ae_model_options *options, aerie_error *error);
/* The same for an open file. Takes ownership of the file, also on failure. */
aerie_status ae_model_bind(ae_model **out, ae_gguf *gguf, aerie_error *error);
/* The same with options.nextn. */
aerie_status ae_model_bind_nextn(ae_model **out, ae_gguf *gguf, aerie_error *error);
void ae_model_free(ae_model *model);

/* Returns the scale of a weight in the file that `bound` describes; NULL: it has none. */
ae_tensor_ref ae_model_scale(const ae_gguf *gguf, const ae_bound *bound, ae_tensor_ref weight);
/* Returns the scale of the output head's products. */
ae_tensor_ref ae_model_output_scale(const ae_model *model);

/* Reads the first n numbers of a tensor to x[n]. */
aerie_status ae_model_read_f32(const ae_model *model, ae_tensor_ref tensor, float *x, size_t n, aerie_error *error);

/* Which parts of MTP blocks a model's file has. */
typedef enum ae_nextn_found {
    AE_NEXTN_NONE,
    AE_NEXTN_KEY,    /* nextn_predict_layers is above 0, but the tensors are elsewhere */
    AE_NEXTN_INSIDE, /* tensors, together with the trunk */
    AE_NEXTN_ALONE,  /* tensors, without a trunk */
} ae_nextn_found;
ae_nextn_found ae_model_find_nextn(const ae_gguf *gguf);

/* Returns parameters that change nothing in a file's rotation. The second function finds a scaling by its name, text[0..n) (as
 * in aerie_rope_scaling_name). */
aerie_rope ae_model_rope_default(void);
const char *ae_model_rope_scaling_name(aerie_rope_scaling scaling);
bool ae_model_rope_scaling_parse(const char *text, size_t n, aerie_rope_scaling *scaling);

/* Computes the frequencies of a rotation in a context of n_ctx positions, with scaling and divisors applied: freq [n_rot / 2]
 * in radians per position of pair i. *magnitude multiplies cos and sin. */
void ae_model_rope_freqs(const ae_rope *rope, uint32_t n_ctx, double *freq, double *magnitude);
/* Returns which of a row's four positions rotates pair i. */
uint32_t ae_model_rope_component(const ae_rope *rope, uint32_t i);

/* The largest widths among some layers: width of queries, of keys (or values) and of dense feed-forward blocks. */
typedef struct ae_widths {
    uint32_t q, kv, ff, heads;
} ae_widths;
ae_widths ae_model_widths(const ae_layer *layers, uint32_t n_layers);

/* Returns the i-th supported architecture's name; NULL after the last one. */
const char *ae_model_arch_name(size_t i);

#endif

/* backend.h - THE seam between the engine and the machines that run it.
 *
 * A backend is a struct of function pointers, chosen at run time. It offers a small number of
 * LLM-sized operations over device memory; the forward pass (engine/forward.c) is written once
 * over them. Only operations may follow device pointers: the host reads device memory by `view` and `download`
 * and writes it by `upload` and `fill`. The backend "cpu-strict" holds it to that. Arrays lie on the device, except those
 * marked (host).
 *
 * Objects
 *   ae_backend  the device. Owns nothing but itself; shared by all models and streams.
 *   ae_weight   a matrix or vector in the device's own (packed) layout. Immutable, shared.
 *   ae_stream   where operations run: scratch, and threads that it may share. One per engine, one user at a time.
 *               Operations of a stream happen in order, and their results are there after sync.
 *   ae_kv_store the pages of a KV cache on the device.
 *   ae_state_store  the state of recurrent layers on the device: see state.h.
 * Weights, streams and stores are opaque: each backend completes these types in its own files, and nobody else does.
 *
 * Failures: an operation returns nothing. One that fails notes why in its stream, naming itself and what it was given
 * (ae_backend_note), and the next sync returns the first note. Until then operations may run on meaningless values,
 * but never outside their memory.
 *
 * Law: a row's result is a pure function of the weights and of the row's own prefix. No operation
 * may let n_rows, another row, the thread count or the CPU level change one bit (docs/same-bytes.md).
 * The arithmetic is defined by the plain-C kernels in cpu/ref.
 */
#ifndef AE_BACKEND_BACKEND_H
#define AE_BACKEND_BACKEND_H

#include "backend/recurrent.h"
#include "base/err.h"
#include "base/pool.h"
#include "base/shape_limits.h"
#include "sample/walk.h"

#define AE_KV_PAGE 64 /* positions per KV page; also the attention chunk, cut at logical positions */

typedef struct ae_backend ae_backend;
typedef struct ae_weight ae_weight;
typedef struct ae_kv_store ae_kv_store;

/* ---- Weights ------------------------------------------------------------------------------- */

typedef enum ae_weight_use {
    AE_WEIGHT_MATMUL = 1, /* y = W x */
    AE_WEIGHT_LOOKUP = 2, /* rows fetched by token id */
    AE_WEIGHT_IN_PLACE = 4, /* a preference: use the rows where they lie, do not pack them */
} ae_weight_use;

#define AE_WEIGHT_ROWS 16 /* a weight is filled by multiples of this many rows */

typedef struct ae_weight_source {
    uint32_t type;     /* ae_type */
    uint32_t n_out;    /* rows: output features, or tokens of a table */
    uint32_t n_in;     /* columns: input features, contiguous in a row */
    const void *data;  /* (host) [n_out] rows in the file's layout; lives as long as the weight. NULL: they lie
                        * nowhere, the weight keeps what it needs of them */
    unsigned use;      /* ae_weight_use, or-ed */
    const float *scale, *row_scale; /* (host) a factor of each product's sums, before the bias; and of the values that lookups
                                     * give. Copied; NULL: there is none */
} ae_weight_source;

/* ---- Matrix products ------------------------------------------------------------------------ */

#define AE_MATMUL_MAX 4 /* weights that share one input: q, k, v or gate, up */

typedef enum ae_input {
    AE_INPUT_PLAIN,     /* x */
    AE_INPUT_RMSNORM,   /* x / rms(x) * norm */
    AE_INPUT_LAYERNORM, /* (x - mean) / sqrt(variance + eps) * norm (+ norm_bias) */
    AE_INPUT_GLU,       /* f(x) * x2, or f(x) where there is no x2; f by ae_glu */
} ae_input;

/* What a feed-forward block or a gate does to its input g, and how it is combined with u (1 where there is none). */
typedef enum ae_glu {
    AE_GLU_SILU,         /* g / (1 + e^-g) * u */
    AE_GLU_GELU,         /* g / (1 + e^-2z) * u, z = sqrt(2 / pi) * (g + 0.044715 g^3): GELU by tanh */
    AE_GLU_RELU2,        /* max(g, 0)^2 * u */
    AE_GLU_SIGMOID,      /* 1 / (1 + e^-g) * u */
    AE_GLU_OAI,          /* gpt-oss: a = min(g, limit), a / (1 + e^(-1.702 a)) * (clamp(u, limit) + 1) */
    AE_GLU_SILU_CLAMPED, /* min(silu(g), limit) * clamp(u, limit) */
    AE_GLUS,
} ae_glu;

typedef struct ae_matmul {
    uint32_t n_rows;
    ae_input input;
    const float *x, *x2;  /* [n_rows][x_stride] f32; the first n_in are used */
    size_t x_stride;
    const float *norm;    /* [n_in] f32 on the device, for the norms */
    const float *norm_bias; /* [n_in] f32 on the device or NULL, for AE_INPUT_LAYERNORM */
    float norm_eps;
    ae_glu glu;           /* for AE_INPUT_GLU */
    float glu_limit;
    uint32_t n_weights;
    struct ae_matmul_out {
        const ae_weight *weight; /* [n_out, n_in] */
        const float *bias;       /* [n_out] f32 on the device, or NULL */
        float *y;                /* [n_rows][y_stride] f32 */
        size_t y_stride;
        bool add;                /* y += instead of y = */
    } out[AE_MATMUL_MAX];
} ae_matmul;

/* Told of a product before it is made: its input x [n_rows][x_stride], n_in f32 of each row, which the host can read during the
 * call. On the thread that calls the operation. */
typedef void ae_watch_fn(void *user, const ae_weight *weight, const float *x, size_t x_stride, uint32_t n_rows, uint32_t n_in);

/* A product for each head: row r of head h is x + r * x_stride + h * x_step, its result y + r * y_stride + h * y_step. */
typedef struct ae_head_matmul {
    uint32_t n_rows, n_heads;
    const float *x;       /* n_in f32 each */
    size_t x_stride, x_step;
    ae_weight *const *weights; /* [n_heads] of [n_out, n_in], of one type and shape */
    float *y;             /* n_out f32 each */
    size_t y_stride, y_step;
} ae_head_matmul;

/* x in n_rows * n_groups groups of dim, each normed by itself, in place: x / rms(x) * weight, or the layer norm. */
typedef struct ae_norm {
    uint32_t n_rows, n_groups, dim;
    float *x;            /* [n_rows][x_stride] f32; the first n_groups * dim are used */
    size_t x_stride;
    const float *weight; /* [dim] f32 on the device, or [n_groups][dim] if each_group */
    float eps;
    bool each_group;     /* groups have weights of their own */
    bool layer;          /* (x - mean) / sqrt(variance + eps) * weight (+ bias) */
    const float *bias;   /* [dim] f32 on the device or NULL, of the layer norm */
} ae_norm;

/* y = fmaf(a, x, y), n rows of dim. */
typedef struct ae_axpy {
    uint32_t n, dim;
    float a;
    const float *x;
    size_t x_stride;
    float *y;
    size_t y_stride;
} ae_axpy;

typedef enum ae_map_kind {
    AE_MAP_ZERO,    /* 0 */
    AE_MAP_SCALE,   /* x * a */
    AE_MAP_SOFTCAP, /* a * tanh(x / a) */
    AE_MAP_GLU,     /* f(x) * x2 by ae_glu, as AE_INPUT_GLU */
    AE_MAP_GATE,    /* x * 1 / (1 + e^-x2), x2 [n_rows][n_groups]: one gate for each of n_groups equal parts of a row */
} ae_map_kind;

/* Every element of x, in place. */
typedef struct ae_map {
    ae_map_kind kind;
    uint32_t n_rows, dim;
    float *x;            /* [n_rows][x_stride] f32; the first dim are used */
    size_t x_stride;
    float a;
    const float *x2;     /* [n_rows][x2_stride] */
    size_t x2_stride;
    uint32_t n_groups;   /* AE_MAP_GATE; divides dim */
    ae_glu glu;          /* AE_MAP_GLU */
    float glu_limit;
} ae_map;

/* y[i] = x[rows[i]], dim floats each; rows [n] on the device, or host_rows (host) [n], read before the call returns; both NULL:
 * y[i] = x[i]. x and y do not overlap. */
typedef struct ae_copy {
    uint32_t n, dim;
    const float *x;
    size_t x_stride;
    const int32_t *rows;
    float *y;
    size_t y_stride;
    const int32_t *host_rows;
} ae_copy;

/* ---- Mixture of experts --------------------------------------------------------------------- */

typedef enum ae_gate {
    AE_GATE_SOFTMAX,        /* p = softmax of all logits */
    AE_GATE_SIGMOID,        /* p = 1 / (1 + e^-logit) */
    AE_GATE_SOFTMAX_CHOSEN, /* p = softmax of the chosen logits alone */
} ae_gate;

/* How a row chooses its experts and weighs them, all in f32. The score of an expert is its logit, or p + bias where there
 * is a selection bias. The n_used of highest score are chosen; of equals the lower id; NaN never beats a number.
 * With groups (equal ranges of ids) only the experts of n_groups_used groups can be chosen, those of highest sum of their two
 * best scores p (+ bias); of equals the lower group.
 * The weight is p; `renorm` divides by the sum of the chosen p (at least 2^-14), then times `scale`. Where there is no renorm
 * and n_full > n_used, the weights are divided by their sum and times that of the n_full best: fewer experts, the same weight.
 * softmax: m the largest logit, q = ae_expf(logit - m), p = q / sum of q.
 * A sum over experts: 16 sums by id % 16, ids ascending, then ae_sum16. */
typedef struct ae_routing {
    uint32_t n_experts, n_used; /* n_used <= n_experts <= AE_MAX_EXPERTS; 0 used: the shared expert alone */
    ae_gate gate;
    bool renorm;
    float scale;
    uint32_t n_groups, n_groups_used; /* 0 or 1: no groups; else n_groups divides n_experts */
    uint32_t n_full; /* drafts: of weights that are not divided by their sum; 0: of n_used experts */
} ae_routing;

/* The feed-forward block with experts: y += sum of weight_e * down_e(f(gate_e(x')) * up_e(x')), x' = norm of x as the input of
 * a matmul. Without gate: down_e(f(up_e(x'))).
 * Order of the sum, per element: y = fmaf(weight_e, d_e, y), chosen experts by ascending id, then the shared expert
 * with its own weight. Rows are grouped by expert: each chosen expert's weights are read once whatever n_rows. */
typedef struct ae_moe {
    uint32_t n_rows;
    ae_routing routing;      /* n_used may be less than planned in ae_stream_options: drafts with fewer experts */
    const float *x;          /* [n_rows][n_embd] f32; may be y */
    const float *norm;       /* [n_embd] f32 on the device */
    float norm_eps;
    ae_glu glu, shared_glu;
    float glu_limit, shared_limit;
    const ae_weight *router; /* [n_experts, n_embd] */
    const float *router_norm; /* [n_embd] f32 on the device: the router sees x / rms(x) * router_norm; NULL: it sees x' */
    float router_scale;      /* of the logits; 0: 1 */
    const float *latent;     /* [n_rows][n_in of up] f32: what experts get instead of x'; then y is [n_rows][n_out of down], and
                              * there is no shared expert. Or NULL */
    const float *router_bias; /* [n_experts] f32 on the device, added to the logits; or NULL */
    const float *bias;       /* [n_experts] f32 on the device, added to p for the choice alone; or NULL */
    bool weigh_input;        /* down_e(f(gate_e(w x')) * up_e(w x')), w the expert's weight, is added as it is */
    ae_weight *const *gate, *const *up, *const *down; /* [n_experts] of [n_ff, n_embd] x 2, [n_embd, n_ff]; each array's
                                                       * weights have one type and shape; gate may be NULL */
    const float *gate_bias, *up_bias, *down_bias; /* [n_experts][n_ff] x 2, [n_experts][n_embd] on the device; or NULL */
    const float *out_scale;  /* [n_experts] f32 on the device: an expert's weight is multiplied by it last; or NULL */
    const ae_weight *shared_gate, *shared_up, *shared_down; /* [n_ff_shared, ...] an expert that every row uses; or NULL */
    const ae_weight *shared_router; /* [1, n_embd] weight of the shared expert is the sigmoid of this; NULL: it is 1 */
    float *y;                /* [n_rows][n_embd] f32; another array than x with latent */
} ae_moe;

/* The largest ae_moe of a stream; n_experts 0: none. */
typedef struct ae_moe_shape {
    uint32_t n_experts, n_used, n_embd, n_ff, n_ff_shared;
    bool weigh_input;
} ae_moe_shape;

/* ---- Rows, positions and the KV cache ---------------------------------------------------------- */

typedef enum ae_kv_type {
    AE_KV_F16,
    AE_KV_Q8_0, /* int8 codes, one f32 scale for each row of a head */
    AE_KV_TUNED, /* those above have kernels at every level */
    AE_KV_F32 = AE_KV_TUNED, /* as they are; computed by the reference alone: for comparing with other engines */
    AE_KV_TYPES,
} ae_kv_type;

/* Of one layer; keys and values have the same head_dim. With n_rope the layer keeps latent rows: one row for all heads (n_heads
 * is 1), which is the key, n_rope rotated values and head_dim latent ones; the latent ones are the value. F16 and Q8_0 stand
 * for codes of 15 and 8 bits then (backend/cpu/ref/kernels.h). */
typedef struct ae_kv_layer {
    uint32_t n_heads, head_dim, n_rope;
} ae_kv_layer;

typedef struct ae_kv_shape {
    uint32_t n_layers;         /* that have keys and values of their own */
    const ae_kv_layer *layers; /* [n_layers], copied */
    uint32_t n_pages;
    ae_kv_type type;
} ae_kv_shape;

/* Where the rows of a pass stand. All arrays lie on the device: uploaded once for a pass, in one block.
 * Slots number the places of a sequence's KV: page slot / 64 of its table, place slot % 64. A committed
 * position p sits in slot p. A draft row sits in a slot after the committed ones; the path of row r
 * lists, for each position from n_inplace[r] up to its own, the slot that holds its ancestor. */
typedef struct ae_places {
    uint32_t n_rows;
    const int32_t *seq;       /* [n_rows] index into tables; rows of one sequence are adjacent */
    const int32_t *pos;       /* [n_rows] logical position */
    const int32_t *slot;      /* [n_rows] where the row's own K and V go */
    const int32_t *n_inplace; /* [n_rows] positions below this sit in the slot of the same number */
    const int32_t *path;      /* [n_rows][path_stride]; entry i: slot of position n_inplace[r] + i */
    uint32_t path_stride;
    const int32_t *tables;    /* [n_seqs][table_stride] page numbers */
    uint32_t table_stride;
    const uint32_t *n_actual; /* how many rows there are: for a recorded pass, which n_rows at most were recorded for */
} ae_places;

/* The angles of a pass: of row r and pair i, cos and sin of pos[r] * freq[i], times the magnitude. Computed in double by
 * ae_sincos and rounded once (cpu/ref). */
typedef struct ae_rope_table {
    uint32_t n_rows, n_rot;
    const int32_t *pos;  /* [n_rows] on the device */
    const double *freq;  /* [n_rot / 2] radians per position, on the device */
    double magnitude;
    float *cos, *sin;    /* (out) [n_rows][n_rot / 2] */
} ae_rope_table;

typedef enum ae_rope_kind {
    AE_ROPE_NORM, /* pairs (2i, 2i+1) */
    AE_ROPE_NEOX, /* pairs (i, i + n_rot/2) */
} ae_rope_kind;

/* Norms and rotates q and k, then writes k and v to the pages of a layer. Latent rows: head_dim is that of the whole row, whose
 * first n_rot values are the rotated ones; there is one KV head, k is the row, v is NULL. */
typedef struct ae_rope_kv {
    const ae_places *places;
    ae_kv_store *kv;
    uint32_t layer;         /* of the store */
    uint32_t n_heads, n_kv_heads, head_dim, n_rot; /* n_rot 0: no rotation */
    ae_rope_kind kind;
    const float *cos, *sin; /* [n_rows][n_rot/2] f32 on the device */
    float *q;               /* [n_rows][n_heads * head_dim], changed in place */
    float *k;               /* [n_rows][n_kv_heads * head_dim], changed in place; NULL: the layer reads keys and values of
                             * another one, and has queries only */
    float *v;               /* [n_rows][n_kv_heads * head_dim], changed in place if v_norm */
    /* x / rms(x) * weight of queries and keys; NULL: none */
    const float *q_norm, *k_norm; /* f32 on the device, [head_dim], or [n_heads * head_dim] and [n_kv_heads * head_dim] */
    bool norm_row;          /* all heads together instead of each by itself */
    bool norm_layer;        /* the layer norm of each head instead, with weights of its own: [n_heads][head_dim] */
    bool norm_last;         /* after the rotation instead of before */
    const float *v_norm;    /* [head_dim] f32 on the device, of each head of the values; or NULL */
    float norm_eps;
    const float *q_scale;   /* [n_rows] f32 on the device: queries are multiplied by it in the end; or NULL */
} ae_rope_kv;

typedef struct ae_attention {
    const ae_places *places;
    const ae_kv_store *kv;
    uint32_t layer;
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t n_rope;  /* latent rows: as in ae_kv_layer; else 0 */
    float scale;      /* of q before the product */
    float softcap;    /* scores s become softcap * tanh(s / softcap); 0: they stay */
    uint32_t window;  /* positions seen, own included; 0 = all */
    bool chunked;     /* those since the last multiple of window instead */
    const float *sinks; /* [n_heads] f32 on the device: a score without a value that takes part in the softmax; or NULL */
    const float *q;   /* [n_rows][n_heads * (n_rope + head_dim)] */
    float *y;         /* [n_rows][n_heads * head_dim] */
} ae_attention;

/* Places of a store: page * AE_KV_PAGE + place in the page. */
typedef struct ae_kv_move {
    int32_t from, to;
} ae_kv_move;

/* After a pass: rows of all its sequences move to other places, in every layer of the store. A run is the moves of one
 * sequence. Runs have no page in common. The moves of a run happen in their order: a place may be the target of one and the
 * source of an earlier one. */
typedef struct ae_kv_commit_args {
    ae_kv_store *kv;
    uint32_t n_runs;
    const int32_t *begin;    /* [n_runs + 1] on the device: run i is move[begin[i]] to move[begin[i + 1] - 1] */
    const ae_kv_move *move;  /* on the device */
} ae_kv_commit_args;

/* ---- Draws and drafts ------------------------------------------------------------------------- */

/* A sequence's tree in a pass. Row 0 is its root, the row whose draw comes first; rows 1 to n are the nodes. Their logits lie
 * one after the other. */
typedef struct ae_walk_tree {
    ae_sampler *sampler; /* (host) one that draws from a row alone (ae_sampler_draws_from_row); no two trees share it */
    uint32_t row;        /* of the pass: the root */
    uint32_t output;     /* the root's place among the rows of logits */
    uint32_t n;          /* nodes */
    uint32_t n_most;     /* tokens to draw, at most; at least 1 */
    uint64_t position;   /* of the token that the root draws */
    bool ends;           /* a token of `eog` is the last one */
} ae_walk_tree;

/* Draws the target's tokens down each tree (sample/walk.h). A device may draw from all rows at once; the CPU draws from
 * those that the walk visits. The tokens are the same, since a draw does not depend on other draws. */
typedef struct ae_walk {
    uint32_t n_trees, n_vocab;
    const ae_walk_tree *trees; /* (host) [n_trees], read before the call returns */
    const float *logits;       /* [outputs][n_vocab] */
    const int32_t *token, *parent; /* of the rows of the pass, on the device; parent: a row of the pass */
    const int32_t *eog;        /* [n_eog] on the device */
    uint32_t n_eog;
    ae_walked *out;            /* [n_trees] on the device */
} ae_walk;

#define AE_PROPOSE_MAX 16 /* tokens that are proposed after a row */

/* A row of a drafter's logits. */
typedef struct ae_propose_row {
    const ae_sampler *sampler; /* (host) the target's, of the sequence */
    uint32_t output;           /* its place among the rows of logits */
    uint32_t k;                /* tokens wanted, at most AE_PROPOSE_MAX */
    uint64_t position;         /* of the token proposed */
} ae_propose_row;

typedef struct ae_proposal {
    uint32_t n;                 /* at most k */
    int32_t id[AE_PROPOSE_MAX]; /* best first */
    float p[AE_PROPOSE_MAX];    /* belief that the target draws it */
} ae_proposal;

/* The tokens that the target would most likely draw after each row, by the drafter's logits and the target's own noise
 * (ae_sampler_propose). */
typedef struct ae_propose {
    uint32_t n_rows, n_logits;
    const ae_propose_row *rows; /* (host) [n_rows], read before the call returns */
    const float *logits;        /* [outputs][n_logits] */
    const int32_t *map;         /* [n_logits] on the device: the target's ids; NULL: they are the target's */
    ae_proposal *out;           /* [n_rows] on the device */
} ae_propose;

#define AE_MARKS 64 /* that a stream remembers */

typedef struct ae_stream_options {
    uint32_t n_threads;   /* of the pool */
    uint32_t max_rows;    /* largest n_rows of any operation */
    uint32_t max_in;      /* largest n_in of any matmul */
    ae_moe_shape moe;
    const ae_state_shape *state; /* its n_layers and layers, lent for the call; NULL: no recurrent layers */
    ae_pool *pool;        /* the host's threads, for host_run and the CPU's operations; outlives the stream. Not read by
                           * stream_bytes */
} ae_stream_options;

/* ---- The operations -------------------------------------------------------------------------- */

typedef struct ae_backend_ops {
    const char *name;
    void (*close)(ae_backend *backend);

    /* Device memory, zeroed. NULL when there is none left. */
    void *(*alloc)(ae_backend *backend, size_t bytes);
    void (*free)(ae_backend *backend, void *memory, size_t bytes);

    /* Device memory that the weight takes, a multiple of 64; 0 if the source's own rows are enough. */
    size_t (*weight_bytes)(const ae_backend *backend, const ae_weight_source *source);
    /* A weight in memory[weight_bytes] (64-byte aligned, borrowed, zeroed). With weight_bytes other than 0 it is
     * empty: all its rows must be given to weight_fill before it is used. */
    aerie_status (*weight_create)(ae_backend *backend, const ae_weight_source *source, void *memory, ae_weight **out,
                                  aerie_error *error);
    /* (host) rows [first, first + n) in the file's layout; first is a multiple of AE_WEIGHT_ROWS, n too or up to the
     * last row. Different rows from different threads at once. */
    void (*weight_fill)(ae_backend *backend, ae_weight *weight, const void *rows, uint32_t first, uint32_t n);
    void (*weight_free)(ae_backend *backend, ae_weight *weight);

    size_t (*stream_bytes)(const ae_backend *backend, const ae_stream_options *options);
    aerie_status (*stream_create)(ae_backend *backend, const ae_stream_options *options, ae_stream **out, aerie_error *error);
    void (*stream_free)(ae_stream *stream);
    /* Waits for all operations of the stream. An error is the first that was noted since the last sync. */
    aerie_status (*sync)(ae_stream *stream, aerie_error *error);
    /* (host) work on the stream's threads, after a sync: job(context, item, i_worker) for items [0, n), in any order. */
    void (*host_run)(ae_stream *stream, ae_pool_job *job, void *context, uint32_t n);

    /* From now on `watch` is told of every product, those of experts included; NULL: nobody. NULL if the backend cannot. */
    void (*watch)(ae_stream *stream, ae_watch_fn *watch, void *user);

    size_t (*kv_bytes)(const ae_backend *backend, const ae_kv_shape *shape);
    aerie_status (*kv_create)(ae_backend *backend, const ae_kv_shape *shape, ae_kv_store **out, aerie_error *error);
    void (*kv_free)(ae_backend *backend, ae_kv_store *kv);
    /* The first n places of page `from` to page `to`, all layers. */
    void (*kv_copy_page)(ae_stream *stream, ae_kv_store *kv, int32_t from, int32_t to, uint32_t n);
    void (*kv_commit)(ae_stream *stream, const ae_kv_commit_args *args);
    /* The K and V bytes of one slot of a (host) page table, all layers, to (host) out[kv_slot_bytes]: for tests and saved
     * sessions. */
    size_t (*kv_slot_bytes)(const ae_kv_store *kv);
    void (*kv_read)(ae_stream *stream, const ae_kv_store *kv, const int32_t *table, int32_t slot, void *out);
    /* The other way: what kv_read gave, from (host) bytes[kv_slot_bytes] into a slot. */
    void (*kv_write)(ae_stream *stream, ae_kv_store *kv, const int32_t *table, int32_t slot, const void *bytes);

    /* (host) to device and back; n bytes. The host array may change as soon as upload returns, and is there when download
     * returns: download waits for the operations before it. */
    void (*upload)(ae_stream *stream, void *device, const void *host, size_t n);
    void (*download)(ae_stream *stream, void *host, const void *device, size_t n);
    /* upload without a stream, from any thread, while a model is loaded. */
    void (*fill)(ae_backend *backend, void *device, const void *host, size_t n);
    /* (host) The n bytes at `device` for reading, after a sync and until an operation writes there: where they are, if
     * the host can read there, or downloaded into room[n]. With view_needs_room the second is the case, always; without it
     * room may be NULL. */
    const void *(*view)(ae_stream *stream, const void *device, void *room, size_t n);
    bool view_needs_room;

    /* Bytes of the device that are free and that it has; 0: unknown. */
    void (*memory_info)(const ae_backend *backend, uint64_t *n_free, uint64_t *n_total);

    /* A point between two operations; the seconds between two points, after a sync. A stream keeps the newest AE_MARKS. */
    uint32_t (*mark)(ae_stream *stream);
    double (*elapsed)(const ae_stream *stream, uint32_t from, uint32_t to);
    /* Around the operations of a pass, for devices that record and replay them. Passes of equal keys have the same operations
     * with the same arguments; what differs lies in device memory, uploaded before. false: the pass has been replayed, its
     * operations must not be called, nor pass_end. */
    bool (*pass_begin)(ae_stream *stream, uint64_t key);
    void (*pass_end)(ae_stream *stream);

    /* y[r * y_stride ..] = row tokens[r] of the table, as f32. tokens [n_rows] on the device. */
    void (*lookup)(ae_stream *stream, const ae_weight *table, const int32_t *tokens, uint32_t n_rows, float *y,
                   size_t y_stride);
    void (*matmul)(ae_stream *stream, const ae_matmul *args);
    void (*head_matmul)(ae_stream *stream, const ae_head_matmul *args);
    void (*norm)(ae_stream *stream, const ae_norm *args);
    void (*axpy)(ae_stream *stream, const ae_axpy *args);
    void (*map)(ae_stream *stream, const ae_map *args);
    void (*moe)(ae_stream *stream, const ae_moe *args);
    void (*rope_table)(ae_stream *stream, const ae_rope_table *args);
    void (*rope_kv)(ae_stream *stream, const ae_rope_kv *args);
    void (*attention)(ae_stream *stream, const ae_attention *args);
    void (*copy)(ae_stream *stream, const ae_copy *args);
    void (*walk)(ae_stream *stream, const ae_walk *args);
    void (*propose)(ae_stream *stream, const ae_propose *args);

    /* Recurrent state (state.h). */
    size_t (*state_bytes)(const ae_backend *backend, const ae_state_shape *shape);
    /* Zeroed planes. UNSUPPORTED for a shape beyond the limits of state.h. */
    aerie_status (*state_create)(ae_backend *backend, const ae_state_shape *shape, ae_state_store **out, aerie_error *error);
    void (*state_free)(ae_backend *backend, ae_state_store *store);
    void (*state_zero)(ae_stream *stream, ae_state_store *store, uint32_t plane);
    void (*state_copy)(ae_stream *stream, ae_state_store *store, uint32_t from, uint32_t to);
    /* The accepted records of each run go into its plane; the pass has no rows. */
    void (*state_absorb)(ae_stream *stream, const ae_state_pass *pass);
    /* A plane as canonical bytes, whatever the device's layout: per layer f32 rows [n_taps - 1][n_channels], oldest first, then
     * S [n_heads][key_dim][value_dim]; to (host) out[state_plane_bytes], at any address. And the other way. */
    size_t (*state_plane_bytes)(const ae_state_store *store);
    void (*state_read)(ae_stream *stream, const ae_state_store *store, uint32_t plane, void *out);
    void (*state_write)(ae_stream *stream, ae_state_store *store, uint32_t plane, const void *bytes);
    void (*conv)(ae_stream *stream, const ae_conv *args);
    void (*recur)(ae_stream *stream, const ae_recur *args);
    void (*gated_norm)(ae_stream *stream, const ae_gated_norm *args);
} ae_backend_ops;

struct ae_backend {
    const ae_backend_ops *ops;
};

/* ---- backend.c ------------------------------------------------------------------------------------ */

void ae_backend_close(ae_backend *backend);

/* For backends: keeps the first failure of a stream until its sync. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void ae_backend_note(aerie_error *fault, aerie_status status, const char *format, ...);

/* ---- What the CPU backends (both of them) say about themselves ------------------------------------ */

/* The level in use, for messages: "avx512". Static storage. */
const char *ae_backend_cpu_level(const ae_backend *backend);
/* Which kernels were chosen by measurement for the weights created so far, for messages: "Q4_1 from 12 rows, Q8_0 never"
 * go by matrix tiles; "" where the level leaves no choice. Lives as long as the backend. */
const char *ae_backend_cpu_choices(const ae_backend *backend);
/* For tests: weights created from now on go by tiles, where the level has them, from n_rows on (at least 1); 0: as measured. */
void ae_backend_cpu_tiles_from(ae_backend *backend, uint32_t n_rows);

#endif

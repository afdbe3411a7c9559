/* moe.h - arguments of the seam's operations: feed-forward blocks with experts, and how a row chooses its experts.
 *
 * Owns nothing. Included by backend.h. Arrays are in device memory.
 */
#ifndef AE_BACKEND_MOE_H
#define AE_BACKEND_MOE_H

#include "backend/product.h"
#include "base/shape_limits.h"

typedef enum ae_gate {
    AE_GATE_SOFTMAX,        /* p = softmax of all logits */
    AE_GATE_SIGMOID,        /* p = 1 / (1 + e^-logit) */
    AE_GATE_SOFTMAX_CHOSEN, /* p = softmax of only the chosen logits */
    AE_GATE_SQRT_SOFTPLUS,  /* p = sqrtf(ae_softplusf(logit)) */
    AE_GATE_SPARSE_MIXER,   /* p = the share of an expert among those near it that are not taken before it */
} ae_gate;

/* How a row chooses its experts and computes their weights, all in f32. The score of an expert is its logit, or p + bias if
 * there is a selection bias. The n_used experts with the highest scores are chosen; among equal scores the lower id wins; NaN
 * never beats a number.
 * With groups (equal ranges of ids) only the experts of n_groups_used groups can be chosen: the groups with the highest sum of
 * their two best scores p (+ bias); among equal sums the lower group wins.
 * The weight is p; `renorm` divides it by the sum of the chosen p (at least 2^-14); then it is multiplied by `scale`. Without
 * renorm and with n_full > n_used, the weights are divided by their sum and multiplied by the sum of the n_full best: fewer
 * experts get the same total weight.
 * softmax: m the largest logit, q = ae_expf(logit - m), p = q / sum of q.
 * sparse mixer: p_e = 1 / sum of ae_expf(logit_j - logit_e), ids ascending from 0.0f, over e and the experts j that do not come
 * before it by their logits and are near: not (logit_e - logit_j) / max(|logit_j|, logit_e) > 0.02f.
 * A sum over experts: 16 sums by id % 16, ids ascending, then ae_sum16. */
typedef struct ae_routing {
    uint32_t n_experts, n_used; /* n_used <= n_experts <= AE_MAX_EXPERTS; n_used 0: only the shared expert */
    ae_gate gate;
    bool renorm;
    float scale;
    uint32_t n_groups, n_groups_used; /* 0 or 1: no groups; else n_groups divides n_experts */
    uint32_t n_full; /* for drafts with fewer experts: how many experts the model itself uses; 0: n_used */
} ae_routing;

/* In a group, where each rank has some inner rows of every expert, the block runs in two parts with a gather between them. DOWN
 * uses the choice that UP made, so no other block with experts may run in between. */
typedef enum ae_moe_part {
    AE_MOE_WHOLE,
    AE_MOE_UP,   /* routes, and writes f(gate) * up to hidden and shared_hidden; down and y are not used */
    AE_MOE_DOWN, /* adds the products of down with hidden and shared_hidden; gate, up and their inputs are not used */
} ae_moe_part;

/* The feed-forward block with experts: y += sum of weight_e * down_e(f(gate_e(x')) * up_e(x')), where x' is x after the norm,
 * as in a matmul. Without gate: down_e(f(up_e(x'))). Order of the sum, per element: y = fmaf(weight_e, d_e, y), chosen experts
 * by ascending id, then the shared expert with its own weight. Rows are grouped by expert, so the weights of each chosen expert
 * are read once for any n_rows. */
typedef struct ae_moe {
    uint32_t n_rows;
    ae_routing routing;      /* n_used may be less than in ae_stream_options, for drafts with fewer experts */
    const float *x;          /* [n_rows][n_embd] f32; may be y */
    const float *norm;       /* [n_embd] f32 on the device; NULL: x' is x */
    float norm_eps;
    ae_glu glu, shared_glu;
    float glu_limit, shared_limit, up_limit; /* up_limit: of both */
    const ae_weight *router; /* [n_experts, n_embd] */
    const float *router_norm; /* [n_embd] f32 on the device: the router's input is x / rms(x) * router_norm; NULL: it is x' */
    float router_scale;      /* factor of the logits; 0: none */
    const float *latent;     /* [n_rows][n_in of up] f32: the experts' input instead of x'; then y is [n_rows][n_out of down]
                              * and there is no shared expert. Or NULL */
    const float *router_bias; /* [n_experts] f32 on the device, added to the logits; or NULL */
    const float *bias;       /* [n_experts] f32 on the device, added to p only when experts are chosen; or NULL */
    /* [tokens][n_full or n_used] f32 on the device: the experts of each token, all different, which its row uses regardless of
     * the scores (the first n_used of them); weights are computed as usual. Needs tokens [n_rows] on the device; both may be
     * NULL */
    const float *table;
    const int32_t *tokens;
    bool weigh_input;        /* the weight w multiplies the input: adds down_e(f(gate_e(w x')) * up_e(w x')) without another
                              * factor */
    ae_weight *const *gate, *const *up, *const *down; /* [n_experts] of [n_ff, n_embd] x 2, [n_embd, n_ff]; each array's
                                                       * weights have one type and shape; gate may be NULL */
    const float *gate_bias, *up_bias, *down_bias; /* [n_experts][n_ff] x 2, [n_experts][n_embd] on the device; or NULL */
    const float *out_scale;  /* [n_experts] f32 on the device, a last factor of an expert's weight; or NULL */
    ae_moe_part part;
    float *hidden, *shared_hidden; /* [n_rows][n_used][hidden_stride], [n_rows][shared_stride] f32: a row's experts by ascending
                                    * id. UP writes n_out of up in each; up[0] NULL: nothing. DOWN reads n_in of down */
    size_t hidden_stride, shared_stride;
    bool hidden_blocks, shared_blocks; /* for DOWN: these rows are blocks, as for AE_INPUT_BLOCKS. Where the backend
                                        * takes_blocks */
    const ae_weight *shared_gate, *shared_up, *shared_down; /* [n_ff_shared, ...] an expert that every row uses; or NULL */
    const ae_weight *shared_router; /* [1, n_embd] the shared expert's weight is the sigmoid of its output; NULL: it is 1 */
    /* above 1: expert e uses the weights of index e / n_each, which all n_each experts of a group share; a row that chose
     * several of a group uses them once for each. There are then no biases and no out_scale */
    uint32_t n_each;
    /* [n_rows][given_stride] the expert that each row uses, with a weight of 1: the id nearest to this number, of two equally
     * near ones the higher. Then n_used is 1, and there are no router, no latent and no shared expert; x has n_in of up floats
     * per row. Or NULL */
    const float *given;
    size_t given_stride;
    float *y;                /* [n_rows][n_embd] f32; with latent it may not be x */
} ae_moe;

/* The dimensions of the largest ae_moe of a stream; n_experts 0: none. */
typedef struct ae_moe_shape {
    uint32_t n_experts, n_used, n_embd, n_ff, n_ff_shared;
    bool weigh_input;
    uint32_t n_each; /* as in ae_moe, the largest */
    bool given;      /* experts are given (ae_moe.given); n_embd is then the widest input or output */
} ae_moe_shape;

#endif

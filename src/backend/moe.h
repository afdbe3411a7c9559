/* moe.h - the seam, arguments: feed-forward blocks with experts, and how a row chooses among them.
 *
 * Owns nothing. Included by backend.h. Arrays lie on the device.
 */
#ifndef AE_BACKEND_MOE_H
#define AE_BACKEND_MOE_H

#include "backend/product.h"
#include "base/shape_limits.h"

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

#endif

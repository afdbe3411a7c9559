/* args_moe.h - arguments of the kernels for experts (moe.cu). The products by experts are in args_product.h. */
#ifndef AE_BACKEND_GPU_KERNELS_ARGS_MOE_H
#define AE_BACKEND_GPU_KERNELS_ARGS_MOE_H

#include "backend/gpu/kernels/args_mma.h"
#include "backend/gpu/kernels/args_product.h"
#include "backend/moe.h"

/* A pair is a row and an expert that it chose: pair r * n_used + i is row r with its i-th expert, by ascending id. */

/* Grid: rows. One warp chooses the experts of a row. */
typedef struct ae_gpu_route_args {
    ae_routing routing;
    float *logits;            /* f32 [n_rows][n_experts]; multiplied by router_scale in place */
    float router_scale;       /* 0: none */
    uint32_t n_each;          /* above 1: n_each experts share their weights, and ids are replaced by the numbers of these
                               * weights */
    const float *bias;        /* f32 [n_experts] or NULL */
    const float *out_scale;   /* f32 [n_experts] or NULL */
    const float *table;       /* f32 [tokens][table_stride] or NULL: the experts of each token */
    const int32_t *tokens;    /* [n_rows], with table */
    const float *given;       /* f32 [n_rows][given_stride] or NULL: the expert of each row; then nothing else decides */
    uint64_t given_stride;
    uint32_t *ids;            /* [n_rows][n_used], ascending */
    float *weights;           /* f32 [n_rows][n_used] */
    uint32_t *slots;          /* if there is a single row: gets what the kernel `group` would write; else NULL */
    ae_gpu_active *active;
    uint32_t *n_active;
    uint32_t table_stride;
} ae_gpu_route_args;

#define AE_GPU_ROUTE_THREADS 32
/* Shared: f32 p [n], score [n], group sums [n]; lists uint32 [n]; chosen uint8 [n]; n is AE_MAX_EXPERTS. */
#define AE_GPU_ROUTE_SHARED (AE_MAX_EXPERTS * 17)

/* Grid: one block. Gives each pair a slot among the experts' rows: the rows of an expert are contiguous and padded to whole
 * tiles. */
typedef struct ae_gpu_group_args {
    const uint32_t *ids;      /* [n_pairs] */
    uint32_t n_pairs, n_experts;
    uint32_t *slots;          /* [n_pairs] */
    ae_gpu_active *active;    /* [n_active] in ascending order of experts */
    uint32_t *n_active;
} ae_gpu_group_args;

#define AE_GPU_GROUP_THREADS 256
#define AE_GPU_GROUP_EACH (AE_MAX_EXPERTS / AE_GPU_GROUP_THREADS) /* experts of a thread */
#define AE_GPU_GROUP_CHUNK 1024 /* pairs that are in shared memory at a time */
#define AE_GPU_GROUP_SHARED (AE_GPU_GROUP_CHUNK * 4 + 64)

/* Grid: rows, pieces of AE_GPU_COMBINE_THREADS columns. y = fmaf(weight, down of the pair, y) for a row's pairs in order, then
 * the shared expert. */
typedef struct ae_gpu_combine_args {
    const float *down;        /* f32 [slots][dim] */
    const uint32_t *slots;    /* [n_rows][n_used] */
    const float *weights;     /* f32 [n_rows][n_used]; NULL: 1 */
    const float *shared;      /* f32 [n_rows][dim] output of the shared expert, or NULL */
    const float *shared_gate; /* f32 [n_rows]: the shared expert's weight is the sigmoid of this; NULL: the weight is 1 */
    float *y;                 /* f32 [n_rows][dim] */
    uint32_t n_used, dim;
} ae_gpu_combine_args;

#define AE_GPU_COMBINE_THREADS 256

/* Products of experts by mma: for all of AE_MMA_TYPES. */
#define AE_GPU_EXPERTS_MMA(X, name) \
    X(experts_mma_##name##_1, ae_gpu_expert_args, AE_MMA_THREADS) \
    X(experts_mma_##name##_4, ae_gpu_expert_args, AE_MMA_THREADS)

#define AE_GPU_KERNELS_MOE(X) \
    AE_GPU_EXPERTS_MMA(X, q4_0) \
    AE_GPU_EXPERTS_MMA(X, q4_1) \
    AE_GPU_EXPERTS_MMA(X, q5_0) \
    AE_GPU_EXPERTS_MMA(X, q5_1) \
    AE_GPU_EXPERTS_MMA(X, q8_0) \
    AE_GPU_EXPERTS_MMA(X, iq4_nl) \
    AE_GPU_EXPERTS_MMA(X, mxfp4) \
    AE_GPU_EXPERTS_MMA(X, q4_k) \
    AE_GPU_EXPERTS_MMA(X, q5_k) \
    AE_GPU_EXPERTS_MMA(X, q6_k) \
    AE_GPU_EXPERTS_MMA(X, iq4_xs) \
    X(route, ae_gpu_route_args, AE_GPU_ROUTE_THREADS) \
    X(group, ae_gpu_group_args, AE_GPU_GROUP_THREADS) \
    X(combine, ae_gpu_combine_args, AE_GPU_COMBINE_THREADS)

#endif

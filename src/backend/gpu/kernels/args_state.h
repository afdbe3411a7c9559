/* args_state.h - arguments of the kernels for recurrent layers (recurrent.cu, recur_steps.cu). */
#ifndef AE_BACKEND_GPU_KERNELS_ARGS_STATE_H
#define AE_BACKEND_GPU_KERNELS_ARGS_STATE_H

#include <stdint.h>

#include "backend/recurrent.h"

/* One kernel for each number of values of a column that a lane can hold. */
#define AE_GPU_KERNELS_STEPS(X, name) \
    X(name##_16, ae_gpu_recur_args, 32) \
    X(name##_32, ae_gpu_recur_args, 32) \
    X(name##_64, ae_gpu_recur_args, 32)

#define AE_GPU_KERNELS_STATE(X) \
    X(conv_runs, ae_gpu_conv_args, 128) \
    X(conv_rows, ae_gpu_conv_args, 128) \
    X(conv_move, ae_gpu_conv_args, 128) \
    X(recur_prepare, ae_gpu_recur_args, 128) \
    AE_GPU_KERNELS_STEPS(X, recur_steps) \
    AE_GPU_KERNELS_STEPS(X, keyed_steps) \
    AE_GPU_KERNELS_STEPS(X, wkv7_steps) \
    AE_GPU_KERNELS_STEPS(X, scan_steps) \
    X(recur_records, ae_gpu_recur_args, 128) \
    X(gated_norm_groups, ae_gpu_gated_norm_args, 128) \
    X(gated_norm_rows, ae_gpu_gated_norm_args, 256)

#define AE_GPU_STATE_BLOCK 128u  /* channels of a block of the convolution */
#define AE_GPU_STATE_COLUMNS 8u  /* columns of S that a block of recur_steps handles, each by four lanes */

/* How a row changes the state: for DELTA and MAMBA2; for KDA and WKV6; for WKV7; for MAMBA1. */
typedef enum ae_gpu_steps {
    AE_GPU_STEPS_RECUR,
    AE_GPU_STEPS_KEYED,
    AE_GPU_STEPS_WKV7,
    AE_GPU_STEPS_SCAN,
} ae_gpu_steps;

/* The vectors over keys that all columns of a head share in a row: k, q; with KEYED alpha; with WKV7 written and erased. */
#define AE_GPU_STATE_VECTORS(steps) ((steps) == AE_GPU_STEPS_WKV7 ? 5u : (steps) == AE_GPU_STEPS_KEYED ? 3u : 2u)

/* Floats of shared memory of <steps>_N, N being the values of a column that a lane holds: the vectors and the buffers of the
 * tree's states. */
#define AE_GPU_STATE_KEYS(n) (4 * ((n) + 4))
#define AE_GPU_STATE_SHARED(steps, n) \
    ((AE_GPU_STATE_VECTORS(steps) * AE_GPU_STATE_KEYS(n) + AE_STATE_BUFFERS * (n) * 32) * (uint32_t)sizeof(float))

/* One layer of a store. A plane has its layers in the order in which they are saved: rows [n_taps - 1][n_channels], oldest
 * first, then S [n_heads][key_dim][value_dim]. A record of a layer: channels [n_channels] | k [n_groups][key_dim] | d
 * [n_heads][value_dim], which for WKV is v | alpha [n_alphas] | and for WKV7 written [n_alphas] | e [n_heads][value_dim]. */
typedef struct ae_gpu_state_view {
    float *plane;    /* the layer in plane 0 */
    float *record;   /* the layer's place in record 0 of sequence 0 */
    uint64_t plane_floats, record_floats; /* floats from one plane to the next, and from one record to the next */
    uint32_t n_records;                   /* of a sequence */
    uint32_t n_channels, n_taps, n_heads, n_groups, key_dim, value_dim;
    uint32_t kind, tiled;                 /* ae_state_kind; see ae_state_layer */
    uint32_t n_alphas; /* decays of a row: one per head; with KDA and WKV one per key; with MAMBA1 delta, one per column */
} ae_gpu_state_view;

/* ae_state_pass */
typedef struct ae_gpu_state_rows {
    const int32_t *parent;        /* [n_rows] */
    const ae_state_run *runs;     /* [n_runs] */
    const ae_state_visit *visits; /* [n_runs][stride] */
    const uint8_t *accepted;      /* [n_runs][stride] */
    uint32_t n_rows, n_runs, stride;
} ae_gpu_state_rows;

typedef struct ae_gpu_conv_args {
    ae_gpu_state_view view;
    ae_gpu_state_rows rows;
    float *x;            /* [n_rows][x_stride]; NULL: records are only absorbed */
    const float *x2;     /* [n_rows][x_stride] or NULL */
    const float *weight; /* [n_channels][n_taps], or NULL: 1 and -1 */
    const float *weight_2, *weight_3; /* weights for the second and the last third of the channels; NULL: `weight` has them */
    const float *bias;   /* [n_channels] or NULL */
    const float *gate;   /* [n_rows][x_stride] or NULL */
    float *y;            /* [n_rows][y_stride] */
    uint32_t x_stride, y_stride, silu;
    uint32_t first, n;   /* channels [first, first + n) of the layer are those of x */
} ae_gpu_conv_args;

typedef struct ae_gpu_recur_args {
    ae_gpu_state_view view;
    ae_gpu_state_rows rows;
    float *c;             /* [n_rows][c_stride]; NULL: records are only absorbed */
    const float *a, *b;   /* [n_rows][ab_stride] */
    const float *decay, *dt_bias, *skip; /* as in ae_recur; with MAMBA1 decay belongs to the layer, [value_dim][key_dim] */
    float *alpha;         /* [n_rows][n_alphas] scratch; not used by MAMBA1 */
    float *beta;          /* [n_rows][n_heads] scratch: delta of MAMBA2, the bonus of WKV6; with WKV7 [n_rows][n_alphas], what
                           * is written */
    float *y;             /* [n_rows][y_stride] */
    float *k, *v;         /* WKV: [n_rows][c_stride] x 2 */
    const float *first, *k_k, *k_a; /* WKV: [n_heads][key_dim] x 3; WKV6: only the first, or NULL */
    float *bonus;         /* WKV7: [n_rows][n_heads] */
    const float *keys;    /* MAMBA1: [n_rows][keys_stride] */
    float *erased;        /* WKV7: [n_rows][n_alphas] scratch */
    uint32_t c_stride, ab_stride, ab_group, y_stride, keys_stride;
    float bound;          /* KDA */
} ae_gpu_recur_args;

typedef struct ae_gpu_gated_norm_args {
    float *x;             /* [n_rows][x_stride] */
    const float *z;       /* [n_rows][z_stride] or NULL */
    const float *weight;  /* [dim], [n_groups][dim] or NULL */
    const float *bias;    /* as weight, or NULL */
    const float *bonus;   /* [n_rows][n_groups] or NULL */
    const float *v;       /* [n_rows][x_stride], with bonus */
    uint32_t n_rows, n_groups, dim, x_stride, z_stride, by_group, gate_first, layer;
    uint32_t gate;        /* ae_gpu_norm_gate */
    float eps;
} ae_gpu_gated_norm_args;

/* The function of z by which rows are multiplied. */
typedef enum ae_gpu_norm_gate {
    AE_GPU_GATE_SILU,
    AE_GPU_GATE_SIGMOID,
    AE_GPU_GATE_ITSELF,
} ae_gpu_norm_gate;

#endif

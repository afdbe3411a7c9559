/* args_state.h - arguments of the kernels for recurrent layers (recurrent.cu). */
#ifndef AE_BACKEND_GPU_KERNELS_ARGS_STATE_H
#define AE_BACKEND_GPU_KERNELS_ARGS_STATE_H

#include <stdint.h>

#include "backend/recurrent.h"

#define AE_GPU_KERNELS_STATE(X) \
    X(conv_runs, ae_gpu_conv_args, 128) \
    X(conv_rows, ae_gpu_conv_args, 128) \
    X(conv_move, ae_gpu_conv_args, 128) \
    X(recur_prepare, ae_gpu_recur_args, 128) \
    X(recur_steps_16, ae_gpu_recur_args, 32) \
    X(recur_steps_32, ae_gpu_recur_args, 32) \
    X(recur_steps_64, ae_gpu_recur_args, 32) \
    X(recur_records, ae_gpu_recur_args, 128) \
    X(gated_norm_groups, ae_gpu_gated_norm_args, 128) \
    X(gated_norm_rows, ae_gpu_gated_norm_args, 256)

#define AE_GPU_STATE_BLOCK 128u  /* channels of a block of the convolution */
#define AE_GPU_STATE_COLUMNS 8u  /* of S that a block of recur_steps handles, each by four lanes */

/* Shared memory of recur_steps_N, N the values of a column that a lane holds: k, q and the buffers of the tree's states. */
#define AE_GPU_STATE_KEYS(n) (4 * ((n) + 4))
#define AE_GPU_STATE_SHARED(n) ((2 * AE_GPU_STATE_KEYS(n) + AE_STATE_BUFFERS * (n) * 32) * (uint32_t)sizeof(float))

/* One layer of a store. A plane has its layers one after another as they are saved: rows [n_taps - 1][n_channels], oldest
 * first, then S [n_heads][key_dim][value_dim]. A record of a layer: channels [n_channels] | k [n_groups][key_dim] |
 * d [n_heads][value_dim] | alpha [n_heads]. */
typedef struct ae_gpu_state_view {
    float *plane;    /* the layer in plane 0 */
    float *record;   /* the layer in record 0 of sequence 0 */
    uint64_t plane_floats, record_floats; /* from plane to plane, from record to record */
    uint32_t n_records;                   /* of a sequence */
    uint32_t n_channels, n_taps, n_heads, n_groups, key_dim, value_dim;
    uint32_t delta, tiled;                /* AE_STATE_DELTA; see ae_state_layer */
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
    float *x;            /* [n_rows][x_stride] or NULL: records are absorbed alone */
    const float *x2;     /* [n_rows][x_stride] or NULL */
    const float *weight; /* [n_channels][n_taps] */
    const float *bias;   /* [n_channels] or NULL */
    const float *gate;   /* [n_rows][x_stride] or NULL */
    float *y;            /* [n_rows][y_stride] */
    uint32_t x_stride, y_stride, silu;
} ae_gpu_conv_args;

typedef struct ae_gpu_recur_args {
    ae_gpu_state_view view;
    ae_gpu_state_rows rows;
    float *c;             /* [n_rows][c_stride] or NULL: records are absorbed alone */
    const float *a, *b;   /* [n_rows][ab_stride] */
    const float *decay, *dt_bias, *skip; /* [n_heads]; the last two may be NULL */
    float *alpha, *beta;  /* [n_rows][n_heads] scratch; MAMBA2: beta is delta */
    float *y;             /* [n_rows][y_stride] */
    uint32_t c_stride, ab_stride, ab_group, y_stride;
} ae_gpu_recur_args;

typedef struct ae_gpu_gated_norm_args {
    float *x;             /* [n_rows][x_stride] */
    const float *z;       /* [n_rows][z_stride] */
    const float *weight;  /* [dim], [n_groups][dim] or NULL */
    uint32_t n_rows, n_groups, dim, x_stride, z_stride, by_group, gate_first;
    float eps;
} ae_gpu_gated_norm_args;

#endif

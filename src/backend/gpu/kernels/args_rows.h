/* args_rows.h - arguments of the kernels for norms, maps, copies (rows.cu), rotation (rope.cu) and the KV cache (kv.cu). */
#ifndef AE_BACKEND_GPU_KERNELS_ARGS_ROWS_H
#define AE_BACKEND_GPU_KERNELS_ARGS_ROWS_H

#include <stdint.h>

#include "backend/gpu/kernels/kv_layout.h"

#define AE_GPU_KERNELS_ROWS(X) \
    X(norm_groups, ae_gpu_norm_args, 128) \
    X(norm_rows, ae_gpu_norm_args, 256) \
    X(axpy_rows, ae_gpu_axpy_args, 256) \
    X(map_rows, ae_gpu_map_args, 256) \
    X(map_whole_rows, ae_gpu_map_args, 256) \
    X(mix_rows, ae_gpu_mix_args, 256) \
    X(copy_rows, ae_gpu_copy_args, 256) \
    X(copy_host_rows, ae_gpu_copy_host_args, 256) \
    X(rope_angles, ae_gpu_rope_table_args, 128) \
    X(rope_heads, ae_gpu_rope_kv_args, 128) \
    X(rope_heads_64, ae_gpu_rope_kv_args, 128) \
    X(rope_heads_128, ae_gpu_rope_kv_args, 128) \
    X(rope_heads_256, ae_gpu_rope_kv_args, 128) \
    X(hyper_rows, ae_gpu_hyper_args, 32) \
    X(rotate_heads, ae_gpu_rotate_args, 128) \
    X(keep_rows, ae_gpu_compress_args, 128) \
    X(compress_rows, ae_gpu_compress_args, 128) \
    X(trail_rows, ae_gpu_compress_args, 128) \
    X(keep_tokens, ae_gpu_ngrams_args, 128) \
    X(hash_tokens, ae_gpu_ngrams_args, AE_MAX_NGRAM_HEADS) \
    X(accord_parts, ae_gpu_accord_args, 32) \
    X(kv_page, ae_gpu_kv_page_args, 256) \
    X(kv_moves, ae_gpu_kv_moves_args, 64) \
    X(kv_save, ae_gpu_kv_slot_args, 128) \
    X(kv_restore, ae_gpu_kv_slot_args, 128)

/* ---- Rows ------------------------------------------------------------------------------------------- */

#define AE_GPU_NORM_GROUPS 4    /* groups that a block of norm_groups handles, a warp each; a block of norm_rows handles one */
#define AE_GPU_NORM_WARP 512u   /* the largest group that a warp norms */
#define AE_GPU_NORM_SHARED ((4096 + 64) * (uint32_t)sizeof(float)) /* AE_SUM_SHARED of sums.h */
#define AE_GPU_SOFTMAX_DIM 4096u /* most values of a row of AE_MAP_SOFTMAX */
#define AE_GPU_MAP_BLOCK 1024u  /* elements of a row that a block of axpy_rows, map_rows and mix_rows handles */

/* x = (x - mean) / sqrt(mean of squares + eps) * weight (+ bias); mean is 0 unless layer. */
typedef struct ae_gpu_norm_args {
    float *x;            /* [n_rows][x_stride], of which n_groups * dim are used */
    const float *weight; /* [dim], or [n_groups][dim] */
    const float *bias;   /* [dim] or NULL */
    uint32_t x_stride, n_rows, n_groups, dim, each_group, layer;
    float eps;
} ae_gpu_norm_args;

typedef struct ae_gpu_axpy_args {
    const float *x;      /* [n][x_stride] */
    float *y;            /* [n][y_stride] */
    uint32_t x_stride, y_stride, dim;
    float a;
} ae_gpu_axpy_args;

typedef struct ae_gpu_map_args {
    float *x;            /* [n_rows][x_stride] */
    const float *x2, *x3; /* [n_rows][x2_stride] or NULL */
    const float *weight; /* [dim] or NULL */
    uint32_t x_stride, x2_stride, dim;
    uint32_t kind, glu;  /* ae_map_kind, ae_glu */
    uint32_t group;      /* AE_MAP_GATE: elements of a group; AE_MAP_LERP, _BY: of a part of x; else 1 */
    float a, b, c, d, limit;
    float up_limit;      /* of AE_GLU_SITU */
} ae_gpu_map_args;

/* ae_row_mix */
typedef struct ae_gpu_mix_args {
    const float *x, *start; /* start may be NULL */
    const float *coef;
    float *y;
    uint64_t x_stride, x_step, start_stride, start_step, coef_stride, y_stride, y_step;
    uint32_t dim, n_in, n_out, out_step, in_step;
} ae_gpu_mix_args;

/* y[i] = x[rows[i]]. The unit of dim and of the strides is one f32, or four if wide. */
typedef struct ae_gpu_copy_args {
    const float *x;
    float *y;
    const int32_t *rows; /* [n] or NULL; not read by copy_host_rows */
    const int32_t *to;   /* [n] or NULL */
    uint32_t x_stride, y_stride, n, dim, wide;
} ae_gpu_copy_args;

#define AE_GPU_COPY_ROWS 900u

typedef struct ae_gpu_copy_host_args {
    ae_gpu_copy_args copy;           /* n <= AE_GPU_COPY_ROWS */
    int32_t rows[AE_GPU_COPY_ROWS];
} ae_gpu_copy_host_args;

/* ---- Rotation ----------------------------------------------------------------------------------------- */

#define AE_GPU_ROPE_HEADS 4u /* heads that a block of rope_heads and rope_heads_N handles, a warp each */

typedef struct ae_gpu_rope_table_args {
    const int32_t *pos;  /* [n_rows] */
    const double *freq;  /* [half] */
    double magnitude;
    float *cos, *sin;    /* [n_rows][half] */
    uint32_t n_rows, half;
    uint32_t every;      /* at least 1 */
} ae_gpu_rope_table_args;

/* See ae_rope_kv. Its norm_row is left out, since norm_rows applies it. */
typedef struct ae_gpu_rope_kv_args {
    const int32_t *seq, *slot;     /* [n_rows] */
    const int32_t *tables;         /* [n_seqs][table_stride] */
    const uint32_t *n_actual;      /* or NULL */
    float *q, *k, *v;              /* [n_rows][n_heads * head_dim], [n_rows][n_kv_heads * head_dim] x 2; k, v or NULL */
    const float *cos, *sin;        /* [n_rows][n_rot / 2] */
    const float *q_norm, *k_norm;  /* [head_dim], or [n_heads][head_dim], [n_kv_heads][head_dim] if norm_layer; or NULL */
    const float *v_norm, *q_scale; /* [head_dim], [n_rows]; or NULL */
    ae_gpu_kv_view kv;
    uint32_t table_stride, n_heads, n_kv_heads, head_dim, n_rot, neox, norm_layer, norm_last;
    uint32_t store;                /* keys and values are written to the pages */
    float eps;
    uint32_t row_floats;           /* floats of shared memory for a row, and for a part of a latent row; multiples of 16 */
    uint32_t part_floats;
} ae_gpu_rope_kv_args;

/* ---- Streams and compressed rows (compress.cu) --------------------------------------------------------- */

/* See ae_hyper. Grid: rows. */
typedef struct ae_gpu_hyper_args {
    float *x;                  /* [n_rows][x_stride] */
    const float *scale, *base;
    uint64_t x_stride;
    uint32_t n, n_iterations;
    float eps, magnitude;
} ae_gpu_hyper_args;

#define AE_GPU_HYPER_SHARED (AE_MAX_STREAMS * (2 + AE_MAX_STREAMS) * (uint32_t)sizeof(float))

/* See ae_rotate. Grid: rows, ranges of 128 pairs of a row. */
typedef struct ae_gpu_rotate_args {
    float *x;               /* [n_rows][n_heads * head_dim] */
    const float *cos, *sin; /* [n_rows][n_rot / 2] */
    uint32_t n_heads, head_dim, first, n_rot, neox, back;
} ae_gpu_rotate_args;

/* See ae_compress, and ae_trail, whose weights are ape. */
typedef struct ae_gpu_compress_args {
    ae_gpu_kv_view kv;         /* of a plain layer */
    const int32_t *seq, *pos, *slot, *n_inplace; /* [n_rows] */
    const int32_t *path;       /* [n_rows][path_stride] */
    const int32_t *tables;     /* [n_seqs][table_stride] */
    const uint32_t *n_actual;  /* or NULL */
    const float *x;            /* [n_rows][n_heads][dim] */
    const float *ape;          /* [every][n_parts][dim] or NULL */
    float *y;                  /* [n_rows][dim]; for ae_trail [n_rows][n_heads][dim] */
    uint32_t path_stride, table_stride, dim, n_parts, every;
    uint32_t n_heads;          /* that a row keeps */
    uint32_t n_rows, n_taps, step;
} ae_gpu_compress_args;

/* See ae_ngrams. keep_tokens: one thread per row; hash_tokens: one block per row, one thread per hash. */
typedef struct ae_gpu_ngrams_args {
    ae_gpu_compress_args at;   /* where tokens are kept */
    const int32_t *tokens;     /* [n_rows] */
    int32_t *y;                /* [n_rows][(n_tokens - 1) * n_each] */
    int32_t end;
    uint32_t n_tokens, n_each, unused;
    uint64_t factors[AE_MAX_NGRAM], sizes[AE_MAX_NGRAM_HEADS], offsets[AE_MAX_NGRAM_HEADS];
} ae_gpu_ngrams_args;

/* See ae_accord. Grid: rows, parts. */
typedef struct ae_gpu_accord_args {
    const float *x, *x2;
    float *y;
    uint64_t y_stride;
    uint32_t n_parts, dim;
    float scale;
} ae_gpu_accord_args;

/* ---- The KV cache ------------------------------------------------------------------------------------- */

/* A head of a layer. */
typedef struct ae_gpu_kv_head {
    ae_gpu_kv_form form;
    uint32_t row_bytes; /* as they are saved */
    uint64_t at;        /* where the head's block is, in bytes from the start of a page */
    uint64_t saved_at;  /* where the head's row is among the bytes of a slot */
} ae_gpu_kv_head;

/* Copies a page. */
typedef struct ae_gpu_kv_page_args {
    const uint8_t *from;
    uint8_t *to;
    uint64_t bytes;
} ae_gpu_kv_page_args;

typedef struct ae_gpu_kv_moves_args {
    uint8_t *pages;              /* [n_pages][page_bytes] */
    const ae_gpu_kv_head *heads; /* [blocks] */
    const int32_t *begin;        /* [n_runs + 1] */
    const ae_kv_move *move;
    uint64_t page_bytes;
    uint32_t n_places;           /* of the store */
} ae_gpu_kv_moves_args;

/* Copies the bytes of a slot from a page, or to it. */
typedef struct ae_gpu_kv_slot_args {
    uint8_t *page;
    const ae_gpu_kv_head *heads; /* [blocks] */
    uint8_t *bytes;              /* [slot_bytes] */
    uint32_t place;
} ae_gpu_kv_slot_args;

#endif

/* args_product.h - arguments of the kernels for matrix products, activations and lookups (activation.cu, product*.cu,
 * lookup.cu), and the device layout of what they share: prepared rows and generic weights. */
#ifndef AE_BACKEND_GPU_KERNELS_ARGS_PRODUCT_H
#define AE_BACKEND_GPU_KERNELS_ARGS_PRODUCT_H

#include <stddef.h>
#include <stdint.h>

#include "backend/gpu/kernels/mma_rows.h"

/* ---- Prepared rows ------------------------------------------------------------------------------ */

#define AE_GPU_TILE AE_MMA_ROWS /* rows of a tile */

/* The input of a product in the form that weights need (cpu/ref/kernels.h defines the values). Codes and scales are in the
 * records of mma_rows.h, which the generic kernels read too. Unused rows are undefined. */
typedef struct ae_gpu_rows {
    uint32_t n_rows, n_in;
    uint32_t x_stride;    /* floats from row to row; a multiple of 4 */
    float *x;             /* AE_DOT_FLOAT: f32 [n_rows][x_stride], 16-byte aligned */
    uint8_t *r32;         /* AE_DOT_32: records, [n_tiles][AE_MMA_GROUP_BYTES(n_in)] */
    uint8_t *r256;        /* AE_DOT_256: records, [n_tiles][AE_MMA_GROUP_BYTES_256(n_in)] */
    int16_t *b16;         /* AE_GPU_FORM_256_MIN: int16 [n_tiles][n_in / 256][8 rows][16], sums of 16 codes */
} ae_gpu_rows;

/* WANT_16 only together with WANT_256 */
enum { AE_GPU_WANT_X = 1, AE_GPU_WANT_32 = 2, AE_GPU_WANT_256 = 4, AE_GPU_WANT_16 = 8 };

#define AE_GPU_ACTIVATION_THREADS 256
#define AE_GPU_ACTIVATION_STAGED 12288 /* most columns of a norm that keeps its row in shared memory */

/* Grid: rows, pieces of a row, heads. A piece has `columns` columns, a multiple of 256. Shared memory:
 * AE_GPU_ACTIVATION_SHARED. */
typedef struct ae_gpu_activation_args {
    ae_gpu_rows out;
    uint32_t want;           /* AE_GPU_WANT_..., or-ed */
    uint32_t input, glu;     /* ae_input, ae_glu */
    uint32_t columns;
    uint32_t staged;         /* 1: the norm keeps its row in shared memory */
    uint32_t head_rows;      /* rows of `out` between heads */
    float norm_eps, glu_limit;
    const float *x, *x2;     /* f32 [n_rows][x_stride]; x2 may be NULL */
    size_t x_stride, x_step; /* x_step: floats between heads */
    const float *norm, *norm_bias; /* f32 [n_in]; norm_bias may be NULL */
    const uint32_t *slots;   /* [n_rows] the prepared row that each row's result goes to; NULL: the row of the same number */
    uint32_t shares;         /* with slots: this many consecutive rows share one row of x; 0: the slot is the row of x */
    float up_limit;          /* of AE_GLU_SITU */
    const float *factor;     /* f32 [n_rows] a factor of each row of plain x; or NULL */
} ae_gpu_activation_args;

#define AE_GPU_ACTIVATION_SHARED(n_staged) (320u + 4u * (n_staged))

/* ---- Generic weights ---------------------------------------------------------------------------- */

/* Which form a weight has on the device, and so which kernel multiplies. Planes follow each other, in this order; n16 is n_out
 * rounded up to 16. The codes of each 32 are int8 and have their eight words of
 * four in the order 0 4 1 5 2 6 3 7, as records have. A driver with narrow_codes (driver.h) has the codes of some types
 * (is_narrow_type in weight_generic.c) in 4 bits: n_in / 2 bytes a row, word i of each four with word i of the 32 codes in the
 * low nibbles and word i + 4 in the high ones.
 *   _32       codes [n16][n_in], d f32 [n16][n_in / 32]
 *   _32_MIN   the same, then m f32 [n16][n_in / 32]
 *   _32_TWO   codes [n16][n_in], d f32 [n16][n_in / 32][2]: a scale for each 16
 *   _256      codes [n16][n_in], d f32 [n16][n_in / 256], sub int8 [n16][n_in / 16]
 *   _256_MIN  the same, then dmin f32 [n16][n_in / 256], submin int8 [n16][n_in / 16]
 *   _F32, _F16, _BF16  [n16][stride] of the type, stride n_in rounded up to 16
 *   _MMA      the layout of weight_mma.h
 *   _FILE     tables only, of the types of ae_gpu_file_form: the rows as they are in a file, one after the other */
typedef enum ae_gpu_form {
    AE_GPU_FORM_NONE,
    AE_GPU_FORM_32,
    AE_GPU_FORM_32_MIN,
    AE_GPU_FORM_32_TWO,
    AE_GPU_FORM_256,
    AE_GPU_FORM_256_MIN,
    AE_GPU_FORM_F32,
    AE_GPU_FORM_F16,
    AE_GPU_FORM_BF16,
    AE_GPU_FORM_MMA,
    AE_GPU_FORM_FILE,
} ae_gpu_form;

/* A product by one weight: acc = acc * scale (has_scale), + bias (unless NULL), then y = acc or y += acc (add). */
typedef struct ae_gpu_job {
    const uint8_t *weight;
    const float *bias;             /* f32 [n_out] or NULL */
    float *y;                      /* f32 [n_rows][y_stride]; y points to the output of prepared row first_row */
    size_t y_stride;
    uint32_t type, n_out;          /* type: ae_type */
    uint32_t first_row, n_rows;    /* the job's rows among the prepared ones; first_row is a multiple of AE_GPU_TILE */
    uint32_t add, has_scale;
    float scale;
    uint32_t first_block;          /* set at launch: the job's first block in the grid */
} ae_gpu_job;

#define AE_GPU_JOBS 4   /* of a launch */
#define AE_GPU_HEADS 64 /* of a launch */

/* Grid: blocks of outputs of all jobs, groups of rows, heads. With heads there is one job: head h uses weight heads[h] and
 * its scale, the rows from first_row + h * head_rows on, and y + h * y_step. */
typedef struct ae_gpu_product_args {
    ae_gpu_rows rows;
    uint32_t n_jobs, n_heads, head_rows;
    size_t y_step;
    ae_gpu_job job[AE_GPU_JOBS];
    const uint8_t *heads[AE_GPU_HEADS];
    float head_scale[AE_GPU_HEADS]; /* 1 if a head's weight has no scale */
} ae_gpu_product_args;

/* ---- Products of experts ------------------------------------------------------------------------ */

#define AE_GPU_EXPERTS 220 /* experts of a launch: as many as 4,000 bytes of arguments hold */

/* An expert that some rows have chosen, and where those rows are among the prepared ones. */
typedef struct ae_gpu_active {
    uint32_t expert, first_row, n_rows; /* first_row is a multiple of AE_GPU_TILE */
} ae_gpu_active;

/* y[row] = W_e x[row] (* scale_e) (+ bias_e) for each prepared row of each active expert e. */
typedef struct ae_gpu_expert_job {
    const uint8_t *base;             /* the weight of expert first_expert + i is 64 * offset[i] bytes from here */
    const float *bias;               /* f32 [n_experts][n_out] or NULL */
    float *y;                        /* f32 [rows][n_out] */
    uint32_t n_out, first_block;     /* first_block: set at launch */
    uint32_t end;                    /* AE_GPU_FORM_MMA: granules of this job and of all jobs before it, set at launch */
    uint32_t offset[AE_GPU_EXPERTS];
    float scale[AE_GPU_EXPERTS];     /* scale of each expert; 1 if the file gives it none */
} ae_gpu_expert_job;

/* Grid: blocks of outputs of all jobs, groups of rows, active experts. Other launches handle experts outside first_expert to
 * first_expert + AE_GPU_EXPERTS - 1. */
typedef struct ae_gpu_expert_args {
    ae_gpu_rows rows;
    const ae_gpu_active *active;     /* [n_active] on the device */
    const uint32_t *n_active;        /* on the device */
    uint32_t first_expert, n_jobs;
    uint32_t one_row;                /* 1: all experts read row 0, but write to their own rows */
    uint32_t n_records, group_bytes; /* AE_GPU_FORM_MMA: as in ae_mma_args */
    uint32_t type;                   /* ae_type */
    ae_gpu_expert_job job[2];
} ae_gpu_expert_args;

#define AE_GPU_PRODUCT_THREADS 128
#define AE_GPU_PRODUCT_OUT 16       /* outputs of a block, for integer weights */
#define AE_GPU_PRODUCT_ROWS 32      /* rows of a block, for integer weights */

/* Shapes of a block for float weights: PLAIN, WIDE for many rows, NARROW for few rows and few outputs. */
#define AE_GPU_PLAIN 0
#define AE_GPU_WIDE 1
#define AE_GPU_NARROW 2
#define AE_GPU_WIDE_TIMES 4 /* outputs of a lane */
#define AE_GPU_FLOAT_ROWS 8
#define AE_GPU_FLOAT_THREADS(shape) ((shape) == AE_GPU_NARROW ? 32 : 128)
#define AE_GPU_FLOAT_OUT(shape) ((shape) == AE_GPU_NARROW ? 8 : (shape) == AE_GPU_WIDE ? 32 * AE_GPU_WIDE_TIMES : 32)
#define AE_GPU_FLOAT_STAGE(shape) ((shape) == AE_GPU_NARROW ? 1024 : 256) /* bytes of each row of weights in a stage */
#define AE_GPU_FLOAT_STAGES(shape) ((shape) == AE_GPU_WIDE ? 3 : 4)
#define AE_GPU_FLOAT_PITCH(shape, size) (AE_GPU_FLOAT_STAGE(shape) + ((size) > 2 ? 64u : 32u)) /* of rows in a stage */
#define AE_GPU_FLOAT_SHARED(shape, size) \
    (AE_GPU_FLOAT_STAGES(shape) * AE_GPU_FLOAT_OUT(shape) * AE_GPU_FLOAT_PITCH(shape, size))
/* Shared bytes of a block. n_pairs: steps of the chain, of 1024 k each. Compute capability 7.5 has 65,536 bytes. */
#define AE_GPU_PRODUCT_SHARED(n_pairs) (4u * (n_pairs) * ((n_pairs) > 32 ? 32u : 33u) * 8u)

/* ---- Lookup ------------------------------------------------------------------------------------- */

/* Grid: rows, pieces of AE_GPU_LOOKUP_COLUMNS columns. A token that is not in the table gives a row of zeros. */
typedef struct ae_gpu_lookup_args {
    const uint8_t *table;      /* the table in `form`: a generic form or AE_GPU_FORM_FILE */
    const int32_t *tokens;     /* [n_rows] */
    float *y;                  /* f32 [n_rows][y_stride] */
    size_t y_stride;
    uint32_t form, n_out, n_in;
    uint32_t type, row_bytes;  /* AE_GPU_FORM_FILE */
    uint32_t has_row_scale;
    float row_scale;
} ae_gpu_lookup_args;

#define AE_GPU_LOOKUP_THREADS 128
#define AE_GPU_LOOKUP_COLUMNS 256

/* ---- The kernels -------------------------------------------------------------------------------- */

#define AE_GPU_KERNELS_PRODUCT(X) \
    X(activation, ae_gpu_activation_args, AE_GPU_ACTIVATION_THREADS) \
    X(product_32, ae_gpu_product_args, AE_GPU_PRODUCT_THREADS) \
    X(product_32_min, ae_gpu_product_args, AE_GPU_PRODUCT_THREADS) \
    X(product_32_two, ae_gpu_product_args, AE_GPU_PRODUCT_THREADS) \
    X(product_256, ae_gpu_product_args, AE_GPU_PRODUCT_THREADS) \
    X(product_256_min, ae_gpu_product_args, AE_GPU_PRODUCT_THREADS) \
    X(product_f32, ae_gpu_product_args, AE_GPU_PRODUCT_THREADS) \
    X(product_f16, ae_gpu_product_args, AE_GPU_PRODUCT_THREADS) \
    X(product_bf16, ae_gpu_product_args, AE_GPU_PRODUCT_THREADS) \
    X(product_f32_wide, ae_gpu_product_args, AE_GPU_FLOAT_THREADS(AE_GPU_WIDE)) \
    X(product_f32_narrow, ae_gpu_product_args, AE_GPU_FLOAT_THREADS(AE_GPU_NARROW)) \
    X(product_f16_wide, ae_gpu_product_args, AE_GPU_FLOAT_THREADS(AE_GPU_WIDE)) \
    X(product_f16_narrow, ae_gpu_product_args, AE_GPU_FLOAT_THREADS(AE_GPU_NARROW)) \
    X(product_bf16_wide, ae_gpu_product_args, AE_GPU_FLOAT_THREADS(AE_GPU_WIDE)) \
    X(product_bf16_narrow, ae_gpu_product_args, AE_GPU_FLOAT_THREADS(AE_GPU_NARROW)) \
    X(experts_32, ae_gpu_expert_args, AE_GPU_PRODUCT_THREADS) \
    X(experts_32_min, ae_gpu_expert_args, AE_GPU_PRODUCT_THREADS) \
    X(experts_32_two, ae_gpu_expert_args, AE_GPU_PRODUCT_THREADS) \
    X(experts_256, ae_gpu_expert_args, AE_GPU_PRODUCT_THREADS) \
    X(experts_256_min, ae_gpu_expert_args, AE_GPU_PRODUCT_THREADS) \
    X(experts_f32, ae_gpu_expert_args, AE_GPU_PRODUCT_THREADS) \
    X(experts_f16, ae_gpu_expert_args, AE_GPU_PRODUCT_THREADS) \
    X(experts_bf16, ae_gpu_expert_args, AE_GPU_PRODUCT_THREADS) \
    X(lookup, ae_gpu_lookup_args, AE_GPU_LOOKUP_THREADS)

#endif

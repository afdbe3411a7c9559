/* product.h - arguments of the seam's operations: weights, matrix products, and element-wise operations on rows.
 *
 * Owns nothing. Included by backend.h. Arrays are in device memory unless they are marked (host).
 */
#ifndef AE_BACKEND_PRODUCT_H
#define AE_BACKEND_PRODUCT_H

#include "base/err.h"
#include "base/shape_limits.h"

typedef struct ae_weight ae_weight;

/* ---- Weights ------------------------------------------------------------------------------- */

typedef enum ae_weight_use {
    AE_WEIGHT_MATMUL = 1, /* y = W x */
    AE_WEIGHT_LOOKUP = 2, /* rows fetched by token id */
    AE_WEIGHT_IN_PLACE = 4, /* a preference: use the source's rows in place, do not pack them */
    AE_WEIGHT_EXPERT = 8, /* with AE_WEIGHT_MATMUL: the weight is one of a layer's experts, and only ae_moe uses it */
} ae_weight_use;

#define AE_WEIGHT_ROWS 16 /* a weight is filled in multiples of this many rows */

typedef struct ae_weight_source {
    uint32_t type;     /* ae_type */
    uint32_t n_out;    /* rows: output features, or tokens of a table */
    uint32_t n_in;     /* columns: input features, contiguous in a row */
    const void *data;  /* (host) [n_out] rows in the file's layout; must live as long as the weight. NULL: the rows are not in
                        * memory, and weight_fill gives the weight its values */
    unsigned use;      /* ae_weight_use, or-ed */
    const float *scale, *row_scale; /* (host) scale multiplies each product's sums, before the bias; row_scale multiplies the
                                     * values of lookups. Copied; NULL: no factor */
} ae_weight_source;

/* ---- Matrix products ------------------------------------------------------------------------ */

#define AE_MATMUL_MAX 4 /* most weights that share one input: q, k, v or gate, up */

typedef enum ae_input {
    AE_INPUT_PLAIN,     /* x */
    AE_INPUT_RMSNORM,   /* x / rms(x) * norm */
    AE_INPUT_LAYERNORM, /* (x - mean) / sqrt(variance + eps) * norm (+ norm_bias) */
    AE_INPUT_GLU,       /* f(x) * x2, or f(x) where there is no x2; f by ae_glu */
    AE_INPUT_BLOCKS,    /* x is what AE_MAP_BLOCKS_32 or _256, by the sums of the weight's type, has made of a row */
} ae_input;

/* The activation function of a feed-forward block or a gate: f of its input g, combined with u (1 if there is no u). */
typedef enum ae_glu {
    AE_GLU_SILU,         /* g / (1 + e^-g) * u */
    AE_GLU_GELU,         /* g / (1 + e^-2z) * u, z = sqrt(2 / pi) * (g + 0.044715 g^3): GELU by tanh */
    AE_GLU_RELU2,        /* max(g, 0)^2 * u */
    AE_GLU_SIGMOID,      /* 1 / (1 + e^-g) * u */
    AE_GLU_OAI,          /* gpt-oss: a = min(g, limit), a / (1 + e^(-1.702 a)) * (clamp(u, limit) + 1) */
    AE_GLU_SILU_CLAMPED, /* min(silu(g), limit) * clamp(u, limit) */
    AE_GLU_RELU,         /* max(g, 0) * u */
    AE_GLU_SILU_LIMITED, /* silu(min(g, limit)) * clamp(u, limit) */
    AE_GLU_SOFTPLUS,     /* ae_softplusf(g) * u */
    AE_GLU_GELU_ERF,     /* g / (1 + e^(-g p(g^2))) * u: GELU by the error function, p a polynomial (arithmetic.h) */
    AE_GLU_LINEAR,       /* g * u */
    AE_GLU_SITU,         /* Kimi K3: c(g, limit) / (1 + e^-g) * c(u, up_limit), c(x, a) = a tanh(x / a); up_limit 0: * u */
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
    float glu_limit, up_limit;
    uint32_t n_weights;
    struct ae_matmul_out {
        const ae_weight *weight; /* [n_out, n_in] */
        const float *bias;       /* [n_out] f32 on the device, or NULL */
        float *y;                /* [n_rows][y_stride] f32 */
        size_t y_stride;
        bool add;                /* y += instead of y = */
    } out[AE_MATMUL_MAX];
} ae_matmul;

/* Called before each product with its input x [n_rows][x_stride], n_in f32 of each row, which the host can read during the
 * call. Runs on the thread that calls the operation. */
typedef void ae_watch_fn(void *user, const ae_weight *weight, const float *x, size_t x_stride, uint32_t n_rows, uint32_t n_in);

/* One product for each head: row r of head h is at x + r * x_stride + h * x_step, its result at
 * y + r * y_stride + h * y_step. */
typedef struct ae_head_matmul {
    uint32_t n_rows, n_heads;
    const float *x;       /* n_in f32 per row and head */
    size_t x_stride, x_step;
    ae_weight *const *weights; /* [n_heads] of [n_out, n_in], of one type and shape */
    float *y;             /* n_out f32 per row and head */
    size_t y_stride, y_step;
} ae_head_matmul;

/* Norms n_rows * n_groups groups of dim elements, each separately, in place: x / rms(x) * weight, or the layer norm. */
typedef struct ae_norm {
    uint32_t n_rows, n_groups, dim;
    float *x;            /* [n_rows][x_stride] f32; the first n_groups * dim are used */
    size_t x_stride;
    const float *weight; /* [dim] f32 on the device, or [n_groups][dim] if each_group */
    float eps;
    bool each_group;     /* each group has its own weights */
    bool layer;          /* the layer norm: (x - mean) / sqrt(variance + eps) * weight (+ bias) */
    const float *bias;   /* [dim] f32 on the device or NULL; for the layer norm */
} ae_norm;

/* Computes how well parts of rows agree: y = 1 / (1 + e^-g), g = sign(s) sqrt(max(|s|, 1e-6)), where s is the dot product of
 * part k of x and part k of x2, times scale. A dot product is 16 chains of fmaf from 0, over the elements i with equal i % 16,
 * ascending, and the chain of their sum. */
typedef struct ae_accord {
    uint32_t n_rows, n_parts, dim;
    const float *x, *x2; /* [n_rows][n_parts * dim] x 2 */
    float scale;
    float *y;            /* [n_rows][y_stride], the first n_parts are written */
    size_t y_stride;
} ae_accord;

/* Computes y = fmaf(a, x, y) for n rows of dim elements. */
typedef struct ae_axpy {
    uint32_t n, dim;
    float a;
    const float *x;
    size_t x_stride;
    float *y;
    size_t y_stride;
} ae_axpy;

/* Vulkan's shaders use the same numbers. */
typedef enum ae_map_kind {
    AE_MAP_ZERO,    /* 0 */
    AE_MAP_SCALE,   /* x * a */
    AE_MAP_SOFTCAP, /* a * tanh(x / a) */
    AE_MAP_GLU,     /* f(x) * x2 by ae_glu, as AE_INPUT_GLU */
    AE_MAP_GATE,    /* x * f(x2) by ae_glu, x2 [n_rows][n_groups]: one gate for each of n_groups equal parts of a row */
    AE_MAP_CLAMP,   /* min(max(x, -a), a) */
    AE_MAP_XIELU,   /* ae_xieluf(x, a, b, c, d) */
    AE_MAP_TIMES,   /* x * x2 */
    AE_MAP_BETWEEN, /* min(max(x, glu_limit), a) */
    /* RWKV's mixtures of rows: fmaf(x2, weight, x3) */
    AE_MAP_LERP,    /* fmaf(x2, weight, x3) */
    AE_MAP_LERP_BY, /* fmaf(x2, x + weight, x3) */
    AE_MAP_BLEND,   /* fmaf(1 / (1 + e^-x2), x3 - x, x) */
    AE_MAP_CUTOFF,  /* max(x - c, 0), c = fmaf(a, deviation, mean), both of the row's dim values (Gemma 3n's sparsity) */
    AE_MAP_MATCH,   /* x * f, where f gives the row the root mean square of x2's; the row's own counts as at least a */
    AE_MAP_SOFTMAX, /* e / s, for each row: e = ae_expf(x - the largest), s the sum of e, a chain from 0, ascending */
    /* the int8 codes and the scale that products make of each 32 or 256 values, in the row's first ae_block_floats(dim, block)
     * floats: block by block the codes, then their scale. dim is a multiple of the block. Where the backend takes_blocks */
    AE_MAP_BLOCKS_32,
    AE_MAP_BLOCKS_256,
} ae_map_kind;

/* Returns the floats that n values in blocks take. */
static inline uint32_t ae_block_floats(uint32_t n, uint32_t block)
{
    return n / block * (block / 4 + 1);
}

/* Changes every element of x in place. */
typedef struct ae_map {
    ae_map_kind kind;
    uint32_t n_rows, dim;
    float *x;            /* [n_rows][x_stride] f32; the first dim are used */
    size_t x_stride;
    float a, b, c, d;
    const float *x2;     /* [n_rows][x2_stride] */
    size_t x2_stride;
    const float *x3;     /* [n_rows][x2_stride] */
    const float *weight; /* [dim] f32 on the device, for AE_MAP_LERP and AE_MAP_LERP_BY, where NULL means 0 */
    uint32_t n_groups;   /* AE_MAP_GATE; AE_MAP_LERP and _BY: x has this many parts, each combined with the same x2 and x3;
                          * divides dim */
    ae_glu glu;          /* AE_MAP_GLU, AE_MAP_GATE */
    float glu_limit, up_limit;
} ae_map;

/* Copies y[to[i]] = x[rows[i]], dim floats each. The row numbers are rows [n] on the device, or host_rows (host) [n], read
 * before the call returns; if both are NULL, row i is read. to [n] on the device, all different; NULL: row i is written. x and
 * y must not overlap. */
typedef struct ae_copy {
    uint32_t n, dim;
    const float *x;
    size_t x_stride;
    const int32_t *rows;
    float *y;
    size_t y_stride;
    const int32_t *host_rows;
    const int32_t *to;
} ae_copy;

/* The coefficients by which the n streams of a row are joined (hyper-connections), from x, in place. With
 * a_k = x_k * scale + base_k and sigma(a) = 1 / (1 + ae_expf(-a)):
 *   [0, n)     what each stream gives to a block's input: sigma(a) + eps, with scale[0]
 *   [n, 2n)    what it takes of the block's output: 2 * sigma(a), with scale[1]
 *   [2n, ..)   C[from][to], how streams are mixed, with scale[2]: softmax of each row, + eps; columns over (their sum + eps);
 *              then n_iterations - 1 times rows and columns likewise. Sums are chains from 0, ascending
 * or, at the end of the model, only the first n. */
typedef struct ae_hyper {
    uint32_t n_rows, n;   /* n <= AE_MAX_STREAMS */
    float *x;             /* [n_rows][x_stride]; the first n * (2 + n) are used, or n at the end of the model */
    size_t x_stride;
    const float *scale, *base; /* [3], [n * (2 + n)]; at the end of the model [1], [n] */
    float eps;
    uint32_t n_iterations; /* at least 1; 0: the end */
    /* above 0: streams are not mixed (there is no C), [n, 2n) is magnitude * sigma(a) + eps, and scale and base end there */
    float magnitude;
} ae_hyper;

/* Combines the streams of each row (AltUp). For target t and every element, ascending s:
 *   y[t] = start[t], or 0; then for s = 0 .. n_in - 1: y[t] = fmaf(coef[t * out_step + s * in_step], x[s], y[t])
 * Stream s of row r is at x + r * x_stride + s * x_step, and likewise for start and y. y may be x or start as a whole. */
typedef struct ae_row_mix {
    uint32_t n_rows, dim, n_in, n_out; /* n_out: 1 to AE_MAX_STREAMS */
    const float *x, *start;            /* start NULL: 0 */
    size_t x_stride, x_step, start_stride, start_step;
    const float *coef;                 /* [n_rows][coef_stride] */
    size_t coef_stride;
    uint32_t out_step, in_step;
    float *y;
    size_t y_stride, y_step;
} ae_row_mix;

#endif

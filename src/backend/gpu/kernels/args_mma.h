/* args_mma.h - matrix products by mma: the types that have them, the form of their weights, and the kernels' arguments.
 *
 * Read by the host (weight_mma.c packs) and by the kernels (product_mma*.cu). Activations: mma_rows.h.
 *
 * A weight is [n_granules][n_records][record bytes]: granules of 16 rows, the missing rows of the last one zero, and records in
 * ascending k, each 64 k (AE_DOT_32; an odd number of blocks gets a block of zeros) or 256 k (AE_DOT_256). A lane of a warp,
 * g = lane / 4, t = lane % 4, works on rows g and g + 8 and, of each block of 32 k, on k = 4 t .. 4 t + 3 and 16 more.
 * A record has these parts, one after the other (bytes of each in the table below):
 *   codes   4 bits: uint32 [pairs of blocks][32 lanes][2 blocks][2: rows g, g + 8]
 *             byte j: the code of k = 4 t + j in the low nibble, of k = 16 + 4 t + j in the high one; types with a table
 *             (AE_MMA_TABLE): nibble j the index of k = 4 t + j, nibble 4 + j of k = 16 + 4 t + j
 *           8 bits: int8 [2 blocks][32 lanes][2: k, k + 16][2: rows g, g + 8][4]
 * high the bits of codes above the lower four:
 *           5 bits, AE_DOT_32: uint32 [32 lanes]; AE_DOT_256: uint32 [32 lanes][4 pairs]
 *             bit 4 b + i of byte j: bit 4 of the code in block b of the pair, i = 0: row g, 1: row g + 8, 2, 3: the same of
 *             k + 16
 *           6 bits: uint32 [2][32 lanes][2 pairs][2 blocks]; bits 2 i, 2 i + 1 of byte j are bits 4, 5
 *   scales  AE_DOT_32: f16 [8 g][2 blocks][2: rows g, g + 8] d; with minimums [8 g]{d, m}[2 blocks][2]; MXFP4 bf16
 *           AE_DOT_256: f16 [8 g][2: g, g + 8] d; with minimums [8 g]{d, dmin}[2]; then
 *             sub      int8 [8 g][2: g, g + 8][8], or of 16 columns each [2: g, g + 8][8 g][16]
 *             submin   uint8 [8 g][2: j / 4][2: g, g + 8][4: j % 4]
 * Codes with negative values are stored in two's complement, so that the bits of a code at the top of a byte are a signed
 * number (times 16, 8 or 4).
 */
#ifndef AE_BACKEND_GPU_KERNELS_ARGS_MMA_H
#define AE_BACKEND_GPU_KERNELS_ARGS_MMA_H

#include <stdint.h>

#define AE_MMA_GRANULE 16 /* rows */

/* X(name, NAME of ae_type, DOT_256, bits of a code, bytes of codes, of high, of scales); AE_DOT_32 first. */
#define AE_MMA_TYPES(X) \
    X(q4_0, Q4_0, 0, 4, 512, 0, 64) \
    X(q4_1, Q4_1, 0, 4, 512, 0, 128) \
    X(q5_0, Q5_0, 0, 5, 512, 128, 64) \
    X(q5_1, Q5_1, 0, 5, 512, 128, 128) \
    X(q8_0, Q8_0, 0, 8, 1024, 0, 64) \
    X(iq4_nl, IQ4_NL, 0, 4, 512, 0, 64) \
    X(mxfp4, MXFP4, 0, 4, 512, 0, 64) \
    X(q4_k, Q4_K, 1, 4, 2048, 0, 320) \
    X(q5_k, Q5_K, 1, 5, 2048, 512, 320) \
    X(q6_k, Q6_K, 1, 6, 2048, 1024, 288) \
    X(iq4_xs, IQ4_XS, 1, 4, 2048, 0, 160)

typedef enum ae_mma_type {
#define AE_MMA_ID(name, NAME, ...) AE_MMA_##NAME,
    AE_MMA_TYPES(AE_MMA_ID)
#undef AE_MMA_ID
    AE_MMA_N_TYPES
} ae_mma_type;

#define AE_MMA_JOBS 4 /* most weights of a launch, which have one type and the same number of columns */

typedef struct ae_mma_job {
    const uint8_t *weight;
    const uint8_t *rows;  /* activations: the group that row 0 is in (mma_rows.h) */
    float *y;             /* [n_rows][y_stride] */
    const float *bias;    /* [n_out] or NULL */
    uint32_t n_out, y_stride;
    uint32_t end;         /* granules of this job and of all jobs before it */
    uint32_t add;         /* y += instead of y = */
    uint32_t has_scale;
    float scale;          /* factor of the sums, before the bias */
} ae_mma_job;

typedef struct ae_mma_args {
    ae_mma_job job[AE_MMA_JOBS];
    uint32_t n_jobs, n_rows;
    uint32_t n_records;   /* of a row of a weight */
    uint32_t group_bytes; /* bytes of activations between one group of 8 rows and the next */
    uint32_t each, more;  /* rounds of each block in y, each a granule for every team; the first `more` blocks run one round
                           * more */
    uint32_t early;       /* the kernel may begin before the previous one has ended */
} ae_mma_args;

/* ---- The kernels -------------------------------------------------------------------------------- */

/* A block has 8 warps in teams of `team` warps; a team works on a granule, for 8 * c rows. The warps of a team take turns in
 * runs of `run` blocks of 32 k, which are in shared memory `stages` deep. Blocks in x are tiles of 8 * c rows; blocks in y go
 * through the granules, as many as run at once: `most` of a multiprocessor.
 *
 * Which kernel is the fastest depends on the granules and tiles that each multiprocessor gets (weight_mma.c): with few of them,
 * many warps should share one, since a single warp needs about 1000 clocks for 256 k; with many, teams of one warp share
 * activations. X(name, NAME, c, team, run, stages, most); measured on an H100 (bench/gpu/mma_bench.cu). */
#define AE_MMA_WARPS 8
#define AE_MMA_THREADS 256
#define AE_MMA_VARIANTS_PLAIN(X, name, NAME) \
    X(name, NAME, 1, 8, 8, 2, 2) \
    X(name, NAME, 1, 4, 8, 3, 2) \
    X(name, NAME, 1, 1, 8, 3, 3) \
    X(name, NAME, 2, 2, 8, 2, 1) \
    X(name, NAME, 2, 1, 8, 2, 3) \
    X(name, NAME, 4, 1, 8, 2, 2)
#define AE_MMA_VARIANTS_MIN(X, name, NAME) \
    X(name, NAME, 1, 8, 8, 2, 2) \
    X(name, NAME, 1, 4, 8, 2, 2) \
    X(name, NAME, 1, 1, 8, 3, 3) \
    X(name, NAME, 2, 2, 4, 3, 2) \
    X(name, NAME, 2, 1, 8, 2, 2) \
    X(name, NAME, 4, 1, 8, 2, 2)
#define AE_MMA_VARIANTS_BYTES(X, name, NAME) \
    X(name, NAME, 1, 8, 8, 2, 2) \
    X(name, NAME, 1, 4, 8, 2, 2) \
    X(name, NAME, 1, 1, 8, 2, 2) \
    X(name, NAME, 2, 2, 4, 3, 2) \
    X(name, NAME, 2, 1, 4, 3, 3) \
    X(name, NAME, 4, 1, 4, 3, 2)
#define AE_MMA_VARIANTS_WIDE(X, name, NAME) \
    X(name, NAME, 1, 8, 8, 2, 2) \
    X(name, NAME, 1, 4, 8, 3, 2) \
    X(name, NAME, 1, 1, 8, 3, 3) \
    X(name, NAME, 2, 2, 8, 2, 3) \
    X(name, NAME, 2, 1, 8, 2, 3) \
    X(name, NAME, 4, 1, 8, 2, 2)
#define AE_MMA_N_VARIANTS 6 /* of a type */
#define AE_MMA_ALL_32(X) \
    AE_MMA_VARIANTS_PLAIN(X, q4_0, Q4_0) \
    AE_MMA_VARIANTS_MIN(X, q4_1, Q4_1) \
    AE_MMA_VARIANTS_PLAIN(X, q5_0, Q5_0) \
    AE_MMA_VARIANTS_MIN(X, q5_1, Q5_1) \
    AE_MMA_VARIANTS_BYTES(X, q8_0, Q8_0) \
    AE_MMA_VARIANTS_PLAIN(X, iq4_nl, IQ4_NL) \
    AE_MMA_VARIANTS_PLAIN(X, mxfp4, MXFP4)
#define AE_MMA_ALL_256(X) \
    AE_MMA_VARIANTS_WIDE(X, q4_k, Q4_K) \
    AE_MMA_VARIANTS_WIDE(X, q5_k, Q5_K) \
    AE_MMA_VARIANTS_WIDE(X, q6_k, Q6_K) \
    AE_MMA_VARIANTS_WIDE(X, iq4_xs, IQ4_XS)

/* Shared bytes of a block, computed from the bytes of a run in one weight's rows and in 8 rows of activations. */
#define AE_MMA_SHARED(w_bytes, x_bytes, c, team, stages) \
    ((stages) * (AE_MMA_WARPS * (w_bytes) + (team) * (c) * (x_bytes)) + ((team) > 1 ? AE_MMA_WARPS * (c) * 512u : 0u))

#define AE_MMA_LIST(X, name) \
    X(mma_##name##_1_8, ae_mma_args, AE_MMA_THREADS) \
    X(mma_##name##_1_4, ae_mma_args, AE_MMA_THREADS) \
    X(mma_##name##_1_1, ae_mma_args, AE_MMA_THREADS) \
    X(mma_##name##_2_2, ae_mma_args, AE_MMA_THREADS) \
    X(mma_##name##_2_1, ae_mma_args, AE_MMA_THREADS) \
    X(mma_##name##_4_1, ae_mma_args, AE_MMA_THREADS)
#define AE_GPU_KERNELS_MMA(X) \
    AE_MMA_LIST(X, q4_0) \
    AE_MMA_LIST(X, q4_1) \
    AE_MMA_LIST(X, q5_0) \
    AE_MMA_LIST(X, q5_1) \
    AE_MMA_LIST(X, q8_0) \
    AE_MMA_LIST(X, iq4_nl) \
    AE_MMA_LIST(X, mxfp4) \
    AE_MMA_LIST(X, q4_k) \
    AE_MMA_LIST(X, q5_k) \
    AE_MMA_LIST(X, q6_k) \
    AE_MMA_LIST(X, iq4_xs)

#endif

/* args_draw.h - arguments of the kernels that find the best logits of rows (draw.cu). */
#ifndef AE_BACKEND_GPU_KERNELS_ARGS_DRAW_H
#define AE_BACKEND_GPU_KERNELS_ARGS_DRAW_H

#include <stdint.h>

#define AE_GPU_KERNELS_DRAW(X) \
    X(best_one, ae_gpu_best_args, 256) \
    X(best_some, ae_gpu_best_args, 256) \
    X(best_total, ae_gpu_best_args, 256)

#define AE_GPU_BEST 64           /* most candidates of a row */
#define AE_GPU_BEST_CHUNK 1024u  /* logits or keys that a block of best_one and best_some handles */
#define AE_GPU_BEST_SHARED (AE_GPU_BEST_CHUNK * 8)
#define AE_GPU_TOTAL_CHUNK 4096u /* logits that a block of best_total handles */
#define AE_GPU_BEST_ROWS 64      /* rows of one launch */

/* A key holds a logit and its id: the larger key is the better logit or, of equal ones, the lower id. 0: no candidate (NaN and
 * -infinity are none). best_one and best_some are launched several times: first over the logits, then over the keys that the
 * launch before found, until one block per row is left, which writes the results. Grid: blocks of a row, rows. The result of a
 * row is [2 * k + 1] words: the number n of candidates, at most k; their ids, best first; their logits. */
typedef struct ae_gpu_best_args {
    const float *logits;  /* [..][n_logits] */
    const uint64_t *in;   /* [n_rows][n_in] keys, for best_some in lists of AE_GPU_BEST, best first; NULL: the logits */
    uint64_t *out;        /* [n_rows][blocks of a row][1 or AE_GPU_BEST] keys; best_total: [n_rows][blocks] sums of units */
    uint32_t *results;    /* [n_rows][2 * k + 1]; NULL: write keys instead. best_total reads the first logit of each row's
                           * result */
    uint32_t n_logits, n_in, k;
    uint32_t rows[AE_GPU_BEST_ROWS]; /* [n_rows] rows of logits */
} ae_gpu_best_args;

#endif

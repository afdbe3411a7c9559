/* mma_rows.h - the form in which products by matrix instructions read activations: where each value of a row lies.
 *
 * Written by the kernel that quantizes activations, read by product_mma*.cu and by any other kernel. Rows are in groups of 8
 * and columns in records, so that a warp copies a record as contiguous bytes and a lane reads its operands of two
 * mma.m16n8k32 by one load of 16 bytes, without bank conflicts. i is the row in its group. The last group may have fewer rows:
 * the bytes of the missing ones are undefined.
 *
 * AE_DOT_32: records [n_groups][ae_mma_pairs(n_in)] of 640 bytes, each 8 rows x 64 k: two blocks (half 0, 1) of 32 k:
 *   q    int8 [8 rows][4][2 halves][2][4]: k = 32 * half + 16 * (fourth index) + 4 * (first index) + ..
 *   dx   f32 [4 pairs of rows][2 halves][2 rows] at AE_MMA_DX: the scale of 32 columns
 *   s    f32, likewise, at AE_MMA_S: dx * (float)(sum of q)
 *   If n_in / 32 is odd, half 1 of the last record must have dx = s = 0; its q are undefined.
 * AE_DOT_256: records [n_groups][n_in / 256] of 2208 bytes, each 8 rows x 256 k:
 *   q    [4 pairs of blocks] as above
 *   dx   f32 [8 rows] at AE_MMA_DX_256: the scale of 256 columns
 *   sums int8 [8 rows][2][8] at AE_MMA_SUMS_256: the sum b of each 32 q, b = 128 * high + low: low [8], then high [8];
 *        low is from -64 to 63
 */
#ifndef AE_BACKEND_GPU_KERNELS_MMA_ROWS_H
#define AE_BACKEND_GPU_KERNELS_MMA_ROWS_H

#include <stdint.h>

#define AE_MMA_ROWS 8 /* of a group */
#define AE_MMA_DX 512
#define AE_MMA_S 576
#define AE_MMA_RECORD 640 /* bytes */
#define AE_MMA_DX_256 2048
#define AE_MMA_SUMS_256 2080
#define AE_MMA_RECORD_256 2208

/* The offsets are macros, for the host and for kernels, because nvcc needs functions for kernels to be marked. */

/* Pairs of blocks of 32 columns. */
#define AE_MMA_PAIRS(n_in) (((n_in) / 32 + 1) / 2)
#define AE_MMA_GROUPS(n_rows) (((n_rows) + 7) / 8)
/* Size of a group of rows in bytes. */
#define AE_MMA_GROUP_BYTES(n_in) (AE_MMA_PAIRS(n_in) * AE_MMA_RECORD)
#define AE_MMA_GROUP_BYTES_256(n_in) ((n_in) / 256 * AE_MMA_RECORD_256)

/* Offset in a record of the four bytes of word w (k = 4 w .. 4 w + 3 of a block) of block `half`, row i. In records of 256,
 * add 512 for each pair of blocks. */
#define AE_MMA_Q_AT(i, half, w) ((i) * 64 + (w) % 4 * 16 + (half) * 8 + (w) / 4 * 4)
/* Offset in a record of the scale of block `half`, row i; the sums have the same order from AE_MMA_S on. */
#define AE_MMA_DX_AT(i, half) (AE_MMA_DX + (i) / 2 * 16 + (half) * 8 + (i) % 2 * 4)
#define AE_MMA_S_AT(i, half) (AE_MMA_S - AE_MMA_DX + AE_MMA_DX_AT(i, half))

#endif

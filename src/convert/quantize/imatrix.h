/* imatrix.h - importance matrices in files: how strongly the columns of each weight are used.
 * Owns reading such a file, and the names of its keys and tensors. Does not own collecting (session/imatrix.c), or what
 * encoders do with it (types.h). Source: the GGUF files that llama.cpp's imatrix program writes, with the keys below and, for
 * the weight NAME,
 *     NAME.in_sum2 f32 [n_columns, n_matrices] sums of squares of the inputs, for each matrix of a stack of experts
 *     NAME.counts f32 [1, n_matrices] number of rows that were summed
 * Older files (".dat") are read by imatrix_old.c.
 * The file may be malicious: negative and infinite numbers and NaNs are refused when it is opened. */
#ifndef AE_CONVERT_QUANTIZE_IMATRIX_H
#define AE_CONVERT_QUANTIZE_IMATRIX_H

#include "formats/gguf.h"

#define AE_IMATRIX_TYPE "imatrix"                  /* general.type */
#define AE_IMATRIX_DATASETS "imatrix.datasets"     /* strings */
#define AE_IMATRIX_CHUNKS "imatrix.chunk_count"    /* u32 */
#define AE_IMATRIX_CHUNK_SIZE "imatrix.chunk_size" /* u32, tokens */
#define AE_IMATRIX_SUMS ".in_sum2"
#define AE_IMATRIX_COUNTS ".counts"

typedef struct ae_imatrix ae_imatrix;

/* Errors: those of ae_gguf_open; FORMAT: not an importance matrix, sums without counts, or impossible shapes or numbers;
 * MEMORY. On failure *out is NULL. */
aerie_status ae_imatrix_open(ae_imatrix **out, const char *path, aerie_error *error);
void ae_imatrix_close(ae_imatrix *imatrix);

const char *ae_imatrix_path(const ae_imatrix *imatrix);
size_t ae_imatrix_n_entries(const ae_imatrix *imatrix); /* number of weights that count */
/* Only weights whose names contain one of the texts [n] count from now on; with `but`, only those that contain none. The texts
 * are borrowed. n 0: all count. */
void ae_imatrix_restrict(ae_imatrix *imatrix, const char *const *texts, size_t n, bool but);
/* Returns the number of weights whose names contain the text. */
size_t ae_imatrix_n_holding(const ae_imatrix *imatrix, const char *text);
uint32_t ae_imatrix_n_chunks(const ae_imatrix *imatrix);
ae_gguf_string ae_imatrix_dataset(const ae_imatrix *imatrix); /* the first dataset; empty if there is none */

/* Finds the sizes of the importance matrix of a weight; *n_matrices is 0 if the file says only how many columns all matrices
 * have together. Returns false if there is none that counts. */
bool ae_imatrix_find(const ae_imatrix *imatrix, ae_gguf_string name, uint64_t *n_columns, uint64_t *n_matrices);
/* Writes the mean squares of a weight's inputs to out [n_matrices][n_columns]; 1 for a matrix that no row has used. The weight
 * must have an importance matrix. */
void ae_imatrix_means(const ae_imatrix *imatrix, ae_gguf_string name, float *out);

#endif

/* imatrix_old.h - importance matrices in the format that llama.cpp wrote until 2025 (".dat"). Private to src/convert/quantize.
 * Owns reading such a file. Source, all numbers little-endian:
 *     i32 number of entries; for each: i32 length, name, i32 calls, i32 number of values, f32 [values];
 *     then, from some version on: i32 number of chunks, i32 length, name of the text
 * A value is the mean square of a column's inputs, times `calls`. The experts of a stack follow one another; the file has the
 * number of values only, not of columns. The file may be malicious. */
#ifndef AE_CONVERT_QUANTIZE_IMATRIX_OLD_H
#define AE_CONVERT_QUANTIZE_IMATRIX_OLD_H

#include "formats/gguf.h"

typedef struct ae_imatrix_old_entry {
    ae_gguf_string name;
    int32_t calls;
    uint32_t n;           /* values */
    const uint8_t *values; /* [n] f32, unaligned */
} ae_imatrix_old_entry;

typedef struct ae_imatrix_old {
    ae_file_map map;
    ae_imatrix_old_entry *entries; /* [n] by name */
    size_t n;
    uint32_t n_chunks;      /* 0: the file does not say */
    ae_gguf_string dataset; /* empty: the file does not say */
} ae_imatrix_old;

/* Returns whether the file at `path` can be read and begins as one of this format. */
bool ae_imatrix_is_old(const char *path);
/* Errors: IO, FORMAT (what is damaged), MEMORY. On failure there is nothing to close. */
aerie_status ae_imatrix_old_open(ae_imatrix_old *out, const char *path, aerie_error *error);
void ae_imatrix_old_close(ae_imatrix_old *old);
/* NULL: there is no such entry. */
const ae_imatrix_old_entry *ae_imatrix_old_find(const ae_imatrix_old *old, ae_gguf_string name);
/* Writes the mean squares to out [n]. */
void ae_imatrix_old_means(const ae_imatrix_old_entry *entry, float *out);

#endif

/* zip.h - reads the directory of a zip archive whose records are stored uncompressed, as torch.save writes them. Hostile input.
 *
 * Borrows the bytes; names and data point into them. Private to src/formats.
 * Source: APPNOTE.TXT 6.3 (central directory, zip64).
 */
#ifndef AE_GGUF_ZIP_H
#define AE_GGUF_ZIP_H

#include "base/mem.h"
#include "formats/gguf.h"

#define AE_ZIP_MAX_RECORDS ((uint64_t)1 << 20)

typedef struct ae_zip_record {
    ae_gguf_string name;
    const uint8_t *data; /* [bytes] */
    size_t bytes;
} ae_zip_record;

typedef struct ae_zip {
    ae_zip_record *records; /* [n], sorted by name (ae_gguf_string_compare); in the arena */
    size_t n;
} ae_zip;

/* Errors: FORMAT, UNSUPPORTED (compressed or encrypted records), LIMIT, MEMORY; the messages name `path`. */
aerie_status ae_zip_read(ae_zip *zip, ae_arena *arena, const uint8_t *data, size_t n, const char *path, aerie_error *error);
const ae_zip_record *ae_zip_find(const ae_zip *zip, const char *name, size_t n); /* NULL if absent */

#endif

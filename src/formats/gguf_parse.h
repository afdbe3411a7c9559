/* gguf_parse.h - inside the GGUF reader: one file's bytes turned into an index.
 *
 * Owns: the mapping of one file, its keys and tensor list. Does not own: split sets and lookups by tensor name (gguf.c).
 * Private to src/formats.
 */
#ifndef AE_FORMATS_GGUF_PARSE_H
#define AE_FORMATS_GGUF_PARSE_H

#include "base/mem.h"
#include "base/os.h"
#include "formats/gguf.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "GGUF values and tensor data are used in place: a little-endian machine is needed"
#endif

#define AE_GGUF_ALIGNMENT 32 /* the default, if the file has no general.alignment */

typedef struct ae_gguf_file {
    ae_file_map map;     /* empty when the caller lends the bytes */
    const uint8_t *data; /* [bytes] */
    size_t bytes;
    size_t there;    /* number of its first bytes that are available while it is being downloaded; 0: all */
    bool is_short;   /* its tables do not end within the available bytes */
    size_t data_end; /* end of the last tensor's data, or of the tables if there are no tensors */
    char *path;      /* for messages */
    uint32_t version, alignment;
    ae_gguf_kv *kv; /* [n_kv], in file order */
    size_t n_kv;
    uint32_t *kv_order; /* [n_kv], sorted by key */
    ae_gguf_tensor *tensors; /* [n_tensors], in file order; i_file not set */
    size_t n_tensors;
} ae_gguf_file;

/* Fills the index from data, bytes and path. After a failure the caller must still call ae_gguf_file_free. */
aerie_status ae_gguf_file_parse(ae_gguf_file *file, aerie_error *error);
void ae_gguf_file_free(ae_gguf_file *file);
const ae_gguf_kv *ae_gguf_file_find(const ae_gguf_file *file, const char *key);

/* Compares names by length, then by bytes: < 0, 0 or > 0. */
int ae_gguf_string_compare(ae_gguf_string a, ae_gguf_string b);

/* Returns whether entry a comes before entry b. */
typedef bool ae_gguf_before(const void *context, uint32_t a, uint32_t b);
/* Sorts order[n] so that before(context, order[i+1], order[i]) never holds. Heapsort: in place, without
 * recursion, O(n log n) for any input. */
void ae_gguf_sort(uint32_t *order, size_t n, ae_gguf_before *before, const void *context);

#define AE_GGUF_QUOTE_BYTES 80
/* Writes a name as messages show it: quoted, in printable ASCII, truncated if it is long. Returns out. */
const char *ae_gguf_quote(char out[AE_GGUF_QUOTE_BYTES], ae_gguf_string name);
/* Returns the end of a path, short enough to leave room for the message; sets *dots to "..." if the path was cut, else to
 * "". */
const char *ae_gguf_path_end(const char *path, const char **dots);

/* Returns the bytes of a fixed-size value; 0 for strings, arrays and unknown types. */
size_t ae_gguf_scalar_bytes(uint32_t type);

#endif

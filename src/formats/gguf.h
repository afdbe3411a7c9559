/* gguf.h - reading GGUF files (v2, v3, little-endian, one file or a split set). The file is hostile.
 *
 * Owns: the mapping of the file(s) and the parsed index. Lends: every name, value and tensor
 * pointer, until ae_gguf_close.
 * Invariants after a successful open:
 *   - every string, array and tensor lies inside its file; sizes were computed with checked
 *     arithmetic; no two tensors overlap or share a name; no two keys are equal;
 *   - each tensor's type is known (formats/tensor_type.h), ne[0] is a multiple of its block,
 *     ne[i] >= 1, and the product of ne fits in int64; its offset is a multiple of the alignment;
 *   - index memory is bounded by the file's size, whatever counts the file claims: no single
 *     allocation exceeds 4 bytes per byte of file, and there are at most AE_GGUF_MAX_ENTRIES
 *     keys and as many tensors;
 *   - lookups are binary searches over sorted names, so no choice of names makes them slow.
 * Of a split set the keys are those of the first part. Keys and names may hold any bytes, but are
 * shorter than 64 KiB.
 * Source: the GGUF specification (ggml docs/gguf.md).
 */
#ifndef AE_GGUF_GGUF_H
#define AE_GGUF_GGUF_H

#include "base/os.h"
#include "formats/tensor_type.h"

#define AE_GGUF_MAX_ENTRIES ((uint64_t)1 << 20) /* keys, and tensors, in one model */
#define AE_GGUF_MAX_NAME 65535                  /* bytes in a key or a tensor's name */

/* Value types as numbered in the file. */
typedef enum ae_gguf_type {
    AE_GGUF_U8 = 0, AE_GGUF_I8 = 1, AE_GGUF_U16 = 2, AE_GGUF_I16 = 3, AE_GGUF_U32 = 4, AE_GGUF_I32 = 5,
    AE_GGUF_F32 = 6, AE_GGUF_BOOL = 7, AE_GGUF_STRING = 8, AE_GGUF_ARRAY = 9, AE_GGUF_U64 = 10,
    AE_GGUF_I64 = 11, AE_GGUF_F64 = 12,
} ae_gguf_type;

/* Not NUL-terminated, may hold any bytes. */
typedef struct ae_gguf_string {
    const char *data; /* [n], in the file */
    size_t n;
} ae_gguf_string;

typedef struct ae_gguf_kv {
    ae_gguf_string key;
    ae_gguf_type type;         /* of the value */
    ae_gguf_type element_type; /* of an array's elements, else equal to type; arrays of arrays are refused */
    uint64_t n;                /* elements; 1 for scalars */
    const uint8_t *data;       /* [bytes] first element (for each string: u64 length, its bytes), unaligned */
    size_t bytes;              /* of data */
} ae_gguf_kv;

typedef struct ae_gguf_tensor {
    ae_gguf_string name;
    uint32_t type;       /* ae_type */
    uint32_t n_dims;     /* 1..4 as written */
    int64_t ne[4];       /* elements per dimension, fastest first; 1 beyond n_dims */
    size_t bytes;        /* of data */
    const uint8_t *data; /* [bytes], aligned as in the file (up to 64 without mmap); from memory: as the caller's bytes;
                          * NULL if opened index_only */
    uint32_t i_file;     /* which file of a split set */
    uint64_t offset;     /* of data in that file */
} ae_gguf_tensor;

typedef struct ae_gguf ae_gguf;

typedef struct ae_gguf_options {
    bool no_mmap;    /* read into memory instead of mapping */
    bool index_only; /* read keys and tensor list only; tensors have no data, ae_gguf_read fetches them */
    const char *const *overrides; /* [n_overrides] "KEY=TYPE:VALUE": what ae_gguf_kv_find and the typed reads find in place of
                                   * the file's. ARGUMENT for one that cannot be read */
    size_t n_overrides;
} ae_gguf_options;

/* Opens path; of a split set any part ("name-00002-of-00005.gguf") brings all of it.
 * Errors: IO, FORMAT (what, where: byte offset, and the name of key or tensor), UNSUPPORTED (version,
 * big-endian, unknown tensor type, array of arrays), LIMIT (more than AE_GGUF_MAX_ENTRIES), MEMORY.
 * *out is NULL on failure. */
aerie_status ae_gguf_open(ae_gguf **out, const char *path, const ae_gguf_options *options, aerie_error *error);
/* The same over bytes that outlive the object (one file, not split); `name` is used in messages. */
aerie_status ae_gguf_open_memory(ae_gguf **out, const void *bytes, size_t n, const char *name, aerie_error *error);
void ae_gguf_close(ae_gguf *gguf);

/* What the tables of one file, which may be a part of a split set, say of the file itself. */
typedef struct ae_gguf_extent {
    uint64_t end, padded;  /* where it ends: with its last tensor, or with the padding after that */
    uint32_t part, n_parts; /* of a set, from 1; 1 of 1: it stands alone */
} ae_gguf_extent;

/* Reads where a file ends from its first n bytes. out->end is 0 if its tables do not end within them. Errors: those of
 * ae_gguf_open as far as the tables can be read. */
aerie_status ae_gguf_extent_read(ae_gguf_extent *out, const void *bytes, size_t n, const char *name, aerie_error *error);

const char *ae_gguf_path(const ae_gguf *gguf); /* as given to open */
uint32_t ae_gguf_version(const ae_gguf *gguf);
uint32_t ae_gguf_alignment(const ae_gguf *gguf);
/* Whether path is one of the opened files (under any name); false if there is no such file. */
bool ae_gguf_reads(const ae_gguf *gguf, const char *path);
uint32_t ae_gguf_n_files(const ae_gguf *gguf);
uint64_t ae_gguf_file_bytes(const ae_gguf *gguf); /* all parts together */

size_t ae_gguf_n_kv(const ae_gguf *gguf);
const ae_gguf_kv *ae_gguf_kv_at(const ae_gguf *gguf, size_t i);
const ae_gguf_kv *ae_gguf_kv_find(const ae_gguf *gguf, const char *key); /* NULL if absent */
/* Override i of the options: whether anything has asked for its key so far. Of equal keys the last one counts. */
bool ae_gguf_override_was_read(const ae_gguf *gguf, size_t i);

size_t ae_gguf_n_tensors(const ae_gguf *gguf);
const ae_gguf_tensor *ae_gguf_tensor_at(const ae_gguf *gguf, size_t i);
const ae_gguf_tensor *ae_gguf_tensor_find(const ae_gguf *gguf, const char *name); /* NULL if absent */

/* Reads tensor data by offset, without touching mapped pages: a failing disk gives an error instead of a signal, and the data
 * is not in memory twice. One reader per thread; it keeps one file open at a time. A reader that is all zero is closed. */
typedef struct ae_gguf_reader {
    const ae_gguf *gguf;
    int fd; /* of file i_file, or -1 */
    uint32_t i_file;
} ae_gguf_reader;

ae_gguf_reader ae_gguf_reader_open(const ae_gguf *gguf);
void ae_gguf_reader_close(ae_gguf_reader *reader);
/* Bytes [offset, offset + n) of a tensor into out. Errors: IO, also if the file has been replaced since. */
aerie_status ae_gguf_read(ae_gguf_reader *reader, const ae_gguf_tensor *tensor, size_t offset, void *out, size_t n,
                          aerie_error *error);
/* Hints that this part will be read soon, or not again; no effect unless the reader has the tensor's file open. */
void ae_gguf_advise(ae_gguf_reader *reader, const ae_gguf_tensor *tensor, size_t offset, size_t n, ae_file_advice advice);

/* Typed reads. An absent key leaves *value alone (set the default first) and returns OK, unless `required`;
 * a value of a wrong type or out of range is FORMAT with key, found type and wanted type.
 * Integers may have any integer type, floats F32 or F64. */
aerie_status ae_gguf_get_u32(const ae_gguf *gguf, const char *key, bool required, uint32_t *value, aerie_error *error);
aerie_status ae_gguf_get_f32(const ae_gguf *gguf, const char *key, bool required, float *value, aerie_error *error);
aerie_status ae_gguf_get_bool(const ae_gguf *gguf, const char *key, bool required, bool *value, aerie_error *error);
aerie_status ae_gguf_get_string(const ae_gguf *gguf, const char *key, bool required, ae_gguf_string *value,
                                aerie_error *error);
/* The array under key, or NULL if absent (with `required`: an error). FORMAT if it is not an array of `element`. */
aerie_status ae_gguf_get_array(const ae_gguf *gguf, const char *key, bool required, ae_gguf_type element,
                               const ae_gguf_kv **value, aerie_error *error);

/* Element i of an array, or a scalar with i = 0, as integer or float; false when it is not one (a bool is
 * neither), when a u64 exceeds int64, or when i >= kv->n. */
bool ae_gguf_kv_int(const ae_gguf_kv *kv, uint64_t i, int64_t *value);
bool ae_gguf_kv_float(const ae_gguf_kv *kv, uint64_t i, double *value);
/* Strings of an array in order (a scalar string counts as one): start with *cursor = 0; false at the end, and
 * at once for a key of another type. */
bool ae_gguf_kv_next_string(const ae_gguf_kv *kv, size_t *cursor, ae_gguf_string *value);

const char *ae_gguf_type_name(ae_gguf_type type); /* "u32", "string", ... */

/* A number for the file's keys and tensors, from their names, shapes and samples of their bytes. It depends neither on their
 * order nor on how the file is split. Errors: IO. */
aerie_status ae_gguf_fingerprint(const ae_gguf *gguf, uint64_t *hash, aerie_error *error);

#endif

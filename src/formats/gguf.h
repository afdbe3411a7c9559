/* gguf.h - reading GGUF files (v2, v3, little-endian, one file or a split set). The file is hostile.
 *
 * Owns: the mapping of the file(s) and the parsed index. Lends: every name, value and tensor
 * pointer, until ae_gguf_close.
 * Invariants after a successful open:
 *   - every string, array and tensor is inside its file; sizes were computed with checked
 *     arithmetic; no two tensors overlap or share a name; no two keys are equal;
 *   - each tensor's type is known (formats/tensor_type.h), ne[0] is a multiple of its block,
 *     ne[i] >= 1, and the product of ne fits in int64; its offset is a multiple of the alignment;
 *   - index memory is bounded by the file's size, whatever counts the file claims: no single
 *     allocation exceeds 4 bytes per byte of file, and there are at most AE_GGUF_MAX_ENTRIES
 *     keys and as many tensors;
 *   - lookups are binary searches over sorted names, so no choice of names makes them slow.
 * The keys of a split set are those of its first part. Keys and names may hold any bytes, but are
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

/* Bytes in the file; not NUL-terminated, may hold any values. */
typedef struct ae_gguf_string {
    const char *data; /* [n], in the file */
    size_t n;
} ae_gguf_string;

typedef struct ae_gguf_kv {
    ae_gguf_string key;
    ae_gguf_type type;         /* of the value */
    ae_gguf_type element_type; /* of an array's elements, else equal to type; arrays of arrays are refused */
    uint64_t n;                /* elements; 1 for scalars */
    const uint8_t *data;       /* [bytes] the elements (a string is a u64 length and its bytes), unaligned */
    size_t bytes;              /* size of data */
} ae_gguf_kv;

typedef struct ae_gguf_tensor {
    ae_gguf_string name;
    uint32_t type;       /* ae_type */
    uint32_t n_dims;     /* 1..4 as written */
    int64_t ne[4];       /* elements of each dimension, fastest first; 1 beyond n_dims */
    size_t bytes;        /* size of data */
    const uint8_t *data; /* [bytes], aligned as in the file (up to 64 without mmap) or as in the caller's bytes if opened from
                          * memory; NULL if opened index_only */
    uint32_t i_file;     /* index of its file in a split set */
    uint64_t offset;     /* offset of data in that file */
} ae_gguf_tensor;

typedef struct ae_gguf ae_gguf;

typedef struct ae_gguf_options {
    bool no_mmap;    /* read into memory instead of mapping */
    bool index_only; /* read keys and tensor list only; tensors have no data, ae_gguf_read fetches them */
    const char *const *overrides; /* [n_overrides] "KEY=TYPE:VALUE": ae_gguf_kv_find and the typed reads return these values
                                   * instead of the file's. ARGUMENT if one cannot be parsed */
    size_t n_overrides;
    /* [n_parts] the files of a set of that many parts, whose names then need no numbers; path is one of them. NULL: find them
     * by name */
    const char *const *parts;
    uint32_t n_parts;
} ae_gguf_options;

/* Opens path; if it is any part of a split set ("name-00002-of-00005.gguf"), opens the whole set.
 * Errors: IO, FORMAT (what, where: byte offset, and the name of key or tensor), UNSUPPORTED (version,
 * big-endian, unknown tensor type, array of arrays), LIMIT (more than AE_GGUF_MAX_ENTRIES), MEMORY.
 * *out is NULL on failure. */
aerie_status ae_gguf_open(ae_gguf **out, const char *path, const ae_gguf_options *options, aerie_error *error);
/* The same over bytes that outlive the object (one file, not split); `name` is used in messages. */
aerie_status ae_gguf_open_memory(ae_gguf **out, const void *bytes, size_t n, const char *name, aerie_error *error);
void ae_gguf_close(ae_gguf *gguf);

/* The size of one file, and its place in a split set, as its header and tables give them. */
typedef struct ae_gguf_extent {
    uint64_t end, padded;  /* size of the file without and with the padding after its last tensor */
    uint32_t part, n_parts; /* part i of n of a split set, from 1; 1 of 1 for a single file */
} ae_gguf_extent;

/* Computes the size of a file from its first n bytes. out->end is 0 if its tables do not end within them. Errors: those of
 * ae_gguf_open, as far as the tables can be read. */
aerie_status ae_gguf_extent_read(ae_gguf_extent *out, const void *bytes, size_t n, const char *name, aerie_error *error);

const char *ae_gguf_path(const ae_gguf *gguf); /* as given to open */
uint32_t ae_gguf_version(const ae_gguf *gguf);
uint32_t ae_gguf_alignment(const ae_gguf *gguf);
/* Returns whether path is one of the opened files (under any name); false if there is no such file. */
bool ae_gguf_reads(const ae_gguf *gguf, const char *path);
uint32_t ae_gguf_n_files(const ae_gguf *gguf);
uint64_t ae_gguf_file_bytes(const ae_gguf *gguf); /* all parts together */

size_t ae_gguf_n_kv(const ae_gguf *gguf);
const ae_gguf_kv *ae_gguf_kv_at(const ae_gguf *gguf, size_t i);
const ae_gguf_kv *ae_gguf_kv_find(const ae_gguf *gguf, const char *key); /* NULL if absent */
/* Returns the key and value of override i of the options; NULL: there are not as many. */
const ae_gguf_kv *ae_gguf_override_at(const ae_gguf *gguf, size_t i);
/* Returns whether the key of override i of the options has been read so far. If several overrides have the same key, the last
 * one is used. */
bool ae_gguf_override_was_read(const ae_gguf *gguf, size_t i);

size_t ae_gguf_n_tensors(const ae_gguf *gguf);
const ae_gguf_tensor *ae_gguf_tensor_at(const ae_gguf *gguf, size_t i);
const ae_gguf_tensor *ae_gguf_tensor_find(const ae_gguf *gguf, const char *name); /* NULL if absent */

/* Reads tensor data by offset, without touching mapped pages: a failing disk gives an error instead of a signal, and the data
 * is not in memory twice. One reader per thread; it keeps one file open at a time. */
typedef struct ae_gguf_reader {
    const ae_gguf *gguf;
    int fd; /* file i_file, open; or -1 */
    uint32_t i_file;
} ae_gguf_reader;

ae_gguf_reader ae_gguf_reader_open(const ae_gguf *gguf);
void ae_gguf_reader_close(ae_gguf_reader *reader);
/* Reads bytes [offset, offset + n) of a tensor into out. Errors: IO, also if the file has been replaced since it was opened. */
aerie_status ae_gguf_read(ae_gguf_reader *reader, const ae_gguf_tensor *tensor, size_t offset, void *out, size_t n,
                          aerie_error *error);
/* Hints that this part will be read soon, or not again; no effect unless the reader has the tensor's file open. */
void ae_gguf_advise(ae_gguf_reader *reader, const ae_gguf_tensor *tensor, size_t offset, size_t n, ae_file_advice advice);

/* ---- Typed reads ----
 * If a key is absent, they leave *value unchanged (set the default first) and return OK, or FORMAT if `required`. A value of a
 * wrong type or out of range is FORMAT with key, found type and wanted type. Integers may have any integer type, floats F32 or
 * F64. */
aerie_status ae_gguf_get_u32(const ae_gguf *gguf, const char *key, bool required, uint32_t *value, aerie_error *error);
aerie_status ae_gguf_get_f32(const ae_gguf *gguf, const char *key, bool required, float *value, aerie_error *error);
aerie_status ae_gguf_get_bool(const ae_gguf *gguf, const char *key, bool required, bool *value, aerie_error *error);
aerie_status ae_gguf_get_string(const ae_gguf *gguf, const char *key, bool required, ae_gguf_string *value,
                                aerie_error *error);
/* Returns the array under key, or NULL if absent (with `required`: an error). FORMAT if it is not an array of `element`. */
aerie_status ae_gguf_get_array(const ae_gguf *gguf, const char *key, bool required, ae_gguf_type element,
                               const ae_gguf_kv **value, aerie_error *error);

/* Element i of an array, or a scalar with i = 0, as an integer; false if it is of another type (a bool is not an integer), if a
 * u64 exceeds int64, or if i >= kv->n. */
bool ae_gguf_kv_int(const ae_gguf_kv *kv, uint64_t i, int64_t *value);
/* Element i of an array, or a scalar with i = 0, as a float; false if it is not an F32 or F64, or if i >= kv->n. */
bool ae_gguf_kv_float(const ae_gguf_kv *kv, uint64_t i, double *value);
/* Reads the next string of an array (a scalar string counts as an array of one): start with *cursor = 0; returns false at the
 * end, and at once for a key of another type. */
bool ae_gguf_kv_next_string(const ae_gguf_kv *kv, size_t *cursor, ae_gguf_string *value);

const char *ae_gguf_type_name(ae_gguf_type type); /* "u32", "string", ... */

/* Computes a hash that identifies the model: of the keys that affect what it computes, and of the names, types, shapes and
 * samples of the bytes of its tensors. It depends neither on their order nor on how the file is split. Errors: IO. */
aerie_status ae_gguf_fingerprint(const ae_gguf *gguf, uint64_t *hash, aerie_error *error);

#endif

/* safetensors.h - reading safetensors checkpoints: one file, or shards under an index. The files are hostile.
 *
 * Owns: the mapping of the files and the index. Lends: names and data, until ae_safetensors_close.
 * Invariants after a successful open:
 *   - every tensor's type is known; its number of elements and of bytes were computed with checked arithmetic and agree with
 *     its offsets; the tensors of a file fill its data section without overlaps and holes, as the format demands;
 *   - names are distinct, sorted, not empty, and hold no NUL; lookups are binary searches;
 *   - headers and indices are at most AE_ST_MAX_HEADER bytes, so memory is bounded whatever they claim;
 *   - a shard is in the folder of its index: names with a path in them are refused;
 *   - in a set of ranks a tensor is in one file for all ranks, or in one file of each rank.
 * Numbers are little-endian at any address: copy before use. The reader does not interpret names or metadata.
 * Source: the safetensors format (github.com/huggingface/safetensors, README), model.safetensors.index.json of transformers;
 * for sets of ranks, the files of xai-org/grok-2.
 */
#ifndef AE_GGUF_SAFETENSORS_H
#define AE_GGUF_SAFETENSORS_H

#include "base/os.h"

#define AE_ST_MAX_HEADER ((size_t)32 << 20) /* real headers have less than 1 MiB, at most 10 MiB */
#define AE_ST_MAX_DIMS 8
#define AE_ST_MAX_FILES 4096

/* X(name as in the file, bytes) */
#define AE_ST_DTYPE_LIST(X) \
    X(BOOL, 1)              \
    X(U8, 1)                \
    X(I8, 1)                \
    X(F8_E4M3, 1)           \
    X(F8_E5M2, 1)           \
    X(F8_E8M0, 1)           \
    X(U16, 2)               \
    X(I16, 2)               \
    X(F16, 2)               \
    X(BF16, 2)              \
    X(U32, 4)               \
    X(I32, 4)               \
    X(F32, 4)               \
    X(U64, 8)               \
    X(I64, 8)               \
    X(F64, 8)

typedef enum ae_st_dtype {
#define AE_ST_ENUM(name, bytes) AE_ST_##name,
    AE_ST_DTYPE_LIST(AE_ST_ENUM)
#undef AE_ST_ENUM
    AE_ST_DTYPE_COUNT
} ae_st_dtype;

typedef struct ae_st_tensor {
    const char *name; /* NUL-terminated UTF-8, any characters but NUL */
    ae_st_dtype dtype;
    uint32_t n_dims;                /* 0: a single number */
    uint64_t shape[AE_ST_MAX_DIMS]; /* slowest first; 1 beyond n_dims */
    uint64_t n;                     /* elements, may be 0 */
    const uint8_t *data;            /* [bytes], any alignment */
    size_t bytes;
    uint32_t i_file;
    const struct ae_st_tensor *next_rank; /* in a set of ranks: the next rank's tensor of this name; NULL: there is none */
} ae_st_tensor;

typedef struct ae_safetensors ae_safetensors;

/* path: a file, an index (its name ends in .json), or a folder with model.safetensors, model.safetensors.index.json,
 * exactly one other *.safetensors, all shards of a set ("NAME-00001-of-00002.safetensors") or a set of ranks, that is, for each
 * of the numbers from 0 a file for all ranks ("NAME-00000-TP-common.safetensors"), one for each rank
 * ("NAME-00000-TP-000.safetensors"), or both; the ranks' tensors of a name are then one tensor (next_rank). Errors: IO, FORMAT
 * (what, where, and the tensor), UNSUPPORTED (an unknown element type), LIMIT, MEMORY. *out is NULL on failure. */
aerie_status ae_safetensors_open(ae_safetensors **out, const char *path, aerie_error *error);
/* Opens the bytes of one file, which must outlive the object; `name` is used in messages. */
aerie_status ae_safetensors_open_memory(ae_safetensors **out, const void *bytes, size_t n, const char *name,
                                        aerie_error *error);
void ae_safetensors_close(ae_safetensors *st);

/* Returns the number of files in use. */
uint32_t ae_safetensors_n_files(const ae_safetensors *st);
/* Returns the path of a file, for messages. */
const char *ae_safetensors_file(const ae_safetensors *st, uint32_t i_file);
size_t ae_safetensors_n_tensors(const ae_safetensors *st);
const ae_st_tensor *ae_safetensors_tensor_at(const ae_safetensors *st, size_t i); /* by name, ascending (strcmp) */
const ae_st_tensor *ae_safetensors_tensor_find(const ae_safetensors *st, const char *name); /* NULL if absent */

const char *ae_st_dtype_name(ae_st_dtype dtype); /* "BF16" */
size_t ae_st_dtype_bytes(ae_st_dtype dtype);

#endif

/* safetensors_int.h - a checkpoint's files and tensors, shared by the readers of its formats (safetensors.c, torch.c). */
#ifndef AE_GGUF_SAFETENSORS_INT_H
#define AE_GGUF_SAFETENSORS_INT_H

#include "base/mem.h"
#include "formats/safetensors.h"

typedef struct ae_st_file {
    ae_file_map map; /* empty when the caller lends the bytes */
    const uint8_t *data; /* [bytes] */
    size_t bytes;
    const char *path;
    ae_st_tensor *tensors; /* [n_tensors], by name */
    size_t n_tensors;
} ae_st_file;

struct ae_safetensors {
    ae_arena arena; /* paths, names, tensors */
    ae_st_file *files; /* [n_files] */
    uint32_t n_files;
    ae_st_tensor *tensors; /* [n_tensors], by name */
    size_t n_tensors;
};

/* Creates an empty checkpoint with room for n_files files. The caller closes *out also after a failure. */
aerie_status ae_st_start(ae_safetensors **out, uint32_t n_files, aerie_error *error);
/* Adds a file, mapped, or lent by the caller if bytes is not NULL, without parsing it. *out points to it. */
aerie_status ae_st_add(ae_safetensors *st, const char *path, const void *bytes, size_t n, ae_st_file **out, aerie_error *error);
/* Replaces *tensors by a new list sorted by name; order [n] is scratch. */
aerie_status ae_st_sort(ae_arena *arena, ae_st_tensor **tensors, size_t n, uint32_t *order, aerie_error *error);
/* Completes opening, given its status: without an index, the one file's tensors become those of the checkpoint. After a failure
 * closes *out and sets it to NULL. Returns the status. */
aerie_status ae_st_settle(ae_safetensors **out, aerie_status status);

#endif

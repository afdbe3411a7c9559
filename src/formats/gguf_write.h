/* gguf_write.h - writing GGUF v3 files.
 *
 * Use: create, add keys and tensor descriptions, then ae_gguf_writer_begin (writes the header to
 * a temporary file beside the target), then each tensor's data in the order in which it was
 * described, in pieces of any size, then ae_gguf_writer_finish, which renames the file into place.
 * To read the file before it gets its name, call ae_gguf_writer_close first.
 * A writer freed before finish leaves no file.
 * If a file is replaced, the new one gets its mode, and its owner as far as the system allows. If path is a symbolic link, the
 * link stays, and its target is replaced.
 * general.alignment, if added, must be a u32, a power of two from 8 to 1048576; else 32 is used.
 * Errors: ARGUMENT (wrong order of calls, a name twice, a shape that does not suit its type, too
 * much or too little data), IO (with the system's reason), MEMORY. After IO every later call but
 * ae_gguf_writer_free fails.
 */
#ifndef AE_GGUF_GGUF_WRITE_H
#define AE_GGUF_GGUF_WRITE_H

#include "formats/gguf.h"

typedef struct ae_gguf_writer ae_gguf_writer;

aerie_status ae_gguf_writer_create(ae_gguf_writer **out, const char *path, aerie_error *error);
void ae_gguf_writer_free(ae_gguf_writer *writer);

/* ---- Keys: a second value for a key is ARGUMENT ---- */
aerie_status ae_gguf_writer_u16(ae_gguf_writer *writer, const char *key, uint16_t value, aerie_error *error);
aerie_status ae_gguf_writer_u32(ae_gguf_writer *writer, const char *key, uint32_t value, aerie_error *error);
aerie_status ae_gguf_writer_i32(ae_gguf_writer *writer, const char *key, int32_t value, aerie_error *error);
aerie_status ae_gguf_writer_f32(ae_gguf_writer *writer, const char *key, float value, aerie_error *error);
aerie_status ae_gguf_writer_bool(ae_gguf_writer *writer, const char *key, bool value, aerie_error *error);
aerie_status ae_gguf_writer_string(ae_gguf_writer *writer, const char *key, const char *value, aerie_error *error);
/* Adds an array of n scalars of type `element`, packed as in the file (little-endian). */
aerie_status ae_gguf_writer_array(ae_gguf_writer *writer, const char *key, ae_gguf_type element, const void *values,
                                  size_t n, aerie_error *error);
aerie_status ae_gguf_writer_strings(ae_gguf_writer *writer, const char *key, const ae_gguf_string *values, size_t n,
                                    aerie_error *error);
/* Copies a key with its value, whatever its type. (Do not copy the split.* keys of a part into a whole file.) */
aerie_status ae_gguf_writer_copy(ae_gguf_writer *writer, const ae_gguf_kv *kv, aerie_error *error);

/* Describes a tensor: ne[n_dims], fastest first; ne[0] is a multiple of the type's block. */
aerie_status ae_gguf_writer_tensor(ae_gguf_writer *writer, const char *name, uint32_t type, uint32_t n_dims,
                                   const int64_t *ne, aerie_error *error);
/* Creates the temporary file and writes the header. Errors also: ARGUMENT if a tensor was described twice. */
aerie_status ae_gguf_writer_begin(ae_gguf_writer *writer, aerie_error *error);
/* Writes the next n bytes of tensor data; the writer adds the padding between tensors. */
aerie_status ae_gguf_writer_data(ae_gguf_writer *writer, const void *bytes, size_t n, aerie_error *error);
/* Completes the temporary file (ae_gguf_writer_part) and flushes it to disk. */
aerie_status ae_gguf_writer_close(ae_gguf_writer *writer, aerie_error *error);
/* Returns the temporary file's path; NULL before _begin and after _finish. Lent. */
const char *ae_gguf_writer_part(const ae_gguf_writer *writer);
/* Calls ae_gguf_writer_close unless that was done, then renames the file into place. */
aerie_status ae_gguf_writer_finish(ae_gguf_writer *writer, aerie_error *error);

#endif

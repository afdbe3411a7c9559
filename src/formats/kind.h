/* kind.h - what a file or folder is that was given where another kind is wanted, in words that say where it belongs.
 *
 * Owns the marks by which kinds are told: first bytes, names in a folder, keys and tensors of a GGUF file. Reads at most the
 * first AE_KIND_BYTES of a file, and only when something has already failed or before a long work begins.
 * Sources: each program's own files; huggingface_hub, PEFT, ModelOpt, llama.cpp's llama-imatrix and convert_lora_to_gguf.py.
 */
#ifndef AE_FORMATS_KIND_H
#define AE_FORMATS_KIND_H

#include "formats/gguf.h"

#define AE_KIND_BYTES ((size_t)64 << 10)

/* What a file with this beginning is, as the end of a sentence ("a Git LFS pointer, ..."); NULL: unknown, or GGUF. */
const char *ae_kind_bytes(const void *data, size_t n);
/* The same, but a GGUF file has an answer, too. */
const char *ae_kind_data(const void *data, size_t n);
/* Whether it is a Git LFS pointer. */
bool ae_kind_is_pointer(const void *data, size_t n);
/* The same as ae_kind_bytes for a folder; NULL: unknown, or it is none. */
const char *ae_kind_folder(const char *path);
/* ae_kind_data or ae_kind_folder of what lies under a path. NULL: unknown, or it cannot be read. */
const char *ae_kind_path(const char *path);
/* Whether a folder's config is that of a checkpoint that ModelOpt quantized to 4-bit floats. */
bool ae_kind_is_modelopt_fp4(const char *folder);

/* What a GGUF file is for. */
typedef enum ae_role {
    AE_ROLE_MODEL, /* also drafter heads and vocabularies: whatever is none of the others */
    AE_ROLE_ADAPTER,
    AE_ROLE_IMATRIX,
    AE_ROLE_MMPROJ,
    AE_ROLE_CONTROL_VECTOR,
} ae_role;
ae_role ae_role_of(const ae_gguf *gguf);
/* Whether the file at `path` has another one, such as the projector that lies beside a model. */
bool ae_role_is_other(const char *path);
/* FORMAT unless the file has the role: one sentence that says what it is and how it is used. */
aerie_status ae_role_need(const ae_gguf *gguf, ae_role wanted, aerie_error *error);

#endif

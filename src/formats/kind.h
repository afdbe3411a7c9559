/* kind.h - recognizes files and folders of the wrong kind and describes them for messages: what it is and how it is used.
 *
 * Owns: the marks by which kinds are recognized: first bytes, names in a folder, keys and tensors of a GGUF file. Reads at most
 * the first AE_KIND_BYTES of a file, and only after something has failed or before a long task begins.
 * Sources: each program's own files; huggingface_hub, PEFT, ModelOpt, llama.cpp's llama-imatrix and convert_lora_to_gguf.py.
 */
#ifndef AE_FORMATS_KIND_H
#define AE_FORMATS_KIND_H

#include "formats/gguf.h"

#define AE_KIND_BYTES ((size_t)64 << 10)

/* Describes a file by its first n bytes, as the end of a sentence ("a Git LFS pointer, ..."); NULL: unknown, or GGUF. */
const char *ae_kind_bytes(const void *data, size_t n);
/* The same, but also describes a GGUF file. */
const char *ae_kind_data(const void *data, size_t n);
/* Returns whether it is a Git LFS pointer. */
bool ae_kind_is_pointer(const void *data, size_t n);
/* Returns whether it is an importance matrix in the format that llama.cpp wrote until 2025. */
bool ae_kind_is_old_imatrix(const void *data, size_t n);
/* Describes a folder in the same way; NULL: unknown, or not a folder. */
const char *ae_kind_folder(const char *path);
/* Describes the file (ae_kind_data) or folder (ae_kind_folder) at a path. NULL: unknown, or it cannot be read. */
const char *ae_kind_path(const char *path);

/* The purpose of a GGUF file. */
typedef enum ae_role {
    AE_ROLE_MODEL, /* also drafter heads and vocabularies: every file without another role */
    AE_ROLE_ADAPTER,
    AE_ROLE_IMATRIX,
    AE_ROLE_MMPROJ,
    AE_ROLE_CONTROL_VECTOR,
} ae_role;
ae_role ae_role_of(const ae_gguf *gguf);
/* Returns whether the file at `path` is a GGUF file with a role other than AE_ROLE_MODEL, such as a projector beside a
 * model. */
bool ae_role_is_other(const char *path);
/* Fails with FORMAT unless the file has the wanted role; the message says what the file is and how it is used. */
aerie_status ae_role_need(const ae_gguf *gguf, ae_role wanted, aerie_error *error);

#endif

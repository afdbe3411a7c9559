/* torch.h - reading PyTorch checkpoints (pytorch_model.bin, *.pt) as tables of tensors, without running them. Hostile input.
 *
 * Such a file is a zip archive: a pickle that says which tensors there are, and their numbers as records of their own. A
 * pickle is a program; here it is read by a machine that knows dictionaries, tuples, numbers, texts and the two calls that
 * make a tensor of a record. It can do nothing else: whatever it asks for beyond is refused by name. Its steps, stack and
 * memory are bounded by the file's size.
 * The result is lent as if it had come from a safetensors file (same struct, same invariants but one: tensors may share bytes).
 * Source: torch.save since 1.6 (zip), pickle protocol 2 (Lib/pickletools.py), APPNOTE.TXT 6.3 for zip and zip64.
 */
#ifndef AE_GGUF_TORCH_H
#define AE_GGUF_TORCH_H

#include "formats/safetensors.h"

/* Errors: as ae_safetensors_open; UNSUPPORTED for files before PyTorch 1.6, for compressed records, calls other than those of
 * tensors, tensors that are not contiguous. */
aerie_status ae_torch_open(ae_safetensors **out, const char *path, aerie_error *error);
aerie_status ae_torch_open_memory(ae_safetensors **out, const void *bytes, size_t n, const char *name, aerie_error *error);

#endif

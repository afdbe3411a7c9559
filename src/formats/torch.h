/* torch.h - reading PyTorch checkpoints (pytorch_model.bin, *.pt) as tables of tensors, without running them. Hostile input.
 *
 * Such a file is a zip archive with a pickle that describes the tensors, and a record for the data of each storage. A pickle is
 * a program. The interpreter here knows only dictionaries, tuples, numbers, strings and the calls that build tensors from
 * records; it refuses any other call with a message that names it. Steps, stack and memory are bounded by the file's size.
 * The result looks like that of a safetensors file (same struct, same invariants except that tensors may share bytes).
 * Source: torch.save since 1.6 (zip), pickle protocol 2 (Lib/pickletools.py), APPNOTE.TXT 6.3 for zip and zip64.
 */
#ifndef AE_GGUF_TORCH_H
#define AE_GGUF_TORCH_H

#include "formats/safetensors.h"

/* Errors: those of ae_safetensors_open; UNSUPPORTED also for files from before PyTorch 1.6, compressed records, calls that do
 * not build tensors, and tensors that are not contiguous. */
aerie_status ae_torch_open(ae_safetensors **out, const char *path, aerie_error *error);
aerie_status ae_torch_open_memory(ae_safetensors **out, const void *bytes, size_t n, const char *name, aerie_error *error);

#endif

/* convert.h - converts checkpoints of other programs to GGUF files.
 *
 * Every kind of checkpoint takes the same four steps: detect (its kind and sizes), plan (the list of tensors to write, with
 * their sources and shapes checked), write (a complete file under a temporary name), check (the file is read back, and compared
 * with the model that it belongs to). The file gets its final name after the last check.
 * Owns: the checkpoint and everything derived from it, until ae_convert_free. Prints nothing: remarks go to a callback.
 */
#ifndef AE_CONVERT_CONVERT_H
#define AE_CONVERT_CONVERT_H

#include "convert/checkpoint/options.h"

/* Finds the type of a name among those in which matrices can be written. Returns false if there is none. */
bool ae_convert_type_parse(const char *name, uint32_t *type);

/* Opens the checkpoint and detects its kind. Errors: ARGUMENT (options that contradict the checkpoint), IO, FORMAT,
 * UNSUPPORTED, MEMORY.
 * On failure *out is NULL. */
aerie_status ae_convert_open(ae_convert **out, const ae_convert_options *options, aerie_error *error);
/* Plans, writes and checks the file, and gives it its final name. Errors: those of ae_convert_open, and CANCELLED. */
aerie_status ae_convert_run(ae_convert *c, aerie_error *error);
void ae_convert_free(ae_convert *c);

/* The detected facts and, after ae_convert_run, the result. Borrowed until ae_convert_free. */
typedef struct ae_convert_report {
    const ae_convert_head *head;   /* one of these five is not NULL */
    const ae_convert_encoder *encoder;
    const ae_convert_model *model;
    const ae_convert_adapter *adapter;
    const ae_convert_tower *tower;
    const ae_convert_check *check; /* NULL: there was no self-check */
    const char *kind;              /* "EAGLE-3.1" */
    size_t n_tensors;
    uint64_t bytes; /* total size of the file's tensors */
    uint32_t type;  /* type of the matrices */
} ae_convert_report;

ae_convert_report ae_convert_reported(const ae_convert *c);

#endif

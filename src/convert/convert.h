/* convert.h - checkpoints of other programs to GGUF files.
 *
 * Every kind of checkpoint goes the same four steps: detect (which kind it is, and its sizes), plan (the list of tensors to
 * write, with their sources and shapes checked), write (a complete file under a temporary name), check (the file is read
 * back, and compared with the model that it belongs to). The file gets its final name after the last check.
 * Owns: the checkpoint and all that is derived from it, until ae_convert_free. Prints nothing: remarks go to a callback.
 */
#ifndef AE_CONVERT_CONVERT_H
#define AE_CONVERT_CONVERT_H

#include "convert/checkpoint/options.h"

/* A type that matrices can be written in; false: none of that name. */
bool ae_convert_type_parse(const char *name, uint32_t *type);

/* Opens the checkpoint and detects what it is. Errors: ARGUMENT (options that contradict the checkpoint), IO, FORMAT,
 * UNSUPPORTED, MEMORY; the same for ae_convert_run, and CANCELLED. *out is NULL on failure. */
aerie_status ae_convert_open(ae_convert **out, const ae_convert_options *options, aerie_error *error);
/* Plans, writes, checks, and gives the file its name. */
aerie_status ae_convert_run(ae_convert *c, aerie_error *error);
void ae_convert_free(ae_convert *c);

/* What was detected and, after ae_convert_run, done. Lent. */
typedef struct ae_convert_report {
    const ae_convert_head *head;   /* one of these three */
    const ae_convert_encoder *encoder;
    const ae_convert_model *model;
    const ae_convert_check *check; /* NULL: there was no self-check */
    const char *kind;              /* "EAGLE-3.1" */
    size_t n_tensors;
    uint64_t bytes; /* of tensors in the file */
    uint32_t type;  /* of matrices */
} ae_convert_report;

ae_convert_report ae_convert_reported(const ae_convert *c);

#endif

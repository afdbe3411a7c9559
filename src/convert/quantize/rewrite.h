/* rewrite.h - rewrites a GGUF file with other tensor types (quantizing) and, optionally, other shapes.
 * Owns the plan (the new type and shape of every tensor, the new keys) and its execution. Does not own the file that is
 * read, which must outlive the plan, or the choice of types by a mix (mix.h).
 * Invariants: tensors keep their order and, unless layers are left out, their names; a tensor whose type and shape do not
 * change is copied byte for byte; any other is decoded to f32 and encoded row by row by the encoders of types.h, so the bytes
 * depend neither on threads nor on chunks. All keys are kept except split.*, general.file_type, general.quantization_version
 * and those in settings; overrides with which the file was opened are written. Memory: two chunks of some MiB and a row per
 * thread, whatever the size of the file. The target's path is not touched before the new file is complete. */
#ifndef AE_CONVERT_QUANTIZE_REWRITE_H
#define AE_CONVERT_QUANTIZE_REWRITE_H

#include "convert/quantize/imatrix.h"
#include "convert/quantize/mix.h"
#include "quant/encode/encoder.h"

typedef struct ae_rewrite_tensor {
    const ae_gguf_tensor *from;
    ae_gguf_string name;    /* as written */
    bool weighed;           /* settings.imatrix weights the errors */
    bool weight;            /* can be quantized (ae_mix_is_weight); other tensors keep their type */
    uint32_t type, wanted;  /* type: as written; wanted: as requested, before the length of the rows was considered */
    uint32_t row_copies;    /* how often each row of a matrix, or element of a vector, occurs in the new file */
    uint32_t column_copies; /* the same for each column of a matrix, which is divided by that number */
    int64_t ne[4];          /* as written */
    size_t bytes;           /* as written */
} ae_rewrite_tensor;

/* Sets the type of weights whose names contain a match of the regular expression, ignoring case. */
typedef struct ae_rewrite_rule {
    const char *pattern;
    uint32_t type;
} ae_rewrite_rule;

typedef struct ae_rewrite_key {
    const char *key;
    uint32_t value;
} ae_rewrite_key;

/* Sets row_copies and column_copies of one tensor (1 before), or refuses the file. */
typedef aerie_status ae_rewrite_shape(void *context, ae_rewrite_tensor *tensor, aerie_error *error);

typedef struct ae_rewrite_settings {
    const ae_mix *mix;
    uint32_t output_type,
        embedding_type;           /* of output.weight (tied: the embeddings) and token_embd.weight, or AE_MIX_AS_IS */
    const ae_rewrite_rule *rules; /* [n_rules]; the first match counts */
    size_t n_rules;
    bool pure;                  /* all weights get the mix's main type */
    bool leave_output;          /* output.weight stays as it is */
    bool allow_requantize;      /* quantized weights may be quantized again */
    /* Weights the errors of the weights that it lists and that are not copied; must outlive the run. NULL: none. */
    const ae_imatrix *imatrix;
    const ae_rewrite_key *keys; /* [n_keys] u32 keys with new values */
    size_t n_keys;
    ae_rewrite_shape *shape; /* NULL: shapes do not change */
    void *shape_context;
    bool only_copied; /* weights without copies keep their type, whatever the mix says */
    /* Rows or columns are copied in groups of this many: a group, then the same group again, and so on. 1: the copies of each
     * row are adjacent. If the length is not a multiple, all of it is one group. */
    uint32_t copy_group;
    /* Each copy compensates the rounding errors of those before it, so that r copies together are r times as exact as one:
     * always for rows, for columns only if a group is whole blocks. */
    bool copies_carry;
    const uint32_t *pruned; /* [n_pruned] layers that are left out, ascending; those after them get new numbers */
    size_t n_pruned;
    /* A split model becomes one of as many parts, each with its tensors. A part but the first that would have no tensors is not
     * written; those after it get new numbers. */
    bool keep_split;
} ae_rewrite_settings;

ae_rewrite_settings ae_rewrite_settings_default(const ae_mix *mix);

typedef struct ae_rewrite ae_rewrite;

/* Makes all decisions without reading tensor data. Errors: ARGUMENT (a bad pattern, a type without encoder, quantizing again
 * without permission), FORMAT (also an importance matrix of other shapes), LIMIT (a shape that overflows), MEMORY, and those of
 * `shape`. On failure *out is NULL. */
aerie_status ae_rewrite_plan(ae_rewrite **out, const ae_gguf *gguf, const ae_rewrite_settings *settings,
                             aerie_error *error);
void ae_rewrite_free(ae_rewrite *rewrite);

size_t ae_rewrite_n_tensors(const ae_rewrite *rewrite);
const ae_rewrite_tensor *ae_rewrite_tensor_at(const ae_rewrite *rewrite, size_t i);
/* Returns the number of weights for which rule i was the first that matched. */
size_t ae_rewrite_rule_uses(const ae_rewrite *rewrite, size_t i);
/* Returns the number of files to be written. */
uint32_t ae_rewrite_n_files(const ae_rewrite *rewrite);
/* Returns whether a tensor is copied byte for byte. */
bool ae_rewrite_keeps(const ae_rewrite_tensor *tensor);

/* After a run that left layers out: whether the other layers could be compared with what they were. */
bool ae_rewrite_was_checked(const ae_rewrite *rewrite);

/* Starts the new file in the folder of `path`; several are called as the parts of a split model are, with path without .gguf as
 * their prefix. Errors: ARGUMENT (path is a file that is being read), IO, MEMORY. */
aerie_status ae_rewrite_begin(ae_rewrite *rewrite, const char *path, aerie_error *error);
/* Writes everything, and renames the file. progress (bytes written; may be NULL) cancels by returning false. Errors: IO,
 * FORMAT (a weight that is not finite), MEMORY, CANCELLED; ARGUMENT if layers are left out and the numbers of the others decide
 * what they compute. */
aerie_status ae_rewrite_run(ae_rewrite *rewrite, uint32_t n_threads, aerie_progress *progress, void *user,
                            aerie_error *error);

#endif

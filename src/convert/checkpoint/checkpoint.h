/* checkpoint.h - the state of a conversion, and what all kinds of checkpoints share. Private to src/convert.
 * A kind fills the list of items and writes the keys. Opening, names, values of config.json, writing rows and the final name
 * are the same for all kinds (convert.c, checkpoint.c, names.c, write.c). A function that fails puts its message into
 * c->error. */
#ifndef AE_CONVERT_CHECKPOINT_CHECKPOINT_H
#define AE_CONVERT_CHECKPOINT_CHECKPOINT_H

#include <jansson.h>

#include "base/mem.h"
#include "base/log.h"
#include "convert/checkpoint/options.h"
#include "formats/gguf_write.h"
#include "formats/safetensors.h"

/* A tensor of the checkpoint under a name that does not depend on the producer. */
typedef struct ae_convert_entry {
    const char *name; /* "layers.0.self_attn.q_proj.weight" */
    const ae_st_tensor *tensor;
    bool used;
} ae_convert_entry;

typedef enum ae_convert_how {
    AE_CONVERT_PLAIN,
    AE_CONVERT_ROTATED, /* rows of q or k: reordered from rotate-half to interleaved, unless c->head.pairs */
    AE_CONVERT_IDS,     /* the ids, as I64 */
    AE_CONVERT_VALUES,  /* the values */
    AE_CONVERT_UNIT,    /* a unit matrix */
    AE_CONVERT_WHOLE,   /* whole numbers, as I32 */
} ae_convert_how;

/* What happens to each number. */
typedef enum ae_convert_change {
    AE_CONVERT_SAME,
    AE_CONVERT_PLUS_ONE,
    AE_CONVERT_MINUS_EXP, /* -exp(x) */
    AE_CONVERT_EXP,       /* exp(x) */
} ae_convert_change;

/* A tensor to write. */
typedef struct ae_convert_item {
    const char *name;
    ae_convert_how how;
    ae_convert_change change;   /* PLAIN only */
    const ae_st_tensor *from;   /* PLAIN, ROTATED and WHOLE */
    const ae_st_tensor *const *parts; /* PLAIN: [n_stack] a tensor for each matrix of the stack, instead of `from` */
    const uint64_t *starts;     /* PLAIN: [n_parts + 1] `parts` are stacked vertically: the first row of each, then the number
                                 * of rows */
    uint32_t n_parts;           /* with `starts` */
    const ae_st_tensor *beside; /* PLAIN: has the second half of each row, and `from` the first; both matrices have the same
                                 * shape */
    uint64_t first;             /* index of the first element of `from` */
    uint64_t stack_step, row_step,
        step; /* distances in elements of `from` between matrices, rows and numbers; 0: contiguous */
    const uint32_t *row_from, *column_from; /* PLAIN: [rows], [columns] index of each in `from`; NULL: the same order */
    const float *factors;       /* PLAIN: [rows] factor of each row; NULL: none */
    const float *values;        /* VALUES: [rows * columns] */
    const int64_t *ids;         /* IDS: [columns] */
    uint64_t n_stack, rows, columns; /* n_stack 0: two dimensions; rows 0: one dimension */
    uint32_t head_dim, n_rot;   /* ROTATED: rows of a head; the first n_rot of them are rotated */
    bool f32;                   /* written as F32, whatever type the matrices have */
    bool f16;                   /* written as F16 if the matrices are Q8_0 */
    bool floating;              /* written as F16 if the matrices are F16, else as F32 */
    uint32_t n_zero;            /* PLAIN: this many matrices at the start of the stack are zeros, which `from` lacks */
    bool fourth;                /* a stack of single rows whose index is the fourth dimension */
    float plus;                 /* PLAIN: added to each number */
    float ternary;              /* PLAIN: each number becomes -1, 0 or 1 times this one; 0: it does not */
    uint32_t kernel;            /* the columns are [..][kernel][kernel], written as separate dimensions; 0: they are not */
    uint32_t type;              /* ae_type in the new file */
    bool as_is;                 /* NVFP4 that stays what it is; a tensor "NAME.scale" has the factors of its matrices */
} ae_convert_item;

/* A kind of checkpoint; the functions are called in this order. */
typedef struct ae_convert_kind {
    /* Reads names and sizes. Sets *mine to false if the checkpoint is of another kind; then the error says what is missing. */
    aerie_status (*detect)(ae_convert *c, bool *mine);
    aerie_status (*plan)(ae_convert *c);                            /* calls ae_convert_add for each tensor; sets out_type */
    aerie_status (*keys)(const ae_convert *c, ae_gguf_writer *w);   /* writes all keys, general.architecture included */
    aerie_status (*check)(ae_convert *c);                           /* checks the complete file in c->writer, and may
                                                                     * replace it */
} ae_convert_kind;

extern const ae_convert_kind ae_convert_drafter_head, ae_convert_encoder_kind, ae_convert_decoder, ae_convert_adapter_kind,
    ae_convert_mmproj_kind;

struct ae_convert {
    ae_convert_options options;
    const ae_convert_kind *kind;
    aerie_error *error; /* of the current call; may be NULL */
    ae_arena arena;
    const char *path;        /* path of the checkpoint, as given */
    const char *config_path; /* for messages; "" if there is none */
    /* the whole file, its part about the layer, and eagle_config; the last two are borrowed and may be NULL */
    json_t *config, *layer, *eagle;
    ae_safetensors *st;
    ae_convert_entry *entries; /* [n_entries] sorted by name */
    size_t n_entries;
    ae_convert_item *items; /* [n_items] */
    size_t n_items, capacity;
    uint32_t out_type;
    uint64_t out_bytes;
    ae_gguf_writer *writer; /* the complete output, which is renamed when all checks have passed */

    /* drafter heads */
    ae_model *target; /* the model for a head or an adapter; NULL: not given */
    ae_convert_head head;
    const char *head_kind; /* name of the head's kind, set when the file is read back */
    ae_convert_check check;

    /* encoders */
    ae_convert_encoder encoder;

    /* vision encoders */
    ae_convert_tower tower;
    const struct ae_mmproj_family *tower_family;

    bool is_adapter; /* as shown by the names of its tensors or by adapter_config.json */
    ae_convert_adapter adapter;

    /* models only; their rotation is in `head` */
    const struct ae_convert_arch *arch;
    ae_convert_model model;
    const char *decision_config; /* name of the file about Laya's or Julia's decision head, which implies folders encoder/ and
                                  * tokenizer/; NULL: none */
    ae_safetensors *dense[2]; /* the dense layers after the pooling; NULL: none */
    ae_safetensors *joint; /* the decision head's file; NULL: none */
};

/* ---- checkpoint.c: the files, config.json --------------------------------------------------------------- */

aerie_status ae_convert_no_memory(const ae_convert *c, const char *what);
/* Reports progress. Returns CANCELLED if the caller wants to stop. */
aerie_status ae_convert_step(const ae_convert *c, const char *step, uint64_t done, uint64_t total);
aerie_status ae_convert_open_tensors(ae_convert *c);
aerie_status ae_convert_read_config(ae_convert *c);
/* These read a value by its key, first from the layer's part, then from the whole config. *value is unchanged if the key is
 * absent or null. */
const json_t *ae_convert_value(const ae_convert *c, const char *key);
aerie_status ae_convert_u32(const ae_convert *c, const char *key, uint32_t lo, uint32_t hi, uint32_t *value);
aerie_status ae_convert_need_u32(const ae_convert *c, const char *key, uint32_t lo, uint32_t hi, uint32_t *value);
aerie_status ae_convert_real(const ae_convert *c, const json_t *value, const char *key, double lo, double hi, double *out);
aerie_status ae_convert_bool(const ae_convert *c, const char *key, bool *value, bool *given);
/* Reads a string; NULL if the key is absent or has no string. */
const char *ae_convert_text(const ae_convert *c, const char *key);
/* Returns UNSUPPORTED if a value is there and is not the one that files of `title` imply. */
aerie_status ae_convert_check_fixed(const ae_convert *c, const char *key, const json_t *meant, const char *title);
/* Returns the path of a file in the checkpoint's folder, to be freed with ae_free; NULL if memory is short. */
char *ae_convert_path_in(const ae_convert *c, const char *name);
/* Reads a text file as base/text.h does; the text is to be freed with ae_free. */
aerie_status ae_convert_read_text(const ae_convert *c, const char *path, char **text, size_t *n);
/* Reads a JSON object from a file of the folder; *json is NULL if there is no such file. */
aerie_status ae_convert_read_json(const ae_convert *c, const char *name, json_t **json);

/* ---- names.c: one name for each tensor ---------------------------------------------------------------------- */

/* The beginning of a name, and its replacement. */
typedef struct ae_convert_rename {
    const char *old, *instead;
} ae_convert_rename;

/* Reads the tensors' names, and applies the renames in order, each once. */
aerie_status ae_convert_read_names(ae_convert *c, const ae_convert_rename *renames, size_t n);
/* Sorts the entries after their names have changed. FORMAT: two have the same name. */
aerie_status ae_convert_sort_names(const ae_convert *c);
/* Returns whether --skip leaves out the tensor of this name. */
bool ae_convert_is_skipped(const ae_convert *c, const char *name);
/* Replaces the beginning of what follows "layers.N." by the first matching entry of the list, which ends with `old` NULL. */
aerie_status ae_convert_rename_parts(ae_convert *c, const ae_convert_rename *parts);
/* Finds a tensor and marks it as used; NULL if it is absent. */
const ae_st_tensor *ae_convert_take(ae_convert *c, const char *name);
const ae_st_tensor *ae_convert_look(const ae_convert *c, const char *name);
ae_convert_entry *ae_convert_find(const ae_convert *c, const char *name);
/* Returns the first tensor that was not taken and is not among the names that are known to be unneeded, or NULL. */
const ae_convert_entry *ae_convert_unused(const ae_convert *c, const char *const *unneeded, size_t n);
/* Writes the shape as "[3, 4]" to out [128]. */
const char *ae_convert_shape(const ae_st_tensor *t, char out[128]);
/* Returns FORMAT unless the tensor has the shape [rows, columns], or with rows 0 [columns]. why: explains the shape in the
 * message. */
aerie_status ae_convert_check_shape(const ae_convert *c, const ae_st_tensor *t, uint64_t rows, uint64_t columns,
                                    const char *why);

/* ---- keys.c --------------------------------------------------------------------------------------------- */

/* Keys being written. Keeps the first failure; later calls do nothing. */
typedef struct ae_convert_keys {
    ae_gguf_writer *w;
    const char *arch;
    aerie_status status;
    aerie_error *error;
} ae_convert_keys;

/* Writes the key "<architecture>.<suffix>". */
void ae_convert_put_u32(ae_convert_keys *k, const char *suffix, uint32_t value);
void ae_convert_put_f32(ae_convert_keys *k, const char *suffix, double value);
void ae_convert_put_bool(ae_convert_keys *k, const char *suffix, bool value);
void ae_convert_put_text(ae_convert_keys *k, const char *suffix, const char *value);
void ae_convert_put_array(ae_convert_keys *k, const char *suffix, ae_gguf_type element, const void *values, size_t n);
/* Writes a key by its whole name. */
void ae_convert_put_name(ae_convert_keys *k, const char *name, const char *value);
/* Writes general.architecture and general.name, and general.quantization_version if the output type is not a float type. */
void ae_convert_put_general(ae_convert_keys *k, const ae_convert *c);

/* ---- write.c -------------------------------------------------------------------------------------------- */

/* Adds a tensor to be written, with the type that follows from `how` and c->out_type. Copies the name. */
aerie_status ae_convert_add(ae_convert *c, const ae_convert_item *item);
/* Writes a complete file beside the output, under a temporary name (ae_gguf_writer_part). */
aerie_status ae_convert_write(ae_convert *c, ae_gguf_writer **out);
/* Converts elements [first, first + n) to floats. Returns false if the tensor's type is not a float (or, for ids, an
 * integer). */
bool ae_convert_floats(const ae_st_tensor *t, uint64_t first, float *out, size_t n);
bool ae_convert_ints(const ae_st_tensor *t, uint64_t first, int64_t *out, size_t n);

/* ---- scaled_weights.c: weights as codes and scales ---------------------------------------------------------------- */

/* Types that exist in no file: numbers that are products of codes and scales, or lie in several files. */
#define AE_CONVERT_FP8 AE_ST_DTYPE_COUNT
#define AE_CONVERT_MXFP4 ((ae_st_dtype)(AE_ST_DTYPE_COUNT + 1))
#define AE_CONVERT_NVFP4 ((ae_st_dtype)(AE_ST_DTYPE_COUNT + 2))
#define AE_CONVERT_TERNARY ((ae_st_dtype)(AE_ST_DTYPE_COUNT + 3))
#define AE_CONVERT_RANKED ((ae_st_dtype)(AE_ST_DTYPE_COUNT + 4)) /* ranks.c */
/* Replaces the entries of such tensors by entries with plain names. Their scales count as used. */
aerie_status ae_convert_read_scales(ae_convert *c);
/* Computes the numbers of a tensor of those types. */
void ae_convert_scaled_floats(const ae_st_tensor *t, uint64_t first, float *out, size_t n);
/* Return for an NVFP4 tensor the factor of the matrix that contains element `first`; and n elements (a multiple of 64, within
 * one row) as blocks of ae_block_nvfp4, without that factor. False: a scale is negative or not a number. */
float ae_convert_scaled_factor(const ae_st_tensor *t, uint64_t first);
bool ae_convert_scaled_nvfp4(const ae_st_tensor *t, uint64_t first, uint8_t *blocks, size_t n);

/* ---- ranks.c: tensors in parts ------------------------------------------------------------------------------------ */

/* Makes one tensor, of type AE_CONVERT_RANKED or the file's own, of those of all ranks, of which t is the first one. */
aerie_status ae_convert_join_ranks(ae_convert *c, const ae_st_tensor *t, const ae_st_tensor **out);
/* Reads the numbers of a tensor of that type. */
void ae_convert_ranked_floats(const ae_st_tensor *t, uint64_t first, float *out, size_t n);

/* ---- model*.c, vocab.c ---------------------------------------------------------------------------------- */

aerie_status ae_convert_model_keys(const ae_convert *c, ae_gguf_writer *w);
/* Plans the tensors that the rotation needs. */
aerie_status ae_convert_plan_rope(ae_convert *c);
/* encoder.c: finds the folder of sentence-transformers' module number `nth` whose type ends like this, "" or with a slash;
 * `name` is unchanged if there is none. */
aerie_status ae_convert_find_module(const ae_convert *c, const char *end, uint32_t nth, char name[256], bool *found);
/* Reads how sentence-transformers pools; *pooling is unchanged if the folder has no such setting. */
aerie_status ae_convert_read_pooling(const ae_convert *c, ae_pooling *pooling);
/* Refuses a folder of sentence-transformers with a layer after the pooling. title: what cannot hold it. */
aerie_status ae_convert_check_modules(const ae_convert *c, const char *title);
/* Writes the keys tokenizer.* from the folder's files, for n_vocab tokens. */
aerie_status ae_convert_put_vocab(const ae_convert *c, ae_gguf_writer *w);

/* ---- head_*.c ------------------------------------------------------------------------------------------- */

/* Returns weight or bias of block b of Medusa head j, or, if b < 0, of its output; NULL if there is none. */
const ae_st_tensor *ae_convert_head_medusa(ae_convert *c, uint32_t j, int b, const char *part);
aerie_status ae_convert_head_detect(ae_convert *c, bool *mine);
aerie_status ae_convert_head_taps(ae_convert *c);
aerie_status ae_convert_head_ids(ae_convert *c);
aerie_status ae_convert_head_rope(ae_convert *c);
/* Computes divisors that turn the default ramp of YaRN into that of the checkpoint. */
aerie_status ae_convert_yarn_divisors(ae_convert *c);
/* Writes the keys rope.*. */
void ae_convert_put_rope(ae_convert_keys *k, const ae_convert_head *h);
aerie_status ae_convert_head_target(ae_convert *c);
/* Sets *same to whether a tensor [rows, columns] of the head equals the target's up to rounding. */
aerie_status ae_convert_head_same(const ae_convert *c, const ae_st_tensor *t, const ae_gguf_tensor *of_target, bool *same);
aerie_status ae_convert_head_keys(const ae_convert *c, ae_gguf_writer *w);
/* Checks that the file can be loaded and fits the target. With options.self_check tries the head, and writes the file again if
 * another interpretation of the checkpoint is better. */
aerie_status ae_convert_head_check(ae_convert *c);

#endif

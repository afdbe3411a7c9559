/* checkpoint.h - inside src/convert: the state of a conversion, and what the kinds of checkpoints share.
 *
 * A kind fills the list of items and the keys; opening, names, values of config.json, the writing of rows and the final name
 * are the same for all (convert.c, checkpoint.c, names.c, write.c). A function that fails has left its sentence in c->error.
 */
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
    AE_CONVERT_ROTATED, /* rows of q or k: from rotate-half to interleaved order unless c->head.pairs */
    AE_CONVERT_IDS,     /* `ids` as I64 */
    AE_CONVERT_VALUES,  /* `values` */
    AE_CONVERT_UNIT,    /* the unit matrix */
} ae_convert_how;

/* What becomes of each number. */
typedef enum ae_convert_change {
    AE_CONVERT_SAME,
    AE_CONVERT_PLUS_ONE,
    AE_CONVERT_MINUS_EXP, /* -exp(x) */
} ae_convert_change;

/* A tensor to write. */
typedef struct ae_convert_item {
    const char *name;
    ae_convert_how how;
    ae_convert_change change;   /* PLAIN */
    const ae_st_tensor *from;   /* PLAIN, ROTATED */
    const ae_st_tensor *const *parts; /* PLAIN: [n_stack] one for each matrix of the stack, instead of `from` */
    uint64_t first;             /* element of `from` that comes first */
    uint64_t stack_step, row_step,
        step; /* elements of `from` from a matrix, a row, a number to the next; 0: as they lie close */
    const uint32_t *row_from, *column_from; /* PLAIN: [rows], [columns] where each lies in `from`; NULL: in the same order */
    const float *values;        /* VALUES: [rows * columns] */
    const int64_t *ids;         /* IDS: [columns] */
    uint64_t n_stack, rows, columns; /* n_stack 0: two dimensions; rows 0: one */
    uint32_t head_dim, n_rot;   /* ROTATED: rows of a head, of which the first n_rot are rotated */
    bool f32;                   /* stays F32 whatever the matrices are */
    bool f16;                   /* F16 where the matrices are Q8_0 */
    uint32_t type;              /* ae_type in the file */
} ae_convert_item;

/* A kind of checkpoint; the functions are called in this order. */
typedef struct ae_convert_kind {
    /* Names and sizes. *mine false: the checkpoint is of another kind (the error says what was looked for). */
    aerie_status (*detect)(ae_convert *c, bool *mine);
    aerie_status (*plan)(ae_convert *c);                            /* ae_convert_add for each tensor; out_type */
    aerie_status (*keys)(const ae_convert *c, ae_gguf_writer *w);   /* with general.architecture */
    aerie_status (*check)(ae_convert *c);                           /* of c->writer's complete file; may replace it */
} ae_convert_kind;

extern const ae_convert_kind ae_convert_drafter_head, ae_convert_encoder_kind, ae_convert_decoder;

struct ae_convert {
    ae_convert_options options;
    const ae_convert_kind *kind;
    aerie_error *error; /* of the call that is running; may be NULL */
    ae_arena arena;
    const char *path;        /* of the checkpoint, as given */
    const char *config_path; /* for messages; "" if there is none */
    json_t *config, *layer, *eagle; /* the whole, the part about the layer, eagle_config; the last two borrowed, maybe NULL */
    ae_safetensors *st;
    ae_convert_entry *entries; /* [n_entries], by name */
    size_t n_entries;
    ae_convert_item *items; /* [n_items] */
    size_t n_items, capacity;
    uint32_t out_type;
    uint64_t out_bytes;
    ae_gguf_writer *writer; /* of the output: complete, but without its name until all checks are done */

    /* Drafter heads */
    ae_model *target; /* NULL: not given */
    ae_convert_head head;
    const char *head_kind; /* ae_dhead_kind_name and its like, once the file was read back */
    ae_convert_check check;

    /* Encoders */
    ae_convert_encoder encoder;

    /* Models; their rotation is in `head` */
    const struct ae_convert_arch *arch;
    ae_convert_model model;
};

/* ---- checkpoint.c: the files, config.json --------------------------------------------------------------- */

aerie_status ae_convert_no_memory(const ae_convert *c, const char *what);
/* CANCELLED if the caller wants no more. */
aerie_status ae_convert_step(const ae_convert *c, const char *step, uint64_t done, uint64_t total);
aerie_status ae_convert_open_tensors(ae_convert *c);
aerie_status ae_convert_read_config(ae_convert *c);
/* Values by key, of the layer's part first, then of the whole. Absent or null leaves *value alone. */
const json_t *ae_convert_value(const ae_convert *c, const char *key);
aerie_status ae_convert_u32(const ae_convert *c, const char *key, uint32_t lo, uint32_t hi, uint32_t *value);
aerie_status ae_convert_need_u32(const ae_convert *c, const char *key, uint32_t lo, uint32_t hi, uint32_t *value);
aerie_status ae_convert_real(const ae_convert *c, const json_t *value, const char *key, double lo, double hi, double *out);
aerie_status ae_convert_bool(const ae_convert *c, const char *key, bool *value, bool *given);
/* NULL if absent or not a string. */
const char *ae_convert_text(const ae_convert *c, const char *key);
/* A file in the checkpoint's folder, to be freed with ae_free; NULL when out of memory. */
char *ae_convert_path_in(const ae_convert *c, const char *name);
/* A file of text, as base/text.h settles it, to be freed with ae_free. */
aerie_status ae_convert_read_text(const ae_convert *c, const char *path, char **text, size_t *n);
/* A JSON object of the folder; NULL in *json without the file. */
aerie_status ae_convert_read_json(const ae_convert *c, const char *name, json_t **json);

/* ---- names.c: tensors by one name ----------------------------------------------------------------------- */

/* The start of a name and what it becomes. */
typedef struct ae_convert_rename {
    const char *old, *instead;
} ae_convert_rename;

/* The renames are tried in order, each once. */
aerie_status ae_convert_read_names(ae_convert *c, const ae_convert_rename *renames, size_t n);
/* Marks it as used; NULL if absent. */
const ae_st_tensor *ae_convert_take(ae_convert *c, const char *name);
const ae_st_tensor *ae_convert_look(const ae_convert *c, const char *name);
ae_convert_entry *ae_convert_find(const ae_convert *c, const char *name);
/* The first tensor that was not taken and is not among the names that are known to be unneeded; NULL: none. */
const ae_convert_entry *ae_convert_unused(const ae_convert *c, const char *const *unneeded, size_t n);
/* "[3, 4]" into out [128]. */
const char *ae_convert_shape(const ae_st_tensor *t, char out[128]);
/* FORMAT unless the tensor has the shape rows x columns; rows 0: [columns]. */
aerie_status ae_convert_check_shape(const ae_convert *c, const ae_st_tensor *t, uint64_t rows, uint64_t columns,
                                    const char *why);

/* ---- keys.c --------------------------------------------------------------------------------------------- */

/* Keeps the first failure; calls after it do nothing. */
typedef struct ae_convert_keys {
    ae_gguf_writer *w;
    const char *arch;
    aerie_status status;
    aerie_error *error;
} ae_convert_keys;

/* ARCH.suffix */
void ae_convert_put_u32(ae_convert_keys *k, const char *suffix, uint32_t value);
void ae_convert_put_f32(ae_convert_keys *k, const char *suffix, double value);
void ae_convert_put_bool(ae_convert_keys *k, const char *suffix, bool value);
void ae_convert_put_text(ae_convert_keys *k, const char *suffix, const char *value);
void ae_convert_put_array(ae_convert_keys *k, const char *suffix, ae_gguf_type element, const void *values, size_t n);
/* A whole name. */
void ae_convert_put_name(ae_convert_keys *k, const char *name, const char *value);
/* general.*: architecture, name, and the version of quantization if there is one. */
void ae_convert_put_general(ae_convert_keys *k, const ae_convert *c);
/* The model's name, into out if it is the last part of the checkpoint's path. */
const char *ae_convert_name(const ae_convert *c, char out[128]);

/* ---- write.c -------------------------------------------------------------------------------------------- */

/* Adds a tensor to write, of the type that suits `how` and c->out_type; its name is copied. */
aerie_status ae_convert_add(ae_convert *c, const ae_convert_item *item);
/* A complete file beside the output, on disk under a name of its own (ae_gguf_writer_part). */
aerie_status ae_convert_write(ae_convert *c, ae_gguf_writer **out);
/* Elements [first, first + n) as numbers. False: not of a floating (whole) type. */
bool ae_convert_floats(const ae_st_tensor *t, uint64_t first, float *out, size_t n);
bool ae_convert_ints(const ae_st_tensor *t, uint64_t first, int64_t *out, size_t n);

/* ---- scaled_weights.c: codes and scales -------------------------------------------------------------------------- */

/* Types that no file has: numbers that are codes times scales. */
#define AE_CONVERT_FP8 AE_ST_DTYPE_COUNT
#define AE_CONVERT_MXFP4 ((ae_st_dtype)(AE_ST_DTYPE_COUNT + 1))
/* Replaces the entries of such tensors; their scales count as used. */
aerie_status ae_convert_read_scales(ae_convert *c);
/* The numbers of a tensor of those types. */
void ae_convert_scaled_floats(const ae_st_tensor *t, uint64_t first, float *out, size_t n);

/* ---- model*.c, vocab.c ---------------------------------------------------------------------------------- */

aerie_status ae_convert_model_keys(const ae_convert *c, ae_gguf_writer *w);
/* Tensors that the rotation needs. */
aerie_status ae_convert_plan_rope(ae_convert *c);
/* tokenizer.* of the folder, for n_vocab tokens. */
aerie_status ae_convert_put_vocab(const ae_convert *c, ae_gguf_writer *w);

/* ---- head_*.c ------------------------------------------------------------------------------------------- */

/* Weight or bias of block b of Medusa head j, b < 0: of its output; NULL if there is none. */
const ae_st_tensor *ae_convert_head_medusa(ae_convert *c, uint32_t j, int b, const char *part);
aerie_status ae_convert_head_detect(ae_convert *c, bool *mine);
aerie_status ae_convert_head_taps(ae_convert *c);
aerie_status ae_convert_head_ids(ae_convert *c);
aerie_status ae_convert_head_rope(ae_convert *c);
/* Divisors that turn YaRN's usual ramp into the one asked for. */
aerie_status ae_convert_yarn_divisors(ae_convert *c);
/* rope.* as the head or model has it. */
void ae_convert_put_rope(ae_convert_keys *k, const ae_convert_head *h);
aerie_status ae_convert_head_target(ae_convert *c);
/* Sets *same: whether a tensor [rows, columns] of the head equals the target's up to rounding. */
aerie_status ae_convert_head_same(const ae_convert *c, const ae_st_tensor *t, const ae_gguf_tensor *of_target, bool *same);
aerie_status ae_convert_head_plan(ae_convert *c);
aerie_status ae_convert_head_keys(const ae_convert *c, ae_gguf_writer *w);
/* The file can be loaded and fits the target; with options.self_check it is tried, and written anew if it should be read
 * another way. */
aerie_status ae_convert_head_check(ae_convert *c);

#endif

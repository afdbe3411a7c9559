/* convert.h - inside `aerie convert`: from the checkpoint of a drafter head to a GGUF file.
 *
 * Order: open (convert.c) -> names and config (convert_config.c) -> hyper-parameters by kind (convert_detect.c), rotation
 * (convert_rope.c), target (convert_target.c) -> a list of tensors to write (convert_plan.c) -> the file (convert_write.c).
 * Owns: everything until convert_close. A function that returns int has printed its sentence when it is not APP_DONE.
 * Sources: docs/heads.md for what is written; SafeAILab/EAGLE, SpecForge, AngelSlim, speculators, ModelOpt, Medusa and vLLM
 * for what is read.
 */
#ifndef AE_APP_CONVERT_H
#define AE_APP_CONVERT_H

#include "base/mem.h"
#include "formats/gguf_write.h"
#include "formats/safetensors.h"
#include "spec/drafter_head/dhead.h"
#include "common/options.h"

#define CONVERT_TRY(expr)               \
    do {                                \
        const int convert_bad = (expr); \
        if (convert_bad) return convert_bad; \
    } while (0)

/* Who wrote the checkpoint: decides the numbering of taps and what `norm_output` and absent keys mean. */
typedef enum convert_producer {
    CONVERT_OFFICIAL,    /* SafeAILab, yuhuili */
    CONVERT_SPECFORGE,   /* and lmsys */
    CONVERT_ANGELSLIM,   /* names of vLLM's own class; norm_output as vLLM has it */
    CONVERT_SPECULATORS, /* RedHat */
    CONVERT_NVIDIA,      /* ModelOpt */
    CONVERT_MEDUSA,
    CONVERT_N_PRODUCERS
} convert_producer;

const char *convert_producer_name(convert_producer producer);

/* A tensor of the checkpoint under a name that does not depend on the producer. */
typedef struct convert_entry {
    const char *name; /* "layers.0.self_attn.q_proj.weight" */
    const ae_st_tensor *tensor;
    bool used;
} convert_entry;

typedef enum convert_how {
    CONVERT_PLAIN,
    CONVERT_ROTATED, /* rows from rotate-half to interleaved order, n_heads heads of head_dim rows */
    CONVERT_IDS,     /* convert_head.ids as I64 */
    CONVERT_VALUES,  /* `values` */
    CONVERT_UNIT,    /* the unit matrix */
} convert_how;

/* A tensor to write. */
typedef struct convert_item {
    const char *name;
    convert_how how;
    const ae_st_tensor *from; /* PLAIN, ROTATED */
    uint64_t first;           /* element of `from` that comes first */
    const float *values;      /* VALUES: [rows * columns] */
    uint64_t rows, columns;   /* rows 0: one dimension */
    uint32_t n_heads;         /* ROTATED */
    uint32_t type;            /* ae_type in the file */
} convert_item;

typedef struct convert_head {
    ae_dhead_kind kind;
    convert_producer producer;
    uint32_t n_embd, n_target_embd, n_ff, n_heads, n_kv_heads, head_dim, n_ctx;
    uint32_t n_vocab, n_draft; /* of the target; of the head's output */
    uint32_t n_target_layers;  /* 0 = not known */
    uint32_t n_taps, taps[AE_DHEAD_MAX_TAPS]; /* input numbering */
    const char *taps_from;                   /* "default", "inputs in config", "outputs in config", "given" */
    double norm_eps;
    bool norm_before_residual, feedback_post, no_aux; /* no_aux: the feature is the target's normed last row */
    ae_dhead_fc_norm fc_norm;
    uint32_t n_rot, rope_n_ctx_orig;
    double rope_base, rope_factor;
    const char *rope_type; /* "none", "linear", "yarn" */
    float *divisors;       /* [n_rot / 2] or NULL */
    uint32_t n_medusa, n_blocks;
    int64_t *ids; /* [n_draft] target ids, or NULL */
    bool ids_were_absolute;
    bool embedding, output; /* written */
    bool pairs;             /* rows of q and k are rotated by neighbours already: not permuted */
} convert_head;

#define CONVERT_DEPTHS 3

/* What --self-check found: the share of places where head and target agree, by steps ahead. */
typedef struct convert_check {
    uint32_t n, n_depths;
    double before[CONVERT_DEPTHS], agreement[CONVERT_DEPTHS]; /* as first read; as written */
    bool changed;
} convert_check;

typedef struct convert {
    const app_options *options;
    ae_arena arena;
    const char *path;   /* of the checkpoint, as given */
    const char *config_path; /* for messages; "" if there is none */
    json_t *config, *layer, *eagle; /* the whole, the part about the layer, eagle_config; the last two borrowed, maybe NULL */
    ae_safetensors *st;
    convert_entry *entries; /* [n_entries], by name */
    size_t n_entries;
    ae_model *target; /* NULL: not given */
    convert_head head;
    ae_gguf_writer *writer; /* of the output: complete, but without its name until all checks are done */
    convert_item *items; /* [n_items] */
    size_t n_items, n_room;
    uint32_t out_type;
    uint64_t out_bytes;
    convert_check check;
} convert;

/* ---- convert_config.c: config.json ------------------------------------------------------------------ */

int convert_read_config(convert *c);
/* Values by key, of the layer's part first, then of the whole. Absent or null leaves *value alone. */
const json_t *convert_value(const convert *c, const char *key);
int convert_u32(const convert *c, const char *key, uint32_t lo, uint32_t hi, uint32_t *value);
int convert_need_u32(const convert *c, const char *key, uint32_t lo, uint32_t hi, uint32_t *value);
int convert_real(const convert *c, const json_t *value, const char *key, double lo, double hi, double *out);
int convert_bool(const convert *c, const char *key, bool *value, bool *given);
/* NULL if absent or not a string. */
const char *convert_text(const convert *c, const char *key);
int convert_find_producer(convert *c);

/* ---- convert_names.c: tensors by one name ------------------------------------------------------------- */

int convert_read_names(convert *c);
/* Marks it as used; NULL if absent. */
const ae_st_tensor *convert_take(convert *c, const char *name);
const ae_st_tensor *convert_look(const convert *c, const char *name);
/* Fails if a tensor was neither used nor is known to be unneeded. */
int convert_check_unused(const convert *c);
/* "[3, 4]" into out [128]. */
const char *convert_shape(const ae_st_tensor *t, char out[128]);
/* Of shape rows x columns, rows 0: [columns]. */
int convert_check_shape(const convert *c, const ae_st_tensor *t, uint64_t rows, uint64_t columns, const char *why);

/* ---- convert_detect.c, convert_taps.c, convert_ids.c, convert_rope.c, convert_target.c ------------------ */

int convert_detect(convert *c);
/* Weight or bias of block b of Medusa head j, b < 0: of its output; NULL if there is none. */
const ae_st_tensor *convert_medusa(convert *c, uint32_t j, int b, const char *part);
int convert_read_taps(convert *c);
int convert_read_ids(convert *c);
int convert_read_rope(convert *c);
int convert_open_target(convert *c);
/* Sets *same: whether a tensor [rows, columns] of the head equals the target's up to rounding. */
int convert_same_as_target(const convert *c, const ae_st_tensor *t, const ae_gguf_tensor *of_target, bool *same);

/* ---- convert_plan.c, convert_write.c -------------------------------------------------------------------- */

int convert_plan(convert *c);
/* A complete file beside `path`, on disk under a name of its own (ae_gguf_writer_part). */
int convert_write(convert *c, const char *path, ae_gguf_writer **out);

/* ---- convert_check.c: tries c->writer's file, and writes it anew if it should be read another way ---------- */

int convert_self_check(convert *c);

/* Elements [first, first + n) as numbers. False: not of a floating (whole) type. */
bool convert_floats(const ae_st_tensor *t, uint64_t first, float *out, size_t n);
bool convert_ints(const ae_st_tensor *t, uint64_t first, int64_t *out, size_t n);

#endif

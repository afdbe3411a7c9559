/* options.h - checkpoints of other programs to GGUF files.
 *
 * Every kind of checkpoint goes the same four steps: detect (which kind it is, and its sizes), plan (the list of tensors to
 * write, with their sources and shapes checked), write (a complete file under a temporary name), check (the file is read
 * back, and compared with the model that it belongs to). The file gets its final name after the last check.
 * Owns: the checkpoint and all that is derived from it, until ae_convert_free. Prints nothing: remarks go to a callback.
 * Kinds: drafter heads (head.h, docs/heads.md), encoders (encoder.c, docs/embeddings.md), models (arch.h,
 * docs/converting.md).
 */
#ifndef AE_CONVERT_CHECKPOINT_OPTIONS_H
#define AE_CONVERT_CHECKPOINT_OPTIONS_H

#include "convert/checkpoint/head.h"

/* What an option decides: AUTO leaves it to the checkpoint. */
typedef enum ae_convert_choice {
    AE_CONVERT_AUTO,
    AE_CONVERT_NO,
    AE_CONVERT_YES
} ae_convert_choice;

/* done of total (bytes, positions); false cancels. step: "writing", "checking". */
typedef bool ae_convert_progress(void *user, const char *step, uint64_t done, uint64_t total);

/* Strings and lists are lent until ae_convert_free; all zero are the defaults, but for checkpoint and output. */
typedef struct ae_convert_options {
    const char *checkpoint; /* a folder or a file */
    const char *output;     /* the GGUF file to write */
    const char *config;     /* config.json; NULL: beside the checkpoint */
    const char *name;       /* general.name; NULL: the last part of the checkpoint's path */
    uint32_t type;          /* of matrices (ae_type); AE_CONVERT_TYPE_AUTO: f16, or bf16 if the checkpoint has it */
    const char *const *skip; /* [n_skip] tensors whose name contains one of these are left out */
    size_t n_skip;
    const char *pre; /* models: tokenizer.ggml.pre; NULL: detected */
    bool mtp;        /* models: with MTP blocks also where other programs load no such file */
    ae_convert_choice pairs; /* rows of q and k are rotated by neighbours (YES) or by halves (NO, and AUTO) */
    aerie_log log;
    ae_convert_progress *progress;
    void *user; /* for progress */
    uint32_t n_threads;    /* 0: one for each core */
    const char *cpu_level; /* as in aerie_model_params */

    /* Drafter heads */
    const char *target; /* the model that the head drafts for; NULL: not given */
    bool tokenizer;     /* the target's tokenizer is copied into the file */
    int producer;       /* ae_convert_producer, or AE_CONVERT_PRODUCER_AUTO */
    ae_convert_taps taps_are;
    uint32_t taps[AE_DHEAD_MAX_TAPS], n_taps; /* LIST: in the numbering of inputs */
    ae_convert_choice feedback_post, norm_before_residual, ids_absolute, own_embedding;
    uint32_t window, n_sinks; /* 0: none */
    bool self_check;          /* compares the head's predictions with the target's */
    const char *check_text;   /* [n_check_text] what the self-check reads; NULL: a text of our own */
    size_t n_check_text;
    const char *check_path;   /* where it was read, for messages; NULL if it was not given */
} ae_convert_options;

#define AE_CONVERT_TYPE_AUTO UINT32_MAX

/* A type that matrices can be written in; false: none of that name. */
bool ae_convert_type_parse(const char *name, uint32_t *type);

typedef struct ae_convert ae_convert;

/* A row of encoder.c's table. */
typedef struct ae_convert_family ae_convert_family;

/* What is known about an encoder's checkpoint. */
typedef struct ae_convert_encoder {
    uint32_t n_embd, n_layers, n_heads, n_ff, n_ctx, n_vocab, n_types;
    const ae_convert_family *family;
    double norm_eps, rope_base;
    ae_pooling pooling; /* NONE: not said */
    bool ranks;         /* there is a classifier with one label */
} ae_convert_encoder;

/* What is known about a model's folder. */
typedef struct ae_convert_model {
    const char *class, *arch; /* "LlamaForCausalLM", "llama" */
    uint32_t n_embd, n_layers, n_heads, n_kv_heads, head_dim, n_ctx, n_vocab;
    uint32_t n_experts; /* 0: none */
    uint32_t n_groups;  /* of recurrent layers */
    uint32_t n_ahead;   /* MTP blocks that are written */
} ae_convert_model;

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

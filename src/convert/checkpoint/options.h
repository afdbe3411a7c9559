/* options.h - what a caller asks of a conversion (convert/convert.h), and what is known about a checkpoint once it was
 * detected.
 *
 * Owns nothing: strings and lists are lent by the caller until ae_convert_free. The kinds of checkpoints: drafter heads
 * (head.h, docs/heads.md), encoders (model/encoder.c, docs/embeddings.md), models (model/arch.h, docs/converting.md).
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
    uint32_t taps[AERIE_MAX_TAPS], n_taps; /* LIST: in the numbering of inputs */
    ae_convert_choice feedback_post, norm_before_residual, ids_absolute, own_embedding;
    uint32_t window, n_sinks; /* 0: none */
    bool self_check;          /* compares the head's predictions with the target's */
    const char *check_text;   /* [n_check_text] what the self-check reads; NULL: a text of our own */
    size_t n_check_text;
    const char *check_path;   /* where it was read, for messages; NULL if it was not given */
} ae_convert_options;

#define AE_CONVERT_TYPE_AUTO UINT32_MAX

typedef struct ae_convert ae_convert;

/* A row of encoder.c's table. */
typedef struct ae_convert_family ae_convert_family;

/* What is known about an encoder's checkpoint. */
typedef struct ae_convert_encoder {
    uint32_t n_embd, n_layers, n_heads, n_ff, n_ctx, n_vocab, n_types;
    uint32_t n_skipped; /* rows of the table of positions before the first that is used */
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

#endif

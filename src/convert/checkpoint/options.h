/* options.h - the options of a conversion (convert/convert.h), and what is detected about each kind of checkpoint.
 * Owns nothing: strings and lists are borrowed from the caller until ae_convert_free. The kinds of checkpoints are drafter
 * heads (head.h, docs/heads.md), encoders (model/encoder.c, docs/embeddings.md), models (model/arch.h, docs/converting.md),
 * their vision encoders (tower/mmproj.h, docs/vision.md) and LoRA adapters (model/adapter.c, docs/adapters.md). */
#ifndef AE_CONVERT_CHECKPOINT_OPTIONS_H
#define AE_CONVERT_CHECKPOINT_OPTIONS_H

#include "convert/checkpoint/head.h"
#include "model/decision.h"

/* Value of an option; AUTO leaves the decision to the checkpoint. */
typedef enum ae_convert_choice {
    AE_CONVERT_AUTO,
    AE_CONVERT_NO,
    AE_CONVERT_YES
} ae_convert_choice;

/* Reports that `done` of `total` (bytes or positions) are finished. Returning false cancels. step: "writing" or "checking". */
typedef bool ae_convert_progress(void *user, const char *step, uint64_t done, uint64_t total);

/* Strings and lists are borrowed until ae_convert_free. Zeros are the defaults; only checkpoint and output must be set. */
typedef struct ae_convert_options {
    const char *checkpoint; /* a folder or a file */
    const char *output;     /* the GGUF file to write */
    const char *config;     /* path of config.json; NULL: beside the checkpoint */
    const char *name;       /* general.name; NULL: the last part of the checkpoint's path */
    uint32_t type;          /* type of matrices (ae_type); AE_CONVERT_TYPE_AUTO: f16, or bf16 if the checkpoint has it */
    const char *const *skip; /* [n_skip] leave out tensors whose names contain one of these */
    size_t n_skip;
    const char *pre; /* models: value of tokenizer.ggml.pre; NULL: detected */
    bool mmproj;     /* convert the folder's vision encoder and projector, not its text model */
    bool mtp;        /* models: write MTP blocks even if other programs then cannot load the file */
    ae_convert_choice pairs; /* the checkpoint rotates neighbouring rows of q and k (YES), or halves (NO and AUTO) */
    aerie_log log;
    ae_convert_progress *progress;
    void *user; /* passed to progress */
    uint32_t n_threads;    /* 0: one thread per core */
    const char *cpu_level; /* as in aerie_model_params */

    /* Drafter heads */
    const char *target; /* the model for which the head drafts, or which the adapter changes; NULL: not given */
    bool tokenizer;     /* copy the target's tokenizer into the file */
    int producer;       /* ae_convert_producer, or AE_CONVERT_PRODUCER_AUTO */
    ae_convert_taps taps_are;
    uint32_t taps[AERIE_MAX_TAPS], n_taps; /* LIST: numbered by inputs */
    ae_convert_choice feedback_post, norm_before_residual, ids_absolute, own_embedding;
    uint32_t window, n_sinks; /* 0: none */
    bool self_check;          /* compare the head's predictions with the target's */
    const char *check_text;   /* [n_check_text] the text for the self-check; NULL: a built-in one */
    size_t n_check_text;
    const char *check_path;   /* the text's file, for messages; NULL: not from a file */
} ae_convert_options;

#define AE_CONVERT_TYPE_AUTO UINT32_MAX

typedef struct ae_convert ae_convert;

/* A row of encoder.c's table. */
typedef struct ae_convert_family ae_convert_family;

/* Facts about an encoder's checkpoint. */
typedef struct ae_convert_encoder {
    uint32_t n_embd, n_layers, n_heads, n_ff, n_ctx, n_vocab, n_types;
    uint32_t n_skipped; /* rows of the position table before the first used one */
    uint32_t n_experts, n_used, expert_step; /* layers 1, 1 + step, ... have experts; 0: none has */
    const ae_convert_family *family;
    double norm_eps, rope_base;
    ae_pooling pooling; /* NONE: not given */
    bool ranks;         /* it has a classifier with one label */
} ae_convert_encoder;

/* Facts about a LoRA adapter. */
typedef struct ae_convert_adapter {
    const char *arch; /* the target's */
    double alpha;     /* adapter.lora.alpha */
    uint32_t n_pairs, rank; /* number of matrices that it changes; the largest rank */
} ae_convert_adapter;

/* Facts about a vision encoder. */
typedef struct ae_convert_tower {
    const char *class, *type; /* such as "Gemma3ForConditionalGeneration" and "gemma3" */
    uint32_t n_embd, n_layers, n_heads, head_dim, n_ff, n_out; /* n_out: the text model's width */
    uint32_t image_size, patch, merge;
    uint32_t n_features, features[8]; /* blocks after which rows are read, 0: before the first one; none: after the last one */
    bool deep[128]; /* [n_layers] blocks whose rows are added in the text model's first layers */
} ae_convert_tower;

/* Facts about a model's folder. */
typedef struct ae_convert_model {
    const char *class, *arch; /* such as "LlamaForCausalLM" and "llama" */
    uint32_t n_embd, n_layers, n_heads, n_kv_heads, head_dim, n_ctx, n_vocab;
    uint32_t n_experts; /* 0: none */
    uint32_t n_chunks;  /* number of small experts in a layer, each of which serves a group of the others; 0: none */
    uint32_t n_groups;  /* number of groups in recurrent layers */
    uint32_t n_ahead;   /* number of MTP blocks to write */
    bool ranks;         /* an encoder with a classifier of one label */
    ae_decision_hparams decision; /* of the decision head beside the model, or none */
} ae_convert_model;

#endif

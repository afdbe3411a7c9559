/* head.h - what is known about the checkpoint of a drafter head: its kind, sizes and conventions.
 * Filled in this order: config and producer, sizes by kind (detect.c), tapped layers (feature_layers.c), the draft vocabulary
 * (ids.c), the rotation (rope.c), the target (target.c), the list of tensors (head/plan.c), keys (head/keys.c), the comparison
 * with the target (head/check.c). Sources: docs/heads.md for the format that is written; SafeAILab/EAGLE, SpecForge,
 * AngelSlim, speculators, ModelOpt, Medusa and vLLM for the formats that are read. */
#ifndef AE_CONVERT_CHECKPOINT_HEAD_H
#define AE_CONVERT_CHECKPOINT_HEAD_H

#include "draft/head/head.h"

/* The program that wrote the checkpoint. It decides how taps are numbered, and what `norm_output` and absent keys mean. */
typedef enum ae_convert_producer {
    AE_CONVERT_OFFICIAL,    /* SafeAILab, yuhuili */
    AE_CONVERT_SPECFORGE,   /* also lmsys */
    AE_CONVERT_ANGELSLIM,   /* uses the names of vLLM's class, and norm_output as in vLLM */
    AE_CONVERT_SPECULATORS, /* RedHat */
    AE_CONVERT_NVIDIA,      /* ModelOpt */
    AE_CONVERT_MEDUSA,
    AE_CONVERT_N_PRODUCERS
} ae_convert_producer;

#define AE_CONVERT_PRODUCER_AUTO (-1)

/* Returns the producer's name, such as "official". */
const char *ae_convert_producer_name(ae_convert_producer producer);
/* Finds a producer by name. Returns false if it is unknown, or Medusa, whose heads are recognized by their tensors. */
bool ae_convert_producer_parse(const char *name, int *producer);

/* How the tapped layers are numbered. */
typedef enum ae_convert_taps {
    AE_CONVERT_TAPS_AUTO,
    AE_CONVERT_TAPS_INPUTS,  /* the checkpoint's numbers are layers whose inputs are tapped */
    AE_CONVERT_TAPS_OUTPUTS, /* the checkpoint's numbers are layers whose outputs are tapped */
    AE_CONVERT_TAPS_LIST,    /* the options give the list, whatever the checkpoint says */
} ae_convert_taps;

typedef struct ae_convert_head {
    ae_dhead_kind kind;
    ae_convert_producer producer;
    uint32_t n_embd, n_target_embd, n_ff, n_heads, n_kv_heads, head_dim, n_ctx;
    uint32_t n_vocab, n_draft; /* tokens of the target's vocabulary; rows of the head's output */
    uint32_t n_target_layers;  /* 0: unknown */
    uint32_t n_taps, taps[AERIE_MAX_TAPS]; /* numbered by inputs */
    const char *taps_from;                    /* source of the taps: "inputs in the config", "the usual ones", "given" ... */
    double norm_eps;
    bool norm_before_residual, feedback_post, no_aux; /* no_aux: the feature is the target's last row, after its norm */
    ae_dhead_fc_norm fc_norm;
    uint32_t n_rot, rope_n_ctx_orig;
    double rope_base, rope_factor;
    const char *rope_type; /* "none", "linear", "yarn"; for models also "longrope" */
    double rope_attn;      /* YaRN: multiplies the default magnitude; longrope: the magnitude */
    double rope_log_mul;   /* mscale_all_dim; 0: not given */
    double rope_beta_fast, rope_beta_slow; /* YaRN's ramp */
    bool rope_whole;       /* the ramp's ends are rounded to whole pairs */
    float *divisors;       /* [n_rot / 2] or NULL */
    uint32_t n_medusa, n_blocks;
    /* block drafters */
    uint32_t n_layers, n_block, n_markov, mask, window;
    uint32_t n_parallel; /* P-EAGLE: tokens of a pass; such a head has a mask, too; 0: another head */
    uint32_t n_conv, conv_group, n_pair, n_candidates; /* for DFlash2, and except n_pair for LiLiCorr */
    struct ae_dhead_lattice_hparams lattice; /* LiLiCorr */
    bool windowed[AE_MAX_LAYERS], from_anchor, causal;
    double embedding_scale, logit_scale, logit_softcap; /* 0: not given */
    int64_t *ids; /* [n_draft] target ids, or NULL */
    bool ids_were_absolute;
    bool embedding, output; /* whether they are written */
    bool pairs;             /* rows of q and k are interleaved already, so they are not reordered */
} ae_convert_head;

#define AE_CONVERT_DEPTHS 3

/* Result of the self-check: at how many positions head and target agree, for each number of steps ahead. */
typedef struct ae_convert_check {
    uint32_t n, n_depths; /* number of positions; number of steps ahead */
    /* shares of positions: as the checkpoint was first interpreted, and as it was written */
    double before[AE_CONVERT_DEPTHS], agreement[AE_CONVERT_DEPTHS];
    bool changed;
} ae_convert_check;

#endif

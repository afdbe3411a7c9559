/* arch.h - the table of architectures: what distinguishes them, as data. Private to src/model. */
#ifndef AE_MODEL_ARCH_H
#define AE_MODEL_ARCH_H

#include "model/model.h"

/* Whether there are experts. */
typedef enum ae_arch_experts {
    AE_EXPERTS_NEVER,
    AE_EXPERTS_MAYBE, /* if expert_count is above 0 */
    AE_EXPERTS_ALWAYS,
} ae_arch_experts;

/* An expert that every row uses besides the chosen ones. */
typedef enum ae_arch_shared {
    AE_SHARED_NONE,
    AE_SHARED_GATED, /* of expert_shared_feed_forward_length, weighed by a sigmoid */
    AE_SHARED_SIZE,  /* of expert_shared_feed_forward_length (absent or 0: none), added as it is */
    AE_SHARED_COUNT, /* expert_shared_count times the size of an expert, added as it is */
    AE_SHARED_ONE,   /* of an expert's size, added as it is */
    AE_SHARED_SIZE_ELSE_COUNT, /* of expert_shared_feed_forward_length, absent or 0: as COUNT; none if the count is 0 */
    AE_SHARED_SIZE_COUNT, /* expert_shared_count times expert_shared_feed_forward_length (absent or 0: an expert's size) */
} ae_arch_shared;

/* Where norms stand. */
typedef enum ae_arch_norms {
    AE_NORMS_PRE,      /* before mixer and feed-forward block */
    AE_NORMS_PRE_POST, /* and of what they add */
    AE_NORMS_POST,     /* of what they add alone */
    AE_NORMS_PARALLEL, /* one, before both */
    AE_NORMS_ONE,      /* before the mixer or the feed-forward block: a layer has but one of them */
    AE_NORMS_STREAM,   /* of the stream itself, after mixer and feed-forward block */
} ae_arch_norms;

/* How some layers rotate, where it is not as the keys say. */
typedef enum ae_arch_rotation {
    AE_ROTATION_SAME,
    AE_ROTATION_NONE,
    AE_ROTATION_PLAIN, /* without scaling; with rope.freq_base_swa, where it is given */
    AE_ROTATION_HALF,  /* half as many values */
} ae_arch_rotation;

/* What logit_scale does. */
typedef enum ae_arch_logit_scale {
    AE_LOGIT_SCALE_NONE,
    AE_LOGIT_SCALE_TIMES,
    AE_LOGIT_SCALE_OVER,
} ae_arch_logit_scale;

typedef struct ae_arch {
    const char *name; /* general.architecture and the prefix of its keys */
    bool drafter;     /* a head that drafts for another model; not runnable by itself */
    bool assistant;   /* such a one of several layers, which have queries only: they read the other model's keys and values */
    bool block;       /* a drafter of several layers that runs a block of rows at once (DFlash and its like) */
    bool encoder;     /* ae_hparams.encoder; with no_rope_period 1 it has a table of positions */
    bool rank_mean;   /* ae_hparams.rank_mean, unless classifier.pooling_type says otherwise */
    bool near;        /* windows of w positions reach w / 2 positions back and ahead */
    ae_arch_norms norms;
    bool layer_norm;
    bool norm_by_key;      /* the layer norm where layer_norm_epsilon is given and layer_norm_rms_epsilon is not */
    bool plain_norms;      /* ae_hparams.plain_norms */
    bool embed_norm, embed_norm_plain; /* the stream's start is normed: by token_embd_norm, or without weights */
    float post_eps;        /* ae_hparams.post_eps; 0: the others' */
    bool norm_bias;        /* RMS norms have biases */
    bool swin_key;         /* swin_norm: norms stand after the blocks that they are named for */
    const char *attn_post_norm, *ffn_post_norm; /* NULL: "post_attention_norm"; "post_ffw_norm", also where that is missing */
    bool sub_norms;        /* attn_sub_norm and ffn_sub_norm */
    bool parallel_key;     /* PARALLEL unless use_parallel_residual is false, with ffn_norm in both cases */
    bool parallel_optional; /* PARALLEL where the first layer has no ffn_norm */
    bool second_norm;      /* PARALLEL: attention takes attn_norm_2 where it is there, the feed-forward block attn_norm */
    bool bare_ffn_norm;    /* ffn_norm is a name without ".weight" */
    const char *ffn_norm;  /* the tensor before the feed-forward block; NULL: "ffn_norm" */
    const char *out_norm;  /* NULL: "output_norm" */
    bool bare_post_norms;  /* post_attention_norm and post_ffw_norm have names without ".weight" */
    bool embedding_is_output; /* without token_embd the output head is the embedding */
    bool sees;             /* layers have tensors "vis_*" for images, which do nothing to texts */
    bool positions;        /* a table of positions, added to the embeddings */
    bool positions_optional;
    bool gate_optional;    /* feed-forward blocks without ffn_gate have no gate, unless it is in ffn_up */
    bool again_norm;       /* STREAM: attn_norm_2, where it is there, norms the sum of the layer's input and the stream */
    bool loops;            /* num_loops: all layers run so often, one after the other, each time with a KV cache of its own */
    bool parts_optional;   /* layers without heads have no mixer, without KV heads a projection, without n_ff no block */
    bool mask_images;      /* tokens that stand for images are never written */
    bool double_ff;        /* feed_forward_length is that of gate and up together */
    /* attention */
    bool rope_neox;
    float alibi;           /* the bias that ae_hparams.slopes follow from; 0: none. With it nothing rotates */
    bool alibi_key;        /* attention.max_alibi_bias says how much; absent or 0: none */
    uint32_t alibi_layers; /* only in models of so many layers; 0: in all */
    bool scale_by_size;    /* attention's scale is 1 over the head's size, not over its root */
    bool head_of_rope;     /* heads are as wide as what rotates of them */
    ae_qk_norm qk_norm;
    bool qk_norm_optional, qk_norm_last;
    uint32_t qk_norm_not_of; /* models of so many experts have none */
    bool qk_norm_plain;    /* without weights, and only of layers that rotate */
    uint32_t window_period; /* every so many layers one sees everything, the others a window; 0: no windows */
    bool window_last;      /* of each period the first layer sees everything, not the last */
    bool rope_pattern;     /* attention.rope_pattern: which layers rotate */
    bool rope_dense;       /* leading dense layers rotate in any case */
    bool narrow_values;    /* attention.value_length may be less than key_length */
    bool value_scale;      /* attention.value_scale */
    bool clamp_qkv;        /* attention.clamp_kqv */
    bool own_gate;         /* AE_OUT_GATE_OWN */
    bool softplus_gate;    /* ae_layer_spec.softplus_gate; OWN or HEAD as the tensor's shape says */
    uint32_t window;       /* unless the file says another; 0: none then */
    bool window_heads;     /* layers with a window have heads of attention.key_length_swa */
    bool shared_kv;        /* attention.shared_kv_layers: the last layers read the keys and values of earlier ones */
    bool v_norm;
    float attn_scale;      /* 0: by the head's size */
    bool chunked;
    uint32_t only_layers;  /* windows only in models of so many layers; 0: in all */
    ae_arch_rotation window_rope, full_rope; /* of layers with a window, of those without in a model with windows */
    float window_rope_base; /* of AE_ROTATION_PLAIN, unless the file says another; 0: the model's */
    uint32_t no_rope_period; /* every so many layers one does not rotate */
    uint32_t wide_layers;  /* a model of so many layers scales by the width of all heads over n_heads */
    float attn_softcap, logit_softcap; /* unless the file says others */
    bool keep_attn_softcap, keep_logit_softcap; /* the keys attn_logit_softcapping and final_logit_softcapping count */
    bool gated_output;     /* AE_OUT_GATE_ELEMENT */
    bool mla;              /* AE_MIXER_MLA */
    bool recur_beside;     /* every layer has it, beside attention */
    bool no_attention;     /* every layer has it alone */
    ae_recur_kind recur;   /* of layers without KV heads; DELTA: of all but every full_attention_interval-th */
    bool recur_tiled;      /* ae_recur_hparams.tiled */
    bool bounded_decay;    /* KDA with a bound, projections of full rank, and gates of latent attention's heads */
    /* experts */
    ae_arch_experts experts;
    ae_arch_shared shared;
    ae_expert_gate gate; /* unless the file says another */
    uint32_t sigmoid_vocab; /* models of so many tokens choose by sigmoid, unless the file says otherwise */
    float shared_mean;   /* with a shared expert: factor of what all experts add; 0: none */
    bool renorm;         /* chosen weights divided by their sum, unless the file says otherwise */
    bool split_ff;       /* without expert_feed_forward_length an expert has n_ff / n_used, else n_ff */
    bool weigh_input;
    bool experts_beside; /* a layer's experts and its dense block both run, and their results are added */
    bool beside_plain;   /* of one norm, the dense block only where it is there; what both add is multiplied by beside_scale */
    float beside_scale;
    bool beside_input;   /* the experts take the layer's input by ffn_norm_exps, and the dense block has n_embd neurons */
    bool expert_by_tensor; /* layers with a router have experts, whatever the keys say */
    bool shared_default; /* SIZE, absent or 0: an expert's size */
    bool expert_step;    /* interleave_moe_layer_step: layers (i + 1) % step == 0 have experts */
    bool router_of_input; /* ae_layer_spec.router_of_input */
    bool expert_every;   /* moe_every_n_layers: layers i % n == 1 have experts */
    ae_activation activation;
    bool activation_key; /* hidden_activation names another */
    bool ungated;
    bool nextn_pre;      /* ae_hparams.nextn_pre */
    /* scalars; 0: none, or what is usual */
    float embedding_scale, logit_factor, yarn_beta_fast;
    bool output_scale;   /* attention.output_scale multiplies scores, unless attention.scale does */
    bool layer_embedding; /* embedding_length_per_layer_input: tokens have an embedding for each layer */
    bool scale_embedding; /* by the square root of n_embd */
    ae_arch_logit_scale logit_scale;
    bool minicpm_scalars; /* without keys: embedding 12, residual 1.4 / sqrt(n_layers), logits over n_embd / 256 */
    bool rope_alpha;      /* rope.scaling.alpha */
    bool temperature;     /* of queries by position, attention.temperature_scale */
    bool sections, interleaved; /* rope.dimension_sections, and what they mean (ae_rope) */
    bool deepstack;       /* n_deepstack_layers */
    bool group_windows;   /* ae_hparams.group_windows */
    bool rope_finetuned;  /* rope.scaling.finetuned false: no rotation */
} ae_arch;

const ae_arch *ae_arch_find(const char *name, size_t n); /* NULL if unknown */

#endif

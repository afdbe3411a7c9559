/* arch.h - the table of architectures: their differences, as data. Private to src/model.
 *
 * A field that is 0 or false means the usual case. Names in quotes or with dots are keys and tensors of GGUF files. */
#ifndef AE_MODEL_ARCH_H
#define AE_MODEL_ARCH_H

#include "model/model.h"

/* Returns whether an architecture's layers have experts. */
typedef enum ae_arch_experts {
    AE_EXPERTS_NEVER,
    AE_EXPERTS_MAYBE, /* if expert_count is above 0 */
    AE_EXPERTS_ALWAYS,
} ae_arch_experts;

/* The shared expert, which every row uses in addition to the chosen ones: its size, and how its output is added. */
typedef enum ae_arch_shared {
    AE_SHARED_NONE,
    AE_SHARED_GATED, /* size expert_shared_feed_forward_length; weighted by a sigmoid */
    AE_SHARED_SIZE,  /* size expert_shared_feed_forward_length (absent or 0: none); added unweighted */
    AE_SHARED_COUNT, /* expert_shared_count times the size of an expert; added unweighted */
    AE_SHARED_ONE,   /* the size of one expert; added unweighted */
    AE_SHARED_SIZE_ELSE_COUNT, /* as SIZE; if the key is absent or 0, as COUNT; none if that count is 0 */
    AE_SHARED_SIZE_COUNT, /* expert_shared_count times expert_shared_feed_forward_length (absent or 0: an expert's size) */
} ae_arch_shared;

/* Where a layer has norms. */
typedef enum ae_arch_norms {
    AE_NORMS_PRE,      /* before mixer and feed-forward block */
    AE_NORMS_PRE_POST, /* before both, and norms of each block's output */
    AE_NORMS_POST,     /* only of what each adds */
    AE_NORMS_PARALLEL, /* one, before both */
    AE_NORMS_ONE,      /* before the mixer or the feed-forward block; a layer has only one of the two */
    AE_NORMS_STREAM,   /* norms of the stream itself, after mixer and after feed-forward block */
} ae_arch_norms;

/* How some layers rotate, if it differs from the keys. */
typedef enum ae_arch_rotation {
    AE_ROTATION_SAME,
    AE_ROTATION_NONE,
    AE_ROTATION_PLAIN, /* without scaling; with base rope.freq_base_swa if the file has it */
    AE_ROTATION_HALF,  /* half as many values */
} ae_arch_rotation;

/* How logit_scale is applied. */
typedef enum ae_arch_logit_scale {
    AE_LOGIT_SCALE_NONE,
    AE_LOGIT_SCALE_TIMES,
    AE_LOGIT_SCALE_OVER,
} ae_arch_logit_scale;

typedef struct ae_arch {
    const char *name; /* general.architecture, and the prefix of its keys */
    bool drafter;     /* a head that drafts for another model and cannot run by itself */
    bool assistant;   /* a drafter whose layers have only queries: they read the other model's keys and values */
    bool block;       /* a drafter of several layers that runs a block of rows at once (DFlash and its like) */
    bool encoder;     /* sets ae_hparams.encoder; with no_rope_period 1 the model has a table of positions */
    bool rank_mean;   /* sets ae_hparams.rank_mean, unless classifier.pooling_type says otherwise */
    bool decides;     /* the model has a decision head (AE_DECISION_JOINT) and writes no text */
    bool marks;       /* if there is a decision.block_count, so many of the last blocks are a decision head (MARKS) */
    bool denoises;    /* sets ae_hparams.denoises, unless the model masks ahead */
    bool masks_ahead; /* sets ae_hparams.masks_ahead, for files whose diffusion.shift_logits is false */
    bool near;        /* a window of w positions reaches w / 2 positions back and w / 2 ahead */
    ae_arch_norms norms;
    bool layer_norm;
    bool rms_key;          /* layer_norm: the epsilon is nevertheless in layer_norm_rms_epsilon */
    bool norm_by_key;      /* layer norms if layer_norm_epsilon is given and layer_norm_rms_epsilon is not */
    bool carries;          /* residual_scale sets ae_hparams.carry_scale */
    bool plain_norms;      /* ae_hparams.plain_norms */
    bool adds_start;       /* ae_hparams.adds_start */
    bool head_gain;        /* attn_q_norm has one weight for each head, and keys are normed without weights */
    bool embed_norm, embed_norm_plain; /* the start of the stream is normed: by token_embd_norm, or without weights */
    float post_eps;        /* ae_hparams.post_eps; 0: the epsilon of the other norms */
    bool norm_bias;        /* RMS norms have biases */
    bool swin_key;         /* if swin_norm is set, each norm comes after the block that it is named for */
    /* NULL: "post_attention_norm" and "post_ffw_norm"; the latter also if the named tensor is missing */
    const char *attn_post_norm, *ffn_post_norm;
    bool sub_norms;        /* layers have attn_sub_norm and ffn_sub_norm */
    bool parallel_key;     /* use_parallel_residual (absent: yes) selects PARALLEL; layers have ffn_norm in both cases */
    bool parallel_optional; /* PARALLEL if the first layer has no ffn_norm */
    bool second_norm;      /* PARALLEL: attention uses attn_norm_2 if there is one, the feed-forward block attn_norm */
    bool bare_ffn_norm;    /* the name of ffn_norm lacks ".weight" */
    const char *ffn_norm;  /* name of the norm before the feed-forward block; NULL: "ffn_norm" */
    const char *out_norm;  /* NULL: "output_norm" */
    bool bare_post_norms;  /* the names post_attention_norm and post_ffw_norm lack ".weight" */
    bool embedding_is_output; /* if there is no token_embd, the output head is also the embedding */
    bool sees;             /* layers have tensors "vis_*" for images, which do not affect text */
    const char *source;    /* sets ae_hparams.crosses: the row of the encoder in the same file, whose keys have this row's
                            * name */
    const char *blocks;    /* how the names of a layer's tensors begin; NULL: "blk" */
    bool positions;        /* there is a table of positions, added to the embeddings */
    bool positions_optional;
    bool gate_optional;    /* a feed-forward block without ffn_gate has no gate, unless ffn_up contains it */
    bool relu_ungated;     /* gate_optional: without a gate the activation is ReLU */
    bool again_norm;       /* STREAM: if there is an attn_norm_2, it norms the sum of the layer's input and the stream */
    bool loops;            /* num_loops: all layers run this many times in sequence, each pass with its own KV cache */
    bool switches;         /* ae_hparams.adapters */
    bool cycles;           /* hrm.layers_per_stack, hrm.h_cycles and hrm.l_cycles set ae_hparams.n_stack and the cycles */
    /* a layer without heads has no mixer, one without KV heads only a projection, one without n_ff no feed-forward block */
    bool parts_optional;
    bool mask_images;      /* tokens that stand for images are never generated */
    bool double_ff;        /* feed_forward_length counts gate and up together */
    /* attention */
    bool rope_neox;
    float alibi;           /* the bias from which ae_hparams.slopes are computed; 0: none. With ALiBi, nothing rotates */
    bool alibi_key;        /* attention.max_alibi_bias has the bias; absent or 0: none */
    uint32_t alibi_layers; /* ALiBi only in models with this many layers; 0: in all */
    bool relative;         /* sets ae_layer.bias, from attn_rel_b and relative_buckets_count; nothing rotates */
    bool scale_by_size;    /* scores are divided by the head's size, not by its square root */
    bool head_of_rope;     /* the size of a head is the number of its values that rotate */
    ae_qk_norm qk_norm;
    bool qk_norm_optional, qk_norm_last;
    uint32_t qk_norm_not_of; /* models with this many experts have no such norms */
    bool qk_norm_plain;    /* such norms have no weights, and only layers that rotate have them */
    /* one layer in each period of this length sees everything, the others see a window; 0: no windows */
    uint32_t window_period;
    bool window_last;      /* the first layer of a period sees everything, not the last */
    bool rope_pattern;     /* attention.rope_pattern lists the layers that rotate */
    bool rope_dense;       /* leading dense layers and MTP blocks always rotate */
    bool narrow_values;    /* attention.value_length may be less than key_length */
    bool value_scale;      /* attention.value_scale is used */
    bool clamp_qkv;        /* attention.clamp_kqv is used */
    bool own_gate;         /* AE_OUT_GATE_OWN */
    bool softplus_gate;    /* sets ae_layer_spec.softplus_gate; the tensor's shape decides between OWN and HEAD */
    uint32_t window;       /* default window; 0: none */
    bool window_heads;     /* heads of layers with a window have the size attention.key_length_swa */
    bool shared_kv;        /* attention.shared_kv_layers: the last layers read the keys and values of earlier ones */
    uint32_t shared_from;  /* shared_kv without that key: layers from this one on read earlier layers' keys and values */
    bool altup;            /* AltUp: altup.num_inputs sets ae_hparams.n_streams */
    bool hyper;            /* ae_hparams.hyper */
    bool hyper_apart;      /* sets ae_hparams.hyper_magnitude */
    bool hyper_low;        /* sets ae_hparams.hyper_rank; blocks have no other norms, and there is none at the end */
    bool hyper_mean;       /* the streams' mean is the row at the model's end */
    bool compress;         /* attention is AE_MIXER_COMPRESSED */
    bool token_experts;    /* hash_layer_count: in this many layers, a table gives each token its experts */
    bool sparse;           /* sets ae_layer_spec.sparse from activation_sparsity_scale; if it is absent, for the first ten
                            * layers */
    bool v_norm;
    float attn_scale;      /* 0: computed from the head's size */
    bool chunked;
    uint32_t only_layers;  /* windows only in models with this many layers; 0: in all */
    /* rotation of layers with a window, and of those without one in a model with windows */
    ae_arch_rotation window_rope, full_rope;
    float window_rope_base; /* default base of AE_ROTATION_PLAIN; 0: the model's */
    uint32_t no_rope_period; /* one layer in each period of this length does not rotate */
    uint32_t wide_layers;  /* a model with this many layers scales scores by the width of all heads over n_heads */
    float attn_softcap, logit_softcap; /* defaults of the caps */
    /* whether the keys attn_logit_softcapping and final_logit_softcapping are used */
    bool keep_attn_softcap, keep_logit_softcap;
    bool gated_output;     /* AE_OUT_GATE_ELEMENT */
    bool mla;              /* attention is AE_MIXER_MLA */
    bool mla_window;       /* layers with a window, and MTP blocks, have ae_layer_spec.mla of their own */
    bool mla_key_norm;     /* attn_k_norm norms the rotated part of a row */
    bool mla_head_gate;    /* the heads of latent attention have gates */
    bool mla_own_gate;     /* AE_OUT_GATE_OWN of latent attention, if there is an attn_gate */
    bool mla_still;        /* sets ae_mla_hparams.still; index keys do not rotate either */
    bool index;            /* layers of latent attention have an index: ae_hparams.index */
    bool index_late;       /* sets ae_index_hparams.late; top_k may be 0, in which case there is no index */
    bool index_neox;       /* ae_index_hparams.neox */
    bool index_blocks;     /* layers after the dense ones have an index by which each KV head chooses blocks */
    bool index_means;      /* attention.compress_ratios sets ae_index_hparams.mean */
    bool index_pool;       /* attention.indexer.kpool sets ae_index_hparams.pool */
    bool index_types;      /* attention.indexer.types says which layers have an index of their own; the others use an earlier
                            * layer's choice */
    bool recur_beside;     /* every layer has a recurrent mixer in addition to attention */
    bool no_attention;     /* every layer has a recurrent mixer and no attention */
    ae_recur_kind recur;   /* mixer of layers without KV heads; with DELTA, of all layers except each
                            * full_attention_interval-th */
    bool recur_tiled;      /* ae_recur_hparams.tiled */
    bool recur_sigmoid;    /* ae_recur_hparams.sigmoid */
    bool memory;           /* sets ae_hparams.memory, if the file has a list ple.layers */
    bool channel_mix;      /* RWKV: AE_FFN_CHANNEL_MIX, and WKV with a norm and weights for a row's own key; otherwise Qwen2's
                            * form */
    bool bank;             /* attn_res.block_size sets ae_hparams.n_banks */
    bool bounded_decay;    /* KDA: the decay has a bound, and projections have full rank */
    bool may_bound;        /* KDA: the decay has a bound if the file gives one */
    /* experts */
    ae_arch_experts experts;
    ae_arch_shared shared;
    ae_expert_gate gate; /* default of the key */
    uint32_t sigmoid_vocab; /* models with this many tokens choose by sigmoid unless the file says otherwise */
    float shared_mean;   /* if there is a shared expert, the sum of all experts' outputs is multiplied by this; 0: it is not */
    bool renorm;         /* chosen weights are divided by their sum unless the file says otherwise */
    bool split_ff;       /* without expert_feed_forward_length the size of an expert is n_ff / n_used instead of n_ff */
    bool weigh_input;
    bool experts_beside; /* a layer runs both its experts and its dense block, and adds the outputs */
    /* experts_beside: both use one norm, layers may lack the dense block, and beside_scale multiplies the sum */
    bool beside_plain;
    float beside_scale;
    bool beside_input;   /* the experts read the layer's input through ffn_norm_exps, and the dense block has n_embd neurons */
    const char *latent;  /* how the names of latent_down, latent_up and latent_norm begin; expert_latent_length has the width */
    bool chunks;         /* layers have chunk experts (ae_expert_hparams.n_chunks) */
    bool expert_by_tensor; /* layers with a router have experts, whatever the keys say */
    bool shared_default; /* SIZE: if the key is absent or 0, the size of an expert */
    bool shared_full;    /* SIZE: if the key is absent or 0, n_ff */
    bool expert_step;    /* interleave_moe_layer_step: layers with (i + 1) % step == 0 have experts */
    bool router_of_input; /* sets ae_layer_spec.router_of_input */
    bool expert_every;   /* moe_every_n_layers: layers with i % n == 1 have experts */
    ae_activation activation;
    bool activation_key; /* hidden_activation may name another activation */
    bool ungated;
    bool ff_divisors;    /* blk.N.ffn.act.scales divide the activation's results; converters write them for AWQ checkpoints */
    bool nextn_pre;      /* ae_hparams.nextn_pre */
    bool nextn_window;   /* MTP blocks have the window too, unless an array that includes them says otherwise */
    bool nextn_both;     /* ONE: an MTP block has attention and a feed-forward block, and ends with a layer norm */
    /* scalars; 0: the usual value */
    float embedding_scale, logit_factor, yarn_beta_fast;
    /* the magnitude of longrope where a file has that of the usual formula, which llama.cpp's converter writes whatever the
     * configuration says; 0: as in the file */
    float longrope_attn;
    bool output_scale;   /* attention.output_scale multiplies scores, unless attention.scale is given */
    bool layer_embedding; /* embedding_length_per_layer_input: each token has an embedding for every layer */
    bool scale_embedding; /* embeddings are multiplied by the square root of n_embd */
    ae_arch_logit_scale logit_scale;
    /* without keys: embeddings times 12, residuals times 1.4 / sqrt(n_layers), logits divided by n_embd / 256 */
    bool minicpm_scalars;
    bool rope_alpha;      /* rope.scaling.alpha is used */
    bool temperature;     /* attention.temperature_scale: queries have a temperature by position */
    bool sections, interleaved; /* rope.dimension_sections is used; interleaved: how sections are laid out (ae_rope) */
    bool deepstack;       /* n_deepstack_layers is used */
    bool group_windows;   /* ae_hparams.group_windows */
    bool rope_finetuned;  /* rope.scaling.finetuned false means no rotation */
} ae_arch;

const ae_arch *ae_arch_find(const char *name, size_t n); /* NULL if unknown */

#endif

/* arch.h - tables for models in Hugging Face folders: the architecture of each class, what happens to its tensors and to the
 * values of config.json, and the functions of model/ that rows name. Private to src/convert. A rule renames one tensor of a
 * layer (layers.N.FROM to blk.N.TO), with .weight and with .bias unless it is exact. Rules of an architecture come before those
 * that all share. The first rule that matches a tensor counts, so an architecture may give a name another meaning. Shapes are
 * not listed: sizes that config.json leaves open are checked by binding the new file like any model, before it gets its final
 * name. Sources: the models' own code in transformers; names and keys of GGUF files as llama.cpp reads them. */
#ifndef AE_CONVERT_ARCHS_ARCH_H
#define AE_CONVERT_ARCHS_ARCH_H

#include "convert/checkpoint/checkpoint.h"

typedef enum ae_convert_rule_kind {
    AE_RULE_PLAIN,
    AE_RULE_F32,       /* stays F32 */
    AE_RULE_Q,         /* rows of queries or keys, which are reordered if the architecture rotates neighbours */
    AE_RULE_K,
    AE_RULE_EXPERTS,   /* one tensor for each expert, which are stacked; the name has "%u" for the expert */
    AE_RULE_STACK,     /* [E, rows, columns] */
    AE_RULE_STACK_T,   /* [E, columns, rows] */
    AE_RULE_SPLIT,     /* [2 rows, columns]: gate, then up; TO has "%s" for the two */
    AE_RULE_SPLIT_STACK,   /* [E, 2 rows, columns] */
    AE_RULE_SPLIT_STACK_T, /* [E, columns, 2 rows] */
    AE_RULE_TURNS_T,   /* [E, columns, 2 rows]: gate and up alternate */
    AE_RULE_TURNS_STACK, /* [E, 2 rows, columns]: rows of gate and up alternate */
    AE_RULE_TURNS,     /* [E, 2 n]: biases of gate and up alternate */
    AE_RULE_VECTOR,    /* the whole tensor as one row, F32 */
    AE_RULE_COLUMN,    /* a vector as a column, F32 */
    AE_RULE_DECAY,     /* -exp(x) as a column, or of a matrix, F32 */
    AE_RULE_GROUPS,    /* a vector as a row for each group of ssm.group_count, F32 */
    AE_RULE_CONV,      /* [channels, 1, taps] as [channels, taps], F32 */
    AE_RULE_CHUNKS,    /* as EXPERTS, but with as many as the checkpoint has */
    AE_RULE_TURNED,    /* [columns, rows], F32 */
    AE_RULE_TURNED_STACK, /* [E, columns, rows], F32 */
    AE_RULE_WHOLE,     /* whole numbers, I32 */
    AE_RULE_TRANSPOSED, /* [columns, rows], as GPT-2's matrices; a bias is plain */
    /* Queries, keys and values in one tensor, by the numbers of heads in config.json. With "%s" in TO they become three
     * tensors, else one with all queries first, then keys, then values. */
    AE_RULE_QKV_JOINED,  /* in this order already */
    AE_RULE_QKV_GROUPED, /* for each key head: its queries, its key, its value */
    AE_RULE_KV_JOINED,   /* keys, then values; TO has "%s" */
    AE_RULE_PADDED,    /* a row for each token; rows without a token are copies of the first one */
} ae_convert_rule_kind;

typedef struct ae_convert_rule {
    const char *from, *to;
    ae_convert_rule_kind kind;
    bool exact; /* both names are complete */
} ae_convert_rule;

typedef enum ae_convert_key_kind {
    AE_KEY_U32,
    AE_KEY_F32,
    AE_KEY_BOOL,
} ae_convert_key_kind;

/* Writes a value of config.json under a key of the architecture; the first existing name counts. */
typedef struct ae_convert_key {
    const char *from[4];
    const char *to;
    ae_convert_key_kind kind;
    bool nonzero; /* 0 means none, so it is not written */
} ae_convert_key;

/* The properties of an architecture. */
enum {
    AE_ARCH_PAIRS = 1 << 0,      /* the architecture rotates neighbours and the checkpoint halves, so rows of q and k are
                                  * reordered */
    AE_ARCH_PLUS_ONE = 1 << 1,   /* the checkpoint stores the weights of norms minus 1 */
    AE_ARCH_LAYER_NORM = 1 << 2, /* layer norms, whose epsilon is under another key */
    AE_ARCH_EXPERTS = 1 << 3,    /* has keys of experts, if there are experts */
    AE_ARCH_SIGMOID = 1 << 4,    /* experts are chosen by sigmoid */
    AE_ARCH_WINDOW = 1 << 5,     /* sliding_window is used */
    AE_ARCH_NO_ROPE = 1 << 6,    /* keys of the rotation do not apply */
    AE_ARCH_NO_DIVISORS = 1 << 7, /* other programs do not accept rope_freqs.weight */
    AE_ARCH_OWN_HEADS = 1 << 8,  /* more_keys writes head_count_kv, key_length and value_length */
    AE_ARCH_AHEAD = 1 << 9,      /* other programs load files with MTP blocks */
    AE_ARCH_DENOISES = 1 << 10,  /* has a mask token, which stands for unknown tokens */
    AE_ARCH_DECIDES = 1 << 11,   /* has a decision head, and never MTP blocks */
    AE_ARCH_ENCODES = 1 << 12,   /* embeds texts and generates none: rows see each other */
    AE_ARCH_EITHER_NORM = 1 << 13, /* layer norms, unless config.json has rms_norm_eps */
};

/* The activation of the architecture's feed-forward blocks. */
typedef enum ae_convert_activation {
    AE_CONVERT_SILU,
    AE_CONVERT_GELU, /* in its tanh form */
    AE_CONVERT_RELU2,
    AE_CONVERT_OAI,  /* gpt-oss's SiLU with clamped inputs */
    AE_CONVERT_SITU, /* Kimi K3's */
    AE_CONVERT_NAMED, /* the file names it: more_keys checks and writes it */
} ae_convert_activation;

typedef struct ae_convert_arch {
    const char *classes;  /* class names in `architectures`, separated by blanks */
    const char *arch;     /* general.architecture */
    uint32_t flags;
    ae_convert_activation activation;
    const char *activation_key; /* key that names the activation; NULL: any of the usual keys */
    uint32_t window_period; /* one layer of each such period has no window, unless the file says otherwise */
    const ae_convert_rule *rules; /* ends with `from` NULL; NULL: only the shared rules */
    const ae_convert_key *keys;   /* ends with `to` NULL */
    const char *aliases;  /* "old=new ...": renames values of config.json, "outer.inner" inside objects; NULL: none */
    const ae_convert_rename *parts; /* beginnings of names within a layer; ends with `old` NULL; NULL: none */
    const char *defaults; /* JSON of values that config.json may leave out; NULL: none */
    const char *fixed;    /* JSON of the values that options of config.json may have, because files cannot express others */
    const char *width_from; /* a matrix of layer 0 with the width of feed-forward blocks, if config.json lacks it; or NULL */
    aerie_status (*begin)(ae_convert *c); /* called before sizes are read, or NULL */
    aerie_status (*more_keys)(ae_convert_keys *k, const ae_convert *c); /* NULL: none */
    aerie_status (*more_tensors)(ae_convert *c, uint32_t layer);
    aerie_status (*finish)(ae_convert *c); /* plans what belongs to no layer, or NULL */
    const char *systemone; /* template of a decision head's prompts, unless the folder has one; NULL: none */
} ae_convert_arch;

/* Returns row i of the table; NULL: there are no more. */
const ae_convert_arch *ae_convert_arch_at(size_t i);
/* The rows that are in archs_late.c, archs_old.c and archs_more.c. */
extern const ae_convert_arch ae_convert_late_archs[], ae_convert_old_archs[], ae_convert_more_archs[];
extern const size_t ae_convert_n_late_archs, ae_convert_n_old_archs, ae_convert_n_more_archs;
extern const ae_convert_rule ae_convert_shared_rules[], ae_convert_global_rules[];
extern const ae_convert_key ae_convert_shared_keys[], ae_convert_expert_keys[];

/* model.c: applies a rule. in, out: prefixes of the rule's two names. */
aerie_status ae_convert_apply(ae_convert *c, const ae_convert_rule *r, const char *in, const char *out);

/* fused.c: applies a rule for queries, keys and values in one tensor. */
aerie_status ae_convert_add_fused(ae_convert *c, const ae_convert_rule *r, const ae_st_tensor *t, const char *to);
/* Moves the last n_rot rows of each head of a planned tensor from neighbours to halves. dim: rows of a head; 0: all are one.
 * A tensor that is absent or too small stays. */
aerie_status ae_convert_halve_last(ae_convert *c, const char *name, uint64_t dim, uint32_t n_rot);

/* mtp.c: counts the MTP blocks to write; adds their tensors; checks that they bind (unread: as in ae_model_options). */
void ae_convert_count_ahead(ae_convert *c);
aerie_status ae_convert_plan_ahead(ae_convert *c);
aerie_status ae_convert_check_ahead(const ae_convert *c, const char *path, char *unread, aerie_error *error);

/* metadata_arch.c */
aerie_status ae_convert_keys_mistral3(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_minimax(ae_convert_keys *k, const ae_convert *c);
/* Writes the key for models that divide the chosen experts' weights by their sum, which their published configuration does not
 * say. */
aerie_status ae_convert_keys_renormed(ae_convert_keys *k, const ae_convert *c);
/* Writes keys for num_shared_experts experts as for one large expert. */
aerie_status ae_convert_keys_shared(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_ernie(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_hunyuan(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_lfm2(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_phi3(ae_convert_keys *k, const ae_convert *c);
/* Finds the layers that have a window: as layer_types says, or else all but each `period`-th. */
void ae_convert_find_windows(const ae_convert *c, uint32_t period, bool *windowed);
aerie_status ae_convert_keys_gemma(ae_convert_keys *k, const ae_convert *c);
/* Write Apertus's activation: numbers of each layer, which the checkpoint has as tensors. */
aerie_status ae_convert_keys_apertus(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_apertus(ae_convert *c, uint32_t layer);
aerie_status ae_convert_keys_seeing(ae_convert_keys *k, const ae_convert *c);
/* Writes the sections of the rotation, which must cover all pairs. */
aerie_status ae_convert_put_whole_sections(ae_convert_keys *k, const ae_convert *c);

/* kinds.c */
aerie_status ae_convert_keys_gemma3n(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_gemma3n(ae_convert *c, uint32_t layer);
aerie_status ae_convert_keys_indexed(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_begin_glm5_next(ae_convert *c);
aerie_status ae_convert_keys_glm5_next(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_glm5_next(ae_convert *c, uint32_t layer);
aerie_status ae_convert_keys_mamba(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_jamba(ae_convert_keys *k, const ae_convert *c);

aerie_status ae_convert_keys_mistral4(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_falcon_h1(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_falcon_h1(ae_convert *c, uint32_t layer);
aerie_status ae_convert_keys_minimax_01(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_kimi_linear(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_kimi_linear(ae_convert *c, uint32_t layer);
aerie_status ae_convert_keys_kimi_k3(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_kimi_k3(ae_convert *c, uint32_t layer);
aerie_status ae_convert_begin_bailing3(ae_convert *c);
aerie_status ae_convert_keys_bailing3(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_bailing3(ae_convert *c, uint32_t layer);

/* late.c */
/* Sets a value that config.json lacks. Takes ownership of `value`. */
aerie_status ae_convert_set_missing(const ae_convert *c, const char *key, json_t *value);
/* Writes the number of dense layers, which come first, from mlp_layer_types or moe_layer_freq. */
aerie_status ae_convert_put_dense(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_denoises(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_begin_llada(ae_convert *c);
aerie_status ae_convert_keys_grove(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_grove(ae_convert *c, uint32_t layer);
aerie_status ae_convert_begin_hrm(ae_convert *c);
aerie_status ae_convert_keys_hrm(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_hrm(ae_convert *c, uint32_t layer);
aerie_status ae_convert_begin_minimax_m3(ae_convert *c);
aerie_status ae_convert_keys_minimax_m3(ae_convert_keys *k, const ae_convert *c);

/* Renames the tensors "PLACE<n>." of MTP blocks to those of layers after the last one. */
aerie_status ae_convert_rename_ahead(ae_convert *c, const char *place);
aerie_status ae_convert_begin_deepseek4(ae_convert *c);
aerie_status ae_convert_keys_deepseek4(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_deepseek4(ae_convert *c, uint32_t layer);

aerie_status ae_convert_begin_rwkv(ae_convert *c);
aerie_status ae_convert_keys_rwkv(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_rwkv6(ae_convert *c, uint32_t layer);
aerie_status ae_convert_begin_rwkv_hybrid(ae_convert *c);
aerie_status ae_convert_tensors_rwkv6qwen2(ae_convert *c, uint32_t layer);
aerie_status ae_convert_tensors_rwkv7(ae_convert *c, uint32_t layer);

aerie_status ae_convert_begin_hy4(ae_convert *c);
aerie_status ae_convert_keys_hy4(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_hy4(ae_convert *c, uint32_t layer);
aerie_status ae_convert_keys_plamo2(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_plamo2(ae_convert *c, uint32_t layer);
aerie_status ae_convert_begin_talkie(ae_convert *c);
aerie_status ae_convert_keys_talkie(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_talkie(ae_convert *c, uint32_t layer);

/* old.c */
aerie_status ae_convert_begin_falcon(ae_convert *c);
aerie_status ae_convert_begin_mpt(ae_convert *c);
aerie_status ae_convert_keys_mpt(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_begin_granite_swa(ae_convert *c);
aerie_status ae_convert_keys_granite_swa(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_begin_smallthinker(ae_convert *c);
aerie_status ae_convert_keys_smallthinker(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_laguna(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_maple(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_minicpm(ae_convert_keys *k, const ae_convert *c);
/* Refuses limits of the time steps, which GGUF files do not have. */
aerie_status ae_convert_check_time_steps(const ae_convert *c);
/* Computes what configurations of mamba_ssm leave to the code. */
aerie_status ae_convert_begin_mamba2(ae_convert *c);
aerie_status ae_convert_keys_mamba2(ae_convert_keys *k, const ae_convert *c);

/* windows.c */
aerie_status ae_convert_begin_step35(ae_convert *c);
aerie_status ae_convert_finish_step35(ae_convert *c);
aerie_status ae_convert_keys_step35(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_begin_mimo2(ae_convert *c);
aerie_status ae_convert_tensors_mimo2(ae_convert *c, uint32_t layer);
aerie_status ae_convert_keys_mimo2(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_cohere2moe(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_muse(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_muse(ae_convert *c, uint32_t layer);

/* more.c */
aerie_status ae_convert_begin_bamba(ae_convert *c);
aerie_status ae_convert_begin_hunyuan_vl(ae_convert *c);
aerie_status ae_convert_keys_hunyuan_vl(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_begin_ocr(ae_convert *c);
aerie_status ae_convert_keys_ocr(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_begin_chatglm(ae_convert *c);
aerie_status ae_convert_begin_qwen1(ae_convert *c);
aerie_status ae_convert_begin_olmo1(ae_convert *c);
aerie_status ae_convert_tensors_olmo1(ae_convert *c, uint32_t layer);
aerie_status ae_convert_tensors_dbrx(ae_convert *c, uint32_t layer);
aerie_status ae_convert_keys_deci(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_jais(ae_convert *c, uint32_t layer);
aerie_status ae_convert_keys_jais(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_finish_jais(ae_convert *c);
aerie_status ae_convert_keys_latent(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_minicpm3(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_begin_openelm(ae_convert *c);
aerie_status ae_convert_keys_openelm(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_begin_plamo(ae_convert *c);
aerie_status ae_convert_tensors_plamo(ae_convert *c, uint32_t layer);
aerie_status ae_convert_begin_plamo3(ae_convert *c);
aerie_status ae_convert_tensors_plamo3(ae_convert *c, uint32_t layer);
aerie_status ae_convert_tensors_sarvam(ae_convert *c, uint32_t layer);
aerie_status ae_convert_keys_bitnet(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_bitnet(ae_convert *c, uint32_t layer);
aerie_status ae_convert_tensors_chameleon(ae_convert *c, uint32_t layer);
aerie_status ae_convert_begin_cogvlm(ae_convert *c);
aerie_status ae_convert_begin_grok(ae_convert *c);
aerie_status ae_convert_keys_grok(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_spark(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_stablelm(ae_convert *c, uint32_t layer);

/* decision.c */
extern const char ae_convert_systemone_clef[], ae_convert_systemone_openjev[];
/* Finds whether the folder has a decision head. IO: it has only one of the head's two files. */
aerie_status ae_convert_has_decision(ae_convert *c, bool *has);
/* Tells whether the folder is OpenJev's. MEMORY. */
aerie_status ae_convert_is_openjev(ae_convert *c, bool *is);
aerie_status ae_convert_begin_clef(ae_convert *c);
aerie_status ae_convert_finish_clef(ae_convert *c);
aerie_status ae_convert_keys_clef(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_openjev(ae_convert_keys *k, const ae_convert *c);

/* dense.c */
aerie_status ae_convert_finish_dense(ae_convert *c);
aerie_status ae_convert_keys_dense(ae_convert_keys *k, const ae_convert *c);

/* modern.c */
aerie_status ae_convert_begin_modern(ae_convert *c);
aerie_status ae_convert_keys_modern(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_finish_modern(ae_convert *c);
/* Appends the template of Laya's or Julia's prompts. */
aerie_status ae_convert_systemone_modern(const ae_convert *c, const json_t *tokenizer_config, ae_buf *out);

/* t5.c */
aerie_status ae_convert_keys_t5(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_t5(ae_convert *c, uint32_t layer);

aerie_status ae_convert_begin_switch(ae_convert *c);
aerie_status ae_convert_keys_switch(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_switch(ae_convert *c, uint32_t layer);

/* reshaped.c */
aerie_status ae_convert_begin_dots3(ae_convert *c);
aerie_status ae_convert_keys_dots3(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_dots3(ae_convert *c, uint32_t layer);
/* Writes the sizes of latent attention's heads. */
aerie_status ae_convert_put_mla(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_put_mamba(ae_convert_keys *k, const ae_convert *c, const char *taps, const char *state,
                                  const char *heads, const char *dim);
aerie_status ae_convert_keys_mla(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_mla(ae_convert *c, uint32_t layer);
aerie_status ae_convert_keys_delta(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_delta(ae_convert *c, uint32_t layer);
aerie_status ae_convert_begin_qwen4(ae_convert *c);
aerie_status ae_convert_keys_qwen4(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_qwen4(ae_convert *c, uint32_t layer);
aerie_status ae_convert_keys_granitehybrid(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_nemotron(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_gemma4(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_gemma4(ae_convert *c, uint32_t layer);
/* Returns the kind of a layer in a hybrid model: 'M' recurrent, '*' attention, '-' feed-forward, 'E' experts, 0: another
 * kind. */
char ae_convert_layer_kind(const ae_convert *c, uint32_t layer);

#endif

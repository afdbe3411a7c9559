/* arch.h - models of Hugging Face folders, as data: which class is which architecture, and what its tensors and the values of
 * config.json become. Inside src/convert.
 *
 * A rule renames one tensor of a layer (layers.N.FROM to blk.N.TO), each with .weight and .bias unless it is exact. Rules of an
 * architecture come before those that all share; a tensor that a rule took is not looked at again, so that an architecture may
 * give a name another meaning. Shapes are not listed: what the numbers of config.json leave open is found by binding the new
 * file as any model is bound, before it gets its name. Sources: the models' own code in transformers; names and keys of GGUF
 * files as llama.cpp reads them.
 */
#ifndef AE_CONVERT_MODEL_ARCH_H
#define AE_CONVERT_MODEL_ARCH_H

#include "convert/checkpoint/checkpoint.h"

typedef enum ae_convert_rule_kind {
    AE_RULE_PLAIN,
    AE_RULE_F32,       /* stays F32 */
    AE_RULE_Q,         /* rows of queries or keys: permuted where the architecture rotates neighbours */
    AE_RULE_K,
    AE_RULE_EXPERTS,   /* "%u" in the name: one tensor for each expert, stacked */
    AE_RULE_STACK,     /* [E, rows, columns] */
    AE_RULE_STACK_T,   /* [E, columns, rows] */
    AE_RULE_SPLIT,     /* [2 rows, columns]: TO has "%s" for gate, which comes first, and up */
    AE_RULE_SPLIT_STACK,   /* [E, 2 rows, columns] */
    AE_RULE_SPLIT_STACK_T, /* [E, columns, 2 rows] */
    AE_RULE_TURNS_T,   /* [E, columns, 2 rows]: gate and up in turn */
    AE_RULE_TURNS_STACK, /* [E, 2 rows, columns]: rows of gate and up in turn */
    AE_RULE_TURNS,     /* [E, 2 n]: likewise, numbers that are added */
    AE_RULE_VECTOR,    /* all of it as one row, F32 */
    AE_RULE_COLUMN,    /* a vector as a column, F32 */
    AE_RULE_DECAY,     /* as COLUMN, -exp(x) */
    AE_RULE_GROUPS,    /* a vector as a row for each group of ssm.group_count, F32 */
    AE_RULE_CONV,      /* [channels, 1, taps] as [channels, taps], F32 */
} ae_convert_rule_kind;

typedef struct ae_convert_rule {
    const char *from, *to;
    ae_convert_rule_kind kind;
    bool exact; /* both names are whole */
} ae_convert_rule;

typedef enum ae_convert_key_kind {
    AE_KEY_U32,
    AE_KEY_F32,
    AE_KEY_BOOL,
} ae_convert_key_kind;

/* A value of config.json under a key of the architecture; the first name that is there counts. */
typedef struct ae_convert_key {
    const char *from[4];
    const char *to;
    ae_convert_key_kind kind;
    bool nonzero; /* 0 stands for none and is not written */
} ae_convert_key;

/* What sets an architecture apart. */
enum {
    AE_ARCH_PAIRS = 1 << 0,      /* rotates neighbours, while the checkpoint has halves: rows of q and k are permuted */
    AE_ARCH_PLUS_ONE = 1 << 1,   /* weights of norms lack 1 */
    AE_ARCH_LAYER_NORM = 1 << 2, /* the epsilon's key */
    AE_ARCH_EXPERTS = 1 << 3,    /* keys of experts, where there are some */
    AE_ARCH_SIGMOID = 1 << 4,    /* chosen by sigmoid */
    AE_ARCH_WINDOW = 1 << 5,     /* sliding_window counts */
    AE_ARCH_NO_ROPE = 1 << 6,    /* keys of a rotation mean nothing */
    AE_ARCH_NO_DIVISORS = 1 << 7, /* other programs take no rope_freqs.weight */
    AE_ARCH_OWN_HEADS = 1 << 8,  /* head_count_kv, key_length and value_length are written by more_keys */
    AE_ARCH_AHEAD = 1 << 9,      /* other programs load files with blocks that predict further ahead */
};

/* What feed-forward blocks of the architecture apply. */
typedef enum ae_convert_activation {
    AE_CONVERT_SILU,
    AE_CONVERT_GELU, /* by tanh */
    AE_CONVERT_RELU2,
} ae_convert_activation;

typedef struct ae_convert_arch {
    const char *classes;  /* of `architectures`, with blanks between */
    const char *arch;     /* general.architecture */
    uint32_t flags;
    ae_convert_activation activation;
    const char *activation_key; /* the one that says it; NULL: any of the usual ones */
    uint32_t window_period; /* every so many layers one sees everything, unless the file says otherwise */
    const ae_convert_rule *rules; /* ends with from NULL; NULL: none of its own */
    const ae_convert_key *keys;   /* ends with to NULL */
    const char *defaults; /* JSON of what config.json may leave out; NULL: nothing unusual */
    aerie_status (*more_keys)(ae_convert_keys *k, const ae_convert *c); /* NULL: none */
    aerie_status (*more_tensors)(ae_convert *c, uint32_t layer);
} ae_convert_arch;

extern const ae_convert_arch ae_convert_archs[];
extern const size_t ae_convert_n_archs;
extern const ae_convert_rule ae_convert_shared_rules[], ae_convert_global_rules[];
extern const ae_convert_key ae_convert_shared_keys[], ae_convert_expert_keys[];

/* model.c: in, out: what stands before both names of the rule. */
aerie_status ae_convert_apply(ae_convert *c, const ae_convert_rule *r, const char *in, const char *out);

/* mtp.c: how many blocks predict further ahead and will be written; their tensors; whether they bind. */
void ae_convert_count_ahead(ae_convert *c);
aerie_status ae_convert_plan_ahead(ae_convert *c);
aerie_status ae_convert_check_ahead(const ae_convert *c, const char *path, aerie_error *error);

/* metadata_arch.c */
aerie_status ae_convert_keys_mistral3(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_minimax(ae_convert_keys *k, const ae_convert *c);
/* Chosen experts' weights are divided by their sum, which the published configuration does not say. */
aerie_status ae_convert_keys_renormed(ae_convert_keys *k, const ae_convert *c);
/* num_shared_experts experts as one. */
aerie_status ae_convert_keys_shared(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_ernie(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_hunyuan(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_lfm2(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_phi3(ae_convert_keys *k, const ae_convert *c);
/* Which layers see a window: as layer_types says, else all but every `period`-th. */
void ae_convert_find_windows(const ae_convert *c, uint32_t period, bool *windowed);
aerie_status ae_convert_keys_gemma(ae_convert_keys *k, const ae_convert *c);

/* reshaped.c */
aerie_status ae_convert_keys_mla(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_mla(ae_convert *c, uint32_t layer);
aerie_status ae_convert_keys_delta(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_delta(ae_convert *c, uint32_t layer);
aerie_status ae_convert_keys_granitehybrid(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_nemotron(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_keys_gemma4(ae_convert_keys *k, const ae_convert *c);
aerie_status ae_convert_tensors_gemma4(ae_convert *c, uint32_t layer);
/* What a layer of a hybrid is: 'M' a state, '*' attention, '-' a feed-forward block, 'E' experts, 0: another. */
char ae_convert_layer_kind(const ae_convert *c, uint32_t layer);

#endif

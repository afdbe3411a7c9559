/* rules.h - macros for the rows of the tables of models: rules for tensors, and keys (arch.h). For archs.c and archs_late.c
 * only. */
#ifndef AE_CONVERT_ARCHS_RULES_H
#define AE_CONVERT_ARCHS_RULES_H

#include "convert/archs/arch.h"

/* ---- Tensors ------------------------------------------------------------------------------------------ */

#define PLAIN(from, to) {from, to, AE_RULE_PLAIN, false}
#define RULE(from, to, kind) {from, to, AE_RULE_##kind, false}
#define EXACT(from, to, kind) {from, to, AE_RULE_##kind, true}
#define END {NULL, NULL, AE_RULE_PLAIN, false}
/* The experts of a layer, as three tensors for each. */
#define EXPERTS(place, gate, up, down)                                                                                         \
    RULE(place ".%u." gate, "ffn_gate_exps", EXPERTS), RULE(place ".%u." up, "ffn_up_exps", EXPERTS),                          \
        RULE(place ".%u." down, "ffn_down_exps", EXPERTS)
/* Experts stored in stacks, with gate and up in one tensor. */
#define STACKS(place)                                                                                                          \
    EXACT(place ".gate_up_proj", "ffn_%s_exps.weight", SPLIT_STACK), EXACT(place ".down_proj", "ffn_down_exps.weight", STACK)
#define SHARED(place)                                                                                                          \
    PLAIN(place ".gate_proj", "ffn_gate_shexp"), PLAIN(place ".up_proj", "ffn_up_shexp"),                                      \
        PLAIN(place ".down_proj", "ffn_down_shexp")
#define MAMBA(place)                                                                                                           \
    PLAIN(place ".in_proj", "ssm_in"), EXACT(place ".conv1d.weight", "ssm_conv1d.weight", CONV),                               \
        PLAIN(place ".conv1d", "ssm_conv1d"), EXACT(place ".dt_bias", "ssm_dt.bias", PLAIN),                                   \
        EXACT(place ".A_log", "ssm_a", DECAY), EXACT(place ".D", "ssm_d", COLUMN),                                             \
        EXACT(place ".norm.weight", "ssm_norm.weight", GROUPS), PLAIN(place ".out_proj", "ssm_out")
/* How mamba_ssm, the makers' package, names values. */
#define AE_MAMBA_SSM_NAMES                                                                                                     \
    "d_model=hidden_size n_layer=num_hidden_layers ssm_cfg.d_state=state_size ssm_cfg.d_conv=conv_kernel "                     \
    "ssm_cfg.expand=expand ssm_cfg.headdim=head_dim ssm_cfg.ngroups=n_groups ssm_cfg.layer=layer "                             \
    "tie_embeddings=tie_word_embeddings"
#define MAMBA1(place)                                                                                                          \
    PLAIN(place ".in_proj", "ssm_in"), EXACT(place ".conv1d.weight", "ssm_conv1d.weight", CONV),                               \
        RULE(place ".conv1d", "ssm_conv1d", F32), RULE(place ".x_proj", "ssm_x", F32), RULE(place ".dt_proj", "ssm_dt", F32),  \
        EXACT(place ".A_log", "ssm_a", DECAY), EXACT(place ".D", "ssm_d", F32), PLAIN(place ".out_proj", "ssm_out")

/* ---- Keys --------------------------------------------------------------------------------------------- */

#define U32(to, ...) {{__VA_ARGS__}, to, AE_KEY_U32, false}
#define COUNT(to, ...) {{__VA_ARGS__}, to, AE_KEY_U32, true}
#define F32(to, ...) {{__VA_ARGS__}, to, AE_KEY_F32, false}
#define SCALE(to, ...) {{__VA_ARGS__}, to, AE_KEY_F32, true}
#define BOOL(to, ...) {{__VA_ARGS__}, to, AE_KEY_BOOL, false}
#define LAST {{NULL}, NULL, AE_KEY_U32, false}

#endif

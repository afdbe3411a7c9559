/* archs_late.c - rows of the table for models with names or layers that few others have. Data only (arch.h). */
#include "convert/archs/rules.h"

/* ---- Tensors ------------------------------------------------------------------------------------------ */

static const ae_convert_rule llada[] = {
    PLAIN("attn_norm", "attn_norm"), PLAIN("ff_norm", "ffn_norm"), RULE("q_proj", "attn_q", Q), RULE("k_proj", "attn_k", K),
    PLAIN("v_proj", "attn_v"), PLAIN("attn_out", "attn_output"), PLAIN("ff_proj", "ffn_gate"), PLAIN("up_proj", "ffn_up"),
    PLAIN("ff_out", "ffn_down"), END,
};

static const ae_convert_rule grove[] = {
    RULE("mlp.chunk_experts.%u.gate_proj", "ffn_gate_chexps", CHUNKS),
    RULE("mlp.chunk_experts.%u.up_proj", "ffn_up_chexps", CHUNKS),
    RULE("mlp.chunk_experts.%u.down_proj", "ffn_down_chexps", CHUNKS), END,
};

static const ae_convert_rule minimax_m3[] = {
    PLAIN("self_attn.index_q_proj", "indexer.q_proj"), PLAIN("self_attn.index_k_proj", "indexer.k_proj"),
    PLAIN("self_attn.index_q_norm", "indexer.q_norm"), PLAIN("self_attn.index_k_norm", "indexer.k_norm"),
    PLAIN("self_attn.indexer.q_proj", "indexer.q_proj"), PLAIN("self_attn.indexer.k_proj", "indexer.k_proj"),
    PLAIN("self_attn.indexer.q_norm", "indexer.q_norm"), PLAIN("self_attn.indexer.k_norm", "indexer.k_norm"),
    EXACT("block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias", PLAIN), SHARED("block_sparse_moe.shared_experts"),
    EXACT("mlp.shared_experts.gate_up_proj.weight", "ffn_%s_shexp.weight", SPLIT),
    EXACT("mlp.gate_up_proj.weight", "ffn_%s.weight", SPLIT), END,
};

/* Tensors of KDA. Functions add g_proj and A_log. */
#define KDA                                                                                                                    \
    PLAIN("self_attn.f_a_proj", "ssm_f_a"), PLAIN("self_attn.f_b_proj", "ssm_f_b"), PLAIN("self_attn.f_proj", "ssm_f_a"),      \
        PLAIN("self_attn.b_proj", "ssm_beta"), PLAIN("self_attn.o_norm", "ssm_norm"),                                          \
        EXACT("self_attn.dt_bias", "ssm_dt.bias", PLAIN)

static const ae_convert_rule kimi_k3[] = {
    KDA, EXACT("block_sparse_moe.gate.e_score_correction_bias", "exp_probs_b.bias", PLAIN),
    SHARED("block_sparse_moe.shared_experts"), PLAIN("block_sparse_moe.routed_expert_down_proj", "ffn_routed_down"),
    PLAIN("block_sparse_moe.routed_expert_up_proj", "ffn_routed_up"),
    PLAIN("block_sparse_moe.routed_expert_norm", "ffn_routed_norm"), END,
};

static const ae_convert_rename bailing3_parts[] = {
    {"attention.dense.", "self_attn.o_proj."}, {"attention.", "self_attn."}, {NULL, NULL}};
static const ae_convert_rule bailing3[] = {
    KDA, EXACT("mlp.gate.expert_bias", "exp_probs_b.bias", PLAIN), PLAIN("final_layernorm", "layer_output_norm"), END,
};

static const ae_convert_rule deepseek4[] = {
    PLAIN("attn_norm", "attn_norm"), PLAIN("ffn_norm", "ffn_norm"), PLAIN("attn.wq_a", "attn_q_a"),
    PLAIN("attn.q_norm", "attn_q_a_norm"), PLAIN("attn.wq_b", "attn_q_b"), PLAIN("attn.wkv", "attn_kv"),
    PLAIN("attn.kv_norm", "attn_kv_a_norm"), PLAIN("attn.norm", "attn_kv_a_norm"),
    PLAIN("attn.wo_a", "attn_output_a"), PLAIN("attn.wo_b", "attn_output_b"),
    EXACT("attn.attn_sink", "attn_sinks.weight", PLAIN),
    EXACT("attn.compressor.ape", "attn_compressor_ape.weight", F32), PLAIN("attn.compressor.wkv", "attn_compressor_kv"),
    PLAIN("attn.compressor.wgate", "attn_compressor_gate"), PLAIN("attn.compressor.norm", "attn_compressor_norm"),
    PLAIN("attn.indexer.wq_b", "indexer.attn_q_b"), RULE("attn.indexer.weights_proj", "indexer.proj", F32),
    EXACT("attn.indexer.compressor.ape", "indexer_compressor_ape.weight", F32),
    PLAIN("attn.indexer.compressor.wkv", "indexer_compressor_kv"),
    PLAIN("attn.indexer.compressor.wgate", "indexer_compressor_gate"),
    PLAIN("attn.indexer.compressor.norm", "indexer_compressor_norm"),
    EXACT("hc_attn_fn", "hc_attn_fn.weight", F32), EXACT("hc_attn_base", "hc_attn_base.weight", F32),
    EXACT("hc_attn_scale", "hc_attn_scale.weight", F32), EXACT("hc_ffn_fn", "hc_ffn_fn.weight", F32),
    EXACT("hc_ffn_base", "hc_ffn_base.weight", F32), EXACT("hc_ffn_scale", "hc_ffn_scale.weight", F32),
    EXACT("ffn.gate.weight", "ffn_gate_inp.weight", F32), EXACT("ffn.gate.bias", "exp_probs_b.bias", PLAIN),
    EXACT("ffn.gate.tid2eid", "ffn_gate_tid2eid.weight", WHOLE), EXPERTS("ffn.experts", "w1", "w3", "w2"),
    PLAIN("ffn.shared_experts.w1", "ffn_gate_shexp"), PLAIN("ffn.shared_experts.w3", "ffn_up_shexp"),
    PLAIN("ffn.shared_experts.w2", "ffn_down_shexp"), END,
};

/* Names of both published forms of RWKV 7; RWKV 6 has those of the second form. */
static const ae_convert_rename rwkv_parts[] = {
    {"self_attn.time_mixer.", "attention."}, {"self_attn.", "attention."}, {"attn.", "attention."}, {"att.", "attention."},
    {"ffn.", "feed_forward."}, {"attn_norm.", "ln1."}, {"ffn_norm.", "ln2."}, {"pre_ln.", "pre_norm."}, {NULL, NULL}};
#define RWKV_NORMS PLAIN("ln1", "attn_norm"), PLAIN("ln2", "attn_norm_2"), PLAIN("attention.ln_x", "time_mix_ln")
#define RWKV_MATRICES                                                                                                          \
    PLAIN("attention.receptance", "time_mix_receptance"), PLAIN("attention.key", "time_mix_key"),                              \
        PLAIN("attention.value", "time_mix_value"), PLAIN("feed_forward.key", "channel_mix_key")
static const ae_convert_rule rwkv6[] = {
    RWKV_NORMS, RWKV_MATRICES, PLAIN("attention.gate", "time_mix_gate"),
    EXACT("attention.time_maa_x", "time_mix_lerp_x.weight", VECTOR), EXACT("attention.time_maa_w1", "time_mix_w1.weight",
                                                                           TURNED),
    EXACT("attention.time_maa_w2", "time_mix_w2.weight", TURNED_STACK),
    EXACT("attention.time_decay", "time_mix_decay.weight", VECTOR),
    EXACT("attention.time_decay_w1", "time_mix_decay_w1.weight", TURNED),
    EXACT("attention.time_decay_w2", "time_mix_decay_w2.weight", TURNED),
    EXACT("attention.time_faaaa", "time_mix_first.weight", F32),
    EXACT("feed_forward.time_maa_k", "channel_mix_lerp_k.weight", VECTOR),
    EXACT("feed_forward.time_maa_r", "channel_mix_lerp_r.weight", VECTOR),
    PLAIN("feed_forward.receptance", "channel_mix_receptance"), END,
};
/* A low-rank projection, with a bias or a separate vector. */
#define LOW_RANK(x)                                                                                                            \
    EXACT("attention." x "_lora.lora.0.weight", "time_mix_" x "1.weight", F32),                                                \
        EXACT("attention." x "_lora.lora.2.weight", "time_mix_" x "2.weight", F32),                                            \
        EXACT("attention." x "_lora.lora.2.bias", "time_mix_" x "0.weight", VECTOR),                                           \
        EXACT("attention." x "1", "time_mix_" x "1.weight", TURNED),                                                           \
        EXACT("attention." x "2", "time_mix_" x "2.weight", TURNED),                                                           \
        EXACT("attention." x "0", "time_mix_" x "0.weight", VECTOR)
/* QRWKV: RWKV 6 under the names of a transformer's attention. */
static const ae_convert_rule rwkv6qwen2[] = {
    PLAIN("attention.q_proj", "time_mix_receptance"), PLAIN("attention.k_proj", "time_mix_key"),
    PLAIN("attention.v_proj", "time_mix_value"), PLAIN("attention.o_proj", "time_mix_output"),
    PLAIN("attention.gate", "time_mix_gate"), PLAIN("attention.ln_x", "time_mix_ln"),
    EXACT("attention.time_maa_x", "time_mix_lerp_x.weight", VECTOR),
    EXACT("attention.time_decay", "time_mix_decay.weight", VECTOR),
    EXACT("attention.time_decay_w1", "time_mix_decay_w1.weight", TURNED),
    EXACT("attention.time_decay_w2", "time_mix_decay_w2.weight", TURNED), END,
};
static const ae_convert_rule rwkv7[] = {
    RWKV_NORMS, RWKV_MATRICES, PLAIN("attention.g_norm", "time_mix_ln"), PLAIN("attention.r_proj", "time_mix_receptance"),
    PLAIN("attention.k_proj", "time_mix_key"), PLAIN("attention.v_proj", "time_mix_value"),
    PLAIN("attention.o_proj", "time_mix_output"), PLAIN("attention.output", "time_mix_output"),
    PLAIN("feed_forward.value", "channel_mix_value"), EXACT("attention.k_k", "time_mix_k_k.weight", VECTOR),
    EXACT("attention.k_a", "time_mix_k_a.weight", VECTOR), EXACT("attention.r_k", "time_mix_r_k.weight", VECTOR),
    EXACT("feed_forward.x_k", "channel_mix_lerp_k.weight", VECTOR), LOW_RANK("w"), LOW_RANK("a"), LOW_RANK("g"), END,
};

#define HYPER(half, from)                                                                                                      \
    EXACT(from ".fn", "hc_" half "_fn.weight", F32), EXACT(from ".base", "hc_" half "_base.weight", F32),                      \
        EXACT(from ".scale", "hc_" half "_scale.weight", F32)
#define HYPER_PRE(half, from)                                                                                                  \
    EXACT(from ".hc_fn", "hc_" half "_fn.weight", F32), EXACT(from ".hc_base", "hc_" half "_base.weight", F32),                \
        EXACT(from ".hc_scale", "hc_" half "_scale.weight", F32)
static const ae_convert_rule hy4[] = {
    PLAIN("self_attn.linear_gate", "attn_gate"), PLAIN("self_attn.gate_proj", "attn_gate"),
    EXACT("self_attn.learnable_sink_param", "attn_sinks.weight", PLAIN), PLAIN("self_attn.indexer.wq_b", "indexer.attn_q_b"),
    PLAIN("self_attn.indexer.wk", "indexer.attn_k"), PLAIN("self_attn.indexer.k_norm", "indexer.k_norm"),
    RULE("self_attn.indexer.weights_proj", "indexer.proj", F32), HYPER_PRE("attn", "hc_attn_layer.hc_pre"),
    HYPER_PRE("ffn", "hc_mlp_layer.hc_pre"), HYPER("attn", "attn_hc"), HYPER("ffn", "ffn_hc"), END,
};

static const ae_convert_rule glm5_next[] = {
    KDA, PLAIN("self_attn.g_a_proj", "ssm_g_a"), PLAIN("self_attn.g_b_proj", "ssm_g_b"),
    PLAIN("self_attn.indexer.wq_b", "indexer.attn_q_b"), PLAIN("self_attn.indexer.wk", "indexer.attn_k"),
    PLAIN("self_attn.indexer.k_norm", "indexer.k_norm"), RULE("self_attn.indexer.weights_proj", "indexer.proj", F32),
    EXACT("self_attn.indexer.index_kpool_compress_gate", "indexer_compressor_gate.weight", F32),
    EXACT("self_attn.indexer.index_kpool_compress_ape", "indexer_compressor_ape.weight", F32),
    EXACT("hc_attn_fn", "hc_attn_fn.weight", F32), EXACT("hc_attn_base", "hc_attn_base.weight", F32),
    EXACT("hc_attn_scale", "hc_attn_scale.weight", F32), EXACT("hc_ffn_fn", "hc_ffn_fn.weight", F32),
    EXACT("hc_ffn_base", "hc_ffn_base.weight", F32), EXACT("hc_ffn_scale", "hc_ffn_scale.weight", F32), END,
};

/* The matrices of a hyper-connection; a function adds its norm. */
#define HYPER_LOW(half, from)                                                                                                  \
    PLAIN(from ".input_mix_weight_down", "hc_" half "_down"), PLAIN(from ".input_mix_weight_up", "hc_" half "_up"),            \
        PLAIN(from ".block_inject_weight", "hc_" half "_inject")
static const ae_convert_rule qwen4[] = {
    EXACT("linear_attn.norm.weight", "ssm_norm.weight", PLAIN), HYPER_LOW("attn", "attn_hyper_connection"),
    HYPER_LOW("ffn", "mlp_hyper_connection"), PLAIN("self_attn.indexer.q_layernorm", "indexer.q_norm"),
    PLAIN("self_attn.indexer.k_layernorm", "indexer.k_norm"), PLAIN("ple.key_proj", "ple_key"),
    PLAIN("ple.value_proj", "ple_value"), EXACT("ple.conv1d.weight", "ple_conv1d.weight", CONV),
    PLAIN("hyper_connection_mixer.input_mix_weight_down", "nextn.hc_head_down"),
    PLAIN("hyper_connection_mixer.input_mix_weight_up", "nextn.hc_head_up"), END,
};

static const ae_convert_rule plamo2[] = {
    PLAIN("mixer.in_proj", "ssm_in"), EXACT("mixer.conv1d.weight", "ssm_conv1d.weight", CONV),
    RULE("mixer.bcdt_proj", "ssm_x", F32), RULE("mixer.dt_proj", "ssm_dt", F32), EXACT("mixer.dt_bias", "ssm_dt.bias", F32),
    EXACT("mixer.D", "ssm_d", VECTOR), EXACT("mixer.dt_norm_weight", "ssm_dt_norm", F32),
    EXACT("mixer.B_norm_weight", "ssm_b_norm", F32), EXACT("mixer.C_norm_weight", "ssm_c_norm", F32),
    PLAIN("mixer.out_proj", "ssm_out"), PLAIN("mixer.qkv_proj", "attn_qkv"), PLAIN("mixer.o_proj", "attn_output"),
    EXACT("mixer.q_weight", "attn_q_norm.weight", F32), EXACT("mixer.k_weight", "attn_k_norm.weight", F32), END,
};

static const ae_convert_rule talkie[] = {
    PLAIN("attn.attn_value", "attn_v"), PLAIN("attn.attn_resid", "attn_output"), PLAIN("mlp.mlp_gate", "ffn_gate"),
    PLAIN("mlp.mlp_linear", "ffn_up"), PLAIN("mlp.mlp_resid", "ffn_down"),
    EXACT("attn.head_gain.head_g", "attn_q_norm.weight", COLUMN), EXACT("embed_skip.a_g", "layer_output_scale.weight", VECTOR),
    EXACT("attn_gain.a_g", "attn_output.scale", VECTOR), EXACT("mlp_gain.a_g", "ffn_down.scale", VECTOR), END,
};

static const ae_convert_rule granite_switch[] = {
    PLAIN("self_attn.o_proj.base_layer", "attn_output"),
    EXACT("shared_mlp.input_linear.base_layer.weight", "ffn_%s.weight", SPLIT),
    PLAIN("shared_mlp.output_linear.base_layer", "ffn_down"), END,
};

static const ae_convert_rule dots3[] = {
    PLAIN("self_attn.k_rope_only_layernorm", "attn_k_norm"), PLAIN("self_attn.g_proj", "attn_gate"),
    PLAIN("self_attn.indexer.wq_b", "indexer.attn_q_b"), PLAIN("self_attn.indexer.wk", "indexer.attn_k"),
    PLAIN("self_attn.indexer.k_norm", "indexer.k_norm"), RULE("self_attn.indexer.weights_proj", "indexer.proj", F32), END,
};

/* ---- Keys --------------------------------------------------------------------------------------------- */

static const ae_convert_key llada_moe_keys[] = {
    COUNT("feed_forward_length", "dense_intermediate_size", "intermediate_size"),
    U32("expert_feed_forward_length", "expert_intermediate_size", "moe_intermediate_size"), LAST,
};
static const ae_convert_key hrm_keys[] = {
    U32("hrm.h_cycles", "H_cycles"), U32("hrm.l_cycles", "L_cycles"), U32("hrm.layers_per_stack", "num_layers_per_stack"),
    BOOL("hrm.prefix_lm", "prefix_lm"), SCALE("embedding_scale", "embedding_scale"), LAST,
};
static const ae_convert_key minimax_m3_keys[] = {
    U32("attention.indexer.head_count", "index_n_heads"), U32("attention.indexer.key_length", "index_head_dim"),
    U32("attention.indexer.block_size", "index_block_size"), U32("attention.indexer.top_k", "index_topk_blocks"),
    U32("attention.indexer.local_blocks", "index_local_blocks"), U32("expert_feed_forward_length", "intermediate_size"),
    U32("feed_forward_length", "dense_intermediate_size", "intermediate_size"), U32("expert_shared_count", NULL),
    U32("leading_dense_block_count", NULL), U32("expert_shared_feed_forward_length", NULL), LAST,
};

#define KIMI_KEYS                                                                                                              \
    COUNT("attention.q_lora_rank", "q_lora_rank"), U32("attention.kv_lora_rank", "kv_lora_rank"),                              \
        COUNT("expert_group_count", "num_expert_group", "n_group"), COUNT("expert_group_used_count", "topk_group"),            \
        U32("expert_used_count", "num_experts_per_token", "num_experts_per_tok"),                                              \
        COUNT("expert_shared_count", "num_shared_experts", "n_shared_experts"),                                                \
        BOOL("expert_weights_norm", "moe_renormalize", "norm_topk_prob")
static const ae_convert_key kimi_k3_keys[] = {
    KIMI_KEYS, U32("context_length", "model_max_length", "max_position_embeddings"),
    COUNT("expert_latent_length", "routed_expert_hidden_size"), U32("attn_res.block_size", "attn_res_block_size"),
    F32("activation.situ_beta", "activation_situ_beta"), F32("activation.situ_linear_beta",
                                                             "activation_situ_linear_beta"), LAST,
};
static const ae_convert_key bailing3_keys[] = {KIMI_KEYS, U32("leading_dense_block_count", NULL), LAST};
static const ae_convert_key deepseek4_keys[] = {
    U32("attention.q_lora_rank", "q_lora_rank"), U32("attention.sliding_window", "sliding_window"),
    U32("attention.output_group_count", "o_groups"), U32("attention.output_lora_rank", "o_lora_rank"),
    F32("attention.compress_rope_freq_base", "compress_rope_theta"), U32("attention.indexer.head_count", "index_n_heads"),
    U32("attention.indexer.key_length", "index_head_dim"), U32("attention.indexer.top_k", "index_topk"),
    U32("hyper_connection.count", "hc_mult"), U32("hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters"),
    F32("hyper_connection.epsilon", "hc_eps"), U32("feed_forward_length", "intermediate_size", "moe_intermediate_size"), LAST,
};

static const ae_convert_key rwkv_keys[] = {
    U32("attention.head_count", NULL), U32("feed_forward_length", NULL), U32("wkv.head_size", "head_size", "head_dim"),
    U32("rescale_every_n_layers", "rescale_every"), LAST,
};

static const ae_convert_key hy4_keys[] = {
    COUNT("attention.q_lora_rank", "q_lora_rank"), U32("attention.kv_lora_rank", "kv_lora_rank"),
    COUNT("expert_group_count", "n_group"), COUNT("expert_group_used_count", "topk_group"),
    U32("leading_dense_block_count", NULL), U32("hyper_connection.count", "hc_mult"),
    F32("hyper_connection.epsilon", "hc_eps"), F32("hyper_connection.magnitude", "hc_magnitude"), LAST,
};

static const ae_convert_key glm5_next_keys[] = {
    U32("attention.q_lora_rank", "q_lora_rank"), U32("attention.kv_lora_rank", "kv_lora_rank"),
    COUNT("expert_group_count", "n_group"), COUNT("expert_group_used_count", "topk_group"),
    U32("attention.indexer.head_count", "index_n_heads"), U32("attention.indexer.key_length", "index_head_dim"),
    U32("attention.indexer.top_k", "index_topk"), U32("attention.indexer.kpool", "index_kpool"),
    U32("leading_dense_block_count", NULL), U32("hyper_connection.count", "hc_mult"),
    U32("hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters"), F32("hyper_connection.epsilon", "hc_eps"), LAST,
};
static const ae_convert_key qwen4_keys[] = {
    U32("hyper_connection.count", "hc_count"), U32("hyper_connection.low_rank", "hc_lowrank"),
    U32("attention.indexer.head_count", "indexer_n_heads"), U32("attention.indexer.key_length", "indexer_head_dim"),
    U32("attention.indexer.top_k", "indexer_budget"), LAST,
};

static const ae_convert_key switch_keys[] = {
    SCALE("embedding_scale", "embedding_multiplier"), SCALE("residual_scale", "residual_multiplier"),
    SCALE("logit_scale", "logits_scaling"), SCALE("attention.scale", "attention_multiplier"), LAST,
};
static const ae_convert_key dots3_keys[] = {
    COUNT("attention.q_lora_rank", "q_lora_rank"), U32("attention.kv_lora_rank", "kv_lora_rank"),
    U32("attention.indexer.head_count", "index_n_heads"), U32("attention.indexer.key_length", "index_head_dim"),
    U32("attention.indexer.top_k", "index_topk"), U32("attention.sliding_window", "sliding_window"),
    U32("attention.head_count", NULL), U32("leading_dense_block_count", NULL), U32("expert_shared_feed_forward_length", NULL),
    LAST,
};

/* ---- Models ------------------------------------------------------------------------------------------- */

#define LLADA_NAMES                                                                                                            \
    "d_model=hidden_size n_layers=num_hidden_layers n_heads=num_attention_heads n_kv_heads=num_key_value_heads "               \
    "mlp_hidden_size=intermediate_size max_sequence_length=max_position_embeddings weight_tying=tie_word_embeddings "          \
    "activation_type=hidden_act"

static const ae_convert_rename bailing2_parts[] = {
    {"attention.dense.", "self_attn.o_proj."}, {"attention.query_key_value.", "self_attn.qkv_proj."},
    {"attention.query_layernorm.", "self_attn.q_norm."}, {"attention.key_layernorm.", "self_attn.k_norm."}, {NULL, NULL}};
static const ae_convert_rule bailing2[] = {
    EXACT("mlp.gate.expert_bias", "exp_probs_b.bias", PLAIN), PLAIN("final_layernorm", "layer_output_norm"), END,
};
static const ae_convert_key bailing2_keys[] = {
    COUNT("expert_group_count", "n_group"), COUNT("expert_group_used_count", "topk_group"),
    COUNT("expert_shared_count", "num_shared_experts", "n_shared_experts"), LAST,
};

static const ae_convert_rule apertus[] = {
    PLAIN("attention_layernorm", "attn_norm"), PLAIN("feedforward_layernorm", "ffn_norm"), END,
};

/* the second half are the blocks of a decision head */
static const ae_convert_rule modern_bert[] = {
    PLAIN("attn_norm", "attn_norm"), PLAIN("attn.Wqkv", "attn_qkv"), PLAIN("attn.Wo", "attn_output"),
    PLAIN("mlp_norm", "ffn_norm"), PLAIN("mlp.Wi", "ffn_up"), PLAIN("mlp.Wo", "ffn_down"),
    PLAIN("norm1", "attn_norm"), EXACT("self_attn.in_proj_weight", "attn_qkv.weight", PLAIN),
    EXACT("self_attn.in_proj_bias", "attn_qkv.bias", PLAIN), PLAIN("self_attn.out_proj", "attn_output"),
    PLAIN("norm2", "ffn_norm"), PLAIN("linear1", "ffn_up"), PLAIN("linear2", "ffn_down"), END,
};
static const ae_convert_key modern_bert_keys[] = {U32("feed_forward_length", NULL), LAST};

const ae_convert_arch ae_convert_late_archs[] = {
    {.classes = "DreamModel", .arch = "dream", .flags = AE_ARCH_DENOISES, .more_keys = ae_convert_keys_denoises},
    {.classes = "LLaDAModelLM",
     .arch = "llada",
     .flags = AE_ARCH_PAIRS | AE_ARCH_DENOISES,
     .rules = llada,
     .aliases = LLADA_NAMES,
     .begin = ae_convert_begin_llada,
     .more_keys = ae_convert_keys_denoises},
    {.classes = "LLaDAMoEModelLM LLaDAMoEModel",
     .arch = "llada-moe",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_DENOISES,
     .keys = llada_moe_keys,
     .defaults = "{\"mask_token_id\":156895}", /* the model's code has this value */
     .more_keys = ae_convert_keys_denoises},
    {.classes = "RND1 RND1LM",
     .arch = "rnd1",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_DENOISES,
     .more_keys = ae_convert_keys_denoises},
    {.classes = "GroveMoeForCausalLM modeling_grove_moe.GroveMoeForCausalLM",
     .arch = "grovemoe",
     .flags = AE_ARCH_EXPERTS,
     .rules = grove,
     .more_keys = ae_convert_keys_grove,
     .more_tensors = ae_convert_tensors_grove},
    {.classes = "HrmTextForCausalLM",
     .arch = "hrm_text",
     .keys = hrm_keys,
     .begin = ae_convert_begin_hrm,
     .more_keys = ae_convert_keys_hrm,
     .more_tensors = ae_convert_tensors_hrm},
    {.classes = "MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration MiniMaxM3VLForCausalLM",
     .arch = "minimax-m3",
     .activation = AE_CONVERT_OAI,
     .activation_key = "hidden_act",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_PLUS_ONE,
     .rules = minimax_m3,
     .keys = minimax_m3_keys,
     .defaults = "{\"rotary_dim\":64}",
     .begin = ae_convert_begin_minimax_m3,
     .more_keys = ae_convert_keys_minimax_m3},
    {.classes = "KimiK3ForConditionalGeneration KimiK3ForCausalLM",
     .arch = "kimi-k3",
     .activation = AE_CONVERT_SITU,
     .activation_key = "hidden_act",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_OWN_HEADS | AE_ARCH_NO_ROPE,
     .rules = kimi_k3,
     .keys = kimi_k3_keys,
     .defaults = "{\"max_position_embeddings\":1048576,\"attn_res_block_size\":0}",
     .more_keys = ae_convert_keys_kimi_k3,
     .more_tensors = ae_convert_tensors_kimi_k3},
    {.classes = "BailingMoeV3ForCausalLM BailingHybridForCausalLM BailingMoeV3VLForConditionalGeneration",
     .arch = "bailingmoe3",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_OWN_HEADS | AE_ARCH_AHEAD,
     .parts = bailing3_parts,
     .aliases = "model_max_length=max_position_embeddings",
     .rules = bailing3,
     .keys = bailing3_keys,
     .begin = ae_convert_begin_bailing3,
     .more_keys = ae_convert_keys_bailing3,
     .more_tensors = ae_convert_tensors_bailing3},
    {.classes = "DeepseekV4ForCausalLM",
     .arch = "deepseek4",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_OWN_HEADS | AE_ARCH_NO_DIVISORS,
     .window_period = 1,
     .rules = deepseek4,
     .keys = deepseek4_keys,
     .defaults = "{\"hc_mult\":4,\"hc_sinkhorn_iters\":20,\"hc_eps\":1e-6,\"norm_topk_prob\":true}",
     .begin = ae_convert_begin_deepseek4,
     .more_keys = ae_convert_keys_deepseek4,
     .more_tensors = ae_convert_tensors_deepseek4},
    {.classes = "Rwkv6ForCausalLM",
     .arch = "rwkv6",
     .flags = AE_ARCH_LAYER_NORM | AE_ARCH_NO_ROPE | AE_ARCH_OWN_HEADS,
     .parts = rwkv_parts,
     .rules = rwkv6,
     .keys = rwkv_keys,
     .defaults = "{\"head_size\":64,\"rescale_every\":0}",
     .begin = ae_convert_begin_rwkv,
     .more_keys = ae_convert_keys_rwkv,
     .more_tensors = ae_convert_tensors_rwkv6},
    {.classes = "RWKV7ForCausalLM Rwkv7ForCausalLM",
     .arch = "rwkv7",
     .activation = AE_CONVERT_RELU2,
     .flags = AE_ARCH_LAYER_NORM | AE_ARCH_NO_ROPE | AE_ARCH_OWN_HEADS,
     .parts = rwkv_parts,
     .rules = rwkv7,
     .keys = rwkv_keys,
     .begin = ae_convert_begin_rwkv,
     .more_keys = ae_convert_keys_rwkv,
     .more_tensors = ae_convert_tensors_rwkv7},
    {.classes = "RWKV6Qwen2ForCausalLM",
     .arch = "rwkv6qwen2",
     .flags = AE_ARCH_NO_ROPE | AE_ARCH_OWN_HEADS,
     .parts = rwkv_parts,
     .rules = rwkv6qwen2,
     .keys = rwkv_keys,
     .begin = ae_convert_begin_rwkv_hybrid,
     .more_keys = ae_convert_keys_rwkv,
     .more_tensors = ae_convert_tensors_rwkv6qwen2},
    {.classes = "RwkvHybridForCausalLM",
     .arch = "arwkv7",
     .flags = AE_ARCH_NO_ROPE | AE_ARCH_OWN_HEADS,
     .parts = rwkv_parts,
     .rules = rwkv7,
     .keys = rwkv_keys,
     .begin = ae_convert_begin_rwkv_hybrid,
     .more_keys = ae_convert_keys_rwkv,
     .more_tensors = ae_convert_tensors_rwkv7},
    {.classes = "HYV4ForCausalLM",
     .arch = "hy_v4",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_OWN_HEADS,
     .rules = hy4,
     .keys = hy4_keys,
     .defaults = "{\"hc_mult\":4,\"hc_eps\":1e-6,\"hc_magnitude\":2.0,\"norm_topk_prob\":true}",
     .begin = ae_convert_begin_hy4,
     .more_keys = ae_convert_keys_hy4,
     .more_tensors = ae_convert_tensors_hy4},
    {.classes = "Glm5NextForConditionalGeneration Glm5NextForCausalLM Glm5NextTextForCausalLM",
     .arch = "glm5-next",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_OWN_HEADS | AE_ARCH_NO_ROPE,
     .rules = glm5_next,
     .keys = glm5_next_keys,
     .defaults = "{\"hc_mult\":4,\"hc_sinkhorn_iters\":20,\"hc_eps\":1e-6,\"norm_topk_prob\":true}",
     .begin = ae_convert_begin_glm5_next,
     .more_keys = ae_convert_keys_glm5_next,
     .more_tensors = ae_convert_tensors_glm5_next},
    {.classes = "Qwen4ExpForConditionalGeneration Qwen4ExpForCausalLM",
     .arch = "qwen4exp",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_PLUS_ONE | AE_ARCH_AHEAD,
     .rules = qwen4,
     .keys = qwen4_keys,
     .defaults = "{\"hc_count\":4,\"hc_lowrank\":320}",
     .begin = ae_convert_begin_qwen4,
     .more_keys = ae_convert_keys_qwen4,
     .more_tensors = ae_convert_tensors_qwen4},
    {.classes = "Plamo2ForCausalLM PLaMo2ForCausalLM",
     .arch = "plamo2",
     .flags = AE_ARCH_OWN_HEADS,
     .aliases = "hidden_size_per_head=head_dim",
     .rules = plamo2,
     .more_keys = ae_convert_keys_plamo2,
     .more_tensors = ae_convert_tensors_plamo2},
    {.classes = "TalkieForCausalLM",
     .arch = "talkie",
     .aliases = "n_embd=hidden_size n_layer=num_hidden_layers n_head=num_attention_heads n_ctx=max_position_embeddings "
                "max_seq_len=max_position_embeddings",
     .rules = talkie,
     .begin = ae_convert_begin_talkie,
     .more_keys = ae_convert_keys_talkie,
     .more_tensors = ae_convert_tensors_talkie},
    {.classes = "GraniteSwitchForCausalLM",
     .arch = "graniteswitch",
     .rules = granite_switch,
     .keys = switch_keys,
     .begin = ae_convert_begin_switch,
     .more_keys = ae_convert_keys_switch,
     .more_tensors = ae_convert_tensors_switch},
    {.classes = "Dots3NoteForCausalLM Dots3NoteForConditionalGeneration Dots3NoteTextForCausalLM",
     .arch = "dots3note",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_OWN_HEADS | AE_ARCH_AHEAD,
     .window_period = 1,
     .rules = dots3,
     .keys = dots3_keys,
     .defaults = "{\"sliding_window\":512}",
     .begin = ae_convert_begin_dots3,
     .more_keys = ae_convert_keys_dots3,
     .more_tensors = ae_convert_tensors_dots3},
    {.classes = "XverseForCausalLM", .arch = "xverse", .flags = AE_ARCH_PAIRS},
    {.classes = "OrionForCausalLM", .arch = "orion", .flags = AE_ARCH_LAYER_NORM},
    {.classes = "PanguEmbeddedForCausalLM", .arch = "pangu-embedded"},
    {.classes = "DeepseekForCausalLM", .arch = "deepseek", .flags = AE_ARCH_PAIRS | AE_ARCH_EXPERTS},
    {.classes = "PaddleOCRVLForConditionalGeneration", .arch = "paddleocr", .more_keys = ae_convert_keys_seeing},
    {.classes = "StableLmForCausalLM StableLMEpochForCausalLM",
     .arch = "stablelm",
     .flags = AE_ARCH_LAYER_NORM,
     .aliases = "rope_pct=partial_rotary_factor",
     .defaults = "{\"partial_rotary_factor\":0.25,\"layer_norm_eps\":1e-5}",
     .more_tensors = ae_convert_tensors_stablelm},
    {.classes = "ApertusForCausalLM",
     .arch = "apertus",
     .activation = AE_CONVERT_NAMED,
     .rules = apertus,
     .more_keys = ae_convert_keys_apertus,
     .more_tensors = ae_convert_tensors_apertus},
    {.classes = "BailingMoeV2ForCausalLM",
     .arch = "bailingmoe2",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID,
     .parts = bailing2_parts,
     .rules = bailing2,
     .keys = bailing2_keys,
     .defaults = "{\"partial_rotary_factor\":0.5}"},
    {.classes = "SarvamMoEForCausalLM modeling_sarvam_moe.SarvamMoEForCausalLM",
     .arch = "bailingmoe2",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID,
     .parts = bailing2_parts,
     .rules = bailing2,
     .keys = bailing2_keys,
     .more_tensors = ae_convert_tensors_sarvam},
    {.classes = "EuroBertModel JinaEmbeddingsV5Model", .arch = "eurobert", .flags = AE_ARCH_ENCODES},
    {.classes = "LlamaBidirectionalModel", .arch = "llama-embed", .flags = AE_ARCH_PAIRS | AE_ARCH_ENCODES},
    /* the last class stands for the folders of Laya and Julia, which name none */
    {.classes = "ModernBertModel ModernBertForMaskedLM ModernBertForSequenceClassification ModernBertDecisionModel",
     .arch = "modern-bert",
     .activation = AE_CONVERT_NAMED,
     .flags = AE_ARCH_LAYER_NORM | AE_ARCH_ENCODES,
     .window_period = 3,
     .aliases = "global_rope_theta=rope_theta",
     .rules = modern_bert,
     .keys = modern_bert_keys,
     .defaults = "{\"norm_eps\":1e-5,\"rope_theta\":160000.0}",
     .begin = ae_convert_begin_modern,
     .more_keys = ae_convert_keys_modern,
     .finish = ae_convert_finish_modern},
};
const size_t ae_convert_n_late_archs = sizeof ae_convert_late_archs / sizeof *ae_convert_late_archs;

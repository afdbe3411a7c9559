/* archs.c - the table of models that can be converted, and the names of tensors that they share (arch.h). Data only.
 * archs_late.c has the models with names or layers that few others have, archs_old.c those with tensors in other orders, and
 * archs_more.c those whose layers differ from each other, and rare ones. */
#include "convert/archs/rules.h"

/* ---- Tensors ------------------------------------------------------------------------------------------ */

#define FFN_NORM_POST_ATTENTION PLAIN("post_attention_layernorm", "post_attention_norm")

const ae_convert_rule ae_convert_global_rules[] = {
    PLAIN("embed_tokens", "token_embd"),
    PLAIN("embeddings", "token_embd"),
    PLAIN("norm", "output_norm"),
    PLAIN("norm_f", "output_norm"),
    PLAIN("final_layernorm", "output_norm"),
    PLAIN("final_layer_norm", "output_norm"),
    PLAIN("embedding_norm", "token_embd_norm"),
    PLAIN("word_embeddings_layernorm", "token_embd_norm"),
    RULE("wpe", "position_embd", F32),
    PLAIN("lm_head", "output"),
    RULE("embed_tokens_per_layer", "per_layer_token_embd", PADDED),
    PLAIN("per_layer_model_projection", "per_layer_model_proj"),
    PLAIN("per_layer_projection_norm", "per_layer_proj_norm"),
    END,
};

const ae_convert_rule ae_convert_shared_rules[] = {
    PLAIN("input_layernorm", "attn_norm"),
    RULE("self_attn.q_proj", "attn_q", Q),
    RULE("self_attn.k_proj", "attn_k", K),
    PLAIN("self_attn.v_proj", "attn_v"),
    PLAIN("self_attn.qkv_proj", "attn_qkv"),
    PLAIN("self_attn.o_proj", "attn_output"),
    PLAIN("self_attn.q_norm", "attn_q_norm"),
    PLAIN("self_attn.k_norm", "attn_k_norm"),
    EXACT("self_attn.sinks", "attn_sinks.weight", PLAIN),
    PLAIN("pre_feedforward_layernorm", "ffn_norm"),
    PLAIN("post_feedforward_layernorm", "post_ffw_norm"),
    PLAIN("post_attention_layernorm", "ffn_norm"),
    PLAIN("mlp.gate_proj", "ffn_gate"),
    PLAIN("mlp.up_proj", "ffn_up"),
    PLAIN("mlp.gate_up_proj", "ffn_up"),
    PLAIN("mlp.down_proj", "ffn_down"),
    EXACT("mlp.gate.e_score_correction_bias", "exp_probs_b.bias", PLAIN),
    RULE("mlp.gate", "ffn_gate_inp", F32),
    EXPERTS("mlp.experts", "gate_proj", "up_proj", "down_proj"),
    STACKS("mlp.experts"),
    SHARED("mlp.shared_experts"),
    SHARED("mlp.shared_expert"),
    EXACT("mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", VECTOR),
    RULE("block_sparse_moe.gate", "ffn_gate_inp", F32),
    EXPERTS("block_sparse_moe.experts", "w1", "w3", "w2"),
    PLAIN("self_attn.q_a_proj", "attn_q_a"),
    PLAIN("self_attn.q_a_layernorm", "attn_q_a_norm"),
    PLAIN("self_attn.q_b_proj", "attn_q_b"),
    PLAIN("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"),
    PLAIN("self_attn.kv_a_layernorm", "attn_kv_a_norm"),
    END,
};

static const ae_convert_rule post_attention[] = {FFN_NORM_POST_ATTENTION, END};

static const ae_convert_rule glm4[] = {
    PLAIN("post_self_attn_layernorm", "post_attention_norm"), PLAIN("post_mlp_layernorm", "post_ffw_norm"), END,
};

static const ae_convert_rule gpt_oss[] = {
    FFN_NORM_POST_ATTENTION,
    RULE("mlp.router", "ffn_gate_inp", F32),
    EXACT("mlp.experts.gate_up_proj", "ffn_%s_exps.weight", TURNS_T),
    EXACT("mlp.experts.gate_up_proj_blocks", "ffn_%s_exps.weight", TURNS_STACK),
    EXACT("mlp.experts.down_proj_blocks", "ffn_down_exps.weight", STACK),
    EXACT("mlp.experts.gate_up_proj_bias", "ffn_%s_exps.bias", TURNS),
    EXACT("mlp.experts.down_proj", "ffn_down_exps.weight", STACK_T),
    EXACT("mlp.experts.down_proj_bias", "ffn_down_exps.bias", F32),
    END,
};

static const ae_convert_rule granite[] = {
    EXACT("block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight", F32),
    EXACT("block_sparse_moe.router.weight", "ffn_gate_inp.weight", F32),
    EXACT("block_sparse_moe.input_linear.weight", "ffn_%s_exps.weight", SPLIT_STACK),
    EXACT("block_sparse_moe.output_linear.weight", "ffn_down_exps.weight", STACK),
    STACKS("block_sparse_moe.experts"),
    EXACT("shared_mlp.input_linear.weight", "ffn_%s_shexp.weight", SPLIT),
    EXACT("shared_mlp.output_linear.weight", "ffn_down_shexp.weight", PLAIN),
    MAMBA("mamba"),
    END,
};

static const ae_convert_rule hunyuan[] = {
    PLAIN("self_attn.query_layernorm", "attn_q_norm"), PLAIN("self_attn.key_layernorm", "attn_k_norm"),
    RULE("mlp.gate.wg", "ffn_gate_inp", F32), SHARED("mlp.shared_mlp"), END,
};

static const ae_convert_rule ernie[] = {
    EXACT("mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias", VECTOR),
    EXACT("mlp.gate.moe_statics.e_score_correction_bias", "exp_probs_b.bias", VECTOR), END,
};

static const ae_convert_rule minimax[] = {
    EXACT("block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias", PLAIN),
    EXACT("mlp.e_score_correction_bias", "exp_probs_b.bias", PLAIN), END,
};

static const ae_convert_rule phi2[] = {
    PLAIN("self_attn.dense", "attn_output"), PLAIN("mlp.fc1", "ffn_up"), PLAIN("mlp.fc2", "ffn_down"), END,
};

static const ae_convert_rule hy_v3[] = {
    EXACT("mlp.e_score_correction_bias", "exp_probs_b", PLAIN), EXACT("mlp.expert_bias", "exp_probs_b", PLAIN),
    RULE("mlp.router.gate", "ffn_gate_inp", F32), SHARED("mlp.shared_mlp"), END,
};

static const ae_convert_rule afmoe[] = {
    PLAIN("post_attention_layernorm", "post_attention_norm"), PLAIN("pre_mlp_layernorm", "ffn_norm"),
    PLAIN("post_mlp_layernorm", "post_ffw_norm"), PLAIN("self_attn.gate_proj", "attn_gate"),
    RULE("mlp.router.gate", "ffn_gate_inp", F32), EXACT("mlp.expert_bias", "exp_probs_b.bias", PLAIN), END,
};

static const ae_convert_rule starcoder[] = {PLAIN("mlp.c_fc", "ffn_up"), PLAIN("mlp.c_proj", "ffn_down"), END};

static const ae_convert_rule lfm2[] = {
    PLAIN("operator_norm", "attn_norm"), PLAIN("ffn_norm", "ffn_norm"), PLAIN("feed_forward.w1", "ffn_gate"),
    PLAIN("feed_forward.w3", "ffn_up"), PLAIN("feed_forward.w2", "ffn_down"), PLAIN("self_attn.out_proj", "attn_output"),
    PLAIN("self_attn.q_layernorm", "attn_q_norm"), PLAIN("self_attn.k_layernorm", "attn_k_norm"),
    EXACT("conv.conv.weight", "shortconv.conv.weight", CONV), PLAIN("conv.in_proj", "shortconv.in_proj"),
    PLAIN("conv.out_proj", "shortconv.out_proj"), RULE("feed_forward.gate", "ffn_gate_inp", F32),
    EXACT("feed_forward.expert_bias", "exp_probs_b.bias", PLAIN), EXPERTS("feed_forward.experts", "w1", "w3", "w2"),
    STACKS("feed_forward.experts"), END,
};

static const ae_convert_rule llama4[] = {
    PLAIN("feed_forward.gate_proj", "ffn_gate"), PLAIN("feed_forward.up_proj", "ffn_up"),
    PLAIN("feed_forward.down_proj", "ffn_down"), RULE("feed_forward.router", "ffn_gate_inp", F32),
    EXACT("feed_forward.experts.gate_up_proj", "ffn_%s_exps.weight", SPLIT_STACK_T),
    EXACT("feed_forward.experts.down_proj", "ffn_down_exps.weight", STACK_T), SHARED("feed_forward.shared_expert"), END,
};

static const ae_convert_rule nemotron[] = {
    PLAIN("norm", "attn_norm"), MAMBA("mixer"), PLAIN("mixer.q_proj", "attn_q"), PLAIN("mixer.k_proj", "attn_k"),
    PLAIN("mixer.v_proj", "attn_v"), PLAIN("mixer.o_proj", "attn_output"), PLAIN("mixer.up_proj", "ffn_up"),
    PLAIN("mixer.down_proj", "ffn_down"), EXACT("mixer.gate.e_score_correction_bias", "exp_probs_b.bias", PLAIN),
    RULE("mixer.gate", "ffn_gate_inp", F32), RULE("mixer.experts.%u.up_proj", "ffn_up_exps", EXPERTS),
    RULE("mixer.experts.%u.down_proj", "ffn_down_exps", EXPERTS), EXACT("mixer.experts.up_proj", "ffn_up_exps.weight", STACK),
    EXACT("mixer.experts.down_proj", "ffn_down_exps.weight", STACK), PLAIN("mixer.shared_experts.up_proj", "ffn_up_shexp"),
    PLAIN("mixer.shared_experts.down_proj", "ffn_down_shexp"), PLAIN("mixer.fc1_latent_proj", "ffn_latent_down"),
    PLAIN("mixer.fc2_latent_proj", "ffn_latent_up"), END,
};

static const ae_convert_rule gemma4[] = {
    PLAIN("post_attention_layernorm", "post_attention_norm"), PLAIN("per_layer_input_gate", "inp_gate"),
    PLAIN("per_layer_projection", "proj"), PLAIN("post_per_layer_input_norm", "post_norm"),
    EXACT("layer_scalar", "layer_output_scale.weight", PLAIN), PLAIN("pre_feedforward_layernorm_2", "pre_ffw_norm_2"),
    PLAIN("post_feedforward_layernorm_1", "post_ffw_norm_1"), PLAIN("post_feedforward_layernorm_2", "post_ffw_norm_2"),
    RULE("router.proj", "ffn_gate_inp", F32), EXACT("router.scale", "ffn_gate_inp.scale", PLAIN),
    EXACT("router.per_expert_scale", "ffn_down_exps.scale", PLAIN),
    EXACT("experts.gate_up_proj", "ffn_gate_up_exps.weight", STACK), EXACT("experts.down_proj", "ffn_down_exps.weight", STACK),
    EXACT("moe.gate_up_proj", "ffn_gate_up_exps.weight", STACK), EXACT("moe.down_proj", "ffn_down_exps.weight", STACK),
    EXACT("moe.per_expert_scale", "ffn_down_exps.scale", PLAIN), END,
};

static const ae_convert_rule gemma3n[] = {
    PLAIN("post_attention_layernorm", "post_attention_norm"), PLAIN("per_layer_input_gate", "inp_gate"),
    PLAIN("per_layer_projection", "proj"), PLAIN("post_per_layer_input_norm", "post_norm"),
    RULE("altup.modality_router", "altup_router", F32), PLAIN("altup.router_norm", "altup_router_norm"),
    RULE("altup.prediction_coefs", "altup_predict_coef", F32), RULE("altup.correction_coefs", "altup_correct_coef", F32),
    EXACT("altup.correct_output_scale", "altup_correct_scale.weight", PLAIN), PLAIN("laurel.linear_left", "laurel_l"),
    PLAIN("laurel.linear_right", "laurel_r"), PLAIN("laurel.post_laurel_norm", "laurel_post_norm"), END,
};

static const ae_convert_rule qwen3vlmoe[] = {
    EXACT("mlp.experts.gate_up_proj", "ffn_%s_exps.weight", SPLIT_STACK_T),
    EXACT("mlp.experts.down_proj", "ffn_down_exps.weight", STACK_T), END,
};

static const ae_convert_rule indexed[] = {
    PLAIN("self_attn.indexer.wq_b", "indexer.attn_q_b"), PLAIN("self_attn.indexer.wk", "indexer.attn_k"),
    PLAIN("self_attn.indexer.k_norm", "indexer.k_norm"), RULE("self_attn.indexer.weights_proj", "indexer.proj", F32), END,
};

static const ae_convert_rule mamba[] = {PLAIN("norm", "attn_norm"), MAMBA1("mixer"), END};

static const ae_convert_rule jamba[] = {
    MAMBA1("mamba"), PLAIN("mamba.dt_layernorm", "ssm_dt_norm"), PLAIN("mamba.b_layernorm", "ssm_b_norm"),
    PLAIN("mamba.c_layernorm", "ssm_c_norm"), PLAIN("pre_ff_layernorm", "ffn_norm"),
    PLAIN("feed_forward.gate_proj", "ffn_gate"), PLAIN("feed_forward.up_proj", "ffn_up"),
    PLAIN("feed_forward.down_proj", "ffn_down"), RULE("feed_forward.router", "ffn_gate_inp", F32),
    EXPERTS("feed_forward.experts", "gate_proj", "up_proj", "down_proj"), STACKS("feed_forward.experts"), END,
};

static const ae_convert_rule falcon_h1[] = {
    MAMBA("mamba"), EXACT("pre_ff_layernorm.weight", "ffn_norm", PLAIN), PLAIN("feed_forward.gate_proj", "ffn_gate"),
    PLAIN("feed_forward.up_proj", "ffn_up"), PLAIN("feed_forward.down_proj", "ffn_down"), END,
};

static const ae_convert_rule minimax_01[] = {
    PLAIN("self_attn.output_gate", "attn_gate"), PLAIN("self_attn.norm", "attn_norm_2"),
    PLAIN("self_attn.out_proj", "attn_output"), END,
};

static const ae_convert_rule kimi_linear[] = {
    PLAIN("self_attn.f_a_proj", "ssm_f_a"), PLAIN("self_attn.f_b_proj", "ssm_f_b"), PLAIN("self_attn.g_a_proj", "ssm_g_a"),
    PLAIN("self_attn.g_b_proj", "ssm_g_b"), PLAIN("self_attn.b_proj", "ssm_beta"), PLAIN("self_attn.o_norm", "ssm_norm"),
    EXACT("self_attn.A_log", "ssm_a", DECAY), EXACT("self_attn.dt_bias", "ssm_dt.bias", PLAIN),
    EXACT("block_sparse_moe.gate.e_score_correction_bias", "exp_probs_b.bias", PLAIN),
    SHARED("block_sparse_moe.shared_experts"),
    /* transformers renames the tensors of dense blocks, too, when it saves */
    PLAIN("block_sparse_moe.gate_proj", "ffn_gate"), PLAIN("block_sparse_moe.up_proj", "ffn_up"),
    PLAIN("block_sparse_moe.down_proj", "ffn_down"), END,
};

/* ae_convert_tensors_delta adds the tensors that are cut or reordered. */
static const ae_convert_rule delta[] = {
    FFN_NORM_POST_ATTENTION, EXACT("linear_attn.norm.weight", "ssm_norm.weight", PLAIN),
    EXACT("linear_attn.in_proj_ba.weight", "ssm_ba.weight", PLAIN), END,
};

/* ---- Keys --------------------------------------------------------------------------------------------- */

const ae_convert_key ae_convert_shared_keys[] = {
    U32("context_length", "max_position_embeddings"),
    U32("embedding_length", "hidden_size"),
    COUNT("feed_forward_length", "intermediate_size"),
    U32("attention.head_count", "num_attention_heads"),
    LAST,
};

const ae_convert_key ae_convert_expert_keys[] = {
    U32("expert_count", "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    U32("expert_used_count", "num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts"),
    COUNT("expert_feed_forward_length", "moe_intermediate_size"),
    COUNT("expert_shared_feed_forward_length", "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
          "shared_intermediate_size"),
    COUNT("expert_shared_count", "n_shared_experts"),
    COUNT("leading_dense_block_count", "first_k_dense_replace", "num_dense_layers"),
    SCALE("expert_weights_scale", "routed_scaling_factor"),
    BOOL("expert_weights_norm", "norm_topk_prob"),
    LAST,
};

static const ae_convert_key granite_keys[] = {
    SCALE("embedding_scale", "embedding_multiplier"), SCALE("residual_scale", "residual_multiplier"),
    SCALE("logit_scale", "logits_scaling"), SCALE("attention.scale", "attention_multiplier"), LAST,
};
static const ae_convert_key cohere_keys[] = {F32("logit_scale", "logit_scale"), LAST};
static const ae_convert_key gemma_keys[] = {
    SCALE("attn_logit_softcapping", "attn_logit_softcapping"),
    SCALE("final_logit_softcapping", "final_logit_softcapping"),
    LAST,
};
static const ae_convert_key llama4_keys[] = {
    U32("feed_forward_length", "intermediate_size_mlp"), U32("expert_feed_forward_length", "intermediate_size"),
    U32("interleave_moe_layer_step", "interleave_moe_layer_step"), LAST,
};
static const ae_convert_key gpt_oss_keys[] = {U32("expert_feed_forward_length", "intermediate_size"), LAST};
static const ae_convert_key mla_keys[] = {
    COUNT("attention.q_lora_rank", "q_lora_rank"), U32("attention.kv_lora_rank", "kv_lora_rank"),
    COUNT("expert_group_count", "n_group"), COUNT("expert_group_used_count", "topk_group"), LAST,
};
static const ae_convert_key kimi_linear_keys[] = {
    U32("context_length", "model_max_length", "max_position_embeddings"), COUNT("attention.q_lora_rank", "q_lora_rank"),
    U32("attention.kv_lora_rank", "kv_lora_rank"), COUNT("expert_group_count", "num_expert_group", "n_group"),
    COUNT("expert_group_used_count", "topk_group"), U32("expert_used_count", "num_experts_per_token", "num_experts_per_tok"),
    COUNT("expert_shared_count", "num_shared_experts", "n_shared_experts"),
    BOOL("expert_weights_norm", "moe_renormalize", "norm_topk_prob"), LAST,
};
static const ae_convert_key indexed_keys[] = {
    COUNT("attention.q_lora_rank", "q_lora_rank"), U32("attention.kv_lora_rank", "kv_lora_rank"),
    COUNT("expert_group_count", "n_group"), COUNT("expert_group_used_count", "topk_group"),
    U32("attention.indexer.head_count", "index_n_heads"), U32("attention.indexer.key_length", "index_head_dim"),
    U32("attention.indexer.top_k", "index_topk"), LAST,
};
static const ae_convert_key gemma3n_keys[] = {
    SCALE("final_logit_softcapping", "final_logit_softcapping"), U32("feed_forward_length", NULL),
    U32("embedding_length_per_layer_input", "hidden_size_per_layer_input"),
    U32("attention.shared_kv_layers", "num_kv_shared_layers"), LAST,
};
static const ae_convert_key mamba_keys[] = {
    U32("feed_forward_length", NULL), U32("attention.head_count", NULL), U32("ssm.conv_kernel", "conv_kernel"),
    U32("ssm.state_size", "state_size"), LAST,
};
static const ae_convert_key jamba_keys[] = {
    U32("ssm.conv_kernel", "mamba_d_conv"), U32("ssm.state_size", "mamba_d_state"), LAST,
};
static const ae_convert_key granitehybrid_keys[] = {
    SCALE("embedding_scale", "embedding_multiplier"),
    SCALE("residual_scale", "residual_multiplier"),
    SCALE("logit_scale", "logits_scaling"),
    SCALE("attention.scale", "attention_multiplier"),
    U32("feed_forward_length", NULL),
    LAST,
};
static const ae_convert_key gemma4_keys[] = {
    SCALE("final_logit_softcapping", "final_logit_softcapping"), U32("feed_forward_length", NULL),
    U32("embedding_length_per_layer_input", "hidden_size_per_layer_input"),
    COUNT("attention.shared_kv_layers", "num_kv_shared_layers"), LAST,
};
static const ae_convert_key hy_v3_keys[] = {SCALE("expert_weights_scale", "router_scaling_factor"), LAST};
static const ae_convert_key afmoe_keys[] = {
    SCALE("expert_weights_scale", "route_scale"), U32("expert_shared_count", "num_shared_experts"), LAST,
};
static const ae_convert_key olmo_keys[] = {SCALE("attention.clamp_kqv", "clip_qkv"), LAST};
static const ae_convert_key nemotron_keys[] = {U32("feed_forward_length", NULL), LAST};
static const ae_convert_key lfm2_keys[] = {U32("shortconv.l_cache", "conv_L_cache"), LAST};
static const ae_convert_key ernie_keys[] = {
    COUNT("leading_dense_block_count", "moe_layer_start_index"), U32("interleave_moe_layer_step", "moe_layer_interval"), LAST,
};

/* ae_convert_keys_hunyuan writes these because their values may be lists. */
static const ae_convert_key hunyuan_keys[] = {
    U32("expert_used_count", NULL),
    U32("expert_feed_forward_length", NULL),
    U32("expert_shared_feed_forward_length", NULL),
    LAST,
};

#define SAVED_GEMMA3                                                                                                           \
    "{\"hidden_size\":2304,\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":256,\"rms_norm_eps\":1e-6,"        \
    "\"max_position_embeddings\":131072,\"rope_theta\":1e6,\"query_pre_attn_scalar\":256,\"sliding_window\":4096}"

#define T5_NAMES                                                                                                               \
    "d_model=hidden_size num_layers=num_hidden_layers num_heads=num_attention_heads d_kv=head_dim d_ff=intermediate_size "     \
    "n_positions=max_position_embeddings"

static const ae_convert_arch archs[] = {
    {.classes = "LlamaForCausalLM MistralForCausalLM InternLM3ForCausalLM", .arch = "llama", .flags = AE_ARCH_PAIRS},
    {.classes = "MixtralForCausalLM", .arch = "llama", .flags = AE_ARCH_PAIRS | AE_ARCH_EXPERTS},
    {.classes = "Ministral3ForCausalLM Mistral3ForConditionalGeneration",
     .arch = "mistral3",
     .flags = AE_ARCH_PAIRS | AE_ARCH_NO_DIVISORS,
     .more_keys = ae_convert_keys_mistral3},
    {.classes = "ArceeForCausalLM", .arch = "arcee", .activation = AE_CONVERT_RELU2, .flags = AE_ARCH_PAIRS},
    {.classes = "AfmoeForCausalLM",
     .arch = "afmoe",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_WINDOW,
     .window_period = 4,
     .rules = afmoe,
     .keys = afmoe_keys,
     .more_keys = ae_convert_keys_renormed},
    {.classes = "SmolLM3ForCausalLM", .arch = "smollm3", .flags = AE_ARCH_PAIRS},
    {.classes = "Qwen2ForCausalLM Qwen2Model DotsOCRForCausalLM", .arch = "qwen2"},
    {.classes = "Qwen2MoeForCausalLM", .arch = "qwen2moe", .flags = AE_ARCH_EXPERTS},
    {.classes = "Qwen3ForCausalLM Qwen3Model", .arch = "qwen3"},
    {.classes = "Qwen3MoeForCausalLM", .arch = "qwen3moe", .flags = AE_ARCH_EXPERTS},
    {.classes = "GemmaForCausalLM",
     .arch = "gemma",
     .activation = AE_CONVERT_GELU,
     .activation_key = "hidden_activation",
     .flags = AE_ARCH_PLUS_ONE},
    {.classes = "Gemma2ForCausalLM",
     .arch = "gemma2",
     .activation = AE_CONVERT_GELU,
     .activation_key = "hidden_activation",
     .flags = AE_ARCH_PLUS_ONE | AE_ARCH_WINDOW,
     .window_period = 2,
     .rules = post_attention,
     .keys = gemma_keys,
     .more_keys = ae_convert_keys_gemma},
    {.classes = "Gemma3ForCausalLM Gemma3ForConditionalGeneration Gemma3TextModel",
     .arch = "gemma3",
     .activation = AE_CONVERT_GELU,
     .activation_key = "hidden_activation",
     .flags = AE_ARCH_PLUS_ONE | AE_ARCH_WINDOW,
     .window_period = 6,
     .rules = post_attention,
     .keys = gemma_keys,
     .more_keys = ae_convert_keys_gemma,
     .defaults = SAVED_GEMMA3},
    {.classes = "EmbeddingGemmaModel", /* Gemma3TextModel, if it has use_bidirectional_attention */
     .arch = "gemma-embedding",
     .activation = AE_CONVERT_GELU,
     .activation_key = "hidden_activation",
     .flags = AE_ARCH_PLUS_ONE | AE_ARCH_WINDOW | AE_ARCH_ENCODES,
     .window_period = 6,
     .rules = post_attention,
     .keys = gemma_keys,
     .more_keys = ae_convert_keys_dense,
     .finish = ae_convert_finish_dense},
    {.classes = "GptOssForCausalLM",
     .arch = "gpt-oss",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_WINDOW | AE_ARCH_NO_DIVISORS,
     .window_period = 2,
     .rules = gpt_oss,
     .keys = gpt_oss_keys},
    {.classes = "GlmForCausalLM", .arch = "chatglm"},
    {.classes = "Glm4ForCausalLM", .arch = "glm4", .rules = glm4},
    {.classes = "Glm4MoeForCausalLM SolarOpenForCausalLM",
     .arch = "glm4moe",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_AHEAD,
     .rules = post_attention},
    {.classes = "Glm4vMoeForConditionalGeneration",
     .arch = "glm4moe",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_AHEAD,
     .rules = post_attention,
     .more_keys = ae_convert_keys_seeing},
    {.classes = "Dots1ForCausalLM", .arch = "dots1", .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID},
    {.classes = "MiniMaxM2ForCausalLM",
     .arch = "minimax-m2",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID,
     .rules = minimax,
     .more_keys = ae_convert_keys_minimax},
    {.classes = "Ernie4_5ForCausalLM Ernie4_5_ForCausalLM", .arch = "ernie4_5"},
    {.classes = "Ernie4_5_MoeForCausalLM",
     .arch = "ernie4_5-moe",
     .flags = AE_ARCH_EXPERTS,
     .rules = ernie,
     .keys = ernie_keys,
     .more_keys = ae_convert_keys_ernie},
    {.classes = "HYV3ForCausalLM",
     .arch = "hy_v3",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID,
     .rules = hy_v3,
     .keys = hy_v3_keys,
     .more_keys = ae_convert_keys_renormed},
    {.classes = "HunYuanDenseV1ForCausalLM", .arch = "hunyuan-dense", .rules = hunyuan},
    {.classes = "HunYuanVLForConditionalGeneration",
     .arch = "hunyuan_vl",
     .rules = hunyuan,
     .defaults = "{\"tie_word_embeddings\":true}",
     .begin = ae_convert_begin_hunyuan_vl,
     .more_keys = ae_convert_keys_hunyuan_vl},
    {.classes = "HunYuanMoEV1ForCausalLM",
     .arch = "hunyuan-moe",
     .flags = AE_ARCH_EXPERTS,
     .rules = hunyuan,
     .keys = hunyuan_keys,
     .more_keys = ae_convert_keys_hunyuan},
    {.classes = "PhiForCausalLM",
     .arch = "phi2",
     .flags = AE_ARCH_LAYER_NORM,
     .activation = AE_CONVERT_GELU,
     .rules = phi2},
    {.classes = "Phi3ForCausalLM", .arch = "phi3", .more_keys = ae_convert_keys_phi3},
    {.classes = "OlmoForCausalLM",
     .arch = "olmo",
     .flags = AE_ARCH_PAIRS | AE_ARCH_LAYER_NORM,
     .keys = olmo_keys,
     .defaults = "{\"layer_norm_eps\":1e-5}"},
    {.classes = "Olmo2ForCausalLM", .arch = "olmo2", .rules = post_attention},
    {.classes = "Olmo3ForCausalLM", .arch = "olmo2", .flags = AE_ARCH_WINDOW, .window_period = 4, .rules = post_attention},
    {.classes = "OlmoeForCausalLM", .arch = "olmoe", .flags = AE_ARCH_EXPERTS},
    {.classes = "CohereForCausalLM", .arch = "command-r", .flags = AE_ARCH_LAYER_NORM, .keys = cohere_keys},
    {.classes = "Cohere2ForCausalLM",
     .arch = "cohere2",
     .flags = AE_ARCH_LAYER_NORM | AE_ARCH_WINDOW,
     .window_period = 4,
     .keys = cohere_keys},
    {.classes = "GraniteForCausalLM", .arch = "granite", .flags = AE_ARCH_PAIRS, .keys = granite_keys},
    {.classes = "GraniteMoeForCausalLM GraniteMoeSharedForCausalLM",
     .arch = "granitemoe",
     .flags = AE_ARCH_PAIRS | AE_ARCH_EXPERTS,
     .rules = granite,
     .keys = granite_keys},
    {.classes = "Lfm2ForCausalLM LFM2ForCausalLM",
     .arch = "lfm2",
     .width_from = "feed_forward.w1.weight",
     .flags = AE_ARCH_OWN_HEADS,
     .rules = lfm2,
     .keys = lfm2_keys,
     .more_keys = ae_convert_keys_lfm2},
    {.classes = "Lfm2MoeForCausalLM",
     .arch = "lfm2moe",
     .flags = AE_ARCH_OWN_HEADS | AE_ARCH_EXPERTS | AE_ARCH_SIGMOID,
     .rules = lfm2,
     .keys = lfm2_keys,
     .more_keys = ae_convert_keys_lfm2},
    {.classes = "SeedOssForCausalLM", .arch = "seed_oss", .rules = post_attention},
    {.classes = "Exaone4ForCausalLM Exaone4_5_ForConditionalGeneration",
     .arch = "exaone4",
     .flags = AE_ARCH_WINDOW,
     .window_period = 4,
     .rules = post_attention},
    {.classes = "ExaoneMoeForCausalLM ExaoneMoEForCausalLM",
     .arch = "exaone-moe",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_WINDOW,
     .window_period = 4,
     .rules = minimax,
     .more_keys = ae_convert_keys_shared},
    {.classes = "MellumForCausalLM", .arch = "mellum", .flags = AE_ARCH_EXPERTS | AE_ARCH_WINDOW, .window_period = 4},
    {.classes = "NemotronForCausalLM",
     .arch = "nemotron",
     .activation = AE_CONVERT_RELU2,
     .flags = AE_ARCH_LAYER_NORM | AE_ARCH_PLUS_ONE},
    {.classes = "Jais2ForCausalLM", .arch = "jais2", .activation = AE_CONVERT_RELU2, .flags = AE_ARCH_LAYER_NORM},
    {.classes = "Starcoder2ForCausalLM",
     .arch = "starcoder2",
     .flags = AE_ARCH_LAYER_NORM,
     .activation = AE_CONVERT_GELU,
     .rules = starcoder},
    {.classes = "Llama4ForCausalLM Llama4ForConditionalGeneration",
     .arch = "llama4",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID,
     .rules = llama4,
     .keys = llama4_keys},
    {.classes = "Qwen3NextForCausalLM",
     .arch = "qwen3next",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_PLUS_ONE,
     .rules = delta,
     .more_keys = ae_convert_keys_delta,
     .more_tensors = ae_convert_tensors_delta},
    {.classes = "Qwen3_5ForCausalLM Qwen3_5ForConditionalGeneration",
     .arch = "qwen35",
     .flags = AE_ARCH_PLUS_ONE | AE_ARCH_AHEAD,
     .rules = delta,
     .more_keys = ae_convert_keys_delta,
     .more_tensors = ae_convert_tensors_delta},
    {.classes = "Qwen3_5MoeForCausalLM Qwen3_5MoeForConditionalGeneration",
     .arch = "qwen35moe",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_PLUS_ONE | AE_ARCH_AHEAD,
     .rules = delta,
     .more_keys = ae_convert_keys_delta,
     .more_tensors = ae_convert_tensors_delta},
    {.classes = "OpenJevModel", /* Qwen3_5ForConditionalGeneration beside helper/shim.py */
     .arch = "qwen35",
     .flags = AE_ARCH_PLUS_ONE,
     .rules = delta,
     .more_keys = ae_convert_keys_openjev,
     .more_tensors = ae_convert_tensors_delta,
     .systemone = ae_convert_systemone_openjev},
    {.classes = "ClefModel", /* any Qwen3_5 class beside a joint decision head */
     .arch = "clef",
     .flags = AE_ARCH_PLUS_ONE | AE_ARCH_DECIDES,
     .rules = delta,
     .begin = ae_convert_begin_clef,
     .more_keys = ae_convert_keys_clef,
     .more_tensors = ae_convert_tensors_delta,
     .finish = ae_convert_finish_clef,
     .systemone = ae_convert_systemone_clef},
    {.classes = "DeepseekV3ForCausalLM Glm4MoeLiteForCausalLM",
     .arch = "deepseek2",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_OWN_HEADS,
     .keys = mla_keys,
     .more_keys = ae_convert_keys_mla,
     .more_tensors = ae_convert_tensors_mla},
    {.classes = "DeepseekV2ForCausalLM",
     .arch = "deepseek2",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_OWN_HEADS,
     .keys = mla_keys,
     .more_keys = ae_convert_keys_mla,
     .more_tensors = ae_convert_tensors_mla},
    {.classes = "Mistral4ForCausalLM", /* also the text model of Mistral3ForConditionalGeneration, if it is of this kind */
     .arch = "mistral4",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_OWN_HEADS | AE_ARCH_NO_DIVISORS,
     .keys = mla_keys,
     .more_keys = ae_convert_keys_mistral4,
     .more_tensors = ae_convert_tensors_mla},
    {.classes = "FalconH1ForCausalLM",
     .arch = "falcon-h1",
     .rules = falcon_h1,
     .more_keys = ae_convert_keys_falcon_h1,
     .more_tensors = ae_convert_tensors_falcon_h1},
    {.classes = "MiniMaxForCausalLM MiniMaxText01ForCausalLM MiniMaxM1ForCausalLM",
     .arch = "minimax-01",
     .flags = AE_ARCH_EXPERTS,
     .rules = minimax_01,
     .more_keys = ae_convert_keys_minimax_01},
    {.classes = "KimiLinearForCausalLM",
     .arch = "kimi-linear",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_OWN_HEADS | AE_ARCH_NO_ROPE,
     .rules = kimi_linear,
     .keys = kimi_linear_keys,
     .defaults = "{\"max_position_embeddings\":1048576}",
     .more_keys = ae_convert_keys_kimi_linear,
     .more_tensors = ae_convert_tensors_kimi_linear},
    {.classes = "T5ForConditionalGeneration UMT5ForConditionalGeneration",
     .arch = "t5",
     .flags = AE_ARCH_NO_ROPE,
     .defaults = "{\"tie_word_embeddings\":true,\"n_positions\":512}",
     .aliases = T5_NAMES,
     .more_keys = ae_convert_keys_t5,
     .more_tensors = ae_convert_tensors_t5},
    {.classes = "T5EncoderModel UMT5EncoderModel",
     .arch = "t5encoder",
     .flags = AE_ARCH_NO_ROPE,
     .defaults = "{\"n_positions\":512}",
     .aliases = T5_NAMES,
     .more_keys = ae_convert_keys_t5,
     .more_tensors = ae_convert_tensors_t5},
    {.classes = "Qwen2VLForConditionalGeneration Qwen2_5_VLForConditionalGeneration",
     .arch = "qwen2vl",
     .more_keys = ae_convert_keys_seeing},
    {.classes = "Qwen3VLForConditionalGeneration", .arch = "qwen3vl", .more_keys = ae_convert_keys_seeing},
    {.classes = "Qwen3VLMoeForConditionalGeneration",
     .arch = "qwen3vlmoe",
     .flags = AE_ARCH_EXPERTS,
     .rules = qwen3vlmoe,
     .more_keys = ae_convert_keys_seeing},
    {.classes = "DeepseekV32ForCausalLM",
     .arch = "deepseek32",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_OWN_HEADS,
     .rules = indexed,
     .keys = indexed_keys,
     .more_keys = ae_convert_keys_indexed,
     .more_tensors = ae_convert_tensors_mla},
    {.classes = "GlmMoeDsaForCausalLM",
     .arch = "glm-dsa",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_OWN_HEADS,
     .rules = indexed,
     .keys = indexed_keys,
     .more_keys = ae_convert_keys_indexed,
     .more_tensors = ae_convert_tensors_mla},
    {.classes = "MambaForCausalLM FalconMambaForCausalLM MambaLMHeadModel", /* the last class is mamba_ssm's */
     .arch = "mamba",
     .flags = AE_ARCH_NO_ROPE | AE_ARCH_OWN_HEADS,
     .rules = mamba,
     .keys = mamba_keys,
     .aliases = AE_MAMBA_SSM_NAMES " ssm_cfg.dt_rank=time_step_rank",
     .defaults = "{\"num_attention_heads\":1,\"max_position_embeddings\":1048576,\"layer_norm_epsilon\":1e-5,"
                 "\"state_size\":16,\"conv_kernel\":4}",
     .fixed = "{\"rms_norm\":true,\"layer\":\"Mamba1\"}",
     .more_keys = ae_convert_keys_mamba},
    {.classes = "JambaForCausalLM",
     .arch = "jamba",
     .flags = AE_ARCH_NO_ROPE | AE_ARCH_OWN_HEADS | AE_ARCH_EXPERTS,
     .rules = jamba,
     .keys = jamba_keys,
     .more_keys = ae_convert_keys_jamba},
    {.classes = "Gemma3nForCausalLM Gemma3nForConditionalGeneration",
     .arch = "gemma3n",
     .activation = AE_CONVERT_GELU,
     .activation_key = "hidden_activation",
     .flags = AE_ARCH_WINDOW,
     .window_period = 5,
     .rules = gemma3n,
     .keys = gemma3n_keys,
     .more_keys = ae_convert_keys_gemma3n,
     .more_tensors = ae_convert_tensors_gemma3n},
    {.classes = "GraniteMoeHybridForCausalLM",
     .arch = "granitehybrid",
     .flags = AE_ARCH_PAIRS | AE_ARCH_EXPERTS | AE_ARCH_OWN_HEADS,
     .rules = granite,
     .keys = granitehybrid_keys,
     .more_keys = ae_convert_keys_granitehybrid},
    /* the second row is used if a layer has experts */
    {.classes = "NemotronHForCausalLM",
     .arch = "nemotron_h",
     .activation = AE_CONVERT_RELU2,
     .flags = AE_ARCH_NO_ROPE | AE_ARCH_OWN_HEADS,
     .rules = nemotron,
     .keys = nemotron_keys,
     .more_keys = ae_convert_keys_nemotron},
    {.classes = "NemotronHForCausalLM",
     .arch = "nemotron_h_moe",
     .activation = AE_CONVERT_RELU2,
     .flags = AE_ARCH_NO_ROPE | AE_ARCH_OWN_HEADS | AE_ARCH_EXPERTS | AE_ARCH_SIGMOID,
     .rules = nemotron,
     .keys = nemotron_keys,
     .more_keys = ae_convert_keys_nemotron},
    {.classes = "Gemma4ForCausalLM Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration",
     .arch = "gemma4",
     .activation = AE_CONVERT_GELU,
     .activation_key = "hidden_activation",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_OWN_HEADS | AE_ARCH_NO_ROPE,
     .window_period = 6,
     .rules = gemma4,
     .keys = gemma4_keys,
     .more_keys = ae_convert_keys_gemma4,
     .more_tensors = ae_convert_tensors_gemma4},
};

const ae_convert_arch *ae_convert_arch_at(size_t i)
{
    const struct {
        const ae_convert_arch *rows;
        size_t n;
    } tables[] = {{archs, sizeof archs / sizeof *archs}, {ae_convert_late_archs, ae_convert_n_late_archs},
                  {ae_convert_old_archs, ae_convert_n_old_archs}, {ae_convert_more_archs, ae_convert_n_more_archs}};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        if (i < tables[t].n) return &tables[t].rows[i];
        i -= tables[t].n;
    }
    return NULL;
}

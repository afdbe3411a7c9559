/* archs_more.c - rows of the table for models whose layers differ from each other, and for rare ones. Data only (arch.h). */
#include "convert/archs/rules.h"

/* ---- Tensors ------------------------------------------------------------------------------------------ */

static const ae_convert_rename step35_parts[] = {
    {"transformer.shared_head.output.", "shared_head.head."}, {"transformer.shared_head.", "shared_head."},
    {"moe.gate.", "mlp.gate."}, {"moe.router_bias", "mlp.gate.e_score_correction_bias"},
    {"share_expert.", "mlp.shared_expert."}, {NULL, NULL}};
static const ae_convert_rule step35[] = {
    PLAIN("self_attn.g_proj", "attn_gate"), EXACT("moe.gate_proj.weight", "ffn_gate_exps.weight", STACK),
    EXACT("moe.up_proj.weight", "ffn_up_exps.weight", STACK), EXACT("moe.down_proj.weight", "ffn_down_exps.weight", STACK), END,
};

static const ae_convert_rename mimo2_parts[] = {
    {"self_attn.attention_sink_bias", "self_attn.sinks"}, {"pre_mlp_layernorm.", "post_attention_layernorm."}, {NULL, NULL}};
static const ae_convert_rule mimo2[] = {PLAIN("final_layernorm", "layer_output_norm"), END};

static const ae_convert_rule muse[] = {
    PLAIN("post_attention_layernorm", "post_attention_norm"), PLAIN("self_attn.gate_proj", "attn_gate"), END,
};

static const ae_convert_rule bamba[] = {
    MAMBA("mamba"), PLAIN("pre_ff_layernorm", "ffn_norm"), PLAIN("feed_forward.gate_proj", "ffn_gate"),
    PLAIN("feed_forward.up_proj", "ffn_up"), PLAIN("feed_forward.down_proj", "ffn_down"), END,
};

static const ae_convert_rename bailing_parts[] = {{"attention.dense.", "self_attn.o_proj."}, {NULL, NULL}};
static const ae_convert_rule bailing[] = {RULE("attention.query_key_value", "attn_%s", QKV_JOINED), END};

static const ae_convert_rule arctic[] = {
    PLAIN("residual_layernorm", "ffn_norm"), PLAIN("post_attention_layernorm", "ffn_norm_exps"),
    PLAIN("residual_mlp.w1", "ffn_gate"), PLAIN("residual_mlp.w3", "ffn_up"), PLAIN("residual_mlp.w2", "ffn_down"), END,
};

static const ae_convert_rule latent[] = {PLAIN("self_attn.kv_b_proj", "attn_kv_b"), END};

static const ae_convert_rule deci[] = {PLAIN("self_attn.linear_attn", "attn_output"), END};

static const ae_convert_rename dbrx_parts[] = {{"norm_attn_norm.attn.", "attn."}, {"norm_attn_norm.", ""}, {NULL, NULL}};
static const ae_convert_rule dbrx[] = {
    PLAIN("norm_1", "attn_norm"), PLAIN("norm_2", "attn_output_norm"), PLAIN("attn.Wqkv", "attn_qkv"),
    PLAIN("attn.out_proj", "attn_output"), RULE("ffn.router.layer", "ffn_gate_inp", F32), END,
};

static const ae_convert_rule chatglm[] = {
    PLAIN("self_attention.query_key_value", "attn_qkv"), PLAIN("self_attention.dense", "attn_output"),
    PLAIN("mlp.dense_h_to_4h", "ffn_up"), PLAIN("mlp.dense_4h_to_h", "ffn_down"), END,
};

static const ae_convert_rule qwen1[] = {
    PLAIN("ln_1", "attn_norm"), PLAIN("ln_2", "ffn_norm"), PLAIN("attn.c_attn", "attn_qkv"),
    PLAIN("attn.c_proj", "attn_output"), PLAIN("mlp.w1", "ffn_up"), PLAIN("mlp.w2", "ffn_gate"),
    PLAIN("mlp.c_proj", "ffn_down"), END,
};

/* A function adds ff_proj. */
static const ae_convert_rule olmo1[] = {
    RULE("att_proj", "attn_%s", QKV_JOINED), PLAIN("attn_out", "attn_output"), PLAIN("ff_out", "ffn_down"), END,
};

static const ae_convert_rule codeshell[] = {
    PLAIN("ln_1", "attn_norm"), PLAIN("ln_2", "ffn_norm"), PLAIN("attn.c_attn", "attn_qkv"),
    PLAIN("attn.c_proj", "attn_output"), PLAIN("mlp.c_fc", "ffn_up"), PLAIN("mlp.c_proj", "ffn_down"), END,
};

static const ae_convert_rule jais[] = {
    PLAIN("ln_1", "attn_norm"), PLAIN("ln_2", "ffn_norm"), RULE("attn.c_attn", "attn_qkv", TRANSPOSED),
    RULE("attn.c_proj", "attn_output", TRANSPOSED), RULE("mlp.c_fc", "ffn_up", TRANSPOSED),
    RULE("mlp.c_fc2", "ffn_gate", TRANSPOSED), RULE("mlp.c_proj", "ffn_down", TRANSPOSED), END,
};

static const ae_convert_rule plamo1[] = {PLAIN("norm", "attn_norm"), END};

static const ae_convert_rule plamo3[] = {
    PLAIN("mixer.qkv_proj", "attn_qkv"), PLAIN("mixer.o_proj", "attn_output"), END,
};

static const ae_convert_rule openelm[] = {
    PLAIN("attn_norm", "attn_norm"), PLAIN("ffn_norm", "ffn_norm"), PLAIN("attn.qkv_proj", "attn_qkv"),
    PLAIN("attn.q_norm", "attn_q_norm"), PLAIN("attn.k_norm", "attn_k_norm"), PLAIN("attn.out_proj", "attn_output"),
    EXACT("ffn.proj_1.weight", "ffn_%s.weight", SPLIT), PLAIN("ffn.proj_2", "ffn_down"), END,
};

static const ae_convert_rule bitnet[] = {
    PLAIN("self_attn.attn_sub_norm", "attn_sub_norm"), PLAIN("mlp.ffn_sub_norm", "ffn_sub_norm"),
    PLAIN("self_attn.inner_attn_ln", "attn_sub_norm"), PLAIN("mlp.ffn_layernorm", "ffn_sub_norm"), END,
};

/* The experts for pictures are another block of each layer. */
static const ae_convert_rule cogvlm[] = {
    PLAIN("self_attn.language_expert_query_key_value", "attn_qkv"), PLAIN("self_attn.language_expert_dense", "attn_output"),
    PLAIN("mlp.language_mlp.gate_proj", "ffn_gate"), PLAIN("mlp.language_mlp.up_proj", "ffn_up"),
    PLAIN("mlp.language_mlp.down_proj", "ffn_down"), PLAIN("self_attn.vision_expert_query_key_value", "vis_attn_qkv"),
    PLAIN("self_attn.vision_expert_dense", "vis_attn_output"), PLAIN("mlp.vision_mlp.gate_proj", "vis_gate"),
    PLAIN("mlp.vision_mlp.up_proj", "vis_up"), PLAIN("mlp.vision_mlp.down_proj", "vis_down"), END,
};

/* Grok-2's names, and those of Grok-1 in Hugging Face's layout. */
static const ae_convert_rename grok_parts[] = {
    {"multi_head_attention.query.", "self_attn.q_proj."}, {"multi_head_attention.key.", "self_attn.k_proj."},
    {"multi_head_attention.value.", "self_attn.v_proj."}, {"multi_head_attention.linear.", "self_attn.o_proj."},
    {"rms_norm.", "pre_attn_norm."}, {"rms_norm_1.", "post_attn_norm."}, {"rms_norm_2.", "pre_moe_norm."},
    {"router.", "block_sparse_moe.gate."}, {NULL, NULL}};
static const ae_convert_rule grok[] = {
    PLAIN("pre_attn_norm", "attn_norm"), PLAIN("post_attn_norm", "attn_output_norm"), PLAIN("pre_moe_norm", "ffn_norm"),
    PLAIN("post_moe_norm", "post_ffw_norm"), PLAIN("rms_norm_3", "layer_output_norm"),
    EXPERTS("moe", "linear", "linear_v", "linear_1"), END,
};

static const ae_convert_rule spark[] = {
    PLAIN("self_attn.q_k_v_proj", "attn_qkv"), PLAIN("self_attn.g_proj", "attn_gate"), END,
};

/* ---- Keys --------------------------------------------------------------------------------------------- */

static const ae_convert_key step35_keys[] = {
    U32("attention.head_count", NULL), U32("leading_dense_block_count", NULL), LAST,
};
static const ae_convert_key mimo2_keys[] = {SCALE("attention.value_scale", "attention_value_scale"), LAST};
static const ae_convert_key cohere2moe_keys[] = {
    F32("logit_scale", "logit_scale"), U32("feed_forward_length", "prefix_dense_intermediate_size", "intermediate_size"),
    U32("expert_feed_forward_length", "intermediate_size"), U32("leading_dense_block_count", NULL), LAST,
};
static const ae_convert_key muse_keys[] = {
    SCALE("final_logit_softcapping", "final_logit_softcapping"), F32("logit_scale", "output_multiplier"), LAST,
};

static const ae_convert_key bailing_keys[] = {
    COUNT("expert_shared_count", "num_shared_experts", "n_shared_experts"),
    U32("leading_dense_block_count", "first_k_dense_replace"), LAST,
};
static const ae_convert_key latent_keys[] = {
    COUNT("attention.q_lora_rank", "q_lora_rank"), U32("attention.kv_lora_rank", "kv_lora_rank"), LAST,
};
static const ae_convert_key youtu_keys[] = {
    COUNT("attention.q_lora_rank", "q_lora_rank"), U32("attention.kv_lora_rank", "kv_lora_rank"),
    U32("leading_dense_block_count", "num_hidden_layers"), U32("expert_feed_forward_length", "intermediate_size"), LAST,
};
static const ae_convert_key bamba_keys[] = {U32("feed_forward_length", NULL), LAST};
static const ae_convert_key clamped_keys[] = {SCALE("attention.clamp_kqv", "clip_qkv"), LAST};
static const ae_convert_key layer_keys[] = {U32("attention.head_count", NULL), U32("feed_forward_length", NULL), LAST};

static const ae_convert_key chameleon_keys[] = {BOOL("swin_norm", "swin_norm"), LAST};
static const ae_convert_key grok_keys[] = {
    F32("embedding_scale", "embedding_multiplier_scale"), F32("logit_scale", "output_multiplier_scale"),
    F32("attn_logit_softcapping", "attn_logit_softcapping"), F32("router_logit_softcapping", "router_logit_softcapping"),
    SCALE("final_logit_softcapping", "final_logit_softcapping"), LAST,
};

/* ---- Models ------------------------------------------------------------------------------------------- */

const ae_convert_arch ae_convert_more_archs[] = {
    {.classes = "Step3p5ForCausalLM Step3p7ForConditionalGeneration Step3p7ForCausalLM",
     .arch = "step35",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_OWN_HEADS | AE_ARCH_PLUS_ONE | AE_ARCH_AHEAD,
     .window_period = 1,
     .parts = step35_parts,
     .rules = step35,
     .keys = step35_keys,
     .aliases = "num_attention_groups=num_key_value_heads moe_num_experts=num_experts moe_top_k=num_experts_per_tok "
                "share_expert_dim=shared_expert_intermediate_size moe_router_scaling_factor=routed_scaling_factor "
                "norm_expert_weight=norm_topk_prob",
     .defaults = "{\"norm_expert_weight\":true}",
     .fixed = "{\"moe_router_activation\":\"sigmoid\",\"use_head_wise_attn_gate\":true,\"zero_centered\":true,\"sink\":false,"
              "\"moe_every_n_layer\":1}",
     .begin = ae_convert_begin_step35,
     .more_keys = ae_convert_keys_step35,
     .finish = ae_convert_finish_step35},
    {.classes = "MiMoV2FlashForCausalLM MiMoV2ForCausalLM",
     .arch = "mimo2",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_OWN_HEADS | AE_ARCH_AHEAD,
     .window_period = 1,
     .parts = mimo2_parts,
     .rules = mimo2,
     .keys = mimo2_keys,
     .aliases = "layernorm_epsilon=rms_norm_eps",
     .fixed = "{\"n_group\":1,\"topk_group\":1,\"norm_topk_prob\":true,\"scoring_func\":\"sigmoid\","
              "\"topk_method\":\"noaux_tc\"}",
     .begin = ae_convert_begin_mimo2,
     .more_keys = ae_convert_keys_mimo2,
     .more_tensors = ae_convert_tensors_mimo2},
    {.classes = "Cohere2MoeForCausalLM",
     .arch = "cohere2moe",
     .flags = AE_ARCH_EITHER_NORM | AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_AHEAD,
     .window_period = 1,
     .keys = cohere2moe_keys,
     .defaults = "{\"tie_word_embeddings\":true,\"logit_scale\":0.0625,\"norm_topk_prob\":true,"
                 "\"expert_selection_fn\":\"softmax\"}",
     .fixed = "{\"expert_selection_fn\":\"sigmoid\",\"shared_expert_combination_strategy\":\"average\","
              "\"prefix_dense_sliding_window_pattern\":1}",
     .more_keys = ae_convert_keys_cohere2moe},
    {.classes = "MuseGlimmerForConditionalGeneration MuseGlimmerForCausalLM",
     .arch = "muse-glimmer",
     .flags = AE_ARCH_PAIRS,
     .window_period = 1,
     .rules = muse,
     .keys = muse_keys,
     .defaults = "{\"output_multiplier\":0.19611613513818404,\"final_logit_softcapping\":20.0}",
     .fixed = "{\"post_norm_eps\":1e-8}",
     .more_keys = ae_convert_keys_muse,
     .more_tensors = ae_convert_tensors_muse},
    {.classes = "BambaForCausalLM",
     .arch = "granitehybrid",
     .flags = AE_ARCH_PAIRS | AE_ARCH_OWN_HEADS,
     .rules = bamba,
     .keys = bamba_keys,
     .aliases = "intermediate_size=shared_intermediate_size",
     .begin = ae_convert_begin_bamba,
     .more_keys = ae_convert_keys_granitehybrid},
    {.classes = "BailingMoeForCausalLM",
     .arch = "bailingmoe",
     .flags = AE_ARCH_PAIRS | AE_ARCH_EXPERTS,
     .parts = bailing_parts,
     .rules = bailing,
     .keys = bailing_keys,
     .defaults = "{\"routed_scaling_factor\":1.0,\"first_k_dense_replace\":0}",
     .fixed = "{\"norm_head\":false,\"norm_softmax\":false,\"multi_gate\":false}"},
    {.classes = "ArcticForCausalLM", .arch = "arctic", .flags = AE_ARCH_PAIRS | AE_ARCH_EXPERTS, .rules = arctic},
    {.classes = "MiniCPM3ForCausalLM",
     .arch = "minicpm3",
     .flags = AE_ARCH_OWN_HEADS,
     .rules = latent,
     .keys = latent_keys,
     .defaults = "{\"tie_word_embeddings\":true}",
     .more_keys = ae_convert_keys_minicpm3},
    {.classes = "PLMForCausalLM",
     .arch = "plm",
     .activation = AE_CONVERT_RELU2,
     .flags = AE_ARCH_OWN_HEADS,
     .rules = latent,
     .keys = latent_keys,
     .fixed = "{\"q_lora_rank\":null}",
     .more_keys = ae_convert_keys_latent},
    {.classes = "YoutuForCausalLM",
     .arch = "deepseek2",
     .flags = AE_ARCH_OWN_HEADS,
     .keys = youtu_keys,
     .defaults = "{\"tie_word_embeddings\":true}",
     .fixed = "{\"rope_interleave\":true}",
     .more_keys = ae_convert_keys_mla,
     .more_tensors = ae_convert_tensors_mla},
    {.classes = "DeciLMForCausalLM",
     .arch = "deci",
     .flags = AE_ARCH_PAIRS | AE_ARCH_OWN_HEADS,
     .rules = deci,
     .keys = layer_keys,
     .more_keys = ae_convert_keys_deci},
    {.classes = "DbrxForCausalLM",
     .arch = "dbrx",
     .flags = AE_ARCH_LAYER_NORM | AE_ARCH_EXPERTS,
     .parts = dbrx_parts,
     .rules = dbrx,
     .keys = clamped_keys,
     .aliases = "d_model=hidden_size n_heads=num_attention_heads n_layers=num_hidden_layers "
                "max_seq_len=max_position_embeddings attn_config.kv_n_heads=num_key_value_heads "
                "attn_config.rope_theta=rope_theta attn_config.clip_qkv=clip_qkv "
                "ffn_config.ffn_hidden_size=intermediate_size ffn_config.moe_num_experts=num_experts "
                "ffn_config.moe_top_k=num_experts_per_tok ffn_config.ffn_act_fn=ffn_act_fn "
                "ffn_config.moe_normalize_expert_weights=moe_normalize_expert_weights",
     .defaults = "{\"layer_norm_epsilon\":1e-5}",
     .fixed = "{\"ffn_act_fn\":{\"name\":\"silu\"},\"moe_normalize_expert_weights\":1}",
     .more_tensors = ae_convert_tensors_dbrx},
    {.classes = "ChatGLMModel ChatGLMForConditionalGeneration",
     .arch = "chatglm",
     .rules = chatglm,
     .aliases = "num_layers=num_hidden_layers multi_query_group_num=num_key_value_heads "
                "ffn_hidden_size=intermediate_size kv_channels=head_dim layernorm_epsilon=rms_norm_eps "
                "seq_length=max_position_embeddings",
     .defaults = "{\"partial_rotary_factor\":0.5}",
     .fixed = "{\"multi_query_attention\":true,\"rmsnorm\":true,\"post_layer_norm\":true,"
              "\"apply_residual_connection_post_layernorm\":false}",
     .begin = ae_convert_begin_chatglm},
    {.classes = "QWenLMHeadModel",
     .arch = "qwen",
     .rules = qwen1,
     .aliases = "kv_channels=head_dim rotary_emb_base=rope_theta layer_norm_epsilon=rms_norm_eps "
                "rotary_pct=partial_rotary_factor",
     .begin = ae_convert_begin_qwen1},
    {.classes = "OLMoForCausalLM",
     .arch = "olmo",
     .flags = AE_ARCH_PAIRS | AE_ARCH_LAYER_NORM,
     .rules = olmo1,
     .keys = clamped_keys,
     .aliases = "d_model=hidden_size n_layers=num_hidden_layers n_heads=num_attention_heads n_kv_heads=num_key_value_heads "
                "max_sequence_length=max_position_embeddings weight_tying=tie_word_embeddings",
     .defaults = "{\"layer_norm_eps\":1e-5}",
     .fixed = "{\"rope\":true,\"alibi\":false,\"include_bias\":false,\"attention_layer_norm\":false,"
              "\"layer_norm_type\":\"default\",\"layer_norm_with_affine\":false,\"activation_type\":\"swiglu\","
              "\"block_type\":\"sequential\",\"multi_query_attention\":false,\"scale_logits\":false}",
     .begin = ae_convert_begin_olmo1,
     .more_tensors = ae_convert_tensors_olmo1},
    {.classes = "CodeShellForCausalLM",
     .arch = "codeshell",
     .activation = AE_CONVERT_GELU,
     .flags = AE_ARCH_LAYER_NORM,
     .rules = codeshell,
     .aliases = "n_embd=hidden_size n_layer=num_hidden_layers n_head=num_attention_heads n_inner=intermediate_size "
                "n_positions=max_position_embeddings num_query_groups=num_key_value_heads",
     .fixed = "{\"group_query_attention\":true,\"position_embedding_type\":\"rope\",\"scale_attn_weights\":true}",
     .width_from = "mlp.c_fc.weight"},
    {.classes = "JAISLMHeadModel",
     .arch = "jais",
     .activation = AE_CONVERT_NAMED,
     .flags = AE_ARCH_LAYER_NORM | AE_ARCH_NO_ROPE,
     .rules = jais,
     .aliases = "n_embd=hidden_size n_layer=num_hidden_layers n_head=num_attention_heads n_inner=intermediate_size "
                "n_positions=max_position_embeddings",
     .fixed = "{\"activation_function\":\"swiglu\",\"position_embedding_type\":\"alibi\",\"scale_attn_weights\":true,"
              "\"scale_qk_dot_by_d\":true,\"mup_scale_qk_dot_by_d\":true,\"scale_attn_by_inverse_layer_idx\":false}",
     .width_from = "mlp.c_fc.weight",
     .more_keys = ae_convert_keys_jais,
     .more_tensors = ae_convert_tensors_jais,
     .finish = ae_convert_finish_jais},
    {.classes = "PlamoForCausalLM",
     .arch = "plamo",
     .rules = plamo1,
     .defaults = "{\"max_position_embeddings\":4096}",
     .begin = ae_convert_begin_plamo,
     .more_tensors = ae_convert_tensors_plamo},
    {.classes = "Plamo3ForCausalLM",
     .arch = "plamo3",
     .flags = AE_ARCH_WINDOW,
     .window_period = 8,
     .rules = plamo3,
     .aliases = "window_size=sliding_window rope_local_theta=rope_local_base_freq",
     .defaults = "{\"tie_word_embeddings\":true}",
     .fixed = "{\"scale_embedding\":false}",
     .begin = ae_convert_begin_plamo3,
     .more_tensors = ae_convert_tensors_plamo3},
    {.classes = "OpenELMForCausalLM",
     .arch = "openelm",
     .flags = AE_ARCH_OWN_HEADS,
     .rules = openelm,
     .keys = layer_keys,
     .aliases = "model_dim=hidden_size num_transformer_layers=num_hidden_layers max_context_length=max_position_embeddings "
                "rope_freq_constant=rope_theta share_input_output_layers=tie_word_embeddings activation_fn_name=hidden_act",
     .defaults = "{\"rms_norm_eps\":1e-6}",
     .fixed = "{\"ffn_with_glu\":true,\"normalize_qk_projections\":true,\"normalization_layer_name\":\"rms_norm\"}",
     .begin = ae_convert_begin_openelm,
     .more_keys = ae_convert_keys_openelm},
    {.classes = "DeepseekOCRForCausalLM DeepseekOCR2ForCausalLM DeepseekOcr2ForConditionalGeneration",
     .arch = "deepseek2-ocr",
     .flags = AE_ARCH_EXPERTS,
     .defaults = "{\"norm_topk_prob\":false}",
     .fixed = "{\"use_mla\":false,\"n_group\":1,\"topk_group\":1,\"topk_method\":\"greedy\",\"scoring_func\":\"softmax\"}",
     .begin = ae_convert_begin_ocr,
     .more_keys = ae_convert_keys_ocr},
    {.classes = "MaincoderForCausalLM", .arch = "maincoder"},
    {.classes = "BitNetForCausalLM BitnetForCausalLM",
     .arch = "bitnet",
     .activation = AE_CONVERT_NAMED,
     .rules = bitnet,
     .defaults = "{\"tie_word_embeddings\":true}",
     .more_keys = ae_convert_keys_bitnet,
     .more_tensors = ae_convert_tensors_bitnet},
    {.classes = "ChameleonForConditionalGeneration ChameleonForCausalLM",
     .arch = "chameleon",
     .flags = AE_ARCH_PAIRS,
     .keys = chameleon_keys,
     .more_tensors = ae_convert_tensors_chameleon},
    {.classes = "CogVLMForCausalLM",
     .arch = "cogvlm",
     .rules = cogvlm,
     .aliases = "num_multi_query_heads=num_key_value_heads",
     .begin = ae_convert_begin_cogvlm},
    {.classes = "Grok1ForCausalLM GrokForCausalLM",
     .arch = "grok",
     .activation = AE_CONVERT_GELU,
     .flags = AE_ARCH_EXPERTS | AE_ARCH_NO_DIVISORS,
     .parts = grok_parts,
     .rules = grok,
     .keys = grok_keys,
     .defaults = "{\"attn_logit_softcapping\":30.0,\"router_logit_softcapping\":30.0}",
     .fixed = "{\"global_attn_every_n\":1}",
     .begin = ae_convert_begin_grok,
     .more_keys = ae_convert_keys_grok},
    {.classes = "Spark2_5ForCausalLM",
     .arch = "spark2_5",
     .activation = AE_CONVERT_GELU,
     .flags = AE_ARCH_WINDOW,
     .window_period = 1,
     .rules = spark,
     .fixed = "{\"gate_attn_act_mode\":\"sigmoid\",\"headwise_attn_output_gate\":true}",
     .more_keys = ae_convert_keys_spark},
};
const size_t ae_convert_n_more_archs = sizeof ae_convert_more_archs / sizeof *ae_convert_more_archs;

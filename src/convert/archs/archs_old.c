/* archs_old.c - rows of the table for models whose checkpoints have queries, keys and values in one tensor, matrices in the
 * other order, or names from before Llama; and for some with windows. Data only (arch.h). */
#include "convert/archs/rules.h"

/* ---- Tensors ------------------------------------------------------------------------------------------ */

#define GPT_NORMS PLAIN("ln_1", "attn_norm"), PLAIN("ln_2", "ffn_norm")

static const ae_convert_rule gpt2[] = {
    GPT_NORMS, RULE("attn.c_attn", "attn_qkv", TRANSPOSED), RULE("attn.c_proj", "attn_output", TRANSPOSED),
    RULE("mlp.c_fc", "ffn_up", TRANSPOSED), RULE("mlp.c_proj", "ffn_down", TRANSPOSED), END,
};

static const ae_convert_rule starcoder1[] = {
    GPT_NORMS, PLAIN("attn.c_attn", "attn_qkv"), PLAIN("attn.c_proj", "attn_output"), PLAIN("mlp.c_fc", "ffn_up"),
    PLAIN("mlp.c_proj", "ffn_down"), END,
};

/* GPT-NeoX, Bloom and Falcon, which differ in the place of attention. */
#define GPT_FFN PLAIN("mlp.dense_h_to_4h", "ffn_up"), PLAIN("mlp.dense_4h_to_h", "ffn_down")
static const ae_convert_rule gptneox[] = {
    RULE("attention.query_key_value", "attn_qkv", QKV_GROUPED), PLAIN("attention.dense", "attn_output"), GPT_FFN, END,
};
static const ae_convert_rule bloom[] = {
    RULE("self_attention.query_key_value", "attn_qkv", QKV_GROUPED), PLAIN("self_attention.dense", "attn_output"), GPT_FFN,
    END,
};
static const ae_convert_rule falcon[] = {
    RULE("self_attention.query_key_value", "attn_qkv", QKV_GROUPED), PLAIN("self_attention.dense", "attn_output"), GPT_FFN,
    PLAIN("ln_mlp", "attn_norm"), PLAIN("ln_attn", "attn_norm_2"), END,
};

static const ae_convert_rule mpt[] = {
    PLAIN("norm_1", "attn_norm"), PLAIN("norm_2", "ffn_norm"), PLAIN("attn.Wqkv", "attn_qkv"),
    PLAIN("attn.out_proj", "attn_output"), PLAIN("attn.q_ln", "attn_q_norm"), PLAIN("attn.k_ln", "attn_k_norm"),
    PLAIN("ffn.up_proj", "ffn_up"), PLAIN("ffn.down_proj", "ffn_down"), EXACT("ffn.act.scales", "ffn.act.scales", VECTOR), END,
};

static const ae_convert_rule baichuan[] = {RULE("self_attn.W_pack", "attn_%s", QKV_JOINED), END};

static const ae_convert_rule internlm2[] = {
    PLAIN("attention_norm", "attn_norm"), PLAIN("ffn_norm", "ffn_norm"), RULE("attention.wqkv", "attn_%s", QKV_GROUPED),
    PLAIN("attention.wo", "attn_output"), PLAIN("feed_forward.w1", "ffn_gate"), PLAIN("feed_forward.w3", "ffn_up"),
    PLAIN("feed_forward.w2", "ffn_down"), END,
};

static const ae_convert_rule exaone3[] = {
    GPT_NORMS, PLAIN("attn.attention.q_proj", "attn_q"), PLAIN("attn.attention.k_proj", "attn_k"),
    PLAIN("attn.attention.v_proj", "attn_v"), PLAIN("attn.attention.out_proj", "attn_output"),
    PLAIN("mlp.c_fc_0", "ffn_gate"), PLAIN("mlp.c_fc_1", "ffn_up"), PLAIN("mlp.c_proj", "ffn_down"), END,
};

static const ae_convert_rule refact[] = {
    GPT_NORMS, PLAIN("attn.q", "attn_q"), RULE("attn.kv", "attn_%s", KV_JOINED), PLAIN("attn.c_proj", "attn_output"),
    EXACT("mlp.gate_up_proj.weight", "ffn_%s.weight", SPLIT), PLAIN("mlp.c_proj", "ffn_down"), END,
};

static const ae_convert_rule granite_swa[] = {
    EXACT("block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight", F32),
    EXACT("block_sparse_moe.router.weight", "ffn_gate_inp.weight", F32),
    EXACT("block_sparse_moe.input_linear.weight", "ffn_gate_up_exps.weight", STACK),
    EXACT("block_sparse_moe.output_linear.weight", "ffn_down_exps.weight", STACK),
    EXACT("block_sparse_moe.experts.gate_up_proj", "ffn_gate_up_exps.weight", STACK),
    EXACT("block_sparse_moe.experts.down_proj", "ffn_down_exps.weight", STACK),
    EXACT("shared_mlp.input_linear.weight", "ffn_up_shexp.weight", PLAIN),
    EXACT("shared_mlp.output_linear.weight", "ffn_down_shexp.weight", PLAIN), END,
};

static const ae_convert_rule smallthinker[] = {
    RULE("block_sparse_moe.primary_router", "ffn_gate_inp", F32), EXPERTS("block_sparse_moe.experts", "gate", "up", "down"),
    END,
};

static const ae_convert_rule laguna[] = {
    PLAIN("self_attn.g_proj", "attn_gate"), EXACT("mlp.experts.e_score_correction_bias", "exp_probs_b.bias", PLAIN), END,
};

static const ae_convert_rule mamba2[] = {PLAIN("norm", "attn_norm"), MAMBA("mixer"), END};

/* ---- Keys --------------------------------------------------------------------------------------------- */

static const ae_convert_key gptneox_keys[] = {BOOL("use_parallel_residual", "use_parallel_residual"), LAST};
static const ae_convert_key mamba2_keys[] = {U32("feed_forward_length", NULL), U32("attention.head_count", NULL), LAST};
static const ae_convert_key mpt_keys[] = {SCALE("attention.clamp_kqv", "clip_qkv"), LAST};

static const ae_convert_key nanbeige_keys[] = {
    U32("num_loops", "num_loops"), BOOL("skip_loop_final_norm", "skip_loop_final_norm"), LAST,
};
static const ae_convert_key laguna_keys[] = {
    U32("attention.head_count", NULL), SCALE("expert_weights_scale", "moe_routed_scaling_factor"),
    U32("leading_dense_block_count", NULL), LAST,
};
static const ae_convert_key granite_swa_keys[] = {
    SCALE("embedding_scale", "embedding_multiplier"), SCALE("residual_scale", "residual_multiplier"),
    SCALE("logit_scale", "logits_scaling"), SCALE("attention.scale", "attention_multiplier"), LAST,
};

/* ---- Models ------------------------------------------------------------------------------------------- */

#define GPT_NAMES                                                                                                              \
    "n_embd=hidden_size n_embed=hidden_size n_layer=num_hidden_layers n_head=num_attention_heads n_inner=intermediate_size "   \
    "n_ctx=max_position_embeddings n_positions=max_position_embeddings seq_length=max_position_embeddings"

const ae_convert_arch ae_convert_old_archs[] = {
    {.classes = "GPT2LMHeadModel GPT2Model",
     .arch = "gpt2",
     .activation = AE_CONVERT_GELU,
     .flags = AE_ARCH_LAYER_NORM | AE_ARCH_NO_ROPE,
     .rules = gpt2,
     .aliases = GPT_NAMES,
     .fixed = "{\"scale_attn_weights\":true,\"scale_attn_by_inverse_layer_idx\":false,\"add_cross_attention\":false}",
     .width_from = "mlp.c_fc.weight"},
    {.classes = "GPTBigCodeForCausalLM",
     .arch = "starcoder",
     .activation = AE_CONVERT_GELU,
     .flags = AE_ARCH_LAYER_NORM | AE_ARCH_NO_ROPE,
     .rules = starcoder1,
     .aliases = GPT_NAMES,
     .defaults = "{\"num_key_value_heads\":1}",
     .fixed = "{\"multi_query\":true,\"scale_attn_weights\":true,\"num_key_value_heads\":1}",
     .width_from = "mlp.c_fc.weight"},
    {.classes = "GPTNeoXForCausalLM",
     .arch = "gptneox",
     .activation = AE_CONVERT_GELU,
     .flags = AE_ARCH_LAYER_NORM,
     .rules = gptneox,
     .keys = gptneox_keys,
     .aliases = "rotary_pct=partial_rotary_factor rotary_emb_base=rope_theta",
     .defaults = "{\"use_parallel_residual\":true,\"rotary_pct\":0.25,\"layer_norm_eps\":1e-5}"},
    {.classes = "BloomForCausalLM BloomModel",
     .arch = "bloom",
     .activation = AE_CONVERT_GELU,
     .flags = AE_ARCH_LAYER_NORM | AE_ARCH_NO_ROPE,
     .rules = bloom,
     .aliases = GPT_NAMES,
     .defaults = "{\"max_position_embeddings\":2048,\"layer_norm_epsilon\":1e-5}",
     .fixed = "{\"apply_residual_connection_post_layernorm\":false}",
     .width_from = "mlp.dense_h_to_4h.weight"},
    {.classes = "FalconForCausalLM RWForCausalLM",
     .arch = "falcon",
     .activation = AE_CONVERT_GELU,
     .flags = AE_ARCH_LAYER_NORM,
     .rules = falcon,
     .aliases = "n_layer=num_hidden_layers n_head=num_attention_heads n_head_kv=num_kv_heads "
                "ffn_hidden_size=intermediate_size",
     .defaults = "{\"max_position_embeddings\":2048,\"layer_norm_epsilon\":1e-5}",
     .fixed = "{\"alibi\":false,\"parallel_attn\":true}",
     .width_from = "mlp.dense_h_to_4h.weight",
     .begin = ae_convert_begin_falcon},
    {.classes = "MPTForCausalLM MptForCausalLM",
     .arch = "mpt",
     .activation = AE_CONVERT_GELU,
     .flags = AE_ARCH_LAYER_NORM | AE_ARCH_NO_ROPE,
     .rules = mpt,
     .keys = mpt_keys,
     .aliases = "d_model=hidden_size n_layers=num_hidden_layers n_heads=num_attention_heads "
                "max_seq_len=max_position_embeddings attn_config.kv_n_heads=num_key_value_heads "
                "attn_config.clip_qkv=clip_qkv attn_config.alibi=alibi attn_config.alibi_bias_max=alibi_bias_max "
                "attn_config.prefix_lm=prefix_lm attn_config.rope=rope attn_config.softmax_scale=softmax_scale "
                "attn_config.attn_type=attn_type ffn_config.ffn_type=ffn_type",
     .defaults = "{\"layer_norm_epsilon\":1e-5}",
     .fixed = "{\"logit_scale\":null,\"softmax_scale\":null,"
              "\"prefix_lm\":false,\"rope\":false,\"ffn_type\":\"mptmlp\"}",
     .width_from = "ffn.up_proj.weight",
     .begin = ae_convert_begin_mpt,
     .more_keys = ae_convert_keys_mpt},
    {.classes = "BaichuanForCausalLM BaiChuanForCausalLM",
     .arch = "baichuan",
     .flags = AE_ARCH_PAIRS,
     .rules = baichuan,
     .aliases = "model_max_length=max_position_embeddings"},
    {.classes = "InternLM2ForCausalLM", .arch = "internlm2", .flags = AE_ARCH_PAIRS, .rules = internlm2},
    {.classes = "MiniCPMForCausalLM", .arch = "minicpm", .flags = AE_ARCH_PAIRS, .more_keys = ae_convert_keys_minicpm},
    {.classes = "PhiMoEForCausalLM PhimoeForCausalLM",
     .arch = "phimoe",
     .flags = AE_ARCH_EXPERTS,
     .fixed = "{\"router_jitter_noise\":0.01,\"num_experts_per_tok\":2}",
     .more_keys = ae_convert_keys_phi3},
    {.classes = "ExaoneForCausalLM", .arch = "exaone", .rules = exaone3, .aliases = "num_layers=num_hidden_layers"},
    {.classes = "NanbeigeForCausalLM",
     .arch = "nanbeige",
     .flags = AE_ARCH_PAIRS,
     .keys = nanbeige_keys,
     .defaults = "{\"num_loops\":1}"},
    {.classes = "GPTRefactForCausalLM",
     .arch = "refact",
     .activation = AE_CONVERT_NAMED,
     .flags = AE_ARCH_NO_ROPE,
     .rules = refact,
     .aliases = GPT_NAMES,
     .defaults = "{\"num_key_value_heads\":1}",
     .fixed = "{\"multi_query\":true,\"scale_attn_weights\":true,\"num_key_value_heads\":1,"
              "\"attention_bias_in_fp32\":true}",
     .width_from = "mlp.c_proj.weight"},
    {.classes = "GraniteSWAForCausalLM GraniteMoeSWAForCausalLM",
     .arch = "granite_swa",
     .flags = AE_ARCH_PAIRS | AE_ARCH_EXPERTS | AE_ARCH_WINDOW,
     .window_period = 1,
     .rules = granite_swa,
     .keys = granite_swa_keys,
     .begin = ae_convert_begin_granite_swa,
     .more_keys = ae_convert_keys_granite_swa},
    {.classes = "SmallThinkerForCausalLM",
     .arch = "smallthinker",
     .activation = AE_CONVERT_NAMED,
     .flags = AE_ARCH_EXPERTS,
     .window_period = 4,
     .rules = smallthinker,
     .aliases = "moe_num_primary_experts=num_experts moe_num_active_primary_experts=num_experts_per_tok "
                "moe_ffn_hidden_size=moe_intermediate_size",
     .fixed = "{\"moe_enable_secondary_experts\":false,\"norm_topk_prob\":true}",
     .begin = ae_convert_begin_smallthinker,
     .more_keys = ae_convert_keys_smallthinker},
    {.classes = "LagunaForCausalLM",
     .arch = "laguna",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_SIGMOID | AE_ARCH_WINDOW,
     .window_period = 4,
     .rules = laguna,
     .keys = laguna_keys,
     .fixed = "{\"moe_apply_router_weight_on_input\":false,\"moe_router_logit_softcapping\":0}",
     .more_keys = ae_convert_keys_laguna},
    {.classes = "MapleForCausalLM",
     .arch = "maple",
     .flags = AE_ARCH_EXPERTS | AE_ARCH_WINDOW,
     .window_period = 1,
     .fixed = "{\"num_shared_experts\":0,\"norm_topk_prob\":true,\"nope_on_global_attention\":true}",
     .more_keys = ae_convert_keys_maple},
    {.classes = "Mamba2ForCausalLM",
     .arch = "mamba2",
     .flags = AE_ARCH_NO_ROPE | AE_ARCH_OWN_HEADS,
     .rules = mamba2,
     .keys = mamba2_keys,
     .aliases = AE_MAMBA_SSM_NAMES,
     .defaults = "{\"num_attention_heads\":1,\"max_position_embeddings\":1048576,\"layer_norm_epsilon\":1e-5,"
                 "\"state_size\":128,\"head_dim\":64,\"n_groups\":1}",
     .fixed = "{\"rms_norm\":true,\"layer\":\"Mamba2\",\"d_intermediate\":0,\"attn_layer_idx\":[]}",
     .begin = ae_convert_begin_mamba2,
     .more_keys = ae_convert_keys_mamba2},
};
const size_t ae_convert_n_old_archs = sizeof ae_convert_old_archs / sizeof *ae_convert_old_archs;

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
};
const size_t ae_convert_n_more_archs = sizeof ae_convert_more_archs / sizeof *ae_convert_more_archs;

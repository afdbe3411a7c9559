/* archs_late.c - rows of the table for models with names or layers that few others have. Data only (arch.h). */
#include "convert/model/rules.h"

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

/* ---- Models ------------------------------------------------------------------------------------------- */

#define LLADA_NAMES                                                                                                            \
    "d_model=hidden_size n_layers=num_hidden_layers n_heads=num_attention_heads n_kv_heads=num_key_value_heads "               \
    "mlp_hidden_size=intermediate_size max_sequence_length=max_position_embeddings weight_tying=tie_word_embeddings "          \
    "activation_type=hidden_act"

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
     .defaults = "{\"mask_token_id\":156895}", /* as the model's code has it */
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
};
const size_t ae_convert_n_late_archs = sizeof ae_convert_late_archs / sizeof *ae_convert_late_archs;

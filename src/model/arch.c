/* arch.c - the table of architectures: one row of data for each (arch.h). Source: llama.cpp's GGUF files and the published
 * models' code; tests/golden/arch says what each was compared with. */
#include "model/arch.h"

#include <string.h>

#define EXPERTS AE_EXPERTS_ALWAYS, .gate = AE_EXPERT_GATE_SOFTMAX
/* attention.sliding_window is of all layers unless a pattern says otherwise */
#define BLOCK .drafter = true, .block = true, .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD, .qk_norm_optional = true, \
              .window_period = AE_MAX_LAYERS + 1, .logit_scale = AE_LOGIT_SCALE_TIMES, .keep_logit_softcap = true
#define POST_ATTENTION "post_attention_norm"

/* Sorted by family. Everything is said in the terms of ae_arch (arch.h): norm places, rotation, windows, experts, scalars. */
static const ae_arch archs[] = {
    /* Llama 1 to 3, Mistral, Mixtral, SmolLM2, TinyLlama, and whatever else is converted under that name */
    {.name = "llama", .experts = AE_EXPERTS_MAYBE, .gate = AE_EXPERT_GATE_SOFTMAX, .renorm = true},
    {.name = "llama4", .experts = AE_EXPERTS_MAYBE, .gate = AE_EXPERT_GATE_SIGMOID, .shared = AE_SHARED_ONE,
     .weigh_input = true, .expert_step = true, .qk_norm = AE_QK_NORM_HEAD, .qk_norm_plain = true, .qk_norm_last = true,
     .qk_norm_not_of = 128,
     .window_period = 4, .window = 8192, .chunked = true, .no_rope_period = 4},
    {.name = "mistral3", .experts = AE_EXPERTS_MAYBE, .gate = AE_EXPERT_GATE_SOFTMAX, .renorm = true, .temperature = true},
    {.name = "bitnet", .rope_neox = true, .sub_norms = true},
    {.name = "mistral4", .mla = true, .temperature = true, .experts = EXPERTS, .shared = AE_SHARED_COUNT},
    {.name = "smollm3", .no_rope_period = 4},
    /* models with Llama's layers under names of their own */
    {.name = "internlm2"},
    {.name = "xverse"},
    {.name = "exaone", .rope_neox = true},
    {.name = "pangu-embedded", .rope_neox = true},
    {.name = "cogvlm", .rope_neox = true, .sees = true},
    {.name = "arcee", .activation = AE_ACTIVATION_RELU2, .ungated = true},
    {.name = "maincoder", .qk_norm = AE_QK_NORM_HEAD, .qk_norm_last = true},
    {.name = "minicpm", .logit_scale = AE_LOGIT_SCALE_OVER, .minicpm_scalars = true, .experts = AE_EXPERTS_MAYBE,
     .gate = AE_EXPERT_GATE_SOFTMAX, .renorm = true},
    /* Qwen */
    {.name = "baichuan", .not_of_layers = 40},
    {.name = "minicpm3", .mla = true, .rope_neox = true, .logit_scale = AE_LOGIT_SCALE_OVER, .minicpm_scalars = true},
    {.name = "qwen", .rope_neox = true, .double_ff = true},
    {.name = "qwen2", .rope_neox = true},
    {.name = "qwen2vl", .rope_neox = true},
    {.name = "qwen2moe", .rope_neox = true, .experts = EXPERTS, .shared = AE_SHARED_GATED, .split_ff = true},
    {.name = "qwen3", .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD},
    {.name = "qwen3moe", .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD, .experts = EXPERTS, .renorm = true, .split_ff = true},
    {.name = "qwen3vl", .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD},
    {.name = "qwen3vlmoe", .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD, .experts = EXPERTS, .renorm = true, .split_ff = true},
    {.name = "qwen3next", .rope_neox = true, .ffn_norm = POST_ATTENTION, .qk_norm = AE_QK_NORM_HEAD, .gated_output = true,
     .recur = AE_RECUR_DELTA, .experts = EXPERTS, .renorm = true, .shared = AE_SHARED_GATED},
    {.name = "qwen35", .rope_neox = true, .ffn_norm = POST_ATTENTION, .qk_norm = AE_QK_NORM_HEAD, .gated_output = true,
     .recur = AE_RECUR_DELTA, .recur_tiled = true},
    {.name = "qwen35moe", .rope_neox = true, .ffn_norm = POST_ATTENTION, .qk_norm = AE_QK_NORM_HEAD, .gated_output = true,
     .recur = AE_RECUR_DELTA, .recur_tiled = true, .experts = EXPERTS, .renorm = true, .shared = AE_SHARED_GATED},
    /* Gemma */
    {.name = "gemma", .rope_neox = true, .activation = AE_ACTIVATION_GELU, .scale_embedding = true},
    {.name = "gemma2", .rope_neox = true, .norms = AE_NORMS_PRE_POST, .activation = AE_ACTIVATION_GELU, .scale_embedding = true,
     .window_period = 2, .window = 4096, .wide_layers = 46, .attn_softcap = 50.0f, .keep_attn_softcap = true,
     .logit_softcap = 30.0f, .keep_logit_softcap = true},
    {.name = "gemma3", .rope_neox = true, .norms = AE_NORMS_PRE_POST, .activation = AE_ACTIVATION_GELU, .scale_embedding = true,
     .qk_norm = AE_QK_NORM_HEAD, .window_period = 6, .window_rope = AE_ROTATION_PLAIN, .window_rope_base = 10000.0f,
     .wide_layers = 62, .keep_logit_softcap = true},
    {.name = "gemma4", .rope_neox = true, .norms = AE_NORMS_PRE_POST, .activation = AE_ACTIVATION_GELU, .scale_embedding = true,
     .qk_norm = AE_QK_NORM_HEAD, .v_norm = true, .attn_scale = 1.0f, .window_period = 6, .window_rope = AE_ROTATION_PLAIN,
     .window_rope_base = 10000.0f, .window_heads = true, .shared_kv = true, .layer_embedding = true,
     .experts = AE_EXPERTS_MAYBE, .gate = AE_EXPERT_GATE_SOFTMAX, .renorm = true, .experts_beside = true,
     .keep_logit_softcap = true},
    /* gpt-oss */
    {.name = "gpt-oss", .rope_neox = true, .ffn_norm = POST_ATTENTION, .window_period = 2,
     .experts = AE_EXPERTS_ALWAYS, .gate = AE_EXPERT_GATE_SOFTMAX_CHOSEN, .activation = AE_ACTIVATION_OAI},
    /* GLM */
    {.name = "chatglm"},
    {.name = "glm4", .norms = AE_NORMS_PRE_POST},
    {.name = "glm4moe", .rope_neox = true, .ffn_norm = POST_ATTENTION, .qk_norm = AE_QK_NORM_HEAD, .qk_norm_optional = true,
     .experts = AE_EXPERTS_ALWAYS, .gate = AE_EXPERT_GATE_SIGMOID, .shared = AE_SHARED_COUNT},
    /* DeepSeek, and others with its experts */
    {.name = "deepseek", .experts = EXPERTS, .shared = AE_SHARED_COUNT},
    /* V2, V3, R1, Kimi K2; and GLM-4.7-Flash, whose early files do not say how it chooses experts */
    {.name = "deepseek2", .mla = true, .temperature = true, .experts = EXPERTS, .sigmoid_vocab = 154880,
     .shared = AE_SHARED_COUNT},
    {.name = "deepseek2-ocr", .rope_neox = true, .experts = EXPERTS, .shared = AE_SHARED_COUNT},
    {.name = "bailingmoe2", .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD, .experts = EXPERTS,
     .shared = AE_SHARED_SIZE_COUNT},
    {.name = "dots1", .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD, .experts = EXPERTS, .shared = AE_SHARED_COUNT},
    {.name = "minimax-m2", .rope_neox = true, .qk_norm = AE_QK_NORM_ROW, .experts = AE_EXPERTS_ALWAYS,
     .gate = AE_EXPERT_GATE_SIGMOID, .renorm = true},
    {.name = "step35", .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD, .qk_norm_optional = true, .window_period = 4,
     .window_rope = AE_ROTATION_PLAIN, .full_rope = AE_ROTATION_HALF, .experts = AE_EXPERTS_ALWAYS,
     .gate = AE_EXPERT_GATE_SIGMOID, .shared = AE_SHARED_SIZE, .expert_by_tensor = true,
     .activation = AE_ACTIVATION_SILU_CLAMPED, .nextn_pre = true},
    {.name = "hy_v3", .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD, .experts = AE_EXPERTS_ALWAYS,
     .gate = AE_EXPERT_GATE_SIGMOID, .shared = AE_SHARED_SIZE, .shared_default = true, .expert_by_tensor = true},
    {.name = "exaone-moe", .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD, .window_period = 4, .window = 128,
     .full_rope = AE_ROTATION_NONE, .experts = AE_EXPERTS_ALWAYS, .gate = AE_EXPERT_GATE_SIGMOID, .shared = AE_SHARED_SIZE,
     .shared_default = true},
    {.name = "mellum", .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD, .window_period = 4, .window_rope = AE_ROTATION_PLAIN,
     .experts = EXPERTS, .renorm = true, .split_ff = true},
    {.name = "afmoe", .rope_neox = true, .norms = AE_NORMS_PRE_POST, .scale_embedding = true, .qk_norm = AE_QK_NORM_HEAD,
     .own_gate = true, .window_period = 4, .no_rope_period = 4, .experts = AE_EXPERTS_ALWAYS,
     .gate = AE_EXPERT_GATE_SIGMOID, .shared = AE_SHARED_COUNT},
    {.name = "muse-glimmer", .norms = AE_NORMS_PRE_POST, .post_eps = 1e-8f, .embed_norm_plain = true,
     .qk_norm = AE_QK_NORM_HEAD, .own_gate = true, .window_period = 4, .full_rope = AE_ROTATION_NONE,
     .logit_scale = AE_LOGIT_SCALE_TIMES, .keep_logit_softcap = true},
    {.name = "mimo2", .rope_neox = true, .narrow_values = true, .value_scale = true, .window_period = 1,
     .window_rope = AE_ROTATION_PLAIN, .experts = AE_EXPERTS_ALWAYS, .gate = AE_EXPERT_GATE_SIGMOID, .renorm = true,
     .expert_by_tensor = true, .nextn_pre = true},
    {.name = "ernie4_5"},
    {.name = "paddleocr", .rope_neox = true},
    {.name = "ernie4_5-moe", .experts = EXPERTS, .renorm = true, .shared = AE_SHARED_SIZE, .expert_step = true},
    {.name = "hunyuan-dense", .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD, .qk_norm_last = true},
    {.name = "hunyuan_vl", .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD, .qk_norm_last = true, .rope_alpha = true},
    {.name = "hunyuan-moe", .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD, .qk_norm_last = true, .experts = EXPERTS,
     .renorm = true, .shared = AE_SHARED_SIZE},
    /* Phi */
    {.name = "phi2", .rope_neox = true, .norms = AE_NORMS_PARALLEL, .layer_norm = true, .activation = AE_ACTIVATION_GELU,
     .ungated = true},
    {.name = "phi3", .rope_neox = true},
    /* OLMo */
    {.name = "olmo", .layer_norm = true, .plain_norms = true, .clamp_qkv = true},
    {.name = "olmo2", .rope_neox = true, .norms = AE_NORMS_POST, .qk_norm = AE_QK_NORM_ROW, .window_period = 4,
     .window_rope = AE_ROTATION_PLAIN},
    {.name = "olmoe", .rope_neox = true, .qk_norm = AE_QK_NORM_ROW, .experts = EXPERTS},
    /* Cohere */
    {.name = "command-r", .qk_norm = AE_QK_NORM_LAYER, .qk_norm_optional = true, .norms = AE_NORMS_PARALLEL, .layer_norm = true,
     .logit_scale = AE_LOGIT_SCALE_TIMES},
    {.name = "cohere2", .norms = AE_NORMS_PARALLEL, .layer_norm = true, .logit_scale = AE_LOGIT_SCALE_TIMES,
     .window_period = 4, .full_rope = AE_ROTATION_NONE},
    {.name = "cohere2moe", .norms = AE_NORMS_PARALLEL, .norm_by_key = true, .logit_scale = AE_LOGIT_SCALE_TIMES,
     .window_period = 4, .window_last = true, .full_rope = AE_ROTATION_NONE, .rope_dense = true,
     .experts = AE_EXPERTS_ALWAYS, .gate = AE_EXPERT_GATE_SIGMOID, .shared = AE_SHARED_SIZE_ELSE_COUNT,
     .shared_mean = 0.5f},
    /* Granite */
    {.name = "granite", .logit_scale = AE_LOGIT_SCALE_OVER, .rope_finetuned = true, .experts = AE_EXPERTS_MAYBE,
     .gate = AE_EXPERT_GATE_SOFTMAX, .renorm = true, .shared = AE_SHARED_SIZE},
    {.name = "granite_swa", .logit_scale = AE_LOGIT_SCALE_OVER, .window_period = 1, .rope_pattern = true,
     .experts = AE_EXPERTS_MAYBE, .gate = AE_EXPERT_GATE_SOFTMAX, .renorm = true, .shared = AE_SHARED_SIZE},
    {.name = "granitemoe", .logit_scale = AE_LOGIT_SCALE_OVER, .experts = AE_EXPERTS_MAYBE, .gate = AE_EXPERT_GATE_SOFTMAX,
     .renorm = true, .shared = AE_SHARED_SIZE},
    {.name = "granitehybrid", .logit_scale = AE_LOGIT_SCALE_OVER, .rope_finetuned = true, .recur = AE_RECUR_MAMBA2,
     .experts = AE_EXPERTS_MAYBE, .gate = AE_EXPERT_GATE_SOFTMAX, .renorm = true, .shared = AE_SHARED_SIZE},
    /* Nemotron */
    {.name = "nemotron", .rope_neox = true, .layer_norm = true, .activation = AE_ACTIVATION_RELU2, .ungated = true},
    {.name = "nemotron_h", .norms = AE_NORMS_ONE, .no_rope_period = 1, .recur = AE_RECUR_MAMBA2,
     .activation = AE_ACTIVATION_RELU2, .ungated = true},
    {.name = "nemotron_h_moe", .norms = AE_NORMS_ONE, .no_rope_period = 1, .recur = AE_RECUR_MAMBA2,
     .activation = AE_ACTIVATION_RELU2, .ungated = true, .experts = AE_EXPERTS_MAYBE, .gate = AE_EXPERT_GATE_SIGMOID,
     .shared = AE_SHARED_SIZE},
    {.name = "mamba2", .norms = AE_NORMS_ONE, .no_rope_period = 1, .no_attention = true, .recur = AE_RECUR_MAMBA2},
    {.name = "mamba", .norms = AE_NORMS_ONE, .no_rope_period = 1, .no_attention = true, .recur = AE_RECUR_MAMBA1},
    {.name = "jamba", .no_rope_period = 1, .recur = AE_RECUR_MAMBA1, .experts = AE_EXPERTS_MAYBE,
     .gate = AE_EXPERT_GATE_SOFTMAX, .expert_by_tensor = true},
    {.name = "falcon-h1", .rope_neox = true, .bare_ffn_norm = true, .recur_beside = true, .recur = AE_RECUR_MAMBA2},
    /* LFM2 */
    {.name = "lfm2", .rope_neox = true, .out_norm = "token_embd_norm", .qk_norm = AE_QK_NORM_HEAD,
     .window_period = AE_MAX_LAYERS + 1,
     .recur = AE_RECUR_SHORTCONV},
    {.name = "lfm2moe", .rope_neox = true, .out_norm = "token_embd_norm", .qk_norm = AE_QK_NORM_HEAD,
     .recur = AE_RECUR_SHORTCONV, .experts = AE_EXPERTS_ALWAYS, .gate = AE_EXPERT_GATE_SIGMOID, .renorm = true},
    /* others */
    {.name = "seed_oss", .rope_neox = true, .ffn_norm = POST_ATTENTION},
    {.name = "exaone4", .rope_neox = true, .norms = AE_NORMS_POST, .qk_norm = AE_QK_NORM_HEAD, .window_period = 4,
     .window = 4096, .only_layers = 64, .full_rope = AE_ROTATION_NONE},
    {.name = "jais2", .rope_neox = true, .layer_norm = true, .activation = AE_ACTIVATION_RELU2, .ungated = true},
    {.name = "orion", .rope_neox = true, .layer_norm = true},
    {.name = "codeshell", .rope_neox = true, .layer_norm = true, .activation = AE_ACTIVATION_GELU, .ungated = true,
     .embedding_is_output = true},
    {.name = "stablelm", .rope_neox = true, .layer_norm = true, .parallel_optional = true, .qk_norm = AE_QK_NORM_LAYER,
     .qk_norm_optional = true},
    {.name = "gptneox", .rope_neox = true, .norms = AE_NORMS_PARALLEL, .parallel_key = true, .layer_norm = true,
     .activation = AE_ACTIVATION_GELU, .ungated = true},
    {.name = "falcon", .rope_neox = true, .norms = AE_NORMS_PARALLEL, .second_norm = true, .layer_norm = true,
     .activation = AE_ACTIVATION_GELU, .ungated = true},
    {.name = "dbrx", .rope_neox = true, .layer_norm = true, .ffn_norm = "attn_output_norm", .clamp_qkv = true,
     .experts = EXPERTS, .renorm = true},
    {.name = "openelm", .rope_neox = true, .qk_norm = AE_QK_NORM_HEAD},
    {.name = "plamo", .rope_neox = true, .norms = AE_NORMS_PARALLEL},
    {.name = "plamo3", .rope_neox = true, .norms = AE_NORMS_PRE_POST, .qk_norm = AE_QK_NORM_HEAD, .window_period = 8,
     .window_rope = AE_ROTATION_PLAIN, .bare_post_norms = true},
    {.name = "spark2_5", .rope_neox = true, .activation = AE_ACTIVATION_GELU, .window_period = 1,
     .window_rope = AE_ROTATION_PLAIN},
    {.name = "bailingmoe", .experts = EXPERTS, .expert_by_tensor = true, .shared = AE_SHARED_COUNT, .head_of_rope = true},
    {.name = "plm", .mla = true, .activation = AE_ACTIVATION_RELU2, .ungated = true},
    {.name = "starcoder2", .rope_neox = true, .layer_norm = true, .activation = AE_ACTIVATION_GELU, .ungated = true},
    {.name = "gpt2", .layer_norm = true, .positions = true, .no_rope_period = 1, .activation = AE_ACTIVATION_GELU,
     .ungated = true},
    {.name = "starcoder", .layer_norm = true, .positions = true, .no_rope_period = 1, .activation = AE_ACTIVATION_GELU,
     .ungated = true},
    {.name = "grok", .rope_neox = true, .norms = AE_NORMS_PRE_POST, .attn_post_norm = "attn_output_norm",
     .ffn_post_norm = "layer_output_norm", .attn_scale = 0.08838834764831845f, .output_scale = true, .attn_softcap = 30.0f,
     .keep_attn_softcap = true, .embedding_scale = 78.38367176906169f, .logit_scale = AE_LOGIT_SCALE_TIMES,
     .logit_factor = 0.5773502691896257f, .keep_logit_softcap = true, .yarn_beta_fast = 8.0f, .experts = EXPERTS,
     .renorm = true, .experts_beside = true, .beside_plain = true, .beside_scale = 0.70710678118654752f,
     .activation = AE_ACTIVATION_GELU},
    {.name = "arctic", .experts = EXPERTS, .renorm = true, .experts_beside = true, .beside_input = true},
    {.name = "deci", .parts_optional = true},
    {.name = "nanbeige", .loops = true},
    {.name = "chameleon", .qk_norm = AE_QK_NORM_LAYER, .swin_key = true, .mask_images = true},
    {.name = "phimoe", .rope_neox = true, .norm_bias = true, .experts = EXPERTS, .renorm = true},
    /* encoders: BERT, and with a rotation and gated feed-forward blocks nomic-embed-text */
    {.name = "bert", .encoder = true, .norms = AE_NORMS_STREAM, .layer_norm = true, .no_rope_period = 1,
     .activation = AE_ACTIVATION_GELU, .ungated = true},
    {.name = "nomic-bert", .encoder = true, .norms = AE_NORMS_STREAM, .layer_norm = true, .rope_neox = true},
    {.name = "jina-bert-v3", .encoder = true, .norms = AE_NORMS_STREAM, .layer_norm = true, .rope_neox = true,
     .activation = AE_ACTIVATION_GELU, .ungated = true},
    {.name = "nomic-bert-moe", .encoder = true, .norms = AE_NORMS_STREAM, .layer_norm = true, .rope_neox = true,
     .activation = AE_ACTIVATION_GELU, .ungated = true, .experts = AE_EXPERTS_MAYBE, .gate = AE_EXPERT_GATE_SOFTMAX,
     .expert_every = true},
    /* with norms before their blocks, and a last one */
    {.name = "eurobert", .encoder = true, .rope_neox = true},
    {.name = "llama-embed", .encoder = true, .experts = AE_EXPERTS_MAYBE, .gate = AE_EXPERT_GATE_SOFTMAX, .renorm = true},
    {.name = "neo-bert", .encoder = true, .out_norm = "enc.output_norm"},
    {.name = "modern-bert", .encoder = true, .rope_neox = true, .layer_norm = true, .embed_norm = true, .near = true,
     .window_period = 3, .window_last = true, .window_rope = AE_ROTATION_PLAIN, .activation = AE_ACTIVATION_GELU,
     .activation_key = true, .rank_mean = true},
    {.name = "gemma-embedding", .encoder = true, .rope_neox = true, .norms = AE_NORMS_PRE_POST, .near = true,
     .activation = AE_ACTIVATION_GELU, .scale_embedding = true, .qk_norm = AE_QK_NORM_HEAD, .window_period = 6,
     .window_rope = AE_ROTATION_PLAIN, .window_rope_base = 10000.0f},
    /* heads that draft */
    {.name = "eagle", .drafter = true},
    {.name = "eagle3", .drafter = true},
    {.name = "medusa", .drafter = true},
    {.name = "gemma4-assistant", .drafter = true, .assistant = true, .rope_neox = true, .norms = AE_NORMS_PRE_POST,
     .activation = AE_ACTIVATION_GELU, .qk_norm = AE_QK_NORM_HEAD, .attn_scale = 1.0f, .window_period = 6,
     .window_rope = AE_ROTATION_PLAIN, .window_rope_base = 10000.0f, .window_heads = true, .layer_embedding = true,
     .keep_logit_softcap = true},
    /* the same under three names: llama.cpp's, and two of its forks' */
    {.name = "dflash", BLOCK},
    {.name = "dflash-draft", BLOCK},
    {.name = "dspark", BLOCK},
};

const ae_arch *ae_arch_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
        if (strlen(archs[i].name) == n && !memcmp(archs[i].name, name, n)) return &archs[i];
    return NULL;
}

const char *ae_model_arch_name(size_t i)
{
    for (size_t k = 0; k < sizeof archs / sizeof archs[0]; k++)
        if (!archs[k].drafter && !i--) return archs[k].name;
    return NULL;
}

/* mmproj_types.c - the table of vision encoders that can be converted (mmproj.h). Data only.
 * Sources: the models' code in transformers for the names in a checkpoint, and llama.cpp's converters for those in a file. */
#include <string.h>

#include "convert/tower/mmproj.h"

#define END {NULL, NULL, AE_MMPROJ_PLAIN, false}
#define PLAIN(from, to) {from, to, AE_MMPROJ_PLAIN, false}
#define EXACT(from, to, kind) {from, to, kind, true}

/* ---- SigLIP: Gemma 3, SmolVLM, LFM2-VL ----------------------------------------------------------------------------- */

static const ae_mmproj_rule siglip_block[] = {
    PLAIN("self_attn.q_proj", "attn_q"), PLAIN("self_attn.k_proj", "attn_k"), PLAIN("self_attn.v_proj", "attn_v"),
    PLAIN("self_attn.out_proj", "attn_out"), PLAIN("layer_norm1", "ln1"), PLAIN("layer_norm2", "ln2"),
    PLAIN("mlp.fc1", "ffn_up"), PLAIN("mlp.fc2", "ffn_down"), END};

#define SIGLIP(kernel)                                                                                \
    EXACT("tower.embeddings.patch_embedding.weight", "v.patch_embd.weight", kernel),                  \
        EXACT("tower.embeddings.patch_embedding.bias", "v.patch_embd.bias", AE_MMPROJ_F32),           \
        EXACT("tower.embeddings.position_embedding.weight", "v.position_embd.weight", AE_MMPROJ_TABLE), \
        PLAIN("tower.post_layernorm", "v.post_ln")

static const ae_mmproj_rule gemma3[] = {
    SIGLIP(AE_MMPROJ_KERNEL),
    EXACT("projector.mm_input_projection_weight", "mm.input_projection.weight", AE_MMPROJ_FLOAT),
    EXACT("projector.mm_soft_emb_norm.weight", "mm.soft_emb_norm.weight", AE_MMPROJ_PLUS_ONE), END};
static const ae_mmproj_rule idefics3[] = {SIGLIP(AE_MMPROJ_KERNEL), PLAIN("projector.modality_projection.proj", "mm.model.fc"),
                                          END};
static const ae_mmproj_rule lfm2[] = {SIGLIP(AE_MMPROJ_PIXELS), PLAIN("projector.layer_norm", "mm.input_norm"),
                                      PLAIN("projector.linear_1", "mm.1"), PLAIN("projector.linear_2", "mm.2"), END};

/* ---- Gemma 4 --------------------------------------------------------------------------------------------------------- */

#define CLAMPED(from, to)                                                                                             \
    PLAIN(from, to), EXACT(from ".linear.weight", to ".weight", AE_MMPROJ_PLAIN),                                      \
        EXACT(from ".input_min", to ".input_min", AE_MMPROJ_VECTOR),                                                   \
        EXACT(from ".input_max", to ".input_max", AE_MMPROJ_VECTOR),                                                   \
        EXACT(from ".output_min", to ".output_min", AE_MMPROJ_VECTOR),                                                 \
        EXACT(from ".output_max", to ".output_max", AE_MMPROJ_VECTOR)

static const ae_mmproj_rule gemma4_block[] = {
    CLAMPED("self_attn.q_proj", "attn_q"), CLAMPED("self_attn.k_proj", "attn_k"), CLAMPED("self_attn.v_proj", "attn_v"),
    CLAMPED("self_attn.o_proj", "attn_out"), CLAMPED("mlp.gate_proj", "ffn_gate"), CLAMPED("mlp.up_proj", "ffn_up"),
    CLAMPED("mlp.down_proj", "ffn_down"), PLAIN("self_attn.q_norm", "attn_q_norm"), PLAIN("self_attn.k_norm", "attn_k_norm"),
    PLAIN("input_layernorm", "ln1"), PLAIN("post_attention_layernorm", "attn_post_norm"),
    PLAIN("pre_feedforward_layernorm", "ln2"), PLAIN("post_feedforward_layernorm", "ffn_post_norm"),
    EXACT("layer_scalar", "out_scale.weight", AE_MMPROJ_VECTOR), END};

static const ae_mmproj_rule gemma4v[] = {
    EXACT("tower.patch_embedder.input_proj.weight", "v.patch_embd.weight", AE_MMPROJ_PIXELS),
    EXACT("tower.patch_embedder.position_embedding_table", "v.position_embd.weight", AE_MMPROJ_TABLE),
    EXACT("tower.std_bias", "v.std_bias", AE_MMPROJ_VECTOR), EXACT("tower.std_scale", "v.std_scale", AE_MMPROJ_VECTOR),
    CLAMPED("projector.embedding_projection", "mm.input_projection"), END};
static const ae_mmproj_rule gemma4uv[] = {
    EXACT("tower.patch_dense.weight", "v.patch_embd.weight", AE_MMPROJ_COLOURS),
    EXACT("tower.patch_dense.bias", "v.patch_embd.bias", AE_MMPROJ_F32),
    EXACT("tower.patch_ln1.weight", "v.patch_norm.1.weight", AE_MMPROJ_COLOURS),
    EXACT("tower.patch_ln1.bias", "v.patch_norm.1.bias", AE_MMPROJ_COLOURS),
    PLAIN("tower.patch_ln2", "v.patch_norm.2"), PLAIN("tower.pos_norm", "v.patch_norm.3"),
    EXACT("tower.pos_embedding", "v.position_embd.weight", AE_MMPROJ_AXES),
    CLAMPED("projector.embedding_projection", "mm.input_projection"), END};

/* ---- InternVL, by its own code and by transformers' ------------------------------------------------------------------ */

static const ae_mmproj_rule internvl_block[] = {
    {"attn.qkv", "attn_%c", AE_MMPROJ_SPLIT, false}, PLAIN("attn.proj", "attn_out"), PLAIN("attn.q_norm", "attn_q_norm"),
    PLAIN("attn.k_norm", "attn_k_norm"), PLAIN("norm1", "ln1"), PLAIN("norm2", "ln2"),
    EXACT("ls1", "ls1.weight", AE_MMPROJ_VECTOR), EXACT("ls2", "ls2.weight", AE_MMPROJ_VECTOR), PLAIN("mlp.fc1", "ffn_up"),
    PLAIN("mlp.fc2", "ffn_down"), END};
static const ae_mmproj_rule internvl[] = {
    EXACT("tower.embeddings.class_embedding", "v.class_embd", AE_MMPROJ_VECTOR),
    EXACT("tower.embeddings.patch_embedding.weight", "v.patch_embd.weight", AE_MMPROJ_KERNEL),
    EXACT("tower.embeddings.patch_embedding.bias", "v.patch_embd.bias", AE_MMPROJ_F32),
    EXACT("tower.embeddings.position_embedding", "v.position_embd.weight", AE_MMPROJ_TABLE),
    PLAIN("mlp1.0", "mm.model.mlp.0"), PLAIN("mlp1.1", "mm.model.mlp.1"), PLAIN("mlp1.3", "mm.model.mlp.3"), END};
static const ae_mmproj_rule internvl_hf_block[] = {
    PLAIN("attention.q_proj", "attn_q"), PLAIN("attention.k_proj", "attn_k"), PLAIN("attention.v_proj", "attn_v"),
    PLAIN("attention.projection_layer", "attn_out"), PLAIN("attention.q_norm", "attn_q_norm"),
    PLAIN("attention.k_norm", "attn_k_norm"), PLAIN("layernorm_before", "ln1"), PLAIN("layernorm_after", "ln2"),
    EXACT("lambda_1", "ls1.weight", AE_MMPROJ_VECTOR), EXACT("lambda_2", "ls2.weight", AE_MMPROJ_VECTOR),
    PLAIN("mlp.fc1", "ffn_up"), PLAIN("mlp.fc2", "ffn_down"), END};
static const ae_mmproj_rule internvl_hf[] = {
    EXACT("tower.embeddings.cls_token", "v.class_embd", AE_MMPROJ_VECTOR),
    EXACT("tower.embeddings.patch_embeddings.projection.weight", "v.patch_embd.weight", AE_MMPROJ_KERNEL),
    EXACT("tower.embeddings.patch_embeddings.projection.bias", "v.patch_embd.bias", AE_MMPROJ_F32),
    EXACT("tower.embeddings.position_embeddings", "v.position_embd.weight", AE_MMPROJ_TABLE),
    PLAIN("projector.layer_norm", "mm.model.mlp.0"), PLAIN("projector.linear_1", "mm.model.mlp.1"),
    PLAIN("projector.linear_2", "mm.model.mlp.3"), END};

/* ---- Pixtral --------------------------------------------------------------------------------------------------------- */

static const ae_mmproj_rule pixtral_block[] = {
    {"attention.q_proj", "attn_q", AE_MMPROJ_TURNED, false}, {"attention.k_proj", "attn_k", AE_MMPROJ_TURNED, false},
    PLAIN("attention.v_proj", "attn_v"), PLAIN("attention.o_proj", "attn_out"), PLAIN("attention_norm", "ln1"),
    PLAIN("ffn_norm", "ln2"), PLAIN("feed_forward.gate_proj", "ffn_gate"), PLAIN("feed_forward.up_proj", "ffn_up"),
    PLAIN("feed_forward.down_proj", "ffn_down"), END};
static const ae_mmproj_rule pixtral[] = {
    EXACT("tower.patch_conv.weight", "v.patch_embd.weight", AE_MMPROJ_KERNEL), PLAIN("tower.ln_pre", "v.pre_ln"),
    PLAIN("projector.norm", "mm.input_norm"), PLAIN("projector.patch_merger.merging_layer", "mm.patch_merger"),
    PLAIN("projector.linear_1", "mm.1"), PLAIN("projector.linear_2", "mm.2"), END};

/* ---- Qwen ------------------------------------------------------------------------------------------------------------ */

static const ae_mmproj_rule qwen2_block[] = {
    {"attn.qkv", "attn_%c", AE_MMPROJ_SPLIT, false}, PLAIN("attn.proj", "attn_out"), PLAIN("norm1", "ln1"),
    PLAIN("norm2", "ln2"), PLAIN("mlp.fc1", "ffn_up"), PLAIN("mlp.fc2", "ffn_down"), PLAIN("mlp.gate_proj", "ffn_gate"),
    PLAIN("mlp.up_proj", "ffn_up"), PLAIN("mlp.down_proj", "ffn_down"), END};
static const ae_mmproj_rule qwen2[] = {
    EXACT("tower.patch_embed.proj.weight", "v.patch_embd.weight", AE_MMPROJ_FRAMES), PLAIN("tower.merger.ln_q", "v.post_ln"),
    PLAIN("tower.merger.mlp.0", "mm.0"), PLAIN("tower.merger.mlp.2", "mm.2"), END};
static const ae_mmproj_rule qwen3_block[] = {
    PLAIN("attn.qkv", "attn_qkv"), PLAIN("attn.proj", "attn_out"), PLAIN("norm1", "ln1"), PLAIN("norm2", "ln2"),
    PLAIN("mlp.linear_fc1", "ffn_up"), PLAIN("mlp.linear_fc2", "ffn_down"), END};
static const ae_mmproj_rule qwen3[] = {
    EXACT("tower.patch_embed.proj.weight", "v.patch_embd.weight", AE_MMPROJ_FRAMES),
    EXACT("tower.patch_embed.proj.bias", "v.patch_embd.bias", AE_MMPROJ_F32),
    EXACT("tower.pos_embed.weight", "v.position_embd.weight", AE_MMPROJ_TABLE), PLAIN("tower.merger.norm", "v.post_ln"),
    PLAIN("tower.merger.linear_fc1", "mm.0"), PLAIN("tower.merger.linear_fc2", "mm.2"), END};

/* ---- GLM, Kimi, PaddleOCR-VL, dots.ocr, LLaVA ------------------------------------------------------------------------- */

static const ae_mmproj_rule glm_block[] = {
    PLAIN("attn.qkv", "attn_qkv"), PLAIN("attn.proj", "attn_out"), PLAIN("attn.q_norm", "attn_q_norm"),
    PLAIN("attn.k_norm", "attn_k_norm"), PLAIN("norm1", "ln1"), PLAIN("norm2", "ln2"), PLAIN("mlp.gate_proj", "ffn_gate"),
    PLAIN("mlp.up_proj", "ffn_up"), PLAIN("mlp.down_proj", "ffn_down"), END};
static const ae_mmproj_rule glm[] = {
    EXACT("tower.patch_embed.proj.weight", "v.patch_embd.weight", AE_MMPROJ_FRAMES),
    EXACT("tower.patch_embed.proj.bias", "v.patch_embd.bias", AE_MMPROJ_F32),
    EXACT("tower.embeddings.position_embedding.weight", "v.position_embd.weight", AE_MMPROJ_TABLE),
    PLAIN("tower.post_conv_layernorm", "v.norm_embd"), PLAIN("tower.post_layernorm", "v.post_ln"),
    EXACT("tower.downsample.weight", "mm.patch_merger.weight", AE_MMPROJ_MERGER),
    EXACT("tower.downsample.bias", "mm.patch_merger.bias", AE_MMPROJ_F32), PLAIN("tower.merger.proj", "mm.model.fc"),
    PLAIN("tower.merger.post_projection_norm", "mm.post_norm"), PLAIN("tower.merger.gate_proj", "mm.gate"),
    PLAIN("tower.merger.up_proj", "mm.up"), PLAIN("tower.merger.down_proj", "mm.down"), END};

#define KIMI_BLOCK                                                                                            \
    PLAIN("wo", "attn_out"), PLAIN("norm0", "ln1"), PLAIN("norm1", "ln2"), PLAIN("mlp.fc0", "ffn_up"),            \
        PLAIN("mlp.fc1", "ffn_down")
#define KIMI                                                                                    \
    EXACT("tower.patch_embed.proj.weight", "v.patch_embd.weight", AE_MMPROJ_KERNEL),            \
        EXACT("tower.patch_embed.proj.bias", "v.patch_embd.bias", AE_MMPROJ_F32),               \
        PLAIN("tower.encoder.final_layernorm", "v.post_ln"), PLAIN("projector.pre_norm", "mm.input_norm")

static const ae_mmproj_rule kimivl_block[] = {{"wqkv", "attn_%c", AE_MMPROJ_SPLIT, false}, KIMI_BLOCK, END};
static const ae_mmproj_rule kimivl[] = {
    KIMI, EXACT("tower.patch_embed.pos_emb.weight", "v.position_embd.weight", AE_MMPROJ_FLAT),
    PLAIN("projector.linear_1", "mm.1"), PLAIN("projector.linear_2", "mm.2"), END};
static const ae_mmproj_rule kimik25_block[] = {{"wqkv", "attn_qkv", AE_MMPROJ_QUARTERS, false}, KIMI_BLOCK, END};
static const ae_mmproj_rule kimik25[] = {
    KIMI, EXACT("tower.patch_embed.pos_emb.weight", "v.position_embd.weight", AE_MMPROJ_TABLE),
    PLAIN("projector.proj.0", "mm.1"), PLAIN("projector.proj.2", "mm.2"), END};

static const ae_mmproj_rule paddle[] = {SIGLIP(AE_MMPROJ_KERNEL), PLAIN("projector.pre_norm", "mm.input_norm"),
                                        PLAIN("projector.linear_1", "mm.1"), PLAIN("projector.linear_2", "mm.2"), END};

static const ae_mmproj_rule dots_block[] = {
    {"attn.qkv", "attn_%c", AE_MMPROJ_SPLIT, false}, PLAIN("attn.proj", "attn_out"), PLAIN("norm1", "ln1"),
    PLAIN("norm2", "ln2"), PLAIN("mlp.fc1", "ffn_gate"), PLAIN("mlp.fc2", "ffn_down"), PLAIN("mlp.fc3", "ffn_up"), END};
static const ae_mmproj_rule dots[] = {
    EXACT("tower.patch_embed.patchifier.proj.weight", "v.patch_embd.weight", AE_MMPROJ_KERNEL),
    EXACT("tower.patch_embed.patchifier.proj.bias", "v.patch_embd.bias", AE_MMPROJ_F32),
    PLAIN("tower.patch_embed.patchifier.norm", "v.pre_ln"), PLAIN("tower.post_trunk_norm", "mm.post_norm"),
    PLAIN("tower.merger.ln_q", "mm.input_norm"), PLAIN("tower.merger.mlp.0", "mm.0"), PLAIN("tower.merger.mlp.2", "mm.2"), END};

/* the norm after the last block is not used, since rows are read before it */
static const ae_mmproj_rule llava[] = {
    EXACT("tower.embeddings.class_embedding", "v.class_embd", AE_MMPROJ_VECTOR),
    EXACT("tower.embeddings.patch_embedding.weight", "v.patch_embd.weight", AE_MMPROJ_KERNEL),
    EXACT("tower.embeddings.patch_embedding.bias", "v.patch_embd.bias", AE_MMPROJ_F32),
    EXACT("tower.embeddings.position_embedding.weight", "v.position_embd.weight", AE_MMPROJ_TABLE),
    PLAIN("tower.pre_layrnorm", "v.pre_ln"), PLAIN("projector.linear_1", "mm.0"), PLAIN("projector.linear_2", "mm.2"),
    EXACT("image_newline", "model.image_newline", AE_MMPROJ_VECTOR), END};

/* Pixtral's and Qwen's code fixes the epsilon of norms. */
static const ae_mmproj_family families[] = {
    {.classes = "Gemma3ForConditionalGeneration", .type = "gemma3", .blocks = "tower.encoder.layers.%u.", .rules = gemma3,
     .block_rules = siglip_block, .activation = "gelu_pytorch_tanh", .activation_key = "hidden_act", .n_heads = 12, .eps = 1e-6,
     .eps_key = "layer_norm_eps", .merge_to = "projector.scale_factor"},
    {.classes = "Gemma4ForConditionalGeneration", .type = "gemma4v", .blocks = "tower.encoder.layers.%u.", .rules = gemma4v,
     .block_rules = gemma4_block, .activation = "gelu_pytorch_tanh", .activation_key = "hidden_activation", .n_heads = 12,
     .eps = 1e-6, .eps_key = "rms_norm_eps", .merge_from = "pooling_kernel_size", .merge_to = "projector.scale_factor",
     .n_merge = 3, .image_size = 224},
    {.classes = "Gemma4UnifiedForConditionalGeneration", .type = "gemma4uv", .rules = gemma4uv, .eps = 1e-6,
     .eps_key = "rms_norm_eps", .merge_from = "pooling_kernel_size", .merge_to = "projector.scale_factor", .n_merge = 3,
     .image_size = 224},
    {.classes = "Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration GlmOcrForConditionalGeneration",
     .type = "glm4v", .blocks = "tower.blocks.%u.", .rules = glm, .block_rules = glm_block, .activation = "silu",
     .activation_key = "hidden_act", .n_heads = 12, .eps = 1e-5, .eps_key = "rms_norm_eps", .merge_from = "spatial_merge_size",
     .merge_to = "spatial_merge_size", .n_merge = 2, .image_size = 336},
    {.classes = "KimiVLForConditionalGeneration", .type = "kimivl", .blocks = "tower.encoder.blocks.%u.", .rules = kimivl,
     .block_rules = kimivl_block, .activation = "gelu_pytorch_tanh", .n_heads = 16, .eps = 1e-5,
     .merge_to = "projector.scale_factor", .n_merge = 2, .image_size = 896},
    {.classes = "KimiK25ForConditionalGeneration", .type = "kimik25", .blocks = "tower.encoder.blocks.%u.", .rules = kimik25,
     .block_rules = kimik25_block, .activation = "gelu_pytorch_tanh", .n_heads = 16, .eps = 1e-5,
     .merge_to = "projector.scale_factor", .n_merge = 2, .image_size = 896},
    {.classes = "PaddleOCRVLForConditionalGeneration", .type = "paddleocr", .blocks = "tower.encoder.layers.%u.",
     .rules = paddle, .block_rules = siglip_block, .activation = "gelu_pytorch_tanh", .activation_key = "hidden_act",
     .n_heads = 16, .eps = 1e-6, .eps_key = "layer_norm_eps", .n_merge = 2, .pixels = true},
    {.classes = "DotsOCRForCausalLM", .type = "dots_ocr", .blocks = "tower.blocks.%u.", .rules = dots,
     .block_rules = dots_block, .activation = "silu", .n_heads = 12, .eps = 1e-5, .eps_key = "rms_norm_eps",
     .merge_from = "spatial_merge_size", .merge_to = "projector.scale_factor", .n_merge = 2, .sideless = true, .pixels = true},
    {.classes = "LightOnOCRForConditionalGeneration LightOnOcrForConditionalGeneration", .type = "lightonocr",
     .blocks = "tower.transformer.layers.%u.", .rules = pixtral, .block_rules = pixtral_block, .activation = "silu",
     .activation_key = "hidden_act", .n_heads = 16, .eps = 1e-5, .merge_from = "spatial_merge_size",
     .merge_to = "spatial_merge_size", .n_merge = 2, .image_size = 1540},
    {.encoder = "clip_vision_model", .classes = "LlavaForConditionalGeneration LlavaNextForConditionalGeneration",
     .type = "mlp", .blocks = "tower.encoder.layers.%u.", .rules = llava, .block_rules = siglip_block,
     .activation = "quick_gelu", .activation_key = "hidden_act", .n_heads = 12, .eps = 1e-5, .eps_key = "layer_norm_eps",
     .n_merge = 1, .features = true},
    {.encoder = "siglip_vision_model", .classes = "LlavaForConditionalGeneration LlavaNextForConditionalGeneration",
     .type = "mlp", .blocks = "tower.encoder.layers.%u.", .rules = llava, .block_rules = siglip_block,
     .activation = "gelu_pytorch_tanh", .activation_key = "hidden_act", .n_heads = 12, .eps = 1e-6,
     .eps_key = "layer_norm_eps", .n_merge = 1, .features = true},
    {.classes = "Idefics3ForConditionalGeneration SmolVLMForConditionalGeneration", .type = "idefics3",
     .blocks = "tower.encoder.layers.%u.", .rules = idefics3, .block_rules = siglip_block, .activation = "gelu_pytorch_tanh",
     .activation_key = "hidden_act", .n_heads = 16, .eps = 1e-6, .eps_key = "layer_norm_eps", .merge_from = "scale_factor",
     .merge_to = "projector.scale_factor", .n_merge = 2},
    {.classes = "InternVLChatModel InternVLChat", .type = "internvl", .blocks = "tower.encoder.layers.%u.", .rules = internvl,
     .block_rules = internvl_block, .activation = "gelu", .activation_key = "hidden_act", .n_heads = 16, .eps = 1e-6,
     .eps_key = "layer_norm_eps", .merge_to = "projector.scale_factor"},
    {.classes = "InternVLForConditionalGeneration InternS1ForConditionalGeneration", .type = "internvl",
     .blocks = "tower.encoder.layer.%u.", .rules = internvl_hf, .block_rules = internvl_hf_block, .activation = "gelu",
     .activation_key = "hidden_act", .n_heads = 16, .eps = 1e-6, .eps_key = "layer_norm_eps",
     .merge_to = "projector.scale_factor"},
    {.classes = "Lfm2VlForConditionalGeneration", .type = "lfm2", .blocks = "tower.encoder.layers.%u.", .rules = lfm2,
     .block_rules = siglip_block, .activation = "gelu_pytorch_tanh", .activation_key = "hidden_act", .n_heads = 12, .eps = 1e-6,
     .eps_key = "layer_norm_eps", .merge_from = "downsample_factor", .merge_to = "projector.scale_factor", .n_merge = 2,
     .image_size = 256},
    {.classes = "LlavaForConditionalGeneration", .type = "pixtral", .blocks = "tower.transformer.layers.%u.", .rules = pixtral,
     .block_rules = pixtral_block, .activation = "silu", .activation_key = "hidden_act", .n_heads = 16, .eps = 1e-5,
     .merge_to = "spatial_merge_size", .n_merge = 1, .image_size = 1024, .breaks = true},
    {.classes = "Mistral3ForConditionalGeneration", .type = "pixtral", .blocks = "tower.transformer.layers.%u.",
     .rules = pixtral, .block_rules = pixtral_block, .activation = "silu", .activation_key = "hidden_act", .n_heads = 16,
     .eps = 1e-5, .merge_from = "spatial_merge_size", .merge_to = "spatial_merge_size", .n_merge = 2, .image_size = 1024,
     .breaks = true},
    {.classes = "Qwen2VLForConditionalGeneration", .type = "qwen2vl_merger", .blocks = "tower.blocks.%u.", .rules = qwen2,
     .block_rules = qwen2_block, .activation = "quick_gelu", .activation_key = "hidden_act", .n_heads = 16, .eps = 1e-6,
     .merge_from = "spatial_merge_size", .merge_to = "spatial_merge_size", .n_merge = 2, .image_size = 560},
    {.classes = "Qwen2_5_VLForConditionalGeneration", .type = "qwen2.5vl_merger", .blocks = "tower.blocks.%u.", .rules = qwen2,
     .block_rules = qwen2_block, .activation = "silu", .activation_key = "hidden_act", .n_heads = 16, .eps = 1e-6,
     .merge_from = "spatial_merge_size", .merge_to = "spatial_merge_size", .n_merge = 2, .image_size = 560},
    {.classes = "Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration Qwen3_5ForConditionalGeneration "
                "Qwen3_5MoeForConditionalGeneration",
     .type = "qwen3vl_merger", .blocks = "tower.blocks.%u.", .rules = qwen3, .block_rules = qwen3_block,
     .activation = "gelu_pytorch_tanh", .activation_key = "hidden_act", .n_heads = 16, .eps = 1e-6,
     .merge_from = "spatial_merge_size", .merge_to = "spatial_merge_size", .n_merge = 2},
};
#define N_FAMILIES (sizeof families / sizeof *families)

const ae_mmproj_family *ae_mmproj_find(const char *class, const char *encoder)
{
    const size_t n = strlen(class);
    for (size_t i = 0; i < N_FAMILIES; i++) {
        if (families[i].encoder && (!encoder || strcmp(families[i].encoder, encoder))) continue;
        for (const char *at = families[i].classes; *at; at += *at == ' ') {
            const size_t n_word = strcspn(at, " ");
            if (n_word == n && memcmp(at, class, n) == 0) return &families[i];
            at += n_word;
        }
    }
    return NULL;
}

void ae_mmproj_classes(ae_buf *out)
{
    for (size_t i = 0; i < N_FAMILIES; i++) ae_buf_addf(out, "%s%s", i ? " " : "", families[i].classes);
}

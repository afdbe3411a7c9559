/* mkarch_table.c - what the models of mkarch.h consist of.
 *
 * All have 64 numbers per row of the residual stream unless they say otherwise. A variant is a model of its own, because a file
 * either has a tensor or lacks it. What a reader of files does with the keys and tensors: README.md in tests/golden/arch.
 */
#include "mkarch.h"

/* ---- Keys ---------------------------------------------------------------------------------------- */

#define DENOISES "u .tokenizer.ggml.mask_token_id 0\n"
#define RMS "f attention.layer_norm_rms_epsilon 1e-5\n"
#define LAYER_NORM "f attention.layer_norm_epsilon 1e-5\n"
#define ROWS(embd, ff) "u embedding_length " #embd "\nu feed_forward_length " #ff "\n"
#define HEADS(heads, kv, dim) "u attention.head_count " #heads "\nu attention.head_count_kv " #kv "\n" HEAD_DIM(dim)
#define HEAD_DIM(dim) "u attention.key_length " #dim "\nu attention.value_length " #dim "\n"
#define ROPE(n, base) "u rope.dimension_count " #n "\nf rope.freq_base " #base "\n"
#define YARN(factor, original)                                                                                                 \
    "s rope.scaling.type yarn\nf rope.scaling.factor " #factor "\nu rope.scaling.original_context_length " #original "\n"
#define EXPERTS(n, used, ff)                                                                                                   \
    "u expert_count " #n "\nu expert_used_count " #used "\nu expert_feed_forward_length " #ff "\n"
#define SSM(conv, inner, state, heads, groups)                                                                                 \
    "u ssm.conv_kernel " #conv "\nu ssm.inner_size " #inner "\nu ssm.state_size " #state "\nu ssm.time_step_rank " #heads      \
    "\nu ssm.group_count " #groups "\n"

/* ---- Tensors, of the layers in `set` ------------------------------------------------------------- */

#define EMBED "- token_embd e 64 264\n- output_norm n 64\n"
/* a head that is the embedding: small, so that a token's own row does not drown the layers */
#define TIED "- token_embd e0.3 64 264\n- output_norm n 64\n"
#define OUTPUT "- output w2 64 264\n"
#define NORM(set, name) set " " name " n 64\n"
#define QKVO(set, q, k)                                                                                                        \
    set " attn_q w 64 " #q "\n" set " attn_k w 64 " #k "\n" set " attn_v w 64 " #k "\n" set " attn_output w " #q " 64\n"
#define QKV_BIAS(set, q, k) set " attn_q.bias b " #q "\n" set " attn_k.bias b " #k "\n" set " attn_v.bias b " #k "\n"
#define QK_NORM(set, q, k) set " attn_q_norm n " #q "\n" set " attn_k_norm n " #k "\n"
#define FFN(set, ff) set " ffn_gate w 64 " #ff "\n" set " ffn_up w 64 " #ff "\n" set " ffn_down w2 " #ff " 64\n"
#define ROUTER(set, n) set " ffn_gate_inp w 64 " #n "\n"
#define STACK(set, n, ff)                                                                                                      \
    set " ffn_gate_exps w 64 " #ff " " #n "\n" set " ffn_up_exps w 64 " #ff " " #n "\n" set " ffn_down_exps w2 " #ff " 64 "    \
        #n "\n"
#define SHARED(set, ff)                                                                                                        \
    set " ffn_gate_shexp w 64 " #ff "\n" set " ffn_up_shexp w 64 " #ff "\n" set " ffn_down_shexp w2 " #ff " 64\n"
#define ENCODER_EMBED(types)                                                                                                   \
    "- token_embd e 64 264\n- token_types e0.3 64 " types "\n- token_embd_norm n 64\n- token_embd_norm.bias b 64\n"
#define ENCODER_NORMS                                                                                                          \
    "* attn_output_norm n 64\n* attn_output_norm.bias b 64\n* layer_output_norm n 64\n* layer_output_norm.bias b 64\n"
#define PRE_NORMS "* attn_norm n 64\n* ffn_norm n 64\n"
#define NEXTN(set)                                                                                                             \
    set " nextn.eh_proj w 128 64\n" set " nextn.enorm n 64\n" set " nextn.hnorm n 64\n"
/* Mamba2, of rows of 64: 8 heads of 16, 2 groups, a state of 16 */
#define MAMBA(set)                                                                                                             \
    set " ssm_in w 64 328\n" set " ssm_conv1d c 4 192\n" set " ssm_conv1d.bias b 192\n" set " ssm_dt.bias s 8\n" set           \
        " ssm_a. a 1 8\n" set " ssm_d. s 1 8\n" set " ssm_norm n 64 2\n" set " ssm_out w 128 64\n"
/* Gated DeltaNet without its two gates' projections: k = 2 heads' keys, c = 2 k + v channels, v = 4 heads' values of d */
#define DELTA(set, c, v, d)                                                                                                    \
    set " attn_qkv w 64 " #c "\n" set " attn_gate w 64 " #v "\n" set " ssm_conv1d c 4 " #c "\n" set " ssm_dt.bias s 4\n" set   \
        " ssm_a. a 4\n" set " ssm_norm n " #d "\n" set " ssm_out w " #v " 64\n"

/* ---- Families that share much -------------------------------------------------------------------- */

#define LLAMA_LIKE ROWS(64, 96) RMS HEADS(4, 2, 24) ROPE(24, 10000)
#define LLAMA_BLOCK PRE_NORMS QKVO("*", 96, 48) FFN("*", 96)

#define GEMMA_EMBED "- token_embd e0.1 64 264\n- output_norm n 64\n"
#define GEMMA_NORMS PRE_NORMS "* post_attention_norm n 64\n* post_ffw_norm n 64\n"

#define GEMMA4_KEYS                                                                                                            \
    RMS HEAD_DIM(64) "u attention.key_length_swa 32\nu attention.value_length_swa 32\n" ROPE(64, 100)                          \
    "u rope.dimension_count_swa 32\nf rope.freq_base_swa 10000\nu attention.sliding_window 16\nf final_logit_softcapping 0.8\n"
/* two and one KV heads; values of full layers are their keys */
#define GEMMA4_NO_SHARING                                                                                                      \
    "u attention.head_count 4\nI attention.head_count_kv 2 2 1 2 1\nu embedding_length_per_layer_input 0\n"                    \
    "B attention.sliding_window_pattern 1 1 0 1 0\n"
#define GEMMA4_NO_SHARING_ATTENTION                                                                                            \
    "s attn_q w 64 128\ns attn_k w 64 64\ns attn_v w 64 64\ns attn_output w 128 64\ns attn_q_norm n0.6 32\n"                   \
    "s attn_k_norm n0.6 32\nf attn_q w 64 256\nf attn_k w 64 64\nf attn_output w 256 64\nf attn_q_norm n0.5 64\n"              \
    "f attn_k_norm n0.5 64\n"

#define GRANITE_SCALARS "f embedding_scale 6\nf residual_scale 0.6\nf logit_scale 0.4\nf attention.scale 0.35\n"
#define GRANITE_EMBED "- token_embd e0.15 64 264\n- output_norm n 64\n"

#define QWEN35_KEYS                                                                                                            \
    RMS HEADS(4, 2, 32) ROPE(16, 10000) "I rope.dimension_sections 3 3 2 0\nu full_attention_interval 3\n"
#define QWEN35_ATTENTION(set)                                                                                                  \
    set " attn_q w 64 256\n" set " attn_k w 64 64\n" set " attn_v w 64 64\n" set " attn_output w 128 64\n" set     \
        " attn_q_norm n3 32\n" set " attn_k_norm n 32\n"
#define QWEN35_NORMS "* attn_norm n 64\n* post_attention_norm n 64\n"
#define QWEN35_GATES(set) set " ssm_alpha w 64 4\n" set " ssm_beta w 64 4\n"
#define QWEN35_MOE(set)                                                                                                        \
    ROUTER(set, 8) STACK(set, 8, 32) SHARED(set, 48) set " ffn_gate_inp_shexp w2 64\n"

#define DEEPSEEK2_MOE ROUTER("m", 8) STACK("m", 8, 32) SHARED("m", 32) FFN("d", 96)

#define STEP35_CLAMPS "F swiglu_clamp_exp 0 0 0.5 0 0.4\nF swiglu_clamp_shexp 0 0.7 0.6 0 0.5\n"

#define LETTERS_16(c) c c c c c c c c c c c c c c c c

/* Where few layers look back far, their queries are larger (attn_q_norm n3): else what they see would hardly matter. */
const mkarch_spec mkarch_specs[] = {
    /* ---- Attention and a feed-forward network --------------------------------------------------------- */
    {"llama", "llama", "aaaa", LLAMA_LIKE,
     EMBED OUTPUT "- rope_freqs f 12\n" LLAMA_BLOCK QKV_BIAS(
         "*", 96, 48) "* attn_output.bias b 64\n"
                      "* ffn_gate.bias b 96\n* ffn_up.bias b 96\n* ffn_down.bias b 64\n"},
    {"llama-moe", "llama", "aaa", LLAMA_LIKE "u expert_count 8\nu expert_used_count 3\n",
     EMBED OUTPUT PRE_NORMS QKVO("*", 96, 48) ROUTER("*", 8) STACK("*", 8, 96)},
    {"qwen2", "qwen2", "aaa", ROWS(64, 96) RMS HEADS(4, 2, 16) ROPE(16, 10000),
     TIED PRE_NORMS QKVO("*", 64, 32) QKV_BIAS("*", 64, 32) FFN("*", 96)},
    {"qwen3", "qwen3", "aaa", LLAMA_LIKE, EMBED OUTPUT LLAMA_BLOCK QK_NORM("*", 24, 24)},
    {"qwen3-yarn", "qwen3", "aaa", LLAMA_LIKE YARN(4, 64), EMBED OUTPUT LLAMA_BLOCK QK_NORM("*", 24, 24)},
    {"mistral3", "mistral3", "aaaa",
     ROWS(64, 96) RMS HEADS(4, 2, 24) ROPE(24, 1000)
         YARN(4, 32) "f rope.scaling.yarn_beta_fast 2\nf rope.scaling.yarn_beta_slow 0.5\n"
                     "f rope.scaling.yarn_log_multiplier 1\nf attention.temperature_scale 0.5\n",
     EMBED OUTPUT LLAMA_BLOCK},
    {"mistral3-nolog", "mistral3", "aaaa", LLAMA_LIKE YARN(6, 32), TIED LLAMA_BLOCK},
    {"phi3", "phi3", "aaaa",
     ROWS(64, 96) RMS HEADS(4, 2, 16) ROPE(
         12, 10000) "s rope.scaling.type longrope\nf rope.scaling.attn_factor 1.3\nu rope.scaling.original_context_length 64\n"
                    "u attention.sliding_window 16\n",
     EMBED OUTPUT "- rope_factors_long u6 6\n- rope_factors_short u0.6 6\n" PRE_NORMS
                  "* attn_qkv w 64 128\n* attn_output w 64 64\n* ffn_up w 64 192\n* ffn_down w2 96 64\n"},
    {"phi3-short", "phi3", "aaaa",
     ROWS(64, 96) RMS HEADS(4, 2, 16) ROPE(
         12,
         10000) "s rope.scaling.type longrope\nf rope.scaling.attn_factor 1.3\nu rope.scaling.original_context_length 256\n",
     EMBED OUTPUT "- rope_factors_long u6 6\n- rope_factors_short u0.6 6\n" PRE_NORMS
                  "* attn_qkv w 64 128\n* attn_output w 64 64\n* ffn_up w 64 192\n* ffn_down w2 96 64\n"},
    {"smollm3", "smollm3", "aaaaa", LLAMA_LIKE, TIED LLAMA_BLOCK},
    {"seed_oss", "seed_oss", "aaaa", LLAMA_LIKE,
     EMBED OUTPUT "* attn_norm n 64\n* post_attention_norm n 64\n" QKVO("*", 96, 48) QKV_BIAS("*", 96, 48) FFN("*", 96)},
    {"olmo2", "olmo2", "aaaa", ROWS(64, 96) RMS HEADS(4, 2, 16) ROPE(16, 10000),
     EMBED OUTPUT QKVO("*", 64, 32) QK_NORM("*", 64, 32) "* post_attention_norm n 64\n* post_ffw_norm n 64\n" FFN("*", 96)},
    {"olmo3", "olmo2", "sssfs", ROWS(64, 96) RMS HEADS(4, 2, 16) ROPE(16, 10000) YARN(4, 64) "u attention.sliding_window 16\n",
     EMBED OUTPUT QKVO("*", 64, 32) QK_NORM("s", 64, 32) "f attn_q_norm n3 64\nf attn_k_norm n 32\n"
                                                         "* post_attention_norm n 64\n* post_ffw_norm n 64\n" FFN("*", 96)},
    {"granite", "granite", "aaaa", LLAMA_LIKE GRANITE_SCALARS, GRANITE_EMBED LLAMA_BLOCK},
    {"granitemoe", "granitemoe", "aaa",
     ROWS(64, 48) RMS HEADS(4, 2, 24) ROPE(24, 10000) GRANITE_SCALARS
     "u expert_count 8\nu expert_used_count 3\nu expert_shared_feed_forward_length 32\n",
     GRANITE_EMBED PRE_NORMS QKVO("*", 96, 48) ROUTER("*", 8) STACK("*", 8, 48) SHARED("*", 32)},
    {"glm4", "glm4", "aaaa", ROWS(64, 96) RMS HEADS(4, 2, 24) ROPE(12, 10000),
     EMBED OUTPUT GEMMA_NORMS QKVO("*", 96, 48) QKV_BIAS("*", 96, 48) "* ffn_up w 64 192\n* ffn_down w2 96 64\n"},
    {"glm4-mtp", "glm4", "aaM", ROWS(64, 96) RMS HEADS(4, 2, 24) ROPE(12, 10000) "u nextn_predict_layers 1\n",
     EMBED OUTPUT GEMMA_NORMS QKVO("*", 96, 48) QKV_BIAS("*", 96, 48) "* ffn_up w 64 192\n* ffn_down w2 96 64\n" NEXTN("M")
         "M nextn.shared_head_norm n 64\n"},
    {"glm4-sections", "glm4", "aaaa", ROWS(64, 96) RMS HEADS(4, 2, 24) ROPE(12, 10000) "I rope.dimension_sections 2 2 2 0\n",
     EMBED OUTPUT GEMMA_NORMS QKVO("*", 96, 48) QKV_BIAS("*", 96, 48) "* ffn_up w 64 192\n* ffn_down w2 96 64\n"},
    {"hunyuan-dense", "hunyuan-dense", "aaaa", LLAMA_LIKE, TIED LLAMA_BLOCK QK_NORM("*", 24, 24)},
    {"hunyuan-moe", "hunyuan-moe", "aaa",
     ROWS(64, 48) RMS HEADS(4, 2, 24) ROPE(24, 10000) EXPERTS(8, 3, 48) "u expert_shared_feed_forward_length 48\n",
     TIED PRE_NORMS QKVO("*", 96, 48) QK_NORM("*", 24, 24) ROUTER("*", 8) STACK("*", 8, 48) SHARED("*", 48)},
    {"ernie4_5", "ernie4_5", "aaaa", LLAMA_LIKE, TIED LLAMA_BLOCK},
    {"ernie4_5-moe", "ernie4_5-moe", "dmm",
     LLAMA_LIKE EXPERTS(8, 3, 32) "u expert_shared_feed_forward_length 64\nu interleave_moe_layer_step 1\n"
                                  "u leading_dense_block_count 1\n",
     TIED PRE_NORMS QKVO("*", 96, 48) FFN("d", 96) ROUTER("m", 8) "m exp_probs_b.bias b 8\n" STACK("m", 8, 32) SHARED("m", 64)},
    {"cohere2", "cohere2", "sssfs",
     ROWS(64, 96) LAYER_NORM HEADS(4, 2, 16) ROPE(16, 10000) "u attention.sliding_window 16\nf logit_scale 0.25\n",
     "- token_embd E0.3 64 264\n- output_norm n 64\n* attn_norm n 64\n" QKVO(
         "s", 64, 32) "f attn_q w3 64 64\nf attn_k w 64 32\nf attn_v w 64 32\nf attn_output w 64 64\n" FFN("*", 96)},
    {"command-r", "command-r", "aaaa", ROWS(64, 96) LAYER_NORM HEADS(4, 2, 16) ROPE(16, 10000) "f logit_scale 0.25\n",
     "- token_embd E0.3 64 264\n- output_norm n 64\n* attn_norm n 64\n" QKVO("*", 64, 32) FFN("*", 96)},
    {"command-r-plus", "command-r", LETTERS_16("aaaa"),
     ROWS(32, 32) LAYER_NORM HEADS(4, 2, 8) ROPE(8, 10000) "f logit_scale 0.25\n",
     "- token_embd E2 32 264\n- output_norm n 32\n* attn_norm n 32\n* attn_q w 32 32\n* attn_k w 32 16\n* attn_v w 32 16\n"
     "* attn_output w0.5 32 32\n* attn_q_norm n 8 4\n* attn_k_norm n 8 2\n* ffn_gate w 32 32\n* ffn_up w 32 32\n"
     "* ffn_down w0.5 32 32\n"},
    {"starcoder2", "starcoder2", "aaaa", ROWS(64, 96) LAYER_NORM HEADS(4, 2, 16) ROPE(16, 10000),
     "- token_embd E 64 264\n- output_norm n 64\n- output_norm.bias b0.3 64\n" OUTPUT PRE_NORMS
     "* attn_norm.bias b 64\n* ffn_norm.bias b 64\n" QKVO("*", 64, 32) QKV_BIAS(
         "*", 64,
         32) "* attn_output.bias b 64\n* ffn_up w 64 96\n* ffn_up.bias b 96\n* ffn_down w2 96 64\n* ffn_down.bias b 64\n"},
    {"exaone4", "exaone4", "aaaa", ROWS(64, 96) RMS HEADS(4, 2, 16) ROPE(16, 10000),
     TIED "- rope_freqs f 8\n" QKVO("*", 64, 32)
         QK_NORM("*", 16, 16) "* post_attention_norm n 64\n* post_ffw_norm n 64\n" FFN("*", 96)},
    {"exaone4-mtp", "exaone4", "aaM", ROWS(64, 96) RMS HEADS(4, 2, 16) ROPE(16, 10000) "u nextn_predict_layers 1\n",
     TIED QKVO("*", 64, 32) QK_NORM("*", 16, 16) "* post_attention_norm n 64\n* post_ffw_norm n 64\n" FFN("*", 96)
         NEXTN("M") "M nextn.shared_head_norm n 64\n"},
    {"exaone4-32b", "exaone4", LETTERS_16("aaaa"),
     ROWS(32, 32) RMS HEADS(4, 2, 8) ROPE(8, 10000) "u attention.sliding_window 16\n",
     "- token_embd e2 32 264\n- output_norm n 32\n- output w2 32 264\n- rope_freqs f 4\n* attn_q w 32 32\n* attn_k w 32 16\n"
     "* attn_v w 32 16\n* attn_output w 32 32\n* attn_q_norm n 8\n* attn_k_norm n 8\n* post_attention_norm n0.4 32\n"
     "* post_ffw_norm n0.4 32\n* ffn_gate w 32 32\n* ffn_up w 32 32\n* ffn_down w 32 32\n"},
    /* ---- Gemma ---------------------------------------------------------------------------------------- */
    {"gemma2", "gemma2", "aaaaa",
     ROWS(64, 96) RMS HEADS(4, 2, 24)
         ROPE(24, 10000) "u attention.sliding_window 16\nf attn_logit_softcapping 1.5\nf final_logit_softcapping 0.8\n",
     GEMMA_EMBED GEMMA_NORMS QKVO("*", 96, 48) FFN("*", 96)},
    {"gemma2-27b", "gemma2", LETTERS_16("aa") "aaaaaaaaaaaaaa",
     ROWS(32, 32) RMS HEADS(4, 2, 32)
         ROPE(32, 10000) "u attention.sliding_window 16\nf attn_logit_softcapping 3\nf final_logit_softcapping 3\n",
     "- token_embd e0.4 32 264\n- output_norm n 32\n* attn_norm n 32\n* ffn_norm n 32\n* post_attention_norm n0.4 32\n"
     "* post_ffw_norm n0.4 32\n* attn_q w 32 128\n* attn_k w 32 64\n* attn_v w 32 64\n* attn_output w 128 32\n"
     "* ffn_gate w 32 32\n* ffn_up w 32 32\n* ffn_down w 32 32\n"},
    {"gemma3", "gemma3", "sssssfs",
     ROWS(64, 96) RMS HEADS(4, 2, 24)
         ROPE(24, 100) "u attention.sliding_window 16\ns rope.scaling.type linear\nf rope.scaling.factor 8\n",
     GEMMA_EMBED GEMMA_NORMS QKVO("*", 96, 48) QK_NORM("s", 24, 24) "f attn_q_norm n3 24\nf attn_k_norm n 24\n" FFN("*", 96)},
    {"gemma3-cap", "gemma3", "aaaa",
     ROWS(64, 96) RMS HEADS(4, 2, 24)
         ROPE(24, 1000000) "u attention.sliding_window 16\nu attention.sliding_window_pattern 2\nf rope.freq_base_swa 500\n"
                           "f final_logit_softcapping 3\n",
     GEMMA_EMBED OUTPUT GEMMA_NORMS QKVO("*", 96, 48) QK_NORM("*", 24, 24) FFN("*", 96)},
    {"gemma3-27b", "gemma3", LETTERS_16("aaa") "aaaaaaaaaaaaaa",
     ROWS(32, 32) RMS HEADS(4, 2, 16) ROPE(16, 1000000) "u attention.sliding_window 16\n",
     "- token_embd e0.4 32 264\n- output_norm n 32\n* attn_norm n 32\n* ffn_norm n 32\n* post_attention_norm n0.4 32\n"
     "* post_ffw_norm n0.4 32\n* attn_q w 32 64\n* attn_k w 32 32\n* attn_v w 32 32\n* attn_output w 64 32\n"
     "* attn_q_norm n 16\n* attn_k_norm n 16\n* ffn_gate w 32 32\n* ffn_up w 32 32\n* ffn_down w 32 32\n"},
    /* s, f: windowed and full layers; S, F: the same without keys and values of their own, those of layers 3 and 4 instead */
    {"gemma4", "gemma4", "sfssfSSF",
     "u embedding_length 64\nI feed_forward_length 96 96 96 96 96 192 192 192\n" GEMMA4_KEYS
     "u attention.head_count 4\nu attention.head_count_kv 2\nB attention.sliding_window_pattern 1 0 1 1 0 1 1 0\n"
     "u attention.shared_kv_layers 3\nu embedding_length_per_layer_input 16\n",
     GEMMA_EMBED "- rope_freqs F 32\n- per_layer_token_embd e0.25 128 264\n- per_layer_model_proj w 64 128\n"
                 "- per_layer_proj_norm n 16\n" GEMMA_NORMS
                 "sS attn_q w 64 128\ns attn_k w 64 64\ns attn_v w 64 64\nsS attn_output w 128 64\n"
                 "fF attn_q w 64 256\nf attn_k w 64 128\nf attn_v w 64 128\nfF attn_output w 256 64\n"
                 "sS attn_q_norm n0.6 32\ns attn_k_norm n0.6 32\nfF attn_q_norm n0.5 64\nf attn_k_norm n0.5 64\n" FFN("sf", 96)
                     FFN("SF", 192) "* inp_gate w 64 16\n* proj w 16 64\n* post_norm n 64\n* layer_output_scale o 1\n"},
    {"gemma4-31b", "gemma4", "ssfsf", ROWS(64, 96) GEMMA4_KEYS GEMMA4_NO_SHARING,
     GEMMA_EMBED "- rope_freqs F 32\n" GEMMA_NORMS GEMMA4_NO_SHARING_ATTENTION FFN("*", 96) "* layer_output_scale o 1\n"},
    {"gemma4-moe", "gemma4", "ssfsf", ROWS(64, 96) GEMMA4_KEYS GEMMA4_NO_SHARING EXPERTS(8, 3, 32),
     GEMMA_EMBED "- rope_freqs F 32\n" GEMMA_NORMS GEMMA4_NO_SHARING_ATTENTION FFN(
         "*", 96) "* layer_output_scale o 1\n"
                  "* pre_ffw_norm_2 n 64\n* post_ffw_norm_1 n 64\n* post_ffw_norm_2 n 64\n" ROUTER(
                      "*", 8) "* ffn_gate_inp.scale o8 64\n"
                              "* ffn_gate_up_exps w 64 64 8\n* ffn_down_exps w2 32 64 8\n* ffn_down_exps.scale o 8\n"},
    /* ---- Experts --------------------------------------------------------------------------------------- */
    {"qwen2moe", "qwen2moe", "aaa",
     ROWS(64, 96) RMS HEADS(4, 2, 16) ROPE(16, 10000) EXPERTS(8, 3, 32) "u expert_shared_feed_forward_length 48\n",
     EMBED OUTPUT PRE_NORMS QKVO("*", 64, 32) QKV_BIAS("*", 64, 32) QWEN35_MOE("*")},
    {"qwen3moe", "qwen3moe", "aaa", LLAMA_LIKE EXPERTS(8, 3, 32),
     EMBED OUTPUT PRE_NORMS QKVO("*", 96, 48) QK_NORM("*", 24, 24) ROUTER("*", 8) STACK("*", 8, 32)},
    {"olmoe", "olmoe", "aaa", ROWS(64, 32) RMS HEADS(4, 4, 16) ROPE(16, 10000) "u expert_count 8\nu expert_used_count 3\n",
     EMBED OUTPUT PRE_NORMS QKVO("*", 64, 64) QK_NORM("*", 64, 64) ROUTER("*", 8) STACK("*", 8, 32)},
    {"deepseek", "deepseek", "dmm",
     ROWS(64, 96) RMS HEADS(4, 4, 16) ROPE(16, 10000)
         EXPERTS(8, 3, 32) "u expert_shared_count 2\nu leading_dense_block_count 1\nf expert_weights_scale 1.7\n",
     EMBED OUTPUT PRE_NORMS QKVO("*", 64, 64) FFN("d", 96) ROUTER("m", 8) STACK("m", 8, 32) SHARED("m", 64)},
    {"dots1", "dots1", "dmm",
     ROWS(64, 96) RMS HEADS(4, 4, 24) ROPE(24, 10000) EXPERTS(
         8, 3,
         32) "u expert_shared_count 2\nu leading_dense_block_count 1\nf expert_weights_scale 1.7\nb expert_weights_norm 1\n"
             "u expert_gating_func 2\n",
     EMBED OUTPUT PRE_NORMS QKVO("*", 96, 96) QK_NORM("*", 24, 24) FFN("d", 96)
         ROUTER("m", 8) "m exp_probs_b.bias b 8\n" STACK("m", 8, 32) SHARED("m", 64)},
    {"gpt-oss", "gpt-oss", "aaaa",
     ROWS(64, 48) RMS HEADS(4, 2, 64) ROPE(64, 150000) YARN(4, 64) "u attention.sliding_window 16\n" EXPERTS(8, 3, 48),
     EMBED OUTPUT "* attn_norm n 64\n* post_attention_norm n 64\n" QKVO("*", 256, 128)
         QKV_BIAS("*", 256, 128) "* attn_output.bias b 64\n* attn_sinks s 4\n" ROUTER(
             "*", 8) "* ffn_gate_inp.bias b 8\n"
                     "* ffn_gate_exps w5 64 48 8\n* ffn_up_exps w5 64 48 8\n* ffn_down_exps w0.12 48 64 8\n"
                     "* ffn_gate_exps.bias b 48 8\n* ffn_up_exps.bias b 48 8\n* ffn_down_exps.bias b 64 8\n"},
    {"gpt-oss-mxfp4", "gpt-oss", "aa",
     ROWS(64, 64) RMS HEADS(4, 2, 64) ROPE(64, 150000) YARN(4, 64) "u attention.sliding_window 16\n" EXPERTS(4, 2, 64),
     EMBED OUTPUT "* attn_norm n 64\n* post_attention_norm n 64\n" QKVO("*", 256, 128)
         QKV_BIAS("*", 256, 128) "* attn_output.bias b 64\n* attn_sinks s 4\n" ROUTER(
             "*", 4) "* ffn_gate_inp.bias b 4\n"
                     "* ffn_gate_exps x 64 64 4\n* ffn_up_exps x 64 64 4\n* ffn_down_exps x 64 64 4\n"
                     "* ffn_gate_exps.bias b 64 4\n* ffn_up_exps.bias b 64 4\n* ffn_down_exps.bias b 64 4\n"},
    {"glm4moe", "glm4moe", "dmmM",
     ROWS(64, 96) RMS HEADS(4, 2, 24) ROPE(12, 10000) EXPERTS(
         8, 3,
         32) "u expert_shared_count 2\nu leading_dense_block_count 1\nf expert_weights_scale 1.7\nb expert_weights_norm 1\n"
             "u expert_gating_func 2\nu nextn_predict_layers 1\n",
     EMBED OUTPUT "* attn_norm n 64\n* post_attention_norm n 64\n" QKVO("*", 96, 48) QKV_BIAS("*", 96, 48) QK_NORM("*", 24, 24)
         FFN("d", 96) ROUTER("mM", 8) "mM exp_probs_b.bias b 8\n" STACK("mM", 8, 32) SHARED("mM", 64)
             NEXTN("M") "M nextn.shared_head_norm n 64\n"},
    {"glm4moe-plain", "glm4moe", "ddm",
     ROWS(64, 96) RMS HEADS(4, 2, 24) ROPE(12, 10000)
         EXPERTS(8, 3, 32) "u expert_shared_count 1\nu leading_dense_block_count 2\n",
     EMBED OUTPUT "* attn_norm n 64\n* post_attention_norm n 64\n" QKVO("*", 96, 48) QKV_BIAS("*", 96, 48) FFN("d", 96)
         ROUTER("m", 8) "m exp_probs_b.bias b 8\n" STACK("m", 8, 32) SHARED("m", 32)},
    {"minimax-m2", "minimax-m2", "aaa",
     ROWS(64, 32) RMS HEADS(4, 2, 24) ROPE(12, 10000) EXPERTS(8, 3, 32) "u expert_gating_func 2\n",
     EMBED OUTPUT PRE_NORMS QKVO("*", 96, 48) QK_NORM("*", 96, 48) ROUTER("*", 8) "* exp_probs_b.bias b 8\n" STACK("*", 8, 32)},
    {"llama4", "llama4", "dmdmd", LLAMA_LIKE EXPERTS(4, 1, 32) "u interleave_moe_layer_step 2\n",
     EMBED OUTPUT "- rope_freqs f 12\n" PRE_NORMS QKVO("*", 96, 48) FFN("d", 96) ROUTER("m", 4) STACK("m", 4, 32)
         SHARED("m", 32)},
    {"llama4-128e", "llama4", "dmdm", LLAMA_LIKE EXPERTS(128, 1, 8) "u interleave_moe_layer_step 2\n",
     EMBED OUTPUT PRE_NORMS QKVO("*", 96, 48) FFN("d", 96) ROUTER("m", 128) STACK("m", 128, 8) SHARED("m", 8)},
    /* Rotation of half as many dimensions, and divisors, on full layers (f, F); windowed ones (s, S) have 6 heads. */
    {"step35", "step35", "FsSSf",
     ROWS(64, 96) RMS "I attention.head_count 4 6 6 6 4\nu attention.head_count_kv 2\n" HEAD_DIM(24)
         ROPE(24, 1000000) "f rope.freq_base_swa 10000\nu attention.sliding_window 16\nB attention.sliding_window_pattern 0 1 "
                           "1 1 0\n" EXPERTS(8, 3, 32) "u expert_shared_feed_forward_length 48\nf expert_weights_scale 1.7\nb "
                                                       "expert_weights_norm 1\n" STEP35_CLAMPS,
     EMBED OUTPUT "- rope_freqs f 12\n" PRE_NORMS "Ff attn_q w 64 96\nsS attn_q w 64 144\n* attn_k w 64 48\n* attn_v w 64 48\n"
                  "Ff attn_output w 96 64\nsS attn_output w 144 64\n" QK_NORM(
                      "*", 24, 24) "Ff attn_gate w 64 4\nsS attn_gate w 64 6\n" FFN("Fs", 96)
                      ROUTER("Sf", 8) "Sf exp_probs_b.bias b 8\n" STACK("Sf", 8, 32) SHARED("Sf", 48)},
    {"step35-mtp", "step35", "FsfMMM",
     ROWS(64, 96) RMS "I attention.head_count 4 6 4 6 6 6\nu attention.head_count_kv 2\n" HEAD_DIM(24)
         ROPE(24, 1000000) "f rope.freq_base_swa 10000\nu attention.sliding_window 16\nB attention.sliding_window_pattern 0 1 "
                           "0 1 1 1\n" EXPERTS(8, 3, 32) "u expert_shared_feed_forward_length 48\nf expert_weights_scale 1.7\n"
                                                         "b expert_weights_norm 1\nu nextn_predict_layers 3\n",
     EMBED OUTPUT PRE_NORMS "Ff attn_q w 64 96\nsM attn_q w 64 144\n* attn_k w 64 48\n* attn_v w 64 48\n"
                            "Ff attn_output w 96 64\nsM attn_output w 144 64\n" QK_NORM("*", 24, 24)
                                "Ff attn_gate w 64 4\nsM attn_gate w 64 6\n" FFN("FsM", 96)
                                    ROUTER("f", 8) "f exp_probs_b.bias b 8\n" STACK("f", 8, 32) SHARED("f", 48) NEXTN("M")
                                        "M nextn.shared_head_norm n 64\nM nextn.shared_head_head w2 64 264\n"},
    /* ---- Latent attention ------------------------------------------------------------------------------- */
    {"deepseek2", "deepseek2", "dmmm",
     ROWS(64, 96) RMS
     "u attention.head_count 2\nu attention.head_count_kv 1\nu attention.q_lora_rank 48\n"
     "u attention.kv_lora_rank 512\nu attention.key_length 576\nu attention.value_length 512\n"
     "u attention.key_length_mla 192\nu attention.value_length_mla 128\n" ROPE(64, 10000)
         YARN(4, 64) "f rope.scaling.yarn_log_multiplier 0.1\n" EXPERTS(
             8, 2,
             32) "u expert_shared_count 1\nu leading_dense_block_count 1\nf expert_weights_scale 2.5\nb expert_weights_norm 1\n"
                 "u expert_gating_func 2\nu expert_group_count 4\nu expert_group_used_count 2\n",
     EMBED OUTPUT PRE_NORMS
     "* attn_q_a w 64 48\n* attn_q_a_norm n 48\n* attn_q_b w 48 384\n* attn_kv_a_mqa w 64 576\n"
     "* attn_kv_a_norm n 512\n* attn_k_b w 128 512 2\n* attn_v_b w 512 128 2\n* attn_output w 256 64\n" DEEPSEEK2_MOE
     "m exp_probs_b.bias b 8\n"},
    /* GLM-4.7-Flash: values longer than the part of a key that does not rotate, one group, no YaRN */
    {"glm4.7-flash", "deepseek2", "dmmm",
     ROWS(64, 96) RMS
     "u attention.head_count 4\nu attention.head_count_kv 1\nu attention.q_lora_rank 40\n"
     "u attention.kv_lora_rank 48\nu attention.key_length 64\nu attention.value_length 48\n"
     "u attention.key_length_mla 40\nu attention.value_length_mla 32\n" ROPE(16, 1000000) EXPERTS(
         8, 3,
         32) "u expert_shared_count 1\nu leading_dense_block_count 1\nf expert_weights_scale 1.8\nb expert_weights_norm 1\n"
             "u expert_gating_func 2\nu expert_group_count 1\nu expert_group_used_count 1\n",
     EMBED OUTPUT PRE_NORMS
     "* attn_q_a w 64 40\n* attn_q_a_norm n 40\n* attn_q_b w 40 160\n* attn_kv_a_mqa w 64 64\n"
     "* attn_kv_a_norm n 48\n* attn_k_b w 24 48 4\n* attn_v_b w 48 32 4\n* attn_output w 128 64\n" DEEPSEEK2_MOE
     "m exp_probs_b.bias b 8\n"},
    {"glm4.7-flash-mtp", "deepseek2", "dmmM",
     ROWS(64, 96) RMS
     "u attention.head_count 4\nu attention.head_count_kv 1\nu attention.q_lora_rank 40\n"
     "u attention.kv_lora_rank 48\nu attention.key_length 64\nu attention.value_length 48\n"
     "u attention.key_length_mla 40\nu attention.value_length_mla 32\n" ROPE(16, 1000000) EXPERTS(
         8, 3,
         32) "u expert_shared_count 1\nu leading_dense_block_count 1\nf expert_weights_scale 1.8\nb expert_weights_norm 1\n"
             "u expert_gating_func 2\nu expert_group_count 1\nu expert_group_used_count 1\nu nextn_predict_layers 1\n",
     EMBED OUTPUT PRE_NORMS
     "* attn_q_a w 64 40\n* attn_q_a_norm n 40\n* attn_q_b w 40 160\n* attn_kv_a_mqa w 64 64\n"
     "* attn_kv_a_norm n 48\n* attn_k_b w 24 48 4\n* attn_v_b w 48 32 4\n* attn_output w 128 64\n" FFN("d", 96)
         ROUTER("mM", 8) STACK("mM", 8, 32) SHARED("mM", 32) "mM exp_probs_b.bias b 8\n"
             NEXTN("M") "M nextn.shared_head_norm n 64\n"},
    {"deepseek2-fused", "deepseek2", "dmmm",
     ROWS(64, 96) RMS HEADS(4, 4, 48) "u attention.q_lora_rank 40\nu attention.kv_lora_rank 64\n" ROPE(16, 10000)
         YARN(8, 64) "f rope.scaling.yarn_log_multiplier 0.0707\n" EXPERTS(
             8, 3, 32) "u expert_shared_count 1\nu leading_dense_block_count 1\nf expert_weights_scale 1.6\n",
     EMBED OUTPUT PRE_NORMS "* attn_q_a w 64 40\n* attn_q_a_norm n 40\n* attn_q_b w 40 192\n* attn_kv_a_mqa w 64 80\n"
                            "* attn_kv_a_norm n 64\n* attn_kv_b w 64 320\n* attn_output w 192 64\n" DEEPSEEK2_MOE},
    {"deepseek2-lite", "deepseek2", "dddddddmmm" LETTERS_16("m"),
     ROWS(64, 96) RMS "u attention.head_count 4\nu attention.head_count_kv 1\nu attention.kv_lora_rank 64\n"
                      "u attention.key_length 80\nu attention.value_length 64\nu attention.key_length_mla 48\nu "
                      "attention.value_length_mla 24\n" ROPE(16, 10000)
                          EXPERTS(8, 3, 32) "u expert_shared_count 1\nu leading_dense_block_count 7\n",
     "- token_embd e2 64 264\n- output_norm n 64\n" OUTPUT PRE_NORMS "* attn_q w 64 192\n* attn_kv_a_mqa w 64 80\n"
     "* attn_kv_a_norm n 64\n* attn_k_b w 32 64 4\n* attn_v_b w 64 24 4\n* attn_output w 96 64\n" DEEPSEEK2_MOE},
    {"deepseek2-lite-fused", "deepseek2", LETTERS_16("d") "dddddddmmm",
     ROWS(64, 96) RMS "u attention.head_count 4\nu attention.head_count_kv 4\nu attention.kv_lora_rank 64\n"
                      "u attention.key_length 48\nu attention.value_length 24\n" ROPE(16, 10000)
                          YARN(4, 64) "f rope.scaling.yarn_log_multiplier 0.0707\n" EXPERTS(
                              8, 3, 32) "u expert_shared_count 1\nu leading_dense_block_count 23\n",
     "- token_embd e2 64 264\n- output_norm n 64\n" OUTPUT PRE_NORMS "* attn_q w 64 192\n* attn_kv_a_mqa w 64 80\n"
     "* attn_kv_a_norm n 64\n* attn_kv_b w 64 224\n* attn_output w 96 64\n" DEEPSEEK2_MOE},
    /* ---- Recurrent state -------------------------------------------------------------------------------- */
    {"qwen35", "qwen35", "llalla", ROWS(64, 96) QWEN35_KEYS SSM(4, 512, 128, 4, 2),
     EMBED OUTPUT QWEN35_NORMS QWEN35_ATTENTION("a") DELTA("l", 1024, 512, 128) QWEN35_GATES("l") FFN("*", 96)},
    {"qwen35-mtp", "qwen35", "llallaM", ROWS(64, 96) QWEN35_KEYS SSM(4, 512, 128, 4, 2) "u nextn_predict_layers 1\n",
     EMBED OUTPUT QWEN35_NORMS QWEN35_ATTENTION("aM") DELTA("l", 1024, 512, 128) QWEN35_GATES("l") FFN("*", 96)
         NEXTN("M") "M nextn.shared_head_norm n 64\n"},
    /* its MTP block has an embedding and a head of its own, but no norm before the head */
    {"qwen35moe", "qwen35moe", "llallaM",
     ROWS(64, 96) QWEN35_KEYS SSM(4, 128, 32, 4, 2) EXPERTS(8, 3, 32) "u expert_shared_feed_forward_length 48\n"
                                                                      "u nextn_predict_layers 1\n",
     EMBED OUTPUT QWEN35_NORMS QWEN35_ATTENTION("aM") DELTA("l", 256, 128, 32) QWEN35_GATES("l") QWEN35_MOE("*")
         NEXTN("M") "M nextn.embed_tokens e 64 264\nM nextn.shared_head_head w2 64 264\n"},
    {"qwen35moe-fused", "qwen35moe", "llal",
     ROWS(64, 96) QWEN35_KEYS SSM(4, 256, 64, 4, 2) EXPERTS(8, 3, 32) "u expert_shared_feed_forward_length 48\n",
     TIED QWEN35_NORMS QWEN35_ATTENTION("a") DELTA("l", 512, 256, 64) QWEN35_GATES("l") ROUTER(
         "*", 8) "* ffn_gate_up_exps w 64 64 8\n* ffn_down_exps w2 32 64 8\n" SHARED("*", 48) "* ffn_gate_inp_shexp w2 64\n"},
    {"qwen3next", "qwen3next", "llalla",
     ROWS(64, 96) RMS HEADS(4, 2, 32) ROPE(8, 10000) "u full_attention_interval 3\n" SSM(4, 512, 128, 4, 2)
         EXPERTS(8, 3, 32) "u expert_shared_feed_forward_length 48\n",
     EMBED OUTPUT QWEN35_NORMS QWEN35_ATTENTION("a") DELTA("l", 1024, 512, 128) "l ssm_ba w 64 8\n" QWEN35_MOE("*")},
    /* as in files of 2025 */
    {"qwen3next-fused", "qwen3next", "llal",
     ROWS(64, 96) RMS HEADS(4, 2, 32) ROPE(8, 10000) "u full_attention_interval 3\n" SSM(4, 192, 32, 6, 3)
         EXPERTS(8, 3, 32) "u expert_shared_feed_forward_length 48\n",
     EMBED OUTPUT QWEN35_NORMS QWEN35_ATTENTION("a") "l ssm_in w 64 576\nl ssm_ba w 64 12\nl ssm_conv1d c 4 384\n"
     "l ssm_dt.bias s 6\nl ssm_a. a 6\nl ssm_norm n 32\nl ssm_out w 192 64\n" QWEN35_MOE("*")},
    {"qwen3next-mtp", "qwen3next", "llallaM",
     ROWS(64, 96) RMS HEADS(4, 2, 32) ROPE(8, 10000) "u full_attention_interval 3\nu nextn_predict_layers 1\n"
         SSM(4, 128, 32, 4, 2) EXPERTS(8, 3, 32) "u expert_shared_feed_forward_length 48\n",
     EMBED OUTPUT QWEN35_NORMS QWEN35_ATTENTION("aM") DELTA("l", 256, 128, 32) "l ssm_ba w 64 8\n" QWEN35_MOE("*")
         NEXTN("M") "M nextn.shared_head_norm n 64\n"},
    {"granitehybrid", "granitehybrid", "mamam",
     ROWS(64, 96) RMS "u attention.head_count 4\nI attention.head_count_kv 0 2 0 2 0\n" ROPE(16, 10000) GRANITE_SCALARS
     "b rope.scaling.finetuned 0\n" SSM(4, 128, 16, 8, 2),
     GRANITE_EMBED PRE_NORMS QKVO("a", 64, 32) MAMBA("m") FFN("*", 96)},
    {"granitehybrid-moe", "granitehybrid", "mama",
     ROWS(64, 32) RMS "u attention.head_count 4\nI attention.head_count_kv 0 2 0 2\n" ROPE(16, 10000) GRANITE_SCALARS
     "b rope.scaling.finetuned 1\n" SSM(4, 128, 16, 8,
                                        2) "u expert_count 8\nu expert_used_count 3\nu expert_shared_feed_forward_length 48\n",
     GRANITE_EMBED PRE_NORMS QKVO("a", 64, 32) MAMBA("m") ROUTER("*", 8) STACK("*", 8, 32) SHARED("*", 48)},
    {"nemotron_h", "nemotron_h", "mafmfa",
     "u embedding_length 64\nI feed_forward_length 0 0 96 0 96 0\n" RMS
     "u attention.head_count 4\nI attention.head_count_kv 0 2 0 0 0 2\n" HEAD_DIM(24) SSM(4, 128, 16, 8, 2),
     EMBED OUTPUT "* attn_norm n 64\n" QKVO("a", 96, 48) QKV_BIAS("a", 96, 48) "a attn_output.bias b 64\n" MAMBA(
         "m") "f ffn_up w 64 96\nf ffn_up.bias b 96\nf ffn_down w 96 64\nf ffn_down.bias b 64\n"},
    {"nemotron_h_moe", "nemotron_h_moe", "mafmfa",
     "u embedding_length 64\nI feed_forward_length 0 0 32 0 32 0\n" RMS
     "u attention.head_count 4\nI attention.head_count_kv 0 2 0 0 0 2\n" HEAD_DIM(24) SSM(4, 128, 16, 8, 2)
         EXPERTS(8, 3, 32) "u expert_shared_feed_forward_length 48\nu expert_shared_count 1\nb expert_weights_norm 1\nf "
                           "expert_weights_scale 1.7\n"
                           "u moe_latent_size 40\n",
     EMBED OUTPUT "* attn_norm n 64\n" QKVO("a", 96, 48) MAMBA("m")
         ROUTER("f", 8) "f exp_probs_b.bias b 8\nf ffn_latent_down w 64 40\nf ffn_latent_up w 40 64\nf ffn_up_exps w 40 32 8\n"
                        "f ffn_down_exps w2 32 40 8\nf ffn_up_shexp w 64 48\nf ffn_down_shexp w 48 64\n"},
    {"nemotron_h_moe-mtp", "nemotron_h_moe", "mafM",
     "u embedding_length 64\nI feed_forward_length 0 0 32 0\n" RMS "f attention.layer_norm_epsilon 1e-3\n"
     "u attention.head_count 4\nI attention.head_count_kv 0 2 0 2\n" HEAD_DIM(24) SSM(4, 128, 16, 8, 2)
         EXPERTS(8, 3, 32) "u expert_shared_feed_forward_length 48\nu expert_shared_count 1\nb expert_weights_norm 1\nf "
                           "expert_weights_scale 1.7\nu moe_latent_size 40\nu nextn_predict_layers 1\n",
     EMBED OUTPUT "* attn_norm n 64\n" QKVO("aM", 96, 48) MAMBA("m") "M post_attention_norm n 64\n"
         ROUTER("fM", 8) "fM exp_probs_b.bias b 8\nfM ffn_latent_down w 64 40\nfM ffn_latent_up w 40 64\n"
                         "fM ffn_up_exps w 40 32 8\nfM ffn_down_exps w2 32 40 8\nfM ffn_up_shexp w 64 48\n"
                         "fM ffn_down_shexp w 48 64\n" NEXTN("M") "M nextn.shared_head_norm n 64\n"},
    {"nemotron_h_moe-wide", "nemotron_h_moe", "mafm",
     "u embedding_length 64\nI feed_forward_length 0 0 32 0\n" RMS
     "u attention.head_count 4\nI attention.head_count_kv 0 2 0 0\n" HEAD_DIM(24) SSM(4, 128, 16, 8, 2)
         EXPERTS(8, 3, 32) "u expert_shared_feed_forward_length 48\nu expert_shared_count 1\n",
     EMBED OUTPUT "* attn_norm n 64\n" QKVO("a", 96, 48) MAMBA("m")
         ROUTER("f", 8) "f exp_probs_b.bias b 8\nf ffn_up_exps w 64 32 8\n"
                        "f ffn_down_exps w 32 64 8\nf ffn_up_shexp w 64 48\nf ffn_down_shexp w 48 64\n"},
    /* c, C: convolution, with a dense network and with experts; A: attention with experts, a: without */
    {"lfm2", "lfm2", "cacac",
     ROWS(64, 96) RMS "u attention.head_count 4\nI attention.head_count_kv 0 2 0 2 0\n" HEAD_DIM(16)
         ROPE(16, 10000) "u shortconv.l_cache 3\n",
     "- token_embd e0.3 64 264\n- token_embd_norm n 64\n" PRE_NORMS QKVO("a", 64, 32) QK_NORM(
         "a", 16, 16) "c shortconv.conv c 3 64\nc shortconv.in_proj w 64 192\nc shortconv.out_proj w 64 64\n" FFN("*", 96)},
    {"lfm2moe", "lfm2moe", "cACAC",
     ROWS(64, 96) RMS "u attention.head_count 4\nI attention.head_count_kv 0 2 0 2 0\n" HEAD_DIM(16)
         ROPE(16, 10000) "u shortconv.l_cache 3\n" EXPERTS(8, 3, 32) "u leading_dense_block_count 1\nu expert_gating_func 2\n",
     "- token_embd e0.3 64 264\n- token_embd_norm n 64\n" PRE_NORMS QKVO("A", 64, 32) QK_NORM(
         "A", 16, 16) "cC shortconv.conv c 3 64\ncC shortconv.in_proj w 64 192\ncC shortconv.out_proj w 64 64\n" FFN("c", 96)
         ROUTER("AC", 8) "AC exp_probs_b.bias b 8\n" STACK("AC", 8, 32)},
    /* ---- Encoders ------------------------------------------------------------------------------------- */
    {"bert", "bert", "aaa",
     ROWS(64, 96) LAYER_NORM
     "u attention.head_count 4\nb attention.causal 0\nu pooling_type 1\nu .tokenizer.ggml.token_type_count 2\n",
     ENCODER_EMBED("2") "- position_embd e0.3 64 256\n" QKVO("*", 64, 64)
         QKV_BIAS("*", 64, 64) "* attn_output.bias b 64\n" ENCODER_NORMS
                               "* ffn_up w 64 96\n* ffn_up.bias b 96\n* ffn_down w2 96 64\n* ffn_down.bias b 64\n"},
    {"bert-rank", "bert", "aa",
     ROWS(64, 96) LAYER_NORM
     "u attention.head_count 2\nb attention.causal 0\nu pooling_type 4\nu .tokenizer.ggml.token_type_count 2\n",
     ENCODER_EMBED("2") "- position_embd e0.3 64 256\n- cls w 64 64\n- cls.bias b 64\n- cls.output.weight. w 64 1\n"
                        "- cls.output.bias b 1\n" QKVO("*", 64, 64) ENCODER_NORMS "* ffn_up w 64 96\n* ffn_down w2 96 64\n"},
    {"nomic-bert", "nomic-bert", "aaa",
     ROWS(64, 96) LAYER_NORM "u attention.head_count 4\nb attention.causal 0\nu pooling_type 1\nf rope.freq_base 1000\n"
                             "u .tokenizer.ggml.token_type_count 2\n",
     ENCODER_EMBED("2") "* attn_qkv w 64 192\n* attn_output w 64 64\n" ENCODER_NORMS FFN("*", 96)},
#include "mkarch_rows.inc"
#include "mkarch_kinds.inc"
};
const size_t mkarch_n_specs = sizeof mkarch_specs / sizeof mkarch_specs[0];

/* For what gemma4 keeps, keys and values of two heads of 32 with a window and of 64 without, and gemma4-31b, of one without. */
#define ASSISTANT(pattern)                                                                                                     \
    ROWS(48, 80) GEMMA4_KEYS "u embedding_length_out 64\nu nextn_predict_layers 3\nu attention.head_count 4\n"                 \
    "B attention.sliding_window_pattern " pattern "\n"
#define ASSISTANT_TENSORS                                                                                                      \
    "- token_embd e0.3 48 264\n- output_norm n 48\n- rope_freqs F 32\n- nextn.pre_projection w 128 48\n"                     \
    "- nextn.post_projection w 48 64\n* attn_norm n 48\n* ffn_norm n 48\n* post_attention_norm n 48\n* post_ffw_norm n 48\n"  \
    "s attn_q w 48 128\ns attn_output w 128 48\ns attn_q_norm n0.6 32\nf attn_q w 48 256\nf attn_output w 256 48\n"           \
    "f attn_q_norm n0.5 64\n* ffn_gate w 48 80\n* ffn_up w 48 80\n* ffn_down w2 80 48\n* layer_output_scale o 1\n"

const mkarch_spec mkarch_drafters[] = {
    {"gemma4.assistant", "gemma4-assistant", "ssf", ASSISTANT("1 1 0") "u attention.head_count_kv 2\n", ASSISTANT_TENSORS},
    {"gemma4-31b.assistant", "gemma4-assistant", "sff", ASSISTANT("1 0 0") "I attention.head_count_kv 2 1 1\n",
     ASSISTANT_TENSORS},
};
const size_t mkarch_n_drafters = sizeof mkarch_drafters / sizeof mkarch_drafters[0];

/* ---- Decision heads: of h = 48, with 3 attention heads, for rows of 64 ------------------------------- */

#define DEC_NORM(i, part) "- dec.blk." i "." part ".weight. n 48\n- dec.blk." i "." part ".bias b 48\n"
#define DEC_PAIR(i, part, in, out)                                                                                             \
    "- dec.blk." i "." part ".weight. w " #in " " #out "\n- dec.blk." i "." part ".bias b " #out "\n"
#define DEC_ATTN(i, prefix)                                                                                                    \
    DEC_PAIR(i, prefix "_q", 48, 48) DEC_PAIR(i, prefix "_k", 48, 48) DEC_PAIR(i, prefix "_v", 48, 48)                         \
    DEC_PAIR(i, prefix "_o", 48, 48)
#define DEC_REST(i)                                                                                                            \
    DEC_NORM(i, "cross_attn_norm") DEC_ATTN(i, "cross_attn") DEC_NORM(i, "ffn_norm") DEC_PAIR(i, "ffn_up", 48, 80)             \
    DEC_PAIR(i, "ffn_down", 80, 48)
#define DEC_ROUTING(i) DEC_NORM(i, "cross_attn_norm_kv") DEC_REST(i)
#define DEC_JOINT(i) DEC_NORM(i, "attn_norm") DEC_ATTN(i, "attn") DEC_REST(i)
#define DEC_WHOLE(name, n) "- decision." name ".weight. n " #n "\n- decision." name ".bias b " #n "\n"

const mkarch_spec mkarch_deciders[] = {
    {"clef", "clef", "llalla",
     ROWS(64, 96) QWEN35_KEYS SSM(4, 512, 128, 4, 2) LAYER_NORM "u decision.routing_block_count 2\nu decision.block_count 2\n"
     "u decision.head_count 3\ns decision.type clef\nf decision.temperature.choice 1.5\n"
     "f decision.temperature.choice.3_5 0.75\n",
     EMBED OUTPUT QWEN35_NORMS QWEN35_ATTENTION("a") DELTA("l", 1024, 512, 128) QWEN35_GATES("l") FFN("*", 96)
     DEC_ROUTING("0") DEC_ROUTING("1") DEC_JOINT("2") DEC_JOINT("3") DEC_WHOLE("hidden_norm", 64)
     DEC_WHOLE("option_summary_norm", 48) DEC_WHOLE("field_norm", 48) DEC_WHOLE("option_norm", 48)
     "- decision.proj_memory.weight. w 64 48\n- decision.proj_question.weight. w 64 48\n"
     "- decision.proj_option_question.weight. w 64 48\n- decision.proj_global.weight. w 64 48\n"
     "- decision.proj_option_context.weight. w 64 48\n- decision.proj_option_lexical.weight. w 64 48\n"
     "- decision.scales. o2 3\n- token_types e 48 3\n- decision.scorer.weight. w 192 48\n- decision.scorer.bias b 48\n"
     "- decision.scorer_out.weight. w 48 1\n- decision.scorer_out.bias b 1\n"},
    /* the last two blocks are the head */
    {"modern-bert-decides", "modern-bert", "fssdd",
     "u embedding_length 64\nI feed_forward_length 96 96 96 80 80\n" LAYER_NORM HEADS(4, 4, 16) ROPE(16, 10000)
     "b attention.causal 0\nu attention.sliding_window 16\nu decision.block_count 2\nu decision.max_head_tokens 40\n"
     "s decision.type laya\nu .tokenizer.ggml.mask_token_id 1\nu .tokenizer.ggml.seperator_token_id 2\n"
     "f decision.temperature.noul 2\n",
     "- token_embd e 64 264\n- token_embd_norm n 64\n- output_norm n 64\n- token_types e 64 3\n- cls w 64 64\n"
     "- cls.bias b 64\n- cls.norm.weight. n 64\n- cls.norm.bias b 64\n- cls.output.weight. w 64 1\n- cls.output.bias b 1\n"
     "sd attn_norm n 64\n* ffn_norm n 64\n* attn_qkv w 64 192\n* attn_output w 64 64\nfs ffn_up w 64 192\n"
     "fs ffn_down w2 96 64\nd attn_norm.bias b 64\nd attn_qkv.bias b 192\nd attn_output.bias b 64\nd ffn_norm.bias b 64\n"
     "d ffn_up w 64 80\nd ffn_up.bias b 80\nd ffn_down w2 80 64\nd ffn_down.bias b 64\n"},
};
const size_t mkarch_n_deciders = sizeof mkarch_deciders / sizeof mkarch_deciders[0];

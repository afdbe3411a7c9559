/* mkarch_shapes.c - the full shapes of published models, for load times, memory and speed with random quantized weights.
 *
 * What a line means: mkarch.h. The sizes are those of the published configurations; chat templates, tokenizers and MTP
 * blocks are not copied.
 */
#include "mkarch.h"

#define RMS_6 "f attention.layer_norm_rms_epsilon 1e-6\n"
#define X3(letters) letters letters letters
#define X4(letters) letters letters letters letters
#define X6(letters) X3(letters) X3(letters)
#define X8(letters) X4(letters) X4(letters)
#define X10(letters) X6(letters) X4(letters)

#define QWEN35_KEYS                                                                                                            \
    RMS_6 "u attention.key_length 256\nu attention.value_length 256\nu rope.dimension_count 64\nf rope.freq_base 1e7\n"        \
          "I rope.dimension_sections 11 11 10 0\nu full_attention_interval 4\nu ssm.conv_kernel 4\nu ssm.inner_size 4096\n"    \
          "u ssm.state_size 128\nu ssm.time_step_rank 32\nu ssm.group_count 16\n"
/* rows have `e`; recurrent layers l, layers with attention a: q and gate of `q`, keys and values of `k` */
#define QWEN35_MIXERS(e, q, k, o)                                                                                              \
    "* attn_norm n " #e "\n* post_attention_norm n " #e "\n"                                                                   \
    "a attn_q w " #e " " #q "\na attn_k w " #e " " #k "\na attn_v w " #e " " #k "\na attn_output w " #o " " #e "\n"            \
    "a attn_q_norm n 256\na attn_k_norm n 256\n"                                                                               \
    "l attn_qkv w " #e " 8192\nl attn_gate w " #e " 4096\nl ssm_conv1d c 4 8192\nl ssm_dt.bias s 32\nl ssm_a. a 32\n"          \
    "l ssm_norm n 128\nl ssm_out w 4096 " #e "\nl ssm_alpha w " #e " 32\nl ssm_beta w " #e " 32\n"

/* Kimi Delta Attention of 32 heads of 128, and latent attention of as many; e: the width of rows, as a string */
#define KDA_32(set, e)                                                                                                         \
    set " attn_q w " e " 4096\n" set " attn_k w " e " 4096\n" set " attn_v w " e " 4096\n" set                                 \
        " ssm_conv1d_q c 4 1 4096\n" set " ssm_conv1d_k c 4 1 4096\n" set " ssm_conv1d_v c 4 1 4096\n" set                     \
        " ssm_beta w " e " 32\n" set " ssm_dt.bias s 4096\n" set " ssm_norm n 128\n" set " attn_output w 4096 " e "\n"
#define LATENT_32(set, e)                                                                                                      \
    set " attn_kv_a_mqa w " e " 576\n" set " attn_kv_a_norm n 512\n" set " attn_k_b w 128 512 32\n" set                       \
        " attn_v_b w 512 128 32\n" set " attn_output w 4096 " e "\n"

const mkarch_spec mkarch_shapes[] = {
    {"gpt-oss-20b", "gpt-oss", X6("aaaa"),
     "u embedding_length 2880\nu feed_forward_length 2880\nf attention.layer_norm_rms_epsilon 1e-5\n"
     "u attention.head_count 64\nu attention.head_count_kv 8\nu attention.key_length 64\nu attention.value_length 64\n"
     "u rope.dimension_count 64\nf rope.freq_base 150000\ns rope.scaling.type yarn\nf rope.scaling.factor 32\n"
     "u rope.scaling.original_context_length 4096\nu attention.sliding_window 128\n"
     "u expert_count 32\nu expert_used_count 4\nu expert_feed_forward_length 2880\n",
     "- token_embd e 2880 201088\n- output_norm n 2880\n- output w2 2880 201088\n"
     "* attn_norm n 2880\n* post_attention_norm n 2880\n"
     "* attn_q w 2880 4096\n* attn_k w 2880 512\n* attn_v w 2880 512\n* attn_output w 4096 2880\n"
     "* attn_q.bias b 4096\n* attn_k.bias b 512\n* attn_v.bias b 512\n* attn_output.bias b 2880\n* attn_sinks s 64\n"
     "* ffn_gate_inp w 2880 32\n* ffn_gate_inp.bias b 32\n"
     "* ffn_gate_exps x 2880 2880 32\n* ffn_up_exps x 2880 2880 32\n* ffn_down_exps x 2880 2880 32\n"
     "* ffn_gate_exps.bias b 2880 32\n* ffn_up_exps.bias b 2880 32\n* ffn_down_exps.bias b 2880 32\n"},
    /* windowed layers s and full ones f; S and F the last 18, which have no keys of their own */
    {"gemma4-e4b", "gemma4", X4("sssssf") X3("SSSSSF"),
     "u embedding_length 2560\nu feed_forward_length 10240\n" RMS_6
     "u attention.head_count 8\nu attention.head_count_kv 2\nu attention.key_length 512\nu attention.value_length 512\n"
     "u attention.key_length_swa 256\nu attention.value_length_swa 256\nu rope.dimension_count 512\nf rope.freq_base 1e6\n"
     "u rope.dimension_count_swa 256\nf rope.freq_base_swa 10000\nu attention.sliding_window 512\n"
     "f final_logit_softcapping 30\nu attention.shared_kv_layers 18\nu embedding_length_per_layer_input 256\n"
     "B attention.sliding_window_pattern" X6(" 1 1 1 1 1 0") " 1 1 1 1 1 0\n",
     "- token_embd e0.1 2560 262144\n- output_norm n 2560\n- rope_freqs F 256\n- per_layer_token_embd e0.25 10752 262144\n"
     "- per_layer_model_proj w 2560 10752\n- per_layer_proj_norm n 256\n"
     "* attn_norm n 2560\n* ffn_norm n 2560\n* post_attention_norm n 2560\n* post_ffw_norm n 2560\n"
     "sS attn_q w 2560 2048\ns attn_k w 2560 512\ns attn_v w 2560 512\nsS attn_output w 2048 2560\n"
     "fF attn_q w 2560 4096\nf attn_k w 2560 1024\nf attn_v w 2560 1024\nfF attn_output w 4096 2560\n"
     "sS attn_q_norm n0.6 256\ns attn_k_norm n0.6 256\nfF attn_q_norm n0.5 512\nf attn_k_norm n0.5 512\n"
     "* ffn_gate w 2560 10240\n* ffn_up w 2560 10240\n* ffn_down w2 10240 2560\n"
     "* inp_gate w 2560 256\n* proj w 256 2560\n* post_norm n 2560\n* layer_output_scale o 1\n"},
    {"qwen3.5-4b", "qwen35", X8("llla"),
     "u embedding_length 2560\nu feed_forward_length 9216\nu attention.head_count 16\nu attention.head_count_kv "
     "4\n" QWEN35_KEYS,
     "- token_embd e0.3 2560 248320\n- output_norm n 2560\n" QWEN35_MIXERS(
         2560, 8192, 1024, 4096) "* ffn_gate w 2560 9216\n* ffn_up w 2560 9216\n* ffn_down w2 9216 2560\n"},
    {"qwen3.5-35b-a3b", "qwen35moe", X10("llla"),
     "u embedding_length 2048\nu attention.head_count 16\nu attention.head_count_kv 2\nu expert_count 256\n"
     "u expert_used_count 8\nu expert_feed_forward_length 512\nu expert_shared_feed_forward_length 512\n" QWEN35_KEYS,
     "- token_embd e 2048 248320\n- output_norm n 2048\n- output w2 2048 248320\n" QWEN35_MIXERS(
         2048, 8192, 512, 4096) "* ffn_gate_inp w 2048 256\n* ffn_gate_exps w 2048 512 256\n* ffn_up_exps w 2048 512 256\n"
                                "* ffn_down_exps w2 512 2048 256\n* ffn_gate_shexp w 2048 512\n* ffn_up_shexp w 2048 512\n"
                                "* ffn_down_shexp w2 512 2048\n* ffn_gate_inp_shexp w2 2048\n"},
    /* one dense layer d, then experts m */
    {"deepseek-v2-lite", "deepseek2", "d" X6("mmmm") "mm",
     "u embedding_length 2048\nu feed_forward_length 10944\n" RMS_6
     "u attention.head_count 16\nu attention.head_count_kv 1\nu attention.kv_lora_rank 512\nu attention.key_length 576\n"
     "u attention.value_length 512\nu attention.key_length_mla 192\nu attention.value_length_mla 128\n"
     "u rope.dimension_count 64\nf rope.freq_base 10000\ns rope.scaling.type yarn\nf rope.scaling.factor 40\n"
     "u rope.scaling.original_context_length 4096\nf rope.scaling.yarn_log_multiplier 0.0707\n"
     "u expert_count 64\nu expert_used_count 6\nu expert_feed_forward_length 1408\nu expert_shared_count 2\n"
     "u leading_dense_block_count 1\nf expert_weights_scale 1\n",
     "- token_embd e 2048 102400\n- output_norm n 2048\n- output w2 2048 102400\n* attn_norm n 2048\n* ffn_norm n 2048\n"
     "* attn_q w 2048 3072\n* attn_kv_a_mqa w 2048 576\n* attn_kv_a_norm n 512\n* attn_k_b w 128 512 16\n"
     "* attn_v_b w 512 128 16\n* attn_output w 2048 2048\n"
     "d ffn_gate w 2048 10944\nd ffn_up w 2048 10944\nd ffn_down w2 10944 2048\nm ffn_gate_inp w 2048 64\n"
     "m ffn_gate_exps w 2048 1408 64\nm ffn_up_exps w 2048 1408 64\nm ffn_down_exps w2 1408 2048 64\n"
     "m ffn_gate_shexp w 2048 2816\nm ffn_up_shexp w 2048 2816\nm ffn_down_shexp w2 2816 2048\n"},
    {"deepseek-v3", "deepseek2", "ddd" X10("mmmm") X6("mmm"),
     "u embedding_length 7168\nu feed_forward_length 18432\n" RMS_6
     "u attention.head_count 128\nu attention.head_count_kv 1\nu attention.q_lora_rank 1536\nu attention.kv_lora_rank 512\n"
     "u attention.key_length 576\nu attention.value_length 512\nu attention.key_length_mla 192\n"
     "u attention.value_length_mla 128\nu rope.dimension_count 64\nf rope.freq_base 10000\ns rope.scaling.type yarn\n"
     "f rope.scaling.factor 40\nu rope.scaling.original_context_length 4096\nf rope.scaling.yarn_log_multiplier 0.1\n"
     "u expert_count 256\nu expert_used_count 8\nu expert_feed_forward_length 2048\nu expert_shared_count 1\n"
     "u leading_dense_block_count 3\nf expert_weights_scale 2.5\nb expert_weights_norm 1\nu expert_gating_func 2\n"
     "u expert_group_count 8\nu expert_group_used_count 4\n",
     "- token_embd e 7168 129280\n- output_norm n 7168\n- output w2 7168 129280\n* attn_norm n 7168\n* ffn_norm n 7168\n"
     "* attn_q_a w 7168 1536\n* attn_q_a_norm n 1536\n* attn_q_b w 1536 24576\n* attn_kv_a_mqa w 7168 576\n"
     "* attn_kv_a_norm n 512\n* attn_k_b w 128 512 128\n* attn_v_b w 512 128 128\n* attn_output w 16384 7168\n"
     "d ffn_gate w 7168 18432\nd ffn_up w 7168 18432\nd ffn_down w2 18432 7168\nm ffn_gate_inp w 7168 256\n"
     "m exp_probs_b.bias b0.1 256\n"
     "m ffn_gate_exps w 7168 2048 256\nm ffn_up_exps w 7168 2048 256\nm ffn_down_exps w2 2048 7168 256\n"
     "m ffn_gate_shexp w 7168 2048\nm ffn_up_shexp w 7168 2048\nm ffn_down_shexp w2 2048 7168\n"},
    {"falcon-mamba-7b", "mamba", X8("mmmmmmmm"),
     "u embedding_length 4096\nu feed_forward_length 0\nu attention.head_count 0\nf attention.layer_norm_rms_epsilon 1e-5\n"
     "u ssm.conv_kernel 4\nu ssm.inner_size 8192\nu ssm.state_size 16\nu ssm.time_step_rank 256\nb ssm.dt_b_c_rms 1\n",
     "- token_embd e 4096 65024\n- output_norm n 4096\n- output w2 4096 65024\n* attn_norm n 4096\n"
     "* ssm_in w 4096 16384\n* ssm_conv1d c 4 8192\n* ssm_conv1d.bias b 8192\n* ssm_x w 8192 288\n* ssm_dt w 256 8192\n"
     "* ssm_dt.bias s 8192\n* ssm_a. a 16 8192\n* ssm_d. s 8192\n* ssm_out w 8192 4096\n"},
    {"rwkv7-2.9b", "rwkv7", "f" X8("mmm") "mmmmmmm",
     "u embedding_length 2560\nu feed_forward_length 10240\nu attention.head_count 0\nf attention.layer_norm_epsilon 1e-5\n"
     "u wkv.head_size 64\nu attention.decay_lora_rank 96\nu attention.iclr_lora_rank 96\n"
     "u attention.value_residual_mix_lora_rank 64\nu attention.gate_lora_rank 320\n",
     "- token_embd e 2560 65536\n- token_embd_norm n 2560\n- token_embd_norm.bias b 2560\n- output_norm n 2560\n"
     "- output_norm.bias b 2560\n- output w2 2560 65536\n* attn_norm n 2560\n* attn_norm.bias b 2560\n* attn_norm_2 n 2560\n"
     "* attn_norm_2.bias b 2560\n* time_mix_lerp_fused o0.5 2560 1 1 6\n* time_mix_w0 s 2560\n* time_mix_w1 b0.1 2560 96\n"
     "* time_mix_w2 b0.3 96 2560\n* time_mix_a0 s 2560\n* time_mix_a1 b0.1 2560 96\n* time_mix_a2 b0.3 96 2560\n"
     "* time_mix_v0 s 2560\nf time_mix_v1 b0.1 2560 96\nf time_mix_v2 b0.3 96 2560\nm time_mix_v1 b0.1 2560 64\n"
     "m time_mix_v2 b0.3 64 2560\n* time_mix_g1 b0.1 2560 320\n* time_mix_g2 b0.3 320 2560\n* time_mix_k_k o 2560\n"
     "* time_mix_k_a o 2560\n* time_mix_r_k b 2560\n* time_mix_receptance w 2560 2560\n* time_mix_key w 2560 2560\n"
     "* time_mix_value w 2560 2560\n* time_mix_output w 2560 2560\n* time_mix_ln n 2560\n* time_mix_ln.bias b 2560\n"
     "* channel_mix_lerp_k o0.5 2560\n* channel_mix_key w 2560 10240\n* channel_mix_value w2 10240 2560\n"},
    /* ---- The census of October 2026: the most wanted of what came late. Kinds of layers come early, so that the first few
     * show all of them: real files of DeepSeek V4, GLM-5 and MiniMax-M3 have three dense or hashed layers before the others. */
    /* c compresses by 4 and chooses, h by 128 */
    {"deepseek-v4-flash", "deepseek4", X6("chchch") "chchchc",
     "u embedding_length 4096\nu feed_forward_length 2048\n" RMS_6
     "u attention.head_count 64\nu attention.head_count_kv 1\nu attention.key_length 512\nu attention.value_length 512\n"
     "u rope.dimension_count 64\nf rope.freq_base 10000\ns rope.scaling.type yarn\nf rope.scaling.factor 16\n"
     "u rope.scaling.original_context_length 65536\nu attention.q_lora_rank 1024\nu attention.sliding_window 128\n"
     "u attention.output_group_count 8\nu attention.output_lora_rank 1024\nf attention.compress_rope_freq_base 160000\n"
     "I attention.compress_ratios" X6(" 4 128 4 128 4 128") " 4 128 4 128 4 128 4\n"
     "u attention.indexer.head_count 64\nu attention.indexer.key_length 128\nu attention.indexer.top_k 512\n"
     "u hyper_connection.count 4\nu hyper_connection.sinkhorn_iterations 20\nf hyper_connection.epsilon 1e-6\n"
     "u hash_layer_count 0\nu expert_count 256\nu expert_used_count 6\nu expert_feed_forward_length 2048\n"
     "u expert_shared_count 1\nf expert_weights_scale 1.5\nb expert_weights_norm 1\nu expert_gating_func 4\n"
     "F swiglu_clamp_exp" X6(" 10 10 10 10 10 10") " 10 10 10 10 10 10 10\n"
     "F swiglu_clamp_shexp" X6(" 10 10 10 10 10 10") " 10 10 10 10 10 10 10\n",
     "- token_embd e 4096 129280\n- output_norm n 4096\n- output w2 4096 129280\n"
     "- output_hc_fn b0.01 16384 4\n- output_hc_base b 4\n- output_hc_scale o 1\n* attn_norm n 4096\n* ffn_norm n 4096\n"
     "* hc_attn_fn b0.01 16384 24\n* hc_attn_base b 24\n* hc_attn_scale o 3\n* hc_ffn_fn b0.01 16384 24\n* hc_ffn_base b 24\n"
     "* hc_ffn_scale o 3\n* attn_q_a w 4096 1024\n* attn_q_a_norm n 1024\n* attn_q_b w 1024 32768\n* attn_kv w 4096 512\n"
     "* attn_kv_a_norm n 512\n* attn_sinks s 64\n* attn_output_a w 4096 1024 8\n* attn_output_b w2 8192 4096\n"
     "h attn_compressor_kv w 4096 512\nh attn_compressor_gate w 4096 512\nh attn_compressor_ape s 512 128\n"
     "c attn_compressor_kv w 4096 1024\nc attn_compressor_gate w 4096 1024\nc attn_compressor_ape s 1024 4\n"
     "* attn_compressor_norm n 512\nc indexer_compressor_kv w 4096 256\nc indexer_compressor_gate w 4096 256\n"
     "c indexer_compressor_ape s 256 4\nc indexer_compressor_norm n 128\nc indexer.attn_q_b.weight w 1024 8192\n"
     "c indexer.proj.weight w 4096 64\n* ffn_gate_inp w 4096 256\n* exp_probs_b.bias b0.1 256\n"
     "* ffn_gate_exps w 4096 2048 256\n* ffn_up_exps w 4096 2048 256\n* ffn_down_exps w2 2048 4096 256\n"
     "* ffn_gate_shexp w 4096 2048\n* ffn_up_shexp w 4096 2048\n* ffn_down_shexp w2 2048 4096\n"},
    {"glm-5", "glm-dsa", "d" X10("mmmmmm") X10("m") "mmmmmmm",
     "u embedding_length 6144\nu feed_forward_length 12288\nf attention.layer_norm_rms_epsilon 1e-5\n"
     "u attention.head_count 64\nu attention.head_count_kv 1\nu attention.q_lora_rank 2048\nu attention.kv_lora_rank 512\n"
     "u attention.key_length 576\nu attention.value_length 512\nu attention.key_length_mla 256\n"
     "u attention.value_length_mla 256\nu rope.dimension_count 64\nf rope.freq_base 1000000\n"
     "u attention.indexer.head_count 32\nu attention.indexer.key_length 128\nu attention.indexer.top_k 2048\n"
     "u expert_count 256\nu expert_used_count 8\nu expert_feed_forward_length 2048\nu expert_shared_count 1\n"
     "u leading_dense_block_count 1\nf expert_weights_scale 2.5\nb expert_weights_norm 1\nu expert_gating_func 2\n",
     "- token_embd e 6144 154880\n- output_norm n 6144\n- output w2 6144 154880\n* attn_norm n 6144\n* ffn_norm n 6144\n"
     "* attn_q_a w 6144 2048\n* attn_q_a_norm n 2048\n* attn_q_b w 2048 16384\n* attn_kv_a_mqa w 6144 576\n"
     "* attn_kv_a_norm n 512\n* attn_k_b w 192 512 64\n* attn_v_b w 512 256 64\n* attn_output w 16384 6144\n"
     "* indexer.attn_q_b.weight w 2048 4096\n* indexer.attn_k.weight w 6144 128\n* indexer.k_norm.weight n 128\n"
     "* indexer.k_norm.bias b 128\n* indexer.proj.weight w 6144 32\n"
     "d ffn_gate w 6144 12288\nd ffn_up w 6144 12288\nd ffn_down w2 12288 6144\nm ffn_gate_inp w 6144 256\n"
     "m exp_probs_b.bias b0.1 256\nm ffn_gate_exps w 6144 2048 256\nm ffn_up_exps w 6144 2048 256\n"
     "m ffn_down_exps w2 2048 6144 256\nm ffn_gate_shexp w 6144 2048\nm ffn_up_shexp w 6144 2048\n"
     "m ffn_down_shexp w2 2048 6144\n"},
    {"kimi-linear-48b", "kimi-linear", "dkka" X4("kkka") "kkkakka",
     "u embedding_length 2304\nu feed_forward_length 9216\nf attention.layer_norm_rms_epsilon 1e-5\n"
     "u attention.head_count 32\nI attention.head_count_kv 0 0 0 1" X4(" 0 0 0 1") " 0 0 0 1 0 0 1\n"
     "u attention.kv_lora_rank 512\nu attention.key_length 576\nu attention.value_length 512\n"
     "u attention.key_length_mla 192\nu attention.value_length_mla 128\nu rope.dimension_count 64\nu ssm.conv_kernel 4\n"
     "u kda.head_dim 128\nu expert_count 256\nu expert_used_count 8\nu expert_feed_forward_length 1024\n"
     "u expert_shared_count 1\nu leading_dense_block_count 1\nf expert_weights_scale 2.446\nb expert_weights_norm 1\n"
     "u expert_gating_func 2\n",
     "- token_embd e 2304 163840\n- output_norm n 2304\n- output w2 2304 163840\n* attn_norm n 2304\n* ffn_norm n 2304\n"
     KDA_32("dk", "2304") "dk ssm_f_a w 2304 128\ndk ssm_f_b w 128 4096\ndk ssm_g_a w 2304 128\ndk ssm_g_b w 128 4096\n"
     "dk ssm_a. a 1 32\na attn_q w 2304 6144\n" LATENT_32("a", "2304") "d ffn_gate w 2304 9216\nd ffn_up w 2304 9216\n"
     "d ffn_down w2 9216 2304\nka ffn_gate_inp w 2304 256\nka exp_probs_b.bias b0.1 256\nka ffn_gate_exps w 2304 1024 256\n"
     "ka ffn_up_exps w 2304 1024 256\nka ffn_down_exps w2 1024 2304 256\nka ffn_gate_shexp w 2304 1024\n"
     "ka ffn_up_shexp w 2304 1024\nka ffn_down_shexp w2 1024 2304\n"},
    {"ling-3-flash", "bailingmoe3", "ddkkka" X6("kkkkka"),
     "u embedding_length 2560\nu feed_forward_length 6144\n" RMS_6
     "u attention.head_count 32\nI attention.head_count_kv 0 0 0 0 0 1" X6(" 0 0 0 0 0 1") "\n"
     "u attention.kv_lora_rank 512\nu attention.key_length 576\nu attention.value_length 512\n"
     "u attention.key_length_mla 192\nu attention.value_length_mla 128\nu rope.dimension_count 64\nf rope.freq_base 6e6\n"
     "u ssm.conv_kernel 4\nu kda.head_dim 128\nf kda.gate_lower_bound -5\nb kda.safe_gate 1\nu expert_count 512\n"
     "u expert_used_count 8\nu expert_feed_forward_length 768\nu expert_shared_count 1\nu leading_dense_block_count 2\n"
     "f expert_weights_scale 2.5\nb expert_weights_norm 1\nu expert_gating_func 2\nu expert_group_count 8\n"
     "u expert_group_used_count 4\n",
     "- token_embd e 2560 157184\n- output_norm n 2560\n- output w2 2560 157184\n* attn_norm n 2560\n* ffn_norm n 2560\n"
     KDA_32("dk", "2560") "dk ssm_f_a w 2560 4096\ndk ssm_g_a w 2560 4096\ndk ssm_a. o 1 32\na attn_q w 2560 6144\n"
     LATENT_32("a", "2560") "a attn_gate w 2560 32\nd ffn_gate w 2560 6144\nd ffn_up w 2560 6144\nd ffn_down w2 6144 2560\n"
     "ka ffn_gate_inp w 2560 512\nka exp_probs_b.bias b0.1 512\nka ffn_gate_exps w 2560 768 512\n"
     "ka ffn_up_exps w 2560 768 512\nka ffn_down_exps w2 768 2560 512\nka ffn_gate_shexp w 2560 768\n"
     "ka ffn_up_shexp w 2560 768\nka ffn_down_shexp w2 768 2560\n"},
    {"minimax-m3", "minimax-m3", "d" X10("mmmmm") "mmmmmmmmm",
     "u embedding_length 6144\nu feed_forward_length 12288\n" RMS_6
     "u attention.head_count 64\nu attention.head_count_kv 4\nu attention.key_length 128\nu attention.value_length 128\n"
     "u rope.dimension_count 64\nf rope.freq_base 5e6\nu attention.indexer.head_count 4\nu attention.indexer.key_length 128\n"
     "u attention.indexer.block_size 128\nu attention.indexer.top_k 16\nu attention.indexer.local_blocks 1\n"
     "u expert_count 128\nu expert_used_count 4\nu expert_feed_forward_length 3072\nu expert_shared_count 1\n"
     "u leading_dense_block_count 1\nf expert_weights_scale 2\nb expert_weights_norm 1\nu expert_gating_func 2\n",
     "- token_embd e 6144 200064\n- output_norm n 6144\n- output w2 6144 200064\n* attn_norm n 6144\n* ffn_norm n 6144\n"
     "* attn_q w 6144 8192\n* attn_k w 6144 512\n* attn_v w 6144 512\n* attn_output w 8192 6144\n* attn_q_norm n 128\n"
     "* attn_k_norm n 128\nm indexer.q_proj.weight w 6144 512\nm indexer.k_proj.weight w 6144 128\n"
     "m indexer.q_norm.weight n 128\nm indexer.k_norm.weight n 128\nd ffn_gate w 6144 12288\nd ffn_up w 6144 12288\n"
     "d ffn_down w2 12288 6144\nm ffn_gate_inp w 6144 128\nm exp_probs_b.bias b0.1 128\nm ffn_gate_exps w 6144 3072 128\n"
     "m ffn_up_exps w 6144 3072 128\nm ffn_down_exps w2 3072 6144 128\nm ffn_gate_shexp w 6144 3072\n"
     "m ffn_up_shexp w 6144 3072\nm ffn_down_shexp w2 3072 6144\n"},
    {"qwen3-vl-30b-a3b", "qwen3vlmoe", X8("mmmmmm"),
     "u embedding_length 2048\nu feed_forward_length 6144\n" RMS_6
     "u attention.head_count 32\nu attention.head_count_kv 4\nu attention.key_length 128\nu attention.value_length 128\n"
     "u rope.dimension_count 128\nf rope.freq_base 5e6\nI rope.dimension_sections 24 20 20 0\nu expert_count 128\n"
     "u expert_used_count 8\nu expert_feed_forward_length 768\n",
     "- token_embd e 2048 151936\n- output_norm n 2048\n- output w2 2048 151936\n* attn_norm n 2048\n* ffn_norm n 2048\n"
     "* attn_q w 2048 4096\n* attn_k w 2048 512\n* attn_v w 2048 512\n* attn_output w 4096 2048\n* attn_q_norm n 128\n"
     "* attn_k_norm n 128\n* ffn_gate_inp w 2048 128\n* ffn_gate_exps w 2048 768 128\n* ffn_up_exps w 2048 768 128\n"
     "* ffn_down_exps w2 768 2048 128\n"},
    {"mistral-small-4", "mistral4", X6("mmmmmm"),
     "u embedding_length 4096\nu feed_forward_length 12288\n" RMS_6
     "u attention.head_count 32\nu attention.head_count_kv 1\nu attention.q_lora_rank 1024\nu attention.kv_lora_rank 256\n"
     "u attention.key_length 320\nu attention.value_length 256\nu attention.key_length_mla 128\n"
     "u attention.value_length_mla 128\nu rope.dimension_count 64\nf rope.freq_base 10000\ns rope.scaling.type yarn\n"
     "f rope.scaling.factor 128\nu rope.scaling.original_context_length 8192\nf rope.scaling.yarn_log_multiplier 0.1\n"
     "f attention.temperature_scale 0.1\nu attention.temperature_length 8192\nu expert_count 128\nu expert_used_count 4\n"
     "u expert_feed_forward_length 2048\nu expert_shared_count 1\nu leading_dense_block_count 0\nb expert_weights_norm 1\n"
     "u expert_gating_func 1\n",
     "- token_embd e 4096 131072\n- output_norm n 4096\n- output w2 4096 131072\n* attn_norm n 4096\n* ffn_norm n 4096\n"
     "* attn_q_a w 4096 1024\n* attn_q_a_norm n 1024\n* attn_q_b w 1024 4096\n* attn_kv_a_mqa w 4096 320\n"
     "* attn_kv_a_norm n 256\n* attn_k_b w 64 256 32\n* attn_v_b w 256 128 32\n* attn_output w 4096 4096\n"
     "* ffn_gate_inp w 4096 128\n* ffn_gate_exps w 4096 2048 128\n* ffn_up_exps w 4096 2048 128\n"
     "* ffn_down_exps w2 2048 4096 128\n* ffn_gate_shexp w 4096 2048\n* ffn_up_shexp w 4096 2048\n"
     "* ffn_down_shexp w2 2048 4096\n"},
    {"hunyuan-3", "hy_v3", "d" X8("mmmmmmmmm") "mmmmmmm",
     "u embedding_length 4096\nu feed_forward_length 13312\nf attention.layer_norm_rms_epsilon 1e-5\n"
     "u attention.head_count 64\nu attention.head_count_kv 8\nu attention.key_length 128\nu attention.value_length 128\n"
     "u rope.dimension_count 128\nf rope.freq_base 10000\nu expert_count 192\nu expert_used_count 8\n"
     "u expert_feed_forward_length 1536\nu expert_shared_feed_forward_length 1536\nu expert_shared_count 1\n"
     "u leading_dense_block_count 1\nf expert_weights_scale 2.826\nb expert_weights_norm 1\nu expert_gating_func 2\n",
     "- token_embd e 4096 120832\n- output_norm n 4096\n- output w2 4096 120832\n* attn_norm n 4096\n* ffn_norm n 4096\n"
     "* attn_q w 4096 8192\n* attn_k w 4096 1024\n* attn_v w 4096 1024\n* attn_output w 8192 4096\n* attn_q_norm n 128\n"
     "* attn_k_norm n 128\nd ffn_gate w 4096 13312\nd ffn_up w 4096 13312\nd ffn_down w2 13312 4096\n"
     "m ffn_gate_inp w 4096 192\nm exp_probs_b. b0.1 192\nm ffn_gate_exps w 4096 1536 192\nm ffn_up_exps w 4096 1536 192\n"
     "m ffn_down_exps w2 1536 4096 192\nm ffn_gate_shexp w 4096 1536\nm ffn_up_shexp w 4096 1536\n"
     "m ffn_down_shexp w2 1536 4096\n"},
    /* f: layers without a window, which do not rotate */
    {"trinity-mini", "afmoe", "dmmfmmmf" X6("mmmf"),
     "u embedding_length 2048\nu feed_forward_length 6144\nf attention.layer_norm_rms_epsilon 1e-5\n"
     "u attention.head_count 32\nu attention.head_count_kv 4\nu attention.key_length 128\nu attention.value_length 128\n"
     "u rope.dimension_count 128\nf rope.freq_base 10000\nu attention.sliding_window 2048\nu expert_count 128\n"
     "u expert_used_count 8\nu expert_feed_forward_length 1024\nu expert_shared_count 1\nu leading_dense_block_count 1\n"
     "f expert_weights_scale 2.826\nb expert_weights_norm 1\nu expert_gating_func 2\n",
     "- token_embd e0.1 2048 200192\n- output_norm n 2048\n- output w2 2048 200192\n* attn_norm n 2048\n* ffn_norm n 2048\n"
     "* post_attention_norm n 2048\n* post_ffw_norm n 2048\n* attn_q w 2048 4096\n* attn_k w 2048 512\n* attn_v w 2048 512\n"
     "* attn_output w 4096 2048\n* attn_gate w 2048 4096\n* attn_q_norm n 128\n* attn_k_norm n 128\n"
     "d ffn_gate w 2048 6144\nd ffn_up w 2048 6144\nd ffn_down w2 6144 2048\nmf ffn_gate_inp w 2048 128\n"
     "mf exp_probs_b.bias b0.1 128\nmf ffn_gate_exps w 2048 1024 128\nmf ffn_up_exps w 2048 1024 128\n"
     "mf ffn_down_exps w2 1024 2048 128\nmf ffn_gate_shexp w 2048 1024\nmf ffn_up_shexp w 2048 1024\n"
     "mf ffn_down_shexp w2 1024 2048\n"},
    {"falcon-h1-7b", "falcon-h1", X4("bbbbbbbbbbb"),
     "u embedding_length 3072\nu feed_forward_length 12288\nf attention.layer_norm_rms_epsilon 1e-5\n"
     "u attention.head_count 12\nu attention.head_count_kv 2\nu attention.key_length 128\nu attention.value_length 128\n"
     "u rope.dimension_count 128\nf rope.freq_base 1e11\nu ssm.conv_kernel 4\nu ssm.inner_size 3072\nu ssm.state_size 256\n"
     "u ssm.time_step_rank 24\nu ssm.group_count 1\n",
     "- token_embd e 3072 130048\n- output_norm n 3072\n- output w2 3072 130048\n* attn_norm n 3072\n* ffn_norm. n 3072\n"
     "* attn_q w 3072 1536\n* attn_k w 3072 256\n* attn_v w 3072 256\n* attn_output w 1536 3072\n* ssm_in w 3072 6680\n"
     "* ssm_conv1d c 4 3584\n* ssm_conv1d.bias b 3584\n* ssm_dt.bias s 24\n* ssm_a. a 1 24\n* ssm_d. s 1 24\n"
     "* ssm_out w 3072 3072\n* ffn_gate w 3072 12288\n* ffn_up w 3072 12288\n* ffn_down w2 12288 3072\n"},
};
const size_t mkarch_n_shapes = sizeof mkarch_shapes / sizeof mkarch_shapes[0];

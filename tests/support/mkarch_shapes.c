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
/* of rows of `e`; recurrent layers l, layers with attention a: q and gate of `q`, keys and values of `k` */
#define QWEN35_MIXERS(e, q, k, o)                                                                                              \
    "* attn_norm n " #e "\n* post_attention_norm n " #e "\n"                                                                   \
    "a attn_q w " #e " " #q "\na attn_k w " #e " " #k "\na attn_v w " #e " " #k "\na attn_output w " #o " " #e "\n"            \
    "a attn_q_norm n 256\na attn_k_norm n 256\n"                                                                               \
    "l attn_qkv w " #e " 8192\nl attn_gate w " #e " 4096\nl ssm_conv1d c 4 8192\nl ssm_dt.bias s 32\nl ssm_a. a 32\n"          \
    "l ssm_norm n 128\nl ssm_out w 4096 " #e "\nl ssm_alpha w " #e " 32\nl ssm_beta w " #e " 32\n"

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
};
const size_t mkarch_n_shapes = sizeof mkarch_shapes / sizeof mkarch_shapes[0];

/* x86.h - the entry functions of the x86 levels, for the files that fill the tables. No SIMD here: every file
 * named *_avx2.c, *_avxvnni.c, *_avx512.c or *_amx.c is compiled with its own -m flags, and the .inc files with shared bodies
 * are included only by these files, so no general code is compiled with instructions that the CPU may lack. */
#ifndef AE_BACKEND_CPU_X86_H
#define AE_BACKEND_CPU_X86_H

#include "backend/cpu/ref/kernels.h"

/* Each sets the entries for caches of codes: writing to them, and attention over them. */
void ae_avx2_kernels_codes(ae_kernels *k);
void ae_avx512_kernels_codes(ae_kernels *k);
void ae_amx_kernels_codes(ae_kernels *k);

ae_mm_fn ae_avx2_mm_p16_32, ae_avx2_mm_p16_256, ae_avx2_mm_f32, ae_avx2_mm_f16, ae_avx2_mm_bf16;
ae_rmsnorm_fn ae_avx2_rmsnorm;
ae_layernorm_fn ae_avx2_layernorm;
ae_glu_fn ae_avx2_glu_silu, ae_avx2_glu_gelu, ae_avx2_glu_relu2, ae_avx2_glu_sigmoid, ae_avx2_glu_oai,
    ae_avx2_glu_silu_clamped, ae_avx2_glu_relu, ae_avx2_glu_silu_limited,
    ae_avx2_glu_gelu_erf, ae_avx2_glu_situ;
ae_softcap_fn ae_avx2_softcap;
ae_axpy_fn ae_avx2_axpy;
ae_cutoff_fn ae_avx2_cutoff;
ae_match_fn ae_avx2_match;
ae_mix_fn ae_avx2_mix;
ae_quant32_fn ae_avx2_quant32;
ae_quant256_fn ae_avx2_quant256;
ae_rope_fn ae_avx2_rope;
ae_kv_write_fn ae_avx2_kv_write_f16;
ae_attention_fn ae_avx2_attention_f16;
ae_attention_merge_fn ae_avx2_attention_merge;
ae_l2norm_fn ae_avx2_l2norm;
ae_conv_fn ae_avx2_conv;
ae_state_absorb_fn ae_avx2_state_absorb;
ae_state_step_fn ae_avx2_state_step;
ae_scan_delta_fn ae_avx2_scan_delta;
ae_scan_absorb_fn ae_avx2_scan_absorb;
ae_scan_step_fn ae_avx2_scan_step;
ae_keyed_decay_fn ae_avx2_keyed_decay;
ae_keyed_absorb_fn ae_avx2_keyed_absorb;
ae_keyed_step_fn ae_avx2_keyed_step;
ae_lerp_fn ae_avx2_lerp;
ae_blend_fn ae_avx2_blend;
ae_wkv_decay_fn ae_avx2_wkv_decay;
ae_wkv_keys_fn ae_avx2_wkv_keys;
ae_wkv_bonus_fn ae_avx2_wkv_bonus;
ae_wkv_step_fn ae_avx2_wkv6_step, ae_avx2_wkv7_step;
ae_wkv7_absorb_fn ae_avx2_wkv7_absorb;

ae_mm_fn ae_avxvnni_mm_p16_32, ae_avxvnni_mm_p16_256;

ae_mm_fn ae_avx512_mm_p16_32, ae_avx512_mm_p16_256, ae_avx512_mm_f32, ae_avx512_mm_f16, ae_avx512_mm_bf16;
ae_rmsnorm_fn ae_avx512_rmsnorm;
ae_layernorm_fn ae_avx512_layernorm;
ae_glu_fn ae_avx512_glu_silu, ae_avx512_glu_gelu, ae_avx512_glu_relu2, ae_avx512_glu_sigmoid, ae_avx512_glu_oai,
    ae_avx512_glu_silu_clamped, ae_avx512_glu_relu, ae_avx512_glu_silu_limited,
    ae_avx512_glu_gelu_erf, ae_avx512_glu_situ;
ae_softcap_fn ae_avx512_softcap;
ae_axpy_fn ae_avx512_axpy;
ae_cutoff_fn ae_avx512_cutoff;
ae_match_fn ae_avx512_match;
ae_mix_fn ae_avx512_mix;
ae_quant32_fn ae_avx512_quant32;
ae_quant256_fn ae_avx512_quant256;
ae_attention_fn ae_avx512_attention_f16;
ae_attention_merge_fn ae_avx512_attention_merge;
ae_l2norm_fn ae_avx512_l2norm;
ae_conv_fn ae_avx512_conv;
ae_state_absorb_fn ae_avx512_state_absorb;
ae_state_step_fn ae_avx512_state_step;
ae_scan_delta_fn ae_avx512_scan_delta;
ae_scan_absorb_fn ae_avx512_scan_absorb;
ae_scan_step_fn ae_avx512_scan_step;
ae_keyed_decay_fn ae_avx512_keyed_decay;
ae_keyed_absorb_fn ae_avx512_keyed_absorb;
ae_keyed_step_fn ae_avx512_keyed_step;
ae_lerp_fn ae_avx512_lerp;
ae_blend_fn ae_avx512_blend;
ae_wkv_decay_fn ae_avx512_wkv_decay;
ae_wkv_keys_fn ae_avx512_wkv_keys;
ae_wkv_bonus_fn ae_avx512_wkv_bonus;
ae_wkv_step_fn ae_avx512_wkv6_step, ae_avx512_wkv7_step;
ae_wkv7_absorb_fn ae_avx512_wkv7_absorb;

ae_mm_fn ae_amx_mm_p16_32, ae_amx_mm_p16_256;

#endif

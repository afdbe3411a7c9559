/* arm.h - the entries of the arm64 levels, for the files that fill the tables. No SIMD here: a file named *_dotprod.c
 * or *_i8mm.c is compiled with its own flags (*_neon.c needs none, NEON is part of the base), and bodies that levels
 * share stand in .inc files that only those files include, so no general code is built with instructions that the CPU may
 * lack. */
#ifndef AE_BACKEND_CPU_ARM_H
#define AE_BACKEND_CPU_ARM_H

#include "backend/cpu/ref/kernels.h"

ae_mm_fn ae_neon_mm_p16_32, ae_neon_mm_p16_256, ae_neon_mm_f32, ae_neon_mm_f16, ae_neon_mm_bf16;
ae_rmsnorm_fn ae_neon_rmsnorm;
ae_layernorm_fn ae_neon_layernorm;
ae_glu_fn ae_neon_glu_silu, ae_neon_glu_gelu, ae_neon_glu_relu2, ae_neon_glu_sigmoid, ae_neon_glu_oai,
    ae_neon_glu_silu_clamped, ae_neon_glu_relu, ae_neon_glu_silu_limited,
    ae_neon_glu_gelu_erf, ae_neon_glu_situ;
ae_softcap_fn ae_neon_softcap;
ae_axpy_fn ae_neon_axpy;
ae_cutoff_fn ae_neon_cutoff;
ae_match_fn ae_neon_match;
ae_mix_fn ae_neon_mix;
ae_quant32_fn ae_neon_quant32;
ae_quant256_fn ae_neon_quant256;
ae_rope_fn ae_neon_rope;
ae_kv_write_fn ae_neon_kv_write_f16;
ae_attention_fn ae_neon_attention_f16;
ae_attention_merge_fn ae_neon_attention_merge;
ae_l2norm_fn ae_neon_l2norm;
ae_conv_fn ae_neon_conv;
ae_state_absorb_fn ae_neon_state_absorb;
ae_state_step_fn ae_neon_state_step;
ae_scan_delta_fn ae_neon_scan_delta;
ae_scan_absorb_fn ae_neon_scan_absorb;
ae_scan_step_fn ae_neon_scan_step;
ae_keyed_decay_fn ae_neon_keyed_decay;
ae_keyed_absorb_fn ae_neon_keyed_absorb;
ae_keyed_step_fn ae_neon_keyed_step;
ae_lerp_fn ae_neon_lerp;
ae_blend_fn ae_neon_blend;
ae_wkv_decay_fn ae_neon_wkv_decay;
ae_wkv_keys_fn ae_neon_wkv_keys;
ae_wkv_bonus_fn ae_neon_wkv_bonus;
ae_wkv_step_fn ae_neon_wkv6_step, ae_neon_wkv7_step;
ae_wkv7_absorb_fn ae_neon_wkv7_absorb;

ae_mm_fn ae_dotprod_mm_p16_32, ae_dotprod_mm_p16_256;
ae_mm_fn ae_i8mm_mm_p16_32, ae_i8mm_mm_p16_256;

#endif

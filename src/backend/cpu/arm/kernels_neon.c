/* kernels_neon.c - what the neon level improves: NEON with FMA, which every arm64 machine has. */
#include "backend/cpu/arm/arm.h"

void ae_kernels_neon(ae_kernels *k)
{
    k->level = "neon";
    k->rmsnorm = ae_neon_rmsnorm;
    k->layernorm = ae_neon_layernorm;
    k->glu[AE_GLU_SILU] = ae_neon_glu_silu;
    k->glu[AE_GLU_GELU] = ae_neon_glu_gelu;
    k->glu[AE_GLU_RELU2] = ae_neon_glu_relu2;
    k->glu[AE_GLU_SIGMOID] = ae_neon_glu_sigmoid;
    k->glu[AE_GLU_OAI] = ae_neon_glu_oai;
    k->glu[AE_GLU_SILU_CLAMPED] = ae_neon_glu_silu_clamped;
    k->glu[AE_GLU_RELU] = ae_neon_glu_relu;
    k->glu[AE_GLU_SILU_LIMITED] = ae_neon_glu_silu_limited;
    k->glu[AE_GLU_GELU_ERF] = ae_neon_glu_gelu_erf;
    k->glu[AE_GLU_SITU] = ae_neon_glu_situ;
    k->softcap = ae_neon_softcap;
    k->axpy = ae_neon_axpy;
    k->cutoff = ae_neon_cutoff;
    k->match = ae_neon_match;
    k->mix = ae_neon_mix;
    k->quant32 = ae_neon_quant32;
    k->quant256 = ae_neon_quant256;
    k->mm_p16_32[0] = k->mm_p16_32[1] = ae_neon_mm_p16_32;
    k->mm_p16_256[0] = k->mm_p16_256[1] = ae_neon_mm_p16_256;
    k->mm_f32 = ae_neon_mm_f32;
    k->mm_f16 = ae_neon_mm_f16;
    k->mm_bf16 = ae_neon_mm_bf16;
    k->rope = ae_neon_rope;
    k->kv_write[AE_KV_F16] = ae_neon_kv_write_f16;
    k->attention[AE_KV_F16] = ae_neon_attention_f16;
    k->attention_merge = ae_neon_attention_merge;
    k->l2norm = ae_neon_l2norm;
    k->conv = ae_neon_conv;
    k->state_absorb = ae_neon_state_absorb;
    k->state_step = ae_neon_state_step;
    k->scan_delta = ae_neon_scan_delta;
    k->scan_absorb = ae_neon_scan_absorb;
    k->scan_step = ae_neon_scan_step;
    k->keyed_decay = ae_neon_keyed_decay;
    k->keyed_absorb = ae_neon_keyed_absorb;
    k->keyed_step = ae_neon_keyed_step;
    k->lerp = ae_neon_lerp;
    k->blend = ae_neon_blend;
    k->wkv_decay = ae_neon_wkv_decay;
    k->wkv_keys = ae_neon_wkv_keys;
    k->wkv_bonus = ae_neon_wkv_bonus;
    k->wkv6_step = ae_neon_wkv6_step;
    k->wkv7_step = ae_neon_wkv7_step;
    k->wkv7_absorb = ae_neon_wkv7_absorb;
}

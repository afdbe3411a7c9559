/* kernels_avx2.c - the kernels of the level avx2, which needs AVX2, FMA and F16C. */
#include "backend/cpu/x86/x86.h"

void ae_kernels_avx2(ae_kernels *k)
{
    k->level = "avx2";
    k->rmsnorm = ae_avx2_rmsnorm;
    k->layernorm = ae_avx2_layernorm;
    k->glu[AE_GLU_SILU] = ae_avx2_glu_silu;
    k->glu[AE_GLU_GELU] = ae_avx2_glu_gelu;
    k->glu[AE_GLU_RELU2] = ae_avx2_glu_relu2;
    k->glu[AE_GLU_SIGMOID] = ae_avx2_glu_sigmoid;
    k->glu[AE_GLU_OAI] = ae_avx2_glu_oai;
    k->glu[AE_GLU_SILU_CLAMPED] = ae_avx2_glu_silu_clamped;
    k->glu[AE_GLU_RELU] = ae_avx2_glu_relu;
    k->glu[AE_GLU_SILU_LIMITED] = ae_avx2_glu_silu_limited;
    k->glu[AE_GLU_GELU_ERF] = ae_avx2_glu_gelu_erf;
    k->glu[AE_GLU_SITU] = ae_avx2_glu_situ;
    k->softcap = ae_avx2_softcap;
    k->axpy = ae_avx2_axpy;
    k->cutoff = ae_avx2_cutoff;
    k->match = ae_avx2_match;
    k->mix = ae_avx2_mix;
    k->quant32 = ae_avx2_quant32;
    k->quant256 = ae_avx2_quant256;
    k->mm_p16_32[0] = k->mm_p16_32[1] = ae_avx2_mm_p16_32;
    k->mm_p16_256[0] = k->mm_p16_256[1] = ae_avx2_mm_p16_256;
    k->mm_f32 = ae_avx2_mm_f32;
    k->mm_f16 = ae_avx2_mm_f16;
    k->mm_bf16 = ae_avx2_mm_bf16;
    k->rope = ae_avx2_rope;
    k->kv_write[AE_KV_F16] = ae_avx2_kv_write_f16;
    k->attention[AE_KV_F16] = ae_avx2_attention_f16;
    ae_avx2_kernels_codes(k);
    k->attention_merge = ae_avx2_attention_merge;
    k->l2norm = ae_avx2_l2norm;
    k->conv = ae_avx2_conv;
    k->state_absorb = ae_avx2_state_absorb;
    k->state_step = ae_avx2_state_step;
    k->scan_delta = ae_avx2_scan_delta;
    k->scan_absorb = ae_avx2_scan_absorb;
    k->scan_step = ae_avx2_scan_step;
    k->keyed_decay = ae_avx2_keyed_decay;
    k->keyed_absorb = ae_avx2_keyed_absorb;
    k->keyed_step = ae_avx2_keyed_step;
    k->lerp = ae_avx2_lerp;
    k->blend = ae_avx2_blend;
    k->wkv_decay = ae_avx2_wkv_decay;
    k->wkv_keys = ae_avx2_wkv_keys;
    k->wkv_bonus = ae_avx2_wkv_bonus;
    k->wkv6_step = ae_avx2_wkv6_step;
    k->wkv7_step = ae_avx2_wkv7_step;
    k->wkv7_absorb = ae_avx2_wkv7_absorb;
}

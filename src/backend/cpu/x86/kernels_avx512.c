/* kernels_avx512.c - the kernels of the level avx512, which needs AVX-512 F, BW, VL, DQ and VNNI. */
#include "backend/cpu/x86/x86.h"

void ae_kernels_avx512(ae_kernels *k)
{
    k->level = "avx512";
    k->rmsnorm = ae_avx512_rmsnorm;
    k->layernorm = ae_avx512_layernorm;
    k->glu[AE_GLU_SILU] = ae_avx512_glu_silu;
    k->glu[AE_GLU_GELU] = ae_avx512_glu_gelu;
    k->glu[AE_GLU_RELU2] = ae_avx512_glu_relu2;
    k->glu[AE_GLU_SIGMOID] = ae_avx512_glu_sigmoid;
    k->glu[AE_GLU_OAI] = ae_avx512_glu_oai;
    k->glu[AE_GLU_SILU_CLAMPED] = ae_avx512_glu_silu_clamped;
    k->glu[AE_GLU_RELU] = ae_avx512_glu_relu;
    k->glu[AE_GLU_SILU_LIMITED] = ae_avx512_glu_silu_limited;
    k->glu[AE_GLU_GELU_ERF] = ae_avx512_glu_gelu_erf;
    k->glu[AE_GLU_SITU] = ae_avx512_glu_situ;
    k->softcap = ae_avx512_softcap;
    k->axpy = ae_avx512_axpy;
    k->cutoff = ae_avx512_cutoff;
    k->match = ae_avx512_match;
    k->mix = ae_avx512_mix;
    k->quant32 = ae_avx512_quant32;
    k->quant256 = ae_avx512_quant256;
    k->mm_p16_32[0] = k->mm_p16_32[1] = ae_avx512_mm_p16_32;
    k->mm_p16_256[0] = k->mm_p16_256[1] = ae_avx512_mm_p16_256;
    k->mm_f32 = ae_avx512_mm_f32;
    k->mm_f16 = ae_avx512_mm_f16;
    k->mm_bf16 = ae_avx512_mm_bf16;
    k->attention[AE_KV_F16] = ae_avx512_attention_f16;
    ae_avx512_kernels_codes(k);
    k->attention_merge = ae_avx512_attention_merge;
    k->l2norm = ae_avx512_l2norm;
    k->conv = ae_avx512_conv;
    k->state_absorb = ae_avx512_state_absorb;
    k->state_step = ae_avx512_state_step;
    k->scan_delta = ae_avx512_scan_delta;
    k->scan_absorb = ae_avx512_scan_absorb;
    k->scan_step = ae_avx512_scan_step;
    k->keyed_decay = ae_avx512_keyed_decay;
    k->keyed_absorb = ae_avx512_keyed_absorb;
    k->keyed_step = ae_avx512_keyed_step;
    k->lerp = ae_avx512_lerp;
    k->blend = ae_avx512_blend;
    k->wkv_decay = ae_avx512_wkv_decay;
    k->wkv_keys = ae_avx512_wkv_keys;
    k->wkv_bonus = ae_avx512_wkv_bonus;
    k->wkv6_step = ae_avx512_wkv6_step;
    k->wkv7_step = ae_avx512_wkv7_step;
    k->wkv7_absorb = ae_avx512_wkv7_absorb;
}

/* x86.h - the entries of the x86 levels, for the files that fill the tables. No SIMD here: every file
 * named *_avx2.c, *_avxvnni.c, *_avx512.c or *_amx.c is compiled with its own -m flags, and bodies that levels share stand in
 * .inc files that only those files include, so no general code is ever built for an ISA it must test for. */
#ifndef AE_BACKEND_CPU_X86_H
#define AE_BACKEND_CPU_X86_H

#include "backend/cpu/ref/kernels.h"

ae_mm_fn ae_avx2_mm_p16_32, ae_avx2_mm_p16_256, ae_avx2_mm_f32, ae_avx2_mm_f16, ae_avx2_mm_bf16;
void ae_avx2_rmsnorm(const float *x, const float *norm, float eps, uint32_t n, float *y);
void ae_avx2_layernorm(const float *x, const float *norm, const float *bias, float eps, uint32_t n, float *y);
void ae_avx2_glu_silu(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_avx2_glu_gelu(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_avx2_glu_relu2(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_avx2_glu_sigmoid(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_avx2_glu_oai(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_avx2_glu_silu_clamped(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_avx2_softcap(const float *x, float cap, uint32_t n, float *y);
void ae_avx2_axpy(float a, const float *x, uint32_t n, float *y);
void ae_avx2_quant32(const float *x, uint32_t n, int8_t *q, float *d, int32_t *sum, float *s);
void ae_avx2_quant256(const float *x, uint32_t n, int8_t *q, float *d, int16_t *bsum);
void ae_avx2_rope(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t n_rot, ae_rope_kind kind, const float *cos,
                  const float *sin);
void ae_avx2_kv_write_f16(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place);
void ae_avx2_attention_f16(const ae_attn_tile *tile);
void ae_avx2_kv_write_q8(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place);
void ae_avx2_attention_q8(const ae_attn_tile *tile);
void ae_avx2_latent_write_codes15(const float *row, uint32_t n_rope, uint32_t head_dim, void *page, uint32_t place);
void ae_avx2_latent_write_q8(const float *row, uint32_t n_rope, uint32_t head_dim, void *page, uint32_t place);
void ae_avx2_latent_attention_codes15(const ae_attn_tile *tile);
void ae_avx2_latent_attention_q8(const ae_attn_tile *tile);
void ae_avx2_latent_unturn(float *y, uint32_t n);
void ae_avx2_attention_merge(const ae_attn_tile *tile, ae_attn_state *state, bool last);
void ae_avx2_l2norm(const float *x, float eps, uint32_t n, float *y);
void ae_avx2_conv(const float *const *rows, const float *weight, size_t stride, const float *bias, uint32_t n_taps, uint32_t n,
                bool silu, float *y);
void ae_avx2_state_absorb(float *s, uint32_t key_dim, float alpha, const float *k, const float *d);
void ae_avx2_state_step(const float *from, float *to, const ae_state_step *step);
void ae_avx2_scan_delta(const float *x, const float *bias, const float *v, float *delta, float *d);
void ae_avx2_scan_absorb(float *s, const ae_scan_step *step);
void ae_avx2_scan_step(const float *from, float *to, const ae_scan_step *step);

ae_mm_fn ae_avxvnni_mm_p16_32, ae_avxvnni_mm_p16_256;

ae_mm_fn ae_avx512_mm_p16_32, ae_avx512_mm_p16_256, ae_avx512_mm_f32, ae_avx512_mm_f16, ae_avx512_mm_bf16;
void ae_avx512_rmsnorm(const float *x, const float *norm, float eps, uint32_t n, float *y);
void ae_avx512_layernorm(const float *x, const float *norm, const float *bias, float eps, uint32_t n, float *y);
void ae_avx512_glu_silu(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_avx512_glu_gelu(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_avx512_glu_relu2(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_avx512_glu_sigmoid(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_avx512_glu_oai(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_avx512_glu_silu_clamped(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_avx512_softcap(const float *x, float cap, uint32_t n, float *y);
void ae_avx512_axpy(float a, const float *x, uint32_t n, float *y);
void ae_avx512_quant32(const float *x, uint32_t n, int8_t *q, float *d, int32_t *sum, float *s);
void ae_avx512_quant256(const float *x, uint32_t n, int8_t *q, float *d, int16_t *bsum);
void ae_avx512_attention_f16(const ae_attn_tile *tile);
void ae_avx512_kv_write_q8(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place);
void ae_avx512_attention_q8(const ae_attn_tile *tile);
void ae_avx512_latent_write_codes15(const float *row, uint32_t n_rope, uint32_t head_dim, void *page, uint32_t place);
void ae_avx512_latent_write_q8(const float *row, uint32_t n_rope, uint32_t head_dim, void *page, uint32_t place);
void ae_avx512_latent_attention_codes15(const ae_attn_tile *tile);
void ae_avx512_latent_attention_q8(const ae_attn_tile *tile);
void ae_avx512_latent_unturn(float *y, uint32_t n);
void ae_avx512_attention_merge(const ae_attn_tile *tile, ae_attn_state *state, bool last);
void ae_avx512_l2norm(const float *x, float eps, uint32_t n, float *y);
void ae_avx512_conv(const float *const *rows, const float *weight, size_t stride, const float *bias, uint32_t n_taps,
                    uint32_t n, bool silu, float *y);
void ae_avx512_state_absorb(float *s, uint32_t key_dim, float alpha, const float *k, const float *d);
void ae_avx512_state_step(const float *from, float *to, const ae_state_step *step);
void ae_avx512_scan_delta(const float *x, const float *bias, const float *v, float *delta, float *d);
void ae_avx512_scan_absorb(float *s, const ae_scan_step *step);
void ae_avx512_scan_step(const float *from, float *to, const ae_scan_step *step);

ae_mm_fn ae_amx_mm_p16_32, ae_amx_mm_p16_256;
void ae_amx_kv_write_q8(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place);
void ae_amx_attention_q8(const ae_attn_tile *tile);
void ae_amx_latent_write_codes15(const float *row, uint32_t n_rope, uint32_t head_dim, void *page, uint32_t place);
void ae_amx_latent_write_q8(const float *row, uint32_t n_rope, uint32_t head_dim, void *page, uint32_t place);
void ae_amx_latent_attention_codes15(const ae_attn_tile *tile);
void ae_amx_latent_attention_q8(const ae_attn_tile *tile);
void ae_amx_latent_unturn(float *y, uint32_t n);

#endif

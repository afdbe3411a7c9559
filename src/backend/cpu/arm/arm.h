/* arm.h - the entries of the arm64 levels, for the files that fill the tables. No SIMD here: a file named *_dotprod.c
 * or *_i8mm.c is compiled with its own flags (*_neon.c needs none, NEON is part of the base), and bodies that levels
 * share stand in .inc files that only those files include, so no general code is built for what it must test for. */
#ifndef AE_BACKEND_CPU_ARM_H
#define AE_BACKEND_CPU_ARM_H

#include "backend/cpu/ref/kernels.h"

ae_mm_fn ae_neon_mm_p16_32, ae_neon_mm_p16_256, ae_neon_mm_f32, ae_neon_mm_f16, ae_neon_mm_bf16;
void ae_neon_rmsnorm(const float *x, const float *norm, float eps, uint32_t n, float *y);
void ae_neon_layernorm(const float *x, const float *norm, const float *bias, float eps, uint32_t n, float *y);
void ae_neon_glu_silu(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_neon_glu_gelu(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_neon_glu_relu2(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_neon_glu_sigmoid(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_neon_glu_oai(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_neon_glu_silu_clamped(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_neon_softcap(const float *x, float cap, uint32_t n, float *y);
void ae_neon_axpy(float a, const float *x, uint32_t n, float *y);
void ae_neon_quant32(const float *x, uint32_t n, int8_t *q, float *d, int32_t *sum, float *s);
void ae_neon_quant256(const float *x, uint32_t n, int8_t *q, float *d, int16_t *bsum);
void ae_neon_rope(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t n_rot, ae_rope_kind kind, const float *cos,
                  const float *sin);
void ae_neon_kv_write_f16(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place);
void ae_neon_attention_f16(const ae_attn_tile *tile);
void ae_neon_attention_merge(const ae_attn_tile *tile, ae_attn_state *state, bool last);
void ae_neon_l2norm(const float *x, float eps, uint32_t n, float *y);
void ae_neon_conv(const float *const *rows, const float *weight, size_t stride, const float *bias, uint32_t n_taps, uint32_t n,
                bool silu, float *y);
void ae_neon_state_absorb(float *s, uint32_t key_dim, float alpha, const float *k, const float *d);
void ae_neon_state_step(const float *from, float *to, const ae_state_step *step);
void ae_neon_scan_delta(const float *x, const float *bias, const float *v, float *delta, float *d);
void ae_neon_scan_absorb(float *s, const ae_scan_step *step);
void ae_neon_scan_step(const float *from, float *to, const ae_scan_step *step);

ae_mm_fn ae_dotprod_mm_p16_32, ae_dotprod_mm_p16_256;
ae_mm_fn ae_i8mm_mm_p16_32, ae_i8mm_mm_p16_256;

#endif

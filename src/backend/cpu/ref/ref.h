/* ref.h - the reference kernels: plain C, always built. They define the results of all other kernels. */
#ifndef AE_BACKEND_CPU_REF_H
#define AE_BACKEND_CPU_REF_H

#include "backend/cpu/ref/kernels.h"

void ae_ref_rmsnorm(const float *x, const float *norm, float eps, uint32_t n, float *y);
void ae_ref_layernorm(const float *x, const float *norm, const float *bias, float eps, uint32_t n, float *y);
void ae_ref_glu_silu(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_ref_glu_gelu(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_ref_glu_relu2(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_ref_glu_sigmoid(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_ref_glu_oai(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_ref_glu_silu_clamped(const float *g, const float *u, float limit, uint32_t n, float *y);
void ae_ref_softcap(const float *x, float cap, uint32_t n, float *y);
void ae_ref_axpy(float a, const float *x, uint32_t n, float *y);
void ae_ref_quant32(const float *x, uint32_t n, int8_t *q, float *d, int32_t *sum, float *s);
void ae_ref_quant256(const float *x, uint32_t n, int8_t *q, float *d, int16_t *bsum);
void ae_ref_mm_plain(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end);
void ae_ref_mm_float(const ae_weight *w, const ae_act *act, const ae_mm_out *out, uint32_t begin, uint32_t end);
/* The angles of a row, see ae_rope_table. All levels use this function. */
void ae_ref_rope_table(int32_t pos, const double *freq, double magnitude, uint32_t n_rot, float *cos, float *sin);
void ae_ref_rope(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t n_rot, ae_rope_kind kind, const float *cos,
                 const float *sin);
/* Chooses a row's experts; all levels use this function. logits and bias (or NULL) [n_experts]; writes ids[n_used], ascending,
 * and their weights; p is scratch [n_experts]. */
void ae_ref_route(const ae_routing *routing, const float *logits, const float *bias, float *p, uint32_t *ids, float *weights);
void ae_ref_kv_write_f16(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place);
void ae_ref_kv_write_q8(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place);
void ae_ref_attention_f16(const ae_attn_tile *tile);
void ae_ref_attention_q8(const ae_attn_tile *tile);
void ae_ref_kv_write_f32(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place);
void ae_ref_attention_f32(const ae_attn_tile *tile);
void ae_ref_attention_merge(const ae_attn_tile *tile, ae_attn_state *state, bool last);
/* Turns a query and converts it to codes [head_dim]; returns their scale. */
float ae_ref_quant_query(const float *q, uint32_t head_dim, int32_t *codes);

/* Turns x in blocks of ae_kv8_turn(n): (a, b) = (a + b, a - b) of elements 1, 2, 4 .. apart; y may be x */
void ae_ref_turn(const float *x, uint32_t n, float *y);
/* Converts a row of q8_0 to codes; returns its scale. */
float ae_ref_quant_row(const float *x, uint32_t n, int8_t *codes);

/* latent.c */
void ae_ref_latent_write_f32(const float *row, uint32_t n_rope, uint32_t head_dim, void *page, uint32_t place);
void ae_ref_latent_write_codes15(const float *row, uint32_t n_rope, uint32_t head_dim, void *page, uint32_t place);
void ae_ref_latent_write_q8(const float *row, uint32_t n_rope, uint32_t head_dim, void *page, uint32_t place);
void ae_ref_latent_unturn(float *y, uint32_t n);

/* attention.c */
void ae_ref_latent_attention_f32(const ae_attn_tile *tile);
void ae_ref_latent_attention_codes15(const ae_attn_tile *tile);
void ae_ref_latent_attention_q8(const ae_attn_tile *tile);

/* recurrent.c */
void ae_ref_l2norm(const float *x, float eps, uint32_t n, float *y);
void ae_ref_conv(const float *const *rows, const float *weight, size_t stride, const float *bias, uint32_t n_taps, uint32_t n,
                 bool silu, float *y);
void ae_ref_state_absorb(float *s, uint32_t key_dim, float alpha, const float *k, const float *d);
void ae_ref_state_step(const float *from, float *to, const ae_state_step *step);
void ae_ref_scan_delta(const float *x, const float *bias, const float *v, float *delta, float *d);
void ae_ref_scan_absorb(float *s, const ae_scan_step *step);
void ae_ref_scan_step(const float *from, float *to, const ae_scan_step *step);
/* One number for each row and head; all levels use these functions. */
float ae_ref_softplus(float x);
float ae_ref_alpha(float decay, float softplus);
float ae_ref_sigmoid(float x);

#endif

/* ref.h - the reference kernels: plain C, always built. They define the results of all other kernels. */
#ifndef AE_BACKEND_CPU_REF_H
#define AE_BACKEND_CPU_REF_H

#include "backend/cpu/ref/kernels.h"

ae_rmsnorm_fn ae_ref_rmsnorm;
ae_layernorm_fn ae_ref_layernorm;
ae_glu_fn ae_ref_glu_silu, ae_ref_glu_gelu, ae_ref_glu_relu2, ae_ref_glu_sigmoid, ae_ref_glu_oai, ae_ref_glu_silu_clamped;
ae_glu_fn ae_ref_glu_relu, ae_ref_glu_silu_limited, ae_ref_glu_softplus, ae_ref_glu_gelu_erf, ae_ref_glu_linear;
ae_glu_fn ae_ref_glu_situ;
ae_softcap_fn ae_ref_softcap;
ae_axpy_fn ae_ref_axpy;
ae_cutoff_fn ae_ref_cutoff;
ae_match_fn ae_ref_match;
ae_mix_fn ae_ref_mix;
ae_quant32_fn ae_ref_quant32;
ae_quant256_fn ae_ref_quant256;
ae_mm_fn ae_ref_mm_plain, ae_ref_mm_float;
/* Computes the angles of a row, see ae_rope_table. All levels use this function. */
void ae_ref_rope_table(int32_t pos, const double *freq, double magnitude, uint32_t n_rot, float *cos, float *sin);
ae_rope_fn ae_ref_rope;
/* Chooses a row's experts; all levels use this function. logits and bias (or NULL) [n_experts]; fixed [n_used] (or NULL): the
 * experts, which scores then do not choose; writes ids[n_used], ascending, and their weights; p is scratch [n_experts]. */
void ae_ref_route(const ae_routing *routing, const float *logits, const float *bias, const float *fixed, float *p,
                  uint32_t *ids, float *weights);
/* Finds the positions of the n_most highest of n scores, ascending; n > n_most. All levels use this function. */
void ae_ref_choose(const float *score, uint32_t n, uint32_t n_most, int32_t *positions);
/* compress.c; all levels use these functions. A member is a position of a compressed row: its place in the page that begins at
 * `page` with the first of its heads, head_bytes apart; which part of it counts; the row of ape. At most 2 AE_MAX_COMPRESSED
 * members. */
#define AE_MAX_COMPRESSED 128
typedef struct ae_member {
    const void *page;
    size_t head_bytes;
    uint32_t place, part, row;
} ae_member;
void ae_ref_compress(const ae_compress *args, const ae_member *members, uint32_t n, float *y);
/* Computes y [n_heads] for one row from its tokens [n_tokens], ended as ae_ngrams says. */
void ae_ref_ngrams(const ae_ngrams *args, const int32_t *tokens, int32_t *y);
/* Computes y for one row and head, from its places [n_taps] in the pages of that head; NULL: the place is before the text. */
void ae_ref_trail(const ae_trail *args, uint32_t head, const float *const *places, float *y);
void ae_ref_accord(const ae_accord *args, size_t row);
/* Computes the coefficients of one row. */
void ae_ref_hyper(const ae_hyper *args, size_t row);
ae_kv_write_fn ae_ref_kv_write_f16, ae_ref_kv_write_q8, ae_ref_kv_write_i16, ae_ref_kv_write_i16_q8, ae_ref_kv_write_q8_i16,
    ae_ref_kv_write_q4, ae_ref_kv_write_q8_q4, ae_ref_kv_write_i16_q4;
ae_attention_fn ae_ref_attention_f16, ae_ref_attention_q8, ae_ref_attention_i16, ae_ref_attention_i16_q8,
    ae_ref_attention_q8_i16, ae_ref_attention_q4, ae_ref_attention_q8_q4, ae_ref_attention_i16_q4;
ae_kv_write_fn ae_ref_kv_write_f32;
ae_attention_fn ae_ref_attention_f32;
ae_attention_merge_fn ae_ref_attention_merge;
/* Turns a query and converts it to codes [head_dim]; returns their scale. */
float ae_ref_quant_query(const float *q, uint32_t head_dim, int32_t *codes);

/* Turns x in blocks of ae_kv8_turn(n): (a, b) = (a + b, a - b) of elements 1, 2, 4 .. apart; y may be x */
void ae_ref_turn(const float *x, uint32_t n, float *y);
/* Converts a row of q8_0 to codes; returns its scale. */
float ae_ref_quant_row(const float *x, uint32_t n, int8_t *codes);

/* latent.c */
ae_latent_write_fn ae_ref_latent_write_f32, ae_ref_latent_write_codes15, ae_ref_latent_write_q8;
ae_latent_unturn_fn ae_ref_latent_unturn;

/* attention.c */
ae_attention_fn ae_ref_latent_attention_f32, ae_ref_latent_attention_codes15, ae_ref_latent_attention_q8;

/* attention.c */
ae_index_scores_fn ae_ref_index_scores_f32, ae_ref_index_scores_codes15, ae_ref_index_scores_q8;

/* recurrent.c */
ae_l2norm_fn ae_ref_l2norm;
ae_conv_fn ae_ref_conv;
ae_state_absorb_fn ae_ref_state_absorb;
ae_state_step_fn ae_ref_state_step;
ae_scan_delta_fn ae_ref_scan_delta;
ae_scan_absorb_fn ae_ref_scan_absorb;
ae_scan_step_fn ae_ref_scan_step;
ae_keyed_decay_fn ae_ref_keyed_decay;
ae_keyed_absorb_fn ae_ref_keyed_absorb;
ae_keyed_step_fn ae_ref_keyed_step;
ae_lerp_fn ae_ref_lerp;
ae_blend_fn ae_ref_blend;
ae_wkv_decay_fn ae_ref_wkv_decay;
ae_wkv_keys_fn ae_ref_wkv_keys;
ae_wkv_bonus_fn ae_ref_wkv_bonus;
ae_wkv_step_fn ae_ref_wkv6_step, ae_ref_wkv7_step;
ae_wkv7_absorb_fn ae_ref_wkv7_absorb;
/* One number for each row and head; all levels use these functions. */
float ae_ref_softplus(float x);
float ae_ref_alpha(float decay, float softplus);
float ae_ref_sigmoid(float x);

#endif

/* rows.c - the definition of the row operations: norm, activation, quantization, rotation. */
#include <math.h>
#include <string.h>

#include "backend/cpu/ref/ref.h"
#include "base/math/fmath.h"
#include "base/shape_limits.h"

#define MAX_DIM AE_MAX_LATENT /* most values of a head, or of a part of a latent row */

void ae_ref_rmsnorm(const float *x, const float *norm, float eps, uint32_t n, float *y)
{
    float a[64] = {0};
    for (uint32_t i = 0; i < n; i++) a[i % 64] = fmaf(x[i], x[i], a[i % 64]);
    const float inv = 1.0f / sqrtf(ae_sum64(a) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++) y[i] = x[i] * inv * norm[i];
}

void ae_ref_layernorm(const float *x, const float *norm, const float *bias, float eps, uint32_t n, float *y)
{
    float a[64] = {0};
    for (uint32_t i = 0; i < n; i++) a[i % 64] += x[i];
    const float mean = ae_sum64(a) / (float)n;
    memset(a, 0, sizeof a);
    for (uint32_t i = 0; i < n; i++) a[i % 64] = fmaf(x[i] - mean, x[i] - mean, a[i % 64]);
    const float inv = 1.0f / sqrtf(ae_sum64(a) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++) {
        const float z = (x[i] - mean) * inv * norm[i];
        y[i] = bias ? z + bias[i] : z;
    }
}

static void glu(ae_glu kind, const float *g, const float *u, float limit, float up_limit, uint32_t n, float *y)
{
    const float of_u = kind == AE_GLU_SITU ? up_limit : limit;
    for (uint32_t i = 0; i < n; i++) {
        const float f = ae_glu_of(kind, g[i], limit);
        y[i] = u ? f * ae_glu_times(kind, u[i], of_u) : f;
    }
}

#define GLU(name, kind) \
    void ae_ref_glu_##name(const float *g, const float *u, float limit, float up_limit, uint32_t n, float *y)                  \
    {                                                                                                                          \
        glu(kind, g, u, limit, up_limit, n, y);                                                                                \
    }

GLU(silu, AE_GLU_SILU)
GLU(gelu, AE_GLU_GELU)
GLU(relu2, AE_GLU_RELU2)
GLU(sigmoid, AE_GLU_SIGMOID)
GLU(oai, AE_GLU_OAI)
GLU(silu_clamped, AE_GLU_SILU_CLAMPED)
GLU(relu, AE_GLU_RELU)
GLU(silu_limited, AE_GLU_SILU_LIMITED)
GLU(softplus, AE_GLU_SOFTPLUS)
GLU(gelu_erf, AE_GLU_GELU_ERF)
GLU(linear, AE_GLU_LINEAR)
GLU(situ, AE_GLU_SITU)

void ae_ref_softcap(const float *x, float cap, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++) y[i] = ae_softcapf(x[i], cap);
}

void ae_ref_axpy(float a, const float *x, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++) y[i] = fmaf(a, x[i], y[i]);
}

static float mean_squares(const float *x, uint32_t n)
{
    float a[64] = {0};
    for (uint32_t i = 0; i < n; i++) a[i % 64] = fmaf(x[i], x[i], a[i % 64]);
    return ae_sum64(a) / (float)n;
}

void ae_ref_cutoff(float a, uint32_t n, float *x)
{
    float s[64] = {0};
    for (uint32_t i = 0; i < n; i++) s[i % 64] += x[i];
    const float mean = ae_sum64(s) / (float)n;
    memset(s, 0, sizeof s);
    for (uint32_t i = 0; i < n; i++) s[i % 64] = fmaf(x[i] - mean, x[i] - mean, s[i % 64]);
    const float cut = fmaf(a, sqrtf(ae_sum64(s) / (float)n), mean);
    for (uint32_t i = 0; i < n; i++) x[i] = ae_maxf(x[i] - cut, 0.0f);
}

void ae_ref_match(const float *like, float least, uint32_t n, float *x)
{
    const float f = sqrtf(mean_squares(like, n)) / sqrtf(ae_maxf(mean_squares(x, n), least));
    for (uint32_t i = 0; i < n; i++) x[i] *= f;
}

void ae_ref_mix(const ae_row_mix *m, size_t row)
{
    const float *x = m->x + row * m->x_stride, *start = m->start ? m->start + row * m->start_stride : NULL;
    const float *coef = m->coef + row * m->coef_stride;
    float *y = m->y + row * m->y_stride;
    for (uint32_t i = 0; i < m->dim; i++) {
        float sum[AE_MAX_STREAMS];
        for (uint32_t t = 0; t < m->n_out; t++) {
            sum[t] = start ? start[t * m->start_step + i] : 0.0f;
            for (uint32_t s = 0; s < m->n_in; s++)
                sum[t] = fmaf(coef[t * m->out_step + s * m->in_step], x[s * m->x_step + i], sum[t]);
        }
        for (uint32_t t = 0; t < m->n_out; t++) y[t * m->y_step + i] = sum[t];
    }
}

static void write_codes(const float *x, uint32_t n, float inv, int8_t *q)
{
    for (uint32_t i = 0; i < n; i++) q[i] = (int8_t)ae_round_magic(x[i], inv);
}

/* Returns the largest |x|; a NaN is never the largest. */
static float largest(const float *x, uint32_t n)
{
    float top = 0;
    for (uint32_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        top = a > top ? a : top;
    }
    return top;
}

/* Returns the scale with the least squared error and its codes. Errors are summed in n_sums sums over k % n_sums: 16 in a
 * group, 64 in a row. A scale too small to invert is zero. */
static float quant_best(const float *x, uint32_t n, uint32_t n_sums, int8_t *q)
{
    static const float tops[AE_QUANT_TRIES] = AE_QUANT_TOPS;
    const float top = largest(x, n);
    float best_error = 0, best_t = 0;
    if (!(top > 1e-30f)) {
        memset(q, 0, n);
        return 0;
    }
    for (uint32_t i = 0; i < AE_QUANT_TRIES; i++) {
        const float inv = tops[i] / top, d = top / tops[i];
        float a[64] = {0};
        for (uint32_t k = 0; k < n; k++) {
            const float e = fmaf(x[k], inv, AE_EXP_MAGIC - ae_add_magic(x[k], inv));
            a[k % n_sums] = fmaf(e, e, a[k % n_sums]);
        }
        const float error = (n_sums == 16 ? ae_sum16(a) : ae_sum64(a)) * (d * d);
        if (i == 0 || error < best_error) {
            best_error = error;
            best_t = tops[i];
        }
    }
    write_codes(x, n, best_t / top, q);
    return top / best_t;
}

static float quant_group256(const float *x, int8_t *q)
{
    const float top = largest(x, 256);
    if (!(top > 1e-30f)) {
        memset(q, 0, 256);
        return 0;
    }
    write_codes(x, 256, 127.0f / top, q);
    return top / 127.0f;
}

void ae_ref_quant32(const float *x, uint32_t n, int8_t *q, float *d, int32_t *sum, float *s)
{
    for (uint32_t b = 0; b < n / 32; b++) {
        d[b] = quant_best(x + 32 * b, 32, 16, q + 32 * b);
        sum[b] = 0;
        for (uint32_t i = 0; i < 32; i++) sum[b] += q[32 * b + i];
        s[b] = d[b] * (float)sum[b];
    }
}

void ae_ref_quant256(const float *x, uint32_t n, int8_t *q, float *d, int16_t *bsum)
{
    for (uint32_t b = 0; b < n / 256; b++) d[b] = quant_group256(x + 256 * b, q + 256 * b);
    for (uint32_t b = 0; b < n / 16; b++) {
        int sum = 0;
        for (uint32_t i = 0; i < 16; i++) sum += q[16 * b + i];
        bsum[b] = (int16_t)sum;
    }
}

void ae_ref_rope_table(int32_t pos, const double *freq, double magnitude, uint32_t n_rot, float *cos, float *sin)
{
    for (uint32_t i = 0; i < n_rot / 2; i++) {
        double s, c;
        ae_sincos(pos * freq[i], &s, &c);
        cos[i] = (float)(c * magnitude);
        sin[i] = (float)(s * magnitude);
    }
}

void ae_ref_rope(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t n_rot, ae_rope_kind kind, const float *cos,
                 const float *sin)
{
    const uint32_t half = n_rot / 2;
    for (uint32_t h = 0; h < n_heads; h++, x += head_dim)
        for (uint32_t i = 0; i < half; i++) {
            float *a = kind == AE_ROPE_NEOX ? x + i : x + 2 * i;
            float *b = kind == AE_ROPE_NEOX ? x + i + half : x + 2 * i + 1;
            const float xa = *a, xb = *b;
            *a = xa * cos[i] - xb * sin[i];
            *b = xa * sin[i] + xb * cos[i];
        }
}

void ae_ref_kv_write_f16(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place)
{
    uint16_t *kp = (uint16_t *)page + (size_t)(place / 16) * head_dim * 16 + place % 16;
    uint16_t *vp = (uint16_t *)page + AE_KV_K_ELEMENTS(head_dim) + (size_t)place * head_dim;
    for (uint32_t i = 0; i < head_dim; i++) {
        kp[i * 16] = ae_kv_half(k[i]);
        vp[i] = ae_kv_half(v[i]);
    }
}

void ae_ref_kv_write_f32(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place)
{
    float *to = (float *)page + (size_t)place * head_dim;
    memcpy(to, k, head_dim * sizeof *to);
    memcpy(to + AE_KV_K_ELEMENTS(head_dim), v, head_dim * sizeof *to);
}

/* Computes y = H x by blocks, with a Hadamard matrix H: spreads the few large elements of a row over all elements. */
void ae_ref_turn(const float *x, uint32_t n, float *y)
{
    const uint32_t block = ae_kv8_turn(n);
    if (y != x) memcpy(y, x, n * sizeof *y);
    for (uint32_t h = 1; h < block; h *= 2)
        for (uint32_t i = 0; i < n; i++) {
            if (i & h) continue;
            const float a = y[i], b = y[i + h];
            y[i] = a + b;
            y[i + h] = a - b;
        }
}

/* Computes codes of 15 bits; returns their scale. */
static float quant_wide(const float *x, uint32_t n, int32_t *codes)
{
    const float top = largest(x, n), inv = top > 1e-30f ? AE_KV_QUERY / top : 0;
    for (uint32_t i = 0; i < n; i++)
        codes[i] = !(top > 1e-30f) ? 0 : isnan(x[i] * inv) ? -(int32_t)AE_KV_QUERY : ae_round_magic(x[i], inv);
    return top > 1e-30f ? top / AE_KV_QUERY : 0;
}

float ae_ref_quant_query(const float *q, uint32_t head_dim, int32_t *codes)
{
    float x[MAX_DIM];
    ae_ref_turn(q, head_dim, x);
    return quant_wide(x, head_dim, codes);
}

/* inf / inf is a NaN too. */
float ae_ref_quant_row(const float *x, uint32_t n, int8_t *codes)
{
    const float d = quant_best(x, n, 64, codes);
    for (uint32_t i = 0; i < n; i++)
        if (d > 0 && isnan(x[i] / d)) codes[i] = -127;
    return d;
}

/* Returns the level for |y|. */
static float level4(float y)
{
    static const float limits[] = AE_KV4_LIMITS;
    static const int8_t levels[] = AE_KV4_LEVELS;
    uint32_t i = 0;
    for (uint32_t k = 0; k < 7; k++) i += fabsf(y) > limits[k];
    return levels[i];
}

/* Returns the code of y; 0 for a NaN. */
static uint8_t code4(float y)
{
    static const float limits[] = AE_KV4_LIMITS;
    uint8_t code = y > 0.0f;
    for (uint32_t k = 0; k < 7; k++) code = (uint8_t)(code + (y > limits[k]) + (y > -limits[k]));
    return code;
}

/* Computes the 4-bit codes with the scale of least squared error, which it returns. */
static float quant4(const float *x, uint32_t n, uint8_t *codes)
{
    static const float tops[AE_KV4_TRIES] = AE_KV4_TOPS;
    const float top = largest(x, n);
    float best_error = 0, best_t = tops[0];
    memset(codes, 0, n);
    if (!(top > 1e-30f)) return 0;
    for (uint32_t i = 0; i < AE_KV4_TRIES; i++) {
        const float inv = tops[i] / top, d = top / tops[i];
        float a[64] = {0};
        for (uint32_t k = 0; k < n; k++) {
            const float y = x[k] * inv, e = fabsf(y) - level4(y);
            a[k % 64] = fmaf(e, e, a[k % 64]);
        }
        const float error = ae_sum64(a) * (d * d);
        if (i == 0 || error < best_error) {
            best_error = error;
            best_t = tops[i];
        }
    }
    for (uint32_t i = 0; i < n; i++) codes[i] = code4(x[i] * (best_t / top));
    return top / best_t;
}

/* Computes the digits of a row [planes of n_bits][MAX_DIM]; returns its scale. */
static float take_digits(const float *x, uint32_t n, uint32_t n_bits, int8_t (*digits)[MAX_DIM])
{
    int32_t codes[MAX_DIM];
    if (n_bits == 4) return quant4(x, n, (uint8_t *)digits[0]);
    if (n_bits == 8) return ae_ref_quant_row(x, n, digits[0]);
    const float d = quant_wide(x, n, codes);
    for (uint32_t i = 0; i < n; i++) {
        digits[0][i] = (int8_t)ae_latent_high(codes[i]);
        digits[1][i] = (int8_t)(codes[i] - 128 * digits[0][i]);
    }
    return d;
}

/* Writes one of the two codes in a byte. */
static void put_half(uint8_t *byte, bool high, int8_t code)
{
    *byte = (uint8_t)(high ? (*byte & 15) | code << 4 : (*byte & 240) | code);
}

static void write_coded(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place, ae_kv_type type)
{
    const uint32_t kb = ae_kv_key_bits(type), vb = ae_kv_value_bits(type);
    int8_t digits[2][MAX_DIM], *plane = page;
    float x[MAX_DIM], *d = ae_kv_scales(page, type, head_dim);
    ae_ref_turn(k, head_dim, x);
    d[place] = take_digits(x, head_dim, kb, digits);
    for (uint32_t i = 0; kb == 4 && i < head_dim; i++)
        put_half((uint8_t *)plane + ae_kv4_k_at(head_dim, place, i), i & 4, digits[0][i]);
    for (uint32_t p = 0; p < kb / 8; p++, plane += AE_KV8_CODES(head_dim))
        for (uint32_t i = 0; i < head_dim; i++) plane[ae_kv8_k_at(head_dim, place, i)] = digits[p][i];
    plane = (int8_t *)page + ae_kv_key_bytes(type, head_dim);
    if (vb == 4) ae_ref_turn(v, head_dim, x);
    d[AE_KV_PAGE + place] = take_digits(vb == 4 ? x : v, head_dim, vb, digits);
    for (uint32_t i = 0; vb == 4 && i < head_dim; i++)
        put_half((uint8_t *)plane + ae_kv4_v_at(head_dim, place, i), i & 16, digits[0][i]);
    for (uint32_t p = 0; p < vb / 8; p++, plane += AE_KV8_CODES(head_dim))
        for (uint32_t i = 0; i < head_dim; i++) plane[ae_kv_v_at(head_dim, place, i)] = digits[p][i];
}

void ae_ref_kv_write_q8(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place)
{
    write_coded(k, v, head_dim, page, place, AE_KV_Q8_0);
}

void ae_ref_kv_write_i16(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place)
{
    write_coded(k, v, head_dim, page, place, AE_KV_I16);
}

void ae_ref_kv_write_i16_q8(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place)
{
    write_coded(k, v, head_dim, page, place, AE_KV_I16_Q8_0);
}

void ae_ref_kv_write_q8_i16(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place)
{
    write_coded(k, v, head_dim, page, place, AE_KV_Q8_0_I16);
}

void ae_ref_kv_write_q4(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place)
{
    write_coded(k, v, head_dim, page, place, AE_KV_Q4_0);
}

void ae_ref_kv_write_q8_q4(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place)
{
    write_coded(k, v, head_dim, page, place, AE_KV_Q8_0_Q4_0);
}

void ae_ref_kv_write_i16_q4(const float *k, const float *v, uint32_t head_dim, void *page, uint32_t place)
{
    write_coded(k, v, head_dim, page, place, AE_KV_I16_Q4_0);
}

/* arithmetic.h - the parts of the reference's arithmetic that the kernels of all devices share: activation functions, rounding
 * to codes, constants of the quantized forms.
 *
 * Owns nothing. Compiled as C for the host and as CUDA C++ for the GPU kernels. cpu/ref/kernels.h says where each is used.
 */
#ifndef AE_BACKEND_ARITHMETIC_H
#define AE_BACKEND_ARITHMETIC_H

#include "backend/product.h"
#include "base/math/fmath.h"
#include "base/math/hd.h"

/* ---- Codes of activations ----------------------------------------------------------------------- */

/* The codes that the largest element of a group may get: each gives one of eight scales to try. The rounding errors of 32
 * elements differ from scale to scale, so the best of eight has less squared error than always 127. The codes are whole
 * numbers because then the largest element, which often matters most, is exact. SmolLM2 Q4_1, 6144 tokens, KL divergence from
 * float arithmetic: always 127 about 3.6e-3, these 3.13e-3, sixteen 3.03e-3, eight from 127.4 in steps of 0.7 about 3.4e-3;
 * llama.cpp 3.39e-3. */
#define AE_QUANT_TRIES 8
#define AE_QUANT_TOPS {127, 126, 125, 124, 123, 122, 121, 120}

/* Returns the magic number plus x * inv, which rounds to the nearest even integer. */
AE_HD static inline float ae_add_magic(float x, float inv)
{
    return fmaf(x, inv, AE_EXP_MAGIC);
}

/* Returns x * inv rounded to the nearest integer, ties to even. */
AE_HD static inline int32_t ae_round_magic(float x, float inv)
{
    const float t = ae_add_magic(x, inv);
    uint32_t bits;
    memcpy(&bits, &t, 4);
    return (int32_t)(bits - 0x4B400000u);
}

/* ---- Attention ---------------------------------------------------------------------------------- */

/* e^-60 is negligible compared with 1, but products with it are still normal numbers. Subnormal ones take a CPU a hundred
 * cycles (1B shape, random weights, 16 rows after 4096 positions: half of the time of attention over q8_0). */
#define AE_ATTN_LOWEST (-60.0f)
#define AE_KV_WEIGHT 16383.0f /* two digits of seven bits: each is the same as a signed and as an unsigned byte */
#define AE_KV_QUERY 16256.0f  /* two signed digits, 128 * hi + lo with lo from -64 to 63 */

/* Codes of 4 bits stand for these levels of -127 to 127, the best sixteen for a normal distribution (Lloyd, Max), which turned
 * rows have approximately. These are the upper half of the levels and the limits between them; the lower half is the same with
 * a minus sign. The largest element of a row is tried at each of AE_KV4_TOPS. */
#define AE_KV4_LEVELS {6, 18, 31, 44, 58, 75, 96, 127}
#define AE_KV4_LIMITS {12, 24.5f, 37.5f, 51, 66.5f, 85.5f, 111.5f}
#define AE_KV4_TRIES 5
#define AE_KV4_TOPS {127, 115, 103, 140, 92}

/* Returns e(x) of the attention's arithmetic (cpu/ref/kernels.h). */
AE_HD static inline float ae_attn_exp(float x)
{
    return ae_expf(x > AE_ATTN_LOWEST ? x : AE_ATTN_LOWEST);
}

/* ---- Activation functions ----------------------------------------------------------------------- */

#define AE_GELU_A (-1.5957691216057308f) /* -2 sqrt(2 / pi) */
#define AE_GELU_B 0.044715f
#define AE_OAI_A (-1.702f)
#define AE_WKV_BOUND (-0.606531f) /* bound of RWKV 7's decay, -e^-0.5 */
/* Coefficients of p, the highest first, in log(Phi(g) / Phi(-g)) = g p(g^2), with the normal distribution Phi, fitted up to g =
 * 5.25. The GELU computed with it has an error below 4e-7 of its value from -2 on, and below 6e-7 everywhere. */
#define AE_GELU_ERF_TOP 27.5625f
#define AE_GELU_ERF {4.0993554037416224e-13f, -3.861889974476895e-11f, 1.413357764157297e-09f, -2.238753360472856e-08f, \
                     -7.745973640282955e-09f, 6.537610261148075e-06f, -0.00010664011642802507f, -7.061020005494356e-05f, \
                     0.07266905158758163f, 1.5957695245742798f}
#define AE_GELU_ERF_N 10

AE_HD static inline float ae_minf(float a, float b) { return a < b ? a : b; }
AE_HD static inline float ae_maxf(float a, float b) { return a > b ? a : b; }

AE_HD static inline float ae_gelu_erf_of(float g)
{
    const float c[AE_GELU_ERF_N] = AE_GELU_ERF;
    const float t = ae_minf(g * g, AE_GELU_ERF_TOP);
    float p = c[0];
    for (int i = 1; i < AE_GELU_ERF_N; i++) p = fmaf(p, t, c[i]);
    return g / (1.0f + ae_expf(-g * p));
}

/* cap * tanh(x / cap) = cap * (1 - 2 / (e^(2 x / cap) + 1)). The term x * 0 makes the result NaN if x is not finite. */
AE_HD static inline float ae_softcapf(float x, float cap)
{
    const float t = x / cap;
    return fmaf(x, 0.0f, cap * (1.0f - 2.0f / (ae_expf(t + t) + 1.0f)));
}

/* f(g) of ae_glu */
AE_HD static inline float ae_glu_of(ae_glu kind, float g, float limit)
{
    switch (kind) {
    case AE_GLU_SILU: return ae_siluf(g);
    case AE_GLU_GELU: return g / (1.0f + ae_expf(AE_GELU_A * fmaf(AE_GELU_B * (g * g), g, g)));
    case AE_GLU_RELU2: return ae_maxf(g, 0.0f) * ae_maxf(g, 0.0f);
    case AE_GLU_SIGMOID: return 1.0f / (1.0f + ae_expf(-g));
    case AE_GLU_OAI: return ae_minf(g, limit) / (1.0f + ae_expf(AE_OAI_A * ae_minf(g, limit)));
    case AE_GLU_SILU_CLAMPED: return ae_minf(ae_siluf(g), limit);
    case AE_GLU_RELU: return ae_maxf(g, 0.0f);
    case AE_GLU_SILU_LIMITED: return ae_siluf(ae_minf(g, limit));
    case AE_GLU_SOFTPLUS: return ae_softplusf(g);
    case AE_GLU_GELU_ERF: return ae_gelu_erf_of(g);
    case AE_GLU_LINEAR: return g;
    case AE_GLU_SITU: return ae_softcapf(g, limit) / (1.0f + ae_expf(-g));
    case AE_GLUS: break;
    }
    return 0.0f;
}

/* Returns the factor of f(g), computed from u; with AE_GLU_SITU `limit` is its up_limit. */
AE_HD static inline float ae_glu_times(ae_glu kind, float u, float limit)
{
    if (kind == AE_GLU_OAI) return ae_maxf(ae_minf(u, limit), -limit) + 1.0f;
    if (kind == AE_GLU_SILU_CLAMPED || kind == AE_GLU_SILU_LIMITED) return ae_maxf(ae_minf(u, limit), -limit);
    if (kind == AE_GLU_SITU && limit > 0.0f) return ae_softcapf(u, limit);
    return u;
}

/* xIELU: p x^2 + beta x above 0, else n (e^min(x, eps) - 1 - x) + beta x */
AE_HD static inline float ae_xieluf(float x, float p, float n, float beta, float eps)
{
    if (x > 0.0f) return fmaf(p * x, x, beta * x);
    return fmaf(n, (ae_expf(ae_minf(x, eps)) - 1.0f) - x, beta * x);
}

/* Returns where the biases of the positions from `pos` on begin in a head's row; those of 16 may be read. */
AE_HD static inline uint32_t ae_attn_bias_at(int32_t own, int32_t pos)
{
    const int64_t at = (int64_t)pos - own + AE_BIAS_REACH + AE_BIAS_PAD, most = AE_BIAS_ROW - 16;
    return (uint32_t)(at < 0 ? 0 : at > most ? most : at);
}

/* Returns a score reduced by the cost of its distance. */
AE_HD static inline float ae_biased(float score, float slope, int32_t own, int32_t pos)
{
    return fmaf(-slope, (float)(own > pos ? own - pos : pos - own), score);
}

#endif

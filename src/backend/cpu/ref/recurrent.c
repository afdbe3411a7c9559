/* recurrent.c - the definition of the recurrent operations; backend/recurrent.h states the arithmetic. */
#include <math.h>

#include "backend/cpu/ref/ref.h"
#include "base/math/fmath.h"

void ae_ref_l2norm(const float *x, float eps, uint32_t n, float *y)
{
    float a[64] = {0};
    for (uint32_t i = 0; i < n; i++) a[i % 64] = fmaf(x[i], x[i], a[i % 64]);
    const float inv = 1.0f / sqrtf(ae_sum64(a) + eps);
    for (uint32_t i = 0; i < n; i++) y[i] = x[i] * inv;
}

void ae_ref_conv(const float *const *rows, const float *weight, size_t stride, const float *bias, uint32_t n_taps, uint32_t n,
                 bool silu, float *y)
{
    for (uint32_t i = 0; i < n; i++) {
        float c = 0;
        for (uint32_t j = 0; j < n_taps; j++) c = fmaf(weight[j * stride + i], rows[j][i], c);
        if (bias) c += bias[i];
        y[i] = silu ? ae_siluf(c) : c;
    }
}

void ae_ref_state_absorb(float *s, uint32_t key_dim, float alpha, const float *k, const float *d)
{
    for (uint32_t i = 0; i < key_dim; i++)
        for (uint32_t j = 0; j < AE_STATE_TILE; j++)
            s[i * AE_STATE_TILE + j] = fmaf(alpha, s[i * AE_STATE_TILE + j], k[i] * d[j]);
}

/* Returns the dot product of column j. */
static float dot(const float *s, const float *k, uint32_t key_dim, uint32_t j)
{
    const uint32_t quarter = key_dim / 4;
    float sum[4] = {0};
    for (uint32_t p = 0; p < 4; p++)
        for (uint32_t i = p * quarter; i < (p + 1) * quarter; i++) sum[p] = fmaf(s[i * AE_STATE_TILE + j], k[i], sum[p]);
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

void ae_ref_state_step(const float *from, float *to, const ae_state_step *step)
{
    for (uint32_t j = 0; j < AE_STATE_TILE; j++) {
        if (step->delta) {
            const float decayed = step->alpha * dot(from, step->k, step->key_dim, j);
            step->d[j] = step->beta * (step->v[j] - decayed);
        }
        for (uint32_t i = 0; i < step->key_dim; i++) {
            const float add = step->k[i] * step->d[j];
            to[i * AE_STATE_TILE + j] = fmaf(step->alpha, from[i * AE_STATE_TILE + j], add);
        }
        const float y = dot(to, step->q, step->key_dim, j);
        step->y[j] = step->delta ? y * step->scale : y;
    }
}

void ae_ref_scan_delta(const float *x, const float *bias, const float *v, float *delta, float *d)
{
    for (uint32_t j = 0; j < AE_STATE_TILE; j++) {
        delta[j] = ae_softplusf(bias ? x[j] + bias[j] : x[j]);
        d[j] = v[j] * delta[j];
    }
}

static float scanned(const ae_scan_step *step, float s, uint32_t i, uint32_t j)
{
    const float alpha = ae_expf(step->delta[j] * step->decay[i * AE_STATE_TILE + j]);
    return fmaf(alpha, s, step->k[i] * step->d[j]);
}

void ae_ref_scan_absorb(float *s, const ae_scan_step *step)
{
    for (uint32_t i = 0; i < step->key_dim; i++)
        for (uint32_t j = 0; j < AE_STATE_TILE; j++)
            s[i * AE_STATE_TILE + j] = scanned(step, s[i * AE_STATE_TILE + j], i, j);
}

void ae_ref_scan_step(const float *from, float *to, const ae_scan_step *step)
{
    for (uint32_t j = 0; j < AE_STATE_TILE; j++) {
        for (uint32_t i = 0; i < step->key_dim; i++)
            to[i * AE_STATE_TILE + j] = scanned(step, from[i * AE_STATE_TILE + j], i, j);
        step->y[j] = dot(to, step->q, step->key_dim, j);
    }
}

void ae_ref_keyed_decay(const float *x, const float *bias, float decay, float bound, uint32_t n, float *alpha)
{
    for (uint32_t i = 0; i < n; i++) {
        const float f = bias ? x[i] + bias[i] : x[i];
        const float g = bound != 0.0f ? bound / (1.0f + ae_expf(-(fabsf(decay) * f))) : decay * ae_softplusf(f);
        alpha[i] = ae_expf(g);
    }
}

void ae_ref_keyed_absorb(float *s, uint32_t key_dim, const float *alpha, const float *k, const float *d)
{
    for (uint32_t i = 0; i < key_dim; i++)
        for (uint32_t j = 0; j < AE_STATE_TILE; j++)
            s[i * AE_STATE_TILE + j] = fmaf(k[i], d[j], alpha[i] * s[i * AE_STATE_TILE + j]);
}

void ae_ref_keyed_step(const float *from, float *to, const ae_keyed_step *step)
{
    for (uint32_t j = 0; j < AE_STATE_TILE; j++) {
        for (uint32_t i = 0; i < step->key_dim; i++)
            to[i * AE_STATE_TILE + j] = step->alpha[i] * from[i * AE_STATE_TILE + j];
        step->d[j] = step->beta * (step->v[j] - dot(to, step->k, step->key_dim, j));
        for (uint32_t i = 0; i < step->key_dim; i++)
            to[i * AE_STATE_TILE + j] = fmaf(step->k[i], step->d[j], to[i * AE_STATE_TILE + j]);
        step->y[j] = dot(to, step->q, step->key_dim, j) * step->scale;
    }
}

void ae_ref_lerp(const float *d, const float *w, bool add, const float *x, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++) {
        const float m = !add ? w[i] : w ? y[i] + w[i] : y[i];
        y[i] = fmaf(d[i], m, x[i]);
    }
}

void ae_ref_blend(const float *gate, const float *other, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++) y[i] = fmaf(ae_ref_sigmoid(gate[i]), other[i] - y[i], y[i]);
}

void ae_ref_wkv_decay(const float *x, bool bounded, uint32_t n, float *alpha)
{
    for (uint32_t i = 0; i < n; i++)
        alpha[i] = ae_expf(bounded ? AE_WKV_BOUND / (1.0f + ae_expf(-x[i])) : -ae_expf(x[i]));
}

void ae_ref_wkv_keys(const float *kk, const float *ka, uint32_t n, float *k, float *a, float *erased)
{
    for (uint32_t i = 0; i < n; i++) {
        erased[i] = k[i] * kk[i];
        a[i] = ae_ref_sigmoid(a[i]);
        k[i] = fmaf(k[i] * ka[i], a[i] - 1.0f, k[i]);
    }
}

float ae_ref_wkv_bonus(const float *k, const float *r, const float *u, uint32_t n)
{
    float a[64] = {0};
    for (uint32_t i = 0; i < n; i++) a[i % 64] = fmaf(k[i] * r[i], u[i], a[i % 64]);
    return ae_sum64(a);
}

void ae_ref_wkv6_step(const float *from, float *to, const ae_wkv_step *step)
{
    for (uint32_t j = 0; j < AE_STATE_TILE; j++) {
        const float before = step->after ? 0 : dot(from, step->q, step->key_dim, j);
        for (uint32_t i = 0; i < step->key_dim; i++)
            to[i * AE_STATE_TILE + j] = fmaf(step->k[i], step->v[j], step->alpha[i] * from[i * AE_STATE_TILE + j]);
        if (step->after) step->y[j] = dot(to, step->q, step->key_dim, j) * step->scale;
        else step->y[j] = fmaf(step->bonus, step->v[j], before);
    }
}

static float erased(const ae_wkv_step *step, float s, float e, uint32_t i, float v)
{
    return fmaf(step->k[i], v, fmaf(step->written[i], e, step->alpha[i] * s));
}

void ae_ref_wkv7_step(const float *from, float *to, const ae_wkv_step *step)
{
    for (uint32_t j = 0; j < AE_STATE_TILE; j++) {
        step->e[j] = 0.0f - dot(from, step->erased, step->key_dim, j);
        for (uint32_t i = 0; i < step->key_dim; i++)
            to[i * AE_STATE_TILE + j] = erased(step, from[i * AE_STATE_TILE + j], step->e[j], i, step->v[j]);
        step->y[j] = dot(to, step->q, step->key_dim, j);
    }
}

void ae_ref_wkv7_absorb(float *s, const ae_wkv_step *step)
{
    for (uint32_t i = 0; i < step->key_dim; i++)
        for (uint32_t j = 0; j < AE_STATE_TILE; j++)
            s[i * AE_STATE_TILE + j] = erased(step, s[i * AE_STATE_TILE + j], step->e[j], i, step->v[j]);
}

float ae_ref_softplus(float x)
{
    return x > 20.0f ? x : (float)ae_log(1.0 + ae_exp((double)x));
}

float ae_ref_alpha(float decay, float softplus)
{
    return (float)ae_exp((double)decay * (double)softplus);
}

float ae_ref_sigmoid(float x)
{
    return 1.0f / (1.0f + ae_expf(-x));
}

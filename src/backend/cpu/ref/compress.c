/* compress.c - the definitions of what DeepSeek-V4's layers add to attention and to the stream: compressed rows (ae_compress in
 * backend/attention.h) and the coefficients of streams (ae_hyper in backend/product.h), which all levels use.
 *
 * Owns nothing. Source: arXiv 2512.24880 (hyper-connections), llama.cpp's graph of deepseek4. */
#include <math.h>

#include "backend/cpu/ref/ref.h"
#include "base/math/fmath.h"

/* ---- Compressed rows -------------------------------------------------------------------------------- */

static const float *head_of(const ae_member *m, uint32_t dim, uint32_t head)
{
    return (const float *)((const char *)m->page + head * m->head_bytes) + (size_t)m->place * dim;
}

void ae_ref_compress(const ae_compress *a, const ae_member *members, uint32_t n, float *y)
{
    const uint32_t dim = a->dim, parts = a->n_parts;
    float s[2 * AE_MAX_COMPRESSED];
    for (uint32_t i = 0; i < dim; i++) {
        float top = -INFINITY, sum = 0, v = 0;
        for (uint32_t m = 0; m < n; m++) {
            const uint32_t part = members[m].part;
            s[m] = head_of(&members[m], dim, parts + part)[i] + a->ape[((size_t)members[m].row * parts + part) * dim + i];
            top = s[m] > top ? s[m] : top;
        }
        for (uint32_t m = 0; m < n; m++) {
            const float e = ae_expf(s[m] - top);
            v = fmaf(e, head_of(&members[m], dim, members[m].part)[i], v);
            sum += e;
        }
        y[i] = v / sum;
    }
}

/* ---- Streams ------------------------------------------------------------------------------------------- */

static float sigmoid(float x)
{
    return 1.0f / (1.0f + ae_expf(-x));
}

/* Divides each of n groups of n numbers by its sum: number k of group g is at c[g * group + k * step]. */
static void divide(float *c, uint32_t n, uint32_t group, uint32_t step, float eps)
{
    for (uint32_t g = 0; g < n; g++) {
        float sum = 0;
        for (uint32_t k = 0; k < n; k++) sum += c[g * group + k * step];
        for (uint32_t k = 0; k < n; k++) c[g * group + k * step] /= sum + eps;
    }
}

static void softmax(float *x, uint32_t n, float eps)
{
    float top = -INFINITY, sum = 0;
    for (uint32_t k = 0; k < n; k++) top = x[k] > top ? x[k] : top;
    for (uint32_t k = 0; k < n; k++) sum += x[k] = ae_expf(x[k] - top);
    for (uint32_t k = 0; k < n; k++) x[k] = x[k] / sum + eps;
}

void ae_ref_hyper(const ae_hyper *a, size_t row)
{
    const bool apart = a->magnitude > 0.0f;
    const uint32_t n = a->n, n_all = !a->n_iterations ? n : apart ? 2 * n : n * (2 + n);
    float *x = a->x + row * a->x_stride, *c = x + 2 * n;
    for (uint32_t k = 0; k < n_all; k++) x[k] = x[k] * a->scale[k < n ? 0 : k < 2 * n ? 1 : 2] + a->base[k];
    for (uint32_t k = 0; k < n; k++) x[k] = sigmoid(x[k]) + a->eps;
    if (!a->n_iterations) return;
    for (uint32_t k = n; k < 2 * n; k++) x[k] = apart ? a->magnitude * sigmoid(x[k]) + a->eps : 2.0f * sigmoid(x[k]);
    if (apart) return;
    for (uint32_t k = 0; k < n; k++) softmax(c + k * n, n, a->eps);
    divide(c, n, 1, n, a->eps);
    for (uint32_t i = 1; i < a->n_iterations; i++) {
        divide(c, n, n, 1, a->eps);
        divide(c, n, 1, n, a->eps);
    }
}

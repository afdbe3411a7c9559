/* compress.c - the definitions of what DeepSeek-V4's and Qwen 4's layers add to attention and to the stream: compressed rows
 * (ae_compress in backend/attention.h), a memory of n-grams (ae_ngrams, ae_trail, ae_accord) and the coefficients of streams
 * (ae_hyper in backend/product.h), which all levels use.
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
    for (uint32_t i = 0; i < dim && !a->ape; i++) {
        float sum = 0;
        for (uint32_t m = 0; m < n; m++) sum += head_of(&members[m], dim, members[m].part)[i];
        y[i] = sum / (float)n;
    }
    for (uint32_t i = 0; i < dim && a->ape; i++) {
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

/* ---- A memory of n-grams ------------------------------------------------------------------------------ */

void ae_ref_ngrams(const ae_ngrams *a, const int32_t *tokens, int32_t *y)
{
    for (uint32_t k = 0; k < (a->n_tokens - 1) * a->n_each; k++) {
        uint64_t mixed = 0;
        for (uint32_t j = 0; j < 2 + k / a->n_each; j++) mixed ^= (uint64_t)tokens[j] * a->factors[j];
        y[k] = (int32_t)(mixed % a->sizes[k] + a->offsets[k]);
    }
}

void ae_ref_trail(const ae_trail *a, uint32_t head, const float *const *places, float *y)
{
    const float *w = a->weight + (size_t)head * a->dim * a->n_taps;
    for (uint32_t i = 0; i < a->dim; i++, w += a->n_taps) {
        float s = 0;
        for (uint32_t j = 0; j < a->n_taps; j++)
            if (places[j]) s = fmaf(w[j], places[j][i], s);
        y[i] = ae_siluf(s);
    }
}

void ae_ref_accord(const ae_accord *a, size_t row)
{
    for (uint32_t k = 0; k < a->n_parts; k++) {
        const size_t at = (row * a->n_parts + k) * a->dim;
        float lane[16] = {0}, s = 0;
        for (uint32_t i = 0; i < a->dim; i++) lane[i % 16] = fmaf(a->x[at + i], a->x2[at + i], lane[i % 16]);
        for (uint32_t i = 0; i < 16; i++) s += lane[i];
        s *= a->scale;
        const float root = sqrtf(fmaxf(fabsf(s), 1e-6f)), g = s > 0 ? root : s < 0 ? -root : s;
        a->y[row * a->y_stride + k] = 1.0f / (1.0f + ae_expf(-g));
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

/* route.c - chooses a row's experts and their weights: the arithmetic of ae_routing (backend/moe.h). */
#include <math.h>

#include "backend/cpu/ref/ref.h"
#include "base/math/fmath.h"

/* Returns the sum of n values: value i belongs to expert ids[i], or to expert i if ids is NULL. */
static float sum_of(const float *p, const uint32_t *ids, uint32_t n)
{
    float a[16] = {0};
    for (uint32_t i = 0; i < n; i++) a[(ids ? ids[i] : i) % 16] += p[i];
    return ae_sum16(a);
}

/* p[i] = softmax over the n logits of experts ids[i], or i; NaN never becomes the maximum. */
static void softmax(const float *logits, const uint32_t *ids, uint32_t n, float *p)
{
    float top = -INFINITY;
    for (uint32_t i = 0; i < n; i++) top = logits[i] > top ? logits[i] : top;
    for (uint32_t i = 0; i < n; i++) p[i] = ae_expf(logits[i] - top);
    const float sum = sum_of(p, ids, n);
    for (uint32_t i = 0; i < n; i++) p[i] /= sum;
}

static void sigmoid(const float *logits, uint32_t n, float *p)
{
    for (uint32_t i = 0; i < n; i++) p[i] = 1.0f / (1.0f + ae_expf(-logits[i]));
}

/* Returns whether logit v of expert i is taken before w of expert j. */
static bool comes_before(float v, uint32_t i, float w, uint32_t j)
{
    if (isnan(v) != isnan(w)) return isnan(w);
    return v > w || (!(v < w) && i < j);
}

static void sparse_mixer(const float *logits, uint32_t n, float *p)
{
    for (uint32_t e = 0; e < n; e++) {
        const float top = logits[e];
        float sum = 0.0f;
        for (uint32_t j = 0; j < n; j++) {
            const float v = logits[j], size = fabsf(v) > top ? fabsf(v) : top;
            if (j == e || (!comes_before(v, j, top, e) && !((top - v) / size > 0.02f))) sum += ae_expf(v - top);
        }
        p[e] = 1.0f / sum;
    }
}

/* Marks the n_used experts with the highest scores; among equal scores the lower id wins. */
static void choose(const float *score, uint32_t n, uint32_t n_used, bool *chosen)
{
    for (uint32_t e = 0; e < n; e++) chosen[e] = false;
    for (uint32_t i = 0; i < n_used; i++) {
        uint32_t best = n;
        for (uint32_t e = 0; e < n; e++) {
            if (chosen[e]) continue;
            if (best == n || score[e] > score[best] || (isnan(score[best]) && !isnan(score[e]))) best = e;
        }
        chosen[best] = true;
    }
}

/* Sets the scores of all groups but the best n_groups_used to -infinity. A group is rated by the sum of its two best scores. */
static void drop_groups(const ae_routing *r, float *score)
{
    const uint32_t n = r->n_experts / r->n_groups;
    float sums[AE_MAX_EXPERTS];
    bool kept[AE_MAX_EXPERTS];
    for (uint32_t g = 0; g < r->n_groups; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (uint32_t e = g * n; e < (g + 1) * n; e++) {
            if (score[e] > first) second = first, first = score[e];
            else if (score[e] > second) second = score[e];
        }
        sums[g] = n > 1 ? first + second : first;
    }
    choose(sums, r->n_groups, r->n_groups_used, kept);
    for (uint32_t e = 0; e < r->n_experts; e++)
        if (!kept[e / n]) score[e] = -INFINITY;
}

/* Returns whether the chosen experts, fewer than the model uses, share the weight of all n_full that it would use. */
static bool takes_all_weight(const ae_routing *r)
{
    return r->n_full > r->n_used && !r->renorm && r->gate != AE_GATE_SOFTMAX_CHOSEN && r->gate != AE_GATE_SPARSE_MIXER;
}

/* Returns the sum of p over the n_full experts with the highest scores; chosen: scratch. */
static float best_sum(const ae_routing *r, const float *score, const float *p, bool *chosen)
{
    float a[16] = {0};
    choose(score, r->n_experts, r->n_full, chosen);
    for (uint32_t e = 0; e < r->n_experts; e++)
        if (chosen[e]) a[e % 16] += p[e];
    return ae_sum16(a);
}

static void sqrt_softplus(const float *logits, uint32_t n, float *p)
{
    for (uint32_t i = 0; i < n; i++) p[i] = sqrtf(ae_softplusf(logits[i]));
}

void ae_ref_route(const ae_routing *r, const float *logits, const float *bias, const float *fixed, float *p, uint32_t *ids,
                  float *weights)
{
    const uint32_t n = r->n_experts;
    bool chosen[AE_MAX_EXPERTS];
    float score[AE_MAX_EXPERTS] = {0}; /* initialized, since gcc does not see that n are written */
    uint32_t n_ids = 0;
    if (r->gate == AE_GATE_SOFTMAX) softmax(logits, NULL, n, p);
    else if (r->gate == AE_GATE_SIGMOID) sigmoid(logits, n, p);
    else if (r->gate == AE_GATE_SQRT_SOFTPLUS) sqrt_softplus(logits, n, p);
    else if (r->gate == AE_GATE_SPARSE_MIXER) sparse_mixer(logits, n, p);
    else for (uint32_t e = 0; e < n; e++) p[e] = logits[e];
    for (uint32_t e = 0; e < n; e++) score[e] = bias ? p[e] + bias[e] : logits[e];
    if (r->n_groups > 1) {
        for (uint32_t e = 0; e < n && !bias; e++) score[e] = p[e];
        drop_groups(r, score);
    }
    if (!fixed) choose(score, n, r->n_used, chosen);
    for (uint32_t e = 0; fixed && e < n; e++) chosen[e] = false;
    for (uint32_t i = 0; fixed && i < r->n_used; i++) chosen[(uint32_t)fixed[i] % n] = true;
    for (uint32_t e = 0; e < n; e++) {
        if (!chosen[e]) continue;
        weights[n_ids] = p[e];
        ids[n_ids++] = e;
    }
    if (r->gate == AE_GATE_SOFTMAX_CHOSEN) {
        for (uint32_t i = 0; i < n_ids; i++) p[i] = weights[i];
        softmax(p, ids, n_ids, weights);
    }
    float sum = sum_of(weights, ids, n_ids), scale = r->scale;
    if (!(sum > 0x1p-14f)) sum = 0x1p-14f;
    if (takes_all_weight(r)) scale *= best_sum(r, score, p, chosen);
    const bool divided = r->renorm || takes_all_weight(r);
    for (uint32_t i = 0; i < n_ids; i++) weights[i] = (divided ? weights[i] / sum : weights[i]) * scale;
}

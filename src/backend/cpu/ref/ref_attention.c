/* ref_attention.c - the definition of attention: one query at a time, position by position.
 *
 * A draft row's ancestors are read from the slots its path names, in position order: they take part
 * exactly as they would had they been accepted before (DESIGN section 2). */
#include <math.h>
#include <string.h>

#include "backend/cpu/ref/ref.h"
#include "base/fmath.h"

static const uint16_t *slot_page(const ae_attn_tile *t, int32_t slot)
{
    return t->base + (size_t)t->table[slot / AE_KV_PAGE] * t->page_stride;
}

static int32_t slot_of(const ae_attn_query *query, int32_t pos)
{
    return pos < query->n_inplace ? pos : query->path[pos - query->n_inplace];
}

static float score(const ae_attn_tile *t, const ae_attn_query *query, int32_t slot)
{
    const uint32_t place = (uint32_t)slot % AE_KV_PAGE;
    const uint16_t *k = slot_page(t, slot) + (size_t)(place / 16) * t->head_dim * 16 + place % 16;
    float s = 0;
    for (uint32_t i = 0; i < t->head_dim; i++) s = fmaf(ae_f16_to_f32(k[i * 16]), query->q[i] * t->scale, s);
    return s;
}

/* One chunk: positions [first, last] of it; leaves sum and maximum, o [head_dim]. */
static void chunk(const ae_attn_tile *t, const ae_attn_query *query, int32_t first, int32_t last, float *m, float *l, float *o)
{
    float s[AE_KV_PAGE], sums[16] = {0};
    float top = -INFINITY; /* a NaN never becomes the maximum, wherever it stands */
    for (int32_t p = first; p <= last; p++) {
        float x = score(t, query, slot_of(query, p));
        s[p % AE_KV_PAGE] = x;
        top = x > top ? x : top;
    }
    memset(o, 0, t->head_dim * sizeof *o);
    for (int32_t p = first; p <= last; p++) {
        const int32_t slot = slot_of(query, p);
        const uint16_t *v = slot_page(t, slot) + AE_KV_K_ELEMENTS(t->head_dim) + (size_t)(slot % AE_KV_PAGE) * t->head_dim;
        const float w = ae_expf(s[p % AE_KV_PAGE] - top);
        sums[p % 16] += w;
        for (uint32_t i = 0; i < t->head_dim; i++) o[i] = fmaf(w, ae_f16_to_f32(v[i]), o[i]);
    }
    *m = top;
    *l = ae_sum16(sums);
}

void ae_ref_attention(const ae_attn_tile *t)
{
    float *o = t->scratch;
    for (uint32_t i_query = 0; i_query < t->n_queries; i_query++) {
        const ae_attn_query *query = &t->query[i_query];
        const int32_t low = t->window && query->pos >= (int32_t)t->window ? query->pos - (int32_t)t->window + 1 : 0;
        float big_m = 0, big_l = 0;
        bool empty = true;
        for (int32_t first = low; first <= query->pos;) {
            int32_t last = first / AE_KV_PAGE * AE_KV_PAGE + AE_KV_PAGE - 1;
            if (last > query->pos) last = query->pos;
            float m, l;
            if (empty) {
                chunk(t, query, first, last, &big_m, &big_l, query->y);
                empty = false;
            } else {
                chunk(t, query, first, last, &m, &l, o);
                const float n = big_m > m ? big_m : m, a = ae_expf(big_m - n), b = ae_expf(m - n);
                big_l = fmaf(big_l, a, l * b);
                for (uint32_t i = 0; i < t->head_dim; i++) query->y[i] = fmaf(query->y[i], a, o[i] * b);
                big_m = n;
            }
            first = last + 1;
        }
        const float inv = 1.0f / big_l;
        for (uint32_t i = 0; i < t->head_dim; i++) query->y[i] *= inv;
    }
}

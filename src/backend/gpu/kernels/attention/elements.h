/* elements.h - elements of keys and values of f16 and f32, for kernels that compute chains of fma. Device code. */
#ifndef AE_BACKEND_GPU_KERNELS_ATTENTION_ELEMENTS_H
#define AE_BACKEND_GPU_KERNELS_ATTENTION_ELEMENTS_H

#include "backend/gpu/kernels/attention/tile.h"

/* Number of elements in a group of 16 bytes. */
#define ATTN_GROUP(T) ((T) == AE_KV_F32 ? 4 : 8)

/* Returns element i of words of f16 or f32. */
template <int T> AE_DEV float attn_element(const uint32_t *words, int i)
{
    if (T == AE_KV_F32) return ae_as_float(words[i]);
    return ae_half(static_cast<uint16_t>(i % 2 ? words[i / 2] >> 16 : words[i / 2]));
}

/* Loads element i of all queries times the scale; i counts the elements of a row of keys, padding included. */
template <int T, int Q> AE_DEV void attn_query_elements(const ae_gpu_attention_args &a, const attn_tile *t,
                                                        const uint32_t index[Q], uint32_t i, float x[Q])
{
    const uint32_t n_rope = a.kv.form.n_rope, dim = n_rope + a.kv.form.head_dim, rope = a.kv.form.rope_groups * ATTN_GROUP(T);
    const uint32_t from = i < rope ? i : i - rope + n_rope;
    const bool is_there = i < rope ? i < n_rope : from < dim;
    AE_UNROLL
    for (uint32_t q = 0; q < Q; q++)
        x[q] = q < t->n && is_there ? a.q[static_cast<size_t>(index[q]) * dim + from] * a.scale : 0.0f;
}

/* Returns the first byte of a place's value within its block. */
template <int T> AE_DEV uint32_t attn_value_at(const ae_gpu_attention_args &a, uint32_t place)
{
    const ae_gpu_kv_form *f = &a.kv.form;
    return f->value_planes ? ae_gpu_kv_value_at(f, 0, place) : ae_gpu_kv_key_at(f, 0, f->rope_groups, place);
}

/* Returns the byte of element e, counted from the value's first byte. */
template <int T> AE_DEV uint32_t attn_element_at(const ae_gpu_attention_args &a, uint32_t e)
{
    const uint32_t width = T == AE_KV_F32 ? 4 : 2, n = ATTN_GROUP(T);
    return a.kv.form.value_planes ? e * width : e / n * AE_KV_PAGE * AE_GPU_KV_GROUP + e % n * width;
}

typedef struct attn_words {
    uint32_t w[4];
} attn_words;

/* Loads E elements of a value from address p on. */
template <int T, int E> AE_DEV attn_words attn_load(const uint8_t *p)
{
    enum { BYTES = E * (T == AE_KV_F32 ? 4 : 2) };
    attn_words v = {};
    if (BYTES == 16) {
        const uint4 x = ae_load16(p);
        v.w[0] = x.x, v.w[1] = x.y, v.w[2] = x.z, v.w[3] = x.w;
    } else if (BYTES == 8) {
        const uint2 x = ae_load8(p);
        v.w[0] = x.x, v.w[1] = x.y;
    } else {
        v.w[0] = ae_load4(p);
    }
    return v;
}

/* Merges E elements of o, from e on, with O of query q. E is even. */
template <int E> AE_DEV void attn_join_values(const ae_gpu_attention_args &a, const attn_tile *t, uint32_t q, uint32_t e,
                                              const float *o)
{
    if (e >= a.kv.form.head_dim) return;
    const float2 f = attn_factor(t, q);
    uint8_t *sum = t->shared + t->room.sum + (q * t->room.n + e) * 4;
    AE_UNROLL
    for (int i = 0; i < E; i += 2) {
        const float2 old = AE_LOAD_SHARED(float2, sum + i * 4);
        AE_STORE_SHARED(float2, sum + i * 4, make_float2(attn_joined(old.x, o[i], f), attn_joined(old.y, o[i + 1], f)));
    }
}

/* Writes the results of walked queries; this thread computes every n_threads-th element. */
AE_DEV void attn_results(const ae_gpu_attention_args &a, const attn_tile *t, uint32_t thread, uint32_t n_threads)
{
    const uint32_t head_dim = a.kv.form.head_dim;
    for (uint32_t q = 0; q < t->n; q++) {
        float *y = a.y + static_cast<size_t>(attn_index(t, q)) * head_dim;
        const float f = attn_factor(t, q).x;
        for (uint32_t e = thread; e < head_dim; e += n_threads)
            y[e] = AE_LOAD_SHARED(float, t->shared + t->room.sum + (q * t->room.n + e) * 4) * f;
    }
}

#endif

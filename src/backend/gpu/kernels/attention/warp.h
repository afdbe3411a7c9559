/* warp.h - attention over caches of f16 and f32 by warps, which walk all chunks of a tile each. Device code.
 *
 * Scores: a lane has two positions of a chunk and walks the elements. Values: a lane has up to four elements and walks the
 * positions.
 */
#ifndef AE_BACKEND_GPU_KERNELS_ATTENTION_WARP_H
#define AE_BACKEND_GPU_KERNELS_ATTENTION_WARP_H

#include "backend/gpu/kernels/attention/elements.h"

/* This lane's positions of a chunk, lane and lane + 32. */
typedef struct warp_positions {
    const uint8_t *block[2];
    uint32_t place[2];
} warp_positions;

/* One group of elements of the keys at both positions. */
typedef struct key_pair {
    uint4 k[2];
} key_pair;

/* Loads the queries times the scale, elements first. */
template <int T, int Q> AE_DEV void warp_load_queries(const ae_gpu_attention_args &a, const attn_tile *t)
{
    uint32_t index[Q];
    attn_indices<Q>(t, index);
    for (uint32_t i = attn_lane(); i < t->room.n; i += 32) {
        float x[Q];
        attn_query_elements<T, Q>(a, t, index, i, x);
        AE_UNROLL
        for (int q = 0; q < Q; q += 4)
            AE_STORE_SHARED(float4, t->shared + t->room.query + (i * Q + q) * 4,
                            make_float4(x[q], x[q + 1], x[q + 2], x[q + 3]));
    }
}

/* Groups i to i + N - 1. */
template <int N> AE_DEV void warp_load_keys(const warp_positions *at, uint32_t i, key_pair p[N])
{
    AE_UNROLL
    for (int half = 0; half < 2; half++) {
        const uint8_t *key = at->block[half] + (i * AE_KV_PAGE + at->place[half]) * AE_GPU_KV_GROUP;
        AE_UNROLL
        for (int j = 0; j < N; j++) p[j].k[half] = ae_load16(key + j * AE_KV_PAGE * AE_GPU_KV_GROUP);
    }
}

/* Adds one group of elements to all chains. */
template <int T, int Q> AE_DEV void warp_score_group(const uint8_t *query, const key_pair *p, float s[2][Q])
{
    const uint32_t k0[4] = {p->k[0].x, p->k[0].y, p->k[0].z, p->k[0].w};
    const uint32_t k1[4] = {p->k[1].x, p->k[1].y, p->k[1].z, p->k[1].w};
    AE_UNROLL
    for (int i = 0; i < ATTN_GROUP(T); i++) {
        const float x = attn_element<T>(k0, i), y = attn_element<T>(k1, i);
        AE_UNROLL
        for (int q = 0; q < Q; q += 4) {
            const float4 v = AE_LOAD_SHARED(float4, query + (i * Q + q) * 4);
            s[0][q] = ae_fma(x, v.x, s[0][q]), s[1][q] = ae_fma(y, v.x, s[1][q]);
            s[0][q + 1] = ae_fma(x, v.y, s[0][q + 1]), s[1][q + 1] = ae_fma(y, v.y, s[1][q + 1]);
            s[0][q + 2] = ae_fma(x, v.z, s[0][q + 2]), s[1][q + 2] = ae_fma(y, v.z, s[1][q + 2]);
            s[0][q + 3] = ae_fma(x, v.w, s[0][q + 3]), s[1][q + 3] = ae_fma(y, v.w, s[1][q + 3]);
        }
    }
}

/* Computes the scores of all queries; those of queries that are not members are not used. Loads run DEPTH groups ahead. */
template <int T, int Q> AE_DEV void warp_scores(const ae_gpu_attention_args &a, const attn_tile *t, const warp_positions *where,
                                                float s[2][Q])
{
    enum { DEPTH = 2, STEP = ATTN_GROUP(T) * Q * 4 };
    const uint32_t n = a.kv.form.groups;
    const uint8_t *query = t->shared + t->room.query;
    key_pair now[DEPTH] = {}, next[DEPTH] = {};
    AE_UNROLL
    for (int q = 0; q < Q; q++) s[0][q] = s[1][q] = 0;
    uint32_t at = 0;
    if (n >= DEPTH) warp_load_keys<DEPTH>(where, 0, now);
    AE_NO_UNROLL
    for (; at + DEPTH <= n; at += DEPTH, query += DEPTH * STEP) {
        if (at + 2 * DEPTH <= n) warp_load_keys<DEPTH>(where, at + DEPTH, next);
        AE_UNROLL
        for (uint32_t i = 0; i < DEPTH; i++) warp_score_group<T, Q>(query + i * STEP, &now[i], s);
        AE_UNROLL
        for (int i = 0; i < DEPTH; i++) now[i] = next[i];
    }
    for (; at < n; at++, query += STEP) {
        warp_load_keys<1>(where, at, now);
        warp_score_group<T, Q>(query, &now[0], s);
    }
}

/* Turns scores s [2][Q] into weights, which all lanes get. Lane q merges m and l of query q. */
template <int Q> AE_DEV void warp_softmax(const ae_gpu_attention_args &a, const attn_tile *t, const attn_group *g,
                                          int32_t chunk, float s[2][Q], float *big_m, float *big_l)
{
    const int32_t pos = chunk * AE_KV_PAGE + static_cast<int32_t>(attn_lane());
    float own_m = 0, own_l = 0;
    AE_UNROLL
    for (uint32_t q = 0; q < Q; q++) { /* results for queries that are not members are not used */
        const int4 at = attn_state(t, q);
        float m, l;
        const bool sees0 = at.x <= pos && pos <= at.y, sees1 = at.x <= pos + 32 && pos + 32 <= at.y;
        attn_weigh(a, t, q, pos, sees0, sees1, &s[0][q], &s[1][q], &m, &l);
        if (attn_lane() == q) own_m = m, own_l = l;
    }
    AE_UNROLL
    for (int i = 0; i < 2; i++)
        AE_UNROLL
        for (int q = 0; q < Q; q += 4)
            AE_STORE_SHARED(float4, t->shared + t->room.weight + ((attn_lane() + 32 * i) * AE_ATTENTION_WEIGHTS(Q) + q) * 4,
                            make_float4(s[i][q], s[i][q + 1], s[i][q + 2], s[i][q + 3]));
    const uint32_t q = attn_lane();
    if (q < t->n && g->members >> q & 1) attn_join(t, q, chunk, own_m, own_l, big_m, big_l);
}

/* Adds a position to all chains; weight: its weights. CHECK: some queries do not see the position. */
template <int T, int Q, int E, bool CHECK> AE_DEV void warp_add_value(const uint8_t *weight, const attn_words *v, float o[Q][E])
{
    float x[E];
    AE_UNROLL
    for (int e = 0; e < E; e++) x[e] = attn_element<T>(v->w, e);
    AE_UNROLL
    for (int q = 0; q < Q; q += 4) {
        const float4 f = AE_LOAD_SHARED(float4, weight + q * 4);
        const float p[4] = {f.x, f.y, f.z, f.w};
        AE_UNROLL
        for (int i = 0; i < 4; i++)
            AE_UNROLL
            for (int e = 0; e < E; e++)
                if (!CHECK || p[i] >= 0) o[q + i][e] = ae_fma(p[i], x[e], o[q + i][e]);
    }
}

/* Adds positions j to hi of the chunk, which are in place and STRIDE bytes apart, in whole batches; loads run a batch ahead.
 * Returns the first position left. */
template <int T, int Q, int E, int STRIDE> AE_DEV int32_t warp_sum_batches(const attn_tile *t, int32_t j, int32_t hi,
                                                                           uint32_t at, float o[Q][E])
{
    enum { DEPTH = 4, STEP = AE_ATTENTION_WEIGHTS(Q) * 4 };
    const uint8_t *weight = t->shared + t->room.weight + j * STEP, *value = attn_address(t, 0) + at + j * STRIDE;
    attn_words now[DEPTH] = {}, next[DEPTH] = {};
    if (j + DEPTH > hi + 1) return j;
    AE_UNROLL
    for (int i = 0; i < DEPTH; i++) now[i] = attn_load<T, E>(value + i * STRIDE);
    AE_NO_UNROLL
    for (; j + DEPTH <= hi + 1; j += DEPTH, weight += DEPTH * STEP) {
        value += DEPTH * STRIDE;
        AE_UNROLL
        for (int i = 0; i < DEPTH; i++)
            if (j + 2 * DEPTH <= hi + 1) next[i] = attn_load<T, E>(value + i * STRIDE);
        AE_UNROLL
        for (int i = 0; i < DEPTH; i++) warp_add_value<T, Q, E, false>(weight + i * STEP, &now[i], o);
        AE_UNROLL
        for (int i = 0; i < DEPTH; i++) now[i] = next[i];
    }
    return j;
}

/* Adds positions j to hi of the chunk, wherever they are. */
template <int T, int Q, int E> AE_DEV void warp_sum_values(const attn_tile *t, int32_t j, int32_t hi, uint32_t at,
                                                           float o[Q][E])
{
    enum { DEPTH = 4, STEP = AE_ATTENTION_WEIGHTS(Q) * 4 };
    AE_NO_UNROLL
    for (; j <= hi; j += DEPTH) {
        attn_words v[DEPTH];
        AE_UNROLL
        for (int i = 0; i < DEPTH; i++) v[i] = attn_load<T, E>(attn_address(t, ae_min(j + i, hi)) + at);
        AE_UNROLL
        for (int i = 0; i < DEPTH; i++)
            if (j + i <= hi) warp_add_value<T, Q, E, true>(t->shared + t->room.weight + (j + i) * STEP, &v[i], o);
    }
}

/* Merges o of all members, 32 lanes of E elements at a time. */
template <int T, int Q, int E> AE_DEV void warp_values(const ae_gpu_attention_args &a, const attn_tile *t, const attn_group *g,
                                                       int32_t chunk)
{
    const int32_t lo = g->lo - chunk * AE_KV_PAGE, hi = g->hi - chunk * AE_KV_PAGE;
    const uint32_t groups = a.kv.form.groups;
    const bool plain = g->alike && g->in_place && a.kv.form.value_planes;
    AE_NO_UNROLL
    for (uint32_t from = 0; from < a.kv.form.head_dim; from += 32 * E) {
        const uint32_t e = from + attn_lane() * E;
        /* the results of lanes beyond the last element are not used */
        const uint32_t at = attn_element_at<T>(a, e < a.kv.form.head_dim ? e : 0);
        float o[Q][E] = {};
        int32_t j = lo;
        if (T == AE_KV_F16 && E == 4 && plain && groups == 16) j = warp_sum_batches<T, Q, E, 256>(t, lo, hi, at, o);
        if (T == AE_KV_F16 && E == 2 && plain && groups == 8) j = warp_sum_batches<T, Q, E, 128>(t, lo, hi, at, o);
        warp_sum_values<T, Q, E>(t, j, hi, at, o);
        AE_UNROLL
        for (uint32_t q = 0; q < Q; q++)
            if (g->members >> q & 1) attn_join_values<E>(a, t, q, e, o[q]);
    }
}

/* One chunk. */
template <int T, int Q> AE_DEV void warp_attend(const ae_gpu_attention_args &a, const attn_tile *t, int32_t chunk, float *big_m,
                                                float *big_l)
{
    attn_group g;
    for (uint32_t pending = attn_seeing(t, chunk); pending; pending &= ~g.members) {
        warp_positions where;
        float s[2][Q];
        attn_group_of(t, pending, t->n, chunk, &g);
        AE_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t j = attn_lane() + 32 * i;
            attn_place(a, t, &g, chunk, j, &where.block[i], &where.place[i]);
            attn_share_address(t, j, where.block[i] + attn_value_at<T>(a, where.place[i]));
        }
        warp_scores<T, Q>(a, t, &where, s);
        warp_softmax<Q>(a, t, &g, chunk, s, big_m, big_l);
        ae_sync_warp();
        if (a.kv.form.head_dim > 64) warp_values<T, Q, 4>(a, t, &g, chunk);
        else warp_values<T, Q, 2>(a, t, &g, chunk);
        ae_sync_warp();
    }
}

template <int T, int Q> AE_DEV void attn_warp(const ae_gpu_attention_args &a, uint8_t *shared)
{
    const uint32_t warp = ae_thread() / 32, lane = attn_lane();
    float big_m = 0, big_l = 0; /* lane q: of query q */
    attn_tile t;
    t.room = ae_gpu_attention_room_of(&a.kv.form, Q, false);
    t.shared = shared + warp * t.room.bytes;
    if (warp >= a.n_warps || !attn_begin<Q>(a, ae_block_x() * a.n_warps + warp, 1, &t)) return;
    attn_share_states(&t);
    warp_load_queries<T, Q>(a, &t);
    ae_sync_warp();
    AE_NO_UNROLL
    for (int32_t c = t.first_chunk; c <= t.last_chunk; c++) warp_attend<T, Q>(a, &t, c, &big_m, &big_l);
    if (lane < t.n) attn_share_last(a, &t, lane, big_m, big_l);
    ae_sync_warp();
    attn_results(a, &t, lane, 32);
}

#endif

/* block.h - attention over caches of f16 and f32 by blocks: four warps share one tile and chunk, so that a chunk takes as
 * little time as possible. Device code.
 *
 * Four queries are a quad, which has a group of its own: where a quad is a row, the rows of a draft, whose places differ, need
 * not wait for each other. Scores: a warp has 16 positions, half of its lanes for one half of the queries, half for the other;
 * of 16 queries, a warp has a quad and each lane two positions. Softmax: a warp has every fourth query. Values: half of the
 * threads for each half of the queries, two elements each.
 */
#ifndef AE_BACKEND_GPU_KERNELS_ATTENTION_BLOCK_H
#define AE_BACKEND_GPU_KERNELS_ATTENTION_BLOCK_H

#include "backend/gpu/kernels/attention/elements.h"
#include "backend/gpu/kernels/attention/merge.h"

#define BLOCK_THREADS (AE_ATTENTION_WARPS * 32)
#define BLOCK_SPAN 128u /* elements of values at a time */
#define BLOCK_KEYS 4u   /* keys that a lane loads at once, and */
#define BLOCK_DEPTH 8u  /* of values */
#define BLOCK_STEP (AE_KV_PAGE * AE_GPU_KV_GROUP) /* bytes from one group of a key to the next */

/* Returns the quad whose scores this lane computes. */
template <int Q> AE_DEV uint32_t block_quad(void)
{
    return Q == 4 ? 0 : Q == 8 ? attn_lane() / 16 : ae_thread() / 32;
}

/* Loads the queries times the scale. Lanes read four floats at a time: of one element, or with Q 4 of two. */
template <int T, int Q> AE_DEV void block_load_queries(const ae_gpu_attention_args &a, const attn_tile *t)
{
    uint32_t index[Q];
    attn_indices<Q>(t, index);
    for (uint32_t i = ae_thread(); i < t->room.n; i += BLOCK_THREADS) {
        float x[Q];
        attn_query_elements<T, Q>(a, t, index, i, x);
        AE_UNROLL
        for (uint32_t q = 0; q < Q; q++) {
            const uint32_t at = Q > 4 ? i * Q + q : i / 2 * 8 + q / 2 * 4 + i % 2 * 2 + q % 2;
            AE_STORE_SHARED(float, t->shared + t->room.query + at * 4, x[q]);
        }
    }
}

/* Adds one group of elements to the scores of this lane's queries. */
template <int T, int Q> AE_DEV void block_score_group(const uint8_t *query, uint4 key, float s[Q / 2])
{
    const uint32_t k[4] = {key.x, key.y, key.z, key.w};
    AE_UNROLL
    for (int i = 0; i < ATTN_GROUP(T); i += 8 / Q) {
        const float4 v = AE_LOAD_SHARED(float4, query + i * Q * 4);
        const float x = attn_element<T>(k, i);
        s[0] = ae_fma(x, v.x, s[0]);
        s[1] = ae_fma(x, v.y, s[1]);
        const float y = Q == 8 ? x : attn_element<T>(k, i + 1);
        s[Q / 2 - 2] = ae_fma(y, v.z, s[Q / 2 - 2]);
        s[Q / 2 - 1] = ae_fma(y, v.w, s[Q / 2 - 1]);
    }
}

template <int T, int Q> AE_DEV void block_scores(const ae_gpu_attention_args &a, const attn_tile *t, const attn_group *g,
                                                 int32_t chunk)
{
    const uint32_t half = attn_lane() / 16, j = ae_thread() / 32 * 16 + attn_lane() % 16, n = a.kv.form.groups;
    const uint32_t query_step = ATTN_GROUP(T) * Q * 4;
    const uint8_t *query = t->shared + t->room.query + half * 16, *key;
    uint32_t place;
    attn_place(a, t, g, chunk, j, &key, &place);
    attn_fetch_values(a, g, key);
    if (Q == 8 || !half) attn_share_address(t, block_quad<Q>() * AE_KV_PAGE + j, key + attn_value_at<T>(a, place));
    key += place * AE_GPU_KV_GROUP;
    uint4 now[BLOCK_KEYS] = {}, next[BLOCK_KEYS] = {};
    float s[Q / 2] = {};
    uint32_t left = n;
    AE_UNROLL
    for (uint32_t i = 0; i < BLOCK_KEYS; i++)
        if (n >= BLOCK_KEYS) now[i] = ae_load16(key + i * BLOCK_STEP);
    AE_NO_UNROLL
    for (; left >= BLOCK_KEYS; left -= BLOCK_KEYS, query += BLOCK_KEYS * query_step) {
        key += BLOCK_KEYS * BLOCK_STEP;
        AE_UNROLL
        for (uint32_t i = 0; i < BLOCK_KEYS; i++)
            if (left >= 2 * BLOCK_KEYS) next[i] = ae_load16(key + i * BLOCK_STEP);
        AE_UNROLL
        for (uint32_t i = 0; i < BLOCK_KEYS; i++) block_score_group<T, Q>(query + i * query_step, now[i], s);
        AE_UNROLL
        for (uint32_t i = 0; i < BLOCK_KEYS; i++) now[i] = next[i];
    }
    AE_NO_UNROLL
    for (; left; left--, key += BLOCK_STEP, query += query_step) block_score_group<T, Q>(query, ae_load16(key), s);
    AE_UNROLL
    for (uint32_t q = 0; q < Q / 2; q++)
        AE_STORE_SHARED(float, t->shared + t->room.score + ((half * (Q / 2) + q) * AE_ATTENTION_SCORES + j) * 4, s[q]);
}

/* The same for 16 queries: this warp's four, at positions lane and lane + 32. */
template <int T> AE_DEV void block_score_pair(const uint8_t *query, uint4 first, uint4 second, float s[2][4])
{
    const uint32_t k[4] = {first.x, first.y, first.z, first.w}, l[4] = {second.x, second.y, second.z, second.w};
    AE_UNROLL
    for (int i = 0; i < ATTN_GROUP(T); i++) {
        const float4 v = AE_LOAD_SHARED(float4, query + i * 64);
        const float x = attn_element<T>(k, i), y = attn_element<T>(l, i);
        s[0][0] = ae_fma(x, v.x, s[0][0]), s[1][0] = ae_fma(y, v.x, s[1][0]);
        s[0][1] = ae_fma(x, v.y, s[0][1]), s[1][1] = ae_fma(y, v.y, s[1][1]);
        s[0][2] = ae_fma(x, v.z, s[0][2]), s[1][2] = ae_fma(y, v.z, s[1][2]);
        s[0][3] = ae_fma(x, v.w, s[0][3]), s[1][3] = ae_fma(y, v.w, s[1][3]);
    }
}

template <int T> AE_DEV void block_scores_16(const ae_gpu_attention_args &a, const attn_tile *t, const attn_group *g,
                                             int32_t chunk)
{
    const uint32_t query_step = ATTN_GROUP(T) * 64;
    const uint8_t *query = t->shared + t->room.query + ae_thread() / 32 * 16, *key[2];
    uint8_t *score = t->shared + t->room.score + (ae_thread() / 32 * 4 * AE_ATTENTION_SCORES + attn_lane()) * 4;
    uint32_t place[2], left = a.kv.form.groups;
    AE_UNROLL
    for (uint32_t p = 0; p < 2; p++) {
        const uint32_t j = attn_lane() + 32 * p;
        attn_place(a, t, g, chunk, j, &key[p], &place[p]);
        attn_share_address(t, ae_thread() / 32 * AE_KV_PAGE + j, key[p] + attn_value_at<T>(a, place[p]));
    }
    attn_fetch_values(a, g, key[0]);
    key[0] += place[0] * AE_GPU_KV_GROUP, key[1] += place[1] * AE_GPU_KV_GROUP;
    uint4 now[BLOCK_KEYS] = {}, next[BLOCK_KEYS] = {};
    float s[2][4] = {};
    AE_UNROLL
    for (uint32_t i = 0; i < BLOCK_KEYS; i++)
        if (left >= BLOCK_KEYS / 2) now[i] = ae_load16(key[i % 2] + i / 2 * BLOCK_STEP);
    AE_NO_UNROLL
    for (; left >= BLOCK_KEYS / 2; left -= BLOCK_KEYS / 2, query += BLOCK_KEYS / 2 * query_step) {
        key[0] += BLOCK_KEYS / 2 * BLOCK_STEP, key[1] += BLOCK_KEYS / 2 * BLOCK_STEP;
        AE_UNROLL
        for (uint32_t i = 0; i < BLOCK_KEYS; i++)
            if (left >= BLOCK_KEYS) next[i] = ae_load16(key[i % 2] + i / 2 * BLOCK_STEP);
        AE_UNROLL
        for (uint32_t i = 0; i < BLOCK_KEYS / 2; i++)
            block_score_pair<T>(query + i * query_step, now[2 * i], now[2 * i + 1], s);
        AE_UNROLL
        for (uint32_t i = 0; i < BLOCK_KEYS; i++) now[i] = next[i];
    }
    AE_NO_UNROLL
    for (; left; left--, query += query_step) {
        block_score_pair<T>(query, ae_load16(key[0]), ae_load16(key[1]), s);
        key[0] += BLOCK_STEP, key[1] += BLOCK_STEP;
    }
    AE_UNROLL
    for (uint32_t i = 0; i < 8; i++)
        AE_STORE_SHARED(float, score + (i / 2 * AE_ATTENTION_SCORES + i % 2 * 32) * 4, s[i % 2][i / 2]);
}

/* Bytes between the weights of one position and the next, for half of the queries; and the place of query q's weight. */
#define BLOCK_WEIGHTS(Q) ((Q) == 4 ? 8 : AE_ATTENTION_WEIGHTS(Q) * 4)

template <int Q> AE_DEV uint32_t block_weight_at(uint32_t j, uint32_t q)
{
    return Q == 4 ? (q / 2 * AE_KV_PAGE + j) * 8 + q % 2 * 4 : j * BLOCK_WEIGHTS(Q) + q * 4;
}

/* Computes the weights of this warp's queries. big_m, big_l: those of query warp + 4 i, in lane 0. */
template <int Q> AE_DEV void block_softmax(const ae_gpu_attention_args &a, const attn_tile *t, uint32_t members,
                                           int32_t chunk, float big_m[Q / 4], float big_l[Q / 4])
{
    const uint32_t warp = ae_thread() / 32, lane = attn_lane();
    const int32_t pos = chunk * AE_KV_PAGE + static_cast<int32_t>(lane);
    AE_UNROLL
    for (uint32_t i = 0; i < Q / 4; i++) {
        const uint32_t q = warp + 4 * i; /* the results of queries that are not members are not used */
        const uint8_t *score = t->shared + t->room.score + (q * AE_ATTENTION_SCORES + lane) * 4;
        uint8_t *weight = t->shared + t->room.weight + block_weight_at<Q>(lane, q);
        const int4 at = attn_state(t, q);
        float x = AE_LOAD_SHARED(float, score), y = AE_LOAD_SHARED(float, score + 128), m, l;
        const bool sees0 = at.x <= pos && pos <= at.y, sees1 = at.x <= pos + 32 && pos + 32 <= at.y;
        attn_weigh(a, t, q, pos, sees0, sees1, &x, &y, &m, &l);
        AE_STORE_SHARED(float, weight, x);
        AE_STORE_SHARED(float, weight + 32 * BLOCK_WEIGHTS(Q), y);
        if (!lane && members >> q & 1) attn_put_sums(a, t, q, chunk, m, l, &big_m[i], &big_l[i]);
    }
}

/* A position of N of this thread's chains; p [N]: its weights. CHECK: some queries do not see it. */
template <int T, int N, bool CHECK> AE_DEV void block_add_value(const float *p, const attn_words *v, float o[N][2])
{
    const float x = attn_element<T>(v->w, 0), y = attn_element<T>(v->w, 1);
    AE_UNROLL
    for (int q = 0; q < N; q++) {
        if (CHECK && !(p[q] >= 0)) continue;
        o[q][0] = ae_fma(p[q], x, o[q][0]);
        o[q][1] = ae_fma(p[q], y, o[q][1]);
    }
}

/* Returns the first of the quads whose values half of the threads sum; with 16 queries there are two. */
template <int Q> AE_DEV uint32_t block_first_quad(uint32_t half)
{
    return Q == 16 ? 2 * half : Q == 8 ? half : 0;
}

/* Adds positions j to hi of the chunk, which are in place and STRIDE bytes apart, in whole batches. Returns the first position
 * left. */
template <int T, int Q, int STRIDE> AE_DEV int32_t block_sum_batches(const attn_tile *t, int32_t j, int32_t hi, uint32_t half,
                                                                     uint32_t at, float o[Q / 2][2])
{
    const int32_t depth = BLOCK_DEPTH;
    const uint8_t *weight = t->shared + t->room.weight + block_weight_at<Q>(j, half * (Q / 2));
    const uint8_t *value = attn_address(t, block_first_quad<Q>(half) * AE_KV_PAGE) + at + j * STRIDE;
    attn_words now[BLOCK_DEPTH] = {}, next[BLOCK_DEPTH] = {};
    if (j + depth > hi + 1) return j;
    AE_UNROLL
    for (int i = 0; i < depth; i++) now[i] = attn_load<T, 2>(value + i * STRIDE);
    AE_NO_UNROLL
    for (; j + depth <= hi + 1; j += depth, weight += BLOCK_DEPTH * BLOCK_WEIGHTS(Q)) {
        value += BLOCK_DEPTH * STRIDE;
        AE_UNROLL
        for (int i = 0; i < depth; i++)
            if (j + 2 * depth <= hi + 1) next[i] = attn_load<T, 2>(value + i * STRIDE);
        AE_UNROLL
        for (int i = 0; i < depth; i += Q == 4 ? 2 : 1) { /* with Q 4, two positions */
            const float4 f = AE_LOAD_SHARED(float4, weight + i * BLOCK_WEIGHTS(Q));
            const float4 more = Q == 16 ? AE_LOAD_SHARED(float4, weight + i * BLOCK_WEIGHTS(Q) + 16) : f;
            const float p[8] = {f.x, f.y, f.z, f.w, more.x, more.y, more.z, more.w};
            block_add_value<T, Q / 2, false>(p, &now[i], o);
            if (Q == 4) block_add_value<T, Q / 2, false>(p + 2, &now[i + 1], o);
        }
        AE_UNROLL
        for (int i = 0; i < depth; i++) now[i] = next[i];
    }
    return j;
}

/* Adds positions j to hi of the chunk, wherever they are. */
template <int T, int Q> AE_DEV void block_sum_values(const attn_tile *t, int32_t j, int32_t hi, uint32_t half, uint32_t at,
                                                     float o[Q / 2][2])
{
    enum { QUADS = Q == 16 ? 2 : 1, EACH = Q / 2 / QUADS }; /* queries of a quad */
    const int32_t depth = BLOCK_DEPTH;
    AE_NO_UNROLL
    for (; j <= hi; j += depth) {
        attn_words v[BLOCK_DEPTH][QUADS];
        AE_UNROLL
        for (int i = 0; i < depth * QUADS; i++) {
            const uint32_t place = (block_first_quad<Q>(half) + i % QUADS) * AE_KV_PAGE + ae_min(j + i / QUADS, hi);
            v[i / QUADS][i % QUADS] = attn_load<T, 2>(attn_address(t, place) + at);
        }
        AE_UNROLL
        for (int i = 0; i < depth; i++) {
            const uint8_t *weight = t->shared + t->room.weight + block_weight_at<Q>(j + i, half * (Q / 2));
            float p[Q / 2];
            if (j + i > hi) break;
            AE_UNROLL
            for (int q = 0; q < Q / 2; q++) p[q] = AE_LOAD_SHARED(float, weight + q * 4);
            AE_UNROLL
            for (int k = 0; k < QUADS; k++) block_add_value<T, EACH, true>(p + k * EACH, &v[i][k], o + k * EACH);
        }
    }
}

/* Stores two elements of o of query q, from e on, in its part of a chunk, or merges them with O. */
AE_DEV void block_put(const ae_gpu_attention_args &a, const attn_tile *t, uint32_t q, int32_t chunk, uint32_t e,
                      const float o[2])
{
    if (t->to_parts) *reinterpret_cast<float2 *>(attn_part(a, t, q, chunk) + 4 + e) = make_float2(o[0], o[1]);
    else attn_join_values<2>(a, t, q, e, o);
}

/* Returns a quad's group: members, first and last position in the chunk, and whether all members see all positions, in
 * place. */
AE_DEV int4 block_group(const attn_tile *t, uint32_t quad)
{
    return AE_LOAD_SHARED(int4, t->shared + t->room.quad + quad * 16);
}

AE_DEV void block_share_group(const attn_tile *t, uint32_t quad, const attn_group *g, int32_t chunk)
{
    const int32_t begin = chunk * AE_KV_PAGE, plain = g->alike && g->in_place && g->lo % 2 == 0;
    int4 v = make_int4(static_cast<int32_t>(g->members), g->lo - begin, g->hi - begin, plain);
    if (!g->members) v = make_int4(0, AE_KV_PAGE, -1, 0);
    AE_STORE_SHARED(int4, t->shared + t->room.quad + quad * 16, v);
}

template <int T, int Q> AE_DEV void block_values(const ae_gpu_attention_args &a, const attn_tile *t, int32_t chunk)
{
    const uint32_t half = ae_thread() / (BLOCK_THREADS / 2), groups = a.kv.form.groups, quad = block_first_quad<Q>(half);
    int4 g = block_group(t, quad);
    if (!a.kv.form.value_planes) g.w = 0; /* the values of a place are apart */
    if (Q == 16) {
        const int4 more = block_group(t, quad + 1);
        const bool same = attn_address(t, quad * AE_KV_PAGE) == attn_address(t, (quad + 1) * AE_KV_PAGE);
        g.w = g.w && more.w && same && g.y == more.y && g.z == more.z;
        g.x |= more.x, g.y = ae_min(g.y, more.y), g.z = ae_max(g.z, more.z);
    }
    AE_NO_UNROLL
    for (uint32_t e = ae_thread() % (BLOCK_THREADS / 2) * 2; e < a.kv.form.head_dim; e += BLOCK_SPAN) {
        const uint32_t at = attn_element_at<T>(a, e);
        float o[Q / 2][2] = {};
        int32_t j = g.y;
        if (T == AE_KV_F16 && g.w && groups == 16) j = block_sum_batches<T, Q, 256>(t, j, g.z, half, at, o);
        else if (T == AE_KV_F16 && g.w && groups == 8) j = block_sum_batches<T, Q, 128>(t, j, g.z, half, at, o);
        block_sum_values<T, Q>(t, j, g.z, half, at, o);
        AE_UNROLL
        for (uint32_t i = 0; i < Q / 2; i++) {
            const uint32_t q = half * (Q / 2) + i;
            if (g.x >> q & 1) block_put(a, t, q, chunk, e, o[i]);
        }
    }
}

/* Writes the results of walked queries. */
template <int Q> AE_DEV void block_finish(const ae_gpu_attention_args &a, const attn_tile *t, const float big_m[Q / 4],
                                          const float big_l[Q / 4])
{
    AE_UNROLL
    for (uint32_t i = 0; i < Q / 4; i++) {
        const uint32_t q = ae_thread() / 32 + 4 * i;
        if (!attn_lane() && q < t->n) attn_share_last(a, t, q, big_m[i], big_l[i]);
    }
    ae_sync();
    attn_results(a, t, ae_thread(), BLOCK_THREADS);
}

/* Handles one group of each quad, among the pending queries of a chunk. Returns the members of all. */
template <int T, int Q> AE_DEV uint32_t block_chunk(const ae_gpu_attention_args &a, const attn_tile *t, uint32_t pending,
                                                    int32_t chunk, float big_m[Q / 4], float big_l[Q / 4])
{
    const uint32_t quad = block_quad<Q>(), mine = pending & 15u << 4 * quad;
    uint32_t members = 0;
    attn_group g;
    attn_group_of(t, mine ? mine : pending, mine ? ae_min(4 * quad + 4, t->n) : t->n, chunk, &g); /* else for its places */
    if (!mine) g.members = 0;
    if (Q == 16 ? !attn_lane() : ae_thread() == 16 * quad) block_share_group(t, quad, &g, chunk);
    if constexpr (Q == 16) block_scores_16<T>(a, t, &g, chunk);
    else block_scores<T, Q>(a, t, &g, chunk);
    ae_sync();
    AE_UNROLL
    for (uint32_t i = 0; i < Q / 4; i++) members |= static_cast<uint32_t>(block_group(t, i).x);
    block_softmax<Q>(a, t, members, chunk, big_m, big_l);
    ae_sync();
    block_values<T, Q>(a, t, chunk);
    ae_sync();
    return members;
}

/* Handles a tile's chunks split, split + n_splits ..., or all of them. */
template <int T, int Q> AE_DEV void attn_block(const ae_gpu_attention_args &a, uint8_t *shared, uint32_t unit,
                                               uint32_t n_splits)
{
    float big_m[Q / 4] = {}, big_l[Q / 4] = {};
    attn_tile t;
    t.room = ae_gpu_attention_room_of(&a.kv.form, Q, true);
    t.shared = shared;
    if (!attn_begin<Q>(a, unit, n_splits, &t)) return;
    if (ae_thread() < 32) attn_share_states(&t);
    block_load_queries<T, Q>(a, &t);
    ae_sync();
    const int32_t step = static_cast<int32_t>(t.n_active);
    for (int32_t c = t.first_chunk + static_cast<int32_t>(t.split); c <= t.last_chunk; c += step) {
        uint32_t pending = attn_seeing(&t, c);
        while (pending) {
            const uint32_t members = block_chunk<T, Q>(a, &t, pending, c, big_m, big_l);
            pending &= ~members;
        }
    }
    if (!t.to_parts) block_finish<Q>(a, &t, big_m, big_l);
    else if (!a.merge_apart && attn_arrive(a, &t)) attn_merge(a, &t, nullptr, 0, AE_ATTENTION_WARPS);
}

#endif

/* codes.cu - attention over codes: q8_0, and latent rows of 8 and 15 bits. All sums of codes are exact integers, by
 * matrix instructions of 8-bit numbers; float steps are those of cpu/ref/attention.c. A block has one tile and chunk.
 *
 * Scores: a warp has 16 positions, the rows, by 8 queries, k over the elements; queries have two digits. Softmax: a warp has
 * every fourth query. Values: 16 rows, 8 queries with the high and the low digits of their weights, by 8 elements, k over the
 * positions; a warp has 32 elements at a time. In a fragment, lane 4 g + t has row or column g; which elements or positions its
 * part t of k is, is free as long as both factors agree.
 */
#include "backend/gpu/kernels/attention/merge.h"

#define Q AE_ATTENTION_CODES
#define SPAN 32u /* elements of values at a time: 4 of each g */

AE_DEV uint32_t frag_g(void) { return attn_lane() / 4; }
AE_DEV uint32_t frag_t(void) { return attn_lane() % 4; }
AE_DEV uint32_t warp_of(void) { return ae_thread() / 32; }

/* ---- Queries -------------------------------------------------------------------------------------------- */

/* Codes of n values of a query, turned; their digits go to `to`, high ones first. Returns the scale. */
AE_DEV float quant_query(const attn_tile *t, const float *x, uint32_t n, uint8_t *to)
{
    uint8_t *turned = t->shared + t->room.sum + warp_of() * Q * t->room.n; /* a quarter of the room for O, not yet in use */
    float top = 0;
    ae_sync_warp();
    for (uint32_t i = attn_lane(); i < n; i += 32) AE_STORE_SHARED(float, turned + i * 4, x[i]);
    attn_turn(turned, n);
    for (uint32_t i = attn_lane(); i < n; i += 32) top = attn_larger(fabsf(AE_LOAD_SHARED(float, turned + i * 4)), top);
    for (uint32_t d = 16; d; d /= 2) top = attn_larger(top, ae_shfl_xor(top, d));
    const bool some = top > 1e-30f;
    const float inv = some ? AE_KV_QUERY / top : 0.0f;
    for (uint32_t i = attn_lane(); i < n; i += 32) {
        const float v = AE_LOAD_SHARED(float, turned + i * 4);
        const bool is_nan = !(v * inv == v * inv);
        const int32_t code = !some ? 0 : is_nan ? -static_cast<int32_t>(AE_KV_QUERY) : ae_round_magic(v, inv);
        const int32_t high = (code + 64) >> 7;
        AE_STORE_SHARED(int8_t, to + i, static_cast<int8_t>(high));
        AE_STORE_SHARED(int8_t, to + Q * t->room.row_bytes + i, static_cast<int8_t>(code - 128 * high));
    }
    return some ? top / AE_KV_QUERY : 0.0f;
}

/* Digits and factors of all queries of the tile. What fills up the rows is zero. */
AE_DEV void load_queries(const ae_gpu_attention_args &a, const attn_tile *t)
{
    const uint32_t head_dim = a.kv.form.head_dim, n_rope = a.kv.form.n_rope;
    for (uint32_t i = ae_thread(); i < 2 * Q * t->room.row_bytes / 16; i += AE_ATTENTION_WARPS * 32)
        AE_STORE_SHARED(uint4, t->shared + t->room.query + i * 16, make_uint4(0, 0, 0, 0));
    ae_sync();
    for (uint32_t q = warp_of(); q < t->n; q += AE_ATTENTION_WARPS) {
        const float *x = a.q + static_cast<size_t>(attn_index(t, q)) * (n_rope + head_dim);
        uint8_t *row = t->shared + t->room.query + q * t->room.row_bytes, *scale = t->shared + t->room.query_scale + q * 4;
        const float d = quant_query(t, x + n_rope, head_dim, row + t->room.latent_at);
        const float own = d * (a.scale / static_cast<float>(attn_turn_block(head_dim)));
        if (!attn_lane()) AE_STORE_SHARED(float, scale, own);
        if (!n_rope) continue;
        const float dr = quant_query(t, x, n_rope, row), rope = dr * (a.scale / static_cast<float>(attn_turn_block(n_rope)));
        if (!attn_lane()) AE_STORE_SHARED(float, scale + Q * 4, rope);
    }
}

/* ---- Scores --------------------------------------------------------------------------------------------- */

/* This lane's positions 16 warp + g and 8 more. */
typedef struct positions {
    const uint8_t *block[2];
    uint32_t place[2];
} positions;

/* Group i of the keys of both positions; zeros if there is none. */
AE_DEV void load_keys(const ae_gpu_attention_args &a, const positions *at, uint32_t plane, uint32_t i, bool is_there,
                      uint4 k[2])
{
    AE_UNROLL
    for (int p = 0; p < 2; p++) {
        const uint8_t *key = at->block[p] + ae_gpu_kv_key_at(&a.kv.form, plane, i, at->place[p]);
        k[p] = is_there ? ae_load16(key) : make_uint4(0, 0, 0, 0);
    }
}

/* 64 elements of 16 positions: two steps of the instruction for each digit. */
AE_DEV void multiply_keys(const uint4 k[2], uint4 high, uint4 low, int32_t c[2][4])
{
    const uint32_t a0[4] = {k[0].x, k[1].x, k[0].y, k[1].y}, a1[4] = {k[0].z, k[1].z, k[0].w, k[1].w};
    const uint32_t h0[2] = {high.x, high.y}, h1[2] = {high.z, high.w}, l0[2] = {low.x, low.y}, l1[2] = {low.z, low.w};
    ae_mma_s8(c[0], a0, h0);
    ae_mma_s8(c[1], a0, l0);
    ae_mma_s8(c[0], a1, h1);
    ae_mma_s8(c[1], a1, l1);
}

/* Dot products of groups [first, first + n) of a plane of the keys with the queries' digits from byte `at` on: of this lane's
 * first position and queries 2 t and 2 t + 1, then of the second one. */
AE_DEV void dot_plane(const ae_gpu_attention_args &a, const attn_tile *t, const positions *where, uint32_t plane,
                      uint32_t first, uint32_t n, uint32_t at, int32_t sum[4])
{
    const uint8_t *query = t->shared + t->room.query + frag_g() * t->room.row_bytes + at + frag_t() * 16;
    const uint32_t own = first + frag_t();
    int32_t c[2][4] = {};
    uint4 now[2][2], next[2][2];
    load_keys(a, where, plane, own, frag_t() < n, now[0]);
    load_keys(a, where, plane, own + 4, frag_t() + 4 < n, now[1]);
    AE_NO_UNROLL
    for (uint32_t s = 0; s < n; s += 8) {
        AE_UNROLL
        for (uint32_t i = 0; i < 2; i++)
            load_keys(a, where, plane, own + s + 8 + 4 * i, frag_t() + s + 8 + 4 * i < n, next[i]);
        AE_UNROLL
        for (uint32_t i = 0; i < 2; i++, query += 64) {
            if (s + 4 * i >= n) break;
            multiply_keys(now[i], AE_LOAD_SHARED(uint4, query), AE_LOAD_SHARED(uint4, query + Q * t->room.row_bytes), c);
        }
        AE_UNROLL
        for (int i = 0; i < 4; i++) now[i / 2][i % 2] = next[i / 2][i % 2];
    }
    AE_UNROLL
    for (int i = 0; i < 4; i++) sum[i] = 128 * c[0][i] + c[1][i];
}

/* The same of all planes, as floats. */
template <int PLANES> AE_DEV void dot_part(const ae_gpu_attention_args &a, const attn_tile *t, const positions *where,
                                           uint32_t first, uint32_t n, uint32_t at, float dot[4])
{
    int32_t sum[4];
    dot_plane(a, t, where, 0, first, n, at, sum);
    AE_UNROLL
    for (int i = 0; i < 4; i++) dot[i] = static_cast<float>(sum[i]);
    if (PLANES == 1) return;
    dot_plane(a, t, where, 1, first, n, at, sum);
    AE_UNROLL
    for (int i = 0; i < 4; i++) dot[i] = ae_fma(dot[i], 128.0f, static_cast<float>(sum[i]));
}

/* Scores of all queries, to shared memory. */
template <int PLANES, bool LATENT> AE_DEV void scores(const ae_gpu_attention_args &a, const attn_tile *t, const attn_group *g,
                                                      int32_t chunk)
{
    const ae_gpu_kv_form *f = &a.kv.form;
    const uint8_t *query_scale = t->shared + t->room.query_scale + frag_t() * 8;
    uint8_t *score = t->shared + t->room.score + (2 * frag_t() * AE_ATTENTION_SCORES + warp_of() * 16 + frag_g()) * 4;
    positions where;
    float dot[4], rotated[4] = {};
    AE_UNROLL
    for (uint32_t p = 0; p < 2; p++)
        attn_place(a, t, g, chunk, warp_of() * 16 + frag_g() + 8 * p, &where.block[p], &where.place[p]);
    attn_fetch_values(a, g, where.block[0]);
    dot_part<PLANES>(a, t, &where, f->rope_groups, f->groups - f->rope_groups, t->room.latent_at, dot);
    if (LATENT) dot_part<PLANES>(a, t, &where, 0, f->rope_groups, 0, rotated);
    const float2 own = AE_LOAD_SHARED(float2, query_scale);
    const float2 rope = LATENT ? AE_LOAD_SHARED(float2, query_scale + Q * 4) : make_float2(0, 0);
    AE_UNROLL
    for (uint32_t p = 0; p < 2; p++) {
        const float d = ae_as_float(ae_load4(where.block[p] + ae_gpu_kv_scale_at(f, 0, where.place[p])));
        float2 v = make_float2(dot[2 * p] * (d * own.x), dot[2 * p + 1] * (d * own.y));
        if (LATENT) {
            const float dr = ae_as_float(ae_load4(where.block[p] + ae_gpu_kv_scale_at(f, 1, where.place[p])));
            v.x = ae_fma(dot[2 * p], d * own.x, rotated[2 * p] * (dr * rope.x));
            v.y = ae_fma(dot[2 * p + 1], d * own.y, rotated[2 * p + 1] * (dr * rope.y));
        }
        AE_STORE_SHARED(float, score + 32 * p, v.x);
        AE_STORE_SHARED(float, score + 32 * p + AE_ATTENTION_SCORES * 4, v.y);
    }
}

/* The addresses and scales of the chunk's values, for all threads. */
template <bool LATENT> AE_DEV void share_values(const ae_gpu_attention_args &a, const attn_tile *t, const attn_group *g,
                                                int32_t chunk)
{
    const ae_gpu_kv_form *f = &a.kv.form;
    const uint32_t j = ae_thread();
    if (j >= AE_KV_PAGE) return;
    const uint8_t *block;
    uint32_t place;
    attn_place(a, t, g, chunk, j, &block, &place);
    const uint32_t at = LATENT ? ae_gpu_kv_key_at(f, 0, f->rope_groups, place) : ae_gpu_kv_value_at(f, 0, place);
    const uint32_t scale = ae_load4(block + ae_gpu_kv_scale_at(f, LATENT ? 0 : 1, place));
    attn_share_address(t, j, block + at);
    AE_STORE_SHARED(uint32_t, t->shared + t->room.scale + j * 4, scale);
}

/* ---- Weights -------------------------------------------------------------------------------------------- */

/* Codes of a query's weights times the values' scales, x and y of positions lane and lane + 32: their digits and scale go to
 * shared memory. */
AE_DEV void quant_weights(const attn_tile *t, uint32_t q, float x, float y)
{
    float top = attn_larger(y, attn_larger(x, 0.0f));
    for (uint32_t d = 16; d; d /= 2) top = attn_larger(top, ae_shfl_xor(top, d));
    const bool some = top > 1e-30f;
    const float inv = some ? AE_KV_WEIGHT / top : 0.0f;
    const int32_t code[2] = {ae_round_magic(x, inv), ae_round_magic(y, inv)};
    uint8_t *digit = t->shared + t->room.digit + q * AE_ATTENTION_DIGITS + attn_lane();
    AE_UNROLL
    for (int i = 0; i < 2; i++) {
        AE_STORE_SHARED(uint8_t, digit + 32 * i, static_cast<uint8_t>(code[i] >> 7));
        AE_STORE_SHARED(uint8_t, digit + Q * AE_ATTENTION_DIGITS + 32 * i, static_cast<uint8_t>(code[i] & 127));
    }
    if (!attn_lane()) AE_STORE_SHARED(float, t->shared + t->room.weight_scale + q * 4, some ? top * (1 / AE_KV_WEIGHT) : 0.0f);
}

/* The weights of this warp's queries, 0 where a query does not see a position; big_m, big_l: of query warp + 4 i, in lane 0. */
AE_DEV void softmax(const ae_gpu_attention_args &a, const attn_tile *t, const attn_group *g, int32_t chunk, float big_m[2],
                    float big_l[2])
{
    const uint32_t lane = attn_lane();
    const int32_t pos = chunk * AE_KV_PAGE + static_cast<int32_t>(lane);
    const uint8_t *scale = t->shared + t->room.scale + lane * 4;
    AE_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t q = warp_of() + 4 * i; /* what is computed for others than members is of no use */
        const uint8_t *score = t->shared + t->room.score + (q * AE_ATTENTION_SCORES + lane) * 4;
        const int4 at = attn_state(t, q);
        const bool sees0 = at.x <= pos && pos <= at.y, sees1 = at.x <= pos + 32 && pos + 32 <= at.y;
        float x = AE_LOAD_SHARED(float, score), y = AE_LOAD_SHARED(float, score + 128), m, l;
        attn_weigh(a, t, q, pos, sees0, sees1, &x, &y, &m, &l);
        if (!lane && g->members >> q & 1) attn_put_sums(a, t, q, chunk, m, l, &big_m[i], &big_l[i]);
        x = sees0 ? x * AE_LOAD_SHARED(float, scale) : 0.0f;
        y = sees1 ? y * AE_LOAD_SHARED(float, scale + 128) : 0.0f;
        quant_weights(t, q, x, y);
    }
}

/* ---- Values --------------------------------------------------------------------------------------------- */

/* x[i]: four elements of position i; becomes four positions of element i. */
AE_DEV void transpose(uint32_t x[4])
{
    const uint32_t lo0 = ae_perm(x[0], x[1], 0x5140), hi0 = ae_perm(x[0], x[1], 0x7362);
    const uint32_t lo1 = ae_perm(x[2], x[3], 0x5140), hi1 = ae_perm(x[2], x[3], 0x7362);
    x[0] = ae_perm(lo0, lo1, 0x5410), x[1] = ae_perm(lo0, lo1, 0x7632);
    x[2] = ae_perm(hi0, hi1, 0x5410), x[3] = ae_perm(hi0, hi1, 0x7632);
}

/* Sums over the chunk's positions of weight codes times codes of elements from .. from + 31 of a plane: sum[i] of query g and
 * element from + 8 t + i. */
template <bool LATENT> AE_DEV void sum_plane(const ae_gpu_attention_args &a, const attn_tile *t, uint32_t plane, uint32_t from,
                                             int32_t sum[8])
{
    const uint32_t e = from + 4 * frag_g(), in_group = e % AE_GPU_KV_GROUP, group = e / AE_GPU_KV_GROUP;
    const bool is_there = e < a.kv.form.head_dim;
    const uint32_t at = LATENT ? ae_gpu_kv_key_at(&a.kv.form, plane, group, 0) + in_group : e;
    const uint8_t *digit = t->shared + t->room.digit + frag_g() * AE_ATTENTION_DIGITS + 4 * frag_t();
    uint32_t v[4][4]; /* [16 positions][of which this lane has 4 t ..] */
    int32_t c[4][4] = {};
    AE_UNROLL
    for (uint32_t i = 0; i < 16; i++)
        v[i / 4][i % 4] = is_there ? ae_load4(attn_address(t, i / 4 * 16 + 4 * frag_t() + i % 4) + at) : 0;
    AE_UNROLL
    for (int i = 0; i < 4; i++) transpose(v[i]);
    AE_UNROLL
    for (int j = 0; j < 2; j++) { /* 32 positions */
        const uint8_t *high = digit + 32 * j, *low = high + Q * AE_ATTENTION_DIGITS;
        const uint32_t w[4] = {AE_LOAD_SHARED(uint32_t, high), AE_LOAD_SHARED(uint32_t, low),
                               AE_LOAD_SHARED(uint32_t, high + 16), AE_LOAD_SHARED(uint32_t, low + 16)};
        AE_UNROLL
        for (int i = 0; i < 4; i++) {
            const uint32_t b[2] = {v[2 * j][i], v[2 * j + 1][i]};
            ae_mma_s8(c[i], w, b);
        }
    }
    AE_UNROLL
    for (int i = 0; i < 4; i++) {
        sum[i] = 128 * c[i][0] + c[i][2];
        sum[4 + i] = 128 * c[i][1] + c[i][3];
    }
}

/* Where O of the walked query g and element from + 8 t + i is, which only this lane uses. */
AE_DEV uint8_t *sum_at(const attn_tile *t, uint32_t from, uint32_t i, uint32_t lane)
{
    return t->shared + t->room.sum + ((from / SPAN * 8 + i) * 32 + lane) * 4;
}

/* Eight elements of o of query g, from from + 8 t on: to its part of a chunk, or joined to O. */
AE_DEV void put(const ae_gpu_attention_args &a, const attn_tile *t, int32_t chunk, uint32_t from, const float o[8])
{
    const uint32_t q = frag_g(), e = from + 8 * frag_t(), head_dim = a.kv.form.head_dim;
    if (t->to_parts) {
        float *part = attn_part(a, t, q, chunk) + 4 + e;
        AE_UNROLL
        for (uint32_t i = 0; i < 8; i += 4) /* in the part's filling, too */
            if (e + i < head_dim) *reinterpret_cast<float4 *>(part + i) = make_float4(o[i], o[i + 1], o[i + 2], o[i + 3]);
        return;
    }
    const float2 f = attn_factor(t, q);
    AE_UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        uint8_t *sum = sum_at(t, from, i, attn_lane());
        AE_STORE_SHARED(float, sum, attn_joined(AE_LOAD_SHARED(float, sum), o[i], f));
    }
}

template <int PLANES, bool LATENT> AE_DEV void values(const ae_gpu_attention_args &a, const attn_tile *t, const attn_group *g,
                                                      int32_t chunk)
{
    const float d = AE_LOAD_SHARED(float, t->shared + t->room.weight_scale + frag_g() * 4);
    AE_NO_UNROLL
    for (uint32_t from = warp_of() * SPAN; from < a.kv.form.head_dim; from += AE_ATTENTION_WARPS * SPAN) {
        int32_t sum[8];
        float o[8];
        sum_plane<LATENT>(a, t, 0, from, sum);
        AE_UNROLL
        for (int i = 0; i < 8; i++) o[i] = static_cast<float>(sum[i]);
        if (PLANES == 2) {
            sum_plane<LATENT>(a, t, 1, from, sum);
            AE_UNROLL
            for (int i = 0; i < 8; i++) o[i] = ae_fma(o[i], 128.0f, static_cast<float>(sum[i]));
        }
        AE_UNROLL
        for (int i = 0; i < 8; i++) o[i] *= d;
        if (g->members >> frag_g() & 1) put(a, t, chunk, from, o);
    }
}

/* ---- Tiles ---------------------------------------------------------------------------------------------- */

/* The results of walked queries; those of latent rows are turned back. heads: f32 [head_dim] of each warp. */
template <bool LATENT> AE_DEV void finish(const ae_gpu_attention_args &a, const attn_tile *t, const float big_m[2],
                                          const float big_l[2], uint8_t *heads)
{
    const uint32_t head_dim = a.kv.form.head_dim;
    const float back = LATENT ? 1.0f / static_cast<float>(attn_turn_block(head_dim)) : 1.0f;
    uint8_t *head = heads + warp_of() * head_dim * 4;
    AE_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t q = warp_of() + 4 * i;
        if (q >= t->n) break;
        if (!attn_lane()) attn_share_last(a, t, q, big_m[i], big_l[i]);
        ae_sync_warp();
        const float f = attn_factor(t, q).x;
        for (uint32_t e = attn_lane(); e < head_dim; e += 32) {
            const uint8_t *sum = sum_at(t, e, e % 8, 4 * q + e % SPAN / 8);
            AE_STORE_SHARED(float, head + e * 4, AE_LOAD_SHARED(float, sum) * f);
        }
        if (LATENT) attn_turn(head, head_dim);
        float *y = a.y + static_cast<size_t>(attn_index(t, q)) * head_dim;
        for (uint32_t e = attn_lane(); e < head_dim; e += 32) {
            const float v = AE_LOAD_SHARED(float, head + e * 4);
            y[e] = LATENT ? v * back : v;
        }
        ae_sync_warp();
    }
}

template <int PLANES, bool LATENT> AE_DEV void attention(const ae_gpu_attention_args &a, uint8_t *shared)
{
    float big_m[2] = {}, big_l[2] = {};
    attn_tile t;
    attn_group g;
    t.room = ae_gpu_attention_room_codes(&a.kv.form);
    t.shared = shared;
    if (!attn_begin<Q>(a, ae_block_x(), a.n_splits, &t)) return;
    if (!warp_of()) attn_share_states(&t);
    load_queries(a, &t);
    ae_sync();
    const int32_t step = static_cast<int32_t>(t.n_active);
    for (int32_t c = t.first_chunk + static_cast<int32_t>(t.split); c <= t.last_chunk; c += step)
        for (uint32_t pending = attn_seeing(&t, c); pending; pending &= ~g.members) {
            attn_group_of(&t, pending, t.n, c, &g);
            share_values<LATENT>(a, &t, &g, c);
            scores<PLANES, LATENT>(a, &t, &g, c);
            ae_sync();
            softmax(a, &t, &g, c, big_m, big_l);
            ae_sync();
            values<PLANES, LATENT>(a, &t, &g, c);
            ae_sync();
        }
    uint8_t *heads = t.shared + t.room.query; /* the digits are not needed any more */
    if (!t.to_parts) finish<LATENT>(a, &t, big_m, big_l, heads);
    else if (!a.merge_apart && attn_arrive(a, &t)) attn_merge(a, &t, LATENT ? heads : nullptr, 0, AE_ATTENTION_WARPS);
}

#define KERNEL(name, planes, latent, blocks) \
    AE_KERNEL(name, ae_gpu_attention_args, ATTN_THREADS(blocks)) \
    { \
        AE_SHARED(shared); \
        attention<planes, latent>(a, shared); \
    }

KERNEL(attention_q8, 1, false, 4)
KERNEL(attention_latent_q8, 1, true, 3)
KERNEL(attention_latent_f16, 2, true, 3)

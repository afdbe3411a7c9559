/* attention_codes.cu - attention over codes: q8_0, and latent rows of 8 and 15 bits. All sums of codes are exact integers, by
 * matrix instructions of 8-bit numbers; float steps are those of cpu/ref/attention.c.
 *
 * Scores: 16 positions by 8 queries, k over the elements; queries have two digits. Values: 16 rows, 8 queries with the high and
 * the low digits of their weights, by 8 elements, k over the positions. In a fragment, lane 4 g + t has row or column g; which
 * elements or positions its part t of k is, is free as long as both factors agree.
 */
#include "backend/gpu/kernels/attention_tile.h"

#define Q AE_ATTENTION_CODES
#define SPAN 64u /* elements of values at a time: 8 of each g */

AE_DEV uint32_t frag_g(void) { return attn_lane() / 4; }
AE_DEV uint32_t frag_t(void) { return attn_lane() % 4; }

/* ---- Queries -------------------------------------------------------------------------------------------- */

/* Codes of n values of query q, turned; their digits go to `to`, high ones first. Returns the scale. */
AE_DEV float quant_query(const attn_tile *t, const float *x, uint32_t n, uint8_t *to)
{
    uint8_t *turned = t->shared + t->room.weight;
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
    for (uint32_t i = attn_lane(); i < 2 * Q * t->room.row_bytes / 16; i += 32)
        AE_STORE_SHARED(uint4, t->shared + t->room.query + i * 16, make_uint4(0, 0, 0, 0));
    for (uint32_t q = 0; q < t->n; q++) {
        const float *x = a.q + static_cast<size_t>(attn_index(t, q)) * (n_rope + head_dim);
        uint8_t *row = t->shared + t->room.query + q * t->room.row_bytes, *scale = t->shared + t->room.query_scale + q * 4;
        const float d = quant_query(t, x + n_rope, head_dim, row + t->room.latent_at);
        const float own = d * (a.scale / static_cast<float>(attn_turn_block(head_dim)));
        if (!attn_lane()) AE_STORE_SHARED(float, scale, own);
        if (!n_rope) continue;
        const float dr = quant_query(t, x, n_rope, row), rope = dr * (a.scale / static_cast<float>(attn_turn_block(n_rope)));
        if (!attn_lane()) AE_STORE_SHARED(float, scale + Q * 4, rope);
    }
    ae_sync_warp();
}

/* ---- Scores --------------------------------------------------------------------------------------------- */

/* The address of each position's key and its scales, for all lanes. */
AE_DEV void share_keys(const ae_gpu_attention_args &a, const attn_tile *t, const attn_group *g)
{
    AE_UNROLL
    for (int i = 0; i < 2; i++) {
        const uint32_t j = attn_lane() + 32 * i;
        const uint8_t *key = g->block[i] + ae_gpu_kv_key_at(&a.kv.form, 0, 0, g->place[i]);
        AE_STORE_SHARED(uint64_t, t->shared + t->room.place + j * 8, reinterpret_cast<uintptr_t>(key));
        AE_UNROLL
        for (uint32_t s = 0; s < 2; s++)
            AE_STORE_SHARED(uint32_t, t->shared + t->room.scale + (s * AE_KV_PAGE + j) * 4,
                            ae_load4(g->block[i] + ae_gpu_kv_scale_at(&a.kv.form, s, g->place[i])));
    }
}

AE_DEV const uint8_t *place_of(const attn_tile *t, uint32_t j)
{
    const uint64_t address = AE_LOAD_SHARED(uint64_t, t->shared + t->room.place + j * 8);
    return reinterpret_cast<const uint8_t *>(static_cast<uintptr_t>(address));
}

/* 64 elements of 16 positions: two steps of the instruction for each digit. x, y: 16 bytes of rows g and g + 8. */
AE_DEV void multiply_keys(uint4 x, uint4 y, uint4 high, uint4 low, int32_t c[2][4])
{
    const uint32_t a0[4] = {x.x, y.x, x.y, y.y}, a1[4] = {x.z, y.z, x.w, y.w};
    const uint32_t h0[2] = {high.x, high.y}, h1[2] = {high.z, high.w}, l0[2] = {low.x, low.y}, l1[2] = {low.z, low.w};
    ae_mma_s8(c[0], a0, h0);
    ae_mma_s8(c[0], a1, h1);
    ae_mma_s8(c[1], a0, l0);
    ae_mma_s8(c[1], a1, l1);
}

/* Dot products of groups [first, first + n) of a plane of the keys with the queries' digits from byte `at` on. sum[i][..] is
 * of positions 16 i + g (twice) and 16 i + g + 8, queries 2 t and 2 t + 1. */
AE_DEV void dot_plane(const ae_gpu_attention_args &a, const attn_tile *t, uint32_t plane, uint32_t first, uint32_t n,
                      uint32_t at, int32_t sum[4][4])
{
    const uint8_t *query = t->shared + t->room.query + frag_g() * t->room.row_bytes + at + frag_t() * 16;
    const uint32_t from = ae_gpu_kv_key_at(&a.kv.form, plane, first + frag_t(), 0);
    int32_t c[4][2][4] = {};
    AE_NO_UNROLL
    for (uint32_t s = 0; s < n; s += 4, query += 64) {
        const bool is_there = s + frag_t() < n;
        const uint32_t group = from + s * AE_KV_PAGE * AE_GPU_KV_GROUP;
        uint4 x[4], y[4];
        AE_UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            x[i] = is_there ? ae_load16(place_of(t, 16 * i + frag_g()) + group) : make_uint4(0, 0, 0, 0);
            y[i] = is_there ? ae_load16(place_of(t, 16 * i + frag_g() + 8) + group) : make_uint4(0, 0, 0, 0);
        }
        const uint4 high = AE_LOAD_SHARED(uint4, query), low = AE_LOAD_SHARED(uint4, query + Q * t->room.row_bytes);
        AE_UNROLL
        for (int i = 0; i < 4; i++) multiply_keys(x[i], y[i], high, low, c[i]);
    }
    AE_UNROLL
    for (int i = 0; i < 4; i++)
        AE_UNROLL
        for (int j = 0; j < 4; j++) sum[i][j] = 128 * c[i][0][j] + c[i][1][j];
}

/* The same of all planes, as floats. */
template <int PLANES> AE_DEV void dot_part(const ae_gpu_attention_args &a, const attn_tile *t, uint32_t first, uint32_t n,
                                           uint32_t at, float dot[4][4])
{
    int32_t sum[4][4];
    dot_plane(a, t, 0, first, n, at, sum);
    AE_UNROLL
    for (int i = 0; i < 16; i++) dot[i / 4][i % 4] = static_cast<float>(sum[i / 4][i % 4]);
    if (PLANES == 1) return;
    dot_plane(a, t, 1, first, n, at, sum);
    AE_UNROLL
    for (int i = 0; i < 16; i++) dot[i / 4][i % 4] = ae_fma(dot[i / 4][i % 4], 128.0f, static_cast<float>(sum[i / 4][i % 4]));
}

/* Scores of all queries, to shared memory and from there to the lanes of their positions: s [2][Q]. */
template <int PLANES, bool LATENT> AE_DEV void scores(const ae_gpu_attention_args &a, const attn_tile *t, float s[2][Q])
{
    const ae_gpu_kv_form *f = &a.kv.form;
    const uint8_t *scale = t->shared + t->room.scale, *query_scale = t->shared + t->room.query_scale + frag_t() * 8;
    float dot[4][4], rotated[4][4] = {};
    dot_part<PLANES>(a, t, f->rope_groups, f->groups - f->rope_groups, t->room.latent_at, dot);
    if (LATENT) dot_part<PLANES>(a, t, 0, f->rope_groups, 0, rotated);
    const float2 own = AE_LOAD_SHARED(float2, query_scale);
    const float2 rope = LATENT ? AE_LOAD_SHARED(float2, query_scale + Q * 4) : make_float2(0, 0);
    AE_UNROLL
    for (uint32_t i = 0; i < 8; i++) { /* the rows of the fragments */
        const uint32_t j = i / 2 * 16 + i % 2 * 8 + frag_g();
        const float d = AE_LOAD_SHARED(float, scale + j * 4);
        const float *x = &dot[i / 2][i % 2 * 2], *r = &rotated[i / 2][i % 2 * 2];
        float2 v = make_float2(x[0] * (d * own.x), x[1] * (d * own.y));
        if (LATENT) {
            const float dr = AE_LOAD_SHARED(float, scale + (AE_KV_PAGE + j) * 4);
            v = make_float2(ae_fma(x[0], d * own.x, r[0] * (dr * rope.x)), ae_fma(x[1], d * own.y, r[1] * (dr * rope.y)));
        }
        AE_STORE_SHARED(float2, t->shared + t->room.weight + (j * AE_ATTENTION_WEIGHTS(Q) + 2 * frag_t()) * 4, v);
    }
    ae_sync_warp();
    AE_UNROLL
    for (int i = 0; i < 4; i++) {
        const uint32_t j = attn_lane() + i / 2 * 32;
        const float4 v = AE_LOAD_SHARED(float4, t->shared + t->room.weight + (j * AE_ATTENTION_WEIGHTS(Q) + i % 2 * 4) * 4);
        float *to = &s[i / 2][i % 2 * 4];
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    }
}

/* ---- Weights -------------------------------------------------------------------------------------------- */

/* Codes of the weights of this lane's positions, for all lanes: their digits and scales; 0 where a query does not see the
 * position. And the address of each position's value. */
template <bool LATENT> AE_DEV void share_weights(const ae_gpu_attention_args &a, const attn_tile *t, const attn_group *g,
                                                 float p[2][Q])
{
    const ae_gpu_kv_form *f = &a.kv.form;
    const uint32_t lane = attn_lane();
    float d[2];
    AE_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t j = lane + 32 * i;
        d[i] = AE_LOAD_SHARED(float, t->shared + t->room.scale + ((LATENT ? 0 : AE_KV_PAGE) + j) * 4);
        const uint32_t at = LATENT ? ae_gpu_kv_key_at(f, 0, f->rope_groups, g->place[i])
                                   : ae_gpu_kv_value_at(f, 0, g->place[i]);
        AE_STORE_SHARED(uint64_t, t->shared + t->room.place + j * 8, reinterpret_cast<uintptr_t>(g->block[i] + at));
    }
    AE_UNROLL
    for (uint32_t q = 0; q < Q; q++) {
        const bool is_member = g->members >> q & 1;
        const float x = is_member && p[0][q] >= 0 ? p[0][q] * d[0] : 0.0f;
        const float y = is_member && p[1][q] >= 0 ? p[1][q] * d[1] : 0.0f;
        float top = attn_larger(y, attn_larger(x, 0.0f));
        for (uint32_t step = 16; step; step /= 2) top = attn_larger(top, ae_shfl_xor(top, step));
        const bool some = top > 1e-30f;
        const float inv = some ? AE_KV_WEIGHT / top : 0.0f;
        const int32_t code[2] = {ae_round_magic(x, inv), ae_round_magic(y, inv)};
        uint8_t *digit = t->shared + t->room.digit + q * AE_ATTENTION_DIGITS + lane;
        AE_UNROLL
        for (int i = 0; i < 2; i++) {
            AE_STORE_SHARED(uint8_t, digit + 32 * i, static_cast<uint8_t>(code[i] >> 7));
            AE_STORE_SHARED(uint8_t, digit + Q * AE_ATTENTION_DIGITS + 32 * i, static_cast<uint8_t>(code[i] & 127));
        }
        if (!lane) AE_STORE_SHARED(float, t->shared + t->room.weight_scale + q * 4, some ? top * (1 / AE_KV_WEIGHT) : 0.0f);
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

/* The second factor of 16 positions from j on: positions j + 4 t .. of elements e .. e + 7, at byte `at` of values; b[i] is of
 * element e + i. */
AE_DEV void load_values(const attn_tile *t, uint32_t j, bool is_there, uint32_t at, uint32_t b[8])
{
    uint2 v[4];
    AE_UNROLL
    for (uint32_t i = 0; i < 4; i++) v[i] = is_there ? ae_load8(place_of(t, j + 4 * frag_t() + i) + at) : make_uint2(0, 0);
    AE_UNROLL
    for (int i = 0; i < 4; i++) b[i] = v[i].x, b[4 + i] = v[i].y;
    transpose(b);
    transpose(b + 4);
}

/* Sums over the chunk's positions of weight codes times codes of elements e = from + 8 g .. of a plane: sum[i] of query g and
 * element from + 16 t + i. */
template <bool LATENT> AE_DEV void sum_plane(const ae_gpu_attention_args &a, const attn_tile *t, uint32_t plane, uint32_t from,
                                             int32_t sum[16])
{
    const uint32_t e = from + 8 * frag_g(), in_group = e % AE_GPU_KV_GROUP, group = e / AE_GPU_KV_GROUP;
    const bool is_there = e < a.kv.form.head_dim;
    const uint32_t at = LATENT ? ae_gpu_kv_key_at(&a.kv.form, plane, group, 0) + in_group : e;
    const uint8_t *digit = t->shared + t->room.digit + frag_g() * AE_ATTENTION_DIGITS + 4 * frag_t();
    int32_t c[8][4] = {};
    AE_UNROLL
    for (uint32_t j = 0; j < AE_KV_PAGE; j += 32) {
        uint32_t b[2][8];
        load_values(t, j, is_there, at, b[0]);
        load_values(t, j + 16, is_there, at, b[1]);
        const uint8_t *high = digit + j, *low = high + Q * AE_ATTENTION_DIGITS;
        const uint32_t w[4] = {AE_LOAD_SHARED(uint32_t, high), AE_LOAD_SHARED(uint32_t, low),
                               AE_LOAD_SHARED(uint32_t, high + 16), AE_LOAD_SHARED(uint32_t, low + 16)};
        AE_UNROLL
        for (int i = 0; i < 8; i++) {
            const uint32_t v[2] = {b[0][i], b[1][i]};
            ae_mma_s8(c[i], w, v);
        }
    }
    AE_UNROLL
    for (int i = 0; i < 8; i++) {
        sum[i] = 128 * c[i][0] + c[i][2];
        sum[8 + i] = 128 * c[i][1] + c[i][3];
    }
}

/* Sixteen elements of o of query g, from from + 16 t on: to the part of a chunk, or joined to O. */
AE_DEV void put(const ae_gpu_attention_args &a, const attn_tile *t, int32_t chunk, uint32_t from, bool to_part,
                const float o[16])
{
    const uint32_t q = frag_g(), e = from + 16 * frag_t(), head_dim = a.kv.form.head_dim;
    if (to_part) {
        float *part = attn_part(a, t, q, chunk) + 4 + e;
        AE_UNROLL
        for (uint32_t i = 0; i < 16; i += 4) /* in the part's filling, too */
            if (e + i < head_dim) *reinterpret_cast<float4 *>(part + i) = make_float4(o[i], o[i + 1], o[i + 2], o[i + 3]);
        return;
    }
    const float2 f = attn_factor(t, q);
    uint8_t *sum = t->shared + t->room.sum + (from * Q + attn_lane()) * 4;
    AE_UNROLL
    for (int i = 0; i < 16; i++) attn_join_value(sum + i * 128, f, o[i]);
}

template <int PLANES, bool LATENT> AE_DEV void values(const ae_gpu_attention_args &a, const attn_tile *t, const attn_group *g,
                                                      int32_t chunk, bool to_parts)
{
    const float d = AE_LOAD_SHARED(float, t->shared + t->room.weight_scale + frag_g() * 4);
    AE_NO_UNROLL
    for (uint32_t from = 0; from < a.kv.form.head_dim; from += SPAN) {
        int32_t sum[16];
        float o[16];
        sum_plane<LATENT>(a, t, 0, from, sum);
        AE_UNROLL
        for (int i = 0; i < 16; i++) o[i] = static_cast<float>(sum[i]);
        if (PLANES == 2) {
            sum_plane<LATENT>(a, t, 1, from, sum);
            AE_UNROLL
            for (int i = 0; i < 16; i++) o[i] = ae_fma(o[i], 128.0f, static_cast<float>(sum[i]));
        }
        AE_UNROLL
        for (int i = 0; i < 16; i++) o[i] *= d;
        if (g->members >> frag_g() & 1) put(a, t, chunk, from, to_parts, o);
    }
}

/* ---- Tiles ---------------------------------------------------------------------------------------------- */

template <int PLANES, bool LATENT> AE_DEV void attend(const ae_gpu_attention_args &a, attn_tile *t, uint32_t queries,
                                                      int32_t chunk, bool to_parts)
{
    attn_group g;
    for (uint32_t pending = attn_seeing(t, queries, chunk); pending; pending &= ~g.members) {
        float s[2][Q], m, l;
        attn_group_of(t, pending, chunk, &g);
        attn_places(a, t, chunk, &g);
        share_keys(a, t, &g);
        ae_sync_warp();
        scores<PLANES, LATENT>(a, t, s);
        attn_softmax<Q>(a, t, &g, chunk, s, &m, &l);
        share_weights<LATENT>(a, t, &g, s);
        const uint32_t q = attn_lane();
        if (q < t->n && g.members >> q & 1) attn_put_sums(a, t, q, chunk, to_parts, m, l, &t->big_m, &t->big_l);
        ae_sync_warp();
        values<PLANES, LATENT>(a, t, &g, chunk, to_parts);
        ae_sync_warp();
    }
}

/* The results of walked queries; those of latent rows are turned back. */
template <bool LATENT> AE_DEV void finish(const ae_gpu_attention_args &a, const attn_tile *t)
{
    const uint32_t head_dim = a.kv.form.head_dim;
    const float back = LATENT ? 1.0f / static_cast<float>(attn_turn_block(head_dim)) : 1.0f;
    uint8_t *head = t->shared + t->room.weight;
    attn_last_factors(a, t);
    for (uint32_t q = 0; q < t->n; q++) {
        if (!(t->to_walk >> q & 1)) continue;
        const float f = attn_factor(t, q).x;
        for (uint32_t e = attn_lane(); e < head_dim; e += 32) { /* where put left it */
            const uint32_t lane = 4 * q + e % SPAN / 16, at = (e / SPAN * SPAN * Q + e % 16 * 32 + lane) * 4;
            AE_STORE_SHARED(float, head + e * 4, AE_LOAD_SHARED(float, t->shared + t->room.sum + at) * f);
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
    const uint32_t warp = ae_thread() / 32;
    attn_tile t;
    t.room = ae_gpu_attention_room_codes(&a.kv.form);
    t.shared = shared + warp * t.room.bytes;
    if (warp >= a.n_warps || !attn_begin<Q, false>(a, ae_block_x() * a.n_warps + warp, &t)) return;
    load_queries(a, &t);
    AE_NO_UNROLL
    for (int walk = 0; walk < 2; walk++) {
        const uint32_t queries = walk ? t.to_walk : t.to_parts;
        int32_t first, last;
        attn_chunks(&t, queries, &first, &last);
        const int32_t step = walk ? 1 : static_cast<int32_t>(a.n_splits);
        if (queries)
            for (int32_t c = first + (walk ? 0 : static_cast<int32_t>(t.split)); c <= last; c += step)
                attend<PLANES, LATENT>(a, &t, queries, c, !walk);
    }
    if (t.to_walk) finish<LATENT>(a, &t);
}

#define KERNEL(name, planes, latent) \
    AE_KERNEL(name, ae_gpu_attention_args, AE_ATTENTION_WARPS * 32) \
    { \
        AE_SHARED(shared); \
        attention<planes, latent>(a, shared); \
    }

KERNEL(attention_q8, 1, false)
KERNEL(attention_latent_q8, 1, true)
KERNEL(attention_latent_f16, 2, true)

/* codes.h - scores of queries over codes, for attention (codes.cu) and the choice of positions (select.cu). Device code.
 *
 * A warp has 16 positions, the rows of the matrix instruction, by 8 queries, k over the elements; queries have two digits. In a
 * fragment, lane 4 g + t has row or column g; part t of k may be any elements, as long as both factors agree.
 */
#ifndef AE_BACKEND_GPU_KERNELS_ATTENTION_CODES_H
#define AE_BACKEND_GPU_KERNELS_ATTENTION_CODES_H

#include "backend/gpu/kernels/attention/tile.h"

#define Q AE_ATTENTION_CODES

/* The form of the rows of keys or values, as a template parameter: 4-bit codes, or planes of digits. */
#define HALVES 0

AE_DEV uint32_t frag_g(void) { return attn_lane() / 4; }
AE_DEV uint32_t frag_t(void) { return attn_lane() % 4; }
AE_DEV uint32_t warp_of(void) { return ae_thread() / 32; }

/* ---- Queries -------------------------------------------------------------------------------------------- */

/* Computes the codes of n values of a query, turned, and writes their digits to `to`, high ones first. Returns the scale. */
AE_DEV float quant_query(const attn_tile *t, const float *x, uint32_t n, uint8_t *to)
{
    uint8_t *turned = t->shared + t->room.sum + warp_of() * Q * t->room.n; /* a quarter of the memory for O, not yet in use */
    float top = 0; /* of the query before, each lane has read only values that it now writes */
    for (uint32_t i = attn_lane(); i < n; i += 32) AE_STORE_SHARED(float, turned + i * 4, x[i]);
    attn_turn(turned, n);
    for (uint32_t i = attn_lane(); i < n; i += 32) top = attn_larger(fabsf(AE_LOAD_SHARED(float, turned + i * 4)), top);
    top = ae_fold<ae_larger>(top, 16, 1);
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

/* Computes digits and factors of all queries of the tile. The padding of the rows is zero. */
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

/* ---- Codes of 4 bits ------------------------------------------------------------------------------------ */

/* Returns the levels of codes first to first + 3. */
AE_DEV uint32_t four_levels(uint32_t first)
{
    const int32_t level[] = AE_KV4_LEVELS;
    uint32_t word = 0;
    AE_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t c = first + i;
        word |= static_cast<uint32_t>(static_cast<uint8_t>(c < 8 ? -level[(7 - c) & 7] : level[c & 7])) << 8 * i;
    }
    return word;
}

/* Returns the levels of the four codes in the low half of a word. */
AE_DEV uint32_t levels_of(uint32_t codes)
{
    const uint32_t below = ae_perm(four_levels(0), four_levels(4), codes & 0x7777);
    const uint32_t above = ae_perm(four_levels(8), four_levels(12), codes & 0x7777);
    return ae_perm(below, above, 0x3210 | (codes & 0x8888) >> 1);
}

/* ---- Scores --------------------------------------------------------------------------------------------- */

/* This lane's two positions: 16 warp + g and 8 more. */
typedef struct positions {
    const uint8_t *block[2];
    uint32_t place[2];
} positions;

/* Loads the i-th 16 elements of the keys of both positions; zeros if there are none. */
template <int KEYS> AE_DEV void load_keys(const ae_gpu_attention_args &a, const positions *at, uint32_t plane, uint32_t i,
                                          bool is_there, uint4 k[2])
{
    AE_UNROLL
    for (int p = 0; p < 2; p++) {
        k[p] = make_uint4(0, 0, 0, 0);
        if (!is_there) continue;
        if (KEYS == HALVES) { /* 4-bit codes, as they are stored: two words */
            const uint2 v = ae_load8(at->block[p] + ae_gpu_kv_key_at(&a.kv.form, 0, i / 2, at->place[p]) + i % 2 * 8);
            k[p].x = v.x, k[p].y = v.y;
        } else {
            k[p] = ae_load16(at->block[p] + ae_gpu_kv_key_at(&a.kv.form, plane, i, at->place[p]));
        }
    }
}

/* Multiplies 64 elements of 16 positions: two steps of the instruction for each digit. */
template <int KEYS> AE_DEV void multiply_keys(const uint4 of[2], uint4 high, uint4 low, int32_t c[2][4])
{
    uint4 k[2];
    AE_UNROLL
    for (int p = 0; p < 2; p++)
        k[p] = KEYS == HALVES ? make_uint4(levels_of(of[p].x), levels_of(of[p].x >> 16), levels_of(of[p].y),
                                           levels_of(of[p].y >> 16)) : of[p];
    const uint32_t a0[4] = {k[0].x, k[1].x, k[0].y, k[1].y}, a1[4] = {k[0].z, k[1].z, k[0].w, k[1].w};
    const uint32_t h0[2] = {high.x, high.y}, h1[2] = {high.z, high.w}, l0[2] = {low.x, low.y}, l1[2] = {low.z, low.w};
    ae_mma_s8(c[0], a0, h0);
    ae_mma_s8(c[1], a0, l0);
    ae_mma_s8(c[0], a1, h1);
    ae_mma_s8(c[1], a1, l1);
}

/* Computes dot products of elements 16 first to 16 (first + n) of a plane of the keys with the queries' digits from byte `at`
 * on: for this lane's first position and queries 2 t and 2 t + 1, then for its second position. */
template <int KEYS> AE_DEV void dot_plane(const ae_gpu_attention_args &a, const attn_tile *t, const positions *where,
                                          uint32_t plane, uint32_t first, uint32_t n, uint32_t at, int32_t sum[4])
{
    const uint8_t *query = t->shared + t->room.query + frag_g() * t->room.row_bytes + at + frag_t() * 16;
    const uint32_t own = first + frag_t();
    int32_t c[2][4] = {};
    uint4 now[2][2], next[2][2];
    load_keys<KEYS>(a, where, plane, own, frag_t() < n, now[0]);
    load_keys<KEYS>(a, where, plane, own + 4, frag_t() + 4 < n, now[1]);
    AE_NO_UNROLL
    for (uint32_t s = 0; s < n; s += 8) {
        AE_UNROLL
        for (uint32_t i = 0; i < 2; i++)
            load_keys<KEYS>(a, where, plane, own + s + 8 + 4 * i, frag_t() + s + 8 + 4 * i < n, next[i]);
        AE_UNROLL
        for (uint32_t i = 0; i < 2; i++, query += 64) {
            if (s + 4 * i >= n) break;
            multiply_keys<KEYS>(now[i], AE_LOAD_SHARED(uint4, query), AE_LOAD_SHARED(uint4, query + Q * t->room.row_bytes), c);
        }
        AE_UNROLL
        for (int i = 0; i < 4; i++) now[i / 2][i % 2] = next[i / 2][i % 2];
    }
    AE_UNROLL
    for (int i = 0; i < 4; i++) sum[i] = 128 * c[0][i] + c[1][i];
}

/* Does the same for all planes, as floats. */
template <int KEYS> AE_DEV void dot_part(const ae_gpu_attention_args &a, const attn_tile *t, const positions *where,
                                         uint32_t first, uint32_t n, uint32_t at, float dot[4])
{
    int32_t sum[4];
    dot_plane<KEYS>(a, t, where, 0, first, n, at, sum);
    AE_UNROLL
    for (int i = 0; i < 4; i++) dot[i] = static_cast<float>(sum[i]);
    if (KEYS != 2) return;
    dot_plane<KEYS>(a, t, where, 1, first, n, at, sum);
    AE_UNROLL
    for (int i = 0; i < 4; i++) dot[i] = ae_fma(dot[i], 128.0f, static_cast<float>(sum[i]));
}

/* Writes the scores of all queries to shared memory. */
template <int KEYS, bool LATENT> AE_DEV void scores(const ae_gpu_attention_args &a, const attn_tile *t, const attn_group *g,
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
    dot_part<KEYS>(a, t, &where, f->rope_groups, (f->head_dim + 15) / 16, t->room.latent_at, dot);
    const bool rotates = LATENT && f->rope_groups;
    if (rotates) dot_part<KEYS>(a, t, &where, 0, f->rope_groups, 0, rotated);
    const float2 own = AE_LOAD_SHARED(float2, query_scale);
    const float2 rope = rotates ? AE_LOAD_SHARED(float2, query_scale + Q * 4) : make_float2(0, 0);
    AE_UNROLL
    for (uint32_t p = 0; p < 2; p++) {
        const float d = ae_as_float(ae_load4(where.block[p] + ae_gpu_kv_scale_at(f, 0, where.place[p])));
        float2 v = make_float2(dot[2 * p] * (d * own.x), dot[2 * p + 1] * (d * own.y));
        if (rotates) {
            const float dr = ae_as_float(ae_load4(where.block[p] + ae_gpu_kv_scale_at(f, 1, where.place[p])));
            v.x = ae_fma(dot[2 * p], d * own.x, rotated[2 * p] * (dr * rope.x));
            v.y = ae_fma(dot[2 * p + 1], d * own.y, rotated[2 * p + 1] * (dr * rope.y));
        }
        AE_STORE_SHARED(float, score + 32 * p, v.x);
        AE_STORE_SHARED(float, score + 32 * p + AE_ATTENTION_SCORES * 4, v.y);
    }
}

#endif

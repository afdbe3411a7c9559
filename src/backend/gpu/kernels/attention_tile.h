/* attention_tile.h - what the attention kernels share: the queries of a warp, the chunks that they see, the softmax of a chunk,
 * joining chunks. Device code.
 *
 * A tile's queries need not be of one row, nor of one sequence. In a chunk, those whose keys are in the same places form a
 * group: all queries of a sequence whose positions of the chunk are in place, or all queries of one row. Groups are worked on
 * one after the other. A warp shares its memory with no other one, so there are no barriers of the block.
 */
#ifndef AE_BACKEND_GPU_KERNELS_ATTENTION_TILE_H
#define AE_BACKEND_GPU_KERNELS_ATTENTION_TILE_H

#include "backend/arithmetic.h"
#include "backend/gpu/kernels/args_attention.h"
#include "backend/gpu/kernels/kernel.h"

#define ATTN_MOST 0x7fffffff

/* A warp's tile. What says "lane q" is of query q; the other lanes hold nothing of use there. */
typedef struct attn_tile {
    uint8_t *shared;
    ae_gpu_attention_room room;
    uint32_t first;        /* first query of the tile: row * group + head of the group */
    uint32_t group;        /* queries of a row that share a KV head */
    uint32_t n;            /* queries */
    uint32_t head, split;  /* KV head; which of the tile's warps */
    uint32_t to_parts, to_walk; /* bit q: query q goes to parts, or is walked by this warp */
    float big_m, big_l;    /* lane q, walked: M and L */
} attn_tile;

/* Queries whose positions of one chunk are in the same places. */
typedef struct attn_group {
    uint32_t members;      /* bit q */
    uint32_t leader;       /* the first of them */
    bool in_place;         /* all positions are in the slots of the same number */
    int32_t lo, hi;        /* positions that any member sees */
    bool alike;            /* all members see all of them */
    const uint8_t *block[2]; /* see attn_places */
    uint32_t place[2];
} attn_group;

AE_DEV uint32_t attn_lane(void)
{
    return ae_thread() % 32;
}

AE_DEV int4 attn_state(const attn_tile *t, uint32_t q)
{
    return AE_LOAD_SHARED(int4, t->shared + t->room.state + q * 16);
}

AE_DEV int32_t attn_row(const attn_tile *t, uint32_t q)
{
    return AE_LOAD_SHARED(int32_t, t->shared + t->room.row + q * 4);
}

/* The query's number among all heads of all rows. */
AE_DEV uint32_t attn_index(const attn_tile *t, uint32_t q)
{
    return AE_LOAD_SHARED(uint32_t, t->shared + t->room.index + q * 4);
}

AE_DEV int32_t attn_first_seen(const ae_gpu_attention_args &a, int32_t pos)
{
    const int32_t window = static_cast<int32_t>(a.window);
    if (!window || pos < window) return 0;
    return a.chunked ? pos / window * window : pos - window + 1;
}

/* The chunks that a row sees. */
AE_DEV uint32_t attn_n_chunks(const ae_gpu_attention_args &a, int32_t pos)
{
    return static_cast<uint32_t>(pos / AE_KV_PAGE - attn_first_seen(a, pos) / AE_KV_PAGE + 1);
}

/* The rows that there are. */
AE_DEV uint32_t attn_n_rows(const ae_gpu_attention_args &a)
{
    return a.n_actual ? ae_min(a.n_rows, *a.n_actual) : a.n_rows;
}

/* Unit: which warp or block of the launch. Neighbours have the same chunk and head, and then the same keys. The last tiles come
 * first: in a prompt they see most. False: there is nothing to do. BLOCK: all warps of a block share the tile. */
template <int Q, bool BLOCK> AE_DEV bool attn_begin(const ae_gpu_attention_args &a, uint32_t unit, attn_tile *t)
{
    const uint32_t tile = a.n_tiles - 1 - unit % a.n_tiles, rest = unit / a.n_tiles, lane = attn_lane();
    t->group = a.n_heads / a.n_kv_heads;
    t->head = rest % a.n_kv_heads;
    t->split = rest / a.n_kv_heads;
    t->first = tile * Q;
    const uint32_t n_all = attn_n_rows(a) * t->group;
    if (t->split >= a.n_splits || t->first >= n_all) return false;
    t->n = ae_min<uint32_t>(Q, n_all - t->first);
    if (lane < t->n && (!BLOCK || ae_thread() < 32)) {
        const int32_t row = static_cast<int32_t>((t->first + lane) / t->group), pos = a.pos[row];
        const int4 state = make_int4(attn_first_seen(a, pos), pos, a.n_inplace[row], a.seq[row]);
        const uint32_t head = t->head * t->group + (t->first + lane) % t->group;
        AE_STORE_SHARED(int4, t->shared + t->room.state + lane * 16, state);
        AE_STORE_SHARED(int32_t, t->shared + t->room.row + lane * 4, row);
        AE_STORE_SHARED(uint32_t, t->shared + t->room.index + lane * 4, static_cast<uint32_t>(row) * a.n_heads + head);
    }
    if (BLOCK) ae_sync();
    else ae_sync_warp();
    t->to_parts = t->to_walk = 0;
    for (uint32_t q = 0; q < t->n; q++) {
        if (attn_n_chunks(a, attn_state(t, q).y) <= a.max_parts) t->to_parts |= 1u << q;
        else if (!t->split) t->to_walk |= 1u << q;
    }
    t->big_m = t->big_l = 0;
    return t->to_parts || t->to_walk;
}

/* The first and last chunk that any of some queries sees. */
AE_DEV void attn_chunks(const attn_tile *t, uint32_t queries, int32_t *first, int32_t *last)
{
    *first = ATTN_MOST;
    *last = -1;
    for (uint32_t q = 0; q < t->n; q++) {
        if (!(queries >> q & 1)) continue;
        const int4 s = attn_state(t, q);
        *first = ae_min<int32_t>(*first, s.x / AE_KV_PAGE);
        *last = ae_max<int32_t>(*last, s.y / AE_KV_PAGE);
    }
}

/* Those of some queries that see a chunk. */
AE_DEV uint32_t attn_seeing(const attn_tile *t, uint32_t queries, int32_t chunk)
{
    uint32_t seeing = 0;
    for (uint32_t q = 0; q < t->n; q++) {
        const int4 s = attn_state(t, q);
        if (queries >> q & 1 && s.x / AE_KV_PAGE <= chunk && chunk <= s.y / AE_KV_PAGE) seeing |= 1u << q;
    }
    return seeing;
}

/* Where position j of the chunk is. The place exists also where no member sees the position. */
AE_DEV void attn_place(const ae_gpu_attention_args &a, const attn_tile *t, const attn_group *g, int32_t chunk, uint32_t j,
                       const uint8_t **block, uint32_t *place)
{
    const int4 s = attn_state(t, g->leader);
    int32_t slot = chunk * AE_KV_PAGE + static_cast<int32_t>(j);
    if (!g->in_place) {
        slot = ae_min(ae_max(slot, g->lo), g->hi);
        if (slot >= s.z) slot = a.path[static_cast<size_t>(attn_row(t, g->leader)) * a.path_stride + slot - s.z];
    }
    const int32_t page = a.tables[static_cast<size_t>(s.w) * a.table_stride + slot / AE_KV_PAGE];
    *place = static_cast<uint32_t>(slot) % AE_KV_PAGE;
    *block = ae_gpu_kv_block(&a.kv, static_cast<uint32_t>(page), t->head);
}

/* The group of the first pending query, which is not empty. */
AE_DEV void attn_group_of(const attn_tile *t, uint32_t pending, int32_t chunk, attn_group *g)
{
    const int32_t begin = chunk * AE_KV_PAGE, end = begin + AE_KV_PAGE - 1;
    uint32_t leader = 0;
    while (!(pending >> leader & 1)) leader++;
    const int4 l = attn_state(t, leader);
    const int32_t row = attn_row(t, leader);
    g->leader = leader;
    g->in_place = ae_min(l.y, end) < l.z;
    int32_t lo_most = 0, hi_least = ATTN_MOST;
    g->members = 0;
    g->lo = ATTN_MOST;
    g->hi = -1;
    for (uint32_t q = leader; q < t->n; q++) {
        const int4 s = attn_state(t, q);
        const int32_t lo = ae_max(s.x, begin), hi = ae_min(s.y, end);
        const bool joins = g->in_place ? s.w == l.w && hi < s.z : attn_row(t, q) == row;
        if (!(pending >> q & 1) || !joins) continue;
        g->members |= 1u << q;
        g->lo = ae_min(g->lo, lo), g->hi = ae_max(g->hi, hi);
        lo_most = ae_max(lo_most, lo), hi_least = ae_min(hi_least, hi);
    }
    g->alike = g->lo == lo_most && g->hi == hi_least;
}

/* The places of this lane's positions lane and lane + 32. */
AE_DEV void attn_places(const ae_gpu_attention_args &a, const attn_tile *t, int32_t chunk, attn_group *g)
{
    attn_place(a, t, g, chunk, attn_lane(), &g->block[0], &g->place[0]);
    attn_place(a, t, g, chunk, attn_lane() + 32, &g->block[1], &g->place[1]);
}

/* ---- Softmax of a chunk ------------------------------------------------------------------------------- */

AE_DEV float attn_larger(float x, float y)
{
    return x > y ? x : y;
}

/* The sum of the weights of a chunk, x and y of positions lane and lane + 32: ae_sum16 of the sums over position % 16. */
AE_DEV float attn_sum(float x, float y)
{
    const float other = ae_shfl_xor(y, 16u);
    const bool lower = attn_lane() < 16;
    float sum = x + ae_shfl_xor(x, 16u);
    sum = sum + (lower ? y : other);
    sum = sum + (lower ? other : y);
    for (uint32_t d = 8; d; d /= 2) sum = sum + ae_shfl_xor(sum, d);
    return sum;
}

/* Scores of a query at this lane's two positions become weights: s = e(s - m), or -1 where the query does not see the
 * position. */
AE_DEV void attn_weigh(const ae_gpu_attention_args &a, bool sees0, bool sees1, float *s0, float *s1, float *m, float *l)
{
    float x = *s0, y = *s1, top = -INFINITY; /* a NaN never becomes the maximum */
    if (a.softcap != 0.0f) x = ae_softcapf(x, a.softcap), y = ae_softcapf(y, a.softcap);
    if (sees0 && x > top) top = x;
    if (sees1 && y > top) top = y;
    for (uint32_t d = 16; d; d /= 2) top = attn_larger(top, ae_shfl_xor(top, d));
    x = sees0 ? ae_attn_exp(x - top) : 0.0f;
    y = sees1 ? ae_attn_exp(y - top) : 0.0f;
    *l = attn_sum(x, y);
    *m = top;
    *s0 = sees0 ? x : -1.0f;
    *s1 = sees1 ? y : -1.0f;
}

/* The weights of all members, in place of their scores s [2][Q]. Lane q gets m and l of query q. */
template <int Q> AE_DEV void attn_softmax(const ae_gpu_attention_args &a, const attn_tile *t, const attn_group *g,
                                          int32_t chunk, float s[2][Q], float *m, float *l)
{
    const int32_t pos = chunk * AE_KV_PAGE + static_cast<int32_t>(attn_lane());
    *m = *l = 0;
    AE_UNROLL
    for (uint32_t q = 0; q < Q; q++) {
        float own_m = 0, own_l = 0;
        if (g->members >> q & 1) {
            const int4 at = attn_state(t, q);
            attn_weigh(a, at.x <= pos && pos <= at.y, at.x <= pos + 32 && pos + 32 <= at.y, &s[0][q], &s[1][q], &own_m, &own_l);
        }
        if (attn_lane() == q) *m = own_m, *l = own_l;
    }
}

/* ---- Joining chunks ----------------------------------------------------------------------------------- */

/* Joins a chunk's m and l to those of query q. The factors of O and o go to shared memory; of the first chunk, -1. */
AE_DEV void attn_join(const attn_tile *t, uint32_t q, int32_t chunk, float m, float l, float *big_m, float *big_l)
{
    float2 f = make_float2(-1.0f, 1.0f);
    if (attn_state(t, q).x / AE_KV_PAGE == chunk) {
        *big_m = m;
        *big_l = l;
    } else {
        const float top = attn_larger(*big_m, m);
        f.x = ae_attn_exp(*big_m - top);
        f.y = ae_attn_exp(m - top);
        *big_m = top;
        *big_l = ae_fma(*big_l, f.x, l * f.y);
    }
    AE_STORE_SHARED(float2, t->shared + t->room.factor + q * 8, f);
}

AE_DEV float2 attn_factor(const attn_tile *t, uint32_t q)
{
    return AE_LOAD_SHARED(float2, t->shared + t->room.factor + q * 8);
}

/* The last factor of a query's weighted values; index: as attn_index. */
AE_DEV float attn_last(const ae_gpu_attention_args &a, uint32_t index, float m, float l)
{
    if (!a.sinks) return 1.0f / l;
    const float sink = a.sinks[index % a.n_heads], top = attn_larger(m, sink), f = ae_attn_exp(m - top);
    return f / ae_fma(l, f, ae_attn_exp(sink - top));
}

/* The part of query q for a chunk that it sees. */
AE_DEV float *attn_part(const ae_gpu_attention_args &a, const attn_tile *t, uint32_t q, int32_t chunk)
{
    const uint32_t i = static_cast<uint32_t>(chunk - attn_state(t, q).x / AE_KV_PAGE);
    return a.parts + (static_cast<size_t>(attn_index(t, q)) * a.max_parts + i) * ae_gpu_attention_part(a.kv.form.head_dim);
}

/* Takes m and l of a chunk: to the query's part, or joined to M and L. */
AE_DEV void attn_put_sums(const ae_gpu_attention_args &a, const attn_tile *t, uint32_t q, int32_t chunk, bool to_part, float m,
                          float l, float *big_m, float *big_l)
{
    if (!to_part) {
        attn_join(t, q, chunk, m, l, big_m, big_l);
        return;
    }
    float *part = attn_part(a, t, q, chunk);
    part[0] = m;
    part[1] = l;
}

/* O of walked rows, one element: joins o. */
AE_DEV void attn_join_value(uint8_t *sum, float2 factor, float o)
{
    const float old = AE_LOAD_SHARED(float, sum);
    AE_STORE_SHARED(float, sum, factor.x < 0 ? o : ae_fma(old, factor.x, o * factor.y));
}

/* Lane q puts the last factor of a walked query where attn_factor finds it. */
AE_DEV void attn_last_factors(const ae_gpu_attention_args &a, const attn_tile *t)
{
    const uint32_t lane = attn_lane();
    ae_sync_warp();
    if (lane < t->n && t->to_walk >> lane & 1) {
        const float2 f = make_float2(attn_last(a, attn_index(t, lane), t->big_m, t->big_l), 0.0f);
        AE_STORE_SHARED(float2, t->shared + t->room.factor + lane * 8, f);
    }
    ae_sync_warp();
}

/* ---- Turns ---------------------------------------------------------------------------------------------- */

/* The block of the turn of n elements: the largest power of two that divides n. */
AE_DEV uint32_t attn_turn_block(uint32_t n)
{
    return n & (~n + 1);
}

/* Step h of the turn of x [n] in shared memory by n_threads threads, which meet before and after it. */
AE_DEV void attn_turn_step(uint8_t *x, uint32_t n, uint32_t h, uint32_t thread, uint32_t n_threads)
{
    for (uint32_t i = thread; i < n / 2; i += n_threads) {
        uint8_t *at = x + (i / h * 2 * h + i % h) * 4;
        const float v = AE_LOAD_SHARED(float, at), w = AE_LOAD_SHARED(float, at + h * 4);
        AE_STORE_SHARED(float, at, v + w);
        AE_STORE_SHARED(float, at + h * 4, v - w);
    }
}

/* The turn by a warp. */
AE_DEV void attn_turn(uint8_t *x, uint32_t n)
{
    ae_sync_warp();
    for (uint32_t h = 1; h < attn_turn_block(n); h *= 2) {
        attn_turn_step(x, n, h, attn_lane(), 32);
        ae_sync_warp();
    }
}

#endif

/* tile.h - what the attention kernels share: the queries of a unit, the chunks that they see, the softmax of a chunk, merging
 * chunks. Device code.
 *
 * A tile's queries need not be of one row, nor of one sequence. In a chunk, those whose keys are in the same places form a
 * group: all queries of a sequence whose positions of the chunk are in place, or all queries of one row. Groups are handled one
 * after the other. Units that are warps share their memory with no other one, and have no barriers of the block.
 */
#ifndef AE_BACKEND_GPU_KERNELS_ATTENTION_TILE_H
#define AE_BACKEND_GPU_KERNELS_ATTENTION_TILE_H

#include "backend/arithmetic.h"
#include "backend/gpu/kernels/args_attention.h"
#include "backend/gpu/kernels/kernel.h"

/* The number of threads of a block, and how many blocks a multiprocessor should hold, which bounds the registers of a
 * thread. */
#ifdef AE_GPU_EMU
#define ATTN_THREADS(blocks) AE_ATTENTION_WARPS * 32
#else
#define ATTN_THREADS(blocks) AE_ATTENTION_WARPS * 32, blocks
#endif

#define ATTN_MOST 0x7fffffff
#define ATTN_FEW_CHUNKS 2 /* one block walks up to this many chunks: the synchronization of split blocks takes about as long */

/* A unit's tile. */
typedef struct attn_tile {
    uint8_t *shared;
    ae_gpu_attention_room room;
    uint32_t first;       /* first query of the tile: row * group + head of the group */
    uint32_t group;       /* queries of a row that share a KV head */
    uint32_t n;           /* queries */
    uint32_t head, split; /* head: the KV head; split: the unit's number among those of the tile */
    uint32_t unit;        /* the unit's tile and head as an index into arrivals */
    bool one_row;         /* all queries are of one row */
    int4 own;             /* state of query lane % Q, if it exists; with one_row, all lanes have that of all queries */
    int32_t own_row;
    uint32_t own_index;   /* row * n_heads + head of query lane % Q */
    int32_t first_chunk, last_chunk; /* that any query sees */
    bool to_parts;        /* chunks are distributed over n_active units; otherwise this unit walks all */
    uint32_t n_active;
} attn_tile;

/* The queries that have the positions of one chunk in the same places. */
typedef struct attn_group {
    uint32_t members;     /* bit q */
    int4 state;           /* of the first of them */
    int32_t row;          /* likewise */
    bool in_place;        /* every position is in the slot of the same number */
    int32_t lo, hi;       /* range of the positions that some member sees */
    bool alike;           /* all members see all of them */
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

/* Returns the query's number among all heads of all rows. */
AE_DEV uint32_t attn_index(const attn_tile *t, uint32_t q)
{
    return AE_LOAD_SHARED(uint32_t, t->shared + t->room.index + q * 4);
}

/* Does the same for all queries of a tile, before anything is in shared memory. */
template <int Q> AE_DEV void attn_indices(const attn_tile *t, uint32_t index[Q])
{
    AE_UNROLL
    for (uint32_t q = 0; q < Q; q++) index[q] = ae_shfl(t->own_index, q);
}

/* Returns the first position that a row at this position sees. */
AE_DEV int32_t attn_first_seen(const ae_gpu_attention_args &a, uint32_t row, int32_t pos)
{
    const int32_t window = static_cast<int32_t>(a.window), least = a.first ? a.first[row] : 0;
    if (!window || pos < window) return least;
    return ae_max(a.chunked ? pos / window * window : pos - window + 1, least);
}

struct attn_widest {
    AE_DEV int2 of(int2 x, int2 y) { return make_int2(ae_min(x.x, y.x), ae_max(x.y, y.y)); }
};

/* Finds the work of a unit. unit: which warp or block of the launch. Neighbours have the same chunk and head, and so the same
 * keys. The last tiles come first: in a prompt they see most. Returns false if there is nothing to do. */
template <int Q> AE_DEV bool attn_begin(const ae_gpu_attention_args &a, uint32_t unit, uint32_t n_splits, attn_tile *t)
{
    const uint32_t rest = unit / a.n_tiles, lane = attn_lane() % Q;
    t->group = a.n_heads / a.n_kv_heads;
    t->head = rest % a.n_kv_heads;
    t->split = rest / a.n_kv_heads;
    t->unit = unit % (a.n_tiles * a.n_kv_heads);
    t->first = (a.n_tiles - 1 - unit % a.n_tiles) * Q;
    if (t->split >= n_splits) return false;
    const uint32_t query = ae_min(t->first + lane, a.n_rows * t->group - 1);
    t->own_row = static_cast<int32_t>(query / t->group);
    t->own_index = static_cast<uint32_t>(t->own_row) * a.n_heads + t->head * t->group + query % t->group;
    const size_t seen = static_cast<size_t>(t->head) * a.head_rows + t->own_row;
    const int32_t pos = a.pos[seen]; /* loaded together with the following values */
    const int32_t last = a.last ? a.last[t->own_row] : pos;
    t->own = make_int4(attn_first_seen(a, t->own_row, pos), last, a.n_inplace[seen], a.seq[t->own_row]);
    if (a.more_pos) /* the row's list contains everything that it sees; no position counts as in place */
        t->own = make_int4(0, last - t->own.x + 1 + a.more_pos[t->own_row], 0, t->own.w);
    const uint32_t n_all = (a.n_actual ? ae_min(a.n_rows, *a.n_actual) : a.n_rows) * t->group;
    if (t->first >= n_all) return false;
    t->n = ae_min<uint32_t>(Q, n_all - t->first);
    t->one_row = t->first / t->group == (t->first + t->n - 1) / t->group;
    if (t->one_row && t->n < Q) { /* otherwise the other lanes might have the state of a row that does not exist */
        t->own = ae_shfl(t->own, 0);
        t->own_row = ae_shfl(t->own_row, 0);
    }
    t->first_chunk = lane < t->n ? t->own.x / AE_KV_PAGE : ATTN_MOST;
    t->last_chunk = lane < t->n ? t->own.y / AE_KV_PAGE : -1;
    if constexpr (Q > 1) {
        const int2 both = ae_fold<attn_widest>(make_int2(t->first_chunk, t->last_chunk), Q / 2, 1);
        t->first_chunk = both.x, t->last_chunk = both.y;
    }
    const uint32_t n_chunks = static_cast<uint32_t>(t->last_chunk - t->first_chunk + 1);
    t->to_parts = n_chunks > ATTN_FEW_CHUNKS && n_chunks <= a.max_parts && n_splits > 1;
    t->n_active = t->to_parts ? ae_min(n_chunks, n_splits) : 1;
    return t->split < t->n_active;
}

/* Lanes q of one warp store the states of queries. They can be read after the next barrier of the unit. */
AE_DEV void attn_share_states(const attn_tile *t)
{
    const uint32_t q = attn_lane();
    if (q >= t->n) return;
    AE_STORE_SHARED(int4, t->shared + t->room.state + q * 16, t->own);
    AE_STORE_SHARED(int32_t, t->shared + t->room.row + q * 4, t->own_row);
    AE_STORE_SHARED(uint32_t, t->shared + t->room.index + q * 4, t->own_index);
}

/* Returns the queries that see a chunk. */
AE_DEV uint32_t attn_seeing(const attn_tile *t, int32_t chunk)
{
    uint32_t seeing = 0;
    if (t->one_row) return (1u << t->n) - 1;
    for (uint32_t q = 0; q < t->n; q++) {
        const int4 s = attn_state(t, q);
        if (s.x / AE_KV_PAGE <= chunk && chunk <= s.y / AE_KV_PAGE) seeing |= 1u << q;
    }
    return seeing;
}

/* Adds to the group the pending queries, from q on to n, whose places equal those of its first query. */
AE_DEV void attn_gather(const attn_tile *t, uint32_t pending, uint32_t q, uint32_t n, int32_t begin, int32_t end, attn_group *g)
{
    int32_t lo_most = g->lo, hi_least = g->hi;
    for (; q < n; q++) {
        const int4 s = attn_state(t, q);
        const int32_t lo = ae_max(s.x, begin), hi = ae_min(s.y, end);
        const bool joins = g->in_place ? s.w == g->state.w && hi < s.z : attn_row(t, q) == g->row;
        if (!(pending >> q & 1) || !joins) continue;
        g->members |= 1u << q;
        g->lo = ae_min(g->lo, lo), g->hi = ae_max(g->hi, hi);
        lo_most = ae_max(lo_most, lo), hi_least = ae_min(hi_least, hi);
    }
    g->alike = g->lo == lo_most && g->hi == hi_least;
}

/* Finds the group of the first pending query; there must be one, and all pending ones must be below n. */
AE_DEV void attn_group_of(const attn_tile *t, uint32_t pending, uint32_t n, int32_t chunk, attn_group *g)
{
    const int32_t begin = chunk * AE_KV_PAGE, end = begin + AE_KV_PAGE - 1;
    uint32_t leader = 0;
    g->state = t->own;
    g->row = t->own_row;
    if (!t->one_row) {
        while (!(pending >> leader & 1)) leader++;
        g->state = attn_state(t, leader);
        g->row = attn_row(t, leader);
    }
    g->lo = ae_max(g->state.x, begin), g->hi = ae_min(g->state.y, end);
    g->in_place = g->hi < g->state.z;
    g->members = t->one_row ? pending : 0;
    g->alike = true;
    if (!t->one_row) attn_gather(t, pending, leader, n, begin, end, g);
}

/* Finds where entry i of a row's list is, if the row has further rows. */
AE_DEV void attn_listed(const ae_gpu_attention_args &a, uint32_t row, int32_t seq, int32_t i, const uint8_t **block,
                        uint32_t *place)
{
    const int32_t pos = a.pos[row], first = attn_first_seen(a, row, pos), n_own = pos - first + 1, at = first + i;
    const bool own = i < n_own;
    const int32_t n_inplace = a.n_inplace[row];
    const int32_t *path = own ? a.path + static_cast<size_t>(row) * a.path_stride
                              : a.more_path + static_cast<size_t>(row) * a.more_stride;
    const int32_t slot = own && at < n_inplace ? at : path[own ? at - n_inplace : i - n_own];
    const size_t entry = static_cast<size_t>(seq) * a.table_stride + slot / AE_KV_PAGE;
    *place = static_cast<uint32_t>(slot) % AE_KV_PAGE;
    if (own) *block = a.kv.base + static_cast<uint64_t>(a.tables[entry]) * a.kv.page_bytes;
    else *block = a.more_base + static_cast<uint64_t>(a.more_tables[entry]) * a.more_page_bytes;
}

/* Finds where position j of the chunk is. The place exists even if no member sees the position. */
AE_DEV void attn_place(const ae_gpu_attention_args &a, const attn_tile *t, const attn_group *g, int32_t chunk, uint32_t j,
                       const uint8_t **block, uint32_t *place)
{
    int32_t slot = chunk * AE_KV_PAGE + static_cast<int32_t>(j);
    if (!g->in_place) {
        slot = ae_min(ae_max(slot, g->lo), g->hi);
        if (a.more_pos) {
            attn_listed(a, static_cast<uint32_t>(g->row), g->state.w, slot, block, place);
            return;
        }
        const size_t row = static_cast<size_t>(t->head) * a.head_rows + g->row;
        if (slot >= g->state.z) slot = a.path[row * a.path_stride + slot - g->state.z];
    }
    const int32_t page = a.tables[static_cast<size_t>(g->state.w) * a.table_stride + slot / AE_KV_PAGE];
    *place = static_cast<uint32_t>(slot) % AE_KV_PAGE;
    *block = ae_gpu_kv_block(&a.kv, static_cast<uint32_t>(page), t->head);
}

/* Prefetches a chunk's values, which are in `block` of each position, while scores are computed. */
AE_DEV void attn_fetch_values(const ae_gpu_attention_args &a, const attn_group *g, const uint8_t *block)
{
    const uint32_t bytes = a.kv.form.value_planes * a.kv.form.value_bytes;
    if (!g->in_place || a.kv.form.n_rope) return;
    for (uint32_t at = ae_thread() * 128; at < bytes; at += AE_ATTENTION_WARPS * 32 * 128)
        ae_prefetch(block + a.kv.form.value_at + at);
}

/* Returns the address of the value at index j, which some lane has shared. */
AE_DEV const uint8_t *attn_address(const attn_tile *t, uint32_t j)
{
    const uint64_t address = AE_LOAD_SHARED(uint64_t, t->shared + t->room.place + j * 8);
    return reinterpret_cast<const uint8_t *>(static_cast<uintptr_t>(address));
}

AE_DEV void attn_share_address(const attn_tile *t, uint32_t j, const uint8_t *p)
{
    AE_STORE_SHARED(uint64_t, t->shared + t->room.place + j * 8, static_cast<uint64_t>(reinterpret_cast<uintptr_t>(p)));
}

/* ---- Softmax of a chunk ------------------------------------------------------------------------------- */

AE_DEV float attn_larger(float x, float y)
{
    return x > y ? x : y;
}

/* Returns the sum of a chunk's weights, x and y being those of positions lane and lane + 32: ae_sum16 of the sums over position
 * % 16. */
AE_DEV float attn_sum(float x, float y)
{
    const float2 other = ae_shfl_xor(make_float2(x, y), 16u);
    const bool lower = attn_lane() < 16;
    float sum = x + other.x;
    sum = sum + (lower ? y : other.y);
    sum = sum + (lower ? other.y : y);
    return ae_fold<ae_add>(sum, 8, 1);
}

/* Turns the scores of query q at this lane's two positions, pos and pos + 32, into weights: s = e(s - m), or -1 if the query
 * does not see the position. */
AE_DEV void attn_weigh(const ae_gpu_attention_args &a, const attn_tile *t, uint32_t q, int32_t pos, bool sees0, bool sees1,
                       float *s0, float *s1, float *m, float *l)
{
    float x = *s0, y = *s1, top = -INFINITY; /* a NaN never becomes the maximum */
    if (a.softcap != 0.0f) x = ae_softcapf(x, a.softcap), y = ae_softcapf(y, a.softcap);
    if ((a.slopes || a.bias) && q < t->n) { /* others have no row */
        const uint32_t index = attn_index(t, q), head = index % a.n_heads;
        const float slope = a.slopes ? a.slopes[head] : 0.0f;
        const int32_t own = a.pos[static_cast<size_t>(t->head) * a.head_rows + index / a.n_heads];
        if (slope != 0.0f) x = ae_biased(x, slope, own, pos), y = ae_biased(y, slope, own, pos + 32);
        if (a.bias) {
            const float *bias = a.bias + static_cast<size_t>(head) * AE_BIAS_ROW;
            x = x + bias[ae_attn_bias_at(own, pos)], y = y + bias[ae_attn_bias_at(own, pos + 32)];
        }
    }
    if (sees0 && x > top) top = x;
    if (sees1 && y > top) top = y;
    top = ae_fold<ae_larger>(top, 16, 1);
    x = sees0 ? ae_attn_exp(x - top) : 0.0f;
    y = sees1 ? ae_attn_exp(y - top) : 0.0f;
    *l = attn_sum(x, y);
    *m = top;
    *s0 = sees0 ? x : -1.0f;
    *s1 = sees1 ? y : -1.0f;
}

/* ---- Merging chunks ----------------------------------------------------------------------------------- */

/* Merges a chunk's m and l with those of query q. The factors of O and o go to shared memory; for the first chunk they are
 * -1. */
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

/* Returns one element of O after merging with a chunk's o. */
AE_DEV float attn_joined(float sum, float o, float2 factor)
{
    return factor.x < 0 ? o : ae_fma(sum, factor.x, o * factor.y);
}

/* Returns the last factor of a query's weighted values; index: as in attn_index. */
AE_DEV float attn_last(const ae_gpu_attention_args &a, uint32_t index, float m, float l)
{
    if (!a.sinks) return 1.0f / l;
    const float sink = a.sinks[index % a.n_heads], top = attn_larger(m, sink), f = ae_attn_exp(m - top);
    return f / ae_fma(l, f, ae_attn_exp(sink - top));
}

/* Stores the same where attn_factor finds it. */
AE_DEV void attn_share_last(const ae_gpu_attention_args &a, const attn_tile *t, uint32_t q, float m, float l)
{
    const float f = attn_last(a, attn_index(t, q), m, l);
    AE_STORE_SHARED(float2, t->shared + t->room.factor + q * 8, make_float2(f, 0.0f));
}

/* Returns the part of query q for a chunk that it sees. */
AE_DEV float *attn_part(const ae_gpu_attention_args &a, const attn_tile *t, uint32_t q, int32_t chunk)
{
    const uint32_t i = static_cast<uint32_t>(chunk - attn_state(t, q).x / AE_KV_PAGE);
    return a.parts + (static_cast<size_t>(attn_index(t, q)) * a.max_parts + i) * ae_gpu_attention_part(a.kv.form.head_dim);
}

/* Stores m and l of a chunk in the query's part, or merges them with M and L. */
AE_DEV void attn_put_sums(const ae_gpu_attention_args &a, const attn_tile *t, uint32_t q, int32_t chunk, float m, float l,
                          float *big_m, float *big_l)
{
    if (!t->to_parts) {
        attn_join(t, q, chunk, m, l, big_m, big_l);
        return;
    }
    *reinterpret_cast<float2 *>(attn_part(a, t, q, chunk)) = make_float2(m, l);
}

/* ---- Turns ---------------------------------------------------------------------------------------------- */

/* Returns the length of the blocks in which n elements are turned: the largest power of two that divides n. */
AE_DEV uint32_t attn_turn_block(uint32_t n)
{
    return n & (~n + 1);
}

/* Turns x [n] in shared memory, by a warp. */
AE_DEV void attn_turn(uint8_t *x, uint32_t n)
{
    ae_sync_warp();
    for (uint32_t h = 1; h < attn_turn_block(n); h *= 2) {
        for (uint32_t i = attn_lane(); i < n / 2; i += 32) {
            uint8_t *at = x + (i / h * 2 * h + i % h) * 4;
            const float v = AE_LOAD_SHARED(float, at), w = AE_LOAD_SHARED(float, at + h * 4);
            AE_STORE_SHARED(float, at, v + w);
            AE_STORE_SHARED(float, at + h * 4, v - w);
        }
        ae_sync_warp();
    }
}

#endif

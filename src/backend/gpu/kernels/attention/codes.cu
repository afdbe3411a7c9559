/* codes.cu - attention over codes: q4_0, q8_0, i16, and latent rows of 8 and 15 bits. All sums of codes are exact integers, by
 * matrix instructions of 8-bit numbers; float steps are those of cpu/ref/attention.c. A block has one tile and chunk. LATENT:
 * values are read from the keys, of latent rows or of rows that are key and value.
 *
 * Scores: a warp has 16 positions, the rows, by 8 queries, k over the elements; queries have two digits. Softmax: a warp has
 * every fourth query. Values: 16 rows, 8 queries with the high and the low digits of their weights, by 8 elements, k over the
 * positions; a warp has 32 elements at a time. In a fragment, lane 4 g + t has row or column g; part t of k may be any elements
 * or positions, as long as both factors agree.
 */
#include "backend/gpu/kernels/attention/codes.h"
#include "backend/gpu/kernels/attention/merge.h"

#define SPAN 32u /* elements of values that a warp handles at a time: 4 for each g */

/* Shares the addresses and scales of the chunk's values with all threads. */
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

/* Computes the codes of a query's weights times the values' scales, x and y being those of positions lane and lane + 32. Writes
 * digits and scale to shared memory. */
AE_DEV void quant_weights(const attn_tile *t, uint32_t q, float x, float y)
{
    float top = attn_larger(y, attn_larger(x, 0.0f));
    top = ae_fold<ae_larger>(top, 16, 1);
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

/* Computes the weights of this warp's queries, 0 if a query does not see a position. big_m, big_l: those of query warp + 4 i,
 * in lane 0. */
AE_DEV void softmax(const ae_gpu_attention_args &a, const attn_tile *t, const attn_group *g, int32_t chunk, float big_m[2],
                    float big_l[2])
{
    const uint32_t lane = attn_lane();
    const int32_t pos = chunk * AE_KV_PAGE + static_cast<int32_t>(lane);
    const uint8_t *scale = t->shared + t->room.scale + lane * 4;
    AE_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t q = warp_of() + 4 * i; /* the results of queries that are not members are not used */
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

/* x[i]: four elements of position i on entry, four positions of element i on return. */
AE_DEV void transpose(uint32_t x[4])
{
    const uint32_t lo0 = ae_perm(x[0], x[1], 0x5140), hi0 = ae_perm(x[0], x[1], 0x7362);
    const uint32_t lo1 = ae_perm(x[2], x[3], 0x5140), hi1 = ae_perm(x[2], x[3], 0x7362);
    x[0] = ae_perm(lo0, lo1, 0x5410), x[1] = ae_perm(lo0, lo1, 0x7632);
    x[2] = ae_perm(hi0, hi1, 0x5410), x[3] = ae_perm(hi0, hi1, 0x7632);
}

/* Sums over the chunk's positions of weight codes times codes of elements from .. from + 31 of a plane: sum[i] of query g and
 * element from + 8 t + i. */
template <int VALUES, bool LATENT> AE_DEV void sum_plane(const ae_gpu_attention_args &a, const attn_tile *t, uint32_t plane,
                                                         uint32_t from, int32_t sum[8])
{
    const uint32_t e = from + 4 * frag_g(), byte = VALUES == HALVES ? e / 8 * 4 : e;
    const uint32_t in_group = byte % AE_GPU_KV_GROUP, group = byte / AE_GPU_KV_GROUP;
    const bool is_there = e < a.kv.form.head_dim;
    const uint32_t at = LATENT ? ae_gpu_kv_key_at(&a.kv.form, plane, group, 0) + in_group
                        : VALUES == HALVES ? byte : plane * a.kv.form.value_bytes + e;
    const uint8_t *digit = t->shared + t->room.digit + frag_g() * AE_ATTENTION_DIGITS + 4 * frag_t();
    uint32_t v[4][4]; /* [16 positions][the four of them that this lane has, from 4 t on] */
    int32_t c[4][4] = {};
    AE_UNROLL
    for (uint32_t i = 0; i < 16; i++)
        v[i / 4][i % 4] = is_there ? ae_load4(attn_address(t, i / 4 * 16 + 4 * frag_t() + i % 4) + at) : 0;
    AE_UNROLL
    for (int i = 0; i < 4; i++) {
        AE_UNROLL
        for (int k = 0; VALUES == HALVES && k < 4; k++) v[i][k] = levels_of(v[i][k] >> e % 8 * 4);
        transpose(v[i]);
    }
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

/* Returns the place of O of walked query g and element from + 8 t + i, which only this lane uses. */
AE_DEV uint8_t *sum_at(const attn_tile *t, uint32_t from, uint32_t i, uint32_t lane)
{
    return t->shared + t->room.sum + ((from / SPAN * 8 + i) * 32 + lane) * 4;
}

/* Stores eight elements of o of query g, from from + 8 t on, in its part of a chunk, or merges them with O. */
AE_DEV void put(const ae_gpu_attention_args &a, const attn_tile *t, int32_t chunk, uint32_t from, const float o[8])
{
    const uint32_t q = frag_g(), e = from + 8 * frag_t(), head_dim = a.kv.form.head_dim;
    if (t->to_parts) {
        float *part = attn_part(a, t, q, chunk) + 4 + e;
        AE_UNROLL
        for (uint32_t i = 0; i < 8; i += 4) /* also into the padding of the part */
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

template <int VALUES, bool LATENT> AE_DEV void values(const ae_gpu_attention_args &a, const attn_tile *t, const attn_group *g,
                                                      int32_t chunk)
{
    const float d = AE_LOAD_SHARED(float, t->shared + t->room.weight_scale + frag_g() * 4);
    AE_NO_UNROLL
    for (uint32_t from = warp_of() * SPAN; from < a.kv.form.head_dim; from += AE_ATTENTION_WARPS * SPAN) {
        int32_t sum[8];
        float o[8];
        sum_plane<VALUES, LATENT>(a, t, 0, from, sum);
        AE_UNROLL
        for (int i = 0; i < 8; i++) o[i] = static_cast<float>(sum[i]);
        if (VALUES == 2) {
            sum_plane<VALUES, LATENT>(a, t, 1, from, sum);
            AE_UNROLL
            for (int i = 0; i < 8; i++) o[i] = ae_fma(o[i], 128.0f, static_cast<float>(sum[i]));
        }
        AE_UNROLL
        for (int i = 0; i < 8; i++) o[i] *= d;
        if (g->members >> frag_g() & 1) put(a, t, chunk, from, o);
    }
}

/* ---- Tiles ---------------------------------------------------------------------------------------------- */

/* Writes the results of walked queries, turned back if TURNED. heads: f32 [head_dim] for each warp. */
template <bool TURNED> AE_DEV void finish(const ae_gpu_attention_args &a, const attn_tile *t, const float big_m[2],
                                          const float big_l[2], uint8_t *heads)
{
    const uint32_t head_dim = a.kv.form.head_dim;
    const float back = TURNED ? 1.0f / static_cast<float>(attn_turn_block(head_dim)) : 1.0f;
    uint8_t *head = heads + warp_of() * head_dim * 4;
    AE_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t q = warp_of() + 4 * i;
        if (q >= t->n) break;
        if (!attn_lane()) attn_share_last(a, t, q, big_m[i], big_l[i]);
        ae_sync_warp(); /* also: all lanes have read `head` for the query before, and may write it again */
        const float f = attn_factor(t, q).x;
        for (uint32_t e = attn_lane(); e < head_dim; e += 32) {
            const uint8_t *sum = sum_at(t, e, e % 8, 4 * q + e % SPAN / 8);
            AE_STORE_SHARED(float, head + e * 4, AE_LOAD_SHARED(float, sum) * f);
        }
        if (TURNED) attn_turn(head, head_dim);
        float *y = a.y + static_cast<size_t>(attn_index(t, q)) * head_dim;
        for (uint32_t e = attn_lane(); e < head_dim; e += 32) {
            const float v = AE_LOAD_SHARED(float, head + e * 4);
            y[e] = TURNED ? v * back : v;
        }
    }
}

template <int KEYS, int VALUES, bool LATENT> AE_DEV void attention(const ae_gpu_attention_args &a, uint8_t *shared)
{
    const bool turned = LATENT || VALUES == HALVES;
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
            scores<KEYS, LATENT>(a, &t, &g, c);
            ae_sync();
            softmax(a, &t, &g, c, big_m, big_l);
            ae_sync();
            values<VALUES, LATENT>(a, &t, &g, c);
            ae_sync();
        }
    uint8_t *heads = t.shared + t.room.query; /* overwrites the digits, which are not needed any more */
    if (!t.to_parts) finish<turned>(a, &t, big_m, big_l, heads);
    else if (!a.merge_apart && attn_arrive(a, &t)) attn_merge(a, &t, turned ? heads : nullptr, 0, AE_ATTENTION_WARPS);
}

#define KERNEL(name, keys, values, latent, blocks) \
    AE_KERNEL(name, ae_gpu_attention_args, ATTN_THREADS(blocks)) \
    { \
        AE_SHARED(shared); \
        attention<keys, values, latent>(a, shared); \
    }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
#define Q8_BLOCKS 3 /* with 4 the compiler for 12.0 keeps a value in local memory */
#else
#define Q8_BLOCKS 4
#endif

KERNEL(attention_q8, 1, 1, false, Q8_BLOCKS)
KERNEL(attention_i16, 2, 2, false, 3)
KERNEL(attention_i16_q8, 2, 1, false, 3)
KERNEL(attention_q8_i16, 1, 2, false, 3)
KERNEL(attention_q4, HALVES, HALVES, false, 3)
KERNEL(attention_q8_q4, 1, HALVES, false, 3)
KERNEL(attention_i16_q4, 2, HALVES, false, 3)
KERNEL(attention_latent_q8, 1, 1, true, 3)
KERNEL(attention_latent_f16, 2, 2, true, 3)
KERNEL(attention_row_q4, HALVES, HALVES, true, 3)

/* merge.h - where a tile has been split over blocks, the last block to arrive merges the parts. Device code.
 *
 * The maxima M are prefix maxima, which are exact in any order; so a warp computes the factors of 32 chunks side by side, and
 * only the chains of L and O are walked.
 */
#ifndef AE_BACKEND_GPU_KERNELS_ATTENTION_MERGE_H
#define AE_BACKEND_GPU_KERNELS_ATTENTION_MERGE_H

#include "backend/gpu/kernels/attention/tile.h"

#define ATTN_AHEAD 16u /* parts that a lane loads ahead */

/* Records that a block has stored its parts. Returns true for the last block of the tile, which sees the parts of all. */
AE_DEV bool attn_arrive(const ae_gpu_attention_args &a, const attn_tile *t)
{
    uint8_t *arrived = t->shared + t->room.arrived;
    ae_fence();
    ae_sync();
    if (!ae_thread()) {
        const uint32_t before = ae_atomic_add(a.arrivals + t->unit, 1);
        if (before + 1 == t->n_active) a.arrivals[t->unit] = 0; /* for the next launch */
        AE_STORE_SHARED(uint32_t, arrived, before);
    }
    ae_sync();
    if (AE_LOAD_SHARED(uint32_t, arrived) + 1 != t->n_active) return false;
    ae_fence();
    return true;
}

/* Returns the maximum over lanes 0 to this one. */
AE_DEV float attn_prefix_top(float x)
{
    const uint32_t lane = attn_lane();
    for (uint32_t d = 1; d < 32; d *= 2) x = attn_larger(x, ae_shfl(x, lane >= d ? lane - d : lane));
    return x;
}

/* What a warp has merged of a query so far. */
typedef struct attn_sums {
    float big_m, big_l, o[4]; /* o: this lane's elements */
} attn_sums;

/* Merges n <= 32 parts, `stride` floats apart, of which this lane has elements `at` (if `has`). */
AE_DEV void attn_join_parts(const float *part, uint32_t n, uint32_t stride, uint32_t at, bool has, bool is_first, attn_sums *s)
{
    const uint32_t lane = attn_lane();
    const float2 own = lane < n ? *reinterpret_cast<const float2 *>(part + lane * stride) : make_float2(-INFINITY, 0.0f);
    const float top = attn_larger(attn_prefix_top(own.x), s->big_m);
    float before = ae_shfl(top, lane ? lane - 1 : 0);
    if (!lane) before = s->big_m;
    const float fa = is_first && !lane ? -1.0f : ae_attn_exp(before - top), fb = ae_attn_exp(own.x - top);
    s->big_m = ae_shfl(top, 31);
    AE_NO_UNROLL
    for (uint32_t c = 0; c < n; c += ATTN_AHEAD) {
        float4 x[ATTN_AHEAD];
        AE_UNROLL
        for (uint32_t i = 0; i < ATTN_AHEAD; i++)
            x[i] = has && c + i < n ? *reinterpret_cast<const float4 *>(part + (c + i) * stride + at) : make_float4(0, 0, 0, 0);
        AE_UNROLL
        for (uint32_t i = 0; i < ATTN_AHEAD; i++) {
            if (c + i >= n) break;
            const float4 part_i = ae_shfl(make_float4(fa, fb, own.y, 0.0f), c + i);
            const float2 f = make_float2(part_i.x, part_i.y);
            s->big_l = attn_joined(s->big_l, part_i.z, f);
            s->o[0] = attn_joined(s->o[0], x[i].x, f);
            s->o[1] = attn_joined(s->o[1], x[i].y, f);
            s->o[2] = attn_joined(s->o[2], x[i].z, f);
            s->o[3] = attn_joined(s->o[3], x[i].w, f);
        }
    }
}

/* Merges the parts of queries first + warp, first + warp + step .. of the tile. Results go to y; with `turned`, f32 [head_dim]
 * of shared memory for each warp, they are turned back before. */
AE_DEV void attn_merge(const ae_gpu_attention_args &a, const attn_tile *t, uint8_t *turned, uint32_t first, uint32_t step)
{
    const uint32_t head_dim = a.kv.form.head_dim, stride = ae_gpu_attention_part(head_dim), lane = attn_lane();
    const float back = turned ? 1.0f / static_cast<float>(attn_turn_block(head_dim)) : 1.0f;
    uint8_t *own = turned ? turned + ae_thread() / 32 * head_dim * 4 : nullptr;
    for (uint32_t q = first + ae_thread() / 32; q < t->n; q += step) {
        const int4 state = attn_state(t, q);
        const uint32_t n = static_cast<uint32_t>(state.y / AE_KV_PAGE - state.x / AE_KV_PAGE + 1);
        const float *parts = a.parts + static_cast<size_t>(attn_index(t, q)) * a.max_parts * stride;
        float *y = a.y + static_cast<size_t>(attn_index(t, q)) * head_dim;
        for (uint32_t e = lane * 4; e - lane * 4 < head_dim; e += 128) {
            attn_sums s = {-INFINITY, 0.0f, {0.0f, 0.0f, 0.0f, 0.0f}};
            for (uint32_t c = 0; c < n; c += 32) {
                const float *some = parts + static_cast<size_t>(c) * stride;
                attn_join_parts(some, ae_min(n - c, 32u), stride, 4 + e, e < head_dim, !c, &s);
            }
            const float f = attn_last(a, attn_index(t, q), s.big_m, s.big_l);
            for (uint32_t i = 0; i < 4; i++) {
                if (e + i >= head_dim) continue;
                if (turned) AE_STORE_SHARED(float, own + (e + i) * 4, s.o[i] * f);
                else y[e + i] = s.o[i] * f;
            }
        }
        if (!turned) continue;
        attn_turn(own, head_dim);
        for (uint32_t e = lane; e < head_dim; e += 32) y[e] = AE_LOAD_SHARED(float, own + e * 4) * back;
        ae_sync_warp();
    }
}

#endif

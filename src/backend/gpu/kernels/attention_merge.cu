/* attention_merge.cu - joins the parts of a query's chunks in ascending order. A block has one query.
 *
 * The maxima M are prefix maxima, which are exact in any order; so the factors of all chunks are computed side by side, and
 * only the chains of L and O are walked.
 */
#include "backend/gpu/kernels/attention_tile.h"

#define THREADS 128
#define ELEMENTS 4 /* of a head and thread, at most: heads have up to 512 elements */

/* Shared memory, f32: a, b, l of THREADS chunks, then the maxima of the warps and M of the chunks before. */
enum { AT_A = 0, AT_B = THREADS * 4, AT_L = 2 * THREADS * 4, AT_TOP = 3 * THREADS * 4 };

/* The maximum of lanes 0 to the own one. */
AE_DEV float prefix_top(float x)
{
    const uint32_t lane = attn_lane();
    for (uint32_t d = 1; d < 32; d *= 2) {
        const float other = ae_shfl(x, lane >= d ? lane - d : lane);
        x = attn_larger(x, other);
    }
    return x;
}

/* Factors of chunk base + thread. *carry: M of the chunks before base; becomes that of all chunks up to this batch's end. */
AE_DEV void factors(uint8_t *shared, const float *part, uint32_t chunk, uint32_t n, float *carry)
{
    const uint32_t t = ae_thread(), warp = t / 32, lane = attn_lane();
    const float m = chunk < n ? part[0] : -INFINITY, l = chunk < n ? part[1] : 0.0f;
    float top = prefix_top(m);
    if (lane == 31) AE_STORE_SHARED(float, shared + AT_TOP + warp * 4, top);
    ae_sync();
    float before = *carry, all = *carry;
    for (uint32_t w = 0; w < THREADS / 32; w++) {
        const float x = AE_LOAD_SHARED(float, shared + AT_TOP + w * 4);
        all = attn_larger(all, x);
        if (w < warp) before = attn_larger(before, x);
    }
    top = attn_larger(before, top);
    float last = ae_shfl(top, lane ? lane - 1 : 0);
    if (!lane) last = before;
    AE_STORE_SHARED(float, shared + AT_A + t * 4, chunk ? ae_attn_exp(last - top) : -1.0f);
    AE_STORE_SHARED(float, shared + AT_B + t * 4, ae_attn_exp(m - top));
    AE_STORE_SHARED(float, shared + AT_L + t * 4, l);
    *carry = all;
}

/* Results over codes of latent rows are turned, as the rows are. x [n] in shared memory. */
AE_DEV void turn_back(uint8_t *x, uint32_t n, float o[ELEMENTS])
{
    const uint32_t t = ae_thread(), block = attn_turn_block(n);
    for (uint32_t e = 0; e < ELEMENTS; e++)
        if (t + e * THREADS < n) AE_STORE_SHARED(float, x + (t + e * THREADS) * 4, o[e]);
    ae_sync();
    for (uint32_t h = 1; h < block; h *= 2) {
        attn_turn_step(x, n, h, t, THREADS);
        ae_sync();
    }
    AE_UNROLL
    for (uint32_t e = 0; e < ELEMENTS; e++)
        if (t + e * THREADS < n) o[e] = AE_LOAD_SHARED(float, x + (t + e * THREADS) * 4) * (1.0f / static_cast<float>(block));
}

AE_KERNEL(attention_merge, ae_gpu_attention_args, THREADS)
{
    AE_SHARED(shared);
    const uint32_t head = ae_block_x(), row = ae_block_y(), t = ae_thread(), head_dim = a.kv.form.head_dim;
    const uint32_t stride = ae_gpu_attention_part(head_dim);
    if (row >= attn_n_rows(a)) return;
    const uint32_t n = attn_n_chunks(a, a.pos[row]);
    if (n > a.max_parts) return;
    const size_t query = static_cast<size_t>(row) * a.n_heads + head;
    const float *parts = a.parts + query * a.max_parts * stride;
    float o[ELEMENTS] = {}, big_l = 0, top = -INFINITY;
    for (uint32_t base = 0; base < n; base += THREADS) {
        factors(shared, parts + static_cast<size_t>(base + t) * stride, base + t, n, &top);
        ae_sync();
        const uint32_t end = ae_min<uint32_t>(THREADS, n - base);
        const float *part = parts + static_cast<size_t>(base) * stride + 4 + t;
        for (uint32_t c = 0; c < end; c += 8) {
            float x[8][ELEMENTS];
            AE_UNROLL
            for (uint32_t i = 0; i < 8; i++)
                AE_UNROLL
                for (uint32_t e = 0; e < ELEMENTS; e++) {
                    const bool has = c + i < end && t + e * THREADS < head_dim;
                    x[i][e] = has ? ae_as_float(ae_load4(part + static_cast<size_t>(c + i) * stride + e * THREADS)) : 0.0f;
                }
            AE_UNROLL
            for (uint32_t i = 0; i < 8; i++) {
                if (c + i >= end) break;
                const float fa = AE_LOAD_SHARED(float, shared + AT_A + (c + i) * 4);
                const float fb = AE_LOAD_SHARED(float, shared + AT_B + (c + i) * 4);
                const float l = AE_LOAD_SHARED(float, shared + AT_L + (c + i) * 4);
                big_l = fa < 0 ? l : ae_fma(big_l, fa, l * fb);
                AE_UNROLL
                for (uint32_t e = 0; e < ELEMENTS; e++) o[e] = fa < 0 ? x[i][e] : ae_fma(o[e], fa, x[i][e] * fb);
            }
        }
        ae_sync();
    }
    const float f = attn_last(a, row * a.n_heads + head, top, big_l);
    AE_UNROLL
    for (uint32_t e = 0; e < ELEMENTS; e++) o[e] *= f;
    if (a.kv.form.n_rope && a.kv.form.has_scales) turn_back(shared + AE_ATTENTION_MERGE_HEAD, head_dim, o);
    float *y = a.y + query * head_dim;
    AE_UNROLL
    for (uint32_t e = 0; e < ELEMENTS; e++)
        if (t + e * THREADS < head_dim) y[t + e * THREADS] = o[e];
}

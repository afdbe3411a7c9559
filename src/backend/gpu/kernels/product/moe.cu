/* moe.cu - experts: the routing of rows, the rows of each expert, and the sum of their results. The arithmetic is that of
 * cpu/ref/route.c and backend/moe.h. */
#include "backend/arithmetic.h"
#include "backend/gpu/kernels/args_moe.h"
#include "backend/gpu/kernels/kernel.h"

/* ---- Routing: a warp has a row ------------------------------------------------------------------ */

/* Arrays in shared memory, by element. */
#define P_AT(e) (4 * (e))
#define SCORE_AT(e) (4 * (AE_MAX_EXPERTS + (e)))
#define SUM_AT(g) (4 * (2 * AE_MAX_EXPERTS + (g)))
#define LIST_AT(i) (4 * (3 * AE_MAX_EXPERTS + (i)))
#define CHOSEN_AT(e) (16 * AE_MAX_EXPERTS + (e))

AE_DEV float load_f(const uint8_t *p) { return AE_LOAD_SHARED(float, p); }
AE_DEV void store_f(uint8_t *p, float v) { AE_STORE_SHARED(float, p, v); }
AE_DEV bool is_chosen(const uint8_t *s, uint32_t e) { return AE_LOAD_SHARED(uint8_t, s + CHOSEN_AT(e)); }
AE_DEV void mark(uint8_t *s, uint32_t e, uint8_t chosen) { AE_STORE_SHARED(uint8_t, s + CHOSEN_AT(e), chosen); }

/* ae_sum16 of chains in lanes 0 to 15; all lanes get it. */
AE_DEV float sum_16(float a)
{
    return ae_shfl(ae_fold<ae_add>(a, 8, 1), 0);
}

struct other_larger {
    AE_DEV float of(float x, float y) { return y > x ? y : x; }
};

AE_DEV float warp_max(float v)
{
    return ae_fold<other_larger>(v, 16, 1);
}

/* Returns the sum of n values of p by id % 16; with `ids` value i belongs to expert LIST(i), else to expert i. */
AE_DEV float sum_of(const uint8_t *s, bool ids, uint32_t n)
{
    const uint32_t lane = ae_thread() % 32;
    float a = 0;
    if (lane < 16)
        for (uint32_t i = ids ? 0 : lane; i < n; i += ids ? 1 : 16)
            if (!ids || AE_LOAD_SHARED(uint32_t, s + LIST_AT(i)) % 16 == lane) a += load_f(s + P_AT(i));
    return sum_16(a);
}

/* p = softmax of the n values of p. */
AE_DEV void softmax(uint8_t *s, bool ids, uint32_t n)
{
    const uint32_t lane = ae_thread() % 32;
    float top = -INFINITY;
    for (uint32_t i = lane; i < n; i += 32) {
        const float v = load_f(s + P_AT(i));
        top = v > top ? v : top;
    }
    top = warp_max(top);
    for (uint32_t i = lane; i < n; i += 32) store_f(s + P_AT(i), ae_expf(load_f(s + P_AT(i)) - top));
    ae_sync_warp();
    const float sum = sum_of(s, ids, n);
    ae_sync_warp();
    for (uint32_t i = lane; i < n; i += 32) store_f(s + P_AT(i), load_f(s + P_AT(i)) / sum);
    ae_sync_warp();
}

/* Returns whether score v of id i is taken before score w of id j: the larger, then the lower id; NaN last. */
AE_DEV bool beats(float v, uint32_t i, float w, uint32_t j)
{
    if ((v != v) != (w != w)) return w != w;
    return v > w || (!(v < w) && i < j);
}

/* p of all experts, from the scores, which are the logits. */
AE_DEV void sparse_mixer(uint8_t *s, uint32_t n)
{
    ae_sync_warp();
    for (uint32_t e = ae_thread() % 32; e < n; e += 32) {
        const float top = load_f(s + SCORE_AT(e));
        float sum = 0.0f;
        for (uint32_t j = 0; j < n; j++) {
            const float v = load_f(s + SCORE_AT(j)), size = fabsf(v) > top ? fabsf(v) : top;
            if (j == e || (!beats(v, j, top, e) && !((top - v) / size > 0.02f))) sum += ae_expf(v - top);
        }
        store_f(s + P_AT(e), 1.0f / sum);
    }
    ae_sync_warp();
}

/* Marks the n_used of n scores (at `score`) that are taken first, and lists them in that order. Lane l reads scores l, l + 32,
 * ... only, which need no barrier if it wrote them itself. */
AE_DEV void choose(uint8_t *s, uint32_t score, uint32_t n, uint32_t n_used)
{
    const uint32_t lane = ae_thread() % 32;
    for (uint32_t e = lane; e < n; e += 32) mark(s, e, 0);
    for (uint32_t i = 0; i < n_used; i++) {
        float best = 0;
        uint32_t id = n;
        for (uint32_t e = lane; e < n; e += 32) {
            const float v = load_f(s + score + 4 * e);
            if (!is_chosen(s, e) && (id == n || beats(v, e, best, id))) best = v, id = e;
        }
        AE_UNROLL
        for (uint32_t step = 16; step; step /= 2) {
            const float v = ae_shfl_xor(best, step);
            const uint32_t e = ae_shfl_xor(id, step);
            if (e < n && (id == n || beats(v, e, best, id))) best = v, id = e;
        }
        if (id % 32 == lane) mark(s, id, 1); /* read by this lane alone until all are chosen */
        if (lane == 0) AE_STORE_SHARED(uint32_t, s + LIST_AT(i), id);
    }
    ae_sync_warp();
}

/* Sets the scores of all groups but the best to -infinity. */
AE_DEV void drop_groups(const ae_routing &r, uint8_t *s)
{
    const uint32_t n = r.n_experts / r.n_groups, lane = ae_thread() % 32;
    for (uint32_t g = lane; g < r.n_groups; g += 32) {
        float first = -INFINITY, second = -INFINITY;
        for (uint32_t e = g * n; e < (g + 1) * n; e++) {
            const float v = load_f(s + SCORE_AT(e));
            if (v > first) second = first, first = v;
            else if (v > second) second = v;
        }
        store_f(s + SUM_AT(g), n > 1 ? first + second : first);
    }
    choose(s, SUM_AT(0), r.n_groups, r.n_groups_used);
    for (uint32_t e = lane; e < r.n_experts; e += 32)
        if (!is_chosen(s, e / n)) store_f(s + SCORE_AT(e), -INFINITY);
    ae_sync_warp();
}

/* p and the scores of all experts. */
AE_DEV void rate(const ae_gpu_route_args &a, float *logits, uint8_t *s)
{
    const ae_routing &r = a.routing;
    const uint32_t n = r.n_experts, lane = ae_thread() % 32;
    for (uint32_t e = lane; e < n; e += 32) { /* the lane that reads these again first, here and in softmax, is this one */
        float v = logits[e];
        if (a.router_scale != 0.0f) v *= a.router_scale;
        store_f(s + SCORE_AT(e), v);
        store_f(s + P_AT(e), r.gate == AE_GATE_SIGMOID ? 1.0f / (1.0f + ae_expf(-v))
                             : r.gate == AE_GATE_SQRT_SOFTPLUS ? sqrtf(ae_softplusf(v)) : v);
    }
    if (r.gate == AE_GATE_SOFTMAX) softmax(s, false, n);
    if (r.gate == AE_GATE_SPARSE_MIXER) sparse_mixer(s, n);
    for (uint32_t e = lane; e < n; e += 32) {
        const float p = load_f(s + P_AT(e));
        if (a.bias) store_f(s + SCORE_AT(e), p + a.bias[e]);
        else if (r.n_groups > 1) store_f(s + SCORE_AT(e), p);
    }
    ae_sync_warp();
    if (r.n_groups > 1) drop_groups(r, s);
}

/* Returns the sum of p over the n_full experts with the highest scores. */
AE_DEV float best_sum(const ae_routing &r, uint8_t *s)
{
    const uint32_t lane = ae_thread() % 32;
    float a = 0;
    choose(s, SCORE_AT(0), r.n_experts, r.n_full);
    for (uint32_t e = lane; lane < 16 && e < r.n_experts; e += 16)
        if (is_chosen(s, e)) a += load_f(s + P_AT(e));
    return sum_16(a);
}

/* Marks and lists the experts that a token's row of the table names. */
AE_DEV void take_listed(uint8_t *s, const float *table, uint32_t n, uint32_t n_used)
{
    const uint32_t lane = ae_thread() % 32;
    for (uint32_t i = lane; i < n_used; i += 32)
        AE_STORE_SHARED(uint32_t, s + LIST_AT(i), static_cast<uint32_t>(table[i]) % n);
    ae_sync_warp();
}

/* The list in ascending order, written to ids; weights gets each one's p. */
AE_DEV void list_ascending(const uint8_t *s, uint32_t n, uint32_t *ids, float *weights)
{
    for (uint32_t i = ae_thread() % 32; i < n; i += 32) {
        const uint32_t id = AE_LOAD_SHARED(uint32_t, s + LIST_AT(i));
        uint32_t rank = 0;
        for (uint32_t j = 0; j < n; j++) { /* equal ones, which a table must not have, keep their order */
            const uint32_t other = AE_LOAD_SHARED(uint32_t, s + LIST_AT(j));
            rank += other < id || (other == id && j < i);
        }
        ids[rank] = id;
        weights[rank] = load_f(s + P_AT(id));
    }
    ae_sync_warp();
}

/* The expert of a row that the caller gives; a NaN is 0. */
AE_DEV void take_given(const ae_gpu_route_args &a, uint32_t row)
{
    const float most = static_cast<float>(a.routing.n_experts - 1), x = a.given[row * a.given_stride];
    const float id = x > 0.0f ? x < most ? x : most : 0.0f;
    const uint32_t below = static_cast<uint32_t>(id), e = below + (id - static_cast<float>(below) >= 0.5f);
    a.ids[row] = e;
    a.weights[row] = 1.0f;
    if (!a.slots) return;
    const ae_gpu_active active = {e, 0, 1};
    a.slots[0] = 0;
    a.active[0] = active;
    *a.n_active = 1;
}

AE_KERNEL(route, ae_gpu_route_args, AE_GPU_ROUTE_THREADS)
{
    AE_SHARED(s);
    if (a.given) {
        if (!ae_thread()) take_given(a, ae_block_x());
        return;
    }
    const ae_routing &r = a.routing;
    const uint32_t row = ae_block_x(), n = r.n_used, lane = ae_thread();
    uint32_t *ids = a.ids + static_cast<size_t>(row) * n;
    float *weights = a.weights + static_cast<size_t>(row) * n;
    const bool shares = r.n_full > n && !r.renorm && r.gate != AE_GATE_SOFTMAX_CHOSEN && r.gate != AE_GATE_SPARSE_MIXER;
    rate(a, a.logits + static_cast<size_t>(row) * r.n_experts, s);
    const float full = shares ? best_sum(r, s) : 1.0f;
    if (a.table) take_listed(s, a.table + static_cast<size_t>(a.tokens[row]) * a.table_stride, r.n_experts, n);
    else choose(s, SCORE_AT(0), r.n_experts, n);
    list_ascending(s, n, ids, weights);
    for (uint32_t i = lane; i < n; i += 32) { /* from now on p and the list are of the chosen */
        store_f(s + P_AT(i), weights[i]);
        AE_STORE_SHARED(uint32_t, s + LIST_AT(i), ids[i]);
    }
    ae_sync_warp();
    if (r.gate == AE_GATE_SOFTMAX_CHOSEN) softmax(s, true, n);
    float sum = sum_of(s, true, n), scale = r.scale;
    if (!(sum > 0x1p-14f)) sum = 0x1p-14f;
    if (shares) scale *= full;
    for (uint32_t i = lane; i < n; i += 32) {
        float w = load_f(s + P_AT(i));
        w = (r.renorm || shares ? w / sum : w) * scale;
        weights[i] = a.out_scale ? w * a.out_scale[ids[i]] : w;
        if (a.n_each > 1) ids[i] /= a.n_each;
        if (!a.slots) continue;
        const ae_gpu_active active = {ids[i], i * AE_GPU_TILE, 1};
        a.slots[i] = i * AE_GPU_TILE;
        a.active[i] = active;
    }
    if (a.slots && lane == 0) *a.n_active = n;
}

/* ---- Grouping: one block ------------------------------------------------------------------------ */

#define EACH AE_GPU_GROUP_EACH

/* Walks all pairs; thread t knows experts EACH * t to EACH * t + EACH - 1. Counts them, or gives their pairs the slots from n[]
 * on. */
AE_DEV void walk_pairs(const ae_gpu_group_args &a, uint8_t *s, uint32_t *n, bool writes)
{
    const uint32_t t = ae_thread();
    for (uint32_t first = 0; first < a.n_pairs; first += AE_GPU_GROUP_CHUNK) {
        const uint32_t left = a.n_pairs - first, here = ae_min(left, static_cast<uint32_t>(AE_GPU_GROUP_CHUNK));
        ae_sync();
        for (uint32_t i = t; i < here; i += AE_GPU_GROUP_THREADS) AE_STORE_SHARED(uint32_t, s + 4 * i, a.ids[first + i]);
        ae_sync();
        for (uint32_t i = 0; i < here; i++) {
            const uint32_t e = AE_LOAD_SHARED(uint32_t, s + 4 * i);
            if (e / EACH != t) continue;
            uint32_t slot = 0; /* by selections: with an index the counts would be in local memory */
            AE_UNROLL
            for (uint32_t k = 0; k < EACH; k++) {
                slot = e % EACH == k ? n[k] : slot;
                n[k] += e % EACH == k;
            }
            if (writes) a.slots[first + i] = slot;
        }
    }
}

AE_KERNEL(group, ae_gpu_group_args, AE_GPU_GROUP_THREADS)
{
    AE_SHARED(s);
    const uint32_t tile = AE_GPU_TILE, t = ae_thread();
    uint32_t n[EACH] = {}, first[EACH], n_slots = 0, n_mine = 0;
    walk_pairs(a, s, n, false);
    AE_UNROLL
    for (uint32_t i = 0; i < EACH; i++) {
        first[i] = n_slots;
        n_slots += (n[i] + tile - 1) / tile * tile;
        n_mine += n[i] > 0;
    }
    const uint32_t before = ae_sum_before(s + AE_GPU_GROUP_CHUNK * 4, n_slots);
    AE_UNROLL
    for (uint32_t i = 0; i < EACH; i++) first[i] += before;
    uint32_t at = ae_sum_before(s + AE_GPU_GROUP_CHUNK * 4, n_mine);
    if (t == AE_GPU_GROUP_THREADS - 1) *a.n_active = at + n_mine;
    AE_UNROLL
    for (uint32_t i = 0; i < EACH; i++) {
        if (!n[i]) continue;
        const ae_gpu_active active = {EACH * t + i, first[i], n[i]};
        a.active[at++] = active;
    }
    walk_pairs(a, s, first, true);
}

/* ---- The sum ------------------------------------------------------------------------------------ */

AE_KERNEL(combine, ae_gpu_combine_args, AE_GPU_COMBINE_THREADS)
{
    const uint32_t row = ae_block_x(), c = ae_block_y() * AE_GPU_COMBINE_THREADS + ae_thread();
    if (c >= a.dim) return;
    const size_t at = static_cast<size_t>(row) * a.dim + c, pair = static_cast<size_t>(row) * a.n_used;
    float y = a.y[at];
    for (uint32_t i = 0; i < a.n_used; i++) {
        const float d = a.down[static_cast<size_t>(a.slots[pair + i]) * a.dim + c];
        y = ae_fma(a.weights ? a.weights[pair + i] : 1.0f, d, y);
    }
    if (a.shared) y = ae_fma(a.shared_gate ? 1.0f / (1.0f + ae_expf(-a.shared_gate[row])) : 1.0f, a.shared[at], y);
    a.y[at] = y;
}

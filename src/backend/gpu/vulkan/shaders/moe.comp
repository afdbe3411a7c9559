#version 460
/* moe.comp - experts: the routing of rows, the rows of each expert, and the sum of their results. KIND: 0 route, 1 group, 2
 * combine. The arithmetic is that of cpu/ref/route.c and backend/moe.h. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;

#define MAX_EXPERTS 1024u
#define LANES 32u   /* threads that choose; all go through the same barriers */
#define CHUNK 512u
#define EACH (MAX_EXPERTS / 256u) /* experts of a thread in group_pairs */

#define GATE_SOFTMAX 0u
#define GATE_SIGMOID 1u
#define GATE_SOFTMAX_CHOSEN 2u
#define GATE_SQRT_SOFTPLUS 3u
#define GATE_SPARSE_MIXER 4u

struct Routing { /* ae_routing */
    uint n_experts, n_used, gate, renorm;
    float scale;
    uint n_groups, n_groups_used, n_full;
};

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer RouteArgs { /* ae_gpu_route_args */
    Routing routing;
    uint64_t logits;
    float router_scale;
    uint n_each;
    uint64_t bias, out_scale, table, tokens, given, given_stride;
    uint64_t ids, weights, slots, chosen, n_chosen; /* the last two: active, n_active */
    uint table_stride;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer GroupArgs { /* ae_gpu_group_args */
    uint64_t ids;
    uint n_pairs, n_experts;
    uint64_t slots, chosen, n_chosen;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer CombineArgs { /* ae_gpu_combine_args */
    uint64_t down, slots, weights, shared_, shared_gate, y;
    uint n_used, dim;
};

shared float p[MAX_EXPERTS];
shared float scores[MAX_EXPERTS];
shared uint list[MAX_EXPERTS]; /* of the chosen; before that the bits of floats, sums over groups of experts */
shared uint taken[MAX_EXPERTS / 32]; /* a bit each, set by thread 0 */
shared float parts[256];
shared uint numbers[CHUNK];

/* ---- Routing: a work-group has a row, of which 32 threads work -------------------------------------- */

RouteArgs a;
Routing r;

/* ae_sum16 of chains in threads 0 to 15; all threads get it. */
float sum_16(float x)
{
    const uint t = THREAD;
    barrier();
    if (t < 16) parts[t] = x;
    for (uint h = 8; h >= 1; h /= 2) {
        barrier();
        if (t < h) parts[t] = parts[t] + parts[t + h];
    }
    barrier();
    return parts[0];
}

float largest(float x)
{
    const uint t = THREAD;
    barrier();
    if (t < LANES) parts[t] = x;
    for (uint h = 16; h >= 1; h /= 2) {
        barrier();
        if (t < h && parts[t + h] > parts[t]) parts[t] = parts[t + h];
    }
    barrier();
    return parts[0];
}

/* Returns the sum of n values of p by id % 16; with `ids` value i belongs to expert list[i], else to expert i. */
float sum_of(bool ids, uint n)
{
    const uint t = THREAD;
    float sum = 0.0;
    if (t < 16)
        for (uint i = ids ? 0 : t; i < n; i += ids ? 1 : 16)
            if (!ids || list[i] % 16 == t) sum = sum + p[i];
    return sum_16(sum);
}

void softmax(bool ids, uint n)
{
    const uint t = THREAD;
    float top = -AE_INFINITY;
    if (t < LANES)
        for (uint i = t; i < n; i += LANES) top = p[i] > top ? p[i] : top;
    top = largest(top);
    if (t < LANES)
        for (uint i = t; i < n; i += LANES) p[i] = ae_expf(p[i] - top);
    barrier();
    const float sum = sum_of(ids, n);
    barrier();
    if (t < LANES)
        for (uint i = t; i < n; i += LANES) p[i] = ae_div(p[i], sum);
    barrier();
}

bool is_nan(float v)
{
    return (floatBitsToUint(v) & 0x7fffffffu) > 0x7f800000u;
}

/* Whether score v of id i is taken before score w of id j: the larger, then the lower id; NaN last. */
bool beats(float v, uint i, float w, uint j)
{
    if (is_nan(v) != is_nan(w)) return is_nan(w);
    return v > w || (!(v < w) && i < j);
}

/* p of all experts, from the scores, which are the logits. */
void sparse_mixer(uint n)
{
    for (uint e = THREAD; e < n; e += 256) {
        const float top = scores[e];
        float sum = 0.0;
        for (uint j = 0; j < n; j++) {
            const float v = scores[j], size = abs(v) > top ? abs(v) : top;
            if (j == e || (!beats(v, j, top, e) && !(ae_div(top - v, size) > 0.02))) sum = sum + ae_expf(v - top);
        }
        p[e] = ae_div(1.0, sum);
    }
    barrier();
}

bool is_taken(uint e)
{
    return (taken[e / 32] >> e % 32 & 1u) != 0u;
}

/* Marks the n_used of n scores that are taken first, and lists them in that order. groups: of the list's sums, instead of
 * scores, and without a list. */
void choose(bool groups, uint n, uint n_used)
{
    const uint t = THREAD;
    barrier();
    for (uint e = t; e < (n + 31) / 32; e += 256) taken[e] = 0u;
    for (uint i = 0; i < n_used; i++) {
        float best = 0.0;
        uint id = n;
        barrier();
        if (t < LANES)
            for (uint e = t; e < n; e += LANES) {
                const float v = groups ? uintBitsToFloat(list[e]) : scores[e];
                if (!is_taken(e) && (id == n || beats(v, e, best, id))) {
                    best = v;
                    id = e;
                }
            }
        if (t < LANES) {
            parts[t] = best;
            numbers[t] = id;
        }
        for (uint h = 16; h >= 1; h /= 2) {
            barrier();
            if (t < h && numbers[t + h] < n &&
                (numbers[t] == n || beats(parts[t + h], numbers[t + h], parts[t], numbers[t]))) {
                parts[t] = parts[t + h];
                numbers[t] = numbers[t + h];
            }
        }
        if (t == 0) {
            if (!groups) list[i] = numbers[0];
            if (numbers[0] < n) taken[numbers[0] / 32] |= 1u << numbers[0] % 32;
        }
    }
    barrier();
}

/* Sets the scores of all groups but the best to -infinity. */
void drop_groups()
{
    const uint n = r.n_experts / r.n_groups;
    for (uint g = THREAD; g < r.n_groups; g += 256) {
        float first = -AE_INFINITY, second = -AE_INFINITY;
        for (uint e = g * n; e < (g + 1) * n; e++) {
            const float v = scores[e];
            if (v > first) {
                second = first;
                first = v;
            } else if (v > second) second = v;
        }
        list[g] = floatBitsToUint(n > 1 ? first + second : first);
    }
    choose(true, r.n_groups, r.n_groups_used);
    for (uint e = THREAD; e < r.n_experts; e += 256)
        if (!is_taken(e / n)) scores[e] = -AE_INFINITY;
    barrier();
}

/* p and the scores of all experts. */
void rate(uint64_t logits)
{
    const uint n = r.n_experts;
    for (uint e = THREAD; e < n; e += 256) {
        float v = F32(logits).v[e];
        if (a.router_scale != 0.0) v = v * a.router_scale;
        scores[e] = v;
        p[e] = v;
        if (r.gate == GATE_SIGMOID) p[e] = ae_div(1.0, 1.0 + ae_expf(-v));
        else if (r.gate == GATE_SQRT_SOFTPLUS) p[e] = ae_sqrt(ae_softplusf(v));
    }
    barrier();
    if (r.gate == GATE_SOFTMAX) softmax(false, n);
    if (r.gate == GATE_SPARSE_MIXER) sparse_mixer(n);
    for (uint e = THREAD; e < n; e += 256) {
        if (a.bias != 0ul) scores[e] = p[e] + F32(a.bias).v[e];
        else if (r.n_groups > 1) scores[e] = p[e];
    }
    barrier();
    if (r.n_groups > 1) drop_groups();
}

/* Returns the sum of p over the n_full experts with the highest scores. */
float best_sum()
{
    float sum = 0.0;
    choose(false, r.n_experts, r.n_full);
    if (THREAD < 16)
        for (uint e = THREAD; e < r.n_experts; e += 16)
            if (is_taken(e)) sum = sum + p[e];
    return sum_16(sum);
}

/* The expert of a row that the caller gives; a NaN is 0. */
void take_given(uint row)
{
    const float most = float(a.routing.n_experts - 1), x = F32(a.given + uint64_t(row) * a.given_stride * 4ul).v[0];
    const float id = x > 0.0 ? x < most ? x : most : 0.0;
    const uint below = uint(id), e = below + (id - float(below) >= 0.5 ? 1u : 0u);
    U32(a.ids).v[row] = e;
    F32(a.weights).v[row] = 1.0;
    if (a.slots == 0ul) return;
    U32(a.slots).v[0] = 0u;
    U32(a.chosen).v[0] = e;
    U32(a.chosen).v[1] = 0u;
    U32(a.chosen).v[2] = 1u;
    U32(a.n_chosen).v[0] = 1u;
}

/* Lists the experts that a token's row of the table names. */
void take_listed(uint n)
{
    const uint64_t at = uint64_t(uint(I32(a.tokens).v[BLOCK_X])) * a.table_stride;
    for (uint i = THREAD; i < n; i += 256) list[i] = uint(F32(a.table + at * 4ul).v[i]) % r.n_experts;
    barrier();
}

void route()
{
    a = RouteArgs(push.args);
    if (a.given != 0ul) {
        if (THREAD == 0) take_given(BLOCK_X);
        return;
    }
    r = a.routing;
    r.renorm = r.renorm & 255u; /* a bool and its padding */
    const uint n = r.n_used, t = THREAD;
    const uint64_t ids = a.ids + uint64_t(BLOCK_X) * n * 4ul, weights = a.weights + uint64_t(BLOCK_X) * n * 4ul;
    const bool shares = r.n_full > n && r.renorm == 0 && r.gate != GATE_SOFTMAX_CHOSEN && r.gate != GATE_SPARSE_MIXER;
    rate(a.logits + uint64_t(BLOCK_X) * r.n_experts * 4ul);
    float full = 1.0;
    if (shares) full = best_sum();
    if (a.table != 0ul) take_listed(n);
    else choose(false, r.n_experts, n);
    for (uint i = t; i < n; i += 256) { /* the list in ascending order */
        const uint id = list[i];
        uint rank = 0;
        for (uint j = 0; j < n; j++) /* equal ones, which a table must not have, keep their order */
            rank += list[j] < id || (list[j] == id && j < i) ? 1 : 0;
        scores[rank] = float(id); /* which nobody needs any more */
    }
    barrier();
    for (uint i = t; i < n; i += 256) {
        list[i] = uint(scores[i]);
        scores[i] = p[list[i]];
    }
    barrier();
    for (uint i = t; i < n; i += 256) p[i] = scores[i]; /* from now on p and the list are of the chosen */
    barrier();
    if (r.gate == GATE_SOFTMAX_CHOSEN) softmax(true, n);
    float sum = sum_of(true, n), scale = r.scale;
    if (!(sum > 6.103515625e-05)) sum = 6.103515625e-05; /* 2^-14 */
    if (shares) scale = scale * full;
    for (uint i = t; i < n; i += 256) {
        float w = p[i];
        if (r.renorm != 0 || shares) w = ae_div(w, sum);
        w = w * scale;
        const uint id = a.n_each > 1 ? list[i] / a.n_each : list[i]; /* of the weights */
        U32(ids).v[i] = id;
        F32(weights).v[i] = a.out_scale != 0ul ? w * F32(a.out_scale).v[list[i]] : w;
        if (a.slots == 0ul) continue;
        U32(a.slots).v[i] = i * TILE;
        U32(a.chosen).v[3 * i] = id;
        U32(a.chosen).v[3 * i + 1] = i * TILE;
        U32(a.chosen).v[3 * i + 2] = 1;
    }
    if (a.slots != 0ul && t == 0) U32(a.n_chosen).v[0] = n;
}

/* ---- Grouping: one work-group ----------------------------------------------------------------------- */

/* Walks all pairs; thread t knows experts EACH * t to EACH * t + EACH - 1. Counts them, or gives their pairs the slots from n on. */
void walk_pairs(GroupArgs g, inout uint n[EACH], bool writes)
{
    for (uint first = 0; first < g.n_pairs; first += CHUNK) {
        const uint here = min(g.n_pairs - first, CHUNK);
        barrier();
        for (uint i = THREAD; i < here; i += 256) numbers[i] = U32(g.ids).v[first + i];
        barrier();
        for (uint i = 0; i < here; i++) {
            const uint e = numbers[i];
            if (e / EACH != THREAD) continue;
            [[unroll]] for (uint k = 0; k < EACH; k++)
                if (e % EACH == k) {
                    if (writes) U32(g.slots).v[first + i] = n[k];
                    n[k]++;
                }
        }
    }
}

/* Returns the sum of v over the threads before this one. */
uint sum_before(uint v)
{
    uint sum = 0;
    barrier();
    numbers[THREAD] = v;
    barrier();
    for (uint i = 0; i < THREAD; i++) sum += numbers[i];
    barrier();
    return sum;
}

void group_pairs()
{
    GroupArgs g = GroupArgs(push.args);
    const uint t = THREAD;
    uint n[EACH], first[EACH], n_slots = 0, n_mine = 0;
    [[unroll]] for (uint i = 0; i < EACH; i++) n[i] = 0;
    walk_pairs(g, n, false);
    [[unroll]] for (uint i = 0; i < EACH; i++) {
        first[i] = n_slots;
        n_slots += (n[i] + TILE - 1) / TILE * TILE;
        n_mine += n[i] > 0 ? 1 : 0;
    }
    const uint before = sum_before(n_slots);
    [[unroll]] for (uint i = 0; i < EACH; i++) first[i] += before;
    uint at = sum_before(n_mine);
    if (t == 255) U32(g.n_chosen).v[0] = at + n_mine;
    [[unroll]] for (uint i = 0; i < EACH; i++) {
        if (n[i] == 0) continue;
        U32(g.chosen).v[3 * at] = EACH * t + i;
        U32(g.chosen).v[3 * at + 1] = first[i];
        U32(g.chosen).v[3 * at + 2] = n[i];
        at++;
    }
    walk_pairs(g, first, true);
}

/* ---- The sum ---------------------------------------------------------------------------------------- */

void combine()
{
    CombineArgs c = CombineArgs(push.args);
    const uint row = BLOCK_X, k = BLOCK_Y * 256 + THREAD;
    if (k >= c.dim) return;
    const uint64_t at = (uint64_t(row) * c.dim + k) * 4ul, pair = uint64_t(row) * c.n_used * 4ul;
    float y = F32(c.y + at).v[0];
    for (uint i = 0; i < c.n_used; i++) {
        const float d = F32(c.down + (uint64_t(U32(c.slots + pair).v[i]) * c.dim + k) * 4ul).v[0];
        y = ae_fma(c.weights != 0ul ? F32(c.weights + pair).v[i] : 1.0, d, y);
    }
    if (c.shared_ != 0ul) {
        float w = 1.0;
        if (c.shared_gate != 0ul) w = ae_div(1.0, 1.0 + ae_expf(-F32(c.shared_gate).v[row]));
        y = ae_fma(w, F32(c.shared_ + at).v[0], y);
    }
    F32(c.y + at).v[0] = y;
}

void main()
{
    if (KIND == 0) route();
    else if (KIND == 1) group_pairs();
    else combine();
}

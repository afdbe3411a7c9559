/* rope_heads.cu - norm and rotation of queries and keys, and writing keys and values to f16 pages, for the common shapes: heads
 * of 64, 128 and 256 values that are rotated whole or in neighbouring pairs. The arithmetic is that of rope.cu, which does
 * all others.
 *
 * A warp keeps one head of one row in registers: element k is with lane k % 32. All loads that are independent are issued at
 * once, since with a single row nothing else hides their latency. */
#include "backend/gpu/kernels/args_rows.h"
#include "backend/gpu/kernels/kernel.h"
#include "backend/gpu/kernels/rope.h"
#include "backend/gpu/kernels/sums.h"

/* n: elements of a lane. */
template <int n> AE_DEV float sum_head(const float *v, float mean, bool squares)
{
    float low = 0, high = 0;
    AE_UNROLL
    for (uint32_t j = 0; j < n; j += 2) {
        low = ae_sum_step(low, v[j], mean, squares);
        high = ae_sum_step(high, v[j + 1], mean, squares);
    }
    return ae_warp_sum64(low, high);
}

template <int n> AE_DEV void norm_head(float *v, const float *weight, float eps, bool layer)
{
    const float mean = layer ? sum_head<n>(v, 0, false) / (32.0f * n) : 0;
    const float inv = 1.0f / sqrtf(sum_head<n>(v, mean, true) / (32.0f * n) + eps);
    AE_UNROLL
    for (uint32_t j = 0; j < n; j++) v[j] = (v[j] - mean) * inv * weight[j];
}

/* Pairs (i, i + half) of the whole head: both elements are with one lane. */
template <int n> AE_DEV void rotate_halves(float *v, const float *c, const float *s)
{
    AE_UNROLL
    for (uint32_t j = 0; j < n / 2; j++) {
        const float xa = v[j], xb = v[j + n / 2];
        v[j] = xa * c[j] - xb * s[j];
        v[j + n / 2] = xa * s[j] + xb * c[j];
    }
}

/* Pairs (2 i, 2 i + 1) of the first n_rot elements: with neighbouring lanes. */
template <int n> AE_DEV void rotate_neighbours(float *v, const float *c, const float *s, uint32_t n_rot, uint32_t lane)
{
    AE_UNROLL
    for (uint32_t j = 0; j < n; j++) {
        const float other = ae_shfl_xor(v[j], 1);
        if (lane + 32 * j < n_rot) v[j] = lane % 2 ? other * s[j] + v[j] * c[j] : v[j] * c[j] - other * s[j];
    }
}

/* The angles of a lane's elements, or of its first half of them. */
template <int n> AE_DEV void fetch_angles(const ae_gpu_rope_kv_args *a, uint32_t row, float *c, float *s, uint32_t lane)
{
    const size_t at = (size_t)row * (a->n_rot / 2);
    AE_UNROLL
    for (uint32_t j = 0; j < n; j++) {
        const uint32_t k = lane + 32 * j, i = a->neox ? k : k / 2;
        c[j] = i < a->n_rot / 2 ? a->cos[at + i] : 1;
        s[j] = i < a->n_rot / 2 ? a->sin[at + i] : 0;
    }
}

template <int n> AE_DEV void write_head(const ae_gpu_rope_kv_args *a, ae_rope_target to, uint32_t head, bool is_key,
                                        const float *v, uint32_t lane)
{
    const ae_gpu_kv_form *f = &a->kv.form;
    uint8_t *block = ae_gpu_kv_block(&a->kv, to.page, head);
    AE_UNROLL
    for (uint32_t j = 0; j < n; j++) {
        const uint32_t k = lane + 32 * j, g = k / 8;
        const uint32_t at = is_key ? ae_gpu_kv_key_at(f, 0, g, to.at) : ae_gpu_kv_value_at(f, g, to.at);
        *(uint16_t *)(block + at + k % 8 * 2) = ae_rope_half(v[j]);
    }
}

/* A head and the operations on it. */
typedef struct task {
    uint32_t head;
    bool used, stored, is_key, turned, changed; /* changed: it is written back */
    float *x;
    const float *weight;
} task;

AE_DEV task task_of(const ae_gpu_rope_kv_args *a, uint32_t row, uint32_t i, uint32_t dim)
{
    const uint32_t n = a->n_heads, m = a->n_kv_heads;
    const bool is_query = i < n, is_key = !is_query && i < n + m;
    const float *norm = is_query ? a->q_norm : is_key ? a->k_norm : a->v_norm;
    float *x = is_query ? a->q : is_key ? a->k : a->v;
    task t;
    t.head = is_query ? i : is_key ? i - n : i - n - m;
    t.used = is_query || (a->k && i < n + 2 * m);
    t.stored = t.used && !is_query && a->store;
    t.is_key = is_key;
    t.turned = a->n_rot && (is_query || is_key);
    t.changed = norm || t.turned || (is_query && a->q_scale);
    t.x = x + ((size_t)row * (is_query ? n : m) + t.head) * dim;
    t.weight = norm && a->norm_layer && (is_query || is_key) ? norm + (size_t)t.head * dim : norm;
    return t;
}

template <int n> AE_DEV void run_head(const ae_gpu_rope_kv_args *a)
{
    const uint32_t lane = ae_thread() % 32, row = ae_block_x();
    const uint32_t i = ae_block_y() * AE_GPU_ROPE_HEADS + ae_thread() / 32;
    const task t = task_of(a, row, i, 32 * n);
    const bool layer = a->norm_layer && i < a->n_heads + a->n_kv_heads;
    float v[n], weight[n], c[n], s[n], scale = 1;
    ae_rope_target to = {UINT32_MAX, 0};
    AE_UNROLL
    for (uint32_t j = 0; j < n; j++) weight[j] = t.used && t.weight ? t.weight[lane + 32 * j] : 0;
    if (t.stored) to = ae_rope_target_of(a, a->slot[row], a->seq[row]); /* uploaded before the pass */
    ae_depend_wait();
    if (!t.used || !(t.stored || t.changed) || (a->n_actual && row >= *a->n_actual)) return;
    AE_UNROLL
    for (uint32_t j = 0; j < n; j++) v[j] = t.x[lane + 32 * j];
    if (t.turned && a->neox) fetch_angles<n / 2>(a, row, c, s, lane);
    else if (t.turned) fetch_angles<n>(a, row, c, s, lane);
    if (i < a->n_heads && a->q_scale) scale = a->q_scale[row];
    if (t.weight && !(t.turned && a->norm_last)) norm_head<n>(v, weight, a->eps, layer);
    if (t.turned && a->neox) rotate_halves<n>(v, c, s);
    else if (t.turned) rotate_neighbours<n>(v, c, s, a->n_rot, lane);
    if (t.weight && t.turned && a->norm_last) norm_head<n>(v, weight, a->eps, layer);
    if (i < a->n_heads && a->q_scale) {
        AE_UNROLL
        for (uint32_t j = 0; j < n; j++) v[j] *= scale;
    }
    if (t.stored && to.page < a->kv.n_pages) write_head<n>(a, to, t.head, t.is_key, v, lane);
    if (!t.changed) return;
    AE_UNROLL
    for (uint32_t j = 0; j < n; j++) t.x[lane + 32 * j] = v[j];
}

AE_KERNEL_EARLY(rope_heads_64, ae_gpu_rope_kv_args, 128) { run_head<2>(&a); }
AE_KERNEL_EARLY(rope_heads_128, ae_gpu_rope_kv_args, 128) { run_head<4>(&a); }
AE_KERNEL_EARLY(rope_heads_256, ae_gpu_rope_kv_args, 128) { run_head<8>(&a); }

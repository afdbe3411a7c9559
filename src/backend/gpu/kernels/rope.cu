/* rope.cu - norm and rotation of queries and keys, and writing keys and values to the pages of a KV cache. The arithmetic and
 * its order are those of cpu/ref/rows.c and latent.c.
 *
 * A warp handles one head of one row, a query, a key or a value, which it keeps in shared memory. */
#include "backend/arithmetic.h"
#include "backend/gpu/kernels/args_rows.h"
#include "backend/gpu/kernels/kernel.h"
#include "backend/gpu/kernels/rope.h"
#include "backend/gpu/kernels/sums.h"
#include "base/math/double.h"

AE_KERNEL(rope_angles, ae_gpu_rope_table_args, 128)
{
    const uint32_t i = ae_block_x() * 128 + ae_thread(), r = i / a.half;
    double s, c;
    if (r >= a.n_rows) return;
    const int32_t every = static_cast<int32_t>(a.every);
    ae_sincos_of(a.pos[r] / every * every * a.freq[i % a.half], &s, &c);
    a.cos[i] = (float)(c * a.magnitude);
    a.sin[i] = (float)(s * a.magnitude);
}

AE_DEV float load(const float *x, uint32_t i) { return AE_LOAD_SHARED(float, x + i); }
AE_DEV void store(float *x, uint32_t i, float v) { AE_STORE_SHARED(float, x + i, v); }

/* ---- Norm and rotation of a head x [n] in shared memory --------------------------------------------- */

/* The first of the other numbers that a lane needs, loaded together with its head to hide the latency of memory. */
#define EARLY_ANGLES 2u
#define EARLY_WEIGHTS 4u

typedef struct early {
    float cos[EARLY_ANGLES], sin[EARLY_ANGLES], weight[EARLY_WEIGHTS];
} early;

/* cos, sin [half]; weight [n] or NULL */
AE_DEV early fetch_early(const float *cos, const float *sin, uint32_t half, const float *weight, uint32_t n, uint32_t lane)
{
    early e;
    AE_UNROLL
    for (uint32_t m = 0; m < EARLY_ANGLES; m++) {
        const uint32_t i = lane + 32 * m;
        e.cos[m] = i < half ? cos[i] : 0;
        e.sin[m] = i < half ? sin[i] : 0;
    }
    AE_UNROLL
    for (uint32_t m = 0; m < EARLY_WEIGHTS; m++) {
        const uint32_t k = lane + 32 * m;
        e.weight[m] = weight && k < n ? weight[k] : 0;
    }
    return e;
}

/* Element k is read and written by lane k % 32 alone. */
AE_DEV void norm_head(float *x, uint32_t n, const float *weight, const early *its, float eps, bool layer, uint32_t lane)
{
    float mean = 0, low = 0, high = 0;
    if (layer) {
        for (uint32_t k = lane; k < n; k += 64) {
            low += load(x, k);
            if (k + 32 < n) high += load(x, k + 32);
        }
        mean = ae_warp_sum64(low, high) / (float)n;
        low = high = 0;
    }
    for (uint32_t k = lane; k < n; k += 64) {
        const float d = load(x, k) - mean;
        low = ae_fma(d, d, low);
        if (k + 32 < n) {
            const float e = load(x, k + 32) - mean;
            high = ae_fma(e, e, high);
        }
    }
    const float inv = 1.0f / sqrtf(ae_warp_sum64(low, high) / (float)n + eps);
    AE_UNROLL
    for (uint32_t m = 0; m < EARLY_WEIGHTS; m++) {
        const uint32_t k = lane + 32 * m;
        if (k < n) store(x, k, (load(x, k) - mean) * inv * its->weight[m]);
    }
    for (uint32_t k = lane + 32 * EARLY_WEIGHTS; k < n; k += 32) store(x, k, (load(x, k) - mean) * inv * weight[k]);
}

AE_DEV void rotate_pair(float *x, uint32_t i, uint32_t half, bool neox, float c, float s)
{
    const uint32_t at_a = neox ? i : 2 * i, at_b = neox ? i + half : 2 * i + 1;
    const float xa = load(x, at_a), xb = load(x, at_b);
    store(x, at_a, xa * c - xb * s);
    store(x, at_b, xa * s + xb * c);
}

AE_DEV void rotate(float *x, uint32_t half, bool neox, const float *cos, const float *sin, const early *its, uint32_t lane)
{
    ae_sync_warp();
    AE_UNROLL
    for (uint32_t m = 0; m < EARLY_ANGLES; m++)
        if (lane + 32 * m < half) rotate_pair(x, lane + 32 * m, half, neox, its->cos[m], its->sin[m]);
    for (uint32_t i = lane + 32 * EARLY_ANGLES; i < half; i += 32) rotate_pair(x, i, half, neox, cos[i], sin[i]);
    ae_sync_warp();
}

AE_DEV void load_head(float *x, const float *from, uint32_t n, uint32_t lane)
{
    for (uint32_t k = lane; k < n; k += 32) store(x, k, from[k]);
}

/* Loads a query or a key, norms and rotates it. */
AE_DEV void norm_rotate(const ae_gpu_rope_kv_args *a, uint32_t row, const float *from, float *x, const float *weight,
                        uint32_t lane)
{
    const uint32_t n = a->head_dim, half = a->n_rot / 2;
    const float *cos = a->cos + (size_t)row * half, *sin = a->sin + (size_t)row * half;
    const early its = fetch_early(cos, sin, half, weight, n, lane);
    load_head(x, from, n, lane);
    if (weight && !a->norm_last) norm_head(x, n, weight, &its, a->eps, a->norm_layer, lane);
    if (half) rotate(x, half, a->neox, cos, sin, &its, lane);
    if (weight && a->norm_last) norm_head(x, n, weight, &its, a->eps, a->norm_layer, lane);
}

/* ---- Codes ----------------------------------------------------------------------------------------- */

/* Butterflies of elements 1, 2, 4 .. apart, inside blocks of the largest power of two that divides n. */
AE_DEV void turn(float *x, uint32_t n, uint32_t lane)
{
    const uint32_t block = n & (~n + 1);
    ae_sync_warp();
    for (uint32_t h = 1; h < block; h *= 2) {
        for (uint32_t p = lane; p < n / 2; p += 32) {
            const uint32_t i = (p & ~(h - 1)) * 2 + (p & (h - 1));
            const float u = load(x, i), v = load(x, i + h);
            store(x, i, u + v);
            store(x, i + h, u - v);
        }
        ae_sync_warp();
    }
}

AE_DEV float largest(const float *x, uint32_t n, uint32_t lane)
{
    float top = 0;
    for (uint32_t k = lane; k < n; k += 32) {
        const float v = fabsf(load(x, k));
        top = v > top ? v : top;
    }
    return ae_warp_max(top);
}

AE_DEV float rounding_error(float x, float inv)
{
    return ae_fma(x, inv, AE_EXP_MAGIC - ae_add_magic(x, inv));
}

/* Returns the one of AE_QUANT_TOPS with the least squared error. */
AE_DEV float best_top(const float *x, uint32_t n, float top, uint32_t lane)
{
    const float tops[AE_QUANT_TRIES] = AE_QUANT_TOPS;
    float inv[AE_QUANT_TRIES], low[AE_QUANT_TRIES], high[AE_QUANT_TRIES], best_error = 0, best = 0;
    AE_UNROLL
    for (uint32_t i = 0; i < AE_QUANT_TRIES; i++) {
        inv[i] = tops[i] / top;
        low[i] = high[i] = 0;
    }
    for (uint32_t k = lane; k < n; k += 64) {
        const bool two = k + 32 < n;
        const float u = load(x, k), v = two ? load(x, k + 32) : 0;
        AE_UNROLL
        for (uint32_t i = 0; i < AE_QUANT_TRIES; i++) {
            const float e = rounding_error(u, inv[i]), f = rounding_error(v, inv[i]);
            low[i] = ae_fma(e, e, low[i]);
            if (two) high[i] = ae_fma(f, f, high[i]);
        }
    }
    AE_UNROLL
    for (uint32_t i = 0; i < AE_QUANT_TRIES; i++) {
        const float d = top / tops[i], error = ae_warp_sum64(low[i], high[i]) * (d * d);
        if (i == 0 || error < best_error) {
            best_error = error;
            best = tops[i];
        }
    }
    return best;
}

/* |y| less the nearest of the levels of codes of 4 bits. */
AE_DEV float level_error(float y)
{
    const float limit[] = AE_KV4_LIMITS, level[] = AE_KV4_LEVELS;
    float nearest = level[0];
    AE_UNROLL
    for (uint32_t i = 0; i < 7; i++)
        if (fabsf(y) > limit[i]) nearest = level[i + 1];
    return fabsf(y) - nearest;
}

/* Returns the one of AE_KV4_TOPS with the least squared error. */
AE_DEV float best_top4(const float *x, uint32_t n, float top, uint32_t lane)
{
    const float tops[AE_KV4_TRIES] = AE_KV4_TOPS;
    float best_error = 0, best = 0;
    AE_UNROLL
    for (uint32_t i = 0; i < AE_KV4_TRIES; i++) {
        const float inv = tops[i] / top, d = top / tops[i];
        float low = 0, high = 0;
        for (uint32_t k = lane; k < n; k += 64) {
            const float e = level_error(load(x, k) * inv), f = k + 32 < n ? level_error(load(x, k + 32) * inv) : 0;
            low = ae_fma(e, e, low);
            if (k + 32 < n) high = ae_fma(f, f, high);
        }
        const float error = ae_warp_sum64(low, high) * (d * d);
        if (i == 0 || error < best_error) {
            best_error = error;
            best = tops[i];
        }
    }
    return best;
}

/* How a part of a row becomes codes. */
typedef struct coding {
    float inv, d;  /* factor of the elements, and the scale of the codes; d 0: all codes are 0 */
    int32_t nan;   /* the code of a product that is NaN */
    bool row;      /* with a row of q8_0: also the code of infinite values */
} coding;

AE_DEV coding code_row(const float *x, uint32_t n, uint32_t lane)
{
    const float top = largest(x, n, lane), t = top > 1e-30f ? best_top(x, n, top, lane) : 1;
    return top > 1e-30f ? coding{t / top, top / t, -127, true} : coding{0, 0, 0, true};
}

AE_DEV coding code_query(const float *x, uint32_t n, uint32_t lane)
{
    const float top = largest(x, n, lane);
    if (!(top > 1e-30f)) return coding{0, 0, 0, false};
    return coding{AE_KV_QUERY / top, top / AE_KV_QUERY, -(int32_t)AE_KV_QUERY, false};
}

AE_DEV coding code_row4(const float *x, uint32_t n, uint32_t lane)
{
    const float top = largest(x, n, lane), t = top > 1e-30f ? best_top4(x, n, top, lane) : 1;
    return top > 1e-30f ? coding{t / top, top / t, 0, true} : coding{0, 0, 0, true};
}

/* Returns the code of 4 bits. */
AE_DEV uint32_t code4_of(const coding *c, float x)
{
    const float limit[] = AE_KV4_LIMITS, y = x * c->inv;
    uint32_t code = y > 0;
    AE_UNROLL
    for (uint32_t i = 0; i < 7; i++) code += (y > limit[i]) + (y > -limit[i]);
    return c->d == 0 ? 0 : code;
}

AE_DEV int32_t code_of(const coding *c, float x)
{
    const float y = c->row ? (fabsf(x) <= 3.402823466e38f ? x : NAN) : x * c->inv; /* a row's inf / inf is a NaN */
    if (c->d == 0) return 0;
    return y != y ? c->nan : ae_round_magic(x, c->inv);
}

/* ---- Writing to pages ---------------------------------------------------------------------------------- */

/* Where a part of a row goes: the 16-byte groups from `first` on, `step` bytes apart. */
typedef struct place {
    uint8_t *first;
    uint32_t step, n_groups;
} place;

AE_DEV uint32_t two_halves(float x, float y)
{
    return ae_rope_half(x) | (uint32_t)ae_rope_half(y) << 16;
}

AE_DEV uint32_t four_codes(const int32_t c[4])
{
    uint32_t word = 0;
    AE_UNROLL
    for (uint32_t e = 0; e < 4; e++) word |= (uint32_t)(uint8_t)c[e] << 8 * e;
    return word;
}

/* x [n] as f16 or f32, four elements by a lane; the padding of the last group is 0. */
AE_DEV void write_floats(const float *x, uint32_t n, uint32_t width, const place *to, uint32_t lane)
{
    const uint32_t per_group = 4 / width; /* quads: 1 of f32, 2 of f16 */
    for (uint32_t i = lane; i < to->n_groups * per_group; i += 32) {
        float v[4];
        AE_UNROLL
        for (uint32_t e = 0; e < 4; e++) v[e] = 4 * i + e < n ? load(x, 4 * i + e) : 0;
        uint8_t *p = to->first + (size_t)(i / per_group) * to->step + i % per_group * 8;
        if (width == 4) *(uint4 *)p = make_uint4(ae_as_bits(v[0]), ae_as_bits(v[1]), ae_as_bits(v[2]), ae_as_bits(v[3]));
        else *(uint2 *)p = make_uint2(two_halves(v[0], v[1]), two_halves(v[2], v[3]));
    }
}

/* The codes of x [n], or the digits of codes of 15 bits: the low ones `plane` bytes after the high ones. */
AE_DEV void write_codes(const float *x, uint32_t n, const coding *c, uint32_t plane, const place *to, uint32_t lane)
{
    for (uint32_t i = lane; i < to->n_groups * 4; i += 32) {
        int32_t code[4], low[4];
        AE_UNROLL
        for (uint32_t e = 0; e < 4; e++) {
            code[e] = 4 * i + e < n ? code_of(c, load(x, 4 * i + e)) : 0;
            const int32_t high = (code[e] + 64) >> 7;
            low[e] = code[e] - 128 * high;
            if (plane) code[e] = high;
        }
        uint8_t *p = to->first + (size_t)(i / 4) * to->step + i % 4 * 4;
        *(uint32_t *)p = four_codes(code);
        if (plane) *(uint32_t *)(p + plane) = four_codes(low);
    }
}

/* The codes of 4 bits of x [n], eight by a lane. */
AE_DEV void write_halves(const float *x, uint32_t n, const coding *c, const place *to, uint32_t lane)
{
    for (uint32_t i = lane; i < to->n_groups * 4; i += 32) {
        uint32_t word = 0;
        AE_UNROLL
        for (uint32_t e = 0; e < 8; e++)
            if (8 * i + e < n) word |= code4_of(c, load(x, 8 * i + e)) << 4 * e;
        *(uint32_t *)(to->first + (size_t)(i / 4) * to->step + i % 4 * 4) = word;
    }
}

/* Writes a key or a value. x may be changed. */
AE_DEV void write_row(const ae_gpu_kv_form *f, uint8_t *block, uint32_t at, float *x, bool value, uint32_t lane)
{
    const bool two = (value ? f->value_planes : f->n_planes) == 2, half = value ? f->value_half : f->key_half;
    place to;
    to.first = block + (value ? ae_gpu_kv_value_at(f, 0, at) : ae_gpu_kv_key_at(f, 0, 0, at));
    to.step = value ? AE_GPU_KV_GROUP : AE_KV_PAGE * AE_GPU_KV_GROUP;
    to.n_groups = value ? f->value_groups : f->groups;
    ae_sync_warp();
    if (f->width > 1) {
        write_floats(x, f->head_dim, f->width, &to, lane);
        return;
    }
    if (!value || half) turn(x, f->head_dim, lane);
    const coding c = half ? code_row4(x, f->head_dim, lane)
                     : two ? code_query(x, f->head_dim, lane) : code_row(x, f->head_dim, lane);
    if (half) write_halves(x, f->head_dim, &c, &to, lane);
    else write_codes(x, f->head_dim, &c, two ? value ? f->value_bytes : f->plane_bytes : 0, &to, lane);
    if (!lane) *(float *)(block + ae_gpu_kv_scale_at(f, value, at)) = c.d;
}

/* Writes a part x [n] of a latent row; part: shared memory for it; rotated: the part that is rotated. */
AE_DEV void write_part(const ae_gpu_kv_form *f, uint8_t *block, uint32_t at, const float *x, float *part, bool rotated,
                       uint32_t lane)
{
    const uint32_t n = rotated ? f->n_rope : f->head_dim;
    place to;
    to.first = block + ae_gpu_kv_key_at(f, 0, rotated ? 0 : f->rope_groups, at);
    to.step = AE_KV_PAGE * AE_GPU_KV_GROUP;
    to.n_groups = rotated ? f->rope_groups : f->groups - f->rope_groups;
    ae_sync_warp();
    if (f->width > 1) {
        write_floats(x, n, f->width, &to, lane);
        return;
    }
    for (uint32_t k = lane; k < n; k += 32) store(part, k, load(x, k));
    turn(part, n, lane);
    const coding c = f->n_planes == 1 ? code_row(part, n, lane) : code_query(part, n, lane);
    write_codes(part, n, &c, f->n_planes == 1 ? 0 : f->plane_bytes, &to, lane);
    if (!lane) *(float *)(block + ae_gpu_kv_scale_at(f, rotated, at)) = c.d;
}

/* ---- The kernel ------------------------------------------------------------------------------------------ */

AE_DEV void save_head(const float *x, float *to, uint32_t n, float scale, bool scaled, uint32_t lane)
{
    for (uint32_t k = lane; k < n; k += 32) to[k] = scaled ? load(x, k) * scale : load(x, k);
}

AE_DEV void query(const ae_gpu_rope_kv_args *a, uint32_t row, uint32_t head, float *x, uint32_t lane)
{
    const uint32_t n = a->head_dim;
    float *q = a->q + ((size_t)row * a->n_heads + head) * n;
    if (!a->q_norm && !a->n_rot && !a->q_scale) return;
    const float scale = a->q_scale ? a->q_scale[row] : 1;
    norm_rotate(a, row, q, x, a->q_norm ? a->q_norm + (a->norm_layer ? (size_t)head * n : 0) : NULL, lane);
    save_head(x, q, n, scale, a->q_scale, lane);
}

AE_DEV void key(const ae_gpu_rope_kv_args *a, uint32_t row, uint32_t head, float *x, uint32_t lane)
{
    const uint32_t n = a->head_dim;
    const ae_rope_target to = ae_rope_target_of(a, a->slot[row], a->seq[row]);
    float *k = a->k + ((size_t)row * a->n_kv_heads + head) * n;
    norm_rotate(a, row, k, x, a->k_norm ? a->k_norm + (a->norm_layer ? (size_t)head * n : 0) : NULL, lane);
    if (a->k_norm || a->n_rot) save_head(x, k, n, 1, false, lane);
    if (to.page >= a->kv.n_pages) return;
    uint8_t *block = ae_gpu_kv_block(&a->kv, to.page, head);
    if (!a->kv.form.n_rope) {
        write_row(&a->kv.form, block, to.at, x, false, lane);
        return;
    }
    write_part(&a->kv.form, block, to.at, x, x + a->row_floats, true, lane);
    write_part(&a->kv.form, block, to.at, x + a->kv.form.n_rope, x + a->row_floats, false, lane);
}

AE_DEV void value(const ae_gpu_rope_kv_args *a, uint32_t row, uint32_t head, float *x, uint32_t lane)
{
    const uint32_t n = a->head_dim;
    const ae_rope_target to = ae_rope_target_of(a, a->slot[row], a->seq[row]);
    float *v = a->v + ((size_t)row * a->n_kv_heads + head) * n;
    const early its = fetch_early(NULL, NULL, 0, a->v_norm, n, lane);
    load_head(x, v, n, lane);
    if (a->v_norm) {
        norm_head(x, n, a->v_norm, &its, a->eps, false, lane);
        save_head(x, v, n, 1, false, lane);
    }
    if (to.page < a->kv.n_pages) write_row(&a->kv.form, ae_gpu_kv_block(&a->kv, to.page, head), to.at, x, true, lane);
}

AE_KERNEL(rope_heads, ae_gpu_rope_kv_args, 128)
{
    AE_SHARED(shared);
    const uint32_t lane = ae_thread() % 32, warp = ae_thread() / 32, row = ae_block_x();
    const uint32_t i = ae_block_y() * AE_GPU_ROPE_HEADS + warp, n = a.n_heads, m = a.n_kv_heads;
    float *x = (float *)shared + (size_t)warp * (a.row_floats + a.part_floats);
    if (a.n_actual && row >= *a.n_actual) return;
    if (i < n) query(&a, row, i, x, lane);
    else if (a.k && i < n + m) key(&a, row, i - n, x, lane);
    else if (a.k && a.v && i < n + 2 * m) value(&a, row, i - n - m, x, lane);
}

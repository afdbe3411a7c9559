#version 460
/* rope.comp - angles, norm and rotation of queries and keys, and writing keys and values to the pages of a KV cache. KIND: 0
 * rope_angles, 1 rope_heads and its kin. The arithmetic and its order are those of cpu/ref/rows.c and latent.c.
 *
 * 32 threads handle one head of one row, a query, a key or a value; a work-group has four. All threads go through the same
 * barriers, whatever their head is. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "kv_form.glsl"

layout(local_size_x = 128) in;

#define HEADS 4u
#define ROOM 640u /* floats of a row: 512 and 128 of a latent one */
#define KV_QUERY 16256.0

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer AnglesArgs { /* ae_gpu_rope_table_args */
    uint64_t pos, freq;
    double magnitude;
    uint64_t cos_, sin_;
    uint n_rows, half_, every;
};

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args { /* ae_gpu_rope_kv_args */
    uint64_t seq, slot, tables, n_actual, q, k, v, cos_, sin_, q_norm, k_norm, v_norm, q_scale;
    KvView kv;
    uint table_stride, n_heads, n_kv_heads, head_dim, n_rot, neox, norm_layer, norm_last, store;
    float eps;
    uint row_floats, part_floats;
};

/* ---- Angles: ae_sincos_of of base/math/double.h ----------------------------------------------------- */

void angles(AnglesArgs a)
{
    const uint i = BLOCK_X * 128 + THREAD, r = i / a.half_;
    if (r >= a.n_rows) return;
    const int every = int(a.every);
    const double x = double(I32(a.pos).v[r] / every * every) * F64(a.freq).v[i % a.half_];
    const double t = x * 0.63661977236758134308LF + 6755399441055744.0LF, k = t - 6755399441055744.0LF;
    const double p = ((x - k * 1.5707963109016418LF) - k * 1.5893254712295857e-08LF) - k * 6.123233995736766e-17LF;
    const double z = p * p;
    const double s = p + p * z * (-1.0LF / 6.0LF + z * (1.0LF / 120.0LF + z * (-1.0LF / 5040.0LF + z * (1.0LF / 362880.0LF +
                     z * (-1.0LF / 39916800.0LF + z * (1.0LF / 6227020800.0LF))))));
    const double c = 1.0LF + z * (-0.5LF + z * (1.0LF / 24.0LF + z * (-1.0LF / 720.0LF + z * (1.0LF / 40320.0LF +
                     z * (-1.0LF / 3628800.0LF + z * (1.0LF / 479001600.0LF + z * (-1.0LF / 87178291200.0LF)))))));
    const uint quadrant = unpackDouble2x32(t).x & 3u;
    double sine = c, cosine = s;
    if (quadrant == 0u) sine = s, cosine = c;
    else if (quadrant == 1u) sine = c, cosine = -s;
    else if (quadrant == 2u) sine = -s, cosine = -c;
    else sine = -c, cosine = s;
    F32(a.cos_).v[i] = float(cosine * a.magnitude);
    F32(a.sin_).v[i] = float(sine * a.magnitude);
}

/* ---- Heads ------------------------------------------------------------------------------------------ */

Args a;
KvForm f;

/* What this thread's head is. */
uint lane, group, head, row, base; /* base: of its row in `values` */
bool is_used, is_query, is_key, is_turned, is_stored;
uint64_t x_at, weight_at;

shared float values[HEADS * ROOM];
shared float turned[HEADS * ROOM]; /* rows that become codes */
shared float parts[HEADS * 64];

void find_head()
{
    const uint i = BLOCK_Y * HEADS + THREAD / 32, n = a.n_heads, m = a.n_kv_heads;
    row = BLOCK_X;
    group = THREAD / 32;
    lane = THREAD % 32;
    base = group * ROOM;
    is_query = i < n;
    is_key = !is_query && a.k != 0ul && i < n + m;
    const bool is_value = !is_query && !is_key && a.k != 0ul && a.v != 0ul && i < n + 2 * m;
    is_used = is_query || is_key || is_value;
    is_turned = a.n_rot != 0 && (is_query || is_key);
    is_stored = a.store != 0 && (is_key || is_value);
    head = is_query ? i : is_key ? i - n : i - n - m;
    const uint64_t x = is_query ? a.q : is_key ? a.k : a.v, norm = is_query ? a.q_norm : is_key ? a.k_norm : a.v_norm;
    x_at = x + (uint64_t(row) * (is_query ? n : m) + head) * a.head_dim * 4ul;
    weight_at = !is_used || norm == 0ul ? 0ul
                : norm + (a.norm_layer != 0 && !is_value ? uint64_t(head) * a.head_dim * 4ul : 0ul);
}

/* Returns the sum of 64 chains of each head, of which a thread has lane and lane + 32. */
float sum_64(float low, float high)
{
    const uint at = group * 64 + lane;
    barrier();
    parts[at] = low + high;
    for (uint h = 16; h >= 1; h /= 2) {
        barrier();
        if (lane < h) parts[at] = parts[at] + parts[at + h];
    }
    barrier();
    return parts[group * 64];
}

/* Returns the largest |x| of a head's n values in `turned` from `first` on. */
float largest(uint first, uint n)
{
    const uint at = group * 64 + lane;
    float top = 0.0;
    for (uint k = lane; k < n; k += 32) {
        const float v = abs(turned[base + first + k]);
        top = v > top ? v : top;
    }
    barrier();
    parts[at] = top;
    for (uint h = 16; h >= 1; h /= 2) {
        barrier();
        if (lane < h && parts[at + h] > parts[at]) parts[at] = parts[at + h];
    }
    barrier();
    return parts[group * 64];
}

float sum_row(float mean, bool squares)
{
    float low = 0.0, high = 0.0;
    for (uint k = lane; k < a.head_dim; k += 64) {
        const float d = values[base + k] - mean;
        low = squares ? ae_fma(d, d, low) : low + d;
        if (k + 32 < a.head_dim) {
            const float e = values[base + k + 32] - mean;
            high = squares ? ae_fma(e, e, high) : high + e;
        }
    }
    return sum_64(low, high);
}

/* Norms the heads that are normed before (or after) the rotation. */
void norm_heads(bool after)
{
    const bool mine = weight_at != 0ul && (is_turned && a.norm_last != 0) == after;
    const bool layer = a.norm_layer != 0 && (is_query || is_key);
    const float n = float(a.head_dim);
    float mean = 0.0;
    if (a.norm_layer != 0) {
        const float sum = ae_div(sum_row(0.0, false), n);
        if (layer) mean = sum;
    }
    const float inv = ae_div(1.0, ae_sqrt(ae_div(sum_row(mean, true), n) + a.eps));
    if (mine)
        for (uint k = lane; k < a.head_dim; k += 32)
            values[base + k] = (values[base + k] - mean) * inv * F32(weight_at).v[k];
    barrier();
}

void rotate_heads()
{
    const uint half_ = a.n_rot / 2;
    const uint64_t at = uint64_t(row) * half_ * 4ul;
    if (is_turned)
        for (uint i = lane; i < half_; i += 32) {
            const uint at_a = base + (a.neox != 0 ? i : 2 * i), at_b = base + (a.neox != 0 ? i + half_ : 2 * i + 1);
            const float xa = values[at_a], xb = values[at_b], c = F32(a.cos_ + at).v[i], s = F32(a.sin_ + at).v[i];
            values[at_a] = xa * c - xb * s;
            values[at_b] = xa * s + xb * c;
        }
    barrier();
}

/* ---- Codes ------------------------------------------------------------------------------------------ */

/* Butterflies of n values of `turned` from `first` on, of heads that are `mine`. */
void turn(uint first, uint n, bool mine)
{
    for (uint h = 1; h < (n & (~n + 1)); h *= 2) {
        barrier();
        if (mine)
            for (uint p = lane; p < n / 2; p += 32) {
                const uint i = base + first + (p & ~(h - 1)) * 2 + (p & (h - 1));
                const float u = turned[i], v = turned[i + h];
                turned[i] = u + v;
                turned[i + h] = u - v;
            }
    }
    barrier();
}

/* Returns the one of AE_QUANT_TOPS with the least squared error. */
float best_top(uint first, uint n, float top)
{
    float best = 127.0, best_error = 0.0;
    for (uint i = 0; i < 8; i++) {
        const float mine = float(127 - int(i)), inv = top > 1e-30 ? ae_div(mine, top) : 0.0;
        float low = 0.0, high = 0.0;
        for (uint k = lane; k < n; k += 64) {
            const float e = ae_rounding_error(turned[base + first + k], inv);
            low = ae_fma(e, e, low);
            if (k + 32 < n) {
                const float g = ae_rounding_error(turned[base + first + k + 32], inv);
                high = ae_fma(g, g, high);
            }
        }
        const float d = top > 1e-30 ? ae_div(top, mine) : 0.0, error = sum_64(low, high) * (d * d);
        if (i == 0 || error < best_error) {
            best = mine;
            best_error = error;
        }
    }
    return best;
}

/* |y| less the nearest of AE_KV4_LEVELS. */
float level_error(float y)
{
    const float limits[7] = float[](12.0, 24.5, 37.5, 51.0, 66.5, 85.5, 111.5);
    const float levels[8] = float[](6.0, 18.0, 31.0, 44.0, 58.0, 75.0, 96.0, 127.0);
    float nearest = levels[0];
    [[unroll]] for (uint i = 0; i < 7; i++)
        if (abs(y) > limits[i]) nearest = levels[i + 1];
    return abs(y) - nearest;
}

/* Returns the one of AE_KV4_TOPS with the least squared error. */
float best_top4(uint n, float top)
{
    const float tops[5] = float[](127.0, 115.0, 103.0, 140.0, 92.0);
    float best = 127.0, best_error = 0.0;
    for (uint i = 0; i < 5; i++) {
        const float inv = top > 1e-30 ? ae_div(tops[i], top) : 0.0, d = top > 1e-30 ? ae_div(top, tops[i]) : 0.0;
        float low = 0.0, high = 0.0;
        for (uint k = lane; k < n; k += 64) {
            const float e = level_error(turned[base + k] * inv);
            low = ae_fma(e, e, low);
            if (k + 32 < n) {
                const float g = level_error(turned[base + k + 32] * inv);
                high = ae_fma(g, g, high);
            }
        }
        const float error = sum_64(low, high) * (d * d);
        if (i == 0 || error < best_error) {
            best = tops[i];
            best_error = error;
        }
    }
    return best;
}

uint code4_of(float y)
{
    const float limits[7] = float[](12.0, 24.5, 37.5, 51.0, 66.5, 85.5, 111.5);
    uint code = y > 0.0 ? 1u : 0u;
    [[unroll]] for (uint i = 0; i < 7; i++) code += (y > limits[i] ? 1u : 0u) + (y > -limits[i] ? 1u : 0u);
    return code;
}

/* Writes the codes of 4 bits of n values of `turned`, as write_codes does. */
void write_halves(uint n, uint64_t to, uint step, uint n_groups, uint64_t scale_at, bool mine)
{
    const float top = largest(0, n), best = best_top4(n, top);
    const bool some = top > 1e-30;
    const float inv = some ? ae_div(best, top) : 0.0;
    if (!mine) return;
    for (uint i = lane; i < n_groups * 16; i += 32) {
        uint two = 0u;
        [[unroll]] for (uint e = 0; e < 2; e++)
            if (some && 2 * i + e < n) two |= code4_of(turned[base + 2 * i + e] * inv) << 4 * e;
        U8(to + uint64_t(i / 16) * step + i % 16).v[0] = uint8_t(two);
    }
    if (lane == 0) F32(scale_at).v[0] = some ? ae_div(top, best) : 0.0;
}

/* Writes the codes of n values of `turned` from `first` on: groups [0, n_groups) of 16 bytes, `step` bytes apart; with plane
 * the two digits of codes of 15 bits, the low ones `plane` bytes after the high ones. any_rows: plane is 0 for a head of the
 * launch, the same for all threads. */
void write_codes(uint first, uint n, uint64_t to, uint step, uint n_groups, uint plane, bool any_rows, uint64_t scale_at,
                 bool mine)
{
    const float top = largest(first, n);
    const bool some = top > 1e-30, row_codes = plane == 0;
    float best = 0.0;
    if (any_rows) best = best_top(first, n, top);
    const float t = row_codes ? best : KV_QUERY;
    const float inv = some ? ae_div(t, top) : 0.0;
    if (!mine) return;
    for (uint i = lane; i < n_groups * 16; i += 32) {
        int code = 0;
        if (i < n && some) {
            const float x = turned[base + first + i], y = x * inv;
            const bool none = row_codes ? !(abs(x) <= 3.402823466e38) : y != y;
            code = none ? (row_codes ? -127 : -16256) : ae_round_magic(x, inv);
        }
        const int high = (code + 64) >> 7;
        I8(to + uint64_t(i / 16) * step + i % 16).v[0] = int8_t(row_codes ? code : high);
        if (!row_codes) I8(to + plane + uint64_t(i / 16) * step + i % 16).v[0] = int8_t(code - 128 * high);
    }
    if (lane == 0) F32(scale_at).v[0] = some ? ae_div(top, t) : 0.0;
}

/* ---- Writing to pages ------------------------------------------------------------------------------- */

uint halves(uint at, uint i, uint n)
{
    uint bits[2];
    [[unroll]] for (uint e = 0; e < 2; e++) {
        const float x = i + e < n ? values[at + i + e] : 0.0;
        bits[e] = x == x ? ae_to_half(x) : 0x7E00u;
    }
    return bits[0] | bits[1] << 16;
}

/* n values from `first` on as f16 or f32, two elements by a thread; the padding of the last group is 0. */
void write_floats(uint first, uint n, uint64_t to, uint step, uint n_groups)
{
    const uint each = KV_GROUP / f.width;
    for (uint i = 2 * lane; i < n_groups * each; i += 64) {
        const uint64_t p = to + uint64_t(i / each) * step + i % each * f.width;
        if (f.width == 2) U32(p).v[0] = halves(base + first, i, n);
        else {
            U32(p).v[0] = i < n ? floatBitsToUint(values[base + first + i]) : 0u;
            U32(p).v[1] = i + 1 < n ? floatBitsToUint(values[base + first + i + 1]) : 0u;
        }
    }
}

void write_head()
{
    uint page = 0xffffffffu, place = 0;
    if (is_stored) {
        const int slot = I32(a.slot).v[row];
        const uint i = uint(slot) / KV_PAGE;
        place = uint(slot) % KV_PAGE;
        if (slot >= 0 && i < a.table_stride) page = uint(I32(a.tables).v[uint(I32(a.seq).v[row]) * a.table_stride + i]);
    }
    const bool mine = page < a.kv.n_pages;
    const uint64_t block = mine ? kv_block(a.kv, page, head) : 0ul;
    const uint key_step = KV_PAGE * KV_GROUP, rope_groups = f.rope_groups, rest = f.groups - rope_groups;
    const uint64_t key = block + kv_key_at(f, 0, 0, place), latent = block + kv_key_at(f, 0, rope_groups, place);
    const bool to_key = is_key || f.n_rope != 0;
    const uint64_t to = to_key ? key : block + kv_value_at(f, 0, place);
    if (f.n_scales == 0) {
        if (!mine) return;
        if (f.n_rope == 0) write_floats(0, f.head_dim, to, to_key ? key_step : KV_GROUP, f.groups);
        else {
            write_floats(0, f.n_rope, key, key_step, rope_groups);
            write_floats(f.n_rope, f.head_dim, latent, key_step, rest);
        }
        return;
    }
    for (uint k = lane; k < a.head_dim; k += 32) turned[base + k] = values[base + k];
    if (f.n_rope == 0) {
        const bool half_ = (to_key ? f.key_half : f.value_half) != 0;
        const uint step = to_key ? key_step : KV_GROUP, n_groups = to_key ? f.groups : f.value_groups;
        const uint64_t scale = block + kv_scale_at(f, to_key ? 0 : 1, place);
        turn(0, f.head_dim, is_key || half_);
        if (f.key_half == 0)
            write_codes(0, f.head_dim, to, step, n_groups, to_key ? f.n_planes == 1 ? 0 : f.plane_bytes
                        : f.value_planes == 1 ? 0 : f.value_bytes, f.n_planes == 1 || f.value_planes == 1, scale, mine && !half_);
        if (f.value_half != 0) write_halves(f.head_dim, to, step, n_groups, scale, mine && half_);
        return;
    }
    const uint plane = f.n_planes == 1 ? 0 : f.plane_bytes;
    turn(0, f.n_rope, true);
    turn(f.n_rope, f.head_dim, true);
    write_codes(0, f.n_rope, key, key_step, rope_groups, plane, plane == 0, block + kv_scale_at(f, 1, place), mine);
    write_codes(f.n_rope, f.head_dim, latent, key_step, rest, plane, plane == 0, block + kv_scale_at(f, 0, place), mine);
}

void heads()
{
    a = Args(push.args);
    f = a.kv.form;
    if (a.n_actual != 0ul && BLOCK_X >= U32(a.n_actual).v[0]) return;
    find_head();
    for (uint k = lane; k < a.head_dim; k += 32) values[base + k] = is_used ? F32(x_at).v[k] : 0.0;
    barrier();
    const bool any_norm = (a.q_norm | a.k_norm | a.v_norm) != 0ul;
    if (any_norm) norm_heads(false);
    if (a.n_rot != 0) rotate_heads();
    if (any_norm && a.norm_last != 0) norm_heads(true);
    const bool scaled = is_query && a.q_scale != 0ul;
    if (weight_at != 0ul || is_turned || scaled)
        for (uint k = lane; k < a.head_dim; k += 32)
            F32(x_at).v[k] = scaled ? values[base + k] * F32(a.q_scale).v[row] : values[base + k];
    if (a.store != 0) write_head();
}

void main()
{
    if (KIND == 0) angles(AnglesArgs(push.args));
    else heads();
}

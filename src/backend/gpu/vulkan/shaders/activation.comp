#version 460
/* activation.comp - prepares the rows of a product: norm or activation function, then codes (the kernel activation).
 *
 * A work-group has a piece of a row; a thread computes one column of each 256. A norm's sums are computed by every work-group
 * of the row again. The arithmetic is that of cpu/ref/rows.c. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "product_place.glsl"

layout(local_size_x = 256) in;

#define INPUT_RMSNORM 1u
#define INPUT_LAYERNORM 2u
#define INPUT_GLU 3u

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args { /* ae_gpu_activation_args */
    Rows rows;
    uint want, kind, glu, columns, staged, head_rows;
    float norm_eps, glu_limit;
    uint64_t x, x2, x_stride, x_step, norm, norm_bias, slots;
    uint shares;
    float up_limit;
    uint64_t factor;
};

Args a;
uint64_t x_row, x2_row;

shared float values[256];
shared float parts[256];
shared float errors[64]; /* [8 groups][8 tries] */
shared int numbers[256];

/* Returns the sum of 64 chains, of which threads 0 to 63 have one each: the tree of ae_sum64. All threads get it. */
float sum_chains(float sum)
{
    const uint t = THREAD;
    barrier();
    if (t < 64) parts[t] = sum;
    for (uint h = 32; h >= 1; h /= 2) {
        barrier();
        if (t < h) parts[t] = parts[t] + parts[t + h];
    }
    barrier();
    return parts[0];
}

float sum_row(uint n, float mean, bool squares)
{
    float sum = 0.0;
    if (THREAD < 64)
        for (uint i = THREAD; i < n; i += 64) {
            const float v = F32(x_row).v[i];
            const float d = v - mean; /* a mean of 0 changes no bit */
            sum = squares ? ae_fma(d, d, sum) : sum + d;
        }
    return sum_chains(sum);
}

/* Returns the mean and the factor of the row's norm. */
vec2 row_facts()
{
    const uint n = a.rows.n_in;
    float mean = 0.0;
    if (a.kind != INPUT_RMSNORM && a.kind != INPUT_LAYERNORM) return vec2(0.0, 0.0);
    if (a.kind == INPUT_LAYERNORM) mean = ae_div(sum_row(n, 0.0, false), float(n));
    const float sum = sum_row(n, mean, true);
    return vec2(mean, ae_div(1.0, ae_sqrt(ae_div(sum, float(n)) + a.norm_eps)));
}

float value_of(uint k, vec2 facts)
{
    const float x = F32(x_row).v[k];
    if (a.kind == INPUT_RMSNORM) return x * facts.y * F32(a.norm).v[k];
    if (a.kind == INPUT_LAYERNORM) {
        const float z = (x - facts.x) * facts.y * F32(a.norm).v[k];
        return a.norm_bias != 0ul ? z + F32(a.norm_bias).v[k] : z;
    }
    if (a.kind == INPUT_GLU) {
        const float g = ae_glu_of(a.glu, x, a.glu_limit);
        return a.x2 != 0ul ? g * ae_glu_times(a.glu, F32(x2_row).v[k], a.glu == 11 ? a.up_limit : a.glu_limit) : g;
    }
    return x;
}

/* |v|, 0 for NaN */
float magnitude(float v)
{
    const float m = abs(v);
    return m > 0.0 ? m : 0.0;
}

int code_of(float v, float inv)
{
    const float t = ae_add_magic(v, inv);
    return t == t ? bitfieldExtract(int(floatBitsToUint(t) - 0x4B400000u), 0, 8) : 0;
}

/* Returns the largest of values [first, first + n). */
float largest(uint first, uint n)
{
    float top = 0.0;
    for (uint i = 0; i < n; i++) {
        const float m = magnitude(values[first + i]);
        top = m > top ? m : top;
    }
    return top;
}

/* Returns the part of a group's squared error, with one scale, that is elements i, i + 4 .. of its 32. */
float part_error(uint first, uint i, float inv)
{
    float s[4];
    [[unroll]] for (uint j = 0; j < 4; j++) {
        const float e = ae_rounding_error(values[first + i + 4 * j], inv);
        const float f = ae_rounding_error(values[first + i + 4 * (j + 4)], inv);
        s[j] = ae_fma(f, f, e * e);
    }
    return (s[0] + s[2]) + (s[1] + s[3]);
}

/* Returns the scale of AE_QUANT_TOPS with the least error. */
uint best_try(uint group)
{
    uint best = 0;
    for (uint i = 1; i < 8; i++)
        if (errors[group * 8 + i] < errors[group * 8 + best]) best = i;
    return best;
}

void write_32(uint row, uint k)
{
    const uint t = THREAD, group = t / 32, lane = t % 32, first = group * 32, i = row % TILE, half_ = k / 32 % 2;
    const float top = largest(first, 32), mine = float(127 - int(lane / 4));
    const bool some = top > 1e-30;
    parts[t] = some ? part_error(first, lane % 4, ae_div(mine, top)) : 0.0;
    barrier();
    if (lane % 4 == 0) {
        const float d = some ? ae_div(top, mine) : 0.0;
        errors[group * 8 + lane / 4] = ((parts[t] + parts[t + 2]) + (parts[t + 1] + parts[t + 3])) * (d * d);
    }
    barrier();
    const float best = float(127 - int(best_try(group)));
    const int code = some ? code_of(values[t], ae_div(best, top)) : 0;
    numbers[t] = code;
    barrier();
    if (k / 64 >= PAIRS(a.rows.n_in)) return;
    const uint64_t record = a.rows.r32 + uint64_t(row / TILE) * GROUP_BYTES(a.rows.n_in) + k / 64 * RECORD;
    I8(record + Q_AT(i, half_, k / 4 % 8) + k % 4).v[0] = int8_t(code);
    if (lane != 0) return;
    const float d = some ? ae_div(top, best) : 0.0;
    int sum = 0;
    for (uint j = 0; j < 32; j++) sum += numbers[first + j];
    F32(record + DX_AT(i, half_)).v[0] = d;
    F32(record + S_AT(i, half_)).v[0] = d * float(sum);
}

void write_256(uint row, uint k)
{
    const uint t = THREAD, i = row % TILE, n_units = a.rows.n_in / 256;
    parts[t] = magnitude(values[t]);
    for (uint h = 128; h >= 1; h /= 2) {
        barrier();
        if (t < h && parts[t + h] > parts[t]) parts[t] = parts[t + h];
    }
    barrier();
    const float top = parts[0];
    const bool none = !(top > 1e-30);
    const int code = none ? 0 : code_of(values[t], ae_div(127.0, top));
    numbers[t] = code;
    barrier();
    const uint64_t unit = uint64_t(row / TILE) * n_units + k / 256, record = a.rows.r256 + unit * RECORD_256;
    I8(record + t / 64 * 512 + Q_AT(i, t / 32 % 2, t / 4 % 8) + t % 4).v[0] = int8_t(code);
    if (t % 16 == 0) {
        int sum = 0;
        for (uint j = 0; j < 16; j++) sum += numbers[t + j];
        if ((a.want & WANT_16) != 0) U16(a.rows.b16).v[uint((unit * TILE + i) * 16ul) + t / 16] = uint16_t(sum & 0xffff);
    }
    if (t == 0) F32(record + DX_256 + i * 4).v[0] = none ? 0.0 : ae_div(top, 127.0);
    if (t % 32 != 0) return;
    int both = 0;
    for (uint j = 0; j < 32; j++) both += numbers[t + j];
    const int high = (both + 64) >> 7;
    I8(record + SUMS_256 + i * 16 + t / 32).v[0] = int8_t(both - 128 * high);
    I8(record + SUMS_256 + i * 16 + t / 32 + 8).v[0] = int8_t(high);
}

void main()
{
    a = Args(push.args);
    const uint i_row = BLOCK_X, head = BLOCK_Z, n = a.rows.n_in, t = THREAD;
    const uint begin = BLOCK_Y * a.columns, end = n - begin < a.columns ? n : begin + a.columns;
    const uint to = a.slots != 0ul ? U32(a.slots).v[i_row] : i_row + head * a.head_rows;
    const uint row = a.slots == 0ul ? i_row : a.shares != 0 ? i_row / a.shares : to;
    const uint64_t at = (uint64_t(row) * a.x_stride + uint64_t(head) * a.x_step) * 4ul;
    x_row = a.x + at;
    x2_row = a.x2 != 0ul ? a.x2 + at : 0ul;
    const vec2 facts = row_facts();
    for (uint i = begin; i < end; i += 256) {
        const uint k = i + t;
        float v = k < n ? value_of(k, facts) : 0.0;
        if (a.factor != 0ul) v = F32(a.factor).v[i_row] * v;
        if ((a.want & WANT_X) != 0 && k < n) F32(a.rows.x + uint64_t(to) * a.rows.x_stride * 4ul).v[k] = v;
        barrier();
        values[t] = v;
        barrier();
        if ((a.want & WANT_32) != 0) write_32(to, k);
        barrier();
        if ((a.want & WANT_256) != 0) write_256(to, k);
    }
}

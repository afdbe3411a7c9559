#version 460
/* compress.comp - what DeepSeek-V4's layers add. KIND: 0 hyper_rows, 1 rotate_heads, 2 keep_rows, 3 compress_rows, 4
 * trail_rows, 5 keep_tokens, 6 hash_tokens, 7 accord_parts. The arithmetic and its order are those of cpu/ref/compress.c and rows.c. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "kv_form.glsl"

layout(local_size_x = 128) in;

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer HyperArgs { /* ae_gpu_hyper_args */
    uint64_t x, scale, base, x_stride;
    uint n, n_iterations;
    float eps, magnitude;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer RotateArgs { /* ae_gpu_rotate_args */
    uint64_t x, cos_, sin_;
    uint n_heads, head_dim, first, n_rot, neox, back;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer CompressArgs { /* ae_gpu_compress_args */
    KvView kv;
    uint64_t seq, pos, slot, n_inplace, path, tables, n_actual, x, ape, y;
    uint path_stride, table_stride, dim, n_parts, every, n_heads, n_rows, n_taps, step;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer NgramsArgs { /* ae_gpu_ngrams_args */
    uint64_t at[26]; /* CompressArgs */
    uint64_t tokens, y;
    int end;
    uint n_tokens, n_each, unused;
    uint64_t factors[8], sizes[64], offsets[64];
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer AccordArgs { /* ae_gpu_accord_args */
    uint64_t x, x2, y, y_stride;
    uint n_parts, dim;
    float scale;
};

/* ---- Streams: a work-group has a row ---------------------------------------------------------------- */

shared float numbers[80]; /* 8 streams */

float sigmoid(float x)
{
    return ae_div(1.0, 1.0 + ae_expf(-x));
}

void divide(uint at, uint n, uint step, float eps)
{
    float sum = 0.0;
    for (uint k = 0; k < n; k++) sum = sum + numbers[at + k * step];
    for (uint k = 0; k < n; k++) numbers[at + k * step] = ae_div(numbers[at + k * step], sum + eps);
}

void softmax(uint at, uint n, float eps)
{
    float top = -AE_INFINITY, sum = 0.0;
    for (uint k = 0; k < n; k++) top = numbers[at + k] > top ? numbers[at + k] : top;
    for (uint k = 0; k < n; k++) {
        const float e = ae_expf(numbers[at + k] - top);
        sum = sum + e;
        numbers[at + k] = e;
    }
    for (uint k = 0; k < n; k++) numbers[at + k] = ae_div(numbers[at + k], sum) + eps;
}

void hyper(HyperArgs a)
{
    const bool apart = a.magnitude > 0.0;
    const uint n = a.n, t = THREAD, c = 2 * n, n_all = a.n_iterations == 0 ? n : apart ? 2 * n : n * (2 + n);
    F32 x = F32(a.x + uint64_t(BLOCK_X) * a.x_stride * 4ul);
    for (uint k = t; k < n_all; k += 128) {
        const float v = x.v[k] * F32(a.scale).v[k < n ? 0 : k < 2 * n ? 1 : 2] + F32(a.base).v[k];
        numbers[k] = v;
        if (k < n) numbers[k] = sigmoid(v) + a.eps;
        else if (k < 2 * n) numbers[k] = apart ? a.magnitude * sigmoid(v) + a.eps : 2.0 * sigmoid(v);
    }
    barrier();
    if (a.n_iterations != 0 && !apart) {
        if (t < n) softmax(c + t * n, n, a.eps);
        barrier();
        if (t < n) divide(c + t, n, n, a.eps);
        for (uint i = 1; i < a.n_iterations; i++) {
            barrier();
            if (t < n) divide(c + t * n, n, 1, a.eps);
            barrier();
            if (t < n) divide(c + t, n, n, a.eps);
        }
        barrier();
    }
    for (uint k = t; k < n_all; k += 128) x.v[k] = numbers[k];
}

/* ---- Rotation: a thread has a pair of a head -------------------------------------------------------- */

void rotate(RotateArgs a)
{
    const uint half_ = a.n_rot / 2, i = BLOCK_Y * 128 + THREAD, row = BLOCK_X;
    if (i >= a.n_heads * half_) return;
    const uint pair = i % half_, at_a = a.neox != 0 ? pair : 2 * pair, at_b = a.neox != 0 ? pair + half_ : 2 * pair + 1;
    F32 x = F32(a.x + ((uint64_t(row) * a.n_heads + i / half_) * a.head_dim + a.first) * 4ul);
    const uint64_t angle = (uint64_t(row) * half_ + pair) * 4ul;
    const float c = F32(a.cos_ + angle).v[0], own = F32(a.sin_ + angle).v[0];
    const float s = a.back != 0 ? -own : own, xa = x.v[at_a], xb = x.v[at_b];
    x.v[at_a] = xa * c - xb * s;
    x.v[at_b] = xa * s + xb * c;
}

/* ---- Compressed rows -------------------------------------------------------------------------------- */

CompressArgs a;

/* Returns the values of a head in a slot of the row's sequence; 0: not in the store. */
uint64_t kept_at(uint row, int slot, uint head)
{
    const uint i = uint(slot) / KV_PAGE;
    if (slot < 0 || i >= a.table_stride) return 0ul;
    const uint page = uint(I32(a.tables).v[uint(I32(a.seq).v[row]) * a.table_stride + i]);
    return page >= a.kv.n_pages ? 0ul : kv_block(a.kv, page, head) + kv_value_at(a.kv.form, 0, uint(slot) % KV_PAGE);
}

void keep(uint row, uint head)
{
    const uint64_t to = kept_at(row, I32(a.slot).v[row], head);
    const uint64_t x = a.x + (uint64_t(row) * a.n_heads + head) * a.dim * 4ul;
    if (to != 0ul)
        for (uint i = THREAD; i < a.dim; i += 128) F32(to).v[i] = F32(x).v[i];
}

/* Returns the slot of a position on the path of a row. */
int slot_at(uint row, int at)
{
    const int in_place = I32(a.n_inplace).v[row];
    return at < in_place ? at : I32(a.path + uint64_t(row) * a.path_stride * 4ul).v[uint(at - in_place)];
}

/* Number i of the values and the score of the position `at`, which is in the row's own block or in the one before. */
vec2 member(uint row, int at, bool own, uint i)
{
    const int slot = slot_at(row, at);
    const uint part = a.n_parts > 1 && own ? 1u : 0u, entry = uint(at) % a.every;
    const uint64_t value = kept_at(row, slot, part);
    const float v = value != 0ul ? F32(value).v[i] : 0.0;
    if (a.ape == 0ul) return vec2(v, 0.0);
    const uint64_t kept = kept_at(row, slot, a.n_parts + part);
    const float s = kept != 0ul ? F32(kept).v[i] : 0.0;
    return vec2(v, s + F32(a.ape + (uint64_t(entry) * a.n_parts + part) * a.dim * 4ul).v[i]);
}

void compress(uint row)
{
    const uint i = BLOCK_Y * 128 + THREAD;
    if (i >= a.dim) return;
    const int pos = I32(a.pos).v[row], every = int(a.every), own = pos + 1 - every;
    const int first = a.n_parts > 1 && own != 0 ? own - every : own;
    F32 y = F32(a.y + uint64_t(row) * a.dim * 4ul);
    float top = -AE_INFINITY, sum = 0.0, v = 0.0;
    if ((pos + 1) % every != 0) {
        y.v[i] = 0.0;
        return;
    }
    for (int at = first; at <= pos; at++) {
        const vec2 m = member(row, at, at >= own, i);
        top = m.y > top ? m.y : top;
        v = v + m.x;
    }
    if (a.ape == 0ul) { /* the mean */
        y.v[i] = ae_div(v, float(pos + 1 - first));
        return;
    }
    v = 0.0;
    for (int at = first; at <= pos; at++) {
        const vec2 m = member(row, at, at >= own, i);
        const float e = ae_expf(m.y - top);
        v = ae_fma(e, m.x, v);
        sum = sum + e;
    }
    y.v[i] = ae_div(v, sum);
}

/* ---- A memory of n-grams ---------------------------------------------------------------------------- */

void trail(uint row, uint head)
{
    for (uint i = THREAD; i < a.dim; i += 128) {
        F32 weight = F32(a.ape + (uint64_t(head) * a.dim + i) * a.n_taps * 4ul);
        float s = 0.0;
        for (uint j = 0; j < a.n_taps; j++) {
            const int pos = I32(a.pos).v[row] - int((a.n_taps - 1 - j) * a.step);
            if (pos < 0) continue;
            const uint64_t x = kept_at(row, slot_at(row, pos), head);
            if (x != 0ul) s = ae_fma(weight.v[j], F32(x).v[i], s);
        }
        F32(a.y + (uint64_t(row) * a.n_heads + head) * a.dim * 4ul).v[i] = ae_siluf(s);
    }
}

void keep_token(NgramsArgs g, uint row)
{
    if (row >= a.n_rows || (a.n_actual != 0ul && row >= U32(a.n_actual).v[0])) return;
    const uint64_t to = kept_at(row, I32(a.slot).v[row], 0);
    const int token = I32(g.tokens).v[row];
    if (to != 0ul) F32(to).v[0] = float(token < 0 ? g.end : token);
}

void hash(NgramsArgs g, uint row)
{
    const uint k = THREAD, n = (g.n_tokens - 1) * g.n_each;
    if (k >= n) return;
    uint64_t mixed = 0ul;
    bool ended = false;
    for (uint j = 0; j < 2 + k / g.n_each; j++) {
        const int pos = I32(a.pos).v[row] - int(j);
        int token = g.end;
        if (!ended && pos >= 0) {
            const uint64_t kept = kept_at(row, slot_at(row, pos), 0);
            if (kept != 0ul) token = int(F32(kept).v[0]);
        }
        ended = ended || (j != 0 && token == g.end);
        mixed ^= uint64_t(int64_t(token)) * g.factors[j];
    }
    I32(g.y).v[row * n + k] = int(uint(mixed % g.sizes[k] + g.offsets[k]));
}

/* A work-group has a part of a row. */
void accord(AccordArgs c)
{
    const uint row = BLOCK_X, part = BLOCK_Y, t = THREAD;
    const uint64_t at = (uint64_t(row) * c.n_parts + part) * c.dim * 4ul;
    float own = 0.0, s = 0.0;
    if (t < 16) {
        for (uint i = t; i < c.dim; i += 16) own = ae_fma(F32(c.x + at).v[i], F32(c.x2 + at).v[i], own);
        numbers[t] = own;
    }
    barrier();
    if (t != 0) return;
    for (uint i = 0; i < 16; i++) s = s + numbers[i];
    s = s * c.scale;
    const float root = ae_sqrt(abs(s) > 1e-6 ? abs(s) : 1e-6), g = s > 0.0 ? root : s < 0.0 ? -root : s;
    F32(c.y + (uint64_t(row) * c.y_stride + part) * 4ul).v[0] = sigmoid(g);
}

void main()
{
    if (KIND == 7) {
        accord(AccordArgs(push.args));
        return;
    }
    if (KIND == 0) {
        hyper(HyperArgs(push.args));
        return;
    }
    if (KIND == 1) {
        rotate(RotateArgs(push.args));
        return;
    }
    a = CompressArgs(push.args);
    if (KIND == 5) {
        keep_token(NgramsArgs(push.args), BLOCK_X * 128 + THREAD);
        return;
    }
    if (a.n_actual != 0ul && BLOCK_X >= U32(a.n_actual).v[0]) return;
    if (KIND == 4) trail(BLOCK_X, BLOCK_Y);
    else if (KIND == 6) hash(NgramsArgs(push.args), BLOCK_X);
    else if (KIND == 2) keep(BLOCK_X, BLOCK_Y);
    else compress(BLOCK_X);
}

#version 460
/* rows.comp - norms, element-wise maps and copies of rows. KIND: 0 norm_groups (SIZE groups of a block), 1 norm_rows, 2
 * axpy_rows, 3 map_rows, 4 copy_rows, 5 copy_host_rows, 6 map_whole_rows, 7 mix_rows. The arithmetic and its order are those of cpu/ref/rows.c. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;

#define MAP_BLOCK 1024u

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer NormArgs { /* ae_gpu_norm_args */
    uint64_t x, weight, bias;
    uint x_stride, n_rows, n_groups, dim, each_group, layer;
    float eps;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer AxpyArgs { /* ae_gpu_axpy_args */
    uint64_t x, y;
    uint x_stride, y_stride, dim;
    float a;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer MapArgs { /* ae_gpu_map_args */
    uint64_t x, x2, x3, weight;
    uint x_stride, x2_stride, dim, kind, glu, group;
    float a, b, c, d, limit, up_limit;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer MixArgs { /* ae_gpu_mix_args */
    uint64_t x, start, coef, y, x_stride, x_step, start_stride, start_step, coef_stride, y_stride, y_step;
    uint dim, n_in, n_out, out_step, in_step;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer CopyArgs { /* ae_gpu_copy_host_args */
    uint64_t x, y, rows, to;
    uint x_stride, y_stride, n, dim, wide, unused;
    int host_rows[900];
};

shared float parts[64];

/* ---- Norms: a group by all threads ------------------------------------------------------------------ */

float sum_group(uint64_t x, uint n, float mean, bool squares)
{
    const uint t = THREAD;
    float sum = 0.0;
    if (t < 64)
        for (uint k = t; k < n; k += 64) {
            const float v = F32(x).v[k];
            const float d = v - mean; /* a mean of 0 changes no bit */
            sum = squares ? ae_fma(d, d, sum) : sum + d;
        }
    barrier();
    if (t < 64) parts[t] = sum;
    for (uint h = 32; h >= 1; h /= 2) {
        barrier();
        if (t < h) parts[t] = parts[t] + parts[t + h];
    }
    barrier();
    return parts[0];
}

void norm(NormArgs a, uint i)
{
    const uint r = i / a.n_groups, g = i % a.n_groups;
    if (r >= a.n_rows) return; /* all threads */
    const uint64_t x = a.x + (uint64_t(r) * a.x_stride + uint64_t(g) * a.dim) * 4ul;
    const uint64_t weight = a.weight + (a.each_group != 0 ? uint64_t(g) * a.dim * 4ul : 0ul);
    const float mean = a.layer != 0 ? ae_div(sum_group(x, a.dim, 0.0, false), float(a.dim)) : 0.0;
    const float inv = ae_div(1.0, ae_sqrt(ae_div(sum_group(x, a.dim, mean, true), float(a.dim)) + a.eps));
    for (uint k = THREAD; k < a.dim; k += 256) {
        const float v = F32(x).v[k];
        const float z = (v - mean) * inv * F32(weight).v[k];
        F32(x).v[k] = a.bias != 0ul ? z + F32(a.bias).v[k] : z;
    }
}

/* ---- Maps ------------------------------------------------------------------------------------------- */

void axpy(AxpyArgs a)
{
    F32 x = F32(a.x + uint64_t(BLOCK_X) * a.x_stride * 4ul), y = F32(a.y + uint64_t(BLOCK_X) * a.y_stride * 4ul);
    const uint begin = BLOCK_Y * MAP_BLOCK, end = min(begin + MAP_BLOCK, a.dim);
    for (uint i = begin + THREAD; i < end; i += 256) y.v[i] = ae_fma(a.a, x.v[i], y.v[i]);
}

float map_of(MapArgs a, float x, uint64_t x2, uint64_t x3, uint i)
{
    if (a.kind == 1) return x * a.a;
    if (a.kind == 2) return ae_softcapf(x, a.a);
    if (a.kind == 3) {
        const float f = ae_glu_of(a.glu, x, a.limit);
        return x2 != 0ul ? f * ae_glu_times(a.glu, F32(x2).v[i], a.glu == 11 ? a.up_limit : a.limit) : f;
    }
    if (a.kind == 4) return x * ae_glu_of(a.glu, F32(x2).v[i / a.group], a.limit);
    if (a.kind == 6) {
        if (x > 0.0) return ae_fma(a.a * x, x, a.c * x);
        return ae_fma(a.b, (ae_expf(ae_minf(x, a.d)) - 1.0) - x, a.c * x);
    }
    if (a.kind == 5) {
        const float least = x < a.a ? x : a.a;
        return least > -a.a ? least : -a.a;
    }
    if (a.kind == 7) return x * F32(x2).v[i];
    if (a.kind == 8) {
        const float most = x > a.limit ? x : a.limit;
        return most < a.a ? most : a.a;
    }
    if (a.kind == 9 || a.kind == 10) {
        float by = a.weight != 0ul ? F32(a.weight).v[i] : 0.0;
        if (a.kind == 10) by = a.weight != 0ul ? x + by : x;
        return ae_fma(F32(x2).v[i % a.group], by, F32(x3).v[i % a.group]);
    }
    if (a.kind == 11) return ae_fma(ae_div(1.0, 1.0 + ae_expf(-F32(x2).v[i])), F32(x3).v[i] - x, x);
    return 0.0;
}

void map_rows(MapArgs a)
{
    F32 x = F32(a.x + uint64_t(BLOCK_X) * a.x_stride * 4ul);
    const uint64_t x2 = a.x2 != 0ul ? a.x2 + uint64_t(BLOCK_X) * a.x2_stride * 4ul : 0ul;
    const uint64_t x3 = a.x3 != 0ul ? a.x3 + uint64_t(BLOCK_X) * a.x2_stride * 4ul : 0ul;
    const uint begin = BLOCK_Y * MAP_BLOCK, end = min(begin + MAP_BLOCK, a.dim);
    for (uint i = begin + THREAD; i < end; i += 256) x.v[i] = map_of(a, x.v[i], x2, x3, i);
}

/* The sum is one chain, which every thread walks. */
void softmax_row(uint64_t x, uint n)
{
    float top = -AE_INFINITY, sum = 0.0;
    for (uint i = 0; i < n; i++) top = F32(x).v[i] > top ? F32(x).v[i] : top;
    for (uint i = 0; i < n; i++) sum = sum + ae_expf(F32(x).v[i] - top);
    barrier(); /* all have been read */
    for (uint i = THREAD; i < n; i += 256) F32(x).v[i] = ae_div(ae_expf(F32(x).v[i] - top), sum);
}

/* Maps that need sums over a row, a row for each work-group; x is read by other threads before the barriers alone. */
void map_whole_row(MapArgs a)
{
    const uint64_t x = a.x + uint64_t(BLOCK_X) * a.x_stride * 4ul, like = a.x2 + uint64_t(BLOCK_X) * a.x2_stride * 4ul;
    const float n = float(a.dim);
    if (a.kind == 14) {
        softmax_row(x, a.dim);
        return;
    }
    if (a.kind == 12) {
        const float mean = ae_div(sum_group(x, a.dim, 0.0, false), n);
        const float cut = ae_fma(a.a, ae_sqrt(ae_div(sum_group(x, a.dim, mean, true), n)), mean);
        for (uint i = THREAD; i < a.dim; i += 256) {
            const float over = F32(x).v[i] - cut;
            F32(x).v[i] = over > 0.0 ? over : 0.0;
        }
        return;
    }
    const float wanted = ae_div(sum_group(like, a.dim, 0.0, true), n), has = ae_div(sum_group(x, a.dim, 0.0, true), n);
    const float f = ae_div(ae_sqrt(wanted), ae_sqrt(has > a.a ? has : a.a));
    for (uint i = THREAD; i < a.dim; i += 256) F32(x).v[i] = F32(x).v[i] * f;
}

#define MAX_STREAMS 8u /* AE_MAX_STREAMS */

void mix(MixArgs a)
{
    const uint64_t r = uint64_t(BLOCK_X);
    F32 coef = F32(a.coef + r * a.coef_stride * 4ul);
    const uint begin = BLOCK_Y * MAP_BLOCK, end = min(begin + MAP_BLOCK, a.dim);
    for (uint i = begin + THREAD; i < end; i += 256) {
        const uint64_t x = a.x + (r * a.x_stride + i) * 4ul, start = a.start + (r * a.start_stride + i) * 4ul;
        float sum[MAX_STREAMS]; /* all of them first: y may be x or start */
        [[unroll]] for (uint t = 0; t < MAX_STREAMS; t++) {
            if (t >= a.n_out) continue;
            sum[t] = a.start != 0ul ? F32(start + t * a.start_step * 4ul).v[0] : 0.0;
            for (uint s = 0; s < a.n_in; s++)
                sum[t] = ae_fma(coef.v[t * a.out_step + s * a.in_step], F32(x + s * a.x_step * 4ul).v[0], sum[t]);
        }
        [[unroll]] for (uint t = 0; t < MAX_STREAMS; t++)
            if (t < a.n_out) F32(a.y + (r * a.y_stride + t * a.y_step + i) * 4ul).v[0] = sum[t];
    }
}

/* ---- Copies ----------------------------------------------------------------------------------------- */

void copy_one(CopyArgs a)
{
    const uint i = BLOCK_X * 256 + THREAD, row = i / a.dim, column = i % a.dim;
    if (row >= a.n) return;
    const uint from = KIND == 5 ? uint(a.host_rows[row]) : a.rows != 0ul ? uint(I32(a.rows).v[row]) : row;
    const uint to = a.to != 0ul ? uint(I32(a.to).v[row]) : row;
    const uint64_t x = uint64_t(from) * a.x_stride + column, y = uint64_t(to) * a.y_stride + column;
    if (a.wide != 0) U32x4(a.y + y * 16ul).v[0] = U32x4(a.x + x * 16ul).v[0];
    else U32(a.y + y * 4ul).v[0] = U32(a.x + x * 4ul).v[0];
}

void main()
{
    if (KIND == 0) {
        for (uint i = 0; i < SIZE; i++) norm(NormArgs(push.args), BLOCK_X * SIZE + i);
    } else if (KIND == 1) norm(NormArgs(push.args), BLOCK_X);
    else if (KIND == 2) axpy(AxpyArgs(push.args));
    else if (KIND == 3) map_rows(MapArgs(push.args));
    else if (KIND == 6) map_whole_row(MapArgs(push.args));
    else if (KIND == 7) mix(MixArgs(push.args));
    else copy_one(CopyArgs(push.args));
}

/* rows.cu - norms, element-wise maps and copies of rows. The arithmetic and its order are those of cpu/ref/rows.c. */
#include "backend/arithmetic.h"
#include "backend/gpu/kernels/args_rows.h"
#include "backend/gpu/kernels/kernel.h"
#include "backend/gpu/kernels/sums.h"

static_assert(AE_SUM_SHARED == AE_GPU_NORM_SHARED, "the host gives norm_rows what its sums need");

/* ---- Norms ----------------------------------------------------------------------------------------- */

/* The RMS norm is the layer norm with a mean of 0, which changes no bit of x - mean. */
AE_DEV void write_norm(const ae_gpu_norm_args *a, float *x, const float *weight, float mean, float inv, uint32_t first,
                       uint32_t step)
{
    for (uint32_t k = first; k < a->dim; k += step) {
        const float z = (x[k] - mean) * inv * weight[k];
        x[k] = a->bias ? z + a->bias[k] : z;
    }
}

AE_KERNEL(norm_groups, ae_gpu_norm_args, 128)
{
    const uint32_t lane = ae_thread() % 32, i = ae_block_x() * AE_GPU_NORM_GROUPS + ae_thread() / 32;
    const uint32_t r = i / a.n_groups, g = i % a.n_groups;
    if (r >= a.n_rows) return;
    float *x = a.x + (size_t)r * a.x_stride + (size_t)g * a.dim;
    const float *weight = a.weight + (a.each_group ? (size_t)g * a.dim : 0);
    const float mean = a.layer ? ae_warp_sum(x, a.dim, 0, false, lane) / (float)a.dim : 0;
    const float inv = 1.0f / sqrtf(ae_warp_sum(x, a.dim, mean, true, lane) / (float)a.dim + a.eps);
    write_norm(&a, x, weight, mean, inv, lane, 32);
}

AE_KERNEL(norm_rows, ae_gpu_norm_args, 256)
{
    AE_SHARED(shared);
    float *room = (float *)shared;
    const uint32_t r = ae_block_x() / a.n_groups, g = ae_block_x() % a.n_groups;
    float *x = a.x + (size_t)r * a.x_stride + (size_t)g * a.dim;
    const float *weight = a.weight + (a.each_group ? (size_t)g * a.dim : 0);
    const float mean = a.layer ? ae_block_sum(x, a.dim, 0, false, room) / (float)a.dim : 0;
    const float inv = 1.0f / sqrtf(ae_block_sum(x, a.dim, mean, true, room) / (float)a.dim + a.eps);
    write_norm(&a, x, weight, mean, inv, ae_thread(), AE_SUM_THREADS);
}

/* ---- Maps -------------------------------------------------------------------------------------------- */

AE_KERNEL(axpy_rows, ae_gpu_axpy_args, 256)
{
    const float *x = a.x + (size_t)ae_block_x() * a.x_stride;
    float *y = a.y + (size_t)ae_block_x() * a.y_stride;
    const uint32_t begin = ae_block_y() * AE_GPU_MAP_BLOCK, end = ae_min(begin + AE_GPU_MAP_BLOCK, a.dim);
    for (uint32_t i = begin + ae_thread(); i < end; i += 256) y[i] = ae_fma(a.a, x[i], y[i]);
}

/* x3: NULL, or the row of it. */
AE_DEV float map_of(const ae_gpu_map_args *a, float x, const float *x2, const float *x3, uint32_t i)
{
    switch (a->kind) {
    case AE_MAP_SCALE: return x * a->a;
    case AE_MAP_SOFTCAP: return ae_softcapf(x, a->a);
    case AE_MAP_CLAMP: return ae_maxf(ae_minf(x, a->a), -a->a);
    case AE_MAP_GATE: return x * ae_glu_of((ae_glu)a->glu, x2[i / a->group], a->limit);
    case AE_MAP_XIELU: return ae_xieluf(x, a->a, a->b, a->c, a->d);
    case AE_MAP_TIMES: return x * x2[i];
    case AE_MAP_LERP: return ae_fma(x2[i % a->group], a->weight[i], x3[i % a->group]);
    case AE_MAP_LERP_BY: return ae_fma(x2[i % a->group], a->weight ? x + a->weight[i] : x, x3[i % a->group]);
    case AE_MAP_BLEND: return ae_fma(1.0f / (1.0f + ae_expf(-x2[i])), x3[i] - x, x);
    case AE_MAP_BETWEEN: return ae_minf(ae_maxf(x, a->limit), a->a);
    case AE_MAP_GLU: {
        const float f = ae_glu_of((ae_glu)a->glu, x, a->limit);
        return x2 ? f * ae_glu_times((ae_glu)a->glu, x2[i], a->glu == AE_GLU_SITU ? a->up_limit : a->limit) : f;
    }
    default: return 0; /* AE_MAP_ZERO */
    }
}

AE_KERNEL(map_rows, ae_gpu_map_args, 256)
{
    float *x = a.x + (size_t)ae_block_x() * a.x_stride;
    const float *x2 = a.x2 ? a.x2 + (size_t)ae_block_x() * a.x2_stride : NULL;
    const float *x3 = a.x3 ? a.x3 + (size_t)ae_block_x() * a.x2_stride : NULL;
    const uint32_t begin = ae_block_y() * AE_GPU_MAP_BLOCK, end = ae_min(begin + AE_GPU_MAP_BLOCK, a.dim);
    for (uint32_t i = begin + ae_thread(); i < end; i += 256) x[i] = map_of(&a, x[i], x2, x3, i);
}

/* The sum is one chain, which every thread walks. */
AE_DEV void softmax_row(float *x, uint32_t n, uint8_t *shared)
{
    float top = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
    for (uint32_t i = ae_thread(); i < n; i += 256) AE_STORE_SHARED(float, shared + i * 4, ae_expf(x[i] - top));
    ae_sync();
    for (uint32_t i = 0; i < n; i++) sum += AE_LOAD_SHARED(float, shared + i * 4);
    for (uint32_t i = ae_thread(); i < n; i += 256) x[i] = AE_LOAD_SHARED(float, shared + i * 4) / sum;
}

/* Maps that need sums over a row, a row for each block. Thread k % 256 alone reads and writes x[k]. */
AE_KERNEL(map_whole_rows, ae_gpu_map_args, 256)
{
    AE_SHARED(shared);
    float *room = (float *)shared, *x = a.x + (size_t)ae_block_x() * a.x_stride;
    const float n = (float)a.dim;
    if (a.kind == AE_MAP_SOFTMAX) {
        softmax_row(x, a.dim, shared);
        return;
    }
    if (a.kind == AE_MAP_CUTOFF) {
        const float mean = ae_block_sum(x, a.dim, 0, false, room) / n;
        const float cut = ae_fma(a.a, sqrtf(ae_block_sum(x, a.dim, mean, true, room) / n), mean);
        for (uint32_t i = ae_thread(); i < a.dim; i += 256) x[i] = ae_maxf(x[i] - cut, 0.0f);
        return;
    }
    const float like = ae_block_sum(a.x2 + (size_t)ae_block_x() * a.x2_stride, a.dim, 0, true, room) / n;
    const float own = ae_block_sum(x, a.dim, 0, true, room) / n;
    const float f = sqrtf(like) / sqrtf(ae_maxf(own, a.a));
    for (uint32_t i = ae_thread(); i < a.dim; i += 256) x[i] = x[i] * f;
}

AE_KERNEL(mix_rows, ae_gpu_mix_args, 256)
{
    const size_t r = ae_block_x();
    const float *coef = a.coef + r * a.coef_stride;
    const uint32_t begin = ae_block_y() * AE_GPU_MAP_BLOCK, end = ae_min(begin + AE_GPU_MAP_BLOCK, a.dim);
    for (uint32_t i = begin + ae_thread(); i < end; i += 256) {
        const float *x = a.x + r * a.x_stride + i, *start = a.start ? a.start + r * a.start_stride + i : NULL;
        float sum[AE_MAX_STREAMS]; /* all of them first: y may be x or start */
        AE_UNROLL
        for (uint32_t t = 0; t < AE_MAX_STREAMS; t++) {
            if (t >= a.n_out) break;
            sum[t] = start ? start[t * a.start_step] : 0.0f;
            for (uint32_t s = 0; s < a.n_in; s++)
                sum[t] = ae_fma(coef[t * a.out_step + s * a.in_step], x[s * a.x_step], sum[t]);
        }
        AE_UNROLL
        for (uint32_t t = 0; t < AE_MAX_STREAMS; t++) {
            if (t >= a.n_out) break;
            a.y[r * a.y_stride + t * a.y_step + i] = sum[t];
        }
    }
}

/* ---- Copies ------------------------------------------------------------------------------------------ */

/* Element i of all copied rows, from row `from` of x. */
AE_DEV void copy_one(const ae_gpu_copy_args *a, uint32_t row, uint32_t from, uint32_t column)
{
    const size_t x = (size_t)from * a->x_stride + column;
    const size_t y = (size_t)(a->to ? (uint32_t)a->to[row] : row) * a->y_stride + column;
    if (a->wide) ((uint4 *)a->y)[y] = ae_load16((const uint4 *)a->x + x);
    else a->y[y] = a->x[x];
}

AE_KERNEL(copy_rows, ae_gpu_copy_args, 256)
{
    const uint32_t i = ae_block_x() * 256 + ae_thread(), row = i / a.dim;
    if (row < a.n) copy_one(&a, row, a.rows ? (uint32_t)a.rows[row] : row, i % a.dim);
}

AE_KERNEL(copy_host_rows, ae_gpu_copy_host_args, 256)
{
    const uint32_t i = ae_block_x() * 256 + ae_thread(), row = i / a.copy.dim;
    if (row < a.copy.n) copy_one(&a.copy, row, (uint32_t)a.rows[row], i % a.copy.dim);
}

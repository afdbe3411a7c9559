/* rows.c - norms, element-wise maps and copies of rows on the device: launches of kernels/rows.cu.
 * Owns nothing. */
#include "base/mem.h"

#include "backend/gpu/gpu.h"

static uint32_t blocks_of(size_t n, uint32_t block)
{
    return (uint32_t)((n + block - 1) / block);
}

void ae_gpu_norm(ae_stream *stream, const ae_norm *a)
{
    const ae_gpu_norm_args args = {.x = a->x, .weight = a->weight, .bias = a->layer ? a->bias : NULL,
                                   .x_stride = (uint32_t)a->x_stride, .n_rows = a->n_rows, .n_groups = a->n_groups,
                                   .dim = a->dim, .each_group = a->each_group, .layer = a->layer, .eps = a->eps};
    const size_t n = (size_t)a->n_rows * a->n_groups;
    if (a->dim <= AE_GPU_NORM_WARP)
        ae_gpu_launch(stream, AE_GPU_norm_groups, blocks_of(n, AE_GPU_NORM_GROUPS), 1, 1, 0, &args);
    else ae_gpu_launch(stream, AE_GPU_norm_rows, (uint32_t)n, 1, 1, AE_GPU_NORM_SHARED, &args);
}

void ae_gpu_axpy(ae_stream *stream, const ae_axpy *a)
{
    ae_gpu_launch(stream, AE_GPU_axpy_rows, a->n, blocks_of(a->dim, AE_GPU_MAP_BLOCK), 1, 0,
                  &(ae_gpu_axpy_args){.x = a->x, .y = a->y, .x_stride = (uint32_t)a->x_stride,
                                      .y_stride = (uint32_t)a->y_stride, .dim = a->dim, .a = a->a});
}

void ae_gpu_map(ae_stream *stream, const ae_map *a)
{
    const bool whole = a->kind == AE_MAP_CUTOFF || a->kind == AE_MAP_MATCH || a->kind == AE_MAP_SOFTMAX;
    const bool parts = a->kind == AE_MAP_GATE || a->kind == AE_MAP_LERP || a->kind == AE_MAP_LERP_BY;
    const ae_gpu_map_args args = {.x = a->x, .x2 = a->x2, .x3 = a->x3, .weight = a->weight, .x_stride = (uint32_t)a->x_stride,
                                  .x2_stride = (uint32_t)a->x2_stride, .dim = a->dim, .kind = a->kind, .glu = a->glu,
                                  .group = parts ? a->dim / a->n_groups : 1, .a = a->a, .b = a->b, .c = a->c, .d = a->d,
                                  .limit = a->glu_limit, .up_limit = a->up_limit};
    if (a->kind == AE_MAP_SOFTMAX && a->dim > AE_GPU_SOFTMAX_DIM) ae_gpu_decline(stream, "sums of this many rows");
    else if (whole) ae_gpu_launch(stream, AE_GPU_map_whole_rows, a->n_rows, 1, 1, AE_GPU_NORM_SHARED, &args);
    else ae_gpu_launch(stream, AE_GPU_map_rows, a->n_rows, blocks_of(a->dim, AE_GPU_MAP_BLOCK), 1, 0, &args);
}

void ae_gpu_hyper(ae_stream *stream, const ae_hyper *a)
{
    ae_gpu_launch(stream, AE_GPU_hyper_rows, a->n_rows, 1, 1, AE_GPU_HYPER_SHARED,
                  &(ae_gpu_hyper_args){.x = a->x, .scale = a->scale, .base = a->base, .x_stride = a->x_stride, .n = a->n,
                                       .n_iterations = a->n_iterations, .eps = a->eps, .magnitude = a->magnitude});
}

void ae_gpu_accord(ae_stream *stream, const ae_accord *a)
{
    ae_gpu_launch(stream, AE_GPU_accord_parts, a->n_rows, a->n_parts, 1, 0,
                  &(ae_gpu_accord_args){.x = a->x, .x2 = a->x2, .y = a->y, .y_stride = a->y_stride, .n_parts = a->n_parts,
                                        .dim = a->dim, .scale = a->scale});
}

void ae_gpu_mix(ae_stream *stream, const ae_row_mix *a)
{
    const ae_gpu_mix_args args = {.x = a->x, .start = a->start, .coef = a->coef, .y = a->y, .x_stride = a->x_stride,
                                  .x_step = a->x_step, .start_stride = a->start_stride, .start_step = a->start_step,
                                  .coef_stride = a->coef_stride, .y_stride = a->y_stride, .y_step = a->y_step, .dim = a->dim,
                                  .n_in = a->n_in, .n_out = a->n_out, .out_step = a->out_step, .in_step = a->in_step};
    ae_gpu_launch(stream, AE_GPU_mix_rows, a->n_rows, blocks_of(a->dim, AE_GPU_MAP_BLOCK), 1, 0, &args);
}

/* Returns whether the rows can be copied in groups of four floats, which are 16-byte aligned. */
static bool is_wide(const ae_copy *a)
{
    return !(a->dim % 4 || a->x_stride % 4 || a->y_stride % 4 || (uintptr_t)a->x % 16 || (uintptr_t)a->y % 16);
}

static void copy_host_rows(ae_stream *stream, const ae_copy *a, ae_gpu_copy_args copy, uint32_t unit)
{
    for (uint32_t first = 0; first < a->n; first += AE_GPU_COPY_ROWS) {
        ae_gpu_copy_host_args args = {.copy = copy};
        args.copy.n = a->n - first < AE_GPU_COPY_ROWS ? a->n - first : AE_GPU_COPY_ROWS;
        args.copy.y = a->to ? a->y : a->y + first * a->y_stride;
        args.copy.to = a->to ? a->to + first : NULL;
        for (uint32_t i = 0; i < args.copy.n; i++) args.rows[i] = a->host_rows[first + i];
        ae_gpu_launch(stream, AE_GPU_copy_host_rows, blocks_of((size_t)args.copy.n * a->dim / unit, 256), 1, 1, 0, &args);
    }
}

void ae_gpu_copy(ae_stream *stream, const ae_copy *a)
{
    const uint32_t unit = is_wide(a) ? 4 : 1;
    const ae_gpu_copy_args args = {.x = a->x, .y = a->y, .rows = a->rows, .to = a->to,
                                   .x_stride = (uint32_t)a->x_stride / unit,
                                   .y_stride = (uint32_t)a->y_stride / unit, .n = a->n, .dim = a->dim / unit,
                                   .wide = unit == 4};
    if (!a->rows && a->host_rows) copy_host_rows(stream, a, args, unit);
    else ae_gpu_launch(stream, AE_GPU_copy_rows, blocks_of((size_t)a->n * a->dim / unit, 256), 1, 1, 0, &args);
}

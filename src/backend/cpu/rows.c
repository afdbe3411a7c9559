/* rows.c - operations on rows between products: lookups, copies, norms, rotations, element-wise functions. Owns nothing. */
#include <math.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/ref/ref.h"
#include "base/mem.h"
#include "base/os.h"

void ae_cpu_lookup(ae_stream *stream, const ae_weight *table, const int32_t *tokens, uint32_t n_rows, float *y,
                   size_t y_stride)
{
    ae_decode_fn *decode = ae_type_get(table->type)->decode;
    for (uint32_t r = 0; r < n_rows; r++) {
        if ((uint32_t)tokens[r] >= table->n_out) {
            ae_backend_note(&stream->fault, AERIE_ERROR_INTERNAL, "lookup of %u rows: token %d of row %u is none of %u; please "
                            "report",
                            n_rows, tokens[r], r, table->n_out);
            return;
        }
        decode(table->plain + (size_t)tokens[r] * table->row_bytes, y + r * y_stride, table->n_in);
        for (uint32_t i = 0; table->has_row_scale && i < table->n_in; i++) y[r * y_stride + i] *= table->row_scale;
    }
}

void ae_cpu_copy(ae_stream *stream, const ae_copy *a)
{
    const int32_t *rows = a->rows ? a->rows : a->host_rows;
    (void)stream;
    for (uint32_t i = 0; i < a->n; i++)
        memcpy(a->y + (a->to ? (size_t)a->to[i] : i) * a->y_stride, a->x + (rows ? (size_t)rows[i] : i) * a->x_stride,
               a->dim * sizeof(float));
}

/* Runs a job over rows, on all threads if there are enough rows. */
typedef struct rows_job {
    const ae_kernels *kernels;
    const void *args;
} rows_job;

static void run_rows(ae_stream *stream, ae_pool_job *item, const void *args, uint32_t n)
{
    rows_job job = {&stream->backend->kernels, args};
    if (n > 4) ae_pool_run(stream->pool, item, &job, n);
    else for (uint32_t r = 0; r < n; r++) item(&job, r, 0);
}

static void norm_item(void *context, uint32_t r, uint32_t i_worker)
{
    const rows_job *job = context;
    const ae_norm *a = job->args;
    (void)i_worker;
    for (uint32_t g = 0; g < a->n_groups; g++) {
        float *x = a->x + r * a->x_stride + (size_t)g * a->dim;
        const float *weight = a->weight + (a->each_group ? (size_t)g * a->dim : 0);
        if (a->layer) job->kernels->layernorm(x, weight, a->bias, a->eps, a->dim, x);
        else job->kernels->rmsnorm(x, weight, a->eps, a->dim, x);
    }
}

void ae_cpu_norm(ae_stream *stream, const ae_norm *args)
{
    run_rows(stream, norm_item, args, args->n_rows);
}

static void axpy_item(void *context, uint32_t r, uint32_t i_worker)
{
    const rows_job *job = context;
    const ae_axpy *a = job->args;
    (void)i_worker;
    job->kernels->axpy(a->a, a->x + r * a->x_stride, a->dim, a->y + r * a->y_stride);
}

void ae_cpu_axpy(ae_stream *stream, const ae_axpy *args)
{
    run_rows(stream, axpy_item, args, args->n);
}

/* Applies x2 and x3 to each part of x. */
static void lerp_parts(const ae_kernels *kernels, const ae_map *a, float *x, const float *x2, const float *x3)
{
    const uint32_t n = a->dim / a->n_groups;
    for (uint32_t g = 0; g < a->n_groups; g++)
        kernels->lerp(x2, a->weight ? a->weight + (size_t)g * n : NULL, a->kind == AE_MAP_LERP_BY, x3, n, x + (size_t)g * n);
}

static void softmax(float *x, uint32_t n)
{
    float top = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
    for (uint32_t i = 0; i < n; i++) x[i] = ae_expf(x[i] - top), sum += x[i];
    for (uint32_t i = 0; i < n; i++) x[i] /= sum;
}

/* In place: a block is written where those before it were read. */
static void to_blocks_32(const ae_kernels *k, float *x, uint32_t n)
{
    _Alignas(64) int8_t q[32];
    for (uint32_t b = 0; b < n / 32; b++) {
        float d, s, *to = x + ae_block_floats(32 * b, 32);
        int32_t sum;
        k->quant32(x + 32 * b, 32, q, &d, &sum, &s);
        memcpy(to, q, sizeof q);
        to[8] = d;
    }
}

static void to_blocks_256(const ae_kernels *k, float *x, uint32_t n)
{
    _Alignas(64) int8_t q[256];
    _Alignas(64) int16_t sums[16];
    for (uint32_t b = 0; b < n / 256; b++) {
        float d, *to = x + ae_block_floats(256 * b, 256);
        k->quant256(x + 256 * b, 256, q, &d, sums);
        memcpy(to, q, sizeof q);
        to[64] = d;
    }
}

static void map_item(void *context, uint32_t r, uint32_t i_worker)
{
    const rows_job *job = context;
    const ae_map *a = job->args;
    float *x = a->x + r * a->x_stride;
    const float *x2 = a->x2 ? a->x2 + r * a->x2_stride : NULL, *x3 = a->x3 ? a->x3 + r * a->x2_stride : NULL;
    (void)i_worker;
    switch (a->kind) {
    case AE_MAP_ZERO: memset(x, 0, a->dim * sizeof *x); break;
    case AE_MAP_BLOCKS_32: to_blocks_32(job->kernels, x, a->dim); break;
    case AE_MAP_BLOCKS_256: to_blocks_256(job->kernels, x, a->dim); break;
    case AE_MAP_SCALE:
        for (uint32_t i = 0; i < a->dim; i++) x[i] *= a->a;
        break;
    case AE_MAP_SOFTCAP: job->kernels->softcap(x, a->a, a->dim, x); break;
    case AE_MAP_GLU: job->kernels->glu[a->glu](x, x2, a->glu_limit, a->up_limit, a->dim, x); break;
    case AE_MAP_CLAMP:
        for (uint32_t i = 0; i < a->dim; i++) x[i] = ae_maxf(ae_minf(x[i], a->a), -a->a);
        break;
    case AE_MAP_XIELU:
        for (uint32_t i = 0; i < a->dim; i++) x[i] = ae_xieluf(x[i], a->a, a->b, a->c, a->d);
        break;
    case AE_MAP_TIMES:
        for (uint32_t i = 0; i < a->dim; i++) x[i] *= x2[i];
        break;
    case AE_MAP_BETWEEN:
        for (uint32_t i = 0; i < a->dim; i++) x[i] = ae_minf(ae_maxf(x[i], a->glu_limit), a->a);
        break;
    case AE_MAP_LERP:
    case AE_MAP_LERP_BY: lerp_parts(job->kernels, a, x, x2, x3); break;
    case AE_MAP_BLEND: job->kernels->blend(x2, x3, a->dim, x); break;
    case AE_MAP_CUTOFF: job->kernels->cutoff(a->a, a->dim, x); break;
    case AE_MAP_SOFTMAX: softmax(x, a->dim); break;
    case AE_MAP_MATCH: job->kernels->match(x2, a->a, a->dim, x); break;
    case AE_MAP_GATE:
        for (uint32_t g = 0, n = a->dim / a->n_groups; g < a->n_groups; g++) {
            const float gate = ae_glu_of(a->glu, x2[g], a->glu_limit);
            for (uint32_t i = g * n; i < (g + 1) * n; i++) x[i] *= gate;
        }
        break;
    }
}

void ae_cpu_map(ae_stream *stream, const ae_map *args)
{
    run_rows(stream, map_item, args, args->n_rows);
}

static void mix_item(void *context, uint32_t r, uint32_t i_worker)
{
    const rows_job *job = context;
    (void)i_worker;
    job->kernels->mix(job->args, r);
}

void ae_cpu_mix(ae_stream *stream, const ae_row_mix *args)
{
    run_rows(stream, mix_item, args, args->n_rows);
}

static void hyper_item(void *context, uint32_t r, uint32_t i_worker)
{
    const rows_job *job = context;
    (void)i_worker;
    ae_ref_hyper(job->args, r);
}

static void accord_item(void *context, uint32_t r, uint32_t i_worker)
{
    const rows_job *job = context;
    (void)i_worker;
    ae_ref_accord(job->args, r);
}

void ae_cpu_accord(ae_stream *stream, const ae_accord *args)
{
    run_rows(stream, accord_item, args, args->n_rows);
}

void ae_cpu_hyper(ae_stream *stream, const ae_hyper *args)
{
    run_rows(stream, hyper_item, args, args->n_rows);
}

static void rotate_item(void *context, uint32_t r, uint32_t i_worker)
{
    const rows_job *job = context;
    const ae_rotate *a = job->args;
    const uint32_t half = a->n_rot / 2;
    const float *sin = a->sin + (size_t)r * half;
    float back[AE_MAX_HEAD_DIM / 2];
    (void)i_worker;
    for (uint32_t i = 0; a->back && i < half; i++) back[i] = -sin[i];
    job->kernels->rope(a->x + (size_t)r * a->n_heads * a->head_dim + a->first, a->n_heads, a->head_dim, a->n_rot, a->kind,
                       a->cos + (size_t)r * half, a->back ? back : sin);
}

void ae_cpu_rotate(ae_stream *stream, const ae_rotate *args)
{
    run_rows(stream, rotate_item, args, args->n_rows);
}

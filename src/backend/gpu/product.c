/* product.c - matrix products and lookups of the GPU backends.
 * Rows are prepared once for all weights that read them (activation.cu), in each form that one of these needs. Then the kernels
 * of each form multiply; weights of one form share a launch. Owns nothing: works in the stream's scratch. */
#include <string.h>

#include "backend/gpu/product_int.h"
#include "backend/gpu/weight_mma.h"
#include "quant/types.h"

#define MANY_GROUPS 4096 /* without a norm, from this many groups of 256 columns on, each group is prepared by its own block */
#define MOST_BLOCKS 1024 /* most blocks of a preparation with norm: with more, each block would mostly repeat the sums of the
                          * norm */

/* ---- Scratch ------------------------------------------------------------------------------------ */

void ae_gpu_rows_layout(ae_layout *layout, size_t n_rows, size_t max_in, ae_gpu_rows *rows)
{
    const size_t units = (max_in + 255) / 256, tiles = ceil_div(n_rows, AE_GPU_TILE);
    rows->x = ae_layout_add(layout, tiles * AE_GPU_TILE * units * 256, sizeof(float));
    rows->r32 = ae_layout_add(layout, (tiles + AE_GPU_SPARE_TILES) * units * 4, AE_MMA_RECORD);
    rows->r256 = ae_layout_add(layout, (tiles + AE_GPU_SPARE_TILES) * units, AE_MMA_RECORD_256);
    rows->b16 = ae_layout_add(layout, tiles * AE_GPU_TILE * units * 16, sizeof(int16_t));
}

void ae_gpu_product_layout(ae_layout *layout, const ae_gpu_backend *backend, const ae_stream_options *options,
                           ae_gpu_product_scratch *scratch)
{
    (void)backend;
    scratch->max_in = ceil_div(options->max_in, 256) * 256;
    scratch->tiles = ceil_div(ae_stream_product_rows(options), AE_GPU_TILE);
    ae_gpu_rows_layout(layout, ae_stream_product_rows(options), options->max_in, &scratch->rows);
    ae_gpu_moe_layout(layout, options, scratch);
}

/* ---- Preparing rows ----------------------------------------------------------------------------- */

static bool is_norm(const ae_matmul *a)
{
    return a->input == AE_INPUT_RMSNORM || a->input == AE_INPUT_LAYERNORM;
}

/* Returns the columns that a block prepares: few if there are few rows, because then latency counts. */
static uint32_t columns_of(const ae_matmul *a, uint32_t n_in, uint32_t n_rows, uint32_t n_heads)
{
    const size_t groups = ceil_div(n_in, 256), rows = (size_t)n_rows * n_heads, all = groups * rows;
    if (!is_norm(a)) return all >= 4 * MANY_GROUPS ? 1024 : all >= 2 * MANY_GROUPS ? 512 : 256;
    const size_t most = rows < MOST_BLOCKS ? MOST_BLOCKS / rows : 1, pieces = groups < most ? groups : most;
    return ceil_div(groups, pieces) * 256;
}

void ae_gpu_prepare(ae_stream *stream, const ae_gpu_preparation *p, const ae_gpu_rows *rows)
{
    const ae_matmul *a = p->input;
    const uint32_t n_in = rows->n_in, staged = is_norm(a) && n_in <= AE_GPU_ACTIVATION_STAGED;
    const uint32_t n_heads = p->n_heads ? p->n_heads : 1;
    const ae_gpu_activation_args args = {
        .out = *rows, .want = p->want, .input = a->input, .glu = a->glu, .columns = columns_of(a, n_in, a->n_rows, n_heads),
        .staged = staged, .head_rows = ceil_div(a->n_rows, AE_GPU_TILE) * AE_GPU_TILE, .norm_eps = a->norm_eps,
        .glu_limit = a->glu_limit, .x = a->x, .x2 = a->x2, .x_stride = a->x_stride, .x_step = p->x_step, .norm = a->norm,
        .norm_bias = a->norm_bias, .slots = p->slots, .shares = p->shares, .factor = p->factor, .up_limit = a->up_limit,
    };
    ae_gpu_launch(stream, AE_GPU_activation, a->n_rows, ceil_div(n_in, args.columns), n_heads,
                  AE_GPU_ACTIVATION_SHARED(staged ? n_in : 0), &args);
}

/* Returns whether float weights can read the input in place: it is aligned, and no result overwrites it. */
static bool reads_in_place(const ae_matmul *a, uint32_t n_in)
{
    const uintptr_t begin = (uintptr_t)a->x, end = begin + ((size_t)(a->n_rows - 1) * a->x_stride + n_in) * sizeof(float);
    if (a->input != AE_INPUT_PLAIN || begin % 16 || a->x_stride % 4 || n_in % 4 || a->x_stride > UINT32_MAX) return false;
    for (uint32_t i = 0; i < a->n_weights; i++) {
        const uintptr_t y = (uintptr_t)a->out[i].y;
        const size_t n = (size_t)(a->n_rows - 1) * a->out[i].y_stride + a->out[i].weight->n_out;
        if (y < end && begin < y + n * sizeof(float)) return false;
    }
    return true;
}

/* ---- Multiplying -------------------------------------------------------------------------------- */

/* For each form: its kernels, the chain steps of 1024 k that shared memory holds (integer forms), the bytes of an element. */
static const struct {
    ae_gpu_kernel product, experts, wide, narrow;
    uint32_t n_pairs, size;
} kernels[AE_GPU_FORM_MMA] = {
#define INTEGER(name, n_pairs) {AE_GPU_product_##name, AE_GPU_experts_##name, 0, 0, n_pairs, 0}
#define FLOAT(name, size) \
    {AE_GPU_product_##name, AE_GPU_experts_##name, AE_GPU_product_##name##_wide, AE_GPU_product_##name##_narrow, 0, size}
    [AE_GPU_FORM_32] = INTEGER(32, 32),
    [AE_GPU_FORM_32_MIN] = INTEGER(32_min, 64),
    [AE_GPU_FORM_32_TWO] = INTEGER(32_two, 64),
    [AE_GPU_FORM_256] = INTEGER(256, 4),
    [AE_GPU_FORM_256_MIN] = INTEGER(256_min, 8),
    [AE_GPU_FORM_F32] = FLOAT(f32, 4),
    [AE_GPU_FORM_F16] = FLOAT(f16, 2),
    [AE_GPU_FORM_BF16] = FLOAT(bf16, 2),
#undef INTEGER
#undef FLOAT
};

static ae_gpu_form_kernel float_kernel(ae_gpu_form form, ae_gpu_kernel kernel, int shape)
{
    return (ae_gpu_form_kernel){kernel, (uint32_t)AE_GPU_FLOAT_OUT(shape), AE_GPU_FLOAT_ROWS,
                                (uint32_t)AE_GPU_FLOAT_SHARED(shape, kernels[form].size)};
}

static ae_gpu_form_kernel plain_kernel(ae_gpu_form form, ae_gpu_kernel kernel)
{
    if (kernels[form].size) return float_kernel(form, kernel, AE_GPU_PLAIN);
    return (ae_gpu_form_kernel){kernel, AE_GPU_PRODUCT_OUT, AE_GPU_PRODUCT_ROWS, AE_GPU_PRODUCT_SHARED(kernels[form].n_pairs)};
}

ae_gpu_form_kernel ae_gpu_experts_kernel(ae_gpu_form form)
{
    return plain_kernel(form, kernels[form].experts);
}

static ae_gpu_job job_of(const ae_weight *w, const struct ae_matmul_out *out, uint32_t first_row, uint32_t n_rows)
{
    return (ae_gpu_job){.weight = w->product, .bias = out->bias, .y = out->y, .y_stride = out->y_stride, .type = w->type,
                        .n_out = w->n_out, .first_row = first_row, .n_rows = n_rows, .add = out->add,
                        .has_scale = w->has_scale, .scale = w->scale};
}

/* Assigns block numbers to the jobs. */
static uint32_t place_jobs(ae_gpu_product_args *args, uint32_t n_out)
{
    uint32_t n_blocks = 0;
    for (uint32_t i = 0; i < args->n_jobs; i++) {
        args->job[i].first_block = n_blocks;
        n_blocks += ceil_div(args->job[i].n_out, n_out);
    }
    return n_blocks;
}

/* Returns the kernel for the jobs. With many rows it has large blocks, if every multiprocessor gets two of them; with few rows
 * small ones, unless every multiprocessor gets two of the larger. */
static ae_gpu_form_kernel kernel_of(const ae_gpu_facts *facts, ae_gpu_form form, ae_gpu_product_args *args)
{
    const uint32_t n_rows = args->job[0].n_rows, n_heads = args->n_heads ? args->n_heads : 1;
    const ae_gpu_form_kernel plain = plain_kernel(form, kernels[form].product);
    if (!kernels[form].size) return plain;
    const ae_gpu_form_kernel wide = float_kernel(form, kernels[form].wide, AE_GPU_WIDE);
    const size_t n_wide = (size_t)place_jobs(args, wide.n_out) * ceil_div(n_rows, wide.n_rows) * n_heads;
    if (n_rows > wide.n_rows && n_wide >= 2 * facts->n_multiprocessors && wide.n_shared <= facts->max_shared_bytes) return wide;
    if (n_rows <= plain.n_rows && (size_t)place_jobs(args, plain.n_out) * n_heads < 2 * facts->n_multiprocessors)
        return float_kernel(form, kernels[form].narrow, AE_GPU_NARROW);
    return plain;
}

/* Launches the jobs in args, which have one generic form and one number of rows. */
static void launch(ae_stream *stream, ae_gpu_form form, ae_gpu_product_args *args)
{
    const ae_gpu_form_kernel k = kernel_of(&stream->backend->facts, form, args);
    ae_gpu_launch(stream, k.kernel, place_jobs(args, k.n_out), ceil_div(args->job[0].n_rows, k.n_rows),
                  args->n_heads ? args->n_heads : 1, k.n_shared, args);
}

/* Launches the products of all weights of a form. */
static void multiply_form(ae_stream *stream, const ae_matmul *a, const ae_gpu_rows *rows, ae_gpu_form form)
{
    ae_gpu_product_args args = {.rows = *rows};
    for (uint32_t i = 0; i < a->n_weights; i++)
        if (a->out[i].weight->form == form) args.job[args.n_jobs++] = job_of(a->out[i].weight, &a->out[i], 0, a->n_rows);
    if (form == AE_GPU_FORM_MMA) ae_gpu_mma_run(stream, rows, args.job, args.n_jobs);
    else launch(stream, form, &args);
}

uint32_t ae_gpu_wants(const ae_matmul *args)
{
    uint32_t want = 0;
    for (uint32_t i = 0; i < args->n_weights; i++) want |= ae_gpu_weight_wants(args->out[i].weight);
    return want;
}

ae_gpu_rows ae_gpu_rows_of(const ae_gpu_rows *room, uint32_t n_rows, uint32_t n_in)
{
    ae_gpu_rows rows = *room;
    rows.n_rows = n_rows;
    rows.n_in = n_in;
    rows.x_stride = (n_in + 15) / 16 * 16;
    return rows;
}

void ae_gpu_multiply(ae_stream *stream, const ae_matmul *args, const ae_gpu_rows *rows)
{
    uint32_t done = 0;
    for (uint32_t i = 0; i < args->n_weights; i++) {
        const ae_gpu_form form = args->out[i].weight->form;
        if (!(done >> form & 1)) multiply_form(stream, args, rows, form);
        done |= 1u << form;
    }
}

void ae_gpu_matmul(ae_stream *stream, const ae_matmul *args)
{
    if (!args->n_rows || !args->n_weights) return;
    uint32_t want = ae_gpu_wants(args);
    ae_gpu_rows rows = ae_gpu_rows_of(&stream->product.rows, args->n_rows, args->out[0].weight->n_in);
    if (want & AE_GPU_WANT_X && reads_in_place(args, rows.n_in)) {
        rows.x = (float *)(uintptr_t)args->x;
        rows.x_stride = (uint32_t)args->x_stride;
        want &= ~(uint32_t)AE_GPU_WANT_X;
    }
    if (want) ae_gpu_prepare(stream, &(ae_gpu_preparation){.input = args, .want = want}, &rows);
    ae_gpu_multiply(stream, args, &rows);
}

/* ---- A product for each head -------------------------------------------------------------------- */

/* Multiplies heads [first, first + n), whose rows are prepared one after the other in whole tiles. */
static void multiply_heads(ae_stream *stream, const ae_head_matmul *a, const ae_gpu_rows *rows, uint32_t first, uint32_t n)
{
    const uint32_t head_rows = ceil_div(a->n_rows, AE_GPU_TILE) * AE_GPU_TILE;
    const ae_weight *w = a->weights[first];
    ae_gpu_job jobs[AE_GPU_HEADS];
    ae_gpu_product_args args = {.rows = *rows, .n_jobs = 1, .n_heads = n, .head_rows = head_rows, .y_step = a->y_step};
    for (uint32_t h = 0; h < n; h++) {
        const struct ae_matmul_out out = {a->weights[first + h], NULL, a->y + (first + h) * a->y_step, a->y_stride, false};
        jobs[h] = job_of(a->weights[first + h], &out, h * head_rows, a->n_rows);
        args.heads[h] = a->weights[first + h]->product;
        args.head_scale[h] = a->weights[first + h]->scale;
    }
    if (w->form == AE_GPU_FORM_MMA) {
        ae_gpu_mma_run(stream, rows, jobs, n);
        return;
    }
    args.job[0] = jobs[0];
    launch(stream, w->form, &args);
}

void ae_gpu_head_matmul(ae_stream *stream, const ae_head_matmul *args)
{
    if (!args->n_rows || !args->n_heads) return;
    const ae_weight *w = args->weights[0];
    const uint32_t tiles = ceil_div(args->n_rows, AE_GPU_TILE), n_in = (w->n_in + 255) / 256 * 256;
    const size_t room = (size_t)stream->product.tiles * stream->product.max_in / n_in / tiles;
    const uint32_t most = room < 1 ? 1 : room < AE_GPU_HEADS ? (uint32_t)room : AE_GPU_HEADS;
    for (uint32_t first = 0; first < args->n_heads; first += most) {
        const uint32_t left = args->n_heads - first, n = left < most ? left : most;
        const ae_matmul in = {.n_rows = args->n_rows, .input = AE_INPUT_PLAIN, .x = args->x + first * args->x_step,
                              .x_stride = args->x_stride};
        const ae_gpu_rows rows = ae_gpu_rows_of(&stream->product.rows, n * tiles * AE_GPU_TILE, w->n_in);
        const ae_gpu_preparation p = {.input = &in, .want = ae_gpu_weight_wants(w), .n_heads = n, .x_step = args->x_step};
        ae_gpu_prepare(stream, &p, &rows);
        multiply_heads(stream, args, &rows, first, n);
    }
}

/* ---- Lookup ------------------------------------------------------------------------------------- */

void ae_gpu_lookup(ae_stream *stream, const ae_weight *table, const int32_t *tokens, uint32_t n_rows, float *y,
                   size_t y_stride)
{
    const ae_gpu_lookup_args args = {.table = table->table, .tokens = tokens, .y = y, .y_stride = y_stride,
                                     .form = table->table_form, .n_out = table->n_out, .n_in = table->n_in,
                                     .type = table->type, .row_bytes = (uint32_t)ae_type_row_bytes(table->type, table->n_in),
                                     .has_row_scale = table->has_row_scale, .row_scale = table->row_scale};
    ae_gpu_launch(stream, AE_GPU_lookup, n_rows, ceil_div(table->n_in, AE_GPU_LOOKUP_COLUMNS), 1, 0, &args);
}

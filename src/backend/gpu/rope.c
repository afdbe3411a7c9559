/* rope.c - rotation, writing of keys and values, and compressed rows on the device: launches of kernels/rope.cu and
 * compress.cu.
 * Owns nothing. */
#include <string.h>

#include "backend/gpu/kv.h"

void ae_gpu_rope_table(ae_stream *stream, const ae_rope_table *a)
{
    const uint32_t half = a->n_rot / 2;
    ae_gpu_launch(stream, AE_GPU_rope_angles, (uint32_t)(((size_t)a->n_rows * half + 127) / 128), 1, 1, 0,
                  &(ae_gpu_rope_table_args){.pos = a->pos, .freq = a->freq, .magnitude = a->magnitude, .cos = a->cos,
                                            .sin = a->sin, .n_rows = a->n_rows, .half = half,
                                            .every = a->every > 1 ? a->every : 1});
}

void ae_gpu_rotate(ae_stream *stream, const ae_rotate *a)
{
    const size_t n = (size_t)a->n_heads * (a->n_rot / 2);
    ae_gpu_launch(stream, AE_GPU_rotate_heads, a->n_rows, (uint32_t)((n + 127) / 128), 1, 0,
                  &(ae_gpu_rotate_args){.x = a->x, .cos = a->cos, .sin = a->sin, .n_heads = a->n_heads, .head_dim = a->head_dim,
                                        .first = a->first, .n_rot = a->n_rot, .neox = a->kind == AE_ROPE_NEOX,
                                        .back = a->back});
}

/* Returns the launch arguments for rows of a plain layer, with the place where they are kept. */
static ae_gpu_compress_args kept_args(const ae_places *p, const ae_kv_store *kv, uint32_t layer)
{
    return (ae_gpu_compress_args){
        .kv = ae_gpu_kv_view_of(kv, layer), .seq = p->seq, .pos = p->pos, .slot = p->slot, .n_inplace = p->n_inplace,
        .path = p->path, .tables = p->tables, .n_actual = p->n_actual, .path_stride = p->path_stride,
        .table_stride = p->table_stride, .n_rows = p->n_rows,
    };
}

void ae_gpu_compress(ae_stream *stream, const ae_compress *a)
{
    ae_gpu_compress_args args = kept_args(a->places, a->kv, a->layer);
    args.x = a->x, args.ape = a->ape, args.y = a->y, args.dim = a->dim, args.n_parts = a->n_parts, args.every = a->every;
    args.n_heads = (a->ape ? 2 : 1) * a->n_parts;
    ae_gpu_launch(stream, AE_GPU_keep_rows, args.n_rows, args.n_heads, 1, 0, &args);
    ae_gpu_launch(stream, AE_GPU_compress_rows, args.n_rows, (a->dim + 127) / 128, 1, 0, &args);
}

void ae_gpu_ngrams(ae_stream *stream, const ae_ngrams *a)
{
    ae_gpu_ngrams_args args = {.at = kept_args(a->places, a->kv, a->layer), .tokens = a->tokens, .y = a->y, .end = a->end,
                               .n_tokens = a->n_tokens, .n_each = a->n_each};
    memcpy(args.factors, a->factors, sizeof args.factors);
    memcpy(args.sizes, a->sizes, sizeof args.sizes);
    memcpy(args.offsets, a->offsets, sizeof args.offsets);
    ae_gpu_launch(stream, AE_GPU_keep_tokens, (args.at.n_rows + 127) / 128, 1, 1, 0, &args);
    ae_gpu_launch(stream, AE_GPU_hash_tokens, args.at.n_rows, 1, 1, 0, &args);
}

void ae_gpu_trail(ae_stream *stream, const ae_trail *a)
{
    ae_gpu_compress_args args = kept_args(a->places, a->kv, a->layer);
    args.x = a->x, args.ape = a->weight, args.y = a->y, args.dim = a->dim, args.n_heads = a->n_heads;
    args.n_taps = a->n_taps, args.step = a->step;
    ae_gpu_launch(stream, AE_GPU_keep_rows, args.n_rows, args.n_heads, 1, 0, &args);
    ae_gpu_launch(stream, AE_GPU_trail_rows, args.n_rows, args.n_heads, 1, 0, &args);
}

static uint32_t up16(uint32_t n)
{
    return (n + 15) / 16 * 16;
}

static ae_gpu_rope_kv_args args_of(const ae_rope_kv *a)
{
    const ae_places *p = a->places;
    ae_gpu_rope_kv_args args = {
        .seq = p->seq, .slot = p->slot, .tables = p->tables, .n_actual = p->n_actual, .q = a->q, .k = a->k, .v = a->v,
        .cos = a->cos, .sin = a->sin, .q_norm = a->q_norm, .k_norm = a->k_norm, .v_norm = a->v_norm, .q_scale = a->q_scale,
        .table_stride = p->table_stride, .n_heads = a->n_heads, .n_kv_heads = a->n_kv_heads, .head_dim = a->head_dim,
        .n_rot = a->n_rot, .neox = a->kind == AE_ROPE_NEOX, .norm_layer = a->norm_layer, .norm_last = a->norm_last,
        .store = a->k != NULL, .eps = a->norm_eps, .row_floats = up16(a->head_dim),
    };
    if (a->k) args.kv = ae_gpu_kv_view_of(a->kv, a->layer);
    const ae_gpu_kv_form *f = &args.kv.form;
    if (a->k && !f->value_planes) args.v = NULL; /* the row is both */
    if (a->k && f->n_rope && f->n_scales) args.part_floats = up16(f->head_dim > f->n_rope ? f->head_dim : f->n_rope);
    return args;
}

/* Returns the kernel for a shape; the kernels for common shapes need no shared memory. */
static ae_gpu_kernel kernel_of(const ae_gpu_rope_kv_args *args)
{
    const bool f16 = !args->store || (args->kv.form.type == AE_KV_F16 && args->kv.form.value_planes);
    if (!f16 || (args->neox && args->n_rot && args->n_rot != args->head_dim)) return AE_GPU_rope_heads;
    return args->head_dim == 64    ? AE_GPU_rope_heads_64
           : args->head_dim == 128 ? AE_GPU_rope_heads_128
           : args->head_dim == 256 ? AE_GPU_rope_heads_256
                                   : AE_GPU_rope_heads;
}

static void rope_heads(ae_stream *stream, const ae_rope_kv *a, const ae_gpu_rope_kv_args *args)
{
    const ae_gpu_kernel kernel = kernel_of(args);
    const uint32_t floats = kernel == AE_GPU_rope_heads ? AE_GPU_ROPE_HEADS * (args->row_floats + args->part_floats) : 0;
    const uint32_t n_kv = a->k ? a->n_kv_heads + (args->v ? a->n_kv_heads : 0) : 0, n = a->n_heads + n_kv;
    ae_gpu_launch(stream, kernel, a->places->n_rows, (n + AE_GPU_ROPE_HEADS - 1) / AE_GPU_ROPE_HEADS, 1,
                  floats * (uint32_t)sizeof(float), args);
}

/* Norms all heads of a row together. */
static void norm_rows(ae_stream *stream, const ae_rope_kv *a, float *x, uint32_t n_heads, const float *weight)
{
    const uint32_t dim = n_heads * a->head_dim;
    if (x && weight)
        ae_gpu_norm(stream, &(ae_norm){.n_rows = a->places->n_rows, .n_groups = 1, .dim = dim, .x = x, .x_stride = dim,
                                       .weight = weight, .eps = a->norm_eps});
}

void ae_gpu_rope_kv(ae_stream *stream, const ae_rope_kv *a)
{
    ae_gpu_rope_kv_args args = args_of(a);
    if (a->norm_row && (a->q_norm || a->k_norm)) { /* separate launches norm whole rows */
        args.q_norm = args.k_norm = NULL;
        if (a->norm_last && a->n_rot) {
            ae_gpu_rope_kv_args turn = args;
            turn.v = NULL;
            turn.v_norm = turn.q_scale = NULL;
            turn.store = 0;
            rope_heads(stream, a, &turn);
            args.n_rot = 0;
        }
        norm_rows(stream, a, a->q, a->n_heads, a->q_norm);
        norm_rows(stream, a, a->k, a->n_kv_heads, a->k_norm);
    }
    rope_heads(stream, a, &args);
}

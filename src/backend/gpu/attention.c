/* attention.c - attention on the device: launches of kernels/attention_*.cu. Owns the stream's room for parts of chunks.
 *
 * Places lie on the device, so the launches depend on the number of rows only: few rows are cut into as many warps as the
 * device runs at once, whatever the context, and warps without a chunk end at once. */
#include "backend/gpu/kv.h"

#define SPLIT_ROWS 64                    /* more rows are walked: there are tiles enough */
#define ROW_FLOATS ((size_t)512 << 10)   /* room for parts of a row */
#define WARPS_EACH 16                    /* of a multiprocessor: so many tiles run at once */

void ae_gpu_attention_layout(ae_layout *layout, const ae_gpu_backend *backend, const ae_stream_options *options,
                             ae_gpu_attention_scratch *scratch)
{
    const size_t n = options->max_rows < SPLIT_ROWS ? options->max_rows : SPLIT_ROWS;
    (void)backend;
    scratch->n_parts = n * ROW_FLOATS;
    scratch->parts = ae_layout_add(layout, scratch->n_parts, sizeof *scratch->parts);
}

/* How a layer is run. */
typedef struct plan {
    ae_gpu_kernel kernel;
    uint32_t tile; /* queries */
    ae_gpu_attention_room room;
} plan;

static plan plan_codes(const ae_gpu_kv_form *form)
{
    const ae_gpu_kernel kernel = !form->n_rope ? AE_GPU_attention_q8
                                 : form->n_planes == 2 ? AE_GPU_attention_latent_f16 : AE_GPU_attention_latent_q8;
    return (plan){kernel, AE_ATTENTION_CODES, ae_gpu_attention_room_codes(form)};
}

static plan plan_of(const ae_gpu_kv_form *form, uint32_t n_queries)
{
    if (form->has_scales) return plan_codes(form);
    const bool small = n_queries <= 4 || form->head_dim > 256; /* large heads take much shared memory */
    const ae_gpu_kernel f16 = small ? AE_GPU_attention_f16_4 : AE_GPU_attention_f16_8;
    const ae_gpu_kernel f32 = small ? AE_GPU_attention_f32_4 : AE_GPU_attention_f32_8;
    const uint32_t tile = small ? 4 : 8;
    return (plan){form->type == AE_KV_F32 ? f32 : f16, tile, ae_gpu_attention_room_of(form, tile)};
}

/* Cuts the work into tiles, and tiles into splits. */
static void cut(const ae_stream *stream, ae_gpu_attention_args *args, uint32_t tile)
{
    const uint32_t n_queries = args->n_rows * (args->n_heads / args->n_kv_heads);
    args->n_tiles = (n_queries + tile - 1) / tile;
    args->n_splits = 1;
    args->max_parts = 0;
    if (args->n_rows > SPLIT_ROWS) return;
    const size_t of_chunk = (size_t)args->n_rows * args->n_heads * ae_gpu_attention_part(args->kv.form.head_dim);
    const size_t room = stream->attention.n_parts / of_chunk, most = room < args->table_stride ? room : args->table_stride;
    const uint32_t wanted = stream->backend->facts.n_multiprocessors * WARPS_EACH / (args->n_tiles * args->n_kv_heads);
    if (most < 2 || wanted < 2) return;
    args->max_parts = (uint32_t)room < UINT32_MAX ? (uint32_t)room : UINT32_MAX;
    args->n_splits = wanted < most ? wanted : (uint32_t)most;
}

void ae_gpu_attention(ae_stream *stream, const ae_attention *a)
{
    const ae_places *p = a->places;
    ae_gpu_attention_args args = {
        .kv = ae_gpu_kv_view_of(a->kv, a->layer), .seq = p->seq, .pos = p->pos, .n_inplace = p->n_inplace, .path = p->path,
        .tables = p->tables, .n_actual = p->n_actual, .sinks = a->sinks, .q = a->q, .y = a->y,
        .parts = stream->attention.parts, .path_stride = p->path_stride, .table_stride = p->table_stride, .n_rows = p->n_rows,
        .n_heads = a->n_heads, .n_kv_heads = a->n_kv_heads, .window = a->window, .chunked = a->chunked, .scale = a->scale,
        .softcap = a->softcap,
    };
    const plan how = plan_of(&args.kv.form, p->n_rows * (a->n_heads / a->n_kv_heads));
    const uint32_t most = stream->backend->facts.max_shared_bytes / how.room.bytes;
    if (!most) {
        ae_gpu_decline(stream, "attention heads as large as this model's");
        return;
    }
    args.n_warps = most < AE_ATTENTION_WARPS ? most : AE_ATTENTION_WARPS;
    cut(stream, &args, how.tile);
    const uint32_t n_units = args.n_tiles * args.n_kv_heads * args.n_splits;
    ae_gpu_launch(stream, how.kernel, (n_units + args.n_warps - 1) / args.n_warps, 1, 1, args.n_warps * how.room.bytes,
                  &args);
    if (args.max_parts)
        ae_gpu_launch(stream, AE_GPU_attention_merge, args.n_heads, args.n_rows, 1,
                      ae_gpu_attention_merge_shared(&args.kv.form), &args);
}

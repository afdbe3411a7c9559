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

/* The kernel of a cache type for tiles of `tile` queries. */
static ae_gpu_kernel kernel_of(ae_kv_type type, uint32_t tile)
{
    if (type == AE_KV_F32) return tile == 4 ? AE_GPU_attention_f32_4 : AE_GPU_attention_f32_8;
    return tile == 4 ? AE_GPU_attention_f16_4 : AE_GPU_attention_f16_8;
}

/* Cuts the work into tiles, and tiles into splits. */
static void cut(const ae_stream *stream, ae_gpu_attention_args *args, uint32_t tile, size_t n_parts)
{
    const uint32_t n_queries = args->n_rows * (args->n_heads / args->n_kv_heads);
    args->n_tiles = (n_queries + tile - 1) / tile;
    args->n_splits = 1;
    args->max_parts = 0;
    if (args->n_rows > SPLIT_ROWS) return;
    const size_t of_chunk = (size_t)args->n_rows * args->n_heads * ae_gpu_attention_part(args->kv.form.head_dim);
    const size_t room = n_parts / of_chunk, most = room < args->table_stride ? room : args->table_stride;
    const uint32_t wanted = stream->backend->facts.n_multiprocessors * WARPS_EACH / (args->n_tiles * args->n_kv_heads);
    if (most < 2 || wanted < 2) return;
    args->max_parts = (uint32_t)room < UINT32_MAX ? (uint32_t)room : UINT32_MAX;
    args->n_splits = wanted < most ? wanted : (uint32_t)most;
}

void ae_gpu_attention(ae_stream *stream, const ae_attention *a)
{
    const ae_places *p = a->places;
    const ae_kv_type type = (ae_kv_type)ae_gpu_kv_view_of(a->kv, a->layer).form.type;
    ae_gpu_attention_args args = {
        .kv = ae_gpu_kv_view_of(a->kv, a->layer), .seq = p->seq, .pos = p->pos, .n_inplace = p->n_inplace, .path = p->path,
        .tables = p->tables, .n_actual = p->n_actual, .sinks = a->sinks, .q = a->q, .y = a->y,
        .parts = stream->attention.parts, .path_stride = p->path_stride, .table_stride = p->table_stride, .n_rows = p->n_rows,
        .n_heads = a->n_heads, .n_kv_heads = a->n_kv_heads, .window = a->window, .chunked = a->chunked, .scale = a->scale,
        .softcap = a->softcap,
    };
    if (type == AE_KV_Q8_0 || a->n_rope) {
        ae_gpu_decline(stream, a->n_rope ? "latent attention" : "attention over a cache of q8_0");
        return;
    }
    const uint32_t n_queries = p->n_rows * (a->n_heads / a->n_kv_heads), tile = n_queries <= 4 || a->head_dim > 256 ? 4 : 8;
    const ae_gpu_attention_room room = ae_gpu_attention_room_of(&args.kv.form, tile);
    args.n_warps = stream->backend->facts.max_shared_bytes / room.bytes;
    if (args.n_warps > AE_ATTENTION_WARPS) args.n_warps = AE_ATTENTION_WARPS;
    cut(stream, &args, tile, stream->attention.n_parts);
    const uint32_t n_units = args.n_tiles * args.n_kv_heads * args.n_splits;
    if (!args.n_warps) {
        ae_gpu_decline(stream, "attention heads as large as these");
        return;
    }
    ae_gpu_launch(stream, kernel_of(type, tile), (n_units + args.n_warps - 1) / args.n_warps, 1, 1, args.n_warps * room.bytes,
                  &args);
    if (args.max_parts)
        ae_gpu_launch(stream, AE_GPU_attention_merge, args.n_heads, args.n_rows, 1, AE_ATTENTION_MERGE_SHARED, &args);
}

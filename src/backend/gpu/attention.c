/* attention.c - attention, and the choice of positions by index keys, on the device: launches of kernels/attention/. Owns the
 * stream's room for parts of chunks and for scores.
 *
 * Places are on the device, so the launches depend on the number of rows only: few rows are cut into as many units as the
 * device runs at once, whatever the context, and units without a chunk end at once. */
#include "backend/gpu/kv.h"

#define FEW_ROWS 64                    /* with more rows there are enough tiles, and none is split (plan_walk) */
#define ROW_FLOATS ((size_t)512 << 10) /* floats of scratch for the parts of one row */
#define BLOCKS_EACH 4                  /* blocks per multiprocessor when there are few rows */
#define SELECT_ROWS 64                 /* rows whose choices are computed at once, so that scratch does not grow with the
                                        * pass */

void ae_gpu_attention_layout(ae_layout *layout, const ae_gpu_backend *backend, const ae_stream_options *options,
                             ae_gpu_attention_scratch *scratch)
{
    const size_t n = options->max_rows < FEW_ROWS ? options->max_rows : FEW_ROWS;
    /* a quarter of a block at most, since a stream's scratch is one: with less room, `split` makes fewer units */
    const size_t most = backend->facts.max_block ? backend->facts.max_block / 4 / sizeof *scratch->parts : SIZE_MAX;
    scratch->n_parts = n * ROW_FLOATS < most ? n * ROW_FLOATS : most;
    scratch->parts = ae_layout_add(layout, scratch->n_parts, sizeof *scratch->parts);
    scratch->arrivals = ae_layout_add(layout, AE_GPU_ARRIVALS, sizeof *scratch->arrivals);
}

/* How a layer runs. A unit handles one tile. */
typedef struct plan {
    ae_gpu_kernel kernel;
    uint32_t tile;       /* queries */
    uint32_t unit_bytes; /* of shared memory */
    bool is_block;       /* a unit is a block; otherwise a warp */
} plan;

static plan plan_codes(const ae_gpu_kv_form *form)
{
    static const ae_gpu_kernel plain[2][3] = {{AE_GPU_attention_q8_q4, AE_GPU_attention_q8, AE_GPU_attention_q8_i16},
                                              {AE_GPU_attention_i16_q4, AE_GPU_attention_i16_q8, AE_GPU_attention_i16}};
    const ae_gpu_kernel one_row = form->key_half ? AE_GPU_attention_row_q4
                                  : form->n_planes == 2 ? AE_GPU_attention_latent_f16 : AE_GPU_attention_latent_q8;
    const ae_gpu_kernel kernel = !form->value_planes ? one_row : form->key_half ? AE_GPU_attention_q4
                                 : plain[form->n_planes == 2][form->value_half ? 0 : form->value_planes];
    return (plan){kernel, AE_ATTENTION_CODES, ae_gpu_attention_room_codes(form).bytes, true};
}

/* Plans few rows. Smaller tiles take less time after a short context, larger ones after a long one. */
static plan plan_few(const ae_gpu_kv_form *form, uint32_t n_queries, uint32_t max_shared)
{
    static const ae_gpu_kernel f16[] = {AE_GPU_attention_few_f16_4, AE_GPU_attention_few_f16_8, AE_GPU_attention_few_f16_16};
    uint32_t i = form->type == AE_KV_F32 ? 1 : n_queries <= 4 ? 0 : n_queries <= 16 ? 1 : 2;
    if (i == 2 && ae_gpu_attention_room_of(form, 16, true).bytes > max_shared) i = 1;
    return (plan){form->type == AE_KV_F32 ? AE_GPU_attention_few_f32_8 : f16[i], 4u << i,
                  ae_gpu_attention_room_of(form, 4u << i, true).bytes, true};
}

static plan plan_walk(const ae_gpu_kv_form *form)
{
    const bool large = form->head_dim > 256; /* a tile of 8 such heads would need too much shared memory */
    const ae_gpu_kernel f16 = large ? AE_GPU_attention_f16_4 : AE_GPU_attention_f16_8;
    const ae_gpu_kernel f32 = large ? AE_GPU_attention_f32_4 : AE_GPU_attention_f32_8;
    const uint32_t tile = large ? 4 : 8;
    return (plan){form->type == AE_KV_F32 ? f32 : f16, tile, ae_gpu_attention_room_of(form, tile, false).bytes, false};
}

/* Plans one query at a time, for drivers whose own kernels for this use memory differently. */
static plan plan_single(const ae_gpu_kv_form *form)
{
    const ae_gpu_kernel kernel = form->n_scales ? plan_codes(form).kernel
                                 : form->type == AE_KV_F32 ? AE_GPU_attention_f32_4 : AE_GPU_attention_f16_4;
    return (plan){kernel, 1, 1, true};
}

static plan plan_of(const ae_gpu_facts *facts, const ae_gpu_kv_form *form, uint32_t n_rows, uint32_t group)
{
    const uint32_t max_shared = facts->max_shared_bytes;
    if (facts->single_queries) return plan_single(form);
    if (form->n_scales) return plan_codes(form);
    return n_rows <= FEW_ROWS ? plan_few(form, n_rows * group, max_shared) : plan_walk(form);
}

/* Splits the tiles of a pass with few rows into units. */
static void split(const ae_stream *stream, ae_gpu_attention_args *args)
{
    const uint32_t n = args->n_tiles * args->n_kv_heads;
    if (args->n_rows > FEW_ROWS || args->n_tiles > AE_GPU_ARRIVALS / args->n_kv_heads) return;
    const size_t of_chunk = (size_t)args->n_rows * args->n_heads * ae_gpu_attention_part(args->kv.form.head_dim);
    const size_t room = stream->attention.n_parts / of_chunk, most = room < args->table_stride ? room : args->table_stride;
    const uint32_t wanted = stream->backend->facts.n_multiprocessors * BLOCKS_EACH / n;
    if (most < 2 || wanted < 2) return;
    args->max_parts = (uint32_t)most;
    args->n_splits = wanted < most ? wanted : (uint32_t)most;
    /* if the tiles' last blocks merged, they would still run long after the others had ended */
    args->merge_apart = args->n_tiles > 1 || stream->backend->facts.single_queries;
}

void ae_gpu_attention(ae_stream *stream, const ae_attention *a)
{
    const ae_places *p = a->places;
    ae_gpu_attention_args args = {
        .kv = ae_gpu_kv_view_of(a->kv, a->layer), .seq = p->seq, .pos = p->pos, .n_inplace = p->n_inplace, .path = p->path,
        .last = p->last, .tables = p->tables, .n_actual = p->n_actual, .sinks = a->sinks,
        .slopes = a->slopes, .bias = a->bias, .first = p->first, .head_rows = p->head_rows, .q = a->q, .y = a->y,
        .parts = stream->attention.parts, .arrivals = stream->attention.arrivals, .path_stride = p->path_stride,
        .table_stride = p->table_stride, .n_rows = p->n_rows, .n_heads = a->n_heads, .n_kv_heads = a->n_kv_heads,
        .window = a->window, .chunked = a->chunked, .scale = a->scale, .softcap = a->softcap, .n_splits = 1,
    };
    if (a->more) {
        const ae_gpu_kv_view more = ae_gpu_kv_view_of(a->more->kv, a->more->layer);
        args.more_pos = a->more->pos, args.more_path = a->more->path, args.more_stride = a->more->path_stride;
        args.more_tables = a->more->tables, args.more_base = more.base, args.more_page_bytes = more.page_bytes;
    }
    const uint32_t group = a->n_heads / a->n_kv_heads, max_shared = stream->backend->facts.max_shared_bytes;
    const plan how = plan_of(&stream->backend->facts, &args.kv.form, p->n_rows, group);
    const uint32_t most = max_shared / how.unit_bytes;
    if (!most) {
        ae_gpu_decline(stream, "attention heads as large as this model's");
        return;
    }
    args.n_tiles = (p->n_rows * group + how.tile - 1) / how.tile;
    args.n_warps = how.is_block ? 1 : most < AE_ATTENTION_WARPS ? most : AE_ATTENTION_WARPS;
    if (how.is_block) split(stream, &args);
    const uint32_t n = args.n_tiles * args.n_kv_heads, n_units = n * args.n_splits;
    ae_gpu_launch(stream, how.kernel, (n_units + args.n_warps - 1) / args.n_warps, 1, 1, args.n_warps * how.unit_bytes, &args);
    if (args.merge_apart)
        ae_gpu_launch(stream, how.tile == 16 ? AE_GPU_attention_merge_16 : AE_GPU_attention_merge_8,
                      how.tile < 4 ? n : n * (how.tile / 4), 1, 1,
                      ae_gpu_attention_room_merge(&args.kv.form, how.tile).bytes, &args);
}

/* ---- Choices of positions ------------------------------------------------------------------------------- */

/* Returns the floats of scores: one for each position, and one for each block. */
static size_t score_floats(const ae_stream_options *options)
{
    return (size_t)options->n_selected_from * (options->selects_blocks ? 2 : 1);
}

void ae_gpu_select_layout(ae_layout *layout, const ae_gpu_backend *backend, const ae_stream_options *options,
                          ae_gpu_select_scratch *scratch)
{
    (void)backend;
    scratch->n_rows = options->selects_blocks || options->max_rows > SELECT_ROWS ? SELECT_ROWS : options->max_rows;
    scratch->scores = ae_layout_add(layout, scratch->n_rows * score_floats(options), sizeof *scratch->scores);
}

/* Returns the kernel for scores over the store's keys, and the shared memory of a block. */
static ae_gpu_kernel scores_kernel(const ae_gpu_kv_form *form, uint32_t *n_shared)
{
    *n_shared = form->n_scales ? ae_gpu_attention_room_codes(form).bytes : 0;
    return !form->n_scales ? AE_GPU_select_scores_f32
           : form->n_planes == 2 ? AE_GPU_select_scores_f16 : AE_GPU_select_scores_q8;
}

/* Computes choices [args->first, args->first + n). */
static void choose(ae_stream *stream, const ae_gpu_select_args *args, uint32_t n)
{
    const uint32_t n_chunks = (args->n_seen + AE_KV_PAGE - 1) / AE_KV_PAGE;
    const uint32_t wanted = stream->backend->facts.n_multiprocessors * BLOCKS_EACH / n;
    const uint32_t splits = wanted < n_chunks ? wanted : n_chunks;
    uint32_t n_shared;
    const ae_gpu_kernel kernel = scores_kernel(&args->keys.kv.form, &n_shared);
    if (args->keys.n_heads) ae_gpu_launch(stream, kernel, n, splits ? splits : 1, 1, n_shared, args);
    if (args->block && !args->pooled) {
        const uint32_t n_blocks = (args->n_seen + args->block - 1) / args->block;
        const uint32_t pieces = (n_blocks + AE_GPU_SELECT_THREADS - 1) / AE_GPU_SELECT_THREADS;
        ae_gpu_launch(stream, AE_GPU_select_blocks, n, pieces, 1, 0, args);
    }
    ae_gpu_launch(stream, AE_GPU_select_choose, n, 1, 1, AE_GPU_SELECT_SHARED, args);
}

void ae_gpu_select(ae_stream *stream, const ae_select *a)
{
    const ae_places *p = a->places;
    ae_gpu_select_args args = {
        .keys = {.kv = ae_gpu_kv_view_of(a->kv, a->layer), .seq = p->seq, .pos = p->pos, .n_inplace = p->n_inplace,
                 .path = p->path, .tables = p->tables, .n_actual = p->n_actual, .q = a->q, .path_stride = p->path_stride,
                 .table_stride = p->table_stride, .n_rows = p->n_rows, .n_heads = a->n_heads, .n_kv_heads = 1, .scale = 1.0f},
        .weight = a->weight, .scores = stream->select.scores, .pos = a->pos, .n_inplace = a->n_inplace, .path = a->path,
        .n_most = a->n_most, .n_seen = stream->options.n_selected_from, .n_groups = a->n_groups ? a->n_groups : 1,
        .block = a->block, .n_local = a->n_local, .pooled = a->pooled, .every = a->every ? a->every : 1, .listed = a->every > 0,
        .score_stride = (uint32_t)score_floats(&stream->options),
    };
    const uint32_t n_choices = args.n_groups * p->n_rows;
    for (uint32_t n; args.first < n_choices; args.first += n) {
        n = n_choices - args.first < stream->select.n_rows ? n_choices - args.first : stream->select.n_rows;
        choose(stream, &args, n);
    }
}

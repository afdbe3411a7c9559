/* cpu.c - the CPU backend: the seam's operations over the kernel table, split over threads.
 *
 * Owns: weights (packed or in the file's layout), streams (a thread pool and scratch). KV pages are cpu_kv.c's, what
 * reads and writes them cpu_attention.c's.
 * Work is split over output rows (matmul), rows (norms, rotation) and tiles of queries (attention);
 * never over k, so the split changes no bit. Small operations run on the calling thread: waking
 * the others costs more (about a microsecond) than they would save. */
#include "backend/backend.h"

#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "base/os.h"

static const cpu_backend *cpu(const ae_backend *backend)
{
    return (const cpu_backend *)backend;
}

/* ---- Memory and weights ------------------------------------------------------------------- */

static void *cpu_alloc(ae_backend *backend, size_t bytes)
{
    (void)backend;
    return ae_alloc_aligned(1, bytes);
}

static void cpu_free(ae_backend *backend, void *memory, size_t bytes)
{
    (void)backend, (void)bytes;
    ae_free(memory);
}

static ae_mm_fn *packed_kernel(const ae_kernels *k, const ae_weight_source *source, ae_packed *packed)
{
    if (!(source->use & AE_WEIGHT_MATMUL) || !ae_pack_plan(source->type, source->n_out, source->n_in, packed)) return NULL;
    const int wide_codes = packed->code_bits == 8;
    return ae_type_get(source->type)->dot == AE_DOT_32 ? k->mm_p16_32[wide_codes] : k->mm_p16_256[wide_codes];
}

static ae_mm_fn *plain_kernel(const ae_kernels *k, uint32_t type)
{
    switch (type) {
    case AE_TYPE_F32: return k->mm_f32;
    case AE_TYPE_F16: return k->mm_f16;
    case AE_TYPE_BF16: return k->mm_bf16;
    default: return k->mm_plain;
    }
}

static uint32_t n_panels(uint32_t n_out)
{
    return (n_out + AE_PANEL - 1) / AE_PANEL;
}

static size_t cpu_weight_bytes(const ae_backend *backend, const ae_weight_source *source)
{
    ae_packed packed;
    if (!packed_kernel(&cpu(backend)->kernels, source, &packed)) return sizeof(ae_weight);
    return sizeof(ae_weight) + (packed.code_stride + packed.scale_stride) * n_panels(source->n_out);
}

static aerie_status cpu_weight_create(ae_backend *backend, const ae_weight_source *source, ae_weight **out, aerie_error *error)
{
    const ae_kernels *k = &cpu(backend)->kernels;
    const ae_type_info *info = ae_type_get(source->type);
    *out = NULL;
    if (!info || !info->decode || (source->use & AE_WEIGHT_MATMUL && info->dot == AE_DOT_NONE))
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "tensor type %s cannot hold weights",
                       ae_type_name(source->type) ? ae_type_name(source->type) : "(unknown)");
    ae_weight *w = ae_alloc(1, sizeof *w);
    if (!w) return ae_fail_memory(error, "a weight", sizeof *w);
    w->type = source->type;
    w->n_out = source->n_out;
    w->n_in = source->n_in;
    w->dot = info->dot;
    w->plain = source->data;
    w->row_bytes = ae_type_row_bytes(source->type, source->n_in);
    w->mm = packed_kernel(k, source, &w->packed);
    if (!w->mm) {
        w->packed = (ae_packed){0};
        w->mm = plain_kernel(k, source->type);
    } else {
        const uint32_t n = n_panels(w->n_out);
        const size_t code_bytes = w->packed.code_stride * n;
        w->memory_bytes = code_bytes + w->packed.scale_stride * n;
        w->memory = ae_os_pages_alloc(w->memory_bytes);
        if (!w->memory) {
            ae_free(w);
            return ae_fail_memory(error, "a packed weight", code_bytes);
        }
        w->packed.codes = w->memory;
        w->packed.scales = w->packed.codes + code_bytes;
        ae_pack_panels(w->type, w->plain, w->n_out, w->n_in, &w->packed, 0, n);
        if (!(source->use & AE_WEIGHT_LOOKUP)) w->plain = NULL;
    }
    *out = w;
    return AERIE_OK;
}

static void cpu_weight_free(ae_backend *backend, ae_weight *weight)
{
    (void)backend;
    if (!weight) return;
    ae_os_pages_free(weight->memory, weight->memory_bytes);
    ae_free(weight);
}

/* ---- Streams --------------------------------------------------------------------------------- */

static void stream_layout(ae_layout *layout, const ae_kernels *k, const ae_stream_options *o, ae_stream *s)
{
    const size_t n = o->max_rows, in = ((size_t)o->max_in + 255) / 256 * 256;
    s->act.x = ae_layout_add(layout, n * in, sizeof(float));
    s->act.q32 = ae_layout_add(layout, n * in, 1);
    s->act.d32 = ae_layout_add(layout, n * in / 32, sizeof(float));
    s->act.sum32 = ae_layout_add(layout, n * in / 32, sizeof(int32_t));
    s->act.s32 = ae_layout_add(layout, n * in / 32, sizeof(float));
    s->act.q256 = ae_layout_add(layout, n * in, 1);
    s->act.d256 = ae_layout_add(layout, n * in / 256, sizeof(float));
    s->act.bsum = ae_layout_add(layout, n * in / 16, sizeof(int16_t));
    const size_t tiled = k->tile_rows ? (n + AE_TILE_ROWS - 1) / AE_TILE_ROWS * AE_TILE_ROWS * in : 0;
    s->act.t32 = ae_layout_add(layout, tiled, 1);
    s->act.td32 = ae_layout_add(layout, tiled / 32, sizeof(float));
    s->act.ts32 = ae_layout_add(layout, tiled / 32, sizeof(float));
    s->act.t256 = ae_layout_add(layout, tiled, 1);
    s->act.td256 = ae_layout_add(layout, tiled / 256, sizeof(float));
    s->act.bsum2 = ae_layout_add(layout, tiled / 32, sizeof(int16_t));
    s->attn_scratch = ae_layout_add(layout, (size_t)o->n_threads * AE_ATTN_TILE * (MAX_HEAD_DIM + AE_KV_PAGE), sizeof(float));
    s->attn_parts = ae_layout_add(layout, ATTN_PARTS * (size_t)o->n_threads, sizeof(float));
    s->attn_state = ae_layout_add(layout, ATTN_SPLIT_ITEMS * (size_t)o->n_threads, sizeof *s->attn_state);
    s->run_begin = ae_layout_add(layout, n + 1, sizeof(int32_t));
    s->run_item = ae_layout_add(layout, n + 1, sizeof(int32_t));
}

static size_t cpu_stream_bytes(const ae_backend *backend, const ae_stream_options *options)
{
    ae_stream s;
    ae_layout layout = {0};
    stream_layout(&layout, &cpu(backend)->kernels, options, &s);
    return layout.overflow ? SIZE_MAX : layout.bytes + sizeof s;
}

static void cpu_stream_free(ae_stream *stream)
{
    if (!stream) return;
    if (!stream->options.threads_of) ae_pool_free(stream->pool);
    ae_free(stream->memory);
    ae_free(stream);
}

static aerie_status cpu_stream_create(ae_backend *backend, const ae_stream_options *options, ae_stream **out, aerie_error *error)
{
    *out = NULL;
    ae_stream *s = ae_alloc_aligned(1, sizeof *s);
    if (!s) return ae_fail_memory(error, "a stream", sizeof *s);
    ae_layout layout = {0};
    stream_layout(&layout, &cpu(backend)->kernels, options, s);
    s->memory = layout.overflow ? NULL : ae_alloc_aligned(1, layout.bytes);
    if (!s->memory) {
        cpu_stream_free(s);
        return ae_fail_memory(error, "the stream's scratch", layout.bytes);
    }
    layout = (ae_layout){.base = s->memory};
    stream_layout(&layout, &cpu(backend)->kernels, options, s);
    s->backend = cpu(backend);
    s->options = *options;
    aerie_status status = AERIE_OK;
    if (options->threads_of) s->pool = options->threads_of->pool;
    else status = ae_pool_create(&s->pool, options->n_threads, error);
    if (status == AERIE_OK) *out = s;
    else cpu_stream_free(s);
    return status;
}

static void cpu_sync(ae_stream *stream)
{
    (void)stream;
}

static void cpu_copy_in(ae_stream *stream, void *device, const void *host, size_t n)
{
    (void)stream;
    memcpy(device, host, n);
}

static void cpu_copy_out(ae_stream *stream, void *host, const void *device, size_t n)
{
    (void)stream;
    memcpy(host, device, n);
}

/* ---- Row operations -------------------------------------------------------------------------------- */

static void cpu_lookup(ae_stream *stream, const ae_weight *table, const int32_t *tokens, uint32_t n_rows, float *y)
{
    (void)stream;
    ae_decode_fn *decode = ae_type_get(table->type)->decode;
    for (uint32_t r = 0; r < n_rows; r++)
        decode(table->plain + (size_t)tokens[r] * table->row_bytes, y + (size_t)r * table->n_in, table->n_in);
}

static void cpu_gather(ae_stream *stream, const float *x, const int32_t *rows, uint32_t n, uint32_t dim, float *y)
{
    (void)stream;
    for (uint32_t i = 0; i < n; i++) memcpy(y + (size_t)i * dim, x + (size_t)rows[i] * dim, dim * sizeof(float));
}

typedef struct matmul_job {
    ae_stream *stream;
    const ae_matmul *args;
    bool need[4]; /* by ae_dot */
    uint32_t n_panels, n_panels_item;
} matmul_job;

static void prepare_row(const matmul_job *job, uint32_t r)
{
    const ae_kernels *k = &job->stream->backend->kernels;
    const ae_matmul *a = job->args;
    ae_act *act = &job->stream->act;
    const uint32_t n = act->n_in;
    const float *x = a->x + r * a->x_stride;
    float *y = act->x + (size_t)r * n;
    switch (a->input) {
    case AE_INPUT_PLAIN:
        if (job->need[AE_DOT_FLOAT]) memcpy(y, x, n * sizeof *y);
        break;
    case AE_INPUT_RMSNORM: k->rmsnorm(x, a->norm, a->norm_eps, n, y), x = y; break;
    case AE_INPUT_SWIGLU: k->swiglu(x, a->x2 + r * a->x_stride, n, y), x = y; break;
    }
    if (job->need[AE_DOT_32]) {
        const size_t b = (size_t)r * (n / 32);
        k->quant32(x, n, act->q32 + (size_t)r * n, act->d32 + b, act->sum32 + b, act->s32 + b);
    }
    if (job->need[AE_DOT_256])
        k->quant256(x, n, act->q256 + (size_t)r * n, act->d256 + (size_t)r * (n / 256), act->bsum + (size_t)r * (n / 16));
}

static void prepare_item(void *context, uint32_t item, uint32_t i_worker)
{
    (void)i_worker;
    prepare_row(context, item);
}

#define TILE_BLOCKS 16 /* of 32 k, in an item of tiling */

static void tile_item(void *context, uint32_t item, uint32_t i_worker)
{
    const matmul_job *job = context;
    ae_act *act = &job->stream->act;
    const uint32_t n = act->n_in / 32, begin = item * TILE_BLOCKS, end = n - begin < TILE_BLOCKS ? n : begin + TILE_BLOCKS;
    (void)i_worker;
    if (job->need[AE_DOT_32]) ae_act_tile(act, AE_DOT_32, begin, end);
    if (job->need[AE_DOT_256]) ae_act_tile(act, AE_DOT_256, begin, end);
}

/* The tiled form of the activations, for the levels and row counts that use it. */
static void tile_rows(matmul_job *job)
{
    const ae_act *act = &job->stream->act;
    const uint32_t least = job->stream->backend->kernels.tile_rows;
    if (!least || act->n_rows < least || (!job->need[AE_DOT_32] && !job->need[AE_DOT_256])) return;
    const uint32_t n_items = (act->n_in / 32 + TILE_BLOCKS - 1) / TILE_BLOCKS;
    if (act->n_rows > AE_TILE_ROWS) ae_pool_run(job->stream->pool, tile_item, job, n_items);
    else for (uint32_t i = 0; i < n_items; i++) tile_item(job, i, 0);
}

/* The panels of all weights form one list, cut into n_items equal parts. */
static void matmul_item(void *context, uint32_t item, uint32_t i_worker)
{
    const matmul_job *job = context;
    const ae_matmul *a = job->args;
    const uint32_t begin = item * job->n_panels_item;
    uint32_t end = begin + job->n_panels_item, at = 0;
    (void)i_worker;
    if (end > job->n_panels) end = job->n_panels;
    for (uint32_t i = 0; i < a->n_weights && at < end; i++) {
        const ae_weight *w = a->out[i].weight;
        const uint32_t n = n_panels(w->n_out), b = begin > at ? begin - at : 0, e = end - at < n ? end - at : n;
        if (b < e) {
            const ae_mm_out out = {a->out[i].y, a->out[i].y_stride, a->out[i].bias, a->out[i].add};
            w->mm(w, &job->stream->act, &out, b * AE_PANEL, e == n ? w->n_out : e * AE_PANEL);
        }
        at += n;
    }
}

/* Several items per thread, so that one that is held up leaves its share to the others; not so many that a panel's
 * worth of work drowns in claiming. */
#define ITEMS_PER_THREAD 4

static void cpu_matmul(ae_stream *stream, const ae_matmul *args)
{
    matmul_job job = {.stream = stream, .args = args};
    const uint32_t n_threads = ae_pool_n_workers(stream->pool);
    stream->act.n_rows = args->n_rows;
    stream->act.n_in = args->out[0].weight->n_in;
    for (uint32_t i = 0; i < args->n_weights; i++) {
        job.need[args->out[i].weight->dot] = true;
        job.n_panels += n_panels(args->out[i].weight->n_out);
    }
    job.n_panels_item = (job.n_panels + n_threads * ITEMS_PER_THREAD - 1) / (n_threads * ITEMS_PER_THREAD);
    if (args->n_rows > 2) ae_pool_run(stream->pool, prepare_item, &job, args->n_rows);
    else for (uint32_t r = 0; r < args->n_rows; r++) prepare_row(&job, r);
    tile_rows(&job);
    ae_pool_run(stream->pool, matmul_item, &job, (job.n_panels + job.n_panels_item - 1) / job.n_panels_item);
}

/* ---- The table ------------------------------------------------------------------------------------------- */

static const ae_backend_ops cpu_ops = {
    .name = "cpu",
    .alloc = cpu_alloc,
    .free = cpu_free,
    .weight_bytes = cpu_weight_bytes,
    .weight_create = cpu_weight_create,
    .weight_free = cpu_weight_free,
    .stream_bytes = cpu_stream_bytes,
    .stream_create = cpu_stream_create,
    .stream_free = cpu_stream_free,
    .sync = cpu_sync,
    .kv_bytes = ae_cpu_kv_bytes,
    .kv_create = ae_cpu_kv_create,
    .kv_free = ae_cpu_kv_free,
    .kv_copy_page = ae_cpu_kv_copy_page,
    .kv_move = ae_cpu_kv_move,
    .kv_slot_bytes = ae_cpu_kv_slot_bytes,
    .kv_read = ae_cpu_kv_read,
    .upload = cpu_copy_in,
    .download = cpu_copy_out,
    .lookup = cpu_lookup,
    .matmul = cpu_matmul,
    .rope_kv = ae_cpu_rope_kv,
    .attention = ae_cpu_attention,
    .gather = cpu_gather,
};

aerie_status ae_backend_cpu_create(ae_backend **out, const char *level, aerie_error *error)
{
    *out = NULL;
    cpu_backend *b = ae_alloc(1, sizeof *b);
    if (!b) return ae_fail_memory(error, "the CPU backend", sizeof *b);
    bool supported;
    if (!ae_kernels_select(&b->kernels, level, &supported)) {
        ae_free(b);
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "CPU level \"%s\" is unknown; the known levels are %s", level, ae_kernels_known());
    }
    if (!supported) {
        ae_free(b);
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "this CPU lacks the level \"%s\"", level);
    }
    b->base.ops = &cpu_ops;
    *out = &b->base;
    return AERIE_OK;
}

void ae_backend_cpu_free(ae_backend *backend)
{
    ae_free(backend);
}

const char *ae_backend_cpu_level(const ae_backend *backend)
{
    return cpu(backend)->kernels.level;
}

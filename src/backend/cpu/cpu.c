/* cpu.c - the CPU backend: the seam's operations over the kernel table, split over threads.
 *
 * Owns: streams (a thread pool and scratch). Weights are weight.c's, KV pages kv.c's, what reads and writes
 * them attention.c's.
 * Work is split over output rows (matmul), rows (norms, rotation) and tiles of queries (attention);
 * never over k, so the split changes no bit. Small operations run on the calling thread: waking
 * the others costs more (about a microsecond) than they would save. */
#include "backend/backend.h"

#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "base/mem.h"
#include "base/os.h"

/* ---- Memory ------------------------------------------------------------------------------- */

/* Large blocks get pages of their own: the system hands them out zeroed, and takes none before it is written to. */
#define PAGES_FROM ((size_t)2 << 20)

void *ae_cpu_alloc(ae_backend *backend, size_t bytes)
{
    ae_cpu_guard *guard = ((ae_cpu_backend *)backend)->guard;
    if (guard) return ae_cpu_guard_alloc(guard, bytes);
    return bytes >= PAGES_FROM ? ae_os_pages_alloc(bytes) : ae_alloc_aligned(1, bytes);
}

void ae_cpu_free(ae_backend *backend, void *memory, size_t bytes)
{
    ae_cpu_guard *guard = ((ae_cpu_backend *)backend)->guard;
    if (!memory) return;
    if (guard) ae_cpu_guard_free(guard, memory);
    else if (bytes >= PAGES_FROM) ae_os_pages_free(memory, bytes);
    else ae_free(memory);
}

static void cpu_fill(ae_backend *backend, void *device, const void *host, size_t n)
{
    (void)backend;
    memcpy(device, host, n);
}

static void cpu_memory_info(const ae_backend *backend, uint64_t *n_free, uint64_t *n_total)
{
    (void)backend;
    *n_free = ae_os_memory_available();
    *n_total = ae_os_memory_total();
}

/* ---- Streams --------------------------------------------------------------------------------- */

static void stream_layout(ae_layout *layout, const ae_kernels *k, const ae_stream_options *o, ae_stream *s)
{
    const size_t n = o->max_rows;
    ae_act_layout(layout, n, o->max_in, ae_kernels_tile(k) ? (n + AE_TILE_ROWS - 1) / AE_TILE_ROWS * AE_TILE_ROWS : 0, &s->act);
    if (o->moe.n_experts) ae_cpu_moe_layout(layout, k, o, &s->moe);
    if (o->state) ae_cpu_state_layout(layout, o, &s->state);
    s->panel_bytes = ae_weight_panel_bytes((o->max_in + 255) / 256 * 256);
    s->panel = ae_layout_add(layout, o->n_threads, s->panel_bytes);
    s->attn_scratch = ae_layout_add(layout, (size_t)o->n_threads * AE_ATTN_TILE * (AE_MAX_HEAD_DIM + AE_KV_PAGE),
                                    sizeof(float));
    s->attn_work = ae_layout_add(layout, (size_t)o->n_threads * AE_ATTN_WORK, 1);
    s->mm_scratch = ae_layout_add(layout, (size_t)o->n_threads * AE_MM_SCRATCH, 1);
    s->attn_parts = ae_layout_add(layout, ATTN_PARTS * (size_t)o->n_threads, sizeof(float));
    s->attn_state = ae_layout_add(layout, ATTN_SPLIT_ITEMS * (size_t)o->n_threads, sizeof *s->attn_state);
    s->run_begin = ae_layout_add(layout, n + 1, sizeof(int32_t));
    s->run_item = ae_layout_add(layout, n + 1, sizeof(int32_t));
}

static size_t cpu_stream_bytes(const ae_backend *backend, const ae_stream_options *options)
{
    ae_stream s;
    ae_layout layout = {0};
    stream_layout(&layout, &ae_cpu(backend)->kernels, options, &s);
    return layout.overflow ? SIZE_MAX : layout.bytes + sizeof s;
}

static void cpu_stream_free(ae_stream *stream)
{
    if (!stream) return;
    ae_free(stream->memory);
    ae_free(stream);
}

static aerie_status cpu_stream_create(ae_backend *backend, const ae_stream_options *options, ae_stream **out,
                                      aerie_error *error)
{
    *out = NULL;
    ae_stream *s = ae_alloc_aligned(1, sizeof *s);
    if (!s) return ae_fail_memory(error, "a stream", sizeof *s);
    ae_layout layout = {0};
    stream_layout(&layout, &ae_cpu(backend)->kernels, options, s);
    s->memory = layout.overflow ? NULL : ae_alloc_aligned(1, layout.bytes);
    if (!s->memory) {
        cpu_stream_free(s);
        return ae_fail_memory(error, "the stream's scratch", layout.bytes);
    }
    layout = (ae_layout){.base = s->memory};
    stream_layout(&layout, &ae_cpu(backend)->kernels, options, s);
    s->backend = ae_cpu(backend);
    s->options = *options;
    s->options.state = NULL; /* lent for the call */
    s->pool = options->pool;
    *out = s;
    return AERIE_OK;
}

static aerie_status cpu_sync(ae_stream *stream, aerie_error *error)
{
    const aerie_error fault = stream->fault;
    if (fault.status == AERIE_OK) return AERIE_OK;
    stream->fault.status = AERIE_OK;
    return ae_fail(error, fault.status, "%s", fault.text);
}

static void cpu_host_run(ae_stream *stream, ae_pool_job *job, void *context, uint32_t n)
{
    ae_pool_run(stream->pool, job, context, n);
}

static void cpu_watch(ae_stream *stream, ae_watch_fn *watch, void *user)
{
    stream->watch = watch;
    stream->watch_user = user;
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

static const void *cpu_view(ae_stream *stream, const void *device, void *room, size_t n)
{
    (void)stream, (void)room, (void)n;
    return device;
}

static uint32_t cpu_mark(ae_stream *stream)
{
    stream->mark[stream->n_marks % AE_MARKS] = ae_time_now();
    return stream->n_marks++;
}

static double cpu_elapsed(const ae_stream *stream, uint32_t from, uint32_t to)
{
    return stream->mark[to % AE_MARKS] - stream->mark[from % AE_MARKS];
}

/* Calling an operation costs nothing here: there is nothing to record. */
static bool cpu_pass_begin(ae_stream *stream, uint64_t key)
{
    (void)stream, (void)key;
    return true;
}

static void cpu_pass_end(ae_stream *stream)
{
    (void)stream;
}

/* ---- Row operations -------------------------------------------------------------------------------- */

static void cpu_lookup(ae_stream *stream, const ae_weight *table, const int32_t *tokens, uint32_t n_rows, float *y,
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

static void cpu_copy(ae_stream *stream, const ae_copy *a)
{
    const int32_t *rows = a->rows ? a->rows : a->host_rows;
    (void)stream;
    for (uint32_t i = 0; i < a->n; i++)
        memcpy(a->y + i * a->y_stride, a->x + (rows ? (size_t)rows[i] : i) * a->x_stride, a->dim * sizeof(float));
}

typedef struct matmul_job {
    const ae_stream *stream;
    const ae_kernels *kernels;
    const ae_matmul *args;
    ae_act *act;      /* rows being prepared */
    const ae_act_need *need;
    ae_items items;   /* of the panels of all weights, one after the other */
} matmul_job;

/* Columns [begin, end) of row r, from those of the input or, where that has a norm, from the row in act->x. begin is a multiple
 * of 256, and end is one or n_in. */
static void prepare_columns(const ae_kernels *k, const ae_matmul *a, const ae_act_need *need, const ae_act *act, uint32_t r,
                            uint32_t begin, uint32_t end)
{
    const size_t row = (size_t)r * act->n_in, codes = r * ae_act_stride(act->n_in) + begin, at = row + begin;
    const float *x = a->x + r * a->x_stride + begin;
    const uint32_t n = end - begin;
    float *y = act->x + at;
    switch (a->input) {
    case AE_INPUT_PLAIN:
        if (need->rows[AE_DOT_FLOAT]) memcpy(y, x, n * sizeof *y);
        break;
    case AE_INPUT_RMSNORM:
    case AE_INPUT_LAYERNORM: x = y; break;
    case AE_INPUT_GLU: k->glu[a->glu](x, a->x2 ? a->x2 + r * a->x_stride + begin : NULL, a->glu_limit, n, y), x = y; break;
    }
    if (need->rows[AE_DOT_32]) k->quant32(x, n, act->q32 + codes, act->d32 + at / 32, act->sum32 + at / 32, act->s32 + at / 32);
    if (need->rows[AE_DOT_256]) k->quant256(x, n, act->q256 + codes, act->d256 + at / 256, act->bsum + at / 16);
}

void ae_cpu_prepare_row(const ae_kernels *k, const ae_matmul *a, const ae_act_need *need, const ae_act *act, uint32_t r)
{
    const float *x = a->x + r * a->x_stride;
    float *y = act->x + (size_t)r * act->n_in;
    if (a->input == AE_INPUT_RMSNORM) k->rmsnorm(x, a->norm, a->norm_eps, act->n_in, y);
    if (a->input == AE_INPUT_LAYERNORM) k->layernorm(x, a->norm, a->norm_bias, a->norm_eps, act->n_in, y);
    prepare_columns(k, a, need, act, r, 0, act->n_in);
}

static void prepare_item(void *context, uint32_t item, uint32_t i_worker)
{
    const matmul_job *job = context;
    (void)i_worker;
    ae_cpu_prepare_row(job->kernels, job->args, job->need, job->act, item);
}

#define PIECE 1024 /* columns: 1 to 2 us with AVX2 */

static void prepare_piece(void *context, uint32_t item, uint32_t i_worker)
{
    const matmul_job *job = context;
    const uint32_t n = job->act->n_in, n_pieces = (n + PIECE - 1) / PIECE, row = item / n_pieces;
    const uint32_t begin = item % n_pieces * PIECE, end = n - begin < PIECE ? n : begin + PIECE;
    (void)i_worker;
    prepare_columns(job->kernels, job->args, job->need, job->act, row, begin, end);
}

static void tile_item(void *context, uint32_t item, uint32_t i_worker)
{
    const matmul_job *job = context;
    (void)i_worker;
    ae_act_tile_piece(job->act, job->need, item);
}

void ae_cpu_prepare(ae_stream *stream, const ae_matmul *input, const ae_act_need *need, ae_act *act)
{
    matmul_job job = {.kernels = &stream->backend->kernels, .args = input, .act = act, .need = need};
    const bool norm = input->input == AE_INPUT_RMSNORM || input->input == AE_INPUT_LAYERNORM;
    /* starting the threads takes 1 us: few short rows are not worth it */
    if (!norm && act->n_in >= 2 * PIECE)
        ae_pool_run(stream->pool, prepare_piece, &job, act->n_rows * ((act->n_in + PIECE - 1) / PIECE));
    else if (act->n_rows > 2) ae_pool_run(stream->pool, prepare_item, &job, act->n_rows);
    else for (uint32_t r = 0; r < act->n_rows; r++) prepare_item(&job, r, 0);
    if (!ae_act_wants_tiles(need, AE_DOT_32, act->n_rows) && !ae_act_wants_tiles(need, AE_DOT_256, act->n_rows)) return;
    const uint32_t n_items = ae_act_tile_pieces(act->n_in);
    if (act->n_rows > AE_TILE_ROWS) ae_pool_run(stream->pool, tile_item, &job, n_items);
    else for (uint32_t i = 0; i < n_items; i++) tile_item(&job, i, 0);
}

void ae_cpu_panels(const ae_stream *stream, uint32_t i_worker, const ae_weight *w, const ae_act *act, const ae_mm_out *out,
                   uint32_t begin, uint32_t end)
{
    ae_mm_out to = *out;
    to.scratch = stream->mm_scratch + i_worker * AE_MM_SCRATCH;
    ae_weight_multiply(w, act, &to, begin * AE_PANEL, end == ae_weight_n_panels(w->n_out) ? w->n_out : end * AE_PANEL,
                       stream->panel + i_worker * stream->panel_bytes);
}

static void matmul_item(void *context, uint32_t item, uint32_t i_worker)
{
    const matmul_job *job = context;
    const ae_matmul *a = job->args;
    const uint32_t begin = ae_items_begin(&job->items, item), end = ae_items_end(&job->items, item);
    uint32_t at = 0;
    for (uint32_t i = 0; i < a->n_weights && at < end; i++) {
        const ae_weight *w = a->out[i].weight;
        const uint32_t n = ae_weight_n_panels(w->n_out), b = begin > at ? begin - at : 0, e = end - at < n ? end - at : n;
        if (b < e) {
            const ae_mm_out out = {a->out[i].y, a->out[i].y_stride, a->out[i].bias, a->out[i].add, NULL};
            ae_cpu_panels(job->stream, i_worker, w, job->act, &out, b, e);
        }
        at += n;
    }
}

void ae_cpu_multiply(ae_stream *stream, const ae_matmul *args, const ae_act *act)
{
    matmul_job job = {.stream = stream, .args = args, .act = (ae_act *)act};
    uint32_t n_panels = 0;
    const bool plain = args->input == AE_INPUT_PLAIN; /* else prepared rows hold the input as f32 */
    for (uint32_t i = 0; i < args->n_weights; i++) {
        n_panels += ae_weight_n_panels(args->out[i].weight->n_out);
        ae_cpu_tell(stream, args->out[i].weight, plain ? args->x : act->x, plain ? args->x_stride : act->n_in, act->n_rows);
    }
    job.items = ae_items_cut(n_panels, ae_pool_n_workers(stream->pool), 1);
    ae_pool_run(stream->pool, matmul_item, &job, ae_items_count(&job.items));
}

static void cpu_matmul(ae_stream *stream, const ae_matmul *args)
{
    ae_act_need need = {0};
    for (uint32_t i = 0; i < args->n_weights; i++) ae_act_need_add(&need, args->out[i].weight);
    stream->act.n_rows = args->n_rows;
    stream->act.n_in = args->out[0].weight->n_in;
    ae_cpu_prepare(stream, args, &need, &stream->act);
    ae_cpu_multiply(stream, args, &stream->act);
}

/* A job over rows: on all threads if there are more than few. */
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

static void cpu_norm(ae_stream *stream, const ae_norm *args)
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

static void cpu_axpy(ae_stream *stream, const ae_axpy *args)
{
    run_rows(stream, axpy_item, args, args->n);
}

static void map_item(void *context, uint32_t r, uint32_t i_worker)
{
    const rows_job *job = context;
    const ae_map *a = job->args;
    float *x = a->x + r * a->x_stride;
    const float *x2 = a->x2 ? a->x2 + r * a->x2_stride : NULL;
    (void)i_worker;
    switch (a->kind) {
    case AE_MAP_ZERO: memset(x, 0, a->dim * sizeof *x); break;
    case AE_MAP_SCALE:
        for (uint32_t i = 0; i < a->dim; i++) x[i] *= a->a;
        break;
    case AE_MAP_SOFTCAP: job->kernels->softcap(x, a->a, a->dim, x); break;
    case AE_MAP_GLU: job->kernels->glu[a->glu](x, x2, a->glu_limit, a->dim, x); break;
    case AE_MAP_GATE:
        for (uint32_t g = 0, n = a->dim / a->n_groups; g < a->n_groups; g++) {
            const float gate = ae_glu_of(AE_GLU_SIGMOID, x2[g], 0);
            for (uint32_t i = g * n; i < (g + 1) * n; i++) x[i] *= gate;
        }
        break;
    }
}

static void cpu_map(ae_stream *stream, const ae_map *args)
{
    run_rows(stream, map_item, args, args->n_rows);
}

/* ---- The table ------------------------------------------------------------------------------------------- */

static void cpu_close(ae_backend *backend)
{
    ae_cpu_backend *b = (ae_cpu_backend *)backend;
    ae_cpu_guard_destroy(b->guard);
    pthread_mutex_destroy(&b->mutex);
    ae_free(b);
}

static const ae_backend_ops cpu_ops = {
    .name = "cpu",
    .close = cpu_close,
    .alloc = ae_cpu_alloc,
    .free = ae_cpu_free,
    .weight_bytes = ae_cpu_weight_bytes,
    .weight_create = ae_cpu_weight_create,
    .weight_fill = ae_cpu_weight_fill,
    .weight_free = ae_cpu_weight_free,
    .stream_bytes = cpu_stream_bytes,
    .stream_create = cpu_stream_create,
    .stream_free = cpu_stream_free,
    .sync = cpu_sync,
    .host_run = cpu_host_run,
    .watch = cpu_watch,
    .kv_bytes = ae_cpu_kv_bytes,
    .kv_create = ae_cpu_kv_create,
    .kv_free = ae_cpu_kv_free,
    .kv_copy_page = ae_cpu_kv_copy_page,
    .kv_commit = ae_cpu_kv_commit,
    .kv_slot_bytes = ae_cpu_kv_slot_bytes,
    .kv_read = ae_cpu_kv_read,
    .kv_write = ae_cpu_kv_write,
    .upload = cpu_copy_in,
    .download = cpu_copy_out,
    .fill = cpu_fill,
    .view = cpu_view,
    .memory_info = cpu_memory_info,
    .mark = cpu_mark,
    .elapsed = cpu_elapsed,
    .pass_begin = cpu_pass_begin,
    .pass_end = cpu_pass_end,
    .lookup = cpu_lookup,
    .matmul = cpu_matmul,
    .head_matmul = ae_cpu_head_matmul,
    .norm = cpu_norm,
    .axpy = cpu_axpy,
    .map = cpu_map,
    .moe = ae_cpu_moe_run,
    .rope_table = ae_cpu_rope_table,
    .rope_kv = ae_cpu_rope_kv,
    .attention = ae_cpu_attention,
    .copy = cpu_copy,
    .walk = ae_cpu_walk,
    .propose = ae_cpu_propose,
    .state_bytes = ae_cpu_state_bytes,
    .state_create = ae_cpu_state_create,
    .state_free = ae_cpu_state_free,
    .state_zero = ae_cpu_state_zero,
    .state_copy = ae_cpu_state_copy,
    .state_absorb = ae_cpu_state_absorb,
    .state_plane_bytes = ae_cpu_state_plane_bytes,
    .state_read = ae_cpu_state_read,
    .state_write = ae_cpu_state_write,
    .conv = ae_cpu_conv,
    .recur = ae_cpu_recur,
    .gated_norm = ae_cpu_gated_norm,
};

aerie_status ae_cpu_open(ae_backend **out, const char *level, aerie_error *error)
{
    *out = NULL;
    ae_cpu_backend *b = ae_alloc(1, sizeof *b);
    if (!b) return ae_fail_memory(error, "the CPU backend", sizeof *b);
    bool supported;
    if (!ae_kernels_select(&b->kernels, level, &supported)) {
        ae_free(b);
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "CPU level \"%s\" is unknown; the known levels are %s", level,
                       ae_kernels_known());
    }
    if (!supported) {
        ae_free(b);
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "this CPU lacks the level \"%s\"", level);
    }
    b->base.ops = &cpu_ops;
    pthread_mutex_init(&b->mutex, NULL);
    *out = &b->base;
    return AERIE_OK;
}

const char *ae_backend_cpu_level(const ae_backend *backend)
{
    return ae_cpu(backend)->kernels.level;
}

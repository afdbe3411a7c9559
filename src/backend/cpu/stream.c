/* stream.c - streams of the CPU backend: scratch, threads, failures, marks. Operations run when they are called. */
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/cpu_int.h"
#include "base/mem.h"
#include "base/os.h"

static void stream_layout(ae_layout *layout, const ae_kernels *k, const ae_stream_options *o, ae_stream *s)
{
    const size_t n = o->max_rows, n_act = ae_stream_product_rows(o);
    const size_t n_tiled = ae_kernels_tile(k) ? (n_act + AE_TILE_ROWS - 1) / AE_TILE_ROWS * AE_TILE_ROWS : 0;
    ae_act_layout(layout, n_act, o->max_in, n_tiled, &s->act);
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
    s->index_scores = ae_layout_add(layout, AE_SELECT_ROWS * (size_t)o->n_selected_from, sizeof(float));
    const size_t n_pages = (o->n_gathered + AE_KV_PAGE - 1) / AE_KV_PAGE;
    s->gathered = ae_layout_add(layout, AE_GATHER_ROWS * n_pages,
                                ae_kv_head_bytes(ae_kv_row_type(o->gathered_type), o->gathered_dim));
    s->gathered_table = ae_layout_add(layout, n_pages, sizeof(int32_t));
    s->run_begin = ae_layout_add(layout, n + 1, sizeof(int32_t));
    s->run_item = ae_layout_add(layout, n + 1, sizeof(int32_t));
}

size_t ae_cpu_stream_bytes(const ae_backend *backend, const ae_stream_options *options)
{
    ae_stream s;
    ae_layout layout = {0};
    stream_layout(&layout, &ae_cpu(backend)->kernels, options, &s);
    return layout.overflow ? SIZE_MAX : layout.bytes + sizeof s;
}

void ae_cpu_stream_free(ae_stream *stream)
{
    if (!stream) return;
    ae_free(stream->memory);
    ae_free(stream);
}

aerie_status ae_cpu_stream_create(ae_backend *backend, const ae_stream_options *options, ae_stream **out,
                                  aerie_error *error)
{
    *out = NULL;
    ae_stream *s = ae_alloc_aligned(1, sizeof *s);
    if (!s) return ae_fail_memory(error, "a stream", sizeof *s);
    ae_layout layout = {0};
    stream_layout(&layout, &ae_cpu(backend)->kernels, options, s);
    s->memory = layout.overflow ? NULL : ae_alloc_aligned(1, layout.bytes);
    if (!s->memory) {
        ae_cpu_stream_free(s);
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

aerie_status ae_cpu_sync(ae_stream *stream, aerie_error *error)
{
    const aerie_error fault = stream->fault;
    if (fault.status == AERIE_OK) return AERIE_OK;
    stream->fault.status = AERIE_OK;
    return ae_fail(error, fault.status, "%s", fault.text);
}

void ae_cpu_host_run(ae_stream *stream, ae_pool_job *job, void *context, uint32_t n)
{
    ae_pool_run(stream->pool, job, context, n);
}

void ae_cpu_watch(ae_stream *stream, ae_watch_fn *watch, void *user)
{
    stream->watch = watch;
    stream->watch_user = user;
}

uint32_t ae_cpu_mark(ae_stream *stream)
{
    stream->mark[stream->n_marks % AE_MARKS] = ae_time_now();
    return stream->n_marks++;
}

double ae_cpu_elapsed(const ae_stream *stream, uint32_t from, uint32_t to)
{
    return stream->mark[to % AE_MARKS] - stream->mark[from % AE_MARKS];
}

/* Nothing to wait for: operations run when they are called, also those of other streams. */
void ae_cpu_wait(ae_stream *stream, ae_stream *other)
{
    (void)stream, (void)other;
}

/* Calling an operation is cheap here, so passes are not recorded. */
bool ae_cpu_pass_begin(ae_stream *stream, uint64_t key)
{
    (void)stream, (void)key;
    return true;
}

void ae_cpu_pass_end(ae_stream *stream)
{
    (void)stream;
}

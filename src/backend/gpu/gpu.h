/* gpu.h - inside the GPU backends: the device, streams, weights and stores that their files share.
 *
 * One host side for all APIs: operations become launches of the kernels in kernels/, given to a driver (driver.h). All streams
 * of a backend share the device's one queue, so what one stream wrote another may read without a wait.
 */
#ifndef AE_BACKEND_GPU_GPU_H
#define AE_BACKEND_GPU_GPU_H

#include <pthread.h>
#include <stdatomic.h>

#include "backend/backend.h"
#include "backend/gpu/driver.h"
#include "backend/gpu/kernels/list.h"
#include "backend/gpu/scratch.h"
#include "base/mem.h"

#define AE_GPU_STREAMS (AE_GPU_MARKS / AE_MARKS) /* most streams of a backend */

typedef struct ae_gpu_backend {
    ae_backend base;
    ae_backend_ops ops;    /* base.ops points to it: the table, with this backend's name */
    char name[16];         /* "cuda", "cuda1", "emu" */
    const ae_gpu_driver *driver;
    ae_gpu_device *device;
    ae_gpu_facts facts;
    bool wait_each;        /* AERIE_GPU_WAIT=1: wait after each launch, so that a failure names its kernel */
    _Atomic uint64_t n_events; /* counts everything that may change device memory, and every wait */
    pthread_mutex_t mutex; /* guards the queue and the two fields below; held during a recording */
    const char *newest;    /* the kernel launched last, for messages */
    uint64_t streams;      /* bit i: a stream has marks [i * AE_MARKS, (i + 1) * AE_MARKS) of the device */
} ae_gpu_backend;

typedef struct ae_gpu_passes ae_gpu_passes; /* recorded passes (pass.c) */

struct ae_stream {
    ae_gpu_backend *backend;
    ae_stream_options options;
    aerie_error fault;       /* the first error since the last sync */
    bool recording;          /* between pass_begin and pass_end, with the backend's lock held */
    bool records;            /* passes are recorded */
    uint32_t mark_base, n_marks;
    ae_gpu_passes *passes;
    uint8_t *staging;        /* pinned, [staging_bytes]: uploads are copied here first; refilled from the start after a sync */
    size_t staging_bytes, staging_used;
    uint8_t *landing;        /* pinned, [landing_bytes]: for downloads, walks and proposals, only during a call */
    size_t landing_bytes;
    uint64_t waited;         /* value of the backend's n_events when only this stream's uploads were left to wait for */
    /* The newest results that the host computed and uploaded: while n_events has not changed, they are read from here. */
    struct {
        const void *device;
        uint8_t *bytes;      /* [capacity] */
        size_t n, capacity;
        uint64_t n_events;
    } results;
    uint8_t *call;           /* (host) [call_bytes] arrays of a walk or a proposal, used only during the call */
    size_t call_bytes;
    bool rows_to_host;       /* AERIE_GPU_DRAWS=0: draws fetch whole rows of logits */
    uint8_t *best;           /* (device) [best_bytes] scratch of best.c; NULL before it is first needed */
    size_t best_bytes;
    uint8_t *memory;         /* (device) one block of scratch, laid out by the functions below */
    size_t memory_bytes;
    ae_gpu_product_scratch product;
    ae_gpu_attention_scratch attention;
    ae_gpu_select_scratch select;
    ae_gpu_state_scratch state;
};

/* Opens device i of a driver as a backend of this name. */
aerie_status ae_gpu_open(const ae_gpu_driver *driver, uint32_t i, const char *name, ae_backend **out, aerie_error *error);

/* Adds the stream's scratch on the device to the layout: what the operations of a file need for these options. Called without a
 * base to count stream_bytes, and again with one; sizes must not depend on the base. */
void ae_gpu_product_layout(ae_layout *layout, const ae_gpu_backend *backend, const ae_stream_options *options,
                           ae_gpu_product_scratch *scratch);
void ae_gpu_attention_layout(ae_layout *layout, const ae_gpu_backend *backend, const ae_stream_options *options,
                             ae_gpu_attention_scratch *scratch);
void ae_gpu_select_layout(ae_layout *layout, const ae_gpu_backend *backend, const ae_stream_options *options,
                          ae_gpu_select_scratch *scratch);
void ae_gpu_state_layout(ae_layout *layout, const ae_gpu_backend *backend, const ae_stream_options *options,
                         ae_gpu_state_scratch *scratch);

static inline ae_gpu_backend *ae_gpu(const ae_backend *backend)
{
    return (ae_gpu_backend *)(uintptr_t)backend;
}

/* Must be called after whatever changes device memory or is queued. */
static inline void ae_gpu_count(ae_gpu_backend *backend)
{
    atomic_fetch_add(&backend->n_events, 1);
}

/* Launches kernel `i` over gx * gy * gz blocks. `args` is the kernel's struct. Errors are noted in the stream; an empty
 * grid launches nothing. */
void ae_gpu_launch(ae_stream *stream, ae_gpu_kernel i, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t n_shared,
                   const void *args);
/* Zeroes n bytes on the device, in the queue. */
void ae_gpu_zero(ae_stream *stream, void *device, size_t n);
/* Notes a failure in the stream: "cuda: <what>: <text of error>". */
void ae_gpu_note(ae_stream *stream, aerie_status status, const char *what, const aerie_error *error);
/* Notes that this backend does not run something: "cuda: recurrent layers ... (--device cpu runs them)". */
void ae_gpu_decline(ae_stream *stream, const char *what);

/* stream.c */
/* Takes the queue's lock, unless the stream is recording and already holds it. */
void ae_gpu_lock(ae_stream *stream);
void ae_gpu_unlock(ae_stream *stream);
/* Waits until the queue is empty; a failure is noted. what: names what waits, for messages. */
bool ae_gpu_wait(ae_stream *stream, const char *what);
/* Makes `landing` at least this large. A failure is noted in the stream. */
bool ae_gpu_land(ae_stream *stream, size_t bytes);
/* Queues the copy of n bytes into `landing` at offset `at`; they are there after a wait. A failure is noted in the stream. */
bool ae_gpu_fetch(ae_stream *stream, size_t at, const void *device, size_t n);
/* Uploads (host) results that the caller will probably download next. */
void ae_gpu_publish(ae_stream *stream, void *device, const void *host, size_t n);
/* Returns whether a copy between host and device is allowed now. In a recording it is not, and a failure is noted. */
bool ae_gpu_may_copy(ae_stream *stream, const char *what);
size_t ae_gpu_stream_bytes(const ae_backend *backend, const ae_stream_options *options);
aerie_status ae_gpu_stream_create(ae_backend *backend, const ae_stream_options *options, ae_stream **out, aerie_error *error);
void ae_gpu_stream_free(ae_stream *stream);
aerie_status ae_gpu_sync(ae_stream *stream, aerie_error *error);
void ae_gpu_host_run(ae_stream *stream, ae_pool_job *job, void *context, uint32_t n);
void ae_gpu_upload(ae_stream *stream, void *device, const void *host, size_t n);
void ae_gpu_download(ae_stream *stream, void *host, const void *device, size_t n);
const void *ae_gpu_view(ae_stream *stream, const void *device, void *room, size_t n);
uint32_t ae_gpu_mark(ae_stream *stream);
double ae_gpu_elapsed(const ae_stream *stream, uint32_t from, uint32_t to);

/* pass.c */
void ae_gpu_wait_for(ae_stream *stream, ae_stream *other);
bool ae_gpu_pass_begin(ae_stream *stream, uint64_t key);
void ae_gpu_pass_end(ae_stream *stream);

/* weight.c */
size_t ae_gpu_weight_bytes(const ae_backend *backend, const ae_weight_source *source);
aerie_status ae_gpu_weight_create(ae_backend *backend, const ae_weight_source *source, void *memory, ae_weight **out,
                                  aerie_error *error);
aerie_status ae_gpu_weight_fill(ae_backend *backend, ae_weight *weight, const void *rows, uint32_t first, uint32_t n,
                                aerie_error *error);
void ae_gpu_weight_free(ae_backend *backend, ae_weight *weight);

/* product.c */
void ae_gpu_matmul(ae_stream *stream, const ae_matmul *args);
void ae_gpu_head_matmul(ae_stream *stream, const ae_head_matmul *args);
void ae_gpu_lookup(ae_stream *stream, const ae_weight *table, const int32_t *tokens, uint32_t n_rows, float *y,
                   size_t y_stride);

/* rows.c */
void ae_gpu_norm(ae_stream *stream, const ae_norm *args);
void ae_gpu_axpy(ae_stream *stream, const ae_axpy *args);
void ae_gpu_map(ae_stream *stream, const ae_map *args);
void ae_gpu_mix(ae_stream *stream, const ae_row_mix *args);
void ae_gpu_hyper(ae_stream *stream, const ae_hyper *args);
void ae_gpu_accord(ae_stream *stream, const ae_accord *args);
void ae_gpu_copy(ae_stream *stream, const ae_copy *args);

/* kv.c */
size_t ae_gpu_kv_bytes(const ae_backend *backend, const ae_kv_shape *shape);
aerie_status ae_gpu_kv_create(ae_backend *backend, const ae_kv_shape *shape, ae_kv_store **out, aerie_error *error);
void ae_gpu_kv_free(ae_backend *backend, ae_kv_store *kv);
void ae_gpu_kv_copy_page(ae_stream *stream, ae_kv_store *kv, int32_t from, int32_t to, uint32_t n);
void ae_gpu_kv_commit(ae_stream *stream, const ae_kv_commit_args *args);
size_t ae_gpu_kv_slot_bytes(const ae_kv_store *kv);
void ae_gpu_kv_read(ae_stream *stream, const ae_kv_store *kv, const int32_t *table, int32_t slot, void *out);
void ae_gpu_kv_write(ae_stream *stream, ae_kv_store *kv, const int32_t *table, int32_t slot, const void *bytes);

/* rope.c */
void ae_gpu_rope_table(ae_stream *stream, const ae_rope_table *args);
void ae_gpu_rope_kv(ae_stream *stream, const ae_rope_kv *args);
void ae_gpu_rotate(ae_stream *stream, const ae_rotate *args);
void ae_gpu_compress(ae_stream *stream, const ae_compress *args);
void ae_gpu_ngrams(ae_stream *stream, const ae_ngrams *args);
void ae_gpu_trail(ae_stream *stream, const ae_trail *args);

/* attention.c */
void ae_gpu_attention(ae_stream *stream, const ae_attention *args);
void ae_gpu_select(ae_stream *stream, const ae_select *args);

/* draw.c */
/* Returns the bytes that a stream reserves for the arrays of a call; a call that needs more allocates more. */
size_t ae_gpu_draw_bytes(const ae_stream_options *options);
void ae_gpu_walk(ae_stream *stream, const ae_walk *args);
void ae_gpu_propose(ae_stream *stream, const ae_propose *args);

/* moe.c */
void ae_gpu_moe(ae_stream *stream, const ae_moe *args);

/* recurrent.c */
size_t ae_gpu_state_bytes(const ae_backend *backend, const ae_state_shape *shape);
aerie_status ae_gpu_state_create(ae_backend *backend, const ae_state_shape *shape, ae_state_store **out, aerie_error *error);
void ae_gpu_state_free(ae_backend *backend, ae_state_store *store);
void ae_gpu_state_zero(ae_stream *stream, ae_state_store *store, uint32_t plane);
void ae_gpu_state_copy(ae_stream *stream, ae_state_store *store, uint32_t from, uint32_t to);
void ae_gpu_state_absorb(ae_stream *stream, const ae_state_pass *pass);
size_t ae_gpu_state_plane_bytes(const ae_state_store *store);
void ae_gpu_state_read(ae_stream *stream, const ae_state_store *store, uint32_t plane, void *out);
void ae_gpu_state_write(ae_stream *stream, ae_state_store *store, uint32_t plane, const void *bytes);
void ae_gpu_conv(ae_stream *stream, const ae_conv *args);
void ae_gpu_recur(ae_stream *stream, const ae_recur *args);
void ae_gpu_gated_norm(ae_stream *stream, const ae_gated_norm *args);

#endif

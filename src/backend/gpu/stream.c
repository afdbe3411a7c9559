/* stream.c - streams of the GPU backends: scratch, failures, marks, copies between host and device.
 * Owns a stream's scratch on the device and its two pinned buffers on the host. Uploads are copied to `staging` first, so the
 * caller's array is free at once; the queue is waited for only when that buffer is full. Downloads go through `landing`, which
 * is in use only during a call. Defines the functions of limit.h, too. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/gpu/gpu.h"
#include "backend/alloc_fail.h"
#include "backend/gpu/limit.h"
#include "backend/gpu/pass.h"
#include "base/mem.h"
#include "base/os.h"

#define STAGING_BYTES ((size_t)4 << 20)
#define LANDING_BYTES ((size_t)4 << 20) /* initial size; walks and proposals may need more */
#define STAGING_ALIGN 64

/* ---- The queue's lock, failures --------------------------------------------------------------------------- */

void ae_gpu_lock(ae_stream *stream)
{
    if (!stream->recording) pthread_mutex_lock(&stream->backend->mutex);
}

void ae_gpu_unlock(ae_stream *stream)
{
    if (!stream->recording) pthread_mutex_unlock(&stream->backend->mutex);
}

bool ae_gpu_wait(ae_stream *stream, const char *what)
{
    ae_gpu_backend *b = stream->backend;
    aerie_error error = {0};
    char text[160];
    ae_gpu_lock(stream);
    const uint64_t n_events = atomic_load(&b->n_events);
    const aerie_status status = b->driver->sync(b->device, &error);
    const char *newest = b->newest;
    ae_gpu_unlock(stream);
    stream->waited = n_events;
    stream->staging_used = 0;
    if (status == AERIE_OK) return true;
    snprintf(text, sizeof text, "%s; the newest kernel was %s (AERIE_GPU_WAIT=1 tells which one failed)", what, newest);
    ae_gpu_note(stream, status, text, &error);
    return false;
}

bool ae_gpu_may_copy(ae_stream *stream, const char *what)
{
    if (!stream->recording) return true;
    ae_backend_note(&stream->fault, AERIE_ERROR_INTERNAL, "%s: %s inside a recorded pass, which a replay would skip; this is a "
                    "bug, please report it (AERIE_GPU_GRAPHS=0 runs without recordings)", stream->backend->name, what);
    return false;
}

aerie_status ae_gpu_sync(ae_stream *stream, aerie_error *error)
{
    if (ae_gpu_may_copy(stream, "a wait") && stream->waited != atomic_load(&stream->backend->n_events))
        ae_gpu_wait(stream, "waiting for the device");
    const aerie_error fault = stream->fault;
    stream->fault.status = AERIE_OK;
    return fault.status == AERIE_OK ? AERIE_OK : ae_fail(error, fault.status, "%s", fault.text);
}

/* ---- Streams ---------------------------------------------------------------------------------------------- */

static void stream_layout(ae_layout *layout, const ae_gpu_backend *b, const ae_stream_options *o, ae_stream *s)
{
    ae_gpu_product_layout(layout, b, o, &s->product);
    ae_gpu_attention_layout(layout, b, o, &s->attention);
    ae_gpu_select_layout(layout, b, o, &s->select);
    ae_gpu_state_layout(layout, b, o, &s->state);
}

size_t ae_gpu_stream_bytes(const ae_backend *backend, const ae_stream_options *options)
{
    ae_stream s;
    ae_layout layout = {0};
    size_t bytes;
    memset(&s, 0, sizeof s);
    stream_layout(&layout, ae_gpu(backend), options, &s);
    return layout.overflow || !ae_add_size(layout.bytes, sizeof s + STAGING_BYTES + LANDING_BYTES, &bytes) ? SIZE_MAX : bytes;
}

static aerie_status take_marks(ae_stream *s, aerie_error *error)
{
    ae_gpu_backend *b = s->backend;
    uint32_t i = 0;
    pthread_mutex_lock(&b->mutex);
    while (i < AE_GPU_STREAMS && b->streams >> i & 1) i++;
    if (i < AE_GPU_STREAMS) b->streams |= 1ull << i;
    pthread_mutex_unlock(&b->mutex);
    s->mark_base = i * AE_MARKS;
    if (i < AE_GPU_STREAMS) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_LIMIT, "%s runs at most %d sessions and drafters at once", b->name, AE_GPU_STREAMS);
}

static void give_marks(ae_stream *s)
{
    ae_gpu_backend *b = s->backend;
    const uint32_t i = s->mark_base / AE_MARKS;
    pthread_mutex_lock(&b->mutex);
    if (i < AE_GPU_STREAMS) b->streams &= ~(1ull << i);
    pthread_mutex_unlock(&b->mutex);
}

void ae_gpu_stream_free(ae_stream *stream)
{
    if (!stream) return;
    ae_gpu_backend *b = stream->backend;
    const ae_gpu_driver *d = b->driver;
    ae_gpu_wait(stream, "closing a stream"); /* the queue may still use what is freed */
    ae_gpu_passes_free(stream);
    if (stream->memory) d->free(b->device, stream->memory);
    if (stream->best) d->free(b->device, stream->best);
    if (stream->staging) d->free_pinned(b->device, stream->staging);
    if (stream->landing) d->free_pinned(b->device, stream->landing);
    give_marks(stream);
    ae_free(stream->results.bytes);
    ae_free(stream->call);
    ae_free(stream);
}

static aerie_status create_scratch(ae_stream *s, aerie_error *error)
{
    ae_gpu_backend *b = s->backend;
    ae_layout layout = {0};
    stream_layout(&layout, b, &s->options, s);
    s->memory_bytes = layout.bytes;
    if (layout.overflow) return ae_fail_memory(error, "a stream's scratch on the device", layout.bytes);
    if (layout.bytes) {
        s->memory = b->driver->alloc(b->device, layout.bytes);
        if (!s->memory) return ae_backend_fail_alloc(&b->base, "a stream's scratch on the device", layout.bytes, error);
        layout = (ae_layout){.base = (char *)s->memory};
        stream_layout(&layout, b, &s->options, s);
    }
    s->staging = b->driver->alloc_pinned(b->device, STAGING_BYTES);
    if (!s->staging) return ae_fail_memory(error, "a stream's pinned memory for uploads", STAGING_BYTES);
    s->staging_bytes = STAGING_BYTES;
    s->landing = b->driver->alloc_pinned(b->device, LANDING_BYTES);
    if (!s->landing) return ae_fail_memory(error, "a stream's pinned memory for downloads", LANDING_BYTES);
    s->landing_bytes = LANDING_BYTES;
    s->call_bytes = ae_gpu_draw_bytes(&s->options);
    s->call = ae_alloc(s->call_bytes, 1);
    if (!s->call) return ae_fail_memory(error, "a stream's memory for draws", s->call_bytes);
    return ae_gpu_passes_create(s, error);
}

aerie_status ae_gpu_stream_create(ae_backend *backend, const ae_stream_options *options, ae_stream **out, aerie_error *error)
{
    *out = NULL;
    ae_stream *s = ae_alloc(1, sizeof *s);
    if (!s) return ae_fail_memory(error, "a stream", sizeof *s);
    s->backend = ae_gpu(backend);
    s->options = *options;
    const char *draws = getenv("AERIE_GPU_DRAWS");
    s->rows_to_host = draws && !strcmp(draws, "0");
    aerie_status status = take_marks(s, error);
    if (status == AERIE_OK) status = create_scratch(s, error);
    s->options.state = NULL; /* lent for the call */
    if (status != AERIE_OK) {
        ae_gpu_stream_free(s);
        return status;
    }
    *out = s;
    return AERIE_OK;
}

void ae_gpu_host_run(ae_stream *stream, ae_pool_job *job, void *context, uint32_t n)
{
    ae_pool_run(stream->options.pool, job, context, n);
}

/* ---- Copies ----------------------------------------------------------------------------------------------- */

/* Queues the upload of n bytes, no more than the staging block holds. */
static bool upload_piece(ae_stream *s, uint8_t *device, const uint8_t *host, size_t n)
{
    ae_gpu_backend *b = s->backend;
    aerie_error error = {0};
    if (n > s->staging_bytes - s->staging_used && !ae_gpu_wait(s, "an upload")) return false;
    uint8_t *at = s->staging + s->staging_used;
    memcpy(at, host, n);
    const size_t used = s->staging_used + (n + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
    s->staging_used = used < s->staging_bytes ? used : s->staging_bytes;
    ae_gpu_lock(s);
    const aerie_status status = b->driver->copy_in(b->device, device, at, n, &error);
    const uint64_t before = atomic_fetch_add(&b->n_events, 1);
    ae_gpu_unlock(s);
    if (s->waited == before) s->waited++;
    if (status != AERIE_OK) ae_gpu_note(s, status, "an upload", &error);
    return status == AERIE_OK;
}

void ae_gpu_upload(ae_stream *stream, void *device, const void *host, size_t n)
{
    if (!n || !ae_gpu_may_copy(stream, "an upload")) return;
    for (size_t done = 0; done < n;) {
        const size_t left = n - done, piece = left < stream->staging_bytes ? left : stream->staging_bytes;
        if (!upload_piece(stream, (uint8_t *)device + done, (const uint8_t *)host + done, piece)) return;
        done += piece;
    }
}

void ae_gpu_publish(ae_stream *stream, void *device, const void *host, size_t n)
{
    ae_gpu_upload(stream, device, host, n);
    if (n > stream->results.capacity) {
        ae_free(stream->results.bytes);
        stream->results.bytes = ae_alloc(n, 1);
        stream->results.capacity = stream->results.bytes ? n : 0;
    }
    stream->results.device = n <= stream->results.capacity ? device : NULL; /* without memory they are downloaded */
    stream->results.n = n;
    stream->results.n_events = stream->waited;
    if (stream->results.device) memcpy(stream->results.bytes, host, n);
}

/* Returns whether the n bytes at `device` are the newest results, with nothing after them. */
static bool are_results(const ae_stream *s, const void *device, size_t n)
{
    return device == s->results.device && n <= s->results.n && s->results.n_events == atomic_load(&s->backend->n_events);
}

bool ae_gpu_land(ae_stream *stream, size_t bytes)
{
    ae_gpu_backend *b = stream->backend;
    if (bytes <= stream->landing_bytes) return true;
    uint8_t *larger = b->driver->alloc_pinned(b->device, bytes);
    if (!larger) {
        ae_backend_note(&stream->fault, AERIE_ERROR_MEMORY, "%s: not enough pinned memory for downloads (%zu bytes)", b->name,
                        bytes);
        return false;
    }
    b->driver->free_pinned(b->device, stream->landing);
    stream->landing = larger;
    stream->landing_bytes = bytes;
    return true;
}

bool ae_gpu_fetch(ae_stream *stream, size_t at, const void *device, size_t n)
{
    ae_gpu_backend *b = stream->backend;
    aerie_error error = {0};
    if (!n) return true;
    ae_gpu_lock(stream);
    const aerie_status status = b->driver->copy_out(b->device, stream->landing + at, device, n, &error);
    ae_gpu_unlock(stream);
    if (status != AERIE_OK) ae_gpu_note(stream, status, "a download", &error);
    return status == AERIE_OK;
}

static bool download_piece(ae_stream *s, uint8_t *host, const uint8_t *device, size_t n)
{
    const bool queued = ae_gpu_fetch(s, 0, device, n);
    if (!ae_gpu_wait(s, "a download") || !queued) return false;
    memcpy(host, s->landing, n);
    return true;
}

void ae_gpu_download(ae_stream *stream, void *host, const void *device, size_t n)
{
    size_t done = 0;
    const bool may = !n || ae_gpu_may_copy(stream, "a download");
    if (may && device && are_results(stream, device, n)) {
        memcpy(host, stream->results.bytes, n);
        return;
    }
    while (may && done < n) {
        const size_t left = n - done, piece = left < stream->landing_bytes ? left : stream->landing_bytes;
        if (!download_piece(stream, (uint8_t *)host + done, (const uint8_t *)device + done, piece)) break;
        done += piece;
    }
    if (done < n) memset((uint8_t *)host + done, 0, n - done); /* so that the output is defined after a failure */
}

const void *ae_gpu_view(ae_stream *stream, const void *device, void *room, size_t n)
{
    ae_gpu_download(stream, room, device, n);
    return room;
}

/* ---- Marks ------------------------------------------------------------------------------------------------ */

uint32_t ae_gpu_mark(ae_stream *stream)
{
    ae_gpu_backend *b = stream->backend;
    aerie_error error = {0};
    const uint32_t n = stream->n_marks++;
    if (!ae_gpu_may_copy(stream, "a mark")) return n;
    ae_gpu_lock(stream);
    const aerie_status status = b->driver->mark(b->device, stream->mark_base + n % AE_MARKS, &error);
    ae_gpu_count(b);
    ae_gpu_unlock(stream);
    if (status != AERIE_OK) ae_gpu_note(stream, status, "a mark", &error);
    return n;
}

double ae_gpu_elapsed(const ae_stream *stream, uint32_t from, uint32_t to)
{
    ae_gpu_backend *b = stream->backend;
    const uint32_t base = stream->mark_base;
    pthread_mutex_lock(&b->mutex);
    const double seconds = b->driver->elapsed(b->device, base + from % AE_MARKS, base + to % AE_MARKS);
    pthread_mutex_unlock(&b->mutex);
    return seconds;
}

/* A device has one queue (driver.h), so work runs in the order in which its streams submitted it. */
void ae_gpu_wait_for(ae_stream *stream, ae_stream *other)
{
    (void)stream, (void)other;
}

/* ---- Devices that hang ------------------------------------------------------------------------------------ */

#define MOST_SECONDS 1e6
#define SPIN_SECONDS 0.02 /* passes are shorter, and a sleep would cost them 50 us and more */
#define NAP_NANOSECONDS 100000

double ae_gpu_limit(double otherwise)
{
    const char *said = getenv("AERIE_GPU_LIMIT");
    char *end = NULL;
    const double limit = said ? strtod(said, &end) : 0;
    if (!said || end == said || *end || !(limit >= 0)) return otherwise;
    return limit < MOST_SECONDS ? limit : MOST_SECONDS;
}

bool ae_gpu_pause(double start, double limit)
{
    const double waited = ae_time_now() - start;
    if (limit > 0 && waited > limit) return false;
    if (waited > SPIN_SECONDS) (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NANOSECONDS}, NULL);
    return true;
}

aerie_status ae_gpu_hung(double limit, aerie_error *error)
{
    return ae_fail(error, AERIE_ERROR_INTERNAL, "the device made no progress for %g s and is given up; restarting the program "
                   "may bring it back (AERIE_GPU_LIMIT=0 waits without a limit)", limit);
}

/* pass.c - recorded passes: pass_begin and pass_end.
 * Owns a stream's recordings. The first pass with a key runs without recording, so that shapes that never come again cost
 * nothing. The second one is recorded: its launches are kept, and pass_end replays them. Later ones are replayed. A stream
 * keeps MAX_PASSES recordings and drops the least recently used one. A separate ring remembers keys that were seen once, so
 * that many rare keys do not push out recordings. The queue's lock is held while a pass is recorded. */
#include "backend/gpu/pass.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MAX_PASSES 64
#define MAX_SEEN 64

struct ae_gpu_passes {
    uint32_t n, n_seen;
    uint64_t clock; /* number of passes so far */
    uint32_t n_recorded, n_replayed;
    uint64_t key;   /* key of the pass that is being recorded */
    struct {
        uint64_t key, used;
        ae_gpu_recording *recording;
    } kept[MAX_PASSES]; /* [n] */
    uint64_t seen[MAX_SEEN]; /* [min(n_seen, MAX_SEEN)] ring of keys that were seen once */
};

aerie_status ae_gpu_passes_create(ae_stream *stream, aerie_error *error)
{
    const char *said = getenv("AERIE_GPU_GRAPHS");
    stream->records = stream->backend->driver->record_begin && !(said && !strcmp(said, "0"));
    if (!stream->records) return AERIE_OK;
    stream->passes = ae_alloc(1, sizeof *stream->passes);
    return stream->passes ? AERIE_OK : ae_fail_memory(error, "a stream's recorded passes", sizeof *stream->passes);
}

void ae_gpu_passes_free(ae_stream *stream)
{
    ae_gpu_backend *b = stream->backend;
    ae_gpu_passes *p = stream->passes;
    if (!p) return;
    ae_gpu_lock(stream);
    for (uint32_t i = 0; i < p->n; i++) b->driver->recording_free(b->device, p->kept[i].recording);
    ae_gpu_unlock(stream);
    ae_free(p);
    stream->passes = NULL;
}

void ae_gpu_passes_count(const ae_stream *stream, uint32_t *n_recorded, uint32_t *n_replayed)
{
    *n_recorded = stream->passes ? stream->passes->n_recorded : 0;
    *n_replayed = stream->passes ? stream->passes->n_replayed : 0;
}

static bool was_seen(ae_gpu_passes *p, uint64_t key)
{
    const uint32_t n = p->n_seen < MAX_SEEN ? p->n_seen : MAX_SEEN;
    for (uint32_t i = 0; i < n; i++)
        if (p->seen[i] == key) return true;
    p->seen[p->n_seen++ % MAX_SEEN] = key;
    return false;
}

/* Replays recording i of the stream. The caller holds the lock. */
static aerie_status replay(ae_stream *s, uint32_t i, aerie_error *error)
{
    ae_gpu_backend *b = s->backend;
    ae_gpu_passes *p = s->passes;
    b->newest = "of a recorded pass";
    p->kept[i].used = p->clock;
    p->n_replayed++;
    ae_gpu_count(b);
    return b->driver->replay(b->device, p->kept[i].recording, error);
}

bool ae_gpu_pass_begin(ae_stream *stream, uint64_t key)
{
    ae_gpu_backend *b = stream->backend;
    ae_gpu_passes *p = stream->passes;
    aerie_error error = {0};
    if (!stream->records || stream->recording || stream->fault.status != AERIE_OK) return true;
    p->clock++;
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->kept[i].key != key) continue;
        ae_gpu_lock(stream);
        const aerie_status status = replay(stream, i, &error);
        ae_gpu_unlock(stream);
        if (status != AERIE_OK) ae_gpu_note(stream, status, "a recorded pass", &error);
        return false;
    }
    if (!was_seen(p, key)) return true;
    pthread_mutex_lock(&b->mutex);
    if (b->driver->record_begin(b->device, &error) != AERIE_OK) { /* this pass and all later ones run without recording */
        pthread_mutex_unlock(&b->mutex);
        stream->records = false;
        return true;
    }
    p->key = key;
    stream->recording = true;
    return true;
}

/* Returns the slot for a new recording: a free one, or that of the least recently used recording. */
static uint32_t make_place(ae_stream *s)
{
    ae_gpu_backend *b = s->backend;
    ae_gpu_passes *p = s->passes;
    uint32_t oldest = 0;
    if (p->n < MAX_PASSES) return p->n++;
    for (uint32_t i = 1; i < p->n; i++)
        if (p->kept[i].used < p->kept[oldest].used) oldest = i;
    b->driver->recording_free(b->device, p->kept[oldest].recording);
    return oldest;
}

void ae_gpu_pass_end(ae_stream *stream)
{
    ae_gpu_backend *b = stream->backend;
    ae_gpu_passes *p = stream->passes;
    ae_gpu_recording *recording = NULL;
    aerie_error error = {0};
    if (!stream->recording) return;
    aerie_status status = b->driver->record_end(b->device, &recording, &error);
    if (status != AERIE_OK) {
        stream->records = false;
    } else if (stream->fault.status != AERIE_OK) { /* the recording is incomplete */
        b->driver->recording_free(b->device, recording);
    } else {
        const uint32_t i = make_place(stream);
        p->kept[i].key = p->key;
        p->kept[i].recording = recording;
        p->n_recorded++;
        status = replay(stream, i, &error);
    }
    stream->recording = false;
    pthread_mutex_unlock(&b->mutex);
    if (status != AERIE_OK) ae_gpu_note(stream, status, "recording a pass", &error);
}

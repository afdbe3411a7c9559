/* strict_late.c - the streams of "cpu-strict" run their operations as late as the seam allows (backend.h): when somebody waits
 * for them. So code that reads a stream's results without waiting gets old ones, as it may on a device with a queue for each
 * stream, and code that changes an operation's (host) arguments too early is found, too.
 *
 * Owns the list of operations of each stream, with copies of their arguments, in one block that is kept, so that a loop which
 * does the same again and again allocates nothing. Not thread-safe: a stream has one user. */
#include "backend/cpu/strict.h"

#include <string.h>

#include "backend/cpu/cpu_int.h"

#define ALIGN 16

/* Stands in the block before the operation's arguments. */
typedef struct late {
    ae_cpu_late_run *run;
    size_t bytes; /* bytes of the entry with its arguments; a multiple of ALIGN */
} late;

struct ae_cpu_late {
    uint8_t *block;
    size_t n, capacity; /* bytes */
};

static size_t aligned(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

void *ae_cpu_late_extra(void *args, size_t n_args)
{
    return (uint8_t *)args + aligned(n_args);
}

/* Returns space for n more bytes; NULL: out of memory. */
static uint8_t *room_for(ae_cpu_late *list, size_t n)
{
    if (list->capacity - list->n < n) {
        const size_t capacity = 2 * (list->n + n);
        uint8_t *block = ae_alloc_aligned(1, capacity);
        if (!block) return NULL;
        if (list->n) memcpy(block, list->block, list->n);
        ae_free(list->block);
        list->block = block;
        list->capacity = capacity;
    }
    return list->block + list->n;
}

void ae_cpu_late_add(ae_stream *stream, ae_cpu_late_run *run, const void *args, size_t n_args, const void *extra,
                     size_t n_extra)
{
    const late l = {run, aligned(sizeof l) + aligned(n_args) + aligned(n_extra)};
    if (!stream->late) stream->late = ae_alloc(1, sizeof *stream->late);
    uint8_t *at = stream->late ? room_for(stream->late, l.bytes) : NULL;
    if (!at) {
        ae_backend_note(&stream->fault, AERIE_ERROR_MEMORY, "not enough memory to run an operation later");
        return;
    }
    memcpy(at, &l, sizeof l);
    at += aligned(sizeof l);
    memcpy(at, args, n_args);
    if (n_extra) memcpy(ae_cpu_late_extra(at, n_args), extra, n_extra);
    stream->late->n += l.bytes;
}

bool ae_cpu_late_waits(const ae_stream *stream)
{
    return stream->late && stream->late->n;
}

void ae_cpu_late_flush(ae_stream *stream)
{
    ae_cpu_late *list = stream->late;
    for (size_t at = 0; list && at < list->n;) {
        const late *l = (const late *)(void *)(list->block + at);
        at += l->bytes;
        l->run(stream, (uint8_t *)(uintptr_t)l + aligned(sizeof *l));
    }
    if (list) list->n = 0;
}

void ae_cpu_late_free(ae_stream *stream)
{
    if (stream->late) ae_free(stream->late->block);
    ae_free(stream->late);
}

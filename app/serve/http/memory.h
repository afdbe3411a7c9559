/* memory.h - limits the total memory of all requests in progress.
 * Counts the memory that grows with a request's body or answer, from the first bytes of the body on: the body, the parsed JSON,
 * tokens, vectors, and generated tokens that were not sent. A request that would exceed --max-request-memory is refused with
 * 503. Without that option the limit is half of the memory available at the start, and falls when less is left.
 * Owns the counts, not the memory. Invariants: the last part of the limit is reserved for requests that hold little, so that
 * large ones cannot lock the others out. What was counted for a request is subtracted when it ends, at the latest. */
#ifndef AERIE_APP_SERVE_HTTP_MEMORY_H
#define AERIE_APP_SERVE_HTTP_MEMORY_H

#include <stdatomic.h>

#include "shared/app.h"

typedef struct serve_memory {
    uint64_t share;       /* upper bound of the default limit in bytes; 0 if the option was given */
    atomic_ullong most;   /* the current limit in bytes */
    atomic_ullong used;
    atomic_ullong n_refused; /* requests */
    atomic_bool returns;  /* a large request has ended, so the allocator's free memory should return to the system */
} serve_memory;

/* Memory of one request. Initially all zero except `of`. */
typedef struct serve_use {
    serve_memory *of;
    atomic_ullong bytes, peak;
    atomic_bool refused; /* an allocation was refused */
} serve_use;

/* Returns the bytes that the machine and its control groups have left; 0: unknown. */
uint64_t serve_memory_available(void);
/* Sets the limit to mib MiB; 0: derived from the available memory. */
void serve_memory_create(serve_memory *memory, uint32_t mib);
/* Adapts the default limit to the available memory, and returns memory that large requests have freed to the system. The main
 * thread calls it now and then. */
void serve_memory_tidy(serve_memory *memory);

/* Counts bytes, from any thread. Returns false without counting any if the limit would be exceeded. */
bool serve_use_add(serve_use *use, size_t bytes);
/* Counts bytes whatever the limit, for memory that is small or already allocated. */
void serve_use_force(serve_use *use, size_t bytes);
void serve_use_drop(serve_use *use, size_t bytes);
/* Subtracts everything that the request holds. */
void serve_use_end(serve_use *use);
/* Like app_grow, but counts the memory. */
void *serve_use_grow(serve_use *use, void *items, size_t n, size_t *capacity, size_t size);
/* Implements app_json_change; the user is a serve_use. */
bool serve_use_json(void *use, ptrdiff_t bytes, bool must);

#endif

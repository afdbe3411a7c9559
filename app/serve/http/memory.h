/* memory.h - the memory that requests on their way may hold, all of them together.
 *
 * What a request holds in proportion to its body or its answer is counted from the first bytes of the body on: the body, the
 * tree that JSON is read into, tokens, vectors, tokens that have been generated and not sent. Beyond --max-request-memory a
 * request is refused with 503. Where the option is not given the limit is a part of the memory that the machine and its
 * control groups had at the start, and follows what is left of it.
 * Owns: the counts. Does not own: the memory. Invariants: the last part of the limit is for requests that hold little, so that
 * large ones cannot shut the others out; what a request has been counted for is given back when it ends, at the latest.
 */
#ifndef AERIE_APP_SERVE_HTTP_MEMORY_H
#define AERIE_APP_SERVE_HTTP_MEMORY_H

#include <stdatomic.h>

#include "shared/app.h"

typedef struct serve_memory {
    uint64_t share;       /* of the default; 0: the option was given */
    atomic_ullong most;   /* bytes */
    atomic_ullong used;
    atomic_ullong n_refused; /* requests */
    atomic_bool returns;  /* a large request has ended: what the allocator keeps of it goes back */
} serve_memory;

/* What one request holds. All zero but for `of` at first. */
typedef struct serve_use {
    serve_memory *of;
    atomic_ullong bytes, peak;
    atomic_bool refused; /* something was not granted */
} serve_use;

/* mib 0: by the memory that there is. */
void serve_memory_create(serve_memory *memory, uint32_t mib);
/* From time to time, of the main thread: follows the memory that is left, and gives back what large requests have left. */
void serve_memory_tidy(serve_memory *memory);

/* From any thread. false: that is more than there is, and nothing is counted. */
bool serve_use_add(serve_use *use, size_t bytes);
/* Counted, however much there is: what is small, or is there already. */
void serve_use_force(serve_use *use, size_t bytes);
void serve_use_drop(serve_use *use, size_t bytes);
/* All of it is given back. */
void serve_use_end(serve_use *use);
/* As app_grow, counted. */
void *serve_use_grow(serve_use *use, void *items, size_t n, size_t *capacity, size_t size);
/* app_json_change, with a serve_use as user. */
bool serve_use_json(void *use, ptrdiff_t bytes, bool must);

#endif

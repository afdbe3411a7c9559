/* mem.h - heap memory with checked sizes, a bump arena, a growable byte buffer, a layout.
 *
 * All heap memory of the library is allocated by these functions, so a test can make each allocation fail in turn. Every
 * function that can run out of memory reports it by NULL or by a status.
 * Lifetimes (ARCHITECTURE.md): model, session, step, request; each owns one arena or layout.
 */
#ifndef AE_BASE_MEM_H
#define AE_BASE_MEM_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"

#define AE_ALIGN 64 /* bytes: a cache line and an AVX-512 vector */

/* Computes a * b for sizes from files. Returns false if the result would wrap. */
static inline bool ae_mul_size(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
/* Computes a + b for sizes from files. Returns false if the result would wrap. */
static inline bool ae_add_size(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }

/* Returns n * size bytes, zeroed; NULL if they cannot be allocated. Free with ae_free. */
void *ae_alloc(size_t n, size_t size);
/* Returns n * size bytes, zeroed and aligned to AE_ALIGN. Free with ae_free. */
void *ae_alloc_aligned(size_t n, size_t size);
/* Grows or shrinks a block; new bytes are not zeroed. On failure the result is NULL and the old block stays valid. */
void *ae_realloc(void *block, size_t n, size_t size);
/* Makes room for item n of a growing list items [*capacity]. Returns the list, which may have moved. When out of memory returns
 * NULL, and the old list stays valid. */
void *ae_grow(void *items, size_t n, size_t *capacity, size_t size);
void ae_free(void *block);
/* Returns a copy of text[0..n) with a NUL after it; NULL when out of memory. */
char *ae_strndup(const char *text, size_t n);

/* ---- Arena: many small objects, one lifetime ------------------------------------------- */

typedef struct ae_arena {
    struct ae_arena_chunk *chunk; /* newest first */
    size_t chunk_bytes;           /* usual chunk size */
    size_t used_bytes;            /* bytes handed out since init or reset */
} ae_arena;

void ae_arena_init(ae_arena *arena, size_t chunk_bytes);
/* Returns zeroed memory, aligned to 16; NULL when out of memory. n == 0 gives a valid pointer. */
void *ae_arena_alloc(ae_arena *arena, size_t n, size_t size);
char *ae_arena_strndup(ae_arena *arena, const char *text, size_t n);
void ae_arena_free(ae_arena *arena);

/* ---- Layout: the parts of one large block ----------------------------------------------- */
/* A first run without a block counts the bytes; the same code, run over the block, gives the same offsets:
 *     ae_layout l = {0}; plan(&l, NULL); block = ae_alloc_aligned(1, l.bytes);
 *     l = (ae_layout){.base = block};  plan(&l, &state);                                    */

typedef struct ae_layout {
    char *base;   /* NULL while counting */
    size_t bytes; /* used so far */
    bool overflow;
} ae_layout;

/* Returns n * size bytes at the next multiple of AE_ALIGN, or NULL while counting. */
void *ae_layout_add(ae_layout *layout, size_t n, size_t size);

/* ---- Growable byte buffer --------------------------------------------------------------- */

/* Bytes begin..end of a text, the end excluded. */
typedef struct ae_span {
    size_t begin, end;
} ae_span;

typedef struct ae_buf {
    char *data;      /* owned; once anything was added, a NUL follows the last byte */
    size_t n;        /* bytes without the NUL */
    size_t capacity; /* bytes allocated */
    bool failed;     /* an append ran out of memory; later appends do nothing */
} ae_buf;

/* Makes room for `extra` more bytes; when out of memory returns false and sets `failed`. */
bool ae_buf_reserve(ae_buf *buf, size_t extra);
void ae_buf_add(ae_buf *buf, const void *bytes, size_t n);
void ae_buf_adds(ae_buf *buf, const char *text);
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void ae_buf_addf(ae_buf *buf, const char *format, ...);
void ae_buf_clear(ae_buf *buf);
void ae_buf_free(ae_buf *buf);

#endif

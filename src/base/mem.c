/* mem.c - heap blocks, arenas, layouts and buffers (mem.h). Sizes are checked before malloc is called. */
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

void *ae_alloc(size_t n, size_t size)
{
    return calloc(n ? n : 1, size ? size : 1);
}

void *ae_alloc_aligned(size_t n, size_t size)
{
    size_t bytes;
    if (!ae_mul_size(n, size, &bytes) || !ae_add_size(bytes, AE_ALIGN, &bytes)) return NULL;
    bytes &= ~(size_t)(AE_ALIGN - 1);
    void *block = aligned_alloc(AE_ALIGN, bytes ? bytes : AE_ALIGN);
    if (block) memset(block, 0, bytes);
    return block;
}

void *ae_realloc(void *block, size_t n, size_t size)
{
    size_t bytes;
    if (!ae_mul_size(n, size, &bytes)) return NULL;
    return realloc(block, bytes ? bytes : 1);
}

void *ae_grow(void *items, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity) return items;
    size_t wanted = *capacity ? *capacity : 32;
    if (!ae_mul_size(wanted, 2, &wanted)) return NULL;
    void *grown = ae_realloc(items, wanted, size);
    if (grown) *capacity = wanted;
    return grown;
}

void ae_free(void *block)
{
    free(block);
}

char *ae_strndup(const char *text, size_t n)
{
    char *copy = n == SIZE_MAX ? NULL : malloc(n + 1);
    if (!copy) return NULL;
    if (n) memcpy(copy, text, n);
    copy[n] = 0;
    return copy;
}

typedef struct ae_arena_chunk {
    struct ae_arena_chunk *next;
    size_t capacity, used; /* bytes of data[] */
    _Alignas(16) char data[];
} ae_arena_chunk;

void ae_arena_init(ae_arena *arena, size_t chunk_bytes)
{
    *arena = (ae_arena){.chunk_bytes = chunk_bytes ? chunk_bytes : 4096};
}

void *ae_arena_alloc(ae_arena *arena, size_t n, size_t size)
{
    size_t bytes;
    if (!ae_mul_size(n, size, &bytes) || !ae_add_size(bytes, 15, &bytes)) return NULL;
    bytes &= ~(size_t)15;
    ae_arena_chunk *chunk = arena->chunk;
    if (!chunk || chunk->capacity - chunk->used < bytes) {
        size_t capacity = bytes > arena->chunk_bytes ? bytes : arena->chunk_bytes, total;
        if (!ae_add_size(capacity, sizeof *chunk, &total)) return NULL;
        ae_arena_chunk *fresh = malloc(total);
        if (!fresh) return NULL;
        *fresh = (ae_arena_chunk){.next = chunk, .capacity = capacity};
        arena->chunk = chunk = fresh;
    }
    void *block = chunk->data + chunk->used;
    chunk->used += bytes;
    arena->used_bytes += bytes;
    memset(block, 0, bytes);
    return block;
}

char *ae_arena_strndup(ae_arena *arena, const char *text, size_t n)
{
    char *copy = n == SIZE_MAX ? NULL : ae_arena_alloc(arena, n + 1, 1);
    if (copy && n) memcpy(copy, text, n);
    return copy;
}

/* Forgets everything, but keeps the newest chunk for reuse. */
static void arena_reset(ae_arena *arena)
{
    ae_arena_chunk *keep = arena->chunk;
    if (keep) {
        for (ae_arena_chunk *c = keep->next, *next; c; c = next) {
            next = c->next;
            free(c);
        }
        keep->next = NULL;
        keep->used = 0;
    }
    arena->used_bytes = 0;
}

void ae_arena_free(ae_arena *arena)
{
    arena_reset(arena);
    free(arena->chunk);
    arena->chunk = NULL;
}

void *ae_layout_add(ae_layout *layout, size_t n, size_t size)
{
    size_t bytes, end;
    if (!ae_mul_size(n, size, &bytes) || !ae_add_size(bytes, AE_ALIGN - 1, &bytes) ||
        !ae_add_size(layout->bytes, bytes & ~(size_t)(AE_ALIGN - 1), &end)) {
        layout->overflow = true;
        return NULL;
    }
    void *part = layout->base ? layout->base + layout->bytes : NULL;
    layout->bytes = end;
    return part;
}

bool ae_buf_reserve(ae_buf *buf, size_t extra)
{
    size_t need;
    if (buf->failed) return false;
    if (!ae_add_size(buf->n, extra, &need) || !ae_add_size(need, 1, &need)) {
        buf->failed = true;
        return false;
    }
    if (need <= buf->capacity) return true;
    size_t capacity = buf->capacity ? buf->capacity : 64;
    while (capacity < need) capacity = capacity > SIZE_MAX / 2 ? need : capacity * 2;
    char *data = realloc(buf->data, capacity);
    if (!data) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->capacity = capacity;
    return true;
}

void ae_buf_add(ae_buf *buf, const void *bytes, size_t n)
{
    if (!ae_buf_reserve(buf, n)) return;
    if (n) memcpy(buf->data + buf->n, bytes, n);
    buf->n += n;
    buf->data[buf->n] = 0;
}

void ae_buf_adds(ae_buf *buf, const char *text)
{
    ae_buf_add(buf, text, strlen(text));
}

void ae_buf_addf(ae_buf *buf, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) {
        buf->failed = true;
    } else if (ae_buf_reserve(buf, (size_t)n)) {
        vsnprintf(buf->data + buf->n, (size_t)n + 1, format, again);
        buf->n += (size_t)n;
    }
    va_end(again);
}

void ae_buf_clear(ae_buf *buf)
{
    buf->n = 0;
    if (buf->data) buf->data[0] = 0;
}

void ae_buf_free(ae_buf *buf)
{
    free(buf->data);
    *buf = (ae_buf){0};
}

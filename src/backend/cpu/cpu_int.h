/* cpu_int.h - what the parts of the CPU backend share: cpu.c (weights, streams, products), cpu_kv.c (the KV store),
 * cpu_attention.c (rotation, writing keys and values, attention). */
#ifndef AE_BACKEND_CPU_CPU_INT_H
#define AE_BACKEND_CPU_CPU_INT_H

#include "backend/cpu/kernels.h"
#include "base/mem.h"
#include "base/pool.h"

#define MAX_HEAD_DIM 512
#define ATTN_PARTS ((size_t)1 << 18) /* floats per thread: what attention split over chunks leaves between two merges */
#define ATTN_SPLIT_ITEMS 4          /* work items wanted per thread: attention that has fewer is split over chunks */

typedef struct cpu_backend {
    ae_backend base;
    ae_kernels kernels;
} cpu_backend;

struct ae_stream {
    const cpu_backend *backend;
    ae_pool *pool;
    ae_stream_options options;
    void *memory;        /* one block: act and attention scratch */
    ae_act act;          /* [max_rows][max_in] */
    float *attn_scratch; /* [n_threads][AE_ATTN_TILE][MAX_HEAD_DIM + 64] */
    float *attn_parts;   /* [n_threads * ATTN_PARTS] */
    ae_attn_state *attn_state; /* [n_threads * ATTN_SPLIT_ITEMS] by tile */
    int32_t *run_begin;  /* [max_rows + 1] first row of each run of rows with one sequence */
    int32_t *run_item;   /* [max_rows + 1] first work item of each run */
};

struct ae_kv_store {
    ae_kv_shape shape;
    size_t head_bytes; /* K and V of one head in a page */
    size_t page_bytes;
    size_t bytes;
    uint8_t *data; /* [n_pages][n_layers][n_kv_heads] { K, V }, see kernels.h */
};

static inline uint8_t *kv_page(const ae_kv_store *kv, int32_t page)
{
    return kv->data + (size_t)page * kv->page_bytes;
}

/* cpu_kv.c */
size_t ae_cpu_kv_bytes(const ae_backend *backend, const ae_kv_shape *shape);
aerie_status ae_cpu_kv_create(ae_backend *backend, const ae_kv_shape *shape, ae_kv_store **out, aerie_error *error);
void ae_cpu_kv_free(ae_backend *backend, ae_kv_store *kv);
void ae_cpu_kv_copy_page(ae_stream *stream, ae_kv_store *kv, int32_t from, int32_t to, uint32_t n);
void ae_cpu_kv_move(ae_stream *stream, ae_kv_store *kv, const int32_t *table, const ae_kv_move *moves, uint32_t n);
size_t ae_cpu_kv_slot_bytes(const ae_kv_store *kv);
void ae_cpu_kv_read(ae_stream *stream, const ae_kv_store *kv, const int32_t *table, int32_t slot, void *out);

/* cpu_attention.c */
void ae_cpu_rope_kv(ae_stream *stream, const ae_rope_kv *args);
void ae_cpu_attention(ae_stream *stream, const ae_attention *args);

#endif

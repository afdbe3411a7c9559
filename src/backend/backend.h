/* backend.h - THE seam between the engine and the machines that run it.
 *
 * A backend is a struct of function pointers, chosen at run time. It offers a small number of
 * LLM-sized operations over device memory; the forward pass (engine/forward.c) is written once
 * over them. Only operations may follow device pointers: the host reads device memory by `view` and `download`
 * and writes it by `upload` and `fill`. The backend "cpu-strict" holds it to that. Arrays lie on the device, except those
 * marked (host).
 *
 * Objects
 *   ae_backend  the device. Owns nothing but itself; shared by all models and streams.
 *   ae_weight   a matrix or vector in the device's own (packed) layout. Immutable, shared.
 *   ae_stream   where operations run: scratch, and threads that it may share. One per engine, one user at a time.
 *               Operations of a stream happen in order, and their results are there after sync.
 *   ae_kv_store the pages of a KV cache on the device.
 *   ae_state_store  the state of recurrent layers on the device: see recurrent.h.
 * The arguments of operations: product.h, moe.h, attention.h, recurrent.h, draw.h.
 * Weights, streams and stores are opaque: each backend completes these types in its own files, and nobody else does.
 *
 * Failures: an operation returns nothing. One that fails notes why in its stream, naming itself and what it was given
 * (ae_backend_note), and the next sync returns the first note. Until then operations may run on meaningless values,
 * but never outside their memory.
 *
 * Law: a row's result is a pure function of the weights and of the row's own prefix. No operation
 * may let n_rows, another row, the thread count or the CPU level change one bit (docs/same-bytes.md).
 * The arithmetic is defined by the plain-C kernels in cpu/ref.
 */
#ifndef AE_BACKEND_BACKEND_H
#define AE_BACKEND_BACKEND_H

#include "backend/attention.h"
#include "backend/draw.h"
#include "backend/moe.h"
#include "backend/product.h"
#include "backend/recurrent.h"
#include "base/err.h"
#include "base/pool.h"

typedef struct ae_backend ae_backend;

#define AE_MARKS 64 /* that a stream remembers */

typedef struct ae_stream_options {
    uint32_t n_threads;   /* of the pool */
    uint32_t max_rows;    /* largest n_rows of any operation */
    uint32_t max_in;      /* largest n_in of any matmul */
    ae_moe_shape moe;
    const ae_state_shape *state; /* its n_layers and layers, lent for the call; NULL: no recurrent layers */
    ae_pool *pool;        /* the host's threads, for host_run and the CPU's operations; outlives the stream. Not read by
                           * stream_bytes */
} ae_stream_options;

/* ---- The operations -------------------------------------------------------------------------- */

typedef struct ae_backend_ops {
    const char *name;
    void (*close)(ae_backend *backend);

    /* Device memory, zeroed. NULL when there is none left. */
    void *(*alloc)(ae_backend *backend, size_t bytes);
    void (*free)(ae_backend *backend, void *memory, size_t bytes);

    /* Device memory that the weight takes, a multiple of 64; 0 if the source's own rows are enough. */
    size_t (*weight_bytes)(const ae_backend *backend, const ae_weight_source *source);
    /* A weight in memory[weight_bytes] (64-byte aligned, borrowed, zeroed). With weight_bytes other than 0 it is
     * empty: all its rows must be given to weight_fill before it is used. */
    aerie_status (*weight_create)(ae_backend *backend, const ae_weight_source *source, void *memory, ae_weight **out,
                                  aerie_error *error);
    /* (host) rows [first, first + n) in the file's layout; first is a multiple of AE_WEIGHT_ROWS, n too or up to the
     * last row. Different rows from different threads at once. */
    void (*weight_fill)(ae_backend *backend, ae_weight *weight, const void *rows, uint32_t first, uint32_t n);
    void (*weight_free)(ae_backend *backend, ae_weight *weight);

    size_t (*stream_bytes)(const ae_backend *backend, const ae_stream_options *options);
    aerie_status (*stream_create)(ae_backend *backend, const ae_stream_options *options, ae_stream **out, aerie_error *error);
    void (*stream_free)(ae_stream *stream);
    /* Waits for all operations of the stream. An error is the first that was noted since the last sync. */
    aerie_status (*sync)(ae_stream *stream, aerie_error *error);
    /* (host) work on the stream's threads, after a sync: job(context, item, i_worker) for items [0, n), in any order. */
    void (*host_run)(ae_stream *stream, ae_pool_job *job, void *context, uint32_t n);

    /* From now on `watch` is told of every product, those of experts included; NULL: nobody. NULL if the backend cannot. */
    void (*watch)(ae_stream *stream, ae_watch_fn *watch, void *user);

    size_t (*kv_bytes)(const ae_backend *backend, const ae_kv_shape *shape);
    aerie_status (*kv_create)(ae_backend *backend, const ae_kv_shape *shape, ae_kv_store **out, aerie_error *error);
    void (*kv_free)(ae_backend *backend, ae_kv_store *kv);
    /* The first n places of page `from` to page `to`, all layers. */
    void (*kv_copy_page)(ae_stream *stream, ae_kv_store *kv, int32_t from, int32_t to, uint32_t n);
    void (*kv_commit)(ae_stream *stream, const ae_kv_commit_args *args);
    /* The K and V bytes of one slot of a (host) page table, all layers, to (host) out[kv_slot_bytes]: for tests and saved
     * sessions. */
    size_t (*kv_slot_bytes)(const ae_kv_store *kv);
    void (*kv_read)(ae_stream *stream, const ae_kv_store *kv, const int32_t *table, int32_t slot, void *out);
    /* The other way: what kv_read gave, from (host) bytes[kv_slot_bytes] into a slot. */
    void (*kv_write)(ae_stream *stream, ae_kv_store *kv, const int32_t *table, int32_t slot, const void *bytes);

    /* (host) to device and back; n bytes. The host array may change as soon as upload returns, and is there when download
     * returns: download waits for the operations before it. */
    void (*upload)(ae_stream *stream, void *device, const void *host, size_t n);
    void (*download)(ae_stream *stream, void *host, const void *device, size_t n);
    /* upload without a stream, from any thread, while a model is loaded. */
    void (*fill)(ae_backend *backend, void *device, const void *host, size_t n);
    /* (host) The n bytes at `device` for reading, after a sync and until an operation writes there: where they are, if
     * the host can read there, or downloaded into room[n]. With view_needs_room the second is the case, always; without it
     * room may be NULL. */
    const void *(*view)(ae_stream *stream, const void *device, void *room, size_t n);
    bool view_needs_room;

    /* Bytes of the device that are free and that it has; 0: unknown. */
    void (*memory_info)(const ae_backend *backend, uint64_t *n_free, uint64_t *n_total);

    /* A point between two operations; the seconds between two points, after a sync. A stream keeps the newest AE_MARKS. */
    uint32_t (*mark)(ae_stream *stream);
    double (*elapsed)(const ae_stream *stream, uint32_t from, uint32_t to);
    /* Around the operations of a pass, for devices that record and replay them. Passes of equal keys have the same operations
     * with the same arguments; what differs lies in device memory, uploaded before. false: the pass has been replayed, its
     * operations must not be called, nor pass_end. */
    bool (*pass_begin)(ae_stream *stream, uint64_t key);
    void (*pass_end)(ae_stream *stream);

    /* y[r * y_stride ..] = row tokens[r] of the table, as f32. tokens [n_rows] on the device. */
    void (*lookup)(ae_stream *stream, const ae_weight *table, const int32_t *tokens, uint32_t n_rows, float *y,
                   size_t y_stride);
    void (*matmul)(ae_stream *stream, const ae_matmul *args);
    void (*head_matmul)(ae_stream *stream, const ae_head_matmul *args);
    void (*norm)(ae_stream *stream, const ae_norm *args);
    void (*axpy)(ae_stream *stream, const ae_axpy *args);
    void (*map)(ae_stream *stream, const ae_map *args);
    void (*moe)(ae_stream *stream, const ae_moe *args);
    void (*rope_table)(ae_stream *stream, const ae_rope_table *args);
    void (*rope_kv)(ae_stream *stream, const ae_rope_kv *args);
    void (*attention)(ae_stream *stream, const ae_attention *args);
    void (*copy)(ae_stream *stream, const ae_copy *args);
    void (*walk)(ae_stream *stream, const ae_walk *args);
    void (*propose)(ae_stream *stream, const ae_propose *args);

    /* Recurrent state (recurrent.h). */
    size_t (*state_bytes)(const ae_backend *backend, const ae_state_shape *shape);
    /* Zeroed planes. UNSUPPORTED for a shape beyond the limits of recurrent.h. */
    aerie_status (*state_create)(ae_backend *backend, const ae_state_shape *shape, ae_state_store **out, aerie_error *error);
    void (*state_free)(ae_backend *backend, ae_state_store *store);
    void (*state_zero)(ae_stream *stream, ae_state_store *store, uint32_t plane);
    void (*state_copy)(ae_stream *stream, ae_state_store *store, uint32_t from, uint32_t to);
    /* The accepted records of each run go into its plane; the pass has no rows. */
    void (*state_absorb)(ae_stream *stream, const ae_state_pass *pass);
    /* A plane as canonical bytes, whatever the device's layout: per layer f32 rows [n_taps - 1][n_channels], oldest first, then
     * S [n_heads][key_dim][value_dim]; to (host) out[state_plane_bytes], at any address. And the other way. */
    size_t (*state_plane_bytes)(const ae_state_store *store);
    void (*state_read)(ae_stream *stream, const ae_state_store *store, uint32_t plane, void *out);
    void (*state_write)(ae_stream *stream, ae_state_store *store, uint32_t plane, const void *bytes);
    void (*conv)(ae_stream *stream, const ae_conv *args);
    void (*recur)(ae_stream *stream, const ae_recur *args);
    void (*gated_norm)(ae_stream *stream, const ae_gated_norm *args);
} ae_backend_ops;

struct ae_backend {
    const ae_backend_ops *ops;
};

/* ---- backend.c ------------------------------------------------------------------------------------ */

void ae_backend_close(ae_backend *backend);

/* For backends: keeps the first failure of a stream until its sync. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void ae_backend_note(aerie_error *fault, aerie_status status, const char *format, ...);

/* ---- What the CPU backends (both of them) say about themselves ------------------------------------ */

/* The level in use, for messages: "avx512". Static storage. */
const char *ae_backend_cpu_level(const ae_backend *backend);
/* Which kernels were chosen by measurement for the weights created so far, for messages: "Q4_1 from 12 rows, Q8_0 never"
 * go by matrix tiles; "" where the level leaves no choice. Lives as long as the backend. */
const char *ae_backend_cpu_choices(const ae_backend *backend);
/* For tests: weights created from now on go by tiles, where the level has them, from n_rows on (at least 1); 0: as measured. */
void ae_backend_cpu_tiles_from(ae_backend *backend, uint32_t n_rows);

#endif

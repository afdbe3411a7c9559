/* backend.h - the interface ("the seam") between the engine and the devices that run it.
 *
 * A backend is a struct of function pointers, chosen at run time. It offers a small number of
 * LLM-sized operations over device memory; the forward pass (engine/forward.c) is written once
 * over them. Only operations may follow device pointers: the host reads device memory by `view` and `download`
 * and writes it by `upload` and `fill`. The backend "cpu-strict" enforces this. Arrays are in device memory unless they are
 * marked (host).
 *
 * Objects
 *   ae_backend  the device. Owns only itself; shared by all models and streams.
 *   ae_weight   a matrix or vector in the device's own (packed) layout. Immutable, shared.
 *   ae_stream   runs operations: scratch memory, and threads that it may share with others. One per engine, one user at a
 *               time. The operations of a stream run in order, and sync waits for their results. Between two streams
 *               there is no order but what `wait` and sync make; memory that operations use is freed after a sync.
 *   ae_kv_store the pages of a KV cache on the device.
 *   ae_state_store  the state of recurrent layers on the device: see recurrent.h.
 * The arguments of operations are in product.h, moe.h, attention.h, recurrent.h and draw.h.
 * Weights, streams and stores are opaque: each backend defines these types in its own files.
 *
 * Failures: an operation returns nothing. When it fails, it notes its name, its arguments and the reason in its stream
 * (ae_backend_note), and the next sync returns the first note. Until then operations may compute meaningless values,
 * but they never access memory outside their arrays.
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

#define AE_MARKS 64      /* marks that a stream keeps */
#define AE_MAX_DEVICES 8 /* devices of one model */

typedef struct ae_stream_options {
    uint32_t n_threads;   /* of the pool */
    uint32_t max_rows;    /* largest n_rows of any operation */
    uint32_t max_in;      /* largest n_in of any matmul */
    uint32_t max_product_rows; /* largest n_rows of any matmul; 0: max_rows */
    ae_moe_shape moe;
    uint32_t n_selected_from; /* most positions that a row of select can see; 0: select is not used */
    bool selects_blocks;  /* select uses groups and blocks, which only CPUs support */
    uint32_t n_streams;   /* streams of mix; 0: mix is not used */
    /* for attention with `more`: the most rows that one row reads, their values, and their type in the KV store; 0: it is not
     * used */
    uint32_t n_gathered, gathered_dim;
    ae_kv_type gathered_type;
    bool biased;          /* attention has biases */
    bool hyper;           /* there is hyper */
    uint32_t n_banks;     /* most earlier rows of the stream that a pass sums (AE_MAP_SOFTMAX); above 0 also if AE_GLU_SITU is
                           * used; 0: neither */
    const ae_state_shape *state; /* only n_layers and layers are read, during the call; NULL: no recurrent layers */
    ae_pool *pool;        /* the host's threads, for host_run and the CPU's operations; must outlive the stream. stream_bytes
                           * does not read it */
} ae_stream_options;

static inline uint32_t ae_stream_product_rows(const ae_stream_options *o)
{
    return o->max_product_rows && o->max_product_rows < o->max_rows ? o->max_product_rows : o->max_rows;
}

/* ---- The operations -------------------------------------------------------------------------- */

typedef struct ae_backend_ops {
    const char *name;
    void (*close)(ae_backend *backend);

    /* Allocates device memory, zeroed. Returns NULL if there is none left. */
    void *(*alloc)(ae_backend *backend, size_t bytes);
    void (*free)(ae_backend *backend, void *memory, size_t bytes);
    /* Returns the most bytes that alloc can give in one piece. NULL: there is no such limit. */
    size_t (*max_block)(const ae_backend *backend);

    /* Returns the bytes of device memory that the weight needs, a multiple of 64; 0 if the weight uses the source's rows in
     * place. */
    size_t (*weight_bytes)(const ae_backend *backend, const ae_weight_source *source);
    /* Creates a weight in memory[weight_bytes] (64-byte aligned, borrowed, zeroed). If weight_bytes is not 0, the weight is
     * empty: weight_fill must be given all its rows before it is used. */
    aerie_status (*weight_create)(ae_backend *backend, const ae_weight_source *source, void *memory, ae_weight **out,
                                  aerie_error *error);
    /* Fills rows [first, first + n) from (host) rows in the file's layout. first is a multiple of AE_WEIGHT_ROWS; n is one
     * too, unless the rows include the last one. Several threads may fill different rows at the same time. Fails where host
     * memory to pack the rows in is missing, or the device does not take them. */
    aerie_status (*weight_fill)(ae_backend *backend, ae_weight *weight, const void *rows, uint32_t first, uint32_t n,
                                aerie_error *error);
    void (*weight_free)(ae_backend *backend, ae_weight *weight);

    size_t (*stream_bytes)(const ae_backend *backend, const ae_stream_options *options);
    aerie_status (*stream_create)(ae_backend *backend, const ae_stream_options *options, ae_stream **out, aerie_error *error);
    void (*stream_free)(ae_stream *stream);
    /* Waits for all operations of the stream. Returns the first error noted since the last sync. */
    aerie_status (*sync)(ae_stream *stream, aerie_error *error);
    /* Makes operations given to `stream` from now on run after those given so far to `other`, of the same backend. The host
     * does not wait. */
    void (*wait)(ae_stream *stream, ae_stream *other);
    /* Runs (host) work on the stream's threads, after a sync: job(context, item, i_worker) for items [0, n), in any order. */
    void (*host_run)(ae_stream *stream, ae_pool_job *job, void *context, uint32_t n);

    /* Makes the stream call `watch` for every matrix product from now on, including those of experts; watch NULL: for none. The
     * function pointer is NULL if the backend does not support this. */
    void (*watch)(ae_stream *stream, ae_watch_fn *watch, void *user);

    size_t (*kv_bytes)(const ae_backend *backend, const ae_kv_shape *shape);
    aerie_status (*kv_create)(ae_backend *backend, const ae_kv_shape *shape, ae_kv_store **out, aerie_error *error);
    void (*kv_free)(ae_backend *backend, ae_kv_store *kv);
    /* Copies the first n places of page `from` to page `to`, in all layers. */
    void (*kv_copy_page)(ae_stream *stream, ae_kv_store *kv, int32_t from, int32_t to, uint32_t n);
    void (*kv_commit)(ae_stream *stream, const ae_kv_commit_args *args);
    /* kv_read copies the K and V bytes of one slot of a (host) page table, for all layers, to (host) out[kv_slot_bytes]: for
     * tests and saved sessions. */
    size_t (*kv_slot_bytes)(const ae_kv_store *kv);
    void (*kv_read)(ae_stream *stream, const ae_kv_store *kv, const int32_t *table, int32_t slot, void *out);
    /* Writes (host) bytes[kv_slot_bytes], as kv_read returned them, into a slot. */
    void (*kv_write)(ae_stream *stream, ae_kv_store *kv, const int32_t *table, int32_t slot, const void *bytes);

    /* Copy n bytes from (host) to device and back. The caller may change the host array as soon as upload returns. download
     * waits for the operations before it, and the host array is complete when it returns. */
    void (*upload)(ae_stream *stream, void *device, const void *host, size_t n);
    void (*download)(ae_stream *stream, void *host, const void *device, size_t n);
    /* Copies as upload does, without a stream and from any thread, while a model is loaded. */
    aerie_status (*fill)(ae_backend *backend, void *device, const void *host, size_t n, aerie_error *error);
    /* Returns a (host) pointer for reading the n bytes at `device`, valid after a sync until an operation writes there:
     * `device` itself if the host can read it, or else room[n], into which they are downloaded. With view_needs_room it is
     * always room; without it room may be NULL. */
    const void *(*view)(ae_stream *stream, const void *device, void *room, size_t n);
    bool view_needs_room;
    bool takes_blocks; /* AE_MAP_BLOCKS_32 and _256, AE_INPUT_BLOCKS */

    /* Reports the free and the total bytes of the device's memory; 0: unknown. */
    void (*memory_info)(const ae_backend *backend, uint64_t *n_free, uint64_t *n_total);

    /* mark records a point in time between two operations; elapsed returns the seconds between two marks, after a sync. A
     * stream keeps the newest AE_MARKS. */
    uint32_t (*mark)(ae_stream *stream);
    double (*elapsed)(const ae_stream *stream, uint32_t from, uint32_t to);
    /* Called before and after the operations of a pass, for devices that record and replay them. Passes with equal keys have
     * the same operations with the same arguments, (host) ones included; what differs is in device memory and uploaded before.
     * Within a pass nothing is uploaded, downloaded or read back. pass_begin returns false if it has replayed the pass: then
     * neither its operations nor pass_end may be called. "cpu-strict" notes a fault where a pass does not keep to this. */
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
    void (*mix)(ae_stream *stream, const ae_row_mix *args);
    void (*hyper)(ae_stream *stream, const ae_hyper *args);
    void (*moe)(ae_stream *stream, const ae_moe *args);
    void (*rope_table)(ae_stream *stream, const ae_rope_table *args);
    void (*rope_kv)(ae_stream *stream, const ae_rope_kv *args);
    void (*rotate)(ae_stream *stream, const ae_rotate *args);
    void (*compress)(ae_stream *stream, const ae_compress *args);
    void (*ngrams)(ae_stream *stream, const ae_ngrams *args);
    void (*trail)(ae_stream *stream, const ae_trail *args);
    void (*accord)(ae_stream *stream, const ae_accord *args);
    void (*attention)(ae_stream *stream, const ae_attention *args);
    void (*select)(ae_stream *stream, const ae_select *args);
    void (*copy)(ae_stream *stream, const ae_copy *args);
    void (*walk)(ae_stream *stream, const ae_walk *args);
    void (*propose)(ae_stream *stream, const ae_propose *args);

    /* Recurrent state (recurrent.h). */
    size_t (*state_bytes)(const ae_backend *backend, const ae_state_shape *shape);
    /* The planes are zeroed. Errors: UNSUPPORTED for a shape beyond the limits of recurrent.h. */
    aerie_status (*state_create)(ae_backend *backend, const ae_state_shape *shape, ae_state_store **out, aerie_error *error);
    void (*state_free)(ae_backend *backend, ae_state_store *store);
    void (*state_zero)(ae_stream *stream, ae_state_store *store, uint32_t plane);
    void (*state_copy)(ae_stream *stream, ae_state_store *store, uint32_t from, uint32_t to);
    /* Absorbs the accepted records of each run into its plane; the pass has no rows. */
    void (*state_absorb)(ae_stream *stream, const ae_state_pass *pass);
    /* state_read and state_write copy a plane to and from (host) bytes[state_plane_bytes] at any address. The bytes do not
     * depend on the device's layout: per layer f32 rows [n_taps - 1][n_channels], oldest first, then
     * S [n_heads][key_dim][value_dim]. */
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

/* Copies n bytes from one device to another, through (host) room[n]. First waits for the operations of `from`. */
void ae_backend_move(const ae_backend_ops *from_ops, ae_stream *from, const void *source, const ae_backend_ops *to_ops,
                     ae_stream *to, void *target, void *room, size_t n);

/* For backends: notes a failure in a stream's `fault`, which keeps the first one until the next sync. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void ae_backend_note(aerie_error *fault, aerie_status status, const char *format, ...);

/* ---- Of the CPU backends "cpu" and "cpu-strict" ---------------------------------------------------- */

/* Returns the level in use, for messages: "avx512"; the name of another backend. Valid as long as the backend. */
const char *ae_backend_cpu_level(const ae_backend *backend);
/* Returns, for messages, the number of rows from which each type uses matrix tiles, as measured for the weights created so far:
 * "Q4_1 from 12 rows, Q8_0 never"; "" if the level has no tiles, and for other backends. Valid as long as the backend. */
const char *ae_backend_cpu_choices(const ae_backend *backend);
/* For tests: weights created from now on use tiles, if the level has them, for n_rows rows or more (at least 1); 0: as
 * measured. Other backends ignore it. */
void ae_backend_cpu_tiles_from(ae_backend *backend, uint32_t n_rows);

#endif

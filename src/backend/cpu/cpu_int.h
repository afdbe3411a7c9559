/* cpu_int.h - declarations shared by the files of the CPU backend: streams, products, experts, the KV store, attention,
 * recurrent layers, draws. */
#ifndef AE_BACKEND_CPU_CPU_INT_H
#define AE_BACKEND_CPU_CPU_INT_H

#include "backend/cpu/cpu.h"
#include "base/mem.h"
#include "base/pool.h"

#define ATTN_PARTS ((size_t)1 << 18) /* floats per thread for the parts that a split attention stores between two merges */
#define AE_SELECT_ROWS 16           /* rows whose scores are in memory at a time */
#define AE_GATHER_ROWS 8            /* rows whose gathered rows are in memory at a time */
#define ATTN_SPLIT_ITEMS 4          /* work items per thread below which attention is split over chunks */

/* The rows of one expert or of the shared expert, see moe.c. */
typedef struct ae_moe_group {
    uint32_t expert;      /* n_experts: the shared expert */
    uint32_t first, n;    /* pairs [first, first + n); for the shared expert rows [0, n) */
    uint32_t i_tile;      /* first group of 16 rows in the tiled form of its activations */
    ae_act act;           /* the group's rows, prepared for the current product */
} ae_moe_group;

/* Scratch of ae_moe. A pair is a row and an expert that it chose; pairs are ordered by expert, then row. */
typedef struct ae_cpu_moe {
    float *logits;        /* [max_rows][n_experts] */
    float *p;             /* [max_rows][n_experts] */
    float *shared_weight; /* [max_rows] */
    uint32_t *ids;        /* [max_rows][n_used] chosen experts of a row, ascending */
    float *weights;       /* [max_rows][n_used] */
    uint32_t *row;        /* [max_pairs] */
    uint32_t *choice;     /* [max_pairs] the pair's place in ids */
    float *weight;        /* [max_pairs] */
    uint32_t *begin;      /* [n_experts + 1] first pair of each expert */
    ae_moe_group *groups; /* [n_experts + 1] experts that have rows, in order, the shared one last */
    ae_act act;           /* [max_pairs][n_embd or n_ff] */
    float *gate, *up;     /* [max_pairs][n_ff] */
    float *shared_gate, *shared_up; /* [max_rows][n_ff_shared] */
    float *down;          /* [max_rows][n_embd] one expert's results; each work item uses its own columns */
    float *weighed;       /* [max_pairs][n_embd] rows times an expert's weight, if the stream's shape has weigh_input */
} ae_cpu_moe;

/* Scratch of ae_recur. */
typedef struct ae_cpu_state {
    float *d;             /* [max_rows][d_stride] the vectors d of all heads */
    size_t d_stride;
    float *alpha, *beta;  /* [max_rows][n_heads], or as many as a row has alphas */
    float *erased;        /* [max_rows][n_heads][key_dim] of WKV7: kk */
    float *buffers;       /* [n_threads][AE_STATE_BUFFERS][key_dim][AE_STATE_TILE] states of tentative rows */
    size_t buffer_floats; /* per thread */
} ae_cpu_state;

struct ae_stream {
    const ae_cpu_backend *backend;
    ae_pool *pool;
    ae_stream_options options;
    aerie_error fault;   /* the first failure since the last sync */
    ae_watch_fn *watch;  /* or NULL */
    void *watch_user;
    struct ae_cpu_passes *passes; /* of cpu-strict, owned; or NULL */
    struct ae_cpu_late *late;     /* only in cpu-strict, owned: operations that have not run yet */
    ae_cpu_trips trips;           /* of cpu-strict */
    double mark[AE_MARKS];
    uint32_t n_marks;
    void *memory;        /* one block: act, moe and attention scratch */
    ae_act act;          /* [max_rows][max_in] */
    ae_cpu_moe moe;
    ae_cpu_state state;
    uint8_t *panel;      /* [n_threads][panel_bytes] one packed panel of a weight that is used in place */
    size_t panel_bytes;
    uint8_t *mm_scratch; /* [n_threads][AE_MM_SCRATCH] */
    uint8_t *attn_work;  /* [n_threads][AE_ATTN_WORK] */
    float *attn_scratch; /* [n_threads][AE_ATTN_TILE][AE_MAX_HEAD_DIM + 64] */
    float *attn_parts;   /* [n_threads * ATTN_PARTS] */
    ae_attn_state *attn_state; /* [n_threads * ATTN_SPLIT_ITEMS] by tile */
    float *index_scores; /* [AE_SELECT_ROWS][n_selected_from] */
    uint8_t *gathered;   /* [AE_GATHER_ROWS][gathered_pages] pages of one head of ae_kv_row_type, for attention with more */
    int32_t *gathered_table; /* [gathered_pages] 0, 1, .. */
    int32_t *run_begin;  /* [max_rows + 1] first row of each run of rows with one sequence */
    int32_t *run_item;   /* [max_rows + 1] first work item of each run */
};

/* Prepares row r of a product's input (its input, x, x2, norm) as row r of act, in the forms that are needed. */
void ae_cpu_prepare_row(const ae_kernels *kernels, const ae_matmul *input, const ae_act_need *need, const ae_act *act,
                        uint32_t r);
/* Prepares all rows, and their tiled form if a reader wants it for this number of rows. */
void ae_cpu_prepare(ae_stream *stream, const ae_matmul *input, const ae_act_need *need, ae_act *act);
/* Multiplies panels [begin, end) of a product, with the scratch of worker i_worker. */
void ae_cpu_panels(const ae_stream *stream, uint32_t i_worker, const ae_weight *w, const ae_act *act, const ae_mm_out *out,
                   uint32_t begin, uint32_t end);
/* Calls the stream's watcher, if there is one, with n_rows rows that will be multiplied by w; NULL w: does nothing. */
static inline void ae_cpu_tell(const ae_stream *s, const ae_weight *w, const float *x, size_t x_stride, uint32_t n_rows)
{
    if (s->watch && w) s->watch(s->watch_user, w, x, x_stride, n_rows, w->n_in);
}

/* Multiplies prepared rows by the weights of args. */
void ae_cpu_multiply(ae_stream *stream, const ae_matmul *args, const ae_act *act);

/* moe.c */
void ae_cpu_moe_layout(ae_layout *layout, const ae_kernels *kernels, const ae_stream_options *options, ae_cpu_moe *moe);
void ae_cpu_moe_run(ae_stream *stream, const ae_moe *args);

/* heads.c */
void ae_cpu_head_matmul(ae_stream *stream, const ae_head_matmul *args);

/* A layer of the KV cache. */
typedef struct ae_cpu_kv_layer {
    ae_kv_layer shape;
    size_t head_bytes; /* bytes of one head's keys and values in a page */
    size_t row_bytes;  /* bytes of one place of one head, as it is moved and saved */
    size_t at;         /* offset of the first head in a page */
} ae_cpu_kv_layer;

struct ae_kv_store {
    uint32_t n_layers, n_pages;
    ae_kv_type type;
    ae_cpu_kv_layer *layers; /* [n_layers] */
    size_t page_bytes, slot_bytes;
    size_t bytes;
    uint8_t *data; /* [n_pages], each with [n_heads] { K, V } of every layer, see kernels.h */
};

static inline uint8_t *kv_page(const ae_kv_store *kv, int32_t page, uint32_t layer)
{
    return kv->data + (size_t)page * kv->page_bytes + kv->layers[layer].at;
}

/* kv.c */
size_t ae_cpu_kv_bytes(const ae_backend *backend, const ae_kv_shape *shape);
aerie_status ae_cpu_kv_create(ae_backend *backend, const ae_kv_shape *shape, ae_kv_store **out, aerie_error *error);
void ae_cpu_kv_free(ae_backend *backend, ae_kv_store *kv);
/* Rows that are key and value (ae_kv_layer.one_row). Stores the row x [head_dim] at a place of a page of such rows; work:
 * AE_ATTN_WORK bytes. */
void ae_cpu_row_store(const ae_kernels *kernels, ae_kv_type type, uint32_t head_dim, const float *x, void *work, void *page,
                      uint32_t place);
/* Copies the row at a place of such a page to a place of a page of ae_kv_row_type, as key and as value. */
void ae_cpu_row_spread(ae_kv_type type, uint32_t head_dim, const void *from, uint32_t from_place, void *to, uint32_t to_place);
void ae_cpu_kv_copy_page(ae_stream *stream, ae_kv_store *kv, int32_t from, int32_t to, uint32_t n);
void ae_cpu_kv_commit(ae_stream *stream, const ae_kv_commit_args *args);
size_t ae_cpu_kv_slot_bytes(const ae_kv_store *kv);
void ae_cpu_kv_read(ae_stream *stream, const ae_kv_store *kv, const int32_t *table, int32_t slot, void *out);
void ae_cpu_kv_write(ae_stream *stream, ae_kv_store *kv, const int32_t *table, int32_t slot, const void *bytes);

/* recurrent.c */
size_t ae_cpu_state_bytes(const ae_backend *backend, const ae_state_shape *shape);
aerie_status ae_cpu_state_create(ae_backend *backend, const ae_state_shape *shape, ae_state_store **out, aerie_error *error);
void ae_cpu_state_free(ae_backend *backend, ae_state_store *store);
void ae_cpu_state_zero(ae_stream *stream, ae_state_store *store, uint32_t plane);
void ae_cpu_state_copy(ae_stream *stream, ae_state_store *store, uint32_t from, uint32_t to);
void ae_cpu_state_absorb(ae_stream *stream, const ae_state_pass *pass);
size_t ae_cpu_state_plane_bytes(const ae_state_store *store);
void ae_cpu_state_read(ae_stream *stream, const ae_state_store *store, uint32_t plane, void *out);
void ae_cpu_state_write(ae_stream *stream, ae_state_store *store, uint32_t plane, const void *bytes);
void ae_cpu_state_layout(ae_layout *layout, const ae_stream_options *options, ae_cpu_state *state);
void ae_cpu_conv(ae_stream *stream, const ae_conv *args);
void ae_cpu_recur(ae_stream *stream, const ae_recur *args);
void ae_cpu_gated_norm(ae_stream *stream, const ae_gated_norm *args);
/* For tests, which overwrite them: returns all records, *n floats. */
float *ae_cpu_state_records(const ae_state_store *store, size_t *n);

/* attention.c */
void ae_cpu_rope_table(ae_stream *stream, const ae_rope_table *args);
void ae_cpu_rope_kv(ae_stream *stream, const ae_rope_kv *args);
void ae_cpu_attention(ae_stream *stream, const ae_attention *args);
void ae_cpu_select(ae_stream *stream, const ae_select *args);
void ae_cpu_rotate(ae_stream *stream, const ae_rotate *args);
void ae_cpu_compress(ae_stream *stream, const ae_compress *args);
void ae_cpu_ngrams(ae_stream *stream, const ae_ngrams *args);
void ae_cpu_trail(ae_stream *stream, const ae_trail *args);

/* draw.c */
void ae_cpu_walk(ae_stream *stream, const ae_walk *args);
void ae_cpu_propose(ae_stream *stream, const ae_propose *args);

/* activation.c: ae_act_tile_needed divided into pieces for threads. The first function returns the number of pieces of n_in
 * columns; the second one tiles piece i, and does nothing after the last one. */
uint32_t ae_act_tile_pieces(uint32_t n_in);
void ae_act_tile_piece(ae_act *act, const ae_act_need *need, uint32_t i);

/* memory.c */
aerie_status ae_cpu_fill(ae_backend *backend, void *device, const void *host, size_t n, aerie_error *error);
void ae_cpu_memory_info(const ae_backend *backend, uint64_t *n_free, uint64_t *n_total);
void ae_cpu_copy_in(ae_stream *stream, void *device, const void *host, size_t n);
void ae_cpu_copy_out(ae_stream *stream, void *host, const void *device, size_t n);
const void *ae_cpu_view(ae_stream *stream, const void *device, void *room, size_t n);

/* stream.c */
size_t ae_cpu_stream_bytes(const ae_backend *backend, const ae_stream_options *options);
void ae_cpu_stream_free(ae_stream *stream);
aerie_status ae_cpu_stream_create(ae_backend *backend, const ae_stream_options *options, ae_stream **out,
                                  aerie_error *error);
aerie_status ae_cpu_sync(ae_stream *stream, aerie_error *error);
void ae_cpu_host_run(ae_stream *stream, ae_pool_job *job, void *context, uint32_t n);
void ae_cpu_watch(ae_stream *stream, ae_watch_fn *watch, void *user);
uint32_t ae_cpu_mark(ae_stream *stream);
double ae_cpu_elapsed(const ae_stream *stream, uint32_t from, uint32_t to);
bool ae_cpu_pass_begin(ae_stream *stream, uint64_t key);
void ae_cpu_wait(ae_stream *stream, ae_stream *other);
void ae_cpu_pass_end(ae_stream *stream);

/* product.c */
void ae_cpu_matmul(ae_stream *stream, const ae_matmul *args);

/* rows.c */
void ae_cpu_lookup(ae_stream *stream, const ae_weight *table, const int32_t *tokens, uint32_t n_rows, float *y,
                   size_t y_stride);
void ae_cpu_copy(ae_stream *stream, const ae_copy *a);
void ae_cpu_norm(ae_stream *stream, const ae_norm *args);
void ae_cpu_axpy(ae_stream *stream, const ae_axpy *args);
void ae_cpu_map(ae_stream *stream, const ae_map *args);
void ae_cpu_mix(ae_stream *stream, const ae_row_mix *args);
void ae_cpu_accord(ae_stream *stream, const ae_accord *args);
void ae_cpu_hyper(ae_stream *stream, const ae_hyper *args);

#endif

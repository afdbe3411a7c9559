/* strict.c - the CPU backend "cpu-strict": only operations can access its device memory. For tests.
 * Owns the guard of such a backend, which lists all of its device memory. Between operations that memory is protected
 * (PROT_NONE), so that a wrong access by the host ends the process with SIGSEGV where it happens. When an operation runs, it
 * opens the memory, calls the CPU backend's operation and closes the memory; operations of several streams may overlap, and the
 * last one closes it. Not covered: weights used in place in the file, and the scratch of streams.
 * Blocks lie side by side where the address space allows it: then one call of mprotect opens several.
 * It also checks that passes with equal keys have equal operations (strict_pass.c), and runs operations as late as the seam
 * allows (strict_late.c). */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/strict.h"
#include "base/os.h"

#define PAGE_BYTES ((size_t)2 << 20) /* whole huge pages, so that mprotect need not split them */
#define MAX_BLOCKS 256 /* most blocks of device memory at once; an engine has a few */

typedef struct block {
    void *memory;
    size_t bytes;
} block;

struct ae_cpu_guard {
    ae_backend_ops ops;          /* the operations below, and the CPU backend's own where no memory has to be opened */
    const ae_backend_ops *inner; /* the CPU backend's */
    pthread_mutex_t mutex;       /* protects the fields below */
    uint32_t n_inside;           /* operations that are running */
    block blocks[MAX_BLOCKS];    /* by ascending address */
    uint32_t n_blocks;
};

static void protect(const ae_cpu_guard *g, int protection)
{
    for (uint32_t i = 0; i < g->n_blocks;) {
        uint8_t *first = g->blocks[i].memory, *end = first;
        for (; i < g->n_blocks && g->blocks[i].memory == end; i++) end += g->blocks[i].bytes;
        (void)mprotect(first, (size_t)(end - first), protection);
    }
}

/* Returns pages directly before the lowest block; NULL: there is no block, or something else lies there. */
static void *place_before(const ae_cpu_guard *g, size_t bytes)
{
#ifdef MAP_FIXED_NOREPLACE
    if (!g->n_blocks || (uintptr_t)g->blocks[0].memory <= bytes) return NULL;
    void *want = (uint8_t *)g->blocks[0].memory - bytes;
    void *got = mmap(want, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED) return NULL;
    if (got == want) {
        madvise(got, bytes, MADV_HUGEPAGE);
        return got;
    }
    munmap(got, bytes); /* Linux before 4.17 takes the address for a wish */
#else
    (void)g, (void)bytes;
#endif
    return NULL;
}

static void enlist(ae_cpu_guard *g, void *memory, size_t bytes)
{
    uint32_t i = g->n_blocks++;
    for (; i && (uintptr_t)g->blocks[i - 1].memory > (uintptr_t)memory; i--) g->blocks[i] = g->blocks[i - 1];
    g->blocks[i] = (block){memory, bytes};
}

static void enter(ae_cpu_guard *g)
{
    pthread_mutex_lock(&g->mutex);
    if (!g->n_inside++) protect(g, PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&g->mutex);
}

static void leave(ae_cpu_guard *g)
{
    pthread_mutex_lock(&g->mutex);
    if (!--g->n_inside) protect(g, PROT_NONE);
    pthread_mutex_unlock(&g->mutex);
}

void *ae_cpu_guard_alloc(ae_cpu_guard *g, size_t bytes)
{
    if (bytes > SIZE_MAX - PAGE_BYTES) return NULL;
    const size_t whole = (bytes / PAGE_BYTES + 1) * PAGE_BYTES;
    pthread_mutex_lock(&g->mutex);
    void *memory = g->n_blocks < MAX_BLOCKS ? place_before(g, whole) : NULL;
    if (!memory && g->n_blocks < MAX_BLOCKS) memory = ae_os_pages_alloc(whole);
    if (memory) {
        enlist(g, memory, whole);
        if (!g->n_inside) (void)mprotect(memory, whole, PROT_NONE);
    }
    pthread_mutex_unlock(&g->mutex);
    return memory;
}

void ae_cpu_guard_free(ae_cpu_guard *g, void *memory)
{
    pthread_mutex_lock(&g->mutex);
    for (uint32_t i = 0; i < g->n_blocks; i++)
        if (g->blocks[i].memory == memory) {
            ae_os_pages_free(memory, g->blocks[i].bytes);
            memmove(&g->blocks[i], &g->blocks[i + 1], (--g->n_blocks - i) * sizeof *g->blocks);
            break;
        }
    pthread_mutex_unlock(&g->mutex);
}

void ae_cpu_guard_destroy(ae_cpu_guard *g)
{
    if (!g) return;
    pthread_mutex_destroy(&g->mutex);
    ae_free(g);
}

/* ---- The operations --------------------------------------------------------------------------------------- */

static ae_cpu_guard *guard_of(const ae_stream *stream)
{
    return stream->backend->guard;
}

/* Runs the queued operations of the stream. The memory is opened once for all of them, since no other code runs in between. */
static void flush(ae_stream *stream)
{
    if (!ae_cpu_late_waits(stream)) return;
    enter(guard_of(stream));
    ae_cpu_late_flush(stream);
    leave(guard_of(stream));
}

/* Runs the queued operations, because the host waits for the stream. */
static void wait_for(ae_stream *stream)
{
    stream->trips.n_waits += ae_cpu_late_waits(stream);
    flush(stream);
}

ae_cpu_trips ae_cpu_strict_trips(const ae_stream *stream)
{
    return stream->trips;
}

/* Calls the CPU backend's operation while the memory is open. */
#define OPENED(guard, call)        \
    do {                           \
        ae_cpu_guard *g = (guard); \
        enter(g);                  \
        g->inner->call;            \
        leave(g);                  \
    } while (0)

/* Records an operation with plain numbers, or with addresses as numbers, in the current pass. */
#define CHECK(stream, name, ...)                                                                        \
    do {                                                                                                \
        const uint64_t numbers[] = {__VA_ARGS__};                                                       \
        if (ae_cpu_pass_is_checked(stream))                                                             \
            ae_cpu_pass_check(stream, name, ae_cpu_hash_numbers(numbers, sizeof numbers / sizeof *numbers)); \
    } while (0)
#define ADDRESS(p) (uint64_t)(uintptr_t)(p)

/* Defines an operation with one struct of arguments. It runs later (strict_late.c). */
#define OPERATION(name, args_type)                                                                      \
    static void run_##name(ae_stream *stream, void *args)                                               \
    {                                                                                                   \
        OPENED(guard_of(stream), name(stream, args));                                                   \
    }                                                                                                   \
    static void strict_##name(ae_stream *stream, const args_type *args)                                 \
    {                                                                                                   \
        if (ae_cpu_pass_is_checked(stream)) ae_cpu_pass_check(stream, #name, ae_cpu_hash_##name(args)); \
        ae_cpu_late_add(stream, run_##name, args, sizeof *args, NULL, 0);                               \
    }

/* Runs an operation whose struct points to host memory that was copied. */
#define RUN_WITH_COPY(name, args_type, field)                                                           \
    static void run_##name(ae_stream *stream, void *args)                                               \
    {                                                                                                   \
        ((args_type *)args)->field = ae_cpu_late_extra(args, sizeof(args_type));                        \
        OPENED(guard_of(stream), name(stream, args));                                                   \
    }

/* Defines an operation whose struct points to another one on the host. */
#define NESTED_OPERATION(name, args_type, field, type)                                                  \
    RUN_WITH_COPY(name, args_type, field)                                                               \
    static void strict_##name(ae_stream *stream, const args_type *args)                                 \
    {                                                                                                   \
        if (ae_cpu_pass_is_checked(stream)) ae_cpu_pass_check(stream, #name, ae_cpu_hash_##name(args)); \
        ae_cpu_late_add(stream, run_##name, args, sizeof *args, args->field, sizeof(type));             \
    }

/* Defines an operation that reads a (host) array in ways that cannot be recorded. */
#define HOST_OPERATION(name, args_type, field, n)                                                     \
    RUN_WITH_COPY(name, args_type, field)                                                             \
    static void strict_##name(ae_stream *stream, const args_type *args)                               \
    {                                                                                                 \
        ae_cpu_pass_check_host(stream, #name);                                                        \
        ae_cpu_late_add(stream, run_##name, args, sizeof *args, args->field, args->n * sizeof *args->field); \
    }

OPERATION(matmul, ae_matmul)
OPERATION(head_matmul, ae_head_matmul)
OPERATION(norm, ae_norm)
OPERATION(axpy, ae_axpy)
OPERATION(map, ae_map)
OPERATION(mix, ae_row_mix)
OPERATION(hyper, ae_hyper)
OPERATION(rotate, ae_rotate)
OPERATION(moe, ae_moe)
OPERATION(rope_table, ae_rope_table)
NESTED_OPERATION(rope_kv, ae_rope_kv, places, ae_places)
NESTED_OPERATION(compress, ae_compress, places, ae_places)
NESTED_OPERATION(ngrams, ae_ngrams, places, ae_places)
NESTED_OPERATION(trail, ae_trail, places, ae_places)
OPERATION(accord, ae_accord)

/* The data after the arguments of attention. */
typedef struct attention_extra {
    ae_places places;
    ae_attention_more more;
} attention_extra;

static void run_attention(ae_stream *stream, void *args)
{
    ae_attention *a = args;
    attention_extra *extra = ae_cpu_late_extra(args, sizeof *a);
    a->places = &extra->places;
    if (a->more) a->more = &extra->more;
    OPENED(guard_of(stream), attention(stream, a));
}

static void strict_attention(ae_stream *stream, const ae_attention *args)
{
    attention_extra extra = {.places = *args->places};
    if (args->more) extra.more = *args->more;
    if (ae_cpu_pass_is_checked(stream)) ae_cpu_pass_check(stream, "attention", ae_cpu_hash_attention(args));
    ae_cpu_late_add(stream, run_attention, args, sizeof *args, &extra, sizeof extra);
}

NESTED_OPERATION(select, ae_select, places, ae_places)
NESTED_OPERATION(conv, ae_conv, pass, ae_state_pass)
NESTED_OPERATION(recur, ae_recur, pass, ae_state_pass)
OPERATION(gated_norm, ae_gated_norm)
OPERATION(state_absorb, ae_state_pass)
OPERATION(kv_commit, ae_kv_commit_args)
HOST_OPERATION(walk, ae_walk, trees, n_trees)
HOST_OPERATION(propose, ae_propose, rows, n_rows)

static void run_copy(ae_stream *stream, void *args)
{
    ae_copy *a = args;
    if (a->host_rows) a->host_rows = ae_cpu_late_extra(args, sizeof *a);
    OPENED(guard_of(stream), copy(stream, a));
}

static void strict_copy(ae_stream *stream, const ae_copy *args)
{
    if (ae_cpu_pass_is_checked(stream)) ae_cpu_pass_check(stream, "copy", ae_cpu_hash_copy(args));
    ae_cpu_late_add(stream, run_copy, args, sizeof *args, args->host_rows,
                    args->host_rows ? args->n * sizeof *args->host_rows : 0);
}

/* An operation with plain arguments. */
typedef struct call {
    const void *from;
    void *to;
    size_t n, m;
    int32_t a, b;
} call;

static void run_lookup(ae_stream *stream, void *args)
{
    const call *c = args;
    OPENED(guard_of(stream), lookup(stream, c->from, *(const int32_t **)ae_cpu_late_extra(args, sizeof *c), (uint32_t)c->m,
                                    c->to, c->n));
}

static void strict_lookup(ae_stream *stream, const ae_weight *table, const int32_t *tokens, uint32_t n_rows, float *y,
                          size_t y_stride)
{
    CHECK(stream, "lookup", ADDRESS(table), ADDRESS(tokens), n_rows, ADDRESS(y), y_stride);
    ae_cpu_late_add(stream, run_lookup, &(call){.from = table, .to = y, .n = y_stride, .m = n_rows}, sizeof(call), &tokens,
                    sizeof tokens);
}

/* ---- Memory ------------------------------------------------------------------------------------------------ */

static aerie_status strict_weight_create(ae_backend *backend, const ae_weight_source *source, void *memory, ae_weight **out,
                                         aerie_error *error)
{
    ae_cpu_guard *g = ae_cpu(backend)->guard;
    enter(g);
    const aerie_status status = g->inner->weight_create(backend, source, memory, out, error);
    leave(g);
    return status;
}

static aerie_status strict_weight_fill(ae_backend *backend, ae_weight *weight, const void *rows, uint32_t first, uint32_t n,
                                       aerie_error *error)
{
    ae_cpu_guard *g = ae_cpu(backend)->guard;
    enter(g);
    const aerie_status status = g->inner->weight_fill(backend, weight, rows, first, n, error);
    leave(g);
    return status;
}

static aerie_status strict_fill(ae_backend *backend, void *device, const void *host, size_t n, aerie_error *error)
{
    ae_cpu_guard *g = ae_cpu(backend)->guard;
    enter(g);
    const aerie_status status = g->inner->fill(backend, device, host, n, error);
    leave(g);
    return status;
}

static void run_upload(ae_stream *stream, void *args)
{
    const call *c = args;
    OPENED(guard_of(stream), upload(stream, c->to, ae_cpu_late_extra(args, sizeof *c), c->n));
}

static void strict_upload(ae_stream *stream, void *device, const void *host, size_t n)
{
    ae_cpu_pass_check_host(stream, "upload");
    ae_cpu_late_add(stream, run_upload, &(call){.to = device, .n = n}, sizeof(call), host, n);
}

static void strict_download(ae_stream *stream, void *host, const void *device, size_t n)
{
    ae_cpu_pass_check_host(stream, "download");
    wait_for(stream);
    stream->trips.n_downloads++;
    OPENED(guard_of(stream), download(stream, host, device, n));
}

static const void *strict_view(ae_stream *stream, const void *device, void *room, size_t n)
{
    strict_download(stream, room, device, n);
    return room;
}

/* ---- The KV cache and recurrent state ------------------------------------------------------------------------- */

static void run_kv_copy_page(ae_stream *stream, void *args)
{
    const call *c = args;
    OPENED(guard_of(stream), kv_copy_page(stream, c->to, c->a, c->b, (uint32_t)c->n));
}

static void strict_kv_copy_page(ae_stream *stream, ae_kv_store *kv, int32_t from, int32_t to, uint32_t n)
{
    CHECK(stream, "kv_copy_page", ADDRESS(kv), (uint64_t)from, (uint64_t)to, n);
    ae_cpu_late_add(stream, run_kv_copy_page, &(call){.to = kv, .a = from, .b = to, .n = n}, sizeof(call), NULL, 0);
}

static void strict_kv_read(ae_stream *stream, const ae_kv_store *kv, const int32_t *table, int32_t slot, void *out)
{
    ae_cpu_pass_check_host(stream, "kv_read");
    wait_for(stream);
    OPENED(guard_of(stream), kv_read(stream, kv, table, slot, out));
}

static void strict_kv_write(ae_stream *stream, ae_kv_store *kv, const int32_t *table, int32_t slot, const void *bytes)
{
    ae_cpu_pass_check_host(stream, "kv_write");
    wait_for(stream);
    OPENED(guard_of(stream), kv_write(stream, kv, table, slot, bytes));
}

static void run_state_zero(ae_stream *stream, void *args)
{
    const call *c = args;
    OPENED(guard_of(stream), state_zero(stream, c->to, (uint32_t)c->n));
}

static void strict_state_zero(ae_stream *stream, ae_state_store *store, uint32_t plane)
{
    CHECK(stream, "state_zero", ADDRESS(store), plane);
    ae_cpu_late_add(stream, run_state_zero, &(call){.to = store, .n = plane}, sizeof(call), NULL, 0);
}

static void run_state_copy(ae_stream *stream, void *args)
{
    const call *c = args;
    OPENED(guard_of(stream), state_copy(stream, c->to, (uint32_t)c->n, (uint32_t)c->m));
}

static void strict_state_copy(ae_stream *stream, ae_state_store *store, uint32_t from, uint32_t to)
{
    CHECK(stream, "state_copy", ADDRESS(store), from, to);
    ae_cpu_late_add(stream, run_state_copy, &(call){.to = store, .n = from, .m = to}, sizeof(call), NULL, 0);
}

static void strict_state_read(ae_stream *stream, const ae_state_store *store, uint32_t plane, void *out)
{
    ae_cpu_pass_check_host(stream, "state_read");
    wait_for(stream);
    OPENED(guard_of(stream), state_read(stream, store, plane, out));
}

static void strict_state_write(ae_stream *stream, ae_state_store *store, uint32_t plane, const void *bytes)
{
    ae_cpu_pass_check_host(stream, "state_write");
    wait_for(stream);
    OPENED(guard_of(stream), state_write(stream, store, plane, bytes));
}

/* ---- Passes -------------------------------------------------------------------------------------------------- */

static bool strict_pass_begin(ae_stream *stream, uint64_t key)
{
    ae_cpu_pass_check_begin(stream, key);
    return guard_of(stream)->inner->pass_begin(stream, key);
}

static void strict_pass_end(ae_stream *stream)
{
    ae_cpu_pass_check_end(stream);
    guard_of(stream)->inner->pass_end(stream);
}

static aerie_status strict_sync(ae_stream *stream, aerie_error *error)
{
    ae_cpu_pass_check_host(stream, "sync");
    wait_for(stream);
    return guard_of(stream)->inner->sync(stream, error);
}

/* Runs all operations that were queued in the other stream so far. */
static void strict_wait(ae_stream *stream, ae_stream *other)
{
    ae_cpu_pass_check_host(stream, "wait");
    flush(other);
}

static void run_mark(ae_stream *stream, void *args)
{
    stream->mark[((const call *)args)->n] = ae_time_now();
}

static uint32_t strict_mark(ae_stream *stream)
{
    ae_cpu_late_add(stream, run_mark, &(call){.n = stream->n_marks % AE_MARKS}, sizeof(call), NULL, 0);
    return stream->n_marks++;
}

/* Operations that run later call the watcher, too. */
static void strict_watch(ae_stream *stream, ae_watch_fn *watch, void *user)
{
    flush(stream);
    guard_of(stream)->inner->watch(stream, watch, user);
}

static void strict_stream_free(ae_stream *stream)
{
    if (!stream) return;
    ae_cpu_late_free(stream);
    ae_cpu_passes_free(stream->passes);
    guard_of(stream)->inner->stream_free(stream);
}

/* ---- The table -------------------------------------------------------------------------------------------------- */

/* An operation that is missing here accesses closed memory, so the first test that calls it crashes. */
static void set_operations(ae_backend_ops *ops)
{
    ops->name = "cpu-strict";
    ops->stream_free = strict_stream_free;
    ops->sync = strict_sync;
    ops->wait = strict_wait;
    ops->mark = strict_mark;
    ops->watch = strict_watch;
    ops->pass_begin = strict_pass_begin;
    ops->pass_end = strict_pass_end;
    ops->weight_create = strict_weight_create;
    ops->weight_fill = strict_weight_fill;
    ops->kv_copy_page = strict_kv_copy_page;
    ops->kv_commit = strict_kv_commit;
    ops->kv_read = strict_kv_read;
    ops->kv_write = strict_kv_write;
    ops->upload = strict_upload;
    ops->download = strict_download;
    ops->fill = strict_fill;
    ops->view = strict_view;
    ops->view_needs_room = true;
    ops->lookup = strict_lookup;
    ops->matmul = strict_matmul;
    ops->head_matmul = strict_head_matmul;
    ops->norm = strict_norm;
    ops->moe = strict_moe;
    ops->axpy = strict_axpy;
    ops->map = strict_map;
    ops->mix = strict_mix;
    ops->hyper = strict_hyper;
    ops->rotate = strict_rotate;
    ops->compress = strict_compress;
    ops->ngrams = strict_ngrams;
    ops->trail = strict_trail;
    ops->accord = strict_accord;
    ops->rope_table = strict_rope_table;
    ops->rope_kv = strict_rope_kv;
    ops->attention = strict_attention;
    ops->select = strict_select;
    ops->copy = strict_copy;
    ops->walk = strict_walk;
    ops->propose = strict_propose;
    ops->state_zero = strict_state_zero;
    ops->state_copy = strict_state_copy;
    ops->state_absorb = strict_state_absorb;
    ops->state_read = strict_state_read;
    ops->state_write = strict_state_write;
    ops->conv = strict_conv;
    ops->recur = strict_recur;
    ops->gated_norm = strict_gated_norm;
}

aerie_status ae_cpu_open_strict(ae_backend **out, const char *level, aerie_error *error)
{
    ae_backend *b;
    *out = NULL;
    AE_TRY(ae_cpu_open(&b, level, error));
    ae_cpu_guard *g = ae_alloc(1, sizeof *g);
    if (!g) {
        ae_backend_close(b);
        return ae_fail_memory(error, "the strict backend", sizeof *g);
    }
    pthread_mutex_init(&g->mutex, NULL);
    g->ops = *b->ops;
    g->inner = b->ops;
    set_operations(&g->ops);
    ((ae_cpu_backend *)b)->guard = g;
    b->ops = &g->ops;
    *out = b;
    return AERIE_OK;
}

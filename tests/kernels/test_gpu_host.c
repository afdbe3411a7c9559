/* test_gpu_host.c - the host side of the GPU backends over a fake libcuda.so.1 (fake_cuda.h): uploads and downloads of any
 * size, recorded passes, draws, and what happens when a call fails. Kernels are counted, not run. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/cuda/cuda_api.h"
#include "backend/gpu/gpu.h"
#include "backend/gpu/pass.h"
#include "formats/tensor_type.h"
#include "fail_alloc.h"
#include "fake_cuda.h"
#include "sample/sampler.h"

static const unsigned char image[16];
const ae_gpu_image ae_gpu_images[1] = {{image, image + sizeof image}};
const size_t ae_gpu_n_images = 1;

static fake_cuda *fake;

typedef struct bench {
    ae_backend *backend;
    const ae_backend_ops *ops;
    ae_stream *stream;
    ae_pool *pool;
} bench;

static int find_fake(void **state)
{
    (void)state;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    fake = library ? dlsym(library, "fake_cuda_state") : NULL;
    if (!fake) print_message("no fake libcuda.so.1: run by ctest\n");
    return fake ? 0 : -1;
}

static void reset(void)
{
    *fake = (fake_cuda){.version = 13000, .n_devices = 1, .n_left = SIZE_MAX, .fail_with = 700};
}

static aerie_status bench_try(bench *b, aerie_error *error)
{
    *b = (bench){0};
    AE_TRY(ae_pool_create(&b->pool, 2, error));
    AE_TRY(ae_gpu_open(&ae_gpu_driver_cuda, 0, "cuda", &b->backend, error));
    b->ops = b->backend->ops;
    const ae_stream_options options = {.n_threads = 2, .max_rows = 8, .max_in = 256, .pool = b->pool};
    return b->ops->stream_create(b->backend, &options, &b->stream, error);
}

static void bench_close(bench *b)
{
    if (b->stream) b->ops->stream_free(b->stream);
    ae_backend_close(b->backend);
    ae_pool_free(b->pool);
}

static bench bench_open(void)
{
    bench b;
    aerie_error error = {0};
    reset();
    if (bench_try(&b, &error) != AERIE_OK) fail_msg("%s", error.text);
    return b;
}

static void assert_nothing_left(void)
{
    const int counts[] = {fake->n_memory, fake->n_pinned, fake->n_streams, fake->n_events, fake->n_graphs, fake->n_execs,
                          fake->n_modules, fake->n_contexts};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i]) fail_msg("%d of kind %zu are left", counts[i], i);
}

static void need_sync(const bench *b)
{
    aerie_error error = {0};
    if (b->ops->sync(b->stream, &error) != AERIE_OK) fail_msg("%s", error.text);
}

static void assert_sync_says(const bench *b, aerie_status status, const char *part)
{
    aerie_error error = {0};
    assert_int_equal(b->ops->sync(b->stream, &error), status);
    if (!strstr(error.text, part)) fail_msg("\"%s\" lacks \"%s\"", error.text, part);
    need_sync(b); /* said once */
}

/* ---- Copies ----------------------------------------------------------------------------------------------- */

static void fill_bytes(uint8_t *bytes, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)((i * 2654435761u + seed * 40503u) >> 11);
}

/* The array may change as soon as upload returns, and any number of uploads fits between two waits. */
static void test_copies(void **state)
{
    (void)state;
    enum { MOST = 11 << 20 };
    bench b = bench_open();
    uint8_t *host = malloc(MOST), *back = malloc(MOST), *device = b.ops->alloc(b.backend, MOST);
    assert_true(host && back && device);
    static const size_t sizes[] = {1, 0, 63, 64, 65, 4096, 100000, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill_bytes(host, sizes[i], (uint32_t)i);
        b.ops->upload(b.stream, device, host, sizes[i]);
        memset(host, 0, sizes[i]);
        b.ops->download(b.stream, back, device, sizes[i]);
        fill_bytes(host, sizes[i], (uint32_t)i);
        assert_memory_equal(back, host, sizes[i]);
    }
    for (uint32_t i = 0; i < 3000; i++) { /* wraps around the staging memory several times */
        fill_bytes(host, 7777, i);
        b.ops->upload(b.stream, device + (size_t)i % 1000 * 7777, host, 7777);
    }
    for (uint32_t i = 2000; i < 3000; i++) {
        fill_bytes(host, 7777, i);
        assert_ptr_equal(b.ops->view(b.stream, device + (size_t)i % 1000 * 7777, back, 7777), back);
        assert_memory_equal(back, host, 7777);
    }
    fill_bytes(host, MOST, 99);
    assert_int_equal(b.ops->fill(b.backend, device, host, MOST, NULL), AERIE_OK);
    b.ops->download(b.stream, back, device, MOST);
    assert_memory_equal(back, host, MOST);
    need_sync(&b);
    b.ops->free(b.backend, device, MOST);
    free(host);
    free(back);
    bench_close(&b);
    assert_nothing_left();
}

static void test_marks(void **state)
{
    (void)state;
    bench b = bench_open();
    uint32_t first = b.ops->mark(b.stream), last = first;
    for (uint32_t i = 1; i < 3 * AE_MARKS; i++) last = b.ops->mark(b.stream);
    need_sync(&b);
    assert_true(fabs(b.ops->elapsed(b.stream, last - 1, last) - 0.0015) < 1e-6);
    ae_stream *other;
    const ae_stream_options options = {.n_threads = 2, .max_rows = 8, .max_in = 256, .pool = b.pool};
    aerie_error error = {0};
    uint64_t *streams = &ae_gpu(b.backend)->streams;
    assert_int_equal(*streams, 1);
    *streams = ~0ull; /* as if there were as many as can be */
    assert_int_equal(b.ops->stream_create(b.backend, &options, &other, &error), AERIE_ERROR_LIMIT);
    assert_non_null(strstr(error.text, "at most 64"));
    *streams = ~(1ull << 63);
    assert_int_equal(b.ops->stream_create(b.backend, &options, &other, &error), AERIE_OK);
    assert_true(*streams == ~0ull);
    (void)b.ops->mark(other);
    b.ops->stream_free(other);
    assert_true(*streams == ~(1ull << 63));
    *streams = 1;
    bench_close(&b);
    assert_nothing_left();
}

/* ---- Recorded passes -------------------------------------------------------------------------------------- */

static const uint64_t args[500]; /* as large as the arguments of any kernel */

/* A pass of one launch. Returns whether its operations were called. */
static bool pass(const bench *b, uint64_t key)
{
    if (!b->ops->pass_begin(b->stream, key)) return false;
    ae_gpu_launch(b->stream, 0, 1, 1, 1, 0, args);
    b->ops->pass_end(b->stream);
    return true;
}

static void test_passes(void **state)
{
    (void)state;
    bench b = bench_open();
    uint32_t n_recorded, n_replayed;
    assert_true(pass(&b, 7));
    assert_true(fake->n_launches == 1 && !fake->n_captured && !fake->n_replays);
    assert_true(pass(&b, 7)); /* recorded, then run */
    assert_true(fake->n_launches == 1 && fake->n_captured == 1 && fake->n_replays == 1);
    for (uint32_t i = 0; i < 5; i++) assert_false(pass(&b, 7));
    assert_true(fake->n_launches == 1 && fake->n_captured == 1 && fake->n_replays == 6);
    for (uint64_t key = 100; key < 1100; key++) { /* rare keys evict nothing */
        assert_true(pass(&b, key));
        assert_false(pass(&b, 7));
    }
    assert_int_equal(fake->n_execs, 1);
    for (uint64_t key = 2000; key < 2100; key++) { /* frequent ones do: the oldest go */
        pass(&b, key);
        pass(&b, key);
        assert_false(pass(&b, key));
    }
    assert_int_equal(fake->n_execs, 64);
    assert_true(pass(&b, 2000));
    assert_false(pass(&b, 2099));
    assert_false(pass(&b, 2040));
    ae_gpu_passes_count(b.stream, &n_recorded, &n_replayed);
    assert_int_equal(n_replayed, fake->n_replays);
    need_sync(&b);
    bench_close(&b);
    assert_nothing_left();
}

/* Operations that a replay cannot repeat fail, and a pass with one leaves no recording. */
static void test_passes_that_fail(void **state)
{
    (void)state;
    bench b = bench_open();
    uint8_t byte = 1, *device = b.ops->alloc(b.backend, 64);
    for (uint32_t kind = 0; kind < 5; kind++) {
        const unsigned n_launches = fake->n_launches, n_replays = fake->n_replays;
        pass(&b, kind);
        assert_true(b.ops->pass_begin(b.stream, kind));
        ae_gpu_launch(b.stream, 0, 1, 1, 1, 0, args);
        if (kind == 0) b.ops->upload(b.stream, device, &byte, 1);
        if (kind == 1) b.ops->download(b.stream, &byte, device, 1);
        if (kind == 2) b.ops->mark(b.stream);
        if (kind == 3) ae_gpu_decline(b.stream, "what this test does");
        if (kind == 4) ae_gpu_launch(b.stream, 0, 1, 70000, 1, 0, args);
        b.ops->pass_end(b.stream);
        assert_int_equal(fake->n_launches, n_launches + 1);
        assert_int_equal(fake->n_replays, n_replays);
        static const char *const said[] = {"an upload inside a recorded pass", "a download inside a recorded pass",
                                           "a mark inside a recorded pass", "cuda does not run what this test does yet",
                                           "a grid of 1 x 70000 x 1 blocks"};
        assert_sync_says(&b, kind == 3 ? AERIE_ERROR_UNSUPPORTED : AERIE_ERROR_INTERNAL, said[kind]);
        assert_int_equal(fake->n_execs, kind);
        assert_true(pass(&b, kind)); /* without it the pass is recorded */
        assert_false(pass(&b, kind));
        assert_int_equal(fake->n_execs, kind + 1);
        need_sync(&b);
    }
    b.ops->free(b.backend, device, 64);
    bench_close(&b);
    assert_nothing_left();
    setenv("AERIE_GPU_GRAPHS", "0", 1);
    b = bench_open();
    unsetenv("AERIE_GPU_GRAPHS");
    for (uint32_t i = 0; i < 5; i++) assert_true(pass(&b, 7));
    assert_true(fake->n_launches == 5 && !fake->n_captured);
    bench_close(&b);
}

/* ---- Large shapes ------------------------------------------------------------------------------------------- */

/* A grid has at most 65,535 blocks in y and z, and a pass may have more rows. */
static void test_more_rows_than_blocks(void **state)
{
    (void)state;
    enum { N = 70000, DIM = 64 };
    bench b = bench_open();
    aerie_error error = {0};
    const ae_stream_options options = {.n_threads = 2, .max_rows = N, .max_in = DIM, .pool = b.pool};
    const ae_weight_source source = {.type = AE_TYPE_F32, .n_out = DIM, .n_in = DIM,
                                     .use = AE_WEIGHT_MATMUL | AE_WEIGHT_LOOKUP};
    const size_t bytes = b.ops->weight_bytes(b.backend, &source);
    void *memory = b.ops->alloc(b.backend, bytes);
    float *x = b.ops->alloc(b.backend, 64); /* no kernel follows an address here */
    int32_t *numbers = (int32_t *)(void *)x;
    ae_weight *weight;
    b.ops->stream_free(b.stream);
    if (b.ops->stream_create(b.backend, &options, &b.stream, &error) != AERIE_OK) fail_msg("%s", error.text);
    assert_int_equal(b.ops->weight_create(b.backend, &source, memory, &weight, &error), AERIE_OK);
    const ae_places places = {.n_rows = N, .seq = numbers, .pos = numbers, .slot = numbers};
    b.ops->lookup(b.stream, weight, numbers, N, x, DIM);
    b.ops->matmul(b.stream, &(ae_matmul){.n_rows = N, .input = AE_INPUT_RMSNORM, .x = x, .x_stride = DIM, .norm = x,
                                         .n_weights = 1, .out = {{weight, NULL, x, DIM, false}}});
    b.ops->rope_kv(b.stream, &(ae_rope_kv){.places = &places, .q = x, .n_heads = 1, .n_kv_heads = 1, .head_dim = DIM,
                                           .n_rot = DIM, .cos = x, .sin = x});
    b.ops->norm(b.stream, &(ae_norm){.n_rows = N, .n_groups = 1, .dim = DIM, .x = x, .x_stride = DIM, .weight = x});
    b.ops->axpy(b.stream, &(ae_axpy){N, DIM, 1, x, DIM, x, DIM});
    b.ops->map(b.stream, &(ae_map){.kind = AE_MAP_SCALE, .n_rows = N, .dim = DIM, .x = x, .x_stride = DIM, .a = 2});
    b.ops->copy(b.stream, &(ae_copy){.n = N, .dim = DIM, .x = x, .x_stride = DIM, .y = x, .y_stride = DIM});
    need_sync(&b);
    b.ops->weight_free(b.backend, weight);
    b.ops->free(b.backend, memory, bytes);
    b.ops->free(b.backend, x, 64);
    bench_close(&b);
    assert_nothing_left();
}

/* ---- Draws: on the rows that the fake device keeps as they were uploaded ------------------------------------ */

enum { N_VOCAB = 300, N_TREES = 5, N_NODES = 3, N_ROWS = N_TREES * (1 + N_NODES) };

static void *there(const bench *b, const void *host, size_t n)
{
    void *device = b->ops->alloc(b->backend, n);
    assert_non_null(device);
    if (host) b->ops->upload(b->stream, device, host, n);
    return device;
}

typedef struct draws {
    ae_sampler *samplers[N_TREES];
    ae_walk_tree trees[N_TREES];
    ae_propose_row rows[N_TREES];
    float logits[N_ROWS][N_VOCAB];
    int32_t token[N_ROWS], parent[N_ROWS], map[N_VOCAB], eog;
} draws;

/* Trees that are chains of the largest logits: greedy walks go down all of them, the others as they like. */
static void draws_make(draws *d)
{
    for (uint32_t r = 0; r < N_ROWS; r++)
        for (uint32_t i = 0; i < N_VOCAB; i++) d->logits[r][i] = (float)((i * 7919 + r * 104729) % 1009) * 0.01f;
    for (int32_t i = 0; i < N_VOCAB; i++) d->map[i] = 2 * i;
    d->eog = 3;
    for (uint32_t t = 0; t < N_TREES; t++) {
        ae_sampling p = ae_sampling_default();
        p.temperature = t % 2 ? 0 : 0.9f;
        p.seed = t;
        assert_int_equal(ae_sampler_create(&d->samplers[t], &p, NULL, N_VOCAB, 64, NULL), AERIE_OK);
        const uint32_t first = t * (1 + N_NODES);
        d->trees[t] = (ae_walk_tree){.draw = ae_sampler_plain(d->samplers[t]), .room = ae_sampler_room(d->samplers[t]),
                                     .row = first, .output = first, .n = N_NODES, .n_most = 2 + t,
                                     .position = 10 + t};
        d->rows[t] = (ae_propose_row){.draw = ae_sampler_plain(d->samplers[t]),
                                      .output = N_ROWS - 1 - t, .k = t, .position = 20 + t};
        for (uint32_t k = 0; k <= N_NODES; k++) {
            const float *before = d->logits[first + (k ? k - 1 : 0)];
            uint32_t best = 0;
            for (uint32_t i = 1; i < N_VOCAB; i++)
                if (before[i] > before[best]) best = i;
            d->token[first + k] = (int32_t)best;
            d->parent[first + k] = (int32_t)(first + k) - 1;
        }
    }
}

/* Returns how often the walk and the proposals took memory. */
static long draws_run(const ae_backend_ops *ops, const bench *b, const draws *d, ae_walked *walked, ae_proposal *proposals)
{
    float *logits = there(b, d->logits, sizeof d->logits);
    int32_t *token = there(b, d->token, sizeof d->token), *parent = there(b, d->parent, sizeof d->parent);
    int32_t *map = there(b, d->map, sizeof d->map), *eog = there(b, &d->eog, sizeof d->eog);
    ae_walked *walked_there = there(b, NULL, N_TREES * sizeof *walked);
    ae_proposal *proposals_there = there(b, NULL, N_TREES * sizeof *proposals);
    fail_alloc_arm(0, false);
    ops->walk(b->stream, &(ae_walk){.n_trees = N_TREES, .n_vocab = N_VOCAB, .trees = d->trees, .logits = logits, .token = token,
                                    .parent = parent, .eog = eog, .n_eog = 1, .out = walked_there});
    ops->propose(b->stream, &(ae_propose){.n_rows = N_TREES, .n_logits = N_VOCAB, .rows = d->rows, .logits = logits, .map = map,
                                          .out = proposals_there});
    fail_alloc_disarm();
    const long n_taken = fail_alloc_calls();
    const unsigned n_calls = fake->n_calls;
    ops->download(b->stream, proposals, proposals_there, N_TREES * sizeof *proposals);
    need_sync(b);
    assert_int_equal(fake->n_calls, n_calls); /* the newest results are still on the host, and nothing is waited for */
    ops->download(b->stream, walked, walked_there, N_TREES * sizeof *walked);
    assert_true(fake->n_calls > n_calls);
    ops->upload(b->stream, proposals_there, &n_calls, sizeof n_calls);
    ae_proposal changed;
    ops->download(b->stream, &changed, proposals_there, sizeof changed);
    assert_int_equal(changed.n, n_calls);
    void *const all[] = {logits, token, parent, map, eog, walked_there, proposals_there};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ops->free(b->backend, all[i], 0);
    return n_taken;
}

static void test_draws(void **state)
{
    (void)state;
    static draws d;
    bench b = bench_open();
    ae_walked walked[N_TREES], expected;
    ae_proposal proposals[N_TREES], proposal;
    ae_stream *stream = b.stream;
    stream->rows_to_host = true; /* the fake device finds nothing */
    draws_make(&d);
    draws_run(b.ops, &b, &d, walked, proposals);
    assert_int_equal(draws_run(b.ops, &b, &d, walked, proposals), 0); /* passes take no memory */
    need_sync(&b);
    for (uint32_t t = 0; t < N_TREES; t++) {
        int32_t node = -1, token;
        memset(&expected, 0, sizeof expected);
        const ae_walk_nodes nodes = {N_NODES, d.token + d.trees[t].row + 1, d.parent + d.trees[t].row + 1,
                                     (int32_t)d.trees[t].row + 1};
        do token = ae_sampler_draw(d.samplers[t], d.logits[d.trees[t].output + (uint32_t)(node + 1)], NULL,
                                   (size_t)d.trees[t].position + expected.n_drawn);
        while (ae_walk_step(&nodes, d.trees[t].n_most, AE_WALK_ON, token, &node, &expected));
        assert_memory_equal(&walked[t], &expected, sizeof expected);
        assert_true(!(t % 2) || walked[t].n_drawn == (t == 1 ? 3 : 4));
        memset(&proposal, 0, sizeof proposal);
        proposal.n = ae_sampler_propose(d.samplers[t], d.logits[d.rows[t].output], N_VOCAB, d.map, (size_t)d.rows[t].position,
                                        d.rows[t].k, proposal.id, proposal.p);
        assert_memory_equal(&proposals[t], &proposal, sizeof proposal);
    }
    for (uint32_t t = 0; t < N_TREES; t++) ae_sampler_free(d.samplers[t]);
    bench_close(&b);
    assert_nothing_left();
}

/* ---- Threads ------------------------------------------------------------------------------------------------ */

enum { N_THREADS = 3 };

/* A user of the device: its own stream, its own memory. */
static void *use_thread(void *context)
{
    const bench *shared = context;
    bench b = *shared;
    enum { N = 70000 };
    static _Thread_local uint8_t host[N], back[N];
    const ae_stream_options options = {.n_threads = 2, .max_rows = 2, .max_in = 256, .pool = b.pool};
    const char *failure = NULL;
    if (b.ops->stream_create(b.backend, &options, &b.stream, NULL) != AERIE_OK) return "a stream";
    for (uint32_t i = 0; i < 300 && !failure; i++) {
        uint8_t *device = b.ops->alloc(b.backend, N);
        fill_bytes(host, N, i * 31 + (uint32_t)(uintptr_t)&b);
        if (i % 3) b.ops->upload(b.stream, device, host, N);
        else if (b.ops->fill(b.backend, device, host, N, NULL) != AERIE_OK) failure = "a fill";
        pass(&b, i % 5);
        b.ops->download(b.stream, back, device, N);
        if (memcmp(host, back, N)) failure = "other bytes";
        if (b.ops->sync(b.stream, NULL) != AERIE_OK) failure = "a sync";
        b.ops->free(b.backend, device, N);
    }
    b.ops->stream_free(b.stream);
    return (void *)(uintptr_t)failure;
}

static void test_threads(void **state)
{
    (void)state;
    bench b = bench_open();
    pthread_t threads[N_THREADS];
    for (uint32_t i = 0; i < N_THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, use_thread, &b), 0);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        void *failure;
        pthread_join(threads[i], &failure);
        if (failure) fail_msg("thread %u: %s", i, (const char *)failure);
    }
    assert_true(fake->n_replays == N_THREADS * (300 - 5) && fake->n_captured == N_THREADS * 5);
    bench_close(&b);
    assert_nothing_left();
}

/* ---- Failures ----------------------------------------------------------------------------------------------- */

static aerie_status use_stream(bench *b, aerie_error *error)
{
    static uint8_t bytes[5000];
    AE_TRY(bench_try(b, error));
    uint8_t *device = b->ops->alloc(b->backend, sizeof bytes);
    if (!device) return ae_fail_memory(error, "the test", sizeof bytes);
    aerie_status status = b->ops->fill(b->backend, device, bytes, sizeof bytes, error);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t from = b->ops->mark(b->stream);
        b->ops->upload(b->stream, device, bytes, sizeof bytes);
        pass(b, 1);
        (void)b->ops->elapsed(b->stream, from, b->ops->mark(b->stream));
        b->ops->download(b->stream, bytes, device, sizeof bytes);
        const aerie_status synced = b->ops->sync(b->stream, status == AERIE_OK ? error : NULL);
        if (status == AERIE_OK) status = synced;
    }
    b->ops->free(b->backend, device, sizeof bytes);
    return status;
}

static void test_every_call_fails(void **state)
{
    (void)state;
    bench b;
    aerie_error error = {0};
    reset();
    assert_int_equal(use_stream(&b, &error), AERIE_OK);
    bench_close(&b);
    const unsigned n_calls = fake->n_calls;
    unsigned n_seen = 0;
    for (unsigned i = 1; i <= n_calls; i++) {
        reset();
        fake->fail_at = i;
        error = (aerie_error){0};
        const aerie_status status = use_stream(&b, &error);
        bench_close(&b);
        n_seen += status != AERIE_OK;
        if (status != AERIE_OK && (!*error.text || error.status != status))
            fail_msg("call %u, %s: no sentence", i, fake->failed);
        assert_nothing_left();
    }
    assert_true(n_seen > n_calls / 2);
}

/* Out of memory at each allocation of the host, too. */
static void test_device_memory(void **state)
{
    (void)state;
    bench b;
    for (size_t left = 0; left < (size_t)64 << 20; left = left * 2 + 1000) {
        aerie_error error = {0};
        reset();
        fake->n_left = left;
        const aerie_status status = use_stream(&b, &error);
        bench_close(&b);
        if (status == AERIE_OK) break;
        if (status != AERIE_ERROR_MEMORY || !strstr(error.text, "not enough memory for")) fail_msg("%s", error.text);
        assert_nothing_left();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies), cmocka_unit_test(test_marks),
        cmocka_unit_test(test_passes), cmocka_unit_test(test_passes_that_fail),
        cmocka_unit_test(test_draws),  cmocka_unit_test(test_every_call_fails),
        cmocka_unit_test(test_more_rows_than_blocks),
        cmocka_unit_test(test_device_memory), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, find_fake, NULL);
}

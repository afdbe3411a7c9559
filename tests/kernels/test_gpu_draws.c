/* test_gpu_draws.c - walks and proposals on a device with kernels against the CPU's: chains of samplers, sizes of
 * vocabularies, ties, rows with NaN and infinities. AERIE_TEST_DEVICE names the device; without one it is the emulation.
 * AERIE_TEST_OPTIONAL: a machine without that device skips everything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "sample/sampler.h"

enum { N_TREES = 4, N_NODES = 5, N_ROWS = N_TREES * (1 + N_NODES), N_PROPOSED = 9 };

typedef struct bench {
    ae_backend *backend;
    const ae_backend_ops *ops;
    ae_stream *stream;
} bench;

static bench benches[2]; /* the CPU, the device under test */
static ae_pool *pool;

static int open_both(void **state)
{
    const char *said = getenv("AERIE_TEST_DEVICE");
    (void)state;
    aerie_error error = {0};
    const ae_stream_options options = {.n_threads = 2, .max_rows = N_ROWS, .max_in = 256};
    if (ae_pool_create(&pool, 2, &error) != AERIE_OK) return -1;
    for (uint32_t i = 0; i < 2; i++) {
        ae_stream_options o = options;
        bench *b = &benches[i];
        o.pool = pool;
        if (ae_backend_open(&b->backend, !i ? "cpu" : said && *said ? said : "emu", NULL, &error) != AERIE_OK) {
            print_message("no device: %s\n", error.text);
            return said && *said && !(error.status == AERIE_ERROR_UNSUPPORTED && getenv("AERIE_TEST_OPTIONAL")) ? -1 : 0;
        }
        b->ops = b->backend->ops;
        if (b->ops->stream_create(b->backend, &o, &b->stream, &error) != AERIE_OK) return -1;
    }
    return 0;
}

static int close_both(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        if (benches[i].stream) benches[i].ops->stream_free(benches[i].stream);
        ae_backend_close(benches[i].backend);
    }
    ae_pool_free(pool);
    return 0;
}

static uint32_t noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

typedef enum row_kind { ROW_PLAIN, ROW_TIES, ROW_HOLES, ROW_FEW, ROW_EMPTY, ROW_INFINITE, ROW_EXTREME, ROW_KINDS } row_kind;

/* A row of a kind: of distinct logits; of few distinct ones, -0 among them; with NaN and -infinity; with three candidates; with
 * none; with +infinity; of the largest and smallest floats. */
static void make_row(float *row, uint32_t n, row_kind kind, uint32_t seed)
{
    uint32_t s = seed * 2654435761u + 12345;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t r = noise(&s);
        const float x = (float)((int32_t)(r % 200001) - 100000) * 1e-4f;
        row[i] = x;
        if (kind == ROW_TIES) row[i] = r % 5 ? (float)(r % 3) : -0.0f;
        if (kind == ROW_HOLES) row[i] = r % 3 == 0 ? NAN : r % 3 == 1 ? -INFINITY : x;
        if (kind == ROW_FEW) row[i] = i * 3 / n != (i + 1) * 3 / n ? x : i % 2 ? NAN : -INFINITY;
        if (kind == ROW_EMPTY) row[i] = i % 2 ? NAN : -INFINITY;
        if (kind == ROW_INFINITE) row[i] = r % 7 ? x : INFINITY;
        if (kind == ROW_EXTREME) row[i] = r % 4 == 0 ? -FLT_MAX : r % 4 == 1 ? 1e-45f : r % 4 == 2 ? 3e38f : x * 1e30f;
    }
}

typedef enum chain { GREEDY, USUAL, TOP_K, NOISE, BIASED, CHAINS } chain;

static ae_sampling chain_of(chain kind, uint32_t seed)
{
    static const aerie_logit_bias bias = {.token = 0, .bias = 1.5f};
    ae_sampling p = ae_sampling_default();
    p.seed = seed;
    p.temperature = kind == GREEDY ? 0 : 0.8f;
    if (kind == TOP_K) p.top_k = 1 + (int32_t)(seed % 70); /* sometimes more than the device returns */
    if (kind == NOISE) p.top_k = 0;
    if (kind == BIASED) {
        p.temperature = 0;
        p.logit_bias = &bias;
        p.n_logit_bias = 1;
    }
    return p;
}

typedef struct draws {
    uint32_t n_vocab;
    float *logits; /* [N_ROWS][n_vocab] */
    int32_t *map;  /* [n_vocab] */
    int32_t token[N_ROWS], parent[N_ROWS], eog[2];
    ae_walk_tree trees[N_TREES];
    ae_propose_row rows[N_PROPOSED];
    ae_sampler *samplers[N_TREES];
} draws;

static int32_t best_of(const float *row, uint32_t n)
{
    int32_t best = 0;
    for (uint32_t i = 0; i < n; i++)
        if (row[i] > row[best] || row[best] != row[best]) best = (int32_t)i;
    return best;
}

static void draws_make(draws *d, uint32_t n_vocab, uint32_t seed)
{
    *d = (draws){.n_vocab = n_vocab, .eog = {(int32_t)n_vocab / 3, (int32_t)n_vocab - 1}};
    d->logits = malloc((size_t)N_ROWS * n_vocab * sizeof *d->logits);
    d->map = malloc(n_vocab * sizeof *d->map);
    assert_true(d->logits && d->map);
    for (uint32_t i = 0; i < n_vocab; i++) d->map[i] = (int32_t)(n_vocab - 1 - i);
    for (uint32_t r = 0; r < N_ROWS; r++) {
        const row_kind kind = (seed + r) % 3 ? ROW_PLAIN : (row_kind)((seed + r / 3) % ROW_KINDS);
        make_row(d->logits + (size_t)r * n_vocab, n_vocab, kind, seed * 100 + r);
    }
    for (uint32_t t = 0; t < N_TREES; t++) {
        const ae_sampling p = chain_of((chain)((seed + t) % CHAINS), seed * 10 + t);
        const uint32_t first = t * (1 + N_NODES), n = (seed + t) % 4 ? N_NODES : 0;
        assert_int_equal(ae_sampler_create(&d->samplers[t], &p, NULL, n_vocab, 64, NULL), AERIE_OK);
        d->trees[t] = (ae_walk_tree){.draw = ae_sampler_plain(d->samplers[t]), .room = ae_sampler_room(d->samplers[t]),
                                     .row = first, .output = first, .n = n,
                                     .n_most = 1 + (seed + t) % 7, .position = 5 + seed, .ends = t % 2};
        d->parent[first] = (int32_t)first - 1;
        for (uint32_t k = 1; k <= N_NODES; k++) { /* chains of tokens that are probably drawn */
            d->parent[first + k] = (int32_t)(first + k) - 1;
            d->token[first + k] = best_of(d->logits + (size_t)(first + k - 1) * n_vocab, n_vocab);
        }
    }
    for (uint32_t r = 0; r < N_PROPOSED; r++)
        d->rows[r] = (ae_propose_row){.draw = ae_sampler_plain(d->samplers[(seed + r) % N_TREES]),
                                      .output = (seed + 5 * r) % N_ROWS,
                                      .k = (seed + r) % 19, .position = 9 + r};
}

static void draws_free(draws *d)
{
    for (uint32_t t = 0; t < N_TREES; t++) ae_sampler_free(d->samplers[t]);
    free(d->logits);
    free(d->map);
}

static void *there(const bench *b, const void *host, size_t n)
{
    void *device = b->ops->alloc(b->backend, n);
    assert_non_null(device);
    if (host) b->ops->upload(b->stream, device, host, n);
    return device;
}

static void run(const bench *b, const draws *d, bool mapped, ae_walked *walked, ae_proposal *proposals)
{
    aerie_error error = {0};
    float *logits = there(b, d->logits, (size_t)N_ROWS * d->n_vocab * sizeof *logits);
    int32_t *token = there(b, d->token, sizeof d->token), *parent = there(b, d->parent, sizeof d->parent);
    int32_t *map = there(b, d->map, d->n_vocab * sizeof *map), *eog = there(b, d->eog, sizeof d->eog);
    ae_walked *walked_there = there(b, NULL, N_TREES * sizeof *walked);
    ae_proposal *proposals_there = there(b, NULL, N_PROPOSED * sizeof *proposals);
    b->ops->walk(b->stream, &(ae_walk){.n_trees = N_TREES, .n_vocab = d->n_vocab, .trees = d->trees, .logits = logits,
                                     .token = token, .parent = parent, .eog = eog, .n_eog = 2, .out = walked_there});
    b->ops->propose(b->stream, &(ae_propose){.n_rows = N_PROPOSED, .n_logits = d->n_vocab, .rows = d->rows, .logits = logits,
                                             .map = mapped ? map : NULL, .out = proposals_there});
    b->ops->download(b->stream, walked, walked_there, N_TREES * sizeof *walked);
    b->ops->download(b->stream, proposals, proposals_there, N_PROPOSED * sizeof *proposals);
    if (b->ops->sync(b->stream, &error) != AERIE_OK) fail_msg("%s", error.text);
    const struct {
        void *memory;
        size_t bytes;
    } all[] = {{logits, (size_t)N_ROWS * d->n_vocab * sizeof *logits}, {token, sizeof d->token}, {parent, sizeof d->parent},
               {map, d->n_vocab * sizeof *map}, {eog, sizeof d->eog}, {walked_there, N_TREES * sizeof *walked},
               {proposals_there, N_PROPOSED * sizeof *proposals}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) b->ops->free(b->backend, all[i].memory, all[i].bytes);
}

static void compare(uint32_t n_vocab, uint32_t seed)
{
    ae_walked walked[2][N_TREES];
    ae_proposal proposals[2][N_PROPOSED];
    draws d;
    draws_make(&d, n_vocab, seed);
    for (uint32_t i = 0; i < 2; i++) run(&benches[i], &d, seed % 2, walked[i], proposals[i]);
    for (uint32_t t = 0; t < N_TREES; t++) {
        const ae_walked *x = &walked[0][t], *y = &walked[1][t];
        if (x->n_drawn != y->n_drawn || x->n_path != y->n_path || x->overflowed != y->overflowed ||
            memcmp(x->drawn, y->drawn, x->n_drawn * sizeof *x->drawn) || memcmp(x->path, y->path, x->n_path * sizeof *x->path))
            fail_msg("%u logits, seed %u, tree %u: %u, %u, %u, first %d; must be %u, %u, %u, first %d", n_vocab, seed, t,
                     y->n_drawn, y->n_path, y->overflowed, y->drawn[0], x->n_drawn, x->n_path, x->overflowed, x->drawn[0]);
    }
    for (uint32_t r = 0; r < N_PROPOSED; r++) {
        const ae_proposal *x = &proposals[0][r], *y = &proposals[1][r];
        if (x->n != y->n || memcmp(x->id, y->id, x->n * sizeof *x->id) || memcmp(x->p, y->p, x->n * sizeof *x->p))
            fail_msg("%u logits, seed %u, row %u: %u, first %d with %a; must be %u, %d, %a", n_vocab, seed, r, y->n, y->id[0],
                     (double)y->p[0], x->n, x->id[0], (double)x->p[0]);
    }
    draws_free(&d);
}

static void test_small(void **state)
{
    (void)state;
    if (!benches[1].stream) skip();
    for (uint32_t n = 1; n <= 4; n++)
        for (uint32_t seed = 0; seed < 20; seed++) compare(n, seed);
    for (uint32_t seed = 0; seed < 105; seed++) compare(63 + seed % 3, seed);
}

static void test_sizes(void **state)
{
    (void)state;
    if (!benches[1].stream) skip();
    static const uint32_t sizes[] = {1023, 1024, 1025, 5000, 16384, 16385, 49152};
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t seed = 0; seed < (sizes[i] < 2000 ? 12 : 3); seed++) compare(sizes[i], 7 * i + seed);
}

/* Only where kernels run as fast as they should. */
static void test_large(void **state)
{
    (void)state;
    const char *said = getenv("AERIE_TEST_DEVICE");
    if (!benches[1].stream || !said || strncmp(said, "cuda", 4)) skip();
    for (uint32_t seed = 0; seed < 12; seed++) compare(seed % 2 ? 128256 : 262144, seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_small), cmocka_unit_test(test_sizes),
                                       cmocka_unit_test(test_large)};
    return cmocka_run_group_tests(tests, open_both, close_both);
}

/* test_ngrams.c - what a memory of n-grams has of the backend (ae_ngrams, ae_trail, ae_accord), and means of keys (ae_compress
 * without ape), against plain sums.
 *
 * Rows of drafts have their ancestors in later slots. A row's result depends neither on the rows around it, nor on threads.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "device/device.h"

enum { PAGES = 3, LIVE = 131, TREE = 6, ROWS = LIVE + TREE, PARTS = 3, DIM = 20, TAPS = 4, STEP = 3, POOL = 8, END = 7 };
enum { N = 3, EACH = 2, HASHES = (N - 1) * EACH };

typedef struct rig {
    ae_backend *backend;
    ae_pool *pool;
    ae_stream *stream;
    ae_kv_store *kv; /* layer 0: tokens; 1: rows of the trail; 2: keys of pools */
    int32_t table[PAGES];
} rig;

typedef struct rows {
    int32_t seq[ROWS], pos[ROWS], slot[ROWS], n_inplace[ROWS], path[ROWS][TREE], parent[ROWS], token[ROWS];
    float x[ROWS][PARTS * DIM], x2[ROWS][PARTS * DIM], key[ROWS][DIM];
} rows;

typedef struct result {
    int32_t ids[ROWS][HASHES];
    float trail[ROWS][PARTS * DIM], accord[ROWS][PARTS], mean[ROWS][DIM];
} result;

static uint64_t random_state = 1;

static float number(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(random_state >> 40) / (1 << 23) - 1.0);
}

static void open_rig(rig *r, uint32_t n_threads)
{
    aerie_error error = {0};
    const ae_kv_layer layers[] = {{1, 1, 0, true, false}, {PARTS, DIM, 0, true, false}, {1, DIM, 0, true, false}};
    const ae_kv_shape shape = {3, layers, PAGES, AE_KV_F16};
    if (ae_pool_create(&r->pool, n_threads, &error) != AERIE_OK) fail_msg("%s", error.text);
    const ae_stream_options options = {.n_threads = n_threads, .max_rows = ROWS, .max_in = 64, .pool = r->pool};
    if (ae_backend_open(&r->backend, NULL, NULL, &error) != AERIE_OK ||
        r->backend->ops->stream_create(r->backend, &options, &r->stream, &error) != AERIE_OK ||
        r->backend->ops->kv_create(r->backend, &shape, &r->kv, &error) != AERIE_OK)
        fail_msg("%s", error.text);
    for (int32_t i = 0; i < PAGES; i++) r->table[i] = (i + 1) % PAGES;
}

static void close_rig(rig *r)
{
    r->backend->ops->kv_free(r->backend, r->kv);
    r->backend->ops->stream_free(r->stream);
    ae_pool_free(r->pool);
    ae_backend_close(r->backend);
}

static void make_rows(rows *x)
{
    static const int32_t parents[TREE] = {-1, 0, 1, 1, 0, -1};
    memset(x, 0, sizeof *x);
    random_state = 1;
    for (int32_t r = 0; r < ROWS; r++) {
        const int32_t draft = r - LIVE;
        x->parent[r] = draft < 0 ? r - 1 : parents[draft] < 0 ? LIVE - 1 : LIVE + parents[draft];
        x->pos[r] = draft < 0 ? r : x->pos[x->parent[r]] + 1;
        x->slot[r] = r;
        x->n_inplace[r] = draft < 0 ? r + 1 : LIVE;
        if (draft >= 0) {
            memcpy(x->path[r], x->path[x->parent[r]], sizeof x->path[r]);
            x->path[r][x->pos[r] - LIVE] = r;
        }
        x->token[r] = (int32_t)((number() + 1) * 6); /* END among them; */
        if (r % 29 == 0) x->token[r] = -1;           /* and rows without a token */
        for (int i = 0; i < PARTS * DIM; i++) x->x[r][i] = number(), x->x2[r][i] = number();
        for (int i = 0; i < DIM; i++) x->key[r][i] = number();
    }
    for (int i = 0; i < DIM; i++) x->x2[3][i] = 0; /* a dot of 0 */
}

static ae_ngrams hashes(void)
{
    ae_ngrams a = {.end = END, .n_tokens = N, .n_each = EACH, .factors = {UINT64_MAX / 5, 12345678912345677, 1234567},
                   .sizes = {101, 2147483647, 1, 109}, .offsets = {0, 0, 204, 2147483000}};
    return a;
}

static float weight_of(uint32_t i, uint32_t j)
{
    return (float)((i * 7 + j * 13) % 19) / 8.0f - 1.0f;
}

static void pass(rig *g, const rows *x, uint32_t first, uint32_t n, result *out)
{
    static float w[PARTS * DIM][TAPS];
    const ae_backend_ops *ops = g->backend->ops;
    aerie_error error = {0};
    for (uint32_t i = 0; i < PARTS * DIM; i++)
        for (uint32_t j = 0; j < TAPS; j++) w[i][j] = weight_of(i, j);
    const ae_places places = {.n_rows = n, .seq = x->seq + first, .pos = x->pos + first, .slot = x->slot + first,
                              .n_inplace = x->n_inplace + first, .path = x->path[first], .path_stride = TREE,
                              .tables = g->table, .table_stride = PAGES};
    ae_ngrams a = hashes();
    a.places = &places, a.kv = g->kv, a.tokens = x->token + first, a.y = out->ids[first];
    ops->ngrams(g->stream, &a);
    memcpy(out->trail[first], x->x[first], n * sizeof x->x[0]);
    ops->trail(g->stream, &(ae_trail){.places = &places, .kv = g->kv, .layer = 1, .n_heads = PARTS, .dim = DIM, .n_taps = TAPS,
                                      .step = STEP, .x = out->trail[first], .weight = w[0], .y = out->trail[first]});
    ops->accord(g->stream, &(ae_accord){.n_rows = n, .n_parts = PARTS, .dim = DIM, .x = x->x[first], .x2 = x->x2[first],
                                        .scale = 0.5f, .y = out->accord[first], .y_stride = PARTS});
    ops->compress(g->stream, &(ae_compress){.places = &places, .kv = g->kv, .layer = 2, .dim = DIM, .n_parts = 1, .every = POOL,
                                            .x = x->key[first], .y = out->mean[first]});
    if (ops->sync(g->stream, &error) != AERIE_OK) fail_msg("%s", error.text);
}

/* The row at position `pos` on the path of row r. */
static int32_t ancestor(const rows *x, int32_t r, int32_t pos)
{
    while (x->pos[r] > pos) r = x->parent[r];
    return r;
}

static void check_ids(const rows *x, const result *got, int32_t r)
{
    const ae_ngrams a = hashes();
    int64_t t[N];
    bool ended = false;
    for (int32_t j = 0; j < N; j++) {
        const int32_t at = x->pos[r] - j, token = at < 0 ? -1 : x->token[ancestor(x, r, at)];
        t[j] = ended || token < 0 ? END : token;
        ended |= j && t[j] == END;
    }
    for (uint32_t k = 0; k < HASHES; k++) {
        uint64_t m = (uint64_t)t[0] * a.factors[0];
        for (uint32_t j = 1; j < 2 + k / EACH; j++) m ^= (uint64_t)t[j] * a.factors[j];
        assert_int_equal(got->ids[r][k], (int32_t)(m % a.sizes[k] + a.offsets[k]));
    }
}

static void check_values(const rows *x, const result *got, int32_t r)
{
    for (uint32_t i = 0; i < PARTS * DIM; i++) {
        double s = 0;
        for (int32_t j = 0; j < TAPS; j++) {
            const int32_t at = x->pos[r] - (TAPS - 1 - j) * STEP;
            if (at >= 0) s += (double)weight_of(i, (uint32_t)j) * (double)x->x[ancestor(x, r, at)][i];
        }
        assert_true(fabs((double)got->trail[r][i] - s / (1 + exp(-s))) < 1e-5);
    }
    for (uint32_t k = 0; k < PARTS; k++) {
        double s = 0;
        for (uint32_t i = 0; i < DIM; i++) s += 0.5 * (double)x->x[r][k * DIM + i] * (double)x->x2[r][k * DIM + i];
        const double g = s == 0 ? 0 : copysign(sqrt(fmax(fabs(s), 1e-6)), s);
        assert_true(fabs((double)got->accord[r][k] - 1 / (1 + exp(-g))) < 1e-5);
    }
    for (uint32_t i = 0; i < DIM; i++) {
        double s = 0;
        for (int32_t j = 0; (x->pos[r] + 1) % POOL == 0 && j < POOL; j++)
            s += (double)x->key[ancestor(x, r, x->pos[r] - j)][i] / POOL;
        assert_true(fabs((double)got->mean[r][i] - s) < 1e-6);
    }
}

static void test_against_sums(void **state)
{
    static rows x;
    static result got, other;
    (void)state;
    make_rows(&x);
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        rig g;
        open_rig(&g, threads);
        memset(&got, 0, sizeof got);
        pass(&g, &x, 0, ROWS, &got);
        for (int32_t r = 0; r < ROWS; r++) check_ids(&x, &got, r), check_values(&x, &got, r);
        close_rig(&g);
        open_rig(&g, threads);
        memset(&other, 0, sizeof other);
        for (uint32_t r = 0; r < ROWS; r++) pass(&g, &x, r, 1, &other);
        assert_memory_equal(&other, &got, sizeof got);
        close_rig(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_select.c - which positions attention chooses (ae_select), against a plain sort of scores in double.
 *
 * The keys produce scores that tie, are zero, negative and NaN: a tie chooses the lower position, a NaN comes last. Rows of
 * drafts see their path, and no row's choice changes with the rows around it, or with threads. Groups that choose blocks are
 * checked in the same way, and so are pools.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "device/device.h"

enum { DIM = 16, ROPE = 4, LENGTH = DIM + ROPE, HEADS = 3, PAGES = 5, SLOTS = PAGES * AE_KV_PAGE, ROWS = 20, PATH = 8 };

typedef struct rig {
    ae_backend *backend;
    ae_pool *pool;
    ae_stream *stream;
    ae_kv_store *kv;
    int32_t table[PAGES];
    float keys[SLOTS][LENGTH]; /* by slot */
} rig;

static uint64_t random_state = 1;

static uint32_t below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

static void open_rig(rig *r, uint32_t n_threads)
{
    aerie_error error = {0};
    const ae_kv_layer layer = {1, DIM, ROPE, false, false};
    const ae_kv_shape shape = {1, &layer, PAGES, AE_KV_F32};
    if (ae_pool_create(&r->pool, n_threads, &error) != AERIE_OK) fail_msg("%s", error.text);
    const ae_stream_options options = {.n_threads = n_threads, .max_rows = SLOTS, .max_in = 32, .n_selected_from = SLOTS,
                                       .pool = r->pool};
    if (ae_backend_open(&r->backend, NULL, NULL, &error) != AERIE_OK ||
        r->backend->ops->stream_create(r->backend, &options, &r->stream, &error) != AERIE_OK ||
        r->backend->ops->kv_create(r->backend, &shape, &r->kv, &error) != AERIE_OK)
        fail_msg("%s", error.text);
    for (int32_t i = 0; i < PAGES; i++) r->table[i] = PAGES - 1 - i;
}

static void close_rig(rig *r)
{
    r->backend->ops->kv_free(r->backend, r->kv);
    r->backend->ops->stream_free(r->stream);
    ae_pool_free(r->pool);
    ae_backend_close(r->backend);
}

/* Few different keys, so that many scores are equal. */
static void write_keys(rig *r, uint32_t n_kinds, bool wild)
{
    static float x[SLOTS][LENGTH], q[SLOTS][LENGTH];
    static int32_t seq[SLOTS], slot[SLOTS];
    float kinds[8][LENGTH];
    random_state = 1;
    for (uint32_t k = 0; k < 8; k++)
        for (uint32_t i = 0; i < LENGTH; i++) kinds[k][i] = (float)below(9) - 4;
    for (int32_t s = 0; s < SLOTS; s++) {
        memcpy(r->keys[s], kinds[below(n_kinds)], sizeof kinds[0]);
        if (wild && !below(30)) r->keys[s][below(LENGTH)] = NAN;
        slot[s] = s;
    }
    memcpy(x, r->keys, sizeof x);
    const ae_places places = {.n_rows = SLOTS, .seq = seq, .pos = slot, .slot = slot, .n_inplace = slot, .tables = r->table,
                              .table_stride = PAGES};
    r->backend->ops->rope_kv(r->stream, &(ae_rope_kv){.places = &places, .kv = r->kv, .n_heads = 1, .n_kv_heads = 1,
                                                      .head_dim = LENGTH, .q = q[0], .k = x[0]});
}

/* Exact in double: keys, queries and weights are small integers. */
static double score_of(const float *key, const float *q, const float *weight)
{
    double sum = 0;
    for (uint32_t a = 0; a < HEADS; a++) {
        double dot = 0;
        for (uint32_t i = 0; i < LENGTH; i++) dot += (double)key[i] * (double)q[a * LENGTH + i];
        sum += (double)weight[a] * (dot > 0 ? dot : 0);
    }
    return sum;
}

typedef struct rows {
    int32_t seq[ROWS], pos[ROWS], n_inplace[ROWS], path[ROWS][PATH];
    float q[ROWS][HEADS * LENGTH], weight[ROWS][HEADS];
} rows;

static int32_t slot_of(const rows *x, uint32_t r, int32_t pos)
{
    return pos < x->n_inplace[r] ? pos : x->path[r][pos - x->n_inplace[r]];
}

/* The slots of the row's choice, in ascending order of their positions; how many. */
static int32_t choose(const rig *g, const rows *x, uint32_t r, int32_t most, int32_t every, int32_t *out)
{
    double score[SLOTS];
    int32_t n = 0;
    for (int32_t p = every - 1; p <= x->pos[r]; p += every)
        score[p] = score_of(g->keys[slot_of(x, r, p)], x->q[r], x->weight[r]);
    for (int32_t p = every - 1; p <= x->pos[r]; p += every) {
        int32_t n_before = 0;
        for (int32_t o = every - 1; o <= x->pos[r]; o += every)
            n_before += score[o] > score[p] || (score[o] == score[p] && o < p);
        if (n_before < most) out[n++] = slot_of(x, r, p);
    }
    return n;
}

static void make_rows(rows *x)
{
    memset(x, 0, sizeof *x);
    for (uint32_t r = 0; r < ROWS; r++) {
        x->pos[r] = (int32_t)below(SLOTS - 70);
        x->n_inplace[r] = x->pos[r] + 1;
        for (uint32_t i = 0; i < HEADS * LENGTH; i++) x->q[r][i] = (float)below(5) - 2;
        for (uint32_t i = 0; i < HEADS; i++) x->weight[r][i] = (float)below(5) - 2;
        if (below(2) || x->pos[r] < PATH) continue;
        x->n_inplace[r] -= 1 + (int32_t)below(PATH - 1); /* a draft: its ancestors are in later slots, one step apart or two */
        for (int32_t i = 0; i < PATH; i++) x->path[r][i] = x->pos[r] + 2 + 2 * i;
    }
}

/* every 0: any position can be chosen; above 1: the last ones of blocks, which are always listed. */
static void check(rig *g, uint32_t most, uint32_t every, bool one_by_one)
{
    static int32_t pos[ROWS], n_inplace[ROWS], path[ROWS * SLOTS];
    rows x;
    make_rows(&x);
    for (uint32_t first = 0, n = one_by_one ? 1 : ROWS; first < ROWS; first += n) {
        const ae_places places = {.n_rows = n, .seq = x.seq + first, .pos = x.pos + first, .n_inplace = x.n_inplace + first,
                                  .path = x.path[first], .path_stride = PATH, .tables = g->table, .table_stride = PAGES};
        g->backend->ops->select(g->stream, &(ae_select){
            .places = &places, .kv = g->kv, .n_heads = HEADS, .n_most = most, .every = every, .q = x.q[first],
            .weight = x.weight[first], .pos = pos + first, .n_inplace = n_inplace + first,
            .path = path + (size_t)first * most});
    }
    for (uint32_t r = 0; r < ROWS; r++) {
        int32_t want[SLOTS];
        const int32_t n = choose(g, &x, r, (int32_t)most, every ? (int32_t)every : 1, want);
        assert_int_equal(pos[r], n - 1);
        if (every) assert_int_equal(n_inplace[r], 0);
        for (int32_t i = 0; i < n; i++) {
            const int32_t got = i < n_inplace[r] ? i : path[(size_t)r * most + (size_t)(i - n_inplace[r])];
            if (got != want[i])
                fail_msg("row %u at %d of at most %u: choice %d of %d is slot %d, must be %d", r, x.pos[r], most, i, n, got,
                         want[i]);
        }
    }
}

static void test_choices(void **state)
{
    static const uint32_t most[] = {1, 2, 7, 63, 64, 65, 200, SLOTS};
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        rig g;
        open_rig(&g, threads);
        for (uint32_t n_kinds = 1; n_kinds <= 8; n_kinds++)
            for (size_t i = 0; i < sizeof most / sizeof most[0]; i++) {
                write_keys(&g, n_kinds, n_kinds > 3);
                check(&g, most[i], 0, n_kinds % 2);
                check(&g, most[i], 4, n_kinds % 2);
            }
        close_rig(&g);
    }
}

/* ---- Groups that choose blocks ---------------------------------------------------------------------------- */

/* The score of a block for a group: the highest dot of the positions that the row sees; local blocks come first. */
static double block_score(const rig *g, const rows *x, uint32_t r, uint32_t group, int32_t block, int32_t size, int32_t n_local)
{
    double best = -HUGE_VAL;
    if (x->pos[r] / size - block < n_local) return HUGE_VAL;
    for (int32_t p = block * size; p < (block + 1) * size && p <= x->pos[r]; p++) {
        const float *key = g->keys[slot_of(x, r, p)];
        double dot = 0;
        for (uint32_t i = 0; i < LENGTH; i++) dot += (double)key[i] * (double)x->q[r][group * LENGTH + i];
        best = dot > best ? dot : best;
    }
    return best;
}

static int32_t choose_blocks(const rig *g, const rows *x, uint32_t r, uint32_t group, int32_t size, int32_t most,
                             int32_t n_local, int32_t *out)
{
    double score[SLOTS];
    const int32_t n_blocks = x->pos[r] / size + 1;
    int32_t n = 0;
    for (int32_t b = 0; b < n_blocks; b++) score[b] = block_score(g, x, r, group, b, size, n_local);
    for (int32_t b = 0; b < n_blocks; b++) {
        int32_t n_before = 0;
        for (int32_t o = 0; o < n_blocks; o++) n_before += score[o] > score[b] || (score[o] == score[b] && o < b);
        for (int32_t p = b * size; n_before < most && p < (b + 1) * size && p <= x->pos[r]; p++) out[n++] = slot_of(x, r, p);
    }
    return n;
}

static void check_blocks(rig *g, int32_t size, int32_t most, int32_t n_local, bool one_by_one)
{
    static int32_t pos[HEADS * ROWS], n_inplace[HEADS * ROWS], path[HEADS * ROWS * SLOTS];
    rows x;
    make_rows(&x);
    const uint32_t n_most = (uint32_t)(most * size);
    for (uint32_t first = 0, n = one_by_one ? 1 : ROWS; first < ROWS; first += n) {
        const ae_places places = {.n_rows = n, .seq = x.seq + first, .pos = x.pos + first, .n_inplace = x.n_inplace + first,
                                  .path = x.path[first], .path_stride = PATH, .tables = g->table, .table_stride = PAGES};
        g->backend->ops->select(g->stream, &(ae_select){
            .places = &places, .kv = g->kv, .n_heads = HEADS, .n_groups = HEADS, .block = (uint32_t)size,
            .n_local = (uint32_t)n_local, .n_most = n_most, .q = x.q[first], .pos = pos, .n_inplace = n_inplace, .path = path});
        for (uint32_t i = 0; i < HEADS * n; i++) {
            int32_t want[SLOTS];
            const uint32_t group = i / n, r = first + i % n;
            const int32_t n_want = choose_blocks(g, &x, r, group, size, most, n_local, want);
            assert_int_equal(pos[i], n_want - 1);
            for (int32_t k = 0; k < n_want; k++) {
                const int32_t got = k < n_inplace[i] ? k : path[(size_t)i * n_most + (size_t)(k - n_inplace[i])];
                if (got != want[k])
                    fail_msg("row %u at %d, group %u, %d blocks of %d: choice %d is slot %d, must be %d", r, x.pos[r], group,
                             most, size, k, got, want[k]);
            }
        }
    }
}

static void test_blocks(void **state)
{
    static const int32_t cases[][3] = {{8, 3, 1}, {8, 1, 1}, {5, 4, 2}, {64, 2, 1},
                                       {100, 1, 0}, {1, 9, 3}, {3, 7, 0}, {2, 40, 40}};
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        rig g;
        open_rig(&g, threads);
        for (uint32_t n_kinds = 1; n_kinds <= 8; n_kinds += 3)
            for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                write_keys(&g, n_kinds, false);
                check_blocks(&g, cases[i][0], cases[i][1], cases[i][2], i % 2);
            }
        close_rig(&g);
    }
}

/* ---- Pools ------------------------------------------------------------------------------------------------- */

static int32_t choose_pools(const rig *g, const rows *x, uint32_t r, int32_t size, int32_t most, int32_t *out)
{
    double score[SLOTS];
    int32_t ends[SLOTS], n = 0, n_pools = (x->pos[r] + 1) / size;
    for (int32_t b = 0; b < n_pools; b++)
        score[b] = score_of(g->keys[slot_of(x, r, (b + 1) * size - 1)], x->q[r], x->weight[r]);
    for (int32_t b = 0; b < n_pools; b++) {
        int32_t n_before = 0;
        for (int32_t o = 0; o < n_pools; o++) n_before += score[o] > score[b] || (score[o] == score[b] && o < b);
        ends[b] = n_before < most;
    }
    for (int32_t p = 0; p <= x->pos[r]; p++)
        if (p / size == n_pools || ends[p / size]) out[n++] = slot_of(x, r, p);
    return n;
}

static void check_pools(rig *g, int32_t size, int32_t most, bool one_by_one)
{
    static int32_t pos[ROWS], n_inplace[ROWS], path[ROWS * SLOTS];
    const uint32_t n_most = (uint32_t)(most * size + size - 1);
    rows x;
    make_rows(&x);
    for (uint32_t first = 0, n = one_by_one ? 1 : ROWS; first < ROWS; first += n) {
        const ae_places places = {.n_rows = n, .seq = x.seq + first, .pos = x.pos + first, .n_inplace = x.n_inplace + first,
                                  .path = x.path[first], .path_stride = PATH, .tables = g->table, .table_stride = PAGES};
        g->backend->ops->select(g->stream, &(ae_select){
            .places = &places, .kv = g->kv, .n_heads = HEADS, .block = (uint32_t)size, .pooled = true, .n_most = n_most,
            .q = x.q[first], .weight = x.weight[first], .pos = pos, .n_inplace = n_inplace, .path = path});
        for (uint32_t i = 0; i < n; i++) {
            int32_t want[SLOTS];
            const int32_t n_want = choose_pools(g, &x, first + i, size, most, want);
            assert_int_equal(pos[i], n_want - 1);
            for (int32_t k = 0; k < n_want; k++) {
                const int32_t got = k < n_inplace[i] ? k : path[(size_t)i * n_most + (size_t)(k - n_inplace[i])];
                if (got != want[k])
                    fail_msg("row %u at %d, %d pools of %d: choice %d is slot %d, must be %d", first + i, x.pos[first + i],
                             most, size, k, got, want[k]);
            }
        }
    }
}

static void test_pools(void **state)
{
    static const int32_t cases[][2] = {{4, 3}, {2, 1}, {16, 2}, {5, 9}, {128, 1}, {3, 60}};
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        rig g;
        open_rig(&g, threads);
        for (uint32_t n_kinds = 1; n_kinds <= 8; n_kinds += 3)
            for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                write_keys(&g, n_kinds, n_kinds > 3);
                check_pools(&g, cases[i][0], cases[i][1], i % 2);
            }
        close_rig(&g);
    }
}

/* A position beyond the size of the stream is a fault with a sentence, not a write outside an array. */
static void test_too_far(void **state)
{
    rig g;
    aerie_error error = {0};
    int32_t seq[1] = {0}, at[1] = {SLOTS}, pos[1] = {-7}, n_inplace[1], path[1];
    float q[HEADS * LENGTH] = {0}, weight[HEADS] = {0};
    (void)state;
    open_rig(&g, 1);
    const ae_places places = {.n_rows = 1, .seq = seq, .pos = at, .n_inplace = at, .tables = g.table, .table_stride = PAGES};
    g.backend->ops->select(g.stream, &(ae_select){.places = &places, .kv = g.kv, .n_heads = HEADS, .n_most = 1, .q = q,
                                                  .weight = weight, .pos = pos, .n_inplace = n_inplace, .path = path});
    assert_int_equal(g.backend->ops->sync(g.stream, &error), AERIE_ERROR_INTERNAL);
    assert_non_null(strstr(error.text, "select"));
    assert_int_equal(pos[0], -7);
    close_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choices), cmocka_unit_test(test_blocks),
                                       cmocka_unit_test(test_pools), cmocka_unit_test(test_too_far)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_kv.c - the page tables of the KV cache: calls that would write past them are refused in every build, and leave them
 * sound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/cpu.h"
#include "device/device.h"
#include "cache/kv.h"
#include "draw/walk.h"

#define N_SLOTS 200 /* four pages, the last one not whole */

typedef struct rig {
    ae_backend *backend;
    ae_pool *pool;
    ae_stream *stream;
    ae_kv *kv;
} rig;

static rig open_rig(void)
{
    rig r;
    aerie_error error = {0};
    assert_int_equal(ae_pool_create(&r.pool, 1, &error), AERIE_OK);
    const ae_stream_options so = {.n_threads = 1, .max_rows = 1, .max_in = 32, .pool = r.pool};
    const ae_kv_options ko = {.n_layers = 1, .layers = &(ae_kv_layer){1, 32, 0, false, false}, .n_seqs = 2, .n_slots = N_SLOTS,
                              .type = AE_KV_F16};
    assert_int_equal(ae_backend_open(&r.backend, NULL, "ref", &error), AERIE_OK);
    assert_int_equal(r.backend->ops->stream_create(r.backend, &so, &r.stream, &error), AERIE_OK);
    assert_int_equal(ae_kv_create(&r.kv, r.backend, &ko, &error), AERIE_OK);
    return r;
}

static void close_rig(rig *r)
{
    assert_true(ae_kv_is_sound(r->kv));
    ae_kv_free(r->kv);
    r->backend->ops->stream_free(r->stream);
    ae_pool_free(r->pool);
    ae_backend_close(r->backend);
}

static void fill(const rig *r, uint32_t seq, uint32_t n)
{
    assert_int_equal(ae_kv_reserve(r->kv, r->stream, seq, n, NULL), AERIE_OK);
    assert_int_equal(ae_kv_commit(r->kv, r->stream, seq, n, NULL, 0), AERIE_OK);
}

static void test_reserve(void **state)
{
    (void)state;
    rig r = open_rig();
    aerie_error error = {0};
    assert_int_equal(ae_kv_reserve(r.kv, r.stream, 0, N_SLOTS + 1, &error), AERIE_ERROR_LIMIT);
    assert_int_equal(ae_kv_reserve(r.kv, r.stream, 0, UINT32_MAX, &error), AERIE_ERROR_LIMIT);
    fill(&r, 0, N_SLOTS);
    fill(&r, 1, N_SLOTS);
    assert_int_equal(ae_kv_reserve(r.kv, r.stream, 0, 1, &error), AERIE_ERROR_LIMIT);
    assert_int_equal(ae_kv_reserve(r.kv, r.stream, 0, UINT32_MAX, &error), AERIE_ERROR_LIMIT);
    assert_int_equal(ae_kv_n_live(r.kv, 0), N_SLOTS);
    close_rig(&r);
}

static void test_commit(void **state)
{
    (void)state;
    static const int32_t low[] = {9}, descending[] = {14, 13}, twice[] = {13, 13}, beyond[] = {20}, negative[] = {-1},
                         good[] = {12, 15};
    rig r = open_rig();
    fill(&r, 0, 10);
    assert_int_equal(ae_kv_commit(r.kv, r.stream, 0, 1, NULL, 0), AERIE_ERROR_INTERNAL); /* nothing is reserved */
    assert_int_equal(ae_kv_reserve(r.kv, r.stream, 0, 10, NULL), AERIE_OK);
    assert_int_equal(ae_kv_commit(r.kv, r.stream, 0, 11, NULL, 0), AERIE_ERROR_INTERNAL);
    assert_int_equal(ae_kv_commit(r.kv, r.stream, 0, UINT32_MAX, NULL, 0), AERIE_ERROR_INTERNAL);
    assert_int_equal(ae_kv_commit(r.kv, r.stream, 0, 1, low, 1), AERIE_ERROR_INTERNAL);
    assert_int_equal(ae_kv_commit(r.kv, r.stream, 0, 1, descending, 2), AERIE_ERROR_INTERNAL);
    assert_int_equal(ae_kv_commit(r.kv, r.stream, 0, 1, twice, 2), AERIE_ERROR_INTERNAL);
    assert_int_equal(ae_kv_commit(r.kv, r.stream, 0, 1, beyond, 1), AERIE_ERROR_INTERNAL);
    assert_int_equal(ae_kv_commit(r.kv, r.stream, 0, 1, negative, 1), AERIE_ERROR_INTERNAL);
    assert_int_equal(ae_kv_n_live(r.kv, 0), 10);
    assert_int_equal(ae_kv_commit(r.kv, r.stream, 0, 1, good, 2), AERIE_OK);
    assert_int_equal(ae_kv_n_live(r.kv, 0), 13);
    close_rig(&r);
}

static void test_truncate_and_forget(void **state)
{
    (void)state;
    rig r = open_rig();
    fill(&r, 0, 130);
    assert_int_equal(ae_kv_truncate(r.kv, 0, 131), AERIE_ERROR_INTERNAL);
    assert_int_equal(ae_kv_forget(r.kv, 0, 2), AERIE_ERROR_INTERNAL); /* a page that is not whole */
    assert_int_equal(ae_kv_forget(r.kv, 0, UINT32_MAX / AE_KV_PAGE), AERIE_ERROR_INTERNAL);
    assert_int_equal(ae_kv_forget(r.kv, 0, UINT32_MAX), AERIE_ERROR_INTERNAL);
    assert_int_equal(ae_kv_n_live(r.kv, 0), 130);
    assert_int_equal(ae_kv_forget(r.kv, 0, 0), AERIE_OK);
    assert_int_equal(ae_kv_n_live(r.kv, 0), 66);
    close_rig(&r);
}

/* Both sequences are full and share pages: copies find their spare page, and an n that is too large is cut. */
static void test_share(void **state)
{
    (void)state;
    rig r = open_rig();
    fill(&r, 0, N_SLOTS);
    assert_int_equal(ae_kv_share(r.kv, r.stream, 1, 0, UINT32_MAX), AERIE_OK);
    assert_int_equal(ae_kv_n_live(r.kv, 1), N_SLOTS);
    assert_int_equal(ae_kv_truncate(r.kv, 1, 100), AERIE_OK);
    assert_int_equal(ae_kv_reserve(r.kv, r.stream, 1, N_SLOTS - 100, NULL), AERIE_OK); /* its own copy of a shared page */
    assert_true(ae_kv_is_sound(r.kv));
    assert_int_equal(ae_kv_share(r.kv, r.stream, 1, 1, UINT32_MAX), AERIE_OK);
    close_rig(&r);
}

static const char *const backends[] = {"cpu", "cpu-strict"};

static void *on_device(ae_backend *backend, const void *host, size_t n)
{
    void *device = backend->ops->alloc(backend, n);
    assert_non_null(device);
    assert_int_equal(backend->ops->fill(backend, device, host, n, NULL), AERIE_OK);
    return device;
}

/* The operation itself: runs of moves, with places that are a target after they were a source, from page to page. */
static void test_moves_of_several_runs(void **state)
{
    (void)state;
    static const int32_t begin[] = {0, 3, 3, 5}; /* the second run is empty */
    static const ae_kv_move moves[] = {{65, 63}, {66, 65}, {70, 66}, {3 * 64 + 5, 2 * 64}, {2 * 64 + 9, 2 * 64 + 1}};
    for (size_t b = 0; b < 2; b++)
        for (ae_kv_type type = 0; type < AE_KV_TYPES; type++) {
            enum { N_PLACES = 4 * AE_KV_PAGE };
            ae_backend *backend;
            ae_kv_store *kv;
            ae_stream *stream;
            ae_pool *pool;
            aerie_error error = {0};
            static const ae_kv_layer layers[] = {{2, 32, 0, false, false}, {1, 64, 0, false, false}};
            static const int32_t table[] = {0, 1, 2, 3};
            static uint8_t rows[N_PLACES][4096], got[4096];
            uint32_t expected[N_PLACES];
            assert_int_equal(ae_backend_open(&backend, backends[b], "ref", &error), AERIE_OK);
            const ae_backend_ops *ops = backend->ops;
            assert_int_equal(ae_pool_create(&pool, 2, &error), AERIE_OK);
            const ae_stream_options so = {.n_threads = 2, .max_rows = 1, .max_in = 32, .pool = pool};
            assert_int_equal(ops->stream_create(backend, &so, &stream, &error), AERIE_OK);
            assert_int_equal(ops->kv_create(backend, &(ae_kv_shape){2, layers, 4, type}, &kv, &error), AERIE_OK);
            const size_t n = ops->kv_slot_bytes(kv);
            assert_in_range(n, 1, sizeof got);
            for (uint32_t p = 0; p < N_PLACES; p++) {
                for (size_t i = 0; i < n; i++) rows[p][i] = (uint8_t)(i % 2 ? 0x3c : p + i); /* numbers in every type */
                expected[p] = p;
                ops->kv_write(stream, kv, table, (int32_t)p, rows[p]);
                ops->kv_read(stream, kv, table, (int32_t)p, rows[p]); /* as the type stores it */
            }
            for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) expected[moves[i].to] = expected[moves[i].from];
            int32_t *begin_there = on_device(backend, begin, sizeof begin);
            ae_kv_move *moves_there = on_device(backend, moves, sizeof moves);
            ops->kv_commit(stream, &(ae_kv_commit_args){kv, 3, begin_there, moves_there});
            assert_int_equal(ops->sync(stream, &error), AERIE_OK);
            for (uint32_t p = 0; p < N_PLACES; p++) {
                ops->kv_read(stream, kv, table, (int32_t)p, got);
                if (memcmp(got, rows[expected[p]], n)) fail_msg("%s: place %u is not %u's row", ops->name, p, expected[p]);
            }
            ops->free(backend, begin_there, sizeof begin);
            ops->free(backend, moves_there, sizeof moves);
            ops->kv_free(backend, kv);
            ops->stream_free(stream);
            ae_pool_free(pool);
            ae_backend_close(backend);
        }
}

static uint32_t n_commits;
static const ae_backend_ops *inner;

static void count_commits(ae_stream *stream, const ae_kv_commit_args *args)
{
    n_commits++;
    inner->kv_commit(stream, args);
}

static void put_row(const rig *r, uint32_t seq, uint32_t slot, uint8_t value)
{
    uint8_t bytes[256];
    for (size_t i = 0; i < ae_kv_slot_bytes(r->kv); i++) bytes[i] = i % 2 ? 0x3c : value;
    assert_int_equal(ae_kv_write(r->kv, r->stream, seq, slot, bytes), AERIE_OK);
}

static uint8_t row_of(const rig *r, uint32_t seq, uint32_t slot)
{
    uint8_t bytes[256];
    ae_kv_read(r->kv, r->stream, seq, slot, bytes);
    return bytes[0];
}

/* Commits of both sequences are one operation, which comes before anything else that touches their rows; commits in place are
 * none. */
static void test_commits_are_collected(void **state)
{
    (void)state;
    rig r = open_rig();
    ae_backend_ops ops = *r.backend->ops;
    inner = r.backend->ops;
    ops.kv_commit = count_commits;
    r.backend->ops = &ops;
    n_commits = 0;
    for (uint32_t seq = 0; seq < 2; seq++) {
        fill(&r, seq, 60);
        assert_int_equal(ae_kv_reserve(r.kv, r.stream, seq, 10, NULL), AERIE_OK);
        for (uint32_t i = 0; i < 10; i++) put_row(&r, seq, 60 + i, (uint8_t)(100 * seq + i));
    }
    const int32_t first[] = {61, 63, 68, 69}, second[] = {60, 62, 65};
    assert_int_equal(ae_kv_commit(r.kv, r.stream, 0, 1, first, 4), AERIE_OK); /* 61 stays where it is */
    assert_int_equal(ae_kv_commit(r.kv, r.stream, 1, 0, second, 3), AERIE_OK);
    assert_int_equal(n_commits, 0);
    static const uint8_t kept[2][5] = {{0, 1, 3, 8, 9}, {100, 102, 105}};
    for (uint32_t i = 0; i < 5; i++) assert_int_equal(row_of(&r, 0, 60 + i), kept[0][i]);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(row_of(&r, 1, 60 + i), kept[1][i]);
    assert_int_equal(n_commits, 1);
    ae_kv_settle(r.kv, r.stream);
    fill(&r, 1, 1);
    ae_kv_settle(r.kv, r.stream);
    assert_int_equal(n_commits, 1);
    for (uint32_t i = 0; i < 5; i++) { /* more commits than there are sequences: again, and once more */
        assert_int_equal(ae_kv_reserve(r.kv, r.stream, 0, 2, NULL), AERIE_OK);
        const uint32_t live = ae_kv_n_live(r.kv, 0);
        assert_int_equal(ae_kv_commit(r.kv, r.stream, 0, 0, &(int32_t){(int32_t)live + 1}, 1), AERIE_OK);
    }
    ae_kv_settle(r.kv, r.stream);
    assert_int_equal(n_commits, 4); /* of 2, 2 and 1 */
    enum { N = 2 * AERIE_MAX_DRAFT + 30 }; /* a path of more rows than there is room for moves */
    int32_t path[N];
    assert_int_equal(ae_kv_truncate(r.kv, 0, 0), AERIE_OK);
    assert_int_equal(ae_kv_truncate(r.kv, 1, 0), AERIE_OK);
    assert_int_equal(ae_kv_reserve(r.kv, r.stream, 0, N + 1, NULL), AERIE_OK);
    for (uint32_t i = 0; i <= N; i++) put_row(&r, 0, i, (uint8_t)i);
    for (uint32_t i = 0; i < N; i++) path[i] = (int32_t)i + 1;
    assert_int_equal(ae_kv_commit(r.kv, r.stream, 0, 0, path, N), AERIE_OK);
    assert_int_equal(n_commits, 5);
    for (uint32_t i = 0; i < N; i++) assert_int_equal(row_of(&r, 0, i), i + 1);
    assert_int_equal(n_commits, 6);
    r.backend->ops = inner;
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserve),
        cmocka_unit_test(test_commit),
        cmocka_unit_test(test_truncate_and_forget),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_moves_of_several_runs),
        cmocka_unit_test(test_commits_are_collected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_kv.c - the page tables of the KV cache: what would write past them is refused in every build, and leaves them sound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/cpu.h"
#include "engine/kv.h"

#define N_SLOTS 200 /* four pages, the last one not whole */

typedef struct rig {
    ae_backend *backend;
    ae_stream *stream;
    ae_kv *kv;
} rig;

static rig open_rig(void)
{
    rig r;
    aerie_error error = {0};
    const ae_stream_options so = {.n_threads = 1, .max_rows = 1, .max_in = 32};
    const ae_kv_options ko = {.n_layers = 1, .layers = &(ae_kv_layer){1, 32, 0}, .n_seqs = 2, .n_slots = N_SLOTS,
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

/* Both sequences full, sharing pages: copies find their spare page, and n beyond what there is is cut. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserve), cmocka_unit_test(test_commit), cmocka_unit_test(test_truncate_and_forget),
        cmocka_unit_test(test_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

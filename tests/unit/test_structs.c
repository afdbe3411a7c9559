/* test_structs.c - public structs of other versions' sizes: fields that an older caller lacks keep their defaults, unknown
 * fields that a newer one sets are refused, and nothing is written beyond a caller's struct. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie.h"
#include "aerie_extra.h"
#include "mkmodel.h"

static char folder[] = "/tmp/aerie_structs_XXXXXX";

static void need(aerie_status status, const aerie_error *error)
{
    if (status != AERIE_OK) fail_msg("%s", error->text);
}

static const char *path_of(const char *name)
{
    static char path[96];
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    return path;
}

static aerie_model *model;

static int make(void **state)
{
    (void)state;
    mk_options o;
    aerie_error error = {0};
    if (!mkdtemp(folder)) return 1;
    mk_shape("tiny", &o);
    need(mk_model(&o, path_of("m"), &error), &error);
    need(aerie_model_load(&model, path_of("m"), NULL, &error), &error);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    aerie_model_free(model);
    unlink(path_of("m"));
    return rmdir(folder);
}

#define GUARD 0xA5

/* A struct of any size up to twice its own, guarded. */
typedef union room {
    aerie_session_params session;
    aerie_request request;
    aerie_model_params load;
    aerie_model_info info;
    aerie_memory_plan plan;
    aerie_stats stats;
    uint8_t bytes[2 * sizeof(aerie_request) + 2 * sizeof(aerie_stats) + 2 * sizeof(aerie_model_info)];
} room;

static void check_guard(const room *r, size_t size)
{
    for (size_t i = size; i < sizeof *r; i++) assert_int_equal(r->bytes[i], GUARD);
}

static void test_initialisers(void **state)
{
    (void)state;
    const aerie_session_params full = aerie_session_params_default();
    assert_int_equal(full.size, sizeof full);
    for (size_t size = sizeof(size_t); size < 2 * sizeof full; size += 8) {
        room r;
        memset(&r, GUARD, sizeof r);
        aerie_session_params_init(&r.session, size);
        check_guard(&r, size);
        assert_int_equal(r.session.size, size);
        const size_t both = size < sizeof full ? size : sizeof full;
        assert_memory_equal(r.bytes + sizeof size, (const uint8_t *)&full + sizeof size, both - sizeof size);
        for (size_t i = both; i < size; i++) assert_int_equal(r.bytes[i], 0);
    }
}

/* Sessions from parameters that are cut before a field use its default. */
static void test_older_callers(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_session *session;
    room r;
    memset(&r, 0xff, sizeof r); /* bytes after it must not be read */
    r.session.size = offsetof(aerie_session_params, n_seqs);
    r.session.n_ctx = 64;
    need(aerie_session_create(&session, model, &r.session, &error), &error);
    assert_int_equal(aerie_session_n_ctx(session), 64);
    const int32_t prompt[] = {5, 6, 7};
    aerie_task *task;
    memset(&r, 0xff, sizeof r);
    r.request.size = offsetof(aerie_request, saved);
    r.request.tokens = prompt, r.request.n_tokens = 3;
    need(aerie_session_submit(session, &r.request, &task, &error), &error);
    aerie_task_free(task);
    aerie_session_free(session);
    memset(&r, 0xff, sizeof r);
    r.load.size = sizeof r.load.size;
    aerie_model *again;
    need(aerie_model_load(&again, path_of("m"), &r.load, &error), &error);
    aerie_model_free(again);
}

static void test_newer_callers(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_session *session = NULL;
    room r;
    memset(&r, 0, sizeof r);
    aerie_session_params_init(&r.session, sizeof r.session + 16);
    need(aerie_session_create(&session, model, &r.session, &error), &error);
    aerie_session_free(session);
    r.bytes[sizeof r.session + 9] = 1;
    assert_int_equal(aerie_session_create(&session, model, &r.session, &error), AERIE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "aerie_session_params"));
    const size_t sizes[] = {0, 4, 1u << 20, SIZE_MAX};
    for (size_t i = 0; i < 4; i++) {
        r.session.size = sizes[i];
        assert_int_equal(aerie_session_create(&session, model, &r.session, &error), AERIE_ERROR_ARGUMENT);
        assert_non_null(strstr(error.text, "size"));
    }
    aerie_session_params params = aerie_session_params_default();
    params.spec.reserved[3] = 1;
    assert_int_equal(aerie_session_create(&session, model, &params, &error), AERIE_ERROR_UNSUPPORTED);
}

static void test_what_is_filled(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_model_info full;
    aerie_model_info_get(model, &full, sizeof full);
    for (size_t size = 0; size < 2 * sizeof full; size += 4) {
        room r;
        memset(&r, GUARD, sizeof r);
        aerie_model_info_get(model, &r.info, size);
        check_guard(&r, size);
        assert_memory_equal(&r.info, &full, size < sizeof full ? size : sizeof full);
        memset(&r, GUARD, sizeof r);
        need(aerie_memory_plan_get(path_of("m"), NULL, NULL, &r.plan, size < 40 ? size : 40, &error), &error);
        check_guard(&r, size < 40 ? size : 40);
    }
}

/* Lists of requests and statistics have their callers' strides. */
static void test_lists(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_session *session;
    const int32_t prompt[] = {5, 6, 7};
    need(aerie_session_create(&session, model, NULL, &error), &error);
    struct {
        aerie_request request;
        uint64_t later[2];
    } requests[3];
    const size_t strides[] = {8, offsetof(aerie_stats, n_passes), sizeof(aerie_stats) + 24};
    for (size_t s = 0; s < 3; s++) {
        memset(requests, 0, sizeof requests);
        for (size_t i = 0; i < 3; i++) {
            aerie_request_init(&requests[i].request, sizeof requests[i]);
            requests[i].request.tokens = prompt, requests[i].request.n_tokens = i == 1 ? 0 : 3;
            requests[i].request.n_predict = (uint32_t)i + 1, requests[i].request.ignore_eos = true;
        }
        uint8_t stats[4 * (sizeof(aerie_stats) + 24)];
        memset(stats, GUARD, sizeof stats);
        assert_int_equal(aerie_session_generate(session, &requests[0].request, 3, NULL, NULL, (aerie_stats *)(void *)stats,
                                                strides[s],
                                                &error), AERIE_ERROR_ARGUMENT);
        assert_non_null(strstr(error.text, "request 1: "));
        for (size_t i = 3 * strides[s]; i < sizeof stats; i++) assert_int_equal(stats[i], GUARD);
        for (size_t i = 0; i < 3; i++) {
            uint32_t n_prompt;
            memcpy(&n_prompt, stats + i * strides[s] + offsetof(aerie_stats, n_prompt), 4);
            assert_int_equal(n_prompt, i == 1 ? 0 : 3);
        }
    }
    aerie_session_free(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_initialisers), cmocka_unit_test(test_older_callers), cmocka_unit_test(test_newer_callers),
        cmocka_unit_test(test_what_is_filled), cmocka_unit_test(test_lists),
    };
    return cmocka_run_group_tests(tests, make, drop);
}

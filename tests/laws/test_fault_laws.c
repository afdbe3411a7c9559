/* test_fault_laws.c - operations of the backend that fail: the request ends with a sentence that names the operation, and the
 * next one gets the bytes that it would have got without the failure.
 *
 * The operations of a model's backend are replaced by ones that count, and fail at a chosen number: a failing operation only
 * notes the failure in its stream, like a device whose kernel did not run. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "session/session_int.h"
#include "aerie_measure.h"
#include "device/device.h"
#include "backend/cpu/cpu_int.h"
#include "every.h"
#include "mkarch.h"
#include "spec_rig.inc"

static uint32_t n_called, fails_at; /* the latter from 1 on; 0: never */
static const char *failed;
static const ae_backend_ops *inner;

static bool must_fail(ae_stream *stream, const char *operation)
{
    if (++n_called != fails_at) return false;
    failed = operation;
    ae_backend_note(&stream->fault, AERIE_ERROR_INTERNAL, "%s: the test says so", operation);
    return true;
}

#define FAILING(name, args_type)                                     \
    static void fail_##name(ae_stream *stream, const args_type *args) \
    {                                                                \
        if (!must_fail(stream, #name)) inner->name(stream, args);    \
    }
FAILING(matmul, ae_matmul)
FAILING(norm, ae_norm)
FAILING(rope_table, ae_rope_table)
FAILING(rope_kv, ae_rope_kv)
FAILING(attention, ae_attention)
FAILING(copy, ae_copy)
FAILING(kv_commit, ae_kv_commit_args)
FAILING(walk, ae_walk)
FAILING(propose, ae_propose)
FAILING(conv, ae_conv)
FAILING(recur, ae_recur)
FAILING(gated_norm, ae_gated_norm)
FAILING(state_absorb, ae_state_pass)

static void fail_state_zero(ae_stream *stream, ae_state_store *store, uint32_t plane)
{
    if (!must_fail(stream, "state_zero")) inner->state_zero(stream, store, plane);
}

static void fail_state_copy(ae_stream *stream, ae_state_store *store, uint32_t from, uint32_t to)
{
    if (!must_fail(stream, "state_copy")) inner->state_copy(stream, store, from, to);
}

static void fail_lookup(ae_stream *stream, const ae_weight *table, const int32_t *tokens, uint32_t n_rows, float *y,
                        size_t y_stride)
{
    if (!must_fail(stream, "lookup")) inner->lookup(stream, table, tokens, n_rows, y, y_stride);
}

static void fail_kv_copy_page(ae_stream *stream, ae_kv_store *kv, int32_t from, int32_t to, uint32_t n)
{
    if (!must_fail(stream, "kv_copy_page")) inner->kv_copy_page(stream, kv, from, to, n);
}

static ae_backend_ops ops;

static void make_failing(aerie_model *model)
{
    inner = model->backend->ops;
    ops = *inner;
    ops.matmul = fail_matmul, ops.norm = fail_norm, ops.rope_table = fail_rope_table, ops.rope_kv = fail_rope_kv;
    ops.attention = fail_attention, ops.copy = fail_copy, ops.lookup = fail_lookup, ops.kv_commit = fail_kv_commit;
    ops.walk = fail_walk, ops.propose = fail_propose;
    ops.kv_copy_page = fail_kv_copy_page;
    ops.conv = fail_conv, ops.recur = fail_recur, ops.gated_norm = fail_gated_norm, ops.state_absorb = fail_state_absorb;
    ops.state_zero = fail_state_zero, ops.state_copy = fail_state_copy;
    model->backend->ops = &ops;
}

static int make(void **state)
{
    (void)state;
    mk_options o;
    aerie_error error = {0};
    if (!mkdtemp(folder)) return 1;
    mk_shape("tiny-gqa", &o);
    o.type = "q4_0", o.forgetful = true;
    need(mk_model(&o, path_of("m"), &error), &error);
    need(mkarch_write(mkarch_find("qwen35"), true, path_of("recurrent"), &error), &error);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    unlink(path_of("m"));
    unlink(path_of("recurrent"));
    return rmdir(folder);
}

static aerie_session *open_session(const aerie_model *model, aerie_spec_type type, const aerie_model *draft)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = 256, params.n_seqs = 2, params.n_batch = 64, params.n_threads = 1;
    params.spec.type = type, params.spec.draft_model = draft;
    params.spec.n_max = 3, params.spec.tree = AERIE_TREE_AUTO;
    need(ae_session_create_for_test(&session, model, &params, &(ae_session_test){.fixed = true}, &error), &error);
    return session;
}

static aerie_request request_of(const int32_t *tokens, size_t n)
{
    aerie_request r = aerie_request_default();
    r.tokens = tokens, r.n_tokens = n, r.n_predict = 12, r.ignore_eos = true;
    r.sampling = sampling_of(1);
    return r;
}

#define N_PROMPT 70

/* Two requests, the second of which shares a page and a part of one with the first; fails at every operation in turn. */
static void walk(const char *name, aerie_spec_type type, bool on_draft, const char *what)
{
    int32_t prompt[N_PROMPT];
    uint64_t random = 3;
    uint32_t n_failed = 0, n_late = 0;
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = (int32_t)(mk_random(&random) % 100);
    aerie_model *model = load(path_of(name), NULL), *draft = load(path_of("m"), NULL);
    make_failing(on_draft ? draft : model);
    aerie_session *session = open_session(model, type, type == AERIE_SPEC_DRAFT ? draft : NULL);
    const aerie_request requests[2] = {request_of(prompt, N_PROMPT), request_of(prompt, N_PROMPT - 3)};
    static run expected, got;
    fails_at = 0, n_called = 0;
    generate(session, model, requests, 2, &expected);
    const uint32_t n = n_called, step = n / 300 + (uint32_t)test_every();
    for (fails_at = 1; fails_at <= n; fails_at += fails_at < 60 && test_every() == 1 ? 1 : step) {
        aerie_error error = {0};
        aerie_stats stats[2] = {{0}};
        const uint32_t at = fails_at;
        memset(&got, 0, sizeof got);
        got.n = 2, n_called = 0, failed = "";
        const aerie_status status = aerie_session_generate(session, requests, 2, on_token, &got, stats, sizeof *stats,
                                                           &error);
        fails_at = 0;
        n_failed += status != AERIE_OK;
        n_late += status == AERIE_OK;
        if (status != AERIE_OK && (status != AERIE_ERROR_INTERNAL || !strstr(error.text, failed) || !*failed))
            fail_msg("%s: operation %u (%s) fails: %s", what, at, failed, error.text);
        for (size_t i = 0; i < 2; i++) { /* emitted tokens are right, and a request without an error is complete */
            const answer *a = &got.answers[i], *e = &expected.answers[i];
            if (a->n > e->n || memcmp(a->ids, e->ids, a->n * sizeof *a->ids))
                fail_msg("%s: operation %u: a wrong token", what, at);
            if (stats[i].error.status == AERIE_OK) assert_int_equal(a->n, e->n);
            else assert_true(strstr(stats[i].error.text, failed) != NULL);
        }
        generate(session, model, requests, 2, &got);
        for (size_t i = 0; i < 2; i++) same_answer(&got.answers[i], &expected.answers[i], what, i);
        fails_at = at;
    }
    print_message("%s: %u operations, %u failures of requests, %u that concerned none\n", what, n, n_failed, n_late);
    if (test_every() == 1) assert_true(n_failed > n_late);
    fails_at = 0;
    aerie_session_free(session);
    aerie_model_free(draft);
    aerie_model_free(model);
}

static void test_every_operation_of_the_target(void **state)
{
    (void)state;
    walk("m", AERIE_SPEC_NONE, false, "plain");
    walk("m", AERIE_SPEC_DRAFT, false, "the target of a draft model");
}

static void test_every_operation_of_a_draft_model(void **state)
{
    (void)state;
    walk("m", AERIE_SPEC_DRAFT, true, "a draft model");
}

static void test_every_operation_of_recurrent_layers(void **state)
{
    (void)state;
    walk("recurrent", AE_SPEC_RANDOM, false, "recurrent layers");
}

/* Two operations that fail: the next sync names the first, and the one after it knows nothing of them. */
static void test_sync_tells_of_the_first_failure(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        ae_backend *backend;
        ae_stream *stream;
        ae_pool *pool;
        aerie_error error = {0};
        need(ae_backend_open(&backend, i ? "cpu-strict" : "cpu", "ref", &error), &error);
        need(ae_pool_create(&pool, 1, &error), &error);
        const ae_stream_options options = {.n_threads = 1, .max_rows = 1, .max_in = 32, .pool = pool};
        need(backend->ops->stream_create(backend, &options, &stream, &error), &error);
        inner = backend->ops;
        need(backend->ops->sync(stream, &error), &error);
        fails_at = 1, n_called = 0;
        fail_kv_commit(stream, NULL);
        fails_at = 1, n_called = 0;
        fail_walk(stream, NULL);
        fails_at = 0;
        assert_int_equal(backend->ops->sync(stream, &error), AERIE_ERROR_INTERNAL);
        assert_string_equal(error.text, "kv_commit: the test says so");
        need(backend->ops->sync(stream, &error), &error);
        backend->ops->stream_free(stream);
        ae_pool_free(pool);
        ae_backend_close(backend);
    }
}

/* ---- Loading ------------------------------------------------------------------------------------------- */

static aerie_status fail_fill(ae_backend *backend, void *device, const void *host, size_t n, aerie_error *error)
{
    if (++n_called == fails_at) return ae_fail(error, AERIE_ERROR_MEMORY, "fill: the test says so");
    return inner->fill(backend, device, host, n, error);
}

static aerie_status fail_weight_fill(ae_backend *backend, ae_weight *weight, const void *rows, uint32_t first, uint32_t n,
                                     aerie_error *error)
{
    if (++n_called == fails_at) return ae_fail(error, AERIE_ERROR_MEMORY, "weight_fill: the test says so");
    return inner->weight_fill(backend, weight, rows, first, n, error);
}

/* A network and an engine on a backend whose fills may fail. */
static aerie_status load_once(const ae_model *model, aerie_error *error)
{
    ae_backend *backend;
    ae_net *net = NULL;
    ae_engine *engine = NULL;
    need(ae_backend_open(&backend, NULL, NULL, error), error);
    inner = backend->ops;
    ops = *inner;
    ops.fill = fail_fill, ops.weight_fill = fail_weight_fill;
    backend->ops = &ops;
    n_called = 0;
    aerie_status status = ae_net_create(&net, model, backend, &(ae_load_options){.n_threads = 1}, error);
    if (status == AERIE_OK)
        status = ae_engine_create(&engine, net, &(ae_engine_options){.n_ctx = 64, .n_seqs = 1, .n_threads = 1}, error);
    ae_engine_free(engine);
    ae_net_free(net);
    backend->ops = inner;
    ae_backend_close(backend);
    return status;
}

/* Values that did not reach the device are not weights: loading fails, with the device's own sentence. */
static void test_every_fill(void **state)
{
    (void)state;
    aerie_error error = {0};
    ae_model *model;
    need(ae_model_load(&model, path_of("m"), NULL, &error), &error);
    fails_at = 0;
    need(load_once(model, &error), &error);
    const uint32_t n = n_called;
    assert_true(n > 10);
    for (uint32_t i = 1; i <= n; i++) {
        fails_at = i;
        assert_int_equal(load_once(model, &error), AERIE_ERROR_MEMORY);
        assert_non_null(strstr(error.text, "fill: the test says so"));
    }
    fails_at = 0;
    ae_model_free(model);
}

static void test_a_measured_pass(void **state)
{
    (void)state;
    aerie_error error = {0};
    double seconds;
    aerie_model *model = load(path_of("m"), NULL);
    make_failing(model);
    aerie_session *session = open_session(model, AERIE_SPEC_NONE, NULL);
    n_called = 0, fails_at = 5;
    assert_int_equal(aerie_session_time_pass(session, 3, 0, true, 1, &seconds, &error), AERIE_ERROR_INTERNAL);
    assert_true(strstr(error.text, failed) != NULL);
    fails_at = 0;
    need(aerie_session_time_pass(session, 3, 0, true, 1, &seconds, &error), &error);
    assert_true(seconds > 0);
    aerie_session_free(session);
    aerie_model_free(model);
}

static void test_names(void **state)
{
    (void)state;
    aerie_error error = {0};
    ae_backend *backend;
    assert_int_equal(ae_backend_open(&backend, "opencl", NULL, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "backend \"opencl\" is unknown; there are cpu, cpu-strict"));
    assert_non_null(strstr(error.text, ae_backend_names()));
    for (int i = 0; i < 2; i++) {
        uint64_t n_free = 0, n_total = 0;
        need(ae_backend_open(&backend, i ? "cpu-strict" : "cpu", "ref", &error), &error);
        assert_string_equal(backend->ops->name, i ? "cpu-strict" : "cpu");
        assert_non_null(strstr(ae_backend_names(), backend->ops->name));
        backend->ops->memory_info(backend, &n_free, &n_total);
        assert_true(n_free && n_free <= n_total);
        ae_backend_close(backend);
    }
}

/* Runs in a process of its own; whether it was ended by SIGSEGV. */
static bool is_stopped(void (*touch)(ae_backend *backend, char *device), const char *name)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        ae_backend *backend;
        signal(SIGSEGV, SIG_DFL);
        if (ae_backend_open(&backend, name, "ref", NULL) != AERIE_OK) _exit(1);
        touch(backend, backend->ops->alloc(backend, 100));
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) assert_int_equal(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

static void read_it(ae_backend *backend, char *device)
{
    (void)backend;
    (void)*(volatile char *)(device + 50);
}

static void write_it(ae_backend *backend, char *device)
{
    (void)backend;
    *(volatile char *)(device + 50) = 1;
}

static void write_it_after_an_operation(ae_backend *backend, char *device)
{
    char bytes[100] = {0};
    (void)backend->ops->fill(backend, device, bytes, sizeof bytes, NULL);
    write_it(backend, device);
}

static void fill_it(ae_backend *backend, char *device)
{
    char bytes[100] = {0};
    (void)backend->ops->fill(backend, device, bytes, sizeof bytes, NULL);
}

static void test_the_strict_backend_stops_the_host(void **state)
{
    (void)state;
    assert_true(is_stopped(read_it, "cpu-strict"));
    assert_true(is_stopped(write_it, "cpu-strict"));
    assert_true(is_stopped(write_it_after_an_operation, "cpu-strict"));
    assert_false(is_stopped(fill_it, "cpu-strict"));
    assert_false(is_stopped(write_it, "cpu"));
}

/* Faults that an operation finds by itself. */
static void test_a_token_outside_the_table(void **state)
{
    (void)state;
    aerie_error error = {0};
    uint32_t first;
    aerie_model *model = load(path_of("m"), NULL);
    aerie_session *session = open_session(model, AERIE_SPEC_NONE, NULL);
    for (int i = 0; i < 3; i++) {
        const int32_t token = i == 1 ? 1 << 20 : 5;
        ae_engine_rows_clear(session->engine);
        need(ae_engine_add_chain(session->engine, 0, &token, 1, AE_EXPORT_LAST, &first, &error), &error);
        assert_int_equal(ae_engine_pass(session->engine, &error), i == 1 ? AERIE_ERROR_INTERNAL : AERIE_OK);
        if (i == 1) assert_non_null(strstr(error.text, "lookup of 1 rows: token 1048576"));
        else assert_true(ae_engine_pass_seconds(session->engine) > 0);
        assert_true(ae_kv_is_sound(ae_engine_kv(session->engine)));
        assert_int_equal(ae_engine_commit(session->engine, 0, i != 1, NULL, 0), AERIE_OK);
    }
    aerie_session_free(session);
    aerie_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_the_strict_backend_stops_the_host),
        cmocka_unit_test(test_a_token_outside_the_table),
        cmocka_unit_test(test_every_operation_of_the_target),
        cmocka_unit_test(test_every_operation_of_a_draft_model),
        cmocka_unit_test(test_every_operation_of_recurrent_layers),
        cmocka_unit_test(test_sync_tells_of_the_first_failure),
        cmocka_unit_test(test_every_fill),
        cmocka_unit_test(test_a_measured_pass),
    };
    return cmocka_run_group_tests(tests, make, drop);
}

/* test_device_faults.c - a device that fails: each call of its driver in turn, all calls from one on (a lost device), a kernel
 * that never ends, and too little memory. The caller gets a status and a sentence, nothing is left on the device, and other
 * models go on.
 *
 * The driver that fails is that of failing_driver.inc, which also says on what device; without one everything is skipped. */
#define _XOPEN_SOURCE 700 /* mkdtemp, setenv */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "session/session_int.h"
#include "backend/gpu/gpu.h"
#include "device/device.h"
#include "every.h"
#include "mkarch.h"
#include "spec_rig.inc"
#include "failing_driver.inc"

#define N_PROMPT 66 /* tokens: more than a page; other kinds of layers get a tenth of it */

/* ---- Models ------------------------------------------------------------------------------------------------ */

/* Layers of all kinds that devices run; the first is the one of the laws that need a single model. */
static const struct kind {
    const char *name;        /* of the file */
    const char *arch;        /* of mkarch; or NULL: */
    const char *shape, *type; /* of mkmodel */
    aerie_kv_type kv;
    aerie_spec_type drafts, sampled; /* drafters; sampled: where tests are sampled, because trees take long in the emulation */
} kinds[] = {
    {"m", NULL, "tiny-gqa", "q4_0", AERIE_KV_F16, AE_SPEC_RANDOM, AE_SPEC_RANDOM},
    {"recurrent", "qwen35", NULL, NULL, AERIE_KV_F16, AE_SPEC_RANDOM, AERIE_SPEC_NONE},
    {"experts", NULL, "tiny-moe", "q8_0", AERIE_KV_F16, AERIE_SPEC_NONE, AERIE_SPEC_NONE},
    {"chosen positions", "glm-dsa", NULL, NULL, AERIE_KV_Q8_0, AE_SPEC_RANDOM, AERIE_SPEC_NONE},
    {"shared experts", "grovemoe", NULL, NULL, AERIE_KV_I16, AERIE_SPEC_NONE, AERIE_SPEC_NONE},
    {"streams", "gemma3n", NULL, NULL, AERIE_KV_I16_Q8_0, AE_SPEC_RANDOM, AERIE_SPEC_NONE},
    {"wkv", "rwkv7", NULL, NULL, AERIE_KV_F16, AE_SPEC_RANDOM, AERIE_SPEC_NONE},
    {"scan", "jamba", NULL, NULL, AERIE_KV_F16, AERIE_SPEC_NONE, AERIE_SPEC_NONE},
    {"keyed", "kimi-linear", NULL, NULL, AERIE_KV_F16, AE_SPEC_RANDOM, AERIE_SPEC_NONE},
    {"compressed rows", "deepseek4", NULL, NULL, AERIE_KV_Q4_0, AE_SPEC_RANDOM, AERIE_SPEC_NONE},
    {"n-grams", "qwen4exp", NULL, NULL, AERIE_KV_F16, AE_SPEC_RANDOM, AERIE_SPEC_NONE},
    {"banks", "kimi-k3", NULL, NULL, AERIE_KV_F16, AE_SPEC_RANDOM, AERIE_SPEC_NONE},
    {"switched adapters", "graniteswitch", NULL, NULL, AERIE_KV_Q8_0, AE_SPEC_RANDOM, AERIE_SPEC_NONE},
    {"chosen blocks", "minimax-m3", NULL, NULL, AERIE_KV_F16, AE_SPEC_RANDOM, AERIE_SPEC_NONE},
    {"two stacks", "t5", NULL, NULL, AERIE_KV_F16, AE_SPEC_RANDOM, AERIE_SPEC_NONE},
    {"several streams", "hy_v4", NULL, NULL, AERIE_KV_F16, AE_SPEC_RANDOM, AERIE_SPEC_NONE},
    {"pools", "glm5-next", NULL, NULL, AERIE_KV_F16, AE_SPEC_RANDOM, AERIE_SPEC_NONE},
};
#define N_KINDS (sizeof kinds / sizeof *kinds)

/* Of the kinds after the third, sampled tests have every second one. AERIE_TEST_ARCH: only kinds of this architecture. */
static bool is_tried(size_t i)
{
    const char *only = getenv("AERIE_TEST_ARCH");
    if (only && *only) return kinds[i].arch && !strcmp(kinds[i].arch, only);
    return i < 3 || test_every() < 8 || i % 2;
}

static int make(void **state)
{
    (void)state;
    aerie_error error = {0};
    if (!mkdtemp(folder)) return 1;
    for (size_t i = 0; i < N_KINDS; i++) {
        const struct kind *k = &kinds[i];
        mk_options o;
        if (k->arch) {
            need(mkarch_write(mkarch_find(k->arch), true, path_of(k->name), &error), &error);
            continue;
        }
        mk_shape(k->shape, &o);
        o.type = k->type, o.forgetful = !i;
        need(mk_model(&o, path_of(k->name), &error), &error);
    }
    return 0;
}

static int drop(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_KINDS; i++) unlink(path_of(kinds[i].name));
    return rmdir(folder);
}

static aerie_status open_session(const aerie_model *model, const struct kind *kind, uint32_t n_seqs, aerie_session **out,
                                 aerie_error *error)
{
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = n_seqs > 2 ? 4096 : 256, params.n_seqs = n_seqs, params.n_batch = 64, params.n_threads = 1;
    params.spec.type = test_every() > 1 ? kind->sampled : kind->drafts, params.spec.n_max = 3;
    params.spec.tree = AERIE_TREE_AUTO, params.kv_type = kind->kv;
    return ae_session_create_for_test(out, model, &params, &(ae_session_test){.fixed = true}, error);
}

/* ---- Loading ----------------------------------------------------------------------------------------------- */

static aerie_status load_once(const ae_model *model, unsigned at, bool lost, aerie_error *error)
{
    ae_backend *backend;
    ae_net *net = NULL;
    ae_engine *engine = NULL;
    need(ae_backend_open(&backend, device, NULL, error), error);
    make_failing(backend);
    fail_from(at, lost);
    aerie_status status = ae_net_create(&net, model, backend, &(ae_load_options){.n_threads = 1}, error);
    if (status == AERIE_OK)
        status = ae_engine_create(&engine, net, &(ae_engine_options){.n_ctx = 64, .n_seqs = 1, .n_threads = 1}, error);
    ae_engine_free(engine);
    ae_net_free(net);
    assert_int_equal(seen.n_memory, 0);
    assert_int_equal(seen.n_pinned, 0);
    assert_int_equal(seen.n_recordings, 0);
    ae_gpu(backend)->driver = real;
    ae_backend_close(backend);
    return status;
}

/* Weights, scratch and caches: any call of the driver fails, then all calls from there on. */
static void test_every_call_of_loading(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_KINDS; k++) {
        const char *name = kinds[k].name;
        aerie_error error = {0};
        ae_model *model;
        if (!is_tried(k)) continue;
        need(ae_model_load(&model, path_of(name), NULL, &error), &error);
        need(load_once(model, 0, false, &error), &error);
        const unsigned n = seen.n_calls, step = step_of(n, 2);
        unsigned n_failed = 0;
        for (unsigned at = 1 + (unsigned)k % step; at <= n; at += step) {
            for (int lost = 0; lost < 2; lost++) {
                error = (aerie_error){0};
                const aerie_status status = load_once(model, at, lost, &error);
                n_failed += status != AERIE_OK;
                if (status != AERIE_OK) check_sentence(&error, status, at);
                else if (strcmp(seen.failed, "sync")) fail_msg("%s: call %u, %s: loaded", name, at, seen.failed);
            }
        }
        print_message("%s: %u calls, %u failures\n", name, n, n_failed);
        assert_true(n > 20 && n_failed > n / step);
        ae_model_free(model);
    }
}

/* ---- Sessions ---------------------------------------------------------------------------------------------- */

static void test_every_call_of_a_session(void **state)
{
    (void)state;
    aerie_model *model = load_failing("m");
    for (unsigned at = 0, n = 0; at <= n; at++) {
        aerie_error error = {0};
        aerie_session *session = NULL;
        fail_from(at, false);
        const aerie_status status = open_session(model, &kinds[0], 2, &session, &error);
        if (!at) {
            need(status, &error);
            n = seen.n_calls;
            assert_true(n > 3);
        } else if (status != AERIE_OK) {
            check_sentence(&error, status, at);
            assert_null(session);
        }
        fail_from(0, false);
        aerie_session_free(session);
        assert_int_equal(seen.n_memory, 0); /* since make_failing */
        assert_int_equal(seen.n_pinned, 0);
        assert_int_equal(seen.n_recordings, 0);
    }
    ae_gpu(model->backend)->driver = real;
    aerie_model_free(model);
}

static void two_requests(aerie_request requests[2], size_t n_prompt)
{
    static int32_t prompt[N_PROMPT];
    uint64_t random = 3;
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = (int32_t)(mk_random(&random) % 100);
    for (int i = 0; i < 2; i++) {
        requests[i] = aerie_request_default();
        requests[i].tokens = prompt, requests[i].n_tokens = n_prompt - 3 * (size_t)i;
        requests[i].n_predict = 4, requests[i].ignore_eos = true;
        requests[i].sampling = sampling_of((uint32_t)i);
    }
}

static void check_told(const run *got, const run *expected, const aerie_stats stats[2], const char *what, unsigned at)
{
    for (size_t i = 0; i < 2; i++) { /* emitted tokens are right, and a request without an error is complete */
        const answer *a = &got->answers[i], *e = &expected->answers[i];
        if (a->n > e->n || memcmp(a->ids, e->ids, a->n * sizeof *a->ids)) fail_msg("%s: call %u: a wrong token", what, at);
        if (stats[i].error.status == AERIE_OK && a->n != e->n)
            fail_msg("%s: call %u (%s): request %zu ends with %zu tokens of %zu and no error", what, at, seen.failed, i, a->n,
                     e->n);
    }
}

/* The rig expects of a request's statistics what those of an encoder and a decoder do not keep: a token ends the prompt. */
static void answer_two(const struct kind *kind, aerie_session *session, const aerie_model *model,
                       const aerie_request requests[2], run *r)
{
    aerie_error error = {0};
    aerie_stats stats[2];
    if (!kind->arch || strcmp(kind->arch, "t5")) {
        generate(session, model, requests, 2, r);
        return;
    }
    memset(r, 0, sizeof *r);
    r->n = 2;
    need(aerie_session_generate(session, requests, 2, on_token, r, stats, sizeof *stats, &error), &error);
}

/* Any call fails once: the requests end with a sentence or are not affected, and the next ones get their bytes. Adds to the
 * counts of tries and failures. */
static void fail_passes(const struct kind *kind, unsigned *n_all, unsigned *n_all_failed)
{
    const char *name = kind->name;
    aerie_error error = {0};
    aerie_request requests[2];
    static run expected, got;
    aerie_session *session;
    unsigned n_failed = 0, n_tried = 0;
    aerie_model *model = load_failing(name);
    two_requests(requests, kind == kinds ? N_PROMPT : N_PROMPT / 10);
    need(open_session(model, kind, 2, &session, &error), &error);
    answer_two(kind, session, model, requests, &expected);
    for (int i = 0; i < 2; i++) { /* recordings are made by then */
        fail_from(0, false);
        answer_two(kind, session, model, requests, &got);
    }
    const unsigned n = seen.n_calls, step = step_of(n, kind == kinds ? 1 : 0);
    for (unsigned at = 1 + 5 * (unsigned)(kind - kinds) % step; at <= n; at += step, n_tried++) {
        aerie_stats stats[2] = {{0}};
        memset(&got, 0, sizeof got);
        got.n = 2, error = (aerie_error){0};
        fail_from(at, false);
        const aerie_status status = aerie_session_generate(session, requests, 2, on_token, &got, stats, sizeof *stats, &error);
        n_failed += status != AERIE_OK;
        if (status != AERIE_OK) check_sentence(&error, status, at);
        check_told(&got, &expected, stats, name, at);
        fail_from(0, false);
        answer_two(kind, session, model, requests, &got);
        for (size_t i = 0; i < 2; i++) same_answer(&got.answers[i], &expected.answers[i], name, i);
    }
    for (int i = 0; i < 2; i++) { /* what the last failure took away is made again */
        fail_from(0, false);
        answer_two(kind, session, model, requests, &got);
    }
    fail_from(1 + seen.n_calls / 2, true); /* the device is lost in the middle */
    for (int i = 0; i < 2; i++) { /* and stays so */
        aerie_stats stats[2] = {{0}};
        memset(&got, 0, sizeof got);
        got.n = 2, error = (aerie_error){0};
        const aerie_status status = aerie_session_generate(session, requests, 2, on_token, &got, stats, sizeof *stats, &error);
        check_sentence(&error, status, seen.at);
        check_told(&got, &expected, stats, name, seen.at);
        assert_int_not_equal(status, AERIE_OK);
    }
    print_message("%s: %u calls, %u tried, %u failures of requests\n", name, n, n_tried, n_failed);
    assert_true(n > 30);
    *n_all += n_tried, *n_all_failed += n_failed;
    aerie_session_free(session);
    assert_int_equal(seen.n_memory + seen.n_pinned + seen.n_recordings, 0);
    ae_gpu(model->backend)->driver = real;
    aerie_model_free(model);
}

static void test_every_call_of_passes(void **state)
{
    (void)state;
    unsigned n_tried = 0, n_failed = 0;
    for (size_t i = 0; i < N_KINDS; i++)
        if (is_tried(i)) fail_passes(&kinds[i], &n_tried, &n_failed);
    assert_true(n_failed > n_tried / 4);
}

/* ---- A lost device ------------------------------------------------------------------------------------------- */

#define N_SEQS 64

static size_t n_told;

static bool on_any_token(void *user, const aerie_token_event *event)
{
    (void)user;
    n_told += event->token >= 0;
    return true;
}

/* 64 sequences, and the device is lost at a call in the middle: each request ends with a status and a sentence, as do those
 * that come later; the session and the model can be closed. */
static void lose(unsigned at, const aerie_request *cpu_request, const run *on_cpu)
{
    aerie_error error = {0};
    static run again;
    int32_t prompts[N_SEQS][12];
    uint64_t random = 5;
    aerie_session *session, *other;
    aerie_task *tasks[N_SEQS];
    aerie_model *model = load_failing("m"), *unhurt;
    need(load_on("m", "cpu", &unhurt, &error), &error);
    need(open_session(unhurt, &kinds[0], 2, &other, &error), &error);
    need(open_session(model, &kinds[0], N_SEQS, &session, &error), &error);
    n_told = 0;
    for (uint32_t i = 0; i < N_SEQS; i++) {
        for (uint32_t k = 0; k < 12; k++) prompts[i][k] = (int32_t)(mk_random(&random) % 100);
        aerie_request r = aerie_request_default();
        r.tokens = prompts[i], r.n_tokens = 1 + i % 12, r.n_predict = 6, r.ignore_eos = true, r.token = on_any_token;
        need(aerie_session_submit(session, &r, &tasks[i], &error), &error);
    }
    fail_from(at, true);
    uint32_t n_steps = 0, n_failed = 0;
    while (aerie_session_n_tasks(session) && ++n_steps < 1000) n_failed += aerie_session_step(session, NULL) != AERIE_OK;
    assert_true(n_failed && n_steps < 1000);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        assert_true(aerie_task_ended(tasks[i]));
        const aerie_stats *s = aerie_task_stats(tasks[i]);
        if (s->error.status != AERIE_OK) check_sentence(&s->error, s->error.status, at);
        else assert_int_equal(s->n_generated, 6);
        aerie_task_free(tasks[i]);
    }
    aerie_stats stats;
    const aerie_status status = aerie_session_generate(session, cpu_request, 1, on_any_token, NULL, &stats, sizeof stats,
                                                       &error);
    check_sentence(&error, status, at);
    generate(other, unhurt, cpu_request, 1, &again); /* another model goes on */
    same_answer(&again.answers[0], &on_cpu->answers[0], "another model", 0);
    aerie_session_free(session);
    aerie_session_free(other);
    assert_int_equal(seen.n_memory + seen.n_pinned + seen.n_recordings, 0);
    ae_gpu(model->backend)->driver = real;
    aerie_model_free(model);
    aerie_model_free(unhurt);
}

static void test_a_lost_device(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_request requests[2];
    static run on_cpu;
    aerie_model *model;
    aerie_session *session;
    two_requests(requests, N_PROMPT);
    need(load_on("m", "cpu", &model, &error), &error);
    need(open_session(model, &kinds[0], 2, &session, &error), &error);
    generate(session, model, requests, 1, &on_cpu);
    aerie_session_free(session);
    aerie_model_free(model);
    static const unsigned at[] = {1, 30, 111, 150, 200};
    for (size_t i = 0; i < sizeof at / sizeof *at; i += test_every() > 1 ? 2 : 1) lose(at[i], requests, &on_cpu);
}

/* ---- Hangs and small devices, which the emulation can simulate -------------------------------------------------- */

static bool is_emu(void)
{
    if (!strcmp(device, "emu")) return true;
    print_message("skip: only the emulation hangs when it is told to\n");
    return false;
}

static void test_a_hang(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_request requests[2];
    if (!is_emu()) return;
    two_requests(requests, N_PROMPT);
    for (int i = 0; i < 2; i++) requests[i].n_predict = 40; /* more launches than the last one that hangs */
    for (int launch = 1; launch < 400; launch = launch * 4 + 3) {
        char text[16];
        aerie_model *model;
        aerie_session *session;
        aerie_stats stats[2];
        snprintf(text, sizeof text, "%d", launch);
        setenv("AERIE_EMU_HANG", text, 1);
        setenv("AERIE_GPU_LIMIT", "0.2", 1);
        need(load_on("m", device, &model, &error), &error);
        unsetenv("AERIE_EMU_HANG");
        unsetenv("AERIE_GPU_LIMIT");
        need(open_session(model, &kinds[0], 2, &session, &error), &error);
        for (int i = 0; i < 3; i++) {
            const aerie_status status = aerie_session_generate(session, requests, 2, on_any_token, NULL, stats, sizeof *stats,
                                                               &error);
            assert_int_equal(status, AERIE_ERROR_INTERNAL);
            if (!strstr(error.text, "the device made no progress for 0.2 s and is given up")) fail_msg("%s", error.text);
            if (!strstr(error.text, "the newest kernel was") && !strstr(error.text, "kernel ") &&
                !strstr(error.text, "an upload"))
                fail_msg("%s", error.text);
        }
        aerie_session_free(session);
        aerie_model_free(model);
    }
}

/* Devices with more and more memory, from none to enough: loading fails, then sessions do, then everything works. */
static void test_small_devices(void **state)
{
    (void)state;
    unsigned n_models = 0, n_sessions = 0;
    if (!is_emu()) return;
    for (uint64_t bytes = 1000;; bytes += bytes / 8) {
        aerie_error error = {0};
        char text[32];
        aerie_model *model;
        aerie_session *session;
        snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
        setenv("AERIE_EMU_MEMORY", text, 1);
        aerie_status status = load_on("m", device, &model, &error);
        unsetenv("AERIE_EMU_MEMORY");
        if (status != AERIE_OK) {
            n_models++;
            assert_int_equal(status, AERIE_ERROR_MEMORY);
            if (!strstr(error.text, "memory")) fail_msg("%s", error.text);
            continue;
        }
        status = open_session(model, &kinds[0], 2, &session, &error);
        if (status != AERIE_OK) {
            n_sessions++;
            assert_int_equal(status, AERIE_ERROR_MEMORY);
            if (!strstr(error.text, "memory")) fail_msg("%s", error.text);
        }
        aerie_session_free(session);
        aerie_model_free(model);
        if (status == AERIE_OK) break;
    }
    print_message("%u devices too small for the model, %u for a session\n", n_models, n_sessions);
    assert_true(n_models && n_sessions);
}

int main(int argc, char **argv)
{
    if (!has_device()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_call_of_loading), cmocka_unit_test(test_every_call_of_a_session),
        cmocka_unit_test(test_every_call_of_passes),  cmocka_unit_test(test_a_lost_device),
        cmocka_unit_test(test_a_hang),                cmocka_unit_test(test_small_devices),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make, drop);
}

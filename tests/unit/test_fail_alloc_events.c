/* test_fail_alloc_events.c - requests whose events wait for aerie_session_poll while memory runs out: each allocation of their
 * steps fails once. At most one request ends, with a status; its last event still comes, and the other answers are complete. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../laws/spec_rig.inc"
#include "every.h"
#include "fail_alloc.h"

#define N 3
#define N_PREDICT 30

static aerie_model *model;

typedef struct outcome {
    answer answers[N];
    uint32_t n_last[N]; /* last events */
    long n_before, n_calls; /* allocations until the first step, and in all */
} outcome;

static void poll_all(aerie_session *session, outcome *o)
{
    const aerie_token_event *e;
    while ((e = aerie_session_poll(session))) {
        answer *a = &o->answers[e->i_request];
        if (e->n_text) memcpy(a->text + a->n_text, e->text, e->n_text);
        a->n_text += e->n_text;
        if (e->token >= 0) {
            a->ids[a->n++] = e->token;
            continue;
        }
        a->stats = *e->stats;
        o->n_last[e->i_request]++;
        assert_int_equal(e->refused != NULL, e->stats->error.status != AERIE_OK);
    }
}

/* A session, its requests and its end; allocation `fail` fails, 0: none. Nothing is polled until all have ended, or each step.
 */
static bool whole_life(long fail, bool patient, outcome *o)
{
    static const int32_t prompt[] = {5, 9, 2, 5, 9, 2, 5};
    static const char *const stops[] = {"\x01never", "e nor this"};
    aerie_error error = {0};
    aerie_session *session;
    aerie_task *tasks[N];
    aerie_session_params p = aerie_session_params_default();
    memset(o, 0, sizeof *o);
    fail_alloc_arm(fail, false);
    p.n_ctx = 64, p.n_seqs = N, p.n_batch = 8, p.n_threads = 1, p.spec.type = AERIE_SPEC_NONE;
    need(aerie_session_create(&session, model, &p, &error), &error);
    for (size_t i = 0; i < N; i++) {
        aerie_request r = aerie_request_default();
        r.id = i, r.tokens = prompt, r.n_tokens = 5 + i, r.n_predict = N_PREDICT, r.ignore_eos = true;
        r.n_logprobs = 2 * (uint32_t)i, r.sampling.temperature = 1, r.sampling.seed = i;
        if (i == 2) r.stop = stops, r.n_stop = 2;
        need(aerie_session_submit(session, &r, &tasks[i], &error), &error);
    }
    o->n_before = fail_alloc_calls();
    while (aerie_session_n_tasks(session)) {
        need(aerie_session_step(session, &error), &error);
        if (!patient) poll_all(session, o);
    }
    poll_all(session, o);
    o->n_calls = fail_alloc_calls();
    for (size_t i = 0; i < N; i++) {
        assert_true(aerie_task_ended(tasks[i]));
        assert_memory_equal(aerie_task_stats(tasks[i]), &o->answers[i].stats, sizeof(aerie_stats));
        aerie_task_free(tasks[i]);
    }
    aerie_session_free(session);
    const bool hit = fail_alloc_disarm();
    assert_int_equal(fail_alloc_live(), 0);
    return hit;
}

static void sweep(bool patient)
{
    static outcome plain, got;
    uint32_t n_failed = 0, n_tried = 0;
    whole_life(0, patient, &plain);
    for (long n = plain.n_before + 1; n <= plain.n_calls; n += AE_TEST_EVERY > 1 ? 2 : 1, n_tried++) {
        uint32_t n_bad = 0;
        assert_true(whole_life(n, patient, &got));
        for (size_t i = 0; i < N; i++) {
            const answer *a = &got.answers[i], *w = &plain.answers[i];
            if (got.n_last[i] != 1) fail_msg("allocation %ld: request %zu has %u last events", n, i, got.n_last[i]);
            assert_memory_equal(a->ids, w->ids, a->n * sizeof *a->ids);
            assert_memory_equal(a->text, w->text, a->n_text);
            if (a->stats.error.status == AERIE_OK) {
                if (a->n != w->n || a->n_text != w->n_text)
                    fail_msg("allocation %ld: request %zu has %zu tokens and %zu bytes of %zu and %zu, but no status", n, i,
                             a->n, a->n_text, w->n, w->n_text);
                continue;
            }
            assert_int_equal(a->stats.error.status, AERIE_ERROR_MEMORY);
            assert_true(a->stats.error.text[0]);
            n_bad++;
        }
        assert_true(n_bad <= 1);
        n_failed += n_bad;
    }
    print_message("%u allocations failed, %u requests ended by it\n", n_tried, n_failed);
    assert_true(n_failed > 0);
}

static void test_events_that_wait(void **state)
{
    (void)state;
    sweep(true);
}

static void test_events_that_are_polled(void **state)
{
    (void)state;
    sweep(false);
}

static int make(void **state)
{
    (void)state;
    mk_options o;
    aerie_error error = {0};
    if (!mkdtemp(folder)) return 1;
    mk_shape("tiny", &o);
    need(mk_model(&o, path_of("m"), &error), &error);
    model = load(path_of("m"), NULL);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    aerie_model_free(model);
    unlink(path_of("m"));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_events_that_wait), cmocka_unit_test(test_events_that_are_polled)};
    return cmocka_run_group_tests(tests, make, drop);
}

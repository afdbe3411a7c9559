/* test_window_laws.c - law 1 for layers with windows, whose part of the KV cache is freed once no row can see it: the same
 * tokens as with all of it, with any drafter, in small pools, for several sequences, saved in the middle, forked, and for
 * prefixes that end far before the window.
 *
 * Contexts are long beside the windows (16 positions), so that most parts are lost; that they are is asserted.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "session/session_int.h"
#include "aerie_extra.h"
#include "every.h"
#include "mkarch.h"
#define MAX_PREDICT 64
#include "spec_rig.inc"

static const char *const names[] = {"gemma3", "gpt-oss", "gemma4"};
#define N_NAMES (sizeof names / sizeof names[0])
enum { GEMMA3 = 0 };

#define SKIP (AE_TEST_EVERY > 4 ? 3 : 1) /* of models: every third one where tests run slowly; of drafters one */

enum { N_CTX = 1150, N_REQUESTS = 5, N_PREDICT = 20, ALL = 1024, TEXT = 750 };

static aerie_model *models[N_NAMES];
static int32_t prompts[N_REQUESTS][TEXT];
static size_t lengths[N_REQUESTS];
static int32_t eog;

typedef struct shape {
    uint32_t n_seqs, n_kv, n_checkpoints; /* n_checkpoints ALL: nothing is ever lost */
    aerie_spec spec;
} shape;

static aerie_session *session_of(size_t i, const shape *s)
{
    aerie_error error = {0};
    aerie_session *session;
    const ae_session_test test = {.fixed = true, .oracle_error = 0.3f};
    aerie_session_params p = aerie_session_params_default();
    p.n_ctx = N_CTX;
    p.n_seqs = s->n_seqs;
    p.n_batch = 64;
    p.n_threads = 2;
    p.n_kv = s->n_kv;
    p.spec = s->spec;
    p.n_checkpoints = s->n_checkpoints;
    need(ae_session_create_for_test(&session, models[i], &p, &test, &error), &error);
    if (!s->n_kv) assert_int_equal(ae_kv_loses_parts(ae_engine_kv(session->engine)), s->n_checkpoints != ALL);
    return session;
}

static aerie_spec spec_of(aerie_spec_type type, aerie_tree tree)
{
    aerie_spec s = aerie_spec_default();
    s.type = type;
    s.tree = tree;
    s.n_max = 6;
    s.ngram = false;
    return s;
}

static aerie_request request_of(size_t i, uint32_t sampling)
{
    aerie_request r = aerie_request_default();
    r.tokens = prompts[i];
    r.n_tokens = lengths[i];
    r.n_predict = N_PREDICT;
    r.ignore_eos = true;
    r.sampling = sampling_of(sampling);
    return r;
}

/* One sequence after the other, nothing drafted, nothing lost. */
static void plain_answers(size_t i, uint32_t sampling, run *plain)
{
    const shape s = {1, 0, ALL, spec_of(AERIE_SPEC_NONE, AERIE_TREE_OFF)};
    aerie_request requests[N_REQUESTS];
    for (size_t k = 0; k < N_REQUESTS; k++) requests[k] = request_of(k, sampling);
    aerie_session *session = session_of(i, &s);
    generate(session, models[i], requests, N_REQUESTS, plain);
    aerie_session_free(session);
}

static void compare(size_t i, const char *what, uint32_t sampling, const shape *s, const run *plain)
{
    aerie_request requests[N_REQUESTS];
    static run got;
    char text[128];
    for (size_t k = 0; k < N_REQUESTS; k++) requests[k] = request_of(k, sampling);
    aerie_session *session = session_of(i, s);
    tell_oracle(session, plain);
    for (int again = 0; again < 2; again++) { /* the second time prefixes are reused */
        snprintf(text, sizeof text, "%s, %s, %u sequences, %u positions, %u checkpoints, run %d", names[i], what, s->n_seqs,
                 s->n_kv, s->n_checkpoints, again);
        generate(session, models[i], requests, N_REQUESTS, &got);
        for (size_t k = 0; k < N_REQUESTS; k++) same_answer(&got.answers[k], &plain->answers[k], text, k);
        assert_true(ae_kv_is_sound(ae_engine_kv(session->engine)));
    }
    if (s->spec.type == AE_SPEC_ORACLE) assert_true(got.answers[2].stats.n_accepted > 0);
    aerie_session_free(session);
}

static void test_same_tokens(void **state)
{
    static run plain;
    (void)state;
    static const struct {
        const char *name;
        aerie_spec_type type;
        aerie_tree tree;
        uint32_t n_seqs, n_kv, n_checkpoints;
    } ways[] = {{"plain", AERIE_SPEC_NONE, AERIE_TREE_OFF, 1, 0, 0},
                {"oracle tree", AE_SPEC_ORACLE, AERIE_TREE_AUTO, 3, 0, 0},
                {"n-grams", AERIE_SPEC_NGRAM, AERIE_TREE_AUTO, 3, 0, 4},
                {"random", AE_SPEC_RANDOM, AERIE_TREE_AUTO, 2, 1, 0},
                {"oracle", AE_SPEC_ORACLE, AERIE_TREE_OFF, 5, 1, 0},
                {"draft", AERIE_SPEC_DRAFT, AERIE_TREE_OFF, 2, 0, 4},
                {"draft tree", AERIE_SPEC_DRAFT, AERIE_TREE_AUTO, 1, 0, 0}};
    for (size_t i = 0; i < N_NAMES; i += SKIP) {
        const uint32_t sampling = i % 2;
        plain_answers(i, sampling, &plain);
        for (size_t w = SKIP > 1 ? 3 : 0; w < sizeof ways / sizeof *ways; w += SKIP > 1 ? sizeof ways : 1) {
            shape s = {ways[w].n_seqs, ways[w].n_kv, ways[w].n_checkpoints, spec_of(ways[w].type, ways[w].tree)};
            if (s.spec.type == AERIE_SPEC_DRAFT) s.spec.draft_model = models[(i + 1) % N_NAMES];
            compare(i, ways[w].name, sampling, &s, &plain);
        }
    }
}

/* Two that do not fit together: the younger one is preempted, and comes back. */
static void test_preempted(void **state)
{
    (void)state;
    static run got, expected;
    const shape all = {1, 0, ALL, spec_of(AERIE_SPEC_NONE, AERIE_TREE_OFF)};
    const shape few = {2, 1, 0, spec_of(AE_SPEC_ORACLE, AERIE_TREE_AUTO)};
    aerie_request requests[2];
    for (size_t k = 0; k < 2; k++) {
        requests[k] = request_of(1 + 2 * k, 0);
        requests[k].tokens = prompts[1] + 7 * k;
        requests[k].n_tokens = TEXT - 48 - 7 * k;
        requests[k].n_predict = MAX_PREDICT;
    }
    aerie_session *session = session_of(GEMMA3, &all);
    generate(session, models[GEMMA3], requests, 2, &expected);
    aerie_session_free(session);
    session = session_of(GEMMA3, &few);
    assert_true(ae_kv_loses_parts(ae_engine_kv(session->engine)));
    tell_oracle(session, &expected);
    generate(session, models[GEMMA3], requests, 2, &got);
    for (size_t k = 0; k < 2; k++) same_answer(&got.answers[k], &expected.answers[k], "two in a small pool", k);
    assert_true(got.answers[0].stats.n_preempted + got.answers[1].stats.n_preempted > 0);
    aerie_session_free(session);
}

/* ---- Saved and forked -------------------------------------------------------------------------------------------- */

/* Steps until n tokens are told, or the end: then true. */
static bool advance(aerie_session *session, answer *a, size_t n)
{
    aerie_error error = {0};
    const aerie_token_event *e;
    bool ended = false;
    while (!ended && a->n < n) {
        need(aerie_session_step(session, &error), &error);
        while ((e = aerie_session_poll(session))) {
            if (e->token >= 0) a->ids[a->n++] = e->token;
            else ended = true, a->stats = *e->stats;
        }
    }
    return ended;
}

static void goes_on(aerie_session *session, aerie_request request, const void *data, size_t n, const answer *begun,
                    const answer *expected, const char *what)
{
    aerie_error error = {0};
    aerie_task *task;
    answer a = *begun;
    request.tokens = NULL, request.n_tokens = 0;
    request.saved = data, request.n_saved = n;
    need(aerie_session_submit(session, &request, &task, &error), &error);
    (void)advance(session, &a, SIZE_MAX);
    aerie_task_free(task);
    same_answer(&a, expected, what, 0);
}

/* Saved in its prompt and in its answer, and loaded here, in another session, and in one that has the prefix already. */
static void test_saved_in_the_middle(void **state)
{
    static run plain;
    (void)state;
    for (size_t i = 0; i < N_NAMES; i += 2 * SKIP) {
        const shape few = {2, 0, 0, spec_of(AE_SPEC_RANDOM, AERIE_TREE_AUTO)};
        const shape all = {1, 0, ALL, spec_of(AERIE_SPEC_NONE, AERIE_TREE_OFF)};
        aerie_error error = {0};
        aerie_task *task;
        answer a = {.n = 0};
        plain_answers(i, 1, &plain);
        aerie_request request = request_of(2, 1);
        aerie_session *from = session_of(i, &few), *other = session_of(i, &few), *whole = session_of(i, &all);
        need(aerie_session_submit(from, &request, &task, &error), &error);
        for (uint32_t k = 0; k < 5; k++) need(aerie_session_step(from, &error), &error); /* in the prompt */
        for (bool ended = false; !ended;) {
            void *data;
            size_t n;
            char what[96];
            snprintf(what, sizeof what, "%s, saved after %zu tokens", names[i], a.n);
            need(aerie_task_save(task, &data, &n, &error), &error);
            goes_on(other, request, data, n, &a, &plain.answers[2], what);
            goes_on(whole, request, data, n, &a, &plain.answers[2], what);
            aerie_free(data);
            ended = advance(from, &a, a.n + 1 + a.n / 2);
        }
        same_answer(&a, &plain.answers[2], "the saved one itself", 0);
        aerie_task_free(task);
        /* A prefix that ends far before the window of the sequence that ran, and one with all that was kept. */
        for (uint32_t k = 0; k < 2; k++) {
            void *data = NULL;
            size_t n = 0, n_loaded = 0;
            const size_t n_saved = k ? lengths[2] : lengths[2] / 2;
            const aerie_status status = aerie_session_prefix_save(from, 0, NULL, 0, prompts[2], n_saved, &data, &n, &error);
            if (k) need(status, &error);
            if (status != AERIE_OK) continue; /* its window is lost */
            need(aerie_session_prefix_load(other, 0, data, n, &n_loaded, &error), &error);
            aerie_free(data);
        }
        aerie_session_free(from);
        aerie_session_free(other);
        aerie_session_free(whole);
    }
}

/* One prompt, run once, and then many answers at once that begin in it: at its end, and far before that. */
static void test_forks(void **state)
{
    (void)state;
    for (size_t i = 1; i < N_NAMES; i += SKIP) {
        static run got, expected;
        aerie_request requests[N_REQUESTS];
        static int32_t texts[N_REQUESTS][TEXT];
        for (size_t k = 0; k < N_REQUESTS; k++) {
            requests[k] = request_of(2, 1);
            requests[k].sampling.seed = k;
            memcpy(texts[k], prompts[2], sizeof texts[k]);
            requests[k].tokens = texts[k];
            if (k == 3) texts[k][150] ^= 1; /* another text from there on */
            if (k == 4) requests[k].n_tokens = lengths[2] / 2;
        }
        const shape plain = {1, 0, ALL, spec_of(AERIE_SPEC_NONE, AERIE_TREE_OFF)};
        const shape s = {5, 0, 0, spec_of(AE_SPEC_RANDOM, AERIE_TREE_AUTO)};
        aerie_session *session = session_of(i, &plain);
        generate(session, models[i], requests, N_REQUESTS, &expected);
        aerie_session_free(session);
        session = session_of(i, &s);
        generate(session, models[i], requests, N_REQUESTS, &got);
        for (size_t k = 0; k < N_REQUESTS; k++) same_answer(&got.answers[k], &expected.answers[k], names[i], k);
        aerie_session_free(session);
    }
}

/* ---- Conversations ------------------------------------------------------------------------------------------------ */

/* Ten turns whose answers lose their first half, the thinking, once they are history: every turn has the bytes of a fresh
 * session, and begins where the last user's turn ended. */
static void test_turns(void **state)
{
    (void)state;
    const shape s = {1, 0, 4, spec_of(AERIE_SPEC_NGRAM, AERIE_TREE_AUTO)};
    for (size_t i = 0; i < 1; i++) {
        aerie_session *session = session_of(i, &s);
        static int32_t text[N_CTX];
        uint32_t n = 0, border = 0, all = 0, again = 0;
        for (uint32_t turn = 0; turn < 10 / SKIP; turn++) {
            static run got, fresh;
            for (uint32_t k = 0; k < 70; k++) text[n++] = prompts[turn % N_REQUESTS][k % 40 + turn];
            text[n++] = eog;
            const uint32_t end = n; /* of the user's turn */
            for (uint32_t k = 0; k < 3; k++) text[n++] = 10 + (int32_t)k;
            aerie_request request = aerie_request_default();
            request.tokens = text, request.n_tokens = n, request.n_predict = 60, request.ignore_eos = true;
            request.sampling = sampling_of(0);
            generate(session, models[i], &request, 1, &got);
            aerie_session *other = session_of(i, &s);
            generate(other, models[i], &request, 1, &fresh);
            aerie_session_free(other);
            same_answer(&got.answers[0], &fresh.answers[0], names[i], turn);
            const aerie_stats *t = &got.answers[0].stats;
            if (t->n_cached < border) fail_msg("%s: turn %u begins at %u, not %u", names[i], turn, t->n_cached, border);
            again += t->n_prompt - t->n_cached;
            all += t->n_prompt;
            border = end;
            n = end; /* the generation prompt goes, too */
            for (uint32_t k = 30; k < 60; k++) text[n++] = got.answers[0].ids[k];
            text[n++] = eog;
        }
        print_message("%s: %d turns, %u prompt tokens, %u of them computed\n", names[i], 10 / SKIP, all, again);
        aerie_session_free(session);
    }
}

/* ---- Memory ------------------------------------------------------------------------------------------------------- */

static void test_memory(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_memory_plan few, all;
    aerie_session_params p = aerie_session_params_default();
    p.n_ctx = 32768, p.n_batch = 64, p.n_threads = 1;
    p.spec.type = AERIE_SPEC_NONE;
    need(aerie_memory_plan_get(path_of(names[GEMMA3]), NULL, &p, &few, sizeof few, &error), &error);
    p.n_checkpoints = ALL;
    p.n_seqs = 1;
    need(aerie_memory_plan_get(path_of(names[GEMMA3]), NULL, &p, &all, sizeof all, &error), &error);
    /* 6 of 7 layers have windows: a seventh of a page of keys and values is left. */
    const size_t page = (size_t)AE_KV_PAGE * 2 * 48 * sizeof(uint16_t), layer = 32768 / AE_KV_PAGE * page;
    assert_true(all.session_bytes > 7 * layer);
    assert_true(few.session_bytes < all.session_bytes - 5 * layer);
}

static int make_models(void **state)
{
    uint64_t random = 3;
    (void)state;
    if (!mkdtemp(folder)) return 1;
    for (size_t i = 0; i < N_NAMES; i++) {
        aerie_error error = {0};
        need(mkarch_write(mkarch_find(names[i]), true, path_of(names[i]), &error), &error);
        models[i] = load(path_of(names[i]), "");
    }
    while (eog < MKARCH_VOCAB && !aerie_model_token_is_eog(models[0], eog)) eog++;
    const size_t n[N_REQUESTS] = {1, 260, 450, 150, 400};
    for (size_t i = 0; i < N_REQUESTS; i++) {
        lengths[i] = n[i];
        for (size_t k = 0; k < TEXT; k++) prompts[i][k] = 3 + (int32_t)(mk_random(&random) % (MKARCH_VOCAB - 8));
        for (size_t k = 100; k < TEXT && i % 2; k++) prompts[i][k] = prompts[i][k - 37]; /* n-grams find something */
    }
    memcpy(prompts[4], prompts[2], 300 * sizeof prompts[2][0]); /* these begin alike */
    memcpy(prompts[3], prompts[1], sizeof prompts[1]);
    return eog == MKARCH_VOCAB;
}

static int drop_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        aerie_model_free(models[i]);
        unlink(path_of(names[i]));
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_tokens), cmocka_unit_test(test_saved_in_the_middle), cmocka_unit_test(test_forks),
        cmocka_unit_test(test_preempted),
        cmocka_unit_test(test_turns), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, make_models, drop_models);
}

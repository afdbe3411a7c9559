/* test_scope_laws.c - requests of one scope learn nothing of another's: neither from the prefix tree, nor from sequences that
 * run, saved ones, snapshots of recurrent layers or a drafter's rates. All that is asserted is counted in tokens. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie_extra.h"
#include "mkarch.h"
#include "spec_rig.inc"

#define N_PROMPT 200
#define N_PREDICT 24

static aerie_model *models[2]; /* with attention alone, and with recurrent layers */
static const char *const names[] = {"m", "recurrent"};
static int32_t prompt[N_PROMPT], repeated[N_PROMPT];

static int make(void **state)
{
    (void)state;
    mk_options o;
    aerie_error error = {0};
    uint64_t random = 9;
    if (!mkdtemp(folder)) return 1;
    mk_shape("tiny-gqa", &o);
    o.type = "q4_0", o.forgetful = true; /* so that n-grams are sometimes right */
    need(mk_model(&o, path_of("m"), &error), &error);
    need(mkarch_write(mkarch_find("lfm2"), false, path_of("recurrent"), &error), &error);
    for (size_t i = 0; i < 2; i++) models[i] = load(path_of(names[i]), NULL);
    for (size_t k = 0; k < N_PROMPT; k++) {
        prompt[k] = (int32_t)(3 + mk_random(&random) % 200);
        repeated[k] = k < 7 ? prompt[k] : repeated[k - 7];
    }
    return 0;
}

static int drop(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        aerie_model_free(models[i]);
        unlink(path_of(names[i]));
    }
    return rmdir(folder);
}

static aerie_session *open_session(const aerie_model *model, aerie_spec_type type, uint32_t n_seqs)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = 512, params.n_seqs = n_seqs, params.n_batch = 64, params.n_threads = 1;
    params.spec.type = type, params.spec.n_max = 5;
    if (type == AERIE_SPEC_DRAFT) params.spec.draft_model = model; /* for itself */
    need(ae_session_create_for_test(&session, model, &params, &(ae_session_test){.fixed = true}, &error), &error);
    return session;
}

static aerie_request request_of(const int32_t *tokens, size_t n, uint64_t scope)
{
    aerie_request r = aerie_request_default();
    r.tokens = tokens, r.n_tokens = n, r.n_predict = N_PREDICT, r.ignore_eos = true, r.scope = scope;
    r.sampling = sampling_of(0);
    return r;
}

static answer run_one(aerie_session *session, const aerie_model *model, const int32_t *tokens, size_t n, uint64_t scope)
{
    static run r;
    const aerie_request request = request_of(tokens, n, scope);
    generate(session, model, &request, 1, &r);
    return r.answers[0];
}

/* Ended sequences are found only by requests of their own scope; answers are the same in any case. */
static void test_what_has_ended(void **state)
{
    (void)state;
    for (size_t c = 0; c < 4; c++) {
        const size_t m = c / 2;
        aerie_session *session = open_session(models[m], c % 2 ? AERIE_SPEC_DRAFT : AERIE_SPEC_NONE, 2);
        const uint64_t scopes[] = {1, 2, 0, UINT64_MAX};
        const answer first = run_one(session, models[m], prompt, N_PROMPT, scopes[0]);
        assert_int_equal(first.stats.n_cached, 0);
        for (size_t i = 1; i < 4; i++) {
            const answer other = run_one(session, models[m], prompt, N_PROMPT, scopes[i]);
            assert_int_equal(other.stats.n_cached, 0);
            same_answer(&other, &first, names[m], i);
        }
        for (size_t i = 0; i < 4; i++) {
            const answer again = run_one(session, models[m], prompt, N_PROMPT, scopes[i]);
            assert_true(again.stats.n_cached >= N_PROMPT / 2);
            same_answer(&again, &first, names[m], i);
        }
        aerie_session_free(session);
    }
}

/* Where two run at once, one waits for what the other computes, if they are of one scope. */
static void test_what_runs(void **state)
{
    (void)state;
    for (size_t m = 0; m < 2; m++) {
        for (uint64_t second = 1; second <= 2; second++) {
            static run r;
            aerie_session *session = open_session(models[m], AERIE_SPEC_NONE, 2);
            const aerie_request requests[] = {request_of(prompt, N_PROMPT, 1), request_of(prompt, N_PROMPT, second)};
            generate(session, models[m], requests, 2, &r);
            same_answer(&r.answers[0], &r.answers[1], names[m], 1);
            if (second == 1) assert_true(r.answers[1].stats.n_cached > 0);
            else assert_int_equal(r.answers[1].stats.n_cached, 0);
            aerie_session_free(session);
        }
    }
}

static void test_saved_prefixes(void **state)
{
    (void)state;
    aerie_error error = {0};
    void *data;
    size_t n, n_loaded;
    aerie_session *session = open_session(models[0], AERIE_SPEC_NONE, 1);
    run_one(session, models[0], prompt, N_PROMPT, 1);
    assert_int_equal(aerie_session_prefix_save(session, 0, NULL, 0, prompt, N_PROMPT, &data, &n, &error), AERIE_ERROR_ARGUMENT);
    assert_int_equal(aerie_session_prefix_save(session, 2, NULL, 0, prompt, N_PROMPT, &data, &n, &error), AERIE_ERROR_ARGUMENT);
    need(aerie_session_prefix_save(session, 1, NULL, 0, prompt, N_PROMPT, &data, &n, &error), &error);
    need(aerie_session_prefix_load(session, 3, data, n, &n_loaded, &error), &error);
    assert_true(n_loaded >= N_PROMPT - 1);
    assert_int_equal(run_one(session, models[0], prompt, N_PROMPT, 2).stats.n_cached, 0);
    assert_int_equal(run_one(session, models[0], prompt, N_PROMPT, 3).stats.n_cached, N_PROMPT - 1);
    /* a saved sequence that goes on does so in the scope of its request */
    aerie_request request = request_of(NULL, 0, 4);
    request.saved = data, request.n_saved = n, request.n_predict = 0;
    aerie_task *task;
    need(aerie_session_submit(session, &request, &task, &error), &error);
    need(aerie_session_step(session, &error), &error);
    aerie_task_cancel(task);
    need(aerie_session_step(session, &error), &error);
    aerie_task_free(task);
    assert_int_equal(run_one(session, models[0], prompt, N_PROMPT, 0).stats.n_cached, 0);
    assert_int_equal(run_one(session, models[0], prompt, N_PROMPT, 4).stats.n_cached, N_PROMPT - 1);
    aerie_free(data);
    aerie_session_free(session);
}

static bool drafts_alike(const aerie_stats *a, const aerie_stats *b)
{
    return a->n_drafted == b->n_drafted && a->n_passes == b->n_passes &&
           !memcmp(a->drafted_at, b->drafted_at, sizeof a->drafted_at) &&
           !memcmp(a->accepted_at, b->accepted_at, sizeof a->accepted_at);
}

/* Drafts after another scope's text are those of a new session; after text of its own they are others: rates were learned. */
static void test_what_a_drafter_learned(void **state)
{
    (void)state;
    aerie_session *fresh = open_session(models[0], AERIE_SPEC_NGRAM, 1);
    const answer alone = run_one(fresh, models[0], repeated, N_PROMPT, 2);
    aerie_session_free(fresh);
    for (uint64_t before = 1; before <= 2; before++) {
        aerie_session *session = open_session(models[0], AERIE_SPEC_NGRAM, 1);
        for (size_t i = 0; i < 8; i++) run_one(session, models[0], prompt, N_PROMPT - i, before);
        for (size_t i = 0; i < 8; i++) run_one(session, models[0], repeated + i, N_PROMPT - i, before);
        const answer after = run_one(session, models[0], repeated, N_PROMPT, 2);
        same_answer(&after, &alone, "n-grams", 0);
        assert_int_equal(drafts_alike(&after.stats, &alone.stats), before == 1);
        aerie_session_free(session);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_has_ended), cmocka_unit_test(test_what_runs), cmocka_unit_test(test_saved_prefixes),
        cmocka_unit_test(test_what_a_drafter_learned),
    };
    return cmocka_run_group_tests_name("scope laws", tests, make, drop);
}

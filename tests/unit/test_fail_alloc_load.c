/* test_fail_alloc_load.c - every allocation of loading (in each way), of opening a session and of generating fails in turn.
 *
 * Once (the next one works again) or from then on. Each time: an error status with a sentence, nothing handed out, no
 * block left behind; or, where an allocation is only an optimisation, the right answer. CTest tries an even sample;
 * all of them run when AERIE_FAIL_ALLOC_ALL is set (by hand, under AddressSanitizer).
 */
#define _XOPEN_SOURCE 700 /* mkstemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie.h"
#include "aerie_extra.h"
#include "session/test_drafters.h"
#include "fail_alloc.h"
#include "mkmodel.h"

#define N_PREDICT 12
#define N_SAMPLES 150 /* of each sweep in CTest */

static char target_path[] = "/tmp/aerie_fail_XXXXXX", draft_path[] = "/tmp/aerie_fail_XXXXXX",
            other_path[] = "/tmp/aerie_fail_XXXXXX"; /* a draft model with another vocabulary */
static const int32_t prompt[] = {5, 77, 130, 9, 201, 5, 77, 130, 9, 201, 5, 77, 130};

static int make_files(void **state)
{
    (void)state;
    mk_options o;
    aerie_error error;
    char *paths[] = {target_path, draft_path, other_path};
    for (int i = 0; i < 3; i++) {
        const int fd = mkstemp(paths[i]);
        if (fd < 0) return 1;
        close(fd);
        mk_shape("tiny", &o);
        o.n_layers = i ? 1 : 2, o.layer_decay = 0.25f, o.vocab = i == 2 ? "bpe-other" : NULL;
        if (mk_model(&o, paths[i], &error) != AERIE_OK) {
            print_error("%s\n", error.text);
            return 1;
        }
    }
    return 0;
}

static int drop_files(void **state)
{
    (void)state;
    return unlink(target_path) | unlink(draft_path) | unlink(other_path);
}

typedef struct told {
    int32_t ids[2][N_PREDICT];
    uint32_t n[2];
} told;

static bool on_token(void *user, const aerie_token_event *event)
{
    told *t = user;
    if (event->token >= 0 && t->n[event->i_request] < N_PREDICT)
        t->ids[event->i_request][t->n[event->i_request]++] = event->token;
    return true;
}

typedef struct life {
    aerie_spec_type type;
    bool mmap, no_mmap; /* how the models are loaded */
    const char *draft;  /* DRAFT: the file */
} life;

/* Tokenizes, loads, opens a session, answers twice, again on the same session, and frees; the first failure ends it. */
static aerie_status whole_life(const life *l, told *t, aerie_error *error)
{
    aerie_model *model = NULL, *draft = NULL;
    aerie_session *session = NULL;
    int32_t *tokens = NULL;
    size_t n_tokens;
    aerie_model_params mp = aerie_model_params_default();
    aerie_session_params sp = aerie_session_params_default();
    aerie_request requests[2] = {aerie_request_default(), aerie_request_default()};
    aerie_memory_plan plan;
    mp.n_threads = 1, mp.mmap = l->mmap, mp.no_mmap = l->no_mmap;
    sp.n_ctx = 64, sp.n_seqs = 2, sp.n_batch = 8, sp.n_threads = 2;
    sp.spec.type = l->type, sp.spec.n_max = 4;
    for (int i = 0; i < 2; i++) {
        requests[i].tokens = prompt, requests[i].n_tokens = sizeof prompt / sizeof prompt[0] - (size_t)i;
        requests[i].n_predict = N_PREDICT, requests[i].ignore_eos = true;
        requests[i].sampling.temperature = (float)i;
        requests[i].sampling.repeat_penalty = 1.1f;
    }
    aerie_status status = aerie_memory_plan_get(target_path, &mp, NULL, &plan, sizeof plan, error);
    if (status == AERIE_OK) status = aerie_model_load(&model, target_path, &mp, error);
    if (status == AERIE_OK && l->type == AERIE_SPEC_DRAFT) status = aerie_model_load(&draft, l->draft, &mp, error);
    sp.spec.draft_model = draft;
    if (status == AERIE_OK) status = aerie_model_tokenize(model, "the hat is in the hall", 22, true, true, &tokens, &n_tokens,
                                                          error);
    if (status == AERIE_OK) status = ae_session_create_for_test(&session, model, &sp, &(ae_session_test){.fixed = true}, error);
    if (status == AERIE_OK) status = aerie_session_generate(session, requests, 2, NULL, NULL, NULL, 0, error);
    memset(t, 0, sizeof *t);
    if (status == AERIE_OK) status = aerie_session_generate(session, requests, 2, on_token, t, NULL, 0, error);
    aerie_session_free(session);
    aerie_free(tokens);
    aerie_model_free(draft);
    aerie_model_free(model);
    return status;
}

static void try_one(const life *l, long n, bool forever, const told *expected, uint32_t *n_survived)
{
    told got;
    aerie_error error = {0};
    fail_alloc_arm(n, forever);
    const aerie_status status = whole_life(l, &got, &error);
    const bool hit = fail_alloc_disarm();
    if (!hit) fail_msg("allocation %ld was not reached", n);
    if (fail_alloc_live())
        fail_msg("allocation %ld%s: %zu blocks were left behind", n, forever ? " and later" : "", fail_alloc_live());
    if (status == AERIE_OK) { /* done without it */
        assert_memory_equal(&got, expected, sizeof got);
        ++*n_survived;
    } else if (status != AERIE_ERROR_MEMORY || error.status != status || !error.text[0]) {
        fail_msg("allocation %ld%s: status %d, \"%s\"", n, forever ? " and later" : "", (int)status, error.text);
    }
}

static void sweep(const life *l)
{
    told expected;
    aerie_error error = {0};
    uint32_t n_survived = 0, n_tried = 0;
    fail_alloc_arm(0, false);
    const aerie_status status = whole_life(l, &expected, &error);
    fail_alloc_disarm();
    if (status != AERIE_OK) fail_msg("%s", error.text);
    assert_int_equal(fail_alloc_live(), 0);
    assert_int_equal(expected.n[0] + expected.n[1], 2 * N_PREDICT);
    const long calls = fail_alloc_calls();
    const long step = getenv("AERIE_FAIL_ALLOC_ALL") || calls < N_SAMPLES ? 1 : calls / N_SAMPLES;
    for (long n = 1; n <= calls; n += step, n_tried++)
        for (int forever = 0; forever < 2; forever++) try_one(l, n, forever, &expected, &n_survived);
    print_message("%s: %ld allocations, %u tried once and for ever, %u times done without it\n", aerie_spec_type_name(l->type),
                  calls, n_tried, n_survived);
    assert_true(n_survived < n_tried);
}

static void test_failing_allocations_with_ngram_speculation(void **state)
{
    (void)state;
    sweep(&(life){.type = AERIE_SPEC_NGRAM});
}

static void test_failing_allocations_with_a_draft_model(void **state)
{
    (void)state;
    sweep(&(life){.type = AERIE_SPEC_DRAFT, .draft = draft_path});
}

static void test_failing_allocations_with_another_vocabulary(void **state)
{
    (void)state;
    sweep(&(life){.type = AERIE_SPEC_DRAFT, .draft = other_path});
}

static void test_failing_allocations_with_weights_in_place(void **state)
{
    (void)state;
    sweep(&(life){.type = AERIE_SPEC_NONE, .mmap = true});
}

static void test_failing_allocations_without_mapping(void **state)
{
    (void)state;
    sweep(&(life){.type = AERIE_SPEC_NONE, .no_mmap = true});
}

/* A plan that cannot be made is a failure, not one of 0 bytes. */
static void test_memory_plan(void **state)
{
    aerie_memory_plan want, plan;
    aerie_error error = {0};
    (void)state;
    assert_int_equal(aerie_memory_plan_get(target_path, NULL, NULL, &want, sizeof want, &error), AERIE_OK);
    assert_true(want.weight_bytes > 0 && want.session_bytes > 0);
    for (long n = 1;; n++) {
        fail_alloc_arm(n, false);
        const aerie_status status = aerie_memory_plan_get(target_path, NULL, NULL, &plan, sizeof plan, &error);
        if (!fail_alloc_disarm()) break;
        assert_int_equal(fail_alloc_live(), 0);
        if (status == AERIE_OK) assert_int_equal(plan.weight_bytes, want.weight_bytes);
        else assert_int_equal(status, AERIE_ERROR_MEMORY);
        /* a session that cannot be planned: it needs more memory than there is */
        if (status == AERIE_OK) assert_true(plan.session_bytes >= want.session_bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failing_allocations_with_ngram_speculation),
        cmocka_unit_test(test_failing_allocations_with_a_draft_model),
        cmocka_unit_test(test_failing_allocations_with_another_vocabulary),
        cmocka_unit_test(test_failing_allocations_with_weights_in_place),
        cmocka_unit_test(test_failing_allocations_without_mapping), cmocka_unit_test(test_memory_plan),
    };
    return cmocka_run_group_tests_name("failing allocations", tests, make_files, drop_files);
}

/* test_source_laws.c - law 1 for models with an encoder and a decoder: the text for a source depends only on the source, the
 * sampler and the model, whatever the drafter, passes, other requests and evicted sources.
 *
 * Through aerie.h; the models are mkarch's T5. Plain decoding by the reference kernels on one thread is the truth, also where
 * AERIE_BACKEND names another device for all else.
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

#include "aerie_extra.h"
#include "aerie_measure.h"
#include "every.h"
#include "mkarch.h"
#include "spec_rig.inc"

static const char *const names[] = {"t5", "t5-flan", "t5-umt5"};
enum { N_MODELS = 3, N_REQUESTS = 4, N_ROWS = 90, N_PREDICT = 20 };

static aerie_model *models[N_MODELS], *ref_models[N_MODELS];
static int32_t tokens[N_REQUESTS][N_ROWS];
/* the last two have the same beginning, and so many tokens that whole pages of the cache would be alike */
static const size_t lengths[N_REQUESTS] = {1, 40, N_ROWS, N_ROWS - 5};
static run truth[N_MODELS][2]; /* at temperature 0 and at another */

static aerie_request request_of(size_t i, uint32_t sampling)
{
    aerie_request r = aerie_request_default();
    r.tokens = tokens[i], r.n_tokens = lengths[i], r.n_predict = N_PREDICT;
    r.ignore_eos = true;
    r.sampling = sampling_of(sampling);
    return r;
}

typedef struct way {
    const char *name;
    aerie_spec_type type;
    aerie_tree tree;
    uint32_t n_seqs, n_batch, n_threads, n_kv;
} way;

static aerie_session *open_session(const aerie_model *model, const way *w)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params p = aerie_session_params_default();
    const ae_session_test test = {.fixed = w->type != AERIE_SPEC_NONE, .oracle_error = 0.3f};
    p.n_ctx = 128, p.n_seqs = w->n_seqs, p.n_batch = w->n_batch, p.n_threads = w->n_threads, p.n_kv = w->n_kv;
    p.spec.type = w->type, p.spec.tree = w->tree, p.spec.n_max = 5, p.spec.ngram = false;
    need(ae_session_create_for_test(&session, model, &p, &test, &error), &error);
    return session;
}

/* All requests at once. */
static void run_requests(aerie_session *session, uint32_t sampling, run *r)
{
    aerie_error error = {0};
    aerie_request requests[N_REQUESTS];
    aerie_stats stats[N_REQUESTS];
    for (size_t i = 0; i < N_REQUESTS; i++) requests[i] = request_of(i, sampling);
    memset(r, 0, sizeof *r);
    r->n = N_REQUESTS;
    need(aerie_session_generate(session, requests, N_REQUESTS, on_token, r, stats, sizeof(aerie_stats), &error), &error);
    for (size_t i = 0; i < N_REQUESTS; i++) {
        r->answers[i].stats = stats[i];
        assert_int_equal(stats[i].n_prompt, lengths[i] + 1); /* the start token */
    }
}

static void same_answers(const run *got, const run *wanted, const char *model, const char *what)
{
    for (size_t i = 0; i < N_REQUESTS; i++) {
        char text[96];
        snprintf(text, sizeof text, "%s, %s", model, what);
        same_answer(&got->answers[i], &wanted->answers[i], text, i);
    }
}

static void find_truth(size_t i)
{
    static const way plain = {"plain", AERIE_SPEC_NONE, AERIE_TREE_OFF, 1, 128, 1, 0};
    for (uint32_t sampling = 0; sampling < 2; sampling++) {
        aerie_session *session = open_session(ref_models[i], &plain);
        run_requests(session, sampling, &truth[i][sampling]);
        aerie_session_free(session);
    }
    for (size_t k = 1; k < N_REQUESTS; k++) /* the source matters */
        assert_true(memcmp(truth[i][0].answers[0].ids, truth[i][0].answers[k].ids, sizeof(int32_t[N_PREDICT])) != 0);
}

static void test_tokens(void **state)
{
    static const way ways[] = {
        {"plain, threads", AERIE_SPEC_NONE, AERIE_TREE_OFF, 1, 128, 3, 0},
        {"in small passes", AERIE_SPEC_NONE, AERIE_TREE_OFF, 4, 9, 2, 0},
        {"n-grams", AERIE_SPEC_NGRAM, AERIE_TREE_AUTO, 4, 48, 2, 0}, {"oracle", AE_SPEC_ORACLE, AERIE_TREE_OFF, 3, 48, 1, 0},
        {"oracle tree", AE_SPEC_ORACLE, AERIE_TREE_AUTO, 8, 48, 2, 0}, {"random", AE_SPEC_RANDOM, AERIE_TREE_AUTO, 2, 16, 2, 0},
        {"pages run out", AE_SPEC_ORACLE, AERIE_TREE_AUTO, 4, 32, 2, 192}};
    const size_t n = sizeof ways / sizeof *ways;
    uint32_t n_accepted = 0;
    static run got;
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++)
        for (size_t w = 0; w < n; w++) {
            if (AE_TEST_EVERY > 4 && (w + i) % 3) continue;
            const uint32_t sampling = (w + i) % 2;
            aerie_session *session = open_session(models[i], &ways[w]);
            tell_oracle(session, &truth[i][sampling]);
            run_requests(session, sampling, &got);
            same_answers(&got, &truth[i][sampling], names[i], ways[w].name);
            for (size_t k = 0; k < N_REQUESTS; k++) n_accepted += got.answers[k].stats.n_accepted;
            run_requests(session, sampling, &got);
            same_answers(&got, &truth[i][sampling], names[i], "once more");
            aerie_session_free(session);
        }
    assert_true(n_accepted > 20);
}

/* A source is found again if it is equal as a whole. */
static void test_cache(void **state)
{
    static const way one = {"cache", AERIE_SPEC_NONE, AERIE_TREE_OFF, 1, 64, 1, 1024};
    aerie_error error = {0};
    aerie_session *session = open_session(models[1], &one);
    static const size_t order[] = {2, 3, 2, 3};
    (void)state;
    for (size_t k = 0; k < 4; k++) {
        const aerie_request r = request_of(order[k], 0);
        aerie_stats stats;
        run got = {.n = 1};
        need(aerie_session_generate(session, &r, 1, on_token, &got, &stats, sizeof stats, &error), &error);
        got.answers[0].stats = stats;
        same_answer(&got.answers[0], &truth[1][0].answers[order[k]], "cache", order[k]);
        assert_int_equal(stats.n_cached, k < 2 ? 0 : lengths[order[k]]);
    }
    aerie_session_free(session);
}

/* A request that another one displaced goes on from its saved bytes in another session. */
static void test_saved(void **state)
{
    static const way one = {"saved", AERIE_SPEC_NONE, AERIE_TREE_OFF, 1, 64, 1, 0};
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        aerie_error error = {0};
        aerie_session *session = open_session(models[i], &one), *other = open_session(ref_models[i], &one);
        aerie_request r = request_of(2, 1);
        aerie_task *task;
        const aerie_token_event *event;
        void *data;
        size_t n, n_told = 0;
        int32_t ids[N_PREDICT];
        need(aerie_session_submit(session, &r, &task, &error), &error);
        while (n_told < 7) {
            need(aerie_session_step(session, &error), &error);
            while ((event = aerie_session_poll(session)))
                if (event->token >= 0 && n_told < N_PREDICT) ids[n_told++] = event->token;
        }
        need(aerie_task_save(task, &data, &n, &error), &error);
        aerie_task_free(task);
        aerie_session_free(session);
        r.tokens = NULL, r.n_tokens = 0, r.saved = data, r.n_saved = n;
        need(aerie_session_submit(other, &r, &task, &error), &error);
        aerie_free(data);
        while (!aerie_task_ended(task)) {
            need(aerie_session_step(other, &error), &error);
            while ((event = aerie_session_poll(other)))
                if (event->token >= 0 && n_told < N_PREDICT) ids[n_told++] = event->token;
        }
        assert_int_equal(n_told, N_PREDICT);
        assert_memory_equal(ids, truth[i][1].answers[2].ids, sizeof ids);
        aerie_task_free(task);
        aerie_session_free(other);
    }
}

static void refused(aerie_status status, aerie_status wanted, const aerie_error *error, const char *part)
{
    if (status != wanted || !strstr(error->text, part)) fail_msg("status %d, '%s' in '%s'", status, part, error->text);
}

static bool take_logits(void *user, size_t position, const float *logits)
{
    (void)user, (void)position, (void)logits;
    return true;
}

static void test_refusals(void **state)
{
    static const way one = {"", AERIE_SPEC_NONE, AERIE_TREE_OFF, 1, 64, 1, 0};
    aerie_error error = {0};
    aerie_session *session = open_session(models[0], &one), *none;
    static int32_t many[200];
    aerie_request r = request_of(0, 0);
    aerie_task *task;
    aerie_adapter *adapter;
    (void)state;
    r.tokens = many, r.n_tokens = 200;
    refused(aerie_session_submit(session, &r, &task, &error), AERIE_ERROR_LIMIT, &error, "the source text has 200 tokens");
    r.n_tokens = 127;
    refused(aerie_session_submit(session, &r, &task, &error), AERIE_ERROR_LIMIT, &error, "of which two");
    many[3] = MKARCH_VOCAB, r.n_tokens = 10;
    refused(aerie_session_submit(session, &r, &task, &error), AERIE_ERROR_ARGUMENT, &error, "token 3 of the prompt");
    many[3] = -1;
    refused(aerie_session_submit(session, &r, &task, &error), AERIE_ERROR_ARGUMENT, &error, "token 3 of the prompt");
    r.n_tokens = 0;
    refused(aerie_session_submit(session, &r, &task, &error), AERIE_ERROR_ARGUMENT, &error, "empty");
    r = request_of(0, 0);
    refused(aerie_session_eval(session, many, 3, take_logits, NULL, &error), AERIE_ERROR_UNSUPPORTED, &error, "begins with");
    refused(aerie_adapter_load(&adapter, models[0], "none.gguf", NULL, &error), AERIE_ERROR_UNSUPPORTED, &error, "encoder");
    aerie_session_free(session);
    aerie_session_params p = aerie_session_params_default();
    p.n_ctx = 128, p.spec.type = AERIE_SPEC_DRAFT, p.spec.draft_model = models[1];
    refused(aerie_session_create(&none, models[0], &p, &error), AERIE_ERROR_UNSUPPORTED, &error,
            "has an encoder and a decoder");
}

static aerie_model *load_reference(const char *path)
{
    const char *said = getenv("AERIE_BACKEND");
    char kept[32] = "";
    if (said) snprintf(kept, sizeof kept, "%s", said), setenv("AERIE_BACKEND", "cpu", 1);
    aerie_model *model = load(path, "ref");
    if (said) setenv("AERIE_BACKEND", kept, 1);
    return model;
}

static int make_models(void **state)
{
    uint64_t random = 5;
    (void)state;
    if (!mkdtemp(folder)) return 1;
    for (size_t i = 0; i < N_REQUESTS; i++)
        for (size_t k = 0; k < N_ROWS; k++) tokens[i][k] = i == 3 ? tokens[2][k] : 3 + (int32_t)(mk_random(&random) % 250);
    for (size_t i = 0; i < N_MODELS; i++) {
        aerie_error error = {0};
        const char *path = path_of(names[i]);
        need(mkarch_write(mkarch_find(names[i]), true, path, &error), &error);
        models[i] = load(path, "");
        ref_models[i] = load_reference(path);
        find_truth(i);
    }
    return 0;
}

static int drop_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        aerie_model_free(models[i]);
        aerie_model_free(ref_models[i]);
        unlink(path_of(names[i]));
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tokens), cmocka_unit_test(test_cache),
                                       cmocka_unit_test(test_saved), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, make_models, drop_models);
}

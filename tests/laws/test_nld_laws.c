/* test_nld_laws.c - law 1 for models that draft by masks (Nemotron-Labs-Diffusion): with an adapter in drafts and without,
 * chains and trees, one to 64 sequences, with and without temperature, penalties, grammars, stop strings and adapters of
 * requests.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie_extra.h"
#include "every.h"
#include "mkarch.h"
#include "mklora.h"
#define MAX_REQUESTS 64
#include "spec_rig.inc"
#include "asks.inc"
#include "mixed_requests.inc"

static const struct way {
    aerie_tree tree;
    uint32_t n_seqs, n_max;
    bool fixed, ngram, adapted;
} ways[] = {
    {AERIE_TREE_OFF, 1, 31, true, false, true},    {AERIE_TREE_AUTO, 8, 7, true, false, false},
    {AERIE_TREE_DYNAMIC, 3, 5, true, false, true}, {AERIE_TREE_OFF, 8, 4, false, true, true},
    {AERIE_TREE_AUTO, 1, 9, false, true, false},   {AERIE_TREE_STATIC, 2, 5, true, false, true},
    {AERIE_TREE_OFF, 3, 64, true, false, false},   {AERIE_TREE_AUTO, 5, 1, true, true, true},
};
#define N_WAYS (sizeof ways / sizeof *ways)

static aerie_model *model;
static aerie_adapter *adapters[2]; /* for drafts, for requests */

static int make(void **state)
{
    aerie_error error = {0};
    (void)state;
    if (!mkdtemp(folder)) return 1;
    char path[128], lora[128];
    snprintf(path, sizeof path, "%s", path_of("nld"));
    snprintf(lora, sizeof lora, "%s", path_of("lora"));
    need(mkarch_write(mkarch_find("dream-nld"), false, path, &error), &error);
    model = load(path, NULL);
    for (int i = 0; i < 2; i++) {
        const mklora_options o = {.rank = i ? 4 : 8, .seed = 3 + (uint64_t)i, .match = i ? NULL : "attn_output"};
        need(mklora_write(&o, path, lora, &error), &error);
        need(aerie_adapter_load(&adapters[i], model, lora, NULL, &error), &error);
        unlink(lora);
    }
    unlink(path);
    make_mixed();
    return 0;
}

static int drop(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) aerie_adapter_free(adapters[i]);
    aerie_model_free(model);
    free_mixed();
    return rmdir(folder);
}

static bool asking; /* requests narrow their drafts */

static void run_all(const aerie_spec *spec, uint32_t n_seqs, bool fixed, uint32_t sampling, size_t n, run *r)
{
    static const aerie_adapter_use use = {0, 0.7f};
    aerie_error error = {0};
    aerie_session *session;
    static aerie_request requests[MAX_REQUESTS];
    aerie_stats stats[MAX_REQUESTS];
    aerie_session_params p = aerie_session_params_default();
    p.n_ctx = MKARCH_CTX, p.n_seqs = n_seqs, p.n_batch = 48, p.n_threads = n_seqs == 8 ? 2 : 1, p.spec = *spec;
    p.n_kv = n_seqs == 3 || n_seqs == 5 ? MKARCH_CTX : 0; /* so few pages that drafts and sequences wait for them */
    p.adapters = (const aerie_adapter *const *)&adapters[1], p.n_adapters = 1;
    need(ae_session_create_for_test(&session, model, &p, &(ae_session_test){.fixed = fixed}, &error), &error);
    for (size_t i = 0; i < n; i++) {
        requests[i] = mixed_request(i, sampling, 1);
        if (i % 5 == 3) requests[i].adapters = &use, requests[i].n_adapters = 1;
        if (asking) ask(&requests[i], i);
    }
    memset(r, 0, sizeof *r);
    r->n = n;
    need(aerie_session_generate(session, requests, n, on_token, r, stats, sizeof(aerie_stats), &error), &error);
    for (size_t i = 0; i < n; i++) {
        r->answers[i].stats = stats[i];
        if (asking) (void)check_ask(&r->answers[i], &requests[i], "nld", i);
    }
    aerie_session_free(session);
}

static aerie_spec spec_of(const struct way *w)
{
    aerie_spec spec = aerie_spec_default();
    spec.type = AERIE_SPEC_NLD, spec.tree = w->tree, spec.n_max = w->n_max, spec.ngram = w->ngram;
    spec.adapter = w->adapted ? adapters[0] : NULL;
    return spec;
}

static void check_same(const run *got, const run *plain, const char *what, uint64_t *drafted, uint64_t *accepted)
{
    for (size_t q = 0; q < plain->n; q++) {
        same_answer(&got->answers[q], &plain->answers[q], what, q);
        if (got->answers[q].n_text != plain->answers[q].n_text) fail_msg("%s: request %zu: another text", what, q);
        *drafted += got->answers[q].stats.n_drafted;
        *accepted += got->answers[q].stats.n_accepted;
    }
}

static void test_same_tokens(void **state)
{
    (void)state;
    static run plain, got;
    uint64_t drafted = 0, accepted = 0, n_stopped = 0;
    const size_t step = AE_TEST_EVERY > 3 ? 2 : 1;
    for (uint32_t sampling = 0; sampling < N_SAMPLINGS; sampling++) {
        aerie_spec spec = aerie_spec_default();
        spec.type = AERIE_SPEC_NONE;
        run_all(&spec, 1, false, sampling, N_REQUESTS, &plain);
        for (size_t i = 0; i < N_REQUESTS; i++) n_stopped += plain.answers[i].stats.stop == AERIE_STOP_STRING;
        for (size_t c = sampling % step; c < N_WAYS; c += step) {
            char text[96];
            spec = spec_of(&ways[c]);
            run_all(&spec, ways[c].n_seqs, ways[c].fixed, sampling, N_REQUESTS, &got);
            snprintf(text, sizeof text, "way %zu, sampling %u", c, sampling);
            check_same(&got, &plain, text, &drafted, &accepted);
        }
    }
    print_message("%llu drafted, %llu accepted, %llu ended by stop strings\n", (unsigned long long)drafted,
                  (unsigned long long)accepted, (unsigned long long)n_stopped);
    assert_true(drafted > 1000 && accepted > 20 && n_stopped > 0);
}

/* 64 sequences at once: their drafts share the outputs of a pass. */
static void test_many(void **state)
{
    (void)state;
    static run plain, got;
    uint64_t drafted = 0, accepted = 0;
    aerie_spec spec = aerie_spec_default();
    spec.type = AERIE_SPEC_NONE;
    run_all(&spec, 2, false, 0, MAX_REQUESTS, &plain);
    for (int tree = 0; tree < 2; tree++) {
        spec = spec_of(&(struct way){tree ? AERIE_TREE_AUTO : AERIE_TREE_OFF, 64, 4, true, false, !tree});
        run_all(&spec, 64, true, 0, MAX_REQUESTS, &got);
        check_same(&got, &plain, tree ? "64 trees" : "64 chains", &drafted, &accepted);
    }
    assert_true(drafted > 1000 && accepted > 10);
}

/* Requests ask for fewer drafts. */
static void test_asks(void **state)
{
    (void)state;
    static run plain, got;
    uint64_t drafted = 0, accepted = 0;
    aerie_spec spec = aerie_spec_default();
    spec.type = AERIE_SPEC_NONE;
    run_all(&spec, 1, false, 0, N_REQUESTS, &plain);
    spec = spec_of(&(struct way){AERIE_TREE_OFF, 2, 5, true, false, true});
    asking = true;
    run_all(&spec, 2, true, 0, N_REQUESTS, &got);
    asking = false;
    check_same(&got, &plain, "asks", &drafted, &accepted);
    const uint32_t one = got.answers[7].stats.n_drafted; /* a token at most; it has no grammar and no stop string */
    assert_true(one > 0 && drafted > one);
}

/* AUTO chooses it; other models are refused, as is an adapter of another model. */
static void test_sessions(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_session *session;
    aerie_model *other;
    aerie_session_params p = aerie_session_params_default();
    p.n_ctx = MKARCH_CTX;
    need(aerie_session_create(&session, model, &p, &error), &error);
    assert_string_equal(aerie_session_spec_name(session), "nld+ngram");
    aerie_session_free(session);
    need(mkarch_write(mkarch_find("qwen2"), false, path_of("q"), &error), &error);
    other = load(path_of("q"), NULL);
    unlink(path_of("q"));
    p.spec.type = AERIE_SPEC_NLD;
    assert_int_equal(aerie_session_create(&session, other, &p, &error), AERIE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "was not trained to fill"));
    p.spec.type = AERIE_SPEC_NGRAM;
    p.spec.adapter = adapters[0];
    need(aerie_session_create(&session, model, &p, &error), &error); /* no drafter uses it */
    aerie_session_free(session);
    aerie_model_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_tokens), cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_asks), cmocka_unit_test(test_sessions)};
    return cmocka_run_group_tests(tests, make, drop);
}

/* test_recur_spec.c - law 1 through aerie.h for models with recurrent layers: the same tokens with any drafter, and what a
 * conversation computes again.
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

#include "every.h"
#include "mkarch.h"
#include "spec_rig.inc"

static const char *const names[] = {"qwen35", "nemotron_h", "lfm2"};
#define N_NAMES (sizeof names / sizeof names[0])

#define SKIP (AE_TEST_EVERY > 4 ? 2 : 1) /* of models and drafters: every other one where tests run slowly */

enum { N_REQUESTS = 4, N_PREDICT = 24, MOST = 220 };

static aerie_model *models[N_NAMES];
static int32_t prompts[N_REQUESTS][128];
static int32_t eog;

static uint32_t n_checkpoints = 4;

static aerie_session *session_of(size_t i, uint32_t n_seqs, const aerie_spec *spec, const ae_api_test *test)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params p = aerie_session_params_default();
    p.n_ctx = MKARCH_CTX;
    p.n_seqs = n_seqs;
    p.n_batch = 48; /* prompts take several passes */
    p.n_threads = 2;
    p.spec = *spec;
    p.n_checkpoints = n_checkpoints;
    need(ae_api_test_session_create(&session, models[i], &p, test, &error), &error);
    return session;
}

static aerie_spec plain_spec(void)
{
    aerie_spec s = aerie_spec_default();
    s.type = AERIE_SPEC_NONE;
    return s;
}

static void list_requests(aerie_request *requests, uint32_t sampling)
{
    static const size_t lengths[N_REQUESTS] = {1, 17, 64, 120};
    for (size_t i = 0; i < N_REQUESTS; i++) {
        requests[i] = aerie_request_default();
        requests[i].tokens = prompts[i];
        requests[i].n_tokens = lengths[i];
        requests[i].n_predict = N_PREDICT;
        requests[i].ignore_eos = true;
        requests[i].sampling = sampling_of(sampling);
    }
}

static void compare(size_t i, const char *what, uint32_t n_seqs, uint32_t sampling, const aerie_spec *spec, bool fixed,
                    const run *plain)
{
    aerie_request requests[N_REQUESTS];
    static run got;
    char text[128];
    list_requests(requests, sampling);
    aerie_session *session = session_of(i, n_seqs, spec, &(ae_api_test){.fixed = fixed, .oracle_error = 0.3f});
    tell_oracle(session, plain);
    for (int again = 0; again < 2; again++) { /* the second time prefixes are reused */
        snprintf(text, sizeof text, "%s, %s, %u sequences, sampling %u, run %d", names[i], what, n_seqs, sampling, again);
        generate(session, models[i], requests, N_REQUESTS, &got);
        for (size_t k = 0; k < N_REQUESTS; k++) same_answer(&got.answers[k], &plain->answers[k], text, k);
    }
    if (spec->type == AE_SPEC_ORACLE) assert_true(got.answers[3].stats.n_accepted > 0);
    aerie_session_free(session);
}

static void test_same_tokens(void **state)
{
    static run plain;
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++)
        for (uint32_t sampling = 0; sampling < 2; sampling++) {
            aerie_request requests[N_REQUESTS];
            aerie_spec spec = plain_spec();
            list_requests(requests, sampling);
            aerie_session *session = session_of(i, 1, &spec, NULL);
            generate(session, models[i], requests, N_REQUESTS, &plain);
            aerie_session_free(session);
            compare(i, "plain", 3, sampling, &spec, false, &plain);
            spec.n_max = 6;
            static const struct {
                const char *name;
                aerie_spec_type type;
                aerie_tree tree;
            } ways[] = {{"n-grams", AERIE_SPEC_NGRAM, AERIE_TREE_AUTO}, {"oracle", AE_SPEC_ORACLE, AERIE_TREE_OFF},
                        {"oracle tree", AE_SPEC_ORACLE, AERIE_TREE_AUTO}, {"random", AE_SPEC_RANDOM, AERIE_TREE_AUTO},
                        {"draft", AERIE_SPEC_DRAFT, AERIE_TREE_OFF}, {"draft tree", AERIE_SPEC_DRAFT, AERIE_TREE_AUTO}};
            for (size_t w = (i + sampling) % SKIP; w < sizeof ways / sizeof *ways; w += SKIP) {
                spec.type = ways[w].type;
                spec.tree = ways[w].tree;
                spec.draft_model = spec.type == AERIE_SPEC_DRAFT ? models[(i + 1) % N_NAMES] : NULL;
                spec.ngram = false;
                compare(i, ways[w].name, 1 + 2 * (uint32_t)(w % 2), sampling, &spec, true, &plain);
            }
        }
}

/* Turns of a chat whose answers lose their first half, the thinking, once they are history. */
static uint32_t run_turns(size_t i)
{
    uint32_t again = 0;
    {
        const aerie_spec spec = plain_spec();
        aerie_session *session = session_of(i, 1, &spec, NULL);
        int32_t text[MOST];
        uint32_t n = 0, border = 0, all = 0;
        char counts[160];
        int n_counts = 0;
        for (uint32_t turn = 0; turn < 10; turn++) {
            static run got, fresh;
            for (uint32_t k = 0; k < 6; k++) text[n++] = prompts[turn % N_REQUESTS][20 + turn + k];
            text[n++] = eog;
            const uint32_t end = n; /* of the user's turn */
            for (uint32_t k = 0; k < 3; k++) text[n++] = 10 + (int32_t)k;
            aerie_request request = aerie_request_default();
            request.tokens = text, request.n_tokens = n, request.n_predict = 12, request.ignore_eos = true;
            request.sampling = sampling_of(0);
            generate(session, models[i], &request, 1, &got);
            aerie_session *other = session_of(i, 1, &spec, NULL);
            generate(other, models[i], &request, 1, &fresh);
            aerie_session_free(other);
            same_answer(&got.answers[0], &fresh.answers[0], names[i], turn);
            const aerie_stats *s = &got.answers[0].stats;
            if (n_checkpoints && s->n_cached < border) fail_msg("%s: turn %u begins at %u, not %u", names[i], turn, s->n_cached, border);
            again += s->n_prompt - s->n_cached;
            n_counts += snprintf(counts + n_counts, sizeof counts - (size_t)n_counts, " %u/%u", s->n_prompt - s->n_cached,
                                 s->n_prompt);
            all += s->n_prompt;
            border = end;
            n = end; /* the generation prompt goes, too */
            for (uint32_t k = 6; k < 12; k++) text[n++] = got.answers[0].ids[k];
            text[n++] = eog;
        }
        print_message("%s, %u checkpoints: 10 turns, %u prompt tokens, %u of them computed:%s\n", names[i], n_checkpoints, all,
                      again, counts);
        aerie_session_free(session);
    }
    return again;
}

static void test_turns(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMES; i += SKIP) {
        n_checkpoints = 0;
        const uint32_t without = run_turns(i);
        n_checkpoints = 4;
        assert_true(run_turns(i) * 3 < without);
    }
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
    while (eog < MKARCH_VOCAB && !aerie_token_is_eog(models[0], eog)) eog++;
    for (size_t i = 0; i < N_REQUESTS; i++)
        for (size_t k = 0; k < 128; k++) prompts[i][k] = 3 + (int32_t)(mk_random(&random) % (MKARCH_VOCAB - 8));
    memcpy(prompts[3], prompts[2], 40 * sizeof prompts[2][0]); /* two begin alike */
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_tokens), cmocka_unit_test(test_turns)};
    return cmocka_run_group_tests(tests, make_models, drop_models);
}

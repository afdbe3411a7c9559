/* test_row_laws.c - aerie_request.row: every position of a sequence is reported once, in order, with the bits of
 * aerie_session_eval_features, whatever was drafted, cut into passes or found in the cache.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_PREDICT 32
#include "aerie_measure.h"
#include "spec_rig.inc"

enum { N_REQUESTS = 5, N_POSITIONS = 96 };

typedef struct rows {
    run run; /* first: the rig's callback sees only this */
    size_t n_vocab, n_features;
    size_t n[N_REQUESTS];
    float *values; /* [N_REQUESTS][N_POSITIONS][n_vocab + n_features] */
} rows;

static aerie_model *model;
static int32_t prompts[N_REQUESTS][40];

static int make_model(void **state)
{
    mk_options o;
    aerie_error error;
    (void)state;
    if (!mkdtemp(folder)) return 1;
    mk_shape("tiny", &o);
    o.type = "q4_0", o.n_layers = 2, o.forgetful = true, o.layer_decay = 0.25f;
    if (mk_model(&o, path_of("m"), &error) != AERIE_OK) return 1;
    model = load(path_of("m"), NULL);
    for (int i = 0; i < N_REQUESTS; i++)
        for (int k = 0; k < 40; k++)
            prompts[i][k] = k < 20 ? k % 5 + 3 : (k * (i + 7)) % 200 + 3; /* a beginning that all share */
    return 0;
}

static int drop_model(void **state)
{
    (void)state;
    aerie_model_free(model);
    unlink(path_of("m"));
    rmdir(folder);
    return 0;
}

static void on_row(void *user, size_t i_request, size_t position, const float *logits, const float *features)
{
    rows *r = user;
    assert_true(i_request < N_REQUESTS && position < N_POSITIONS);
    assert_int_equal(position, r->n[i_request]++);
    float *to = r->values + (i_request * N_POSITIONS + position) * (r->n_vocab + r->n_features);
    memcpy(to, logits, r->n_vocab * sizeof *to);
    if (r->n_features) memcpy(to + r->n_vocab, features, r->n_features * sizeof *to);
    else assert_null(features);
}

typedef struct expected {
    const rows *rows;
    size_t i_request;
} expected;

static bool check_row(void *user, size_t position, const float *logits, const float *features)
{
    const expected *e = user;
    const rows *r = e->rows;
    if (position >= r->n[e->i_request]) return false;
    const float *told = r->values + (e->i_request * N_POSITIONS + position) * (r->n_vocab + r->n_features);
    if (memcmp(told, logits, r->n_vocab * sizeof *told))
        fail_msg("request %zu, position %zu: other logits", e->i_request, position);
    if (memcmp(told + r->n_vocab, features, r->n_features * sizeof *told))
        fail_msg("request %zu, position %zu: other features", e->i_request, position);
    return true;
}

static aerie_session *open_session(aerie_spec_type type, aerie_tree tree, uint32_t n_seqs, uint32_t n_batch, uint32_t n_taps)
{
    aerie_session_params p = aerie_session_params_default();
    aerie_error error = {0};
    aerie_session *session;
    p.n_ctx = N_POSITIONS, p.n_seqs = n_seqs, p.n_batch = n_batch, p.n_threads = 1;
    p.n_taps = n_taps, p.taps[0] = 2, p.taps[1] = 0;
    p.spec.type = type, p.spec.tree = tree;
    const ae_session_test test = {.fixed = true, .oracle_error = 0.3f, .seed = 5};
    need(ae_session_create_for_test(&session, model, &p, &test, &error), &error);
    return session;
}

static void check_rows(const rows *r, const aerie_request *requests)
{
    static int32_t tokens[N_POSITIONS];
    aerie_error error = {0};
    aerie_session *session = open_session(AERIE_SPEC_NONE, AERIE_TREE_OFF, 1, 64, 2);
    for (size_t i = 0; i < N_REQUESTS; i++) {
        const answer *a = &r->run.answers[i];
        const size_t n = requests[i].n_tokens + a->n;
        memcpy(tokens, requests[i].tokens, requests[i].n_tokens * sizeof *tokens);
        memcpy(tokens + requests[i].n_tokens, a->ids, a->n * sizeof *tokens);
        assert_in_range(r->n[i], n - 1, n);
        need(aerie_session_eval_features(session, tokens, n, check_row, &(expected){r, i}, &error), &error);
    }
    aerie_session_free(session);
}

static void rows_are_those_of_the_text(void **state)
{
    static const struct {
        aerie_spec_type type;
        aerie_tree tree;
        uint32_t n_seqs, n_batch;
    } cases[] = {{AERIE_SPEC_NONE, AERIE_TREE_OFF, 1, 64},    {AERIE_SPEC_NONE, AERIE_TREE_OFF, 3, 7},
                 {AE_SPEC_ORACLE, AERIE_TREE_OFF, 1, 64},     {AE_SPEC_ORACLE, AERIE_TREE_OFF, 3, 9},
                 {AERIE_SPEC_NGRAM, AERIE_TREE_AUTO, 2, 64},  {AE_SPEC_RANDOM, AERIE_TREE_AUTO, 3, 64}};
    aerie_model_info info;
    static run plain;
    (void)state;
    aerie_model_info_get(model, &info, sizeof info);
    aerie_request requests[N_REQUESTS];
    for (size_t i = 0; i < N_REQUESTS; i++) {
        requests[i] = aerie_request_default();
        requests[i].tokens = prompts[i], requests[i].n_tokens = 24 + 3 * i, requests[i].n_predict = 20 + (uint32_t)i;
        requests[i].sampling = sampling_of((uint32_t)i);
    }
    aerie_session *session = open_session(AERIE_SPEC_NONE, AERIE_TREE_OFF, 1, 64, 0);
    generate(session, model, requests, N_REQUESTS, &plain);
    aerie_session_free(session);
    size_t n_accepted = 0;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        rows *r = calloc(1, sizeof *r);
        assert_non_null(r);
        r->n_vocab = info.n_vocab, r->n_features = 2 * info.n_embd;
        r->values = malloc(N_REQUESTS * N_POSITIONS * (r->n_vocab + r->n_features) * sizeof *r->values);
        assert_non_null(r->values);
        session = open_session(cases[c].type, cases[c].tree, cases[c].n_seqs, cases[c].n_batch, 2);
        tell_oracle(session, &plain);
        for (size_t i = 0; i < N_REQUESTS; i++) requests[i].row = on_row;
        for (int again = 0; again < 2; again++) { /* the second time the cache holds what it could share */
            memset(r->n, 0, sizeof r->n);
            generate(session, model, requests, N_REQUESTS, &r->run);
            for (size_t i = 0; i < N_REQUESTS; i++) {
                same_answer(&r->run.answers[i], &plain.answers[i], "told of rows", i);
                assert_int_equal(r->run.answers[i].stats.n_cached, 0);
                n_accepted += r->run.answers[i].stats.n_accepted;
            }
            check_rows(r, requests);
        }
        aerie_session_free(session);
        free(r->values);
        free(r);
    }
    assert_true(n_accepted > 50);
}

static void without_taps_there_are_logits_only(void **state)
{
    aerie_model_info info;
    (void)state;
    aerie_model_info_get(model, &info, sizeof info);
    rows *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->n_vocab = info.n_vocab;
    r->values = malloc(N_POSITIONS * r->n_vocab * sizeof *r->values);
    assert_non_null(r->values);
    aerie_session *session = open_session(AERIE_SPEC_NONE, AERIE_TREE_OFF, 1, 64, 0);
    aerie_request request = aerie_request_default();
    request.tokens = prompts[0], request.n_tokens = 30, request.n_predict = 5;
    request.row = on_row, request.sampling = sampling_of(0);
    generate(session, model, &request, 1, &r->run);
    assert_in_range(r->n[0], 30 + r->run.answers[0].n - 1, 30 + r->run.answers[0].n);
    aerie_session_free(session);
    free(r->values);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_those_of_the_text),
                                       cmocka_unit_test(without_taps_there_are_logits_only)};
    return cmocka_run_group_tests_name("row laws", tests, make_model, drop_model);
}

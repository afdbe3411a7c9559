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

typedef struct keeper {
    rows *rows;
    size_t i_request;
} keeper;

static bool keep_row(void *user, size_t position, const float *logits, const float *features)
{
    const keeper *k = user;
    on_row(k->rows, k->i_request, position, logits, features);
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

static rows *rows_create(size_t n_vocab, size_t n_features)
{
    rows *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->n_vocab = n_vocab, r->n_features = n_features;
    r->values = malloc(N_REQUESTS * N_POSITIONS * (n_vocab + n_features) * sizeof *r->values);
    assert_non_null(r->values);
    return r;
}

static void rows_free(rows *r)
{
    free(r->values);
    free(r);
}

/* Evaluates each request's prompt and answer, which are the same in all cases. */
static void evaluate(rows *r, const run *answers, const aerie_request *requests)
{
    static int32_t tokens[N_POSITIONS];
    aerie_error error = {0};
    aerie_session *session = open_session(AERIE_SPEC_NONE, AERIE_TREE_OFF, 1, 64, 2);
    for (size_t i = 0; i < N_REQUESTS; i++) {
        const answer *a = &answers->answers[i];
        const size_t n = requests[i].n_tokens + a->n;
        memcpy(tokens, requests[i].tokens, requests[i].n_tokens * sizeof *tokens);
        memcpy(tokens + requests[i].n_tokens, a->ids, a->n * sizeof *tokens);
        need(aerie_session_eval_features(session, tokens, n, keep_row, &(keeper){r, i}, &error), &error);
        assert_int_equal(r->n[i], n);
    }
    aerie_session_free(session);
}

/* The row of the last token need not have been computed. */
static void check_rows(const rows *r, const rows *text)
{
    const size_t width = r->n_vocab + r->n_features;
    for (size_t i = 0; i < N_REQUESTS; i++) {
        assert_in_range(r->n[i], text->n[i] - 1, text->n[i]);
        for (size_t p = 0; p < r->n[i]; p++) {
            const float *told = r->values + (i * N_POSITIONS + p) * width, *row = text->values + (i * N_POSITIONS + p) * width;
            if (memcmp(told, row, r->n_vocab * sizeof *row)) fail_msg("request %zu, position %zu: other logits", i, p);
            if (memcmp(told + r->n_vocab, row + r->n_vocab, r->n_features * sizeof *row))
                fail_msg("request %zu, position %zu: other features", i, p);
        }
    }
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
    rows *text = rows_create(info.n_vocab, 2 * info.n_embd);
    evaluate(text, &plain, requests);
    size_t n_accepted = 0;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        rows *r = rows_create(text->n_vocab, text->n_features);
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
            check_rows(r, text);
        }
        aerie_session_free(session);
        rows_free(r);
    }
    rows_free(text);
    assert_true(n_accepted > 50);
}

static void without_taps_there_are_logits_only(void **state)
{
    aerie_model_info info;
    (void)state;
    aerie_model_info_get(model, &info, sizeof info);
    rows *r = rows_create(info.n_vocab, 0);
    aerie_session *session = open_session(AERIE_SPEC_NONE, AERIE_TREE_OFF, 1, 64, 0);
    aerie_request request = aerie_request_default();
    request.tokens = prompts[0], request.n_tokens = 30, request.n_predict = 5;
    request.row = on_row, request.sampling = sampling_of(0);
    generate(session, model, &request, 1, &r->run);
    assert_in_range(r->n[0], 30 + r->run.answers[0].n - 1, 30 + r->run.answers[0].n);
    aerie_session_free(session);
    rows_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_those_of_the_text),
                                       cmocka_unit_test(without_taps_there_are_logits_only)};
    return cmocka_run_group_tests_name("row laws", tests, make_model, drop_model);
}

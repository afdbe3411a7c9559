/* test_reasoning_laws.c - limits of reasoning: where the end is written, and law 1 with them.
 *
 * Without drafts the answer is the plain one up to the limit, then the end, then what a prompt that ends so is answered with.
 * With drafts (n-grams, draft model, oracle, random; chains and trees; several sequences) it is the same.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie_extra.h"
#include "spec_rig.inc"

#define N_CTX 120
#define N_PREDICT 40
#define N_PROMPTS 3
#define END " Enough of it.</think>\n"

static aerie_model *model, *draft_model;
static const int32_t prompts[N_PROMPTS][12] = {
    {5}, {9, 77, 130, 201, 9, 77, 130, 201, 9, 77, 130, 201}, {60, 61, 62, 63, 64, 65, 66}};
static const size_t prompt_lengths[N_PROMPTS] = {1, 12, 7};

static int make_all(void **state)
{
    (void)state;
    aerie_error error = {0};
    if (!mkdtemp(folder)) return 1;
    for (int i = 0; i < 2; i++) {
        mk_options o;
        mk_shape("tiny", &o);
        o.n_layers = i ? 1 : 2, o.layer_decay = 0.25f;
        if (mk_model(&o, path_of("m"), &error) != AERIE_OK) return 1;
        *(i ? &draft_model : &model) = load(path_of("m"), NULL);
        unlink(path_of("m"));
    }
    return rmdir(folder);
}

static int drop_all(void **state)
{
    (void)state;
    aerie_model_free(model);
    aerie_model_free(draft_model);
    return 0;
}

static aerie_session *open_session(aerie_spec_type type, bool tree, uint32_t n_seqs)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params params = aerie_session_params_default();
    const ae_session_test test = {.fixed = true, .oracle_error = 0.3f};
    params.n_ctx = N_CTX, params.n_seqs = n_seqs, params.n_batch = 64, params.n_threads = 1;
    params.spec.type = type, params.spec.tree = tree, params.spec.n_max = 5;
    params.spec.draft_model = type == AERIE_SPEC_DRAFT ? draft_model : NULL;
    need(ae_session_create_for_test(&session, model, &params, &test, &error), &error);
    return session;
}

static aerie_request request_of(size_t i, uint32_t sampling)
{
    aerie_request r = aerie_request_default();
    r.tokens = prompts[i], r.n_tokens = prompt_lengths[i];
    r.n_predict = N_PREDICT, r.ignore_eos = true, r.sampling = sampling_of(sampling);
    return r;
}

static void run_plain(const aerie_request *request, run *out)
{
    aerie_session *session = open_session(AERIE_SPEC_NONE, false, 1);
    generate(session, model, request, 1, out);
    aerie_session_free(session);
}

/* Bytes that are missing at the end of the tokens' text for a whole character, as far as its first byte says. */
static bool is_cut(const int32_t *ids, size_t n)
{
    char *text;
    size_t n_text, back = 0;
    aerie_error error = {0};
    need(aerie_model_detokenize(model, ids, n, true, &text, &n_text, &error), &error);
    while (back < n_text && back < 3 && ((uint8_t)text[n_text - 1 - back] & 0xC0) == 0x80) back++;
    const uint8_t first = back < n_text ? (uint8_t)text[n_text - 1 - back] : 0;
    const size_t wanted = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC0 ? 1 : 0;
    aerie_free(text);
    return back < wanted;
}

/* The answer that the limit should give, by plain decoding without one. */
static void expect(size_t i, uint32_t sampling, size_t n_free, const char *end, answer *out)
{
    static run plain, rest;
    int32_t tokens[N_CTX], *written;
    size_t n_written;
    aerie_error error = {0};
    aerie_request r = request_of(i, sampling);
    run_plain(&r, &plain);
    while (n_free < N_PREDICT && is_cut(plain.answers[0].ids, n_free)) n_free++;
    *out = plain.answers[0];
    if (n_free >= N_PREDICT) return;
    need(aerie_model_tokenize(model, end, strlen(end), false, true, &written, &n_written, &error), &error);
    memcpy(tokens, r.tokens, r.n_tokens * sizeof *tokens);
    memcpy(tokens + r.n_tokens, plain.answers[0].ids, n_free * sizeof *tokens);
    memcpy(tokens + r.n_tokens + n_free, written, n_written * sizeof *tokens);
    r.tokens = tokens, r.n_tokens += n_free + n_written;
    const size_t n_before = n_free + n_written;
    assert_true(n_before < N_PREDICT);
    r.n_predict = (uint32_t)(N_PREDICT - n_before);
    run_plain(&r, &rest);
    memcpy(out->ids, tokens + prompt_lengths[i], n_before * sizeof *tokens);
    memcpy(out->ids + n_before, rest.answers[0].ids, rest.answers[0].n * sizeof *tokens);
    aerie_free(written);
}

static aerie_reasoning limit_of(uint32_t n_most, const char *end)
{
    aerie_reasoning limit = aerie_reasoning_default();
    limit.open = "<think>", limit.close = "</think>", limit.opened = true, limit.n_most = n_most, limit.end = end;
    return limit;
}

/* ---- Where the end is written ------------------------------------------------------------------------------------------ */

static void same_ids(const answer *got, const answer *expected, const char *what, size_t i)
{
    for (size_t k = 0; k < N_PREDICT; k++)
        if (got->ids[k] != expected->ids[k])
            fail_msg("%s: prompt %zu: token %zu is %d; expected %d", what, i, k, got->ids[k], expected->ids[k]);
    assert_int_equal(got->n, N_PREDICT);
}

static void test_the_end_is_written(void **state)
{
    (void)state;
    static const uint32_t limits[] = {0, 1, 6, N_PREDICT};
    static answer expected;
    static run r;
    for (size_t k = 0; k < sizeof limits / sizeof *limits; k++)
        for (size_t i = 0; i < N_PROMPTS; i++)
            for (uint32_t sampling = 0; sampling < N_SAMPLINGS; sampling++) {
                char what[64];
                aerie_request request = request_of(i, sampling);
                const char *end = i ? END : NULL;
                const aerie_reasoning limit = limit_of(limits[k], end);
                request.reasoning = &limit;
                snprintf(what, sizeof what, "limit %u, sampling %u", limits[k], sampling);
                run_plain(&request, &r);
                expect(i, sampling, limits[k], end ? end : "</think>", &expected);
                same_ids(&r.answers[0], &expected, what, i);
                if (limits[k] < 10 && !strstr(r.answers[0].text, "</think>")) fail_msg("%s: no end", what);
            }
}

/* Reasoning that the answer opens counts from there on, and once the limit is reached it is closed at once. */
static void test_the_answer_opens_it(void **state)
{
    (void)state;
    static run plain, r;
    char open[64];
    aerie_request request = request_of(1, 1);
    run_plain(&request, &plain);
    char *text;
    size_t n_text, at = 3; /* the first token from the fourth on that is a whole text of its own */
    aerie_error error = {0};
    const answer *p = &plain.answers[0];
    for (;; at++) {
        assert_true(at < 20);
        need(aerie_model_detokenize(model, p->ids + at, 1, true, &text, &n_text, &error), &error);
        const bool fits = n_text && n_text < sizeof open && !is_cut(p->ids, at) && !is_cut(p->ids, at + 1) &&
                          !is_cut(p->ids, at + 3) && !memchr(text, 0, n_text);
        bool first = true;
        for (size_t k = 0; k < at; k++) first = first && p->ids[k] != p->ids[at];
        if (fits && first) break;
        aerie_free(text);
    }
    snprintf(open, sizeof open, "%s", text);
    aerie_free(text);
    aerie_reasoning limit = limit_of(2, "</think>");
    limit.open = open, limit.opened = false;
    request.reasoning = &limit;
    run_plain(&request, &r);
    const char *end = strstr(r.answers[0].text, "</think>");
    if (!end) fail_msg("'%s' opens reasoning, and nothing closes it: %s", open, r.answers[0].text);
    assert_memory_equal(r.answers[0].ids, p->ids, (at + 1) * sizeof *p->ids);
    const char *begin = strstr(r.answers[0].text, open); /* the text may have it earlier, across tokens */
    assert_true(begin && begin < end);
    for (const char *again = end; (again = strstr(again + 8, open));) { /* opened again: closed at once */
        const size_t n_left = strlen(again + strlen(open));
        if (n_left >= 8) assert_memory_equal(again + strlen(open), "</think>", 8);
    }
}

/* ---- Law 1 --------------------------------------------------------------------------------------------------------------- */

static void test_drafts_change_nothing(void **state)
{
    (void)state;
    static const aerie_spec_type types[] = {AERIE_SPEC_NGRAM, AERIE_SPEC_DRAFT, AE_SPEC_ORACLE, AE_SPEC_RANDOM};
    static run plain, r;
    uint64_t n_drafted = 0, n_accepted = 0;
    for (uint32_t sampling = 0; sampling < N_SAMPLINGS; sampling++) {
        aerie_request requests[N_PROMPTS];
        aerie_reasoning limits[N_PROMPTS];
        for (size_t i = 0; i < N_PROMPTS; i++) {
            limits[i] = limit_of((uint32_t)(sampling + 4 * i), i ? END : NULL);
            requests[i] = request_of(i, sampling);
            requests[i].reasoning = i < 2 || sampling % 2 ? &limits[i] : NULL; /* one without a limit beside them */
        }
        aerie_session *session = open_session(AERIE_SPEC_NONE, false, 1);
        generate(session, model, requests, N_PROMPTS, &plain);
        aerie_session_free(session);
        for (size_t t = 0; t < 4; t++)
            for (int tree = 0; tree < 2; tree++) {
                session = open_session(types[t], tree, 1 + (sampling + (uint32_t)t) % 3);
                tell_oracle(session, &plain);
                generate(session, model, requests, N_PROMPTS, &r);
                for (size_t i = 0; i < N_PROMPTS; i++) {
                    same_answer(&r.answers[i], &plain.answers[i], ae_session_test_spec_name(types[t]), i);
                    n_drafted += r.answers[i].stats.n_drafted;
                    n_accepted += r.answers[i].stats.n_accepted;
                }
                aerie_session_free(session);
            }
    }
    print_message("%llu drafted, %llu accepted\n", (unsigned long long)n_drafted, (unsigned long long)n_accepted);
    assert_true(n_accepted > 200 && n_accepted < n_drafted);
}

/* What is written is drafted: the random drafter is never right, and yet the end takes few passes. */
static void test_the_end_is_drafted(void **state)
{
    (void)state;
    static run r;
    aerie_request request = request_of(0, 0);
    const aerie_reasoning limit = limit_of(0, END);
    request.reasoning = &limit, request.n_predict = 20;
    aerie_session *session = open_session(AE_SPEC_RANDOM, false, 1);
    generate(session, model, &request, 1, &r);
    aerie_session_free(session);
    assert_true(r.answers[0].stats.n_accepted >= 8);
}

/* ---- What is refused ------------------------------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    (void)state;
    char longest[300];
    aerie_error error = {0};
    aerie_task *task;
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const aerie_reasoning good = limit_of(3, NULL);
    aerie_reasoning wrong[6];
    for (size_t i = 0; i < 6; i++) wrong[i] = good;
    wrong[0].open = NULL, wrong[1].close = "", wrong[2].open = longest, wrong[3].close = longest, wrong[4].end = "<think>",
    wrong[5].size = 3;
    aerie_session *session = open_session(AERIE_SPEC_NONE, false, 1);
    for (size_t i = 0; i < 6; i++) {
        aerie_request request = request_of(0, 0);
        request.reasoning = &wrong[i];
        assert_int_equal(aerie_session_submit(session, &request, &task, &error), AERIE_ERROR_ARGUMENT);
        assert_true(strlen(error.text) > 20);
    }
    aerie_session_free(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_end_is_written),
        cmocka_unit_test(test_the_answer_opens_it),
        cmocka_unit_test(test_drafts_change_nothing),
        cmocka_unit_test(test_the_end_is_drafted),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("limits of reasoning", tests, make_all, drop_all);
}

/* test_sampler_laws.c - law 1 for every sampler at temperature 0, 0.7 and 1.3: the same tokens, log-probabilities and text up
 * to a stop string as plain decoding, for n-gram, draft model, oracle and random drafts, chains and trees, several sequences at
 * once.
 *
 * Plain decoding runs on the reference kernels, one sequence and one thread; drafts on the best level of this machine. The text
 * before a stop string is found by a plain search over plain decoding's text.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "spec_rig.inc"

#define N_KINDS 11
#define N_TEMPERATURES 3
#define N_CASES (N_KINDS * N_TEMPERATURES)
#define N_PREDICT 24
#define N_LOGPROBS 3

static const struct target {
    const char *name, *draft, *type;
    bool forgetful; /* repeats itself, so that n-grams are right */
} targets[] = {{"a", "a-draft", "q4_0", false}, {"d", "d-draft", "f16", true}};
#define N_TARGETS 2

static aerie_model *plain_models[N_TARGETS], *models[N_TARGETS], *drafts[N_TARGETS];
static int32_t prompt[48];

static aerie_model *best_model(const char *name)
{
    for (size_t l = N_LEVELS; l-- > 0;) {
        aerie_model *model = load(path_of(name), levels[l]);
        if (model) return model;
    }
    return NULL;
}

static int make_models(void **state)
{
    (void)state;
    uint64_t random = 3;
    aerie_error error;
    if (!mkdtemp(folder)) return 1;
    for (size_t i = 0; i < N_TARGETS; i++) {
        mk_options o;
        mk_shape("tiny", &o);
        o.type = targets[i].type, o.forgetful = targets[i].forgetful, o.layer_decay = 0.25f, o.n_layers = 2;
        if (mk_model(&o, path_of(targets[i].name), &error) != AERIE_OK) return 1;
        o.n_layers = 1;
        if (mk_model(&o, path_of(targets[i].draft), &error) != AERIE_OK) return 1;
        plain_models[i] = load(path_of(targets[i].name), "ref");
        models[i] = best_model(targets[i].name);
        drafts[i] = best_model(targets[i].draft);
    }
    for (size_t k = 0; k < 48; k++) prompt[k] = k < 16 ? (int32_t)(mk_random(&random) % 300) : prompt[k - 16];
    return 0;
}

static int drop_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TARGETS; i++) {
        aerie_model_free(plain_models[i]);
        aerie_model_free(models[i]);
        aerie_model_free(drafts[i]);
        unlink(path_of(targets[i].name));
        unlink(path_of(targets[i].draft));
    }
    return rmdir(folder);
}

/* ---- The samplers ---------------------------------------------------------------------------------- */

static aerie_sampling sampling_case(uint32_t i)
{
    static const float temperatures[N_TEMPERATURES] = {0, 0.7f, 1.3f};
    static const aerie_logit_bias bias[] = {{40, 3}, {50, -INFINITY}, {60, 2.5f}};
    aerie_sampling s = sampling_of(0);
    s.temperature = temperatures[i % N_TEMPERATURES];
    s.seed = 1000 + i;
    switch (i / N_TEMPERATURES) {
    case 0: s.typical_p = 0.8f; break;
    case 1: s.top_n_sigma = 1.5f; break;
    case 2: s.xtc_probability = 0.5f, s.xtc_threshold = 0.05f; break;
    case 3: s.dry_multiplier = 0.8f, s.dry_allowed_length = 1; break;
    case 4: s.repeat_penalty = 1.2f, s.presence_penalty = 0.5f, s.frequency_penalty = 0.2f, s.penalty_last_n = 20; break;
    case 5: s.mirostat = 2, s.mirostat_tau = 3, s.mirostat_eta = 0.2f; break;
    case 6: s.dynatemp_range = 0.5f; break;
    case 7: s.logit_bias = bias, s.n_logit_bias = 3; break;
    case 8: { /* all of them, in another order */
        static const aerie_sampler order[] = {AERIE_SAMPLER_TEMPERATURE, AERIE_SAMPLER_MIN_P, AERIE_SAMPLER_XTC,
                                              AERIE_SAMPLER_PENALTIES,   AERIE_SAMPLER_TOP_P, AERIE_SAMPLER_DRY,
                                              AERIE_SAMPLER_TYPICAL_P,   AERIE_SAMPLER_END};
        const float t = s.temperature;
        s = aerie_sampling_default();
        s.temperature = t, s.seed = 5, s.typical_p = 0.9f, s.xtc_probability = 0.3f, s.dry_multiplier = 1,
        s.repeat_penalty = 1.1f;
        s.min_keep = 3, s.dynatemp_range = 0.2f;
        memcpy(s.samplers, order, sizeof order);
        break;
    }
    case 9: {
        const float t = s.temperature;
        s = aerie_sampling_default();
        s.temperature = t, s.seed = 6;
        break;
    }
    default: break; /* the temperature alone */
    }
    return s;
}

static aerie_request request_case(uint32_t i)
{
    aerie_request r = aerie_request_default();
    r.tokens = prompt;
    r.n_tokens = 48 - i % 5;
    r.n_predict = N_PREDICT;
    r.ignore_eos = true;
    r.sampling = sampling_case(i);
    r.n_logprobs = N_LOGPROBS;
    return r;
}

/* ---- Runs ----------------------------------------------------------------------------------------------- */

typedef struct logprob_row {
    float logprob;
    aerie_logprob top[N_LOGPROBS];
} logprob_row;

typedef struct outcome {
    answer it;
    logprob_row rows[N_PREDICT];
} outcome;

static outcome plain[N_TARGETS][N_CASES];

typedef struct collector {
    outcome *of[N_CASES];
} collector;

static bool collect(void *user, const aerie_token_event *event)
{
    outcome *o = ((collector *)user)->of[event->i_request];
    answer *a = &o->it;
    assert_true(a->n_text + event->n_text <= sizeof a->text);
    if (event->n_text) memcpy(a->text + a->n_text, event->text, event->n_text);
    a->n_text += event->n_text;
    if (event->token < 0) return true;
    assert_true(a->n < N_PREDICT);
    assert_int_equal(event->n_top, N_LOGPROBS);
    o->rows[a->n].logprob = event->logprob;
    memcpy(o->rows[a->n].top, event->top, sizeof o->rows->top);
    for (uint32_t k = 0; k < N_LOGPROBS; k++)
        if (event->top[k].token == event->token) assert_true(event->top[k].logprob == event->logprob);
    a->ids[a->n++] = event->token;
    return true;
}

static void run_all(const aerie_model *model, const aerie_model *draft, const aerie_spec *how, uint32_t n_seqs,
                    uint32_t n_threads, const aerie_request *requests, const outcome *truth, outcome *outcomes)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_stats stats[N_CASES];
    collector c;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = 200, params.n_seqs = n_seqs, params.n_threads = n_threads, params.spec = *how;
    params.spec.draft_model = draft;
    memset(outcomes, 0, N_CASES * sizeof *outcomes);
    for (size_t i = 0; i < N_CASES; i++) c.of[i] = &outcomes[i];
    const ae_session_test test = {.fixed = true, .oracle_error = 0.3f, .seed = 9};
    ae_session_test_answer known[N_CASES];
    need(ae_session_create_for_test(&session, model, &params, &test, &error), &error);
    for (size_t i = 0; truth && i < N_CASES; i++) known[i] = (ae_session_test_answer){truth[i].it.ids, truth[i].it.n};
    if (truth) ae_session_test_answers(session, known, N_CASES);
    need(aerie_session_generate(session, requests, N_CASES, collect, &c, stats, sizeof(aerie_stats), &error), &error);
    for (size_t i = 0; i < N_CASES; i++) outcomes[i].it.stats = stats[i];
    aerie_session_free(session);
}

static const outcome *plain_outcomes(size_t target)
{
    aerie_request requests[N_CASES];
    aerie_spec how = aerie_spec_default();
    how.type = AERIE_SPEC_NONE;
    if (plain[target][0].it.n) return plain[target];
    for (uint32_t i = 0; i < N_CASES; i++) requests[i] = request_case(i);
    run_all(plain_models[target], NULL, &how, 1, 1, requests, NULL, plain[target]);
    return plain[target];
}

static const aerie_spec_type types[] = {AERIE_SPEC_NGRAM, AERIE_SPEC_DRAFT, AE_SPEC_ORACLE, AE_SPEC_RANDOM};

static aerie_spec spec_of(size_t type, bool tree)
{
    aerie_spec how = aerie_spec_default();
    how.type = types[type], how.tree = tree, how.n_max = tree ? 8 : 5;
    return how;
}

static const char *case_name(size_t target, size_t type, bool tree, uint32_t i)
{
    static char name[128];
    snprintf(name, sizeof name, "model %s, %s, %s, sampler %u, temperature %u", targets[target].name,
             ae_session_test_spec_name(types[type]), tree ? "tree" : "chain", i / N_TEMPERATURES, i % N_TEMPERATURES);
    return name;
}

static void test_law_1_every_sampler_with_every_drafter(void **state)
{
    (void)state;
    static outcome got[N_CASES];
    uint64_t accepted[4] = {0};
    for (size_t target = 0; target < N_TARGETS; target++) {
        const outcome *expected = plain_outcomes(target);
        for (size_t type = 0; type < 4; type++)
            for (int tree = 0; tree < 2; tree++) {
                aerie_request requests[N_CASES];
                const aerie_spec how = spec_of(type, tree);
                for (uint32_t i = 0; i < N_CASES; i++) requests[i] = request_case(i);
                run_all(models[target], drafts[target], &how, tree ? 4 : 1, 2, requests, expected, got);
                for (uint32_t i = 0; i < N_CASES; i++) {
                    const char *name = case_name(target, type, tree, i);
                    same_answer(&got[i].it, &expected[i].it, name, i);
                    if (memcmp(got[i].rows, expected[i].rows, sizeof got[i].rows))
                        fail_msg("%s: other log-probabilities", name);
                    accepted[type] += got[i].it.stats.n_accepted;
                }
            }
    }
    for (size_t type = 0; type < 4; type++) {
        print_message("%s: %llu accepted\n", ae_session_test_spec_name(types[type]), (unsigned long long)accepted[type]);
        if (types[type] != AE_SPEC_RANDOM) assert_true(accepted[type] > 50);
    }
}

/* The samplers have an effect: at one temperature no two kinds give the same answer. */
static void test_samplers_differ(void **state)
{
    (void)state;
    const outcome *all = plain_outcomes(0);
    uint32_t n_same = 0;
    for (uint32_t i = 2; i < N_CASES; i += N_TEMPERATURES)
        for (uint32_t k = 2; k < i; k += N_TEMPERATURES) n_same += !memcmp(all[i].it.ids, all[k].it.ids, sizeof all[i].it.ids);
    assert_int_equal(n_same, 0);
}

/* ---- Stop strings ------------------------------------------------------------------------------------------- */

/* The first end of a stop string in text; *begin of the longest that ends there. n + 1: none. */
static size_t search(const char *text, size_t n, const char stops[][8], size_t n_stops, size_t *begin)
{
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < n_stops; i++) {
            const size_t length = strlen(stops[i]);
            if (length <= end && length > longest && !memcmp(text + end - length, stops[i], length)) longest = length;
        }
        *begin = end - longest;
        if (longest) return end;
    }
    *begin = n;
    return n + 1;
}

/* Tokens of the answer until their text has `end` bytes. */
static size_t tokens_until(const aerie_model *model, const answer *a, size_t end)
{
    for (size_t k = 0; k <= a->n; k++) {
        aerie_error error = {0};
        char *text;
        size_t n;
        need(aerie_model_detokenize(model, a->ids, k, false, &text, &n, &error), &error);
        aerie_free(text);
        if (n >= end) return k;
    }
    return a->n;
}

static void make_stops(const answer *a, uint64_t *random, char stops[3][8])
{
    memcpy(stops[0], "\xff\xfe!", 4); /* never */
    for (int k = 1; k < 3; k++) {
        strcpy(stops[k], "~~none~");
        if (!a->n_text) continue;
        const size_t from = mk_random(random) % a->n_text, length = 1 + mk_random(random) % 6;
        if (from + length > a->n_text || memchr(a->text + from, 0, length)) continue;
        memcpy(stops[k], a->text + from, length);
        stops[k][length] = '\0';
    }
}

static void test_stop_strings_cut_as_a_plain_search_does(void **state)
{
    (void)state;
    static outcome got[N_CASES];
    static char stops[N_CASES][3][8];
    uint32_t n_stopped = 0;
    uint64_t random = 17;
    for (size_t target = 0; target < N_TARGETS; target++) {
        const outcome *whole = plain_outcomes(target);
        for (size_t type = 0; type < 4; type++)
            for (int tree = 0; tree < 2; tree++) {
                const char *lists[N_CASES][3];
                aerie_request requests[N_CASES];
                const aerie_spec how = spec_of(type, tree);
                for (uint32_t i = 0; i < N_CASES; i++) {
                    make_stops(&whole[i].it, &random, stops[i]);
                    requests[i] = request_case(i);
                    for (int k = 0; k < 3; k++) lists[i][k] = stops[i][k];
                    requests[i].stop = lists[i];
                    requests[i].n_stop = 3;
                }
                run_all(models[target], drafts[target], &how, tree ? 4 : 1, 1, requests, whole, got);
                for (uint32_t i = 0; i < N_CASES; i++) {
                    const answer *a = &got[i].it, *w = &whole[i].it;
                    const char *name = case_name(target, type, tree, i);
                    size_t begin;
                    const size_t end = search(w->text, w->n_text, (const char(*)[8])stops[i], 3, &begin);
                    const bool stopped = end <= w->n_text;
                    const size_t n = stopped ? tokens_until(models[target], w, end) : w->n;
                    if (a->n_text != begin || memcmp(a->text, w->text, begin))
                        fail_msg("%s: text of %zu bytes, expected %zu", name, a->n_text, begin);
                    if (a->n != n || memcmp(a->ids, w->ids, n * sizeof *w->ids))
                        fail_msg("%s: %zu tokens, expected %zu", name, a->n, n);
                    assert_int_equal(a->stats.n_generated, n);
                    assert_int_equal(a->stats.stop, stopped ? AERIE_STOP_STRING : AERIE_STOP_LENGTH);
                    n_stopped += stopped;
                }
            }
    }
    print_message("%u answers stopped of %u\n", n_stopped, N_TARGETS * 8 * N_CASES);
    assert_true(n_stopped > N_CASES);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const char *const empty[] = {""};
    static const aerie_logit_bias far = {1 << 20, 1};
    aerie_error error = {0};
    aerie_session *session;
    outcome o = {.it = {.n = 0}};
    collector c = {{&o}};
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = 100;
    need(aerie_session_create(&session, models[0], &params, &error), &error);
    aerie_request r = request_case(0);
    r.stop = empty, r.n_stop = 1;
    assert_int_equal(aerie_session_generate(session, &r, 1, collect, &c, NULL, 0, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "stop string 1"));
    r = request_case(0), r.n_logprobs = AERIE_MAX_LOGPROBS + 1;
    assert_int_equal(aerie_session_generate(session, &r, 1, collect, &c, NULL, 0, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "129"));
    r = request_case(0), r.sampling.logit_bias = &far, r.sampling.n_logit_bias = 1;
    assert_int_equal(aerie_session_generate(session, &r, 1, collect, &c, NULL, 0, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "1048576"));
    assert_int_equal(o.it.n, 0);
    aerie_session_free(session);
}

/* A prompt can be stopped between its passes, and its part in the cache is used afterwards. */
static uint64_t progress_seen;
static bool stop_in_the_middle(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    progress_seen = done;
    return done * 2 < total;
}

static void test_a_prompt_can_be_stopped(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_session *session;
    aerie_stats stats;
    outcome o = {.it = {.n = 0}};
    collector c = {{&o}};
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = 100, params.n_batch = 8;
    need(aerie_session_create(&session, models[0], &params, &error), &error);
    aerie_request r = request_case(0);
    r.progress = stop_in_the_middle;
    need(aerie_session_generate(session, &r, 1, collect, &c, &stats, sizeof(aerie_stats), &error), &error);
    assert_int_equal(progress_seen, 24);
    assert_int_equal(stats.stop, AERIE_STOP_CALLER);
    assert_int_equal(o.it.n, 0);
    r.progress = NULL;
    need(aerie_session_generate(session, &r, 1, collect, &c, &stats, sizeof(aerie_stats), &error), &error);
    assert_int_equal(stats.n_cached, 24);
    assert_memory_equal(o.it.ids, plain_outcomes(0)[0].it.ids, sizeof o.it.ids[0] * N_PREDICT);
    aerie_session_free(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_law_1_every_sampler_with_every_drafter),
        cmocka_unit_test(test_samplers_differ),
        cmocka_unit_test(test_stop_strings_cut_as_a_plain_search_does),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_a_prompt_can_be_stopped),
    };
    return cmocka_run_group_tests_name("sampler laws", tests, make_models, drop_models);
}

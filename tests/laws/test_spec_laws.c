/* test_spec_laws.c - law 1 through aerie.h: the same tokens with any drafter and any settings of the run.
 *
 * A covering walk over drafter x draft length x tree x fixed x threads x CPU level x prompt chunk x sequences at once x
 * sampling x end of generation x model: all pairs of values, then random cases; always the same ones. Each
 * case is compared with plain decoding: one sequence, one thread, one row at a time, reference kernels.
 * Then the statistics of drafters, and refusals. A sample of the walk runs on SmolLM2 when AERIE_MODEL names it or models/
 * holds it.
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

#include "every.h"
#include "spec_rig.inc"
#include "asks.inc"

/* ---- Models ------------------------------------------------------------------------------------- */

/* Target, and a draft model made of its first layer. */
static const struct target {
    const char *name, *draft, *shape, *type;
    uint32_t n_layers;
    bool tied, biases, forgetful; /* forgetful: repeats itself, so that n-grams are right */
} targets[] = {
    {"a", "a-draft", "tiny", "q4_0", 2, false, false, false},
    {"b", "b-draft", "tiny-mha", "q8_0", 2, true, true, false},
    {"c", "c-draft", "tiny-gqa", "q4_K", 2, false, false, false},
    {"d", "d-draft", "tiny", "f16", 2, false, false, true},
    {"e", "e-draft", "tiny-moe", "q4_0", 2, false, false, false},
};
#define N_TARGETS 5

static aerie_model *target_models[N_TARGETS][N_LEVELS], *draft_models[N_TARGETS][N_LEVELS], *plain_models[N_TARGETS];

static int make(const char *name, const struct target *t, uint32_t n_layers)
{
    mk_options o;
    aerie_error error;
    mk_shape(t->shape, &o);
    o.type = t->type, o.n_layers = n_layers, o.tied = t->tied, o.biases = t->biases, o.forgetful = t->forgetful,
    o.layer_decay = 0.25f;
    if (mk_model(&o, path_of(name), &error) == AERIE_OK) return 0;
    print_error("%s\n", error.text);
    return 1;
}

static int make_models(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return 1;
    for (size_t i = 0; i < N_TARGETS; i++) {
        if (make(targets[i].name, &targets[i], targets[i].n_layers) || make(targets[i].draft, &targets[i], 1)) return 1;
        for (size_t l = 0; l < (test_whole() ? N_LEVELS : 1); l++) { /* a sample has one: a device has no levels */
            target_models[i][l] = load(path_of(targets[i].name), levels[l]);
            draft_models[i][l] = load(path_of(targets[i].draft), levels[l]);
            if (!target_models[i][l] && !i) print_message("skip: this machine lacks the CPU level %s\n", levels[l]);
        }
        plain_models[i] = load_plain(path_of(targets[i].name), target_models[i][0]);
    }
    return 0;
}

static int drop_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TARGETS; i++) {
        free_plain(plain_models[i], target_models[i][0]);
        for (size_t l = 0; l < N_LEVELS; l++) {
            aerie_model_free(target_models[i][l]);
            aerie_model_free(draft_models[i][l]);
        }
        unlink(path_of(targets[i].name));
        unlink(path_of(targets[i].draft));
    }
    return rmdir(folder);
}

/* ---- Requests and what plain decoding answers ------------------------------------------------------ */

#define N_PROMPTS 8
#define N_PREDICT 24
#define N_CTX 200

static int32_t prompts[N_PROMPTS][128];
/* Around the borders of chunks and pages; 3, 4 and 6 share a beginning, 7 repeats itself. */
static const size_t prompt_lengths[N_PROMPTS] = {1, 5, 20, 63, 64, 65, 100, 48};

static void make_prompts(void)
{
    uint64_t random = 99;
    for (size_t i = 0; i < N_PROMPTS; i++)
        for (size_t k = 0; k < prompt_lengths[i]; k++) prompts[i][k] = (int32_t)(mk_random(&random) % 300);
    memcpy(prompts[4], prompts[3], 40 * sizeof **prompts);
    memcpy(prompts[6], prompts[3], 63 * sizeof **prompts);
    for (size_t k = 16; k < prompt_lengths[7]; k++) prompts[7][k] = prompts[7][k - 16];
}

static aerie_request request_of(size_t i_prompt, uint32_t i_sampling, bool ignore_eos)
{
    aerie_request r = aerie_request_default();
    r.tokens = prompts[i_prompt];
    r.n_tokens = prompt_lengths[i_prompt];
    r.n_predict = test_fewer(N_PREDICT);
    r.ignore_eos = ignore_eos;
    r.sampling = sampling_of(i_sampling);
    return r;
}

static aerie_session *open_session(const aerie_model *model, const aerie_spec *spec, const ae_session_test *test,
                                   uint32_t n_seqs, uint32_t n_batch, uint32_t n_threads, aerie_kv_type kv_type)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = N_CTX, params.n_seqs = n_seqs, params.n_batch = n_batch, params.n_threads = n_threads;
    params.kv_type = kv_type;
    params.spec = *spec;
    need(ae_session_create_for_test(&session, model, &params, test, &error), &error);
    return session;
}

/* Types of the cache of which cases are made: of the pairs, keys and values have been in each type once. */
static const aerie_kv_type kv_types[] = {AERIE_KV_F16, AERIE_KV_Q8_0, AERIE_KV_I16, AERIE_KV_Q8_0_I16, AERIE_KV_Q4_0,
                                         AERIE_KV_I16_Q4_0};
#define N_KV_TYPES 6

/* Made when first asked for. */
static const answer *plain_answer(size_t target, uint32_t sampling, bool ignore_eos, aerie_kv_type kv_type, size_t prompt)
{
    static run plain[N_TARGETS][N_SAMPLINGS][2][AERIE_KV_I16_Q4_0 + 1];
    run *r = &plain[target][sampling][ignore_eos][kv_type];
    if (!r->n) {
        aerie_spec spec = aerie_spec_default();
        aerie_request requests[N_PROMPTS];
        if (!prompts[0][0]) make_prompts();
        spec.type = AERIE_SPEC_NONE;
        for (size_t i = 0; i < N_PROMPTS; i++) requests[i] = request_of(i, sampling, ignore_eos);
        aerie_session *session = open_session(plain_models[target], &spec, NULL, 1, 1, 1, kv_type);
        generate(session, plain_models[target], requests, N_PROMPTS, r);
        aerie_session_free(session);
    }
    return &r->answers[prompt];
}

/* ---- The walk ----------------------------------------------------------------------------------------- */

enum { TYPE, N_MAX, TREE, FIXED, THREADS, LEVEL, BATCH, SEQS, SAMPLING, IGNORE_EOS, TARGET, ORACLE_ERROR, KV_TYPE, NGRAM,
       N_FACTORS };

static const aerie_spec_type types[] = {AERIE_SPEC_NONE, AERIE_SPEC_NGRAM, AERIE_SPEC_DRAFT, AE_SPEC_ORACLE,
                                        AE_SPEC_RANDOM};
static const uint32_t n_maxes[] = {1, 2, 3, 4, 8, 16}, batches[] = {1, 7, 64, 512}, seqs[] = {1, 8};
static const float oracle_errors[] = {0, 0.3f};
static const uint32_t n_values[N_FACTORS] = {5, 6, 2, 2, 3, N_LEVELS, 4, 2, N_SAMPLINGS, 2, N_TARGETS, 2, N_KV_TYPES,
                                             2};
#define MAX_VALUES 6
#define MAX_CASES 160

typedef uint8_t kase[N_FACTORS];

static void random_case(kase c, uint64_t *random)
{
    for (int f = 0; f < N_FACTORS; f++) c[f] = (uint8_t)(mk_random(random) % n_values[f]);
}

static bool pair_seen[N_FACTORS][MAX_VALUES][N_FACTORS][MAX_VALUES];

static uint32_t count_new_pairs(const kase c, bool mark)
{
    uint32_t n = 0;
    for (int f = 0; f < N_FACTORS; f++)
        for (int g = 0; g < f; g++) {
            n += !pair_seen[f][c[f]][g][c[g]];
            if (mark) pair_seen[f][c[f]][g][c[g]] = true;
        }
    return n;
}

/* Cases that hold all pairs of values (the best of many random ones each time), then n_random more and a few. */
static size_t choose_cases(kase *cases, size_t n_random)
{
    uint64_t random = 2024;
    size_t n = 0;
    uint32_t left = 0;
    memset(pair_seen, 0, sizeof pair_seen);
    for (int f = 0; f < N_FACTORS; f++)
        for (int g = 0; g < f; g++) left += n_values[f] * n_values[g];
    while (left) {
        uint32_t best = 0;
        assert_true(n < MAX_CASES);
        for (int i = 0; i < 200; i++) {
            kase c;
            random_case(c, &random);
            const uint32_t count = count_new_pairs(c, false);
            if (count <= best) continue;
            best = count;
            memcpy(cases[n], c, sizeof c);
        }
        if (best) left -= count_new_pairs(cases[n++], true);
    }
    for (size_t i = 0; i < n_random && n < MAX_CASES; i++) random_case(cases[n++], &random);
    /* n-grams are right only where a model repeats itself: some such cases, whatever was chosen above */
    for (size_t i = 0; i < 4 && n < MAX_CASES; i++, n++) {
        random_case(cases[n], &random);
        cases[n][TYPE] = 1, cases[n][FIXED] = 1, cases[n][TARGET] = N_TARGETS - 1, cases[n][SAMPLING] = 0, cases[n][SEQS] = 1;
    }
    return n;
}

static size_t level_of(const kase c)
{
    return test_whole() ? c[LEVEL] : 0;
}

static const char *case_name(const kase c)
{
    static char name[256];
    snprintf(name, sizeof name,
             "model %s, %s, %s, n_max %u, %s, %s, %u threads, chunk %u, %u at once, sampling %u, kv %s, oracle error %g%s%s",
             targets[c[TARGET]].name, levels[level_of(c)], ae_session_test_spec_name(types[c[TYPE]]), n_maxes[c[N_MAX]],
             c[TREE] ? "tree" : "chain", c[FIXED] ? "fixed" : "controlled", c[THREADS] + 1u, batches[c[BATCH]], seqs[c[SEQS]],
             c[SAMPLING], aerie_kv_type_name(kv_types[c[KV_TYPE]]), (double)oracle_errors[c[ORACLE_ERROR]],
             c[IGNORE_EOS] ? ", past EOS" : "", c[NGRAM] ? ", beside n-grams" : "");
    return name;
}

static aerie_spec spec_of(const kase c)
{
    aerie_spec spec = aerie_spec_default();
    spec.type = types[c[TYPE]];
    spec.draft_model = draft_models[c[TARGET]][level_of(c)];
    spec.n_max = n_maxes[c[N_MAX]];
    spec.tree = c[TREE];
    spec.ngram = c[NGRAM];
    return spec;
}

/* Sums over all answers of a kind of drafter, in fixed mode. */
static struct tally {
    uint64_t n_drafted, n_accepted;
} tallies[sizeof types / sizeof types[0]];

static void run_case(const kase c, size_t number)
{
    const aerie_model *model = target_models[c[TARGET]][level_of(c)];
    if (!model) return;
    /* eight prompts and two of them again; or two of them */
    const size_t n = c[SEQS] ? N_PROMPTS + 2 : 2;
    size_t prompt[MAX_REQUESTS];
    const answer *expected[MAX_REQUESTS];
    aerie_request requests[MAX_REQUESTS];
    run r;
    const aerie_spec spec = spec_of(c);
    const ae_session_test test = {.fixed = c[FIXED], .oracle_error = oracle_errors[c[ORACLE_ERROR]], .seed = 5};
    ae_session_test_answer known[MAX_REQUESTS];
    for (size_t i = 0; i < n; i++) {
        prompt[i] = c[SEQS] ? i * 3 % N_PROMPTS : (number + 3 * i) % N_PROMPTS;
        expected[i] = plain_answer(c[TARGET], c[SAMPLING], c[IGNORE_EOS], kv_types[c[KV_TYPE]], prompt[i]);
        requests[i] = request_of(prompt[i], c[SAMPLING], c[IGNORE_EOS]);
        known[i] = (ae_session_test_answer){expected[i]->ids, expected[i]->n};
    }
    aerie_session *session = open_session(model, &spec, &test, seqs[c[SEQS]], batches[c[BATCH]], 1 + c[THREADS],
                                          kv_types[c[KV_TYPE]]);
    ae_session_test_answers(session, known, n);
    const bool joined = c[NGRAM] && types[c[TYPE]] == AERIE_SPEC_DRAFT;
    assert_string_equal(aerie_session_spec_name(session), joined ? "draft+ngram" : ae_session_test_spec_name(types[c[TYPE]]));
    for (int again = 0; again < 2; again++) { /* the second time with what the cache holds of the first */
        generate(session, model, requests, n, &r);
        for (size_t i = 0; i < n; i++) {
            const aerie_stats *s = &r.answers[i].stats;
            same_answer(&r.answers[i], expected[i], case_name(c), i);
            if (types[c[TYPE]] == AERIE_SPEC_NONE) assert_int_equal(s->n_drafted, 0);
            if (!c[TREE]) assert_true(s->drafted_at[0] <= s->n_passes + 1);
            if (again && n == 2 && i == 0 && requests[0].n_tokens > 1) assert_true(s->n_cached + 1 <= requests[0].n_tokens);
            tallies[c[TYPE]].n_drafted += c[FIXED] ? s->n_drafted : 0;
            tallies[c[TYPE]].n_accepted += c[FIXED] ? s->n_accepted : 0;
        }
    }
    aerie_session_free(session);
}

static void test_law_1_same_tokens_over_the_whole_matrix(void **state)
{
    (void)state;
    static kase cases[MAX_CASES];
    const size_t n = choose_cases(cases, 30);
    uint32_t at = 0;
    for (size_t i = 0; i < n; i += AE_TEST_EVERY)
        if (test_takes(&at)) run_case(cases[i], i);
    print_message("every %dth of %zu cases\n", AE_TEST_EVERY, n);
    for (size_t i = 1; i < sizeof types / sizeof types[0]; i++)
        print_message("%s, fixed: %llu drafted, %llu accepted\n", ae_session_test_spec_name(types[i]),
                      (unsigned long long)tallies[i].n_drafted, (unsigned long long)tallies[i].n_accepted);
    /* every drafter was both right and wrong, or the walk proves little; random ones are hardly ever right. In few cases some
     * drafters draft little */
    for (size_t i = 1; i < sizeof types / sizeof types[0]; i++) {
        const bool enough = test_whole() && (AE_TEST_EVERY == 1 || tallies[i].n_drafted >= 100);
        if (enough) assert_true(tallies[i].n_accepted < tallies[i].n_drafted);
        if (enough && i < 4) assert_true(tallies[i].n_accepted > 20u / (unsigned)AE_TEST_EVERY);
    }
}

/* ---- Acceptance --------------------------------------------------------------------------------- */

/* Fixed, one sequence, all prompts: sums over the answers. */
static struct tally run_fixed(size_t target, aerie_spec_type type, uint32_t n_max, bool tree, uint32_t sampling)
{
    struct tally t = {0};
    run r;
    const size_t level = target_models[target][2] ? 2 : 0;
    aerie_spec spec = aerie_spec_default();
    aerie_request requests[N_PROMPTS];
    ae_session_test_answer known[N_PROMPTS];
    const ae_session_test test = {.fixed = true, .seed = 3};
    spec.type = type, spec.n_max = n_max, spec.tree = tree;
    spec.draft_model = draft_models[target][level];
    for (size_t i = 0; i < N_PROMPTS; i++) {
        const answer *a = plain_answer(target, sampling, true, AERIE_KV_F16, i);
        requests[i] = request_of(i, sampling, true);
        known[i] = (ae_session_test_answer){a->ids, a->n};
    }
    aerie_session *session = open_session(target_models[target][level], &spec, &test, 1, 64, 1, AERIE_KV_F16);
    ae_session_test_answers(session, known, N_PROMPTS);
    generate(session, target_models[target][level], requests, N_PROMPTS, &r);
    aerie_session_free(session);
    for (size_t i = 0; i < N_PROMPTS; i++) {
        same_answer(&r.answers[i], plain_answer(target, sampling, true, AERIE_KV_F16, i), ae_session_test_spec_name(type), i);
        t.n_drafted += r.answers[i].stats.n_drafted;
        t.n_accepted += r.answers[i].stats.n_accepted;
        if (type == AE_SPEC_ORACLE && !tree) /* as few passes as can be */
            assert_in_range(r.answers[i].stats.n_passes, 0, (test_fewer(N_PREDICT) + n_max) / (n_max + 1));
    }
    return t;
}

static void test_law_1_oracle_without_error_is_always_accepted(void **state)
{
    const uint32_t least = N_PROMPTS * (test_fewer(N_PREDICT) - 1) / 2;
    uint32_t at = 0;
    (void)state;
    for (uint32_t sampling = 0; sampling < N_SAMPLINGS; sampling++) {
        if (!test_takes(&at)) continue;
        const uint32_t n_max = n_maxes[1 + sampling];
        const struct tally chain = run_fixed(sampling % N_TARGETS, AE_SPEC_ORACLE, n_max, false, sampling);
        assert_int_equal(chain.n_accepted, chain.n_drafted);
        assert_true(chain.n_accepted >= least);
        /* in a tree the right child stands among wrong ones, and is found */
        const struct tally tree = run_fixed(sampling % N_TARGETS, AE_SPEC_ORACLE, 8, true, sampling);
        assert_true(tree.n_accepted >= least && tree.n_accepted < tree.n_drafted);
    }
}

static void test_law_1_random_drafts_are_hardly_ever_accepted(void **state)
{
    uint32_t at = 0;
    (void)state;
    for (int tree = 0; tree < 2; tree++) {
        if (!test_takes(&at)) continue;
        const struct tally t = run_fixed(0, AE_SPEC_RANDOM, 8, tree, 1);
        assert_true(t.n_drafted > (test_whole() ? 300 : 0));
        assert_true(!test_whole() || t.n_accepted * 50 <= t.n_drafted);
    }
}

static void test_law_1_a_draft_model_is_right_sometimes(void **state)
{
    uint32_t at = 0;
    (void)state;
    for (uint32_t sampling = 0; sampling < 2; sampling++)
        for (size_t target = 0; target < N_TARGETS; target++) {
            if (!test_takes(&at)) continue;
            const struct tally t = run_fixed(target, AERIE_SPEC_DRAFT, 3, false, sampling);
            print_message("model %s, sampling %u: draft model %llu of %llu accepted\n", targets[target].name, sampling,
                          (unsigned long long)t.n_accepted, (unsigned long long)t.n_drafted);
            assert_true(!test_whole() || (t.n_accepted * 20 > t.n_drafted && t.n_accepted * 20 < 19 * t.n_drafted));
        }
}

static void test_random_models_go_on_changing(void **state)
{
    (void)state;
    for (size_t target = 0; target < 3; target++) {
        bool seen[512] = {false};
        uint32_t n_different = 0;
        for (size_t i = 0; i < N_PROMPTS; i++) {
            const answer *a = plain_answer(target, 0, true, AERIE_KV_F16, i);
            for (size_t k = 0; k < a->n; k++) {
                n_different += !seen[a->ids[k]];
                seen[a->ids[k]] = true;
            }
        }
        print_message("model %s: %u different tokens in %u greedy answers of %u\n", targets[target].name, n_different,
                      N_PROMPTS, N_PREDICT);
        assert_true(n_different > test_fewer(30));
    }
}

/* Requests ask for fewer drafts of n-grams, a draft model, fewer experts and a hierarchy: they get no others, and the same
 * tokens. */
static void test_asks(void **state)
{
    (void)state;
    static const struct {
        size_t target;
        aerie_spec_type type;
    } ways[] = {{3, AERIE_SPEC_NGRAM}, {0, AERIE_SPEC_DRAFT}, {4, AERIE_SPEC_MOE}, {0, AERIE_SPEC_HIER}};
    aerie_spec inner = aerie_spec_default();
    inner.type = AERIE_SPEC_NGRAM, inner.n_max = 4;
    uint32_t at = 0;
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        if (!test_takes(&at)) continue;
        const size_t target = ways[w].target, level = target_models[target][2] ? 2 : 0;
        const char *name = ae_session_test_spec_name(ways[w].type);
        aerie_spec spec = aerie_spec_default();
        aerie_request requests[N_PROMPTS];
        run r;
        uint32_t drafted = 0;
        spec.type = ways[w].type, spec.n_max = 5, spec.tree = AERIE_TREE_OFF, spec.draft_model = draft_models[target][level];
        if (spec.type == AERIE_SPEC_HIER) spec.inner = &inner;
        for (size_t i = 0; i < N_PROMPTS; i++) requests[i] = request_of(i, 0, true), ask(&requests[i], i);
        aerie_session *session = open_session(target_models[target][level], &spec, &(ae_session_test){.fixed = true}, 3, 64, 1,
                                              AERIE_KV_F16);
        generate(session, target_models[target][level], requests, N_PROMPTS, &r);
        aerie_session_free(session);
        for (size_t i = 0; i < N_PROMPTS; i++) {
            same_answer(&r.answers[i], plain_answer(target, 0, true, AERIE_KV_F16, i), name, i);
            drafted += check_ask(&r.answers[i], &requests[i], name, i);
        }
        print_message("%s: %u drafted\n", name, drafted);
        assert_true(drafted > 0);
    }
}

/* ---- What is refused ------------------------------------------------------------------------------------------ */

#define N_GOOD 4

/* Bad requests among good ones, two sequences at once: each is refused by itself and reported once; the rest get their
 * answers. */
static void check_refused(aerie_session *session, const aerie_request *bad, aerie_status expected, const char *text)
{
    static uint32_t n_refused;
    static run r;
    aerie_error error = {0};
    aerie_stats stats[N_GOOD + 1];
    aerie_request requests[N_GOOD + 1];
    for (size_t at = 0; at <= N_GOOD; at += 2) {
        if (!test_takes(&n_refused)) continue;
        memset(&r, 0, sizeof r);
        r.n = N_GOOD + 1;
        for (size_t i = 0; i <= N_GOOD; i++) requests[i] = i == at ? *bad : request_of(i < at ? i : i - 1, 0, true);
        assert_int_equal(aerie_session_generate(session, requests, N_GOOD + 1, on_token, &r, stats, sizeof(aerie_stats),
                                                &error),
                         expected);
        if (!strstr(error.text, text)) fail_msg("'%s' does not hold '%s'", error.text, text);
        char number[32];
        snprintf(number, sizeof number, "request %zu: ", at);
        assert_int_equal(strncmp(error.text, number, strlen(number)), 0);
        for (size_t i = 0; i <= N_GOOD; i++) {
            const bool is_bad = i == at;
            assert_int_equal(stats[i].error.status, is_bad ? expected : AERIE_OK);
            assert_int_equal(r.answers[i].n_refusals, is_bad);
            r.answers[i].stats = stats[i];
            if (is_bad) assert_int_equal(r.answers[i].n, 0);
            else same_answer(&r.answers[i], plain_answer(0, 0, true, AERIE_KV_F16, i < at ? i : i - 1), "beside a refusal", i);
            if (is_bad) assert_non_null(strstr(stats[i].error.text, text));
        }
    }
    assert_int_equal(aerie_session_generate(session, bad, 1, NULL, NULL, NULL, 0, &error), expected);
    assert_null(strstr(error.text, "request 0: ")); /* alone it needs no number */
}

static void test_a_bad_request_is_refused_alone(void **state)
{
    (void)state;
    static const size_t lengths[] = {N_CTX, N_CTX + 1, 5000};
    static int32_t tokens[5000];
    static const char *const no_stop[] = {""};
    char gbnf[64];
    aerie_error error = {0};
    aerie_spec spec = aerie_spec_default();
    aerie_session *session = open_session(target_models[0][0], &spec, NULL, 2, 64, 1, AERIE_KV_F16);
    for (size_t i = 0; i < 3; i++) {
        aerie_request r = request_of(1, 0, true);
        char number[16];
        r.tokens = tokens, r.n_tokens = lengths[i];
        snprintf(number, sizeof number, "%zu", lengths[i]);
        check_refused(session, &r, AERIE_ERROR_LIMIT, number);
        check_refused(session, &r, AERIE_ERROR_LIMIT, "200");
    }
    int32_t ids[] = {1, 2, 1 << 20};
    aerie_request r = request_of(1, 0, true);
    r.tokens = ids, r.n_tokens = 3;
    check_refused(session, &r, AERIE_ERROR_ARGUMENT, "token 2 of the prompt is 1048576");
    ids[2] = -1;
    check_refused(session, &r, AERIE_ERROR_ARGUMENT, "token 2 of the prompt is -1");
    r.n_tokens = 0;
    check_refused(session, &r, AERIE_ERROR_ARGUMENT, "the prompt is empty");
    r.tokens = NULL, r.n_tokens = 7;
    check_refused(session, &r, AERIE_ERROR_ARGUMENT, "the prompt is empty");
    r = request_of(1, 0, true), r.sampling.temperature = NAN;
    check_refused(session, &r, AERIE_ERROR_ARGUMENT, "temperature");
    r = request_of(1, 0, true), r.stop = no_stop, r.n_stop = 1;
    check_refused(session, &r, AERIE_ERROR_ARGUMENT, "stop string 1");
    r.stop = NULL;
    check_refused(session, &r, AERIE_ERROR_ARGUMENT, "stop string");
    r = request_of(1, 0, true), r.n_logprobs = AERIE_MAX_LOGPROBS + 1;
    check_refused(session, &r, AERIE_ERROR_ARGUMENT, "129");
    aerie_grammar *grammar;
    snprintf(gbnf, sizeof gbnf, "root ::= x{0,5000} \"b\"\nx ::= [a]?");
    need(aerie_grammar_create(&grammar, gbnf, strlen(gbnf), &error), &error);
    r = request_of(1, 0, true), r.grammar = grammar;
    check_refused(session, &r, AERIE_ERROR_LIMIT, "more than 4096 ways at once");
    aerie_grammar_free(grammar);
    run last;
    const aerie_request good = request_of(6, 0, true);
    generate(session, target_models[0][0], &good, 1, &last); /* the session lives on */
    same_answer(&last.answers[0], plain_answer(0, 0, true, AERIE_KV_F16, 6), "after a refusal", 0);
    aerie_session_free(session);
}

/* ---- The real model -------------------------------------------------------------------------------------------- */

/* Level, type, n_max, tree, fixed, threads, chunk, sequences; ref is slow and gets few tokens. */
static const struct real_case {
    uint8_t level, type, n_max;
    bool tree, fixed;
    uint8_t n_threads;
    uint16_t n_batch;
    uint8_t n_seqs;
} real_cases[] = {
    {1, 0, 1, false, true, 1, 1, 1}, {2, 0, 1, false, true, 2, 512, 1}, {2, 1, 8, true, false, 2, 64, 1},
    {1, 1, 4, false, true, 3, 7, 1}, {2, 2, 3, false, true, 2, 512, 1}, {2, 2, 4, true, true, 1, 64, 1},
    {2, 3, 16, true, true, 3, 7, 1}, {1, 3, 8, false, true, 2, 512, 2}, {2, 3, 2, true, false, 2, 64, 8},
    {2, 4, 8, true, true, 2, 1, 1},  {1, 4, 3, false, true, 2, 64, 1},  {2, 4, 16, true, true, 2, 512, 8},
};

static void run_real(const struct real_case *c, aerie_model *const *models, const aerie_request *request, aerie_kv_type kv_type,
                     answer *expected)
{
    run r;
    aerie_request requests[MAX_REQUESTS];
    aerie_spec spec = aerie_spec_default();
    if (!models[c->level]) return;
    spec.type = types[c->type], spec.n_max = c->n_max, spec.tree = c->tree;
    const ae_session_test test = {.fixed = c->fixed, .oracle_error = 0.3f};
    ae_session_test_answer known[MAX_REQUESTS];
    spec.draft_model = models[c->level]; /* drafts for itself */
    for (size_t i = 0; i < c->n_seqs; i++) {
        requests[i] = *request;
        known[i] = (ae_session_test_answer){expected->ids, expected->n};
    }
    aerie_session *session = open_session(models[c->level], &spec, &test, c->n_seqs, c->n_batch, c->n_threads, kv_type);
    ae_session_test_answers(session, known, c->n_seqs);
    generate(session, models[c->level], requests, c->n_seqs, &r);
    aerie_session_free(session);
    if (!expected->n) *expected = r.answers[0];
    for (size_t i = 0; i < c->n_seqs; i++) same_answer(&r.answers[i], expected, "SmolLM2, case", (size_t)(c - real_cases));
}

static void test_law_1_sample_of_the_matrix_on_smollm2(void **state)
{
    (void)state;
    static const char text[] = "A list of colours: red, green, blue. The same list again: red, green,";
    const char *path = getenv("AERIE_MODEL");
    if (!path) path = "models/smollm2-135m-instruct-q4_1.gguf";
    if (AE_TEST_EVERY > 4 || !test_whole()) {
        print_message("skip: a real model takes too long under sanitizers\n");
        skip();
    }
    if (access(path, R_OK)) {
        print_message("skip: there is no %s (AERIE_MODEL can name another)\n", path);
        skip();
    }
    aerie_error error = {0};
    aerie_model *models[N_LEVELS];
    int32_t *tokens;
    aerie_request request = aerie_request_default();
    for (size_t l = 0; l < N_LEVELS; l++) models[l] = load(path, levels[l]);
    need(aerie_model_tokenize(models[0], text, strlen(text), true, false, &tokens, &request.n_tokens, &error), &error);
    request.tokens = tokens;
    for (uint32_t run_of = 0; run_of < 4; run_of += AE_TEST_EVERY > 1 ? 3 : 1) { /* both samplings, both types of cache */
        const uint32_t sampling = run_of % 2;
        const aerie_kv_type kv_type = run_of / 2 ? AERIE_KV_Q8_0 : AERIE_KV_F16;
        answer expected = {.n = 0};
        request.sampling = sampling_of(sampling);
        request.n_predict = 32;
        request.ignore_eos = true;
        for (size_t i = 0; i < sizeof real_cases / sizeof real_cases[0]; i++)
            run_real(&real_cases[i], models, &request, kv_type, &expected);
        /* the plain C kernels: the first tokens, after a prompt of one chunk */
        const struct real_case slow = {0, 3, 4, true, true, 2, 512, 1};
        expected.n = request.n_predict = 4;
        run_real(&slow, models, &request, kv_type, &expected);
    }
    for (size_t l = 0; l < N_LEVELS; l++) aerie_model_free(models[l]);
    aerie_free(tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_models_go_on_changing),
        cmocka_unit_test(test_law_1_oracle_without_error_is_always_accepted),
        cmocka_unit_test(test_law_1_random_drafts_are_hardly_ever_accepted),
        cmocka_unit_test(test_law_1_a_draft_model_is_right_sometimes),
        cmocka_unit_test(test_law_1_same_tokens_over_the_whole_matrix),
        cmocka_unit_test(test_asks),
        cmocka_unit_test(test_a_bad_request_is_refused_alone),
        cmocka_unit_test(test_law_1_sample_of_the_matrix_on_smollm2),
    };
    return cmocka_run_group_tests_name("speculation laws", tests, make_models, drop_models);
}

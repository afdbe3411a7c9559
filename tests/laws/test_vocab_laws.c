/* test_vocab_laws.c - law 1 with drafters that have another vocabulary than the target: the same tokens, and drafts are taken.
 *
 * Targets with byte-level BPE and SPM; drafters (a first layer of their own) whose vocabularies differ in the order of ids, in
 * merges, in size, in kind; temperature 0, 0.7, 1.3, chains and trees, controlled and not, several sequences, grammars, stop
 * strings; each against plain decoding. A drafter with its ids shuffled drafts and is accepted exactly as without. Then the
 * reported overlap, and refusals.
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
#include "every.h"
#include "spec_rig.inc"

#define SKIP (AE_TEST_EVERY > 4 ? 4u : 1u) /* ways to draft: one in four where tests run slowly */

#define N_CTX 160
#define N_PREDICT 28

enum { BPE, SENTENCE, N_TARGETS };
enum { SAME, SHUFFLED, LARGER, SMALLER, OTHER, SPM, SPM_SHUFFLED, SHORT, N_DRAFTS };
static const struct made {
    const char *name, *kind;
    uint64_t order;
    uint32_t n_vocab, n_layers, n_ctx;
} made[] = {
    {"bpe", "bpe", 0, 319, 2, 2048},
    {"spm", "spm", 0, 380, 2, 2048},
    /* drafters */
    {"d-same", "bpe", 0, 319, 1, 2048},
    {"d-shuffled", "bpe", 5, 319, 1, 2048},
    {"d-larger", "bpe", 2, 400, 1, 2048},
    {"d-smaller", "bpe", 3, 290, 1, 2048},
    {"d-other", "bpe-other", 0, 330, 1, 2048},
    {"d-spm", "spm", 0, 380, 1, 2048},
    {"d-spm-shuffled", "spm", 7, 380, 1, 2048},
    {"d-short", "bpe-other", 1, 330, 1, 40}, /* its context ends while the target goes on */
};
static aerie_model *targets[N_TARGETS], *drafts[N_DRAFTS], *foreign;
static aerie_grammar *grammars[3];
static const float temperatures[] = {0, 0.7f, 1.3f};

static aerie_model *make(const struct made *m)
{
    mk_options o;
    aerie_error error = {0};
    mk_shape("tiny", &o);
    o.vocab = m->kind, o.vocab_order = m->order, o.n_vocab = m->n_vocab, o.n_layers = m->n_layers, o.n_ctx = m->n_ctx;
    o.layer_decay = 0.25f;
    need(mk_model(&o, path_of(m->name), &error), &error);
    aerie_model *model = load(path_of(m->name), NULL);
    unlink(path_of(m->name));
    return model;
}

static int make_all(void **state)
{
    (void)state;
    static const char *const gbnf = "root ::= (\"the\" | \"then\" | \" and\" | \"in \" | [a-f])* \"end\"";
    static const char *const schema = "{\"properties\": {\"the\": {\"type\": \"integer\"}, "
                                      "\"on\": {\"enum\": [\"the\", \"in\"]}}, \"required\": [\"the\"]}";
    aerie_error error = {0};
    if (!mkdtemp(folder)) return 1;
    for (size_t i = 0; i < N_TARGETS; i++) targets[i] = make(&made[i]);
    for (size_t i = 0; i < N_DRAFTS; i++) drafts[i] = make(&made[N_TARGETS + i]);
    foreign = make(&(struct made){"foreign", "foreign", 0, 319, 1, 2048});
    need(aerie_grammar_create(&grammars[1], gbnf, strlen(gbnf), &error), &error);
    need(aerie_grammar_create_schema(&grammars[2], schema, strlen(schema), NULL, &error), &error);
    return rmdir(folder);
}

static int drop_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TARGETS; i++) aerie_model_free(targets[i]);
    for (size_t i = 0; i < N_DRAFTS; i++) aerie_model_free(drafts[i]);
    aerie_model_free(foreign);
    for (size_t i = 0; i < 3; i++) aerie_grammar_free(grammars[i]);
    return 0;
}

/* ---- Runs ----------------------------------------------------------------------------------------------- */

static aerie_session *open_session(const aerie_model *target, const aerie_model *draft, bool tree, bool fixed, uint32_t n_seqs)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = N_CTX, params.n_seqs = n_seqs, params.n_batch = 64, params.n_threads = 1;
    params.spec.type = draft ? AERIE_SPEC_DRAFT : AERIE_SPEC_NONE;
    params.spec.draft_model = draft, params.spec.n_max = 5, params.spec.tree = tree;
    params.spec.ngram = false;
    need(ae_session_create_for_test(&session, target, &params, &(ae_session_test){.fixed = fixed}, &error), &error);
    return session;
}

/* As `generate` of the rig; an answer's text is not a text of its own with SPM, which begins one without its space. */
static void answer_all(aerie_session *session, const aerie_request *requests, size_t n, run *r)
{
    aerie_error error = {0};
    aerie_stats stats[MAX_REQUESTS];
    *r = (run){.n = n};
    need(aerie_session_generate(session, requests, n, on_token, r, stats, sizeof(aerie_stats), &error), &error);
    for (size_t i = 0; i < n; i++) r->answers[i].stats = stats[i];
    for (size_t i = 0; i < n; i++)
        if (stats[i].stop != AERIE_STOP_STRING) check_stats(&r->answers[i], &requests[i]);
}

/* Text; text that the tokenizers cut differently; any ids. */
#define N_PROMPTS 4
static int32_t *prompts[N_TARGETS][N_PROMPTS];
static size_t prompt_lengths[N_TARGETS][N_PROMPTS];

static void make_requests(size_t target, float temperature, const aerie_grammar *grammar, aerie_request *requests)
{
    static const char *const texts[] = {"The harbour was quiet", "<|im_start|>and the same in the rain: naïve \xe4\xb8\xad",
                                        " there"};
    aerie_error error = {0};
    for (size_t i = 0; i < N_PROMPTS; i++) {
        int32_t **tokens = &prompts[target][i];
        size_t *n = &prompt_lengths[target][i];
        if (!*tokens && i < 3)
            need(aerie_model_tokenize(targets[target], texts[i], strlen(texts[i]), true, true, tokens, n, &error), &error);
        if (!*tokens) {
            static int32_t any[N_TARGETS][48];
            uint64_t random = 8;
            for (size_t k = 0; k < 48; k++) any[target][k] = (int32_t)(mk_random(&random) % 300);
            *tokens = any[target], *n = 48;
        }
        requests[i] = aerie_request_default();
        requests[i].tokens = *tokens, requests[i].n_tokens = *n, requests[i].n_predict = N_PREDICT;
        requests[i].sampling.temperature = temperature, requests[i].sampling.top_k = temperature > 1 ? 0 : 40;
        requests[i].sampling.repeat_penalty = temperature > 1 ? 1.1f : 1, requests[i].sampling.seed = 31;
        requests[i].grammar = grammar;
    }
}

static void free_prompts(void)
{
    for (size_t t = 0; t < N_TARGETS; t++)
        for (size_t i = 0; i < 3; i++) aerie_free(prompts[t][i]);
}

static uint64_t n_drafted[N_DRAFTS], n_accepted[N_DRAFTS];

/* One target, drafter, temperature and grammar: against plain, in the ways there are to run it. */
static void check_case(size_t target, size_t draft, size_t temperature, size_t grammar)
{
    static run plain, r;
    aerie_request requests[N_PROMPTS];
    char what[160];
    make_requests(target, temperatures[temperature], grammars[grammar], requests);
    aerie_session *session = open_session(targets[target], NULL, false, false, 1);
    answer_all(session, requests, N_PROMPTS, &plain);
    aerie_session_free(session);
    for (size_t how = (target + draft + temperature) % SKIP; how < 4; how += SKIP) {
        const bool tree = how & 1, fixed = how & 2;
        snprintf(what, sizeof what, "%s by %s, temperature %g, grammar %zu, %s%s", made[target].name,
                 made[N_TARGETS + draft].name, (double)temperatures[temperature], grammar, tree ? "tree" : "chain",
                 fixed ? "" : ", controlled");
        session = open_session(targets[target], drafts[draft], tree, fixed, how % 3 ? 1 : 3);
        for (int again = 0; again < 2; again++) { /* the second time from what the caches hold */
            answer_all(session, requests, N_PROMPTS, &r);
            for (size_t i = 0; i < N_PROMPTS; i++) {
                same_answer(&r.answers[i], &plain.answers[i], what, i);
                n_drafted[draft] += r.answers[i].stats.n_drafted;
                n_accepted[draft] += r.answers[i].stats.n_accepted;
            }
        }
        aerie_session_free(session);
    }
}

static void test_law_1_with_other_vocabularies(void **state)
{
    (void)state;
    for (size_t target = 0; target < N_TARGETS; target++)
        for (size_t draft = 0; draft < N_DRAFTS; draft++)
            for (size_t temperature = 0; temperature < 3; temperature++)
                check_case(target, draft, temperature,
                           (target + draft + temperature) % 2 ? 0 : 1 + (draft + temperature) / 2 % 2);
    for (size_t d = 0; d < N_DRAFTS; d++) {
        print_message("%s: %llu drafted, %llu accepted\n", made[N_TARGETS + d].name, (unsigned long long)n_drafted[d],
                      (unsigned long long)n_accepted[d]);
        assert_true(n_accepted[d] > (d == SHORT ? 20 : 100) / SKIP && n_accepted[d] < n_drafted[d]);
    }
}

/* ---- Acceptance -------------------------------------------------------------------------------------------- */

static void same_statistics(const aerie_stats *a, const aerie_stats *b, const char *what, float temperature)
{
    if (a->n_drafted != b->n_drafted || a->n_accepted != b->n_accepted || a->n_passes != b->n_passes)
        fail_msg("%s, temperature %g: %u drafted, %u accepted, %u passes; shuffled %u, %u, %u", what, (double)temperature,
                 a->n_drafted, a->n_accepted, a->n_passes, b->n_drafted, b->n_accepted, b->n_passes);
    assert_memory_equal(a->drafted_at, b->drafted_at, sizeof a->drafted_at);
    assert_memory_equal(a->tried_at, b->tried_at, sizeof a->tried_at);
    assert_memory_equal(a->accepted_at, b->accepted_at, sizeof a->accepted_at);
}

static void test_shuffled_ids_are_accepted_exactly_as_often(void **state)
{
    (void)state;
    static const struct {
        size_t target, same, shuffled;
    } pairs[] = {{BPE, SAME, SHUFFLED}, {SENTENCE, SPM, SPM_SHUFFLED}};
    static run a, b;
    uint64_t accepted = 0;
    for (size_t p = 0; p < 2; p++)
        for (size_t temperature = 0; temperature < 3; temperature++)
            for (int tree = 0; tree < 2; tree++) {
                aerie_request requests[N_PROMPTS];
                make_requests(pairs[p].target, temperatures[temperature], NULL, requests);
                const aerie_model *target = targets[pairs[p].target];
                aerie_session *same = open_session(target, drafts[pairs[p].same], tree, true, 1);
                aerie_session *shuffled = open_session(target, drafts[pairs[p].shuffled], tree, true, 1);
                answer_all(same, requests, N_PROMPTS, &a);
                answer_all(shuffled, requests, N_PROMPTS, &b);
                for (size_t i = 0; i < N_PROMPTS; i++) {
                    same_statistics(&a.answers[i].stats, &b.answers[i].stats, made[pairs[p].target].name,
                                    temperatures[temperature]);
                    accepted += a.answers[i].stats.n_accepted;
                }
                aerie_session_free(same);
                aerie_session_free(shuffled);
            }
    assert_true(accepted > 100);
}

/* A target that drafts for itself under other ids is accepted like itself, and always without noise. */
static void test_a_twin_with_other_ids_is_as_good_as_itself(void **state)
{
    (void)state;
    static run twins, r;
    uint64_t drafted = 0, accepted = 0;
    if (!mkdtemp(strcpy(folder, "/tmp/aerie_spec_XXXXXX"))) fail();
    aerie_model *twin = make(&(struct made){"twin", "bpe", 77, 319, 2, 2048});
    for (size_t temperature = 0; temperature < 3; temperature++) {
        aerie_request requests[N_PROMPTS];
        make_requests(BPE, temperatures[temperature], NULL, requests);
        for (size_t i = 0; i < N_PROMPTS; i++) { /* penalties are not for drafters */
            requests[i].sampling.repeat_penalty = 1;
            requests[i].ignore_eos = true;
        }
        aerie_session *session = open_session(targets[BPE], twin, false, true, 1);
        aerie_session *self = open_session(targets[BPE], targets[BPE], false, true, 1);
        answer_all(session, requests, N_PROMPTS, &twins);
        answer_all(self, requests, N_PROMPTS, &r);
        for (size_t i = 0; i < N_PROMPTS; i++) {
            const aerie_stats *s = &twins.answers[i].stats;
            same_statistics(&r.answers[i].stats, s, "twin", temperatures[temperature]);
            if (temperature == 0) assert_int_equal(s->n_accepted, s->n_drafted);
            drafted += s->n_drafted, accepted += s->n_accepted;
        }
        aerie_session_free(session);
        aerie_session_free(self);
    }
    assert_true(accepted * 3 > drafted * 2 && drafted > 100);
    aerie_model_free(twin);
    assert_int_equal(rmdir(folder), 0);
}

/* ---- Stop strings ------------------------------------------------------------------------------------------- */

/* Two bytes from the middle of each answer, so that stop strings begin inside tokens. */
static size_t make_stops(const run *r, char stops[N_PROMPTS][4], const char *list[N_PROMPTS])
{
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) {
        const answer *a = &r->answers[i];
        if (a->n_text < 12) continue;
        memcpy(stops[n], a->text + a->n_text / 2, 2);
        stops[n][2] = '\0';
        list[n] = stops[n];
        if (strlen(stops[n]) == 2) n++;
    }
    return n;
}

static void test_law_1_with_stop_strings(void **state)
{
    (void)state;
    static run plain, r;
    uint32_t n_stopped = 0;
    for (size_t target = 0; target < N_TARGETS; target++)
        for (size_t temperature = 0; temperature < 3; temperature++) {
            aerie_request requests[N_PROMPTS];
            char stops[N_PROMPTS][4];
            const char *list[N_PROMPTS];
            make_requests(target, temperatures[temperature], NULL, requests);
            aerie_session *session = open_session(targets[target], NULL, false, false, 1);
            answer_all(session, requests, N_PROMPTS, &plain);
            const size_t n_stop = make_stops(&plain, stops, list);
            for (size_t i = 0; i < N_PROMPTS; i++) requests[i].stop = list, requests[i].n_stop = n_stop;
            answer_all(session, requests, N_PROMPTS, &plain);
            aerie_session_free(session);
            for (size_t draft = 1; draft < N_DRAFTS; draft++) {
                if (SKIP > 1 && (target + temperature + draft) % 2) continue;
                session = open_session(targets[target], drafts[draft], draft % 2, true, 2);
                answer_all(session, requests, N_PROMPTS, &r);
                aerie_session_free(session);
                for (size_t i = 0; i < N_PROMPTS; i++) {
                    same_answer(&r.answers[i], &plain.answers[i], made[N_TARGETS + draft].name, i);
                    assert_int_equal(r.answers[i].n_text, plain.answers[i].n_text);
                    assert_memory_equal(r.answers[i].text, plain.answers[i].text, r.answers[i].n_text);
                    n_stopped += plain.answers[i].stats.stop == AERIE_STOP_STRING;
                }
            }
        }
    assert_true(n_stopped > 50 / SKIP);
}

/* ---- The overlap ---------------------------------------------------------------------------------------------- */

static void test_the_overlap_is_told(void **state)
{
    (void)state;
    aerie_overlap o = {0};
    aerie_session *session = open_session(targets[BPE], drafts[SAME], true, false, 1);
    assert_false(aerie_session_overlap(session, &o, sizeof o));
    aerie_session_free(session);
    session = open_session(targets[BPE], drafts[SMALLER], true, false, 1);
    assert_true(aerie_session_overlap(session, &o, sizeof o));
    assert_int_equal(o.n_target, 319);
    assert_int_equal(o.n_draft, 290);
    assert_int_equal(o.n_shared, 290);
    assert_true(o.vocab_share > 0.90 && o.vocab_share < 0.92 && o.text_share > 0.8 && o.text_share < 1);
    aerie_session_free(session);
}

static void test_too_small_an_overlap_is_refused(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = N_CTX, params.n_threads = 1;
    params.spec.type = AERIE_SPEC_DRAFT;
    params.spec.draft_model = foreign;
    assert_int_equal(aerie_session_create(&session, targets[BPE], &params, &error), AERIE_ERROR_UNSUPPORTED);
    assert_null(session);
    assert_non_null(strstr(error.text, "of the 319 tokens"));
    assert_non_null(strstr(error.text, "sample text"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_law_1_with_other_vocabularies),
        cmocka_unit_test(test_shuffled_ids_are_accepted_exactly_as_often),
        cmocka_unit_test(test_a_twin_with_other_ids_is_as_good_as_itself),
        cmocka_unit_test(test_law_1_with_stop_strings),
        cmocka_unit_test(test_the_overlap_is_told),
        cmocka_unit_test(test_too_small_an_overlap_is_refused),
    };
    const int failed = cmocka_run_group_tests_name("vocabulary laws", tests, make_all, drop_all);
    free_prompts();
    return failed;
}

/* test_grammar_laws.c - law 1 with grammars: the same tokens whatever drafts, and always a text of the grammar.
 *
 * Grammars (JSON of any shape, a schema, words, one that ends at once) x temperature 0, 0.7, 1.3 x drafters (ngram, draft
 * model, oracle, random), chains and trees, controlled and not, on two tiny random models; each against plain decoding. Ends,
 * masks and statistics are checked, too. Then the same on SmolLM2 when AERIE_MODEL names it or models/ holds it: answers under
 * a schema always parse.
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
#include <jansson.h>

#include "sample/sampler.h"
#include "speculate/constrained.h"
#include "vocab_make.h"

#define MAX_PREDICT 160
#include "spec_rig.inc"

#define N_CTX 200
#define N_PREDICT 30
#define N_PROMPTS 3

static const struct language {
    const char *name, *text;
    bool schema;
} languages[] = {
    {"any JSON", "{}", true},
    {"a schema",
     "{\"properties\": {\"the\": {\"type\": \"integer\", \"minimum\": 7, \"maximum\": 4321}, \"on\": {\"enum\": "
     "[\"the\", \"in\"]}, "
     "\"list\": {\"items\": {\"maxLength\": 6}, \"minItems\": 1, \"maxItems\": 3}}, \"required\": [\"the\", \"list\"]}",
     true},
    {"words", "root ::= ((\"the\" | \"then\" | \"and\" | \"in\") \" \")* \"end\"", false},
    {"letters", "root ::= [a-z \\n]*", false},
    {"bits", "root ::= [01]{25} \"!\"", false},
};
#define N_LANGUAGES (sizeof languages / sizeof *languages)

static aerie_grammar *grammars[N_LANGUAGES];
static aerie_model *models[2], *draft_model;
static const int32_t prompts[N_PROMPTS][12] = {
    {5}, {9, 77, 130, 201, 9, 77, 130, 201, 9, 77, 130, 201}, {60, 61, 62, 63, 64, 65, 66}};
static const size_t prompt_lengths[N_PROMPTS] = {1, 12, 7};
static const float temperatures[] = {0, 0.7f, 1.3f};

static int make_all(void **state)
{
    (void)state;
    aerie_error error = {0};
    if (!mkdtemp(folder)) return 1;
    for (size_t i = 0; i < N_LANGUAGES; i++) {
        const struct language *l = &languages[i];
        const aerie_status status =
            l->schema ? aerie_grammar_create_schema(&grammars[i], l->text, strlen(l->text), NULL, &error)
                      : aerie_grammar_create(&grammars[i], l->text, strlen(l->text), &error);
        if (status != AERIE_OK) {
            print_error("%s\n", error.text);
            return 1;
        }
    }
    static const char *const names[] = {"a", "f", "draft"};
    for (int i = 0; i < 3; i++) {
        mk_options o;
        mk_shape(i == 1 ? "tiny-gqa" : "tiny", &o);
        o.n_layers = i < 2 ? 2 : 1, o.layer_decay = 0.25f, o.forgetful = i == 1;
        if (i == 1) o.type = "q8_0";
        if (mk_model(&o, path_of(names[i]), &error) != AERIE_OK) return 1;
        aerie_model *m = load(path_of(names[i]), NULL);
        if (i < 2) models[i] = m;
        else draft_model = m;
        unlink(path_of(names[i]));
    }
    return rmdir(folder);
}

static int drop_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_LANGUAGES; i++) aerie_grammar_free(grammars[i]);
    aerie_model_free(models[0]);
    aerie_model_free(models[1]);
    aerie_model_free(draft_model);
    return 0;
}

static aerie_session *open_session(const aerie_model *model, const aerie_spec *spec, const ae_session_test *test,
                                   uint32_t n_seqs, uint32_t n_ctx)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = n_ctx, params.n_seqs = n_seqs, params.n_batch = 64, params.n_threads = 1;
    params.spec = *spec;
    need(ae_session_create_for_test(&session, model, &params, test, &error), &error);
    return session;
}

/* The answer is a text of the grammar, or begins one. */
static void check_language(const answer *a, const aerie_grammar *grammar, const char *name)
{
    bool accepted;
    size_t n_good;
    aerie_error error = {0};
    need(aerie_grammar_check(grammar, a->text, a->n_text, &accepted, &n_good, &error), &error);
    if (n_good != a->n_text)
        fail_msg("%s: '%.*s' is not of the grammar after byte %zu", name, (int)a->n_text, a->text, n_good);
    if (a->stats.stop == AERIE_STOP_GRAMMAR || a->stats.stop == AERIE_STOP_EOG) assert_true(accepted);
    else assert_int_equal(a->stats.stop, AERIE_STOP_LENGTH);
    assert_true(a->stats.n_masks + a->stats.n_mask_hits + a->stats.n_mask_checks >= a->n);
    assert_true(a->stats.n_masks <= a->stats.n_masks + a->stats.n_mask_hits);
}

static void make_requests(size_t language, size_t temperature, bool ignore_eos, aerie_request *requests)
{
    for (size_t i = 0; i < N_PROMPTS; i++) {
        requests[i] = aerie_request_default();
        requests[i].tokens = prompts[i];
        requests[i].n_tokens = prompt_lengths[i];
        requests[i].n_predict = N_PREDICT;
        requests[i].ignore_eos = ignore_eos;
        requests[i].sampling.temperature = temperatures[temperature];
        requests[i].sampling.top_k = temperature == 2 ? 0 : 40;
        requests[i].sampling.repeat_penalty = temperature == 1 ? 1.2f : 1;
        requests[i].sampling.seed = 11;
        requests[i].grammar = grammars[language];
    }
}

static uint64_t n_drafted, n_accepted, n_ends[2];

static void check_case(size_t model, size_t language, size_t temperature, bool ignore_eos)
{
    static const aerie_spec_type types[] = {AERIE_SPEC_NGRAM, AERIE_SPEC_DRAFT, AE_SPEC_ORACLE, AE_SPEC_RANDOM};
    static run plain, r;
    aerie_request requests[N_PROMPTS];
    aerie_spec spec = aerie_spec_default();
    spec.type = AERIE_SPEC_NONE;
    make_requests(language, temperature, ignore_eos, requests);
    aerie_session *session = open_session(models[model], &spec, NULL, 1, N_CTX);
    generate(session, models[model], requests, N_PROMPTS, &plain);
    aerie_session_free(session);
    for (size_t i = 0; i < N_PROMPTS; i++) {
        check_language(&plain.answers[i], grammars[language], languages[language].name);
        n_ends[plain.answers[i].stats.stop == AERIE_STOP_LENGTH]++;
    }
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int how = (int)(t + language + temperature) % 2; how < 4;
             how += 2 + (language > 1)) { /* chain or tree, controlled or not */
            char what[128];
            spec.type = types[t], spec.tree = how & 1, spec.n_max = 3 + (uint32_t)how;
            spec.draft_model = types[t] == AERIE_SPEC_DRAFT ? draft_model : NULL;
            const ae_session_test test = {.fixed = how & 2, .oracle_error = 0.3f};
            snprintf(what, sizeof what, "model %zu, %s, temperature %g, %s, %s%s", model, languages[language].name,
                     (double)temperatures[temperature], ae_session_test_spec_name(types[t]), spec.tree ? "tree" : "chain",
                     test.fixed ? "" : ", controlled");
            session = open_session(models[model], &spec, &test, (uint32_t)(how < 2 ? 1 : 2), N_CTX);
            tell_oracle(session, &plain);
            for (int again = 0; again < 1 + (how == 3); again++) { /* the second time with the masks of the first */
                generate(session, models[model], requests, N_PROMPTS, &r);
                for (size_t i = 0; i < N_PROMPTS; i++) {
                    same_answer(&r.answers[i], &plain.answers[i], what, i);
                    check_language(&r.answers[i], grammars[language], what);
                    n_drafted += r.answers[i].stats.n_drafted;
                    n_accepted += r.answers[i].stats.n_accepted;
                }
            }
            aerie_session_free(session);
        }
}

static void test_law_1_with_grammars(void **state)
{
    (void)state;
    for (size_t language = 0; language < N_LANGUAGES; language++)
        for (size_t temperature = 0; temperature < 3; temperature++)
            check_case((language + temperature) % 2, language, temperature, temperature == 1);
    print_message("%llu drafted, %llu accepted; %llu answers ended, %llu were cut\n", (unsigned long long)n_drafted,
                  (unsigned long long)n_accepted, (unsigned long long)n_ends[0], (unsigned long long)n_ends[1]);
    assert_true(n_accepted > 1000 && n_accepted < n_drafted);
    assert_true(n_ends[0] > 5 && n_ends[1] > 5);
}

/* ---- The draw is the draw among the allowed tokens, whatever the chain ------------------------------------------------- */

static const aerie_logit_bias some_bias[] = {{4, 3.0f}, {9, -INFINITY}, {17, 1.5f}};

static const char *chain_of(int i, aerie_sampling *p)
{
    static const aerie_sampler no_temperature[AERIE_MAX_SAMPLERS] = {AERIE_SAMPLER_TOP_K, AERIE_SAMPLER_MIN_P};
    static const aerie_sampler cut_then_penalize[AERIE_MAX_SAMPLERS] = {AERIE_SAMPLER_TOP_K, AERIE_SAMPLER_PENALTIES,
                                                                        AERIE_SAMPLER_TEMPERATURE};
    *p = aerie_sampling_default();
    p->temperature = 0, p->seed = 5, p->top_k = 0, p->top_p = 1, p->min_p = 0;
    switch (i) {
    case 0: return "greedy";
    case 1: p->repeat_penalty = 1.7f, p->presence_penalty = 0.5f, p->penalty_last_n = -1; return "penalties";
    case 2: p->dry_multiplier = 1.5f, p->dry_allowed_length = 1, p->dry_penalty_last_n = -1; return "DRY";
    case 3: p->logit_bias = some_bias, p->n_logit_bias = 3; return "biases";
    case 4: p->top_k = 20, p->top_p = 0.7f, p->min_p = 0.1f; return "filters that keep the best";
    case 5: p->xtc_probability = 1, p->xtc_threshold = 0.01f; return "XTC";
    case 6: p->typical_p = 0.3f; return "typical-p";
    case 7: p->dynatemp_range = 1.5f; return "dynamic temperature";
    case 8: memcpy(p->samplers, no_temperature, sizeof no_temperature), p->top_k = 30; return "no temperature in the chain";
    case 9:
        memcpy(p->samplers, cut_then_penalize, sizeof cut_then_penalize), p->top_k = 3, p->repeat_penalty = 3;
        return "top-k before penalties";
    case 10: p->mirostat = 2; return "mirostat";
    case 11: p->temperature = 0.9f, p->top_k = 25; return "noise";
    default: return NULL;
    }
}

static void check_draws(const char *name, const aerie_sampling *params, const ae_vocab *vocab, const ae_token_trie *trie)
{
    static const char text[] = "root ::= [a-m <e]+ (\"\\n\" [0-9]+)?";
    const uint32_t n_vocab = (uint32_t)ae_vocab_n_tokens(vocab);
    aerie_error error = {0};
    ae_grammar *g;
    ae_constraint *c, *twin;
    ae_sampler *sampler, *plain;
    int32_t tokens[160];
    float *logits = calloc(n_vocab * 3, sizeof *logits), *masked = logits + n_vocab, *expected = masked + n_vocab;
    need(ae_grammar_from_gbnf(&g, text, strlen(text), &error), &error);
    need(ae_constraint_create(&c, g, trie, &error), &error);
    need(ae_constraint_create(&twin, g, trie, &error), &error);
    need(ae_sampler_create(&sampler, params, vocab, n_vocab, 160, &error), &error);
    need(ae_sampler_create(&plain, params, vocab, n_vocab, 160, &error), &error);
    uint64_t random = 99;
    for (size_t i = 0; i < 150; i++) {
        for (uint32_t t = 0; t < n_vocab; t++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            logits[t] = (float)(random >> 40 & 0xFFFF) / 10000.0f; /* no token is certain */
        }
        assert_true(ae_constraint_apply(twin, logits, true, expected) > 0);
        const int32_t wanted = ae_sampler_draw(plain, expected, tokens, i);
        const int32_t token = ae_guide_draw(c, sampler, logits, tokens, i, true, masked);
        if (token != wanted) fail_msg("%s: draw %zu is %d, among the allowed tokens it is %d", name, i, token, wanted);
        ae_sampler_accept(sampler, token, i);
        ae_sampler_accept(plain, token, i);
        tokens[i] = token;
        if (!ae_constraint_advance(c, token)) ae_constraint_restart(c); /* an end */
        if (!ae_constraint_advance(twin, token)) ae_constraint_restart(twin);
    }
    const uint64_t n_checks = ae_constraint_stats_get(c)->n_checks;
    if (ae_sampler_is_best_of_any(sampler) != (n_checks > 0)) fail_msg("%s: %d", name, (int)n_checks);
    ae_sampler_free(sampler);
    ae_sampler_free(plain);
    ae_constraint_free(c);
    ae_constraint_free(twin);
    ae_grammar_free(g);
    free(logits);
}

static void test_draws_among_allowed(void **state)
{
    (void)state;
    ae_buf file = {0};
    ae_vocab *vocab;
    ae_token_trie *trie;
    aerie_sampling params;
    vocab_make_bpe(&file, &(vocab_make){0});
    assert_int_equal(vocab_make_load(&vocab, &file, NULL), AERIE_OK);
    assert_int_equal(ae_token_trie_create(&trie, vocab, NULL), AERIE_OK);
    const char *name;
    for (int i = 0; (name = chain_of(i, &params)); i++) check_draws(name, &params, vocab, trie);
    ae_token_trie_free(trie);
    ae_vocab_free(vocab);
    ae_buf_free(&file);
}

/* Forced text is drafted with any drafter: the random drafter is never right, and yet much is accepted. */
static void test_what_is_forced_is_drafted(void **state)
{
    (void)state;
    static const char text[] = "root ::= \"{\\\"the name of it\\\": \" [0-9] \", \\\"and another one\\\": \" [0-9] \"}\"";
    aerie_error error = {0};
    aerie_grammar *g;
    run r;
    aerie_spec spec = aerie_spec_default();
    aerie_request request = aerie_request_default();
    need(aerie_grammar_create(&g, text, strlen(text), &error), &error);
    spec.type = AE_SPEC_RANDOM, spec.n_max = 8;
    request.tokens = prompts[0], request.n_tokens = 1, request.n_predict = 60, request.grammar = g;
    aerie_session *session = open_session(models[0], &spec, &(ae_session_test){.fixed = true}, 1, N_CTX);
    generate(session, models[0], &request, 1, &r);
    check_language(&r.answers[0], g, "forced");
    assert_int_equal(r.answers[0].stats.stop, AERIE_STOP_GRAMMAR);
    assert_true(r.answers[0].stats.n_accepted * 3 > r.answers[0].n);
    aerie_session_free(session);
    aerie_grammar_free(g);
}

/* The session keeps a grammar that its owner has freed; requests without one are not affected. */
static void test_lives_of_grammars(void **state)
{
    (void)state;
    aerie_error error = {0};
    static run before, with, after;
    aerie_spec spec = aerie_spec_default();
    aerie_request request = aerie_request_default();
    aerie_grammar *g;
    need(aerie_grammar_create(&g, "root ::= [a-f]{9}", 17, &error), &error);
    request.tokens = prompts[1], request.n_tokens = 12, request.n_predict = 20, request.sampling = sampling_of(0),
    request.ignore_eos = true;
    aerie_session *session = open_session(models[0], &spec, NULL, 2, N_CTX);
    generate(session, models[0], &request, 1, &before);
    request.grammar = g;
    generate(session, models[0], &request, 1, &with);
    assert_int_equal(with.answers[0].n_text, 9);
    assert_int_equal(with.answers[0].stats.stop, AERIE_STOP_GRAMMAR);
    aerie_grammar_free(g);
    request.grammar = NULL;
    generate(session, models[0], &request, 1, &after);
    same_answer(&after.answers[0], &before.answers[0], "after a grammar", 0);
    request.grammar = grammars[4];
    generate(session, models[0], &request, 1, &with);
    check_language(&with.answers[0], grammars[4], "another");
    aerie_session_free(session);
}

/* ---- The real model -------------------------------------------------------------------------------------------- */

static const char person[] =
    "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": 30}, \"age\": {\"type\": "
    "\"integer\", \"minimum\": 0, \"maximum\": 150}, \"born\": {\"type\": \"string\", \"format\": \"date\"}, \"job\": "
    "{\"enum\": [\"engineer\", "
    "\"painter\", null]}, \"likes\": {\"type\": \"array\", \"items\": {\"type\": \"string\", \"maxLength\": 12}, "
    "\"minItems\": 1, \"maxItems\": 3}}, "
    "\"required\": [\"name\", \"age\", \"born\", \"likes\"]}";

static void check_person(const answer *a)
{
    json_error_t e;
    json_t *json = json_loadb(a->text, a->n_text, 0, &e);
    if (!json) fail_msg("not JSON: %s: %.*s", e.text, (int)a->n_text, a->text);
    assert_true(json_is_string(json_object_get(json, "name")));
    assert_in_range(json_integer_value(json_object_get(json, "age")), 0, 150);
    assert_int_equal(json_string_length(json_object_get(json, "born")), 10);
    assert_in_range(json_array_size(json_object_get(json, "likes")), 1, 3);
    json_decref(json);
}

static void test_smollm2_keeps_to_a_schema(void **state)
{
    (void)state;
    const char *path = getenv("AERIE_MODEL");
    if (!path) path = "models/smollm2-135m-instruct-q4_1.gguf";
    if (access(path, R_OK)) {
        print_message("skip: there is no %s (AERIE_MODEL can name another)\n", path);
        skip();
    }
    static const aerie_spec_type types[] = {AERIE_SPEC_NONE, AERIE_SPEC_NGRAM, AE_SPEC_ORACLE, AE_SPEC_RANDOM};
    aerie_error error = {0};
    aerie_model *model;
    aerie_grammar *g;
    static run plain, r;
    need(aerie_model_load(&model, path, NULL, &error), &error);
    need(aerie_grammar_create_schema(&g, person, strlen(person), NULL, &error), &error);
    int32_t *tokens;
    const aerie_message message = {"user", "Describe a person as JSON."};
    aerie_chat chat = aerie_chat_default();
    chat.turns = &message, chat.n_turns = 1;
    aerie_request request = aerie_request_default();
    need(aerie_model_chat_tokens(model, &chat, &tokens, &request.n_tokens, NULL, NULL, &error), &error);
    request.tokens = tokens, request.n_predict = MAX_PREDICT, request.grammar = g;
    for (size_t temperature = 0; temperature < 3; temperature++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            aerie_spec spec = aerie_spec_default();
            const ae_session_test test = {.fixed = t > 1, .oracle_error = 0.2f};
            spec.type = types[t], spec.n_max = 6, spec.tree = temperature != 1;
            request.sampling.temperature = temperatures[temperature], request.sampling.seed = 3;
            aerie_session *session = open_session(model, &spec, &test, 1, 512);
            tell_oracle(session, &plain);
            run *out = t ? &r : &plain;
            generate(session, model, &request, 1, out);
            aerie_session_free(session);
            if (t) same_answer(&r.answers[0], &plain.answers[0], ae_session_test_spec_name(types[t]), 0);
            else check_person(&plain.answers[0]);
        }
    aerie_free(tokens);
    aerie_grammar_free(g);
    aerie_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_law_1_with_grammars),
        cmocka_unit_test(test_draws_among_allowed),
        cmocka_unit_test(test_what_is_forced_is_drafted),
        cmocka_unit_test(test_lives_of_grammars),
        cmocka_unit_test(test_smollm2_keeps_to_a_schema),
    };
    return cmocka_run_group_tests_name("grammar laws", tests, make_all, drop_all);
}

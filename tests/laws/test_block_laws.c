/* test_block_laws.c - law 1 for block drafters (DFlash, DSpark, DFlash2): every kind of mixer, chains and trees, one sequence
 * and eight, with and without temperature, penalties and grammars, controlled or not.
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
#include "every.h"
#include "mkarch.h"
#include "mkhead.h"
#include "spec_rig.inc"

enum { N_REQUESTS = 8, N_TEXT = 60, N_PREDICT = 20 };

/* Models of mkarch_table.c. */
static const char *const targets[] = {"llama", "qwen35", "nemotron_h", "lfm2", "deepseek2", "gemma3"};
#define N_TARGETS (sizeof targets / sizeof *targets)

static const struct kind {
    const char *name;
    aerie_spec_type type;
    mkhead_options options;
} kinds[] = {
    {"DFlash", AERIE_SPEC_DFLASH, {.kind = "dflash", .type = "q8_0", .qk_norm = true, .n_draft = 32}},
    {"DFlash from the anchor", AERIE_SPEC_DFLASH, {.kind = "dflash", .type = "f16", .from_anchor = 1, .n_block = 4}},
    {"causal DFlash", AERIE_SPEC_DFLASH, {.kind = "dflash", .type = "f16", .n_draft = 24, .causal = true, .n_block = 12}},
    {"DFlash2", AERIE_SPEC_DFLASH, {.kind = "dflash2", .type = "q8_0", .qk_norm = true, .n_draft = 32}},
    {"DFlash2 of three taps", AERIE_SPEC_DFLASH, {.kind = "dflash2", .type = "f16", .n_conv = 3, .conv_group = 4, .n_pair = 13,
                                                  .n_candidates = 16, .from_anchor = 1, .n_block = 5}},
    {"DSpark", AERIE_SPEC_DSPARK, {.kind = "dspark", .type = "q8_0", .qk_norm = true, .n_draft = 32}},
    {"DSpark without confidence", AERIE_SPEC_DSPARK, {.kind = "dspark", .type = "f16", .no_confidence = true, .n_block = 5}},
};
#define N_KINDS (sizeof kinds / sizeof *kinds)

static const struct way {
    aerie_tree tree;
    uint32_t n_seqs, n_max;
    bool fixed, ngram;
} ways[] = {
    {AERIE_TREE_OFF, 1, 16, true, false}, {AERIE_TREE_AUTO, 8, 7, true, false}, {AERIE_TREE_DYNAMIC, 3, 5, true, false},
    {AERIE_TREE_OFF, 8, 4, false, true},  {AERIE_TREE_AUTO, 1, 9, false, true}, {AERIE_TREE_STATIC, 2, 5, true, false},
};
#define N_WAYS (sizeof ways / sizeof *ways)

static aerie_model *models[N_TARGETS];
static aerie_drafter_head *heads[N_TARGETS][N_KINDS];
static aerie_grammar *grammar;
static int32_t tokens[N_REQUESTS][N_TEXT];

static int make_all(void **state)
{
    (void)state;
    aerie_error error = {0};
    static const char words[] = "root ::= [a-z ]*";
    uint64_t random = 5;
    if (!mkdtemp(folder)) return 1;
    for (size_t i = 0; i < N_TARGETS; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s", path_of(targets[i]));
        need(mkarch_write(mkarch_find(targets[i]), true, path, &error), &error);
        models[i] = load(path, NULL);
        for (size_t k = 0; k < N_KINDS; k++) {
            char head[160];
            snprintf(head, sizeof head, "%s-head.gguf", path);
            need(mkhead_write(&kinds[k].options, path, head, &error), &error);
            need(aerie_drafter_head_load(&heads[i][k], models[i], head, NULL, &error), &error);
            unlink(head);
        }
        unlink(path);
    }
    need(aerie_grammar_create(&grammar, words, sizeof words - 1, &error), &error);
    for (size_t i = 0; i < N_REQUESTS; i++)
        for (size_t k = 0; k < N_TEXT; k++) tokens[i][k] = 3 + (int32_t)(mk_random(&random) % 250);
    memcpy(tokens[5], tokens[4], 40 * sizeof **tokens); /* a prefix to share */
    return 0;
}

static int drop_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TARGETS; i++) {
        for (size_t k = 0; k < N_KINDS; k++) aerie_drafter_head_free(heads[i][k]);
        aerie_model_free(models[i]);
    }
    aerie_grammar_free(grammar);
    return rmdir(folder);
}

static void run_all(const aerie_model *model, const aerie_spec *spec, uint32_t n_seqs, bool fixed, uint32_t sampling, run *r)
{
    static const size_t lengths[N_REQUESTS] = {1, 2, 17, N_TEXT, 50, 50, 33, 5};
    aerie_error error = {0};
    aerie_session *session;
    aerie_request requests[N_REQUESTS];
    aerie_session_params p = aerie_session_params_default();
    p.n_ctx = MKARCH_CTX, p.n_seqs = n_seqs, p.n_batch = 48, p.n_threads = 2, p.spec = *spec;
    need(ae_session_create_for_test(&session, model, &p, &(ae_session_test){.fixed = fixed}, &error), &error);
    for (size_t i = 0; i < N_REQUESTS; i++) {
        requests[i] = aerie_request_default();
        requests[i].tokens = tokens[i], requests[i].n_tokens = lengths[i], requests[i].n_predict = N_PREDICT;
        requests[i].ignore_eos = true;
        requests[i].grammar = i % 3 == 2 ? grammar : NULL;
        requests[i].sampling = sampling_of(sampling);
    }
    generate(session, model, requests, N_REQUESTS, r);
    aerie_session_free(session);
}

static void test_same_tokens(void **state)
{
    (void)state;
    static run plain, got;
    uint64_t drafted[N_KINDS] = {0}, accepted = 0;
    const size_t step = AE_TEST_EVERY > 3 ? 3 : 1;
    for (size_t i = 0; i < N_TARGETS; i++)
        for (uint32_t sampling = 0; sampling < N_SAMPLINGS; sampling++) {
            aerie_spec spec = aerie_spec_default();
            spec.type = AERIE_SPEC_NONE;
            if ((i + sampling) % step) continue;
            run_all(models[i], &spec, 1, false, sampling, &plain);
            for (size_t c = 0; c < N_KINDS * N_WAYS; c++) {
                const size_t k = c % N_KINDS;
                const struct way *w = &ways[c / N_KINDS];
                if ((c + c / N_KINDS + i + sampling) % (2 * step + 1)) continue;
                spec = aerie_spec_default();
                spec.type = kinds[k].type, spec.head = heads[i][k], spec.tree = w->tree, spec.n_max = w->n_max;
                spec.ngram = w->ngram;
                run_all(models[i], &spec, w->n_seqs, w->fixed, sampling, &got);
                for (size_t q = 0; q < N_REQUESTS; q++) {
                    char text[128];
                    snprintf(text, sizeof text, "%s for %s, tree %s, %u at once, sampling %u", kinds[k].name, targets[i],
                             aerie_tree_name(w->tree), w->n_seqs, sampling);
                    same_answer(&got.answers[q], &plain.answers[q], text, q);
                    drafted[k] += got.answers[q].stats.n_drafted;
                    accepted += got.answers[q].stats.n_accepted;
                }
            }
        }
    for (size_t k = 0; k < N_KINDS; k++) assert_true(drafted[k] > 200);
    print_message("%llu accepted\n", (unsigned long long)accepted);
    assert_true(accepted > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_tokens)};
    return cmocka_run_group_tests(tests, make_all, drop_all);
}

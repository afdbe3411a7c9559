/* test_block_laws.c - law 1 for block drafters (DFlash, DSpark, DFlash2, DFly, LiLiCorr) and P-EAGLE: every kind of mixer,
 * chains and trees, one to 64 sequences, with and without temperature, penalties, grammars and stop strings, controlled or
 * not. */
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
#define MAX_REQUESTS 64
#include "spec_rig.inc"
#include "mixed_requests.inc"

enum { N_PREDICT_MANY = 8 };

/* Models of mkarch_table.c. */
static const char *const targets[] = {"qwen2", "qwen35", "nemotron_h", "lfm2", "deepseek2", "gemma3"};
#define N_TARGETS (sizeof targets / sizeof *targets)

/* Most have heads of 32, for which there are fast kernels: those of other sizes take the reference's, and most of the time. */
static const struct kind {
    const char *name;
    aerie_spec_type type;
    mkhead_options options;
} kinds[] = {
    {"DFlash", AERIE_SPEC_DFLASH, {.kind = "dflash", .type = "q8_0", .qk_norm = true, .n_draft = 32}},
    {"DFlash from the anchor", AERIE_SPEC_DFLASH, {.kind = "dflash", .type = "f16", .head_dim = 32, .from_anchor = 1,
                                                   .n_block = 4}},
    {"causal DFlash", AERIE_SPEC_DFLASH, {.kind = "dflash", .type = "f16", .head_dim = 32, .n_draft = 24, .causal = true,
                                         .n_block = 12}},
    {"DFlash2", AERIE_SPEC_DFLASH, {.kind = "dflash2", .type = "q8_0", .head_dim = 32, .qk_norm = true, .n_draft = 32}},
    {"DFlash2 of three taps", AERIE_SPEC_DFLASH, {.kind = "dflash2", .type = "f16", .head_dim = 32, .n_conv = 3,
                                                  .conv_group = 4, .n_pair = 13, .n_candidates = 16, .from_anchor = 1,
                                                  .n_block = 5}},
    {"DFly", AERIE_SPEC_DFLASH, {.kind = "dfly", .type = "q8_0", .head_dim = 32, .qk_norm = true, .n_draft = 32}},
    {"P-EAGLE", AERIE_SPEC_EAGLE3, {.n_parallel = 6, .n_layers = 2, .type = "q8_0", .head_dim = 32, .n_draft = 32}},
    {"LiLiCorr", AERIE_SPEC_DFLASH, {.kind = "lilicorr", .type = "q8_0", .head_dim = 32, .qk_norm = true, .n_draft = 32,
                                     .n_block = 6}},
    {"LiLiCorr with convolutions", AERIE_SPEC_DFLASH, {.kind = "lilicorr", .type = "f16", .head_dim = 32, .n_conv = 2,
                                                       .n_block = 5, .n_lattice = 24, .n_candidates = 4}},
    {"DSpark", AERIE_SPEC_DSPARK, {.kind = "dspark", .type = "q8_0", .head_dim = 32, .qk_norm = true, .n_draft = 32}},
    {"DSpark without confidence", AERIE_SPEC_DSPARK, {.kind = "dspark", .type = "f16", .head_dim = 32, .n_block = 5,
                                                      .no_confidence = true}},
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

static aerie_model *models[N_TARGETS], *plain_models[N_TARGETS];
static aerie_drafter_head *heads[N_TARGETS][N_KINDS];

/* Makes the models of target i when first asked for. */
static void make_target(size_t i)
{
    aerie_error error = {0};
    if (models[i]) return;
    need(mkarch_write(mkarch_find(targets[i]), true, path_of(targets[i]), &error), &error);
    models[i] = load(path_of(targets[i]), NULL);
    plain_models[i] = load_plain(path_of(targets[i]), models[i]);
}

/* Likewise its head of kind k. */
static void make_head(size_t i, size_t k)
{
    aerie_error error = {0};
    char path[128], head[160];
    make_target(i);
    if (heads[i][k]) return;
    snprintf(path, sizeof path, "%s", path_of(targets[i]));
    snprintf(head, sizeof head, "%s-head.gguf", path);
    need(mkhead_write(&kinds[k].options, path, head, &error), &error);
    need(aerie_drafter_head_load(&heads[i][k], models[i], head, NULL, &error), &error);
    unlink(head);
}

static int make_all(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return 1;
    for (size_t i = 0; test_whole() && i < N_TARGETS; i++)
        for (size_t k = 0; k < N_KINDS; k++) make_head(i, k);
    make_mixed();
    return 0;
}

static int drop_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TARGETS; i++) {
        for (size_t k = 0; k < N_KINDS; k++) aerie_drafter_head_free(heads[i][k]);
        free_plain(plain_models[i], models[i]);
        aerie_model_free(models[i]);
        unlink(path_of(targets[i]));
    }
    free_mixed();
    return rmdir(folder);
}

/* The first n requests, n_seqs at once. Two threads in some cases only: on a busy machine they wait for each other. */
static void run_all(const aerie_model *model, const aerie_spec *spec, uint32_t n_seqs, bool fixed, uint32_t sampling, size_t n,
                    run *r)
{
    aerie_error error = {0};
    aerie_session *session;
    static aerie_request requests[MAX_REQUESTS];
    static aerie_stats stats[MAX_REQUESTS];
    aerie_session_params p = aerie_session_params_default();
    p.n_ctx = MKARCH_CTX, p.n_seqs = n_seqs, p.n_batch = 48, p.n_threads = n_seqs == 3 ? 2 : 1, p.spec = *spec;
    need(ae_session_create_for_test(&session, model, &p, &(ae_session_test){.fixed = fixed}, &error), &error);
    for (size_t i = 0; i < n; i++) {
        requests[i] = mixed_request(i, sampling, 3);
        requests[i].n_predict = test_fewer(n > N_REQUESTS ? N_PREDICT_MANY : N_PREDICT);
    }
    memset(r, 0, sizeof *r);
    r->n = n;
    need(aerie_session_generate(session, requests, n, on_token, r, stats, sizeof(aerie_stats), &error), &error);
    for (size_t i = 0; i < n; i++) {
        r->answers[i].stats = stats[i];
        if (requests[i].n_stop) continue; /* their text ends before their tokens */
        check_stats(&r->answers[i], &requests[i]);
        check_text(model, &r->answers[i]);
    }
    aerie_session_free(session);
}

static void run_plain(size_t target, uint32_t sampling, size_t n, run *r)
{
    aerie_spec spec = aerie_spec_default();
    spec.type = AERIE_SPEC_NONE;
    make_target(target);
    run_all(plain_models[target], &spec, n > N_REQUESTS ? 4 : 1, false, sampling, n, r);
}

static void run_way(size_t target, size_t kind, const struct way *w, uint32_t sampling, size_t n, run *r)
{
    aerie_spec spec = aerie_spec_default();
    make_head(target, kind);
    spec.type = kinds[kind].type, spec.head = heads[target][kind], spec.tree = w->tree, spec.n_max = w->n_max;
    spec.ngram = w->ngram;
    run_all(models[target], &spec, w->n_seqs, w->fixed, sampling, n, r);
}

typedef struct totals {
    uint64_t drafted[N_KINDS], accepted, stopped;
} totals;

static void check_same(const run *got, const run *plain, size_t target, size_t kind, const struct way *w, totals *sums)
{
    for (size_t q = 0; q < plain->n; q++) {
        const answer *a = &got->answers[q], *b = &plain->answers[q];
        char text[128];
        snprintf(text, sizeof text, "%s for %s, tree %s, %u at once", kinds[kind].name, targets[target],
                 aerie_tree_name(w->tree), w->n_seqs);
        same_answer(a, b, text, q);
        if (a->n_text != b->n_text || memcmp(a->text, b->text, a->n_text)) fail_msg("%s: request %zu: another text", text, q);
        sums->drafted[kind] += a->stats.n_drafted;
        sums->accepted += a->stats.n_accepted;
        sums->stopped += a->stats.stop == AERIE_STOP_STRING;
    }
}

static void test_same_tokens(void **state)
{
    (void)state;
    static run plain, got;
    totals sums = {0};
    const bool few = AE_TEST_EVERY > 3;
    uint32_t at = 0;
    size_t n = 0; /* counts models and samplings: every kind runs in every other of them, each time in another way */
    for (size_t i = 0; i < N_TARGETS; i++)
        for (uint32_t sampling = 0; sampling < N_SAMPLINGS; sampling++) {
            if (few && (i + sampling) % 3) continue;
            bool known = false;
            for (size_t c = 0; c < N_KINDS * N_WAYS; c++) {
                const size_t k = c % N_KINDS;
                const struct way *w = &ways[c / N_KINDS];
                if (few && ((k + n) % 2 || c / N_KINDS != (k + n / 2) % N_WAYS)) continue;
                if (!test_takes(&at)) continue;
                if (!known) run_plain(i, sampling, N_REQUESTS, &plain);
                known = true;
                run_way(i, k, w, sampling, N_REQUESTS, &got);
                check_same(&got, &plain, i, k, w, &sums);
            }
            n++;
        }
    for (size_t k = 0; k < N_KINDS; k++) assert_true(!test_whole() || sums.drafted[k] > 200);
    print_message("%llu accepted, %llu ended by stop strings\n", (unsigned long long)sums.accepted,
                  (unsigned long long)sums.stopped);
    assert_true(!test_whole() || (sums.accepted > 50 && sums.stopped > 10));
}

/* 64 sequences at once: every kind of head for one target or all of them, chains and trees alternately. */
static void test_many(void **state)
{
    (void)state;
    static const struct way many[] = {{AERIE_TREE_OFF, 64, 5, true, false}, {AERIE_TREE_AUTO, 64, 4, true, false}};
    static run plain, got;
    const size_t n = test_fewer(MAX_REQUESTS);
    totals sums = {0};
    uint32_t at = 0;
    for (size_t i = 0; i < N_TARGETS; i++) {
        bool known = false;
        for (size_t c = 0; c < 2 * N_KINDS; c++) {
            const size_t k = c % N_KINDS;
            if (AE_TEST_EVERY > 3 && (k % N_TARGETS != i || (c / N_KINDS + k) % 2)) continue;
            if (!test_takes(&at)) continue;
            if (!known) run_plain(i, (uint32_t)i, n, &plain);
            known = true;
            run_way(i, k, &many[c / N_KINDS], (uint32_t)i, n, &got);
            check_same(&got, &plain, i, k, &many[c / N_KINDS], &sums);
        }
    }
    for (size_t k = 0; k < N_KINDS; k++) assert_true(!test_whole() || sums.drafted[k] > 500);
    print_message("64 at once: %llu accepted, %llu ended by stop strings\n", (unsigned long long)sums.accepted,
                  (unsigned long long)sums.stopped);
    assert_true(!test_whole() || (sums.accepted > 10 && sums.stopped > 10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_tokens), cmocka_unit_test(test_many)};
    return cmocka_run_group_tests(tests, make_all, drop_all);
}

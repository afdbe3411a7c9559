/* test_head_laws.c - drafter heads: same bytes, and drafts that are a pure function of the sequence.
 *
 * Law 1 for heads of every kind and every shape of draft, through aerie.h; the round trips that their drafts cost. Then, one
 * level below, errors that heads had elsewhere (memory that is not updated, rows of the wrong sequence, rejected drafts that
 * stay, positions that drift): head_rig.inc.
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
#include "backend/cpu/strict.h"
#include "every.h"
#include "mkhead.h"
#include "spec_rig.inc"
#include "asks.inc"

#define N_PROMPTS 4
#define N_PREDICT 40
#define N_CTX 256

#include "head_rig.inc"

static const struct kind {
    const char *name;
    mkhead_options options;
    aerie_spec_type type;
} kinds[] = {
    {"eagle", {.kind = "eagle", .type = "q8_0"}, AERIE_SPEC_EAGLE},
    {"eagle-few", {.kind = "eagle", .type = "q8_0", .n_draft = 12, .biases = true}, AERIE_SPEC_EAGLE},
    {"eagle3", {.kind = "eagle3", .type = "q4_0", .n_draft = 24}, AERIE_SPEC_EAGLE3},
    {"eagle3.1", {.kind = "eagle3.1", .type = "q8_0", .n_draft = 16}, AERIE_SPEC_EAGLE3},
    {"window", {.kind = "eagle3.1", .type = "f16", .n_draft = 16, .window = 64, .n_sinks = 64}, AERIE_SPEC_EAGLE3},
    {"medusa", {.kind = "medusa", .type = "q8_0", .n_draft = 16}, AERIE_SPEC_MEDUSA},
    {"mtp", {.kind = "mtp", .type = "q8_0", .n_draft = 12}, AERIE_SPEC_MTP},
    {"mtp-3", {.kind = "mtp", .type = "q4_0", .n_nextn = 3, .n_draft = 16, .own_embedding = true, .own_output = true},
     AERIE_SPEC_MTP},
    {"dflash", {.kind = "dflash", .type = "q8_0", .n_draft = 16}, AERIE_SPEC_DFLASH},
    {"dflash-anchor", {.kind = "dflash", .type = "q4_0", .n_draft = 24, .from_anchor = 1, .own_output = true,
                       .own_embedding = true, .n_block = 5, .n_layers = 1, .qk_norm = true}, AERIE_SPEC_DFLASH},
    {"dflash-causal", {.kind = "dflash", .type = "f16", .n_draft = 16, .causal = true, .sliding = 70, .n_block = 16,
                       .arch = "dflash-draft"}, AERIE_SPEC_DFLASH},
    {"dflash2", {.kind = "dflash2", .type = "q8_0", .n_draft = 24, .qk_norm = true}, AERIE_SPEC_DFLASH},
    {"dflash2-wide", {.kind = "dflash2", .type = "f16", .n_conv = 8, .conv_group = 4, .n_pair = 21, .n_candidates = 16,
                      .n_block = 32, .sliding = 70}, AERIE_SPEC_DFLASH},
    {"dfly", {.kind = "dfly", .type = "q8_0", .n_draft = 24, .qk_norm = true, .n_correct = 96}, AERIE_SPEC_DFLASH},
    {"dfly-plain", {.kind = "dfly", .type = "f16", .n_block = 5, .no_correction = true, .own_output = true}, AERIE_SPEC_DFLASH},
    {"p-eagle", {.n_parallel = 8, .type = "q8_0", .n_draft = 24, .n_layers = 2}, AERIE_SPEC_EAGLE3},
    {"p-eagle-narrow", {.n_parallel = 5, .type = "f16", .n_embd = 32, .n_heads = 2, .n_kv_heads = 1, .head_dim = 16,
                        .own_embedding = true}, AERIE_SPEC_EAGLE3},
    {"lilicorr", {.kind = "lilicorr", .type = "q8_0", .n_draft = 24, .qk_norm = true}, AERIE_SPEC_DFLASH},
    {"lilicorr-conv", {.kind = "lilicorr", .type = "f16", .n_conv = 2, .n_candidates = 16, .lattice_heads = 1, .n_lattice = 40,
                       .n_block = 8, .n_factors = 5}, AERIE_SPEC_DFLASH},
    {"dspark", {.kind = "dspark", .type = "q8_0", .n_draft = 16, .qk_norm = true}, AERIE_SPEC_DSPARK},
    {"dspark-plain", {.kind = "dspark", .type = "q8_0", .no_confidence = true, .from_anchor = -1, .n_block = 32, .n_markov = 32,
                      .own_output = true, .n_draft = 24, .arch = "dspark"}, AERIE_SPEC_DSPARK},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

static aerie_model *target, *plain_target;
static aerie_drafter_head *heads[N_KINDS];
static int32_t prompts[N_PROMPTS][160];
static const size_t prompt_lengths[N_PROMPTS] = {2, 63, 130, 100};
static const enum aerie_tree trees[] = {AERIE_TREE_OFF, AERIE_TREE_AUTO, AERIE_TREE_STATIC, AERIE_TREE_DYNAMIC};

static int make_files(void **state)
{
    (void)state;
    mk_options o;
    aerie_error error = {0};
    char model[128];
    if (!mkdtemp(folder) || !mk_shape("tiny", &o)) return 1;
    o.forgetful = true; /* a text that repeats itself, so that tokens of a small draft vocabulary are often accepted */
    o.n_layers = 3;
    snprintf(model, sizeof model, "%s", path_of("target"));
    if (mk_model(&o, model, &error) != AERIE_OK) return 1;
    target = load(model, NULL);
    plain_target = load_plain(model, target);
    for (size_t i = 0; i < N_KINDS; i++) {
        if (mkhead_write(&kinds[i].options, model, path_of(kinds[i].name), &error) != AERIE_OK ||
            aerie_drafter_head_load(&heads[i], target, path_of(kinds[i].name), NULL, &error) != AERIE_OK) {
            print_error("%s: %s\n", kinds[i].name, error.text);
            return 1;
        }
    }
    uint64_t random = 3;
    for (size_t i = 0; i < N_PROMPTS; i++)
        for (size_t k = 0; k < prompt_lengths[i]; k++) prompts[i][k] = (int32_t)(mk_random(&random) % o.n_vocab);
    memcpy(prompts[3], prompts[2], 90 * sizeof **prompts); /* a prefix to share */
    return 0;
}

static int drop_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_KINDS; i++) {
        aerie_drafter_head_free(heads[i]);
        unlink(path_of(kinds[i].name));
    }
    free_plain(plain_target, target);
    aerie_model_free(target);
    unlink(path_of("target"));
    return rmdir(folder);
}

/* ---- Law 1 ----------------------------------------------------------------------------------------- */

static aerie_request requests[N_PROMPTS + 2]; /* of the last run */
static bool asking;                            /* requests narrow their drafts */

static void run_requests(const aerie_spec *spec, bool fixed, uint32_t n_seqs, uint32_t n_batch, uint32_t sampling, run *r)
{
    aerie_error error = {0};
    aerie_session *session;
    const aerie_model *model = spec->type == AERIE_SPEC_NONE ? plain_target : target;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = N_CTX, params.n_seqs = n_seqs, params.n_batch = n_batch, params.n_threads = 1;
    params.spec = *spec;
    need(ae_session_create_for_test(&session, model, &params, &(ae_session_test){.fixed = fixed}, &error), &error);
    for (size_t i = 0; i < N_PROMPTS + 2; i++) {
        requests[i] = aerie_request_default();
        requests[i].tokens = prompts[i % N_PROMPTS];
        requests[i].n_tokens = prompt_lengths[i % N_PROMPTS];
        requests[i].n_predict = test_fewer(N_PREDICT);
        requests[i].ignore_eos = true;
        requests[i].sampling = sampling_of(sampling);
        if (asking) ask(&requests[i], i);
    }
    generate(session, model, requests, N_PROMPTS + 2, r);
    aerie_session_free(session);
}

static void test_same_tokens(void **state)
{
    (void)state;
    static run plain[N_SAMPLINGS], r;
    uint64_t drafted = 0, accepted = 0;
    uint32_t at = 0;
    for (uint32_t s = 0; s < N_SAMPLINGS; s++) {
        aerie_spec none = aerie_spec_default();
        none.type = AERIE_SPEC_NONE;
        run_requests(&none, false, 1, 512, s, &plain[s]);
    }
    for (uint32_t c = 0; c < N_KINDS * 4 * 3; c++) { /* each kind with each shape, the other settings rotate */
        if (c % (AE_TEST_EVERY > 3 ? 3 : AE_TEST_EVERY) || !test_takes(&at)) continue;
        aerie_spec spec = aerie_spec_default();
        const size_t kind = c % N_KINDS;
        const uint32_t sampling = c % N_SAMPLINGS, n_seqs = c / 3 % 2 ? 1 : 4;
        char what[160];
        spec.type = c % 5 ? kinds[kind].type : AERIE_SPEC_AUTO;
        spec.head = heads[kind];
        spec.tree = trees[c / N_KINDS % 4];
        const bool fixed = c % 4 != 3;
        spec.ngram = c % 3 == 1;
        spec.n_max = 1 + c % 7;
        spec.n_nodes = c % 3 ? 0 : 9;
        snprintf(what, sizeof what, "head %s, %s, depth %u, %s, %u at once, sampling %u", kinds[kind].name,
                 aerie_tree_name(spec.tree), spec.n_max, fixed ? "fixed" : "controlled", n_seqs, sampling);
        run_requests(&spec, fixed, n_seqs, c % 2 ? 512 : 37, sampling, &r);
        for (size_t i = 0; i < N_PROMPTS + 2; i++) {
            same_answer(&r.answers[i], &plain[sampling].answers[i], what, i);
            drafted += r.answers[i].stats.n_drafted;
            accepted += r.answers[i].stats.n_accepted;
        }
    }
    print_message("%llu drafted, %llu accepted\n", (unsigned long long)drafted, (unsigned long long)accepted);
    assert_true(!test_whole() || (accepted > 50 && accepted < drafted / 2));
}

/* Requests ask for fewer drafts of every kind of head: they get no others, and the same tokens. */
static void test_asks(void **state)
{
    (void)state;
    static run plain, r;
    uint64_t drafted[N_PROMPTS + 2] = {0};
    uint32_t at = 0;
    aerie_spec spec = aerie_spec_default();
    spec.type = AERIE_SPEC_NONE;
    run_requests(&spec, false, 2, 512, 0, &plain);
    asking = true;
    for (size_t kind = 0; kind < N_KINDS; kind++) {
        if (!test_takes(&at)) continue;
        spec = aerie_spec_default();
        spec.type = kinds[kind].type, spec.head = heads[kind], spec.tree = AERIE_TREE_OFF, spec.n_max = 5;
        spec.ngram = kind % 3 == 2;
        run_requests(&spec, true, 3, 512, 0, &r);
        for (size_t i = 0; i < N_PROMPTS + 2; i++) {
            same_answer(&r.answers[i], &plain.answers[i], kinds[kind].name, i);
            drafted[i] += check_ask(&r.answers[i], &requests[i], kinds[kind].name, i);
        }
        const answer *a = r.answers;
        assert_true(!test_whole() || (a[1].stats.n_drafted && a[2].stats.n_drafted && a[5].stats.n_drafted));
    }
    asking = false;
    print_message("drafted: %u, %u, %u, %u, %u, %u\n", (unsigned)drafted[0], (unsigned)drafted[1], (unsigned)drafted[2],
                  (unsigned)drafted[3], (unsigned)drafted[4], (unsigned)drafted[5]);
    assert_true(!test_whole() || (drafted[4] > 0 && drafted[3] < drafted[5] / 2));
}

static void test_refused(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_session *session;
    aerie_drafter_head *head;
    aerie_session_params params = aerie_session_params_default();
    params.spec.type = AERIE_SPEC_EAGLE3;
    assert_int_equal(aerie_session_create(&session, target, &params, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "needs a drafter head"));
    params.spec.head = heads[0];
    assert_int_equal(aerie_session_create(&session, target, &params, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "draft-eagle, not draft-eagle3"));
    assert_int_equal(aerie_drafter_head_load(&head, target, path_of("target"), NULL, &error), AERIE_ERROR_UNSUPPORTED);
    assert_true(aerie_file_is_drafter_head(path_of("mtp")));
    assert_true(aerie_file_is_drafter_head(path_of("medusa")) && !aerie_file_is_drafter_head(path_of("target")) &&
                !aerie_file_is_drafter_head("/nowhere"));
}

/* ---- Drafts are a function of the sequence -------------------------------------------------------------- */

/* Sequences are computed from their beginning here: after a cached prefix a head knows its last positions only
 * (CATCH_UP_MAX). */
static void test_drafts_are_a_function_of_the_sequence(void **state)
{
    (void)state;
    static const struct {
        ae_draft_shape shape;
        uint32_t n_seqs;
        float temperature;
        bool many; /* of its drafts are trees */
    } ways[] = {{AE_DRAFT_CHAIN, 1, 0, false}, {AE_DRAFT_DYNAMIC, 3, 0, true}, {AE_DRAFT_TREE, 2, 1, false},
                {AE_DRAFT_STATIC, 1, 0.7f, true}};
    char model[128];
    uint32_t at = 0;
    snprintf(model, sizeof model, "%s", path_of("target"));
    pure_run task = {.target = model, .n_predict = test_fewer(N_PREDICT), .n_requests = N_PROMPTS};
    for (size_t i = 0; i < task.n_requests; i++)
        task.prompts[i] = prompts[i % N_PROMPTS], task.n_prompt[i] = prompt_lengths[i % N_PROMPTS];
    for (size_t i = 0; i < N_KINDS; i++) {
        if (kinds[i].options.window) continue; /* the rows that a window drops depend on the batches of rows */
        task.head = path_of(kinds[i].name);
        /* the rows that several MTP blocks pass on are not known in the middle of another sequence: no sequences with a common
         * beginning
         */
        task.n_requests = kinds[i].options.n_nextn > 1 ? N_PROMPTS - 1 : N_PROMPTS;
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            tally t;
            if (AE_TEST_EVERY > 4 && (i + w) % 4 != 0) continue; /* each kind in one way, each way with some kinds */
            if (!test_takes(&at)) continue;
            check_pure(&task, ways[w].shape, ways[w].n_seqs, ways[w].temperature, &t);
            assert_true(!test_whole() || !ways[w].many || t.n_trees > 30);
        }
    }
}

/* ---- Round trips ---------------------------------------------------------------------------------------- */

static aerie_stop count_token(void *user, uint32_t slot, int32_t token, uint32_t depth, uint32_t row)
{
    (void)slot, (void)token, (void)depth, (void)row;
    ++*(uint32_t *)user;
    return AERIE_STOP_NONE;
}

/* On a device each wait is a round trip. A drafted level has one, for all sequences together, and DFlash2 two for all levels;
 * the target has one for its pass and one for its draws. Where the host draws, it downloads only the rows that the walk
 * visits. */
static void check_trips(const struct kind *kind, bool on_host)
{
    char model[128];
    snprintf(model, sizeof model, "%s", path_of("target"));
    const pure_run task = {.target = model, .head = path_of(kind->name)};
    bench b = open_bench(&task);
    aerie_error error = {0};
    ae_engine *engine;
    ae_dhead_engine *head;
    ae_drafter *drafter;
    ae_spec *spec;
    ae_engine_options o = {.vocab = b.vocab, .n_ctx = N_CTX, .n_seqs = 3, .n_batch = N_CTX, .n_threads = 1,
                           .n_taps = b.head->hparams.n_taps};
    memcpy(o.taps, b.head->hparams.taps, sizeof o.taps);
    need(ae_engine_create(&engine, b.net, &o, &error), &error);
    const ae_dhead_engine_options ho = {.n_ctx = N_CTX, .n_seqs = 3, .n_batch = 300};
    need(ae_dhead_engine_create(&head, b.head_net, engine, &ho, &error), &error);
    need(ae_draft_eagle_create(&drafter, head, engine, 3, &error), &error);
    const ae_spec_options so = {.vocab = b.vocab, .n_chunk = 50, .n_max = 3, .shape = AE_DRAFT_CHAIN, .fixed = true};
    need(ae_spec_create(&spec, engine, drafter, &so, &error), &error);
    ae_sampling sampling = ae_sampling_default();
    if (on_host) sampling.repeat_penalty = 1.1f, sampling.penalty_last_n = 64;
    for (uint32_t i = 0, slot; i < 3; i++)
        need(ae_spec_start(spec, &(ae_spec_request){.tokens = prompts[i], .n_tokens = 20, .n_predict = 60, .ignore_eog = true,
                                                    .sampling = sampling}, &slot, &error), &error);
    const bool at_once = kind->type == AERIE_SPEC_MEDUSA || b.head->hparams.n_parallel ||
                         (kind->type == AERIE_SPEC_DFLASH && !b.head->hparams.n_correct);
    for (uint32_t round = 0, n_rounds = 0; round < 20; round++) {
        uint32_t n_tokens = 0;
        const ae_cpu_trips before = ae_cpu_strict_trips(ae_engine_stream(engine));
        const ae_cpu_trips drafts = ae_cpu_strict_trips(ae_dhead_engine_stream(head));
        drafter->cost.n_levels = 0;
        need(ae_spec_step(spec, count_token, &n_tokens, &error), &error);
        if (!drafter->cost.n_levels || n_tokens < 3) continue; /* prompts */
        n_rounds++;
        /* candidates of all rows, then what pairs are scored by, of LiLiCorr for as many sequences as a pass has room for */
        const bool pairs = b.head->hparams.n_pair > 0;
        const uint32_t most = ae_dhead_lattice_most(head), n_lattices = most ? (3 + most - 1) / most : 0;
        const uint32_t n_levels = most ? 1 + n_lattices : pairs ? 2 : at_once ? 1 : drafter->cost.n_levels;
        assert_int_equal(ae_cpu_strict_trips(ae_dhead_engine_stream(head)).n_waits - drafts.n_waits, n_levels);
        assert_int_equal(ae_cpu_strict_trips(ae_dhead_engine_stream(head)).n_downloads - drafts.n_downloads,
                         most ? 1 + 3 * n_lattices : pairs ? 4 : b.head_net->conf ? 2 * n_levels : n_levels);
        const ae_cpu_trips now = ae_cpu_strict_trips(ae_engine_stream(engine));
        assert_int_equal(now.n_waits - before.n_waits, on_host ? 1 : 2);
        assert_int_equal(now.n_downloads - before.n_downloads, on_host ? n_tokens : 1);
        assert_true(round < 19 || n_rounds > 10);
    }
    ae_spec_free(spec); /* and the drafter */
    ae_engine_free(engine);
    close_bench(&b);
}

static void test_round_trips(void **state)
{
    (void)state;
    const char *said = getenv("AERIE_BACKEND");
    char kept[32];
    snprintf(kept, sizeof kept, "%s", said ? said : "");
    setenv("AERIE_BACKEND", "cpu-strict", 1); /* which counts */
    for (size_t i = 0; i < N_KINDS; i++) check_trips(&kinds[i], false);
    check_trips(&kinds[2], true);
    setenv("AERIE_BACKEND", kept, 1);
    if (!said) unsetenv("AERIE_BACKEND");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_same_tokens),
        cmocka_unit_test(test_asks),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_drafts_are_a_function_of_the_sequence),
    };
    return cmocka_run_group_tests(tests, make_files, drop_files);
}

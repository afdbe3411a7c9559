/* test_recur_spec.c - law 1 through aerie.h for models with recurrent layers: the same tokens with any drafter, and the
 * positions that a conversation computes again; and for these and other models when they draft for themselves.
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
#include "fail_alloc.h"
#include "mkarch.h"
#include "mkhead.h"
#include "spec_rig.inc"

/* the first N_NAMES are recurrent; the others are for drafts by the model itself: latent attention, windows, keys of other
 * layers, shared experts with a gate and without, a dense block beside experts, choices
 * of layers that are left out */
static const char *const names[] = {"qwen35",         "nemotron_h", "lfm2",    "deepseek2",
                                    "deepseek2-lite", "qwen2moe",   "gpt-oss", "gemma4-moe", "glm-dsa-shared",
                                    "deepseek4"};
#define N_NAMES 3
#define N_ALL (sizeof names / sizeof names[0])

/* The first recurrent model of a test; in a sample, which takes only the first case, the tests begin with different kinds of
 * states: qwen35's delta rule, Mamba 2 of nemotron_h, lfm2's convolutions. */
#define FIRST(i) (test_whole() ? 0u : (size_t)(i))

#define SKIP (AE_TEST_EVERY > 4 ? 2 : 1) /* of models and drafters: every other one where tests run slowly */

enum { N_REQUESTS = 8, N_PREDICT = 24, MOST = 220 };

static aerie_model *models[N_ALL], *plain_models[N_ALL];
static size_t n_requests = 4;
static int32_t prompts[N_REQUESTS][128];
static int32_t eog;

/* How many requests the tests have that have many. */
static size_t n_most(void)
{
    return test_whole() ? N_REQUESTS : n_requests;
}

static uint32_t n_checkpoints = 4;
static bool on_device; /* sessions without drafts, too, are on the device in a sample */

static aerie_session *session_of(size_t i, uint32_t n_seqs, const aerie_spec *spec, const ae_session_test *test)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params p = aerie_session_params_default();
    p.n_ctx = MKARCH_CTX;
    p.n_seqs = n_seqs;
    p.n_batch = 48; /* prompts take several passes */
    p.n_threads = 2;
    p.spec = *spec;
    p.n_checkpoints = n_checkpoints;
    const aerie_model *model = spec->type == AERIE_SPEC_NONE && !on_device ? plain_models[i] : models[i];
    need(ae_session_create_for_test(&session, model, &p, test, &error), &error);
    return session;
}

static aerie_spec plain_spec(void)
{
    aerie_spec s = aerie_spec_default();
    s.type = AERIE_SPEC_NONE;
    return s;
}

static void list_requests(aerie_request *requests, uint32_t sampling)
{
    static const size_t lengths[N_REQUESTS] = {1, 17, 64, 120, 5, 33, 90, 2};
    for (size_t i = 0; i < N_REQUESTS; i++) {
        requests[i] = aerie_request_default();
        requests[i].tokens = prompts[i];
        requests[i].n_tokens = lengths[i];
        requests[i].n_predict = test_fewer(N_PREDICT);
        requests[i].ignore_eos = true;
        requests[i].sampling = sampling_of(sampling);
    }
}

static void compare(size_t i, const char *what, uint32_t n_seqs, uint32_t sampling, const aerie_spec *spec, bool fixed,
                    const run *plain)
{
    aerie_request requests[N_REQUESTS];
    static run got;
    char text[128];
    list_requests(requests, sampling);
    on_device = true;
    aerie_session *session = session_of(i, n_seqs, spec, &(ae_session_test){.fixed = fixed, .oracle_error = 0.3f});
    on_device = false;
    tell_oracle(session, plain);
    for (int again = 0; again < 2; again++) { /* the second time prefixes are reused */
        snprintf(text, sizeof text, "%s, %s, %u sequences, sampling %u, run %d", names[i], what, n_seqs, sampling, again);
        generate(session, models[i], requests, n_requests, &got);
        for (size_t k = 0; k < n_requests; k++) same_answer(&got.answers[k], &plain->answers[k], text, k);
    }
    if (spec->type == AE_SPEC_ORACLE) assert_true(got.answers[3].stats.n_accepted > 0);
    aerie_session_free(session);
}

static void answer_plainly(size_t i, uint32_t sampling, run *plain)
{
    aerie_request requests[N_REQUESTS];
    const aerie_spec spec = plain_spec();
    list_requests(requests, sampling);
    aerie_session *session = session_of(i, 1, &spec, NULL);
    generate(session, models[i], requests, n_requests, plain);
    aerie_session_free(session);
}

static void test_same_tokens(void **state)
{
    static run plain;
    uint32_t at = 0;
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++)
        for (uint32_t sampling = 0; sampling < 2; sampling++) {
            aerie_spec spec = plain_spec();
            answer_plainly(i, sampling, &plain);
            if (test_takes(&at)) compare(i, "plain", 3, sampling, &spec, false, &plain);
            spec.n_max = 6;
            static const struct {
                const char *name;
                aerie_spec_type type;
                aerie_tree tree;
            } ways[] = {{"n-grams", AERIE_SPEC_NGRAM, AERIE_TREE_AUTO}, {"oracle", AE_SPEC_ORACLE, AERIE_TREE_OFF},
                        {"oracle tree", AE_SPEC_ORACLE, AERIE_TREE_AUTO}, {"random", AE_SPEC_RANDOM, AERIE_TREE_AUTO},
                        {"draft", AERIE_SPEC_DRAFT, AERIE_TREE_OFF}, {"draft tree", AERIE_SPEC_DRAFT, AERIE_TREE_AUTO}};
            for (size_t w = (i + sampling) % SKIP; w < sizeof ways / sizeof *ways; w += SKIP) {
                if (!test_takes(&at)) continue;
                spec.type = ways[w].type;
                spec.tree = ways[w].tree;
                spec.draft_model = spec.type == AERIE_SPEC_DRAFT ? models[(i + 1) % N_NAMES] : NULL;
                spec.ngram = false;
                compare(i, ways[w].name, 1 + 2 * (uint32_t)(w % 2), sampling, &spec, true, &plain);
            }
        }
}

/* Turns of a chat whose answers lose their first half, the thinking, once they are history. */
static uint32_t run_turns(size_t i, aerie_spec_type type, const aerie_drafter_head *head, const char *kind)
{
    const uint32_t n_turns = test_fewer(10);
    uint32_t again = 0;
    {
        aerie_spec spec = plain_spec(), drafts = spec;
        if (head) drafts.type = type, drafts.head = head, drafts.n_max = 4;
        on_device = true;
        aerie_session *session = session_of(i, 1, &drafts, &(ae_session_test){.fixed = head != NULL});
        on_device = false;
        int32_t text[MOST];
        uint32_t n = 0, border = 0, all = 0;
        char counts[160];
        int n_counts = 0;
        for (uint32_t turn = 0; turn < n_turns; turn++) {
            static run got, fresh;
            for (uint32_t k = 0; k < 6; k++) text[n++] = prompts[turn % N_REQUESTS][20 + turn + k];
            text[n++] = eog;
            const uint32_t end = n; /* of the user's turn */
            for (uint32_t k = 0; k < 3; k++) text[n++] = 10 + (int32_t)k;
            aerie_request request = aerie_request_default();
            request.tokens = text, request.n_tokens = n, request.n_predict = 12, request.ignore_eos = true;
            request.sampling = sampling_of(0);
            generate(session, models[i], &request, 1, &got);
            aerie_session *other = session_of(i, 1, &spec, NULL);
            generate(other, models[i], &request, 1, &fresh);
            aerie_session_free(other);
            same_answer(&got.answers[0], &fresh.answers[0], names[i], turn);
            const aerie_stats *s = &got.answers[0].stats;
            if (n_checkpoints && s->n_cached < border)
                fail_msg("%s: turn %u begins at %u, not %u", names[i], turn, s->n_cached, border);
            again += s->n_prompt - s->n_cached;
            n_counts += snprintf(counts + n_counts, sizeof counts - (size_t)n_counts, " %u/%u", s->n_prompt - s->n_cached,
                                 s->n_prompt);
            all += s->n_prompt;
            border = end;
            n = end; /* the generation prompt is dropped, too */
            for (uint32_t k = 6; k < 12; k++) text[n++] = got.answers[0].ids[k];
            text[n++] = eog;
        }
        print_message("%s, %s, %u checkpoints: %u turns, %u prompt tokens, %u of them computed:%s\n", names[i], kind,
                      n_checkpoints, n_turns, all, again, counts);
        aerie_session_free(session);
    }
    return again;
}

static void test_turns(void **state)
{
    (void)state;
    uint32_t at = 0;
    for (size_t i = FIRST(2); i < N_NAMES; i += SKIP) {
        if (!test_takes(&at)) continue;
        n_checkpoints = 0;
        const uint32_t without = run_turns(i, AERIE_SPEC_NONE, NULL, "plain");
        n_checkpoints = 4;
        const uint32_t with = run_turns(i, AERIE_SPEC_NONE, NULL, "plain");
        assert_true(with < without && (with * 3 < without || !test_whole()));
    }
}

/* A head would need the target to go back by one position or more, where recurrent layers have no state: it begins without the
 * earlier text then, and nothing is computed again for it. */
static void test_turns_with_heads(void **state)
{
    static const char *const kinds[] = {"eagle3", "medusa", "dflash"};
    static const aerie_spec_type types[] = {AERIE_SPEC_EAGLE3, AERIE_SPEC_MEDUSA, AERIE_SPEC_DFLASH};
    uint32_t at = 0;
    (void)state;
    for (size_t i = FIRST(1); i < N_NAMES; i += SKIP)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            aerie_error error = {0};
            aerie_drafter_head *head;
            if (!test_takes(&at)) continue;
            char target[96];
            snprintf(target, sizeof target, "%s", path_of(names[i]));
            need(mkhead_write(&(mkhead_options){.kind = kinds[k]}, target, path_of("head"), &error), &error);
            need(aerie_drafter_head_load(&head, models[i], path_of("head"), NULL, &error), &error);
            n_checkpoints = 4;
            run_turns(i, types[k], head, kinds[k]);
            aerie_drafter_head_free(head);
            unlink(path_of("head"));
        }
}

/* ---- The model itself as its drafter ---------------------------------------------------------------------- */

static aerie_spec self_spec(int32_t n_experts, const char *layers, const char *skip_attn, const char *skip_ffn, aerie_tree tree)
{
    aerie_spec s = aerie_spec_default();
    s.type = AERIE_SPEC_MOE, s.ngram = false, s.n_max = 5, s.tree = tree;
    s.moe_experts = n_experts, s.moe_layers = layers, s.skip_attn = skip_attn, s.skip_ffn = skip_ffn;
    return s;
}

/* 0: dense. */
static bool has_experts(size_t i)
{
    aerie_session *session;
    aerie_session_params p = aerie_session_params_default();
    p.n_ctx = MKARCH_CTX, p.n_threads = 1;
    p.spec = self_spec(0, NULL, NULL, NULL, AERIE_TREE_OFF);
    const bool has = aerie_session_create(&session, models[i], &p, NULL) == AERIE_OK;
    if (has) aerie_session_free(session);
    return has;
}

/* One way to draft out of this many runs. */
#define THIN (AE_TEST_EVERY > 4 ? 8 : AE_TEST_EVERY > 1 ? 2 : 1)

static void test_same_tokens_from_itself(void **state)
{
    static run plain;
    static const struct {
        int32_t n_experts;
        const char *layers, *skip_attn, *skip_ffn;
        aerie_tree tree;
    } ways[] = {{1, NULL, NULL, NULL, AERIE_TREE_OFF},      {0, NULL, NULL, NULL, AERIE_TREE_AUTO},
                {1, "1-", NULL, "0", AERIE_TREE_AUTO},      {-1, NULL, "1-", NULL, AERIE_TREE_OFF},
                {0, "0", "0-", "1-", AERIE_TREE_AUTO},      {2, NULL, "0", NULL, AERIE_TREE_OFF}};
    size_t at = 0;
    uint32_t at_sampled = 0;
    (void)state;
    n_requests = n_most();
    for (size_t i = 0; i < N_ALL; i++) {
        const bool experts = has_experts(i);
        for (uint32_t sampling = 0; sampling < 2; sampling++) {
            bool known = false;
            for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
                if (!experts && !ways[w].skip_ffn) continue; /* its first layers may be recurrent */
                if ((i + 3 * sampling + w) % 4 || at++ % THIN || !test_takes(&at_sampled)) continue;
                if (!known) answer_plainly(i, sampling, &plain);
                known = true;
                aerie_spec spec =
                    self_spec(ways[w].n_experts, ways[w].layers, ways[w].skip_attn, ways[w].skip_ffn, ways[w].tree);
                char what[32];
                snprintf(what, sizeof what, "itself, way %zu", w);
                compare(i, what, w % 2 ? 8 : 1, sampling, &spec, w < 4, &plain);
            }
        }
    }
    n_requests = 4;
}

/* With nothing left out a draft is the model's own answer: all of it is accepted, so its rows see what true rows see. With
 * noise a draft ranks the 40 likeliest tokens only (ae_sampler_propose), while the flat logits of a tiny model make others
 * likely: so the draw has top-k 40 there, too. Without it there were 7 passes. */
static void test_drafts_with_all_experts_are_right(void **state)
{
    static run got;
    uint32_t at = 0;
    (void)state;
    for (size_t i = 0; i < N_ALL; i++) {
        if (!has_experts(i) || !test_takes(&at)) continue;
        for (uint32_t sampling = 0; sampling < 2; sampling++) {
            aerie_request requests[N_REQUESTS];
            const aerie_spec spec = self_spec(-1, NULL, NULL, NULL, AERIE_TREE_OFF);
            list_requests(requests, sampling);
            for (size_t k = 0; k < 4; k++) requests[k].sampling.top_k = sampling ? 40 : 0;
            aerie_session *session = session_of(i, 2, &spec, &(ae_session_test){.fixed = true});
            generate(session, models[i], requests, 4, &got);
            for (size_t k = 0; k < 4; k++)
                if (got.answers[k].stats.n_passes > test_fewer(N_PREDICT) / 6 + 1)
                    fail_msg("%s, sampling %u, request %zu: %u passes", names[i], sampling, k, got.answers[k].stats.n_passes);
            aerie_session_free(session);
        }
    }
}

/* ---- The mode changes at every pass ----------------------------------------------------------------------- */

static aerie_session *switched;
static int32_t modes_seen;

static bool switch_mode(void *user, const aerie_token_event *event)
{
    aerie_error error = {0};
    need(aerie_session_set_moe_experts(switched, modes_seen++ % 4 - 1, &error), &error);
    return on_token(user, event);
}

static void test_modes_change_at_every_pass(void **state)
{
    static run plain, got;
    const size_t i = 3; /* DeepSeek-V3's form */
    aerie_request requests[N_REQUESTS];
    aerie_error error = {0};
    aerie_stats stats;
    size_t n_passes = 0;
    (void)state;
    list_requests(requests, 1);
    aerie_spec spec = plain_spec();
    aerie_session *session = session_of(i, 1, &spec, NULL);
    generate(session, models[i], requests + 1, 1, &plain);
    aerie_session_free(session);
    spec = self_spec(1, NULL, NULL, NULL, AERIE_TREE_OFF);
    spec.n_max = 1;
    switched = session_of(i, 1, &spec, &(ae_session_test){.fixed = true});
    const size_t n_wanted = test_whole() ? 10000 / (size_t)AE_TEST_EVERY : 64;
    size_t n_live = 0;
    for (size_t round = 0; n_passes < n_wanted; round++) {
        if (round == 4) fail_alloc_arm(0, false); /* it has all its inputs now */
        got = (run){.n = 1};
        need(aerie_session_generate(switched, requests + 1, 1, switch_mode, &got, &stats, sizeof stats, &error), &error);
        got.answers[0].stats = stats;
        same_answer(&got.answers[0], &plain.answers[0], "modes that change", 0);
        n_passes += 2 * stats.n_passes; /* one drafts, one verifies */
        if (round == 4) n_live = fail_alloc_live(); /* the newest request's sampler */
        else assert_true(round < 4 || fail_alloc_live() == n_live);
    }
    fail_alloc_disarm();
    assert_int_equal(aerie_session_set_moe_experts(switched, -2, &error), AERIE_ERROR_ARGUMENT);
    assert_int_equal(aerie_session_set_moe_experts(switched, 99, &error), AERIE_ERROR_ARGUMENT);
    aerie_session_free(switched);
}

/* ---- A model with a drafter of its own as the drafter -------------------------------------------------------- */

enum { HELP_NONE, HELP_NGRAM, HELP_ITSELF, HELP_MODEL, N_HELPS };
static const size_t pairs[][2] = {{3, 2}, {0, 4}, {2, 2}, {5, 5}, {4, 0}}; /* target, intermediate model */
#define N_PAIRS (sizeof pairs / sizeof *pairs)

static aerie_spec hier_spec(size_t i_mid, int help, aerie_tree tree)
{
    static aerie_spec inner[2]; /* until the session is there */
    const char *skip = has_experts(i_mid) ? NULL : "0";
    inner[0] = plain_spec(), inner[1] = self_spec(1, NULL, NULL, NULL, AERIE_TREE_AUTO);
    if (help == HELP_NGRAM) inner[0].type = AERIE_SPEC_NGRAM;
    if (help == HELP_ITSELF) inner[0] = self_spec(1, NULL, NULL, skip, tree);
    if (help == HELP_MODEL) inner[0].type = AERIE_SPEC_HIER, inner[0].draft_model = models[5], inner[0].inner = &inner[1];
    inner[0].n_max = 4;
    aerie_spec s = aerie_spec_default();
    s.type = AERIE_SPEC_HIER, s.ngram = false, s.n_max = 5, s.tree = tree;
    s.draft_model = models[i_mid], s.inner = &inner[0];
    return s;
}

static void test_same_tokens_from_hierarchies(void **state)
{
    static run plain;
    size_t at = 0;
    uint32_t at_sampled = 0;
    (void)state;
    n_requests = n_most();
    for (size_t k = 0; k < N_PAIRS; k++) {
        for (uint32_t sampling = 0; sampling < 2; sampling++) {
            bool known = false;
            for (int help = 0; help < N_HELPS; help++) {
                if ((k + sampling + (size_t)help) % 3 || at++ % THIN || !test_takes(&at_sampled)) continue;
                if (!known) answer_plainly(pairs[k][0], sampling, &plain);
                known = true;
                char what[64];
                snprintf(what, sizeof what, "%s helped by %d", names[pairs[k][1]], help);
                const bool tree = (k + (size_t)help / 2) % 2;
                const aerie_spec spec = hier_spec(pairs[k][1], help, tree ? AERIE_TREE_AUTO : AERIE_TREE_OFF);
                compare(pairs[k][0], what, help / 2 == 1 ? 8 : 1, sampling, &spec, help != HELP_NGRAM, &plain);
            }
        }
    }
    n_requests = 4;
}

/* Everything at once: drafters alternate by pass (fixed), or the fastest drafts. */
static void test_same_tokens_from_any_of_several(void **state)
{
    static run plain;
    uint32_t at = 0;
    (void)state;
    n_requests = n_most();
    for (size_t k = 0; k < 2 * N_PAIRS; k += AE_TEST_EVERY > 4 ? 7 : 3) {
        if (!test_takes(&at)) continue;
        const size_t i = pairs[k / 2][0];
        const uint32_t sampling = k % 2;
        char what[64];
        answer_plainly(i, sampling, &plain);
        aerie_spec spec = hier_spec(pairs[k / 2][1], HELP_NGRAM, k % 3 ? AERIE_TREE_AUTO : AERIE_TREE_OFF);
        spec.type = AERIE_SPEC_AUTO, spec.ngram = k % 4 > 1, spec.moe_experts = 0;
        snprintf(what, sizeof what, "itself, %s, and both", names[pairs[k / 2][1]]);
        compare(i, what, k % 2 ? 8 : 1, sampling, &spec, k % 3 != 2, &plain);
    }
    n_requests = 4;
}

/* Names of the session's drafters, with commas. */
static const char *names_of(const aerie_session *session, char text[256])
{
    size_t n = 0;
    *text = '\0';
    for (uint32_t i = 0; aerie_session_drafter_name(session, i); i++)
        n += (size_t)snprintf(text + n, 256 - n, "%s%s", i ? "," : "", aerie_session_drafter_name(session, i));
    return text;
}

static void test_auto_names_what_it_has(void **state)
{
    char text[256];
    (void)state;
    aerie_spec spec = hier_spec(2, HELP_NGRAM, AERIE_TREE_AUTO);
    spec.type = AERIE_SPEC_AUTO, spec.ngram = true, spec.moe_experts = 1;
    aerie_session *session = session_of(3, 1, &spec, NULL);
    assert_string_equal(aerie_session_spec_name(session), "draft+hier+moe+ngram");
    assert_string_equal(names_of(session, text), "draft,hier,moe");
    aerie_session_free(session);
    spec = aerie_spec_default();
    session = session_of(2, 1, &spec, NULL); /* dense */
    assert_string_equal(aerie_session_spec_name(session), "ngram");
    assert_string_equal(names_of(session, text), "");
    aerie_session_free(session);
}

/* By default the number of experts in drafts is found by trial: each number is a drafter of its own. */
static void test_numbers_of_experts_are_tried(void **state)
{
    static const struct {
        size_t model;
        const char *names;
    } cases[] = {{3, "moe-0,moe-1"}, {5, "moe-0,moe-1"}, {6, "moe"}};
    static run plain;
    uint32_t at = 0;
    char text[256];
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        aerie_spec spec = aerie_spec_default();
        assert_int_equal(spec.moe_experts, AERIE_MOE_TRIAL);
        spec.type = AERIE_SPEC_MOE;
        aerie_session *session = session_of(cases[k].model, 1, &spec, NULL);
        assert_string_equal(aerie_session_spec_name(session), "moe+ngram");
        assert_string_equal(names_of(session, text), cases[k].names);
        aerie_session_free(session);
        for (uint32_t sampling = 0; sampling < 2; sampling++) { /* fixed: they take turns */
            if (!test_takes(&at)) continue;
            answer_plainly(cases[k].model, sampling, &plain);
            compare(cases[k].model, "numbers of experts in turn", sampling ? 8 : 1, sampling, &spec, true, &plain);
            if (!test_whole()) continue;
            compare(cases[k].model, "numbers of experts by trial", sampling ? 8 : 1, sampling, &spec, false, &plain);
        }
    }
    aerie_spec spec = aerie_spec_default(); /* without experts there is nothing to try */
    aerie_error error = {0};
    spec.type = AERIE_SPEC_MOE, spec.skip_ffn = "0";
    aerie_session *session = session_of(2, 1, &spec, NULL);
    assert_string_equal(names_of(session, text), "moe");
    aerie_session_free(session);
    spec = aerie_spec_default(), spec.type = AERIE_SPEC_MOE;
    session = session_of(3, 1, &spec, NULL); /* a number ends the trial */
    need(aerie_session_set_moe_experts(session, 1, &error), &error);
    assert_int_equal(aerie_session_set_moe_experts(session, AERIE_MOE_TRIAL, &error), AERIE_ERROR_ARGUMENT);
    aerie_session_free(session);
}

/* The drafts of an intermediate model do not depend on its own drafter, and where it is the target itself, all of them are
 * accepted: so the state that it keeps from one draft to the next is right. */
static void test_help_changes_no_draft(void **state)
{
    static run got[N_HELPS];
    uint32_t at = 0;
    (void)state;
    for (size_t k = 0; k < N_PAIRS; k++) {
        const size_t i = pairs[k][0];
        for (uint32_t sampling = 0; sampling < 2; sampling++) {
            if ((k + sampling) % 2 || !test_takes(&at)) continue;
            for (int help = 0; help < N_HELPS; help += test_whole() ? 1 : HELP_ITSELF) {
                aerie_request requests[N_REQUESTS];
                aerie_spec spec = hier_spec(pairs[k][1], help, AERIE_TREE_OFF);
                spec.min_draft_length = AERIE_MAX_DRAFT;
                list_requests(requests, sampling);
                aerie_session *session = session_of(i, 2, &spec, &(ae_session_test){.fixed = true});
                generate(session, models[i], requests + 1, 2, &got[help]);
                aerie_session_free(session);
                for (size_t r = 0; r < 2; r++) {
                    const aerie_stats *a = &got[HELP_NONE].answers[r].stats, *b = &got[help].answers[r].stats;
                    if (a->n_drafted != b->n_drafted || a->n_accepted != b->n_accepted)
                        fail_msg("pair %zu, sampling %u, request %zu: %u of %u accepted without help, %u of %u with %d", k,
                                 sampling, r, a->n_accepted, a->n_drafted, b->n_accepted, b->n_drafted, help);
                    if (i == pairs[k][1] && b->n_passes > test_fewer(N_PREDICT) / 6 + 1)
                        fail_msg("pair %zu, sampling %u, request %zu, help %d: %u passes", k, sampling, r, help, b->n_passes);
                }
            }
        }
    }
}

static void test_hierarchies_that_cannot_be(void **state)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params p = aerie_session_params_default();
    (void)state;
    p.n_ctx = MKARCH_CTX, p.n_threads = 1;
    p.spec.type = AERIE_SPEC_HIER;
    assert_int_equal(aerie_session_create(&session, models[3], &p, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "intermediate"));
    p.spec = hier_spec(2, HELP_ITSELF, AERIE_TREE_OFF); /* the intermediate model's own drafter is checked, too */
    ((aerie_spec *)p.spec.inner)->skip_ffn = "99";
    assert_int_equal(aerie_session_create(&session, models[3], &p, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "--draft-skip-ffn"));
    p.spec = hier_spec(2, HELP_NONE, AERIE_TREE_OFF);
    p.spec.min_draft_length = AERIE_MAX_DRAFT + 1;
    assert_int_equal(aerie_session_create(&session, models[3], &p, &error), AERIE_ERROR_ARGUMENT);
}

static void test_modes_that_cannot_be(void **state)
{
    static const struct {
        int32_t n_experts;
        const char *layers, *skip_attn, *skip_ffn, *sentence;
    } bad[] = {{-3, NULL, NULL, NULL, "experts"},      {100, NULL, NULL, NULL, "experts"},
               {1, "", NULL, NULL, "--moe-draft-layers"}, {1, "1,", NULL, NULL, "--moe-draft-layers"},
               {1, "3-1", NULL, NULL, "--moe-draft-layers"}, {1, "x", NULL, NULL, "--moe-draft-layers"},
               {1, NULL, "99", NULL, "--draft-skip-attn"}, {1, NULL, NULL, "-1", "--draft-skip-ffn"},
               {1, NULL, NULL, "0-99999999999999999999", "--draft-skip-ffn"}, {1, NULL, NULL, "0 ", "--draft-skip-ffn"}};
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params p = aerie_session_params_default();
    (void)state;
    p.n_ctx = MKARCH_CTX, p.n_threads = 1;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        p.spec = self_spec(bad[k].n_experts, bad[k].layers, bad[k].skip_attn, bad[k].skip_ffn, AERIE_TREE_OFF);
        assert_int_equal(aerie_session_create(&session, models[3], &p, &error), AERIE_ERROR_ARGUMENT);
        assert_non_null(strstr(error.text, bad[k].sentence));
    }
    p.spec = self_spec(1, NULL, NULL, NULL, AERIE_TREE_OFF);
    assert_int_equal(aerie_session_create(&session, models[2], &p, &error), AERIE_ERROR_ARGUMENT); /* lfm2 is dense */
    assert_non_null(strstr(error.text, "--draft-skip-attn"));
    p.spec = self_spec(1, NULL, "0", NULL, AERIE_TREE_OFF);
    assert_int_equal(aerie_session_create(&session, models[2], &p, &error), AERIE_ERROR_ARGUMENT); /* a convolution */
    assert_non_null(strstr(error.text, "'0' (--draft-skip-attn)"));
    p.spec = plain_spec();
    need(aerie_session_create(&session, models[3], &p, &error), &error);
    assert_int_equal(aerie_session_set_moe_experts(session, 1, &error), AERIE_ERROR_ARGUMENT);
    aerie_session_free(session);
}

static int make_models(void **state)
{
    uint64_t random = 3;
    (void)state;
    if (!mkdtemp(folder)) return 1;
    for (size_t i = 0; i < N_ALL; i++) {
        aerie_error error = {0};
        need(mkarch_write(mkarch_find(names[i]), true, path_of(names[i]), &error), &error);
        models[i] = load(path_of(names[i]), "");
        plain_models[i] = load_plain(path_of(names[i]), models[i]);
    }
    while (eog < MKARCH_VOCAB && !aerie_model_token_is_eog(models[0], eog)) eog++;
    for (size_t i = 0; i < N_REQUESTS; i++)
        for (size_t k = 0; k < 128; k++) prompts[i][k] = 3 + (int32_t)(mk_random(&random) % (MKARCH_VOCAB - 8));
    memcpy(prompts[3], prompts[2], 40 * sizeof prompts[2][0]); /* two begin alike */
    return eog == MKARCH_VOCAB;
}

static int drop_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ALL; i++) {
        free_plain(plain_models[i], models[i]);
        aerie_model_free(models[i]);
        unlink(path_of(names[i]));
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_tokens),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_turns_with_heads),
        cmocka_unit_test(test_same_tokens_from_itself),
        cmocka_unit_test(test_drafts_with_all_experts_are_right),
        cmocka_unit_test(test_modes_change_at_every_pass),
        cmocka_unit_test(test_modes_that_cannot_be),
        cmocka_unit_test(test_same_tokens_from_hierarchies),
        cmocka_unit_test(test_same_tokens_from_any_of_several),
        cmocka_unit_test(test_auto_names_what_it_has),
        cmocka_unit_test(test_numbers_of_experts_are_tried),
        cmocka_unit_test(test_help_changes_no_draft),
        cmocka_unit_test(test_hierarchies_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, make_models, drop_models);
}

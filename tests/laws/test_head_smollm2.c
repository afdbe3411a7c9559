/* test_head_smollm2.c - drafter heads of every kind on a real target, SmolLM2, if its file is there (AERIE_MODEL).
 *
 * Five checks that a broken data path cannot all pass: a drafter that knows the text is always accepted; one that guesses is
 * hardly ever accepted; the acceptance of drafts that are made again from true rows, at the first depth and after the head's
 * own rows, equals the acceptance online (head_rig.inc); and figures vary with head, type and prompt. Heads with random weights
 * are hardly ever right; the trained one is the head that lies beside the model.
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
#include "mkhead.h"
#include "convert/quantize/rewrite.h"
#include "spec_rig.inc"

#define N_CTX 256
#define N_PREDICT 32

#include "head_rig.inc"

static const char *const texts[] = {
    "<|im_start|>user\nWhat is 12 times 7? Explain each step.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWrite a few lines about the sea.<|im_end|>\n<|im_start|>assistant\n",
};
#define N_TEXTS 2

static const struct kind {
    const char *name;
    mkhead_options options;
    aerie_spec_type type;
} kinds[] = {
    {"eagle", {.kind = "eagle", .n_draft = 4096}, AERIE_SPEC_EAGLE},
    {"eagle3", {.kind = "eagle3", .n_draft = 4096}, AERIE_SPEC_EAGLE3},
    {"eagle3.1", {.kind = "eagle3.1", .n_draft = 4096}, AERIE_SPEC_EAGLE3},
    {"medusa", {.kind = "medusa", .n_draft = 4096}, AERIE_SPEC_MEDUSA},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

static const char *model_path, *head_path;
static aerie_model *target;
static int32_t *prompts[N_TEXTS];
static size_t n_prompt[N_TEXTS];

static int find_files(void **state)
{
    (void)state;
    aerie_error error = {0};
    model_path = getenv("AERIE_MODEL"), head_path = getenv("AERIE_HEAD");
    if (!model_path) model_path = "models/smollm2-135m-instruct-q4_1.gguf";
    if (!head_path) head_path = "models/smollm2-135m-instruct-eagle3.gguf";
    if (access(model_path, R_OK) || !mkdtemp(folder)) return 0;
    target = load(model_path, NULL);
    for (size_t i = 0; i < N_TEXTS; i++)
        if (aerie_model_tokenize(target, texts[i], strlen(texts[i]), true, true, &prompts[i], &n_prompt[i], &error) != AERIE_OK)
            return 1;
    for (size_t i = 0; i < N_KINDS; i++)
        if (mkhead_write(&kinds[i].options, model_path, path_of(kinds[i].name), &error) != AERIE_OK) {
            print_error("%s: %s\n", kinds[i].name, error.text);
            return 1;
        }
    return 0;
}

static int drop_files(void **state)
{
    (void)state;
    if (!target) return 0;
    for (size_t i = 0; i < N_KINDS; i++) unlink(path_of(kinds[i].name));
    for (size_t i = 0; i < N_TEXTS; i++) aerie_free(prompts[i]);
    aerie_model_free(target);
    return rmdir(folder);
}

static void skip_without(const char *path)
{
    if (!access(path, R_OK)) return;
    print_message("skip: there is no %s (AERIE_MODEL and AERIE_HEAD can name others)\n", path);
    skip();
}

/* known: the answers for the oracle, or NULL. */
static void answer_all(const aerie_spec *spec, bool fixed, uint32_t n_seqs, const run *known, run *r)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params params = aerie_session_params_default();
    aerie_request requests[N_TEXTS];
    params.n_ctx = N_CTX, params.n_seqs = n_seqs, params.n_threads = 1;
    params.spec = *spec;
    need(ae_session_create_for_test(&session, target, &params, &(ae_session_test){.fixed = fixed}, &error), &error);
    if (known) tell_oracle(session, known);
    for (size_t i = 0; i < N_TEXTS; i++) {
        requests[i] = aerie_request_default();
        requests[i].tokens = prompts[i], requests[i].n_tokens = n_prompt[i];
        requests[i].n_predict = N_PREDICT;
        requests[i].ignore_eos = true;
        requests[i].sampling = sampling_of(0);
    }
    generate(session, target, requests, N_TEXTS, r);
    aerie_session_free(session);
}

/* a, b: bounds for every head, and law 1 for each kind. */
static void test_bounds_and_same_tokens(void **state)
{
    (void)state;
    skip_without(model_path);
    static run plain, r;
    aerie_error error = {0};
    aerie_spec spec = aerie_spec_default();
    spec.type = AERIE_SPEC_NONE;
    answer_all(&spec, false, 1, NULL, &plain);
    spec.n_max = 4, spec.tree = AERIE_TREE_OFF;
    for (int oracle = 0; oracle < 2; oracle++) {
        spec.type = oracle ? AE_SPEC_ORACLE : AE_SPEC_RANDOM;
        answer_all(&spec, true, 1, oracle ? &plain : NULL, &r);
        for (size_t i = 0; i < N_TEXTS; i++) {
            const aerie_stats *s = &r.answers[i].stats;
            same_answer(&r.answers[i], &plain.answers[i], oracle ? "oracle" : "random", i);
            assert_true(s->n_drafted >= N_PREDICT / 5 * 4 - 4);
            if (oracle) assert_int_equal(s->n_accepted, s->n_drafted);
            else assert_true(s->n_accepted <= 2);
        }
    }
    spec.tree = AERIE_TREE_DYNAMIC;
    for (size_t k = 0; k < N_KINDS; k++) {
        spec.type = kinds[k].type;
        need(aerie_drafter_head_load((aerie_drafter_head **)&spec.head, target, path_of(kinds[k].name), NULL, &error), &error);
        answer_all(&spec, true, 1 + (uint32_t)k % 2, NULL, &r);
        for (size_t i = 0; i < N_TEXTS; i++) same_answer(&r.answers[i], &plain.answers[i], kinds[k].name, i);
        aerie_drafter_head_free((aerie_drafter_head *)spec.head);
    }
}

static pure_run task_of(const char *head, uint32_t n_predict)
{
    pure_run task = {.target = model_path, .head = head, .n_requests = N_TEXTS, .n_predict = n_predict};
    for (size_t i = 0; i < N_TEXTS; i++) task.prompts[i] = prompts[i], task.n_prompt[i] = n_prompt[i];
    return task;
}

/* c, d, with heads that are wrong nearly always. */
static void test_random_heads_draft_the_same_again(void **state)
{
    (void)state;
    skip_without(model_path);
    for (size_t k = 0; k < N_KINDS; k++) {
        tally t;
        if (AE_TEST_EVERY > 4 && (k ^ k / 2) % 2) continue; /* half of the kinds, in both shapes */
        const pure_run task = task_of(path_of(kinds[k].name), 8);
        check_pure(&task, k % 2 ? AE_DRAFT_DYNAMIC : AE_DRAFT_CHAIN, 1 + (uint32_t)k / 2, k % 3 ? 0 : 0.7f, &t);
        assert_true(t.n_trees >= 10 && t.online[1] <= 2);
    }
}

/* The head in 4 bits. */
static void write_again(const char *path)
{
    aerie_error error = {0};
    ae_gguf *gguf;
    ae_rewrite *rewrite;
    ae_rewrite_settings settings = ae_rewrite_settings_default(ae_mix_by_name("Q4_0"));
    settings.pure = settings.allow_requantize = true;
    need(ae_gguf_open(&gguf, head_path, NULL, &error), &error);
    need(ae_rewrite_plan(&rewrite, gguf, &settings, &error), &error);
    need(ae_rewrite_begin(rewrite, path, &error), &error);
    need(ae_rewrite_run(rewrite, 1, NULL, NULL, &error), &error);
    ae_rewrite_free(rewrite);
    ae_gguf_close(gguf);
}

/* c, d and e with a head that has learned its target. */
static void test_the_trained_head_is_right_as_often_again(void **state)
{
    (void)state;
    skip_without(model_path);
    skip_without(head_path);
    tally chain, tree, other;
    pure_run task = task_of(head_path, N_PREDICT);
    check_pure(&task, AE_DRAFT_CHAIN, 1, 0, &chain);
    check_pure(&task, AE_DRAFT_DYNAMIC, 2, 0.7f, &tree);
    write_again(path_of("other"));
    task.head = path_of("other");
    check_pure(&task, AE_DRAFT_CHAIN, 2, 0, &other);
    unlink(path_of("other"));
    print_message("chains of 4, %u rounds: accepted %u %u %u %u by depth, %u and %u by prompt; "
                  "in 4 bits, %u rounds: %u %u %u %u\n",
                  chain.n_rounds, chain.online[1], chain.online[2], chain.online[3], chain.online[4],
                  chain.accepted[0], chain.accepted[1],
                  other.n_rounds, other.online[1], other.online[2], other.online[3], other.online[4]);
    assert_true(chain.online[1] * 4 > chain.n_rounds && chain.online[1] < chain.n_rounds);
    assert_true(chain.online[2] > 0 && chain.online[2] < chain.online[1]);
    assert_int_not_equal(chain.accepted[0], chain.accepted[1]);
    assert_true(memcmp(chain.online, other.online, sizeof chain.online) != 0);
    assert_true(tree.online[1] > 0 && memcmp(chain.online, tree.online, sizeof chain.online) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_and_same_tokens),
        cmocka_unit_test(test_random_heads_draft_the_same_again),
        cmocka_unit_test(test_the_trained_head_is_right_as_often_again),
    };
    return cmocka_run_group_tests(tests, find_files, drop_files);
}

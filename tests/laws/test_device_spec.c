/* test_device_spec.c - law 1 across devices, through aerie.h: texts generated on the device under test, plainly, with drafters,
 * for several sequences and after prefixes that are known, are those that the CPU's reference generates one row at a time.
 *
 * The device is named by AERIE_TEST_DEVICE; without it it is "emu", and where the build has none everything is skipped. */
#define _XOPEN_SOURCE 700 /* mkdtemp, setenv */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_PREDICT 16
#include "device/device.h"
#include "every.h"
#include "mkarch.h"
#include "spec_rig.inc"

static const struct target {
    const char *name, *arch, *shape, *type; /* arch: of mkarch; NULL: shape and type of mkmodel */
    aerie_kv_type kv;
} targets[] = {
    {"a", NULL, "tiny", "q4_0", AERIE_KV_F16},
    {"b", NULL, "tiny-gqa", "q4_k_m", AERIE_KV_Q8_0},
    {"c", "gemma3", NULL, NULL, AERIE_KV_F16},
    {"d", NULL, "tiny-moe", "q8_0", AERIE_KV_F16},
    {"e", "qwen35", NULL, NULL, AERIE_KV_F16},
    {"f", "deepseek4", NULL, NULL, AERIE_KV_F16},
    {"g", "minimax-m3", NULL, NULL, AERIE_KV_Q4_0},
};
#define N_TARGETS (sizeof targets / sizeof targets[0])
#define N_PROMPTS 3

static const char *device;
static int32_t prompts[N_PROMPTS][80];
static const size_t prompt_lengths[N_PROMPTS] = {70, 5, 68}; /* the last shares 66 tokens with the first */

static int make(void **state)
{
    (void)state;
    aerie_error error = {0};
    uint64_t random = 5;
    if (!mkdtemp(folder)) return 1;
    for (size_t i = 0; i < N_TARGETS; i++) {
        mk_options o;
        if (targets[i].arch) {
            need(mkarch_write(mkarch_find(targets[i].arch), true, path_of(targets[i].name), &error), &error);
            continue;
        }
        mk_shape(targets[i].shape, &o);
        o.type = targets[i].type, o.n_layers = 2, o.layer_decay = 0.25f;
        need(mk_model(&o, path_of(targets[i].name), &error), &error);
        o.n_layers = 1;
        if (!i) need(mk_model(&o, path_of("draft"), &error), &error);
    }
    for (size_t i = 0; i < N_PROMPTS; i++)
        for (size_t k = 0; k < 80; k++) prompts[i][k] = (int32_t)(mk_random(&random) % 250);
    memcpy(prompts[2], prompts[0], 66 * sizeof **prompts);
    for (size_t k = 40; k < 80; k++) prompts[0][k] = prompts[2][k] = prompts[0][k - 16]; /* for n-grams */
    return 0;
}

static int drop(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TARGETS; i++) unlink(path_of(targets[i].name));
    unlink(path_of("draft"));
    return rmdir(folder);
}

static aerie_model *load_on(const char *name, const char *backend)
{
    setenv("AERIE_BACKEND", backend, 1);
    return load(path_of(name), strcmp(backend, "cpu") ? NULL : "ref");
}

static aerie_request request_of(size_t i, uint32_t sampling)
{
    aerie_request r = aerie_request_default();
    r.tokens = prompts[i], r.n_tokens = prompt_lengths[i], r.n_predict = MAX_PREDICT, r.ignore_eos = true;
    r.sampling = sampling_of(sampling);
    return r;
}

/* NULL: the device declines it. */
static aerie_session *open_session(const aerie_model *model, aerie_spec_type type, const aerie_model *draft, aerie_kv_type kv,
                                   uint32_t n_batch)
{
    aerie_error error = {0};
    aerie_session *session = NULL;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = 128, params.n_seqs = N_PROMPTS, params.n_batch = n_batch, params.n_threads = 1, params.kv_type = kv;
    params.spec.type = type, params.spec.draft_model = draft;
    params.spec.n_max = 5, params.spec.tree = AERIE_TREE_AUTO;
    const ae_session_test test = {.fixed = true, .oracle_error = 0.3f, .seed = 3};
    const aerie_status status = ae_session_create_for_test(&session, model, &params, &test, &error);
    if (status == AERIE_ERROR_UNSUPPORTED) print_message("declined: %s\n", error.text);
    else need(status, &error);
    return session;
}

static const struct drafter {
    const char *name;
    aerie_spec_type type;
    bool has_model;
} drafters[] = {
    {"plain", AERIE_SPEC_NONE, false},
    {"oracle", AE_SPEC_ORACLE, false},
    {"random", AE_SPEC_RANDOM, false},
    {"n-gram", AERIE_SPEC_NGRAM, false},
    {"draft model", AERIE_SPEC_DRAFT, true},
};
#define N_DRAFTERS (sizeof drafters / sizeof drafters[0])

/* All requests at once, then again with known prompts. */
static void check(const aerie_model *model, const aerie_model *draft, const struct target *t, const struct drafter *d,
                  const aerie_request *requests, const run *expected)
{
    static run got;
    char what[96];
    aerie_error error = {0};
    if (d->has_model && strcmp(t->name, "a")) return;
    aerie_session *session = open_session(model, d->type, d->has_model ? draft : NULL, t->kv, 40);
    if (!session) return;
    if (d->type == AE_SPEC_ORACLE) tell_oracle(session, expected);
    for (int round = 0; round < 2; round++) {
        aerie_stats stats[N_PROMPTS];
        memset(&got, 0, sizeof got);
        got.n = N_PROMPTS;
        snprintf(what, sizeof what, "%s on %s, %s, round %d", t->arch ? t->arch : t->shape, device, d->name, round);
        const aerie_status status = aerie_session_generate(session, requests, N_PROMPTS, on_token, &got, stats, sizeof *stats,
                                                           &error);
        if (status == AERIE_ERROR_UNSUPPORTED) {
            print_message("declined: %s: %s\n", what, error.text);
            break;
        }
        need(status, &error);
        for (size_t i = 0; i < N_PROMPTS; i++) {
            got.answers[i].stats = stats[i];
            same_answer(&got.answers[i], &expected->answers[i], what, i);
            if (round && i != 1 && !stats[i].n_cached) fail_msg("%s: the prompt of request %zu was not known", what, i);
            if (d->type == AE_SPEC_ORACLE && !stats[i].n_accepted) fail_msg("%s: no draft was accepted", what);
        }
    }
    aerie_session_free(session);
}

static void test_same_texts(void **state)
{
    (void)state;
    uint32_t n = 0;
    aerie_model *draft = load_on("draft", device);
    for (size_t i = 0; i < N_TARGETS; i++) {
        static run expected;
        aerie_request requests[N_PROMPTS];
        for (size_t k = 0; k < N_PROMPTS; k++) requests[k] = request_of(k, (uint32_t)(i + k) % N_SAMPLINGS);
        aerie_model *cpu = load_on(targets[i].name, "cpu");
        aerie_session *plain = open_session(cpu, AERIE_SPEC_NONE, NULL, targets[i].kv, 1);
        memset(&expected, 0, sizeof expected);
        expected.n = N_PROMPTS;
        for (size_t k = 0; k < N_PROMPTS; k++) { /* one after the other */
            static run one;
            generate(plain, cpu, &requests[k], 1, &one);
            expected.answers[k] = one.answers[0];
        }
        aerie_session_free(plain);
        aerie_model_free(cpu);
        aerie_model *model = load_on(targets[i].name, device);
        for (size_t d = 0; d < N_DRAFTERS; d++)
            if (n++ % (uint32_t)AE_TEST_EVERY == 0) check(model, draft, &targets[i], &drafters[d], requests, &expected);
        aerie_model_free(model);
    }
    aerie_model_free(draft);
}

/* false: the build has no such device, and none was asked for. */
static bool find_device(void)
{
    const char *said = getenv("AERIE_TEST_DEVICE");
    ae_backend *backend;
    aerie_error error = {0};
    device = said && *said ? said : "emu";
    const aerie_status status = ae_backend_open(&backend, device, "", &error);
    if (status == AERIE_OK) test_hold_device(device), ae_backend_close(backend);
    else print_message("%s\n", error.text);
    if (status == AERIE_ERROR_UNSUPPORTED && getenv("AERIE_TEST_OPTIONAL")) return false;
    return status == AERIE_OK || (said && *said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_texts),
    };
    if (!find_device()) return 77;
    return cmocka_run_group_tests(tests, make, drop);
}

/* test_split_spec.c - law 1 over several devices, through aerie.h: the devices of a model's layers change neither its answers
 * nor its drafters' drafts, for every number of layers on the second device.
 *
 * Drafters always draft, so that both runs make the same calls; the numbers of drafted and accepted tokens at each depth must
 * then be equal, too. The KV cache is too small for all requests at once: some are preempted. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_PREDICT 24
#include "aerie_extra.h"
#include "every.h"
#include "mkarch.h"
#include "mkhead.h"
#include "session/session_int.h"
#include "spec_rig.inc"

#define N_PROMPTS 5
#define N_KV 320 /* positions; the requests together want more than 400 */

static int32_t prompts[N_PROMPTS][80];
static const size_t prompt_lengths[N_PROMPTS] = {70, 5, 68, 33, 64};

static aerie_model *open_model(const char *name, const char *devices, uint32_t n_layers, uint32_t n_cpu_moe, uint32_t n_cpu_ffn)
{
    aerie_error error = {0};
    aerie_model *model;
    aerie_model_params params = aerie_model_params_default();
    params.n_threads = 1, params.backend = devices;
    params.n_gpu_layers = n_layers, params.n_cpu_moe = n_cpu_moe, params.n_cpu_ffn = n_cpu_ffn;
    need(aerie_model_load(&model, path_of(name), &params, &error), &error);
    return model;
}

static const struct kind {
    const char *target, *file; /* NULL: no head or draft model */
    aerie_spec_type type;
} kinds[] = {
    {"llama", "llama-eagle3", AERIE_SPEC_EAGLE3}, /* taps on both sides of a border */
    {"llama", "llama-medusa", AERIE_SPEC_MEDUSA},
    {"tied", "tied-eagle3", AERIE_SPEC_EAGLE3},   /* token embeddings that are the output, too */
    {"llama", "llama", AERIE_SPEC_DRAFT},
    {"qwen3moe", NULL, AERIE_SPEC_MOE},
    {"qwen35-mtp", "qwen35-mtp", AERIE_SPEC_MTP},
    {"gemma3", NULL, AERIE_SPEC_NGRAM},
    {"gemma4-31b", "gemma4-31b.assistant", AERIE_SPEC_MTP},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

/* The answers. false: the head does not fit this split. */
static bool answer_all(const struct kind *k, const aerie_model *model, run *got, void **saved, size_t *n_saved)
{
    aerie_error error = {0};
    aerie_drafter_head *head = NULL;
    aerie_session *session;
    aerie_stats stats[N_PROMPTS];
    aerie_request requests[N_PROMPTS];
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = 128, params.n_seqs = N_PROMPTS, params.n_batch = 40, params.n_threads = 1, params.n_kv = N_KV;
    params.spec.type = k->type, params.spec.n_max = 4, params.spec.tree = AERIE_TREE_AUTO;
    if (k->file && k->type == AERIE_SPEC_DRAFT) {
        params.spec.draft_model = model;
    } else if (k->file) {
        const aerie_status status = aerie_drafter_head_load(&head, model, path_of(k->file), NULL, &error);
        if (status == AERIE_ERROR_UNSUPPORTED && strstr(error.text, "is on another device")) return false;
        need(status, &error);
        params.spec.head = head;
    }
    const ae_session_test test = {.fixed = true, .seed = 3};
    need(ae_session_create_for_test(&session, model, &params, &test, &error), &error);
    for (size_t i = 0; i < N_PROMPTS; i++) {
        requests[i] = aerie_request_default();
        requests[i].tokens = prompts[i], requests[i].n_tokens = prompt_lengths[i];
        requests[i].n_predict = MAX_PREDICT, requests[i].ignore_eos = true;
        requests[i].sampling = sampling_of((uint32_t)i % N_SAMPLINGS);
    }
    memset(got, 0, sizeof *got);
    got->n = N_PROMPTS;
    need(aerie_session_generate(session, requests, N_PROMPTS, on_token, got, stats, sizeof *stats, &error), &error);
    for (size_t i = 0; i < N_PROMPTS; i++) got->answers[i].stats = stats[i];
    need(aerie_session_prefix_save(session, 0, NULL, 0, prompts[4], prompt_lengths[4], saved, n_saved, &error), &error);
    aerie_session_free(session);
    aerie_drafter_head_free(head);
    return true;
}

static void compare(const struct kind *k, const char *devices, uint32_t n_layers, uint32_t n_cpu_moe, uint32_t n_cpu_ffn,
                    const run *wanted, const void *saved, size_t n_saved, uint32_t *n_run)
{
    static run got;
    char what[128];
    void *bytes;
    size_t n;
    aerie_model *model = open_model(k->target, devices, n_layers, n_cpu_moe, n_cpu_ffn);
    snprintf(what, sizeof what, "%s with %s, -dev %s -ngl %u -ncmoe %u -ncffn %u", k->target,
             k->file ? k->file : aerie_spec_type_name(k->type), devices, n_layers, n_cpu_moe, n_cpu_ffn);
    if (answer_all(k, model, &got, &bytes, &n)) {
        for (size_t i = 0; i < N_PROMPTS; i++) {
            const aerie_stats *a = &got.answers[i].stats, *b = &wanted->answers[i].stats;
            same_answer(&got.answers[i], &wanted->answers[i], what, i);
            if (memcmp(a->drafted_at, b->drafted_at, sizeof a->drafted_at) ||
                memcmp(a->accepted_at, b->accepted_at, sizeof a->accepted_at) || a->n_passes != b->n_passes)
                fail_msg("%s: request %zu: %u of %u drafts accepted, on one device %u of %u", what, i, a->n_accepted,
                         a->n_drafted, b->n_accepted, b->n_drafted);
        }
        if (n != n_saved || memcmp(bytes, saved, n)) fail_msg("%s: the saved sequence differs", what);
        aerie_free(bytes);
        ++*n_run;
    }
    aerie_model_free(model);
}

static void test_every_number_of_layers(void **state)
{
    (void)state;
    const int every = AE_TEST_EVERY > 6 ? AE_TEST_EVERY / 6 : 1;
    int n_cases = 0;
    for (size_t i = 0; i < N_KINDS; i++) {
        static run wanted;
        const struct kind *k = &kinds[i];
        void *saved;
        size_t n_saved;
        uint32_t n_drafted = 0, n_run = 0;
        aerie_model_info info;
        aerie_model *model = open_model(k->target, "cpu", 0, 0, 0);
        aerie_model_info_get(model, &info, sizeof info);
        assert_true(answer_all(k, model, &wanted, &saved, &n_saved));
        aerie_model_free(model);
        for (size_t p = 0; p < N_PROMPTS; p++) n_drafted += wanted.answers[p].stats.n_drafted;
        assert_true(n_drafted > 0);
        for (uint32_t n = 1; n <= info.n_layers + 1; n++)
            if (n_cases++ % every == 0) compare(k, "cpu-strict", n, 0, 0, &wanted, saved, n_saved, &n_run);
        if (n_cases++ % every == 0) compare(k, "cpu,cpu-strict", 0, 0, 0, &wanted, saved, n_saved, &n_run);
        if (n_cases++ % every == 0) compare(k, "cpu-strict,cpu", 0, 0, 0, &wanted, saved, n_saved, &n_run);
        if (n_cases++ % every == 0) compare(k, "cpu-strict", 0, UINT32_MAX, 0, &wanted, saved, n_saved, &n_run);
        if (n_cases++ % every == 0) compare(k, "cpu-strict", 2, 1, 2, &wanted, saved, n_saved, &n_run);
        assert_true(n_run > 0 || every > 1);
        aerie_free(saved);
    }
}

/* ---- Blocks placed by the names of their weights ----------------------------------------------------------- */

static void note_idle(void *user, aerie_log_level level, const char *text)
{
    uint32_t *n = user;
    if (level != AERIE_LOG_WARNING) return;
    *n += strstr(text, " has no effect") != NULL;
    if (strstr(text, "4 placements have no effect ('a1=cpu', 'a2=cpu', 'a3=cpu', ...): ")) *n += 100 + (uint32_t)atoi(text);
}

/* on_cpu: bits of the layers whose feed-forward block is then on the CPU; the others are on cpu-strict. n_idle: the placements
 * that match nothing. */
static void compare_placed(const char *name, const char *const *placements, size_t n, uint32_t on_cpu, uint32_t n_idle)
{
    static run wanted, got;
    const struct kind k = {name, NULL, AERIE_SPEC_NGRAM};
    aerie_error error = {0};
    aerie_model *model = open_model(name, "cpu", 0, 0, 0);
    aerie_model_params p = aerie_model_params_default();
    uint32_t n_warned = 0;
    void *saved[2];
    size_t n_saved[2];
    assert_true(answer_all(&k, model, &wanted, &saved[0], &n_saved[0]));
    aerie_model_free(model);
    p.n_threads = 1, p.backend = "cpu-strict", p.placements = placements, p.n_placements = n;
    p.log = (aerie_log){note_idle, &n_warned};
    need(aerie_model_load(&model, path_of(name), &p, &error), &error);
    const ae_split *split = &model->net->split;
    for (uint32_t i = 0; i < model->model->hparams.n_layers; i++) {
        const char *device = split->devices[split->ffn[i]]->ops->name;
        if ((strcmp(device, "cpu") == 0) != (on_cpu >> i & 1))
            fail_msg("%s, %s: the feed-forward block of layer %u is on %s", name, placements[0], i, device);
    }
    assert_int_equal(n_warned, n_idle);
    assert_true(answer_all(&k, model, &got, &saved[1], &n_saved[1]));
    for (size_t i = 0; i < N_PROMPTS; i++) same_answer(&got.answers[i], &wanted.answers[i], placements[0], i);
    assert_int_equal(n_saved[0], n_saved[1]);
    assert_memory_equal(saved[0], saved[1], n_saved[0]);
    aerie_free(saved[0]);
    aerie_free(saved[1]);
    aerie_model_free(model);
}

static void test_placements(void **state)
{
    (void)state;
    compare_placed("llama", (const char *const[]){"blk\\.(0|2)\\.ffn_down=CPU"}, 1, 5, 0); /* a part moves the whole block */
    compare_placed("llama", (const char *const[]){"FFN=cpu", "attn=cpu"}, 2, 15, 1);
    compare_placed("llama", (const char *const[]){"ffn_(up|gate)=Cpu-Strict", "ffn=cpu"}, 2, 0, 0); /* most of the bytes */
    compare_placed("llama", (const char *const[]){"ffn_down=cpu-strict0", "blk.3.*ffn=cpu"}, 2, 8, 0);
    /* any number of placements without effect is told in one line */
    compare_placed("llama", (const char *const[]){"a1=cpu", "a2=cpu", "ffn=cpu", "a3=cpu", "a4=cpu"}, 5, 15, 104);
    compare_placed("qwen3moe", (const char *const[]){"exps=CPU"}, 1, UINT32_MAX, 0);
}

/* ---- Refusals ------------------------------------------------------------------------------------------- */

static void refuses(const aerie_model_params *params, const char *text)
{
    aerie_error error = {0};
    aerie_model *model = NULL;
    assert_int_not_equal(aerie_model_load(&model, path_of("llama"), params, &error), AERIE_OK);
    if (model || !strstr(error.text, text)) fail_msg("'%s' does not contain '%s'", error.text, text);
}

static void test_wrong_parameters(void **state)
{
    (void)state;
    aerie_model_params p = aerie_model_params_default();
    const float shares[] = {1, -1}, zeros[] = {0, 0};
    p.n_threads = 1, p.backend = "cpu,";
    refuses(&p, "has an empty name");
    p.backend = "cpu,cpu";
    refuses(&p, "device cpu is named twice");
    p.backend = "cpu,tpu";
    refuses(&p, "backend \"tpu\" is unknown");
    p.backend = "cpu,cpu-strict", p.n_gpu_layers = 1;
    refuses(&p, "give one or the other");
    p.n_gpu_layers = 0, p.tensor_split = shares, p.n_tensor_split = 1;
    refuses(&p, "a split into 1 shares");
    p.n_tensor_split = 2;
    refuses(&p, "share 1 of --tensor-split is -1");
    p.tensor_split = zeros;
    refuses(&p, "all shares of --tensor-split are 0");
    p.tensor_split = NULL;
    refuses(&p, "a split into 2 shares");
    p.n_tensor_split = 0, p.n_placements = 1;
    static const char *const wrong[][2] = {{"exps", "is not PATTERN=DEVICE"}, {"exps=", "is not PATTERN=DEVICE"},
                                           {"=cpu", "is not PATTERN=DEVICE"}, {"(=cpu", "is not a regular expression"},
                                           {"exps=cuda7", "a device that the model is not on"},
                                           {"exps=cpu-strict1", "a device that the model is not on"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        p.placements = wrong[i];
        refuses(&p, wrong[i][1]);
    }
}

/* As llama.cpp spreads them: 4 layers and the output over two devices, 3 to 2. */
static void test_plan(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_memory_plan one = {0}, two = {0};
    aerie_model_params p = aerie_model_params_default();
    aerie_session_params s = aerie_session_params_default();
    p.n_threads = s.n_threads = 1, s.n_ctx = 128;
    p.backend = "cpu";
    need(aerie_memory_plan_get(path_of("llama"), &p, &s, &one, sizeof one, &error), &error);
    p.backend = "cpu-strict", p.n_gpu_layers = 2;
    need(aerie_memory_plan_get(path_of("llama"), &p, &s, &two, sizeof two, &error), &error);
    assert_true(two.weight_bytes >= one.weight_bytes && two.session_bytes > one.session_bytes);
    assert_true(two.available_bytes > 0);
}

static int make(void **state)
{
    (void)state;
    aerie_error error = {0};
    uint64_t random = 5;
    mk_options o;
    char target[96];
    if (!mkdtemp(folder)) return 1;
    mk_shape("tiny", &o);
    o.type = "q8_0", o.n_layers = 4, o.layer_decay = 0.5f;
    need(mk_model(&o, path_of("llama"), &error), &error);
    o.tied = true;
    need(mk_model(&o, path_of("tied"), &error), &error);
    static const char *const archs[] = {"qwen3moe", "qwen35-mtp", "gemma3", "gemma4-31b", "gemma4-31b.assistant"};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        need(mkarch_write(mkarch_find(archs[i]), true, path_of(archs[i]), &error), &error);
    snprintf(target, sizeof target, "%s", path_of("llama"));
    need(mkhead_write(&(mkhead_options){.kind = "eagle3", .seed = 1, .n_taps = 3, .taps = {0, 2, 4}}, target,
                      path_of("llama-eagle3"), &error), &error);
    need(mkhead_write(&(mkhead_options){.kind = "medusa", .seed = 2}, target, path_of("llama-medusa"), &error), &error);
    snprintf(target, sizeof target, "%s", path_of("tied"));
    need(mkhead_write(&(mkhead_options){.kind = "eagle3", .seed = 1}, target, path_of("tied-eagle3"), &error), &error);
    for (size_t i = 0; i < N_PROMPTS; i++)
        for (size_t k = 0; k < 80; k++) prompts[i][k] = (int32_t)(3 + mk_random(&random) % 250);
    memcpy(prompts[2], prompts[0], 66 * sizeof **prompts);
    for (size_t i = 0; i < N_PROMPTS; i++) /* for n-grams */
        for (size_t k = 16; k < 80; k++) prompts[i][k] = prompts[i][k - 16];
    return 0;
}

static int drop(void **state)
{
    (void)state;
    static const char *const names[] = {"llama",      "tied",                 "qwen3moe",     "qwen35-mtp",   "gemma3",
                                        "gemma4-31b", "gemma4-31b.assistant", "llama-eagle3", "llama-medusa", "tied-eagle3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(path_of(names[i]));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number_of_layers),
        cmocka_unit_test(test_placements),
        cmocka_unit_test(test_wrong_parameters),
        cmocka_unit_test(test_plan),
    };
    return cmocka_run_group_tests(tests, make, drop);
}

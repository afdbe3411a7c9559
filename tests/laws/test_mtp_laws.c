/* test_mtp_laws.c - MTP blocks of models of several families as drafters: the same tokens as without drafts, with one and with
 * many sequences, again over cached prefixes, for hybrids and experts; where the blocks are found; what is refused, and how.
 * The same for Gemma 4's assistants, which read the model's own cache.
 *
 * The blocks' weights are random, so hardly any of their drafts is accepted: n-grams beside them, and test_head_laws.c, cover
 * accepted drafts.
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

enum { N_REQUESTS = 8, N_PREDICT = 12, N_MODELS = 11 };

/* step35 with three blocks, which its arrays leave out. */
static char step35_keys[1024], step35_tensors[4096];
static mkarch_spec step35;

/* deepseek4-mtp with two blocks, the second of which its arrays do not reach */
static char deepseek4_keys[2048];
static mkarch_spec deepseek4;

static const mkarch_spec *specs[N_MODELS];
static aerie_model *models[N_MODELS], *plain_models[N_MODELS];
static aerie_drafter_head *heads[N_MODELS];
static int32_t prompts[N_REQUESTS][128];

static void make_step35(void)
{
    step35 = *mkarch_find("step35");
    snprintf(step35_keys, sizeof step35_keys, "%su nextn_predict_layers 3\n", step35.keys);
    snprintf(step35_tensors, sizeof step35_tensors,
             "%sM attn_q w 64 144\nM attn_output w 144 64\nM attn_gate w 64 6\nM ffn_gate w 64 96\nM ffn_up w 64 96\n"
             "M ffn_down w 96 64\nM nextn.eh_proj w 128 64\nM nextn.enorm n 64\nM nextn.hnorm n 64\n"
             "M nextn.shared_head_norm n 64\nM nextn.shared_head_head w2 64 264\n", step35.tensors);
    step35.name = "step35-mtp", step35.layers = "FsSSfMMM", step35.keys = step35_keys, step35.tensors = step35_tensors;
}

/* Copies keys with the text `from` replaced by one of the same length. */
static void put_key(char *keys, size_t size, const char *all, const char *from, const char *to)
{
    snprintf(keys, size, "%s", all);
    char *at = strstr(keys, from);
    assert_non_null(at);
    memcpy(at, to, strlen(to));
}

static void make_deepseek4(void)
{
    deepseek4 = *mkarch_find("deepseek4-mtp");
    put_key(deepseek4_keys, sizeof deepseek4_keys, deepseek4.keys, "nextn_predict_layers 1", "nextn_predict_layers 2");
    deepseek4.name = "deepseek4-two", deepseek4.layers = "acMM", deepseek4.keys = deepseek4_keys;
}

static int make_models(void **state)
{
    static const char *const names[N_MODELS] = {"qwen35-mtp", "qwen35moe",        "glm4moe", NULL,
                                                "glm4.7-flash-mtp", "gemma4", "gemma4-31b", NULL,
                                                "cohere2moe-mtp", "nemotron_h_moe-mtp", "qwen4exp-mtp"};
    uint64_t random = 3;
    (void)state;
    make_step35();
    make_deepseek4();
    if (!mkdtemp(folder)) return 1;
    for (size_t i = 0; i < N_MODELS; i++) {
        aerie_error error = {0};
        char drafter[64];
        specs[i] = names[i] ? mkarch_find(names[i]) : i == 3 ? &step35 : &deepseek4;
        need(mkarch_write(specs[i], true, path_of(specs[i]->name), &error), &error);
        models[i] = load(path_of(specs[i]->name), "");
        plain_models[i] = load_plain(path_of(specs[i]->name), models[i]);
        snprintf(drafter, sizeof drafter, "%s.assistant", specs[i]->name);
        const mkarch_spec *assistant = mkarch_find(drafter);
        if (assistant) need(mkarch_write(assistant, true, path_of(drafter), &error), &error);
        if (!assistant) snprintf(drafter, sizeof drafter, "%s", specs[i]->name);
        need(aerie_drafter_head_load(&heads[i], models[i], path_of(drafter), NULL, &error), &error);
        if (assistant) unlink(path_of(drafter));
    }
    for (size_t i = 0; i < N_REQUESTS; i++)
        for (size_t k = 0; k < 128; k++) prompts[i][k] = 3 + (int32_t)(mk_random(&random) % (MKARCH_VOCAB - 8));
    memcpy(prompts[3], prompts[2], 40 * sizeof prompts[2][0]); /* two begin alike */
    return 0;
}

static int drop_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        aerie_drafter_head_free(heads[i]);
        free_plain(plain_models[i], models[i]);
        aerie_model_free(models[i]);
        unlink(path_of(specs[i]->name));
    }
    return rmdir(folder);
}

/* ---- Law 1 ----------------------------------------------------------------------------------------- */

static void run_requests(size_t i, const aerie_spec *spec, bool fixed, uint32_t n_seqs, uint32_t sampling, const run *plain,
                         run *got)
{
    static const size_t lengths[N_REQUESTS] = {1, 17, 50, 100, 2, 3, 33, 20};
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params p = aerie_session_params_default();
    const aerie_model *model = plain ? models[i] : plain_models[i];
    aerie_request requests[N_REQUESTS];
    char what[128];
    p.n_ctx = MKARCH_CTX, p.n_seqs = n_seqs, p.n_batch = 48, p.n_threads = 2;
    p.spec = *spec;
    need(ae_session_create_for_test(&session, model, &p, &(ae_session_test){.fixed = fixed}, &error), &error);
    for (size_t k = 0; k < N_REQUESTS; k++) {
        requests[k] = aerie_request_default();
        requests[k].tokens = prompts[k], requests[k].n_tokens = lengths[k];
        requests[k].n_predict = test_fewer(N_PREDICT), requests[k].ignore_eos = true;
        requests[k].sampling = sampling_of(sampling);
    }
    for (int again = 0; again < (plain ? 2 : 1); again++) { /* the second time prefixes are reused */
        generate(session, model, requests, N_REQUESTS, got);
        snprintf(what, sizeof what, "%s, %s, %u sequences, sampling %u, run %d", specs[i]->name, aerie_tree_name(spec->tree),
                 n_seqs, sampling, again);
        for (size_t k = 0; plain && k < N_REQUESTS; k++) same_answer(&got->answers[k], &plain->answers[k], what, k);
    }
    aerie_session_free(session);
}

static void test_same_tokens(void **state)
{
    static run plain, got;
    static const aerie_tree trees[] = {AERIE_TREE_OFF, AERIE_TREE_AUTO, AERIE_TREE_DYNAMIC};
    uint32_t step = 0, at = 0;
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++)
        for (uint32_t sampling = 0; sampling < 2; sampling++) {
            aerie_spec spec = aerie_spec_default();
            bool known = false;
            for (uint32_t k = 0; k < 4; k++) {
                if ((i + k + sampling) % 2 || step++ % AE_TEST_EVERY || !test_takes(&at)) continue;
                spec.type = AERIE_SPEC_NONE;
                if (!known) run_requests(i, &spec, false, 1, sampling, NULL, &plain);
                known = true;
                spec = aerie_spec_default();
                spec.head = heads[i]; /* type AUTO */
                spec.tree = trees[k % 3];
                spec.ngram = k != 1;
                const bool fixed = k < 3;
                spec.n_max = 2 + k, spec.n_nodes = 12;
                run_requests(i, &spec, fixed, k / 2 ? 8 : 1, sampling, &plain, &got);
                uint64_t drafted = 0;
                for (size_t r = 0; r < N_REQUESTS; r++) drafted += got.answers[r].stats.n_drafted;
                /* accepted tokens were not drafted twice; the short answers of a sample may end before many drafts */
                if (fixed) assert_true(drafted > (test_whole() ? N_REQUESTS * N_PREDICT / 2 : 0));
            }
        }
}

static void test_names(void **state)
{
    aerie_error error = {0};
    aerie_session_params p = aerie_session_params_default();
    aerie_drafter_head_info info;
    aerie_session *session;
    (void)state;
    aerie_drafter_head_info_get(heads[3], &info, sizeof info);
    assert_string_equal(info.kind, "MTP");
    assert_int_equal(info.type, AERIE_SPEC_MTP);
    assert_int_equal(info.taps[0], 5); /* before the final norm, unlike the others */
    aerie_drafter_head_info_get(heads[0], &info, sizeof info);
    assert_true(info.taps[0] == AERIE_TAP_NORMED);
    aerie_drafter_head_info_get(heads[7], &info, sizeof info);
    assert_int_equal(info.n_taps, 4); /* all streams of a row */
    aerie_drafter_head_info_get(heads[5], &info, sizeof info);
    assert_string_equal(info.kind, "MTP assistant");
    assert_int_equal(info.type, AERIE_SPEC_MTP);
    p.spec.head = heads[0];
    need(aerie_session_create(&session, models[0], &p, &error), &error);
    assert_string_equal(aerie_session_spec_name(session), "draft-mtp+ngram");
    aerie_session_free(session);
    p.spec.type = AERIE_SPEC_EAGLE3;
    assert_int_equal(aerie_session_create(&session, models[0], &p, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "is of kind MTP, which serves --spec-type draft-mtp"));
}

/* ---- Where blocks are ---------------------------------------------------------------------------------- */

/* The drafter that is found for a type: "own", "eagle3", "mtp", or "none". */
static const char *found(const char *path, aerie_spec_type type)
{
    aerie_error error = {0};
    char *at;
    need(aerie_drafter_head_find(&at, path, type, &error), &error);
    const char *kind = !at ? "none" : !strcmp(at, path) ? "own" : strstr(at, "-eagle3.gguf") ? "eagle3" : "mtp";
    aerie_free(at);
    return kind;
}

static void touch(const char *name)
{
    FILE *f = fopen(path_of(name), "w");
    assert_non_null(f);
    fclose(f);
}

static void test_found(void **state)
{
    char with[128], without[128], alone[128];
    aerie_error error = {0};
    (void)state;
    snprintf(with, sizeof with, "%s", path_of("glm4moe"));
    snprintf(without, sizeof without, "%s", path_of("qwen3"));
    snprintf(alone, sizeof alone, "%s", path_of("glm4moe-eagle3"));
    need(mkarch_write(mkarch_find("qwen3"), true, without, &error), &error);
    assert_string_equal(found(with, AERIE_SPEC_AUTO), "own");
    assert_string_equal(found(without, AERIE_SPEC_AUTO), "none");
    assert_string_equal(found("/nowhere.gguf", AERIE_SPEC_AUTO), "none");
    touch("glm4moe-eagle3"), touch("qwen3-mtp");
    assert_string_equal(found(with, AERIE_SPEC_AUTO), "own");
    assert_string_equal(found(with, AERIE_SPEC_EAGLE3), "eagle3");
    assert_string_equal(found(with, AERIE_SPEC_MEDUSA), "none");
    assert_string_equal(found(without, AERIE_SPEC_AUTO), "mtp");
    assert_string_equal(found(without, AERIE_SPEC_MTP), "mtp");
    touch("qwen3-eagle3");
    assert_string_equal(found(without, AERIE_SPEC_AUTO), "eagle3");
    assert_string_equal(found(without, AERIE_SPEC_MTP), "mtp");
    unlink(path_of("qwen3-eagle3")), unlink(path_of("qwen3-mtp")), unlink(alone), unlink(without);
}

/* ---- What is refused ------------------------------------------------------------------------------------- */

/* A model without the lines of its keys or tensors that begin with `cut`, and with `more` tensors. */
static void write_without(const char *base, const char *cut, const char *more, const char *name)
{
    static char keys[2048], tensors[8192];
    const char *from[2] = {mkarch_find(base)->keys, mkarch_find(base)->tensors};
    char *to[2] = {keys, tensors};
    aerie_error error = {0};
    for (int i = 0; i < 2; i++) {
        size_t n = 0;
        for (const char *line = from[i]; *line; line += strcspn(line, "\n") + 1) {
            const size_t length = strcspn(line, "\n") + 1;
            if (strncmp(line, cut, strlen(cut))) memcpy(to[i] + n, line, length), n += length;
        }
        to[i][n] = '\0';
    }
    strcat(tensors, more);
    mkarch_spec spec = *mkarch_find(base);
    spec.keys = keys, spec.tensors = tensors;
    need(mkarch_write(&spec, true, path_of(name), &error), &error);
}

static void refuse_head(const aerie_model *model, const char *name, aerie_status status, const char *words)
{
    aerie_error error = {0};
    aerie_drafter_head *head;
    assert_int_equal(aerie_drafter_head_load(&head, model, path_of(name), NULL, &error), status);
    if (!strstr(error.text, words)) fail_msg("'%s' is not in: %s", words, error.text);
    assert_null(head);
    unlink(path_of(name));
}

static void test_refused(void **state)
{
    aerie_error error = {0};
    aerie_model *model;
    mk_options tiny;
    (void)state;
    write_without("qwen35-mtp", "M nextn", "", "trunk"); /* as the trunk alone: it runs, but without its blocks */
    model = load(path_of("trunk"), "");
    assert_string_equal(found(path_of("trunk"), AERIE_SPEC_AUTO), "own");
    refuse_head(model, "trunk", AERIE_ERROR_FORMAT,
                "nextn_predict_layers is 1, but tensor blk.6.nextn.eh_proj.weight is missing");
    aerie_model_free(model);
    write_without("qwen35-mtp", "M nextn.hnorm", "", "part");
    refuse_head(models[0], "part", AERIE_ERROR_FORMAT, "tensor blk.6.nextn.hnorm.weight is missing");
    write_without("qwen35-mtp", "M nextn.eh_proj", "M nextn.eh_proj w 64 64\n", "narrow");
    refuse_head(models[0], "narrow", AERIE_ERROR_FORMAT, "expected [128, 64]");
    write_without("qwen35-mtp", "u nextn_predict_layers", "", "keyless");
    assert_int_equal(aerie_model_load(&model, path_of("keyless"), NULL, &error), AERIE_ERROR_FORMAT);
    assert_non_null(strstr(error.text, "blk.6.nextn.eh_proj.weight marks block 6 as an MTP block"));
    refuse_head(models[0], "keyless", AERIE_ERROR_FORMAT, "nextn_predict_layers (0)");
    write_without("qwen35", "", "", "none"); /* a model without any */
    refuse_head(models[0], "none", AERIE_ERROR_UNSUPPORTED,
                "eagle3, eagle, medusa, dflash and gemma4-assistant, and models with MTP");
    /* a file of another model */
    refuse_head(models[0], "glm4moe", AERIE_ERROR_FORMAT, "architecture glm4moe");
    need(mkarch_write(specs[2], true, path_of("glm4moe"), &error), &error);
    assert_true(mk_shape("tiny", &tiny));
    need(mk_model(&tiny, path_of("tiny"), &error), &error);
    model = load(path_of("tiny"), "");
    char target[128];
    snprintf(target, sizeof target, "%s", path_of("tiny"));
    need(mkhead_write(&(mkhead_options){.kind = "mtp"}, target, path_of("head"), &error), &error);
    tiny.n_layers++;
    need(mk_model(&tiny, path_of("deeper"), &error), &error);
    aerie_model *deeper = load(path_of("deeper"), "");
    refuse_head(deeper, "head", AERIE_ERROR_FORMAT, "made for a target with a layer count of");
    aerie_model_free(deeper);
    aerie_model_free(model);
    unlink(path_of("tiny")), unlink(path_of("deeper"));
}

static void test_refused_streams(void **state)
{
    static const struct {
        const char *from, *to, *words;
    } wrong[] = {{"compress_ratios 0 4 0", "compress_ratios 0 4 4", "compress_ratios is 4; an MTP block does not compress"},
                 {"hyper_connection.count 4", "hyper_connection.count 3",
                  "tensor output_hc_fn.weight has shape [256, 4, 1, 1], expected [192, 3]"},
                 {"hash_layer_count 1", "hash_layer_count 3", "hash_layer_count is 3; "}};
    static char keys[2048];
    aerie_error error = {0};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        mkarch_spec spec = *mkarch_find("deepseek4-mtp");
        put_key(keys, sizeof keys, spec.keys, wrong[i].from, wrong[i].to);
        spec.keys = keys;
        need(mkarch_write(&spec, true, path_of("a"), &error), &error);
        refuse_head(models[7], "a", AERIE_ERROR_FORMAT, wrong[i].words);
    }
    write_without("qwen4exp-mtp", "M nextn.hc_head_up", "", "a");
    refuse_head(models[10], "a", AERIE_ERROR_FORMAT, "tensor blk.3.nextn.hc_head_up.weight is missing");
    write_without("qwen4exp-mtp", "M nextn.hnorm", "M nextn.hnorm n 64\n", "a");
    refuse_head(models[10], "a", AERIE_ERROR_FORMAT, "blk.3.nextn.hnorm.weight");
    write_without("deepseek4-mtp", "- output_hc_base", "", "a");
    refuse_head(models[7], "a", AERIE_ERROR_FORMAT, "tensor output_hc_base.weight is missing");
    write_without("deepseek4-mtp", "* hc_ffn_scale", "* hc_ffn_scale o 2\n", "a");
    refuse_head(models[7], "a", AERIE_ERROR_FORMAT, "blk.2.hc_ffn_scale.weight");
    write_without("deepseek4-mtp", "nothing", "", "a"); /* one block less is allowed */
    aerie_drafter_head *head;
    need(aerie_drafter_head_load(&head, models[7], path_of("a"), NULL, &error), &error);
    aerie_drafter_head_free(head);
    unlink(path_of("a"));
}

static void test_refused_assistants(void **state)
{
    aerie_error error = {0};
    aerie_model *model;
    (void)state;
    need(mkarch_write(mkarch_find("gemma4.assistant"), true, path_of("a"), &error), &error);
    assert_int_equal(aerie_model_load(&model, path_of("a"), NULL, &error), AERIE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "is a drafter's head, not a model of its own"));
    refuse_head(models[0], "a", AERIE_ERROR_FORMAT, "made for a target of architecture gemma4; ");
    write_without("gemma4.assistant", "- nextn.post_projection", "", "a");
    refuse_head(models[5], "a", AERIE_ERROR_FORMAT, "tensor nextn.post_projection.weight is missing");
    write_without("gemma4.assistant", "- nextn.pre_projection", "- nextn.pre_projection w 64 48\n", "a");
    refuse_head(models[5], "a", AERIE_ERROR_FORMAT, "expected [128, 48]");
    write_without("gemma4.assistant", "f attn_q ", "f attn_q w 48 128\n", "a");
    refuse_head(models[5], "a", AERIE_ERROR_FORMAT, "blk.2.attn_q.weight");
    write_without("gemma4.assistant", "u attention.sliding_window", "", "a"); /* no layer has a window then, nor heads of 32 */
    refuse_head(models[5], "a", AERIE_ERROR_FORMAT, "blk.0.attn_q.weight");
    mkarch_spec wide = *mkarch_find("gemma4.assistant");
    static char keys[2048];
    snprintf(keys, sizeof keys, "%s", wide.keys);
    char *window = strstr(keys, "sliding_window 16");
    assert_non_null(window);
    memcpy(window, "sliding_window 17", strlen("sliding_window 17"));
    wide.keys = keys;
    need(mkarch_write(&wide, true, path_of("a"), &error), &error);
    refuse_head(models[5], "a", AERIE_ERROR_FORMAT, "with a window of 17, cannot read layer 6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_tokens), cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_found), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_refused_streams),
                                       cmocka_unit_test(test_refused_assistants)};
    return cmocka_run_group_tests(tests, make_models, drop_models);
}

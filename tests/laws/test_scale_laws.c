/* test_scale_laws.c - law 1 for models with a ".scale" beside each weight: the same logits at every CPU level, the same tokens
 * with and without drafts and in passes of many sequences; an adapter on top; drafter heads with scales draft as those whose
 * weights are the products. golden/scales tests the meaning of the scales.
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
#include "aerie_measure.h"
#include "mkarch.h"
#include "mkhead.h"
#include "mklora.h"
#include "mkscale.h"
#include "spec_rig.inc"

enum { N_TOKENS = 40, MOST_VOCAB = 1024 };

static char in[96], out[96]; /* paths of a model and of the same with scales */

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return 1;
    snprintf(in, sizeof in, "%s", path_of("in"));
    snprintf(out, sizeof out, "%s", path_of("out"));
    return 0;
}

static int drop_folder(void **state)
{
    (void)state;
    unlink(in), unlink(out);
    return rmdir(folder);
}

static bool on_logits(void *user, size_t position, const float *logits)
{
    float (*rows)[MOST_VOCAB] = user;
    memcpy(rows[position], logits, 259 * sizeof *logits);
    return true;
}

/* A pass at most of `batch` rows. */
static void logits_of(const aerie_model *model, uint32_t batch, const aerie_adapter *adapter, float rows[N_TOKENS][MOST_VOCAB])
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params p = aerie_session_params_default();
    int32_t tokens[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) tokens[i] = 3 + i * 37 % 250;
    p.n_ctx = 128, p.n_batch = batch, p.n_threads = 2;
    p.adapters = &adapter, p.n_adapters = adapter != NULL;
    need(aerie_session_create(&session, model, &p, &error), &error);
    if (adapter) need(aerie_session_eval_adapters(session, &(aerie_adapter_use){.scale = 1.0f}, 1, &error), &error);
    need(aerie_session_eval(session, tokens, N_TOKENS, on_logits, rows, &error), &error);
    aerie_session_free(session);
}

static void write_scaled(const char *shape, const char *type, mkscale_kind kind)
{
    aerie_error error = {0};
    mk_options o;
    assert_true(mk_shape(shape, &o));
    o.type = type;
    need(mk_model(&o, in, &error), &error);
    need(mkscale_write(&(mkscale_options){.kind = kind}, in, out, &error), &error);
}

static const struct {
    const char *shape, *type;
} models[] = {{"tiny", "q4_0"},     {"tiny", "nvfp4"},    {"tiny", "mxfp4"},    {"tiny", "f16"},  {"tiny-gqa", "q4_k_m"},
              {"tiny-gqa", "q6_K"}, {"tiny-moe", "q8_0"}, {"tiny-moe", "nvfp4"}, {"tiny-mla", "q8_0"}, {"tiny-mha", "bf16"}};

static void test_levels_and_passes(void **state)
{
    static float want[N_TOKENS][MOST_VOCAB], got[N_TOKENS][MOST_VOCAB];
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        write_scaled(models[i].shape, models[i].type, MKSCALE_OTHER);
        aerie_model *model = load(in, "ref");
        logits_of(model, 64, NULL, got);
        aerie_model_free(model);
        model = load(out, "ref");
        logits_of(model, 64, NULL, want);
        aerie_model_free(model);
        assert_memory_not_equal(got, want, sizeof want); /* they are read */
        for (size_t l = 0; l < N_LEVELS; l++) {
            if (!(model = load(out, levels[l]))) continue;
            for (uint32_t batch = 1; batch <= 64; batch *= 4) {
                logits_of(model, batch, NULL, got);
                if (memcmp(got, want, sizeof want))
                    fail_msg("%s %s, level %s, passes of %u rows: other logits", models[i].shape, models[i].type,
                             levels[l], batch);
            }
            aerie_model_free(model);
        }
    }
}

/* y = (W x) s + B A x: the same adapter beside weights that are the products gives the same. */
static void test_adapters(void **state)
{
    static float want[N_TOKENS][MOST_VOCAB], got[N_TOKENS][MOST_VOCAB];
    char lora[96];
    (void)state;
    snprintf(lora, sizeof lora, "%s", path_of("lora"));
    for (int scaled = 0; scaled < 2; scaled++) {
        aerie_error error = {0};
        aerie_adapter *adapter;
        if (!scaled) write_scaled("tiny", "f32", MKSCALE_SAME);
        if (!scaled) need(mklora_write(&(mklora_options){.rank = 4}, in, lora, &error), &error);
        aerie_model *model = load(scaled ? out : in, "");
        need(aerie_adapter_load(&adapter, model, lora, NULL, &error), &error);
        logits_of(model, 64, adapter, scaled ? got : want);
        aerie_adapter_free(adapter);
        aerie_model_free(model);
    }
    assert_memory_equal(got, want, sizeof want);
    unlink(lora);
}

/* ---- Drafts ------------------------------------------------------------------------------------------------ */

/* All of a head's drafts are verified. */
static void run_head(const aerie_model *model, aerie_drafter_head *head, run *got)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params p = aerie_session_params_default();
    aerie_request requests[4];
    static int32_t prompts[4][24];
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < 24; i++) prompts[r][i] = 3 + (r * 91 + i * 37) % 250;
    p.n_ctx = 128, p.n_seqs = 4, p.n_batch = 48, p.n_threads = 2;
    p.spec.type = head ? AERIE_SPEC_AUTO : AERIE_SPEC_NONE, p.spec.head = head, p.spec.ngram = false;
    need(ae_session_create_for_test(&session, model, &p, &(ae_session_test){.fixed = head != NULL}, &error), &error);
    for (int r = 0; r < 4; r++) {
        requests[r] = aerie_request_default();
        requests[r].tokens = prompts[r], requests[r].n_tokens = 6 + 6 * (size_t)r;
        requests[r].n_predict = 16, requests[r].ignore_eos = true;
    }
    generate(session, model, requests, 4, got);
    aerie_session_free(session);
}

static const mkhead_options heads[] = {
    {.kind = "eagle3", .type = "f32"},
    {.kind = "eagle3", .type = "f32", .no_output = true, .n_draft = 200},
    {.kind = "eagle3", .type = "f32", .no_output = true},
    {.kind = "eagle", .type = "f32"},
    {.kind = "medusa", .type = "f32"},
    {.kind = "mtp", .type = "f32", .own_output = true, .own_embedding = true},
};

/* A head's beliefs decide nothing here, so its drafts determine the acceptance. Target and head with scales, which are powers
 * of two, draft and accept what they do without. */
static void test_heads(void **state)
{
    static run want, got, plain;
    char head[96], scaled_head[96];
    (void)state;
    snprintf(head, sizeof head, "%s", path_of("head"));
    snprintf(scaled_head, sizeof scaled_head, "%s", path_of("head-scaled"));
    write_scaled("tiny-gqa", "f32", MKSCALE_SAME);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        aerie_error error = {0};
        need(mkhead_write(&heads[i], in, head, &error), &error);
        need(mkscale_write(&(mkscale_options){.kind = MKSCALE_SAME}, head, scaled_head, &error), &error);
        for (int scaled = 0; scaled < 2; scaled++) {
            aerie_drafter_head *loaded;
            aerie_model *model = load(scaled ? out : in, "");
            need(aerie_drafter_head_load(&loaded, model, scaled ? scaled_head : head, NULL, &error), &error);
            if (!scaled) run_head(model, NULL, &plain);
            run_head(model, loaded, scaled ? &got : &want);
            aerie_drafter_head_free(loaded);
            aerie_model_free(model);
        }
        for (size_t r = 0; r < 4; r++) {
            same_answer(&got.answers[r], &plain.answers[r], heads[i].kind, r);
            assert_true(want.answers[r].stats.n_drafted > 0);
            assert_int_equal(got.answers[r].stats.n_drafted, want.answers[r].stats.n_drafted);
            assert_int_equal(got.answers[r].stats.n_accepted, want.answers[r].stats.n_accepted);
        }
    }
    unlink(head), unlink(scaled_head);
}

/* The blocks of a model's own file, nextn.eh_proj.scale among them. */
static void test_mtp_blocks(void **state)
{
    static const char *const names[] = {"qwen35-mtp", "glm4.7-flash-mtp"};
    static run want, got;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        aerie_error error = {0};
        need(mkarch_write(mkarch_find(names[i]), true, in, &error), &error);
        need(mkscale_write(&(mkscale_options){.kind = MKSCALE_SAME}, in, out, &error), &error);
        for (int scaled = 0; scaled < 2; scaled++) {
            aerie_drafter_head *loaded;
            aerie_model *model = load(scaled ? out : in, "");
            need(aerie_drafter_head_load(&loaded, model, scaled ? out : in, NULL, &error), &error);
            run_head(model, loaded, scaled ? &got : &want);
            aerie_drafter_head_free(loaded);
            aerie_model_free(model);
        }
        for (size_t r = 0; r < 4; r++) {
            same_answer(&got.answers[r], &want.answers[r], names[i], r);
            assert_int_equal(got.answers[r].stats.n_accepted, want.answers[r].stats.n_accepted);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_levels_and_passes), cmocka_unit_test(test_adapters),
                                       cmocka_unit_test(test_heads), cmocka_unit_test(test_mtp_blocks)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}

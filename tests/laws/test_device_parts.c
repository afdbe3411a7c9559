/* test_device_parts.c - a device that fails under what a session has besides its model: vision encoders, drafter heads, draft
 * models, adapters, saved sequences, and embedders. Each call of the driver fails in turn, and all calls from one on: a status
 * and a sentence, no wrong byte, nothing left on the device, and the next try gives what it gave before.
 *
 * The driver that fails is that of failing_driver.inc, which also says on what device; without one everything is skipped. */
#define _XOPEN_SOURCE 700 /* mkdtemp, setenv */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie_extra.h"
#include "aerie_measure.h"
#include "backend/gpu/gpu.h"
#include "base/mem.h"
#include "device/device.h"
#include "every.h"
#include "mkarch.h"
#include "mkhead.h"
#include "mklora.h"
#include "mkmmproj.h"
#include "session/session_int.h"
#include "spec_rig.inc"
#include "failing_driver.inc"

enum { N_PROMPT = 40, N_PREDICT = 4, SIDE = 24 };

/* What a try gave: tokens of answers, and vectors. */
typedef struct given {
    int32_t tokens[64];
    float numbers[64];
    size_t n_tokens, n_numbers;
} given;

static aerie_model *text, *eye_text, *small, *encoder, *ranker;
static int32_t prompt[N_PROMPT];

static bool keep_token(void *user, const aerie_token_event *event)
{
    given *g = user;
    if (event->token < 0 || event->refused) return true;
    assert_true(g->n_tokens < sizeof g->tokens / sizeof *g->tokens);
    g->tokens[g->n_tokens++] = event->token;
    return true;
}

static const char *second_path(const char *name)
{
    static char path[96];
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    return path;
}

static aerie_request request_for(given *g)
{
    aerie_request r = aerie_request_default();
    r.tokens = prompt, r.n_tokens = N_PROMPT, r.n_predict = N_PREDICT, r.ignore_eos = true;
    r.token = keep_token, r.user = g;
    r.sampling = sampling_of(0);
    return r;
}

static aerie_status open_session(const aerie_model *model, const aerie_spec *spec, const aerie_adapter *adapter,
                                 aerie_session **out, aerie_error *error)
{
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = 256, params.n_batch = 64, params.n_threads = 1;
    params.spec.type = AERIE_SPEC_NONE;
    if (spec) params.spec = *spec;
    params.adapters = &adapter, params.n_adapters = adapter != NULL;
    return ae_session_create_for_test(out, model, &params, &(ae_session_test){.fixed = true}, error);
}

/* Answers twice, so that passes are recorded; frees the session. */
static aerie_status answer_twice(aerie_session *session, const aerie_request *request, given *g, aerie_error *error)
{
    aerie_status status = AERIE_OK;
    for (int i = 0; i < 2 && status == AERIE_OK; i++)
        status = aerie_session_generate(session, request, 1, request->token, g, NULL, 0, error);
    aerie_session_free(session);
    return status;
}

/* ---- Parts: each is loaded, used and freed ----------------------------------------------------------------- */

static aerie_status with_head(const char *name, aerie_spec_type type, given *g, aerie_error *error)
{
    aerie_drafter_head *head;
    aerie_session *session;
    aerie_spec spec = aerie_session_params_default().spec;
    const aerie_request r = request_for(g);
    AE_TRY(aerie_drafter_head_load(&head, text, path_of(name), NULL, error));
    spec.type = type, spec.head = head, spec.n_max = 3, spec.ngram = false;
    aerie_status status = open_session(text, &spec, NULL, &session, error);
    if (status == AERIE_OK) status = answer_twice(session, &r, g, error);
    aerie_drafter_head_free(head);
    return status;
}

static aerie_status use_head(given *g, aerie_error *error)
{
    return with_head("eagle3", AERIE_SPEC_EAGLE3, g, error);
}

static aerie_status use_blocks(given *g, aerie_error *error)
{
    return with_head("dflash", AERIE_SPEC_DFLASH, g, error);
}

static aerie_status use_mtp(given *g, aerie_error *error)
{
    return with_head("mtp", AERIE_SPEC_MTP, g, error);
}

static aerie_status use_draft_model(given *g, aerie_error *error)
{
    aerie_session *session;
    aerie_spec spec = aerie_session_params_default().spec;
    const aerie_request r = request_for(g);
    spec.type = AERIE_SPEC_DRAFT, spec.draft_model = small, spec.n_max = 3, spec.ngram = false;
    AE_TRY(open_session(text, &spec, NULL, &session, error));
    return answer_twice(session, &r, g, error);
}

static aerie_status use_adapter(given *g, aerie_error *error)
{
    aerie_adapter *adapter;
    aerie_session *session;
    AE_TRY(aerie_adapter_load(&adapter, text, path_of("adapter"), NULL, error));
    const aerie_adapter_use use = {.adapter = 0, .scale = 0.5f};
    aerie_request r = request_for(g);
    r.adapters = &use, r.n_adapters = 1;
    aerie_status status = open_session(text, NULL, adapter, &session, error);
    if (status == AERIE_OK) status = answer_twice(session, &r, g, error);
    aerie_adapter_free(adapter);
    return status;
}

static aerie_status use_tower(given *g, aerie_error *error)
{
    static uint8_t pixels[SIDE * SIDE * 3];
    static const char words[] = "a <__media__> b";
    aerie_tower_params params = aerie_tower_params_default();
    aerie_tower *tower;
    aerie_image *image;
    aerie_session *session;
    aerie_prompt *p = NULL;
    aerie_error other = {0};
    params.n_threads = 1;
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 7 + i / 31);
    AE_TRY(aerie_tower_load(&tower, eye_text, path_of("eye"), &params, error));
    need(aerie_image_copy(&image, SIDE, SIDE, pixels, &other), &other);
    aerie_status status = aerie_tower_prompt(tower, words, sizeof words - 1, NULL, (const aerie_image *const *)&image, 1, NULL,
                                             NULL, &p, error);
    aerie_request r = request_for(g);
    if (status == AERIE_OK) {
        r.tokens = NULL, r.n_tokens = 0;
        r.chunks = aerie_prompt_chunks(p, &r.n_chunks);
        status = open_session(eye_text, NULL, NULL, &session, error);
    }
    if (status == AERIE_OK) status = answer_twice(session, &r, g, error);
    aerie_prompt_free(p);
    aerie_image_free(image);
    aerie_tower_free(tower);
    return status;
}

static aerie_status embed(const aerie_model *model, aerie_pooling pooling, given *g, aerie_error *error)
{
    aerie_embedder *embedder;
    aerie_embedder_params params = aerie_embedder_params_default();
    const aerie_embed_text texts[] = {{.tokens = prompt, .n_tokens = 9, .n_first = 4},
                                      {.tokens = prompt, .n_tokens = 20, .n_first = 7}};
    static float vectors[2 * 256];
    params.n_ctx = 64, params.n_batch = 64, params.n_threads = 1, params.pooling = pooling;
    AE_TRY(aerie_embedder_create(&embedder, model, &params, error));
    const uint32_t n = aerie_embedder_n_out(embedder);
    assert_true(n <= 256);
    aerie_status status = aerie_embedder_embed(embedder, texts, 2, vectors, error);
    for (uint32_t i = 0; i < 2 * n && status == AERIE_OK && g->n_numbers < 64; i++) g->numbers[g->n_numbers++] = vectors[i];
    aerie_embedder_free(embedder);
    return status;
}

static aerie_status use_encoder(given *g, aerie_error *error)
{
    return embed(encoder, AERIE_POOLING_AUTO, g, error);
}

static aerie_status use_ranker(given *g, aerie_error *error)
{
    return embed(ranker, AERIE_POOLING_RANK, g, error);
}

static aerie_status use_embedder(given *g, aerie_error *error)
{
    return embed(text, AERIE_POOLING_MEAN, g, error);
}

static bool keep_logit(void *user, size_t position, const float *logits)
{
    given *g = user;
    (void)position;
    if (g->n_numbers < 64) g->numbers[g->n_numbers++] = logits[7];
    return true;
}

static aerie_status use_evaluation(given *g, aerie_error *error)
{
    aerie_session *session;
    AE_TRY(open_session(text, NULL, NULL, &session, error));
    const aerie_status status = aerie_session_eval(session, prompt, 20, keep_logit, g, error);
    aerie_session_free(session);
    return status;
}

static void keep_row(void *user, size_t i_request, size_t position, const float *logits, const float *features)
{
    (void)i_request, (void)features;
    (void)keep_logit(user, position, logits);
}

/* The caller is told every row, of drafts too. */
static aerie_status use_rows(given *g, aerie_error *error)
{
    aerie_session *session;
    aerie_spec spec = aerie_session_params_default().spec;
    aerie_request r = request_for(g);
    spec.type = AERIE_SPEC_NGRAM;
    r.row = keep_row;
    AE_TRY(open_session(text, &spec, NULL, &session, error));
    return answer_twice(session, &r, g, error);
}

static bool keep_logprob(void *user, const aerie_token_event *event)
{
    given *g = user;
    if (event->token >= 0 && !event->refused && g->n_numbers < 64) g->numbers[g->n_numbers++] = event->logprob;
    return keep_token(user, event);
}

static aerie_status use_logprobs(given *g, aerie_error *error)
{
    aerie_session *session;
    aerie_request r = request_for(g);
    r.n_logprobs = 2, r.token = keep_logprob;
    AE_TRY(open_session(text, NULL, NULL, &session, error));
    return answer_twice(session, &r, g, error);
}

/* The logits of two labels after a text, as questions by labels read them. */
static aerie_status use_labels(given *g, aerie_error *error)
{
    aerie_embedder *embedder;
    aerie_embedder_params params = aerie_embedder_params_default();
    const aerie_chunk chunk = {.tokens = prompt, .n_tokens = 20};
    params.n_ctx = 64, params.n_batch = 64, params.n_threads = 1, params.pooling = AERIE_POOLING_MEAN;
    AE_TRY(aerie_embedder_create(&embedder, text, &params, error));
    const aerie_status status = aerie_embedder_logits(embedder, &chunk, 1, (int32_t[]){5, 6}, 2, g->numbers, error);
    g->n_numbers = status == AERIE_OK ? 2 : 0;
    aerie_embedder_free(embedder);
    return status;
}

/* A task is saved in mid-answer and goes on in another session. */
static aerie_status use_saved_task(given *g, aerie_error *error)
{
    aerie_session *session, *other = NULL;
    aerie_task *task = NULL;
    void *data = NULL;
    size_t n = 0;
    aerie_request r = request_for(g);
    AE_TRY(open_session(text, NULL, NULL, &session, error));
    aerie_status status = aerie_session_submit(session, &r, &task, error);
    while (status == AERIE_OK && g->n_tokens < 2) status = aerie_session_step(session, error);
    if (status == AERIE_OK) status = aerie_task_save(task, &data, &n, error);
    if (task) aerie_task_free(task);
    aerie_session_free(session);
    if (status == AERIE_OK) status = open_session(text, NULL, NULL, &other, error);
    if (status == AERIE_OK) {
        r.tokens = NULL, r.n_tokens = 0, r.saved = data, r.n_saved = n;
        status = aerie_session_generate(other, &r, 1, keep_token, g, NULL, 0, error);
    }
    aerie_session_free(other);
    aerie_free(data);
    return status;
}

/* What the cache holds of a prompt is saved, whole and in pieces, and loaded into another session. */
static aerie_status use_saved_prefix(given *g, aerie_error *error)
{
    aerie_session *session, *other = NULL;
    void *data = NULL;
    size_t n = 0, n_loaded = 0;
    aerie_request r = request_for(g);
    AE_TRY(open_session(text, NULL, NULL, &session, error));
    aerie_status status = aerie_session_generate(session, &r, 1, keep_token, g, NULL, 0, error);
    if (status == AERIE_OK) status = aerie_session_prefix_save(session, 0, NULL, 0, prompt, N_PROMPT, &data, &n, error);
    aerie_session_free(session);
    if (status == AERIE_OK) status = open_session(text, NULL, NULL, &other, error);
    if (status == AERIE_OK) status = aerie_session_prefix_load(other, 0, data, n, &n_loaded, error);
    if (status == AERIE_OK) status = aerie_session_generate(other, &r, 1, keep_token, g, NULL, 0, error);
    aerie_session_free(other);
    aerie_free(data);
    return status;
}

static const struct part {
    const char *name;
    aerie_status (*use)(given *g, aerie_error *error);
} parts[] = {
    {"head", use_head},       {"blocks", use_blocks},       {"mtp", use_mtp},
    {"draft model", use_draft_model}, {"adapter", use_adapter},  {"tower", use_tower},
    {"encoder", use_encoder}, {"ranker", use_ranker},       {"embedder", use_embedder},
    {"evaluation", use_evaluation}, {"rows", use_rows},         {"log-probabilities", use_logprobs},
    {"labels", use_labels},         {"saved task", use_saved_task}, {"saved prefix", use_saved_prefix},
};
#define N_PARTS (sizeof parts / sizeof *parts)

/* ---- The laws ---------------------------------------------------------------------------------------------- */

static void check_same(const char *what, unsigned at, const given *got, const given *expected, bool whole)
{
    if (got->n_tokens > expected->n_tokens || memcmp(got->tokens, expected->tokens, got->n_tokens * sizeof *got->tokens))
        fail_msg("%s: call %u (%s): a wrong token", what, at, seen.failed);
    if (got->n_numbers > expected->n_numbers || memcmp(got->numbers, expected->numbers, got->n_numbers * sizeof *got->numbers))
        fail_msg("%s: call %u (%s): a wrong number, %s", what, at, seen.failed, whole ? "no error" : "an error");
    if (whole && (got->n_tokens != expected->n_tokens || got->n_numbers != expected->n_numbers))
        fail_msg("%s: call %u (%s): no error, and another result", what, at, seen.failed);
}

/* Returns whether it failed. */
static bool try_at(const struct part *part, unsigned at, bool lost, const given *expected)
{
    given got = {0};
    aerie_error error = {0};
    const int n_memory = seen.n_memory, n_pinned = seen.n_pinned;
    fail_from(at, lost);
    const aerie_status status = part->use(&got, &error);
    if (status != AERIE_OK) check_sentence(&error, status, at);
    check_same(part->name, at, &got, expected, status == AERIE_OK);
    fail_from(0, false);
    if (seen.n_memory != n_memory || seen.n_pinned != n_pinned || seen.n_recordings)
        fail_msg("%s: call %u (%s): %d blocks are left on the device, %d pinned ones, %d recordings", part->name, at,
                 seen.failed ? seen.failed : "none", seen.n_memory - n_memory, seen.n_pinned - n_pinned, seen.n_recordings);
    return status != AERIE_OK;
}

static void test_every_call(void **state)
{
    (void)state;
    const char *only = getenv("AERIE_TEST_ARCH");
    for (size_t i = 0; i < N_PARTS; i++) {
        const struct part *part = &parts[i];
        static given expected;
        aerie_error error = {0};
        if (only && *only && strcmp(only, part->name) != 0) continue;
        memset(&expected, 0, sizeof expected);
        fail_from(0, false);
        need(part->use(&expected, &error), &error);
        const unsigned n = seen.n_calls, step = step_of(n, 3);
        unsigned n_tried = 0, n_failed = 0;
        for (unsigned at = 1 + 7 * (unsigned)i % step; at <= n; at += step) {
            n_tried += 2;
            n_failed += try_at(part, at, false, &expected);
            n_failed += try_at(part, at, true, &expected);
        }
        assert_false(try_at(part, 0, false, &expected));
        print_message("%s: %u calls, %u tries, %u failures\n", part->name, n, n_tried, n_failed);
        assert_true(n > 20 && n_failed >= n_tried / 2);
    }
}

static aerie_model *load_part(const char *name)
{
    aerie_error error = {0};
    aerie_model *model;
    need(load_on(name, device, &model, &error), &error);
    if (!real) make_failing(model->backend);
    else ae_gpu(model->backend)->driver = &failing;
    return model;
}

static void write_model(const char *name, const char *shape, uint32_t n_layers)
{
    aerie_error error = {0};
    mk_options o;
    mk_shape(shape, &o);
    o.type = "q8_0", o.n_layers = n_layers, o.layer_decay = 0.25f, o.forgetful = true;
    need(mk_model(&o, path_of(name), &error), &error);
}

static int make(void **state)
{
    static const mkhead_options heads[] = {{.kind = "eagle3", .type = "q8_0", .n_draft = 24},
                                           {.kind = "dflash", .type = "q8_0", .n_draft = 16},
                                           {.kind = "mtp", .type = "q8_0", .n_draft = 12}};
    const mklora_options adapter = {.rank = 4, .seed = 2, .type = "f16"};
    aerie_error error = {0};
    uint64_t random = 3;
    (void)state;
    if (!mkdtemp(folder)) return 1;
    write_model("text", "tiny", 3);
    write_model("small", "tiny", 1);
    need(mkarch_write(mkarch_find("bert"), true, path_of("encoder"), &error), &error);
    need(mkarch_write(mkarch_find("bert-rank"), true, path_of("ranker"), &error), &error);
    need(mkarch_write(mkarch_find("gemma3"), true, path_of("eye-text"), &error), &error);
    need(mkmmproj_write("gemma3", 64, path_of("eye"), &error), &error);
    const char *target = second_path("text");
    for (size_t i = 0; i < 3; i++) need(mkhead_write(&heads[i], target, path_of(heads[i].kind), &error), &error);
    need(mklora_write(&adapter, target, path_of("adapter"), &error), &error);
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = (int32_t)(3 + mk_random(&random) % 90);
    text = load_part("text"), small = load_part("small"), eye_text = load_part("eye-text");
    encoder = load_part("encoder"), ranker = load_part("ranker");
    return 0;
}

static int drop(void **state)
{
    static const char *const files[] = {"text", "small", "encoder", "ranker", "eye-text", "eye", "eagle3", "dflash", "mtp",
                                        "adapter"};
    aerie_model *models[] = {text, small, eye_text, encoder, ranker};
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        ae_gpu(models[i]->backend)->driver = real;
        aerie_model_free(models[i]);
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) unlink(path_of(files[i]));
    return rmdir(folder);
}

int main(void)
{
    if (!has_device()) return 77;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_call)};
    return cmocka_run_group_tests(tests, make, drop);
}

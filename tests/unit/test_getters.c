/* test_getters.c - facts of a model: metadata and vocabulary; backends by name; threads that sessions share. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie_extra.h"
#include "../laws/spec_rig.inc"

static aerie_model *model;

static int make(void **state)
{
    (void)state;
    mk_options o;
    aerie_error error = {0};
    aerie_model_params params = aerie_model_params_default();
    const char *overrides[] = {"llama.context_length=int:77", "tokenizer.ggml.add_bos_token=bool:true"};
    params.overrides = overrides, params.n_overrides = 2;
    if (!mkdtemp(folder)) return 1;
    mk_shape("tiny", &o);
    need(mk_model(&o, path_of("m"), &error), &error);
    need(aerie_model_load(&model, path_of("m"), &params, &error), &error);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    aerie_model_free(model);
    unlink(path_of("m"));
    return rmdir(folder);
}

static void check_value(const char *key, const char *expected, const char *expected_type)
{
    aerie_error error = {0};
    char *value;
    const char *type;
    size_t n;
    need(aerie_model_metadata_get(model, key, &value, &n, &type, &error), &error);
    assert_non_null(value);
    assert_int_equal(n, strlen(value));
    if (strncmp(value, expected, strlen(expected))) fail_msg("%s is %.60s, not %s", key, value, expected);
    assert_string_equal(type, expected_type);
    aerie_free(value);
}

static void test_metadata(void **state)
{
    (void)state;
    aerie_error error = {0};
    const size_t n = aerie_model_n_metadata(model);
    assert_true(n > 10);
    for (size_t i = 0; i < n; i++) {
        char *key, *value;
        need(aerie_model_metadata_key(model, i, &key, &error), &error);
        need(aerie_model_metadata_get(model, key, &value, NULL, NULL, &error), &error);
        assert_non_null(value);
        aerie_free(key);
        aerie_free(value);
    }
    char *key;
    assert_int_equal(aerie_model_metadata_key(model, n, &key, &error), AERIE_ERROR_ARGUMENT);
    assert_null(key);
    need(aerie_model_metadata_get(model, "no.such.key", &key, NULL, NULL, &error), &error);
    assert_null(key);
    need(aerie_model_metadata_get(model, NULL, &key, NULL, NULL, &error), &error);
    assert_null(key);
    check_value("general.architecture", "llama", "string");
    check_value("llama.context_length", "77", "i64"); /* as overridden */
    check_value("tokenizer.ggml.tokens", "[\"<|endoftext|>\", \"<|im_start|>\", ", "array");
    check_value("tokenizer.ggml.token_type", "[3, 3, 3, 1, ", "array");
}

static void test_vocabulary(void **state)
{
    (void)state;
    aerie_token_info info;
    assert_true(aerie_model_token_info_get(model, MK_TOKEN_IM_END, &info, sizeof info));
    assert_int_equal(info.type, AERIE_TOKEN_CONTROL);
    assert_int_equal(info.n_text, strlen("<|im_end|>"));
    assert_memory_equal(info.text, "<|im_end|>", info.n_text);
    assert_true(info.is_eog);
    assert_true(aerie_model_token_info_get(model, 100, &info, sizeof info));
    assert_int_equal(info.type, AERIE_TOKEN_NORMAL);
    assert_true(info.n_text > 0 && !info.is_eog);
    assert_false(aerie_model_token_info_get(model, -1, &info, sizeof info));
    assert_int_equal(info.n_text, 0);
    assert_false(aerie_model_token_info_get(model, INT32_MAX, &info, sizeof info));
    assert_int_equal(aerie_model_token_special(model, AERIE_SPECIAL_BOS), MK_TOKEN_IM_START);
    assert_int_equal(aerie_model_token_special(model, AERIE_SPECIAL_EOS), MK_TOKEN_IM_END);
    assert_int_equal(aerie_model_token_special(model, AERIE_SPECIAL_FIM_MID), -1);
    assert_int_equal(aerie_model_token_special(model, (aerie_special)-1), -1);
    assert_int_equal(aerie_model_token_special(model, (aerie_special)1000), -1);
    assert_true(aerie_model_adds_bos(model)); /* as overridden */
    assert_false(aerie_model_adds_eos(model));
}

static void test_backends(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_model *m;
    aerie_model_params params = aerie_model_params_default();
    assert_non_null(strstr(aerie_backend_names(), "cpu"));
    aerie_model_free(load(path_of("m"), NULL)); /* the usual one */
    params.backend = "cpu";
    need(aerie_model_load(&m, path_of("m"), &params, &error), &error);
    aerie_model_free(m);
    params.backend = "abacus";
    assert_int_equal(aerie_model_load(&m, path_of("m"), &params, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "abacus"));
    assert_non_null(strstr(error.text, "cpu"));
}

static int n_threads(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return -1;
    while (readdir(tasks)) n++;
    closedir(tasks);
    return n;
}

static void test_sessions_share_a_pool(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_pool *pool;
    aerie_session *sessions[2];
    aerie_session_params params = aerie_session_params_default();
    static const int32_t prompt[] = {1, 2, 3, 4, 5};
    static run own, shared;
    aerie_request request = aerie_request_default();
    request.tokens = prompt, request.n_tokens = 5, request.n_predict = 16, request.ignore_eos = true;
    params.n_threads = 1, params.n_ctx = 64;
    need(aerie_session_create(&sessions[0], model, &params, &error), &error);
    generate(sessions[0], model, &request, 1, &own);
    aerie_session_free(sessions[0]);
    need(aerie_pool_create(&pool, 3, &error), &error);
    assert_int_equal(aerie_pool_n_threads(pool), 3);
    const int before = n_threads();
    params.pool = pool, params.n_threads = 5000; /* not read */
    for (int i = 0; i < 2; i++) need(aerie_session_create(&sessions[i], model, &params, &error), &error);
    assert_int_equal(n_threads(), before);
    for (int i = 0; i < 2; i++) {
        generate(sessions[i], model, &request, 1, &shared);
        same_answer(&shared.answers[0], &own.answers[0], "on a shared pool", (size_t)i);
        aerie_session_free(sessions[i]);
    }
    assert_int_equal(n_threads(), before);
    aerie_pool_free(pool);
    assert_int_equal(n_threads(), before - 2); /* the pool has two threads beside those of its users */
    assert_int_equal(aerie_pool_create(&pool, 1025, &error), AERIE_ERROR_ARGUMENT);
    assert_null(pool);
    assert_non_null(strstr(error.text, "1025"));
    need(aerie_pool_create(&pool, 0, NULL), &error);
    assert_true(aerie_pool_n_threads(pool) >= 1);
    aerie_pool_free(pool);
    aerie_pool_free(NULL);
}

typedef struct heard {
    char text[256];
    size_t n;
    aerie_stop stop;
} heard;

static bool hear(void *user, const aerie_token_event *event)
{
    heard *h = user;
    memcpy(h->text + h->n, event->text, event->n_text);
    h->n += event->n_text;
    h->text[h->n] = '\0';
    if (event->token < 0) h->stop = event->stats->stop;
    return true;
}

/* A prompt of five equal tokens. */
static heard answer_of(aerie_session *session, int32_t token, bool special, const char *stop)
{
    static const int32_t prompt[] = {5, 6, 7};
    const aerie_logit_bias bias = {token, INFINITY};
    aerie_request r = aerie_request_default();
    aerie_error error = {0};
    aerie_task *task;
    heard h = {.stop = AERIE_STOP_NONE};
    r.tokens = prompt, r.n_tokens = 3, r.n_predict = 5, r.ignore_eos = true;
    r.sampling.logit_bias = &bias, r.sampling.n_logit_bias = 1;
    r.stop = &stop, r.n_stop = stop != NULL;
    r.special = special, r.token = hear, r.user = &h;
    need(aerie_session_submit(session, &r, &task, &error), &error);
    while (!aerie_task_ended(task)) need(aerie_session_step(session, &error), &error);
    aerie_task_free(task);
    return h;
}

static void test_special_text(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = 64, params.n_threads = 1;
    need(aerie_session_create(&session, model, &params, &error), &error);
    const char *five = "<|im_start|><|im_start|><|im_start|><|im_start|><|im_start|>";
    assert_string_equal(answer_of(session, MK_TOKEN_IM_START, false, NULL).text, "");
    assert_string_equal(answer_of(session, MK_TOKEN_IM_START, true, NULL).text, five);
    assert_string_equal(answer_of(session, MK_TOKEN_IM_START, true, "nothing").text, five);
    assert_string_equal(answer_of(session, MK_TOKEN_IM_END, true, NULL).text, ""); /* ends a generation */
    const heard stopped = answer_of(session, MK_TOKEN_IM_START, true, "start|><");
    assert_string_equal(stopped.text, "<|im_");
    assert_int_equal(stopped.stop, AERIE_STOP_STRING);
    assert_int_equal(answer_of(session, MK_TOKEN_IM_START, false, "start|><").stop, AERIE_STOP_LENGTH);
    aerie_session_free(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metadata), cmocka_unit_test(test_vocabulary), cmocka_unit_test(test_backends),
        cmocka_unit_test(test_sessions_share_a_pool), cmocka_unit_test(test_special_text),
    };
    return cmocka_run_group_tests(tests, make, drop);
}

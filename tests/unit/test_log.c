/* test_log.c - messages by aerie_log: which sentence, at which level, to which log, by which thread; none without a log.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie_extra.h"
#include "../laws/spec_rig.inc"
#include "mkhead.h"

typedef struct heard {
    size_t n[3]; /* by level */
    char text[4096];
    pthread_t thread;
} heard;

static void on_log(void *user, aerie_log_level level, const char *sentence)
{
    heard *h = user;
    assert_true(pthread_equal(h->thread, pthread_self()));
    assert_non_null(aerie_log_level_name(level));
    assert_null(strchr(sentence, '\n'));
    h->n[level]++;
    const size_t n = strlen(h->text);
    snprintf(h->text + n, sizeof h->text - n, "%s: %s\n", aerie_log_level_name(level), sentence);
}

static aerie_log log_to(heard *h)
{
    *h = (heard){.thread = pthread_self()};
    return (aerie_log){on_log, h};
}

static void said(const heard *h, const char *text)
{
    if (!strstr(h->text, text)) fail_msg("'%s' was not said, but: %s", text, h->text);
}

static aerie_model *load_with(const char *name, const char *const *overrides, size_t n, heard *h)
{
    aerie_error error = {0};
    aerie_model *m;
    aerie_model_params p = aerie_model_params_default();
    p.n_threads = 2, p.overrides = overrides, p.n_overrides = n;
    if (h) p.log = log_to(h);
    need(aerie_model_load(&m, path_of(name), &p, &error), &error);
    return m;
}

static void test_models(void **state)
{
    (void)state;
    heard h;
    static const char *const overrides[] = {"llama.context_length=int:77", "tokenizer.ggml.add_bos_tken=bool:true",
                                            "llama.attention.scale=float:0.2", "tokenizer.ggml.fim_pre_token_id=int:3",
                                            "general.version=str:2"};
    aerie_model_free(load_with("m", NULL, 0, NULL)); /* without a log nothing is printed */
    aerie_model *m = load_with("m", overrides, 5, &h);
    said(&h, "info: loaded '");
    said(&h, "warning: override 'tokenizer.ggml.add_bos_tken=bool:true' has no effect");
    assert_int_equal(h.n[AERIE_LOG_WARNING], 1);
    said(&h, "info: override 'llama.attention.scale=float:0.2': the file has no key of this name, so it is added");
    said(&h, "info: override 'tokenizer.ggml.fim_pre_token_id=int:3'");
    said(&h, "info: override 'general.version=str:2'");
    assert_null(strstr(h.text, "context_length"));
    aerie_model_free(m);
    assert_null(aerie_log_level_name((aerie_log_level)3));
    assert_null(aerie_log_level_name((aerie_log_level)-1));
}

/* A session reports to its own log, or else to the model's. */
static void test_sessions(void **state)
{
    (void)state;
    heard of_model, own;
    static const char *const overrides[] = {"llama.context_length=int:100"};
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params p = aerie_session_params_default();
    aerie_model *m = load_with("m", overrides, 1, &of_model);
    p.n_threads = 2, p.spec.type = AERIE_SPEC_NONE, p.n_ctx = 100;
    need(aerie_session_create(&session, m, &p, &error), &error);
    aerie_session_free(session);
    assert_int_equal(of_model.n[AERIE_LOG_WARNING], 0);
    p.n_ctx = 101;
    need(aerie_session_create(&session, m, &p, &error), &error);
    aerie_session_free(session);
    said(&of_model, "warning: a context (-c) of 101 is more than the 100 positions that the model was trained for");
    assert_int_equal(of_model.n[AERIE_LOG_WARNING], 1);
    p.log = log_to(&own), p.n_kv = 64;
    need(aerie_session_create(&session, m, &p, &error), &error);
    aerie_session_free(session);
    assert_int_equal(of_model.n[AERIE_LOG_WARNING], 1);
    assert_int_equal(own.n[AERIE_LOG_WARNING], 2);
    said(&own, "warning: a KV cache of 64 positions cannot hold one sequence of a context of 101, so it has ");
    aerie_model_free(m);
}

/* A drafter that cannot be used is left out where that is allowed, and only there. */
static void test_optional_drafters(void **state)
{
    (void)state;
    heard h;
    aerie_error error = {0};
    aerie_session *session;
    aerie_drafter_head *head;
    aerie_session_params p = aerie_session_params_default();
    aerie_model *m = load_with("m", NULL, 0, &h), *other = load_with("m", NULL, 0, NULL);
    char head_path[96];
    snprintf(head_path, sizeof head_path, "%s/head.gguf", folder);
    need(mkhead_write(&(mkhead_options){.kind = "eagle3", .seed = 1}, path_of("m"), head_path, &error), &error);
    need(aerie_drafter_head_load(&head, m, head_path, NULL, &error), &error);
    unlink(head_path);
    said(&h, "info: drafter head '"), said(&h, "EAGLE-3");
    p.n_ctx = 64, p.n_threads = 1, p.spec.head = head, p.log = log_to(&h);
    assert_int_equal(aerie_session_create(&session, other, &p, &error), AERIE_ERROR_ARGUMENT); /* the head is another model's */
    assert_null(session);
    assert_int_equal(h.n[AERIE_LOG_WARNING], 0);
    p.spec.optional = true;
    need(aerie_session_create(&session, other, &p, &error), &error);
    said(&h, "warning: the drafter head is not used: the drafter head was loaded for another model");
    assert_int_equal(h.n[AERIE_LOG_WARNING], 1);
    assert_string_equal(aerie_session_spec_name(session), "ngram");
    aerie_session_free(session);
    need(aerie_session_create(&session, other, &p, NULL), &error); /* nobody asks why */
    aerie_session_free(session);
    need(aerie_session_create(&session, m, &p, &error), &error);
    assert_string_equal(aerie_session_spec_name(session), "draft-eagle3+ngram");
    aerie_session_free(session);
    p.spec.type = AERIE_SPEC_EAGLE3; /* asked for by name, it must be usable */
    assert_int_equal(aerie_session_create(&session, other, &p, &error), AERIE_ERROR_ARGUMENT);
    p.spec.type = AERIE_SPEC_AUTO, p.n_ctx = 7; /* not the drafter's fault: the sentence does not mention drafters */
    h.n[AERIE_LOG_WARNING] = 0;
    assert_int_equal(aerie_session_create(&session, m, &p, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "the context size is 7"));
    assert_int_equal(h.n[AERIE_LOG_WARNING], 0);
    aerie_drafter_head_free(head);
    aerie_model_free(m);
    aerie_model_free(other);
}

/* Sequences that had to wait for memory are reported once, by the thread that steps. */
static void test_a_full_cache(void **state)
{
    (void)state;
    heard h;
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params p = aerie_session_params_default();
    aerie_request requests[4];
    static int32_t prompt[4][120];
    static run r;
    aerie_model *m = load_with("m", NULL, 0, NULL);
    p.n_ctx = 256, p.n_seqs = 4, p.n_threads = 2, p.n_kv = 384, p.spec.type = AERIE_SPEC_NONE, p.log = log_to(&h);
    need(aerie_session_create(&session, m, &p, &error), &error);
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 120; k++) prompt[i][k] = 3 + (i * 131 + k * 17) % 200;
        requests[i] = aerie_request_default();
        requests[i].tokens = prompt[i], requests[i].n_tokens = 120, requests[i].n_predict = 60, requests[i].ignore_eos = true;
        requests[i].sampling.temperature = 0;
    }
    generate(session, m, requests, 4, &r);
    generate(session, m, requests, 4, &r);
    uint32_t n_preempted = 0;
    for (int i = 0; i < 4; i++) n_preempted += r.answers[i].stats.n_preempted;
    assert_true(n_preempted > 0);
    assert_int_equal(h.n[AERIE_LOG_WARNING], 1);
    said(&h, "warning: the KV cache of 384 positions is too small for the running sequences");
    aerie_session_free(session);
    aerie_model_free(m);
}

static void test_schemas(void **state)
{
    (void)state;
    static const char schema[] = "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"uniqueItems\":true}";
    heard h;
    aerie_error error = {0};
    aerie_grammar *grammar;
    aerie_schema_params p = aerie_schema_params_default();
    need(aerie_grammar_create_schema(&grammar, schema, sizeof schema - 1, &p, &error), &error);
    aerie_grammar_free(grammar);
    p.log = log_to(&h);
    need(aerie_grammar_create_schema(&grammar, schema, sizeof schema - 1, &p, &error), &error);
    aerie_grammar_free(grammar);
    assert_int_equal(h.n[AERIE_LOG_WARNING], 1);
    said(&h, "uniqueItems");
    p.strict = true;
    assert_int_equal(aerie_grammar_create_schema(&grammar, schema, sizeof schema - 1, &p, &error),
                     AERIE_ERROR_UNSUPPORTED);
    assert_null(grammar);
    assert_int_equal(h.n[AERIE_LOG_WARNING], 1);
}

static int make(void **state)
{
    (void)state;
    mk_options o;
    aerie_error error = {0};
    if (!mkdtemp(folder)) return 1;
    mk_shape("tiny", &o);
    need(mk_model(&o, path_of("m"), &error), &error);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    unlink(path_of("m"));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models), cmocka_unit_test(test_sessions),
                                       cmocka_unit_test(test_optional_drafters), cmocka_unit_test(test_a_full_cache),
                                       cmocka_unit_test(test_schemas)};
    return cmocka_run_group_tests(tests, make, drop);
}

/* test_api_edges.c - mistakes of the library's callers: NULL for a required pointer, more requests than may wait, a child of
 * fork() that uses its parent's session. Each gets a status with a sentence; nothing crashes or hangs. Also that an importance
 * matrix counts all rows of a prompt. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie.h"
#include "aerie_extra.h"
#include "aerie_measure.h"
#include "mkmodel.h"

static char folder[] = "/tmp/aerie_edges_XXXXXX";
static char path[96];
static aerie_model *model;
static aerie_session *session;

static void need(aerie_status status, const aerie_error *error)
{
    if (status != AERIE_OK) fail_msg("%s", error->text);
}

static aerie_session *open_session(uint32_t n_seqs, uint32_t n_waiting)
{
    aerie_error error = {0};
    aerie_session *made;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = 256, params.n_seqs = n_seqs, params.n_threads = 2, params.n_waiting = n_waiting;
    need(aerie_session_create(&made, model, &params, &error), &error);
    return made;
}

static int make(void **state)
{
    (void)state;
    mk_options o;
    aerie_error error = {0};
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    mk_shape("tiny", &o);
    need(mk_model(&o, path, &error), &error);
    need(aerie_model_load(&model, path, NULL, &error), &error);
    session = open_session(2, 3);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    aerie_session_free(session);
    aerie_model_free(model);
    unlink(path);
    return rmdir(folder);
}

/* ---- NULL ------------------------------------------------------------------------------------------------------- */

static void check_refused(aerie_status status, const aerie_error *error, const char *what)
{
    if (status != AERIE_ERROR_ARGUMENT || error->status != status || !strstr(error->text, "NULL"))
        fail_msg("%s: status %d, '%s'", what, (int)status, error->text);
}

#define REFUSED(call)                                \
    do {                                             \
        aerie_error own_error = {0}, *e = &own_error; \
        check_refused((call), e, #call);             \
        e = NULL;                                    \
        assert_int_equal((call), AERIE_ERROR_ARGUMENT); \
    } while (0)

static bool logits(void *user, size_t position, const float *row)
{
    (void)user, (void)position, (void)row;
    return true;
}

static bool features(void *user, size_t position, const float *row, const float *more)
{
    (void)more;
    return logits(user, position, row);
}

static void test_null_models_and_texts(void **state)
{
    (void)state;
    aerie_model *m;
    int32_t *tokens, one = 1;
    char *text;
    size_t n, first;
    aerie_chat chat = aerie_chat_default();
    REFUSED(aerie_model_load(NULL, path, NULL, e));
    REFUSED(aerie_model_load(&m, NULL, NULL, e));
    REFUSED(aerie_model_metadata_key(NULL, 0, &text, e));
    REFUSED(aerie_model_metadata_key(model, 0, NULL, e));
    REFUSED(aerie_model_metadata_get(NULL, "k", &text, NULL, NULL, e));
    REFUSED(aerie_model_metadata_get(model, "k", NULL, NULL, NULL, e));
    REFUSED(aerie_model_tokenize(NULL, "x", 1, true, true, &tokens, &n, e));
    REFUSED(aerie_model_tokenize(model, NULL, 1, true, true, &tokens, &n, e));
    REFUSED(aerie_model_tokenize(model, "x", 1, true, true, NULL, &n, e));
    REFUSED(aerie_model_tokenize(model, "x", 1, true, true, &tokens, NULL, e));
    REFUSED(aerie_model_detokenize(NULL, &one, 1, true, &text, &n, e));
    REFUSED(aerie_model_detokenize(model, NULL, 1, true, &text, &n, e));
    REFUSED(aerie_model_detokenize(model, &one, 1, true, NULL, &n, e));
    REFUSED(aerie_model_detokenize(model, &one, 1, true, &text, NULL, e));
    REFUSED(aerie_model_chat_render(model, NULL, &text, &n, e));
    REFUSED(aerie_model_chat_render(model, &chat, NULL, &n, e));
    REFUSED(aerie_model_chat_render(model, &chat, &text, NULL, e));
    REFUSED(aerie_model_chat_tokens(NULL, &chat, &tokens, &n, NULL, NULL, e));
    REFUSED(aerie_model_chat_tokens(model, NULL, &tokens, &n, NULL, NULL, e));
    REFUSED(aerie_model_chat_tokens(model, &chat, NULL, &n, NULL, NULL, e));
    REFUSED(aerie_model_chat_tokens(model, &chat, &tokens, NULL, NULL, NULL, e));
    REFUSED(aerie_model_chat_tokenize(NULL, "x", 1, &tokens, &n, e));
    REFUSED(aerie_model_chat_tokenize(model, NULL, 1, &tokens, &n, e));
    REFUSED(aerie_model_chat_tokenize(model, "x", 1, NULL, &n, e));
    REFUSED(aerie_model_chat_tokenize(model, "x", 1, &tokens, NULL, e));
    REFUSED(aerie_model_rerank_tokens(NULL, "x", 1, "y", 1, &tokens, &n, &first, e));
    REFUSED(aerie_model_rerank_tokens(model, NULL, 1, "y", 1, &tokens, &n, &first, e));
    REFUSED(aerie_model_rerank_tokens(model, "x", 1, NULL, 1, &tokens, &n, &first, e));
    REFUSED(aerie_model_rerank_tokens(model, "x", 1, "y", 1, NULL, &n, &first, e));
    REFUSED(aerie_model_rerank_tokens(model, "x", 1, "y", 1, &tokens, NULL, &first, e));
    REFUSED(aerie_model_rerank_tokens(model, "x", 1, "y", 1, &tokens, &n, NULL, e));
}

static void test_null_grammars_heads_and_pools(void **state)
{
    (void)state;
    aerie_grammar *g;
    bool accepted;
    size_t n;
    char *text;
    aerie_drafter_head *head;
    aerie_adapter *adapter;
    aerie_memory_plan plan;
    const aerie_lazy_params lazy = aerie_lazy_params_default();
    aerie_error error = {0};
    REFUSED(aerie_grammar_create(NULL, "root ::= \"a\"", 12, e));
    REFUSED(aerie_grammar_create(&g, NULL, 12, e));
    REFUSED(aerie_grammar_create_schema(NULL, "{}", 2, NULL, e));
    REFUSED(aerie_grammar_create_schema(&g, NULL, 2, NULL, e));
    REFUSED(aerie_grammar_create_lazy(NULL, &lazy, e));
    REFUSED(aerie_grammar_create_lazy(&g, NULL, e));
    need(aerie_grammar_create(&g, "root ::= \"a\"", 12, &error), &error);
    REFUSED(aerie_grammar_check(NULL, "a", 1, &accepted, &n, e));
    REFUSED(aerie_grammar_check(g, NULL, 1, &accepted, &n, e));
    REFUSED(aerie_grammar_check(g, "a", 1, NULL, &n, e));
    REFUSED(aerie_grammar_check(g, "a", 1, &accepted, NULL, e));
    aerie_grammar_free(g);
    REFUSED(aerie_drafter_head_find(NULL, path, AERIE_SPEC_AUTO, e));
    REFUSED(aerie_drafter_head_find(&text, NULL, AERIE_SPEC_AUTO, e));
    REFUSED(aerie_drafter_head_load(NULL, model, path, NULL, e));
    REFUSED(aerie_drafter_head_load(&head, NULL, path, NULL, e));
    REFUSED(aerie_drafter_head_load(&head, model, NULL, NULL, e));
    REFUSED(aerie_adapter_load(NULL, model, path, NULL, e));
    REFUSED(aerie_adapter_load(&adapter, NULL, path, NULL, e));
    REFUSED(aerie_adapter_load(&adapter, model, NULL, NULL, e));
    REFUSED(aerie_pool_create(NULL, 1, e));
    REFUSED(aerie_memory_plan_get(NULL, NULL, NULL, &plan, sizeof plan, e));
    REFUSED(aerie_memory_plan_get(path, NULL, NULL, NULL, sizeof plan, e));
    REFUSED(aerie_memory_plan_draft(NULL, path, NULL, NULL, &plan, sizeof plan, e));
    REFUSED(aerie_memory_plan_draft(path, NULL, NULL, NULL, &plan, sizeof plan, e));
    REFUSED(aerie_memory_plan_draft(path, path, NULL, NULL, NULL, sizeof plan, e));
}

static void test_null_sessions(void **state)
{
    (void)state;
    aerie_session *s;
    aerie_task *task;
    aerie_embedder *embedder;
    aerie_imatrix *imatrix;
    void *data;
    size_t n;
    int32_t *tokens, one = 1;
    double seconds;
    float vector[4096];
    aerie_request request = aerie_request_default();
    aerie_error error = {0};
    request.tokens = &one, request.n_tokens = 1;
    REFUSED(aerie_session_create(NULL, model, NULL, e));
    REFUSED(aerie_session_create(&s, NULL, NULL, e));
    REFUSED(aerie_session_set_moe_experts(NULL, 1, e));
    REFUSED(aerie_session_submit(NULL, &request, &task, e));
    REFUSED(aerie_session_submit(session, NULL, &task, e));
    REFUSED(aerie_session_submit(session, &request, NULL, e));
    request.tokens = NULL;
    REFUSED(aerie_session_submit(session, &request, &task, e));
    request.tokens = &one;
    REFUSED(aerie_session_step(NULL, e));
    REFUSED(aerie_session_generate(NULL, &request, 1, NULL, NULL, NULL, 0, e));
    REFUSED(aerie_session_generate(session, NULL, 1, NULL, NULL, NULL, 0, e));
    REFUSED(aerie_embedder_create(NULL, model, NULL, e));
    REFUSED(aerie_embedder_create(&embedder, NULL, NULL, e));
    need(aerie_embedder_create(&embedder, model, NULL, &error), &error);
    const aerie_embed_text text = {.tokens = &one, .n_tokens = 1}, empty = {.n_tokens = 1};
    REFUSED(aerie_embedder_embed(NULL, &text, 1, vector, e));
    REFUSED(aerie_embedder_embed(embedder, NULL, 1, vector, e));
    REFUSED(aerie_embedder_embed(embedder, &text, 1, NULL, e));
    REFUSED(aerie_embedder_embed(embedder, &empty, 1, vector, e));
    aerie_embedder_free(embedder);
    REFUSED(aerie_task_save(NULL, &data, &n, e));
    REFUSED(aerie_session_prefix_save(NULL, 0, NULL, 0, &one, 1, &data, &n, e));
    REFUSED(aerie_session_prefix_save(session, 0, NULL, 0, NULL, 1, &data, &n, e));
    REFUSED(aerie_session_prefix_save(session, 0, NULL, 0, &one, 1, NULL, &n, e));
    REFUSED(aerie_session_prefix_save(session, 0, NULL, 0, &one, 1, &data, NULL, e));
    REFUSED(aerie_session_prefix_save(session, 0, NULL, 1, &one, 1, &data, &n, e));
    aerie_saving *saving;
    bool done;
    REFUSED(aerie_session_saving_begin(NULL, 0, NULL, 0, &one, 1, &saving, e));
    REFUSED(aerie_session_saving_begin(session, 0, NULL, 0, NULL, 1, &saving, e));
    REFUSED(aerie_session_saving_begin(session, 0, NULL, 0, &one, 1, NULL, e));
    REFUSED(aerie_session_saving_begin(session, 0, NULL, 1, &one, 1, &saving, e));
    REFUSED(aerie_saving_step(NULL, 1, &done, e));
    REFUSED(aerie_saving_finish(NULL, &data, &n, NULL, e));
    aerie_saving_free(NULL);
    aerie_loading *loading;
    REFUSED(aerie_session_loading_begin(NULL, 0, "x", 1, &loading, e));
    REFUSED(aerie_session_loading_begin(session, 0, NULL, 1, &loading, e));
    REFUSED(aerie_session_loading_begin(session, 0, "x", 1, NULL, e));
    REFUSED(aerie_loading_step(NULL, 1, &done, NULL, e));
    aerie_loading_free(NULL);
    aerie_session_wake(NULL);
    REFUSED(aerie_session_prefix_load(NULL, 0, "x", 1, NULL, e));
    REFUSED(aerie_session_prefix_load(session, 0, NULL, 1, NULL, e));
    aerie_memory_plan plan;
    REFUSED(aerie_memory_plan_tower(NULL, NULL, NULL, 0, 0, &plan, sizeof plan, e));
    REFUSED(aerie_memory_plan_tower("none.gguf", NULL, NULL, 0, 0, NULL, sizeof plan, e));
    REFUSED(aerie_saved_tokens(NULL, 1, &tokens, &n, NULL, e));
    REFUSED(aerie_saved_tokens("x", 1, NULL, &n, NULL, e));
    REFUSED(aerie_saved_tokens("x", 1, &tokens, NULL, NULL, e));
    REFUSED(aerie_session_eval_adapters(NULL, NULL, 0, e));
    REFUSED(aerie_session_eval_adapters(session, NULL, 1, e));
    REFUSED(aerie_session_eval(NULL, &one, 1, logits, NULL, e));
    REFUSED(aerie_session_eval(session, NULL, 1, logits, NULL, e));
    REFUSED(aerie_session_eval_parallel(NULL, &one, 1, 0, logits, NULL, e));
    REFUSED(aerie_session_eval_parallel(session, NULL, 1, 0, logits, NULL, e));
    REFUSED(aerie_session_eval_features(NULL, &one, 1, features, NULL, e));
    REFUSED(aerie_session_eval_features(session, NULL, 1, features, NULL, e));
    REFUSED(aerie_session_watch_passes(NULL, NULL, NULL, e));
    REFUSED(aerie_session_time_pass(NULL, 1, 0, true, 1, &seconds, e));
    REFUSED(aerie_session_time_pass(session, 1, 0, true, 1, NULL, e));
    REFUSED(aerie_imatrix_create(NULL, session, NULL, e));
    REFUSED(aerie_imatrix_create(&imatrix, NULL, NULL, e));
    REFUSED(aerie_imatrix_save(NULL, path, NULL, 1, 1, e));
}

/* Writes the importance matrix of a text, which is a request's prompt, or is evaluated row by row. */
static void write_importance(bool prompt, const char *to)
{
    enum { N = 40 };
    aerie_session *s = open_session(1, 1);
    aerie_imatrix *imatrix;
    aerie_error error = {0};
    int32_t tokens[N];
    for (int32_t i = 0; i < N; i++) tokens[i] = 3 + i * 7 % 50;
    need(aerie_imatrix_create(&imatrix, s, NULL, &error), &error);
    aerie_request request = aerie_request_default();
    request.tokens = tokens, request.n_tokens = N, request.n_predict = 1;
    if (prompt) need(aerie_session_generate(s, &request, 1, NULL, NULL, NULL, 0, &error), &error);
    else need(aerie_session_eval(s, tokens, N, logits, NULL, &error), &error);
    need(aerie_imatrix_save(imatrix, to, "text", 1, N, &error), &error);
    aerie_imatrix_free(imatrix);
    aerie_session_free(s);
}

/* A prompt's rows count in all layers, although a session without an importance matrix leaves most of the last layer out. */
static void test_importance_of_a_prompt(void **state)
{
    (void)state;
    static char bytes[2][1 << 20];
    size_t n[2];
    for (int i = 0; i < 2; i++) {
        char to[128];
        snprintf(to, sizeof to, "%s/i.gguf", folder);
        write_importance(i, to);
        FILE *file = fopen(to, "rb");
        assert_non_null(file);
        n[i] = fread(bytes[i], 1, sizeof bytes[i], file);
        fclose(file);
        unlink(to);
        assert_true(n[i] > 1000 && n[i] < sizeof bytes[i]);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(bytes[0], bytes[1], n[0]);
}

/* Functions without a status return 0, false or NULL, and fill structs with zeros. */
static void test_null_getters(void **state)
{
    (void)state;
    aerie_model_info info = {.n_vocab = 9};
    aerie_token_info token;
    aerie_kv_use use = {.page = 9};
    aerie_adapter_info adapter = {.max_rank = 9};
    aerie_drafter_head_info head = {.n_embd = 9};
    aerie_imatrix_info imatrix = {.n_rows = 9};
    aerie_overlap overlap;
    aerie_model_info_get(NULL, &info, sizeof info);
    aerie_model_info_get(model, NULL, sizeof info);
    aerie_session_kv_use(NULL, &use, sizeof use);
    aerie_session_kv_use(session, NULL, sizeof use);
    aerie_adapter_info_get(NULL, &adapter, sizeof adapter);
    aerie_drafter_head_info_get(NULL, &head, sizeof head);
    aerie_imatrix_info_get(NULL, &imatrix, sizeof imatrix);
    assert_int_equal(info.n_vocab + use.page + adapter.max_rank + head.n_embd + imatrix.n_rows, 0);
    assert_false(aerie_model_token_info_get(NULL, 0, &token, sizeof token) || aerie_model_token_info_get(model, 0, NULL,
                                                                                                         sizeof token));
    assert_false(aerie_model_token_is_eog(NULL, 0) || aerie_model_adds_bos(NULL) || aerie_model_adds_eos(NULL));
    assert_int_equal(aerie_model_token_special(NULL, AERIE_SPECIAL_BOS), -1);
    assert_int_equal(aerie_model_n_metadata(NULL) + aerie_model_pass_bytes(NULL) + aerie_pool_n_threads(NULL), 0);
    assert_int_equal(aerie_session_n_ctx(NULL) + aerie_session_n_tasks(NULL), 0);
    assert_int_equal(aerie_embedder_n_out(NULL) + aerie_embedder_n_ctx(NULL), 0);
    assert_int_equal(aerie_embedder_pooling(NULL), AERIE_POOLING_AUTO);
    assert_null(aerie_session_spec_name(NULL));
    assert_null(aerie_session_drafter_name(NULL, 0));
    assert_null(aerie_task_stats(NULL));
    assert_null(aerie_session_poll(NULL));
    assert_null(aerie_chat_template_builtin(NULL));
    assert_true(aerie_task_slot(NULL) == -1 && !aerie_task_n_ahead(NULL));
    assert_false(aerie_session_wait(NULL, 1) || aerie_task_ended(NULL) || aerie_file_is_drafter_head(NULL));
    assert_false(aerie_session_overlap(NULL, &overlap, sizeof overlap));
    assert_false(aerie_rope_scaling_parse(NULL, NULL) || aerie_sampler_parse(NULL, NULL) || aerie_spec_type_parse(NULL, NULL));
    assert_false(aerie_kv_type_parse(NULL, NULL) || aerie_tree_parse(NULL, NULL) || aerie_pooling_parse(NULL, NULL));
    aerie_task_cancel(NULL);
    aerie_task_free(NULL);
    aerie_free(NULL);
    aerie_request_init(NULL, sizeof(aerie_request));
    aerie_session_params_init(NULL, 0);
}

/* ---- Back pressure ---------------------------------------------------------------------------------------------- */

static void test_requests_that_may_not_wait(void **state)
{
    (void)state;
    enum { N = 5 }; /* two run, three wait */
    const int32_t one = 5;
    aerie_task *tasks[N + 1];
    aerie_error error = {0};
    aerie_request request = aerie_request_default();
    request.tokens = &one, request.n_tokens = 1, request.n_predict = 4, request.ignore_eos = true;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < N; i++) need(aerie_session_submit(session, &request, &tasks[i], &error), &error);
        assert_int_equal(aerie_session_submit(session, &request, &tasks[N], &error), AERIE_ERROR_BUSY);
        assert_non_null(strstr(error.text, "n_waiting"));
        assert_null(tasks[N]);
        request.n_tokens = 0; /* requests that are refused for another reason take no place in the queue */
        assert_int_not_equal(aerie_session_submit(session, &request, &tasks[N], &error), AERIE_OK);
        request.n_tokens = 1;
        assert_int_equal(aerie_session_n_tasks(session), N);
        while (aerie_session_n_tasks(session)) need(aerie_session_step(session, &error), &error);
        while (aerie_session_poll(session)) {}
        for (size_t i = 0; i < N; i++) aerie_task_free(tasks[i]);
    }
    aerie_request many[2 * N]; /* aerie_session_generate waits for its own requests: their number is not limited */
    for (size_t i = 0; i < 2 * N; i++) many[i] = request;
    need(aerie_session_generate(session, many, 2 * N, NULL, NULL, NULL, 0, &error), &error);
}

/* ---- fork() ----------------------------------------------------------------------------------------------------- */

/* In the child: 0, or which step was wrong. */
static int use_of_the_parent(aerie_session *s, aerie_task *task, aerie_embedder *embedder)
{
    const int32_t one = 5;
    float vector[4096];
    aerie_error error = {0};
    aerie_request request = aerie_request_default();
    aerie_task *other;
    request.tokens = &one, request.n_tokens = 1, request.n_predict = 4;
    if (aerie_session_submit(s, &request, &other, &error) != AERIE_ERROR_ARGUMENT || !strstr(error.text, "fork")) return 1;
    if (aerie_session_step(s, &error) != AERIE_ERROR_ARGUMENT || !strstr(error.text, "fork")) return 2;
    if (aerie_session_generate(s, &request, 1, NULL, NULL, NULL, 0, &error) != AERIE_ERROR_ARGUMENT) return 3;
    if (aerie_session_eval(s, &one, 1, logits, NULL, &error) != AERIE_ERROR_ARGUMENT) return 4;
    if (aerie_session_wait(s, 1e9)) return 5;
    const aerie_embed_text text = {.tokens = &one, .n_tokens = 1};
    if (aerie_embedder_embed(embedder, &text, 1, vector, &error) != AERIE_ERROR_ARGUMENT || !strstr(error.text,
                                                                                                    "fork")) return 6;
    aerie_task_cancel(task);
    aerie_session_free(s);
    aerie_task_free(task);
    aerie_embedder_free(embedder);
    aerie_session *own = open_session(1, 0); /* the model works in the child, too */
    if (aerie_session_generate(own, &request, 1, NULL, NULL, NULL, 0, &error) != AERIE_OK) return 7;
    aerie_session_free(own);
    return 0;
}

static void test_a_child_says_that_the_session_is_not_its_own(void **state)
{
    (void)state;
    const int32_t one = 5;
    aerie_session *s = open_session(2, 0);
    aerie_embedder *embedder;
    aerie_task *task;
    aerie_error error = {0};
    aerie_request request = aerie_request_default();
    int status = 0;
    request.tokens = &one, request.n_tokens = 1, request.n_predict = 40, request.ignore_eos = true;
    need(aerie_embedder_create(&embedder, model, NULL, &error), &error);
    need(aerie_session_submit(s, &request, &task, &error), &error);
    need(aerie_session_step(s, &error), &error);
    const pid_t child = fork();
    if (child == 0) {
        alarm(1200);
        _exit(use_of_the_parent(s, task, embedder));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    while (!aerie_task_ended(task)) need(aerie_session_step(s, &error), &error); /* the parent goes on */
    assert_int_equal(aerie_task_stats(task)->n_generated, 40);
    while (aerie_session_poll(s)) {}
    aerie_task_free(task);
    aerie_embedder_free(embedder);
    aerie_session_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null_models_and_texts),
        cmocka_unit_test(test_null_grammars_heads_and_pools),
        cmocka_unit_test(test_null_sessions),
        cmocka_unit_test(test_importance_of_a_prompt),
        cmocka_unit_test(test_null_getters),
        cmocka_unit_test(test_requests_that_may_not_wait),
        cmocka_unit_test(test_a_child_says_that_the_session_is_not_its_own),
    };
    return cmocka_run_group_tests(tests, make, drop);
}

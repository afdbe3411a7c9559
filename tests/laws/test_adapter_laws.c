/* test_adapter_laws.c - law 1 for requests with LoRA adapters: each has the bytes that it has alone, whatever its neighbours
 * use.
 *
 * Eight sequences with three adapters at once: with drafters, reused prefixes, preemption, two threads, the strict backend;
 * every CPU level; models of other kinds. Then sequences that are saved, and refusals.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie_extra.h"
#include "aerie_measure.h"
#include "every.h"
#include "mkarch.h"
#include "mkhead.h"
#include "mklora.h"
#include "spec_rig.inc"

#define N_CTX 256
#define N_PREDICT 16
#define N_REQUESTS 8
#define N_ADAPTERS 3

static const mklora_options recipes[N_ADAPTERS] = {
    {.rank = 8, .seed = 1}, {.rank = 4, .seed = 2, .type = "f16", .uneven = true},
    {.rank = 64, .seed = 3, .type = "q8_0", .alpha = 16}};

/* A model with its adapters, on some backend and level. */
typedef struct loaded {
    aerie_model *model;
    aerie_adapter *adapters[N_ADAPTERS];
    aerie_drafter_head *head;
} loaded;

static loaded usual;
static int32_t prompts[N_REQUESTS][140];

static const char *file(const char *name) /* of several at once */
{
    static char paths[4][96];
    static int at;
    char *path = paths[at++ % 4];
    snprintf(path, sizeof paths[0], "%s", path_of(name));
    return path;
}

static bool open_all(loaded *l, const char *name, const char *backend, const char *level)
{
    aerie_error error = {0};
    aerie_model_params params = aerie_model_params_default();
    params.backend = backend, params.cpu_level = level, params.n_threads = 1;
    *l = (loaded){0};
    const aerie_status status = aerie_model_load(&l->model, file(name), &params, &error);
    if (status == AERIE_ERROR_ARGUMENT && strstr(error.text, "lacks the level")) return false;
    need(status, &error);
    for (int i = 0; i < N_ADAPTERS; i++) {
        char adapter[16];
        snprintf(adapter, sizeof adapter, "%s%d", name, i);
        need(aerie_adapter_load(&l->adapters[i], l->model, file(adapter), NULL, &error), &error);
    }
    return true;
}

static void close_all(loaded *l)
{
    for (int i = 0; i < N_ADAPTERS; i++) aerie_adapter_free(l->adapters[i]);
    aerie_drafter_head_free(l->head);
    aerie_model_free(l->model);
}

static void write_adapters(const char *name, const char *match)
{
    aerie_error error = {0};
    for (int i = 0; i < N_ADAPTERS; i++) {
        char adapter[16];
        mklora_options o = recipes[i];
        snprintf(adapter, sizeof adapter, "%s%d", name, i);
        o.match = match;
        need(mklora_write(&o, file(name), file(adapter), &error), &error);
    }
}

static int make(void **state)
{
    (void)state;
    aerie_error error = {0};
    mk_options o;
    uint64_t random = 5;
    if (!mkdtemp(folder)) return 1;
    mk_shape("tiny", &o);
    o.type = "q8_0", o.n_layers = 3, o.layer_decay = 0.25f, o.forgetful = true, o.seed = 1;
    need(mk_model(&o, file("m"), &error), &error);
    write_adapters("m", NULL);
    if (!open_all(&usual, "m", NULL, NULL)) return 1;
    need(mkhead_write(&(mkhead_options){.kind = "eagle3", .n_draft = 24}, file("m"), file("head"), &error), &error);
    need(aerie_drafter_head_load(&usual.head, usual.model, file("head"), NULL, &error), &error);
    for (int i = 0; i < N_REQUESTS; i++) /* two beginnings; all ids are below 264 */
        for (int k = 0; k < 140; k++)
            prompts[i][k] = k < 20 ? (int32_t)(3 + mk_random(&random) % 250)
                            : k < 90 && i > 1 ? prompts[i % 2][k] : prompts[i][k - 20];
    for (int i = 2; i < N_REQUESTS; i++) memcpy(prompts[i], prompts[i % 2], 20 * sizeof(int32_t));
    return 0;
}

static int drop(void **state)
{
    (void)state;
    char line[128];
    close_all(&usual);
    snprintf(line, sizeof line, "rm -r '%s'", folder);
    return system(line);
}

/* ---- Requests ------------------------------------------------------------------------------------------------ */

/* By request; scale 0 ends a list. */
static const aerie_adapter_use uses[N_REQUESTS][N_ADAPTERS + 1] = {
    {{0, 0}}, {{0, 1}}, {{1, 0.5f}}, {{2, -1}}, {{0, 1}, {1, 0.5f}}, {{2, 0.75f}, {0, 0.25f}, {1, 1.5f}}, {{0, 0}}, {{0, 1}}};

static aerie_request request_of(uint32_t i)
{
    aerie_request r = aerie_request_default();
    r.tokens = prompts[i], r.n_tokens = 100 + 5 * i, r.n_predict = N_PREDICT, r.ignore_eos = true, r.n_logprobs = 2;
    r.sampling.temperature = i % 3 ? 0.8f : 0, r.sampling.seed = i;
    r.adapters = uses[i];
    while (uses[i][r.n_adapters].scale != 0) r.n_adapters++;
    return r;
}

typedef struct trace {
    int32_t ids[N_PREDICT];
    float logprobs[N_PREDICT][3];
    uint32_t n, n_deep, n_cached;
} trace;

static bool on_event(void *user, const aerie_token_event *e)
{
    trace *t = &((trace *)user)[e->i_request];
    if (e->token < 0) {
        if (e->refused) fail_msg("%s", e->refused->text);
        t->n_cached = e->stats->n_cached;
        return true;
    }
    t->ids[t->n] = e->token;
    t->logprobs[t->n][0] = e->logprob, t->logprobs[t->n][1] = e->top[0].logprob, t->logprobs[t->n][2] = e->top[1].logprob;
    t->n++;
    t->n_deep += e->draft_depth > 0;
    return true;
}

static void same(const trace *a, const trace *b, const char *what, size_t i)
{
    if (a->n != b->n || memcmp(a->ids, b->ids, sizeof a->ids) || memcmp(a->logprobs, b->logprobs, sizeof a->logprobs))
        fail_msg("%s: request %zu has other bytes than alone", what, i);
}

typedef struct how {
    aerie_spec_type type;
    uint32_t n_seqs, n_threads, n_batch, n_kv;
} how;

static aerie_session *open_session(const loaded *l, how h)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = N_CTX, params.n_seqs = h.n_seqs, params.n_batch = h.n_batch, params.n_threads = h.n_threads;
    params.n_kv = h.n_kv;
    params.spec.type = h.type, params.spec.n_max = 5;
    if (h.type == AERIE_SPEC_EAGLE3) params.spec.head = l->head;
    params.adapters = (const aerie_adapter *const *)l->adapters, params.n_adapters = N_ADAPTERS;
    need(ae_session_create_for_test(&session, l->model, &params, &(ae_session_test){.fixed = true}, &error), &error);
    return session;
}

static void answer_all(aerie_session *session, const aerie_request *requests, size_t n, trace *out)
{
    aerie_error error = {0};
    memset(out, 0, n * sizeof *out);
    need(aerie_session_generate(session, requests, n, on_event, out, NULL, 0, &error), &error);
}

/* Each request alone, in a session of its own, plainly decoded. */
static void run_alone(const loaded *l, const aerie_request *requests, size_t n, trace *out)
{
    for (size_t i = 0; i < n; i++) {
        aerie_session *session = open_session(l, (how){AERIE_SPEC_NONE, 1, 1, 512, 0});
        answer_all(session, &requests[i], 1, &out[i]);
        aerie_session_free(session);
    }
}

static void all_requests(aerie_request out[N_REQUESTS])
{
    for (uint32_t i = 0; i < N_REQUESTS; i++) out[i] = request_of(i);
}

static void test_neighbours_change_nothing(void **state)
{
    static const how ways[] = {{AERIE_SPEC_NONE, 8, 1, 512, 0},
                               {AERIE_SPEC_NGRAM, 8, 2, 32, 0},
                               {AERIE_SPEC_EAGLE3, 8, 1, 512, 0},
                               {AERIE_SPEC_EAGLE3, 8, 2, 48, 512},
                               {AERIE_SPEC_NGRAM, 3, 1, 64, 0}};
    trace alone[N_REQUESTS], got[N_REQUESTS];
    aerie_request requests[N_REQUESTS];
    (void)state;
    all_requests(requests);
    run_alone(&usual, requests, N_REQUESTS, alone);
    uint32_t n_deep = 0;
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        aerie_session *session = open_session(&usual, ways[w]);
        for (int round = 0; round < 2; round++) {
            answer_all(session, requests, N_REQUESTS, got);
            for (size_t i = 0; i < N_REQUESTS; i++) {
                same(&alone[i], &got[i], "together", i);
                n_deep += got[i].n_deep;
                if (round && w < 2 && got[i].n_cached < requests[i].n_tokens / 64 * 64) /* there is room for all prefixes */
                    fail_msg("request %zu found %u positions", i, got[i].n_cached);
            }
        }
        aerie_session_free(session);
    }
    assert_true(n_deep > 50);
}

/* Requests without adapters have the bytes of sessions that know none; others differ from them. */
static void test_the_base_is_the_base(void **state)
{
    trace with[N_REQUESTS], without[N_REQUESTS];
    aerie_request requests[N_REQUESTS];
    aerie_error error = {0};
    (void)state;
    all_requests(requests);
    aerie_session *session = open_session(&usual, (how){AERIE_SPEC_NGRAM, 8, 1, 512, 0});
    answer_all(session, requests, N_REQUESTS, with);
    aerie_session_free(session);
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = N_CTX, params.n_seqs = 8, params.n_threads = 1;
    need(aerie_session_create(&session, usual.model, &params, &error), &error);
    for (int i = 0; i < N_REQUESTS; i++) requests[i].adapters = NULL, requests[i].n_adapters = 0;
    answer_all(session, requests, N_REQUESTS, without);
    aerie_session_free(session);
    for (size_t i = 0; i < N_REQUESTS; i++) {
        if (uses[i][0].scale == 0) same(&without[i], &with[i], "base", i);
        else assert_memory_not_equal(without[i].logprobs, with[i].logprobs, sizeof with[i].logprobs);
    }
}

/* Keys and values of one set are not another's; the order of a list and scales of 0 are not differences. */
static void test_sets_are_part_of_the_prefix_key(void **state)
{
    static const aerie_adapter_use lists[][N_ADAPTERS] = {
        {{0, 0}}, {{0, 1}}, {{0, 0.5f}}, {{1, 1}}, {{0, 1}, {1, 1}}, {{1, 1}, {0, 1}}, {{2, 0}, {0, 1}}, {{1, 0}}};
    static const int n[] = {0, 1, 1, 1, 2, 2, 2, 1}, like[] = {0, 1, 2, 3, 4, 4, 1, 0};
    trace got[8];
    (void)state;
    aerie_session *session = open_session(&usual, (how){AERIE_SPEC_NONE, 1, 1, 512, 8 * N_CTX});
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 8; i++) {
            aerie_request r = request_of(0);
            trace t;
            r.adapters = lists[i], r.n_adapters = (size_t)n[i];
            answer_all(session, &r, 1, &t);
            if (!round && like[i] == i) assert_int_equal(t.n_cached, 0);
            else assert_int_equal(t.n_cached, r.n_tokens - 1);
            if (like[i] != i || round) same(&got[like[i]], &t, "equal sets", (size_t)i);
            got[i] = t;
            for (int k = 0; k < i && like[i] == i; k++)
                assert_memory_not_equal(got[k].logprobs, t.logprobs, sizeof t.logprobs);
        }
    aerie_session_free(session);
}

static void test_levels_and_backends(void **state)
{
    trace expected[N_REQUESTS], got[N_REQUESTS];
    aerie_request requests[N_REQUESTS];
    (void)state;
    all_requests(requests);
    run_alone(&usual, requests, N_REQUESTS, expected);
    for (size_t i = 0; i <= N_LEVELS; i++) {
        const bool strict = i == N_LEVELS;
        loaded l;
        if (!open_all(&l, "m", strict ? "cpu-strict" : NULL, strict ? NULL : levels[i])) continue;
        aerie_session *session = open_session(&l, (how){AERIE_SPEC_NGRAM, 8, 1 + i % 2, 64, 0});
        answer_all(session, requests, N_REQUESTS, got);
        for (size_t k = 0; k < N_REQUESTS; k++) same(&expected[k], &got[k], strict ? "strict" : levels[i], k);
        aerie_session_free(session);
        close_all(&l);
    }
}

/* Fused matrices, windows, recurrent layers, latent attention, experts, embeddings for layers. */
static void test_models_of_other_kinds(void **state)
{
    static const struct {
        const char *name, *match;
    } kinds[] = {
        {"phi3", NULL},
        {"gemma3", NULL},
        {"glm4", NULL},
        {"qwen35", "attn_q. attn_k. attn_v. attn_qkv attn_gate attn_output ssm_out ffn_up ffn_down ssm_alpha ssm_beta"},
        {"granitehybrid-moe", "attn_q. attn_output ssm_in ssm_out"},
        {"qwen3next-fused", "attn_q. ssm_in ssm_ba ssm_out"},
        {"lfm2", "in_proj out_proj ffn_gate attn_v"},
        {"deepseek2", "attn_q_a attn_q_b attn_kv_a_mqa attn_output"},
        {"llama-moe", "attn_q. attn_k. attn_v. attn_output output"},
        {"gemma3n", "attn_q. attn_output ffn_gate laurel_l laurel_r altup_predict"},
        {"gemma4", "attn_q. attn_output ffn_gate inp_gate proj.weight"},
        {"command-r", NULL}};
    trace alone[N_REQUESTS], got[N_REQUESTS];
    aerie_request requests[N_REQUESTS];
    aerie_error error = {0};
    (void)state;
    all_requests(requests);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k += AE_TEST_EVERY > 4 ? 3 : 1) {
        loaded l;
        need(mkarch_write(mkarch_find(kinds[k].name), false, file("k"), &error), &error);
        write_adapters("k", kinds[k].match);
        open_all(&l, "k", NULL, NULL);
        run_alone(&l, requests, 6, alone);
        aerie_session *session = open_session(&l, (how){AERIE_SPEC_NGRAM, 6, 1, 64, 0});
        for (int round = 0; round < 2; round++) {
            answer_all(session, requests, 6, got);
            for (size_t i = 0; i < 6; i++) same(&alone[i], &got[i], kinds[k].name, i);
        }
        for (size_t i = 1; i < 6; i++) assert_memory_not_equal(alone[0].logprobs, alone[i].logprobs, sizeof alone[0].logprobs);
        aerie_session_free(session);
        close_all(&l);
    }
}

/* ---- Measuring ------------------------------------------------------------------------------------------------- */

enum { N_MEASURED = 70 };

typedef struct told {
    float *logits; /* [N_MEASURED][n_vocab] */
    size_t n_vocab, n;
} told;

static bool tell(void *user, size_t position, const float *logits)
{
    told *t = user;
    if (position < N_MEASURED) memcpy(t->logits + position * t->n_vocab, logits, t->n_vocab * sizeof *logits), t->n++;
    return true;
}

static void tell_row(void *user, size_t i_request, size_t position, const float *logits, const float *features)
{
    (void)i_request, (void)features;
    tell(user, position, logits);
}

/* Evaluated texts have the logits of requests with the same adapters, whatever was evaluated or answered before. */
static void test_measuring(void **state)
{
    static const uint32_t order[] = {4, 0, 1, 5, 5, 3};
    aerie_error error = {0};
    aerie_model_info info;
    double seconds;
    (void)state;
    aerie_model_info_get(usual.model, &info, sizeof info);
    const size_t bytes = N_MEASURED * info.n_vocab * sizeof(float);
    told asked = {.logits = malloc(bytes), .n_vocab = info.n_vocab},
         measured = {.logits = malloc(bytes), .n_vocab = info.n_vocab};
    assert_true(asked.logits && measured.logits);
    aerie_session *session = open_session(&usual, (how){AERIE_SPEC_NONE, 2, 1, 32, 0});
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        aerie_request r = request_of(order[i]);
        asked.n = measured.n = 0;
        r.tokens = prompts[0], r.n_tokens = N_MEASURED, r.n_predict = 2, r.row = tell_row, r.user = &asked;
        need(aerie_session_eval_adapters(session, r.adapters, r.n_adapters, &error), &error);
        need(aerie_session_generate(session, &r, 1, NULL, &asked, NULL, 0, &error), &error); /* it has its own */
        need(aerie_session_eval(session, r.tokens, N_MEASURED, tell, &measured, &error), &error);
        if (asked.n != N_MEASURED || measured.n != N_MEASURED || memcmp(asked.logits, measured.logits, bytes))
            fail_msg("request %u: %zu and %zu rows, other logits when measured", order[i], asked.n, measured.n);
        need(aerie_session_time_pass(session, 4, 8, true, 1, &seconds, &error), &error);
    }
    assert_int_equal(aerie_session_eval_adapters(session, &(aerie_adapter_use){3, 1}, 1, &error), AERIE_ERROR_ARGUMENT);
    assert_int_equal(aerie_session_eval_adapters(session, &(aerie_adapter_use){0, NAN}, 1, &error), AERIE_ERROR_ARGUMENT);
    measured.n = 0; /* the old ones stay */
    need(aerie_session_eval(session, prompts[0], N_MEASURED, tell, &measured, &error), &error);
    assert_memory_equal(asked.logits, measured.logits, bytes);
    aerie_session_free(session);
    free(asked.logits);
    free(measured.logits);
}

/* ---- Saved sequences ----------------------------------------------------------------------------------------- */

static bool keep_event(void *user, const aerie_token_event *e)
{
    return on_event(user, e);
}

static void refuse_saved(aerie_session *session, aerie_request request, const void *data, size_t n, const char *why)
{
    aerie_error error = {0};
    aerie_task *task;
    request.saved = data, request.n_saved = n, request.tokens = NULL, request.n_tokens = 0;
    assert_int_equal(aerie_session_submit(session, &request, &task, &error), AERIE_ERROR_UNSUPPORTED);
    if (!strstr(error.text, why)) fail_msg("\"%s\" says nothing of \"%s\"", error.text, why);
}

static void test_saved_sequences_name_their_adapters(void **state)
{
    trace alone, got;
    aerie_error error = {0};
    aerie_request r = request_of(5);
    aerie_task *task;
    void *data;
    size_t n, n_loaded;
    (void)state;
    run_alone(&usual, &r, 1, &alone);
    /* saved during its answer, loaded into a session that numbers the adapters differently */
    aerie_session *session = open_session(&usual, (how){AERIE_SPEC_NGRAM, 2, 1, 512, 0});
    memset(&got, 0, sizeof got);
    r.token = keep_event, r.user = &got;
    need(aerie_session_submit(session, &r, &task, &error), &error);
    while (got.n < 3) need(aerie_session_step(session, &error), &error);
    need(aerie_task_save(task, &data, &n, &error), &error);
    aerie_session_free(session);
    aerie_task_free(task);
    loaded turned = {.model = usual.model, .adapters = {usual.adapters[1], usual.adapters[2], usual.adapters[0]}};
    session = open_session(&turned, (how){AERIE_SPEC_NONE, 1, 1, 512, 0});
    refuse_saved(session, r, data, n, "other adapters"); /* the adapters have other numbers now */
    static const aerie_adapter_use same_ones[] = {{1, 0.75f}, {2, 0.25f}, {0, 1.5f}};
    static const aerie_adapter_use other_scale[] = {{1, 0.75f}, {2, 0.25f}, {0, 1}};
    aerie_request again = r;
    again.adapters = other_scale;
    refuse_saved(session, again, data, n, "other adapters or scales");
    again.n_adapters = 0;
    refuse_saved(session, again, data, n, "other adapters or scales");
    again.adapters = same_ones, again.n_adapters = 3;
    again.saved = data, again.n_saved = n, again.tokens = NULL, again.n_tokens = 0;
    need(aerie_session_generate(session, &again, 1, keep_event, &got, NULL, 0, &error), &error);
    same(&alone, &got, "saved", 5);
    aerie_session_free(session);
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = N_CTX, params.n_threads = 1;
    need(aerie_session_create(&session, usual.model, &params, &error), &error);
    again.adapters = NULL, again.n_adapters = 0;
    refuse_saved(session, again, data, n, "3 adapters");
    assert_int_equal(aerie_session_prefix_load(session, 0, data, n, &n_loaded, &error), AERIE_ERROR_UNSUPPORTED);
    aerie_session_free(session);
    aerie_free(data);
}

static void test_saved_prefixes_are_of_their_set(void **state)
{
    aerie_error error = {0};
    aerie_request r = request_of(4), base = request_of(4);
    trace alone, got;
    void *data;
    size_t n, n_loaded;
    (void)state;
    base.adapters = NULL, base.n_adapters = 0;
    aerie_session *session = open_session(&usual, (how){AERIE_SPEC_NONE, 1, 1, 512, 0});
    answer_all(session, &r, 1, &alone);
    assert_int_equal(aerie_session_prefix_save(session, 0, NULL, 0, r.tokens, r.n_tokens, &data, &n, &error),
                     AERIE_ERROR_ARGUMENT);
    need(aerie_session_prefix_save(session, 0, r.adapters, r.n_adapters, r.tokens, r.n_tokens, &data, &n, &error), &error);
    aerie_session_free(session);
    session = open_session(&usual, (how){AERIE_SPEC_NONE, 1, 1, 512, 0});
    need(aerie_session_prefix_load(session, 0, data, n, &n_loaded, &error), &error);
    assert_int_equal(n_loaded, r.n_tokens);
    answer_all(session, &base, 1, &got);
    assert_int_equal(got.n_cached, 0);
    answer_all(session, &r, 1, &got);
    assert_int_equal(got.n_cached, r.n_tokens - 1);
    same(&alone, &got, "loaded", 4);
    aerie_session_free(session);
    aerie_free(data);
}

/* ---- What is refused ------------------------------------------------------------------------------------------- */

static void test_files_that_are_refused(void **state)
{
    static const struct {
        mklora_options o;
        aerie_status status;
        const char *why, *also;
    } cases[] = {
        {{.bad_rank = true}, AERIE_ERROR_FORMAT, "rank 8", ".lora_b has 9"},
        {{.bad_shape = true}, AERIE_ERROR_FORMAT, "is adapted as a matrix of", "another model"},
        {{.no_b = true}, AERIE_ERROR_FORMAT, "has no .lora_b", ""},
        {{.not_finite = true}, AERIE_ERROR_FORMAT, "infinite or not a number", "lora_b"},
        {{.not_finite = true, .type = "f16"}, AERIE_ERROR_FORMAT, "infinite or not a number", "lora_b"},
        {{.stacked = true}, AERIE_ERROR_UNSUPPORTED, "stack", "experts"},
        {{.arch = "qwen2"}, AERIE_ERROR_FORMAT, "\"qwen2\"", "\"llama\""},
        {{.general_type = ""}, AERIE_ERROR_FORMAT, "general.type", "not an adapter"},
        {{.general_type = "model"}, AERIE_ERROR_FORMAT, "\"model\"", "not an adapter"},
        {{.adapter_type = "control_vector"}, AERIE_ERROR_FORMAT, "control_vector", "LoRA"},
        {{.extra = "blk.0.attn_norm.weight"}, AERIE_ERROR_UNSUPPORTED, "blk.0.attn_norm.weight", "pair"},
        {{.extra = "blk.77.attn_q.weight.lora_a"}, AERIE_ERROR_FORMAT, "blk.77.attn_q.weight", "has no .lora_b"},
        {{.match = "token_embd"}, AERIE_ERROR_UNSUPPORTED, "token_embd.weight", "cannot be adapted"},
        {{.alora = true}, AERIE_ERROR_UNSUPPORTED, "activated LoRA", ""},
        {{.alpha = INFINITY}, AERIE_ERROR_FORMAT, "alpha", "finite"},
    };
    aerie_error error = {0};
    aerie_adapter *adapter;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        need(mklora_write(&cases[i].o, file("m"), file("bad"), &error), &error);
        const aerie_status status = aerie_adapter_load(&adapter, usual.model, file("bad"), NULL, &error);
        assert_null(adapter);
        if (status != cases[i].status || !strstr(error.text, cases[i].why) || !strstr(error.text, cases[i].also))
            fail_msg("case %zu: status %d, \"%s\"", i, status, error.text);
    }
    static const char *const no_files[] = {"m", "head", "missing"};
    for (size_t i = 0; i < 3; i++) {
        assert_true(aerie_adapter_load(&adapter, usual.model, file(no_files[i]), NULL, &error) != AERIE_OK);
        assert_true(error.text[0] && !adapter);
    }
    assert_int_equal(aerie_adapter_load(&adapter, usual.model, "", NULL, &error), AERIE_ERROR_ARGUMENT);
    assert_true(aerie_adapter_load(&adapter, usual.model, folder, NULL, &error) != AERIE_OK);
    /* the experts of a model, and its router */
    aerie_model *moe;
    need(mkarch_write(mkarch_find("llama-moe"), false, file("moe"), &error), &error);
    moe = load(file("moe"), NULL);
    static const char *const parts[] = {"ffn_gate_inp", "ffn_up_exps"};
    for (size_t i = 0; i < 2; i++) {
        need(mklora_write(&(mklora_options){.match = parts[i]}, file("moe"), file("bad"), &error), &error);
        assert_int_equal(aerie_adapter_load(&adapter, moe, file("bad"), NULL, &error), AERIE_ERROR_UNSUPPORTED);
        if (!strstr(error.text, parts[i])) fail_msg("%s", error.text);
    }
    aerie_model_free(moe);
}

static void test_cut_files(void **state)
{
    aerie_error error = {0};
    aerie_adapter *adapter;
    (void)state;
    FILE *from = fopen(file("m0"), "rb");
    assert_non_null(from);
    static char bytes[1 << 20];
    const size_t n = fread(bytes, 1, sizeof bytes, from);
    fclose(from);
    for (size_t cut = 0; cut < n; cut += cut < 400 ? 13 : n / 40) {
        FILE *to = fopen(file("bad"), "wb");
        assert_true(to && fwrite(bytes, 1, cut, to) == cut && !fclose(to));
        const aerie_status status = aerie_adapter_load(&adapter, usual.model, file("bad"), NULL, &error);
        if (status != AERIE_ERROR_FORMAT || !strstr(error.text, "bad.gguf"))
            fail_msg("cut to %zu: %d, %s", cut, status, error.text);
    }
}

static void test_requests_that_are_refused(void **state)
{
    static const struct {
        aerie_adapter_use list[2];
        size_t n;
        const char *why;
    } cases[] = {{{{3, 1}}, 1, "created with 3"}, {{{0, 1}, {0, 2}}, 2, "twice"}, {{{0, NAN}}, 1, "finite"},
                 {{{0, INFINITY}}, 1, "finite"}, {{{0, 1}}, 17, "up to 16"}};
    aerie_error error = {0};
    aerie_task *task;
    (void)state;
    aerie_session *session = open_session(&usual, (how){AERIE_SPEC_NONE, 1, 1, 512, 0});
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        aerie_request r = request_of(0);
        r.adapters = cases[i].list, r.n_adapters = cases[i].n;
        assert_int_equal(aerie_session_submit(session, &r, &task, &error), AERIE_ERROR_ARGUMENT);
        if (!strstr(error.text, cases[i].why)) fail_msg("\"%s\" says nothing of \"%s\"", error.text, cases[i].why);
    }
    aerie_session_free(session);
    aerie_model *other = load(file("m"), NULL);
    aerie_session_params params = aerie_session_params_default();
    params.adapters = (const aerie_adapter *const *)usual.adapters, params.n_adapters = 1;
    assert_int_equal(aerie_session_create(&session, other, &params, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "another model"));
    const aerie_adapter *none = NULL;
    params.adapters = &none;
    assert_int_equal(aerie_session_create(&session, usual.model, &params, &error), AERIE_ERROR_ARGUMENT);
    aerie_model_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_neighbours_change_nothing),
        cmocka_unit_test(test_the_base_is_the_base),
        cmocka_unit_test(test_sets_are_part_of_the_prefix_key),
        cmocka_unit_test(test_levels_and_backends),
        cmocka_unit_test(test_models_of_other_kinds),
        cmocka_unit_test(test_measuring),
        cmocka_unit_test(test_saved_sequences_name_their_adapters),
        cmocka_unit_test(test_saved_prefixes_are_of_their_set),
        cmocka_unit_test(test_files_that_are_refused),
        cmocka_unit_test(test_cut_files),
        cmocka_unit_test(test_requests_that_are_refused),
    };
    return cmocka_run_group_tests(tests, make, drop);
}

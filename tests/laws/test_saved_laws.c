/* test_saved_laws.c - law 1 for sequences that are saved, loaded and forked: the bytes of one that was not saved.
 *
 * Saved after every step of an answer, with every kind of drafter, sampler, grammar and stop string, and loaded by a session of
 * another shape. Then refusals, and thousands of damaged copies.
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
#include "every.h"
#include "formats/sections.h"
#include "mkarch.h"
#include "mkhead.h"
#include "spec_rig.inc"

#define N_CTX 256
#define N_PROMPT 130
#define N_PREDICT 24
#define N_TOP 3

static aerie_model *model, *same_model, *draft, *other;
static aerie_drafter_head *head;
static aerie_grammar *letters, *bits;
static int32_t prompt[N_PROMPT];

static aerie_model *make_model(const char *name, const char *shape, uint32_t n_layers, uint64_t seed)
{
    mk_options o;
    aerie_error error = {0};
    mk_shape(shape, &o);
    o.type = "q8_0", o.n_layers = n_layers, o.layer_decay = 0.25f, o.forgetful = true, o.seed = seed;
    need(mk_model(&o, path_of(name), &error), &error);
    return load(path_of(name), NULL);
}

static int make(void **state)
{
    (void)state;
    aerie_error error = {0};
    uint64_t random = 5;
    char target[96];
    if (!mkdtemp(folder)) return 1;
    model = make_model("m", "tiny", 3, 1);
    same_model = load(path_of("m"), "ref");
    draft = make_model("draft", "tiny", 1, 1);
    other = make_model("other", "tiny", 3, 2); /* the same shape and vocabulary */
    snprintf(target, sizeof target, "%s", path_of("m"));
    const mkhead_options o = {.kind = "eagle3", .type = "q8_0", .n_draft = 24};
    need(mkhead_write(&o, target, path_of("head"), &error), &error);
    need(aerie_drafter_head_load(&head, model, path_of("head"), NULL, &error), &error);
    const char *texts[] = {"root ::= [a-z \\n]*", "root ::= [01]{9} \"!\""};
    need(aerie_grammar_create(&letters, texts[0], strlen(texts[0]), &error), &error);
    need(aerie_grammar_create(&bits, texts[1], strlen(texts[1]), &error), &error);
    for (size_t k = 0; k < N_PROMPT; k++) prompt[k] = k < 16 ? (int32_t)(3 + mk_random(&random) % 250) : prompt[k - 16];
    return 0;
}

static int drop(void **state)
{
    (void)state;
    aerie_grammar_free(letters);
    aerie_grammar_free(bits);
    aerie_drafter_head_free(head);
    aerie_model *models[] = {model, same_model, draft, other};
    for (size_t i = 0; i < 4; i++) aerie_model_free(models[i]);
    static const char *const names[] = {"m", "draft", "other", "head"};
    for (size_t i = 0; i < 4; i++) unlink(path_of(names[i]));
    return rmdir(folder);
}

/* ---- Requests, and all their events ------------------------------------------------------------------- */

static const aerie_spec_type types[] = {AERIE_SPEC_NONE, AERIE_SPEC_NGRAM, AERIE_SPEC_DRAFT, AERIE_SPEC_EAGLE3};
#define N_TYPES 4

static aerie_session *open_session(const aerie_model *m, aerie_spec_type type, uint32_t n_seqs, uint32_t n_kv, aerie_kv_type kv)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = N_CTX, params.n_seqs = n_seqs, params.n_batch = 64, params.n_threads = 1, params.n_kv = n_kv;
    params.kv_type = kv;
    params.spec.type = type, params.spec.n_max = 5;
    params.spec.ngram = type != AERIE_SPEC_DRAFT;
    if (type == AERIE_SPEC_DRAFT) params.spec.draft_model = draft;
    if (type == AERIE_SPEC_EAGLE3) params.spec.head = head;
    need(ae_session_create_for_test(&session, m, &params, &(ae_session_test){.fixed = true}, &error), &error);
    return session;
}

#define N_KINDS (N_SAMPLINGS + 7)
static const aerie_reasoning reasoning = {
    .size = sizeof reasoning, .open = "<", .close = "</think>", .opened = true, .n_most = 4};
static const char *const stops[] = {"zq", "\n\n", "e"};

static aerie_request request_of(uint32_t kind)
{
    aerie_request r = aerie_request_default();
    r.tokens = prompt;
    r.n_tokens = N_PROMPT;
    r.n_predict = N_PREDICT;
    r.ignore_eos = true;
    r.n_logprobs = N_TOP;
    r.sampling = sampling_of(kind < N_SAMPLINGS ? kind : 0);
    switch (kind) {
    case N_SAMPLINGS: r.sampling.mirostat = 2, r.sampling.temperature = 1; break;
    case N_SAMPLINGS + 1: r.sampling.mirostat = 2, r.sampling.mirostat_tau = 3, r.sampling.temperature = 1.5f; break;
    case N_SAMPLINGS + 2: r.grammar = letters, r.sampling.temperature = 1; break;
    case N_SAMPLINGS + 3: r.grammar = bits, r.ignore_eos = false; break;
    case N_SAMPLINGS + 4: r.stop = stops, r.n_stop = 2, r.sampling.temperature = 1.4f; break;
    case N_SAMPLINGS + 5: r.stop = stops, r.n_stop = 3, r.sampling.temperature = 1.4f, r.sampling.dry_multiplier = 1; break;
    case N_SAMPLINGS + 6: r.reasoning = &reasoning; break;
    default: break;
    }
    return r;
}

typedef struct trace {
    int32_t ids[N_PREDICT];
    float logprobs[N_PREDICT];
    aerie_logprob top[N_PREDICT][N_TOP];
    uint32_t n, n_steps, n_deep; /* n_deep: from drafts */
    char text[N_PREDICT * 16];
    size_t n_text;
    aerie_stats stats;
    bool ended;
} trace;

/* Events of one task. */
static void poll_into(aerie_session *session, trace *t)
{
    const aerie_token_event *e;
    while ((e = aerie_session_poll(session))) {
        assert_true(t->n_text + e->n_text <= sizeof t->text && !t->ended);
        if (e->n_text) memcpy(t->text + t->n_text, e->text, e->n_text);
        t->n_text += e->n_text;
        if (e->token < 0) {
            t->ended = true;
            t->stats = *e->stats;
            continue;
        }
        assert_true(t->n < N_PREDICT && e->n_top == N_TOP);
        t->logprobs[t->n] = e->logprob;
        memcpy(t->top[t->n], e->top, sizeof t->top[0]);
        t->n_deep += e->draft_depth > 0;
        t->ids[t->n++] = e->token;
    }
}

static void finish(aerie_session *session, trace *t)
{
    aerie_error error = {0};
    while (!t->ended) {
        need(aerie_session_step(session, &error), &error);
        t->n_steps++;
        poll_into(session, t);
    }
}

/* The whole of a request; its rest, with `saved`. */
static void play(aerie_session *session, const aerie_request *request, trace *t)
{
    aerie_error error = {0};
    aerie_task *task;
    need(aerie_session_submit(session, request, &task, &error), &error);
    finish(session, t);
    aerie_task_free(task);
}

static void same_trace(const trace *got, const trace *expected, const char *what, uint32_t kind, uint32_t step)
{
    for (uint32_t i = 0; i < got->n && i < expected->n; i++)
        if (got->ids[i] != expected->ids[i])
            fail_msg("%s, kind %u, step %u: token %u is %d, it should be %d", what, kind, step, i, got->ids[i],
                     expected->ids[i]);
    if (got->n != expected->n) fail_msg("%s, kind %u, step %u: %u tokens of %u", what, kind, step, got->n, expected->n);
    if (got->n_text != expected->n_text || memcmp(got->text, expected->text, got->n_text))
        fail_msg("%s, kind %u, step %u: another text", what, kind, step);
    assert_memory_equal(got->logprobs, expected->logprobs, sizeof got->logprobs);
    assert_memory_equal(got->top, expected->top, sizeof got->top);
    assert_int_equal(got->stats.stop, expected->stats.stop);
    assert_int_equal(got->stats.n_generated, expected->stats.n_generated);
    assert_int_equal(got->stats.n_prompt, expected->stats.n_prompt);
}

/* ---- The law --------------------------------------------------------------------------------------------------- */

static aerie_request without_tokens(aerie_request r, const void *data, size_t n)
{
    r.tokens = NULL, r.n_tokens = 0;
    r.saved = data, r.n_saved = n;
    return r;
}

/* After each step of the answer it is saved, and goes on in `to` as well. Returns how many tokens came from drafts. */
static uint32_t save_at_every_step(aerie_session *from, aerie_session *to, uint32_t kind, const trace *expected,
                                   const char *what)
{
    aerie_error error = {0};
    aerie_task *task;
    trace t = {0};
    const aerie_request request = request_of(kind);
    need(aerie_session_submit(from, &request, &task, &error), &error);
    for (uint32_t i = 0;; i++) {
        void *data;
        size_t n, n_prompt, n_tokens;
        int32_t *tokens;
        need(aerie_task_save(task, &data, &n, &error), &error);
        need(aerie_saved_tokens(data, n, &tokens, &n_tokens, &n_prompt, &error), &error);
        assert_int_equal(n_prompt, N_PROMPT);
        assert_int_equal(n_tokens, N_PROMPT + t.n);
        assert_memory_equal(tokens, prompt, sizeof prompt);
        if (t.n) assert_memory_equal(tokens + N_PROMPT, t.ids, t.n * sizeof *t.ids);
        aerie_free(tokens);
        trace rest = t;
        const aerie_request again = without_tokens(request, data, n);
        play(to, &again, &rest);
        aerie_free(data);
        same_trace(&rest, expected, what, kind, i);
        if (t.n && kind % 2 == 0) assert_int_equal(rest.stats.n_cached, N_PROMPT + t.n - 1); /* nothing was computed again */
        need(aerie_session_step(from, &error), &error);
        poll_into(from, &t);
        if (t.ended) break;
    }
    same_trace(&t, expected, "the saved sequence itself", kind, 0);
    void *data;
    size_t n;
    assert_int_equal(aerie_task_save(task, &data, &n, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "ended"));
    assert_null(data);
    aerie_task_free(task);
    return t.n_deep;
}

static void test_a_saved_answer_goes_on(void **state)
{
    (void)state;
    static trace expected[N_KINDS];
    uint32_t n_deep = 0;
    const uint32_t skip = AE_TEST_EVERY > 4 ? 12 : 1; /* each drafter meets every skip-th kind of request */
    for (uint32_t kind = 0; kind < N_KINDS; kind++) {
        aerie_session *plain = open_session(same_model, AERIE_SPEC_NONE, 1, 0, AERIE_KV_F16);
        const aerie_request request = request_of(kind);
        play(plain, &request, &expected[kind]);
        aerie_session_free(plain);
    }
    for (size_t t = 0; t < N_TYPES; t++)
        for (uint32_t kind = (uint32_t)t % skip; kind < N_KINDS; kind += skip) {
            aerie_session *from = open_session(model, types[t], 2, 0, AERIE_KV_F16);
            const aerie_spec_type other_type = kind % 2 ? types[(t + kind) % N_TYPES] : AERIE_SPEC_NGRAM;
            aerie_session *to = open_session(kind % 2 ? model : same_model, other_type, 1 + kind % 3, 0, AERIE_KV_F16);
            n_deep += save_at_every_step(from, to, kind, &expected[kind], aerie_spec_type_name(types[t]));
            aerie_session_free(from);
            aerie_session_free(to);
        }
    assert_true(n_deep > 100 / skip);
    print_message("%u tokens came from drafts\n", n_deep);
}

/* Rows of codes of all types, and latent ones, which have two kinds of codes. */
static void test_types_of_cache(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 4; kind++)
        for (aerie_kv_type kv = 0; kv <= AERIE_KV_I16_Q4_0; kv++) {
            if (kind < 2 && kv != AERIE_KV_F16 && kv != AERIE_KV_Q8_0 && kv != AERIE_KV_Q4_0) continue;
            if (AE_TEST_EVERY > 4 && (kind + (uint32_t)kv) % 2) continue; /* each type with every shape, half of the requests */
            aerie_model *fast = make_model("types", kind / 2 ? "tiny-gqa" : "tiny-mla", 2, 1);
            aerie_model *plain = load(path_of("types"), "ref");
            trace expected = {0};
            aerie_session *to = open_session(plain, AERIE_SPEC_NONE, 1, 0, kv);
            const aerie_request request = request_of(kind % 2);
            play(to, &request, &expected);
            aerie_session *from = open_session(fast, AERIE_SPEC_NGRAM, 2, 0, kv);
            save_at_every_step(from, to, kind % 2, &expected, aerie_kv_type_name(kv));
            aerie_session_free(from);
            aerie_session_free(to);
            aerie_model_free(fast);
            aerie_model_free(plain);
            unlink(path_of("types"));
        }
}

/* The cached part of a request that has ended: saved, loaded into another session, continued. */
static void move_prefix(aerie_session *from, aerie_session *to, aerie_session *plain, const trace *told)
{
    aerie_error error = {0};
    int32_t tokens[N_PROMPT + N_PREDICT + 1];
    void *data;
    size_t n, n_loaded;
    memcpy(tokens, prompt, sizeof prompt);
    memcpy(tokens + N_PROMPT, told->ids, told->n * sizeof *tokens);
    aerie_request next = request_of(0);
    next.tokens = tokens;
    next.n_tokens = N_PROMPT + told->n + 1;
    tokens[N_PROMPT + told->n] = 7;
    trace expected = {0}, got = {0};
    play(plain, &next, &expected);
    const size_t n_kept = aerie_session_prefix_find(from, 0, NULL, 0, tokens, next.n_tokens);
    assert_int_equal(n_kept, N_PROMPT + told->n - 1); /* the last token of an answer never runs */
    need(aerie_session_prefix_save(from, 0, NULL, 0, tokens, next.n_tokens, &data, &n, &error), &error);
    need(aerie_session_prefix_load(to, 0, data, n, &n_loaded, &error), &error);
    aerie_free(data);
    assert_int_equal(n_loaded, n_kept);
    play(to, &next, &got);
    same_trace(&got, &expected, "a prefix of another session", 0, 0);
    assert_int_equal(got.stats.n_cached, n_kept);
}

/* Models with recurrent layers save the state, so that nothing is computed again, those with an index its keys, and
 * those with compressed rows what rows are compressed from. */
static void test_recurrent_states(void **state)
{
    static const char *const names[] = {"qwen35", "nemotron_h", "lfm2", "mamba2", "rwkv6", "rwkv7", "glm-dsa-shared",
                                        "dots3note", "minimax-m3", "deepseek4", "glm5-next",
                                        "qwen4exp", "hy_v4", "kimi-k3", "hrm_text", "graniteswitch"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (uint32_t kind = 0; kind < 4; kind += 2) {
            if (AE_TEST_EVERY > 4 && kind != i % 2 * 2) continue;
            aerie_error error = {0};
            need(mkarch_write(mkarch_find(names[i]), false, path_of("recurrent"), &error), &error);
            aerie_model *fast = load(path_of("recurrent"), NULL), *plain = load(path_of("recurrent"), "ref");
            trace expected = {0};
            aerie_session *to = open_session(plain, AERIE_SPEC_NONE, 1, 0, AERIE_KV_F16);
            const aerie_request request = request_of(kind);
            play(to, &request, &expected);
            aerie_session *from = open_session(fast, AERIE_SPEC_NGRAM, 2, 0, AERIE_KV_F16);
            save_at_every_step(from, to, kind, &expected, names[i]);
            aerie_session *other_session = open_session(fast, AERIE_SPEC_NGRAM, 2, 0, AERIE_KV_F16);
            move_prefix(from, other_session, to, &expected);
            aerie_session_free(other_session);
            aerie_session_free(from);
            aerie_session_free(to);
            aerie_model_free(fast);
            aerie_model_free(plain);
            unlink(path_of("recurrent"));
        }
}

/* The same in the session that saved it, with the other type of cache, which is so small that sequences are preempted. */
static void test_in_the_same_session_and_short_of_cache(void **state)
{
    (void)state;
    const uint32_t kinds[] = {1, 3, N_SAMPLINGS, N_SAMPLINGS + 2};
    for (size_t k = 0; k < 4; k++)
        for (size_t t = 0; t < 2; t++) {
            if (AE_TEST_EVERY > 4 && (k + t) % 2) continue;
            trace expected = {0};
            aerie_session *session = open_session(same_model, AERIE_SPEC_NONE, 1, 0, AERIE_KV_Q8_0);
            const aerie_request request = request_of(kinds[k]);
            play(session, &request, &expected);
            aerie_session_free(session);
            aerie_session *from = open_session(model, types[t], 2, 0, AERIE_KV_Q8_0);
            session = open_session(model, types[t], 3, 1, AERIE_KV_Q8_0);
            aerie_task *task;
            aerie_error error = {0};
            trace before = {0};
            need(aerie_session_submit(from, &request, &task, &error), &error);
            while (before.n < 5) {
                need(aerie_session_step(from, &error), &error);
                poll_into(from, &before);
            }
            void *data;
            size_t n;
            need(aerie_task_save(task, &data, &n, &error), &error);
            aerie_task *tasks[3];
            aerie_request again = without_tokens(request, data, n);
            for (size_t i = 0; i < 3; i++) {
                again.id = i;
                need(aerie_session_submit(session, &again, &tasks[i], &error), &error);
            }
            trace got[3] = {before, before, before};
            while (aerie_session_n_tasks(session)) {
                need(aerie_session_step(session, &error), &error);
                const aerie_token_event *e;
                while ((e = aerie_session_poll(session)))
                    if (e->token >= 0) got[e->i_request].ids[got[e->i_request].n++] = e->token;
            }
            for (size_t i = 0; i < 3; i++) {
                assert_int_equal(got[i].n, expected.n);
                assert_memory_equal(got[i].ids, expected.ids, expected.n * sizeof *expected.ids);
                aerie_task_free(tasks[i]);
            }
            aerie_free(data);
            aerie_session_free(from);
            aerie_task_free(task);
            aerie_session_free(session);
        }
}

/* Forks of one answer: as if prompt and answer so far had been the prompt. Their pages are shared. */
static void test_forks(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_session *session = open_session(model, AERIE_SPEC_NGRAM, 5, 0, AERIE_KV_F16);
    aerie_task *task, *forks[4];
    trace t = {0}, got[4] = {0};
    aerie_request request = request_of(2);
    need(aerie_session_submit(session, &request, &task, &error), &error);
    while (t.n < 7) {
        need(aerie_session_step(session, &error), &error);
        poll_into(session, &t);
    }
    void *data;
    size_t n;
    need(aerie_task_save(task, &data, &n, &error), &error);
    aerie_task_free(task);
    /* a session that has seen nothing computes one position */
    aerie_session *fresh = open_session(same_model, AERIE_SPEC_NONE, 1, 0, AERIE_KV_F16), *plain_one =
        open_session(same_model, AERIE_SPEC_NONE, 1, 0, AERIE_KV_F16);
    trace whole = {0}, rest = t;
    const aerie_request again = without_tokens(request, data, n);
    play(fresh, &again, &rest);
    play(plain_one, &request, &whole);
    same_trace(&rest, &whole, "fresh", 2, 0);
    assert_int_equal(rest.stats.n_cached, N_PROMPT + t.n - 1);
    aerie_session_free(fresh);
    aerie_session_free(plain_one);
    aerie_request fork = without_tokens(request, data, n);
    for (size_t i = 0; i < 4; i++) {
        fork.id = i, fork.sampling.seed = 100 + i, fork.sampling.temperature = 1.3f;
        need(aerie_session_submit(session, &fork, &forks[i], &error), &error);
    }
    while (aerie_session_n_tasks(session)) {
        const aerie_token_event *e;
        need(aerie_session_step(session, &error), &error);
        while ((e = aerie_session_poll(session))) {
            trace *g = &got[e->i_request];
            if (e->token >= 0) g->ids[g->n++] = e->token;
            else g->stats = *e->stats;
        }
    }
    int32_t longer[N_PROMPT + N_PREDICT];
    memcpy(longer, prompt, sizeof prompt);
    memcpy(longer + N_PROMPT, t.ids, t.n * sizeof *t.ids);
    for (size_t i = 0; i < 4; i++) {
        aerie_session *plain = open_session(same_model, AERIE_SPEC_NONE, 1, 0, AERIE_KV_F16);
        trace expected = {0};
        request.tokens = longer, request.n_tokens = N_PROMPT + t.n, request.n_predict = N_PREDICT - t.n;
        request.sampling.seed = 100 + i, request.sampling.temperature = 1.3f;
        play(plain, &request, &expected);
        aerie_session_free(plain);
        assert_int_equal(got[i].n, expected.n);
        assert_memory_equal(got[i].ids, expected.ids, expected.n * sizeof *expected.ids);
        assert_int_equal(got[i].stats.n_cached, N_PROMPT + t.n - 1);
        assert_int_equal(got[i].stats.n_generated, N_PREDICT);
        aerie_task_free(forks[i]);
    }
    assert_memory_not_equal(got[0].ids, got[1].ids, sizeof got[0].ids);
    aerie_free(data);
    aerie_session_free(session);
}

/* The cached part of a finished sequence goes to another session, where its prompt is not computed again. */
static void test_prefixes(void **state)
{
    (void)state;
    aerie_error error = {0};
    for (size_t t = 0; t < N_TYPES; t += AE_TEST_EVERY > 4 ? 2 : 1) {
        aerie_session *from = open_session(model, types[t], 1, 0, AERIE_KV_F16);
        aerie_session *to = open_session(same_model, AERIE_SPEC_NGRAM, 2, 0, AERIE_KV_F16);
        const aerie_request request = request_of(1);
        trace expected = {0}, got = {0};
        void *data, *again;
        size_t n, n_again, n_loaded;
        assert_int_equal(aerie_session_prefix_save(from, 0, NULL, 0, prompt, N_PROMPT, &data, &n, &error),
                         AERIE_ERROR_ARGUMENT);
        assert_int_equal(aerie_session_prefix_save(from, 0, NULL, 0, NULL, 0, &data, &n, &error), AERIE_ERROR_ARGUMENT);
        play(from, &request, &expected);
        need(aerie_session_prefix_save(from, 0, NULL, 0, prompt, N_PROMPT, &data, &n, &error), &error);
        aerie_loading *loading;
        need(aerie_session_loading_begin(to, 0, data, n, &loading, &error), &error);
        for (bool done = false; !done;) need(aerie_loading_step(loading, 7, &done, &n_loaded, &error), &error);
        aerie_loading_free(loading);
        assert_int_equal(n_loaded, N_PROMPT);
        need(aerie_session_prefix_load(to, 0, data, n, &n_loaded, &error), &error); /* once more changes nothing */
        assert_int_equal(n_loaded, N_PROMPT);
        need(aerie_session_prefix_save(to, 0, NULL, 0, prompt, N_PROMPT, &again, &n_again, &error), &error);
        assert_int_equal(n_again, n);
        assert_memory_equal(again, data, n);
        aerie_free(again);
        play(to, &request, &got);
        same_trace(&got, &expected, "prefix", 1, 0);
        assert_int_equal(got.stats.n_cached, N_PROMPT - 1);
        /* as a request of its own: its prompt is all of it */
        trace more = {0};
        const aerie_request direct = without_tokens(request, data, n);
        play(to, &direct, &more);
        same_trace(&more, &expected, "prefix as a request", 1, 0);
        aerie_free(data);
        aerie_session_free(from);
        aerie_session_free(to);
    }
}

/* Saving in pieces, between steps of another request, gives the bytes of saving at once. Once that request has taken its pages,
 * it fails. */
static void test_savings_in_pieces(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_session *session = open_session(model, AERIE_SPEC_EAGLE3, 1, 1, AERIE_KV_F16);
    aerie_request request = request_of(1);
    int32_t others[N_CTX];
    trace t[2] = {0};
    aerie_saving *savings[2];
    aerie_task *task;
    void *data, *again;
    size_t n, n_again, n_tokens;
    bool done = false;
    for (uint32_t i = 0; i < N_CTX; i++) others[i] = prompt[(i + 7) % N_PROMPT];
    play(session, &request, &t[0]);
    need(aerie_session_prefix_save(session, 0, NULL, 0, prompt, N_PROMPT, &again, &n_again, &error), &error);
    for (int i = 0; i < 2; i++)
        need(aerie_session_saving_begin(session, 0, NULL, 0, prompt, N_PROMPT, &savings[i], &error), &error);
    assert_int_equal(aerie_saving_finish(savings[0], &data, &n, NULL, &error), AERIE_ERROR_ARGUMENT);
    request.tokens = others, request.n_tokens = N_CTX - N_PREDICT - 1;
    need(aerie_session_submit(session, &request, &task, &error), &error);
    for (uint32_t i = 20; !done; i++) {
        need(aerie_saving_step(savings[0], i, &done, &error), &error);
        if (i == 21) need(aerie_session_step(session, &error), &error);
    }
    need(aerie_saving_finish(savings[0], &data, &n, &n_tokens, &error), &error);
    assert_int_equal(aerie_saving_step(savings[0], 1, &done, &error), AERIE_ERROR_ARGUMENT);
    assert_int_equal(n_tokens, N_PROMPT);
    assert_int_equal(n, n_again);
    assert_memory_equal(data, again, n);
    aerie_free(data);
    finish(session, &t[1]);
    assert_int_equal(aerie_saving_step(savings[1], 1, &done, &error), AERIE_ERROR_LIMIT);
    assert_true(!done && strstr(error.text, "no longer has all tokens"));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(aerie_saving_finish(savings[i], &data, &n, NULL, &error), AERIE_ERROR_ARGUMENT);
        aerie_saving_free(savings[i]);
    }
    aerie_free(again);
    aerie_task_free(task);
    aerie_session_free(session);
}

/* ---- What is refused ------------------------------------------------------------------------------------------- */

/* A sequence of kind `kind`, saved after some tokens. */
static void *save_some(uint32_t kind, size_t *n)
{
    aerie_error error = {0};
    aerie_session *session = open_session(model, AERIE_SPEC_NGRAM, 1, 0, AERIE_KV_F16);
    aerie_task *task;
    trace t = {0};
    void *data;
    const aerie_request request = request_of(kind);
    need(aerie_session_submit(session, &request, &task, &error), &error);
    while (t.n < 3) {
        need(aerie_session_step(session, &error), &error);
        poll_into(session, &t);
    }
    need(aerie_task_save(task, &data, n, &error), &error);
    aerie_session_free(session);
    aerie_task_free(task);
    return data;
}

static void refuse(aerie_session *session, aerie_request request, const void *data, size_t n, aerie_status status,
                   const char *why)
{
    aerie_error error = {0};
    aerie_task *task;
    request.saved = data, request.n_saved = n;
    assert_int_equal(aerie_session_submit(session, &request, &task, &error), status);
    if (!strstr(error.text, why)) fail_msg("\"%s\" says nothing of \"%s\"", error.text, why);
    assert_null(task);
}

static void test_other_models_and_settings_are_refused(void **state)
{
    (void)state;
    size_t n;
    void *data = save_some(0, &n);
    const aerie_request none = without_tokens(request_of(0), NULL, 0);
    aerie_error error = {0};
    aerie_session *session = open_session(other, AERIE_SPEC_NGRAM, 1, 0, AERIE_KV_F16);
    refuse(session, none, data, n, AERIE_ERROR_UNSUPPORTED, "another model");
    assert_int_equal(aerie_session_prefix_load(session, 0, data, n, NULL, &error), AERIE_ERROR_UNSUPPORTED);
    aerie_session_free(session);
    session = open_session(model, AERIE_SPEC_NGRAM, 1, 0, AERIE_KV_Q8_0);
    refuse(session, none, data, n, AERIE_ERROR_UNSUPPORTED, "type f16; this session's is q8_0");
    aerie_session_free(session);
    aerie_model_params params = aerie_model_params_default();
    aerie_rope rope = aerie_rope_default();
    aerie_model *stretched;
    rope.factor = 2, params.rope = &rope;
    need(aerie_model_load(&stretched, path_of("m"), &params, &error), &error);
    session = open_session(stretched, AERIE_SPEC_NGRAM, 1, 0, AERIE_KV_F16);
    refuse(session, none, data, n, AERIE_ERROR_UNSUPPORTED, "RoPE");
    aerie_session_free(session);
    aerie_model_free(stretched);
    session = open_session(model, AERIE_SPEC_NGRAM, 1, 0, AERIE_KV_F16);
    refuse(session, request_of(0), data, n, AERIE_ERROR_ARGUMENT, "its own tokens");
    refuse(session, none, NULL, 5, AERIE_ERROR_ARGUMENT, "data is NULL");
    aerie_request r = none;
    r.n_predict = 3;
    refuse(session, r, data, n, AERIE_ERROR_ARGUMENT, "has 3 already");
    r = none, r.grammar = bits;
    refuse(session, r, data, n, AERIE_ERROR_ARGUMENT, "not one that the grammar allows");
    /* a stop string that the answer has come to */
    int32_t *tokens;
    size_t n_tokens, n_prompt, n_text;
    char *text;
    need(aerie_saved_tokens(data, n, &tokens, &n_tokens, &n_prompt, &error), &error);
    need(aerie_model_detokenize(model, tokens + n_prompt, n_tokens - n_prompt, false, &text, &n_text, &error), &error);
    const char *stop = text;
    r = none, r.stop = &stop, r.n_stop = 1;
    refuse(session, r, data, n, AERIE_ERROR_ARGUMENT, "one of the stop strings");
    aerie_free(tokens);
    aerie_free(text);
    aerie_session_free(session);
    aerie_free(data);
}

/* phi3 has one table for contexts of up to 64 positions, and another. */
static void test_contexts_of_another_rotation_are_refused(void **state)
{
    (void)state;
    aerie_error error = {0};
    char path[96];
    snprintf(path, sizeof path, "%s", path_of("phi3"));
    need(mkarch_write(mkarch_find("phi3"), false, path, &error), &error);
    aerie_model *phi = load(path, NULL);
    int32_t text[20];
    for (int i = 0; i < 20; i++) text[i] = 3 + i * 7 % 200;
    static const uint32_t sizes[] = {32, 64, 65, 200}; /* two of each kind */
    void *saved[4];
    size_t n[4];
    for (int from = 0; from < 4; from++) {
        aerie_session_params params = aerie_session_params_default();
        aerie_session *session;
        aerie_request request = aerie_request_default();
        params.n_ctx = sizes[from], params.n_threads = 1;
        request.tokens = text, request.n_tokens = 20, request.n_predict = 1;
        need(aerie_session_create(&session, phi, &params, &error), &error);
        need(aerie_session_generate(session, &request, 1, NULL, NULL, NULL, 0, &error), &error);
        need(aerie_session_prefix_save(session, 0, NULL, 0, text, 20, &saved[from], &n[from], &error), &error);
        for (int k = 0; k <= from; k++) {
            const aerie_status status = aerie_session_prefix_load(session, 0, saved[k], n[k], NULL, &error);
            assert_int_equal(status, k / 2 == from / 2 ? AERIE_OK : AERIE_ERROR_UNSUPPORTED);
            if (status != AERIE_OK && !strstr(error.text, "longer than 64")) fail_msg("%s", error.text);
        }
        aerie_session_free(session);
    }
    for (int i = 0; i < 4; i++) aerie_free(saved[i]);
    aerie_model_free(phi);
    unlink(path);
}

static aerie_status callback_status;
static bool save_in_callback(void *user, const aerie_token_event *event)
{
    aerie_error error = {0};
    void *data;
    size_t n;
    (void)user;
    if (event->token >= 0) callback_status = aerie_task_save(event->task, &data, &n, &error);
    return true;
}

static void test_a_callback_may_not_save(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_session *session = open_session(model, AERIE_SPEC_NGRAM, 1, 0, AERIE_KV_F16);
    const aerie_request request = request_of(0);
    need(aerie_session_generate(session, &request, 1, save_in_callback, NULL, NULL, 0, &error), &error);
    assert_int_equal(callback_status, AERIE_ERROR_ARGUMENT);
    aerie_session_free(session);
}

/* Submits, and runs what was accepted for some steps. False: refused, and with a sentence. */
static bool try_bytes(aerie_session *session, const uint8_t *data, size_t n)
{
    aerie_error error = {0};
    aerie_task *task;
    size_t n_loaded;
    const aerie_request request = without_tokens(request_of(N_SAMPLINGS), data, n);
    const aerie_status status = aerie_session_submit(session, &request, &task, &error);
    const aerie_status loaded = aerie_session_prefix_load(session, 0, data, n, &n_loaded, NULL);
    if (status != AERIE_OK) {
        assert_true(error.status == status && error.text[0]);
        assert_true(status != AERIE_ERROR_INTERNAL && status != AERIE_ERROR_MEMORY);
        return loaded == AERIE_OK;
    }
    assert_int_equal(loaded, AERIE_OK);
    for (int i = 0; i < 2; i++) (void)aerie_session_step(session, &error);
    aerie_task_free(task);
    (void)aerie_session_step(session, &error);
    const aerie_token_event *e;
    while ((e = aerie_session_poll(session))) {}
    return true;
}

static void test_cut_and_flipped_bytes_are_refused(void **state)
{
    (void)state;
    size_t n;
    uint8_t *data = save_some(N_SAMPLINGS, &n);
    aerie_session *session = open_session(model, AERIE_SPEC_NGRAM, 2, 0, AERIE_KV_F16);
    assert_true(try_bytes(session, data, n));
    const size_t close = AE_TEST_EVERY > 4 ? 7 : 1, far = 4999 * close;
    for (size_t cut = 0; cut < n; cut += cut < 800 || n - cut < 100 ? close : far) assert_false(try_bytes(session, data, cut));
    for (size_t at = 0; at < n; at += at < 800 || n - at < 100 ? close : far)
        for (int bit = 0; bit < 8; bit += 3) {
            data[at] ^= (uint8_t)(1 << bit);
            assert_false(try_bytes(session, data, n));
            data[at] ^= (uint8_t)(1 << bit);
        }
    assert_true(try_bytes(session, data, n));
    aerie_session_free(session);
    aerie_free(data);
}

/* Damage with a right checksum: numbers of the header and of sections, tokens, keys and values. */
static void test_mutants_with_a_right_checksum(void **state)
{
    (void)state;
    size_t n;
    uint64_t random = 17;
    uint32_t n_accepted = 0, n_refused = 0;
    uint8_t *data = save_some(N_SAMPLINGS, &n), *mutant = malloc(n + 8);
    aerie_session *session = open_session(model, AERIE_SPEC_NGRAM, 2, 0, AERIE_KV_F16);
    assert_non_null(mutant);
    for (int i = 0; i < 1600 / (AE_TEST_EVERY > 4 ? 10 : 1); i++) {
        size_t size = n;
        memcpy(mutant, data, n);
        for (uint64_t k = 1 + mk_random(&random) % 3; k; k--) {
            const size_t at = mk_random(&random) % (mk_random(&random) % 4 ? 760 : n - 8);
            const uint64_t value = mk_random(&random);
            static const uint64_t bad[] = {0, 1, 0x7fffffff, 0xffffffff, UINT64_MAX, 1ull << 63, 1ull << 32};
            if (value % 3 == 0) mutant[at] = (uint8_t)(value >> 8);
            else memcpy(mutant + at / 4 * 4, &bad[(value >> 8) % 7], value % 3 == 1 ? 4 : 8);
        }
        if (mk_random(&random) % 8 == 0) { /* another length, and it says so */
            size = 32 + mk_random(&random) % (n - 32);
            const uint64_t total = size;
            memcpy(mutant + 16, &total, 8);
        }
        ae_sections_seal(mutant, size);
        if (try_bytes(session, mutant, size)) n_accepted++;
        else n_refused++;
    }
    print_message("%u mutants went on, %u were refused\n", n_accepted, n_refused);
    assert_true(n_accepted > 20 && n_refused > 20);
    free(mutant);
    aerie_session_free(session);
    aerie_free(data);
}

/* An unknown section is skipped if it is optional. */
static void test_sections_of_a_later_version(void **state)
{
    (void)state;
    size_t n, n_new;
    void *data = save_some(0, &n), *bytes;
    ae_sections sections;
    aerie_error error = {0};
    aerie_session *session = open_session(model, AERIE_SPEC_NGRAM, 1, 0, AERIE_KV_F16);
    need(ae_sections_open(&sections, data, n, &error), &error);
    for (uint32_t optional = 0; optional < 2; optional++) {
        sections.list[sections.n] = (ae_section){77, optional ? AE_SECTION_OPTIONAL : 0, (const uint8_t *)"later", 5};
        need(ae_sections_create(&bytes, &n_new, sections.list, sections.n + 1, &error), &error);
        ae_sections_seal(bytes, n_new);
        if (optional) assert_true(try_bytes(session, bytes, n_new));
        else refuse(session, without_tokens(request_of(0), NULL, 0), bytes, n_new, AERIE_ERROR_UNSUPPORTED, "type 77");
        aerie_free(bytes);
    }
    aerie_session_free(session);
    aerie_free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_saved_answer_goes_on), cmocka_unit_test(test_types_of_cache),
        cmocka_unit_test(test_recurrent_states),
        cmocka_unit_test(test_in_the_same_session_and_short_of_cache),
        cmocka_unit_test(test_forks),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_savings_in_pieces),
        cmocka_unit_test(test_other_models_and_settings_are_refused),
        cmocka_unit_test(test_contexts_of_another_rotation_are_refused),
        cmocka_unit_test(test_a_callback_may_not_save),
        cmocka_unit_test(test_cut_and_flipped_bytes_are_refused),
        cmocka_unit_test(test_mutants_with_a_right_checksum),
        cmocka_unit_test(test_sections_of_a_later_version),
    };
    return cmocka_run_group_tests(tests, make, drop);
}

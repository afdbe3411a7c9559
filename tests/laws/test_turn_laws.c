/* test_turn_laws.c - requests that take turns (aerie_session_params.max_turn): law 1 for requests that give up their slots, and
 * the order in which requests get slots.
 *
 * Every answer, with every kind of drafter, sampler, grammar and stop string, and of models with recurrent layers, is compared
 * with that of the request alone. The order is asserted by events and numbers of steps, never by times.
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
#include "fail_alloc.h"
#include "mkarch.h"
#include "mkhead.h"
#include "spec_rig.inc"

#define N_CTX 256
#define N_PROMPT 40
#define N_PREDICT 32
#define N_KINDS (N_SAMPLINGS + 4)

static aerie_model *model, *draft, *recurrent;
static aerie_drafter_head *head;
static aerie_grammar *letters;
static int32_t prompts[N_KINDS][N_PROMPT];

static aerie_model *make_model(const char *name, uint32_t n_layers)
{
    mk_options o;
    aerie_error error = {0};
    mk_shape("tiny", &o);
    o.type = "q8_0", o.n_layers = n_layers, o.layer_decay = 0.25f, o.forgetful = true;
    need(mk_model(&o, path_of(name), &error), &error);
    return load(path_of(name), NULL);
}

static int make(void **state)
{
    (void)state;
    aerie_error error = {0};
    uint64_t random = 9;
    char target[96];
    const char text[] = "root ::= [a-z \\n]*";
    if (!mkdtemp(folder)) return 1;
    model = make_model("m", 3);
    draft = make_model("draft", 1);
    need(mkarch_write(mkarch_find("qwen35"), false, path_of("recurrent"), &error), &error);
    recurrent = load(path_of("recurrent"), NULL);
    snprintf(target, sizeof target, "%s", path_of("m"));
    const mkhead_options o = {.kind = "eagle3", .type = "q8_0", .n_draft = 24};
    need(mkhead_write(&o, target, path_of("head"), &error), &error);
    need(aerie_drafter_head_load(&head, model, path_of("head"), NULL, &error), &error);
    need(aerie_grammar_create(&letters, text, strlen(text), &error), &error);
    for (size_t i = 0; i < N_KINDS; i++)
        for (size_t k = 0; k < N_PROMPT; k++)
            prompts[i][k] = k < 8 + i ? (int32_t)(3 + mk_random(&random) % 250) : prompts[i][k - 8 - i];
    return 0;
}

static int drop(void **state)
{
    (void)state;
    aerie_grammar_free(letters);
    aerie_drafter_head_free(head);
    aerie_model *models[] = {model, draft, recurrent};
    for (size_t i = 0; i < 3; i++) aerie_model_free(models[i]);
    static const char *const names[] = {"m", "draft", "recurrent", "head"};
    for (size_t i = 0; i < 4; i++) unlink(path_of(names[i]));
    return rmdir(folder);
}

static const double all_in[3] = {1, 1e-6, 0}, dear[3] = {1, 0.3, 0.02};
static const double *costs = all_in; /* rows of passes: so that no request has to miss one, or most have to */

static const aerie_spec_type types[] = {AERIE_SPEC_NONE, AERIE_SPEC_NGRAM, AERIE_SPEC_DRAFT, AERIE_SPEC_EAGLE3};
#define N_TYPES 4

static aerie_session *open_session(const aerie_model *m, aerie_spec_type type, uint32_t n_seqs, uint32_t max_turn)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = N_CTX, params.n_seqs = n_seqs, params.n_batch = 64, params.n_threads = 1, params.max_turn = max_turn;
    params.spec.type = type, params.spec.n_max = 5;
    params.spec.ngram = type != AERIE_SPEC_DRAFT;
    if (type == AERIE_SPEC_DRAFT) params.spec.draft_model = draft;
    if (type == AERIE_SPEC_EAGLE3) params.spec.head = head;
    const ae_session_test test = {.fixed = true, .share = {costs[0], costs[1], costs[2]}};
    need(ae_session_create_for_test(&session, m, &params, &test, &error), &error);
    return session;
}

static const char *const stops[] = {"zq", "\n\n", "e"};

static aerie_request request_of(uint32_t kind)
{
    aerie_request r = aerie_request_default();
    r.id = kind;
    r.tokens = prompts[kind];
    r.n_tokens = N_PROMPT;
    r.n_predict = N_PREDICT;
    r.ignore_eos = true;
    r.n_logprobs = 2;
    r.sampling = sampling_of(kind < N_SAMPLINGS ? kind : 0);
    switch (kind) {
    case N_SAMPLINGS: r.sampling.mirostat = 2, r.sampling.temperature = 1; break;
    case N_SAMPLINGS + 1: r.grammar = letters, r.sampling.temperature = 1; break;
    case N_SAMPLINGS + 2: r.stop = stops, r.n_stop = 2, r.sampling.temperature = 1.4f, r.sampling.dry_multiplier = 1; break;
    case N_SAMPLINGS + 3: r.stop = stops, r.n_stop = 3, r.sampling.temperature = 1.4f; break;
    default: break;
    }
    return r;
}

/* ---- Events ---------------------------------------------------------------------------------------------- */

#define MOST 24
typedef struct told {
    answer answers[MOST];
    float logprobs[MOST][MAX_PREDICT];
    size_t order[MOST], n_ended; /* ids as their requests end */
} told;

static void poll_all(aerie_session *session, told *t)
{
    const aerie_token_event *e;
    while ((e = aerie_session_poll(session))) {
        answer *a = &t->answers[e->i_request];
        if (e->n_text) memcpy(a->text + a->n_text, e->text, e->n_text);
        a->n_text += e->n_text;
        if (e->token < 0) {
            a->stats = *e->stats;
            t->order[t->n_ended++] = e->i_request;
            continue;
        }
        assert_true(a->n < MAX_PREDICT);
        t->logprobs[e->i_request][a->n] = e->logprob;
        a->ids[a->n++] = e->token;
    }
}

static void step(aerie_session *session, told *t)
{
    aerie_error error = {0};
    need(aerie_session_step(session, &error), &error);
    poll_all(session, t);
}

static aerie_task *submit(aerie_session *session, const aerie_request *request)
{
    aerie_error error = {0};
    aerie_task *task;
    need(aerie_session_submit(session, request, &task, &error), &error);
    return task;
}

/* ---- Law 1 -------------------------------------------------------------------------------------------------------- */

/* All kinds of requests in turns of a few tokens, on fewer slots; every other one is saved while it waits, and loaded. */
static uint32_t play_in_turns(const aerie_model *m, aerie_spec_type type, uint32_t n_seqs, const told *alone, const char *what)
{
    static told t;
    aerie_error error = {0};
    aerie_session *session = open_session(m, type, n_seqs, 3);
    aerie_task *tasks[N_KINDS];
    uint32_t n_parked = 0, n_saved = 0;
    memset(&t, 0, sizeof t);
    for (uint32_t kind = 0; kind < N_KINDS; kind++) {
        aerie_request r = request_of(kind);
        r.client = kind % 3, r.group = kind % 4;
        tasks[kind] = submit(session, &r);
    }
    for (uint32_t i = 0; t.n_ended < N_KINDS; i++) {
        assert_true(i < 4000);
        step(session, &t);
        const uint32_t k = i % N_KINDS;
        if (i % 7 || aerie_task_ended(tasks[k]) || aerie_task_slot(tasks[k]) >= 0 || !t.answers[k].n) continue;
        void *data;
        size_t n, n_tokens, n_prompt;
        int32_t *tokens;
        need(aerie_task_save(tasks[k], &data, &n, &error), &error);
        need(aerie_saved_tokens(data, n, &tokens, &n_tokens, &n_prompt, &error), &error);
        assert_int_equal(n_prompt, N_PROMPT);
        assert_int_equal(n_tokens, N_PROMPT + t.answers[k].n);
        assert_memory_equal(tokens + N_PROMPT, t.answers[k].ids, t.answers[k].n * sizeof *tokens);
        aerie_free(tokens);
        aerie_free(data);
        n_saved++;
    }
    assert_true(n_saved > 0);
    for (uint32_t kind = 0; kind < N_KINDS; kind++) {
        const answer *got = &t.answers[kind], *expected = &alone->answers[kind];
        same_answer(got, expected, what, kind);
        if (got->n_text != expected->n_text || memcmp(got->text, expected->text, got->n_text))
            fail_msg("%s: request %u: another text", what, kind);
        assert_memory_equal(t.logprobs[kind], alone->logprobs[kind], sizeof t.logprobs[kind]);
        assert_int_equal(got->stats.n_generated, expected->stats.n_generated);
        assert_int_equal(got->stats.n_prompt, N_PROMPT);
        n_parked += got->stats.n_parked;
        aerie_task_free(tasks[kind]);
    }
    aerie_session_free(session);
    return n_parked;
}

static void play_alone(const aerie_model *m, told *t)
{
    aerie_session *session = open_session(m, AERIE_SPEC_NONE, 1, 0);
    memset(t, 0, sizeof *t);
    for (uint32_t kind = 0; kind < N_KINDS; kind++) {
        const aerie_request r = request_of(kind);
        aerie_task *task = submit(session, &r);
        while (!aerie_task_ended(task)) step(session, t);
        poll_all(session, t);
        assert_int_equal(t->answers[kind].stats.n_parked, 0);
        aerie_task_free(task);
    }
    aerie_session_free(session);
}

static void test_turns_change_no_byte(void **state)
{
    (void)state;
    static told alone;
    play_alone(model, &alone);
    for (size_t t = 0; t < N_TYPES; t++)
        for (uint32_t n_seqs = 1; n_seqs <= 4; n_seqs += 1 + (AE_TEST_EVERY > 4)) {
            costs = all_in;
            const uint32_t n = play_in_turns(model, types[t], n_seqs, &alone, aerie_spec_type_name(types[t]));
            if (n < N_KINDS) fail_msg("%s, %u slots: parked %u times", aerie_spec_type_name(types[t]), n_seqs, n);
            costs = dear;
            play_in_turns(model, types[t], n_seqs, &alone, "shared passes");
            costs = all_in;
        }
}

static void test_turns_of_recurrent_layers(void **state)
{
    (void)state;
    static told alone;
    play_alone(recurrent, &alone);
    for (size_t t = 0; t < 2; t++)
        assert_true(play_in_turns(recurrent, types[t], 2, &alone, "recurrent layers") >= N_KINDS);
    costs = dear;
    play_in_turns(recurrent, AERIE_SPEC_NGRAM, 3, &alone, "recurrent layers in shared passes");
    costs = all_in;
}

/* ---- The order of slots ------------------------------------------------------------------------------------------------ */

static aerie_request plain(size_t id, uint32_t n_predict, uint64_t client, uint64_t group)
{
    aerie_request r = request_of(0);
    r.id = id, r.n_logprobs = 0, r.n_predict = n_predict, r.client = client, r.group = group;
    r.tokens = prompts[id % N_KINDS];
    return r;
}

/* Four answers to one request have all slots until another client asks. */
static void test_one_request_does_not_keep_all_slots(void **state)
{
    (void)state;
    for (int on = 0; on < 2; on++) {
        static told t;
        aerie_task *tasks[6];
        aerie_session *session = open_session(model, AERIE_SPEC_NONE, 4, on ? 64 : 0);
        memset(&t, 0, sizeof t);
        for (size_t i = 0; i < 4; i++) {
            const aerie_request r = plain(i, 60, 1, 9);
            tasks[i] = submit(session, &r);
        }
        for (int i = 0; i < 3; i++) step(session, &t);
        for (size_t i = 0; i < 4; i++) assert_true(aerie_task_slot(tasks[i]) >= 0);
        for (size_t i = 4; i < 6; i++) {
            const aerie_request r = plain(i, 3, 1, 10 + i); /* of the same client */
            tasks[i] = submit(session, &r);
        }
        step(session, &t);
        uint32_t n_waiting = 0;
        for (size_t i = 0; i < 4; i++) n_waiting += aerie_task_slot(tasks[i]) < 0;
        assert_int_equal(n_waiting, on ? 2 : 0);
        assert_int_equal(aerie_task_slot(tasks[4]) >= 0, on);
        assert_int_equal(aerie_task_slot(tasks[5]) >= 0, on);
        while (t.n_ended < 6) step(session, &t);
        if (on) assert_true(t.order[0] == 4 && t.order[1] == 5);
        else assert_true(t.order[4] >= 4 && t.order[5] >= 4);
        for (size_t i = 0; i < 6; i++) {
            assert_true(on || !t.answers[i].stats.n_parked);
            aerie_task_free(tasks[i]);
        }
        aerie_session_free(session);
    }
}

/* Three answers to one request of another client run beside one: without shares all have as many tokens. */
static void test_passes_are_shared_by_party(void **state)
{
    (void)state;
    for (int on = 0; on < 2; on++) {
        static told t;
        aerie_task *tasks[4];
        costs = on ? dear : all_in;
        aerie_session *session = open_session(model, AERIE_SPEC_NONE, 4, 64);
        memset(&t, 0, sizeof t);
        for (size_t i = 0; i < 4; i++) {
            const aerie_request r = plain(i, 60, i ? 1 : 2, i ? 7 : 8);
            tasks[i] = submit(session, &r);
        }
        while (t.answers[0].n < 50) step(session, &t);
        for (size_t i = 1; i < 4; i++) {
            if (on) assert_in_range(t.answers[i].n, 5, 35);
            else assert_in_range(t.answers[i].n, 48, 50);
        }
        while (t.n_ended < 4) step(session, &t);
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(t.answers[i].stats.n_generated, 60);
            aerie_task_free(tasks[i]);
        }
        aerie_session_free(session);
    }
    costs = all_in;
}

/* Steps until a request for n_predict tokens (0: not given) has a slot while a long one runs, which has had n_before steps. */
static uint32_t steps_until_slot(uint32_t n_before, uint32_t n_predict, uint32_t max_turn)
{
    static told t;
    aerie_session *session = open_session(model, AERIE_SPEC_NONE, 1, max_turn);
    memset(&t, 0, sizeof t);
    const aerie_request long_one = plain(0, 63, 1, 0);
    aerie_request other = plain(1, n_predict, 1, 0);
    other.n_tokens = 8;
    aerie_task *tasks[2] = {submit(session, &long_one), NULL};
    for (uint32_t i = 0; i < n_before; i++) step(session, &t);
    tasks[1] = submit(session, &other);
    uint32_t n = 0;
    while (aerie_task_slot(tasks[1]) < 0) step(session, &t), n++;
    for (size_t i = 0; i < 2; i++) aerie_task_free(tasks[i]);
    aerie_session_free(session);
    return n;
}

/* Keeps the most rows of a pass, without those of drafts. */
static void find_most_rows(void *user, const aerie_pass *p)
{
    uint32_t *n_most = user;
    const uint32_t n = p->n_rows - p->n_verified[0] - p->n_verified[1];
    if (n > *n_most) *n_most = n;
}

/* A head has lost its state of a sequence whose slot another one had. The target computes hardly anything again for it:
 * otherwise two long answers that take turns would have a long pass at each return. */
static void test_a_return_computes_little_again(void **state)
{
    static told t;
    aerie_error error = {0};
    uint32_t n_most = 0;
    (void)state;
    memset(&t, 0, sizeof t);
    aerie_session *session = open_session(model, AERIE_SPEC_EAGLE3, 1, 4);
    aerie_task *tasks[2];
    for (uint32_t k = 0; k < 2; k++) {
        aerie_request r = request_of(k);
        r.client = k + 1, r.n_predict = MAX_PREDICT;
        tasks[k] = submit(session, &r);
    }
    while (!t.answers[0].n || !t.answers[1].n) step(session, &t);
    need(aerie_session_watch_passes(session, find_most_rows, &n_most, &error), &error);
    while (!aerie_task_ended(tasks[0]) || !aerie_task_ended(tasks[1])) step(session, &t);
    assert_true(t.answers[0].stats.n_parked + t.answers[1].stats.n_parked >= 4);
    assert_true(t.answers[0].stats.n_drafted > 0 && t.answers[1].stats.n_drafted > 0);
    assert_in_range(n_most, 1, 2);
    for (uint32_t k = 0; k < 2; k++) aerie_task_free(tasks[k]);
    aerie_session_free(session);
}

static void test_a_short_request_waits_for_a_bounded_time(void **state)
{
    (void)state;
    assert_int_equal(steps_until_slot(30, 4, 16), 1);
    assert_int_equal(steps_until_slot(30, 0, 16), 1);
    assert_in_range(steps_until_slot(1, 4, 16), 1, 6);  /* until the long one has had as many tokens as the short one asks
                                                         * for */
    assert_in_range(steps_until_slot(1, 0, 16), 8, 17); /* max_turn at most */
    assert_in_range(steps_until_slot(1, 60, 16), 8, 17);
    assert_true(steps_until_slot(1, 4, 0) > 60);        /* without turns: until the long one ends */
}

/* A long answer goes on although short ones keep coming: in each turn it gets as many tokens as one of them asks for. */
static void test_a_long_request_goes_on(void **state)
{
    (void)state;
    enum { LONG = 120, SHORT = 8, STEPS = 3000 };
    aerie_session *session = open_session(model, AERIE_SPEC_NONE, 1, 16);
    const aerie_request r = plain(0, LONG, 1, 0);
    aerie_task *task = submit(session, &r), *others[2] = {NULL, NULL};
    uint32_t n_steps = 0, n_others = 0;
    for (; !aerie_task_ended(task) && n_steps < STEPS; n_steps++) {
        for (int i = 0; n_steps > 40 && i < 2; i++) { /* two of them wait or run at any time */
            aerie_request other = plain(1, SHORT, 1, 0);
            other.n_tokens = 8;
            if (others[i] && !aerie_task_ended(others[i])) continue;
            aerie_task_free(others[i]);
            others[i] = submit(session, &other);
            n_others++;
        }
        aerie_error error = {0};
        need(aerie_session_step(session, &error), &error);
        while (aerie_session_poll(session)) {}
    }
    assert_true(aerie_task_ended(task) && n_others > 10);
    assert_int_equal(aerie_task_stats(task)->n_generated, LONG);
    assert_true(aerie_task_stats(task)->n_parked > 1);
    for (int i = 0; i < 2; i++) aerie_task_free(others[i]);
    aerie_task_free(task);
    aerie_session_free(session);
}

/* A client that has sent many requests before does not keep another one waiting until all of them have ended. */
static void test_clients_have_equal_shares(void **state)
{
    (void)state;
    for (int on = 0; on < 2; on++) {
        static told t;
        enum { N = 12 };
        aerie_task *tasks[N + 2];
        aerie_session *session = open_session(model, AERIE_SPEC_NONE, 1, on ? 64 : 0);
        memset(&t, 0, sizeof t);
        for (size_t i = 0; i < N + 2; i++) {
            const aerie_request r = plain(i, 3, i < N ? 1 : 2, 0);
            tasks[i] = submit(session, &r);
        }
        while (t.n_ended < N + 2) step(session, &t);
        size_t last = 0;
        for (size_t k = 0; k < N + 2; k++)
            if (t.order[k] >= N) last = k;
        if (on) assert_in_range(last, 1, 4);
        else assert_int_equal(last, N + 1);
        for (size_t i = 0; i < N + 2; i++) aerie_task_free(tasks[i]);
        aerie_session_free(session);
    }
}

/* Many long ones: each begins after one turn of those before it, and none gives up its slot at every step. */
static void test_long_ones_take_turns(void **state)
{
    (void)state;
    enum { N = 8, SEQS = 2, TURN = 8 };
    static told t;
    aerie_task *tasks[N];
    uint32_t began[N] = {0}, n_parked = 0;
    aerie_session *session = open_session(model, AERIE_SPEC_NONE, SEQS, TURN);
    memset(&t, 0, sizeof t);
    for (size_t i = 0; i < N; i++) {
        const aerie_request r = plain(i, 60, i % 3, 0);
        tasks[i] = submit(session, &r);
    }
    for (uint32_t n = 1; t.n_ended < N; n++) {
        assert_true(n < 2000);
        step(session, &t);
        for (size_t i = 0; i < N; i++)
            if (!began[i] && t.answers[i].n) began[i] = n;
    }
    for (size_t i = 0; i < N; i++) {
        assert_in_range(began[i], 1, (N / SEQS + 1) * (TURN + 2));
        n_parked += t.answers[i].stats.n_parked;
        aerie_task_free(tasks[i]);
    }
    assert_in_range(n_parked, N, N * 60 * 2 / TURN);
    aerie_session_free(session);
}

/* ---- Ends --------------------------------------------------------------------------------------------------------- */

static void test_cancelled_while_waiting(void **state)
{
    (void)state;
    static told t;
    aerie_session *session = open_session(model, AERIE_SPEC_NGRAM, 1, 4);
    aerie_task *tasks[3];
    memset(&t, 0, sizeof t);
    for (size_t i = 0; i < 3; i++) {
        const aerie_request r = plain(i, 40, 1, 0);
        tasks[i] = submit(session, &r);
    }
    for (int i = 0; i < 15; i++) step(session, &t);
    size_t k = 0;
    while (aerie_task_slot(tasks[k]) >= 0 || !t.answers[k].n) assert_true(++k < 3);
    aerie_task_cancel(tasks[k]);
    step(session, &t);
    assert_true(t.n_ended == 1 && t.order[0] == k);
    assert_int_equal(t.answers[k].stats.stop, AERIE_STOP_CALLER);
    assert_int_equal(t.answers[k].stats.n_generated, t.answers[k].n);
    assert_true(t.answers[k].stats.n_parked > 0);
    aerie_session_free(session); /* one waits, one runs */
    for (size_t i = 0; i < 3; i++) {
        assert_true(aerie_task_ended(tasks[i]));
        aerie_task_free(tasks[i]);
    }
}

/* If memory is too short to park a request, it goes on and the other one waits. */
static void test_without_memory_nobody_makes_way(void **state)
{
    (void)state;
    static told alone, t;
    play_alone(model, &alone);
    for (long nth = 1;; nth++) {
        aerie_session *session = open_session(model, AERIE_SPEC_NONE, 1, 4);
        memset(&t, 0, sizeof t);
        aerie_request r[2] = {request_of(0), request_of(1)};
        aerie_task *tasks[2];
        for (size_t i = 0; i < 2; i++) tasks[i] = submit(session, &r[i]);
        step(session, &t);
        assert_true(aerie_task_slot(tasks[1]) < 0); /* it gets the slot in the next step */
        fail_alloc_arm(nth, false);
        (void)aerie_session_step(session, NULL);
        const bool failed = fail_alloc_disarm();
        poll_all(session, &t);
        while (t.n_ended < 2) step(session, &t);
        for (size_t i = 0; i < 2; i++) {
            if (t.answers[i].stats.error.status == AERIE_OK) same_answer(&t.answers[i], &alone.answers[i], "short memory", i);
            else assert_int_equal(t.answers[i].stats.error.status, AERIE_ERROR_MEMORY);
            aerie_task_free(tasks[i]);
        }
        aerie_session_free(session);
        if (!failed) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns_change_no_byte),
        cmocka_unit_test(test_turns_of_recurrent_layers),
        cmocka_unit_test(test_passes_are_shared_by_party),
        cmocka_unit_test(test_one_request_does_not_keep_all_slots),
        cmocka_unit_test(test_a_return_computes_little_again),
        cmocka_unit_test(test_a_short_request_waits_for_a_bounded_time),
        cmocka_unit_test(test_a_long_request_goes_on),
        cmocka_unit_test(test_clients_have_equal_shares),
        cmocka_unit_test(test_long_ones_take_turns),
        cmocka_unit_test(test_cancelled_while_waiting),
        cmocka_unit_test(test_without_memory_nobody_makes_way),
    };
    return cmocka_run_group_tests(tests, make, drop);
}

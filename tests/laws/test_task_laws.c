/* test_task_laws.c - law 1 for requests that come and go: submitted and cancelled by other threads, sharing prefixes, short of
 * cache; and for sessions on the threads of one pool. Every answer is compared with that of the same request alone.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie_extra.h"
#include "every.h"
#include "spec_rig.inc"

#define N_REQUESTS 24
#define N_PREFIX 300
#define N_CTX 512
#define N_PREDICT 20

static aerie_model *model;
static aerie_pool *pool; /* of new sessions; NULL: threads of their own */
static int32_t prompts[N_REQUESTS][N_PREFIX + 32];
static size_t lengths[N_REQUESTS];
static answer alone[N_REQUESTS];

static aerie_request request_of(size_t i)
{
    aerie_request r = aerie_request_default();
    r.id = i;
    r.tokens = prompts[i];
    r.n_tokens = lengths[i];
    r.n_predict = N_PREDICT;
    r.ignore_eos = true;
    r.sampling = sampling_of((uint32_t)i % N_SAMPLINGS);
    return r;
}

static aerie_session *open_session(aerie_spec_type type, uint32_t n_seqs, uint32_t n_kv)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = N_CTX, params.n_seqs = n_seqs, params.n_batch = 64, params.n_threads = 2, params.n_kv = n_kv;
    params.pool = pool;
    params.spec.type = type;
    params.spec.n_max = 5;
    need(ae_session_create_for_test(&session, model, &params, &(ae_session_test){.fixed = true}, &error), &error);
    return session;
}

/* All prompts share a beginning; their tails differ. */
static int make(void **state)
{
    (void)state;
    mk_options o;
    aerie_error error = {0};
    uint64_t random = 5;
    if (!mkdtemp(folder)) return 1;
    mk_shape("tiny-gqa", &o);
    o.type = "q4_0", o.forgetful = true; /* so that n-grams are right now and then */
    need(mk_model(&o, path_of("m"), &error), &error);
    model = load(path_of("m"), NULL);
    for (size_t i = 0; i < N_REQUESTS; i++) {
        for (size_t k = 0; k < N_PREFIX; k++) prompts[i][k] = i ? prompts[0][k] : (int32_t)(mk_random(&random) % 300);
        lengths[i] = N_PREFIX + 1 + i;
        for (size_t k = N_PREFIX; k < lengths[i]; k++) prompts[i][k] = (int32_t)(mk_random(&random) % 300);
    }
    aerie_session *session = open_session(AERIE_SPEC_NONE, 1, 0);
    for (size_t i = 0; i < N_REQUESTS; i++) {
        const aerie_request request = request_of(i);
        static run r;
        generate(session, model, &request, 1, &r);
        alone[i] = r.answers[0];
    }
    aerie_session_free(session);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    aerie_model_free(model);
    unlink(path_of("m"));
    return rmdir(folder);
}

static void check_answer(const answer *a, size_t i, const char *what)
{
    same_answer(a, &alone[i], what, i);
    if (a->n_text != alone[i].n_text || memcmp(a->text, alone[i].text, a->n_text))
        fail_msg("%s: request %zu: another text", what, i);
}

/* The contents of polled events, by request. */
static answer got[N_REQUESTS];
static uint32_t n_ended;

static void poll_all(aerie_session *session)
{
    const aerie_token_event *e;
    while ((e = aerie_session_poll(session))) {
        answer *a = &got[e->i_request];
        assert_true(a->n_text + e->n_text <= sizeof a->text);
        if (e->n_text) memcpy(a->text + a->n_text, e->text, e->n_text);
        a->n_text += e->n_text;
        if (e->token >= 0) {
            assert_true(a->n < N_PREDICT);
            a->ids[a->n++] = e->token;
            continue;
        }
        assert_true(aerie_task_ended(e->task) && e->stats == aerie_task_stats(e->task));
        a->stats = *e->stats;
        n_ended++;
    }
}

static void step(aerie_session *session)
{
    aerie_error error = {0};
    need(aerie_session_step(session, &error), &error);
    poll_all(session);
}

/* Everything at once; the sum of prompt tokens that were computed through *n_computed, of preemptions through *n_preempted. */
static void run_at_once(aerie_spec_type type, uint32_t n_seqs, uint32_t n_kv, const char *what, uint64_t *n_computed,
                        uint64_t *n_preempted)
{
    aerie_error error = {0};
    aerie_task *tasks[N_REQUESTS];
    aerie_session *session = open_session(type, n_seqs, n_kv);
    memset(got, 0, sizeof got);
    n_ended = 0;
    for (size_t i = 0; i < N_REQUESTS; i++) {
        const aerie_request request = request_of(i);
        need(aerie_session_submit(session, &request, &tasks[i], &error), &error);
    }
    assert_int_equal(aerie_session_n_tasks(session), N_REQUESTS);
    while (aerie_session_n_tasks(session)) step(session);
    assert_int_equal(n_ended, N_REQUESTS);
    *n_computed = *n_preempted = 0;
    for (size_t i = 0; i < N_REQUESTS; i++) {
        check_answer(&got[i], i, what);
        *n_computed += got[i].stats.n_prompt - got[i].stats.n_cached;
        *n_preempted += got[i].stats.n_preempted;
        aerie_task_free(tasks[i]);
    }
    aerie_session_free(session);
}

static const aerie_spec_type types[] = {AERIE_SPEC_NONE, AERIE_SPEC_NGRAM, AE_SPEC_RANDOM};

static void test_a_shared_prefix_is_computed_once(void **state)
{
    (void)state;
    uint64_t n_computed, n_preempted, n_tails = 0;
    for (size_t i = 0; i < N_REQUESTS; i++) n_tails += lengths[i] - N_PREFIX;
    for (size_t t = 0; t < 3; t++) {
        run_at_once(types[t], N_REQUESTS, 0, "at once", &n_computed, &n_preempted);
        assert_in_range(n_computed, N_PREFIX + n_tails - 4, N_PREFIX + n_tails); /* some tails begin alike too */
        run_at_once(types[t], 3, 0, "three at once", &n_computed, &n_preempted);
        assert_in_range(n_computed, N_PREFIX + n_tails - 4, N_PREFIX + n_tails); /* some tails begin alike too */
    }
}

/* A pool for little more than one sequence: pages of the prefix tree are evicted, running sequences are preempted. */
static void test_a_small_pool_changes_no_byte(void **state)
{
    (void)state;
    uint64_t n_computed, n_preempted, most = 0;
    for (size_t t = 0; t < 3; t++)
        for (uint32_t n_kv = 1; n_kv <= 1025; n_kv += 256) {
            run_at_once(types[t], 8, n_kv, "small pool", &n_computed, &n_preempted);
            if (n_preempted > most) most = n_preempted;
        }
    print_message("up to %llu preemptions\n", (unsigned long long)most);
}

/* ---- Many sequences, a long beginning ----------------------------------------------------------------------- */

#define N_MANY 64
#define N_LONG 2000
#define N_SHORT 6 /* tokens of an answer */

typedef struct crowd {
    int32_t prompts[N_MANY][N_LONG + 8];
    int32_t ids[N_MANY][N_SHORT], expected[N_MANY][N_SHORT];
    uint32_t n[N_MANY];
    size_t first; /* request of the run */
} crowd;

static aerie_request crowd_request(const crowd *c, size_t i)
{
    aerie_request r = aerie_request_default();
    r.id = i, r.tokens = c->prompts[i], r.n_tokens = N_LONG + 1 + i % 8;
    r.n_predict = N_SHORT, r.ignore_eos = true;
    r.sampling = sampling_of((uint32_t)i % N_SAMPLINGS);
    r.sampling.seed = i;
    return r;
}

static bool note_token(void *user, const aerie_token_event *e)
{
    crowd *c = user;
    const size_t i = c->first + e->i_request;
    if (e->token >= 0) c->ids[i][c->n[i]++] = e->token;
    return true;
}

/* Answers requests [first, first + n); prompt tokens that were computed through *n_computed, returns preemptions. */
static uint64_t run_crowd(const aerie_model *m, crowd *c, size_t first, size_t n, uint32_t n_seqs, uint32_t n_kv,
                          uint64_t *n_computed)
{
    static aerie_request requests[N_MANY];
    static aerie_stats stats[N_MANY];
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params p = aerie_session_params_default();
    p.n_ctx = N_LONG + 64, p.n_seqs = n_seqs, p.n_batch = 256, p.n_threads = 2, p.n_kv = n_kv, p.spec.type = AERIE_SPEC_NONE;
    need(aerie_session_create(&session, m, &p, &error), &error);
    for (size_t i = 0; i < n; i++) requests[i] = crowd_request(c, first + i);
    c->first = first;
    memset(c->n, 0, sizeof c->n);
    need(aerie_session_generate(session, requests, n, note_token, c, stats, sizeof *stats, &error), &error);
    aerie_session_free(session);
    uint64_t n_preempted = 0;
    *n_computed = 0;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(c->n[first + i], N_SHORT);
        *n_computed += stats[i].n_prompt - stats[i].n_cached;
        n_preempted += stats[i].n_preempted;
    }
    return n_preempted;
}

static void check_crowd(const crowd *c, size_t first, size_t n, const char *what)
{
    for (size_t i = first; i < first + n; i++)
        if (memcmp(c->ids[i], c->expected[i], sizeof c->ids[i])) fail_msg("%s: request %zu: other tokens", what, i);
}

/* 64 sequences whose prompts share 2,000 tokens. The beginning is computed once, whether they come one after another or all at
 * once; a pool that holds one sequence, so that prefixes are evicted and sequences preempted, changes no byte. */
static void test_a_long_prefix_of_many_sequences(void **state)
{
    (void)state;
    const size_t n = AE_TEST_EVERY > 4 ? 8 : N_MANY;
    static crowd c;
    mk_options o;
    aerie_error error = {0};
    uint64_t random = 11, n_computed, n_tails = 0;
    mk_shape("tiny-gqa", &o);
    o.n_ctx = 4096, o.n_layers = 1;
    need(mk_model(&o, path_of("long"), &error), &error);
    aerie_model *m = load(path_of("long"), NULL);
    for (size_t i = 0; i < n; i++) {
        const size_t length = N_LONG + 1 + i % 8;
        for (size_t k = 0; k < length; k++)
            c.prompts[i][k] = i && k < N_LONG ? c.prompts[0][k] : (int32_t)(mk_random(&random) % 300);
        c.prompts[i][N_LONG] = (int32_t)i; /* tails differ from their first token on */
        n_tails += length - N_LONG;
    }
    run_crowd(m, &c, 0, n, 1, 0, &n_computed);
    assert_int_equal(n_computed, N_LONG + n_tails);
    memcpy(c.expected, c.ids, sizeof c.ids);
    for (size_t i = 0; i < n; i += n / 4) { /* in a session of its own, nothing is shared */
        run_crowd(m, &c, i, 1, 1, 0, &n_computed);
        assert_int_equal(n_computed, N_LONG + 1 + i % 8);
        check_crowd(&c, i, 1, "alone");
    }
    run_crowd(m, &c, 0, n, (uint32_t)n, 0, &n_computed);
    assert_int_equal(n_computed, N_LONG + n_tails);
    check_crowd(&c, 0, n, "at once");
    const uint64_t n_preempted = run_crowd(m, &c, 0, n, (uint32_t)n, 1, &n_computed);
    check_crowd(&c, 0, n, "in the room of one sequence");
    print_message("in the room of one sequence: %llu preemptions, %llu prompt tokens computed\n",
                  (unsigned long long)n_preempted, (unsigned long long)n_computed);
    assert_true(n_preempted > 0);
    aerie_model_free(m);
    unlink(path_of("long"));
}

/* Prompts without a common prefix fill the pool many times over. */
static void test_sequences_give_way_and_come_back(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_session *session = open_session(AERIE_SPEC_NGRAM, 8, 700);
    int32_t own[8][200];
    aerie_task *tasks[8];
    static answer expected[8];
    uint64_t random = 77, n_preempted = 0;
    aerie_session *one = open_session(AERIE_SPEC_NONE, 1, 0);
    memset(got, 0, sizeof got);
    for (size_t i = 0; i < 8; i++) {
        for (size_t k = 0; k < 200; k++) own[i][k] = (int32_t)(mk_random(&random) % 300);
        aerie_request r = request_of(i);
        r.tokens = own[i], r.n_tokens = 200;
        static run plain;
        aerie_request same = r;
        generate(one, model, &same, 1, &plain);
        expected[i] = plain.answers[0];
        need(aerie_session_submit(session, &r, &tasks[i], &error), &error);
    }
    while (aerie_session_n_tasks(session)) step(session);
    for (size_t i = 0; i < 8; i++) {
        same_answer(&got[i], &expected[i], "giving way", i);
        n_preempted += got[i].stats.n_preempted;
        aerie_task_free(tasks[i]);
    }
    assert_true(n_preempted > 0);
    aerie_session_free(session);
    aerie_session_free(one);
}

/* ---- Threads ---------------------------------------------------------------------------------------------- */

typedef struct client {
    aerie_session *session;
    size_t first;
    aerie_task *tasks[N_REQUESTS / 2];
} client;

/* Submits half of the requests, and cancels every third of its own. */
static void *submit_some(void *user)
{
    client *c = user;
    for (size_t i = 0; i < N_REQUESTS / 2; i++) {
        const aerie_request request = request_of(c->first + i);
        if (aerie_session_submit(c->session, &request, &c->tasks[i], NULL) != AERIE_OK) return c;
        if (i % 3 == 2) aerie_task_cancel(c->tasks[i]);
    }
    return NULL;
}

static void test_requests_come_and_go_from_other_threads(void **state)
{
    (void)state;
    aerie_session *session = open_session(AERIE_SPEC_NGRAM, 5, 0);
    client clients[2] = {{.session = session, .first = 0}, {.session = session, .first = N_REQUESTS / 2}};
    pthread_t threads[2];
    memset(got, 0, sizeof got);
    n_ended = 0;
    for (size_t i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, submit_some, &clients[i]), 0);
    while (n_ended < N_REQUESTS) {
        step(session);
        aerie_session_wait(session, 0.01);
    }
    for (size_t i = 0; i < 2; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    for (size_t i = 0; i < N_REQUESTS; i++) {
        const bool cancelled = got[i].stats.stop == AERIE_STOP_CALLER;
        if (cancelled) assert_int_equal(i % (N_REQUESTS / 2) % 3, 2);
        else check_answer(&got[i], i, "from a thread");
        for (size_t k = 0; k < got[i].n; k++) assert_int_equal(got[i].ids[k], alone[i].ids[k]); /* what came before the end */
        aerie_task_free(clients[i / (N_REQUESTS / 2)].tasks[i % (N_REQUESTS / 2)]);
    }
    assert_int_equal(aerie_session_n_tasks(session), 0);
    assert_false(aerie_session_wait(session, 0));
    aerie_session_free(session);
}

typedef struct stepper {
    aerie_session *session;
    size_t first, n; /* its requests */
    answer *answers; /* [n], by request */
    bool ok;
} stepper;

static bool note_answer(void *user, const aerie_token_event *e)
{
    stepper *s = user;
    answer *a = &s->answers[e->i_request - s->first];
    if (e->n_text) memcpy(a->text + a->n_text, e->text, e->n_text);
    a->n_text += e->n_text;
    if (e->token >= 0) a->ids[a->n++] = e->token;
    else a->stats = *e->stats;
    return true;
}

/* Submits its requests and steps until they are answered. */
static void *step_alone(void *user)
{
    stepper *s = user;
    aerie_task *tasks[N_REQUESTS] = {0};
    s->ok = true;
    memset(s->answers, 0, s->n * sizeof *s->answers);
    for (size_t i = 0; i < s->n; i++) {
        aerie_request request = request_of(s->first + i);
        request.token = note_answer, request.user = s;
        s->ok = s->ok && aerie_session_submit(s->session, &request, &tasks[i], NULL) == AERIE_OK;
    }
    while (s->ok && aerie_session_n_tasks(s->session)) s->ok = aerie_session_step(s->session, NULL) == AERIE_OK;
    for (size_t i = 0; i < s->n; i++) aerie_task_free(tasks[i]);
    return NULL;
}

/* Sessions with different drafters on the threads of one pool, each stepped by a thread of its own; a third one joins them. */
/* Steps until a long prompt's first token while another request generates. */
static uint32_t steps_beside(uint32_t max_pause)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_session_params params = aerie_session_params_default();
    params.n_ctx = N_CTX, params.n_seqs = 2, params.n_batch = 512, params.n_threads = 2, params.max_pause = max_pause;
    params.spec.type = AERIE_SPEC_NONE;
    need(aerie_session_create(&session, model, &params, &error), &error);
    aerie_request first = request_of(0);
    const aerie_request second = request_of(5);
    aerie_task *tasks[2];
    first.n_tokens = 1;
    memset(got, 0, sizeof got);
    need(aerie_session_submit(session, &first, &tasks[0], &error), &error);
    step(session);
    need(aerie_session_submit(session, &second, &tasks[1], &error), &error);
    uint32_t n_steps = 0;
    for (; !got[5].n; n_steps++) step(session);
    while (aerie_session_n_tasks(session)) step(session);
    check_answer(&got[5], 5, "beside another");
    for (size_t i = 0; i < 2; i++) aerie_task_free(tasks[i]);
    aerie_session_free(session);
    return n_steps;
}

/* With a bound the first pass beside a running answer takes at most 64 rows, as nothing was measured yet. */
static void test_a_bound_on_pauses_changes_no_byte(void **state)
{
    (void)state;
    assert_int_equal(steps_beside(0), 1);
    assert_true(steps_beside(1) > 1);
}

static void test_sessions_share_a_pool(void **state)
{
    (void)state;
    enum { N = 3, EACH = N_REQUESTS / N };
    static answer answers[N][EACH];
    aerie_error error = {0};
    for (uint32_t n_threads = 1; n_threads <= 2; n_threads++) {
        stepper steppers[N];
        pthread_t threads[N];
        need(aerie_pool_create(&pool, n_threads, &error), &error);
        for (size_t i = 0; i < N; i++) {
            steppers[i] = (stepper){open_session(types[i], 3, 0), i * EACH, EACH, answers[i], false};
            assert_int_equal(pthread_create(&threads[i], NULL, step_alone, &steppers[i]), 0);
        }
        for (size_t i = 0; i < N; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_true(steppers[i].ok);
            for (size_t k = 0; k < EACH; k++) check_answer(&answers[i][k], i * EACH + k, "on a shared pool");
            aerie_session_free(steppers[i].session);
        }
        aerie_pool_free(pool);
        pool = NULL;
    }
}

/* A request's limits on drafting change how much is drafted for it, but not its answer. */
static void test_limits_of_drafts(void **state)
{
    (void)state;
    aerie_error error = {0};
    uint64_t n_free = 0, n_likely = 0, n_long = 0;
    for (int how = 0; how < 5; how++) {
        aerie_session *session = open_session(AERIE_SPEC_NGRAM, 3, 0);
        aerie_task *tasks[N_REQUESTS];
        memset(got, 0, sizeof got);
        n_ended = 0;
        for (size_t i = 0; i < N_REQUESTS; i++) {
            aerie_request request = request_of(i);
            if (how == 1) request.no_drafts = true;
            if (how == 2) request.draft_max = 1;
            if (how == 3) request.draft_min = 4;
            if (how == 4) request.draft_p_min = 0.5f;
            need(aerie_session_submit(session, &request, &tasks[i], &error), &error);
        }
        while (n_ended < N_REQUESTS) {
            need(aerie_session_step(session, &error), &error);
            poll_all(session);
        }
        for (size_t i = 0; i < N_REQUESTS; i++) {
            const aerie_stats *s = aerie_task_stats(tasks[i]);
            check_answer(&got[i], i, "with limits");
            if (how == 0) n_free += s->n_drafted;
            if (how == 1) assert_int_equal(s->n_drafted, 0);
            if (how == 2) assert_int_equal(s->n_drafted, s->drafted_at[0]);
            if (how == 3) n_long += s->n_drafted;
            if (how == 4) n_likely += s->n_drafted;
            aerie_task_free(tasks[i]);
        }
        aerie_session_free(session);
    }
    assert_true(n_free > 0 && n_long < n_free && n_likely < n_free);
}

/* A session that is freed ends its tasks; a task that is freed reports no more events. */
static void test_ends(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_session *session = open_session(AERIE_SPEC_NGRAM, 2, 0);
    aerie_task *tasks[4];
    memset(got, 0, sizeof got);
    n_ended = 0;
    for (size_t i = 0; i < 4; i++) {
        const aerie_request request = request_of(i);
        need(aerie_session_submit(session, &request, &tasks[i], &error), &error);
    }
    for (size_t i = 0; i < 4; i++) { /* none has begun, and they wait in the order in which they came */
        assert_int_equal(aerie_task_slot(tasks[i]), -1);
        assert_int_equal(aerie_task_n_ahead(tasks[i]), i);
    }
    step(session);
    assert_int_equal(aerie_task_slot(tasks[0]) + aerie_task_slot(tasks[1]), 1); /* 0 and 1 */
    assert_int_equal(aerie_task_slot(tasks[3]), -1);
    assert_int_equal(aerie_task_n_ahead(tasks[0]), 0);
    assert_int_equal(aerie_task_n_ahead(tasks[2]), 0);
    assert_int_equal(aerie_task_n_ahead(tasks[3]), 1);
    for (int i = 1; i < 12; i++) step(session);
    assert_true(got[0].n > 0);
    const size_t n_before = got[0].n;
    aerie_task_free(tasks[0]); /* running */
    aerie_task_free(tasks[3]); /* waiting */
    step(session);
    assert_int_equal(got[0].n, n_before);
    assert_false(aerie_task_ended(tasks[1]) && aerie_task_ended(tasks[2]));
    aerie_session_free(session);
    for (size_t i = 1; i < 3; i++) {
        assert_true(aerie_task_ended(tasks[i]));
        aerie_task_free(tasks[i]);
    }
    aerie_task_free(NULL);
}

/* Events that nobody has polled yet when their task is freed and ends: they are dropped, and those of others are not. */
static void test_events_outlive_their_task(void **state)
{
    (void)state;
    aerie_error error = {0};
    aerie_session *session = open_session(AERIE_SPEC_NGRAM, 2, 0);
    aerie_task *tasks[2];
    memset(got, 0, sizeof got);
    n_ended = 0;
    for (size_t i = 0; i < 2; i++) {
        const aerie_request request = request_of(i);
        need(aerie_session_submit(session, &request, &tasks[i], &error), &error);
    }
    for (int i = 0; i < 12; i++) need(aerie_session_step(session, &error), &error);
    aerie_task_free(tasks[0]);
    for (int i = 0; i < 2; i++) need(aerie_session_step(session, &error), &error); /* the session releases it, too */
    poll_all(session);
    assert_true(got[0].n == 0 && got[1].n > 0);
    while (!aerie_task_ended(tasks[1])) step(session);
    check_answer(&got[1], 1, "beside a freed one");
    aerie_task_free(tasks[1]);
    aerie_session_free(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_shared_prefix_is_computed_once),
        cmocka_unit_test(test_a_small_pool_changes_no_byte),
        cmocka_unit_test(test_a_long_prefix_of_many_sequences),
        cmocka_unit_test(test_sequences_give_way_and_come_back),
        cmocka_unit_test(test_requests_come_and_go_from_other_threads),
        cmocka_unit_test(test_a_bound_on_pauses_changes_no_byte),
        cmocka_unit_test(test_sessions_share_a_pool),
        cmocka_unit_test(test_limits_of_drafts), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_events_outlive_their_task),
    };
    return cmocka_run_group_tests(tests, make, drop);
}

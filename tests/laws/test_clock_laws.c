/* test_clock_laws.c - law 1 whatever the clock says (random_clock.h): the times that the library measures decide which drafter
 * drafts and how far, when it is tried again or paused, and how many rows of a prompt a pass takes. They change no byte.
 *
 * Conversations of several turns run side by side in one session, as people hold them: answers are stopped, drawn again, saved
 * and continued, oldest turns are forgotten when the context is full, a session ends and another one goes on. Every answer is
 * compared with that of its prompt alone, in a session of its own without drafts.
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
#include "mkarch.h"
#include "mkhead.h"
#include "random_clock.h"
#include "spec_rig.inc"

#define N_CTX 224
#define N_TALKS 3
#define N_TURNS 16
#define N_SAID 24  /* tokens of a message at most */
#define N_SHARED 20 /* tokens that all conversations begin with */
#define N_KINDS 8

enum { PLAIN, DRAFT, RECURRENT, WINDOWED, N_MODELS };
static const char *const names[N_MODELS] = {"plain", "draft", "recurrent", "windowed"};
static aerie_model *models[N_MODELS];
static aerie_drafter_head *head;
static int32_t shared[N_SHARED];

/* ---- Models ---------------------------------------------------------------------------------------------- */

static void make_like_llama(const char *name, uint32_t n_layers)
{
    mk_options o;
    aerie_error error = {0};
    mk_shape("tiny", &o);
    o.type = "q8_0", o.n_layers = n_layers, o.layer_decay = 0.5f; /* its attention sees the whole text: every row counts */
    need(mk_model(&o, path_of(name), &error), &error);
}

static int make(void **state)
{
    (void)state;
    aerie_error error = {0};
    uint64_t random = 9;
    char target[96];
    if (!mkdtemp(folder)) return 1;
    make_like_llama("plain", 3);
    make_like_llama("draft", 1);
    need(mkarch_write(mkarch_find("qwen35"), false, path_of("recurrent"), &error), &error);
    need(mkarch_write(mkarch_find("gemma3"), false, path_of("windowed"), &error), &error);
    for (size_t i = 0; i < N_MODELS; i++) models[i] = load(path_of(names[i]), NULL);
    snprintf(target, sizeof target, "%s", path_of("plain"));
    const mkhead_options o = {.kind = "eagle3", .type = "q8_0", .n_draft = 24};
    need(mkhead_write(&o, target, path_of("head"), &error), &error);
    need(aerie_drafter_head_load(&head, models[PLAIN], path_of("head"), NULL, &error), &error);
    for (size_t i = 0; i < N_SHARED; i++) shared[i] = (int32_t)(3 + mk_random(&random) % 250);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    aerie_drafter_head_free(head);
    unlink(path_of("head"));
    for (size_t i = 0; i < N_MODELS; i++) {
        aerie_model_free(models[i]);
        unlink(path_of(names[i]));
    }
    return rmdir(folder);
}

/* ---- Conversations ----------------------------------------------------------------------------------------- */

typedef struct turn {
    int32_t tokens[N_CTX];
    size_t n_said, n; /* the message, and the answer after it */
} turn;

typedef struct talk {
    turn turns[N_TURNS];
    size_t n_turns;
    /* the answer that is being drawn */
    aerie_task *task; /* NULL: none */
    int32_t prompt[N_CTX], ids[N_CTX], expected[N_CTX];
    size_t n_prompt, n, n_expected;
    uint32_t n_predict;
    aerie_sampling sampling;
    bool stopped, resumed;
} talk;

typedef struct walk {
    uint64_t random;
    const char *what;
    size_t i_model;
    aerie_session *session;
    talk talks[N_TALKS];
} walk;

/* What the walks of a test have come across, so that no kind of event is missing from it. */
static struct {
    size_t n_answers, n_forgotten, n_stopped, n_resumed, n_full, n_drafted, n_accepted, n_cached, n_preempted;
} met;

static uint32_t pick(walk *w, uint32_t n)
{
    return (uint32_t)(mk_random(&w->random) >> 33) % n;
}

static size_t count_tokens(const talk *t)
{
    size_t n = N_SHARED;
    for (size_t i = 0; i < t->n_turns; i++) n += t->turns[i].n;
    return n;
}

static void forget_oldest(talk *t)
{
    memmove(t->turns, t->turns + 1, --t->n_turns * sizeof *t->turns);
}

/* A message of random tokens, or of some that were said before. */
static void say(walk *w, talk *t)
{
    while (t->n_turns && (t->n_turns == N_TURNS || count_tokens(t) > N_CTX * 3 / 4 - N_SAID)) {
        forget_oldest(t);
        met.n_forgotten++;
    }
    turn *s = &t->turns[t->n_turns++];
    s->n_said = s->n = 1 + pick(w, N_SAID);
    const turn *old = &w->talks[pick(w, N_TALKS)].turns[0];
    for (size_t i = 0; i < s->n; i++)
        s->tokens[i] = old != s && i < old->n && s->n % 2 ? old->tokens[i] : (int32_t)(3 + pick(w, 250));
}

static aerie_sampling sampling_for(uint32_t kind)
{
    aerie_sampling s = sampling_of(kind < N_SAMPLINGS ? kind : 0);
    if (kind == N_SAMPLINGS) s.mirostat = 2, s.temperature = 1;
    if (kind == N_SAMPLINGS + 1) s.temperature = 0.8f, s.dry_multiplier = 1;
    if (kind == N_SAMPLINGS + 2) s = aerie_sampling_default(), s.temperature = 0.8f; /* as the program has it */
    return s;
}

static aerie_request request_of(const talk *t)
{
    aerie_request r = aerie_request_default();
    r.tokens = t->prompt, r.n_tokens = t->n_prompt, r.n_predict = t->n_predict, r.sampling = t->sampling;
    return r;
}

/* The answer to the prompt alone, in a session without drafts. */
static void expect_answer(const walk *w, talk *t)
{
    aerie_error error = {0};
    aerie_session *session;
    aerie_task *task;
    aerie_session_params p = aerie_session_params_default();
    const aerie_request r = request_of(t);
    p.n_ctx = N_CTX, p.n_seqs = 1, p.n_threads = 1, p.spec.type = AERIE_SPEC_NONE;
    need(aerie_session_create(&session, models[w->i_model], &p, &error), &error);
    need(aerie_session_submit(session, &r, &task, &error), &error);
    t->n_expected = 0;
    for (const aerie_token_event *e; !aerie_task_ended(task);) {
        need(aerie_session_step(session, &error), &error);
        while ((e = aerie_session_poll(session)))
            if (e->token >= 0) t->expected[t->n_expected++] = e->token;
    }
    met.n_full += aerie_task_stats(task)->stop == AERIE_STOP_CONTEXT;
    aerie_task_free(task);
    aerie_session_free(session);
}

/* An oracle knows what is expected. */
static void tell(const walk *w)
{
    static ae_session_test_answer known[N_TALKS];
    for (size_t i = 0; i < N_TALKS; i++)
        known[i] = (ae_session_test_answer){w->talks[i].expected, w->talks[i].n_expected};
    ae_session_test_answers(w->session, known, N_TALKS);
}

static void submit(walk *w, talk *t, const aerie_request *request)
{
    aerie_error error = {0};
    aerie_request r = *request;
    r.id = (size_t)(t - w->talks);
    r.no_drafts = !pick(w, 16);
    if (!pick(w, 4)) r.draft_max = 1 + pick(w, 8);
    r.client = 1 + pick(w, 2);
    need(aerie_session_submit(w->session, &r, &t->task, &error), &error);
}

/* Asks for an answer to the last message. */
static void ask(walk *w, talk *t, uint64_t seed)
{
    turn *last = &t->turns[t->n_turns - 1];
    last->n = last->n_said;
    memcpy(t->prompt, shared, sizeof shared);
    t->n_prompt = N_SHARED;
    for (size_t i = 0; i < t->n_turns; i++) {
        memcpy(t->prompt + t->n_prompt, t->turns[i].tokens, t->turns[i].n * sizeof *t->prompt);
        t->n_prompt += t->turns[i].n;
    }
    t->n = 0;
    t->n_predict = pick(w, 8) ? 1 + pick(w, 64) : 0;
    t->sampling = sampling_for(pick(w, 2) ? pick(w, N_KINDS) : 0); /* greedy ones repeat themselves, which drafters foresee */
    t->sampling.seed = seed;
    t->stopped = t->resumed = false;
    expect_answer(w, t);
    tell(w);
    const aerie_request r = request_of(t);
    submit(w, t, &r);
}

/* The next thing that somebody does who waits for nothing. */
static void go_on(walk *w, talk *t)
{
    const uint32_t what = pick(w, 10);
    if (what == 0 && t->n_turns) forget_oldest(t);
    else if (what == 1) t->n_turns = 0;
    if (what > 2 || !t->n_turns) say(w, t); /* otherwise the last message is answered again */
    ask(w, t, mk_random(&w->random));
}

/* ---- Sessions ------------------------------------------------------------------------------------------------ */

/* Drafters that suit the walk's model, and anything else at random. */
static void open_session(walk *w)
{
    static const aerie_spec_type types[] = {AERIE_SPEC_NGRAM, AERIE_SPEC_DRAFT, AERIE_SPEC_EAGLE3, AERIE_SPEC_HIER,
                                            AERIE_SPEC_AUTO,  AERIE_SPEC_MOE,   AE_SPEC_ORACLE,    AE_SPEC_RANDOM};
    aerie_error error = {0};
    aerie_session_params p = aerie_session_params_default();
    p.n_ctx = N_CTX, p.n_seqs = 1 + pick(w, N_TALKS), p.n_threads = pick(w, 4) ? 1 : 2, p.n_batch = pick(w, 2) ? 16 : 64;
    p.n_kv = pick(w, 2) ? N_CTX : 0;
    p.max_pause = pick(w, 3) ? 0 : 1 + pick(w, 50);
    p.max_turn = pick(w, 2) ? 0 : 3;
    p.n_checkpoints = pick(w, 4);
    p.spec.n_max = 1 + pick(w, 16);
    p.spec.ngram_memory = pick(w, 2) ? 0 : 4096;
    p.spec.type = w->i_model == PLAIN ? types[pick(w, 8)] : types[pick(w, 3) ? 6 : 0];
    if (p.spec.type == AERIE_SPEC_DRAFT || p.spec.type == AERIE_SPEC_HIER || p.spec.type == AERIE_SPEC_AUTO)
        p.spec.draft_model = models[DRAFT];
    if (p.spec.type == AERIE_SPEC_EAGLE3 || p.spec.type == AERIE_SPEC_AUTO) p.spec.head = head;
    if (p.spec.type == AERIE_SPEC_MOE) p.spec.skip_attn = "1", p.spec.skip_ffn = "2";
    if (p.spec.type != AERIE_SPEC_NGRAM && p.spec.type != AERIE_SPEC_AUTO) p.spec.ngram = pick(w, 2);
    if (p.spec.type == AERIE_SPEC_HIER || p.spec.type >= AE_SPEC_ORACLE) p.spec.ngram = false;
    w->what = ae_session_test_spec_name(p.spec.type);
    /* now and then every draft is verified */
    const ae_session_test test = {.fixed = !pick(w, 4), .oracle_error = 0.3f, .seed = w->random};
    need(ae_session_create_for_test(&w->session, models[w->i_model], &p, &test, &error), &error);
    tell(w);
}

/* ---- Answers -------------------------------------------------------------------------------------------------- */

/* Compares the answer, which may have been stopped, with the expected one. */
static void check(const walk *w, const talk *t)
{
    for (size_t i = 0; i < t->n && i < t->n_expected; i++)
        if (t->ids[i] != t->expected[i])
            fail_msg("%s, model %s: token %zu of an answer to %zu tokens is %d, without drafts and alone %d", w->what,
                     names[w->i_model], i, t->n_prompt, t->ids[i], t->expected[i]);
    if (t->stopped ? t->n > t->n_expected : t->n != t->n_expected)
        fail_msg("%s, model %s: %zu tokens%s, without drafts and alone %zu", w->what, names[w->i_model], t->n,
                 t->stopped ? " when stopped" : "", t->n_expected);
}

static void end(walk *w, talk *t, const aerie_stats *s)
{
    turn *last = &t->turns[t->n_turns - 1];
    if (!t->stopped) assert_int_not_equal(s->stop, AERIE_STOP_CALLER);
    check(w, t);
    memcpy(last->tokens + last->n_said, t->ids, t->n * sizeof *t->ids);
    last->n = last->n_said + t->n;
    met.n_answers++;
    met.n_stopped += s->stop == AERIE_STOP_CALLER;
    met.n_resumed += t->resumed;
    met.n_drafted += s->n_drafted, met.n_accepted += s->n_accepted;
    met.n_cached += s->n_cached > 0, met.n_preempted += s->n_preempted;
    aerie_task_free(t->task);
    t->task = NULL;
}

static void poll_all(walk *w)
{
    const aerie_token_event *e;
    while ((e = aerie_session_poll(w->session))) {
        talk *t = &w->talks[e->i_request];
        if (e->token < 0) {
            end(w, t, e->stats);
        } else {
            assert_true(t->n < N_CTX);
            t->ids[t->n++] = e->token;
        }
    }
}

/* A saved answer goes on, in this session or in the next one. */
typedef struct saved {
    void *data;
    size_t n;
} saved;

static saved save(talk *t)
{
    aerie_error error = {0};
    saved s = {0};
    need(aerie_task_save(t->task, &s.data, &s.n, &error), &error);
    aerie_task_free(t->task);
    t->task = NULL;
    return s;
}

static void resume(walk *w, talk *t, saved *s)
{
    aerie_request r = request_of(t);
    r.tokens = NULL, r.n_tokens = 0, r.saved = s->data, r.n_saved = s->n;
    t->resumed = true;
    submit(w, t, &r);
    aerie_free(s->data);
}

/* The session ends in the middle of everything; another one takes over what was saved. */
static void change_session(walk *w)
{
    saved s[N_TALKS] = {{0}};
    for (size_t i = 0; i < N_TALKS; i++)
        if (w->talks[i].task && !aerie_task_ended(w->talks[i].task)) s[i] = save(&w->talks[i]);
    poll_all(w);
    aerie_session_free(w->session);
    open_session(w);
    for (size_t i = 0; i < N_TALKS; i++)
        if (s[i].data) resume(w, &w->talks[i], &s[i]);
}

static void disturb(walk *w, talk *t)
{
    if (!t->task || aerie_task_ended(t->task)) return;
    switch (pick(w, 150)) {
    case 0:
        aerie_task_cancel(t->task);
        t->stopped = true;
        break;
    case 1: {
        saved s = save(t);
        poll_all(w);
        resume(w, t, &s);
        break;
    }
    case 2: if (!pick(w, 4)) change_session(w); break;
    default: break;
    }
}

static void take_walk(size_t i_model, uint64_t seed, size_t n_answers)
{
    static walk w;
    aerie_error error = {0};
    const size_t until = met.n_answers + n_answers;
    w = (walk){.random = seed, .i_model = i_model};
    random_clock_start(seed);
    open_session(&w);
    for (size_t n_steps = 0; met.n_answers < until; n_steps++) {
        assert_true(n_steps < 100000);
        for (size_t i = 0; i < N_TALKS; i++) {
            talk *t = &w.talks[i];
            if (!t->task && !pick(&w, 3)) go_on(&w, t);
            disturb(&w, t);
        }
        need(aerie_session_step(w.session, &error), &error);
        poll_all(&w);
    }
    for (size_t i = 0; i < N_TALKS; i++) aerie_task_free(w.talks[i].task);
    aerie_session_free(w.session);
}

static void take_walks(size_t i_model, uint64_t n, size_t n_answers)
{
    memset(&met, 0, sizeof met);
    for (uint64_t i = 0; i < n; i += (uint64_t)AE_TEST_EVERY) take_walk(i_model, 1000 + i, n_answers);
    print_message("%zu answers: %zu stopped, %zu resumed, %zu with cached tokens, %zu preempted, %zu filled the context, "
                  "%zu turns forgotten; %zu drafted, %zu accepted\n", met.n_answers, met.n_stopped, met.n_resumed, met.n_cached,
                  met.n_preempted, met.n_full, met.n_forgotten, met.n_drafted, met.n_accepted);
    assert_true(met.n_stopped && met.n_resumed && met.n_cached && met.n_forgotten);
    if (i_model == PLAIN) assert_true(met.n_drafted && met.n_accepted); /* in few walks the clock may forbid all drafts */
}

static void test_times_change_no_byte(void **state)
{
    (void)state;
    take_walks(PLAIN, 240, 40);
}

static void test_times_change_no_byte_of_recurrent_layers(void **state)
{
    (void)state;
    take_walks(RECURRENT, 48, 40);
}

static void test_times_change_no_byte_of_windows(void **state)
{
    (void)state;
    take_walks(WINDOWED, 48, 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times_change_no_byte),
        cmocka_unit_test(test_times_change_no_byte_of_recurrent_layers),
        cmocka_unit_test(test_times_change_no_byte_of_windows),
    };
    return cmocka_run_group_tests(tests, make, drop);
}

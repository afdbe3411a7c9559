/* tasks.c - aerie.h: requests on their way through a session: submit, step, poll, cancel, and aerie_session_generate as a loop
 * over these.
 *
 * turns.h decides which of the waiting requests run.
 *
 * Owns: tasks, and the events that wait for aerie_session_poll. A task is held by its submitter, by the session until it has
 * ended, and by each event that waits; the last one to release it frees it.
 *
 * Threads: any thread submits (it pushes onto `submitted`, an atomic list that the stepping thread takes as a whole) and
 * cancels (it sets a flag). Everything else belongs to the stepping thread. The wakeup is for aerie_session_wait alone. The
 * only lock of a step is its hold of the thread pool, for which it waits only if other sessions share that pool.
 */
#include <string.h>

#include "session/session_int.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/os.h"
#include "sample/logprobs.h"

/* ---- Tasks ---------------------------------------------------------------------------------------------- */

static void task_let_go(aerie_task *task)
{
    if (atomic_fetch_sub(&task->n_holders, 1) != 1) return;
    ae_stops_free(task->stops);
    ae_grammar_free((ae_grammar *)task->request.grammar);
    ae_arena_free(&task->arena);
    ae_session_saved_free(&task->saved);
    ae_media_prompt_free(&task->prompt);
    ae_turns_drop(&task->turn);
    ae_free(task);
}

/* Copies items into the task's arena; sets *ok to false if memory is short. */
static void *copy_of(ae_arena *arena, const void *items, size_t n, size_t size, bool *ok)
{
    if (!n || !items) return NULL;
    void *copy = ae_arena_alloc(arena, n, size);
    if (copy) memcpy(copy, items, n * size);
    else *ok = false;
    return copy;
}

static const char *const *copy_texts(ae_arena *arena, const char *const *texts, size_t n, bool *ok)
{
    const char **copy = copy_of(arena, texts, n, sizeof *texts, ok);
    for (size_t i = 0; copy && i < n; i++)
        if (!(copy[i] = ae_arena_strndup(arena, texts[i], strlen(texts[i])))) *ok = false;
    return copy;
}

/* Copies everything that the request points to into the task. */
static bool copy_request(aerie_task *task, const aerie_request *request)
{
    bool ok = true;
    aerie_request *r = &task->request;
    *r = *request;
    r->tokens = copy_of(&task->arena, r->tokens, r->n_tokens, sizeof *r->tokens, &ok);
    r->expected = copy_of(&task->arena, r->expected, r->n_expected, sizeof *r->expected, &ok);
    r->sampling.logit_bias =
        copy_of(&task->arena, r->sampling.logit_bias, r->sampling.n_logit_bias, sizeof *r->sampling.logit_bias, &ok);
    r->sampling.dry_breakers = copy_texts(&task->arena, r->sampling.dry_breakers, r->sampling.n_dry_breakers, &ok);
    r->stop = NULL; /* the matcher has them */
    r->saved = NULL;
    r->chunks = NULL; /* the task has the prompt */
    r->adapters = NULL; /* the task has the set */
    task->diffusion = *r->diffusion;
    r->diffusion = &task->diffusion;
    if (r->reasoning) r->reasoning = ae_reasoning_copy(r->reasoning, &task->arena, &ok);
    r->grammar = r->grammar ? ae_grammar_share(r->grammar) : NULL;
    return ok;
}

static aerie_status on_row(void *user, uint32_t slot, uint32_t position, uint32_t row, aerie_error *error)
{
    aerie_session *s = user;
    aerie_task *task = s->running[slot];
    const size_t bytes = ae_session_row_features(s) * sizeof(float);
    if (bytes)
        s->model->backend->ops->download(ae_engine_stream(s->engine), s->features, ae_engine_features(s->engine, row), bytes);
    const float *logits = ae_engine_logits(s->engine, row);
    const aerie_status status = ae_engine_sync(s->engine, error); /* a device that failed returns zeros */
    if (status != AERIE_OK) task->stats.error = *error; /* also if all its tokens were reported */
    else task->request.row(task->request.user, task->request.id, position, logits, bytes ? s->features : NULL);
    return status;
}

/* saved: the sequence to continue, if it has memory. */
static ae_spec_request spec_request(aerie_session *session, const aerie_request *r, const ae_session_saved *saved,
                                    const ae_media_prompt *prompt, const ae_adapter_set *adapters)
{
    ae_spec_request request = {.tokens = r->tokens, .n_tokens = r->n_tokens, .n_predict = r->n_predict,
                               .media = prompt->media, .n_media = prompt->n_media,
                               .ignore_eog = r->ignore_eos, .sampling = r->sampling, .grammar = r->grammar,
                               .limits = {r->no_drafts, r->draft_max, r->draft_min, r->draft_p_min}, .adapters = adapters,
                               .client = r->client, .group = r->group, .reasoning = r->reasoning,
                               .diffusion = r->diffusion, .canvas_user = r->user, .canvas_id = r->id,
                               .reads_logits = r->n_logprobs > 0, .row = r->row ? on_row : NULL, .row_user = session};
    if (!saved->memory) return request;
    request.tokens = saved->tokens;
    request.n_tokens = saved->n_tokens;
    request.n_answered = saved->n_tokens - saved->n_prompt;
    request.kv = saved->kv;
    request.cached = saved->cached;
    request.mu = saved->has_mu && r->sampling.mirostat ? &saved->mu : NULL;
    return request;
}

/* A saved sequence must continue with the adapters that it was computed with. */
static aerie_status check_adapters(const ae_session_saved *saved, const ae_adapter_set *adapters, aerie_error *error)
{
    if (!saved->memory || ae_adapter_set_equal(&saved->adapters, adapters)) return AERIE_OK;
    return ae_fail(error, AERIE_ERROR_UNSUPPORTED, "the sequence was saved with other adapters or scales (%u of them) than are "
                   "requested (%u); request the same ones",
                   saved->adapters.n, adapters->n);
}

/* Checks everything for which a request can be refused before anything is generated. *adapters gets the request's set. */
static aerie_status check_request(aerie_session *session, const aerie_request *r, const ae_session_saved *saved,
                                  const ae_media_prompt *prompt, ae_adapter_set *adapters, aerie_error *error)
{
    AE_TRY(ae_session_adapter_set(session, r->adapters, r->n_adapters, adapters, error));
    adapters->scope = r->scope;
    AE_TRY(check_adapters(saved, adapters, error));
    AE_TRY(ae_session_check_expected(session, r, error));
    AE_TRY(ae_struct_check_reserved(r->sampling.reserved, sizeof r->sampling.reserved / sizeof *r->sampling.reserved,
                                 "aerie_sampling", error));
    if (saved->memory && r->n_tokens)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a saved sequence has its own tokens; %zu more are given", r->n_tokens);
    const ae_spec_request request = spec_request(session, r, saved, prompt, adapters);
    AE_TRY(ae_spec_check(session->spec, &request, error));
    AE_TRY(ae_stops_check(r->stop, r->n_stop, error));
    if (r->n_logprobs > AERIE_MAX_LOGPROBS)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "log-probabilities of %u tokens are asked for; at most %d are possible",
                       r->n_logprobs, AERIE_MAX_LOGPROBS);
    if (r->n_logprobs && session->model->model->hparams.denoises)
        return ae_fail(error, AERIE_ERROR_UNSUPPORTED,
                       "log-probabilities were requested, but a model of architecture %s draws a position several times, each "
                       "time with other tokens around it", session->model->model->hparams.arch);
    return AERIE_OK;
}

/* Takes ownership of `saved` and `prompt`, also on failure. */
static aerie_status task_create(aerie_task **out, aerie_session *session, const aerie_request *request, ae_session_saved *saved,
                                ae_media_prompt *prompt, const ae_adapter_set *adapters, aerie_error *error)
{
    aerie_task *task = ae_alloc(1, sizeof *task);
    if (!task) {
        ae_session_saved_free(saved);
        ae_media_prompt_free(prompt);
        return ae_fail_memory(error, "a request", sizeof *task);
    }
    task->session = session;
    atomic_init(&task->n_holders, 1);
    atomic_init(&task->slot, -1);
    ae_arena_init(&task->arena, 1024);
    task->saved = *saved;
    task->prompt = *prompt;
    task->adapters = *adapters;
    /* the answer continues the prompt, so its first piece keeps its leading space */
    task->detok = (ae_detok){.vocab = session->model->vocab, .started = true, .special = request->special};
    task->n_prompt = saved->memory ? saved->n_prompt : request->n_tokens;
    aerie_status status = copy_request(task, request) ? AERIE_OK : ae_fail_memory(error, "a request", request->n_tokens * 4);
    if (status == AERIE_OK && request->n_stop) status = ae_stops_create(&task->stops, request->stop, request->n_stop, error);
    if (status == AERIE_OK && session->params.max_turn) status = ae_turns_prepare(&task->turn, error);
    if (saved->memory) {
        task->request.n_tokens = saved->n_tokens;
        if (status == AERIE_OK) status = ae_session_replay_text(task, error);
    }
    if (status == AERIE_OK) *out = task;
    else task_let_go(task);
    return status;
}

/* Makes a task, or returns the reason why the request is refused. */
static aerie_status make_task(aerie_session *session, const aerie_request *request, aerie_task **task, aerie_error *error)
{
    ae_session_saved saved = {0};
    ae_media_prompt prompt = {0};
    aerie_request whole = *request;
    if (request->n_tokens && !request->tokens)
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "the prompt is empty: %zu tokens are announced, but the list is NULL",
                       request->n_tokens);
    AE_STRUCT_TAKE(diffusion, how, request->diffusion, error);
    AE_STRUCT_TAKE(reasoning, limit, request->reasoning, error);
    whole.diffusion = &how;
    whole.reasoning = request->reasoning ? &limit : NULL;
    AE_NEED_IF(request->n_adapters, request->adapters, error);
    AE_NEED_IF(request->n_chunks, request->chunks, error);
    if (request->n_chunks && (request->n_tokens || request->n_saved))
        return ae_fail(error, AERIE_ERROR_ARGUMENT, "a prompt of chunks has its own tokens; more are given");
    if (request->saved || request->n_saved)
        AE_TRY(ae_session_saved_copy(session, request->saved, request->n_saved, &saved, error));
    saved.adapters.scope = request->scope;
    if (request->n_chunks) {
        AE_TRY(ae_media_prompt_make(&prompt, session->media, request->chunks, request->n_chunks,
                                    &session->model->model->hparams, session->params.n_ctx, error));
        whole.tokens = prompt.tokens;
        whole.n_tokens = prompt.n_tokens;
    }
    if (session->source && request->n_tokens) AE_TRY(ae_session_source_prompt(session, &whole, &prompt, error));
    ae_adapter_set adapters;
    aerie_status status = saved.n_refs ? ae_session_saved_prompt(session, &saved, &prompt, error) : AERIE_OK;
    if (status == AERIE_OK) status = check_request(session, &whole, &saved, &prompt, &adapters, error);
    if (status == AERIE_OK) return task_create(task, session, &whole, &saved, &prompt, &adapters, error);
    ae_session_saved_free(&saved);
    ae_media_prompt_free(&prompt);
    return status;
}

/* Where a caller's statistics go, in the size of the struct that the caller was built with. */
typedef struct stats_place {
    void *at; /* NULL: the caller wants none */
    size_t size;
} stats_place;

static uint32_t most_waiting(const aerie_session *session)
{
    return session->params.n_waiting ? session->params.n_waiting : 4096;
}

/* Counts one more task; BUSY if n_most have not ended. */
static aerie_status count_task(aerie_session *session, size_t n_most, aerie_error *error)
{
    size_t n = atomic_load(&session->n_tasks);
    do {
        if (n >= n_most)
            return ae_fail(error, AERIE_ERROR_BUSY, "%zu requests run or wait already; the session's n_waiting (%u) allows no "
                           "more", n, most_waiting(session));
    } while (!atomic_compare_exchange_weak(&session->n_tasks, &n, n + 1));
    return AERIE_OK;
}

/* place: where the final statistics are copied before the last event. */
static aerie_status submit(aerie_session *session, const aerie_request *request, size_t n_most, stats_place place,
                           aerie_task **task, aerie_error *error)
{
    *task = NULL;
    AE_STRUCT_TAKE(request, own, request, error);
    AE_TRY(count_task(session, n_most, error));
    const aerie_status status = make_task(session, &own, task, error);
    if (status != AERIE_OK) {
        atomic_fetch_sub(&session->n_tasks, 1);
        return status;
    }
    (*task)->stats_copy = place.at;
    (*task)->stats_copy_size = place.size;
    atomic_fetch_add(&(*task)->n_holders, 1);
    aerie_task *first = atomic_load(&session->submitted);
    do (*task)->next = first;
    while (!atomic_compare_exchange_weak(&session->submitted, &first, *task));
    ae_wakeup_signal(&session->wakeup);
    return AERIE_OK;
}

aerie_status aerie_session_submit(aerie_session *session, const aerie_request *request, aerie_task **task, aerie_error *error)
{
    AE_NEED(task, error);
    *task = NULL;
    AE_NEED(session, error);
    AE_NEED(request, error);
    AE_TRY(ae_session_check_process(session, error));
    const size_t n_most = (size_t)session->params.n_seqs + most_waiting(session);
    return submit(session, request, n_most, (stats_place){0}, task, error);
}

void aerie_task_cancel(aerie_task *task)
{
    if (!task) return;
    if (atomic_load(&task->ended)) return;
    atomic_store(&task->cancelled, true);
    atomic_store(&task->session->any_cancelled, true);
    if (!ae_pool_is_forked(ae_engine_pool(task->session->engine))) ae_wakeup_signal(&task->session->wakeup);
}

void aerie_task_free(aerie_task *task)
{
    if (!task) return;
    aerie_task_cancel(task);
    atomic_store(&task->abandoned, true);
    task_let_go(task);
}

bool aerie_task_ended(const aerie_task *task)
{
    return task && atomic_load(&task->ended);
}

int32_t aerie_task_slot(const aerie_task *task)
{
    return task ? atomic_load(&task->slot) : -1;
}

size_t aerie_task_n_ahead(const aerie_task *task)
{
    if (!task || atomic_load(&task->ended) || atomic_load(&task->slot) >= 0) return 0;
    size_t n = 0;
    for (const aerie_task *t = task->session->waiting; t; t = t->next, n++)
        if (t == task) return n;
    /* `submitted` has the newest first: count those that come after this one */
    for (const aerie_task *t = task->next; t; t = t->next) n++;
    return n;
}

const aerie_stats *aerie_task_stats(const aerie_task *task)
{
    return task ? &task->stats : NULL;
}

size_t aerie_session_n_tasks(const aerie_session *session)
{
    return session ? atomic_load(&session->n_tasks) : 0;
}

/* ---- Events ------------------------------------------------------------------------------------------------ */

/* Reserves memory for an event with a text of n_text bytes and n_top log-probabilities. */
static bool reserve_event(aerie_session *s, size_t n_text, size_t n_top)
{
    if (ae_buf_reserve(&s->kept_bytes, n_text + (n_top + 1) * sizeof(aerie_logprob)) &&
        ae_buf_reserve(&s->kept, sizeof(kept_event)))
        return true;
    s->kept_bytes.failed = s->kept.failed = false; /* only this request ends; others may find memory */
    return false;
}

/* Keeps an event for aerie_session_poll. If memory is short the request ends with a status; its last event needs no memory. */
static bool keep_event(aerie_session *s, aerie_task *task, const aerie_token_event *event)
{
    const size_t n_top = event->n_top * sizeof *event->top, at = s->kept_bytes.n;
    const size_t pad = (sizeof *event->top - (at + event->n_text) % sizeof *event->top) % sizeof *event->top;
    const kept_event kept = {task, *event, at, at + event->n_text + pad};
    static const char zeros[sizeof(aerie_logprob)];
    const bool room = reserve_event(s, event->n_text, event->n_top);
    if (!room && event->token >= 0) {
        (void)ae_fail_memory(&task->stats.error, "an event until it is polled", sizeof kept + event->n_text + n_top);
        return false;
    }
    atomic_fetch_add(&task->n_holders, 1);
    if (!room) {
        aerie_task **end = &s->untold;
        while (*end) end = &(*end)->next;
        task->next = NULL;
        *end = task;
        return true;
    }
    ae_buf_add(&s->kept_bytes, event->text, event->n_text);
    ae_buf_add(&s->kept_bytes, zeros, pad);
    ae_buf_add(&s->kept_bytes, event->top, n_top);
    ae_buf_add(&s->kept, &kept, sizeof kept);
    return true;
}

static aerie_token_event last_event(const aerie_task *task)
{
    return (aerie_token_event){.i_request = task->request.id, .task = (aerie_task *)task, .token = -1, .text = "",
                               .refused = task->stats.error.status == AERIE_OK ? NULL : &task->stats.error,
                               .stats = &task->stats};
}

/* Passes an event to the listener. Returns false if the request shall end. */
static bool tell(aerie_session *s, aerie_task *task, aerie_token_event *event)
{
    event->task = task;
    event->i_request = task->request.id;
    event->text = s->text.data ? s->text.data : "";
    event->n_text = s->text.n;
    bool more = false;
    if (!atomic_load(&task->abandoned))
        more = task->request.token ? task->request.token(task->request.user, event) : keep_event(s, task, event);
    ae_buf_clear(&s->text);
    return more;
}

const aerie_token_event *aerie_session_poll(aerie_session *s)
{
    if (!s) return NULL;
    while (s->n_polled < s->kept.n) {
        kept_event *kept = (kept_event *)(void *)(s->kept.data + s->n_polled);
        s->n_polled += sizeof *kept;
        aerie_task *task = kept->task;
        const bool abandoned = atomic_load(&task->abandoned);
        aerie_token_event *event = &kept->event;
        event->text = s->kept_bytes.data + kept->text_at;
        event->top = (const aerie_logprob *)(const void *)(s->kept_bytes.data + kept->top_at);
        task_let_go(task); /* the submitter still holds the task, unless it has abandoned it */
        if (!abandoned) return event;
    }
    ae_buf_clear(&s->kept);
    ae_buf_clear(&s->kept_bytes);
    s->n_polled = 0;
    for (aerie_task *task; (task = s->untold);) {
        const bool abandoned = atomic_load(&task->abandoned);
        s->untold = task->next;
        s->last_event = last_event(task);
        task_let_go(task);
        if (!abandoned) return &s->last_event;
    }
    return NULL;
}

const char *ae_session_piece(aerie_task *task, int32_t token, uint32_t *n)
{
    const char *piece = ae_detok_piece(&task->detok, token, n);
    if (task->detok.special && ae_vocab_is_eog(task->detok.vocab, token)) *n = 0;
    return piece;
}

/* Adds the bytes of a new token; true if they complete a stop string. */
static bool add_text(aerie_session *s, aerie_task *task, int32_t token)
{
    uint32_t n;
    const char *piece = ae_session_piece(task, token, &n);
    if (!task->stops) {
        ae_detok_bytes(&task->detok, piece, n, &s->text);
        return false;
    }
    const bool found = ae_stops_feed(task->stops, piece, n, &s->certain);
    ae_detok_bytes(&task->detok, s->certain.data, s->certain.n, &s->text);
    ae_buf_clear(&s->certain);
    return found;
}

/* Adds text that was held back to the last event. */
static void end_text(aerie_session *s, aerie_task *task)
{
    if (task->stops) {
        ae_stops_end(task->stops, &s->certain);
        ae_detok_bytes(&task->detok, s->certain.data, s->certain.n, &s->text);
        ae_buf_clear(&s->certain);
    }
    ae_detok_end(&task->detok, &s->text);
    const bool kept = !task->request.token && !atomic_load(&task->abandoned);
    if (!s->text.failed && !s->certain.failed && (!kept || !s->text.n || reserve_event(s, s->text.n, 0))) return;
    if (task->stats.error.status == AERIE_OK) (void)ae_fail_memory(&task->stats.error, "the end of a text", s->text.n);
    ae_buf_free(&s->text);
    ae_buf_free(&s->certain);
}

static aerie_stop on_emit(void *user, uint32_t slot, int32_t token, uint32_t depth, uint32_t row)
{
    aerie_session *s = user;
    aerie_task *task = s->running[slot];
    const aerie_request *r = &task->request;
    aerie_logprob top[AERIE_MAX_LOGPROBS];
    aerie_token_event event = {.token = token, .draft_depth = depth, .top = top};
    if (r->n_logprobs)
        event.logprob = ae_logprobs(ae_engine_logits(s->engine, row), (uint32_t)ae_vocab_n_tokens(s->model->vocab), token,
                                    r->n_logprobs, top, &event.n_top);
    const bool found = add_text(s, task, token);
    if (s->text.failed || s->certain.failed) {
        ae_buf_free(&s->text);
        ae_buf_free(&s->certain);
        (void)ae_fail_memory(&task->stats.error, "the text of a token", 0);
        return AERIE_STOP_CALLER;
    }
    if (!tell(s, task, &event)) return AERIE_STOP_CALLER;
    return found ? AERIE_STOP_STRING : AERIE_STOP_NONE;
}

/* ---- Steps --------------------------------------------------------------------------------------------------- */

/* Reports the last event of a task. From now on its submitter may read the statistics. */
static void end_task(aerie_session *s, aerie_task *task)
{
    if (task->stats.n_preempted && !s->told_full) {
        s->told_full = true;
        ae_log_say(&s->params.log, AERIE_LOG_WARNING, "the KV cache of %u positions is too small for the running sequences, so "
                   "some wait and are recomputed; a larger n_kv avoids that", s->params.n_kv);
    }
    if (task->parked) { /* the caller has set the reason */
        const aerie_stop stop = task->stats.stop;
        task->stats = *ae_spec_parked_stats(task->parked);
        task->stats.stop = stop;
    }
    end_text(s, task);
    ae_spec_parked_free(task->parked);
    task->parked = NULL;
    task->stats.n_parked = task->n_parked;
    const uint32_t n_done = task->stats.n_generated ? task->stats.n_prompt + task->stats.n_generated : 0;
    ae_turns_end(&s->turns, task, ae_turns_work(task, task->stats.n_generated, n_done));
    ae_turns_leave(&s->turns, task);
    if (task->stats_copy && !atomic_load(&task->abandoned))
        ae_struct_give(task->stats_copy, task->stats_copy_size, &task->stats, sizeof task->stats);
    atomic_store(&task->ended, true);
    atomic_fetch_sub(&s->n_tasks, 1);
    aerie_token_event event = last_event(task);
    (void)tell(s, task, &event);
    task_let_go(task);
}

/* Moves submitted tasks, oldest first, to the end of the queue. */
static void take_submitted(aerie_session *s)
{
    aerie_task *list = atomic_exchange(&s->submitted, NULL), *oldest = NULL;
    while (list) {
        aerie_task *next = list->next;
        list->next = oldest;
        oldest = list;
        list = next;
    }
    for (aerie_task *task = oldest; task; task = task->next) ae_turns_enter(&s->turns, task);
    aerie_task **end = &s->waiting;
    while (*end) end = &(*end)->next;
    *end = oldest;
}

static void end_cancelled(aerie_session *s)
{
    if (!atomic_exchange(&s->any_cancelled, false)) return;
    for (aerie_task **at = &s->waiting; *at;) {
        aerie_task *task = *at;
        if (!atomic_load(&task->cancelled)) {
            at = &task->next;
            continue;
        }
        *at = task->next;
        task->stats.stop = AERIE_STOP_CALLER;
        end_task(s, task);
    }
    for (uint32_t slot = 0; slot < s->params.n_seqs; slot++)
        if (s->running[slot] && atomic_load(&s->running[slot]->cancelled)) ae_spec_stop(s->spec, slot, AERIE_STOP_CALLER);
}

/* Gives the task a slot; there must be a free one. Returns false if it could not start, and has ended. */
static bool start(aerie_session *s, aerie_task *task)
{
    uint32_t slot;
    if (atomic_load(&task->cancelled)) { /* the task was cancelled after end_cancelled looked */
        task->stats.stop = AERIE_STOP_CALLER;
        end_task(s, task);
        return false;
    }
    if (task->parked) {
        slot = ae_spec_unpark(s->spec, task->parked, &task->adapters);
        task->parked = NULL;
    } else {
        const ae_spec_request request = spec_request(s, &task->request, &task->saved, &task->prompt, &task->adapters);
        if (task->request.n_expected) ae_session_expect(s, &task->request, request.tokens, request.n_tokens);
        const aerie_status status = ae_spec_start(s->spec, &request, &slot, &task->stats.error);
        ae_session_saved_free(&task->saved);
        if (status != AERIE_OK) {
            end_task(s, task);
            return false;
        }
    }
    ae_session_test_tell(s, slot, task->request.id, task->n_prompt);
    s->running[slot] = task;
    atomic_store(&task->slot, (int)slot);
    ae_turns_begin(&s->turns, task, ae_spec_stats(s->spec, slot)->n_generated, ae_spec_n_done(s->spec, slot));
    return true;
}

#define MOST_PARKED 4 /* per slot, because a parked sequence keeps its sampler and its masks */

/* Frees a slot for the task, if it is the task's turn. Returns false if the task goes on waiting, also if memory is short. */
static bool make_way(aerie_session *s, const aerie_task *task)
{
    const uint32_t n = s->params.n_seqs;
    uint32_t n_parked = 0;
    for (const aerie_task *t = s->waiting; t; t = t->next) n_parked += t->parked != NULL;
    if (n_parked >= MOST_PARKED * n) return false;
    for (uint32_t i = 0; i < n; i++)
        s->works[i] = s->running[i] ? ae_turns_work(s->running[i], ae_spec_stats(s->spec, i)->n_generated,
                                                    ae_spec_n_done(s->spec, i)) : 0;
    const uint32_t slot = ae_turns_victim(&s->turns, task, s->running, s->works, n, s->params.max_turn);
    aerie_error why;
    if (slot == n || ae_spec_park(s->spec, slot, &s->running[slot]->parked, &why) != AERIE_OK) return false;
    aerie_task *given = s->running[slot], **end = &s->waiting;
    s->running[slot] = NULL;
    atomic_store(&given->slot, -1);
    given->n_parked++;
    ae_turns_end(&s->turns, given, s->works[slot]);
    given->next = NULL;
    while (*end) end = &(*end)->next;
    *end = given;
    return true;
}

/* Calls the progress callbacks of requests whose prompt is still being computed; a callback can end its request. */
static void tell_progress(aerie_session *s)
{
    for (uint32_t slot = 0; slot < s->params.n_seqs; slot++) {
        const aerie_request *r = s->running[slot] ? &s->running[slot]->request : NULL;
        if (!r || !ae_spec_is_active(s->spec, slot) || ae_spec_stats(s->spec, slot)->n_generated) continue;
        if (r->progress && !r->progress(r->user, ae_spec_n_done(s->spec, slot), r->n_tokens))
            ae_spec_stop(s->spec, slot, AERIE_STOP_CALLER);
    }
}

static void start_waiting(aerie_session *s)
{
    uint32_t n_moves = s->params.max_turn ? s->params.n_seqs : 0; /* most moves in one step */
    while (s->waiting && (ae_spec_n_free(s->spec) || n_moves)) {
        aerie_task **at = ae_turns_next(&s->turns, &s->waiting, s->params.max_turn), *task = *at;
        if (!ae_spec_n_free(s->spec) && (!n_moves-- || !make_way(s, task))) break;
        *at = task->next;
        start(s, task);
    }
    tell_progress(s);
}

/* Finishes sequences that have ended: releases text that was held back, and keeps their statistics. */
static void collect(aerie_session *s)
{
    for (uint32_t slot = 0; slot < s->params.n_seqs; slot++) {
        aerie_task *task = s->running[slot];
        if (!task || ae_spec_is_active(s->spec, slot)) continue;
        const aerie_error why = task->stats.error;
        s->running[slot] = NULL;
        task->stats = *ae_spec_stats(s->spec, slot);
        if (why.status != AERIE_OK) task->stats.error = why;
        end_task(s, task);
    }
}

/* Ends all running requests after a failed pass, with its error. Requests whose last token was already reported are complete.
 * Returns false if no request was running. */
static bool end_running(aerie_session *s, const aerie_error *why)
{
    bool any = false;
    collect(s);
    for (uint32_t slot = 0; slot < s->params.n_seqs; slot++) {
        aerie_task *task = s->running[slot];
        if (!task) continue;
        s->running[slot] = NULL;
        task->stats = *ae_spec_stats(s->spec, slot);
        task->stats.error = *why;
        end_task(s, task);
        any = true;
    }
    ae_spec_reset(s->spec);
    return any;
}

static aerie_status step(aerie_session *s, aerie_error *error)
{
    take_submitted(s);
    end_cancelled(s);
    collect(s);
    start_waiting(s);
    collect(s);
    if (!ae_spec_n_active(s->spec)) return AERIE_OK;
    s->turns.n_passes++;
    aerie_error why = {0};
    ae_pool *pool = ae_engine_pool(s->engine);
    ae_pool_hold(pool); /* taken here, so that no clock of the loop counts time spent waiting for other sessions */
    const aerie_status status = ae_spec_step(s->spec, on_emit, s, &why);
    ae_pool_release(pool);
    if (status != AERIE_OK) return end_running(s, &why) ? ae_fail(error, status, "%s", why.text) : AERIE_OK;
    collect(s);
    return AERIE_OK;
}

aerie_status aerie_session_step(aerie_session *s, aerie_error *error)
{
    AE_NEED_AS(s, "session", error);
    AE_TRY(ae_session_check_process(s, error));
    s->in_step = true;
    const aerie_status status = step(s, error);
    s->in_step = false;
    return status;
}

static bool has_news(aerie_session *s)
{
    return atomic_load(&s->submitted) || atomic_load(&s->any_cancelled) || s->waiting || ae_spec_n_active(s->spec);
}

bool aerie_session_wait(aerie_session *s, double seconds)
{
    if (!s) return false;
    const double end = ae_time_now() + seconds;
    if (ae_pool_is_forked(ae_engine_pool(s->engine))) return false;
    for (double left = seconds; !has_news(s) && left > 0 && !atomic_load(&s->woken); left = end - ae_time_now())
        ae_wakeup_wait(&s->wakeup, left);
    atomic_store(&s->woken, false);
    return has_news(s);
}

void aerie_session_wake(aerie_session *s)
{
    if (!s || ae_pool_is_forked(ae_engine_pool(s->engine))) return;
    atomic_store(&s->woken, true);
    ae_wakeup_signal(&s->wakeup);
}

/* ---- Life: the part of a session that this file owns ------------------------------------------------------------- */

aerie_status ae_session_tasks_init(aerie_session *s, aerie_error *error)
{
    s->running = ae_alloc(s->params.n_seqs, sizeof(aerie_task *));
    s->features = ae_alloc(ae_session_row_features(s) + 1, sizeof *s->features);
    s->works = ae_alloc(s->params.n_seqs, sizeof *s->works);
    s->media = ae_media_table_create();
    if (!s->running || !s->features || !s->works || !s->media)
        return ae_fail_memory(error, "the requests' state", s->params.n_seqs * sizeof(aerie_task *));
    if (!ae_wakeup_init(&s->wakeup)) return ae_fail_memory(error, "the wakeup of a session", sizeof s->wakeup);
    s->has_tasks = true;
    return AERIE_OK;
}

void ae_session_tasks_free(aerie_session *s)
{
    if (s->has_tasks) {
        take_submitted(s);
        for (uint32_t slot = 0; slot < s->params.n_seqs; slot++)
            if (s->running[slot]) ae_spec_stop(s->spec, slot, AERIE_STOP_NONE);
        collect(s);
        for (aerie_task *task; (task = s->waiting);) {
            s->waiting = task->next;
            end_task(s, task);
        }
        while (aerie_session_poll(s)) {}
        /* in a forked child a thread of the parent may look as if it waited for the wakeup */
        if (!ae_pool_is_forked(ae_engine_pool(s->engine))) ae_wakeup_free(&s->wakeup);
    }
    ae_free(s->running);
    ae_free(s->features);
    ae_free(s->works);
    ae_media_table_free(s->media);
    ae_buf_free(&s->text);
    ae_buf_free(&s->certain);
    ae_buf_free(&s->kept);
    ae_buf_free(&s->kept_bytes);
}

/* ---- All at once -------------------------------------------------------------------------------------------------- */

static bool ignore_event(void *user, const aerie_token_event *event)
{
    (void)user;
    (void)event;
    return true;
}

/* A request of aerie_session_generate: its task, or the reason why there is none. */
typedef struct generated {
    aerie_task *task;
    aerie_error refused;
} generated;

static void submit_one(aerie_session *session, aerie_request request, size_t i, stats_place place, generated *out)
{
    request.id = i;
    if (submit(session, &request, SIZE_MAX, place, &out->task, &out->refused) == AERIE_OK) return;
    const aerie_stats stats = {.error = out->refused};
    if (place.at) ae_struct_give(place.at, place.size, &stats, sizeof stats);
    const aerie_token_event event = {.i_request = i, .token = -1, .text = "", .refused = &out->refused, .stats = &stats};
    request.token(request.user, &event);
}

static aerie_status submit_all(aerie_session *session, const aerie_request *requests, size_t n, aerie_token_callback *callback,
                               void *user, stats_place stats, generated *out, aerie_error *error)
{
    for (size_t i = 0; i < n; i++) {
        AE_STRUCT_TAKE(request, own, (const char *)requests + i * requests->size, error);
        own.token = callback ? callback : ignore_event;
        own.user = user;
        const stats_place place = {stats.at ? (char *)stats.at + i * stats.size : NULL, stats.size};
        if (place.at) memset(place.at, 0, place.size);
        submit_one(session, own, i, place, &out[i]);
    }
    return AERIE_OK;
}

/* Returns the status of the first request that was refused; its number is in the message if there are several. */
static aerie_status status_of(const generated *all, size_t n, aerie_error *error)
{
    for (size_t i = 0; i < n; i++) {
        const aerie_error *why = all[i].task ? &aerie_task_stats(all[i].task)->error : &all[i].refused;
        if (why->status == AERIE_OK) continue;
        if (n == 1) return ae_fail(error, why->status, "%s", why->text);
        return ae_fail(error, why->status, "request %zu: %s", i, why->text);
    }
    return AERIE_OK;
}

aerie_status aerie_session_generate(aerie_session *session, const aerie_request *requests, size_t n_requests,
                                    aerie_token_callback *callback, void *user, aerie_stats *stats, size_t stats_size,
                                    aerie_error *error)
{
    AE_NEED(session, error);
    AE_NEED_IF(n_requests, requests, error);
    if (!n_requests) return AERIE_OK;
    generated *all = ae_alloc(n_requests, sizeof *all);
    if (!all) return ae_fail_memory(error, "the requests' state", n_requests * sizeof *all);
    const stats_place place = {stats, stats_size};
    aerie_status status = submit_all(session, requests, n_requests, callback, user, place, all, error);
    for (size_t n_left = n_requests; status == AERIE_OK && n_left;) {
        status = aerie_session_step(session, error);
        n_left = 0;
        for (size_t i = 0; i < n_requests; i++) n_left += all[i].task && !aerie_task_ended(all[i].task);
    }
    if (status == AERIE_OK) status = status_of(all, n_requests, error);
    for (size_t i = 0; i < n_requests; i++) aerie_task_free(all[i].task);
    ae_free(all);
    return status;
}

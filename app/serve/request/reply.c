/* reply.c - implements reply.h. */
#define _POSIX_C_SOURCE 200809L
#include "serve/request/reply.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATIENCE = 4, MAX_CALLS = 128 }; /* seconds without an event before a stream sends a sign of life */

/* ---- Pieces of the answer ------------------------------------------------------------------------------------------------ */

static bool begin_call(serve_output *s, const answer_event *e)
{
    if (s->n_calls == MAX_CALLS) return false;
    serve_tool_call *grown = app_grow(s->calls, s->n_calls, &s->capacity, sizeof *grown);
    if (!grown) return false;
    s->calls = grown;
    grown[s->n_calls] = (serve_tool_call){.id = strdup(e->id), .name = strdup(e->name)};
    const serve_tool_call *c = &grown[s->n_calls++];
    return c->id && c->name;
}

/* Records to which block an event belongs. Called after its text was added. */
static bool add_to_block(serve_output *s, const answer_event *e)
{
    if (e->kind == ANSWER_ARGUMENTS || e->kind == ANSWER_CALL_END) return true;
    serve_block *last = s->n_blocks ? &s->blocks[s->n_blocks - 1] : NULL;
    if (last && last->kind == e->kind && e->kind != ANSWER_CALL) {
        last->n += e->n;
        return true;
    }
    if (!serve_use_add(s->of->ask.use, 2 * sizeof *s->blocks)) return false;
    serve_block *grown = app_grow(s->blocks, s->n_blocks, &s->blocks_capacity, sizeof *grown);
    if (!grown) return false;
    s->blocks = grown;
    const app_text *text = e->kind == ANSWER_CONTENT ? &s->content : &s->reasoning;
    grown[s->n_blocks++] = e->kind == ANSWER_CALL ? (serve_block){e->kind, s->n_calls - 1, 1}
                                                  : (serve_block){e->kind, text->n - e->n, e->n};
    return true;
}

static bool on_said(void *user, const answer_event *e)
{
    serve_output *s = user;
    serve_reply_state *r = s->of;
    if (s->enough || r->ask.only_prompt) return true;
    if (!serve_use_add(r->ask.use, 4 * e->n)) { /* the buffer may grow to twice its text, and the text is copied as JSON */
        r->no_memory = true;
        return false;
    }
    bool ok = true;
    switch (e->kind) {
    case ANSWER_CONTENT: ok = app_text_add(&s->content, e->text, e->n); break;
    case ANSWER_REASONING: ok = app_text_add(&s->reasoning, e->text, e->n); break;
    case ANSWER_CALL: ok = begin_call(s, e); break;
    case ANSWER_ARGUMENTS: ok = e->index < s->n_calls && app_text_add(&s->calls[e->index].arguments, e->text, e->n); break;
    case ANSWER_CALL_END:
        if (e->index < s->n_calls) s->calls[e->index].complete = e->complete;
        break;
    }
    const size_t n_placed = s->tokens.n_placed;
    if (ok) ok = add_to_block(s, e);
    if (ok && r->dialect->places_tokens)
        ok = serve_tokens_place(&s->tokens, e->kind == ANSWER_CONTENT ? s->n_blocks - 1 : SERVE_NO_BLOCK);
    s->first_placed = n_placed;
    if (ok && r->ask.stream) ok = r->dialect->delta(r, s, e);
    if (ok && e->kind == ANSWER_CONTENT) s->n_streamed += e->n;
    s->enough = r->ask.one_call && e->kind == ANSWER_CALL_END && e->complete;
    if (!ok) r->no_memory = true;
    return ok;
}

/* Handles more text of the answer, through the parser if there is one. */
static bool say(serve_output *s, const char *text, size_t n)
{
    if (!n) return true;
    if (!s->parser) return on_said(s, &(answer_event){.kind = ANSWER_CONTENT, .text = text, .n = n});
    return answer_feed(s->parser, text, n);
}

/* Returns how many bytes of text a token of the answer has after n_before bytes of earlier ones. SPM's vocabularies have a
 * space before the first word, which is no text. */
static size_t count_text(const serve_reply_state *r, int32_t token, size_t n_before)
{
    const aerie_model *model = r->ask.model->models.model;
    const int32_t twice[] = {token, token};
    char *text = NULL;
    size_t n_first = 0, n_both = 0;
    if (r->special && aerie_model_token_is_eog(model, token)) return 0;
    if (aerie_model_detokenize(model, twice, 1, r->special, &text, &n_first, NULL) == AERIE_OK) aerie_free(text);
    if (!n_before) return n_first;
    if (aerie_model_detokenize(model, twice, 2, r->special, &text, &n_both, NULL) == AERIE_OK) aerie_free(text);
    return n_both - n_first;
}

/* Keeps data of a token. With stop strings the tokens wait until the answer has some of their text. */
static bool keep_data(serve_reply_state *r, serve_output *s, const serve_event *e, bool reasons)
{
    if (!serve_tokens_add(&s->tokens, e, r->ask.n_top, s->n_raw)) return false;
    s->tokens.items[s->tokens.n_kept - 1].apart = reasons;
    if (r->ask.n_stops) s->n_raw += count_text(r, e->token, s->n_raw);
    s->n_certain += e->n_text;
    serve_tokens_settle(&s->tokens, r->ask.n_stops ? s->n_certain : SIZE_MAX, false);
    return true;
}

/* Keeps the newest bytes, for serve_output_stop. */
static bool keep_tail(serve_reply_state *r, serve_output *s, int32_t token)
{
    enum { MOST = 2 * AERIE_MAX_STOP_BYTES };
    aerie_token_info info = {.text = ""};
    aerie_model_token_info_get(r->ask.model->models.model, token, &info, sizeof info);
    if (!app_text_add(&s->tail, info.text, info.n_text)) return false;
    if (s->tail.n <= 2 * MOST) return true;
    memmove(s->tail.data, s->tail.data + s->tail.n - MOST, MOST + 1);
    s->tail.n = MOST;
    return true;
}

/* Stores a prompt token's log-probability. After the last one, a stream begins with the prompt. */
static bool take_scored(serve_reply_state *r, serve_output *s, const serve_event *e)
{
    if (!serve_tokens_add(&s->tokens, e, r->ask.n_top, 0)) return false;
    serve_tokens_settle(&s->tokens, SIZE_MAX, false);
    const bool all = ++s->n_scored == r->job->choices[s->index].n_scored;
    return !all || !r->ask.stream || r->dialect->scored(r, s);
}

/* Tells how much of the prompt is computed, unless that was told. */
static bool tell_progress(serve_reply_state *r, serve_output *s, const aerie_stats *now, size_t n_done)
{
    size_t total;
    if (!r->job->tells_progress || !now || (s->told_progress && n_done <= s->n_computed)) return true;
    (void)serve_ask_tokens_of(&r->ask, s->index, &total);
    s->told_progress = true;
    s->n_computed = (uint32_t)n_done;
    return r->dialect->progress(r, s, json_pack("{s:I, s:I, s:I, s:I}", "total", (json_int_t)total, "cache",
                                                (json_int_t)now->n_cached, "processed", (json_int_t)n_done, "time_ms",
                                                (json_int_t)(now->prompt_seconds * 1e3)));
}

/* The whole prompt is computed. */
static bool tell_computed(serve_reply_state *r, serve_output *s, const aerie_stats *now)
{
    return tell_progress(r, s, now, r->job->choices[s->index].n_prompt);
}

static bool take_token(serve_reply_state *r, serve_output *s, const serve_event *e)
{
    r->told = r->ask.stream;
    if (e->of_progress) return tell_progress(r, s, e->now, e->n_done);
    if (e->of_prompt) return take_scored(r, s, e);
    if (!tell_computed(r, s, e->now)) return false;
    const serve_choice *choice = &r->job->choices[s->index];
    if (choice->scored && s->n_scored < choice->n_scored) return false; /* memory was short for one of the prompt's tokens */
    if (r->ask.only_prompt && r->dialect->scored) return true;
    if (s->enough) return true; /* it was on its way */
    s->n_tokens++;
    if (r->ask.keeps_context &&
        (!serve_use_add(r->ask.use, 4 * sizeof e->token) || !app_text_add(&s->ids, &e->token, sizeof e->token)))
        return false;
    const bool tells = r->ask.logprobs || r->ask.origins || r->ask.return_tokens;
    const bool reasons = s->parser && answer_in_reasoning(s->parser);
    if (tells && !keep_data(r, s, e, reasons)) return false;
    if (r->ask.n_stops && !keep_tail(r, s, e->token)) return false;
    const bool ok = say(s, e->text, e->n_text);
    s->n_reasoning += reasons || (s->parser && answer_in_reasoning(s->parser));
    if (s->enough) aerie_task_cancel(choice->task);
    return ok;
}

/* ---- Ends --------------------------------------------------------------------------------------------------------- */

/* Returns whether an answer of which nothing was told shall be computed again: passes that computed it failed, or it waited
 * when the model failed. The former may be the request's own fault. */
static bool is_again(serve_reply_state *r, const serve_choice *choice)
{
    const bool failed = choice->stats.error.status == AERIE_ERROR_INTERNAL;
    const bool cut = !failed && choice->stats.stop == AERIE_STOP_CALLER && serve_model_fails(r->ask.model);
    return !r->told && (cut || (failed && serve_ask_may_try(&r->ask)));
}

/* Handles the end of a choice; a failure is the error of the whole answer. Text that the parser has held back is not sent then,
 * since nobody knows what it would have become. */
static bool take_end(serve_reply_state *r, serve_output *s, const serve_event *e)
{
    const serve_choice *choice = &r->job->choices[s->index];
    s->stats = &choice->stats;
    s->ended = true;
    r->n_ended++;
    if (!s->enough && is_again(r, choice)) {
        r->again = true;
        return true;
    }
    if (choice->stats.error.status != AERIE_OK)
        serve_fail_library(&r->error, choice->stats.error.status, &choice->stats.error, "");
    else if (r->job->no_room) serve_fail_memory(&r->error);
    else if (!s->enough && choice->stats.stop == AERIE_STOP_CALLER && serve_model_fails(r->ask.model))
        serve_fail(&r->error, 500, "", "the answer was cut off: the device of the model failed");
    else if (!s->enough && (choice->stats.stop == AERIE_STOP_CALLER || choice->stats.stop == AERIE_STOP_NONE))
        serve_fail_not_ready(&r->error, 0, "the answer was cut off: the server is shutting down");
    if (r->error.status) return true;
    r->told = r->ask.stream;
    serve_model_note_answer(r->ask.model);
    if (!tell_computed(r, s, s->stats)) return false;
    const bool cut = serve_output_finish(s) == SERVE_FINISH_LENGTH;
    serve_tokens_settle(&s->tokens, s->stats->stop == AERIE_STOP_STRING ? s->n_certain + e->n_text : SIZE_MAX, true);
    if (r->ask.only_prompt && r->dialect->scored) return !r->ask.stream || r->dialect->end_choice(r, s);
    /* a character of which the limit left a part only is no text */
    const size_t n_text = e->n_text - (cut ? app_utf8_incomplete(e->text, e->n_text) : 0);
    if (!say(s, e->text, n_text) || (s->parser && !s->enough && !answer_end(s->parser, cut))) return false;
    return !r->ask.stream || r->dialect->end_choice(r, s);
}

serve_finish serve_output_finish(const serve_output *s)
{
    if (s->enough) return SERVE_FINISH_CALLS;
    if (s->of->ask.only_prompt) return SERVE_FINISH_LENGTH;
    switch (s->stats->stop) {
    case AERIE_STOP_LENGTH:
    case AERIE_STOP_CONTEXT:
    case AERIE_STOP_DEAD_END: return SERVE_FINISH_LENGTH;
    default: return s->n_calls ? SERVE_FINISH_CALLS : SERVE_FINISH_STOP;
    }
}

const char *serve_finish_name(serve_finish finish)
{
    static const char *const names[] = {"stop", "length", "tool_calls"};
    return names[finish];
}

/* Returns the last occurrence of `what` in text[0..n). */
static const char *find_last(const char *text, size_t n, const char *what)
{
    const size_t n_what = strlen(what);
    for (size_t i = n_what <= n ? n - n_what + 1 : 0; i-- > 0;)
        if (memcmp(text + i, what, n_what) == 0) return text + i;
    return NULL;
}

/* Finds the stop string, which the library does not report: it is the one that ends last in the tokens' text, and the longest
 * of these. */
const char *serve_output_stop(const serve_reply_state *r, const serve_output *s)
{
    const char *best = NULL;
    size_t best_end = 0;
    if (s->stats->stop != AERIE_STOP_STRING || !s->tail.data) return NULL;
    for (size_t i = 0; i < r->ask.n_stops; i++) {
        const char *stop = r->ask.stops[i], *at = find_last(s->tail.data, s->tail.n, stop);
        const size_t end = at ? (size_t)(at - s->tail.data) + strlen(stop) : 0;
        if (end > best_end || (best && end == best_end && strlen(stop) > strlen(best))) {
            best = stop;
            best_end = end;
        }
    }
    return best;
}

/* ---- Life ------------------------------------------------------------------------------------------------------------ */

static void output_free(serve_output *s)
{
    answer_free(s->parser);
    app_text_free(&s->content);
    app_text_free(&s->reasoning);
    app_text_free(&s->tail);
    app_text_free(&s->ids);
    app_text_free(&s->held);
    for (size_t i = 0; i < s->n_calls; i++) {
        free(s->calls[i].id);
        free(s->calls[i].name);
        app_text_free(&s->calls[i].arguments);
    }
    free(s->calls);
    free(s->blocks);
    serve_tokens_free(&s->tokens);
}

/* Frees what `submit` made. */
static void outputs_free(serve_reply_state *r)
{
    serve_job_free(r->job);
    for (uint32_t i = 0; r->outputs && i < r->n_outputs; i++) output_free(&r->outputs[i]);
    free(r->outputs);
    r->job = NULL;
    r->outputs = NULL;
}

static void reply_free(void *user)
{
    serve_reply_state *r = user;
    if (r->job && r->outputs) serve_count_tokens(r);
    outputs_free(r);
    serve_ask_free(&r->ask);
    app_text_free(&r->out);
    free(r);
}

static bool make_parsers(serve_reply_state *r)
{
    for (uint32_t i = 0; i < r->n_outputs; i++) {
        serve_output *s = &r->outputs[i];
        s->of = r;
        s->index = i;
        s->tokens.model = r->ask.model->models.model;
        s->tokens.use = r->ask.use;
        if (!r->ask.parses) continue;
        const answer_params params = {.style = r->ask.style,
                                      .keep_reasoning = r->ask.keep_reasoning,
                                      .tools = r->ask.tools,
                                      .prompt = r->ask.prompt,
                                      .n_prompt = r->ask.n_prompt,
                                      .begun = r->ask.begun.data,
                                      .n_begun = r->ask.begun.n,
                                      .id_seed = r->ask.seed + i,
                                      .sink = on_said,
                                      .user = s};
        s->parser = answer_create(&params);
        if (!s->parser) return false;
    }
    return true;
}

/* Begins the answer. A prefix that was appended to the prompt belongs to it. */
static bool begin(serve_reply_state *r)
{
    r->begun = true;
    r->told = r->ask.stream && (r->ask.n_prefix || r->ask.echo); /* what is told of them is not told again */
    if (r->ask.stream && !r->dialect->begin(r)) return false;
    for (uint32_t i = 0; i < r->n_outputs; i++) {
        const serve_choice *choice = &r->job->choices[i];
        if (!say(&r->outputs[i], r->ask.prefix, r->ask.n_prefix)) return false;
        /* the first token has no log-probability, since nothing comes before it */
        if (choice->scored && !take_scored(r, &r->outputs[i], &(serve_event){.token = choice->scored[0], .logprob = NAN}))
            return false;
    }
    return true;
}

static void exchange(app_text *a, app_text *b)
{
    const app_text text = *a;
    *a = *b;
    *b = text;
}

static void take(serve_reply_state *r, const serve_event *e)
{
    serve_output *s = &r->outputs[e->choice];
    const size_t n = r->out.n;
    s->now = e->now;
    const bool ok = e->token < 0 ? take_end(r, s, e) : take_token(r, s, e), lacked = app_json_lacked();
    s->now = NULL;
    if (!ok || r->no_memory || lacked) serve_fail_memory(&r->error);
    if (lacked && r->out.data) r->out.data[r->out.n = n] = '\0'; /* the JSON may be incomplete */
}

/* Handles an event of a stream that can be repeated. Such a stream must not show which choice is faster, so each choice is sent
 * completely before the next. */
static void take_in_order(serve_reply_state *r, const serve_event *e)
{
    serve_output *s = &r->outputs[e->choice];
    const bool waits = e->choice != r->n_told;
    if (waits) exchange(&r->out, &s->held);
    take(r, e);
    if (waits) exchange(&r->out, &s->held);
    while (r->outputs[r->n_told].ended && r->n_told + 1 < r->n_outputs) {
        app_text *next = &r->outputs[++r->n_told].held;
        if (next->n && !app_text_add(&r->out, next->data, next->n)) serve_fail_memory(&r->error);
        app_text_free(next);
    }
}

static bool ping(serve_reply_state *r)
{
    if (r->call->repeat.on) return true;
    if (r->dialect->ping) return r->dialect->ping(r);
    return strcmp(r->dialect->type, "application/x-ndjson") == 0 || serve_put_text(r, ": waiting\n\n");
}

/* Sends what has been generated so far, or a sign of life after some seconds without anything. Sends the beginning of the
 * stream first, while the prompt may still be processed. Returns false if the client is gone. */
static bool advance(serve_reply_state *r)
{
    bool gone = false;
    const bool begins = !r->begun;
    if (begins && !begin(r)) serve_fail_memory(&r->error);
    if (r->error.status || r->n_ended == r->n_outputs || (begins && r->out.n)) return true;
    /* the sign of life shows whether the client is still there */
    const double patience = serve_call_half_closed(r->call) ? SERVE_PROBES_SECONDS : PATIENCE;
    const serve_event *e = serve_job_next(r->job, r->call, patience, &gone);
    if (e && r->call->repeat.on && r->ask.stream) take_in_order(r, e);
    else if (e) take(r, e);
    else if (r->job->lost) serve_fail_memory(&r->error);
    else if (!gone && r->ask.stream) ping(r);
    return !gone;
}

/* *expected: the caller frees it. */
static bool submit_expecting(serve_reply_state *r, int32_t **expected, serve_error *error)
{
    serve_ask *ask = &r->ask;
    aerie_request request = aerie_request_default();
    aerie_model_info info;
    aerie_model_info_get(ask->model->models.model, &info, sizeof info);
    request.n_predict = ask->n_predict;
    request.no_drafts = ask->no_drafts;
    request.draft_max = ask->draft_max, request.draft_min = ask->draft_min, request.draft_p_min = ask->draft_p_min;
    request.ignore_eos = ask->ignore_eos;
    request.diffusion = &ask->server->options->diffusion;
    request.sampling = ask->sampling;
    request.sampling.logit_bias = ask->n_bias ? ask->bias : request.sampling.logit_bias;
    request.sampling.n_logit_bias = ask->n_bias ? ask->n_bias : request.sampling.n_logit_bias;
    if (ask->n_breakers) {
        request.sampling.dry_breakers = ask->breakers;
        request.sampling.n_dry_breakers = ask->n_breakers;
    }
    request.n_logprobs = ask->logprobs ? (ask->n_top ? ask->n_top : 1) : 0;
    request.stop = ask->stops;
    request.n_stop = ask->n_stops;
    request.grammar = ask->grammar;
    request.reasoning = ask->limited ? &ask->reasoning : NULL;
    request.scope = ask->scope;
    request.client = serve_keys_client(ask->call);
    request.adapters = ask->adapters;
    request.n_adapters = ask->n_adapters;
    r->special = ask->server->options->special || (ask->parses && answer_style_needs_special(&ask->style));
    request.special = r->special;
    r->n_outputs = serve_ask_n_choices(ask);
    r->job = serve_job_create(ask->model, ask->use, r->n_outputs);
    r->outputs = calloc(r->n_outputs, sizeof *r->outputs);
    if (!r->job || !r->outputs || !make_parsers(r)) return serve_fail_memory(error);
    for (uint32_t i = 0; i < r->n_outputs; i++) {
        serve_choice *choice = &r->job->choices[i];
        choice->prompt = serve_ask_tokens_of(ask, i, &choice->n_prompt);
        choice->seed = ask->seed + i % ask->n;
        if (!ask->echo || !ask->logprobs || !r->dialect->scored) continue;
        choice->scored = choice->prompt;
        choice->n_scored = choice->n_prompt;
        choice->n_top = request.n_logprobs;
        choice->n_vocab = info.n_vocab;
    }
    r->job->streams = ask->stream;
    const bool times = ask->stream && !ask->call->repeat.on; /* a repeatable stream cannot tell times */
    r->job->tells_progress = times && ask->return_progress && r->dialect->progress;
    r->job->wants_now = r->job->tells_progress || (times && ask->timings_per_token);
    r->job->n_predict = ask->n_predict;
    if (!serve_ask_expected(ask, expected, &request.n_expected, error)) return false;
    request.expected = *expected;
    if (!ask->pictured) return serve_engine_submit(ask->model, r->job, &request, error);
    aerie_chunk *chunks = calloc(serve_pictures_n_chunks(ask), sizeof *chunks);
    if (!chunks) return serve_fail_memory(error);
    serve_pictures_chunks(ask, chunks);
    request.chunks = chunks;
    request.n_chunks = serve_pictures_n_chunks(ask);
    const bool ok = serve_engine_submit(ask->model, r->job, &request, error);
    free(chunks);
    return ok;
}

static bool submit(serve_reply_state *r, serve_error *error)
{
    int32_t *expected = NULL;
    const bool ok = submit_expecting(r, &expected, error);
    aerie_free(expected);
    return ok;
}

static void leave(serve_reply_state *r)
{
    r->patient_until = app_now() + SERVE_WAIT_SECONDS;
    r->n_ended = r->n_told = 0;
    r->begun = r->ask.stream;
    outputs_free(r);
    serve_ask_leave(&r->ask);
}

/* Waits until the model has been loaded again, if its device failed, and submits the request again. A stream sends signs of
 * life, and `again` remains while it waits. Returns false if the client is gone. */
static bool try_again(serve_reply_state *r)
{
    serve_error error = {0};
    if (r->ask.model) leave(r);
    const double end = r->ask.stream ? app_now() + PATIENCE : r->patient_until;
    if (serve_ask_return(&r->ask, end, &error)) {
        (void)submit(r, &r->error);
    } else if (error.status == 499) {
        return false;
    } else if (app_now() > end && end < r->patient_until) {
        (void)ping(r);
        return true;
    } else {
        r->error = error;
    }
    r->again = false;
    return true;
}

/* Makes more of a stream, or its end. Returns false if it breaks off. */
static bool go_on(serve_reply_state *r)
{
    if (!(r->again ? try_again(r) : advance(r))) return false;
    if (r->again || (!r->error.status && r->n_ended < r->n_outputs)) return true;
    r->over = true;
    serve_memory_say(r->call, &r->error);
    if (r->error.status && r->call->repeat.on) return false; /* a repeatable answer must be the beginning of the complete one */
    return r->error.status ? r->dialect->fail(r) : r->dialect->end(r);
}

/* The model of a stream was lost, and its client may not read for long: makes the rest of the stream, so that the model can be
 * loaded again. */
static void let_go(void *user)
{
    serve_reply_state *r = user;
    if (!r->job || !serve_job_is_over(r->job)) return;
    while (!r->over && !r->again && !r->broken) r->broken = !go_on(r);
    if (r->again) {
        leave(r);
        return;
    }
    serve_count_tokens(r);
    outputs_free(r);
    serve_ask_leave(&r->ask);
}

static ptrdiff_t read_stream(void *user, char *out, size_t most)
{
    serve_reply_state *r = user;
    while (r->n_sent == r->out.n) {
        if (r->over || r->broken) return r->broken || (r->no_memory && !r->begun) ? -1 : 0;
        r->n_sent = r->out.n = 0;
        if (!go_on(r)) return -1;
    }
    const size_t n = r->out.n - r->n_sent < most ? r->out.n - r->n_sent : most;
    memcpy(out, r->out.data + r->n_sent, n);
    r->n_sent += n;
    return (ptrdiff_t)n;
}

static void reply_whole(serve_reply_state *r)
{
    while (r->again || (!r->error.status && r->n_ended < r->n_outputs)) {
        if (r->again ? try_again(r) : advance(r)) continue;
        reply_free(r); /* the client is gone, so nobody receives an answer */
        return;
    }
    serve_parts parts = {0};
    if (r->error.status) {
        serve_reply_error(r->call, &r->error);
        reply_free(r);
        return;
    }
    r->dialect->whole(r, &parts);
    serve_parts_reply(r->call, &parts, reply_free, r);
}

/* Takes ownership of the request. */
static void answer(serve_call *call, serve_ask *ask, const serve_dialect *dialect)
{
    serve_error error = {0};
    struct timespec now;
    serve_reply_state *r = calloc(1, sizeof *r);
    if (!r) {
        serve_ask_free(ask);
        serve_fail_memory(&error);
        serve_reply_error(call, &error);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    r->call = call;
    r->ask = *ask;
    r->ask.origins = ask->origins && !call->repeat.on; /* which tokens are drafted depends on timing */
    r->dialect = dialect;
    r->created = call->repeat.on ? (double)call->repeat.created : (double)now.tv_sec;
    r->started = app_now();
    snprintf(r->id, sizeof r->id, "%s%s", dialect->prefix, call->id + strlen("req_"));
    if (!submit(r, &error)) {
        serve_reply_error(call, &error);
        reply_free(r);
    } else if (ask->stream) {
        serve_reply_stream(call, dialect->type, read_stream, reply_free, r);
        serve_reply_may_let_go(call, let_go);
    } else {
        reply_whole(r);
    }
}

void serve_reply_run(serve_call *call, serve_kind kind, serve_ask_step *convert, serve_ask_step *read,
                     const serve_dialect *dialect)
{
    serve_ask ask = {0};
    serve_error error = {0};
    sem_wait(call->work);
    bool ok = serve_ask_read(&ask, call, &error);
    ask.kind = kind;
    ok = ok && (!convert || convert(&ask, &error)) && serve_ask_model(&ask, &error) &&
         serve_model_generates(ask.model, &error) && serve_ask_fields(&ask, &error) && read(&ask, &error);
    sem_post(call->work);
    if (ok) {
        answer(call, &ask, dialect);
        return;
    }
    if (error.status != 499) serve_reply_error(call, &error);
    serve_ask_free(&ask);
}

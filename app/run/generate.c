/* generate.c - implements generate.h. */
#define _POSIX_C_SOURCE 200809L
#include "run/generate.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/parse/answer.h"

bool app_wants_color(const app_options *options)
{
    const char *none = getenv("NO_COLOR");
    if (!options->run.color_drafts || options->json || options->ids || (none && *none)) return false;
    if (!isatty(STDOUT_FILENO) || app_terminal_is_dumb()) return false;
    if (!options->quiet)
        app_note("colours: plain is decoded; green, cyan, blue, magenta and yellow were drafted, and accepted at depth "
                 "1, 2, 3, 4 and more");
    return true;
}

static void show_text(app_generation *g, const char *text, size_t n)
{
    if (g->wraps) app_wrap_text(&g->wrap, text, n);
    else app_write_text(text, n);
}

static void show_mark(app_generation *g, const char *mark)
{
    if (g->wraps) app_wrap_mark(&g->wrap, mark);
    else app_print("%s", mark);
}

/* Prints the bytes from n_shown on, each token's in the colour of its origin. */
static void show_colored(app_generation *g, const app_answer *a)
{
    static const int colors[] = {0, 32, 36, 34, 35, 33};
    while (g->n_shown < a->text.n && g->i_origin < a->n_origins) {
        const app_origin *o = &a->origins[g->i_origin];
        const size_t n = o->end - g->n_shown;
        char mark[16];
        snprintf(mark, sizeof mark, "\033[%dm", colors[o->depth < 5 ? o->depth : 5]);
        if (o->depth) show_mark(g, mark);
        show_text(g, a->text.data + g->n_shown, n);
        if (o->depth) show_mark(g, "\033[0m");
        g->n_shown = o->end;
        g->i_origin++;
    }
}

/* Prints the heading that separates several answers, in the form of head(1) and tail(1). */
static void show_header(app_generation *g)
{
    char title[80];
    app_prompt_title(&g->prompts->items[g->i_shown], title);
    app_print("%s==> %zu of %zu: ", g->i_shown ? "\n" : "", g->i_shown + 1, g->prompts->n);
    app_write_escaped(title, strlen(title));
    app_print(" <==\n");
}

/* Prints the new part of the answer. */
static void show_new(app_generation *g, const app_answer *a)
{
    if (g->headers && !g->begun) show_header(g);
    g->begun = true;
    if (g->color) show_colored(g, a);
    if (g->show == APP_SHOW_TEXT && a->text.n > g->n_shown) {
        show_text(g, a->text.data + g->n_shown, a->text.n - g->n_shown);
        g->n_shown = a->text.n;
    }
    for (; g->show == APP_SHOW_IDS && g->n_shown < a->n_ids; g->n_shown++) {
        app_print(g->n_shown ? " %d" : "%d", (int)a->ids[g->n_shown]);
    }
}

/* Ends the answer's line. On a terminal, no empty line follows an answer that ends in a newline; elsewhere bytes are exact. */
static void show_end(app_generation *g, const app_answer *a)
{
    if (g->show == APP_SHOW_LINES) {
        if (app_print_json_line(app_json_answer(g, g->i_shown))) g->failed = true;
        return;
    }
    if (g->wraps) app_wrap_end(&g->wrap);
    const bool spare =
        g->show == APP_SHOW_TEXT && a->text.n && a->text.data[a->text.n - 1] == '\n' && isatty(STDOUT_FILENO);
    if (!spare) app_write("\n", 1);
}

static void show(app_generation *g, bool all)
{
    if (g->show == APP_SHOW_NOTHING) return;
    if (all && g->show == APP_SHOW_LINES) return; /* an interrupted answer must not look complete */
    while (g->i_shown < g->prompts->n) {
        const app_answer *a = &g->answers[g->i_shown];
        show_new(g, a);
        if (!all && !a->ended) break;
        if (!a->refused) show_end(g, a);
        g->i_shown++;
        g->n_shown = g->i_origin = 0;
        g->begun = false;
    }
    if (!app_flush()) g->failed = true;
}

static bool keep_logprob(app_answer *a, aerie_logprob it, bool alternative)
{
    app_logprob *grown = app_grow(a->logprobs, a->n_logprobs, &a->logprob_capacity, sizeof *grown);
    if (!grown) return false;
    a->logprobs = grown;
    grown[a->n_logprobs++] = (app_logprob){it, alternative};
    return true;
}

static bool keep(app_generation *g, app_answer *a, const aerie_token_event *event)
{
    if (event->n_text && !app_text_add(&a->text, event->text, event->n_text)) return false;
    if (g->color && event->n_text) {
        app_origin *origins = app_grow(a->origins, a->n_origins, &a->origin_capacity, sizeof *origins);
        if (!origins) return false;
        a->origins = origins;
        origins[a->n_origins++] = (app_origin){a->text.n, event->draft_depth};
    }
    if (event->token < 0) return true;
    int32_t *grown = app_grow(a->ids, a->n_ids, &a->capacity, sizeof *grown);
    if (!grown) return false;
    a->ids = grown;
    grown[a->n_ids++] = event->token;
    if (!g->options->n_logprobs) return true;
    bool ok = keep_logprob(a, (aerie_logprob){event->token, event->logprob}, false);
    for (uint32_t i = 0; ok && i < event->n_top; i++) ok = keep_logprob(a, event->top[i], true);
    return ok;
}

static bool on_token(void *user, const aerie_token_event *event)
{
    app_generation *g = user;
    app_answer *a = &g->answers[event->i_request];
    if (g->show != APP_SHOW_NOTHING) app_progress_clear(&g->percent);
    if (!keep(g, a, event)) g->failed = true;
    if (event->token < 0) a->ended = true;
    if (event->refused) a->refused = true;
    /* standard error shows the canvas, and standard output only what is final */
    if (!g->options->run.denoising_shown || !g->models->info.is_diffusion || a->ended) show(g, false);
    return !g->failed && !app_interrupted();
}

static json_t *json_logprob(const app_models *models, aerie_logprob it)
{
    char *text = NULL;
    size_t n = 0;
    aerie_error error;
    if (aerie_model_detokenize(models->model, &it.token, 1, true, &text, &n, &error) != AERIE_OK) return NULL;
    json_t *json = json_pack("{s:i, s:o, s:o}", "id", (int)it.token, "token", app_json_text(text, n), "logprob",
                             app_json_real((double)it.logprob));
    aerie_free(text);
    return json;
}

/* Returns [{"id", "token", "logprob", "top": [...]}, ...]. */
static json_t *logprobs_json(const app_models *models, const app_answer *answer)
{
    json_t *list = json_array(), *top = NULL;
    for (size_t i = 0; list && i < answer->n_logprobs; i++) {
        json_t *json = json_logprob(models, answer->logprobs[i].it);
        if (answer->logprobs[i].alternative) {
            app_json_append(top, json);
        } else {
            app_json_put(json, "top", top = json_array());
            app_json_append(list, json);
        }
    }
    return list;
}

/* Shows a progress bar for the longest prompt that is being computed. */
static bool on_progress(void *user, uint64_t done, uint64_t total)
{
    enum { PATIENCE = 2, SIGN = 15 }; /* seconds: before a bar on a terminal; between lines elsewhere */
    app_generation *g = user;
    if (total > g->n_longest) g->n_longest = total;
    if (total == g->n_longest && g->watched && app_now() - g->start > PATIENCE) {
        if (done < total) app_progress_show("reading the prompt", done, total, &g->percent);
        else app_progress_clear(&g->percent);
    }
    if (total == g->n_longest && !g->watched && !g->options->quiet && done < total && app_now() - g->noted > SIGN) {
        app_note("reading the prompt: %llu of %llu tokens", (unsigned long long)done, (unsigned long long)total);
        g->noted = app_now();
    }
    return !app_interrupted();
}

json_t *app_json_answer(const app_generation *g, size_t i)
{
    const app_answer *a = &g->answers[i];
    const aerie_error *error = &g->stats[i].error;
    if (error->status != AERIE_OK) return json_pack("{s:o}", "error", app_json_text(error->text, strlen(error->text)));
    const aerie_stop stop = g->stats[i].stop;
    const bool cut = stop == AERIE_STOP_LENGTH || stop == AERIE_STOP_CONTEXT || stop == AERIE_STOP_DEAD_END;
    const size_t part = cut ? app_utf8_incomplete(a->text.data, a->text.n) : 0; /* of a character; "ids" has all of it */
    json_t *json = json_pack("{s:o, s:o, s:o}", "text", app_json_text(a->text.data, a->text.n - part), "ids",
                             app_json_ids(a->ids, a->n_ids), "stats", app_json_stats(&g->stats[i]));
    if (g->options->n_logprobs) app_json_put(json, "logprobs", logprobs_json(g->models, a));
    if (g->show != APP_SHOW_LINES) return json;
    char title[80];
    app_prompt_title(&g->prompts->items[i], title);
    app_json_put(json, "index", json_integer((json_int_t)i));
    if (g->prompts->items[i].id) json_object_set(json, "id", g->prompts->items[i].id);
    app_json_put(json, "prompt", app_json_text(title, strlen(title)));
    return json;
}

/* Shows the canvas of the shown answer: known tokens, and _ for the others. */
static void on_canvas(void *user, size_t i_request, uint32_t step, uint32_t n_steps, const int32_t *tokens, size_t n_prompt,
                      size_t n_tokens)
{
    app_generation *g = user;
    if (i_request != g->i_shown) return;
    app_progress_clear(&g->percent);
    if (isatty(STDERR_FILENO) && !app_terminal_is_dumb()) fputs("\033[2J\033[H", stderr);
    fprintf(stderr, "diffusion step %u of %u: ", (unsigned)step + 1, (unsigned)n_steps);
    for (size_t i = n_prompt, n; i < n_tokens; i += n) {
        char *text = NULL;
        size_t n_text = 0;
        for (n = 0; i + n < n_tokens && tokens[i + n] >= 0;) n++;
        if (n && aerie_model_detokenize(g->models->model, tokens + i, n, true, &text, &n_text, NULL) == AERIE_OK)
            app_escape(stderr, text, n_text);
        aerie_free(text);
        for (; i + n < n_tokens && tokens[i + n] < 0; n++) fputc('_', stderr);
    }
    fputc('\n', stderr);
}

/* Returns the end of a prompt as text, to be freed with aerie_free; NULL: out of memory. */
static char *end_of_prompt(const app_models *models, const app_prompt *prompt, size_t *n_text)
{
    enum { TAIL = 64 }; /* tokens: where a template opens reasoning is nearer to the end */
    const int32_t *tokens = prompt->tokens;
    size_t n = prompt->n_tokens, n_chunks;
    char *text = NULL;
    if (prompt->pictured) {
        const aerie_chunk *chunks = aerie_prompt_chunks(prompt->pictured, &n_chunks); /* the last one is text */
        tokens = chunks[n_chunks - 1].tokens;
        n = chunks[n_chunks - 1].n_tokens;
    }
    const size_t first = n > TAIL ? n - TAIL : 0;
    const aerie_status status = aerie_model_detokenize(models->model, tokens + first, n - first, true, &text, n_text, NULL);
    return status == AERIE_OK ? text : NULL;
}

/* Limits the reasoning of an answer as --reasoning-budget says. */
static bool limit_reasoning(const app_generation *g, answer_style style, size_t i, aerie_request *request)
{
    const app_chat_options *chat = &g->options->chat;
    app_answer *a = &g->answers[i];
    answer_params params = {.style = style};
    char *text = end_of_prompt(g->models, &g->prompts->items[i], &params.n_prompt);
    params.prompt = text;
    const bool ok = text && answer_limit_reasoning(&params, (uint32_t)chat->reasoning_budget, chat->reasoning_message,
                                                   &a->reasoning, &a->reasoning_end);
    aerie_free(text);
    request->reasoning = &a->reasoning;
    return ok;
}

/* Returns whether --reasoning-budget limits the reasoning, whose texts *style gets. */
static bool has_limit(const app_generation *g, answer_style *style)
{
    const app_format *format = &g->models->format;
    aerie_model_info info;
    const char *open, *close;
    if (g->options->chat.reasoning_budget < 0 || !app_uses_template(g->models, g->options)) return false;
    aerie_model_info_get(g->models->model, &info, sizeof info);
    const char *text = app_format_template(format, &info, format->tools.data != NULL);
    *style = answer_style_detect(text, strlen(text));
    const bool found = answer_reasoning_tags(style, &open, &close);
    app_format_note_budget(format, g->options, found);
    return found;
}

/* Fills requests [prompts->n]. stops: space for all texts that end an answer. */
static bool make_requests(app_generation *g, aerie_request *requests, const char **stops)
{
    size_t n_marks, n = g->options->stop.n;
    answer_style style;
    const bool limited = has_limit(g, &style);
    const char *const *marks = app_format_stops(&g->models->format, &n_marks);
    for (size_t i = 0; i < n; i++) stops[i] = g->options->stop.items[i];
    for (size_t i = 0; i < n_marks && n < AERIE_MAX_STOPS; i++) stops[n++] = marks[i];
    g->diffusion = g->options->diffusion;
    g->diffusion.canvas = g->options->run.denoising_shown ? on_canvas : NULL;
    for (size_t i = 0; i < g->prompts->n; i++) {
        requests[i] = app_request(g->options, &g->prompts->items[i]);
        requests[i].diffusion = &g->diffusion;
        requests[i].progress = on_progress;
        requests[i].stop = stops;
        requests[i].n_stop = n;
        if (limited && !limit_reasoning(g, style, i, &requests[i])) return false;
    }
    return true;
}

/* Prints why each refused prompt was refused; returns the exit status of the first, APP_DONE if all were served. */
static int say_refused(const app_generation *g)
{
    int first = APP_DONE;
    for (size_t i = 0; i < g->prompts->n; i++) {
        if (g->stats[i].error.status == AERIE_OK) continue;
        aerie_error error = g->stats[i].error;
        if (g->prompts->n > 1)
            snprintf(error.text, sizeof error.text, "prompt %zu: %.480s", i + 1, g->stats[i].error.text);
        const int bad = app_report(APP_WORKING, error.status, &error);
        if (!first) first = bad;
    }
    return first;
}

/* Allocates the answers and returns the requests, which the caller frees. NULL: out of memory. */
static aerie_request *prepare(app_generation *g, aerie_session *session, const char **stops, ae_session_test_answer **known)
{
    const size_t n = g->prompts->n;
    aerie_request *requests = calloc(n, sizeof *requests);
    *known = calloc(n, sizeof **known);
    g->answers = calloc(n, sizeof *g->answers);
    g->stats = calloc(n, sizeof *g->stats);
    if (!requests || !*known || !g->answers || !g->stats || !make_requests(g, requests, stops)) {
        free(requests);
        free(*known);
        *known = NULL;
        return NULL;
    }
    for (size_t i = 0; g->known && i < n; i++)
        (*known)[i] = (ae_session_test_answer){g->known->answers[i].ids, g->known->answers[i].n_ids};
    ae_session_test_answers(session, *known, g->known ? n : 0);
    g->watched = !g->options->quiet && isatty(STDERR_FILENO);
    g->wraps = g->show == APP_SHOW_TEXT && !g->options->run.no_wrap && isatty(STDOUT_FILENO);
    g->percent = -1;
    g->start = g->noted = app_now();
    return requests;
}

static int conclude(app_generation *g, aerie_status status, const aerie_error *error)
{
    const int refused = say_refused(g);
    if (refused) return refused;
    if (status != AERIE_OK) return app_report(APP_WORKING, status, error);
    if (app_interrupted()) return APP_INTERRUPTED;
    if (g->failed && app_flush()) return app_error_memory("the answers");
    return g->failed ? APP_FAILED : APP_DONE; /* app_finish reports what failed on standard output */
}

int app_generate(app_generation *g, aerie_session *session)
{
    const size_t n = g->prompts->n;
    aerie_error error = {0};
    const char *stops[AERIE_MAX_STOPS];
    ae_session_test_answer *known;
    aerie_request *requests = prepare(g, session, stops, &known);
    if (!requests) return app_error_memory("the answers");
    const aerie_status status = aerie_session_generate(session, requests, n, on_token, g, g->stats, sizeof(aerie_stats),
                                                       &error);
    g->seconds = app_now() - g->start;
    app_progress_clear(&g->percent);
    ae_session_test_answers(session, NULL, 0);
    free(requests);
    free(known);
    bool began = status == AERIE_OK;
    for (size_t i = 0; i < n; i++) began |= g->answers[i].n_ids > 0;
    if (began) show(g, true);
    return conclude(g, status, &error);
}

/* ---- In turns ----------------------------------------------------------------------------------------------- */

typedef struct turn {
    app_generation *g;
    aerie_session *session;
    aerie_task **tasks; /* [g->prompts->n] */
    ae_session_test_answer *known;
    aerie_status status;
    aerie_error error;
} turn;

static aerie_status turn_open(turn *t)
{
    const size_t n = t->g->prompts->n;
    const char *stops[AERIE_MAX_STOPS];
    aerie_request *requests = prepare(t->g, t->session, stops, &t->known);
    t->tasks = calloc(n, sizeof(aerie_task *));
    t->status = requests && t->tasks ? AERIE_OK : AERIE_ERROR_MEMORY;
    if (t->status != AERIE_OK) snprintf(t->error.text, sizeof t->error.text, "not enough memory for the answers");
    for (size_t i = 0; i < n && t->status == AERIE_OK; i++) {
        requests[i].id = i;
        requests[i].token = on_token;
        requests[i].user = t->g;
        t->status = aerie_session_submit(t->session, &requests[i], &t->tasks[i], &t->error);
    }
    free(requests);
    return t->status;
}

static int turn_close(turn *t)
{
    for (size_t i = 0; t->tasks && i < t->g->prompts->n; i++) {
        if (t->tasks[i]) t->g->stats[i] = *aerie_task_stats(t->tasks[i]);
        aerie_task_free(t->tasks[i]);
    }
    free(t->tasks);
    ae_session_test_answers(t->session, NULL, 0);
    free(t->known);
    return t->g->stats ? conclude(t->g, t->status, &t->error) : app_error_memory("the answers");
}

/* Returns the session that has advanced least among those with work; n if none has any. */
static size_t whose_turn(const turn *turns, size_t n)
{
    size_t best = n, least = SIZE_MAX;
    for (size_t k = 0; k < n; k++) {
        size_t n_ids = 0;
        if (!aerie_session_n_tasks(turns[k].session)) continue;
        for (size_t i = 0; i < turns[k].g->prompts->n; i++) n_ids += turns[k].g->answers[i].n_ids;
        if (n_ids >= least) continue;
        least = n_ids;
        best = k;
    }
    return best;
}

int app_generate_in_turns(app_generation *generations, aerie_session *const *sessions, size_t n)
{
    turn *turns = calloc(n, sizeof *turns);
    if (!turns) return app_error_memory("the answers");
    bool failed = false;
    for (size_t k = 0; k < n; k++) turns[k] = (turn){.g = &generations[k], .session = sessions[k]};
    for (size_t k = 0; k < n && !failed; k++) failed = turn_open(&turns[k]) != AERIE_OK;
    for (size_t k; !failed && (k = whose_turn(turns, n)) < n;) {
        const double start = app_now();
        turns[k].status = aerie_session_step(turns[k].session, &turns[k].error);
        turns[k].g->seconds += app_now() - start;
        failed = turns[k].status != AERIE_OK;
    }
    int bad = APP_DONE;
    for (size_t k = 0; k < n; k++) {
        const int its = turns[k].tasks ? turn_close(&turns[k]) : APP_DONE;
        if (!bad) bad = its;
    }
    free(turns);
    return bad;
}

/* Returns why an answer ended too early. */
static const char *cause_of(const app_generation *g, aerie_stop stop, char out[160])
{
    switch (stop) {
    case AERIE_STOP_LENGTH:
        snprintf(out, 160, "-n %d ended it; a larger -n lets it continue", (int)g->options->n_predict);
        return out;
    case AERIE_STOP_CONTEXT: return "the context is full; a larger -c lets it continue";
    case AERIE_STOP_STRING: return "a stop string ended it";
    case AERIE_STOP_DEAD_END:
        return "the grammar leaves no token after that, because the vocabulary cannot spell what would follow or the grammar "
               "is too ambiguous";
    default: return NULL;
    }
}

int app_generation_check(const app_generation *g)
{
    const app_options *o = g->options;
    const char *whole = o->schema_text || o->schema_file ? "complete JSON of the schema" : "a complete text of the grammar";
    int bad = APP_DONE;
    for (size_t i = 0; o->grammar && i < g->prompts->n; i++) {
        const app_text *text = &g->answers[i].text;
        char number[32] = "the answer", sentence[160];
        bool complete = false;
        size_t n_good;
        const char *cause = cause_of(g, g->stats[i].stop, sentence);
        const char *bytes = text->data ? text->data : "";
        if (!cause || aerie_grammar_check(o->grammar, bytes, text->n, &complete, &n_good, NULL) != AERIE_OK) continue;
        if (complete) continue;
        if (g->prompts->n > 1) snprintf(number, sizeof number, "answer %zu", i + 1);
        bad = app_error(APP_FAILED, "%s has %zu bytes and is not %s: %s", number, text->n, whole, cause);
    }
    return bad;
}

void app_generation_free(app_generation *g)
{
    for (size_t i = 0; g->answers && i < g->prompts->n; i++) {
        app_text_free(&g->answers[i].text);
        app_text_free(&g->answers[i].reasoning_end);
        free(g->answers[i].ids);
        free(g->answers[i].logprobs);
        free(g->answers[i].origins);
    }
    free(g->answers);
    free(g->stats);
    g->answers = NULL;
    g->stats = NULL;
}

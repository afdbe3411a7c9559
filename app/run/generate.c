/* generate.c - implements generate.h. */
#define _POSIX_C_SOURCE 200809L
#include "run/generate.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool app_wants_color(const app_options *options)
{
    const char *none = getenv("NO_COLOR");
    if (!options->color_drafts || options->json || options->ids || (none && *none) || !isatty(STDOUT_FILENO)) return false;
    if (!options->quiet)
        app_note("colours: plain is decoded; green, cyan, blue, magenta and yellow were drafted, and accepted at depth "
                 "1, 2, 3, 4 and more");
    return true;
}

/* Bytes from n_shown on, each token's in the colour of its origin. */
static void show_colored(app_generation *g, const app_answer *a)
{
    static const int colors[] = {0, 32, 36, 34, 35, 33};
    while (g->n_shown < a->text.n && g->i_origin < a->n_origins) {
        const app_origin *o = &a->origins[g->i_origin];
        const size_t n = o->end - g->n_shown;
        if (o->depth) app_print("\033[%dm", colors[o->depth < 5 ? o->depth : 5]);
        app_write(a->text.data + g->n_shown, n);
        if (o->depth) app_print("\033[0m");
        g->n_shown = o->end;
        g->i_origin++;
    }
}

/* Prints what is new of answer i. */
static void show_new(app_generation *g, const app_answer *a)
{
    if (g->color) show_colored(g, a);
    if (g->show == APP_SHOW_TEXT && a->text.n > g->n_shown) {
        app_write(a->text.data + g->n_shown, a->text.n - g->n_shown);
        g->n_shown = a->text.n;
    }
    for (; g->show == APP_SHOW_IDS && g->n_shown < a->n_ids; g->n_shown++) {
        app_print(g->n_shown ? " %d" : "%d", (int)a->ids[g->n_shown]);
    }
}

/* A terminal is spared the empty line behind an answer that ends in a newline; elsewhere bytes are exact. */
static void show_end(const app_generation *g, const app_answer *a)
{
    const bool spare =
        g->show == APP_SHOW_TEXT && a->text.n && a->text.data[a->text.n - 1] == '\n' && isatty(STDOUT_FILENO);
    if (!spare) app_write("\n", 1);
}

static void show(app_generation *g, bool all)
{
    if (g->show == APP_SHOW_NOTHING) return;
    while (g->i_shown < g->prompts->n) {
        const app_answer *a = &g->answers[g->i_shown];
        show_new(g, a);
        if (!all && !a->ended) break;
        if (!a->refused) show_end(g, a);
        g->i_shown++;
        g->n_shown = g->i_origin = 0;
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
    if (!keep(g, a, event)) g->failed = true;
    if (event->token < 0) a->ended = true;
    if (event->refused) a->refused = true;
    show(g, false);
    return !g->failed && !app_interrupted();
}

static json_t *json_logprob(const app_models *models, aerie_logprob it)
{
    char *text = NULL;
    size_t n = 0;
    aerie_error error;
    if (aerie_detokenize(models->model, &it.token, 1, true, &text, &n, &error) != AERIE_OK) return NULL;
    json_t *json = json_pack("{s:i, s:o, s:o}", "id", (int)it.token, "token", app_json_text(text, n), "logprob",
                             app_json_real((double)it.logprob));
    aerie_free(text);
    return json;
}

json_t *app_json_logprobs(const app_models *models, const app_answer *answer)
{
    json_t *list = json_array(), *top = NULL;
    for (size_t i = 0; list && i < answer->n_logprobs; i++) {
        json_t *json = json_logprob(models, answer->logprobs[i].it);
        if (answer->logprobs[i].alternative) {
            json_array_append_new(top, json);
        } else {
            json_object_set_new(json, "top", top = json_array());
            json_array_append_new(list, json);
        }
    }
    return list;
}

static bool on_progress(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    (void)done;
    (void)total;
    return !app_interrupted();
}

/* What each refused prompt lacks; the exit status of the first, APP_DONE if all were served. */
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

int app_generate(app_generation *g, aerie_session *session)
{
    const size_t n = g->prompts->n;
    aerie_error error = {0};
    aerie_request *requests = calloc(n, sizeof *requests);
    g->answers = calloc(n, sizeof *g->answers);
    g->stats = calloc(n, sizeof *g->stats);
    if (!requests || !g->answers || !g->stats) {
        free(requests);
        return app_error_memory("the answers");
    }
    for (size_t i = 0; i < n; i++) {
        requests[i] = app_request(g->options, &g->prompts->items[i]);
        requests[i].progress = on_progress;
        if (g->known) {
            requests[i].oracle_tokens = g->known->answers[i].ids;
            requests[i].n_oracle_tokens = g->known->answers[i].n_ids;
        }
    }
    const double start = app_now();
    const aerie_status status = aerie_generate(session, requests, n, on_token, g, g->stats, &error);
    g->seconds = app_now() - start;
    free(requests);
    bool began = status == AERIE_OK;
    for (size_t i = 0; i < n; i++) began |= g->answers[i].n_ids > 0;
    if (began) show(g, true);
    const int refused = say_refused(g);
    if (refused) return refused;
    if (status != AERIE_OK) return app_report(APP_WORKING, status, &error);
    if (app_interrupted()) return APP_INTERRUPTED;
    for (size_t i = 0; i < n; i++) {
        if (g->stats[i].stop != AERIE_STOP_DEAD_END) continue;
        return app_error(APP_FAILED, "answer %zu is incomplete: the grammar leaves no token behind its %zu bytes, because the "
                         "vocabulary cannot spell what would follow or the grammar is too ambiguous",
                         i + 1, g->answers[i].text.n);
    }
    if (g->failed && app_flush()) return app_error_memory("the answers");
    return g->failed ? APP_FAILED : APP_DONE; /* app_finish says what became of standard output */
}

void app_generation_free(app_generation *g)
{
    for (size_t i = 0; g->answers && i < g->prompts->n; i++) {
        app_text_free(&g->answers[i].text);
        free(g->answers[i].ids);
        free(g->answers[i].logprobs);
        free(g->answers[i].origins);
    }
    free(g->answers);
    free(g->stats);
    g->answers = NULL;
    g->stats = NULL;
}

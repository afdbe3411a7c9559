/* generate.c - implements generate.h. */
#define _POSIX_C_SOURCE 200809L
#include "generate.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Prints what is new of answer i. */
static void show_new(app_generation *g, const app_answer *a)
{
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
        show_end(g, a);
        g->i_shown++;
        g->n_shown = 0;
    }
    if (!app_flush()) g->failed = true;
}

static bool keep(app_answer *a, const aerie_token_event *event)
{
    if (event->n_text && !app_text_add(&a->text, event->text, event->n_text)) return false;
    if (event->token < 0) return true;
    int32_t *grown = app_grow(a->ids, a->n_ids, &a->capacity, sizeof *grown);
    if (!grown) return false;
    a->ids = grown;
    grown[a->n_ids++] = event->token;
    return true;
}

static bool on_token(void *user, const aerie_token_event *event)
{
    app_generation *g = user;
    app_answer *a = &g->answers[event->i_request];
    if (!keep(a, event)) g->failed = true;
    if (event->token < 0) a->ended = true;
    show(g, false);
    return !g->failed && !app_interrupted();
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
    if (status != AERIE_OK) return app_report(APP_WORKING, status, &error);
    if (app_interrupted()) return APP_INTERRUPTED;
    for (size_t i = 0; i < n; i++) {
        if (g->stats[i].stop != AERIE_STOP_DEAD_END) continue;
        return app_error(APP_FAILED, "answer %zu is incomplete: the grammar leaves no token behind its %zu bytes, because the vocabulary "
                         "cannot spell what would follow or the grammar is too ambiguous", i + 1, g->answers[i].text.n);
    }
    if (g->failed && app_flush()) return app_error_memory("the answers");
    return g->failed ? APP_FAILED : APP_DONE; /* app_finish says what became of standard output */
}

void app_generation_free(app_generation *g)
{
    for (size_t i = 0; g->answers && i < g->prompts->n; i++) {
        app_text_free(&g->answers[i].text);
        free(g->answers[i].ids);
    }
    free(g->answers);
    free(g->stats);
    g->answers = NULL;
    g->stats = NULL;
}

/* chat.c - aerie run on a terminal: a conversation, kept through the model's chat template.
 *
 * Owns: the messages so far. An answer that was interrupted stays in the conversation as far as it went;
 * a message that cannot be answered (the context is full) is taken back.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "generate.h"
#include "run.h"

typedef struct chat {
    const app_options *options;
    app_models models;
    aerie_session *session;
    aerie_message *messages; /* [n], contents owned, roles static */
    size_t n, capacity;
    size_t n_kept; /* of messages that /clear keeps: the system prompt */
    aerie_stats sum;
} chat;

static bool add(chat *c, const char *role, const char *content, size_t n)
{
    aerie_message *grown = app_grow(c->messages, c->n, &c->capacity, sizeof *grown);
    if (!grown) return false;
    c->messages = grown;
    char *copy = strndup(content, n);
    if (!copy) return false;
    grown[c->n++] = (aerie_message){role, copy};
    return true;
}

static void cut(chat *c, size_t n)
{
    while (c->n > n) free((char *)c->messages[--c->n].content);
}

static int reply(chat *c)
{
    app_prompt prompt = {0};
    const app_prompts prompts = {.items = &prompt, .n = 1};
    app_generation g = {.models = &c->models, .options = c->options, .prompts = &prompts};
    g.show = c->options->ids ? APP_SHOW_IDS : APP_SHOW_TEXT;
    int bad = app_conversation_encode(&c->models, c->messages, c->n, &prompt.tokens, &prompt.n_tokens);
    if (!bad) {
        app_interrupt_arm();
        bad = app_generate(&g, c->session);
        app_interrupt_disarm();
    }
    if (bad == APP_INTERRUPTED) bad = APP_DONE;
    if (!bad && !add(c, "assistant", g.answers[0].text.data ? g.answers[0].text.data : "", g.answers[0].text.n)) {
        bad = app_error_memory("the conversation");
    }
    if (!bad) app_stats_add(&c->sum, &g.stats[0]);
    app_generation_free(&g);
    aerie_free(prompt.tokens);
    return bad;
}

/* One line from the terminal; false at its end. */
static bool read_line(char **line, size_t *capacity, size_t *n)
{
    fputs("> ", stderr);
    fflush(stderr);
    const ssize_t got = getline(line, capacity, stdin);
    if (got < 0) {
        fputc('\n', stderr);
        return false;
    }
    *n = (size_t)got;
    if (*n && (*line)[*n - 1] == '\n') (*line)[--*n] = '\0';
    return true;
}

static int converse(chat *c)
{
    char *line = NULL;
    size_t capacity = 0, n = 0;
    int bad = APP_DONE;
    if (!c->options->quiet)
        app_note("/clear forgets the conversation, /exit or Ctrl-D ends it, Ctrl-C stops an answer");
    while (!bad && read_line(&line, &capacity, &n)) {
        if (strcmp(line, "/exit") == 0 || strcmp(line, "/bye") == 0) break;
        if (strcmp(line, "/clear") == 0) {
            cut(c, c->n_kept);
            continue;
        }
        if (n == 0) continue;
        const size_t before = c->n;
        if (!add(c, "user", line, n)) bad = app_error_memory("the conversation");
        if (!bad) bad = reply(c);
        if (bad == APP_USAGE) { /* too long for the context: said already */
            cut(c, before);
            app_note("the message was taken back; /clear makes room");
            bad = APP_DONE;
        }
        if (c->options->single_turn) break;
    }
    free(line);
    return bad;
}

int app_chat(const app_options *options)
{
    const aerie_spec_type type = options->session.spec.type;
    chat c = {.options = options};
    if (type == AERIE_SPEC_ORACLE) return app_error(APP_USAGE, "--spec-type oracle needs a prompt (-p)");
    if (options->json) return app_error(APP_USAGE, "--json needs a prompt (-p)");
    if (options->no_conversation) return app_error(APP_USAGE, "-no-cnv needs a prompt (-p, -f or standard input)");
    int bad = app_models_load(&c.models, options, app_wants_draft(type));
    if (!bad && !c.models.info.has_chat_template) {
        bad = app_error(APP_USAGE, "'%s' has no chat template, so it cannot chat; give a prompt (-p)", options->model);
    }
    if (!bad) bad = app_session_open(&c.session, &c.models, options, type);
    if (!bad) app_say_speculation(c.session, options);
    if (!bad && options->system_prompt && !add(&c, "system", options->system_prompt, strlen(options->system_prompt))) {
        bad = app_error_memory("the conversation");
    }
    c.n_kept = c.n;
    if (!bad) bad = converse(&c);
    if (!bad && options->stats) app_say_stats(&c.sum, 1, 0);
    cut(&c, 0);
    free(c.messages);
    aerie_session_free(c.session);
    app_models_free(&c.models);
    return bad;
}

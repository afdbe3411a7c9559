/* chat.c - aerie run on a terminal: a conversation, kept through the model's chat template.
 *
 * Owns: the messages so far. An answer that was interrupted stays in the conversation as far as it went; a message that cannot
 * be answered (the context is full), or whose answer was stopped before it began, is taken back. Nothing is ever forgotten
 * unasked. What the KV cache holds of the last turn is used for the next one.
 */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "run/generate.h"
#include "run/lines.h"
#include "common/commands.h"

typedef struct chat {
    const app_options *options;
    app_models models;
    aerie_session *session;
    app_lines *lines;
    aerie_message *messages; /* [n], contents owned, roles static; a system message first, if there is one */
    size_t n, capacity;
    aerie_stats sum;
    bool color, done;
    char *saved; /* the file of the last /save, which may be written again */
} chat;

static bool insert(chat *c, size_t at, const char *role, const char *content, size_t n)
{
    aerie_message *grown = app_grow(c->messages, c->n, &c->capacity, sizeof *grown);
    if (!grown) return false;
    c->messages = grown;
    char *copy = strndup(content, n);
    if (!copy) return false;
    memmove(grown + at + 1, grown + at, (c->n - at) * sizeof *grown);
    grown[at] = (aerie_message){role, copy};
    c->n++;
    return true;
}

static bool add(chat *c, const char *role, const char *content, size_t n)
{
    return insert(c, c->n, role, content, n);
}

static void drop(chat *c, size_t at, size_t n)
{
    for (size_t i = 0; i < n; i++) free((char *)c->messages[at + i].content);
    memmove(c->messages + at, c->messages + at + n, (c->n - at - n) * sizeof *c->messages);
    c->n -= n;
}

/* Where the turns begin. */
static size_t first_turn(const chat *c)
{
    return c->n && strcmp(c->messages[0].role, "system") == 0;
}

/* ---- Answers ---------------------------------------------------------------------------------------- */

static int generate(chat *c, app_prompt *prompt, bool *answered)
{
    const app_prompts prompts = {.items = prompt, .n = 1};
    app_generation g = {.models = &c->models, .options = c->options, .prompts = &prompts, .color = c->color};
    g.show = c->options->ids ? APP_SHOW_IDS : APP_SHOW_TEXT;
    app_interrupt_watch();
    int bad = app_generate(&g, c->session);
    if (bad == APP_INTERRUPTED) bad = APP_DONE;
    *answered = !bad && (g.stats[0].n_generated || g.stats[0].stop != AERIE_STOP_CALLER);
    if (*answered) {
        const app_text *text = &g.answers[0].text;
        if (!add(c, "assistant", text->data ? text->data : "", text->n)) bad = app_error_memory("the conversation");
        app_stats_add(&c->sum, &g.stats[0]);
        if (g.stats[0].stop == AERIE_STOP_CONTEXT)
            app_note("the context of %u tokens is full, so the answer ends here. Nothing is lost: /drop forgets the oldest "
                     "turn, /reset all of them, -c sets a larger context", (unsigned)aerie_session_n_ctx(c->session));
    }
    app_generation_free(&g);
    return bad;
}

/* Answers the last message, or takes it back. */
static int reply(chat *c)
{
    app_prompt prompt = {0};
    bool answered = false;
    int bad = app_conversation_encode(&c->models, c->messages, c->n, &prompt.tokens, &prompt.n_tokens);
    if (!bad && prompt.n_tokens >= aerie_session_n_ctx(c->session)) {
        drop(c, c->n - 1, 1);
        app_note("the conversation has %zu tokens with this message, but the context holds %u. The message was taken back "
                 "(it is in the history), nothing else is lost: /drop forgets "
                 "the oldest turn, /reset all of them, -c sets a larger context",
                 prompt.n_tokens, (unsigned)aerie_session_n_ctx(c->session));
    } else if (!bad) {
        bad = generate(c, &prompt, &answered);
        if (!bad && !answered) {
            drop(c, c->n - 1, 1);
            app_note("stopped before the answer began; the message was taken back");
        }
    }
    aerie_free(prompt.tokens);
    return bad;
}

/* ---- Commands ------------------------------------------------------------------------------------------ */

static const char *const commands_text[] = {
    "/reset            forget the conversation (the system message stays)",
    "/drop [N]         forget the N oldest turns, one if N is not given",
    "/system [TEXT]    set the system message; without TEXT remove it",
    "/stats            figures of the conversation so far, as --stats prints them",
    "/save FILE        the conversation as JSON: a list of {role, content}",
    "/quit             end; so do Ctrl-D and Ctrl-C twice",
    "Ctrl-C stops an answer. A line that ends in \\ goes on in the next one; \"\"\" begins and ends a",
    "message of several lines. A message that begins with / needs a space before it.",
};

static void say_help(void)
{
    for (size_t i = 0; i < sizeof commands_text / sizeof *commands_text; i++) fprintf(stderr, "%s\n", commands_text[i]);
}

void app_print_chat_commands(void)
{
    for (size_t i = 0; i < sizeof commands_text / sizeof *commands_text; i++) app_print("%s\n", commands_text[i]);
}

static int set_system(chat *c, const char *text)
{
    if (first_turn(c)) drop(c, 0, 1);
    if (!*text) app_note("there is no system message now");
    else if (!insert(c, 0, "system", text, strlen(text))) return app_error_memory("the conversation");
    else app_note("the system message is set; the turns so far stay");
    return APP_DONE;
}

static void drop_turns(chat *c, const char *text)
{
    const size_t first = first_turn(c), n_turns = (c->n - first) / 2;
    char *end;
    errno = 0;
    const long long n = *text ? strtoll(text, &end, 10) : 1;
    if (*text && (*end || errno || n < 1)) {
        app_note("/drop takes a number of turns from 1; found '%s'", text);
        return;
    }
    const size_t dropped = (unsigned long long)n < n_turns ? (size_t)n : n_turns;
    drop(c, first, 2 * dropped);
    app_note("forgot %zu turn%s; %zu left", dropped, dropped == 1 ? "" : "s", n_turns - dropped);
}

/* Writes to a new file, or over the one saved to before. */
static bool write_json(const chat *c, const char *path, const json_t *json)
{
    const bool again = c->saved && strcmp(c->saved, path) == 0;
    FILE *file = fopen(path, again ? "w" : "wx");
    if (!file) {
        app_note("cannot save to '%s': %s%s", path, strerror(errno), errno == EEXIST ? "; give another name" : "");
        return false;
    }
    errno = 0;
    const bool bad = json_dumpf(json, file, JSON_INDENT(2)) || fputc('\n', file) == EOF;
    if (!fclose(file) && !bad) return true;
    app_note("cannot write '%s': %s", path, errno ? strerror(errno) : "the text could not be written");
    return false;
}

static int save(chat *c, const char *name)
{
    const char *home = getenv("HOME");
    app_text path = {0};
    json_t *list = json_array();
    if (!*name) {
        app_note("/save needs the name of a file");
        json_decref(list);
        return APP_DONE;
    }
    bool ok = list != NULL;
    if (name[0] == '~' && name[1] == '/' && home) {
        ok = ok && app_text_add(&path, home, strlen(home));
        name++;
    }
    ok = ok && app_text_add(&path, name, strlen(name));
    for (size_t i = 0; ok && i < c->n; i++) {
        const aerie_message *m = &c->messages[i];
        json_t *content = app_json_text(m->content, strlen(m->content));
        ok = !json_array_append_new(list, json_pack("{s:s, s:o}", "role", m->role, "content", content));
    }
    if (ok && write_json(c, path.data, list)) {
        app_note("saved %zu message%s to '%s'", c->n, c->n == 1 ? "" : "s", path.data);
        free(c->saved);
        c->saved = strdup(path.data);
    }
    json_decref(list);
    app_text_free(&path);
    return ok ? APP_DONE : app_error_memory("the conversation");
}

/* `text`: what stands behind the command's name. */
static int run_command(chat *c, const char *name, const char *text)
{
    if (strcmp(name, "/quit") == 0 || strcmp(name, "/exit") == 0 || strcmp(name, "/bye") == 0) c->done = true;
    else if (strcmp(name, "/help") == 0 || strcmp(name, "/?") == 0) say_help();
    else if (strcmp(name, "/system") == 0) return set_system(c, text);
    else if (strcmp(name, "/stats") == 0) app_say_stats(&c->sum, 1, 0, c->session);
    else if (strcmp(name, "/save") == 0) return save(c, text);
    else if (strcmp(name, "/drop") == 0) drop_turns(c, text);
    else if (strcmp(name, "/reset") == 0 || strcmp(name, "/clear") == 0) {
        drop(c, first_turn(c), c->n - first_turn(c));
        app_note("the conversation is forgotten%s", c->n ? "; the system message stays" : "");
    } else {
        app_note("there is no command '%s'; /help lists them (a space before it sends it as a message)", name);
    }
    return APP_DONE;
}

static int command(chat *c, const char *line)
{
    char name[32];
    const size_t n = strcspn(line, " \t");
    const char *text = line + n;
    while (*text == ' ' || *text == '\t') text++;
    snprintf(name, sizeof name, "%.*s", (int)(n < 31 ? n : 31), line);
    return run_command(c, name, text);
}

/* ---- Messages of one or several lines --------------------------------------------------------------------- */

#define FENCE "\"\"\""

static bool ends_in_fence(const char *text, size_t n)
{
    return n >= 3 && memcmp(text + n - 3, FENCE, 3) == 0;
}

/* Adds the lines of a """ block behind its first three quotes, which are there already; or those behind a '\'. */
static app_line read_rest(chat *c, app_text *message, bool fenced)
{
    for (;;) {
        const char *line;
        size_t n;
        if (fenced ? ends_in_fence(message->data, message->n) : message->data[message->n - 1] != '\\') break;
        if (!fenced) message->n--;
        const app_line result = app_lines_read(c->lines, "... ", &line, &n);
        if (result != APP_LINE_READ) return result;
        app_lines_remember(c->lines, line);
        if (!app_text_add(message, "\n", 1) || !app_text_add(message, line, n))
            return app_error_memory("the message"), APP_LINE_FAILED;
    }
    if (fenced) message->data[message->n -= 3] = '\0';
    return APP_LINE_READ;
}

/* A message, or a command, which is one line. */
static app_line read_message(chat *c, app_text *message, bool *is_command)
{
    const char *line;
    size_t n;
    message->n = 0;
    app_line result = app_lines_read(c->lines, "> ", &line, &n);
    if (result != APP_LINE_READ) return result;
    app_lines_remember(c->lines, line);
    *is_command = *line == '/';
    const bool fenced = n >= 3 && memcmp(line, FENCE, 3) == 0;
    if (!app_text_add(message, line + 3 * fenced, n - 3 * (size_t)fenced))
        return app_error_memory("the message"), APP_LINE_FAILED;
    if (!*is_command && (fenced || n)) result = read_rest(c, message, fenced);
    return result;
}

static bool is_blank(const app_text *text)
{
    for (size_t i = 0; i < text->n; i++)
        if (!isspace((unsigned char)text->data[i])) return false;
    return true;
}

static int converse(chat *c)
{
    app_text message = {0};
    int bad = APP_DONE;
    bool warned = false; /* Ctrl-C once more ends */
    if (!c->options->quiet) app_note("/help lists commands, Ctrl-C stops an answer, Ctrl-D ends");
    while (!bad && !c->done) {
        bool is_command = false;
        const app_line result = read_message(c, &message, &is_command);
        if (result == APP_LINE_FAILED) bad = APP_FAILED;
        if (result == APP_LINE_END || (result == APP_LINE_INTERRUPTED && warned)) break;
        if (result == APP_LINE_INTERRUPTED) app_note("Ctrl-C again or Ctrl-D ends the chat");
        warned = result == APP_LINE_INTERRUPTED;
        if (result != APP_LINE_READ || is_blank(&message)) continue;
        if (is_command) {
            bad = command(c, message.data);
            continue;
        }
        bad = add(c, "user", message.data, message.n) ? reply(c) : app_error_memory("the conversation");
        c->done |= c->options->single_turn;
    }
    app_interrupt_disarm();
    app_text_free(&message);
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
    if (!bad && !(c.lines = app_lines_open(!options->no_history))) bad = app_error_memory("the line editor");
    if (!bad) {
        c.color = app_wants_color(options);
        bad = converse(&c);
    }
    if (!bad && options->stats) app_say_stats(&c.sum, 1, 0, c.session);
    app_lines_close(c.lines);
    drop(&c, 0, c.n);
    free(c.messages);
    free(c.saved);
    aerie_session_free(c.session);
    app_models_free(&c.models);
    return bad;
}

/* chat.c - aerie run on a terminal: a conversation, rendered with the model's chat template.
 * Owns the parts of a chat apart from the messages (conversation.h). An interrupted answer stays in the conversation up to the
 * interruption. When the context is full, the oldest turns are dropped, and a line says so. A message that cannot be answered
 * because it is longer than the context, or whose answer was stopped before it began, is removed. The KV cache of the last turn
 * is reused for the next one.
 *
 * Each answer has its own seed: the given one for the first, one more after each answer. The noise of a draw depends on seed
 * and position (draw/draw.h), so with one seed, prompts of equal length would get similar answers, and a model that has
 * degenerated once would degenerate again although that turn was dropped. */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "cli/commands.h"
#include "run/cache.h"
#include "run/conversation.h"
#include "run/generate.h"
#include "run/line_editor.h"
#include "run/terminal.h"
#include "setup/lookup.h"

typedef struct chat {
    const app_options *options; /* &own */
    app_options own;            /* the caller's options with another seed; what they point to is the caller's */
    app_models models;
    aerie_session *session;
    app_lines *lines;
    app_conversation talk;
    app_text attached; /* text of /read, which begins the next message */
    app_pictures shown; /* pictures of /image, which belong to the next message */
    aerie_tower *tower; /* NULL: no picture was shown yet, or the model cannot read them */
    aerie_stats sum;
    app_cache cache;
    bool color, done;
    app_saved saved;
} chat;

static bool add(chat *c, const char *role, const char *content, size_t n)
{
    return app_conversation_insert(&c->talk, c->talk.n, role, content, n);
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
    if (!bad) app_generation_check(&g); /* prints the reason; the chat continues */
    *answered = !bad && (g.stats[0].n_generated || g.stats[0].stop != AERIE_STOP_CALLER);
    if (*answered) {
        const app_text *text = &g.answers[0].text;
        if (!add(c, "assistant", text->data ? text->data : "", text->n)) bad = app_error_memory("the conversation");
        app_stats_add(&c->sum, &g.stats[0]);
        c->own.sampling.seed++;
        if (!bad && g.answers[0].n_ids) bad = app_cache_note(&c->cache, c->models.model, prompt, &g.answers[0]);
        if (g.stats[0].stop == AERIE_STOP_CONTEXT)
            app_note("the context of %u tokens is full, so the answer ends here; your next message makes room by forgetting "
                     "the oldest turns, and -c sets a larger context", (unsigned)aerie_session_n_ctx(c->session));
    }
    app_generation_free(&g);
    return bad;
}

static void drop_prompt(app_prompt *prompt)
{
    aerie_free(prompt->tokens);
    aerie_prompt_free(prompt->pictured);
    prompt->tokens = NULL;
    prompt->pictured = NULL;
}

static size_t count_pictures(const app_conversation *talk, size_t from)
{
    size_t n = 0;
    for (size_t i = from; i < talk->n; i++) n += talk->pictures[i].n;
    return n;
}

static bool on_picture(void *user, uint64_t done, uint64_t total)
{
    int *percent = user;
    if (done < total) app_progress_show("reading the image", done, total, percent);
    else app_progress_clear(percent);
    return !app_interrupted();
}

/* messages [n]: those of the conversation from `from` on, after a system message if there is one, which has no pictures. */
static int encode_pictures(const chat *c, const aerie_message *messages, size_t n, size_t from, app_prompt *prompt)
{
    const size_t n_images = count_pictures(&c->talk, from);
    const aerie_image **images = malloc(n_images * sizeof *images);
    aerie_error error = {0};
    int percent = -1;
    size_t k = 0;
    if (!images) return app_error_memory("the pictures");
    for (size_t i = from; i < c->talk.n; i++)
        for (size_t j = 0; j < c->talk.pictures[i].n; j++) images[k++] = c->talk.pictures[i].items[j].image;
    aerie_chat talk = app_format_chat(&c->models.format);
    talk.turns = messages;
    talk.n_turns = n;
    app_interrupt_watch();
    const aerie_status status = aerie_tower_chat(c->tower, &talk, app_picture_mark(), images, n_images, on_picture, &percent,
                                                 &prompt->pictured, &error);
    app_progress_clear(&percent);
    free(images);
    prompt->n_tokens = aerie_prompt_n_positions(prompt->pictured);
    return status == AERIE_ERROR_CANCELLED ? APP_INTERRUPTED : app_report(APP_WORKING, status, &error);
}

/* Encodes the conversation without its n oldest turns. */
static int encode_without(const chat *c, size_t n, app_prompt *prompt)
{
    const app_conversation *talk = &c->talk;
    const size_t first = app_conversation_first(talk), at = n ? app_conversation_turn(talk, n) : first;
    aerie_message *kept = malloc((talk->n + 1) * sizeof *kept);
    if (!kept) return app_error_memory("the conversation");
    if (first) kept[0] = talk->messages[0];
    memcpy(kept + first, talk->messages + at, (talk->n - at) * sizeof *kept);
    drop_prompt(prompt);
    const size_t n_kept = first + talk->n - at;
    const int bad = count_pictures(talk, at) ? encode_pictures(c, kept, n_kept, at, prompt)
                                             : app_conversation_encode(&c->models, kept, n_kept, &prompt->tokens,
                                                                       &prompt->n_tokens);
    free(kept);
    return bad;
}

/* Returns the number of tokens that should be left for an answer. */
static size_t answer_room(const chat *c)
{
    const size_t n_ctx = aerie_session_n_ctx(c->session);
    const size_t room = n_ctx / 4 < 1024 ? n_ctx / 4 : 1024;
    const int32_t n_predict = c->options->n_predict;
    return n_predict > 0 && (size_t)n_predict < room ? (size_t)n_predict : room;
}

/* Encodes the conversation. Drops as many of the oldest turns as necessary to leave room for an answer. */
static int encode(chat *c, app_prompt *prompt)
{
    const size_t n_ctx = aerie_session_n_ctx(c->session), limit = n_ctx - answer_room(c);
    const size_t n_turns = app_conversation_turns(&c->talk);
    int bad = encode_without(c, 0, prompt);
    if (bad || prompt->n_tokens <= limit || n_turns < 2) return bad;
    size_t low = 0, high = n_turns - 1; /* without `low` turns it does not fit; without `high` it does, or cannot */
    while (!bad && high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        bad = encode_without(c, middle, prompt);
        if (prompt->n_tokens <= limit) high = middle;
        else low = middle;
    }
    if (!bad) bad = encode_without(c, high, prompt);
    if (bad || prompt->n_tokens >= n_ctx) return bad; /* not even the last message fits, so the others stay */
    const size_t first = app_conversation_first(&c->talk);
    app_conversation_drop(&c->talk, first, app_conversation_turn(&c->talk, high) - first);
    if (high == 1) app_note("the context of %zu tokens is full: the oldest turn is forgotten", n_ctx);
    else app_note("the context of %zu tokens is full: the %zu oldest turns are forgotten", n_ctx, high);
    return APP_DONE;
}

/* Answers the last message, or prints why it cannot. */
static int answer(chat *c, bool *answered)
{
    const unsigned n_ctx = (unsigned)aerie_session_n_ctx(c->session);
    app_prompt prompt = {0};
    *answered = false;
    int bad = encode(c, &prompt);
    if (bad == APP_INTERRUPTED) {
        bad = APP_DONE;
        app_note("stopped before the answer began");
    } else if (!bad && prompt.n_tokens >= n_ctx) {
        app_note("the message is too long: it takes %zu tokens, but the context holds %u; -c sets a larger one",
                 prompt.n_tokens, n_ctx);
    } else if (!bad) {
        bad = generate(c, &prompt, answered);
        if (!bad && !*answered) app_note("stopped before the answer began");
    }
    drop_prompt(&prompt);
    return bad;
}

/* Answers the last message, or removes it. */
static int reply(chat *c)
{
    bool answered = false;
    const int bad = answer(c, &answered);
    if (!bad && !answered) {
        app_pictures *pictures = &c->talk.pictures[c->talk.n - 1];
        if (pictures->n) c->shown = *pictures; /* none were shown since */
        *pictures = (app_pictures){0};
        app_conversation_drop(&c->talk, c->talk.n - 1, 1);
        app_note("the message was taken back; the arrow keys bring it again");
    }
    return bad;
}

/* ---- Commands ------------------------------------------------------------------------------------------ */

static int reset(chat *c, const char *text)
{
    (void)text;
    app_conversation *talk = &c->talk;
    app_conversation_drop(talk, app_conversation_first(talk), talk->n - app_conversation_first(talk));
    c->attached.n = 0;
    app_pictures_free(&c->shown);
    app_note("the conversation is forgotten%s", talk->n ? "; the system message stays" : "");
    return APP_DONE;
}

static int forget(chat *c, const char *text)
{
    const size_t first = app_conversation_first(&c->talk), n_turns = app_conversation_turns(&c->talk);
    char *end;
    errno = 0;
    const long long n = *text ? strtoll(text, &end, 10) : 1;
    if (*text && (*end || errno || n < 1)) {
        app_note("/drop takes a number of turns from 1; found '%s'", text);
        return APP_DONE;
    }
    const size_t dropped = (unsigned long long)n < n_turns ? (size_t)n : n_turns;
    app_conversation_drop(&c->talk, first, app_conversation_turn(&c->talk, dropped) - first);
    app_note("forgot %zu turn%s; %zu left", dropped, app_plural(dropped), n_turns - dropped);
    return APP_DONE;
}

static int set_system(chat *c, const char *text)
{
    if (app_conversation_first(&c->talk)) app_conversation_drop(&c->talk, 0, 1);
    if (!*text) app_note("there is no system message now");
    else if (!app_conversation_insert(&c->talk, 0, "system", text, strlen(text))) return app_error_memory("the conversation");
    else app_note("the system message is set; the turns so far stay");
    return APP_DONE;
}

/* Generates another answer in place of the last one, which stays if the new one does not begin. */
static int regenerate(chat *c, const char *text)
{
    (void)text;
    app_conversation *talk = &c->talk;
    const bool had = talk->n > app_conversation_first(talk) && strcmp(talk->messages[talk->n - 1].role, "assistant") == 0;
    if (talk->n < app_conversation_first(talk) + 1 + had) {
        app_note("there is no message to answer again");
        return APP_DONE;
    }
    const aerie_message old = talk->messages[talk->n - 1];
    bool answered = false;
    talk->n -= had;
    if (had && c->own.sampling.temperature > 0) c->own.sampling.seed++;
    else if (had) app_note("at temperature 0 the same message gets the same answer");
    const int bad = answer(c, &answered);
    if (!had) return bad;
    if (answered) {
        free((char *)old.content);
        return bad;
    }
    talk->pictures[talk->n] = (app_pictures){0}; /* deletions may have left a copy of another message's pictures here */
    talk->messages[talk->n++] = old;              /* there is still space for it, because nothing was added */
    if (!bad) app_note("the old answer stays");
    return bad;
}

static int show_stats(chat *c, const char *text)
{
    (void)text;
    app_say_stats(&c->sum, 1, 0, c->session);
    return APP_DONE;
}

/* Reads the name of a file: replaces ~/ by $HOME/, and removes surrounding quotes. */
static bool file_name(app_text *path, const char *text)
{
    const char *home = getenv("HOME");
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1])) n--;
    if (n > 1 && (*text == '"' || *text == '\'') && text[n - 1] == *text) text++, n -= 2;
    bool ok = true;
    if (n > 1 && text[0] == '~' && text[1] == '/' && home) {
        ok = app_text_add(path, home, strlen(home));
        text++, n--;
    }
    return ok && app_text_add(path, text, n);
}

static int save_to(chat *c, const char *text, bool force)
{
    app_text path = {0};
    if (!*text && !c->saved.path) {
        app_note("/save needs the name of a file");
        return APP_DONE;
    }
    const bool ok = file_name(&path, *text ? text : c->saved.path);
    if (ok) app_conversation_save(&c->talk, path.data, force, &c->saved);
    app_text_free(&path);
    return ok ? APP_DONE : app_error_memory("the name of a file");
}

static int save(chat *c, const char *text)
{
    const bool force = strncmp(text, "-f", 2) == 0 && (text[2] == ' ' || text[2] == '\0');
    return save_to(c, text + (force ? 2 + strspn(text + 2, " ") : 0), force);
}

static int save_anyway(chat *c, const char *text)
{
    return save_to(c, text, true);
}

/* Loads the tower when the first picture is shown. Returns false after a message if there is none. */
static bool has_tower(chat *c)
{
    if (!c->tower && app_tower_load(&c->tower, &c->models, c->options) != APP_DONE) return false; /* it said why */
    if (!c->tower) app_note("this model reads text only; --mmproj FILE names the part that reads images");
    return c->tower != NULL;
}

static bool load_talk(chat *c, const char *path)
{
    app_conversation loaded = {0};
    if (!app_conversation_load(&loaded, path)) return false;
    if (count_pictures(&loaded, 0) && !has_tower(c)) {
        app_conversation_free(&loaded);
        return false;
    }
    app_conversation_free(&c->talk);
    c->talk = loaded;
    return true;
}

static int load(chat *c, const char *text)
{
    app_text path = {0};
    if (!*text) {
        app_note("/load needs the name of a file that /save wrote");
        return APP_DONE;
    }
    const bool ok = file_name(&path, text);
    const size_t before = c->talk.n - app_conversation_first(&c->talk);
    if (ok && load_talk(c, path.data)) {
        const size_t n = c->talk.n, n_turns = app_conversation_turns(&c->talk);
        app_note("loaded %zu message%s (%zu turn%s) from '%s'%s%s", n, app_plural(n), n_turns, app_plural(n_turns),
                 path.data, before ? ", in place of the conversation so far" : "",
                 n > app_conversation_first(&c->talk) && strcmp(c->talk.messages[n - 1].role, "user") == 0
                     ? "; /regen answers the last one" : "");
    }
    app_text_free(&path);
    return ok ? APP_DONE : app_error_memory("the name of a file");
}

static int attach(chat *c, const char *text)
{
    enum { LIMIT = 4 << 20 }; /* limit for everything that is attached to one message */
    app_text path = {0};
    char size[32];
    if (!*text) {
        app_note("/read needs the name of a text file");
        return APP_DONE;
    }
    const size_t before = c->attached.n;
    bool ok = file_name(&path, text);
    if (ok && app_text_read(&c->attached, path.data, LIMIT - before)) {
        if (c->attached.n == before) app_note("'%s' is empty", path.data);
        else {
            app_note("read %s from '%s': they begin your next message, and an empty line sends them alone",
                     app_bytes(size, c->attached.n - before), path.data);
            ok = c->attached.data[c->attached.n - 1] == '\n' || app_text_add(&c->attached, "\n", 1);
        }
    }
    app_text_free(&path);
    return ok ? APP_DONE : app_error_memory("the file");
}

/* Adds the picture to the next message. Returns false after a message if it cannot. */
static bool show_picture(chat *c, const char *path)
{
    aerie_error error = {0};
    uint32_t w, h, n_rows;
    if (!has_tower(c) || !app_pictures_add(&c->shown, path)) return false;
    const app_picture *p = &c->shown.items[c->shown.n - 1];
    aerie_image_size(p->image, &w, &h);
    if (aerie_tower_n_rows(c->tower, w, h, &n_rows, &error) == AERIE_OK) {
        app_note("'%s', %u x %u pixels, %u token%s: it comes before your next message", p->path, (unsigned)w, (unsigned)h,
                 (unsigned)n_rows, app_plural(n_rows));
        return true;
    }
    app_note("'%s': %s", p->path, error.text);
    free(p->path);
    aerie_image_free(p->image);
    c->shown.n--;
    return false;
}

static int show(chat *c, const char *text)
{
    app_text path = {0};
    for (size_t i = 0; !*text && i < c->shown.n; i++) app_note("before your next message: '%s'", c->shown.items[i].path);
    if (!*text && !c->shown.n) app_note("/image needs the name of a file (%s)", aerie_image_formats());
    const bool ok = !*text || file_name(&path, text);
    if (*text && ok) (void)show_picture(c, path.data);
    app_text_free(&path);
    return ok ? APP_DONE : app_error_memory("the name of a file");
}

static int quit(chat *c, const char *text)
{
    (void)text;
    c->done = true;
    return APP_DONE;
}

static int say_help(chat *c, const char *text);

/* The names of one command are adjacent; the first row has its help. */
static const struct {
    const char *name, *usage, *help;
    int (*run)(chat *c, const char *text);
} commands[] = {
    {"/reset", "/reset", "forget the conversation; the system message stays", reset},
    {"/clear", NULL, NULL, reset},
    {"/drop", "/drop [N]", "forget the N oldest turns (default: 1)", forget},
    {"/system", "/system [TEXT]", "set the system message; without TEXT remove it", set_system},
    {"/regen", "/regen", "answer the last message again, with another seed", regenerate},
    {"/read", "/read FILE", "put a text file at the beginning of the next message", attach},
    {"/image", "/image FILE", "put a picture before the next message, as pasting its path does", show},
    {"/save", "/save FILE", "write the conversation as JSON; '/save!' replaces a file", save},
    {"/save!", NULL, NULL, save_anyway},
    {"/load", "/load FILE", "continue a conversation that /save wrote", load},
    {"/stats", "/stats", "figures of the conversation so far, as --stats prints them", show_stats},
    {"/help", "/help", "this list", say_help},
    {"/?", NULL, NULL, say_help},
    {"/quit", "/quit", "end; so do Ctrl-D, and Ctrl-C twice", quit},
    {"/exit", NULL, NULL, quit},
    {"/bye", NULL, NULL, quit},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static const char help_end[] =
    "Ctrl-C stops an answer. Tab completes commands and files. A line that ends in \\\n"
    "is continued on the next one. \"\"\" begins and ends a message of several lines;\n"
    "lines that are pasted are one message, which Enter sends. To begin a message\n"
    "with /, put a space before it.\n";

static int say_help(chat *c, const char *text)
{
    (void)c;
    (void)text;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (commands[i].usage) fprintf(stderr, "%-15s %s\n", commands[i].usage, commands[i].help);
    }
    fputs(help_end, stderr);
    return APP_DONE;
}

void app_print_chat_commands(void)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (commands[i].usage) app_print("%-15s %s\n", commands[i].usage, commands[i].help);
    }
    app_print("%s", help_end);
}

static int command(chat *c, const char *line)
{
    char name[32];
    const size_t n = strcspn(line, " \t");
    const char *text = line + n, *best = NULL;
    while (*text == ' ' || *text == '\t') text++;
    snprintf(name, sizeof name, "%.*s", (int)(n < 31 ? n : 31), line);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) return commands[i].run(c, text);
        best = app_nearest(name, best, commands[i].name);
    }
    if (best) app_note("there is no command '%s'; did you mean '%s'?", name, best);
    else app_note("there is no command '%s'; /help lists them. To send it as a message, put a space before it", name);
    return APP_DONE;
}

/* Completes commands, and for those that take a file its name, when Tab is pressed. */
static bool complete(app_choices *choices, const char *text)
{
    const size_t n = strcspn(text, " ");
    bool ok = true, takes_file = false;
    if (*text != '/') return true;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const char *name = commands[i].name, *usage = commands[i].usage;
        const bool has_file = commands[i].run == save_anyway || (usage && strstr(usage, " FILE"));
        if (text[n]) takes_file |= has_file && strlen(name) == n && strncmp(name, text, n) == 0;
        else if (strncmp(name, text, n) == 0) ok = ok && app_choices_add(choices, name, strlen(name), has_file ? " " : "");
    }
    if (!takes_file) return ok;
    app_choices files = {0};
    size_t n_before = n + strspn(text + n, " ");
    n_before += text[n_before] == '"' || text[n_before] == '\'';
    ok = app_choices_add_files(&files, text + n_before);
    for (size_t i = 0; ok && i < files.n; i++) {
        app_text whole = {0};
        ok = app_text_add(&whole, text, n_before) && app_choices_add(choices, whole.data, whole.n, files.items[i]);
        app_text_free(&whole);
    }
    app_choices_free(&files);
    return ok;
}

/* ---- Messages of one or several lines --------------------------------------------------------------------- */

#define FENCE "\"\"\""

static bool ends_in_fence(const char *text, size_t n)
{
    return n >= 3 && memcmp(text + n - 3, FENCE, 3) == 0;
}

/* Returns whether a line begins a """ block. In several pasted lines, these may be the quotes of a programming language, which
 * come in pairs. */
static bool opens_fence(const char *line, size_t n)
{
    size_t n_fences = 0;
    if (n < 3 || memcmp(line, FENCE, 3)) return false;
    if (!memchr(line, '\n', n)) return true;
    for (const char *at = line; (at = strstr(at, FENCE)); at += 3) n_fences++;
    return n_fences % 2 || (n_fences == 2 && ends_in_fence(line, n));
}

/* Appends the lines of a """ block to its first line, which was read without the quotes; or the lines that follow a '\'. */
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

/* Reads a message, or a command, which is one line. */
static app_line read_message(chat *c, app_text *message, bool *is_command)
{
    const char *line;
    size_t n;
    message->n = 0;
    app_line result = app_lines_read(c->lines, "> ", &line, &n);
    if (result != APP_LINE_READ) return result;
    app_lines_remember(c->lines, line);
    const bool is_one_line = !memchr(line, '\n', n), fenced = opens_fence(line, n);
    *is_command = *line == '/' && is_one_line;
    if (!app_text_add(message, line + 3 * fenced, n - 3 * (size_t)fenced))
        return app_error_memory("the message"), APP_LINE_FAILED;
    if (fenced || (!*is_command && is_one_line && n)) result = read_rest(c, message, fenced);
    return result;
}

/* Finds the path of a picture at the beginning of a message, as terminals write it when a file is dropped on them: in quotes,
 * with backslashes, or plain. *rest: the text after it. Returns false if there is none. */
static bool begins_with_picture(const char *text, app_text *path, const char **rest)
{
    static const char *const ends[] = {".png", ".jpg", ".jpeg", ".webp"};
    const char quote = *text == '\'' || *text == '"' ? *text : '\0';
    struct stat there;
    app_text raw = {0};
    bool ok = true, known = false;
    const char *at = text + (quote != '\0');
    for (; ok && *at && (quote ? *at != quote : !isspace((unsigned char)*at)); at++) {
        at += !quote && at[0] == '\\' && at[1];
        ok = app_text_add(&raw, at, 1);
    }
    at += quote && *at == quote;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n = strlen(ends[i]);
        known |= raw.n > n && strcasecmp(raw.data + raw.n - n, ends[i]) == 0;
    }
    ok = ok && known && strchr("/~.", *raw.data) && (!*at || isspace((unsigned char)*at)) && file_name(path, raw.data) &&
         stat(path->data, &there) == 0 && S_ISREG(there.st_mode);
    app_text_free(&raw);
    *rest = at + strspn(at, " \t");
    return ok;
}

/* Moves the pictures at the beginning of a message out of its text. *bare: no text is left. */
static void take_pictures(chat *c, app_text *message, bool *bare)
{
    const char *rest = NULL;
    app_text path = {0};
    *bare = false;
    while (begins_with_picture(message->data, &path, &rest) && show_picture(c, path.data)) {
        message->n -= (size_t)(rest - message->data);
        memmove(message->data, rest, message->n + 1);
        *bare = !message->n;
        path.n = 0;
    }
    app_text_free(&path);
}

static bool is_blank(const app_text *text)
{
    for (size_t i = 0; i < text->n; i++)
        if (!isspace((unsigned char)text->data[i])) return false;
    return true;
}

/* Sends the message after the text that /read attached. */
static int send(chat *c, const app_text *message)
{
    app_text whole = {0};
    bool ok = app_text_add(&whole, c->attached.data, c->attached.n) && app_text_add(&whole, message->data, message->n);
    ok = ok && (c->shown.n ? app_conversation_show(&c->talk, whole.data, whole.n, &c->shown)
                           : add(c, "user", whole.data, whole.n));
    c->attached.n = 0;
    app_text_free(&whole);
    const int bad = ok ? reply(c) : app_error_memory("the conversation");
    c->done |= c->options->single_turn;
    return bad;
}

/* opening: the first message, as if it had been typed, or NULL. */
static int converse(chat *c, const app_prompt *opening)
{
    app_text message = {0};
    int bad = APP_DONE;
    bool warned = false; /* Ctrl-C once more ends */
    app_interrupt_arm(); /* SIGTERM and SIGHUP end the chat cleanly, so that the terminal's modes are restored */
    if (!c->options->quiet) app_note("/help lists commands, Ctrl-C stops an answer, Ctrl-D ends");
    if (opening) {
        char title[80];
        app_prompt_title(opening, title);
        fputs("> ", stderr);
        app_escape(stderr, title, strlen(title));
        fputc('\n', stderr);
        bad = send(c, &opening->text);
    }
    while (!bad && !c->done) {
        bool is_command = false;
        const app_line result = read_message(c, &message, &is_command);
        if (result == APP_LINE_FAILED) bad = APP_FAILED;
        if (result == APP_LINE_END || (result == APP_LINE_INTERRUPTED && (warned || app_interrupt_ends())))
            break;
        if (result == APP_LINE_INTERRUPTED) app_note("Ctrl-C again or Ctrl-D ends the chat");
        warned = result == APP_LINE_INTERRUPTED;
        if (result != APP_LINE_READ || (is_blank(&message) && !c->attached.n && !c->shown.n)) continue;
        bool bare = false;
        take_pictures(c, &message, &bare);
        if (bare) continue;
        is_command = is_command && *message.data == '/';
        if (is_command) {
            bad = command(c, message.data);
            continue;
        }
        bad = send(c, &message);
    }
    app_interrupt_disarm();
    app_text_free(&message);
    return bad;
}

/* Reads the first message of the chat, from -p or -f, if there is one. */
static int read_opening(app_prompts *prompts, const app_options *options)
{
    if (options->chat.messages) return app_error(APP_USAGE, "--messages is answered once; -cnv does not go with it");
    const int bad = app_prompts_read(prompts, options, false);
    if (bad) return bad;
    if (prompts->n > 1 || options->prompts_file)
        return app_error(APP_USAGE, "a chat begins with one message; found %zu", prompts->n);
    if (prompts->n && memchr(prompts->items[0].text.data, '\0', prompts->items[0].text.n))
        return app_error(APP_USAGE, "the prompt contains a NUL byte, which no chat template accepts; see -no-cnv");
    return APP_DONE;
}

int app_chat(const app_options *options)
{
    const aerie_spec_type type = options->session.spec.type;
    app_prompts opening = {0};
    chat c = {.own = *options};
    c.options = &c.own;
    if (!options->run.no_wrap) app_note_wrap();
    if (type == AE_SPEC_ORACLE) return app_error(APP_USAGE, "--spec-type oracle needs a prompt (-p)");
    if (options->json || options->jsonl)
        return app_error(APP_USAGE, "--%s needs a prompt (-p)%s", options->json ? "json" : "jsonl",
                         options->conversation ? " and no chat (-cnv)" : "");
    if (options->no_conversation) return app_error(APP_USAGE, "-no-cnv needs a prompt (-p, -f or standard input)");
    int bad = read_opening(&opening, options);
    if (!bad && !(c.lines = app_lines_open(!options->run.no_history, complete))) bad = app_error_memory("the line editor");
    if (!bad) app_terminal_hush(); /* what is typed or pasted while the model loads waits for the first prompt */
    if (!bad) bad = app_models_load(&c.models, options, app_wants_draft(type), APP_NEED_TEXT);
    if (!bad) bad = app_need_text(&c.models, options);
    if (!bad) bad = app_session_open(&c.session, &c.models, options, type);
    if (!bad) bad = app_cache_open(&c.cache, options, c.session);
    if (!bad) {
        app_say_speculation(c.session, options, !options->quiet);
    }
    if (!bad && options->system_prompt && !add(&c, "system", options->system_prompt, strlen(options->system_prompt))) {
        bad = app_error_memory("the conversation");
    }
    if (!bad) {
        c.color = app_wants_color(options);
        bad = converse(&c, opening.n ? opening.items : NULL);
    }
    if (!bad) {
        const int cache_bad = app_cache_save(&c.cache, c.session); /* if it fails, the other file is still written */
        bad = app_lookup_save(c.session, options);
        if (cache_bad) bad = cache_bad;
    }
    if (!bad && options->stats) app_say_stats(&c.sum, 1, 0, c.session);
    app_cache_free(&c.cache);
    app_lines_close(c.lines);
    app_conversation_free(&c.talk);
    app_text_free(&c.attached);
    app_pictures_free(&c.shown);
    aerie_tower_free(c.tower);
    free(c.saved.path);
    app_prompts_free(&opening);
    aerie_session_free(c.session);
    app_models_free(&c.models);
    return bad;
}

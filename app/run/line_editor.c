/* line_editor.c - implements line_editor.h. */
#define _XOPEN_SOURCE 700
#include "run/line_editor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef APP_LIBEDIT

#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <sys/stat.h>
#include <wchar.h>

#define HISTORY_LINES 1000

struct app_lines {
    EditLine *edit; /* NULL: standard error is no terminal to edit on */
    History *history;
    char *path; /* of the history; NULL: not kept */
    const char *prompt;
    app_text text;
};

/* ---- Where the history is ------------------------------------------------------------------------ */

/* Makes the folders before the last '/' of path. */
static bool make_folders(char *path)
{
    for (char *p = path + 1; *p; p++) {
        if (*p != '/') continue;
        *p = '\0';
        const bool ok = mkdir(path, 0700) == 0 || errno == EEXIST;
        *p = '/';
        if (!ok) return false;
    }
    return true;
}

/* $XDG_STATE_HOME/aerie/history, as the XDG base directory specification has it; NULL if there is no such place. */
static char *history_path(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    app_text path = {0};
    bool ok = false;
    if (state && *state == '/') ok = app_text_add(&path, state, strlen(state));
    else if (home && *home == '/') ok = app_text_add(&path, home, strlen(home)) && app_text_add(&path, "/.local/state", 13);
    if (ok && app_text_add(&path, "/aerie/history", 14) && make_folders(path.data)) return path.data;
    app_text_free(&path);
    return NULL;
}

/* ---- The editor ----------------------------------------------------------------------------------- */

static volatile sig_atomic_t resized, continued;

static void on_resize(int signal_number)
{
    (void)signal_number;
    resized = 1;
}

static void on_continue(int signal_number)
{
    (void)signal_number;
    continued = 1;
}

static void handle(int signal_number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    sigemptyset(&action.sa_mask);
    sigaction(signal_number, &action, NULL);
}

static char *prompt_of(EditLine *edit)
{
    app_lines *lines = NULL;
    el_get(edit, EL_CLIENTDATA, &lines);
    return (char *)lines->prompt;
}

/* One character from the terminal. Replaces libedit's function, because Ctrl-C must end the line, while a new window size or
 * a return from the background must not. */
static int get_char(EditLine *edit, wchar_t *c)
{
    mbstate_t state = {0};
    for (;;) {
        char byte;
        const ssize_t got = app_interrupted() ? -1 : read(STDIN_FILENO, &byte, 1);
        if (got == 0) return 0;
        if (got < 0) {
            if (app_interrupted() || errno != EINTR) return -1;
            if (resized) el_resize(edit);
            if (continued) {
                el_set(edit, EL_PREP_TERM, 1);
                el_set(edit, EL_REFRESH);
            }
            resized = continued = 0;
            continue;
        }
        const size_t n = mbrtowc(c, &byte, 1, &state);
        if (n == (size_t)-2) continue; /* more bytes belong to it */
        if (n == (size_t)-1) {
            memset(&state, 0, sizeof state);
            *c = L'?';
        } else if (n == 0) {
            *c = L'\0';
        }
        return 1;
    }
}

static void set_keys(EditLine *edit)
{
    static const char *const keys[][2] = {
        {"\\e[1~", "ed-move-to-beg"}, {"\\e[4~", "ed-move-to-end"},      {"\\e[H", "ed-move-to-beg"},
        {"\\e[F", "ed-move-to-end"},  {"\\e[3~", "ed-delete-next-char"}, {"\\e[1;5D", "ed-prev-word"},
        {"\\e[1;5C", "em-next-word"}, {"^R", "em-inc-search-prev"},      {"^W", "ed-delete-prev-word"},
    };
    el_set(edit, EL_EDITOR, "emacs");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) el_set(edit, EL_BIND, keys[i][0], keys[i][1], NULL);
}

app_lines *app_lines_open(bool remember)
{
    app_lines *lines = calloc(1, sizeof *lines);
    HistEvent event;
    if (!lines || !isatty(STDERR_FILENO)) return lines;
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8")) setlocale(LC_CTYPE, "C.UTF-8");
    lines->edit = el_init("aerie", stdin, stderr, stderr);
    lines->history = history_init();
    if (!lines->edit || !lines->history) {
        app_lines_close(lines);
        return NULL;
    }
    el_set(lines->edit, EL_CLIENTDATA, lines);
    el_set(lines->edit, EL_PROMPT, prompt_of);
    el_set(lines->edit, EL_SIGNAL, 0);
    set_keys(lines->edit);
    el_set(lines->edit, EL_GETCFN, get_char);
    history(lines->history, &event, H_SETSIZE, HISTORY_LINES);
    history(lines->history, &event, H_SETUNIQUE, 1);
    el_set(lines->edit, EL_HIST, history, lines->history);
    if (remember && (lines->path = history_path())) history(lines->history, &event, H_LOAD, lines->path);
    el_source(lines->edit, NULL); /* ~/.editrc */
    handle(SIGWINCH, on_resize);
    handle(SIGCONT, on_continue);
    return lines;
}

void app_lines_close(app_lines *lines)
{
    if (!lines) return;
    if (lines->edit) el_end(lines->edit);
    if (lines->history) history_end(lines->history);
    free(lines->path);
    app_text_free(&lines->text);
    free(lines);
}

void app_lines_remember(app_lines *lines, const char *line)
{
    HistEvent event;
    if (!lines->history || !*line) return;
    history(lines->history, &event, H_ENTER, line);
    if (lines->path) history(lines->history, &event, H_SAVE, lines->path);
}

#else /* plain lines */

struct app_lines {
    app_text text;
};

app_lines *app_lines_open(bool remember)
{
    (void)remember;
    return calloc(1, sizeof(app_lines));
}

void app_lines_close(app_lines *lines)
{
    if (lines) app_text_free(&lines->text);
    free(lines);
}

void app_lines_remember(app_lines *lines, const char *line)
{
    (void)lines;
    (void)line;
}

#endif

static app_line read_plain(app_lines *lines, const char *prompt, const char **line, size_t *n)
{
    app_text *text = &lines->text;
    fputs(prompt, stderr);
    fflush(stderr);
    text->n = 0;
    if (!app_text_add(text, "", 0)) return app_error_memory("a line"), APP_LINE_FAILED;
    for (;;) {
        char byte;
        const ssize_t got = app_interrupted() ? -1 : read(STDIN_FILENO, &byte, 1);
        if (got < 0 && errno == EINTR && !app_interrupted()) continue;
        if (got < 0 && app_interrupted()) return APP_LINE_INTERRUPTED;
        if (got <= 0 && !text->n) return APP_LINE_END;
        if (got <= 0 || byte == '\n') break;
        if (!app_text_add(text, &byte, 1)) return app_error_memory("a line"), APP_LINE_FAILED;
    }
    *line = text->data;
    *n = text->n;
    return APP_LINE_READ;
}

app_line app_lines_read(app_lines *lines, const char *prompt, const char **line, size_t *n)
{
    app_interrupt_watch();
    app_line result;
#ifdef APP_LIBEDIT
    if (lines->edit) {
        int length = 0;
        lines->prompt = prompt;
        const char *got = el_gets(lines->edit, &length);
        result = app_interrupted() ? APP_LINE_INTERRUPTED : !got || length <= 0 ? APP_LINE_END : APP_LINE_READ;
        if (result == APP_LINE_READ) {
            lines->text.n = 0;
            if (!app_text_add(&lines->text, got, (size_t)length)) return app_error_memory("a line"), APP_LINE_FAILED;
            if (lines->text.data[lines->text.n - 1] == '\n') lines->text.data[--lines->text.n] = '\0';
            *line = lines->text.data;
            *n = lines->text.n;
        }
    } else
#endif
        result = read_plain(lines, prompt, line, n);
    if (result != APP_LINE_READ) fputc('\n', stderr);
    return result;
}

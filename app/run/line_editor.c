/* line_editor.c - implements line_editor.h. */
#define _XOPEN_SOURCE 700
#include "run/line_editor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "run/terminal.h"

/* Reads one byte of standard input. Returns 1; 0 at the end; -1 when interrupted or failed; -2 after a signal that may have
 * changed the terminal. */
static int read_byte(char *byte)
{
    const ssize_t got = app_interrupted() ? -1 : read(STDIN_FILENO, byte, 1);
    if (got >= 0) return (int)got;
    return app_interrupted() || errno != EINTR ? -1 : -2;
}

/* ---- What is pasted ------------------------------------------------------------------------------- */

/* Appends pasted text up to its end mark, without the mark and without one newline before it: the user presses Enter. END: the
 * mark is missing. */
static app_line paste_read(app_text *text)
{
    const size_t from = text->n, n_mark = strlen(APP_PASTE_ENDS);
    for (;;) {
        char byte = 0;
        const int got = read_byte(&byte);
        if (got == -2) continue;
        if (byte == '\r') byte = '\n'; /* terminals send line ends in this form */
        if (got <= 0) return app_interrupted() ? APP_LINE_INTERRUPTED : APP_LINE_END;
        if (byte && !app_text_add(text, &byte, 1)) return app_error_memory("what is pasted"), APP_LINE_FAILED;
        if (text->n - from < n_mark || memcmp(text->data + text->n - n_mark, APP_PASTE_ENDS, n_mark)) continue;
        text->n -= n_mark;
        if (text->n > from && text->data[text->n - 1] == '\n') text->n--;
        text->data[text->n] = '\0';
        return APP_LINE_READ;
    }
}

#ifdef APP_LIBEDIT

#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <sys/stat.h>
#include <wchar.h>

#define HISTORY_LINES 1000

struct app_lines {
    EditLine *edit; /* NULL: standard error is not a terminal */
    History *history;
    char *path; /* path of the history; NULL: it is not kept */
    const char *prompt;
    app_completer *complete;
    app_text text, pasted;
};

/* ---- Where the history is ------------------------------------------------------------------------ */

/* Creates the folders before the last '/' of path. */
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

/* Returns $XDG_STATE_HOME/aerie/history, as in the XDG base directory specification; NULL if it cannot be determined. */
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

static volatile sig_atomic_t resized;

static void on_resize(int signal_number)
{
    (void)signal_number;
    resized = 1;
}

static char *prompt_of(EditLine *edit)
{
    app_lines *lines = NULL;
    el_get(edit, EL_CLIENTDATA, &lines);
    return (char *)lines->prompt;
}

/* Reads one character from the terminal. Replaces libedit's function, because Ctrl-C must end the line, while a new window size
 * or a return from the background must not. */
static int get_char(EditLine *edit, wchar_t *c)
{
    mbstate_t state = {0};
    for (;;) {
        char byte = 0;
        const int got = read_byte(&byte);
        if (got == 0 || got == -1) return got;
        if (got == -2) {
            if (resized) el_resize(edit);
            resized = 0;
            if (app_terminal_continued()) {
                el_set(edit, EL_PREP_TERM, 0); /* libedit does nothing if it believes that it is already in this mode */
                el_set(edit, EL_PREP_TERM, 1);
                el_set(edit, EL_REFRESH);
            }
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

/* Inserts text at the cursor. Bytes that are not UTF-8 become '?', since the editor would refuse the whole text. */
static unsigned char on_paste(EditLine *edit, wint_t key)
{
    app_lines *lines = NULL;
    (void)key;
    el_get(edit, EL_CLIENTDATA, &lines);
    app_text *text = &lines->pasted;
    text->n = 0;
    const app_line result = paste_read(text);
    if (result != APP_LINE_READ) return result == APP_LINE_FAILED ? CC_ERROR : CC_EOF;
    for (size_t i = 0, length; i < text->n; i += length ? length : 1) {
        uint32_t c = 0;
        length = app_utf8_char(text->data + i, text->n - i, &c);
        if (!length) text->data[i] = '?';
    }
    return text->n && el_insertstr(edit, text->data) ? CC_ERROR : CC_REFRESH;
}

/* Prints the choices below the line, in columns. */
static void show_choices(const app_choices *choices, size_t from)
{
    enum { WIDTH = 76, MOST = 100 };
    size_t widest = 0;
    for (size_t i = 0; i < choices->n; i++) {
        const size_t n = strlen(choices->items[i] + from);
        if (n > widest) widest = n;
    }
    const size_t n_columns = widest + 2 < WIDTH ? WIDTH / (widest + 2) : 1;
    fputc('\n', stderr);
    for (size_t i = 0; i < choices->n && i < MOST; i++) {
        const bool ends = (i + 1) % n_columns == 0 || i + 1 == choices->n || i + 1 == MOST;
        fprintf(stderr, "%-*s%s", ends ? 0 : (int)widest + 2, choices->items[i] + from, ends ? "\n" : "");
    }
    if (choices->n > MOST) fprintf(stderr, "and %zu more\n", choices->n - MOST);
}

/* Handles Tab: inserts the common continuation of all choices; if there is none, lists the choices. */
static unsigned char on_tab(EditLine *edit, wint_t key)
{
    app_lines *lines = NULL;
    app_choices choices = {0};
    app_text typed = {0};
    unsigned char result = CC_ERROR;
    (void)key;
    el_get(edit, EL_CLIENTDATA, &lines);
    const LineInfo *info = el_line(edit);
    bool ok = app_text_add(&typed, info->buffer, (size_t)(info->cursor - info->buffer));
    ok = ok && lines->complete && lines->complete(&choices, typed.data);
    app_choices_sort(&choices);
    const size_t n = ok ? app_choices_common(&choices) : 0;
    if (n > typed.n) {
        choices.items[0][n] = '\0';
        if (!el_insertstr(edit, choices.items[0] + typed.n)) result = CC_REFRESH;
    } else if (choices.n > 1) {
        const char *slash = strrchr(typed.data, '/');
        show_choices(&choices, slash && slash > typed.data ? (size_t)(slash + 1 - typed.data) : 0);
        result = CC_REDISPLAY;
    }
    app_choices_free(&choices);
    app_text_free(&typed);
    return result;
}

static void set_keys(EditLine *edit)
{
    static const char *const keys[][2] = {
        {"\\e[1~", "ed-move-to-beg"}, {"\\e[4~", "ed-move-to-end"},      {"\\e[H", "ed-move-to-beg"},
        {"\\e[F", "ed-move-to-end"},  {"\\e[3~", "ed-delete-next-char"}, {"\\e[1;5D", "ed-prev-word"},
        {"\\e[1;5C", "em-next-word"}, {"^R", "em-inc-search-prev"},      {"^W", "ed-delete-prev-word"},
    };
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_ADDFN, "aerie-paste", "insert what is pasted", on_paste);
    el_set(edit, EL_ADDFN, "aerie-complete", "complete a command or the name of a file", on_tab);
    el_set(edit, EL_BIND, "^I", "aerie-complete", NULL);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) el_set(edit, EL_BIND, keys[i][0], keys[i][1], NULL);
}

app_lines *app_lines_open(bool remember, app_completer *complete)
{
    struct sigaction action = {.sa_handler = on_resize};
    app_lines *lines = calloc(1, sizeof *lines);
    HistEvent event;
    if (!lines || !isatty(STDERR_FILENO)) return lines;
    lines->complete = complete;
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
    el_set(lines->edit, EL_BIND, APP_PASTE_BEGINS, "aerie-paste", NULL); /* `bind -v` in the user's file drops all keys */
    sigemptyset(&action.sa_mask);
    sigaction(SIGWINCH, &action, NULL);
    app_terminal_open(false);
    return lines;
}

void app_lines_close(app_lines *lines)
{
    if (!lines) return;
    app_terminal_close();
    if (lines->edit) el_end(lines->edit);
    if (lines->history) history_end(lines->history);
    free(lines->path);
    app_text_free(&lines->pasted);
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

app_lines *app_lines_open(bool remember, app_completer *complete)
{
    (void)remember;
    (void)complete;
    app_terminal_open(true);
    return calloc(1, sizeof(app_lines));
}

void app_lines_close(app_lines *lines)
{
    app_terminal_close();
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
        char byte = 0;
        const int got = read_byte(&byte);
        const size_t n_mark = strlen(APP_PASTE_BEGINS);
        if (got == -2) continue;
        if (got < 0 && app_interrupted()) return APP_LINE_INTERRUPTED;
        if (got <= 0 && !text->n) return APP_LINE_END;
        if (got <= 0 || byte == '\n') break;
        if (!app_text_add(text, &byte, 1)) return app_error_memory("a line"), APP_LINE_FAILED;
        if (text->n < n_mark || memcmp(text->data + text->n - n_mark, APP_PASTE_BEGINS, n_mark)) continue;
        text->data[text->n -= n_mark] = '\0';
        const app_line pasted = paste_read(text);
        if (pasted == APP_LINE_INTERRUPTED || pasted == APP_LINE_FAILED) return pasted;
    }
    *line = text->data;
    *n = text->n;
    return APP_LINE_READ;
}

app_line app_lines_read(app_lines *lines, const char *prompt, const char **line, size_t *n)
{
    app_interrupt_watch();
    app_terminal_listen();
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
    app_terminal_hush();
    if (result != APP_LINE_READ) fputc('\n', stderr);
    return result;
}

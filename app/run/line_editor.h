/* line_editor.h - lines typed at a terminal: edited with libedit and remembered, or plain where libedit was not built in.
 *
 * Prompt and editing go to standard error; standard output is the answer's. The history is a file that only its owner can
 * read; when it cannot be kept, the lines are still remembered while the program runs. What is pasted becomes part of one line,
 * newlines included, whatever it holds; Enter ends it. Between two lines keys are not shown, and wait (terminal.h).
 */
#ifndef AERIE_APP_RUN_LINE_EDITOR_H
#define AERIE_APP_RUN_LINE_EDITOR_H

#include "run/complete.h"
#include "shared/app.h"

typedef struct app_lines app_lines;

/* Adds what Tab may make of the text before the cursor; each begins with that text. false: out of memory. */
typedef bool app_completer(app_choices *choices, const char *text);

typedef enum app_line {
    APP_LINE_READ,
    APP_LINE_END,         /* Ctrl-D, or the terminal is gone */
    APP_LINE_INTERRUPTED, /* Ctrl-C: what was typed is dropped */
    APP_LINE_FAILED,      /* out of memory; the message has been printed */
} app_line;

/* remember: keep a history. NULL when out of memory. */
app_lines *app_lines_open(bool remember, app_completer *complete);
void app_lines_close(app_lines *lines);
/* *line [*n] without its newline, lent until the next call. It holds newlines if such were pasted. */
app_line app_lines_read(app_lines *lines, const char *prompt, const char **line, size_t *n);
/* Into the history. */
void app_lines_remember(app_lines *lines, const char *line);

#endif

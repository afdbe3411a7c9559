/* line_editor.h - lines typed at a terminal: edited and remembered with libedit, or plain in a build without it.
 * Prompt and editing go to standard error; standard output is for the answer. The history is a file that only its owner can
 * read; if it cannot be kept, lines are remembered as long as the program runs. Pasted text becomes part of one line, newlines
 * included; Enter ends the line. Between two lines keys are not echoed, and wait (terminal.h). */
#ifndef AERIE_APP_RUN_LINE_EDITOR_H
#define AERIE_APP_RUN_LINE_EDITOR_H

#include "run/complete.h"
#include "shared/app.h"

typedef struct app_lines app_lines;

/* Adds the completions of the text before the cursor; each begins with that text. Returns false when out of memory. */
typedef bool app_completer(app_choices *choices, const char *text);

typedef enum app_line {
    APP_LINE_READ,
    APP_LINE_END,         /* Ctrl-D, or the terminal is closed */
    APP_LINE_INTERRUPTED, /* Ctrl-C: the typed text is dropped */
    APP_LINE_FAILED,      /* out of memory; the message has been printed */
} app_line;

/* remember: keep a history. Returns NULL when out of memory. */
app_lines *app_lines_open(bool remember, app_completer *complete);
void app_lines_close(app_lines *lines);
/* *line [*n] is the line without its newline, valid until the next call. It may contain pasted newlines. */
app_line app_lines_read(app_lines *lines, const char *prompt, const char **line, size_t *n);
/* Adds the line to the history. */
void app_lines_remember(app_lines *lines, const char *line);

#endif

/* terminal.h - the terminal's modes during a chat: pasted text is marked, and keys wait without echo while an answer is
 * printed.
 * Owns the terminal's earlier state. Invariant: whenever the program does not run (it has ended, or was stopped with Ctrl-Z),
 * the terminal is in its earlier state. Only one at a time; does nothing unless standard input and standard error are
 * terminals. */
#ifndef AERIE_APP_RUN_TERMINAL_H
#define AERIE_APP_RUN_TERMINAL_H

#include <stdbool.h>

#define APP_PASTE_BEGINS "\033[200~"
#define APP_PASTE_ENDS "\033[201~"

/* Makes the terminal mark pasted text. plain: the terminal echoes keys itself, because there is no line editor. */
void app_terminal_open(bool plain);
void app_terminal_close(void);
/* Turns the echo off; keys wait for the next line. */
void app_terminal_hush(void);
/* Gives keys to the line editor again. */
void app_terminal_listen(void);
/* Returns whether the program was continued after a stop since the last call. */
bool app_terminal_continued(void);

#endif

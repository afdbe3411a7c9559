/* terminal.h - the modes of a chat's terminal: what is pasted is marked, and keys wait quietly while an answer is printed.
 *
 * Owns: the terminal's earlier state. Invariant: whenever the program does not run (it ended, or was stopped with Ctrl-Z), the
 * terminal is as it was. Only one at a time; without a terminal for both standard input and standard error nothing is done.
 */
#ifndef AERIE_APP_RUN_TERMINAL_H
#define AERIE_APP_RUN_TERMINAL_H

#include <stdbool.h>

#define APP_PASTE_BEGINS "\033[200~"
#define APP_PASTE_ENDS "\033[201~"

/* From now on the terminal marks what is pasted. plain: it shows keys itself, since there is no line editor. */
void app_terminal_open(bool plain);
void app_terminal_close(void);
/* Keys are not shown, and wait for the next line. */
void app_terminal_hush(void);
/* Keys are the line editor's again. */
void app_terminal_listen(void);
/* Whether the program was continued after a stop since this was last asked. */
bool app_terminal_continued(void);

#endif

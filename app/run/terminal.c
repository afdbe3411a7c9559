/* terminal.c - implements terminal.h. */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#include "run/terminal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "shared/app.h"

static struct {
    bool open, knows;             /* knows: `before` and `quiet` are valid */
    bool dumb;                    /* pastes are not marked */
    volatile sig_atomic_t hushed; /* `quiet` is in force */
    struct termios before, lines, quiet;
} terminal;
static volatile sig_atomic_t continued;
static const int stops[] = {SIGTSTP, SIGQUIT};

static void tell(const char *text)
{
    for (size_t n = strlen(text); n;) {
        const ssize_t written = write(STDERR_FILENO, text, n);
        if (written < 0 && errno != EINTR) return;
        if (written > 0) text += written, n -= (size_t)written;
    }
}

static void mark_pastes(bool on)
{
    if (!terminal.dumb) tell(on ? "\033[?2004h" : "\033[?2004l");
}

/* Returns whether the program is in the foreground; in the background, setting modes would stop it. */
static bool is_in_front(void)
{
    return tcgetpgrp(STDIN_FILENO) == getpgrp();
}

static void set(const struct termios *modes)
{
    if (terminal.knows && is_in_front()) tcsetattr(STDIN_FILENO, TCSANOW, modes);
}

static void handle(int signal_number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    sigemptyset(&action.sa_mask);
    sigaction(signal_number, &action, NULL);
}

/* Handles Ctrl-Z and Ctrl-\, with functions that a signal handler may call. */
static void on_stop(int signal_number)
{
    const int error = errno;
    sigset_t only, old;
    mark_pastes(false);
    set(&terminal.before);
    handle(signal_number, SIG_DFL);
    sigemptyset(&only);
    sigaddset(&only, signal_number);
    raise(signal_number);
    sigprocmask(SIG_UNBLOCK, &only, &old); /* the program stops or ends in this call */
    sigprocmask(SIG_SETMASK, &old, NULL);
    handle(signal_number, on_stop);
    errno = error;
}

static void on_continue(int signal_number)
{
    const int error = errno;
    (void)signal_number;
    continued = 1;
    if (is_in_front()) {
        mark_pastes(true);
        if (terminal.hushed) set(&terminal.quiet);
    }
    errno = error;
}

void app_terminal_open(bool plain)
{
    struct sigaction old;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) return;
    terminal.open = true;
    terminal.dumb = app_terminal_is_dumb();
    terminal.knows = tcgetattr(STDIN_FILENO, &terminal.before) == 0;
    terminal.lines = terminal.quiet = terminal.before;
    /* Terminals ignore the marks of pasted text if they are echoed unchanged; echoed as ^[ they would be visible. */
    if (plain) terminal.lines.c_lflag &= ~(tcflag_t)ECHOCTL;
    terminal.quiet.c_lflag &= ~(tcflag_t)(ECHO | ECHONL | ICANON);
    terminal.quiet.c_lflag |= NOFLSH; /* Ctrl-C must stop the answer without dropping typed text */
    terminal.quiet.c_cc[VMIN] = 1;
    terminal.quiet.c_cc[VTIME] = 0;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (sigaction(stops[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) handle(stops[i], on_stop);
    if (sigaction(SIGINT, NULL, &old) == 0 && old.sa_handler == SIG_DFL) handle(SIGINT, on_stop); /* it ends the program */
    handle(SIGCONT, on_continue);
    set(&terminal.lines);
    mark_pastes(true);
}

void app_terminal_close(void)
{
    if (!terminal.open) return;
    terminal.open = false;
    terminal.hushed = 0;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        struct sigaction now;
        if (sigaction(stops[i], NULL, &now) == 0 && now.sa_handler == on_stop) handle(stops[i], SIG_DFL);
    }
    struct sigaction interrupt;
    if (sigaction(SIGINT, NULL, &interrupt) == 0 && interrupt.sa_handler == on_stop) handle(SIGINT, SIG_DFL);
    handle(SIGCONT, SIG_DFL);
    set(&terminal.before);
    mark_pastes(false);
}

void app_terminal_hush(void)
{
    if (!terminal.open || terminal.hushed) return;
    terminal.hushed = 1;
    set(&terminal.quiet);
}

void app_terminal_listen(void)
{
    if (!terminal.open || !terminal.hushed) return;
    terminal.hushed = 0;
    set(&terminal.lines);
}

bool app_terminal_continued(void)
{
    const bool was = continued;
    continued = 0;
    return was;
}

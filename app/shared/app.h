/* app.h - what all commands of the program share.
 * Owns exit statuses, messages on standard error, checked writes to standard output, reading of text and ids, interruption.
 * Does not own options (cli/options.h) or models (load.h).
 * Invariants: standard output carries only the answer; every failed write to it is noticed and leads to exit status 1; bytes
 * from files or users reach a terminal only escaped, except generated and decoded text, which is the answer.
 * A function that returns int returns an exit status: APP_DONE, or another one after a message. */
#ifndef AERIE_APP_SHARED_APP_H
#define AERIE_APP_SHARED_APP_H

#include <jansson.h>
#include <stdio.h>

#include "aerie.h"

#if defined(__GNUC__)
#define APP_PRINTF(format_at, first_at) __attribute__((format(printf, format_at, first_at)))
#else
#define APP_PRINTF(format_at, first_at)
#endif

enum {
    APP_DONE = 0,
    APP_FAILED = 1,        /* it failed while running */
    APP_USAGE = 2,         /* the command line is invalid */
    APP_BAD_FILE = 3,      /* a file is unusable */
    APP_INTERRUPTED = 130, /* ended by Ctrl-C; the number is that of shells and llama.cpp */
};

/* ---- Messages -------------------------------------------------------------------------------- */

/* Prints "aerie: <sentence>" on standard error with control characters escaped; returns exit_status. */
int app_error(int exit_status, const char *format, ...) APP_PRINTF(2, 3);
/* The same without an exit status. */
void app_note(const char *format, ...) APP_PRINTF(1, 2);
/* From now on, every line of these begins with "aerie: " and the time (UTC). */
void app_note_times(void);
/* From now on messages on a terminal break between words, as the answers of a chat do. */
void app_note_wrap(void);
/* Prints "aerie: not enough memory for <what>". */
int app_error_memory(const char *what);

/* ---- Messages of a program that must not wait for the reader of its log (log.c) ---- */

/* From now on a separate thread writes messages, in order, and no other thread waits for them. Up to 1 MiB of unread messages
 * is kept; further lines are lost and counted, and the log says where and how many are missing. Returns false if the thread
 * could not be started; messages are then written as before. */
bool app_log_start(void);
/* Passes a whole line to the thread; it may be empty if memory was short. Returns false if the thread does not run. Any
 * thread. */
bool app_log_put(const char *line, size_t n);
/* Waits until all lines are written, but at most this many seconds. */
void app_log_flush(double seconds);
/* Returns the number of lines lost so far. */
uint64_t app_log_n_lost(void);

/* Returns whether the terminal would show escape sequences instead of obeying them (TERM=dumb: Emacs' shell, editors'
 * consoles). */
bool app_terminal_is_dumb(void);
/* Returns the columns of the terminal that an open file is (STDERR_FILENO); 0: it is none, or does not tell. */
int app_terminal_columns(int file);

/* ---- Exit statuses ---- */

/* What the library was doing when it failed: the same status means different things to the user. */
typedef enum app_stage {
    APP_LOADING, /* a model file: an exceeded limit is the fault of the file */
    APP_WORKING, /* an exceeded limit (a prompt longer than the context) is the fault of the command line */
} app_stage;

/* Prints the library's message and returns the exit status for its status. */
int app_report(app_stage stage, aerie_status status, const aerie_error *error);

/* Appends text[0..n) with control characters, direction overrides and invalid UTF-8 written as \n, \t, \xNN or \u{NNNN}. */
void app_escape(FILE *stream, const char *text, size_t n);
/* Returns the length of the well-formed UTF-8 character at text[0..n), and its code point in *code; 0 if there is none. */
size_t app_utf8_char(const char *text, size_t n, uint32_t *code);
/* Returns the bytes of an incomplete character at the end of text[0..n): 0 to 3. */
size_t app_utf8_incomplete(const char *text, size_t n);

/* ---- Standard output --------------------------------------------------------------------------- */

/* Writes bytes. Returns false once a write has failed; app_finish reports it. */
bool app_write(const void *bytes, size_t n);
bool app_print(const char *format, ...) APP_PRINTF(1, 2);
/* Writes text of a model or its file, in whole UTF-8 characters. It is unchanged unless standard output is a terminal; then
 * control characters except newline and tab become \xNN or \u{NNNN}, carriage returns are dropped, and invalid UTF-8 becomes
 * U+FFFD. */
bool app_write_text(const char *text, size_t n);
/* Writes to `out` the first character of text[0..n), n > 0, as app_write_text shows it on a terminal; *n_read: its length in
 * text. */
size_t app_terminal_char(const char *text, size_t n, size_t *n_read, char out[16]);
/* Writes the result of app_escape to standard output. */
bool app_write_escaped(const char *text, size_t n);
/* Flushes standard output, for streaming. */
bool app_flush(void);
/* Prints the object and a newline, and releases it. NULL (out of memory) is a failure. */
int app_print_json(json_t *json);
int app_print_json_line(json_t *json); /* on one line */
/* Must be called first: makes writing to a pipe without a reader a failed write, so that the program ends cleanly. */
void app_watch_pipes(void);
/* Closes standard output and returns the program's exit status, APP_FAILED if a write failed. If the reader of a pipe has gone,
 * the program ends by SIGPIPE without a message, as other programs do, unless its parent ignored that signal. */
int app_finish(int exit_status);

/* ---- Bytes, text, ids ---------------------------------------------------------------------------- */

/* Growable bytes, owned; data [n] is followed by a NUL. All zero is empty. */
typedef struct app_text {
    char *data;
    size_t n, capacity;
} app_text;

bool app_text_add(app_text *text, const void *bytes, size_t n); /* returns false when out of memory */
void app_text_free(app_text *text);
/* Grows items [*capacity] of `size` bytes to hold item n; NULL when out of memory, and the old list stays valid. */
void *app_grow(void *items, size_t n, size_t *capacity, size_t size);

#define APP_MAX_TEXT ((size_t)64 << 20) /* most bytes of a prompt, template or grammar, which no context could hold */
#define APP_MAX_STREAM ((size_t)1 << 30) /* most bytes from a source without a size, such as a pipe */

/* Reads a whole text file ("-": standard input) of at most APP_MAX_TEXT bytes. Like app_read_data, removes a byte order mark,
 * and the CRs of a file whose lines all end in CR LF; refuses UTF-16 and UTF-32. */
int app_read_file(app_text *text, const char *path);
/* The same for texts that may be long, such as training records: a regular file of any size, other sources up to
 * APP_MAX_STREAM. */
int app_read_data(app_text *text, const char *path);
/* Removes and refuses the same in bytes of a file that were read by other means, from byte `from` on. Returns false after a
 * message if they were refused. */
bool app_text_settle(app_text *text, size_t from, const char *name);
/* Writes a file beside `path` and renames it: an existing file stays whole until then and passes on its mode; only the owner
 * can read a new one. Returns 0, or errno. Any thread. */
int app_replace_file(const char *path, const void *data, size_t n);
/* Returns whether app_replace_file could have created this name. A file with such a name that is not locked was left behind. */
bool app_is_leftover(const char *name);
/* Must be called before long work whose result goes to the file of `option`. Checks whether app_replace_file or an append could
 * write it, by creating and removing a file beside it. A link counts as its target. Returns APP_DONE, or APP_FAILED after a
 * message. */
int app_check_writable(const char *option, const char *path);

/* Parses ids separated by spaces, commas, newlines or brackets. `source` names them in messages. The caller frees *ids. */
int app_parse_ids(const char *text, size_t n, const char *source, int exit_status, int32_t **ids, size_t *n_ids);

/* Returns text as a JSON string; invalid UTF-8 becomes U+FFFD. */
json_t *app_json_text(const char *text, size_t n);
typedef enum app_json_status { APP_JSON_OK, APP_JSON_WRONG, APP_JSON_NO_MEMORY } app_json_status;

/* Parses like json_loadb into *json, which is NULL unless the result is OK. WRONG: the text is not valid JSON, *why says why.
 * NO_MEMORY: it is unknown whether the text is valid, so it must not be treated as invalid or as plain text. */
app_json_status app_json_read(json_t **json, const char *text, size_t n, size_t flags, json_error_t *why);
/* Frees the result of json_dumps. */
void app_json_free(char *text);
/* From now on jansson's allocations are counted. Must be called before threads start. */
void app_json_watch(void);
/* Receives the change in the memory that jansson allocates on this thread. Returns false to refuse it, which is not allowed if
 * `must`. */
typedef bool app_json_change(void *user, ptrdiff_t bytes, bool must);
/* From now on reports this thread's changes; change NULL: ends that. app_json_watch must have been called. */
void app_json_account(app_json_change *change, void *user);
/* Returns whether jansson ran out of memory on this thread since the last call. */
bool app_json_lacked(void);
json_t *app_json_ids(const int32_t *ids, size_t n);
/* Returns a whole number as JSON, which app_print_json writes exactly even beyond 2^63. */
json_t *app_json_u64(uint64_t value);
/* For objects and lists that are built in steps: if adding a value fails, the next app_print_json reports it and prints
 * nothing. */
void app_json_put(json_t *object, const char *key, json_t *value);
void app_json_append(json_t *list, json_t *value);
bool app_json_failed(void);
/* Returns a number as JSON; NaN and infinities become null. */
json_t *app_json_real(double value);

/* Returns the length of NAME in "NAME-00002-of-00005.gguf" (*part 2, *of 5) or "NAME.gguf" (both 0); the whole length of a name
 * without ".gguf". */
size_t app_split_name(const char *path, unsigned *part, unsigned *of);

/* Writes a size such as "1.5 GiB" to out [32]; returns out. */
const char *app_bytes(char out[32], uint64_t bytes);
/* Writes a number such as "31,204". */
const char *app_count(char out[32], uint64_t n);
/* Returns the ending of a noun that n counts: "" for 1, else "s". */
static inline const char *app_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}
/* Returns monotonic time in seconds. */
double app_now(void);
/* Like strtod, but independent of the locale. */
double app_number(const char *text, char **end);
/* Sorts x [n] and returns its median. */
double app_median(double *x, size_t n);

/* ---- Interruption ---------------------------------------------------------------------------------- */

/* From now on the first Ctrl-C, SIGTERM or SIGHUP is only noted; the second one ends the program. */
void app_interrupt_arm(void);
/* The same, but later signals are only noted, too: for callers that poll app_interrupted and continue. */
void app_interrupt_watch(void);
/* From now on Ctrl-C ends the program again, which waits for input. */
void app_interrupt_disarm(void);
bool app_interrupted(void);
/* Returns whether SIGTERM or SIGHUP interrupted the program, so that nobody can be asked. */
bool app_interrupt_ends(void);
/* Must be called last: if SIGTERM or SIGHUP was noted, ends the program by that signal, as its parent expects. */
int app_interrupt_end(int exit_status);

/* Replaces the escapes of -e in place; unknown ones stay. Returns the new length. */
size_t app_unescape(char *text, size_t n);

#endif

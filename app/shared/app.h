/* app.h - what all subcommands of the program share.
 *
 * Owns: exit statuses, messages on standard error, checked writes to standard output, reading
 * of text and ids, interruption. Does not own: options (cli/options.h), models (load.h).
 * Invariants: standard output carries the answer and nothing else; every failed write to it is
 * noticed and ends in exit status 1; bytes that come from files or users reach a terminal only
 * escaped - except generated and decoded text, which is the answer.
 * A function that returns int returns an exit status, APP_DONE when all went well; the message
 * has been printed then.
 */
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
    APP_FAILED = 1,        /* while running */
    APP_USAGE = 2,         /* the command line is wrong */
    APP_BAD_FILE = 3,      /* a file is unusable */
    APP_INTERRUPTED = 130, /* Ctrl-C, as shells and llama.cpp have it */
};

/* ---- Messages -------------------------------------------------------------------------------- */

/* "aerie: <sentence>" on standard error, control characters escaped; returns exit_status. */
int app_error(int exit_status, const char *format, ...) APP_PRINTF(2, 3);
/* The same, without an exit status. */
void app_note(const char *format, ...) APP_PRINTF(1, 2);
/* From now on each line of these has the time (UTC) after "aerie: ". */
void app_note_times(void);
/* "aerie: not enough memory for <what>" */
int app_error_memory(const char *what);

/* ---- Messages of a program that may not wait for who reads them (log.c) ---- */

/* From now on a thread of its own writes messages, in their order, and nobody else waits for it. What nobody reads is kept
 * up to 1 MiB; further lines are lost and counted, and the log says how many where they are missing. false: there is no such
 * thread, and messages are written as before. */
bool app_log_start(void);
/* A whole line for that thread, of no bytes if there was no memory for it; false: the thread does not run. Any thread. */
bool app_log_put(const char *line, size_t n);
/* Waits until all lines are written, at most so many seconds. */
void app_log_flush(double seconds);
/* Lines lost so far. */
uint64_t app_log_n_lost(void);

/* ---- Exit statuses ---- */

/* What the library was asked to do: the same status means different things to the user. */
typedef enum app_stage {
    APP_LOADING, /* a model file: an exceeded limit is the fault of the file */
    APP_WORKING, /* an exceeded limit (a prompt longer than the context) is the fault of the command line */
} app_stage;

/* Prints the library's sentence and maps the status. */
int app_report(app_stage stage, aerie_status status, const aerie_error *error);

/* text[0..n) with control characters, direction overrides and invalid UTF-8 as \n, \t, \xNN or \u{NNNN}. */
void app_escape(FILE *stream, const char *text, size_t n);
/* Bytes of the well-formed UTF-8 character at text[0..n), its code point through *code; 0 if there is none. */
size_t app_utf8_char(const char *text, size_t n, uint32_t *code);

/* ---- Standard output --------------------------------------------------------------------------- */

/* False once a write has failed; app_finish says so. */
bool app_write(const void *bytes, size_t n);
bool app_print(const char *format, ...) APP_PRINTF(1, 2);
/* Text that a model or its file has made, whole UTF-8 characters: as it is, but to a terminal without what would command
 * that: control characters but newline and tab as \xNN or \u{NNNN}, no carriage returns, U+FFFD for what is not UTF-8. */
bool app_write_text(const char *text, size_t n);
/* The first character of text[0..n), n > 0, as app_write_text shows it on a terminal: bytes into out; *n_read: of the text. */
size_t app_terminal_char(const char *text, size_t n, size_t *n_read, char out[16]);
/* app_escape to standard output. */
bool app_write_escaped(const char *text, size_t n);
/* Pushes out what was written: streaming. */
bool app_flush(void);
/* Prints the object and a newline, releases it. NULL (out of memory) is a failure. */
int app_print_json(json_t *json);
int app_print_json_line(json_t *json); /* without line breaks in it */
/* From the start on: a pipe that its reader closed is a failed write, which ends the program's work in good order. */
void app_watch_pipes(void);
/* Closes standard output; the exit status of the program, which is APP_FAILED if any write failed. Where the reader of a pipe
 * has gone the program then ends by SIGPIPE without a word, as others do, unless its caller had that signal ignored. */
int app_finish(int exit_status);

/* ---- Bytes, text, ids ---------------------------------------------------------------------------- */

/* Growable bytes; data [n] and a NUL after them; owned. All zero is empty. */
typedef struct app_text {
    char *data;
    size_t n, capacity;
} app_text;

bool app_text_add(app_text *text, const void *bytes, size_t n); /* false: out of memory */
void app_text_free(app_text *text);
/* Grows items [*capacity] of `size` bytes for one more than n; NULL when out of memory, the old ones live on. */
void *app_grow(void *items, size_t n, size_t *capacity, size_t size);

#define APP_MAX_TEXT ((size_t)64 << 20) /* bytes of a prompt, a template, a grammar: more than any context holds */
#define APP_MAX_STREAM ((size_t)1 << 30) /* bytes of data from what has no size, such as a pipe */

/* A whole file of text, "-" for standard input, of at most APP_MAX_TEXT bytes. As of app_read_data, a byte order mark and the
 * CRs of a file whose lines all end in CR LF are removed, and UTF-16 and UTF-32 are refused. */
int app_read_file(app_text *text, const char *path);
/* Texts that may be long, such as training's records: a regular file of any size, else APP_MAX_STREAM. */
int app_read_data(app_text *text, const char *path);
/* The same for what else was read from a file, from byte `from` on; false: refused, and said. */
bool app_text_settle(app_text *text, size_t from, const char *name);
/* Writes beside `path` and renames: what stood there stays whole until then, and keeps its mode; a new file is its owner's
 * alone. 0, or errno. From any thread. */
int app_replace_file(const char *path, const void *data, size_t n);
/* Is the name one under which app_replace_file writes? A file of such a name that nobody has locked was left behind. */
bool app_is_leftover(const char *name);
/* Before the work whose result `option` names a file for: whether app_replace_file or an append could write it, by making a
 * file beside it and removing that again. A link counts as the file that it names. APP_DONE, or APP_FAILED and a message. */
int app_check_writable(const char *option, const char *path);

/* Ids separated by spaces, commas, newlines or brackets. `source` names them in messages. *ids is malloc'd. */
int app_parse_ids(const char *text, size_t n, const char *source, int exit_status, int32_t **ids, size_t *n_ids);

/* Text as a JSON string; what is not UTF-8 becomes U+FFFD. */
json_t *app_json_text(const char *text, size_t n);
typedef enum app_json_status { APP_JSON_OK, APP_JSON_WRONG, APP_JSON_NO_MEMORY } app_json_status;

/* As json_loadb, into *json, which is NULL unless OK. WRONG: the text is none, as *why says. NO_MEMORY: nobody knows what it
 * is; it must not be taken for a wrong or a plain text. */
app_json_status app_json_read(json_t **json, const char *text, size_t n, size_t flags, json_error_t *why);
/* What json_dumps has made. */
void app_json_free(char *text);
/* From now on jansson's allocations are watched; before there are threads. */
void app_json_watch(void);
/* What jansson holds more, or (negative) less, of what this thread allocates. false refuses it, which `must` forbids. */
typedef bool app_json_change(void *user, ptrdiff_t bytes, bool must);
/* Tells this thread's changes from now on; change NULL: no more. After app_json_watch. */
void app_json_account(app_json_change *change, void *user);
/* Whether jansson has lacked memory on this thread since this was last asked. */
bool app_json_lacked(void);
json_t *app_json_ids(const int32_t *ids, size_t n);
/* A whole number, exact beyond 2^63 too (in app_print_json's output). */
json_t *app_json_u64(uint64_t value);
/* For objects and lists that are built in steps: what cannot be added is noticed, and the next app_print_json says so and
 * prints nothing. */
void app_json_put(json_t *object, const char *key, json_t *value);
void app_json_append(json_t *list, json_t *value);
bool app_json_failed(void);
/* NaN and infinities have no JSON number: null. */
json_t *app_json_real(double value);

/* Returns how many bytes NAME has in "NAME-00002-of-00005.gguf" (*part 2, *of 5) or "NAME.gguf" (both 0); in a name
 * without ".gguf" all bytes. */
size_t app_split_name(const char *path, unsigned *part, unsigned *of);

/* "1.5 GiB" into out [32]; returns out. */
const char *app_bytes(char out[32], uint64_t bytes);
/* "31,204" */
const char *app_count(char out[32], uint64_t n);
/* Monotonic seconds. */
double app_now(void);
/* As strtod, in every locale. */
double app_number(const char *text, char **end);
/* Sorts x [n] and returns its median. */
double app_median(double *x, size_t n);

/* ---- Interruption ---------------------------------------------------------------------------------- */

/* From here the first Ctrl-C, SIGTERM or SIGHUP is only noted, the second one kills. */
void app_interrupt_arm(void);
/* The same, but later ones are only noted too: for callers that poll app_interrupted and go on. */
void app_interrupt_watch(void);
/* Ctrl-C kills the program again (while it waits for input). */
void app_interrupt_disarm(void);
bool app_interrupted(void);
/* Interrupted by SIGTERM or SIGHUP: there is nobody to ask. */
bool app_interrupt_ends(void);
/* The end of the program: of SIGTERM or SIGHUP, once noted, it dies after all, as its parent expects. */
int app_interrupt_end(int exit_status);

/* Replaces the escapes of -e in place; others stay as they are. Returns the new length. */
size_t app_unescape(char *text, size_t n);

#endif

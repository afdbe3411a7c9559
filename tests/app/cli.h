/* cli.h - runs the program as a user would, through a shell, and keeps what came out.
 *
 * The program's path is AERIE_BIN: from the environment, else as the build says. AERIE_* settings of the
 * caller's environment are removed first, so that they do not leak into the tests. Each program has a folder of its own.
 */
#ifndef AE_TEST_CLI_H
#define AE_TEST_CLI_H

#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "mkmodel.h"

typedef struct cli_result {
    int status;
    char out[1 << 18], err[1 << 16]; /* cut if longer, NUL-terminated */
    size_t n_out, n_err;
} cli_result;

static char cli_folder[] = "/tmp/aerie-cli-XXXXXX";
static cli_result cli_last;

static inline size_t cli_read(const char *name, char *text, size_t capacity)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", cli_folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s is missing", path);
    const size_t n = fread(text, 1, capacity - 1, file);
    text[n] = '\0';
    fclose(file);
    return n;
}

static inline void cli_write(const char *name, const void *bytes, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", cli_folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* Runs `aerie` as $A in the folder of the test, `command` being shell text; standard input is empty unless it says
 * otherwise. */
static inline const cli_result *cli(const char *format, ...)
{
    char command[4096], line[8192];
    const char *program = getenv("AERIE_BIN") ? getenv("AERIE_BIN") : AERIE_BIN;
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    snprintf(line, sizeof line, "cd %s && A='%s' && export A && { %s ; } </dev/null >out 2>err", cli_folder, program,
             command);
    const int status = system(line);
    cli_last.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    cli_last.n_out = cli_read("out", cli_last.out, sizeof cli_last.out);
    cli_last.n_err = cli_read("err", cli_last.err, sizeof cli_last.err);
    if (cli_last.status < 0 || cli_last.status >= 126) {
        if (cli_last.status != 130) fail_msg("%s: status %d\n%s", command, cli_last.status, cli_last.err);
    }
    return &cli_last;
}

/* Refused: that status, nothing on standard output, one sentence on standard error that holds both texts. */
static inline void cli_refused(int status, const char *text, const char *other)
{
    if (cli_last.status != status || !strstr(cli_last.err, text) || !strstr(cli_last.err, other)) {
        fail_msg("expected status %d and '%s', '%s'; found %d and: %s", status, text, other, cli_last.status,
                 cli_last.err);
    }
    assert_int_equal(cli_last.n_out, 0);
    assert_int_equal(strncmp(cli_last.err, "aerie: ", 7), 0);
}

static inline int cli_setup(void **state)
{
    extern char **environ;
    (void)state;
    for (char **e = environ; *e;) {
        char name[128];
        const size_t n = strcspn(*e, "=");
        snprintf(name, sizeof name, "%.*s", (int)(n < 127 ? n : 127), *e);
        if (strncmp(name, "AERIE_", 6) || !strcmp(name, "AERIE_BIN")) e++;
        else unsetenv(name), e = environ;
    }
    return mkdtemp(cli_folder) ? 0 : -1;
}

/* A random model in the folder of the test. */
static inline void cli_model(const char *name, const mk_options *options)
{
    char path[256];
    aerie_error error = {0};
    snprintf(path, sizeof path, "%s/%s", cli_folder, name);
    if (mk_model(options, path, &error) != AERIE_OK) fail_msg("%s", error.text);
}

/* The folder with a tiny m.gguf in it. */
static inline int cli_setup_model(void **state)
{
    mk_options options;
    if (cli_setup(state) || !mk_shape("tiny", &options)) return -1;
    cli_model("m.gguf", &options);
    return 0;
}

static inline int cli_teardown(void **state)
{
    char line[256];
    (void)state;
    snprintf(line, sizeof line, "rm -rf '%s'", cli_folder);
    return system(line);
}

#endif

/* main.c - the program aerie: finds the subcommand, runs it and returns the exit status. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"

static int run_command(const app_options *options)
{
    switch (options->command->bit) {
    case APP_RUN: return app_run(options);
    case APP_SERVE: return app_serve(options);
    case APP_ROUTER: return app_router(options);
    case APP_EMBED: return app_embed(options);
    case APP_TOKENIZE: return app_tokenize(options);
    case APP_TEMPLATE: return app_template(options);
    case APP_INSPECT: return app_inspect(options);
    case APP_CONVERT: return app_convert(options);
    case APP_PULL: return app_pull(options);
    case APP_LIST: return app_list(options);
    case APP_RM: return app_remove(options);
    case APP_DOCTOR: return app_doctor(options);
    case APP_PERPLEXITY: return app_perplexity(options);
    case APP_IMATRIX: return app_imatrix(options);
    case APP_QUANTIZE: return app_quantize(options);
    case APP_BENCH_SPEED: return app_bench_speed(options);
    case APP_BENCH_VERIFY: return app_bench_verify(options);
    case APP_BENCH_SPEC: return app_bench_spec(options);
    case APP_BENCH_STUDY: return app_bench_study(options);
    case APP_BENCH_SHAPES: return app_bench_shapes(options);
    case APP_BENCH_LOGITS: return app_bench_logits(options);
    case APP_TRAIN_DATA: return app_train_data(options);
    default: return APP_USAGE;
    }
}

static int print_version(void)
{
    app_print("aerie %s\ncommit: %s\nbuild: %s\ncompiler: %s\ncpu level: %s\ngpu drivers: %s\n", aerie_version(), app_commit(),
              app_build(), app_compiler(), app_cpu_level(), app_gpu_drivers());
    return APP_DONE;
}

static int unknown_benchmark(const char *word)
{
    const char *needs = "'bench' needs the name of a benchmark: speed, verify, spec, study, shapes or logits";
    if (!*word) return app_error(APP_USAGE, "%s", needs);
    if (*word == '-' || strpbrk(word, "./:")) /* options as of another benchmark, or a model */
        return app_error(APP_USAGE, "%s; as in 'aerie bench speed %s%s'", needs, word, *word == '-' ? " ..." : "");
    return app_error(APP_USAGE, "'bench' takes speed, verify, spec, study, shapes or logits; found '%s'", word);
}

/* Returns the command that words[0..n) begin with; *n_used: the number of words in its name. Returns NULL after a message if
 * there is none. helps: the words follow 'aerie help'. */
static const app_command *find_command(int n, char **words, int *n_used, bool helps)
{
    char name[64];
    const bool bench = strcmp(words[0], "bench") == 0;
    const char *what = bench && n > 1 ? words[1] : "";
    snprintf(name, sizeof name, bench ? "%.20s %.40s" : "%.60s", words[0], what);
    *n_used = bench ? 2 : 1;
    for (size_t i = 0; i < app_n_commands(); i++) {
        if (strcmp(app_command_at(i)->name, name) == 0) return app_command_at(i);
    }
    if (bench) unknown_benchmark(what);
    else if (helps) app_unknown_topic(words[0]);
    else app_unknown_command(words[0]);
    return NULL;
}

static bool is_command(const char *word)
{
    bool known = strcmp(word, "bench") == 0;
    for (size_t i = 0; i < app_n_commands(); i++) known |= strcmp(app_command_at(i)->name, word) == 0;
    return known;
}

static int bench_overview(void)
{
    app_print("usage: aerie bench WHAT [options]\n\n");
    for (size_t i = 0; i < app_n_commands(); i++) {
        const app_command *command = app_command_at(i);
        if (strncmp(command->name, "bench ", 6) == 0) app_print("  %-13s %s\n", command->name, command->summary);
    }
    return APP_DONE;
}

static int help(int n, char **words)
{
    int used;
    if (n == 0 || app_is_help(words[0])) {
        app_print_overview();
        return APP_DONE;
    }
    if (n == 1 && strcmp(words[0], "bench") == 0) return bench_overview();
    const app_help first_all = app_is_all(words[0]) ? APP_HELP_ALL : APP_HELP_SHORT;
    if (first_all == APP_HELP_ALL && --n == 0) { /* "help --all run" means "help run --all" */
        app_print_overview();
        return APP_DONE;
    }
    words += first_all == APP_HELP_ALL;
    if (n == 1 && app_print_topic(words[0])) return APP_DONE;
    if (words[0][0] == '-') return app_help_option(words[0]);
    if (n == 1 && !is_command(words[0]) && app_print_subject(words[0])) return APP_DONE;
    const app_command *command = find_command(n, words, &used, true);
    if (!command) return APP_USAGE;
    app_print_help(command, n > used && app_is_all(words[used]) ? APP_HELP_ALL : first_all);
    return APP_DONE;
}

static int start(int argc, char **argv)
{
    app_options options;
    app_help wanted = APP_HELP_NONE;
    int used;
    if (argc < 2) {
        app_print_usage(stderr);
        return APP_USAGE;
    }
    const char *first = argv[1];
    if (strcmp(first, "help") == 0 || app_is_help(first)) return help(argc - 2, argv + 2);
    if (strcmp(first, "bench") == 0 && argc > 2 && app_is_help(argv[2])) return bench_overview();
    if (strcmp(first, "--version") == 0 || strcmp(first, "version") == 0) return print_version();
    if (strcmp(first, "--list-devices") == 0) return app_list_devices();
    if (strcmp(first, "--completion-bash") == 0) {
        app_print_completion();
        return APP_DONE;
    }
    if (strcmp(first, "--completion-zsh") == 0) {
        app_print_completion_zsh();
        return APP_DONE;
    }
    if (strcmp(first, "--completion-fish") == 0) {
        app_print_completion_fish();
        return APP_DONE;
    }
    if (strcmp(first, "--man") == 0) {
        app_print_man();
        return APP_DONE;
    }
    const app_command *command = find_command(argc - 1, argv + 1, &used, false);
    if (!command) return APP_USAGE;
    app_options_default(&options);
    int status = app_options_parse(&options, command, argc - 1 - used, argv + 1 + used, &wanted);
    if (!status && wanted != APP_HELP_NONE) app_print_help(command, wanted);
    else if (!status && options.list_devices) status = app_list_devices();
    else if (!status && !(status = app_pull_models(&options))) status = run_command(&options);
    app_options_free(&options);
    return status;
}

/* Handles SIGBUS: the file under a mapped page was cut. Prints a line and ends the program, with functions that a signal
 * handler may call. */
static void on_lost_page(int signal_number)
{
    static const char text[] = "aerie: a mapped file was truncated or can no longer be read; --no-mmap reads models into "
                               "memory when they are loaded\n";
    static atomic_flag said = ATOMIC_FLAG_INIT;
    (void)signal_number;
    while (atomic_flag_test_and_set(&said)) pause(); /* another thread was first and is ending the program */
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(APP_FAILED);
    _exit(APP_BAD_FILE);
}

/* Opens /dev/null in the wrong mode for each standard stream that the caller closed, so that using it still fails. Otherwise
 * the next file or connection would get its number, and receive what is meant for standard output or error. */
static void keep_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
    keep_standard_streams();
    /* signal() may reset the handler; then a second thread that faults at the same time would end the program without a line */
    const struct sigaction lost_page = {.sa_handler = on_lost_page};
    sigaction(SIGBUS, &lost_page, NULL);
    if (argc == 2 && strcmp(argv[1], APP_DECODE_IMAGE) == 0) return app_decode_image();
    app_watch_pipes();
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the file size limit then fails, and the incomplete file is removed */
    return app_interrupt_end(app_finish(start(argc, argv)));
}

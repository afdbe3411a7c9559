/* test_llama_options.c - every spelling that llama.cpp knows has an answer here, and no name has two: the tables of
 * cli/options.h and llama_options.h against each other, and the program's sentences for each. */
#include "cli.h"

#include "cli/llama_options.h"

/* All option names of llama.cpp's common/arg.cpp, llama-bench and llama-quantize (28 May 2026). */
static const char *const llama_names[] = {
#include "llama_options.inc"
};

static bool in_table(const char *name)
{
    return app_option_find(name, strlen(name), ~0u) < app_n_options();
}

static bool is_help(const char *name)
{
    return strcmp(name, "-h") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "--usage") == 0;
}

static void every_spelling_of_llama_has_an_answer(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof llama_names / sizeof *llama_names; i++) {
        const char *name = llama_names[i];
        if (!in_table(name) && !app_foreign_option(name, strlen(name)) && !is_help(name)) fail_msg("%s: no answer", name);
    }
}

static void no_name_has_two_answers(void **state)
{
    (void)state;
    char name[64];
    for (size_t i = 0; i < app_n_foreign_options(); i++) {
        const app_foreign *f = app_foreign_option_at(i);
        assert_true(*f->text);
        for (size_t k = 0; app_name_at(f->names, k, name); k++) {
            const bool is_two = strcmp(name, "--embedding") == 0; /* convert's is about something else */
            if (in_table(name) && !is_two) fail_msg("%s is in the table of options: take it out of llama_options.c", name);
            if (app_foreign_option(name, strlen(name)) != f) fail_msg("%s is twice in llama_options.c", name);
            if (name[0] != '-' || is_help(name)) fail_msg("%s is not an option", name);
        }
    }
    for (size_t i = 0; i < app_n_foreign_commands(); i++) {
        const app_foreign *f = app_foreign_command_at(i);
        for (size_t k = 0; app_name_at(f->names, k, name); k++) {
            if (app_foreign_command(name) != f) fail_msg("%s is twice in llama_options.c", name);
            for (size_t c = 0; c < app_n_commands(); c++) assert_string_not_equal(app_command_at(c)->name, name);
        }
    }
}

/* Runs `aerie run` with the option; what it says must fit what the table says. */
static void check_option(const app_foreign *f, const char *name)
{
    char sentence[512];
    const bool needs_value = f->argument && f->argument[0] != '[';
    cli("$A run -v -p y -m missing.gguf %s%s", name, needs_value && f->kind == APP_NO_EFFECT ? " 1" : "");
    switch (f->kind) {
    case APP_NO_EFFECT:
        snprintf(sentence, sizeof sentence, "aerie: %s has no effect here: %s\n", name, f->text);
        if (cli_last.status != 3 || !strstr(cli_last.err, sentence) || !strstr(cli_last.err, "missing.gguf"))
            fail_msg("%s: status %d, %s", name, cli_last.status, cli_last.err);
        return;
    case APP_OTHERWISE: snprintf(sentence, sizeof sentence, "'run' has no option '%s': %s; see", name, f->text); break;
    case APP_NOT_YET: snprintf(sentence, sizeof sentence, "'%s' is not supported yet: %s", name, f->text); break;
    case APP_ABSENT: snprintf(sentence, sizeof sentence, "'%s' is not supported: %s", name, f->text); break;
    }
    cli_refused(2, sentence, "");
}

static void the_program_says_what_the_table_says(void **state)
{
    (void)state;
    char name[64];
    for (size_t i = 0; i < app_n_foreign_options(); i++) {
        for (size_t k = 0; app_name_at(app_foreign_option_at(i)->names, k, name); k++)
            check_option(app_foreign_option_at(i), name);
    }
    for (size_t i = 0; i < app_n_foreign_commands(); i++) {
        for (size_t k = 0; app_name_at(app_foreign_command_at(i)->names, k, name); k++) {
            cli("$A %s -m x", name);
            cli_refused(2, "there is no command", app_foreign_command_at(i)->text);
        }
    }
    cli("$A run -m missing.gguf -p y --split-mode=row --no-mmap"); /* a value after = */
    cli_refused(3, "missing.gguf", "");
    cli("$A run -m missing.gguf -fa on -p y -co -fa");
    cli_refused(3, "missing.gguf", "");
    cli("$A run -m missing.gguf --mlock=1");
    cli_refused(2, "--mlock takes no value", "'1'");
    cli("$A run -m missing.gguf -ngl");
    cli_refused(2, "-ngl needs a value", "-ngl N");
}

/* By meaning where the name means something, by letters only where it is a misspelling. */
static void suggestions(void **state)
{
    (void)state;
    static const struct {
        const char *line, *text, *not;
    } cases[] = {
        {"server", "use 'aerie serve'", "convert"},
        {"llama-server", "use 'aerie serve'", "convert"},
        {"llama-cli", "use 'aerie run'", "known"},
        {"llama-mtmd-cli", "--image FILE", "known"},
        {"download", "use 'aerie pull'", "known"},
        {"show", "use 'aerie inspect FILE'", "known"},
        {"urn", "unknown command 'urn'; known: ", "did you mean"},
        {"inspekt", "did you mean 'inspect'", "yet"},
        {"Run", "did you mean 'run'", "yet"},
        {"quantise", "use 'aerie quantize'", "known"},
        {"xyz", "unknown command 'xyz'; known: ", "did you mean"},
        {"run --control-vector x", "'--control-vector' is not supported yet", "mlock"},
        {"run --mlok", "did you mean '--mlock'", "lora"},
        {"run --loar x", "did you mean '--lora'", "mlock"},
        {"run --top_kk 4", "did you mean '--top-k'", "top-p"},
        {"run --TEMP 1", "did you mean '--temp'", ""},
        {"run --cnv", "did you mean '-cnv'", "ctv"},
        {"run --n-gpu-layer 3", "did you mean '--n-gpu-layers'", ""},
        {"run --max-tokens 3", "use -n N", "did you mean"},
        {"run --temper 1", "did you mean '--temperature'", ""},
        {"run --zzz", "unknown option '--zzz'; 'aerie help run --all'", "did you mean"},
        {"run -x", "unknown option '-x'; 'aerie help run --all'", "did you mean"},
        {"run -", "takes a model's file or name; found '-'", ""},
        {"run -m model.gguf text", "-m names the model", ""},
        {"run 'hello there'", "the model comes first", "a prompt"},
        {"convert --control-vector x", "'--control-vector' is not supported yet", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli("$A %s", cases[i].line);
        cli_refused(2, cases[i].text, "");
        if (*cases[i].not && strstr(cli_last.err, cases[i].not)) fail_msg("%s: %s", cases[i].line, cli_last.err);
    }
    /* paths: of a file in the same folder, by all letters of a long name */
#define LONG_NAME "a-name-of-more-than-sixty-four-letters-so-that-the-end-alone-tells-it-from-"
    cli("mkdir paths; : > paths/m.gguf; ln -s nowhere paths/dangling.gguf; : > paths/" LONG_NAME "q4_0.gguf");
    static const struct {
        const char *line, *text, *not;
    } paths[] = {
        {"run -m ./mm.gguf -p x", "there is no file './mm.gguf'; did you mean './m.gguf'?", ""},
        {"run -m mm.gguf -p x", "did you mean 'm.gguf'?", ""},
        {"run m.ggfu hi", "there is no file 'm.ggfu'; did you mean 'm.gguf'?", "ollama"},
        {"run -m m.gg -p x", "did you mean 'm.gguf'?", "ollama"},
        {"serve x=m.guf", "did you mean 'm.gguf'?", "ollama"},
        {"inspect m.ggfu", "did you mean 'm.gguf'?", "ollama"},
        {"inspect ./m.ggfu", "did you mean './m.gguf'?", ""},
        {"serve name=./mm.gguf", "did you mean './m.gguf'?", ""},
        {"run -m " LONG_NAME "q4_1.gguf -p x", "from-q4_0.gguf'?", ""},
        {"run -m " LONG_NAME "bf16.gguf -p x", "cannot open", "mean"},
        {"run -m ./dangling.gguf -p x", "cannot open", "did you mean"},
        {"run -m ./missing.gguf -p x", "cannot open", "did you mean"},
        {"run -m missing/m.gguf -p x", "cannot open", "did you mean"},
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        cli("cd paths; $A %s", paths[i].line);
        cli_refused(3, paths[i].text, "");
        if (*paths[i].not && strstr(cli_last.err, paths[i].not)) fail_msg("%s: %s", paths[i].line, cli_last.err);
    }
    cli("$A run --$(printf 'a%%.0s' $(seq 3000)) 1"); /* longer than any name */
    cli_refused(2, "unknown option '--aaaa", "");
    cli("$A $(printf 'r%%.0s' $(seq 3000))");
    cli_refused(2, "unknown command 'rrrr", "");
}

static size_t n_lines(const char *text)
{
    size_t n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

static void help_is_short_at_first(void **state)
{
    (void)state;
    cli("$A help run");
    const size_t brief = n_lines(cli_last.out);
    const char *options = strstr(cli_last.out, "The options that most people need\n");
    assert_non_null(options);
    size_t n = 0;
    for (const char *p = options; (p = strstr(p, "\n  -")); p++) n++;
    assert_int_equal(n, 15);
    assert_true(n_lines(options) <= 26);
    assert_null(strstr(cli_last.out, "AERIE_"));
    assert_null(strstr(cli_last.out, "--dry-base"));
    assert_non_null(strstr(cli_last.out, "aerie help run --all\n"));
    static const char *const shorts[] = {"run --help", "run -h", "run -m x -h", "run --usage"};
    static const char *const alls[] = {"help run --all", "help run all", "help --all run", "run --help --all", "run -h all"};
    cli("$A help run > short; $A help run --all > long");
    for (size_t i = 0; i < sizeof shorts / sizeof *shorts; i++) {
        cli("$A %s | cmp - short", shorts[i]);
        if (cli_last.status) fail_msg("%s differs", shorts[i]);
    }
    for (size_t i = 0; i < sizeof alls / sizeof *alls; i++) {
        cli("$A %s | cmp - long", alls[i]);
        if (cli_last.status) fail_msg("%s differs", alls[i]);
    }
    cli("cat long");
    assert_true(n_lines(cli_last.out) > 4 * brief);
    assert_non_null(strstr(cli_last.out, "AERIE_DRY_BASE"));
    assert_non_null(strstr(cli_last.out, "\nSampling\n"));
    /* what each command's short list names exists: as many options as names, and no line is too long */
    for (size_t i = 0; i < app_n_commands(); i++) {
        cli("$A help %s", app_command_at(i)->name);
        assert_int_equal(cli_last.status, 0);
        assert_true(n_lines(cli_last.out) < 90);
        cli("$A help %s --all | grep -c -e '.\\{121\\}'", app_command_at(i)->name);
        assert_string_equal(cli_last.out, "0\n");
    }
    static const char *const topics[] = {"chat", "environment", "exit-status", "llama.cpp", "topics"};
    for (size_t i = 0; i < sizeof topics / sizeof *topics; i++) {
        cli("$A help %s", topics[i]);
        assert_int_equal(cli_last.status, 0);
        assert_true(cli_last.n_out && !cli_last.n_err);
    }
    cli("$A help llama.cpp | tr -s ' \\n' ' ' | grep -c -e '--control-vector-layer-range'");
    assert_string_equal(cli_last.out, "1\n");
    cli("$A --completion-bash > c && bash -c 'source ./c; COMP_WORDS=(aerie help ll); COMP_CWORD=2; _aerie; echo $COMPREPLY'");
    assert_string_equal(cli_last.out, "llama.cpp\n");
    cli("$A help nonsense");
    cli_refused(2, "no help about 'nonsense'", "");
}

/* What a row tells to use instead is there: options as words that begin with a dash, commands after 'aerie. */
static void advice_is_not_stale(void **state)
{
    (void)state;
    for (size_t i = 0; i < app_n_foreign_options() + app_n_foreign_commands(); i++) {
        const app_foreign *f = i < app_n_foreign_options() ? app_foreign_option_at(i)
                                                           : app_foreign_command_at(i - app_n_foreign_options());
        for (const char *at = f->text; *at; at++) {
            if (*at != '-' || (at > f->text && !strchr(" '(", at[-1]))) continue;
            const size_t n = 1 + strspn(at + 1, "-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
            const bool own = n == strlen("--version") && !memcmp(at, "--version", n);
            const bool others = n == 5 && !memcmp(at, "--man", n);
            const bool script = n > 13 && !memcmp(at, "--completion-", 13);
            if (n > 1 && !own && !others && !script && app_option_find(at, n, ~0u) == app_n_options())
                fail_msg("%s: '%s' names '%.*s', which no command has", f->names, f->text, (int)n, at);
            at += n - 1;
        }
        for (const char *at = f->text; (at = strstr(at, "'aerie ")); at++) {
            const char *name = at + strlen("'aerie ");
            bool known = *name == '-';
            for (size_t k = 0; k < app_n_commands(); k++)
                known |= strncmp(app_command_at(k)->name, name, strlen(app_command_at(k)->name)) == 0;
            if (!known) fail_msg("%s: '%s' names no command", f->names, f->text);
        }
    }
}

static void prints(const char *arguments, const char *const *parts)
{
    cli("$A help %s", arguments);
    if (cli_last.status || cli_last.n_err) fail_msg("help %s: %d %s", arguments, cli_last.status, cli_last.err);
    for (size_t i = 0; parts[i]; i++)
        if (!strstr(cli_last.out, parts[i])) fail_msg("help %s has no '%s': %s", arguments, parts[i], cli_last.out);
}

static void help_on_anything(void **state)
{
    (void)state;
    prints("-mg", (const char *[]){"-mg --main-gpu", "accepted without effect: layers lie where --device", NULL});
    prints("-ngl", (const char *[]){"-ngl, --gpu-layers, --n-gpu-layers N", "AERIE_GPU_LAYERS", "of run, serve", NULL});
    prints("--temp", (const char *[]){"--temp, --temperature T", "AERIE_TEMP", "of run, serve", NULL});
    prints("-t", (const char *[]){"-t, --threads N", NULL});
    prints("--max-tokens", (const char *[]){"done in another way here: use -n N", NULL});
    prints("-n", (const char *[]){"-n, --predict, --n-predict N", "-n, --n-rows LIST", "of bench verify", NULL});
    prints("speculation", (const char *[]){"--spec-type", "--hier-draft", "docs/speculation.md", "MTP", NULL});
    prints("Sampling", (const char *[]){"--top-k", "--mirostat", "docs/sampling.md", NULL});
    prints("rope", (const char *[]){"--yarn-orig-ctx", NULL});
    prints("grammar", (const char *[]){"--grammar-file", "--json-schema", NULL});
    prints("server", (const char *[]){"--max-queue", NULL});
    prints("mirostat", (const char *[]){"Options with that word in their names", "--mirostat-ent", NULL});
    prints("gpu", (const char *[]){"--n-gpu-layers", NULL});
    prints("template", (const char *[]){"usage: aerie template", NULL}); /* a command comes first */
    for (size_t i = 0; i < app_n_options(); i++) { /* by every name, and every group */
        char name[64];
        if (i % 7 == 0 && app_option_name(app_option_at(i), i % 2, name)) prints(name, (const char *[]){name, NULL});
    }
    cli("$A help --zzzz");
    cli_refused(2, "there is no option '--zzzz'", "");
    cli("$A help --tmep");
    cli_refused(2, "did you mean '--temp'", "");
    cli("$A help xyzzy");
    cli_refused(2, "no help about 'xyzzy'", "");
    /* all options of aerie and all names of others are in the list */
    cli("$A help llama.cpp | tr -s ' \\n' '\\n\\n' | sort -u > names");
    for (size_t i = 0; i < app_n_options() + app_n_foreign_options(); i++) {
        char name[64];
        static char names[1 << 16];
        if (i == 0) cli_read("names", names + 1, sizeof names - 1), names[0] = '\n';
        const char *row = i < app_n_options() ? app_option_at(i)->names : app_foreign_option_at(i - app_n_options())->names;
        for (size_t k = 0; app_name_at(row, k, name); k++) {
            char line[72];
            snprintf(line, sizeof line, "\n%s\n", name);
            if (!strstr(names, line)) fail_msg("help llama.cpp has no %s", name);
        }
    }
}

/* Defaults in the short help: in words where the number means nothing by itself. */
static void defaults_mean_something(void **state)
{
    (void)state;
    prints("run", (const char *[]){"(default: one per core", "(default: until the answer", "(default: 0.8)",
                                   "(default: auto)", "(default: the trained", NULL});
    assert_null(strstr(cli_last.out, "(default: 0)"));
    assert_null(strstr(cli_last.out, "(default: -1)"));
    for (size_t i = 0; i < app_n_commands(); i++) {
        cli("$A help %s", app_command_at(i)->name);
        if (strstr(cli_last.out, "4294967295")) fail_msg("%s", cli_last.out);
        if (strstr(cli_last.out, "(default: )") || strstr(cli_last.out, "(default: that"))
            fail_msg("%s: %s", app_command_at(i)->name, cli_last.out);
    }
}

/* Each option has one default, and none is a number that only the program knows. */
static void options_have_one_default(void **state)
{
    (void)state;
    for (size_t i = 0; i < app_n_commands(); i++) {
        cli("$A help %s --all", app_command_at(i)->name);
        assert_null(strstr(cli_last.out, "4294967295"));
        for (const char *at = cli_last.out, *end; (at = strstr(at, "\n  -")); at = end) {
            end = strstr(at + 1, "\n  -"); /* the next option */
            if (!end) end = at + strlen(at);
            const char *one = strstr(at, "default: "), *two = one ? strstr(one + 1, "default: ") : NULL;
            if (two && two < end) fail_msg("%s: %.*s", app_command_at(i)->name, (int)(end - at), at);
        }
    }
    cli("$A --man");
    assert_null(strstr(cli_last.out, "4294967295"));
    for (const char *at = cli_last.out; (at = strstr(at, "\n.TP\n")); at++) {
        const char *end = strstr(at + 1, "\n.TP\n"), *one = strstr(at, "(default: ");
        const char *two = one ? strstr(one + 1, "(default: ") : NULL;
        if (end && two && two < end) fail_msg("%.*s", (int)(end - at), at);
    }
}

/* The full help has no default that is only a code for something else, where a few words say what ("0: 64 (default: 0)"). */
static void full_help_has_defaults_in_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < app_n_commands(); i++) {
        cli("$A help %s --all | tr -s ' \\n' ' ' | grep -o -E ' 0: [^;:()]{1,30} \\(default: 0\\)'", app_command_at(i)->name);
        if (cli_last.n_out) fail_msg("%s: %s", app_command_at(i)->name, cli_last.out);
    }
    prints("--spec-tree-nodes", (const char *[]){"0: 64 (default: 64)", NULL});
    prints("--top-k", (const char *[]){"0: off (default: 40)", NULL});
    prints("--models-max", (const char *[]){"(default: any number)", NULL});
    cli("$A --man | tr '\\n' ' ' | grep -c -F '0: 64 (default: 64)'");
    assert_string_equal(cli_last.out, "1\n");
}

/* Each group of options has one heading, whatever the order of the table. */
static void groups_have_one_heading(void **state)
{
    (void)state;
    for (size_t i = 0; i < app_n_commands(); i++) {
        cli("$A help %s --all | sed '1,/^$/d' | grep -E '^[A-Z][A-Za-z ()]*$' | sort | uniq -d", app_command_at(i)->name);
        if (cli_last.n_out) fail_msg("%s has these headings twice: %s", app_command_at(i)->name, cli_last.out);
    }
}

static void version_has_a_commit(void **state)
{
    (void)state;
    cli("$A --version");
    const char *commit = strstr(cli_last.out, "\ncommit: ");
    assert_non_null(commit);
    assert_true(strstr(cli_last.out, "\nbuild: ") && strstr(cli_last.out, "\ncpu level: "));
    const size_t n = strspn(strchr(commit, ' ') + 1, "0123456789abcdef");
    if (n < 7 && !strstr(commit, "unknown: built from a source archive")) fail_msg("%s", cli_last.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling_of_llama_has_an_answer),
        cmocka_unit_test(no_name_has_two_answers),
        cmocka_unit_test(the_program_says_what_the_table_says),
        cmocka_unit_test(suggestions),
        cmocka_unit_test(help_is_short_at_first),
        cmocka_unit_test(advice_is_not_stale),
        cmocka_unit_test(help_on_anything),
        cmocka_unit_test(defaults_mean_something),
        cmocka_unit_test(options_have_one_default),
        cmocka_unit_test(full_help_has_defaults_in_words),
        cmocka_unit_test(groups_have_one_heading),
        cmocka_unit_test(version_has_a_commit),
    };
    return cmocka_run_group_tests(tests, cli_setup, cli_teardown);
}

/* help.c - help, completion for three shells and the man page, all from the tables of options_table.c. */
#include <string.h>

#include "cli/commands.h"
#include "cli/llama_options.h"

void app_print_wrapped(const char *text, size_t at, size_t left)
{
    while (*text) {
        const size_t n = strcspn(text, " ");
        if (at > left && at + 1 + n > 100) {
            app_print("\n%*s", (int)left, "");
            at = left;
        } else if (at > left) {
            app_print(" ");
            at++;
        }
        app_print("%.*s", (int)n, text);
        at += n;
        text += n;
        while (*text == ' ') text++;
    }
    app_print("\n");
}

/* ---- Topics ----------------------------------------------------------------------------------------- */

static void print_environment(void)
{
    app_print("Every option may also be set in the environment: AERIE_ and its first long name in capitals, with _ for\n"
              "each dash after the first two. AERIE_THREADS=2 is --threads 2, AERIE_STATS=1 is --stats. The command line\n"
              "overrides the environment, and both override the file of 'serve --config FILE'. 'aerie help COMMAND --all'\n"
              "shows the name beside each option. llama.cpp's LLAMA_ARG_* are read for options that aerie has too, unless\n"
              "AERIE_* or the command line gives the option.\n"
              "\n"
              "  NO_COLOR         any value: no colours\n"
              "  XDG_STATE_HOME   folder of the chat's input history (aerie/history; default: ~/.local/state)\n"
              "  XDG_CACHE_HOME   folder of pulled models (aerie/models; default: ~/.cache)\n"
              "  HF_TOKEN         token for Hugging Face; HF_ENDPOINT: the address of another hub\n"
              "  HTTPS_PROXY      a proxy for pulling; also http_proxy, all_proxy and no_proxy, as curl reads them\n");
}

static void print_status(void)
{
    app_print("  0    done\n"
              "  1    failed while running\n"
              "  2    the command line is wrong\n"
              "  3    a file is unusable\n"
              "  130  interrupted\n"
              "\n"
              "Answers go to standard output, everything else to standard error.\n");
}

static void print_foreign(app_foreign_kind kind, const char *heading)
{
    app_print("\n%s\n", heading);
    for (size_t i = 0; i < app_n_foreign_options(); i++) {
        const app_foreign *f = app_foreign_option_at(i);
        if (f->kind != kind) continue;
        app_print("  ");
        app_print_wrapped(f->names, 2, 2);
        app_print("      ");
        app_print_wrapped(f->text, 6, 6);
    }
}

/* Prints the names of options in the order of the table, each once. */
static void print_names_once(void)
{
    app_text all = {0};
    for (size_t i = 0; i < app_n_options(); i++) {
        bool again = false;
        for (size_t k = 0; k < i && !again; k++) again = strcmp(app_option_at(k)->names, app_option_at(i)->names) == 0;
        if (again) continue;
        const char *names = app_option_at(i)->names;
        if ((all.n && !app_text_add(&all, " ", 1)) || !app_text_add(&all, names, strlen(names))) break;
    }
    app_print("  ");
    app_print_wrapped(all.data ? all.data : "", 2, 2);
    app_text_free(&all);
}

static void print_llama(void)
{
    app_print("Options of aerie. An option that llama.cpp has too means the same there. 'aerie help -t' explains -t.\n"
              "A LLAMA_ARG_* variable is read where its AERIE_* variable is not set.\n");
    print_names_once();
    print_foreign(APP_NO_EFFECT, "Accepted without effect");
    print_foreign(APP_OTHERWISE, "Done in another way");
    print_foreign(APP_NOT_YET, "Not supported yet");
    print_foreign(APP_ABSENT, "Not supported");
}

static void print_topics(void);

static const struct {
    const char *name, *summary;
    void (*print)(void);
} topics[] = {
    {"chat", "the commands of a chat on a terminal", app_print_chat_commands},
    {"environment", "options in the environment", print_environment},
    {"exit-status", "what the program returns", print_status},
    {"llama.cpp", "options of llama.cpp and other programs, and their counterparts in aerie", print_llama},
    {"topics", "this list", print_topics},
};
enum { n_topics = sizeof topics / sizeof *topics };

static void print_topics(void)
{
    for (size_t i = 0; i < n_topics; i++) app_print("  aerie help %-12s %s\n", topics[i].name, topics[i].summary);
}

const char *app_topic_at(size_t i)
{
    return i < n_topics ? topics[i].name : NULL;
}

bool app_print_topic(const char *name)
{
    for (size_t i = 0; i < n_topics; i++) {
        if (strcmp(topics[i].name, name)) continue;
        topics[i].print();
        return true;
    }
    return false;
}

/* ---- Help --------------------------------------------------------------------------------------------- */

void app_print_usage(FILE *stream)
{
    fputs("usage: aerie COMMAND [options]\n", stream);
    for (size_t i = 0; i < app_n_commands(); i++) {
        fprintf(stream, "  %-13s %s\n", app_command_at(i)->name, app_command_at(i)->summary);
    }
    fputs("See 'aerie help' or 'aerie help COMMAND'.\n", stream);
}

void app_print_overview(void)
{
    app_print("aerie %s - runs GGUF language models with speculative decoding that never changes the output\n\n",
              aerie_version());
    app_print("usage: aerie COMMAND [options]\n\n");
    for (size_t i = 0; i < app_n_commands(); i++) {
        app_print("  %-13s %s\n", app_command_at(i)->name, app_command_at(i)->summary);
    }
    app_print("  %-13s %s\n", "help", "this text; 'aerie help COMMAND', TOPIC, -OPTION or SUBJECT (sampling, server, ...)");
    app_print("\nTopics:");
    for (size_t i = 0; i < n_topics; i++) app_print("%s %s", i ? "," : "", topics[i].name);
    app_print("\n");
    app_print("\n  --version          version, commit, build, compiler and CPU level\n"
              "  --completion-bash  a completion script: source <(aerie --completion-bash); also --completion-zsh and -fish\n"
              "  --man              a manual page: aerie --man > aerie.1\n"
              "\n"
              "Every option may also be set in the environment (AERIE_THREADS=2 is -t 2); the command line overrides it.\n"
              "Exit status: 0 done, 1 failed while running, 2 the command line is wrong, 3 a file is unusable,\n"
              "130 interrupted. Answers go to standard output, everything else to standard error.\n");
}

/* Writes "-n, --predict, --n-predict N" into out [256]; returns its length. */
static size_t names_of(const app_option *o, char out[256])
{
    char name[64];
    size_t n = 0;
    for (size_t k = 0; app_option_name(o, k, name) && n < 200; k++) {
        n += (size_t)snprintf(out + n, 256 - n, "%s%s", k ? ", " : "", name);
    }
    if (o->argument && n < 200) n += (size_t)snprintf(out + n, 256 - n, " %s", o->argument);
    return n;
}

/* Returns the words that explain the value in the option's help, such as "off" for "0" in "...; 0: off"; NULL if there are
 * none. */
static const char *meaning_of(const app_option *o, const char *value, char out[160])
{
    char key[24];
    snprintf(key, sizeof key, "%.20s: ", value);
    const size_t n_key = strlen(key);
    for (const char *at = o->help; (at = strstr(at, key)); at += n_key) {
        if (at > o->help && at[-1] != ' ') continue;
        size_t n = strcspn(at + n_key, ";(");
        const char *stop = strstr(at + n_key, ". ");
        if (stop && (size_t)(stop - at) - n_key < n) n = (size_t)(stop - at) - n_key;
        while (n && at[n_key + n - 1] == ' ') n--;
        snprintf(out, 160, "%.*s", (int)n, at + n_key);
        return out;
    }
    return NULL;
}

/* Returns the option's default: in the words that its help has for it where the number alone says little ("0: 64"), in short
 * help wherever it has words; NULL if the option has none. */
static const char *default_of(const app_option *o, bool brief, char out[256])
{
    enum { FEW = 40 };
    char meaning[160];
    const char *value = app_option_default(o, out);
    const bool code = value && (!strcmp(value, "0") || *value == '-');
    const char *words = value && (brief || code) ? meaning_of(o, value, meaning) : NULL;
    if (words && (brief || strlen(words) <= FEW)) snprintf(out, 256, "%s", words);
    return value ? out : NULL;
}

void app_print_option(const app_option *o, bool brief)
{
    enum { LEFT = 34 };
    char names[256], text[1024], fallback[256], environment[64];
    size_t at = 2 + names_of(o, names);
    app_print("  %s", names);
    if (at + 2 > LEFT) {
        app_print("\n");
        at = 0;
    }
    app_print("%*s", (int)(LEFT - at), "");
    const char *value = default_of(o, brief, fallback), *own = strstr(o->help, " (default: ");
    size_t n = strlen(o->help);
    if (brief && own) n = (size_t)(own - o->help);
    if (brief && strcspn(o->help, ";") < n) n = strcspn(o->help, ";");
    size_t used = (size_t)snprintf(text, sizeof text, "%.*s", (int)n, o->help);
    if (brief && own) /* the help has its own words about the default */
        used += (size_t)snprintf(text + used, sizeof text - used, "%.*s", (int)strcspn(own, ")") + 1, own);
    if (value && !own && used < sizeof text)
        used += (size_t)snprintf(text + used, sizeof text - used, " (default: %s)", value);
    if (!brief && used < sizeof text)
        snprintf(text + used, sizeof text - used, " [%s]", app_option_environment(o, environment));
    app_print_wrapped(text, LEFT, LEFT);
}

static bool in_group(const app_option *o, const app_command *command, const char *group)
{
    return (o->commands & command->bit) && strcmp(o->group, group) == 0;
}

/* Prints the command's options by group, groups in the order of the table. */
static void print_options(const app_command *command)
{
    for (size_t i = 0; i < app_n_options(); i++) {
        const app_option *first = app_option_at(i);
        bool again = !(first->commands & command->bit);
        for (size_t k = 0; k < i && !again; k++) again = in_group(app_option_at(k), command, first->group);
        if (again) continue;
        app_print("\n%s\n", first->group);
        for (size_t k = i; k < app_n_options(); k++)
            if (in_group(app_option_at(k), command, first->group)) app_print_option(app_option_at(k), false);
    }
}

/* Returns the options that most people need, separated by spaces; NULL for commands with few options. */
static const char *essentials(unsigned command)
{
    switch (command) {
    case APP_RUN: return "-m -p -f -sys -no-cnv -n -c -t --temp -s -j -md --spec-type --stats --json";
    case APP_SERVE: return "-m -md -np -c -t --host --port --api-key-file --models-dir --max-queue --grace --spec-type -v -q";
    case APP_BENCH_SPEC: return "-m -md -p --prompts --held-out -np -n -c -t --temps --spec-types -r --json --csv";
    case APP_BENCH_STUDY: return "-m -md -o --types --quick -p --prompts --per-group --held-out -n -c -t -r";
    case APP_TRAIN_DATA: return "-m -o --n-turns --features --taps -np -n -c -t --temp -s";
    case APP_BENCH_SPEED: return "-m -p -n -pg -d -t -ub -o -c --cpu --mmap --kv-type -r --json --csv -v";
    case APP_BENCH_VERIFY: return "-m -n -p --contexts -c -t --cpu --mmap --kv-type -r --json --csv -v";
    case APP_BENCH_LOGITS: return "-m --ids-file -c -b -t --cpu --mmap --kv-type";
    case APP_PERPLEXITY: return "-m -f -c --chunks --ppl-stride --kl-divergence-base --kl-divergence --hellaswag --json";
    case APP_IMATRIX: return "-m -f -o -c --chunks --process-output -md -n -t --json";
    case APP_QUANTIZE: return "--imatrix --tensor-type --output-tensor-type --token-embedding-type --pure --allow-requantize "
                              "--dry-run -t --json";
    case APP_EMBED: return "-m -p -f --query --pooling --embd-normalize --embd-output-format --truncate --cosine -t";
    case APP_DOCTOR: return "-m -c -np -t --cpu --kv-type --quick --json";
    case APP_CONVERT: return "-o --target --outtype --self-check --tokenizer -t --json -v";
    default: return NULL;
    }
}

static void print_essentials(const app_command *command, const char *names)
{
    size_t n_all = 0;
    for (size_t i = 0; i < app_n_options(); i++) n_all += (app_option_at(i)->commands & command->bit) != 0;
    app_print("\nThe options that most people need\n");
    while (*names) {
        const size_t n = strcspn(names, " ");
        const size_t i = app_option_find(names, n, command->bit);
        if (i < app_n_options()) app_print_option(app_option_at(i), true);
        names += n;
        names += *names == ' ';
    }
    app_print("\nAll %zu options: aerie help %s --all\n", n_all, command->name);
}

void app_print_help(const app_command *command, app_help help)
{
    const char *names = essentials(command->bit);
    app_print("usage: aerie %s [options]%s%s\n\n%s", command->name, *command->arguments ? " " : "", command->arguments,
              command->about);
    if (names && help != APP_HELP_ALL) print_essentials(command, names);
    else print_options(command);
    if (command->bit == APP_QUANTIZE) app_quantize_types();
}

/* ---- Bash ------------------------------------------------------------------------------------------- */

static void print_names(const app_command *command, bool only_files)
{
    char name[64];
    const char *space = "";
    for (size_t i = 0; i < app_n_options(); i++) {
        const app_option *o = app_option_at(i);
        if (!(o->commands & command->bit)) continue;
        if (only_files && (!o->argument || strncmp(o->argument, "FILE", 4))) continue;
        for (size_t k = 0; app_option_name(o, k, name); k++) {
            app_print("%s%s", space, name);
            space = only_files ? "|" : " ";
        }
    }
}

/* Prints the commands without those of 'bench', which have the same first word. */
static void print_first_words(void)
{
    for (size_t i = 0; i < app_n_commands(); i++) {
        const char *name = app_command_at(i)->name;
        if (strncmp(name, "bench ", 6)) app_print("%s ", name);
    }
}

void app_print_completion(void)
{
    app_print("# bash completion for aerie\n"
              "_aerie()\n"
              "{\n"
              "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
              "    local command=${COMP_WORDS[1]} options= files=\n"
              "    COMPREPLY=()\n"
              "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
              "        COMPREPLY=($(compgen -W '");
    print_first_words();
    app_print("bench help --help --version --completion-bash --completion-zsh --completion-fish --man' -- \"$word\"))\n"
              "        return\n"
              "    fi\n"
              "    if [ \"$command\" = bench ] && [ \"$COMP_CWORD\" = 2 ]; then\n"
              "        COMPREPLY=($(compgen -W 'speed verify spec study shapes logits' -- \"$word\"))\n"
              "        return\n"
              "    fi\n"
              "    if [ \"$command\" = help ]; then\n"
              "        COMPREPLY=($(compgen -W '");
    print_first_words();
    app_print("bench speed verify spec study shapes logits --all");
    for (size_t i = 0; i < n_topics; i++) app_print(" %s", topics[i].name);
    app_print("' -- \"$word\"))\n"
              "        return\n"
              "    fi\n"
              "    [ \"$command\" = bench ] && command=\"bench ${COMP_WORDS[2]}\"\n"
              "    case $command in\n");
    for (size_t i = 0; i < app_n_commands(); i++) {
        app_print("    '%s') options='", app_command_at(i)->name);
        print_names(app_command_at(i), false);
        app_print(" --help' ; files='");
        print_names(app_command_at(i), true);
        app_print("' ;;\n");
    }
    app_print("    esac\n"
              "    if [[ \"|$files|\" == *\"|$before|\"* ]]; then\n"
              "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
              "    elif [ \"$before\" = --spec-type ]; then\n"
              "        COMPREPLY=($(compgen -W '");
    for (size_t i = 0; ae_session_test_spec_at(i); i++) app_print("%s%s", i ? " " : "", ae_session_test_spec_at(i));
    app_print("' -- \"$word\"))\n"
              "    elif [[ $word == -* ]]; then\n"
              "        COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
              "    else\n"
              "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
              "    fi\n"
              "}\n"
              "complete -o filenames -F _aerie aerie\n");
}

/* ---- zsh and fish ------------------------------------------------------------------------------------- */

/* Prints the first clause of a help text inside single quotes, with a backslash before each character of `escaped`. */
static void print_clause(const char *text, const char *escaped)
{
    const char *rest = strstr(text, " (default");
    const char *sentence = strstr(text, ". ");
    size_t n = strcspn(text, ";\n");
    if (rest && (size_t)(rest - text) < n) n = (size_t)(rest - text);
    if (sentence && (size_t)(sentence - text) < n) n = (size_t)(sentence - text);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\'') app_print("'\\''");
        else app_print("%s%c", strchr(escaped, text[i]) ? "\\" : "", text[i]);
    }
}

static bool takes_file(const app_option *o)
{
    return o->argument && (strstr(o->argument, "FILE") || strstr(o->argument, "DIR"));
}

static void print_zsh_options(const app_command *command)
{
    char name[64];
    for (size_t i = 0; i < app_n_options(); i++) {
        const app_option *o = app_option_at(i);
        if (!(o->commands & command->bit)) continue;
        for (size_t k = 0; app_option_name(o, k, name); k++) {
            app_print(" \\\n            '*%s[", name);
            print_clause(o->help, "[]\\:");
            app_print("]");
            if (o->argument) {
                app_print(":");
                print_clause(o->argument, "[]\\:");
                app_print(":%s", takes_file(o) ? "_files" : " ");
            }
            app_print("'");
        }
    }
}

void app_print_completion_zsh(void)
{
    app_print("#compdef aerie\n"
              "_aerie()\n"
              "{\n"
              "    local -a commands\n"
              "    local command=$words[2]\n"
              "    if (( CURRENT == 2 )); then\n"
              "        commands=(");
    for (size_t i = 0; i < app_n_commands(); i++) {
        const app_command *c = app_command_at(i);
        if (!strncmp(c->name, "bench ", 6)) continue;
        app_print("'%s:", c->name);
        print_clause(c->summary, "\\:");
        app_print("' ");
    }
    app_print("'bench:runs benchmarks' 'help:explains commands and options')\n"
              "        _describe command commands\n"
              "        return\n"
              "    fi\n"
              "    if [[ $command == bench ]]; then\n"
              "        if (( CURRENT == 3 )); then\n"
              "            compadd speed verify spec study shapes logits\n"
              "            return\n"
              "        fi\n"
              "        command=\"bench $words[3]\"\n"
              "    fi\n"
              "    shift words\n"
              "    (( CURRENT-- ))\n"
              "    case $command in\n");
    for (size_t i = 0; i < app_n_commands(); i++) {
        app_print("        '%s') _arguments '*:file:_files' '--help[what the options mean]'", app_command_at(i)->name);
        print_zsh_options(app_command_at(i));
        app_print(" ;;\n");
    }
    app_print("        *) _files ;;\n"
              "    esac\n"
              "}\n"
              "if [[ $funcstack[1] == _aerie ]]; then\n"
              "    _aerie \"$@\"\n"
              "else\n"
              "    compdef _aerie aerie\n"
              "fi\n");
}

static void print_fish_options(const app_command *command)
{
    char name[64];
    const bool bench = strncmp(command->name, "bench ", 6) == 0;
    for (size_t i = 0; i < app_n_options(); i++) {
        const app_option *o = app_option_at(i);
        if (!(o->commands & command->bit)) continue;
        app_print("complete -c aerie -n '%s__fish_seen_subcommand_from %s'",
                  bench ? "__fish_seen_subcommand_from bench; and " : "", bench ? command->name + 6 : command->name);
        for (size_t k = 0; app_option_name(o, k, name); k++)
            app_print(" %s %s", strncmp(name, "--", 2) == 0 ? "-l" : name[2] ? "-o" : "-s", name + 1 + (name[1] == '-'));
        if (o->argument) app_print(takes_file(o) ? " -r -F" : " -x");
        app_print(" -d '");
        print_clause(o->help, "");
        app_print("'\n");
    }
}

void app_print_completion_fish(void)
{
    app_print("# fish completion for aerie\n");
    for (size_t i = 0; i < app_n_commands(); i++) {
        const app_command *c = app_command_at(i);
        const bool bench = strncmp(c->name, "bench ", 6) == 0;
        app_print("complete -c aerie -f -n '%s' -a %s -d '",
                  bench ? "__fish_seen_subcommand_from bench; "
                          "and not __fish_seen_subcommand_from speed verify spec study shapes logits"
                        : "__fish_use_subcommand",
                  bench ? c->name + 6 : c->name);
        print_clause(c->summary, "");
        app_print("'\n");
    }
    app_print("complete -c aerie -f -n '__fish_use_subcommand' -a 'bench help'\n");
    for (size_t i = 0; i < app_n_commands(); i++) print_fish_options(app_command_at(i));
}

/* ---- Man page ------------------------------------------------------------------------------------------ */

/* Prints text in such a way that troff finds no requests or escapes in it. */
static void print_troff(const char *text)
{
    bool start = true;
    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\'')) app_print("\\&");
        if (*text == '\\') app_print("\\e");
        else if (*text == '-') app_print("\\-");
        else app_print("%c", *text);
        start = *text == '\n';
    }
}

void app_print_man(void)
{
    char names[256], fallback[256];
    app_print(
        ".TH AERIE 1 \"\" \"aerie %s\" \"User Commands\"\n.SH NAME\naerie \\- run language models with speculative decoding\n",
        aerie_version());
    app_print(".SH SYNOPSIS\n.B aerie\n.I command\n[options]\n.SH COMMANDS\n");
    for (size_t i = 0; i < app_n_commands(); i++) {
        const app_command *c = app_command_at(i);
        app_print(".SS aerie %s %s\n.nf\n", c->name, c->arguments);
        print_troff(c->about);
        app_print(".fi\n");
    }
    app_print(".SH OPTIONS\nEach option may also be set in the environment; the command line overrides it.\n");
    for (size_t i = 0; i < app_n_options(); i++) {
        const app_option *o = app_option_at(i);
        names_of(o, names);
        app_print(".TP\n.B ");
        print_troff(names);
        app_print("\n");
        print_troff(o->help);
        const char *value = default_of(o, false, fallback);
        if (value && !strstr(o->help, "(default: ")) {
            app_print(" (default: ");
            print_troff(value);
            app_print(")");
        }
        app_print(". Environment: %s. Commands:", app_option_environment(o, fallback));
        for (size_t k = 0, n = 0; k < app_n_commands(); k++) {
            if (o->commands & app_command_at(k)->bit) app_print("%s %s", n++ ? "," : "", app_command_at(k)->name);
        }
        app_print(".\n");
    }
    app_print(".SH EXIT STATUS\n0 done, 1 failed while running, 2 the command line is wrong, 3 a file is unusable, "
              "130 interrupted.\n");
}

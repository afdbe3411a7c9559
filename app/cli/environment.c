/* environment.c - options in the environment: AERIE_* with any long name of an option, and llama.cpp's LLAMA_ARG_*. Warns about
 * AERIE_* variables that belong to no option. */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/llama_options.h"

extern char **environ;

/* Writes the prefix and the option's name in capitals, '-' as '_', without the two dashes. */
static void spell(const char *prefix, const char *option, char out[64])
{
    snprintf(out, 64, "%s%.50s", prefix, option + 2);
    for (char *p = out; *p; p++) *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
}

const char *app_option_environment(const app_option *option, char out[64])
{
    char name[64];
    size_t i = 0;
    while (app_option_name(option, i, name) && strncmp(name, "--", 2)) i++;
    spell("AERIE_", name, out);
    return out;
}

/* llama.cpp's variables (common/arg.cpp) that are not LLAMA_ARG_ with a name of the option. */
static const struct {
    const char *option, *theirs;
    bool negated; /* the variable turns off what the option turns on */
} others[] = {
    {"--batch-size", "LLAMA_ARG_BATCH", false},
    {"--ubatch-size", "LLAMA_ARG_UBATCH", false},
    {"--parallel", "LLAMA_ARG_N_PARALLEL", false},
    {"--rope-scaling", "LLAMA_ARG_ROPE_SCALING_TYPE", false},
    {"--hf-repo-draft", "LLAMA_ARG_SPEC_DRAFT_HF_REPO", false},
    {"--reasoning-format", "LLAMA_ARG_THINK", false},
    {"--reasoning-budget", "LLAMA_ARG_THINK_BUDGET", false},
    {"--reasoning-budget-message", "LLAMA_ARG_THINK_BUDGET_MESSAGE", false},
    {"--reasoning", "LLAMA_ARG_REASONING", false},
    {"--reasoning-effort", "LLAMA_ARG_REASONING_EFFORT", false},
    {"--api-key", "LLAMA_API_KEY", false},
    {"--no-metrics", "LLAMA_ARG_ENDPOINT_METRICS", true},
    {"--no-slots", "LLAMA_ARG_ENDPOINT_SLOTS", true},
    {"--no-ui", "LLAMA_ARG_UI", true},
    {"--no-prefill-assistant", "LLAMA_ARG_PREFILL_ASSISTANT", true},
};

/* Returns whether llama.cpp's option of this name means something else, so that its variable must not be read. */
static bool is_ours_alone(const char *name)
{
    static const char *const names[] = {"--tools", "--config", "--output", "--file"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

static const char *get(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

const char *app_environment_get(const app_option *option, char name[64], bool *negated)
{
    char known[64];
    const char *value = NULL;
    *negated = false;
    for (size_t k = 0; !value && app_option_name(option, k, known); k++) {
        if (strncmp(known, "--", 2)) continue;
        spell("AERIE_", known, name);
        value = get(name);
    }
    for (size_t k = 0; !value && app_option_name(option, k, known); k++) {
        if (strncmp(known, "--", 2) || is_ours_alone(known)) continue;
        spell("LLAMA_ARG_", known, name);
        value = get(name);
        for (size_t i = 0; !value && i < sizeof others / sizeof *others; i++) {
            if (strcmp(others[i].option, known)) continue;
            snprintf(name, 64, "%s", others[i].theirs);
            value = get(name);
            *negated = value && others[i].negated;
        }
    }
    return value;
}

/* Writes the option's name, "--like-this", for a variable AERIE_LIKE_THIS. */
static void as_option(const char *variable, char out[64])
{
    snprintf(out, 64, "--%.60s", variable + strlen("AERIE_"));
    for (char *p = out; *p; p++) *p = *p == '_' ? '-' : (char)tolower((unsigned char)*p);
}

/* Reports a variable that belongs to no option: what to use instead if another program has such an option, else the option that
 * it may misspell. A variable that resembles no option is not reported, since it may belong to another program. */
static void check_name(const char *variable, app_telling *tell, void *user)
{
    static const char *const used[] = {"AERIE_BACKEND", "AERIE_CPU", "AERIE_DEBUG"};
    char option[64], known[64], best[64] = "", sentence[512];
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        if (strcmp(used[i], variable) == 0) return;
    as_option(variable, option);
    if (app_option_find(option, strlen(option), ~0u) < app_n_options()) return;
    const app_foreign *f = app_foreign_option(option, strlen(option));
    if (f) {
        snprintf(sentence, sizeof sentence, "%s in the environment is not read: %s", variable, f->text);
        tell(user, sentence);
        return;
    }
    for (size_t i = 0; i < app_n_options(); i++)
        for (size_t k = 0; app_option_name(app_option_at(i), k, known); k++)
            if (strncmp(known, "--", 2) == 0 && app_nearest(option, *best ? best : NULL, known) == known)
                snprintf(best, sizeof best, "%s", known);
    if (!*best) return;
    spell("AERIE_", best, known);
    snprintf(sentence, sizeof sentence, "%s in the environment is not read; did you mean %s?", variable, known);
    tell(user, sentence);
}

static bool is_word(const char *word, const char *text, size_t n)
{
    return n == strlen(word) && memcmp(word, text, n) == 0;
}

/* Reports words of AERIE_DEBUG that are unknown, or that have no effect in this build. */
static void check_debug(app_telling *tell, void *user)
{
#ifdef NDEBUG
    const bool has_status = false;
#else
    const bool has_status = true;
#endif
    char sentence[256];
    const char *list = get("AERIE_DEBUG");
    for (size_t n; list && *list; list += n + (list[n] != '\0')) {
        n = strcspn(list, ",");
        if (n == 0 || is_word("pass", list, n) || is_word("tree", list, n)) continue;
        if (is_word("status", list, n)) {
            if (!has_status)
                tell(user, "AERIE_DEBUG=status has no effect in this build; only a build with assertions "
                           "(-DCMAKE_BUILD_TYPE=Debug) shows where an error was raised");
            continue;
        }
        snprintf(sentence, sizeof sentence, "AERIE_DEBUG does not know '%.*s'; it takes a list of pass, tree and status",
                 n < 64 ? (int)n : 64, list);
        tell(user, sentence);
    }
}

void app_environment_check(app_telling *tell, void *user)
{
    check_debug(tell, user);
    for (char **e = environ; *e; e++) {
        char name[64];
        const size_t n = strcspn(*e, "=");
        if (strncmp(*e, "AERIE_", 6) || n >= sizeof name || !(*e)[n] || !(*e)[n + 1]) continue;
        snprintf(name, sizeof name, "%.*s", (int)n, *e);
        check_name(name, tell, user);
    }
}

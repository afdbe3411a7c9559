/* suggest.c - messages about unknown options and commands: what to use instead of another program's name (llama_options.h),
 * otherwise which name it may misspell. */
#include <ctype.h>
#include <string.h>

#include "cli/llama_options.h"

/* ---- Misspellings ---------------------------------------------------------------------------------- */

enum { LONGEST = 256 }; /* file names have at most 255 bytes */

/* Writes the text in lower case, with '_' as '-' and without the dashes at its start: "--Top_K" becomes "top-k". Longer names
 * are cut. Returns the length. */
static size_t normalize(const char *text, char out[LONGEST])
{
    size_t n = 0;
    while (*text == '-') text++;
    for (; *text && n + 1 < LONGEST; text++) out[n++] = *text == '_' ? '-' : (char)tolower((unsigned char)*text);
    out[n] = '\0';
    return n;
}

/* Returns the smallest number of edits (insert, delete, replace, swap neighbours) that turn a into b. */
static unsigned distance(const char *a, size_t na, const char *b, size_t nb)
{
    unsigned char rows[3][LONGEST]; /* of the table by lengths of a: i, i - 1 and i - 2, each modulo 3; below LONGEST */
    for (size_t j = 0; j <= nb; j++) rows[0][j] = (unsigned char)j;
    for (size_t i = 1; i <= na; i++) {
        unsigned char *row = rows[i % 3];
        const unsigned char *last = rows[(i + 2) % 3], *last_but_one = rows[(i + 1) % 3];
        row[0] = (unsigned char)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned best = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1u < best) best = last[j] + 1u;
            if (row[j - 1] + 1u < best) best = row[j - 1] + 1u;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && last_but_one[j - 2] + 1u < best)
                best = last_but_one[j - 2] + 1u;
            row[j] = (unsigned char)best;
        }
    }
    return rows[na % 3][nb];
}

/* Returns the number of edits between two names; NEVER if one cannot be a misspelling of the other. */
static unsigned typos(const char *text, const char *candidate)
{
    enum { NEVER = 1000 };
    char a[LONGEST], b[LONGEST];
    const size_t na = normalize(text, a), nb = normalize(candidate, b);
    const size_t shorter = na < nb ? na : nb;
    if (shorter == 0 || a[0] != b[0]) return NEVER;
    if (na == nb && memcmp(a, b, na) == 0) return 0;
    /* "--system" stands for "--system-prompt" */
    if (na >= 3 && nb > na && memcmp(a, b, na) == 0) return 2;
    const unsigned d = distance(a, na, b, nb);
    return d <= (shorter < 3 ? 0u : shorter < 6 ? 1u : 2u) ? d : NEVER;
}

const char *app_nearest(const char *text, const char *best, const char *candidate)
{
    const unsigned d = typos(text, candidate);
    return d <= 2 && (!best || d < typos(text, best)) ? candidate : best;
}

/* ---- Options --------------------------------------------------------------------------------------- */

/* What a command takes instead of an option that people expect of it. */
static const struct {
    unsigned commands;
    const char *names, *instead;
} replaced[] = {
    {APP_TEMPLATE, "-p --prompt -f", "a template needs a conversation: --messages FILE, or --messages - for standard input, "
     "with [{\"role\": \"user\", \"content\": \"...\"}]"},
    {APP_SERVE, "-p --prompt -f", "prompts come with the requests of clients"},
    {APP_SERVE, "--image", "images come with the requests of clients"},
    {APP_SERVE, "--grammar --grammar-file -j --json-schema -jf --json-schema-file",
     "grammars and schemas come with the requests of clients (\"grammar\", \"response_format\")"},
    {APP_SERVE, "-r --reverse-prompt", "stop texts come with the requests of clients (\"stop\")"},
    {APP_SERVE, "-l --logit-bias", "biases come with the requests of clients (\"logit_bias\")"},
    {APP_SERVE, "-sys --system-prompt", "system messages come with the requests of clients"},
    {APP_RUN | APP_SERVE, "--tokenizer", "a model's file has its tokenizer"},
    {APP_SERVE, "--tools", "tools come with the requests of clients (\"tools\")"},
    {APP_RUN | APP_BENCH, "--host --port", "'aerie serve' is what listens"},
    {APP_ROUTER, "-m --model", "models are given to the servers behind the router"},
};

static const char *instead_of(const app_command *command, const char *name, size_t n)
{
    char known[64];
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++) {
        if (!(replaced[i].commands & command->bit)) continue;
        for (size_t k = 0; app_name_at(replaced[i].names, k, known); k++)
            if (strlen(known) == n && memcmp(known, name, n) == 0) return replaced[i].instead;
    }
    return NULL;
}

/* Returns the commands that take an option of this name, which may have several rows in the table. */
static unsigned owners(const char *name, size_t n)
{
    unsigned commands = 0;
    for (size_t i = 0; i < app_n_commands(); i++) {
        const unsigned bit = app_command_at(i)->bit;
        if (app_option_find(name, n, bit) < app_n_options()) commands |= bit;
    }
    return commands;
}

static int belongs_to_others(const app_command *command, const char *name, size_t n)
{
    char who[512] = "";
    const unsigned commands = owners(name, n);
    const char *instead = instead_of(command, name, n);
    if (instead)
        return app_error(APP_USAGE, "'%s' has no option '%.*s': %s; see 'aerie help %s'", command->name, (int)n, name, instead,
                         command->name);
    for (size_t i = 0; i < app_n_commands(); i++) {
        if (!(commands & app_command_at(i)->bit)) continue;
        const size_t used = strlen(who);
        snprintf(who + used, sizeof who - used, "%s'%s'", used ? ", " : "", app_command_at(i)->name);
    }
    return app_error(APP_USAGE, "'%s' has no option '%.*s' (it belongs to %s); see 'aerie help %s'", command->name, (int)n,
                     name, who, command->name);
}

static int foreign_option(const app_command *command, const app_foreign *f, const char *name, size_t n)
{
    if (f->kind == APP_NOT_YET) return app_error(APP_USAGE, "'%.*s' is not supported yet: %s", (int)n, name, f->text);
    if (f->kind == APP_ABSENT) return app_error(APP_USAGE, "'%.*s' is not supported: %s", (int)n, name, f->text);
    return app_error(APP_USAGE, "'%s' has no option '%.*s': %s; see 'aerie help %s'", command->name, (int)n, name, f->text,
                     command->name);
}

/* Finds the option of the command, or of another program, that `text` most likely misspells. Writes its name into out [64] and
 * returns out, or NULL. */
static const char *nearest_option(const app_command *command, const char *text, char out[64])
{
    char known[64];
    const char *best = NULL;
    for (size_t i = 0; i < app_n_options() + app_n_foreign_options(); i++) {
        const bool foreign = i >= app_n_options();
        if (!foreign && !(app_option_at(i)->commands & command->bit)) continue;
        const char *names = foreign ? app_foreign_option_at(i - app_n_options())->names : app_option_at(i)->names;
        for (size_t k = 0; app_name_at(names, k, known); k++) {
            if (app_nearest(text, best, known) != known) continue;
            memcpy(out, known, sizeof known);
            best = out;
        }
    }
    return best;
}

/* Returns where the value begins in "-n=3" or "-n3", if -n is an option with a value; else 0. */
static size_t value_at(const app_command *command, const char *name, size_t n)
{
    size_t at = strcspn(name, "=0123456789");
    if (name[1] == '-' || at >= n) return 0;
    const size_t i = app_option_find(name, at, command->bit);
    return i < app_n_options() && app_option_at(i)->argument ? at : 0;
}

int app_unknown_option(const app_command *command, const char *name, size_t n)
{
    char text[64], known[64];
    if (owners(name, n)) return belongs_to_others(command, name, n);
    const app_foreign *f = app_foreign_option(name, n);
    if (f) return foreign_option(command, f, name, n);
    const size_t at = value_at(command, name, n);
    if (at)
        return app_error(APP_USAGE, "unknown option '%.*s'; a value follows after a space: %.*s %.*s", (int)n, name, (int)at,
                         name, (int)(n - at - (name[at] == '=')), name + at + (name[at] == '='));
    snprintf(text, sizeof text, "%.*s", (int)(n < 63 ? n : 63), name);
    const char *best = nearest_option(command, text, known);
    if (!best) return app_error(APP_USAGE, "unknown option '%s'; 'aerie help %s --all' lists all", text, command->name);
    f = app_foreign_option(best, strlen(best));
    return app_error(APP_USAGE, "unknown option '%s'; did you mean '%s'%s%s%s? See 'aerie help %s --all'", text, best,
                     f ? " (" : "", f ? f->text : "", f ? ")" : "", command->name);
}

/* ---- Commands -------------------------------------------------------------------------------------- */

int app_unknown_topic(const char *name)
{
    const app_foreign *f = app_foreign_command(name);
    const char *best = NULL, *topic;
    char topics[128] = "";
    if (f || strpbrk(name, "/:")) return app_unknown_command(name);
    for (size_t i = 0; (topic = app_topic_at(i)) != NULL; i++) {
        const size_t n = strlen(topics);
        best = app_nearest(name, best, topic);
        snprintf(topics + n, sizeof topics - n, "%s%s", n ? ", " : "", topic);
    }
    for (size_t i = 0; i < app_n_commands(); i++) best = app_nearest(name, best, app_command_at(i)->name);
    return app_error(APP_USAGE, "there is no help about '%s'%s%s%s; topics are %s, 'aerie help' lists the commands, and 'aerie "
                     "help -OPTION' explains an option", name, best ? "; did you mean 'aerie help " : "", best ? best : "",
                     best ? "'?" : "", topics);
}

int app_unknown_command(const char *name)
{
    if (name[0] == '-')
        return app_error(APP_USAGE, "a command comes before the options: aerie run %s ...; see 'aerie help'", name);
    const app_foreign *f = app_foreign_command(name);
    if (f && f->kind == APP_NOT_YET) return app_error(APP_USAGE, "there is no command '%s' yet: %s", name, f->text);
    if (f) return app_error(APP_USAGE, "there is no command '%s': %s", name, f->text);
    if (strpbrk(name, "./:"))
        return app_error(APP_USAGE, "'%s' is not a command; a model is run by 'aerie run %s'; see 'aerie help'", name, name);
    const char *best = app_nearest(name, NULL, "help");
    char known[256] = "help";
    best = app_nearest(name, best, "bench");
    for (size_t i = 0; i < app_n_commands(); i++) {
        const char *command = app_command_at(i)->name;
        const size_t n = strlen(known);
        best = app_nearest(name, best, command);
        if (strncmp(command, "bench ", 6) == 0 && strcmp(name, command + 6) == 0) best = command; /* "speed" */
        snprintf(known + n, sizeof known - n, ", %s", command);
    }
    if (best) return app_error(APP_USAGE, "unknown command '%s'; did you mean '%s'? Known: %s", name, best, known);
    return app_error(APP_USAGE, "unknown command '%s'; known: %s", name, known);
}

/* help_about.c - help about an option by any of its names, about a subject (a group of options), and about a word in the names
 * of options; from the tables of options_table.c and llama_options.c. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/commands.h"
#include "cli/llama_options.h"

/* Prints the commands in a bit set: "of run, serve, bench spec". */
static void print_commands(unsigned bits)
{
    enum { LEFT = 34 };
    char text[512];
    size_t n = (size_t)snprintf(text, sizeof text, "of");
    for (size_t i = 0; i < app_n_commands(); i++)
        if (bits & app_command_at(i)->bit && n < sizeof text)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s %s", n > 2 ? "," : "", app_command_at(i)->name);
    app_print("%*s", LEFT, "");
    app_print_wrapped(text, LEFT, LEFT);
}

static void print_row(const app_option *o)
{
    app_print_option(o, false);
    print_commands(o->commands);
}

/* ---- An option -------------------------------------------------------------------------------------- */

static bool has_name(const char *names, const char *name)
{
    char known[64];
    for (size_t k = 0; app_name_at(names, k, known); k++)
        if (strcmp(known, name) == 0) return true;
    return false;
}

static void print_foreign(const app_foreign *f)
{
    static const char *const kinds[] = {"accepted without effect", "done in another way here", "not supported yet",
                                        "not supported"};
    app_print("  %s\n      %s: %s\n", f->names, kinds[f->kind], f->text);
}

int app_help_option(const char *name)
{
    char known[64], best[64] = "";
    bool found = false;
    for (size_t i = 0; i < app_n_options(); i++) {
        if (!has_name(app_option_at(i)->names, name)) continue;
        print_row(app_option_at(i));
        found = true;
    }
    const app_foreign *f = found ? NULL : app_foreign_option(name, strlen(name));
    if (f) print_foreign(f);
    if (found || f) return APP_DONE;
    for (size_t i = 0; i < app_n_options(); i++)
        for (size_t k = 0; app_option_name(app_option_at(i), k, known); k++)
            if (app_nearest(name, *best ? best : NULL, known) == known) snprintf(best, sizeof best, "%s", known);
    if (*best) return app_error(APP_USAGE, "there is no option '%s'; did you mean '%s'?", name, best);
    return app_error(APP_USAGE, "there is no option '%s'; 'aerie help COMMAND --all' lists those of a command", name);
}

/* ---- A subject -------------------------------------------------------------------------------------- */

/* The heading of a group of options, and other words for it. */
static const struct {
    const char *group, *words, *about;
} subjects[] = {
    {"Speculation", "speculative spec draft drafter drafts",
     "A cheap drafter guesses the next tokens, and the model verifies the guess in one pass; the output is the same to the "
     "byte. "
     "It is on by default: MTP blocks of the model, or a head beside it (MODEL-eagle3.gguf), together with n-grams. -md names "
     "another drafter, --spec-type none turns speculation off, --stats prints how many drafted tokens were accepted. "
     "More: docs/speculation.md, docs/heads.md."},
    {"Sampling", "sampler samplers", "How the next token is drawn from the model's predictions. More: docs/sampling.md."},
    {"Diffusion", "denoising dream llada rnd1", "Models that fill all positions of an answer, step by step, instead of writing "
     "it from left to right. More: docs/diffusion.md."},
    {"Positions (RoPE)", "rope positions yarn",
     "Contexts that are longer than the model was trained for. Most model files say how to scale positions."},
    {"Template", "templates chat-template jinja", "How a conversation becomes a prompt. More: docs/templates.md."},
    {"Generation", "grammar schema json-schema", "Where an answer ends, and which texts it may be. More: docs/grammars.md."},
    {"Server", "http api", "'aerie serve' answers requests over HTTP. More: docs/serving.md."},
    {"Download", "network huggingface cache", "How models are downloaded and kept. More: docs/pulling.md."},
    {"Embeddings", "embedding rerank", "Embeddings of texts, and reranking. More: docs/embeddings.md."},
    {"Model", "models memory threads", "The model's file, the context and the threads. More: docs/loading.md."},
};
enum { N_SUBJECTS = sizeof subjects / sizeof *subjects };

/* Returns the group of options that a word names, or NULL. A group without an entry in `subjects` has only its own name. */
static const char *group_of(const char *word, const char **about)
{
    *about = NULL;
    for (size_t i = 0; i < N_SUBJECTS; i++) {
        if (strcasecmp(word, subjects[i].group) && !has_name(subjects[i].words, word)) continue;
        *about = subjects[i].about;
        return subjects[i].group;
    }
    for (size_t i = 0; i < app_n_options(); i++)
        if (strcasecmp(word, app_option_at(i)->group) == 0) return app_option_at(i)->group;
    return NULL;
}

/* Returns whether the text contains the word, in any case. All characters except letters and digits separate words. */
static bool mentions(const char *text, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = text; *at; at++) {
        const bool starts = at == text || !isalnum((unsigned char)at[-1]);
        if (starts && strncasecmp(at, word, n) == 0 && !isalnum((unsigned char)at[n])) return true;
    }
    return false;
}

static bool print_mentions(const char *word)
{
    bool any = false;
    for (size_t i = 0; i < app_n_options(); i++) {
        const app_option *o = app_option_at(i);
        if (!mentions(o->names, word)) continue;
        if (!any) app_print("Options with that word in their names\n");
        any = true;
        app_print_option(o, true);
        print_commands(o->commands);
    }
    for (size_t i = 0; i < app_n_foreign_options(); i++) {
        const app_foreign *f = app_foreign_option_at(i);
        if (!mentions(f->names, word)) continue;
        any = true;
        print_foreign(f);
    }
    return any;
}

bool app_print_subject(const char *word)
{
    const char *about, *group = group_of(word, &about);
    if (strlen(word) < 3) return false;
    if (!group) return print_mentions(word);
    app_print("%s\n", group);
    if (about) {
        app_print("\n");
        app_print_wrapped(about, 0, 0);
        app_print("\n");
    }
    for (size_t i = 0; i < app_n_options(); i++)
        if (strcmp(app_option_at(i)->group, group) == 0) print_row(app_option_at(i));
    return true;
}

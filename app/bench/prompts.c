/* prompts.c - prompts in groups, from lines of JSON: {"id": "qa-01", "held_out": false, "prompt": "..."}
 * A file is a group with the file's name. Ids are unique across files, so that a prompt that is held out of training is held
 * out in every file. Other members of a line are ignored. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/speculation.h"

static const char ending[] = ".jsonl";

/* From text that n-gram drafting predicts well to text that it cannot predict. */
static const char *const builtin[] = {
    ("Repeat this text word for word: The quick brown fox jumps over the lazy dog. The lazy dog sleeps in the warm "
     "sun. "
     "The quick brown fox sees the lazy dog and jumps over the lazy dog once more."),
    "Write a Python class for a bank account with methods deposit, withdraw and balance, then show how it is used.",
    "List the planets of the solar system, and for each its diameter and number of moons.",
    "Explain why the sky is blue.",
    "Tell a short story about a lighthouse keeper who finds a message in a bottle.",
};

typedef struct reader {
    bench_prompts *out;
    const app_options *options;
    json_t *ids;             /* {id: file} seen so far */
    app_text names;          /* names of all groups, for messages */
    bool with_held_out, with_others;
} reader;

/* ---- Groups ------------------------------------------------------------------------------------------- */

static int add_group(bench_prompts *out, const char *name, size_t n)
{
    bench_group *grown = app_grow(out->groups, out->n_groups, &out->capacity, sizeof *grown);
    if (!grown) return app_error_memory("the groups of prompts");
    out->groups = grown;
    bench_group *group = &grown[out->n_groups];
    *group = (bench_group){.name = strndup(name, n), .first = out->prompts.n};
    if (!group->name) return app_error_memory("the groups of prompts");
    out->n_groups++;
    return APP_DONE;
}

static bool in_list(const char *list, const char *name, size_t n)
{
    for (const char *p = list;; p++) {
        const size_t length = strcspn(p, ",");
        if (length == n && memcmp(p, name, n) == 0) return true;
        p += length;
        if (*p == '\0') return false;
    }
}

/* ---- Files ---------------------------------------------------------------------------------------------- */

static int check_line(const json_t *line, const char *path, size_t number, const json_t **prompt, const char **id,
                      bool *held_out)
{
    const json_t *held = json_object_get(line, "held_out"), *name = json_object_get(line, "id");
    const char *missing = NULL;
    *prompt = json_object_get(line, "prompt");
    if (!json_is_string(name) || !json_string_length(name)) missing = "\"id\" (a text)";
    else if (!json_is_string(*prompt) || !json_string_length(*prompt)) missing = "\"prompt\" (a text)";
    else if (!json_is_boolean(held)) missing = "\"held_out\" (true or false)";
    if (missing) return app_error(APP_BAD_FILE, "'%s' line %zu has no %s", path, number, missing);
    *id = json_string_value(name);
    *held_out = json_is_true(held);
    return APP_DONE;
}

static int add_line(reader *r, const char *text, size_t n, const char *path, size_t number, bool wanted)
{
    json_error_t where;
    const json_t *prompt = NULL;
    const char *id = NULL;
    bool held_out = false;
    json_t *line = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
    if (!line) return app_error(APP_BAD_FILE, "'%s' line %zu is not a JSON object: %s", path, number, where.text);
    int bad = check_line(line, path, number, &prompt, &id, &held_out);
    const json_t *seen = bad ? NULL : json_object_get(r->ids, id);
    if (seen) {
        bad = app_error(APP_BAD_FILE, "'%s' line %zu: the id '%s' is in '%s' already", path, number, id,
                        json_string_value(seen));
    }
    if (!bad && json_object_set_new(r->ids, id, json_string(path))) bad = app_error_memory("the prompts");
    const bench_group *group = wanted ? &r->out->groups[r->out->n_groups - 1] : NULL;
    const uint32_t most = r->options->bench.n_per_group;
    if (!bad && group && (held_out ? r->with_held_out : r->with_others) &&
        (!most || r->out->prompts.n - group->first < most)) {
        bad = app_prompts_add(&r->out->prompts, json_string_value(prompt), json_string_length(prompt), false);
    }
    json_decref(line);
    return bad;
}

static int add_file(reader *r, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n_name = strlen(name);
    if (n_name > sizeof ending - 1 && strcmp(name + n_name - (sizeof ending - 1), ending) == 0) {
        n_name -= sizeof ending - 1;
    }
    if (r->names.n && in_list(r->names.data, name, n_name)) {
        return app_error(APP_USAGE, "--prompts names the group '%.*s' twice, the second time in '%s'", (int)n_name, name,
                         path);
    }
    if ((r->names.n && !app_text_add(&r->names, ",", 1)) || !app_text_add(&r->names, name, n_name)) {
        return app_error_memory("the groups of prompts");
    }
    const bool wanted = !r->options->bench.groups || in_list(r->options->bench.groups, name, n_name);
    app_text text = {0};
    int bad = app_read_file(&text, path);
    if (!bad && wanted) bad = add_group(r->out, name, n_name);
    const char *line;
    size_t n;
    for (size_t at = 0, number = 1; !bad && app_next_line(&text, &at, &line, &n); number++) {
        if (n && strspn(line, " \t\r") < n) bad = add_line(r, line, n, path, number, wanted);
    }
    app_text_free(&text);
    if (bad || !wanted) return bad;
    bench_group *group = &r->out->groups[r->out->n_groups - 1];
    group->n = r->out->prompts.n - group->first;
    if (group->n == 0) free(r->out->groups[--r->out->n_groups].name);
    return APP_DONE;
}

static int is_prompts_file(const struct dirent *entry)
{
    const size_t n = strlen(entry->d_name), n_ending = sizeof ending - 1;
    return n > n_ending && entry->d_name[0] != '.' && strcmp(entry->d_name + n - n_ending, ending) == 0;
}

/* Adds the files of a folder in the order of their names. */
static int add_folder(reader *r, const char *folder)
{
    struct dirent **entries = NULL;
    const int n = scandir(folder, &entries, is_prompts_file, alphasort);
    if (n < 0) return app_error(APP_BAD_FILE, "cannot read the folder '%s': %s", folder, strerror(errno));
    int bad = n ? APP_DONE : app_error(APP_BAD_FILE, "the folder '%s' has no file *%s", folder, ending);
    for (int i = 0; i < n; i++) {
        app_text path = {0};
        const bool fits = app_text_add(&path, folder, strlen(folder)) && app_text_add(&path, "/", 1) &&
                          app_text_add(&path, entries[i]->d_name, strlen(entries[i]->d_name));
        if (!bad) bad = fits ? add_file(r, path.data) : app_error_memory("the prompts");
        app_text_free(&path);
        free(entries[i]);
    }
    free(entries);
    return bad;
}

/* Checks that every name in --groups is the name of a group. */
static int check_groups(const reader *r)
{
    const char *list = r->options->bench.groups;
    for (const char *p = list; p; p++) {
        const size_t n = strcspn(p, ",");
        if (!in_list(r->names.data, p, n)) {
            return app_error(APP_USAGE, "--groups: there is no group '%.*s' in --prompts, which has %s", (int)n, p,
                             r->names.data);
        }
        p += n;
        if (*p == '\0') break;
    }
    return APP_DONE;
}

static int read_paths(bench_prompts *out, const app_options *options)
{
    const char *held = options->bench.held_out ? options->bench.held_out : "all";
    const bool all = strcmp(held, "all") == 0;
    reader r = {.out = out, .options = options, .ids = json_object()};
    r.with_held_out = all || strcmp(held, "only") == 0;
    r.with_others = all || strcmp(held, "no") == 0;
    int bad = r.ids ? APP_DONE : app_error_memory("the prompts");
    for (size_t i = 0; !bad && i < options->bench.prompt_paths.n; i++) {
        const char *path = options->bench.prompt_paths.items[i];
        struct stat about;
        const bool folder = stat(path, &about) == 0 && S_ISDIR(about.st_mode);
        bad = folder ? add_folder(&r, path) : add_file(&r, path);
    }
    if (!bad) bad = check_groups(&r);
    if (!bad && out->n_groups == 0) {
        bad = app_error(APP_BAD_FILE, "'%s' has no prompts%s%s", options->bench.prompt_paths.items[0],
                        all ? "" : " with --held-out ", all ? "" : held);
    }
    json_decref(r.ids);
    app_text_free(&r.names);
    return bad;
}

/* ---- All sources -------------------------------------------------------------------------------------------- */

static int check_options(const app_options *options)
{
    const app_bench_options *o = &options->bench;
    const char *held = o->held_out;
    const char *name = o->groups ? "--groups" : held ? "--held-out" : o->n_per_group ? "--per-group" : NULL;
    if (held && strcmp(held, "only") && strcmp(held, "all") && strcmp(held, "no")) {
        return app_error(APP_USAGE, "--held-out takes only, all or no; found '%s'", held);
    }
    if (o->prompt_paths.n && (options->prompts.n || options->prompts_file)) {
        return app_error(APP_USAGE, "only one of -p, --prompts-file and --prompts can be given");
    }
    if (o->prompt_paths.n || !name) return APP_DONE;
    return app_error(APP_USAGE, "%s chooses from --prompts, which is not given", name);
}

int bench_prompts_read(bench_prompts *out, const app_options *options)
{
    *out = (bench_prompts){0};
    int bad = check_options(options);
    if (bad || options->bench.prompt_paths.n) return bad ? bad : read_paths(out, options);
    bad = app_prompts_read(&out->prompts, options, false);
    const bool given = out->prompts.n > 0;
    for (size_t i = 0; !bad && !given && i < sizeof builtin / sizeof *builtin; i++) {
        bad = app_prompts_add(&out->prompts, builtin[i], strlen(builtin[i]), false);
    }
    const char *name = given ? "given" : "built-in";
    if (!bad) bad = add_group(out, name, strlen(name));
    if (!bad) out->groups[0] = (bench_group){.name = out->groups[0].name, .n = out->prompts.n};
    return bad;
}

/* ---- Contexts --------------------------------------------------------------------------------------------- */

/* Copies the next n tokens of a list that repeats. */
static void go_round(const int32_t *list, size_t n_list, uint32_t n, size_t *at, int32_t *out)
{
    for (uint32_t i = 0; i < n; i++, *at = (*at + 1) % n_list) out[i] = list[*at];
}

static int fill_from_file(const app_models *models, const char *path, uint32_t n, int32_t *out)
{
    app_text text = {0};
    int32_t *tokens = NULL;
    size_t n_tokens = 0, at = 0;
    aerie_error error = {0};
    int bad = app_read_file(&text, path);
    if (!bad)
        bad = app_report(APP_WORKING, aerie_model_tokenize(models->model, text.data, text.n, false, false, &tokens, &n_tokens,
                                                           &error), &error);
    if (!bad && !n_tokens) bad = app_error(APP_USAGE, "--context-text: %s contains no text", path);
    if (!bad) go_round(tokens, n_tokens, n, &at, out);
    aerie_free(tokens);
    app_text_free(&text);
    return bad;
}

/* Returns 1 if the prompt begins with BOS, else 0. */
static size_t n_head(const app_prompt *p, int32_t bos)
{
    return bos >= 0 && p->n_tokens && p->tokens[0] == bos;
}

static int fill_from_prompts(const app_prompts *prompts, int32_t bos, uint32_t n, int32_t *out)
{
    size_t total = 0;
    for (size_t i = 0; i < prompts->n; i++) total += prompts->items[i].n_tokens - n_head(&prompts->items[i], bos);
    if (!total) return app_error(APP_USAGE, "--contexts: the prompts hold no text to repeat; --context-text FILE names one");
    for (size_t at = 0, i = 0; at < n; i++) {
        const app_prompt *p = &prompts->items[i % prompts->n];
        const size_t head = n_head(p, bos), some = p->n_tokens - head < n - at ? p->n_tokens - head : n - at;
        if (some) memcpy(out + at, p->tokens + head, some * sizeof *out);
        at += some;
    }
    return APP_DONE;
}

/* Inserts n tokens of context after the prompt's BOS. */
static int lengthen(app_prompt *p, int32_t bos, const int32_t *context, uint32_t n)
{
    const size_t head = n_head(p, bos);
    int32_t *longer = malloc((n + p->n_tokens) * sizeof *longer); /* aerie_free frees this, too */
    if (!longer) return app_error_memory("a prompt after a context");
    if (head) longer[0] = bos;
    memcpy(longer + head, context, (size_t)n * sizeof *longer);
    if (p->n_tokens > head) memcpy(longer + head + n, p->tokens + head, (p->n_tokens - head) * sizeof *longer);
    aerie_free(p->tokens);
    p->tokens = longer;
    p->n_tokens += n;
    return APP_DONE;
}

int bench_prompts_lengthen(bench_prompts *prompts, const app_models *models, uint32_t n, const char *text)
{
    app_prompts *list = &prompts->prompts;
    const int32_t bos = models->info.bos;
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i].pictured)
            return app_error(APP_USAGE, "--contexts: prompt %zu has pictures, which it cannot lengthen", i + 1);
    int32_t *context = malloc((size_t)n * sizeof *context);
    if (!context) return app_error_memory("a context");
    int bad = text ? fill_from_file(models, text, n, context) : fill_from_prompts(list, bos, n, context);
    for (size_t i = 0; !bad && i < list->n; i++) bad = lengthen(&list->items[i], bos, context, n);
    free(context);
    return bad;
}

void bench_prompts_free(bench_prompts *prompts)
{
    for (size_t i = 0; i < prompts->n_groups; i++) free(prompts->groups[i].name);
    free(prompts->groups);
    app_prompts_free(&prompts->prompts);
    *prompts = (bench_prompts){0};
}

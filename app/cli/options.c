/* options.c - reads the command line, the environment and the file of --config, as described by options_table.c. */
#define _POSIX_C_SOURCE 200809L
#include "cli/llama_options.h"
#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* ---- Defaults --------------------------------------------------------------------------------- */

void app_options_default(app_options *options)
{
    static const app_numbers rows = {{1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 64}, 11};
    *options = (app_options){
        .model_params = aerie_model_params_default(),
        .session = aerie_session_params_default(),
        .sampling = aerie_sampling_default(),
        .rope = aerie_rope_default(),
        .escape = true,
        .chat.reasoning_budget = -1,
        .seed_random = true,
        .n_batch_logical = 2048,
        .n_predict = -1,
        .diffusion = aerie_diffusion_default(),
        .judge.n_chunks = -1,
        .bench.n_prompt = 512,
        .speed = {.prompts = {{512}, 1}, .predicts = {{128}, 1}, .depths = {{0}, 1}},
        .bench.n_repetitions = 3,
        .machines_limit = 300,
        .train.n_turns = 1000,
        .train.n_likely = 16,
        .embed.normalize = 2,
        .bench.rows = rows,
        .bench.contexts = {{0}, 1},
        .shapes.types = "q4_0,q4_k,q6_k,q8_0",
        .shapes.n_in = {{256, 576, 1024, 2048, 4096, 8192, 16384}, 7},
        .shapes.n_out = {{64, 256, 1024, 4096, 16384, 65536, 131072}, 7},
        .shapes.n_rows = {{1, 4, 8, 16}, 4},
        .bench.n_seqs = {{1}, 1},
        .hier = {.type = AERIE_SPEC_AUTO, .n_iter = 16},
        .pull = {.stall_seconds = 60, .n_retries = 5},
        .router = {.canary = 0.001f, .wait = 300, .check = 1, .limit = 10, .n_replays = 3},
        .serve = {.port = 8080,
                  .n_seqs = 4,
                  .max_queue = 256,
                  .max_connections = 512,
                  .max_per_address = UINT32_MAX,
                  .max_images = 16,
                  .max_n = 8,
                  .max_logprobs = 20,
                  .timeout = 600,
                  .grace = 30,
                  .stuck = 120,
                  .cache_ram = 8192,
                  .cache_disk_limit = 16384,
                  .sleep_idle = -1},
    };
    options->rope.freq_base = options->rope.factor = 0; /* 0 means "from the model's file", as in llama.cpp */
    options->session.max_pause = 100;
    options->session.max_turn = 128;
    options->bench.n_maxes = (app_numbers){{options->session.spec.n_max}, 1};
    options->bench.trees = (app_numbers){{options->session.spec.tree}, 1};
}

void app_options_free(app_options *options)
{
    for (size_t i = 0; i < options->pulled.n; i++) free((char *)options->pulled.items[i]);
    free(options->pulled.items);
    free(options->prompts.items);
    free(options->serve.models.items);
    app_text_free(&options->serve.config_text);
    free(options->serve.api_keys.items);
    free(options->quantize.tensor_types.items);
    free(options->quantize.tensor_type_files.items);
    free(options->quantize.included.items);
    free(options->quantize.excluded.items);
    free(options->bench.prompt_paths.items);
    free(options->speed.pairs.items);
    free(options->bench.more_drafts.items);
    free(options->arguments.items);
    free(options->ignored.items);
    free(options->convert.skip.items);
    free(options->render.variables.items);
    free(options->overrides.items);
    free(options->placements.items);
    free(options->images.items);
    app_lists_free(options);
    app_loras_free(&options->loras);
    free(options->hier.files.items);
    app_sampling_free(options);
    aerie_grammar_free(options->grammar);
}

static bool add_text(app_texts *texts, const char *text)
{
    const char **grown = app_grow(texts->items, texts->n, &texts->capacity, sizeof *grown);
    if (!grown) return false;
    texts->items = grown;
    grown[texts->n++] = text;
    return true;
}

/* ---- Values ---------------------------------------------------------------------------------------- */

/* Reads an integer in base 10. Returns false if anything follows it or it overflows. */
static bool parse_whole(const char *text, long long *value)
{
    char *end;
    if (!isdigit((unsigned char)*text) && *text != '-' && *text != '+') return false;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0';
}

static bool parse_real(const char *text, double *value)
{
    char *end;
    if (isspace((unsigned char)*text) || strpbrk(text, "xX")) return false;
    errno = 0;
    *value = app_number(text, &end);
    return errno == 0 && end != text && *end == '\0';
}

static bool parse_switch(const char *text, bool *value)
{
    static const char *const words[] = {"off", "on", "false", "true", "0", "1", "no", "yes"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(text, words[i]) == 0) {
            *value = i % 2;
            return true;
        }
    }
    return false;
}

static int wrong(const char *name, const app_option *o, const char *text)
{
    if (o->type == APP_SEED) {
        return app_error(APP_USAGE, "%s takes a whole number from 0 to 18446744073709551615, or -1; found '%s'", name,
                         text);
    }
    if (o->type == APP_PREDICT)
        return app_error(APP_USAGE, "%s takes a whole number from 1, or -1 or -2: until the answer ends or the context is "
                         "full; found '%s'", name, text);
    if (o->type == APP_ON_OFF) return app_error(APP_USAGE, "%s takes on or off; found '%s'", name, text);
    if (o->type == APP_COUNT)
        return app_error(APP_USAGE, "%s takes a whole number from %.0f to %.0f, or -1; found '%s'", name, o->min, o->max, text);
    const bool real = o->type == APP_F32 || o->type == APP_TEMP || o->type == APP_REALS;
    const char *what = o->type == APP_F32 || o->type == APP_TEMP ? "a number"
                       : real                   ? "a list (0,0.5,1) of numbers"
                       : o->type == APP_NUMBERS ? "a list (1,2,3 or 1-3 or 1-64*2) of whole numbers"
                                                : "a whole number";
    return app_error(APP_USAGE,
                     real ? "%s takes %s from %g to %g; found '%s'" : "%s takes %s from %.0f to %.0f; found '%s'", name,
                     what, o->min, o->max, text);
}

static const char *pooling_name(int i)
{
    return aerie_pooling_name((aerie_pooling)i);
}

static const char *kv_type_name(int i)
{
    return aerie_kv_type_name((aerie_kv_type)i);
}

static const char *tree_name(int i)
{
    return aerie_tree_name((aerie_tree)i);
}

/* Reports an unknown type and lists the known ones. type_name returns the name of type i, NULL after the last one. */
static int wrong_type(const char *name, const char *text, const char *type_name(int i))
{
    char known[256] = "";
    for (int i = 0; type_name(i); i++) {
        const size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", type_name(i));
    }
    return app_error(APP_USAGE, "%s takes one of %s; found '%s'", name, known, text);
}

/* Copies the item at *p into out [64] and moves *p to the comma or the end after it. */
static void take_item(const char **p, char out[64])
{
    const size_t n = strcspn(*p, ",");
    snprintf(out, 64, "%.*s", (int)(n < 63 ? n : 63), *p);
    *p += n;
}

static int too_many(const char *name)
{
    return app_error(APP_USAGE, "%s takes at most %d values", name, APP_MAX_NUMBERS);
}

static int parse_reals(app_reals *list, const app_option *o, const char *name, const char *text)
{
    char item[64];
    list->n = 0;
    for (const char *p = text;; p++) {
        double value = 0;
        if (list->n == APP_MAX_NUMBERS) return too_many(name);
        take_item(&p, item);
        /* written so that NaN counts as out of range */
        if (!parse_real(item, &value) || !(value >= o->min && value <= o->max)) return wrong(name, o, text);
        list->items[list->n++] = (float)value;
        if (*p == '\0') return APP_DONE;
    }
}

/* Reads "first-last", "first-last+step" or "first-last*factor", as in llama-bench. Returns false if the text has another form,
 * or if the range would never end. */
static bool parse_range(const char *text, long long range[3], bool *times)
{
    char *end;
    range[2] = 1;
    *times = false;
    for (int i = 0; i < 3; i++) {
        if (!isdigit((unsigned char)*text)) return false;
        errno = 0;
        range[i] = strtoll(text, &end, 10);
        if (errno || range[i] > UINT32_MAX) return false;
        if (i == 1 && !*end) break;
        if (i == 1) *times = *end == '*';
        if (i == 0 ? *end != '-' : i == 1 ? *end != '+' && *end != '*' : *end != '\0') return false;
        text = end + 1;
    }
    return range[0] <= range[1] && (*times ? range[2] > 1 && range[0] > 0 : range[2] > 0);
}

static int parse_numbers(app_numbers *list, const app_option *o, const char *name, const char *text, const char *item)
{
    long long range[3];
    bool times = false;
    if (parse_whole(item, &range[0])) range[1] = range[0], range[2] = 1;
    else if (!parse_range(item, range, &times)) return wrong(name, o, text);
    if ((double)range[0] < o->min || (double)range[1] > o->max) return wrong(name, o, text);
    for (long long at = range[0]; at <= range[1]; at = times ? at * range[2] : at + range[2]) {
        if (list->n == APP_MAX_NUMBERS) return too_many(name);
        list->items[list->n++] = (uint32_t)at;
    }
    return APP_DONE;
}

static int parse_list(app_numbers *list, const app_option *o, const char *name, const char *text)
{
    char item[64];
    list->n = 0;
    for (const char *p = text;; p++) {
        long long value = 0;
        aerie_spec_type type;
        aerie_tree tree;
        if (list->n == APP_MAX_NUMBERS) return too_many(name);
        take_item(&p, item);
        if (o->type == APP_SPEC_TYPES) {
            const int bad = app_spec_type_parse(name, item, &type);
            if (bad) return bad;
            value = (long long)type;
        } else if (o->type == APP_TREES) {
            if (!aerie_tree_parse(item, &tree)) return wrong_type(name, item, tree_name);
            value = (long long)tree;
        }
        if (o->type == APP_NUMBERS) {
            const int bad = parse_numbers(list, o, name, text, item);
            if (bad) return bad;
        } else list->items[list->n++] = (uint32_t)value;
        if (*p == '\0') return APP_DONE;
    }
}

static int parse_seed(app_options *options, const app_option *o, const char *name, const char *text)
{
    options->seed_given = true;
    options->seed_random = strcmp(text, "-1") == 0;
    if (options->seed_random) return APP_DONE;
    char *end;
    errno = 0;
    options->sampling.seed = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || errno || *end) return wrong(name, o, text);
    return APP_DONE;
}

/* Parses the value and stores it in the option's field. `name` is the option as the user wrote it. */
static int set_value(app_options *options, const app_option *o, const char *name, const char *text)
{
    void *place = (char *)options + o->offset;
    long long whole = 0;
    double real = 0;
    char fallback[256];
    switch (o->type) {
    case APP_FLAG: *(bool *)place = true; return APP_DONE;
    case APP_FLAG_OFF: *(bool *)place = false; return APP_DONE;
    case APP_ON_OFF: return parse_switch(text, place) ? APP_DONE : wrong(name, o, text);
    case APP_I32:
    case APP_U32:
    case APP_COUNT:
    case APP_CTX:
        if (o->type == APP_COUNT && strcmp(text, "-1") == 0) text = app_option_default(o, fallback);
        if (!parse_whole(text, &whole) || (double)whole < o->min || (double)whole > o->max) return wrong(name, o, text);
        if (o->type == APP_I32) *(int32_t *)place = (int32_t)whole;
        else if (o->type == APP_CTX && !whole) *(uint32_t *)place = AERIE_CTX_TRAINED;
        else *(uint32_t *)place = (uint32_t)whole;
        return APP_DONE;
    case APP_PREDICT:
        if (!parse_whole(text, &whole) || whole < -2 || !whole || whole > INT32_MAX) return wrong(name, o, text);
        *(int32_t *)place = (int32_t)whole;
        return APP_DONE;
    case APP_F32:
        /* written so that NaN counts as out of range */
        if (!parse_real(text, &real) || !(real >= o->min && real <= o->max)) return wrong(name, o, text);
        *(float *)place = (float)real;
        return APP_DONE;
    case APP_TEMP: /* as in llama.cpp, any number up to 0 takes the likeliest token */
        if (!parse_real(text, &real) || !(real <= o->max)) return wrong(name, o, text);
        *(float *)place = real > 0 ? (float)real : 0;
        return APP_DONE;
    case APP_SEED: return parse_seed(options, o, name, text);
    case APP_TEXT: *(const char **)place = text; return APP_DONE;
    case APP_TEXTS: return add_text(place, text) ? APP_DONE : app_error_memory("the options");
    case APP_OVERRIDES: return app_overrides_add(options, text);
    case APP_PLACEMENTS: return app_placements_add(options, text);
    case APP_FILES: return app_files_add(options, place, text);
    case APP_LORAS:
    case APP_LORAS_SCALED: return app_loras_add(place, name, text, o->type == APP_LORAS_SCALED);
    case APP_REALS: return parse_reals(place, o, name, text);
    case APP_NUMBERS:
    case APP_TREES:
    case APP_SPEC_TYPES: return parse_list(place, o, name, text);
    case APP_SPEC_TYPE: return app_spec_list_parse(name, text, place, &options->session.spec.ngram);
    case APP_KV_TYPE: return aerie_kv_type_parse(text, place) ? APP_DONE : wrong_type(name, text, kv_type_name);
    case APP_POOLING: return aerie_pooling_parse(text, place) ? APP_DONE : wrong_type(name, text, pooling_name);
    case APP_TREE: return aerie_tree_parse(text, place) ? APP_DONE : wrong_type(name, text, tree_name);
    }
    return APP_DONE;
}

const char *app_option_default(const app_option *o, char out[256])
{
    app_options defaults;
    app_options_default(&defaults);
    const void *place = (const char *)&defaults + o->offset;
    switch (o->type) {
    case APP_ON_OFF: snprintf(out, 256, "%s", *(const bool *)place ? "on" : "off"); return out;
    case APP_PREDICT:
    case APP_I32: snprintf(out, 256, "%d", (int)*(const int32_t *)place); return out;
    case APP_U32:
    case APP_COUNT: snprintf(out, 256, "%u", (unsigned)*(const uint32_t *)place); return out;
    case APP_TEMP:
    case APP_F32: snprintf(out, 256, "%g", (double)*(const float *)place); return out;
    case APP_SPEC_TYPE: snprintf(out, 256, "%s", aerie_spec_type_name(*(const aerie_spec_type *)place)); return out;
    case APP_KV_TYPE: snprintf(out, 256, "%s", aerie_kv_type_name(*(const aerie_kv_type *)place)); return out;
    case APP_POOLING: snprintf(out, 256, "%s", aerie_pooling_name(*(const aerie_pooling *)place)); return out;
    case APP_TREE: snprintf(out, 256, "%s", aerie_tree_name(*(const aerie_tree *)place)); return out;
    case APP_NUMBERS:
    case APP_TREES: {
        const app_numbers *list = place;
        size_t n = 0;
        for (size_t i = 0; i < list->n && n < 240; i++) {
            const char *comma = i ? "," : "";
            if (o->type == APP_TREES) n += (size_t)snprintf(out + n, 256 - n, "%s%s", comma, tree_name((int)list->items[i]));
            else n += (size_t)snprintf(out + n, 256 - n, "%s%u", comma, (unsigned)list->items[i]);
        }
        return list->n ? out : NULL;
    }
    default: return NULL;
    }
}

/* ---- Command line ------------------------------------------------------------------------------------- */

static bool is_optional_value(const char *text)
{
    bool ignored;
    return strcmp(text, "auto") == 0 || parse_switch(text, &ignored);
}

/* Appends to the list of an option that was given before, as llama-bench does. */
static int add_numbers(app_options *options, const app_option *o, const char *name, const char *text)
{
    app_numbers *list = (app_numbers *)(void *)((char *)options + o->offset), before = *list;
    const int bad = set_value(options, o, name, text);
    if (bad) return bad;
    if (before.n + list->n > APP_MAX_NUMBERS) return too_many(name);
    memcpy(before.items + before.n, list->items, list->n * sizeof *list->items);
    before.n += list->n;
    *list = before;
    return APP_DONE;
}

/* llama.cpp takes --ctx_size for --ctx-size: changes such a word, whose name has n bytes, unless it is known as it is. */
static void put_dashes(char *word, size_t n, uint64_t commands)
{
    if (strncmp(word, "--", 2) || !memchr(word, '_', n) || app_option_find(word, n, commands) < app_n_options()) return;
    for (size_t i = 0; i < n; i++)
        if (word[i] == '_') word[i] = '-';
}

/* Parses the option at argv[*at] and moves *at to its last word. */
static int parse_option(app_options *options, bool *given, int argc, char **argv, int *at)
{
    const char *word = argv[*at], *value = NULL;
    const char *equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
    const size_t n = equals ? (size_t)(equals - word) : strlen(word);
    put_dashes(argv[*at], n, options->command->bit);
    const size_t i = app_option_find(word, n, options->command->bit);
    const app_option *o = i < app_n_options() ? app_option_at(i) : NULL;
    const app_foreign *f = o ? NULL : app_foreign_option(word, n);
    if (!o && (!f || f->kind != APP_NO_EFFECT)) return app_unknown_option(options->command, word, n);
    const char *argument = o ? o->argument : f->argument;
    const void *place = o ? (char *)options + o->offset : NULL;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)n, word);
    if (equals) value = equals + 1;
    if (!argument) {
        if (value) return app_error(APP_USAGE, "%s takes no value; found '%s'", name, value);
    } else if (argument[0] == '[') {
        if (!value && *at + 1 < argc && is_optional_value(argv[*at + 1])) value = argv[++*at];
    } else if (!value) {
        if (*at + 1 >= argc) return app_error(APP_USAGE, "%s needs a value: %s %s", name, name, argument);
        value = argv[++*at];
    }
    if (f) return add_text(&options->ignored, word) ? APP_DONE : app_error_memory("the options");
    if (given[i] && o->type == APP_TEXT && strstr(o->argument, "FILE") && strcmp(value, *(const char **)place)) {
        if (place == (void *)&options->draft_model && options->command->bit & APP_BENCH_SPEC)
            return add_text(&options->bench.more_drafts, value) ? APP_DONE : app_error_memory("the options");
        if (place == (void *)&options->draft_model)
            return app_error(APP_USAGE, "%s is given twice, with '%s' and '%s', but there can be only one drafter; "
                             "--hier-draft FILE names a drafter for the draft model", name, options->draft_model, value);
        app_note("warning: %s is given twice; the last one, '%s', is used", name, value);
    }
    const bool again = given[i] && o->type == APP_NUMBERS && options->command->bit & APP_BENCH_SPEED;
    given[i] = true;
    return again ? add_numbers(options, o, name, value) : set_value(options, o, name, value);
}

static bool is_first_name(const app_option *o, const char *name)
{
    const size_t n = strcspn(o->names, " ");
    return strlen(name) == n && memcmp(o->names, name, n) == 0;
}

/* Returns whether the command line gave the option that excludes this one. Then the environment's value is ignored without an
 * error. */
static bool is_overruled(const app_option *o, const bool *given)
{
    static const char *const opposites[][2] = {{"--mmap", "--no-mmap"}, {"-v", "-q"}}; /* first names */
    for (size_t i = 0; i < sizeof opposites / sizeof *opposites; i++) {
        for (int side = 0; side < 2; side++) {
            if (!is_first_name(o, opposites[i][side])) continue;
            for (size_t k = 0; k < app_n_options(); k++)
                if (given[k] && is_first_name(app_option_at(k), opposites[i][!side])) return true;
        }
    }
    return false;
}

/* Reads options from the environment that the command line did not give. */
static int apply_environment(app_options *options, const bool *given)
{
    for (size_t i = 0; i < app_n_options(); i++) {
        const app_option *o = app_option_at(i);
        char name[64];
        bool negated;
        if (given[i] || !(o->commands & options->command->bit)) continue;
        const char *value = app_environment_get(o, name, &negated);
        if (!value || is_overruled(o, given)) continue;
        if (o->type == APP_FLAG || o->type == APP_FLAG_OFF) {
            bool on;
            if (!parse_switch(value, &on)) {
                return app_error(APP_USAGE, "%s (environment) takes on or off; found '%s'", name, value);
            }
            if (on == negated) continue;
        }
        const int bad = set_value(options, o, name, value);
        if (bad) return bad;
    }
    return APP_DONE;
}

/* Cuts a line into the option's name and its value, without blanks and quotation marks around the value. */
static void cut_line(char *line, char **name, char **value)
{
    *name = line + strspn(line, " \t");
    size_t n = strlen(*name);
    while (n && strchr(" \t\r", (*name)[n - 1])) (*name)[--n] = '\0';
    *value = *name + strcspn(*name, " \t=");
    char *end = *value;
    *value += strspn(*value, " \t");
    if (**value == '=') *value += 1 + strspn(*value + 1, " \t");
    n = strlen(*value);
    if (n > 1 && **value == '"' && (*value)[n - 1] == '"') {
        (*value)[n - 1] = '\0';
        ++*value;
    }
    *end = '\0';
}

/* Applies one line of the file unless the command line or the environment gave the option. */
static int apply_line(app_options *options, const bool *given, char *line, size_t number)
{
    char *key, *value, word[64], where[400], name[64];
    bool negated;
    const char first = line[strspn(line, " \t\r")];
    if (!first || first == '#') return APP_DONE;
    cut_line(line, &key, &value);
    snprintf(word, sizeof word, "%s%s", *key == '-' ? "" : "--", key);
    const size_t n = strlen(word), i = app_option_find(word, n, options->command->bit);
    const app_option *o = i < app_n_options() ? app_option_at(i) : NULL;
    snprintf(where, sizeof where, "%.300s, line %zu: %s", options->serve.config, number, word);
    if (!o || n < 4)
        return app_error(APP_USAGE, "%s is not an option of '%s'; 'aerie help %s --all' lists them", where,
                         options->command->name, options->command->name);
    if ((char *)options + o->offset == (char *)&options->serve.config)
        return app_error(APP_USAGE, "%s cannot be used in a file of options", where);
    const bool is_switch = o->type == APP_FLAG || o->type == APP_FLAG_OFF;
    bool on = true;
    if (is_switch && *value && !parse_switch(value, &on))
        return app_error(APP_USAGE, "%s takes on or off; found '%s'", where, value);
    if (!is_switch && !*value) return app_error(APP_USAGE, "%s needs a value: %s", where, o->argument);
    if (given[i] || app_environment_get(o, name, &negated) || is_overruled(o, given) || !on) return APP_DONE;
    return set_value(options, o, where, value);
}

/* Reads options from the file of --config that neither the command line nor the environment gave. */
static int apply_config(app_options *options, const bool *given)
{
    app_text *text = &options->serve.config_text;
    if (!options->serve.config) return APP_DONE;
    int bad = app_read_file(text, options->serve.config);
    if (!bad && text->n && memchr(text->data, '\0', text->n))
        return app_error(APP_USAGE, "%s contains a NUL character; a file of options is text", options->serve.config);
    size_t number = 1;
    for (char *line = text->data, *next; !bad && line; line = next, number++) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        bad = apply_line(options, given, line, number);
    }
    return bad;
}

/* Resolves llama.cpp's options for the types of cached keys and values: aerie has one name for each supported pair. */
static int settle_cache_types(app_options *options)
{
    const char *k = options->cache_type_k, *v = options->cache_type_v;
    aerie_kv_type *type = &options->session.kv_type;
    if (!k && !v) return APP_DONE;
    if (k && !aerie_kv_type_parse(k, type)) return wrong_type("--cache-type-k", k, kv_type_name);
    if (v && !aerie_kv_type_parse(v, type)) return wrong_type("--cache-type-v", v, kv_type_name);
    char pair[64];
    if (!k) k = aerie_kv_type_name(AERIE_KV_F16);
    if (!v) v = aerie_kv_type_name(AERIE_KV_F16);
    if (strcmp(k, v) == 0) return APP_DONE;
    snprintf(pair, sizeof pair, "%s/%s", k, v);
    if (aerie_kv_type_parse(pair, type)) return APP_DONE;
    return app_error(APP_USAGE, "keys and values can be cached in the same type, or as i16/q8_0, q8_0/i16, q8_0/q4_0 or "
                                "i16/q4_0, but --cache-type-k is %s and --cache-type-v %s%s; --kv-type sets both",
                     k, v, options->cache_type_k && options->cache_type_v ? "" : " (not given)");
}

/* Returns the smallest value of --spec-draft-n-max, which is a list in bench spec. */
static uint32_t least_n_max(const app_options *options)
{
    if (!(options->command->bit & APP_BENCH_SPEC)) return options->session.spec.n_max;
    uint32_t least = AERIE_MAX_DRAFT;
    for (size_t i = 0; i < options->bench.n_maxes.n; i++) {
        if (options->bench.n_maxes.items[i] < least) least = options->bench.n_maxes.items[i];
    }
    return least;
}

/* Copies the options of RoPE and the metadata overrides to the model's parameters. */
static int settle_rope(app_options *options)
{
    aerie_rope *rope = &options->rope;
    const aerie_rope before = aerie_rope_default();
    if (options->rope_scaling && !aerie_rope_scaling_parse(options->rope_scaling, &rope->scaling))
        return app_error(APP_USAGE, "--rope-scaling takes none, linear or yarn; found '%s'", options->rope_scaling);
    if (options->rope_freq_scale > 0 && rope->factor > 0)
        return app_error(APP_USAGE, "--rope-scale and --rope-freq-scale exclude each other: one is the inverse of the other");
    if (options->rope_freq_scale > 0) rope->factor = 1 / options->rope_freq_scale;
    if (rope->freq_base == 0) rope->freq_base = before.freq_base;
    if (rope->factor == 0) rope->factor = before.factor;
    const bool given = rope->scaling != before.scaling || rope->n_ctx_orig || rope->freq_base > 0 || rope->factor > 0 ||
                       rope->yarn_ext_factor >= 0 || rope->yarn_attn_factor >= 0 || rope->yarn_beta_fast >= 0 ||
                       rope->yarn_beta_slow >= 0;
    if (given) options->model_params.rope = rope;
    options->model_params.overrides = options->overrides.items;
    options->model_params.n_overrides = options->overrides.n;
    return APP_DONE;
}

/* Returns the length in bytes of the option's name in a word of the command line. */
static size_t n_name(const char *word)
{
    return strncmp(word, "--", 2) == 0 ? strcspn(word, "=") : strlen(word);
}

/* Lists the options that have no effect: on one line, or with --verbose on a line each. */
static void say_ignored(const app_options *options)
{
    const app_texts *words = &options->ignored;
    app_text all = {0};
    for (size_t i = 0; i < words->n && !options->quiet; i++) {
        const char *word = words->items[i];
        const size_t n = n_name(word);
        if (options->verbose || words->n == 1)
            app_note("%.*s has no effect here: %s", (int)n, word, app_foreign_option(word, n)->text);
        else if (!app_text_add(&all, i == 0 ? "" : i + 1 < words->n ? ", " : " and ", i == 0 ? 0 : i + 1 < words->n ? 2 : 5) ||
                 !app_text_add(&all, word, n))
            break;
    }
    if (all.n) app_note("%s have no effect here; -v says why", all.data);
    app_text_free(&all);
}

static void warn(void *user, const char *sentence)
{
    (void)user;
    app_note("warning: %s", sentence);
}

/* Checks options against each other and derives values from them. */
static int settle(app_options *options)
{
    const int bad_rope = settle_rope(options);
    if (bad_rope) return bad_rope;
    if (options->command->bit & APP_SERVE) options->session.n_seqs = options->serve.n_seqs;
    else options->session.max_pause = options->session.max_turn = 0; /* no other client waits, and whole batches are faster */
    if (options->session.n_batch > options->n_batch_logical) options->session.n_batch = options->n_batch_logical;
    const app_numbers *threads = &options->speed.threads;
    bool open = false;
    for (size_t i = 0; i < threads->n; i++) {
        open |= !threads->items[i] || threads->items[i] > 1024; /* 0 or -1 */
        if (threads->items[i] > options->n_threads) options->n_threads = threads->items[i];
    }
    if (open) options->n_threads = 0; /* app_cpus_settle chooses a number, which bench speed uses for the empty lists */
    if (options->command->bit & APP_THREADS) {
        const int bad = app_cpus_settle(options);
        if (bad) return bad;
    }
    options->model_params.n_threads = options->session.n_threads = options->n_threads;
    if (options->list_devices) return APP_DONE; /* nothing else is done */
    const int bad_machines = app_machines_settle(options);
    if (bad_machines) return bad_machines;
    const int bad_device = app_device_settle(options);
    if (bad_device) return bad_device;
    const int bad = settle_cache_types(options);
    if (bad) return bad;
    const int bad_sampling = app_sampling_settle(options);
    if (bad_sampling) return bad_sampling;
    if (options->n_predict == 0) return app_error(APP_USAGE, "-n takes a whole number from 1, or -1; found '0'"); /* imatrix */
    if (!options->session.spec.n_max) { /* llama.cpp's users turn drafts off by it */
        options->session.spec.type = AERIE_SPEC_NONE;
        options->session.spec.n_max = aerie_session_params_default().spec.n_max;
        options->session.spec.n_min = 0;
    }
    const uint32_t n_max = least_n_max(options);
    if (options->session.spec.n_min > n_max) {
        return app_error(APP_USAGE, "--spec-draft-n-min %u is more than --spec-draft-n-max %u",
                         (unsigned)options->session.spec.n_min, (unsigned)n_max);
    }
    /* without --seed a benchmark uses a fixed seed, so that two runs can be compared */
    if (options->command->bit & (APP_BENCH_SPEC | APP_BENCH_STUDY) && !options->seed_given) options->seed_random = false;
    if (options->seed_random) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        options->sampling.seed = ((uint64_t)now.tv_sec << 20 ^ (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 40) >> 1;
    }
    if (options->model_params.mmap && options->model_params.no_mmap) {
        return app_error(APP_USAGE, "--mmap and --no-mmap exclude each other");
    }
    if (options->serve.image_process && options->serve.no_image_process)
        return app_error(APP_USAGE, "--image-process and --no-image-process exclude each other");
    if ((options->run.prompt_cache_all || options->run.prompt_cache_ro) && !options->run.prompt_cache)
        return app_error(APP_USAGE, "%s needs --prompt-cache FILE",
                         options->run.prompt_cache_all ? "--prompt-cache-all" : "--prompt-cache-ro");
    if (options->run.prompt_cache_all && options->run.prompt_cache_ro)
        return app_error(APP_USAGE, "--prompt-cache-all and --prompt-cache-ro exclude each other");
    if (options->run.prompt_cache && !*options->run.prompt_cache)
        return app_error(APP_USAGE, "--prompt-cache needs the name of a file; found ''");
    if (options->conversation && options->no_conversation)
        return app_error(APP_USAGE, "-cnv and -no-cnv exclude each other");
    if (options->jsonl && (options->json || options->ids))
        return app_error(APP_USAGE, "--jsonl and %s exclude each other", options->json ? "--json" : "--ids");
    if (options->verbose && options->quiet) {
        return app_error(APP_USAGE, "--verbose and --quiet exclude each other");
    }
    if (!(options->command->bit & APP_DOCTOR)) app_environment_check(warn, NULL); /* doctor prints these warnings itself */
    say_ignored(options);
    return app_grammar_settle(options);
}

/* Returns which of llama.cpp's other options for the model was given; NULL: none. */
static const char *names_model(const app_options *options)
{
    return options->pull.hf_repo ? "-hf" : options->pull.model_url ? "-mu" : NULL;
}

/* Uses the first argument as the value of -m, unless it is one of tokenize's ids; for run the other ones are the prompt. */
static int take_model(app_options *options, bool *given)
{
    app_texts *words = &options->arguments;
    const app_command *command = options->command;
    if (!words->n || strncmp(command->arguments, "[MODEL", 6)) return APP_DONE;
    const bool ids = command->bit & APP_TOKENIZE;
    const size_t m = app_option_find("-m", 2, command->bit);
    const char *by = given[m] ? "-m" : names_model(options);
    const char *hint = command->bit & (APP_EMBED | APP_PERPLEXITY | APP_IMATRIX) ? " (a text is given by -p or -f)" : "";
    if (ids && (by || strspn(words->items[0], "0123456789") == strlen(words->items[0]))) return APP_DONE;
    if (by && command->bit & APP_RUN)
        return app_error(APP_USAGE, "%s names the model; found '%s' too (give a prompt by -p, or after a MODEL without %s)", by,
                         words->items[0], by);
    if (by && !(command->bit & APP_SERVE && !given[m])) /* the server takes several models */
        return app_error(APP_USAGE, "%s names the model; found '%s' too%s", by, words->items[0],
                         command->bit & APP_SERVE ? " (each model needs its own -m, or all come without it)" : hint);
    for (size_t i = 0; i < words->n; i++) {
        const char *word = words->items[i];
        if (*word && strcmp(word, "-")) continue;
        if (i && command->bit & APP_RUN)
            return app_error(APP_USAGE, "the model '%s' is followed by its prompt; found '%s' (-f - reads standard input)",
                             words->items[0], word);
        return app_error(APP_USAGE, "'%s' takes a model's file or name; found '%s'", command->name, word);
    }
    given[m] = options->model_typed = true;
    if (command->bit & APP_SERVE) {
        for (size_t i = 0; i < words->n; i++)
            if (!add_text(&options->serve.models, words->items[i])) return app_error_memory("the options");
    } else options->model = words->items[0];
    if (command->bit & APP_RUN && words->n > 1) {
        app_text text = {0};
        bool ok = true;
        for (size_t i = 1; i < words->n; i++)
            ok = ok && app_text_add(&text, " ", i > 1) && app_text_add(&text, words->items[i], strlen(words->items[i]));
        ok = ok && add_text(&options->pulled, text.data); /* `pulled` owns its texts */
        if (!ok) app_text_free(&text);
        if (!ok || !add_text(&options->prompts, text.data)) return app_error_memory("the options");
    } else if (words->n > 1 && !ids && !(command->bit & APP_SERVE)) {
        return app_error(APP_USAGE, "'%s' takes one model; found '%s' too%s", command->name, words->items[1], hint);
    }
    if (ids) memmove(words->items, words->items + 1, --words->n * sizeof *words->items);
    else words->n = 0;
    return APP_DONE;
}

int app_options_parse(app_options *options, const app_command *command, int argc, char **argv, app_help *help)
{
    bool *given = calloc(app_n_options(), sizeof *given);
    bool only_arguments = false;
    int bad = given ? APP_DONE : app_error_memory("the options");
    options->command = command;
    *help = APP_HELP_NONE;
    for (int i = 0; i < argc && !bad; i++) {
        const char *word = argv[i];
        if (only_arguments || word[0] != '-' || word[1] == '\0') {
            if (!add_text(&options->arguments, word)) bad = app_error_memory("the options");
        } else if (strcmp(word, "--") == 0) {
            only_arguments = true;
        } else if (app_is_help(word)) {
            *help = i + 1 < argc && app_is_all(argv[i + 1]) ? APP_HELP_ALL : APP_HELP_SHORT;
            break;
        } else {
            bad = parse_option(options, given, argc, argv, &i);
        }
    }
    if (!bad && !*help) bad = take_model(options, given);
    if (!bad && !*help) bad = apply_environment(options, given);
    if (!bad && !*help) bad = apply_config(options, given);
    if (!bad && !*help) bad = settle(options);
    if (!bad && !*help && options->arguments.n && !*command->arguments) {
        bad = app_error(APP_USAGE, "'%s' takes options only; found '%s'", command->name, options->arguments.items[0]);
    }
    free(given);
    return bad;
}

bool app_is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "--usage") == 0;
}

bool app_is_all(const char *word)
{
    return strcmp(word, "all") == 0 || strcmp(word, "--all") == 0;
}

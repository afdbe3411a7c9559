/* template.c - aerie template: a conversation as a chat template writes it. */
#include <string.h>

#include "common/load.h"
#include "common/commands.h"

typedef struct sources {
    app_text template_text, messages, tools, variables;
} sources;

static void sources_free(sources *s)
{
    app_text_free(&s->template_text);
    app_text_free(&s->messages);
    app_text_free(&s->tools);
    app_text_free(&s->variables);
}

static bool is_standard(const char *path)
{
    return path && strcmp(path, "-") == 0;
}

static const char *name_of(const char *path)
{
    return is_standard(path) ? "standard input" : path;
}

static int check(const app_options *options)
{
    if (!options->template_file && !options->model)
        return app_error(APP_USAGE, "'template' needs a template: --file FILE, or -m FILE for a model's own");
    if (!options->messages)
        return app_error(APP_USAGE, "'template' needs a conversation: --messages FILE (JSON), - is standard input");
    if (options->tokens && !options->model) return app_error(APP_USAGE, "--tokens needs a model: -m FILE (or AERIE_MODEL)");
    if (is_standard(options->template_file) + is_standard(options->messages) + is_standard(options->tools) > 1)
        return app_error(APP_USAGE, "only one of --file, --messages and --tools can be standard input");
    return APP_DONE;
}

/* ---- Variables ------------------------------------------------------------------------------------------------ */

enum { NAME_BYTES = 128 };

static bool is_name(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && (i == 0 || c < '0' || c > '9')) return false;
    }
    return n > 0 && n < NAME_BYTES;
}

/* NAME=JSON into the object. */
static int add_variable(json_t *object, const char *text)
{
    json_error_t e;
    char name[NAME_BYTES];
    const char *equals = strchr(text, '=');
    if (!equals || !is_name(text, (size_t)(equals - text)))
        return app_error(APP_USAGE, "--set takes NAME=JSON, such as enable_thinking=false; found '%s'", text);
    snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
    json_t *value = json_loads(equals + 1, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (!value)
        return app_error(APP_USAGE, "--set %s: not JSON: %s (a text stands in quotes: --set '%s=\"...\"')", text, e.text, name);
    return json_object_set_new(object, name, value) ? app_error_memory("the variables") : APP_DONE;
}

static int append(const char *bytes, size_t n, void *text)
{
    return app_text_add(text, bytes, n) ? 0 : -1;
}

/* --chat-template-kwargs and --set as one JSON object; nothing if there are none. */
static int gather_variables(app_text *out, const app_options *options)
{
    json_error_t e;
    if (!options->template_kwargs && !options->variables.n) return APP_DONE;
    json_t *object = options->template_kwargs ? json_loads(options->template_kwargs, JSON_ALLOW_NUL, &e) : json_object();
    int bad = APP_DONE;
    if (!object && !options->template_kwargs) bad = app_error_memory("the variables");
    else if (!object) bad = app_error(APP_USAGE, "--chat-template-kwargs: not a JSON object: %s", e.text);
    else if (!json_is_object(object)) bad = app_error(APP_USAGE, "--chat-template-kwargs: not a JSON object");
    for (size_t i = 0; !bad && i < options->variables.n; i++) bad = add_variable(object, options->variables.items[i]);
    if (!bad && json_dump_callback(object, append, out, JSON_COMPACT)) bad = app_error_memory("the variables");
    json_decref(object);
    return bad;
}

/* ---- The command --------------------------------------------------------------------------------------------- */

static int read_sources(sources *s, const app_options *options)
{
    int bad = options->template_file ? app_read_file(&s->template_text, options->template_file) : APP_DONE;
    if (!bad) bad = app_read_file(&s->messages, options->messages);
    if (!bad && options->tools) bad = app_read_file(&s->tools, options->tools);
    if (!bad) bad = gather_variables(&s->variables, options);
    return bad;
}

static int print(const app_models *models, const app_options *options, const char *text, size_t n)
{
    int32_t *ids = NULL;
    size_t n_ids = 0;
    aerie_error error = {0};
    int bad = APP_DONE;
    if (options->tokens)
        bad = app_report(APP_WORKING, aerie_chat_tokenize(models->model, text, n, &ids, &n_ids, &error), &error);
    if (!bad && options->json) {
        json_t *json = json_pack("{s:o}", "prompt", app_json_text(text, n));
        if (json && options->tokens) app_json_put(json, "ids", app_json_ids(ids, n_ids));
        bad = app_print_json(json);
    } else if (!bad && options->tokens) {
        for (size_t i = 0; i < n_ids && app_print(i ? " %d" : "%d", (int)ids[i]); i++) {
        }
        app_write("\n", 1);
    } else if (!bad) {
        app_write(text, n);
    }
    aerie_free(ids);
    return bad;
}

static int render(const app_models *models, const sources *s, const app_options *options)
{
    char *text = NULL;
    size_t n = 0;
    aerie_error error = {0};
    const aerie_chat chat = {
        .template_text = {s->template_text.data, s->template_text.n,
                          options->template_file ? name_of(options->template_file) : options->model},
        .messages = {s->messages.data, s->messages.n, name_of(options->messages)},
        .tools = {s->tools.data, s->tools.n, name_of(options->tools)},
        .variables = {s->variables.data, s->variables.n, "--set"},
        .bos = options->bos,
        .eos = options->eos,
        .no_generation_prompt = options->no_generation_prompt,
    };
    int bad = app_report(APP_LOADING, aerie_chat_render(models->model, &chat, &text, &n, &error), &error);
    if (!bad) bad = print(models, options, text, n);
    aerie_free(text);
    return bad;
}

int app_template(const app_options *options)
{
    app_models models = {0};
    sources s = {0};
    int bad = check(options);
    if (!bad && options->model) bad = app_vocabulary_load(&models, options);
    if (!bad) bad = read_sources(&s, options);
    if (!bad) bad = render(&models, &s, options);
    sources_free(&s);
    app_models_free(&models);
    return bad;
}

/* template.c - aerie template: prints a conversation as a chat template renders it. */
#include <string.h>

#include "setup/load.h"
#include "cli/commands.h"

static bool is_standard(const char *path)
{
    return path && strcmp(path, "-") == 0;
}

static int check(const app_options *options)
{
    if (!options->chat.template_file && !options->chat.template_text && !options->model)
        return app_error(APP_USAGE, "'template' needs a template: --file FILE, or -m FILE for a model's own");
    if (!options->chat.messages)
        return app_error(APP_USAGE, "'template' needs a conversation: --messages FILE (JSON), - is standard input");
    if (options->render.tokens && !options->model) return app_error(APP_USAGE,
                                                                    "--tokens needs a model: -m FILE (or AERIE_MODEL)");
    if (is_standard(options->chat.template_file) + is_standard(options->chat.messages) + is_standard(options->chat.tools) > 1)
        return app_error(APP_USAGE, "only one of --file, --messages and --tools can be standard input");
    return APP_DONE;
}

static int print(const app_options *options, const char *text, size_t n, const int32_t *ids, size_t n_ids)
{
    int bad = APP_DONE;
    if (options->json) {
        json_t *json = json_pack("{s:o}", "prompt", app_json_text(text, n));
        if (json && options->render.tokens) app_json_put(json, "ids", app_json_ids(ids, n_ids));
        bad = app_print_json(json);
    } else if (options->render.tokens) {
        for (size_t i = 0; i < n_ids && app_print(i ? " %d" : "%d", (int)ids[i]); i++) {
        }
        app_write("\n", 1);
    } else {
        app_write_text(text, n);
    }
    return bad;
}

static int render(const app_models *models, const app_format *format, const app_text *messages, const app_options *options)
{
    char *text = NULL;
    int32_t *ids = NULL;
    size_t n = 0, n_ids = 0;
    aerie_error error = {0};
    aerie_chat chat = app_format_chat(format);
    if (!format->name) chat.template_text.name = options->model;
    chat.messages = (aerie_text){messages->data, messages->n, app_path_name(options->chat.messages)};
    chat.bos = options->render.bos;
    chat.eos = options->render.eos;
    chat.no_generation_prompt = options->render.no_generation_prompt;
    const aerie_status status = options->render.tokens
                                    ? aerie_model_chat_tokens(models->model, &chat, &ids, &n_ids, &text, &n, &error)
                                    : aerie_model_chat_render(models->model, &chat, &text, &n, &error);
    int bad = app_report(APP_LOADING, status, &error);
    if (!bad) bad = print(options, text, n, ids, n_ids);
    aerie_free(ids);
    aerie_free(text);
    return bad;
}

int app_template(const app_options *options)
{
    app_models models = {0};
    app_format format = {0};
    app_text messages = {0};
    int bad = check(options);
    if (!bad && options->model) bad = app_vocabulary_load(&models, options);
    if (!bad && models.info.is_encoder && !models.info.has_chat_template && !options->chat.template_file &&
        !options->chat.template_text)
        bad = app_error(APP_BAD_FILE, "'%s' is an encoder and has no chat template: it embeds texts (aerie embed); --file FILE "
                        "renders with another template", options->model);
    if (!bad) bad = app_format_read(&format, options);
    if (!bad && options->model) bad = app_format_fit(&format, models.model, &models.info, options, true);
    if (!bad) bad = app_read_file(&messages, options->chat.messages);
    if (!bad) bad = render(&models, &format, &messages, options);
    app_text_free(&messages);
    app_format_free(&format);
    app_models_free(&models);
    return bad;
}

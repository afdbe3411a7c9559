/* tokenize.c - aerie tokenize: converts text to ids and back. */
#include <stdlib.h>
#include <string.h>

#include "setup/load.h"
#include "cli/commands.h"

static void show_count(const app_options *options, size_t n)
{
    if (options->tokenize.show_count) app_note("%zu token%s", n, app_plural(n));
}

/* Reads the text of -p, -f or standard input, without changes. */
static int read_input(app_text *text, const app_options *options)
{
    if (options->prompts.n > 1) return app_error(APP_USAGE, "'tokenize' takes one -p");
    if (options->prompts.n && options->file) return app_error(APP_USAGE, "only one of -p and -f can be given");
    if (options->prompts.n) {
        app_prompts one = {0};
        const int bad =
            app_prompts_add(&one, options->prompts.items[0], strlen(options->prompts.items[0]), options->escape);
        if (!bad) {
            *text = one.items[0].text;
            one.items[0].text = (app_text){0};
        }
        app_prompts_free(&one);
        return bad;
    }
    return app_read_data(text, options->file ? options->file : "-");
}

static int encode(const app_models *models, const app_options *options)
{
    app_text text = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    aerie_error error = {0};
    int bad = read_input(&text, options);
    if (!bad) {
        bad = app_report(APP_WORKING,
                         aerie_model_tokenize(models->model, text.data, text.n, !options->tokenize.no_bos,
                                              !options->tokenize.no_parse_special,
                                              &ids, &n, &error),
                         &error);
    }
    if (!bad && options->json) {
        bad = app_print_json(json_pack("{s:o, s:I, s:o}", "ids", app_json_ids(ids, n), "count", (json_int_t)n,
                                       "tokenizer",
                                       app_json_text(models->info.tokenizer, strlen(models->info.tokenizer))));
    } else if (!bad) {
        for (size_t i = 0; i < n && app_print(i ? " %d" : "%d", (int)ids[i]); i++) {
        }
        app_write("\n", 1);
    }
    if (!bad) show_count(options, n);
    aerie_free(ids);
    app_text_free(&text);
    return bad;
}

static int read_ids(const app_options *options, int32_t **ids, size_t *n)
{
    app_text text = {0};
    int bad = APP_DONE;
    int exit_status = APP_USAGE;
    const char *source = "--decode";
    if (options->arguments.n) {
        if (options->prompts.n || options->file)
            bad = app_error(APP_USAGE, "give ids as arguments, or by -p or -f, not both");
        for (size_t i = 0; !bad && i < options->arguments.n; i++) {
            const char *word = options->arguments.items[i];
            if (!app_text_add(&text, word, strlen(word)) || !app_text_add(&text, " ", 1))
                bad = app_error_memory("the ids");
        }
    } else {
        bad = read_input(&text, options);
        if (!options->prompts.n) {
            source = options->file && strcmp(options->file, "-") ? options->file : "standard input";
            exit_status = APP_BAD_FILE;
        }
    }
    if (!bad) bad = app_parse_ids(text.data ? text.data : "", text.n, source, exit_status, ids, n);
    app_text_free(&text);
    return bad;
}

static int decode(const app_models *models, const app_options *options)
{
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n_ids = 0, n = 0;
    aerie_error error = {0};
    int bad = read_ids(options, &ids, &n_ids);
    if (!bad)
        bad = app_report(APP_WORKING, aerie_model_detokenize(models->model, ids, n_ids, true, &text, &n, &error), &error);
    if (!bad && options->json) {
        bad = app_print_json(json_pack("{s:o, s:I}", "text", app_json_text(text, n), "count", (json_int_t)n_ids));
    } else if (!bad) {
        app_write_text(text, n);
    }
    if (!bad) show_count(options, n_ids);
    free(ids);
    aerie_free(text);
    return bad;
}

int app_tokenize(const app_options *options)
{
    app_models models;
    if (options->arguments.n && !options->tokenize.decode) {
        return app_error(APP_USAGE,
                         "'tokenize' takes a text by -p, -f or standard input; ids as arguments need --decode");
    }
    int bad = app_vocabulary_load(&models, options);
    if (!bad) bad = options->tokenize.decode ? decode(&models, options) : encode(&models, options);
    app_models_free(&models);
    return bad;
}

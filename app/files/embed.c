/* embed.c - aerie embed: prints the vectors of texts, or the scores of a reranker. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aerie_extra.h"
#include "cli/commands.h"
#include "setup/load.h"

typedef struct job {
    const app_options *options;
    aerie_embedder *embedder;
    app_models models;
    app_prompts texts;
    float *vectors;  /* [n][n_out] */
    size_t n, n_out; /* number of texts; numbers in a vector */
    size_t n_tokens; /* of all texts */
} job;

/* ---- Texts ------------------------------------------------------------------------------------------- */

/* Splits the text at separators; empty parts are left out. */
static int add_parts(app_prompts *texts, const app_text *text, const char *separator)
{
    const size_t n_separator = strlen(separator);
    int bad = APP_DONE;
    for (size_t at = 0, end; !bad && at < text->n; at = end + n_separator) {
        end = at;
        while (end < text->n && (text->n - end < n_separator || memcmp(text->data + end, separator, n_separator))) end++;
        if (end > at) bad = app_prompts_add(texts, text->data + at, end - at, false);
    }
    return bad;
}

static int add_lines(app_prompts *texts, const app_text *text)
{
    const char *line;
    size_t n;
    int bad = APP_DONE;
    for (size_t at = 0; !bad && app_next_line(text, &at, &line, &n);)
        if (n) bad = app_prompts_add(texts, line, n, false);
    return bad;
}

static int add_file(app_prompts *texts, const char *path, const char *separator)
{
    app_text text = {0};
    int bad = app_read_data(&text, path);
    if (!bad) bad = separator ? add_parts(texts, &text, separator) : add_lines(texts, &text);
    app_text_free(&text);
    return bad;
}

static int read_texts(app_prompts *texts, const app_options *o)
{
    int bad = APP_DONE;
    if (o->embed.separator && !*o->embed.separator) return app_error(APP_USAGE, "--embd-separator is empty");
    if (o->prompts.n || o->prompts_file) {
        app_options rest = *o;
        rest.file = NULL;
        bad = app_prompts_read(texts, &rest, false);
    }
    if (!bad && (o->file || !texts->n)) bad = add_file(texts, o->file ? o->file : "-", o->embed.separator);
    for (size_t i = 0; !bad && i < texts->n; i++)
        if (texts->items[i].is_messages)
            bad = app_error(APP_BAD_FILE, "%s: a conversation has no embedding; \"prompt\" with a text would work",
                            texts->items[i].source ? texts->items[i].source : "--prompts-file");
    if (!bad && !texts->n) bad = app_error(APP_USAGE, "'embed' needs a text: -p TEXT, -f FILE, or lines on standard input");
    return bad;
}

/* ---- Vectors ----------------------------------------------------------------------------------------- */

static int encode(const job *j, app_prompt *text, size_t *n_first)
{
    aerie_error error = {0};
    const char *query = j->options->embed.query;
    *n_first = 0;
    const aerie_status status = query ? aerie_model_rerank_tokens(j->models.model, query, strlen(query), text->text.data,
                                                                  text->text.n, &text->tokens, &text->n_tokens, n_first, &error)
                                      : aerie_model_tokenize(j->models.model, text->text.data, text->text.n, true, false,
                                                             &text->tokens, &text->n_tokens, &error);
    const size_t most = aerie_embedder_n_ctx(j->embedder);
    if (status == AERIE_OK && text->n_tokens > most && j->options->embed.truncate) {
        text->tokens[most - 1] = text->tokens[text->n_tokens - 1];
        text->n_tokens = most;
        if (*n_first > most) *n_first = most;
    }
    return app_report(APP_WORKING, status, &error);
}

static int compute(job *j)
{
    aerie_error error = {0};
    aerie_embed_text *texts = calloc(j->n, sizeof *texts);
    j->vectors = j->n <= SIZE_MAX / sizeof(float) / j->n_out ? malloc(j->n * j->n_out * sizeof(float)) : NULL;
    int bad = texts && j->vectors ? APP_DONE : app_error_memory("the vectors");
    for (size_t i = 0; !bad && i < j->n; i++) {
        app_prompt *text = &j->texts.items[i];
        bad = encode(j, text, &texts[i].n_first);
        texts[i].tokens = text->tokens;
        texts[i].n_tokens = text->n_tokens;
        j->n_tokens += text->n_tokens;
    }
    if (!bad) bad = app_report(APP_WORKING, aerie_embedder_embed(j->embedder, texts, j->n, j->vectors, &error), &error);
    free(texts);
    return bad;
}

static double cosine(const job *j, size_t a, size_t b)
{
    const float *x = j->vectors + a * j->n_out, *y = j->vectors + b * j->n_out;
    double xy = 0, xx = 0, yy = 0;
    for (size_t i = 0; i < j->n_out; i++) {
        xy += (double)x[i] * (double)y[i];
        xx += (double)x[i] * (double)x[i];
        yy += (double)y[i] * (double)y[i];
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

/* ---- Output ------------------------------------------------------------------------------------------ */

/* Prints numbers with enough digits to read them back exactly. */
static int print_lines(const job *j)
{
    for (size_t i = 0; i < j->n; i++) {
        for (size_t k = 0; k < (j->options->embed.cosine ? j->n : j->n_out); k++) {
            if (k) app_write(" ", 1);
            if (j->options->embed.cosine) app_print("%.6f", cosine(j, i, k));
            else app_print("%.9g", (double)j->vectors[i * j->n_out + k]);
        }
        if (!app_write("\n", 1)) return APP_FAILED;
    }
    return APP_DONE;
}

static json_t *vector_json(const job *j, size_t i)
{
    json_t *list = json_array();
    for (size_t k = 0; k < j->n_out; k++) app_json_append(list, app_json_real((double)j->vectors[i * j->n_out + k]));
    return list;
}

static json_t *cosines_json(const job *j)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < j->n; i++) {
        json_t *row = json_array();
        for (size_t k = 0; k < j->n; k++) app_json_append(row, app_json_real(cosine(j, i, k)));
        app_json_append(rows, row);
    }
    return rows;
}

static int print_array(const job *j)
{
    json_t *list = json_array();
    for (size_t i = 0; i < j->n; i++) app_json_append(list, vector_json(j, i));
    return app_print_json_line(list);
}

static int print_openai(const job *j, bool cosines)
{
    json_t *data = json_array();
    for (size_t i = 0; i < j->n; i++) {
        json_t *one =
            json_pack("{s:s, s:I, s:o}", "object", "embedding", "index", (json_int_t)i, "embedding", vector_json(j, i));
        const json_t *id = j->texts.items[i].id;
        if (id) app_json_put(one, "id", json_deep_copy(id));
        app_json_append(data, one);
    }
    json_t *all = json_pack("{s:s, s:o, s:o, s:{s:I, s:I}}", "object", "list", "data", data, "model",
                            app_json_text(j->models.info.name, strlen(j->models.info.name)), "usage", "prompt_tokens",
                            (json_int_t)j->n_tokens, "total_tokens", (json_int_t)j->n_tokens);
    if (cosines) app_json_put(all, "cosineSimilarity", cosines_json(j));
    return app_print_json_line(all);
}

static int print(const job *j, const char *format)
{
    if (strcmp(format, "array") == 0) return print_array(j);
    if (strcmp(format, "json") == 0) return print_openai(j, false);
    if (strcmp(format, "json+") == 0) return print_openai(j, true);
    return print_lines(j);
}

/* ---- The command --------------------------------------------------------------------------------------- */

static int check(const app_options *o, const char **format)
{
    static const char *const formats[] = {"lines", "array", "json", "json+"};
    const char *given = o->embed.format ? o->embed.format : o->json ? "json" : "lines";
    *format = NULL;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(given, formats[i]) == 0) *format = formats[i];
    if (o->arguments.n)
        return app_error(APP_USAGE, "'embed' takes texts by -p, -f or standard input; found '%s'", o->arguments.items[0]);
    if (!*format) return app_error(APP_USAGE, "--embd-output-format takes lines, array, json or json+; found '%s'", given);
    if (o->embed.cosine && strcmp(*format, "lines"))
        return app_error(APP_USAGE, "--cosine prints lines; json+ has vectors and cosines");
    if (o->embed.query && (o->embed.cosine || strcmp(*format, "json+") == 0))
        return app_error(APP_USAGE, "--query gives one number for each text: these have no cosine");
    if (o->embed.query && o->embed.pooling != AERIE_POOLING_AUTO && o->embed.pooling != AERIE_POOLING_RANK)
        return app_error(APP_USAGE, "--query needs --pooling rank; found '%s'", aerie_pooling_name(o->embed.pooling));
    return APP_DONE;
}

static int open_embedder(job *j)
{
    const app_options *o = j->options;
    aerie_embedder_params p = aerie_embedder_params_default();
    aerie_error error = {0};
    p.n_ctx = o->session.n_ctx == AERIE_CTX_TRAINED ? 0 : o->session.n_ctx;
    p.n_batch = o->session.n_batch;
    p.n_threads = o->n_threads;
    p.pooling = o->embed.query ? AERIE_POOLING_RANK : o->embed.pooling;
    p.normalize = o->embed.normalize;
    const int bad = app_report(APP_WORKING, aerie_embedder_create(&j->embedder, j->models.model, &p, &error), &error);
    if (!bad) j->n_out = aerie_embedder_n_out(j->embedder);
    return bad;
}

int app_embed(const app_options *options)
{
    job j = {.options = options};
    const char *format;
    int bad = check(options, &format);
    if (!bad) bad = read_texts(&j.texts, options);
    j.n = j.texts.n;
    if (!bad) bad = app_model_load(&j.models, options);
    if (!bad) bad = app_need_text(&j.models, options);
    if (!bad) bad = open_embedder(&j);
    const double start = app_now();
    if (!bad) bad = compute(&j);
    const double seconds = app_now() - start;
    if (!bad && options->verbose)
        app_note("%zu text%s of %zu token%s in %.3f s: %.1f texts/s, %.0f tokens/s", j.n, app_plural(j.n), j.n_tokens,
                 app_plural(j.n_tokens), seconds, app_rate((double)j.n, seconds), app_rate((double)j.n_tokens, seconds));
    if (!bad) bad = print(&j, format);
    free(j.vectors);
    aerie_embedder_free(j.embedder);
    app_models_free(&j.models);
    app_prompts_free(&j.texts);
    return bad;
}

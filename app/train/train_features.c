/* train_features.c - aerie train-data features: runs answers through the target again and stores what a head is trained on. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "aerie_measure.h"
#include "train/train_data.h"

typedef struct exporter {
    const app_models *models;
    const app_options *options;
    const char *path;  /* of the answers */
    aerie_session *session;
    uint32_t n_ctx;
    app_feature_file file;
    size_t n_lines;    /* of the answers */
    /* in tokens */
    size_t capacity;   /* tokens */
    int32_t *tokens;   /* [n_tokens] */
    app_feature_rows rows;
    app_progress_line progress;
} exporter;

static bool on_position(void *user, size_t position, const float *logits, const float *features)
{
    exporter *e = user;
    app_feature_row(&e->file, &e->rows, position, logits, features);
    e->progress.n_tokens++;
    app_progress_say(&e->progress, false);
    return !app_interrupted();
}

/* ---- One conversation ------------------------------------------------------------------------------------------ */

static int reserve(exporter *e, size_t n)
{
    if (n > e->capacity) {
        int32_t *grown = n <= SIZE_MAX / sizeof *grown ? realloc(e->tokens, n * sizeof *grown) : NULL;
        if (!grown) return app_error_memory("the tokens of a conversation");
        e->tokens = grown;
        e->capacity = n;
    }
    return app_feature_reserve(&e->file, &e->rows, n);
}

static int read_tokens(exporter *e, json_t *object, size_t line, size_t *n_tokens, size_t *n_prompt)
{
    json_t *list = json_object_get(object, "tokens"), *item, *prompt = json_object_get(object, "n_prompt");
    const size_t n = json_array_size(list);
    size_t i;
    if (n == 0 || !json_is_integer(prompt) || json_integer_value(prompt) < 0 || (size_t)json_integer_value(prompt) > n) {
        return app_error(APP_BAD_FILE, "'%s', line %zu: needs \"tokens\", a list of ids, and \"n_prompt\", how many of them "
                         "are the prompt; is this the output of 'train-data answers'?", e->path, line);
    }
    if (n > e->n_ctx) {
        return app_error(APP_USAGE, "'%s', line %zu: %zu tokens, but the context has %u positions; see -c", e->path, line, n,
                         (unsigned)e->n_ctx);
    }
    const int bad = reserve(e, n);
    if (bad) return bad;
    json_array_foreach(list, i, item) {
        const json_int_t id = json_is_integer(item) ? json_integer_value(item) : -1;
        if (id < 0 || id >= (json_int_t)e->file.header.n_vocab)
            return app_error(APP_BAD_FILE, "'%s', line %zu: token %zu is not one of the model's %u", e->path, line, i,
                             (unsigned)e->file.header.n_vocab);
        e->tokens[i] = (int32_t)id;
    }
    *n_tokens = n;
    *n_prompt = (size_t)json_integer_value(prompt);
    return APP_DONE;
}

static int export_line(void *user, json_t *object, size_t line)
{
    exporter *e = user;
    size_t n_tokens = 0, n_prompt = 0;
    aerie_error error = {0};
    const char *id = json_string_value(json_object_get(object, "id"));
    if (!id || strlen(id) > APP_MAX_ID) return app_error(APP_BAD_FILE, "'%s', line %zu: needs \"id\", a text", e->path, line);
    e->progress.n_done++;
    if (json_object_get(e->file.done, id)) return APP_DONE;
    int bad = read_tokens(e, object, line, &n_tokens, &n_prompt);
    if (bad) return bad;
    const aerie_status status = aerie_session_eval_features(e->session, e->tokens, n_tokens, on_position, e, &error);
    if (status != AERIE_OK) return app_report(APP_WORKING, status, &error);
    if (app_interrupted()) return APP_INTERRUPTED;
    return app_feature_write(&e->file, &e->rows, id, e->tokens, n_tokens, n_prompt);
}

static int count_line(void *user, json_t *object, size_t line)
{
    size_t *n = user;
    (void)object;
    *n = line;
    return APP_DONE;
}

/* ---- The step ---------------------------------------------------------------------------------------------------- */

static int open_session(exporter *e)
{
    aerie_session_params params = e->options->session;
    aerie_error error = {0};
    params.spec.type = AERIE_SPEC_NONE;
    params.n_seqs = 1;
    int bad = app_feature_taps(e->models, e->options, &params);
    if (!bad) bad = app_report(APP_WORKING, aerie_session_create(&e->session, e->models->model, &params, &error), &error);
    if (bad) return bad;
    e->n_ctx = aerie_session_n_ctx(e->session);
    return app_feature_open(&e->file, e->options->train.output, e->models, e->options, &params);
}

int app_train_features(const app_models *models, const app_options *options, const char *answers)
{
    exporter e = {.models = models, .options = options, .path = answers};
    int bad = open_session(&e);
    if (!bad) bad = app_records_read(answers, count_line, &e.n_lines);
    if (!bad) {
        e.progress = (app_progress_line){.what = "features", .n_total = e.n_lines, .start = app_now(), .quiet = options->quiet};
        app_interrupt_arm();
        bad = app_records_read(answers, export_line, &e);
        if (!bad) app_progress_say(&e.progress, true);
    }
    const int not_closed = app_feature_close(&e.file);
    aerie_session_free(e.session);
    free(e.tokens);
    app_feature_rows_free(&e.rows);
    return bad ? bad : not_closed;
}

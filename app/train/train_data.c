/* train_data.c - aerie train-data: the steps 'turns' and 'answers', and the files of JSON lines (train_data.h). */
#define _POSIX_C_SOURCE 200809L
#include "train/train_data.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "cli/commands.h"

/* ---- Lines ------------------------------------------------------------------------------------------ */

int app_records_read(const char *path, app_line_callback *callback, void *user)
{
    app_text text = {0};
    int bad = app_read_data(&text, path);
    size_t line = 0;
    for (size_t i = 0; !bad && i < text.n;) {
        const char *end = memchr(text.data + i, '\n', text.n - i);
        const size_t next = end ? (size_t)(end - text.data) : text.n;
        json_error_t why;
        line++;
        if (next > i) {
            json_t *object = json_loadb(text.data + i, next - i, JSON_ALLOW_NUL, &why);
            if (!json_is_object(object)) {
                bad = app_error(APP_BAD_FILE, "'%s', line %zu: not a JSON object%s%s", path, line, object ? "" : ": ",
                                object ? "" : why.text);
            } else {
                bad = callback(user, object, line);
            }
            json_decref(object);
        }
        i = next + 1;
    }
    app_text_free(&text);
    return bad;
}

static int cannot_write(const char *path)
{
    return app_error(APP_FAILED, "cannot write '%s': %s", path, strerror(errno));
}

/* Checks an output file: it must not be a file that the command reads, by whatever link, and must be a regular file if it
 * exists. path NULL: not given. */
static int check_output(const char *option, const char *path, const char *const *read, size_t n_read)
{
    struct stat out, in;
    if (!path) return APP_DONE;
    if (stat(path, &out)) return app_check_writable(option, path);
    if (!S_ISREG(out.st_mode))
        return app_error(APP_USAGE, "%s %s: data can be appended only to a regular file, which this is not", option,
                         path);
    for (size_t i = 0; i < n_read; i++)
        if (read[i] && stat(read[i], &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
            return app_error(APP_USAGE, "%s %s is a file that is being read (%s); choose another name for the output", option,
                             path,
                             read[i]);
    return app_check_writable(option, path);
}

/* Opens a file for appending lines. Text after its last newline, left by an interrupted write, is removed. */
static int records_open(FILE **file, const char *path)
{
    app_text text = {0};
    size_t n_whole = 0;
    *file = NULL;
    if (access(path, F_OK) == 0) {
        const int bad = app_read_data(&text, path);
        if (bad) return bad;
        for (n_whole = text.n; n_whole && text.data[n_whole - 1] != '\n';) n_whole--;
        const bool torn = n_whole < text.n;
        app_text_free(&text);
        if (torn && truncate(path, (off_t)n_whole)) return cannot_write(path);
    }
    *file = fopen(path, "ab");
    return *file ? APP_DONE : cannot_write(path);
}

/* Writes one line and releases the object. NULL means that memory was short, and is an error. */
static int records_write(FILE *file, const char *path, json_t *object)
{
    char *text = object && !app_json_failed() ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (!text) return app_error_memory("a line of data");
    const bool ok = fprintf(file, "%s\n", text) > 0 && fflush(file) == 0;
    free(text);
    return ok ? APP_DONE : cannot_write(path);
}

void app_progress_say(app_progress_line *p, bool last)
{
    const double now = app_now(), every = isatty(STDERR_FILENO) ? 1 : 30;
    if (p->quiet || (!last && now - p->said < every)) return;
    p->said = now;
    app_note("%s: %zu of %zu, %zu tokens, %.0f tokens/s", p->what, p->n_done, p->n_total, p->n_tokens,
             app_rate((double)p->n_tokens, now - p->start));
}

/* ---- Prompts: what is to be generated ------------------------------------------------------------------ */

typedef struct job {
    json_t *line; /* owned: the prompt's line, to which the answer is added; for turns an object with the id */
    int32_t *tokens; /* [n_tokens] freed with aerie_free */
    size_t n_tokens;
    int32_t *answer; /* [n_answer] */
    size_t n_answer, capacity;
    size_t i_line; /* index of the prompt, from 0, used for the seed */
    bool looped;
    app_feature_rows rows; /* with features */
    size_t n_rows;         /* positions that were run */
} job;

typedef struct work {
    const app_models *models;
    const app_options *options;
    const char *path;   /* of the prompts */
    job *jobs;          /* [n] */
    size_t n, capacity;
    json_t *done;       /* set of the ids that the output already contains */
    app_feature_file features; /* path NULL: no features are written */
    aerie_session *session;
    uint32_t n_ctx;
    size_t n_long;      /* prompts that were left out because they are too long for the context */
    FILE *out;
    bool is_turns;      /* the answer is the text of a prompt, and the prompt itself is not part of the data */
    int bad;
    app_progress_line progress;
} work;

static void work_free(work *w)
{
    for (size_t i = 0; i < w->n; i++) {
        json_decref(w->jobs[i].line);
        aerie_free(w->jobs[i].tokens);
        free(w->jobs[i].answer);
        app_feature_rows_free(&w->jobs[i].rows);
    }
    free(w->jobs);
    json_decref(w->done);
    aerie_session_free(w->session);
    if (w->out) fclose(w->out);
}

static int note_done(void *user, json_t *object, size_t line)
{
    work *w = user;
    const char *id = json_string_value(json_object_get(object, "id"));
    (void)line;
    if (id && json_object_set_new(w->done, id, json_true())) return app_error_memory("the ids");
    return APP_DONE;
}

/* Opens the output and reads the ids that it contains. */
static int open_output(work *w)
{
    const char *path = w->options->train.output;
    w->done = json_object();
    if (!w->done) return app_error_memory("the ids");
    const int bad = records_open(&w->out, path);
    return bad ? bad : app_records_read(path, note_done, w);
}

/* Takes ownership of tokens, and a reference to line. */
static int add_job(work *w, json_t *line, size_t i_line, int32_t *tokens, size_t n_tokens)
{
    job *grown = app_grow(w->jobs, w->n, &w->capacity, sizeof *grown);
    if (!grown) {
        aerie_free(tokens);
        return app_error_memory("the prompts");
    }
    w->jobs = grown;
    grown[w->n++] = (job){.line = json_incref(line), .i_line = i_line, .tokens = tokens, .n_tokens = n_tokens};
    return APP_DONE;
}

/* Returns the text under a key; NULL if there is none, or if it contains a NUL byte, which no chat template accepts. */
static const char *text_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

/* Encodes {"text": one user turn} or {"messages": [{"role", "content"}, ...]}. */
static int encode_line(const work *w, json_t *object, size_t line, int32_t **tokens, size_t *n_tokens)
{
    enum { MAX_MESSAGES = 64 };
    aerie_message messages[MAX_MESSAGES];
    const char *text = text_at(object, "text");
    json_t *list = json_object_get(object, "messages"), *item;
    size_t n = 0, i;
    if (text) {
        messages[n++] = (aerie_message){"user", text};
    } else if (json_array_size(list) >= 1 && json_array_size(list) <= MAX_MESSAGES) {
        json_array_foreach(list, i, item) {
            const char *role = text_at(item, "role"), *content = text_at(item, "content");
            if (role && content) messages[n++] = (aerie_message){role, content};
        }
    }
    if (n == 0 || (!text && n != json_array_size(list))) {
        return app_error(APP_BAD_FILE, "'%s', line %zu: needs \"text\", or \"messages\" with 1 to %d objects of \"role\" and "
                         "\"content\"; none with a NUL",
                         w->path, line, MAX_MESSAGES);
    }
    if (w->models->info.has_chat_template && !w->options->no_conversation)
        return app_conversation_encode(w->models, messages, n, tokens, n_tokens);
    if (!text) return app_error(APP_BAD_FILE, "'%s', line %zu: without a chat template it needs \"text\"", w->path, line);
    aerie_error error = {0};
    return app_report(APP_WORKING, aerie_model_tokenize(w->models->model, text, strlen(text), true, true, tokens, n_tokens,
                                                        &error),
                      &error);
}

static int add_line(void *user, json_t *object, size_t line)
{
    enum { MIN_ANSWER = 8 };
    work *w = user;
    int32_t *tokens;
    size_t n_tokens;
    const char *id = json_string_value(json_object_get(object, "id"));
    if (!id) return app_error(APP_BAD_FILE, "'%s', line %zu: needs \"id\", a text that no other line has", w->path, line);
    if (strlen(id) > APP_MAX_ID)
        return app_error(APP_BAD_FILE, "'%s', line %zu: the id has %zu bytes; the limit is %d", w->path, line,
                         strlen(id), APP_MAX_ID);
    if (json_object_get(w->done, id) && (!w->features.path || json_object_get(w->features.done, id))) return APP_DONE;
    const int bad = encode_line(w, object, line, &tokens, &n_tokens);
    if (bad) return bad;
    if (n_tokens + MIN_ANSWER > w->n_ctx) {
        w->n_long++;
        aerie_free(tokens);
        return APP_DONE;
    }
    return add_job(w, object, line - 1, tokens, n_tokens);
}

/* ---- Generation -------------------------------------------------------------------------------------------- */

/* Returns whether the newest tokens repeat with some period, at least three times and over at least 48 tokens. */
static bool loops(const int32_t *ids, size_t n)
{
    enum { MAX_PERIOD = 64, MIN_REPEATED = 48 };
    for (size_t period = 1; period <= MAX_PERIOD; period++) {
        const size_t wanted = 3 * period > MIN_REPEATED ? 3 * period : MIN_REPEATED;
        size_t equal = 0;
        if (n < wanted + period) break;
        while (equal < wanted && ids[n - 1 - equal] == ids[n - 1 - equal - period]) equal++;
        if (equal == wanted) return true;
    }
    return false;
}

/* Copies text with U+FFFD for NUL bytes, which no chat template accepts. Returns false when out of memory. */
static bool without_nul(app_text *out, const char *text, size_t n)
{
    bool ok = app_text_add(out, "", 0);
    for (size_t i = 0; ok && i < n; i++) ok = text[i] ? app_text_add(out, text + i, 1) : app_text_add(out, "\xef\xbf\xbd", 3);
    return ok;
}

/* Returns the generated text; NULL with a message on failure. */
static json_t *answer_text(const work *w, const job *j)
{
    char *text = NULL;
    size_t n = 0;
    aerie_error error = {0};
    const aerie_status status = aerie_model_detokenize(w->models->model, j->answer, j->n_answer, false, &text, &n, &error);
    if (status != AERIE_OK) {
        app_report(APP_WORKING, status, &error);
        return NULL;
    }
    app_text clean = {0};
    const bool plain = !w->is_turns || !memchr(text, 0, n);
    json_t *json = plain ? app_json_text(text, n) : without_nul(&clean, text, n) ? app_json_text(clean.data, clean.n) : NULL;
    app_text_free(&clean);
    aerie_free(text);
    return json;
}

static json_t *turn_line(const work *w, job *j)
{
    return json_object_set_new(j->line, "text", answer_text(w, j)) ? NULL : json_incref(j->line);
}

static json_t *answer_line(const work *w, job *j)
{
    json_t *tokens = app_json_ids(j->tokens, j->n_tokens);
    for (size_t i = 0; tokens && i < j->n_answer; i++) app_json_append(tokens, json_integer(j->answer[i]));
    json_object_del(j->line, "text");
    json_object_del(j->line, "messages");
    if (!tokens || json_object_set_new(j->line, "answer", answer_text(w, j)) ||
        json_object_set_new(j->line, "n_prompt", json_integer((json_int_t)j->n_tokens)) ||
        json_object_set_new(j->line, "looped", json_boolean(j->looped)) || json_object_set_new(j->line, "tokens", tokens))
        return NULL;
    return json_incref(j->line);
}

/* Writes the record of the positions that were run; the last token of an answer that was cut may not be among them. */
static int write_features(work *w, const job *j)
{
    const size_t n_prompt = j->n_tokens < j->n_rows ? j->n_tokens : j->n_rows;
    int32_t *tokens = malloc((j->n_rows + 1) * sizeof *tokens);
    if (!tokens) return app_error_memory("the tokens of a conversation");
    memcpy(tokens, j->tokens, n_prompt * sizeof *tokens);
    if (j->n_rows > n_prompt) memcpy(tokens + n_prompt, j->answer, (j->n_rows - n_prompt) * sizeof *tokens);
    const char *id = json_string_value(json_object_get(j->line, "id"));
    const int bad = app_feature_write(&w->features, &j->rows, id, tokens, j->n_rows, n_prompt);
    free(tokens);
    return bad;
}

/* Writes the features before the line, since an id with a line counts as done. If an id already has its line or its record,
 * writes only the other one. */
static void end_job(work *w, job *j)
{
    const char *id = json_string_value(json_object_get(j->line, "id"));
    if (w->features.path && !json_object_get(w->features.done, id)) w->bad = write_features(w, j);
    if (!w->bad && !json_object_get(w->done, id))
        w->bad = records_write(w->out, w->options->train.output, w->is_turns ? turn_line(w, j) : answer_line(w, j));
    free(j->answer);
    j->answer = NULL;
    app_feature_rows_free(&j->rows);
    w->progress.n_done++;
}

static void on_row(void *user, size_t i_request, size_t position, const float *logits, const float *features)
{
    work *w = user;
    job *j = &w->jobs[i_request];
    const size_t wanted = position < j->n_tokens ? j->n_tokens : position + 1;
    if (w->bad) return;
    if (wanted > j->rows.capacity) w->bad = app_feature_reserve(&w->features, &j->rows, wanted + wanted / 4);
    if (w->bad) return;
    app_feature_row(&w->features, &j->rows, position, logits, features);
    j->n_rows = position + 1;
}

static bool on_token(void *user, const aerie_token_event *event)
{
    enum { CHECK_EVERY = 8 };
    work *w = user;
    job *j = &w->jobs[event->i_request];
    if (w->bad || app_interrupted()) return false;
    if (event->refused) { /* nothing has been generated, so no line is written */
        w->bad = app_report(APP_WORKING, event->refused->status, event->refused);
        return false;
    }
    if (event->token < 0) {
        end_job(w, j);
        return true;
    }
    int32_t *grown = app_grow(j->answer, j->n_answer, &j->capacity, sizeof *grown);
    if (!grown) {
        w->bad = app_error_memory("the answers");
        return false;
    }
    j->answer = grown;
    grown[j->n_answer++] = event->token;
    w->progress.n_tokens++;
    app_progress_say(&w->progress, false);
    if (j->n_answer % CHECK_EVERY == 0) j->looped = loops(j->answer, j->n_answer);
    return !j->looped;
}

static aerie_request request_of(const work *w, size_t i)
{
    const job *j = &w->jobs[i];
    aerie_request request = aerie_request_default();
    const json_t *temperature = json_object_get(j->line, "temperature"), *seed = json_object_get(j->line, "seed");
    request.tokens = j->tokens;
    request.n_tokens = j->n_tokens;
    request.n_predict = w->options->n_predict > 0 ? (uint32_t)w->options->n_predict : 0;
    request.sampling = w->options->sampling;
    if (json_is_number(temperature)) request.sampling.temperature = (float)json_number_value(temperature);
    request.sampling.seed = json_is_integer(seed) ? (uint64_t)json_integer_value(seed) : w->options->sampling.seed + j->i_line;
    if (w->features.path) request.row = on_row;
    return request;
}

static int generate(work *w, const char *what)
{
    aerie_error error = {0};
    if (w->n == 0) return APP_DONE;
    aerie_request *requests = calloc(w->n, sizeof *requests);
    if (!requests) return app_error_memory("the requests");
    for (size_t i = 0; i < w->n; i++) requests[i] = request_of(w, i);
    w->progress = (app_progress_line){.what = what, .n_total = w->n, .start = app_now(), .quiet = w->options->quiet};
    app_interrupt_arm();
    const aerie_status status = aerie_session_generate(w->session, requests, w->n, on_token, w, NULL, 0, &error);
    free(requests);
    if (w->bad) return w->bad;
    if (status != AERIE_OK) return app_report(APP_WORKING, status, &error);
    app_progress_say(&w->progress, true);
    return app_interrupted() ? APP_INTERRUPTED : APP_DONE;
}

/* ---- Steps ---------------------------------------------------------------------------------------------------- */

/* Opens the session, with taps if features are wanted, and the file of features. */
static int open_session(work *w)
{
    aerie_session_params params = w->options->session;
    aerie_error error = {0};
    int bad = APP_DONE;
    params.spec.type = AERIE_SPEC_NONE;
    if (w->options->train.features) bad = app_feature_taps(w->models, w->options, &params);
    if (!bad) bad = app_report(APP_WORKING, aerie_session_create(&w->session, w->models->model, &params, &error), &error);
    if (bad) return bad;
    w->n_ctx = aerie_session_n_ctx(w->session);
    if (!w->options->train.features) return APP_DONE;
    return app_feature_open(&w->features, w->options->train.features, w->models, w->options, &params);
}

static int answers(work *w)
{
    int bad = open_output(w);
    if (!bad) bad = app_records_read(w->path, add_line, w);
    if (!bad) bad = generate(w, "answers");
    if (w->n_long)
        app_note("%zu prompt%s left out: too long for a context of %u; see -c", w->n_long, app_plural(w->n_long),
                 (unsigned)w->n_ctx);
    return bad;
}

/* Returns the tokens of the template's text up to the beginning of a user turn. */
static int user_prefix(const app_models *models, int32_t **tokens, size_t *n_tokens)
{
    static const char mark[] = "TurnBeginsHere";
    const aerie_message message = {"user", mark};
    char *text = NULL;
    size_t n = 0;
    aerie_error error = {0};
    if (!models->info.has_chat_template)
        return app_error(APP_BAD_FILE, "the model has no chat template, so it cannot write user turns; "
                         "give prompts to 'answers' instead");
    aerie_chat chat = aerie_chat_default();
    chat.turns = &message, chat.n_turns = 1, chat.no_generation_prompt = true;
    aerie_status status = aerie_model_chat_render(models->model, &chat, &text, &n, &error);
    if (status != AERIE_OK) return app_report(APP_LOADING, status, &error);
    const char *at = strstr(text, mark);
    if (!at) {
        aerie_free(text);
        return app_error(APP_BAD_FILE, "the chat template does not contain the user's text, so it cannot be used to "
                                       "write turns");
    }
    status = aerie_model_chat_tokenize(models->model, text, (size_t)(at - text), tokens, n_tokens, &error);
    aerie_free(text);
    return app_report(APP_WORKING, status, &error);
}

static int turns(work *w)
{
    int bad = open_output(w);
    w->is_turns = true;
    for (uint32_t i = 0; !bad && i < w->options->train.n_turns; i++) {
        char id[32];
        int32_t *tokens = NULL;
        size_t n_tokens = 0;
        snprintf(id, sizeof id, "turn-%u", (unsigned)i);
        if (json_object_get(w->done, id)) continue;
        bad = user_prefix(w->models, &tokens, &n_tokens);
        if (bad) break;
        json_t *line = json_pack("{s:s, s:I}", "id", id, "seed", (json_int_t)((w->options->sampling.seed + i) & INT64_MAX));
        if (!line) {
            aerie_free(tokens);
            return app_error_memory("the turns");
        }
        bad = add_job(w, line, i, tokens, n_tokens);
        json_decref(line);
    }
    return bad ? bad : generate(w, "turns");
}

int app_train_data(const app_options *options)
{
    const app_texts *words = &options->arguments;
    const char *step = words->n ? words->items[0] : "";
    const bool is_turns = strcmp(step, "turns") == 0, is_answers = strcmp(step, "answers") == 0;
    const size_t n_wanted = is_turns ? 1 : 2;
    app_models models;
    const bool is_features = strcmp(step, "features") == 0;
    if (!is_turns && !is_answers && !is_features)
        return app_error(APP_USAGE, "'train-data' needs a step: turns, answers or features; found '%s'", step);
    if (words->n != n_wanted)
        return app_error(APP_USAGE, is_turns ? "'train-data turns' takes no file" : "'train-data %s' takes one file", step);
    if (options->train.features && !is_answers)
        return app_error(APP_USAGE, "--features goes with the step 'answers'; 'train-data %s' cannot write them", step);
    if (!options->train.output) return app_error(APP_USAGE, "'train-data %s' needs a file to write: -o FILE", step);
    const char *const read[] = {options->model, is_turns ? NULL : words->items[1], options->train.features};
    int bad = check_output("-o", options->train.output, read, 3);
    if (!bad) bad = check_output("--features", options->train.features, read, 2);
    if (!bad) bad = app_models_load(&models, options, false, is_features ? APP_NEED_TOKENS : APP_NEED_TEXT);
    if (!bad) bad = app_need_text(&models, options);
    if (bad) return bad;
    if (is_features) {
        bad = app_train_features(&models, options, words->items[1]);
        app_models_free(&models);
        return bad;
    }
    work w = {.models = &models, .options = options, .path = is_turns ? NULL : words->items[1]};
    bad = open_session(&w);
    if (!bad) bad = is_turns ? turns(&w) : answers(&w);
    const int not_closed = app_feature_close(&w.features);
    work_free(&w);
    app_models_free(&models);
    return bad ? bad : not_closed;
}

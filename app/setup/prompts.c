/* prompts.c - reads the prompts (load.h) and encodes them. */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "setup/load.h"

/* ---- Texts ------------------------------------------------------------------------------------------------- */

int app_prompts_add(app_prompts *prompts, const char *text, size_t n, bool escape)
{
    app_prompt *grown = app_grow(prompts->items, prompts->n, &prompts->capacity, sizeof *grown);
    if (!grown) return app_error_memory("the prompts");
    prompts->items = grown;
    app_prompt *prompt = &grown[prompts->n++];
    *prompt = (app_prompt){0};
    if (!app_text_add(&prompt->text, text, n)) return app_error_memory("the prompts");
    if (escape) prompt->text.n = app_unescape(prompt->text.data, prompt->text.n);
    return APP_DONE;
}

bool app_next_line(const app_text *text, size_t *at, const char **line, size_t *n)
{
    if (*at >= text->n) return false;
    *line = text->data + *at;
    const char *end = memchr(*line, '\n', text->n - *at);
    *n = end ? (size_t)(end - *line) : text->n - *at;
    *at += *n + 1;
    if (*n && (*line)[*n - 1] == '\r') --*n;
    return true;
}

/* Reads a text file without its last line end, which editors and echo add. */
static int read_text(app_text *text, const char *path)
{
    const int bad = app_read_file(text, path);
    if (bad || !text->n || text->data[text->n - 1] != '\n') return bad;
    text->n -= text->n > 1 && text->data[text->n - 2] == '\r' ? 2 : 1;
    text->data[text->n] = '\0';
    return APP_DONE;
}

static int add_file(app_prompts *prompts, const char *path)
{
    app_text text = {0};
    int bad = read_text(&text, path);
    if (!bad && text.n == 0) bad = app_error(APP_USAGE, "the prompt from %s is empty", app_path_name(path));
    if (!bad) bad = app_prompts_add(prompts, text.data, text.n, false);
    app_text_free(&text);
    return bad;
}

/* ---- Lines ------------------------------------------------------------------------------------------------- */

/* Adds a line of JSON: a text, an object with "prompt" or "messages", or a list of messages. */
static int add_json(app_prompts *prompts, const char *line, size_t n, const char *source)
{
    json_error_t where;
    json_t *json = json_loadb(line, n, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &where);
    if (!json) return app_error(APP_BAD_FILE, "%s is not JSON: %s", source, where.text);
    const json_t *prompt = json_is_string(json) ? json : json_object_get(json, "prompt");
    const bool is_messages = json_is_array(json) || json_is_array(json_object_get(json, "messages"));
    int bad = APP_DONE;
    if (json_is_string(prompt) && !is_messages) {
        bad = json_string_length(prompt)
                  ? app_prompts_add(prompts, json_string_value(prompt), json_string_length(prompt), false)
                  : app_error(APP_BAD_FILE, "%s: the prompt is empty", source);
    } else if (is_messages) {
        bad = app_prompts_add(prompts, line, n, false);
    } else {
        bad = app_error(APP_BAD_FILE, "%s: neither a text nor an object with \"prompt\" (a text) or \"messages\" (a list)",
                        source);
    }
    if (!bad) {
        app_prompt *added = &prompts->items[prompts->n - 1];
        added->is_messages = is_messages;
        added->id = json_incref(json_object_get(json, "id"));
        added->source = strdup(source);
        if (!added->source) bad = app_error_memory("the prompts");
    }
    json_decref(json);
    return bad;
}

/* Adds a prompt for each line of a file; a .jsonl file has JSON in its lines. */
static int add_lines(app_prompts *prompts, const char *path)
{
    app_text text = {0};
    int bad = app_read_file(&text, path);
    const size_t n_path = strlen(path), ending = strlen(".jsonl");
    const bool json = n_path > ending && strcasecmp(path + n_path - ending, ".jsonl") == 0;
    const char *line;
    size_t n;
    for (size_t at = 0, number = 1; !bad && app_next_line(&text, &at, &line, &n); number++) {
        char source[128];
        const size_t n_shown = n_path < 80 ? n_path : 80;
        snprintf(source, sizeof source, "'%s%s' line %zu", n_shown < n_path ? "..." : "", path + n_path - n_shown, number);
        if (json) {
            size_t n_blank = 0;
            while (n_blank < n && isspace((unsigned char)line[n_blank])) n_blank++;
            if (n_blank < n) bad = add_json(prompts, line, n, source);
        } else if (n) {
            bad = app_prompts_add(prompts, line, n, false);
        }
    }
    app_text_free(&text);
    if (!bad && prompts->n == 0) return app_error(APP_BAD_FILE, "'%s' contains no prompt", path);
    return bad;
}

/* ---- Conversations ------------------------------------------------------------------------------------------- */

static int add_messages(app_prompts *prompts, const char *path)
{
    app_text text = {0};
    int bad = app_read_file(&text, path);
    if (!bad) bad = app_prompts_add(prompts, text.data, text.n, false);
    if (!bad) {
        app_prompt *prompt = &prompts->items[prompts->n - 1];
        prompt->is_messages = true;
        prompt->source = strdup(app_path_name(path));
        if (!prompt->source) bad = app_error_memory("the prompts");
    }
    app_text_free(&text);
    return bad;
}

/* ---- Standard input -------------------------------------------------------------------------------------------- */

enum { PATIENCE_MS = 5000 };

/* Returns whether standard input can contain a prompt: it is a file, a pipe or a socket. */
static bool is_input(void)
{
    struct stat st;
    return fstat(STDIN_FILENO, &st) == 0 && (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

static bool has_input(int milliseconds)
{
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&fd, 1, milliseconds) != 0;
}

/* Appends standard input to the prompt of -p. Unless that was requested (-f -) it waits only for some seconds, because many
 * programs start others with a pipe into which nothing is written. */
static int append_standard_input(app_prompt *prompt, const app_options *options, bool asked)
{
    app_text text = {0};
    if (!asked && !is_input()) return APP_DONE;
    if (!asked && !has_input(PATIENCE_MS)) {
        if (!options->quiet)
            app_note("no standard input arrived within %d s, so it is ignored; -f - waits for it, </dev/null skips the wait",
                     PATIENCE_MS / 1000);
        return APP_DONE;
    }
    int bad = read_text(&text, "-");
    if (!bad && text.n) {
        if (!app_text_add(&prompt->text, "\n\n", 2) || !app_text_add(&prompt->text, text.data, text.n))
            bad = app_error_memory("the prompt");
        else if (!options->quiet)
            app_note("the prompt is -p followed by %zu byte%s of standard input (</dev/null: -p alone)", text.n,
                     app_plural(text.n));
    }
    app_text_free(&text);
    return bad;
}

/* Reports that standard input is not read, if it seems to contain something, as far as that is visible at once. */
static void say_not_read(const app_options *options)
{
    struct stat st;
    if (options->quiet || !is_input() || !has_input(0) || fstat(STDIN_FILENO, &st)) return;
    if (S_ISREG(st.st_mode) && lseek(STDIN_FILENO, 0, SEEK_CUR) >= st.st_size) return;
    if (!S_ISREG(st.st_mode)) {
        struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
        if (poll(&fd, 1, 0) <= 0 || !(fd.revents & POLLIN)) return;
    }
    app_note("standard input is not read: it can follow a single -p, or be the prompt itself");
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

static bool is_dash(const char *path)
{
    return path && strcmp(path, "-") == 0;
}

static int check_sources(const app_options *options)
{
    const bool dash = is_dash(options->file);
    const app_chat_options *chat = &options->chat;
    const int n_dashes = dash + is_dash(options->prompts_file) + is_dash(chat->messages) + is_dash(chat->template_file) +
                         is_dash(chat->tools);
    const int n = (options->prompts.n > 0) + (options->file != NULL) + (options->prompts_file != NULL) +
                  (chat->messages != NULL);
    if (n > 1 && !(n == 2 && options->prompts.n == 1 && dash))
        return app_error(APP_USAGE, "only one of -p, -f, --prompts-file and --messages can be given (but -p 'TEXT' -f - puts "
                                    "standard input after TEXT)");
    if (n_dashes > 1)
        return app_error(APP_USAGE, "standard input (-) can be one of -f, --prompts-file, --messages, --chat-template-file and "
                                    "--tools; found %d of them", n_dashes);
    if (options->chat.messages && options->no_conversation)
        return app_error(APP_USAGE, "--messages needs a chat template, which -no-cnv turns off");
    if (options->chat.messages && options->system_prompt)
        return app_error(APP_USAGE, "--messages brings its own system message; found --system-prompt, too");
    return APP_DONE;
}

int app_prompts_read(app_prompts *prompts, const app_options *options, bool standard_input)
{
    *prompts = (app_prompts){0};
    int bad = check_sources(options);
    const bool any = options->prompts.n || options->prompts_file || options->chat.messages;
    for (size_t i = 0; !bad && i < options->prompts.n; i++) {
        const char *text = options->prompts.items[i];
        if (!*text) bad = app_error(APP_USAGE, "-p gives an empty prompt");
        else bad = app_prompts_add(prompts, text, strlen(text), options->escape);
    }
    if (!bad && options->prompts_file) bad = add_lines(prompts, options->prompts_file);
    if (!bad && options->chat.messages) bad = add_messages(prompts, options->chat.messages);
    if (!bad && options->file && !any) bad = add_file(prompts, options->file);
    if (bad || !standard_input) return bad;
    if (is_dash(options->chat.template_file) || is_dash(options->chat.tools)) {
        return any || options->file ? APP_DONE : app_error(APP_USAGE, "there is no prompt: standard input is the %s",
                                                           options->chat.tools ? "list of tools" : "chat template");
    }
    if (!any) return options->file ? APP_DONE : add_file(prompts, "-");
    if (options->prompts.n == 1) return append_standard_input(&prompts->items[0], options, options->file != NULL);
    say_not_read(options);
    return APP_DONE;
}

void app_prompts_free(app_prompts *prompts)
{
    for (size_t i = 0; i < prompts->n; i++) {
        app_text_free(&prompts->items[i].text);
        free(prompts->items[i].source);
        json_decref(prompts->items[i].id);
        aerie_free(prompts->items[i].tokens);
        aerie_prompt_free(prompts->items[i].pictured);
    }
    free(prompts->items);
    *prompts = (app_prompts){0};
}

/* Returns the text of the user's last message; NULL if there is none. */
static const char *newest_of_user(const json_t *json)
{
    const json_t *list = json_is_array(json) ? json : json_object_get(json, "messages");
    for (size_t i = json_array_size(list); i-- > 0;) {
        const json_t *m = json_array_get(list, i);
        const char *role = json_string_value(json_object_get(m, "role"));
        const char *content = json_string_value(json_object_get(m, "content"));
        if (role && strcmp(role, "user") == 0 && content) return content;
    }
    return NULL;
}

const char *app_prompt_title(const app_prompt *prompt, char out[80])
{
    enum { MOST = 60 };
    json_t *json = prompt->is_messages ? json_loadb(prompt->text.data, prompt->text.n, JSON_ALLOW_NUL, NULL) : NULL;
    const char *text = prompt->is_messages ? newest_of_user(json) : prompt->text.data;
    if (!text) text = prompt->source ? prompt->source : "";
    while (isspace((unsigned char)*text)) text++;
    size_t n = strcspn(text, "\r\n"), end = 0;
    const bool cut = n > MOST || text[n];
    for (size_t length = 1; length && end < n;) { /* whole characters */
        uint32_t code;
        length = app_utf8_char(text + end, n - end, &code);
        if (end + length > MOST) break;
        end += length;
    }
    snprintf(out, 80, "%.*s%s", (int)end, text, cut ? " ..." : "");
    json_decref(json);
    return out;
}

/* ---- Tokens --------------------------------------------------------------------------------------------------------- */

bool app_uses_template(const app_models *models, const app_options *options)
{
    return models->format.any && !options->no_conversation;
}

static int encode_chat(const app_models *models, const aerie_chat *chat, int32_t **tokens, size_t *n_tokens)
{
    aerie_error error = {0};
    const aerie_status status = aerie_model_chat_tokens(models->model, chat, tokens, n_tokens, NULL, NULL, &error);
    if (status != AERIE_OK) {
        const int bad = app_report(APP_LOADING, status, &error);
        if (!chat->messages.data) app_note("the model's chat template failed; -no-cnv works without it");
        return bad;
    }
    return APP_DONE;
}

int app_conversation_encode(const app_models *models, const aerie_message *messages, size_t n, int32_t **tokens,
                            size_t *n_tokens)
{
    aerie_chat chat = app_format_chat(&models->format);
    chat.turns = messages;
    chat.n_turns = n;
    return encode_chat(models, &chat, tokens, n_tokens);
}

static int encode_messages(app_prompt *prompt, const app_models *models, const app_options *options)
{
    if (!app_uses_template(models, options))
        return app_error(APP_USAGE, "%s contains messages, but there is no chat template%s", prompt->source,
                         options->no_conversation ? " with -no-cnv"
                                                  : " in the model; --chat-template chatml gives a plain one");
    aerie_chat chat = app_format_chat(&models->format);
    chat.messages = (aerie_text){prompt->text.data, prompt->text.n, prompt->source};
    return encode_chat(models, &chat, &prompt->tokens, &prompt->n_tokens);
}

/* Returns whether the text begins with the BOS that the model adds anyway. */
static bool begins_twice(const aerie_model *model, const app_prompt *prompt)
{
    const int32_t bos = aerie_model_token_special(model, AERIE_SPECIAL_BOS);
    return aerie_model_adds_bos(model) && prompt->n_tokens > 1 && prompt->tokens[0] == bos && prompt->tokens[1] == bos;
}

/* *twice: set if a text begins with two BOS. */
static int encode(app_prompt *prompt, const app_models *models, const app_options *options, bool *twice)
{
    aerie_error error = {0};
    int bad;
    if (prompt->is_messages) {
        bad = encode_messages(prompt, models, options);
    } else if (app_uses_template(models, options)) {
        aerie_message messages[2];
        size_t n = 0;
        if (memchr(prompt->text.data, '\0', prompt->text.n)) {
            return app_error(APP_USAGE, "the prompt holds a NUL byte, which no chat template can take; see -no-cnv");
        }
        if (options->system_prompt) messages[n++] = (aerie_message){"system", options->system_prompt};
        messages[n++] = (aerie_message){"user", prompt->text.data};
        bad = app_conversation_encode(models, messages, n, &prompt->tokens, &prompt->n_tokens);
    } else {
        const aerie_status status = aerie_model_tokenize(models->model, prompt->text.data, prompt->text.n, true, true,
                                                         &prompt->tokens, &prompt->n_tokens, &error);
        bad = app_report(APP_WORKING, status, &error);
        if (!bad) *twice |= begins_twice(models->model, prompt);
    }
    if (!bad && prompt->n_tokens == 0) return app_error(APP_USAGE, "the prompt has no tokens");
    return bad;
}

int app_prompts_encode(app_prompts *prompts, const app_models *models, const app_options *options)
{
    int bad = APP_DONE;
    bool twice = false;
    if (!app_uses_template(models, options) && !models->info.is_encoder) {
        if (options->system_prompt) app_note("warning: with -no-cnv --system-prompt has no effect");
        if (!options->no_conversation && !options->quiet)
            app_note("the model has no chat template, so the prompt is continued as it is; -cnv asks for an answer to it");
    }
    if (options->images.n) return app_pictures_encode(prompts, models, options);
    if (options->mmproj) bad = app_tower_check(options); /* no image is read, but a wrong file is reported all the same */
    for (size_t i = 0; !bad && i < prompts->n; i++) bad = encode(&prompts->items[i], models, options, &twice);
    if (twice)
        app_note("warning: %s begins with two BOS tokens: the model adds one, and the text has its own, which most models "
                 "answer worse; leave it out of the text, or give --override-kv tokenizer.ggml.add_bos_token=bool:false",
                 prompts->n > 1 ? "a prompt" : "the prompt");
    return bad;
}

aerie_request app_request(const app_options *options, const app_prompt *prompt)
{
    aerie_request request = aerie_request_default();
    request.tokens = prompt->tokens;
    request.n_tokens = prompt->pictured ? 0 : prompt->n_tokens;
    if (prompt->pictured) request.chunks = aerie_prompt_chunks(prompt->pictured, &request.n_chunks);
    request.n_predict = options->n_predict > 0 ? (uint32_t)options->n_predict : 0;
    request.diffusion = &options->diffusion;
    request.ignore_eos = options->ignore_eos;
    request.special = options->special;
    request.sampling = options->sampling;
    request.stop = options->stop.items;
    request.n_stop = options->stop.n;
    request.n_logprobs = options->n_logprobs;
    request.grammar = options->grammar;
    request.adapters = options->loras.uses;
    request.n_adapters = options->loras.n;
    return request;
}

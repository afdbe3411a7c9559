/* ollama.c - ollama's chat, generate, tags, show, ps and version: requests as chat completions or completions, answers as lines
 * of JSON.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "serve/dialects/handlers.h"
#include "serve/request/reply.h"

json_t *serve_ollama_error(const serve_error *e)
{
    return json_pack("{s:o}", "error", app_json_text(e->text, strlen(e->text)));
}

/* ---- Requests ------------------------------------------------------------------------------------------------------- */

/* Converts "options", most of which have llama.cpp's names. */
static bool convert_options(json_t *out, const json_t *body, serve_error *error)
{
    static const char *const same[] = {"temperature",
                                       "top_k",
                                       "top_p",
                                       "min_p",
                                       "typical_p",
                                       "seed",
                                       "stop",
                                       "repeat_penalty",
                                       "repeat_last_n",
                                       "presence_penalty",
                                       "frequency_penalty",
                                       "mirostat",
                                       "mirostat_tau",
                                       "mirostat_eta"};
    const json_t *options = NULL;
    if (!serve_get_object(body, "options", &options, error)) return false;
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof same / sizeof *same; i++) {
        json_t *v = json_object_get(options, same[i]);
        ok = !v || json_object_set(out, same[i], v) == 0;
    }
    json_t *n = json_object_get(options, "num_predict");
    if (ok && json_is_integer(n) && json_integer_value(n) < -INT32_MAX)
        return serve_fail(error, 400, "num_predict", "'num_predict' is out of range");
    const json_int_t number = json_integer_value(n); /* 0: none is set */
    if (ok && number < 0) ok = json_object_set_new(out, "max_tokens", json_integer(-1)) == 0;
    else if (ok && n && (number || !json_is_integer(n))) ok = json_object_set(out, "max_tokens", n) == 0;
    return ok || serve_fail_memory(error);
}

/* Converts the fields that both kinds of requests have: model, stream (default true), format, think, logprobs, options. */
static bool convert_common(json_t *out, const json_t *body, serve_error *error)
{
    json_t *model = json_object_get(body, "model"), *stream = json_object_get(body, "stream");
    json_t *format = json_object_get(body, "format"), *think = json_object_get(body, "think");
    json_t *logprobs = json_object_get(body, "logprobs"), *top = json_object_get(body, "top_logprobs");
    const json_int_t n_top = json_is_integer(top) ? json_integer_value(top) : -1;
    if (n_top >= 0 && n_top <= 20 && !json_is_true(logprobs) && !json_is_number(logprobs)) top = NULL; /* no effect, as there */
    if (!json_is_string(model)) return serve_fail(error, 400, "model", "'model' must be a string");
    bool ok = !json_object_set(out, "model", model) &&
              !json_object_set(out, "stream", stream && !json_is_null(stream) ? stream : json_true()) &&
              (!logprobs || !json_object_set(out, "logprobs", logprobs)) &&
              (!top || !json_object_set(out, "top_logprobs", top));
    if (ok && json_is_string(format)) {
        if (strcmp(json_string_value(format), "json") && json_string_length(format))
            return serve_fail(error, 400, "format", "'format' must be \"json\" or a JSON schema; found '%.60s'",
                              json_string_value(format));
        if (json_string_length(format))
            ok = !json_object_set_new(out, "response_format", json_pack("{s:s}", "type", "json_object"));
    } else if (ok && json_is_object(format)) {
        ok = !json_object_set(out, "json_schema", format);
    } else if (ok && format && !json_is_null(format)) {
        return serve_fail(error, 400, "format", "'format' must be \"json\" or a JSON schema");
    }
    if (ok && json_is_boolean(think)) ok = !json_object_set(out, "enable_thinking", think);
    else if (ok && json_is_string(think)) ok = !json_object_set(out, "reasoning_effort", think);
    else if (ok && think && !json_is_null(think))
        return serve_fail(error, 400, "think", "'think' must be true, false, \"low\", \"medium\" or \"high\"");
    return ok ? convert_options(out, body, error) : serve_fail_memory(error);
}

/* Converts a duration such as "1h30m", "90s", "250ms", "-1m" or "-1" to seconds. Returns false if the text is not a
 * duration. */
static bool read_duration(const char *text, double *seconds)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
    const bool negative = *text == '-';
    text += negative || *text == '+';
    double sum = 0;
    bool ok = *text != '\0', bare = false;
    while (ok && *text && !bare) {
        char *end;
        const double number = app_number(text, &end);
        const size_t n = strcspn(end, "0123456789.");
        size_t i = 0;
        ok = (*text == '.' || (*text >= '0' && *text <= '9')) && end > text &&
             strspn(text, "0123456789.") == (size_t)(end - text);
        while (n && i < sizeof units / sizeof *units && (strlen(units[i].name) != n || memcmp(units[i].name, end, n))) i++;
        bare = ok && n == 0; /* a number without a unit is seconds and must be the only one */
        ok = ok && (bare ? sum == 0 : i < sizeof units / sizeof *units);
        sum += ok ? number * (bare ? 1 : units[i].seconds) : 0;
        text = end + n;
    }
    *seconds = negative ? -sum : sum;
    return ok && isfinite(sum);
}

bool serve_ollama_keep(const json_t *body, double *seconds, serve_error *error)
{
    const json_t *given = json_object_get(body, "keep_alive");
    *seconds = NAN;
    if (!given || json_is_null(given)) return true;
    if (json_is_number(given)) *seconds = json_number_value(given);
    const bool ok = json_is_number(given) || (json_is_string(given) && read_duration(json_string_value(given), seconds));
    if (!ok)
        return serve_fail(error, 400, "keep_alive",
                          "'keep_alive' must be a number of seconds or a duration such as \"5m\" or \"1h30m\"");
    return true;
}

static bool has_images(const json_t *object)
{
    return json_array_size(json_object_get(object, "images")) > 0;
}

/* Converts a text and its images, which are base64, to content parts in OpenAI's form. Returns NULL when out of memory. */
static json_t *convert_images(const json_t *images, const json_t *text)
{
    json_t *parts = json_array();
    bool ok = parts != NULL;
    for (size_t k = 0; ok && k < json_array_size(images); k++) {
        const char *data = json_string_value(json_array_get(images, k));
        json_t *url = json_sprintf("data:image/any;base64,%s", data ? data : "");
        ok = !json_array_append_new(parts, json_pack("{s:s, s:{s:o}}", "type", "image_url", "image_url", "url", url));
    }
    if (ok && json_string_length(text))
        ok = !json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", text));
    if (ok) return parts;
    json_decref(parts);
    return NULL;
}

/* Converts a message to OpenAI's form: in ollama's, calls have neither ids nor types, and arguments are objects. */
static json_t *convert_message(const json_t *message, size_t i, serve_error *error)
{
    json_t *copy = json_deep_copy(message), *calls = json_object_get(copy, "tool_calls");
    json_t *thinking = json_object_get(copy, "thinking");
    bool ok = copy != NULL;
    if (ok && has_images(message)) {
        json_t *parts = convert_images(json_object_get(message, "images"), json_object_get(message, "content"));
        ok = !json_object_set_new(copy, "content", parts) && !json_object_del(copy, "images");
    }
    (void)i;
    for (size_t k = 0; ok && k < json_array_size(calls); k++)
        ok = !json_is_object(json_array_get(calls, k)) ||
             !json_object_set_new(json_array_get(calls, k), "type", json_string("function"));
    if (ok && json_is_string(thinking)) ok = !json_object_set(copy, "reasoning_content", thinking);
    json_t *name = json_object_get(copy, "tool_name");
    if (ok && json_is_string(name)) ok = !json_object_set(copy, "name", name);
    if (!ok && !error->status) serve_fail_memory(error);
    if (!error->status) return copy;
    json_decref(copy);
    return NULL;
}

static bool convert_chat(serve_ask *ask, serve_error *error)
{
    const json_t *messages = NULL;
    json_t *tools = json_object_get(ask->body, "tools"), *body = json_object(), *out = json_array();
    ask->count_name = "num_predict";
    bool ok = body && out && serve_ollama_keep(ask->body, &ask->keep, error) &&
              serve_get_list(ask->body, "messages", &messages, error) && convert_common(body, ask->body, error);
    for (size_t i = 0; ok && i < json_array_size(messages); i++)
        ok = !json_array_append_new(out, convert_message(json_array_get(messages, i), i, error));
    if (ok && tools) ok = !json_object_set(body, "tools", tools);
    if (ok) ok = !json_object_set(body, "messages", out);
    json_decref(out);
    return serve_ask_replace(ask, body, ok, error);
}

/* Returns the prompt with its images; NULL: out of memory. */
static json_t *user_message(const json_t *body, const char *prompt)
{
    json_t *text = json_string(prompt), *content = text;
    if (text && has_images(body)) {
        content = convert_images(json_object_get(body, "images"), text);
        json_decref(text);
    }
    return json_pack("{s:s, s:o}", "role", "user", "content", content);
}

/* Converts a prompt to a chat message, or to a completion's prompt if "raw" or "suffix" is set. */
static bool convert_generate(serve_ask *ask, serve_error *error)
{
    ask->kind = SERVE_KIND_TEXT;
    const char *prompt = "", *system = NULL, *suffix = NULL, *layout = NULL;
    bool raw = false;
    app_text laid = {0};
    json_t *body = json_object(), *messages = json_array();
    ask->count_name = "num_predict";
    bool ok = body && messages && serve_ollama_keep(ask->body, &ask->keep, error) && convert_common(body, ask->body, error) &&
              serve_get_text(ask->body, "prompt", &prompt, error) && serve_get_text(ask->body, "system", &system, error) &&
              serve_get_text(ask->body, "suffix", &suffix, error) && serve_get_bool(ask->body, "raw", &raw, error) &&
              serve_get_text(ask->body, "template", &layout, error);
    const bool gap = ok && suffix && *suffix, lays = ok && layout && *layout && !raw && !gap;
    if (ok && has_images(ask->body) && (raw || suffix || lays))
        ok = serve_fail(error, 400, "images", "'images' need the chat template; 'raw', 'suffix' and 'template' turn it off");
    if (ok && lays) ok = serve_ollama_layout(layout, system, prompt, &laid, error);
    if (ok && lays) prompt = laid.data ? laid.data : "";
    ask->keeps_context = !raw && !gap;
    json_t *context = json_object_get(ask->body, "context");
    if (ok && context && !json_is_null(context)) ok = !json_object_set(body, "context", context);
    if (gap) ok = json_object_set_new(body, "suffix", json_string(suffix)) == 0;
    if (ok && system && !raw && !gap && !lays)
        ok = !json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", system));
    if (ok && (raw || gap || lays)) ok = !json_object_set_new(body, "prompt", json_string(prompt));
    else if (ok)
        ok = !json_array_append_new(messages, user_message(ask->body, prompt)) && !json_object_set(body, "messages", messages);
    json_decref(messages);
    app_text_free(&laid);
    return serve_ask_replace(ask, body, ok, error);
}

/* Returns whether only the server chose the layout of conversations, because neither the model nor an option names one. */
static bool has_no_template(const serve_ask *ask)
{
    const app_chat_options *given = &ask->server->options->chat;
    return !ask->model->models.info.has_chat_template && !given->template_text && !given->template_file;
}

/* Reads the converted request. Without a chat template ollama's own is the prompt alone, which the model continues. */
static bool read_prompt(serve_ask *ask, serve_error *error)
{
    const json_t *messages = json_object_get(ask->body, "messages");
    json_t *text = json_object_get(json_array_get(messages, json_array_size(messages) - 1), "content");
    if (json_object_get(ask->body, "prompt")) return serve_ask_own_prompt(ask, error);
    if (!has_no_template(ask) || !json_is_string(text)) return serve_ask_messages(ask, error); /* images need a layout */
    if (json_object_set(ask->body, "prompt", text)) return serve_fail_memory(error);
    serve_note_continues(ask);
    return serve_ask_own_prompt(ask, error);
}

static bool read_generate(serve_ask *ask, serve_error *error)
{
    const json_t *context = NULL;
    return serve_get_list(ask->body, "context", &context, error) && read_prompt(ask, error) &&
           serve_ollama_context(ask, context, error);
}

/* ---- Answers ---------------------------------------------------------------------------------------------------------- */

/* Writes a time in RFC 3339's format; moment NULL: the current time. */
static const char *time_text(const struct timespec *moment, char out[40])
{
    struct timespec now;
    struct tm utc;
    if (!moment) clock_gettime(CLOCK_REALTIME, &now);
    else now = *moment;
    gmtime_r(&now.tv_sec, &utc);
    const size_t n = strftime(out, 40, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out + n, 40 - n, ".%06ldZ", now.tv_nsec / 1000);
    return out;
}

/* Returns a line with `said`, {"message": ...} or {"response": ...}, of which it takes ownership. */
static json_t *line_of(const serve_reply_state *r, json_t *said, bool done)
{
    char now[40];
    const struct timespec created = {.tv_sec = (time_t)r->created};
    json_t *json = json_pack("{s:o, s:s, s:b}", "model", app_json_text(r->ask.model_name, strlen(r->ask.model_name)),
                             "created_at", time_text(r->call->repeat.on ? &created : NULL, now), "done", (int)done);
    const bool ok = json && said && json_object_update(json, said) == 0;
    json_decref(said);
    if (ok) return json;
    json_decref(json);
    return NULL;
}

/* Returns the calls from index `from` on, with their arguments as objects. */
static json_t *calls_of(const serve_output *s, size_t from)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = from; ok && i < s->n_calls; i++) {
        const serve_tool_call *c = &s->calls[i];
        json_t *arguments = serve_json_arguments(c);
        ok = !json_array_append_new(list, json_pack("{s:s, s:{s:s, s:o}}", "id", c->id, "function", "name", c->name,
                                                    "arguments", arguments));
    }
    if (ok) return list;
    json_decref(list);
    return NULL;
}

/* Returns {"message": {...}} or {"response": ..., "thinking": ...}. Takes ownership of its JSON arguments. */
static json_t *said_of(const serve_reply_state *r, json_t *content, json_t *thinking, json_t *calls)
{
    const bool chat = r->ask.kind == SERVE_KIND_CHAT;
    json_t *inner =
        chat ? json_pack("{s:s, s:o}", "role", "assistant", "content", content) : json_pack("{s:o}", "response", content);
    bool ok = inner && (!thinking || !json_object_set(inner, "thinking", thinking)) &&
              (!calls || !json_object_set(inner, "tool_calls", calls));
    json_decref(thinking);
    json_decref(calls);
    if (!ok) {
        json_decref(inner);
        return NULL;
    }
    return chat ? json_pack("{s:o}", "message", inner) : inner;
}

static void add_logprobs(serve_parts *out, serve_output *s)
{
    if (!serve_output_has_logprobs(s)) return;
    serve_parts_text(out, ",\"logprobs\":");
    serve_parts_list(out, serve_token_logprob, &s->tokens, s->tokens.n_said);
}

static bool begin(serve_reply_state *r)
{
    (void)r;
    return true;
}

/* Sends the line with the log probabilities of its tokens; takes ownership of it. */
static bool put_line(serve_reply_state *r, serve_output *s, json_t *line, bool last)
{
    serve_parts out = {0};
    serve_parts_open(&out, line);
    add_logprobs(&out, s);
    if (last) serve_ollama_put_context(&out, s);
    serve_parts_text(&out, "}");
    return serve_put_line_parts(r, s, &out);
}

static bool delta(serve_reply_state *r, serve_output *s, const answer_event *e)
{
    json_t *said;
    if (e->kind == ANSWER_CONTENT) said = said_of(r, app_json_text(e->text, e->n), NULL, NULL);
    else if (e->kind == ANSWER_REASONING) said = said_of(r, json_string(""), app_json_text(e->text, e->n), NULL);
    else if (e->kind == ANSWER_CALL_END) said = said_of(r, json_string(""), NULL, calls_of(s, s->n_calls - 1));
    else return true;
    return put_line(r, s, line_of(r, said, false), false);
}

static bool end_choice(serve_reply_state *r, serve_output *s)
{
    (void)r, (void)s;
    return true;
}

static json_t *last_of(const serve_reply_state *r, json_t *said)
{
    const aerie_stats *t = r->outputs[0].stats;
    json_t *json = line_of(r, said, true);
    const double scale = r->call->repeat.on ? 0 : 1e9; /* times would make a repeatable answer differ */
    json_t *figures =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "done_reason",
                  serve_output_finish(&r->outputs[0]) == SERVE_FINISH_LENGTH ? "length" : "stop", "total_duration",
                  (json_int_t)((app_now() - r->started) * scale), "load_duration", (json_int_t)0, "prompt_eval_count",
                  (json_int_t)t->n_prompt, "prompt_eval_duration", (json_int_t)(t->prompt_seconds * scale), "eval_count",
                  (json_int_t)t->n_generated, "eval_duration", (json_int_t)(t->decode_seconds * scale));
    const bool ok = json && figures && json_object_update(json, figures) == 0;
    json_decref(figures);
    if (ok) return json;
    json_decref(json);
    return NULL;
}

static bool end(serve_reply_state *r)
{
    return put_line(r, &r->outputs[0], last_of(r, said_of(r, json_string(""), NULL, NULL)), true);
}

static bool fail(serve_reply_state *r)
{
    return serve_put_line(r, serve_ollama_error(&r->error));
}

static json_t *whole_json(serve_reply_state *r)
{
    const serve_output *s = &r->outputs[0];
    return last_of(r, said_of(r, serve_json_string(&s->content), s->reasoning.n ? serve_json_string(&s->reasoning) : NULL,
                              s->n_calls ? calls_of(s, 0) : NULL));
}

static void whole(serve_reply_state *r, serve_parts *out)
{
    serve_parts_open(out, whole_json(r));
    add_logprobs(out, &r->outputs[0]);
    serve_ollama_put_context(out, &r->outputs[0]);
    serve_parts_text(out, "}");
}

static const serve_dialect dialect = {
    .prefix = "ollama-",
    .type = "application/x-ndjson",
    .begin = begin,
    .delta = delta,
    .end_choice = end_choice,
    .end = end,
    .fail = fail,
    .whole = whole,
};

/* ---- Requests without a prompt load the model, or unload it if "keep_alive" is 0 ---------------------------------------- */

/* Returns whether the body, which may be invalid, has no prompt. *lets_go: it asks to unload the model. */
static bool has_no_prompt(const serve_call *call, bool chat, bool *lets_go)
{
    serve_error error = {0};
    double keep = NAN;
    json_t *body; /* NULL if it is invalid or memory is short, which reading it again will report */
    app_json_read(&body, call->body.data, call->body.n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    const json_t *prompt = json_object_get(body, chat ? "messages" : "prompt");
    bool none = json_is_object(body) && (!prompt || json_is_null(prompt));
    none = none ||
           (chat ? json_is_array(prompt) && !json_array_size(prompt) : json_is_string(prompt) && !json_string_length(prompt));
    none = none && serve_ollama_keep(body, &keep, &error); /* an invalid "keep_alive" is reported when the request is read */
    *lets_go = keep == 0;
    json_decref(body);
    return none;
}

static json_t *loaded(const char *model, bool chat, bool lets_go)
{
    char now[40];
    json_t *said =
        chat ? json_pack("{s:{s:s, s:s}}", "message", "role", "assistant", "content", "") : json_pack("{s:s}", "response", "");
    json_t *json = json_pack("{s:o, s:s, s:b, s:s}", "model", app_json_text(model, strlen(model)), "created_at",
                             time_text(NULL, now), "done", 1, "done_reason", lets_go ? "unload" : "load");
    const bool ok = json && said && json_object_update(json, said) == 0;
    json_decref(said);
    if (ok) return json;
    json_decref(json);
    return NULL;
}

static void load_only(serve_call *call, bool chat, bool lets_go)
{
    serve_ask ask = {0};
    serve_error error = {0};
    json_t *json = NULL;
    serve_models *models = call->server->models;
    sem_wait(call->work);
    bool ok = serve_ask_read(&ask, call, &error) && (chat ? convert_chat(&ask, &error) : convert_generate(&ask, &error));
    const char *name = ok ? json_string_value(json_object_get(ask.body, "model")) : NULL;
    serve_model *m = ok && lets_go ? name ? serve_models_named(models, name) : serve_models_find(models, NULL) : NULL;
    if (ok && lets_go && !m) ok = serve_models_unknown(models, name, &error);
    if (m && serve_model_use(models, m)) ask.model = m; /* ask.keep takes effect when the model is released */
    else if (ok && !m) ok = serve_ask_model(&ask, &error);
    ok = ok && serve_ask_fields(&ask, &error) && serve_ask_tools(&ask, ask.body, &error); /* refuse invalid fields too */
    if (ok) json = loaded(name, chat, lets_go);
    serve_text_end(&ask, call, json, &error);
}

static void run(serve_call *call, bool chat)
{
    bool lets_go;
    if (has_no_prompt(call, chat, &lets_go)) load_only(call, chat, lets_go);
    else if (chat) serve_chat_run(call, convert_chat, &dialect);
    else serve_reply_run(call, SERVE_KIND_CHAT, convert_generate, read_generate, &dialect);
}

void serve_post_ollama_chat(serve_call *call)
{
    run(call, true);
}

void serve_post_ollama_generate(serve_call *call)
{
    run(call, false);
}

/* ---- Models ---------------------------------------------------------------------------------------------------------------
 */

static json_t *details_of(const serve_facts *f)
{
    char size[32] = "";
    if (f->n_params >= 1000000000) snprintf(size, sizeof size, "%.1fB", (double)f->n_params / 1e9);
    else if (f->n_params) snprintf(size, sizeof size, "%.1fM", (double)f->n_params / 1e6);
    json_t *arch = app_json_text(f->arch, strlen(f->arch));
    return json_pack("{s:s, s:s, s:O, s:[o], s:s, s:s}", "parent_model", "", "format", "gguf", "family", arch, "families", arch,
                     "parameter_size", size, "quantization_level", f->quantization[0] ? f->quantization : "unknown");
}

/* Returns the time when the model will be unloaded unless it is used again. If it stays loaded, that is 292 years from now, as
 * in ollama. */
static struct timespec expires_at(serve_models *models, const serve_model *m)
{
    const double for_ever = 292 * 365.25 * 86400;
    struct timespec moment;
    pthread_mutex_lock(&models->lock);
    double left = m->keep - (m->n_users > 1 ? 0 : app_now() - m->last_used); /* one user is this request */
    if (m->keep < 0 || left > for_ever) left = for_ever;
    pthread_mutex_unlock(&models->lock);
    clock_gettime(CLOCK_REALTIME, &moment);
    moment.tv_sec += left > 0 ? (time_t)left : 0;
    return moment;
}

static json_t *entry_of(serve_models *models, serve_model *m, bool loaded_only)
{
    char text[40];
    struct timespec moment;
    struct stat st = {0};
    const bool ready = serve_model_use(models, m);
    if (loaded_only && !ready) return json_null();
    const bool known = stat(m->path, &st) == 0;
    const serve_facts facts = serve_facts_get(m);
    json_t *json = json_pack("{s:o, s:o, s:s, s:I, s:s, s:o}", "name", app_json_text(m->name, strlen(m->name)), "model",
                             app_json_text(m->name, strlen(m->name)), "modified_at",
                             time_text(known ? &st.st_mtim : NULL, text), "size",
                             ready ? (json_int_t)m->models.info.file_bytes : (json_int_t)st.st_size, "digest", facts.digest,
                             "details", details_of(&facts));
    bool ok = json != NULL;
    if (ok && loaded_only) {
        moment = expires_at(models, m);
        ok = !json_object_set_new(json, "size_vram", json_integer(0)) &&
             !json_object_set_new(json, "expires_at", json_string(time_text(&moment, text))) &&
             !json_object_set_new(json, "context_length", json_integer(serve_model_n_ctx(m)));
    }
    if (ready) serve_models_give(models, m);
    if (ok) return json;
    json_decref(json);
    return NULL;
}

static void list_models(serve_call *call, bool loaded_only)
{
    serve_models *models = call->server->models;
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < models->n; i++) {
        json_t *entry = entry_of(models, &models->items[i], loaded_only);
        ok = json_is_null(entry) || !json_array_append_new(list, entry);
    }
    if (!ok) json_decref(list);
    serve_reply_json(call, 200, ok ? json_pack("{s:o}", "models", list) : NULL);
}

void serve_get_tags(serve_call *call)
{
    list_models(call, false);
}

void serve_get_running(serve_call *call)
{
    list_models(call, true);
}

void serve_get_version(serve_call *call)
{
    /* The version of ollama that implements this API. Clients require at least 0.13.4 (Responses) or 0.14.0 (Messages). */
    serve_reply_json(call, 200, json_pack("{s:s, s:s}", "version", "0.14.0", "aerie", aerie_version()));
}

/* Returns "model_info": keys with the architecture's prefix, such as "llama.context_length", and the general ones. */
static json_t *facts_of(const serve_model *m)
{
    const aerie_model_info *info = &m->models.info;
    const struct {
        const char *name;
        uint32_t value;
    } own[] = {{"context_length", info->n_ctx_train},
               {"embedding_length", info->n_embd},
               {"block_count", info->n_layers},
               {"feed_forward_length", info->n_ff},
               {"attention.head_count", info->n_heads},
               {"attention.head_count_kv", info->n_kv_heads},
               {"vocab_size", info->n_vocab}};
    json_t *json = json_pack("{s:s, s:I, s:I}", "general.architecture", info->arch, "general.parameter_count",
                             (json_int_t)info->n_params, "context_length", (json_int_t)info->n_ctx_train);
    bool ok = json != NULL;
    for (size_t i = 0; ok && i < sizeof own / sizeof *own; i++) {
        char key[160];
        snprintf(key, sizeof key, "%.100s.%s", info->arch, own[i].name);
        ok = !json_object_set_new(json, key, json_integer(own[i].value));
    }
    if (ok) return json;
    json_decref(json);
    return NULL;
}

/* Returns ollama's "capabilities" of the model; NULL entries are left out. */
static json_t *abilities_of(const serve_model *m)
{
    if (m->models.info.is_encoder) return json_pack("[s]", "embedding");
    return json_pack("[s, s*, s*, s*, s*]", "completion", m->tower ? "vision" : NULL,
                     m->takes_tools ? "tools" : NULL,
                     serve_model_fills_gaps(m) ? "insert" : NULL, m->plain.style.tags ? "thinking" : NULL);
}

/* ollama's paths that change the store of models, which this server only reads. */
static const struct {
    const char *path, *instead;
} store[] = {
    {"/api/pull", "this server cannot download models: run 'aerie pull NAME' on its machine, and 'aerie serve NAME' or "
     "--models-dir to serve the model"},
    {"/api/push", "this server uploads no models"},
    {"/api/create", "this server cannot create models: use 'aerie convert' and 'aerie quantize' on its machine; \"system\" and "
     "\"options\" in a request replace a Modelfile's SYSTEM and PARAMETER"},
    {"/api/copy", "this server copies no models: 'aerie serve -m NAME=FILE' gives a file another name"},
    {"/api/delete", "this server deletes no models: 'aerie rm NAME' does so on its machine"},
    {"/api/blobs/", "this server takes no files: models are put on its machine by 'aerie pull'"},
};

void serve_ollama_store(serve_call *call)
{
    serve_error error = {0};
    json_t *body = NULL;
    const char *name = NULL;
    const bool pulls = strcmp(call->path, "/api/pull") == 0;
    if (pulls) app_json_read(&body, call->body.data, call->body.n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    name = json_string_value(json_object_get(body, "model"));
    if (!name) name = json_string_value(json_object_get(body, "name")); /* of older clients */
    const bool there = pulls && name && serve_models_named(call->server->models, name);
    json_decref(body);
    if (there) { /* clients pull before they ask */
        serve_reply_json(call, 200, json_pack("{s:s}", "status", "success"));
        return;
    }
    for (size_t i = 0; i < sizeof store / sizeof *store; i++)
        if (strncmp(call->path, store[i].path, strlen(store[i].path)) == 0) serve_fail(&error, 501, "", "%s", store[i].instead);
    serve_reply_error(call, &error);
}

void serve_post_show(serve_call *call)
{
    serve_ask ask = {0};
    serve_error error = {0};
    json_t *json = NULL;
    if (serve_text_begin(&ask, call, &error)) {
        const char *text = ask.model->plain.text ? ask.model->plain.text : "";
        const serve_facts facts = serve_facts_get(ask.model);
        json = json_pack("{s:o, s:s, s:s, s:o, s:o, s:o, s:o}", "license",
                         app_json_text(facts.license, strlen(facts.license)), "modelfile", "", "parameters", "", "template",
                         app_json_text(text, strlen(text)), "details", details_of(&facts), "model_info",
                         facts_of(ask.model), "capabilities", abilities_of(ask.model));
    }
    serve_text_end(&ask, call, json, &error);
}

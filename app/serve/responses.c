/* responses.c - OpenAI's responses: requests as chat completions, and answers as items and events. Nothing is stored, so that a
 * request has to bring the whole conversation.
 */
#include <string.h>

#include "serve/handlers.h"
#include "serve/reply.h"

/* ---- Requests ------------------------------------------------------------------------------------------------------ */

/* A call of the model's, joined to those before it in one message. */
static bool add_call(json_t *messages, const json_t *item, size_t i, serve_error *error)
{
    const size_t n = json_array_size(messages);
    const char *id = json_string_value(json_object_get(item, "call_id")),
               *name = json_string_value(json_object_get(item, "name"));
    const char *arguments = json_string_value(json_object_get(item, "arguments"));
    if (!name || !arguments)
        return serve_fail(error, 400, "input", "input[%zu]: a function_call needs 'name' and 'arguments'", i);
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id ? id : "", "type", "function", "function", "name", name,
                             "arguments", arguments);
    json_t *last = n ? json_array_get(messages, n - 1) : NULL, *calls = json_object_get(last, "tool_calls");
    if (calls) return json_array_append_new(calls, call) == 0 || serve_fail_memory(error);
    json_t *m = json_pack("{s:s, s:s, s:[o]}", "role", "assistant", "content", "", "tool_calls", call);
    return json_array_append_new(messages, m) == 0 || serve_fail_memory(error);
}

static bool add_item(json_t *messages, json_t *item, size_t i, serve_error *error)
{
    const char *type = json_string_value(json_object_get(item, "type"));
    json_t *role = json_object_get(item, "role"), *content = json_object_get(item, "content");
    if (!json_is_object(item)) return serve_fail(error, 400, "input", "input[%zu] must be an object", i);
    if (!type || strcmp(type, "message") == 0) {
        if (!json_is_string(role) || !content)
            return serve_fail(error, 400, "input", "input[%zu] needs 'role' and 'content'", i);
        return json_array_append_new(messages, json_pack("{s:O, s:O}", "role", role, "content", content)) == 0 ||
               serve_fail_memory(error);
    }
    if (strcmp(type, "function_call") == 0) return add_call(messages, item, i, error);
    if (strcmp(type, "function_call_output") == 0) {
        const char *id = json_string_value(json_object_get(item, "call_id"));
        json_t *output = json_object_get(item, "output");
        if (!json_is_string(output) && !json_is_array(output))
            return serve_fail(error, 400, "input", "input[%zu]: a function_call_output needs 'output'", i);
        return json_array_append_new(messages, json_pack("{s:s, s:s, s:O}", "role", "tool", "tool_call_id", id ? id : "",
                                                         "content", output)) == 0 ||
               serve_fail_memory(error);
    }
    if (strcmp(type, "reasoning") == 0) return true; /* earlier turns' reasoning is not shown to the model again */
    return serve_fail(error, 400, "input", "input[%zu]: items of type '%.40s' are not supported by this server", i, type);
}

static json_t *convert_input(const json_t *body, serve_error *error)
{
    json_t *input = json_object_get(body, "input"), *messages = json_array();
    const char *instructions = NULL;
    bool ok = messages != NULL && serve_get_text(body, "instructions", &instructions, error);
    if (ok && instructions)
        ok = json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", instructions)) == 0;
    if (ok && json_is_string(input))
        ok = json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", input)) == 0;
    else if (ok && !json_array_size(input)) ok = serve_fail(error, 400, "input", "'input' must be a string or a list of items");
    for (size_t i = 0; ok && i < json_array_size(input); i++) ok = add_item(messages, json_array_get(input, i), i, error);
    if (ok) return messages;
    json_decref(messages);
    if (!error->status) serve_fail_memory(error);
    return NULL;
}

/* {"type": "function", "name", ...} as {"type": "function", "function": {"name", ...}} */
static json_t *convert_tools(const json_t *tools, serve_error *error)
{
    json_t *out = json_array();
    if (tools && !json_is_null(tools) && !json_is_array(tools)) serve_fail(error, 400, "tools", "'tools' must be a list");
    for (size_t i = 0; out && !error->status && i < json_array_size(tools); i++) {
        json_t *tool = json_array_get(tools, i);
        const char *type = json_string_value(json_object_get(tool, "type"));
        if (!type || strcmp(type, "function"))
            serve_fail(error, 400, "tools", "tools[%zu]: tools of type '%.60s' are not supported by this server", i,
                       type ? type : "");
        else if (json_array_append_new(out, json_pack("{s:s, s:O}", "type", "function", "function", tool)))
            serve_fail_memory(error);
    }
    if (!error->status && out) return out;
    json_decref(out);
    if (!error->status) serve_fail_memory(error);
    return NULL;
}

/* "text": {"format": ...} as "response_format". */
static bool convert_format(json_t *out, const json_t *body, serve_error *error)
{
    const json_t *text = NULL, *format = NULL;
    if (!serve_get_object(body, "text", &text, error)) return false;
    if (!text || !serve_get_object(text, "format", &format, error) || !format) return !error->status;
    json_t *type = json_object_get(format, "type"), *schema = json_object_get(format, "schema");
    if (!json_is_string(type)) return serve_fail(error, 400, "text", "'text.format' needs a 'type', a string");
    json_t *as =
        schema ? json_pack("{s:O, s:{s:O}}", "type", type, "json_schema", "schema", schema) : json_pack("{s:O}", "type", type);
    return json_object_set_new(out, "response_format", as) == 0 || serve_fail_memory(error);
}

static bool convert(serve_ask *ask, serve_error *error)
{
    static const struct {
        const char *from, *to;
    } same[] = {{"model", "model"},
                {"max_output_tokens", "max_tokens"},
                {"temperature", "temperature"},
                {"top_p", "top_p"},
                {"stream", "stream"},
                {"seed", "seed"},
                {"top_k", "top_k"},
                {"min_p", "min_p"},
                {"tool_choice", "tool_choice"},
                {"chat_template_kwargs", "chat_template_kwargs"}};
    static const char *const unsupported[] = {"previous_response_id", "conversation", "prompt"};
    const json_t *reasoning = NULL;
    bool background = false;
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
        const json_t *v = json_object_get(ask->body, unsupported[i]);
        if (v && !json_is_null(v))
            return serve_fail(error, 400, unsupported[i], "'%s' is not supported: this server stores nothing", unsupported[i]);
    }
    if (!serve_get_bool(ask->body, "background", &background, error)) return false;
    if (background) return serve_fail(error, 400, "background", "'background' is not supported by this server");
    if (!serve_get_object(ask->body, "reasoning", &reasoning, error)) return false;
    json_t *body = json_object();
    bool ok = body != NULL;
    for (size_t i = 0; ok && i < sizeof same / sizeof *same; i++) {
        json_t *v = json_object_get(ask->body, same[i].from);
        ok = !v || json_object_set(body, same[i].to, v) == 0;
    }
    json_t *effort = json_object_get(reasoning, "effort");
    if (ok && effort) ok = json_object_set(body, "reasoning_effort", effort) == 0;
    if (ok) ok = json_object_set_new(body, "messages", convert_input(ask->body, error)) == 0;
    if (ok) ok = json_object_set_new(body, "tools", convert_tools(json_object_get(ask->body, "tools"), error)) == 0;
    if (ok) ok = convert_format(body, ask->body, error);
    return serve_ask_replace(ask, body, ok, error);
}

/* ---- Answers ---------------------------------------------------------------------------------------------------------- */

enum { ITEM_NONE, ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL };

/* The id of an item: the answer's own letters, and its number. */
static const char *item_id(const serve_reply_state *r, const char *prefix, int i, char out[64])
{
    snprintf(out, 64, "%s_%s%d", prefix, strchr(r->id, '_') + 1, i);
    return out;
}

static json_t *reasoning_item(const serve_reply_state *r, int i, json_t *text)
{
    char id[64];
    return json_pack("{s:s, s:s, s:[], s:[{s:s, s:o}]}", "type", "reasoning", "id", item_id(r, "rs", i, id), "summary",
                     "content", "type", "reasoning_text", "text", text);
}

static json_t *text_part(json_t *text)
{
    return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text", text, "annotations", "logprobs");
}

static json_t *message_item(const serve_reply_state *r, int i, json_t *content, bool begun)
{
    char id[64];
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "type", "message", "id", item_id(r, "msg", i, id), "status",
                     begun ? "in_progress" : "completed", "role", "assistant", "content", content);
}

/* One that has ended, with its only part. */
static json_t *whole_message(const serve_reply_state *r, int i, json_t *part)
{
    return message_item(r, i, json_pack("[o]", part), false);
}

static json_t *call_item(const serve_reply_state *r, int i, const serve_tool_call *c, bool begun)
{
    char id[64];
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "type", "function_call", "id", item_id(r, "fc", i, id), "call_id", c->id,
                     "name", c->name, "status",
                     begun         ? "in_progress"
                     : c->complete ? "completed"
                                   : "incomplete",
                     "arguments", begun ? json_string("") : serve_json_string(&c->arguments));
}

static json_t *usage(const serve_reply_state *r)
{
    const uint32_t n = serve_n_generated(r);
    return json_pack("{s:I, s:{s:i}, s:I, s:{s:i}, s:I}", "input_tokens", (json_int_t)r->ask.n_tokens, "input_tokens_details",
                     "cached_tokens", (int)serve_n_cached(r), "output_tokens", (json_int_t)n, "output_tokens_details",
                     "reasoning_tokens", 0, "total_tokens", (json_int_t)(r->ask.n_tokens + n));
}

/* The answer as far as it has come: its items in the order reasoning, text, calls. status NULL: by how it ended. */
static json_t *response(const serve_reply_state *r, const char *status)
{
    const serve_said *s = &r->said[0];
    json_t *output = json_array();
    bool ok = output != NULL;
    int i = 0;
    const bool whole = !status, cut = whole && serve_said_finish(s) == SERVE_FINISH_LENGTH;
    if (ok && whole && s->reasoning.n)
        ok = !json_array_append_new(output, reasoning_item(r, i++, serve_json_string(&s->reasoning)));
    if (ok && whole && (s->content.n || !s->n_calls))
        ok = !json_array_append_new(output, whole_message(r, i++, text_part(serve_json_string(&s->content))));
    for (size_t k = 0; ok && whole && k < s->n_calls; k++)
        ok = !json_array_append_new(output, call_item(r, i++, &s->calls[k], false));
    if (!ok) {
        json_decref(output);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:I, s:s, s:n, s:o, s:n, s:o, s:o, s:b, s:s, s:[], s:{}, s:f, s:f, s:n, s:o}", "id", r->id,
                     "object", "response", "created_at", (json_int_t)r->created, "status",
                     status ? status
                     : cut  ? "incomplete"
                            : "completed",
                     "error", "incomplete_details", cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null(),
                     "instructions", "model", app_json_text(r->ask.model_name, strlen(r->ask.model_name)), "output", output,
                     "parallel_tool_calls", 1, "tool_choice", "auto", "tools", "metadata", "temperature",
                     (double)r->ask.sampling.temperature, "top_p", (double)r->ask.sampling.top_p, "previous_response_id",
                     "usage", whole ? usage(r) : json_null());
}

/* An event with its number. */
static bool put(serve_reply_state *r, const char *type, json_t *json)
{
    const bool ok = json && !json_object_set_new(json, "type", json_string(type)) &&
                    !json_object_set_new(json, "sequence_number", json_integer(r->n_numbered++));
    if (ok) return serve_put_event(r, type, json);
    json_decref(json);
    return false;
}

static bool put_item(serve_reply_state *r, const char *type, int i, json_t *item)
{
    return put(r, type, json_pack("{s:i, s:o}", "output_index", i, "item", item));
}

/* A piece, or (field "text", "arguments") the whole, of what an item holds. */
static bool put_piece(serve_reply_state *r, const char *type, const char *prefix, int i, const char *field, json_t *text)
{
    char id[64];
    json_t *json = json_pack("{s:s, s:i, s:o}", "item_id", item_id(r, prefix, i, id), "output_index", i, field, text);
    bool ok = json && (!strcmp(prefix, "fc") || !json_object_set_new(json, "content_index", json_integer(0)));
    if (ok && !strcmp(prefix, "msg")) ok = !json_object_set_new(json, "logprobs", json_array());
    if (ok) return put(r, type, json);
    json_decref(json);
    return false;
}

static bool put_part(serve_reply_state *r, const char *type, int i, json_t *part)
{
    char id[64];
    return put(r, type,
               json_pack("{s:s, s:i, s:i, s:o}", "item_id", item_id(r, "msg", i, id), "output_index", i, "content_index", 0,
                         "part", part));
}

/* What the open item says, of all that its kind has said: an item begins where the one before it ended. */
static json_t *since(const app_text *text, size_t from)
{
    return app_json_text(text->data ? text->data + from : "", text->n - from);
}

static bool close_item(serve_reply_state *r, serve_said *s)
{
    const int i = s->n_blocks, kind = s->block;
    if (kind == ITEM_NONE) return true;
    s->block = ITEM_NONE;
    s->n_blocks++;
    if (kind == ITEM_CALL) {
        const serve_tool_call *c = &s->calls[s->n_calls - 1];
        return put_piece(r, "response.function_call_arguments.done", "fc", i, "arguments", serve_json_string(&c->arguments)) &&
               put_item(r, "response.output_item.done", i, call_item(r, i, c, false));
    }
    if (kind == ITEM_REASONING)
        return put_piece(r, "response.reasoning_text.done", "rs", i, "text", since(&s->reasoning, s->block_from)) &&
               put_item(r, "response.output_item.done", i, reasoning_item(r, i, since(&s->reasoning, s->block_from)));
    return put_piece(r, "response.output_text.done", "msg", i, "text", since(&s->content, s->block_from)) &&
           put_part(r, "response.content_part.done", i, text_part(since(&s->content, s->block_from))) &&
           put_item(r, "response.output_item.done", i, whole_message(r, i, text_part(since(&s->content, s->block_from))));
}

static bool open_item(serve_reply_state *r, serve_said *s, int kind, size_t from)
{
    if (!close_item(r, s)) return false;
    const int i = s->n_blocks;
    s->block = kind;
    s->block_from = from;
    if (kind == ITEM_CALL)
        return put_item(r, "response.output_item.added", i, call_item(r, i, &s->calls[s->n_calls - 1], true));
    if (kind == ITEM_REASONING) return put_item(r, "response.output_item.added", i, reasoning_item(r, i, json_string("")));
    return put_item(r, "response.output_item.added", i, message_item(r, i, json_array(), true)) &&
           put_part(r, "response.content_part.added", i, text_part(json_string("")));
}

static bool begin(serve_reply_state *r)
{
    return put(r, "response.created", json_pack("{s:o}", "response", response(r, "in_progress"))) &&
           put(r, "response.in_progress", json_pack("{s:o}", "response", response(r, "in_progress")));
}

static bool delta(serve_reply_state *r, serve_said *s, const answer_event *e)
{
    switch (e->kind) {
    case ANSWER_CONTENT:
        if (s->block != ITEM_MESSAGE && !open_item(r, s, ITEM_MESSAGE, s->content.n - e->n)) return false;
        return put_piece(r, "response.output_text.delta", "msg", s->n_blocks, "delta", app_json_text(e->text, e->n));
    case ANSWER_REASONING:
        if (s->block != ITEM_REASONING && !open_item(r, s, ITEM_REASONING, s->reasoning.n - e->n)) return false;
        return put_piece(r, "response.reasoning_text.delta", "rs", s->n_blocks, "delta", app_json_text(e->text, e->n));
    case ANSWER_CALL: return open_item(r, s, ITEM_CALL, 0);
    case ANSWER_ARGUMENTS:
        return put_piece(r, "response.function_call_arguments.delta", "fc", s->n_blocks, "delta", app_json_text(e->text, e->n));
    case ANSWER_CALL_END: return close_item(r, s);
    }
    return true;
}

static bool end_choice(serve_reply_state *r, serve_said *s)
{
    return close_item(r, s);
}

static bool end(serve_reply_state *r)
{
    const bool cut = serve_said_finish(&r->said[0]) == SERVE_FINISH_LENGTH;
    return put(r, cut ? "response.incomplete" : "response.completed", json_pack("{s:o}", "response", response(r, NULL)));
}

static bool fail(serve_reply_state *r)
{
    return put(r, "error",
               json_pack("{s:s, s:o, s:n}", "code", serve_error_type(r->error.status), "message",
                         app_json_text(r->error.text, strlen(r->error.text)), "param"));
}

static json_t *whole(serve_reply_state *r)
{
    return response(r, NULL);
}

static const serve_dialect dialect = {"resp_", "text/event-stream", begin, delta, end_choice, end, fail, whole};

void serve_post_responses(serve_call *call)
{
    serve_chat_run(call, convert, &dialect);
}

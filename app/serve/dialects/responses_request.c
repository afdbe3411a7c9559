/* responses_request.c - converts requests of OpenAI's Responses API to chat completions. The server stores nothing, so a
 * request must contain the whole conversation. Consecutive items from the model (reasoning, messages, calls) form one turn.
 * Items of unknown types are left out, and the log names the type. */
#include <stdlib.h>
#include <string.h>

#include "serve/dialects/handlers.h"

/* State of the conversion of "input". */
typedef struct input {
    serve_ask *ask;
    json_t *messages; /* converted so far */
    json_t *turn;     /* the model's message that later items may continue: the last of messages, borrowed; NULL: none */
    json_t *tools;    /* receives the tools that items contain */
    serve_error *error;
} input;

static bool is_type(const char *type, const char *name)
{
    return strcmp(type, name) == 0;
}

/* ---- Turns --------------------------------------------------------------------------------------------------------- */

/* Adds a message that is not the model's; takes ownership of it. */
static bool add_message(input *in, json_t *message)
{
    in->turn = NULL;
    return json_array_append_new(in->messages, message) == 0 || serve_fail_memory(in->error);
}

/* Returns the model's current turn, which it begins if necessary; NULL when out of memory. */
static json_t *turn_of(input *in)
{
    if (in->turn) return in->turn;
    json_t *turn = json_pack("{s:s, s:[]}", "role", "assistant", "content");
    if (json_array_append_new(in->messages, turn) == 0) in->turn = turn;
    else serve_fail_memory(in->error);
    return in->turn;
}

/* Appends text of the model to its turn. */
static bool add_said(input *in, const json_t *content, size_t i)
{
    json_t *turn = turn_of(in), *parts = json_object_get(turn, "content");
    if (!turn) return false;
    if (json_is_null(content)) return true;
    const bool ok = json_is_string(content)  ? !json_array_append(parts, (json_t *)content)
                    : json_is_array(content) ? !json_array_extend(parts, (json_t *)content)
                                             : serve_fail(in->error, 400, "input",
                                                          "input[%zu]: 'content' must be a string or a list of parts", i);
    return ok || (in->error->status ? false : serve_fail_memory(in->error));
}

/* Adds the texts of a list of parts to *text, each on a new line. */
static bool add_texts(app_text *text, const json_t *parts)
{
    bool ok = true;
    for (size_t k = 0; ok && k < json_array_size(parts); k++) {
        const json_t *inner = json_object_get(json_array_get(parts, k), "text");
        if (!json_is_string(inner)) continue;
        ok = (!text->n || app_text_add(text, "\n", 1)) &&
             app_text_add(text, json_string_value(inner), json_string_length(inner));
    }
    return ok;
}

/* Adds the model's reasoning, or its summary if the reasoning itself is absent. */
static bool add_reasoning(input *in, const json_t *item)
{
    app_text text = {0};
    const json_t *before = json_object_get(in->turn, "reasoning_content"), *content = json_object_get(item, "content");
    bool ok = !before || app_text_add(&text, json_string_value(before), json_string_length(before));
    ok = ok && add_texts(&text, json_array_size(content) ? content : json_object_get(item, "summary"));
    if (ok && text.n)
        ok = turn_of(in) && !json_object_set_new(in->turn, "reasoning_content", json_stringn(text.data, text.n));
    app_text_free(&text);
    return ok || serve_fail_memory(in->error);
}

/* Adds a call to the model's turn; takes ownership of name and arguments. */
static bool add_call(input *in, const json_t *item, json_t *name, json_t *arguments)
{
    json_t *turn = turn_of(in), *calls = json_object_get(turn, "tool_calls");
    const char *id = json_string_value(json_object_get(item, "call_id"));
    if (!id) id = json_string_value(json_object_get(item, "id"));
    json_t *call = json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", id ? id : "", "type", "function", "function", "name", name,
                             "arguments", arguments);
    const bool ok = turn && (calls ? !json_array_append_new(calls, call)
                                   : call && !json_object_set_new(turn, "tool_calls", json_pack("[o]", call)));
    return ok || serve_fail_memory(in->error);
}

/* ---- Items --------------------------------------------------------------------------------------------------------- */

static bool add_function_call(input *in, const json_t *item, size_t i)
{
    if (!json_is_string(json_object_get(item, "name")))
        return serve_fail(in->error, 400, "input", "input[%zu]: a function_call needs 'name'", i);
    return add_call(in, item, serve_tools_name(item), serve_messages_arguments(json_object_get(item, "arguments")));
}

static bool add_custom_call(input *in, const json_t *item, size_t i)
{
    const char *text = json_string_value(json_object_get(item, "input"));
    if (!json_is_string(json_object_get(item, "name")) || !text)
        return serve_fail(in->error, 400, "input", "input[%zu]: a custom_tool_call needs 'name' and 'input'", i);
    return add_call(in, item, serve_tools_name(item), serve_tools_arguments(text));
}

/* Adds a call of a built-in tool such as local_shell, whose arguments are in `field`. */
static bool add_own_call(input *in, const json_t *item, const char *name, const char *field, size_t i)
{
    const json_t *arguments = json_object_get(item, field);
    if (!arguments) return serve_fail(in->error, 400, "input", "input[%zu]: a %s_call needs '%s'", i, name, field);
    return add_call(in, item, json_string(name),
                    json_is_string(arguments) ? json_incref((json_t *)arguments) : serve_json_text(arguments));
}

/* Returns whether all members of the list are message parts; other lists are data. */
static bool has_parts(const json_t *list)
{
    const char *type = json_string_value(json_object_get(json_array_get(list, 0), "type"));
    return json_array_size(list) && type && (strncmp(type, "input_", 6) == 0 || strncmp(type, "output_", 7) == 0 ||
                                             is_type(type, "text") || is_type(type, "refusal"));
}

/* Adds a tool's result; takes ownership of output. */
static bool add_result(input *in, const json_t *item, json_t *output)
{
    const char *id = json_string_value(json_object_get(item, "call_id"));
    if (!id) id = json_string_value(json_object_get(item, "id"));
    return add_message(in, json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id", id ? id : "", "content", output));
}

static bool add_output(input *in, const json_t *item, const char *type, size_t i)
{
    json_t *output = json_object_get(item, "output");
    if (!output) return serve_fail(in->error, 400, "input", "input[%zu]: a %s needs 'output'", i, type);
    if (json_is_null(output)) return add_result(in, item, json_string("")); /* as in chats */
    const bool as_is = json_is_string(output) || has_parts(output);
    return add_result(in, item, as_is ? json_incref(output) : serve_json_text(output));
}

/* Adds the tools of an item to those of the request. */
static bool add_tools(input *in, const json_t *item)
{
    const json_t *tools = json_object_get(item, "tools");
    return !json_is_array(tools) || !json_array_extend(in->tools, (json_t *)tools) || serve_fail_memory(in->error);
}

/* Adds the tools that a search has found. The model sees the list of their names as the result. */
static bool add_found_tools(input *in, const json_t *item)
{
    json_t *names = json_array();
    const json_t *tools = json_object_get(item, "tools");
    bool ok = names && add_tools(in, item);
    for (size_t k = 0; ok && k < json_array_size(tools); k++) {
        json_t *name = json_object_get(json_array_get(tools, k), "name");
        ok = !json_is_string(name) || !json_array_append(names, name);
    }
    ok = ok && add_result(in, item, serve_json_text(names));
    json_decref(names);
    return ok || (in->error->status ? false : serve_fail_memory(in->error));
}

static bool add_item(input *in, json_t *item, size_t i)
{
    static const struct {
        const char *type, *name, *field;
    } own[] = {{"local_shell_call", "local_shell", "action"},
               {"shell_call", "shell", "action"},
               {"apply_patch_call", "apply_patch", "operation"},
               {"tool_search_call", "tool_search", "arguments"}};
    const char *type = json_string_value(json_object_get(item, "type"));
    json_t *role = json_object_get(item, "role"), *content = json_object_get(item, "content");
    if (!json_is_object(item)) return serve_fail(in->error, 400, "input", "input[%zu] must be an object", i);
    if (!type || is_type(type, "message")) {
        if (!json_is_string(role) || !content)
            return serve_fail(in->error, 400, "input", "input[%zu] needs 'role' and 'content'", i);
        if (is_type(json_string_value(role), "assistant")) return add_said(in, content, i);
        return add_message(in, json_pack("{s:O, s:O}", "role", role, "content", content));
    }
    if (is_type(type, "reasoning")) return add_reasoning(in, item);
    if (is_type(type, "function_call")) return add_function_call(in, item, i);
    if (is_type(type, "custom_tool_call")) return add_custom_call(in, item, i);
    if (is_type(type, "function_call_output") || is_type(type, "custom_tool_call_output") ||
        is_type(type, "local_shell_call_output") || is_type(type, "shell_call_output") ||
        is_type(type, "apply_patch_call_output"))
        return add_output(in, item, type, i);
    if (is_type(type, "additional_tools")) return add_tools(in, item);
    if (is_type(type, "tool_search_output")) return add_found_tools(in, item);
    for (size_t k = 0; k < sizeof own / sizeof *own; k++)
        if (is_type(type, own[k].type)) return add_own_call(in, item, own[k].name, own[k].field, i);
    serve_note_left_out(in->ask->server, "items", type);
    return true;
}

/* Gives turns that only call tools an empty content, and removes the last turn if it only has reasoning. */
static bool close_turns(json_t *messages, const json_t *last)
{
    const bool idle = last && !json_array_size(json_object_get(last, "content")) && !json_object_get(last, "tool_calls");
    if (idle && json_array_remove(messages, json_array_size(messages) - 1)) return false;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i), *content = json_object_get(message, "content");
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!json_is_array(content) || !role || strcmp(role, "assistant")) continue;
        json_t *only = json_array_get(content, 0);
        const size_t n = json_array_size(content);
        if (n == 0 && json_object_set_new(message, "content", json_string(""))) return false;
        if (n == 1 && json_is_string(only) && json_object_set(message, "content", only)) return false;
    }
    return true;
}

/* Returns "input" and "instructions" as messages; adds tools that items contain to *tools. NULL with an error. */
static json_t *convert_input(serve_ask *ask, json_t *tools, serve_error *error)
{
    json_t *given = json_object_get(ask->body, "input");
    input in = {.ask = ask, .messages = json_array(), .tools = tools, .error = error};
    const char *instructions = NULL;
    bool ok = in.messages && serve_get_text(ask->body, "instructions", &instructions, error);
    if (ok && instructions) ok = add_message(&in, json_pack("{s:s, s:s}", "role", "system", "content", instructions));
    if (ok && json_is_string(given)) ok = add_message(&in, json_pack("{s:s, s:O}", "role", "user", "content", given));
    else if (ok && !json_array_size(given)) ok = serve_fail(error, 400, "input", "'input' must be a string or a list of items");
    for (size_t i = 0; ok && i < json_array_size(given); i++) ok = add_item(&in, json_array_get(given, i), i);
    if (ok && !json_array_size(in.messages)) ok = serve_fail(error, 400, "input", "'input' contains no message");
    if (ok && close_turns(in.messages, in.turn)) return in.messages;
    json_decref(in.messages);
    if (!error->status) serve_fail_memory(error);
    return NULL;
}

/* ---- Fields --------------------------------------------------------------------------------------------------------- */

/* Converts "text": {"format": ...} to "response_format". */
static bool convert_format(json_t *out, const json_t *body, serve_error *error)
{
    const json_t *text = NULL, *format = NULL;
    if (!serve_get_object(body, "text", &text, error)) return false;
    if (!text || !serve_get_object(text, "format", &format, error) || !format) return !error->status;
    json_t *type = json_object_get(format, "type"), *schema = json_object_get(format, "schema");
    if (!json_is_string(type)) return serve_fail(error, 400, "text", "'text.format' must have a 'type' that is a string");
    json_t *as =
        schema ? json_pack("{s:O, s:{s:O}}", "type", type, "json_schema", "schema", schema) : json_pack("{s:O}", "type", type);
    return json_object_set_new(out, "response_format", as) == 0 || serve_fail_memory(error);
}

/* Converts "include": ["message.output_text.logprobs"] and "top_logprobs", of which each turns log-probabilities on. */
static bool convert_logprobs(json_t *out, const json_t *body, serve_error *error)
{
    const json_t *include = NULL;
    json_t *top = json_object_get(body, "top_logprobs");
    if (!serve_get_list(body, "include", &include, error)) return false;
    bool wanted = json_is_number(top) && json_number_value(top) != 0;
    for (size_t i = 0; i < json_array_size(include); i++) {
        const char *name = json_string_value(json_array_get(include, i));
        if (!name) return serve_fail(error, 400, "include", "'include' must be a list of names");
        wanted = wanted || strcmp(name, "message.output_text.logprobs") == 0;
    }
    if (wanted && json_object_set_new(out, "logprobs", json_true())) return serve_fail_memory(error);
    return !top || json_object_set(out, "top_logprobs", top) == 0 || serve_fail_memory(error);
}

/* Converts messages and tools. Tools from items follow those of the request. */
static bool convert_conversation(json_t *out, serve_ask *ask, serve_error *error)
{
    const json_t *given = NULL;
    json_t *tools = json_array();
    bool ok = tools && serve_get_list(ask->body, "tools", &given, error);
    if (ok && given) ok = json_array_extend(tools, (json_t *)given) == 0;
    if (ok) ok = json_object_set_new(out, "messages", convert_input(ask, tools, error)) == 0;
    if (ok) ok = json_object_set_new(out, "tools", serve_tools_convert(ask, tools, true, error)) == 0;
    json_decref(tools);
    return ok || (error->status ? false : serve_fail_memory(error));
}

bool serve_responses_convert(serve_ask *ask, serve_error *error)
{
    static const struct {
        const char *from, *to;
    } same[] = {{"model", "model"},
                {"max_output_tokens", "max_tokens"},
                {"stream", "stream"},
                {"tool_choice", "tool_choice"},
                {"parallel_tool_calls", "parallel_tool_calls"}};
    static const char *const unsupported[] = {"previous_response_id", "conversation", "prompt"};
    const json_t *reasoning = NULL;
    bool background = false;
    ask->count_name = "max_output_tokens";
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
        const json_t *v = json_object_get(ask->body, unsupported[i]);
        if (v && !json_is_null(v))
            return serve_fail(error, 400, unsupported[i], "'%s' is not supported: this server stores nothing", unsupported[i]);
    }
    if (!serve_get_bool(ask->body, "background", &background, error)) return false;
    if (background) return serve_fail(error, 400, "background", "'background' is not supported by this server");
    if (!serve_get_object(ask->body, "reasoning", &reasoning, error)) return false;
    json_t *body = json_object();
    bool ok = body && serve_ask_share(body, ask->body);
    for (size_t i = 0; ok && i < sizeof same / sizeof *same; i++) {
        json_t *v = json_object_get(ask->body, same[i].from);
        ok = !v || json_object_set(body, same[i].to, v) == 0;
    }
    json_t *effort = json_object_get(reasoning, "effort");
    if (ok && effort) ok = json_object_set(body, "reasoning_effort", effort) == 0;
    ok = ok && convert_conversation(body, ask, error) && convert_format(body, ask->body, error) &&
         convert_logprobs(body, ask->body, error);
    return serve_ask_replace(ask, body, ok, error);
}

/* messages.c - Anthropic's Messages API: converts requests to chat completions, and writes answers as its blocks and events. */
#include <string.h>

#include "serve/dialects/handlers.h"
#include "serve/request/reply.h"

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

json_t *serve_messages_error(const serve_error *e)
{
    const char *type = e->status == 413   ? "request_too_large"
                       : e->status == 503 ? "overloaded_error"
                                          : serve_error_type(e->status);
    if (e->status >= 500 && e->status != 503) type = "api_error";
    return json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type", type, "message",
                     app_json_text(e->text, strlen(e->text)));
}

static bool add_string(app_text *text, const json_t *string)
{
    return app_text_add(text, json_string_value(string), json_string_length(string));
}

static bool add_blocks(app_text *text, const json_t *content, const char *field, int depth, serve_error *error);

/* Adds a document or a search result: title, source and context, then its text. */
static bool add_document(app_text *text, const json_t *block, const char *field, int depth, serve_error *error)
{
    static const char *const heads[] = {"title", "source", "context"};
    const json_t *source = json_object_get(block, "source");
    const json_t *data = json_is_object(source) ? json_object_get(source, "data") : NULL;
    const json_t *content = json_object_get(json_is_object(source) ? source : block, "content");
    const char *kind = json_string_value(json_object_get(source, "type"));
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof heads / sizeof *heads; i++) {
        const json_t *head = json_object_get(block, heads[i]);
        ok = !json_is_string(head) || (add_string(text, head) && app_text_add(text, "\n", 1));
    }
    if (!ok) return serve_fail_memory(error);
    if (kind && strcmp(kind, "text") == 0 && json_is_string(data)) return add_string(text, data) || serve_fail_memory(error);
    if (json_is_string(content) || json_is_array(content)) return add_blocks(text, content, field, depth + 1, error);
    return serve_fail(error, 400, field,
                      "'%s': document sources of type '%.40s' are not supported, since the server reads no documents such as "
                      "PDF; send their text (a source of type 'text' or 'content')", field, kind ? kind : "");
}

static bool add_block_text(app_text *text, const json_t *block, const char *field, int depth, serve_error *error)
{
    const char *type = json_string_value(json_object_get(block, "type"));
    const json_t *inner = json_object_get(block, "text"), *summary = json_object_get(block, "content");
    const json_t *tool = json_object_get(block, "tool_name");
    if (json_is_string(block)) return add_string(text, block) || serve_fail_memory(error);
    if (type && strcmp(type, "text") == 0 && (!inner || json_is_null(inner))) return true; /* clients keep empty blocks */
    if (type && strcmp(type, "text") == 0 && json_is_string(inner)) return add_string(text, inner) || serve_fail_memory(error);
    if (type && (strcmp(type, "document") == 0 || strcmp(type, "search_result") == 0))
        return add_document(text, block, field, depth, error);
    if (type && strcmp(type, "compaction") == 0 && json_is_string(summary))
        return add_string(text, summary) || serve_fail_memory(error);
    /* the name is enough: the request offers all tools from the start */
    if (type && strcmp(type, "tool_reference") == 0 && json_is_string(tool))
        return (app_text_add(text, "tool: ", 6) && add_string(text, tool)) || serve_fail_memory(error);
    return serve_fail(error, 400, field, "'%s': blocks of type '%.40s' are not supported here", field, type ? type : "");
}

/* Adds the texts of a list of blocks, separated by line breaks, or content itself if it is a string. */
static bool add_blocks(app_text *text, const json_t *content, const char *field, int depth, serve_error *error)
{
    enum { MAX_DEPTH = 4 }; /* blocks within blocks */
    if (depth > MAX_DEPTH) return serve_fail(error, 400, field, "'%s': blocks are nested more than %d deep", field, MAX_DEPTH);
    if (json_is_string(content)) return add_string(text, content) || serve_fail_memory(error);
    for (size_t i = 0; i < json_array_size(content); i++) {
        if (i && !app_text_add(text, "\n", 1)) return serve_fail_memory(error);
        if (!add_block_text(text, json_array_get(content, i), field, depth, error)) return false;
    }
    return true;
}

/* Returns the text of a list of blocks, or content itself if it is a string. Returns NULL with an error. */
static json_t *text_of(const json_t *content, const char *field, serve_error *error)
{
    app_text text = {0};
    const bool ok = app_text_add(&text, "", 0) && add_blocks(&text, content, field, 0, error);
    json_t *json = ok ? json_stringn(text.data, text.n) : NULL;
    app_text_free(&text);
    if (!json && !error->status) serve_fail_memory(error);
    return json;
}

/* Converts an image block to a content part in OpenAI's form. Returns NULL with an error. */
static json_t *image_of(const json_t *block, serve_error *error)
{
    const json_t *source = json_object_get(block, "source");
    const char *data = json_string_value(json_object_get(source, "data")), *url = json_string_value(json_object_get(source,
                                                                                                                    "url"));
    if (!url && !data)
        serve_fail(error, 400, "messages", "'messages': an image needs a 'source' with 'data', as base64, or a 'url'");
    if (error->status) return NULL;
    json_t *text = url ? json_string(url) : json_sprintf("data:image/any;base64,%s", data);
    return json_pack("{s:s, s:{s:o}}", "type", "image_url", "image_url", "url", text);
}

/* Converts blocks, including images, to content parts in OpenAI's form. Returns NULL with an error. */
static json_t *parts_of(const json_t *blocks, serve_error *error)
{
    json_t *out = json_array();
    for (size_t i = 0; out && i < json_array_size(blocks); i++) {
        const json_t *block = json_array_get(blocks, i);
        const char *type = json_string_value(json_object_get(block, "type"));
        json_t *part = NULL;
        if (type && strcmp(type, "image") == 0) {
            part = image_of(block, error);
        } else {
            app_text text = {0};
            if (app_text_add(&text, "", 0) && add_block_text(&text, block, "messages", 0, error))
                part = json_pack("{s:s, s:o}", "type", "text", "text", json_stringn(text.data, text.n));
            app_text_free(&text);
        }
        if (json_array_append_new(out, part) == 0) continue;
        json_decref(out);
        out = NULL;
    }
    if (!out && !error->status) serve_fail_memory(error);
    return out;
}

/* The converted blocks of one message. */
typedef struct parts {
    serve_server *server;
    json_t *texts;   /* blocks that are converted to text */
    json_t *calls;   /* tool_calls */
    json_t *results; /* messages with the role "tool" */
    app_text thinking;
    bool has_image;
} parts;

json_t *serve_json_text(const json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);
    json_t *out = text ? json_string(text) : NULL;
    app_json_free(text);
    return out;
}

/* Adds a call. Its input may be null, or the text of JSON that was cut: clients keep calls whose stream broke off. */
static bool add_call(parts *p, const json_t *block, size_t i, serve_error *error)
{
    const char *id = json_string_value(json_object_get(block, "id")), *name = json_string_value(json_object_get(block, "name"));
    if (!name || !json_object_get(block, "input"))
        return serve_fail(error, 400, "messages", "messages[%zu]: a tool_use block needs 'name' and 'input'", i);
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id ? id : "", "type", "function", "function", "name", name,
                             "arguments", serve_messages_arguments(json_object_get(block, "input")));
    return json_array_append_new(p->calls, call) == 0 || serve_fail_memory(error);
}

json_t *serve_messages_arguments(const json_t *given)
{
    if (!given || json_is_null(given)) return json_string("");
    if (json_is_string(given) || json_is_object(given)) return json_incref((json_t *)given);
    return serve_json_text(given);
}

static bool has_image(const json_t *blocks)
{
    for (size_t i = 0; i < json_array_size(blocks); i++) {
        const char *type = json_string_value(json_object_get(json_array_get(blocks, i), "type"));
        if (type && strcmp(type, "image") == 0) return true;
    }
    return false;
}

/* Adds a tool's result. One without a text that is marked as an error says so, as nothing else in it does. Data that is neither
 * a text nor a list of blocks goes as JSON. */
static bool add_result(parts *p, const json_t *block, serve_error *error)
{
    const char *id = json_string_value(json_object_get(block, "tool_use_id"));
    const json_t *blocks = json_object_get(block, "content");
    const bool is_data = json_is_object(blocks) || json_is_number(blocks) || json_is_boolean(blocks);
    json_t *content = is_data            ? serve_json_text(blocks)
                      : has_image(blocks) ? parts_of(blocks, error)
                                          : text_of(blocks, "messages", error);
    if (!content) return error->status ? false : serve_fail_memory(error);
    if (json_is_string(content) && !json_string_length(content) && json_is_true(json_object_get(block, "is_error"))) {
        json_decref(content);
        content = json_string("The tool failed.");
    }
    json_t *message = json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id", id ? id : "", "content", content);
    return json_array_append_new(p->results, message) == 0 || serve_fail_memory(error);
}

/* Adds reasoning. There are several blocks of it in a message where calls or texts stand between them. */
static bool add_thinking(parts *p, const json_t *block, serve_error *error)
{
    const json_t *text = json_object_get(block, "thinking");
    const bool ok = !json_string_length(text) ||
                    ((!p->thinking.n || app_text_add(&p->thinking, "\n", 1)) && add_string(&p->thinking, text));
    return ok || serve_fail_memory(error);
}

/* Returns whether blocks of this type belong to tools that Anthropic's service runs itself. */
static bool is_hosted(const char *type)
{
    static const char result[] = "_tool_result";
    const size_t n = strlen(type), n_result = sizeof result - 1;
    return strcmp(type, "server_tool_use") == 0 || strcmp(type, "mcp_tool_use") == 0 || strcmp(type, "container_upload") == 0 ||
           strcmp(type, "browser_state") == 0 || (n > n_result && strcmp(type + n - n_result, result) == 0);
}

static bool is_readable(const char *type)
{
    return strcmp(type, "text") == 0 || strcmp(type, "document") == 0 || strcmp(type, "search_result") == 0 ||
           strcmp(type, "compaction") == 0 || strcmp(type, "tool_reference") == 0;
}

static bool add_block(parts *p, const json_t *block, size_t i, serve_error *error)
{
    const char *type = json_string_value(json_object_get(block, "type"));
    if (!type) return serve_fail(error, 400, "messages", "messages[%zu]: a block has no 'type'", i);
    if (strcmp(type, "image") == 0) {
        p->has_image = true;
        return json_array_append(p->texts, (json_t *)block) == 0 || serve_fail_memory(error);
    }
    if (is_readable(type)) return json_array_append(p->texts, (json_t *)block) == 0 || serve_fail_memory(error);
    if (strcmp(type, "tool_use") == 0) return add_call(p, block, i, error);
    if (strcmp(type, "tool_result") == 0) return add_result(p, block, error);
    if (strcmp(type, "thinking") == 0) return add_thinking(p, block, error);
    if (strcmp(type, "redacted_thinking") == 0) return true;
    if (is_hosted(type)) {
        serve_note_left_out(p->server, "blocks", type);
        return true;
    }
    return serve_fail(error, 400, "messages",
                      "messages[%zu]: blocks of type '%.40s' are not supported; the models served here "
                      "read text",
                      i, type);
}

/* Converts a message to one or more of OpenAI's; tool results come before the user's text. */
static bool convert_message(serve_server *server, json_t *out, const json_t *message, size_t i, serve_error *error)
{
    const json_t *content = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role"));
    if (role && strcmp(role, "assistant") == 0 && (!content || json_is_null(content))) { /* it only called tools, or failed */
        json_t *empty = json_pack("{s:s, s:s}", "role", role, "content", "");
        return json_array_append_new(out, empty) == 0 || serve_fail_memory(error);
    }
    if (!role || (!json_is_string(content) && !json_is_array(content)))
        return serve_fail(error, 400, "messages", "messages[%zu] needs a 'role' and 'content'", i);
    if (json_is_string(content)) return json_array_append(out, (json_t *)message) == 0 || serve_fail_memory(error);
    parts p = {server, json_array(), json_array(), json_array(), {0}, false};
    bool ok = p.texts && p.calls && p.results;
    for (size_t k = 0; ok && k < json_array_size(content); k++) ok = add_block(&p, json_array_get(content, k), i, error);
    json_t *text = !ok ? NULL : p.has_image ? parts_of(p.texts, error) : text_of(p.texts, "messages", error);
    ok = text && json_array_extend(out, p.results) == 0;
    if (ok && (p.has_image || json_string_length(text) || json_array_size(p.calls) || !json_array_size(p.results))) {
        json_t *m = json_pack("{s:s, s:O}", "role", role, "content", text);
        if (m && json_array_size(p.calls)) ok = json_object_set(m, "tool_calls", p.calls) == 0;
        if (m && p.thinking.n)
            ok = ok && json_object_set_new(m, "reasoning_content", json_stringn(p.thinking.data, p.thinking.n)) == 0;
        ok = json_array_append_new(out, m) == 0 && ok;
    }
    if (!ok && !error->status) serve_fail_memory(error);
    json_decref(text);
    app_text_free(&p.thinking);
    json_decref(p.texts);
    json_decref(p.calls);
    json_decref(p.results);
    return ok;
}

/* Returns whether a list of blocks has calls or results. */
static bool has_calls(const json_t *blocks)
{
    for (size_t i = 0; i < json_array_size(blocks); i++) {
        const char *type = json_string_value(json_object_get(json_array_get(blocks, i), "type"));
        if (type && (strcmp(type, "tool_use") == 0 || strcmp(type, "tool_result") == 0)) return true;
    }
    return false;
}

bool serve_messages_blocks(serve_ask *ask, serve_error *error)
{
    const json_t *messages = json_object_get(ask->body, "messages");
    json_t *out = json_array();
    bool ok = out != NULL, any = false;
    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        const bool found = has_calls(json_object_get(message, "content"));
        any = any || found;
        ok = found ? convert_message(ask->server, out, message, i, error) : !json_array_append(out, message);
    }
    ok = ok && (!any || !json_object_set(ask->body, "messages", out));
    json_decref(out);
    return ok || (error->status ? false : serve_fail_memory(error));
}

/* Returns the length of what Claude Code puts before its instructions, "x-anthropic-billing-header: cc_version=2.1.0;
 * cch=1f0c2;" and the white space after it. It tells a model nothing and differs in every request, so that no prompt would
 * begin like another one and all would be computed whole. */
static size_t n_billing(const char *text)
{
    static const char name[] = "x-anthropic-billing-header:", word[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    size_t at = sizeof name - 1;
    if (strncmp(text, name, at)) return 0;
    for (;;) { /* pairs NAME=VALUE; */
        const size_t n_space = strspn(text + at, " "), n = strspn(text + at + n_space, word);
        if (!n || text[at + n_space + n] != '=') break;
        at += n_space + n + strcspn(text + at + n_space + n, ";\r\n");
        at += text[at] == ';';
    }
    return at + strspn(text + at, " \r\n");
}

/* Removes the header from "system", a string or a list of blocks; a block of the header alone goes. NULL when out of memory. */
static json_t *without_billing(json_t *system)
{
    if (json_is_string(system)) return json_string(json_string_value(system) + n_billing(json_string_value(system)));
    json_t *kept = json_array();
    bool ok = kept != NULL;
    for (size_t i = 0; ok && i < json_array_size(system); i++) {
        json_t *block = json_array_get(system, i), *copy;
        const char *text = json_string_value(json_object_get(block, "text"));
        const size_t n = text ? n_billing(text) : 0;
        if (n && !text[n]) continue;
        copy = n ? json_copy(block) : json_incref(block);
        ok = copy && (!n || !json_object_set_new(copy, "text", json_string(text + n))) && !json_array_append(kept, copy);
        json_decref(copy);
    }
    if (ok) return kept;
    json_decref(kept);
    return NULL;
}

/* Adds "system" as the first message, unless it is empty. */
static bool convert_system(json_t *out, json_t *system, serve_error *error)
{
    if (!system || json_is_null(system)) return true;
    if (!json_is_string(system) && !json_is_array(system))
        return serve_fail(error, 400, "system", "'system' must be a string or a list of text blocks");
    json_t *kept = without_billing(system), *text = kept ? text_of(kept, "system", error) : NULL;
    bool ok = text != NULL;
    if (json_string_length(text))
        ok = json_array_append_new(out, json_pack("{s:s, s:O}", "role", "system", "content", text)) == 0;
    json_decref(kept);
    json_decref(text);
    return ok || (error->status ? false : serve_fail_memory(error));
}

static json_t *convert_messages(const serve_ask *ask, serve_error *error)
{
    const json_t *body = ask->body;
    const json_t *messages = json_object_get(body, "messages");
    json_t *out = json_array();
    bool ok = out != NULL;
    if (!json_is_array(messages)) ok = serve_fail(error, 400, "messages", "'messages' must be a list");
    ok = ok && convert_system(out, json_object_get(body, "system"), error);
    for (size_t i = 0; ok && i < json_array_size(messages); i++)
        ok = convert_message(ask->server, out, json_array_get(messages, i), i, error);
    if (ok) return out;
    json_decref(out);
    if (!error->status) serve_fail_memory(error);
    return NULL;
}

/* Converts a tool to a function. Returns NULL with an error. */
static json_t *convert_tool(const json_t *tool, size_t i, serve_error *error)
{
    json_t *name = json_object_get(tool, "name"), *about = json_object_get(tool, "description");
    json_t *schema = json_object_get(tool, "input_schema"), *strict = json_object_get(tool, "strict");
    if (json_is_null(schema)) schema = NULL;
    if (!json_is_string(name)) serve_fail(error, 400, "tools", "tools[%zu] needs 'name'", i);
    else if (schema && !json_is_object(schema))
        serve_fail(error, 400, "tools", "tools[%zu]: 'input_schema' must be an object", i);
    else if (about && !json_is_null(about) && !json_is_string(about))
        serve_fail(error, 400, "tools", "tools[%zu]: 'description' must be a string", i);
    if (error->status) return NULL;
    json_t *out = json_pack("{s:s, s:{s:O, s:O*, s:O*}}", "type", "function", "function", "name", name, "parameters", schema,
                            "description", json_is_string(about) ? about : NULL);
    if (json_is_boolean(strict) && json_object_set(json_object_get(out, "function"), "strict", strict)) {
        json_decref(out);
        out = NULL;
    }
    if (!out) serve_fail_memory(error);
    return out;
}

/* Converts the list of tools. Anthropic's built-in types (web_search_20250305, bash_20250124) have no schema and are left
 * out. */
static json_t *convert_tools(const serve_ask *ask, const json_t *tools, serve_error *error)
{
    json_t *out = json_array();
    if (tools && !json_is_null(tools) && !json_is_array(tools)) serve_fail(error, 400, "tools", "'tools' must be a list");
    for (size_t i = 0; out && !error->status && i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i), *kind = json_object_get(tool, "type");
        const char *type = kind && !json_is_null(kind) ? json_string_value(kind) : "custom";
        if (!json_is_object(tool) || !type)
            serve_fail(error, 400, "tools", "tools[%zu] must be an object whose 'type', if any, is a string", i);
        else if (strcmp(type, "custom") != 0) serve_note_left_out(ask->server, "tools", type);
        else if (json_array_append_new(out, convert_tool(tool, i, error)) && !error->status) serve_fail_memory(error);
    }
    if (!error->status && out) return out;
    json_decref(out);
    if (!error->status) serve_fail_memory(error);
    return NULL;
}

static json_t *convert_choice(const json_t *choice, serve_error *error)
{
    const char *type = json_string_value(json_object_get(choice, "type"));
    const char *name = json_string_value(json_object_get(choice, "name"));
    if (type && strcmp(type, "auto") == 0) return json_string("auto");
    if (type && strcmp(type, "none") == 0) return json_string("none");
    if (type && strcmp(type, "any") == 0) return json_string("required");
    if (type && strcmp(type, "tool") == 0 && name)
        return json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", name);
    serve_fail(error, 400, "tool_choice", "'tool_choice' must be an object whose 'type' is auto, any, none or tool");
    return NULL;
}

/* Converts "tool_choice", including disable_parallel_tool_use. */
static bool convert_calls(json_t *out, const json_t *choice, serve_error *error)
{
    bool one = false;
    if (!choice || json_is_null(choice)) return true;
    if (!serve_get_bool(choice, "disable_parallel_tool_use", &one, error)) return false;
    const bool ok = json_object_set_new(out, "tool_choice", convert_choice(choice, error)) == 0 &&
                    (!one || json_object_set_new(out, "parallel_tool_calls", json_false()) == 0);
    return ok || (error->status ? false : serve_fail_memory(error));
}

/* Converts "output_config": the answer's format (formerly "output_format") and the reasoning effort. */
static bool convert_output(json_t *out, const json_t *body, serve_error *error)
{
    const json_t *config = NULL, *format = NULL, *schema = NULL;
    const char *type = NULL, *effort = NULL;
    if (!serve_get_object(body, "output_config", &config, error) || !serve_get_object(body, "output_format", &format, error) ||
        !serve_get_object(config, "format", &format, error) || !serve_get_text(config, "effort", &effort, error) ||
        !serve_get_text(format, "type", &type, error) || !serve_get_object(format, "schema", &schema, error))
        return false;
    if (format && (!type || strcmp(type, "json_schema") || !schema))
        return serve_fail(error, 400, "output_config",
                          "'output_config.format' must be {\"type\": \"json_schema\", \"schema\": {...}}");
    const bool ok =
        (!effort || json_object_set_new(out, "reasoning_effort", json_string(effort)) == 0) &&
        (!schema || json_object_set_new(out, "response_format",
                                        json_pack("{s:s, s:{s:O}}", "type", "json_schema", "json_schema", "schema",
                                                  (json_t *)schema)) == 0);
    return ok || serve_fail_memory(error);
}

/* Replaces the body by that of a chat completion. */
static bool messages_convert(serve_ask *ask, serve_error *error)
{
    static const char *const same[] = {"model", "max_tokens", "stream", "return_origins"};
    const json_t *thinking = json_object_get(ask->body, "thinking");
    json_t *body = json_object();
    bool ok = body && serve_ask_share(body, ask->body);
    for (size_t i = 0; ok && i < sizeof same / sizeof *same; i++) {
        json_t *v = json_object_get(ask->body, same[i]);
        ok = !v || json_object_set(body, same[i], v) == 0;
    }
    json_t *stops = json_object_get(ask->body, "stop_sequences");
    if (ok && stops && !json_is_null(stops) && !json_is_array(stops))
        ok = serve_fail(error, 400, "stop_sequences", "'stop_sequences' must be a list");
    if (ok && stops) ok = json_object_set(body, "stop", stops) == 0;
    if (ok) ok = json_object_set_new(body, "messages", convert_messages(ask, error)) == 0;
    if (ok) ok = json_object_set_new(body, "tools", convert_tools(ask, json_object_get(ask->body, "tools"), error)) == 0;
    ok = ok && convert_calls(body, json_object_get(ask->body, "tool_choice"), error) && convert_output(body, ask->body, error);
    const char *type = json_string_value(json_object_get(thinking, "type"));
    if (ok && type && strcmp(type, "disabled") == 0) ok = json_object_set_new(body, "enable_thinking", json_false()) == 0;
    const bool thinks = type && (strcmp(type, "enabled") == 0 || strcmp(type, "adaptive") == 0);
    if (ok && thinks) ok = json_object_set_new(body, "enable_thinking", json_true()) == 0;
    json_t *most = (json_t *)serve_get(thinking, "budget_tokens");
    uint32_t n_most;
    if (ok && most) ok = serve_get_u32(thinking, "budget_tokens", 0, INT32_MAX, "", &n_most, error);
    if (ok && most) ok = json_object_set(body, "reasoning_budget_tokens", most) == 0;
    return serve_ask_replace(ask, body, ok, error);
}

/* ---- Answers ------------------------------------------------------------------------------------------------------- */

/* The signature of every block of reasoning. Clients send only signed ones back, so without it reasoning would be lost. */
static const char signature[] = "aerie";

static json_t *usage(const serve_reply_state *r)
{
    return json_pack("{s:I, s:I, s:I, s:i}", "input_tokens", (json_int_t)(r->ask.n_tokens - serve_n_cached(r)), "output_tokens",
                     (json_int_t)serve_n_generated(r), "cache_read_input_tokens", (json_int_t)serve_n_cached(r),
                     "cache_creation_input_tokens", 0);
}

static json_t *message(const serve_reply_state *r, json_t *content, json_t *reason, const char *stop)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "id", r->id, "type", "message", "role", "assistant", "model",
                     app_json_text(r->ask.model_name, strlen(r->ask.model_name)), "content", content, "stop_reason", reason,
                     "stop_sequence", stop ? json_string(stop) : json_null(), "usage", usage(r));
}

static const char *reason_of(const serve_reply_state *r, const serve_output *s)
{
    switch (serve_output_finish(s)) {
    case SERVE_FINISH_CALLS: return "tool_use";
    case SERVE_FINISH_LENGTH: return "max_tokens";
    default: return serve_output_stop(r, s) ? "stop_sequence" : "end_turn";
    }
}

static bool begin(serve_reply_state *r)
{
    return serve_put_event(
        r, "message_start",
        json_pack("{s:s, s:o}", "type", "message_start", "message", message(r, json_array(), json_null(), NULL)));
}

static bool close_block(serve_reply_state *r, serve_output *s)
{
    if (!s->block_open) return true;
    s->block_open = false;
    const bool reasons = s->blocks[s->n_begun - 1].kind == ANSWER_REASONING;
    if (reasons && !serve_put_event(r, "content_block_delta",
                                    json_pack("{s:s, s:i, s:{s:s, s:s}}", "type", "content_block_delta", "index",
                                              s->n_begun - 1, "delta", "type", "signature_delta", "signature", signature)))
        return false;
    return serve_put_event(r, "content_block_stop",
                           json_pack("{s:s, s:i}", "type", "content_block_stop", "index", s->n_begun - 1));
}

/* Begins the newest block unless it has begun. */
static bool open_block(serve_reply_state *r, serve_output *s)
{
    if ((size_t)s->n_begun == s->n_blocks) return true;
    if (!close_block(r, s)) return false;
    const int i = s->n_begun++;
    const serve_block *b = &s->blocks[i];
    s->block_open = true;
    json_t *block;
    if (b->kind == ANSWER_CONTENT) block = json_pack("{s:s, s:s}", "type", "text", "text", "");
    else if (b->kind == ANSWER_REASONING)
        block = json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", "");
    else
        block = json_pack("{s:s, s:s, s:s, s:{}}", "type", "tool_use", "id", s->calls[b->from].id, "name",
                          s->calls[b->from].name, "input");
    return serve_put_event(r, "content_block_start",
                           json_pack("{s:s, s:i, s:o}", "type", "content_block_start", "index", i, "content_block", block));
}

static bool put_delta(serve_reply_state *r, serve_output *s, const char *type, const char *field, const answer_event *e)
{
    return serve_put_event(r, "content_block_delta",
                           json_pack("{s:s, s:i, s:{s:s, s:o}}", "type", "content_block_delta", "index", s->n_begun - 1,
                                     "delta", "type", type, field, app_json_text(e->text, e->n)));
}

static bool delta(serve_reply_state *r, serve_output *s, const answer_event *e)
{
    if (e->kind == ANSWER_CALL_END) return close_block(r, s);
    if (!open_block(r, s)) return false;
    switch (e->kind) {
    case ANSWER_CONTENT: return put_delta(r, s, "text_delta", "text", e);
    case ANSWER_REASONING: return put_delta(r, s, "thinking_delta", "thinking", e);
    case ANSWER_ARGUMENTS: return put_delta(r, s, "input_json_delta", "partial_json", e);
    default: return true;
    }
}

static bool end_choice(serve_reply_state *r, serve_output *s)
{
    return close_block(r, s);
}

static bool end(serve_reply_state *r)
{
    const serve_output *s = &r->outputs[0];
    const char *stop = serve_output_stop(r, s);
    return serve_put_event(r, "message_delta",
                           json_pack("{s:s, s:{s:s, s:o}, s:o, s:o}", "type", "message_delta", "delta", "stop_reason",
                                     reason_of(r, s), "stop_sequence", stop ? json_string(stop) : json_null(), "usage",
                                     usage(r), "timings", serve_json_timings(r, s))) &&
           serve_put_event(r, "message_stop", json_pack("{s:s}", "type", "message_stop"));
}

static bool fail(serve_reply_state *r)
{
    return serve_put_event(r, "error", serve_messages_error(&r->error));
}

static json_t *whole_block(const serve_output *s, const serve_block *b)
{
    if (b->kind == ANSWER_CONTENT) return json_pack("{s:s, s:o}", "type", "text", "text", serve_json_part(&s->content, b));
    if (b->kind == ANSWER_REASONING)
        return json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking", serve_json_part(&s->reasoning, b), "signature",
                         signature);
    const serve_tool_call *c = &s->calls[b->from];
    return json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", c->id, "name", c->name, "input",
                     serve_json_arguments(c));
}

static json_t *blocks_of(const serve_output *s)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < s->n_blocks; i++)
        ok = !json_array_append_new(list, whole_block(s, &s->blocks[i]));
    if (ok) return list;
    json_decref(list);
    return NULL;
}

static json_t *whole_json(serve_reply_state *r)
{
    serve_output *s = &r->outputs[0];
    json_t *json = message(r, blocks_of(s), json_string(reason_of(r, s)), serve_output_stop(r, s));
    if (json && json_object_set_new(json, "timings", serve_json_timings(r, s)) == 0) return json;
    json_decref(json);
    return NULL;
}

static void whole(serve_reply_state *r, serve_parts *out)
{
    serve_parts_json(out, whole_json(r));
}

static bool ping(serve_reply_state *r)
{
    return serve_put_event(r, "ping", json_pack("{s:s}", "type", "ping"));
}

static const serve_dialect dialect = {
    .prefix = "msg_",
    .type = "text/event-stream",
    .begin = begin,
    .delta = delta,
    .end_choice = end_choice,
    .end = end,
    .fail = fail,
    .whole = whole,
    .ping = ping,
};

void serve_post_messages(serve_call *call)
{
    serve_chat_run(call, messages_convert, &dialect);
}

void serve_post_count(serve_call *call)
{
    serve_chat_count(call, messages_convert, NULL);
}

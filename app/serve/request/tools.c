/* tools.c - the tools of a request (request.h): converts those of every dialect to functions, which is what models know.
 * A function stays as it is. A custom tool, whose input is plain text, becomes a function with one string argument; the tools
 * of a namespace become functions with the namespace before their names. ask->forms remembers how these are reported. Tools
 * that only another company's service can run (such as web_search) are left out, and a note in the log names their type. */
#include <stdlib.h>
#include <string.h>

#include "serve/request/request.h"

static const char input_name[] = "input"; /* name of a custom tool's string argument */

/* ---- Notes -------------------------------------------------------------------------------------------------------- */

/* Returns the word if it may be logged: the log must not contain text of requests, and names of types are short and plain. */
static const char *plain_word(const char *word)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    const size_t n = word ? strspn(word, letters) : 0;
    return n && n <= 40 && !word[n] ? word : "unknown";
}

/* Records a note. Returns false if it was recorded before. */
static bool is_new(serve_server *server, const char *note)
{
    serve_notes *notes = &server->notes;
    char text[sizeof *notes->items];
    snprintf(text, sizeof text, "%s", note);
    pthread_mutex_lock(&notes->lock);
    size_t i = 0;
    while (i < notes->n && strcmp(notes->items[i], text) != 0) i++;
    const bool says = i == notes->n && notes->n < SERVE_MAX_NOTES && !server->options->quiet;
    if (says) memcpy(notes->items[notes->n++], text, sizeof text);
    pthread_mutex_unlock(&notes->lock);
    return says;
}

void serve_note_left_out(serve_server *server, const char *what, const char *type)
{
    char text[96];
    snprintf(text, sizeof text, "%s of type %s", what, plain_word(type));
    if (is_new(server, text)) app_note("left out of requests, since this server cannot do it: %s", text);
}

void serve_note_continues(const serve_ask *ask)
{
    char text[96];
    snprintf(text, sizeof text, "continues %.80s", ask->model->name);
    if (is_new(ask->server, text))
        app_note("'%s' has no chat template: /api/generate continues the prompt as it is; --chat-template names a layout",
                 ask->model->name);
}

/* ---- Functions ---------------------------------------------------------------------------------------------------- */

/* Returns the tool's definition with name and description: the object itself, or the part under the type's name. */
static const json_t *body_of(const json_t *tool, const char *type)
{
    const json_t *inner = json_object_get(tool, type);
    return json_is_object(inner) ? inner : tool;
}

/* Joins "n" and "f" to "n__f", the name that agents give to the tools of a server. */
static json_t *joined_name(const char *space, const char *name)
{
    const size_t n = space ? strlen(space) : 0;
    if (!n) return json_string(name);
    return json_sprintf("%s%s%s", space, space[n - 1] == '_' ? "" : "__", name);
}

json_t *serve_tools_name(const json_t *call)
{
    const char *name = json_string_value(json_object_get(call, "name"));
    return name ? joined_name(json_string_value(json_object_get(call, "namespace")), name) : NULL;
}

/* The tools that are being read. */
typedef struct reading {
    serve_ask *ask;
    json_t *out, *names; /* functions; their names as keys, because a tool that is given twice counts once */
    bool knows_all;      /* unknown types are left out, since other servers know them */
    serve_error *error;
} reading;

/* Adds a tool under its function's name, and the name under which it is reported if that differs. Takes ownership of both. */
static bool add_tool_named(reading *r, json_t *tool, json_t *whole, const char *name, const char *space, bool custom)
{
    serve_ask *ask = r->ask;
    bool ok = tool && whole;
    const bool twice = ok && r->knows_all && json_object_get(r->names, json_string_value(whole));
    if (ok && !twice && (custom || space)) {
        if (!ask->forms) ask->forms = json_object();
        ok = !json_object_set_new(ask->forms, json_string_value(whole),
                                  json_pack("{s:s, s:b, s:s*}", "name", name, "custom", (int)custom, "namespace", space));
    }
    if (ok && !twice)
        ok = !json_object_set(r->names, json_string_value(whole), json_true()) && !json_array_append(r->out, tool);
    json_decref(whole);
    json_decref(tool);
    return ok || serve_fail_memory(r->error);
}

/* Adds a function in Responses' form, or one made here. Takes ownership of it. */
static bool add_function(reading *r, json_t *function, const char *name, const char *space, bool custom)
{
    json_t *whole = joined_name(space, name);
    json_t *tool = function && whole && !json_object_set(function, "name", whole)
                       ? json_pack("{s:s, s:O}", "type", "function", "function", function)
                       : NULL;
    json_decref(function);
    return add_tool_named(r, tool, whole, name, space, custom);
}

static bool add_plain(reading *r, json_t *tool, const char *name, const char *space)
{
    static const char *const kept[] = {"name", "description", "parameters", "strict"};
    if (json_is_object(json_object_get(tool, "function")))
        return add_tool_named(r, json_incref(tool), json_string(name), name, NULL, false);
    json_t *function = json_object(); /* the other members of Responses' form are not needed */
    bool ok = function != NULL;
    for (size_t i = 0; ok && i < sizeof kept / sizeof *kept; i++) {
        json_t *v = json_object_get(tool, kept[i]);
        ok = !v || json_is_null(v) || !json_object_set(function, kept[i], v);
    }
    json_t *schema = json_object_get(tool, "input_schema"); /* Anthropic's name, which Cursor sends in chats, too */
    if (ok && json_is_object(schema) && !json_object_get(function, "parameters"))
        ok = !json_object_set(function, "parameters", schema);
    if (ok) return add_function(r, function, name, space, false);
    json_decref(function);
    return serve_fail_memory(r->error);
}

/* Describes a custom tool's input by its grammar, if it has one, because the grammar cannot be enforced inside a JSON
 * string. */
static json_t *about_input(const json_t *custom)
{
    const json_t *format = json_object_get(custom, "format"), *inner = json_object_get(format, "grammar");
    const json_t *grammar = json_is_object(inner) ? inner : format;
    const char *syntax = json_string_value(json_object_get(grammar, "syntax"));
    const char *definition = json_string_value(json_object_get(grammar, "definition"));
    if (!definition) return json_string("The whole input of the tool, as plain text.");
    return json_sprintf("The whole input of the tool, as plain text. It follows this grammar (%s):\n%s",
                        syntax ? syntax : "lark", definition);
}

static bool add_custom(reading *r, const json_t *tool, const char *name, const char *space)
{
    const json_t *custom = body_of(tool, "custom");
    const char *about = json_string_value(json_object_get(custom, "description"));
    json_t *function = json_pack("{s:s, s:s, s:{s:s, s:{s:{s:s, s:o}}, s:[s]}}", "name", name, "description",
                                 about ? about : "A tool that takes plain text.", "parameters", "type", "object", "properties",
                                 input_name, "type", "string", "description", about_input(custom), "required", input_name);
    return add_function(r, function, name, space, true);
}

/* ---- Tools of all kinds --------------------------------------------------------------------------------------------- */

static bool add_tool(reading *r, json_t *tool, const char *space, size_t i);

static bool add_space(reading *r, const json_t *tool, size_t i)
{
    const char *name = json_string_value(json_object_get(tool, "name"));
    const json_t *tools = json_object_get(tool, "tools");
    if (!name || !*name || !json_is_array(tools))
        return serve_fail(r->error, 400, "tools", "tools[%zu]: a namespace needs 'name' and 'tools'", i);
    for (size_t k = 0; k < json_array_size(tools); k++)
        if (!add_tool(r, json_array_get(tools, k), name, i)) return false;
    return true;
}

static bool add_tool(reading *r, json_t *tool, const char *space, size_t i)
{
    const json_t *given = json_object_get(tool, "type");
    const char *type = json_is_null(given) || !given ? "function" : json_string_value(given);
    const bool plain = type && !strcmp(type, "function"), custom = type && !strcmp(type, "custom");
    if (!json_is_object(tool) || !type)
        return serve_fail(r->error, 400, "tools", "tools[%zu] must be an object with a 'type'", i);
    if (plain || custom) {
        const char *name = json_string_value(json_object_get(body_of(tool, type), "name"));
        if (!name) return serve_fail(r->error, 400, "tools", "tools[%zu]: the %s has no 'name'", i, type);
        return plain ? add_plain(r, tool, name, space) : add_custom(r, tool, name, space);
    }
    if (!r->knows_all)
        return serve_fail(r->error, 400, "tools", "tools[%zu]: tools are of type function or custom; found '%.60s'", i, type);
    if (!space && !strcmp(type, "namespace")) return add_space(r, tool, i);
    serve_note_left_out(r->ask->server, "tools", type);
    return true;
}

json_t *serve_tools_convert(serve_ask *ask, const json_t *tools, bool knows_all, serve_error *error)
{
    reading r = {ask, json_array(), json_object(), knows_all, error};
    bool ok = r.out && r.names;
    if (tools && !json_is_null(tools) && !json_is_array(tools)) ok = serve_fail(error, 400, "tools", "'tools' must be a list");
    for (size_t i = 0; ok && i < json_array_size(tools); i++) ok = add_tool(&r, json_array_get(tools, i), NULL, i);
    json_decref(r.names);
    if (ok) return r.out;
    json_decref(r.out);
    if (!error->status) serve_fail_memory(error);
    return NULL;
}

/* ---- Calls in both directions ---------------------------------------------------------------------------------------- */

json_t *serve_tools_arguments(const char *input)
{
    json_t *object = json_pack("{s:s}", input_name, input);
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_t *json = text ? json_string(text) : NULL;
    json_decref(object);
    free(text);
    return json;
}

/* Converts {"type": "custom", "custom": {"name", "input"}} to a function call. */
static bool convert_call(json_t *call, size_t i, size_t k, serve_error *error)
{
    const json_t *custom = json_object_get(call, "custom");
    json_t *name = json_object_get(custom, "name");
    const char *input = json_string_value(json_object_get(custom, "input"));
    if (!name || !input)
        return serve_fail(error, 400, "messages",
                          "messages[%zu]: tool_calls[%zu]: a custom call needs 'name' and 'input'", i, k);
    json_t *function = json_pack("{s:O, s:o}", "name", name, "arguments", serve_tools_arguments(input));
    if (json_object_set_new(call, "function", function) || json_object_set_new(call, "type", json_string("function")) ||
        json_object_del(call, "custom"))
        return serve_fail_memory(error);
    return true;
}

bool serve_tools_calls(json_t *message, size_t i, serve_error *error)
{
    json_t *calls = json_object_get(message, "tool_calls");
    for (size_t k = 0; k < json_array_size(calls); k++) {
        json_t *call = json_array_get(calls, k);
        if (json_is_object(json_object_get(call, "custom")) && !convert_call(call, i, k, error)) return false;
    }
    return true;
}

/* Replaces the id by nine letters and digits unless it has that form; equal ids give equal results. */
static json_t *short_id(const json_t *id)
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const char *text = json_string_value(id);
    char made[10] = "";
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    if (strlen(text) == 9 && strspn(text, letters) == 9) return json_incref((json_t *)id);
    for (const char *c = text; *c; c++) hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
    for (int i = 0; i < 9; i++, hash /= 62) made[i] = letters[hash % 62];
    return json_string(made);
}

static bool shorten(json_t *object, const char *field)
{
    const json_t *id = json_object_get(object, field);
    return !json_is_string(id) || json_object_set_new(object, field, short_id(id)) == 0;
}

bool serve_tools_ids(json_t *messages)
{
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i), *calls = json_object_get(message, "tool_calls");
        ok = shorten(message, "tool_call_id");
        for (size_t k = 0; ok && k < json_array_size(calls); k++) ok = shorten(json_array_get(calls, k), "id");
    }
    return ok;
}

const json_t *serve_tools_form(const serve_ask *ask, const char *name)
{
    return json_object_get(ask->forms, name);
}

bool serve_tools_is_custom(const serve_ask *ask, const char *name)
{
    return json_is_true(json_object_get(serve_tools_form(ask, name), "custom"));
}

const char *serve_tools_own_name(const serve_ask *ask, const char *name)
{
    const char *own = json_string_value(json_object_get(serve_tools_form(ask, name), "name"));
    return own ? own : name;
}

/* Returns the string in the arguments; if they were cut, as much of it as there is. */
json_t *serve_tools_input(const app_text *arguments)
{
    static const char *const ends[] = {"", "}", "\"}"};
    const char *data = arguments->data ? arguments->data : "";
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        app_text text = {0};
        json_t *object = NULL;
        app_json_status status = APP_JSON_NO_MEMORY;
        if (app_text_add(&text, data, arguments->n) && app_text_add(&text, ends[i], strlen(ends[i])))
            status = app_json_read(&object, text.data, text.n, JSON_ALLOW_NUL, NULL);
        if (status == APP_JSON_NO_MEMORY) {
            app_text_free(&text);
            return NULL;
        }
        json_t *input = json_object_get(object, input_name);
        if (json_is_string(input)) json_incref(input);
        else input = NULL;
        json_decref(object);
        app_text_free(&text);
        if (input) return input;
    }
    return app_json_text(data, arguments->n);
}

/* ---- "tools" and "tool_choice" ------------------------------------------------------------------------------------------ */

static bool fits_or_absent(const json_t *object, const char *field, json_type type)
{
    const json_t *v = json_object_get(object, field);
    return !v || json_is_null(v) || json_typeof(v) == type || (type == JSON_TRUE && json_is_boolean(v));
}

static bool check_tools(const json_t *tools, serve_error *error)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        if (!fits_or_absent(function, "description", JSON_STRING))
            return serve_fail(error, 400, "tools", "tools[%zu]: 'description' must be a string", i);
        if (!fits_or_absent(function, "parameters", JSON_OBJECT))
            return serve_fail(error, 400, "tools", "tools[%zu]: 'parameters' must be an object", i);
        if (!fits_or_absent(function, "strict", JSON_TRUE))
            return serve_fail(error, 400, "tools", "tools[%zu]: 'strict' must be true or false", i);
    }
    return true;
}

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

/* Returns the name in ask->tools of the function or custom tool that a choice names, with its namespace if any; NULL: none. */
static const char *find_tool(const serve_ask *ask, const json_t *choice, const char *type)
{
    json_t *name = serve_tools_name(body_of(choice, type));
    const char *found = NULL;
    for (size_t i = 0; name && !found && i < json_array_size(ask->tools); i++) {
        const char *own = name_of(json_array_get(ask->tools, i));
        if (!strcmp(own, json_string_value(name))) found = own;
    }
    json_decref(name);
    return found;
}

static bool is_word(const json_t *value, const char *word)
{
    return json_is_string(value) && !strcmp(json_string_value(value), word);
}

/* Removes tools that are not allowed. Reads {"type": "allowed_tools", "mode", "tools"}, or the last two under
 * "allowed_tools". */
static bool allow_tools(serve_ask *ask, const json_t *choice, serve_error *error)
{
    const json_t *allowed = body_of(choice, "allowed_tools"), *list = json_object_get(allowed, "tools");
    const json_t *mode = json_object_get(allowed, "mode");
    if (!json_is_array(list) || !(is_word(mode, "auto") || is_word(mode, "required")))
        return serve_fail(error, 400, "tool_choice",
                          "'tool_choice': allowed_tools needs 'mode', which is auto or required, and a list 'tools'");
    json_t *kept = json_array(), *names = json_object();
    bool ok = kept && names;
    for (size_t i = 0; ok && i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *type = json_string_value(json_object_get(one, "type"));
        json_t *name = serve_tools_name(body_of(one, type ? type : "function"));
        ok = !name || !json_object_set(names, json_string_value(name), json_true());
        json_decref(name);
    }
    for (size_t i = 0; ok && i < json_array_size(ask->tools); i++) {
        json_t *tool = json_array_get(ask->tools, i);
        if (json_object_get(names, name_of(tool))) ok = !json_array_append(kept, tool);
    }
    ask->tool_required = is_word(mode, "required");
    json_decref(names);
    json_decref(ask->tools);
    ask->tools = kept;
    return ok || serve_fail_memory(error);
}

static bool read_choice(serve_ask *ask, const json_t *choice, bool *none, serve_error *error)
{
    const json_t *type = json_object_get(choice, "type");
    if (is_word(type, "auto") || is_word(type, "none") || is_word(type, "any") || is_word(type, "required"))
        choice = type; /* clients and gateways send Anthropic's form {"type": "auto"} */
    *none = is_word(choice, "none");
    ask->tool_required = is_word(choice, "required") || is_word(choice, "any");
    if (!choice || json_is_null(choice) || *none || ask->tool_required || is_word(choice, "auto")) return true;
    if (is_word(type, "allowed_tools")) return allow_tools(ask, choice, error);
    if (json_is_object(choice) &&
        (!type || is_word(type, "function") || is_word(type, "custom") || is_word(type, "tool"))) {
        const char *word = type ? json_string_value(type) : "function";
        ask->tool_name = find_tool(ask, choice, word);
        if (!ask->tool_name) ask->tool_name = json_string_value(json_object_get(body_of(choice, word), "name"));
        ask->tool_required = true;
        if (ask->tool_name) return true;
    }
    return serve_fail(error, 400, "tool_choice", "'tool_choice' is none, auto, required, or an object that names a function, a "
                      "custom tool, or allowed_tools");
}

bool serve_ask_tools(serve_ask *ask, const json_t *object, serve_error *error)
{
    const json_t *old = json_object_get(object, "functions");
    bool none, parallel = true;
    if (json_array_size(old))
        return serve_fail(error, 400, "functions", "'functions' is not supported by this server; use 'tools'");
    ask->tools = serve_tools_convert(ask, json_object_get(object, "tools"), false, error);
    if (!ask->tools || !check_tools(ask->tools, error) ||
        !read_choice(ask, json_object_get(object, "tool_choice"), &none, error) ||
        !serve_get_bool(object, "parallel_tool_calls", &parallel, error))
        return false;
    ask->one_call = !parallel;
    if (none || !json_array_size(ask->tools)) {
        json_decref(ask->tools);
        ask->tools = NULL;
    }
    if (ask->tools) ask->style = ask->model->with_tools.style;
    if (ask->tool_required && !ask->tools)
        return serve_fail(error, 400, "tool_choice", "'tool_choice' asks for a call, but there are no 'tools'");
    return true;
}

bool serve_tools_check(const serve_ask *ask, serve_error *error)
{
    if (!ask->tools || ask->model->takes_tools) return true;
    return serve_fail(error, 400, "tools",
                      "the chat template of '%.100s' has no place for tools, so the model would not see them: leave 'tools' "
                      "out, or start the server with a template that has one (--chat-template-file)",
                      ask->model->name);
}

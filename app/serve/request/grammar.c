/* grammar.c - what restricts an answer apart from tools: grammars, schemas and choices of a request, and the limit of its
 * reasoning (request.h).
 * Owns nothing: the grammar belongs to the request. An answer has at most one of them; two are an error. */
#include <stdlib.h>
#include <string.h>

#include "aerie_extra.h"
#include "serve/request/request.h"

enum { MAX_CALL_PARTS = 1024 };

static bool set_grammar(serve_ask *ask, aerie_status status, aerie_grammar *grammar, const aerie_error *why, const char *field,
                        serve_error *error)
{
    if (status != AERIE_OK) return serve_fail_library(error, status, why, field);
    if (ask->grammar) {
        aerie_grammar_free(grammar);
        return serve_fail(error, 400, field, "'%s' and another grammar or schema exclude each other", field);
    }
    ask->grammar = grammar;
    ask->has_schema = true;
    return true;
}

static bool set_gbnf(serve_ask *ask, const char *gbnf, const char *field, serve_error *error)
{
    aerie_error why = {0};
    aerie_grammar *grammar = NULL;
    const aerie_status status = aerie_grammar_create(&grammar, gbnf, strlen(gbnf), &why);
    if (!set_grammar(ask, status, grammar, &why, field, error)) return false;
    ask->has_schema = false;
    return true;
}

/* Logs the part of a schema that a grammar cannot enforce; user: the field of the request. */
static void note_schema(void *user, aerie_log_level level, const char *sentence)
{
    (void)level;
    app_note("'%s': %s", (const char *)user, sentence);
}

static aerie_status schema_grammar(aerie_grammar **grammar, const char *json, const char *field, aerie_error *why)
{
    aerie_schema_params params = aerie_schema_params_default();
    params.log = (aerie_log){note_schema, (void *)(uintptr_t)field};
    return aerie_grammar_create_schema(grammar, json, strlen(json), &params, why);
}

bool serve_ask_schema(serve_ask *ask, const json_t *value, const char *field, serve_error *error)
{
    aerie_grammar *grammar = NULL;
    aerie_error why = {0};
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (value && !text) return serve_fail_memory(error);
    const char *json = text ? text : "{\"type\":\"object\"}";
    const aerie_status status = schema_grammar(&grammar, json, field, &why);
    app_json_free(text);
    return set_grammar(ask, status, grammar, &why, field, error);
}

/* Returns whether a tool is strict, that is, demands calls that fit its schema. */
static bool is_strict(const json_t *tools)
{
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (json_is_true(json_object_get(json_object_get(json_array_get(tools, i), "function"), "strict"))) return true;
    return false;
}

/* Returns whether a grammar expresses the schema; if not, *why says why. */
static bool is_possible(const json_t *schema, aerie_error *why)
{
    aerie_grammar *grammar = NULL;
    const aerie_schema_params params = aerie_schema_params_default();
    char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    const aerie_status status =
        text ? aerie_grammar_create_schema(&grammar, text, strlen(text), &params, why) : AERIE_ERROR_MEMORY;
    app_json_free(text);
    aerie_grammar_free(grammar);
    return status == AERIE_OK || status == AERIE_ERROR_MEMORY;
}

/* One tool with a schema that is wrong must not keep the others from being called, nor from being constrained: clients send the
 * tools of many servers together. */
bool serve_ask_loosen(serve_ask *ask, serve_error *error)
{
    json_t *list = ask->loose_tools ? NULL : json_array();
    bool any = false, ok = list != NULL;
    for (size_t i = 0; ok && i < json_array_size(ask->tools); i++) {
        json_t *tool = json_array_get(ask->tools, i), *function = json_object_get(tool, "function");
        const json_t *schema = json_object_get(function, "parameters");
        aerie_error why = {0};
        if (!json_is_object(schema) || json_is_true(json_object_get(function, "strict")) || is_possible(schema, &why)) {
            ok = !json_array_append(list, tool);
            continue;
        }
        app_note("'tools': %s; its tool takes any object", why.text);
        json_t *name = json_object_get(function, "name");
        ok = !json_array_append_new(list, json_pack("{s:s, s:{s:O, s:{s:s}}}", "type", "function", "function", "name", name,
                                                    "parameters", "type", "object"));
        any = true;
    }
    if (ok && any) {
        ask->loose_tools = list;
        *error = (serve_error){0};
        return true;
    }
    json_decref(list);
    return false;
}

/* Creates a lazy grammar. rest: the grammar of an answer that is not a call; NULL: any text. */
static aerie_status lazy_grammar(aerie_grammar **grammar, const answer_lazy *lazy, const aerie_grammar *rest, aerie_error *why)
{
    aerie_status status = AERIE_OK;
    aerie_lazy_params p = aerie_lazy_params_default();
    aerie_grammar **schemas = calloc(lazy->n_schemas + 1, sizeof *schemas);
    aerie_grammar_part *parts = calloc(lazy->n_parts + 1, sizeof *parts);
    if (!schemas || !parts) status = AERIE_ERROR_MEMORY;
    for (size_t i = 0; status == AERIE_OK && i < lazy->n_schemas; i++)
        if (lazy->schemas[i])
            status = schema_grammar(&schemas[i], lazy->schemas[i], "tools", why);
    for (size_t i = 0; status == AERIE_OK && i < lazy->n_parts; i++)
        parts[i] = (aerie_grammar_part){lazy->parts[i].text, strlen(lazy->parts[i].text), schemas[lazy->parts[i].schema]};
    p.triggers = lazy->triggers;
    p.n_triggers = lazy->n_triggers;
    p.parts = parts;
    p.n_parts = lazy->n_parts;
    p.open = lazy->open;
    p.close = lazy->close;
    p.opened = lazy->opened;
    p.rest = rest;
    p.tails = lazy->tails;
    p.n_tails = lazy->n_tails;
    if (status == AERIE_OK) status = aerie_grammar_create_lazy(grammar, &p, why);
    for (size_t i = 0; schemas && i < lazy->n_schemas; i++) aerie_grammar_free(schemas[i]);
    free(schemas);
    free(parts);
    return status;
}

/* Returns the parameters of the answer's parser; valid as long as the request. */
static answer_params params_of(const serve_ask *ask)
{
    return (answer_params){.style = ask->style,
                           .tools = ask->loose_tools ? ask->loose_tools : ask->tools,
                           .prompt = ask->prompt,
                           .n_prompt = ask->n_prompt,
                           .begun = ask->begun.data,
                           .n_begun = ask->begun.n};
}

bool serve_ask_reason(serve_ask *ask, serve_error *error)
{
    aerie_lazy_params p = aerie_lazy_params_default();
    aerie_grammar *whole = NULL;
    aerie_error why = {0};
    const answer_params params = params_of(ask);
    if (!ask->grammar || !answer_is_opened(&params) || !answer_reasoning_tags(&ask->style, &p.open, &p.close)) return true;
    p.opened = true;
    p.rest = ask->grammar;
    const aerie_status status = aerie_grammar_create_lazy(&whole, &p, &why);
    if (status != AERIE_OK) return serve_fail_library(error, status, &why, "response_format");
    aerie_grammar_free(ask->grammar);
    ask->grammar = whole;
    return true;
}

/* llama.cpp's names, Qwen's and vLLM's. */
bool serve_ask_budget(serve_ask *ask, const json_t *object, serve_error *error)
{
    static const char *const names[] = {"reasoning_budget_tokens", "thinking_budget_tokens", "thinking_budget",
                                        "thinking_token_budget"};
    const app_chat_options *chat = &ask->server->options->chat;
    ask->reasoning_budget = chat->reasoning_budget;
    ask->reasoning_message = chat->reasoning_message;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *given = serve_get(object, names[i]);
        uint32_t n = 0;
        if (!given || (json_is_integer(given) && json_integer_value(given) == -1)) continue; /* as the server has it */
        if (!serve_get_u32(object, names[i], 0, INT32_MAX, ", or -1 for the server's", &n, error)) return false;
        ask->reasoning_budget = (int32_t)n;
    }
    const json_t *thinking = serve_get(object, "thinking"), *most = json_object_get(thinking, "budget_tokens"); /* as LiteLLM */
    uint32_t n = 0;
    if (most && !json_is_null(most)) {
        if (!serve_get_u32(thinking, "budget_tokens", 0, INT32_MAX, "", &n, error)) return false;
        ask->reasoning_budget = (int32_t)n;
    }
    return serve_get_text(object, "reasoning_budget_message", &ask->reasoning_message, error);
}

bool serve_ask_limit(serve_ask *ask, serve_error *error)
{
    const answer_params params = params_of(ask);
    if (ask->reasoning_budget < 0 || ask->tool_required || !ask->style.tags) return true;
    ask->limited = answer_limit_reasoning(&params, (uint32_t)ask->reasoning_budget, ask->reasoning_message, &ask->reasoning,
                                          &ask->reasoning_end);
    const char *open, *close;
    return ask->limited || !answer_reasoning_tags(&ask->style, &open, &close) || serve_fail_memory(error);
}

static aerie_status mixed_grammar(aerie_grammar **grammar, serve_ask *ask, bool free_calls, aerie_error *why)
{
    answer_lazy lazy;
    const answer_params params = params_of(ask);
    if (!answer_mixed_create(&lazy, &params, free_calls)) return AERIE_ERROR_MEMORY;
    lazy.opened = answer_is_opened(&params) && answer_reasoning_tags(&ask->style, &lazy.open, &lazy.close);
    if (!lazy.opened) lazy.open = lazy.close = NULL;
    const aerie_status status = lazy_grammar(grammar, &lazy, ask->grammar, why);
    answer_lazy_free(&lazy);
    return status;
}

bool serve_ask_mixed(serve_ask *ask, serve_error *error)
{
    aerie_error why = {0};
    aerie_grammar *whole = NULL;
    const bool many = json_array_size(ask->tools) > MAX_CALL_PARTS;
    aerie_status status = mixed_grammar(&whole, ask, many, &why);
    if (status != AERIE_OK && status != AERIE_ERROR_MEMORY && serve_ask_loosen(ask, error))
        status = mixed_grammar(&whole, ask, many, &why);
    if (status != AERIE_OK && status != AERIE_ERROR_MEMORY && !is_strict(ask->tools)) /* no grammar expresses it */
        status = mixed_grammar(&whole, ask, true, &why);
    if (status != AERIE_OK) return serve_fail_library(error, status, &why, "tools");
    aerie_grammar_free(ask->grammar);
    ask->grammar = whole;
    return true;
}

/* Makes the grammar of calls that an answer may begin; NULL: the format has none. */
static aerie_status calls_grammar(aerie_grammar **grammar, const serve_ask *ask, aerie_error *why)
{
    answer_lazy lazy;
    const answer_params params = params_of(ask);
    if (!answer_lazy_create(&lazy, &params)) return AERIE_ERROR_MEMORY;
    aerie_status status = AERIE_OK;
    if (lazy.n_parts && lazy.n_parts <= MAX_CALL_PARTS) status = lazy_grammar(grammar, &lazy, NULL, why);
    answer_lazy_free(&lazy);
    return status;
}

bool serve_ask_calls(serve_ask *ask, serve_error *error)
{
    aerie_error why = {0};
    aerie_grammar *grammar = NULL;
    aerie_status status = calls_grammar(&grammar, ask, &why);
    if (status != AERIE_OK && status != AERIE_ERROR_MEMORY && serve_ask_loosen(ask, error))
        status = calls_grammar(&grammar, ask, &why);
    if (status == AERIE_ERROR_MEMORY) return serve_fail_memory(error);
    if (status != AERIE_OK && !is_strict(ask->tools)) return true; /* grammars cannot express the schema, so calls stay free */
    return (status == AERIE_OK && !grammar) || set_grammar(ask, status, grammar, &why, "tools", error);
}

static bool read_format(serve_ask *ask, const json_t *object, serve_error *error)
{
    const json_t *format = NULL, *inner = NULL;
    const char *type = NULL;
    if (!serve_get_object(object, "response_format", &format, error)) return false;
    if (!format) return true;
    if (!serve_get_text(format, "type", &type, error)) return false;
    if (!type || strcmp(type, "text") == 0) return true;
    if (strcmp(type, "json_object") == 0) return serve_ask_schema(ask, serve_get(format, "schema"), "response_format", error);
    if (strcmp(type, "json_schema") == 0) {
        if (!serve_get_object(format, "json_schema", &inner, error)) return false;
        const json_t *schema = inner ? serve_get(inner, "schema") : serve_get(format, "schema");
        if (!schema) return serve_fail(error, 400, "response_format", "'response_format.json_schema' has no 'schema'");
        return serve_ask_schema(ask, schema, "response_format", error);
    }
    return serve_fail(error, 400, "response_format",
                      "'response_format.type' is text, json_object or json_schema; found '%.60s'", type);
}

/* ---- vLLM's fields --------------------------------------------------------------------------------------------------- */

static bool add_quoted(app_text *gbnf, const char *text, size_t n)
{
    bool ok = app_text_add(gbnf, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        char escaped[8] = {(char)c};
        if (c < 32 || c == 127) snprintf(escaped, sizeof escaped, "\\x%02x", c);
        else if (c == '"' || c == '\\') snprintf(escaped, sizeof escaped, "\\%c", c);
        ok = ok && app_text_add(gbnf, escaped, strlen(escaped));
    }
    return ok && app_text_add(gbnf, "\"", 1);
}

/* Restricts the answer to one of several texts. */
static bool set_choice(serve_ask *ask, const json_t *list, const char *field, serve_error *error)
{
    enum { MOST = 1000 };
    app_text gbnf = {0};
    aerie_error why = {0};
    aerie_grammar *grammar = NULL;
    const size_t n = json_array_size(list);
    if (!n || n > MOST) return serve_fail(error, 400, field, "'%s' must be a list of 1 to %d texts", field, MOST);
    bool ok = app_text_add(&gbnf, "root ::= ", 9);
    for (size_t i = 0; ok && i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_string_length(v) || strlen(json_string_value(v)) != json_string_length(v)) {
            app_text_free(&gbnf);
            return serve_fail(error, 400, field, "'%s'[%zu] must be a text that is not empty, without NUL", field, i);
        }
        ok = app_text_add(&gbnf, " | ", i ? 3 : 0) && add_quoted(&gbnf, json_string_value(v), json_string_length(v));
    }
    if (!ok) {
        app_text_free(&gbnf);
        return serve_fail_memory(error);
    }
    const aerie_status status = aerie_grammar_create(&grammar, gbnf.data, gbnf.n, &why);
    app_text_free(&gbnf);
    return set_grammar(ask, status, grammar, &why, field, error);
}

/* Reads a schema that is given as an object or as a text. */
static bool set_json(serve_ask *ask, const json_t *value, const char *field, serve_error *error)
{
    aerie_error why = {0};
    aerie_grammar *grammar = NULL;
    if (!json_is_string(value)) return serve_ask_schema(ask, value, field, error);
    const aerie_status status = schema_grammar(&grammar, json_string_value(value), field, &why);
    return set_grammar(ask, status, grammar, &why, field, error);
}

/* Reads "structured_outputs" {json, choice, grammar, json_object}, or the former names such as "guided_choice". */
static bool read_structured(serve_ask *ask, const json_t *object, serve_error *error)
{
    const json_t *given = NULL;
    if (!serve_get_object(object, "structured_outputs", &given, error)) return false;
    for (int former = 0; former < 2; former++) {
        const json_t *from = former ? object : given;
        const char *field = former ? "guided_grammar" : "structured_outputs";
        const json_t *json = serve_get(from, former ? "guided_json" : "json");
        const json_t *choice = serve_get(from, former ? "guided_choice" : "choice");
        const char *text = NULL;
        bool any_object = false;
        if (!from) continue;
        if (!former && serve_get(from, "regex"))
            return serve_fail(error, 400, field,
                              "'structured_outputs.regex' is not supported; a 'grammar' (GBNF) can say the same");
        if (!former && !serve_get_bool(from, "json_object", &any_object, error)) return false;
        if (json && !set_json(ask, json, former ? "guided_json" : field, error)) return false;
        if (any_object && !serve_ask_schema(ask, NULL, field, error)) return false;
        if (choice && !set_choice(ask, choice, former ? "guided_choice" : "structured_outputs.choice", error)) return false;
        if (!serve_get_text(from, former ? field : "grammar", &text, error)) return false;
        if (text && *text && !set_gbnf(ask, text, field, error)) return false;
    }
    return true;
}

bool serve_ask_grammar(serve_ask *ask, const json_t *object, serve_error *error)
{
    const char *text = NULL;
    const json_t *schema = serve_get(object, "json_schema");
    if (!serve_get_text(object, "grammar", &text, error)) return false;
    if (text && *text && !set_gbnf(ask, text, "grammar", error)) return false;
    if (schema && !serve_ask_schema(ask, schema, "json_schema", error)) return false;
    return read_format(ask, object, error) && read_structured(ask, object, error);
}

/* template_reads.c - implements template_reads.h by searching words in the source of a template. */
#include "serve/parse/template_reads.h"

#include <string.h>

/* The names of a message's reasoning, the most common first: a template with several falls back to the later ones. */
static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Returns whether the text contains one of the bytes `before`, then the word, then the end of the word. */
static bool has_word(const char *text, const char *word, const char *before)
{
    const size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += n)
        if (at > text && strchr(before, at[-1]) && !is_word(at[n])) return true;
    return false;
}

static bool has_level(const char *text, const char *level)
{
    return has_word(text, level, "'\"");
}

serve_reads serve_reads_of(const char *text)
{
    serve_reads r = {0};
    if (!text) return r;
    r.reasoning = strstr(text, "reasoning is not undefined") || strstr(text, "reasoning is defined");
    r.mode = has_word(text, "thinking_mode", " (") && has_level(text, "disabled");
    r.budget = has_word(text, "thinking_budget", " (");
    r.effort_level = has_word(text, "thinking_effort", " (");
    r.strength = has_word(text, "reasoning_strength", " (");
    r.no_think = has_level(text, "no_think") && has_word(text, "reasoning_effort", " (");
    r.low = has_level(text, "low");
    r.high = has_level(text, "high");
    r.medium = has_level(text, "medium");
    r.minimal = has_level(text, "minimal");
    r.max = has_level(text, "max");
    r.xhigh = has_level(text, "xhigh");
    r.parts = has_word(text, "thinking", "'\"") && strstr(text, "block['thinking']");
    for (size_t i = 0; i < 3 && !r.message_reasoning; i++) /* message.reasoning, message['reasoning'] */
        if (has_word(text, names[i], ".'\"")) r.message_reasoning = names[i];
    return r;
}

/* Returns the level that the template knows and that is nearest to the requested one. */
static const char *nearest(const serve_reads *r, const char *effort)
{
    static const char *const levels[] = {"minimal", "low", "medium", "high", "xhigh", "max"};
    const bool known[] = {r->minimal, r->low, r->medium, r->high, r->xhigh, r->max};
    enum { N = sizeof levels / sizeof *levels };
    size_t at = N;
    if (!r->low || !r->high) return effort;
    for (size_t i = 0; i < N; i++)
        if (strcmp(levels[i], effort) == 0) at = i;
    if (at == N) return effort;
    for (size_t away = 0; away < N; away++) { /* rounds up */
        if (at + away < N && known[at + away]) return levels[at + away];
        if (away <= at && known[at - away]) return levels[at - away];
    }
    return effort;
}

static bool put(json_t *variables, const char *name, json_t *value)
{
    return json_object_set_new(variables, name, value) == 0;
}

bool serve_reads_think(const serve_reads *r, json_t *variables, serve_think think, const char *effort)
{
    const bool on = think == SERVE_THINK_ON, off = think == SERVE_THINK_OFF;
    bool ok = true;
    if (effort && !off) effort = nearest(r, effort);
    if (off && r->no_think) effort = "no_think";
    else if (off && r->low && r->minimal) effort = "minimal"; /* the lowest level that the template names */
    if (on && !effort && r->no_think) effort = "high"; /* its default is no thinking */
    if (effort) ok = put(variables, "reasoning_effort", json_string(effort));
    if (effort && !off && r->effort_level) ok = ok && put(variables, "thinking_effort", json_string(effort));
    if (effort && !off && r->strength) ok = ok && put(variables, "reasoning_strength", json_string(effort));
    if (think == SERVE_THINK_DEFAULT) return ok;
    ok = ok && put(variables, "enable_thinking", json_boolean(on)) && put(variables, "thinking", json_boolean(on));
    if (r->reasoning) ok = ok && put(variables, "reasoning", json_boolean(on));
    if (r->mode) ok = ok && put(variables, "thinking_mode", json_string(on ? "enabled" : "disabled"));
    if (r->budget && off) ok = ok && put(variables, "thinking_budget", json_integer(0));
    return ok;
}

static json_t *reasoning_of(const json_t *message)
{
    json_t *said = NULL;
    for (size_t i = 0; i < 3 && !json_string_length(said); i++) said = json_object_get(message, names[i]);
    return json_string_length(said) ? said : NULL;
}

bool serve_reads_message(const serve_reads *r, json_t *message, bool merge)
{
    json_t *said = json_incref(reasoning_of(message)), *text = json_object_get(message, "content");
    bool ok = true;
    if (!said || !r->message_reasoning) merge = false;
    if (merge && json_string_length(text) && json_object_get(message, "tool_calls")) {
        json_t *both = json_sprintf("%s\n\n%s", json_string_value(said), json_string_value(text));
        json_decref(said);
        said = both;
        ok = said && json_object_set_new(message, "content", json_string("")) == 0;
    }
    if (ok && said && r->message_reasoning) ok = json_object_set(message, r->message_reasoning, said) == 0;
    json_decref(said);
    return ok;
}

bool serve_reads_parts(const serve_reads *r, json_t *messages)
{
    bool ok = true;
    for (size_t i = 0; r->parts && ok && i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i), *said = reasoning_of(message);
        json_t *text = json_object_get(message, "content");
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!said || !json_is_string(text) || !role || strcmp(role, "assistant")) continue;
        json_t *parts = json_pack("[{s:s, s:O}]", "type", "thinking", "thinking", said);
        if (json_string_length(text))
            ok = parts && json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", text)) == 0;
        ok = ok && json_object_set_new(message, "content", parts) == 0;
    }
    return ok;
}

/* Adds an empty text or object if the member is missing. */
static bool fill(json_t *function, const char *name, json_t *value)
{
    if (!json_object_get(function, name)) return json_object_set_new(function, name, value) == 0;
    json_decref(value);
    return true;
}

static const char *type_of(const json_t *schema, int depth)
{
    static const char *const lists[] = {"anyOf", "oneOf", "allOf", "type"};
    const json_t *type = json_object_get(schema, "type"), *values = json_object_get(schema, "enum");
    if (json_is_string(type)) return json_string_value(type);
    for (size_t i = 0; depth < 8 && i < 4; i++) {
        const json_t *list = json_object_get(schema, lists[i]);
        for (size_t k = 0; k < json_array_size(list); k++) {
            const json_t *item = json_array_get(list, k);
            const char *name = json_is_string(item) ? json_string_value(item) : type_of(item, depth + 1);
            if (strcmp(name, "null")) return name;
        }
    }
    const json_t *value = json_array_size(values) ? json_array_get(values, 0) : json_object_get(schema, "const");
    if (json_is_boolean(value)) return "boolean";
    return json_is_integer(value) ? "integer" : json_is_number(value) ? "number" : "string";
}

/* Fills in what templates write of each parameter: a type and a description, and for an array the type of its items. */
static bool fill_parameter(json_t *schema)
{
    const char *type = type_of(schema, 0);
    return fill(schema, "description", json_string("")) && json_object_set_new(schema, "type", json_string(type)) == 0 &&
           (strcmp(type, "array") || fill(schema, "items", json_pack("{s:s}", "type", "string")));
}

json_t *serve_reads_tools(const json_t *tools, bool whole)
{
    json_t *copy = json_deep_copy(tools);
    bool ok = copy != NULL;
    for (size_t i = 0; ok && i < json_array_size(copy); i++) {
        json_t *tool = json_array_get(copy, i), *function = json_object_get(tool, "function"), *parameters, *value;
        const char *key;
        void *next;
        json_object_foreach_safe(tool, next, key, value) if (json_is_null(value)) json_object_del(tool, key);
        json_object_foreach_safe(function, next, key, value) if (json_is_null(value)) json_object_del(function, key);
        if (!whole) continue;
        ok = fill(tool, "type", json_string("function")) && fill(function, "description", json_string("")) &&
             fill(function, "parameters", json_object());
        parameters = json_object_get(function, "parameters");
        ok = ok && fill(parameters, "type", json_string("object")) && fill(parameters, "properties", json_object());
        json_object_foreach(json_object_get(parameters, "properties"), key, value)
            if (json_is_object(value)) ok = ok && fill_parameter(value);
    }
    if (ok) return copy;
    json_decref(copy);
    return NULL;
}

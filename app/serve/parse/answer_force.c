/* answer_force.c - calls that fit the tools' schemas. For an answer that must be a call, it makes the end of the prompt and the
 * schema of the rest; for one that may contain calls, what may follow the beginning of a call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/parse/answer_int.h"

#define MAX_DEPTH 512 /* of a schema */

/* Adjusts references within a schema that moves to `path` of another one. */
static bool move_references(json_t *json, const char *path, int depth)
{
    const char *key;
    json_t *value;
    size_t i;
    if (depth > MAX_DEPTH) return false;
    json_object_foreach(json, key, value)
    {
        const char *to = json_string_value(value);
        if (to && !strcmp(key, "$ref") && to[0] == '#' && (!to[1] || to[1] == '/')) { /* "#name" is a name, not a place */
            json_t *moved = json_sprintf("#%s%s", path, to + 1);
            if (!moved || json_object_set_new(json, key, moved)) return false;
        } else if (!move_references(value, path, depth + 1)) {
            return false;
        }
    }
    json_array_foreach(json, i, value) if (!move_references(value, path, depth + 1)) return false;
    return true;
}

/* Returns the schema of a tool's arguments, to be placed at `path` (a JSON pointer) of another schema. */
static json_t *arguments_schema(const json_t *tool, const char *path)
{
    const json_t *schema = answer_tool_schema(tool);
    json_t *own = json_is_object(schema) ? json_deep_copy(schema) : json_pack("{s:s, s:{}}", "type", "object", "properties");
    if (own && !move_references(own, path, 0)) {
        json_decref(own);
        own = NULL;
    }
    return own;
}

/* Returns the schema of {"name": ..., "arguments": ...} for one tool, or of {name: arguments}: alternative i, or the only one
 * if i < 0. */
static json_t *object_schema(const answer_format *f, const json_t *tool, int i)
{
    const char *name = answer_tool_name(tool), *name_key = f->name_key ? f->name_key : "name";
    const char *key = f->keyed ? name : f->arguments_key ? f->arguments_key : "arguments";
    char path[64 + 2 * ANSWER_MAX_NAME] = "";
    size_t n = 0;
    if (i >= 0) n = (size_t)snprintf(path, sizeof path, "/anyOf/%d", i);
    n += (size_t)snprintf(path + n, sizeof path - n, "/properties/");
    for (const char *c = key; *c && n + 2 < sizeof path; c++) { /* as RFC 6901 escapes it */
        if (*c == '~' || *c == '/') path[n++] = '~';
        path[n++] = *c == '~' ? '0' : *c == '/' ? '1' : *c;
    }
    path[n] = '\0';
    json_t *arguments = arguments_schema(tool, path);
    if (!arguments) return NULL;
    if (f->keyed)
        return json_pack("{s:s, s:{s:o}, s:[s], s:b}", "type", "object", "properties", key, arguments, "required", key,
                         "additionalProperties", 0);
    return json_pack("{s:s, s:{s:{s:s}, s:o}, s:[s, s], s:b}", "type", "object", "properties", name_key, "const", name, key,
                     arguments, "required", name_key, key, "additionalProperties", 0);
}

static json_t *any_schema(const answer_format *f, const json_t *tools)
{
    if (json_array_size(tools) == 1) return object_schema(f, json_array_get(tools, 0), -1);
    json_t *list = json_array();
    for (size_t i = 0; list && i < json_array_size(tools); i++)
        if (json_array_append_new(list, object_schema(f, json_array_get(tools, i), (int)i))) {
            json_decref(list);
            return NULL;
        }
    return list ? json_pack("{s:o}", "anyOf", list) : NULL;
}

/* Appends the beginning of the call to the prefix. If the template's prompt ends inside reasoning, the reasoning is closed
 * first. */
static bool add_prefix(answer_forced *forced, const answer_params *params, const char *tag, const char *name)
{
    app_text text = {0};
    const char *at = strstr(tag, "%s");
    const size_t n = at ? (size_t)(at - tag) : strlen(tag);
    bool ok = true;
    if (answer_is_opened(params))
        ok = app_text_add(&text, params->style.tags->close, strlen(params->style.tags->close)) &&
             app_text_add(&text, "\n\n", 2);
    ok = ok && app_text_add(&text, tag, n);
    if (at) ok = ok && app_text_add(&text, name, strlen(name)) && app_text_add(&text, at + 2, strlen(at + 2));
    forced->prefix = text.data;
    forced->n_prefix = text.n;
    return ok;
}

bool answer_force(answer_forced *forced, const answer_params *params, const char *name, const char **why)
{
    const size_t n = json_array_size(params->tools);
    const json_t *tool = name ? answer_tool_named(params->tools, name) : n == 1 ? json_array_get(params->tools, 0) : NULL;
    *forced = (answer_forced){.style = params->style};
    *why = !n ? "there are no tools" : name && !tool ? "no tool has the name in tool_choice" : NULL;
    if (!n || (name && !tool)) return false;
    const answer_format *f = params->style.format;
    const bool by_name = tool && f->force_arguments;
    if (!by_name && !f->force_object) forced->style.format = f = answer_format_named("generic");
    json_t *schema = by_name ? arguments_schema(tool, "") : tool ? object_schema(f, tool, -1) : any_schema(f, params->tools);
    forced->schema = schema ? json_dumps(schema, JSON_COMPACT) : NULL;
    json_decref(schema);
    if (forced->schema) {
        forced->n_schema = strlen(forced->schema);
        if (add_prefix(forced, params, by_name ? f->force_arguments : f->force_object, tool ? answer_tool_name(tool) : ""))
            return true;
    }
    answer_forced_free(forced);
    return false;
}

void answer_forced_free(answer_forced *forced)
{
    free(forced->prefix);
    app_json_free(forced->schema);
    *forced = (answer_forced){0};
}

/* ---- Calls that an answer makes by itself ----------------------------------------------------------------- */

/* Kinds of schemas: any object with name and arguments, a list of these, each tool's arguments. */
enum { SCHEMA_OBJECT, SCHEMA_LIST, SCHEMA_TOOLS };

static bool make_schema(answer_lazy *lazy, const answer_params *params, size_t i)
{
    const json_t *tools = params->tools;
    if (lazy->schemas[i]) return true;
    json_t *schema = i >= SCHEMA_TOOLS ? arguments_schema(json_array_get(tools, i - SCHEMA_TOOLS), "")
                                       : any_schema(params->style.format, tools);
    if (schema && i == SCHEMA_LIST) {
        const bool moved = move_references(schema, "/items", 0);
        schema = json_pack("{s:s, s:i, s:o}", "type", "array", "minItems", 1, "items", schema);
        if (!moved) {
            json_decref(schema);
            schema = NULL;
        }
    }
    lazy->schemas[i] = schema ? json_dumps(schema, JSON_COMPACT) : NULL;
    json_decref(schema);
    return lazy->schemas[i] != NULL;
}

/* Adds a part for one head, with the name and the digit filled in. */
static bool add_part(answer_lazy *lazy, const answer_params *params, const char *head, size_t schema, const char *name,
                     int digit)
{
    app_text text = {0};
    bool ok = app_text_add(&text, "", 0);
    for (const char *c = head; ok && *c; c++) {
        const char figure = (char)('0' + digit);
        if (*c != '%') ok = app_text_add(&text, c, 1);
        else if (*++c == 's') ok = app_text_add(&text, name, strlen(name));
        else if (*c == 'd') ok = app_text_add(&text, &figure, 1);
    }
    answer_lazy_part *grown = ok ? realloc(lazy->parts, (lazy->n_parts + 1) * sizeof *grown) : NULL;
    if (!grown) {
        app_text_free(&text);
        return false;
    }
    lazy->parts = grown;
    grown[lazy->n_parts++] = (answer_lazy_part){text.data, schema};
    return make_schema(lazy, params, schema);
}

static bool add_head(answer_lazy *lazy, const answer_params *params, const char *head)
{
    const int n_digits = strstr(head, "%d") ? 10 : 1;
    if (strstr(head, "%o")) return add_part(lazy, params, head, SCHEMA_OBJECT, "", 0);
    if (strstr(head, "%l")) return add_part(lazy, params, head, SCHEMA_LIST, "", 0);
    for (size_t i = 0; i < json_array_size(params->tools); i++)
        for (int digit = 0; digit < n_digits; digit++)
            if (!add_part(lazy, params, head, SCHEMA_TOOLS + i, answer_tool_name(json_array_get(params->tools, i)), digit))
                return false;
    return true;
}

bool answer_lazy_create(answer_lazy *lazy, const answer_params *params)
{
    const answer_format *f = params->style.format;
    const answer_tags *tags = params->style.tags;
    const char *const *triggers = f->triggers[0] ? f->triggers : f->open;
    const size_t most = f->triggers[0] ? sizeof f->triggers / sizeof *f->triggers : ANSWER_MAX_TEXTS;
    *lazy = (answer_lazy){.n_schemas = SCHEMA_TOOLS + json_array_size(params->tools)};
    if (!json_array_size(params->tools) || !f->heads[0]) return true;
    for (size_t i = 0; i < most && triggers[i]; i++) lazy->triggers[lazy->n_triggers++] = triggers[i];
    if (tags && tags->open[0] && tags->close && !f->breaks_reasoning) {
        lazy->open = tags->open[0];
        lazy->close = tags->close;
        lazy->opened = answer_is_opened(params);
    }
    lazy->schemas = calloc(lazy->n_schemas, sizeof *lazy->schemas);
    bool ok = lazy->schemas != NULL;
    for (size_t i = 0; ok && i < ANSWER_MAX_HEADS && f->heads[i]; i++) ok = add_head(lazy, params, f->heads[i]);
    if (!ok) answer_lazy_free(lazy);
    return ok;
}

static void add_tail(answer_lazy *lazy, const char *text)
{
    if (text && *text && lazy->n_tails < ANSWER_MAX_TRIGGERS) lazy->tails[lazy->n_tails++] = text;
}

bool answer_mixed_create(answer_lazy *lazy, const answer_params *params, bool free_calls)
{
    const answer_format *f = params->style.format;
    *lazy = (answer_lazy){.n_schemas = SCHEMA_TOOLS + json_array_size(params->tools)};
    if (!json_array_size(params->tools)) return true;
    if (free_calls || (!f->force_arguments && !f->force_object)) {
        lazy->n_schemas = 0;
        for (size_t i = 0; i < ANSWER_MAX_TEXTS && f->open[i]; i++) lazy->triggers[lazy->n_triggers++] = f->open[i];
        return true;
    }
    lazy->triggers[lazy->n_triggers++] = "";
    add_tail(lazy, f->list ? "]" : NULL);
    add_tail(lazy, f->head == ANSWER_HEAD_DEEPSEEK ? "```" : NULL);
    add_tail(lazy, f->block_close);
    add_tail(lazy, f->item_close);
    add_tail(lazy, f->close);
    add_tail(lazy, f->close2);
    lazy->schemas = calloc(lazy->n_schemas, sizeof *lazy->schemas);
    bool ok = lazy->schemas != NULL;
    if (ok && !f->force_arguments) ok = add_part(lazy, params, f->force_object, SCHEMA_OBJECT, "", 0);
    for (size_t i = 0; ok && f->force_arguments && i < json_array_size(params->tools); i++)
        ok = add_part(lazy, params, f->force_arguments, SCHEMA_TOOLS + i,
                      answer_tool_name(json_array_get(params->tools, i)), 0);
    if (!ok) answer_lazy_free(lazy);
    return ok;
}

void answer_lazy_free(answer_lazy *lazy)
{
    for (size_t i = 0; i < lazy->n_parts; i++) free(lazy->parts[i].text);
    for (size_t i = 0; lazy->schemas && i < lazy->n_schemas; i++) app_json_free(lazy->schemas[i]);
    free(lazy->parts);
    free(lazy->schemas);
    *lazy = (answer_lazy){0};
}

/* tidy.c - what clients write into schemas although JSON Schema does not know it, where it has only one meaning: keywords that
 * are null, names of types in capitals (Gemini's) or in Python's words, "required" as a boolean (draft 3's).
 * Owns nothing: it edits the document before it is compiled, except if `strict` asks for the standard alone. What it does not
 * know stays, and is refused where it is compiled. */
#include "text/schema/schema.h"

#include <strings.h>

/* Returns JSON Schema's name of a type; "" for any type, NULL where the name is unknown. */
static const char *type_name(const char *name)
{
    static const char *const names[][2] = {
        {"null", "null"},    {"none", "null"},      {"nonetype", "null"},  {"boolean", "boolean"}, {"bool", "boolean"},
        {"object", "object"}, {"dict", "object"},    {"array", "array"},    {"list", "array"},      {"tuple", "array"},
        {"string", "string"}, {"str", "string"},     {"integer", "integer"}, {"int", "integer"},    {"number", "number"},
        {"float", "number"}, {"double", "number"},  {"any", ""}};
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (!strcasecmp(name, names[i][0])) return names[i][1];
    return NULL;
}

/* Rewrites the "type" of a schema, a name or a list of names. */
static bool tidy_type(json_t *schema, json_t *type)
{
    const char *name = type_name(json_string_value(type));
    bool any = name && !*name, ok = true;
    if (name && *name) return !json_object_set_new(schema, "type", json_string(name));
    for (size_t i = 0; ok && !any && i < json_array_size(type); i++) {
        name = type_name(json_string_value(json_array_get(type, i)));
        any = name && !*name;
        if (name && *name) ok = !json_array_set_new(type, i, json_string(name));
    }
    return ok && (!any || !json_object_del(schema, "type"));
}

static bool is_one_of(const char *keyword, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(*list, keyword)) return true;
    return false;
}

/* Returns false if memory is short. */
bool ae_schema_tidy(json_t *schema)
{
    static const char *const maps[] = {"properties", "$defs", "definitions", NULL};
    static const char *const places[] = {"items", "prefixItems", "additionalItems", "additionalProperties", "anyOf", "oneOf",
                                         "allOf", NULL};
    static const char *const nullable[] = {"const", "enum", "default", NULL};
    const char *key;
    void *next;
    json_t *value;
    size_t i;
    bool ok = true;
    json_array_foreach(schema, i, value) ok = ok && ae_schema_tidy(value);
    json_object_foreach_safe(schema, next, key, value)
    {
        const bool gone = json_is_null(value) ? !is_one_of(key, nullable) : json_is_boolean(value) && !strcmp(key, "required");
        if (!ok) break;
        if (gone) ok = !json_object_del(schema, key);
        else if (!strcmp(key, "type")) ok = tidy_type(schema, value);
        else if (is_one_of(key, places)) ok = ae_schema_tidy(value);
        else if (is_one_of(key, maps)) {
            const char *name;
            json_t *member;
            json_object_foreach(value, name, member)
            {
                if (json_is_null(member)) ok = ok && !json_object_set_new(value, name, json_true());
                else ok = ok && ae_schema_tidy(member);
            }
        }
    }
    return ok;
}

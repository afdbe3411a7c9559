/* answer_type.c - decides by the tool's schema whether a value written without quotes is a string. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve/parse/answer_int.h"

enum { STRING = 1, NOTHING = 2, OTHER = 4, LIST = 8, OBJECT = 16, ANY = 31, MAX_DEPTH = 32, MAX_STEPS = 4096 };

typedef struct search {
    const json_t *root;
    int depth, n_steps; /* of the schemas visited: references may form circles */
} search;

static unsigned named(const char *name)
{
    /* Python's words, too; some clients write JSON Schema's in capitals */
    static const char *const names[] = {"string", "str", "null", "none", "nonetype", "array", "list", "tuple", "object", "dict",
                                        "any"};
    static const unsigned types[] = {STRING, STRING, NOTHING, NOTHING, NOTHING, LIST, LIST, LIST, OBJECT, OBJECT, ANY};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcasecmp(name, names[i])) return types[i];
    return OTHER;
}

static unsigned of_value(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING: return STRING;
    case JSON_NULL: return NOTHING;
    case JSON_ARRAY: return LIST;
    case JSON_OBJECT: return OBJECT;
    default: return OTHER;
    }
}

/* Follows a reference such as "#/$defs/Name". Returns NULL if its target does not exist. */
static const json_t *referred(const json_t *root, const char *path)
{
    if (*path++ != '#') return NULL;
    while (root && *path == '/') {
        char key[256];
        size_t n = 0;
        for (path++; *path && *path != '/' && n + 1 < sizeof key; path++) { /* as RFC 6901 escapes it */
            key[n++] = *path;
            if (*path != '~' || (path[1] != '0' && path[1] != '1')) continue;
            key[n - 1] = *++path == '0' ? '~' : '/';
        }
        key[n] = '\0';
        root = json_is_array(root) ? json_array_get(root, strtoul(key, NULL, 10)) : json_object_get(root, key);
    }
    return *path ? NULL : root;
}

static unsigned of_schema(search *t, const json_t *schema);

/* Returns the union of the types of all alternatives. */
static unsigned of_any(search *t, const json_t *list)
{
    unsigned all = 0;
    for (size_t i = 0; i < json_array_size(list); i++) all |= of_schema(t, json_array_get(list, i));
    return json_array_size(list) ? all : ANY;
}

static unsigned of_type(const json_t *type)
{
    unsigned all = 0;
    if (json_is_string(type)) return named(json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++) {
        const json_t *name = json_array_get(type, i);
        all |= json_is_string(name) ? named(json_string_value(name)) : 0;
    }
    return all ? all : ANY;
}

static unsigned of_enum(const json_t *values)
{
    unsigned all = 0;
    for (size_t i = 0; i < json_array_size(values); i++) all |= of_value(json_array_get(values, i));
    return all ? all : ANY;
}

/* Returns the types that the schema allows: those that all its keywords allow. */
static unsigned of_schema(search *t, const json_t *schema)
{
    if (!json_is_object(schema) || t->depth == MAX_DEPTH || ++t->n_steps > MAX_STEPS) return ANY;
    t->depth++;
    const json_t *constant = json_object_get(schema, "const"), *all = json_object_get(schema, "allOf"),
                 *ref = json_object_get(schema, "$ref");
    unsigned fits = of_type(json_object_get(schema, "type")) & of_enum(json_object_get(schema, "enum")) &
                    of_any(t, json_object_get(schema, "anyOf")) & of_any(t, json_object_get(schema, "oneOf"));
    if (constant) fits &= of_value(constant);
    if (json_is_string(ref)) fits &= of_schema(t, referred(t->root, json_string_value(ref)));
    for (size_t i = 0; i < json_array_size(all); i++) fits &= of_schema(t, json_array_get(all, i));
    if (json_is_true(json_object_get(schema, "nullable"))) fits |= NOTHING; /* OpenAPI's word for it */
    t->depth--;
    return fits;
}

answer_type answer_schema_type(const json_t *root, const json_t *schema)
{
    search t = {.root = root};
    const unsigned fits = of_schema(&t, schema);
    if (fits == STRING) return ANSWER_TYPE_STRING;
    if (fits == (STRING | NOTHING)) return ANSWER_TYPE_NULLABLE;
    if (fits & STRING || !fits) return ANSWER_TYPE_UNKNOWN;
    if ((fits & ~(unsigned)NOTHING) == LIST) return ANSWER_TYPE_LIST;
    return (fits & ~(unsigned)NOTHING) == OBJECT ? ANSWER_TYPE_OBJECT : ANSWER_TYPE_OTHER;
}

/* Finds the schema of a member, also in lists of schemas of which all or any must hold. */
static const json_t *find_schema(search *t, const json_t *schema, const char *key)
{
    static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
    const json_t *own = key ? json_object_get(json_object_get(schema, "properties"), key) : json_object_get(schema, "items"),
                 *ref = json_object_get(schema, "$ref");
    if (own || !json_is_object(schema) || t->depth == MAX_DEPTH || ++t->n_steps > MAX_STEPS) return own;
    t->depth++;
    if (json_is_string(ref)) own = find_schema(t, referred(t->root, json_string_value(ref)), key);
    for (size_t i = 0; !own && i < 3; i++) {
        const json_t *list = json_object_get(schema, lists[i]);
        for (size_t k = 0; !own && k < json_array_size(list); k++) own = find_schema(t, json_array_get(list, k), key);
    }
    t->depth--;
    const json_t *more = json_object_get(schema, "additionalProperties");
    return own ? own : key && json_is_object(more) ? more : NULL;
}

const json_t *answer_schema_of(const json_t *root, const json_t *schema, const char *key)
{
    search t = {.root = root};
    return find_schema(&t, schema, key);
}

/* schema.c - from the text of a schema to rules: places, references, sets of conjuncts, types. */
#include "text/schema/schema.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Places and failures ---------------------------------------------------------------------------------- */

bool ae_schema_ok(const ae_schema *s)
{
    return s->b.status == AERIE_OK;
}

static void add_step(ae_buf *path, const char *key)
{
    ae_buf_adds(path, "/");
    for (; *key; key++) {
        if (*key == '~') ae_buf_adds(path, "~0");
        else if (*key == '/') ae_buf_adds(path, "~1");
        else ae_buf_add(path, key, 1);
    }
}

/* Appends the place of `target` below `at` to path, as a JSON pointer. Documents that are too deep were refused when the JSON
 * was read. */
static bool find_place(const json_t *at, const json_t *target, ae_buf *path)
{
    const size_t before = path->n;
    const char *key;
    json_t *value;
    size_t i;
    if (at == target) return true;
    if (json_is_object(at)) {
        json_object_foreach((json_t *)at, key, value) {
            if (!json_is_object(value) && !json_is_array(value)) continue;
            add_step(path, key);
            if (path->failed || find_place(value, target, path)) return true;
            path->n = before;
        }
    } else if (json_is_array(at)) {
        json_array_foreach((json_t *)at, i, value) {
            ae_buf_addf(path, "/%zu", i);
            if (path->failed || find_place(value, target, path)) return true;
            path->n = before;
        }
    }
    return false;
}

/* Replaces line breaks: names come from the document, and a message must stay on one line. */
static void one_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20) *text = ' ';
}

/* Returns the place of a schema, "#" where it has none; NULL without memory. */
static const char *place_of(const ae_schema *s, const json_t *schema, ae_buf *path)
{
    ae_buf_adds(path, "#");
    if (!find_place(s->root, schema, path) && path->data) path->n = 1;
    if (path->data) path->data[path->n] = 0;
    if (path->data) one_line(path->data);
    return path->data;
}

static void fail_with(ae_schema *s, aerie_status status, const json_t *schema, char *sentence)
{
    ae_buf path = {0};
    const char *place = place_of(s, schema, &path);
    one_line(sentence);
    ae_gbuild_fail(&s->b, ae_fail(s->b.error, status, "schema at %.120s: %s", place ? place : "#", sentence));
    ae_buf_free(&path);
}

void ae_schema_fail(ae_schema *s, aerie_status status, const json_t *schema, const char *format, ...)
{
    char sentence[400];
    va_list args;
    if (!ae_schema_ok(s)) return;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    fail_with(s, status, schema, sentence);
}

#define MAX_WARNINGS 8
#define MAX_COUNT AE_GRAMMAR_MAX_NODES

/* Returns whether this warning is new. It counts as given afterwards. */
static bool is_new_warning(ae_schema *s, const void *schema, const void *what)
{
    const void *const pair[2] = {schema, what}, *const *seen = (const void *const *)(const void *)s->warned.data;
    const size_t n = s->warned.n / sizeof pair;
    for (size_t i = 0; i < n; i++)
        if (seen[2 * i] == pair[0] && seen[2 * i + 1] == pair[1]) return false;
    if (n == MAX_WARNINGS + 1) return false;
    ae_buf_add(&s->warned, pair, sizeof pair);
    if (n == MAX_WARNINGS) ae_buf_adds(s->warnings, "; and more");
    return n < MAX_WARNINGS;
}

static void warn(ae_schema *s, const json_t *schema, const char *sentence)
{
    ae_buf path = {0};
    const char *place = place_of(s, schema, &path);
    if (s->warnings->n) ae_buf_adds(s->warnings, "; ");
    ae_buf_addf(s->warnings, "schema at %.120s: %s; it is not enforced", place ? place : "#", sentence);
    ae_buf_free(&path);
    if (s->warnings->failed || s->warned.failed) ae_schema_fail_memory(s);
}

void ae_schema_pass_over(ae_schema *s, const json_t *schema, const char *what, const char *format, ...)
{
    char sentence[400];
    va_list args;
    if (!ae_schema_ok(s) || (!s->strict && (!s->warnings || !is_new_warning(s, schema, what)))) return;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    one_line(sentence);
    if (s->strict) fail_with(s, AERIE_ERROR_UNSUPPORTED, schema, sentence);
    else warn(s, schema, sentence);
}

bool ae_schema_forgive(ae_schema *s, const json_t *schema, const char *what)
{
    static const char lead[] = "schema at ";
    if (s->strict || s->b.status != AERIE_ERROR_UNSUPPORTED) return false;
    char sentence[sizeof s->b.error->text];
    memcpy(sentence, s->b.error->text, sizeof sentence);
    const char *at = strncmp(sentence, lead, sizeof lead - 1) ? NULL : strstr(sentence, ": "); /* after the place */
    *s->b.error = (aerie_error){0};
    s->b.status = AERIE_OK;
    ae_schema_pass_over(s, schema, what, "%s", at ? at + 2 : sentence);
    return ae_schema_ok(s);
}

void ae_schema_fail_memory(ae_schema *s)
{
    if (ae_schema_ok(s))
        ae_gbuild_fail(&s->b, ae_fail_memory(s->b.error, "a schema's grammar", s->b.n_nodes * sizeof *s->b.nodes));
}

uint32_t ae_schema_count(ae_schema *s, const json_t *schema, const char *keyword, uint32_t missing)
{
    const json_t *value = json_object_get(schema, keyword);
    if (!value) return missing;
    const double number = json_number_value(value);
    if (!json_is_number(value) || number < 0 || number != floor(number)) {
        ae_schema_fail(s, AERIE_ERROR_FORMAT, schema, "\"%s\" is a whole number from 0", keyword);
        return missing;
    }
    if (number > s->max_count && s->strict)
        ae_schema_fail(s, AERIE_ERROR_LIMIT, schema, "\"%s\" is %.0f; %u is the limit", keyword, number, s->max_count);
    else if (number > s->max_count)
        ae_schema_pass_over(s, schema, keyword, "\"%s\" is %.0f, and no automaton counts so far", keyword, number);
    return number > s->max_count ? missing : (uint32_t)number;
}

/* ---- Keywords ------------------------------------------------------------------------------------------------- */

static const char *const known[] = {
    /* the first N_SAYING keywords constrain a value by themselves */
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "minProperties",
    "maxProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "anyOf",
    "oneOf",
    "allOf",
    /* others */
    "$ref",
    "$defs",
    "definitions",
    /* annotations */
    "title",
    "description",
    "default",
    "example",
    "examples",
    "$schema",
    "$id",
    "id",
    "$anchor",
    "$comment",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentMediaType",
    "contentEncoding",
    "contentSchema",
    "discriminator",
    "nullable",
    "externalDocs",
};

enum { N_SAYING = 26 };

/* Returns whether the schema constrains a value itself, apart from what its $ref leads to. */
static bool says_something(const json_t *schema)
{
    for (size_t i = 0; i < N_SAYING; i++)
        if (json_object_get(schema, known[i])) return true;
    return false;
}

static bool is_known(const char *keyword)
{
    if (!strncmp(keyword, "x-", 2)) return true;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i], keyword)) return true;
    return false;
}

static void check_keywords(ae_schema *s, const json_t *schema)
{
    const char *keyword;
    json_t *value;
    json_object_foreach((json_t *)schema, keyword, value) {
        if (!is_known(keyword))
            ae_schema_pass_over(s, schema, keyword, "the keyword \"%.60s\" is not possible in a grammar", keyword);
        if (!strcmp(keyword, "nullable") && json_is_true(value))
            ae_schema_pass_over(s, schema, "nullable", "\"nullable\": true is not possible in a grammar; a list of types with "
                                "\"null\" is");
    }
}

/* ---- References ------------------------------------------------------------------------------------------------- */

/* Reads one step of a pointer (up to / or the end) into key [size], and resolves ~ and %. */
static bool read_step(const char **at, char *key, size_t size)
{
    size_t n = 0;
    for (; **at && **at != '/'; (*at)++) {
        char c = **at;
        if (c == '~' && ((*at)[1] == '0' || (*at)[1] == '1')) {
            c = *++*at == '0' ? '~' : '/';
        } else if (c == '%') {
            unsigned byte;
            if (sscanf(*at + 1, "%2x", &byte) != 1 || !(*at)[1] || !(*at)[2]) return false;
            *at += 2;
            c = (char)byte;
        }
        if (n + 1 >= size) return false;
        key[n++] = c;
    }
    key[n] = 0;
    return true;
}

/* Returns the schema below `at` that names itself by "$anchor"; NULL: none. */
static const json_t *anchored(const json_t *at, const char *name)
{
    const char *own = json_string_value(json_object_get(at, "$anchor")), *key;
    const json_t *found = own && !strcmp(own, name) ? at : NULL;
    json_t *value;
    size_t i;
    json_object_foreach((json_t *)at, key, value) if (!found) found = anchored(value, name);
    json_array_foreach((json_t *)at, i, value) if (!found) found = anchored(value, name);
    return found;
}

static const json_t *resolve(ae_schema *s, const json_t *schema, const char *ref)
{
    const json_t *at = s->root, *named = *ref == '#' && ref[1] && ref[1] != '/' ? anchored(s->root, ref + 1) : NULL;
    const char *p = ref;
    char key[256];
    if (named) return named;
    if (*p++ != '#' || (*p && *p != '/')) {
        ae_schema_fail(s, AERIE_ERROR_UNSUPPORTED, schema,
                       "\"$ref\": \"%.80s\"; references begin with #/ and stay in the document", ref);
        return NULL;
    }
    while (at && *p == '/') {
        p++;
        if (!read_step(&p, key, sizeof key)) at = NULL;
        else if (json_is_array(at))
            at = *key >= '0' && *key <= '9' && strlen(key) < 9 ? json_array_get(at, strtoul(key, NULL, 10)) : NULL;
        else at = json_object_get(at, key);
    }
    if (!at) ae_schema_fail(s, AERIE_ERROR_FORMAT, schema, "\"$ref\": \"%.80s\" leads nowhere", ref);
    return at;
}

/* The schemas on the way to the one being added: a schema that occurs again refers to itself. */
typedef struct way {
    const json_t *schema;
    const struct way *before;
} way;

static void fail_cycle(ae_schema *s, const json_t *schema)
{
    ae_schema_fail(s, AERIE_ERROR_FORMAT, schema, "this schema refers to itself directly; recursion is only possible through "
                   "properties and items");
}

static void add(ae_schema *s, ae_conjuncts *set, const json_t *schema, const json_t *from, const way *before, uint32_t depth)
{
    if (!ae_schema_ok(s) || json_is_true(schema)) return;
    if (json_is_false(schema)) {
        set->never = true;
        return;
    }
    if (!json_is_object(schema)) {
        ae_schema_fail(s, AERIE_ERROR_FORMAT, from, "a schema is an object, true or false");
        return;
    }
    for (const way *w = before; w; w = w->before)
        if (w->schema == schema) fail_cycle(s, schema);
    for (size_t i = 0; i < set->n && ae_schema_ok(s); i++) {
        if (set->items[i].schema != schema) continue;
        if (set->items[i].chosen) fail_cycle(s, schema); /* its own alternative */
        return;
    }
    if (++s->work > AE_SCHEMA_MAX_WORK)
        ae_schema_fail(s, AERIE_ERROR_LIMIT, schema,
                       "the schema is too large: its alternatives combine in more than %u ways", AE_SCHEMA_MAX_WORK);
    if (set->n == AE_SCHEMA_MAX_CONJUNCTS || depth == AE_GRAMMAR_MAX_DEPTH)
        ae_schema_fail(s, AERIE_ERROR_LIMIT, schema, "more than %d schemas hold at once here (by $ref and allOf)",
                       AE_SCHEMA_MAX_CONJUNCTS);
    if (ae_schema_ok(s)) check_keywords(s, schema);
    if (!ae_schema_ok(s)) return;
    const json_t *ref = json_object_get(schema, "$ref");
    /* what many references lead to is one set, compiled once */
    if (!ref || says_something(schema)) set->items[set->n++] = (ae_conjunct){schema, false};
    const way here = {schema, before};
    const json_t *all = json_object_get(schema, "allOf");
    if (ref && !json_is_string(ref)) ae_schema_fail(s, AERIE_ERROR_FORMAT, schema, "\"$ref\" is a string");
    if (all && (!json_is_array(all) || !json_array_size(all)))
        ae_schema_fail(s, AERIE_ERROR_FORMAT, schema, "\"allOf\" is a list of schemas");
    const json_t *target = ref && ae_schema_ok(s) ? resolve(s, schema, json_string_value(ref)) : NULL;
    if (target) add(s, set, target, schema, &here, depth + 1);
    for (size_t i = 0; i < json_array_size(all) && ae_schema_ok(s); i++)
        add(s, set, json_array_get(all, i), schema, &here, depth + 1);
}

void ae_schema_add(ae_schema *s, ae_conjuncts *set, const json_t *schema, const json_t *from)
{
    add(s, set, schema, from, NULL, 0);
}

/* ---- Types -------------------------------------------------------------------------------------------------------- */

static unsigned type_named(const char *name)
{
    static const struct {
        const char *name;
        unsigned bits;
    } types[] = {{"null", AE_JSON_NULL}, {"boolean", AE_JSON_BOOLEAN}, {"object", AE_JSON_OBJECT}, {"array", AE_JSON_ARRAY},
                 {"string", AE_JSON_STRING}, {"integer", AE_JSON_INTEGER}, {"number", AE_JSON_INTEGER | AE_JSON_FRACTION}};
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].name, name)) return types[i].bits;
    return 0;
}

/* Returns the types that a schema's "type" allows. */
static unsigned declared_types(ae_schema *s, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    unsigned bits = 0;
    if (!type) return AE_JSON_ALL;
    if (json_is_string(type)) bits = type_named(json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++) {
        const unsigned one = type_named(json_string_value(json_array_get(type, i)));
        if (!one) {
            bits = 0;
            break;
        }
        bits |= one;
    }
    if (!bits)
        ae_schema_fail(s, AERIE_ERROR_FORMAT, schema,
                       "\"type\" is one or a list of null, boolean, object, array, string, integer, number");
    return bits;
}

/* Returns the types that the schema's other keywords are about. */
unsigned ae_schema_implied(const json_t *schema)
{
    static const struct {
        const char *keyword;
        unsigned bits;
    } about[] = {
        {"properties", AE_JSON_OBJECT}, {"required", AE_JSON_OBJECT}, {"additionalProperties", AE_JSON_OBJECT},
        {"minProperties", AE_JSON_OBJECT}, {"maxProperties", AE_JSON_OBJECT}, {"items", AE_JSON_ARRAY},
        {"prefixItems", AE_JSON_ARRAY}, {"minItems", AE_JSON_ARRAY}, {"maxItems", AE_JSON_ARRAY},
        {"uniqueItems", AE_JSON_ARRAY},
        {"minLength", AE_JSON_STRING}, {"maxLength", AE_JSON_STRING}, {"pattern", AE_JSON_STRING}, {"format", AE_JSON_STRING},
        {"multipleOf", AE_JSON_INTEGER | AE_JSON_FRACTION},
        {"minimum", AE_JSON_INTEGER | AE_JSON_FRACTION}, {"maximum", AE_JSON_INTEGER | AE_JSON_FRACTION},
        {"exclusiveMinimum", AE_JSON_INTEGER | AE_JSON_FRACTION}, {"exclusiveMaximum", AE_JSON_INTEGER | AE_JSON_FRACTION},
    };
    unsigned bits = 0;
    for (size_t i = 0; i < sizeof about / sizeof *about; i++)
        if (json_object_get(schema, about[i].keyword)) bits |= about[i].bits;
    return bits;
}

static bool is_one_type(unsigned bits)
{
    return bits == (AE_JSON_INTEGER | AE_JSON_FRACTION) || (bits && !(bits & (bits - 1)));
}

unsigned ae_schema_types(ae_schema *s, const ae_conjuncts *set)
{
    static const char *const declaring[] = {"type", "enum", "const"};
    unsigned bits = AE_JSON_ALL, implied = 0;
    bool declared = false; /* or if there are values, whose types are known */
    for (size_t i = 0; i < set->n; i++) {
        bits &= declared_types(s, set->items[i].schema);
        for (size_t k = 0; k < 3; k++) declared |= json_object_get(set->items[i].schema, declaring[k]) != NULL;
        implied |= ae_schema_implied(set->items[i].schema);
    }
    return !declared && !s->standard && is_one_type(implied) ? implied : bits;
}

/* ---- Sets --------------------------------------------------------------------------------------------------------------- */

static void add_choice(ae_schema *s, ae_gpiece choices, ae_gpiece piece, bool *any)
{
    if (piece.start == AE_GNONE || !ae_schema_ok(s)) return;
    ae_gbuild_or(&s->b, choices, piece);
    *any = true;
}

static bool compile_types(ae_schema *s, const ae_conjuncts *set, ae_gpiece choices)
{
    const unsigned types = ae_schema_types(s, set);
    bool any = false;
    if (!ae_schema_ok(s)) return false;
    if (ae_schema_has_values(s, set)) {
        ae_buf values = {0};
        ae_schema_add_values(s, set, &values);
        return ae_schema_choose(s, choices, &values);
    }
    if (types & AE_JSON_NULL) add_choice(s, choices, ae_gbuild_text(&s->b, "null"), &any);
    if (types & AE_JSON_BOOLEAN) {
        add_choice(s, choices, ae_gbuild_text(&s->b, "true"), &any);
        add_choice(s, choices, ae_gbuild_text(&s->b, "false"), &any);
    }
    if (types & AE_JSON_OBJECT) add_choice(s, choices, ae_schema_object(s, set), &any);
    if (types & AE_JSON_ARRAY) add_choice(s, choices, ae_schema_array(s, set), &any);
    if (types & AE_JSON_STRING) add_choice(s, choices, ae_schema_string(s, set), &any);
    if (types & (AE_JSON_INTEGER | AE_JSON_FRACTION))
        add_choice(s, choices, ae_schema_number(s, set, (types & AE_JSON_FRACTION) != 0), &any);
    return any;
}

const json_t *ae_schema_alternatives(ae_schema *s, const json_t *schema)
{
    const json_t *any = json_object_get(schema, "anyOf"), *one = json_object_get(schema, "oneOf");
    if (any && one) ae_schema_fail(s, AERIE_ERROR_UNSUPPORTED, schema, "anyOf and oneOf in one schema are not possible");
    const json_t *list = any ? any : one;
    if (list && (!json_is_array(list) || !json_array_size(list)))
        ae_schema_fail(s, AERIE_ERROR_FORMAT, schema, "\"%s\" is a list of schemas", any ? "anyOf" : "oneOf");
    return list;
}

/* Returns whether the set has enum or const, and no alternatives are left to choose. */
static bool is_values(ae_schema *s, const ae_conjuncts *set)
{
    for (size_t i = 0; i < set->n && ae_schema_ok(s); i++)
        if (!set->items[i].chosen && ae_schema_alternatives(s, set->items[i].schema)) return false;
    return ae_schema_ok(s) && !set->never && ae_schema_has_values(s, set);
}

static bool compile_set(ae_schema *s, const ae_conjuncts *set, ae_gpiece choices)
{
    for (size_t i = 0; i < set->n && ae_schema_ok(s); i++) {
        const json_t *schema = set->items[i].schema, *list = set->items[i].chosen ? NULL : ae_schema_alternatives(s, schema);
        if (!list) continue;
        ae_buf values = {0}; /* if all alternatives are a few values each: their values in one tree, as in an enum, so there is
                              * one way to match */
        bool any = false;
        for (size_t k = 0; k < json_array_size(list) && ae_schema_ok(s); k++) {
            ae_conjuncts with = *set;
            with.items[i].chosen = true;
            ae_schema_add(s, &with, json_array_get(list, k), schema);
            if (is_values(s, &with)) {
                ae_schema_add_values(s, &with, &values);
                continue;
            }
            const uint32_t rule = ae_schema_compile(s, &with);
            if (rule != AE_GNONE) add_choice(s, choices, ae_gbuild_call(&s->b, rule), &any);
        }
        return ae_schema_choose(s, choices, &values) || any;
    }
    return compile_types(s, set, choices);
}

/* ---- Sets that are known
 * -------------------------------------------------------------------------------------------------- */

static uint32_t hash_set(const ae_conjuncts *set)
{
    uint64_t h = 0; /* in whatever order */
    for (size_t i = 0; i < set->n; i++) {
        uint64_t x = (uint64_t)(uintptr_t)set->items[i].schema + set->items[i].chosen;
        x = (x ^ x >> 31) * 0x9E3779B97F4A7C15u;
        h += x ^ x >> 29;
    }
    return (uint32_t)(h ^ h >> 32);
}

static bool is_same(const ae_schema_memo *memo, const ae_conjuncts *set)
{
    if (memo->n != set->n) return false;
    for (size_t i = 0; i < set->n; i++)
        if (memo->items[i].schema != set->items[i].schema || memo->items[i].chosen != set->items[i].chosen) return false;
    return true;
}

static bool grow_memos(ae_schema *s)
{
    if (s->n_memos < s->memos_capacity) return true;
    const uint32_t capacity = s->memos_capacity ? s->memos_capacity * 2 : 64, size = capacity * 2;
    ae_schema_memo *memos = ae_realloc(s->memos, capacity, sizeof *memos);
    if (memos) s->memos = memos;
    uint32_t *table = memos ? ae_alloc(size, sizeof *table) : NULL;
    if (!table) {
        ae_schema_fail_memory(s);
        return false;
    }
    ae_free(s->memo_table);
    s->memo_table = table;
    s->memo_table_size = size;
    s->memos_capacity = capacity;
    for (uint32_t i = 0; i < s->n_memos; i++) {
        ae_conjuncts set = {.n = memos[i].n};
        memcpy(set.items, memos[i].items, set.n * sizeof *set.items);
        uint32_t at = hash_set(&set) & (size - 1);
        while (table[at]) at = (at + 1) & (size - 1);
        table[at] = i + 1;
    }
    return true;
}

/* Returns the memo of a set; *fresh: whether it was just made. */
static uint32_t memo_of(ae_schema *s, const ae_conjuncts *set, bool *fresh)
{
    if (!grow_memos(s)) return AE_GNONE;
    uint32_t at = hash_set(set) & (s->memo_table_size - 1);
    for (; s->memo_table[at]; at = (at + 1) & (s->memo_table_size - 1))
        if (is_same(&s->memos[s->memo_table[at] - 1], set)) return s->memo_table[at] - 1;
    ae_conjunct *items = ae_arena_alloc(&s->b.names, set->n, sizeof *items);
    if (!items) {
        ae_schema_fail_memory(s);
        return AE_GNONE;
    }
    memcpy(items, set->items, set->n * sizeof *items);
    const uint32_t i = s->n_memos++;
    s->memos[i] = (ae_schema_memo){items, set->n, ae_gbuild_rule(&s->b, NULL), false};
    s->memo_table[at] = i + 1;
    *fresh = true;
    return i;
}

uint32_t ae_schema_compile(ae_schema *s, const ae_conjuncts *set)
{
    bool fresh = false;
    if (!ae_schema_ok(s) || set->never) return AE_GNONE;
    if (!set->n) return ae_schema_any(s);
    const uint32_t memo = memo_of(s, set, &fresh);
    if (!ae_schema_ok(s)) return AE_GNONE;
    const uint32_t rule = s->memos[memo].rule;
    if (!fresh) return s->memos[memo].never ? AE_GNONE : rule;
    if (s->depth == AE_GRAMMAR_MAX_DEPTH) {
        ae_schema_fail(s, AERIE_ERROR_LIMIT, set->items[0].schema, "schemas are nested deeper than %d", AE_GRAMMAR_MAX_DEPTH);
        return AE_GNONE;
    }
    s->depth++;
    const ae_gpiece choices = ae_gbuild_never(&s->b);
    const bool any = compile_set(s, set, choices);
    ae_gbuild_define(&s->b, rule, choices);
    s->depth--;
    s->memos[memo].never = !any;
    return any && ae_schema_ok(s) ? rule : AE_GNONE;
}

/* ---- The whole ---------------------------------------------------------------------------------------------------------- */

static aerie_status read_json(ae_schema *s, const char *json, size_t n)
{
    json_error_t e;
    s->root = json_loadb(json, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (s->root) return AERIE_OK;
    if (json_error_code(&e) == json_error_out_of_memory) return ae_fail_memory(s->b.error, "a schema", n);
    one_line(e.text);
    return ae_fail(s->b.error, AERIE_ERROR_FORMAT, "the schema is not JSON: line %d, column %d: %.160s", e.line,
                   e.column, e.text);
}

static uint32_t compile_root(ae_schema *s)
{
    ae_conjuncts set = {.n = 0};
    if (!s->standard && json_is_object(s->root) && !json_object_size(s->root)) return ae_schema_any_object(s);
    ae_schema_add(s, &set, s->root, s->root);
    const uint32_t root = ae_schema_compile(s, &set);
    if (root == AE_GNONE) ae_schema_fail(s, AERIE_ERROR_FORMAT, s->root, "nothing satisfies this schema");
    return root;
}

/* Reports a left-recursive rule: sets that their own alternatives lead back to. */
static aerie_status tell_cycle(ae_schema *s, aerie_status status)
{
    for (uint32_t i = 0; s->b.cycle != AE_GNONE && i < s->n_memos; i++) {
        if (s->memos[i].rule != s->b.cycle) continue;
        s->b.status = AERIE_OK;
        fail_cycle(s, s->memos[i].items[0].schema);
        return s->b.status;
    }
    return status;
}

/* max_count: larger counts are not enforced. */
static aerie_status from_schema(ae_grammar **out, const char *json, size_t n, const aerie_schema_params *params,
                                uint32_t max_count, ae_buf *warnings, aerie_error *error)
{
    ae_schema s = {.standard = params->standard, .strict = params->strict, .max_count = max_count, .warnings = warnings,
                   .ws = AE_GNONE, .value = AE_GNONE, .object = AE_GNONE, .array = AE_GNONE, .string = AE_GNONE,
                   .string_char = AE_GNONE, .number = AE_GNONE, .integer = AE_GNONE};
    ae_gbuild_init(&s.b, error ? error : &s.failure);
    aerie_status status = read_json(&s, json, n);
    if (status == AERIE_OK && !s.strict && !ae_schema_tidy(s.root)) status = ae_fail_memory(s.b.error, "a schema", n);
    if (status == AERIE_OK) {
        const uint32_t root = compile_root(&s);
        status = tell_cycle(&s, ae_gbuild_finish(&s.b, root, "schema", out));
    }
    json_decref(s.root);
    ae_buf_free(&s.warned);
    ae_free(s.memos);
    ae_free(s.memo_table);
    ae_gbuild_free(&s.b);
    return status;
}

aerie_status ae_grammar_from_schema_with(ae_grammar **out, const char *json, size_t n, const aerie_schema_params *params,
                                         ae_buf *warnings, aerie_error *error)
{
    *out = NULL;
    if (n > AE_GRAMMAR_MAX_TEXT)
        return ae_fail(error, AERIE_ERROR_LIMIT, "the schema has %zu bytes; %u are possible", n, AE_GRAMMAR_MAX_TEXT);
    /* A count is as many copies of what it counts: if all counts together need too many, first the large ones are dropped, then
     * most. */
    static const uint32_t max_counts[] = {MAX_COUNT, 1024, 32};
    const size_t n_before = warnings ? warnings->n : 0;
    aerie_status status = AERIE_OK;
    for (size_t i = 0; i < sizeof max_counts / sizeof *max_counts; i++) {
        if (warnings) warnings->n = n_before;
        if (i && error) *error = (aerie_error){0};
        status = from_schema(out, json, n, params, max_counts[i], warnings, error);
        if (status != AERIE_ERROR_LIMIT || params->strict) break;
    }
    return status;
}

/* object.c - what schemas say about objects, arrays and strings. */
#include "text/schema/schema.h"

static const ae_gpiece nothing = {AE_GNONE, AE_GNONE};

/* from -> piece -> to */
static void tie(ae_schema *s, uint32_t from, ae_gpiece piece, uint32_t to)
{
    ae_gbuild_move(&s->b, from, piece.start);
    ae_gbuild_move(&s->b, piece.end, to);
}

static uint32_t new_node(ae_schema *s)
{
    return ae_gbuild_empty(&s->b).start;
}

static ae_gpiece comma(ae_schema *s)
{
    return ae_gbuild_then(&s->b, ae_gbuild_text(&s->b, ","), ae_schema_ws(s));
}

static ae_gpiece open_with(ae_schema *s, const char *bracket)
{
    return ae_gbuild_then(&s->b, ae_gbuild_text(&s->b, bracket), ae_schema_ws(s));
}

/* ---- Objects --------------------------------------------------------------------------------------------- */

typedef struct members {
    json_t *names;     /* an object with the names in order; the value is true if the member is required */
    uint32_t other;    /* rule for the value of an additional member; AE_GNONE: none is possible */
    uint32_t min, max; /* number of members */
    bool failed;
} members;

/* Collects what all conjuncts say about the member with that name; name NULL: about a member with any other name. */
static void member_set(ae_schema *s, const ae_conjuncts *set, const char *name, ae_conjuncts *out)
{
    *out = (ae_conjuncts){.n = 0};
    for (size_t i = 0; i < set->n; i++) {
        const json_t *schema = set->items[i].schema;
        const json_t *value = name ? json_object_get(json_object_get(schema, "properties"), name) : NULL;
        if (!value) value = json_object_get(schema, "additionalProperties");
        if (value) ae_schema_add(s, out, value, schema);
    }
}

static void collect_names(ae_schema *s, const ae_conjuncts *set, members *m)
{
    const char *name;
    json_t *value;
    bool ok = m->names != NULL;
    for (size_t i = 0; i < set->n; i++) {
        const json_t *schema = set->items[i].schema, *properties = json_object_get(schema, "properties");
        if (properties && !json_is_object(properties))
            ae_schema_fail(s, AERIE_ERROR_FORMAT, schema, "\"properties\" is an object of schemas");
        json_object_foreach((json_t *)properties, name, value)
            if (!json_object_get(m->names, name)) ok &= !json_object_set_new(m->names, name, json_false());
    }
    for (size_t i = 0; i < set->n; i++) {
        const json_t *schema = set->items[i].schema, *required = json_object_get(schema, "required");
        if (required && !json_is_array(required))
            ae_schema_fail(s, AERIE_ERROR_FORMAT, schema, "\"required\" is a list of names");
        for (size_t k = 0; k < json_array_size(required); k++) {
            name = json_string_value(json_array_get(required, k));
            if (!name || strlen(name) != json_string_length(json_array_get(required, k)))
                ae_schema_fail(s, AERIE_ERROR_FORMAT, schema, "\"required\" is a list of names");
            else ok &= !json_object_set_new(m->names, name, json_true());
        }
    }
    if (!ok) ae_schema_fail_memory(s);
}

static ae_gpiece member(ae_schema *s, ae_gpiece key, uint32_t value)
{
    const ae_gpiece colon = ae_gbuild_then(&s->b, ae_gbuild_text(&s->b, ":"), ae_schema_ws(s));
    return ae_gbuild_then(&s->b, ae_gbuild_then(&s->b, key, colon), ae_gbuild_call(&s->b, value));
}

static void find_other(ae_schema *s, const ae_conjuncts *set, members *m)
{
    bool declared = false, told = false;
    ae_conjuncts others;
    for (size_t i = 0; i < set->n; i++) {
        declared |= json_object_get(set->items[i].schema, "properties") != NULL;
        told |= json_object_get(set->items[i].schema, "additionalProperties") != NULL;
    }
    m->other = AE_GNONE;
    if (declared && !told && !s->standard) return;
    member_set(s, set, NULL, &others);
    const uint32_t value = ae_schema_compile(s, &others);
    if (value == AE_GNONE || !ae_schema_ok(s)) return;
    m->other = ae_gbuild_rule(&s->b, NULL);
    const bool free = !json_object_size(m->names);
    const ae_gpiece key = free ? ae_gbuild_call(&s->b, ae_schema_any_string(s)) : ae_schema_other_key(s, m->names);
    ae_gbuild_define(&s->b, m->other, member(s, key, value));
}

/* Reads minProperties and maxProperties. With named properties, only bounds that these meet anyway are supported; otherwise the
 * schema is refused. */
static void check_counts(ae_schema *s, const ae_conjuncts *set, members *m)
{
    uint32_t n_required = 0;
    const char *name;
    json_t *value;
    m->max = AE_GNONE;
    for (size_t i = 0; i < set->n; i++) {
        const uint32_t min = ae_schema_count(s, set->items[i].schema, "minProperties", 0);
        const uint32_t max = ae_schema_count(s, set->items[i].schema, "maxProperties", AE_GNONE);
        if (min > m->min) m->min = min;
        if (max < m->max) m->max = max;
    }
    const size_t n = json_object_size(m->names);
    if (!n) return;
    json_object_foreach(m->names, name, value) n_required += json_is_true(value);
    if (m->min <= n_required) m->min = 0;
    if (m->other == AE_GNONE && m->max >= n) m->max = AE_GNONE;
    if (m->min || m->max != AE_GNONE)
        ae_schema_pass_over(s, set->items[0].schema, "minProperties",
                            "minProperties and maxProperties are possible only of objects without named properties");
}

/* Matches objects that have only additional members. */
static ae_gpiece object_of_others(ae_schema *s, const members *m)
{
    if (m->max < m->min || (m->other == AE_GNONE && m->min)) return nothing;
    ae_gpiece all = open_with(s, "{");
    if (m->max && m->other != AE_GNONE) {
        const ae_gpiece next = ae_gbuild_then(&s->b, comma(s), ae_gbuild_call(&s->b, m->other));
        const ae_gpiece more =
            ae_gbuild_repeat(&s->b, next, m->min ? m->min - 1 : 0, m->max == AE_GNONE ? AE_GNONE : m->max - 1);
        ae_gpiece some = ae_gbuild_then(&s->b, ae_gbuild_call(&s->b, m->other), more);
        some = ae_gbuild_then(&s->b, some, ae_schema_ws(s));
        all = ae_gbuild_then(&s->b, all, m->min ? some : ae_gbuild_repeat(&s->b, some, 0, 1));
    }
    return ae_gbuild_then(&s->b, all, ae_gbuild_text(&s->b, "}"));
}

/* Matches objects with named properties, in their order. Node `none`: no member was written yet; `some`: at least one. */
static ae_gpiece object_of_names(ae_schema *s, const ae_conjuncts *set, const members *m)
{
    const ae_gpiece open = open_with(s, "{"), close = ae_gbuild_text(&s->b, "}");
    uint32_t none = open.end, some = new_node(s);
    const char *name;
    json_t *required;
    json_object_foreach(m->names, name, required) {
        ae_conjuncts about;
        member_set(s, set, name, &about);
        const uint32_t value = ae_schema_compile(s, &about);
        if (!ae_schema_ok(s)) return nothing;
        if (value == AE_GNONE) { /* it must not be there */
            if (json_is_true(required)) return nothing;
            continue;
        }
        const uint32_t pair = ae_gbuild_rule(&s->b, NULL), none_behind = new_node(s), some_behind = new_node(s);
        ae_gbuild_define(&s->b, pair, member(s, ae_schema_text(s, name, strlen(name)), value));
        tie(s, none, ae_gbuild_call(&s->b, pair), some_behind);
        tie(s, some, ae_gbuild_then(&s->b, comma(s), ae_gbuild_call(&s->b, pair)), some_behind);
        if (json_is_false(required)) {
            ae_gbuild_move(&s->b, none, none_behind);
            ae_gbuild_move(&s->b, some, some_behind);
        }
        none = none_behind;
        some = some_behind;
    }
    if (m->other != AE_GNONE) {
        const uint32_t loop = new_node(s);
        tie(s, none, ae_gbuild_call(&s->b, m->other), loop);
        ae_gbuild_move(&s->b, some, loop);
        tie(s, loop, ae_gbuild_then(&s->b, comma(s), ae_gbuild_call(&s->b, m->other)), loop);
        some = loop;
    }
    ae_gbuild_move(&s->b, none, close.start);
    tie(s, some, ae_schema_ws(s), close.start);
    return (ae_gpiece){open.start, close.end};
}

static bool is_about_members(const ae_conjuncts *set)
{
    static const char *const words[] = {"properties", "required", "additionalProperties", "minProperties", "maxProperties"};
    for (size_t i = 0; i < set->n; i++)
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            if (json_object_get(set->items[i].schema, words[k])) return true;
    return false;
}

ae_gpiece ae_schema_object(ae_schema *s, const ae_conjuncts *set)
{
    if (!is_about_members(set)) return ae_gbuild_call(&s->b, ae_schema_any_object(s));
    members m = {.names = json_object()};
    ae_gpiece out = nothing;
    collect_names(s, set, &m);
    if (ae_schema_ok(s)) find_other(s, set, &m);
    if (ae_schema_ok(s)) check_counts(s, set, &m);
    if (ae_schema_ok(s)) out = json_object_size(m.names) ? object_of_names(s, set, &m) : object_of_others(s, &m);
    json_decref(m.names);
    return out;
}

/* ---- Arrays -------------------------------------------------------------------------------------------------- */

static const json_t *prefix_of(const json_t *schema)
{
    const json_t *prefix = json_object_get(schema, "prefixItems"), *items = json_object_get(schema, "items");
    return prefix ? prefix : json_is_array(items) ? items : NULL; /* before 2020 a list of items was written this way */
}

static const json_t *rest_of(const json_t *schema)
{
    const json_t *items = json_object_get(schema, "items");
    return json_is_array(items) ? json_object_get(schema, "additionalItems") : items;
}

/* Collects what all conjuncts say about item i; it is the same for all items after the longest prefix. */
static void item_set(ae_schema *s, const ae_conjuncts *set, size_t index, ae_conjuncts *about)
{
    *about = (ae_conjuncts){.n = 0};
    for (size_t i = 0; i < set->n; i++) {
        const json_t *schema = set->items[i].schema, *prefix = prefix_of(schema);
        const json_t *value = index < json_array_size(prefix) ? json_array_get(prefix, index) : rest_of(schema);
        if (value) ae_schema_add(s, about, value, schema);
    }
}

static uint32_t item_rule(ae_schema *s, const ae_conjuncts *set, size_t index)
{
    ae_conjuncts about;
    item_set(s, set, index, &about);
    return ae_schema_compile(s, &about);
}

static bool count_items(ae_schema *s, const ae_conjuncts *set, uint32_t *min, uint32_t *max, size_t *n_prefix)
{
    bool any = false;
    *min = 0, *max = AE_GNONE, *n_prefix = 0;
    for (size_t i = 0; i < set->n; i++) {
        const json_t *schema = set->items[i].schema, *prefix = prefix_of(schema);
        if (prefix && !json_is_array(prefix))
            ae_schema_fail(s, AERIE_ERROR_FORMAT, schema, "\"prefixItems\" is a list of schemas");
        if (json_array_size(prefix) > *n_prefix) *n_prefix = json_array_size(prefix);
        const uint32_t lo = ae_schema_count(s, schema, "minItems", 0), hi = ae_schema_count(s, schema, "maxItems", AE_GNONE);
        if (lo > *min) *min = lo;
        if (hi < *max) *max = hi;
        any |= prefix || rest_of(schema);
    }
    return any || *min || *max != AE_GNONE;
}

/* ---- Arrays whose items differ from each other ------------------------------------------------------------------ */

enum { MAX_UNIQUE = 64, MAX_UNIQUE_STEPS = 16384 };

/* Returns the conjunct that demands different items, NULL if none does. */
static const json_t *wants_unique(ae_schema *s, const ae_conjuncts *set)
{
    const json_t *wanting = NULL;
    for (size_t i = 0; i < set->n; i++) {
        const json_t *value = json_object_get(set->items[i].schema, "uniqueItems");
        if (value && !json_is_boolean(value))
            ae_schema_fail(s, AERIE_ERROR_FORMAT, set->items[i].schema, "\"uniqueItems\" is true or false");
        if (json_is_true(value)) wanting = set->items[i].schema;
    }
    return wanting;
}

/* Finds the rules of the different values that items can have: rules [MAX_UNIQUE]. Returns false if there are too many. */
static bool unique_rules(ae_schema *s, const ae_conjuncts *set, uint32_t *rules, uint32_t *n)
{
    ae_conjuncts about;
    ae_buf values = {0};
    const json_t *distinct[MAX_UNIQUE];
    item_set(s, set, 0, &about);
    *n = 0;
    bool few = ae_schema_few(s, &about, 4 * MAX_UNIQUE, &values);
    for (size_t i = 0; few && i < values.n / sizeof *distinct; i++) {
        const json_t *value = ((const json_t *const *)(const void *)values.data)[i];
        bool known = false;
        for (uint32_t k = 0; k < *n && !known; k++) known = ae_schema_same(distinct[k], value);
        if (known) continue;
        few = *n < MAX_UNIQUE;
        if (few) distinct[(*n)++] = value;
    }
    ae_buf_free(&values);
    for (uint32_t i = 0; few && i < *n; i++) {
        rules[i] = ae_gbuild_rule(&s->b, NULL);
        ae_gbuild_define(&s->b, rules[i], ae_schema_values(s, &distinct[i], 1));
    }
    return few;
}

/* Counts the steps from the sets of up to max - 1 values to larger ones; MAX_UNIQUE_STEPS + 1 if there are more than that. */
static uint32_t count_steps(uint32_t n, uint32_t max)
{
    uint64_t sets = 1, steps = 0; /* sets of i values */
    for (uint32_t i = 0; i < max && i < n; i++) {
        steps += sets * (n - i);
        if (steps > MAX_UNIQUE_STEPS) return MAX_UNIQUE_STEPS + 1;
        sets = sets * (n - i) / (i + 1);
    }
    return (uint32_t)steps;
}

/* Matches arrays of different items, with a node for each set of values that were written. rules [n]: the values. */
static ae_gpiece unique_array(ae_schema *s, const uint32_t *rules, uint32_t n, uint32_t min, uint32_t max)
{
    const ae_gpiece open = open_with(s, "["), close = ae_gbuild_text(&s->b, "]"), last = ae_schema_ws(s);
    ae_gkeys sets = {0}; /* triples: low and high half of the set, and its size */
    ae_buf nodes = {0};  /* for each set, the uint32_t node at which the array continues */
    ae_gbuild_move(&s->b, last.end, close.start);
    ae_buf_add(&nodes, &open.end, sizeof open.end);
    if (ae_gkeys_add(&sets, 0, 0, 0) == AE_GNONE) ae_schema_fail_memory(s);
    for (uint32_t i = 0; i < sets.n && !nodes.failed && ae_schema_ok(s); i++) {
        const uint64_t used = sets.items[i][0] | (uint64_t)sets.items[i][1] << 32;
        const uint32_t size = sets.items[i][2];
        uint32_t from = ((const uint32_t *)(const void *)nodes.data)[i];
        if (size >= min) ae_gbuild_move(&s->b, from, size ? last.start : close.start);
        if (size == max) continue;
        if (size) {
            const ae_gpiece more = comma(s);
            ae_gbuild_move(&s->b, from, more.start);
            from = more.end;
        }
        for (uint32_t k = 0; k < n; k++) {
            if (used >> k & 1) continue;
            const uint64_t with = used | (uint64_t)1 << k;
            const uint32_t n_known = sets.n, to = ae_gkeys_add(&sets, (uint32_t)with, (uint32_t)(with >> 32), size + 1);
            if (to == n_known) {
                const uint32_t node = new_node(s);
                ae_buf_add(&nodes, &node, sizeof node);
            }
            if (to == AE_GNONE || nodes.failed) {
                ae_schema_fail_memory(s);
                break;
            }
            tie(s, from, ae_gbuild_call(&s->b, rules[k]), ((const uint32_t *)(const void *)nodes.data)[to]);
        }
    }
    if (nodes.failed) ae_schema_fail_memory(s);
    ae_buf_free(&nodes);
    ae_gkeys_free(&sets);
    return (ae_gpiece){open.start, close.end};
}

ae_gpiece ae_schema_array(ae_schema *s, const ae_conjuncts *set)
{
    uint32_t min, max;
    size_t n_prefix;
    const bool any = count_items(s, set, &min, &max, &n_prefix);
    const json_t *unique = ae_schema_ok(s) ? wants_unique(s, set) : NULL;
    if (unique && max > 1) {
        uint32_t rules[MAX_UNIQUE], n_values;
        if (!n_prefix && unique_rules(s, set, rules, &n_values)) {
            if (max > n_values) max = n_values;
            if (min > max) return nothing;
            if (count_steps(n_values, max) <= MAX_UNIQUE_STEPS) return unique_array(s, rules, n_values, min, max);
        }
        ae_schema_pass_over(s, unique, "uniqueItems",
                            "\"uniqueItems\": true is possible only where all items are of a few values (enum, const, "
                            "boolean)");
    }
    if (!any) return ae_gbuild_call(&s->b, ae_schema_any_array(s));
    const uint32_t rest = item_rule(s, set, n_prefix);
    if (rest == AE_GNONE && n_prefix < max) max = (uint32_t)n_prefix;
    const ae_gpiece open = open_with(s, "["), close = ae_gbuild_text(&s->b, "]");
    const ae_gpiece last = ae_schema_ws(s);
    ae_gbuild_move(&s->b, last.end, close.start);
    /* `at`: the node after i items. Without a maximum, a loop follows the last item with a schema of its own. */
    uint32_t at = open.end, n = (uint32_t)(min > n_prefix ? min : n_prefix);
    if (!n) n = 1;
    if (max != AE_GNONE) n = max;
    for (uint32_t i = 0; i < n && ae_schema_ok(s); i++) {
        const uint32_t rule = i < n_prefix ? item_rule(s, set, i) : rest, behind = new_node(s);
        if (i >= min) ae_gbuild_move(&s->b, at, i ? last.start : close.start);
        if (rule == AE_GNONE) { /* no array is longer */
            if (i < min) return nothing;
            return (ae_gpiece){open.start, close.end};
        }
        const ae_gpiece item = ae_gbuild_call(&s->b, rule);
        tie(s, at, i ? ae_gbuild_then(&s->b, comma(s), item) : item, behind);
        at = behind;
    }
    if (n < min) return nothing;
    if (max == AE_GNONE) tie(s, at, ae_gbuild_then(&s->b, comma(s), ae_gbuild_call(&s->b, rest)), at);
    ae_gbuild_move(&s->b, at, n ? last.start : close.start);
    return (ae_gpiece){open.start, close.end};
}

/* ---- Strings --------------------------------------------------------------------------------------------------- */

#define LEAP "(0[48]|[2468][048]|[13579][26])"
#define DATE "([0-9]{4}-(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|[0-9]{4}-(0[469]|11)-(0[1-9]|[12][0-9]|30)|" \
             "[0-9]{4}-02-(0[1-9]|1[0-9]|2[0-8])|([0-9]{2}" LEAP "|" LEAP "00)-02-29)"
#define CLOCK "([01][0-9]|2[0-3]):[0-5][0-9]"
#define TIME CLOCK ":[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]" CLOCK ")"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4 BYTE "(\\." BYTE "){3}"
#define H16 "[0-9A-Fa-f]{1,4}"
#define H16S(n) "(" H16 ":){" n "}" /* before a colon or the last part */
#define S16H(n) "(:" H16 "){" n "}"
/* RFC 3986: characters of a path, and a registered name */
#define PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define REG "([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})"
#define AUTHORITY "((" REG "|:)*@)?" REG "*(:[0-9]*)?"

static const struct format {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"email", "^" ATEXT "(\\." ATEXT ")*@" LABEL "(\\." LABEL ")+$"},
    {"hostname", "^" LABEL "(\\." LABEL ")*$"},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]*:(//" AUTHORITY "(/" PCHAR "*)*|/(" PCHAR "+(/" PCHAR "*)*)?|" PCHAR "+(/" PCHAR "*)*)"
            "(\\?(" PCHAR "|[/?])*)?(#(" PCHAR "|[/?])*)?$"},
    {"ipv4", "^" IPV4 "$"},
    {"ipv6", "^(" H16S("7") H16 "|" H16S("1,7") ":|" H16S("1,6") S16H("1") "|" H16S("1,5") S16H("1,2") "|" H16S("1,4")
                 S16H("1,3") "|" H16S("1,3") S16H("1,4") "|" H16S("1,2") S16H("1,5") "|" H16S("1")
                     S16H("1,6") "|:" S16H("1,7") "|::|" H16S("6") IPV4 "|::" H16S("0,5") IPV4 "|" H16S("1") ":" H16S("0,4")
                         IPV4 "|" H16S("1,2") ":" H16S("0,3") IPV4 "|" H16S("1,3") ":" H16S("0,2") IPV4
     "|" H16S("1,4") ":" H16S("0,1") IPV4 "|" H16S("1,5") ":" IPV4 ")$"},
};

/* Returns the pattern of a format; NULL: we do not know the format, and ignore it. */
static const char *format_pattern(ae_schema *s, const json_t *schema, const json_t *format)
{
    for (size_t i = 0; json_is_string(format) && i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(formats[i].name, json_string_value(format))) return formats[i].pattern;
    if (!json_is_string(format)) ae_schema_fail(s, AERIE_ERROR_FORMAT, schema, "\"format\" is a string");
    ae_schema_pass_over(s, schema, "format",
                        "\"format\": \"%.60s\" is not supported in a grammar; date, time, date-time, uuid, email, hostname, "
                        "uri, ipv4 and ipv6 are", json_is_string(format) ? json_string_value(format) : "");
    return NULL;
}

ae_gpiece ae_schema_string(ae_schema *s, const ae_conjuncts *set)
{
    const char *pattern = NULL;
    size_t n_pattern = 0, n_patterns = 0;
    const json_t *from = NULL;
    uint32_t min = 0, max = AE_GNONE;
    for (size_t i = 0; i < set->n; i++) {
        const json_t *schema = set->items[i].schema, *regex = json_object_get(schema, "pattern"),
                     *format = json_object_get(schema, "format");
        const uint32_t lo = ae_schema_count(s, schema, "minLength", 0), hi = ae_schema_count(s, schema, "maxLength", AE_GNONE);
        if (lo > min) min = lo;
        if (hi < max) max = hi;
        if (regex && !json_is_string(regex)) ae_schema_fail(s, AERIE_ERROR_FORMAT, schema, "\"pattern\" is a string");
        if (regex || format) from = schema;
        if (regex) pattern = json_string_value(regex), n_pattern = json_string_length(regex), n_patterns++;
        const char *known = format ? format_pattern(s, schema, format) : NULL;
        if (known) pattern = known, n_pattern = strlen(pattern), n_patterns++;
    }
    if (!ae_schema_ok(s) || max < min) return nothing;
    if (n_patterns > 1)
        ae_schema_pass_over(s, from, "pattern", "only one of several patterns and formats is possible of a string");
    if (n_patterns && ae_schema_ok(s)) {
        ae_gpiece piece = ae_schema_regex(s, pattern, n_pattern, from);
        if (ae_schema_ok(s) && (min || max != AE_GNONE) && !ae_schema_lengths(s, &piece, min, max))
            ae_schema_pass_over(s, from, "lengths",
                                "minLength and maxLength are too large beside this pattern; a pattern can bound lengths too: "
                                "^...{m,n}$");
        if (!ae_schema_forgive(s, from, "regex")) return piece;
    }
    if (!ae_schema_ok(s)) return nothing;
    if (!min && max == AE_GNONE) return ae_gbuild_call(&s->b, ae_schema_any_string(s));
    ae_gpiece chars = ae_gbuild_repeat(&s->b, ae_gbuild_call(&s->b, ae_schema_string_char(s)), min, max);
    chars = ae_gbuild_then(&s->b, chars, ae_gbuild_text(&s->b, "\""));
    return ae_gbuild_then(&s->b, ae_gbuild_text(&s->b, "\""), chars);
}

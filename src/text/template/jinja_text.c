/* jinja_text.c - values as text: str(), repr(), tojson, HTML escapes, and building text in general.
 *
 * Source of the formats: Python's str and repr of its built-in types, and json.dumps.
 * Invariant: recursion over nested values is bounded by ae_jinja_descend.
 */
#include "text/template/jinja_internal.h"

#include <stdio.h>
#include <utf8proc.h>

/* ---- Building --------------------------------------------------------------------------- */

/* Room for n more bytes. */
static aerie_status reserve(ae_jinja_run *r, ae_jinja_text *t, size_t n)
{
    if (n > r->max_output_bytes || t->n > r->max_output_bytes - n)
        return ae_jinja_fail(r, AERIE_ERROR_LIMIT, "the text grows beyond %zu bytes", r->max_output_bytes);
    if (t->n + n <= t->capacity) return AERIE_OK;
    size_t capacity = t->capacity ? t->capacity : 128;
    while (capacity < t->n + n) capacity *= 2;
    char *data = ae_value_alloc(&r->heap, capacity, 1);
    uint8_t *map = data && t->map ? ae_value_alloc(&r->heap, capacity, 1) : NULL;
    if (!data || (t->map && !map)) return ae_jinja_fail_heap(r);
    if (t->n) memcpy(data, t->data, t->n);
    if (map) memcpy(map, t->map, t->n);
    t->data = data;
    t->map = map;
    t->capacity = capacity;
    return AERIE_OK;
}

/* Notes where n bytes after the end come from; there must be room for them. map: the origin of each; NULL: all are from
 * `origin`. */
static aerie_status note_origin(ae_jinja_run *r, ae_jinja_text *t, const uint8_t *map, uint8_t origin, size_t n)
{
    if (!t->n && !map) t->origin = origin;
    if (!t->map && (map || t->origin != origin)) {
        t->map = ae_value_alloc(&r->heap, t->capacity, 1);
        if (!t->map) return ae_jinja_fail_heap(r);
        memset(t->map, t->origin, t->n);
    }
    if (t->map && map) memcpy(t->map + t->n, map, n);
    else if (t->map) memset(t->map + t->n, origin, n);
    return AERIE_OK;
}

static aerie_status add(ae_jinja_run *r, ae_jinja_text *t, const char *bytes, const uint8_t *map, uint8_t origin, size_t n)
{
    if (!n) return AERIE_OK;
    AE_TRY(reserve(r, t, n));
    AE_TRY(note_origin(r, t, map, origin, n));
    memcpy(t->data + t->n, bytes, n);
    t->n += n;
    return AERIE_OK;
}

aerie_status ae_jinja_text_add(ae_jinja_run *r, ae_jinja_text *t, const char *bytes, size_t n)
{
    return add(r, t, bytes, NULL, t->pen, n);
}

aerie_status ae_jinja_text_part(ae_jinja_run *r, ae_jinja_text *t, const ae_string *s, size_t from, size_t n)
{
    return add(r, t, s->data + from, s->map ? s->map + from : NULL, s->origin, n);
}

aerie_status ae_jinja_text_join(ae_jinja_run *r, ae_jinja_text *t, const ae_jinja_text *other, size_t from, size_t n)
{
    return n ? add(r, t, other->data + from, other->map ? other->map + from : NULL, other->origin, n) : AERIE_OK;
}

aerie_status ae_jinja_text_adds(ae_jinja_run *r, ae_jinja_text *t, const char *bytes)
{
    return ae_jinja_text_add(r, t, bytes, strlen(bytes));
}

aerie_status ae_jinja_text_code(ae_jinja_run *r, ae_jinja_text *t, uint32_t code)
{
    char bytes[4];
    return ae_jinja_text_add(r, t, bytes, ae_utf8_encode(code, bytes));
}

/* Makes a string of bytes that come from strings, so they are valid UTF-8 and stay as they are. */
static aerie_status value_of(ae_jinja_run *r, const char *bytes, const uint8_t *map, uint8_t origin, size_t n, ae_value *out)
{
    uint8_t *copy = NULL;
    ae_string *s = ae_string_alloc(&r->heap, n);
    if (s && map && n) {
        const uint8_t *other = memchr(map, !map[0], n);
        if (!other) origin = map[0];
        else copy = ae_value_alloc(&r->heap, n, 1), origin = AE_ORIGIN_MIXED;
        if (other && !copy) s = NULL;
        if (copy) memcpy(copy, map, n);
    }
    if (!s) return ae_jinja_fail_heap(r);
    if (n) memcpy(s->data, bytes, n);
    s->map = copy;
    s->origin = n ? origin : AE_ORIGIN_TEMPLATE;
    ae_string_seal(s);
    *out = ae_value_of_string(s);
    return AERIE_OK;
}

aerie_status ae_jinja_text_value(ae_jinja_run *r, const ae_jinja_text *t, ae_value *out)
{
    return value_of(r, t->data, t->map, t->origin, t->n, out);
}

aerie_status ae_jinja_part(ae_jinja_run *r, const ae_string *s, size_t from, size_t n, ae_value *out)
{
    return value_of(r, s->data + from, s->map ? s->map + from : NULL, s->origin, n, out);
}

aerie_status ae_jinja_string(ae_jinja_run *r, const char *text, size_t n, ae_value *out)
{
    return ae_value_string(&r->heap, text, n, out) ? AERIE_OK : ae_jinja_fail_heap(r);
}

/* ---- str and repr ----------------------------------------------------------------------- */

/* Python writes separators, controls, unassigned and private characters as escapes. */
static bool is_printable(uint32_t code)
{
    if (code < 0x7F) return code >= 0x20;
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

static aerie_status write_string_repr(ae_jinja_run *r, ae_jinja_text *t, const ae_string *s)
{
    bool single = memchr(s->data, '\'', s->n), twice = memchr(s->data, '"', s->n);
    char quote = single && !twice ? '"' : '\'', escape[16];
    AE_TRY(ae_jinja_text_add(r, t, &quote, 1));
    AE_JINJA_CHARGE(r, s->n / 64);
    for (size_t i = 0; i < s->n;) {
        uint32_t code;
        size_t n = ae_utf8_decode(s->data + i, s->n - i, &code);
        escape[0] = 0;
        if (code == (uint32_t)quote || code == '\\') snprintf(escape, sizeof escape, "\\%c", (char)code);
        else if (code == '\n') strcpy(escape, "\\n");
        else if (code == '\r') strcpy(escape, "\\r");
        else if (code == '\t') strcpy(escape, "\\t");
        else if (!is_printable(code))
            snprintf(escape, sizeof escape, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)code);
        if (escape[0]) AE_TRY(add(r, t, escape, NULL, ae_jinja_origin_at(s, i), strlen(escape)));
        else AE_TRY(ae_jinja_text_part(r, t, s, i, n));
        i += n;
    }
    return ae_jinja_text_add(r, t, &quote, 1);
}

static aerie_status write_items(ae_jinja_run *r, ae_jinja_text *t, const ae_array *array, const char *open, const char *close)
{
    AE_TRY(ae_jinja_text_adds(r, t, open));
    for (size_t i = 0; i < array->n; i++) {
        if (i) AE_TRY(ae_jinja_text_adds(r, t, ", "));
        AE_TRY(ae_jinja_write_repr(r, t, array->items[i]));
    }
    return ae_jinja_text_adds(r, t, close);
}

static aerie_status write_array(ae_jinja_run *r, ae_jinja_text *t, const ae_array *array)
{
    char range[96];
    switch (array->kind) {
    case AE_ARRAY_TUPLE:
    case AE_ARRAY_GROUP: return write_items(r, t, array, "(", array->n == 1 ? ",)" : ")");
    case AE_ARRAY_KEYS: return write_items(r, t, array, "dict_keys([", "])");
    case AE_ARRAY_VALUES: return write_items(r, t, array, "dict_values([", "])");
    case AE_ARRAY_ITEMS: return write_items(r, t, array, "dict_items([", "])");
    case AE_ARRAY_GENERATOR: return ae_jinja_text_adds(r, t, "<generator object>");
    case AE_ARRAY_RANGE:
        if (array->step == 1)
            snprintf(range, sizeof range, "range(%lld, %lld)", (long long)array->start, (long long)array->stop);
        else snprintf(range, sizeof range, "range(%lld, %lld, %lld)", (long long)array->start, (long long)array->stop,
                      (long long)array->step);
        return ae_jinja_text_adds(r, t, range);
    default: return write_items(r, t, array, "[", "]");
    }
}

static aerie_status write_object(ae_jinja_run *r, ae_jinja_text *t, const ae_object *object)
{
    AE_TRY(ae_jinja_text_adds(r, t, "{"));
    for (size_t i = 0; i < object->n; i++) {
        if (i) AE_TRY(ae_jinja_text_adds(r, t, ", "));
        AE_TRY(ae_jinja_write_repr(r, t, object->entries[i].key));
        AE_TRY(ae_jinja_text_adds(r, t, ": "));
        AE_TRY(ae_jinja_write_repr(r, t, object->entries[i].value));
    }
    return ae_jinja_text_adds(r, t, "}");
}

static aerie_status write_callable(ae_jinja_run *r, ae_jinja_text *t, const ae_jinja_callable *callable)
{
    AE_TRY(ae_jinja_text_adds(r, t, callable->macro ? "<Macro " : "<built-in function "));
    if (!callable->macro) AE_TRY(ae_jinja_text_adds(r, t, callable->entry->name));
    else if (callable->macro->name) AE_TRY(write_string_repr(r, t, callable->macro->name));
    else AE_TRY(ae_jinja_text_adds(r, t, "anonymous"));
    return ae_jinja_text_adds(r, t, ">");
}

static aerie_status write_plain(ae_jinja_run *r, ae_jinja_text *t, ae_value v)
{
    char text[AE_DOUBLE_TEXT];
    switch (v.kind) {
    case AE_VALUE_UNDEFINED: return ae_jinja_text_adds(r, t, "Undefined");
    case AE_VALUE_NONE: return ae_jinja_text_adds(r, t, "None");
    case AE_VALUE_BOOL: return ae_jinja_text_adds(r, t, v.as.boolean ? "True" : "False");
    case AE_VALUE_INT:
        snprintf(text, sizeof text, "%lld", (long long)v.as.integer);
        return ae_jinja_text_adds(r, t, text);
    case AE_VALUE_DOUBLE: return ae_jinja_text_add(r, t, text, ae_double_repr(v.as.number, text));
    case AE_VALUE_STRING:
        if (!v.safe) return write_string_repr(r, t, v.as.string);
        AE_TRY(ae_jinja_text_adds(r, t, "Markup("));
        AE_TRY(write_string_repr(r, t, v.as.string));
        return ae_jinja_text_adds(r, t, ")");
    case AE_VALUE_ARRAY: return write_array(r, t, v.as.array);
    case AE_VALUE_OBJECT: return write_object(r, t, v.as.object);
    case AE_VALUE_NAMESPACE:
        AE_TRY(ae_jinja_text_adds(r, t, "<Namespace "));
        AE_TRY(write_object(r, t, v.as.object));
        return ae_jinja_text_adds(r, t, ">");
    case AE_VALUE_LOOP: return ae_jinja_text_adds(r, t, "<LoopContext>");
    case AE_VALUE_CALLABLE: return write_callable(r, t, v.as.callable);
    }
    return AERIE_OK;
}

aerie_status ae_jinja_write_repr(ae_jinja_run *r, ae_jinja_text *t, ae_value v)
{
    AE_JINJA_CHARGE(r, 1);
    AE_TRY(ae_jinja_descend(r));
    AE_TRY(write_plain(r, t, v));
    r->depth--;
    return AERIE_OK;
}

aerie_status ae_jinja_write_str(ae_jinja_run *r, ae_jinja_text *t, ae_value v)
{
    if (v.kind == AE_VALUE_STRING) return ae_jinja_text_part(r, t, v.as.string, 0, v.as.string->n);
    if (v.kind == AE_VALUE_UNDEFINED) return AERIE_OK;
    return ae_jinja_write_repr(r, t, v);
}

aerie_status ae_jinja_str(ae_jinja_run *r, ae_value v, ae_value *out)
{
    ae_jinja_text t = {0};
    if (v.kind == AE_VALUE_STRING) {
        *out = v;
        return AERIE_OK;
    }
    AE_TRY(ae_jinja_write_str(r, &t, v));
    return ae_jinja_text_value(r, &t, out);
}

aerie_status ae_jinja_escape(ae_jinja_run *r, ae_value v, ae_value *out)
{
    static const struct {
        char c;
        const char *text;
    } escapes[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
    ae_jinja_text t = {0};
    ae_value text;
    AE_TRY(ae_jinja_str(r, v, &text));
    if (text.safe) {
        *out = text;
        return AERIE_OK;
    }
    const ae_string *s = text.as.string;
    for (size_t i = 0, from = 0; i <= s->n; i++) {
        const char *escape = NULL;
        for (size_t k = 0; i < s->n && k < sizeof escapes / sizeof *escapes; k++)
            if (s->data[i] == escapes[k].c) escape = escapes[k].text;
        if (!escape && i < s->n) continue;
        AE_TRY(ae_jinja_text_part(r, &t, s, from, i - from));
        if (escape) AE_TRY(add(r, &t, escape, NULL, ae_jinja_origin_at(s, i), strlen(escape)));
        from = i + 1;
    }
    AE_TRY(ae_jinja_text_value(r, &t, out));
    out->safe = true;
    return AERIE_OK;
}

/* ---- json.dumps ------------------------------------------------------------------------- */

typedef struct json {
    ae_jinja_text text;
    bool ascii, sort, pretty;
    const ae_string *indent;
    const ae_string *item_separator, *key_separator; /* NULL: the usual ones */
    size_t level;
} json;

static aerie_status json_string(ae_jinja_run *r, json *j, const ae_string *s)
{
    char escape[16];
    AE_TRY(ae_jinja_text_adds(r, &j->text, "\""));
    AE_JINJA_CHARGE(r, s->n / 64);
    size_t from = 0;
    for (size_t i = 0; i < s->n;) {
        uint32_t code;
        size_t n = ae_utf8_decode(s->data + i, s->n - i, &code);
        escape[0] = 0;
        if (code == '"' || code == '\\') snprintf(escape, sizeof escape, "\\%c", (char)code);
        else if (code == '\n') strcpy(escape, "\\n");
        else if (code == '\r') strcpy(escape, "\\r");
        else if (code == '\t') strcpy(escape, "\\t");
        else if (code == '\b') strcpy(escape, "\\b");
        else if (code == '\f') strcpy(escape, "\\f");
        else if (code < 0x20 || (j->ascii && code >= 0x7F && code < 0x10000))
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)code);
        else if (j->ascii && code >= 0x10000)
            snprintf(escape, sizeof escape, "\\u%04x\\u%04x", (unsigned)(0xD800 + ((code - 0x10000) >> 10)),
                     (unsigned)(0xDC00 + ((code - 0x10000) & 0x3FF)));
        if (escape[0]) {
            AE_TRY(ae_jinja_text_part(r, &j->text, s, from, i - from));
            AE_TRY(add(r, &j->text, escape, NULL, ae_jinja_origin_at(s, i), strlen(escape)));
            from = i + n;
        }
        i += n;
    }
    AE_TRY(ae_jinja_text_part(r, &j->text, s, from, s->n - from));
    return ae_jinja_text_adds(r, &j->text, "\"");
}

static aerie_status json_scalar(ae_jinja_run *r, json *j, ae_value v)
{
    char text[AE_DOUBLE_TEXT];
    switch (v.kind) {
    case AE_VALUE_NONE: return ae_jinja_text_adds(r, &j->text, "null");
    case AE_VALUE_BOOL: return ae_jinja_text_adds(r, &j->text, v.as.boolean ? "true" : "false");
    case AE_VALUE_STRING: return json_string(r, j, v.as.string);
    case AE_VALUE_DOUBLE:
        ae_double_repr(v.as.number, text);
        if (strcmp(text, "inf") == 0) strcpy(text, "Infinity");
        if (strcmp(text, "-inf") == 0) strcpy(text, "-Infinity");
        if (strcmp(text, "nan") == 0) strcpy(text, "NaN");
        return ae_jinja_text_adds(r, &j->text, text);
    case AE_VALUE_INT:
        snprintf(text, sizeof text, "%lld", (long long)v.as.integer);
        return ae_jinja_text_adds(r, &j->text, text);
    default:
        if (v.kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, v);
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a value of type '%s' has no JSON form", ae_jinja_type_name(v));
    }
}

static aerie_status json_newline(ae_jinja_run *r, json *j)
{
    if (!j->pretty) return AERIE_OK;
    AE_TRY(ae_jinja_text_adds(r, &j->text, "\n"));
    for (size_t i = 0; i < j->level; i++) AE_TRY(ae_jinja_text_part(r, &j->text, j->indent, 0, j->indent->n));
    return AERIE_OK;
}

static aerie_status json_next(ae_jinja_run *r, json *j, bool first)
{
    if (!first) {
        const ae_string *s = j->item_separator;
        if (s) AE_TRY(ae_jinja_text_part(r, &j->text, s, 0, s->n));
        else AE_TRY(ae_jinja_text_adds(r, &j->text, j->pretty ? "," : ", "));
    }
    return json_newline(r, j);
}

static aerie_status json_value(ae_jinja_run *r, json *j, ae_value v);

static aerie_status json_key(ae_jinja_run *r, json *j, ae_value key)
{
    if (key.kind == AE_VALUE_STRING) return json_string(r, j, key.as.string);
    AE_TRY(ae_jinja_text_adds(r, &j->text, "\""));
    AE_TRY(json_scalar(r, j, key));
    return ae_jinja_text_adds(r, &j->text, "\"");
}

/* Lists the indices of the entries in the order in which they are written. Insertion sort: sort_keys is rare, objects are
 * small. */
static aerie_status sorted_entries(ae_jinja_run *r, const ae_object *object, size_t **out)
{
    size_t *order = ae_value_alloc(&r->heap, object->n, sizeof *order);
    if (!order) return ae_jinja_fail_heap(r);
    for (size_t i = 0; i < object->n; i++) {
        size_t at = i;
        for (; at > 0; at--) {
            int cmp;
            AE_TRY(ae_jinja_order(r, object->entries[i].key, object->entries[order[at - 1]].key, &cmp));
            if (cmp >= 0) break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    *out = order;
    return AERIE_OK;
}

static aerie_status json_object(ae_jinja_run *r, json *j, const ae_object *object)
{
    size_t *order = NULL;
    if (object->n == 0) return ae_jinja_text_adds(r, &j->text, "{}");
    if (j->sort) AE_TRY(sorted_entries(r, object, &order));
    AE_TRY(ae_jinja_text_adds(r, &j->text, "{"));
    j->level++;
    for (size_t i = 0; i < object->n; i++) {
        const ae_entry *entry = &object->entries[order ? order[i] : i];
        AE_TRY(json_next(r, j, i == 0));
        AE_TRY(json_key(r, j, entry->key));
        if (j->key_separator) AE_TRY(ae_jinja_text_part(r, &j->text, j->key_separator, 0, j->key_separator->n));
        else AE_TRY(ae_jinja_text_adds(r, &j->text, ": "));
        AE_TRY(json_value(r, j, entry->value));
    }
    j->level--;
    AE_TRY(json_newline(r, j));
    return ae_jinja_text_adds(r, &j->text, "}");
}

static aerie_status json_array(ae_jinja_run *r, json *j, ae_value v)
{
    const ae_array *array = v.as.array;
    if (array->kind > AE_ARRAY_TUPLE && array->kind != AE_ARRAY_GENERATOR && array->kind != AE_ARRAY_GROUP)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a value of type '%s' has no JSON form", ae_jinja_type_name(v));
    if (array->n == 0) return ae_jinja_text_adds(r, &j->text, "[]");
    AE_TRY(ae_jinja_text_adds(r, &j->text, "["));
    j->level++;
    for (size_t i = 0; i < array->n; i++) {
        AE_TRY(json_next(r, j, i == 0));
        AE_TRY(json_value(r, j, array->items[i]));
    }
    j->level--;
    AE_TRY(json_newline(r, j));
    return ae_jinja_text_adds(r, &j->text, "]");
}

static aerie_status json_value(ae_jinja_run *r, json *j, ae_value v)
{
    AE_JINJA_CHARGE(r, 1);
    AE_TRY(ae_jinja_descend(r));
    if (v.kind == AE_VALUE_OBJECT) AE_TRY(json_object(r, j, v.as.object));
    else if (v.kind == AE_VALUE_ARRAY) AE_TRY(json_array(r, j, v));
    else AE_TRY(json_scalar(r, j, v));
    r->depth--;
    return AERIE_OK;
}

/* tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false) */
aerie_status ae_jinja_tojson(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    json j = {.ascii = ae_jinja_truth(call->arg[0]), .sort = ae_jinja_truth(call->arg[3])};
    ae_value indent = call->arg[1], separators = call->arg[2];
    int64_t width;
    if (indent.kind == AE_VALUE_STRING) {
        j.pretty = true;
        j.indent = indent.as.string;
    } else if (ae_jinja_to_int(indent, &width)) {
        const size_t n = width < 0 ? 0 : width > 1024 ? 1024 : (size_t)width;
        ae_string *spaces = ae_string_alloc(&r->heap, n);
        if (!spaces) return ae_jinja_fail_heap(r);
        memset(spaces->data, ' ', n);
        ae_string_seal(spaces);
        j.pretty = true;
        j.indent = spaces;
    } else if (call->has[1] && indent.kind != AE_VALUE_NONE) {
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "tojson: indent must be a number or a string");
    }
    if (call->has[2] && separators.kind != AE_VALUE_NONE) {
        const ae_array *pair = separators.as.array;
        if (separators.kind != AE_VALUE_ARRAY || pair->n != 2 || pair->items[0].kind != AE_VALUE_STRING ||
            pair->items[1].kind != AE_VALUE_STRING)
            return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "tojson: separators must be two strings");
        j.item_separator = pair->items[0].as.string;
        j.key_separator = pair->items[1].as.string;
    }
    AE_TRY(json_value(r, &j, call->self));
    return ae_jinja_text_value(r, &j.text, out);
}

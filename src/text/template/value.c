/* value.c - heap, strings, arrays, objects and number texts; see value.h. */
#include "text/template/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/number.h"

#define CHUNK_BYTES 16384
#define INDEX_FROM 8 /* objects with more entries than this get a hash index */

void ae_value_heap_init(ae_value_heap *heap, size_t limit_bytes)
{
    *heap = (ae_value_heap){.limit_bytes = limit_bytes};
    ae_arena_init(&heap->arena, CHUNK_BYTES);
}

void ae_value_heap_free(ae_value_heap *heap)
{
    ae_arena_free(&heap->arena);
}

void *ae_value_alloc(ae_value_heap *heap, size_t n, size_t size)
{
    size_t bytes;
    if (!ae_mul_size(n, size, &bytes) || bytes > heap->limit_bytes ||
        heap->arena.used_bytes > heap->limit_bytes - bytes) {
        heap->limit_hit = true;
        return NULL;
    }
    return ae_arena_alloc(&heap->arena, n, size);
}

/* ---- UTF-8 ------------------------------------------------------------------------------ */

size_t ae_utf8_decode(const char *text, size_t n, uint32_t *code)
{
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0x80 || n < 2) {
        *code = p[0];
        return 1;
    }
    if (p[0] < 0xE0 || n < 3) {
        *code = (uint32_t)(p[0] & 0x1F) << 6 | (p[1] & 0x3F);
        return 2;
    }
    if (p[0] < 0xF0 || n < 4) {
        *code = (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
        return 3;
    }
    *code = (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 | (uint32_t)(p[2] & 0x3F) << 6 |
            (p[3] & 0x3F);
    return 4;
}

size_t ae_utf8_encode(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

size_t ae_utf8_valid(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    if (n == 0) return 0;
    if (p[0] < 0x80) return 1;
    size_t length = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || length > n) return 0;
    for (size_t i = 1; i < length; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    uint32_t code;
    ae_utf8_decode(text, n, &code);
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < least[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return 0;
    return length;
}

bool ae_utf8_is_space(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

/* ---- Strings ---------------------------------------------------------------------------- */

static uint32_t hash_bytes(uint32_t hash, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash;
}

ae_string *ae_string_alloc(ae_value_heap *heap, size_t n)
{
    size_t bytes;
    if (!ae_add_size(n, sizeof(ae_string) + 1, &bytes)) return NULL;
    ae_string *string = ae_value_alloc(heap, bytes, 1);
    if (string) string->n = n;
    return string;
}

void ae_string_seal(ae_string *string)
{
    size_t n_chars = 0;
    for (size_t i = 0; i < string->n; i++) n_chars += ((unsigned char)string->data[i] & 0xC0) != 0x80;
    string->n_chars = n_chars;
    string->data[string->n] = 0;
    /* Hashes only the ends of long strings: hashing must not cost more than making the string. */
    uint32_t hash = 2166136261u ^ (uint32_t)string->n;
    if (string->n <= 64) {
        hash = hash_bytes(hash, string->data, string->n);
    } else {
        hash = hash_bytes(hash, string->data, 32);
        hash = hash_bytes(hash, string->data + string->n - 32, 32);
    }
    string->hash = hash;
}

const ae_string *ae_string_new(ae_value_heap *heap, const char *text, size_t n)
{
    size_t n_bad = 0, bytes;
    for (size_t i = 0; i < n;) {
        size_t length = ae_utf8_valid(text + i, n - i);
        n_bad += length == 0;
        i += length ? length : 1;
    }
    if (!ae_mul_size(n_bad, 2, &bytes) || !ae_add_size(bytes, n, &bytes)) return NULL;
    ae_string *string = ae_string_alloc(heap, bytes);
    if (!string) return NULL;
    string->origin = heap->is_data ? AE_ORIGIN_DATA : AE_ORIGIN_TEMPLATE;
    if (n_bad == 0) {
        if (n) memcpy(string->data, text, n);
    } else {
        char *to = string->data;
        for (size_t i = 0; i < n;) {
            size_t length = ae_utf8_valid(text + i, n - i);
            if (length) {
                memcpy(to, text + i, length);
                to += length;
                i += length;
            } else {
                to += ae_utf8_encode(0xFFFD, to);
                i++;
            }
        }
    }
    ae_string_seal(string);
    return string;
}

bool ae_string_equal(const ae_string *a, const ae_string *b)
{
    return a == b || (a->hash == b->hash && a->n == b->n && memcmp(a->data, b->data, a->n) == 0);
}

bool ae_string_is(const ae_string *a, const char *literal)
{
    size_t n = strlen(literal);
    return a->n == n && memcmp(a->data, literal, n) == 0;
}

bool ae_value_string(ae_value_heap *heap, const char *text, size_t n, ae_value *out)
{
    const ae_string *string = ae_string_new(heap, text, n);
    if (!string) return false;
    *out = ae_value_of_string(string);
    return true;
}

/* ---- Arrays ----------------------------------------------------------------------------- */

bool ae_value_array(ae_value_heap *heap, ae_array_kind kind, size_t capacity, ae_value *out)
{
    ae_array *array = ae_value_alloc(heap, 1, sizeof *array);
    if (!array) return false;
    array->kind = (uint8_t)kind;
    if (capacity) {
        array->items = ae_value_alloc(heap, capacity, sizeof *array->items);
        if (!array->items) return false;
        array->capacity = capacity;
    }
    *out = (ae_value){.kind = AE_VALUE_ARRAY, .as.array = array};
    return true;
}

bool ae_value_array_add(ae_value_heap *heap, ae_value value, ae_value item)
{
    ae_array *array = value.as.array;
    if (array->n == array->capacity) {
        size_t capacity = array->capacity ? array->capacity * 2 : 4;
        ae_value *items = ae_value_alloc(heap, capacity, sizeof *items);
        if (!items) return false;
        if (array->n) memcpy(items, array->items, array->n * sizeof *items);
        array->items = items;
        array->capacity = capacity;
    }
    array->items[array->n++] = item;
    return true;
}

/* ---- Objects ---------------------------------------------------------------------------- */

bool ae_value_object(ae_value_heap *heap, ae_value *out)
{
    ae_object *object = ae_value_alloc(heap, 1, sizeof *object);
    if (!object) return false;
    *out = (ae_value){.kind = AE_VALUE_OBJECT, .as.object = object};
    return true;
}

bool ae_value_is_key(ae_value key)
{
    return key.kind >= AE_VALUE_NONE && key.kind <= AE_VALUE_STRING;
}

/* 1, 1.0 and true are the same key in Python, so numbers are brought to one form first. */
static ae_value key_form(ae_value key)
{
    if (key.kind == AE_VALUE_BOOL) return ae_value_int(key.as.boolean);
    if (key.kind == AE_VALUE_DOUBLE && key.as.number >= -9e18 && key.as.number <= 9e18 &&
        key.as.number == (double)(int64_t)key.as.number)
        return ae_value_int((int64_t)key.as.number);
    return key;
}

static uint32_t key_hash(ae_value key)
{
    uint64_t bits = 0;
    switch (key.kind) {
    case AE_VALUE_STRING: return key.as.string->hash;
    case AE_VALUE_INT: bits = (uint64_t)key.as.integer; break;
    case AE_VALUE_DOUBLE: memcpy(&bits, &key.as.number, sizeof bits); break;
    default: return 7;
    }
    bits *= 0x9E3779B97F4A7C15u;
    return (uint32_t)(bits >> 32);
}

static bool key_equal(ae_value a, ae_value b)
{
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case AE_VALUE_STRING: return ae_string_equal(a.as.string, b.as.string);
    case AE_VALUE_INT: return a.as.integer == b.as.integer;
    case AE_VALUE_DOUBLE: return a.as.number == b.as.number;
    default: return true;
    }
}

static ae_entry *find_entry(const ae_object *object, ae_value key, uint32_t hash)
{
    if (!object->index) {
        for (size_t i = 0; i < object->n; i++) {
            ae_entry *entry = &object->entries[i];
            if (entry->hash == hash && key_equal(key_form(entry->key), key)) return entry;
        }
        return NULL;
    }
    for (size_t slot = hash & (object->n_index - 1);; slot = (slot + 1) & (object->n_index - 1)) {
        if (object->index[slot] == 0) return NULL;
        ae_entry *entry = &object->entries[object->index[slot] - 1];
        if (entry->hash == hash && key_equal(key_form(entry->key), key)) return entry;
    }
}

ae_value *ae_object_find(const ae_object *object, ae_value key)
{
    if (!ae_value_is_key(key)) return NULL;
    key = key_form(key);
    ae_entry *entry = find_entry(object, key, key_hash(key));
    return entry ? &entry->value : NULL;
}

ae_value *ae_object_find_string(const ae_object *object, const ae_string *key)
{
    return ae_object_find(object, ae_value_of_string(key));
}

static void index_entry(ae_object *object, size_t i)
{
    size_t slot = object->entries[i].hash & (object->n_index - 1);
    while (object->index[slot]) slot = (slot + 1) & (object->n_index - 1);
    object->index[slot] = (uint32_t)(i + 1);
}

static bool grow_object(ae_value_heap *heap, ae_object *object)
{
    size_t capacity = object->capacity ? object->capacity * 2 : 4;
    if (capacity > UINT32_MAX / 4) {
        heap->limit_hit = true;
        return false;
    }
    ae_entry *entries = ae_value_alloc(heap, capacity, sizeof *entries);
    if (!entries) return false;
    if (object->n) memcpy(entries, object->entries, object->n * sizeof *entries);
    if (capacity > INDEX_FROM) {
        uint32_t *index = ae_value_alloc(heap, capacity * 2, sizeof *index);
        if (!index) return false;
        object->index = index;
        object->n_index = capacity * 2;
    }
    object->entries = entries;
    object->capacity = capacity;
    if (object->index)
        for (size_t i = 0; i < object->n; i++) index_entry(object, i);
    return true;
}

bool ae_value_object_set(ae_value_heap *heap, ae_value value, ae_value key, ae_value item)
{
    ae_object *object = value.as.object;
    AE_ASSERT(ae_value_is_key(key));
    ae_value form = key_form(key);
    uint32_t hash = key_hash(form);
    ae_entry *entry = find_entry(object, form, hash);
    if (entry) {
        entry->value = item;
        return true;
    }
    if (object->n == object->capacity && !grow_object(heap, object)) return false;
    object->entries[object->n] = (ae_entry){.key = key, .value = item, .hash = hash};
    if (object->index) index_entry(object, object->n);
    object->n++;
    return true;
}

bool ae_value_object_put(ae_value_heap *heap, ae_value object, const char *key, ae_value value)
{
    ae_value name;
    return ae_value_string(heap, key, strlen(key), &name) && ae_value_object_set(heap, object, name, value);
}

/* ---- Numbers ---------------------------------------------------------------------------- */

size_t ae_double_repr(double v, char out[AE_DOUBLE_TEXT])
{
    char text[AE_DOUBLE_TEXT], digits[20];
    if (isnan(v) || isinf(v)) {
        const char *word = isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";
        strcpy(out, word);
        return strlen(word);
    }
    for (int precision = 0; precision < 17; precision++) {
        ae_number_print(text, sizeof text, "%.*e", precision, v);
        if (ae_number_parse(text, NULL) == v) break;
    }
    /* Take sign, digits and exponent. */
    const char *p = text;
    size_t n = 0;
    char *to = out;
    if (*p == '-') *to++ = *p++;
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9' && n < sizeof digits) digits[n++] = *p;
    int point = (*p ? atoi(p + 1) : 0) + 1; /* digits before the decimal point */
    while (n > 1 && digits[n - 1] == '0') n--;
    if (point > 16 || point < -3) {
        *to++ = digits[0];
        if (n > 1) {
            *to++ = '.';
            memcpy(to, digits + 1, n - 1);
            to += n - 1;
        }
        to += snprintf(to, 8, "e%c%02d", point - 1 < 0 ? '-' : '+', abs(point - 1));
    } else {
        if (point <= 0) *to++ = '0';
        for (int i = 0; i < point; i++) *to++ = i < (int)n ? digits[i] : '0';
        *to++ = '.';
        for (int i = point; i < 0; i++) *to++ = '0';
        for (int i = point > 0 ? point : 0; i < (int)n; i++) *to++ = digits[i];
        if (point >= (int)n) *to++ = '0';
    }
    *to = 0;
    return (size_t)(to - out);
}

double ae_double_parse(const char *text, size_t n)
{
    char copy[4096];
    if (n >= sizeof copy) n = sizeof copy - 1;
    memcpy(copy, text, n);
    copy[n] = 0;
    return ae_number_parse(copy, NULL);
}

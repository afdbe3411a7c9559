/* value.h - the dynamic values that templates work on.
 *
 * Owns: values, and the heap that they live in until it is freed as a whole. A caller builds the
 * root object of a template from these and lends it to ae_template_render (text/template/jinja.h).
 * Does not own: what operators and filters do with values (jinja_ops.c and its neighbours).
 *
 * Invariants: every string is valid UTF-8 (bad bytes become U+FFFD on the way in), may hold NUL
 * bytes and never changes. A value that a template can see never refers to memory with a shorter
 * life than its own. Objects keep insertion order; keys are strings, numbers, booleans or none.
 * Every byte of a string is either written by the template or comes from data (messages, tools); what is made of strings
 * keeps that, so that control tokens spelled in data stay text (docs/templates.md). Equality and hashes do not see it.
 */
#ifndef AE_TEXT_VALUE_H
#define AE_TEXT_VALUE_H

#include "base/mem.h"

/* An arena with a ceiling. */
typedef struct ae_value_heap {
    ae_arena arena;
    size_t limit_bytes;
    bool limit_hit; /* an allocation failed because of limit_bytes, not because memory ran out */
    bool is_data;   /* strings made by ae_string_new come from data */
} ae_value_heap;

typedef enum ae_origin {
    AE_ORIGIN_TEMPLATE = 0,
    AE_ORIGIN_DATA = 1,
    AE_ORIGIN_MIXED = 2 /* a map tells for each byte */
} ae_origin;

typedef struct ae_string {
    const uint8_t *map; /* MIXED: [n] ae_origin of each byte; else NULL */
    size_t n;       /* bytes without the NUL */
    size_t n_chars; /* code points; equals n for ASCII */
    uint32_t hash;
    uint8_t origin; /* ae_origin */
    char data[]; /* [n + 1] */
} ae_string;

typedef enum ae_value_kind {
    AE_VALUE_UNDEFINED = 0,
    AE_VALUE_NONE,
    AE_VALUE_BOOL,
    AE_VALUE_INT,
    AE_VALUE_DOUBLE,
    AE_VALUE_STRING,
    AE_VALUE_ARRAY,
    AE_VALUE_OBJECT,
    AE_VALUE_CALLABLE,  /* this kind and the next ones are made by the interpreter only */
    AE_VALUE_NAMESPACE, /* as.object; the only kind whose content a template may change */
    AE_VALUE_LOOP
} ae_value_kind;

/* Python has many sequences; they differ in how they print and in what they refuse. */
typedef enum ae_array_kind {
    AE_ARRAY_LIST = 0,
    AE_ARRAY_TUPLE,
    AE_ARRAY_RANGE,
    AE_ARRAY_GENERATOR, /* result of a lazy filter: can be walked once */
    AE_ARRAY_KEYS,
    AE_ARRAY_VALUES,
    AE_ARRAY_ITEMS,
    AE_ARRAY_GROUP /* tuple with names: grouper, list */
} ae_array_kind;

typedef struct ae_value {
    uint8_t kind; /* ae_value_kind */
    bool safe;    /* STRING: marked as safe (Markup); concatenation then escapes the other side */
    union {
        bool boolean;
        int64_t integer;
        double number;
        const ae_string *string;
        struct ae_array *array;
        struct ae_object *object;
        const struct ae_jinja_callable *callable;
        struct ae_jinja_loop *loop;
        const struct ae_undefined *undefined; /* NULL: nothing known */
    } as;
} ae_value;

/* Why a value is undefined; for messages. */
typedef struct ae_undefined {
    const char *owner;     /* the type that lacks the attribute; NULL: it is a variable */
    const ae_string *name; /* the attribute's or variable's name; NULL: `owner` is the whole reason */
    bool unsafe;           /* it exists, but the sandbox hides it */
} ae_undefined;

typedef struct ae_array {
    ae_value *items; /* [n] */
    size_t n, capacity;
    int64_t start, stop, step; /* RANGE only */
    uint8_t kind;              /* ae_array_kind */
    bool walked;               /* GENERATOR only */
    bool is_data;              /* LIST: the list comes from data, which no template may change */
} ae_array;

typedef struct ae_entry {
    ae_value key, value;
    uint32_t hash;
} ae_entry;

typedef struct ae_object {
    ae_entry *entries; /* [n], in order of insertion */
    size_t n, capacity;
    uint32_t *index; /* [n_index], a power of two: entry + 1, or 0; NULL while small */
    size_t n_index;
} ae_object;

void ae_value_heap_init(ae_value_heap *heap, size_t limit_bytes);
void ae_value_heap_free(ae_value_heap *heap);
/* Allocates zeroed memory; returns NULL if the limit or the machine's memory is reached. */
void *ae_value_alloc(ae_value_heap *heap, size_t n, size_t size);

/* ---- Scalars ---- */
static inline ae_value ae_value_undefined(void) { return (ae_value){.kind = AE_VALUE_UNDEFINED}; }
static inline ae_value ae_value_none(void) { return (ae_value){.kind = AE_VALUE_NONE}; }
static inline ae_value ae_value_bool(bool v) { return (ae_value){.kind = AE_VALUE_BOOL, .as.boolean = v}; }
static inline ae_value ae_value_int(int64_t v) { return (ae_value){.kind = AE_VALUE_INT, .as.integer = v}; }
static inline ae_value ae_value_double(double v) { return (ae_value){.kind = AE_VALUE_DOUBLE, .as.number = v}; }
static inline ae_value ae_value_of_string(const ae_string *s) { return (ae_value){.kind = AE_VALUE_STRING, .as.string = s}; }

/* ---- Things on the heap; the functions that return bool give false when it is exhausted ---- */

/* Returns a string of n bytes, which the caller fills with valid UTF-8 and then seals. */
ae_string *ae_string_alloc(ae_value_heap *heap, size_t n);
void ae_string_seal(ae_string *string); /* counts code points, hashes; sets the NUL */
/* Returns a copy of text[0..n) with bad UTF-8 replaced; NULL when the heap is exhausted. */
const ae_string *ae_string_new(ae_value_heap *heap, const char *text, size_t n);
bool ae_string_equal(const ae_string *a, const ae_string *b);
bool ae_string_is(const ae_string *a, const char *literal);

bool ae_value_string(ae_value_heap *heap, const char *text, size_t n, ae_value *out);
bool ae_value_array(ae_value_heap *heap, ae_array_kind kind, size_t capacity, ae_value *out);
bool ae_value_array_add(ae_value_heap *heap, ae_value array, ae_value item);
bool ae_value_object(ae_value_heap *heap, ae_value *out);
/* Inserts or replaces an entry. The key must pass ae_value_is_key. */
bool ae_value_object_set(ae_value_heap *heap, ae_value object, ae_value key, ae_value value);
bool ae_value_object_put(ae_value_heap *heap, ae_value object, const char *key, ae_value value);

bool ae_value_is_key(ae_value key);
/* Returns the value after a key, or NULL. */
ae_value *ae_object_find(const ae_object *object, ae_value key);
ae_value *ae_object_find_string(const ae_object *object, const ae_string *key);

/* ---- UTF-8 ---- */

/* Reads the code point at text[0] (n >= 1 bytes of valid UTF-8); returns its length in bytes. */
size_t ae_utf8_decode(const char *text, size_t n, uint32_t *code);
/* Writes at most 4 bytes; returns their number. */
size_t ae_utf8_encode(uint32_t code, char *out);
/* Returns the length of the valid sequence at text, 0 if it is not one (no surrogates, no overlong forms). */
size_t ae_utf8_valid(const char *text, size_t n);
/* Returns whether the character is white space as in Python's str.isspace. */
bool ae_utf8_is_space(uint32_t code);

/* ---- Numbers as Python writes and reads them, whatever the locale ---- */

#define AE_DOUBLE_TEXT 40
/* repr(float): the shortest text that reads back equal. Returns its length. */
size_t ae_double_repr(double v, char out[AE_DOUBLE_TEXT]);
/* Reads digits[.digits][e[sign]digits] of n bytes (checked by the caller; n < 4000). */
double ae_double_parse(const char *text, size_t n);

#endif

/* schema.h - JSON schemas as grammars: the inside, shared by grammar_schema*.c.
 *
 * What a schema becomes. Its documents, written as JSON in this way:
 *   - Properties come in the schema's order (of $ref and allOf: after the schema's own), then additional ones, as
 *     llama.cpp has it. A property named in the schema comes at most once; additional ones may repeat.
 *   - Between tokens nothing, one space, or a newline and up to 60 spaces or tabs: after { [ , : and before } ]. None
 *     before and after the whole, so that a complete object ends the answer.
 *   - Strings of `pattern`, `format`, `enum`, `const` and keys are written with the shortest escapes only (\" \\ \b \f
 *     \n \r \t, \u00xx for other control characters); others also with \/ and any \uNNNN that is a character.
 *   - Numbers of `enum` and `const` are written in their shortest form; those with bounds without an exponent; integers
 *     without a fraction, also if it is 0.
 *
 * Keywords: type (also a list), enum, const, properties, required, additionalProperties, minProperties and maxProperties
 * (of objects without properties), items, prefixItems (and items as a list with additionalItems), minItems, maxItems,
 * uniqueItems (of few values), minLength, maxLength, pattern (regex.c says which), format
 * (object.c), minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf,
 * anyOf, oneOf (as anyOf), allOf, $ref into the same document (by place or $anchor), $defs,
 * definitions.
 * Annotations and x-... are passed over; everything else too, with a warning that names its place, or if `strict` it is
 * refused. Beside enum and const only type constrains. Recursion is possible through properties and items; a schema that is
 * itself without anything written between is refused.
 *
 * Unless `standard` is asked for, llama.cpp's habits hold: an object with properties has no others unless
 * additionalProperties says so; a schema without type, but with keywords of just one, is of that type; the empty schema
 * as a whole is any object; numbers have at most AE_SCHEMA_DIGITS digits before the point, unless a bound has more, and as
 * many after it.
 *
 * How. A schema is a set of conjuncts: itself, what it refers to, what is in allOf. anyOf is multiplied out. A set without
 * anyOf is one rule: the union over its types of what all conjuncts together leave. Sets are remembered, so that recursion
 * becomes a call.
 */
#ifndef AE_TEXT_SCHEMA_SCHEMA_H
#define AE_TEXT_SCHEMA_SCHEMA_H

#include <jansson.h>

#include "text/grammar/build.h"

#define AE_SCHEMA_MAX_CONJUNCTS 32
#define AE_SCHEMA_DIGITS 16
#define AE_SCHEMA_MAX_WORK (1u << 20) /* schemas looked at */

typedef struct ae_conjunct {
    const json_t *schema; /* an object */
    bool chosen;          /* its anyOf or oneOf was multiplied out */
} ae_conjunct;

typedef struct ae_conjuncts {
    ae_conjunct items[AE_SCHEMA_MAX_CONJUNCTS];
    size_t n;
    bool never; /* nothing satisfies it */
} ae_conjuncts;

/* A set that has its rule. */
typedef struct ae_schema_memo {
    ae_conjunct *items; /* [n] in the arena of names */
    size_t n;
    uint32_t rule;
    bool never; /* known once compiled */
} ae_schema_memo;

typedef struct ae_schema {
    ae_gbuild b;
    json_t *root;
    bool standard, strict;
    uint32_t max_count; /* larger counts are not enforced */
    ae_buf *warnings;   /* NULL: not wanted */
    ae_buf warned;      /* the warnings that were given: pairs of const void *, the schema and the keyword */
    aerie_error failure; /* of calls that pass no error on, such as a pattern's */
    uint32_t depth, work, n_compared;
    ae_schema_memo *memos; /* [n_memos] */
    uint32_t *memo_table;  /* [memo_table_size] memo + 1, or 0 */
    uint32_t n_memos, memos_capacity, memo_table_size;
    /* rules that every schema can use; AE_GNONE until one does */
    uint32_t ws, value, object, array, string, string_char, number, integer;
} ae_schema;

/* Types; a number is INTEGER | FRACTION. */
enum {
    AE_JSON_NULL = 1,
    AE_JSON_BOOLEAN = 2,
    AE_JSON_OBJECT = 4,
    AE_JSON_ARRAY = 8,
    AE_JSON_STRING = 16,
    AE_JSON_INTEGER = 32,
    AE_JSON_FRACTION = 64,
    AE_JSON_ALL = 127
};

/* ---- schema.c: sets of schemas ------------------------------------------------------------------- */

/* tidy.c: gives what has one meaning only its standard form. Returns false if memory is short. */
bool ae_schema_tidy(json_t *schema);

bool ae_schema_ok(const ae_schema *s);
/* "schema at #/properties/x: <sentence>" */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
void ae_schema_fail(ae_schema *s, aerie_status status, const json_t *schema, const char *format, ...);
void ae_schema_fail_memory(ae_schema *s);
/* Handles a keyword that is not enforced: fails (UNSUPPORTED) if strict, else adds a warning, once for each `what` of a
 * schema. */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
void ae_schema_pass_over(ae_schema *s, const json_t *schema, const char *what, const char *format, ...);
/* Turns the failure of a part that may be ignored into a warning. Returns false if the failure stays. */
bool ae_schema_forgive(ae_schema *s, const json_t *schema, const char *what);
/* Adds a schema (true, false, an object) with everything that it refers to. `from`: for messages. */
void ae_schema_add(ae_schema *s, ae_conjuncts *set, const json_t *schema, const json_t *from);
/* Returns the rule of a set; AE_GNONE when nothing satisfies it (or after a failure). */
uint32_t ae_schema_compile(ae_schema *s, const ae_conjuncts *set);
/* Returns the types that a set allows; and those that a schema's keywords other than "type" are about. */
unsigned ae_schema_types(ae_schema *s, const ae_conjuncts *set);
unsigned ae_schema_implied(const json_t *schema);
/* Returns the list of alternatives (anyOf, oneOf) of a schema, NULL if it has none. */
const json_t *ae_schema_alternatives(ae_schema *s, const json_t *schema);
/* Returns a count >= 0 of a keyword, `missing` where it is absent. */
uint32_t ae_schema_count(ae_schema *s, const json_t *schema, const char *keyword, uint32_t missing);

/* ---- values.c: lists of values, const json_t * in a buffer ------------------------------------- */

/* Returns whether a conjunct has enum or const. */
bool ae_schema_has_values(ae_schema *s, const ae_conjuncts *set);
/* Adds the values that all conjuncts allow. */
void ae_schema_add_values(ae_schema *s, const ae_conjuncts *set, ae_buf *values);
/* Makes the values one choice. Returns false if there are none. Frees the list. */
bool ae_schema_choose(ae_schema *s, ae_gpiece choices, ae_buf *values);
/* Adds all values of a set that has at most `max` values, by enum and const, null and boolean, or alternatives of these.
 * Returns false if the set has more or other values; `values` may then hold some. */
bool ae_schema_few(ae_schema *s, const ae_conjuncts *set, size_t max, ae_buf *values);
/* Returns whether both are the same value in JSON: 1 is 1.0, and the order of keys does not matter. */
bool ae_schema_same(const json_t *a, const json_t *b);

/* ---- json.c: JSON itself --------------------------------------------------------------------- */

ae_gpiece ae_schema_ws(ae_schema *s);
/* Rules that match any value, object, array, string, number, integer; one character of a string. */
uint32_t ae_schema_any(ae_schema *s);
uint32_t ae_schema_any_object(ae_schema *s);
uint32_t ae_schema_any_array(ae_schema *s);
uint32_t ae_schema_any_string(ae_schema *s);
uint32_t ae_schema_any_number(ae_schema *s);
uint32_t ae_schema_any_integer(ae_schema *s);
uint32_t ae_schema_string_char(ae_schema *s);
/* Matches one character of normalized ranges, in a string, with its shortest escape. */
ae_gpiece ae_schema_char(ae_schema *s, const ae_grange *ranges, size_t n);
/* Matches a string, with its quotation marks. */
ae_gpiece ae_schema_text(ae_schema *s, const char *text, size_t n);
/* One of n values. */
ae_gpiece ae_schema_values(ae_schema *s, const json_t *const *values, size_t n);
/* Matches a key that is none of the object's keys. */
ae_gpiece ae_schema_other_key(ae_schema *s, const json_t *keys);

/* ---- object.c, _number.c, _regex.c: one type each ------------------------------------------------- */

ae_gpiece ae_schema_object(ae_schema *s, const ae_conjuncts *set);
ae_gpiece ae_schema_array(ae_schema *s, const ae_conjuncts *set);
ae_gpiece ae_schema_string(ae_schema *s, const ae_conjuncts *set);
ae_gpiece ae_schema_number(ae_schema *s, const ae_conjuncts *set, bool fractions);
/* Matches a string that the regular expression matches; schema: named in messages. */
ae_gpiece ae_schema_regex(ae_schema *s, const char *text, size_t n, const json_t *schema);

/* ---- monitor.c: what counts while the rest is matched -------------------------------------------- */

#define AE_SCHEMA_MAX_PRODUCT 65536u /* pairs of a node and a count */

/* Restricts `piece` to strings of min to max characters (AE_GNONE: unlimited); its characters must have their shortest escapes.
 * *piece.start is AE_GNONE if there are none. Returns false, and leaves the piece unchanged, if there are too many
 * combinations. */
bool ae_schema_lengths(ae_schema *s, ae_gpiece *piece, uint32_t min, uint32_t max);

/* The number, factor / 10^places, that all numbers of a set must be multiples of. */
typedef struct ae_schema_multiple {
    uint32_t factor, places; /* factor 0: of nothing */
    const json_t *from;      /* for messages */
} ae_schema_multiple;

/* Errors: FORMAT. A number that is too large or too small is passed over. */
ae_schema_multiple ae_schema_multiple_of(ae_schema *s, const ae_conjuncts *set);
/* Restricts `piece` to multiples, without an exponent, and with no more digits after the point than `places`. Returns as
 * above. */
bool ae_schema_multiples(ae_schema *s, ae_gpiece *piece, const ae_schema_multiple *of);

#endif

/* answer_value.h - converts one value to JSON, byte by byte: JSON itself, Python's literals, and the notations of Gemma's
 * calls.
 * Owns the state of one value. The output is JSON, whatever the input: raw control characters in strings are escaped, unknown
 * escapes become backslashes, single quotes double ones. Constant memory per value, constant time per byte. */
#ifndef AERIE_APP_SERVE_PARSE_ANSWER_VALUE_H
#define AERIE_APP_SERVE_PARSE_ANSWER_VALUE_H

#include "shared/app.h"

#define ANSWER_DEPTH 128 /* of arguments */

typedef enum answer_value_result {
    ANSWER_VALUE_MORE,
    ANSWER_VALUE_DONE,   /* with this byte */
    ANSWER_VALUE_BEFORE, /* ended before this byte, which is not part of it, as numbers and words do */
    ANSWER_VALUE_BAD,
} answer_value_result;

typedef struct answer_value {
    bool loose;       /* Python's literals, bare keys, trailing commas; white space is dropped */
    const char *mark; /* loose: the mark around strings, in addition to quotes ("<|\"|>"); NULL: none */
    bool failed;      /* memory ran out */
    uint8_t state, number, quote, n_word, n_hex;
    uint8_t n_mark;   /* bytes of the mark seen */
    uint8_t n_gap;    /* bytes in gap: a comma and its white space, held back until another item comes */
    bool is_key;
    uint32_t depth, n_pending; /* nesting depth; bytes taken that were not written yet */
    char stack[ANSWER_DEPTH];
    char word[16], gap[16];
} answer_value;

void answer_value_begin(answer_value *v, bool loose, const char *mark);
/* Appends to *out. */
answer_value_result answer_value_byte(answer_value *v, char byte, app_text *out);
/* Ends the input. Returns whether the value is complete. */
bool answer_value_end(answer_value *v, app_text *out);

/* Appends what completes a value that broke off. told: bytes that are held back were already written, because this value was
 * read from the output of another one. The value cannot be used afterwards. */
void answer_value_close(answer_value *v, bool told, app_text *out);
/* Appends bytes [n], escaped for the inside of a JSON string. Returns false if memory is short. */
bool answer_escape(app_text *out, const char *text, size_t n);

#endif

/* unicode.h - characters as the tokenizers see them: strict UTF-8 and coarse classes.
 *
 * Owns: decoding and classification, nothing else. Bytes that are not part of a well-formed
 * character count as one character each, of class 0 ("other"), so every input can be split.
 * Classes follow the regular expressions of the reference tokenizers: \p{L}, \p{N}, ... and \s as
 * White_Space. Source: utf8proc, and unicode_new.h for what an older utf8proc lacks.
 */
#ifndef AE_TEXT_UNICODE_H
#define AE_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    AE_UNI_LETTER = 1,
    AE_UNI_NUMBER = 2,
    AE_UNI_MARK = 4,
    AE_UNI_PUNCT = 8,
    AE_UNI_SYMBOL = 16,
    AE_UNI_SPACE = 32,
    AE_UNI_NEWLINE = 64, /* \r or
                          * ; AE_UNI_SPACE is set too */
    AE_UNI_UPPER = 128,  /* can begin a word in CamelCase: Lu, Lt, and the caseless Lm, Lo, M */
    AE_UNI_LOWER = 256,  /* can end such a word: Ll, Lm, Lo, M */
};

#define AE_UNI_BAD 0xFFFFFFFFu

/* Decodes the character at text[0]; n >= 1. Sets *n_bytes (1..4). Returns AE_UNI_BAD, with 1 byte,
 * where no well-formed character begins (surrogates and overlong forms are ill-formed). */
uint32_t ae_uni_decode(const char *text, size_t n, uint32_t *n_bytes);

/* Returns the class bits of a code point; 0 for AE_UNI_BAD. */
uint16_t ae_uni_class(uint32_t code);

/* Returns whether it matches \d: a decimal digit (Nd). */
bool ae_uni_is_digit(uint32_t code);
/* Returns whether it matches \w as Oniguruma defines it: letters, marks, decimal digits, letter numbers (Nl), connectors (Pc),
 * letters in circles and squares, and the superscripts and fractions of Latin-1. */
bool ae_uni_is_word(uint32_t code);

/* Writes the UTF-8 of a code point up to U+10FFFF; returns the number of bytes (1..4). */
uint32_t ae_uni_encode(uint32_t code, char out[4]);

bool ae_uni_is_valid(const char *text, size_t n);

/* Returns how many bytes at the end of text[0..n) begin a character but do not finish it: 0..3. */
uint32_t ae_uni_incomplete(const char *text, size_t n);

extern const uint16_t ae_uni_ascii[128]; /* class of each ASCII character */

/* Returns the class of the character at text[0], and its length. The ASCII case is the hot one. */
static inline uint16_t ae_uni_class_at(const char *text, size_t n, uint32_t *n_bytes)
{
    uint8_t byte = (uint8_t)text[0];
    if (byte < 128) {
        *n_bytes = 1;
        return ae_uni_ascii[byte];
    }
    return ae_uni_class(ae_uni_decode(text, n, n_bytes));
}

#endif

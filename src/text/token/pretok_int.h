/* pretok_int.h - steps of the pre-tokenizer: kinds, the rule table, the scanners. */
#ifndef AE_TEXT_PRETOK_INT_H
#define AE_TEXT_PRETOK_INT_H

#include "text/token/pretok.h"
#include "text/token/unicode.h"

typedef enum ae_step_kind {
    AE_STEP_END = 0,
    AE_STEP_GPT2,     /* contractions, " ?letters", " ?numbers", " ?others", spaces */
    AE_STEP_LLAMA3,   /* the cl100k family; details in ae_scan */
    AE_STEP_CAMEL,    /* the o200k family: words also end where a capital begins the next */
    AE_STEP_NUMBERS,  /* splits off numbers, in groups of at most n (0: any length) */
    AE_STEP_NEWLINES, /* splits off each \r and \n */
    AE_STEP_LINES,    /* splits off runs of \n */
    AE_STEP_THREES,   /* cuts runs of digits into groups of three that end where the run ends; details in ae_threes */
    AE_STEP_TRAILING, /* splits off white space at the end */
    AE_STEP_PATTERN,
} ae_step_kind;

/* The parameters in which members of the cl100k and o200k families differ. */
typedef struct ae_scan {
    uint8_t letters;   /* bits of the classes that form a word; 0 for CAMEL */
    uint8_t n_numbers; /* numbers in a group; 0: any number */
    char tail;         /* newlines and this character belong to the punctuation before them; 0: none do */
    bool apostrophes;  /* CAMEL: a contraction ends a word */
    bool bare;         /* LLAMA3: contractions are not words of their own */
    bool powers;       /* LLAMA3: white space is cut into powers of two, 512 characters at most */
    uint8_t threes;    /* THREES: one of ae_threes */
} ae_scan;

/* Which runs of digits are cut into threes. */
typedef enum ae_threes {
    AE_THREES_NUMBERS = 1, /* \p{N}; each run is a part of its own */
    AE_THREES_WORDS,       /* \d{1,3}(?=(?:\d{3})*\b): as before, but runs before a word character stay as they are */
    AE_THREES_BEFORE,      /* (?=(\d{3})+(?!\d)): cut before each whole group only */
} ae_threes;

typedef struct ae_step {
    ae_step_kind kind;
    ae_scan scan;
    const char *pattern; /* AE_STEP_PATTERN: the pattern; else the pattern that the scanner implements, or NULL */
} ae_step;

enum { AE_RULE_IGNORE_MERGES = 1, AE_RULE_BOS = 2 };

typedef struct ae_pretok_rule {
    const char *names; /* separated by spaces; the first names the family */
    unsigned flags;
    ae_step steps[AE_PRETOK_STEPS];
} ae_pretok_rule;

extern const ae_pretok_rule ae_pretok_rules[]; /* ends with names == NULL */

/* Returns the end of the piece that begins at pos < end. */
size_t ae_scan_gpt2(const char *text, size_t pos, size_t end);
/* *clean, with scan->powers: if it is beyond pos, the white space from pos on ends there and has no newline. 0 at first. */
size_t ae_scan_llama3(const char *text, size_t pos, size_t end, const ae_scan *scan, size_t *clean);
size_t ae_scan_camel(const char *text, size_t pos, size_t end, const ae_scan *scan);
size_t ae_scan_numbers(const char *text, size_t pos, size_t end, uint32_t n_group);
size_t ae_scan_newlines(const char *text, size_t pos, size_t end);
size_t ae_scan_lines(const char *text, size_t pos, size_t end);
/* Finds the next run of digits to be cut into threes at or after pos: returns its begin, and its length in characters in
 * *n_digits (0: there is none). *stop: where the run ends, or `end`. */
size_t ae_scan_threes(const char *text, size_t pos, size_t end, ae_threes which, size_t *n_digits, size_t *stop);
/* Returns where the trailing white space of text[begin, end) begins. */
size_t ae_scan_trailing(const char *text, size_t begin, size_t end);

#endif

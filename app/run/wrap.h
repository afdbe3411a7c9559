/* wrap.h - wraps answers on a terminal between words.
 * Owns the column, and the word that has begun but not ended, which is held back because it may belong on the next line. Lines
 * of fenced code blocks are left as they are. The width is read again with every piece, so that the window can be resized. If
 * it is unknown or tiny, as in the terminals that mpirun gives its processes, text is not wrapped. */
#ifndef AERIE_APP_RUN_WRAP_H
#define AERIE_APP_RUN_WRAP_H

#include "shared/app.h"

typedef struct app_wrap {
    size_t width, column;
    char gap[128], word[512]; /* the spaces before the word; the word */
    size_t n_gap, n_word;     /* bytes */
    size_t gap_width, word_width;
    char fence;        /* '`' or '~' inside a block of code, else '\0' */
    size_t n_fence;    /* its length */
    char last, before; /* the last character of this line, and of the line before; '\0': there is none */
    bool in_line;      /* the first word of the line has been written */
    bool goes_on;      /* the word continues one that is longer than a line */
} app_wrap;

/* Prints text of a model, in whole UTF-8 characters, as app_write_text does. */
void app_wrap_text(app_wrap *wrap, const char *text, size_t n);
/* Prints bytes without width, such as a colour. */
void app_wrap_mark(app_wrap *wrap, const char *mark);
/* Prints what is held back; the next text begins a line. */
void app_wrap_end(app_wrap *wrap);

#endif

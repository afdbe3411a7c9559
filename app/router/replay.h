/* replay.h - collects the text of an answer from its bytes as they pass, so that another server can draft that text when it
 * repeats the answer.
 * The bytes are JSON in other text (events or lines), of any dialect. Strings after keys that name text (content, text,
 * thinking, arguments, ...) are kept as they are written, escapes included, one after another. Only the ends of strings are
 * checked; the server that receives the text checks the rest, and wrong text costs speed, but never changes bytes.
 * Owns the text, at most MOST_TEXT bytes; later text is left out. One thread at a time. */
#ifndef AERIE_ROUTER_REPLAY_H
#define AERIE_ROUTER_REPLAY_H

#include "shared/app.h"

typedef struct router_replay {
    app_text text;   /* the contents of JSON strings; the first n_whole bytes are whole strings */
    size_t n_whole;
    char word[24];   /* [n_word] the current or last string, as far as it fits */
    size_t n_word;   /* sizeof word: it was longer */
    bool in_string, escaped, keeps; /* keeps: the current string is text */
    bool after_key;  /* a key for text and its colon have passed */
} router_replay;

/* Forgets everything. */
void router_replay_free(router_replay *replay);
/* Reads the next bytes [n] of the answer. */
void router_replay_add(router_replay *replay, const char *bytes, size_t n);
/* Writes the request's body [n] with the text as the field "aerie_expected" to *out. Returns false if there is no text, if the
 * body is not an object or has that field, if the text is not valid JSON, or if memory is short; then the body is sent
 * unchanged. */
bool router_replay_body(const router_replay *replay, const char *body, size_t n, app_text *out);

#endif

/* replay.h - the text that an answer has so far, taken from its bytes as they pass, so that a server that replays it drafts
 * that text.
 *
 * The bytes are JSON between other text (events, or lines), of any dialect. Strings after keys that name text (content, text,
 * thinking, arguments, ...) are kept as they are written, escapes included, one after the other. Only the ends of strings are
 * checked: the server that gets the text checks the rest, and a wrong text costs speed, never bytes.
 *
 * Owns the text, MOST_TEXT bytes at most; what comes later is left out. One thread at a time.
 */
#ifndef AERIE_ROUTER_REPLAY_H
#define AERIE_ROUTER_REPLAY_H

#include "shared/app.h"

typedef struct router_replay {
    app_text text;   /* the insides of JSON strings; the first n_whole bytes are whole strings */
    size_t n_whole;
    char word[24];   /* [n_word] the string at hand, or the last one, as far as it fits */
    size_t n_word;   /* sizeof word: it was longer */
    bool in_string, escaped, keeps; /* keeps: the string at hand is text */
    bool after_key;  /* a key of text and its colon have passed */
} router_replay;

/* Forgets everything. */
void router_replay_free(router_replay *replay);
/* The next bytes [n] of the answer. */
void router_replay_add(router_replay *replay, const char *bytes, size_t n);
/* Writes the request's body [n] with the text as the field "aerie_expected" to *out. Returns false if there is no text, the
 * body is not an object or has the field itself, the text is not valid JSON, or memory is short; then the body is sent as it
 * is. */
bool router_replay_body(const router_replay *replay, const char *body, size_t n, app_text *out);

#endif

/* parts.h - answers that are written while they are sent: text, and lists whose entries are made one by one.
 *
 * An answer to a large request may have many times its bytes. What is small is written at once; of the rest only what the
 * client takes next is ever there. Owns: texts and the order of parts. Does not own: what entries are made from, which lives
 * until the answer is released. Invariant: making entry i twice gives the same bytes, since a first time counts them for the
 * header Content-Length.
 */
#ifndef AERIE_APP_SERVE_HTTP_PARTS_H
#define AERIE_APP_SERVE_HTTP_PARTS_H

#include "serve/http/http.h"

/* Adds entry i of a list. false: out of memory. */
typedef bool serve_entry(void *user, size_t i, app_text *out);

typedef struct serve_part {
    size_t text_end; /* of parts' text, which comes before the entries */
    serve_entry *entry;
    void *user;
    size_t n; /* entries */
    bool joined; /* without commas between them */
} serve_part;

/* All zero is the beginning. What fails is noticed at the end. */
typedef struct serve_parts {
    app_text text;
    serve_part *items; /* [n] */
    size_t n, capacity;
    bool failed;
} serve_parts;

void serve_parts_text(serve_parts *parts, const char *text);
/* Takes the JSON over; NULL: out of memory. */
void serve_parts_json(serve_parts *parts, json_t *json);
/* An object without its '}', and the fields of one that go on after it, with the '}'. */
void serve_parts_open(serve_parts *parts, json_t *object);
void serve_parts_close(serve_parts *parts, json_t *object);
/* [entries] */
void serve_parts_list(serve_parts *parts, serve_entry *entry, void *user, size_t n);
/* Two texts as one in JSON, lent until the answer is released; what is not UTF-8 becomes U+FFFD. */
void serve_parts_string(serve_parts *parts, const app_text *text, const app_text *more);
void serve_parts_free(serve_parts *parts);
/* All of it at once. false: out of memory. */
bool serve_parts_write(const serve_parts *parts, app_text *out);
/* Replies with status 200 and JSON, or with 503; takes the parts over. release(user), once nothing of them is needed any more:
 * before this returns, or with the call. */
void serve_parts_reply(serve_call *call, serve_parts *parts, void (*release)(void *user), void *user);

#endif

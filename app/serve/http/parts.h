/* parts.h - answers that are written while they are sent: text, and lists whose entries are written one by one.
 * An answer may be many times as large as its request. A small answer is written at once; of a large one, memory holds only the
 * part that the client reads next. Owns the texts and the order of parts. Does not own the data of entries, which must stay
 * valid until the answer is released. Invariant: writing entry i twice gives the same bytes, since a first run counts them for
 * the header Content-Length. */
#ifndef AERIE_APP_SERVE_HTTP_PARTS_H
#define AERIE_APP_SERVE_HTTP_PARTS_H

#include "serve/http/http.h"

/* Adds entry i of a list. Returns false when out of memory. */
typedef bool serve_entry(void *user, size_t i, app_text *out);

typedef struct serve_part {
    size_t text_end; /* where the text before the entries ends, in the parts' text */
    serve_entry *entry;
    void *user;
    size_t n; /* entries */
    bool joined; /* no commas between the entries */
} serve_part;

/* Initially all zero. A failure sets `failed`, which is checked at the end. */
typedef struct serve_parts {
    app_text text;
    serve_part *items; /* [n] */
    size_t n, capacity;
    bool failed;
} serve_parts;

void serve_parts_text(serve_parts *parts, const char *text);
/* Adds JSON and takes ownership of it; NULL: out of memory. */
void serve_parts_json(serve_parts *parts, json_t *json);
/* Adds an object without its '}', so that fields can be appended. Takes ownership of it. */
void serve_parts_open(serve_parts *parts, json_t *object);
/* Appends the fields of another object to an open object and closes it. Takes ownership of the other object. */
void serve_parts_close(serve_parts *parts, json_t *object);
/* Adds a JSON list of n entries. */
void serve_parts_list(serve_parts *parts, serve_entry *entry, void *user, size_t n);
/* Adds two texts as one JSON string. The texts are borrowed until the answer is released; invalid UTF-8 becomes U+FFFD. */
void serve_parts_string(serve_parts *parts, const app_text *text, const app_text *more);
void serve_parts_free(serve_parts *parts);
/* Writes the whole answer. Returns false when out of memory. */
bool serve_parts_write(const serve_parts *parts, app_text *out);
/* Replies with status 200 and JSON, or with 503. Takes ownership of the parts. Calls release(user) when they are no longer
 * needed: before this returns, or when the call is freed.
 */
void serve_parts_reply(serve_call *call, serve_parts *parts, void (*release)(void *user), void *user);

#endif

/* parts.c - implements parts.h. */
#include "serve/http/parts.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 128 * 1024, BLOCK = 4096 };

/* ---- Making --------------------------------------------------------------------------------------------- */

void serve_parts_text(serve_parts *p, const char *text)
{
    if (!app_text_add(&p->text, text, strlen(text))) p->failed = true;
}

void serve_parts_json(serve_parts *p, json_t *json)
{
    if (!serve_json_add(&p->text, json)) p->failed = true;
}

void serve_parts_open(serve_parts *p, json_t *object)
{
    serve_parts_json(p, object);
    if (!p->failed) p->text.data[--p->text.n] = '\0';
}

void serve_parts_close(serve_parts *p, json_t *object)
{
    const size_t at = p->text.n;
    serve_parts_json(p, object);
    if (!p->failed) p->text.data[at] = ',';
}

static void add_entries(serve_parts *p, serve_entry *entry, void *user, size_t n, bool joined)
{
    serve_part *grown = app_grow(p->items, p->n, &p->capacity, sizeof *grown);
    if (!grown) {
        p->failed = true;
        return;
    }
    p->items = grown;
    grown[p->n++] = (serve_part){.text_end = p->text.n, .entry = entry, .user = user, .n = n, .joined = joined};
}

void serve_parts_list(serve_parts *p, serve_entry *entry, void *user, size_t n)
{
    serve_parts_text(p, "[");
    add_entries(p, entry, user, n, false);
    serve_parts_text(p, "]");
}

/* Returns the start of the character that contains byte i; i itself if the byte is not part of valid UTF-8. */
static size_t char_start(const app_text *text, size_t i)
{
    for (size_t back = 0; back < 4 && back <= i && i < text->n; back++) {
        uint32_t code;
        if (app_utf8_char(text->data + i - back, text->n - (i - back), &code) > back) return i - back;
    }
    return i;
}

/* Adds block i of a string, cut between characters. */
static bool string_block(void *user, size_t i, app_text *out)
{
    const app_text *text = user;
    const size_t n = out->n, from = char_start(text, i * BLOCK);
    const size_t to = (i + 1) * BLOCK < text->n ? char_start(text, (i + 1) * BLOCK) : text->n;
    if (!serve_json_add(out, app_json_text(text->data + from, to - from))) return false;
    memmove(out->data + n, out->data + n + 1, out->n - n - 2); /* remove the quotes */
    out->data[out->n -= 2] = '\0';
    return true;
}

void serve_parts_string(serve_parts *p, const app_text *text, const app_text *more)
{
    serve_parts_text(p, "\"");
    add_entries(p, string_block, (void *)text, (text->n + BLOCK - 1) / BLOCK, true);
    add_entries(p, string_block, (void *)more, (more->n + BLOCK - 1) / BLOCK, true);
    serve_parts_text(p, "\"");
}

void serve_parts_free(serve_parts *p)
{
    app_text_free(&p->text);
    free(p->items);
    *p = (serve_parts){0};
}

/* ---- Writing -------------------------------------------------------------------------------------------- */

/* Position in an answer that is being written. */
typedef struct place {
    size_t part, text; /* the current part; bytes of the text already written */
    size_t entry;      /* the part's next entry */
} place;

/* Writes a piece of text or an entry, and advances `at`. Returns 1, 0 at the end, or -1 when out of memory. */
static int next(const serve_parts *p, place *at, app_text *out)
{
    const serve_part *part = at->part < p->n ? &p->items[at->part] : NULL;
    const size_t end = part ? part->text_end : p->text.n;
    if (at->text < end) {
        const size_t n = end - at->text < BLOCK ? end - at->text : BLOCK;
        if (!app_text_add(out, p->text.data + at->text, n)) return -1;
        at->text += n;
        return 1;
    }
    if (!part) return 0;
    if (at->entry == part->n) {
        at->part++;
        at->entry = 0;
        return 1;
    }
    if (at->entry && !part->joined && !app_text_add(out, ",", 1)) return -1;
    return part->entry(part->user, at->entry++, out) ? 1 : -1;
}

bool serve_parts_write(const serve_parts *p, app_text *out)
{
    place at = {0};
    int more = p->failed ? -1 : 1;
    while (more > 0) more = next(p, &at, out);
    return more == 0;
}

/* ---- Sending -------------------------------------------------------------------------------------------- */

typedef struct sending {
    serve_parts parts;
    place at;
    app_text out; /* the bytes to send next */
    size_t n_sent; /* bytes of `out` already sent */
    void (*release)(void *user);
    void *user;
} sending;

static void sending_free(void *user)
{
    sending *s = user;
    serve_parts_free(&s->parts);
    app_text_free(&s->out);
    if (s->release) s->release(s->user);
    free(s);
}

static ptrdiff_t sending_read(void *user, char *out, size_t most)
{
    sending *s = user;
    while (s->n_sent == s->out.n) {
        s->n_sent = s->out.n = 0;
        const int more = next(&s->parts, &s->at, &s->out);
        if (more <= 0) return more;
    }
    const size_t n = s->out.n - s->n_sent < most ? s->out.n - s->n_sent : most;
    memcpy(out, s->out.data + s->n_sent, n);
    s->n_sent += n;
    return (ptrdiff_t)n;
}

/* Writes the rest of the answer into s->out, after which its data are needed no more. Without memory, they stay. */
static void sending_let_go(void *user)
{
    sending *s = user;
    app_text rest = {0};
    place at = s->at;
    int more = s->release ? 1 : -1;
    app_json_lacked();
    while (more > 0) more = next(&s->parts, &at, &rest);
    if (more < 0 || app_json_lacked() || !app_text_add(&s->out, rest.data ? rest.data : "", rest.n)) {
        app_text_free(&rest);
        return;
    }
    app_text_free(&rest);
    s->at = at;
    s->release(s->user);
    s->release = NULL;
}

/* Counts the answer's bytes, and leaves at least the first AT_ONCE of them in s->out. Returns false when out of memory. */
static bool measure(sending *s, uint64_t *n_bytes)
{
    app_text rest = {0};
    int more = s->parts.failed ? -1 : 1;
    while (more > 0 && s->out.n <= AT_ONCE) more = next(&s->parts, &s->at, &s->out);
    place at = s->at;
    *n_bytes = s->out.n;
    while (more > 0) {
        rest.n = 0;
        more = next(&s->parts, &at, &rest);
        *n_bytes += rest.n;
    }
    app_text_free(&rest);
    return more == 0 && !app_json_lacked();
}

void serve_parts_reply(serve_call *call, serve_parts *parts, void (*release)(void *user), void *user)
{
    serve_error error = {0};
    uint64_t n = 0;
    sending *s = calloc(1, sizeof *s);
    if (s) *s = (sending){.parts = *parts, .release = release, .user = user};
    if (s && measure(s, &n)) {
        if (n > AT_ONCE) {
            serve_use_force(&call->use, s->parts.text.capacity + s->out.capacity);
            serve_reply_sized(call, "application/json", n, sending_read, sending_free, s);
            serve_reply_may_let_go(call, sending_let_go);
            return;
        }
        serve_reply(call, 200, "application/json", &s->out);
    } else {
        serve_fail_memory(&error);
        serve_reply_error(call, &error);
    }
    if (s) {
        sending_free(s);
        return;
    }
    serve_parts_free(parts);
    if (release) release(user);
}

/* replay.c - implements replay.h. */
#define _GNU_SOURCE
#include "router/replay.h"

#include <ctype.h>
#include <jansson.h>
#include <string.h>

enum { MOST_TEXT = 256 << 10 };

void router_replay_free(router_replay *replay)
{
    app_text_free(&replay->text);
    *replay = (router_replay){0};
}

static bool names_text(const router_replay *s)
{
    static const char *const keys[] = {"content",  "text",         "reasoning_content", "reasoning", "thinking", "delta",
                                       "response", "partial_json", "arguments"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (s->n_word == strlen(keys[i]) && memcmp(s->word, keys[i], s->n_word) == 0) return true;
    return false;
}

static void in_string(router_replay *s, char c)
{
    if (c == '"' && !s->escaped) {
        s->in_string = false;
        if (s->keeps) s->n_whole = s->text.n;
        return;
    }
    s->escaped = c == '\\' && !s->escaped;
    if (s->keeps && !app_text_add(&s->text, &c, 1)) s->keeps = false;
    if (s->n_word < sizeof s->word) s->word[s->n_word++] = c;
}

void router_replay_add(router_replay *s, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char c = bytes[i];
        if (s->in_string) {
            in_string(s, c);
            continue;
        }
        if (c == '"') {
            s->in_string = true, s->escaped = false, s->n_word = 0;
            s->keeps = s->after_key && s->text.n == s->n_whole && s->text.n < MOST_TEXT;
            s->after_key = false;
        } else if (c == ':') {
            s->after_key = names_text(s);
        } else if (c != ' ') {
            s->after_key = false, s->n_word = 0;
        }
    }
}

bool router_replay_body(const router_replay *replay, const char *body, size_t n, app_text *out)
{
    static const char field[] = "{\"aerie_expected\":\"";
    size_t at = 0;
    while (at < n && isspace((unsigned char)body[at])) at++;
    if (!replay->n_whole || at == n || body[at] != '{' || memmem(body, n, field + 1, sizeof field - 4)) return false;
    size_t next = ++at;
    while (next < n && isspace((unsigned char)body[next])) next++;
    const bool ok = app_text_add(out, field, sizeof field - 1) && app_text_add(out, replay->text.data, replay->n_whole) &&
                    app_text_add(out, "\"}", 2);
    json_t *valid = ok ? json_loadb(out->data, out->n, 0, NULL) : NULL;
    json_decref(valid);
    if (!valid || next == n) return false;
    out->n--; /* removes the '}', so that the body's fields can follow */
    return (body[next] == '}' || app_text_add(out, ",", 1)) && app_text_add(out, body + next, n - next);
}

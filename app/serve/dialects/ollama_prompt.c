/* ollama_prompt.c - /api/generate: "template", a prompt's layout in Go's template language, and "context", the tokens of
 * earlier turns.
 *
 * Owns the part of that language which layouts of prompts use: .System, .Prompt and .Response, if, else and end, comments, and
 * blanks trimmed by dashes. Invariant: what it does not know is refused, since a prompt of another layout gets worse answers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/dialects/handlers.h"
#include "serve/request/reply.h"

/* ---- Template ------------------------------------------------------------------------------------------------------- */

enum { MAX_DEPTH = 16 };

typedef struct go_template {
    const char *system, *prompt; /* NULL: none */
    app_text *out;
    int depth;
    bool shown[MAX_DEPTH + 1]; /* text at this depth is written */
    bool taken[MAX_DEPTH + 1]; /* the condition at this depth held, or lies in a part that is not written */
    bool over;                 /* .Response was reached: the answer follows */
} go_template;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Returns the value of a field; NULL: the field is unknown. */
static const char *field_of(const go_template *t, const char *name, size_t n)
{
    const struct {
        const char *name, *value;
    } fields[] = {{".System", t->system}, {".Prompt", t->prompt}, {".Response", ""}, {".Suffix", ""}, {".First", "true"}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (n == strlen(fields[i].name) && memcmp(name, fields[i].name, n) == 0) return fields[i].value ? fields[i].value : "";
    return NULL;
}

static bool is(const char *text, size_t n, const char *word)
{
    return n == strlen(word) && memcmp(text, word, n) == 0;
}

/* Runs the action text [n], which has no blanks around it. Returns false if it is unknown. */
static bool act(go_template *t, const char *text, size_t n)
{
    const bool shown = t->shown[t->depth];
    if (n >= 4 && memcmp(text, "/*", 2) == 0 && memcmp(text + n - 2, "*/", 2) == 0) return true;
    if (is(text, n, "end")) return t->depth-- > 0;
    if (is(text, n, "else")) {
        if (!t->depth) return false;
        t->shown[t->depth] = !t->taken[t->depth];
        t->taken[t->depth] = true;
        return true;
    }
    const bool condition = n > 3 && memcmp(text, "if ", 3) == 0;
    const char *value = condition ? field_of(t, text + 3, n - 3) : field_of(t, text, n);
    if (!value || (condition && t->depth == MAX_DEPTH)) return false;
    if (condition) {
        t->depth++;
        t->shown[t->depth] = shown && *value;
        t->taken[t->depth] = !shown || *value;
        return true;
    }
    if (shown && is(text, n, ".Response")) t->over = true;
    return !shown || app_text_add(t->out, value, strlen(value));
}

/* Writes the text before an action, without the blanks at its ends that the actions around it trim. */
static bool put_text(go_template *t, const char *text, size_t n, bool trims_start, bool trims_end)
{
    while (trims_start && n && is_blank(*text)) text++, n--;
    while (trims_end && n && is_blank(text[n - 1])) n--;
    return t->over || !t->shown[t->depth] || app_text_add(t->out, text, n);
}

bool serve_ollama_layout(const char *layout, const char *system, const char *prompt, app_text *out, serve_error *error)
{
    go_template t = {.system = system, .prompt = prompt, .out = out, .shown = {true}, .taken = {true}};
    bool trims = false;
    for (const char *at = layout;;) {
        const char *open = strstr(at, "{{"), *close = open ? strstr(open, "}}") : NULL;
        const size_t n = open ? (size_t)(open - at) : strlen(at);
        if (open && !close) return serve_fail(error, 400, "template", "'template' has '{{' without '}}'");
        const bool trims_end = open && open[2] == '-' && is_blank(open[3]);
        if (!put_text(&t, at, n, trims, trims_end)) return serve_fail_memory(error);
        if (!open) break;
        const char *from = open + 2 + trims_end, *to = close;
        trims = to - from > 1 && to[-1] == '-' && is_blank(to[-2]);
        to -= trims;
        while (from < to && is_blank(*from)) from++;
        while (to > from && is_blank(to[-1])) to--;
        if (!t.over && !act(&t, from, (size_t)(to - from)))
            return serve_fail(error, 400, "template",
                              "'template' has '{{ %.*s }}', and this server knows .System, .Prompt, .Response, if, else and "
                              "end there: leave it out for the model's own, or send the whole prompt with \"raw\": true",
                              (int)(to - from < 60 ? to - from : 60), from);
        at = close + 2;
    }
    return t.over || !t.depth || serve_fail(error, 400, "template", "'template' has an 'if' without 'end'");
}

/* ---- Context ---------------------------------------------------------------------------------------------------------- */

bool serve_ollama_context(serve_ask *ask, const json_t *context, serve_error *error)
{
    const int32_t n_vocab = (int32_t)ask->model->models.info.n_vocab;
    const size_t n = json_array_size(context);
    if (!n) return true;
    if (ask->pictured) return serve_fail(error, 400, "context", "'context' and 'images' exclude each other");
    int32_t *first = NULL; /* what the tokenizer puts before every prompt, as it did before the context */
    size_t skip = 0;
    if (!serve_ask_tokenize(ask, "", 0, true, true, "context", &first, &skip, error)) return false;
    if (skip > ask->n_tokens || (skip && memcmp(first, ask->tokens, skip * sizeof *first))) skip = 0;
    aerie_free(first);
    const size_t n_own = ask->n_tokens - skip;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(context, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= n_vocab)
            return serve_fail(error, 400, "context",
                              "'context' is a list of token ids, as an earlier answer of this model has it");
        const int32_t token = (int32_t)json_integer_value(id);
        if (!serve_ask_add_tokens(ask, &token, 1, error)) return false;
    }
    /* the order is now: own tokens, context; turn it */
    const size_t n_all = n + n_own;
    int32_t *from = ask->tokens, *turned = malloc(n_all * sizeof *turned);
    if (!turned) return serve_fail_memory(error);
    memcpy(turned, from + ask->n_tokens - n, n * sizeof *turned);
    memcpy(turned + n, from + skip, n_own * sizeof *turned);
    memcpy(from, turned, n_all * sizeof *turned);
    free(turned);
    ask->n_tokens = n_all;
    return true;
}

/* Writes the id of token i of prompt and answer. Is a serve_entry; the user is a serve_output. */
static bool put_id(void *user, size_t i, app_text *out)
{
    const serve_output *s = user;
    const size_t n_prompt = s->of->ask.n_tokens;
    char text[16];
    int32_t id = s->of->ask.model->models.info.eos; /* after the answer */
    if (i < n_prompt) id = s->of->ask.tokens[i];
    else if (i - n_prompt < s->ids.n / sizeof id) memcpy(&id, s->ids.data + (i - n_prompt) * sizeof id, sizeof id);
    const int n = snprintf(text, sizeof text, "%d", (int)id);
    return app_text_add(out, text, (size_t)n);
}

void serve_ollama_put_context(serve_parts *out, serve_output *s)
{
    const serve_ask *ask = &s->of->ask;
    if (!ask->keeps_context || ask->pictured) return;
    const bool closed = s->stats && s->stats->stop == AERIE_STOP_EOG && ask->model->models.info.eos >= 0;
    serve_parts_text(out, ",\"context\":");
    serve_parts_list(out, put_id, s, ask->n_tokens + s->ids.n / sizeof(int32_t) + closed);
}

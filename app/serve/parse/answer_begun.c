/* answer_begun.c - where an answer begins: inside reasoning that the prompt has opened, or after text from the client. */
#include <string.h>

#include "serve/parse/answer_int.h"

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static bool tail_is(const char *text, size_t n, const char *tag)
{
    const size_t n_tag = strlen(tag);
    return n >= n_tag && !memcmp(text + n - n_tag, tag, n_tag);
}

static bool head_is(const char *text, size_t n, const char *tag)
{
    return n >= strlen(tag) && !memcmp(text, tag, strlen(tag));
}

static bool prompt_opens(const answer_params *params)
{
    const answer_tags *tags = params->style.tags;
    size_t n = params->n_prompt;
    if (!tags || !params->prompt) return false;
    while (n && is_space(params->prompt[n - 1])) n--;
    for (size_t i = 0; i < 2; i++)
        if (tags->open[i] && tail_is(params->prompt, n, tags->open[i])) return true;
    return false;
}

/* Returns the tag at the beginning of text[0..n), with the white space before it in *n_space; NULL: none. */
static const char *opening_tag(const answer_tags *tags, const char *text, size_t n, size_t *n_space)
{
    *n_space = 0;
    if (!n) return NULL;
    while (*n_space < n && is_space(text[*n_space])) ++*n_space;
    for (size_t i = 0; tags && i < 2; i++)
        if (tags->open[i] && head_is(text + *n_space, n - *n_space, tags->open[i])) return tags->open[i];
    return NULL;
}

static bool closes(const answer_tags *tags, const char *text, size_t n)
{
    for (size_t i = 0; tags && tags->close && i + strlen(tags->close) <= n; i++)
        if (head_is(text + i, n - i, tags->close)) return true;
    return false;
}

bool answer_is_opened(const answer_params *params)
{
    const answer_tags *tags = params->style.tags;
    size_t n_space;
    const bool opened = prompt_opens(params) || opening_tag(tags, params->begun, params->n_begun, &n_space);
    return opened && !closes(tags, params->begun, params->n_begun);
}

bool answer_reasoning_tags(const answer_style *style, const char **open, const char **close)
{
    *open = style->tags ? style->tags->open[0] : NULL;
    *close = style->tags ? style->tags->then ? style->tags->then : style->tags->close : NULL;
    return *open && *close;
}

bool answer_limit_reasoning(const answer_params *params, uint32_t n_most, const char *message, aerie_reasoning *limit,
                            app_text *end)
{
    const char *open, *close;
    if (!answer_reasoning_tags(&params->style, &open, &close)) return false;
    if ((message && !app_text_add(end, message, strlen(message))) || !app_text_add(end, close, strlen(close) + 1)) return false;
    *limit = aerie_reasoning_default();
    limit->open = open;
    limit->close = params->style.tags->close;
    limit->opened = answer_is_opened(params);
    limit->n_most = n_most;
    limit->end = end->data;
    return true;
}

static bool add(app_text *out, const char *text) { return app_text_add(out, text, strlen(text)); }

bool answer_continue(app_text *before, app_text *after, const answer_params *params, bool reasons, const char *text, size_t n,
                     size_t *n_skip)
{
    const answer_tags *tags = params->style.tags;
    const bool opened = prompt_opens(params);
    size_t n_space;
    const char *tag = opening_tag(tags, text, n, &n_space);
    *n_skip = tag && opened ? n_space + strlen(tag) : 0;
    if (!tags || tag || (opened && closes(tags, text, n))) return true; /* the text ends the reasoning or begins it */
    const bool ends = tags->close && (reasons || opened);
    bool ok = true;
    if (ends && !opened) ok = add(before, tags->open[0]) && add(before, "\n");
    if (ends) ok = ok && (!reasons || add(after, "\n")) && add(after, tags->close) && add(after, "\n\n");
    return ok && (!tags->begin || add(after, tags->begin));
}

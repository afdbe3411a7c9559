/* answer_harmony.c - gpt-oss: an answer is a sequence of messages, each with a channel and perhaps a recipient.
 *
 *     <|channel|>analysis<|message|>reasoning<|end|><|start|>assistant<|channel|>final<|message|>text<|return|>
 *     <|channel|>commentary to=functions.name <|constrain|>json<|message|>{arguments}<|call|>
 *      to=functions.name<|channel|>commentary json<|message|>{arguments}<|call|>
 *
 * Source: OpenAI's description of the format. Text outside a message is content.
 */
#include <string.h>

#include "serve/parse/answer_int.h"

enum { BETWEEN, HEADER, BODY, ARGUMENTS };

#define MESSAGE "<|message|>"
#define CHANNEL "<|channel|>"

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Finds the tag at pos among all tags. Returns its index; -1 if more text is needed; -2 if there is none. */
static int tag_at(const answer_parser *p, const char *const *all)
{
    if (p->held.data[p->pos] != '<') return -2;
    for (int i = 0; all[i]; i++) {
        const int at = answer_at(p, all[i]);
        if (at) return at > 0 ? i : -1;
    }
    return -2;
}

static answer_step between(answer_parser *p)
{
    static const char *const tags[] = {"<|start|>", CHANNEL, MESSAGE, "<|end|>", "<|return|>", "<|call|>", NULL};
    const bool first = p->fresh && !p->n_calls; /* text without any header keeps its white space */
    const bool more = answer_skip_space(p);
    if (!first) p->from = p->pos;
    if (!more) return ANSWER_NEED;
    const int tag = tag_at(p, tags);
    const int to = tag == -2 ? answer_at(p, "to=") : 0; /* the prompt ends with "<|start|>assistant" */
    if (tag == -1 || to < 0) return ANSWER_NEED;
    if (to || tag >= 0) p->from = p->pos;
    if (to) p->name_at = p->pos, p->part = HEADER;
    else if (tag >= 3) p->from = p->pos += strlen(tags[tag]);
    else if (tag >= 0) p->name_at = p->pos, p->part = HEADER;
    else answer_to_text(p, false, false);
    return ANSWER_ON;
}

/* Returns the word after `label` in text[0..n), with its length in *n_word, or NULL. */
static const char *word_after(const char *text, size_t n, const char *label, size_t *n_word)
{
    const char *word = NULL;
    for (size_t i = 0; i + strlen(label) <= n; i++)
        if (!memcmp(text + i, label, strlen(label))) word = text + i + strlen(label);
    *n_word = 0;
    while (word && word + *n_word < text + n && !is_space(word[*n_word]) && word[*n_word] != '<') ++*n_word;
    return *n_word ? word : NULL;
}

static bool is_word(const char *word, size_t n, const char *what) { return n == strlen(what) && !memcmp(word, what, n); }

/* Reads the recipient. Returns whether it is a tool; others are people. */
static bool take_recipient(answer_parser *p, const char *text, size_t n)
{
    size_t n_to;
    const char *to = word_after(text, n, "to=", &n_to);
    if (!to || !json_array_size(p->params.tools)) return false;
    if (is_word(to, n_to, "user") || is_word(to, n_to, "assistant") || is_word(to, n_to, "all")) return false;
    if (n_to > 10 && !memcmp(to, "functions.", 10)) to += 10, n_to -= 10;
    if (n_to > ANSWER_MAX_NAME || memchr(to, '\0', n_to)) return false;
    memcpy(p->name, to, n_to);
    p->name[n_to] = '\0';
    return true;
}

static answer_step header(answer_parser *p)
{
    static const char *const ends[] = {MESSAGE, NULL};
    int end = -2;
    for (; p->pos < p->held.n && (end = tag_at(p, ends)) == -2; p->pos++)
        if (p->pos - p->name_at > ANSWER_MAX_HEAD) return ANSWER_FAIL;
    if (end == -1) return ANSWER_NEED;
    if (end < 0) return p->ended ? ANSWER_FAIL : ANSWER_NEED;
    const char *text = p->held.data + p->name_at;
    const size_t n = p->pos - p->name_at;
    size_t n_channel;
    const char *channel = word_after(text, n, CHANNEL, &n_channel);
    const bool analysis = channel && is_word(channel, n_channel, "analysis");
    p->pos += strlen(MESSAGE);
    if (take_recipient(p, text, n)) {
        answer_begin_call(p);
        p->part = ARGUMENTS;
        p->name_at = 0; /* no byte of the arguments has been read */
        return ANSWER_ON;
    }
    if (analysis && p->params.keep_reasoning) answer_tell(p, ANSWER_CONTENT, p->held.data + p->from, p->pos - p->from);
    p->from = p->pos;
    p->part = BODY;
    p->reasoning = analysis;
    return ANSWER_ON;
}

static answer_step body(answer_parser *p)
{
    static const char *const ends[] = {"<|start|>", CHANNEL, "<|end|>", "<|return|>", "<|call|>", NULL};
    const answer_kind kind = p->reasoning && !p->params.keep_reasoning ? ANSWER_REASONING : ANSWER_CONTENT;
    int end = -2;
    while (p->pos < p->held.n && (end = tag_at(p, ends)) == -2) p->pos++;
    answer_tell(p, kind, p->held.data + p->from, p->pos - p->from);
    p->from = p->pos;
    if (end < 0) return ANSWER_NEED;
    if (end >= 2) p->pos += strlen(ends[end]);
    if (p->reasoning && p->params.keep_reasoning) answer_tell(p, ANSWER_CONTENT, p->held.data + p->from, p->pos - p->from);
    p->from = p->pos;
    p->reasoning = false;
    p->part = BETWEEN;
    return ANSWER_ON;
}

static answer_step arguments(answer_parser *p)
{
    if (!p->name_at) {
        const bool more = answer_skip_space(p);
        if (!more && (!p->ended || p->cut)) return ANSWER_NEED;
        if (!more || p->held.data[p->pos] == '<') { /* no arguments */
            answer_tell_arguments(p, "{}");
            answer_end_call(p, true);
            p->part = BETWEEN;
            return ANSWER_ON;
        }
        if (p->held.data[p->pos] != '{') return ANSWER_FAIL;
        answer_value_begin(&p->value, false, NULL);
        p->name_at = 1;
    }
    const answer_value_result result = answer_tell_value(p);
    if (result == ANSWER_VALUE_MORE) return ANSWER_NEED;
    if (result == ANSWER_VALUE_BAD) return ANSWER_FAIL;
    answer_end_call(p, true);
    p->part = BETWEEN;
    return ANSWER_ON;
}

answer_step answer_harmony(answer_parser *p)
{
    switch (p->part) {
    case BETWEEN: return between(p);
    case HEADER: return header(p);
    case BODY: return body(p);
    default: return arguments(p);
    }
}

void answer_harmony_body(answer_parser *p)
{
    p->state = answer_harmony;
    p->part = BODY;
    p->reasoning = false;
}

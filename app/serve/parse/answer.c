/* answer.c - implements answer.h: held bytes, deltas, text between tags, sections of calls. answer_call.c reads single
 * calls. */
#include "serve/parse/answer_int.h"

#include <stdlib.h>
#include <string.h>

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* ---- Events -------------------------------------------------------------------------------------- */

static void give(answer_parser *p, const answer_event *event)
{
    if (!p->stopped && !p->failed && !p->params.sink(p->params.user, event)) p->stopped = true;
}

static void flush(answer_parser *p, bool whole)
{
    const size_t keep = whole ? 0 : app_utf8_incomplete(p->out.data, p->out.n), n = p->out.n - keep;
    if (!n) return;
    const answer_event event = {.kind = p->out_kind, .text = p->out.data, .n = n, 
                                .index = p->out_kind == ANSWER_ARGUMENTS ? p->n_calls - 1 : 0};
    give(p, &event);
    memmove(p->out.data, p->out.data + n, keep);
    p->out.n = keep;
}

/* Tracks the arguments reported so far, to know what is missing at the end. */
static void follow(answer_parser *p, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) answer_value_byte(&p->told, text[i], &p->scratch);
    p->scratch.n = 0;
    p->telling = true;
    if (p->told.failed) p->failed = true;
}

static void tell(answer_parser *p, answer_kind kind, const char *text, size_t n)
{
    if (!n) return;
    if (p->out_kind != kind) flush(p, true);
    p->out_kind = kind;
    if (!app_text_add(&p->out, text, n)) p->failed = true;
    if (kind == ANSWER_CONTENT) p->fresh = false;
}

void answer_tell(answer_parser *p, answer_kind kind, const char *text, size_t n)
{
    tell(p, kind, text, n);
    if (kind == ANSWER_ARGUMENTS) follow(p, text, n);
}

/* Completes arguments that broke off, so that they are valid JSON and can be sent back in the conversation. */
static void complete_arguments(answer_parser *p)
{
    p->scratch.n = 0;
    if (p->telling) answer_value_close(&p->told, true, &p->scratch);
    else if (!app_text_add(&p->scratch, "{}", 2)) p->failed = true;
    tell(p, ANSWER_ARGUMENTS, p->scratch.data, p->scratch.n);
}

static void make_id(answer_parser *p)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const size_t n = p->format->short_ids ? 9 : 24;
    char *at = p->id;
    if (n > 9) at += strlen(strcpy(at, "call_"));
    uint64_t state = p->params.id_seed * 0x9e3779b97f4a7c15u + p->n_calls, z = 0;
    for (size_t i = 0; i < n; i++, z /= 62) {
        if (i % 8 == 0) { /* splitmix64 */
            z = state += 0x9e3779b97f4a7c15u;
            z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
            z = (z ^ z >> 27) * 0x94d049bb133111ebu;
            z ^= z >> 31;
        }
        *at++ = digits[z % 62];
    }
    *at = '\0';
}

void answer_begin_call(answer_parser *p)
{
    flush(p, true);
    if (!p->id[0]) make_id(p);
    p->tool = answer_tool_named(p->params.tools, p->name);
    p->open = p->any = true;
    p->telling = false;
    p->n_params = 0;
    answer_value_begin(&p->told, false, NULL);
    const answer_event event = {.kind = ANSWER_CALL, .index = p->n_calls++, .id = p->id, .name = p->name};
    give(p, &event);
    p->id[0] = '\0';
    p->from = p->pos;
}

void answer_end_call(answer_parser *p, bool complete)
{
    if (!complete && !p->cut) complete_arguments(p);
    flush(p, true);
    const answer_event event = {.kind = ANSWER_CALL_END, .index = p->n_calls - 1, .complete = complete};
    give(p, &event);
    p->open = false;
    p->fresh = true;
    if (complete) p->from = p->pos;
}

/* ---- Held bytes ------------------------------------------------------------------------------------ */

int answer_at_place(const answer_parser *p, size_t place, const char *text)
{
    const size_t n = strlen(text), left = p->held.n - place;
    if (memcmp(p->held.data + place, text, left < n ? left : n) != 0) return 0;
    return left >= n ? 1 : p->ended ? 0 : -1;
}

int answer_at(const answer_parser *p, const char *text) { return answer_at_place(p, p->pos, text); }

bool answer_skip_space(answer_parser *p)
{
    while (p->pos < p->held.n && is_space(p->held.data[p->pos])) p->pos++;
    return p->pos < p->held.n;
}

/* Removes the reported bytes once they are the greater part, so that each byte is moved a bounded number of times. */
static void compact(answer_parser *p)
{
    if (p->from < 4096 || p->from < p->held.n / 2) return;
    memmove(p->held.data, p->held.data + p->from, p->held.n - p->from);
    p->held.n -= p->from;
    p->pos -= p->from;
    p->solid = p->solid > p->from ? p->solid - p->from : 0;
    p->name_at = p->name_at > p->from ? p->name_at - p->from : 0;
    p->name_end = p->name_end > p->from ? p->name_end - p->from : 0;
    p->from = 0;
}

/* ---- Text between tags ----------------------------------------------------------------------------- */

static void add_mark(answer_parser *p, const char *text, answer_action action)
{
    if (!text || p->n_marks == ANSWER_MAX_MARKS) return;
    p->marks[p->n_marks++] = (answer_mark){text, strlen(text), action};
    p->first[(unsigned char)text[0]] = true;
}

static bool looks_for_calls(const answer_parser *p) { return json_array_size(p->params.tools) > 0; }

static void set_marks(answer_parser *p)
{
    const answer_format *f = p->format;
    const answer_tags *t = p->tags;
    for (size_t i = 0; i < p->n_marks; i++) p->first[(unsigned char)p->marks[i].text[0]] = false;
    p->n_marks = 0;
    if (p->reasoning && t) add_mark(p, t->close, ANSWER_MARK_CLOSE);
    for (size_t i = 0; !p->reasoning && t && i < 2; i++) add_mark(p, t->open[i], ANSWER_MARK_OPEN);
    for (size_t i = 0; !p->reasoning && t && !p->params.keep_reasoning && i < 4; i++) add_mark(p, t->skip[i], ANSWER_MARK_SKIP);
    if (!p->reasoning && t && !p->params.keep_reasoning) add_mark(p, t->recipient, ANSWER_MARK_RECIPIENT);
    const answer_action section = p->reasoning && !f->breaks_reasoning ? ANSWER_MARK_MAYBE : ANSWER_MARK_SECTION;
    if (looks_for_calls(p) && (section == ANSWER_MARK_SECTION || (t && t->close)))
        for (size_t i = 0; i < ANSWER_MAX_TEXTS; i++) add_mark(p, f->open[i], section);
}

void answer_to_text(answer_parser *p, bool reasoning, bool trim)
{
    p->state = answer_text;
    p->reasoning = reasoning;
    p->trim = trim;
    p->solid = p->from;
    set_marks(p);
    if (p->format->head == ANSWER_HEAD_HARMONY) answer_harmony_body(p);
}

/* Reports the text from `from` to `end`. */
static void tell_text(answer_parser *p, size_t end)
{
    const bool reasoning = p->reasoning && !p->params.keep_reasoning;
    if (p->trim)
        while (p->from < end && is_space(p->held.data[p->from])) p->from++;
    if (end <= p->from) return;
    p->trim = false;
    answer_tell(p, reasoning ? ANSWER_REASONING : ANSWER_CONTENT, p->held.data + p->from, end - p->from);
    p->from = end;
}

static answer_step enter_section(answer_parser *p, const char *tag, size_t n)
{
    const answer_format *f = p->format;
    const bool is_item = (f->item && !strcmp(tag, f->item)) || (f->function && !strcmp(tag, answer_function_tags.item));
    if (!is_item) p->pos += n; /* the section reads an item's own tag */
    p->any = false;
    p->tagged = true;
    p->state = answer_section;
    return ANSWER_ON;
}

static answer_step answer_maybe(answer_parser *p);

/* Parses "to=NAME<|message|>": the recipient is the model itself or somebody else. */
static answer_step at_recipient(answer_parser *p)
{
    const answer_tags *t = p->tags;
    size_t end = p->pos;
    int at = 0;
    for (; end < p->held.n && end - p->pos < ANSWER_MAX_HEAD && !is_space(p->held.data[end]); end++)
        if ((at = answer_at_place(p, end, t->recipient_end))) break;
    if (at < 0 || (end == p->held.n && !p->ended)) return ANSWER_NEED;
    if (!at) { /* a word of the text */
        p->fresh = false;
        p->pos += strlen(t->recipient);
        p->solid = p->pos;
        return ANSWER_ON;
    }
    const bool self = answer_at_place(p, p->pos, t->open[0] + 1) > 0;
    p->from = p->pos = end + strlen(t->recipient_end);
    answer_to_text(p, self, true);
    return ANSWER_ON;
}

static answer_step at_mark(answer_parser *p, const answer_mark *mark)
{
    const bool keep = p->params.keep_reasoning;
    switch (mark->action) {
    case ANSWER_MARK_OPEN:
    case ANSWER_MARK_CLOSE:
        if (keep) {
            p->pos += mark->n;
            tell_text(p, p->pos);
            answer_to_text(p, mark->action == ANSWER_MARK_OPEN, false);
            return ANSWER_ON;
        }
        tell_text(p, p->solid);
        p->from = p->pos += mark->n;
        answer_to_text(p, mark->action == ANSWER_MARK_OPEN, true);
        return ANSWER_ON;
    case ANSWER_MARK_MAYBE:
        tell_text(p, p->solid);
        p->state = answer_maybe;
        return ANSWER_ON;
    case ANSWER_MARK_SKIP:
        tell_text(p, p->solid);
        p->from = p->pos += mark->n;
        answer_to_text(p, false, true);
        if (p->tags->recipient) p->fresh = true; /* a message has ended or begins */
        return ANSWER_ON;
    case ANSWER_MARK_RECIPIENT: return at_recipient(p);
    default:
        tell_text(p, p->solid);
        return enter_section(p, mark->text, mark->n);
    }
}

/* Finds the mark at pos. Returns 1 with *mark, 0 if there is none, -1 if more text is needed. */
static int find_mark(const answer_parser *p, const answer_mark **mark)
{
    for (size_t i = 0; i < p->n_marks; i++) {
        *mark = &p->marks[i];
        const bool first = (*mark)->action == ANSWER_MARK_OPEN ? !p->tags->anywhere : (*mark)->action == ANSWER_MARK_RECIPIENT;
        if (first && !p->fresh) continue;
        const int at = answer_at(p, (*mark)->text);
        if (at) return at;
    }
    return 0;
}

/* Returns whether the text after the tag at pos, inside reasoning, looks like a call and not like a remark about tags; -1: more
 * text is needed. */
static int like_a_call(const answer_parser *p, const answer_mark *mark)
{
    const answer_format *f = p->format;
    const char *function = f->function ? answer_function_tags.item : NULL;
    const bool is_item = (f->item && !strcmp(mark->text, f->item)) || (function && !strcmp(mark->text, function));
    size_t at = p->pos + mark->n;
    for (; !is_item && at < p->held.n && is_space(p->held.data[at]); at++)
        if (at - p->pos > mark->n + ANSWER_MAX_GAP) return 0;
    if (at == p->held.n) return p->ended ? 0 : -1;
    bool early = false;
    const char *const tags[] = {is_item ? NULL : f->item, is_item ? NULL : function, f->json ? "{" : NULL,
                                f->json && f->list ? "[" : NULL};
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        const int found = tags[i] ? answer_at_place(p, at, tags[i]) : 0;
        if (found > 0) return 1;
        early = early || found < 0;
    }
    for (size_t i = 0; i < json_array_size(p->params.tools); i++) {
        const int found = answer_at_place(p, at, answer_tool_name(json_array_get(p->params.tools, i)));
        if (found > 0) return 1;
        early = early || found < 0;
    }
    return early ? -1 : 0;
}

/* Parses what may be a call inside reasoning, from `from` on. If the reasoning is closed after it, it belongs to the reasoning.
 * If the answer ends before that, the model forgot the closing tag, and it is a call. */
static answer_step answer_maybe(answer_parser *p)
{
    for (; p->pos < p->held.n; p->pos++) {
        const int at = answer_at(p, p->tags->close);
        if (at < 0) return ANSWER_NEED;
        if (at) {
            p->state = answer_text;
            return ANSWER_ON;
        }
        if (!is_space(p->held.data[p->pos])) p->solid = p->pos + 1;
    }
    if (!p->ended) return ANSWER_NEED;
    p->pos = p->from;
    answer_to_text(p, false, true);
    p->fresh = true;
    return ANSWER_ON;
}

answer_step answer_text(answer_parser *p)
{
    const bool bare = p->format->bare && !p->reasoning && looks_for_calls(p);
    const char *data = p->held.data;
    while (p->pos < p->held.n) {
        const char c = data[p->pos];
        if (is_space(c)) {
            p->pos++;
            continue;
        }
        if (p->first[(unsigned char)c]) {
            const answer_mark *mark = NULL;
            const int at = find_mark(p, &mark);
            if (at < 0) {
                tell_text(p, p->solid);
                return ANSWER_NEED;
            }
            const int call = at && mark->action == ANSWER_MARK_MAYBE ? like_a_call(p, mark) : 1;
            if (call < 0) {
                tell_text(p, p->solid);
                return ANSWER_NEED;
            }
            if (at && call) return at_mark(p, mark);
        }
        if (bare && p->fresh && p->solid <= p->from && (c == '{' || c == '[')) {
            p->any = p->tagged = false;
            p->state = answer_section;
            return ANSWER_ON;
        }
        p->pos++;
        p->solid = p->pos;
        p->fresh = p->fresh && p->reasoning;
    }
    if (p->solid > p->from) tell_text(p, p->solid);
    return ANSWER_NEED;
}

/* ---- Sections of calls ----------------------------------------------------------------------------- */

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || (unsigned char)c >= 0x80;
}

/* Parses the text between calls: finds the next call, the end of the section, or neither. */
answer_step answer_section(answer_parser *p)
{
    const answer_format *f = p->format, *tags = &answer_function_tags;
    const char *const closers[] = {f->close, f->close2, p->any ? f->item_close : NULL, p->any ? f->block_close : NULL,
                                   p->any && f->function ? tags->item_close : NULL, f->list ? "```json" : NULL,
                                   f->list ? "```" : NULL};
    for (;;) {
        if (!answer_skip_space(p)) return p->ended ? ANSWER_FAIL : ANSWER_NEED;
        for (size_t i = 0; p->any && i < ANSWER_MAX_TEXTS && f->open[i]; i++) { /* another section; '[' may begin one */
            const int at = answer_at(p, f->open[i]);
            if (at < 0) return ANSWER_NEED;
            if (!at) continue;
            p->from = p->pos;
            answer_to_text(p, false, true);
            return ANSWER_ON;
        }
        const char c = p->held.data[p->pos];
        if (!f->list || !(c == ',' || c == ';' || c == '[' || c == ']' || (c == ')' && p->any))) break;
        p->pos++;
    }
    for (size_t i = 0; i < sizeof closers / sizeof *closers; i++) {
        const int at = closers[i] ? answer_at(p, closers[i]) : 0;
        if (at < 0) return ANSWER_NEED;
        if (!at) continue;
        p->pos += strlen(closers[i]);
        if (p->any) p->from = p->pos;
        if (i > 1) return ANSWER_ON;
        if (!p->any) return ANSWER_FAIL;
        answer_to_text(p, false, true);
        return ANSWER_ON;
    }
    const char c = p->held.data[p->pos];
    if (f->item) {
        const int at = answer_at(p, f->item);
        if (at < 0) return ANSWER_NEED;
        if (at > 0) return p->pos += strlen(f->item), answer_name_begin(p, f);
    }
    if (f->function) {
        const int at = answer_at(p, tags->item);
        if (at < 0) return ANSWER_NEED;
        if (at > 0) return p->pos += strlen(tags->item), answer_name_begin(p, tags);
    }
    if (f->json && c == '{') return answer_object_begin(p);
    if (f->head == ANSWER_HEAD_NAME && !f->item && is_name_byte(c)) return answer_name_begin(p, f);
    if (f->head == ANSWER_HEAD_PYTHON && is_name_byte(c)) {
        p->closing = f;
        p->part = 0, p->name_at = p->pos, p->state = answer_python;
        return ANSWER_ON;
    }
    return ANSWER_FAIL;
}

/* ---- Parsers ----------------------------------------------------------------------------------------- */

/* Turns text that was not a call after all into content; the search for tags continues after it. */
static void fall_back(answer_parser *p)
{
    const bool was_open = p->open, had_calls = p->any && !p->open && p->state == answer_section;
    const size_t pos = p->pos;
    if (p->open) answer_end_call(p, false);
    p->arguments.n = p->word.n = 0;
    p->id[0] = '\0';
    p->nested = false;
    if (had_calls) /* separators after a call */
        while (p->from < pos && (is_space(p->held.data[p->from]) || memchr(",;[])", p->held.data[p->from], 5))) p->from++;
    answer_to_text(p, false, was_open || had_calls);
    if (!had_calls) p->fresh = false; /* it is not tried again */
    p->solid = pos;
    tell_text(p, pos);
}

static void run(answer_parser *p)
{
    while (!p->failed && !p->stopped) {
        const answer_step step = p->state(p);
        if (step == ANSWER_NEED) break;
        if (step == ANSWER_FAIL) fall_back(p);
    }
}

answer_parser *answer_create(const answer_params *params)
{
    answer_parser *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->params = *params;
    p->format = params->style.format;
    p->tags = params->style.tags;
    p->fresh = !params->n_begun;
    if (!app_text_add(&p->held, "", 0) || !app_text_add(&p->out, "", 0)) {
        answer_free(p);
        return NULL;
    }
    const bool opened = answer_is_opened(params);
    answer_to_text(p, opened, opened && !params->n_begun && !params->keep_reasoning);
    if (p->format->head == ANSWER_HEAD_HARMONY && !params->n_begun) p->state = answer_harmony, p->part = 0;
    return p;
}

void answer_free(answer_parser *p)
{
    if (!p) return;
    app_text_free(&p->held);
    app_text_free(&p->out);
    app_text_free(&p->word);
    app_text_free(&p->arguments);
    app_text_free(&p->scratch);
    app_text_free(&p->closer);
    free(p);
}

bool answer_feed(answer_parser *p, const char *text, size_t n)
{
    if (p->failed || p->stopped || p->ended) return !p->failed && !p->stopped;
    if (!app_text_add(&p->held, text, n)) p->failed = true;
    run(p);
    flush(p, false);
    compact(p);
    return !p->failed && !p->stopped;
}

bool answer_end(answer_parser *p, bool cut)
{
    if (!p->ended) {
        p->ended = true;
        p->cut = cut;
        run(p);
        if (p->open || (p->state != answer_text && p->state != answer_harmony)) { /* inside a call, or between calls */
            p->pos = p->held.n;
            fall_back(p);
        }
        if (!p->trim) tell_text(p, p->held.n);
        flush(p, true);
    }
    return !p->failed && !p->stopped;
}

bool answer_out_of_memory(const answer_parser *p) { return p->failed; }

bool answer_in_reasoning(const answer_parser *p)
{
    return p->reasoning && (p->state == answer_text || p->state == answer_maybe);
}

size_t answer_n_calls(const answer_parser *p) { return p->n_calls; }

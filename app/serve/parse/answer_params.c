/* answer_params.c - reads the arguments of a call in formats with a tag for each argument, whose values have no quotes. */
#include <string.h>

#include "serve/parse/answer_int.h"

enum { PARAM_NEXT, PARAM_KEY, PARAM_VALUE_TAG, PARAM_VALUE, PARAM_STRING, PARAM_OTHER, PARAM_XML };
enum { MAX_DEPTH = 64 }; /* of elements within elements */

#define CDATA "<![CDATA["
#define CDATA_END "]]>"

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

void answer_tell_key(answer_parser *p, const char *key, size_t n)
{
    app_text text = {0};
    const bool ok = app_text_add(&text, p->n_params ? ",\"" : "{\"", 2) && answer_escape(&text, key, n) &&
                    app_text_add(&text, "\":", 2);
    if (ok) answer_tell(p, ANSWER_ARGUMENTS, text.data, text.n);
    else p->failed = true;
    p->n_params++;
    app_text_free(&text);
}

static void tell_escaped(answer_parser *p, const char *bytes, size_t n)
{
    p->word.n = 0;
    if (!answer_escape(&p->word, bytes, n)) p->failed = true;
    answer_tell(p, ANSWER_ARGUMENTS, p->word.data, p->word.n);
    p->word.n = 0;
}

answer_step answer_params_end(answer_parser *p)
{
    answer_tell_arguments(p, p->n_params ? "}" : "{}");
    return answer_call_ends(p);
}

static answer_step next_param(answer_parser *p)
{
    const answer_format *f = p->closing;
    const char *const all[] = {f->item_close, p->format->close, p->format->close2, f->block, f->param};
    enum { N = sizeof all / sizeof *all };
    if (!answer_skip_space(p)) return p->ended && !p->cut ? answer_params_end(p) : ANSWER_NEED;
    if (p->held.data[p->pos] == '{' && !p->n_params) { /* JSON after all */
        p->part = 0;
        p->state = answer_arguments;
        return ANSWER_ON;
    }
    for (size_t i = 0; i < N; i++) {
        const int at = all[i] ? answer_at(p, all[i]) : 0;
        if (at < 0) return ANSWER_NEED;
        if (!at) continue;
        if (i < N - 2) return answer_params_end(p);
        p->pos += strlen(all[i]);
        if (i == N - 2) { /* all of them as JSON */
            if (p->n_params) return ANSWER_FAIL;
            p->part = 0;
            p->state = answer_arguments;
            return ANSWER_ON;
        }
        p->name_at = p->pos;
        p->part = PARAM_KEY;
        return ANSWER_ON;
    }
    return ANSWER_FAIL;
}

/* Reads an attribute after the key that says whether the value is a string: string="true" or type="string". Returns -1 without
 * one. */
static int type_attribute(const char *text, size_t n)
{
    static const char *const names[] = {" string=\"", " type=\""}, *const words[] = {"true\"", "string\""};
    for (size_t i = 0; i < 2; i++) {
        const size_t n_name = strlen(names[i]), n_word = strlen(words[i]);
        if (n <= n_name || memcmp(text, names[i], n_name)) continue;
        const bool string = n >= n_name + n_word && !memcmp(text + n_name, words[i], n_word);
        return string ? ANSWER_TYPE_STRING : ANSWER_TYPE_OTHER;
    }
    return -1;
}

/* Decodes &quot; and &amp; in an attribute. */
static bool unescape(app_text *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const bool quote = n - i >= 6 && !memcmp(text + i, "&quot;", 6), amp = n - i >= 5 && !memcmp(text + i, "&amp;", 5);
        if (!app_text_add(out, quote ? "\"" : text + i, 1)) return false;
        i += quote ? 5 : amp ? 4 : 0;
    }
    return true;
}

/* Sets the closing tag of the value: a, then b and c. */
static bool set_closer(answer_parser *p, const char *a, const char *b, const char *c)
{
    p->closer.n = 0;
    return app_text_add(&p->closer, a, strlen(a)) && app_text_add(&p->closer, b, strlen(b)) &&
           app_text_add(&p->closer, c, strlen(c));
}

/* Reads the key into p->arguments, and the type of its value into p->key. */
static answer_step param_key(answer_parser *p)
{
    const answer_format *f = p->closing;
    const char *const ends[ANSWER_MAX_TEXTS] = {f->key_end};
    const json_t *schema = answer_tool_schema(p->tool);
    size_t n = 0;
    const int end = answer_find_end(p, ends, &n);
    if (end < 0) return end == -1 ? ANSWER_NEED : ANSWER_FAIL;
    const char *text = p->held.data + p->name_at, *quote = NULL;
    int type = -1;
    if (f->key_end[0] != '"' && f->param[strlen(f->param) - 1] == '"') { /* there may be attributes */
        quote = memchr(text, '"', n);
        if (!quote) return ANSWER_FAIL;
        type = type_attribute(quote + 1, n - (size_t)(quote + 1 - text));
        n = (size_t)(quote - text);
    }
    p->arguments.n = 0;
    if (!(f->escaped ? unescape(&p->arguments, text, n) : app_text_add(&p->arguments, text, n))) p->failed = true;
    if (p->failed || !n || memchr(text, '\0', n)) return ANSWER_FAIL;
    p->pos += strlen(f->key_end);
    p->key = type >= 0 ? type : (int)answer_schema_type(schema, answer_schema_of(schema, schema, p->arguments.data));
    p->part = f->value ? PARAM_VALUE_TAG : f->body == ANSWER_BODY_XML ? PARAM_XML : PARAM_VALUE;
    p->name_at = p->pos;
    p->depth = 1;
    const bool xml = p->part == PARAM_XML;
    if (!set_closer(p, xml ? f->param : f->value_close, xml ? "/" : "", xml ? p->arguments.data : "")) p->failed = true;
    if (xml && !app_text_add(&p->closer, ">", 1)) p->failed = true;
    return ANSWER_ON;
}

/* Reports a value of unknown type: as JSON if it is valid JSON, else as a string. */
static void put_untyped(answer_parser *p, int type, const char *text, size_t n, app_text *out)
{
    const char *bytes = text;
    size_t left = n;
    const size_t begin = out->n;
    answer_value v;
    answer_value_result result = ANSWER_VALUE_MORE;
    while (left && is_space(bytes[0])) bytes++, left--;
    while (left && is_space(bytes[left - 1])) left--;
    answer_value_begin(&v, true, NULL);
    size_t i = 0;
    for (; type != ANSWER_TYPE_STRING && i < left && result == ANSWER_VALUE_MORE; i++)
        result = answer_value_byte(&v, bytes[i], out);
    if (result == ANSWER_VALUE_MORE && answer_value_end(&v, out)) result = ANSWER_VALUE_DONE;
    bool whole = i == left && result == ANSWER_VALUE_DONE;
    if (type == ANSWER_TYPE_NULLABLE) whole = whole && out->n == begin + 4 && !memcmp(out->data + begin, "null", 4);
    /* the quotes belong to the string unless the type says otherwise */
    if (!whole || (type < ANSWER_TYPE_OTHER && strchr("\"'(", bytes[0]))) {
        out->n = begin;
        if (!app_text_add(out, "\"", 1) || !answer_escape(out, text, n) || !app_text_add(out, "\"", 1)) p->failed = true;
    }
    if (v.failed) p->failed = true;
}

static void tell_untyped(answer_parser *p, const char *text, size_t n)
{
    p->word.n = 0;
    put_untyped(p, p->key, text, n, &p->word);
    answer_tell(p, ANSWER_ARGUMENTS, p->word.data, p->word.n);
    p->word.n = 0;
}

/* Returns whether another value or the end of the call follows a value's closing tag at pos: 1 or 0; -1 if more text is needed.
 * If other text follows, the tag belongs to the value. */
static int at_next(const answer_parser *p)
{
    const answer_format *f = p->closing;
    const char *const all[] = {f->param, f->item_close, p->format->close, p->format->close2};
    size_t place = p->pos;
    bool early = false;
    for (; place < p->held.n && is_space(p->held.data[place]); place++)
        if (place - p->pos == ANSWER_MAX_GAP) return 1;
    if (place == p->held.n) return p->ended ? 1 : -1;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int found = all[i] ? answer_at_place(p, place, all[i]) : 0;
        if (found > 0) return 1;
        early = early || found < 0;
    }
    return early ? -1 : 0;
}

/* Returns whether pos is at the end of a value: 1, and its tag is taken; 0; -1 if more text is needed. */
static int at_value_end(answer_parser *p)
{
    const answer_format *f = p->closing;
    const char c = p->held.data[p->pos];
    size_t skip = 0;
    if (c == '\n' && f->lines) {
        if (p->pos + 1 == p->held.n) return p->ended ? 0 : -1;
        skip = 1;
    } else if (c != p->closer.data[0]) {
        return 0;
    }
    const size_t begin = p->pos;
    p->pos += skip;
    int at = answer_at(p, p->closer.data);
    if (at > 0) {
        p->pos += p->closer.n;
        at = at_next(p);
    }
    if (at <= 0) p->pos = begin;
    return at;
}

static answer_step param_string(answer_parser *p)
{
    const size_t begin = p->pos;
    size_t end = begin;
    int at = 0;
    while (p->pos < p->held.n && !at) {
        end = p->pos;
        at = at_value_end(p);
        if (!at) end = ++p->pos;
    }
    tell_escaped(p, p->held.data + begin, end - begin);
    p->from = at > 0 ? p->pos : end;
    if (at <= 0) return ANSWER_NEED;
    answer_tell_arguments(p, "\"");
    p->part = PARAM_NEXT;
    return ANSWER_ON;
}

/* Holds the value until its end, because only that shows its type. */
static answer_step param_other(answer_parser *p)
{
    int at = 0;
    size_t end = p->pos;
    while (p->pos < p->held.n && !at) {
        end = p->pos;
        at = at_value_end(p);
        if (!at) p->pos++;
    }
    if (at <= 0) return ANSWER_NEED;
    answer_tell_key(p, p->arguments.data, p->arguments.n);
    tell_untyped(p, p->held.data + p->name_at, end - p->name_at);
    p->from = p->pos;
    p->part = PARAM_NEXT;
    return ANSWER_ON;
}

static answer_step param_value(answer_parser *p)
{
    const answer_format *f = p->closing;
    const int cdata = f->cdata ? answer_at(p, CDATA) : 0;
    if (cdata < 0) return ANSWER_NEED;
    if (cdata) {
        p->pos += strlen(CDATA);
        if (!set_closer(p, CDATA_END, f->value_close, "")) p->failed = true;
    }
    if (f->lines) {
        if (p->pos == p->held.n) return ANSWER_NEED;
        const int at = at_value_end(p); /* "\n</parameter>": empty */
        if (at < 0) return ANSWER_NEED;
        if (at > 0) {
            answer_tell_key(p, p->arguments.data, p->arguments.n);
            answer_tell_arguments(p, "\"\"");
            p->from = p->pos;
            p->part = PARAM_NEXT;
            return ANSWER_ON;
        }
        if (p->held.data[p->pos] == '\n') p->pos++;
    }
    p->name_at = p->pos;
    if (p->key == ANSWER_TYPE_NULLABLE) { /* held only as long as it may be null */
        if (p->pos == p->held.n) return ANSWER_NEED;
        if (!strchr("nN", p->held.data[p->pos])) p->key = ANSWER_TYPE_STRING;
    }
    p->part = p->key == ANSWER_TYPE_STRING ? PARAM_STRING : PARAM_OTHER;
    if (p->part == PARAM_STRING) {
        answer_tell_key(p, p->arguments.data, p->arguments.n);
        answer_tell_arguments(p, "\"");
        p->from = p->pos;
    }
    return ANSWER_ON;
}

/* ---- An element for each value ------------------------------------------------------------------------------ */

/* Compares the tag at pos with an element named like the parameter: 1 opens it, 2 closes it, 0 is another tag; -1: more text is
 * needed. */
static int xml_tag(answer_parser *p)
{
    const size_t n = strlen(p->closing->param);
    const int closes = answer_at(p, p->closer.data), head = answer_at(p, p->closing->param);
    if (closes) return closes > 0 ? 2 : -1;
    if (head <= 0) return head;
    return answer_at_place(p, p->pos + n, p->closer.data + n + 1);
}

static void xml_value(answer_parser *p, const json_t *schema, const char *text, size_t n, int depth, app_text *out);

static const char *find(const char *text, size_t n, const char *what, size_t n_what)
{
    for (; n >= n_what; text++, n--)
        if (!memcmp(text, what, n_what)) return text;
    return NULL;
}

/* Reads the name and the content of the element at the beginning of text[0..n). Returns its length; 0 if there is none. */
static size_t xml_element(const char *ns, const char *text, size_t n, const char **key, size_t *n_key, const char **inner,
                          size_t *n_inner)
{
    const size_t n_ns = strlen(ns);
    const char *end = n > n_ns && !memcmp(text, ns, n_ns) ? memchr(text + n_ns, '>', n - n_ns) : NULL;
    if (!end || text[n_ns] == '/') return 0;
    *key = text + n_ns, *n_key = (size_t)(end - *key), *inner = end + 1;
    int depth = 1;
    for (const char *at = *inner; (at = find(at, n - (size_t)(at - text), ns, n_ns)); at += n_ns) {
        const char *name = at + n_ns;
        const bool closes = name < text + n && *name == '/';
        if (closes) name++;
        if ((size_t)(text + n - name) <= *n_key || memcmp(name, *key, *n_key) || name[*n_key] != '>') continue;
        depth += closes ? -1 : 1;
        if (depth) continue;
        *n_inner = (size_t)(at - *inner);
        return (size_t)(name + *n_key + 1 - text);
    }
    return 0;
}

/* Converts elements to a list or an object. Returns false if the text has none; *out is then unchanged. */
static bool xml_elements(answer_parser *p, const json_t *schema, answer_type type, const char *text, size_t n, int depth,
                         app_text *out)
{
    const json_t *root = answer_tool_schema(p->tool);
    const char *ns = p->closing->param, *key, *inner;
    const size_t begin = out->n;
    size_t n_key, n_inner, n_taken, count = 0;
    bool ok = true, list = false;
    while (n && is_space(text[0])) text++, n--;
    while (ok && n && (n_taken = xml_element(ns, text, n, &key, &n_key, &inner, &n_inner))) {
        if (!count) list = type == ANSWER_TYPE_LIST || (type != ANSWER_TYPE_OBJECT && n_key == 4 && !memcmp(key, "item", 4));
        char name[ANSWER_MAX_NAME + 1] = "";
        if (n_key <= ANSWER_MAX_NAME) memcpy(name, key, n_key);
        ok = app_text_add(out, count++ ? "," : list ? "[" : "{", 1);
        if (!list) ok = ok && app_text_add(out, "\"", 1) && answer_escape(out, key, n_key) && app_text_add(out, "\":", 2);
        xml_value(p, answer_schema_of(root, schema, list ? NULL : name), inner, n_inner, depth + 1, out);
        text += n_taken, n -= n_taken;
        while (n && is_space(text[0])) text++, n--;
    }
    if (count && !n && ok && app_text_add(out, list ? "]" : "}", 1)) return true;
    if (!ok) p->failed = true;
    out->n = begin;
    return false;
}

/* Converts the content of an element to JSON: elements, or a value without quotes. */
static void xml_value(answer_parser *p, const json_t *schema, const char *text, size_t n, int depth, app_text *out)
{
    const answer_type type = answer_schema_type(answer_tool_schema(p->tool), schema);
    const bool empty = !n && (type == ANSWER_TYPE_LIST || type == ANSWER_TYPE_OBJECT);
    if (empty && !app_text_add(out, type == ANSWER_TYPE_LIST ? "[]" : "{}", 2)) p->failed = true;
    if (empty || (depth < MAX_DEPTH && xml_elements(p, schema, type, text, n, depth, out))) return;
    put_untyped(p, (int)type, text, n, out);
}

static answer_step param_xml(answer_parser *p)
{
    const json_t *schema = answer_tool_schema(p->tool);
    for (; p->pos < p->held.n; p->pos++) {
        if (p->held.data[p->pos] != p->closer.data[0]) continue;
        const int tag = xml_tag(p);
        if (tag < 0) return ANSWER_NEED;
        if (tag) p->depth += tag == 1 ? 1 : -1;
        if (p->depth) continue;
        app_text value = {0};
        xml_value(p, answer_schema_of(schema, schema, p->arguments.data), p->held.data + p->name_at, p->pos - p->name_at, 0,
                  &value);
        answer_tell_key(p, p->arguments.data, p->arguments.n);
        answer_tell(p, ANSWER_ARGUMENTS, value.data, value.n);
        app_text_free(&value);
        p->from = p->pos += p->closer.n;
        p->part = PARAM_NEXT;
        return ANSWER_ON;
    }
    return ANSWER_NEED;
}

answer_step answer_params_state(answer_parser *p)
{
    const answer_format *f = p->closing;
    switch (p->part) {
    case PARAM_NEXT: return next_param(p);
    case PARAM_KEY: return param_key(p);
    case PARAM_VALUE_TAG: {
        if (!answer_skip_space(p)) return ANSWER_NEED;
        const int at = answer_at(p, f->value);
        if (at <= 0) return at ? ANSWER_NEED : ANSWER_FAIL;
        p->pos += strlen(f->value);
        p->part = PARAM_VALUE;
        return ANSWER_ON;
    }
    case PARAM_VALUE: return param_value(p);
    case PARAM_STRING: return param_string(p);
    case PARAM_XML: return param_xml(p);
    default: return param_other(p);
    }
}

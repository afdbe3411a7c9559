/* answer_call.c - reads one tool call: a JSON object, a name with JSON, or Python's syntax. answer_params.c reads arguments in
 * tags. */
#include <string.h>

#include "serve/parse/answer_int.h"

enum { OBJECT_KEY_OR_END, OBJECT_KEY, OBJECT_IN_KEY, OBJECT_COLON, OBJECT_VALUE, OBJECT_IN_VALUE, OBJECT_NEXT };
enum { KEY_OTHER, KEY_NAME, KEY_ARGUMENTS, KEY_ID, KEY_FUNCTION }; /* of a call as an object */
enum { PYTHON_NAME, PYTHON_ARGUMENT, PYTHON_KEY, PYTHON_EQUALS, PYTHON_VALUE, PYTHON_IN_VALUE, PYTHON_NEXT };

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* ---- The request's tools ---------------------------------------------------------------------------- */

const char *answer_tool_name(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    const char *name = json_string_value(json_object_get(function ? function : tool, "name"));
    return name ? name : "";
}

const json_t *answer_tool_schema(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    return json_object_get(function ? function : tool, "parameters");
}

const json_t *answer_tool_named(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!strcmp(answer_tool_name(json_array_get(tools, i)), name)) return json_array_get(tools, i);
    return NULL;
}

/* ---- Names -------------------------------------------------------------------------------------------- */

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (unsigned char)c >= 0x80 ||
           (c && strchr("_-.:/", c));
}

/* Sets the name to text[0..n) without surrounding spaces. Returns false if it is not a valid name. */
static bool take_name(answer_parser *p, const char *text, size_t n)
{
    while (n && is_space(text[0])) text++, n--;
    while (n && is_space(text[n - 1])) n--;
    if (!n || n > ANSWER_MAX_NAME) return false;
    for (size_t i = 0; i < n; i++)
        if (!is_name_byte(text[i])) return false;
    memcpy(p->name, text, n);
    p->name[n] = '\0';
    return true;
}

/* Reads "functions.name:0": the middle part is the name, and the whole is the id. */
static bool take_kimi_name(answer_parser *p, const char *text, size_t n)
{
    while (n && is_space(text[0])) text++, n--;
    while (n && is_space(text[n - 1])) n--;
    if (n && n < sizeof p->id) {
        memcpy(p->id, text, n);
        p->id[n] = '\0';
    }
    if (n > 10 && !memcmp(text, "functions.", 10)) text += 10, n -= 10;
    for (size_t i = n; i-- > 0 && text[i] >= '0' && text[i] <= '9';)
        if (i && text[i - 1] == ':') n = i - 1;
    if (take_name(p, text, n)) return true;
    p->id[0] = '\0';
    return false;
}

answer_step answer_name_begin(answer_parser *p, const answer_format *format)
{
    p->closing = format;
    p->name_at = p->pos;
    p->part = 0;
    p->state = answer_name;
    return ANSWER_ON;
}

/* Reads up to one of `ends`: returns its index, and the bytes of the name in *n; -1: too early; -2: too long. */
int answer_find_end(answer_parser *p, const char *const *ends, size_t *n)
{
    for (; p->pos < p->held.n; p->pos++) {
        for (int i = 0; i < ANSWER_MAX_TEXTS && ends[i]; i++) {
            if (p->held.data[p->pos] != ends[i][0]) continue;
            const int at = answer_at(p, ends[i]);
            if (at < 0) return -1;
            if (!at) continue;
            *n = p->pos - p->name_at;
            return i;
        }
        if (p->pos - p->name_at > ANSWER_MAX_HEAD) return -2;
    }
    return p->ended ? -2 : -1;
}

static answer_step named(answer_parser *p)
{
    answer_begin_call(p);
    return answer_arguments_begin(p);
}

answer_step answer_name(answer_parser *p)
{
    const answer_format *f = p->closing;
    size_t n = 0;
    const char *const attributes[ANSWER_MAX_TEXTS] = {f->attributes}, *const *ends = p->part == 2 ? attributes : f->ends;
    const int end = answer_find_end(p, ends, &n);
    if (end < 0) return end == -1 ? ANSWER_NEED : ANSWER_FAIL;
    const char *text = p->held.data + p->name_at;
    const char *tag = ends[end];
    if (p->part == 2) { /* attributes after the name have no meaning */
        p->pos += strlen(tag);
        return named(p);
    }
    if (f->head == ANSWER_HEAD_KIMI) {
        if (!take_kimi_name(p, text, n)) return ANSWER_FAIL;
    } else if (p->part == 1) { /* the id between [CALL_ID] and [ARGS] */
        const size_t n_id = n < sizeof p->id - 1 ? n : sizeof p->id - 1;
        memcpy(p->id, text, n_id);
        p->id[n_id] = '\0';
        if (memchr(p->id, '\0', n_id)) p->id[0] = '\0';
    } else if (!take_name(p, text, n)) {
        return ANSWER_FAIL;
    }
    const bool left = !strcmp(tag, "{") || (f->param && !strcmp(tag, f->param)) || (f->close && !strcmp(tag, f->close));
    if (!left) p->pos += strlen(tag);
    if (f->head == ANSWER_HEAD_DEEPSEEK) {
        p->name_at = p->pos;
        p->state = answer_deepseek_name;
        return ANSWER_ON;
    }
    if (f->attributes) {
        p->name_at = p->pos;
        p->part = 2;
        return ANSWER_ON;
    }
    if (!strcmp(tag, "[CALL_ID]")) {
        p->name_at = p->pos;
        p->part = 1;
        return ANSWER_ON;
    }
    return named(p);
}

/* Reads what follows <sep>: the arguments if the name came before it, else the name and the end of the line. */
answer_step answer_deepseek_name(answer_parser *p)
{
    static const char *const ends[ANSWER_MAX_TEXTS] = {"\n"};
    size_t n = 0;
    if (p->pos == p->held.n) return p->ended ? ANSWER_FAIL : ANSWER_NEED;
    if (p->pos == p->name_at && p->held.data[p->pos] == '{') return named(p);
    const int end = answer_find_end(p, ends, &n);
    if (end < 0) return end == -1 ? ANSWER_NEED : ANSWER_FAIL;
    if (!take_name(p, p->held.data + p->name_at, n)) return ANSWER_FAIL;
    p->pos++;
    return named(p);
}

/* ---- Arguments as one value --------------------------------------------------------------------------- */

void answer_tell_arguments(answer_parser *p, const char *text) { answer_tell(p, ANSWER_ARGUMENTS, text, strlen(text)); }

answer_step answer_call_ends(answer_parser *p)
{
    answer_end_call(p, true);
    p->state = answer_section;
    return ANSWER_ON;
}

/* Reads bytes of the value at pos, and appends the result to out. `expresses`: the result counts as reported. */
static answer_value_result read_value(answer_parser *p, app_text *out, bool expresses)
{
    answer_value_result result = ANSWER_VALUE_MORE;
    while (p->pos < p->held.n && result == ANSWER_VALUE_MORE) {
        result = answer_value_byte(&p->value, p->held.data[p->pos], out);
        if (result == ANSWER_VALUE_MORE || result == ANSWER_VALUE_DONE) p->pos++;
    }
    if (result == ANSWER_VALUE_MORE && p->ended && answer_value_end(&p->value, out)) result = ANSWER_VALUE_DONE;
    if (p->value.failed) p->failed = true;
    if (expresses) p->from = p->pos - (result == ANSWER_VALUE_MORE || result == ANSWER_VALUE_BAD ? p->value.n_pending : 0);
    return result;
}

/* Reads bytes of the value and reports them as arguments. */
answer_value_result answer_tell_value(answer_parser *p)
{
    p->word.n = 0;
    const answer_value_result result = read_value(p, &p->word, true);
    answer_tell(p, ANSWER_ARGUMENTS, p->word.data, p->word.n);
    p->word.n = 0;
    return result;
}

answer_step answer_arguments_begin(answer_parser *p)
{
    p->part = 0;
    const answer_body body = p->closing->body;
    p->state = body == ANSWER_BODY_PARAMS || body == ANSWER_BODY_XML ? answer_params_state : answer_arguments;
    return ANSWER_ON;
}

static answer_step no_arguments(answer_parser *p)
{
    answer_tell_arguments(p, "{}");
    return answer_call_ends(p);
}

answer_step answer_arguments(answer_parser *p)
{
    const answer_format *f = p->closing;
    if (p->part == 0) {
        const char *const closers[] = {f->item_close, f->close, "```json"};
        if (!answer_skip_space(p)) return p->ended && !p->cut ? no_arguments(p) : ANSWER_NEED;
        for (size_t i = 0; i < 3; i++) {
            const int at = closers[i] ? answer_at(p, closers[i]) : 0;
            if (at < 0) return ANSWER_NEED;
            if (!at) continue;
            if (i < 2) return no_arguments(p);
            p->from = p->pos += strlen(closers[i]);
            return ANSWER_ON;
        }
        if (p->held.data[p->pos] != '{') return ANSWER_FAIL;
        answer_value_begin(&p->value, f->body == ANSWER_BODY_LOOSE, f->mark);
        p->part = 1;
    }
    switch (answer_tell_value(p)) {
    case ANSWER_VALUE_MORE: return ANSWER_NEED;
    case ANSWER_VALUE_BAD: return ANSWER_FAIL;
    default: return answer_call_ends(p);
    }
}

/* ---- {"name": ..., "arguments": ...} ------------------------------------------------------------------- */

answer_step answer_object_begin(answer_parser *p)
{
    p->pos++; /* { */
    p->part = OBJECT_KEY_OR_END;
    p->has_name = p->has_arguments = p->nested = false;
    p->arguments.n = p->word.n = 0;
    p->closing = p->format;
    p->state = answer_object;
    return ANSWER_ON;
}

/* Parses text as JSON. Returns NULL if it is not JSON, or if memory is short; then the parser has failed. */
static json_t *read_json(answer_parser *p, const char *text, size_t n)
{
    json_t *json;
    if (app_json_read(&json, text, n, JSON_DECODE_ANY, NULL) == APP_JSON_NO_MEMORY) p->failed = true;
    return json;
}

/* Returns the string that p->word contains as JSON; the caller frees *json. NULL if it is not a JSON string or contains a NUL,
 * or if the parser has failed. */
static const char *word_string(answer_parser *p, json_t **json)
{
    *json = read_json(p, p->word.data, p->word.n);
    return json_string_value(*json);
}

static bool is_one_of(const char *text, const char *const *all)
{
    for (; *all; all++)
        if (!strcmp(text, *all)) return true;
    return false;
}

static int key_of(const answer_parser *p, const char *key)
{
    static const char *const names[] = {"name", "tool_name", NULL}, *const arguments[] = {"arguments", "parameters", NULL},
                      *const ids[] = {"id", "tool_call_id", NULL};
    if (!p->has_name && is_one_of(key, names)) return KEY_NAME;
    if (!p->has_arguments && is_one_of(key, arguments)) return KEY_ARGUMENTS;
    return is_one_of(key, ids) ? KEY_ID : KEY_OTHER;
}

/* Returns whether a call without tags may have this key. So other JSON is recognized early. */
static bool fits_bare(const answer_parser *p, const char *key)
{
    static const char *const keys[] = {"name", "type", "function", "parameters", "arguments", "id", NULL};
    return p->tagged || p->any || p->has_name || is_one_of(key, keys);
}

static bool begin_named(answer_parser *p, const char *name)
{
    if (!take_name(p, name, strlen(name))) return false;
    if (!p->tagged && !p->any && !answer_tool_named(p->params.tools, p->name)) return false;
    p->has_name = true;
    answer_begin_call(p);
    if (p->has_arguments) answer_tell(p, ANSWER_ARGUMENTS, p->arguments.data, p->arguments.n);
    return true;
}

static answer_step object_key(answer_parser *p)
{
    json_t *json;
    const char *key = word_string(p, &json);
    bool good = key && fits_bare(p, key);
    if (good && p->format->keyed && !p->has_name) {
        good = begin_named(p, key);
        p->key = KEY_ARGUMENTS;
    } else if (good && !strcmp(key, "function") && !p->nested && !p->has_name) {
        p->key = KEY_FUNCTION; /* an object with the rest */
    } else if (good) {
        p->key = key_of(p, key);
    }
    json_decref(json);
    p->part = OBJECT_COLON;
    return good ? ANSWER_ON : ANSWER_FAIL;
}

/* Returns arguments that were given as a string: unchanged if they are an object, else completed. NULL: out of memory. */
static const char *inner_object(answer_parser *p, const char *text)
{
    json_t *inner = text ? read_json(p, text, strlen(text)) : NULL;
    const bool whole = json_is_object(inner);
    json_decref(inner);
    if (whole) return text;
    p->word.n = 0;
    return answer_repair(&p->word, text ? text : "", text ? strlen(text) : 0) ? p->word.data : NULL;
}

/* Handles a complete value of the object. */
static bool object_value(answer_parser *p)
{
    json_t *json = NULL;
    bool good = true;
    if (p->key == KEY_NAME) {
        const char *name = word_string(p, &json);
        good = name && begin_named(p, name);
    } else if (p->key == KEY_ID) {
        const char *id = word_string(p, &json);
        if (id && strlen(id) < sizeof p->id) strcpy(p->id, id);
    } else if (p->key == KEY_ARGUMENTS) {
        p->has_arguments = true;
        if (p->string_value) { /* JSON within a string */
            const char *text = word_string(p, &json);
            const char *object = inner_object(p, text);
            if (!object) p->failed = true;
            else if (p->has_name) answer_tell_arguments(p, object);
            else if (!app_text_add(&p->arguments, object, strlen(object))) p->failed = true;
        }
    }
    json_decref(json);
    if (p->has_name) p->from = p->pos;
    return good;
}

static answer_step object_in_value(answer_parser *p)
{
    answer_value_result result;
    const bool streams = p->key == KEY_ARGUMENTS && !p->string_value;
    if (streams && p->has_name) result = answer_tell_value(p);
    else result = read_value(p, streams ? &p->arguments : &p->word, false);
    if (p->key == KEY_OTHER) p->word.n = 0;
    if (result == ANSWER_VALUE_MORE) return ANSWER_NEED;
    if (result == ANSWER_VALUE_BAD) return ANSWER_FAIL;
    p->part = OBJECT_NEXT;
    return object_value(p) ? ANSWER_ON : ANSWER_FAIL;
}

static answer_step object_ends(answer_parser *p)
{
    p->pos++;
    p->part = OBJECT_NEXT;
    if (p->nested) {
        p->nested = false;
        return ANSWER_ON;
    }
    if (!p->has_name) return ANSWER_FAIL;
    if (!p->has_arguments) answer_tell_arguments(p, "{}");
    p->id[0] = '\0';
    return answer_call_ends(p);
}

answer_step answer_object(answer_parser *p)
{
    if (p->part == OBJECT_IN_VALUE) return object_in_value(p);
    if (p->part == OBJECT_IN_KEY) {
        const answer_value_result result = read_value(p, &p->word, false);
        if (p->word.n > ANSWER_MAX_HEAD || result == ANSWER_VALUE_BAD) return ANSWER_FAIL;
        return result == ANSWER_VALUE_MORE ? ANSWER_NEED : object_key(p);
    }
    if (!answer_skip_space(p)) return ANSWER_NEED;
    const char c = p->held.data[p->pos];
    switch (p->part) {
    case OBJECT_KEY_OR_END:
    case OBJECT_KEY:
        if (c == '}' && p->part == OBJECT_KEY_OR_END) return object_ends(p);
        if (c != '"') return ANSWER_FAIL;
        p->word.n = 0;
        answer_value_begin(&p->value, false, NULL);
        p->part = OBJECT_IN_KEY;
        return ANSWER_ON;
    case OBJECT_COLON:
        if (c != ':') return ANSWER_FAIL;
        p->pos++;
        p->part = OBJECT_VALUE;
        return ANSWER_ON;
    case OBJECT_VALUE:
        p->word.n = 0;
        if (p->key == KEY_FUNCTION && c == '{') {
            p->nested = true;
            p->pos++;
            p->part = OBJECT_KEY_OR_END;
            return ANSWER_ON;
        }
        if (p->key == KEY_FUNCTION) p->key = KEY_NAME; /* {"function": "name", ...} */
        p->string_value = c == '"';
        if (p->key == KEY_ARGUMENTS && c == 'n') p->key = KEY_OTHER; /* null: none */
        if (p->key == KEY_ARGUMENTS && c != '"' && c != '{') return ANSWER_FAIL;
        answer_value_begin(&p->value, false, NULL);
        p->part = OBJECT_IN_VALUE;
        return ANSWER_ON;
    default:
        if (c == '}') return object_ends(p);
        if (c != ',') return ANSWER_FAIL;
        p->pos++;
        p->part = OBJECT_KEY;
        return ANSWER_ON;
    }
}

/* ---- name(key=value, ...) -------------------------------------------------------------------------------- */

static bool is_identifier(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || (unsigned char)c >= 0x80;
}

/* Reads the name before '('. "print(" around a call has no meaning, and ".call" ends the names of Llama's built-in tools. */
static answer_step python_name(answer_parser *p)
{
    while (p->pos < p->held.n && (is_identifier(p->held.data[p->pos]) || p->held.data[p->pos] == '.'))
        if (++p->pos - p->name_at > ANSWER_MAX_NAME) return ANSWER_FAIL;
    if (p->pos == p->held.n) return ANSWER_NEED;
    if (p->held.data[p->pos] != '(') return ANSWER_FAIL;
    const char *text = p->held.data + p->name_at;
    size_t n = p->pos - p->name_at;
    p->pos++;
    if (n == 5 && !memcmp(text, "print", 5) && !answer_tool_named(p->params.tools, "print")) {
        p->name_at = p->pos;
        return ANSWER_ON;
    }
    if (n > 5 && !memcmp(text + n - 5, ".call", 5)) n -= 5;
    if (!take_name(p, text, n)) return ANSWER_FAIL;
    if (!p->tagged && !p->any && !answer_tool_named(p->params.tools, p->name)) return ANSWER_FAIL;
    answer_begin_call(p);
    p->part = PYTHON_ARGUMENT;
    return ANSWER_ON;
}

/* Reports the key of a positional argument: keys are taken from the schema in order. */
static bool tell_position(answer_parser *p)
{
    const json_t *properties = json_object_get(answer_tool_schema(p->tool), "properties");
    size_t i = p->n_params;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)properties, key, value)
        if (i-- == 0) {
            answer_tell_key(p, key, strlen(key));
            return true;
        }
    return false;
}

static answer_step python_argument(answer_parser *p)
{
    if (!answer_skip_space(p)) return ANSWER_NEED;
    const char c = p->held.data[p->pos];
    if (c == ')') {
        p->pos++;
        return answer_params_end(p);
    }
    p->name_at = p->pos;
    p->part = is_identifier(c) && !(c >= '0' && c <= '9') ? PYTHON_KEY : PYTHON_VALUE;
    if (p->part == PYTHON_VALUE) return tell_position(p) ? ANSWER_ON : ANSWER_FAIL;
    return ANSWER_ON;
}

/* Reads "key=", or a word that is itself a value. */
static answer_step python_key(answer_parser *p)
{
    while (p->pos < p->held.n && is_identifier(p->held.data[p->pos]))
        if (++p->pos - p->name_at > ANSWER_MAX_HEAD) return ANSWER_FAIL;
    if (p->pos == p->held.n) return ANSWER_NEED;
    p->name_end = p->pos;
    p->part = PYTHON_EQUALS;
    return ANSWER_ON;
}

static answer_step python_equals(answer_parser *p)
{
    if (!answer_skip_space(p)) return ANSWER_NEED;
    p->part = PYTHON_VALUE;
    if (p->held.data[p->pos] == '=') {
        answer_tell_key(p, p->held.data + p->name_at, p->name_end - p->name_at);
        p->from = ++p->pos;
        return ANSWER_ON;
    }
    p->pos = p->name_at;
    return tell_position(p) ? ANSWER_ON : ANSWER_FAIL;
}

answer_step answer_python(answer_parser *p)
{
    switch (p->part) {
    case PYTHON_NAME: return python_name(p);
    case PYTHON_ARGUMENT: return python_argument(p);
    case PYTHON_KEY: return python_key(p);
    case PYTHON_EQUALS: return python_equals(p);
    case PYTHON_VALUE:
        if (!answer_skip_space(p)) return ANSWER_NEED;
        answer_value_begin(&p->value, true, NULL);
        p->part = PYTHON_IN_VALUE;
        return ANSWER_ON;
    case PYTHON_IN_VALUE:
        switch (answer_tell_value(p)) {
        case ANSWER_VALUE_MORE: return ANSWER_NEED;
        case ANSWER_VALUE_BAD: return ANSWER_FAIL;
        default: break;
        }
        p->part = PYTHON_NEXT;
        return ANSWER_ON;
    default:
        if (!answer_skip_space(p)) return ANSWER_NEED;
        if (p->held.data[p->pos] == ',') p->pos++;
        else if (p->held.data[p->pos] != ')') return ANSWER_FAIL;
        p->part = PYTHON_ARGUMENT;
        return ANSWER_ON;
    }
}

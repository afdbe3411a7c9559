/* answer_value.c - converts values of tool arguments from text to JSON, byte by byte (answer_value.h). */
#include "serve/parse/answer_value.h"

#include <string.h>

#include "serve/parse/answer.h"

enum {
    WANT_VALUE,
    WANT_VALUE_OR_CLOSE, /* after '[', and in loose notation after a comma */
    WANT_KEY,
    WANT_KEY_OR_CLOSE,
    WANT_COLON,
    AFTER_VALUE,
    IN_STRING,
    IN_ESCAPE,
    IN_HEX,
    IN_NUMBER,
    IN_WORD,
    IN_KEY_WORD,   /* a bare key */
    IN_MARK,       /* the mark that opens a string */
    IN_MARK_STRING,
};

/* The states of a number by RFC 8259; a number may end in states marked END. */
enum { N_MINUS, N_ZERO, N_INT, N_DOT, N_FRACTION, N_E, N_E_SIGN, N_EXPONENT };

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

static void put(answer_value *v, app_text *out, const char *bytes, size_t n)
{
    if (!app_text_add(out, bytes, n)) v->failed = true;
}

bool answer_escape(app_text *out, const char *text, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    for (size_t i = 0; i < n;) {
        size_t plain = i;
        while (plain < n && (unsigned char)text[plain] >= 0x20 && text[plain] != '"' && text[plain] != '\\') plain++;
        if (plain > i && !app_text_add(out, text + i, plain - i)) return false;
        i = plain;
        if (i == n) break;
        const char *known = text[i] ? strchr(from, text[i]) : NULL;
        char escape[6] = {'\\', 'u', '0', '0', hex[(unsigned char)text[i] >> 4], hex[text[i] & 15]};
        if (known) escape[1] = to[known - from];
        if (!app_text_add(out, escape, known ? 2 : 6)) return false;
        i++;
    }
    return true;
}

static void put_escaped(answer_value *v, app_text *out, const char *bytes, size_t n)
{
    if (!answer_escape(out, bytes, n)) v->failed = true;
}

void answer_value_begin(answer_value *v, bool loose, const char *mark)
{
    *v = (answer_value){.loose = loose, .mark = mark, .state = WANT_VALUE};
}

static void drop_comma(answer_value *v)
{
    if (!v->loose) v->n_pending -= v->n_gap; /* dropped bytes are not pending */
    v->n_gap = 0;
}

/* Writes the comma before another item, and the white space after it. */
static void put_comma(answer_value *v, app_text *out)
{
    put(v, out, v->gap, v->n_gap);
    drop_comma(v);
}

static answer_value_result value_ends(answer_value *v, bool with_byte)
{
    v->state = AFTER_VALUE;
    if (v->depth) return ANSWER_VALUE_MORE;
    return with_byte ? ANSWER_VALUE_DONE : ANSWER_VALUE_BEFORE;
}

static answer_value_result string_ends(answer_value *v, app_text *out)
{
    put(v, out, "\"", 1);
    if (!v->is_key) return value_ends(v, true);
    v->is_key = false;
    v->state = WANT_COLON;
    return ANSWER_VALUE_MORE;
}

static answer_value_result open_container(answer_value *v, char c, app_text *out)
{
    if (v->depth == ANSWER_DEPTH) return ANSWER_VALUE_BAD;
    v->stack[v->depth++] = c;
    put(v, out, c == '{' ? "{" : "[", 1);
    v->state = c == '{' ? WANT_KEY_OR_CLOSE : WANT_VALUE_OR_CLOSE;
    return ANSWER_VALUE_MORE;
}

static answer_value_result close_container(answer_value *v, char c, app_text *out)
{
    if (!v->depth) return ANSWER_VALUE_BAD;
    const char open = v->stack[v->depth - 1];
    if (c != (open == '{' ? '}' : open == '[' ? ']' : ')')) return ANSWER_VALUE_BAD;
    v->depth--;
    drop_comma(v); /* a comma before the end has no meaning, and JSON allows none */
    put(v, out, c == '}' ? "}" : "]", 1);
    return value_ends(v, true);
}

static void open_string(answer_value *v, char quote, bool is_key, app_text *out)
{
    put_comma(v, out);
    put(v, out, "\"", 1);
    v->quote = (uint8_t)quote, v->is_key = is_key, v->state = IN_STRING;
}

static void open_mark(answer_value *v, bool is_key, app_text *out)
{
    put_comma(v, out);
    v->is_key = is_key, v->n_mark = 1, v->n_pending = 1, v->state = IN_MARK;
}

static answer_value_result value_starts(answer_value *v, char c, app_text *out)
{
    if (c == '"' || (v->loose && c == '\'')) {
        open_string(v, c, false, out);
    } else if (v->mark && c == v->mark[0]) {
        open_mark(v, false, out);
    } else if (c == '{' || c == '[' || (v->loose && c == '(')) {
        put_comma(v, out);
        return open_container(v, c, out);
    } else if (c == '-' || is_digit(c)) {
        put_comma(v, out);
        put(v, out, &c, 1);
        v->number = c == '-' ? N_MINUS : c == '0' ? N_ZERO : N_INT;
        v->state = IN_NUMBER;
    } else if (is_letter(c)) {
        v->word[0] = c, v->n_word = 1, v->n_pending += 1, v->state = IN_WORD;
    } else {
        return ANSWER_VALUE_BAD;
    }
    return ANSWER_VALUE_MORE;
}

static answer_value_result key_starts(answer_value *v, char c, app_text *out)
{
    if (c == '"' || (v->loose && c == '\'')) {
        open_string(v, c, true, out);
    } else if (v->mark && c == v->mark[0]) {
        open_mark(v, true, out);
    } else if (v->loose && !strchr(":,{}[]()", c)) { /* also the NUL byte */
        put_comma(v, out);
        put(v, out, "\"", 1);
        put_escaped(v, out, &c, 1);
        v->state = IN_KEY_WORD;
    } else {
        return ANSWER_VALUE_BAD;
    }
    return ANSWER_VALUE_MORE;
}

static bool number_goes_on(answer_value *v, char c)
{
    static const char *const what[] = {
        [N_MINUS] = "0d", [N_ZERO] = ".e", [N_INT] = "d.e", [N_DOT] = "f", [N_FRACTION] = "fe", [N_E] = "sx", [N_E_SIGN] = "x",
        [N_EXPONENT] = "x",
    };
    for (const char *w = what[v->number]; *w; w++) {
        int next = -1;
        if (*w == '0' && c == '0') next = N_ZERO;
        else if (*w == 'd' && is_digit(c)) next = N_INT;
        else if (*w == '.' && c == '.') next = N_DOT;
        else if (*w == 'e' && (c == 'e' || c == 'E')) next = N_E;
        else if (*w == 'f' && is_digit(c)) next = N_FRACTION;
        else if (*w == 's' && (c == '+' || c == '-')) next = N_E_SIGN;
        else if (*w == 'x' && is_digit(c)) next = N_EXPONENT;
        if (next >= 0) {
            v->number = (uint8_t)next;
            return true;
        }
    }
    return false;
}

static bool number_may_end(const answer_value *v)
{
    return v->number == N_ZERO || v->number == N_INT || v->number == N_FRACTION || v->number == N_EXPONENT;
}

/* Returns a word as JSON; NULL: there is no such word. */
static const char *word_json(const answer_value *v)
{
    static const char *const words[][2] = {{"true", "true"}, {"false", "false"}, {"null", "null"},
                                           {"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < (v->loose ? 6 : 3); i++)
        if (strlen(words[i][0]) == v->n_word && !memcmp(words[i][0], v->word, v->n_word)) return words[i][1];
    return NULL;
}

static bool word_ends(answer_value *v, app_text *out)
{
    const char *json = word_json(v);
    if (!json) return false;
    v->n_pending -= v->n_word;
    put_comma(v, out);
    put(v, out, json, strlen(json));
    return true;
}

static void escape_byte(answer_value *v, char c, app_text *out)
{
    v->n_pending = 0;
    v->state = IN_STRING;
    if (c == 'u' || (c == 'x' && v->loose)) {
        v->n_hex = c == 'u' ? 4 : 2;
        v->n_word = 0, v->n_pending = 2, v->state = IN_HEX;
    } else if (c && strchr("\"\\/bfnrt", c)) {
        const char escape[2] = {'\\', c};
        put(v, out, escape, 2);
    } else if (c == '\'') {
        put(v, out, "'", 1);
    } else {
        put(v, out, "\\\\", 2);
        put_escaped(v, out, &c, 1);
    }
}

/* Reads one more digit of \uNNNN or \xNN. An incomplete escape is text. Returns true if c was used. */
static bool hex_byte(answer_value *v, char c, app_text *out)
{
    if (is_hex(c)) {
        v->word[v->n_word++] = c;
        v->n_pending++;
        if (v->n_word < v->n_hex) return true;
        put(v, out, v->n_hex == 4 ? "\\u" : "\\u00", v->n_hex == 4 ? 2 : 4);
    } else {
        put(v, out, v->n_hex == 4 ? "\\\\u" : "\\\\x", 3);
    }
    put(v, out, v->word, v->n_word);
    v->n_pending = 0;
    v->state = IN_STRING;
    return is_hex(c);
}

/* Reads a string between marks, unchanged, up to the next mark. */
static answer_value_result mark_string_byte(answer_value *v, char c, app_text *out)
{
    if (c == v->mark[v->n_mark]) {
        v->n_mark++, v->n_pending++;
        if (v->mark[v->n_mark]) return ANSWER_VALUE_MORE;
        v->n_mark = 0, v->n_pending = 0;
        return string_ends(v, out);
    }
    put_escaped(v, out, v->mark, v->n_mark); /* what matched so far cannot begin a mark, whose first byte occurs only once */
    v->n_mark = 0, v->n_pending = 0;
    if (c == v->mark[0]) v->n_mark = 1, v->n_pending = 1;
    else put_escaped(v, out, &c, 1);
    return ANSWER_VALUE_MORE;
}

static answer_value_result mark_byte(answer_value *v, char c, app_text *out)
{
    if (c != v->mark[v->n_mark]) return ANSWER_VALUE_BAD;
    v->n_mark++, v->n_pending++;
    if (v->mark[v->n_mark]) return ANSWER_VALUE_MORE;
    v->n_mark = 0, v->n_pending = 0;
    put(v, out, "\"", 1);
    v->state = IN_MARK_STRING;
    return ANSWER_VALUE_MORE;
}

static answer_value_result string_byte(answer_value *v, char c, app_text *out)
{
    switch (v->state) {
    case IN_ESCAPE:
        escape_byte(v, c, out);
        return ANSWER_VALUE_MORE;
    case IN_HEX:
        if (hex_byte(v, c, out)) return ANSWER_VALUE_MORE;
        break; /* c belongs to the string */
    case IN_MARK: return mark_byte(v, c, out);
    case IN_MARK_STRING: return mark_string_byte(v, c, out);
    default: break;
    }
    if (c == (char)v->quote) return string_ends(v, out);
    if (c == '\\') v->state = IN_ESCAPE, v->n_pending = 1;
    else put_escaped(v, out, &c, 1);
    return ANSWER_VALUE_MORE;
}

/* Handles what comes between values, inside a container. */
static answer_value_result between_byte(answer_value *v, char c, app_text *out)
{
    if (is_space(c)) {
        if (v->loose) return ANSWER_VALUE_MORE;
        if (v->n_gap == sizeof v->gap) put_comma(v, out);
        if (v->n_gap) v->gap[v->n_gap++] = c, v->n_pending++;
        else put(v, out, &c, 1);
        return ANSWER_VALUE_MORE;
    }
    const bool close = c == '}' || c == ']' || (c == ')' && v->loose);
    switch (v->state) {
    case WANT_VALUE_OR_CLOSE:
    case WANT_KEY_OR_CLOSE:
        if (close) return close_container(v, c, out);
        return v->state == WANT_KEY_OR_CLOSE ? key_starts(v, c, out) : value_starts(v, c, out);
    case WANT_KEY: return key_starts(v, c, out);
    case WANT_VALUE: return value_starts(v, c, out);
    case WANT_COLON:
        if (c != ':') return ANSWER_VALUE_BAD;
        put(v, out, ":", 1);
        v->state = WANT_VALUE;
        return ANSWER_VALUE_MORE;
    default: break;
    }
    if (close) return close_container(v, c, out);
    if (c != ',') return ANSWER_VALUE_BAD;
    const bool object = v->stack[v->depth - 1] == '{';
    v->gap[0] = ',', v->n_gap = 1;
    if (v->loose) v->state = object ? WANT_KEY_OR_CLOSE : WANT_VALUE_OR_CLOSE;
    else v->n_pending++, v->state = object ? WANT_KEY : WANT_VALUE;
    return ANSWER_VALUE_MORE;
}

answer_value_result answer_value_byte(answer_value *v, char c, app_text *out)
{
    answer_value_result ended = ANSWER_VALUE_MORE;
    switch (v->state) {
    case IN_STRING:
    case IN_ESCAPE:
    case IN_HEX:
    case IN_MARK:
    case IN_MARK_STRING: return string_byte(v, c, out);
    case IN_NUMBER:
        if (number_goes_on(v, c)) {
            put(v, out, &c, 1);
            return ANSWER_VALUE_MORE;
        }
        if (!number_may_end(v)) return ANSWER_VALUE_BAD;
        ended = value_ends(v, false);
        break;
    case IN_WORD:
        if (is_letter(c) && v->n_word < sizeof v->word) {
            v->word[v->n_word++] = c, v->n_pending++;
            return ANSWER_VALUE_MORE;
        }
        if (!word_ends(v, out)) return ANSWER_VALUE_BAD;
        ended = value_ends(v, false);
        break;
    case IN_KEY_WORD:
        if (c == ':' || is_space(c)) {
            put(v, out, "\"", 1);
            v->state = WANT_COLON;
            break;
        }
        if (c && strchr(",{}[]()", c)) return ANSWER_VALUE_BAD;
        put_escaped(v, out, &c, 1);
        return ANSWER_VALUE_MORE;
    default: break;
    }
    return ended == ANSWER_VALUE_MORE ? between_byte(v, c, out) : ended;
}

bool answer_value_end(answer_value *v, app_text *out)
{
    if (v->depth) return false;
    switch (v->state) {
    case IN_NUMBER: return number_may_end(v);
    case IN_WORD: return word_ends(v, out);
    default: return v->state == AFTER_VALUE;
    }
}

/* Writes the end of a word, or the whole word if nothing was written. */
static void close_word(answer_value *v, bool told, app_text *out)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i]);
        if (v->n_word > n || memcmp(words[i], v->word, v->n_word)) continue;
        put_comma(v, out);
        put(v, out, words[i] + (told ? v->n_word : 0), n - (told ? v->n_word : 0));
        return;
    }
    if (!v->n_gap) put(v, out, "null", 4);
}

void answer_value_close(answer_value *v, bool told, app_text *out)
{
    if (told) v->n_gap = 0;
    const bool item = !v->n_gap; /* something must follow */
    bool key = v->state == WANT_COLON, string = false;
    switch (v->state) {
    case IN_HEX:
    case IN_ESCAPE:
        if (told) put(v, out, v->state == IN_HEX ? "0000" : "\\", v->state == IN_HEX ? (size_t)v->n_hex - v->n_word : 1);
        string = true;
        break;
    case IN_STRING: string = true; break;
    case IN_NUMBER:
        if (!number_may_end(v)) put(v, out, "0", 1);
        break;
    case IN_WORD: close_word(v, told, out); break;
    case WANT_VALUE:
        if (item) put(v, out, "null", 4);
        break;
    case WANT_KEY:
        if (item) put(v, out, "\"\":null", 7);
        break;
    default: break;
    }
    if (string) put(v, out, "\"", 1), key = v->is_key;
    if (key) put(v, out, ":null", 5);
    while (v->depth) put(v, out, v->stack[--v->depth] == '{' ? "}" : "]", 1);
}

bool answer_repair(app_text *out, const char *text, size_t n)
{
    answer_value v;
    size_t i = 0;
    answer_value_begin(&v, false, NULL);
    while (i < n && is_space(text[i])) i++;
    if (i == n || text[i] != '{') return app_text_add(out, "{}", 2);
    for (answer_value_result result = ANSWER_VALUE_MORE; i < n && result == ANSWER_VALUE_MORE; i++)
        result = answer_value_byte(&v, text[i], out);
    answer_value_close(&v, false, out);
    return !v.failed;
}

/* jinja_lex.c - template text to tokens.
 *
 * Owns: delimiters, whitespace control (-, +, trim_blocks, lstrip_blocks), comments, raw blocks,
 * literals. The order of the rules is that of jinja2's lexer, on which real templates depend:
 * inside brackets, "}}" and "%}" are operators, not ends.
 */
#include "text/template/jinja_internal.h"

#include <utf8proc.h>

typedef struct lexer {
    ae_template *tmpl;
    aerie_error *error;
    const char *text; /* newlines are all \n, the last one dropped */
    size_t n, at;
    ae_jinja_place place; /* of `at` */
    size_t n_capacity;  /* of tokens */
    bool line_starting; /* the last thing consumed ended with a newline */
    size_t n_open;
    char open[AE_JINJA_MAX_NESTING * 2]; /* closing brackets to come */
} lexer;

static aerie_status fail(lexer *l, const char *reason)
{
    return ae_fail(l->error, AERIE_ERROR_FORMAT, AE_JINJA_PLACE "%s", AE_JINJA_AT(l->place), reason);
}

static aerie_status fail_heap(lexer *l)
{
    if (l->tmpl->heap.limit_hit)
        return ae_fail(l->error, AERIE_ERROR_LIMIT,
                       AE_JINJA_PLACE "the parsed template would need more than %zu bytes, which is the limit",
                       AE_JINJA_AT(l->place), l->tmpl->heap.limit_bytes);
    return ae_fail_memory(l->error, "the template", l->n);
}

static void advance(lexer *l, size_t to)
{
    for (size_t i = l->at; i < to; i++) {
        if (l->text[i] == '\n') l->place = (ae_jinja_place){l->place.line + 1, 1};
        else l->place.column += ((unsigned char)l->text[i] & 0xC0) != 0x80;
    }
    if (to > l->at) l->line_starting = l->text[to - 1] == '\n';
    l->at = to;
}

static aerie_status push(lexer *l, ae_jinja_token_type type, ae_jinja_token **out)
{
    ae_template *t = l->tmpl;
    if (out) *out = NULL;
    if (t->n_tokens == l->n_capacity) {
        size_t capacity = l->n_capacity ? l->n_capacity * 2 : 256;
        ae_jinja_token *tokens = ae_value_alloc(&t->heap, capacity, sizeof *tokens);
        if (!tokens) return fail_heap(l);
        if (t->n_tokens) memcpy(tokens, t->tokens, t->n_tokens * sizeof *tokens);
        t->tokens = tokens;
        l->n_capacity = capacity;
    }
    ae_jinja_token *token = &t->tokens[t->n_tokens++];
    *token = (ae_jinja_token){.type = (uint8_t)type, .place = l->place};
    if (out) *out = token;
    return AERIE_OK;
}

static aerie_status push_text(lexer *l, ae_jinja_token_type type, size_t from, size_t to)
{
    ae_jinja_token *token;
    if (from >= to && type == TOKEN_DATA) return AERIE_OK;
    AE_TRY(push(l, type, &token));
    token->as.string = ae_string_new(&l->tmpl->heap, l->text + from, to - from);
    return token->as.string ? AERIE_OK : fail_heap(l);
}

static bool looking_at(const lexer *l, size_t at, const char *what)
{
    size_t n = strlen(what);
    return l->n - at >= n && memcmp(l->text + at, what, n) == 0;
}

static size_t skip_space(const lexer *l, size_t at)
{
    uint32_t code;
    while (at < l->n) {
        size_t length = ae_utf8_decode(l->text + at, l->n - at, &code);
        if (!ae_utf8_is_space(code)) break;
        at += length;
    }
    return at;
}

/* Returns the end of text[from..to) without the whitespace at its end. */
static size_t strip_end(const lexer *l, size_t from, size_t to)
{
    while (to > from) {
        size_t at = to - 1;
        uint32_t code;
        while (at > from && ((unsigned char)l->text[at] & 0xC0) == 0x80) at--;
        ae_utf8_decode(l->text + at, to - at, &code);
        if (!ae_utf8_is_space(code)) break;
        to = at;
    }
    return to;
}

/* Returns the end of the data text[from..to) in front of a tag with this sign (0 if none). */
static size_t data_end(const lexer *l, size_t from, size_t to, char sign, bool is_variable)
{
    if (sign == '-') return strip_end(l, from, to);
    if (sign == '+' || is_variable) return to;
    size_t line = to;
    while (line > from && l->text[line - 1] != '\n') line--;
    if (line == from && !l->line_starting) return to;
    return skip_space(l, line) >= to ? line : to;
}

/* Returns the end of a tag such as "%}" at `at`, including its sign and the white space that it removes; 0 if it is not
 * there. */
static size_t tag_end(const lexer *l, size_t at, const char *close, bool trim, bool plus)
{
    if (at < l->n && l->text[at] == '-' && looking_at(l, at + 1, close)) return skip_space(l, at + 3);
    if (plus && at < l->n && l->text[at] == '+' && looking_at(l, at + 1, close)) return at + 3;
    if (!looking_at(l, at, close)) return 0;
    at += 2;
    return trim && at < l->n && l->text[at] == '\n' ? at + 1 : at;
}

/* ---- Literals --------------------------------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static int hex_digit(char c)
{
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* \d+ with single underscores between digits, from `at`; `at` itself if there is none. */
static size_t skip_digits(const lexer *l, size_t at)
{
    if (at >= l->n || !is_digit(l->text[at])) return at;
    for (;;) {
        while (at < l->n && is_digit(l->text[at])) at++;
        if (at + 1 < l->n && l->text[at] == '_' && is_digit(l->text[at + 1])) at++;
        else return at;
    }
}

/* Returns the end of a float at `at`, or `at`. */
static size_t skip_float(const lexer *l, size_t at)
{
    if (at > 0 && l->text[at - 1] == '.') return at;
    size_t whole = skip_digits(l, at), end = whole;
    if (whole == at) return at;
    if (end < l->n && l->text[end] == '.') {
        size_t fraction = skip_digits(l, end + 1);
        if (fraction > end + 1) end = fraction;
    }
    size_t exponent = end;
    if (exponent < l->n && (l->text[exponent] | 32) == 'e') {
        exponent++;
        if (exponent < l->n && (l->text[exponent] == '+' || l->text[exponent] == '-')) exponent++;
        size_t digits = skip_digits(l, exponent);
        if (digits > exponent) return digits;
    }
    return end > whole ? end : at;
}

static aerie_status lex_float(lexer *l, size_t end)
{
    char copy[400];
    size_t n = 0;
    ae_jinja_token *token;
    for (size_t i = l->at; i < end; i++) {
        if (l->text[i] == '_') continue;
        if (n == sizeof copy) return fail(l, "this number has too many digits");
        copy[n++] = l->text[i];
    }
    AE_TRY(push(l, TOKEN_FLOAT, &token));
    token->as.number = ae_double_parse(copy, n);
    advance(l, end);
    return AERIE_OK;
}

static aerie_status lex_integer(lexer *l)
{
    int base = 10;
    size_t at = l->at;
    int64_t value = 0;
    if (l->text[at] == '0' && at + 1 < l->n) {
        char c = (char)(l->text[at + 1] | 32);
        int wanted = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
        size_t first = at + 2 + (at + 2 < l->n && l->text[at + 2] == '_');
        int digit = first < l->n ? hex_digit(l->text[first]) : -1;
        if (wanted != 10 && digit >= 0 && digit < wanted) {
            base = wanted;
            at = first;
        }
    }
    bool zero = base == 10 && l->text[at] == '0'; /* "007" is 00 and then 7 */
    for (; at < l->n; at++) {
        if (l->text[at] == '_' && at + 1 < l->n && hex_digit(l->text[at + 1]) >= 0 &&
            hex_digit(l->text[at + 1]) < (zero ? 1 : base))
            continue;
        int digit = hex_digit(l->text[at]);
        if (digit < 0 || digit >= (zero ? 1 : base)) break;
        if (__builtin_mul_overflow(value, (int64_t)base, &value) || __builtin_add_overflow(value, (int64_t)digit, &value))
            return ae_fail(l->error, AERIE_ERROR_LIMIT, AE_JINJA_PLACE "this integer does not fit in 64 bits",
                           AE_JINJA_AT(l->place));
    }
    ae_jinja_token *token;
    AE_TRY(push(l, TOKEN_INTEGER, &token));
    token->as.integer = value;
    advance(l, at);
    return AERIE_OK;
}

/* \x41, \u0041, \U00000041: `count` hexadecimal digits at *at. */
static aerie_status lex_hex(lexer *l, size_t *at, size_t end, int count, char **to)
{
    uint32_t code = 0;
    for (int i = 0; i < count; i++, (*at)++) {
        int digit = *at < end ? hex_digit(l->text[*at]) : -1;
        if (digit < 0) return fail(l, "a string has an escape with too few hexadecimal digits");
        code = code << 4 | (uint32_t)digit;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return fail(l, "a string has an escape that is not a Unicode character");
    *to += ae_utf8_encode(code, *to);
    return AERIE_OK;
}

/* Reads one escape; text[*at] is the character after the backslash. */
static aerie_status lex_escape(lexer *l, size_t *at, size_t end, char **to)
{
    static const char from[] = "\\'\"abfnrtv", into[] = "\\'\"\a\b\f\n\r\t\v";
    char c = l->text[(*at)++];
    const char *simple = c ? strchr(from, c) : NULL;
    if (simple) {
        *(*to)++ = into[simple - from];
        return AERIE_OK;
    }
    if (c == '\n') return AERIE_OK;
    if (c == 'x') return lex_hex(l, at, end, 2, to);
    if (c == 'u') return lex_hex(l, at, end, 4, to);
    if (c == 'U') return lex_hex(l, at, end, 8, to);
    if (c == 'N') return ae_fail(l->error, AERIE_ERROR_UNSUPPORTED, AE_JINJA_PLACE "\\N{name} escapes are not offered",
                                 AE_JINJA_AT(l->place));
    if (c >= '0' && c <= '7') {
        uint32_t code = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && *at < end && l->text[*at] >= '0' && l->text[*at] <= '7'; i++)
            code = code * 8 + (uint32_t)(l->text[(*at)++] - '0');
        *to += ae_utf8_encode(code, *to);
        return AERIE_OK;
    }
    /* An unknown escape stays as it is. jinja2 decodes strings by way of ASCII, so it turns a non-ASCII character after a
     * backslash into the text of its escape. */
    *(*to)++ = '\\';
    if ((unsigned char)c < 0x80) {
        *(*to)++ = c;
        return AERIE_OK;
    }
    static const char hex[] = "0123456789abcdef";
    uint32_t code;
    *at += ae_utf8_decode(l->text + *at - 1, end - *at + 1, &code) - 1;
    int n_digits = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
    *(*to)++ = n_digits == 2 ? 'x' : n_digits == 4 ? 'u' : 'U';
    for (int i = n_digits - 1; i >= 0; i--) *(*to)++ = hex[code >> (4 * i) & 15];
    return AERIE_OK;
}

static aerie_status lex_string(lexer *l)
{
    char quote = l->text[l->at];
    size_t end = l->at + 1, n_escapes = 0;
    while (end < l->n && l->text[end] != quote) {
        if (l->text[end] == '\\') {
            n_escapes++;
            end++;
        }
        end++;
    }
    if (end >= l->n) return fail(l, "a string has no end");
    ae_jinja_token *token;
    AE_TRY(push(l, TOKEN_STRING, &token));
    /* The longest escape text has ten bytes and comes from four bytes and a backslash. */
    ae_string *string = ae_string_alloc(&l->tmpl->heap, end - l->at + n_escapes * 8);
    if (!string) return fail_heap(l);
    char *to = string->data;
    for (size_t at = l->at + 1; at < end;) {
        if (l->text[at] != '\\') {
            *to++ = l->text[at++];
            continue;
        }
        at++;
        AE_TRY(lex_escape(l, &at, end, &to));
    }
    string->n = (size_t)(to - string->data);
    ae_string_seal(string);
    token->as.string = string;
    advance(l, end + 1);
    return AERIE_OK;
}

/* ---- Inside tags ------------------------------------------------------------------------ */

/* Returns the end of the name at `at`, or `at`: letters, marks, digits and connectors of any script. */
static size_t skip_name(const lexer *l, size_t at)
{
    while (at < l->n) {
        uint32_t code;
        size_t length = ae_utf8_decode(l->text + at, l->n - at, &code);
        utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
        bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
        bool mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC;
        bool number = category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL;
        if (!letter && !mark && !number && category != UTF8PROC_CATEGORY_PC) break;
        at += length;
    }
    return at;
}

static aerie_status lex_operator(lexer *l)
{
    static const struct {
        char text[3];
        uint8_t type;
    } operators[] = {
        {"//", TOKEN_FLOORDIV}, {"**", TOKEN_POW},     {"==", TOKEN_EQ},      {"!=", TOKEN_NE},       {">=", TOKEN_GE},
        {"<=", TOKEN_LE},       {"+", TOKEN_ADD},      {"-", TOKEN_SUB},      {"*", TOKEN_MUL},       {"/", TOKEN_DIV},
        {"%", TOKEN_MOD},       {"~", TOKEN_TILDE},    {"(", TOKEN_LPAREN},   {")", TOKEN_RPAREN},    {"[", TOKEN_LBRACKET},
        {"]", TOKEN_RBRACKET},  {"{", TOKEN_LBRACE},   {"}", TOKEN_RBRACE},   {">", TOKEN_GT},        {"<", TOKEN_LT},
        {"=", TOKEN_ASSIGN},    {".", TOKEN_DOT},      {":", TOKEN_COLON},    {"|", TOKEN_PIPE},      {",", TOKEN_COMMA},
        {";", TOKEN_SEMICOLON},
    };
    size_t i = 0, n = sizeof operators / sizeof *operators;
    while (i < n && !looking_at(l, l->at, operators[i].text)) i++;
    if (i == n) {
        unsigned char c = (unsigned char)l->text[l->at];
        return ae_fail(l->error, AERIE_ERROR_FORMAT, AE_JINJA_PLACE "unexpected character %s%c%s", AE_JINJA_AT(l->place),
                       c > 32 && c < 127 ? "'" : "(", c > 32 && c < 127 ? c : '?', c > 32 && c < 127 ? "'" : ")");
    }
    char c = operators[i].text[0];
    if (c == '(' || c == '[' || c == '{') {
        if (l->n_open == sizeof l->open)
            return ae_fail(l->error, AERIE_ERROR_LIMIT, AE_JINJA_PLACE "brackets are nested too deeply",
                           AE_JINJA_AT(l->place));
        l->open[l->n_open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (l->n_open == 0 || l->open[l->n_open - 1] != c)
            return ae_fail(l->error, AERIE_ERROR_FORMAT, AE_JINJA_PLACE "'%c' closes nothing", AE_JINJA_AT(l->place), c);
        l->n_open--;
    }
    AE_TRY(push(l, (ae_jinja_token_type)operators[i].type, NULL));
    advance(l, l->at + strlen(operators[i].text));
    return AERIE_OK;
}

static aerie_status lex_tag(lexer *l, bool is_variable)
{
    const char *close = is_variable ? "}}" : "%}";
    l->n_open = 0;
    for (;;) {
        size_t end = l->n_open ? 0 : tag_end(l, l->at, close, !is_variable, !is_variable);
        if (end) {
            AE_TRY(push(l, is_variable ? TOKEN_VARIABLE_END : TOKEN_BLOCK_END, NULL));
            advance(l, end);
            return AERIE_OK;
        }
        end = skip_space(l, l->at);
        if (end > l->at) {
            advance(l, end);
            continue;
        }
        if (l->at >= l->n) return fail(l, is_variable ? "'{{' has no end" : "'{%' has no end");
        char c = l->text[l->at];
        if (is_digit(c)) {
            end = skip_float(l, l->at);
            AE_TRY(end > l->at ? lex_float(l, end) : lex_integer(l));
        } else if ((end = skip_name(l, l->at)) > l->at) {
            AE_TRY(push_text(l, TOKEN_NAME, l->at, end));
            advance(l, end);
        } else if (c == '\'' || c == '"') {
            AE_TRY(lex_string(l));
        } else {
            AE_TRY(lex_operator(l));
        }
    }
}

/* ---- Between tags ----------------------------------------------------------------------- */

/* If "{% raw %}" is at `at`, the start of a block, returns the end of the tag; otherwise 0. */
static size_t raw_begin(const lexer *l, size_t at)
{
    at += 2;
    if (at < l->n && (l->text[at] == '-' || l->text[at] == '+')) at++;
    at = skip_space(l, at);
    if (!looking_at(l, at, "raw")) return 0;
    return tag_end(l, skip_space(l, at + 3), "%}", false, false);
}

static aerie_status lex_raw(lexer *l)
{
    for (size_t at = l->at; at < l->n; at++) {
        if (!looking_at(l, at, "{%")) continue;
        size_t inner = at + 2;
        char sign = inner < l->n && (l->text[inner] == '-' || l->text[inner] == '+') ? l->text[inner++] : 0;
        inner = skip_space(l, inner);
        if (!looking_at(l, inner, "endraw")) continue;
        size_t end = tag_end(l, skip_space(l, inner + 6), "%}", true, true);
        if (!end) continue;
        AE_TRY(push_text(l, TOKEN_DATA, l->at, data_end(l, l->at, at, sign, false)));
        advance(l, end);
        return AERIE_OK;
    }
    /* As in jinja2, it is no error if the template ends right here. */
    return l->at == l->n ? AERIE_OK : fail(l, "'{% raw %}' has no '{% endraw %}'");
}

static aerie_status lex_comment(lexer *l)
{
    for (size_t at = l->at; at < l->n; at++) {
        size_t end = tag_end(l, at, "#}", true, true);
        if (!end) continue;
        advance(l, end);
        return AERIE_OK;
    }
    return l->at == l->n ? AERIE_OK : fail(l, "a comment has no end");
}

static aerie_status lex_all(lexer *l)
{
    while (l->at < l->n) {
        size_t at = l->at;
        while (at < l->n && !(l->text[at] == '{' && at + 1 < l->n && strchr("{%#", l->text[at + 1]) && l->text[at + 1]))
            at++;
        if (at == l->n) {
            AE_TRY(push_text(l, TOKEN_DATA, l->at, l->n));
            advance(l, l->n);
            break;
        }
        char kind = l->text[at + 1];
        size_t inner = at + 2, raw = kind == '%' ? raw_begin(l, at) : 0;
        char sign = inner < l->n && (l->text[inner] == '-' || l->text[inner] == '+') ? l->text[inner++] : 0;
        AE_TRY(push_text(l, TOKEN_DATA, l->at, data_end(l, l->at, at, sign, kind == '{')));
        advance(l, at);
        if (raw) {
            advance(l, raw);
            AE_TRY(lex_raw(l));
            continue;
        }
        if (kind != '#') AE_TRY(push(l, kind == '{' ? TOKEN_VARIABLE_BEGIN : TOKEN_BLOCK_BEGIN, NULL));
        advance(l, inner);
        AE_TRY(kind == '#' ? lex_comment(l) : lex_tag(l, kind == '{'));
    }
    return push(l, TOKEN_EOF, NULL);
}

aerie_status ae_jinja_lex(ae_template *tmpl, const char *text, size_t n, aerie_error *error)
{
    lexer l = {.tmpl = tmpl, .error = error, .place = {1, 1}, .n = n, .line_starting = true};
    char *copy = ae_value_alloc(&tmpl->heap, n + 1, 1);
    if (!copy) return fail_heap(&l);
    size_t n_copy = 0;
    for (size_t i = 0; i < n;) {
        size_t length = ae_utf8_valid(text + i, n - i);
        if (!length)
            return ae_fail(error, AERIE_ERROR_FORMAT, "the template is not UTF-8 (byte %zu)", i);
        if (text[i] == '\r') {
            copy[n_copy++] = '\n';
            i += i + 1 < n && text[i + 1] == '\n' ? 2 : 1;
            continue;
        }
        memcpy(copy + n_copy, text + i, length);
        n_copy += length;
        i += length;
    }
    if (n_copy && copy[n_copy - 1] == '\n') n_copy--;
    l.text = copy;
    l.n = n_copy;
    return lex_all(&l);
}

/* jinja_filter.c - filters that work on one value: text, numbers, JSON.
 *
 * Source of the semantics: jinja2's filters. Filters over sequences are in jinja_list_filter.c.
 */
#include "text/template/jinja_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "base/number.h"

static const ae_jinja_args no_args;

static aerie_status call_method(ae_jinja_run *r, const char *name, ae_value self, const ae_jinja_args *args, ae_value *out)
{
    const ae_string *method = ae_string_new(&r->heap, name, strlen(name));
    bool hidden = false;
    if (!method) return ae_jinja_fail_heap(r);
    return ae_jinja_call_entry(r, ae_jinja_method_find(self, method, &hidden), self, args, out);
}

/* upper, lower, capitalize, trim: the method of that name on str(value) */
static aerie_status as_method(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value text;
    AE_TRY(ae_jinja_str(r, call->self, &text));
    ae_value args[1] = {call->arg[0]};
    ae_jinja_args given = {.items = args, .n = call->has[0]};
    const char *name = call->entry->name;
    return call_method(r, strcmp(name, "trim") == 0 ? "strip" : name, text, &given, out);
}

static aerie_status replace(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value text, args[3];
    AE_TRY(ae_jinja_str(r, call->self, &text));
    for (int i = 0; i < 2; i++) {
        AE_TRY(ae_jinja_str(r, call->arg[i], &args[i]));
        args[i].safe = false;
    }
    text.safe = false;
    args[2] = call->arg[2];
    ae_jinja_args given = {.items = args, .n = call->has[2] ? 3 : 2};
    return call_method(r, "replace", text, &given, out);
}

static aerie_status center(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value text, args[1] = {call->has[0] ? call->arg[0] : ae_value_int(80)};
    ae_jinja_args given = {.items = args, .n = 1};
    AE_TRY(ae_jinja_str(r, call->self, &text));
    return call_method(r, "center", text, &given, out);
}

/* Words begin after spaces, dashes and opening brackets; unlike str.title. */
static aerie_status title(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value text, part;
    ae_jinja_text t = {0};
    AE_TRY(ae_jinja_str(r, call->self, &text));
    const ae_string *s = text.as.string;
    bool start = true, was_break = false;
    size_t from = 0, first_end = 0;
    for (size_t i = 0; i <= s->n;) {
        uint32_t code = 0;
        size_t n = i < s->n ? ae_utf8_decode(s->data + i, s->n - i, &code) : 1;
        bool is_break = i < s->n &&
                        (ae_utf8_is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<');
        if (i == s->n || (!start && is_break != was_break)) {
            if (!start) {
                AE_TRY(ae_jinja_part(r, s, from, first_end - from, &part));
                AE_TRY(call_method(r, "upper", part, &no_args, &part));
                AE_TRY(ae_jinja_write_str(r, &t, part));
                AE_TRY(ae_jinja_part(r, s, first_end, i - first_end, &part));
                AE_TRY(call_method(r, "lower", part, &no_args, &part));
                AE_TRY(ae_jinja_write_str(r, &t, part));
            }
            start = true;
        }
        if (start) {
            from = i;
            first_end = i + n;
            was_break = is_break;
            start = false;
        }
        AE_JINJA_CHARGE(r, 1);
        i += n;
    }
    return ae_jinja_text_value(r, &t, out);
}

static aerie_status string(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    return ae_jinja_str(r, call->self, out);
}

static aerie_status safe(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    AE_TRY(ae_jinja_str(r, call->self, out));
    out->safe = true;
    return AERIE_OK;
}

static aerie_status escape(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value v = call->self;
    if (call->entry->detail) v.safe = false; /* forceescape */
    return ae_jinja_escape(r, v, out);
}

static aerie_status default_value(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    *out = call->self;
    if (call->self.kind != AE_VALUE_UNDEFINED && !(ae_jinja_truth(call->arg[1]) && !ae_jinja_truth(call->self)))
        return AERIE_OK;
    *out = call->arg[0];
    return call->has[0] ? AERIE_OK : ae_jinja_string(r, "", 0, out);
}

static aerie_status length(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    size_t n;
    AE_TRY(ae_jinja_length(r, call->self, &n));
    *out = ae_value_int((int64_t)n);
    return AERIE_OK;
}

static aerie_status wordcount(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value text;
    AE_TRY(ae_jinja_str(r, call->self, &text));
    const ae_string *s = text.as.string;
    int64_t count = 0;
    bool inside = false;
    AE_JINJA_CHARGE(r, s->n / 32);
    for (size_t i = 0; i < s->n;) {
        uint32_t code;
        i += ae_utf8_decode(s->data + i, s->n - i, &code);
        utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
        bool word = code == '_' || (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) ||
                    (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO);
        count += word && !inside;
        inside = word;
    }
    *out = ae_value_int(count);
    return AERIE_OK;
}

/* indent(width=4, first=false, blank=false) */
static aerie_status indent(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value indention, text = call->self, lines;
    ae_jinja_text spaces = {0}, t = {0};
    int64_t width = 4;
    bool first = ae_jinja_truth(call->arg[1]), blank = ae_jinja_truth(call->arg[2]);
    if (text.kind != AE_VALUE_STRING) {
        if (text.kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, text);
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "indent needs a string, not a '%s'", ae_jinja_type_name(text));
    }
    if (call->arg[0].kind == AE_VALUE_STRING) {
        indention = call->arg[0];
        if (text.safe) AE_TRY(ae_jinja_escape(r, indention, &indention));
    } else {
        if (call->has[0] && !ae_jinja_to_int(call->arg[0], &width))
            return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "indent: the width must be a number or a string");
        for (int64_t i = 0; i < width; i++) AE_TRY(ae_jinja_text_adds(r, &spaces, " "));
        AE_TRY(ae_jinja_text_value(r, &spaces, &indention));
    }
    /* A newline is added first, so that an empty text has one line and a final newline counts. */
    ae_jinja_text with_newline = {0};
    AE_TRY(ae_jinja_write_str(r, &with_newline, text));
    AE_TRY(ae_jinja_text_adds(r, &with_newline, "\n"));
    AE_TRY(ae_jinja_text_value(r, &with_newline, &lines));
    AE_TRY(call_method(r, "splitlines", lines, &no_args, &lines));
    for (size_t i = 0; i < lines.as.array->n; i++) {
        ae_value line = lines.as.array->items[i];
        if (i) AE_TRY(ae_jinja_text_adds(r, &t, "\n"));
        if (i ? blank || line.as.string->n : first) AE_TRY(ae_jinja_write_str(r, &t, indention));
        AE_TRY(ae_jinja_write_str(r, &t, line));
    }
    AE_TRY(ae_jinja_text_value(r, &t, out));
    out->safe = text.safe;
    return AERIE_OK;
}

/* truncate(length=255, killwords=false, end="...", leeway=5) */
static aerie_status truncate_text(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    int64_t limit = 255, leeway = 5;
    ae_value end = call->arg[2], part;
    if (!call->has[2]) AE_TRY(ae_jinja_string(r, "...", 3, &end));
    if ((call->has[0] && !ae_jinja_to_int(call->arg[0], &limit)) || end.kind != AE_VALUE_STRING ||
        (call->has[3] && call->arg[3].kind != AE_VALUE_NONE && !ae_jinja_to_int(call->arg[3], &leeway)))
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "truncate: an argument has the wrong type");
    if (limit < (int64_t)end.as.string->n_chars || leeway < 0)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "truncate: the length is less than that of the end");
    *out = call->self;
    size_t length;
    AE_TRY(ae_jinja_length(r, call->self, &length)); /* a value that is short enough may be of any kind */
    int64_t n = (int64_t)length;
    if (n <= limit || n - limit <= leeway) return AERIE_OK;
    if (call->self.kind != AE_VALUE_STRING) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "truncate needs a string");
    AE_TRY(ae_jinja_slice(r, call->self, ae_value_none(), ae_value_int(limit - (int64_t)end.as.string->n_chars),
                          ae_value_none(), &part));
    const ae_string *s = part.as.string;
    size_t cut = s->n;
    for (size_t i = s->n; !ae_jinja_truth(call->arg[1]) && i-- > 0;) {
        if (s->data[i] != ' ') continue;
        cut = i;
        break;
    }
    AE_TRY(ae_jinja_part(r, s, 0, cut, &part));
    part.safe = call->self.safe;
    return ae_jinja_binary(r, OP_ADD, part, end, out);
}

static aerie_status format(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_jinja_args *args = call->args;
    ae_value text, values;
    AE_TRY(ae_jinja_str(r, call->self, &text));
    if (args->n && args->n_named) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "format takes positions or names, not both");
    if (args->n_named) {
        if (!ae_value_object(&r->heap, &values)) return ae_jinja_fail_heap(r);
        for (size_t i = 0; i < args->n_named; i++)
            if (!ae_value_object_set(&r->heap, values, ae_value_of_string(args->names[i]), args->named[i]))
                return ae_jinja_fail_heap(r);
    } else {
        if (!ae_value_array(&r->heap, AE_ARRAY_TUPLE, args->n, &values)) return ae_jinja_fail_heap(r);
        if (args->n) memcpy(values.as.array->items, args->items, args->n * sizeof *args->items);
        values.as.array->n = args->n;
    }
    return ae_jinja_percent(r, text, values, out);
}

/* ---- Numbers ---------------------------------------------------------------------------- */

/* Copies the text between whitespace, without single underscores between digits, into copy[size]. Returns 0 if it is not a
 * number. */
static size_t number_text(const ae_string *s, char *copy, size_t size)
{
    size_t from = 0, to = s->n, n = 0;
    while (from < to && ae_utf8_is_space((unsigned char)s->data[from]) && (unsigned char)s->data[from] < 0x80) from++;
    while (to > from && ae_utf8_is_space((unsigned char)s->data[to - 1]) && (unsigned char)s->data[to - 1] < 0x80) to--;
    if (to - from >= size) return 0;
    for (size_t i = from; i < to; i++) {
        char c = s->data[i];
        if (c == '_') {
            if (i == from || i + 1 == to || s->data[i - 1] == '_' || s->data[i + 1] == '_') return 0;
            continue;
        }
        copy[n++] = c;
    }
    copy[n] = 0;
    return n;
}

static bool parse_integer(const ae_string *s, int64_t base, int64_t *out, bool *too_big)
{
    char copy[96];
    size_t n = number_text(s, copy, sizeof copy), at = 0;
    bool negative = n && copy[0] == '-';
    int64_t value = 0;
    if (n && (copy[0] == '-' || copy[0] == '+')) at = 1;
    if (n - at > 2 && copy[at] == '0') {
        char c = (char)(copy[at + 1] | 32);
        int prefix = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (prefix && (base == prefix || base == 0)) {
            base = prefix;
            at += 2;
        }
    }
    if (base == 0) base = 10;
    if (at >= n) return false;
    for (; at < n; at++) {
        char c = copy[at];
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10 : 99;
        if (digit >= base) return false;
        if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, (int64_t)digit, &value))
            *too_big = true;
    }
    *out = negative ? -value : value;
    return true;
}

static bool parse_float(const ae_string *s, double *out)
{
    char copy[400];
    size_t n = number_text(s, copy, sizeof copy), at = 0, digits = 0;
    if (n == 0) return false;
    if (copy[0] == '-' || copy[0] == '+') at = 1;
    char word[10] = {0};
    for (size_t i = 0; i + 1 < sizeof word && copy[at + i]; i++)
        word[i] = (char)(copy[at + i] >= 'A' && copy[at + i] <= 'Z' ? copy[at + i] | 32 : copy[at + i]);
    if (strcmp(word, "inf") == 0 || strcmp(word, "infinity") == 0 || strcmp(word, "nan") == 0) {
        *out = word[0] == 'n' ? NAN : copy[0] == '-' ? -INFINITY : INFINITY;
        return true;
    }
    size_t start = at;
    for (; copy[at] >= '0' && copy[at] <= '9'; at++) digits++;
    if (copy[at] == '.') at++;
    for (; copy[at] >= '0' && copy[at] <= '9'; at++) digits++;
    if (digits == 0) return false;
    if ((copy[at] | 32) == 'e') {
        at++;
        if (copy[at] == '-' || copy[at] == '+') at++;
        if (copy[at] < '0' || copy[at] > '9') return false;
        while (copy[at] >= '0' && copy[at] <= '9') at++;
    }
    if (at != n) return false;
    *out = ae_double_parse(copy + start, n - start);
    if (copy[0] == '-') *out = -*out;
    return true;
}

static aerie_status from_double(ae_jinja_run *r, double v, ae_value fallback, ae_value *out)
{
    *out = fallback;
    if (isnan(v) || isinf(v)) return AERIE_OK;
    if (fabs(v) >= 9.2e18) return ae_jinja_fail(r, AERIE_ERROR_LIMIT, "the result does not fit in 64 bits");
    *out = ae_value_int((int64_t)v);
    return AERIE_OK;
}

/* int(default=0, base=10) */
static aerie_status to_int(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value fallback = call->has[0] ? call->arg[0] : ae_value_int(0);
    int64_t base = 10, value;
    double number;
    bool too_big = false;
    if (call->has[1] && !ae_jinja_to_int(call->arg[1], &base))
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "int: the base must be an integer");
    switch (call->self.kind) {
    case AE_VALUE_UNDEFINED: return ae_jinja_fail_undefined(r, call->self);
    case AE_VALUE_BOOL:
    case AE_VALUE_INT:
        ae_jinja_to_int(call->self, &value);
        *out = ae_value_int(value);
        return AERIE_OK;
    case AE_VALUE_DOUBLE:
        if (isinf(call->self.as.number)) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "int: infinity has no integer");
        return from_double(r, call->self.as.number, fallback, out);
    case AE_VALUE_STRING:
        *out = fallback;
        if ((base == 0 || (base >= 2 && base <= 36)) && parse_integer(call->self.as.string, base, &value, &too_big)) {
            if (too_big) return ae_jinja_fail(r, AERIE_ERROR_LIMIT, "the integer does not fit in 64 bits");
            *out = ae_value_int(value);
            return AERIE_OK;
        }
        return parse_float(call->self.as.string, &number) ? from_double(r, number, fallback, out) : AERIE_OK;
    default: *out = fallback; return AERIE_OK;
    }
}

static aerie_status to_float(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    double number;
    *out = call->has[0] ? call->arg[0] : ae_value_double(0);
    if (call->self.kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, call->self);
    if (ae_jinja_is_number(call->self)) *out = ae_value_double(ae_jinja_to_double(call->self));
    else if (call->self.kind == AE_VALUE_STRING && parse_float(call->self.as.string, &number)) *out = ae_value_double(number);
    return AERIE_OK;
}

static aerie_status absolute(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    int64_t i;
    if (ae_jinja_to_int(call->self, &i)) return ae_jinja_negate(r, ae_value_int(i), i < 0, out);
    if (call->self.kind != AE_VALUE_DOUBLE) return ae_jinja_negate(r, call->self, true, out);
    *out = ae_value_double(fabs(call->self.as.number));
    return AERIE_OK;
}

/* Rounds half to even on the decimal digits of the exact value, which the C library prints. */
static double round_double(double v, int64_t precision)
{
    char text[400];
    if (isnan(v) || isinf(v) || precision > 300) return v;
    if (precision < 0) {
        double scale = pow(10, (double)-precision);
        return isinf(scale) ? copysign(0.0, v) : nearbyint(v / scale) * scale;
    }
    int n = ae_number_print(text, sizeof text, "%.*f", precision > 60 ? 60 : (int)precision, v);
    return n < 0 || (size_t)n >= sizeof text ? v : ae_number_parse(text, NULL);
}

/* round(precision=0, method="common") */
static aerie_status round_number(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    int64_t precision = 0, i;
    const ae_string *method = call->arg[1].kind == AE_VALUE_STRING ? call->arg[1].as.string : NULL;
    bool up = method && ae_string_is(method, "ceil"), down = method && ae_string_is(method, "floor");
    if (call->has[1] && !up && !down && !(method && ae_string_is(method, "common")))
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "round: the method must be common, ceil or floor");
    if (call->has[0] && !ae_jinja_to_int(call->arg[0], &precision))
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "round: the precision must be an integer");
    if (call->self.kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, call->self);
    if (!ae_jinja_is_number(call->self))
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a '%s' cannot be rounded", ae_jinja_type_name(call->self));
    double v = ae_jinja_to_double(call->self);
    if (up || down) {
        double scale = pow(10, (double)precision);
        double scaled = up ? ceil(v * scale) : floor(v * scale);
        *out = ae_value_double(scaled / scale);
        return AERIE_OK;
    }
    if (ae_jinja_to_int(call->self, &i)) {
        if (precision < 0)
            return ae_jinja_fail(r, AERIE_ERROR_UNSUPPORTED, "round: integers with a negative precision are not offered");
        *out = ae_value_int(i);
        return AERIE_OK;
    }
    *out = ae_value_double(round_double(v, precision));
    return AERIE_OK;
}

static aerie_status attr(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    bool hidden = false;
    if (call->arg[0].kind != AE_VALUE_STRING) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "attr needs a name");
    /* Attributes only, so the keys of a dict are not found. */
    if (call->self.kind == AE_VALUE_OBJECT && !ae_jinja_method_find(call->self, call->arg[0].as.string, &hidden))
        return ae_jinja_undefined(r, "dict", call->arg[0].as.string, out);
    return ae_jinja_get_attr(r, call->self, call->arg[0].as.string, out);
}

static const ae_jinja_entry filters[] = {
    {"abs", absolute, "", 0, 0},
    {"attr", attr, "name", 1, 0},
    {"capitalize", as_method, "", 0, 0},
    {"center", center, "width", 0, 0},
    {"count", length, "", 0, 0},
    {"d", default_value, "default_value,boolean", 0, 0},
    {"default", default_value, "default_value,boolean", 0, 0},
    {"e", escape, "", 0, 0},
    {"escape", escape, "", 0, 0},
    {"float", to_float, "default", 0, 0},
    {"forceescape", escape, "", 0, 1},
    {"format", format, "*", 0, 0},
    {"indent", indent, "width,first,blank", 0, 0},
    {"int", to_int, "default,base", 0, 0},
    {"length", length, "", 0, 0},
    {"lower", as_method, "", 0, 0},
    {"replace", replace, "old,new,count", 2, 0},
    {"round", round_number, "precision,method", 0, 0},
    {"safe", safe, "", 0, 0},
    {"string", string, "", 0, 0},
    {"title", title, "", 0, 0},
    {"tojson", ae_jinja_tojson, "ensure_ascii,indent,separators,sort_keys", 0, 0},
    {"trim", as_method, "chars", 0, 0},
    {"truncate", truncate_text, "length,killwords,end,leeway", 0, 0},
    {"upper", as_method, "", 0, 0},
    {"wordcount", wordcount, "", 0, 0},
    /* In jinja2, but of no use in a prompt. */
    {"filesizeformat", NULL, "*", 0, 0},
    {"pprint", NULL, "*", 0, 0},
    {"random", NULL, "*", 0, 0},
    {"striptags", NULL, "*", 0, 0},
    {"urlencode", NULL, "*", 0, 0},
    {"urlize", NULL, "*", 0, 0},
    {"wordwrap", NULL, "*", 0, 0},
    {"xmlattr", NULL, "*", 0, 0},
};

const ae_jinja_entry *ae_jinja_filter_find(const ae_string *name)
{
    const ae_jinja_entry *entry = ae_jinja_table_find(filters, sizeof filters / sizeof *filters, name);
    return entry ? entry : ae_jinja_list_filter_find(name);
}

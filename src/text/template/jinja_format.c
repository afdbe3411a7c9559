/* jinja_format.c - strftime_now, "..." % values, "...".format(values).
 *
 * Own code instead of the C library's: format strings are hostile, and the locale must not show.
 * Source of the directives: Python's documentation; only those of {} and % that templates use.
 */
#define _POSIX_C_SOURCE 200809L
#include "text/template/jinja_internal.h"

#include <math.h>
#include <stdio.h>

#include "base/number.h"

/* ---- Time ------------------------------------------------------------------------------- */

static aerie_status add_number(ae_jinja_run *r, ae_jinja_text *t, int value, int width, bool no_pad, char padding)
{
    char text[32];
    if (no_pad) snprintf(text, sizeof text, "%d", value);
    else snprintf(text, sizeof text, padding == ' ' ? "%*d" : "%0*d", width, value);
    return ae_jinja_text_adds(r, t, text);
}

static aerie_status add_time(ae_jinja_run *r, ae_jinja_text *t, char what, bool no_pad, const struct tm *now);

static aerie_status add_times(ae_jinja_run *r, ae_jinja_text *t, const char *what, const char *between, const struct tm *now)
{
    for (size_t i = 0; what[i]; i++) {
        if (i) AE_TRY(ae_jinja_text_add(r, t, between + (between[1] ? i - 1 : 0), 1));
        AE_TRY(add_time(r, t, what[i], false, now));
    }
    return AERIE_OK;
}

static aerie_status add_time(ae_jinja_run *r, ae_jinja_text *t, char what, bool no_pad, const struct tm *now)
{
    static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
    static const char *const months[] = {"January", "February", "March", "April", "May", "June", "July", "August",
                                         "September", "October", "November", "December"};
    const char *day = days[(unsigned)now->tm_wday % 7], *month = months[(unsigned)now->tm_mon % 12];
    char verbatim[4] = {'%', what, 0, 0};
    int hour = now->tm_hour % 12 ? now->tm_hour % 12 : 12;
    switch (what) {
    case 'Y': return add_number(r, t, now->tm_year + 1900, 1, no_pad, '0');
    case 'y': return add_number(r, t, now->tm_year % 100, 2, no_pad, '0');
    case 'm': return add_number(r, t, now->tm_mon + 1, 2, no_pad, '0');
    case 'd': return add_number(r, t, now->tm_mday, 2, no_pad, '0');
    case 'e': return add_number(r, t, now->tm_mday, 2, no_pad, ' ');
    case 'H': return add_number(r, t, now->tm_hour, 2, no_pad, '0');
    case 'I': return add_number(r, t, hour, 2, no_pad, '0');
    case 'M': return add_number(r, t, now->tm_min, 2, no_pad, '0');
    case 'S': return add_number(r, t, now->tm_sec, 2, no_pad, '0');
    case 'j': return add_number(r, t, now->tm_yday + 1, 3, no_pad, '0');
    case 'w': return add_number(r, t, now->tm_wday, 1, no_pad, '0');
    case 'u': return add_number(r, t, now->tm_wday ? now->tm_wday : 7, 1, no_pad, '0');
    case 'f': return ae_jinja_text_adds(r, t, "000000");
    case 'p': return ae_jinja_text_adds(r, t, now->tm_hour < 12 ? "AM" : "PM");
    case 'A': return ae_jinja_text_adds(r, t, day);
    case 'a': return ae_jinja_text_add(r, t, day, 3);
    case 'B': return ae_jinja_text_adds(r, t, month);
    case 'b':
    case 'h': return ae_jinja_text_add(r, t, month, 3);
    case 'F': return add_times(r, t, "Ymd", "-", now);
    case 'D':
    case 'x': return add_times(r, t, "mdy", "/", now);
    case 'T':
    case 'X': return add_times(r, t, "HMS", ":", now);
    case 'R': return add_times(r, t, "HM", ":", now);
    case 'c': return add_times(r, t, "abeTY", "    ", now);
    case 'n': return ae_jinja_text_adds(r, t, "\n");
    case 't': return ae_jinja_text_adds(r, t, "\t");
    case '%': return ae_jinja_text_adds(r, t, "%");
    case 'Z':
    case 'z': return AERIE_OK; /* the time has no zone */
    default: return ae_jinja_text_adds(r, t, verbatim);
    }
}

aerie_status ae_jinja_strftime(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    struct tm now;
    ae_jinja_text t = {0};
    if (call->arg[0].kind != AE_VALUE_STRING) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "strftime_now needs a string");
    if (r->now) {
        now = *r->now;
    } else {
        time_t seconds = time(NULL);
        if (!localtime_r(&seconds, &now)) now = (struct tm){.tm_mday = 1, .tm_year = 70, .tm_wday = 4};
    }
    const ae_string *format = call->arg[0].as.string;
    t.pen = format->origin == AE_ORIGIN_TEMPLATE ? AE_ORIGIN_TEMPLATE : AE_ORIGIN_DATA;
    for (size_t i = 0; i < format->n; i++) {
        if (format->data[i] != '%' || i + 1 == format->n) {
            AE_TRY(ae_jinja_text_add(r, &t, format->data + i, 1));
            continue;
        }
        bool no_pad = format->data[i + 1] == '-' && i + 2 < format->n;
        i += no_pad ? 2 : 1;
        if ((unsigned char)format->data[i] >= 0x80)
            return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "strftime_now: unknown directive");
        AE_TRY(add_time(r, &t, format->data[i], no_pad, &now));
    }
    return ae_jinja_text_value(r, &t, out);
}

/* ---- Fields: [[fill]align][sign][0][width][.precision][type] ----------------------------- */

typedef struct field {
    char align, sign, type; /* 0: not given */
    bool zero, alternate;
    int width, precision; /* -1: not given */
} field;

/* Digits at text[*at]; -1 if there are none. */
static int read_number(const char *text, size_t n, size_t *at)
{
    int value = -1;
    for (; *at < n && text[*at] >= '0' && text[*at] <= '9'; (*at)++)
        if (value < 100000) value = (value < 0 ? 0 : value) * 10 + (text[*at] - '0');
    return value;
}

/* Adds the first n bytes of `text`, padded. */
static aerie_status add_padded(ae_jinja_run *r, ae_jinja_text *t, const field *f, const ae_jinja_text *text, size_t n,
                               bool number)
{
    const char *data = text->data;
    size_t n_chars = 0, sign = number && n && (data[0] == '-' || data[0] == '+' || data[0] == ' ') ? 1 : 0;
    for (size_t i = 0; i < n; i++) n_chars += ((unsigned char)data[i] & 0xC0) != 0x80;
    size_t missing = f->width > 0 && (size_t)f->width > n_chars ? (size_t)f->width - n_chars : 0;
    char align = f->align ? f->align : number ? '>' : '<';
    size_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
    bool zeros = f->zero && number && !f->align;
    if (zeros) AE_TRY(ae_jinja_text_join(r, t, text, 0, sign));
    for (size_t i = 0; i < left; i++) AE_TRY(ae_jinja_text_adds(r, t, zeros ? "0" : " "));
    AE_TRY(ae_jinja_text_join(r, t, text, zeros ? sign : 0, n - (zeros ? sign : 0)));
    for (size_t i = left; i < missing; i++) AE_TRY(ae_jinja_text_adds(r, t, " "));
    return AERIE_OK;
}

/* Adds a number that was written into `text`. */
static aerie_status add_digits(ae_jinja_run *r, ae_jinja_text *t, const field *f, char *text, size_t n)
{
    return add_padded(r, t, f, &(ae_jinja_text){.data = text, .n = n}, n, true);
}

static aerie_status add_integer(ae_jinja_run *r, ae_jinja_text *t, const field *f, int64_t value)
{
    char text[80], digits[72];
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    unsigned base = f->type == 'x' || f->type == 'X' ? 16 : f->type == 'o' ? 8 : f->type == 'b' ? 2 : 10;
    size_t n = 0, at = 0;
    do digits[n++] = (f->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[rest % base];
    while ((rest /= base) > 0);
    if (value < 0) text[at++] = '-';
    else if (f->sign) text[at++] = f->sign;
    while (n) text[at++] = digits[--n];
    return add_digits(r, t, f, text, at);
}

static aerie_status add_float(ae_jinja_run *r, ae_jinja_text *t, const field *f, double value)
{
    char text[512], format[8] = {'%', '.', '*', f->type, 0};
    int precision = f->precision < 0 ? 6 : f->precision;
    if (precision > 100) return ae_jinja_fail(r, AERIE_ERROR_LIMIT, "more than 100 digits after the point");
    size_t at = 0;
    if (f->sign && !signbit(value)) text[at++] = f->sign;
    int n = ae_number_print(text + at, sizeof text - at, format, precision, value);
    if (n < 0 || (size_t)n >= sizeof text - at) return ae_jinja_fail(r, AERIE_ERROR_LIMIT, "a number is too long");
    return add_digits(r, t, f, text, at + (size_t)n);
}

static aerie_status add_field(ae_jinja_run *r, ae_jinja_text *t, const field *f, ae_value v)
{
    int64_t i;
    ae_jinja_text inner = {0};
    switch (f->type) {
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
    case 'b':
        if (v.kind == AE_VALUE_DOUBLE && (f->type == 'd' || f->type == 'i' || f->type == 'u') && fabs(v.as.number) < 9e18)
            return add_integer(r, t, f, (int64_t)v.as.number);
        if (ae_jinja_to_int(v, &i)) return add_integer(r, t, f, i);
        break;
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
        if (ae_jinja_is_number(v)) return add_float(r, t, f, ae_jinja_to_double(v));
        break;
    case 'r': AE_TRY(ae_jinja_write_repr(r, &inner, v)); return add_padded(r, t, f, &inner, inner.n, false);
    case 's': {
        AE_TRY(ae_jinja_write_str(r, &inner, v));
        size_t n = inner.n;
        for (size_t k = 0, chars = 0; f->precision >= 0 && k < inner.n; k++)
            if (((unsigned char)inner.data[k] & 0xC0) != 0x80 && chars++ == (size_t)f->precision) {
                n = k;
                break;
            }
        return add_padded(r, t, f, &inner, n, false);
    }
    default: return ae_jinja_fail(r, AERIE_ERROR_UNSUPPORTED, "the format '%c' is not offered", f->type);
    }
    return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "the format '%c' does not take a '%s'", f->type, ae_jinja_type_name(v));
}

/* ---- "..." % args ------------------------------------------------------------------------ */

aerie_status ae_jinja_percent(ae_jinja_run *r, ae_value format, ae_value args, ae_value *out)
{
    const ae_string *s = format.as.string;
    bool is_tuple = args.kind == AE_VALUE_ARRAY && args.as.array->kind == AE_ARRAY_TUPLE;
    size_t n_args = is_tuple ? args.as.array->n : 1, used = 0;
    ae_jinja_text t = {0};
    for (size_t i = 0; i < s->n;) {
        if (s->data[i] != '%') {
            AE_TRY(ae_jinja_text_part(r, &t, s, i++, 1));
            continue;
        }
        field f = {.precision = -1};
        ae_value value = ae_value_undefined();
        bool named = false;
        i++;
        if (i < s->n && s->data[i] == '(') {
            const char *end = memchr(s->data + i, ')', s->n - i);
            if (end && args.kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, args);
            if (!end || args.kind != AE_VALUE_OBJECT)
                return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a named format needs a dict");
            ae_value key;
            AE_TRY(ae_jinja_string(r, s->data + i + 1, (size_t)(end - s->data) - i - 1, &key));
            const ae_value *found = ae_object_find(args.as.object, key);
            if (!found) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "the dict lacks '%.80s'", key.as.string->data);
            value = *found;
            named = true;
            i = (size_t)(end - s->data) + 1;
        }
        for (; i < s->n && s->data[i] && strchr("-+ 0#", s->data[i]); i++) {
            if (s->data[i] == '-') f.align = '<';
            if (s->data[i] == '+' || (s->data[i] == ' ' && !f.sign)) f.sign = s->data[i];
            if (s->data[i] == '0') f.zero = true;
        }
        f.width = read_number(s->data, s->n, &i);
        if (i < s->n && s->data[i] == '.') {
            i++;
            f.precision = read_number(s->data, s->n, &i);
            if (f.precision < 0) f.precision = 0;
        }
        if (i == s->n) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a format ends in the middle");
        f.type = s->data[i++];
        if (f.type == '%') {
            AE_TRY(ae_jinja_text_part(r, &t, s, i - 1, 1));
            continue;
        }
        if (!named) {
            if (used == n_args) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "there are more formats than values");
            value = is_tuple ? args.as.array->items[used] : args;
            used++;
        }
        if (f.type == 's' && !f.align) f.align = '>';
        if (format.safe && f.type == 's') AE_TRY(ae_jinja_escape(r, value, &value));
        AE_TRY(add_field(r, &t, &f, value));
    }
    if (used < n_args && args.kind != AE_VALUE_OBJECT && args.kind != AE_VALUE_UNDEFINED &&
        !(args.kind == AE_VALUE_ARRAY && (args.as.array->kind == AE_ARRAY_LIST || args.as.array->kind == AE_ARRAY_RANGE)))
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "there are more values than formats");
    AE_TRY(ae_jinja_text_value(r, &t, out));
    out->safe = format.safe;
    return AERIE_OK;
}

/* ---- "...".format(...) -------------------------------------------------------------------- */

/* Finds the value that a field's name means: a number, a name, or nothing for the next argument. */
static aerie_status format_value(ae_jinja_run *r, const ae_jinja_args *args, const char *name, size_t n, size_t *next,
                                 ae_value *out)
{
    size_t at = 0, length = 0;
    while (length < n && name[length] != '.' && name[length] != '[') length++;
    if (length < n) return ae_jinja_fail(r, AERIE_ERROR_UNSUPPORTED, "format: fields with '.' or '[' are not offered");
    int number = read_number(name, n, &at);
    if (n == 0 || (number >= 0 && at == n)) {
        size_t i = n ? (size_t)number : (*next)++;
        if (i >= args->n) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "format: there is no argument %zu", i);
        *out = args->items[i];
        return AERIE_OK;
    }
    for (size_t i = 0; i < args->n_named; i++) {
        if (args->names[i]->n != n || memcmp(args->names[i]->data, name, n) != 0) continue;
        *out = args->named[i];
        return AERIE_OK;
    }
    return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "format: an argument is missing");
}

static aerie_status format_field(ae_jinja_run *r, ae_jinja_text *t, const char *text, size_t n, const ae_jinja_args *args,
                                 size_t *next)
{
    field f = {.precision = -1, .width = -1};
    ae_value value;
    size_t name = 0, at;
    char conversion = 0;
    while (name < n && text[name] != ':' && text[name] != '!') name++;
    AE_TRY(format_value(r, args, text, name, next, &value));
    at = name;
    if (at + 1 < n && text[at] == '!') {
        conversion = text[at + 1];
        at += 2;
    }
    if (at < n && text[at] == ':') at++;
    if (at < n && strchr("<>^", text[at])) f.align = text[at++];
    if (at < n && strchr("+- ", text[at])) {
        if (text[at] != '-') f.sign = text[at];
        at++;
    }
    if (at < n && text[at] == '0') f.zero = true;
    f.width = read_number(text, n, &at);
    if (at < n && text[at] == '.') {
        at++;
        f.precision = read_number(text, n, &at);
    }
    if (at < n) f.type = text[at++];
    if (at < n || (conversion && conversion != 'r' && conversion != 's'))
        return ae_jinja_fail(r, AERIE_ERROR_UNSUPPORTED, "format: this kind of field is not offered");
    if (conversion == 'r') f.type = 'r';
    bool number = !conversion && ae_jinja_is_number(value) && value.kind != AE_VALUE_BOOL;
    if (number && value.kind == AE_VALUE_DOUBLE && !f.type && f.precision >= 0)
        return ae_jinja_fail(r, AERIE_ERROR_UNSUPPORTED, "format: this kind of field is not offered");
    if (number && !f.type && value.kind == AE_VALUE_INT) f.type = 'd';
    if (!f.type) {
        if (number && !f.align) f.align = '>';
        f.type = 's';
    }
    return add_field(r, t, &f, value);
}

aerie_status ae_jinja_str_format(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_string *s = call->self.as.string;
    ae_jinja_text t = {0};
    size_t next = 0;
    if (call->self.safe) return ae_jinja_fail(r, AERIE_ERROR_UNSUPPORTED, "format of a safe string is not offered");
    for (size_t i = 0; i < s->n;) {
        char c = s->data[i];
        if ((c == '{' || c == '}') && i + 1 < s->n && s->data[i + 1] == c) {
            AE_TRY(ae_jinja_text_part(r, &t, s, i, 1));
            i += 2;
        } else if (c == '{') {
            const char *end = memchr(s->data + i, '}', s->n - i);
            if (!end) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "format: a '{' has no end");
            size_t n = (size_t)(end - s->data) - i - 1;
            AE_TRY(format_field(r, &t, s->data + i + 1, n, call->args, &next));
            i += n + 2;
        } else if (c == '}') {
            return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "format: a '}' stands alone");
        } else {
            AE_TRY(ae_jinja_text_part(r, &t, s, i, 1));
            i++;
        }
    }
    return ae_jinja_text_value(r, &t, out);
}

/* jinja_method.c - methods of strings, dicts, lists and loops.
 *
 * Source of the semantics: Python's str, dict, list and tuple. Methods that change their object
 * are hidden, as in jinja2's immutable sandbox. What is safe stays safe (Markup).
 */
#include "text/template/jinja_internal.h"

#include <utf8proc.h>

enum { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE, CASE_SWAP };
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
enum { IS_DIGIT, IS_ALPHA, IS_ALNUM, IS_SPACE, IS_UPPER, IS_LOWER, IS_ASCII, IS_TITLE, IS_IDENTIFIER };

static aerie_status need_string(ae_jinja_run *r, const ae_jinja_call *call, ae_value v, const ae_string **out)
{
    *out = NULL;
    if (v.kind != AE_VALUE_STRING) {
        if (v.kind == AE_VALUE_UNDEFINED && v.as.undefined) return ae_jinja_fail_undefined(r, v);
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%s' needs a string, not a '%s'", call->entry->name,
                             ae_jinja_type_name(v));
    }
    *out = v.as.string;
    return AERIE_OK;
}

static aerie_status need_int(ae_jinja_run *r, const ae_jinja_call *call, size_t i, int64_t fallback, int64_t *out)
{
    *out = fallback;
    if (!call->has[i] || call->arg[i].kind == AE_VALUE_NONE || ae_jinja_to_int(call->arg[i], out)) return AERIE_OK;
    return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%s' needs an integer, not a '%s'", call->entry->name,
                         ae_jinja_type_name(call->arg[i]));
}

/* Returns bytes of the object itself. */
static aerie_status part_of(ae_jinja_run *r, const ae_jinja_call *call, size_t from, size_t n, ae_value *out)
{
    AE_TRY(ae_jinja_part(r, call->self.as.string, from, n, out));
    out->safe = call->self.safe;
    return AERIE_OK;
}

static aerie_status text_result(ae_jinja_run *r, const ae_jinja_call *call, const ae_jinja_text *t, ae_value *out)
{
    AE_TRY(ae_jinja_text_value(r, t, out));
    out->safe = call->self.safe;
    return AERIE_OK;
}

/* ---- Case ------------------------------------------------------------------------------- */

static utf8proc_category_t category(uint32_t code) { return utf8proc_category((utf8proc_int32_t)code); }

static bool is_cased(uint32_t code)
{
    utf8proc_category_t c = category(code);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

/* Adds a letter in its other case; for a few, this is more than one character. */
static aerie_status add_cased(ae_jinja_run *r, ae_jinja_text *t, uint32_t code, int how)
{
    static const struct {
        uint32_t code;
        const char *upper, *title;
    } special[] = {
        {0xDF, "SS", "Ss"},      {0x149, "\xCA\xBCN", "\xCA\xBCN"}, {0x1F0, "J\xCC\x8C", "J\xCC\x8C"},
        {0xFB00, "FF", "Ff"},    {0xFB01, "FI", "Fi"},              {0xFB02, "FL", "Fl"},
        {0xFB03, "FFI", "Ffi"},  {0xFB04, "FFL", "Ffl"},            {0xFB05, "ST", "St"},
        {0xFB06, "ST", "St"},    {0x587, "\xD4\xB5\xD5\x92", "\xD4\xB5\xD6\x82"},
    };
    if (how == CASE_LOWER && code == 0x130) return ae_jinja_text_adds(r, t, "i\xCC\x87");
    for (size_t i = 0; how != CASE_LOWER && i < sizeof special / sizeof *special; i++)
        if (special[i].code == code) return ae_jinja_text_adds(r, t, how == CASE_UPPER ? special[i].upper : special[i].title);
    utf8proc_int32_t c = (utf8proc_int32_t)code;
    c = how == CASE_UPPER ? utf8proc_toupper(c) : how == CASE_LOWER ? utf8proc_tolower(c) : utf8proc_totitle(c);
    return ae_jinja_text_code(r, t, (uint32_t)c);
}

/* Returns whether it is a sigma at the end of a word, which has its own lower case. */
static bool is_final_sigma(const ae_string *s, size_t at, bool after_letter)
{
    uint32_t next = 0;
    if (at + 2 < s->n) ae_utf8_decode(s->data + at + 2, s->n - at - 2, &next);
    return after_letter && !is_cased(next);
}

static aerie_status change_case(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_string *s = call->self.as.string;
    ae_jinja_text t = {0};
    int how = call->entry->detail;
    bool after_letter = false;
    AE_JINJA_CHARGE(r, s->n / 16); /* charged by what a character costs, so that a template that does nothing else ends within a
                                    * second */
    for (size_t i = 0; i < s->n;) {
        uint32_t code;
        size_t n = ae_utf8_decode(s->data + i, s->n - i, &code);
        int now = how;
        t.pen = ae_jinja_origin_at(s, i);
        if (how == CASE_TITLE) now = after_letter ? CASE_LOWER : CASE_TITLE;
        if (how == CASE_CAPITALIZE) now = i ? CASE_LOWER : CASE_TITLE;
        if (how == CASE_SWAP) now = category(code) == UTF8PROC_CATEGORY_LU ? CASE_LOWER : CASE_UPPER;
        if (now == CASE_LOWER && code == 0x3A3 && is_final_sigma(s, i, after_letter)) AE_TRY(ae_jinja_text_code(r, &t, 0x3C2));
        else AE_TRY(add_cased(r, &t, code, now));
        after_letter = is_cased(code);
        i += n;
    }
    return text_result(r, call, &t, out);
}

static aerie_status test_chars(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_string *s = call->self.as.string;
    int what = call->entry->detail;
    bool all = s->n > 0 || what == IS_ASCII, cased = false, after_letter = false;
    AE_JINJA_CHARGE(r, s->n / 32);
    for (size_t i = 0; i < s->n && all;) {
        uint32_t code;
        size_t n = ae_utf8_decode(s->data + i, s->n - i, &code);
        utf8proc_category_t c = category(code);
        bool alpha = c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
        bool digit = c == UTF8PROC_CATEGORY_ND;
        bool upper = c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LT;
        bool mark = c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC ||
                    c == UTF8PROC_CATEGORY_PC || c == UTF8PROC_CATEGORY_NL;
        switch (what) {
        case IS_DIGIT: all = digit; break;
        case IS_ALPHA: all = alpha; break;
        case IS_ALNUM: all = alpha || digit || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO; break;
        case IS_SPACE: all = ae_utf8_is_space(code); break;
        case IS_ASCII: all = code < 0x80; break;
        case IS_UPPER: all = c != UTF8PROC_CATEGORY_LL && c != UTF8PROC_CATEGORY_LT; break;
        case IS_LOWER: all = !upper; break;
        case IS_TITLE: all = upper ? !after_letter : c != UTF8PROC_CATEGORY_LL || after_letter; break;
        case IS_IDENTIFIER: all = alpha || code == '_' || (i > 0 && (digit || mark)); break;
        }
        after_letter = is_cased(code);
        cased |= after_letter;
        i += n;
    }
    if (what == IS_UPPER || what == IS_LOWER || what == IS_TITLE) all = all && cased;
    *out = ae_value_bool(all);
    return AERIE_OK;
}

/* ---- Strip, search, replace ------------------------------------------------------------- */

static aerie_status has_char(ae_jinja_run *r, const ae_string *set, uint32_t code, bool *out)
{
    *out = false;
    if (!set) {
        *out = ae_utf8_is_space(code);
        return AERIE_OK;
    }
    AE_JINJA_CHARGE(r, set->n / 64);
    for (size_t i = 0; i < set->n && !*out;) {
        uint32_t other;
        i += ae_utf8_decode(set->data + i, set->n - i, &other);
        *out = other == code;
    }
    return AERIE_OK;
}

static aerie_status strip(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_string *s = call->self.as.string, *set = NULL;
    size_t from = 0, to = s->n;
    bool drop = true;
    uint32_t code;
    if (call->has[0] && call->arg[0].kind != AE_VALUE_NONE) AE_TRY(need_string(r, call, call->arg[0], &set));
    while (drop && from < to && (call->entry->detail & STRIP_LEFT)) {
        size_t n = ae_utf8_decode(s->data + from, to - from, &code);
        AE_TRY(has_char(r, set, code, &drop));
        if (drop) from += n;
    }
    for (drop = true; drop && from < to && (call->entry->detail & STRIP_RIGHT);) {
        size_t at = to - 1;
        while (at > from && ((unsigned char)s->data[at] & 0xC0) == 0x80) at--;
        ae_utf8_decode(s->data + at, to - at, &code);
        AE_TRY(has_char(r, set, code, &drop));
        if (drop) to = at;
    }
    AE_JINJA_CHARGE(r, (s->n - (to - from)) / 64);
    return part_of(r, call, from, to - from, out);
}

/* Optional start and end (characters) at arguments 1 and 2, as byte offsets. */
static aerie_status bounds(ae_jinja_run *r, const ae_jinja_call *call, size_t *from, size_t *to)
{
    const ae_string *s = call->self.as.string;
    int64_t n = (int64_t)s->n_chars, start, end;
    AE_TRY(need_int(r, call, 1, 0, &start));
    AE_TRY(need_int(r, call, 2, n, &end));
    if (start < 0) start = start < -n ? 0 : start + n;
    if (end < 0) end = end < -n ? 0 : end + n;
    if (end > n) end = n;
    AE_JINJA_CHARGE(r, s->n / 1024);
    *from = start > n ? SIZE_MAX : ae_jinja_char_offset(s, (size_t)start);
    *to = ae_jinja_char_offset(s, (size_t)end);
    return AERIE_OK;
}

static bool matches(const ae_string *s, size_t from, size_t to, const ae_string *part, bool at_end)
{
    if (from > to || part->n > to - from) return false;
    return memcmp(s->data + (at_end ? to - part->n : from), part->data, part->n) == 0;
}

/* startswith, endswith: detail 1 */
static aerie_status starts_with(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_string *s = call->self.as.string, *part;
    size_t from, to;
    bool at_end = call->entry->detail, found = false;
    AE_TRY(bounds(r, call, &from, &to));
    if (call->arg[0].kind == AE_VALUE_ARRAY && call->arg[0].as.array->kind == AE_ARRAY_TUPLE) {
        const ae_array *parts = call->arg[0].as.array;
        AE_JINJA_CHARGE(r, parts->n);
        for (size_t i = 0; i < parts->n && !found; i++) {
            AE_TRY(need_string(r, call, parts->items[i], &part));
            found = matches(s, from, to, part, at_end);
        }
    } else {
        AE_TRY(need_string(r, call, call->arg[0], &part));
        AE_JINJA_CHARGE(r, part->n / 1024);
        found = matches(s, from, to, part, at_end);
    }
    *out = ae_value_bool(found);
    return AERIE_OK;
}

enum { FIND = 0, FIND_LAST = 1, FIND_INDEX = 2, FIND_LAST_INDEX = 3, FIND_COUNT = 4 };

static aerie_status find(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_string *s = call->self.as.string, *part;
    size_t from, to, at, last = SIZE_MAX;
    int64_t count = 0;
    int what = call->entry->detail;
    AE_TRY(need_string(r, call, call->arg[0], &part));
    AE_TRY(bounds(r, call, &from, &to));
    while (from != SIZE_MAX && from <= to) {
        AE_JINJA_CHARGE(r, 1);
        AE_TRY(ae_jinja_find(r, s, from, part, &at));
        if (at == SIZE_MAX || at + part->n > to) break;
        last = at;
        count++;
        if (what == FIND || what == FIND_INDEX) break;
        from = at + (what == FIND_COUNT && part->n ? part->n : 1);
        while (from < s->n && ((unsigned char)s->data[from] & 0xC0) == 0x80) from++;
    }
    if (what == FIND_COUNT) {
        *out = ae_value_int(count);
        return AERIE_OK;
    }
    if (last == SIZE_MAX && (what & FIND_INDEX))
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%s' does not find the text", call->entry->name);
    int64_t chars = last == SIZE_MAX ? -1 : 0;
    for (size_t i = 0; last != SIZE_MAX && i < last; i++) chars += ((unsigned char)s->data[i] & 0xC0) != 0x80;
    *out = ae_value_int(chars);
    return AERIE_OK;
}

static aerie_status replace(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value old_value = call->arg[0], new_value = call->arg[1];
    if (call->self.safe) {
        AE_TRY(ae_jinja_escape(r, old_value, &old_value));
        AE_TRY(ae_jinja_escape(r, new_value, &new_value));
    }
    const ae_string *s = call->self.as.string, *old, *with;
    int64_t count;
    ae_jinja_text t = {0};
    AE_TRY(need_string(r, call, old_value, &old));
    AE_TRY(need_string(r, call, new_value, &with));
    AE_TRY(need_int(r, call, 2, -1, &count));
    size_t from = 0;
    for (size_t search = 0; count != 0; count -= count > 0) {
        size_t at;
        AE_JINJA_CHARGE(r, 1);
        AE_TRY(ae_jinja_find(r, s, search, old, &at));
        if (at == SIZE_MAX) break;
        AE_TRY(ae_jinja_text_part(r, &t, s, from, at - from));
        AE_TRY(ae_jinja_text_part(r, &t, with, 0, with->n));
        from = search = at + old->n;
        if (old->n) continue;
        /* An empty text is found before every character and at the end. */
        if (search == s->n) break;
        do search++;
        while (search < s->n && ((unsigned char)s->data[search] & 0xC0) == 0x80);
    }
    AE_TRY(ae_jinja_text_part(r, &t, s, from, s->n - from));
    return text_result(r, call, &t, out);
}

/* removeprefix, removesuffix: detail 1 */
static aerie_status remove_affix(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_string *s = call->self.as.string, *part;
    AE_TRY(need_string(r, call, call->arg[0], &part));
    bool found = matches(s, 0, s->n, part, call->entry->detail);
    size_t n = found ? s->n - part->n : s->n;
    return part_of(r, call, found && !call->entry->detail ? part->n : 0, n, out);
}

/* ---- Split and join --------------------------------------------------------------------- */

static aerie_status add_part(ae_jinja_run *r, const ae_jinja_call *call, ae_value list, size_t from, size_t to)
{
    ae_value part;
    AE_JINJA_CHARGE(r, 1);
    AE_TRY(part_of(r, call, from, to - from, &part));
    return ae_value_array_add(&r->heap, list, part) ? AERIE_OK : ae_jinja_fail_heap(r);
}

static aerie_status split_space(ae_jinja_run *r, const ae_jinja_call *call, int64_t limit, ae_value list)
{
    const ae_string *s = call->self.as.string;
    size_t from = SIZE_MAX, at = 0;
    uint32_t code;
    AE_JINJA_CHARGE(r, s->n / 64);
    while (at < s->n) {
        size_t n = ae_utf8_decode(s->data + at, s->n - at, &code);
        bool space = ae_utf8_is_space(code);
        if (space && from != SIZE_MAX) {
            AE_TRY(add_part(r, call, list, from, at));
            from = SIZE_MAX;
            if (limit > 0) limit--;
        } else if (!space && from == SIZE_MAX) {
            from = at;
            if (limit == 0) break;
        }
        at += n;
    }
    if (from == SIZE_MAX) return AERIE_OK;
    size_t to = s->n;
    /* The rest after the last allowed split keeps its inner and trailing space. */
    return add_part(r, call, list, from, to);
}

static aerie_status rsplit_space(ae_jinja_run *r, const ae_jinja_call *call, int64_t limit, ae_value list)
{
    const ae_string *s = call->self.as.string;
    size_t to = SIZE_MAX, at = s->n;
    uint32_t code;
    AE_JINJA_CHARGE(r, s->n / 64);
    while (at > 0) {
        size_t start = at - 1;
        while (start > 0 && ((unsigned char)s->data[start] & 0xC0) == 0x80) start--;
        ae_utf8_decode(s->data + start, at - start, &code);
        bool space = ae_utf8_is_space(code);
        if (space && to != SIZE_MAX) {
            AE_TRY(add_part(r, call, list, at, to));
            to = SIZE_MAX;
            if (limit > 0) limit--;
        } else if (!space && to == SIZE_MAX) {
            to = at;
            if (limit == 0) break;
        }
        at = start;
    }
    return to == SIZE_MAX ? AERIE_OK : add_part(r, call, list, 0, to);
}

static void reverse_items(ae_array *array)
{
    for (size_t i = 0; i < array->n / 2; i++) {
        ae_value swap = array->items[i];
        array->items[i] = array->items[array->n - 1 - i];
        array->items[array->n - 1 - i] = swap;
    }
}

/* Byte offset of the last occurrence that ends at or before `end`, or SIZE_MAX. */
static aerie_status find_last(ae_jinja_run *r, const ae_string *s, size_t end, const ae_string *part, size_t *at)
{
    *at = SIZE_MAX;
    for (size_t i = end - (end >= part->n ? part->n : end) + 1; end >= part->n && i-- > 0;) {
        if (i % 64 == 0) AE_JINJA_CHARGE(r, 1);
        if (s->data[i] != part->data[0]) continue;
        AE_JINJA_CHARGE(r, part->n / 256);
        if (memcmp(s->data + i, part->data, part->n) != 0) continue;
        *at = i;
        return AERIE_OK;
    }
    return AERIE_OK;
}

/* split, rsplit: detail 1 */
static aerie_status split(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_string *s = call->self.as.string, *separator;
    int64_t limit;
    bool from_right = call->entry->detail;
    AE_TRY(need_int(r, call, 1, -1, &limit));
    if (!ae_value_array(&r->heap, AE_ARRAY_LIST, 0, out)) return ae_jinja_fail_heap(r);
    if (!call->has[0] || call->arg[0].kind == AE_VALUE_NONE) {
        AE_TRY(from_right ? rsplit_space(r, call, limit, *out) : split_space(r, call, limit, *out));
        if (from_right) reverse_items(out->as.array);
        return AERIE_OK;
    }
    AE_TRY(need_string(r, call, call->arg[0], &separator));
    if (separator->n == 0)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%s' needs a separator that is not empty", call->entry->name);
    size_t from = 0, to = s->n, at;
    for (; limit != 0; limit -= limit > 0) {
        if (from_right) AE_TRY(find_last(r, s, to, separator, &at));
        else AE_TRY(ae_jinja_find(r, s, from, separator, &at));
        if (at == SIZE_MAX) break;
        if (from_right) {
            AE_TRY(add_part(r, call, *out, at + separator->n, to));
            to = at;
        } else {
            AE_TRY(add_part(r, call, *out, from, at));
            from = at + separator->n;
        }
    }
    AE_TRY(add_part(r, call, *out, from, to));
    if (from_right) reverse_items(out->as.array);
    return AERIE_OK;
}

static bool is_line_end(uint32_t code)
{
    return (code >= 10 && code <= 13) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 || code == 0x2029;
}

static aerie_status splitlines(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_string *s = call->self.as.string;
    bool keep = ae_jinja_truth(call->arg[0]);
    if (!ae_value_array(&r->heap, AE_ARRAY_LIST, 0, out)) return ae_jinja_fail_heap(r);
    size_t from = 0;
    AE_JINJA_CHARGE(r, s->n / 64);
    for (size_t at = 0; at < s->n;) {
        uint32_t code;
        size_t next = at + ae_utf8_decode(s->data + at, s->n - at, &code);
        if (is_line_end(code)) {
            if (code == '\r' && next < s->n && s->data[next] == '\n') next++;
            AE_TRY(add_part(r, call, *out, from, keep ? next : at));
            from = next;
        }
        at = next;
    }
    return from < s->n ? add_part(r, call, *out, from, s->n) : AERIE_OK;
}

/* partition, rpartition: detail 1 */
static aerie_status partition(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_string *s = call->self.as.string, *part;
    size_t at;
    bool from_right = call->entry->detail;
    AE_TRY(need_string(r, call, call->arg[0], &part));
    if (part->n == 0)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%s' needs a separator that is not empty", call->entry->name);
    if (from_right) AE_TRY(find_last(r, s, s->n, part, &at));
    else AE_TRY(ae_jinja_find(r, s, 0, part, &at));
    size_t cuts[4] = {0, at, at + part->n, s->n};
    if (at == SIZE_MAX) cuts[1] = cuts[2] = from_right ? 0 : s->n;
    if (!ae_value_array(&r->heap, AE_ARRAY_TUPLE, 3, out)) return ae_jinja_fail_heap(r);
    for (int i = 0; i < 3; i++) AE_TRY(add_part(r, call, *out, cuts[i], cuts[i + 1]));
    return AERIE_OK;
}

static aerie_status join(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value items;
    ae_jinja_text t = {0};
    AE_TRY(ae_jinja_items(r, call->arg[0], false, &items));
    for (size_t i = 0; i < items.as.array->n; i++) {
        ae_value item = items.as.array->items[i];
        const ae_string *s;
        AE_JINJA_CHARGE(r, 1);
        if (call->self.safe) AE_TRY(ae_jinja_escape(r, item, &item));
        AE_TRY(need_string(r, call, item, &s));
        if (i) AE_TRY(ae_jinja_text_part(r, &t, call->self.as.string, 0, call->self.as.string->n));
        AE_TRY(ae_jinja_text_part(r, &t, s, 0, s->n));
    }
    return text_result(r, call, &t, out);
}

enum { PAD_LEFT = 1, PAD_RIGHT = 2, PAD_ZERO = 4 };

/* ljust, rjust, center, zfill */
static aerie_status pad(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_string *s = call->self.as.string, *fill = NULL;
    int64_t width;
    int how = call->entry->detail;
    ae_jinja_text t = {0};
    AE_TRY(need_int(r, call, 0, 0, &width));
    if (call->has[1]) AE_TRY(need_string(r, call, call->arg[1], &fill));
    if (fill && fill->n_chars != 1)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%s' needs one character to fill with", call->entry->name);
    if (width <= (int64_t)s->n_chars) return part_of(r, call, 0, s->n, out);
    size_t missing = (size_t)width - s->n_chars, left = 0, at = 0;
    if (how == PAD_LEFT || how == PAD_ZERO) left = missing;
    if (how == (PAD_LEFT | PAD_RIGHT)) left = missing / 2 + (missing & (size_t)width & 1);
    const char *filler = fill ? fill->data : how == PAD_ZERO ? "0" : " ";
    t.pen = fill && fill->origin; /* the character has a single origin */
    if (how == PAD_ZERO && s->n && (s->data[0] == '-' || s->data[0] == '+')) AE_TRY(ae_jinja_text_part(r, &t, s, 0, at = 1));
    for (size_t i = 0; i < left; i++) AE_TRY(ae_jinja_text_adds(r, &t, filler));
    AE_TRY(ae_jinja_text_part(r, &t, s, at, s->n - at));
    for (size_t i = left; i < missing; i++) AE_TRY(ae_jinja_text_adds(r, &t, filler));
    return text_result(r, call, &t, out);
}

/* ---- Dicts, lists, loops ---------------------------------------------------------------- */

/* keys, values, items: detail is the kind of array */
static aerie_status dict_view(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_object *object = call->self.as.object;
    AE_JINJA_CHARGE(r, object->n);
    if (!ae_value_array(&r->heap, (ae_array_kind)call->entry->detail, object->n, out)) return ae_jinja_fail_heap(r);
    for (size_t i = 0; i < object->n; i++) {
        ae_value item = call->entry->detail == AE_ARRAY_VALUES ? object->entries[i].value : object->entries[i].key;
        if (call->entry->detail == AE_ARRAY_ITEMS) {
            if (!ae_value_array(&r->heap, AE_ARRAY_TUPLE, 2, &item)) return ae_jinja_fail_heap(r);
            item.as.array->items[0] = object->entries[i].key;
            item.as.array->items[1] = object->entries[i].value;
            item.as.array->n = 2;
        }
        out->as.array->items[out->as.array->n++] = item;
    }
    return AERIE_OK;
}

static aerie_status dict_get(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    if (call->arg[0].kind == AE_VALUE_ARRAY || call->arg[0].kind == AE_VALUE_OBJECT)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a '%s' cannot be a key", ae_jinja_type_name(call->arg[0]));
    const ae_value *value = ae_object_find(call->self.as.object, call->arg[0]);
    *out = value ? *value : call->has[1] ? call->arg[1] : ae_value_none();
    return AERIE_OK;
}

static aerie_status dict_copy(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_object *object = call->self.as.object;
    AE_JINJA_CHARGE(r, object->n);
    if (!ae_value_object(&r->heap, out)) return ae_jinja_fail_heap(r);
    for (size_t i = 0; i < object->n; i++)
        if (!ae_value_object_set(&r->heap, *out, object->entries[i].key, object->entries[i].value))
            return ae_jinja_fail_heap(r);
    return AERIE_OK;
}

/* count, index: detail 1 */
static aerie_status list_count(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_array *array = call->self.as.array;
    int64_t count = 0;
    for (size_t i = 0; i < array->n; i++) {
        bool equal;
        AE_TRY(ae_jinja_equal(r, array->items[i], call->arg[0], &equal));
        count += equal;
        if (!equal || !call->entry->detail) continue;
        *out = ae_value_int((int64_t)i);
        return AERIE_OK;
    }
    if (call->entry->detail) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "the value is not in the list");
    *out = ae_value_int(count);
    return AERIE_OK;
}

static aerie_status list_copy(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    return ae_jinja_items(r, call->self, true, out);
}

/* ---- Lists that the template has made may change; jinja2's immutable sandbox refuses this, other engines do not ---- */

static aerie_status list_insert(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_array *array = call->self.as.array;
    const bool at_end = !call->entry->detail; /* append */
    int64_t at = (int64_t)array->n;
    if (!at_end && !ae_jinja_to_int(call->arg[0], &at))
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'insert' needs an index, not a '%s'", ae_jinja_type_name(call->arg[0]));
    if (at < 0) at = at + (int64_t)array->n > 0 ? at + (int64_t)array->n : 0;
    if (at > (int64_t)array->n) at = (int64_t)array->n;
    AE_JINJA_CHARGE(r, at_end ? 1 : array->n);
    const ae_value item = call->arg[at_end ? 0 : 1];
    if (!ae_value_array_add(&r->heap, call->self, item)) return ae_jinja_fail_heap(r);
    memmove(array->items + at + 1, array->items + at, (array->n - 1 - (size_t)at) * sizeof *array->items);
    array->items[at] = item;
    *out = ae_value_none();
    return AERIE_OK;
}

static aerie_status list_extend(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value more;
    AE_TRY(ae_jinja_items(r, call->arg[0], true, &more)); /* a copy, since it may be the list itself */
    for (size_t i = 0; i < more.as.array->n; i++)
        if (!ae_value_array_add(&r->heap, call->self, more.as.array->items[i])) return ae_jinja_fail_heap(r);
    *out = ae_value_none();
    return AERIE_OK;
}

/* pop; remove: detail 1 */
static aerie_status list_take(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_array *array = call->self.as.array;
    int64_t at = -1;
    AE_JINJA_CHARGE(r, array->n);
    if (call->entry->detail) {
        bool equal = false;
        for (at = 0; at < (int64_t)array->n && !equal; at += !equal)
            AE_TRY(ae_jinja_equal(r, array->items[at], call->arg[0], &equal));
        if (!equal) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "the value is not in the list");
    } else if (call->has[0] && !ae_jinja_to_int(call->arg[0], &at)) {
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'pop' needs an index, not a '%s'", ae_jinja_type_name(call->arg[0]));
    }
    if (at < 0) at += (int64_t)array->n;
    if (at < 0 || at >= (int64_t)array->n) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'pop' from beyond the list's ends");
    *out = call->entry->detail ? ae_value_none() : array->items[at];
    memmove(array->items + at, array->items + at + 1, (array->n - 1 - (size_t)at) * sizeof *array->items);
    array->n--;
    return AERIE_OK;
}

/* clear; reverse: detail 1 */
static aerie_status list_turn(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_array *array = call->self.as.array;
    AE_JINJA_CHARGE(r, array->n);
    if (!call->entry->detail) array->n = 0;
    for (size_t i = 0; i < array->n / 2; i++) {
        const ae_value item = array->items[i];
        array->items[i] = array->items[array->n - 1 - i];
        array->items[array->n - 1 - i] = item;
    }
    *out = ae_value_none();
    return AERIE_OK;
}

static aerie_status loop_cycle(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    if (call->args->n == 0) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'cycle' needs something to cycle through");
    *out = call->args->items[call->self.as.loop->i % call->args->n];
    return AERIE_OK;
}

static aerie_status loop_changed(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_jinja_loop *loop = call->self.as.loop;
    ae_value now;
    bool equal = false;
    if (!ae_value_array(&r->heap, AE_ARRAY_TUPLE, call->args->n, &now)) return ae_jinja_fail_heap(r);
    if (call->args->n) memcpy(now.as.array->items, call->args->items, call->args->n * sizeof *call->args->items);
    now.as.array->n = call->args->n;
    if (loop->has_changed_value) AE_TRY(ae_jinja_equal(r, loop->changed, now, &equal));
    loop->changed = now;
    loop->has_changed_value = true;
    *out = ae_value_bool(!equal);
    return AERIE_OK;
}

/* ---- Tables ----------------------------------------------------------------------------- */

static const ae_jinja_entry string_methods[] = {
    {"upper", change_case, "", 0, CASE_UPPER},
    {"lower", change_case, "", 0, CASE_LOWER},
    {"title", change_case, "", 0, CASE_TITLE},
    {"capitalize", change_case, "", 0, CASE_CAPITALIZE},
    {"swapcase", change_case, "", 0, CASE_SWAP},
    {"strip", strip, "chars", 0, STRIP_LEFT | STRIP_RIGHT},
    {"lstrip", strip, "chars", 0, STRIP_LEFT},
    {"rstrip", strip, "chars", 0, STRIP_RIGHT},
    {"startswith", starts_with, "prefix,start,end", 1, 0},
    {"endswith", starts_with, "suffix,start,end", 1, 1},
    {"find", find, "sub,start,end", 1, FIND},
    {"rfind", find, "sub,start,end", 1, FIND_LAST},
    {"index", find, "sub,start,end", 1, FIND_INDEX},
    {"rindex", find, "sub,start,end", 1, FIND_LAST_INDEX},
    {"count", find, "sub,start,end", 1, FIND_COUNT},
    {"replace", replace, "old,new,count", 2, 0},
    {"removeprefix", remove_affix, "prefix", 1, 0},
    {"removesuffix", remove_affix, "suffix", 1, 1},
    {"split", split, "sep,maxsplit", 0, 0},
    {"rsplit", split, "sep,maxsplit", 0, 1},
    {"splitlines", splitlines, "keepends", 0, 0},
    {"partition", partition, "sep", 1, 0},
    {"rpartition", partition, "sep", 1, 1},
    {"join", join, "iterable", 1, 0},
    {"ljust", pad, "width,fillchar", 1, PAD_RIGHT},
    {"rjust", pad, "width,fillchar", 1, PAD_LEFT},
    {"center", pad, "width,fillchar", 1, PAD_LEFT | PAD_RIGHT},
    {"zfill", pad, "width", 1, PAD_ZERO},
    {"isdigit", test_chars, "", 0, IS_DIGIT},
    {"isdecimal", test_chars, "", 0, IS_DIGIT},
    {"isnumeric", test_chars, "", 0, IS_DIGIT},
    {"isalpha", test_chars, "", 0, IS_ALPHA},
    {"isalnum", test_chars, "", 0, IS_ALNUM},
    {"isspace", test_chars, "", 0, IS_SPACE},
    {"isupper", test_chars, "", 0, IS_UPPER},
    {"islower", test_chars, "", 0, IS_LOWER},
    {"istitle", test_chars, "", 0, IS_TITLE},
    {"isascii", test_chars, "", 0, IS_ASCII},
    {"isidentifier", test_chars, "", 0, IS_IDENTIFIER},
    {"format", ae_jinja_str_format, "*", 0, 0},
    {"casefold", NULL, "*", 0, 0},
    {"encode", NULL, "*", 0, 0},
    {"expandtabs", NULL, "*", 0, 0},
    {"format_map", NULL, "*", 0, 0},
    {"isprintable", NULL, "*", 0, 0},
    {"maketrans", NULL, "*", 0, 0},
    {"translate", NULL, "*", 0, 0},
};

static const ae_jinja_entry dict_methods[] = {
    {"items", dict_view, "", 0, AE_ARRAY_ITEMS}, {"keys", dict_view, "", 0, AE_ARRAY_KEYS},
    {"values", dict_view, "", 0, AE_ARRAY_VALUES}, {"get", dict_get, "key,default", 1, 0},
    {"copy", dict_copy, "", 0, 0},               {"fromkeys", NULL, "*", 0, 0},
};

static const ae_jinja_entry list_methods[] = {
    {"count", list_count, "value", 1, 0},
    {"index", list_count, "value", 1, 1},
    {"copy", list_copy, "", 0, 0},
};

static const ae_jinja_entry list_changes[] = {
    {"append", list_insert, "value", 1, 0}, {"insert", list_insert, "index,value", 2, 1},
    {"extend", list_extend, "values", 1, 0}, {"pop", list_take, "index", 0, 0},
    {"remove", list_take, "value", 1, 1},   {"clear", list_turn, "", 0, 0},
    {"reverse", list_turn, "", 0, 1},
};

static const ae_jinja_entry loop_methods[] = {
    {"cycle", loop_cycle, "*", 0, 0},
    {"changed", loop_changed, "*", 0, 0},
};

static bool is_one_of(const ae_string *name, const char *const *names)
{
    for (; *names; names++)
        if (ae_string_is(name, *names)) return true;
    return false;
}

#define FIND_IN(table, name) ae_jinja_table_find(table, sizeof(table) / sizeof *(table), name)

const ae_jinja_entry *ae_jinja_method_find(ae_value self, const ae_string *name, bool *hidden)
{
    static const char *const dict_mutators[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    static const char *const list_mutators[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove",
                                                NULL};
    switch (self.kind) {
    case AE_VALUE_STRING: return FIND_IN(string_methods, name);
    case AE_VALUE_LOOP: return FIND_IN(loop_methods, name);
    case AE_VALUE_OBJECT:
        *hidden = is_one_of(name, dict_mutators);
        return FIND_IN(dict_methods, name);
    case AE_VALUE_ARRAY:
        if (self.as.array->kind > AE_ARRAY_RANGE && self.as.array->kind != AE_ARRAY_GROUP) return NULL;
        if (self.as.array->kind == AE_ARRAY_LIST && !self.as.array->is_data && FIND_IN(list_changes, name))
            return FIND_IN(list_changes, name);
        *hidden = self.as.array->kind == AE_ARRAY_LIST && is_one_of(name, list_mutators);
        return self.as.array->kind == AE_ARRAY_LIST ? FIND_IN(list_methods, name)
                                                    : ae_jinja_table_find(list_methods, 2, name);
    default: return NULL;
    }
}

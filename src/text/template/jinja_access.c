/* jinja_access.c - attributes, items, slices, iteration and length of values.
 *
 * Source of the semantics: jinja2's sandbox. a.b looks for an attribute (a method, say) and then
 * for the item "b"; a["b"] the other way round, so a missing key called "items" gives the method.
 */
#include "text/template/jinja_internal.h"

static aerie_status not_found(ae_jinja_run *r, ae_value object, const ae_string *name, bool unsafe, ae_value *out)
{
    ae_undefined *u = ae_value_alloc(&r->heap, 1, sizeof *u);
    if (!u) return ae_jinja_fail_heap(r);
    *u = (ae_undefined){.owner = ae_jinja_type_name(object), .name = name, .unsafe = unsafe};
    if (!name) u->owner = "an item that does not exist is used";
    *out = ae_value_undefined();
    out->as.undefined = u;
    return AERIE_OK;
}

static bool loop_attr(const ae_jinja_loop *loop, const ae_string *name, ae_value *out)
{
    static const char *const names[] = {"index", "index0", "revindex", "revindex0", "first", "last",
                                        "length", "depth", "depth0", "previtem", "nextitem"};
    size_t i = 0, n = sizeof names / sizeof *names;
    while (i < n && !ae_string_is(name, names[i])) i++;
    switch (i) {
    case 0: *out = ae_value_int((int64_t)loop->i + 1); break;
    case 1: *out = ae_value_int((int64_t)loop->i); break;
    case 2: *out = ae_value_int((int64_t)(loop->n - loop->i)); break;
    case 3: *out = ae_value_int((int64_t)(loop->n - loop->i) - 1); break;
    case 4: *out = ae_value_bool(loop->i == 0); break;
    case 5: *out = ae_value_bool(loop->i + 1 == loop->n); break;
    case 6: *out = ae_value_int((int64_t)loop->n); break;
    case 7: *out = ae_value_int(loop->depth0 + 1); break;
    case 8: *out = ae_value_int(loop->depth0); break;
    case 9: *out = loop->i > 0 ? loop->items[loop->i - 1] : ae_value_undefined(); break;
    case 10: *out = loop->i + 1 < loop->n ? loop->items[loop->i + 1] : ae_value_undefined(); break;
    default: return false;
    }
    return true;
}

/* Finds the attribute that Python's getattr would find. */
static aerie_status find_attr(ae_jinja_run *r, ae_value object, const ae_string *name, bool *found, ae_value *out)
{
    bool hidden = false;
    *found = true;
    if (object.kind == AE_VALUE_NAMESPACE) {
        ae_value *value = ae_object_find_string(object.as.object, name);
        *found = value != NULL;
        if (value) *out = *value;
        return AERIE_OK;
    }
    if (object.kind == AE_VALUE_LOOP && loop_attr(object.as.loop, name, out)) return AERIE_OK;
    if (object.kind == AE_VALUE_ARRAY && object.as.array->kind == AE_ARRAY_GROUP &&
        (ae_string_is(name, "grouper") || ae_string_is(name, "list"))) {
        *out = object.as.array->items[name->data[0] == 'l'];
        return AERIE_OK;
    }
    if (object.kind == AE_VALUE_CALLABLE && object.as.callable->macro && object.as.callable->macro->name &&
        ae_string_is(name, "name")) {
        *out = ae_value_of_string(object.as.callable->macro->name);
        return AERIE_OK;
    }
    const ae_jinja_entry *entry = ae_jinja_method_find(object, name, &hidden);
    if (hidden) return not_found(r, object, name, true, out);
    if (!entry) {
        *found = false;
        return AERIE_OK;
    }
    ae_jinja_callable *method = ae_value_alloc(&r->heap, 1, sizeof *method);
    if (!method) return ae_jinja_fail_heap(r);
    method->entry = entry;
    method->self = object;
    *out = (ae_value){.kind = AE_VALUE_CALLABLE, .as.callable = method};
    return AERIE_OK;
}

/* Finds the item that Python's object[key] would find; *found is false where that raises TypeError or LookupError. */
static aerie_status find_item(ae_jinja_run *r, ae_value object, ae_value key, bool *found, ae_value *out)
{
    int64_t i;
    *found = false;
    if (object.kind == AE_VALUE_OBJECT) {
        ae_value *value = ae_object_find(object.as.object, key);
        if (value) *out = *value;
        *found = value != NULL;
        return AERIE_OK;
    }
    bool is_array = object.kind == AE_VALUE_ARRAY && object.as.array->kind != AE_ARRAY_GENERATOR &&
                    object.as.array->kind != AE_ARRAY_KEYS && object.as.array->kind != AE_ARRAY_VALUES &&
                    object.as.array->kind != AE_ARRAY_ITEMS;
    if ((!is_array && object.kind != AE_VALUE_STRING) || !ae_jinja_to_int(key, &i)) return AERIE_OK;
    size_t n = is_array ? object.as.array->n : object.as.string->n_chars;
    if (i < 0) i += (int64_t)n;
    if (i < 0 || (size_t)i >= n) return AERIE_OK;
    *found = true;
    if (is_array) {
        *out = object.as.array->items[i];
        return AERIE_OK;
    }
    const ae_string *s = object.as.string;
    AE_JINJA_CHARGE(r, s->n == s->n_chars ? 0 : s->n / 256);
    size_t at = ae_jinja_char_offset(s, (size_t)i);
    uint32_t code;
    AE_TRY(ae_jinja_part(r, s, at, ae_utf8_decode(s->data + at, s->n - at, &code), out));
    out->safe = object.safe;
    return AERIE_OK;
}

aerie_status ae_jinja_get_attr(ae_jinja_run *r, ae_value object, const ae_string *name, ae_value *out)
{
    bool found;
    if (object.kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, object);
    AE_TRY(find_attr(r, object, name, &found, out));
    if (!found) AE_TRY(find_item(r, object, ae_value_of_string(name), &found, out));
    return found ? AERIE_OK : not_found(r, object, name, false, out);
}

aerie_status ae_jinja_get_item(ae_jinja_run *r, ae_value object, ae_value key, ae_value *out)
{
    bool found;
    if (object.kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, object);
    AE_TRY(find_item(r, object, key, &found, out));
    const ae_string *name = key.kind == AE_VALUE_STRING ? key.as.string : NULL;
    if (!found && name) AE_TRY(find_attr(r, object, name, &found, out));
    return found ? AERIE_OK : not_found(r, object, name, false, out);
}

size_t ae_jinja_char_offset(const ae_string *s, size_t i)
{
    if (s->n == s->n_chars) return i;
    if (i >= s->n_chars) return s->n;
    size_t at = 0;
    for (; i > 0; i--) {
        at++;
        while (at < s->n && ((unsigned char)s->data[at] & 0xC0) == 0x80) at++;
    }
    return at;
}

/* ---- Slices ----------------------------------------------------------------------------- */

static aerie_status slice_bound(ae_jinja_run *r, ae_value v, int64_t n, int64_t low, int64_t high, int64_t missing,
                                int64_t *out)
{
    int64_t i;
    if (v.kind == AE_VALUE_NONE) {
        *out = missing;
        return AERIE_OK;
    }
    if (!ae_jinja_to_int(v, &i)) {
        if (v.kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, v);
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a slice needs integers, not a '%s'", ae_jinja_type_name(v));
    }
    if (i < 0) i = i < -n ? low : i + n;
    *out = i < low ? low : i > high ? high : i;
    return AERIE_OK;
}

static aerie_status slice_string(ae_jinja_run *r, ae_value object, int64_t start, int64_t count, int64_t step, ae_value *out)
{
    const ae_string *s = object.as.string;
    AE_JINJA_CHARGE(r, s->n / 256);
    if (step == 1 || count == 0) {
        size_t from = count ? ae_jinja_char_offset(s, (size_t)start) : 0;
        size_t to = count ? ae_jinja_char_offset(s, (size_t)(start + count)) : 0;
        AE_TRY(ae_jinja_part(r, s, from, to - from, out));
        out->safe = object.safe;
        return AERIE_OK;
    }
    /* Offsets of all characters first: steps may go backwards. */
    size_t *offsets = ae_value_alloc(&r->heap, s->n_chars + 1, sizeof *offsets);
    if (!offsets) return ae_jinja_fail_heap(r);
    for (size_t i = 0, k = 0; i < s->n; i++)
        if (((unsigned char)s->data[i] & 0xC0) != 0x80) offsets[k++] = i;
    offsets[s->n_chars] = s->n;
    ae_jinja_text t = {0};
    for (int64_t k = 0, at = start; k < count; k++, at += step)
        AE_TRY(ae_jinja_text_part(r, &t, s, offsets[at], offsets[at + 1] - offsets[at]));
    AE_TRY(ae_jinja_text_value(r, &t, out));
    out->safe = object.safe;
    return AERIE_OK;
}

aerie_status ae_jinja_slice(ae_jinja_run *r, ae_value object, ae_value start_value, ae_value stop_value,
                            ae_value step_value, ae_value *out)
{
    int64_t step = 1, start = 0, stop = 0, n;
    if (object.kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, object);
    bool is_array = object.kind == AE_VALUE_ARRAY && object.as.array->kind <= AE_ARRAY_RANGE;
    if (!is_array && object.kind != AE_VALUE_STRING)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a '%s' cannot be sliced", ae_jinja_type_name(object));
    if (step_value.kind != AE_VALUE_NONE && !ae_jinja_to_int(step_value, &step))
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a slice needs integers, not a '%s'", ae_jinja_type_name(step_value));
    if (step == 0) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "the step of a slice must not be zero");
    n = (int64_t)(is_array ? object.as.array->n : object.as.string->n_chars);
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    AE_TRY(slice_bound(r, start_value, n, low, high, step > 0 ? 0 : n - 1, &start));
    AE_TRY(slice_bound(r, stop_value, n, low, high, step > 0 ? n : -1, &stop));
    /* Beyond the length one step more or less makes no difference, and cannot overflow. */
    if (step > n + 1) step = n + 1;
    if (step < -n - 1) step = -n - 1;
    int64_t count = step > 0 ? (stop > start ? (stop - start - 1) / step + 1 : 0)
                             : (start > stop ? (start - stop - 1) / -step + 1 : 0);
    if (!is_array) return slice_string(r, object, start, count, step, out);
    AE_JINJA_CHARGE(r, (size_t)count / 64);
    if (!ae_value_array(&r->heap, (ae_array_kind)object.as.array->kind, (size_t)count, out)) return ae_jinja_fail_heap(r);
    ae_array *part = out->as.array;
    for (int64_t k = 0, at = start; k < count; k++, at += step) part->items[k] = object.as.array->items[at];
    part->n = (size_t)count;
    if (part->kind == AE_ARRAY_RANGE) {
        const ae_array *range = object.as.array;
        part->start = range->start + start * range->step;
        part->stop = range->start + stop * range->step;
        part->step = range->step * step;
    }
    return AERIE_OK;
}

/* ---- Iteration -------------------------------------------------------------------------- */

static aerie_status string_items(ae_jinja_run *r, const ae_string *s, ae_value *out)
{
    AE_JINJA_CHARGE(r, s->n_chars);
    if (!ae_value_array(&r->heap, AE_ARRAY_LIST, s->n_chars, out)) return ae_jinja_fail_heap(r);
    for (size_t i = 0; i < s->n;) {
        uint32_t code;
        size_t n = ae_utf8_decode(s->data + i, s->n - i, &code);
        AE_TRY(ae_jinja_part(r, s, i, n, &out->as.array->items[out->as.array->n++]));
        i += n;
    }
    return AERIE_OK;
}

aerie_status ae_jinja_items(ae_jinja_run *r, ae_value v, bool fresh, ae_value *out)
{
    if (v.kind == AE_VALUE_STRING) return string_items(r, v.as.string, out);
    if (v.kind == AE_VALUE_UNDEFINED ||
        (v.kind == AE_VALUE_ARRAY && v.as.array->kind == AE_ARRAY_GENERATOR && v.as.array->walked))
        return ae_value_array(&r->heap, AE_ARRAY_LIST, 0, out) ? AERIE_OK : ae_jinja_fail_heap(r);
    if (v.kind == AE_VALUE_ARRAY) {
        ae_array *array = v.as.array;
        if (array->kind == AE_ARRAY_GENERATOR) array->walked = true;
        *out = v;
        if (!fresh && array->kind != AE_ARRAY_GENERATOR) return AERIE_OK;
        AE_JINJA_CHARGE(r, array->n / 64);
        if (!ae_value_array(&r->heap, AE_ARRAY_LIST, array->n, out)) return ae_jinja_fail_heap(r);
        if (array->n) memcpy(out->as.array->items, array->items, array->n * sizeof *array->items);
        out->as.array->n = array->n;
        return AERIE_OK;
    }
    if (v.kind == AE_VALUE_OBJECT) {
        const ae_object *object = v.as.object;
        AE_JINJA_CHARGE(r, object->n / 64);
        if (!ae_value_array(&r->heap, AE_ARRAY_LIST, object->n, out)) return ae_jinja_fail_heap(r);
        for (size_t i = 0; i < object->n; i++) out->as.array->items[i] = object->entries[i].key;
        out->as.array->n = object->n;
        return AERIE_OK;
    }
    return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a '%s' cannot be iterated over", ae_jinja_type_name(v));
}

aerie_status ae_jinja_length(ae_jinja_run *r, ae_value v, size_t *out)
{
    *out = 0;
    switch (v.kind) {
    case AE_VALUE_UNDEFINED: return AERIE_OK;
    case AE_VALUE_STRING: *out = v.as.string->n_chars; return AERIE_OK;
    case AE_VALUE_OBJECT: *out = v.as.object->n; return AERIE_OK;
    case AE_VALUE_LOOP: *out = v.as.loop->n; return AERIE_OK;
    case AE_VALUE_ARRAY:
        *out = v.as.array->n;
        if (v.as.array->kind != AE_ARRAY_GENERATOR) return AERIE_OK;
        break;
    default: break;
    }
    return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a '%s' has no length", ae_jinja_type_name(v));
}

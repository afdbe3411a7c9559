/* jinja_list_filter.c - filters over sequences and dicts.
 *
 * Source of the semantics: jinja2's filters. Those that are generators there are worked off at
 * once here, but their results keep the manners of a generator: true, without length, walked once.
 */
#include "text/template/jinja_internal.h"

static aerie_status new_array(ae_jinja_run *r, ae_array_kind kind, ae_value *out)
{
    return ae_value_array(&r->heap, kind, 0, out) ? AERIE_OK : ae_jinja_fail_heap(r);
}

static aerie_status add(ae_jinja_run *r, ae_value array, ae_value item)
{
    AE_JINJA_CHARGE(r, 1);
    return ae_value_array_add(&r->heap, array, item) ? AERIE_OK : ae_jinja_fail_heap(r);
}

/* "a.b.0" of an item: item["a"]["b"][0]. `path` none: the item itself. */
static aerie_status get_path(ae_jinja_run *r, ae_value item, ae_value path, ae_value fallback, ae_value *out)
{
    *out = item;
    if (path.kind == AE_VALUE_NONE || path.kind == AE_VALUE_UNDEFINED) return AERIE_OK;
    if (path.kind != AE_VALUE_STRING) {
        AE_TRY(ae_jinja_get_item(r, item, path, out));
    } else {
        const ae_string *s = path.as.string;
        for (size_t from = 0, to; from <= s->n; from = to + 1) {
            const char *dot = memchr(s->data + from, '.', s->n - from);
            ae_value key;
            int64_t index = 0;
            bool digits;
            to = dot ? (size_t)(dot - s->data) : s->n;
            digits = to > from && to - from < 18;
            for (size_t i = from; i < to && digits; i++) {
                digits = s->data[i] >= '0' && s->data[i] <= '9';
                index = index * 10 + (s->data[i] - '0');
            }
            AE_TRY(ae_jinja_string(r, s->data + from, to - from, &key));
            AE_TRY(ae_jinja_get_item(r, *out, digits ? ae_value_int(index) : key, out));
            if (out->kind == AE_VALUE_UNDEFINED && fallback.kind != AE_VALUE_UNDEFINED) *out = fallback;
        }
    }
    if (out->kind == AE_VALUE_UNDEFINED && fallback.kind != AE_VALUE_UNDEFINED) *out = fallback;
    return AERIE_OK;
}

/* Finds the key to sort or compare by; strings are in lower case unless `exact`. */
static aerie_status get_key(ae_jinja_run *r, ae_value item, ae_value path, bool exact, ae_value *out)
{
    static const ae_jinja_args no_args;
    AE_TRY(get_path(r, item, path, ae_value_undefined(), out));
    if (exact || out->kind != AE_VALUE_STRING) return AERIE_OK;
    bool hidden;
    const ae_string *lower = ae_string_new(&r->heap, "lower", 5);
    if (!lower) return ae_jinja_fail_heap(r);
    return ae_jinja_call_entry(r, ae_jinja_method_find(*out, lower, &hidden), *out, &no_args, out);
}

/* ---- Sorting: merge sort, since it must be stable and every comparison may fail ---------- */

typedef struct sortable {
    ae_value key, item;
} sortable;

static aerie_status merge(ae_jinja_run *r, sortable *a, size_t n, size_t half, sortable *scratch, bool reverse)
{
    memcpy(scratch, a, half * sizeof *a);
    size_t i = 0, j = half, k = 0;
    while (i < half && j < n) {
        int order;
        AE_TRY(ae_jinja_order(r, a[j].key, scratch[i].key, &order));
        bool take_right = reverse ? order == 1 : order == -1;
        if (take_right) a[k++] = a[j++];
        else a[k++] = scratch[i++];
    }
    while (i < half) a[k++] = scratch[i++];
    return AERIE_OK;
}

static aerie_status merge_sort(ae_jinja_run *r, sortable *a, size_t n, bool reverse)
{
    sortable *scratch = ae_value_alloc(&r->heap, n, sizeof *scratch);
    if (!scratch) return ae_jinja_fail_heap(r);
    for (size_t width = 1; width < n; width *= 2)
        for (size_t from = 0; from + width < n; from += 2 * width)
            AE_TRY(merge(r, a + from, n - from < 2 * width ? n - from : 2 * width, width, scratch, reverse));
    return AERIE_OK;
}

static aerie_status sort_items(ae_jinja_run *r, ae_value items, ae_value path, bool exact, bool reverse, sortable **out)
{
    size_t n = items.as.array->n;
    sortable *list = ae_value_alloc(&r->heap, n, sizeof *list);
    if (!list) return ae_jinja_fail_heap(r);
    for (size_t i = 0; i < n; i++) {
        list[i].item = items.as.array->items[i];
        AE_TRY(get_key(r, list[i].item, path, exact, &list[i].key));
    }
    *out = list;
    return merge_sort(r, list, n, reverse);
}

/* Makes the keys of `sort`: lists with one value for each of "a,b". So values that are equal need no order. */
static aerie_status list_key(ae_jinja_run *r, ae_value item, ae_value paths, bool exact, ae_value *out)
{
    ae_value path, key;
    AE_TRY(new_array(r, AE_ARRAY_LIST, out));
    if (paths.kind != AE_VALUE_STRING) {
        AE_TRY(get_key(r, item, paths, exact, &key));
        return add(r, *out, key);
    }
    const ae_string *s = paths.as.string;
    for (size_t from = 0, to; from <= s->n; from = to + 1) {
        const char *comma = memchr(s->data + from, ',', s->n - from);
        to = comma ? (size_t)(comma - s->data) : s->n;
        AE_TRY(ae_jinja_string(r, s->data + from, to - from, &path));
        AE_TRY(get_key(r, item, path, exact, &key));
        AE_TRY(add(r, *out, key));
    }
    return AERIE_OK;
}

/* sort(reverse=false, case_sensitive=false, attribute=none) */
static aerie_status sort(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value items;
    AE_TRY(ae_jinja_items(r, call->self, false, &items));
    size_t n = items.as.array->n;
    sortable *list = ae_value_alloc(&r->heap, n, sizeof *list);
    if (!list) return ae_jinja_fail_heap(r);
    for (size_t i = 0; i < n; i++) {
        list[i].item = items.as.array->items[i];
        AE_TRY(list_key(r, list[i].item, call->arg[2], ae_jinja_truth(call->arg[1]), &list[i].key));
    }
    AE_TRY(merge_sort(r, list, n, ae_jinja_truth(call->arg[0])));
    AE_TRY(new_array(r, AE_ARRAY_LIST, out));
    for (size_t i = 0; i < n; i++) AE_TRY(add(r, *out, list[i].item));
    return AERIE_OK;
}

/* dictsort(case_sensitive=false, by="key", reverse=false) */
static aerie_status dictsort(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_string *by = call->arg[1].kind == AE_VALUE_STRING ? call->arg[1].as.string : NULL;
    bool by_value = by && ae_string_is(by, "value");
    ae_value items;
    if (call->has[1] && !by_value && !(by && ae_string_is(by, "key")))
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "dictsort sorts by \"key\" or \"value\"");
    if (call->self.kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, call->self);
    if (call->self.kind != AE_VALUE_OBJECT)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "dictsort needs a dict, not a '%s'", ae_jinja_type_name(call->self));
    AE_TRY(new_array(r, AE_ARRAY_LIST, &items));
    const ae_object *object = call->self.as.object;
    for (size_t i = 0; i < object->n; i++) {
        ae_value pair;
        AE_TRY(new_array(r, AE_ARRAY_TUPLE, &pair));
        AE_TRY(add(r, pair, object->entries[i].key));
        AE_TRY(add(r, pair, object->entries[i].value));
        AE_TRY(add(r, items, pair));
    }
    sortable *list = NULL;
    AE_TRY(sort_items(r, items, ae_value_int(by_value), ae_jinja_truth(call->arg[0]), ae_jinja_truth(call->arg[2]), &list));
    AE_TRY(new_array(r, AE_ARRAY_LIST, out));
    for (size_t i = 0; i < items.as.array->n; i++) AE_TRY(add(r, *out, list[i].item));
    return AERIE_OK;
}

/* groupby(attribute, default=none, case_sensitive=false) */
static aerie_status groupby(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value items, group = ae_value_none();
    ae_value fallback = call->has[1] && call->arg[1].kind != AE_VALUE_NONE ? call->arg[1] : ae_value_undefined();
    bool exact = ae_jinja_truth(call->arg[2]);
    AE_TRY(ae_jinja_items(r, call->self, false, &items));
    size_t n = items.as.array->n;
    sortable *list = ae_value_alloc(&r->heap, n, sizeof *list);
    if (!list) return ae_jinja_fail_heap(r);
    for (size_t i = 0; i < n; i++) {
        list[i].item = items.as.array->items[i];
        AE_TRY(get_path(r, list[i].item, call->arg[0], fallback, &list[i].key));
        AE_TRY(get_key(r, list[i].key, ae_value_none(), exact, &list[i].key));
    }
    AE_TRY(merge_sort(r, list, n, false));
    AE_TRY(new_array(r, AE_ARRAY_LIST, out));
    for (size_t i = 0; i < n; i++) {
        bool same = false;
        if (i) AE_TRY(ae_jinja_equal(r, list[i - 1].key, list[i].key, &same));
        if (!same) {
            ae_value tuple, key;
            AE_TRY(new_array(r, AE_ARRAY_GROUP, &tuple));
            AE_TRY(new_array(r, AE_ARRAY_LIST, &group));
            AE_TRY(get_path(r, list[i].item, call->arg[0], fallback, &key));
            AE_TRY(add(r, tuple, key));
            AE_TRY(add(r, tuple, group));
            AE_TRY(add(r, *out, tuple));
        }
        AE_TRY(add(r, group, list[i].item));
    }
    return AERIE_OK;
}

/* ---- One value out of many -------------------------------------------------------------- */

/* first, last: detail 1 */
static aerie_status first(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value items;
    bool last = call->entry->detail;
    if (last && call->self.kind == AE_VALUE_ARRAY && call->self.as.array->kind == AE_ARRAY_GENERATOR)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a 'generator' has no last item: put 'list' in front");
    AE_TRY(ae_jinja_items(r, call->self, false, &items));
    const ae_array *array = items.as.array;
    if (array->n == 0) return ae_jinja_undefined(r, last ? "there is no last item" : "there is no first item", NULL, out);
    *out = array->items[last ? array->n - 1 : 0];
    return AERIE_OK;
}

/* min, max(case_sensitive=false, attribute=none): detail 1 */
static aerie_status least(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value items, best_key = ae_value_none(), key;
    AE_TRY(ae_jinja_items(r, call->self, false, &items));
    if (items.as.array->n == 0) return ae_jinja_undefined(r, "the sequence is empty", NULL, out);
    for (size_t i = 0; i < items.as.array->n; i++) {
        int order = call->entry->detail ? 1 : -1;
        AE_TRY(get_key(r, items.as.array->items[i], call->arg[1], ae_jinja_truth(call->arg[0]), &key));
        if (i) AE_TRY(ae_jinja_order(r, key, best_key, &order));
        if (order != (call->entry->detail ? 1 : -1)) continue;
        best_key = key;
        *out = items.as.array->items[i];
    }
    return AERIE_OK;
}

/* sum(attribute=none, start=0) */
static aerie_status sum(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value items, item, total = call->has[1] ? call->arg[1] : ae_value_int(0);
    if (total.kind == AE_VALUE_STRING) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "sum does not add strings: use join");
    AE_TRY(ae_jinja_items(r, call->self, false, &items));
    for (size_t i = 0; i < items.as.array->n; i++) {
        AE_TRY(get_path(r, items.as.array->items[i], call->arg[0], ae_value_undefined(), &item));
        AE_TRY(ae_jinja_binary(r, OP_ADD, total, item, &total));
    }
    *out = total;
    return AERIE_OK;
}

/* join(d="", attribute=none) */
static aerie_status join(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value items, item;
    ae_jinja_text t = {0};
    AE_TRY(ae_jinja_items(r, call->self, false, &items));
    for (size_t i = 0; i < items.as.array->n; i++) {
        AE_JINJA_CHARGE(r, 1);
        AE_TRY(get_path(r, items.as.array->items[i], call->arg[1], ae_value_undefined(), &item));
        if (i && call->has[0]) AE_TRY(ae_jinja_write_str(r, &t, call->arg[0]));
        AE_TRY(ae_jinja_write_str(r, &t, item));
    }
    return ae_jinja_text_value(r, &t, out);
}

/* ---- Sequences out of sequences --------------------------------------------------------- */

static aerie_status list(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    return ae_jinja_items(r, call->self, true, out);
}

static aerie_status items_of(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    AE_TRY(new_array(r, AE_ARRAY_GENERATOR, out));
    if (call->self.kind == AE_VALUE_UNDEFINED) return AERIE_OK;
    if (call->self.kind != AE_VALUE_OBJECT)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "items needs a dict, not a '%s'", ae_jinja_type_name(call->self));
    const ae_object *object = call->self.as.object;
    for (size_t i = 0; i < object->n; i++) {
        ae_value pair;
        AE_TRY(new_array(r, AE_ARRAY_TUPLE, &pair));
        AE_TRY(add(r, pair, object->entries[i].key));
        AE_TRY(add(r, pair, object->entries[i].value));
        AE_TRY(add(r, *out, pair));
    }
    return AERIE_OK;
}

static aerie_status reverse(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value items;
    if (call->self.kind == AE_VALUE_STRING)
        return ae_jinja_slice(r, call->self, ae_value_none(), ae_value_none(), ae_value_int(-1), out);
    AE_TRY(ae_jinja_items(r, call->self, true, &items));
    bool is_generator = call->self.kind == AE_VALUE_ARRAY && call->self.as.array->kind == AE_ARRAY_GENERATOR;
    AE_TRY(new_array(r, is_generator ? AE_ARRAY_LIST : AE_ARRAY_GENERATOR, out));
    for (size_t i = items.as.array->n; i-- > 0;) AE_TRY(add(r, *out, items.as.array->items[i]));
    return AERIE_OK;
}

/* unique(case_sensitive=false, attribute=none) */
static aerie_status unique(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value items, seen, key;
    bool seen_undefined = false;
    AE_TRY(ae_jinja_items(r, call->self, false, &items));
    AE_TRY(new_array(r, AE_ARRAY_GENERATOR, out));
    if (!ae_value_object(&r->heap, &seen)) return ae_jinja_fail_heap(r);
    for (size_t i = 0; i < items.as.array->n; i++) {
        AE_TRY(get_key(r, items.as.array->items[i], call->arg[1], ae_jinja_truth(call->arg[0]), &key));
        if (key.kind == AE_VALUE_UNDEFINED) { /* an undefined key equals other undefined keys, and nothing else */
            if (seen_undefined) continue;
            seen_undefined = true;
            AE_TRY(add(r, *out, items.as.array->items[i]));
            continue;
        }
        if (!ae_value_is_key(key))
            return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "unique does not compare values of type '%s'", ae_jinja_type_name(key));
        if (ae_object_find(seen.as.object, key)) continue;
        if (!ae_value_object_set(&r->heap, seen, key, ae_value_none())) return ae_jinja_fail_heap(r);
        AE_TRY(add(r, *out, items.as.array->items[i]));
    }
    return AERIE_OK;
}

/* batch(linecount, fill_with=none) */
static aerie_status batch(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value items, row = ae_value_none();
    int64_t width;
    if (!ae_jinja_to_int(call->arg[0], &width))
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "batch: the count must be an integer");
    AE_TRY(ae_jinja_items(r, call->self, false, &items));
    AE_TRY(new_array(r, AE_ARRAY_GENERATOR, out));
    for (size_t i = 0; i < items.as.array->n; i++) {
        if (row.kind != AE_VALUE_ARRAY || (int64_t)row.as.array->n == width) {
            AE_TRY(new_array(r, AE_ARRAY_LIST, &row));
            AE_TRY(add(r, *out, row));
        }
        AE_TRY(add(r, row, items.as.array->items[i]));
    }
    bool fill = call->has[1] && call->arg[1].kind != AE_VALUE_NONE && row.kind == AE_VALUE_ARRAY;
    while (fill && (int64_t)row.as.array->n < width) AE_TRY(add(r, row, call->arg[1]));
    return AERIE_OK;
}

/* slice(slices, fill_with=none) */
static aerie_status slice(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value items, part;
    int64_t n_slices;
    if (!ae_jinja_to_int(call->arg[0], &n_slices) || n_slices == 0)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "slice: the count must be an integer, not 0");
    AE_TRY(ae_jinja_items(r, call->self, false, &items));
    AE_TRY(new_array(r, AE_ARRAY_GENERATOR, out));
    int64_t n = (int64_t)items.as.array->n, at = 0;
    for (int64_t i = 0; i < n_slices; i++) {
        bool extra = i < n % n_slices;
        AE_TRY(new_array(r, AE_ARRAY_LIST, &part));
        for (int64_t end = at + n / n_slices + extra; at < end; at++) AE_TRY(add(r, part, items.as.array->items[at]));
        if (!extra && call->has[1] && call->arg[1].kind != AE_VALUE_NONE) AE_TRY(add(r, part, call->arg[1]));
        AE_TRY(add(r, *out, part));
    }
    return AERIE_OK;
}

/* Returns the value of a keyword argument, NULL if it is not given. */
static const ae_value *named(const ae_jinja_args *args, const char *name)
{
    for (size_t i = 0; i < args->n_named; i++)
        if (ae_string_is(args->names[i], name)) return &args->named[i];
    return NULL;
}

/* map(attribute=..., default=...) or map("filter", arguments...) */
static aerie_status map(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_jinja_args *args = call->args;
    const ae_value *path = named(args, "attribute"), *fallback = named(args, "default");
    const ae_jinja_entry *filter = NULL;
    ae_value items, item;
    AE_TRY(new_array(r, AE_ARRAY_GENERATOR, out));
    if (!ae_jinja_truth(call->self)) return AERIE_OK;
    if (args->n == 0 && (!path || args->n_named != (size_t)(fallback ? 2 : 1)))
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "map needs an attribute or the name of a filter");
    if (args->n) {
        if (args->items[0].kind == AE_VALUE_STRING) filter = ae_jinja_filter_find(args->items[0].as.string);
        if (!filter) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "map: there is no such filter");
    }
    ae_jinja_args rest = *args;
    rest.items = args->n ? args->items + 1 : NULL;
    rest.n = args->n ? args->n - 1 : 0;
    AE_TRY(ae_jinja_items(r, call->self, false, &items));
    AE_TRY(ae_jinja_descend(r));
    for (size_t i = 0; i < items.as.array->n; i++) {
        ae_value none = fallback && fallback->kind != AE_VALUE_NONE ? *fallback : ae_value_undefined();
        if (filter) AE_TRY(ae_jinja_call_entry(r, filter, items.as.array->items[i], &rest, &item));
        else AE_TRY(get_path(r, items.as.array->items[i], *path, none, &item));
        AE_TRY(add(r, *out, item));
    }
    r->depth--;
    return AERIE_OK;
}

enum { KEEP = 0, DROP = 1, BY_ATTRIBUTE = 2 };

/* select, reject, selectattr, rejectattr */
static aerie_status choose(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_jinja_args *args = call->args;
    const ae_jinja_entry *test = NULL;
    ae_value items, item, holds;
    size_t skip = call->entry->detail & BY_ATTRIBUTE ? 1 : 0;
    AE_TRY(new_array(r, AE_ARRAY_GENERATOR, out));
    if (!ae_jinja_truth(call->self)) return AERIE_OK;
    if (args->n < skip) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%s' needs the name of an attribute", call->entry->name);
    if (args->n > skip) {
        if (args->items[skip].kind == AE_VALUE_STRING) test = ae_jinja_test_find(args->items[skip].as.string);
        if (!test) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%s': there is no such test", call->entry->name);
    }
    ae_jinja_args rest = *args;
    rest.items = test ? args->items + skip + 1 : NULL;
    rest.n = test ? args->n - skip - 1 : 0;
    AE_TRY(ae_jinja_items(r, call->self, false, &items));
    for (size_t i = 0; i < items.as.array->n; i++) {
        AE_TRY(get_path(r, items.as.array->items[i], skip ? args->items[0] : ae_value_none(), ae_value_undefined(), &item));
        holds = item;
        if (test) AE_TRY(ae_jinja_call_entry(r, test, item, &rest, &holds));
        if (ae_jinja_truth(holds) != (bool)(call->entry->detail & DROP)) AE_TRY(add(r, *out, items.as.array->items[i]));
    }
    return AERIE_OK;
}

static const ae_jinja_entry filters[] = {
    {"batch", batch, "linecount,fill_with", 1, 0},
    {"dictsort", dictsort, "case_sensitive,by,reverse", 0, 0},
    {"first", first, "", 0, 0},
    {"groupby", groupby, "attribute,default,case_sensitive", 1, 0},
    {"items", items_of, "", 0, 0},
    {"join", join, "d,attribute", 0, 0},
    {"last", first, "", 0, 1},
    {"list", list, "", 0, 0},
    {"map", map, "*", 0, 0},
    {"max", least, "case_sensitive,attribute", 0, 1},
    {"min", least, "case_sensitive,attribute", 0, 0},
    {"reject", choose, "*", 0, DROP},
    {"rejectattr", choose, "*", 0, DROP | BY_ATTRIBUTE},
    {"reverse", reverse, "", 0, 0},
    {"select", choose, "*", 0, KEEP},
    {"selectattr", choose, "*", 0, KEEP | BY_ATTRIBUTE},
    {"slice", slice, "slices,fill_with", 1, 0},
    {"sort", sort, "reverse,case_sensitive,attribute", 0, 0},
    {"sum", sum, "attribute,start", 0, 0},
    {"unique", unique, "case_sensitive,attribute", 0, 0},
};

const ae_jinja_entry *ae_jinja_list_filter_find(const ae_string *name)
{
    return ae_jinja_table_find(filters, sizeof filters / sizeof *filters, name);
}

/* jinja_builtin.c - tests (`is ...`) and global functions.
 *
 * Source of the semantics: jinja2's tests and sandbox, and the two functions that model makers
 * count on: raise_exception and strftime_now.
 */
#include "text/template/jinja_internal.h"

const ae_jinja_entry *ae_jinja_table_find(const ae_jinja_entry *table, size_t n, const ae_string *name)
{
    for (size_t i = 0; i < n; i++)
        if (ae_string_is(name, table[i].name)) return &table[i];
    return NULL;
}

/* ---- Tests ------------------------------------------------------------------------------ */

enum {
    IS_DEFINED, IS_UNDEFINED, IS_NONE, IS_STRING, IS_MAPPING, IS_SEQUENCE, IS_ITERABLE, IS_NUMBER, IS_INTEGER, IS_FLOAT,
    IS_BOOLEAN, IS_TRUE, IS_FALSE, IS_CALLABLE, IS_ESCAPED
};

static bool is_sequence(ae_value v)
{
    if (v.kind == AE_VALUE_ARRAY) return v.as.array->kind <= AE_ARRAY_RANGE || v.as.array->kind == AE_ARRAY_GROUP;
    return v.kind == AE_VALUE_STRING || v.kind == AE_VALUE_OBJECT || v.kind == AE_VALUE_UNDEFINED;
}

static aerie_status is_kind(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value v = call->self;
    bool holds = false;
    (void)r;
    switch (call->entry->detail) {
    case IS_DEFINED: holds = v.kind != AE_VALUE_UNDEFINED; break;
    case IS_UNDEFINED: holds = v.kind == AE_VALUE_UNDEFINED; break;
    case IS_NONE: holds = v.kind == AE_VALUE_NONE; break;
    case IS_STRING: holds = v.kind == AE_VALUE_STRING; break;
    case IS_MAPPING: holds = v.kind == AE_VALUE_OBJECT; break;
    case IS_SEQUENCE: holds = is_sequence(v); break;
    case IS_ITERABLE: holds = is_sequence(v) || v.kind == AE_VALUE_ARRAY || v.kind == AE_VALUE_LOOP; break;
    case IS_NUMBER: holds = ae_jinja_is_number(v); break;
    case IS_INTEGER: holds = v.kind == AE_VALUE_INT; break;
    case IS_FLOAT: holds = v.kind == AE_VALUE_DOUBLE; break;
    case IS_BOOLEAN: holds = v.kind == AE_VALUE_BOOL; break;
    case IS_TRUE: holds = v.kind == AE_VALUE_BOOL && v.as.boolean; break;
    case IS_FALSE: holds = v.kind == AE_VALUE_BOOL && !v.as.boolean; break;
    case IS_CALLABLE: holds = v.kind == AE_VALUE_CALLABLE || v.kind == AE_VALUE_LOOP || v.kind == AE_VALUE_UNDEFINED; break;
    case IS_ESCAPED: holds = v.kind == AE_VALUE_STRING && v.safe; break;
    }
    *out = ae_value_bool(holds);
    return AERIE_OK;
}

static aerie_status compares(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    bool holds;
    AE_TRY(ae_jinja_compare(r, (ae_jinja_op)call->entry->detail, call->self, call->arg[0], &holds));
    *out = ae_value_bool(holds);
    return AERIE_OK;
}

/* odd, even, divisibleby: detail 2 takes the divisor from the argument */
static aerie_status divides(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value divisor = call->entry->detail == 2 ? call->arg[0] : ae_value_int(2), rest;
    if (call->self.kind == AE_VALUE_STRING)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%s' needs a number", call->entry->name);
    AE_TRY(ae_jinja_binary(r, OP_MOD, call->self, divisor, &rest));
    AE_TRY(ae_jinja_compare(r, OP_EQ, rest, ae_value_int(call->entry->detail == 1), &rest.as.boolean));
    *out = ae_value_bool(rest.as.boolean);
    return AERIE_OK;
}

static aerie_status same_as(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value a = call->self, b = call->arg[0];
    bool same = a.kind == b.kind;
    if (a.kind >= AE_VALUE_ARRAY) same = same && a.as.array == b.as.array;
    else if (same) AE_TRY(ae_jinja_equal(r, a, b, &same));
    *out = ae_value_bool(same);
    return AERIE_OK;
}

/* lower, upper: str(value).islower() */
static aerie_status has_case(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    static const ae_jinja_args no_args;
    ae_value text, name;
    bool hidden;
    AE_TRY(ae_jinja_str(r, call->self, &text));
    AE_TRY(ae_jinja_string(r, call->entry->detail ? "isupper" : "islower", 7, &name));
    return ae_jinja_call_entry(r, ae_jinja_method_find(text, name.as.string, &hidden), text, &no_args, out);
}

/* filter, test: whether one of this name exists */
static aerie_status exists(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    (void)r;
    const ae_string *name = call->self.kind == AE_VALUE_STRING ? call->self.as.string : NULL;
    const ae_jinja_entry *entry = name ? (call->entry->detail ? ae_jinja_test_find(name) : ae_jinja_filter_find(name)) : NULL;
    *out = ae_value_bool(entry && entry->function);
    return AERIE_OK;
}

static const ae_jinja_entry tests[] = {
    {"defined", is_kind, "", 0, IS_DEFINED},   {"undefined", is_kind, "", 0, IS_UNDEFINED},
    {"none", is_kind, "", 0, IS_NONE},         {"string", is_kind, "", 0, IS_STRING},
    {"mapping", is_kind, "", 0, IS_MAPPING},   {"sequence", is_kind, "", 0, IS_SEQUENCE},
    {"iterable", is_kind, "", 0, IS_ITERABLE}, {"number", is_kind, "", 0, IS_NUMBER},
    {"integer", is_kind, "", 0, IS_INTEGER},   {"float", is_kind, "", 0, IS_FLOAT},
    {"boolean", is_kind, "", 0, IS_BOOLEAN},   {"true", is_kind, "", 0, IS_TRUE},
    {"false", is_kind, "", 0, IS_FALSE},       {"callable", is_kind, "", 0, IS_CALLABLE},
    {"escaped", is_kind, "", 0, IS_ESCAPED},   {"odd", divides, "", 0, 1},
    {"even", divides, "", 0, 0},               {"divisibleby", divides, "num", 1, 2},
    {"equalto", compares, "other", 1, OP_EQ},  {"eq", compares, "other", 1, OP_EQ},
    {"==", compares, "other", 1, OP_EQ},       {"ne", compares, "other", 1, OP_NE},
    {"!=", compares, "other", 1, OP_NE},       {"lt", compares, "other", 1, OP_LT},
    {"lessthan", compares, "other", 1, OP_LT}, {"<", compares, "other", 1, OP_LT},
    {"le", compares, "other", 1, OP_LE},       {"<=", compares, "other", 1, OP_LE},
    {"gt", compares, "other", 1, OP_GT},       {"greaterthan", compares, "other", 1, OP_GT},
    {">", compares, "other", 1, OP_GT},        {"ge", compares, "other", 1, OP_GE},
    {">=", compares, "other", 1, OP_GE},       {"in", compares, "seq", 1, OP_IN},
    {"sameas", same_as, "other", 1, 0},        {"lower", has_case, "", 0, 0},
    {"upper", has_case, "", 0, 1},             {"filter", exists, "", 0, 0},
    {"test", exists, "", 0, 1},
};

const ae_jinja_entry *ae_jinja_test_find(const ae_string *name)
{
    return ae_jinja_table_find(tests, sizeof tests / sizeof *tests, name);
}

/* ---- Globals ---------------------------------------------------------------------------- */

static aerie_status raise_exception(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    ae_value text;
    (void)out;
    AE_TRY(ae_jinja_str(r, call->arg[0], &text));
    /* The template's own words; cut at a character, since the record is short. */
    size_t n = 0;
    for (size_t length; n < text.as.string->n && text.as.string->data[n]; n += length) {
        length = ae_utf8_valid(text.as.string->data + n, text.as.string->n - n);
        if (n + length > 480) break;
    }
    return ae_fail(r->error, AERIE_ERROR_FORMAT, "%.*s", (int)n, text.as.string->data);
}

static aerie_status range(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    int64_t bound[3] = {0, 0, 1};
    for (size_t i = 0; i < 3 && call->has[i]; i++)
        if (!ae_jinja_to_int(call->arg[i], &bound[i])) {
            if (call->arg[i].kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, call->arg[i]);
            return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "range needs integers, not a '%s'", ae_jinja_type_name(call->arg[i]));
        }
    if (!call->has[1]) {
        bound[1] = bound[0];
        bound[0] = 0;
    }
    if (bound[2] == 0) return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "range: the step must not be zero");
    bool up = bound[2] > 0, some = up ? bound[1] > bound[0] : bound[1] < bound[0];
    uint64_t span = up ? (uint64_t)bound[1] - (uint64_t)bound[0] : (uint64_t)bound[0] - (uint64_t)bound[1];
    uint64_t step = up ? (uint64_t)bound[2] : 0 - (uint64_t)bound[2], n = some ? (span - 1) / step + 1 : 0;
    if (n > AE_JINJA_MAX_RANGE)
        return ae_jinja_fail(r, AERIE_ERROR_LIMIT, "range gives more than %d numbers", AE_JINJA_MAX_RANGE);
    AE_JINJA_CHARGE(r, n / 16);
    if (!ae_value_array(&r->heap, AE_ARRAY_RANGE, n, out)) return ae_jinja_fail_heap(r);
    ae_array *array = out->as.array;
    array->start = bound[0];
    array->stop = bound[1];
    array->step = bound[2];
    array->n = n;
    for (uint64_t i = 0; i < n; i++) array->items[i] = ae_value_int((int64_t)((uint64_t)bound[0] + i * (uint64_t)bound[2]));
    return AERIE_OK;
}

/* dict(a=1), dict(other, a=1), dict([["a", 1]]); namespace likewise: detail 1 */
static aerie_status make_dict(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out)
{
    const ae_jinja_args *args = call->args;
    if (!ae_value_object(&r->heap, out)) return ae_jinja_fail_heap(r);
    if (args->n > 1)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%s' takes at most one argument without a name", call->entry->name);
    if (args->n && args->items[0].kind == AE_VALUE_OBJECT) {
        const ae_object *from = args->items[0].as.object;
        AE_JINJA_CHARGE(r, from->n);
        for (size_t i = 0; i < from->n; i++)
            if (!ae_value_object_set(&r->heap, *out, from->entries[i].key, from->entries[i].value))
                return ae_jinja_fail_heap(r);
    } else if (args->n) {
        ae_value pairs, pair;
        AE_TRY(ae_jinja_items(r, args->items[0], false, &pairs));
        for (size_t i = 0; i < pairs.as.array->n; i++) {
            AE_JINJA_CHARGE(r, 1);
            AE_TRY(ae_jinja_items(r, pairs.as.array->items[i], false, &pair));
            if (pair.as.array->n != 2 || !ae_value_is_key(pair.as.array->items[0]))
                return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%s' needs pairs of a key and a value", call->entry->name);
            if (!ae_value_object_set(&r->heap, *out, pair.as.array->items[0], pair.as.array->items[1]))
                return ae_jinja_fail_heap(r);
        }
    }
    for (size_t i = 0; i < args->n_named; i++)
        if (!ae_value_object_set(&r->heap, *out, ae_value_of_string(args->names[i]), args->named[i]))
            return ae_jinja_fail_heap(r);
    if (call->entry->detail) out->kind = AE_VALUE_NAMESPACE;
    return AERIE_OK;
}

static const ae_jinja_entry globals[] = {
    {"range", range, "start,stop,step", 1, 0},
    {"dict", make_dict, "*", 0, 0},
    {"namespace", make_dict, "*", 0, 1},
    {"raise_exception", raise_exception, "message", 1, 0},
    {"strftime_now", ae_jinja_strftime, "format", 1, 0},
    {"cycler", NULL, "*", 0, 0},
    {"joiner", NULL, "*", 0, 0},
    {"lipsum", NULL, "*", 0, 0},
};

const ae_jinja_entry *ae_jinja_global_find(const ae_string *name)
{
    return ae_jinja_table_find(globals, sizeof globals / sizeof *globals, name);
}

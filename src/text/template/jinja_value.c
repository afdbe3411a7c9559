/* jinja_value.c - evaluates expressions and calls what they call.
 *
 * Owns: looking up names, short circuits, arguments. What an operator does is in jinja_ops.c.
 * Invariant: every level of nesting passes through ae_jinja_eval, which counts depth and steps.
 */
#include "text/template/jinja_internal.h"

static aerie_status eval_name(ae_jinja_run *r, const ae_jinja_node *node, ae_value *out)
{
    for (const ae_jinja_scope *scope = r->scope; scope; scope = scope->parent) {
        for (const ae_jinja_binding *b = scope->first; b; b = b->next) {
            if (!ae_string_equal(b->name, node->name)) continue;
            *out = b->value;
            return AERIE_OK;
        }
    }
    const ae_value *value = ae_object_find_string(r->root.as.object, node->name);
    if (value) {
        *out = *value;
        return AERIE_OK;
    }
    const ae_jinja_entry *entry = ae_jinja_global_find(node->name);
    if (!entry) return ae_jinja_undefined(r, NULL, node->name, out);
    ae_jinja_callable *global = ae_value_alloc(&r->heap, 1, sizeof *global);
    if (!global) return ae_jinja_fail_heap(r);
    global->entry = entry;
    *out = (ae_value){.kind = AE_VALUE_CALLABLE, .as.callable = global};
    return AERIE_OK;
}

static aerie_status eval_array(ae_jinja_run *r, const ae_jinja_node *node, ae_value *out)
{
    ae_value array, item;
    if (!ae_value_array(&r->heap, node->type == NODE_TUPLE ? AE_ARRAY_TUPLE : AE_ARRAY_LIST, 0, &array))
        return ae_jinja_fail_heap(r);
    for (const ae_jinja_node *n = node->a; n; n = n->next) {
        AE_TRY(ae_jinja_eval(r, n, &item));
        if (!ae_value_array_add(&r->heap, array, item)) return ae_jinja_fail_heap(r);
    }
    *out = array;
    return AERIE_OK;
}

static aerie_status eval_dict(ae_jinja_run *r, const ae_jinja_node *node, ae_value *out)
{
    ae_value object, key, value;
    if (!ae_value_object(&r->heap, &object)) return ae_jinja_fail_heap(r);
    for (const ae_jinja_node *pair = node->a; pair; pair = pair->next) {
        AE_TRY(ae_jinja_eval(r, pair->a, &key));
        AE_TRY(ae_jinja_eval(r, pair->b, &value));
        if (!ae_value_is_key(key))
            return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a '%s' cannot be a key", ae_jinja_type_name(key));
        if (!ae_value_object_set(&r->heap, object, key, value)) return ae_jinja_fail_heap(r);
    }
    *out = object;
    return AERIE_OK;
}

static aerie_status eval_cond(ae_jinja_run *r, const ae_jinja_node *node, ae_value *out)
{
    ae_value test;
    AE_TRY(ae_jinja_eval(r, node->a, &test));
    if (ae_jinja_truth(test)) return ae_jinja_eval(r, node->b, out);
    if (node->c) return ae_jinja_eval(r, node->c, out);
    return ae_jinja_undefined(r, "an inline 'if' without 'else' did not hold", NULL, out);
}

static aerie_status eval_compare(ae_jinja_run *r, const ae_jinja_node *node, ae_value *out)
{
    ae_value left, right;
    bool holds = true;
    AE_TRY(ae_jinja_eval(r, node->a, &left));
    for (const ae_jinja_node *operand = node->b; operand && holds; operand = operand->next) {
        AE_TRY(ae_jinja_eval(r, operand->a, &right));
        AE_TRY(ae_jinja_compare(r, (ae_jinja_op)operand->op, left, right, &holds));
        left = right;
    }
    *out = ae_value_bool(holds);
    return AERIE_OK;
}

static aerie_status eval_concat(ae_jinja_run *r, const ae_jinja_node *node, ae_value *out)
{
    ae_jinja_text text = {0};
    for (const ae_jinja_node *n = node->a; n; n = n->next) {
        ae_value value;
        AE_TRY(ae_jinja_eval(r, n, &value));
        AE_TRY(ae_jinja_write_str(r, &text, value));
    }
    return ae_jinja_text_value(r, &text, out);
}

static aerie_status eval_bound(ae_jinja_run *r, const ae_jinja_node *node, ae_value *out)
{
    *out = ae_value_none();
    return node ? ae_jinja_eval(r, node, out) : AERIE_OK;
}

static aerie_status eval_item(ae_jinja_run *r, const ae_jinja_node *node, ae_value *out)
{
    ae_value object, key, stop, step;
    AE_TRY(ae_jinja_eval(r, node->a, &object));
    if (node->b->type != NODE_SLICE) {
        AE_TRY(ae_jinja_eval(r, node->b, &key));
        r->place = node->place;
        return ae_jinja_get_item(r, object, key, out);
    }
    AE_TRY(eval_bound(r, node->b->a, &key));
    AE_TRY(eval_bound(r, node->b->b, &stop));
    AE_TRY(eval_bound(r, node->b->c, &step));
    r->place = node->place;
    return ae_jinja_slice(r, object, key, stop, step, out);
}

/* ---- Calls ------------------------------------------------------------------------------ */

static aerie_status add_star(ae_jinja_run *r, ae_value list, ae_value value)
{
    ae_value items;
    if (value.kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, value);
    AE_TRY(ae_jinja_items(r, value, false, &items));
    AE_JINJA_CHARGE(r, items.as.array->n);
    for (size_t i = 0; i < items.as.array->n; i++)
        if (!ae_value_array_add(&r->heap, list, items.as.array->items[i])) return ae_jinja_fail_heap(r);
    return AERIE_OK;
}

static aerie_status add_named(ae_jinja_run *r, ae_value named, ae_value name, ae_value value)
{
    if (name.kind != AE_VALUE_STRING || ae_object_find(named.as.object, name))
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a keyword argument is given twice or is not a name");
    return ae_value_object_set(&r->heap, named, name, value) ? AERIE_OK : ae_jinja_fail_heap(r);
}

static aerie_status add_star_star(ae_jinja_run *r, ae_value named, ae_value value)
{
    if (value.kind != AE_VALUE_OBJECT)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'**' needs a dict, not a '%s'", ae_jinja_type_name(value));
    AE_JINJA_CHARGE(r, value.as.object->n);
    for (size_t i = 0; i < value.as.object->n; i++)
        AE_TRY(add_named(r, named, value.as.object->entries[i].key, value.as.object->entries[i].value));
    return AERIE_OK;
}

aerie_status ae_jinja_eval_args(ae_jinja_run *r, const ae_jinja_node *list, ae_jinja_args *out)
{
    ae_value plain, named, value;
    *out = (ae_jinja_args){0};
    if (!list) return AERIE_OK;
    if (!ae_value_array(&r->heap, AE_ARRAY_LIST, 0, &plain) || !ae_value_object(&r->heap, &named)) return ae_jinja_fail_heap(r);
    for (const ae_jinja_node *arg = list; arg; arg = arg->next) {
        AE_TRY(ae_jinja_eval(r, arg->a, &value));
        switch (arg->op) {
        case ARG_PLAIN:
            if (!ae_value_array_add(&r->heap, plain, value)) return ae_jinja_fail_heap(r);
            break;
        case ARG_KEYWORD: AE_TRY(add_named(r, named, ae_value_of_string(arg->name), value)); break;
        case ARG_STAR: AE_TRY(add_star(r, plain, value)); break;
        default: AE_TRY(add_star_star(r, named, value)); break;
        }
    }
    out->items = plain.as.array->items;
    out->n = plain.as.array->n;
    out->n_named = named.as.object->n;
    if (out->n_named == 0) return AERIE_OK;
    out->names = ae_value_alloc(&r->heap, out->n_named, sizeof *out->names);
    out->named = ae_value_alloc(&r->heap, out->n_named, sizeof *out->named);
    if (!out->names || !out->named) return ae_jinja_fail_heap(r);
    for (size_t i = 0; i < out->n_named; i++) {
        out->names[i] = named.as.object->entries[i].key.as.string;
        out->named[i] = named.as.object->entries[i].value;
    }
    return AERIE_OK;
}

/* Returns the position of a name in "a,b,c", or AE_JINJA_MAX_ARGS; *n: the number of names. */
static size_t find_param(const char *params, const ae_string *name, size_t *n)
{
    size_t found = AE_JINJA_MAX_ARGS;
    *n = 0;
    for (const char *p = params; *p; *n += 1) {
        size_t length = strcspn(p, ",");
        if (name && name->n == length && memcmp(name->data, p, length) == 0) found = *n;
        p += length;
        if (*p) p++;
    }
    return found;
}

aerie_status ae_jinja_call_entry(ae_jinja_run *r, const ae_jinja_entry *entry, ae_value self, const ae_jinja_args *args,
                                 ae_value *out)
{
    ae_jinja_call call = {.entry = entry, .self = self, .args = args};
    size_t n_params;
    if (!entry->function) return ae_jinja_fail(r, AERIE_ERROR_UNSUPPORTED, "'%s' is not offered", entry->name);
    if (entry->params[0] == '*') return entry->function(r, &call, out);
    find_param(entry->params, NULL, &n_params);
    if (args->n > n_params)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%s' takes at most %zu arguments, not %zu", entry->name, n_params,
                             args->n);
    for (size_t i = 0; i < args->n; i++) {
        call.arg[i] = args->items[i];
        call.has[i] = true;
    }
    for (size_t i = 0; i < args->n_named; i++) {
        size_t at = find_param(entry->params, args->names[i], &n_params);
        if (at >= AE_JINJA_MAX_ARGS || call.has[at])
            return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%s' has no argument '%.80s' here", entry->name,
                                 args->names[i]->data);
        call.arg[at] = args->named[i];
        call.has[at] = true;
    }
    for (size_t i = 0; i < entry->n_required; i++)
        if (!call.has[i])
            return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%s' needs at least %d arguments", entry->name, entry->n_required);
    return entry->function(r, &call, out);
}

/* loop(items) in a recursive loop */
static aerie_status call_loop(ae_jinja_run *r, const ae_jinja_loop *loop, const ae_jinja_args *args, ae_value *out)
{
    if (!loop->node || args->n != 1 || args->n_named)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "only the loop of a 'recursive' for can be called, with one argument");
    ae_jinja_text text = {0}, *output = r->output;
    ae_jinja_scope *scope = r->scope;
    ae_jinja_place place = r->place;
    AE_TRY(ae_jinja_descend(r));
    r->output = &text;
    r->scope = loop->scope;
    AE_TRY(ae_jinja_run_loop(r, loop->node, args->items[0], loop->depth0 + 1));
    r->scope = scope;
    r->output = output;
    r->place = place;
    r->depth--;
    return ae_jinja_text_value(r, &text, out);
}

aerie_status ae_jinja_call_value(ae_jinja_run *r, ae_value callee, const ae_jinja_args *args, ae_value *out)
{
    if (callee.kind == AE_VALUE_UNDEFINED) return ae_jinja_fail_undefined(r, callee);
    if (callee.kind == AE_VALUE_LOOP) return call_loop(r, callee.as.loop, args, out);
    if (callee.kind != AE_VALUE_CALLABLE)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "a '%s' cannot be called", ae_jinja_type_name(callee));
    const ae_jinja_callable *callable = callee.as.callable;
    if (callable->macro) return ae_jinja_call_macro(r, callable, args, out);
    return ae_jinja_call_entry(r, callable->entry, callable->self, args, out);
}

static aerie_status eval_call(ae_jinja_run *r, const ae_jinja_node *node, ae_value *out)
{
    ae_value callee;
    ae_jinja_args args;
    AE_TRY(ae_jinja_eval(r, node->a, &callee));
    AE_TRY(ae_jinja_eval_args(r, node->b, &args));
    r->place = node->place;
    return ae_jinja_call_value(r, callee, &args, out);
}

static aerie_status call_filter(ae_jinja_run *r, const ae_jinja_node *node, ae_value input, ae_value *out)
{
    ae_jinja_args args;
    if (!node->entry)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "there is no %s called '%.80s'",
                             node->type == NODE_FILTER ? "filter" : "test", node->name->data);
    AE_TRY(ae_jinja_eval_args(r, node->b, &args));
    r->place = node->place;
    return ae_jinja_call_entry(r, node->entry, input, &args, out);
}

static aerie_status eval_filter(ae_jinja_run *r, const ae_jinja_node *node, ae_value *out)
{
    ae_value input;
    AE_TRY(ae_jinja_eval(r, node->a, &input));
    return call_filter(r, node, input, out);
}

/* The innermost filter of the chain has no input node: it gets `input`. */
aerie_status ae_jinja_apply_filters(ae_jinja_run *r, const ae_jinja_node *filter, ae_value input, ae_value *out)
{
    AE_TRY(ae_jinja_descend(r));
    if (filter->a) AE_TRY(ae_jinja_apply_filters(r, filter->a, input, &input));
    AE_TRY(call_filter(r, filter, input, out));
    r->depth--;
    return AERIE_OK;
}

/* ---- Expressions ------------------------------------------------------------------------ */

static aerie_status eval_two(ae_jinja_run *r, const ae_jinja_node *node, ae_value *out)
{
    ae_value a, b;
    AE_TRY(ae_jinja_eval(r, node->a, &a));
    if (node->type == NODE_OR || node->type == NODE_AND) {
        if (ae_jinja_truth(a) == (node->type == NODE_AND)) return ae_jinja_eval(r, node->b, out);
        *out = a;
        return AERIE_OK;
    }
    AE_TRY(ae_jinja_eval(r, node->b, &b));
    r->place = node->place;
    return ae_jinja_binary(r, (ae_jinja_op)node->op, a, b, out);
}

static aerie_status eval_one(ae_jinja_run *r, const ae_jinja_node *node, ae_value *out)
{
    ae_value a;
    AE_TRY(ae_jinja_eval(r, node->a, &a));
    r->place = node->place;
    switch (node->type) {
    case NODE_NOT: *out = ae_value_bool(!ae_jinja_truth(a)); return AERIE_OK;
    case NODE_ATTR: return ae_jinja_get_attr(r, a, node->name, out);
    default: return ae_jinja_negate(r, a, node->type == NODE_NEGATE, out);
    }
}

static aerie_status eval_node(ae_jinja_run *r, const ae_jinja_node *node, ae_value *out)
{
    switch (node->type) {
    case NODE_CONST: *out = node->value; return AERIE_OK;
    case NODE_NAME: return eval_name(r, node, out);
    case NODE_TUPLE:
    case NODE_LIST: return eval_array(r, node, out);
    case NODE_DICT: return eval_dict(r, node, out);
    case NODE_COND: return eval_cond(r, node, out);
    case NODE_OR:
    case NODE_AND:
    case NODE_BINARY: return eval_two(r, node, out);
    case NODE_NOT:
    case NODE_NEGATE:
    case NODE_PLUS:
    case NODE_ATTR: return eval_one(r, node, out);
    case NODE_COMPARE: return eval_compare(r, node, out);
    case NODE_CONCAT: return eval_concat(r, node, out);
    case NODE_ITEM: return eval_item(r, node, out);
    case NODE_CALL: return eval_call(r, node, out);
    case NODE_FILTER:
    case NODE_TEST: return eval_filter(r, node, out);
    default: return ae_jinja_fail(r, AERIE_ERROR_INTERNAL, "expression of unknown type %d", node->type);
    }
}

aerie_status ae_jinja_eval(ae_jinja_run *r, const ae_jinja_node *node, ae_value *out)
{
    AE_JINJA_CHARGE(r, 1);
    AE_TRY(ae_jinja_descend(r));
    r->place = node->place;
    AE_TRY(eval_node(r, node, out));
    r->depth--;
    return AERIE_OK;
}

/* jinja_eval.c - runs statements: output, scopes, loops, macros; and the limits of a run.
 *
 * Owns: the run, scopes and what they bind, the depth and step budgets.
 * Does not own: expressions (jinja_value.c).
 * Scopes are jinja2's: `if` has none; each iteration of a loop has its own; macros, call, filter
 * and set blocks see the scope in which they stand and keep what they set to themselves.
 * Invariant: r->scope and r->output are what they were when a statement has succeeded. After a
 * failure the run ends, so nothing is put back then.
 */
#include "text/template/jinja_internal.h"

#include <stdio.h>

static aerie_status exec_list(ae_jinja_run *r, const ae_jinja_node *list);

ae_template_options ae_template_options_default(void)
{
    return (ae_template_options){
        .max_steps = 2000000,
        .max_output_bytes = (size_t)16 << 20,
        .max_memory_bytes = (size_t)256 << 20,
    };
}

/* ---- Limits and errors ------------------------------------------------------------------ */

aerie_status ae_jinja_fail(ae_jinja_run *r, aerie_status status, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    /* A name cut in the middle of a character would leave bad UTF-8: drop what is incomplete. */
    size_t end = 0, length;
    size_t written = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    char clean[400];
    for (size_t i = 0; i < written; i += length ? length : 1) {
        length = ae_utf8_valid(text + i, written - i);
        memcpy(clean + end, text + i, length);
        end += length;
    }
    clean[end] = 0;
    return ae_fail(r->error, status, AE_JINJA_PLACE "%s", AE_JINJA_AT(r->place), clean);
}

aerie_status ae_jinja_fail_heap(ae_jinja_run *r)
{
    if (r->heap.limit_hit)
        return ae_jinja_fail(r, AERIE_ERROR_LIMIT, "the values need more than %zu bytes", r->heap.limit_bytes);
    return ae_fail_memory(r->error, "the values of a template", r->heap.arena.used_bytes);
}

aerie_status ae_jinja_charge(ae_jinja_run *r, size_t n_steps)
{
    if (r->steps_left < n_steps) {
        r->steps_left = 0;
        return ae_jinja_fail(r, AERIE_ERROR_LIMIT, "the template takes too many steps");
    }
    r->steps_left -= n_steps;
    return AERIE_OK;
}

aerie_status ae_jinja_descend(ae_jinja_run *r)
{
    if (r->depth >= AE_JINJA_MAX_DEPTH)
        return ae_jinja_fail(r, AERIE_ERROR_LIMIT, "evaluation is more than %d levels deep", AE_JINJA_MAX_DEPTH);
    r->depth++;
    return AERIE_OK;
}

/* ---- Scopes ----------------------------------------------------------------------------- */

static ae_jinja_scope *scope_new(ae_jinja_run *r, ae_jinja_scope *parent)
{
    ae_jinja_scope *scope = ae_value_alloc(&r->heap, 1, sizeof *scope);
    if (scope) scope->parent = parent;
    return scope;
}

static aerie_status bind_name(ae_jinja_run *r, ae_jinja_scope *scope, const ae_string *name, ae_value value)
{
    for (ae_jinja_binding *b = scope->first; b; b = b->next) {
        if (!ae_string_equal(b->name, name)) continue;
        b->value = value;
        return AERIE_OK;
    }
    ae_jinja_binding *binding = r->spare;
    if (binding) r->spare = binding->next;
    else binding = ae_value_alloc(&r->heap, 1, sizeof *binding);
    if (!binding) return ae_jinja_fail_heap(r);
    *binding = (ae_jinja_binding){.next = scope->first, .name = name, .value = value};
    scope->first = binding;
    return AERIE_OK;
}

/* Empties a scope that nothing refers to any more, for reuse: otherwise long loops would fill the heap. */
static void recycle(ae_jinja_run *r, ae_jinja_scope *scope)
{
    while (scope->first) {
        ae_jinja_binding *binding = scope->first;
        scope->first = binding->next;
        binding->next = r->spare;
        r->spare = binding;
    }
}

static aerie_status assign_namespace(ae_jinja_run *r, const ae_jinja_node *target, ae_value value)
{
    ae_value ns;
    ae_jinja_node name = {.type = NODE_NAME, .place = target->place, .name = target->name};
    AE_TRY(ae_jinja_eval(r, &name, &ns));
    if (ns.kind != AE_VALUE_NAMESPACE)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "'%.80s' is not a namespace, so '%.80s' cannot be set on it",
                             target->name->data, target->b->name->data);
    if (!ae_value_object_set(&r->heap, ns, ae_value_of_string(target->b->name), value)) return ae_jinja_fail_heap(r);
    return AERIE_OK;
}

static aerie_status assign(ae_jinja_run *r, const ae_jinja_node *target, ae_value value)
{
    if (target->type == NODE_NAME) return bind_name(r, r->scope, target->name, value);
    if (target->type == NODE_NSREF) return assign_namespace(r, target, value);
    ae_value items;
    size_t n = 0, i = 0;
    AE_TRY(ae_jinja_items(r, value, false, &items));
    for (const ae_jinja_node *t = target->a; t; t = t->next) n++;
    if (n != items.as.array->n)
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "%zu values cannot be unpacked into %zu names", items.as.array->n, n);
    for (const ae_jinja_node *t = target->a; t; t = t->next) AE_TRY(assign(r, t, items.as.array->items[i++]));
    return AERIE_OK;
}

/* ---- Blocks ----------------------------------------------------------------------------- */

static aerie_status capture(ae_jinja_run *r, const ae_jinja_node *list, ae_value *out)
{
    ae_jinja_text text = {0}, *outer = r->output;
    r->output = &text;
    AE_TRY(exec_list(r, list));
    r->output = outer;
    return ae_jinja_text_value(r, &text, out);
}

static aerie_status exec_in_scope(ae_jinja_run *r, ae_jinja_scope *parent, const ae_jinja_node *list)
{
    ae_jinja_scope *outer = r->scope;
    r->scope = scope_new(r, parent);
    if (!r->scope) return ae_jinja_fail_heap(r);
    AE_TRY(exec_list(r, list));
    r->scope = outer;
    return AERIE_OK;
}

static aerie_status capture_in_scope(ae_jinja_run *r, const ae_jinja_node *list, ae_value *out)
{
    ae_jinja_text text = {0}, *outer = r->output;
    r->output = &text;
    AE_TRY(exec_in_scope(r, r->scope, list));
    r->output = outer;
    return ae_jinja_text_value(r, &text, out);
}

static aerie_status exec_output(ae_jinja_run *r, const ae_jinja_node *list)
{
    for (const ae_jinja_node *node = list; node; node = node->next) {
        ae_value value;
        AE_TRY(ae_jinja_eval(r, node, &value));
        AE_TRY(ae_jinja_write_str(r, r->output, value));
    }
    return AERIE_OK;
}

static aerie_status exec_if(ae_jinja_run *r, const ae_jinja_node *node)
{
    for (const ae_jinja_node *branch = node->a; branch; branch = branch->next) {
        ae_value test = ae_value_bool(true);
        if (branch->a) AE_TRY(ae_jinja_eval(r, branch->a, &test));
        if (ae_jinja_truth(test)) return exec_list(r, branch->b);
    }
    return AERIE_OK;
}

static aerie_status exec_set_block(ae_jinja_run *r, const ae_jinja_node *node)
{
    ae_value value;
    AE_TRY(capture_in_scope(r, node->c, &value));
    if (r->flow != FLOW_NORMAL) return AERIE_OK;
    if (node->b) AE_TRY(ae_jinja_apply_filters(r, node->b, value, &value));
    return assign(r, node->a, value);
}

static aerie_status exec_filter_block(ae_jinja_run *r, const ae_jinja_node *node)
{
    ae_value value;
    AE_TRY(capture_in_scope(r, node->b, &value));
    if (r->flow != FLOW_NORMAL) return AERIE_OK;
    AE_TRY(ae_jinja_apply_filters(r, node->a, value, &value));
    return ae_jinja_write_str(r, r->output, value);
}

static aerie_status exec_with(ae_jinja_run *r, const ae_jinja_node *node)
{
    ae_jinja_scope *outer = r->scope, *inner = scope_new(r, outer);
    if (!inner) return ae_jinja_fail_heap(r);
    /* All values are evaluated in the outer scope: none sees the names that are set next to it. */
    for (const ae_jinja_node *set = node->a; set; set = set->next) {
        ae_value value;
        AE_TRY(ae_jinja_eval(r, set->b, &value));
        AE_TRY(bind_name(r, inner, set->name, value));
    }
    r->scope = inner;
    AE_TRY(exec_list(r, node->b));
    r->scope = outer;
    return AERIE_OK;
}

/* ---- Loops ------------------------------------------------------------------------------ */

/* Collects the items for which the loop's `if` holds. */
static aerie_status filter_items(ae_jinja_run *r, const ae_jinja_node *node, ae_value items, ae_value *out)
{
    ae_jinja_scope *outer = r->scope;
    if (!ae_value_array(&r->heap, AE_ARRAY_LIST, 0, out)) return ae_jinja_fail_heap(r);
    for (size_t i = 0; i < items.as.array->n; i++) {
        ae_value test;
        r->scope = scope_new(r, outer);
        if (!r->scope) return ae_jinja_fail_heap(r);
        AE_TRY(assign(r, node->a, items.as.array->items[i]));
        AE_TRY(ae_jinja_eval(r, node->e, &test));
        if (ae_jinja_truth(test) && !ae_value_array_add(&r->heap, *out, items.as.array->items[i]))
            return ae_jinja_fail_heap(r);
    }
    r->scope = outer;
    return AERIE_OK;
}

aerie_status ae_jinja_run_loop(ae_jinja_run *r, const ae_jinja_node *node, ae_value iterable, int depth0)
{
    ae_jinja_scope *outer = r->scope, *inner = NULL;
    ae_value items;
    bool completed = false;
    AE_TRY(ae_jinja_items(r, iterable, false, &items));
    if (node->e) AE_TRY(filter_items(r, node, items, &items));
    ae_jinja_loop *loop = ae_value_alloc(&r->heap, 1, sizeof *loop);
    if (!loop) return ae_jinja_fail_heap(r);
    *loop = (ae_jinja_loop){.items = items.as.array->items, .n = items.as.array->n, .depth0 = depth0,
                            .node = node->flag ? node : NULL, .scope = outer};
    for (size_t i = 0; i < loop->n && r->flow != FLOW_BREAK; i++) {
        AE_JINJA_CHARGE(r, 1);
        loop->i = i;
        if (!inner) inner = scope_new(r, outer);
        if (!inner) return ae_jinja_fail_heap(r);
        r->scope = inner;
        uint64_t n_macros = r->n_macros;
        AE_TRY(bind_name(r, r->scope, r->name_loop, (ae_value){.kind = AE_VALUE_LOOP, .as.loop = loop}));
        AE_TRY(assign(r, node->a, loop->items[i]));
        AE_TRY(exec_list(r, node->c));
        /* As in jinja2, `else` also runs when every iteration was cut short. */
        if (r->flow == FLOW_NORMAL) completed = true;
        if (r->flow == FLOW_CONTINUE) r->flow = FLOW_NORMAL;
        if (n_macros == r->n_macros) recycle(r, inner);
        else inner = NULL; /* a macro may still refer to it */
    }
    r->flow = FLOW_NORMAL;
    r->scope = outer;
    return node->d && !completed ? exec_in_scope(r, outer, node->d) : AERIE_OK;
}

static aerie_status exec_for(ae_jinja_run *r, const ae_jinja_node *node)
{
    ae_value iterable;
    AE_TRY(ae_jinja_eval(r, node->b, &iterable));
    return ae_jinja_run_loop(r, node, iterable, 0);
}

/* ---- Macros ----------------------------------------------------------------------------- */

static aerie_status make_macro(ae_jinja_run *r, const ae_jinja_node *node, ae_value *out)
{
    ae_jinja_callable *macro = ae_value_alloc(&r->heap, 1, sizeof *macro);
    if (!macro) return ae_jinja_fail_heap(r);
    r->n_macros++;
    macro->macro = node;
    macro->closure = r->scope;
    *out = (ae_value){.kind = AE_VALUE_CALLABLE, .as.callable = macro};
    return AERIE_OK;
}

/* Returns the index of a keyword argument, n_named if absent. */
static size_t find_named(const ae_jinja_args *args, const ae_string *name)
{
    size_t i = 0;
    while (i < args->n_named && !ae_string_equal(args->names[i], name)) i++;
    return i;
}

/* Binds parameters in order, so that a default may use those before it. *n_used: keyword arguments consumed. */
static aerie_status bind_params(ae_jinja_run *r, const ae_jinja_node *macro, const ae_jinja_args *args, bool *used,
                                size_t *n_params, bool *has_caller)
{
    size_t i = 0;
    for (const ae_jinja_node *param = macro->a; param; param = param->next, i++) {
        ae_value value;
        size_t named = i < args->n ? args->n_named : find_named(args, param->name);
        if (i < args->n) {
            value = args->items[i];
        } else if (named < args->n_named) {
            value = args->named[named];
            used[named] = true;
        } else if (param->a) {
            AE_TRY(ae_jinja_eval(r, param->a, &value));
        } else {
            AE_TRY(ae_jinja_undefined(r, NULL, param->name, &value));
        }
        *has_caller |= ae_string_equal(param->name, r->name_caller);
        AE_TRY(bind_name(r, r->scope, param->name, value));
    }
    *n_params = i;
    return AERIE_OK;
}

/* Binds caller, kwargs and varargs if the macro uses them; refuses arguments that are left over. */
static aerie_status bind_rest(ae_jinja_run *r, const ae_jinja_node *macro, const ae_jinja_args *args, bool *used,
                              size_t n_params, bool has_caller)
{
    ae_value value;
    if ((macro->op & AE_JINJA_USES_CALLER) && !has_caller) {
        size_t named = find_named(args, r->name_caller);
        if (named < args->n_named) {
            used[named] = true;
            value = args->named[named];
        } else {
            AE_TRY(ae_jinja_undefined(r, NULL, r->name_caller, &value));
        }
        AE_TRY(bind_name(r, r->scope, r->name_caller, value));
    }
    if (macro->op & AE_JINJA_USES_KWARGS) {
        if (!ae_value_object(&r->heap, &value)) return ae_jinja_fail_heap(r);
        for (size_t i = 0; i < args->n_named; i++)
            if (!used[i] && !ae_value_object_set(&r->heap, value, ae_value_of_string(args->names[i]), args->named[i]))
                return ae_jinja_fail_heap(r);
        AE_TRY(bind_name(r, r->scope, r->name_kwargs, value));
    } else {
        for (size_t i = 0; i < args->n_named; i++)
            if (!used[i])
                return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "the macro '%.80s' has no argument '%.80s'",
                                     macro->name ? macro->name->data : "caller", args->names[i]->data);
    }
    if (macro->op & AE_JINJA_USES_VARARGS) {
        if (!ae_value_array(&r->heap, AE_ARRAY_TUPLE, 0, &value)) return ae_jinja_fail_heap(r);
        for (size_t i = n_params; i < args->n; i++)
            if (!ae_value_array_add(&r->heap, value, args->items[i])) return ae_jinja_fail_heap(r);
        AE_TRY(bind_name(r, r->scope, r->name_varargs, value));
    } else if (args->n > n_params) {
        return ae_jinja_fail(r, AERIE_ERROR_FORMAT, "the macro '%.80s' takes at most %zu arguments",
                             macro->name ? macro->name->data : "caller", n_params);
    }
    return AERIE_OK;
}

aerie_status ae_jinja_call_macro(ae_jinja_run *r, const ae_jinja_callable *callable, const ae_jinja_args *args, ae_value *out)
{
    const ae_jinja_node *macro = callable->macro;
    ae_jinja_scope *outer = r->scope;
    ae_jinja_flow flow = r->flow;
    ae_jinja_place place = r->place;
    size_t n_params = 0;
    bool has_caller = false;
    AE_TRY(ae_jinja_descend(r));
    bool *used = ae_value_alloc(&r->heap, args->n_named, sizeof *used);
    r->scope = used ? scope_new(r, callable->closure) : NULL;
    if (!r->scope) return ae_jinja_fail_heap(r);
    AE_TRY(bind_params(r, macro, args, used, &n_params, &has_caller));
    AE_TRY(bind_rest(r, macro, args, used, n_params, has_caller));
    r->flow = FLOW_NORMAL;
    AE_TRY(capture(r, macro->b, out));
    r->flow = flow;
    r->scope = outer;
    r->place = place;
    r->depth--;
    return AERIE_OK;
}

/* {% call(user) list_users() %}: the body becomes the argument `caller` of the call. */
static aerie_status exec_call_block(ae_jinja_run *r, const ae_jinja_node *node)
{
    ae_value callee, caller, result;
    ae_jinja_args args;
    AE_TRY(make_macro(r, node->b, &caller));
    AE_TRY(ae_jinja_eval(r, node->a->a, &callee));
    AE_TRY(ae_jinja_eval_args(r, node->a->b, &args));
    size_t n = args.n_named;
    const ae_string **names = ae_value_alloc(&r->heap, n + 1, sizeof *names);
    ae_value *named = names ? ae_value_alloc(&r->heap, n + 1, sizeof *named) : NULL;
    if (!named) return ae_jinja_fail_heap(r);
    if (n) memcpy(names, args.names, n * sizeof *names);
    if (n) memcpy(named, args.named, n * sizeof *named);
    names[n] = r->name_caller;
    named[n] = caller;
    args.names = names;
    args.named = named;
    args.n_named = n + 1;
    AE_TRY(ae_jinja_call_value(r, callee, &args, &result));
    return ae_jinja_write_str(r, r->output, result);
}

/* ---- Statements ------------------------------------------------------------------------- */

static aerie_status exec_statement(ae_jinja_run *r, const ae_jinja_node *node)
{
    ae_value value;
    switch (node->type) {
    case NODE_DATA: return ae_jinja_write_str(r, r->output, node->value);
    case NODE_OUTPUT: return exec_output(r, node->a);
    case NODE_IF: return exec_if(r, node);
    case NODE_FOR: return exec_for(r, node);
    case NODE_SET:
        AE_TRY(ae_jinja_eval(r, node->b, &value));
        return assign(r, node->a, value);
    case NODE_SET_BLOCK: return exec_set_block(r, node);
    case NODE_MACRO:
        AE_TRY(make_macro(r, node, &value));
        return bind_name(r, r->scope, node->name, value);
    case NODE_CALL_BLOCK: return exec_call_block(r, node);
    case NODE_FILTER_BLOCK: return exec_filter_block(r, node);
    case NODE_WITH: return exec_with(r, node);
    case NODE_BLOCK: return exec_in_scope(r, node->flag ? r->scope : r->top, node->b);
    case NODE_SCOPE: return exec_in_scope(r, r->scope, node->b);
    case NODE_BREAK: r->flow = FLOW_BREAK; return AERIE_OK;
    case NODE_CONTINUE: r->flow = FLOW_CONTINUE; return AERIE_OK;
    default: return ae_jinja_fail(r, AERIE_ERROR_INTERNAL, "statement of unknown type %d", node->type);
    }
}

static aerie_status exec_list(ae_jinja_run *r, const ae_jinja_node *list)
{
    AE_TRY(ae_jinja_descend(r));
    for (const ae_jinja_node *node = list; node && r->flow == FLOW_NORMAL; node = node->next) {
        r->place = node->place;
        AE_JINJA_CHARGE(r, 1);
        AE_TRY(exec_statement(r, node));
    }
    r->depth--;
    return AERIE_OK;
}

static aerie_status prepare(ae_jinja_run *r)
{
    const ae_string **names[] = {&r->name_loop, &r->name_caller, &r->name_kwargs, &r->name_varargs};
    static const char *const texts[] = {"loop", "caller", "kwargs", "varargs"};
    for (size_t i = 0; i < 4; i++) {
        *names[i] = ae_string_new(&r->heap, texts[i], strlen(texts[i]));
        if (!*names[i]) return ae_jinja_fail_heap(r);
    }
    r->top = r->scope = scope_new(r, NULL);
    return r->top ? AERIE_OK : ae_jinja_fail_heap(r);
}

/* Stretches of data. */
static void add_spans(ae_buf *spans, const ae_jinja_text *t, size_t begin)
{
    for (size_t i = 0; i < t->n;) {
        size_t end = t->n;
        const bool data = (t->map ? t->map[i] : t->origin) != AE_ORIGIN_TEMPLATE;
        if (t->map) {
            const uint8_t *next = memchr(t->map + i, data ? AE_ORIGIN_TEMPLATE : AE_ORIGIN_DATA, t->n - i);
            if (next) end = (size_t)(next - t->map);
        }
        const ae_span span = {begin + i, begin + end};
        if (data) ae_buf_add(spans, (const char *)&span, sizeof span);
        i = end;
    }
}

aerie_status ae_template_render(const ae_template *tmpl, ae_value root, const ae_template_options *options,
                                ae_buf *out, ae_buf *spans, aerie_error *error)
{
    ae_template_options usual = ae_template_options_default();
    if (!options) options = &usual;
    if (root.kind != AE_VALUE_OBJECT) return ae_fail(error, AERIE_ERROR_ARGUMENT, "the root of a template must be an object");
    ae_jinja_text text = {0};
    ae_jinja_run r = {.error = error, .place = {1, 1}, .steps_left = options->max_steps, .root = root,
                      .max_output_bytes = options->max_output_bytes, .now = options->now, .output = &text};
    ae_value_heap_init(&r.heap, options->max_memory_bytes);
    aerie_status status;
    AE_TRY_GOTO(status, prepare(&r), done);
    AE_TRY_GOTO(status, exec_list(&r, tmpl->body), done);
    if (spans) add_spans(spans, &text, out->n);
    ae_buf_add(out, text.data, text.n);
    if (out->failed || (spans && spans->failed)) status = ae_fail_memory(error, "the rendered text", text.n);

done:
    ae_value_heap_free(&r.heap);
    return status;
}

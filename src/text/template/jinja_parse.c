/* jinja_parse.c - tokens to statements: the template's syntax tree.
 *
 * Owns: ae_template, the grammar of the statements, the helpers for walking over tokens.
 * Does not own: expressions (jinja_expr.c).
 * Invariant: recursion is bounded by AE_JINJA_MAX_NESTING (ae_jinja_enter).
 */
#include "text/template/jinja_internal.h"

#include <stdio.h>

#define HEAP_BYTES ((size_t)256 << 20) /* most bytes for tokens and tree; a template of 16 KiB needs about 1 MiB */

static aerie_status parse_list(ae_jinja_parser *p, const char *const *ends, ae_jinja_node **out);

aerie_status ae_jinja_parse_fail(ae_jinja_parser *p, aerie_status status, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ae_fail(p->error, status, AE_JINJA_PLACE "%s", AE_JINJA_AT(p->token->place), text);
}

static aerie_status fail_heap(ae_jinja_parser *p)
{
    if (!p->tmpl->heap.limit_hit) return ae_fail_memory(p->error, "the template", p->tmpl->heap.arena.used_bytes);
    return ae_jinja_parse_fail(p, AERIE_ERROR_LIMIT, "the template needs more than %zu bytes parsed", HEAP_BYTES);
}

ae_jinja_node *ae_jinja_node_new(ae_jinja_parser *p, ae_jinja_node_type type, ae_jinja_place place)
{
    ae_jinja_node *node = ae_value_alloc(&p->tmpl->heap, 1, sizeof *node);
    if (!node) {
        fail_heap(p);
        return NULL;
    }
    node->type = (uint8_t)type;
    node->place = place;
    return node;
}

/* Returns the status with which ae_jinja_node_new failed, for its callers to return. */
static aerie_status node_status(const ae_jinja_parser *p)
{
    return p->tmpl->heap.limit_hit ? AERIE_ERROR_LIMIT : AERIE_ERROR_MEMORY;
}

bool ae_jinja_at_name(const ae_jinja_parser *p, const char *name)
{
    return p->token->type == TOKEN_NAME && ae_string_is(p->token->as.string, name);
}

bool ae_jinja_skip(ae_jinja_parser *p, ae_jinja_token_type type)
{
    if (p->token->type != type) return false;
    p->token++;
    return true;
}

bool ae_jinja_skip_name(ae_jinja_parser *p, const char *name)
{
    if (!ae_jinja_at_name(p, name)) return false;
    p->token++;
    return true;
}

static const char *token_name(uint8_t type)
{
    static const char *const names[] = {
        "the end of the template", "text", "'{{'", "'}}'", "'{%'", "'%}'", "a name", "a string", "an integer",
        "a float", "'+'", "'-'", "'*'", "'/'", "'//'", "'%'", "'**'", "'~'", "'('", "')'", "'['", "']'", "'{'", "'}'",
        "'=='", "'!='", "'<'", "'<='", "'>'", "'>='", "'='", "'.'", "':'", "'|'", "','", "';'",
    };
    return names[type];
}

aerie_status ae_jinja_unexpected(ae_jinja_parser *p, const char *expected)
{
    if (p->token->type == TOKEN_NAME)
        return ae_jinja_parse_fail(p, AERIE_ERROR_FORMAT, "found '%.60s', expected %s", p->token->as.string->data, expected);
    return ae_jinja_parse_fail(p, AERIE_ERROR_FORMAT, "found %s, expected %s", token_name(p->token->type), expected);
}

aerie_status ae_jinja_expect(ae_jinja_parser *p, ae_jinja_token_type type)
{
    return ae_jinja_skip(p, type) ? AERIE_OK : ae_jinja_unexpected(p, token_name((uint8_t)type));
}

aerie_status ae_jinja_expect_name(ae_jinja_parser *p, const ae_string **name)
{
    if (p->token->type != TOKEN_NAME) return ae_jinja_unexpected(p, "a name");
    *name = p->token->as.string;
    p->token++;
    return AERIE_OK;
}

static aerie_status expect_keyword(ae_jinja_parser *p, const char *name)
{
    if (ae_jinja_skip_name(p, name)) return AERIE_OK;
    char expected[32];
    snprintf(expected, sizeof expected, "'%s'", name);
    return ae_jinja_unexpected(p, expected);
}

aerie_status ae_jinja_enter(ae_jinja_parser *p)
{
    if (p->depth >= AE_JINJA_MAX_NESTING)
        return ae_jinja_parse_fail(p, AERIE_ERROR_LIMIT, "nested more than %d levels deep", AE_JINJA_MAX_NESTING);
    p->depth++;
    return AERIE_OK;
}

#define NEW(p, node, type, place)                            \
    ae_jinja_node *node = ae_jinja_node_new(p, type, place); \
    if (!node) return node_status(p)

/* ---- Targets ---------------------------------------------------------------------------- */

static bool is_constant_name(const ae_string *name)
{
    return ae_string_is(name, "true") || ae_string_is(name, "True") || ae_string_is(name, "false") ||
           ae_string_is(name, "False") || ae_string_is(name, "none") || ae_string_is(name, "None");
}

static aerie_status check_target(ae_jinja_parser *p, const ae_jinja_node *target)
{
    if (target->type == NODE_NSREF) return AERIE_OK;
    if (target->type == NODE_NAME) {
        if (p->n_loops > 0 && ae_string_is(target->name, "loop"))
            return ae_jinja_parse_fail(p, AERIE_ERROR_FORMAT, "'loop' cannot be assigned to inside a loop");
        return AERIE_OK;
    }
    if (target->type != NODE_TUPLE)
        return ae_jinja_parse_fail(p, AERIE_ERROR_FORMAT, "this cannot be assigned to");
    AE_TRY(ae_jinja_enter(p));
    for (const ae_jinja_node *item = target->a; item; item = item->next) AE_TRY(check_target(p, item));
    p->depth--;
    return AERIE_OK;
}

static aerie_status parse_target(ae_jinja_parser *p, int how, ae_jinja_node **out)
{
    AE_TRY(ae_jinja_parse_tuple(p, how | AE_JINJA_TUPLE_PRIMARY, out));
    return check_target(p, *out);
}

static aerie_status parse_target_name(ae_jinja_parser *p, const ae_string **name)
{
    AE_TRY(ae_jinja_expect_name(p, name));
    if (is_constant_name(*name))
        return ae_jinja_parse_fail(p, AERIE_ERROR_FORMAT, "'%.60s' cannot be assigned to", (*name)->data);
    return AERIE_OK;
}

/* ---- Statements ------------------------------------------------------------------------- */

/* Parses the body of a statement up to one of the ends, whose name is then the current token. */
static aerie_status parse_body(ae_jinja_parser *p, const char *const *ends, ae_jinja_node **out)
{
    ae_jinja_skip(p, TOKEN_COLON);
    AE_TRY(ae_jinja_expect(p, TOKEN_BLOCK_END));
    AE_TRY(ae_jinja_enter(p));
    AE_TRY(parse_list(p, ends, out));
    p->depth--;
    return AERIE_OK;
}

static aerie_status parse_body_to(ae_jinja_parser *p, const char *end, ae_jinja_node **out)
{
    const char *const ends[] = {end, NULL};
    AE_TRY(parse_body(p, ends, out));
    p->token++;
    return AERIE_OK;
}

static aerie_status parse_for(ae_jinja_parser *p, ae_jinja_node *node)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    bool soft = p->soft;
    p->soft = false;
    /* The target counts as inside the loop: it must not be `loop` either. */
    p->n_loops++;
    AE_TRY(parse_target(p, AE_JINJA_TUPLE_END_IN, &node->a));
    p->n_loops--;
    AE_TRY(expect_keyword(p, "in"));
    p->soft = soft;
    AE_TRY(ae_jinja_parse_tuple(p, AE_JINJA_TUPLE_NO_COND | AE_JINJA_TUPLE_END_RECURSIVE, &node->b));
    p->soft = false;
    if (ae_jinja_skip_name(p, "if")) AE_TRY(ae_jinja_parse_expression(p, &node->e));
    node->flag = ae_jinja_skip_name(p, "recursive");
    p->n_loops++;
    AE_TRY(parse_body(p, ends, &node->c));
    p->n_loops--;
    bool has_else = ae_jinja_at_name(p, "else");
    p->token++;
    if (has_else) AE_TRY(parse_body_to(p, "endfor", &node->d));
    p->soft = soft;
    return AERIE_OK;
}

static aerie_status parse_if(ae_jinja_parser *p, ae_jinja_node *node)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    ae_jinja_node **last = &node->a;
    bool soft = p->soft;
    p->soft = true;
    for (bool more = true, with_test = true; more;) {
        NEW(p, branch, NODE_BRANCH, p->token->place);
        if (with_test) AE_TRY(ae_jinja_parse_tuple(p, AE_JINJA_TUPLE_NO_COND, &branch->a));
        if (with_test) AE_TRY(parse_body(p, ends, &branch->b));
        else AE_TRY(parse_body(p, ends + 2, &branch->b));
        *last = branch;
        last = &branch->next;
        more = !ae_jinja_at_name(p, "endif");
        with_test = ae_jinja_at_name(p, "elif");
        p->token++;
    }
    p->soft = soft;
    return AERIE_OK;
}

/* The bodies of set, macro and similar statements are evaluated in frames of their own, where `soft` does not apply. */
static aerie_status parse_inner(ae_jinja_parser *p, const char *end, ae_jinja_node **out)
{
    bool soft = p->soft;
    p->soft = false;
    AE_TRY(parse_body_to(p, end, out));
    p->soft = soft;
    return AERIE_OK;
}

static aerie_status parse_set(ae_jinja_parser *p, ae_jinja_node *node)
{
    AE_TRY(parse_target(p, AE_JINJA_TUPLE_NAMESPACE, &node->a));
    if (ae_jinja_skip(p, TOKEN_ASSIGN)) return ae_jinja_parse_tuple(p, 0, &node->b);
    node->type = NODE_SET_BLOCK;
    AE_TRY(ae_jinja_parse_filters(p, NULL, false, &node->b));
    return parse_inner(p, "endset", &node->c);
}

static aerie_status parse_signature(ae_jinja_parser *p, ae_jinja_node *node)
{
    ae_jinja_node **last = &node->a;
    bool has_default = false;
    AE_TRY(ae_jinja_expect(p, TOKEN_LPAREN));
    while (p->token->type != TOKEN_RPAREN) {
        if (node->a) AE_TRY(ae_jinja_expect(p, TOKEN_COMMA));
        NEW(p, param, NODE_PARAM, p->token->place);
        AE_TRY(parse_target_name(p, &param->name));
        for (const ae_jinja_node *other = node->a; other; other = other->next)
            if (ae_string_equal(other->name, param->name))
                return ae_jinja_parse_fail(p, AERIE_ERROR_FORMAT, "two parameters are called '%.60s'", param->name->data);
        if (ae_jinja_skip(p, TOKEN_ASSIGN)) {
            AE_TRY(ae_jinja_parse_expression(p, &param->a));
            has_default = true;
        } else if (has_default) {
            return ae_jinja_parse_fail(p, AERIE_ERROR_FORMAT, "a parameter without default follows one with default");
        }
        *last = param;
        last = &param->next;
    }
    p->token++;
    return AERIE_OK;
}

/* Parses the signature (if there is one) and body of a macro or call block. */
static aerie_status parse_macro_body(ae_jinja_parser *p, ae_jinja_node *macro, const char *end)
{
    uint8_t outer_uses = p->uses;
    int n_loops = p->n_loops;
    bool soft = p->soft;
    p->uses = 0;
    p->n_loops = 0;
    p->soft = false;
    AE_TRY(parse_body_to(p, end, &macro->b));
    macro->op = p->uses;
    p->uses |= outer_uses;
    p->n_loops = n_loops;
    p->soft = soft;
    return AERIE_OK;
}

static aerie_status parse_macro(ae_jinja_parser *p, ae_jinja_node *node)
{
    AE_TRY(parse_target_name(p, &node->name));
    AE_TRY(parse_signature(p, node));
    return parse_macro_body(p, node, "endmacro");
}

static aerie_status parse_call_block(ae_jinja_parser *p, ae_jinja_node *node)
{
    NEW(p, macro, NODE_MACRO, node->place);
    if (p->token->type == TOKEN_LPAREN) AE_TRY(parse_signature(p, macro));
    AE_TRY(ae_jinja_parse_expression(p, &node->a));
    if (node->a->type != NODE_CALL) return ae_jinja_parse_fail(p, AERIE_ERROR_FORMAT, "expected a call");
    node->b = macro;
    return parse_macro_body(p, macro, "endcall");
}

static aerie_status parse_with(ae_jinja_parser *p, ae_jinja_node *node)
{
    ae_jinja_node **last = &node->a;
    bool soft = p->soft;
    p->soft = false;
    while (p->token->type != TOKEN_BLOCK_END) {
        if (node->a) AE_TRY(ae_jinja_expect(p, TOKEN_COMMA));
        NEW(p, set, NODE_SET, p->token->place);
        /* Separated by commas, so a bare tuple cannot be a target here. */
        AE_TRY(parse_target_name(p, &set->name));
        NEW(p, target, NODE_NAME, set->place);
        target->name = set->name;
        set->a = target;
        AE_TRY(ae_jinja_expect(p, TOKEN_ASSIGN));
        AE_TRY(ae_jinja_parse_expression(p, &set->b));
        *last = set;
        last = &set->next;
    }
    p->soft = soft;
    return parse_inner(p, "endwith", &node->b);
}

static aerie_status parse_block(ae_jinja_parser *p, ae_jinja_node *node)
{
    AE_TRY(ae_jinja_expect_name(p, &node->name));
    node->flag = ae_jinja_skip_name(p, "scoped");
    if (ae_jinja_at_name(p, "required"))
        return ae_jinja_parse_fail(p, AERIE_ERROR_UNSUPPORTED, "there is no template inheritance, so no required blocks");
    int n_loops = p->n_loops;
    p->n_loops = 0;
    AE_TRY(parse_inner(p, "endblock", &node->b));
    p->n_loops = n_loops;
    if (p->token->type == TOKEN_NAME && ae_string_equal(p->token->as.string, node->name)) p->token++;
    return AERIE_OK;
}

static aerie_status parse_print(ae_jinja_parser *p, ae_jinja_node *node)
{
    ae_jinja_node **last = &node->a;
    while (p->token->type != TOKEN_BLOCK_END) {
        if (node->a) AE_TRY(ae_jinja_expect(p, TOKEN_COMMA));
        AE_TRY(ae_jinja_parse_expression(p, last));
        last = &(*last)->next;
    }
    return AERIE_OK;
}

static aerie_status parse_filter_block(ae_jinja_parser *p, ae_jinja_node *node)
{
    AE_TRY(ae_jinja_parse_filters(p, NULL, true, &node->a));
    return parse_inner(p, "endfilter", &node->b);
}

/* Fails outside of a loop in the same macro, where there is nothing to leave. */
static aerie_status parse_jump(ae_jinja_parser *p, ae_jinja_node *node)
{
    if (p->n_loops == 0)
        return ae_jinja_parse_fail(p, AERIE_ERROR_FORMAT, "'%s' outside of a loop",
                                   node->type == NODE_BREAK ? "break" : "continue");
    return AERIE_OK;
}

static aerie_status parse_generation(ae_jinja_parser *p, ae_jinja_node *node)
{
    int n_loops = p->n_loops;
    p->n_loops = 0;
    AE_TRY(parse_inner(p, "endgeneration", &node->b));
    p->n_loops = n_loops;
    return AERIE_OK;
}

static aerie_status parse_statement(ae_jinja_parser *p, ae_jinja_node **out)
{
    static const struct {
        const char *name;
        ae_jinja_node_type type;
        aerie_status (*parse)(ae_jinja_parser *, ae_jinja_node *);
    } statements[] = {
        {"for", NODE_FOR, parse_for},
        {"if", NODE_IF, parse_if},
        {"set", NODE_SET, parse_set},
        {"macro", NODE_MACRO, parse_macro},
        {"call", NODE_CALL_BLOCK, parse_call_block},
        {"filter", NODE_FILTER_BLOCK, parse_filter_block},
        {"with", NODE_WITH, parse_with},
        {"block", NODE_BLOCK, parse_block},
        {"print", NODE_OUTPUT, parse_print},
        {"break", NODE_BREAK, parse_jump},
        {"continue", NODE_CONTINUE, parse_jump},
        {"generation", NODE_SCOPE, parse_generation},
    };
    static const char *const lacking[] = {"extends", "include", "import", "from", "autoescape"};
    if (p->token->type != TOKEN_NAME) return ae_jinja_unexpected(p, "the name of a statement");
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!ae_jinja_at_name(p, statements[i].name)) continue;
        NEW(p, node, statements[i].type, p->token->place);
        p->token++;
        *out = node;
        return statements[i].parse(p, node);
    }
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++)
        if (ae_jinja_at_name(p, lacking[i]))
            return ae_jinja_parse_fail(p, AERIE_ERROR_UNSUPPORTED, "chat templates cannot use '%s'", lacking[i]);
    return ae_jinja_unexpected(p, "the name of a statement");
}

/* Parses statements up to the end of the template (ends == NULL) or up to a tag with one of the names. */
static aerie_status parse_list(ae_jinja_parser *p, const char *const *ends, ae_jinja_node **out)
{
    ae_jinja_node **last = out;
    while (p->token->type != TOKEN_EOF) {
        ae_jinja_place place = p->token->place;
        if (p->token->type == TOKEN_DATA) {
            NEW(p, node, NODE_DATA, place);
            node->value = ae_value_of_string(p->token->as.string);
            p->token++;
            *last = node;
        } else if (ae_jinja_skip(p, TOKEN_VARIABLE_BEGIN)) {
            NEW(p, node, NODE_OUTPUT, place);
            AE_TRY(ae_jinja_parse_tuple(p, 0, &node->a));
            AE_TRY(ae_jinja_expect(p, TOKEN_VARIABLE_END));
            *last = node;
        } else {
            AE_TRY(ae_jinja_expect(p, TOKEN_BLOCK_BEGIN));
            for (size_t i = 0; ends && ends[i]; i++)
                if (ae_jinja_at_name(p, ends[i])) return AERIE_OK;
            AE_TRY(parse_statement(p, last));
            AE_TRY(ae_jinja_expect(p, TOKEN_BLOCK_END));
        }
        if (p->unknown)
            return ae_jinja_parse_fail(p, AERIE_ERROR_FORMAT, "there is no %s called '%.60s'",
                                       p->unknown->type == NODE_FILTER ? "filter" : "test", p->unknown->name->data);
        last = &(*last)->next;
    }
    if (!ends) return AERIE_OK;
    char expected[64];
    snprintf(expected, sizeof expected, "'{%% %s %%}'", ends[1] && ends[2] ? ends[2] : ends[0]);
    return ae_jinja_unexpected(p, expected);
}

aerie_status ae_template_parse(ae_template **out, const char *text, size_t n, aerie_error *error)
{
    *out = NULL;
    if (n > AE_TEMPLATE_MAX_BYTES)
        return ae_fail(error, AERIE_ERROR_LIMIT, "the template has %zu bytes, more than %zu", n, AE_TEMPLATE_MAX_BYTES);
    ae_template *tmpl = ae_alloc(1, sizeof *tmpl);
    if (!tmpl) return ae_fail_memory(error, "a template", sizeof *tmpl);
    ae_value_heap_init(&tmpl->heap, HEAP_BYTES);
    ae_jinja_parser p = {.tmpl = tmpl, .error = error};
    aerie_status status;
    AE_TRY_GOTO(status, ae_jinja_lex(tmpl, text, n, error), failed);
    p.token = tmpl->tokens;
    AE_TRY_GOTO(status, parse_list(&p, NULL, &tmpl->body), failed);
    *out = tmpl;
    return AERIE_OK;

failed:
    ae_template_free(tmpl);
    return status;
}

void ae_template_free(ae_template *tmpl)
{
    if (!tmpl) return;
    ae_value_heap_free(&tmpl->heap);
    ae_free(tmpl);
}

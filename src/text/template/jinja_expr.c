/* jinja_expr.c - tokens to expressions.
 *
 * Owns: precedence, and the places where jinja2's grammar differs from Python's (`~`, filters,
 * tests, inline if without else). Each level below is one level of that grammar, loosest first.
 * Invariant: recursion is bounded by ae_jinja_enter in parse_or_level and parse_unary; chains
 * such as a+b+c grow without recursion here and are bounded in the evaluator.
 */
#include "text/template/jinja_internal.h"

#define NEW(p, node, type, place)                            \
    ae_jinja_node *node = ae_jinja_node_new(p, type, place); \
    if (!node) return (p)->tmpl->heap.limit_hit ? AERIE_ERROR_LIMIT : AERIE_ERROR_MEMORY

static aerie_status parse_or(ae_jinja_parser *p, ae_jinja_node **out);
static aerie_status parse_unary(ae_jinja_parser *p, bool with_filters, ae_jinja_node **out);

/* ---- Primaries -------------------------------------------------------------------------- */

static aerie_status parse_name(ae_jinja_parser *p, bool with_namespace, ae_jinja_node *node)
{
    const ae_string *name = p->token->as.string;
    p->token++;
    node->type = NODE_CONST;
    if (ae_string_is(name, "true") || ae_string_is(name, "True")) {
        node->value = ae_value_bool(true);
    } else if (ae_string_is(name, "false") || ae_string_is(name, "False")) {
        node->value = ae_value_bool(false);
    } else if (ae_string_is(name, "none") || ae_string_is(name, "None")) {
        node->value = ae_value_none();
    } else {
        node->type = NODE_NAME;
        node->name = name;
        if (ae_string_is(name, "caller")) p->uses |= AE_JINJA_USES_CALLER;
        if (ae_string_is(name, "kwargs")) p->uses |= AE_JINJA_USES_KWARGS;
        if (ae_string_is(name, "varargs")) p->uses |= AE_JINJA_USES_VARARGS;
        if (with_namespace && ae_jinja_skip(p, TOKEN_DOT)) {
            NEW(p, attr, NODE_NAME, node->place);
            AE_TRY(ae_jinja_expect_name(p, &attr->name));
            node->type = NODE_NSREF;
            node->b = attr;
        }
    }
    return AERIE_OK;
}

/* "a" "b": adjacent strings are one. */
static aerie_status parse_strings(ae_jinja_parser *p, ae_jinja_node *node)
{
    const ae_jinja_token *first = p->token;
    size_t n = 0;
    for (; p->token->type == TOKEN_STRING; p->token++) n += p->token->as.string->n;
    node->value = ae_value_of_string(first->as.string);
    if (p->token == first + 1) return AERIE_OK;
    ae_string *joined = ae_string_alloc(&p->tmpl->heap, n);
    if (!joined) return ae_jinja_parse_fail(p, AERIE_ERROR_MEMORY, "not enough memory for a string");
    size_t at = 0;
    for (const ae_jinja_token *t = first; t < p->token; t++) {
        memcpy(joined->data + at, t->as.string->data, t->as.string->n);
        at += t->as.string->n;
    }
    ae_string_seal(joined);
    node->value = ae_value_of_string(joined);
    return AERIE_OK;
}

static aerie_status parse_list_literal(ae_jinja_parser *p, ae_jinja_node *node)
{
    ae_jinja_node **last = &node->a;
    while (p->token->type != TOKEN_RBRACKET) {
        if (node->a) AE_TRY(ae_jinja_expect(p, TOKEN_COMMA));
        if (p->token->type == TOKEN_RBRACKET) break;
        AE_TRY(ae_jinja_parse_expression(p, last));
        last = &(*last)->next;
    }
    p->token++;
    return AERIE_OK;
}

static aerie_status parse_dict_literal(ae_jinja_parser *p, ae_jinja_node *node)
{
    ae_jinja_node **last = &node->a;
    while (p->token->type != TOKEN_RBRACE) {
        if (node->a) AE_TRY(ae_jinja_expect(p, TOKEN_COMMA));
        if (p->token->type == TOKEN_RBRACE) break;
        NEW(p, pair, NODE_PAIR, p->token->place);
        AE_TRY(ae_jinja_parse_expression(p, &pair->a));
        AE_TRY(ae_jinja_expect(p, TOKEN_COLON));
        AE_TRY(ae_jinja_parse_expression(p, &pair->b));
        *last = pair;
        last = &pair->next;
    }
    p->token++;
    return AERIE_OK;
}

static aerie_status parse_primary(ae_jinja_parser *p, int how, ae_jinja_node **out)
{
    const ae_jinja_token *token = p->token;
    if (token->type == TOKEN_LPAREN) {
        p->token++;
        AE_TRY(ae_jinja_enter(p));
        AE_TRY(ae_jinja_parse_tuple(p, AE_JINJA_TUPLE_PAREN, out));
        p->depth--;
        return ae_jinja_expect(p, TOKEN_RPAREN);
    }
    NEW(p, node, NODE_CONST, token->place);
    *out = node;
    switch (token->type) {
    case TOKEN_NAME: return parse_name(p, how & AE_JINJA_TUPLE_NAMESPACE, node);
    case TOKEN_STRING: return parse_strings(p, node);
    case TOKEN_INTEGER: node->value = ae_value_int(token->as.integer); break;
    case TOKEN_FLOAT: node->value = ae_value_double(token->as.number); break;
    case TOKEN_LBRACKET:
        p->token++;
        node->type = NODE_LIST;
        return parse_list_literal(p, node);
    case TOKEN_LBRACE:
        p->token++;
        node->type = NODE_DICT;
        return parse_dict_literal(p, node);
    default: return ae_jinja_unexpected(p, "an expression");
    }
    p->token++;
    return AERIE_OK;
}

static bool at_tuple_end(const ae_jinja_parser *p, int how)
{
    uint8_t type = p->token->type;
    if (type == TOKEN_VARIABLE_END || type == TOKEN_BLOCK_END || type == TOKEN_RPAREN) return true;
    return ((how & AE_JINJA_TUPLE_END_IN) && ae_jinja_at_name(p, "in")) ||
           ((how & AE_JINJA_TUPLE_END_RECURSIVE) && ae_jinja_at_name(p, "recursive"));
}

aerie_status ae_jinja_parse_tuple(ae_jinja_parser *p, int how, ae_jinja_node **out)
{
    ae_jinja_node *first = NULL, **last = &first;
    bool is_tuple = false;
    ae_jinja_place place = p->token->place;
    for (bool more = true; more;) {
        if (first) AE_TRY(ae_jinja_expect(p, TOKEN_COMMA));
        if (at_tuple_end(p, how)) break;
        if (how & AE_JINJA_TUPLE_PRIMARY) AE_TRY(parse_primary(p, how, last));
        else if (how & AE_JINJA_TUPLE_NO_COND) AE_TRY(parse_or(p, last));
        else AE_TRY(ae_jinja_parse_expression(p, last));
        last = &(*last)->next;
        more = p->token->type == TOKEN_COMMA;
        is_tuple |= more;
    }
    if (!is_tuple && first) {
        *out = first;
        return AERIE_OK;
    }
    if (!is_tuple && !(how & AE_JINJA_TUPLE_PAREN)) return ae_jinja_unexpected(p, "an expression");
    NEW(p, node, NODE_TUPLE, place);
    node->a = first;
    *out = node;
    return AERIE_OK;
}

/* ---- What follows a primary ------------------------------------------------------------- */

static aerie_status parse_args(ae_jinja_parser *p, ae_jinja_node **out)
{
    bool star = false, star_star = false, keyword = false;
    ae_jinja_node **last = out;
    AE_TRY(ae_jinja_expect(p, TOKEN_LPAREN));
    for (bool first = true; p->token->type != TOKEN_RPAREN; first = false) {
        if (!first) AE_TRY(ae_jinja_expect(p, TOKEN_COMMA));
        if (p->token->type == TOKEN_RPAREN) break;
        NEW(p, arg, NODE_ARG, p->token->place);
        bool wrong;
        if (ae_jinja_skip(p, TOKEN_MUL)) {
            wrong = star || star_star;
            star = true;
            arg->op = ARG_STAR;
        } else if (ae_jinja_skip(p, TOKEN_POW)) {
            wrong = star_star;
            star_star = true;
            arg->op = ARG_STAR_STAR;
        } else if (p->token->type == TOKEN_NAME && p->token[1].type == TOKEN_ASSIGN) {
            wrong = star_star;
            keyword = true;
            arg->op = ARG_KEYWORD;
            arg->name = p->token->as.string;
            for (const ae_jinja_node *other = *out; other; other = other->next)
                wrong |= other->op == ARG_KEYWORD && ae_string_equal(other->name, arg->name);
            p->token += 2;
        } else {
            wrong = star || star_star || keyword;
            arg->op = ARG_PLAIN;
        }
        if (wrong) return ae_jinja_parse_fail(p, AERIE_ERROR_FORMAT, "the arguments of this call are in the wrong order");
        AE_TRY(ae_jinja_parse_expression(p, &arg->a));
        *last = arg;
        last = &arg->next;
    }
    p->token++;
    return AERIE_OK;
}

static aerie_status parse_call(ae_jinja_parser *p, ae_jinja_node **inout)
{
    NEW(p, node, NODE_CALL, p->token->place);
    node->a = *inout;
    AE_TRY(parse_args(p, &node->b));
    *inout = node;
    return AERIE_OK;
}

/* Parses one index: an expression, or a slice. */
static aerie_status parse_index(ae_jinja_parser *p, ae_jinja_node **out)
{
    ae_jinja_node *start = NULL;
    if (p->token->type != TOKEN_COLON) {
        AE_TRY(ae_jinja_parse_expression(p, &start));
        *out = start;
        if (p->token->type != TOKEN_COLON) return AERIE_OK;
    }
    NEW(p, slice, NODE_SLICE, p->token->place);
    slice->a = start;
    p->token++;
    if (p->token->type != TOKEN_COLON && p->token->type != TOKEN_RBRACKET && p->token->type != TOKEN_COMMA)
        AE_TRY(ae_jinja_parse_expression(p, &slice->b));
    if (ae_jinja_skip(p, TOKEN_COLON) && p->token->type != TOKEN_RBRACKET && p->token->type != TOKEN_COMMA)
        AE_TRY(ae_jinja_parse_expression(p, &slice->c));
    *out = slice;
    return AERIE_OK;
}

static aerie_status parse_subscript(ae_jinja_parser *p, ae_jinja_node **inout)
{
    ae_jinja_place place = p->token->place;
    if (ae_jinja_skip(p, TOKEN_DOT)) {
        bool is_name = p->token->type == TOKEN_NAME;
        if (!is_name && p->token->type != TOKEN_INTEGER) return ae_jinja_unexpected(p, "a name or an index");
        NEW(p, node, is_name ? NODE_ATTR : NODE_ITEM, place);
        node->a = *inout;
        if (is_name) {
            node->name = p->token->as.string;
        } else {
            NEW(p, index, NODE_CONST, place);
            index->value = ae_value_int(p->token->as.integer);
            node->b = index;
        }
        p->token++;
        *inout = node;
        return AERIE_OK;
    }
    NEW(p, node, NODE_ITEM, place);
    node->a = *inout;
    p->token++;
    AE_TRY(ae_jinja_enter(p));
    ae_jinja_node *first = NULL, **last = &first;
    size_t n = 0;
    for (; p->token->type != TOKEN_RBRACKET; n++) {
        if (n) AE_TRY(ae_jinja_expect(p, TOKEN_COMMA));
        AE_TRY(parse_index(p, last));
        last = &(*last)->next;
    }
    p->token++;
    p->depth--;
    if (n != 1) {
        NEW(p, tuple, NODE_TUPLE, place);
        for (const ae_jinja_node *item = first; item; item = item->next)
            if (item->type == NODE_SLICE)
                return ae_jinja_parse_fail(p, AERIE_ERROR_UNSUPPORTED, "a slice cannot be part of a tuple");
        tuple->a = first;
        first = tuple;
    }
    node->b = first;
    *inout = node;
    return AERIE_OK;
}

static aerie_status parse_postfix(ae_jinja_parser *p, ae_jinja_node **inout)
{
    for (;;) {
        if (p->token->type == TOKEN_DOT || p->token->type == TOKEN_LBRACKET) AE_TRY(parse_subscript(p, inout));
        else if (p->token->type == TOKEN_LPAREN) AE_TRY(parse_call(p, inout));
        else return AERIE_OK;
    }
}

/* Unknown filters and tests are an error of the template; under an `if`, inline or not, only when the evaluator reaches
 * them. */
static aerie_status check_entry(ae_jinja_parser *p, const ae_jinja_node *node, const char *what)
{
    if (!node->entry && !p->soft && !p->unknown) p->unknown = node;
    if (node->entry && !node->entry->function)
        return ae_jinja_parse_fail(p, AERIE_ERROR_UNSUPPORTED, "the %s '%s' is not offered", what, node->entry->name);
    return AERIE_OK;
}

aerie_status ae_jinja_parse_filters(ae_jinja_parser *p, ae_jinja_node *input, bool block, ae_jinja_node **out)
{
    *out = input;
    while (block || ae_jinja_skip(p, TOKEN_PIPE)) {
        NEW(p, node, NODE_FILTER, p->token->place);
        block = false;
        AE_TRY(ae_jinja_expect_name(p, &node->name));
        if (p->token->type == TOKEN_DOT) return ae_jinja_unexpected(p, "the name of a filter without dots");
        node->a = *out;
        node->entry = ae_jinja_filter_find(node->name);
        AE_TRY(check_entry(p, node, "filter"));
        if (p->token->type == TOKEN_LPAREN) AE_TRY(parse_args(p, &node->b));
        *out = node;
    }
    return AERIE_OK;
}

static bool at_test_argument(const ae_jinja_parser *p)
{
    switch (p->token->type) {
    case TOKEN_NAME: return !ae_jinja_at_name(p, "else") && !ae_jinja_at_name(p, "or") && !ae_jinja_at_name(p, "and");
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
    case TOKEN_LBRACKET:
    case TOKEN_LBRACE: return true;
    default: return false;
    }
}

static aerie_status parse_test(ae_jinja_parser *p, ae_jinja_node **inout)
{
    NEW(p, node, NODE_TEST, p->token->place);
    p->token++;
    bool negated = ae_jinja_skip_name(p, "not");
    node->a = *inout;
    AE_TRY(ae_jinja_expect_name(p, &node->name));
    if (p->token->type == TOKEN_DOT) return ae_jinja_unexpected(p, "the name of a test without dots");
    node->entry = ae_jinja_test_find(node->name);
    AE_TRY(check_entry(p, node, "test"));
    if (p->token->type == TOKEN_LPAREN) {
        AE_TRY(parse_args(p, &node->b));
    } else if (at_test_argument(p)) {
        if (ae_jinja_at_name(p, "is"))
            return ae_jinja_parse_fail(p, AERIE_ERROR_FORMAT, "tests cannot be chained with 'is'");
        NEW(p, arg, NODE_ARG, p->token->place);
        AE_TRY(ae_jinja_enter(p));
        AE_TRY(parse_primary(p, 0, &arg->a));
        p->depth--;
        AE_TRY(parse_postfix(p, &arg->a));
        node->b = arg;
    }
    *inout = node;
    if (negated) {
        NEW(p, inverse, NODE_NOT, node->place);
        inverse->a = node;
        *inout = inverse;
    }
    return AERIE_OK;
}

static aerie_status parse_filters_and_tests(ae_jinja_parser *p, ae_jinja_node **inout)
{
    for (;;) {
        if (p->token->type == TOKEN_PIPE) AE_TRY(ae_jinja_parse_filters(p, *inout, false, inout));
        else if (ae_jinja_at_name(p, "is")) AE_TRY(parse_test(p, inout));
        else if (p->token->type == TOKEN_LPAREN) AE_TRY(parse_call(p, inout));
        else return AERIE_OK;
    }
}

/* ---- Operators, tightest first ---------------------------------------------------------- */

static aerie_status parse_unary(ae_jinja_parser *p, bool with_filters, ae_jinja_node **out)
{
    ae_jinja_place place = p->token->place;
    if (p->token->type == TOKEN_SUB || p->token->type == TOKEN_ADD) {
        NEW(p, node, p->token->type == TOKEN_SUB ? NODE_NEGATE : NODE_PLUS, place);
        p->token++;
        AE_TRY(ae_jinja_enter(p));
        AE_TRY(parse_unary(p, false, &node->a));
        p->depth--;
        *out = node;
    } else {
        AE_TRY(parse_primary(p, 0, out));
    }
    AE_TRY(parse_postfix(p, out));
    return with_filters ? parse_filters_and_tests(p, out) : AERIE_OK;
}

static aerie_status binary(ae_jinja_parser *p, ae_jinja_op op, ae_jinja_node **left,
                           aerie_status (*parse)(ae_jinja_parser *, ae_jinja_node **))
{
    NEW(p, node, NODE_BINARY, p->token->place);
    p->token++;
    node->op = (uint8_t)op;
    node->a = *left;
    AE_TRY(parse(p, &node->b));
    *left = node;
    return AERIE_OK;
}

static aerie_status parse_factor(ae_jinja_parser *p, ae_jinja_node **out) { return parse_unary(p, true, out); }

static aerie_status parse_power(ae_jinja_parser *p, ae_jinja_node **out)
{
    AE_TRY(parse_factor(p, out));
    while (p->token->type == TOKEN_POW) AE_TRY(binary(p, OP_POW, out, parse_factor));
    return AERIE_OK;
}

static aerie_status parse_product(ae_jinja_parser *p, ae_jinja_node **out)
{
    AE_TRY(parse_power(p, out));
    for (;;) {
        switch (p->token->type) {
        case TOKEN_MUL: AE_TRY(binary(p, OP_MUL, out, parse_power)); break;
        case TOKEN_DIV: AE_TRY(binary(p, OP_DIV, out, parse_power)); break;
        case TOKEN_FLOORDIV: AE_TRY(binary(p, OP_FLOORDIV, out, parse_power)); break;
        case TOKEN_MOD: AE_TRY(binary(p, OP_MOD, out, parse_power)); break;
        default: return AERIE_OK;
        }
    }
}

static aerie_status parse_concat(ae_jinja_parser *p, ae_jinja_node **out)
{
    ae_jinja_place place = p->token->place;
    AE_TRY(parse_product(p, out));
    if (p->token->type != TOKEN_TILDE) return AERIE_OK;
    NEW(p, node, NODE_CONCAT, place);
    node->a = *out;
    for (ae_jinja_node *last = node->a; ae_jinja_skip(p, TOKEN_TILDE); last = last->next)
        AE_TRY(parse_product(p, &last->next));
    *out = node;
    return AERIE_OK;
}

static aerie_status parse_sum(ae_jinja_parser *p, ae_jinja_node **out)
{
    AE_TRY(parse_concat(p, out));
    while (p->token->type == TOKEN_ADD || p->token->type == TOKEN_SUB)
        AE_TRY(binary(p, p->token->type == TOKEN_ADD ? OP_ADD : OP_SUB, out, parse_concat));
    return AERIE_OK;
}

static bool skip_comparison(ae_jinja_parser *p, uint8_t *op)
{
    static const uint8_t ops[] = {OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE};
    if (p->token->type >= TOKEN_EQ && p->token->type <= TOKEN_GE) {
        *op = ops[p->token->type - TOKEN_EQ];
        p->token++;
        return true;
    }
    if (ae_jinja_skip_name(p, "in")) {
        *op = OP_IN;
        return true;
    }
    if (ae_jinja_at_name(p, "not") && p->token[1].type == TOKEN_NAME && ae_string_is(p->token[1].as.string, "in")) {
        p->token += 2;
        *op = OP_NOT_IN;
        return true;
    }
    return false;
}

static aerie_status parse_comparison(ae_jinja_parser *p, ae_jinja_node **out)
{
    ae_jinja_place place = p->token->place;
    AE_TRY(parse_sum(p, out));
    ae_jinja_node *first = NULL, **last = &first;
    for (uint8_t op; skip_comparison(p, &op); last = &(*last)->next) {
        NEW(p, operand, NODE_OPERAND, p->token->place);
        operand->op = op;
        AE_TRY(parse_sum(p, &operand->a));
        *last = operand;
    }
    if (!first) return AERIE_OK;
    NEW(p, node, NODE_COMPARE, place);
    node->a = *out;
    node->b = first;
    *out = node;
    return AERIE_OK;
}

static aerie_status parse_not(ae_jinja_parser *p, ae_jinja_node **out)
{
    if (!ae_jinja_at_name(p, "not")) return parse_comparison(p, out);
    NEW(p, node, NODE_NOT, p->token->place);
    p->token++;
    AE_TRY(ae_jinja_enter(p));
    AE_TRY(parse_not(p, &node->a));
    p->depth--;
    *out = node;
    return AERIE_OK;
}

static aerie_status parse_logic(ae_jinja_parser *p, const char *word, ae_jinja_node_type type, ae_jinja_node **out,
                                aerie_status (*parse)(ae_jinja_parser *, ae_jinja_node **))
{
    AE_TRY(parse(p, out));
    while (ae_jinja_at_name(p, word)) {
        NEW(p, node, type, p->token->place);
        p->token++;
        node->a = *out;
        AE_TRY(parse(p, &node->b));
        *out = node;
    }
    return AERIE_OK;
}

static aerie_status parse_and(ae_jinja_parser *p, ae_jinja_node **out)
{
    return parse_logic(p, "and", NODE_AND, out, parse_not);
}

static aerie_status parse_or_level(ae_jinja_parser *p, ae_jinja_node **out)
{
    return parse_logic(p, "or", NODE_OR, out, parse_and);
}

static aerie_status parse_or(ae_jinja_parser *p, ae_jinja_node **out)
{
    AE_TRY(ae_jinja_enter(p));
    AE_TRY(parse_or_level(p, out));
    p->depth--;
    return AERIE_OK;
}

aerie_status ae_jinja_parse_expression(ae_jinja_parser *p, ae_jinja_node **out)
{
    const ae_jinja_node *unknown = p->unknown;
    AE_TRY(parse_or(p, out));
    while (ae_jinja_skip_name(p, "if")) {
        p->unknown = unknown; /* expressions before this `if` may have unknown filters */
        NEW(p, node, NODE_COND, p->token->place);
        bool soft = p->soft;
        p->soft = true;
        node->b = *out;
        AE_TRY(parse_or(p, &node->a));
        if (ae_jinja_skip_name(p, "else")) {
            AE_TRY(ae_jinja_enter(p));
            AE_TRY(ae_jinja_parse_expression(p, &node->c));
            p->depth--;
        }
        p->soft = soft;
        *out = node;
    }
    return AERIE_OK;
}

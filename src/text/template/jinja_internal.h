/* jinja_internal.h - what the parts of the template interpreter share: tokens, syntax tree, run.
 *
 * jinja_lex.c     text to tokens, whitespace control
 * jinja_parse.c   tokens to statements; jinja_expr.c: tokens to expressions
 * jinja_eval.c    statements, scopes, macros; jinja_value.c: expressions and calls
 * jinja_ops.c     what operators mean on values; jinja_access.c: attributes, items, iteration
 * jinja_text.c    values as text: str, repr, tojson, string building
 * jinja_format.c  strftime, % and {} formatting
 * jinja_filter.c, jinja_list_filter.c, jinja_method.c, jinja_builtin.c   what templates can call
 *
 * Lifetimes: tokens and nodes live in the template's heap, values in the run's. Only memory of
 * the two heaps is ever allocated, so an error path frees nothing.
 */
#ifndef AE_TEXT_JINJA_INTERNAL_H
#define AE_TEXT_JINJA_INTERNAL_H

#include "text/template/jinja.h"

/* Python itself gives up at about 90 nested parentheses and 20 nested blocks. */
#define AE_JINJA_MAX_NESTING 150
/* Levels of evaluation: statement in statement, expression in expression, macro in macro. A level takes up to 260 bytes of
 * stack (x86-64, gcc 12 and clang 14 at -O2), so all of them fit the 256 KiB of a thread (unit/jinja_stack). */
#define AE_JINJA_MAX_DEPTH 800
#define AE_JINJA_MAX_RANGE 100000 /* as jinja2's sandbox */
#define AE_JINJA_MAX_ARGS 8       /* parameters of a built-in function */

/* ---- Tokens ----------------------------------------------------------------------------- */

typedef enum ae_jinja_token_type {
    TOKEN_EOF,
    TOKEN_DATA,
    TOKEN_VARIABLE_BEGIN,
    TOKEN_VARIABLE_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_ADD,
    TOKEN_SUB,
    TOKEN_MUL,
    TOKEN_DIV,
    TOKEN_FLOORDIV,
    TOKEN_MOD,
    TOKEN_POW,
    TOKEN_TILDE,
    TOKEN_LPAREN,
    TOKEN_RPAREN,
    TOKEN_LBRACKET,
    TOKEN_RBRACKET,
    TOKEN_LBRACE,
    TOKEN_RBRACE,
    TOKEN_EQ,
    TOKEN_NE,
    TOKEN_LT,
    TOKEN_LE,
    TOKEN_GT,
    TOKEN_GE,
    TOKEN_ASSIGN,
    TOKEN_DOT,
    TOKEN_COLON,
    TOKEN_PIPE,
    TOKEN_COMMA,
    TOKEN_SEMICOLON
} ae_jinja_token_type;

/* A place in the template; both from 1, columns in characters. */
typedef struct ae_jinja_place {
    uint32_t line, column;
} ae_jinja_place;

/* A format and its arguments. */
#define AE_JINJA_PLACE "template line %u, column %u: "
#define AE_JINJA_AT(place) (unsigned)(place).line, (unsigned)(place).column

typedef struct ae_jinja_token {
    uint8_t type; /* ae_jinja_token_type */
    ae_jinja_place place;
    union {
        const ae_string *string; /* NAME, STRING, DATA */
        int64_t integer;
        double number;
    } as;
} ae_jinja_token;

/* ---- Syntax tree ------------------------------------------------------------------------ */

typedef enum ae_jinja_node_type {
    /* expressions */
    NODE_CONST,   /* value */
    NODE_NAME,    /* name */
    NODE_TUPLE,   /* a: list of items */
    NODE_LIST,    /* a: list of items */
    NODE_DICT,    /* a: list of PAIR */
    NODE_PAIR,    /* a: key, b: value */
    NODE_COND,    /* a: test, b: then, c: else or NULL */
    NODE_OR,      /* a, b */
    NODE_AND,     /* a, b */
    NODE_NOT,     /* a */
    NODE_COMPARE, /* a, b: list of OPERAND */
    NODE_OPERAND, /* op: ae_jinja_op, a */
    NODE_BINARY,  /* op: ae_jinja_op, a, b */
    NODE_CONCAT,  /* a: list */
    NODE_NEGATE,  /* a */
    NODE_PLUS,    /* a */
    NODE_ATTR,    /* a, name */
    NODE_ITEM,    /* a, b: index or SLICE */
    NODE_SLICE,   /* a, b, c: start, stop, step, each may be NULL */
    NODE_CALL,    /* a: callee, b: list of ARG */
    NODE_ARG,     /* op: ae_jinja_arg, a, name for keywords */
    NODE_FILTER,  /* a: input, NULL for what a block captured; name, b: list of ARG; the table's entry */
    NODE_TEST,    /* a, name, b: list of ARG, entry */
    NODE_NSREF,   /* assignment only: name, b: NAME whose name is the attribute */
    /* statements */
    NODE_DATA,      /* value */
    NODE_OUTPUT,    /* a: list of expressions */
    NODE_IF,        /* a: list of BRANCH */
    NODE_BRANCH,    /* a: test, NULL for else; b: body */
    NODE_FOR,       /* a: target, b: iterable, c: body, d: else body; e: filter or NULL; flag: recursive */
    NODE_SET,       /* a: target, b: value */
    NODE_SET_BLOCK, /* a: target, b: FILTER chain or NULL, c: body */
    NODE_MACRO,     /* name, a: list of PARAM, b: body; op: AE_JINJA_USES_ bits */
    NODE_PARAM,     /* name, a: default or NULL */
    NODE_CALL_BLOCK, /* a: CALL, b: MACRO with the body */
    NODE_FILTER_BLOCK, /* a: FILTER chain, b: body */
    NODE_WITH,      /* a: list of SET, b: body */
    NODE_BLOCK,     /* b: body; flag: scoped */
    NODE_SCOPE,     /* b: body */
    NODE_BREAK,
    NODE_CONTINUE
} ae_jinja_node_type;

typedef enum ae_jinja_op {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN
} ae_jinja_op;

typedef enum ae_jinja_arg { ARG_PLAIN, ARG_KEYWORD, ARG_STAR, ARG_STAR_STAR } ae_jinja_arg;

#define AE_JINJA_USES_CALLER 1
#define AE_JINJA_USES_KWARGS 2
#define AE_JINJA_USES_VARARGS 4

typedef struct ae_jinja_node {
    uint8_t type; /* ae_jinja_node_type */
    uint8_t op;
    bool flag;
    ae_jinja_place place;
    struct ae_jinja_node *next; /* next node of the list that the node belongs to */
    struct ae_jinja_node *a, *b, *c, *d, *e;
    const ae_string *name;
    ae_value value;
    const struct ae_jinja_entry *entry; /* NULL: there is no such filter or test; fails when it is reached */
} ae_jinja_node;

struct ae_template {
    ae_value_heap heap;
    ae_jinja_token *tokens; /* [n_tokens], the last one is EOF; NULL once parsed */
    size_t n_tokens;
    ae_jinja_node *body;
};

/* Fills tokens. */
aerie_status ae_jinja_lex(ae_template *tmpl, const char *text, size_t n, aerie_error *error);

/* ---- Parser ----------------------------------------------------------------------------- */

typedef struct ae_jinja_parser {
    ae_template *tmpl;
    const ae_jinja_token *token; /* the current one */
    aerie_error *error;
    int depth;
    int n_loops;   /* number of loops around this place, in the innermost macro */
    bool soft;     /* inside `if`: unknown filters and tests fail only when reached */
    uint8_t uses;  /* AE_JINJA_USES_ bits seen in the innermost macro */
    /* First unknown filter or test that is an error, unless an inline `if` follows. */
    const ae_jinja_node *unknown;
} ae_jinja_parser;

aerie_status ae_jinja_parse_fail(ae_jinja_parser *p, aerie_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
ae_jinja_node *ae_jinja_node_new(ae_jinja_parser *p, ae_jinja_node_type type, ae_jinja_place place); /* NULL: failed */
bool ae_jinja_at_name(const ae_jinja_parser *p, const char *name);
bool ae_jinja_skip(ae_jinja_parser *p, ae_jinja_token_type type);
bool ae_jinja_skip_name(ae_jinja_parser *p, const char *name);
aerie_status ae_jinja_expect(ae_jinja_parser *p, ae_jinja_token_type type);
aerie_status ae_jinja_expect_name(ae_jinja_parser *p, const ae_string **name);
aerie_status ae_jinja_unexpected(ae_jinja_parser *p, const char *expected);
aerie_status ae_jinja_enter(ae_jinja_parser *p); /* one level deeper; pair with p->depth-- */

/* Bits for ae_jinja_parse_tuple. */
#define AE_JINJA_TUPLE_NO_COND 1  /* no inline if */
#define AE_JINJA_TUPLE_PAREN 2    /* inside parentheses: may be empty */
#define AE_JINJA_TUPLE_PRIMARY 4  /* items are primaries: assignment targets */
#define AE_JINJA_TUPLE_END_IN 8   /* `in` ends it */
#define AE_JINJA_TUPLE_END_RECURSIVE 16
#define AE_JINJA_TUPLE_NAMESPACE 32 /* items may be namespace.attribute */
aerie_status ae_jinja_parse_tuple(ae_jinja_parser *p, int how, ae_jinja_node **out);
aerie_status ae_jinja_parse_expression(ae_jinja_parser *p, ae_jinja_node **out);
/* A filter chain applied to `input`; `block`: the pipe in front of the first one is missing. */
aerie_status ae_jinja_parse_filters(ae_jinja_parser *p, ae_jinja_node *input, bool block, ae_jinja_node **out);

/* ---- Run -------------------------------------------------------------------------------- */

/* A growing text in the run's heap, with the origin of each byte. */
typedef struct ae_jinja_text {
    char *data;
    size_t n, capacity;
    uint8_t *map;   /* [capacity] origins, as in ae_string; NULL while all bytes have the same origin */
    uint8_t origin; /* origin of all bytes so far, if there is no map */
    uint8_t pen;    /* origin of the bytes that ae_jinja_text_add, _adds and _code write; the template's unless set */
} ae_jinja_text;

typedef struct ae_jinja_binding {
    struct ae_jinja_binding *next;
    const ae_string *name;
    ae_value value;
} ae_jinja_binding;

typedef struct ae_jinja_scope {
    struct ae_jinja_scope *parent; /* NULL: the template's top level, then root object, then globals */
    ae_jinja_binding *first;
} ae_jinja_scope;

typedef enum ae_jinja_flow { FLOW_NORMAL, FLOW_BREAK, FLOW_CONTINUE } ae_jinja_flow;

typedef struct ae_jinja_run {
    ae_value_heap heap;
    aerie_error *error;
    ae_jinja_place place;
    uint64_t steps_left;
    int depth;
    size_t max_output_bytes;
    const struct tm *now;
    ae_value root;
    ae_jinja_scope *top, *scope;
    ae_jinja_binding *spare; /* bindings of scopes that are gone, for reuse */
    uint64_t n_macros;       /* number of macros made so far; each keeps the scope that it was made in */
    ae_jinja_text *output; /* where statements write */
    ae_jinja_flow flow;
    const ae_string *name_loop, *name_caller, *name_kwargs, *name_varargs;
} ae_jinja_run;

/* Evaluated arguments of one call. */
typedef struct ae_jinja_args {
    ae_value *items; /* [n] */
    size_t n;
    const ae_string **names; /* [n_named] */
    ae_value *named;         /* [n_named] */
    size_t n_named;
} ae_jinja_args;

/* Arguments of a built-in function. */
typedef struct ae_jinja_call {
    const struct ae_jinja_entry *entry;
    ae_value self;                   /* the filtered or tested value, the object of a method */
    ae_value arg[AE_JINJA_MAX_ARGS]; /* by parameter; undefined if not given */
    bool has[AE_JINJA_MAX_ARGS];
    const ae_jinja_args *args; /* as they came */
} ae_jinja_call;

typedef aerie_status ae_jinja_function(ae_jinja_run *r, const ae_jinja_call *call, ae_value *out);

/* One line in a table of filters, tests, methods or globals. */
typedef struct ae_jinja_entry {
    const char *name;
    ae_jinja_function *function; /* NULL: exists in jinja2, but not here */
    const char *params;          /* names with commas between them; "*": accepts anything, and the function looks at args
                                  * itself */
    uint8_t n_required;
    uint8_t detail; /* for functions that serve several entries */
} ae_jinja_entry;

typedef struct ae_jinja_callable {
    const ae_jinja_entry *entry; /* built-in: global or method of `self` */
    ae_value self;
    const ae_jinja_node *macro; /* else a macro ... */
    ae_jinja_scope *closure;    /* ... and the scope in which it was defined */
} ae_jinja_callable;

typedef struct ae_jinja_loop {
    const ae_value *items; /* [n] */
    size_t n, i;
    int depth0;
    bool has_changed_value;
    ae_value changed;
    const ae_jinja_node *node; /* of recursive loops: the loop that loop(...) runs again */
    ae_jinja_scope *scope;     /* and where */
} ae_jinja_loop;

#define AE_JINJA_CHARGE(r, n) AE_TRY(ae_jinja_charge((r), (n)))

/* "template line N, column M: sentence" */
aerie_status ae_jinja_fail(ae_jinja_run *r, aerie_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
aerie_status ae_jinja_fail_heap(ae_jinja_run *r); /* the heap said no */
aerie_status ae_jinja_charge(ae_jinja_run *r, size_t n_steps);
aerie_status ae_jinja_descend(ae_jinja_run *r); /* one level deeper; pair with r->depth-- */

/* jinja_eval.c, jinja_value.c */
aerie_status ae_jinja_eval(ae_jinja_run *r, const ae_jinja_node *node, ae_value *out);
aerie_status ae_jinja_apply_filters(ae_jinja_run *r, const ae_jinja_node *filter, ae_value input, ae_value *out);
aerie_status ae_jinja_eval_args(ae_jinja_run *r, const ae_jinja_node *list, ae_jinja_args *out);
aerie_status ae_jinja_call_value(ae_jinja_run *r, ae_value callee, const ae_jinja_args *args, ae_value *out);
aerie_status ae_jinja_call_entry(ae_jinja_run *r, const ae_jinja_entry *entry, ae_value self,
                                 const ae_jinja_args *args, ae_value *out);
aerie_status ae_jinja_call_macro(ae_jinja_run *r, const ae_jinja_callable *macro, const ae_jinja_args *args,
                                 ae_value *out);
aerie_status ae_jinja_run_loop(ae_jinja_run *r, const ae_jinja_node *node, ae_value items, int depth0);

/* jinja_ops.c */
const char *ae_jinja_type_name(ae_value v);
bool ae_jinja_truth(ae_value v);
bool ae_jinja_is_number(ae_value v);            /* int, float or bool */
bool ae_jinja_to_int(ae_value v, int64_t *out); /* int or bool */
double ae_jinja_to_double(ae_value v);
aerie_status ae_jinja_fail_undefined(ae_jinja_run *r, ae_value v);
aerie_status ae_jinja_equal(ae_jinja_run *r, ae_value a, ae_value b, bool *out);
/* *order: -1, 0, 1, or 2 when neither is less (NaN). Fails where Python's `<` does. */
aerie_status ae_jinja_order(ae_jinja_run *r, ae_value a, ae_value b, int *order);
aerie_status ae_jinja_binary(ae_jinja_run *r, ae_jinja_op op, ae_value a, ae_value b, ae_value *out);
aerie_status ae_jinja_compare(ae_jinja_run *r, ae_jinja_op op, ae_value a, ae_value b, bool *out);
aerie_status ae_jinja_negate(ae_jinja_run *r, ae_value v, bool negative, ae_value *out);
aerie_status ae_jinja_undefined(ae_jinja_run *r, const char *owner, const ae_string *name, ae_value *out);
aerie_status ae_jinja_get_attr(ae_jinja_run *r, ae_value object, const ae_string *name, ae_value *out);
aerie_status ae_jinja_get_item(ae_jinja_run *r, ae_value object, ae_value key, ae_value *out);
aerie_status ae_jinja_slice(ae_jinja_run *r, ae_value object, ae_value start, ae_value stop, ae_value step,
                            ae_value *out);
/* Returns the value's items as an ARRAY, which is the caller's own if `fresh`, and may otherwise be shared. Refuses what Python
 * cannot iterate. */
aerie_status ae_jinja_items(ae_jinja_run *r, ae_value v, bool fresh, ae_value *out);
aerie_status ae_jinja_length(ae_jinja_run *r, ae_value v, size_t *out);
/* Index into a string: byte offset of character i <= n_chars. */
size_t ae_jinja_char_offset(const ae_string *s, size_t i);
/* Finds needle in hay at or after `from`: its byte offset, SIZE_MAX if absent. Charges for the search. */
aerie_status ae_jinja_find(ae_jinja_run *r, const ae_string *hay, size_t from, const ae_string *needle, size_t *at);

/* jinja_text.c */
aerie_status ae_jinja_text_add(ae_jinja_run *r, ae_jinja_text *t, const char *bytes, size_t n);
aerie_status ae_jinja_text_adds(ae_jinja_run *r, ae_jinja_text *t, const char *bytes);
/* Adds bytes of a string, or of another text, with their own origins. Everything that is copied from strings goes this way. */
aerie_status ae_jinja_text_part(ae_jinja_run *r, ae_jinja_text *t, const ae_string *s, size_t from, size_t n);
aerie_status ae_jinja_text_join(ae_jinja_run *r, ae_jinja_text *t, const ae_jinja_text *other, size_t from, size_t n);
/* A string of its own. */
aerie_status ae_jinja_part(ae_jinja_run *r, const ae_string *s, size_t from, size_t n, ae_value *out);
static inline uint8_t ae_jinja_origin_at(const ae_string *s, size_t i)
{
    return s->map ? s->map[i] : s->origin;
}
aerie_status ae_jinja_text_value(ae_jinja_run *r, const ae_jinja_text *t, ae_value *out);
aerie_status ae_jinja_text_code(ae_jinja_run *r, ae_jinja_text *t, uint32_t code);
aerie_status ae_jinja_write_str(ae_jinja_run *r, ae_jinja_text *t, ae_value v);
aerie_status ae_jinja_write_repr(ae_jinja_run *r, ae_jinja_text *t, ae_value v);
aerie_status ae_jinja_str(ae_jinja_run *r, ae_value v, ae_value *out); /* a STRING; keeps `safe` */
aerie_status ae_jinja_string(ae_jinja_run *r, const char *text, size_t n, ae_value *out);
aerie_status ae_jinja_escape(ae_jinja_run *r, ae_value v, ae_value *out); /* HTML, gives a safe STRING */
ae_jinja_function ae_jinja_tojson;

/* jinja_format.c */
ae_jinja_function ae_jinja_strftime, ae_jinja_str_format;
aerie_status ae_jinja_percent(ae_jinja_run *r, ae_value format, ae_value args, ae_value *out);

/* Tables. NULL: there is no such entry. `*known`: jinja2 has it. */
const ae_jinja_entry *ae_jinja_filter_find(const ae_string *name);
const ae_jinja_entry *ae_jinja_list_filter_find(const ae_string *name);
const ae_jinja_entry *ae_jinja_test_find(const ae_string *name);
const ae_jinja_entry *ae_jinja_global_find(const ae_string *name);
const ae_jinja_entry *ae_jinja_table_find(const ae_jinja_entry *table, size_t n, const ae_string *name);
/* Finds a method by the type of the object. *hidden is set if the method exists but templates may not use it. */
const ae_jinja_entry *ae_jinja_method_find(ae_value self, const ae_string *name, bool *hidden);

#endif

/* check.c - the end of building a grammar: its rules are checked, its automaton is packed.
 *
 * Refused: a rule that is used but not defined; a rule that can call itself before it consumes a byte (left recursion),
 * since following empty moves and calls would then never end. Everything takes time linear in nodes and edges.
 */
#include "text/grammar/build.h"

#include <stdio.h>

/* Tables of one check. Nodes belong to one rule each, so walks over all rules visit a node once. */
typedef struct check {
    const ae_gbuild *b;
    uint32_t cycle;     /* a rule of the cycle that was found */
    bool *nullable;     /* [n_nodes] the end of the node's rule can be reached from here without a byte */
    bool *seen;         /* [n_nodes] */
    uint32_t *source;   /* [n_edges] the node that each edge belongs to */
    uint32_t *in_first; /* [n_nodes] first edge into a node */
    uint32_t *in_next;  /* [n_edges] */
    uint32_t *by_ret;   /* [n_nodes] first CALL that returns to this node */
    uint32_t *by_rule;  /* [n_rules] first CALL of a rule */
    uint32_t *ret_next, *rule_next; /* [n_nodes] */
    uint32_t *rule_of;  /* [n_nodes] the rule that begins here, AE_GNONE */
    uint32_t *work;     /* [n_nodes] */
    uint32_t *callees;  /* [n_nodes] rules that may be called before the first byte, by caller */
    uint32_t *begin;    /* [n_rules + 1] a caller's first entry of callees */
    uint32_t *stack;    /* [2 * n_rules] */
    uint8_t *color;     /* [n_rules] */
} check;

static void plan(ae_layout *l, check *c)
{
    const uint32_t n = c->b->n_nodes, e = c->b->n_edges, r = c->b->n_rules;
    c->nullable = ae_layout_add(l, n, sizeof *c->nullable);
    c->seen = ae_layout_add(l, n, sizeof *c->seen);
    c->source = ae_layout_add(l, e, sizeof(uint32_t));
    c->in_first = ae_layout_add(l, n, sizeof(uint32_t));
    c->in_next = ae_layout_add(l, e, sizeof(uint32_t));
    c->by_ret = ae_layout_add(l, n, sizeof(uint32_t));
    c->by_rule = ae_layout_add(l, r, sizeof(uint32_t));
    c->ret_next = ae_layout_add(l, n, sizeof(uint32_t));
    c->rule_next = ae_layout_add(l, n, sizeof(uint32_t));
    c->rule_of = ae_layout_add(l, n, sizeof(uint32_t));
    c->work = ae_layout_add(l, n, sizeof(uint32_t));
    c->callees = ae_layout_add(l, n, sizeof(uint32_t));
    c->begin = ae_layout_add(l, (size_t)r + 1, sizeof(uint32_t));
    c->stack = ae_layout_add(l, (size_t)r * 2, sizeof(uint32_t));
    c->color = ae_layout_add(l, r, sizeof(uint8_t));
}

static void index_moves(check *c)
{
    const ae_gbuild *b = c->b;
    for (uint32_t i = 0; i < b->n_nodes; i++) c->in_first[i] = c->by_ret[i] = c->rule_of[i] = AE_GNONE;
    for (uint32_t i = 0; i < b->n_rules; i++) {
        c->by_rule[i] = AE_GNONE;
        c->rule_of[b->rules[i].start] = i;
    }
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        const ae_gnode *node = &b->nodes[i];
        if (node->kind == AE_GNODE_SPLIT) {
            for (uint32_t e = node->a; e != AE_GNONE; e = b->edges[e].next) {
                c->source[e] = i;
                c->in_next[e] = c->in_first[b->edges[e].target];
                c->in_first[b->edges[e].target] = e;
            }
        } else if (node->kind == AE_GNODE_CALL) {
            c->ret_next[i] = c->by_ret[node->b];
            c->by_ret[node->b] = i;
            c->rule_next[i] = c->by_rule[node->a];
            c->by_rule[node->a] = i;
        }
    }
}

/* Sets nullable by walking backwards from the end of every rule. */
static void find_nullable(check *c)
{
    const ae_gbuild *b = c->b;
    uint32_t n = 0;
#define MARK(x)                           \
    do {                                  \
        const uint32_t mark_node = (x);   \
        if (!c->nullable[mark_node]) {    \
            c->nullable[mark_node] = true; \
            c->work[n++] = mark_node;     \
        }                                 \
    } while (0)
    for (uint32_t i = 0; i < b->n_nodes; i++)
        if (b->nodes[i].kind == AE_GNODE_RETURN) MARK(i);
    while (n) {
        const uint32_t at = c->work[--n];
        for (uint32_t e = c->in_first[at]; e != AE_GNONE; e = c->in_next[e]) MARK(c->source[e]);
        for (uint32_t call = c->by_ret[at]; call != AE_GNONE; call = c->ret_next[call])
            if (c->nullable[b->rules[b->nodes[call].a].start]) MARK(call);
        if (c->rule_of[at] == AE_GNONE) continue;
        for (uint32_t call = c->by_rule[c->rule_of[at]]; call != AE_GNONE; call = c->rule_next[call])
            if (c->nullable[b->nodes[call].b]) MARK(call);
    }
#undef MARK
}

/* Lists the rules that each rule may call before its first byte. */
static void find_callees(check *c)
{
    const ae_gbuild *b = c->b;
    uint32_t n_callees = 0;
    for (uint32_t r = 0; r < b->n_rules; r++) {
        uint32_t n = 0;
        c->begin[r] = n_callees;
        c->seen[b->rules[r].start] = true;
        c->work[n++] = b->rules[r].start;
        while (n) {
            const ae_gnode *node = &b->nodes[c->work[--n]];
            if (node->kind == AE_GNODE_SPLIT) {
                for (uint32_t e = node->a; e != AE_GNONE; e = b->edges[e].next) {
                    const uint32_t to = b->edges[e].target;
                    if (!c->seen[to]) c->seen[to] = true, c->work[n++] = to;
                }
            } else if (node->kind == AE_GNODE_CALL) {
                c->callees[n_callees++] = node->a;
                if (c->nullable[b->rules[node->a].start] && !c->seen[node->b])
                    c->seen[node->b] = true, c->work[n++] = node->b;
            }
        }
    }
    c->begin[b->n_rules] = n_callees;
}

/* Reports the cycle, which is on the stack from `from` on, with the names of its first named rules. */
static aerie_status fail_cycle(check *c, const char *what, uint32_t from, uint32_t n, aerie_error *error)
{
    const ae_gbuild *b = c->b;
    const ae_grule *first = NULL;
    char chain[256] = "";
    size_t length = 0;
    uint32_t shown = 0;
    for (uint32_t i = from; i < n; i++) {
        const ae_grule *rule = &b->rules[c->stack[2 * i]];
        c->cycle = c->stack[2 * i];
        if (!rule->name) continue;
        if (!first) first = rule;
        if (shown++ < 4) length += (size_t)snprintf(chain + length, sizeof chain - length, "%.40s -> ", rule->name);
        else if (shown == 5) length += (size_t)snprintf(chain + length, sizeof chain - length, "... -> ");
    }
    if (!first) return ae_fail(error, AERIE_ERROR_FORMAT, "%s: a rule calls itself before it consumes anything", what);
    snprintf(chain + length, sizeof chain - length, "%.40s", first->name);
    if (!first->line)
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s: %.80s refers to itself without anything written between (%s)", what,
                       first->name, chain);
    return ae_fail(error, AERIE_ERROR_FORMAT,
                   "%s line %u, column %u: rule '%.60s' is left-recursive: it refers to itself before it consumes anything "
                   "(%s); move the recursion to the end of the rule", what, first->line, first->column, first->name, chain);
}

enum { WHITE, GREY, BLACK };

static aerie_status find_cycle(check *c, const char *what, aerie_error *error)
{
    const ae_gbuild *b = c->b;
    for (uint32_t r = 0; r < b->n_rules; r++) {
        if (c->color[r] != WHITE) continue;
        uint32_t n = 0; /* size of a stack of (rule, next callee) */
        c->stack[0] = r, c->stack[1] = c->begin[r], n = 1;
        c->color[r] = GREY;
        while (n) {
            const uint32_t rule = c->stack[2 * n - 2];
            uint32_t *next = &c->stack[2 * n - 1];
            if (*next == c->begin[rule + 1]) {
                c->color[rule] = BLACK;
                n--;
                continue;
            }
            const uint32_t callee = c->callees[(*next)++];
            if (c->color[callee] == BLACK) continue;
            if (c->color[callee] == GREY) {
                uint32_t from = n - 1;
                while (c->stack[2 * from] != callee) from--;
                return fail_cycle(c, what, from, n, error);
            }
            c->color[callee] = GREY;
            c->stack[2 * n] = callee, c->stack[2 * n + 1] = c->begin[callee];
            n++;
        }
    }
    return AERIE_OK;
}

static aerie_status check_rules(ae_gbuild *b, const char *what, aerie_error *error)
{
    for (uint32_t i = 0; i < b->n_rules; i++) {
        const ae_grule *rule = &b->rules[i];
        if (rule->start != AE_GNONE) continue;
        if (!rule->line)
            return ae_fail(error, AERIE_ERROR_FORMAT, "%s: there is no rule '%.60s' to begin with", what,
                           rule->name ? rule->name : "");
        return ae_fail(error, AERIE_ERROR_FORMAT, "%s line %u, column %u: rule '%.60s' is used, but not defined", what,
                       rule->line, rule->column, rule->name);
    }
    check c = {.b = b, .cycle = AE_GNONE};
    ae_layout l = {0};
    plan(&l, &c);
    void *block = l.overflow ? NULL : ae_alloc_aligned(1, l.bytes);
    if (!block) return ae_fail_memory(error, "a grammar's check", l.bytes);
    l = (ae_layout){.base = block};
    plan(&l, &c);
    index_moves(&c);
    find_nullable(&c);
    find_callees(&c);
    const aerie_status status = find_cycle(&c, what, error);
    ae_free(block);
    b->cycle = c.cycle;
    return status;
}

/* ---- Packing ------------------------------------------------------------------------------------- */

/* Returns the node reached from `node` by empty moves without a choice. Stops after 256 moves; any node on the way is
 * correct. */
static uint32_t behind(const ae_gbuild *b, uint32_t node)
{
    for (int i = 0; i < 256; i++) {
        const ae_gnode *n = &b->nodes[node];
        if (n->kind != AE_GNODE_SPLIT || n->a == AE_GNONE || b->edges[n->a].next != AE_GNONE) break;
        node = b->edges[n->a].target;
    }
    return node;
}

static void shorten(ae_gbuild *b)
{
    /* a single move stays single, so the order of these loops does not matter */
    for (uint32_t i = 0; i < b->n_edges; i++) b->edges[i].target = behind(b, b->edges[i].target);
    for (uint32_t i = 0; i < b->n_nodes; i++)
        if (b->nodes[i].kind == AE_GNODE_CALL) b->nodes[i].b = behind(b, b->nodes[i].b);
}

static void find_classes(const ae_gbuild *b, ae_grammar *g)
{
    bool border[257] = {false}; /* a class begins here */
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        if (b->nodes[i].kind != AE_GNODE_BYTES) continue;
        for (uint32_t e = b->nodes[i].a; e != AE_GNONE; e = b->edges[e].next)
            border[b->edges[e].lo] = border[b->edges[e].hi + 1] = true;
    }
    uint32_t n = 0;
    for (int i = 0; i < 256; i++) {
        if (i == 0 || border[i]) g->byte_of[n++] = (uint8_t)i;
        g->class_of[i] = (uint8_t)(n - 1);
    }
    g->n_classes = n;
}

aerie_status ae_gbuild_finish(ae_gbuild *b, uint32_t root, const char *what, ae_grammar **out)
{
    *out = NULL;
    if (b->status != AERIE_OK) return b->status;
    AE_TRY(check_rules(b, what, b->error));
    shorten(b);
    ae_grammar *g = ae_alloc(1, sizeof *g);
    uint32_t *rules = ae_alloc(b->n_rules, sizeof *rules);
    if (!g || !rules) {
        ae_free(g);
        ae_free(rules);
        return ae_fail_memory(b->error, "a grammar", sizeof *g + b->n_rules * sizeof *rules);
    }
    for (uint32_t i = 0; i < b->n_rules; i++) rules[i] = behind(b, b->rules[i].start);
    *g = (ae_grammar){.nodes = b->nodes, .edges = b->edges, .rules = rules, .n_nodes = b->n_nodes, .n_edges = b->n_edges,
                      .n_rules = b->n_rules, .root = root};
    atomic_init(&g->n_owners, 1);
    find_classes(b, g);
    b->nodes = NULL; /* handed over */
    b->edges = NULL;
    *out = g;
    return AERIE_OK;
}

/* ---- Owners ------------------------------------------------------------------------------------------ */

ae_grammar *ae_grammar_share(const ae_grammar *grammar)
{
    ae_grammar *g = (ae_grammar *)grammar; /* only the count of owners changes */
    if (g) atomic_fetch_add(&g->n_owners, 1);
    return g;
}

void ae_grammar_free(ae_grammar *g)
{
    if (!g || atomic_fetch_sub(&g->n_owners, 1) > 1) return;
    ae_free(g->nodes);
    ae_free(g->edges);
    ae_free(g->rules);
    ae_free(g);
}

/* build.h - the automaton of a grammar, and the builder that GBNF and schemas are compiled with.
 *
 * Owns: the nodes, edges and rules of a grammar under construction.
 *
 * A piece is a part of an automaton with one entry and one exit: its end is a SPLIT node without edges, which gets a move
 * to whatever follows. A piece is used once; a rule may be called any number of times. Failures stick: after the
 * first one every call does nothing, and ae_gbuild_finish returns it.
 */
#ifndef AE_TEXT_GRAMMAR_BUILD_H
#define AE_TEXT_GRAMMAR_BUILD_H

#include <stdatomic.h>

#include "base/mem.h"
#include "text/grammar/grammar.h"

#define AE_GNONE UINT32_MAX

enum {
    AE_GNODE_SPLIT,  /* empty moves along all edges; a dead end if there are none */
    AE_GNODE_BYTES,  /* moves along the edges whose range holds the next byte */
    AE_GNODE_CALL,   /* calls rule a, then goes on at node b */
    AE_GNODE_RETURN, /* end of a rule */
};

typedef struct ae_gnode {
    uint8_t kind;
    uint32_t a; /* SPLIT, BYTES: first edge or AE_GNONE; CALL: rule */
    uint32_t b; /* CALL: node after it */
} ae_gnode;

typedef struct ae_gedge {
    uint8_t lo, hi;  /* BYTES */
    uint32_t target; /* node */
    uint32_t next;   /* edge of the same node, or AE_GNONE */
} ae_gedge;

struct aerie_grammar {
    atomic_uint n_owners;
    ae_gnode *nodes; /* [n_nodes] */
    ae_gedge *edges; /* [n_edges] */
    uint32_t *rules; /* [n_rules] first node */
    uint32_t n_nodes, n_edges, n_rules;
    uint32_t root;          /* rule */
    uint32_t n_classes;     /* bytes that no edge distinguishes are in one class */
    uint8_t class_of[256];
    uint8_t byte_of[256];   /* [n_classes] one byte of each class */
};

typedef struct ae_grule {
    const char *name;   /* NULL: an internal rule for a repetition */
    uint32_t start;     /* AE_GNONE: not defined */
    uint32_t line, column; /* where it was defined, or first used; 0: nowhere in a text */
} ae_grule;

typedef struct ae_gbuild {
    ae_arena names;
    ae_gnode *nodes;
    ae_gedge *edges;
    ae_grule *rules;
    uint32_t *table; /* [n_table] rules by name: rule + 1, or 0 */
    uint32_t n_nodes, nodes_capacity, n_edges, edges_capacity, n_rules, rules_capacity, n_table;
    aerie_status status; /* of the first failure */
    uint32_t cycle;      /* a left-recursive rule that ae_gbuild_finish found, or AE_GNONE */
    aerie_error *error;
} ae_gbuild;

typedef struct ae_gpiece {
    uint32_t start, end;
} ae_gpiece;

typedef struct ae_grange {
    uint32_t lo, hi; /* code points */
} ae_grange;

void ae_gbuild_init(ae_gbuild *build, aerie_error *error);
void ae_gbuild_free(ae_gbuild *build);
/* Records a failure whose message has been written to the builder's error. */
void ae_gbuild_fail(ae_gbuild *build, aerie_status status);

ae_gpiece ae_gbuild_empty(ae_gbuild *build);
/* Makes a piece that matches no text, not even the empty one. */
ae_gpiece ae_gbuild_never(ae_gbuild *build);
ae_gpiece ae_gbuild_bytes(ae_gbuild *build, const char *bytes, size_t n);
ae_gpiece ae_gbuild_text(ae_gbuild *build, const char *text);
/* A byte of a word that stands for a text of the rule given with the words; it does not occur in UTF-8. */
#define AE_GWORD_CALL 0xFF
typedef struct ae_gword {
    const char *bytes; /* [n] n > 0 */
    size_t n;
} ae_gword;
int ae_gword_compare(const void *a, const void *b); /* for qsort */
/* Makes a piece that matches one of the words, sorted by ae_gword_compare. Common prefixes are shared, so that a byte leads to
 * few stacks however many words there are. */
ae_gpiece ae_gbuild_words(ae_gbuild *build, const ae_gword *words, size_t n, uint32_t rule);
/* Makes a piece that matches one code point of the ranges; surrogates are left out. */
ae_gpiece ae_gbuild_class(ae_gbuild *build, const ae_grange *ranges, size_t n);
ae_gpiece ae_gbuild_call(ae_gbuild *build, uint32_t rule);
ae_gpiece ae_gbuild_then(ae_gbuild *build, ae_gpiece first, ae_gpiece second);
/* Adds a choice to `choices`, which was made by ae_gbuild_never. */
void ae_gbuild_or(ae_gbuild *build, ae_gpiece choices, ae_gpiece piece);
/* max = AE_GNONE: unlimited. */
ae_gpiece ae_gbuild_repeat(ae_gbuild *build, ae_gpiece piece, uint32_t min, uint32_t max);
/* Adds a node to an automaton made by hand; 0 after a failure. */
uint32_t ae_gbuild_node(ae_gbuild *build, uint8_t kind);
/* Adds an edge to a BYTES node. */
void ae_gbuild_edge(ae_gbuild *build, uint32_t from, uint8_t lo, uint8_t hi, uint32_t to);
/* Adds an empty move to a SPLIT node. */
void ae_gbuild_move(ae_gbuild *build, uint32_t from, uint32_t to);

/* ---- product.c: the intersection of a piece and a second automaton ------------------------------- */

/* A deterministic automaton over bytes. */
typedef struct ae_gmonitor {
    const void *context;
    uint32_t start;
    uint32_t (*step)(const void *context, uint32_t state, uint8_t byte); /* AE_GNONE: refused */
    bool (*may_end)(const void *context, uint32_t state);
} ae_gmonitor;

/* Builds the piece of the texts that both `piece` and the monitor accept, and uses `piece` up; out->start is AE_GNONE if there
 * are none. Rules that the piece calls are copied into the product. Returns false, without a failure and with `piece`
 * unchanged, if the product has more than max_places pairs of a node and a state, or if a rule is not defined yet. */
bool ae_gbuild_both(ae_gbuild *build, ae_gpiece piece, const ae_gmonitor *monitor, uint32_t max_places, ae_gpiece *out);

/* A set of triples, numbered in the order in which they were added. All zero is empty. */
typedef struct ae_gkeys {
    uint32_t (*items)[3]; /* [n] */
    uint32_t *table;      /* [table_size] item + 1, or 0 */
    uint32_t n, capacity, table_size;
} ae_gkeys;

/* Returns the number of a triple, which is added if it is new; AE_GNONE without memory. */
uint32_t ae_gkeys_add(ae_gkeys *keys, uint32_t a, uint32_t b, uint32_t c);
void ae_gkeys_free(ae_gkeys *keys);

/* Returns the rule of that name, which is added if it is new. */
uint32_t ae_gbuild_rule_named(ae_gbuild *build, const char *name, size_t n, uint32_t line, uint32_t column);
/* Adds a rule that no GBNF text can refer to. `name` (may be NULL) is for messages and is copied. */
uint32_t ae_gbuild_rule(ae_gbuild *build, const char *name);
void ae_gbuild_define(ae_gbuild *build, uint32_t rule, ae_gpiece piece);

/* Sorts the ranges and joins those that touch; returns how many are left. */
size_t ae_granges_normalize(ae_grange *ranges, size_t n);
/* Writes the complement of normalized ranges to out [n + 1]; returns how many ranges it has. */
size_t ae_granges_negate(const ae_grange *ranges, size_t n, ae_grange *out);

/* Checks the automaton (rules defined, no left recursion), simplifies it and hands the grammar over. Messages begin with
 * `what`. */
aerie_status ae_gbuild_finish(ae_gbuild *build, uint32_t root, const char *what, ae_grammar **out);

#endif

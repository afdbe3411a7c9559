/* grammar.h - grammars that answers must match: GBNF or a JSON schema, compiled to an automaton over bytes.
 *
 * Owns: compiled grammars. A grammar is immutable and counted by reference, so that threads and sessions share it.
 * Does not own: the position in a text (match.h), the tokens that may come next (mask.h).
 *
 * The automaton is a set of rules over bytes, each a small nondeterministic automaton whose edges are byte ranges,
 * empty moves and calls of rules. It is a pushdown automaton, since calls nest. Code points become ranges of UTF-8 bytes, so a
 * token may end in the middle of a character.
 *
 * GBNF as llama.cpp has it (grammars/README.md there): `name ::= ...` up to the end of the line or, inside of parentheses and
 * before and after `|`, further; "literals" and [classes] with \n \r \t \\ \" \[ \] \xNN \uNNNN \UNNNNNNNN (the numbers are
 * code points), in classes \- too, `.` any code point, groups, `|`, `*`, `+`, `?`, `{m}`, `{m,}`, `{m,n}`, # comments; the text
 * begins with the rule `root`. Names may hold _ as well. Refused with line and column: rules that are not defined,
 * defined twice or left-recursive, token references (<...>).
 *
 * JSON schemas: schema.h lists the keywords.
 *
 * Hostile input: text, nesting, rules, nodes and edges are bounded (below); a grammar that exceeds a bound is refused, and the
 * message names the bound.
 */
#ifndef AE_TEXT_GRAMMAR_H
#define AE_TEXT_GRAMMAR_H

#include "aerie_extra.h"
#include "base/err.h"
#include "base/mem.h"

#define AE_GRAMMAR_MAX_TEXT (1u << 20)  /* bytes of GBNF or of a schema */
#define AE_GRAMMAR_MAX_DEPTH 128        /* of groups, of schemas */
#define AE_GRAMMAR_MAX_NODES (1u << 20) /* most nodes of the automaton, and most edges */
#define AE_GRAMMAR_MAX_RULES (1u << 16)

typedef struct aerie_grammar ae_grammar;

/* Errors: FORMAT (line, column), LIMIT, MEMORY. */
aerie_status ae_grammar_from_gbnf(ae_grammar **out, const char *text, size_t n, aerie_error *error);
/* Keywords that no automaton can check are ignored, and named in `warnings` (appended to, sentences separated by "; "; NULL:
 * not wanted) unless params->strict. schema.h says what is checked.
 * Errors: FORMAT (not JSON, not a schema), UNSUPPORTED (strict: a keyword, with its place), LIMIT, MEMORY. */
aerie_status ae_grammar_from_schema_with(ae_grammar **out, const char *json, size_t n, const aerie_schema_params *params,
                                         ae_buf *warnings, aerie_error *error);
/* The same, strict: a keyword that cannot be enforced is an error. */
static inline aerie_status ae_grammar_from_schema(ae_grammar **out, const char *json, size_t n, bool standard,
                                                  aerie_error *error)
{
    const aerie_schema_params params = {.standard = standard, .strict = true};
    return ae_grammar_from_schema_with(out, json, n, &params, NULL, error);
}

/* aerie_grammar_create_lazy: free text with parts after triggers (lazy.c).
 * Errors: ARGUMENT, LIMIT, MEMORY. */
aerie_status ae_grammar_lazy(ae_grammar **out, const aerie_lazy_params *params, aerie_error *error);

/* The first byte of each control token in a constraint's trie. It does not occur in UTF-8. Only lazy grammars allow it, at the
 * places where a control token may stand. */
#define AE_GRAMMAR_CONTROL 0xFF

/* Adds an owner. */
ae_grammar *ae_grammar_share(const ae_grammar *grammar);
/* Removes an owner; the last one frees the grammar. */
void ae_grammar_free(ae_grammar *grammar);

#endif

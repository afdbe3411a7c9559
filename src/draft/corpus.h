/* corpus.h - what the n-gram drafter remembers of sequences that have ended, for those that come after them.
 *
 * Agents repeat themselves across requests: the same files, outputs of tools and phrases come back. A corpus keeps the tokens
 * of ended sequences in suffix automata (suffix.h), apart for each scope (kv.h): what one API key has sent is never looked at
 * for another.
 *
 * A scope's text lies in two generations. New text goes to the young one; when that holds half of the scope's budget, the old
 * one is dropped and the young one takes its place. So the oldest text is forgotten first, in large pieces, without deleting
 * from an automaton. Sequences end with a token of their own kind (negative), so no match runs from one into the next. Blocks
 * that were added before are left out: the turns of a conversation begin with all earlier ones.
 *
 * Owns: texts that wait to be added, automata. Does not own: how likely a continuation is (ngram.c).
 * Invariants: a call adds AE_CORPUS_STEP tokens at most. Memory is at most some 150 bytes for each token; all scopes together
 * hold at most AE_CORPUS_ALL budgets, beyond which the one used least recently is forgotten. Without memory text is forgotten,
 * and nothing fails.
 * Source: SuffixDecoding (arXiv 2411.04975) keeps a global suffix tree of outputs beside one of the request at hand.
 */
#ifndef AE_DRAFT_CORPUS_H
#define AE_DRAFT_CORPUS_H

#include "draft/suffix.h"

#define AE_CORPUS_STEP 1024  /* tokens added by a call */
#define AE_CORPUS_SCOPES 64  /* at most */
#define AE_CORPUS_ALL 4      /* budgets that all scopes have together */

typedef struct ae_corpus ae_corpus;

/* A suffix of a sequence that occurs in a generation of its scope's text. */
typedef struct ae_corpus_match {
    uint32_t state, length;
} ae_corpus_match;

/* Where a sequence stands in the corpus; all zero at first. */
typedef struct ae_corpus_place {
    uint64_t scope;
    uint64_t version; /* of the scope's text; 0: nothing is known */
    ae_corpus_match at[2]; /* in the young and in the old generation */
} ae_corpus_place;

/* n_tokens: the budget of a scope. NULL: out of memory. */
ae_corpus *ae_corpus_create(uint32_t n_tokens);
void ae_corpus_free(ae_corpus *corpus);
/* A sequence of this scope has ended: its tokens [n] are copied, and added by and by. */
void ae_corpus_add(ae_corpus *corpus, uint64_t scope, const int32_t *tokens, size_t n);
/* Adds some of what waits. */
void ae_corpus_work(ae_corpus *corpus);
/* One more token of the sequence: adjusts the place. */
void ae_corpus_step(const ae_corpus *corpus, ae_corpus_place *place, int32_t token);
/* The longest suffix of tokens[0..n) that the corpus has; text that was added since the last call is looked through from the
 * newest AE_CORPUS_LOOK tokens on. Returns the automaton that has it, and *match in it, never at a state without edges but the
 * root; NULL: there is none. */
#define AE_CORPUS_LOOK 64
const ae_suffix *ae_corpus_find(const ae_corpus *corpus, ae_corpus_place *place, const int32_t *tokens, size_t n,
                                ae_corpus_match *match);

#endif

/* corpus.h - the text of sequences that have ended, in which the n-gram drafter of later sequences searches.
 *
 * Agents repeat themselves across requests: the same files, tool outputs and phrases come back. A corpus keeps the tokens of
 * ended sequences in suffix automata (suffix.h), one set per scope (kv.h): text that one API key has sent is never searched for
 * another.
 *
 * A scope's text is in two generations. New text goes to the young one; when that holds half of the scope's budget, the old one
 * is dropped and the young one takes its place. So the oldest text is forgotten first, in large pieces, without deleting from
 * an automaton. Each sequence ends with a negative token of its own, so no match runs from one sequence into the next. Blocks
 * that were added before are left out, because every turn of a conversation begins with all earlier ones.
 *
 * Owns: texts that wait to be added, automata. Does not own: how likely a continuation is (ngram.c).
 * Invariants: a call adds at most AE_CORPUS_STEP tokens. Memory is at most some 160 bytes per token; all scopes together hold
 * at most AE_CORPUS_ALL budgets, beyond which the least recently used scope is forgotten. If memory is short text is forgotten,
 * and nothing fails.
 * Source: SuffixDecoding (arXiv 2411.04975) keeps a global suffix tree of outputs beside one of the current request.
 */
#ifndef AE_DRAFT_CORPUS_H
#define AE_DRAFT_CORPUS_H

#include "draft/suffix.h"

#define AE_CORPUS_STEP 1024  /* most tokens that a call adds */
#define AE_CORPUS_SCOPES 64  /* most scopes */
#define AE_CORPUS_ALL 4      /* budgets of all scopes together */

typedef struct ae_corpus ae_corpus;

/* A suffix of a sequence that occurs in a generation of its scope's text. */
typedef struct ae_corpus_match {
    uint32_t state, length;
} ae_corpus_match;

/* The position of a sequence in the corpus; all zero at first. */
typedef struct ae_corpus_place {
    uint64_t scope;
    uint64_t version; /* version of the scope's text; 0: nothing is known */
    ae_corpus_match at[2]; /* match in the young and in the old generation */
} ae_corpus_place;

/* n_tokens: the budget of a scope. Returns NULL if memory is short. */
ae_corpus *ae_corpus_create(uint32_t n_tokens);
void ae_corpus_free(ae_corpus *corpus);
/* Notes that a sequence of this scope has ended. Copies its tokens [n]; later calls add them to the text. */
void ae_corpus_add(ae_corpus *corpus, uint64_t scope, const int32_t *tokens, size_t n);
/* Adds some of the waiting text. */
void ae_corpus_work(ae_corpus *corpus);
/* Advances the place by one more token of the sequence. */
void ae_corpus_step(const ae_corpus *corpus, ae_corpus_place *place, int32_t token);
/* Finds the longest suffix of tokens[0..n) in the corpus. In text that was added since the last call, only the newest
 * AE_CORPUS_LOOK tokens are looked up. Returns the automaton that has the suffix, and in *match its state, which is the root or
 * has edges. Returns NULL if no automaton has one. */
#define AE_CORPUS_LOOK 64
const ae_suffix *ae_corpus_find(const ae_corpus *corpus, ae_corpus_place *place, const int32_t *tokens, size_t n,
                                ae_corpus_match *match);

/* Adds all that waits. */
void ae_corpus_finish(ae_corpus *corpus);
/* The format of files: for each scope, the least recently used one first, u64 scope, u32 n, u32 0, i32 tokens [n], oldest
 * first; any negative number ends a sequence. out [ae_corpus_bytes]. */
size_t ae_corpus_bytes(const ae_corpus *corpus);
void ae_corpus_write(const ae_corpus *corpus, uint8_t *out);
/* Adds what ae_corpus_write wrote, as if those sequences had just ended. in [n] is hostile. Returns false, and adds nothing, if
 * it is not such a text or has tokens that are not below n_vocab. *n_tokens: the number of its tokens. */
bool ae_corpus_read(ae_corpus *corpus, const uint8_t *in, size_t n, int32_t n_vocab, size_t *n_tokens);

#endif

/* mask.h - the tokens that may come next, found by walking a grammar's state together with the vocabulary.
 *
 * Owns: the trie of a vocabulary's tokens (immutable, shared by threads); and a constraint: a grammar's current state in
 * one text, with the masks of recently visited states.
 *
 * A mask has a bit for each token whose bytes the grammar allows at the current state. All bits come from one pass over the
 * trie, which skips everything below a byte that is refused. If there is not enough room for all the states visited, the
 * tokens are walked by their first bytes, and each part has the whole room. Masks are cached by state, and the least
 * recently used one is evicted; their memory is bounded by AE_CONSTRAINT_MASK_BYTES. Control tokens are in the masks of lazy
 * grammars alone (AE_GRAMMAR_CONTROL). Tokens without bytes are in no mask, and neither are end-of-generation tokens: those are
 * allowed exactly where the text may end (ae_constraint_may_end).
 *
 * Invariants: a mask depends only on the grammar and the text so far, not on earlier queries; only restart and advance move the
 * current state. Nothing here allocates after a constraint has been created.
 */
#ifndef AE_TEXT_GRAMMAR_MASK_H
#define AE_TEXT_GRAMMAR_MASK_H

#include "text/grammar/match.h"
#include "text/token/vocab.h"

#define AE_CONSTRAINT_MASK_BYTES (4u << 20)

typedef struct ae_token_trie ae_token_trie;

aerie_status ae_token_trie_create(ae_token_trie **out, const ae_vocab *vocab, aerie_error *error);
void ae_token_trie_free(ae_token_trie *trie);

typedef struct ae_constraint_stats {
    uint64_t n_masks, n_hits; /* n_masks: masks computed; n_hits: masks found in the cache */
    uint64_t n_checks;        /* single tokens checked without a mask */
    double seconds;           /* spent on masks and checks */
} ae_constraint_stats;

typedef struct ae_constraint ae_constraint;

/* Creates a constraint at the grammar's beginning. The trie is lent and must outlive it. Errors: as ae_matcher_init. */
aerie_status ae_constraint_create(ae_constraint **out, const ae_grammar *grammar, const ae_token_trie *trie,
                                  aerie_error *error);
void ae_constraint_free(ae_constraint *constraint);
const ae_grammar *ae_constraint_grammar(const ae_constraint *constraint);
/* Returns to the beginning and resets the statistics; masks and states are kept. */
void ae_constraint_restart(ae_constraint *constraint);

/* May the token come next? */
bool ae_constraint_allows(ae_constraint *constraint, int32_t token);
/* Moves the current state along an allowed token; false, without a move, for others. */
bool ae_constraint_advance(ae_constraint *constraint, int32_t token);
bool ae_constraint_may_end(const ae_constraint *constraint);
/* Returns whether the text may end and nothing can follow. */
bool ae_constraint_is_complete(const ae_constraint *constraint);
/* Returns the mask [(n_vocab + 63) / 64], in which bit t % 64 of word t / 64 says that token t may come next; valid until the
 * next call. *n: number of these tokens; 0 also if the limits of the automaton leave no answer. Returns NULL if no text can
 * continue. */
const uint64_t *ae_constraint_mask(ae_constraint *constraint, uint32_t *n);
/* Copies logits [n_vocab] to out [n_vocab], with -infinity for tokens that may not come next. with_end: end-of-generation
 * tokens may come where the text may end. Returns how many tokens may come. */
uint32_t ae_constraint_apply(ae_constraint *constraint, const float *logits, bool with_end, float *out);

/* Returns the current state, from which ae_constraint_behind walks drafts. States are valid until the current state moves or a
 * mask is computed. */
ae_gstate ae_constraint_now(const ae_constraint *constraint);
/* Returns the state after a token at `state`. AE_GSTATE_DEAD: the token is not allowed; AE_GSTATE_FULL: there is no room to
 * find out. */
ae_gstate ae_constraint_behind(ae_constraint *constraint, ae_gstate state, int32_t token);
bool ae_constraint_may_end_at(const ae_constraint *constraint, ae_gstate state);
/* Returns the longest token whose bytes are all that can follow at `state`, and in *next the state after it; -1 if there is a
 * choice. */
int32_t ae_constraint_forced(ae_constraint *constraint, ae_gstate state, ae_gstate *next);

const ae_constraint_stats *ae_constraint_stats_get(const ae_constraint *constraint);
/* Returns the bytes of memory that the constraint takes. */
size_t ae_constraint_bytes(const ae_constraint *constraint);

#endif

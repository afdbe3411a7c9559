/* reasoning.h - a limit of an answer's reasoning: after this many tokens of it, the text that ends it is written.
 *
 * Owns: copies of the texts, the tokens that are written, and the place in the answer so far. Borrows the vocabulary.
 *
 * Invariant: what is written, and where, is a function of the answer's tokens alone. So drafts change nothing (law 1): a draft
 * that disagrees is rejected as any other. Only ae_reasoning_advance moves the place, and nothing here allocates after
 * creation.
 */
#ifndef AE_SPECULATE_REASONING_H
#define AE_SPECULATE_REASONING_H

#include "aerie_extra.h"
#include "base/mem.h"
#include "text/token/vocab.h"

#define AE_REASONING_TAG 256 /* bytes of `open` and `close`, at most */

typedef struct ae_reasoning ae_reasoning;

/* Errors: ARGUMENT (a text is missing, empty or too long, or `end` lacks `close`), UNSUPPORTED (a vocabulary without texts),
 * MEMORY. */
aerie_status ae_reasoning_check(const aerie_reasoning *limit, aerie_error *error);
/* Returns a copy with its texts in the arena. If memory is short, returns NULL and sets *ok to false. */
const aerie_reasoning *ae_reasoning_copy(const aerie_reasoning *limit, ae_arena *arena, bool *ok);
/* Begins the state at the start of an answer. The caller owns *out. Errors: as in ae_reasoning_check. */
aerie_status ae_reasoning_create(ae_reasoning **out, const ae_vocab *vocab, const aerie_reasoning *limit, aerie_error *error);
/* NULL is allowed. */
void ae_reasoning_free(ae_reasoning *reasoning);

/* Returns the token that must come next; -1: any. i > 0: the i-th after it, if all before it come as they must. */
int32_t ae_reasoning_forced(const ae_reasoning *reasoning, uint32_t i);
/* Records the answer's next token. */
void ae_reasoning_advance(ae_reasoning *reasoning, int32_t token);

#endif

/* constrained.h - a sequence whose text must belong to a grammar: its draws, and what drafters may propose.
 *
 * Owns nothing. The draw is that of the sampler, given logits in which tokens that the grammar refuses are -infinity; it
 * is made at the visited node of the draft tree, whose prefix was emitted, so the constraint's one state is enough and
 * speculation changes nothing (law 1). Drafts are filtered for speed only: what is refused here would be rejected.
 */
#ifndef AE_SPECULATE_CONSTRAINED_H
#define AE_SPECULATE_CONSTRAINED_H

#include "engine/tree.h"
#include "sample/sampler.h"
#include "text/grammar/mask.h"

#define AE_GUIDE_NONE (-1) /* the grammar leaves no token */

/* The token that comes next: the sampler's draw among the tokens that are allowed, whatever the chain. with_end: an end of
 * generation may come where the text may end. masked [n_vocab] is scratch. */
int32_t ae_guide_draw(ae_constraint *constraint, ae_sampler *sampler, const float *logits, const int32_t *tokens,
                      size_t n_tokens, bool with_end, float *masked);

/* Drops nodes that the grammar refuses; prolongs the likeliest path by what must come anyway, up to max_depth levels and
 * max_nodes nodes. */
void ae_guide_filter(ae_constraint *constraint, const ae_vocab *vocab, bool with_end, uint32_t max_depth, uint32_t max_nodes,
                     ae_tree *tree);

#endif

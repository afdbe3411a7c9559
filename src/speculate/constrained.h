/* constrained.h - sequences whose text must match a grammar: the draw of a token, and the filter for drafts.
 *
 * Owns nothing. The sampler draws as usual, from logits in which tokens that the grammar refuses are -infinity. It draws at the
 * visited node of the draft tree, whose prefix was emitted. So one state of the constraint is enough, and speculation changes
 * nothing (law 1). Drafts are filtered for speed only: verification would reject what is refused here.
 */
#ifndef AE_SPECULATE_CONSTRAINED_H
#define AE_SPECULATE_CONSTRAINED_H

#include "engine/tree.h"
#include "sample/sampler.h"
#include "text/grammar/mask.h"

#define AE_GUIDE_NONE (-1) /* the grammar leaves no token */

/* Draws the next token: the sampler's draw among the allowed tokens, whatever its chain. with_end: an end-of-generation token
 * may come where the text may end. masked [n_vocab] is scratch. */
int32_t ae_guide_draw(ae_constraint *constraint, ae_sampler *sampler, const float *logits, const int32_t *tokens,
                      size_t n_tokens, bool with_end, float *masked);

/* Drops nodes that the grammar refuses. Extends the likeliest path by the tokens that the grammar forces, up to max_depth
 * levels and max_nodes nodes. */
void ae_guide_filter(ae_constraint *constraint, const ae_vocab *vocab, bool with_end, uint32_t max_depth, uint32_t max_nodes,
                     ae_tree *tree);

#endif

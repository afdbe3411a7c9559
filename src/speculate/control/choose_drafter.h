/* choose_drafter.h - which of a controller's networks drafts.
 *
 * The controller keeps costs, acceptance and an exploration budget for each network, and a score: tokens per sequence over the
 * time of its rounds in plain passes. The best network drafts. The others are tried for a few rounds each, at the start and
 * then less and less often. A trial ends as soon as costs and acceptance show that the network is better or worse; a network
 * whose budget is empty is not tried. The networks share one budget per pass, so several of them cost little more than the best
 * alone, and what they can lose is bounded however many there are.
 *
 * Owns no state of its own: it works on ae_controller's `networks`, `net` and `best`.
 */
#ifndef AE_SPECULATE_CONTROL_CHOOSE_DRAFTER_H
#define AE_SPECULATE_CONTROL_CHOOSE_DRAFTER_H

#include "speculate/control/controller.h"

#define AE_CONTEST_READY 8 /* rounds before its next trial in which a network is active, to catch up with the text */

void ae_contest_init(ae_controller *c);
/* Before a round's plan: chooses the network that drafts. */
void ae_contest_begin(ae_controller *c);
/* Records a round that brought each sequence `tokens` tokens and took as long as `passes` plain passes. */
void ae_contest_saw(ae_controller *c, double tokens, double passes);

#endif

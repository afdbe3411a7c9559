/* choose_drafter.h - which of a controller's networks drafts.
 *
 * Each keeps its own prices, beliefs and book in the controller, and what its rounds brought: tokens per sequence over what
 * they took, in plain passes. The best one drafts. The others are tried, a few rounds each, at the start and again ever more
 * rarely; a trial ends as soon as prices and acceptance say that it is surely better or worse, and one whose book is empty is
 * not tried at all. So several networks cost little more than the best of them alone, and their books share an interest:
 * however many there are, what they can lose is bounded.
 *
 * Owns no state of its own: ae_controller's `networks`, `net` and `best`.
 */
#ifndef AE_SPECULATE_CONTROL_CHOOSE_DRAFTER_H
#define AE_SPECULATE_CONTROL_CHOOSE_DRAFTER_H

#include "speculate/control/controller.h"

#define AE_CONTEST_READY 8 /* rounds that a network knows of its next trial in advance, to catch up with the text */

void ae_contest_init(ae_controller *c);
/* Before a round's plan: whose turn it is. */
void ae_contest_begin(ae_controller *c);
/* The round brought each sequence so many tokens, and took so many plain passes. */
void ae_contest_saw(ae_controller *c, double tokens, double passes);

#endif

/* belief.h - how often a drafter's tokens are accepted: by depth, and by the probability that the drafter gave them.
 *
 * A rate by depth says what a draft that was not made yet will bring; one by the drafter's probability says it of a node that
 * was. Each is a mean over the last AE_BELIEF_ROUNDS rounds or so. A depth that was seen rarely takes the rate of the depth
 * before it, and the first one a prior.
 *
 * Texts change. The last verdicts are compared with what was believed, as a sum of log-likelihood ratios against a change of
 * the odds (Page's CUSUM test): when it passes its threshold the belief is that of the
 * verdicts since the change alone. So a drafter that
 * became bad is given up after a few rounds, without taking chance for a change.
 *
 * Owns its numbers only.
 */
#ifndef AE_SPECULATE_CONTROL_BELIEF_H
#define AE_SPECULATE_CONTROL_BELIEF_H

#include <stdbool.h>
#include <stdint.h>

#include "aerie.h" /* AERIE_MAX_DRAFT */

#define AE_BELIEF_BINS 16
#define AE_BELIEF_ROUNDS 192 /* rounds that a rate is a mean of */

typedef struct ae_rate {
    double tries, hits;
} ae_rate;

typedef struct ae_belief {
    ae_rate depth[AERIE_MAX_DRAFT + 1]; /* of nodes whose parent was accepted */
    ae_rate bin[AE_BELIEF_BINS];        /* by the drafter's probability */
    struct ae_change {
        double sum;                     /* of log-likelihood ratios; 0: no sign of a change */
        double tries, hits, believed;   /* since it was 0; the hits that were believed */
    } change[2];                        /* to lower odds, to higher ones */
} ae_belief;

/* Probability that a token at this depth is accepted once its parent was; the first level's is taken `sway` standard deviations
 * above the mean. rate [n + 1]: out, for depths 1 to n. */
void ae_belief_rates(const ae_belief *b, uint32_t n, double sway, double *rate);
/* Probability that a node with the drafter's probability p is accepted once its parent was. */
double ae_belief_node(const ae_belief *b, float p, double sway);
/* Records a verdict. hit: 1 or 0, or the probability of a hit where nothing was verified. n_seqs: sequences that draft in the
 * round. */
void ae_belief_saw_depth(ae_belief *b, uint32_t depth, double hit, uint32_t n_seqs);
void ae_belief_saw_node(ae_belief *b, float p, bool hit, uint32_t n_seqs);
/* After a round in which the drafter drafted n_levels levels, possibly none: what is known of further ones gets older. */
void ae_belief_age(ae_belief *b, uint32_t n_levels);

#endif

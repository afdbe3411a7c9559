/* rates.h - how often a drafter's tokens are accepted: by depth, and by the probability that the drafter gave them.
 *
 * The rate by depth estimates a draft that is not made yet. The rate by the drafter's probability estimates a node that was
 * drafted. Each is a mean over about the last AE_RATES_ROUNDS rounds. A depth that was rarely seen takes the rate of the
 * depth before it, and the first one a prior.
 *
 * Texts change. The latest verdicts are compared with the estimates by a sum of log-likelihood ratios against a change of the
 * odds (Page's CUSUM test). When the sum passes its threshold, the estimate becomes that of the verdicts since the change
 * alone. A drafter that became bad is thus given up after a few rounds, without mistaking chance for a change.
 *
 * Owns only its numbers.
 */
#ifndef AE_SPECULATE_CONTROL_RATES_H
#define AE_SPECULATE_CONTROL_RATES_H

#include <stdbool.h>
#include <stdint.h>

#include "aerie.h" /* AERIE_MAX_DRAFT */

#define AE_RATES_BINS 16
#define AE_RATES_ROUNDS 192 /* rounds over which a rate is averaged */

typedef struct ae_rate {
    double tries, hits;
} ae_rate;

typedef struct ae_rates {
    ae_rate depth[AERIE_MAX_DRAFT + 1]; /* by depth, for nodes whose parent was accepted */
    ae_rate bin[AE_RATES_BINS];         /* by the drafter's probability */
    struct ae_change {
        double sum;                     /* sum of log-likelihood ratios; 0: no sign of a change */
        double tries, hits, expected;   /* counts since the sum was 0; expected: hits by the estimate */
    } change[2];                        /* [0]: to lower odds; [1]: to higher odds */
} ae_rates;

/* Estimates the probability that a token at each depth is accepted if its parent was. The first level's estimate is raised by
 * `sway` standard deviations. rate [n + 1] is the result, for depths 1 to n. */
void ae_rates_by_depth(const ae_rates *b, uint32_t n, double sway, double *rate);
/* Estimates the probability that a node with the drafter's probability p is accepted if its parent was. */
double ae_rates_of_node(const ae_rates *b, float p, double sway);
/* Records a verdict. hit: 1 or 0, or the probability of a hit if the level was not verified. n_seqs: sequences that draft in
 * the round. */
void ae_rates_saw_depth(ae_rates *b, uint32_t depth, double hit, uint32_t n_seqs);
void ae_rates_saw_node(ae_rates *b, float p, bool hit, uint32_t n_seqs);
/* Called after a round in which the drafter drafted n_levels levels, possibly none: what is known of deeper levels loses
 * weight. */
void ae_rates_age(ae_rates *b, uint32_t n_levels);

#endif

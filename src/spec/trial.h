/* trial.h - the last word on drafting by a network for many sequences: rounds with it against rounds without it, by the clock.
 *
 * The controller's estimates leave out what no estimate knows: caches that a network empties, the upkeep of its state. For many
 * sequences these decide, since a pass over many rows leaves little to gain. So rounds alternate, four without, eight with,
 * four without; whichever took less time per token, by the median, is kept for a while. Each comparison that the network loses
 * doubles the time until the next one.
 *
 * Timings steer speed only (law 1).
 */
#ifndef AE_SPEC_TRIAL_H
#define AE_SPEC_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#define AE_TRIAL_SEQS 8   /* with fewer sequences there is no trial: the network may always run */
#define AE_TRIAL_ROUNDS 8 /* of each side */

typedef struct ae_trial {
    uint32_t n_seqs;                         /* at the beginning of the comparison */
    uint32_t n_rounds;                       /* of it, so far */
    float seconds[2][AE_TRIAL_ROUNDS];       /* per token, without and with */
    uint32_t n_seen[2];
    uint32_t n_held;                         /* rounds for which the result stands; 0: a comparison goes on */
    uint32_t n_lost;                         /* comparisons in a row */
    bool with;                               /* the result */
} ae_trial;

/* Whether a network may run in a round of n_seqs sequences that draw. Once per round of decoding. */
bool ae_trial_allows(ae_trial *trial, uint32_t n_seqs);
/* Such a round made n_tokens in so many seconds, everything included. allowed: what ae_trial_allows said. */
void ae_trial_saw(ae_trial *trial, bool allowed, uint32_t n_tokens, double seconds);
/* The network will not run for a while. */
bool ae_trial_rests(const ae_trial *trial);

#endif

/* clock_trial.h - the last word on drafting for many sequences: rounds with it against rounds without it, by the clock.
 *
 * The controller's estimates leave out what no estimate knows: caches that a network empties, threads that it wakes, what a
 * pass over so many rows takes that was never run before. For many sequences these decide, since a pass over many rows leaves
 * little to gain. So with many sequences either kind of draft has to earn its place. It rests at first. Then it is used for a
 * few rounds, which are compared with those without it just before; it stops as soon as it is clearly slower. If it is faster
 * it stays, and a few rounds without it now and then say whether that is still so. Each trial that it loses doubles the time
 * until the next one, each that it wins the time until it is questioned again.
 *
 * A network that rests need not keep anything; AE_TRIAL_WARM rounds before it is tried it is told to get ready.
 *
 * Timings steer speed only (law 1).
 */
#ifndef AE_SPECULATE_CONTROL_CLOCK_TRIAL_H
#define AE_SPECULATE_CONTROL_CLOCK_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#define AE_TRIAL_SEQS 8   /* with fewer sequences there is no trial: all may always be used */
#define AE_TRIAL_WARM 16  /* rounds */
#define AE_TRIAL_FIRST_NETWORK 72 /* rounds before the first trial: AE_TRIAL_WARM, and some to compare with */
#define AE_TRIAL_FIRST_OFFERS 8
#define AE_TRIAL_ROUNDS 8 /* newest of each side that are compared */

typedef enum ae_trial_state {
    AE_TRIAL_REST,  /* without it, for n_left rounds */
    AE_TRIAL_TRY,   /* with it, until there is a verdict */
    AE_TRIAL_KEEP,  /* with it, for n_left rounds */
    AE_TRIAL_CHECK, /* without it, for n_left rounds, while it stays ready */
} ae_trial_state;

typedef struct ae_trial {
    uint32_t n_seqs;                   /* that this is about; 0: few, no trial */
    ae_trial_state state;
    uint32_t n_left;                   /* rounds */
    float seconds[2][AE_TRIAL_ROUNDS]; /* rings: per token, without and with */
    uint32_t n_seen[2];
    uint32_t n_idle;                   /* rounds of TRY without use */
    uint32_t n_lost, n_won;            /* trials, checks in a row */
} ae_trial;

/* What became of it in a round. */
typedef enum ae_trial_use {
    AE_TRIAL_UNUSED,
    AE_TRIAL_PROBED, /* it ran to see what it costs, not to gain anything */
    AE_TRIAL_USED,
} ae_trial_use;

/* Before every pass: so many sequences are running. n_first: rounds to rest at first. */
void ae_trial_begin(ae_trial *trial, uint32_t n_seqs, uint32_t n_first);
/* It is being compared: nothing else may change meanwhile. */
bool ae_trial_compares(const ae_trial *trial);
/* Something else has changed: what was measured is no comparison any more. */
void ae_trial_disturb(ae_trial *trial);
/* It may be used in this pass. */
bool ae_trial_allows(const ae_trial *trial);
/* It will not be used for a while. */
bool ae_trial_rests(const ae_trial *trial);
/* A pass without prompts made n_tokens in so many seconds, everything included. */
void ae_trial_saw(ae_trial *trial, ae_trial_use use, uint32_t n_tokens, double seconds);

#endif

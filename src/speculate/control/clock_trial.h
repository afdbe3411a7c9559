/* clock_trial.h - the final decision on drafting for many sequences: the measured time of rounds with and without drafts.
 *
 * The controller's estimates leave out costs that it cannot estimate: the network evicts caches and wakes threads, and a pass
 * may have a number of rows that was never run before. With many sequences these costs decide, since a pass over many rows
 * leaves little to gain. So each kind of draft has to prove itself there. It starts paused. Then it is used for a few rounds,
 * which are compared with the rounds without it just before; the trial stops as soon as it is clearly slower. If it is faster
 * it stays in use, and a few rounds without it now and then check whether that still holds. Each lost trial doubles the time
 * until the next one; each trial or check that it wins doubles the time until the next check.
 *
 * A paused network need not keep its state; it is told to get ready AE_TRIAL_WARM rounds before its trial.
 *
 * Timings affect speed only (law 1).
 */
#ifndef AE_SPECULATE_CONTROL_CLOCK_TRIAL_H
#define AE_SPECULATE_CONTROL_CLOCK_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#define AE_TRIAL_SEQS 8   /* with fewer sequences there is no trial, and all kinds may always be used */
#define AE_TRIAL_WARM 16  /* rounds that a network has to get ready for a trial */
#define AE_TRIAL_FIRST_NETWORK 72 /* rounds before the first trial: AE_TRIAL_WARM, and some to compare with */
#define AE_TRIAL_FIRST_OFFERS 8
#define AE_TRIAL_ROUNDS 8 /* newest rounds of each side that are compared */

typedef enum ae_trial_state {
    AE_TRIAL_REST,  /* paused for n_left rounds */
    AE_TRIAL_TRY,   /* used until the trial is decided */
    AE_TRIAL_KEEP,  /* used for n_left rounds */
    AE_TRIAL_CHECK, /* not used for n_left rounds, but kept ready */
} ae_trial_state;

typedef struct ae_trial {
    uint32_t n_seqs;                   /* number of sequences that the trial is about; 0: few, no trial */
    ae_trial_state state;
    uint32_t n_left;                   /* rounds until the state may end */
    float seconds[2][AE_TRIAL_ROUNDS]; /* seconds per token, without and with drafts: two rings */
    uint32_t n_seen[2];
    uint32_t n_idle;                   /* rounds of TRY or KEEP without use */
    uint32_t n_lost, n_won;            /* trials lost in a row; trials and checks won in a row */
} ae_trial;

/* How a kind of draft was used in a round. */
typedef enum ae_trial_use {
    AE_TRIAL_UNUSED,
    AE_TRIAL_PROBED, /* it ran to measure its cost, not to gain anything */
    AE_TRIAL_USED,
} ae_trial_use;

/* Before every pass: n_seqs sequences are running. n_first: rounds of the first pause. */
void ae_trial_begin(ae_trial *trial, uint32_t n_seqs, uint32_t n_first);
/* Whether a comparison is running, during which nothing else may change. */
bool ae_trial_compares(const ae_trial *trial);
/* Forgets what was measured, since something else has changed. */
void ae_trial_disturb(ae_trial *trial);
/* Whether the kind may be used in this pass. */
bool ae_trial_allows(const ae_trial *trial);
/* Whether the kind is paused and need not get ready yet. */
bool ae_trial_rests(const ae_trial *trial);
/* Records a pass without prompts that made n_tokens in `seconds`, everything included. */
void ae_trial_saw(ae_trial *trial, ae_trial_use use, uint32_t n_tokens, double seconds);

#endif

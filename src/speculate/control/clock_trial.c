/* clock_trial.c - see clock_trial.h. */
#include "speculate/control/clock_trial.h"

#include <string.h>

#define REST 64         /* rounds of pause after a lost trial; each further one doubles them (see MOST_LOST) */
#define MOST_LOST 5     /* lost trials in a row that are counted */
#define KEEP 16         /* rounds of use after a won trial; each check that confirms it doubles them (see MOST_WON) */
#define MOST_WON 5      /* won trials and checks in a row that are counted */
#define CHECK 4         /* rounds of a check; also the fewest rounds without drafts before a trial */
#define LOOK 3          /* rounds with drafts after which a trial may be stopped early */
#define CLEARLY 1.08f   /* time per token, relative to rounds without drafts, that stops it early */
#define ENOUGH 6        /* rounds with drafts after which a trial is decided */
#define FASTER 0.99f    /* time per token, relative to rounds without drafts, that wins it */
#define MOST_IDLE 12    /* rounds without use that lose it */

static void forget(ae_trial *t)
{
    t->n_seen[0] = t->n_seen[1] = t->n_idle = 0;
}

static void enter(ae_trial *t, ae_trial_state state, uint32_t n_rounds)
{
    t->state = state;
    t->n_left = n_rounds;
    t->n_idle = 0;
    /* both sides of a comparison must be measured at the same time */
    if (state == AE_TRIAL_TRY) t->n_seen[1] = 0;
    if (state == AE_TRIAL_CHECK) t->n_seen[0] = 0;
}

/* Whether the number of sequences changed so much that what was measured does not apply. */
static bool is_another(const ae_trial *t, uint32_t n_seqs)
{
    return n_seqs > t->n_seqs + t->n_seqs / 4 || n_seqs + n_seqs / 4 < t->n_seqs;
}

void ae_trial_begin(ae_trial *t, uint32_t n_seqs, uint32_t n_first)
{
    if (n_seqs < AE_TRIAL_SEQS) {
        memset(t, 0, sizeof *t);
    } else if (!t->n_seqs) {
        t->n_seqs = n_seqs;
        enter(t, AE_TRIAL_REST, n_first);
    } else if (is_another(t, n_seqs)) {
        t->n_seqs = n_seqs;
        forget(t);
        if (t->state == AE_TRIAL_KEEP || t->state == AE_TRIAL_CHECK) enter(t, AE_TRIAL_CHECK, CHECK);
        else if (t->state == AE_TRIAL_TRY || t->n_left < n_first) enter(t, AE_TRIAL_REST, n_first);
    }
}

bool ae_trial_allows(const ae_trial *t)
{
    return !t->n_seqs || t->state == AE_TRIAL_TRY || t->state == AE_TRIAL_KEEP;
}

bool ae_trial_compares(const ae_trial *t)
{
    return t->n_seqs && (t->state == AE_TRIAL_TRY || t->state == AE_TRIAL_CHECK);
}

void ae_trial_disturb(ae_trial *t)
{
    forget(t);
}

bool ae_trial_rests(const ae_trial *t)
{
    return t->n_seqs && t->state == AE_TRIAL_REST && t->n_left > AE_TRIAL_WARM;
}

static float median(const ae_trial *t, bool with)
{
    float x[AE_TRIAL_ROUNDS];
    const uint32_t n = t->n_seen[with] < AE_TRIAL_ROUNDS ? t->n_seen[with] : AE_TRIAL_ROUNDS;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at && x[at - 1] > t->seconds[with][i]; at--) x[at] = x[at - 1];
        x[at] = t->seconds[with][i];
    }
    return n ? (x[(n - 1) / 2] + x[n / 2]) / 2 : 0;
}

static void lose(ae_trial *t)
{
    t->n_lost += t->n_lost < MOST_LOST;
    t->n_won = 0;
    enter(t, AE_TRIAL_REST, REST << (t->n_lost - 1));
}

static void win(ae_trial *t)
{
    t->n_lost = 0;
    enter(t, AE_TRIAL_KEEP, KEEP << t->n_won);
    t->n_won += t->n_won < MOST_WON;
}

static void judge(ae_trial *t)
{
    if (t->n_idle == MOST_IDLE) {
        lose(t);
        return;
    }
    if (t->n_seen[1] < LOOK) return;
    const float with = median(t, true), without = median(t, false);
    if (with > CLEARLY * without) lose(t);
    else if (t->n_seen[1] < ENOUGH) return;
    else if (with < FASTER * without) win(t);
    else lose(t);
}

void ae_trial_saw(ae_trial *t, ae_trial_use use, uint32_t n_tokens, double seconds)
{
    if (!t->n_seqs || !n_tokens) return;
    const bool allowed = ae_trial_allows(t), with = use == AE_TRIAL_USED;
    if (with || !allowed) t->seconds[with][t->n_seen[with]++ % AE_TRIAL_ROUNDS] = (float)(seconds / n_tokens);
    if (t->state == AE_TRIAL_TRY) {
        t->n_idle += !with;
        judge(t);
        return;
    }
    if (t->n_left) t->n_left--;
    t->n_idle += !with && t->state == AE_TRIAL_KEEP;
    if (t->n_left) return;
    if (t->state == AE_TRIAL_REST && t->n_seen[0] >= CHECK) enter(t, AE_TRIAL_TRY, 0);
    else if (t->state == AE_TRIAL_KEEP && t->n_seen[1] >= LOOK) enter(t, AE_TRIAL_CHECK, CHECK);
    else if (t->state == AE_TRIAL_KEEP && t->n_idle >= MOST_IDLE) lose(t);
    else if (t->state != AE_TRIAL_CHECK) return; /* too little is known: another round */
    else if (t->n_seen[1] >= LOOK && median(t, true) < FASTER * median(t, false)) win(t);
    else lose(t);
}
